/* The gRPC door of a server that shares its tables with others: agents send the rows to whoever leads them,
 * this server among them. All servers apply a push under the caller's sequence number, so its repetition may
 * come to any of them. */
#include "params/server/services/agents.h"

#include <inttypes.h>
#include <string.h>

#include <muster/collective.h>

#include "params/server/services/params_service.h"
#include "params/server/services/state_proto.h"
#include "params/server/services/table_proto.h"
#include "params/server/state/round.h"
#include "params/server/state/rows.h"

/* Agents whose source has not called for 10 s are freed. */
#define KEEP_INTERVAL_NS (2 * MUSTER_NS_PER_S)

enum call_kind { CALL_OPEN, CALL_TABLE, CALL_PUSH, CALL_PULL, CALL_PUSH_PULL, CALL_TICK };

/* Keys and values follow it. */
struct shared_call {
    struct muster_params_errand errand;
    struct muster_params_server *server;
    struct muster_rpc *rpc; /* NULL: the caller has gone */
    enum call_kind kind;
    struct muster_params_origin origin;
    struct muster_params_store_table *table;
    bool as_bytes;
    uint64_t clock;
    struct muster_params_tick tick;
    uint64_t min_clock;
    uint64_t skip, element_count; /* of a tensor: which of the blocks' elements are wanted */
    struct muster_timer keep;     /* the agent of a source that waits for a clock */
    uint32_t key_count;
    uint64_t *keys;
    void *values; /* as they travel, in room for floats */
};

static size_t wire_bytes(const struct muster_params_store_table *table)
{
    return muster_dtype_bytes((enum muster_dtype)table->wire_dtype);
}

static void call_refuse(struct muster_rpc *rpc, const struct muster_error *error)
{
    muster_rpc_finish(rpc, error->rc, error->text);
}

/* --- Values --- */

/* Convert the values of a push to the table's type on the wire. */
static void values_narrow(const struct muster_params_push *push, size_t count, void *ret_values)
{
    const float *floats = push->values;
    uint16_t *halves = ret_values;
    enum muster_dtype wire = (enum muster_dtype)push->table->wire_dtype;

    if (push->dtype == wire) {
        memcpy(ret_values, push->values, count * muster_dtype_bytes(wire));
        return;
    }
    for (size_t i = 0; i < count; i++)
        halves[i] =
            wire == MUSTER_F16 ? muster_f16_from_f32(floats[i]) : muster_bf16_from_f32(floats[i]);
}

/* Convert values to floats in place, from the last on, so that none is written over before it is
 * read. */
static void values_widen(enum muster_dtype wire, size_t count, void *values)
{
    uint8_t *bytes = values;

    for (size_t i = count; wire != MUSTER_F32 && i-- > 0;) {
        uint16_t half;
        float wide;

        memcpy(&half, bytes + i * sizeof(half), sizeof(half));
        wide = wire == MUSTER_F16 ? muster_f16_to_f32(half) : muster_bf16_to_f32(half);
        memcpy(bytes + i * sizeof(wide), &wide, sizeof(wide));
    }
}

/* --- Answers --- */

static void open_answer(const struct shared_call *call)
{
    Muster__Params__V1__OpenResponse response;
    Muster__Params__V1__Source named;

    muster__params__v1__source__init(&named);
    named.generation = call->errand.generation;
    named.id.data = (uint8_t *)(uintptr_t)call->origin.source.bytes;
    named.id.len = sizeof(call->origin.source.bytes);
    muster__params__v1__open_response__init(&response);
    response.source = &named;
    response.next_sequence = call->errand.next_sequence;
    response.shards = call->server->region->head->shard_count;
    (void)muster_params_v1_params_open_reply(call->rpc, &response);
}

static void table_answer(const struct shared_call *call)
{
    Muster__Params__V1__TableResponse response;
    Muster__Params__V1__Schema schema;
    Muster__Params__V1__Table described;

    muster_params_table_describe(call->server, call->table, &described, &schema);
    muster__params__v1__table_response__init(&response);
    response.table = &described;
    (void)muster_params_v1_params_table_reply(call->rpc, &response);
}

static void pushed_fill(const struct shared_call *call,
                        Muster__Params__V1__PushResponse *ret_response)
{
    muster__params__v1__push_response__init(ret_response);
    ret_response->refused = call->errand.op.refused;
    ret_response->applied = call->key_count - ret_response->refused;
}

static void rows_fill(const struct shared_call *call,
                      Muster__Params__V1__PullResponse *ret_response)
{
    size_t all = (size_t)call->key_count * call->table->row_elements;
    size_t count = call->element_count > 0 ? (size_t)call->element_count : all;
    size_t element_bytes = call->as_bytes ? wire_bytes(call->table) : sizeof(float);

    if (!call->as_bytes)
        values_widen((enum muster_dtype)call->table->wire_dtype, all, call->values);
    muster_params_call_rows(call->table, (uint8_t *)call->values + call->skip * element_bytes,
                            count * element_bytes, call->as_bytes, ret_response);
}

static void tick_answer(const struct shared_call *call)
{
    Muster__Params__V1__TickResponse response;
    Muster__Params__V1__Clocks clocks;

    muster_params_clocks_describe(call->server, &clocks);
    muster__params__v1__tick_response__init(&response);
    response.clocks = &clocks;
    (void)muster_params_v1_params_tick_reply(call->rpc, &response);
}

static void call_answer(const struct shared_call *call)
{
    Muster__Params__V1__PushResponse pushed;
    Muster__Params__V1__PullResponse rows;
    Muster__Params__V1__PushPullResponse both;

    switch (call->kind) {
    case CALL_OPEN:
        open_answer(call);
        break;
    case CALL_TABLE:
        table_answer(call);
        break;
    case CALL_PUSH:
        pushed_fill(call, &pushed);
        (void)muster_params_v1_params_push_reply(call->rpc, &pushed);
        break;
    case CALL_PULL:
        rows_fill(call, &rows);
        (void)muster_params_v1_params_pull_reply(call->rpc, &rows);
        break;
    case CALL_PUSH_PULL:
        pushed_fill(call, &pushed);
        rows_fill(call, &rows);
        muster__params__v1__push_pull_response__init(&both);
        both.pushed = &pushed;
        both.rows = &rows;
        (void)muster_params_v1_params_push_pull_reply(call->rpc, &both);
        break;
    case CALL_TICK:
        tick_answer(call);
        break;
    }
}

/* --- A call --- */

static void on_done(struct muster_params_errand *errand, enum muster_rc rc,
                    const struct muster_error *error)
{
    struct shared_call *call = MUSTER_CONTAINER_OF(errand, struct shared_call, errand);

    muster_timer_stop(&call->keep);
    if (call->rpc != NULL) {
        muster_rpc_set_data(call->rpc, NULL);
        if (rc == MUSTER_OK)
            call_answer(call);
        else
            call_refuse(call->rpc, error);
    }
    muster_mem_free(&call->server->pool.mem, call);
}

void muster_params_shared_on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct shared_call *call = muster_rpc_data(rpc);

    (void)rc;
    if (call == NULL)
        return;
    call->rpc = NULL;
    muster_params_errand_cancel(&call->errand);
}

static uint64_t call_deadline(const struct shared_call *call)
{
    uint64_t own_ns = muster_rpc_deadline_ns(call->rpc);
    uint64_t most_ns =
        muster_loop_after_ns(call->server->env->loop, MUSTER_PARAMS_ERRAND_TIMEOUT_NS);

    return own_ns < most_ns ? own_ns : most_ns;
}

static enum muster_rc start_push(struct muster_params_errand *errand, struct muster_params *params,
                                 struct muster_params_table *table)
{
    struct shared_call *call = MUSTER_CONTAINER_OF(errand, struct shared_call, errand);
    const struct muster_params_forward_push push = {
        .rows = {call->keys, call->values, call->key_count},
        .ret_values = call->kind == CALL_PUSH_PULL ? call->values : NULL,
        .sequence = errand->sequence,
        .clock = call->clock};

    (void)params;
    if (call->rpc == NULL)
        return MUSTER_CANCELLED;
    return muster_params_forward_start(&errand->op, table, &push, call_deadline(call),
                                       muster_params_errand_on_op);
}

static enum muster_rc start_pull(struct muster_params_errand *errand, struct muster_params *params,
                                 struct muster_params_table *table)
{
    struct shared_call *call = MUSTER_CONTAINER_OF(errand, struct shared_call, errand);
    const struct muster_params_rows rows = {call->keys, call->values, call->key_count};

    (void)params;
    if (call->rpc == NULL)
        return MUSTER_CANCELLED;
    return muster_params_forward_pull(&errand->op, table, &rows, call->min_clock,
                                      call_deadline(call), muster_params_errand_on_op);
}

static enum muster_rc start_tick(struct muster_params_errand *errand, struct muster_params *params,
                                 struct muster_params_table *table)
{
    struct shared_call *call = MUSTER_CONTAINER_OF(errand, struct shared_call, errand);
    enum muster_rc rc;

    (void)table;
    if (call->rpc == NULL)
        return MUSTER_CANCELLED;
    muster_params_forward_expect(params, call->tick.source_count);
    rc = muster_params_tick_weighted_start(&errand->op, params, call->tick.clock, call->tick.weight,
                                           call_deadline(call), muster_params_errand_on_op);
    if (rc == MUSTER_INVALID_ARGUMENT)
        muster_error_set(&errand->op.error, rc,
                         "the clock of the source must not fall, got %" PRIu64, call->tick.clock);
    return rc;
}

static void on_keep(struct muster_timer *timer)
{
    struct shared_call *call = timer->data;
    struct muster_loop *loop = call->server->env->loop;

    if (call->server->agents != NULL && muster_params_agents_keep(call->server, &call->origin))
        muster_timer_start(timer, loop, muster_loop_after_ns(loop, KEEP_INTERVAL_NS));
}

/* NULL: no memory; the caller has been told. */
static struct shared_call *call_new(struct muster_rpc *rpc, enum call_kind kind,
                                    struct muster_params_store_table *table, size_t key_count)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    size_t elements = table != NULL ? table->row_elements : 0;
    size_t bytes = sizeof(struct shared_call) + key_count * sizeof(uint64_t) +
                   key_count * elements * sizeof(float);
    struct shared_call *call = muster_mem_alloc(&server->pool.mem, bytes);

    if (call == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the call");
        return NULL;
    }
    memset(call, 0, sizeof(*call));
    muster_timer_init(&call->keep, on_keep, call);
    call->errand.done = on_done;
    call->server = server;
    call->rpc = rpc;
    call->kind = kind;
    call->table = table;
    call->key_count = (uint32_t)key_count;
    call->keys = (uint64_t *)(void *)(call + 1);
    call->values = call->keys + key_count;
    if (table != NULL)
        muster_params_table_schema(table, &call->errand.schema);
    return call;
}

static void call_hand(struct shared_call *call, const struct muster_params_origin *origin)
{
    struct muster_error error;

    if (muster_params_errand_hand(call->server, origin, &call->errand, &error) == MUSTER_OK) {
        muster_rpc_set_data(call->rpc, call);
        return;
    }
    call_refuse(call->rpc, &error);
    muster_timer_stop(&call->keep);
    muster_mem_free(&call->server->pool.mem, call);
}

/* --- Checks of a call --- */

static bool has_shards(const struct muster_params_server *server)
{
    const struct muster_params_map *map = server->map;

    for (uint32_t i = 0; map != NULL && i < map->shard_count; i++) {
        if (muster_params_map_is_copy(map, i, server->place))
            return true;
    }
    return false;
}

/* A server that holds no shard yet has not heard of the tables. */
static enum muster_rc table_find(const struct muster_params_server *server, bool has_name,
                                 const char *name, struct muster_params_store_table **ret_table,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (!has_name)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the call needs the name of a table: each server of a job numbers "
                                "tables for itself");
    rc = muster_params_server_table_find(server, name, ret_table, ret_error);
    if (rc != MUSTER_OK && !has_shards(server))
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "the server holds no shard of its job yet: ask another one, or "
                                "again");
    return rc;
}

/* The rows of a call may all be one server's, and travel in one frame then. */
static enum muster_rc frame_check(const struct muster_params_server *server,
                                  const struct muster_params_store_table *table, size_t key_count,
                                  struct muster_error *ret_error)
{
    uint32_t shard_count = server->region->head->shard_count;
    size_t bytes = muster_params_rows_bytes(shard_count, (uint32_t)key_count, table->row_elements,
                                            (enum muster_dtype)table->wire_dtype);

    if (bytes <= MUSTER_FRAME_PAYLOAD_MAX)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%zu rows of table %s take %zu bytes between servers, the limit is %u",
                            key_count, table->name, bytes, MUSTER_FRAME_PAYLOAD_MAX);
}

/* --- The methods --- */

void muster_params_shared_on_open(struct muster_rpc *rpc,
                                  const Muster__Params__V1__OpenRequest *request)
{
    struct muster_params_origin origin = {.generation = 0};
    struct shared_call *call;
    struct muster_error error;

    if (muster_params_call_source(request, &origin.source, &error) != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    call = call_new(rpc, CALL_OPEN, NULL, 0);
    if (call == NULL)
        return;
    call->origin = origin;
    call_hand(call, &origin);
}

/* The table is made in this server's memory first: that checks the schema. */
void muster_params_shared_on_table(struct muster_rpc *rpc,
                                   const Muster__Params__V1__TableRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct muster_params_store_table *table = NULL;
    struct shared_call *call;
    struct muster_error error;
    enum muster_rc rc;

    if (request->schema == NULL)
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT, "Table needs a schema");
    else if (request->schema->row_elements == 0)
        rc = table_find(server, true, request->schema->name, &table, &error);
    else
        rc = muster_params_server_table_make(server, request->schema, &table, &error);
    if (rc != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    call = call_new(rpc, CALL_TABLE, table, 0);
    if (call != NULL)
        call_hand(call, NULL);
}

static void push_begin(struct muster_rpc *rpc, const Muster__Params__V1__PushRequest *request,
                       enum call_kind kind, bool as_bytes)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct muster_params_push push = {.row_count = 0};
    struct muster_params_origin origin;
    void *memory = NULL;
    struct shared_call *call;
    struct muster_error error;
    enum muster_rc rc = muster_params_call_origin(request->source, &origin, &error);

    if (rc == MUSTER_OK &&
        (request->sequence == 0 || request->sequence > MUSTER_PARAMS_SEQUENCE_MAX))
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                              "the sequence number of a push must be from 1 to 2^47 - 1, got "
                              "%" PRIu64,
                              request->sequence);
    if (rc == MUSTER_OK)
        rc = table_find(server,
                        request->table_case == MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NAME,
                        request->table_name, &push.table, &error);
    if (rc == MUSTER_OK && kind == CALL_PUSH_PULL)
        rc = muster_params_call_has_rows(push.table, &error);
    if (rc == MUSTER_OK)
        rc = muster_params_call_push_rows(server, request, &push, &memory, &error);
    if (rc == MUSTER_OK)
        rc = frame_check(server, push.table, push.row_count, &error);
    if (rc == MUSTER_OK && kind == CALL_PUSH_PULL)
        rc = muster_params_pull_check(push.table, push.row_count, MUSTER_F32, &(size_t){0}, &error);
    if (rc != MUSTER_OK) {
        call_refuse(rpc, &error);
        muster_mem_free(&server->pool.mem, memory);
        return;
    }
    muster_params_rounds_note(server, push.table, &origin.source);
    call = call_new(rpc, kind, push.table, push.row_count);
    if (call != NULL) {
        memcpy(call->keys, push.keys, push.row_count * sizeof(call->keys[0]));
        values_narrow(&push, (size_t)push.row_count * push.table->row_elements, call->values);
    }
    muster_mem_free(&server->pool.mem, memory);
    if (call == NULL)
        return;
    call->errand.sequence = request->sequence;
    call->errand.start = start_push;
    call->clock = request->clock;
    call->as_bytes = as_bytes;
    call_hand(call, &origin);
}

void muster_params_shared_on_push(struct muster_rpc *rpc,
                                  const Muster__Params__V1__PushRequest *request)
{
    push_begin(rpc, request, CALL_PUSH, false);
}

void muster_params_shared_on_push_pull(struct muster_rpc *rpc,
                                       const Muster__Params__V1__PushPullRequest *request)
{
    if (request->push == NULL)
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "PushPull needs a push");
    else
        push_begin(rpc, request->push, CALL_PUSH_PULL, request->as_bytes);
}

static void pull_begin(struct muster_rpc *rpc, const Muster__Params__V1__PullRequest *request,
                       struct muster_params_store_table *table,
                       const struct muster_params_rows_frame *frame,
                       const struct muster_params_origin *origin)
{
    struct shared_call *call = call_new(rpc, CALL_PULL, table, frame->row_count);

    if (call == NULL)
        return;
    memcpy(call->keys, frame->keys, frame->row_count * sizeof(call->keys[0]));
    call->errand.start = start_pull;
    call->as_bytes = request->as_bytes;
    call->min_clock = request->min_clock;
    call->skip = frame->skip;
    call->element_count = frame->element_count;
    call->origin = *origin;
    if (request->min_clock > 0 && request->source != NULL)
        on_keep(&call->keep);
    call_hand(call, NULL);
}

void muster_params_shared_on_pull(struct muster_rpc *rpc,
                                  const Muster__Params__V1__PullRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct muster_params_store_table *table = NULL;
    struct muster_params_rows_frame frame;
    struct muster_params_origin origin = {.generation = 0};
    struct muster_error error;
    void *memory = NULL;
    enum muster_rc rc = table_find(
        server, request->table_case == MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME,
        request->table_name, &table, &error);

    if (rc == MUSTER_OK && request->source != NULL)
        rc = muster_params_call_origin(request->source, &origin, &error);
    if (rc == MUSTER_OK)
        rc = muster_params_call_pull_rows(server, table, request, &frame, &memory, &error);
    if (rc == MUSTER_OK)
        pull_begin(rpc, request, table, &frame, &origin);
    else
        call_refuse(rpc, &error);
    muster_mem_free(&server->pool.mem, memory);
}

void muster_params_shared_on_tick(struct muster_rpc *rpc,
                                  const Muster__Params__V1__TickRequest *request)
{
    struct muster_params_origin origin;
    struct muster_params_tick tick;
    struct shared_call *call;
    struct muster_error error;

    if (muster_params_call_tick(request, &tick, &error) != MUSTER_OK ||
        muster_params_call_origin(request->source, &origin, &error) != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    call = call_new(rpc, CALL_TICK, NULL, 0);
    if (call == NULL)
        return;
    call->tick = tick;
    call->errand.is_tick = true;
    call->errand.start = start_tick;
    call_hand(call, &origin);
}
