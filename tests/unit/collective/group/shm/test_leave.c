/* Operations through boards: a member is stopped before or after any store that others see, the
 * others go on without it, and it wakes while they work or later. */
#include "op_scene.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "collective/group/shm/shm_internal.h"

#define GARBAGE 0x5b

/* How the others come to go on without the member that is stopped. */
enum parting {
    PARTING_VIEW,     /* a change of view leaves it out; it hears of it when it wakes … */
    PARTING_LATE,     /* … or when it has done what it can */
    PARTING_DEADLINE, /* they have waited long enough; the view has it still */
    PARTING_COUNT,
    PARTING_CLOSE = PARTING_COUNT, /* they end instead; of a case of its own */
};

struct scene {
    struct op_scene op; /* a sum; of a broadcast: rank 0 is the root */
    uint32_t victim;
    enum parting parting;
    unsigned stopped_at; /* the victim's k-th store */
    unsigned rounds;     /* of the others, until it wakes */
    unsigned woken_at;   /* … or another's store at which it goes on for so many of its own */
};

static struct scene scene;
static struct muster_group *victim_group;
static bool has_stopped;
static unsigned ok_count, torn_count, whole_count, retried_count;

/* --- Outcomes --- */

static unsigned missing_of(const struct muster_op *op)
{
    return op->result.contributor_count < scene.op.n ? 1u << scene.victim : 0;
}

/* The memory is the caller's again: it writes. */
static void take_back(uint32_t member)
{
    struct op_seat *seat = &op_seats[member];

    if (seat->is_checked)
        return;
    seat->is_checked = true;
    if (seat->op.error.rc == MUSTER_OK)
        op_scene_check_result(&scene.op, member, missing_of(&seat->op));
    else if (!seat->op.result.is_torn)
        op_scene_check_input(&scene.op, member);
    memset(seat->input, GARBAGE, seat->input_count * sizeof(int32_t));
    if (seat->output_count > 0)
        memset(seat->output, GARBAGE, seat->output_count * sizeof(int32_t));
}

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct op_seat *seat = op->data;

    assert_int_equal(op->error.rc, rc);
    seat->done_count++;
    take_back((uint32_t)(seat - op_seats));
}

/* --- The others, while the victim stands still in the middle of a turn --- */

/* Staging areas that no operation has may be the next one's at any time. */
static void scrub_stages(struct muster_board *board)
{
    struct muster_shm_stage *stages = muster_shm_board_of(board)->idle_stages;

    for (unsigned i = 0; i < SHM_STAGES_IDLE_MAX; i++)
        if (stages[i].at != NULL)
            memset(stages[i].at, GARBAGE, stages[i].bytes);
}

static void poll_others(void)
{
    for (uint32_t member = 0; member < scene.op.n; member++) {
        struct muster_group *group = op_ring.members[member].group;

        if (member == scene.victim || group == NULL)
            continue;
        group->shm_poller.on_poll(&group->shm_poller);
        scrub_stages(op_ring.members[member].board);
        if (op_seats[member].is_started && op_seats[member].op.impl == NULL)
            take_back(member);
    }
}

static void leave_victim(void)
{
    for (uint32_t member = 0; member < scene.op.n; member++) {
        struct muster_run *run = op_seats[member].op.impl;

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
    for (uint32_t member = 0; member < scene.op.n; member++)
        if (op_ring.members[member].group != NULL)
            muster_group_set_shm_failpoint(op_ring.members[member].group, on_point,
                                           &op_ring.members[member]);
}

static void change_view(void)
{
    group_ring_decide(&op_ring, UINT32_MAX);
    for (uint32_t member = 0; member < scene.op.n; member++)
        if (member != scene.victim)
            group_ring_follow(&op_ring, member);
    watch_points();
}

static void close_others(void);

static void while_stopped(void)
{
    if (scene.parting == PARTING_CLOSE) {
        close_others();
        return;
    }
    victim_group = op_ring.members[scene.victim].group;
    op_ring.members[scene.victim].group = NULL;
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

static void *walk_points(void *data)
{
    (void)data;
    sem_wait(&walker_may_go);
    while (!is_walker_free) {
        struct muster_group *group =
            victim_group != NULL ? victim_group : op_ring.members[scene.victim].group;

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
    assert_int_equal(pthread_create(&walker, NULL, walk_points, NULL), 0);
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
        ++op_seats[scene.victim].passed != scene.stopped_at)
        return;
    has_stopped = true;
    while_stopped();
}

/* --- Playing --- */

static void seat_start(uint32_t member)
{
    assert_int_equal(op_seat_try_start(&scene.op, member, on_done), MUSTER_OK);
    op_seats[member].is_started = true;
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
    has_stopped = false;
    victim_group = NULL;
    group_ring_open(&op_ring, scene.op.n);
    for (unsigned turns = 0; !are_boards_used(); turns++) {
        group_ring_turn(&op_ring, 1);
        assert_true(turns < 20000);
    }
    for (uint32_t member = 0; member < scene.op.n;
         member++) /* nobody waits long for who has ended */
        op_ring.members[member].group->abort_grace_ns = 20 * MUSTER_NS_PER_MS;
    op_scene_init(&scene.op);
    group_ring_turn(&op_ring, 2);
    watch_points();
}

static bool are_done(bool has_victim)
{
    for (uint32_t member = 0; member < scene.op.n; member++)
        if (op_seats[member].done_count == 0 && (has_victim || member != scene.victim))
            return false;
    return true;
}

static void turn_until_done(bool has_victim, const char *what)
{
    for (unsigned turns = 0; !are_done(has_victim); turns++) {
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
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
        group_ring_turn(&op_ring, 50);
    }
    muster_group_abort_all(victim_group, &why);
    muster_group_leave(victim_group);
}

static void check_next_operation(void)
{
    const struct scene before = scene;

    for (uint32_t member = 0; member < scene.op.n; member++)
        op_seat_fini(member);
    scene.op.kind = MUSTER_OP_ALL_REDUCE;
    for (uint32_t member = 0; member < scene.op.n; member++) {
        op_seat_init(&scene.op, member);
        if (member != scene.victim)
            seat_start(member);
    }
    turn_until_done(false, "the next operation hangs");
    for (uint32_t member = 0; member < scene.op.n; member++)
        assert_true(member == scene.victim || op_seats[member].op.error.rc == MUSTER_OK);
    scene = before;
}

static void check_outcome(void)
{
    const struct muster_op *victim = &op_seats[scene.victim].op, *first = NULL;

    for (uint32_t member = 0; member < scene.op.n; member++) {
        const struct op_seat *seat = &op_seats[member];

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
    if (first->error.rc == MUSTER_OK && first->result.contributor_count == scene.op.n)
        ok_count++;
    else if (first->error.rc == MUSTER_OK)
        retried_count++;
    if (victim->error.rc == MUSTER_OK) {
        assert_int_equal(first->error.rc, MUSTER_OK);
        assert_int_equal(first->result.contributor_count, scene.op.n);
        whole_count++;
    }
    torn_count += victim->result.is_torn;
}

/* Returns whether the victim has so many stores. */
static bool play_scene(void)
{
    open_scene();
    for (uint32_t i = 1; i <= scene.op.n;
         i++) /* the victim comes last: it may stop while it starts */
        seat_start((scene.victim + i) % scene.op.n);
    for (unsigned turns = 0; !has_stopped && !are_done(true); turns++) {
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_true(turns < 20000);
    }
    if (has_stopped) {
        tell_victim();
        turn_until_done(false, "the survivors hang");
        turn_until_done(true, "the victim hangs");
        check_outcome();
        check_next_operation();
    }
    op_scene_close(&scene.op);
    return has_stopped;
}

/* Staging areas are mapped by the others in turns of the loop, and a walk has none: an operation before it has
 * made them. */
static void map_stages(void)
{
    for (uint32_t member = 0; member < scene.op.n; member++)
        seat_start(member);
    turn_until_done(true, "the first operation hangs");
    for (uint32_t member = 0; member < scene.op.n; member++) {
        op_seat_fini(member);
        op_seat_init(&scene.op, member);
    }
}

/* The victim stops after some stores, and goes on for some at a store of one who works without it.
 * Returns whether the others have so many; *ret_is_over: the victim has not. */
static bool play_walking(bool *ret_is_over)
{
    open_scene();
    has_stopped = true; /* not where it starts */
    if (scene.op.is_staged)
        map_stages();
    for (uint32_t i = 0; i < scene.op.n; i++)
        seat_start((scene.victim + i) % scene.op.n);
    start_walking();
    for (unsigned i = 0; i < scene.stopped_at; i++) {
        poll_others();
        walk_on();
    }
    *ret_is_over = op_seats[scene.victim].op.impl == NULL;
    while_stopped();
    for (unsigned round = 0; round < 200; round++)
        poll_others();
    stop_walking();
    tell_victim();
    turn_until_done(false, "the survivors hang");
    turn_until_done(true, "the victim hangs");
    check_outcome();
    op_scene_close(&scene.op);
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

    for (uint32_t victim = 0; victim < of.op.n; victim++)
        for (enum parting parting = 0; parting < PARTING_COUNT; parting++)
            for (size_t r = 0; r < sizeof(rounds) / sizeof(rounds[0]); r++) {
                unsigned k = 1;

                do {
                    scene = of;
                    scene.victim = victim;
                    scene.parting = parting;
                    scene.rounds = rounds[r];
                    scene.stopped_at = k;
                } while (play_scene() && k++ < 1000);
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
    play_all((struct scene){.op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 350}});
    assert_true(ok_count > 0 && retried_count > 0 && torn_count > 0 && whole_count > 0);
}

static void all_reduce_ends_well_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){.op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 3, .count = 500}});
    assert_true(ok_count > 0 && retried_count > 0 && torn_count > 0 && whole_count > 0);
}

static void staged_all_reduce_ends_well_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){
        .op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 3, .count = 300, .is_staged = true}});
    assert_true(ok_count > 0 && retried_count > 0 && torn_count > 0);
}

/* The copies stay as they are, so nobody's tensor is torn. */
static void staged_all_reduce_of_two_ends_well_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){
        .op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 350, .is_staged = true}});
    assert_true(ok_count > 0 && retried_count > 0 && whole_count > 0);
    assert_int_equal(torn_count, 0);
}

static void other_kinds_end_alike_without_the_one_that_is_stopped(void **state)
{
    (void)state;
    play_all((struct scene){.op = {.kind = MUSTER_OP_BROADCAST, .n = 3, .count = 200}});
    play_all((struct scene){.op = {.kind = MUSTER_OP_ALL_GATHER, .n = 3, .count = 150}});
    play_all((struct scene){.op = {.kind = MUSTER_OP_REDUCE_SCATTER, .n = 3, .count = 150}});
    assert_true(ok_count > 0);
    assert_int_equal(torn_count, 0);
}

static void who_goes_on_in_the_middle_of_the_work_of_others_disturbs_nobody(void **state)
{
    (void)state;
    play_all_walking((struct scene){.op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 200}});
    play_all_walking(
        (struct scene){.op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 200}, .victim = 1});
    assert_true(ok_count > 0 && torn_count > 0 && whole_count > 0);
}

static void who_goes_on_amid_the_copies_of_others_disturbs_nobody(void **state)
{
    const struct op_scene staged = {
        .kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 350, .is_staged = true};
    (void)state;

    play_all_walking((struct scene){.op = staged});
    play_all_walking((struct scene){.op = staged, .victim = 1});
    assert_true(ok_count > 0 && whole_count > 0);
    assert_int_equal(torn_count, 0);
}

/* --- The others end --- */

static void close_group(struct muster_group *group)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "the process ends"};

    muster_group_abort_all(group, &why);
    muster_group_close(group);
}

/* Their processes end: nobody waits for the victim to read. */
static void close_others(void)
{
    victim_group = op_ring.members[scene.victim].group;
    op_ring.members[scene.victim].group = NULL;
    for (unsigned round = 0; round < 200; round++)
        poll_others();
    for (uint32_t member = 0; member < scene.op.n; member++) {
        struct muster_group *group = op_ring.members[member].group;

        op_ring.members[member].group = NULL;
        if (member == scene.victim)
            continue;
        close_group(group);
        take_back(member);
    }
}

/* Returns whether the victim has so many stores. */
static bool play_closing(void)
{
    const struct muster_op *other;

    open_scene();
    for (uint32_t i = 1; i <= scene.op.n; i++)
        seat_start((scene.victim + i) % scene.op.n);
    for (unsigned turns = 0; !has_stopped && !are_done(true); turns++) {
        muster_loop_turn(op_ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_true(turns < 20000);
    }
    if (has_stopped) {
        group_ring_turn(&op_ring, 50); /* as far as it comes */
        close_group(victim_group);
        turn_until_done(true, "the victim hangs");
        other = &op_seats[1 - scene.victim].op;
        assert_true((other->error.rc == MUSTER_OK) ==
                    (other->result.verdict != MUSTER_VERDICT_ABORTED));
        ok_count += other->error.rc == MUSTER_OK;
        torn_count += op_seats[scene.victim].op.result.is_torn;
        whole_count += op_seats[scene.victim].op.error.rc == MUSTER_OK;
    }
    op_scene_close(&scene.op);
    return has_stopped;
}

static void play_all_closing(const struct scene of)
{
    for (uint32_t victim = 0; victim < of.op.n; victim++) {
        unsigned k = 1;

        do {
            scene = of;
            scene.victim = victim;
            scene.stopped_at = k;
        } while (play_closing() && k++ < 1000);
        assert_true(k > 4);
    }
}

static void what_a_member_that_closes_takes_back_is_no_result(void **state)
{
    struct scene of = {.op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 2, .count = 350},
                       .parting = PARTING_CLOSE};

    (void)state;
    play_all_closing(of);
    assert_true(ok_count > 0 && torn_count > 0 && whole_count > 0);
    (void)reset_counts(state);
    of.op.is_staged = true;
    play_all_closing(of);
    assert_true(ok_count > 0 && whole_count > 0);
    assert_int_equal(torn_count, 0);
}

/* --- Real deadlines --- */

/* The victim has no turn from its start on, or from one of its turns on. */
static void play_deadline(unsigned turns_before)
{
    open_scene();
    has_stopped = true;
    for (uint32_t i = 0; i < scene.op.n; i++) {
        uint32_t member = (scene.victim + i) % scene.op.n;

        op_ring.members[member].group->abort_grace_ns = 5 * MUSTER_NS_PER_MS;
        if (member != scene.victim)
            op_seats[member]
                .op.deadline_ns = /* not over before it begins, on a busy machine either */
                muster_loop_after_ns(op_ring.test.env.loop, 50 * MUSTER_NS_PER_MS);
        seat_start(member);
    }
    for (unsigned turn = 0; turn < turns_before; turn++) {
        struct muster_group *group = op_ring.members[scene.victim].group;

        group->shm_poller.on_poll(&group->shm_poller);
        poll_others();
    }
    muster_poller_stop(&op_ring.members[scene.victim].group->shm_poller);
    turn_until_done(false, "the deadline does not help");
    for (uint32_t member = 0; member < scene.op.n; member++) {
        assert_int_equal(op_ring.members[member].abort_count, 0); /* nothing is to be decided */
        assert_true(member == scene.victim || op_seats[member].op.error.rc == MUSTER_OK);
    }

    muster_shm_drive(op_ring.members[scene.victim].group);
    turn_until_done(true, "the victim hangs");

    if (op_seats[scene.victim].op.error.rc != MUSTER_OK) {
        assert_int_equal(op_seats[scene.victim].op.error.rc, MUSTER_ABORTED);
        assert_non_null(strstr(op_seats[scene.victim].op.error.text, "went on without this rank"));
        assert_int_equal(op_ring.members[scene.victim].expired_count, 1);
    }
    check_outcome();
    op_scene_close(&scene.op);
}

static void a_deadline_leaves_behind_who_has_no_turn(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 3; victim++)
        for (unsigned turns = 0; turns < 4; turns++) {
            scene = (struct scene){.op = {.kind = MUSTER_OP_ALL_REDUCE, .n = 3, .count = 5000},
                                   .victim = victim};
            play_deadline(turns);
        }
    assert_int_equal(ok_count, 12);
    assert_true(torn_count < 12);
}

/* --- Announcements that are missing --- */

static uint64_t played_now_ns;

static uint64_t now_ns(const struct muster_loop *loop)
{
    (void)loop;
    return played_now_ns;
}

/* Another process has lost its processor in muster_shm_hold, while this one polls. */
static void an_announcement_is_gone_after_a_time_and_not_after_looks(void **state)
{
    static const struct muster_loop_ops ops = {.now_ns = now_ns};
    struct muster_loop loop = {.ops = &ops};
    struct muster_env env = {.loop = &loop};
    struct muster_group group = {.env = &env, .abort_grace_ns = 2 * MUSTER_NS_PER_S};
    struct muster_shm_entry entry = {.ready = 0};
    struct muster_shm_participant participant = {.entry = &entry};
    struct muster_shm_run shm = {.n = 1, .key = 7, .participants = &participant};
    struct muster_run run = {
        .group = &group, .executor = &shm, .state = MUSTER_RUN_ACTIVE, .mode = MUSTER_RUN_ADOPTING};

    (void)state;
    for (unsigned time = 0; time < 3; time++) {
        atomic_store(&entry.ready, 0);
        for (unsigned looks = 0; looks < 10000; looks++)
            muster_shm_look_for_closed(&run);
        played_now_ns += 99 * MUSTER_NS_PER_MS;
        muster_shm_look_for_closed(&run);
        assert_false(muster_shm_is_left_behind(&run));
        atomic_store(&entry.ready, 7); /* it was away for a moment */
        muster_shm_look_for_closed(&run);
    }
    atomic_store(&entry.ready, 0);
    muster_shm_look_for_closed(&run);
    played_now_ns += 100 * MUSTER_NS_PER_MS;
    muster_shm_look_for_closed(&run);
    assert_true(muster_shm_is_left_behind(&run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_reduce_of_two_ends_well_without_the_one_that_is_stopped,
                               reset_counts),
        cmocka_unit_test_setup(all_reduce_ends_well_without_the_one_that_is_stopped, reset_counts),
        cmocka_unit_test_setup(staged_all_reduce_ends_well_without_the_one_that_is_stopped,
                               reset_counts),
        cmocka_unit_test_setup(staged_all_reduce_of_two_ends_well_without_the_one_that_is_stopped,
                               reset_counts),
        cmocka_unit_test_setup(who_goes_on_amid_the_copies_of_others_disturbs_nobody, reset_counts),
        cmocka_unit_test_setup(other_kinds_end_alike_without_the_one_that_is_stopped, reset_counts),
        cmocka_unit_test_setup(what_a_member_that_closes_takes_back_is_no_result, reset_counts),
        cmocka_unit_test(an_announcement_is_gone_after_a_time_and_not_after_looks),
        cmocka_unit_test_setup(a_deadline_leaves_behind_who_has_no_turn, reset_counts),
        cmocka_unit_test_setup(who_goes_on_in_the_middle_of_the_work_of_others_disturbs_nobody,
                               reset_counts),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
