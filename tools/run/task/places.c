/* One array of all workers of this launcher in a memfd, which they open by its name in /proc. A worker that this
 * launcher has taken over writes into that of its predecessor, which nobody reads. */
#include "run/task/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

struct run_places {
    int fd;
    size_t bytes;
    struct run_worker_place *at; /* by local rank */
};

static bool places_map(struct run_places *places)
{
    void *memory;

    places->fd = memfd_create("muster-places", MFD_CLOEXEC); /* as host_place.h names it */
    if (places->fd < 0 || ftruncate(places->fd, (off_t)places->bytes) != 0)
        return false;
    memory = mmap(NULL, places->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, places->fd, 0);
    if (memory == MAP_FAILED)
        return false;
    places->at = memory;
    return true;
}

void run_places_open(struct run *run)
{
    size_t bytes = run->task_count * sizeof(struct run_worker_place);
    struct run_places *places = calloc(1, sizeof(*places));

    if (places == NULL)
        return;
    places->bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    run->places = places;
    if (!places_map(places))
        run_places_close(run);
}

void run_places_close(struct run *run)
{
    struct run_places *places = run->places;

    if (places == NULL)
        return;
    if (places->at != NULL)
        munmap(places->at, places->bytes);
    if (places->fd >= 0)
        close(places->fd);
    free(places);
    run->places = NULL;
}

struct run_worker_place *run_places_of(const struct run_task *task)
{
    return task->run->places != NULL ? &task->run->places->at[task->local_rank] : NULL;
}

/* Where it cannot be made the worker cannot lock it, and its death is told when it has been taken down. */
static void life_init(pthread_mutex_t *life)
{
    pthread_mutexattr_t attributes;

    memset(life, 0, sizeof(*life));
    if (pthread_mutexattr_init(&attributes) != 0)
        return;
    if (pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0)
        (void)pthread_mutex_init(life, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void run_places_clear(const struct run_task *task)
{
    struct run_worker_place *place = run_places_of(task);

    if (place == NULL)
        return;
    life_init(&place->life);
    atomic_store_explicit(&place->life_state, RUN_LIFE_UNKNOWN, memory_order_relaxed);
    atomic_store_explicit(&place->begun_step, 0, memory_order_relaxed);
    atomic_store_explicit(&place->committed_step, 0, memory_order_relaxed);
}

bool run_places_name(const struct run_task *task, char ret_name[RUN_PLACE_BYTES])
{
    const struct run_places *places = task->run->places;

    if (places == NULL)
        return false;
    snprintf(ret_name, RUN_PLACE_BYTES, "/proc/%d/fd/%d:%zu", (int)task->run->pid, places->fd,
             task->local_rank * sizeof(struct run_worker_place));
    return true;
}

bool run_places_read(const struct run_task *task, struct run_last_step *ret_step)
{
    struct run_worker_place *place = run_places_of(task);

    if (place == NULL)
        return false;
    ret_step->begun_step = atomic_load_explicit(&place->begun_step, memory_order_relaxed);
    ret_step->committed_step = atomic_load_explicit(&place->committed_step, memory_order_relaxed);
    return ret_step->begun_step > 0 || ret_step->committed_step > 0;
}
