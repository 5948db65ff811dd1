/* Operations through boards: one of three or four members closes its group amid an operation, while another stands
 * before or after any store that others see. */
#include "op_scene.h"

#include <string.h>

#include "collective/group/shm/shm_internal.h"

#define GARBAGE 0x5b

struct scene {
    struct op_scene op; /* an all_reduce */
    uint32_t closer, standing;
    unsigned stands_at; /* the standing member's k-th store */
    unsigned rounds;    /* of the others, until the closer closes */
};

static struct scene scene;
static bool has_closed;
static unsigned adopted_count, retried_count, aborted_count, hopeless_count;

static void poll_all_but(uint32_t standing)
{
    for (uint32_t member = 0; member < scene.op.n; member++) {
        struct muster_group *group = op_ring.members[member].group;

        if (member != standing && group != NULL)
            group->shm_poller.on_poll(&group->shm_poller);
    }
}

/* The memory is the caller's again, who writes there at once. */
static void take_back(uint32_t member)
{
    struct op_seat *seat = &op_seats[member];

    assert_null(seat->op.impl);
    if (seat->op.error.rc == MUSTER_OK)
        op_scene_check_result(&scene.op, member, 0);
    memset(seat->input, GARBAGE, seat->input_count * sizeof(int32_t));
}

static void close_member(uint32_t member)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "the process ends"};
    struct muster_group *group = op_ring.members[member].group;

    op_ring.members[member].group = NULL;
    muster_group_abort_all(group, &why);
    muster_group_close(group);
    take_back(member);
}

static void on_point(void *data, const char *point)
{
    const struct group_ring_member *member = data;
    uint32_t index = member->self.task_index;

    (void)point;
    if (index != scene.standing || has_closed || ++op_seats[index].passed != scene.stands_at)
        return;
    has_closed = true;
    for (unsigned round = 0; round < scene.rounds; round++)
        poll_all_but(index);
    close_member(scene.closer);
}

static bool are_boards_used(void)
{
    for (uint32_t member = 0; member < scene.op.n; member++)
        if (!muster_shm_is_used(op_ring.members[member].group))
            return false;
    return true;
}

static void open_scene(void)
{
    has_closed = false;
    group_ring_open(&op_ring, scene.op.n);
    for (unsigned turns = 0; !are_boards_used(); turns++) {
        group_ring_turn(&op_ring, 1);
        assert_true(turns < 20000);
    }
    op_scene_init(&scene.op);
    group_ring_turn(&op_ring, 2);
    for (uint32_t member = 0; member < scene.op.n; member++)
        muster_group_set_shm_failpoint(op_ring.members[member].group, on_point,
                                       &op_ring.members[member]);
}

static bool is_survivor(uint32_t member)
{
    return op_ring.members[member].group != NULL;
}

static bool has_result(uint32_t member)
{
    const struct muster_run *run = op_seats[member].op.impl;

    return run != NULL ? run->state == MUSTER_RUN_COMPLETE : op_seats[member].rc == MUSTER_OK;
}

static bool has_expired(uint32_t member)
{
    return op_ring.members[member].expired_count > 0;
}

/* It has a result, or has given up and holds its memory for nobody. */
static bool is_over(uint32_t member)
{
    return has_result(member) || (has_expired(member) && op_seats[member].done_count > 0);
}

static void await_survivors(void)
{
    for (uint32_t member = 0; member < scene.op.n; member++)
        for (unsigned turns = 0; is_survivor(member) && !is_over(member); turns++) {
            muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
            assert_true(turns < 5000);
        }
}

/* As far as they come, and to the end of those that are left behind. */
static void let_survivors_run(bool is_closer_whole)
{
    for (unsigned round = 0; round < 10; round++)
        poll_all_but(scene.op.n);
    group_ring_turn(&op_ring, 50);
    if (is_closer_whole)
        await_survivors();
}

/* Those that have given up come back by catch-up. */
static void close_expired(void)
{
    for (uint32_t member = 0; member < scene.op.n; member++)
        if (is_survivor(member) && has_expired(member)) {
            close_member(member);
            hopeless_count++;
        }
}

static bool is_anybody_whole(void)
{
    for (uint32_t member = 0; member < scene.op.n; member++)
        if (is_survivor(member) && has_result(member))
            return true;
    return false;
}

/* A member that needs the closer's memory cannot end well when another has the result: it gives up at once if the
 * closer had the result and has left it behind, else when a view without the closer says that the result stands. */
static void end_without_closer(bool is_closer_whole)
{
    for (uint32_t member = 0; member < scene.op.n; member++)
        assert_true(is_closer_whole || !has_expired(member));
    close_expired();
    if (is_anybody_whole()) {
        group_ring_change(&op_ring, UINT32_MAX);
        await_survivors();
        close_expired();
    }
}

/* All that are left end alike: with the sum of all if anybody has it, else without the closer, or ABORTED. */
static void check_survivors(void)
{
    const struct op_seat *first = NULL;
    uint32_t contributors;

    for (uint32_t member = 0; member < scene.op.n; member++) {
        const struct op_seat *seat = &op_seats[member];

        if (!is_survivor(member))
            continue;
        first = first != NULL ? first : seat;
        contributors = seat->op.result.contributor_count;
        assert_false(has_expired(member));
        assert_int_equal(seat->rc, first->rc);
        assert_int_equal(contributors, first->op.result.contributor_count);
        if (seat->rc == MUSTER_OK)
            op_scene_check_result(&scene.op, member,
                                  contributors < scene.op.n ? 1u << scene.closer : 0);
        else
            assert_int_equal(seat->rc, MUSTER_ABORTED);
        if (seat->rc != MUSTER_OK && !seat->op.result.is_torn)
            op_scene_check_input(&scene.op, member);
    }
    if (first->rc != MUSTER_OK)
        aborted_count++;
    else if (first->op.result.contributor_count == scene.op.n)
        adopted_count++;
    else
        retried_count++;
}

static bool is_anybody_left(void)
{
    bool is_left = false;

    for (uint32_t member = 0; member < scene.op.n; member++)
        is_left = is_left || is_survivor(member);
    return is_left;
}

/* Returns whether the standing member has so many stores. */
static bool play_scene(void)
{
    open_scene();
    /* The standing one comes last: it may stand while it starts. */
    for (uint32_t i = 1; i <= scene.op.n; i++)
        op_seat_start(&scene.op, (scene.standing + i) % scene.op.n);
    for (unsigned turns = 0; !has_closed && !op_scene_is_done(scene.op.n); turns++) {
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_true(turns < 20000);
    }
    if (has_closed) {
        bool is_closer_whole = op_seats[scene.closer].op.error.rc == MUSTER_OK;

        let_survivors_run(is_closer_whole);
        end_without_closer(is_closer_whole);
        if (is_anybody_left()) {
            group_ring_change(&op_ring, UINT32_MAX);
            op_scene_run(scene.op.n);
            check_survivors();
        }
    }
    op_scene_close(&scene.op);
    return has_closed;
}

static void play_all(uint32_t n, uint64_t count, bool is_staged)
{
    static const unsigned rounds[] = {0, 1, 2, 200};

    for (uint32_t pair = 0; pair < n * n; pair++)
        for (size_t r = 0; r < sizeof(rounds) / sizeof(rounds[0]); r++) {
            unsigned k = 1;

            if (pair / n == pair % n)
                continue;
            do {
                scene = (struct scene){.op = {.kind = MUSTER_OP_ALL_REDUCE,
                                              .n = n,
                                              .count = count,
                                              .is_staged = is_staged},
                                       .closer = pair / n,
                                       .standing = pair % n,
                                       .stands_at = k,
                                       .rounds = rounds[r]};
            } while (play_scene() && k++ < 1000);
            assert_true(k > 4);
        }
}

static void who_closes_amid_an_all_reduce_gives_nobody_another_result(void **state)
{
    (void)state;
    play_all(3, 5, true); /* small: through slots */
    play_all(3, 350, false);
    play_all(3, 384, true);
    play_all(4, 256, true);
    assert_true(adopted_count > 0 && retried_count > 0 && aborted_count > 0 && hopeless_count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(who_closes_amid_an_all_reduce_gives_nobody_another_result,
                                  op_scene_tear_down),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
