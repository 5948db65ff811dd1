/* Operations through boards: a member is stopped before or after any store that others see, the
 * others go on without it, and it wakes while they work or later. */
#include "group_ring.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "collective/group/shm/shm_internal.h"

#define GARBAGE 0x5b

/* How the others come to go on without the member that is stopped. */
enum parting {
    PARTING_VIEW,     /* a change of view leaves it out; it hears of it when it wakes … */
    PARTING_LATE,     /* … or when it has done what it can */
    PARTING_DEADLINE, /* they have waited long enough; the view has it still */
    PARTING_COUNT,
};

struct scene {
    enum muster_op_kind kind;
    uint32_t n;
    uint64_t count;  /* elements of one tensor or part, int32 */
    bool is_staged;  /* ordinary memory instead of shared tensors */
    uint32_t victim; /* of a broadcast: rank 0 is the root */
    enum parting parting;
    unsigned stopped_at; /* the victim's k-th store */
    unsigned rounds;     /* of the others, until it wakes */
    unsigned woken_at;   /* … or another's store at which it goes on for so many of its own */
};

struct seat {
    struct muster_op op;
    int32_t *input, *output;
    size_t input_count, output_count;
    unsigned done_count, passed;
    bool is_started, is_checked;
};

static struct group_ring ring;
static struct scene scene;
static struct seat seats[GROUP_RING_MAX];
static struct muster_group *victim_group;
static bool has_stopped;
static unsigned ok_count, torn_count, whole_count, retried_count;

/* --- Memory --- */

static int32_t value_at(uint32_t member, uint64_t i)
{
    return (int32_t)((member + 1) * 1000 + i % 997);
}

static int32_t *memory_new(uint32_t member, size_t count)
{
    void *memory = NULL;

    if (count == 0)
        return NULL;
    if (scene.is_staged)
        memory = malloc(count * sizeof(int32_t));
    else
        assert_int_equal(
            muster_board_share_new(ring.members[member].board, count * sizeof(int32_t), &memory),
            MUSTER_OK);
    assert_non_null(memory);
    memset(memory, GARBAGE, count * sizeof(int32_t));
    return memory;
}

static void memory_free(uint32_t member, int32_t *memory)
{
    if (scene.is_staged)
        free(memory);
    else if (memory != NULL)
        muster_board_share_free(ring.members[member].board, memory);
}

/* --- What is right --- */

static bool is_without(const struct muster_op *op, uint32_t member)
{
    return member == scene.victim && op->result.contributor_count < scene.n;
}

static int32_t sum_at(const struct muster_op *op, uint64_t i)
{
    int32_t sum = 0;

    for (uint32_t member = 0; member < scene.n; member++)
        if (!is_without(op, member))
            sum += value_at(member, i);
    return sum;
}

static void check_result(const struct seat *seat, uint32_t member)
{
    for (uint64_t i = 0; i < scene.count; i++) {
        if (scene.kind == MUSTER_OP_ALL_REDUCE)
            assert_int_equal(seat->input[i], sum_at(&seat->op, i));
        else if (scene.kind == MUSTER_OP_BROADCAST)
            assert_int_equal(seat->input[i], value_at(0, i));
        else if (scene.kind == MUSTER_OP_REDUCE_SCATTER)
            assert_int_equal(seat->output[i], sum_at(&seat->op, member * scene.count + i));
    }
    for (uint64_t i = 0; scene.kind == MUSTER_OP_ALL_GATHER && i < seat->output_count; i++)
        assert_int_equal(seat->output[i], value_at((uint32_t)(i / scene.count), i % scene.count));
}

static void check_input(const struct seat *seat, uint32_t member)
{
    bool is_input = scene.kind != MUSTER_OP_BROADCAST || member == 0;

    for (uint64_t i = 0; is_input && i < seat->input_count; i++)
        assert_int_equal(seat->input[i], value_at(member, i));
}

/* The memory is the caller's again: it writes. */
static void take_back(uint32_t member)
{
    struct seat *seat = &seats[member];

    if (seat->is_checked)
        return;
    seat->is_checked = true;
    if (seat->op.error.rc == MUSTER_OK)
        check_result(seat, member);
    else if (!seat->op.result.is_torn)
        check_input(seat, member);
    memset(seat->input, GARBAGE, seat->input_count * sizeof(int32_t));
    if (seat->output_count > 0)
        memset(seat->output, GARBAGE, seat->output_count * sizeof(int32_t));
}

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    assert_int_equal(op->error.rc, rc);
    seat->done_count++;
    take_back((uint32_t)(seat - seats));
}

/* --- The others, while the victim stands still in the middle of a turn --- */

static void poll_others(void)
{
    for (uint32_t member = 0; member < scene.n; member++) {
        struct muster_group *group = ring.members[member].group;

        if (member == scene.victim || group == NULL)
            continue;
        group->shm_poller.on_poll(&group->shm_poller);
        if (seats[member].is_started && seats[member].op.impl == NULL)
            take_back(member);
    }
}

static void leave_victim(void)
{
    for (uint32_t member = 0; member < scene.n; member++) {
        struct muster_run *run = seats[member].op.impl;

        if (member != scene.victim && run != NULL && muster_shm_is_sure(run))
            muster_shm_leave_stalled(run);
    }
}

/* Two looks of each, with everybody's turn between. */
static void wait_in_vain(void)
{
    for (unsigned look = 0; look < 3; look++) {
        leave_victim();
        poll_others();
    }
}

static void on_point(void *data, const char *point);

static void watch_points(void)
{
    for (uint32_t member = 0; member < scene.n; member++)
        if (ring.members[member].group != NULL)
            muster_group_set_shm_failpoint(ring.members[member].group, on_point,
                                           &ring.members[member]);
}

static void change_view(void)
{
    group_ring_decide(&ring, UINT32_MAX);
    for (uint32_t member = 0; member < scene.n; member++)
        if (member != scene.victim)
            group_ring_follow(&ring, member);
    watch_points();
}

static void while_stopped(void)
{
    victim_group = ring.members[scene.victim].group;
    ring.members[scene.victim].group = NULL;
    for (unsigned round = 0; round < 200; round++)
        poll_others();
    if (scene.parting == PARTING_DEADLINE)
        wait_in_vain();
    else
        change_view();
    for (unsigned round = 0; round < scene.rounds; round++)
        poll_others();
}

/* --- The victim moves store by store, in a thread of its own: never beside the others --- */

static pthread_t walker;
static sem_t walker_may_go, walker_stands;
static bool is_walking, is_walker_free; /* it exists; it stops at no store any more */
static unsigned others_passed;

static void *walk(void *data)
{
    (void)data;
    sem_wait(&walker_may_go);
    while (!is_walker_free) {
        struct muster_group *group =
            victim_group != NULL ? victim_group : ring.members[scene.victim].group;

        group->shm_poller.on_poll(&group->shm_poller);
        sem_post(&walker_stands);
        sem_wait(&walker_may_go);
    }
    return NULL;
}

/* To its next store, or to the end of its turn. */
static void walk_on(void)
{
    sem_post(&walker_may_go);
    sem_wait(&walker_stands);
}

static void start_walking(void)
{
    is_walking = true;
    is_walker_free = false;
    others_passed = 0;
    sem_init(&walker_may_go, 0, 0);
    sem_init(&walker_stands, 0, 0);
    assert_int_equal(pthread_create(&walker, NULL, walk, NULL), 0);
}

/* It goes to the end of its turn. */
static void stop_walking(void)
{
    is_walker_free = true;
    sem_post(&walker_may_go); /* from its store, … */
    sem_post(&walker_may_go); /* … and from its turn */
    pthread_join(walker, NULL);
    sem_destroy(&walker_may_go);
    sem_destroy(&walker_stands);
    is_walking = false;
}

static void pass_walking(const struct group_ring_member *member)
{
    if (pthread_equal(pthread_self(), walker)) {
        if (is_walker_free)
            return;
        sem_post(&walker_stands);
        sem_wait(&walker_may_go);
    } else if (member->self.task_index != scene.victim && victim_group != NULL &&
               ++others_passed == scene.woken_at) {
        for (unsigned i = 0; i < scene.rounds; i++)
            walk_on();
    }
}

static void on_point(void *data, const char *point)
{
    const struct group_ring_member *member = data;

    (void)point;
    if (is_walking) {
        pass_walking(member);
        return;
    }
    if (member->self.task_index != scene.victim || has_stopped ||
        ++seats[scene.victim].passed != scene.stopped_at)
        return;
    has_stopped = true;
    while_stopped();
}

/* --- Playing --- */

static void seat_init(uint32_t member)
{
    struct seat *seat = &seats[member];
    bool is_gather = scene.kind == MUSTER_OP_ALL_GATHER;
    bool is_scatter = scene.kind == MUSTER_OP_REDUCE_SCATTER;

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    seat->input_count = is_scatter ? scene.n * scene.count : scene.count;
    seat->output_count = is_gather ? scene.n * scene.count : is_scatter ? scene.count : 0;
    seat->input = memory_new(member, seat->input_count);
    seat->output = memory_new(member, seat->output_count);
    for (size_t i = 0; i < seat->input_count; i++)
        seat->input[i] = value_at(member, i);
}

static void seat_start(uint32_t member)
{
    struct seat *seat = &seats[member];
    struct muster_group *group = ring.members[member].group;
    struct muster_tensor input = {
        .data = seat->input, .count = seat->input_count, .dtype = MUSTER_I32};
    struct muster_tensor output = {
        .data = seat->output, .count = seat->output_count, .dtype = MUSTER_I32};
    enum muster_rc rc = MUSTER_INTERNAL;

    if (scene.kind == MUSTER_OP_ALL_REDUCE)
        rc = muster_all_reduce_start(&seat->op, group, &input, MUSTER_SUM, on_done);
    else if (scene.kind == MUSTER_OP_BROADCAST)
        rc = muster_broadcast_start(&seat->op, group, &input, 0, on_done);
    else if (scene.kind == MUSTER_OP_ALL_GATHER)
        rc = muster_all_gather_start(&seat->op, group, &input, &output, on_done);
    else if (scene.kind == MUSTER_OP_REDUCE_SCATTER)
        rc = muster_reduce_scatter_start(&seat->op, group, &input, &output, MUSTER_SUM, on_done);
    assert_int_equal(rc, MUSTER_OK);
    seat->is_started = true;
}

static bool are_boards_used(void)
{
    for (uint32_t member = 0; member < scene.n; member++)
        if (!muster_shm_is_used(ring.members[member].group))
            return false;
    return true;
}

static void open_scene(void)
{
    has_stopped = false;
    victim_group = NULL;
    group_ring_open(&ring, scene.n);
    for (unsigned turns = 0; !are_boards_used(); turns++) {
        group_ring_turn(&ring, 1);
        assert_true(turns < 20000);
    }
    for (uint32_t member = 0; member < scene.n; member++)
        seat_init(member);
    group_ring_turn(&ring, 2);
    watch_points();
}

static bool are_done(bool has_victim)
{
    for (uint32_t member = 0; member < scene.n; member++)
        if (seats[member].done_count == 0 && (has_victim || member != scene.victim))
            return false;
    return true;
}

static void turn_until_done(bool has_victim, const char *what)
{
    for (unsigned turns = 0; !are_done(has_victim); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > 5000)
            fail_msg("%s: store %u, %u rounds, parting %d", what, scene.stopped_at, scene.rounds,
                     (int)scene.parting);
    }
}

/* It learns that it is out; its group closes when its operation has ended. */
static void tell_victim(void)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "left out of the view"};

    if (scene.parting == PARTING_DEADLINE) {
        turn_until_done(true, "the members hang");
        change_view();
    } else if (scene.parting == PARTING_LATE) {
        group_ring_turn(&ring, 50);
    }
    muster_group_abort_all(victim_group, &why);
    muster_group_leave(victim_group);
}

static void check_next_operation(void)
{
    const struct scene before = scene;

    for (uint32_t member = 0; member < scene.n; member++) {
        memory_free(member, seats[member].input);
        memory_free(member, seats[member].output);
    }
    scene.kind = MUSTER_OP_ALL_REDUCE;
    for (uint32_t member = 0; member < scene.n; member++) {
        seat_init(member);
        if (member != scene.victim)
            seat_start(member);
    }
    turn_until_done(false, "the next operation hangs");
    for (uint32_t member = 0; member < scene.n; member++)
        assert_true(member == scene.victim || seats[member].op.error.rc == MUSTER_OK);
    scene = before;
}

static void check_outcome(void)
{
    const struct muster_op *victim = &seats[scene.victim].op, *first = NULL;

    for (uint32_t member = 0; member < scene.n; member++) {
        const struct seat *seat = &seats[member];

        assert_int_equal(seat->done_count, 1);
        if (member == scene.victim)
            continue;
        if (first == NULL)
            first = &seat->op;
        assert_int_equal(seat->op.error.rc, first->error.rc);
        assert_false(seat->op.result.is_torn);
        if (first->error.rc == MUSTER_OK)
            assert_int_equal(seat->op.result.contributor_count, first->result.contributor_count);
    }
    if (first->error.rc == MUSTER_OK && first->result.contributor_count == scene.n)
        ok_count++;
    else if (first->error.rc == MUSTER_OK)
        retried_count++;
    if (victim->error.rc == MUSTER_OK) {
        assert_int_equal(first->error.rc, MUSTER_OK);
        assert_int_equal(first->result.contributor_count, scene.n);
        whole_count++;
    }
    torn_count += victim->result.is_torn;
}

static void finish_scene(void)
{
    for (uint32_t member = 0; member < scene.n; member++) {
        memory_free(member, seats[member].input);
        memory_free(member, seats[member].output);
    }
    group_ring_close(&ring);
}

/* Returns whether the victim has so many stores. */
static bool play(void)
{
    open_scene();
    for (uint32_t i = 1; i <= scene.n; i++) /* the victim comes last: it may stop while it starts */
        seat_start((scene.victim + i) % scene.n);
    for (unsigned turns = 0; !has_stopped && !are_done(true); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_true(turns < 20000);
    }
    if (has_stopped) {
        tell_victim();
        turn_until_done(false, "the survivors hang");
        turn_until_done(true, "the victim hangs");
        check_outcome();
        check_next_operation();
    }
    finish_scene();
    return has_stopped;
}

/* The victim stops after some stores, and goes on for some at a store of one who works without it.
 * Returns whether the others have so many; *ret_is_over: the victim has not. */
static bool play_walking(bool *ret_is_over)
{
    open_scene();
    has_stopped = true; /* not where it starts */
    for (uint32_t i = 0; i < scene.n; i++)
        seat_start((scene.victim + i) % scene.n);
    start_walking();
    for (unsigned i = 0; i < scene.stopped_at; i++) {
        poll_others();
        walk_on();
    }
    *ret_is_over = seats[scene.victim].op.impl == NULL;
    while_stopped();
    for (unsigned round = 0; round < 200; round++)
        poll_others();
    stop_walking();
    tell_victim();
    turn_until_done(false, "the survivors hang");
    turn_until_done(true, "the victim hangs");
    check_outcome();
    finish_scene();
    return others_passed >= scene.woken_at;
}

static void play_all_walking(struct scene of)
{
    bool is_over = false;

    for (enum parting parting = 0; parting < PARTING_COUNT; parting++, is_over = false)
        for (unsigned stopped_at = 0; !is_over && stopped_at < 200; stopped_at++)
            for (unsigned rounds = 1; rounds <= 4; rounds++) {
                scene = of;
                scene.parting = parting;
                scene.stopped_at = stopped_at;
                scene.rounds = rounds;
                scene.woken_at = 1;
                while (play_walking(&is_over) && scene.woken_at < 200)
                    scene.woken_at++;
            }
}

static void play_all(struct scene of)
{
    static const unsigned rounds[] = {0, 1, 3, 300};

    for (uint32_t victim = 0; victim < of.n; victim++)
        for (enum parting parting = 0; parting < PARTING_COUNT; parting++)
            for (size_t r = 0; r < sizeof(rounds) / sizeof(rounds[0]); r++) {
                unsigned k = 1;

                do {
                    scene = of;
                    scene.victim = victim;
                    scene.parting = parting;
                    scene.rounds = rounds[r];
                    scene.stopped_at = k;
                } while (play() && k++ < 1000);
                assert_true(k > 4);
            }
}

static int reset_counts(void **state)
{
    (void)state;
    ok_count = retried_count = torn_count = whole_count = 0;
    return 0;
}

static void all_reduce_of_two_ends_well_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 350});
    assert_true(ok_count > 0 && retried_count > 0 && torn_count > 0 && whole_count > 0);
}

static void all_reduce_ends_well_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){.kind = MUSTER_OP_ALL_REDUCE, .n = 3, .count = 500});
    assert_true(ok_count > 0 && retried_count > 0 && torn_count > 0 && whole_count > 0);
}

static void staged_all_reduce_ends_well_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){.kind = MUSTER_OP_ALL_REDUCE, .n = 3, .count = 300, .is_staged = true});
    assert_true(ok_count > 0 && retried_count > 0 && torn_count > 0);
}

static void other_kinds_end_alike_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){.kind = MUSTER_OP_BROADCAST, .n = 3, .count = 200});
    play_all((struct scene){.kind = MUSTER_OP_ALL_GATHER, .n = 3, .count = 150});
    play_all((struct scene){.kind = MUSTER_OP_REDUCE_SCATTER, .n = 3, .count = 150});
    assert_true(ok_count > 0);
    assert_int_equal(torn_count, 0);
}

static void who_goes_on_in_the_middle_of_the_work_of_others_disturbs_nobody(void **state)
{
    (void)state;
    play_all_walking((struct scene){.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 200});
    play_all_walking(
        (struct scene){.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 200, .victim = 1});
    assert_true(ok_count > 0 && torn_count > 0 && whole_count > 0);
}

/* --- Real deadlines --- */

/* The victim has no turn from its start on, or from one of its turns on. */
static void play_deadline(unsigned turns_before)
{
    open_scene();
    has_stopped = true;
    for (uint32_t i = 0; i < scene.n; i++) {
        uint32_t member = (scene.victim + i) % scene.n;

        ring.members[member].group->abort_grace_ns = 5 * MUSTER_NS_PER_MS;
        if (member != scene.victim)
            seats[member].op.deadline_ns =
                muster_loop_after_ns(ring.test.env.loop, MUSTER_NS_PER_MS);
        seat_start(member);
    }
    for (unsigned turn = 0; turn < turns_before; turn++) {
        struct muster_group *group = ring.members[scene.victim].group;

        group->shm_poller.on_poll(&group->shm_poller);
        poll_others();
    }
    muster_poller_stop(&ring.members[scene.victim].group->shm_poller);
    turn_until_done(false, "the deadline does not help");
    for (uint32_t member = 0; member < scene.n; member++) {
        assert_int_equal(ring.members[member].abort_count, 0); /* nothing is to be decided */
        assert_true(member == scene.victim || seats[member].op.error.rc == MUSTER_OK);
    }

    muster_shm_drive(ring.members[scene.victim].group);
    turn_until_done(true, "the victim hangs");

    if (seats[scene.victim].op.error.rc != MUSTER_OK) {
        assert_int_equal(seats[scene.victim].op.error.rc, MUSTER_ABORTED);
        assert_non_null(strstr(seats[scene.victim].op.error.text, "went on without this rank"));
        assert_int_equal(ring.members[scene.victim].expired_count, 1);
    }
    check_outcome();
    finish_scene();
}

static void a_deadline_leaves_behind_who_has_no_turn(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 3; victim++)
        for (unsigned turns = 0; turns < 4; turns++) {
            scene = (struct scene){
                .kind = MUSTER_OP_ALL_REDUCE, .n = 3, .count = 5000, .victim = victim};
            play_deadline(turns);
        }
    assert_int_equal(ok_count, 12);
    assert_true(torn_count < 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_reduce_of_two_ends_well_without_the_one_that_is_stopped,
                               reset_counts),
        cmocka_unit_test_setup(all_reduce_ends_well_without_the_one_that_is_stopped, reset_counts),
        cmocka_unit_test_setup(staged_all_reduce_ends_well_without_the_one_that_is_stopped,
                               reset_counts),
        cmocka_unit_test_setup(other_kinds_end_alike_without_the_one_that_is_stopped, reset_counts),
        cmocka_unit_test_setup(a_deadline_leaves_behind_who_has_no_turn, reset_counts),
        cmocka_unit_test_setup(who_goes_on_in_the_middle_of_the_work_of_others_disturbs_nobody,
                               reset_counts),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
