/* Pushes and pulls behind their doors. Values travel as the table says, and are f32 in the store. */
#include "params/server/state/rows.h"

#include <stdatomic.h>

#include <muster/collective.h>

#include "params/server/followers/change.h"
#include "params/store/load.h"
#include "params/store/row.h"
#include "params/wire/range.h"

#define MEASURED_PUSH 64u /* one of so many is timed */

/* A push that a death has cut short is given up by the process that opens its source. */
static void source_close_push(const struct muster_params_region *region, uint64_t slot)
{
    struct muster_params_source *source = muster_params_source_at(region, slot);

    MUSTER_PARAMS_STORE(&source->pushed, muster_params_source_sequence(region, source) - 1);
}

static enum muster_rc source_refuse(const struct muster_params_server *server, enum muster_rc rc,
                                    struct muster_error *ret_error)
{
    switch (rc) {
    case MUSTER_ABORTED:
        return muster_error_set(ret_error, rc, MUSTER_PARAMS_YOUNGER);
    case MUSTER_FAILED_PRECONDITION:
        return muster_error_set(ret_error, rc,
                                "the server does not know this source any more: it has lost its "
                                "memory, or has forgotten the source's sequence");
    case MUSTER_UNAVAILABLE:
        return muster_error_set(ret_error, rc,
                                "the process has opened this source over a younger link");
    default:
        return muster_error_set(
            ret_error, rc, "no room for one more source: the server has %u (limit %u), or no memory",
            muster_params_source_live(server->region),
            server->region->sources_max != 0 ? server->region->sources_max
                                             : MUSTER_PARAMS_SOURCES_MAX);
    }
}

enum muster_rc muster_params_server_source_open(struct muster_params_server *server,
                                                const struct muster_params_opener *opener,
                                                uint64_t *ret_slot, struct muster_error *ret_error)
{
    bool is_new = opener->generation == 0 && !muster_params_source_is_of(server->region, opener);
    enum muster_rc rc = opener->generation == 0
                            ? muster_params_source_open(server->region, opener, ret_slot)
                            : muster_params_source_reopen(server->region, opener, ret_slot);

    if (rc != MUSTER_OK)
        return source_refuse(server, rc, ret_error);
    if (is_new)
        source_close_push(server->region, *ret_slot);
    return MUSTER_OK;
}

enum muster_rc muster_params_server_source_join(struct muster_params_server *server,
                                                const struct muster_params_opener *opener,
                                                uint64_t *ret_slot, struct muster_error *ret_error)
{
    enum muster_rc rc = muster_params_source_adopt(server->region, opener, ret_slot);

    return rc == MUSTER_OK ? rc : source_refuse(server, rc, ret_error);
}

enum muster_rc muster_params_server_table_open(struct muster_params_server *server,
                                               const struct muster_params_schema *schema,
                                               struct muster_params_store_table **ret_table,
                                               struct muster_error *ret_error)
{
    if (strstr(schema->name, MUSTER_PARAMS_ROUND_MARK) != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the name of a table must have no " MUSTER_PARAMS_ROUND_MARK
                                ", got %.63s",
                                schema->name);
    muster_params_watches_note(server);
    return muster_params_table_open(server->region, schema, ret_table, ret_error);
}

struct muster_params_store_table *muster_params_server_table(
    const struct muster_params_server *server, uint32_t number)
{
    struct muster_params_region_head *head = server->region->head;

    return number < head->table_count ? &head->tables[number] : NULL;
}

/* --- Values --- */

/* NULL: no memory. */
static float *scratch_of(struct muster_params_server *server, size_t count)
{
    if (count > server->scratch_count) {
        float *scratch =
            muster_mem_realloc(server->env->mem, server->scratch, count * sizeof(*scratch));

        if (scratch == NULL)
            return NULL;
        server->scratch = scratch;
        server->scratch_count = count;
    }
    return server->scratch;
}

static void values_widen(enum muster_dtype dtype, const void *from, size_t count, float *ret_to)
{
    const uint16_t *halves = from;

    for (size_t i = 0; i < count; i++)
        ret_to[i] =
            dtype == MUSTER_F16 ? muster_f16_to_f32(halves[i]) : muster_bf16_to_f32(halves[i]);
}

static void values_narrow(enum muster_dtype dtype, const float *from, size_t count, void *ret_to)
{
    uint16_t *halves = ret_to;

    for (size_t i = 0; i < count; i++)
        halves[i] =
            dtype == MUSTER_F16 ? muster_f16_from_f32(from[i]) : muster_bf16_from_f32(from[i]);
}

/* --- Pushes --- */

enum muster_rc muster_params_push_check(const struct muster_params_source *source,
                                        uint64_t generation, uint64_t sequence,
                                        struct muster_error *ret_error)
{
    if (source->generation != generation)
        return muster_error_set(ret_error, MUSTER_ABORTED, MUSTER_PARAMS_YOUNGER);
    if (sequence == 0 || sequence > MUSTER_PARAMS_SEQUENCE_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the sequence number of a push must be from 1 to 2^47 - 1, got "
                                "%llu",
                                (unsigned long long)sequence);
    return MUSTER_OK;
}

static struct muster_params_update update_of(const struct muster_params_push *push,
                                             const float *values)
{
    return (struct muster_params_update){.table = push->table,
                                         .source = push->source,
                                         .sequence = push->sequence,
                                         .clock = push->clock,
                                         .run_count = push->run_count,
                                         .runs = push->runs,
                                         .keys = push->keys,
                                         .values = values,
                                         .makes_no_rows = push->is_told};
}

static void push_store(struct muster_params_server *server,
                       const struct muster_params_update *update,
                       struct muster_params_pushed *ret_pushed)
{
    struct muster_params_applied applied = muster_params_update_apply(server->region, update);

    server->has_digests = false;
    *ret_pushed = (struct muster_params_pushed){.duplicate = applied.duplicate_rows,
                                                .refused = applied.refused};
    server->stats.duplicate_runs += applied.duplicate_runs;
}

/* NULL: no memory. */
static struct muster_params_turned *turned_of(struct muster_params_server *server, size_t count)
{
    if (count > server->turned_count) {
        struct muster_params_turned *turned =
            muster_mem_realloc(server->env->mem, server->turned, count * sizeof(*turned));

        if (turned == NULL)
            return NULL;
        server->turned = turned;
        server->turned_count = count;
    }
    return server->turned;
}

/* Nothing can fail once the first row has come or gone: followers are told of it. */
static enum muster_rc turning_apply(struct muster_params_server *server,
                                    const struct muster_params_push *push, const float *values,
                                    struct muster_params_pushed *ret_pushed)
{
    struct muster_params_push told = *push;
    struct muster_params_update update;
    size_t turned_max = muster_params_turned_max(push->row_count, push->run_count);
    struct muster_params_turnover turnover = {.low_clock = server->clocks.low,
                                              .turned = turned_of(server, turned_max)};
    struct muster_params_forward forward;

    told.is_told = true;
    update = update_of(&told, values);
    if (turnover.turned == NULL ||
        muster_params_forward_prepare(server, &told, turned_max, &forward) != MUSTER_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_params_turnover_decide(server->region, &update, &turnover);
    muster_params_forward_send(server, &told, &forward, turnover.turned, turnover.count);
    push_store(server, &update, ret_pushed);
    server->stats.unadmitted_rows += ret_pushed->refused - turnover.refused;
    server->stats.evicted_rows += turnover.evicted;
    server->stats.expired_rows += turnover.expired;
    ret_pushed->refused = turnover.refused;
    return MUSTER_OK;
}

static enum muster_rc plain_apply(struct muster_params_server *server,
                                  const struct muster_params_push *push, const float *values,
                                  struct muster_params_pushed *ret_pushed)
{
    const struct muster_params_update update = update_of(push, values);
    struct muster_params_forward forward;

    if (muster_params_forward_prepare(server, push, 0, &forward) != MUSTER_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_params_forward_send(server, push, &forward, NULL, 0);
    if (push->is_copy)
        muster_params_turnover_count(server->region, &update);
    push_store(server, &update, ret_pushed);
    if (push->is_told || muster_params_table_turns(push->table))
        ret_pushed->refused = 0; /* what the primary did not make is no loss */
    return MUSTER_OK;
}

/* Copies may have more memory than the primary: where a row may be refused, they make those that it has made, as they
 * always do in tables whose rows come and go. */
static bool rows_are_told(const struct muster_params_server *server,
                          const struct muster_params_push *push)
{
    if (push->is_copy)
        return false;
    return muster_params_table_turns(push->table) ||
           (!muster_list_is_empty(&server->followers) &&
            muster_params_rows_may_lack(server->region, push->table, push->row_count,
                                        push->run_count));
}

/* A run that its source does not mark as its first keeps the sequence forgotten. */
static bool run_is_new(const struct muster_params_push *push, uint32_t run)
{
    return push->source->positions[muster_params_run_shard(&push->runs[run])] == 0 &&
           (push->runs[run].shard & MUSTER_PARAMS_RUN_FIRST) != 0;
}

static bool is_new_to_some(const struct muster_params_push *push)
{
    for (uint32_t i = 0; i < push->run_count; i++) {
        if (run_is_new(push, i))
            return true;
    }
    return false;
}

/* Copies learn it in the stream: one that takes over must not take the source's next push for a lost sequence. */
static enum muster_rc refused_apply(struct muster_params_server *server,
                                    const struct muster_params_push *push)
{
    struct muster_params_forward forward;

    if (!is_new_to_some(push))
        return MUSTER_OK;
    if (muster_params_forward_prepare(server, push, 0, &forward) != MUSTER_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_params_forward_send(server, push, &forward, NULL, 0);
    for (uint32_t i = 0; i < push->run_count; i++) {
        uint32_t shard = muster_params_run_shard(&push->runs[i]);

        if (!run_is_new(push, i))
            continue;
        muster_params_position_load(push->source, shard, push->sequence << 16);
        if (server->region->changed != NULL)
            server->region->changed[shard] = 1;
    }
    server->has_digests = false;
    return MUSTER_OK;
}

/* A push that is kept for a round is stored with the clock after it (round.c). */
static void clock_note(const struct muster_params_push *push)
{
    uint32_t pushed = push->clock < UINT32_MAX ? push->clock + 1 : push->clock;

    if (pushed <= push->source->pushed_clock)
        return;
    pushed -= strstr(push->table->name, MUSTER_PARAMS_ROUND_MARK) != NULL;
    if (pushed > push->source->pushed_clock)
        MUSTER_PARAMS_STORE(&push->source->pushed_clock, pushed);
}

static enum muster_rc push_apply(struct muster_params_server *server,
                                 const struct muster_params_push *push,
                                 struct muster_params_pushed *ret_pushed)
{
    const float *values = push->values;
    enum muster_rc rc;

    if (push->dtype != MUSTER_F32) {
        size_t count = (size_t)push->row_count * push->table->row_elements;
        float *wide = scratch_of(server, count);

        if (wide == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        values_widen(push->dtype, push->values, count, wide);
        values = wide;
    }
    clock_note(push); /* before the rows: a process that dies in between has them applied again */
    rc = rows_are_told(server, push) ? turning_apply(server, push, values, ret_pushed)
                                     : plain_apply(server, push, values, ret_pushed);
    if (rc != MUSTER_OK)
        return rc;
    if (push->sequence > push->source->pushed)
        MUSTER_PARAMS_STORE(&push->source->pushed, push->sequence);
    server->stats.pushes++;
    server->stats.pushed_rows += push->row_count;
    server->stats.pushed_bytes +=
        (uint64_t)push->row_count * push->table->row_elements * muster_dtype_bytes(push->dtype);
    server->stats.refused_rows += ret_pushed->refused;
    return MUSTER_OK;
}

/* Clocks cost as much as a row does: some pushes are measured. */
enum muster_rc muster_params_push_apply(struct muster_params_server *server,
                                        const struct muster_params_push *push,
                                        struct muster_params_pushed *ret_pushed)
{
    const struct muster_loop *loop = server->env->loop;
    uint64_t begin_ns;
    enum muster_rc rc;

    *ret_pushed = (struct muster_params_pushed){.refused = 0};
    if (push->is_refused)
        return refused_apply(server, push);
    if (server->stats.pushes % MEASURED_PUSH != 0)
        return push_apply(server, push, ret_pushed);
    begin_ns = muster_loop_clock_ns(loop);
    rc = push_apply(server, push, ret_pushed);
    if (rc == MUSTER_OK)
        muster_histogram_observe(&server->apply_seconds,
                                 (double)(muster_loop_clock_ns(loop) - begin_ns) / (double)MUSTER_NS_PER_S);
    return rc;
}

/* --- Pulls --- */

enum muster_rc muster_params_pull_check(const struct muster_params_store_table *table,
                                        uint32_t row_count, enum muster_dtype dtype,
                                        size_t *ret_bytes, struct muster_error *ret_error)
{
    size_t bytes = (size_t)row_count * table->row_elements * muster_dtype_bytes(dtype);

    if (bytes > MUSTER_FRAME_PAYLOAD_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a pull of %u rows of table %s needs %zu bytes, the limit is %u",
                                row_count, table->name, bytes, MUSTER_FRAME_PAYLOAD_MAX);
    *ret_bytes = bytes;
    return MUSTER_OK;
}

static size_t range_bytes(const struct muster_params_store_table *table,
                          const struct muster_frame_header *header, const uint8_t *payload)
{
    const struct muster_params_tensor tensor = {.elements = table->tensor_elements,
                                                .block_elements = table->row_elements,
                                                .dtype = (enum muster_dtype)table->wire_dtype};
    struct muster_params_range_frame range;
    struct muster_error error;

    return table->tensor_elements > 0 && muster_params_range_unpack(header, payload, &tensor, &range,
                                                                    &error) == MUSTER_OK
               ? range.count * muster_dtype_bytes(tensor.dtype)
               : 0;
}

size_t muster_params_answer_bytes(const struct muster_params_server *server,
                                  const struct muster_frame_header *header, const uint8_t *payload)
{
    bool is_range = header->type == MUSTER_PARAMS_PULL_RANGE;
    const struct muster_params_store_table *table;
    struct muster_params_rows_frame frame;
    struct muster_error error;
    size_t bytes = 0;

    if ((!is_range && header->type != MUSTER_PARAMS_PULL &&
         header->type != MUSTER_PARAMS_PUSH_PULL) ||
        header->payload_bytes <
            (is_range ? MUSTER_PARAMS_PULL_RANGE_BYTES : MUSTER_PARAMS_ROWS_HEAD_BYTES))
        return 0;
    table = muster_params_server_table(server, is_range ? muster_params_range_table(header)
                                                        : muster_params_rows_table(payload));
    if (table == NULL)
        return 0;
    if (is_range)
        return range_bytes(table, header, payload);
    muster_params_rows_view(payload, header->type == MUSTER_PARAMS_PUSH_PULL, &frame);
    return muster_params_pull_check(table, frame.row_count, (enum muster_dtype)table->wire_dtype,
                                    &bytes, &error) == MUSTER_OK
               ? bytes
               : 0;
}

enum muster_rc muster_params_pull_prepare(struct muster_params_server *server, size_t value_count)
{
    return scratch_of(server, value_count) != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

/* Rows that are wanted in part are read whole, and cut. */
static void range_read(const struct muster_params_region *region,
                       const struct muster_params_store_table *table,
                       const struct muster_params_rows_frame *frame, float *scratch,
                       float *ret_values)
{
    uint32_t width = table->row_elements, skip = frame->skip, left = frame->element_count;
    const uint64_t *keys = frame->keys;

    while (left > 0) {
        uint32_t rows = skip == 0 && left >= width ? left / width : 1;
        uint32_t some = width - skip < left ? width - skip : left;

        if (skip == 0 && left >= width) {
            some = rows * width;
            muster_params_rows_read(region, table, keys, rows, ret_values);
        } else {
            muster_params_rows_read(region, table, keys, 1, scratch);
            memcpy(ret_values, scratch + skip, some * sizeof(*scratch));
        }
        keys += rows;
        ret_values += some;
        left -= some;
        skip = 0;
    }
}

enum muster_rc muster_params_range_read(struct muster_params_server *server,
                                        const struct muster_params_store_table *table,
                                        const struct muster_params_rows_frame *frame,
                                        void *ret_values)
{
    bool is_narrow = frame->dtype != MUSTER_F32;
    size_t width = table->row_elements;
    float *scratch = scratch_of(server, is_narrow ? frame->row_count * width : width);

    if (scratch == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (is_narrow) {
        muster_params_rows_read(server->region, table, frame->keys, frame->row_count, scratch);
        values_narrow((enum muster_dtype)frame->dtype, scratch + frame->skip, frame->element_count,
                      ret_values);
    } else {
        range_read(server->region, table, frame, scratch, ret_values);
    }
    server->stats.pulls++;
    server->stats.pulled_rows += frame->row_count;
    server->stats.pulled_bytes +=
        (uint64_t)frame->element_count * muster_dtype_bytes((enum muster_dtype)frame->dtype);
    return MUSTER_OK;
}

enum muster_rc muster_params_pull_read(struct muster_params_server *server,
                                       const struct muster_params_store_table *table,
                                       const struct muster_params_rows_frame *frame,
                                       void *ret_values)
{
    size_t count = (size_t)frame->row_count * table->row_elements;
    float *values = frame->dtype == MUSTER_F32 ? ret_values : scratch_of(server, count);

    if (values == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_params_rows_read(server->region, table, frame->keys, frame->row_count, values);
    if (frame->dtype != MUSTER_F32)
        values_narrow((enum muster_dtype)frame->dtype, values, count, ret_values);
    server->stats.pulls++;
    server->stats.pulled_rows += frame->row_count;
    server->stats.pulled_bytes += count * muster_dtype_bytes((enum muster_dtype)frame->dtype);
    return MUSTER_OK;
}
