/* The memory is a file that is mapped shared while its process lives, and privately from its death
 * on. The store's own calls of optimizers are led here by the linker (tests/CMakeLists.txt). */
#include "tests/sim/params_memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "params/store/optimizer.h"
#include "tests/sim/sim_internal.h"

struct params_memory {
    void *memory;
    size_t bytes;
    int fd;
    struct sim_node *node;
    uint32_t values_left; /* until its death; 0: not armed */
    struct muster_list link;
};

/* One world at a time runs in a process. */
static struct muster_list memories = {.next = &memories, .prev = &memories};

static void memory_map(struct params_memory *memory, int sharing)
{
    void *at = mmap(memory->memory, memory->bytes, PROT_READ | PROT_WRITE,
                    sharing | (memory->memory != NULL ? MAP_FIXED : 0), memory->fd, 0);

    MUSTER_ASSERT(at != MAP_FAILED);
    memory->memory = at;
}

struct params_memory *params_memory_open(size_t bytes)
{
    struct params_memory *memory = sim_alloc(sizeof(*memory));

    memory->bytes = bytes;
    memory->fd = memfd_create("params-memory", MFD_CLOEXEC);
    MUSTER_ASSERT(memory->fd >= 0 && ftruncate(memory->fd, (off_t)bytes) == 0);
    memory_map(memory, MAP_SHARED);
    muster_list_append(&memories, &memory->link);
    return memory;
}

void *params_memory_take(struct params_memory *memory, struct sim_node *node)
{
    memory_map(memory, MAP_SHARED);
    memory->node = node;
    return memory->memory;
}

void params_memory_leave(struct params_memory *memory)
{
    memory_map(memory, MAP_PRIVATE);
    memory->node = NULL;
    memory->values_left = 0;
}

void params_memory_kill_within(struct params_memory *memory, uint32_t values)
{
    if (memory->node != NULL)
        memory->values_left = values;
}

void params_memory_spare(struct params_memory *memory)
{
    memory->values_left = 0;
}

void params_memory_close(struct params_memory *memory)
{
    if (memory == NULL)
        return;
    munmap(memory->memory, memory->bytes);
    close(memory->fd);
    muster_list_remove(&memory->link);
    free(memory);
}

/* --- Deaths between two stores of a row --- */

const struct muster_params_optimizers *__real_muster_params_optimizers_best(void);
const struct muster_params_optimizers *__wrap_muster_params_optimizers_best(void);

static struct params_memory *memory_of(const float *values)
{
    MUSTER_LIST_EACH (&memories, memory, struct params_memory, link) {
        size_t at = (size_t)((uintptr_t)values - (uintptr_t)memory->memory);

        if (at < memory->bytes)
            return memory;
    }
    return NULL;
}

static void add_mortally(const struct muster_params_store_table *table, float *values, float *state,
                         const float *gradient)
{
    struct params_memory *memory = memory_of(values);

    (void)state;
    for (uint32_t i = 0; i < table->row_elements; i++) {
        if (memory != NULL && memory->values_left > 0 && --memory->values_left == 0)
            sim_kill(memory->node);
        values[i] += gradient[i];
    }
}

const struct muster_params_optimizers *__wrap_muster_params_optimizers_best(void)
{
    static struct muster_params_optimizers mortal;

    mortal = *__real_muster_params_optimizers_best();
    mortal.apply[MUSTER_PARAMS_ADD] = add_mortally;
    return &mortal;
}
