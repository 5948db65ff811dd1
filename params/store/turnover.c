/* Admission by a filter that counts pushes to keys without rows, and eviction of the row that was not
 * pushed to for longest, or least often, among some that lie side by side. All look at one shard at a time. */
#include "params/store/turnover.h"

#include <stdatomic.h>
#include <string.h>

#include "params/store/count.h"
#include "params/store/row.h"

#define SAMPLE     16u /* rows of which one is evicted */
#define LOOKS_MAX  64u /* at rows, also free ones and those of the push, for one sample */
#define PINS_MAX   65536u
#define PINS_MIN   512u
#define ROWS_AHEAD 64u /* slots of the index that are fetched together */

/* The run of a push for which rows are made and removed now. */
struct turn {
    struct muster_params_region *region;
    const struct muster_params_update *update;
    struct muster_params_turnover *turnover;
    uint32_t shard;
    const uint64_t *keys; /* of the rows that are not applied yet */
    uint32_t key_count;
    uint32_t removals_left;
    bool has_aged;      /* the shard, since the run began */
    uint32_t pin_count; /* 0: not made yet */
    uint64_t pins[PINS_MAX / 64];
};

static struct muster_params_store_table *table_of(const struct turn *turn)
{
    return turn->update->table;
}

static uint64_t hash_of(const struct turn *turn, uint64_t key)
{
    return muster_params_hash(table_of(turn)->seed, key);
}

/* --- Rows of the push --- */

static uint64_t pin_of(const struct turn *turn, uint64_t key)
{
    return hash_of(turn, key) >> 12 & (turn->pin_count - 1);
}

/* A bit may stand for several keys: then a row is spared that need not be. */
static void pins_make(struct turn *turn)
{
    turn->pin_count = PINS_MIN;
    while (turn->pin_count < 16 * turn->key_count && turn->pin_count < PINS_MAX)
        turn->pin_count *= 2;
    memset(turn->pins, 0, turn->pin_count / 8);
    for (uint32_t i = 0; i < turn->key_count; i++) {
        uint64_t pin = pin_of(turn, turn->keys[i]);

        turn->pins[pin / 64] |= UINT64_C(1) << pin % 64;
    }
}

/* A row that the push is about to change, or has just got, stays. */
static bool is_pinned(struct turn *turn, uint64_t key)
{
    uint64_t pin;

    if (turn->pin_count == 0)
        pins_make(turn);
    pin = pin_of(turn, key);
    return (turn->pins[pin / 64] & UINT64_C(1) << pin % 64) != 0;
}

/* --- Removal --- */

static void key_turn(struct turn *turn, uint64_t key, enum muster_params_turned_kind kind)
{
    struct muster_params_turnover *turnover = turn->turnover;

    turnover->turned[turnover->count++] =
        (struct muster_params_turned){.key = key, .shard = turn->shard, .kind = kind};
}

static void row_drop(struct turn *turn, const struct muster_params_row *row)
{
    uint64_t key = row->key;

    MUSTER_ASSERT(turn->removals_left > 0);
    turn->removals_left--;
    (void)muster_params_row_drop(turn->region, table_of(turn), key);
    key_turn(turn, key, MUSTER_PARAMS_TURNED_REMOVED);
}

/* Clocks are cut to 32 bits: they are compared by their distance. */
static int32_t clock_distance(uint32_t from, uint32_t to)
{
    return (int32_t)(to - from);
}

/* The older one of two rows with equal counts goes. */
static bool row_goes_before(const struct turn *turn, const struct muster_params_row *row,
                            const struct muster_params_row *other)
{
    const struct muster_params_store_table *table = table_of(turn);

    if (muster_params_table_counts(table)) {
        uint32_t age = muster_params_shard_at(turn->region, table, turn->shard)->age;
        uint32_t one = muster_params_count_at(muster_params_row_count(table, row), age);
        uint32_t two = muster_params_count_at(muster_params_row_count(table, other), age);

        if (one != two)
            return one < two;
    }
    return clock_distance(row->clock, other->clock) > 0;
}

/* Counts are halved once as many rows were evicted as the shard has: those of rows that are not pushed to any more
 * fade. A death between these stores has the counts halved an eviction later. */
static void shard_age(struct turn *turn)
{
    struct muster_params_shard *shard =
        muster_params_shard_at(turn->region, table_of(turn), turn->shard);

    if (++shard->evicted < shard->row_count || shard->evicted < SAMPLE)
        return;
    shard->evicted = 0;
    shard->age = (shard->age + 1) & UINT16_MAX;
    turn->has_aged = true;
}

/* False: there is none, or enough were removed for this push. */
static bool row_evict(struct turn *turn)
{
    const struct muster_params_row *first = NULL;
    uint32_t seen = 0;

    if (turn->removals_left == 0)
        return false;
    for (uint32_t looks = 0; looks < LOOKS_MAX && seen < SAMPLE; looks++) {
        const struct muster_params_row *row =
            muster_params_row_turn(turn->region, table_of(turn), turn->shard);

        if (row == NULL || is_pinned(turn, row->key))
            continue;
        seen++;
        if (first == NULL || row_goes_before(turn, row, first))
            first = row;
    }
    if (first == NULL)
        return false;
    row_drop(turn, first);
    if (muster_params_table_counts(table_of(turn)))
        shard_age(turn);
    turn->turnover->evicted++;
    return true;
}

/* Twice as many rows are looked at as are pushed, so that those that expire do not pile up. */
static void rows_expire(struct turn *turn)
{
    uint64_t ttl = table_of(turn)->ttl_clocks, low = turn->turnover->low_clock;

    if (ttl == 0 || low == UINT64_MAX)
        return;
    for (uint32_t i = 0; i < 2 * turn->key_count + 2 && turn->removals_left > 0; i++) {
        const struct muster_params_row *row =
            muster_params_row_turn(turn->region, table_of(turn), turn->shard);

        if (row == NULL || clock_distance(row->clock, (uint32_t)low) <= (int64_t)ttl ||
            is_pinned(turn, row->key))
            continue;
        row_drop(turn, row);
        turn->turnover->expired++;
    }
}

/* --- Admission --- */

/* Bits of the hash that say neither the shard nor the place in the index: every server, at any time, admits the
 * same keys. */
static bool key_is_of_share(const struct muster_params_store_table *table, uint64_t key)
{
    return table->admit_share == 0 ||
           muster_params_hash(~table->seed, key) >> 48 < table->admit_share;
}

/* Two counts per key, the smaller of which tells: both are too high only where other keys share both (Cormode &
 * Muthukrishnan 2005, with conservative update). Each push that is not admitted halves one count in turn,
 * so that old ones fade. */
static bool key_is_admitted(struct turn *turn, uint64_t hash)
{
    struct muster_params_store_table *table = table_of(turn);
    const uint64_t mask = MUSTER_PARAMS_FILTER_CELLS - 1;
    uint16_t *cells = muster_params_at(turn->region, table->filter_offset);
    uint16_t *one = &cells[hash & mask], *two = &cells[hash >> 20 & mask], least;

    if (table->admit_after == 0)
        return true;
    least = *one < *two ? *one : *two;
    if (least + 1u >= table->admit_after)
        return true;
    *one = *one > least ? *one : (uint16_t)(least + 1);
    *two = *two > least ? *two : (uint16_t)(least + 1);
    cells[table->filter_hand++ & mask] /= 2;
    return false;
}

/* --- New rows --- */

static uint64_t shard_rows_max(const struct turn *turn)
{
    uint64_t rows = table_of(turn)->rows_max, shards = turn->region->head->shard_count;

    return rows == UINT64_MAX ? rows : rows / shards + (rows % shards != 0);
}

/* A push whose own rows fill the shard may exceed the limit, since they are not evicted; later
 * pushes then evict two rows for each new one. */
static void row_make(struct turn *turn, uint64_t key, uint64_t hash)
{
    struct muster_params_store_table *table = table_of(turn);
    const struct muster_params_shard *shard =
        muster_params_shard_at(turn->region, table, turn->shard);
    struct muster_params_row *row = NULL;
    enum muster_rc rc;

    for (uint32_t i = 0; table->rows_max > 0 && i < 2 && shard->row_count >= shard_rows_max(turn);
         i++) {
        if (!row_evict(turn))
            break;
    }
    rc = muster_params_row_make(turn->region, table, key, hash, &row);
    if (rc != MUSTER_OK && table->rows_max > 0 && row_evict(turn))
        rc = muster_params_row_make(turn->region, table, key, hash, &row);
    if (rc == MUSTER_OK)
        key_turn(turn, key, MUSTER_PARAMS_TURNED_MADE);
    else
        turn->turnover->refused++;
}

/* A row without a push may be one that a process has made which died before it told copies: they are told again. */
static void key_look(struct turn *turn, uint64_t key, uint64_t hash)
{
    const struct muster_params_store_table *table = table_of(turn);
    const struct muster_params_row *row =
        muster_params_index_find(turn->region, table, hash, key);

    if (row != NULL && row->clock == MUSTER_PARAMS_ROW_UNPUSHED)
        key_turn(turn, key, MUSTER_PARAMS_TURNED_MADE);
    else if (row == NULL && key_is_of_share(table, key) && key_is_admitted(turn, hash))
        row_make(turn, key, hash);
}

static void keys_look(struct turn *turn, const uint64_t *keys, uint32_t count)
{
    const struct muster_params_store_table *table = table_of(turn);
    const struct muster_params_index *index = muster_params_index_newest(table);
    uint64_t hashes[ROWS_AHEAD];

    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = hash_of(turn, keys[i]);
        __builtin_prefetch(muster_params_index_slot(turn->region, index, hashes[i]));
    }
    for (uint32_t i = 0; i < count; i++)
        key_look(turn, keys[i], hashes[i]);
}

/* Rows of the run that are applied already were looked at then: only those after them are now. False: there are
 * none. */
static bool run_begin(struct turn *turn, const struct muster_params_run *run, const uint64_t *keys)
{
    const struct muster_params_update *update = turn->update;
    uint64_t position, applied;

    turn->shard = muster_params_run_shard(run);
    position = update->source->positions[turn->shard];
    if (position >> 16 > update->sequence)
        return false;
    applied = position >> 16 == update->sequence ? position & UINT16_MAX : 0;
    turn->keys = keys + applied;
    turn->key_count = run->rows - (uint32_t)applied;
    return true;
}

static void run_turn(struct turn *turn, const struct muster_params_run *run, const uint64_t *keys)
{
    const struct muster_params_update *update = turn->update;

    if (!run_begin(turn, run, keys))
        return;
    turn->removals_left = 2 * turn->key_count + 2;
    turn->pin_count = 0;
    turn->has_aged = false;
    rows_expire(turn);
    for (uint32_t i = 0; i < turn->key_count; i += ROWS_AHEAD)
        keys_look(turn, turn->keys + i,
                  turn->key_count - i < ROWS_AHEAD ? turn->key_count - i : ROWS_AHEAD);
    if (turn->has_aged)
        key_turn(turn, muster_params_shard_at(turn->region, update->table, turn->shard)->age,
                 MUSTER_PARAMS_TURNED_AGED);
}

void muster_params_turnover_decide(struct muster_params_region *region,
                                   const struct muster_params_update *update,
                                   struct muster_params_turnover *turnover)
{
    struct turn turn; /* its pins are set when they are needed */
    uint32_t row = 0;

    turn.region = region;
    turn.update = update;
    turn.turnover = turnover;
    turnover->count = turnover->refused = turnover->evicted = turnover->expired = 0;
    for (uint32_t i = 0; i < update->run_count; i++) {
        run_turn(&turn, &update->runs[i], update->keys + row);
        row += update->runs[i].rows;
    }
}

/* --- Followers --- */

static void run_count(struct turn *turn, const struct muster_params_run *run, const uint64_t *keys)
{
    const struct muster_params_store_table *table = table_of(turn);

    if (!run_begin(turn, run, keys))
        return;
    for (uint32_t i = 0; i < turn->key_count; i++) {
        uint64_t key = turn->keys[i], hash = hash_of(turn, key);

        if (muster_params_index_find(turn->region, table, hash, key) == NULL &&
            key_is_of_share(table, key))
            (void)key_is_admitted(turn, hash); /* it would have a row if the primary had admitted it */
    }
}

void muster_params_turnover_count(struct muster_params_region *region,
                                  const struct muster_params_update *update)
{
    struct turn turn; /* without pins */
    uint32_t row = 0;

    if (update->table->admit_after == 0)
        return;
    turn.region = region;
    turn.update = update;
    for (uint32_t i = 0; i < update->run_count; i++) {
        run_count(&turn, &update->runs[i], update->keys + row);
        row += update->runs[i].rows;
    }
}

bool muster_params_turnover_follow(struct muster_params_region *region,
                                   struct muster_params_store_table *table,
                                   const struct muster_params_source *source, uint64_t sequence,
                                   const struct muster_params_turned *turned)
{
    struct muster_params_row *row = NULL;

    if (source->positions[turned->shard] > sequence << 16)
        return true;
    if (turned->kind == MUSTER_PARAMS_TURNED_AGED) {
        MUSTER_PARAMS_STORE(&muster_params_shard_at(region, table, turned->shard)->age,
                            (uint32_t)turned->key);
        return true;
    }
    if (turned->kind == MUSTER_PARAMS_TURNED_MADE)
        return muster_params_row_make(region, table, turned->key,
                                      muster_params_hash(table->seed, turned->key),
                                      &row) == MUSTER_OK;
    (void)muster_params_row_drop(region, table, turned->key);
    return true;
}
