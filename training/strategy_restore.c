/* The beginning of a new job from a checkpoint: each member reads a part, checks it, and gives it to all. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <muster/checkpoint.h>
#include <muster/log.h>
#include <muster/micro_batches.h>

#include "runtime/system/aside_system.h"
#include "training/checkpoint/manifest.h"
#include "training/strategy_checkpoint.h"
#include "training/strategy_memory.h"

#define GIVE "broadcast of a checkpoint"

#define CANDIDATES_MAX 64u
/* As the state of a new job is given out: strategy_share.c. */
#define PIECE_BYTES ((uint64_t)MUSTER_STRATEGY_PIECE_BYTES)
#define PIECES_MAX  MUSTER_STRATEGY_PIECES_MAX

/* The checkpoints that have a manifest, the newest first, as the giver sees them. */
struct candidates {
    uint64_t count;
    struct muster_checkpoint_name names[CANDIDATES_MAX];
};
#define CANDIDATES_WORDS (sizeof(struct candidates) / sizeof(uint64_t))

/* How a member's reading ended. All go on by the worst. */
enum verdict {
    VERDICT_WHOLE,
    VERDICT_DAMAGED, /* or not there: an older one is tried */
    VERDICT_ANOTHER, /* it has other tensors */
};

struct restoring {
    struct muster_strategy *strategy;
    const struct muster_strategy_sharers *sharers;
    struct candidates candidates;
    uint32_t *order; /* of the checkpoint's tensors: where this program has each of them */
    /* The work of the thread. */
    struct muster_checkpoint_name name;
    enum verdict verdict;
    struct muster_error error;
    const char *remedy; /* VERDICT_ANOTHER: what is done about it */
    bool is_read;
};

const struct muster_member *muster_strategy_sharer_at(const struct muster_strategy_sharers *sharers,
                                                      uint32_t index)
{
    for (uint32_t rank = 0; rank < sharers->view->member_count; rank++)
        if (sharers->view->members[rank].from_step == 0 && index-- == 0)
            return &sharers->view->members[rank];
    return NULL;
}

static struct muster_root root_at(const struct muster_strategy_sharers *sharers, uint32_t index)
{
    return (struct muster_root){.incarnation =
                                    muster_strategy_sharer_at(sharers, index)->incarnation,
                                .epoch = sharers->view->epoch};
}

/* --- In the thread --- */

static const struct muster_tensor *tensor_at(const struct restoring *restoring, size_t i)
{
    return &restoring->strategy->tensors[restoring->order[i]].tensor;
}

/* Bytes of the state into the tensors. */
static enum muster_rc on_bytes(void *data, uint64_t offset, const void *bytes, size_t count)
{
    const struct restoring *restoring = data;
    uint64_t begin = 0, end = offset + count;
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < restoring->strategy->tensor_count && begin < end && rc == MUSTER_OK;
         i++) {
        const struct muster_node_tensor *place = &restoring->strategy->tensors[restoring->order[i]];
        uint64_t stop = begin + muster_strategy_bytes_of(&place->tensor);
        uint64_t from = offset > begin ? offset : begin, to = end < stop ? end : stop;

        if (from < to)
            rc = muster_far_memory_write(
                place->memory, (uint8_t *)place->tensor.data + (from - begin),
                (const uint8_t *)bytes + (from - offset), (size_t)(to - from));
        begin = stop;
    }
    return rc;
}

/* The look begins after the tensor that was found last: most programs register in the order of the one that has
 * saved. */
static bool tensor_find(const struct muster_strategy *strategy, const char *name, uint32_t first,
                        uint32_t *ret_index)
{
    for (uint32_t i = 0; i < strategy->tensor_count; i++) {
        uint32_t index = (uint32_t)((first + i) % strategy->tensor_count);

        if (strcmp(strategy->tensors[index].name, name) == 0) {
            *ret_index = index;
            return true;
        }
    }
    return false;
}

/* --- Micro-batches --- */

/* The slots of a step of this job; 0: it has no micro-batches. */
static uint32_t slots_own(const struct muster_strategy *strategy)
{
    for (size_t i = 0; i < strategy->tensor_count && strategy->micro_slots != NULL; i++)
        if (strategy->tensors[i].tensor.data == strategy->micro_slots)
            return (uint32_t)strategy->tensors[i].tensor.count;
    return 0;
}

/* The slots of the job that has saved. A program may have a tensor of such a name for itself. */
static uint32_t slots_saved(const struct muster_strategy *strategy,
                            const struct muster_checkpoint *checkpoint)
{
    static const char prefix[] = MUSTER_STATE_SLOTS_PREFIX;
    uint32_t index;

    for (uint32_t i = 0; i < checkpoint->tensor_count; i++) {
        const struct muster_checkpoint_tensor *tensor = &checkpoint->tensors[i];

        if (tensor->dtype == MUSTER_U8 && tensor->count <= MUSTER_MICRO_SLOTS_MAX &&
            strncmp(tensor->name, prefix, sizeof(prefix) - 1) == 0 &&
            (strategy->micro_slots != NULL || !tensor_find(strategy, tensor->name, 0, &index)))
            return (uint32_t)tensor->count;
    }
    return 0;
}

/* The text tells numbers of micro-batches, and not the tensor that carries them. Either side may have its number from
 * --constant-batch or from the program. */
static enum muster_rc slots_match(struct restoring *restoring,
                                  const struct muster_checkpoint *checkpoint,
                                  struct muster_error *ret_error)
{
    uint32_t own = slots_own(restoring->strategy);
    uint32_t saved = slots_saved(restoring->strategy, checkpoint);
    char ours[16] = "none";

    if (own == saved)
        return MUSTER_OK;
    if (own > 0)
        (void)snprintf(ours, sizeof(ours), "%u", own);
    restoring->remedy = saved > 0 ? "give the same number (--constant-batch, slots=)"
                                  : "leave them out (--constant-batch, slots=)";
    if (saved == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "it has no micro-batches, this program %s a step", ours);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "it has %u micro-batches a step, this program %s", saved, ours);
}

/* --- Tensors --- */

/* The same tensors, in any order. Names differ among themselves: register and import see to it. */
static enum muster_rc tensors_match(struct restoring *restoring,
                                    const struct muster_checkpoint *checkpoint,
                                    struct muster_error *ret_error)
{
    const struct muster_strategy *strategy = restoring->strategy;
    uint32_t next = 0;

    if (slots_match(restoring, checkpoint, ret_error) != MUSTER_OK)
        return MUSTER_INVALID_ARGUMENT;
    restoring->remedy = "register what it has";
    if (checkpoint->tensor_count != strategy->tensor_count)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "it has %u tensors, and this program registers %zu",
                                checkpoint->tensor_count, strategy->tensor_count);
    for (uint32_t i = 0; i < checkpoint->tensor_count; i++) {
        const struct muster_checkpoint_tensor *theirs = &checkpoint->tensors[i];
        const struct muster_tensor *ours;

        if (!tensor_find(strategy, theirs->name, next, &restoring->order[i]))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "this program does not register its tensor %u, %.60s", i,
                                    theirs->name);
        next = restoring->order[i] + 1;
        ours = tensor_at(restoring, i);
        if (theirs->dtype == ours->dtype &&
            muster_strategy_blob_resize(restoring->strategy, restoring->order[i], theirs->count))
            continue;
        if (theirs->dtype != ours->dtype || theirs->count != ours->count)
            return muster_error_set(
                ret_error, MUSTER_INVALID_ARGUMENT,
                "its tensor %.60s is %s x %llu, this program's %s x %llu", theirs->name,
                muster_dtype_name(theirs->dtype), (unsigned long long)theirs->count,
                muster_dtype_name(ours->dtype), (unsigned long long)ours->count);
    }
    return MUSTER_OK;
}

/* This member's part: the state is cut for so many readers as for writers. */
static enum muster_rc part_read(void *data)
{
    struct restoring *restoring = data;
    struct muster_strategy *strategy = restoring->strategy;
    const struct muster_strategy_sharers *sharers = restoring->sharers;
    struct muster_checkpoint *checkpoint = NULL;
    uint64_t offset, bytes;
    enum muster_rc rc = muster_checkpoint_open(muster_mem_system(), strategy->restore_folder,
                                               &restoring->name, &checkpoint, &restoring->error);

    restoring->verdict = VERDICT_DAMAGED;
    if (rc == MUSTER_OK && tensors_match(restoring, checkpoint, &restoring->error) != MUSTER_OK) {
        restoring->verdict = VERDICT_ANOTHER;
    } else if (rc == MUSTER_OK) {
        muster_checkpoint_cut(checkpoint->state_bytes, sharers->self, sharers->count, &offset,
                              &bytes);
        rc = muster_checkpoint_read(checkpoint, offset, bytes, on_bytes, restoring,
                                    &restoring->error);
        if (rc == MUSTER_OK)
            restoring->verdict = VERDICT_WHOLE;
    }
    muster_checkpoint_close(checkpoint);
    return MUSTER_OK;
}

static void on_part(void *data, enum muster_rc rc)
{
    struct restoring *restoring = data;

    (void)rc;
    restoring->is_read = true;
}

/* --- In the seat --- */

/* The loop goes on meanwhile. */
static enum muster_rc part_await(struct restoring *restoring)
{
    struct muster_strategy *strategy = restoring->strategy;
    struct muster_aside *aside = NULL;
    enum muster_rc rc = muster_aside_open(strategy->env, &aside);

    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc, GIVE ": %s", muster_rc_text(rc));
    restoring->is_read = false;
    muster_aside_keep_priority(aside); /* all members wait for it */
    muster_aside_start(aside, part_read, on_part, restoring);
    muster_strategy_wait_until(strategy, muster_strategy_is_true, &restoring->is_read);
    muster_aside_close(aside);
    return muster_strategy_memory_check(strategy);
}

static void candidates_find(struct restoring *restoring)
{
    struct muster_strategy *strategy = restoring->strategy;
    struct candidates *candidates = &restoring->candidates;
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;
    enum muster_rc rc = muster_checkpoint_list(strategy->env->mem, strategy->restore_folder,
                                               &entries, &count, &error);

    if (rc != MUSTER_OK && rc != MUSTER_NOT_FOUND) /* the first life makes the folder */
        MUSTER_LOG(strategy->env, WARN, "checkpoints_not_listed", "reason", error.text);
    for (size_t i = 0; i < count; i++) {
        char name[MUSTER_CHECKPOINT_NAME_BYTES];

        if (entries[i].has_manifest && candidates->count < CANDIDATES_MAX)
            candidates->names[candidates->count++] = entries[i].name;
        else if (!entries[i].has_manifest && candidates->count == 0)
            MUSTER_LOG(strategy->env, WARN, "checkpoint_half_written", "name",
                       muster_checkpoint_name_format(&entries[i].name, name), "files",
                       entries[i].file_count);
    }
    muster_mem_free(strategy->env->mem, entries);
}

static enum muster_rc candidates_share(struct restoring *restoring)
{
    const struct muster_strategy_sharers *sharers = restoring->sharers;
    struct muster_root root = root_at(sharers, sharers->giver);
    struct muster_tensor tensor = {
        .data = &restoring->candidates, .count = CANDIDATES_WORDS, .dtype = MUSTER_U64};
    enum muster_rc rc;

    if (sharers->self == sharers->giver)
        candidates_find(restoring);
    rc = muster_strategy_broadcast_in_seat(restoring->strategy, GIVE, &tensor, 1, &root);
    if (rc == MUSTER_OK && restoring->candidates.count > CANDIDATES_MAX)
        rc = muster_error_set(&restoring->strategy->error, MUSTER_DATA_LOSS,
                              GIVE ": rank %u names too many", sharers->giver);
    return rc;
}

/* A part of the state, as pieces of tensors, from the member that has read it. */
struct part {
    const struct restoring *restoring;
    struct muster_root root;
    struct muster_tensor pieces[PIECES_MAX];
    size_t count;
};

static enum muster_rc pieces_give(struct part *part)
{
    enum muster_rc rc = part->count == 0
                            ? MUSTER_OK
                            : muster_strategy_give_pieces(part->restoring->strategy, GIVE,
                                                          part->pieces, part->count, &part->root);

    part->count = 0;
    return rc;
}

static enum muster_rc part_give(struct part *part, uint64_t offset, uint64_t bytes)
{
    uint64_t at = offset, end = offset + bytes, begin = 0;
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < part->restoring->strategy->tensor_count && rc == MUSTER_OK; i++) {
        const struct muster_tensor *tensor = tensor_at(part->restoring, i);
        uint64_t stop = begin + muster_strategy_bytes_of(tensor) < end
                            ? begin + muster_strategy_bytes_of(tensor)
                            : end;

        while (at < stop && at >= begin && rc == MUSTER_OK) {
            uint64_t count = stop - at < PIECE_BYTES ? stop - at : PIECE_BYTES;

            part->pieces[part->count++] = (struct muster_tensor){
                .data = (uint8_t *)tensor->data + (at - begin), .count = count, .dtype = MUSTER_U8};
            at += count;
            if (part->count == PIECES_MAX)
                rc = pieces_give(part);
        }
        begin += muster_strategy_bytes_of(tensor);
    }
    return rc == MUSTER_OK ? pieces_give(part) : rc;
}

static enum muster_rc parts_give(struct restoring *restoring)
{
    const struct muster_strategy_sharers *sharers = restoring->sharers;
    struct muster_strategy *strategy = restoring->strategy;
    struct part part = {.restoring = restoring};
    uint64_t state_bytes = 0, offset, bytes;
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < strategy->tensor_count; i++)
        state_bytes += muster_strategy_bytes_of(&strategy->tensors[i].tensor);
    for (uint32_t i = 0; i < sharers->count && rc == MUSTER_OK; i++) {
        part.root = root_at(sharers, i);
        muster_checkpoint_cut(state_bytes, i, sharers->count, &offset, &bytes);
        rc = part_give(&part, offset, bytes);
    }
    strategy->shared_bytes = state_bytes;
    return rc;
}

/* The worst verdict of all members. Who has died amid it may have had the worst: all begin again. */
static enum muster_rc verdicts_compare(struct restoring *restoring)
{
    struct muster_strategy *strategy = restoring->strategy;
    uint64_t worst = (uint64_t)restoring->verdict;
    struct muster_tensor tensor = {.data = &worst, .count = 1, .dtype = MUSTER_U64};
    enum muster_rc rc = muster_strategy_all_reduce_in_seat(strategy, GIVE, &tensor, MUSTER_MAX);

    if (rc == MUSTER_OK && strategy->result.contributor_count < restoring->sharers->count)
        rc = muster_error_set(&strategy->error, MUSTER_ABORTED, GIVE ": a member has gone");
    if (rc == MUSTER_OK) {
        char name[MUSTER_CHECKPOINT_NAME_BYTES];

        (void)muster_checkpoint_name_format(&restoring->name, name);
        if (restoring->verdict != VERDICT_WHOLE)
            MUSTER_LOG(strategy->env, WARN, "checkpoint_refused", "name", name, "reason",
                       restoring->error.text);
        else if (worst != VERDICT_WHOLE)
            muster_error_set(&restoring->error, MUSTER_DATA_LOSS,
                             "%s: another member found it damaged", name);
        restoring->verdict = (enum verdict)worst;
    }
    return rc;
}

static enum muster_rc candidate_try(struct restoring *restoring, uint64_t index,
                                    bool *ret_is_restored)
{
    struct muster_strategy *strategy = restoring->strategy;
    enum muster_rc rc;

    restoring->name = restoring->candidates.names[index];
    strategy->is_restore_begun = true;
    rc = part_await(restoring);
    if (rc == MUSTER_OK)
        rc = verdicts_compare(restoring);
    if (rc != MUSTER_OK || restoring->verdict == VERDICT_DAMAGED)
        return rc;
    if (restoring->verdict == VERDICT_ANOTHER)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "the checkpoint of step %llu in %.80s does not fit: %.110s; "
                                "%s, or name an empty folder",
                                (unsigned long long)restoring->name.step, strategy->restore_folder,
                                restoring->error.text, restoring->remedy);
    rc = parts_give(restoring);
    *ret_is_restored = rc == MUSTER_OK;
    return rc;
}

static enum muster_rc order_make(struct restoring *restoring)
{
    struct muster_strategy *strategy = restoring->strategy;

    restoring->order = muster_mem_alloc_zero(strategy->env->mem, strategy->tensor_count + 1,
                                             sizeof(restoring->order[0]));
    return restoring->order != NULL ? MUSTER_OK
                                    : muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                                       GIVE ": out of memory");
}

/* Most reasons name a file, and the folder with it. */
static enum muster_rc folder_refuse(struct muster_strategy *strategy,
                                    const struct muster_error *why)
{
    bool is_named = strstr(why->text, strategy->restore_folder) != NULL;

    return muster_error_set(&strategy->error, MUSTER_DATA_LOSS,
                            "no checkpoint%s%.70s is whole: %.*s; name an empty folder to begin "
                            "anew",
                            is_named ? "" : " in ", is_named ? "" : strategy->restore_folder,
                            is_named ? 175 : 100, why->text);
}

enum muster_rc muster_strategy_restore_values(struct muster_strategy *strategy,
                                              const struct muster_strategy_sharers *sharers,
                                              bool *ret_is_restored)
{
    struct restoring restoring = {
        .strategy = strategy, .sharers = sharers, .remedy = "register what it has"};
    bool is_restored = false;
    enum muster_rc rc = order_make(&restoring);

    if (rc == MUSTER_OK)
        rc = candidates_share(&restoring);
    for (uint64_t i = 0; rc == MUSTER_OK && !is_restored && i < restoring.candidates.count; i++)
        rc = candidate_try(&restoring, i, &is_restored);
    muster_mem_free(strategy->env->mem, restoring.order);
    if (rc != MUSTER_OK)
        return rc;
    if (!is_restored && (restoring.candidates.count > 0 || strategy->is_restore_begun))
        return folder_refuse(strategy, &restoring.error);
    strategy->restored_step = is_restored ? restoring.name.step : 0;
    strategy->is_restore_begun = false;
    if (is_restored)
        muster_report_restored(strategy->report, sharers->view->epoch, restoring.name.step);
    if (is_restored)
        MUSTER_LOG(strategy->env, INFO, "checkpoint_restored", "step", restoring.name.step,
                   "folder", strategy->restore_folder);
    *ret_is_restored = is_restored;
    return MUSTER_OK;
}

static enum muster_rc folder_set(struct muster_strategy *strategy, const char *folder)
{
    char *copy;

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (strategy->state != MUSTER_STRATEGY_OPEN)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "restore: call it before the first begin");
    if (folder == NULL || folder[0] == '\0')
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "restore: folder must be a path");
    copy = muster_mem_strdup(strategy->env->mem, folder);
    if (copy == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    muster_mem_free(strategy->env->mem, strategy->restore_folder);
    strategy->restore_folder = copy;
    return MUSTER_OK;
}

enum muster_rc muster_strategy_restore(struct muster_strategy *strategy, const char *folder)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "restore");

    if (rc != MUSTER_OK)
        return rc;
    rc = folder_set(strategy, folder);
    muster_strategy_leave(strategy);
    return rc;
}
