/* An operation sends and holds as many bytes as its plan says. */
#include "group_ring.h"

#include <string.h>

#include <muster/collective.h>

#include "collective/group/group_internal.h"
#include "collective/wire/wire_tcp_internal.h"

#define MEMBERS   3u
#define BYTES_MAX 400000u
/* A copy of BYTES_MAX, as much as a share takes. */
#define STAGE_BYTES_MAX (512u << 10)

struct call {
    struct muster_op op;
    bool is_done;
    _Alignas(64) uint8_t input[BYTES_MAX];
    _Alignas(64) uint8_t output[BYTES_MAX];
};

static struct call calls[MEMBERS];

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)op->data = true;
}

static enum muster_rc start_op(struct call *call, struct muster_group *group,
                               enum muster_op_kind kind, uint64_t count)
{
    struct muster_tensor whole = {call->output, count, MUSTER_F32};
    struct muster_tensor input = {call->input, count, MUSTER_F32};
    struct muster_tensor part = {call->input, count / MEMBERS, MUSTER_F32};

    switch (kind) {
    case MUSTER_OP_ALL_REDUCE:
        return muster_all_reduce_start(&call->op, group, &whole, MUSTER_SUM, on_done);
    case MUSTER_OP_BROADCAST:
        return muster_broadcast_start(&call->op, group, &whole, 0, on_done);
    case MUSTER_OP_ALL_GATHER:
        return muster_all_gather_start(&call->op, group, &part, &whole, on_done);
    case MUSTER_OP_REDUCE_SCATTER:
        whole.count = count / MEMBERS;
        return muster_reduce_scatter_start(&call->op, group, &input, &whole, MUSTER_SUM, on_done);
    case MUSTER_OP_BARRIER:
        return muster_barrier_start(&call->op, group, on_done);
    case MUSTER_OP_REDUCE:
        return muster_reduce_start(&call->op, group, &whole, MUSTER_SUM, 0, on_done);
    case MUSTER_OP_GATHER:
        return muster_gather_start(&call->op, group, &part, &whole, 0, on_done);
    case MUSTER_OP_SCATTER:
        whole.count = count / MEMBERS;
        return muster_scatter_start(&call->op, group, &input, &whole, 0, on_done);
    case MUSTER_OP_ALL_TO_ALL:
        return muster_all_to_all_start(&call->op, group, &input, &whole, on_done);
    default:
        return MUSTER_UNIMPLEMENTED;
    }
}

/* Nothing is retained for others, nor for sending it again. */
static bool is_settled(void *data)
{
    const struct group_ring *ring = data;

    for (uint32_t i = 0; i < MEMBERS; i++)
        for (uint32_t k = 0; k < MEMBERS; k++)
            if (k != i && ring->members[i].wire->members[k]->stripes[0].link != NULL &&
                muster_peer_link_unacked_bytes(ring->members[i].wire->members[k]->stripes[0].link) >
                    0)
                return false;
    return true;
}

static void run_alone(struct group_ring *ring, enum muster_op_kind kind, uint64_t count)
{
    bool is_done = false;

    group_ring_turn(ring, 50);
    test_env_run_until(&ring->test.env, is_settled, ring);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct call *call = &calls[i];

        call->is_done = false;
        call->op = (struct muster_op){
            .data = &call->is_done,
            .deadline_ns = muster_loop_after_ns(ring->test.env.loop, 60 * MUSTER_NS_PER_S)};
        assert_int_equal(start_op(call, ring->members[i].group, kind, count), MUSTER_OK);
    }
    while (!is_done) {
        muster_loop_turn(ring->test.env.loop, MUSTER_NS_PER_S);
        is_done = calls[0].is_done && calls[1].is_done && calls[2].is_done;
    }
}

/* The tensors of these tests are in no shared memory: each is copied for the others. */
static uint64_t staged_bytes(const struct group_ring *ring, enum muster_op_kind kind,
                             uint64_t count)
{
    const char *algorithm = muster_group_algorithm(ring->members[0].group, kind, count, MUSTER_F32);

    return strcmp(algorithm, "host") == 0 ? STAGE_BYTES_MAX : 0;
}

/* All members live in one process but have a pool each: their wires'. */
static void check_cost(struct group_ring *ring, enum muster_op_kind kind, uint64_t count)
{
    run_alone(ring, kind, count);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct muster_op_cost cost =
            muster_group_cost(ring->members[i].group, kind, count, MUSTER_F32);

        assert_int_equal(calls[i].op.result.sent_bytes, cost.sent_bytes);
        assert_in_range(calls[i].op.result.memory_bytes, 1,
                        cost.memory_bytes + staged_bytes(ring, kind, count));
    }
}

static void what_is_sent_and_held_is_what_the_plan_says(void **state)
{
    static const enum muster_op_kind kinds[] = {
        MUSTER_OP_ALL_REDUCE,     MUSTER_OP_BROADCAST, MUSTER_OP_ALL_GATHER,
        MUSTER_OP_REDUCE_SCATTER, MUSTER_OP_BARRIER,   MUSTER_OP_REDUCE,
        MUSTER_OP_GATHER,         MUSTER_OP_SCATTER,   MUSTER_OP_ALL_TO_ALL};
    static const uint64_t counts[] = {3, 300, 30000, 99999};
    struct group_ring ring;

    (void)state;
    group_ring_open(&ring, MEMBERS);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            check_cost(&ring, kinds[k], counts[i]);
    group_ring_close(&ring);
}

static void plans_of_steps_send_and_hold_what_they_say(void **state)
{
    static const enum muster_op_kind kinds[] = {MUSTER_OP_ALL_REDUCE, MUSTER_OP_BROADCAST,
                                                MUSTER_OP_ALL_GATHER, MUSTER_OP_REDUCE_SCATTER,
                                                MUSTER_OP_REDUCE};
    struct muster_plan_parameters parameters = {.chunk_bytes = 4096, .direct_max_bytes = 1};
    struct group_ring ring;

    (void)state;
    for (int a = MUSTER_ALGORITHM_HALVING; a <= MUSTER_ALGORITHM_TWO_LEVEL; a++) {
        parameters.forced = (enum muster_algorithm)a;
        group_ring_open_hosts(&ring, MEMBERS, &parameters, 2);
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            check_cost(&ring, kinds[k], 300);
            check_cost(&ring, kinds[k], 30000);
        }
        group_ring_close(&ring);
    }
}

static void through_boards_as_well(void **state)
{
    group_ring_has_boards = true;
    what_is_sent_and_held_is_what_the_plan_says(state);
    group_ring_has_boards = false;
}

static void a_ring_all_reduce_holds_a_copy_of_its_input(void **state)
{
    struct group_ring ring;

    (void)state;
    group_ring_open(&ring, MEMBERS);
    run_alone(&ring, MUSTER_OP_ALL_REDUCE, 99999);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_true(calls[i].op.result.memory_bytes >= 99999 * sizeof(float));
    run_alone(&ring, MUSTER_OP_ALL_REDUCE, 3);
    for (uint32_t i = 0; i < MEMBERS; i++) /* the peak is this operation's */
        assert_true(calls[i].op.result.memory_bytes < 99999 * sizeof(float));
    group_ring_close(&ring);
}

/* Patarasuk & Yuan 2009: no all-reduce sends less than 2 (n - 1) / n of the tensor. */
static void a_ring_all_reduce_sends_no_more_than_it_must(void **state)
{
    struct muster_plan_input input = {
        .kind = MUSTER_OP_ALL_REDUCE,
        .count = 17 * 16 * 15 * 1024,
        .element_bytes = 4,
        .parameters = {.direct_max_bytes = 1, .forced = MUSTER_ALGORITHM_RING}};

    (void)state;
    for (input.n = 2; input.n <= 17; input.n++) {
        uint64_t all = 0;

        for (input.index = 0; input.index < input.n; input.index++) {
            struct muster_plan plan = muster_plan_make(&input);

            all += muster_plan_cost(&plan, NULL).sent_bytes;
        }
        assert_int_equal(all, 2 * (input.n - 1) * input.count * input.element_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(what_is_sent_and_held_is_what_the_plan_says),
        cmocka_unit_test(plans_of_steps_send_and_hold_what_they_say),
        cmocka_unit_test(through_boards_as_well),
        cmocka_unit_test(a_ring_all_reduce_holds_a_copy_of_its_input),
        cmocka_unit_test(a_ring_all_reduce_sends_no_more_than_it_must),
    };

    return cmocka_run_group_tests_name("plan_cost", cases, NULL, NULL);
}
