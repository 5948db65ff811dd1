/* Operations on a fake device: values, order with the user's stream, refusals, mismatched calls. */
#include "gpu_stage.h"

#include "collective/gpu/cuda_driver.h"

#include <string.h>

#define COUNT 5000u /* several boxes of the fake's, and a rest */

/* Two or three ranks, with memory on the device and a call each. */
static struct gpu_stage stage;
static struct gpu_call calls[3];
static float *floats[3];
static uint32_t rank_count; /* 0: nothing is open */

static const int versions[] = {21803, 22403, 22705, 22807, 22902, 23007};

static struct muster_tensor floats_of(void *data, uint64_t count)
{
    return (struct muster_tensor){.data = data, .count = count, .dtype = MUSTER_F32};
}

static void expect_all(const float *values, uint64_t count, float value)
{
    for (uint64_t i = 0; i < count; i++)
        if (values[i] != value)
            fail_msg("element %llu is %f, not %f", (unsigned long long)i, (double)values[i],
                     (double)value);
}

static struct muster_group *group_of(uint32_t rank)
{
    return stage.ring.members[rank].group;
}

/* Rank r has `count` floats of `first` + r * `step`. */
static void open_ranks(uint32_t n, int version, uint64_t count, float first, float step)
{
    gpu_stage_open(&stage, n, version, NULL);
    rank_count = n;
    for (uint32_t rank = 0; rank < n; rank++)
        floats[rank] = gpu_stage_floats(&stage, count, first + step * (float)rank);
}

static void close_ranks(void)
{
    for (uint32_t rank = 0; rank < rank_count; rank++)
        muster_gpu_free(stage.backend, floats[rank]);
    rank_count = 0;
    gpu_stage_close(&stage);
}

static int ranks_tear_down(void **state)
{
    (void)state;
    if (rank_count > 0)
        close_ranks();
    return 0;
}

#define CASE(name) cmocka_unit_test_teardown(name, ranks_tear_down)

static void start_sum(struct gpu_call *call, uint32_t rank, uint64_t count)
{
    struct muster_tensor tensor = floats_of(floats[rank], count);

    gpu_call_init(call, &stage);
    assert_int_equal(muster_gpu_all_reduce_start(&call->op, group_of(rank), &tensor, MUSTER_SUM,
                                                 NULL, gpu_call_done),
                     MUSTER_OK);
}

static void wait_ok(struct gpu_call *ended, unsigned count)
{
    gpu_stage_wait(&stage, ended, count);
    for (unsigned i = 0; i < count; i++)
        if (ended[i].rc != MUSTER_OK)
            fail_msg("call %u: %s", i, ended[i].op.error.text);
}

static void all_reduce_sums_with_every_version(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
        open_ranks(3, versions[v], COUNT, 1.0f, 1.0f);
        for (uint32_t rank = 0; rank < 3; rank++)
            start_sum(&calls[rank], rank, COUNT);
        wait_ok(calls, 3);
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_all(floats[rank], COUNT, 6.0f);
            assert_int_equal(calls[rank].op.result.contributor_count, 3);
        }
        assert_int_equal(stage.knobs.nccl_get("inits"), 3);
        assert_int_equal(stage.knobs.nccl_get("named"), versions[v] >= 22703 ? 3 : 0);
        close_ranks();
        assert_int_equal(stage.knobs.nccl_get("destroys"), 3);
    }
}

static void many_operations_come_in_order(void **state)
{
    struct gpu_call many[2][20];

    (void)state;
    open_ranks(2, GPU_STAGE_VERSION, 10, 1.0f, 0.0f);
    stage.knobs.nccl_set("polls", 2);
    for (unsigned i = 0; i < 20; i++)
        for (uint32_t rank = 0; rank < 2; rank++)
            start_sum(&many[rank][i], rank, 10);
    for (uint32_t rank = 0; rank < 2; rank++) {
        wait_ok(many[rank], 20);
        expect_all(floats[rank], 10, 1048576.0f);
    }
    assert_int_equal(stage.knobs.nccl_get("inits"), 2);
}

struct row {
    enum muster_device_kind kind;
    uint64_t input_count, output_count; /* for 3 members */
    float first[3], last[3];            /* of the output, by rank; inputs are rank + 1 */
};

static const struct row rows[] = {
    {MUSTER_DEVICE_BROADCAST, 6, 6, {2, 2, 2}, {2, 2, 2}},
    {MUSTER_DEVICE_ALL_GATHER, 2, 6, {1, 1, 1}, {3, 3, 3}},
    {MUSTER_DEVICE_REDUCE_SCATTER, 6, 2, {6, 6, 6}, {6, 6, 6}},
    {MUSTER_DEVICE_REDUCE, 6, 6, {0, 6, 0}, {0, 6, 0}},
    {MUSTER_DEVICE_ALL_TO_ALL, 6, 6, {1, 1, 1}, {3, 3, 3}},
    {MUSTER_DEVICE_SEND_RECV, 6, 6, {3, 1, 2}, {3, 1, 2}},
};

/* The public functions of kinds that have one which no other case starts. */
static enum muster_rc start_row(struct muster_op *op, struct muster_group *group,
                                const struct muster_device_call *call)
{
    if (call->kind == MUSTER_DEVICE_REDUCE_SCATTER)
        return muster_gpu_reduce_scatter_start(op, group, &call->input, &call->output,
                                               call->reduction, NULL, gpu_call_done);
    if (call->kind == MUSTER_DEVICE_ALL_TO_ALL)
        return muster_gpu_all_to_all_start(op, group, &call->input, &call->output, NULL,
                                           gpu_call_done);
    return muster_backend_start(op, group, call, gpu_call_done);
}

static void run_row(const struct row *row)
{
    float *inputs[3], *outputs[3];

    for (uint32_t rank = 0; rank < 3; rank++) {
        bool is_in_place = row->kind == MUSTER_DEVICE_BROADCAST;
        struct muster_device_call call = {.kind = row->kind, .reduction = MUSTER_SUM, .root = 1};

        inputs[rank] = gpu_stage_floats(&stage, row->input_count, (float)(rank + 1));
        outputs[rank] =
            is_in_place ? inputs[rank] : gpu_stage_floats(&stage, row->output_count, 0.0f);
        call.input = floats_of(inputs[rank], row->input_count);
        call.output = floats_of(outputs[rank], row->output_count);
        call.to = (rank + 1) % 3;
        call.from = (rank + 2) % 3;
        gpu_call_init(&calls[rank], &stage);
        assert_int_equal(start_row(&calls[rank].op, group_of(rank), &call), MUSTER_OK);
    }
    wait_ok(calls, 3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        if (outputs[rank][0] != row->first[rank] ||
            outputs[rank][row->output_count - 1] != row->last[rank])
            fail_msg("%s: rank %u has %f … %f", muster_device_kind_name(row->kind), rank,
                     (double)outputs[rank][0], (double)outputs[rank][row->output_count - 1]);
        if (outputs[rank] != inputs[rank])
            muster_gpu_free(stage.backend, outputs[rank]);
        muster_gpu_free(stage.backend, inputs[rank]);
    }
}

static void every_kind_does_what_its_name_says(void **state)
{
    static const int with_and_without_all_to_all[] = {21803, 23007};

    (void)state;
    for (size_t v = 0; v < 2; v++) {
        open_ranks(3, with_and_without_all_to_all[v], 1, 0.0f, 0.0f);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            run_row(&rows[i]);
        close_ranks();
    }
}

static void reductions_and_types_are_named_alike(void **state)
{
    static const enum muster_reduction reductions[] = {MUSTER_SUM, MUSTER_MEAN, MUSTER_MIN,
                                                       MUSTER_MAX, MUSTER_PROD};
    static const int32_t expected[] = {10, 5, 4, 6, 24};

    (void)state;
    open_ranks(2, GPU_STAGE_VERSION, 1, 0.0f, 0.0f);
    for (size_t i = 0; i < 5; i++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct muster_tensor tensor = {.data = floats[rank], .count = 1, .dtype = MUSTER_I32};

            *(int32_t *)tensor.data = rank == 0 ? 4 : 6;
            gpu_call_init(&calls[rank], &stage);
            assert_int_equal(muster_gpu_all_reduce_start(&calls[rank].op, group_of(rank), &tensor,
                                                         reductions[i], NULL, gpu_call_done),
                             MUSTER_OK);
        }
        gpu_stage_wait(&stage, calls, 2);
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(*(int32_t *)(void *)floats[rank], expected[i]);
    }
}

/* --- Order --- */

static void the_users_stream_comes_before_and_after(void **state)
{
    struct muster_cuda *cuda = NULL;
    struct muster_cuda_stream *streams[2];
    struct muster_error error;
    float source[2] = {1.0f, 2.0f}, after[2] = {0.0f, 0.0f};
    const struct muster_gpu_options joined = {.is_stream_joined = true};

    (void)state;
    gpu_stage_open(&stage, 2, GPU_STAGE_VERSION, &joined);
    rank_count = 2;
    assert_int_equal(muster_cuda_open(muster_mem_system(), gpu_stage_cuda(), 0, &cuda, &error),
                     MUSTER_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct muster_tensor tensor;

        floats[rank] = gpu_stage_floats(&stage, 1, -100.0f);
        tensor = floats_of(floats[rank], 1);
        (void)muster_cuda_enter(cuda);
        assert_int_equal(muster_cuda_stream_new(cuda, &streams[rank], &error), MUSTER_OK);
        stage.knobs.cuda_set("hold", 1);
        assert_int_equal(muster_cuda_copy_in(cuda, floats[rank], &source[rank], sizeof(float),
                                             streams[rank], &error),
                         MUSTER_OK);
        muster_cuda_leave(cuda, NULL);
        gpu_call_init(&calls[rank], &stage);
        assert_int_equal(muster_gpu_all_reduce_start(&calls[rank].op, group_of(rank), &tensor,
                                                     MUSTER_SUM, streams[rank], gpu_call_done),
                         MUSTER_OK);
    }
    gpu_stage_until(&stage, stage.knobs.nccl_get, "issued", 2);
    group_ring_turn(&stage.ring, 2);
    (void)muster_cuda_enter(cuda);
    for (uint32_t rank = 0; rank < 2; rank++) /* behind it, before it is done */
        assert_int_equal(muster_cuda_copy_out(cuda, &after[rank], floats[rank], sizeof(float),
                                              streams[rank], &error),
                         MUSTER_OK);
    assert_int_equal(calls[0].done_count + calls[1].done_count, 0);
    stage.knobs.cuda_set("hold", 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(muster_cuda_stream_synchronise(cuda, streams[rank], &error), MUSTER_OK);
        expect_all(&after[rank], 1, 3.0f);
        muster_cuda_stream_free(cuda, streams[rank]);
    }
    muster_cuda_leave(cuda, NULL);
    wait_ok(calls, 2);
    muster_cuda_close(cuda);
}

static void a_lost_callback_is_found_by_the_slow_timer(void **state)
{
    struct muster_gpu_counters counters;

    (void)state;
    open_ranks(2, GPU_STAGE_VERSION, 4, 2.0f, 0.0f);
    stage.knobs.cuda_set("lost_callbacks", 2);
    for (uint32_t rank = 0; rank < 2; rank++)
        start_sum(&calls[rank], rank, 4);
    wait_ok(calls, 2);
    muster_gpu_counters(stage.backend, &counters);
    assert_int_equal(counters.lost_callback_count, 2);
    for (uint32_t rank = 0; rank < 2; rank++)
        expect_all(floats[rank], 4, 4.0f);
}

/* --- Refusals --- */

static void calls_that_differ_are_errors_on_both_sides(void **state)
{
    (void)state;
    open_ranks(2, GPU_STAGE_VERSION, 8, 2.0f, 0.0f);
    for (uint32_t rank = 0; rank < 2; rank++)
        start_sum(&calls[rank], rank, rank == 0 ? 8 : 7);
    gpu_stage_wait(&stage, calls, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(calls[rank].rc, MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(calls[rank].op.error.text, "gpu all_reduce(sum, f32 x 8)"));
        assert_non_null(strstr(calls[rank].op.error.text, "gpu all_reduce(sum, f32 x 7)"));
        expect_all(floats[rank], 8, 2.0f);
    }
    assert_int_equal(stage.knobs.nccl_get("inits"), 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        start_sum(&calls[rank], rank, 8);
    wait_ok(calls, 2);
}

static void senders_and_receivers_must_fit(void **state)
{
    (void)state;
    open_ranks(2, GPU_STAGE_VERSION, 8, 2.0f, 0.0f);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct muster_tensor tensor = floats_of(floats[rank], rank == 0 ? 8 : 4);

        gpu_call_init(&calls[rank], &stage);
        assert_int_equal(
            muster_gpu_send_recv_start(&calls[rank].op, group_of(rank), rank == 0 ? &tensor : NULL,
                                       1, rank == 1 ? &tensor : NULL, 0, NULL, gpu_call_done),
            MUSTER_OK);
    }
    gpu_stage_wait(&stage, calls, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(calls[rank].rc, MUSTER_INVALID_ARGUMENT);
        assert_string_equal(calls[rank].op.error.text,
                            "send_recv: rank 0 sends 32 bytes to rank 1, which receives 16 from "
                            "rank 0");
    }
}

static void host_memory_and_odd_shapes_are_refused(void **state)
{
    struct gpu_call call;
    struct muster_tensor tensor, whole, part;
    struct muster_group *group;
    float host[8] = {0};

    (void)state;
    open_ranks(2, GPU_STAGE_VERSION, 8, 1.0f, 0.0f);
    group = group_of(0);
    gpu_call_init(&call, &stage);
    tensor = floats_of(host, 8);
    assert_int_equal(
        muster_gpu_all_reduce_start(&call.op, group, &tensor, MUSTER_SUM, NULL, gpu_call_done),
        MUSTER_INVALID_ARGUMENT);
    tensor = floats_of(floats[0], 8);
    assert_int_equal(
        muster_gpu_all_reduce_start(&call.op, group, &tensor, MUSTER_AND, NULL, gpu_call_done),
        MUSTER_INVALID_ARGUMENT);
    tensor.dtype = MUSTER_I32;
    assert_int_equal(
        muster_gpu_all_reduce_start(&call.op, group, &tensor, MUSTER_AND, NULL, gpu_call_done),
        MUSTER_UNIMPLEMENTED);
    assert_int_equal(muster_gpu_broadcast_start(&call.op, group, &tensor, 2, NULL, gpu_call_done),
                     MUSTER_INVALID_ARGUMENT);
    whole = floats_of(floats[0], 7);
    part = floats_of(floats[0] + 7, 1);
    assert_int_equal(
        muster_gpu_all_gather_start(&call.op, group, &part, &whole, NULL, gpu_call_done),
        MUSTER_INVALID_ARGUMENT);
    whole = floats_of(floats[0], 6);
    part = floats_of(floats[0] + 3, 3); /* rank 1's place */
    assert_int_equal(
        muster_gpu_all_gather_start(&call.op, group, &part, &whole, NULL, gpu_call_done),
        MUSTER_INVALID_ARGUMENT);
    tensor = floats_of(floats[0], 0);
    assert_int_equal(
        muster_gpu_all_reduce_start(&call.op, group, &tensor, MUSTER_SUM, NULL, gpu_call_done),
        MUSTER_INVALID_ARGUMENT);
}

static void without_a_backend_nothing_starts(void **state)
{
    struct group_ring ring;
    struct muster_op op = {.deadline_ns = 1};
    struct muster_tensor tensor = floats_of(&op, 1);
    struct muster_backend *backend = NULL;
    const struct muster_gpu_options options = {.cuda_library = "/nowhere/libcuda.so.1"};
    struct muster_error error;

    (void)state;
    group_ring_open(&ring, 1);
    assert_int_equal(muster_gpu_open(&ring.test.env, &options, &backend, &error),
                     MUSTER_UNAVAILABLE);
    assert_null(backend);
    assert_string_equal(muster_backend_name(backend), "none");
    assert_int_equal(muster_gpu_all_reduce_start(&op, ring.members[0].group, &tensor, MUSTER_SUM,
                                                 NULL, gpu_call_done),
                     MUSTER_FAILED_PRECONDITION);
    muster_gpu_close(backend, NULL, NULL);
    group_ring_close(&ring);
}

static void an_old_nccl_leaves_nothing_open(void **state)
{
    struct test_env test;
    struct muster_backend *backend = NULL;
    struct muster_gpu_options options = {.cuda_library = gpu_stage_cuda(),
                                         .nccl_library = gpu_stage_nccl(21705)};
    struct muster_error error;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_gpu_open(&test.env, &options, &backend, &error), MUSTER_UNIMPLEMENTED);
    assert_null(backend);
    test_env_close(&test);
}

/* Rank 1 cannot issue it; rank 0, whose part hangs, gives up. */
static void fail_on_one(struct gpu_call *sums)
{
    stage.knobs.nccl_set("rank", 1);
    stage.knobs.nccl_set("issue_fails", 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        start_sum(&sums[rank], rank, 8);
    gpu_stage_wait(&stage, &sums[1], 1);
    assert_int_equal(sums[1].rc, MUSTER_UNAVAILABLE);
    muster_gpu_cancel(&sums[0].op, group_of(0));
    gpu_stage_wait(&stage, &sums[0], 1);
    assert_int_equal(sums[0].rc, MUSTER_CANCELLED);
}

static void a_commit_is_fine_on_all_or_on_none(void **state)
{
    struct gpu_call sums[2];

    (void)state;
    open_ranks(2, GPU_STAGE_VERSION, 8, 2.0f, 0.0f);
    for (uint32_t rank = 0; rank < 2; rank++) {
        start_sum(&sums[rank], rank, 8);
        gpu_call_init(&calls[rank], &stage);
        assert_int_equal(muster_gpu_commit_start(&calls[rank].op, group_of(rank), gpu_call_done),
                         MUSTER_FAILED_PRECONDITION);
    }
    gpu_stage_wait(&stage, sums, 2);
    for (unsigned round = 0; round < 3; round++) {
        if (round == 1)
            fail_on_one(sums);
        for (uint32_t rank = 0; rank < 2; rank++) {
            gpu_call_init(&calls[rank], &stage);
            assert_int_equal(
                muster_gpu_commit_start(&calls[rank].op, group_of(rank), gpu_call_done), MUSTER_OK);
        }
        gpu_stage_wait(&stage, calls, 2);
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(calls[rank].rc, round == 1 ? MUSTER_ABORTED : MUSTER_OK);
    }
}

/* Its setups use the lane after it, so that one must exist, too. */
static void a_lane_without_a_next_one_is_refused(void **state)
{
    static const uint32_t lanes[] = {63, 64, UINT32_MAX};
    struct test_env test;

    (void)state;
    test_env_open(&test);
    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        const struct muster_gpu_options options = {
            .cuda_library = "none", .nccl_library = "none", .lane = lanes[i]};
        struct muster_backend *backend;
        struct muster_error error;

        assert_int_equal(muster_gpu_open(&test.env, &options, &backend, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "must be at most 62, got "));
    }
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_sums_with_every_version),
        CASE(many_operations_come_in_order),
        cmocka_unit_test(every_kind_does_what_its_name_says),
        CASE(reductions_and_types_are_named_alike),
        CASE(the_users_stream_comes_before_and_after),
        CASE(a_lost_callback_is_found_by_the_slow_timer),
        CASE(calls_that_differ_are_errors_on_both_sides),
        CASE(senders_and_receivers_must_fit),
        CASE(host_memory_and_odd_shapes_are_refused),
        cmocka_unit_test(without_a_backend_nothing_starts),
        cmocka_unit_test(an_old_nccl_leaves_nothing_open),
        CASE(a_commit_is_fine_on_all_or_on_none),
        cmocka_unit_test(a_lane_without_a_next_one_is_refused),
    };

    return cmocka_run_group_tests_name("collective.gpu_backend", tests, NULL, NULL);
}
