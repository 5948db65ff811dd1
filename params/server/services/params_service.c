/* The gRPC door of a server that is alone: muster.params.v1 without Inspect, Watch and Drain. */
#include "params/server/services/params_service.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include <muster/collective.h>

#include "params/server/services/state_proto.h"
#include "params/server/services/table_proto.h"
#include "params/server/state/clock.h"
#include "params/server/state/round.h"
#include "params/server/state/hold.h"
#include "params/server/state/rows.h"

#define MEMORY_LACKS "no memory for the call"

static void call_refuse(struct muster_rpc *rpc, const struct muster_error *error)
{
    muster_rpc_finish(rpc, error->rc, error->text);
}

/* --- Open --- */

static void on_open(struct muster_rpc *rpc, const Muster__Params__V1__OpenRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    Muster__Params__V1__OpenResponse response;
    Muster__Params__V1__Source named;
    struct muster_params_source *source;
    struct muster_incarnation id;
    struct muster_error error;
    enum muster_rc rc = muster_params_call_source(request, &id, &error);

    if (server->is_shared) {
        muster_params_shared_on_open(rpc, request);
        return;
    }
    muster__params__v1__source__init(&named);
    if (rc == MUSTER_OK)
        rc = muster_params_server_source_open(server, &(struct muster_params_opener){.id = id, .is_named = true},
                                              &named.slot, &error);
    if (rc != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    source = muster_params_source_at(server->region, named.slot);
    named.generation = source->generation;
    named.id.data = id.bytes;
    named.id.len = sizeof(id.bytes);
    muster__params__v1__open_response__init(&response);
    response.source = &named;
    response.next_sequence = source->pushed + 1;
    response.shards = server->region->head->shard_count;
    (void)muster_params_v1_params_open_reply(rpc, &response);
}

/* --- Table --- */

static void on_table(struct muster_rpc *rpc, const Muster__Params__V1__TableRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct muster_params_store_table *table = NULL;
    Muster__Params__V1__TableResponse response;
    Muster__Params__V1__Schema schema;
    Muster__Params__V1__Table described;
    struct muster_error error;
    enum muster_rc rc;

    if (server->is_shared) {
        muster_params_shared_on_table(rpc, request);
        return;
    }
    if (request->schema == NULL)
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT, "Table needs a schema");
    else if (request->schema->row_elements == 0)
        rc = muster_params_server_table_find(server, request->schema->name, &table, &error);
    else
        rc = muster_params_server_table_make(server, request->schema, &table, &error);
    if (rc == MUSTER_OK && !muster_params_rounds_know(server, table))
        rc = muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, MEMORY_LACKS);
    if (rc != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    muster_params_table_describe(server, table, &described, &schema);
    muster__params__v1__table_response__init(&response);
    response.table = &described;
    (void)muster_params_v1_params_table_reply(rpc, &response);
}

/* --- Push --- */

static enum muster_rc table_pick(const struct muster_params_server *server, bool has_name,
                                 const char *name, bool has_number, uint32_t number,
                                 struct muster_params_store_table **ret_table,
                                 struct muster_error *ret_error)
{
    if (has_name)
        return muster_params_server_table_find(server, name, ret_table, ret_error);
    if (!has_number)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the call needs the name or the number of a table");
    *ret_table = muster_params_server_table(server, number);
    return *ret_table != NULL
               ? MUSTER_OK
               : muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                  "the server has no table of number %" PRIu32, number);
}

static enum muster_rc source_pick(struct muster_params_server *server,
                                  const Muster__Params__V1__PushRequest *request,
                                  struct muster_params_source **ret_source,
                                  struct muster_error *ret_error)
{
    struct muster_params_source *source;
    enum muster_rc rc = muster_params_call_source_find(server, request->source, &source, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_params_push_check(source, request->source->generation, request->sequence,
                                      ret_error);
    if (rc == MUSTER_OK && request->sequence > source->pushed + 1)
        rc = muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                              "push %" PRIu64 " of the source is due, got %" PRIu64
                              ": send one at a time, and again until it is answered",
                              source->pushed + 1, request->sequence);
    if (rc == MUSTER_OK)
        rc = muster_params_server_hold_check(server, source, ret_error);
    if (rc == MUSTER_OK)
        *ret_source = source;
    return rc;
}

/* *ret_memory is the caller's to free, also after an error. */
static enum muster_rc push_read(struct muster_params_server *server,
                                const Muster__Params__V1__PushRequest *request,
                                struct muster_params_push *ret_push, void **ret_memory,
                                struct muster_error *ret_error)
{
    enum muster_rc rc = source_pick(server, request, &ret_push->source, ret_error);

    *ret_memory = NULL;
    if (rc == MUSTER_OK)
        rc = table_pick(server,
                        request->table_case == MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NAME,
                        request->table_name,
                        request->table_case == MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NUMBER,
                        request->table_number, &ret_push->table, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    ret_push->sequence = request->sequence;
    ret_push->clock = (uint32_t)request->clock;
    return muster_params_call_push_rows(server, request, ret_push, ret_memory, ret_error);
}

/* A push whose round is closed has taken its number: callers of servers of a job, which may have applied a part of
 * it, have to number the next one anew, and nobody needs to know whether a server is alone. */
static enum muster_rc round_keep(struct muster_params_server *server,
                                 struct muster_params_push *push, uint64_t clock,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (!push->table->is_by_round)
        return MUSTER_OK;
    if (!muster_params_rounds_finish(server, push->table))
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, MEMORY_LACKS);
    rc = muster_params_rounds_keep(server, push, clock, ret_error);
    if (rc == MUSTER_OUT_OF_RANGE && push->sequence > push->source->pushed)
        MUSTER_PARAMS_STORE(&push->source->pushed, push->sequence);
    return rc;
}

static enum muster_rc push_sorted(struct muster_params_server *server,
                                  struct muster_params_push *push, uint64_t clock,
                                  struct muster_params_pushed *ret_pushed,
                                  struct muster_error *ret_error)
{
    void *memory = NULL;
    enum muster_rc rc = muster_params_call_sort(server, push, &memory);

    if (rc == MUSTER_OK)
        rc = round_keep(server, push, clock, ret_error);
    else
        muster_error_set(ret_error, rc, MEMORY_LACKS);
    if (rc == MUSTER_OK && muster_params_push_apply(server, push, ret_pushed) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, MEMORY_LACKS);
    muster_mem_free(&server->pool.mem, memory);
    return rc;
}

static void pushed_fill(const struct muster_params_push *push,
                        const struct muster_params_pushed *pushed,
                        Muster__Params__V1__PushResponse *ret_response)
{
    muster__params__v1__push_response__init(ret_response);
    ret_response->duplicate = pushed->duplicate;
    ret_response->refused = pushed->refused;
    ret_response->applied = push->row_count - pushed->duplicate - pushed->refused;
}

static void push_again(struct muster_rpc *rpc, const void *message);

static void on_push(struct muster_rpc *rpc, const Muster__Params__V1__PushRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    Muster__Params__V1__PushResponse response;
    struct muster_params_pushed pushed;
    struct muster_params_push push = {.table = NULL};
    struct muster_error error;
    void *memory;
    enum muster_rc rc;

    if (server->is_shared) {
        muster_params_shared_on_push(rpc, request);
        return;
    }
    rc = push_read(server, request, &push, &memory, &error);
    if (rc == MUSTER_OK && push.table->is_by_round) {
        const struct muster_params_awaited round = {.table = push.table,
                                                    .clock = request->clock,
                                                    .source = push.source,
                                                    .slot = request->source->slot};

        if (!muster_params_awaited_has_come(server, &round)) {
            muster_params_call_await(rpc, request, &round, push_again);
            return;
        }
    }
    if (rc == MUSTER_OK)
        rc = push_sorted(server, &push, request->clock, &pushed, &error);
    muster_mem_free(&server->pool.mem, memory);
    if (rc != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    pushed_fill(&push, &pushed, &response);
    (void)muster_params_v1_params_push_reply(rpc, &response);
}

static void push_again(struct muster_rpc *rpc, const void *message)
{
    on_push(rpc, message);
}

/* --- Pull --- */

static void pull_again(struct muster_rpc *rpc, const void *message);

/* True: the call waits, or was refused. */
static bool pull_waits(struct muster_rpc *rpc, const Muster__Params__V1__PullRequest *request,
                       const struct muster_params_store_table *table)
{
    struct muster_params_awaited clock = {.table = table, .clock = request->min_clock};
    struct muster_params_source *source = NULL;
    struct muster_error error;

    if (request->min_clock == 0 || muster_params_awaited_has_come(muster_rpc_service(rpc), &clock))
        return false;
    if (request->source != NULL &&
        muster_params_call_source_find(muster_rpc_service(rpc), request->source, &source, &error) !=
            MUSTER_OK) {
        call_refuse(rpc, &error);
        return true;
    }
    clock.source = source;
    clock.slot = source != NULL ? request->source->slot : 0;
    muster_params_call_await(rpc, request, &clock, pull_again);
    return true;
}

static void rows_reply(struct muster_rpc *rpc, const struct muster_params_store_table *table,
                       const struct muster_params_rows_frame *frame, bool as_bytes)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    size_t count = frame->element_count > 0 ? frame->element_count
                                            : (size_t)frame->row_count * table->row_elements;
    size_t bytes = count * muster_dtype_bytes((enum muster_dtype)frame->dtype);
    Muster__Params__V1__PullResponse response;
    void *values = muster_mem_alloc(&server->pool.mem, bytes);

    if (values == NULL || !muster_params_rounds_finish(server, table) ||
        (frame->element_count > 0 ? muster_params_range_read : muster_params_pull_read)(
            server, table, frame, values) != MUSTER_OK) {
        muster_mem_free(&server->pool.mem, values);
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, MEMORY_LACKS);
        return;
    }
    muster_params_call_rows(table, values, bytes, as_bytes, &response);
    (void)muster_params_v1_params_pull_reply(rpc, &response);
    muster_mem_free(&server->pool.mem, values);
}

static void on_pull(struct muster_rpc *rpc, const Muster__Params__V1__PullRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct muster_params_store_table *table = NULL;
    struct muster_params_rows_frame frame;
    struct muster_error error;
    void *memory = NULL;
    enum muster_rc rc;

    if (server->is_shared) {
        muster_params_shared_on_pull(rpc, request);
        return;
    }
    rc = table_pick(server,
                    request->table_case == MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME,
                    request->table_name,
                    request->table_case == MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NUMBER,
                    request->table_number, &table, &error);
    if (rc == MUSTER_OK)
        rc = muster_params_call_pull_rows(server, table, request, &frame, &memory, &error);
    if (rc != MUSTER_OK)
        call_refuse(rpc, &error);
    else if (!pull_waits(rpc, request, table))
        rows_reply(rpc, table, &frame, request->as_bytes);
    muster_mem_free(&server->pool.mem, memory);
}

static void pull_again(struct muster_rpc *rpc, const void *message)
{
    on_pull(rpc, message);
}

/* --- PushPull --- */

static enum muster_rc push_pull_read(struct muster_params_server *server,
                                     const Muster__Params__V1__PushPullRequest *request,
                                     struct muster_params_push *ret_push,
                                     struct muster_params_rows_frame *ret_frame, size_t *ret_bytes,
                                     struct muster_error *ret_error)
{
    void *memory = NULL;
    enum muster_rc rc;

    if (request->push == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "PushPull needs a push");
    rc = push_read(server, request->push, ret_push, &memory, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_call_has_rows(ret_push->table, ret_error);
    muster_mem_free(&server->pool.mem, memory); /* NULL: rows are in the request */
    if (rc != MUSTER_OK)
        return rc;
    *ret_frame = (struct muster_params_rows_frame){
        .keys = request->push->keys,
        .row_count = ret_push->row_count,
        .dtype = (uint8_t)(request->as_bytes ? ret_push->table->wire_dtype : MUSTER_F32)};
    return muster_params_pull_check(ret_push->table, ret_frame->row_count,
                                    (enum muster_dtype)ret_frame->dtype, ret_bytes, ret_error);
}

/* All memory is allocated before the push is applied, so that an error means that the push has not taken its
 * number. */
static enum muster_rc push_pull_apply(struct muster_params_server *server,
                                      struct muster_params_push *push,
                                      const struct muster_params_rows_frame *frame,
                                      struct muster_params_pushed *ret_pushed, void *ret_values)
{
    size_t value_count = (size_t)frame->row_count * push->table->row_elements;
    enum muster_rc rc = muster_params_pull_prepare(server, value_count);
    struct muster_error error;

    if (rc == MUSTER_OK)
        rc = push_sorted(server, push, 0, ret_pushed, &error);
    if (rc == MUSTER_OK)
        rc = muster_params_pull_read(server, push->table, frame, ret_values);
    return rc;
}

static void on_push_pull(struct muster_rpc *rpc, const Muster__Params__V1__PushPullRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    Muster__Params__V1__PushPullResponse response;
    Muster__Params__V1__PushResponse push_response;
    Muster__Params__V1__PullResponse rows_response;
    struct muster_params_push push = {.table = NULL};
    struct muster_params_pushed pushed;
    struct muster_params_rows_frame frame;
    struct muster_error error;
    size_t bytes = 0;
    void *values;

    if (!muster_params_call_both(server, rpc))
        return;
    if (server->is_shared) {
        muster_params_shared_on_push_pull(rpc, request);
        return;
    }
    if (push_pull_read(server, request, &push, &frame, &bytes, &error) != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    values = muster_mem_alloc(&server->pool.mem, bytes);
    if (values == NULL || push_pull_apply(server, &push, &frame, &pushed, values) != MUSTER_OK) {
        muster_mem_free(&server->pool.mem, values);
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, MEMORY_LACKS);
        return;
    }
    pushed_fill(&push, &pushed, &push_response);
    muster_params_call_rows(push.table, values, bytes, request->as_bytes, &rows_response);
    muster__params__v1__push_pull_response__init(&response);
    response.pushed = &push_response;
    response.rows = &rows_response;
    (void)muster_params_v1_params_push_pull_reply(rpc, &response);
    muster_mem_free(&server->pool.mem, values);
}

/* --- Tick --- */

/* The call is a sign of life, as a link is. */
static void source_show(struct muster_params_server *server, uint64_t slot)
{
    muster_params_server_clock_link(server, slot, true);
    muster_params_server_clock_link(server, slot, false);
}

static void tick_again(struct muster_rpc *rpc, const void *message);

static void on_tick(struct muster_rpc *rpc, const Muster__Params__V1__TickRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct muster_params_source *source = NULL;
    Muster__Params__V1__TickResponse response;
    Muster__Params__V1__Clocks clocks;
    struct muster_params_awaited awaited;
    struct muster_params_tick tick;
    struct muster_error error;
    enum muster_rc rc;

    if (server->is_shared) {
        muster_params_shared_on_tick(rpc, request);
        return;
    }
    rc = muster_params_call_tick(request, &tick, &error);
    if (rc == MUSTER_OK)
        rc = muster_params_call_source_find(server, request->source, &source, &error);
    if (rc == MUSTER_OK && !request->is_done && muster_params_stored_counts(source->clock) &&
        tick.clock + 1 < source->clock)
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                              "the clock of the source must not fall below %" PRIu64 ", got %" PRIu64,
                              source->clock - 1, tick.clock);
    if (rc != MUSTER_OK) {
        call_refuse(rpc, &error);
        return;
    }
    source_show(server, request->source->slot);
    awaited = (struct muster_params_awaited){
        .clock = tick.clock, .source = source, .slot = request->source->slot};
    if (!request->is_done && !muster_params_awaited_has_come(server, &awaited)) {
        muster_params_call_await(rpc, request, &awaited, tick_again);
        return;
    }
    muster_params_server_clock_tick(server, request->source->slot, &tick);
    source_show(server, request->source->slot);
    muster_params_clocks_describe(server, &clocks);
    muster__params__v1__tick_response__init(&response);
    response.clocks = &clocks;
    (void)muster_params_v1_params_tick_reply(rpc, &response);
}

static void tick_again(struct muster_rpc *rpc, const void *message)
{
    on_tick(rpc, message);
}

/* --- The service --- */

static void on_call_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    const struct muster_params_server *server = muster_rpc_service(rpc);

    if (server->is_shared)
        muster_params_shared_on_end(rpc, rc);
    else
        muster_params_call_wait_on_end(rpc);
}

enum muster_rc muster_params_service_add(struct muster_params_server *server,
                                         struct muster_rpc_server *rpc_server)
{
    static const struct muster_descriptors *const descriptors[] = {&proto_params_descriptors};
    const struct muster_params_v1_params_handlers handlers = {
        .open = {.on_request = on_open, .on_end = on_call_end},
        .table = {.on_request = on_table, .on_end = on_call_end},
        .push = {.on_request = on_push, .on_end = on_call_end},
        .pull = {.on_request = on_pull, .on_end = on_call_end},
        .push_pull = {.on_request = on_push_pull, .on_end = on_call_end},
        .tick = {.on_request = on_tick, .on_end = on_call_end},
        .watch = {.on_request = muster_params_on_watch,
                  .on_writable = muster_params_on_watch_writable,
                  .on_end = muster_params_on_watch_end},
        .inspect = {.on_request = muster_params_on_inspect, .on_end = muster_params_on_inspect_end},
        .drain = {.on_request = muster_params_on_drain, .on_end = muster_params_on_drain_end}};
    struct muster_rpc_health *health = NULL;
    enum muster_rc rc = muster_params_v1_params_service_add(rpc_server, &handlers, server);

    if (rc == MUSTER_OK)
        rc = muster_rpc_health_open(rpc_server, &health);
    if (rc == MUSTER_OK)
        rc = muster_rpc_health_set(health, "muster.params.v1.Params", MUSTER_HEALTH_SERVING);
    if (rc == MUSTER_OK)
        rc = muster_rpc_reflection_open(rpc_server, descriptors, 1);
    return rc;
}
