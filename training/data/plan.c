/* Places, parts and claims. */
#include "training/data/plan.h"

#include <string.h>

#define CLAIM_BITS 16u

/* --- The division of an epoch --- */

uint64_t muster_data_division_count(const struct muster_data_division *division)
{
    uint64_t workers = division->shard.num_workers, count = division->record_count;

    switch (division->unit) {
    case MUSTER_SHARD_ELEMENTS:
        if (division->replicas_per_worker > 0)
            return count; /* pieces of the global batches */
        break;
    case MUSTER_SHARD_MARK:
        break;
    default:
        return count;
    }
    return (count + workers - 1 - division->shard.index) / workers;
}

/* Whether a call gives a piece of a global batch that all workers cut alike. */
static bool is_cut(const struct muster_data_division *division)
{
    return division->replicas_per_worker > 0 && division->unit == MUSTER_SHARD_ELEMENTS;
}

static struct muster_batch_split split_of(const struct muster_data_division *division)
{
    return (struct muster_batch_split){
        .global_batch = division->batch,
        .num_workers = division->shard.num_workers,
        .replicas_per_worker = division->replicas_per_worker,
        .worker = division->shard.index,
    };
}

/* Records that the step which begins at this turn takes, if there are so many. */
static uint64_t step_records(const struct muster_data_division *division, uint64_t turn)
{
    struct muster_batch_split split = split_of(division);
    uint64_t sum = 0;

    if (division->replicas_per_worker == 0 || is_cut(division))
        return division->batch;
    for (uint64_t i = 0; i < division->replicas_per_worker; i++)
        sum += muster_batch_split_size(&split, turn + i);
    return sum;
}

static bool is_step_begun(const struct muster_data_division *division,
                          const struct muster_data_place *place)
{
    return division->replicas_per_worker > 0 && place->turn % division->replicas_per_worker != 0;
}

bool muster_data_place_is_equal(const struct muster_data_place *a,
                                const struct muster_data_place *b)
{
    return a->epoch == b->epoch && a->cursor == b->cursor && a->turn == b->turn &&
           a->pool_count == b->pool_count && a->is_share == b->is_share &&
           a->shares.first == b->shares.first && a->shares.count == b->shares.count &&
           a->shares.total == b->shares.total;
}

bool muster_data_place_settle(const struct muster_data_division *division,
                              struct muster_data_place *place)
{
    uint64_t count =
        place->is_share ? division->record_count : muster_data_division_count(division);
    uint64_t left = count - place->cursor;
    bool is_over = left == 0 && place->pool_count == 0;

    if (!place->is_share && division->is_remainder_dropped &&
        left < step_records(division, place->turn))
        is_over = true;
    if (is_over && !is_step_begun(division, place)) {
        place->epoch++;
        place->cursor = 0;
        place->turn = 0;
    }
    return division->epoch_count == 0 || place->epoch < division->epoch_count;
}

/* The number of the record at a place of this worker's sequence. */
static uint64_t number_at(const struct muster_data_division *division,
                          const struct muster_data_order *order, uint64_t place)
{
    const struct muster_shard *shard = &division->shard;

    if (division->unit == MUSTER_SHARD_ELEMENTS && !is_cut(division))
        return muster_data_order_at(order, place * shard->num_workers + shard->index);
    if (division->unit == MUSTER_SHARD_MARK)
        return muster_data_order_at(order, place) * shard->num_workers + shard->index;
    return muster_data_order_at(order, place);
}

/* The first record of a share in the window of the step. */
static uint32_t share_first(uint64_t window, const struct muster_dataset_shares *shares,
                            uint32_t share)
{
    return (uint32_t)(window * share / shares->total);
}

static void share_fill(const struct muster_data_division *division,
                       const struct muster_data_order *order, const struct muster_data_place *place,
                       const uint64_t *pool, struct muster_data_part *part)
{
    uint64_t window = place->pool_count + division->record_count - place->cursor, end;

    if (window > division->batch)
        window = division->batch;
    part->window = (uint32_t)window;
    part->first = share_first(window, &place->shares, place->shares.first);
    end = share_first(window, &place->shares, place->shares.first + place->shares.count);
    part->count = (uint32_t)(end - part->first);
    for (uint64_t i = part->first; i < end; i++)
        part->numbers[i - part->first] = muster_data_order_at(
            order, i < place->pool_count ? pool[i] : place->cursor + i - place->pool_count);
}

void muster_data_part_share(const struct muster_data_part *part,
                            const struct muster_dataset_shares *shares, uint32_t share,
                            uint32_t *ret_first, uint32_t *ret_count)
{
    uint32_t first = share_first(part->window, shares, share);

    *ret_first = first - part->first;
    *ret_count = share_first(part->window, shares, share + 1) - first;
}

/* Places that a batch of next has: the first of them, and how many. */
static void batch_places(const struct muster_data_division *division,
                         const struct muster_data_place *place, uint64_t *ret_first,
                         uint64_t *ret_count)
{
    uint64_t left = muster_data_division_count(division) - place->cursor;
    uint32_t replicas = division->replicas_per_worker, workers = division->shard.num_workers;
    uint64_t wanted = division->batch;

    *ret_first = place->cursor;
    if (is_cut(division)) {
        muster_batch_cut(left < wanted ? left : wanted, workers * replicas,
                         division->shard.index + workers * (uint32_t)(place->turn % replicas),
                         ret_first, ret_count);
        *ret_first += place->cursor;
        return;
    }
    if (replicas > 0) {
        struct muster_batch_split split = split_of(division);

        wanted = muster_batch_split_size(&split, place->turn);
    }
    *ret_count = left < wanted ? left : wanted;
}

void muster_data_place_fill(const struct muster_data_division *division,
                            const struct muster_data_place *place, const uint64_t *pool,
                            struct muster_data_part *part)
{
    uint64_t ordered = division->unit == MUSTER_SHARD_MARK && !place->is_share
                           ? muster_data_division_count(division)
                           : division->record_count;
    struct muster_data_order order;
    uint64_t first, count;

    muster_data_order_init(&order, ordered, division->is_shuffled, division->seed, place->epoch);
    if (place->is_share) {
        share_fill(division, &order, place, pool, part);
        return;
    }
    batch_places(division, place, &first, &count);
    part->first = part->window = 0;
    part->count = (uint32_t)count;
    for (uint64_t i = 0; i < count; i++)
        part->numbers[i] = number_at(division, &order, first + i);
}

void muster_data_place_advance(const struct muster_data_division *division,
                               struct muster_data_place *place)
{
    uint64_t first, count, left;

    if (place->is_share) {
        left = division->record_count - place->cursor;
        count = division->batch - place->pool_count;
        place->cursor += left < count ? left : count;
        place->pool_count = 0;
        return;
    }
    batch_places(division, place, &first, &count);
    place->turn++;
    if (!is_cut(division))
        place->cursor += count;
    else if (place->turn % division->replicas_per_worker == 0) {
        left = division->record_count - place->cursor;
        place->cursor += left < division->batch ? left : division->batch;
    }
    if (division->replicas_per_worker == 0)
        place->turn = 0;
}

/* --- Claims --- */

void muster_data_claims_record(const struct muster_data_division *division,
                               const struct muster_data_part *part, float *ret_claims)
{
    memset(ret_claims, 0, MUSTER_DATASET_CLAIMS(division->batch) * sizeof(*ret_claims));
    ret_claims[0] = (float)part->count;
    for (uint32_t i = part->first; i < part->first + part->count; i++)
        ret_claims[1 + i / CLAIM_BITS] += (float)(1u << i % CLAIM_BITS);
}

/* False: no sum of claims has such a value. Above 16 bits some record was claimed twice. */
static bool claim_parse(float value, uint32_t *ret_bits)
{
    if (!(value >= 0.0f && value < 4294967296.0f) || value != (float)(uint32_t)value)
        return false;
    *ret_bits = (uint32_t)value;
    return true;
}

/* The records of the window that are claimed, as bits. */
static enum muster_rc claims_parse(const struct muster_data_division *division, const float *claims,
                                   uint32_t window, uint64_t *ret_used,
                                   struct muster_error *ret_error)
{
    uint32_t total, bits;
    uint64_t used = 0;
    bool is_twice = false;

    if (!claim_parse(claims[0], &total))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the first claim must be a count of records, got %g; sum claims "
                                "in F32, by MUSTER_SUM",
                                (double)claims[0]);
    for (uint32_t i = 0; i < MUSTER_DATASET_CLAIMS(division->batch) - 1; i++) {
        uint32_t left = window > i * CLAIM_BITS ? window - i * CLAIM_BITS : 0;

        if (!claim_parse(claims[1 + i], &bits))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "claim %u must be a sum of bits, got %g; sum claims in F32, "
                                    "by MUSTER_SUM",
                                    i + 1, (double)claims[1 + i]);
        is_twice = is_twice || (left < CLAIM_BITS && bits >> left != 0) || bits >> CLAIM_BITS != 0;
        used += (uint64_t)__builtin_popcount(bits);
    }
    if (is_twice || used != total)
        return muster_error_set(ret_error, MUSTER_ABORTED,
                                "two members had parts of one step under different views; its "
                                "records come again");
    *ret_used = used;
    return MUSTER_OK;
}

enum muster_rc muster_data_claims_apply(const struct muster_data_division *division,
                                        const float *claims, uint64_t *position, uint64_t *ret_used,
                                        struct muster_error *ret_error)
{
    uint64_t *pool = position + MUSTER_DATA_WORDS, pool_count = position[MUSTER_DATA_POOL];
    uint64_t cursor = position[MUSTER_DATA_CURSOR], kept = 0;
    uint64_t window = pool_count + division->record_count - cursor;
    enum muster_rc rc;

    if (window > division->batch)
        window = division->batch;
    rc = claims_parse(division, claims, (uint32_t)window, ret_used, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    for (uint64_t i = 0; i < window; i++) {
        uint32_t bits = (uint32_t)claims[1 + i / CLAIM_BITS];

        if ((bits >> i % CLAIM_BITS & 1u) == 0)
            pool[kept++] = i < pool_count ? pool[i] : cursor + i - pool_count;
    }
    position[MUSTER_DATA_CURSOR] = cursor + window - pool_count;
    position[MUSTER_DATA_POOL] = kept;
    return MUSTER_OK;
}
