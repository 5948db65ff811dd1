/* A member dies at every point of an operation: the survivors come to one outcome, byte for byte.
 */
#include "group_ring.h"

#include <stdlib.h>
#include <string.h>

#define CANARY_BYTES 64u
#define CANARY       0x5a

/* One operation on all members. */
struct scene {
    enum muster_op_kind kind;
    enum muster_reduction reduction;
    uint32_t n;
    uint64_t count; /* elements of one tensor or part, int32 */
    uint32_t root;
    bool is_stopped_at_cut;
};

struct seat {
    struct muster_op op;
    int32_t *input, *output;
    size_t input_count, output_count;
    unsigned done_count;
    enum muster_rc rc;
    bool is_started;
};

static struct group_ring ring;
static struct seat seats[GROUP_RING_MAX];
static unsigned adopted_count, retried_count, aborted_count, pieced_count;
static struct muster_plan_parameters parameters; /* zeros: the ring's own */
static uint32_t per_host;

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

static int32_t value_at(uint32_t member, uint64_t i)
{
    return (int32_t)((member + 1) * 1000 + i % 997);
}

static int32_t *memory_new(size_t count)
{
    uint8_t *memory = malloc(count * sizeof(int32_t) + CANARY_BYTES);

    assert_non_null(memory);
    memset(memory, CANARY, count * sizeof(int32_t) + CANARY_BYTES);
    return (int32_t *)(void *)memory;
}

static void assert_canary(const int32_t *memory, size_t count)
{
    for (size_t i = 0; i < CANARY_BYTES; i++)
        assert_int_equal(((const uint8_t *)(memory + count))[i], CANARY);
}

static void seat_init(const struct scene *scene, uint32_t member)
{
    struct seat *seat = &seats[member];
    bool is_gather = scene->kind == MUSTER_OP_ALL_GATHER;
    bool is_scatter = scene->kind == MUSTER_OP_REDUCE_SCATTER;

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 30 * MUSTER_NS_PER_S);
    seat->input_count = is_scatter ? scene->n * scene->count : scene->count;
    seat->output_count = is_gather ? scene->n * scene->count : is_scatter ? scene->count : 0;
    seat->input = memory_new(seat->input_count);
    if (seat->output_count > 0)
        seat->output = memory_new(seat->output_count);
    for (size_t i = 0; i < seat->input_count; i++)
        seat->input[i] = value_at(member, i);
}

static void seat_fini(struct seat *seat)
{
    assert_canary(seat->input, seat->input_count);
    if (seat->output != NULL)
        assert_canary(seat->output, seat->output_count);
    free(seat->input);
    free(seat->output);
    seat->input = seat->output = NULL;
}

static void seat_start(const struct scene *scene, uint32_t member)
{
    struct seat *seat = &seats[member];
    struct muster_group *group = ring.members[member].group;
    struct muster_tensor input = {
        .data = seat->input, .count = seat->input_count, .dtype = MUSTER_I32};
    struct muster_tensor output = {
        .data = seat->output, .count = seat->output_count, .dtype = MUSTER_I32};
    enum muster_rc rc = MUSTER_INTERNAL;

    seat->is_started = true;
    switch (scene->kind) {
    case MUSTER_OP_ALL_REDUCE:
        rc = muster_all_reduce_start(&seat->op, group, &input, scene->reduction, on_done);
        break;
    case MUSTER_OP_BROADCAST:
        rc = muster_broadcast_start(&seat->op, group, &input, scene->root, on_done);
        break;
    case MUSTER_OP_ALL_GATHER:
        rc = muster_all_gather_start(&seat->op, group, &input, &output, on_done);
        break;
    case MUSTER_OP_REDUCE_SCATTER:
        rc = muster_reduce_scatter_start(&seat->op, group, &input, &output, scene->reduction,
                                         on_done);
        break;
    case MUSTER_OP_BARRIER:
        rc = muster_barrier_start(&seat->op, group, on_done);
        break;
    default: /* test_run_exchange.c */
        break;
    }
    assert_int_equal(rc, MUSTER_OK);
}

static bool are_survivors_done(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++)
        if (group_ring_is_living(&ring, member) && seats[member].done_count == 0)
            return false;
    return true;
}

static void run_survivors(uint32_t n)
{
    for (unsigned turns = 0; !are_survivors_done(n); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > 3000)
            fail_msg("the survivors hang");
    }
}

/* Run until the failpoint has struck, or everybody is done. */
static void run_to_cut(uint32_t n)
{
    for (unsigned turns = 0; !ring.has_cut && !are_survivors_done(n); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > 3000)
            fail_msg("the operation hangs");
    }
    if (ring.has_cut && !ring.is_stopped_at_cut)
        group_ring_turn(&ring, 12);
}

/* --- What is right --- */

/* without: bit r = member r did not contribute. */
static int32_t reduced_at(const struct scene *scene, unsigned without, uint64_t i)
{
    int64_t sum = 0;
    int64_t count = 0;

    for (uint32_t member = 0; member < scene->n; member++) {
        if ((without >> member & 1) != 0)
            continue;
        sum += value_at(member, i);
        count++;
    }
    return (int32_t)(scene->reduction == MUSTER_MEAN ? sum / count : sum);
}

static void check_result(const struct scene *scene, uint32_t member, unsigned without)
{
    const struct seat *seat = &seats[member];

    for (uint64_t i = 0; i < scene->count; i++) {
        if (scene->kind == MUSTER_OP_ALL_REDUCE)
            assert_int_equal(seat->input[i], reduced_at(scene, without, i));
        else if (scene->kind == MUSTER_OP_BROADCAST)
            assert_int_equal(seat->input[i], value_at(scene->root, i));
        else if (scene->kind == MUSTER_OP_REDUCE_SCATTER)
            assert_int_equal(seat->output[i], reduced_at(scene, 0, member * scene->count + i));
    }
    for (uint64_t i = 0; i < seat->output_count && scene->kind == MUSTER_OP_ALL_GATHER; i++)
        assert_int_equal(seat->output[i], value_at((uint32_t)(i / scene->count), i % scene->count));
}

static void check_inputs(const struct scene *scene, uint32_t member)
{
    for (uint64_t i = 0; i < seats[member].input_count; i++)
        if (scene->kind != MUSTER_OP_BROADCAST || member == scene->root)
            assert_int_equal(seats[member].input[i], value_at(member, i));
}

/* victims in the order of their deaths: who contributed follows from how many did. */
static void check_survivors(const struct scene *scene, const uint32_t *victims,
                            uint32_t victim_count)
{
    const struct seat *first = NULL;

    for (uint32_t member = 0; member < scene->n; member++) {
        const struct seat *seat = &seats[member];

        if (!group_ring_is_living(&ring, member))
            continue;
        if (first == NULL)
            first = seat;
        assert_int_equal(seat->done_count, 1);
        assert_int_equal(seat->rc, first->rc);
        if (seat->rc == MUSTER_OK) {
            uint32_t contributors = seat->op.result.contributor_count;
            unsigned without = 0;

            assert_int_equal(contributors, first->op.result.contributor_count);
            assert_true(contributors <= scene->n && contributors >= scene->n - victim_count);
            for (uint32_t i = 0; i < scene->n - contributors; i++)
                without |= 1u << victims[i];
            check_result(scene, member, without);
        } else {
            assert_int_equal(seat->rc, MUSTER_ABORTED);
            assert_non_null(strstr(seat->op.error.text, "a member died"));
            check_inputs(scene, member);
        }
    }
    if (first == NULL)
        return;
    if (first->rc != MUSTER_OK)
        aborted_count++;
    else if (first->op.result.contributor_count == scene->n)
        adopted_count++;
    else
        retried_count++;
}

/* --- Scenes --- */

static void open_scene(const struct scene *scene)
{
    if (parameters.forced == MUSTER_ALGORITHM_AUTO)
        group_ring_open(&ring, scene->n);
    else
        group_ring_open_hosts(&ring, scene->n, &parameters, per_host);
    ring.is_stopped_at_cut = scene->is_stopped_at_cut;
    for (uint32_t member = 0; member < scene->n; member++)
        seat_init(scene, member);
}

static void close_scene(const struct scene *scene)
{
    group_ring_close(&ring);
    for (uint32_t member = 0; member < scene->n; member++)
        seat_fini(&seats[member]);
}

/* After the change everything works as before, with the survivors only. */
static void check_next_operation(const struct scene *scene, unsigned dead)
{
    struct scene next = {
        .kind = MUSTER_OP_ALL_REDUCE, .reduction = MUSTER_SUM, .n = scene->n, .count = 150};

    for (uint32_t member = 0; member < scene->n; member++) {
        seat_fini(&seats[member]);
        seat_init(&next, member);
        if (group_ring_is_living(&ring, member))
            seat_start(&next, member);
    }
    run_survivors(scene->n);
    for (uint32_t member = 0; member < scene->n; member++)
        if (group_ring_is_living(&ring, member)) {
            assert_int_equal(seats[member].rc, MUSTER_OK);
            check_result(&next, member, dead);
        }
}

/* An operation that fits the members no more is ended by a change of its own. */
static void change_when_proposed(uint32_t n)
{
    bool is_proposed = false;

    group_ring_turn(&ring, 20);
    for (uint32_t member = 0; member < n; member++)
        is_proposed = is_proposed ||
                      (group_ring_is_living(&ring, member) && ring.members[member].abort_count > 0);
    if (is_proposed)
        group_ring_change(&ring, UINT32_MAX);
}

/* Returns whether the k-th point exists. */
static bool play(const struct scene *scene, uint32_t victim, unsigned k)
{
    bool has_cut;

    open_scene(scene);
    ring.members[victim].cut_at = k;
    for (uint32_t member = 0; member < scene->n; member++)
        if (group_ring_is_living(&ring, member))
            seat_start(scene, member);
    run_to_cut(scene->n);
    has_cut = ring.has_cut;
    if (has_cut) {
        group_ring_kill(&ring, victim);
        group_ring_change(&ring, UINT32_MAX);
        group_ring_turn(&ring, 2); /* the victim's callback */
        change_when_proposed(scene->n);
        run_survivors(scene->n);
        check_survivors(scene, &victim, 1);
        check_next_operation(scene, 1u << victim);
    }
    pieced_count += ring.pieced_count;
    close_scene(scene);
    return has_cut;
}

/* Every point of every victim, with the survivors stopped at once or after they got as far as they
 * can. */
static void play_all(struct scene scene)
{
    unsigned points = 0;

    for (uint32_t victim = 0; victim < scene.n; victim++)
        for (unsigned k = 1;; k++) {
            bool has_cut;

            scene.is_stopped_at_cut = (k & 1) != 0;
            has_cut = play(&scene, victim, k);
            scene.is_stopped_at_cut = !scene.is_stopped_at_cut;
            if (!has_cut || !play(&scene, victim, k))
                break;
            points++;
        }
    assert_true(points >= scene.n);
}

static int reset_counts(void **state)
{
    (void)state;
    adopted_count = retried_count = aborted_count = pieced_count = 0;
    memset(&parameters, 0, sizeof(parameters));
    return 0;
}

static void ring_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 150, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 250, 0, false});
    assert_true(adopted_count > 0 && retried_count > 0 && pieced_count > 0);
    assert_int_equal(aborted_count, 0);
}

static void direct_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 5, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 5, 0, false});
    assert_true(adopted_count > 0 && retried_count > 0);
    assert_int_equal(aborted_count, 0);
}

/* Of small messages, or of some that wait until their receiver has started. */
static void force(enum muster_algorithm algorithm, uint32_t chunk_bytes, uint32_t members_per_host)
{
    parameters = (struct muster_plan_parameters){
        .chunk_bytes = chunk_bytes, .direct_max_bytes = 1, .forced = algorithm};
    per_host = members_per_host;
}

static void halving_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force(MUSTER_ALGORITHM_HALVING, 64, 0);
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 50, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 5, 90, 0, false});
    force(MUSTER_ALGORITHM_HALVING, 16 << 10, 0);
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 17000, 0, false});
    assert_true(adopted_count > 0 && retried_count > 0);
    assert_int_equal(aborted_count, 0);
}

static void double_tree_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force(MUSTER_ALGORITHM_DOUBLE_TREE, 128, 0);
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 100, 0, false});
    play_all((struct scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 4, 100, 2, false});
    force(MUSTER_ALGORITHM_DOUBLE_TREE, 32 << 10, 0);
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 17000, 0, false});
    assert_true(adopted_count > 0 && retried_count > 0 && aborted_count > 0);
}

static void blocks_have_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force(MUSTER_ALGORITHM_BLOCKS, 64, 0);
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 90, 0, false});
    force(MUSTER_ALGORITHM_BLOCKS, 16 << 10, 0);
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 17000, 0, false});
    assert_true(adopted_count > 0 && retried_count > 0);
    assert_int_equal(aborted_count, 0);
    force(MUSTER_ALGORITHM_BLOCKS, 256, 0);
    play_all((struct scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 100, 0, false});
    play_all((struct scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_SUM, 3, 100, 0, false});
    assert_true(aborted_count > 0);
}

static void two_levels_have_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    force(MUSTER_ALGORITHM_TWO_LEVEL, 64, 2);
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 5, 60, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 60, 0, false});
    assert_true(adopted_count > 0 && retried_count > 0);
    assert_int_equal(aborted_count, 0);
}

static void broadcast_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 200, 1, false});
    play_all((struct scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 5, 2, false});
    assert_true(adopted_count > 0 && aborted_count > 0);
}

static void all_gather_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 100, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 3, 0, false});
    assert_true(adopted_count > 0 && aborted_count > 0);
    assert_int_equal(retried_count, 0);
}

static void reduce_scatter_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_SUM, 3, 100, 0, false});
    play_all((struct scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_MEAN, 3, 3, 0, false});
    assert_true(adopted_count > 0 && aborted_count > 0);
    assert_int_equal(retried_count, 0);
}

static void barrier_ends_for_all_survivors(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_BARRIER, MUSTER_SUM, 3, 0, 0, false});
    assert_int_equal(aborted_count, 0);
}

/* --- Two deaths: the second in the middle of the repair --- */

static void change_without(uint32_t victim)
{
    group_ring_kill(&ring, victim);
    group_ring_change(&ring, UINT32_MAX);
    group_ring_turn(&ring, 2);
}

/* Returns whether the second victim still had a k-th point after the first change. */
static bool play_twice(const struct scene *scene, const uint32_t victims[2], unsigned first_k,
                       unsigned second_k)
{
    bool has_cut_twice;

    open_scene(scene);
    ring.members[victims[0]].cut_at = first_k;
    for (uint32_t member = 0; member < scene->n; member++)
        if (group_ring_is_living(&ring, member))
            seat_start(scene, member);
    run_to_cut(scene->n);
    assert_true(ring.has_cut);
    ring.has_cut = false;
    ring.members[victims[1]].cut_at = ring.members[victims[1]].passed + second_k;
    change_without(victims[0]);
    run_to_cut(scene->n);
    has_cut_twice = ring.has_cut;
    if (has_cut_twice) {
        change_without(victims[1]);
        run_survivors(scene->n);
        check_survivors(scene, victims, 2);
        check_next_operation(scene, 1u << victims[0] | 1u << victims[1]);
    }
    close_scene(scene);
    return has_cut_twice;
}

static void play_all_twice(struct scene scene, unsigned first_k_step)
{
    static const uint32_t pairs[][2] = {{0, 1}, {1, 0}, {2, 3}, {3, 0}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        for (unsigned first_k = 1; first_k < 1 + 5 * first_k_step; first_k += first_k_step)
            for (unsigned second_k = 1;; second_k += 3) {
                scene.is_stopped_at_cut = (second_k & 2) != 0;
                if (!play_twice(&scene, pairs[i], first_k, second_k))
                    break;
            }
}

static void a_second_death_during_the_repair_leaves_one_outcome(void **state)
{
    (void)state;
    force(MUSTER_ALGORITHM_RING, 256, 0);
    play_all_twice((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 260, 0, false}, 5);
    parameters = (struct muster_plan_parameters){.forced = MUSTER_ALGORITHM_AUTO};
    play_all_twice((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 5, 0, false}, 1);
    force(MUSTER_ALGORITHM_HALVING, 64, 0);
    play_all_twice((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 130, 0, false}, 3);
    force(MUSTER_ALGORITHM_DOUBLE_TREE, 128, 0);
    play_all_twice((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 300, 0, false}, 3);
    assert_true(adopted_count > 0 && retried_count > 0);
}

/* --- Joining, waiting, giving up --- */

static const struct scene small_scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 150, 0, false};

/* An operation that is open when a member joins goes on without the joiner; the next step has it.
 */
static void a_joiner_takes_part_from_its_step_on(void **state)
{
    struct scene scene = small_scene;
    uint32_t joiner;

    (void)state;
    scene.n = 2;
    open_scene(&scene);
    for (uint32_t member = 0; member < 2; member++)
        muster_group_begin_step(ring.members[member].group, 1);
    seat_start(&scene, 0);
    group_ring_turn(&ring, 20);
    joiner = group_ring_add(&ring);
    group_ring_change(&ring, joiner);
    assert_int_equal(ring.view->members[2].from_step, 2);
    seat_start(&scene, 1);
    for (unsigned i = 0; i < 200 && seats[1].done_count == 0; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    assert_int_equal(seats[0].rc, MUSTER_OK);
    check_result(&scene, 0, 0);
    check_result(&scene, 1, 0);
    assert_int_equal(seats[1].op.result.contributor_count, 2);

    scene.n = 3;
    for (uint32_t member = 0; member < 3; member++) {
        if (member < 2)
            seat_fini(&seats[member]);
        seat_init(&scene, member);
        muster_group_begin_step(ring.members[member].group, 2);
        seat_start(&scene, member);
    }
    run_survivors(3);
    for (uint32_t member = 0; member < 3; member++)
        check_result(&scene, member, 0);
    assert_int_equal(seats[2].op.result.contributor_count, 3);
    close_scene(&scene);
}

static void operations_started_while_frozen_wait_for_the_next_epoch(void **state)
{
    struct scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    group_ring_wait_for_links(&ring);
    group_ring_freeze(&ring);
    for (uint32_t member = 0; member < 3; member++)
        seat_start(&scene, member);
    group_ring_turn(&ring, 20);
    for (uint32_t member = 0; member < 3; member++)
        assert_int_equal(seats[member].done_count, 0);
    group_ring_change(&ring, UINT32_MAX);
    run_survivors(3);

    for (uint32_t member = 0; member < 3; member++) {
        assert_int_equal(seats[member].op.result.epoch, 2);
        assert_true(seats[member].op.result.is_interrupted);
        assert_string_equal(seats[member].op.result.phase, "start");
        assert_int_equal(seats[member].op.result.verdict, MUSTER_VERDICT_RETRY);
        assert_true(seats[member].op.result.interrupted_ns > 0);
        check_result(&scene, member, 0);
    }
    close_scene(&scene);
}

static void a_frozen_vector_does_not_move(void **state)
{
    struct muster_progress before, after;
    struct scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    for (uint32_t member = 0; member < 3; member++)
        seat_start(&scene, member);
    group_ring_turn(&ring, 4);
    assert_int_equal(muster_group_freeze(ring.members[0].group, &before), MUSTER_OK);
    muster_group_begin_step(ring.members[0].group, 7);
    group_ring_turn(&ring, 50);
    assert_int_equal(muster_group_freeze(ring.members[0].group, &after), MUSTER_OK);

    assert_int_equal(before.op_count, 1);
    assert_int_equal(after.op_count, 1);
    assert_int_equal(before.begun_step, after.begun_step);
    assert_int_equal(before.ops[0].phase, after.ops[0].phase);
    assert_memory_equal(before.ops[0].chunks_final, after.ops[0].chunks_final,
                        (before.ops[0].chunk_count + 7) / 8);
    muster_progress_fini(&before);
    muster_progress_fini(&after);
    group_ring_change(&ring, UINT32_MAX);
    run_survivors(3);
    for (uint32_t member = 0; member < 3; member++)
        check_result(&scene, member, 0);
    close_scene(&scene);
}

static void run_until_proposed(uint32_t member)
{
    for (unsigned i = 0; i < 500 && ring.members[member].abort_count == 0; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    assert_int_equal(ring.members[member].abort_count, 1);
}

static void a_deadline_ends_the_operation_on_all_and_names_who_is_missing(void **state)
{
    struct scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    group_ring_wait_for_links(&ring);
    for (uint32_t member = 0; member < 2; member++) {
        if (member == 0)
            seats[0].op.deadline_ns =
                muster_loop_after_ns(ring.test.env.loop, 2 * MUSTER_NS_PER_MS);
        seat_start(&scene, member);
    }
    run_until_proposed(0);
    assert_int_equal(ring.members[0].abort_why, MUSTER_DEADLINE_EXCEEDED);
    group_ring_change(&ring, UINT32_MAX);
    seat_start(&scene, 2);
    run_survivors(3);

    assert_int_equal(seats[0].rc, MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(seats[0].op.error.text, "rank 2 (worker:2) has not called all_reduce #0");
    assert_int_equal(seats[1].rc, MUSTER_ABORTED);
    assert_int_equal(seats[2].rc, MUSTER_ABORTED);
    for (uint32_t member = 0; member < 3; member++)
        check_inputs(&scene, member);
    check_next_operation(&scene, 0);
    close_scene(&scene);
}

static void cancel_ends_the_operation_on_all(void **state)
{
    struct scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    for (uint32_t member = 0; member < 2; member++)
        seat_start(&scene, member);
    group_ring_turn(&ring, 10);
    muster_op_cancel(&seats[1].op);
    muster_op_cancel(&seats[1].op);
    assert_int_equal(ring.members[1].abort_count, 1);
    assert_int_equal(seats[1].done_count, 0);
    group_ring_change(&ring, UINT32_MAX);
    seat_start(&scene, 2);
    run_survivors(3);

    assert_int_equal(seats[0].rc, MUSTER_ABORTED);
    assert_int_equal(seats[1].rc, MUSTER_CANCELLED);
    assert_int_equal(seats[2].rc, MUSTER_ABORTED);
    for (uint32_t member = 0; member < 3; member++)
        check_inputs(&scene, member);
    close_scene(&scene);
}

static void without_a_verdict_the_member_gives_up_after_the_grace_period(void **state)
{
    struct scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    for (uint32_t member = 0; member < 3; member++) {
        muster_group_close(ring.members[member].group);
        ring.members[member].group = NULL;
    }
    ring.abort_grace_ns = 5 * MUSTER_NS_PER_MS;
    group_ring_reopen(&ring);
    seats[0].op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, MUSTER_NS_PER_MS);
    seat_start(&scene, 0);
    for (unsigned i = 0; i < 500 && seats[0].done_count == 0; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);

    assert_int_equal(seats[0].rc, MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(ring.members[0].expired_count, 1);
    check_inputs(&scene, 0);
    seats[0].op.deadline_ns = UINT64_MAX;
    assert_int_equal(muster_barrier_start(&seats[0].op, ring.members[0].group, on_done),
                     MUSTER_FAILED_PRECONDITION);
    close_scene(&scene);
}

static void the_excluded_member_keeps_its_inputs(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "excluded"};
    struct scene scene = small_scene;

    (void)state;
    open_scene(&scene);
    for (uint32_t member = 0; member < 3; member++)
        seat_start(&scene, member);
    group_ring_turn(&ring, 5);
    muster_group_abort_all(ring.members[1].group, &why);
    group_ring_turn(&ring, 1);

    assert_int_equal(seats[1].rc, MUSTER_ABORTED);
    assert_string_equal(seats[1].op.error.text, "excluded");
    check_inputs(&scene, 1);
    close_scene(&scene);
}

/* --- Memory --- */

static bool try_start(const struct scene *scene, uint32_t member)
{
    const struct muster_tensor tensor = {
        .data = seats[member].input, .count = seats[member].input_count, .dtype = MUSTER_I32};

    return muster_all_reduce_start(&seats[member].op, ring.members[member].group, &tensor,
                                   scene->reduction, on_done) == MUSTER_OK;
}

/* One outcome, or an abort that names the want of memory where it was felt. */
static void check_short_of_memory(const struct scene *scene)
{
    bool is_ok = seats[0].rc == MUSTER_OK;

    for (uint32_t member = 0; member < scene->n; member++) {
        assert_int_equal(seats[member].done_count, 1);
        assert_int_equal(seats[member].rc == MUSTER_OK, is_ok);
        if (is_ok)
            check_result(scene, member, 0);
        else {
            assert_true(seats[member].rc == MUSTER_ABORTED ||
                        seats[member].rc == MUSTER_RESOURCE_EXHAUSTED);
            if (seats[member].rc == MUSTER_RESOURCE_EXHAUSTED)
                assert_non_null(strstr(seats[member].op.error.text, "no memory left"));
            check_inputs(scene, member);
        }
    }
}

/* Returns whether the k-th allocation was reached. */
static bool play_short_of_memory(const struct scene *scene, unsigned k)
{
    bool is_started = true, has_failed;

    open_scene(scene);
    group_ring_turn(&ring, 12);
    ring.test.mem.fail_at = k;
    for (uint32_t member = 0; member < scene->n; member++)
        is_started = try_start(scene, member) && is_started;
    group_ring_turn(&ring, 40);
    has_failed = ring.test.mem.fail_at == 0;
    ring.test.mem.fail_at = 0;
    if (is_started && !are_survivors_done(scene->n)) {
        group_ring_change(&ring, UINT32_MAX);
        run_survivors(scene->n);
    }
    if (is_started)
        check_short_of_memory(scene);
    close_scene(scene);
    return has_failed;
}

static void without_memory_an_operation_is_retried_or_aborted_on_all(void **state)
{
    static const struct scene scenes[] = {{MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 250, 0, false},
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
        cmocka_unit_test(a_deadline_ends_the_operation_on_all_and_names_who_is_missing),
        cmocka_unit_test(cancel_ends_the_operation_on_all),
        cmocka_unit_test(without_a_verdict_the_member_gives_up_after_the_grace_period),
        cmocka_unit_test(the_excluded_member_keeps_its_inputs),
        cmocka_unit_test(without_memory_an_operation_is_retried_or_aborted_on_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
