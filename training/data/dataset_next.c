/* Batches: taken from the queue where it has those that the position asks for, planned ahead as if all goes well. */
#include <muster/dataset.h>

#include <inttypes.h>

#include "training/data/dataset_internal.h"

/* --- The position --- */

static enum muster_rc position_check(const struct muster_dataset *dataset,
                                     struct muster_error *ret_error)
{
    const uint64_t *words = dataset->position;
    const uint64_t *pool = words + MUSTER_DATA_WORDS;

    if (words[MUSTER_DATA_VERSION] != MUSTER_DATA_POSITION_VERSION)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the position must be of version %u, got %" PRIu64
                                "; it was not written by this library, or by a newer one",
                                MUSTER_DATA_POSITION_VERSION, words[MUSTER_DATA_VERSION]);
    if (words[MUSTER_DATA_RECORDS] != dataset->division.record_count ||
        words[MUSTER_DATA_HASH] != dataset->hash)
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "the position is of a dataset with %" PRIu64 " records, this one has %" PRIu64
            "%s; give all members the same files",
            words[MUSTER_DATA_RECORDS], dataset->division.record_count,
            words[MUSTER_DATA_RECORDS] == dataset->division.record_count ? " at other places" : "");
    if (words[MUSTER_DATA_CURSOR] > dataset->division.record_count ||
        words[MUSTER_DATA_POOL] > dataset->division.batch)
        goto damaged;
    for (uint64_t i = 0; i < words[MUSTER_DATA_POOL]; i++)
        if (pool[i] >= words[MUSTER_DATA_CURSOR])
            goto damaged;
    return MUSTER_OK;
damaged:
    return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                            "the position is damaged: cursor %" PRIu64 ", %" PRIu64
                            " records left over; restore an older state",
                            words[MUSTER_DATA_CURSOR], words[MUSTER_DATA_POOL]);
}

static struct muster_data_place position_place(const struct muster_dataset *dataset)
{
    const uint64_t *words = dataset->position;

    return (struct muster_data_place){
        .epoch = words[MUSTER_DATA_EPOCH],
        .cursor = words[MUSTER_DATA_CURSOR],
        .turn = words[MUSTER_DATA_TURN],
        .pool_count = words[MUSTER_DATA_POOL],
    };
}

static void position_move(struct muster_dataset *dataset, const struct muster_data_place *place)
{
    dataset->position[MUSTER_DATA_EPOCH] = place->epoch;
    dataset->position[MUSTER_DATA_CURSOR] = place->cursor;
    dataset->position[MUSTER_DATA_TURN] = place->turn;
    dataset->position[MUSTER_DATA_POOL] = place->pool_count;
}

/* --- Planning --- */

/* Append the batch at `place`, and go on after it. */
static enum muster_rc batch_append(struct muster_dataset *dataset, struct muster_data_place *place,
                                   bool *ret_is_appended)
{
    struct muster_data_slot *slot = muster_data_queue_reserve(dataset->queue);
    enum muster_rc rc;

    *ret_is_appended = false;
    if (slot == NULL)
        return MUSTER_OK;
    slot->place = *place;
    muster_data_place_fill(&dataset->division, place, dataset->position + MUSTER_DATA_WORDS,
                           &slot->part);
    rc = muster_data_queue_append(dataset->queue, slot, ret_is_appended);
    if (rc == MUSTER_OK && *ret_is_appended)
        muster_data_place_advance(&dataset->division, place);
    return rc;
}

/* As many as fit. Without memory there are fewer. */
static void ahead_append(struct muster_dataset *dataset)
{
    bool is_appended = !dataset->source.options.is_prefetch_off;

    while (is_appended && muster_data_place_settle(&dataset->division, &dataset->ahead)) {
        enum muster_rc rc = batch_append(dataset, &dataset->ahead, &is_appended);

        if (rc != MUSTER_OK)
            break;
    }
}

/* Whether the queue, or the batch that the program has, is what a settled place asks for. The places of a pool may
 * have changed while their number is the same. */
static bool is_planned(const struct muster_data_place *place,
                       const struct muster_data_place *planned)
{
    return planned != NULL && place->pool_count == 0 && muster_data_place_is_equal(place, planned);
}

static enum muster_rc place_take(struct muster_dataset *dataset,
                                 const struct muster_data_place *place,
                                 struct muster_error *ret_error)
{
    bool is_appended = true;
    enum muster_rc rc = MUSTER_OK;

    if (!is_planned(place, muster_data_queue_first(dataset->queue))) {
        muster_data_queue_flush(dataset->queue);
        dataset->ahead = *place;
        rc = batch_append(dataset, &dataset->ahead, &is_appended);
        if (rc != MUSTER_OK)
            return muster_error_set(ret_error, rc, "out of memory for a batch");
        MUSTER_ASSERT(is_appended);
    }
    ahead_append(dataset);
    dataset->taken = muster_data_queue_take(dataset->queue);
    if (dataset->taken->rc == MUSTER_OK)
        return MUSTER_OK;
    rc = dataset->taken->rc;
    if (ret_error != NULL)
        *ret_error = dataset->taken->error;
    dataset->taken = NULL;
    muster_data_queue_flush(dataset->queue); /* the next call reads it again */
    return rc;
}

static enum muster_rc end_tell(const struct muster_dataset *dataset, struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE, "all %" PRIu64 " epochs are read",
                            dataset->division.epoch_count);
}

static enum muster_rc place_next(struct muster_dataset *dataset, struct muster_data_place *place,
                                 struct muster_dataset_batch *ret_batch,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    if (!muster_data_place_settle(&dataset->division, place))
        return end_tell(dataset, ret_error);
    if (!place->is_share || dataset->taken == NULL || !is_planned(place, &dataset->taken->place))
        rc = place_take(dataset, place, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    *ret_batch = (struct muster_dataset_batch){
        .records = dataset->taken->records,
        .numbers = dataset->taken->part.numbers,
        .count = dataset->taken->part.count,
        .epoch = place->epoch,
    };
    return MUSTER_OK;
}

enum muster_rc muster_dataset_next(struct muster_dataset *dataset,
                                   struct muster_dataset_batch *ret_batch,
                                   struct muster_error *ret_error)
{
    struct muster_data_place place = position_place(dataset);
    enum muster_rc rc = position_check(dataset, ret_error);

    if (rc == MUSTER_OK && place.cursor > muster_data_division_count(&dataset->division))
        rc = muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                              "the position is %" PRIu64 " of %" PRIu64
                              " records of this worker; it is another worker's, or of another "
                              "number of workers",
                              place.cursor, muster_data_division_count(&dataset->division));
    if (rc == MUSTER_OK && place.pool_count > 0)
        rc = muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                              "the position has records that a member left over; take them by "
                              "muster_dataset_next_share");
    if (rc == MUSTER_OK)
        rc = place_next(dataset, &place, ret_batch, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    muster_data_place_advance(&dataset->division, &place);
    position_move(dataset, &place);
    return MUSTER_OK;
}

/* --- Shares --- */

static enum muster_rc shares_check(const struct muster_dataset *dataset,
                                   struct muster_error *ret_error)
{
    const struct muster_data_division *division = &dataset->division;

    if (division->shard.num_workers > 1 || division->replicas_per_worker > 0 ||
        division->is_remainder_dropped)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a dataset whose steps are shared must have no shard, no "
                                "replicas_per_worker and no is_remainder_dropped");
    return position_check(dataset, ret_error);
}

static enum muster_rc shares_next(struct muster_dataset *dataset,
                                  const struct muster_dataset_shares *shares,
                                  struct muster_dataset_batch *ret_batch,
                                  struct muster_error *ret_error)
{
    struct muster_data_place place = position_place(dataset);
    enum muster_rc rc = shares_check(dataset, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    place.is_share = true;
    place.shares = *shares;
    return place_next(dataset, &place, ret_batch, ret_error);
}

bool muster_dataset_is_over(const struct muster_dataset *dataset)
{
    struct muster_data_place place = position_place(dataset);

    place.is_share = true;
    return position_check(dataset, NULL) == MUSTER_OK &&
           !muster_data_place_settle(&dataset->division, &place);
}

enum muster_rc muster_dataset_next_share(struct muster_dataset *dataset, uint32_t rank,
                                         uint32_t size, struct muster_dataset_batch *ret_batch,
                                         struct muster_error *ret_error)
{
    if (rank >= size)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the rank must be below the size %" PRIu32 ", got %" PRIu32, size,
                                rank);
    return shares_next(dataset, &(struct muster_dataset_shares){rank, 1, size}, ret_batch,
                       ret_error);
}

enum muster_rc muster_dataset_next_shares(struct muster_dataset *dataset,
                                          const struct muster_dataset_shares *shares,
                                          struct muster_error *ret_error)
{
    struct muster_dataset_batch all;

    if (shares->total == 0 || shares->count > shares->total ||
        shares->first > shares->total - shares->count)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "shares must be some of those from 0 to below their total %" PRIu32
                                ", got %" PRIu32 " from %" PRIu32 " on",
                                shares->total, shares->count, shares->first);
    return shares_next(dataset, shares, &all, ret_error);
}

enum muster_rc muster_dataset_share(const struct muster_dataset *dataset, uint32_t share,
                                    struct muster_dataset_batch *ret_batch,
                                    struct muster_error *ret_error)
{
    const struct muster_data_slot *taken = dataset->taken;
    const struct muster_dataset_shares *shares = taken != NULL ? &taken->place.shares : NULL;
    uint32_t first, count;

    if (taken == NULL || share - shares->first >= shares->count) /* of a batch of next: none */
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "share %" PRIu32 " must be one of those that the last call of "
                                "muster_dataset_next_shares has taken",
                                share);
    muster_data_part_share(&taken->part, shares, share, &first, &count);
    *ret_batch = (struct muster_dataset_batch){
        .records = taken->records + first,
        .numbers = taken->part.numbers + first,
        .count = count,
        .epoch = taken->place.epoch,
    };
    return MUSTER_OK;
}

void muster_dataset_record_claims(const struct muster_dataset *dataset, float *ret_claims)
{
    MUSTER_ASSERT(dataset->taken != NULL && dataset->taken->place.is_share);
    muster_data_claims_record(&dataset->division, &dataset->taken->part, ret_claims);
}

/* The place of the step that all members share: of the next epoch where the last one is over. False: there is
 * none. */
static enum muster_rc step_place(const struct muster_dataset *dataset,
                                 struct muster_data_place *ret_place, bool *ret_is_there,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc = position_check(dataset, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    *ret_place = position_place(dataset);
    ret_place->is_share = true;
    *ret_is_there = muster_data_place_settle(&dataset->division, ret_place);
    return MUSTER_OK;
}

enum muster_rc muster_dataset_complete_step(struct muster_dataset *dataset,
                                            struct muster_error *ret_error)
{
    struct muster_data_place place;
    bool is_there = false;
    enum muster_rc rc = step_place(dataset, &place, &is_there, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (!is_there)
        return end_tell(dataset, ret_error);
    muster_data_place_advance(&dataset->division, &place);
    position_move(dataset, &place);
    return MUSTER_OK;
}

enum muster_rc muster_dataset_apply_claims(struct muster_dataset *dataset, const float *claims,
                                           uint64_t *ret_used, struct muster_error *ret_error)
{
    struct muster_data_place place;
    bool is_there;
    enum muster_rc rc = step_place(dataset, &place, &is_there, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    position_move(dataset, &place);
    return muster_data_claims_apply(&dataset->division, claims, dataset->position, ret_used,
                                    ret_error);
}
