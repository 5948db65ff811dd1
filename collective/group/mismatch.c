/* Members that call different operations under one id: each says what it has called, all end at
 * once. The descriptor, a hash of the call, goes with every frame of an operation, so the first one shows it. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <stdio.h>
#include <string.h>

#define MISMATCH_OVER 1u /* flag: the sender has ended the operation, or has its result */

static bool is_over(const struct muster_run *run)
{
    return run->state >= MUSTER_RUN_DELIVERED || muster_run_is_adopting(run);
}

/* False: no memory. */
static bool send_description(struct muster_run *run, uint32_t participant)
{
    struct muster_group *group = run->group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_MISMATCH,
        .flags = is_over(run) ? MISMATCH_OVER : 0,
        .epoch = group->view->epoch,
        .op = run->id,
        .offset = run->call.root.epoch,
        .descriptor = run->descriptor,
    };
    char *text = muster_buffer_get(group->pool, MUSTER_DESCRIPTION_TEXT_BYTES);

    if (text == NULL)
        return false;
    muster_call_describe(&run->call, text, MUSTER_DESCRIPTION_TEXT_BYTES);
    header.payload_bytes = (uint32_t)strlen(text);
    muster_wire_send(group->wire, muster_op_participant_rank(group, &run->id, participant), &header,
                     text, text);
    return true;
}

void muster_run_send_mismatch(struct muster_run *run)
{
    if (run->has_sent_mismatch || run->group->is_frozen)
        return;
    run->has_sent_mismatch = true;
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index && !send_description(run, i)) {
            muster_run_propose_abort(run, MUSTER_INVALID_ARGUMENT);
            return;
        }
}

/* --- Steps that call fewer operations --- */

/* Only two steps are remembered. For an older one the answer is yes, so that nothing is ended by mistake. */
static bool was_called(const struct muster_lane *lane, const struct muster_op_id *id)
{
    if (id->step == lane->step)
        return id->sequence < lane->next_sequence;
    if (id->step == lane->step_before)
        return id->sequence < lane->count_before;
    return id->step < lane->step_before;
}

/* A lane that was not used here may be one whose operations are named elsewhere. */
bool muster_group_has_skipped(const struct muster_group *group, const struct muster_op_id *id)
{
    uint32_t index = MUSTER_LANE_INDEX(id->lane);
    const struct muster_lane *lane = &group->lanes[index];

    return id->step > 0 && id->step <= group->committed_step && (index == 0 || lane->is_used) &&
           muster_group_is_lane_known(group, id) && !was_called(lane, id);
}

static uint32_t count_called(const struct muster_lane *lane, uint64_t step)
{
    if (step == lane->step)
        return lane->next_sequence;
    return step == lane->step_before ? lane->count_before : 0;
}

uint32_t muster_group_count_called(const struct muster_group *group, uint64_t step)
{
    const struct muster_lane *lane = &group->lanes[0];
    uint32_t first = step == lane->step_before ? lane->first_before : 0;

    if (step == lane->step)
        first = lane->first_sequence;
    return count_called(lane, step) - first;
}

/* Nothing is left to do here, so that it is over at once; commit is what was called under this id. */
void muster_group_say_skipped(struct muster_group *group, uint32_t rank,
                              const struct muster_op_id *id)
{
    uint32_t count = count_called(&group->lanes[MUSTER_LANE_INDEX(id->lane)], id->step);
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_MISMATCH,
                                         .flags = MISMATCH_OVER,
                                         .epoch = group->view->epoch,
                                         .op = *id};
    char *text = muster_buffer_get(group->pool, MUSTER_DESCRIPTION_TEXT_BYTES);
    char who[96];

    if (text == NULL)
        return; /* it asks again */
    snprintf(text, MUSTER_DESCRIPTION_TEXT_BYTES, "commit of step %llu after %u operation%s",
             (unsigned long long)id->step, count, count == 1 ? "" : "s");
    header.payload_bytes = (uint32_t)strlen(text);
    muster_wire_send(group->wire, rank, &header, text, text);
    if (muster_op_id_compare(&group->skipped, id) == 0)
        return;
    group->skipped = *id;
    MUSTER_LOG(group->env, WARN, "op_skipped", "step", id->step, "called", count, "waiting",
               muster_group_rank_name(group, rank, who, sizeof(who)), "remedy",
               "all members must call the same operations in a step");
    if (group->events->on_skipped != NULL)
        group->events->on_skipped(group->data, id->step);
}

/* A member that has left cannot be asked any more: the view tells how many operations it called in its last step. Both
 * count from the last time that they began the step. */
bool muster_run_is_left_out(const struct muster_run *run, const struct muster_view *view)
{
    uint32_t first = run->group->lanes[0].first_sequence;

    return view->is_done && view->done_calls > 0 && run->id.lane == 0 && run->id.step > 0 &&
           run->id.step == view->done_step && run->id.sequence >= first + view->done_calls - 1;
}

/* All members of the view come to the same end, by themselves. */
void muster_run_end_left_out(struct muster_run *run, const struct muster_view *view)
{
    char ours[MUSTER_DESCRIPTION_TEXT_BYTES];
    struct muster_group *group = run->group;
    uint32_t count = view->done_calls - 1;

    MUSTER_LOG(group->env, WARN, "op_left_out", "step", run->id.step, "sequence", run->id.sequence,
               "task", view->done_by, "remedy",
               "all members must call the same operations in a step");
    if (run->op != NULL) {
        muster_call_describe(&run->call, ours, sizeof(ours));
        muster_error_set(&run->op->error, MUSTER_INVALID_ARGUMENT,
                         "operation #%u: %s, which has left, has called commit of step %llu after "
                         "%u operation%s, this rank %s",
                         run->id.sequence, view->done_by, (unsigned long long)run->id.step, count,
                         count == 1 ? "" : "s", ours);
        if (group->events->on_left_out != NULL)
            group->events->on_left_out(group->data, run->id.step, run->op->error.text);
    }
    muster_run_restore(run);
    run->result.verdict = MUSTER_VERDICT_ABORTED;
    muster_run_end(run, MUSTER_INVALID_ARGUMENT);
}

/* The text comes from a peer: printable ASCII only. */
static void copy_text(char *to, size_t size, const char *text, size_t bytes)
{
    size_t length = bytes < size - 1 ? bytes : size - 1;

    for (size_t i = 0; i < length; i++)
        to[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    to[length] = '\0';
}

/* Members that know different views may mean different processes by one rank: nobody's mistake. */
static enum muster_rc reason_of(const struct muster_run *run,
                                const struct muster_frame_header *header)
{
    bool is_shift = muster_call_differs_in_root(run->descriptor, header->descriptor) &&
                    run->call.root.epoch != header->offset;

    return is_shift ? MUSTER_ABORTED : MUSTER_INVALID_ARGUMENT;
}

static void explain_mismatch(struct muster_run *run, uint32_t participant,
                             const struct muster_frame_header *header, const char *text)
{
    uint32_t rank = muster_op_participant_rank(run->group, &run->id, participant);
    char theirs[MUSTER_DESCRIPTION_TEXT_BYTES], ours[MUSTER_DESCRIPTION_TEXT_BYTES], who[96];
    enum muster_rc rc = reason_of(run, header);

    copy_text(theirs, sizeof(theirs), text, header->payload_bytes);
    muster_call_describe(&run->call, ours, sizeof(ours));
    muster_group_rank_name(run->group, rank, who, sizeof(who));
    if (rc == MUSTER_ABORTED)
        muster_error_set(&run->op->error, rc,
                         "ranks have changed: rank %u (%s) has called %s in view %llu, this rank "
                         "%s in view %llu",
                         rank, who, theirs, (unsigned long long)header->offset, ours,
                         (unsigned long long)run->call.root.epoch);
    else
        muster_error_set(&run->op->error, rc,
                         "operation #%u: rank %u (%s) has called %s, this rank %s",
                         run->id.sequence, rank, who, theirs, ours);
}

/* Nothing of the caller's is borrowed afterwards; the run stays as a mark until all have said that
 * it is over for them: a change of view may come before they have heard of the difference. */
static void end_mismatched(struct muster_run *run, enum muster_rc rc)
{
    struct muster_group *group = run->group;

    MUSTER_ASSERT(run->op != NULL);
    muster_wire_recall_op(group->wire, &run->id);
    muster_group_abandon_receiving(group, run);
    muster_run_restore(run);
    muster_run_move_to(run, MUSTER_RUN_ENDED);
    run->has_sent_mismatch =
        false; /* the description goes out again, as that of a member that has ended */
    muster_run_send_mismatch(run);
    run->abort_why = rc;
    run->complete_count = 1;
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index && (run->heard[i] & MUSTER_HEARD_MISMATCH) != 0)
            run->complete_count++;
    muster_run_hand_back(run, rc);
}

void muster_run_send_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                             uint64_t expected)
{
    if (!run->group->is_frozen && muster_run_set_dispute(run, participant, sent, expected, false))
        muster_run_send_mismatch(run);
}

void muster_run_end_disputed(struct muster_run *run)
{
    char ours[MUSTER_DESCRIPTION_TEXT_BYTES];

    MUSTER_ASSERT(run->op != NULL && run->call.dispute.is_set);
    muster_call_describe(&run->call, ours, sizeof(ours));
    muster_error_set(&run->op->error, MUSTER_INVALID_ARGUMENT,
                     "operation #%u: this rank has called %s", run->id.sequence, ours);
    end_mismatched(run, MUSTER_INVALID_ARGUMENT);
}

/* --- Against what has been adopted --- */

/* The members' verdict stands; who has called something else ends alone. */
void muster_run_contradict(struct muster_run *run)
{
    char ours[MUSTER_DESCRIPTION_TEXT_BYTES];

    muster_run_set_mode(run, MUSTER_RUN_CONTRADICTED);
    run->abort_why = MUSTER_INVALID_ARGUMENT;
    muster_call_describe(&run->call, ours, sizeof(ours));
    muster_error_set(
        &run->op->error, MUSTER_INVALID_ARGUMENT,
        "operation #%u: this rank has called %s, the others have completed another one",
        run->id.sequence, ours);
    muster_run_await_answers(run);
    muster_run_send_mismatch(run);
}

static void hear_over(struct muster_run *run, uint32_t participant,
                      const struct muster_frame_header *header)
{
    bool is_known = (run->heard[participant] & MUSTER_HEARD_MISMATCH) != 0;

    run->heard[participant] |= MUSTER_HEARD_ISSUED;
    if (is_known || (header->flags & MISMATCH_OVER) == 0)
        return;
    run->heard[participant] |= MUSTER_HEARD_MISMATCH;
    if (run->state == MUSTER_RUN_ENDED)
        run->complete_count++;
}

/* The sender has announced the call of this member, and so has every other: the others may have
 * begun, and the inputs are not there any more. A member that contradicts its own board is wrong,
 * or its frame is old; if this member alone believed it, it alone would end otherwise than all.
 * (Over TCP there is no such witness: a member that is lied to ends with INVALID_ARGUMENT, and
 * the others miss its COMPLETE, so that they end at their deadline and no result differs.) */
static bool is_refuted(struct muster_run *run, uint32_t participant,
                       const struct muster_frame_header *header)
{
    char who[96];

    if (!muster_run_is_shared(run) || run->op == NULL || header->descriptor == run->descriptor ||
        run->ops->shared->withdraw(run))
        return false;
    MUSTER_LOG(run->group->env, WARN, "mismatch_refuted", "task",
               muster_group_rank_name(run->group,
                                      muster_op_participant_rank(run->group, &run->id, participant),
                                      who, sizeof(who)),
               "step", run->id.step, "sequence", run->id.sequence);
    return true;
}

/* The result here stands: the member is told, and is not waited for. Without memory for the
 * description it ends all the same, later. */
static bool is_answered(struct muster_run *run, uint32_t participant, uint64_t descriptor)
{
    if (descriptor == run->descriptor || run->memory == NULL)
        return false;
    (void)send_description(run, participant);
    return true;
}

enum muster_mismatch_heard muster_run_hear_mismatch(struct muster_run *run, uint32_t participant,
                                                    const struct muster_frame_header *header,
                                                    const char *text)
{
    if (is_over(run) && run->state != MUSTER_RUN_ENDED)
        return is_answered(run, participant, header->descriptor) ? MUSTER_MISMATCH_IS_THEIRS
                                                                 : MUSTER_MISMATCH_NOTED;
    if (run->mode == MUSTER_RUN_CONTRADICTED) {
        if (header->descriptor == run->descriptor)
            return MUSTER_MISMATCH_NOTED;
        explain_mismatch(run, participant, header, text);
        run->op->error.rc = MUSTER_INVALID_ARGUMENT;
        return MUSTER_MISMATCH_CONTRADICTS;
    }
    if (!muster_run_take_memory(run)) {
        muster_run_propose_abort(run, MUSTER_RESOURCE_EXHAUSTED);
        return MUSTER_MISMATCH_NOTED;
    }
    if (is_refuted(run, participant, header))
        return MUSTER_MISMATCH_NOTED;
    hear_over(run, participant, header);
    muster_run_send_mismatch(run);
    if (run->state != MUSTER_RUN_ENDED && header->descriptor != run->descriptor &&
        run->op != NULL) {
        explain_mismatch(run, participant, header, text);
        end_mismatched(run, run->op->error.rc);
    }
    return MUSTER_MISMATCH_NOTED;
}
