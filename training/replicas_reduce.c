/* Values of all replicas reduced: here in the order of replicas, then over the members. */
#include <muster/replicas.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <muster/gpu.h>

#include "collective/kernel/kernels.h"
#include "training/replicas.h"
#include "training/replicas/shape.h"
#include "training/replicas_memory.h"
#include "training/strategy_call.h"

/* --- One value of each replica --- */

/* A reduce under way. Of a MEAN the sums travel, and after them how many elements are in them: members that die
 * take their part of both away. f16 and bf16 travel as f32, in which counts fit, and are rounded once. */
struct reducing {
    struct muster_strategy *strategy;
    const struct muster_shaped_tensor *values;
    enum muster_reduction reduction;
    bool has_axis;
    int32_t axis;
    struct muster_axis seen;   /* the first value, from the axis */
    uint64_t count;            /* of the result */
    uint64_t divisor;          /* of this member */
    uint64_t largest;          /* elements of a value */
    struct muster_tensor sent; /* as it travels */
    float *widened;            /* room for a value of f16 or bf16 */
};

static bool is_half(enum muster_dtype dtype)
{
    return dtype == MUSTER_F16 || dtype == MUSTER_BF16;
}

static bool is_float(enum muster_dtype dtype)
{
    return is_half(dtype) || dtype == MUSTER_F32 || dtype == MUSTER_F64;
}

static void widen_half(enum muster_dtype dtype, float *into, const uint16_t *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        into[i] = dtype == MUSTER_F16 ? muster_f16_to_f32(from[i]) : muster_bf16_to_f32(from[i]);
}

static void narrow_half(enum muster_dtype dtype, uint16_t *into, const float *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        into[i] =
            dtype == MUSTER_F16 ? muster_f16_from_f32(from[i]) : muster_bf16_from_f32(from[i]);
}

static enum muster_rc refuse_value(const struct reducing *reducing, uint32_t replica,
                                   const char *why)
{
    return muster_error_set(&reducing->strategy->error, MUSTER_INVALID_ARGUMENT,
                            "reduce: the value of local replica %" PRIu32 ": %s", replica, why);
}

static enum muster_rc refuse_shape(const struct reducing *reducing, uint32_t replica)
{
    char own[100], first[100], both[216];

    muster_shape_format(&reducing->values[replica], own, sizeof(own));
    muster_shape_format(&reducing->values[0], first, sizeof(first));
    snprintf(both, sizeof(both), "%s, of replica 0 %s", own, first);
    return refuse_value(reducing, replica, both);
}

/* The value of a replica, seen from the axis; it must fit the first one. */
static enum muster_rc see_value(struct reducing *reducing, uint32_t replica)
{
    const struct muster_shaped_tensor *value = &reducing->values[replica];
    struct muster_axis seen = {1, 1, 1};
    uint64_t count = 0;
    struct muster_error why;
    enum muster_rc rc = muster_shape_count(value, &count, &why);

    seen.inner = count;
    if (rc == MUSTER_OK && reducing->has_axis)
        rc = muster_shape_axis(value, reducing->axis, &seen, &why);
    if (rc == MUSTER_OK)
        rc = muster_reduction_check(value->dtype, reducing->reduction, &why);
    if (rc != MUSTER_OK)
        return refuse_value(reducing, replica, why.text);
    if (replica == 0)
        reducing->seen = seen;
    if (value->dtype != reducing->values[0].dtype || seen.outer != reducing->seen.outer ||
        seen.inner != reducing->seen.inner)
        return refuse_shape(reducing, replica);
    reducing->divisor += seen.extent;
    reducing->largest = count > reducing->largest ? count : reducing->largest;
    return MUSTER_OK;
}

static enum muster_rc check_result(const struct reducing *reducing,
                                   const struct muster_tensor *result)
{
    enum muster_dtype dtype = reducing->values[0].dtype;

    if (result->count == reducing->count && result->dtype == dtype &&
        (result->count == 0 ||
         (result->data != NULL && (uintptr_t)result->data % muster_dtype_bytes(dtype) == 0)))
        return MUSTER_OK;
    return muster_error_set(
        &reducing->strategy->error, MUSTER_INVALID_ARGUMENT,
        "reduce: the result must be %s x %" PRIu64 ", aligned to its type, got %s x %" PRIu64,
        muster_dtype_name(dtype), reducing->count, muster_dtype_name(result->dtype), result->count);
}

static enum muster_rc check_values(struct reducing *reducing)
{
    struct muster_strategy *strategy = reducing->strategy;
    enum muster_reduction reduction = reducing->reduction;

    if (reducing->has_axis && reduction != MUSTER_SUM && reduction != MUSTER_MEAN)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "reduce: with an axis the reduction must be sum or mean, got %s",
                                muster_reduction_name(reduction));
    for (uint32_t i = 0; i < strategy->replica_count; i++) {
        enum muster_rc rc = see_value(reducing, i);

        if (rc != MUSTER_OK)
            return rc;
    }
    if (reduction == MUSTER_MEAN && !is_float(reducing->values[0].dtype))
        return refuse_value(reducing, 0, "a mean over replicas is of floats");
    reducing->count = reducing->seen.outer * reducing->seen.inner;
    return MUSTER_OK;
}

/* Room for what travels, and after it for a value that is widened. */
static enum muster_rc reserve_sent(struct reducing *reducing)
{
    enum muster_dtype dtype = reducing->values[0].dtype;
    struct muster_tensor sent = {.count = reducing->count + (reducing->reduction == MUSTER_MEAN),
                                 .dtype = is_half(dtype) ? MUSTER_F32 : dtype};
    uint64_t bytes = sent.count * muster_dtype_bytes(sent.dtype);
    enum muster_rc rc = muster_replicas_reserve(
        reducing->strategy, MUSTER_REPLICAS_ROOM_SUMS,
        bytes + (is_half(dtype) ? reducing->largest * sizeof(float) : 0), &sent.data);

    if (rc != MUSTER_OK)
        return rc;
    reducing->sent = sent;
    reducing->widened = (float *)(void *)((uint8_t *)sent.data + bytes);
    return MUSTER_OK;
}

/* The value of a replica as its type travels. */
static const void *travelling_value(const struct reducing *reducing, uint32_t replica,
                                    uint64_t count)
{
    const struct muster_shaped_tensor *value = &reducing->values[replica];

    if (!is_half(value->dtype))
        return value->data;
    widen_half(value->dtype, reducing->widened, value->data, count);
    return reducing->widened;
}

static void fold_value(const struct reducing *reducing, uint32_t replica)
{
    struct muster_axis seen = {1, 1, reducing->count};
    size_t bytes = (size_t)reducing->count * muster_dtype_bytes(reducing->sent.dtype);
    const void *value;
    enum muster_rc rc = MUSTER_OK;

    if (reducing->has_axis)
        rc = muster_shape_axis(&reducing->values[replica], reducing->axis, &seen, NULL);
    MUSTER_ASSERT(rc == MUSTER_OK); /* see_value has seen it */
    value = travelling_value(reducing, replica, seen.outer * seen.extent * seen.inner);
    if (bytes == 0)
        return;
    if (reducing->has_axis)
        muster_shape_add_along(&seen, reducing->sent.dtype, reducing->sent.data, value);
    else if (replica == 0)
        memcpy(reducing->sent.data, value, bytes);
    else
        muster_kernel_reduce(reducing->sent.dtype, reducing->reduction, reducing->sent.data, value,
                             (size_t)reducing->count);
}

/* The values of this member, and their number; a count is exact in f32 up to 2^24, as TensorFlow's. */
static void fold_values(const struct reducing *reducing)
{
    memset(reducing->sent.data, 0,
           (size_t)reducing->sent.count * muster_dtype_bytes(reducing->sent.dtype));
    for (uint32_t i = 0; i < reducing->strategy->replica_count; i++)
        fold_value(reducing, i);
    if (reducing->reduction != MUSTER_MEAN)
        return;
    if (reducing->sent.dtype == MUSTER_F64)
        ((double *)reducing->sent.data)[reducing->count] = (double)reducing->divisor;
    else
        ((float *)reducing->sent.data)[reducing->count] = (float)reducing->divisor;
}

static void divide_sums(const struct reducing *reducing)
{
    double *f64 = reducing->sent.data;
    float *f32 = reducing->sent.data;

    for (uint64_t i = 0; i < reducing->count; i++) {
        if (reducing->sent.dtype == MUSTER_F64)
            f64[i] /= f64[reducing->count];
        else
            f32[i] /= f32[reducing->count];
    }
}

static enum muster_rc give_result(const struct reducing *reducing,
                                  const struct muster_tensor *result)
{
    struct muster_strategy *strategy = reducing->strategy;
    struct muster_replicas_copy copy = {.data = result->data,
                                        .bytes = result->count * muster_dtype_bytes(result->dtype),
                                        .replica = MUSTER_REPLICA_UNKNOWN,
                                        .is_written = true};
    enum muster_rc rc = muster_replicas_bring(strategy, "reduce", &copy, 1);

    if (rc != MUSTER_OK)
        return rc;
    if (is_half(result->dtype))
        narrow_half(result->dtype, copy.host, reducing->sent.data, result->count);
    else
        memcpy(copy.host, reducing->sent.data, (size_t)copy.bytes);
    return muster_replicas_give(strategy, "reduce", &copy, 1);
}

enum muster_rc muster_replicas_reduce(struct muster_strategy *strategy,
                                      const struct muster_shaped_tensor *values, int32_t axis,
                                      enum muster_reduction reduction,
                                      const struct muster_tensor *result)
{
    struct muster_shaped_tensor brought[MUSTER_REPLICAS_MAX];
    struct reducing reducing = {.strategy = strategy,
                                .values = values,
                                .reduction = reduction,
                                .has_axis = axis != MUSTER_AXIS_NONE,
                                .axis = axis};
    enum muster_rc rc = muster_strategy_check_step(strategy, "reduce");

    if (rc == MUSTER_OK)
        rc = check_values(&reducing);
    if (rc == MUSTER_OK)
        rc = check_result(&reducing, result);
    if (rc == MUSTER_OK)
        rc = reserve_sent(&reducing);
    if (rc == MUSTER_OK)
        rc = muster_replicas_bring_values(strategy, "reduce", values, brought);
    if (rc != MUSTER_OK)
        return rc;
    reducing.values = brought;
    fold_values(&reducing);
    rc = muster_strategy_all_reduce(strategy, &reducing.sent, 1,
                                    reduction == MUSTER_MEAN ? MUSTER_SUM : reduction);
    if (rc != MUSTER_OK || result->count == 0)
        return rc;
    if (reduction == MUSTER_MEAN)
        divide_sums(&reducing);
    return give_result(&reducing, result);
}

/* --- Gradients of each replica --- */

#define NAME "all_reduce of replicas"

static bool is_usable(const struct muster_tensor *tensor)
{
    size_t bytes = muster_dtype_bytes(tensor->dtype);

    return bytes > 0 && tensor->count <= SIZE_MAX / 2 / MUSTER_REPLICAS_MAX / bytes &&
           (tensor->count == 0 || (tensor->data != NULL && (uintptr_t)tensor->data % bytes == 0));
}

static enum muster_rc check_gradients(struct muster_strategy *strategy,
                                      const struct muster_tensor *tensors, size_t count,
                                      enum muster_reduction reduction)
{
    for (size_t i = 0; i < count; i++)
        if (reduction == MUSTER_MEAN && !is_float(tensors[i].dtype))
            return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                    NAME ": tensor %zu: a mean over replicas is "
                                         "of floats, got %s",
                                    i, muster_dtype_name(tensors[i].dtype));
    for (size_t i = 0; i < count * strategy->replica_count; i++) {
        const struct muster_tensor *first = &tensors[i % count];

        if (!is_usable(&tensors[i]) || tensors[i].count != first->count ||
            tensors[i].dtype != first->dtype)
            return muster_error_set(
                &strategy->error, MUSTER_INVALID_ARGUMENT,
                NAME ": tensor %zu of local replica %zu: %s x %" PRIu64
                     ", of replica 0 %s x %" PRIu64
                     " (unknown types, data NULL or not aligned are refused, too)",
                i % count, i / count, muster_dtype_name(tensors[i].dtype), tensors[i].count,
                muster_dtype_name(first->dtype), first->count);
    }
    return MUSTER_OK;
}

/* Weights rather than a division by the members: members may differ in replicas, and those that die take their
 * weight with them. */
static enum muster_rc reduce_members(struct muster_strategy *strategy,
                                     const struct muster_tensor *tensors, size_t count,
                                     enum muster_reduction reduction)
{
    return reduction == MUSTER_MEAN
               ? muster_strategy_all_reduce_weighted(strategy, tensors, count,
                                                     strategy->replica_count)
               : muster_strategy_all_reduce(strategy, tensors, count, reduction);
}

#define ALIGNMENT 64u

static uint64_t room_of(const struct muster_tensor *tensor)
{
    uint64_t bytes = tensor->count * muster_dtype_bytes(tensor->dtype);

    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static enum muster_rc place_sums(struct muster_strategy *strategy,
                                 const struct muster_tensor *tensors, size_t count,
                                 struct muster_tensor *sums)
{
    uint64_t bytes = 0;
    void *memory = NULL;
    uint8_t *at;
    enum muster_rc rc;

    for (size_t i = 0; i < count; i++)
        bytes += room_of(&tensors[i]);
    rc = muster_replicas_reserve(strategy, MUSTER_REPLICAS_ROOM_SUMS, bytes, &memory);
    at = memory;
    for (size_t i = 0; rc == MUSTER_OK && i < count; at += room_of(&tensors[i]), i++) {
        sums[i] = tensors[i];
        sums[i].data = at;
    }
    return rc;
}

/* Sums of the local replicas are made aside, so that after an error the inputs are as they were. */
static enum muster_rc reduce_aside(struct muster_strategy *strategy,
                                   struct muster_replicas_copy *places,
                                   const struct muster_tensor *sums, size_t count,
                                   enum muster_reduction reduction)
{
    size_t all = count * strategy->replica_count;
    enum muster_rc rc;

    if (muster_replicas_are_far(places, all))
        muster_replicas_pin(strategy, MUSTER_REPLICAS_ROOM_SUMS);
    rc = muster_replicas_fold(strategy, NAME, places, sums, count, reduction);
    if (rc == MUSTER_OK)
        rc = reduce_members(strategy, sums, count, reduction);
    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < all; i++)
        places[i].host = sums[i % count].data;
    return muster_replicas_give(strategy, NAME, places, all);
}

/* One replica whose tensors the members' own operation takes as they are. */
static bool is_direct(const struct muster_strategy *strategy)
{
    return strategy->replica_count == 1 &&
           strategy->communication.implementation == MUSTER_COMMUNICATION_NCCL;
}

static enum muster_rc reduce_gradients(struct muster_strategy *strategy,
                                       const struct muster_tensor *tensors, size_t count,
                                       enum muster_reduction reduction,
                                       struct muster_replicas_copy *places,
                                       struct muster_tensor *sums)
{
    size_t all = count * strategy->replica_count;
    enum muster_rc rc;

    for (size_t i = 0; i < all; i++)
        places[i] = (struct muster_replicas_copy){
            .data = tensors[i].data,
            .bytes = tensors[i].count * muster_dtype_bytes(tensors[i].dtype),
            .replica = (uint32_t)(i / count),
            .is_read = true,
            .is_written = true,
        };
    rc = muster_replicas_find(strategy, NAME, places, all);
    if (rc != MUSTER_OK)
        return rc;
    if (is_direct(strategy))
        return reduce_members(strategy, tensors, count, reduction);
    rc = place_sums(strategy, tensors, count, sums);
    return rc == MUSTER_OK ? reduce_aside(strategy, places, sums, count, reduction) : rc;
}

enum muster_rc muster_replicas_all_reduce(struct muster_strategy *strategy,
                                          const struct muster_tensor *tensors, size_t count,
                                          enum muster_reduction reduction)
{
    struct muster_mem *mem = strategy->env->mem;
    struct muster_replicas_copy *places;
    struct muster_tensor *sums;
    enum muster_rc rc = muster_strategy_check_step(strategy, NAME);

    if (rc == MUSTER_OK)
        rc = check_gradients(strategy, tensors, count, reduction);
    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count; i++) {
        struct muster_error why;

        if (muster_reduction_check(tensors[i].dtype, reduction, &why) != MUSTER_OK)
            return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                    NAME ": tensor %zu: %s", i, why.text);
    }
    if (strategy->replica_count == 1 &&
        muster_gpu_count_tensors(strategy->env, tensors, count) == 0)
        return reduce_members(strategy, tensors, count, reduction);
    sums = muster_mem_alloc_zero(mem, count > 0 ? count : 1, sizeof(*sums));
    places = muster_mem_alloc_zero(mem, count * strategy->replica_count + 1, sizeof(*places));
    rc =
        sums != NULL && places != NULL
            ? reduce_gradients(strategy, tensors, count, reduction, places, sums)
            : muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, NAME ": out of memory");
    muster_mem_free(mem, places);
    muster_mem_free(mem, sums);
    return rc;
}
