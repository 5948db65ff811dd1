/* Values of all replicas joined along an axis. Members tell each other their shapes first. */
#include <muster/replicas.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "training/replicas.h"
#include "training/replicas/shape.h"
#include "training/replicas_memory.h"
#include "training/strategy_call.h"

/** The shape of a member's values, joined, as the others read it. */
struct told_shape {
    uint64_t dtype;
    uint64_t dimension_count;
    uint64_t axis;
    uint64_t dimensions[MUSTER_DIMENSIONS_MAX]; /* that of the axis is of its replicas together */
};
#define TOLD_WORDS (sizeof(struct told_shape) / sizeof(uint64_t))

struct gathering {
    struct muster_strategy *strategy;
    const struct muster_shaped_tensor *values;
    int32_t axis;
    struct muster_shaped_tensor own; /* this member's values, joined */
    struct told_shape *told;         /* of all members */
    uint64_t *counts;                /* elements of each of them */
    uint8_t *parts;                  /* as they come */
    struct muster_shaped_tensor whole;
};

/* --- This member's values --- */

static void *allocate_bytes(struct gathering *gathering, uint64_t bytes, enum muster_rc *rc)
{
    void *memory = NULL;

    if (bytes <= SIZE_MAX / 2)
        memory = muster_mem_alloc(gathering->strategy->env->mem, bytes > 0 ? (size_t)bytes : 1);
    if (memory == NULL)
        *rc = muster_error_set(&gathering->strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                               "gather: out of memory for %" PRIu64 " bytes", bytes);
    return memory;
}

static bool are_joinable(const struct muster_shaped_tensor *a, const struct muster_shaped_tensor *b,
                         uint32_t axis)
{
    bool are_alike = a->dtype == b->dtype && a->dimension_count == b->dimension_count;

    for (uint32_t i = 0; are_alike && i < a->dimension_count; i++)
        are_alike = i == axis || a->dimensions[i] == b->dimensions[i];
    return are_alike;
}

static uint32_t place_of_axis(const struct muster_shaped_tensor *value, int32_t axis)
{
    return axis < 0 ? value->dimension_count - (uint32_t)-axis : (uint32_t)axis;
}

static enum muster_rc refuse_pair(struct muster_strategy *strategy, const char *whose,
                                  uint32_t number, const struct muster_shaped_tensor *value,
                                  const struct muster_shaped_tensor *first)
{
    char texts[2][100];

    muster_shape_format(value, texts[0], sizeof(texts[0]));
    muster_shape_format(first, texts[1], sizeof(texts[1]));
    return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                            "gather: values differ beyond their axis, or in its number: %s %" PRIu32
                            " has %s, the first one %s",
                            whose, number, texts[0], texts[1]);
}

/* The shape of this member's values, joined. */
static enum muster_rc check_values(struct gathering *gathering)
{
    struct muster_strategy *strategy = gathering->strategy;
    const struct muster_shaped_tensor *first = &gathering->values[0];
    struct muster_shaped_tensor *own = &gathering->own;

    *own = *first;
    for (uint32_t i = 0; i < strategy->replica_count; i++) {
        const struct muster_shaped_tensor *value = &gathering->values[i];
        struct muster_axis seen;
        struct muster_error why;
        uint64_t count;
        enum muster_rc rc = muster_shape_count(value, &count, &why);

        if (rc == MUSTER_OK)
            rc = muster_shape_axis(value, gathering->axis, &seen, &why);
        if (rc != MUSTER_OK)
            return muster_error_set(&strategy->error, rc,
                                    "gather: the value of local replica %" PRIu32 ": %s", i,
                                    why.text);
        if (!are_joinable(value, first, place_of_axis(first, gathering->axis)))
            return refuse_pair(strategy, "local replica", i, value, first);
        if (i > 0)
            own->dimensions[place_of_axis(own, gathering->axis)] += seen.extent;
    }
    return MUSTER_OK;
}

/* Without a second replica the value is what travels. */
static enum muster_rc join_values(struct gathering *gathering)
{
    struct muster_strategy *strategy = gathering->strategy;
    size_t bytes = muster_dtype_bytes(gathering->own.dtype);
    struct muster_axis whole, part;
    uint64_t first = 0, count = 1;
    enum muster_rc rc = MUSTER_OK;

    if (strategy->replica_count == 1)
        return MUSTER_OK;
    for (uint32_t i = 0; i < gathering->own.dimension_count; i++)
        count *= gathering->own.dimensions[i];
    rc = muster_replicas_reserve(strategy, MUSTER_REPLICAS_ROOM_SUMS, count * bytes,
                                 &gathering->own.data);
    for (uint32_t i = 0; rc == MUSTER_OK && i < strategy->replica_count; i++) {
        rc = muster_shape_axis(&gathering->own, gathering->axis, &whole, NULL);
        if (rc == MUSTER_OK)
            rc = muster_shape_axis(&gathering->values[i], gathering->axis, &part, NULL);
        if (rc != MUSTER_OK)
            return rc;
        muster_shape_place(&whole, first, &part, bytes, gathering->own.data,
                           gathering->values[i].data);
        first += part.extent;
    }
    return rc;
}

/* --- All members' shapes --- */

static struct told_shape tell_shape(const struct gathering *gathering)
{
    const struct muster_shaped_tensor *own = &gathering->own;
    struct told_shape told = {.dtype = own->dtype,
                              .dimension_count = own->dimension_count,
                              .axis = place_of_axis(own, gathering->axis)};

    for (uint32_t i = 0; i < own->dimension_count; i++)
        told.dimensions[i] = own->dimensions[i];
    return told;
}

/* Another member has told this shape; its numbers are those of check_values there. */
static struct muster_shaped_tensor read_shape(const struct told_shape *told)
{
    struct muster_shaped_tensor shape = {.dtype = (enum muster_dtype)told->dtype};

    shape.dimension_count = told->dimension_count <= MUSTER_DIMENSIONS_MAX
                                ? (uint32_t)told->dimension_count
                                : MUSTER_DIMENSIONS_MAX;
    memcpy(shape.dimensions, told->dimensions, sizeof(shape.dimensions));
    return shape;
}

static enum muster_rc exchange_shapes(struct gathering *gathering)
{
    struct told_shape own = tell_shape(gathering);
    uint32_t size = gathering->strategy->size;
    const struct muster_tensor input = {.data = &own, .count = TOLD_WORDS, .dtype = MUSTER_U64};
    struct muster_tensor output = {.count = size * TOLD_WORDS, .dtype = MUSTER_U64};
    enum muster_rc rc = MUSTER_OK;

    gathering->told = allocate_bytes(gathering, size * sizeof(*gathering->told), &rc);
    if (rc != MUSTER_OK)
        return rc;
    output.data = gathering->told;
    return muster_replicas_gather_equal(gathering->strategy, "gather", gathering->strategy->view,
                                        &input, &output);
}

/* The shape of the whole, the same on every member. Shapes of others are not trusted: no product may wrap around. */
static enum muster_rc join_shapes(struct gathering *gathering)
{
    struct muster_strategy *strategy = gathering->strategy;
    struct muster_shaped_tensor *whole = &gathering->whole;
    struct muster_shaped_tensor first = read_shape(&gathering->told[0]);
    uint64_t axis = gathering->told[0].axis, extent = 0, count;
    struct muster_error why;
    enum muster_rc rc = MUSTER_OK;

    if (axis >= first.dimension_count)
        return refuse_pair(strategy, "rank", 0, &first, &first);
    *whole = first;
    for (uint32_t rank = 0; rc == MUSTER_OK && rank < strategy->size; rank++) {
        struct muster_shaped_tensor shape = read_shape(&gathering->told[rank]);

        if (gathering->told[rank].axis != axis || !are_joinable(&shape, &first, (uint32_t)axis))
            return refuse_pair(strategy, "rank", rank, &shape, &first);
        rc = muster_shape_elements(&shape, &gathering->counts[rank], &why);
        whole->dimensions[axis] = extent += shape.dimensions[axis];
        if (rc == MUSTER_OK && extent < shape.dimensions[axis])
            rc = muster_error_set(&why, MUSTER_INVALID_ARGUMENT, "the axis is too long");
    }
    if (rc == MUSTER_OK)
        rc = muster_shape_elements(whole, &count, &why);
    return rc == MUSTER_OK ? rc : muster_error_set(&strategy->error, rc, "gather: %s", why.text);
}

/* --- All members' values --- */

static enum muster_rc exchange_values(struct gathering *gathering)
{
    struct muster_strategy *strategy = gathering->strategy;
    struct muster_tensor input = {.data = gathering->own.data,
                                  .count = gathering->counts[strategy->rank],
                                  .dtype = gathering->own.dtype};
    struct muster_replicas_parts parts = {
        .view = strategy->view,
        .input = &input,
        .output = {.data = gathering->parts, .dtype = gathering->own.dtype},
        .counts = gathering->counts};

    for (uint32_t rank = 0; rank < strategy->size; rank++)
        parts.output.count += gathering->counts[rank];
    return parts.output.count > 0 ? muster_replicas_gather_parts(strategy, "gather", &parts)
                                  : MUSTER_OK;
}

/* Parts stand one after the other; along an axis that is not the first they lie in each other. */
static enum muster_rc join_parts(struct gathering *gathering)
{
    size_t bytes = muster_dtype_bytes(gathering->whole.dtype);
    int32_t axis = (int32_t)gathering->told[0].axis;
    const uint8_t *from = gathering->parts;
    struct muster_axis whole, part;
    uint64_t first = 0;
    enum muster_rc rc = muster_shape_axis(&gathering->whole, axis, &whole, NULL);

    for (uint32_t rank = 0; rc == MUSTER_OK && rank < gathering->strategy->size; rank++) {
        struct muster_shaped_tensor shape = read_shape(&gathering->told[rank]);

        rc = muster_shape_axis(&shape, axis, &part, NULL);
        if (rc != MUSTER_OK)
            break;
        muster_shape_place(&whole, first, &part, bytes, gathering->whole.data, from);
        from += gathering->counts[rank] * bytes;
        first += part.extent;
    }
    return rc;
}

static enum muster_rc gather_values(struct gathering *gathering)
{
    struct muster_shaped_tensor *whole = &gathering->whole;
    size_t element = muster_dtype_bytes(whole->dtype);
    struct muster_axis seen;
    enum muster_rc rc = muster_shape_axis(whole, (int32_t)gathering->told[0].axis, &seen, NULL);
    uint64_t bytes = seen.outer * seen.extent * seen.inner * element;

    if (rc == MUSTER_OK)
        gathering->parts = allocate_bytes(gathering, bytes, &rc);
    if (rc == MUSTER_OK)
        rc = join_values(gathering);
    if (rc == MUSTER_OK)
        rc = exchange_values(gathering);
    if (rc == MUSTER_OK && seen.outer == 1) {
        whole->data = gathering->parts;
        gathering->parts = NULL;
        return MUSTER_OK;
    }
    if (rc == MUSTER_OK)
        whole->data = allocate_bytes(gathering, bytes, &rc);
    return rc == MUSTER_OK ? join_parts(gathering) : rc;
}

enum muster_rc muster_replicas_gather(struct muster_strategy *strategy,
                                      const struct muster_shaped_tensor *values, int32_t axis,
                                      struct muster_shaped_tensor *ret_whole)
{
    struct muster_shaped_tensor brought[MUSTER_REPLICAS_MAX];
    struct gathering gathering = {.strategy = strategy, .values = values, .axis = axis};
    struct muster_mem *mem = strategy->env->mem;
    enum muster_rc rc = muster_strategy_check_step(strategy, "gather");

    if (rc == MUSTER_OK)
        rc = check_values(&gathering);
    if (rc == MUSTER_OK)
        rc = muster_replicas_bring_values(strategy, "gather", values, brought);
    if (rc == MUSTER_OK) {
        gathering.values = brought;
        gathering.own.data = brought[0].data;
    }
    if (rc == MUSTER_OK)
        gathering.counts = allocate_bytes(&gathering, strategy->size * sizeof(uint64_t), &rc);
    if (rc == MUSTER_OK)
        rc = exchange_shapes(&gathering);
    if (rc == MUSTER_OK)
        rc = join_shapes(&gathering);
    if (rc == MUSTER_OK)
        rc = gather_values(&gathering);
    muster_mem_free(mem, gathering.parts);
    muster_mem_free(mem, gathering.told);
    muster_mem_free(mem, gathering.counts);
    if (rc == MUSTER_OK)
        *ret_whole = gathering.whole;
    else
        muster_mem_free(mem, gathering.whole.data);
    return rc;
}

void muster_replicas_free(struct muster_strategy *strategy, struct muster_shaped_tensor *whole)
{
    muster_mem_free(strategy->env->mem, whole->data);
    whole->data = NULL;
}
