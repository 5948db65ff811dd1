/* Operations of every kind and type on the device against what the host computes. */
#include "gpu_check_rank.h"

#include <muster/collective.h>

#include <stdio.h>
#include <string.h>

static double load_element(enum muster_dtype dtype, const uint8_t *at)
{
    union {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;
        uint32_t u32;
        uint64_t u64;
        uint16_t half;
        int8_t i8;
        uint8_t u8;
    } value;

    memcpy(&value, at, muster_dtype_bytes(dtype));
    switch (dtype) {
    case MUSTER_F32:
        return (double)value.f32;
    case MUSTER_F64:
        return value.f64;
    case MUSTER_I32:
        return (double)value.i32;
    case MUSTER_I64:
        return (double)value.i64;
    case MUSTER_U32:
        return (double)value.u32;
    case MUSTER_U64:
        return (double)value.u64;
    case MUSTER_F16:
        return (double)muster_f16_to_f32(value.half);
    case MUSTER_BF16:
        return (double)muster_bf16_to_f32(value.half);
    case MUSTER_I8:
        return (double)value.i8;
    default:
        return (double)value.u8;
    }
}

static void store_element(enum muster_dtype dtype, uint8_t *at, double number)
{
    float f32 = (float)number;
    int32_t i32 = (int32_t)number;
    int64_t i64 = (int64_t)number;
    uint16_t half;

    switch (dtype) {
    case MUSTER_F32:
        memcpy(at, &f32, sizeof(f32));
        return;
    case MUSTER_F64:
        memcpy(at, &number, sizeof(number));
        return;
    case MUSTER_I32:
    case MUSTER_U32:
        memcpy(at, &i32, sizeof(i32));
        return;
    case MUSTER_I64:
    case MUSTER_U64:
        memcpy(at, &i64, sizeof(i64));
        return;
    case MUSTER_F16:
    case MUSTER_BF16:
        half = dtype == MUSTER_F16 ? muster_f16_from_f32(f32) : muster_bf16_from_f32(f32);
        memcpy(at, &half, sizeof(half));
        return;
    default:
        at[0] = (uint8_t)i32;
        return;
    }
}

/* Small whole numbers: every type and order gives the same. */
static double input_of(uint32_t rank, uint32_t i)
{
    return (double)((i + rank) % 3 + 1);
}

static double reduce_expected(uint32_t n, uint32_t i, enum muster_reduction reduction)
{
    double result = input_of(0, i);

    for (uint32_t rank = 1; rank < n; rank++) {
        double other = input_of(rank, i);

        if (reduction == MUSTER_PROD)
            result *= other;
        else if (reduction == MUSTER_MIN)
            result = other < result ? other : result;
        else if (reduction == MUSTER_MAX)
            result = other > result ? other : result;
        else
            result += other;
    }
    return result;
}

struct expectation {
    enum muster_device_kind kind;
    enum muster_reduction reduction;
    enum muster_dtype dtype;
    uint32_t n, rank, part; /* part: VALUES / n */
};

static double expected_element(const struct expectation *e, uint32_t i)
{
    switch (e->kind) {
    case MUSTER_DEVICE_ALL_REDUCE:
    case MUSTER_DEVICE_REDUCE:
        return reduce_expected(e->n, i, e->reduction);
    case MUSTER_DEVICE_BROADCAST:
        return input_of(e->n - 1, i);
    case MUSTER_DEVICE_ALL_GATHER:
        return input_of(i / e->part, i % e->part);
    case MUSTER_DEVICE_REDUCE_SCATTER:
        return reduce_expected(e->n, e->rank * e->part + i, e->reduction);
    case MUSTER_DEVICE_ALL_TO_ALL:
        return input_of(i / e->part, e->rank * e->part + i % e->part);
    default:
        return input_of((e->rank + e->n - 1) % e->n, i);
    }
}

static uint32_t output_count(const struct expectation *e)
{
    if (e->kind == MUSTER_DEVICE_REDUCE_SCATTER)
        return e->part;
    return e->kind == MUSTER_DEVICE_REDUCE && e->rank != e->n - 1 ? 0 : e->n * e->part;
}

static void fill_inputs(struct rank *rank, const struct expectation *e, uint32_t count)
{
    size_t bytes = muster_dtype_bytes(e->dtype);

    for (uint32_t i = 0; i < count; i++)
        store_element(e->dtype, rank->host + i * bytes, input_of(e->rank, i));
    check_copy(rank, 0, rank->host, NULL, count * bytes);
}

static void compare_values(struct rank *rank, const struct expectation *e, unsigned which)
{
    size_t bytes = muster_dtype_bytes(e->dtype);
    uint32_t count = output_count(e);
    char text[128];

    check_copy(rank, which, NULL, rank->host, count * bytes);
    for (uint32_t i = 0; i < count; i++) {
        double got = load_element(e->dtype, rank->host + i * bytes), want = expected_element(e, i);

        if (got == want)
            continue;
        snprintf(text, sizeof(text), "%s of %s: element %u is %g, not %g",
                 muster_device_kind_name(e->kind), muster_dtype_name(e->dtype), i, got, want);
        check_give_up(rank, "values", text);
    }
}

static void check_one(struct rank *rank, enum muster_device_kind kind, enum muster_dtype dtype,
                      enum muster_reduction reduction)
{
    uint32_t n = rank->view->member_count;
    struct expectation e = {.kind = kind,
                            .reduction = reduction,
                            .dtype = dtype,
                            .n = n,
                            .rank = muster_group_rank(rank->group),
                            .part = VALUES / n};
    bool is_in_place = kind == MUSTER_DEVICE_ALL_REDUCE || kind == MUSTER_DEVICE_BROADCAST;
    uint32_t inputs = kind == MUSTER_DEVICE_ALL_GATHER ? e.part : n * e.part;
    struct muster_device_call call = {.kind = kind, .reduction = reduction, .root = n - 1};

    fill_inputs(rank, &e, inputs);
    call.input = (struct muster_tensor){rank->memory[0], inputs, dtype};
    call.output =
        (struct muster_tensor){rank->memory[is_in_place ? 0 : 1],
                               kind == MUSTER_DEVICE_REDUCE_SCATTER ? e.part : n * e.part, dtype};
    call.to = (e.rank + 1) % n;
    call.from = (e.rank + n - 1) % n;
    check_need(rank, check_run(rank, &call), muster_device_kind_name(kind), &rank->op.error);
    compare_values(rank, &e, is_in_place ? 0 : 1);
}

void check_rank_values(struct rank *rank)
{
    static const enum muster_reduction reductions[] = {MUSTER_SUM, MUSTER_MIN, MUSTER_MAX,
                                                       MUSTER_PROD};
    unsigned count = 0;

    for (enum muster_dtype dtype = MUSTER_F32; dtype < MUSTER_BOOL; dtype++)
        for (size_t i = 0; i < 4; i++, count++)
            check_one(rank, MUSTER_DEVICE_ALL_REDUCE, dtype, reductions[i]);
    for (enum muster_device_kind kind = MUSTER_DEVICE_BROADCAST; kind <= MUSTER_DEVICE_ALL_TO_ALL;
         kind++, count++)
        check_one(rank, kind, MUSTER_F32, MUSTER_SUM);
    check_say(rank, "result rank %u: %u operations equal the host's", rank->options.rank, count);
}
