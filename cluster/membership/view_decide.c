/* The decision of a change of view: members, from_step of joiners, and one verdict per interrupted
 * operation. It is a function of the votes alone, so it can be tested with tables and enumerated by
 * simulation (docs/protocol.md, "The decision"). Safe means: no member ends an operation with another result
 * than any other member of E+1. A result that some member has delivered is therefore forced on all (ADOPT),
 * and everything else ends alike everywhere (RETRY or ABORTED). */
#include "cluster/membership/view_decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/membership/view_decide_internal.h"

/* The progress of one staying participant in one operation. */
enum standing {
    STANDING_UNISSUED,
    STANDING_OPEN,
    STANDING_STABLE, /* knows that every member has the whole result */
    STANDING_GONE,   /* issued, ended here without a result: it cannot run it again */
};

/* One operation under decision. */
struct op_case {
    struct muster_op_id id;
    const struct muster_progress_op
        *first;          /* of the lowest rank that has it open: names kind and descriptor */
    size_t participants; /* in E */
    size_t stay;         /* of them, still here */
    size_t issued;       /* of them, open or stable */
    size_t complete;     /* of them, whole result */
    size_t gone;         /* of them, ended alone */
    size_t colorless;    /* of them, not issued and not split yet: perhaps none of this color */
    bool is_forced;      /* some member has delivered it */
    bool is_stable;      /* some member knows that every member has the whole result */
    bool is_abort_proposed;
    bool is_mismatched;
    bool has_inputs;
    bool is_root_here;
};

/* --- one operation --- */

static const struct muster_progress_op *find_op(const struct muster_progress *progress,
                                                const struct muster_op_id *id)
{
    for (uint32_t i = 0; i < progress->op_count; i++)
        if (muster_op_id_compare(&progress->ops[i].id, id) == 0)
            return &progress->ops[i];
    return NULL;
}

/* How far the member is in the operation, by its vote. The list of open operations is asked first: the marks
 * of a lane say "up to and including", and include open ones. */
static enum standing standing_of(const struct muster_progress *progress,
                                 const struct muster_op_id *id,
                                 const struct muster_progress_op **ret_op)
{
    const struct muster_progress_lane *lane;

    *ret_op = find_op(progress, id);
    if (*ret_op != NULL)
        return STANDING_OPEN;
    lane = muster_progress_lane_of(progress, id);
    if (lane == NULL)
        return STANDING_UNISSUED;
    if (lane->has_stable && muster_op_id_compare(id, &lane->stable_through) <= 0)
        return STANDING_STABLE;
    if (lane->has_issued && muster_op_id_compare(id, &lane->issued_through) <= 0)
        return STANDING_GONE;
    return STANDING_UNISSUED;
}

static bool is_participant(const struct stayer *stayer, const struct muster_op_id *id)
{
    return stayer->from_step <= id->step && !muster_progress_is_apart(stayer->vote->progress, id);
}

static bool is_complete(const struct muster_progress_op *op)
{
    return op->phase >= MUSTER_PHASE_COMPLETE;
}

static bool has_begun(const struct muster_progress_op *op)
{
    return op->chunk_count > 0;
}

static bool has_chunk(const struct muster_progress_op *op, uint32_t chunk)
{
    return is_complete(op) ||
           (chunk < op->chunk_count && (op->chunks_final[chunk / 8] >> (chunk % 8) & 1) != 0);
}

/* A difference in descriptors or chunks is a mismatch of the members' calls: no result can be right for all. */
static void weigh_open(struct op_case *op_case, const struct decision *decision,
                       const struct stayer *stayer, const struct muster_progress_op *op)
{
    const struct muster_progress_op *first = op_case->first;

    if (first == NULL)
        op_case->first = first = op;
    op_case->issued++;
    if (op->descriptor != first->descriptor || op->kind != first->kind ||
        (has_begun(op) && has_begun(first) && op->chunk_count != first->chunk_count))
        op_case->is_mismatched = true;
    else if (!has_begun(first))
        op_case->first = op; /* a member that has not begun may not know the number of chunks */
    if (is_complete(op))
        op_case->complete++;
    if (op->phase == MUSTER_PHASE_DELIVERED)
        op_case->is_forced = true;
    if (op->is_abort_proposed || decision->input->is_abort_all)
        op_case->is_abort_proposed = true;
    if (!op->has_inputs)
        op_case->has_inputs = false;
    if (muster_incarnation_is_equal(&op->root, &stayer->vote->incarnation) && op->has_inputs)
        op_case->is_root_here = true;
}

static void weigh_stayer(struct op_case *op_case, const struct decision *decision,
                         const struct stayer *stayer)
{
    const struct muster_progress_op *op;

    op_case->stay++;
    switch (standing_of(stayer->vote->progress, &op_case->id, &op)) {
    case STANDING_OPEN:
        weigh_open(op_case, decision, stayer, op);
        break;
    case STANDING_STABLE:
        op_case->issued++;
        op_case->complete++;
        op_case->is_forced = true;
        op_case->is_stable = true;
        break;
    case STANDING_GONE:
        op_case->gone++;
        op_case->is_abort_proposed = true;
        break;
    case STANDING_UNISSUED:
        if (op_case->id.lane >= MUSTER_LANE_COLOR &&
            muster_progress_lane_of(stayer->vote->progress, &op_case->id) == NULL)
            op_case->colorless++;
        break;
    }
}

/* Participants are counted in E and stayers among the voters: comparing the two tells whether anybody is missing. */
static void weigh_operation(struct op_case *op_case, const struct decision *decision)
{
    const struct muster_view *view = decision->input->view;

    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->members[i].from_step <= op_case->id.step)
            op_case->participants++;
    for (size_t i = 0; i < decision->stayer_count; i++)
        if (is_participant(&decision->stayers[i], &op_case->id))
            weigh_stayer(op_case, decision, &decision->stayers[i]);
    if (op_case->id.lane >= MUSTER_LANE_COLOR && op_case->first != NULL)
        op_case->participants = op_case->first->participant_count;
    if (op_case->is_forced || op_case->issued >= op_case->participants)
        op_case->stay -= op_case->colorless; /* all of the color had issued it */
}

/* How many chunks from `first` on are final at this stayer. */
static uint32_t run_length(const struct stayer *stayer, const struct op_case *op_case,
                           uint32_t first)
{
    const struct muster_progress_op *op = find_op(stayer->vote->progress, &op_case->id);
    uint32_t chunk = first;

    if (op == NULL || stayer->from_step > op_case->id.step)
        return 0;
    while (chunk < op_case->first->chunk_count && has_chunk(op, chunk))
        chunk++;
    return chunk - first;
}

/* The longest run that starts at `first`; among equals the rank that gives least so far. Taking the longest
 * run from each place covers all chunks with the fewest sources. */
static bool best_source(const struct decision *decision, const struct op_case *op_case,
                        const uint32_t *given, struct muster_chunk_source *source)
{
    size_t best = decision->stayer_count;

    source->count = 0;
    for (size_t i = 0; i < decision->stayer_count; i++) {
        uint32_t count = run_length(&decision->stayers[i], op_case, source->first);

        if (count > source->count ||
            (count > 0 && count == source->count && given[i] < given[best])) {
            source->count = count;
            source->rank = decision->stayers[i].rank;
            best = i;
        }
    }
    return source->count > 0;
}

/* Cover all chunks with runs from living holders. False: some chunk is final nowhere. */
static bool cover_chunks(const struct decision *decision, const struct op_case *op_case,
                         uint32_t *given, struct muster_chunk_source *sources, uint32_t *ret_count)
{
    uint32_t chunk = 0, count = 0;

    while (chunk < op_case->first->chunk_count) {
        struct muster_chunk_source source = {.first = chunk};

        if (!best_source(decision, op_case, given, &source))
            return false;
        for (size_t i = 0; i < decision->stayer_count; i++)
            if (decision->stayers[i].rank == source.rank)
                given[i] += source.count;
        sources[count++] = source;
        chunk += source.count;
    }
    *ret_count = count;
    /* Without chunks (barrier) only a member that is complete shows that all had come. */
    return op_case->first->chunk_count > 0 || op_case->complete > 0;
}

/* Each survivor has a part of its own, which no other member holds: the result is whole only when every
 * survivor has its part. Through boards the operation has a chunk, which is final when all will have their
 * parts. */
static bool is_only_for_all(const struct op_case *op_case)
{
    if (has_begun(op_case->first))
        return false;
    switch (op_case->first->kind) {
    case MUSTER_OP_SCATTER:
    case MUSTER_OP_ALL_TO_ALL:
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
    case MUSTER_OP_PERMUTE:
        return true;
    default:
        return false;
    }
}

/* A joiner shows no color before it has split its lanes. An operation that is final had been issued by all of its
 * color, so the joiner is not one of them; only a broadcast is final at its root from the first. */
static bool is_issued_by_all(const struct op_case *op_case)
{
    return op_case->issued == op_case->stay || op_case->is_forced ||
           (op_case->id.lane >= MUSTER_LANE_COLOR && op_case->first->kind != MUSTER_OP_BROADCAST);
}

static enum muster_rc try_adopt(const struct decision *decision, const struct op_case *op_case,
                                struct muster_verdict *verdict, bool *ret_is_adopted)
{
    uint32_t *given = NULL;
    struct muster_chunk_source *sources = NULL;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    *ret_is_adopted = false;
    if (op_case->is_mismatched)
        return MUSTER_OK;
    /* A member that has ended the operation alone needs nothing: it is on its way out. */
    if (op_case->is_stable ||
        (op_case->complete > 0 && op_case->complete + op_case->gone == op_case->stay)) {
        *ret_is_adopted = true;
        return MUSTER_OK;
    }
    if (!is_issued_by_all(op_case) || is_only_for_all(op_case))
        return MUSTER_OK;
    given = muster_mem_alloc_zero(decision->mem, decision->stayer_count, sizeof(*given));
    sources = muster_mem_alloc_zero(decision->mem, op_case->first->chunk_count, sizeof(*sources));
    if (given != NULL && sources != NULL) {
        *ret_is_adopted = cover_chunks(decision, op_case, given, sources, &verdict->source_count);
        rc = MUSTER_OK;
    }
    if (*ret_is_adopted) {
        verdict->sources = sources;
        sources = NULL;
    }
    muster_mem_free(decision->mem, sources);
    muster_mem_free(decision->mem, given);
    return rc;
}

/* True when the operation can run again in E+1 from the inputs that the survivors still have. Sums can, among those
 * that are left. Operations whose result is laid out by participants (a part for each) cannot once one is missing:
 * no member would give or take its part. */
static bool can_retry(const struct op_case *op_case)
{
    if (op_case->is_mismatched || op_case->is_abort_proposed)
        return false;
    switch (op_case->first->kind) {
    case MUSTER_OP_ALL_REDUCE:
        return op_case->has_inputs;
    case MUSTER_OP_BARRIER:
        return true;
    case MUSTER_OP_BROADCAST:
        return op_case->is_root_here;
    case MUSTER_OP_REDUCE:
        return op_case->is_root_here && op_case->has_inputs;
    case MUSTER_OP_ALL_GATHER:
    case MUSTER_OP_REDUCE_SCATTER:
    case MUSTER_OP_GATHER:
    case MUSTER_OP_SCATTER:
    case MUSTER_OP_ALL_GATHER_UNEVEN:
    case MUSTER_OP_REDUCE_SCATTER_UNEVEN:
    case MUSTER_OP_ALL_TO_ALL:
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
    case MUSTER_OP_PERMUTE:
        return op_case->has_inputs && op_case->stay == op_case->participants;
    }
    return false;
}

static enum muster_rc decide_op(const struct decision *decision, const struct muster_op_id *id,
                                struct muster_verdict *verdict)
{
    struct op_case op_case = {.id = *id, .has_inputs = true};
    bool is_adopted;
    enum muster_rc rc;

    weigh_operation(&op_case, decision);
    MUSTER_ASSERT(op_case.first != NULL); /* collect_ids lists operations that a stayer has open */
    verdict->op = *id;
    verdict->descriptor = op_case.first->descriptor;
    verdict->chunk_count = op_case.first->chunk_count;
    rc = try_adopt(decision, &op_case, verdict, &is_adopted);
    if (is_adopted)
        verdict->kind = MUSTER_VERDICT_ADOPT;
    else
        verdict->kind = can_retry(&op_case) ? MUSTER_VERDICT_RETRY : MUSTER_VERDICT_ABORTED;
    return rc;
}

/* --- all operations --- */

static int compare_ids(const void *a, const void *b)
{
    return muster_op_id_compare(a, b);
}

/* The sorted, distinct ids of operations open at a stayer. */
static uint32_t collect_ids(const struct decision *decision, struct muster_op_id *ids)
{
    uint32_t count = 0, distinct = 0;

    for (size_t i = 0; i < decision->stayer_count; i++) {
        const struct muster_progress *progress = decision->stayers[i].vote->progress;

        for (uint32_t k = 0; k < progress->op_count; k++)
            if (is_participant(&decision->stayers[i], &progress->ops[k].id))
                ids[count++] = progress->ops[k].id;
    }
    if (count > 0)
        qsort(ids, count, sizeof(*ids), compare_ids);
    for (uint32_t i = 0; i < count; i++)
        if (distinct == 0 || muster_op_id_compare(&ids[distinct - 1], &ids[i]) != 0)
            ids[distinct++] = ids[i];
    return distinct;
}

/* An ABORTED of E binds a member that has not issued the operation yet, however many epochs later
 * it does. */
static bool must_carry(const struct decision *decision, const struct muster_verdict *old)
{
    const struct muster_progress_op *op;

    if (old->kind != MUSTER_VERDICT_ABORTED)
        return false;
    for (size_t i = 0; i < decision->stayer_count; i++)
        if (is_participant(&decision->stayers[i], &old->op) &&
            standing_of(decision->stayers[i].vote->progress, &old->op, &op) == STANDING_UNISSUED)
            return true;
    return false;
}

static bool has_verdict(const struct decision *decision, const struct muster_op_id *id)
{
    for (uint32_t i = 0; i < decision->fields.verdict_count; i++)
        if (muster_op_id_compare(&decision->fields.verdicts[i].op, id) == 0)
            return true;
    return false;
}

static int compare_verdicts(const void *a, const void *b)
{
    const struct muster_verdict *left = a, *right = b;

    return muster_op_id_compare(&left->op, &right->op);
}

/* Only ABORTED verdicts are carried, and they have no sources, so a flat copy is enough. An operation that
 * is open now has got a new verdict from decide_ids. */
static void carry_verdicts(struct decision *decision)
{
    const struct muster_view *view = decision->input->view;
    struct muster_view *fields = &decision->fields;

    for (uint32_t i = 0; i < view->verdict_count; i++) {
        const struct muster_verdict *old = &view->verdicts[i];
        struct muster_verdict *verdict = &fields->verdicts[fields->verdict_count];

        if (!must_carry(decision, old) || has_verdict(decision, &old->op))
            continue;
        *verdict = *old;
        verdict->sources = NULL;
        verdict->source_count = 0;
        fields->verdict_count++;
    }
    if (fields->verdict_count > 0)
        qsort(fields->verdicts, fields->verdict_count, sizeof(*fields->verdicts), compare_verdicts);
}

static enum muster_rc decide_ids(struct decision *decision, const struct muster_op_id *ids,
                                 uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        enum muster_rc rc = decide_op(decision, &ids[i], &decision->fields.verdicts[i]);

        if (rc != MUSTER_OK)
            return rc;
        decision->fields.verdict_count++;
    }
    carry_verdicts(decision);
    return MUSTER_OK;
}

static enum muster_rc decide_ops(struct decision *decision)
{
    struct muster_mem *mem = decision->mem;
    struct muster_op_id *ids;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    size_t room = 0;
    uint32_t count;

    for (size_t i = 0; i < decision->stayer_count; i++)
        room += decision->stayers[i].vote->progress->op_count;
    ids = muster_mem_alloc_zero(mem, room, sizeof(*ids));
    if (ids == NULL)
        return rc;
    count = collect_ids(decision, ids);
    decision->fields.verdicts = muster_mem_alloc_zero(
        mem, count + decision->input->view->verdict_count, sizeof(*decision->fields.verdicts));
    if (decision->fields.verdicts != NULL)
        rc = decide_ids(decision, ids, count);
    muster_mem_free(mem, ids);
    return rc;
}

static void decision_fini(struct decision *decision)
{
    for (uint32_t i = 0; i < decision->fields.verdict_count; i++)
        muster_mem_free(decision->mem, decision->fields.verdicts[i].sources);
    muster_mem_free(decision->mem, decision->fields.verdicts);
    muster_mem_free(decision->mem, decision->fields.members);
    muster_mem_free(decision->mem, decision->stayers);
}

static void copy_reason(char to[128], const char *reason)
{
    (void)snprintf(to, 128, "%.127s", reason != NULL ? reason : "");
}

enum muster_rc muster_view_decide(const struct muster_decide_input *input,
                                  struct muster_view **ret_view)
{
    struct decision decision;
    enum muster_rc rc;

    memset(&decision, 0, sizeof(decision));
    decision.input = input;
    decision.mem = input->mem;
    memcpy(decision.fields.job, input->view->job, sizeof(decision.fields.job));
    decision.fields.epoch = input->view->epoch + 1;
    decision.fields.begin_epoch = input->view->begin_epoch;
    decision.fields.is_below_min = input->is_abort_all;
    decision.fields.plan = input->view->plan;
    decision.fields.communication = input->view->communication;
    decision.fields.data_protection = input->view->data_protection;
    decision.fields.is_fixed_size = input->view->is_fixed_size;
    copy_reason(decision.fields.reason, input->reason);
    rc = muster_decide_members(&decision);
    if (rc == MUSTER_OK)
        rc = decide_ops(&decision);
    if (rc == MUSTER_OK)
        rc = muster_view_new(input->mem, &decision.fields, ret_view);
    decision_fini(&decision);
    return rc;
}
