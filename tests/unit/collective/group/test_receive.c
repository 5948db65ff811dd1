/* Frames that come before, while and after their operation begins. */
#include "tests/lib/group_ring.h"

#include <string.h>

#include "collective/group/group_internal.h"
#include "collective/group/shm.h"

static struct group_ring ring;

static void count_done(struct muster_op *op, enum muster_rc rc)
{
    unsigned *count = op->data;

    assert_int_equal(rc, MUSTER_OK);
    ++*count;
}

static void start_barrier(uint32_t member, struct muster_op *op, unsigned *count)
{
    struct muster_loop *loop = ring.test.env.loop;

    *op = (struct muster_op){.data = count};
    op->deadline_ns = muster_loop_after_ns(loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_barrier_start(op, ring.members[member].group, count_done), MUSTER_OK);
}

/* Member 1 has called; its frame's header is here before member 0 calls, its payload after. */
static void a_frame_is_used_whose_operation_begins_while_it_comes_in(void **state)
{
    struct muster_op first, second;
    unsigned first_count = 0, second_count = 0, turns;
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_INPUT};
    struct muster_group *group;
    void *buffer;

    (void)state;
    group_ring_open(&ring, 2);
    group = ring.members[0].group;
    start_barrier(1, &second, &second_count);
    header.epoch = ring.view->epoch;
    header.op = second.id;
    header.descriptor = ((const struct muster_run *)second.impl)->descriptor;
    buffer = muster_group_wire_client.on_frame(group, 1, &header);
    start_barrier(0, &first, &first_count);
    muster_group_wire_client.on_payload(group, 1, &header, buffer);

    assert_int_equal(first_count, 1);
    for (turns = 0; turns < 100000 && second_count == 0; turns++)
        group_ring_turn(&ring, 1);
    assert_int_equal(second_count, 1);
    group_ring_close(&ring);
}

/* Without a word its operation would wait for it until the deadline, and blame who has sent it. */
static void an_early_frame_without_memory_ends_the_link(void **state)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE, .type = MUSTER_FRAME_INPUT, .payload_bytes = 1u << 20};

    (void)state;
    group_ring_open(&ring, 2);
    header.epoch = ring.view->epoch;
    ring.test.mem.fail_at = 1;

    assert_null(muster_group_wire_client.on_frame(ring.members[0].group, 1, &header));
    assert_int_equal(ring.members[0].suspect_count, 1);
    ring.test.mem.fail_at = 0;
    group_ring_close(&ring);
}

static void ignore_end(struct muster_op *op, enum muster_rc rc)
{
    (void)op;
    (void)rc;
}

/* A description has come before its operation was called here, and is read when that begins. */
static void a_kept_description_without_memory_ends_the_link(void **state)
{
    unsigned suspect_count = 0, k;
    bool has_failed = true;

    (void)state;
    for (k = 1; has_failed; k++) {
        struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                             .type = MUSTER_FRAME_MISMATCH,
                                             .payload_bytes = 256};
        struct muster_op op = {.data = NULL};
        struct muster_group *group;
        enum muster_rc rc;
        void *place;

        group_ring_open(&ring, 2);
        group = ring.members[0].group;
        header.epoch = ring.view->epoch;
        place = muster_group_wire_client.on_frame(group, 1, &header);
        assert_non_null(place);
        memset(place, 'a', 256);
        muster_group_wire_client.on_payload(group, 1, &header, place);
        op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
        ring.test.mem.fail_at = k;
        rc = muster_barrier_start(&op, group, ignore_end);
        assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
        has_failed = ring.test.mem.fail_at == 0;
        ring.test.mem.fail_at = 0;
        if (strstr(ring.members[0].suspect_text, "no memory for a description") != NULL)
            suspect_count++;
        group_ring_close(&ring);
    }

    assert_true(k > 3);
    assert_int_equal(suspect_count, 1); /* by the one allocation that was the description's */
}

/* Nobody who follows the protocol sends it: what boards show is not asked for. */
static void a_fetched_chunk_of_an_operation_through_boards_ends_the_link(void **state)
{
    static int32_t values[300000];
    const struct muster_tensor tensor = {.data = values, .count = 300000, .dtype = MUSTER_I32};
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE, .type = MUSTER_FRAME_CHUNK, .payload_bytes = 8};
    struct muster_op op = {.data = NULL};
    struct muster_run *run;

    (void)state;
    group_ring_has_boards = true;
    group_ring_open(&ring, 2);
    for (unsigned turns = 0; !muster_shm_is_used(ring.members[0].group); turns++) {
        assert_true(turns < 100000);
        group_ring_turn(&ring, 1);
    }
    op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(
        muster_all_reduce_start(&op, ring.members[0].group, &tensor, MUSTER_SUM, ignore_end),
        MUSTER_OK);
    run = op.impl;
    assert_true(muster_run_is_shared(run));
    run->mode = MUSTER_RUN_ADOPTING; /* as after a death */
    header.epoch = ring.view->epoch;
    header.op = op.id;
    header.descriptor = run->descriptor;

    assert_null(muster_group_wire_client.on_frame(ring.members[0].group, 1, &header));
    assert_int_equal(ring.members[0].suspect_count, 1);
    group_ring_close(&ring);
    group_ring_has_boards = false;
}

/* Only one of them was asked, and the other one's frame begins before the first has come whole. */
static void a_chunk_that_two_members_send_counts_once(void **state)
{
    static int32_t values[1 << 16];
    const struct muster_tensor tensor = {.data = values, .count = 1 << 16, .dtype = MUSTER_I32};
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_CHUNK};
    struct muster_op op = {.data = NULL};
    struct muster_group *group;
    struct muster_run *run;
    void *first, *second;

    (void)state;
    group_ring_open(&ring, 3);
    group = ring.members[0].group;
    op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_all_reduce_start(&op, group, &tensor, MUSTER_SUM, ignore_end),
                     MUSTER_OK);
    run = op.impl;
    run->mode = MUSTER_RUN_ADOPTING; /* as after a death */
    run->chunks[0] |= MUSTER_CHUNK_ASKED;
    header.epoch = ring.view->epoch;
    header.op = op.id;
    header.descriptor = run->descriptor;
    header.payload_bytes = (uint32_t)(muster_plan_chunk(&run->plan, 0).count * 4);

    first = muster_group_wire_client.on_frame(group, 1, &header);
    second = muster_group_wire_client.on_frame(group, 2, &header);
    assert_non_null(first);
    assert_non_null(second);
    muster_group_wire_client.on_payload(group, 1, &header, first);
    muster_group_wire_client.on_payload(group, 2, &header, second);

    assert_int_equal(run->final_count, 1);
    group_ring_close(&ring);
}

/* --- Frames that no member sends which follows the protocol --- */

#define NO_OP    "a frame names no operation of this view"
#define TOO_LONG "a control frame is too long"
#define NO_CHUNK "a chunk came that no plan knows"

struct strange {
    const char *name;
    uint8_t type;
    uint32_t lane;
    uint32_t chunk; /* ahead of that of the plan */
    int32_t bytes;
    bool is_long;    /* … more than the chunk */
    const char *why; /* NULL: it is received */
};

/* Member 0 has started to sum up around a ring; its neighbour sends this. */
static void strange_frames_end_the_link(void **state)
{
    static const struct strange rows[] = {
        {"no such lane", MUSTER_FRAME_INPUT, MUSTER_LANES_MAX, 0, 8, false, NO_OP},
        {"the last lane", MUSTER_FRAME_INPUT, MUSTER_LANES_MAX - 1, 0, 8, false, NULL},
        {"a start with a payload", MUSTER_FRAME_START, 0, 0, 1, false, TOO_LONG},
        {"an end with a payload", MUSTER_FRAME_COMPLETE, 0, 0, 1, false, TOO_LONG},
        {"a question with a payload", MUSTER_FRAME_QUERY, 0, 0, 1, false, TOO_LONG},
        {"an answer with a payload", MUSTER_FRAME_STATUS, 0, 0, 1, false, TOO_LONG},
        {"a description that is too long", MUSTER_FRAME_MISMATCH, 0, 0, 257, false, TOO_LONG},
        {"a description", MUSTER_FRAME_MISMATCH, 0, 0, 256, false, NULL},
        {"the chunk that is awaited", MUSTER_FRAME_REDUCE, 0, 0, 0, true, NULL},
        {"a shorter one", MUSTER_FRAME_REDUCE, 0, 0, -4, true, NO_CHUNK},
        {"a longer one", MUSTER_FRAME_REDUCE, 0, 0, 4, true, NO_CHUNK},
        {"a chunk behind the last", MUSTER_FRAME_REDUCE, 0, 1u << 20, 0, true, NO_CHUNK},
        {"the outcome before the sum", MUSTER_FRAME_GATHER, 0, 0, 0, true, NO_CHUNK},
        {"an input of a direct exchange", MUSTER_FRAME_INPUT, 0, 0, 0, true, NO_CHUNK},
        {"a step of a table", MUSTER_FRAME_STEP, 0, 0, 0, true, NO_CHUNK},
        {"a chunk that is not asked for", MUSTER_FRAME_CHUNK, 0, 0, 0, true, NO_CHUNK},
    };
    static int32_t values[1 << 16];
    const struct muster_tensor tensor = {.data = values, .count = 1 << 16, .dtype = MUSTER_I32};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                             .type = rows[i].type};
        const struct group_ring_member *member = &ring.members[0];
        struct muster_op op = {.data = NULL};
        const struct muster_run *run;
        void *place;

        group_ring_open(&ring, 2);
        op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
        assert_int_equal(
            muster_all_reduce_start(&op, member->group, &tensor, MUSTER_SUM, ignore_end),
            MUSTER_OK);
        run = op.impl;
        header.epoch = ring.view->epoch;
        header.op = op.id;
        header.op.lane += rows[i].lane;
        header.descriptor = run->descriptor;
        header.chunk = rows[i].chunk;
        header.payload_bytes = (uint32_t)rows[i].bytes;
        if (rows[i].is_long)
            header.payload_bytes += (uint32_t)(muster_plan_chunk(&run->plan, 0).count * 4);
        place = muster_group_wire_client.on_frame(member->group, 1, &header);

        if ((place == NULL) != (rows[i].why != NULL) ||
            member->suspect_count != (rows[i].why != NULL) ||
            (rows[i].why != NULL && strstr(member->suspect_text, rows[i].why) == NULL))
            fail_msg("%s: \"%s\"", rows[i].name, member->suspect_text);
        group_ring_close(&ring);
    }
}

/* Early frames are kept up to a bound; then the other side waits, and nothing is lost. */
static void early_frames_are_bounded(void **state)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_INPUT};
    struct muster_group *group;
    void *buffer;

    (void)state;
    group_ring_open(&ring, 2);
    group = ring.members[0].group;
    header.epoch = ring.view->epoch;
    header.payload_bytes = (uint32_t)group->early_bytes_max;
    buffer = muster_group_wire_client.on_frame(group, 1, &header);
    assert_non_null(buffer);
    muster_group_wire_client.on_payload(group, 1, &header, buffer);
    assert_false(group->is_rank_paused[1]);
    header.op.sequence = 1;
    header.payload_bytes = 1;

    assert_null(muster_group_wire_client.on_frame(group, 1, &header));
    assert_true(group->is_rank_paused[1]);
    assert_int_equal(ring.members[0].suspect_count, 0);
    muster_group_drop_early(group);
    assert_false(group->is_rank_paused[1]);
    assert_int_equal(group->early_bytes, 0);
    group_ring_close(&ring);
}

static void start_broadcast(uint32_t member, struct muster_op *op, int32_t *value, unsigned *count)
{
    struct muster_tensor tensor = {.data = value, .count = 1, .dtype = MUSTER_I32};

    *op = (struct muster_op){.data = count};
    op->deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_broadcast_start(op, ring.members[member].group, &tensor, 0, count_done),
                     MUSTER_OK);
}

/* Else a step could end that a joiner has not reached, and take the state away that it begins with.
 */
static void a_broadcast_ends_when_the_last_member_has_called(void **state)
{
    struct muster_op ops[3];
    int32_t values[3] = {7, 0, 0};
    unsigned count = 0, turns;

    (void)state;
    group_ring_open(&ring, 3);
    start_broadcast(0, &ops[0], &values[0], &count);
    start_broadcast(1, &ops[1], &values[1], &count);
    for (turns = 0; turns < 2000; turns++)
        group_ring_turn(&ring, 1);
    assert_int_equal(count, 0);
    start_broadcast(2, &ops[2], &values[2], &count);
    for (turns = 0; turns < 100000 && count < 3; turns++)
        group_ring_turn(&ring, 1);

    assert_int_equal(count, 3);
    assert_int_equal(values[1], 7);
    assert_int_equal(values[2], 7);
    group_ring_close(&ring);
}

static void record_rc(struct muster_op *op, enum muster_rc rc)
{
    *(enum muster_rc *)op->data = rc;
}

static void start_gather(uint32_t member, struct muster_op *op, int32_t *values, uint32_t n,
                         enum muster_rc *rc)
{
    struct muster_tensor input = {.data = values, .count = 1, .dtype = MUSTER_I32};
    struct muster_tensor output = {.data = values + 1, .count = n, .dtype = MUSTER_I32};

    *op = (struct muster_op){.data = rc};
    op->deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(
        muster_all_gather_start(op, ring.members[member].group, &input, &output, record_rc),
        MUSTER_OK);
}

/* Started while frozen for three, called by the other for the two that are left: it ends ABORTED
 * for both. */
static void a_held_operation_that_fits_no_more_ends_alike_on_all(void **state)
{
    struct muster_op first, second;
    int32_t first_values[4] = {1}, second_values[4] = {2};
    enum muster_rc first_rc = MUSTER_UNKNOWN, second_rc = MUSTER_UNKNOWN;
    unsigned turns;

    (void)state;
    group_ring_open(&ring, 3);
    group_ring_freeze(&ring);
    start_gather(0, &first, first_values, 3, &first_rc);
    group_ring_kill(&ring, 2);
    group_ring_change(&ring, UINT32_MAX);
    start_gather(1, &second, second_values, 2, &second_rc);
    for (turns = 0; turns < 2000 && ring.members[0].abort_count == 0; turns++)
        group_ring_turn(&ring, 1);
    assert_int_equal(ring.members[0].abort_count, 1); /* it proposes again from time to time */
    group_ring_change(&ring, UINT32_MAX);
    for (turns = 0; turns < 2000; turns++)
        group_ring_turn(&ring, 1);

    assert_int_equal(first_rc, MUSTER_ABORTED);
    assert_int_equal(second_rc, MUSTER_ABORTED);
    group_ring_close(&ring);
}

/* The sum stands in the tensor already, piece by piece, while the rest is still on its way. */
static void a_half_summed_chunk_is_put_back_by_a_freeze(void **state)
{
    static int32_t values[1 << 16];
    const size_t count = sizeof(values) / sizeof(values[0]);
    struct muster_tensor tensor = {.data = values, .count = count, .dtype = MUSTER_I32};
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_REDUCE};
    enum muster_rc rc = MUSTER_UNKNOWN;
    const struct muster_run *run;
    struct muster_op op = {.data = &rc};
    struct muster_plan_chunk chunk;
    int32_t *partial;

    (void)state;
    for (size_t i = 0; i < count; i++)
        values[i] = (int32_t)i;
    group_ring_open(&ring, 2);
    op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(
        muster_all_reduce_start(&op, ring.members[0].group, &tensor, MUSTER_SUM, record_rc),
        MUSTER_OK);
    run = op.impl;
    chunk = muster_plan_chunk(&run->plan, 0);
    assert_int_equal(chunk.reduce, MUSTER_REDUCE_FINISH);
    header.epoch = ring.view->epoch;
    header.op = op.id;
    header.descriptor = run->descriptor;
    header.payload_bytes = (uint32_t)(chunk.count * sizeof(values[0]));
    partial = muster_group_wire_client.on_frame(ring.members[0].group, 1, &header);
    assert_non_null(partial);
    for (size_t i = 0; i < 8; i++)
        partial[i] = 100;
    muster_group_wire_client.on_progress(ring.members[0].group, 1, &header, partial,
                                         8 * sizeof(partial[0]) + 1);

    assert_int_equal(values[7], 107);
    assert_int_equal(values[8], 8);
    group_ring_freeze(&ring);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(values[i], i);
    group_ring_close(&ring);
}

static unsigned awake_count;

static void count_awake(struct muster_loop *loop, uint64_t for_ns)
{
    (void)loop;
    awake_count += for_ns > 0;
}

static void who_expects_frames_stays_awake(void **state)
{
    struct muster_op first, second;
    unsigned first_count = 0, second_count = 0, turns, sent;
    const struct muster_loop_ops *before;
    struct muster_loop_ops ops;

    (void)state;
    group_ring_open(&ring, 2);
    before = ring.test.env.loop->ops;
    ops = *before;
    ops.stay_awake = count_awake;
    ring.test.env.loop->ops = &ops;
    awake_count = 0;
    start_barrier(0, &first, &first_count);
    sent = awake_count;
    start_barrier(1, &second, &second_count);
    for (turns = 0; turns < 100000 && first_count + second_count < 2; turns++)
        group_ring_turn(&ring, 1);

    assert_true(sent > 0);
    assert_true(awake_count >= 2 * sent + 2); /* both have sent, and have received */
    ring.test.env.loop->ops = before;
    group_ring_close(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_half_summed_chunk_is_put_back_by_a_freeze),
        cmocka_unit_test(who_expects_frames_stays_awake),
        cmocka_unit_test(a_held_operation_that_fits_no_more_ends_alike_on_all),
        cmocka_unit_test(a_broadcast_ends_when_the_last_member_has_called),
        cmocka_unit_test(a_frame_is_used_whose_operation_begins_while_it_comes_in),
        cmocka_unit_test(an_early_frame_without_memory_ends_the_link),
        cmocka_unit_test(a_kept_description_without_memory_ends_the_link),
        cmocka_unit_test(strange_frames_end_the_link),
        cmocka_unit_test(early_frames_are_bounded),
        cmocka_unit_test(a_fetched_chunk_of_an_operation_through_boards_ends_the_link),
        cmocka_unit_test(a_chunk_that_two_members_send_counts_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
