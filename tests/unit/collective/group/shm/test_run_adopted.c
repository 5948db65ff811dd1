/* Operations that go on in the group of the next view, while one before them is aborted. */
#include "group_ring.h"

#include <string.h>

#include "collective/group/shm/shm_internal.h"

enum { MEMBERS = 3, ROOT = 0, SLOW = 1, LAST = 2 };
enum { FIRST, SECOND, OPERATIONS }; /* of a lane */

#define FIRST_COUNT  20000u /* its staging is new, so that its root cannot announce it at once */
#define SECOND_COUNT 500u   /* it takes the staging that an operation before has left */
#define TURNS_MAX    3000u

static struct group_ring ring;
static int32_t memory[MEMBERS][OPERATIONS][FIRST_COUNT];
static struct muster_op ops[MEMBERS][OPERATIONS];
static enum muster_rc outcomes[MEMBERS][OPERATIONS];
static unsigned done_counts[MEMBERS][OPERATIONS];

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    size_t at = (size_t)(op - &ops[0][0]);

    done_counts[at / OPERATIONS][at % OPERATIONS]++;
    outcomes[at / OPERATIONS][at % OPERATIONS] = rc;
}

static void start_broadcast(uint32_t member, unsigned operation)
{
    struct muster_op *op = &ops[member][operation];
    struct muster_tensor tensor = {.data = memory[member][operation],
                                   .count = operation == FIRST ? FIRST_COUNT : SECOND_COUNT,
                                   .dtype = MUSTER_I32};

    memset(op, 0, sizeof(*op));
    op->deadline_ns = muster_loop_after_ns(ring.test.env.loop, 600 * MUSTER_NS_PER_S);
    assert_int_equal(muster_broadcast_start(op, ring.members[member].group, &tensor, ROOT, on_done),
                     MUSTER_OK);
}

static bool is_shared(void *data)
{
    (void)data;
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (!muster_shm_is_used(ring.members[i].group))
            return false;
    return true;
}

static bool is_over(void *data)
{
    (void)data;
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (done_counts[i][SECOND] == 0 ||
            !muster_list_is_empty(&ring.members[i].group->lanes[0].runs))
            return false;
    return true;
}

/* Afterwards the root has an idle staging that all have mapped. */
static void open_warm_ring(void)
{
    group_ring_open(&ring, MEMBERS);
    test_env_run_until(&ring.test.env, is_shared, NULL);
    memset(done_counts, 0, sizeof(done_counts));
    for (uint32_t i = 0; i < MEMBERS; i++)
        start_broadcast(i, SECOND);
    test_env_run_until(&ring.test.env, is_over, NULL);
    memset(done_counts, 0, sizeof(done_counts));
}

static void complete_second(uint32_t member)
{
    struct muster_run *run = ops[member][SECOND].impl;

    for (unsigned turns = 0; turns < TURNS_MAX && run->state == MUSTER_RUN_ACTIVE; turns++)
        (void)muster_shm_step(run);
    assert_int_equal(run->state, MUSTER_RUN_COMPLETE);
}

static void freeze_member(uint32_t member)
{
    struct muster_progress progress;

    assert_int_equal(muster_group_freeze(ring.members[member].group, &progress), MUSTER_OK);
    muster_progress_fini(&progress);
}

/* The root dies when it has announced the second of two broadcasts and not yet the first. The last member to complete
 * the second one ends it in the turn of the change of view, before the other looks again. */
static void who_is_slow_hears_that_the_others_have_ended_a_later_operation(void **state)
{
    (void)state;
    open_warm_ring();
    for (uint32_t i = 0; i < MEMBERS; i++) {
        start_broadcast(i, FIRST);
        start_broadcast(i, SECOND);
    }
    sim_board_kill(&ring.boards, &ring.members[ROOT].self.incarnation);
    ring.members[ROOT].is_dead = true;
    complete_second(SLOW);
    freeze_member(SLOW);
    freeze_member(LAST);
    complete_second(LAST);
    group_ring_kill(&ring, ROOT);
    group_ring_decide(&ring, UINT32_MAX);

    group_ring_follow(&ring, LAST);
    group_ring_follow(&ring, SLOW);
    for (unsigned turns = 0; turns < TURNS_MAX && done_counts[SLOW][SECOND] == 0; turns++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);

    for (uint32_t i = SLOW; i <= LAST; i++) {
        assert_int_equal(done_counts[i][FIRST], 1);
        assert_int_equal(outcomes[i][FIRST], MUSTER_ABORTED);
        assert_int_equal(done_counts[i][SECOND], 1);
        assert_int_equal(outcomes[i][SECOND], MUSTER_OK);
    }
    group_ring_close(&ring);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        GROUP_RING_CASE_WITH_BOARDS(who_is_slow_hears_that_the_others_have_ended_a_later_operation),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
