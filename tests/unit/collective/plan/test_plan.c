/* All plans on paper: n members that send chunks as their plans say, without sockets or memory of
 * tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define N_MAX 17

/* A chunk on its way round the ring. */
struct message {
    bool is_final;
    uint32_t chunk;
    uint32_t contributors; /* bit per member */
    uint32_t order[N_MAX]; /* in which they were added */
    uint32_t order_count;
};

struct queue {
    struct message *messages;
    size_t begin, end;
};

struct paper {
    struct muster_plan plans[N_MAX];
    uint32_t n;
    struct queue to[N_MAX]; /* from the previous member; first in, first out */
    uint8_t *has_final[N_MAX];
    struct message *value_of; /* by chunk: how the final value came about */
    uint32_t start_next[N_MAX], start_final[N_MAX];
    uint32_t in_flight_max;
};

static void push_message(struct paper *paper, uint32_t member, const struct message *message)
{
    struct queue *queue = &paper->to[paper->plans[member].next];

    queue->messages[queue->end++] = *message;
}

static void pump_member(struct paper *paper, uint32_t member)
{
    const struct muster_plan *plan = &paper->plans[member];

    while (plan->has_reduction && plan->start_block < plan->block_count &&
           paper->start_next[member] < plan->chunks_per_block &&
           paper->start_next[member] < paper->start_final[member] + plan->window) {
        struct message message = {.contributors = 1u << member, .order_count = 1};
        uint32_t in_flight;

        message.chunk = plan->start_block * plan->chunks_per_block + paper->start_next[member]++;
        message.order[0] = member;
        assert_int_equal(muster_plan_chunk(plan, message.chunk).reduce, MUSTER_REDUCE_START);
        in_flight = paper->start_next[member] - paper->start_final[member];
        if (in_flight > paper->in_flight_max)
            paper->in_flight_max = in_flight;
        push_message(paper, member, &message);
    }
}

static void hold_chunk(struct paper *paper, uint32_t member, const struct message *message)
{
    const struct muster_plan *plan = &paper->plans[member];
    enum muster_gather_step step = muster_plan_chunk(plan, message->chunk).gather;
    struct message next = *message;

    assert_false(paper->has_final[member][message->chunk]);
    paper->has_final[member][message->chunk] = 1;
    next.is_final = true;
    if (step == MUSTER_GATHER_SOURCE || step == MUSTER_GATHER_PASS || step == MUSTER_GATHER_ALONE)
        push_message(paper, member, &next);
    if (plan->has_reduction && message->chunk / plan->chunks_per_block == plan->start_block) {
        paper->start_final[member]++;
        pump_member(paper, member);
    }
}

static void receive_partial(struct paper *paper, uint32_t member, struct message *message)
{
    enum muster_reduce_step step = muster_plan_chunk(&paper->plans[member], message->chunk).reduce;

    assert_true(step == MUSTER_REDUCE_PASS || step == MUSTER_REDUCE_FINISH);
    assert_int_equal(message->contributors >> member & 1, 0);
    message->contributors |= 1u << member;
    message->order[message->order_count++] = member;
    if (step == MUSTER_REDUCE_PASS) {
        push_message(paper, member, message);
        return;
    }
    assert_int_equal(message->contributors, (1u << paper->n) - 1);
    paper->value_of[message->chunk] = *message;
    hold_chunk(paper, member, message);
}

static void receive_final(struct paper *paper, uint32_t member, struct message *message)
{
    const struct muster_plan *plan = &paper->plans[member];
    enum muster_gather_step step = muster_plan_chunk(plan, message->chunk).gather;

    if (step == MUSTER_GATHER_HEAR) {
        assert_int_equal(message->chunk / plan->chunks_per_block, plan->start_block);
        paper->start_final[member]++;
        pump_member(paper, member);
        return;
    }
    assert_true(step == MUSTER_GATHER_PASS || step == MUSTER_GATHER_LAST);
    hold_chunk(paper, member, message);
}

static void paper_open(struct paper *paper, struct muster_plan_input input)
{
    memset(paper, 0, sizeof(*paper));
    paper->n = input.n;
    for (uint32_t member = 0; member < input.n; member++) {
        size_t room;

        input.index = member;
        paper->plans[member] = muster_plan_make(&input);
        room = 2 * (size_t)paper->plans[member].chunk_count + 1;
        paper->to[member].messages = calloc(room, sizeof(struct message));
        paper->has_final[member] = calloc(room, 1);
    }
    paper->value_of = calloc(paper->plans[0].chunk_count, sizeof(struct message));
}

static void paper_close(struct paper *paper)
{
    for (uint32_t member = 0; member < paper->n; member++) {
        free(paper->to[member].messages);
        free(paper->has_final[member]);
    }
    free(paper->value_of);
}

static void start_member(struct paper *paper, uint32_t member)
{
    for (uint32_t c = 0; c < paper->plans[member].chunk_count; c++) {
        struct muster_plan_chunk chunk = muster_plan_chunk(&paper->plans[member], c);
        struct message message = {.is_final = true, .chunk = c};

        if (chunk.reduce == MUSTER_REDUCE_NONE && chunk.gather == MUSTER_GATHER_SOURCE)
            hold_chunk(paper, member, &message);
    }
    pump_member(paper, member);
}

/* Members act in an order that changes with `seed`; each takes what is first in its queue. */
static void run_all(struct paper *paper, unsigned seed)
{
    bool has_moved = true;

    for (uint32_t member = 0; member < paper->n; member++)
        start_member(paper, (member + seed) % paper->n);
    while (has_moved) {
        has_moved = false;
        for (uint32_t i = 0; i < paper->n; i++) {
            uint32_t member = seed == 2 ? paper->n - 1 - i : (i + seed) % paper->n;
            struct queue *queue = &paper->to[member];
            struct message message;

            if (queue->begin == queue->end)
                continue;
            message = queue->messages[queue->begin++];
            if (message.is_final)
                receive_final(paper, member, &message);
            else
                receive_partial(paper, member, &message);
            has_moved = true;
        }
    }
}

static void check_whole(const struct paper *paper)
{
    for (uint32_t member = 0; member < paper->n; member++) {
        const struct muster_plan *plan = &paper->plans[member];
        uint32_t wanted = 0;

        for (uint32_t c = 0; c < plan->chunk_count; c++) {
            if (!muster_plan_is_wanted(plan, c))
                continue;
            wanted++;
            assert_true(paper->has_final[member][c]);
        }
        assert_int_equal(wanted, muster_plan_wanted_count(plan));
        assert_int_equal(paper->to[member].begin, paper->to[member].end);
    }
}

/* Chunks lie side by side and cover the vector. */
static void check_cover(const struct muster_plan *plan)
{
    uint64_t next = 0;

    for (uint32_t c = 0; c < plan->chunk_count; c++) {
        struct muster_plan_chunk chunk = muster_plan_chunk(plan, c);

        assert_true(chunk.first == next);
        next += chunk.count;
    }
    assert_true(next == plan->count);
}

static uint32_t owner_of(const struct muster_plan *plan, uint32_t c)
{
    return plan->kind == MUSTER_OP_REDUCE ? plan->root : c / plan->chunks_per_block;
}

/* ((x[b+1] + x[b+2]) + …) + x[b] for every chunk of block b, whatever the timing. */
static void check_order(const struct paper *paper)
{
    const struct muster_plan *plan = &paper->plans[0];

    for (uint32_t c = 0; c < plan->chunk_count && plan->has_reduction; c++)
        for (uint32_t i = 0; i < paper->n; i++)
            assert_int_equal(paper->value_of[c].order[i], (owner_of(plan, c) + 1 + i) % paper->n);
}

static const struct muster_plan_parameters small = {
    .chunk_bytes = 256, .direct_max_bytes = 1, .forced = MUSTER_ALGORITHM_RING};

/* offsets NULL: equal parts. */
static void check_parts(enum muster_op_kind kind, uint32_t n, uint64_t count, uint32_t root,
                        const uint64_t *offsets)
{
    struct muster_plan_input input = {.kind = kind,
                                      .n = n,
                                      .root = root,
                                      .count = count,
                                      .offsets = offsets,
                                      .element_bytes = 4,
                                      .parameters = small};
    struct paper paper;

    for (unsigned seed = 0; seed < 3; seed++) {
        paper_open(&paper, input);
        assert_int_equal(paper.plans[0].algorithm, MUSTER_ALGORITHM_RING);
        run_all(&paper, seed);
        check_whole(&paper);
        check_cover(&paper.plans[0]);
        check_order(&paper);
        assert_true(paper.in_flight_max <= paper.plans[0].window);
        paper_close(&paper);
    }
}

static void check_plan(enum muster_op_kind kind, uint32_t n, uint64_t count, uint32_t root)
{
    check_parts(kind, n, count, root, NULL);
}

/* Every third member has nothing, one has much. */
static void parts_of_any_length_are_the_blocks(void **state)
{
    uint64_t offsets[N_MAX + 1] = {0};

    (void)state;
    for (uint32_t n = 2; n <= N_MAX; n++) {
        for (uint32_t i = 0; i < n; i++)
            offsets[i + 1] = offsets[i] + (i % 3 == 0 ? 0 : i % 3 == 1 ? 7 * i + 1 : 500);
        check_parts(MUSTER_OP_ALL_GATHER_UNEVEN, n, offsets[n], 0, offsets);
        check_parts(MUSTER_OP_REDUCE_SCATTER_UNEVEN, n, offsets[n], 0, offsets);
    }
}

static void ring_plans_reduce_every_chunk_once_and_reach_everybody(void **state)
{
    static const uint64_t counts[] = {1, 2, 63, 64, 65, 1000, 4097};

    (void)state;
    for (uint32_t n = 2; n <= N_MAX; n++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            check_plan(MUSTER_OP_ALL_REDUCE, n, counts[i], 0);
            check_plan(MUSTER_OP_BROADCAST, n, counts[i], (uint32_t)counts[i] % n);
            check_plan(MUSTER_OP_REDUCE, n, counts[i], (uint32_t)counts[i] % n);
            check_plan(MUSTER_OP_ALL_GATHER, n, counts[i] * n, 0);
            check_plan(MUSTER_OP_REDUCE_SCATTER, n, counts[i] * n, 0);
        }
}

static void parts_of_gather_and_scatter_are_the_blocks(void **state)
{
    struct muster_plan_input input = {.kind = MUSTER_OP_REDUCE_SCATTER,
                                      .n = 3,
                                      .index = 1,
                                      .count = 3 * 100,
                                      .element_bytes = 8,
                                      .parameters = small};
    struct muster_plan plan = muster_plan_make(&input);

    (void)state;
    for (uint32_t c = 0; c < plan.chunk_count; c++) {
        struct muster_plan_chunk chunk = muster_plan_chunk(&plan, c);

        assert_true(chunk.first >= chunk.block * 100);
        assert_true(chunk.first + chunk.count <= (chunk.block + 1) * 100);
        assert_int_equal(muster_plan_is_wanted(&plan, c), chunk.block == 1);
    }
}

static void tiny_operations_and_lonely_members_are_direct(void **state)
{
    static const struct {
        uint32_t n;
        uint64_t bytes;
        enum muster_algorithm next;
    } ends[] = {{2, 256 << 10, MUSTER_ALGORITHM_RING},
                {3, 256 << 10, MUSTER_ALGORITHM_RING},
                {4, 64 << 10, MUSTER_ALGORITHM_HALVING},
                {8, MUSTER_DIRECT_MAX_BYTES_DEFAULT, MUSTER_ALGORITHM_HALVING}};
    struct muster_plan_input input = {.kind = MUSTER_OP_ALL_REDUCE, .element_bytes = 4};

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        input.n = ends[i].n;
        input.count = ends[i].bytes / 4;
        assert_int_equal(muster_plan_make(&input).algorithm, MUSTER_ALGORITHM_DIRECT);
        input.count++;
        assert_int_equal(muster_plan_make(&input).algorithm, ends[i].next);
    }
    input.n = 1;
    assert_int_equal(muster_plan_make(&input).algorithm, MUSTER_ALGORITHM_DIRECT);
    assert_int_equal(muster_plan_make(&input).chunk_count, 1);
    input.n = 9;
    input.kind = MUSTER_OP_BARRIER;
    assert_int_equal(muster_plan_make(&input).algorithm, MUSTER_ALGORITHM_DIRECT);
}

static void what_is_a_little_longer_than_a_chunk_of_steps_stays_one(void **state)
{
    struct muster_plan_input input = {
        .kind = MUSTER_OP_ALL_REDUCE, .n = 4, .host_count = 1, .element_bytes = 4};

    (void)state;
    input.count = (1 << 20) / 4; /* 4 x 261,824 bytes are a little less */
    assert_int_equal(muster_plan_make(&input).algorithm, MUSTER_ALGORITHM_HALVING);
    assert_int_equal(muster_plan_make(&input).chunk_count, 1);
    input.count = (5 << 18) / 4;
    assert_int_equal(muster_plan_make(&input).chunk_count, 2);
}

static void chunks_of_a_broadcast_do_not_depend_on_the_members(void **state)
{
    struct muster_plan_input input = {
        .kind = MUSTER_OP_BROADCAST, .n = 2, .count = 3000000, .element_bytes = 4};
    struct muster_plan two = muster_plan_make(&input), five;

    (void)state;
    input.n = 5;
    input.index = 3;
    five = muster_plan_make(&input);

    assert_int_equal(two.chunk_count, five.chunk_count);
    assert_true(two.chunk_elements == five.chunk_elements);
}

static void parameters_from_a_view_are_kept_within_limits(void **state)
{
    const struct muster_plan_parameters wild = {.chunk_bytes = UINT32_MAX,
                                                .direct_max_bytes = UINT32_MAX};
    const struct muster_plan_parameters tiny = {.chunk_bytes = 3, .direct_max_bytes = 1};

    (void)state;
    assert_int_equal(muster_plan_chunk_bytes(&wild), MUSTER_CHUNK_BYTES_MAX);
    assert_int_equal(muster_plan_direct_max_bytes(&wild), MUSTER_DIRECT_MAX_BYTES_MAX);
    assert_int_equal(muster_plan_chunk_bytes(&tiny), 64);
}

/* A short one at the end would cost as many hops as a long one. */
static void the_chunks_of_a_block_are_alike(void **state)
{
    struct muster_plan_input input = {.kind = MUSTER_OP_ALL_REDUCE,
                                      .n = 4,
                                      .element_bytes = 4,
                                      .parameters = {.forced = MUSTER_ALGORITHM_RING}};

    (void)state;
    for (input.count = (uint64_t)1 << 18; input.count <= (uint64_t)1 << 26; input.count *= 2) {
        struct muster_plan plan = muster_plan_make(&input);
        struct muster_plan_chunk last = muster_plan_chunk(&plan, plan.chunks_per_block - 1);

        assert_true(plan.chunk_elements * 4 <= MUSTER_CHUNK_BYTES_DEFAULT);
        assert_true(last.count * 10 >= plan.chunk_elements * 9 - 10 * 16 * plan.chunks_per_block);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chunks_of_a_block_are_alike),
        cmocka_unit_test(ring_plans_reduce_every_chunk_once_and_reach_everybody),
        cmocka_unit_test(parts_of_gather_and_scatter_are_the_blocks),
        cmocka_unit_test(parts_of_any_length_are_the_blocks),
        cmocka_unit_test(tiny_operations_and_lonely_members_are_direct),
        cmocka_unit_test(what_is_a_little_longer_than_a_chunk_of_steps_stays_one),
        cmocka_unit_test(chunks_of_a_broadcast_do_not_depend_on_the_members),
        cmocka_unit_test(parameters_from_a_view_are_kept_within_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
