/* The beginning of a new job: the members compare the tensors that they have registered, and those
 * that agree with most members get the values of the first of these. A member that has registered
 * other tensors learns it before a byte of the state has moved, and fails alone. */
#include <string.h>

#include <muster/hash.h>
#include <muster/log.h>

#include "runtime/system/huge_memory.h"
#include "training/strategy_folder.h"
#include "training/strategy_memory.h"

/* A description has the names, types and counts of the tensors: some 100 bytes each. A larger one
 * comes from a broken member, and must not use up the others' memory. */
#define SHAPE_BYTES_MAX    (64u << 20)
#define SHARE_ATTEMPTS_MAX 64 /* each ends with a change of view */
#define COMPARE            "comparison of the registered tensors"
#define GIVE               "broadcast of the initial state"

/* The state goes out in pieces: those of one call stay in the caches between the giver's copy and
 * the others', and the memory that shows them is used again for the next call (8 stages are kept),
 * while that of 1 GiB at once has to come from the system, page by page. */
#define PIECE_BYTES MUSTER_STRATEGY_PIECE_BYTES
#define PIECES_MAX  MUSTER_STRATEGY_PIECES_MAX

/* The state after the first begin is one member's, whole, although the giver may die between two
 * pieces. So one member keeps its own values until it, or another one, has all of the giver's, and
 * gives them when the giver dies. It is the last one, which of several hosts is on another host than
 * the giver, the first one.
 *
 * Among three members and more on one host the keeper gets the giver's values in a second round, when
 * the others have all of them: up to then its part of each broadcast goes into a scratch. Else it
 * copies its own before it overwrites them. A copy needs as much new memory as the state has, and that
 * takes longer than the second round (1 GiB on a virtual machine: 1.5 to 4 s, and 0.3 s). */

/* After a batch without an equal piece up to this many batches are given without a comparison. */
#define SKIP_MAX 8u

/* The description of its state that each member sends before anything is given. */
struct description {
    uint64_t digest;   /* of the names, types and counts */
    uint64_t is_whole; /* 1: its values are all its own */
};

#define DIGEST_WORDS      (MUSTER_HASH128_BYTES / sizeof(int64_t)) /* of a piece */
#define DESCRIPTION_WORDS (sizeof(struct description) / sizeof(uint64_t))

/* One attempt. Members are those that were there from the start, in rank order; who joins meanwhile
 * is given the outcome by catch-up. */
struct share {
    struct muster_strategy *strategy;
    struct muster_view *view; /* shares */
    uint32_t count, self;
    struct description *descriptions; /* by member */
    void *shape;                      /* of this member's state, in words */
    size_t shape_bytes;
    uint32_t giver;
    uint32_t agreed; /* members that have described what the giver has */
    bool is_lost;    /* none of them is whole */
};

static const struct muster_member *member_at(const struct share *share, uint32_t index)
{
    return muster_strategy_sharer_at(
        &(struct muster_strategy_sharers){.view = share->view, .count = share->count}, index);
}

static struct muster_root giver_of(const struct share *share)
{
    return (struct muster_root){.incarnation = member_at(share, share->giver)->incarnation,
                                .epoch = share->view->epoch};
}

/* --- Comparing the descriptions --- */

static enum muster_rc gather_descriptions(struct share *share)
{
    struct description own = {
        .digest = muster_hash64(share->shape, share->shape_bytes, 0),
        .is_whole = !share->strategy->is_torn,
    };
    struct muster_tensor input = {.data = &own, .count = DESCRIPTION_WORDS, .dtype = MUSTER_I64};
    struct muster_tensor output = {.data = share->descriptions,
                                   .count = (uint64_t)share->count * DESCRIPTION_WORDS,
                                   .dtype = MUSTER_I64};

    return muster_strategy_all_gather_in_seat(share->strategy, COMPARE, &input, &output);
}

static bool is_like(const struct share *share, uint32_t left, uint32_t right)
{
    return share->descriptions[left].digest == share->descriptions[right].digest;
}

static uint32_t count_like(const struct share *share, uint32_t index)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < share->count; i++)
        count += is_like(share, i, index);
    return count;
}

/* A member may give if its values are whole and its tensors are those of the majority. */
static bool is_able(const struct share *share, uint32_t index)
{
    return is_like(share, index, share->giver) && share->descriptions[index].is_whole != 0;
}

/* The giver is the first member of the majority with whole values; of two equal sides the one with
 * the lowest rank counts as the majority. */
static void choose_giver(struct share *share)
{
    for (uint32_t i = 0; i < share->count; i++) {
        uint32_t like = count_like(share, i);

        if (like <= share->agreed)
            continue;
        share->agreed = like;
        share->giver = i;
    }
    for (uint32_t i = share->giver; i < share->count; i++)
        if (is_able(share, i)) {
            share->giver = i;
            return;
        }
    share->is_lost = true;
}

static bool is_odd(const struct share *share, uint32_t index)
{
    return !is_like(share, index, share->giver);
}

static enum muster_rc explain_difference(const struct share *share, const void *bytes, size_t size)
{
    struct muster_strategy *strategy = share->strategy;
    const struct muster_member *self = member_at(share, share->self);
    const struct muster_member *giver = member_at(share, share->giver);
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_node_match_state(strategy->node, bytes, size, &error);

    if (rc == MUSTER_OK) /* another version describes the same in other words */
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT, "the descriptions differ");
    return muster_error_set(
        &strategy->error, rc,
        "%s:%u differs from %u of %u members; compared with the state of %s:%u: %s",
        self->task_type, self->task_index, share->agreed, share->count, giver->task_type,
        giver->task_index, error.text);
}

static enum muster_rc broadcast_from_giver(const struct share *share, const char *name,
                                           const struct muster_tensor *tensor)
{
    struct muster_root root = giver_of(share);

    return muster_strategy_broadcast_in_seat(share->strategy, name, tensor, 1, &root);
}

/* Send the giver's description to all, so that the odd members can say how theirs differ. */
static enum muster_rc share_shape(struct share *share)
{
    struct muster_mem *mem = share->strategy->env->mem;
    bool is_giver = share->self == share->giver;
    int64_t size = (int64_t)share->shape_bytes;
    struct muster_tensor shape = {.data = share->shape, .dtype = MUSTER_U8};
    struct muster_tensor tensor = {.data = &size, .count = 1, .dtype = MUSTER_I64};
    enum muster_rc rc = broadcast_from_giver(share, COMPARE, &tensor);

    if (rc != MUSTER_OK)
        return rc;
    if (size < 0 || size > SHAPE_BYTES_MAX)
        return muster_error_set(&share->strategy->error, MUSTER_DATA_LOSS,
                                "rank %u describes its state with %lld bytes", share->giver,
                                (long long)size);
    shape.count = (uint64_t)size;
    if (!is_giver)
        shape.data = muster_mem_alloc(mem, (size_t)size);
    if (shape.data == NULL)
        return muster_error_set(&share->strategy->error, MUSTER_RESOURCE_EXHAUSTED, "%s: %s",
                                COMPARE, muster_rc_text(MUSTER_RESOURCE_EXHAUSTED));
    rc = broadcast_from_giver(share, COMPARE, &shape);
    if (rc == MUSTER_OK && is_odd(share, share->self))
        rc = explain_difference(share, shape.data, (size_t)size);
    if (!is_giver)
        muster_mem_free(mem, shape.data);
    return rc;
}

static void log_odd(const struct share *share)
{
    for (uint32_t i = 0; i < share->count; i++)
        if (is_odd(share, i))
            MUSTER_LOG(share->strategy->env, WARN, "state_differs", "task",
                       member_at(share, i)->task_type, "index", member_at(share, i)->task_index,
                       "agreed", share->agreed, "members", share->count);
}

static enum muster_rc explain_loss(const struct share *share)
{
    return muster_error_set(
        &share->strategy->error, MUSTER_UNAVAILABLE,
        "the initial state is lost: the members that had theirs whole have died while one gave its "
        "own to all, and the %u that are left have parts of several; start the job again",
        share->agreed);
}

static enum muster_rc compare_states(struct share *share)
{
    enum muster_rc rc = gather_descriptions(share);

    if (rc != MUSTER_OK)
        return rc;
    choose_giver(share);
    MUSTER_ASSERT(share->agreed > 0 && share->giver < share->count);
    if (share->agreed < share->count) {
        log_odd(share);
        rc = share_shape(share);
    }
    return rc == MUSTER_OK && share->is_lost ? explain_loss(share) : rc;
}

/* --- One attempt --- */

static enum muster_rc share_init(struct share *share, struct muster_strategy *strategy)
{
    const struct muster_view *view = muster_group_view(muster_node_group(strategy->node));
    const struct muster_incarnation *self = muster_node_incarnation(strategy->node);

    memset(share, 0, sizeof(*share));
    share->strategy = strategy;
    share->view = muster_view_ref((struct muster_view *)(uintptr_t)view); /* counted only */
    for (uint32_t rank = 0; rank < view->member_count; rank++) {
        if (view->members[rank].from_step > 0)
            continue;
        if (muster_incarnation_is_equal(&view->members[rank].incarnation, self))
            share->self = share->count;
        share->count++;
    }
    MUSTER_ASSERT(share->self < share->count); /* a joiner is given the state by catch-up instead */
    share->descriptions =
        muster_mem_alloc_zero(strategy->env->mem, share->count, sizeof(*share->descriptions));
    if (share->descriptions == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return muster_node_pack_state(strategy->node, &share->shape, &share->shape_bytes);
}

static void share_fini(struct share *share)
{
    muster_mem_free(share->strategy->env->mem, share->descriptions);
    muster_mem_free(share->strategy->env->mem, share->shape);
    muster_view_unref(share->view);
}

/* --- The values --- */

/* Pieces of this member's own, as they were before the giver's replaced them. */
struct kept {
    struct kept *next;
    struct muster_tensor pieces[PIECES_MAX];
    size_t count;
    struct muster_huge_memory values; /* new memory in small pages takes longer than the giving */
};

/* Pieces of the tensors, given out together. */
struct batch {
    struct muster_tensor pieces[PIECES_MAX];
    size_t count;
    unsigned skip, skip_next; /* batches that are not compared; the same on all members */
    bool is_keeper;
    struct kept *kept;
    struct muster_tensor *given; /* all pieces, for the second round; NULL: there is none */
    size_t given_count;
    struct muster_huge_memory scratch; /* of the keeper, in the first of two rounds */
};

static uint64_t batch_bytes(const struct batch *batch)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < batch->count; i++)
        bytes += muster_strategy_bytes_of(&batch->pieces[i]);
    return bytes;
}

/* The giver: nobody keeps its own. */
static uint32_t find_keeper(const struct share *share)
{
    for (uint32_t i = share->count; i-- > 0;)
        if (i != share->giver && is_able(share, i))
            return i;
    return share->giver;
}

static bool has_second_round(const struct share *share)
{
    for (uint32_t i = 1; i < share->count; i++)
        if (strcmp(member_at(share, i)->host_key, member_at(share, 0)->host_key) != 0)
            return false;
    return share->count > 2 && find_keeper(share) != share->giver;
}

static void forget_kept(const struct share *share, struct batch *batch)
{
    while (batch->kept != NULL) {
        struct kept *kept = batch->kept;

        batch->kept = kept->next;
        muster_huge_memory_close(&kept->values);
        muster_mem_free(share->strategy->env->mem, kept);
    }
}

/* Without memory this member goes on like those that keep nothing: it gives to nobody if the giver
 * dies. */
static void keep_batch(const struct share *share, struct batch *batch)
{
    struct muster_env *env = share->strategy->env;
    struct kept *kept = muster_mem_alloc_zero(env->mem, 1, sizeof(*kept));
    uint8_t *into;

    if (kept == NULL ||
        muster_huge_memory_open(env->mem, batch_bytes(batch), &kept->values) != MUSTER_OK) {
        muster_mem_free(env->mem, kept);
        MUSTER_LOG(env, WARN, "own_state_not_kept", "bytes", batch_bytes(batch));
        batch->is_keeper = false;
        forget_kept(share, batch);
        return;
    }
    into = kept->values.bytes;
    for (size_t i = 0; i < batch->count; i++) {
        kept->pieces[i] = batch->pieces[i];
        (void)!muster_strategy_piece_read(share->strategy, &batch->pieces[i], into);
        into += muster_strategy_bytes_of(&batch->pieces[i]);
    }
    kept->count = batch->count;
    kept->next = batch->kept;
    batch->kept = kept;
}

/* A device that has failed by now ends this member in the next attempt. */
static void restore_kept(const struct share *share, const struct batch *batch)
{
    for (const struct kept *kept = batch->kept; kept != NULL; kept = kept->next) {
        const uint8_t *from = kept->values.bytes;

        for (size_t i = 0; i < kept->count; i++) {
            (void)!muster_strategy_piece_write(share->strategy, &kept->pieces[i], from);
            from += muster_strategy_bytes_of(&kept->pieces[i]);
        }
    }
}

/* Many programs start from one seed, and many tensors from zeroes: what is the same on all members
 * stays where it is. The largest complement of a digest is the complement of the smallest digest.
 */
static enum muster_rc drop_equal(const struct share *share, struct batch *batch)
{
    int64_t largest[PIECES_MAX][2][DIGEST_WORDS] = {0};
    struct muster_tensor tensor = {
        .data = largest, .count = sizeof(largest) / sizeof(int64_t), .dtype = MUSTER_I64};
    size_t count = 0;
    enum muster_rc rc;

    for (size_t i = 0; i < batch->count; i++) {
        const void *bytes;

        rc = muster_strategy_piece_look(share->strategy, &batch->pieces[i], i, &bytes);
        if (rc != MUSTER_OK)
            return rc;
        muster_hash128(bytes, muster_strategy_bytes_of(&batch->pieces[i]),
                       (uint8_t *)largest[i][0]);
        for (size_t word = 0; word < DIGEST_WORDS; word++)
            largest[i][1][word] = ~largest[i][0][word];
    }
    rc = muster_strategy_all_reduce_in_seat(share->strategy, GIVE, &tensor, MUSTER_MAX);
    if (rc == MUSTER_OK && share->strategy->result.contributor_count < share->count)
        rc = muster_error_set(&share->strategy->error, MUSTER_ABORTED, "%s: a member has gone",
                              GIVE); /* the giver, perhaps, whose digest is not in it */
    for (size_t i = 0; i < batch->count && rc == MUSTER_OK; i++)
        for (size_t word = 0; word < DIGEST_WORDS; word++)
            if (largest[i][0][word] != ~largest[i][1][word]) {
                batch->pieces[count++] = batch->pieces[i];
                break;
            }
    batch->count = count;
    return rc;
}

/* States that differ do so nearly everywhere: then most batches need no comparison. */
static enum muster_rc compare_batch(const struct share *share, struct batch *batch)
{
    size_t count = batch->count;
    enum muster_rc rc;

    if (batch->skip > 0) {
        batch->skip--;
        return MUSTER_OK;
    }
    rc = drop_equal(share, batch);
    batch->skip = batch->count == count ? batch->skip_next : 0;
    batch->skip_next = batch->skip == 0 ? 1 : batch->skip < SKIP_MAX ? 2 * batch->skip : SKIP_MAX;
    return rc;
}

/* To the keeper of two rounds it goes in the second one. */
static enum muster_rc broadcast_batch(struct share *share, struct batch *batch)
{
    struct muster_strategy *strategy = share->strategy;
    struct muster_root root = giver_of(share);
    struct muster_tensor into[PIECES_MAX];

    for (size_t i = 0; i < batch->count; i++) {
        into[i] = batch->pieces[i];
        if (batch->scratch.capacity > 0)
            into[i].data = batch->scratch.bytes + i * PIECE_BYTES; /* aligned to any type */
        if (batch->given != NULL)
            batch->given[batch->given_count++] = batch->pieces[i];
    }
    strategy->is_torn = share->self != share->giver && batch->scratch.capacity == 0;
    return muster_strategy_give_pieces(strategy, GIVE, into, batch->count, &root);
}

static enum muster_rc give_batch(struct share *share, struct batch *batch)
{
    struct muster_strategy *strategy = share->strategy;
    uint64_t bytes = batch_bytes(batch);
    enum muster_rc rc = MUSTER_OK;

    if (batch->count > 0)
        rc = compare_batch(share, batch);
    if (batch->count > 0) { /* a comparison that failed leaves none */
        if (batch->is_keeper)
            keep_batch(share, batch);
        rc = broadcast_batch(share, batch);
    }
    strategy->shared_bytes += bytes;
    batch->count = 0;
    return rc;
}

static enum muster_rc give_tensor(struct share *share, struct batch *batch,
                                  const struct muster_tensor *tensor)
{
    size_t element_bytes = muster_dtype_bytes(tensor->dtype);
    uint64_t piece_count = PIECE_BYTES / element_bytes;
    enum muster_rc rc = MUSTER_OK;

    for (uint64_t first = 0; first < tensor->count && rc == MUSTER_OK; first += piece_count) {
        uint64_t left = tensor->count - first;
        struct muster_tensor *piece = &batch->pieces[batch->count++];

        MUSTER_ASSERT(batch->count <= PIECES_MAX);
        *piece = (struct muster_tensor){.data = (uint8_t *)tensor->data + first * element_bytes,
                                        .count = left < piece_count ? left : piece_count,
                                        .dtype = tensor->dtype};
        if (batch->count == PIECES_MAX)
            rc = give_batch(share, batch);
    }
    return rc;
}

static enum muster_rc give_tensors(struct share *share, struct batch *batch)
{
    const struct muster_strategy *strategy = share->strategy;
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < strategy->tensor_count && rc == MUSTER_OK; i++)
        if (!muster_strategy_is_blob(strategy, i))
            rc = give_tensor(share, batch, &strategy->tensors[i].tensor);
    return rc == MUSTER_OK ? give_batch(share, batch) : rc;
}

/* Those that have all of it get the same bytes once more. */
static enum muster_rc give_again(struct share *share, struct batch *batch)
{
    struct muster_root root = giver_of(share);
    enum muster_rc rc = MUSTER_OK;

    share->strategy->is_torn = share->self == find_keeper(share);
    for (size_t i = 0; i < batch->given_count && rc == MUSTER_OK; i += PIECES_MAX) {
        size_t left = batch->given_count - i;

        rc = muster_strategy_give_pieces(share->strategy, GIVE, &batch->given[i],
                                         left < PIECES_MAX ? left : PIECES_MAX, &root);
    }
    return rc;
}

static size_t count_pieces(const struct muster_strategy *strategy)
{
    size_t count = 0;

    for (size_t i = 0; i < strategy->tensor_count; i++)
        count += (size_t)(muster_strategy_bytes_of(&strategy->tensors[i].tensor) / PIECE_BYTES) + 1;
    return count;
}

/* Without a scratch the keeper copies its own values, as in one round. */
static enum muster_rc batch_init(const struct share *share, struct batch *batch)
{
    struct muster_strategy *strategy = share->strategy;
    bool is_keeper = share->self == find_keeper(share) && share->self != share->giver;

    *batch = (struct batch){.skip_next = 1, .is_keeper = is_keeper};
    if (!has_second_round(share))
        return MUSTER_OK;
    batch->given = muster_mem_alloc_zero(strategy->env->mem, count_pieces(strategy) + 1,
                                         sizeof(batch->given[0]));
    if (batch->given == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "%s: %s", GIVE,
                                muster_rc_text(MUSTER_RESOURCE_EXHAUSTED));
    if (is_keeper && muster_huge_memory_open(strategy->env->mem, PIECES_MAX * PIECE_BYTES,
                                             &batch->scratch) == MUSTER_OK)
        batch->is_keeper = false;
    return MUSTER_OK;
}

static enum muster_rc give_values(struct share *share)
{
    struct muster_strategy *strategy = share->strategy;
    struct batch batch;
    enum muster_rc rc = batch_init(share, &batch);

    if (rc != MUSTER_OK)
        return rc;
    strategy->shared_bytes = 0;
    rc = give_tensors(share, &batch);
    if (rc == MUSTER_OK && batch.given != NULL)
        rc = give_again(share, &batch);
    if (rc != MUSTER_OK)
        restore_kept(share, &batch);
    if (rc == MUSTER_OK || batch.is_keeper)
        strategy->is_torn = false;
    forget_kept(share, &batch);
    muster_huge_memory_close(&batch.scratch);
    muster_mem_free(strategy->env->mem, batch.given);
    return rc;
}

/* Blobs go first, and are taken last: when the giver dies, whoever gives next has its own values of all. */
static enum muster_rc give_state(struct share *share)
{
    struct muster_root root = giver_of(share);
    enum muster_rc rc =
        muster_strategy_blobs_give(share->strategy, share->self == share->giver, &root);

    if (rc == MUSTER_OK)
        rc = give_values(share);
    if (rc == MUSTER_OK)
        muster_strategy_blobs_commit(share->strategy);
    return rc;
}

static enum muster_rc restore_values(const struct share *share, bool *ret_is_restored)
{
    const struct muster_strategy_sharers sharers = {
        .view = share->view, .count = share->count, .self = share->self, .giver = share->giver};

    enum muster_rc rc = muster_strategy_folder_take(share->strategy, &sharers);

    return rc == MUSTER_OK && share->strategy->restore_folder != NULL
               ? muster_strategy_restore_values(share->strategy, &sharers, ret_is_restored)
               : rc;
}

static enum muster_rc share_once(struct muster_strategy *strategy)
{
    struct share share;
    bool is_restored = false;
    enum muster_rc rc = muster_strategy_memory_check(strategy);

    if (rc != MUSTER_OK)
        return rc;
    rc = share_init(&share, strategy);
    if (rc != MUSTER_OK)
        muster_error_set(&strategy->error, rc, "%s: %s", COMPARE, muster_rc_text(rc));
    else
        rc = compare_states(&share);
    if (rc == MUSTER_OK)
        rc = restore_values(&share, &is_restored);
    if (rc == MUSTER_OK && !is_restored)
        rc = give_state(&share);
    share_fini(&share);
    return rc;
}

/* An operation that is ABORTED is so for everybody (its root has died, say): all survivors repeat
 * the whole, with a giver whose values are its own. */
enum muster_rc muster_strategy_share_state(struct muster_strategy *strategy)
{
    unsigned attempts = SHARE_ATTEMPTS_MAX;
    enum muster_rc rc;

    muster_strategy_move_begin(strategy, MUSTER_STRATEGY_BEGIN_SHARES);
    do {
        rc = muster_strategy_wait_view(strategy);
        if (strategy->state == MUSTER_STRATEGY_READY)
            rc = share_once(strategy);
        else
            rc = MUSTER_CANCELLED; /* failed, or excluded meanwhile */
    } while (rc == MUSTER_ABORTED && !muster_node_view(strategy->node)->is_below_min &&
             --attempts > 0);
    if (strategy->begin == MUSTER_STRATEGY_BEGIN_SHARES) /* not excluded meanwhile */
        muster_strategy_move_begin(strategy, MUSTER_STRATEGY_BEGIN_NEW);
    return rc;
}
