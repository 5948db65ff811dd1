/* Packing and unpacking of control messages. A message comes from a peer, so sizes and enums in it are
 * checked here. Whether its sender may say so is decided by control.c. */
#include "cluster/membership/control_proto.h"

#include <string.h>

#include "cluster/membership/progress_proto.h"
#include "collective/view/op_id_proto.h"
#include "collective/view/view_proto.h"
#include "proto/guard.h"
#include "proto/membership.pb-c.h"

/* --- messages: pack --- */

/* Everything a Control may point into while it is packed. */
struct message {
    Muster__Control control;
    union {
        Muster__Freeze freeze;
        Muster__Progress progress;
        Muster__Commit commit;
        Muster__ViewRequest view_request;
        Muster__Join join;
        Muster__Leave leave;
        Muster__AbortPropose abort_propose;
        Muster__Heartbeat heartbeat;
        Muster__Suspect suspect;
    } body;
    Muster__OpId op;
    void *nested; /* packed view, member or progress vector */
};

static enum muster_rc fill_progress(struct message *message, struct muster_mem *mem,
                                    const struct muster_control *control)
{
    Muster__Progress *progress = &message->body.progress;
    enum muster_rc rc;

    muster__progress__init(progress);
    rc = muster_progress_pack(control->progress, mem, &message->nested, &progress->vector.len);
    if (rc != MUSTER_OK)
        return rc;
    progress->vector.data = message->nested;
    progress->change_id = control->change_id;
    progress->is_resigning = control->is_resigning;
    message->control.body_case = MUSTER__CONTROL__BODY_PROGRESS;
    message->control.progress = progress;
    return MUSTER_OK;
}

static enum muster_rc fill_commit(struct message *message, struct muster_mem *mem,
                                  const struct muster_control *control)
{
    Muster__Commit *commit = &message->body.commit;
    enum muster_rc rc;

    muster__commit__init(commit);
    rc = muster_view_pack(control->view, mem, &message->nested, &commit->view.len);
    if (rc != MUSTER_OK)
        return rc;
    commit->view.data = message->nested;
    commit->revision = control->revision;
    message->control.body_case = MUSTER__CONTROL__BODY_COMMIT;
    message->control.commit = commit;
    return MUSTER_OK;
}

static enum muster_rc fill_join(struct message *message, struct muster_mem *mem,
                                const struct muster_control *control)
{
    Muster__Join *join = &message->body.join;
    enum muster_rc rc;

    muster__join__init(join);
    rc = muster_member_pack(&control->member, mem, &message->nested, &join->member.len);
    if (rc != MUSTER_OK)
        return rc;
    join->member.data = message->nested;
    join->epoch = control->epoch;
    join->committed_step = control->committed_step;
    join->is_ready = control->is_ready;
    message->control.body_case = MUSTER__CONTROL__BODY_JOIN;
    message->control.join = join;
    return MUSTER_OK;
}

static void fill_heartbeat(struct message *message, const struct muster_control *control)
{
    Muster__Heartbeat *heartbeat = &message->body.heartbeat;

    muster__heartbeat__init(heartbeat);
    muster_op_id_to_message(&control->op, &message->op);
    heartbeat->epoch = control->epoch;
    heartbeat->view_digest = control->view_digest;
    heartbeat->progress = control->progress_count;
    heartbeat->state = (Muster__HeartbeatState)control->state;
    heartbeat->waiting_rank = control->waiting_rank;
    heartbeat->op = &message->op;
    message->control.body_case = MUSTER__CONTROL__BODY_HEARTBEAT;
    message->control.heartbeat = heartbeat;
}

static void fill_suspect(struct message *message, const struct muster_control *control)
{
    Muster__Suspect *suspect = &message->body.suspect;

    muster__suspect__init(suspect);
    suspect->epoch = control->epoch;
    suspect->incarnation.data = (uint8_t *)(uintptr_t)control->accused.bytes;
    suspect->incarnation.len = sizeof(control->accused.bytes);
    suspect->reason = (char *)(uintptr_t)control->text;
    suspect->is_confirmed = control->is_confirmed;
    suspect->is_silence = control->is_silence;
    message->control.body_case = MUSTER__CONTROL__BODY_SUSPECT;
    message->control.suspect = suspect;
}

static void fill_abort(struct message *message, const struct muster_control *control)
{
    Muster__AbortPropose *abort_propose = &message->body.abort_propose;

    muster__abort_propose__init(abort_propose);
    muster_op_id_to_message(&control->op, &message->op);
    abort_propose->epoch = control->epoch;
    abort_propose->op = &message->op;
    abort_propose->reason = (uint32_t)control->reason;
    message->control.body_case = MUSTER__CONTROL__BODY_ABORT_PROPOSE;
    message->control.abort_propose = abort_propose;
}

static void fill_small(struct message *message, const struct muster_control *control)
{
    if (control->kind == MUSTER_CONTROL_FREEZE) {
        muster__freeze__init(&message->body.freeze);
        message->body.freeze.epoch = control->epoch;
        message->body.freeze.change_id = control->change_id;
        message->control.body_case = MUSTER__CONTROL__BODY_FREEZE;
        message->control.freeze = &message->body.freeze;
    } else if (control->kind == MUSTER_CONTROL_LEAVE) {
        muster__leave__init(&message->body.leave);
        message->body.leave.epoch = control->epoch;
        message->body.leave.is_resigning = control->is_resigning;
        message->body.leave.is_done = control->is_done;
        message->body.leave.committed_step = control->committed_step;
        message->body.leave.calls = control->done_calls;
        message->control.body_case = MUSTER__CONTROL__BODY_LEAVE;
        message->control.leave = &message->body.leave;
    } else {
        muster__view_request__init(&message->body.view_request);
        message->body.view_request.epoch = control->epoch;
        message->control.body_case = MUSTER__CONTROL__BODY_VIEW_REQUEST;
        message->control.view_request = &message->body.view_request;
    }
}

/* Views, members and vectors travel as bytes inside: each has one wire form, whatever message carries it. */
static enum muster_rc fill_message(struct message *message, struct muster_mem *mem,
                                   const struct muster_control *control)
{
    switch (control->kind) {
    case MUSTER_CONTROL_PROGRESS:
        return fill_progress(message, mem, control);
    case MUSTER_CONTROL_COMMIT:
        return fill_commit(message, mem, control);
    case MUSTER_CONTROL_JOIN:
        return fill_join(message, mem, control);
    case MUSTER_CONTROL_ABORT_PROPOSE:
        fill_abort(message, control);
        return MUSTER_OK;
    case MUSTER_CONTROL_HEARTBEAT:
        fill_heartbeat(message, control);
        return MUSTER_OK;
    case MUSTER_CONTROL_SUSPECT:
        fill_suspect(message, control);
        return MUSTER_OK;
    case MUSTER_CONTROL_FREEZE:
    case MUSTER_CONTROL_LEAVE:
    case MUSTER_CONTROL_VIEW_REQUEST:
        fill_small(message, control);
        return MUSTER_OK;
    }
    return MUSTER_INVALID_ARGUMENT;
}

enum muster_rc muster_control_pack(const struct muster_control *control, struct muster_mem *mem,
                                   void **ret_bytes, size_t *ret_size)
{
    struct message message;
    enum muster_rc rc;

    memset(&message, 0, sizeof(message));
    muster__control__init(&message.control);
    rc = fill_message(&message, mem, control);
    if (rc == MUSTER_OK)
        rc = muster_proto_pack(mem, &message.control, ret_bytes, ret_size);
    muster_mem_free(mem, message.nested);
    return rc;
}

/* --- messages: unpack --- */

/* A text that is too long is cut: it is for people only. */
static enum muster_rc read_suspect(const Muster__Suspect *message, struct muster_control *control)
{
    size_t length = strlen(message->reason);

    if (message->incarnation.len != sizeof(control->accused.bytes))
        return MUSTER_INVALID_ARGUMENT;
    memcpy(control->accused.bytes, message->incarnation.data, sizeof(control->accused.bytes));
    if (length >= sizeof(control->text))
        length = sizeof(control->text) - 1;
    memcpy(control->text, message->reason, length);
    control->epoch = message->epoch;
    control->is_confirmed = message->is_confirmed != 0;
    control->is_silence = message->is_silence != 0;
    return MUSTER_OK;
}

static enum muster_rc read_heartbeat(const Muster__Heartbeat *message,
                                     struct muster_control *control)
{
    if (message->state > MUSTER__HEARTBEAT_STATE__HEARTBEAT_WAITING)
        return MUSTER_INVALID_ARGUMENT;
    control->epoch = message->epoch;
    control->view_digest = message->view_digest;
    control->progress_count = message->progress;
    control->state = (enum muster_heartbeat_state)message->state;
    control->waiting_rank = message->waiting_rank;
    if (message->op != NULL)
        muster_op_id_from_message(message->op, &control->op);
    return MUSTER_OK;
}

static enum muster_rc read_abort(const Muster__AbortPropose *message,
                                 struct muster_control *control)
{
    if (message->op == NULL)
        return MUSTER_INVALID_ARGUMENT;
    muster_op_id_from_message(message->op, &control->op);
    control->epoch = message->epoch;
    control->reason = (enum muster_rc)message->reason;
    return MUSTER_OK;
}

static enum muster_rc read_control(struct muster_mem *mem, const Muster__Control *message,
                                   struct muster_control *control)
{
    switch (message->body_case) {
    case MUSTER__CONTROL__BODY_FREEZE:
        control->kind = MUSTER_CONTROL_FREEZE;
        control->epoch = message->freeze->epoch;
        control->change_id = message->freeze->change_id;
        return MUSTER_OK;
    case MUSTER__CONTROL__BODY_PROGRESS:
        control->kind = MUSTER_CONTROL_PROGRESS;
        control->change_id = message->progress->change_id;
        control->is_resigning = message->progress->is_resigning != 0;
        return muster_progress_unpack(mem, message->progress->vector.data,
                                      message->progress->vector.len, &control->progress);
    case MUSTER__CONTROL__BODY_COMMIT:
        control->kind = MUSTER_CONTROL_COMMIT;
        control->revision = message->commit->revision;
        return muster_view_unpack(mem, message->commit->view.data, message->commit->view.len,
                                  &control->view);
    case MUSTER__CONTROL__BODY_VIEW_REQUEST:
        control->kind = MUSTER_CONTROL_VIEW_REQUEST;
        control->epoch = message->view_request->epoch;
        return MUSTER_OK;
    case MUSTER__CONTROL__BODY_JOIN:
        control->kind = MUSTER_CONTROL_JOIN;
        control->epoch = message->join->epoch;
        control->committed_step = message->join->committed_step;
        control->is_ready = message->join->is_ready != 0;
        return muster_member_unpack(mem, message->join->member.data, message->join->member.len,
                                    &control->member);
    case MUSTER__CONTROL__BODY_LEAVE:
        control->kind = MUSTER_CONTROL_LEAVE;
        control->epoch = message->leave->epoch;
        control->is_resigning = message->leave->is_resigning != 0;
        control->is_done = message->leave->is_done != 0;
        control->committed_step = message->leave->committed_step;
        control->done_calls = message->leave->calls;
        return MUSTER_OK;
    case MUSTER__CONTROL__BODY_ABORT_PROPOSE:
        control->kind = MUSTER_CONTROL_ABORT_PROPOSE;
        return read_abort(message->abort_propose, control);
    case MUSTER__CONTROL__BODY_HEARTBEAT:
        control->kind = MUSTER_CONTROL_HEARTBEAT;
        return read_heartbeat(message->heartbeat, control);
    case MUSTER__CONTROL__BODY_SUSPECT:
        control->kind = MUSTER_CONTROL_SUSPECT;
        return read_suspect(message->suspect, control);
    default:
        return MUSTER_INVALID_ARGUMENT;
    }
}

enum muster_rc muster_control_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                     struct muster_control *ret_control)
{
    Muster__Control *message = NULL;
    struct muster_control control;
    enum muster_rc rc =
        muster_proto_unpack(mem, &muster__control__descriptor, bytes, size, NULL, &message, NULL);

    memset(&control, 0, sizeof(control));
    if (rc == MUSTER_OK)
        rc = read_control(mem, message, &control);
    muster_proto_free(message);
    if (rc == MUSTER_OK)
        *ret_control = control;
    return rc;
}

void muster_control_fini(struct muster_control *control)
{
    muster_view_unref(control->view);
    muster_progress_free(control->progress);
    control->view = NULL;
    control->progress = NULL;
}
