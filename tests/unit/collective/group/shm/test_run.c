/* Operations through boards: a member dies before and after each store that others see. */
#include "op_scene.h"

#include <string.h>

#include "collective/group/shm/shm_internal.h"

static bool has_cut;
static unsigned next_operations = 1;
static unsigned unasked_count;

static struct muster_run *only_run(uint32_t member)
{
    struct muster_list *runs = &op_ring.members[member].group->lanes[0].runs;

    assert_false(muster_list_is_empty(runs));
    return MUSTER_CONTAINER_OF(runs->next, struct muster_run, node);
}

static void work_as_far_as_it_can(uint32_t member)
{
    struct muster_list *runs = &op_ring.members[member].group->lanes[0].runs;

    for (struct muster_list *node = runs->next; node != runs; node = node->next) {
        struct muster_run *run = MUSTER_CONTAINER_OF(node, struct muster_run, node);

        if (muster_run_is_shared(run) && run->state == MUSTER_RUN_ACTIVE)
            (void)muster_shm_step(run);
    }
}

/* The process does not run for a while, the others do. */
static void stand_still(uint32_t index)
{
    for (unsigned turns = 0; turns < 400; turns++)
        for (uint32_t member = 0; member < op_ring.count; member++)
            if (member != index && group_ring_is_living(&op_ring, member))
                work_as_far_as_it_can(member);
}

/* The process ends: what it stores from now on reaches nobody. */
static void on_point(void *data, const char *point)
{
    struct group_ring_member *member = data;
    uint32_t index = member->self.task_index;

    (void)point;
    assert_true(sim_board_is_entered(member->board));
    if (member->is_dead)
        return;
    op_seats[index].passed++;
    if (op_seats[index].passed == op_seats[index].stand_at)
        stand_still(index);
    if (op_seats[index].passed != op_seats[index].cut_at)
        return;
    member->is_dead = true;
    has_cut = true;
    sim_board_kill(&op_ring.boards, &member->self.incarnation);
}

static void run_to_cut(uint32_t n)
{
    for (unsigned turns = 0; !has_cut && !op_scene_is_done(n); turns++) {
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > 20000)
            fail_msg("the operation hangs");
    }
}

/* --- Scenes --- */

static void watch_points(void)
{
    for (uint32_t member = 0; member < op_ring.count; member++)
        if (op_ring.members[member].group != NULL)
            muster_group_set_shm_failpoint(op_ring.members[member].group, on_point,
                                           &op_ring.members[member]);
}

/* The members have agreed on boards and know each other's tensors. */
static void open_scene(const struct op_scene *scene)
{
    bool is_settled = false;

    has_cut = false;
    group_ring_open(&op_ring, scene->n);
    for (unsigned turns = 0; !is_settled; turns++) {
        group_ring_turn(&op_ring, 1);
        is_settled = true;
        for (uint32_t member = 0; member < scene->n; member++)
            is_settled = is_settled && muster_shm_is_used(op_ring.members[member].group);
        assert_true(turns < 20000);
    }
    op_scene_init(scene);
    group_ring_turn(&op_ring, 2);
    watch_points();
}

static void change_without(uint32_t victim)
{
    group_ring_kill(&op_ring, victim);
    group_ring_change(&op_ring, UINT32_MAX);
    watch_points();
    group_ring_turn(&op_ring, 2);
}

enum pace {
    PACE_AT_ONCE, /* the view changes before the survivors have looked */
    PACE_LATE,    /* … when they have got as far as they can */
    PACE_COUNT,
};

static void let_survivors_run(const struct op_scene *scene, enum pace pace)
{
    if (pace == PACE_AT_ONCE)
        return;
    group_ring_turn(&op_ring, 300);
    unasked_count += op_scene_is_done(scene->n);
}

/* Returns whether the k-th point exists. */
static bool play_scene(const struct op_scene *scene, uint32_t victim, unsigned k, enum pace pace)
{
    bool was_cut;

    open_scene(scene);
    op_seats[victim].cut_at = k;
    op_scene_start(scene);
    run_to_cut(scene->n);
    was_cut = has_cut;
    if (was_cut) {
        let_survivors_run(scene, pace);
        change_without(victim);
        op_scene_change_when_proposed(scene->n);
        op_scene_run(scene->n);
        op_scene_check_survivors(scene, &victim, 1);
        for (unsigned i = 0; i < next_operations; i++)
            op_scene_check_next(scene, 300, 1u << victim);
    }
    op_scene_close(scene);
    return was_cut;
}

static void play_all(struct op_scene scene)
{
    for (uint32_t victim = 0; victim < scene.n; victim++) {
        unsigned points = 0;

        for (enum pace pace = 0; pace < PACE_COUNT; pace++)
            for (unsigned k = 1; play_scene(&scene, victim, k, pace); k++)
                points++;
        assert_true(points >= 8);
    }
}

static int reset_counts(void **state)
{
    (void)state;
    op_tally = (struct op_tally){.adopted = 0};
    unasked_count = 0;
    return 0;
}

static void small_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 5, 0, true});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 5, 0, true});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0 && unasked_count > 0);
    assert_int_equal(op_tally.aborted, 0);
}

static void all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 350, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 500, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 500, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0 && unasked_count > 0);
    assert_int_equal(op_tally.aborted, 0);
}

/* The heir of a chunk has another number in the next view. */
static void all_places_on_the_board_are_used_again_after_a_death(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 500, 0, false};
    (void)state;

    next_operations = 17;
    for (unsigned k = 1; play_scene(&scene, 1, k, PACE_LATE); k++)
        ;
    next_operations = 1;
    assert_true(op_tally.adopted > 0);
}

static void staged_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 300, 0, true});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0 && unasked_count > 0);
}

/* Elements of 40 pieces: for several looks of each member, also when the first finds no staging mapped. */
#define LOOKS_COUNT 2560

/* Two members sum copies; a tensor changes before all have announced the operation. */
static void staged_all_reduce_of_two_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, LOOKS_COUNT, 0, true});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 2, 350, 0, true});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0 && unasked_count > 0);
    assert_int_equal(op_tally.aborted, 0);
}

static void reduce_scatter_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_SUM, 3, 150, 0, false});
    play_all((struct op_scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_MEAN, 3, 3, 0, true});
    assert_true(op_tally.adopted > 0 && op_tally.aborted > 0 && unasked_count > 0);
    assert_int_equal(op_tally.retried, 0);
}

static void all_gather_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 150, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 3, 0, true});
    assert_true(op_tally.adopted > 0 && op_tally.aborted > 0 && unasked_count > 0);
    assert_int_equal(op_tally.retried, 0);
}

static void broadcast_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 200, 1, false});
    play_all((struct op_scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 5, 2, true});
    assert_true(op_tally.adopted > 0 && op_tally.aborted > 0 && op_tally.retried > 0);
}

static void barrier_ends_for_all_survivors(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_BARRIER, MUSTER_SUM, 3, 0, 0, true});
    assert_int_equal(op_tally.aborted, 0);
}

/* --- Two deaths --- */

/* The second while the survivors finish what the first has left, before any change of view or in
 * the next epoch. Returns whether the second victim still had a k-th point. */
static bool play_twice(const struct op_scene *scene, const uint32_t victims[2], const unsigned k[2],
                       enum pace pace)
{
    bool was_cut;

    open_scene(scene);
    op_seats[victims[0]].cut_at = k[0];
    op_scene_start(scene);
    run_to_cut(scene->n);
    assert_true(has_cut);
    has_cut = false;
    op_seats[victims[1]].cut_at = op_seats[victims[1]].passed + k[1];
    if (pace == PACE_AT_ONCE)
        change_without(victims[0]);
    for (unsigned turns = 0; turns < 300 && !has_cut; turns++)
        group_ring_turn(&op_ring, 1);
    was_cut = has_cut;
    if (was_cut) {
        if (pace == PACE_LATE)
            group_ring_kill(&op_ring, victims[0]);
        change_without(victims[1]);
        op_scene_run(scene->n);
        op_scene_check_survivors(scene, victims, 2);
        op_scene_check_next(scene, 300, 1u << victims[0] | 1u << victims[1]);
    }
    op_seats[victims[1]].cut_at = 0;
    op_scene_close(scene);
    return was_cut;
}

static unsigned count_points(const struct op_scene *scene, uint32_t victim)
{
    unsigned k = 1;

    while (play_scene(scene, victim, k, PACE_AT_ONCE))
        k++;
    return k - 1;
}

static void play_all_twice(struct op_scene scene, unsigned stride)
{
    for (uint32_t first = 0; first < scene.n; first++)
        for (uint32_t second = 0; second < scene.n; second++) {
            unsigned points = first == second ? 0 : count_points(&scene, first);

            for (unsigned k = 1; k <= points; k += stride)
                for (enum pace pace = 0; pace < PACE_COUNT; pace++)
                    for (unsigned l = 1;
                         play_twice(&scene, (uint32_t[]){first, second}, (unsigned[]){k, l}, pace);
                         l += stride)
                        ;
        }
}

static void the_heir_of_the_dead_may_die_too(void **state)
{
    (void)state;
    play_all_twice((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 300, 0, false}, 2);
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0);
    assert_int_equal(op_tally.aborted, 0);
}

/* --- Several heirs --- */

/* Bytes that the survivors have summed. */
static uint64_t summed_bytes(uint32_t member)
{
    return op_seats[member].op.result.sent_bytes;
}

static void all_survivors_sum_what_the_dead_has_left(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 4096, 0, false};
    const uint32_t victim = 1;
    uint64_t bytes = scene.count * sizeof(int32_t), share = bytes / scene.n, all = 0;

    (void)state;
    open_scene(&scene);
    op_seats[victim].cut_at = 7; /* it has published a chunk or two */
    op_scene_start(&scene);
    run_to_cut(scene.n);
    let_survivors_run(&scene, PACE_LATE);

    assert_int_equal(unasked_count, 1);
    for (uint32_t member = 0; member < scene.n; member++)
        if (member != victim) {
            assert_true(summed_bytes(member) >= share + share / scene.n);
            all += summed_bytes(member);
        }
    assert_in_range(all, bytes - share / 2, bytes); /* nothing twice */
    change_without(victim);
    op_scene_check_survivors(&scene, &victim, 1);
    op_scene_close(&scene);
}

/* So a change of view may wait for it. */
static void what_all_have_announced_ends_by_itself(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 500, 0, false};
    const uint32_t victim = 2;
    unsigned passed;

    (void)state;
    open_scene(&scene);
    assert_false(muster_group_is_finishing(op_ring.members[0].group));
    op_seat_start(&scene, 0);
    op_seat_start(&scene, 1);
    group_ring_turn(&op_ring, 20);
    assert_false(muster_group_is_finishing(op_ring.members[0].group));

    passed = op_seats[0].passed;
    op_seats[victim].cut_at = 12;
    op_seat_start(&scene, victim);
    run_to_cut(scene.n);
    assert_true(has_cut);
    for (unsigned turns = 0; turns < 100 && op_seats[0].passed == passed; turns++)
        group_ring_turn(&op_ring, 1);
    assert_true(muster_group_is_finishing(op_ring.members[0].group));
    let_survivors_run(&scene, PACE_LATE);

    assert_int_equal(unasked_count, 1);
    assert_false(muster_group_is_finishing(op_ring.members[0].group));
    change_without(victim);
    op_scene_close(&scene);
}

/* The k-th store after the death of another is followed by a pause. Returns whether it came. */
static bool play_with_a_pause(const struct op_scene *scene, uint32_t victim, unsigned cut_at,
                              uint32_t slow, unsigned k)
{
    bool has_stood;

    open_scene(scene);
    op_seats[victim].cut_at = cut_at;
    op_scene_start(scene);
    run_to_cut(scene->n);
    assert_true(has_cut);
    op_seats[slow].stand_at = op_seats[slow].passed + k;
    let_survivors_run(scene, PACE_LATE);
    has_stood = op_seats[slow].passed >= op_seats[slow].stand_at;
    change_without(victim);
    op_scene_run(scene->n);
    op_scene_check_survivors(scene, &victim, 1);
    op_scene_close(scene);
    return has_stood;
}

static void an_heir_may_be_kept_from_running_anywhere(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 500, 0, false};
    const uint32_t victim = 1;
    unsigned points = count_points(&scene, victim), pauses = 0;

    (void)state;
    for (unsigned cut_at = 1; cut_at <= points; cut_at += 3)
        for (uint32_t slow = 0; slow < scene.n; slow++)
            for (unsigned k = 1;
                 slow != victim && play_with_a_pause(&scene, victim, cut_at, slow, k); k++)
                pauses++;
    assert_true(pauses > 100 && op_tally.adopted > 0);
    assert_int_equal(op_tally.aborted, 0);
}

/* Returns whether the k-th store exists. */
static bool play_pause_alone(const struct op_scene *scene, uint32_t slow, unsigned k)
{
    bool has_stood;

    open_scene(scene);
    op_seats[slow].stand_at = k;
    op_scene_start(scene);
    op_scene_run(scene->n);
    has_stood = op_seats[slow].passed >= k;
    for (uint32_t member = 0; member < scene->n; member++)
        op_scene_check_result(scene, member, 0);
    op_scene_close(scene);
    return has_stood;
}

static void a_member_that_copies_may_be_kept_from_running_anywhere(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, LOOKS_COUNT, 0, true};
    unsigned pauses = 0;

    (void)state;
    for (uint32_t slow = 0; slow < scene.n; slow++)
        for (unsigned k = 1; play_pause_alone(&scene, slow, k); k++)
            pauses++;
    assert_true(pauses > 100);
}

/* --- Heirs beside each other --- */

static unsigned take_count, same_count;

/* The chunk that it has taken last, and 1 more; 0: none. */
static uint32_t taken_by(uint32_t member)
{
    struct muster_list *runs = &op_ring.members[member].group->lanes[0].runs;

    return muster_list_is_empty(runs)
               ? 0
               : muster_shm_of(only_run(member))->entry->taken;
}

/* An heir that has taken a chunk stands still while the others look for one. */
static void on_taken(void *data, const char *point)
{
    const struct group_ring_member *heir = data;
    uint32_t index = heir->self.task_index;
    static bool is_looking;

    on_point(data, point);
    if (strcmp(point, "taken") != 0 || is_looking)
        return;
    is_looking = true;
    take_count++;
    for (uint32_t member = 0; member < op_ring.count; member++)
        if (member != index && group_ring_is_living(&op_ring, member)) {
            work_as_far_as_it_can(member);
            same_count += taken_by(member) == taken_by(index);
        }
    is_looking = false;
}

/* The first heir that has taken a chunk stands still until another one has summed it. */
static void on_first_taken(void *data, const char *point)
{
    const struct group_ring_member *heir = data;
    uint32_t index = heir->self.task_index;
    const struct muster_run *run = strcmp(point, "taken") == 0 ? only_run(index) : NULL;

    on_point(data, point);
    if (run == NULL || take_count++ > 0)
        return;
    stand_still(index);
    assert_true(muster_shm_find_taken_over(run, taken_by(index) - 1) < op_ring.count);
}

/* The dead has published a chunk or two. */
static void play_heirs(muster_shm_point_fn *point)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 4096, 0, false};
    const uint32_t victim = 1;

    take_count = same_count = 0;
    open_scene(&scene);
    for (uint32_t member = 0; member < scene.n; member++)
        muster_group_set_shm_failpoint(op_ring.members[member].group, point,
                                       &op_ring.members[member]);
    op_seats[victim].cut_at = 7;
    op_scene_start(&scene);
    run_to_cut(scene.n);
    let_survivors_run(&scene, PACE_LATE);

    assert_true(take_count > 1);
    change_without(victim);
    op_scene_check_survivors(&scene, &victim, 1);
    op_scene_close(&scene);
}

static void heirs_take_chunks_that_no_other_has_taken(void **state)
{
    (void)state;
    play_heirs(on_taken);
    assert_int_equal(same_count, 0);
}

static void a_chunk_that_an_heir_has_taken_does_not_wait_for_it(void **state)
{
    (void)state;
    play_heirs(on_first_taken);
}

static void a_death_is_told_while_an_operation_waits(void **state)
{
    const struct op_scene scene = {
        .kind = MUSTER_OP_ALL_REDUCE, .reduction = MUSTER_SUM, .n = 3, .count = 100};
    (void)state;

    group_ring_open(&op_ring, scene.n);
    op_scene_init(&scene);
    group_ring_turn(&op_ring, 50);
    op_seat_start(&scene, 0);
    op_seat_start(&scene, 1);
    group_ring_turn(&op_ring, 200);
    assert_int_equal(op_ring.members[0].death_count, 0);
    sim_board_kill(&op_ring.boards, &op_ring.members[2].self.incarnation); /* its links are whole */
    op_ring.members[2].is_dead = true;
    group_ring_turn(&op_ring, 200);

    assert_int_equal(op_ring.members[0].death_count, 1);
    assert_int_equal(op_ring.members[1].death_count, 1);
    group_ring_change(&op_ring, UINT32_MAX);
    for (int i = 0; i < 1000 && op_seats[0].done_count + op_seats[1].done_count < 2; i++)
        group_ring_turn(&op_ring, 1);
    assert_int_equal(op_seats[0].rc, MUSTER_OK);
    op_scene_close(&scene);
}

/* Notes of an heir for the chunks of the dead must not mislead the next operation there. */
static void places_on_a_board_are_as_new_when_they_are_used_again(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 500, 0, false};
    const uint32_t victim = 1;

    (void)state;
    open_scene(&scene);
    op_seats[victim].cut_at = 16;
    op_scene_start(&scene);
    run_to_cut(scene.n);
    let_survivors_run(&scene, PACE_LATE);
    assert_int_equal(unasked_count, 1);
    change_without(victim);
    for (unsigned i = 0; i < 40; i++)
        op_scene_check_next(&scene, 300, 1u << victim);
    op_scene_close(&scene);
}

static uint64_t shown_key(uint32_t member, const struct muster_op *op)
{
    const struct muster_shm_board *board =
        (const struct muster_shm_board *)(const void *)op_ring.members[member].board->memory;

    return board->entries[0][muster_shm_entry_index(&op->id)].ready;
}

/* The caller may write its memory again: nobody must read it as an input. */
static void an_operation_without_a_result_takes_its_announcement_back(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 500, 0, false};

    (void)state;
    open_scene(&scene);
    op_seat_start(&scene, 0);
    assert_int_not_equal(shown_key(0, &op_seats[0].op), 0);
    muster_op_cancel(&op_seats[0].op);
    group_ring_change(&op_ring, UINT32_MAX);
    group_ring_turn(&op_ring, 2);

    assert_int_equal(op_seats[0].rc, MUSTER_CANCELLED);
    assert_int_equal(shown_key(0, &op_seats[0].op), 0);
    op_scene_close(&scene);
}

/* An operation of its group may wait for the slot that the delivery gives back. */
static void a_turn_that_only_delivers_has_moved_something(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 8, 0, false};
    struct muster_group *group;

    (void)state;
    open_scene(&scene);
    op_scene_start(&scene);
    for (unsigned turns = 0; turns < 20; turns++)
        for (uint32_t member = 0; member < 2; member++)
            (void)muster_shm_step(only_run(member));
    group = op_ring.members[0].group;
    assert_int_equal(only_run(0)->state, MUSTER_RUN_COMPLETE);
    assert_false(muster_shm_step(only_run(0)));
    group->shm->is_short = true;

    assert_true(group->shm_poller.on_poll(&group->shm_poller));
    assert_false(group->shm->is_short);
    op_scene_run(2);
    op_scene_check_result(&scene, 0, 0);
    op_scene_close(&scene);
}

/* It must not wait for room that never comes. */
static void an_operation_that_finds_no_memory_is_to_be_aborted(void **state)
{
    const struct op_scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 5, 0, true};
    unsigned aborted = 0;
    bool has_refused = true;

    (void)state;
    for (uint64_t fail_at = 1; has_refused; fail_at++) {
        enum muster_rc rc;

        open_scene(&scene);
        op_ring.test.mem.fail_at = fail_at;
        rc = op_seat_try_start(&scene, 0, op_seat_done);
        has_refused = op_ring.test.mem.fail_at == 0;
        op_ring.test.mem.fail_at = 0;
        assert_true(rc == MUSTER_OK || (has_refused && rc == MUSTER_RESOURCE_EXHAUSTED));
        if (rc == MUSTER_OK && has_refused) {
            assert_int_equal(op_ring.members[0].abort_count, 1);
            assert_int_equal(op_ring.members[0].abort_why, MUSTER_RESOURCE_EXHAUSTED);
            aborted++;
        }
        if (rc == MUSTER_OK)
            muster_op_cancel(&op_seats[0].op);
        group_ring_change(&op_ring, UINT32_MAX);
        group_ring_turn(&op_ring, 2);
        op_scene_close(&scene);
    }
    assert_true(aborted > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_that_only_delivers_has_moved_something),
        cmocka_unit_test(a_death_is_told_while_an_operation_waits),
        cmocka_unit_test_setup(small_all_reduce_has_one_outcome_wherever_a_member_dies,
                               reset_counts),
        cmocka_unit_test_setup(all_reduce_has_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(all_places_on_the_board_are_used_again_after_a_death, reset_counts),
        cmocka_unit_test_setup(staged_all_reduce_has_one_outcome_wherever_a_member_dies,
                               reset_counts),
        cmocka_unit_test_setup(staged_all_reduce_of_two_has_one_outcome_wherever_a_member_dies,
                               reset_counts),
        cmocka_unit_test_setup(reduce_scatter_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(all_gather_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(broadcast_has_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(barrier_ends_for_all_survivors, reset_counts),
        cmocka_unit_test_setup(the_heir_of_the_dead_may_die_too, reset_counts),
        cmocka_unit_test_setup(all_survivors_sum_what_the_dead_has_left, reset_counts),
        cmocka_unit_test_setup(heirs_take_chunks_that_no_other_has_taken, reset_counts),
        cmocka_unit_test_setup(a_chunk_that_an_heir_has_taken_does_not_wait_for_it, reset_counts),
        cmocka_unit_test_setup(what_all_have_announced_ends_by_itself, reset_counts),
        cmocka_unit_test_setup(an_heir_may_be_kept_from_running_anywhere, reset_counts),
        cmocka_unit_test_setup(a_member_that_copies_may_be_kept_from_running_anywhere,
                               reset_counts),
        cmocka_unit_test_setup(an_operation_without_a_result_takes_its_announcement_back,
                               reset_counts),
        cmocka_unit_test(an_operation_that_finds_no_memory_is_to_be_aborted),
        cmocka_unit_test_setup(places_on_a_board_are_as_new_when_they_are_used_again, reset_counts),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
