/* A member dies at every point of an operation: the survivors come to one outcome, byte for byte.
 */
#include "op_scene.h"

#include "collective/group/group_internal.h"

#include <string.h>

/* Not over before the operation begins, on a busy machine either. */
#define SOON_NS (50 * MUSTER_NS_PER_MS)

static unsigned pieced_count;
static bool is_stopped_at_cut; /* the survivors, at once; else they get as far as they can */
static struct muster_plan_parameters parameters; /* zeros: the ring's own */
static uint32_t per_host;

/* Run until the failpoint has struck, or everybody is done. */
static void run_to_cut(uint32_t n)
{
    for (unsigned turns = 0; !op_ring.has_cut && !op_scene_is_done(n); turns++) {
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > 3000)
            fail_msg("the operation hangs");
    }
    if (op_ring.has_cut && !op_ring.is_stopped_at_cut)
        group_ring_turn(&op_ring, 12);
}

/* --- Scenes --- */

static void open_scene(const struct op_scene *scene)
{
    if (parameters.forced == MUSTER_ALGORITHM_AUTO)
        group_ring_open(&op_ring, scene->n);
    else
        group_ring_open_hosts(&op_ring, scene->n, &parameters, per_host);
    op_ring.is_stopped_at_cut = is_stopped_at_cut;
    op_scene_init(scene);
}

/* Returns whether the k-th point exists. */
static bool play_scene(const struct op_scene *scene, uint32_t victim, unsigned k)
{
    bool has_cut;

    open_scene(scene);
    op_ring.members[victim].cut_at = k;
    op_scene_start(scene);
    run_to_cut(scene->n);
    has_cut = op_ring.has_cut;
    if (has_cut) {
        group_ring_kill(&op_ring, victim);
        group_ring_change(&op_ring, UINT32_MAX);
        group_ring_turn(&op_ring, 2); /* the victim's callback */
        op_scene_change_when_proposed(scene->n);
        op_scene_run(scene->n);
        op_scene_check_survivors(scene, &victim, 1);
        op_scene_check_next(scene, 150, 1u << victim);
    }
    pieced_count += op_ring.pieced_count;
    op_scene_close(scene);
    return has_cut;
}

/* Every point of every victim, with the survivors stopped at once or after they got as far as they
 * can. */
static void play_all(struct op_scene scene)
{
    unsigned points = 0;

    for (uint32_t victim = 0; victim < scene.n; victim++)
        for (unsigned k = 1;; k++) {
            bool has_cut;

            is_stopped_at_cut = (k & 1) != 0;
            has_cut = play_scene(&scene, victim, k);
            is_stopped_at_cut = !is_stopped_at_cut;
            if (!has_cut || !play_scene(&scene, victim, k))
                break;
            points++;
        }
    is_stopped_at_cut = false;
    assert_true(points >= scene.n);
}

static int reset_counts(void **state)
{
    (void)state;
    op_tally = (struct op_tally){.adopted = 0};
    pieced_count = 0;
    memset(&parameters, 0, sizeof(parameters));
    return 0;
}

static void ring_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 150, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 250, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0 && pieced_count > 0);
    assert_int_equal(op_tally.aborted, 0);
}

static void direct_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 5, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 5, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0);
    assert_int_equal(op_tally.aborted, 0);
}

/* Small chunks give small messages; with large ones, senders wait until their receiver has started. */
static void force_algorithm(enum muster_algorithm algorithm, uint32_t chunk_bytes,
                            uint32_t members_per_host)
{
    parameters = (struct muster_plan_parameters){
        .chunk_bytes = chunk_bytes, .direct_max_bytes = 1, .forced = algorithm};
    per_host = members_per_host;
}

static void halving_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force_algorithm(MUSTER_ALGORITHM_HALVING, 64, 0);
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 50, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 5, 90, 0, false});
    force_algorithm(MUSTER_ALGORITHM_HALVING, 16 << 10, 0);
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 17000, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0);
    assert_int_equal(op_tally.aborted, 0);
}

static void double_tree_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force_algorithm(MUSTER_ALGORITHM_DOUBLE_TREE, 128, 0);
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 100, 0, false});
    play_all((struct op_scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 4, 100, 2, false});
    force_algorithm(MUSTER_ALGORITHM_DOUBLE_TREE, 32 << 10, 0);
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 17000, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0 && op_tally.aborted > 0);
}

static void blocks_have_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force_algorithm(MUSTER_ALGORITHM_BLOCKS, 64, 0);
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 90, 0, false});
    force_algorithm(MUSTER_ALGORITHM_BLOCKS, 16 << 10, 0);
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 17000, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0);
    assert_int_equal(op_tally.aborted, 0);
    force_algorithm(MUSTER_ALGORITHM_BLOCKS, 256, 0);
    play_all((struct op_scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 100, 0, false});
    play_all((struct op_scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_SUM, 3, 100, 0, false});
    assert_true(op_tally.aborted > 0);
}

static void two_levels_have_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force_algorithm(MUSTER_ALGORITHM_TWO_LEVEL, 64, 2);
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 5, 60, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 60, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0);
    assert_int_equal(op_tally.aborted, 0);
}

static void broadcast_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 200, 1, false});
    play_all((struct op_scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 5, 2, false});
    assert_true(op_tally.adopted > 0 && op_tally.aborted > 0);
}

static void all_gather_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 100, 0, false});
    play_all((struct op_scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 3, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.aborted > 0);
    assert_int_equal(op_tally.retried, 0);
}

static void reduce_scatter_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_SUM, 3, 100, 0, false});
    play_all((struct op_scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_MEAN, 3, 3, 0, false});
    assert_true(op_tally.adopted > 0 && op_tally.aborted > 0);
    assert_int_equal(op_tally.retried, 0);
}

static void barrier_ends_for_all_survivors(void **state)
{
    (void)state;
    play_all((struct op_scene){MUSTER_OP_BARRIER, MUSTER_SUM, 3, 0, 0, false});
    assert_int_equal(op_tally.aborted, 0);
}

/* --- Two deaths: the second in the middle of the repair --- */

static void change_without(uint32_t victim)
{
    group_ring_kill(&op_ring, victim);
    group_ring_change(&op_ring, UINT32_MAX);
    group_ring_turn(&op_ring, 2);
}

/* Returns whether the second victim still had a k-th point after the first change. */
static bool play_twice(const struct op_scene *scene, const uint32_t victims[2], unsigned first_k,
                       unsigned second_k)
{
    bool has_cut_twice;

    open_scene(scene);
    op_ring.members[victims[0]].cut_at = first_k;
    op_scene_start(scene);
    run_to_cut(scene->n);
    assert_true(op_ring.has_cut);
    op_ring.has_cut = false;
    op_ring.members[victims[1]].cut_at = op_ring.members[victims[1]].passed + second_k;
    change_without(victims[0]);
    run_to_cut(scene->n);
    has_cut_twice = op_ring.has_cut;
    if (has_cut_twice) {
        change_without(victims[1]);
        op_scene_run(scene->n);
        op_scene_check_survivors(scene, victims, 2);
        op_scene_check_next(scene, 150, 1u << victims[0] | 1u << victims[1]);
    }
    op_scene_close(scene);
    return has_cut_twice;
}

static void play_all_twice(struct op_scene scene, unsigned first_k_step)
{
    static const uint32_t pairs[][2] = {{0, 1}, {1, 0}, {2, 3}, {3, 0}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        for (unsigned first_k = 1; first_k < 1 + 5 * first_k_step; first_k += first_k_step)
            for (unsigned second_k = 1;; second_k += 3) {
                is_stopped_at_cut = (second_k & 2) != 0;
                if (!play_twice(&scene, pairs[i], first_k, second_k))
                    break;
            }
    is_stopped_at_cut = false;
}

static void a_second_death_during_the_repair_leaves_one_outcome(void **state)
{
    (void)state;
    force_algorithm(MUSTER_ALGORITHM_RING, 256, 0);
    play_all_twice((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 260, 0, false}, 5);
    parameters = (struct muster_plan_parameters){.forced = MUSTER_ALGORITHM_AUTO};
    play_all_twice((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 5, 0, false}, 1);
    force_algorithm(MUSTER_ALGORITHM_HALVING, 64, 0);
    play_all_twice((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 130, 0, false}, 3);
    force_algorithm(MUSTER_ALGORITHM_DOUBLE_TREE, 128, 0);
    play_all_twice((struct op_scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 300, 0, false}, 3);
    assert_true(op_tally.adopted > 0 && op_tally.retried > 0);
}

/* --- Joining, waiting, giving up --- */

static const struct op_scene small_scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 150, 0, false};

/* An operation that is open when a member joins goes on without the joiner; the next step has it.
 */
static void a_joiner_takes_part_from_its_step_on(void **state)
{
    struct op_scene scene = small_scene;
    uint32_t joiner;

    (void)state;
    scene.n = 2;
    open_scene(&scene);
    for (uint32_t member = 0; member < 2; member++)
        muster_group_begin_step(op_ring.members[member].group, 1);
    op_seat_start(&scene, 0);
    group_ring_turn(&op_ring, 20);
    joiner = group_ring_add(&op_ring);
    group_ring_change(&op_ring, joiner);
    assert_int_equal(op_ring.view->members[2].from_step, 2);
    op_seat_start(&scene, 1);
    for (unsigned i = 0; i < 200 && op_seats[1].done_count == 0; i++)
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
    assert_int_equal(op_seats[0].rc, MUSTER_OK);
    op_scene_check_result(&scene, 0, 0);
    op_scene_check_result(&scene, 1, 0);
    assert_int_equal(op_seats[1].op.result.contributor_count, 2);

    scene.n = 3;
    for (uint32_t member = 0; member < 3; member++) {
        if (member < 2)
            op_seat_fini(member);
        op_seat_init(&scene, member);
        muster_group_begin_step(op_ring.members[member].group, 2);
        op_seat_start(&scene, member);
    }
    op_scene_run(3);
    for (uint32_t member = 0; member < 3; member++)
        op_scene_check_result(&scene, member, 0);
    assert_int_equal(op_seats[2].op.result.contributor_count, 3);
    op_scene_close(&scene);
}

static void operations_started_while_frozen_wait_for_the_next_epoch(void **state)
{
    struct op_scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    group_ring_wait_for_links(&op_ring);
    group_ring_freeze(&op_ring);
    op_scene_start(&scene);
    group_ring_turn(&op_ring, 20);
    for (uint32_t member = 0; member < 3; member++)
        assert_int_equal(op_seats[member].done_count, 0);
    group_ring_change(&op_ring, UINT32_MAX);
    op_scene_run(3);

    for (uint32_t member = 0; member < 3; member++) {
        assert_int_equal(op_seats[member].op.result.epoch, 2);
        assert_true(op_seats[member].op.result.is_interrupted);
        assert_string_equal(op_seats[member].op.result.phase, "start");
        assert_int_equal(op_seats[member].op.result.verdict, MUSTER_VERDICT_RETRY);
        assert_true(op_seats[member].op.result.interrupted_ns > 0);
        op_scene_check_result(&scene, member, 0);
    }
    op_scene_close(&scene);
}

static void a_frozen_vector_does_not_move(void **state)
{
    struct muster_progress before, after;
    struct op_scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    op_scene_start(&scene);
    group_ring_turn(&op_ring, 4);
    assert_int_equal(muster_group_freeze(op_ring.members[0].group, &before), MUSTER_OK);
    muster_group_begin_step(op_ring.members[0].group, 7);
    group_ring_turn(&op_ring, 50);
    assert_int_equal(muster_group_freeze(op_ring.members[0].group, &after), MUSTER_OK);

    assert_int_equal(before.op_count, 1);
    assert_int_equal(after.op_count, 1);
    assert_int_equal(before.begun_step, after.begun_step);
    assert_int_equal(before.ops[0].phase, after.ops[0].phase);
    assert_memory_equal(before.ops[0].chunks_final, after.ops[0].chunks_final,
                        (before.ops[0].chunk_count + 7) / 8);
    muster_progress_fini(&before);
    muster_progress_fini(&after);
    group_ring_change(&op_ring, UINT32_MAX);
    op_scene_run(3);
    for (uint32_t member = 0; member < 3; member++)
        op_scene_check_result(&scene, member, 0);
    op_scene_close(&scene);
}

/* A progress that lacks an allocation is not shown as if it were whole. */
static void a_freeze_without_memory_is_an_error(void **state)
{
    struct muster_progress progress;
    struct op_scene scene = small_scene;
    struct muster_mem_limited *mem = &op_ring.test.mem;
    bool has_failed = true;
    unsigned failures = 0;

    (void)state;
    open_scene(&scene);
    op_scene_start(&scene);
    group_ring_turn(&op_ring, 4);
    for (uint64_t at = 1; has_failed; at++) {
        enum muster_rc rc;

        mem->fail_at = at;
        rc = muster_group_freeze(op_ring.members[0].group, &progress);
        has_failed = mem->fail_at == 0;
        mem->fail_at = 0;
        assert_int_equal(rc, has_failed ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
        failures += has_failed;
    }
    assert_true(failures >= 2); /* lanes, operations */
    assert_true(progress.lane_count > 0);
    assert_int_equal(progress.op_count, 1);
    muster_progress_fini(&progress);
    group_ring_change(&op_ring, UINT32_MAX);
    op_scene_run(3);
    for (uint32_t member = 0; member < 3; member++)
        op_scene_check_result(&scene, member, 0);
    op_scene_close(&scene);
}

static void run_until_proposed(uint32_t member)
{
    for (unsigned i = 0; i < 500 && op_ring.members[member].abort_count == 0; i++)
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
    assert_int_equal(op_ring.members[member].abort_count, 1);
}

static void a_deadline_ends_the_operation_on_all_and_names_who_is_missing(void **state)
{
    struct op_scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    group_ring_wait_for_links(&op_ring);
    for (uint32_t member = 0; member < 2; member++) {
        if (member == 0)
            op_seats[0].op.deadline_ns = muster_loop_after_ns(op_ring.test.env.loop, SOON_NS);
        op_seat_start(&scene, member);
    }
    run_until_proposed(0);
    assert_int_equal(op_ring.members[0].abort_why, MUSTER_DEADLINE_EXCEEDED);
    group_ring_change(&op_ring, UINT32_MAX);
    op_seat_start(&scene, 2);
    op_scene_run(3);

    assert_int_equal(op_seats[0].rc, MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(op_seats[0].op.error.text,
                        "rank 2 (worker:2) has not called all_reduce #0");
    assert_int_equal(op_seats[1].rc, MUSTER_ABORTED);
    assert_int_equal(op_seats[2].rc, MUSTER_ABORTED);
    for (uint32_t member = 0; member < 3; member++)
        op_scene_check_input(&scene, member);
    op_scene_check_next(&scene, 150, 0);
    op_scene_close(&scene);
}

static void cancel_ends_the_operation_on_all(void **state)
{
    struct op_scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    for (uint32_t member = 0; member < 2; member++)
        op_seat_start(&scene, member);
    group_ring_turn(&op_ring, 10);
    muster_op_cancel(&op_seats[1].op);
    muster_op_cancel(&op_seats[1].op);
    assert_int_equal(op_ring.members[1].abort_count, 1);
    assert_int_equal(op_seats[1].done_count, 0);
    group_ring_change(&op_ring, UINT32_MAX);
    op_seat_start(&scene, 2);
    op_scene_run(3);

    assert_int_equal(op_seats[0].rc, MUSTER_ABORTED);
    assert_int_equal(op_seats[1].rc, MUSTER_CANCELLED);
    assert_int_equal(op_seats[2].rc, MUSTER_ABORTED);
    for (uint32_t member = 0; member < 3; member++)
        op_scene_check_input(&scene, member);
    op_scene_close(&scene);
}

static void without_a_verdict_the_member_gives_up_after_the_grace_period(void **state)
{
    struct op_scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    for (uint32_t member = 0; member < 3; member++) {
        muster_group_close(op_ring.members[member].group);
        op_ring.members[member].group = NULL;
    }
    op_ring.abort_grace_ns = 5 * MUSTER_NS_PER_MS;
    group_ring_reopen(&op_ring);
    op_seats[0].op.deadline_ns = muster_loop_after_ns(op_ring.test.env.loop, SOON_NS);
    op_seat_start(&scene, 0);
    for (unsigned i = 0; i < 500 && op_seats[0].done_count == 0; i++)
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);

    assert_int_equal(op_seats[0].rc, MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(op_ring.members[0].expired_count, 1);
    op_scene_check_input(&scene, 0);
    op_seats[0].op.deadline_ns = UINT64_MAX;
    assert_int_equal(muster_barrier_start(&op_seats[0].op, op_ring.members[0].group, op_seat_done),
                     MUSTER_FAILED_PRECONDITION);
    op_scene_close(&scene);
}

static void the_excluded_member_keeps_its_inputs(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "excluded"};
    struct op_scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    op_scene_start(&scene);
    group_ring_turn(&op_ring, 5);
    muster_group_abort_all(op_ring.members[1].group, &why);
    group_ring_turn(&op_ring, 1);

    assert_int_equal(op_seats[1].rc, MUSTER_ABORTED);
    assert_string_equal(op_seats[1].op.error.text, "excluded");
    op_scene_check_input(&scene, 1);
    op_scene_close(&scene);
}

/* --- Memory --- */

/* The view comes from another process: it may say what it likes of this one. */
static void an_operation_of_a_member_that_joins_later_is_aborted(void **state)
{
    static const enum muster_verdict_kind kinds[] = {MUSTER_VERDICT_RETRY, MUSTER_VERDICT_ADOPT};
    struct op_scene scene = small_scene;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct muster_verdict verdict = {.kind = kinds[i]};
        struct muster_member members[3];
        struct muster_view fields, *next;

        open_scene(&scene);
        op_seat_start(&scene, 0);
        group_ring_freeze(&op_ring);
        op_seat_start(&scene, 1); /* waits for the next view */
        verdict.op = op_seats[0].op.id;
        verdict.descriptor = ((const struct muster_run *)op_seats[0].op.impl)->descriptor;
        fields = *op_ring.view;
        memcpy(members, fields.members, sizeof(members));
        members[0].from_step = members[1].from_step = 5;
        fields.members = members;
        fields.epoch++;
        fields.verdicts = &verdict;
        fields.verdict_count = 1;
        assert_int_equal(muster_view_new(op_ring.test.env.mem, &fields, &next), MUSTER_OK);
        muster_view_unref(op_ring.view);
        op_ring.view = next;
        for (uint32_t member = 0; member < 3; member++)
            group_ring_follow(&op_ring, member);
        group_ring_turn(&op_ring, 2);

        for (uint32_t member = 0; member < 2; member++) {
            assert_int_equal(op_seats[member].rc, MUSTER_ABORTED);
            op_scene_check_input(&scene, member);
        }
        op_scene_close(&scene);
    }
}

/* One outcome, or an abort that names the want of memory where it was felt. */
static void check_short_of_memory(const struct op_scene *scene)
{
    bool is_ok = op_seats[0].rc == MUSTER_OK;

    for (uint32_t member = 0; member < scene->n; member++) {
        assert_int_equal(op_seats[member].done_count, 1);
        assert_int_equal(op_seats[member].rc == MUSTER_OK, is_ok);
        if (is_ok)
            op_scene_check_result(scene, member, 0);
        else {
            assert_true(op_seats[member].rc == MUSTER_ABORTED ||
                        op_seats[member].rc == MUSTER_RESOURCE_EXHAUSTED);
            if (op_seats[member].rc == MUSTER_RESOURCE_EXHAUSTED)
                assert_non_null(strstr(op_seats[member].op.error.text, "no memory left"));
            op_scene_check_input(scene, member);
        }
    }
}

/* Returns whether the k-th allocation was reached. */
static bool play_short_of_memory(const struct op_scene *scene, unsigned k)
{
    bool is_started = true, has_failed;

    open_scene(scene);
    group_ring_turn(&op_ring, 12);
    op_ring.test.mem.fail_at = k;
    for (uint32_t member = 0; member < scene->n; member++)
        is_started = op_seat_try_start(scene, member, op_seat_done) == MUSTER_OK && is_started;
    group_ring_turn(&op_ring, 40);
    has_failed = op_ring.test.mem.fail_at == 0;
    op_ring.test.mem.fail_at = 0;
    if (is_started && !op_scene_is_done(scene->n)) {
        group_ring_change(&op_ring, UINT32_MAX);
        op_scene_run(scene->n);
    }
    if (is_started)
        check_short_of_memory(scene);
    op_scene_close(scene);
    return has_failed;
}

static void without_memory_an_operation_is_retried_or_aborted_on_all(void **state)
{
    static const struct op_scene scenes[] = {{MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 250, 0, false},
                                             {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 5, 0, false}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        unsigned k = 1;

        while (play_short_of_memory(&scenes[i], k))
            k++;
        assert_true(k > 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ring_all_reduce_has_one_outcome_wherever_a_member_dies,
                               reset_counts),
        cmocka_unit_test_setup(direct_all_reduce_has_one_outcome_wherever_a_member_dies,
                               reset_counts),
        cmocka_unit_test_setup(halving_has_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(double_tree_has_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(blocks_have_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(two_levels_have_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(broadcast_has_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(all_gather_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(reduce_scatter_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(barrier_ends_for_all_survivors, reset_counts),
        cmocka_unit_test_setup_teardown(a_second_death_during_the_repair_leaves_one_outcome,
                                        reset_counts, reset_counts),
        cmocka_unit_test(a_joiner_takes_part_from_its_step_on),
        cmocka_unit_test(operations_started_while_frozen_wait_for_the_next_epoch),
        cmocka_unit_test(a_frozen_vector_does_not_move),
        cmocka_unit_test(a_freeze_without_memory_is_an_error),
        cmocka_unit_test(a_deadline_ends_the_operation_on_all_and_names_who_is_missing),
        cmocka_unit_test(cancel_ends_the_operation_on_all),
        cmocka_unit_test(without_a_verdict_the_member_gives_up_after_the_grace_period),
        cmocka_unit_test(the_excluded_member_keeps_its_inputs),
        cmocka_unit_test(an_operation_of_a_member_that_joins_later_is_aborted),
        cmocka_unit_test(without_memory_an_operation_is_retried_or_aborted_on_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
