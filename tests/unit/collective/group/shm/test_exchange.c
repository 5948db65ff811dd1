/* Exchanges, reduce and uneven parts through boards: a member dies before and after each store that
 * others see. */
#include "exchange_scene.h"

#include <string.h>

#include "collective/group/shm.h"

#define MEMBERS_MAX 4u
#define TURNS_MAX   20000u

static struct exchange_stage stage;
static unsigned passed[MEMBERS_MAX], cut_at[MEMBERS_MAX];
static bool has_cut;
static struct exchange_tally tally;
static unsigned unasked_count;

/* The process ends: what it stores from now on reaches nobody. */
static void on_point(void *data, const char *point)
{
    struct group_ring_member *member = data;
    uint32_t index = member->self.task_index;

    (void)point;
    assert_true(sim_board_is_entered(member->board));
    if (member->is_dead || ++passed[index] != cut_at[index])
        return;
    member->is_dead = true;
    has_cut = true;
    sim_board_kill(&stage.ring.boards, &member->self.incarnation);
}

static void watch_points(void)
{
    for (uint32_t member = 0; member < stage.ring.count; member++)
        if (stage.ring.members[member].group != NULL)
            muster_group_set_shm_failpoint(stage.ring.members[member].group, on_point,
                                           &stage.ring.members[member]);
}

/* The members have agreed on boards and know each other's memory. */
static void open_scene(const struct exchange_scene *scene)
{
    bool is_settled = false;

    has_cut = false;
    memset(passed, 0, sizeof(passed));
    memset(cut_at, 0, sizeof(cut_at));
    exchange_stage_open(&stage, scene);
    for (unsigned turns = 0; !is_settled; turns++) {
        group_ring_turn(&stage.ring, 1);
        is_settled = true;
        for (uint32_t member = 0; member < scene->n; member++)
            is_settled = is_settled && muster_shm_is_used(stage.ring.members[member].group);
        assert_true(turns < TURNS_MAX);
    }
    group_ring_turn(&stage.ring, 2);
    watch_points();
}

static void run_to_cut(void)
{
    for (unsigned turns = 0; !has_cut && !exchange_stage_is_done(&stage); turns++) {
        muster_loop_turn(stage.ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_true(turns < TURNS_MAX);
    }
}

static void change_without(uint32_t victim)
{
    group_ring_kill(&stage.ring, victim);
    group_ring_change(&stage.ring, UINT32_MAX);
    watch_points();
    group_ring_turn(&stage.ring, 2);
}

/* The survivors' next operation works, through boards again when there are two. */
static void check_next(void)
{
    for (uint32_t member = 0; member < stage.scene.n; member++) {
        struct exchange_seat *seat = &stage.seats[member];
        struct muster_group *group = stage.ring.members[member].group;
        uint32_t root;

        if (!group_ring_is_living(&stage.ring, member))
            continue;
        root = muster_group_size(group) - 1;
        exchange_stage_set_seat(
            &stage,
            &(struct exchange_scene){
                .kind = MUSTER_OP_REDUCE, .n = stage.scene.n, .count = 300, .dtype = MUSTER_I32},
            member);
        assert_int_equal(muster_reduce_start(&seat->op, group,
                                             &(struct muster_tensor){seat->input, 300, MUSTER_I32},
                                             MUSTER_MAX, root, exchange_stage_done),
                         MUSTER_OK);
    }
    exchange_stage_run(&stage);
    for (uint32_t member = 0; member < stage.scene.n; member++)
        if (group_ring_is_living(&stage.ring, member))
            assert_int_equal(stage.seats[member].rc, MUSTER_OK);
}

enum pace {
    PACE_AT_ONCE, /* the view changes before the survivors have looked */
    PACE_LATE,    /* … when they have got as far as they can */
    PACE_COUNT,
};

/* Returns whether the k-th point exists. */
static bool play_scene(const struct exchange_scene *scene, uint32_t victim, unsigned k,
                       enum pace pace)
{
    bool was_cut;

    open_scene(scene);
    cut_at[victim] = k;
    exchange_stage_start_all(&stage);
    run_to_cut();
    was_cut = has_cut;
    if (was_cut) {
        if (pace == PACE_LATE) {
            group_ring_turn(&stage.ring, 300);
            unasked_count += exchange_stage_is_done(&stage);
        }
        change_without(victim);
        exchange_stage_change_when_proposed(&stage);
        exchange_stage_run(&stage);
        exchange_stage_check_survivors(&stage, victim, &tally);
        check_next();
    }
    exchange_stage_close(&stage);
    return was_cut;
}

static void play_all(struct exchange_scene scene)
{
    scene.dtype = MUSTER_I32;
    for (scene.n = 2; scene.n <= MEMBERS_MAX; scene.n++)
        for (uint32_t victim = 0; victim < scene.n; victim++) {
            unsigned points = 0;

            scene.root = scene.n / 2;
            for (enum pace pace = 0; pace < PACE_COUNT; pace++)
                for (unsigned k = 1; play_scene(&scene, victim, k, pace); k++)
                    points++;
            assert_true(points >= 8);
        }
}

/* Where it is, copied to mapped memory, in slots. */
static void play_sizes(enum muster_op_kind kind)
{
    tally = (struct exchange_tally){.adopted = 0};
    unasked_count = 0;
    play_all((struct exchange_scene){.kind = kind, .count = 150, .is_mapped = true});
    play_all((struct exchange_scene){.kind = kind, .count = 150});
    play_all((struct exchange_scene){.kind = kind, .count = 2});
    assert_true(tally.adopted > 0 && unasked_count > 0);
}

static void reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_sizes(MUSTER_OP_REDUCE);
    assert_true(tally.retried > 0 && tally.aborted > 0); /* without its root it is nobody's */
}

static void exchanges_are_whole_or_aborted_on_all(void **state)
{
    static const enum muster_op_kind kinds[] = {MUSTER_OP_GATHER, MUSTER_OP_SCATTER,
                                                MUSTER_OP_ALL_TO_ALL, MUSTER_OP_ALL_TO_ALL_UNEVEN,
                                                MUSTER_OP_PERMUTE};

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        play_sizes(kinds[i]);
        assert_true(tally.aborted > 0);
        assert_int_equal(tally.retried, 0);
    }
}

static void uneven_parts_are_whole_or_aborted_on_all(void **state)
{
    static const enum muster_op_kind kinds[] = {MUSTER_OP_ALL_GATHER_UNEVEN,
                                                MUSTER_OP_REDUCE_SCATTER_UNEVEN};

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        play_sizes(kinds[i]);
        assert_true(tally.aborted > 0);
        assert_int_equal(tally.retried, 0);
    }
}

/* --- What the program is told --- */

static void run_scene(const struct exchange_scene *scene)
{
    exchange_stage_set(&stage, scene);
    group_ring_turn(&stage.ring, 2);
    exchange_stage_start_all(&stage);
    exchange_stage_run(&stage);
}

static void the_result_says_how_inputs_were_shown(void **state)
{
    struct exchange_scene scene = {
        .kind = MUSTER_OP_GATHER, .n = 3, .count = 150, .dtype = MUSTER_I32, .is_mapped = true};

    (void)state;
    open_scene(&scene);
    run_scene(&scene);
    assert_string_equal(stage.seats[1].op.result.wire, "shm");
    assert_string_equal(stage.seats[1].op.result.input, "mapped");
    assert_string_equal(stage.seats[0].op.result.input, "none"); /* the root */
    scene.is_mapped = false;
    run_scene(&scene);
    assert_string_equal(stage.seats[1].op.result.input, "staged");
    scene.count = 2;
    run_scene(&scene);
    assert_string_equal(stage.seats[1].op.result.input, "slot");
}

/* Large ones read the giver's memory; who has given it away would see it change. */
static void givers_wait_until_all_have_their_parts(void **state)
{
    struct exchange_scene scene = {.kind = MUSTER_OP_SCATTER,
                                   .n = 2,
                                   .count = 150,
                                   .root = 0,
                                   .dtype = MUSTER_I32,
                                   .is_mapped = true};

    (void)state;
    open_scene(&scene);
    exchange_stage_start(&stage, 0);
    group_ring_turn(&stage.ring, 20);
    assert_int_equal(stage.seats[0].done_count, 0);
    exchange_stage_start(&stage, 1);
    exchange_stage_run(&stage);
    exchange_stage_check_output(&stage, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reduce_has_one_outcome_wherever_a_member_dies),
        cmocka_unit_test(exchanges_are_whole_or_aborted_on_all),
        cmocka_unit_test(uneven_parts_are_whole_or_aborted_on_all),
        EXCHANGE_CASE(the_result_says_how_inputs_were_shown),
        EXCHANGE_CASE(givers_wait_until_all_have_their_parts),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
