/* Places are mapped by name, so that a launcher hands down nothing but a variable (proc(5)).
 *
 * The holder's thread has a key of pthreads whose destructor unlocks the life: a thread that ends while its process
 * goes on must not look like a death. */
#include "runtime/system/host_place.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096u /* the least that is mapped; of larger pages the first part */
#define PATH_BYTES 64u

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* the place that the thread holds */
static bool has_key;

static bool is_launcher_memory(int fd)
{
    static const char expected[] = "/memfd:" MUSTER_HOST_PLACES_NAME " (deleted)";
    char path[PATH_BYTES], found[sizeof(expected)];
    ssize_t length;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    length = readlink(path, found, sizeof(found));
    return length == (ssize_t)sizeof(expected) - 1 &&
           memcmp(found, expected, sizeof(expected) - 1) == 0;
}

/* Not more than there is: a write beyond it would kill the process. */
static struct muster_host_place *place_map(int fd, unsigned long long offset)
{
    size_t within = (size_t)(offset % PAGE_BYTES);
    struct stat status;
    uint8_t *page;

    if (within % sizeof(struct muster_host_place) != 0 || fstat(fd, &status) != 0 ||
        !is_launcher_memory(fd) ||
        offset + PAGE_BYTES - within > (unsigned long long)status.st_size)
        return NULL;
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - within));
    return page != MAP_FAILED ? (struct muster_host_place *)(page + within) : NULL;
}

struct muster_host_place *muster_host_place_open(const char *name)
{
    const char *colon = name != NULL ? strrchr(name, ':') : NULL;
    struct muster_host_place *place;
    char path[PATH_BYTES], *end = NULL;
    unsigned long long offset;
    int fd;

    if (colon == NULL || (size_t)(colon - name) >= sizeof(path))
        return NULL;
    (void)snprintf(path, sizeof(path), "%.*s", (int)(colon - name), name);
    offset = strtoull(colon + 1, &end, 10);
    if (end == colon + 1 || *end != '\0' || offset > UINT32_MAX)
        return NULL;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    place = place_map(fd, offset);
    close(fd);
    return place;
}

/* The thread that has locked the life, as the kernel reads it (get_robust_list(2)); 0: none. */
static uint32_t holder_of(const struct muster_host_place *place)
{
    return __atomic_load_n((const uint32_t *)(const void *)&place->life, __ATOMIC_ACQUIRE) &
           FUTEX_TID_MASK;
}

/* A fork has a copy of the key's value, but does not hold the life. */
static bool is_mine(const struct muster_host_place *place)
{
    return holder_of(place) == (uint32_t)gettid();
}

static void life_release(struct muster_host_place *place)
{
    atomic_store_explicit(&place->life_state, MUSTER_HOST_LIFE_RELEASED, memory_order_release);
    pthread_mutex_unlock(&place->life);
}

static void on_thread_end(void *value)
{
    if (is_mine(value))
        life_release(value);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, on_thread_end) == 0;
}

void muster_host_place_hold(struct muster_host_place *place)
{
    if (place == NULL || pthread_once(&key_once, make_key) != 0 || !has_key ||
        pthread_getspecific(key) != NULL || pthread_mutex_trylock(&place->life) != 0)
        return;
    if (pthread_setspecific(key, place) == 0)
        atomic_store_explicit(&place->life_state, MUSTER_HOST_LIFE_HELD, memory_order_release);
    else
        life_release(place);
}

void muster_host_place_close(struct muster_host_place *place)
{
    if (place == NULL)
        return;
    if (is_mine(place)) {
        (void)pthread_setspecific(key, NULL); /* first: the destructor must not find it */
        life_release(place);
    }
    /* The list of robust mutexes of another thread that still holds it leads through this memory. */
    if (holder_of(place) != 0)
        atomic_store_explicit(&place->life_state, MUSTER_HOST_LIFE_RELEASED, memory_order_release);
    else
        munmap((void *)((uintptr_t)place / PAGE_BYTES * PAGE_BYTES), PAGE_BYTES);
}
