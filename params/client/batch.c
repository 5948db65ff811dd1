/* The operations of a turn become messages: all pushes to a table in as few as their size allows,
 * sorted by shard; then its pulls. */
#include "params/client/client_internal.h"

#include <string.h>

#include "params/wire/hash.h"

/* Larger messages gain nothing, and delay what waits behind them. */
#define BATCH_BYTES ((size_t)256 << 10)

_Static_assert(BATCH_BYTES >= MUSTER_PARAMS_ROW_BYTES_MAX + sizeof(uint64_t),
               "a message has room for a row and its key");

/* The place where the next message begins: an operation of the queue, and a row of that operation. */
struct cursor {
    struct muster_params_op *op;
    uint32_t row;
};

/* The rows of one message. */
struct slice {
    struct cursor begin;
    uint32_t row_count;
    uint32_t part_count;
};

static struct muster_params_op *op_first(struct muster_list *queue)
{
    return muster_list_is_empty(queue)
               ? NULL
               : MUSTER_CONTAINER_OF(queue->next, struct muster_params_op, queued);
}

static struct muster_params_op *op_next(struct muster_list *queue, struct muster_params_op *op)
{
    return op->queued.next == queue
               ? NULL
               : MUSTER_CONTAINER_OF(op->queued.next, struct muster_params_op, queued);
}

/* An operation whose sequence is given is one slice, however large. */
static struct slice slice_of_op(struct muster_list *queue, struct cursor *cursor)
{
    struct slice slice = {.begin = *cursor, .row_count = cursor->op->count, .part_count = 1};

    *cursor = (struct cursor){op_next(queue, cursor->op), 0};
    return slice;
}

/* Rows of one clock; at least one, however wide. Pushes that are answered with values have messages of their
 * own. Moves the cursor after the slice. */
static struct slice slice_take(struct muster_list *queue, struct cursor *cursor,
                               uint32_t rows_per_message)
{
    struct slice slice = {.begin = *cursor};
    bool has_answers = cursor->op->ret_values != NULL;

    if (cursor->op->sequence != 0)
        return slice_of_op(queue, cursor);
    while (cursor->op != NULL && cursor->op->sequence == 0 &&
           cursor->op->clock == slice.begin.op->clock && slice.row_count < rows_per_message) {
        uint32_t room = rows_per_message - slice.row_count;
        uint32_t left = cursor->op->count - cursor->row;
        uint32_t rows = left < room ? left : room;

        slice.row_count += rows;
        slice.part_count++;
        cursor->row += rows;
        if (cursor->row == cursor->op->count)
            *cursor = (struct cursor){op_next(queue, cursor->op), 0};
        if (cursor->op != NULL && (cursor->op->ret_values != NULL) != has_answers)
            break;
    }
    return slice;
}

static uint32_t rows_per_message(size_t row_bytes)
{
    size_t rows = BATCH_BYTES / row_bytes;

    return rows < MUSTER_PARAMS_FRAME_ROWS_MAX ? (uint32_t)rows : MUSTER_PARAMS_FRAME_ROWS_MAX;
}

/* --- The rows of a slice, one after another --- */

struct row_at {
    uint64_t key;
    uint8_t *values;
};

struct walk {
    struct muster_list *queue;
    struct cursor cursor;
    size_t value_bytes;
};

static struct row_at walk_next(struct walk *walk)
{
    struct muster_params_op *op = walk->cursor.op;
    struct row_at at = {.key = op->keys[walk->cursor.row],
                        .values = (uint8_t *)op->values + walk->cursor.row * walk->value_bytes};

    if (++walk->cursor.row == op->count)
        walk->cursor = (struct cursor){op_next(walk->queue, op), 0};
    return at;
}

static void parts_fill(struct muster_params_request *request, struct muster_list *queue,
                       const struct slice *slice, size_t value_bytes)
{
    struct cursor cursor = slice->begin;
    uint32_t left = slice->row_count;

    for (uint32_t i = 0; i < slice->part_count; i++) {
        struct muster_params_op *op = cursor.op;
        uint32_t rows = op->count - cursor.row < left ? op->count - cursor.row : left;

        request->parts[i] =
            (struct muster_params_part){.op = op,
                                        .row_count = rows,
                                        .values = (uint8_t *)op->values + cursor.row * value_bytes};
        op->waits++;
        left -= rows;
        cursor = (struct cursor){op_next(queue, op), 0};
    }
}

/* --- Pushes --- */

/* The number of rows of each shard; later the place where the rows of the shard begin. */
struct shards {
    uint32_t rows[MUSTER_PARAMS_SHARD_COUNT_MAX];
};

static uint32_t shard_of(const struct muster_params_table *table, uint64_t key)
{
    return muster_params_shard_of(muster_params_hash(table->seed, key), table->params->shard_count);
}

/* Returns how many shards have rows. */
static inline uint16_t shards_count(const struct muster_params_table *table, struct walk walk,
                                    uint32_t row_count, struct shards *ret_shards)
{
    uint32_t runs = 0;

    memset(ret_shards->rows, 0, table->params->shard_count * sizeof(ret_shards->rows[0]));
    for (uint32_t i = 0; i < row_count; i++)
        runs += ret_shards->rows[shard_of(table, walk_next(&walk).key)]++ == 0;
    return (uint16_t)runs;
}

/* The rows of a slice that one server leads. */
struct way_share {
    struct muster_params_way *way;
    struct muster_params_request *request;
    uint32_t row_count;
    uint16_t run_count;
    struct muster_params_run *runs;
    uint64_t *keys;
    uint8_t *values;
};

struct shares {
    uint32_t count;
    struct way_share list[MUSTER_PARAMS_SERVERS_MAX + 1];
    uint16_t places[MUSTER_PARAMS_SHARD_COUNT_MAX]; /* in list, of shards that have rows */
};

static uint16_t share_place(struct shares *shares, struct muster_params_way *way)
{
    for (uint32_t i = 0; i < shares->count; i++) {
        if (shares->list[i].way == way)
            return (uint16_t)i;
    }
    shares->list[shares->count] = (struct way_share){.way = way};
    return (uint16_t)shares->count++;
}

static void shares_count(const struct muster_params *params, const struct shards *shards,
                         struct shares *ret_shares)
{
    ret_shares->count = 0;
    for (uint32_t shard = 0; shard < params->shard_count; shard++) {
        struct way_share *share;

        if (shards->rows[shard] == 0)
            continue;
        ret_shares->places[shard] = share_place(ret_shares, muster_params_route(params, shard));
        share = &ret_shares->list[ret_shares->places[shard]];
        share->run_count++;
        share->row_count += shards->rows[shard];
    }
}

/* The bit for the first run of a shard is part of the message: a repetition has it, too. */
static inline struct muster_params_run run_of(struct muster_params *params, uint32_t shard,
                                              uint32_t rows)
{
    struct muster_params_run run = {.shard = (uint16_t)shard, .rows = (uint16_t)rows};

    if (muster_params_shard_is_new(params, shard))
        run.shard |= MUSTER_PARAMS_RUN_FIRST;
    return run;
}

/* On return shards[] has, for each shard, where its rows begin in the share of its server. */
static void runs_fill_whole(struct muster_params *params, struct shards *shards,
                            struct muster_params_run *runs)
{
    uint32_t begin = 0;

    for (uint32_t shard = 0; shard < params->shard_count; shard++) {
        uint32_t rows = shards->rows[shard];

        shards->rows[shard] = begin;
        begin += rows;
        if (rows != 0)
            *runs++ = run_of(params, shard, rows);
    }
}

static void runs_fill(struct muster_params *params, struct shards *shards, struct shares *shares)
{
    for (uint32_t i = 0; i < shares->count; i++)
        shares->list[i].row_count = 0;
    for (uint32_t shard = 0; shard < params->shard_count; shard++) {
        uint32_t rows = shards->rows[shard];
        struct way_share *share;

        if (rows == 0)
            continue;
        share = &shares->list[shares->places[shard]];
        shards->rows[shard] = share->row_count;
        share->row_count += rows;
        *share->runs++ = run_of(params, shard, rows);
    }
}

static void requests_free(const struct shares *shares)
{
    for (uint32_t i = 0; i < shares->count; i++)
        if (shares->list[i].request != NULL)
            muster_mem_free(&shares->list[i].request->params->pool.mem, shares->list[i].request);
}

/* All messages of a slice are made before one leaves. */
static bool requests_make(struct muster_params_table *table, const struct slice *slice,
                          struct shares *shares)
{
    bool has_answers = slice->begin.op->ret_values != NULL;

    for (uint32_t i = 0; i < shares->count; i++) {
        struct way_share *share = &shares->list[i];
        struct muster_params_rows_frame frame = {.clock = slice->begin.op->clock,
                                                 .row_count = share->row_count,
                                                 .run_count = share->run_count,
                                                 .dtype = (uint8_t)table->wire_dtype};
        void *values;

        share->request = muster_params_request_new(
            table->params, table,
            has_answers ? MUSTER_PARAMS_REQUEST_PUSH_PULL : MUSTER_PARAMS_REQUEST_PUSH,
            muster_params_rows_bytes(share->run_count, share->row_count, table->row_elements,
                                     table->wire_dtype),
            has_answers ? share->row_count : slice->part_count);
        if (share->request == NULL) {
            requests_free(shares);
            return false;
        }
        share->request->row_bytes =
            share->row_count *
            (sizeof(uint64_t) + table->row_elements * muster_dtype_bytes(table->wire_dtype));
        muster_params_rows_pack(&frame, share->request->payload, &share->runs, &share->keys,
                                &values);
        share->values = values;
    }
    return true;
}

static void rows_fill_whole(const struct muster_params_table *table, struct walk walk,
                            uint32_t row_count, struct shards *shards,
                            const struct way_share *share)
{
    uint64_t *keys = share->keys;
    uint8_t *values = share->values;

    for (uint32_t i = 0; i < row_count; i++) {
        struct row_at row = walk_next(&walk);
        uint32_t place = shards->rows[shard_of(table, row.key)]++;

        keys[place] = row.key;
        memcpy(values + place * walk.value_bytes, row.values, walk.value_bytes);
    }
}

static void rows_fill(const struct muster_params_table *table, struct walk walk,
                      uint32_t row_count, struct shards *shards, const struct shares *shares)
{
    for (uint32_t i = 0; i < row_count; i++) {
        const struct cursor at = walk.cursor;
        struct row_at row = walk_next(&walk);
        uint32_t shard = shard_of(table, row.key), place = shards->rows[shard]++;
        const struct way_share *share = &shares->list[shares->places[shard]];

        share->keys[place] = row.key;
        memcpy(share->values + place * walk.value_bytes, row.values, walk.value_bytes);
        if (at.op->ret_values == NULL)
            continue;
        share->request->parts[place] = (struct muster_params_part){
            .op = at.op,
            .row_count = 1,
            .values = (uint8_t *)at.op->ret_values + at.row * walk.value_bytes};
        at.op->waits++;
    }
}

/* The messages of a slice have one sequence: no shard is in two of them. */
static bool push_send(struct muster_params_table *table, const struct slice *slice,
                      size_t value_bytes)
{
    struct muster_params *params = table->params;
    struct walk walk = {&table->pushes, slice->begin, value_bytes};
    bool has_answers = slice->begin.op->ret_values != NULL;
    bool is_whole = params->only != NULL && !has_answers;
    uint64_t given = slice->begin.op->sequence;
    uint64_t sequence = given != 0 ? given : params->sequence;
    struct shards shards;
    struct shares shares;
    uint16_t run_count = shards_count(table, walk, slice->row_count, &shards);

    if (is_whole) {
        shares.count = 1;
        shares.list[0] = (struct way_share){
            .way = params->only, .row_count = slice->row_count, .run_count = run_count};
    } else {
        shares_count(params, &shards, &shares);
    }
    if (!requests_make(table, slice, &shares))
        return false;
    if (is_whole) {
        runs_fill_whole(params, &shards, shares.list[0].runs);
        rows_fill_whole(table, walk, slice->row_count, &shards, &shares.list[0]);
    } else {
        runs_fill(params, &shards, &shares);
        rows_fill(table, walk, slice->row_count, &shards, &shares);
    }
    for (uint32_t i = 0; i < shares.count; i++) {
        if (!has_answers)
            parts_fill(shares.list[i].request, &table->pushes, slice, value_bytes);
        muster_params_request_send(shares.list[i].request, shares.list[i].way, sequence);
    }
    muster_params_pushed_note(params, slice->begin.op->clock);
    if (sequence >= params->sequence)
        params->sequence = sequence + 1;
    return true;
}

/* --- Pulls --- */

/* One server has all rows of the slice, so that their values are received in place. */
static bool pull_send_whole(struct muster_params_table *table, const struct slice *slice,
                            size_t value_bytes, struct muster_params_way *way)
{
    struct muster_params *params = table->params;
    struct walk walk = {&table->pulls, slice->begin, value_bytes};
    struct muster_params_rows_frame frame = {.clock = slice->begin.op->clock,
                                             .row_count = slice->row_count,
                                             .dtype = (uint8_t)table->wire_dtype};
    struct muster_params_request *request = muster_params_request_new(
        params, table, MUSTER_PARAMS_REQUEST_PULL,
        muster_params_rows_bytes(0, slice->row_count, 0, table->wire_dtype), slice->part_count);
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;

    if (request == NULL)
        return false;
    muster_params_rows_pack(&frame, request->payload, &runs, &keys, &values);
    for (uint32_t i = 0; i < slice->row_count; i++)
        keys[i] = walk_next(&walk).key;
    parts_fill(request, &table->pulls, slice, value_bytes);
    muster_params_request_send(request, way, params->number++);
    return true;
}

static bool pull_requests_make(struct muster_params_table *table, const struct slice *slice,
                               struct shares *shares)
{
    for (uint32_t i = 0; i < shares->count; i++) {
        struct way_share *share = &shares->list[i];
        struct muster_params_rows_frame frame = {.clock = slice->begin.op->clock,
                                                 .row_count = share->row_count,
                                                 .dtype = (uint8_t)table->wire_dtype};
        void *values;

        share->request = muster_params_request_new(
            table->params, table, MUSTER_PARAMS_REQUEST_PULL,
            muster_params_rows_bytes(0, share->row_count, 0, table->wire_dtype), share->row_count);
        if (share->request == NULL) {
            requests_free(shares);
            return false;
        }
        muster_params_rows_pack(&frame, share->request->payload, &share->runs, &share->keys,
                                &values);
        share->row_count = 0;
    }
    return true;
}

/* Several servers have the rows: each row is a part of its own, whose value is copied into place. */
static bool pull_send(struct muster_params_table *table, const struct slice *slice,
                      size_t value_bytes)
{
    struct muster_params *params = table->params;
    struct walk walk = {&table->pulls, slice->begin, value_bytes};
    struct shards shards;
    struct shares shares;

    if (params->only != NULL)
        return pull_send_whole(table, slice, value_bytes, params->only);
    (void)shards_count(table, walk, slice->row_count, &shards);
    shares_count(params, &shards, &shares);
    if (shares.count == 1)
        return pull_send_whole(table, slice, value_bytes, shares.list[0].way);
    if (!pull_requests_make(table, slice, &shares))
        return false;
    for (uint32_t i = 0; i < slice->row_count; i++) {
        struct muster_params_op *op = walk.cursor.op;
        struct row_at row = walk_next(&walk);
        struct way_share *share = &shares.list[shares.places[shard_of(table, row.key)]];

        share->keys[share->row_count] = row.key;
        share->request->parts[share->row_count++] =
            (struct muster_params_part){.op = op, .row_count = 1, .values = row.values};
        op->waits++;
    }
    for (uint32_t i = 0; i < shares.count; i++)
        muster_params_request_send(shares.list[i].request, shares.list[i].way, params->number++);
    return true;
}

/* --- A turn's queues --- */

/* The rows of all operations are in messages now, or there was no memory for them. Each operation counted
 * the queue among what it waits for; that count goes last, because the operation may end with it and
 * its callback may do anything. Operations that the callback starts are of the next turn. */
static void queue_release(struct muster_list *queue, bool is_whole)
{
    struct muster_error error;
    struct muster_list released;

    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the messages of a turn");
    muster_list_take_all(&released, queue);
    while (!muster_list_is_empty(&released)) {
        struct muster_params_op *op = op_first(&released);

        muster_list_remove(&op->queued);
        muster_params_op_release(op, is_whole ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED, &error);
    }
}

typedef bool send_fn(struct muster_params_table *table, const struct slice *slice,
                     size_t value_bytes);

static void queue_flush(struct muster_params_table *table, struct muster_list *queue, send_fn *send)
{
    size_t value_bytes = table->row_elements * muster_dtype_bytes(table->wire_dtype);
    struct cursor cursor = {op_first(queue), 0};
    bool is_whole = true;

    while (cursor.op != NULL && is_whole) {
        struct slice slice =
            slice_take(queue, &cursor, rows_per_message(value_bytes + sizeof(uint64_t)));

        is_whole = send(table, &slice, value_bytes);
    }
    queue_release(queue, is_whole);
}

void muster_params_on_flush(struct muster_task *task)
{
    struct muster_params *params = task->data;

    if (!params->is_ready) /* it comes here again when it is */
        return;
    params->collected_bytes = muster_params_rounds_admit(params);
    params->collected_bytes += muster_params_holds_admit(params);
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        queue_flush(table, &table->pushes, push_send);
        if (muster_list_is_empty(&table->kept))
            queue_flush(table, &table->pulls, pull_send);
    }
    muster_params_requests_go_on(params);
    muster_params_ranges_send(params);
    muster_params_ticks_number(params);
    muster_params_ticks_check(params);
    muster_params_marks_send(params);
    muster_params_close_check(params);
}
