/* Tensors of the local replicas, reduced in the host's memory. Those on devices come in windows: while one is reduced,
 * the devices copy the next one, so that neither waits for the other, and the copies need little memory. */
#include <string.h>

#include "collective/kernel/kernels.h"
#include "training/replicas.h"
#include "training/replicas_memory.h"

#define WINDOW_BYTES ((uint64_t)4 << 20) /* of each replica */
#define SEGMENTS_MAX 64u                 /* of a window: small tensors come together */
#define ALIGNMENT    64u

/** Elements of a tensor, the same of each replica. */
struct segment {
    size_t tensor;
    uint64_t first, count;
    uint64_t at; /* byte in the window */
};

struct window {
    struct segment segments[SEGMENTS_MAX];
    size_t count;
    uint8_t *memory; /* of all replicas, one after the other */
};

struct folding {
    struct muster_strategy *strategy;
    const char *name;
    const struct muster_replicas_copy *places;
    const struct muster_tensor *sums;
    size_t count;
    enum muster_reduction reduction;
    size_t tensor; /* the next window begins here … */
    uint64_t first;
    struct muster_replicas_copy *copies; /* of one window */
    struct window windows[2];
};

static size_t element_of(const struct folding *folding, size_t tensor)
{
    return muster_dtype_bytes(folding->sums[tensor].dtype);
}

/* --- A window --- */

static void window_fill(struct folding *folding, struct window *window)
{
    uint64_t at = 0;

    window->count = 0;
    while (folding->tensor < folding->count && window->count < SEGMENTS_MAX && at < WINDOW_BYTES) {
        size_t element = element_of(folding, folding->tensor);
        uint64_t left = folding->sums[folding->tensor].count - folding->first;
        uint64_t room = (WINDOW_BYTES - at) / element;
        uint64_t count = left < room ? left : room;

        if (count > 0)
            window->segments[window->count++] =
                (struct segment){folding->tensor, folding->first, count, at};
        at += (count * element + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        folding->first += count;
        if (folding->first < folding->sums[folding->tensor].count)
            continue;
        folding->tensor++;
        folding->first = 0;
    }
}

/* Where a segment of a replica is for the program. */
static uint8_t *data_at(const struct folding *folding, const struct segment *segment,
                        uint32_t replica)
{
    const struct muster_replicas_copy *place =
        &folding->places[replica * folding->count + segment->tensor];

    return (uint8_t *)place->data + segment->first * element_of(folding, segment->tensor);
}

static bool is_far(const struct folding *folding, const struct segment *segment, uint32_t replica)
{
    return folding->places[replica * folding->count + segment->tensor].memory != NULL;
}

static enum muster_rc window_start(struct folding *folding, const struct window *window)
{
    size_t count = 0;

    for (size_t i = 0; i < window->count; i++)
        for (uint32_t replica = 0; replica < folding->strategy->replica_count; replica++) {
            const struct segment *segment = &window->segments[i];

            folding->copies[count++] = (struct muster_replicas_copy){
                .data = data_at(folding, segment, replica),
                .host = window->memory + replica * WINDOW_BYTES + segment->at,
                .bytes = segment->count * element_of(folding, segment->tensor),
                .replica = replica,
                .memory = folding->places[replica * folding->count + segment->tensor].memory,
                .is_read = true,
            };
        }
    return muster_replicas_start_copies(folding->strategy, folding->name, folding->copies, count,
                                        true);
}

static void window_fold(const struct folding *folding, const struct window *window)
{
    const void *from[MUSTER_REPLICAS_MAX];

    for (size_t i = 0; i < window->count; i++) {
        const struct segment *segment = &window->segments[i];
        const struct muster_tensor *sum = &folding->sums[segment->tensor];
        uint32_t count = folding->strategy->replica_count;

        for (uint32_t replica = 0; replica < count; replica++)
            from[replica] = is_far(folding, segment, replica)
                                ? window->memory + replica * WINDOW_BYTES + segment->at
                                : data_at(folding, segment, replica);
        muster_kernel_reduce_all(sum->dtype, folding->reduction,
                                 (uint8_t *)sum->data +
                                     segment->first * element_of(folding, segment->tensor),
                                 from, count, (size_t)segment->count);
    }
}

/* --- All --- */

static enum muster_rc folding_reserve(struct folding *folding)
{
    struct muster_strategy *strategy = folding->strategy;
    uint64_t bytes = strategy->replica_count * WINDOW_BYTES;
    void *memory = NULL;
    enum muster_rc rc =
        muster_replicas_reserve(strategy, MUSTER_REPLICAS_ROOM_VALUES, 2 * bytes, &memory);

    if (rc != MUSTER_OK)
        return rc;
    muster_replicas_pin(strategy, MUSTER_REPLICAS_ROOM_VALUES);
    folding->windows[0].memory = memory;
    folding->windows[1].memory = (uint8_t *)memory + bytes;
    folding->copies =
        muster_mem_alloc_zero(strategy->env->mem, (size_t)strategy->replica_count * SEGMENTS_MAX,
                              sizeof(*folding->copies));
    return folding->copies != NULL ? MUSTER_OK
                                   : muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                                      "%s: out of memory", folding->name);
}

static enum muster_rc fold_windows(struct folding *folding)
{
    struct muster_strategy *strategy = folding->strategy;
    struct window *window = &folding->windows[0], *next = &folding->windows[1];
    enum muster_rc rc;

    window_fill(folding, window);
    rc = window_start(folding, window);
    while (rc == MUSTER_OK && window->count > 0) {
        struct window *folded = window;

        rc = muster_replicas_wait_copies(strategy, folding->name, rc);
        if (rc != MUSTER_OK)
            return rc;
        window_fill(folding, next);
        rc = window_start(folding, next);
        window_fold(folding, folded);
        window = next;
        next = folded;
    }
    return muster_replicas_wait_copies(strategy, folding->name, rc);
}

static void fold_here(const struct folding *folding)
{
    const void *from[MUSTER_REPLICAS_MAX];
    uint32_t replicas = folding->strategy->replica_count;

    for (size_t i = 0; i < folding->count; i++) {
        const struct muster_tensor *sum = &folding->sums[i];

        for (uint32_t replica = 0; replica < replicas; replica++)
            from[replica] = folding->places[replica * folding->count + i].data;
        if (sum->count > 0)
            muster_kernel_reduce_all(sum->dtype, folding->reduction, sum->data, from, replicas,
                                     (size_t)sum->count);
    }
}

enum muster_rc muster_replicas_fold(struct muster_strategy *strategy, const char *name,
                                    const struct muster_replicas_copy *places,
                                    const struct muster_tensor *sums, size_t count,
                                    enum muster_reduction reduction)
{
    struct folding folding = {.strategy = strategy,
                              .name = name,
                              .places = places,
                              .sums = sums,
                              .count = count,
                              .reduction = reduction};
    enum muster_rc rc;

    if (!muster_replicas_are_far(places, count * strategy->replica_count)) {
        fold_here(&folding);
        return MUSTER_OK;
    }
    rc = folding_reserve(&folding);
    if (rc == MUSTER_OK)
        rc = fold_windows(&folding);
    muster_mem_free(strategy->env->mem, folding.copies);
    return rc;
}
