/* The members of the next view: voters that stay, joiners, and whether any of them has the state. Only
 * voters stay: a member without a vote is not known to be frozen, so nothing could be decided about its
 * operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/membership/view_decide_internal.h"

static const struct muster_vote *find_vote(const struct muster_decide_input *input,
                                           const struct muster_incarnation *incarnation)
{
    for (size_t i = 0; i < input->vote_count; i++)
        if (muster_incarnation_is_equal(&input->votes[i].incarnation, incarnation))
            return &input->votes[i];
    return NULL;
}

/* A leaver with an open operation stays for one more view: the others may need a chunk or an input that only
 * it holds. */
static bool vote_stays(const struct muster_vote *vote)
{
    return !vote->is_leaving || vote->progress->op_count > 0;
}

static bool has_task(const struct muster_view *fields, const struct muster_member *member)
{
    for (uint32_t i = 0; i < fields->member_count; i++)
        if (muster_member_compare(&fields->members[i], member) == 0)
            return true;
    return false;
}

/* A joiner begins with a step that nobody has begun, since operations of begun steps count their participants without
 * it. After step UINT64_MAX there is none: the joiner waits at that one. It begins no earlier than an earlier joiner
 * does: to that one it would count as an elder, which has the state. */
static uint64_t joiner_from_step(const struct decision *decision)
{
    uint64_t step = 0;

    for (size_t i = 0; i < decision->input->vote_count; i++) {
        const struct muster_progress *progress = decision->input->votes[i].progress;

        if (progress->begun_step >= step)
            step = progress->begun_step < UINT64_MAX ? progress->begun_step + 1 : UINT64_MAX;
    }
    for (size_t i = 0; i < decision->stayer_count; i++)
        if (decision->stayers[i].from_step > step)
            step = decision->stayers[i].from_step;
    return step;
}

/* Stayers keep their from_step: operations of E that run on in E+1 must have the participants that they
 * began with. */
static void add_stayers(struct decision *decision)
{
    const struct muster_view *view = decision->input->view;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct muster_member *member = &view->members[i];
        const struct muster_vote *vote = find_vote(decision->input, &member->incarnation);

        if (vote == NULL || !vote_stays(vote))
            continue;
        decision->stayers[decision->stayer_count].vote = vote;
        decision->stayers[decision->stayer_count].from_step = member->from_step;
        decision->stayer_count++;
        decision->fields.members[decision->fields.member_count++] = *member;
    }
}

/* A joiner fetches the state from a member, so somebody in the view must hold it. */
static bool has_holder(const struct decision *decision)
{
    for (size_t i = 0; i < decision->stayer_count; i++)
        if (!decision->stayers[i].vote->progress->lacks_state)
            return true;
    return false;
}

/* A holder that leaves with its work done, or without a step beyond the work that others have done before: it came back
 * behind the last step, and its program had nothing left to do. */
static bool is_over_without(const struct decision *decision, const struct muster_vote *vote)
{
    const struct muster_view *view = decision->input->view;

    if (vote->progress->lacks_state || !vote->is_leaving)
        return false;
    return vote->is_done || (view->is_done && vote->done_step <= view->done_step);
}

/* Only joiners that have not caught up would stay. When the last holder of the state leaves and the work is done, the
 * job is over for all; else the state is lost, and every member that stays is told so. */
static void look_for_state(struct decision *decision)
{
    if (decision->stayer_count == 0 || has_holder(decision))
        return;
    for (size_t i = 0; i < decision->input->vote_count; i++) {
        if (!is_over_without(decision, &decision->input->votes[i]))
            continue;
        decision->stayer_count = 0;
        decision->fields.member_count = 0;
        return;
    }
    decision->fields.is_state_lost = true;
}

/* Two joiners may have one task: the later in the list is the newer process. */
static void add_joiners(struct decision *decision)
{
    uint64_t from_step = joiner_from_step(decision);

    if (!has_holder(decision))
        return; /* no member would have the state */
    for (size_t i = decision->input->joiner_count; i-- > 0;) {
        const struct muster_member *joiner = &decision->input->joiners[i];

        if (find_vote(decision->input, &joiner->incarnation) != NULL ||
            has_task(&decision->fields, joiner))
            continue;
        decision->fields.members[decision->fields.member_count] = *joiner;
        decision->fields.members[decision->fields.member_count].from_step = from_step;
        decision->fields.member_count++;
    }
}

static int compare_members(const void *a, const void *b)
{
    return muster_member_compare(a, b);
}

/* Ranks of the new view are needed for the sources of verdicts, so the members are sorted here. */
static void rank_members(struct decision *decision)
{
    struct muster_view *fields = &decision->fields;

    if (fields->member_count > 0)
        qsort(fields->members, fields->member_count, sizeof(*fields->members), compare_members);
    for (size_t i = 0; i < decision->stayer_count; i++)
        for (uint32_t rank = 0; rank < fields->member_count; rank++)
            if (muster_incarnation_is_equal(&fields->members[rank].incarnation,
                                            &decision->stayers[i].vote->incarnation))
                decision->stayers[i].rank = rank;
}

/* Among the members that have gone furthest the one with the fewest calls counts: whoever calls more in that step has
 * called what that member has left out. */
static void note_done_calls(struct decision *decision, const struct muster_vote *vote)
{
    const struct muster_view *view = decision->input->view;
    struct muster_view *fields = &decision->fields;
    bool is_further = !fields->is_done || vote->done_step > fields->done_step;
    bool is_less = vote->done_step == fields->done_step && vote->done_calls != 0 &&
                   (fields->done_calls == 0 || vote->done_calls < fields->done_calls);
    uint32_t rank;

    if (!is_further && !is_less)
        return;
    fields->done_calls = vote->done_calls;
    if (muster_view_find(view, &vote->incarnation, &rank))
        (void)snprintf(fields->done_by, sizeof(fields->done_by), "%s:%u",
                       view->members[rank].task_type, view->members[rank].task_index);
}

/* Remember the work of the leavers, for processes that come back when no member is left to ask. */
static void note_done(struct decision *decision)
{
    const struct muster_decide_input *input = decision->input;
    struct muster_view *fields = &decision->fields;

    fields->is_done = input->view->is_done;
    fields->done_step = input->view->done_step;
    fields->done_calls = input->view->done_calls;
    memcpy(fields->done_by, input->view->done_by, sizeof(fields->done_by));
    for (size_t i = 0; i < input->vote_count; i++) {
        const struct muster_vote *vote = &input->votes[i];

        if (!vote->is_leaving || !vote->is_done || vote_stays(vote))
            continue;
        note_done_calls(decision, vote);
        fields->is_done = true;
        if (vote->done_step > fields->done_step)
            fields->done_step = vote->done_step;
    }
}

/* Every member tells the change with this one step, whichever step it was in itself. */
static void note_begun(struct decision *decision)
{
    const struct muster_decide_input *input = decision->input;
    struct muster_view *fields = &decision->fields;

    fields->begun_step = input->view->begun_step;
    for (size_t i = 0; i < input->vote_count; i++)
        if (input->votes[i].progress->begun_step > fields->begun_step)
            fields->begun_step = input->votes[i].progress->begun_step;
}

/* The step that the furthest member has begun is finished by all. Nobody can begin another one before it has this
 * view, since its vote is its last word. */
static void note_stop(struct decision *decision)
{
    const struct muster_view *view = decision->input->view;
    struct muster_view *fields = &decision->fields;

    fields->is_stopping = view->is_stopping || decision->input->is_preempted;
    if (view->is_stopping)
        fields->stop_step = view->stop_step;
    else if (fields->is_stopping)
        fields->stop_step = fields->begun_step;
}

enum muster_rc muster_decide_members(struct decision *decision)
{
    const struct muster_decide_input *input = decision->input;
    size_t room = input->view->member_count + input->joiner_count;

    decision->fields.members =
        muster_mem_alloc_zero(decision->mem, room, sizeof(*decision->fields.members));
    decision->stayers =
        muster_mem_alloc_zero(decision->mem, input->view->member_count, sizeof(*decision->stayers));
    if (decision->fields.members == NULL || decision->stayers == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    note_done(decision);
    note_begun(decision);
    note_stop(decision);
    add_stayers(decision);
    look_for_state(decision);
    if (!decision->fields.is_stopping)
        add_joiners(decision);
    rank_members(decision);
    return MUSTER_OK;
}
