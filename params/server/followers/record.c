/* Changes and shards as messages to followers. */
#include "params/server/followers/record.h"

#include <string.h>

#include "params/server/followers/follower.h"
#include "params/store/row.h"

/* Bytes of one message of a shard's copy, unless a row is larger, and of what one turn copies: the learner loads them
 * in 0.5 ms, and answers no push meanwhile. */
#define COPY_BYTES ((size_t)128 << 10)

struct muster_params_record *muster_params_record_new(struct muster_params_server *server,
                                                      enum muster_params_copy_message type,
                                                      size_t payload_bytes)
{
    struct muster_params_record *record =
        muster_mem_alloc(&server->pool.mem, sizeof(*record) + payload_bytes);

    if (record == NULL)
        return NULL;
    memset(record, 0, sizeof(*record));
    record->server = server;
    record->frame.data = record;
    record->frame.payload = record->payload;
    record->frame.header = (struct muster_frame_header){.channel = MUSTER_FRAME_PARAMS,
                                                        .type = (uint8_t)type,
                                                        .payload_bytes = (uint32_t)payload_bytes};
    return record;
}

void muster_params_records_free(struct muster_params_server *server, struct muster_list *records)
{
    MUSTER_LIST_EACH_SAFE (records, record, struct muster_params_record, node) {
        muster_list_remove(&record->node);
        muster_mem_free(&server->pool.mem, record);
    }
}

/* --- A push --- */

static bool run_is_for(const struct muster_params_run_filter *filter,
                       const struct muster_params_run *run)
{
    const struct muster_params_server *server = filter->server;
    uint32_t shard = muster_params_run_shard(run);

    if (filter->shards != NULL)
        return (filter->shards[shard / 8] & 1u << shard % 8) != 0 &&
               filter->since[shard] != UINT64_MAX && filter->stamp >= filter->since[shard];
    return (server->shard_followers[shard] & ~server->shard_stale[shard] & filter->mask) != 0;
}

bool muster_params_push_has_runs(const struct muster_params_push *push,
                                 const struct muster_params_run_filter *filter)
{
    for (uint32_t i = 0; i < push->run_count; i++) {
        if (run_is_for(filter, &push->runs[i]))
            return true;
    }
    return false;
}

static void push_count(const struct muster_params_push *push,
                       const struct muster_params_run_filter *filter,
                       struct muster_params_rows_frame *ret_frame)
{
    ret_frame->run_count = 0;
    ret_frame->row_count = 0;
    for (uint32_t i = 0; i < push->run_count; i++) {
        if (!run_is_for(filter, &push->runs[i]))
            continue;
        ret_frame->run_count++;
        ret_frame->row_count += push->runs[i].rows;
    }
}

static void push_copy(const struct muster_params_push *push,
                      const struct muster_params_run_filter *filter,
                      const struct muster_params_rows_frame *frame, void *payload)
{
    size_t value_bytes = push->table->row_elements * muster_dtype_bytes(push->dtype);
    const uint8_t *from = push->values;
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;
    size_t row = 0, copied = 0;

    muster_params_rows_pack(frame, payload, &runs, &keys, &values);
    for (uint32_t i = 0; i < push->run_count; i++) {
        const struct muster_params_run *run = &push->runs[i];

        if (run_is_for(filter, run)) {
            *runs++ = *run;
            memcpy(keys + copied, push->keys + row, run->rows * sizeof(*keys));
            memcpy((uint8_t *)values + copied * value_bytes, from + row * value_bytes,
                   run->rows * value_bytes);
            copied += run->rows;
        }
        row += run->rows;
    }
}

struct muster_params_record *muster_params_filtered_record(
    struct muster_params_server *server, const struct muster_params_push *push,
    const struct muster_params_run_filter *filter)
{
    uint32_t number = muster_params_table_number(server->region, push->table);
    struct muster_params_rows_frame frame = {
        .slot = push->slot, .clock = push->clock, .table = number, .dtype = (uint8_t)push->dtype};
    struct muster_params_record *record;

    push_count(push, filter, &frame);
    MUSTER_ASSERT(frame.run_count > 0);
    record = muster_params_record_new(
        server, MUSTER_PARAMS_COPY_PUSH,
        muster_params_rows_bytes(frame.run_count, frame.row_count, push->table->row_elements,
                                 push->dtype));
    if (record == NULL)
        return NULL;
    record->frame.header.flags = (push->is_refused ? MUSTER_PARAMS_COPY_IS_REFUSED : 0) |
                                 (push->is_told ? MUSTER_PARAMS_COPY_IS_TOLD : 0);
    record->frame.header.offset = push->sequence;
    record->frame.header.descriptor = push->table->descriptor;
    record->source_begin = push->slot;
    record->source_end = push->slot + 1;
    record->table_count = number + 1;
    push_copy(push, filter, &frame, record->payload);
    return record;
}

struct muster_params_record *muster_params_push_record(struct muster_params_server *server,
                                                       const struct muster_params_push *push,
                                                       uint64_t mask)
{
    const struct muster_params_run_filter filter = {.server = server, .mask = mask};

    return muster_params_filtered_record(server, push, &filter);
}

/* --- Keys that a push turns --- */

struct muster_params_record *muster_params_turnover_record(struct muster_params_server *server,
                                                           const struct muster_params_push *push,
                                                           size_t turned_max)
{
    uint32_t number = muster_params_table_number(server->region, push->table);
    struct muster_params_record *record =
        muster_params_record_new(server, MUSTER_PARAMS_COPY_TURNOVER,
                                 turned_max * sizeof(struct muster_params_turned));

    if (record == NULL)
        return NULL;
    record->frame.header.offset = push->sequence;
    record->frame.header.phase = (uint32_t)push->slot;
    record->frame.header.chunk = number;
    record->frame.header.descriptor = push->table->descriptor;
    record->source_begin = push->slot;
    record->source_end = push->slot + 1;
    record->table_count = number + 1;
    return record;
}

void muster_params_turnover_fill(struct muster_params_record *record, uint64_t mask,
                                 const struct muster_params_turned *turned, uint32_t count)
{
    const struct muster_params_run_filter filter = {.server = record->server, .mask = mask};
    uint32_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct muster_params_run run = {.shard = (uint16_t)turned[i].shard};

        if (!run_is_for(&filter, &run))
            continue;
        memcpy(record->payload + bytes, &turned[i], sizeof(turned[i]));
        bytes += sizeof(turned[i]);
    }
    record->frame.header.payload_bytes = bytes;
}

/* --- A shard --- */

struct shard_copy {
    struct muster_params_server *server;
    uint32_t shard;
    struct muster_list *records;
    uint32_t count;
    struct muster_params_record *rows; /* that is being filled; NULL: none */
    uint64_t rows_expected;            /* of its table */
    size_t room;                       /* of its payload */
    bool is_short;                     /* of memory */
};

static struct muster_params_record *copy_append(struct shard_copy *copy,
                                                enum muster_params_copy_message type, size_t bytes)
{
    struct muster_params_record *record = muster_params_record_new(copy->server, type, bytes);

    if (record == NULL) {
        copy->is_short = true;
        return NULL;
    }
    record->is_copy = true;
    record->shard = copy->shard;
    record->frame.header.phase = copy->shard;
    muster_list_append(copy->records, &record->node);
    copy->count++;
    return record;
}

/* The positions of some sources. Those that are pushed to meanwhile have the same at the follower. */
static void positions_append(struct shard_copy *copy, struct muster_params_copy_cursor *cursor)
{
    const struct muster_params_region *region = copy->server->region;
    uint64_t per_record = COPY_BYTES / sizeof(struct muster_params_copied_position);
    uint64_t at = cursor->slot, slots = region->head->source_count - at;
    uint64_t count = slots < per_record ? slots : per_record;
    struct muster_params_record *record = copy_append(
        copy, MUSTER_PARAMS_COPY_POSITIONS, count * sizeof(struct muster_params_copied_position));
    uint32_t bytes = 0;

    if (record == NULL)
        return;
    record->source_begin = at;
    record->source_end = cursor->slot = at + count;
    for (uint64_t i = 0; i < count; i++) {
        const struct muster_params_copied_position entry = {
            .slot = at + i,
            .position = muster_params_source_at(region, at + i)->positions[copy->shard]};

        if (entry.position == 0)
            continue;
        memcpy(record->payload + bytes, &entry, sizeof(entry));
        bytes += sizeof(entry);
    }
    record->frame.header.payload_bytes = bytes;
}

static size_t copied_bytes(const struct muster_params_store_table *table)
{
    return sizeof(struct muster_params_copied_row) +
           (table->row_elements + table->state_elements) * sizeof(float);
}

static void on_row(void *data, const struct muster_params_store_table *table,
                   const struct muster_params_row *row)
{
    struct shard_copy *copy = data;
    const struct muster_params_copied_row head = {.key = row->key, .clock = row->clock};
    size_t bytes = copied_bytes(table);
    uint8_t *at;

    if (copy->is_short)
        return;
    if (copy->rows == NULL || copy->rows->frame.header.payload_bytes + bytes > copy->room) {
        copy->room = bytes > COPY_BYTES ? bytes : COPY_BYTES / bytes * bytes;
        copy->rows = copy_append(copy, MUSTER_PARAMS_COPY_ROWS, copy->room);
        if (copy->rows == NULL)
            return;
        copy->rows->frame.header.payload_bytes = 0;
        copy->rows->frame.header.chunk = muster_params_table_number(copy->server->region, table);
        copy->rows->frame.header.descriptor = table->descriptor;
        copy->rows->frame.header.offset = copy->rows_expected;
        copy->rows->table_count = copy->rows->frame.header.chunk + 1;
    }
    at = copy->rows->payload + copy->rows->frame.header.payload_bytes;
    memcpy(at, &head, sizeof(head));
    memcpy(at + sizeof(head), row->values, bytes - sizeof(head));
    copy->rows->frame.header.payload_bytes += (uint32_t)bytes;
}

/* An estimate of the table's rows that the follower will have of this server when it has learned all: all of them where
 * each server has a copy, else three quarters of its share, since too large an index costs memory. */
static uint64_t rows_expected(const struct muster_params_server *server,
                              const struct muster_params_store_table *table)
{
    const struct muster_params_map *map = server->map;
    uint64_t rows = 0;

    if (!muster_params_has_tails(server))
        return 0;
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_server_leads_now(server, shard))
            rows += muster_params_shard_at(server->region, table, shard)->row_count;
    }
    return map->server_count <= map->copies_wanted
               ? rows
               : rows * (map->copies_wanted - 1) / (map->server_count - 1) * 3 / 4;
}

static void rows_append(struct shard_copy *copy, struct muster_params_copy_cursor *cursor)
{
    const struct muster_params_region *region = copy->server->region;
    const struct muster_params_store_table *table = &region->head->tables[cursor->table];
    uint32_t rows = (uint32_t)(COPY_BYTES / copied_bytes(table)), left = rows > 0 ? rows : 1;

    if (!cursor->row.is_begun)
        cursor->rows_expected = rows_expected(copy->server, table);
    copy->rows = NULL;
    copy->rows_expected = cursor->rows_expected;
    if (muster_params_rows_step(region, table, copy->shard, &cursor->row, &left, on_row, copy))
        return;
    cursor->table++;
    cursor->row = (struct muster_params_row_cursor){.page = 0};
}

static bool end_append(struct shard_copy *copy)
{
    struct muster_params_record *record = copy_append(copy, MUSTER_PARAMS_COPY_END, 0);

    if (record == NULL)
        return false;
    record->frame.header.offset = copy->server->region->head->removals[copy->shard];
    return true;
}

/* Rows that are pushed to before they are copied are pushed to at the follower, too, and written over. */
bool muster_params_copy_piece(struct muster_params_server *server,
                              struct muster_params_copy_cursor *cursor,
                              struct muster_list *ret_records, uint32_t *ret_count)
{
    struct muster_params_region_head *head = server->region->head;
    struct shard_copy copy = {.server = server, .shard = cursor->shard, .records = ret_records};

    if (!cursor->is_begun)
        (void)copy_append(&copy, MUSTER_PARAMS_COPY_BEGIN, 0);
    cursor->is_begun = true;
    if (cursor->slot < head->source_count)
        positions_append(&copy, cursor);
    else if (cursor->table < head->table_count)
        rows_append(&copy, cursor);
    else
        cursor->is_over = end_append(&copy);
    if (copy.is_short) {
        muster_params_records_free(server, ret_records);
        return false;
    }
    *ret_count = copy.count;
    return true;
}
