/* The decision at the heart of a change of view: what each member knows -> view E+1. Pure. */
#ifndef MUSTER_CLUSTER_VIEW_DECIDE_H
#define MUSTER_CLUSTER_VIEW_DECIDE_H

#include <muster/view.h>

#include "collective/view/progress.h"

/** The vote of a member of view E, which is frozen. */
struct muster_vote {
    struct muster_incarnation incarnation;
    const struct muster_progress *progress; /* borrowed; progress->epoch == E */
    bool is_leaving;
    bool is_done; /* with is_leaving: its work is, up to done_step (its vote may be older) */
    uint64_t done_step;
    uint32_t done_calls; /* operations that it called in done_step, + 1; 0: not known */
};

struct muster_decide_input {
    struct muster_mem *mem;
    const struct muster_view *view;  /* E */
    const struct muster_vote *votes; /* of distinct members of E; a member without a vote is lost */
    size_t vote_count;
    const struct muster_member
        *joiners; /* their from_step is ignored, and so is a joiner that is a voter */
    size_t joiner_count;
    bool is_preempted;  /* the job is to stop: behind the highest step that has been begun */
    bool is_abort_all;  /* below min_members for too long: what is not forced to ADOPT is ABORTED */
    const char *reason; /* borrowed */
};

/**
 * Decide view E+1 (docs/protocol.md, "A change E -> E+1").
 *
 * Members: voters keep their from_step; a leaver with an open operation stays for one more epoch,
 * because another member may need what it holds; a joiner takes part from the step after the highest
 * that any voter has begun. A joiner whose task is held by a voter is left out (the voter is alive),
 * and nobody joins where all leave. The view remembers that a leaver's work was done (is_done,
 * done_step). Where no member that stays has the training state nobody joins either: the view is
 * empty when the last holder leaves with its work done, or no further than the done_step before (the
 * job is over), else it is marked is_state_lost. Nobody joins a job that stops (is_stopping,
 * stop_step), which is said from view to view.
 * Verdicts: one for every operation that is open at a voter, and the ABORTED ones of E that a voter
 * has not met yet.
 *
 * Owns:    gives *ret_view.
 * Errors:  RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_view_decide(const struct muster_decide_input *input,
                                                    struct muster_view **ret_view);

#endif
