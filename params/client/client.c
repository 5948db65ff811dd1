/* A client of parameters: opening, tables, answers, closing. */
#include "params/client/client_internal.h"

#include <stdio.h>
#include <string.h>

#include <muster/hash.h>

#include "params/wire/hash.h"

#define POOL_KEPT_BYTES         ((size_t)64 << 20)
#define QUEUE_MAX_BYTES_DEFAULT ((uint64_t)64 << 20)

/* --- Answers --- */

static void broken_answer(struct muster_params *params, const struct muster_frame_header *header)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "the server at %s sent a malformed answer of type %u", params->options.server,
                     header->type);
    muster_params_way_break(params, &error);
}

static size_t value_bytes(const struct muster_params_table *table)
{
    return table->row_elements * muster_dtype_bytes(table->wire_dtype);
}

static size_t values_bytes(const struct muster_params_request *request)
{
    size_t rows = 0;

    for (uint32_t i = 0; i < request->part_count; i++)
        rows += request->parts[i].row_count;
    return rows * value_bytes(request->table);
}

/* The values of a pull that is alone in its message arrive where they belong. */
static void *on_frame(struct muster_params *params, const struct muster_frame_header *header)
{
    struct muster_params_request *request = NULL;

    MUSTER_ASSERT(params->receiving == NULL && params->received == NULL);
    if (header->payload_bytes == 0)
        return NULL;
    if (header->type == MUSTER_PARAMS_ROWS)
        request = muster_params_request_find(params, false, header->offset);
    if (request != NULL && request->kind == MUSTER_PARAMS_REQUEST_PULL &&
        header->payload_bytes == values_bytes(request) && request->part_count == 1 &&
        request->parts[0].op != NULL) {
        params->receiving = request;
        return request->parts[0].values;
    }
    params->received = muster_mem_alloc(&params->pool.mem, header->payload_bytes);
    if (params->received == NULL)
        broken_answer(params, header);
    return params->received;
}

static void on_lost(struct muster_params *params)
{
    params->receiving = NULL;
    muster_mem_free(&params->pool.mem, params->received);
    params->received = NULL;
}

static void ack_receive(struct muster_params *params, const struct muster_params_ack *ack)
{
    struct muster_params_request *request =
        muster_params_request_find(params, true, ack->sequence);
    struct muster_error error = {.rc = MUSTER_OK};

    if (request == NULL)
        return;
    if (ack->rc != MUSTER_OK)
        muster_error_set(&error, (enum muster_rc)ack->rc,
                         "the server at %s has no memory for %u new rows of table %s; the other "
                         "rows are applied",
                         params->options.server, ack->refused, request->table->name);
    muster_params_request_finish(request, error.rc, &error);
}

static void acks_receive(struct muster_params *params, const struct muster_frame_header *header,
                         const uint8_t *payload)
{
    if (header->payload_bytes % MUSTER_PARAMS_ACK_BYTES != 0) {
        broken_answer(params, header);
        return;
    }
    for (uint32_t i = 0; i < header->payload_bytes; i += MUSTER_PARAMS_ACK_BYTES) {
        struct muster_params_ack ack;

        muster_params_ack_unpack(payload + i, &ack);
        ack_receive(params, &ack);
    }
    muster_params_close_check(params);
}

static void rows_receive(struct muster_params *params, const struct muster_frame_header *header,
                         const uint8_t *payload)
{
    struct muster_params_request *request =
        muster_params_request_find(params, false, header->offset);

    if (request == NULL)
        return;
    if (request->kind != MUSTER_PARAMS_REQUEST_PULL ||
        header->payload_bytes != values_bytes(request)) {
        broken_answer(params, header);
        return;
    }
    for (uint32_t i = 0; i < request->part_count; i++) {
        size_t bytes = request->parts[i].row_count * value_bytes(request->table);

        if (request->parts[i].op != NULL && request->parts[i].values != payload)
            memcpy(request->parts[i].values, payload, bytes);
        payload += bytes;
    }
    muster_params_request_finish(request, MUSTER_OK, NULL);
}

static void table_receive(struct muster_params *params, const struct muster_frame_header *header)
{
    struct muster_params_request *request =
        muster_params_request_find(params, false, header->offset);

    if (request == NULL)
        return;
    if (request->kind != MUSTER_PARAMS_REQUEST_TABLE) {
        broken_answer(params, header);
        return;
    }
    request->table->number = header->phase;
    request->table->descriptor = header->descriptor;
    if (request->parts[0].op != NULL)
        *(struct muster_params_table **)request->parts[0].values = request->table;
    muster_params_request_finish(request, MUSTER_OK, NULL);
}

static void refusal_receive(struct muster_params *params, const struct muster_frame_header *header,
                            const uint8_t *payload)
{
    struct muster_params_request *request =
        muster_params_request_find(params, header->flags == MUSTER_PARAMS_REFUSED_PUSH,
                                   header->offset);
    struct muster_error error;

    if (request == NULL)
        return;
    muster_error_set(&error,
                     header->phase != MUSTER_OK ? (enum muster_rc)header->phase : MUSTER_UNKNOWN,
                     "%.*s", (int)header->payload_bytes, (const char *)payload);
    muster_params_request_finish(request, error.rc, &error);
    muster_params_close_check(params);
}

static void on_payload(struct muster_params *params, const struct muster_frame_header *header,
                       void *buffer)
{
    uint8_t *received = params->received;

    params->receiving = NULL;
    params->received = NULL;
    switch (header->type) {
    case MUSTER_PARAMS_ACK:
        acks_receive(params, header, buffer);
        break;
    case MUSTER_PARAMS_ROWS:
        rows_receive(params, header, buffer);
        break;
    case MUSTER_PARAMS_TABLE_OPEN:
        table_receive(params, header);
        break;
    case MUSTER_PARAMS_REFUSED:
        refusal_receive(params, header, buffer);
        break;
    default:
        broken_answer(params, header);
    }
    muster_mem_free(&params->pool.mem, received);
}

/* --- The way --- */

static void opened_tell(struct muster_params *params, enum muster_rc rc)
{
    muster_params_fn *opened = params->opened;

    muster_timer_stop(&params->opening_deadline);
    params->opened = NULL;
    if (opened != NULL)
        opened(params, rc);
}

static void on_way_open(struct muster_params *params)
{
    muster_params_requests_resend(params);
    muster_task_post(&params->flush, params->env->loop);
    opened_tell(params, MUSTER_OK);
}

static void on_way_failed(struct muster_params *params)
{
    MUSTER_LOG(params->env, WARN, "params_refused", "server", params->options.server, "reason",
               params->error.text);
    muster_params_ops_fail(params, params->error.rc, &params->error);
    opened_tell(params, params->error.rc);
    muster_params_close_check(params);
}

static const struct muster_params_way_events way_events = {.on_open = on_way_open,
                                                           .on_failed = on_way_failed,
                                                           .on_frame = on_frame,
                                                           .on_payload = on_payload,
                                                           .on_lost = on_lost};

/* --- Opening --- */

static void params_free(struct muster_params *params)
{
    struct muster_env *env = params->env;

    muster_params_requests_free(params);
    MUSTER_LIST_EACH_SAFE (&params->tables, table, struct muster_params_table, node)
        muster_mem_free(env->mem, table);
    muster_mem_pool_fini(&params->pool);
    muster_mem_free(env->mem, (char *)(uintptr_t)params->options.server);
    muster_mem_free(env->mem, params);
}

static void on_opening_deadline(struct muster_timer *timer)
{
    struct muster_params *params = timer->data;

    if (params->error.rc == MUSTER_OK)
        muster_error_set(&params->error, MUSTER_DEADLINE_EXCEEDED,
                         "no answer from the server at %s in time", params->options.server);
    opened_tell(params, params->error.rc);
}

/* A named source has the id that its name makes. */
static void source_init(struct muster_params *params, const char *name)
{
    muster_rng_fill(params->env->rng, params->hello.incarnation.bytes,
                    sizeof(params->hello.incarnation.bytes));
    params->source.source = params->hello.incarnation;
    if (name == NULL)
        return;
    snprintf(params->source.name, sizeof(params->source.name), "%s", name);
    params->source.source = muster_params_source_id(name);
}

static enum muster_rc options_check(const struct muster_params_options *options,
                                    struct muster_address *ret_address,
                                    struct muster_error *ret_error)
{
    if (options->server == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "options->server must be HOST:PORT of a server of parameters");
    if (options->source != NULL && (options->source[0] == '\0' ||
                                    strlen(options->source) >= MUSTER_PARAMS_NAME_BYTES))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "options->source must have 1 to %u bytes, got %zu",
                                MUSTER_PARAMS_NAME_BYTES - 1, strlen(options->source));
    if (options->job != NULL && strlen(options->job) >= MUSTER_JOB_NAME_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "options->job must have at most %u bytes, got %zu",
                                MUSTER_JOB_NAME_BYTES - 1, strlen(options->job));
    return muster_address_parse(options->server, ret_address, ret_error);
}

static void params_init(struct muster_params *params, struct muster_env *env,
                        const struct muster_params_options *options, muster_params_fn *opened)
{
    params->env = env;
    params->data = options->data;
    params->opened = opened;
    params->options.queue_max_bytes =
        options->queue_max_bytes > 0 ? options->queue_max_bytes : QUEUE_MAX_BYTES_DEFAULT;
    params->hello.version = MUSTER_PEER_VERSION;
    params->hello.purpose = MUSTER_LINK_PARAMS;
    snprintf(params->hello.job, sizeof(params->hello.job), "%s",
             options->job != NULL ? options->job : "");
    source_init(params, options->source);
    params->sequence = params->number = 1;
    muster_mem_pool_init(&params->pool, env->mem, POOL_KEPT_BYTES);
    muster_list_init(&params->tables);
    muster_list_init(&params->ops);
    muster_list_init(&params->pushes);
    muster_list_init(&params->requests);
    muster_task_init(&params->flush, muster_params_on_flush, params);
    muster_timer_init(&params->deadline, muster_params_on_op_deadline, params);
    muster_timer_init(&params->opening_deadline, on_opening_deadline, params);
}

enum muster_rc muster_params_open(struct muster_env *env,
                                  const struct muster_params_options *options,
                                  muster_params_fn *opened, struct muster_params **ret_params,
                                  struct muster_error *ret_error)
{
    struct muster_address address;
    struct muster_params *params;
    enum muster_rc rc = options_check(options, &address, ret_error);
    char *server;

    if (rc != MUSTER_OK)
        return rc;
    params = muster_mem_alloc_zero(env->mem, 1, sizeof(*params));
    server = muster_mem_strdup(env->mem, options->server);
    if (params == NULL || server == NULL) {
        muster_mem_free(env->mem, params);
        muster_mem_free(env->mem, server);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a client");
    }
    params_init(params, env, options, opened);
    params->options.server = server;
    params->address = address;
    muster_timer_start(&params->opening_deadline, env->loop, options->connect_deadline_ns);
    muster_params_way_start(params, &way_events);
    *ret_params = params;
    return MUSTER_OK;
}

void *muster_params_data(const struct muster_params *params)
{
    return params->data;
}

const struct muster_error *muster_params_error(const struct muster_params *params)
{
    return &params->error;
}

uint64_t muster_params_source_position(const struct muster_params *params)
{
    return params->position;
}

/* --- Tables --- */

/* In a turn of its own: opened may be called within muster_params_open's turn, never within it. */
static struct muster_params_table *table_new(struct muster_params *params,
                                             const struct muster_params_schema *schema)
{
    struct muster_params_table *table =
        muster_mem_alloc_zero(params->env->mem, 1, sizeof(*table));

    if (table == NULL)
        return NULL;
    table->params = params;
    snprintf(table->name, sizeof(table->name), "%s", schema->name);
    table->row_elements = schema->row_elements;
    table->wire_dtype = schema->wire_dtype;
    table->seed = muster_params_hash_seed(table->name);
    muster_list_init(&table->pushes);
    muster_list_init(&table->pulls);
    muster_list_append(&params->tables, &table->node);
    return table;
}

enum muster_rc muster_params_table_start(struct muster_params_op *op, struct muster_params *params,
                                         const struct muster_params_schema *schema,
                                         struct muster_params_table **ret_table,
                                         uint64_t deadline_ns, muster_params_op_fn *done)
{
    struct muster_params_request *request = NULL;
    struct muster_params_table *table;
    enum muster_rc rc = muster_params_schema_check(schema, &op->error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_op_begin(op, params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    table = table_new(params, schema); /* without an answer it stays, unused, until close */
    if (table != NULL)
        request = muster_params_request_new(params, table, MUSTER_PARAMS_REQUEST_TABLE,
                                            MUSTER_PARAMS_SCHEMA_BYTES, 1);
    if (request == NULL) {
        muster_list_remove(&op->node);
        op->params = NULL;
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    muster_params_schema_pack(schema, request->payload);
    request->parts[0] = (struct muster_params_part){.op = op, .values = ret_table};
    muster_params_request_send(request);
    return MUSTER_OK;
}

/* --- Pushes and pulls --- */

static enum muster_rc rows_start(struct muster_params_op *op, struct muster_params_table *table,
                                 const struct muster_params_rows *rows, uint64_t deadline_ns,
                                 muster_params_op_fn *done, struct muster_list *queue)
{
    enum muster_rc rc;

    if (rows->count == 0 || rows->keys == NULL || rows->values == NULL)
        return MUSTER_INVALID_ARGUMENT;
    rc = muster_params_op_begin(op, table->params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    op->table = table;
    op->keys = rows->keys;
    op->values = rows->values;
    op->count = rows->count;
    op->clock = 0;
    op->is_push = queue == &table->pushes;
    muster_list_append(queue, &op->queued);
    muster_task_post(&table->params->flush, table->params->env->loop);
    return MUSTER_OK;
}

enum muster_rc muster_params_push_start(struct muster_params_op *op,
                                        struct muster_params_table *table,
                                        const struct muster_params_rows *rows, uint64_t deadline_ns,
                                        muster_params_op_fn *done)
{
    struct muster_params *params = table->params;
    uint64_t bytes = rows->count * (sizeof(uint64_t) + value_bytes(table));
    enum muster_rc rc;

    if (params->queued_bytes + params->collected_bytes + bytes > params->options.queue_max_bytes)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = rows_start(op, table, rows, deadline_ns, done, &table->pushes);
    if (rc == MUSTER_OK)
        params->collected_bytes += bytes;
    return rc;
}

enum muster_rc muster_params_pull_start(struct muster_params_op *op,
                                        struct muster_params_table *table,
                                        const struct muster_params_rows *rows, uint64_t deadline_ns,
                                        muster_params_op_fn *done)
{
    return rows_start(op, table, rows, deadline_ns, done, &table->pulls);
}

/* --- Closing --- */

static void on_closed(struct muster_task *task)
{
    struct muster_params *params = task->data;
    enum muster_rc rc =
        muster_list_is_empty(&params->pushes) ? MUSTER_OK : MUSTER_DEADLINE_EXCEEDED;
    struct muster_error error;

    muster_error_set(&error, MUSTER_CANCELLED, "the client was closed");
    muster_params_ops_fail(params, MUSTER_CANCELLED, &error);
    muster_timer_stop(&params->closing_deadline);
    muster_timer_stop(&params->deadline);
    muster_task_cancel(&params->flush);
    muster_params_way_stop(params);
    if (params->closed != NULL)
        params->closed(params, rc);
    params_free(params);
}

static void on_closing_deadline(struct muster_timer *timer)
{
    struct muster_params *params = timer->data;

    muster_task_post(&params->tell, params->env->loop);
}

void muster_params_close(struct muster_params *params, uint64_t deadline_ns,
                         muster_params_fn *closed)
{
    MUSTER_ASSERT(!params->is_closing);
    params->is_closing = true;
    params->opened = NULL;
    params->closed = closed;
    muster_timer_stop(&params->opening_deadline);
    muster_task_init(&params->tell, on_closed, params);
    muster_timer_init(&params->closing_deadline, on_closing_deadline, params);
    muster_timer_start(&params->closing_deadline, params->env->loop, deadline_ns);
    MUSTER_LIST_EACH (&params->ops, op, struct muster_params_op, node)
        if (!op->is_push)
            muster_params_op_cancel(op);
    muster_params_close_check(params);
}
