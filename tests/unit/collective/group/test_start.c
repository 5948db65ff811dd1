/* Impossible operations are refused at once, and no callback comes. */
#include "group_ring.h"

#include <stdio.h>
#include <string.h>

struct call {
    struct muster_op op;
    unsigned done_count;
    struct {
        _Alignas(8) uint8_t bytes[64];
    } input, output;
};

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    (void)rc;
    call->done_count++;
}

static struct muster_tensor tensor_of(void *data, uint64_t count, enum muster_dtype dtype)
{
    return (struct muster_tensor){.data = data, .count = count, .dtype = dtype};
}

static void impossible_arguments_are_refused_at_once(void **state)
{
    struct group_ring ring;
    struct call call = {.op.data = &call};
    struct muster_tensor tensor, part;

    (void)state;
    group_ring_open(&ring, 2);
    call.op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, MUSTER_NS_PER_S);
    tensor = tensor_of(call.input.bytes + 1, 2, MUSTER_F32);
    assert_int_equal(
        muster_all_reduce_start(&call.op, ring.members[0].group, &tensor, MUSTER_SUM, on_done),
        MUSTER_INVALID_ARGUMENT);
    tensor = tensor_of(call.input.bytes, 4, MUSTER_F32);
    assert_int_equal(muster_broadcast_start(&call.op, ring.members[0].group, &tensor, 2, on_done),
                     MUSTER_INVALID_ARGUMENT);
    part = tensor_of(call.output.bytes, 4, MUSTER_F32);
    assert_int_equal(
        muster_all_gather_start(&call.op, ring.members[0].group, &tensor, &part, on_done),
        MUSTER_INVALID_ARGUMENT);
    call.op.lane = MUSTER_LANES_MAX;
    assert_int_equal(muster_barrier_start(&call.op, ring.members[0].group, on_done),
                     MUSTER_INVALID_ARGUMENT);
    call.op.lane = 0;
    call.op.deadline_ns = 0;
    assert_int_equal(muster_barrier_start(&call.op, ring.members[0].group, on_done),
                     MUSTER_INVALID_ARGUMENT);

    group_ring_turn(&ring, 10);
    assert_int_equal(call.done_count, 0);
    group_ring_close(&ring);
}

/* The last record. */
struct log {
    struct muster_log log;
    enum muster_log_level level;
    char event[32], why[240];
};

static void log_write(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                      const char *event, const struct muster_field *fields, size_t count)
{
    struct log *ours = MUSTER_CONTAINER_OF(log, struct log, log);

    (void)wall_ns;
    ours->level = level;
    snprintf(ours->event, sizeof(ours->event), "%s", event);
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "reason") == 0)
            snprintf(ours->why, sizeof(ours->why), "%s", fields[i].text);
}

static void a_reduction_that_the_type_does_not_have_is_refused_at_once(void **state)
{
    static const struct muster_log_ops ops = {.write = log_write};
    struct log log = {.log = {.ops = &ops, .level_max = MUSTER_LOG_ERROR}};
    struct group_ring ring;
    struct call call = {.op.data = &call};
    struct muster_tensor tensor, output;

    (void)state;
    group_ring_open(&ring, 2);
    ring.test.env.log = &log.log;
    call.op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, MUSTER_NS_PER_S);
    tensor = tensor_of(call.input.bytes, 4, MUSTER_F32);
    assert_int_equal(
        muster_all_reduce_start(&call.op, ring.members[0].group, &tensor, MUSTER_XOR, on_done),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(log.level, MUSTER_LOG_ERROR);
    assert_string_equal(log.event, "op_refused");
    assert_string_equal(log.why, "xor of f32 has no meaning: use one of sum, mean, min, max, prod, "
                                 "or another type");
    assert_string_equal(call.op.error.text, log.why);
    tensor = tensor_of(call.input.bytes, 4, MUSTER_BOOL);
    output = tensor_of(call.output.bytes, 2, MUSTER_BOOL);
    assert_int_equal(muster_reduce_scatter_start(&call.op, ring.members[0].group, &tensor, &output,
                                                 MUSTER_MEAN, on_done),
                     MUSTER_INVALID_ARGUMENT);

    group_ring_turn(&ring, 10);
    assert_int_equal(call.done_count, 0);
    ring.test.env.log = NULL;
    group_ring_close(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_arguments_are_refused_at_once),
        cmocka_unit_test(a_reduction_that_the_type_does_not_have_is_refused_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
