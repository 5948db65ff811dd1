/* Members that call different operations under one id: each says what it has called, all end at
 * once. */
#include "collective/group/group_internal.h"

#include <stdio.h>
#include <string.h>

#define MISMATCH_OVER 1u /* flag: the sender has ended the operation, or has its result */
#define DISPUTED      (UINT64_C(1) << 63)

static bool is_over(const struct muster_run *run)
{
    return run->state >= MUSTER_RUN_DELIVERED || run->is_adopting;
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
    if (run->is_mismatched || run->group->is_frozen)
        return;
    run->is_mismatched = true;
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index && !send_description(run, i)) {
            muster_run_propose_abort(run, MUSTER_INVALID_ARGUMENT);
            return;
        }
}

/* --- Steps that call fewer operations --- */

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

static void explain(struct muster_run *run, uint32_t participant,
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

    muster_wire_recall_op(group->wire, &run->id);
    muster_group_abandon_receiving(group, run);
    muster_run_restore(run);
    run->state = MUSTER_RUN_ENDED;
    run->is_mismatched = false; /* our description is sent again, as of who has ended */
    muster_run_send_mismatch(run);
    run->abort_why = rc;
    run->complete_count = 1;
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index && (run->heard[i] & MUSTER_HEARD_MISMATCH) != 0)
            run->complete_count++;
    muster_run_hand_back(run, rc);
}

static void set_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                        uint64_t expected, bool is_sent_here)
{
    run->call.dispute.rank = muster_op_participant_rank(run->group, &run->id, participant);
    run->call.dispute.sent = sent;
    run->call.dispute.expected = expected;
    run->call.dispute.is_sent_here = is_sent_here;
    run->call.dispute.is_set = true;
    run->descriptor ^= DISPUTED; /* it no longer fits anybody's */
}

void muster_run_say_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                            uint64_t expected)
{
    if (run->op == NULL || run->group->is_frozen)
        return;
    set_dispute(run, participant, sent, expected, false);
    muster_run_send_mismatch(run);
}

void muster_run_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                        uint64_t expected, bool is_sent_here)
{
    struct muster_group *group = run->group;
    struct muster_lane *lane = &group->lanes[MUSTER_LANE_INDEX(run->id.lane)];
    char ours[MUSTER_DESCRIPTION_TEXT_BYTES];

    if (run->op == NULL)
        return;
    set_dispute(run, participant, sent, expected, is_sent_here);
    muster_call_describe(&run->call, ours, sizeof(ours));
    muster_error_set(&run->op->error, MUSTER_INVALID_ARGUMENT,
                     "operation #%u: this rank has called %s", run->id.sequence, ours);
    end_mismatched(run, MUSTER_INVALID_ARGUMENT);
    muster_lane_settle(group, lane);
}

/* --- Against what has been adopted --- */

/* The members' verdict stands; who has called something else ends alone. */
void muster_run_contradict(struct muster_run *run)
{
    char ours[MUSTER_DESCRIPTION_TEXT_BYTES];

    run->is_unfit = run->is_contradicting = true;
    run->abort_why = MUSTER_INVALID_ARGUMENT;
    muster_call_describe(&run->call, ours, sizeof(ours));
    muster_error_set(
        &run->op->error, MUSTER_INVALID_ARGUMENT,
        "operation #%u: this rank has called %s, the others have completed another one",
        run->id.sequence, ours);
    muster_run_await_answers(run);
    muster_run_send_mismatch(run);
}

void muster_run_end_contradicted(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_lane *lane = &group->lanes[MUSTER_LANE_INDEX(run->id.lane)];

    muster_run_end(run, MUSTER_INVALID_ARGUMENT);
    if (!group->is_frozen)
        muster_lane_settle(group, lane);
}

/* A member calls something else than what is decided here: it is told, and not waited for. */
static void answer(struct muster_run *run, uint32_t participant, uint64_t descriptor)
{
    if (descriptor == run->descriptor || run->memory == NULL)
        return;
    (void)send_description(run, participant); /* without memory it ends all the same, later */
    muster_run_hear_complete(run, participant);
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

/* Who says so has announced what this member calls, and so has everybody: the others may have begun, and
 * the inputs are not there any more. A member that contradicts its own board is wrong, or what it said is
 * old; if this member alone believed it, it alone would end otherwise than all. (Over TCP there is no such
 * witness: who is lied to ends with INVALID_ARGUMENT, and the others miss its COMPLETE, so that they end at
 * their deadline and no result differs.) */
static bool is_refuted(struct muster_run *run, uint32_t participant,
                       const struct muster_frame_header *header)
{
    char who[96];

    if (run->shm == NULL || run->op == NULL || header->descriptor == run->descriptor ||
        muster_shm_withdraw(run))
        return false;
    MUSTER_LOG(run->group->env, WARN, "mismatch_refuted", "task",
               muster_group_rank_name(run->group,
                                      muster_op_participant_rank(run->group, &run->id, participant),
                                      who, sizeof(who)),
               "step", run->id.step, "sequence", run->id.sequence);
    return true;
}

void muster_run_hear_mismatch(struct muster_run *run, uint32_t participant,
                              const struct muster_frame_header *header, const char *text)
{
    if (run->state == MUSTER_RUN_DELIVERED || run->is_adopting) {
        answer(run, participant, header->descriptor);
        return;
    }
    if (run->is_contradicting) {
        if (header->descriptor == run->descriptor)
            return;
        explain(run, participant, header, text);
        run->op->error.rc = MUSTER_INVALID_ARGUMENT;
        muster_run_end_contradicted(run);
        return;
    }
    if (run->memory == NULL && !muster_run_take_memory(run))
        return;
    if (is_refuted(run, participant, header))
        return;
    hear_over(run, participant, header);
    muster_run_send_mismatch(run);
    if (run->state != MUSTER_RUN_ENDED && header->descriptor != run->descriptor &&
        run->op != NULL) {
        explain(run, participant, header, text);
        end_mismatched(run, run->op->error.rc);
    }
    muster_lane_settle(run->group, &run->group->lanes[MUSTER_LANE_INDEX(run->id.lane)]);
}
