/* Operations through boards: a member dies before and after each store that others see. */
#include "group_ring.h"

#include <stdlib.h>
#include <string.h>

#include "collective/group/shm/shm_internal.h"

/* One operation on all members. */
struct scene {
    enum muster_op_kind kind;
    enum muster_reduction reduction;
    uint32_t n;
    uint64_t count; /* elements of one tensor or part, int32 */
    uint32_t root;
    bool is_staged; /* ordinary memory instead of shared tensors */
};

struct seat {
    struct muster_op op;
    int32_t *input, *output;
    size_t input_count, output_count;
    unsigned done_count;
    enum muster_rc rc;
    unsigned passed, cut_at, stand_at;
};

static struct group_ring ring;
static struct seat seats[GROUP_RING_MAX];
static bool has_cut;
static unsigned next_operations = 1;
static unsigned adopted_count, retried_count, aborted_count, unasked_count;

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

static void work_as_far_as_it_can(uint32_t member)
{
    struct muster_list *runs = &ring.members[member].group->lanes[0].runs;

    for (struct muster_list *node = runs->next; node != runs; node = node->next) {
        struct muster_run *run = MUSTER_CONTAINER_OF(node, struct muster_run, node);

        if (muster_run_is_shared(run) && run->state == MUSTER_RUN_ACTIVE)
            (void)muster_shm_step(run);
    }
}

/* The process does not run for a while, the others do. */
static void stand(uint32_t index)
{
    for (unsigned turns = 0; turns < 400; turns++)
        for (uint32_t member = 0; member < ring.count; member++)
            if (member != index && group_ring_is_living(&ring, member))
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
    seats[index].passed++;
    if (seats[index].passed == seats[index].stand_at)
        stand(index);
    if (seats[index].passed != seats[index].cut_at)
        return;
    member->is_dead = true;
    has_cut = true;
    sim_board_kill(&ring.boards, &member->self.incarnation);
}

static int32_t value_at(uint32_t member, uint64_t i)
{
    return (int32_t)((member + 1) * 1000 + i % 997);
}

static int32_t *memory_new(const struct scene *scene, uint32_t member, size_t count)
{
    void *memory = NULL;

    if (count == 0)
        return NULL;
    if (scene->is_staged)
        memory = malloc(count * sizeof(int32_t));
    else
        assert_int_equal(
            muster_board_share_new(ring.members[member].board, count * sizeof(int32_t), &memory),
            MUSTER_OK);
    assert_non_null(memory);
    memset(memory, 0x5a, count * sizeof(int32_t));
    return memory;
}

static void memory_free(const struct scene *scene, uint32_t member, int32_t *memory)
{
    if (memory == NULL)
        return;
    if (scene->is_staged)
        free(memory);
    else
        muster_board_share_free(ring.members[member].board, memory);
}

static void seat_init(const struct scene *scene, uint32_t member)
{
    struct seat *seat = &seats[member];
    bool is_gather = scene->kind == MUSTER_OP_ALL_GATHER;
    bool is_scatter = scene->kind == MUSTER_OP_REDUCE_SCATTER;

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    seat->input_count = is_scatter ? scene->n * scene->count : scene->count;
    seat->output_count = is_gather ? scene->n * scene->count : is_scatter ? scene->count : 0;
    seat->input = memory_new(scene, member, seat->input_count);
    seat->output = memory_new(scene, member, seat->output_count);
    for (size_t i = 0; i < seat->input_count; i++)
        seat->input[i] = value_at(member, i);
}

static void seat_fini(const struct scene *scene, uint32_t member)
{
    memory_free(scene, member, seats[member].input);
    memory_free(scene, member, seats[member].output);
    seats[member].input = seats[member].output = NULL;
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

    if (scene->kind == MUSTER_OP_ALL_REDUCE)
        rc = muster_all_reduce_start(&seat->op, group, &input, scene->reduction, on_done);
    else if (scene->kind == MUSTER_OP_BROADCAST)
        rc = muster_broadcast_start(&seat->op, group, &input, scene->root, on_done);
    else if (scene->kind == MUSTER_OP_ALL_GATHER)
        rc = muster_all_gather_start(&seat->op, group, &input, &output, on_done);
    else if (scene->kind == MUSTER_OP_REDUCE_SCATTER)
        rc = muster_reduce_scatter_start(&seat->op, group, &input, &output, scene->reduction,
                                         on_done);
    else if (scene->kind == MUSTER_OP_BARRIER)
        rc = muster_barrier_start(&seat->op, group, on_done);
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
        if (turns > 20000)
            fail_msg("the survivors hang");
    }
}

static void run_to_cut(uint32_t n)
{
    for (unsigned turns = 0; !has_cut && !are_survivors_done(n); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > 20000)
            fail_msg("the operation hangs");
    }
}

/* --- What is right --- */

static int32_t reduced_at(const struct scene *scene, unsigned without, uint64_t i)
{
    int64_t sum = 0, count = 0;

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
    for (uint64_t i = 0; scene->kind == MUSTER_OP_ALL_GATHER && i < seat->output_count; i++)
        assert_int_equal(seat->output[i], value_at((uint32_t)(i / scene->count), i % scene->count));
}

static void check_inputs(const struct scene *scene, uint32_t member)
{
    for (uint64_t i = 0; i < seats[member].input_count; i++)
        if (scene->kind != MUSTER_OP_BROADCAST || member == scene->root)
            assert_int_equal(seats[member].input[i], value_at(member, i));
}

static void check_survivors(const struct scene *scene, const uint32_t *victims,
                            uint32_t victim_count)
{
    const struct seat *first = NULL;

    for (uint32_t member = 0; member < scene->n; member++) {
        const struct seat *seat = &seats[member];
        unsigned without = 0;

        if (!group_ring_is_living(&ring, member))
            continue;
        if (first == NULL)
            first = seat;
        assert_int_equal(seat->done_count, 1);
        assert_int_equal(seat->rc, first->rc);
        if (seat->rc == MUSTER_OK) {
            uint32_t contributors = seat->op.result.contributor_count;

            assert_int_equal(contributors, first->op.result.contributor_count);
            assert_true(contributors <= scene->n && contributors >= scene->n - victim_count);
            for (uint32_t i = 0; i < scene->n - contributors; i++)
                without |= 1u << victims[i];
            check_result(scene, member, without);
        } else {
            assert_int_equal(seat->rc, MUSTER_ABORTED);
            check_inputs(scene, member);
        }
    }
    assert_non_null(first);
    if (first->rc != MUSTER_OK)
        aborted_count++;
    else if (first->op.result.contributor_count == scene->n)
        adopted_count++;
    else
        retried_count++;
}

/* --- Scenes --- */

static void watch_points(void)
{
    for (uint32_t member = 0; member < ring.count; member++)
        if (ring.members[member].group != NULL)
            muster_group_set_shm_failpoint(ring.members[member].group, on_point,
                                           &ring.members[member]);
}

/* The members have agreed on boards and know each other's tensors. */
static void open_scene(const struct scene *scene)
{
    bool is_settled = false;

    has_cut = false;
    group_ring_open(&ring, scene->n);
    for (unsigned turns = 0; !is_settled; turns++) {
        group_ring_turn(&ring, 1);
        is_settled = true;
        for (uint32_t member = 0; member < scene->n; member++)
            is_settled = is_settled && muster_shm_is_used(ring.members[member].group);
        assert_true(turns < 20000);
    }
    for (uint32_t member = 0; member < scene->n; member++)
        seat_init(scene, member);
    group_ring_turn(&ring, 2);
    watch_points();
}

static void close_scene(const struct scene *scene)
{
    for (uint32_t member = 0; member < scene->n; member++)
        seat_fini(scene, member);
    group_ring_close(&ring);
}

static void check_next_operation(const struct scene *scene, unsigned dead)
{
    struct scene next = {.kind = MUSTER_OP_ALL_REDUCE,
                         .reduction = MUSTER_SUM,
                         .n = scene->n,
                         .count = 300,
                         .is_staged = scene->is_staged};

    for (uint32_t member = 0; member < scene->n; member++) {
        seat_fini(scene, member);
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

static void start_all(const struct scene *scene)
{
    for (uint32_t member = 0; member < scene->n; member++)
        if (group_ring_is_living(&ring, member))
            seat_start(scene, member);
}

static void change_without(uint32_t victim)
{
    group_ring_kill(&ring, victim);
    group_ring_change(&ring, UINT32_MAX);
    watch_points();
    group_ring_turn(&ring, 2);
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

enum pace {
    PACE_AT_ONCE, /* the view changes before the survivors have looked */
    PACE_LATE,    /* … when they have got as far as they can */
    PACE_COUNT,
};

static void let_survivors_run(const struct scene *scene, enum pace pace)
{
    if (pace == PACE_AT_ONCE)
        return;
    group_ring_turn(&ring, 300);
    unasked_count += are_survivors_done(scene->n);
}

/* Returns whether the k-th point exists. */
static bool play(const struct scene *scene, uint32_t victim, unsigned k, enum pace pace)
{
    bool was_cut;

    open_scene(scene);
    seats[victim].cut_at = k;
    start_all(scene);
    run_to_cut(scene->n);
    was_cut = has_cut;
    if (was_cut) {
        let_survivors_run(scene, pace);
        change_without(victim);
        change_when_proposed(scene->n);
        run_survivors(scene->n);
        check_survivors(scene, &victim, 1);
        for (unsigned i = 0; i < next_operations; i++)
            check_next_operation(scene, 1u << victim);
    }
    close_scene(scene);
    return was_cut;
}

static void play_all(struct scene scene)
{
    for (uint32_t victim = 0; victim < scene.n; victim++) {
        unsigned points = 0;

        for (enum pace pace = 0; pace < PACE_COUNT; pace++)
            for (unsigned k = 1; play(&scene, victim, k, pace); k++)
                points++;
        assert_true(points >= 8);
    }
}

static int reset_counts(void **state)
{
    (void)state;
    adopted_count = retried_count = aborted_count = unasked_count = 0;
    return 0;
}

static void small_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 5, 0, true});
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 4, 5, 0, true});
    assert_true(adopted_count > 0 && retried_count > 0 && unasked_count > 0);
    assert_int_equal(aborted_count, 0);
}

static void all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 350, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_MEAN, 3, 500, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 500, 0, false});
    assert_true(adopted_count > 0 && retried_count > 0 && unasked_count > 0);
    assert_int_equal(aborted_count, 0);
}

/* Who was the heir of a chunk, and has another number now. */
static void all_places_on_the_board_are_used_again_after_a_death(void **state)
{
    const struct scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 500, 0, false};
    (void)state;

    next_operations = 17;
    for (unsigned k = 1; play(&scene, 1, k, PACE_LATE); k++)
        ;
    next_operations = 1;
    assert_true(adopted_count > 0);
}

static void staged_all_reduce_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 300, 0, true});
    assert_true(adopted_count > 0 && retried_count > 0 && unasked_count > 0);
}

static void reduce_scatter_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_SUM, 3, 150, 0, false});
    play_all((struct scene){MUSTER_OP_REDUCE_SCATTER, MUSTER_MEAN, 3, 3, 0, true});
    assert_true(adopted_count > 0 && aborted_count > 0 && unasked_count > 0);
    assert_int_equal(retried_count, 0);
}

static void all_gather_is_whole_or_aborted_on_all(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 150, 0, false});
    play_all((struct scene){MUSTER_OP_ALL_GATHER, MUSTER_SUM, 3, 3, 0, true});
    assert_true(adopted_count > 0 && aborted_count > 0 && unasked_count > 0);
    assert_int_equal(retried_count, 0);
}

static void broadcast_has_one_outcome_wherever_a_member_dies(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 200, 1, false});
    play_all((struct scene){MUSTER_OP_BROADCAST, MUSTER_SUM, 3, 5, 2, true});
    assert_true(adopted_count > 0 && aborted_count > 0 && retried_count > 0);
}

static void barrier_ends_for_all_survivors(void **state)
{
    (void)state;
    play_all((struct scene){MUSTER_OP_BARRIER, MUSTER_SUM, 3, 0, 0, true});
    assert_int_equal(aborted_count, 0);
}

/* --- Two deaths --- */

/* The second while the survivors finish what the first has left, before any change of view or in
 * the next epoch. Returns whether the second victim still had a k-th point. */
static bool play_twice(const struct scene *scene, const uint32_t victims[2], const unsigned k[2],
                       enum pace pace)
{
    bool was_cut;

    open_scene(scene);
    seats[victims[0]].cut_at = k[0];
    start_all(scene);
    run_to_cut(scene->n);
    assert_true(has_cut);
    has_cut = false;
    seats[victims[1]].cut_at = seats[victims[1]].passed + k[1];
    if (pace == PACE_AT_ONCE)
        change_without(victims[0]);
    for (unsigned turns = 0; turns < 300 && !has_cut; turns++)
        group_ring_turn(&ring, 1);
    was_cut = has_cut;
    if (was_cut) {
        if (pace == PACE_LATE)
            group_ring_kill(&ring, victims[0]);
        change_without(victims[1]);
        run_survivors(scene->n);
        check_survivors(scene, victims, 2);
        check_next_operation(scene, 1u << victims[0] | 1u << victims[1]);
    }
    seats[victims[1]].cut_at = 0;
    close_scene(scene);
    return was_cut;
}

static unsigned count_points(const struct scene *scene, uint32_t victim)
{
    unsigned k = 1;

    while (play(scene, victim, k, PACE_AT_ONCE))
        k++;
    return k - 1;
}

static void play_all_twice(struct scene scene, unsigned stride)
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
    play_all_twice((struct scene){MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 300, 0, false}, 2);
    assert_true(adopted_count > 0 && retried_count > 0);
    assert_int_equal(aborted_count, 0);
}

/* --- Several heirs --- */

/* Bytes that the survivors have summed. */
static uint64_t summed_bytes(uint32_t member)
{
    return seats[member].op.result.sent_bytes;
}

static void all_survivors_sum_what_the_dead_has_left(void **state)
{
    const struct scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 4096, 0, false};
    const uint32_t victim = 1;
    uint64_t bytes = scene.count * sizeof(int32_t), share = bytes / scene.n, all = 0;

    (void)state;
    open_scene(&scene);
    seats[victim].cut_at = 7; /* it has published a chunk or two */
    start_all(&scene);
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
    check_survivors(&scene, &victim, 1);
    close_scene(&scene);
}

/* So a change of view may wait for it. */
static void what_all_have_announced_ends_by_itself(void **state)
{
    const struct scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 500, 0, false};
    const uint32_t victim = 2;
    unsigned passed;

    (void)state;
    open_scene(&scene);
    assert_false(muster_group_is_finishing(ring.members[0].group));
    seat_start(&scene, 0);
    seat_start(&scene, 1);
    group_ring_turn(&ring, 20);
    assert_false(muster_group_is_finishing(ring.members[0].group));

    passed = seats[0].passed;
    seats[victim].cut_at = 12;
    seat_start(&scene, victim);
    run_to_cut(scene.n);
    assert_true(has_cut);
    for (unsigned turns = 0; turns < 100 && seats[0].passed == passed; turns++)
        group_ring_turn(&ring, 1);
    assert_true(muster_group_is_finishing(ring.members[0].group));
    let_survivors_run(&scene, PACE_LATE);

    assert_int_equal(unasked_count, 1);
    assert_false(muster_group_is_finishing(ring.members[0].group));
    change_without(victim);
    close_scene(&scene);
}

/* The k-th store after the death of another is followed by a pause. Returns whether it came. */
static bool play_with_a_pause(const struct scene *scene, uint32_t victim, unsigned cut_at,
                              uint32_t slow, unsigned k)
{
    bool has_stood;

    open_scene(scene);
    seats[victim].cut_at = cut_at;
    start_all(scene);
    run_to_cut(scene->n);
    assert_true(has_cut);
    seats[slow].stand_at = seats[slow].passed + k;
    let_survivors_run(scene, PACE_LATE);
    has_stood = seats[slow].passed >= seats[slow].stand_at;
    change_without(victim);
    run_survivors(scene->n);
    check_survivors(scene, &victim, 1);
    close_scene(scene);
    return has_stood;
}

static void an_heir_may_be_kept_from_running_anywhere(void **state)
{
    const struct scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 4, 500, 0, false};
    const uint32_t victim = 1;
    unsigned points = count_points(&scene, victim), pauses = 0;

    (void)state;
    for (unsigned cut_at = 1; cut_at <= points; cut_at += 3)
        for (uint32_t slow = 0; slow < scene.n; slow++)
            for (unsigned k = 1;
                 slow != victim && play_with_a_pause(&scene, victim, cut_at, slow, k); k++)
                pauses++;
    assert_true(pauses > 100 && adopted_count > 0);
    assert_int_equal(aborted_count, 0);
}

static void a_death_is_told_while_an_operation_waits(void **state)
{
    const struct scene scene = {
        .kind = MUSTER_OP_ALL_REDUCE, .reduction = MUSTER_SUM, .n = 3, .count = 100};
    (void)state;

    group_ring_open(&ring, scene.n);
    for (uint32_t i = 0; i < scene.n; i++)
        seat_init(&scene, i);
    group_ring_turn(&ring, 50);
    seat_start(&scene, 0);
    seat_start(&scene, 1);
    group_ring_turn(&ring, 200);
    assert_int_equal(ring.members[0].death_count, 0);
    sim_board_kill(&ring.boards, &ring.members[2].self.incarnation); /* its links are whole */
    ring.members[2].is_dead = true;
    group_ring_turn(&ring, 200);

    assert_int_equal(ring.members[0].death_count, 1);
    assert_int_equal(ring.members[1].death_count, 1);
    group_ring_change(&ring, UINT32_MAX);
    for (int i = 0; i < 1000 && seats[0].done_count + seats[1].done_count < 2; i++)
        group_ring_turn(&ring, 1);
    assert_int_equal(seats[0].rc, MUSTER_OK);
    for (uint32_t i = 0; i < scene.n; i++)
        seat_fini(&scene, i);
    group_ring_close(&ring);
}

/* What an heir has noted for the chunks of the dead must not mislead the next operation there. */
static void places_on_a_board_are_as_new_when_they_are_used_again(void **state)
{
    const struct scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 3, 500, 0, false};
    const uint32_t victim = 1;

    (void)state;
    open_scene(&scene);
    seats[victim].cut_at = 16;
    start_all(&scene);
    run_to_cut(scene.n);
    let_survivors_run(&scene, PACE_LATE);
    assert_int_equal(unasked_count, 1);
    change_without(victim);
    for (unsigned i = 0; i < 40; i++)
        check_next_operation(&scene, 1u << victim);
    close_scene(&scene);
}

static uint64_t shown_key(uint32_t member, const struct muster_op *op)
{
    const struct muster_shm_board *board =
        (const struct muster_shm_board *)(const void *)ring.members[member].board->memory;

    return board->entries[0][muster_shm_entry_index(&op->id)].ready;
}

/* The caller may write its memory again: nobody must read it as an input. */
static void an_operation_without_a_result_takes_its_announcement_back(void **state)
{
    const struct scene scene = {MUSTER_OP_ALL_REDUCE, MUSTER_SUM, 2, 500, 0, false};

    (void)state;
    open_scene(&scene);
    seat_start(&scene, 0);
    assert_int_not_equal(shown_key(0, &seats[0].op), 0);
    muster_op_cancel(&seats[0].op);
    group_ring_change(&ring, UINT32_MAX);
    group_ring_turn(&ring, 2);

    assert_int_equal(seats[0].rc, MUSTER_CANCELLED);
    assert_int_equal(shown_key(0, &seats[0].op), 0);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_told_while_an_operation_waits),
        cmocka_unit_test_setup(small_all_reduce_has_one_outcome_wherever_a_member_dies,
                               reset_counts),
        cmocka_unit_test_setup(all_reduce_has_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(all_places_on_the_board_are_used_again_after_a_death, reset_counts),
        cmocka_unit_test_setup(staged_all_reduce_has_one_outcome_wherever_a_member_dies,
                               reset_counts),
        cmocka_unit_test_setup(reduce_scatter_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(all_gather_is_whole_or_aborted_on_all, reset_counts),
        cmocka_unit_test_setup(broadcast_has_one_outcome_wherever_a_member_dies, reset_counts),
        cmocka_unit_test_setup(barrier_ends_for_all_survivors, reset_counts),
        cmocka_unit_test_setup(the_heir_of_the_dead_may_die_too, reset_counts),
        cmocka_unit_test_setup(all_survivors_sum_what_the_dead_has_left, reset_counts),
        cmocka_unit_test_setup(what_all_have_announced_ends_by_itself, reset_counts),
        cmocka_unit_test_setup(an_heir_may_be_kept_from_running_anywhere, reset_counts),
        cmocka_unit_test_setup(an_operation_without_a_result_takes_its_announcement_back,
                               reset_counts),
        cmocka_unit_test_setup(places_on_a_board_are_as_new_when_they_are_used_again, reset_counts),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
