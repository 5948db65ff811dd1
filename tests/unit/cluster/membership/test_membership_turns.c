/* When a membership machine acts: forming, joining, links, time; and what it tells of itself. */
#include "member_stage.h"

#include <string.h>

#define IN(state) MUSTER_MEMBERSHIP_##state
#define MS(n)     ((uint64_t)(n)*MUSTER_NS_PER_MS)
#define S(n)      ((uint64_t)(n)*MUSTER_NS_PER_S)

static void the_first_in_rank_order_proposes_first(void **state)
{
    static const struct {
        unsigned self;
        const char *log; /* 2 ms after all were there */
    } rows[] = {{1, "cas:1(123)@0 "}, {2, ""}, {3, ""}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        member_stage_open(rows[i].self, STAGE_FORMING, NULL);
        member_stage_tick(MS(1));
        member_stage_check("at once", "", IN(FORMING));
        member_stage_tick(MS(1));
        member_stage_check("first", rows[i].log,
                           rows[i].log[0] != '\0' ? IN(PROPOSING) : IN(FORMING));
        member_stage_tick(S(1));

        assert_int_equal(muster_membership_state(stage.machine), IN(PROPOSING));
        member_stage_close();
    }
}

static void who_is_not_in_the_registry_is_not_in_the_first_view(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_FORMING, NULL);
    assert_int_equal(muster_membership_candidate_count(stage.machine), 3);
    assert_true(muster_membership_is_candidate(stage.machine, "worker", 2));
    member_stage_step(STAGE_EVENT(SNAPSHOT_BEGIN, ));
    member_stage_put(1, NULL, 10 + 1);
    member_stage_put(2, NULL, 10 + 2);
    member_stage_step(STAGE_EVENT(SNAPSHOT_END, ));
    assert_int_equal(muster_membership_candidate_count(stage.machine), 2);
    assert_false(muster_membership_is_candidate(stage.machine, "worker", 2));
    member_stage_step(STAGE_EVENT(MEMBER_DELETED, .peer = member_stage_incarnation(2)));
    assert_int_equal(muster_membership_candidate_count(stage.machine), 1);
    member_stage_tick(S(1));

    member_stage_check("alone", "", IN(FORMING));
}

static void no_view_is_formed_from_what_may_be_old(void **state)
{
    static const enum muster_membership_event_kind kinds[] = {MUSTER_EVENT_REGISTRY_DOWN,
                                                              MUSTER_EVENT_SNAPSHOT_BEGIN};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        member_stage_open(1, STAGE_FORMING, NULL);
        member_stage_step((struct muster_membership_event){.kind = kinds[i]});
        member_stage_tick(S(1));

        member_stage_check("old", "", IN(FORMING));
        member_stage_close();
    }
}

/* Its swap is lost to a view of the others. */
static void who_formed_in_vain_looks_on(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_FORMING, NULL);
    member_stage_tick(MS(2));
    member_stage_forget();
    member_stage_show_view((struct stage_view)STAGE_VIEW(1, "23", ), 60);

    assert_int_equal(muster_membership_state(stage.machine), IN(JOINING));
}

static void who_is_no_member_leaves_at_once(void **state)
{
    static const struct {
        enum member_standing standing;
        const char *log;
        bool is_left;
    } rows[] = {{STAGE_FORMING, "deregister abort left ", true},
                {STAGE_OBSERVER, "deregister abort left ", true},
                {STAGE_STEADY, "deregister ", false}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        member_stage_open(2, rows[i].standing, NULL);
        member_stage_step(STAGE_EVENT(LEAVE, ));

        member_stage_check("leave", rows[i].log, rows[i].is_left ? IN(LEFT) : IN(STEADY));
        member_stage_close();
    }
}

/* Its first view was not made, so there is nothing to be left out of. */
static void a_leaver_whose_swap_was_not_applied_is_gone(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_FORMING, NULL);
    member_stage_tick(MS(2));
    member_stage_step(STAGE_EVENT(LEAVE, ));
    member_stage_check("leave", "cas:1(123)@0 deregister ", IN(PROPOSING));
    member_stage_answer_swap(MUSTER_CAS_LOST, 0);
    member_stage_check("lost", "read ", IN(PROPOSING));
    member_stage_step(STAGE_EVENT(VIEW_READ, .view = NULL));

    member_stage_check("read", "abort left ", IN(LEFT));
}

static void a_member_that_quits_tells_the_others(void **state)
{
    static const struct {
        const char *name;
        enum member_standing standing;
        const char *log;
    } rows[] = {{"no view", STAGE_FORMING, "abort left "},
                {"an observer", STAGE_OBSERVER, "abort left "},
                {"a member", STAGE_STEADY, "suspect>1 suspect>3 abort left "},
                {"a voter", STAGE_VOTED, "suspect>1 suspect>3 abort left "},
                {"a leader", STAGE_PROPOSING, "suspect>1 abort left "}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_incarnation self = member_stage_incarnation(2);

        member_stage_open(2, rows[i].standing, NULL);
        member_stage_step(STAGE_EVENT(QUIT, ));

        member_stage_check(rows[i].name, rows[i].log, IN(LEFT));
        if (rows[i].standing == STAGE_STEADY) {
            assert_memory_equal(&stage.last_sent.accused, &self, sizeof(self));
            assert_true(stage.last_sent.is_confirmed && !stage.last_sent.is_silence);
        }
        member_stage_close();
    }
}

/* A joiner that waits for a link or a death may be admitted; a member that it has not tried yet, it must try. */
static void a_joiner_is_ready_when_all_are_tried(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_OBSERVER, NULL);
    member_stage_step(STAGE_EVENT(LINK_DOWN, .peer = member_stage_incarnation(3)));
    member_stage_forget();
    member_stage_step(STAGE_EVENT(READY, .committed_step = 7));
    member_stage_check("tried in vain", "suspect>1 join>1 ", IN(JOINING));
    assert_true(stage.last_sent.is_ready);
    assert_int_equal(stage.last_sent.committed_step, 7);
    member_stage_die(3);
    member_stage_forget();
    member_stage_tick(MS(200));
    member_stage_check("dead", "join>1 ", IN(JOINING));

    assert_true(stage.last_sent.is_ready);
}

static void a_joiner_need_not_try_the_dead(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_OBSERVER, NULL);
    member_stage_die(3);
    member_stage_forget();
    member_stage_step(STAGE_EVENT(READY, ));

    member_stage_check("dead", "join>1 ", IN(JOINING));
    assert_true(stage.last_sent.is_ready);
}

static void a_joiner_that_has_not_reached_a_member_is_not_ready(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_OBSERVER, NULL);
    member_stage_show_view((struct stage_view)STAGE_VIEW(6, "134", ), 60);
    member_stage_forget();
    member_stage_step(STAGE_EVENT(READY, ));
    member_stage_check("4 is not linked", "join>1 join>3 ", IN(JOINING));
    assert_false(stage.last_sent.is_ready);
    member_stage_link(4);

    member_stage_check("4 is linked", "join>1 join>3 join>4 ", IN(JOINING));
    assert_true(stage.last_sent.is_ready);
}

static enum muster_belief belief_of(unsigned number)
{
    const struct muster_incarnation incarnation = member_stage_incarnation(number);

    return muster_membership_belief(stage.machine, &incarnation, stage.now_ns);
}

/* Silence while this process stood still is forgiven, and no more than that. */
static void a_late_timer_forgives_its_lag(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_STEADY, NULL);
    member_stage_say_alive(1);
    member_stage_say_alive(3);
    member_stage_tick(S(20));
    assert_int_equal(belief_of(1), MUSTER_BELIEF_ALIVE);
    for (unsigned i = 0; i < 400; i++) {
        stage.now_ns = muster_membership_timer_ns(stage.machine);
        member_stage_step(STAGE_EVENT(TICK, ));
    }

    assert_true(belief_of(1) >= MUSTER_BELIEF_SUSPECTED);
    assert_int_equal(belief_of(2), MUSTER_BELIEF_ALIVE); /* itself */
}

static void a_new_view_is_shown_at_once(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_VOTED, NULL);
    member_stage_say_alive(1);
    member_stage_forget();
    member_stage_show_view((struct stage_view)STAGE_VIEW(6, "123", ), 60);
    assert_int_equal(stage.heartbeats, 3); /* the stranger, too */
    member_stage_forget();
    member_stage_tick(MS(1));
    assert_int_equal(stage.heartbeats, 0);
    muster_membership_show_committed(stage.machine);
    member_stage_tick(0);

    assert_int_equal(stage.heartbeats, 3);
}

static void what_peers_have_committed_is_known(void **state)
{
    const struct muster_incarnation peer = member_stage_incarnation(3);
    const struct muster_incarnation absent = member_stage_incarnation(STAGE_ABSENT);
    struct muster_control heartbeat = {
        .kind = MUSTER_CONTROL_HEARTBEAT, .epoch = STAGE_EPOCH, .progress_count = 12};

    (void)state;
    member_stage_open(2, STAGE_STEADY, NULL);
    heartbeat.view_digest = muster_membership_view(stage.machine)->digest;
    assert_int_equal(muster_membership_committed_by(stage.machine, &peer), 0);
    assert_int_equal(muster_membership_committed_by(stage.machine, &absent), 0);
    member_stage_say(3, &heartbeat);

    assert_int_equal(muster_membership_committed_by(stage.machine, &peer), 12);
    assert_non_null(muster_membership_find(stage.machine, &peer));
    assert_null(muster_membership_find(stage.machine, &absent));
}

static void it_says_what_a_change_waits_for(void **state)
{
    static const struct {
        enum member_standing standing;
        unsigned self;
        const char *text; /* NULL: nothing is waited for */
    } rows[] = {
        {STAGE_STEADY, 1, NULL},
        {STAGE_OBSERVER, 2, NULL},
        {STAGE_COLLECTING, 1, "worker:1 (it has not answered)"},
        {STAGE_PROPOSING, 1, "the registry, which has not answered to the new view"},
        {STAGE_VOTED, 2, "worker:0 (it leads the change)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[100];

        member_stage_open(rows[i].self, rows[i].standing, NULL);
        assert_int_equal(muster_membership_waits_for(stage.machine, text, sizeof(text)),
                         rows[i].text != NULL);
        assert_string_equal(text, rows[i].text != NULL ? rows[i].text : "");
        member_stage_step(STAGE_EVENT(REGISTRY_DOWN, ));
        if (rows[i].text != NULL) {
            assert_true(muster_membership_waits_for(stage.machine, text, sizeof(text)));
            assert_string_equal(text, "the registry");
        }
        member_stage_close();
    }
}

/* Before its own vector is there nobody knows whether the state is at stake. */
static void it_says_nothing_of_a_change_that_waits_for_itself(void **state)
{
    char text[100];

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_die(3);
    member_stage_say_vote(2, STAGE_EPOCH);

    assert_int_equal(muster_membership_state(stage.machine), IN(COLLECTING));
    assert_false(muster_membership_waits_for(stage.machine, text, sizeof(text)));
}

static void who_waits_for_another_to_lead_says_nothing(void **state)
{
    char text[100];

    (void)state;
    member_stage_open(2, STAGE_STEADY, NULL);
    member_stage_die(3);

    assert_int_equal(muster_membership_state(stage.machine), IN(STEADY));
    assert_false(muster_membership_waits_for(stage.machine, text, sizeof(text)));
    assert_string_equal(text, "");
}

/* In any room, whole or cut. */
static void it_says_what_its_start_waits_for(void **state)
{
    static const struct {
        enum member_standing standing;
        unsigned self;
        bool is_down, is_unlinked;
        const char *text;
    } rows[] = {
        {STAGE_FORMING, 1, true, false, "the registry"},
        {STAGE_FORMING, 1, false, false, "the other tasks, which have to agree on a view"},
        {STAGE_OBSERVER, 2, false, false, "worker:0 at none (pid 101), which leads"},
        {STAGE_OBSERVER, 2, false, true, "members of the last view (5), which do not answer"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[400], cut[400];

        member_stage_open(rows[i].self, rows[i].standing, NULL);
        for (unsigned number = 1; rows[i].is_unlinked && number <= 3; number += 2)
            member_stage_step(STAGE_EVENT(LINK_DOWN, .peer = member_stage_incarnation(number)));
        if (rows[i].is_down)
            member_stage_step(STAGE_EVENT(REGISTRY_DOWN, ));
        muster_membership_start_waits_for(stage.machine, text, sizeof(text));
        if (strstr(text, rows[i].text) == NULL)
            fail_msg("row %zu: '%s'", i, text);
        for (size_t room = 1; room < sizeof(cut); room++) {
            memset(cut, 'x', sizeof(cut));
            muster_membership_start_waits_for(stage.machine, cut, room);
            assert_true(strlen(cut) < room);
            assert_int_equal(strncmp(cut, text, strlen(cut)), 0);
            assert_int_equal(cut[room], 'x');
        }
        member_stage_close();
    }
}

static void another_process_of_its_task_is_named(void **state)
{
    struct muster_member_record record = {.member = member_stage_member(4)};
    char text[200];

    (void)state;
    record.member.task_index = 0;
    member_stage_open(1, STAGE_FORMING, NULL);
    assert_false(muster_membership_has_rival(stage.machine, text, sizeof(text)));
    assert_string_equal(text, "");

    member_stage_step(STAGE_EVENT(MEMBER_PUT, .record = &record, .revision = 20));
    assert_true(muster_membership_has_rival(stage.machine, text, sizeof(text)));
    assert_string_equal(text, "worker:0 at none (pid 104)");

    member_stage_die(4);
    assert_false(muster_membership_has_rival(stage.machine, text, sizeof(text)));
    member_stage_close();
}

static void no_memory_is_told(void **state)
{
    const struct muster_membership_event event =
        STAGE_EVENT(LINK_UP, .peer = member_stage_incarnation(STAGE_ABSENT));
    const struct muster_control dead = {.kind = MUSTER_CONTROL_SUSPECT,
                                        .is_confirmed = true,
                                        .accused = member_stage_incarnation(STAGE_ABSENT)};
    const struct muster_membership_event accused =
        STAGE_EVENT(CONTROL, .peer = member_stage_incarnation(2), .control = &dead);
    struct muster_membership_options options = {.job = "job"};
    struct muster_membership *machine = NULL;

    (void)state;
    member_stage_open(1, STAGE_STEADY, NULL);
    options.mem = &stage.mem.mem;
    stage.mem.fail_at = 1;
    assert_int_equal(muster_membership_new(&options, &machine), MUSTER_RESOURCE_EXHAUSTED);
    assert_null(machine);
    for (unsigned number = 10; number < 14; number++) /* up to the room for peers */
        member_stage_link(number);
    stage.mem.fail_at = 1;
    assert_int_equal(muster_membership_step(stage.machine, &event, stage.now_ns, &stage.actions),
                     MUSTER_RESOURCE_EXHAUSTED);
    muster_membership_actions_clear(&stage.actions);
    stage.mem.fail_at = 1;
    assert_int_equal(muster_membership_step(stage.machine, &accused, stage.now_ns, &stage.actions),
                     MUSTER_RESOURCE_EXHAUSTED);
    muster_membership_actions_clear(&stage.actions);
    options.job = "";
    assert_int_equal(muster_membership_new(&options, &machine), MUSTER_INVALID_ARGUMENT);
}

static void the_first_in_rank_order_says_what_a_new_view_is_like(void **state)
{
    const struct muster_member_record first = {
        .is_reproducible = true, .data_protection = MUSTER_DATA_ENCRYPTED, .is_fixed_size = true};

    (void)state;
    member_stage_open(2, STAGE_FORMING, NULL);
    member_stage_put(1, &first, 11);
    member_stage_tick(S(1));
    member_stage_tick(S(1));

    member_stage_check("formed", "cas:1(123)@0 ", IN(PROPOSING));
    assert_int_equal(stage.proposed->data_protection, MUSTER_DATA_ENCRYPTED);
    assert_true(stage.proposed->is_fixed_size);
    assert_true(stage.proposed->plan.is_reproducible);
}

/* It has wished to go while its swap was under way; the view is empty and its work done. */
static void who_leaves_is_not_told_that_the_job_is_over(void **state)
{
    const struct muster_membership_options returned = {.expected_count = 3, .is_return = true};

    (void)state;
    member_stage_open(1, STAGE_FORMING, &returned);
    member_stage_tick(MS(2));
    member_stage_step(STAGE_EVENT(LEAVE, ));
    member_stage_forget();
    member_stage_show_view((struct stage_view)STAGE_VIEW(1, "", .is_done = true), 60);

    member_stage_check("left", "abort left ", IN(LEFT));
}

/* A view that a member has told is ahead of what the registry has shown. */
static void a_new_beginning_waits_for_what_the_registry_shows(void **state)
{
    struct muster_control commit = {.kind = MUSTER_CONTROL_COMMIT, .revision = 60};

    (void)state;
    member_stage_open(2, STAGE_OBSERVER, NULL);
    member_stage_put(2, NULL, 12);
    commit.view = member_stage_view((struct stage_view)STAGE_VIEW(6, "13", ));
    member_stage_say(1, &commit);
    member_stage_die(1);
    member_stage_die(3);
    member_stage_tick(S(1));
    member_stage_check("told", "disconnect>1 disconnect>3 ", IN(FORMING));
    member_stage_show_view((struct stage_view)STAGE_VIEW(6, "13", ), 60);

    member_stage_check("shown", "register ", IN(FORMING));
    muster_view_unref(commit.view);
}

/* Its operations have expired after it had voted: it stands still in the next view, if it is in it. */
static void who_resigned_after_its_vote_enters_standing_still(void **state)
{
    static const struct {
        const char *members, *log;
        enum muster_membership_state state;
    } rows[] = {{"123", "hand_over:6 freeze leave>1 leave>3 ", IN(FROZEN)},
                {"13", "abort excluded ", IN(JOINING)}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        member_stage_open(2, STAGE_VOTED, NULL);
        member_stage_step(STAGE_EVENT(RESIGN, ));
        member_stage_forget();
        member_stage_show_view((struct stage_view)STAGE_VIEW(6, rows[i].members, ), 60);

        member_stage_check(rows[i].members, rows[i].log, rows[i].state);
        member_stage_close();
    }
}

static void a_joiner_tells_whom_it_does_not_hear(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_OBSERVER, NULL);
    for (unsigned i = 0; i < 60; i++) {
        stage.now_ns += MS(100);
        member_stage_say_alive(1);
    }
    member_stage_forget();
    member_stage_step(STAGE_EVENT(READY, ));

    member_stage_check("silent", "suspect>1 join>1 join>3 ", IN(JOINING));
}

static void a_link_that_fails_is_opened_ever_more_slowly(void **state)
{
    static const uint64_t spans_ms[] = {20, 40, 80, 160, 320, 640, 1000, 1000};
    const struct muster_membership_options slow = {.heartbeat_interval_ns = S(60)};

    (void)state;
    member_stage_open(2, STAGE_STEADY, &slow);
    member_stage_step(STAGE_EVENT(LINK_DOWN, .peer = member_stage_incarnation(3)));
    member_stage_check("lost", "connect>3 ", IN(STEADY));
    for (size_t i = 1; i < sizeof(spans_ms) / sizeof(spans_ms[0]); i++) {
        member_stage_step(STAGE_EVENT(LINK_DOWN, .peer = member_stage_incarnation(3)));
        stage.now_ns += MS(spans_ms[i]) * 3 / 4 - 1;
        member_stage_say_alive(1);
        member_stage_check("too early", "", IN(STEADY));
        stage.now_ns += MS(spans_ms[i]) / 2 + 1;
        member_stage_say_alive(1);
        member_stage_check("again", "connect>3 ", IN(STEADY));
    }
}

/* Once per silence, and only for members. */
static void a_silent_member_is_tried_by_another_connection(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_STEADY, NULL);
    for (unsigned i = 0; i < 40; i++) {
        stage.now_ns += MS(100);
        member_stage_say_alive(1);
    }
    assert_non_null(strstr(stage.log, "renew>3 "));
    assert_null(strstr(strstr(stage.log, "renew>3 ") + 1, "renew>3 "));
    assert_null(strstr(stage.log, "renew>9 "));
}

static void who_is_left_out_is_not_listened_for(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_VOTED, NULL);
    member_stage_show_view((struct stage_view)STAGE_VIEW(6, "12", ), 60);
    member_stage_forget();
    for (unsigned i = 0; i < 30; i++) {
        stage.now_ns += MS(100);
        member_stage_say_alive(1);
    }

    member_stage_check("left out", "", IN(STEADY));
}

static void a_process_of_this_host_is_watched_once(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_VOTED, NULL);
    member_stage_forget();
    member_stage_show_view((struct stage_view)STAGE_VIEW(6, "124", ), 60);
    member_stage_link(4);
    member_stage_link(4);
    assert_int_equal(stage.watches, 1);
    member_stage_close();
    member_stage_open(1, STAGE_FORMING, NULL);
    member_stage_put(4, NULL, 14);
    assert_int_equal(stage.watches, 1); /* before there is a view */
    member_stage_close();
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_put(4, NULL, 60);
    assert_int_equal(stage.watches, 0); /* a record may name a process of long ago */
    member_stage_link(4);
    assert_int_equal(stage.watches, 1);
    member_stage_close();
}

/* A loop that is always a little late is no excuse for others. */
static void a_timer_that_is_a_little_late_forgives_nothing(void **state)
{
    uint64_t begun_ns;

    (void)state;
    member_stage_open(2, STAGE_STEADY, NULL);
    begun_ns = stage.now_ns;
    while (stage.now_ns < begun_ns + MS(7500)) {
        stage.now_ns = muster_membership_timer_ns(stage.machine) + MS(99);
        member_stage_step(STAGE_EVENT(TICK, ));
    }

    assert_true(belief_of(1) >= MUSTER_BELIEF_SUSPECTED);
}

/* Two processes of one task: the one registered later counts. */
static void a_task_that_was_started_again_counts_once(void **state)
{
    struct muster_member_record again = {.member = member_stage_member(7)};

    (void)state;
    again.member.task_index = 2; /* as 3 */
    member_stage_open(1, STAGE_FORMING, NULL);
    member_stage_step(STAGE_EVENT(MEMBER_PUT, .record = &again, .revision = 99));
    assert_int_equal(muster_membership_candidate_count(stage.machine), 3);
    member_stage_tick(S(1));
    member_stage_tick(S(1));

    member_stage_check("later", "cas:1(127)@0 ", IN(PROPOSING));
}

static void show_committed(unsigned from, uint64_t epoch, uint64_t step)
{
    struct muster_control heartbeat = {
        .kind = MUSTER_CONTROL_HEARTBEAT, .epoch = epoch, .progress_count = step};

    heartbeat.view_digest = muster_membership_view(stage.machine)->digest;
    member_stage_say(from, &heartbeat);
}

/* The step that it had shown before it was a member is not the state that it is admitted for. */
static void a_joiner_has_the_state_when_it_shows_it_as_a_member(void **state)
{
    struct muster_member members[2] = {member_stage_member(2), member_stage_member(4)};
    struct muster_view fields = {
        .epoch = 6, .member_count = 2, .members = members, .job = "job", .reason = "joined"};
    struct muster_view *view = NULL;

    (void)state;
    members[1].from_step = 10;
    member_stage_open(2, STAGE_VOTED, NULL);
    assert_null(muster_membership_stateless(stage.machine, 10));
    member_stage_link(4);
    show_committed(4, STAGE_EPOCH, 20);
    assert_int_equal(muster_view_new(&stage.mem.mem, &fields, &view), MUSTER_OK);
    member_stage_step(STAGE_EVENT(VIEW_PUT, .view = view, .revision = 60));
    muster_view_unref(view);

    assert_null(muster_membership_stateless(stage.machine, 9));
    assert_non_null(muster_membership_stateless(stage.machine, 10));
    show_committed(4, 6, 8);
    assert_non_null(muster_membership_stateless(stage.machine, 11));
    show_committed(4, 6, 9);
    assert_null(muster_membership_stateless(stage.machine, 11));
}

int main(void)
{
    const struct CMUnitTest membership_turns[] = {
        cmocka_unit_test(the_first_in_rank_order_proposes_first),
        STAGE_CASE(who_is_not_in_the_registry_is_not_in_the_first_view),
        cmocka_unit_test(no_view_is_formed_from_what_may_be_old),
        STAGE_CASE(who_formed_in_vain_looks_on),
        cmocka_unit_test(who_is_no_member_leaves_at_once),
        STAGE_CASE(a_leaver_whose_swap_was_not_applied_is_gone),
        cmocka_unit_test(a_member_that_quits_tells_the_others),
        STAGE_CASE(a_joiner_is_ready_when_all_are_tried),
        STAGE_CASE(a_joiner_need_not_try_the_dead),
        STAGE_CASE(a_joiner_that_has_not_reached_a_member_is_not_ready),
        STAGE_CASE(a_late_timer_forgives_its_lag),
        STAGE_CASE(a_new_view_is_shown_at_once),
        STAGE_CASE(what_peers_have_committed_is_known),
        cmocka_unit_test(it_says_what_a_change_waits_for),
        STAGE_CASE(it_says_nothing_of_a_change_that_waits_for_itself),
        STAGE_CASE(a_task_that_was_started_again_counts_once),
        STAGE_CASE(a_joiner_has_the_state_when_it_shows_it_as_a_member),
        STAGE_CASE(who_waits_for_another_to_lead_says_nothing),
        cmocka_unit_test(it_says_what_its_start_waits_for),
        cmocka_unit_test(another_process_of_its_task_is_named),
        STAGE_CASE(no_memory_is_told),
        STAGE_CASE(the_first_in_rank_order_says_what_a_new_view_is_like),
        STAGE_CASE(who_leaves_is_not_told_that_the_job_is_over),
        STAGE_CASE(a_new_beginning_waits_for_what_the_registry_shows),
        cmocka_unit_test(who_resigned_after_its_vote_enters_standing_still),
        STAGE_CASE(a_joiner_tells_whom_it_does_not_hear),
        STAGE_CASE(a_link_that_fails_is_opened_ever_more_slowly),
        STAGE_CASE(a_silent_member_is_tried_by_another_connection),
        STAGE_CASE(who_is_left_out_is_not_listened_for),
        cmocka_unit_test(a_process_of_this_host_is_watched_once),
        STAGE_CASE(a_timer_that_is_a_little_late_forgives_nothing),
    };

    return cmocka_run_group_tests(membership_turns, NULL, NULL);
}
