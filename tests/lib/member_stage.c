/* One membership machine that is given single events. */
#include "careful_mem.h"
#include "member_stage.h"

#include <stdio.h>
#include <string.h>

#include "cluster/membership/progress_proto.h"

struct member_stage stage;

struct muster_incarnation member_stage_incarnation(unsigned number)
{
    struct muster_incarnation incarnation;

    memset(incarnation.bytes, (int)number, sizeof(incarnation.bytes));
    return incarnation;
}

struct muster_member member_stage_member(unsigned number)
{
    struct muster_member member = {.incarnation = member_stage_incarnation(number),
                                   .task_type = "worker",
                                   .task_index = number - 1,
                                   .pid = 100 + (int64_t)number};

    (void)snprintf(member.host_key, sizeof(member.host_key), "host%u", number == 4 ? 1 : number);
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

/* "cas:6(12)@50": view 6, of 1 and 2, for the key of revision 50 */
static void note_swap(const struct muster_membership_action *action, char *text, size_t room)
{
    const struct muster_view *view = action->view;
    char members[16] = "";

    for (uint32_t i = 0; i < view->member_count; i++)
        members[i] = (char)('0' + view->members[i].incarnation.bytes[0]);
    stage.cas_id = action->id;
    muster_view_unref(stage.proposed);
    stage.proposed = muster_view_ref(action->view);
    (void)snprintf(text, room, "cas:%u(%s)@%u ", (unsigned)view->epoch, members,
                   (unsigned)action->revision);
}

/* "open:6 " is a group for view 6, "hand_over:6 " one that goes on with the frozen one. */
static void note_action(const struct muster_membership_action *action)
{
    size_t length = strlen(stage.log), room = sizeof(stage.log) - length;
    unsigned peer = action->peer.bytes[0], member = action->member.incarnation.bytes[0];
    char *text = stage.log + length;

    switch (action->kind) {
    case MUSTER_ACTION_SEND:
        stage.heartbeats += action->control.kind == MUSTER_CONTROL_HEARTBEAT;
        if (action->control.kind != MUSTER_CONTROL_HEARTBEAT) {
            stage.last_sent = action->control;
            (void)snprintf(text, room, "%s>%u ", control_name(action->control.kind), peer);
        }
        return;
    case MUSTER_ACTION_CONNECT:
        (void)snprintf(text, room, "connect>%u ", member);
        return;
    case MUSTER_ACTION_RENEW:
        (void)snprintf(text, room, "renew>%u ", peer);
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
        note_swap(action, text, room);
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
    case MUSTER_ACTION_WATCH:
        stage.watches++;
        return;
    default:
        return; /* timers and traces */
    }
}

void member_stage_step(struct muster_membership_event event)
{
    assert_int_equal(muster_membership_step(stage.machine, &event, stage.now_ns, &stage.actions),
                     MUSTER_OK);
    for (size_t i = 0; i < stage.actions.count; i++)
        note_action(&stage.actions.items[i]);
    muster_membership_actions_clear(&stage.actions);
}

void member_stage_tick(uint64_t span_ns)
{
    stage.now_ns += span_ns;
    member_stage_step(STAGE_EVENT(TICK, ));
}

void member_stage_forget(void)
{
    stage.log[0] = '\0';
    stage.heartbeats = stage.watches = 0;
}

void member_stage_check(const char *name, const char *log, enum muster_membership_state state)
{
    if (strcmp(stage.log, log) != 0)
        fail_msg("%s: '%s', not '%s'", name, stage.log, log);
    if (muster_membership_state(stage.machine) != state)
        fail_msg("%s: %s", name,
                 muster_membership_state_name(muster_membership_state(stage.machine)));
    member_stage_forget();
}

/* --- What happens --- */

struct muster_view *member_stage_view(struct stage_view wanted)
{
    struct muster_member members[STAGE_STRANGER];
    struct muster_view fields = {.epoch = wanted.epoch, .members = members, .reason = "a change"};
    struct muster_view *view = NULL;

    fields.is_done = wanted.is_done;
    strcpy(fields.job, wanted.is_other_job ? "another" : "job");
    if (wanted.is_other_content)
        strcpy(fields.reason, "another change");
    for (const char *at = wanted.members; *at != '\0'; at++)
        members[fields.member_count++] = member_stage_member((unsigned)(*at - '0'));
    assert_int_equal(muster_view_new(&stage.mem.mem, &fields, &view), MUSTER_OK);
    return view;
}

void member_stage_show_view(struct stage_view fields, uint64_t revision)
{
    struct muster_view *view = member_stage_view(fields);

    member_stage_step(STAGE_EVENT(VIEW_PUT, .view = view, .revision = revision));
    muster_view_unref(view);
}

void member_stage_put(unsigned number, const struct muster_member_record *fields, uint64_t revision)
{
    struct muster_member_record record = {.member = {.pid = 0}};

    if (fields != NULL)
        record = *fields;
    record.member = member_stage_member(number);
    member_stage_step(STAGE_EVENT(MEMBER_PUT, .record = &record, .revision = revision));
}

void member_stage_link(unsigned number)
{
    member_stage_step(STAGE_EVENT(LINK_UP, .peer = member_stage_incarnation(number)));
}

void member_stage_die(unsigned number)
{
    member_stage_step(
        STAGE_EVENT(DEAD_PUT, .peer = member_stage_incarnation(number), .text = "SIGKILL"));
}

void member_stage_say(unsigned from, const struct muster_control *control)
{
    member_stage_step(
        STAGE_EVENT(CONTROL, .peer = member_stage_incarnation(from), .control = control));
}

void member_stage_say_freeze(unsigned from)
{
    const struct muster_control freeze = {
        .kind = MUSTER_CONTROL_FREEZE, .epoch = STAGE_EPOCH, .change_id = 1};

    member_stage_say(from, &freeze);
}

static struct muster_progress *copy_progress(const struct muster_progress *fields)
{
    struct muster_progress *progress = NULL;

    assert_int_equal(muster_progress_copy(&stage.mem.mem, fields, &progress), MUSTER_OK);
    return progress;
}

void member_stage_freeze(const struct muster_progress *fields)
{
    const struct muster_progress none = {.epoch = muster_membership_view(stage.machine)->epoch};

    member_stage_step(
        STAGE_EVENT(FROZEN, .progress = copy_progress(fields != NULL ? fields : &none)));
}

void member_stage_say_progress(unsigned from, const struct muster_progress *fields,
                               bool is_resigning)
{
    struct muster_control vote = {
        .kind = MUSTER_CONTROL_PROGRESS, .change_id = 1, .is_resigning = is_resigning};

    vote.progress = copy_progress(fields);
    member_stage_say(from, &vote);
    muster_progress_free(vote.progress);
}

void member_stage_say_vote(unsigned from, uint64_t epoch)
{
    const struct muster_progress fields = {.epoch = epoch};

    member_stage_say_progress(from, &fields, false);
}

void member_stage_say_alive(unsigned from)
{
    const struct muster_view *view = muster_membership_view(stage.machine);
    const struct muster_control heartbeat = {
        .kind = MUSTER_CONTROL_HEARTBEAT, .epoch = view->epoch, .view_digest = view->digest};

    member_stage_say(from, &heartbeat);
}

void member_stage_answer_swap(enum muster_cas_outcome outcome, uint64_t revision)
{
    member_stage_step(
        STAGE_EVENT(CAS_ANSWERED, .id = stage.cas_id, .cas = outcome, .revision = revision));
}

/* --- Where it stands --- */

static void stage_reach(enum member_standing standing, unsigned self)
{
    if (standing == STAGE_VOTED || standing == STAGE_STALLED) {
        member_stage_say_freeze(self == 1 ? 2 : 1);
        member_stage_freeze(NULL);
    }
    if (standing == STAGE_STALLED) {
        member_stage_forget();
        stage.now_ns += 5 * MUSTER_NS_PER_S + 500 * MUSTER_NS_PER_MS * (self - 1);
        member_stage_say_alive(1);
        member_stage_say_alive(3);
        assert_int_equal(muster_membership_state(stage.machine), MUSTER_MEMBERSHIP_COLLECTING);
        assert_null(strstr(stage.log, "freeze ")); /* it stands still already */
    }
    if (standing == STAGE_COLLECTING || standing == STAGE_PROPOSING) {
        member_stage_die(3);
        member_stage_freeze(NULL);
    }
    if (standing == STAGE_PROPOSING)
        member_stage_say_vote(2, STAGE_EPOCH);
    if (standing == STAGE_LEAVING || standing == STAGE_GONE) {
        member_stage_step(STAGE_EVENT(LEAVE, .is_done = true));
        member_stage_step(STAGE_EVENT(DEREGISTERED, ));
    }
    if (standing == STAGE_GONE)
        member_stage_show_view((struct stage_view)STAGE_VIEW(STAGE_EPOCH + 1, "13", ),
                               STAGE_REVISION + 1);
}

static void machine_open(unsigned self, const struct muster_membership_options *given)
{
    static const struct muster_membership_options none = {.expected_count = 3};
    struct muster_membership_options options = given != NULL ? *given : none;

    options.job = "job";
    options.self = member_stage_member(self);
    options.mem = &stage.mem.mem;
    options.rng = &stage.rng.rng;
    assert_int_equal(muster_membership_new(&options, &stage.machine), MUSTER_OK);
}

void member_stage_open(unsigned self, enum member_standing standing,
                       const struct muster_membership_options *options)
{
    memset(&stage, 0, sizeof(stage));
    muster_mem_limited_init(&stage.mem, careful_mem(), 0);
    muster_rng_seeded_init(&stage.rng, 1);
    stage.now_ns = 100 * MUSTER_NS_PER_S;
    muster_membership_actions_init(&stage.actions, &stage.mem.mem);
    machine_open(self, options);
    member_stage_step(STAGE_EVENT(START, ));
    member_stage_step(STAGE_EVENT(REGISTRY_UP, ));
    member_stage_step(STAGE_EVENT(SNAPSHOT_BEGIN, ));
    for (unsigned number = 1; standing == STAGE_FORMING && number <= 3; number++)
        member_stage_put(number, NULL, 10 + number);
    if (standing != STAGE_FORMING)
        member_stage_show_view(
            (struct stage_view)STAGE_VIEW(STAGE_EPOCH, standing == STAGE_OBSERVER ? "13" : "123", ),
            STAGE_REVISION);
    member_stage_step(STAGE_EVENT(SNAPSHOT_END, ));
    for (unsigned number = 1; standing != STAGE_FORMING && number <= STAGE_STRANGER; number++)
        if (number != self && (number <= 3 || number == STAGE_STRANGER))
            member_stage_link(number);
    stage_reach(standing, self);
    member_stage_forget();
}

void member_stage_close(void)
{
    muster_view_unref(stage.proposed);
    muster_membership_free(stage.machine);
    muster_membership_actions_fini(&stage.actions);
    assert_int_equal(muster_mem_limited_fini(&stage.mem), 0);
}

int member_stage_tear_down(void **state)
{
    (void)state;
    member_stage_close();
    return 0;
}
