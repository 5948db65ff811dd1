/* One membership machine and single events: what it follows, and what it must not. */
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include "cluster/membership.h"
#include "cluster/progress_proto.h"

#define EPOCH    5
#define REVISION 50
#define MEMBERS  3
#define STRANGER 9 /* linked, not in the view */
#define ABSENT   8 /* never heard of */
#define LOG_MAX  256

/* Processes have numbers: 1 to 3 are the members of view 5 in rank order, on hosts of their own. */
struct stage {
    struct muster_mem_limited mem;
    struct muster_rng_seeded rng;
    struct muster_membership *machine;
    struct muster_membership_actions actions;
    uint64_t now_ns;
    uint64_t cas_id;
    char log[LOG_MAX]; /* what the steps since stage_forget asked for: "freeze commit>1 " */
};

static struct muster_incarnation incarnation_of(unsigned number)
{
    struct muster_incarnation incarnation;

    memset(incarnation.bytes, (int)number, sizeof(incarnation.bytes));
    return incarnation;
}

static struct muster_member member_of(unsigned number)
{
    struct muster_member member = {.incarnation = incarnation_of(number),
                                   .task_type = "worker",
                                   .task_index = number - 1,
                                   .pid = 100 + (int64_t)number};

    (void)snprintf(member.host_key, sizeof(member.host_key), "host%u", number);
    return member;
}

/* --- What it asks for --- */

static const char *control_name(enum muster_control_kind kind)
{
    static const char *const names[] = {
        [MUSTER_CONTROL_FREEZE] = "freeze",   [MUSTER_CONTROL_PROGRESS] = "vote",
        [MUSTER_CONTROL_COMMIT] = "commit",   [MUSTER_CONTROL_VIEW_REQUEST] = "request",
        [MUSTER_CONTROL_JOIN] = "join",       [MUSTER_CONTROL_LEAVE] = "leave",
        [MUSTER_CONTROL_SUSPECT] = "suspect", [MUSTER_CONTROL_ABORT_PROPOSE] = "propose_abort",
    };

    return names[kind];
}

static void stage_note(struct stage *stage, const struct muster_membership_action *action)
{
    size_t length = strlen(stage->log), room = sizeof(stage->log) - length;
    unsigned peer = action->peer.bytes[0], member = action->member.incarnation.bytes[0];
    char *text = stage->log + length;

    switch (action->kind) {
    case MUSTER_ACTION_SEND:
        if (action->control.kind != MUSTER_CONTROL_HEARTBEAT)
            (void)snprintf(text, room, "%s>%u ", control_name(action->control.kind), peer);
        return;
    case MUSTER_ACTION_CONNECT:
        (void)snprintf(text, room, "connect>%u ", member);
        return;
    case MUSTER_ACTION_DISCONNECT:
        (void)snprintf(text, room, "disconnect>%u ", peer);
        return;
    case MUSTER_ACTION_FREEZE:
        (void)snprintf(text, room, "freeze ");
        return;
    case MUSTER_ACTION_OPEN_GROUP:
        (void)snprintf(text, room, "%s:%u ", action->is_hand_over ? "hand_over" : "open",
                       (unsigned)action->view->epoch);
        return;
    case MUSTER_ACTION_ABORT_ALL:
        (void)snprintf(text, room, "abort ");
        return;
    case MUSTER_ACTION_CAS:
        stage->cas_id = action->id;
        (void)snprintf(text, room, "cas:%u@%u ", (unsigned)action->view->epoch,
                       (unsigned)action->revision);
        return;
    case MUSTER_ACTION_READ_VIEW:
        (void)snprintf(text, room, "read ");
        return;
    case MUSTER_ACTION_REGISTER:
        (void)snprintf(text, room, "register ");
        return;
    case MUSTER_ACTION_DEREGISTER:
        (void)snprintf(text, room, "deregister ");
        return;
    case MUSTER_ACTION_TELL_EXCLUDED:
        (void)snprintf(text, room, "excluded ");
        return;
    case MUSTER_ACTION_TELL_LEFT:
        (void)snprintf(text, room, "left ");
        return;
    case MUSTER_ACTION_TELL_FAILED:
        (void)snprintf(text, room, "failed:%u ", (unsigned)action->error.rc);
        return;
    default:
        return; /* timers, watched processes, traces, other connections */
    }
}

static void stage_step(struct stage *stage, struct muster_membership_event event)
{
    assert_int_equal(muster_membership_step(stage->machine, &event, stage->now_ns, &stage->actions),
                     MUSTER_OK);
    for (size_t i = 0; i < stage->actions.count; i++)
        stage_note(stage, &stage->actions.items[i]);
    muster_membership_actions_clear(&stage->actions);
}

static void stage_forget(struct stage *stage)
{
    stage->log[0] = '\0';
}

/* --- What happens --- */

#define EVENT(kind_, ...)                                                                          \
    (struct muster_membership_event)                                                               \
    {                                                                                              \
        .kind = MUSTER_EVENT_##kind_, __VA_ARGS__                                                  \
    }

struct view_fields {
    uint64_t epoch;
    const char *members; /* their numbers: "123" */
    bool is_other_job, is_other_content;
};
#define VIEW(epoch_, members_, ...)                                                                \
    {                                                                                              \
        .epoch = (epoch_), .members = (members_), __VA_ARGS__                                      \
    }

static struct muster_view *view_of(struct stage *stage, struct view_fields wanted)
{
    struct muster_member members[MEMBERS];
    struct muster_view fields = {.epoch = wanted.epoch, .members = members, .reason = "a change"};
    struct muster_view *view = NULL;

    strcpy(fields.job, wanted.is_other_job ? "another" : "job");
    if (wanted.is_other_content)
        strcpy(fields.reason, "another change");
    for (const char *at = wanted.members; *at != '\0'; at++)
        members[fields.member_count++] = member_of((unsigned)(*at - '0'));
    assert_int_equal(muster_view_new(&stage->mem.mem, &fields, &view), MUSTER_OK);
    return view;
}

static struct muster_progress *progress_of(struct stage *stage, uint64_t epoch)
{
    const struct muster_progress fields = {.epoch = epoch};
    struct muster_progress *progress = NULL;

    assert_int_equal(muster_progress_copy(&stage->mem.mem, &fields, &progress), MUSTER_OK);
    return progress;
}

static void show_view(struct stage *stage, struct view_fields fields, uint64_t revision)
{
    struct muster_view *view = view_of(stage, fields);

    stage_step(stage, EVENT(VIEW_PUT, .view = view, .revision = revision));
    muster_view_unref(view);
}

static void say(struct stage *stage, unsigned from, const struct muster_control *control)
{
    stage_step(stage, EVENT(CONTROL, .peer = incarnation_of(from), .control = control));
}

static void say_freeze(struct stage *stage, unsigned from)
{
    const struct muster_control freeze = {
        .kind = MUSTER_CONTROL_FREEZE, .epoch = EPOCH, .change_id = 1};

    say(stage, from, &freeze);
}

static void say_vote(struct stage *stage, unsigned from, uint64_t epoch)
{
    struct muster_control vote = {.kind = MUSTER_CONTROL_PROGRESS, .change_id = 1};

    vote.progress = progress_of(stage, epoch);
    say(stage, from, &vote);
    muster_progress_free(vote.progress);
}

static void say_alive(struct stage *stage, unsigned from)
{
    const struct muster_control heartbeat = {.kind = MUSTER_CONTROL_HEARTBEAT,
                                             .epoch = EPOCH,
                                             .view_digest =
                                                 muster_membership_view(stage->machine)->digest};

    say(stage, from, &heartbeat);
}

static void die(struct stage *stage, unsigned number)
{
    stage_step(stage, EVENT(DEAD_PUT, .peer = incarnation_of(number), .text = "SIGKILL"));
}

static void freeze_group(struct stage *stage)
{
    stage_step(stage, EVENT(FROZEN, .progress = progress_of(stage, EPOCH)));
}

/* --- What it is in when that happens --- */

enum standing {
    STEADY,     /* a member of view 5 */
    VOTED,      /* asked by 1 it has frozen and voted */
    STALLED,    /* then for too long, and leads by itself */
    COLLECTING, /* 3 is dead: waits for the vote of 2 */
    PROPOSING,  /* has it */
    LEAVING,    /* its record is gone */
    OBSERVER,   /* of a view 5 of the others */
    GONE,       /* has left */
};

static void reach(struct stage *stage, enum standing standing, unsigned self)
{
    if (standing == VOTED || standing == STALLED) {
        say_freeze(stage, 1);
        freeze_group(stage);
    }
    if (standing == STALLED) {
        stage->now_ns += 5 * MUSTER_NS_PER_S + 500 * MUSTER_NS_PER_MS * (self - 1);
        say_alive(stage, 1);
        say_alive(stage, 3);
    }
    if (standing == COLLECTING || standing == PROPOSING) {
        die(stage, 3);
        freeze_group(stage);
    }
    if (standing == PROPOSING)
        say_vote(stage, 2, EPOCH);
    if (standing == LEAVING || standing == GONE) {
        stage_step(stage, EVENT(LEAVE, .is_done = true));
        stage_step(stage, EVENT(DEREGISTERED, ));
    }
    if (standing == GONE)
        show_view(stage, (struct view_fields)VIEW(EPOCH + 1, "13", ), REVISION + 1);
}

static void stage_open(struct stage *stage, unsigned self, enum standing standing)
{
    struct muster_membership_options options = {.job = "job", .self = member_of(self)};

    memset(stage, 0, sizeof(*stage));
    muster_mem_limited_init(&stage->mem, muster_mem_system(), 0);
    muster_rng_seeded_init(&stage->rng, 1);
    options.mem = &stage->mem.mem;
    options.rng = &stage->rng.rng;
    stage->now_ns = 100 * MUSTER_NS_PER_S;
    muster_membership_actions_init(&stage->actions, &stage->mem.mem);
    assert_int_equal(muster_membership_new(&options, &stage->machine), MUSTER_OK);
    stage_step(stage, EVENT(START, ));
    stage_step(stage, EVENT(REGISTRY_UP, ));
    stage_step(stage, EVENT(SNAPSHOT_BEGIN, ));
    show_view(stage, (struct view_fields)VIEW(EPOCH, standing == OBSERVER ? "13" : "123", ),
              REVISION);
    stage_step(stage, EVENT(SNAPSHOT_END, ));
    for (unsigned number = 1; number <= STRANGER; number++)
        if (number != self && (number <= MEMBERS || number == STRANGER))
            stage_step(stage, EVENT(LINK_UP, .peer = incarnation_of(number)));
    reach(stage, standing, self);
    stage_forget(stage);
}

static void stage_close(struct stage *stage)
{
    muster_membership_free(stage->machine);
    muster_membership_actions_fini(&stage->actions);
    assert_int_equal(muster_mem_limited_fini(&stage->mem), 0);
}

static void stage_check(const struct stage *stage, const char *name, const char *log,
                        enum muster_membership_state state)
{
    if (strcmp(stage->log, log) != 0)
        fail_msg("%s: '%s', not '%s'", name, stage->log, log);
    if (muster_membership_state(stage->machine) != state)
        fail_msg("%s: %s", name,
                 muster_membership_state_name(muster_membership_state(stage->machine)));
}

#define IN(state) MUSTER_MEMBERSHIP_##state

/* --- Views --- */

static const struct {
    const char *name;
    enum standing standing;
    struct view_fields view;
    const char *log;
    enum muster_membership_state state;
} views[] = {
    {"another job's", STEADY, VIEW(6, "123", .is_other_job = true), "abort deregister failed:9 ",
     IN(LEFT)},
    {"another job's older one", STEADY, VIEW(4, "123", .is_other_job = true),
     "abort deregister failed:9 ", IN(LEFT)},
    {"another job's, for an observer", OBSERVER, VIEW(6, "13", .is_other_job = true),
     "abort deregister failed:9 ", IN(LEFT)},
    {"an older one", STEADY, VIEW(4, "123", ), "", IN(STEADY)},
    {"the same", STEADY, VIEW(5, "123", ), "", IN(STEADY)},
    {"another of that number", STEADY, VIEW(5, "123", .is_other_content = true),
     "abort deregister failed:15 ", IN(LEFT)},
    {"the next, never voted for", STEADY, VIEW(6, "123", ), "abort deregister failed:13 ",
     IN(LEFT)},
    {"the next", VOTED, VIEW(6, "123", ), "hand_over:6 ", IN(STEADY)},
    {"the one after the next", VOTED, VIEW(7, "123", ), "abort deregister failed:13 ", IN(LEFT)},
    {"the next without it", VOTED, VIEW(6, "13", ), "abort excluded ", IN(JOINING)},
    {"a later one without it", STEADY, VIEW(9, "13", ), "abort excluded ", IN(JOINING)},
    {"the next without it, as it wished", LEAVING, VIEW(6, "13", ), "abort left ", IN(LEFT)},
    {"a later one, for an observer", OBSERVER, VIEW(7, "13", ), "", IN(JOINING)},
    {"a later one with it, for an observer", OBSERVER, VIEW(7, "123", ), "open:7 ", IN(STEADY)},
    {"any, after its end", GONE, VIEW(8, "123", ), "", IN(LEFT)},
    {"of another job, after its end", GONE, VIEW(8, "123", .is_other_job = true), "", IN(LEFT)},
};

/* By the registry's watch, and told by a peer. */
static void views_are_followed_or_end_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        for (int is_told = 0; is_told <= 1; is_told++) {
            struct stage stage;
            struct muster_control commit = {.kind = MUSTER_CONTROL_COMMIT, .revision = 60};

            stage_open(&stage, 2, views[i].standing);
            commit.view = view_of(&stage, views[i].view);
            if (is_told != 0)
                say(&stage, 1, &commit);
            else
                show_view(&stage, views[i].view, 60);

            stage_check(&stage, views[i].name, views[i].log, views[i].state);
            muster_view_unref(commit.view);
            stage_close(&stage);
        }
}

/* --- Words --- */

struct word_row {
    const char *name;
    unsigned self;
    enum standing standing;
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
    {"freeze", 2, STEADY, 1, WORD(FREEZE, .epoch = 5), 0, "freeze ", IN(FROZEN)},
    {"freeze again", 2, VOTED, 1, WORD(FREEZE, .epoch = 5), 0, "vote>1 ", IN(FROZEN)},
    {"freeze of an older view", 2, STEADY, 1, WORD(FREEZE, .epoch = 4), 0, "commit>1 ", IN(STEADY)},
    {"freeze of a later view", 2, STEADY, 1, WORD(FREEZE, .epoch = 6), 0, "request>1 ", IN(STEADY)},
    {"a stranger's freeze", 2, STEADY, STRANGER, WORD(FREEZE, .epoch = 5), 0, "", IN(STEADY)},
    {"freeze, to an observer", 2, OBSERVER, 1, WORD(FREEZE, .epoch = 5), 0, "", IN(JOINING)},
    {"a lower rank's freeze", 2, STALLED, 1, WORD(FREEZE, .epoch = 5), 0, "vote>1 ", IN(FROZEN)},
    {"a higher rank's freeze", 2, STALLED, 3, WORD(FREEZE, .epoch = 5), 0, "vote>3 ",
     IN(COLLECTING)},
    {"a request", 2, STEADY, 1, WORD(VIEW_REQUEST, .epoch = 4), 0, "commit>1 ", IN(STEADY)},
    {"a request of who has it", 2, STEADY, 1, WORD(VIEW_REQUEST, .epoch = 5), 0, "", IN(STEADY)},
    {"a request of who has more", 2, STEADY, 1, WORD(VIEW_REQUEST, .epoch = 6), 0, "", IN(STEADY)},
    {"a joiner", 1, STEADY, STRANGER, WORD(JOIN, .epoch = 5, .is_ready = true), STRANGER,
     "freeze freeze>2 freeze>3 ", IN(COLLECTING)},
    {"a joiner that is not ready", 1, STEADY, STRANGER, WORD(JOIN, .epoch = 5), STRANGER, "",
     IN(STEADY)},
    {"a joiner in another's name", 1, STEADY, STRANGER, WORD(JOIN, .epoch = 5, .is_ready = true),
     ABSENT, "", IN(STEADY)},
    {"a joiner of an older view", 1, STEADY, STRANGER, WORD(JOIN, .epoch = 4, .is_ready = true),
     STRANGER, "commit>9 ", IN(STEADY)},
    {"a joiner of a later view", 1, STEADY, STRANGER, WORD(JOIN, .epoch = 6, .is_ready = true),
     STRANGER, "request>9 ", IN(STEADY)},
    {"a joiner that is a member", 1, STEADY, 2, WORD(JOIN, .epoch = 5, .is_ready = true), 2, "",
     IN(STEADY)},
    {"a heartbeat of another view", 2, STEADY, 1, WORD(HEARTBEAT, .epoch = 5, .view_digest = 1), 0,
     "abort deregister failed:15 ", IN(LEFT)},
    {"a heartbeat of an older view", 2, STEADY, 1, WORD(HEARTBEAT, .epoch = 4, .view_digest = 1), 0,
     "commit>1 ", IN(STEADY)},
    {"a heartbeat of a later view", 2, STEADY, 1, WORD(HEARTBEAT, .epoch = 6, .view_digest = 1), 0,
     "request>1 ", IN(STEADY)},
    {"its own death", 1, STEADY, 2, WORD(SUSPECT, .epoch = 5, .is_confirmed = true), 1, "",
     IN(STEADY)},
    {"a death", 1, STEADY, 2, WORD(SUSPECT, .epoch = 5, .is_confirmed = true), 3,
     "disconnect>3 freeze freeze>2 ", IN(COLLECTING)},
    {"a death, whatever the view", 1, STEADY, 2, WORD(SUSPECT, .is_confirmed = true), 3,
     "disconnect>3 freeze freeze>2 ", IN(COLLECTING)},
    {"a lost link", 1, STEADY, 2, WORD(SUSPECT, .epoch = 5), 3, "freeze freeze>2 freeze>3 ",
     IN(COLLECTING)},
    {"a lost link of an older view", 1, STEADY, 2, WORD(SUSPECT, .epoch = 4), 3, "", IN(STEADY)},
    {"a link to a stranger", 1, STEADY, 2, WORD(SUSPECT, .epoch = 5), STRANGER, "", IN(STEADY)},
    {"a silence", 1, STEADY, 2, WORD(SUSPECT, .epoch = 5, .is_silence = true), 3, "", IN(STEADY)},
    {"a leave", 1, STEADY, 3, WORD(LEAVE, .epoch = 5), 0, "freeze freeze>2 freeze>3 ",
     IN(COLLECTING)},
    {"a leave of an older view", 1, STEADY, 3, WORD(LEAVE, .epoch = 4), 0, "commit>3 ", IN(STEADY)},
    {"a stranger's leave", 1, STEADY, STRANGER, WORD(LEAVE, .epoch = 5), 0, "", IN(STEADY)},
    {"an abort", 1, STEADY, 3, WORD(ABORT_PROPOSE, .epoch = 5), 0, "freeze freeze>2 freeze>3 ",
     IN(COLLECTING)},
    {"an abort of an older view", 1, STEADY, 3, WORD(ABORT_PROPOSE, .epoch = 4), 0, "commit>3 ",
     IN(STEADY)},
    {"a stranger's abort", 1, STEADY, STRANGER, WORD(ABORT_PROPOSE, .epoch = 5), 0, "", IN(STEADY)},
    {"anything from itself", 2, STEADY, 2, WORD(FREEZE, .epoch = 5), 0, "", IN(STEADY)},
};

static void words_count_from_members_of_the_same_view(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct muster_control control = words[i].control;
        struct stage stage;

        stage_open(&stage, words[i].self, words[i].standing);
        control.member = member_of(words[i].about);
        control.accused = incarnation_of(words[i].about);
        say(&stage, words[i].from, &control);

        stage_check(&stage, words[i].name, words[i].log, words[i].state);
        stage_close(&stage);
    }
}

static void the_dead_do_not_join(void **state)
{
    struct muster_control join = WORD(JOIN, .epoch = 5, .is_ready = true);
    struct stage stage;

    (void)state;
    join.member = member_of(STRANGER);
    stage_open(&stage, 1, STEADY);
    die(&stage, STRANGER);
    stage_forget(&stage);
    say(&stage, STRANGER, &join);

    stage_check(&stage, "dead", "", IN(STEADY));
    stage_close(&stage);
}

/* --- Votes and swaps --- */

static void votes_count_from_members_of_the_same_view(void **state)
{
    static const struct {
        const char *name;
        unsigned self;
        enum standing standing;
        unsigned from;
        uint64_t epoch;
        const char *log;
        enum muster_membership_state state;
    } rows[] = {
        {"a vote", 1, COLLECTING, 2, 5, "cas:6@50 ", IN(PROPOSING)},
        {"a vote in an older view", 1, COLLECTING, 2, 4, "", IN(COLLECTING)},
        {"a vote in a later view", 1, COLLECTING, 2, 6, "", IN(COLLECTING)},
        {"a stranger's vote", 1, COLLECTING, STRANGER, 5, "", IN(COLLECTING)},
        {"a vote, to an observer", 2, OBSERVER, 1, 5, "", IN(JOINING)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;

        stage_open(&stage, rows[i].self, rows[i].standing);
        say_vote(&stage, rows[i].from, rows[i].epoch);

        stage_check(&stage, rows[i].name, rows[i].log, rows[i].state);
        stage_close(&stage);
    }
}

static void nothing_is_proposed_without_the_registry(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage, 1, COLLECTING);
    stage_step(&stage, EVENT(REGISTRY_DOWN, ));
    say_vote(&stage, 2, EPOCH);
    stage_check(&stage, "down", "", IN(COLLECTING));
    stage_step(&stage, EVENT(REGISTRY_UP, ));

    stage_check(&stage, "up", "cas:6@50 ", IN(PROPOSING));
    stage_close(&stage);
}

static void answer_swap(struct stage *stage, enum muster_cas_outcome outcome, uint64_t id)
{
    stage_step(stage, EVENT(CAS_ANSWERED, .id = id, .cas = outcome, .revision = 61));
}

static void a_swap_that_was_won_makes_the_view_true(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage, 1, PROPOSING);
    answer_swap(&stage, MUSTER_CAS_WON, stage.cas_id + 1);
    stage_check(&stage, "another's answer", "", IN(PROPOSING));
    answer_swap(&stage, MUSTER_CAS_WON, stage.cas_id);

    stage_check(&stage, "won", "commit>2 commit>9 hand_over:6 ", IN(STEADY));
    assert_int_equal(muster_membership_view(stage.machine)->member_count, 2);
    stage_close(&stage);
}

/* What the key holds after a swap that was not won, and what follows. */
static void a_swap_that_was_not_won_is_looked_into(void **state)
{
    static const struct {
        const char *name;
        uint64_t epoch; /* in the key; 0: none */
        enum muster_rc rc;
        const char *log;
        enum muster_membership_state state;
    } rows[] = {
        {"the last view", 5, MUSTER_OK, "cas:6@70 ", IN(PROPOSING)},
        {"nothing", 0, MUSTER_OK, "cas:6@0 ", IN(PROPOSING)},
        {"a rival's", 6, MUSTER_OK, "hand_over:6 ", IN(STEADY)},
        {"what cannot be read", 5, MUSTER_UNAVAILABLE, "", IN(PROPOSING)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int is_lost = 0; is_lost <= 1; is_lost++) {
            struct view_fields fields = VIEW(rows[i].epoch, "12", );
            struct muster_view *view;
            struct stage stage;

            stage_open(&stage, 1, PROPOSING);
            view = rows[i].epoch == 0 ? NULL : view_of(&stage, fields);
            stage_step(&stage, EVENT(VIEW_READ, .view = view, .revision = 70));
            stage_check(&stage, "read before the answer", "", IN(PROPOSING));
            answer_swap(&stage, is_lost != 0 ? MUSTER_CAS_LOST : MUSTER_CAS_UNKNOWN, stage.cas_id);
            if (is_lost == 0) {
                stage_check(&stage, "unknown", "", IN(PROPOSING));
                stage.now_ns += MUSTER_NS_PER_S;
                stage_step(&stage, EVENT(HIGHER_EPOCH, .peer = incarnation_of(ABSENT)));
            }
            stage_check(&stage, "read", "read ", IN(PROPOSING));
            stage_forget(&stage);
            stage_step(&stage, EVENT(VIEW_READ, .view = view, .revision = 70, .rc = rows[i].rc));

            stage_check(&stage, rows[i].name, rows[i].log, rows[i].state);
            muster_view_unref(view);
            stage_close(&stage);
        }
}

/* --- Other news --- */

static const struct {
    const char *name;
    enum standing standing;
    enum muster_membership_event_kind kind;
    unsigned peer;
    const char *log;
} news[] = {
    {"its own record of death", STEADY, MUSTER_EVENT_DEAD_PUT, 2, ""},
    {"its own link", STEADY, MUSTER_EVENT_LINK_UP, 2, ""},
    {"a frame of a later epoch", STEADY, MUSTER_EVENT_HIGHER_EPOCH, 1, "request>1 "},
    {"a frame of nobody's", STEADY, MUSTER_EVENT_HIGHER_EPOCH, ABSENT, ""},
    {"an abort", STEADY, MUSTER_EVENT_ABORT_PROPOSED, 0, "propose_abort>1 propose_abort>3 "},
    {"an observer's abort", OBSERVER, MUSTER_EVENT_ABORT_PROPOSED, 0, ""},
    {"a lost data link", STEADY, MUSTER_EVENT_PEER_SUSPECTED, 3, "suspect>1 suspect>3 "},
    {"a lost link to a stranger", STEADY, MUSTER_EVENT_PEER_SUSPECTED, STRANGER, ""},
    {"a lost link to nobody", STEADY, MUSTER_EVENT_PEER_SUSPECTED, ABSENT, ""},
    {"an observer's lost link", OBSERVER, MUSTER_EVENT_PEER_SUSPECTED, 3, ""},
    {"a process's death", STEADY, MUSTER_EVENT_PROCESS_DEAD, 3, "disconnect>3 suspect>1 "},
    {"an answer that nobody waits for", STEADY, MUSTER_EVENT_CAS_ANSWERED, 0, ""},
    {"a resignation of no member", OBSERVER, MUSTER_EVENT_RESIGN, 0, ""},
    {"a record of nobody's is gone", STEADY, MUSTER_EVENT_MEMBER_DELETED, ABSENT, ""},
    {"anything after its end", GONE, MUSTER_EVENT_PROCESS_DEAD, 1, ""},
};

static void news_count_where_they_concern_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(news) / sizeof(news[0]); i++) {
        enum muster_membership_state before;
        struct stage stage;

        stage_open(&stage, 2, news[i].standing);
        before = muster_membership_state(stage.machine);
        stage_step(&stage, (struct muster_membership_event){.kind = news[i].kind,
                                                            .peer = incarnation_of(news[i].peer),
                                                            .text = "SIGKILL"});

        stage_check(&stage, news[i].name, news[i].log, before);
        stage_close(&stage);
    }
}

static void a_death_is_told_once_and_its_links_are_refused(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage, 2, STEADY);
    for (int times = 0; times < 2; times++)
        stage_step(&stage, EVENT(PROCESS_DEAD, .peer = incarnation_of(3), .text = "SIGKILL"));
    stage_check(&stage, "twice", "disconnect>3 suspect>1 ", IN(STEADY));
    stage_forget(&stage);
    stage_step(&stage, EVENT(LINK_UP, .peer = incarnation_of(3)));

    stage_check(&stage, "linked", "disconnect>3 ", IN(STEADY));
    stage_close(&stage);
}

static void its_record_is_put_again_unless_it_leaves(void **state)
{
    const struct muster_member_record record = {.member = member_of(2)};

    (void)state;
    for (int is_leaving = 0; is_leaving <= 1; is_leaving++) {
        struct stage stage;

        stage_open(&stage, 2, STEADY);
        stage_step(&stage, EVENT(MEMBER_PUT, .record = &record, .revision = 51));
        if (is_leaving != 0)
            stage_step(&stage, EVENT(LEAVE, ));
        stage_forget(&stage);
        stage_step(&stage, EVENT(MEMBER_DELETED, .peer = incarnation_of(2)));
        stage_check(&stage, "gone", is_leaving != 0 ? "" : "register ", IN(STEADY));
        stage_forget(&stage);
        stage_step(&stage, EVENT(MEMBER_DELETED, .peer = incarnation_of(2)));

        stage_check(&stage, "gone already", "", IN(STEADY));
        stage_close(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest membership_rules[] = {
        cmocka_unit_test(views_are_followed_or_end_it),
        cmocka_unit_test(words_count_from_members_of_the_same_view),
        cmocka_unit_test(the_dead_do_not_join),
        cmocka_unit_test(votes_count_from_members_of_the_same_view),
        cmocka_unit_test(nothing_is_proposed_without_the_registry),
        cmocka_unit_test(a_swap_that_was_won_makes_the_view_true),
        cmocka_unit_test(a_swap_that_was_not_won_is_looked_into),
        cmocka_unit_test(news_count_where_they_concern_it),
        cmocka_unit_test(a_death_is_told_once_and_its_links_are_refused),
        cmocka_unit_test(its_record_is_put_again_unless_it_leaves),
    };

    return cmocka_run_group_tests(membership_rules, NULL, NULL);
}
