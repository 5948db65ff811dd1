/* Operations of a group without failures: results, bits, order, mismatch, deadlines, memory. */
#include "assertion_count.h"
#include "group_ring.h"
#include "kernel_reference.h"

#include <stdlib.h>
#include <string.h>

#define CANARY 0x5a

static struct group_ring ring;

/* One operation of one member, with its memory. */
struct call {
    struct muster_op op;
    uint8_t *input, *output; /* output == input for in-place operations */
    size_t input_bytes, output_bytes;
    unsigned done_count;
    enum muster_rc rc;
    unsigned *order;
    unsigned at; /* order of its callback */
};

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->done_count++;
    call->rc = rc;
    if (call->order != NULL)
        call->at = ++*call->order;
}

static void run_until_done(const struct call *calls, size_t count)
{
    bool is_done;
    unsigned turns = 0;

    do {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        is_done = true;
        for (size_t i = 0; i < count; i++)
            is_done = is_done && calls[i].done_count > 0;
        fail_if(++turns > 20000, "the operations hang");
    } while (!is_done);
}

static void call_init(struct call *call, size_t input_bytes, size_t output_bytes)
{
    memset(call, 0, sizeof(*call));
    call->op.data = call;
    call->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 30 * MUSTER_NS_PER_S);
    call->input_bytes = input_bytes;
    call->output_bytes = output_bytes;
    call->input = malloc(input_bytes + 16);
    call->output = output_bytes > 0 ? malloc(output_bytes + 16) : call->input;
    assert_non_null(call->input);
    assert_non_null(call->output);
    memset(call->input + input_bytes, CANARY, 16);
    if (output_bytes > 0)
        memset(call->output, CANARY, output_bytes + 16);
}

static void call_fini(struct call *call)
{
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(call->input[call->input_bytes + i], CANARY);
        if (call->output_bytes > 0)
            assert_int_equal(call->output[call->output_bytes + i], CANARY);
    }
    if (call->output_bytes > 0)
        free(call->output);
    free(call->input);
}

static void end_calls(struct call *calls, uint32_t count, enum muster_rc rc)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(calls[i].rc, rc);
        call_fini(&calls[i]);
    }
}

/* Small whole numbers, exact in every dtype and order: 1 and 2 only, so that products stay small
 * too. */
static uint32_t value_at(uint32_t member, uint64_t i)
{
    return 1 + ((member * 7 + (uint32_t)i) % 5 == 0);
}

static uint32_t input_at(enum muster_dtype dtype, uint32_t member, uint64_t i)
{
    return dtype == MUSTER_BOOL ? value_at(member, i) & 1 : value_at(member, i);
}

static void fill_input(struct call *call, enum muster_dtype dtype, uint32_t member, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        reference_put(dtype, call->input, i, input_at(dtype, member, i));
}

static uint32_t reduce_two(enum muster_reduction reduction, uint32_t value, uint32_t other)
{
    switch (reduction) {
    case MUSTER_MIN:
        return other < value ? other : value;
    case MUSTER_MAX:
        return other > value ? other : value;
    case MUSTER_PROD:
        return value * other;
    case MUSTER_AND:
        return value & other;
    case MUSTER_OR:
        return value | other;
    case MUSTER_XOR:
        return value ^ other;
    default:
        return value + other;
    }
}

static double reduced_at(enum muster_reduction reduction, enum muster_dtype dtype, uint32_t n,
                         uint64_t i)
{
    uint32_t value = input_at(dtype, 0, i);
    uint64_t mean = 0;

    for (uint32_t member = 1; member < n; member++)
        value = reduce_two(reduction, value, input_at(dtype, member, i));
    if (reduction != MUSTER_MEAN)
        return value;
    if (!reference_is_float(dtype))
        return value / n;
    reference_encode(dtype, (double)value / n, &mean);
    return reference_decode(dtype, &mean);
}

static struct muster_tensor tensor_of(void *data, uint64_t count, enum muster_dtype dtype)
{
    return (struct muster_tensor){.data = data, .count = count, .dtype = dtype};
}

static void start_all_reduce(struct call *call, uint32_t member, uint64_t count,
                             enum muster_dtype dtype, enum muster_reduction reduction)
{
    struct muster_tensor tensor = tensor_of(call->input, count, dtype);

    assert_int_equal(
        muster_all_reduce_start(&call->op, ring.members[member].group, &tensor, reduction, on_done),
        MUSTER_OK);
    assert_int_equal(call->done_count, 0);
}

static void start_sum(struct call *call, uint32_t member, uint64_t count, enum muster_dtype dtype)
{
    call_init(call, count * muster_dtype_bytes(dtype), 0);
    fill_input(call, dtype, member, count);
    start_all_reduce(call, member, count, dtype, MUSTER_SUM);
}

static void check_all_reduce(uint64_t count, enum muster_dtype dtype,
                             enum muster_reduction reduction)
{
    struct call calls[GROUP_RING_MAX] = {{.done_count = 0}};
    uint32_t n = ring.view->member_count;

    for (uint32_t member = 0; member < n; member++) {
        call_init(&calls[member], count * muster_dtype_bytes(dtype), 0);
        fill_input(&calls[member], dtype, member, count);
        start_all_reduce(&calls[member], member, count, dtype, reduction);
    }
    run_until_done(calls, n);

    for (uint32_t member = 0; member < n; member++) {
        assert_int_equal(calls[member].rc, MUSTER_OK);
        assert_int_equal(calls[member].done_count, 1);
        assert_int_equal(calls[member].op.result.contributor_count, n);
        for (uint64_t i = 0; i < count; i++)
            fail_if(reference_get(dtype, calls[member].input, i) !=
                        reduced_at(reduction, dtype, n, i),
                    "n %u dtype %d reduction %d count %llu: element %llu of rank %u", n, dtype,
                    reduction, (unsigned long long)count, (unsigned long long)i, member);
        call_fini(&calls[member]);
    }
}

static const uint64_t counts[] = {0, 1, 3, 64, 65, 700, 3001};

static void all_reduce_gives_the_exact_result_for_every_dtype_and_reduction(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        group_ring_open(&ring, n);
        for (int dtype = 0; dtype <= MUSTER_F8_E5M2; dtype++)
            for (int reduction = 0; reduction <= MUSTER_XOR; reduction++)
                for (size_t i = 0;
                     i < sizeof(counts) / sizeof(counts[0]) &&
                     muster_reduction_check((enum muster_dtype)dtype,
                                            (enum muster_reduction)reduction, NULL) == MUSTER_OK;
                     i++)
                    check_all_reduce(counts[i], (enum muster_dtype)dtype,
                                     (enum muster_reduction)reduction);
        group_ring_close(&ring);
    }
}

/* Values whose sum depends on the order of additions. */
static void all_ranks_have_the_same_bits(void **state)
{
    static const uint64_t sizes[] = {13, 5000};

    (void)state;
    for (uint32_t n = 2; n <= 5; n++) {
        group_ring_open(&ring, n);
        for (size_t s = 0; s < 2; s++) {
            struct call calls[GROUP_RING_MAX] = {{.done_count = 0}};

            for (uint32_t member = 0; member < n; member++) {
                call_init(&calls[member], sizes[s] * sizeof(float), 0);
                for (uint64_t i = 0; i < sizes[s]; i++)
                    ((float *)(void *)calls[member].input)[i] =
                        1.0f / (float)(1 + (i * 31 + member * 17) % 1009) *
                        ((i + member) % 3 == 0 ? 1e6f : 1.0f);
                start_all_reduce(&calls[member], member, sizes[s], MUSTER_F32, MUSTER_SUM);
            }
            run_until_done(calls, n);
            for (uint32_t member = 1; member < n; member++)
                assert_memory_equal(calls[0].input, calls[member].input, sizes[s] * sizeof(float));
            for (uint32_t member = 0; member < n; member++)
                call_fini(&calls[member]);
        }
        group_ring_close(&ring);
    }
}

static struct call parts[GROUP_RING_MAX];

/* One operation of all members of the ring, until it has ended well on all; end_calls is the caller's. */
static void run_parts(enum muster_op_kind kind, uint32_t root, enum muster_dtype dtype,
                      uint64_t input_count, uint64_t output_count)
{
    size_t bytes = muster_dtype_bytes(dtype);
    uint32_t n = ring.view->member_count;

    for (uint32_t member = 0; member < n; member++) {
        struct call *call = &parts[member];
        struct muster_group *group = ring.members[member].group;
        struct muster_tensor input, output;
        enum muster_rc rc;

        call_init(call, input_count * bytes, output_count * bytes);
        fill_input(call, dtype, member, input_count);
        input = tensor_of(call->input, input_count, dtype);
        output = tensor_of(call->output, output_count, dtype);
        if (kind == MUSTER_OP_BROADCAST)
            rc = muster_broadcast_start(&call->op, group, &input, root, on_done);
        else if (kind == MUSTER_OP_ALL_GATHER)
            rc = muster_all_gather_start(&call->op, group, &input, &output, on_done);
        else
            rc = muster_reduce_scatter_start(&call->op, group, &input, &output, MUSTER_MEAN,
                                             on_done);
        assert_int_equal(rc, MUSTER_OK);
    }
    run_until_done(parts, n);
    for (uint32_t member = 0; member < n; member++)
        assert_int_equal(parts[member].rc, MUSTER_OK);
}

static void broadcast_gives_the_root_s_tensor_to_all(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        group_ring_open(&ring, n);
        for (uint32_t root = 0; root < n; root++)
            for (size_t s = 0; s < sizeof(counts) / sizeof(counts[0]); s++) {
                run_parts(MUSTER_OP_BROADCAST, root, MUSTER_I32, counts[s], 0);
                for (uint32_t member = 0; member < n; member++)
                    for (uint64_t i = 0; i < counts[s]; i++)
                        assert_true(reference_get(MUSTER_I32, parts[member].input, i) ==
                                    value_at(root, i));
                end_calls(parts, n, MUSTER_OK);
            }
        group_ring_close(&ring);
    }
}

static void all_gather_joins_the_parts_in_rank_order(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        group_ring_open(&ring, n);
        for (size_t s = 1; s < sizeof(counts) / sizeof(counts[0]); s++) {
            uint64_t count = counts[s];

            run_parts(MUSTER_OP_ALL_GATHER, 0, MUSTER_I64, count, n * count);
            for (uint32_t member = 0; member < n; member++)
                for (uint64_t i = 0; i < n * count; i++)
                    assert_true(reference_get(MUSTER_I64, parts[member].output, i) ==
                                value_at((uint32_t)(i / count), i % count));
            end_calls(parts, n, MUSTER_OK);
        }
        group_ring_close(&ring);
    }
}

static void reduce_scatter_gives_each_rank_its_part(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        group_ring_open(&ring, n);
        for (size_t s = 1; s < sizeof(counts) / sizeof(counts[0]); s++) {
            uint64_t count = counts[s];

            run_parts(MUSTER_OP_REDUCE_SCATTER, 0, MUSTER_F64, n * count, count);
            for (uint32_t member = 0; member < n; member++) {
                for (uint64_t i = 0; i < n * count; i++)
                    assert_true(reference_get(MUSTER_F64, parts[member].input, i) ==
                                value_at(member, i));
                for (uint64_t i = 0; i < count; i++)
                    assert_true(reference_get(MUSTER_F64, parts[member].output, i) ==
                                reduced_at(MUSTER_MEAN, MUSTER_F64, n, member * count + i));
            }
            end_calls(parts, n, MUSTER_OK);
        }
        group_ring_close(&ring);
    }
}

static void barrier_waits_for_the_last(void **state)
{
    struct call calls[3];

    (void)state;
    group_ring_open(&ring, 3);
    for (uint32_t member = 0; member < 3; member++)
        call_init(&calls[member], 0, 0);
    for (uint32_t member = 0; member < 2; member++)
        assert_int_equal(
            muster_barrier_start(&calls[member].op, ring.members[member].group, on_done),
            MUSTER_OK);
    group_ring_turn(&ring, 100);
    assert_int_equal(calls[0].done_count + calls[1].done_count, 0);

    assert_int_equal(muster_barrier_start(&calls[2].op, ring.members[2].group, on_done), MUSTER_OK);
    run_until_done(calls, 3);

    end_calls(calls, 3, MUSTER_OK);
}

#define MANY 150

/* Member 1 starts everything only when member 0's frames are there: they wait as early frames. */
static void many_operations_end_in_the_order_of_their_start(void **state)
{
    static struct call calls[2][MANY];
    unsigned order[2] = {0, 0};

    (void)state;
    group_ring_open(&ring, 2);
    for (uint32_t member = 0; member < 2; member++) {
        for (unsigned k = 0; k < MANY; k++) {
            uint64_t count = k % 3 == 0 ? 600 : 5;

            call_init(&calls[member][k], count * sizeof(int32_t), 0);
            calls[member][k].order = &order[member];
            for (uint64_t i = 0; i < count; i++)
                reference_put(MUSTER_I32, calls[member][k].input, i, k + i + member);
            start_all_reduce(&calls[member][k], member, count, MUSTER_I32, MUSTER_SUM);
        }
        group_ring_turn(&ring, 50);
    }
    run_until_done(calls[0], 2 * MANY);

    for (uint32_t member = 0; member < 2; member++)
        for (unsigned k = 0; k < MANY; k++) {
            assert_int_equal(calls[member][k].rc, MUSTER_OK);
            assert_int_equal(calls[member][k].at, k + 1);
            assert_true(reference_get(MUSTER_I32, calls[member][k].input, 3) == 2 * (k + 3) + 1);
            call_fini(&calls[member][k]);
        }
}

static void lanes_do_not_wait_for_each_other(void **state)
{
    struct call calls[2][2];

    (void)state;
    group_ring_open(&ring, 2);
    for (uint32_t member = 0; member < 2; member++)
        for (uint32_t lane = 0; lane < 2; lane++) {
            call_init(&calls[member][lane], 4000, 0);
            fill_input(&calls[member][lane], MUSTER_I32, member, 1000);
            calls[member][lane].op.lane = lane;
        }
    start_all_reduce(&calls[0][0], 0, 1000, MUSTER_I32, MUSTER_SUM);
    group_ring_turn(&ring, 50);
    start_all_reduce(&calls[0][1], 0, 1000, MUSTER_I32, MUSTER_SUM);
    start_all_reduce(&calls[1][1], 1, 1000, MUSTER_I32, MUSTER_SUM);
    run_until_done(&calls[0][1], 1);
    run_until_done(&calls[1][1], 1);
    assert_int_equal(calls[0][0].done_count, 0);
    start_all_reduce(&calls[1][0], 1, 1000, MUSTER_I32, MUSTER_SUM);
    run_until_done(calls[0], 4);

    for (uint32_t member = 0; member < 2; member++)
        for (uint32_t lane = 0; lane < 2; lane++) {
            assert_int_equal(calls[member][lane].rc, MUSTER_OK);
            call_fini(&calls[member][lane]);
        }
}

/* Pools grow until the largest number of operations, acknowledgements and pieces under way at once has
 * been seen, which on sockets may take some steps. */
static void a_steady_step_allocates_nothing(void **state)
{
    unsigned quiet = 0;

    (void)state;
    group_ring_open(&ring, 3);
    for (unsigned round = 0; round < 50 && quiet < 5; round++) {
        uint64_t before = ring.test.mem.alloc_count;

        check_all_reduce(3000, MUSTER_F32, MUSTER_SUM);
        check_all_reduce(10, MUSTER_F32, MUSTER_SUM);
        group_ring_turn(&ring, 20);
        quiet = ring.test.mem.alloc_count == before ? quiet + 1 : 0;
    }

    assert_int_equal(quiet, 5);
}

/* In a ring each member hears of the one before it only, and all but one of these are in time. */
static void all_members_of_a_ring_know_who_was_late(void **state)
{
    const struct muster_plan_parameters plan = {
        .chunk_bytes = 1024, .direct_max_bytes = 1, .forced = MUSTER_ALGORITHM_RING};
    enum { N = 5, LATE = 2, COUNT = 5000 };
    struct call calls[N];
    uint64_t start_ns, late_ns;

    (void)state;
    group_ring_open_plan(&ring, N, &plan);
    check_all_reduce(COUNT, MUSTER_F32, MUSTER_SUM);
    for (uint32_t member = 0; member < N; member++) {
        call_init(&calls[member], COUNT * 4, 0);
        fill_input(&calls[member], MUSTER_F32, member, COUNT);
    }
    start_ns = muster_loop_clock_ns(ring.test.env.loop);
    late_ns = start_ns + 100 * MUSTER_NS_PER_MS;
    for (uint32_t member = 0; member < N; member++)
        if (member != LATE)
            start_all_reduce(&calls[member], member, COUNT, MUSTER_F32, MUSTER_SUM);
    while (muster_loop_clock_ns(ring.test.env.loop) < late_ns)
        group_ring_turn(&ring, 1);
    start_all_reduce(&calls[LATE], LATE, COUNT, MUSTER_F32, MUSTER_SUM);
    run_until_done(calls, N);

    for (uint32_t member = 0; member < N; member++) {
        const struct muster_op_result *result = &calls[member].op.result;

        assert_int_equal(calls[member].rc, MUSTER_OK);
        if (member != LATE) {
            assert_int_equal(result->last_rank, LATE);
            assert_true(result->met_ns - start_ns >= 90 * MUSTER_NS_PER_MS);
        }
        call_fini(&calls[member]);
    }
}

static void mismatched_calls_fail_on_every_rank_and_name_both(void **state)
{
    struct call calls[3], again[3];

    (void)state;
    group_ring_open(&ring, 3);
    for (uint32_t member = 0; member < 3; member++) {
        uint64_t count = member == 1 ? 500 : 501;

        call_init(&calls[member], count * 4, 0);
        memset(calls[member].input, 7, count * 4);
        start_all_reduce(&calls[member], member, count, MUSTER_F32, MUSTER_SUM);
    }
    run_until_done(calls, 3);

    for (uint32_t member = 0; member < 3; member++) {
        assert_int_equal(calls[member].rc, MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(calls[member].op.error.text, "f32 x 500)"));
        assert_non_null(strstr(calls[member].op.error.text, "f32 x 501)"));
        for (size_t i = 0; i < calls[member].input_bytes; i++)
            assert_int_equal(calls[member].input[i], 7);
        call_fini(&calls[member]);
    }
    /* The lane goes on. */
    for (uint32_t member = 0; member < 3; member++)
        start_sum(&again[member], member, 1000, MUSTER_I32);
    run_until_done(again, 3);
    end_calls(again, 3, MUSTER_OK);
    group_ring_turn(&ring, 20);
    assert_true(muster_group_is_idle(ring.members[0].group));
}

/* Ordinary memory is copied to memory that the others map, if they have room for it. */
static void an_input_that_the_others_cannot_map_ends_the_call(void **state)
{
    const uint64_t count = 200000; /* no small one */
    struct call calls[4];          /* two of each member, whose memory is refused together */

    (void)state;
    group_ring_open(&ring, 2);
    ring.boards.are_shares_refused = true;
    for (uint32_t i = 0; i < 4; i++)
        start_sum(&calls[i], i % 2, count, MUSTER_F32);
    run_until_done(calls, 4);
    for (uint32_t i = 0; i < 4; i++) {
        if (!group_ring_has_boards)
            assert_int_equal(calls[i].rc, MUSTER_OK);
        else if (i < 2)
            assert_int_equal(calls[i].rc, MUSTER_RESOURCE_EXHAUSTED);
        else /* the change of view that ends the first may come before its own */
            assert_true(calls[i].rc == MUSTER_RESOURCE_EXHAUSTED || calls[i].rc == MUSTER_ABORTED);
        call_fini(&calls[i]);
    }
}

/* Each member names another root than the others. */
static void check_different_roots(uint32_t n, uint64_t count, bool is_reduce)
{
    struct call calls[3];

    group_ring_open(&ring, n);
    for (uint32_t member = 0; member < n; member++) {
        struct call *call = &calls[member];
        struct muster_group *group = ring.members[member].group;
        struct muster_tensor tensor;

        call_init(call, count * 4, 0);
        tensor = tensor_of(call->input, count, MUSTER_F32);
        assert_int_equal(
            is_reduce ? muster_reduce_start(&call->op, group, &tensor, MUSTER_SUM, member, on_done)
                      : muster_broadcast_start(&call->op, group, &tensor, 1 - member, on_done),
            MUSTER_OK);
    }
    run_until_done(calls, n);
    end_calls(calls, n, MUSTER_INVALID_ARGUMENT);
    group_ring_close(&ring);
}

/* Non-roots of a broadcast send no data: two different roots must not leave everybody waiting. */
static void broadcasts_of_different_roots_do_not_hang(void **state)
{
    (void)state;
    check_different_roots(2, 1, false);
    check_different_roots(2, 1000, false);
}

/* Roots of a reduce send no data either. */
static void reduces_of_different_roots_do_not_hang(void **state)
{
    (void)state;
    check_different_roots(2, 1000, true);
    check_different_roots(3, 1000, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_gives_the_exact_result_for_every_dtype_and_reduction),
        cmocka_unit_test(all_ranks_have_the_same_bits),
        cmocka_unit_test(broadcast_gives_the_root_s_tensor_to_all),
        cmocka_unit_test(all_gather_joins_the_parts_in_rank_order),
        cmocka_unit_test(reduce_scatter_gives_each_rank_its_part),
        GROUP_RING_CASE(barrier_waits_for_the_last),
        GROUP_RING_CASE(many_operations_end_in_the_order_of_their_start),
        GROUP_RING_CASE(lanes_do_not_wait_for_each_other),
        GROUP_RING_CASE(a_steady_step_allocates_nothing),
        GROUP_RING_CASE(all_members_of_a_ring_know_who_was_late),
        GROUP_RING_CASE(mismatched_calls_fail_on_every_rank_and_name_both),
        GROUP_RING_CASE(an_input_that_the_others_cannot_map_ends_the_call),
        cmocka_unit_test(broadcasts_of_different_roots_do_not_hang),
        cmocka_unit_test(reduces_of_different_roots_do_not_hang),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    group_ring_has_boards = true;
    return failed + cmocka_run_group_tests_name("tests with boards", tests, NULL, NULL);
}
