/* Members that call different operations under one id: each says what it has called, all end at
 * once. */
#include "collective/group_internal.h"

#include <string.h>

void muster_run_send_mismatch(struct muster_run *run)
{
    struct muster_buffer_pool *pool = run->group->pool;

    if (run->is_mismatched || run->group->is_frozen)
        return;
    run->is_mismatched = true;
    for (uint32_t i = 0; i < run->participant_count; i++) {
        char *text;

        if (i == run->self_index)
            continue;
        text = muster_buffer_get(pool, MUSTER_DESCRIPTION_TEXT_BYTES);
        if (text == NULL) {
            muster_run_propose_abort(run, MUSTER_INVALID_ARGUMENT);
            return;
        }
        muster_call_describe(&run->call, text, MUSTER_DESCRIPTION_TEXT_BYTES);
        muster_run_send(run, MUSTER_FRAME_MISMATCH, i, 0, text, (uint32_t)strlen(text), text);
    }
}

/* The text comes from a peer: printable ASCII only. */
static void copy_text(char *to, size_t size, const char *text, size_t bytes)
{
    size_t length = bytes < size - 1 ? bytes : size - 1;

    for (size_t i = 0; i < length; i++)
        to[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    to[length] = '\0';
}

static void explain(struct muster_run *run, uint32_t participant, const char *text, size_t bytes)
{
    uint32_t rank = muster_group_participant_rank(run->group, run->id.step, participant);
    char theirs[MUSTER_DESCRIPTION_TEXT_BYTES], ours[MUSTER_DESCRIPTION_TEXT_BYTES], who[96];

    copy_text(theirs, sizeof(theirs), text, bytes);
    muster_call_describe(&run->call, ours, sizeof(ours));
    muster_error_set(&run->op->error, MUSTER_INVALID_ARGUMENT,
                     "operation #%u: rank %u (%s) has called %s, this rank %s", run->id.sequence,
                     rank, muster_group_rank_name(run->group, rank, who, sizeof(who)), theirs,
                     ours);
}

/* Nothing of the caller's is borrowed afterwards; the run stays as a mark until all have said what
 * they called. */
static void end_mismatched(struct muster_run *run)
{
    struct muster_group *group = run->group;

    muster_wire_recall_op(group->wire, &run->id);
    muster_group_abandon_receiving(group, run);
    muster_run_restore(run);
    run->is_mismatched = false; /* the recall took our description back */
    muster_run_send_mismatch(run);
    run->state = MUSTER_RUN_ENDED;
    run->abort_why = MUSTER_INVALID_ARGUMENT;
    run->complete_count = 1;
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index && (run->heard[i] & MUSTER_HEARD_MISMATCH) != 0)
            run->complete_count++;
    muster_run_hand_back(run, MUSTER_INVALID_ARGUMENT);
}

void muster_run_hear_mismatch(struct muster_run *run, uint32_t participant, uint64_t descriptor,
                              const char *text, size_t bytes)
{
    if (run->state >= MUSTER_RUN_DELIVERED && run->state != MUSTER_RUN_ENDED)
        return;
    if (run->memory == NULL && !muster_run_take_memory(run))
        return;
    if ((run->heard[participant] & MUSTER_HEARD_MISMATCH) != 0)
        return;
    run->heard[participant] |= MUSTER_HEARD_MISMATCH | MUSTER_HEARD_ISSUED;
    muster_run_send_mismatch(run);
    if (run->state == MUSTER_RUN_ENDED)
        run->complete_count++;
    else if (descriptor != run->descriptor && run->op != NULL) {
        explain(run, participant, text, bytes);
        end_mismatched(run);
    }
    muster_lane_settle(run->group, &run->group->lanes[run->id.lane]);
}
