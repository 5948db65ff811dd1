/* One membership machine and single events: what it follows, and what it must not. */
#include "member_stage.h"

#define IN(state) MUSTER_MEMBERSHIP_##state

/* --- Views --- */

static const struct {
    const char *name;
    enum member_standing standing;
    struct stage_view view;
    const char *log;
    enum muster_membership_state state;
} views[] = {
    {"another job's", STAGE_STEADY, STAGE_VIEW(6, "123", .is_other_job = true),
     "abort deregister failed:9 ", IN(LEFT)},
    {"another job's older one", STAGE_STEADY, STAGE_VIEW(4, "123", .is_other_job = true),
     "abort deregister failed:9 ", IN(LEFT)},
    {"another job's, for an observer", STAGE_OBSERVER, STAGE_VIEW(6, "13", .is_other_job = true),
     "abort deregister failed:9 ", IN(LEFT)},
    {"an older one", STAGE_STEADY, STAGE_VIEW(4, "123", ), "", IN(STEADY)},
    {"the same", STAGE_STEADY, STAGE_VIEW(5, "123", ), "", IN(STEADY)},
    {"another of that number", STAGE_STEADY, STAGE_VIEW(5, "123", .is_other_content = true),
     "abort deregister failed:15 ", IN(LEFT)},
    {"the next, never voted for", STAGE_STEADY, STAGE_VIEW(6, "123", ),
     "abort deregister failed:13 ", IN(LEFT)},
    {"the next", STAGE_VOTED, STAGE_VIEW(6, "123", ), "hand_over:6 ", IN(STEADY)},
    {"the one after the next", STAGE_VOTED, STAGE_VIEW(7, "123", ), "abort deregister failed:13 ",
     IN(LEFT)},
    {"the next without it", STAGE_VOTED, STAGE_VIEW(6, "13", ), "abort excluded ", IN(JOINING)},
    {"a later one without it", STAGE_STEADY, STAGE_VIEW(9, "13", ), "abort excluded ", IN(JOINING)},
    {"the next without it, as it wished", STAGE_LEAVING, STAGE_VIEW(6, "13", ), "abort left ",
     IN(LEFT)},
    {"a later one, for an observer", STAGE_OBSERVER, STAGE_VIEW(7, "13", ), "", IN(JOINING)},
    {"a later one with it, for an observer", STAGE_OBSERVER, STAGE_VIEW(7, "123", ), "open:7 ",
     IN(STEADY)},
    {"any, after its end", STAGE_GONE, STAGE_VIEW(8, "123", ), "", IN(LEFT)},
    {"of another job, after its end", STAGE_GONE, STAGE_VIEW(8, "123", .is_other_job = true), "",
     IN(LEFT)},
};

/* By the registry's watch, and told by a peer. */
static void views_are_followed_or_end_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        for (int is_told = 0; is_told <= 1; is_told++) {
            struct muster_control commit = {.kind = MUSTER_CONTROL_COMMIT, .revision = 60};

            member_stage_open(2, views[i].standing, NULL);
            commit.view = member_stage_view(views[i].view);
            if (is_told != 0)
                member_stage_say(1, &commit);
            else
                member_stage_show_view(views[i].view, 60);

            member_stage_check(views[i].name, views[i].log, views[i].state);
            muster_view_unref(commit.view);
            member_stage_close();
        }
}

/* --- Words --- */

struct word_row {
    const char *name;
    unsigned self;
    enum member_standing standing;
    unsigned from;
    struct muster_control control;
    unsigned about; /* who joins, or who is accused */
    const char *log;
    enum muster_membership_state state;
};

#define WORD(kind_, ...)                                                                           \
    {                                                                                              \
        .kind = MUSTER_CONTROL_##kind_, __VA_ARGS__                                                \
    }

static const struct word_row words[] = {
    {"freeze", 2, STAGE_STEADY, 1, WORD(FREEZE, .epoch = 5), 0, "freeze ", IN(FROZEN)},
    {"freeze again", 2, STAGE_VOTED, 1, WORD(FREEZE, .epoch = 5), 0, "vote>1 ", IN(FROZEN)},
    {"freeze of an older view", 2, STAGE_STEADY, 1, WORD(FREEZE, .epoch = 4), 0, "commit>1 ",
     IN(STEADY)},
    {"freeze of a later view", 2, STAGE_STEADY, 1, WORD(FREEZE, .epoch = 6), 0, "request>1 ",
     IN(STEADY)},
    {"a stranger's freeze", 2, STAGE_STEADY, STAGE_STRANGER, WORD(FREEZE, .epoch = 5), 0, "",
     IN(STEADY)},
    {"freeze, to an observer", 2, STAGE_OBSERVER, 1, WORD(FREEZE, .epoch = 5), 0, "", IN(JOINING)},
    {"a lower rank's freeze", 2, STAGE_STALLED, 1, WORD(FREEZE, .epoch = 5), 0, "vote>1 ",
     IN(FROZEN)},
    {"a higher rank's freeze", 2, STAGE_STALLED, 3, WORD(FREEZE, .epoch = 5), 0, "vote>3 ",
     IN(COLLECTING)},
    {"a request", 2, STAGE_STEADY, 1, WORD(VIEW_REQUEST, .epoch = 4), 0, "commit>1 ", IN(STEADY)},
    {"a request of who has it", 2, STAGE_STEADY, 1, WORD(VIEW_REQUEST, .epoch = 5), 0, "",
     IN(STEADY)},
    {"a request of who has more", 2, STAGE_STEADY, 1, WORD(VIEW_REQUEST, .epoch = 6), 0, "",
     IN(STEADY)},
    {"a joiner", 1, STAGE_STEADY, STAGE_STRANGER, WORD(JOIN, .epoch = 5, .is_ready = true),
     STAGE_STRANGER, "freeze freeze>2 freeze>3 ", IN(COLLECTING)},
    {"a joiner that is not ready", 1, STAGE_STEADY, STAGE_STRANGER, WORD(JOIN, .epoch = 5),
     STAGE_STRANGER, "", IN(STEADY)},
    {"a joiner in another's name", 1, STAGE_STEADY, STAGE_STRANGER,
     WORD(JOIN, .epoch = 5, .is_ready = true), STAGE_ABSENT, "", IN(STEADY)},
    {"a joiner of an older view", 1, STAGE_STEADY, STAGE_STRANGER,
     WORD(JOIN, .epoch = 4, .is_ready = true), STAGE_STRANGER, "commit>9 ", IN(STEADY)},
    {"a joiner of a later view", 1, STAGE_STEADY, STAGE_STRANGER,
     WORD(JOIN, .epoch = 6, .is_ready = true), STAGE_STRANGER, "request>9 ", IN(STEADY)},
    {"a joiner that is a member", 1, STAGE_STEADY, 2, WORD(JOIN, .epoch = 5, .is_ready = true), 2,
     "", IN(STEADY)},
    {"a heartbeat of another view", 2, STAGE_STEADY, 1,
     WORD(HEARTBEAT, .epoch = 5, .view_digest = 1), 0, "abort deregister failed:15 ", IN(LEFT)},
    {"a heartbeat of an older view", 2, STAGE_STEADY, 1,
     WORD(HEARTBEAT, .epoch = 4, .view_digest = 1), 0, "commit>1 ", IN(STEADY)},
    {"a heartbeat of a later view", 2, STAGE_STEADY, 1,
     WORD(HEARTBEAT, .epoch = 6, .view_digest = 1), 0, "request>1 ", IN(STEADY)},
    {"its own death", 1, STAGE_STEADY, 2, WORD(SUSPECT, .epoch = 5, .is_confirmed = true), 1, "",
     IN(STEADY)},
    {"a death", 1, STAGE_STEADY, 2, WORD(SUSPECT, .epoch = 5, .is_confirmed = true), 3,
     "disconnect>3 freeze freeze>2 ", IN(COLLECTING)},
    {"a death, whatever the view", 1, STAGE_STEADY, 2, WORD(SUSPECT, .is_confirmed = true), 3,
     "disconnect>3 freeze freeze>2 ", IN(COLLECTING)},
    {"a lost link", 1, STAGE_STEADY, 2, WORD(SUSPECT, .epoch = 5), 3, "freeze freeze>2 freeze>3 ",
     IN(COLLECTING)},
    {"a lost link of an older view", 1, STAGE_STEADY, 2, WORD(SUSPECT, .epoch = 4), 3, "",
     IN(STEADY)},
    {"a link to a stranger", 1, STAGE_STEADY, 2, WORD(SUSPECT, .epoch = 5), STAGE_STRANGER, "",
     IN(STEADY)},
    {"a silence", 1, STAGE_STEADY, 2, WORD(SUSPECT, .epoch = 5, .is_silence = true), 3, "",
     IN(STEADY)},
    {"a leave", 1, STAGE_STEADY, 3, WORD(LEAVE, .epoch = 5), 0, "freeze freeze>2 freeze>3 ",
     IN(COLLECTING)},
    {"a leave of an older view", 1, STAGE_STEADY, 3, WORD(LEAVE, .epoch = 4), 0, "commit>3 ",
     IN(STEADY)},
    {"a stranger's leave", 1, STAGE_STEADY, STAGE_STRANGER, WORD(LEAVE, .epoch = 5), 0, "",
     IN(STEADY)},
    {"an abort", 1, STAGE_STEADY, 3, WORD(ABORT_PROPOSE, .epoch = 5), 0,
     "freeze freeze>2 freeze>3 ", IN(COLLECTING)},
    {"an abort of an older view", 1, STAGE_STEADY, 3, WORD(ABORT_PROPOSE, .epoch = 4), 0,
     "commit>3 ", IN(STEADY)},
    {"a stranger's abort", 1, STAGE_STEADY, STAGE_STRANGER, WORD(ABORT_PROPOSE, .epoch = 5), 0, "",
     IN(STEADY)},
    {"anything from itself", 2, STAGE_STEADY, 2, WORD(FREEZE, .epoch = 5), 0, "", IN(STEADY)},
};

static void words_count_from_members_of_the_same_view(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct muster_control control = words[i].control;

        member_stage_open(words[i].self, words[i].standing, NULL);
        control.member = member_stage_member(words[i].about);
        control.accused = member_stage_incarnation(words[i].about);
        member_stage_say(words[i].from, &control);

        member_stage_check(words[i].name, words[i].log, words[i].state);
        member_stage_close();
    }
}

static void the_dead_do_not_join(void **state)
{
    struct muster_control join = WORD(JOIN, .epoch = 5, .is_ready = true);

    (void)state;
    join.member = member_stage_member(STAGE_STRANGER);
    member_stage_open(1, STAGE_STEADY, NULL);
    member_stage_die(STAGE_STRANGER);
    member_stage_forget();
    member_stage_say(STAGE_STRANGER, &join);

    member_stage_check("dead", "", IN(STEADY));
}

/* The first view has the smallest number that a joiner may name. */
static void a_joiner_of_the_first_view_waits_until_it_is_ready(void **state)
{
    struct muster_control join = WORD(JOIN, .epoch = 1);

    (void)state;
    join.member = member_stage_member(STAGE_STRANGER);
    member_stage_open(1, STAGE_FORMING, NULL);
    member_stage_show_view((struct stage_view)STAGE_VIEW(1, "123", ), 20);
    for (unsigned number = 2; number <= 3; number++)
        member_stage_link(number);
    member_stage_link(STAGE_STRANGER);
    member_stage_forget();
    member_stage_say(STAGE_STRANGER, &join);
    member_stage_check("not ready", "", IN(STEADY));
    join.is_ready = true;
    member_stage_say(STAGE_STRANGER, &join);

    member_stage_check("ready", "freeze freeze>2 freeze>3 ", IN(COLLECTING));
}

/* It is let in when the operation under way has ended, if it is still there. */
static void a_joiner_without_a_link_is_not_let_in(void **state)
{
    struct muster_control join = WORD(JOIN, .epoch = 5, .is_ready = true);

    (void)state;
    join.member = member_stage_member(STAGE_STRANGER);
    member_stage_open(1, STAGE_STEADY, NULL);
    muster_membership_set_work(stage.machine, (struct muster_membership_work){.is_busy = true});
    member_stage_say(STAGE_STRANGER, &join);
    member_stage_step(STAGE_EVENT(LINK_DOWN, .peer = member_stage_incarnation(STAGE_STRANGER)));
    muster_membership_set_work(stage.machine, (struct muster_membership_work){.ended_count = 1});
    member_stage_tick(MUSTER_NS_PER_MS);
    member_stage_check("without a link", "", IN(STEADY));
    member_stage_link(STAGE_STRANGER);

    member_stage_check("with one", "freeze freeze>2 freeze>3 ", IN(COLLECTING));
}

/* --- Votes and swaps --- */

static void votes_count_from_members_of_the_same_view(void **state)
{
    static const struct {
        const char *name;
        unsigned self;
        enum member_standing standing;
        unsigned from;
        uint64_t epoch;
        const char *log;
        enum muster_membership_state state;
    } rows[] = {
        {"a vote", 1, STAGE_COLLECTING, 2, 5, "cas:6(12)@50 ", IN(PROPOSING)},
        {"a vote in an older view", 1, STAGE_COLLECTING, 2, 4, "", IN(COLLECTING)},
        {"a vote in a later view", 1, STAGE_COLLECTING, 2, 6, "", IN(COLLECTING)},
        {"a stranger's vote", 1, STAGE_COLLECTING, STAGE_STRANGER, 5, "", IN(COLLECTING)},
        {"a vote, to an observer", 2, STAGE_OBSERVER, 1, 5, "", IN(JOINING)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        member_stage_open(rows[i].self, rows[i].standing, NULL);
        member_stage_say_vote(rows[i].from, rows[i].epoch);

        member_stage_check(rows[i].name, rows[i].log, rows[i].state);
        member_stage_close();
    }
}

static void nothing_is_proposed_without_the_registry(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_COLLECTING, NULL);
    member_stage_step(STAGE_EVENT(REGISTRY_DOWN, ));
    member_stage_say_vote(2, STAGE_EPOCH);
    member_stage_check("down", "", IN(COLLECTING));
    member_stage_step(STAGE_EVENT(REGISTRY_UP, ));

    member_stage_check("up", "cas:6(12)@50 ", IN(PROPOSING));
}

static void answer_swap(enum muster_cas_outcome outcome, uint64_t id)
{
    member_stage_step(STAGE_EVENT(CAS_ANSWERED, .id = id, .cas = outcome, .revision = 61));
}

static void a_swap_that_was_won_makes_the_view_true(void **state)
{
    (void)state;
    member_stage_open(1, STAGE_PROPOSING, NULL);
    answer_swap(MUSTER_CAS_WON, stage.cas_id + 1);
    member_stage_check("another's answer", "", IN(PROPOSING));
    answer_swap(MUSTER_CAS_WON, stage.cas_id);

    member_stage_check("won", "commit>2 commit>9 hand_over:6 ", IN(STEADY));
    assert_int_equal(muster_membership_view(stage.machine)->member_count, 2);
}

/* The key after a swap that was not won, and the consequences. */
static void a_swap_that_was_not_won_is_looked_into(void **state)
{
    static const struct {
        const char *name;
        uint64_t epoch; /* in the key; 0: none */
        enum muster_rc rc;
        const char *log;
        enum muster_membership_state state;
    } rows[] = {
        {"the last view", 5, MUSTER_OK, "cas:6(12)@70 ", IN(PROPOSING)},
        {"nothing", 0, MUSTER_OK, "cas:6(12)@0 ", IN(PROPOSING)},
        {"a rival's", 6, MUSTER_OK, "hand_over:6 ", IN(STEADY)},
        {"what cannot be read", 5, MUSTER_UNAVAILABLE, "", IN(PROPOSING)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int is_lost = 0; is_lost <= 1; is_lost++) {
            struct stage_view fields = STAGE_VIEW(rows[i].epoch, "12", );
            struct muster_view *view;

            member_stage_open(1, STAGE_PROPOSING, NULL);
            view = rows[i].epoch == 0 ? NULL : member_stage_view(fields);
            member_stage_step(STAGE_EVENT(VIEW_READ, .view = view, .revision = 70));
            member_stage_check("read before the answer", "", IN(PROPOSING));
            answer_swap(is_lost != 0 ? MUSTER_CAS_LOST : MUSTER_CAS_UNKNOWN, stage.cas_id);
            if (is_lost == 0) {
                member_stage_check("unknown", "", IN(PROPOSING));
                stage.now_ns += MUSTER_NS_PER_S;
                member_stage_step(
                    STAGE_EVENT(HIGHER_EPOCH, .peer = member_stage_incarnation(STAGE_ABSENT)));
            }
            member_stage_check("read", "read ", IN(PROPOSING));
            member_stage_forget();
            member_stage_step(
                STAGE_EVENT(VIEW_READ, .view = view, .revision = 70, .rc = rows[i].rc));

            member_stage_check(rows[i].name, rows[i].log, rows[i].state);
            muster_view_unref(view);
            member_stage_close();
        }
}

/* --- Other news --- */

static const struct {
    const char *name;
    enum member_standing standing;
    enum muster_membership_event_kind kind;
    unsigned peer;
    const char *log;
} news[] = {
    {"its own record of death", STAGE_STEADY, MUSTER_EVENT_DEAD_PUT, 2, ""},
    {"its own link", STAGE_STEADY, MUSTER_EVENT_LINK_UP, 2, ""},
    {"a frame of a later epoch", STAGE_STEADY, MUSTER_EVENT_HIGHER_EPOCH, 1, "request>1 "},
    {"a frame of nobody's", STAGE_STEADY, MUSTER_EVENT_HIGHER_EPOCH, STAGE_ABSENT, ""},
    {"an abort", STAGE_STEADY, MUSTER_EVENT_ABORT_PROPOSED, 0, "propose_abort>1 propose_abort>3 "},
    {"an observer's abort", STAGE_OBSERVER, MUSTER_EVENT_ABORT_PROPOSED, 0, ""},
    {"a lost data link", STAGE_STEADY, MUSTER_EVENT_PEER_SUSPECTED, 3, "suspect>1 suspect>3 "},
    {"a lost link to a stranger", STAGE_STEADY, MUSTER_EVENT_PEER_SUSPECTED, STAGE_STRANGER, ""},
    {"a lost link to nobody", STAGE_STEADY, MUSTER_EVENT_PEER_SUSPECTED, STAGE_ABSENT, ""},
    {"an observer's lost link", STAGE_OBSERVER, MUSTER_EVENT_PEER_SUSPECTED, 3, ""},
    {"a process's death", STAGE_STEADY, MUSTER_EVENT_PROCESS_DEAD, 3, "disconnect>3 suspect>1 "},
    {"an answer that nobody waits for", STAGE_STEADY, MUSTER_EVENT_CAS_ANSWERED, 0, ""},
    {"a resignation of no member", STAGE_OBSERVER, MUSTER_EVENT_RESIGN, 0, ""},
    {"a record of nobody's is gone", STAGE_STEADY, MUSTER_EVENT_MEMBER_DELETED, STAGE_ABSENT, ""},
    {"anything after its end", STAGE_GONE, MUSTER_EVENT_PROCESS_DEAD, 1, ""},
};

static void news_count_where_they_concern_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(news) / sizeof(news[0]); i++) {
        enum muster_membership_state before;

        member_stage_open(2, news[i].standing, NULL);
        before = muster_membership_state(stage.machine);
        member_stage_step(
            (struct muster_membership_event){.kind = news[i].kind,
                                             .peer = member_stage_incarnation(news[i].peer),
                                             .text = "SIGKILL"});

        member_stage_check(news[i].name, news[i].log, before);
        member_stage_close();
    }
}

static void a_death_is_told_once_and_its_links_are_refused(void **state)
{
    (void)state;
    member_stage_open(2, STAGE_STEADY, NULL);
    for (int times = 0; times < 2; times++)
        member_stage_step(
            STAGE_EVENT(PROCESS_DEAD, .peer = member_stage_incarnation(3), .text = "SIGKILL"));
    member_stage_check("twice", "disconnect>3 suspect>1 ", IN(STEADY));
    member_stage_forget();
    member_stage_step(STAGE_EVENT(LINK_UP, .peer = member_stage_incarnation(3)));

    member_stage_check("linked", "disconnect>3 ", IN(STEADY));
}

static void its_record_is_put_again_unless_it_leaves(void **state)
{
    const struct muster_member_record record = {.member = member_stage_member(2)};

    (void)state;
    for (int is_leaving = 0; is_leaving <= 1; is_leaving++) {
        member_stage_open(2, STAGE_STEADY, NULL);
        member_stage_step(STAGE_EVENT(MEMBER_PUT, .record = &record, .revision = 51));
        if (is_leaving != 0)
            member_stage_step(STAGE_EVENT(LEAVE, ));
        member_stage_forget();
        member_stage_step(STAGE_EVENT(MEMBER_DELETED, .peer = member_stage_incarnation(2)));
        member_stage_check("gone", is_leaving != 0 ? "" : "register ", IN(STEADY));
        member_stage_forget();
        member_stage_step(STAGE_EVENT(MEMBER_DELETED, .peer = member_stage_incarnation(2)));

        member_stage_check("gone already", "", IN(STEADY));
        member_stage_close();
    }
}

int main(void)
{
    const struct CMUnitTest membership_rules[] = {
        cmocka_unit_test(views_are_followed_or_end_it),
        cmocka_unit_test(words_count_from_members_of_the_same_view),
        STAGE_CASE(the_dead_do_not_join),
        STAGE_CASE(a_joiner_of_the_first_view_waits_until_it_is_ready),
        STAGE_CASE(a_joiner_without_a_link_is_not_let_in),
        cmocka_unit_test(votes_count_from_members_of_the_same_view),
        STAGE_CASE(nothing_is_proposed_without_the_registry),
        STAGE_CASE(a_swap_that_was_won_makes_the_view_true),
        cmocka_unit_test(a_swap_that_was_not_won_is_looked_into),
        cmocka_unit_test(news_count_where_they_concern_it),
        STAGE_CASE(a_death_is_told_once_and_its_links_are_refused),
        cmocka_unit_test(its_record_is_put_again_unless_it_leaves),
    };

    return cmocka_run_group_tests(membership_rules, NULL, NULL);
}
