/* A client of parameters: opening, tables, answers, closing. */
#include "params/client/stage.h"

#include <stdio.h>
#include <string.h>

#include <muster/hash.h>

#include "params/wire/hash.h"

#define POOL_KEPT_BYTES         ((size_t)64 << 20)
#define QUEUE_MAX_BYTES_DEFAULT ((uint64_t)64 << 20)

/* --- Answers --- */

static void broken_answer(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "the server at %s sent a malformed answer of type %u", way->server,
                     header->type);
    muster_params_way_break(way, &error);
}

static size_t value_bytes(const struct muster_params_table *table)
{
    return table->row_elements * muster_dtype_bytes(table->wire_dtype);
}

static size_t values_bytes(const struct muster_params_request *request)
{
    size_t rows = 0;

    if (muster_params_request_is_range(request))
        return request->range.count * muster_dtype_bytes(request->table->wire_dtype);
    for (uint32_t i = 0; i < request->part_count; i++)
        rows += request->parts[i].row_count;
    return rows * value_bytes(request->table);
}

/* A pull that is alone in its message gets its values in place. */
static void *on_frame(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_params_request *request = NULL;

    MUSTER_ASSERT(way->receiving == NULL && way->received == NULL);
    if (header->payload_bytes == 0)
        return NULL;
    if (header->type == MUSTER_PARAMS_ROWS && header->flags == 0)
        request = muster_params_request_find(way, false, header->offset, 0);
    if (request != NULL &&
        (request->kind == MUSTER_PARAMS_REQUEST_PULL ||
         request->kind == MUSTER_PARAMS_REQUEST_PULL_RANGE) &&
        header->payload_bytes == values_bytes(request) && request->part_count == 1 &&
        request->parts[0].op != NULL) {
        way->receiving = request;
        return request->parts[0].values;
    }
    way->received = muster_mem_alloc(&way->params->pool.mem, header->payload_bytes);
    if (way->received == NULL)
        broken_answer(way, header);
    return way->received;
}

static void on_lost(struct muster_params_way *way)
{
    way->receiving = NULL;
    muster_mem_free(&way->params->pool.mem, way->received);
    way->received = NULL;
    muster_params_requests_unsend(way);
}

static void memory_lacks(const struct muster_params_request *request, uint32_t refused,
                         struct muster_error *ret_error)
{
    muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                     "the server at %s has no memory for %u new rows of table %s; the other rows "
                     "are applied",
                     request->way->server, refused, request->table->name);
}

/* A forwarded push tells its owner how many rows were refused, and has no other outcome for it. */
static void refused_note(const struct muster_params_request *request, uint32_t refused,
                         struct muster_error *error)
{
    struct muster_params_op *op = request->parts[0].op;

    if (op != NULL && op->sequence != 0)
        op->refused += refused;
    else
        memory_lacks(request, refused, error);
}

static void on_acked(struct muster_params_request *request, uint32_t refused)
{
    struct muster_params *params = request->params;
    struct muster_error error = {.rc = MUSTER_OK};

    if (refused > 0)
        refused_note(request, refused, &error);
    muster_params_request_finish(request, error.rc, &error);
    muster_params_ticks_check(params);
    muster_params_close_check(params);
}

/* The caller's memory is read as long as a link has the frame: then the operation does not end yet. */
static void ack_receive(struct muster_params_way *way, const struct muster_params_ack *ack)
{
    struct muster_params_request *request =
        muster_params_request_find(way, true, ack->sequence, ack->piece);
    struct muster_error error = {.rc = MUSTER_OK};

    if (request == NULL || request->kind == MUSTER_PARAMS_REQUEST_PUSH_PULL)
        return;
    if (request->kind == MUSTER_PARAMS_REQUEST_PUSH_RANGE && request->is_sending &&
        request->slot == 0) {
        request->has_ack = true;
        request->refused = ack->rc != MUSTER_OK ? ack->refused : 0;
        return;
    }
    if (ack->rc != MUSTER_OK)
        refused_note(request, ack->refused, &error);
    muster_params_request_finish(request, error.rc, &error);
}

static void acks_receive(struct muster_params_way *way, const struct muster_frame_header *header,
                         const uint8_t *payload)
{
    if (header->payload_bytes % MUSTER_PARAMS_ACK_BYTES != 0) {
        broken_answer(way, header);
        return;
    }
    for (uint32_t i = 0; i < header->payload_bytes; i += MUSTER_PARAMS_ACK_BYTES) {
        struct muster_params_ack ack;

        muster_params_ack_unpack(payload + i, &ack);
        ack_receive(way, &ack);
    }
    muster_params_ticks_check(way->params);
    muster_params_close_check(way->params);
}

/* The values of a pull, or those behind a push. */
static void rows_receive(struct muster_params_way *way, const struct muster_frame_header *header,
                         const uint8_t *payload)
{
    bool is_push = header->flags == MUSTER_PARAMS_REFUSED_PUSH;
    struct muster_params_request *request =
        muster_params_request_find(way, is_push, header->offset, is_push ? header->chunk : 0);
    struct muster_error error = {.rc = MUSTER_OK};

    if (request == NULL)
        return;
    if ((request->kind !=
             (is_push ? MUSTER_PARAMS_REQUEST_PUSH_PULL : MUSTER_PARAMS_REQUEST_PULL) &&
         request->kind != MUSTER_PARAMS_REQUEST_PULL_RANGE) ||
        header->payload_bytes != values_bytes(request)) {
        broken_answer(way, header);
        return;
    }
    way->waits_for[0] = '\0';
    for (uint32_t i = 0; i < request->part_count; i++) {
        size_t bytes = muster_params_request_is_range(request)
                           ? header->payload_bytes
                           : request->parts[i].row_count * value_bytes(request->table);

        if (request->parts[i].op != NULL && request->parts[i].values != payload)
            memcpy(request->parts[i].values, payload, bytes);
        payload += bytes;
    }
    if (is_push && header->phase != 0)
        refused_note(request, header->phase, &error);
    muster_params_request_finish(request, error.rc, &error);
    muster_params_ticks_check(way->params);
    muster_params_close_check(way->params);
}

/* The operation that opens the table ends with the last server's answer. */
static void table_finish(struct muster_params_request *request, enum muster_rc rc,
                         const struct muster_error *error)
{
    struct muster_params_op *op = request->parts[0].op;

    request->parts[0].op = NULL;
    if (op != NULL)
        muster_params_table_release(request->table, op, rc, error);
    muster_params_request_finish(request, rc, error);
}

static void table_receive(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_params_request *request =
        muster_params_request_find(way, false, header->offset, 0);
    struct muster_params_table *table;

    if (request == NULL)
        return;
    if (request->kind != MUSTER_PARAMS_REQUEST_TABLE) {
        broken_answer(way, header);
        return;
    }
    table = request->table;
    way->tables[table->index].is_known = true;
    way->tables[table->index].number = header->phase;
    table->descriptor = header->descriptor;
    if (!muster_params_way_tell_rounds(way, table)) {
        broken_answer(way, header); /* it is asked again over the next link */
        return;
    }
    muster_params_requests_resend(way);
    muster_params_marks_send(way->params);
    table_finish(request, MUSTER_OK, NULL);
}

/* A server that joined after the program got the table, and cannot open it, cannot take its pushes: the
 * way is broken, so that the server is asked again over the next link. */
static void table_refuse(struct muster_params_way *way, struct muster_params_request *request,
                         const struct muster_error *error)
{
    struct muster_params_table *table = request->table;
    bool is_lacking = request->parts[0].op == NULL && table->is_given;
    struct muster_error lost;

    table_finish(request, error->rc, error);
    if (!is_lacking)
        return;
    way->tables[table->index].is_asked = false;
    muster_error_set(&lost, MUSTER_UNAVAILABLE, "table %s: %.180s", table->name, error->text);
    muster_params_way_break(way, &lost);
}

static void ticked_receive(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_params_request *request =
        muster_params_request_find(way, false, header->offset, 0);

    if (request == NULL)
        return;
    if (request->kind == MUSTER_PARAMS_REQUEST_TICK)
        muster_params_request_finish(request, MUSTER_OK, NULL);
    else
        broken_answer(way, header);
}

static void saved_receive(struct muster_params_way *way, const struct muster_frame_header *header,
                          const uint8_t *payload)
{
    struct muster_params_request *request =
        muster_params_request_find(way, false, header->offset, 0);

    if (request == NULL)
        return;
    if (request->kind == MUSTER_PARAMS_REQUEST_CUT)
        muster_params_cut_answer(request, payload, header->payload_bytes, NULL);
    else
        broken_answer(way, header);
}

static void refusal_receive(struct muster_params_way *way, const struct muster_frame_header *header,
                            const uint8_t *payload)
{
    struct muster_params *params = way->params;
    struct muster_params_request *request = muster_params_request_find(
        way, header->flags == MUSTER_PARAMS_REFUSED_PUSH, header->offset, header->chunk);
    struct muster_error error;

    if (request == NULL)
        return;
    muster_error_set(&error,
                     header->phase != MUSTER_OK ? (enum muster_rc)header->phase : MUSTER_UNKNOWN,
                     "%.*s", (int)header->payload_bytes, (const char *)payload);
    if (request->kind == MUSTER_PARAMS_REQUEST_TABLE)
        table_refuse(way, request, &error);
    else if (request->kind == MUSTER_PARAMS_REQUEST_CUT)
        muster_params_cut_answer(request, NULL, 0, &error);
    else
        muster_params_request_finish(request, error.rc, &error);
    muster_params_ticks_check(params);
    muster_params_close_check(params);
}

static void on_payload(struct muster_params_way *way, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params *params = way->params;
    uint8_t *received = way->received;

    way->receiving = NULL;
    way->received = NULL;
    switch (header->type) {
    case MUSTER_PARAMS_ACK:
        acks_receive(way, header, buffer);
        break;
    case MUSTER_PARAMS_ROWS:
        rows_receive(way, header, buffer);
        break;
    case MUSTER_PARAMS_TABLE_OPEN:
        table_receive(way, header);
        break;
    case MUSTER_PARAMS_REFUSED:
        refusal_receive(way, header, buffer);
        break;
    case MUSTER_PARAMS_TICKED:
        ticked_receive(way, header);
        break;
    case MUSTER_PARAMS_WAITS:
        snprintf(header->offset == 0 ? params->round_waits : way->waits_for,
                 sizeof(way->waits_for), "%.*s", (int)header->payload_bytes, (const char *)buffer);
        break;
    case MUSTER_PARAMS_CUT:
        if (!muster_params_mark_receive(params, buffer, header->payload_bytes))
            broken_answer(way, header);
        break;
    case MUSTER_PARAMS_STAGED:
        muster_params_stage_accept(way, header->offset);
        break;
    case MUSTER_PARAMS_SAVED:
        saved_receive(way, header, buffer);
        break;
    case MUSTER_PARAMS_ROUND:
        if (!muster_params_round_receive(way, buffer, header->payload_bytes))
            broken_answer(way, header);
        break;
    case MUSTER_PARAMS_MOVED: /* the map that came before it has sent the rows elsewhere already */
        break;
    default:
        broken_answer(way, header);
    }
    muster_mem_free(&params->pool.mem, received);
}

/* --- Ways --- */

static void opened_tell(struct muster_params *params, enum muster_rc rc)
{
    muster_params_fn *opened = params->opened;

    muster_timer_stop(&params->opening_deadline);
    params->opened = NULL;
    if (opened != NULL)
        opened(params, rc);
}

/* The first of the ways to primaries that is not open; NULL: all are. */
static const struct muster_params_way *way_missing(const struct muster_params *params)
{
    for (uint32_t shard = 0; shard < params->shard_count; shard++) {
        const struct muster_params_way *way = muster_params_route(params, shard);

        if (way->state != MUSTER_PARAMS_WAY_OPEN)
            return way;
    }
    return NULL;
}

/* The next sequence number of the source is known once all servers have opened it. */
static void params_look(struct muster_params *params)
{
    const struct muster_params_way *missing = way_missing(params);

    params->error = missing != NULL ? missing->error : (struct muster_error){.rc = MUSTER_OK};
    if (params->is_ready || missing != NULL)
        return;
    params->is_ready = true;
    params->position = params->sequence - 1;
    muster_task_post(&params->ask, params->env->loop);
    muster_task_post(&params->flush, params->env->loop);
    opened_tell(params, MUSTER_OK);
}

static void params_fail(struct muster_params *params, const struct muster_error *error)
{
    MUSTER_LOG(params->env, WARN, "params_refused", "server", params->options.server, "reason",
               error->text);
    params->is_failed = true;
    params->error = *error;
    muster_params_ops_fail(params, params->error.rc, &params->error);
    opened_tell(params, params->error.rc);
    muster_params_close_check(params);
}

/* Until there is a map, one seed is as good as another. */
static bool seeds_are_left(const struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way != params->nowhere && way->state != MUSTER_PARAMS_WAY_FAILED)
            return true;
    }
    return false;
}

static void on_way_failed(struct muster_params_way *way)
{
    struct muster_params *params = way->params;

    if (params->map != NULL ? !way->is_seed : !seeds_are_left(params)) {
        params_fail(params, &way->error);
        return;
    }
    if (params->map == NULL)
        params->error = way->error;
    MUSTER_LOG(params->env, WARN, "params_seed_refused", "server", way->server, "reason",
               way->error.text);
}

static void on_way_map(struct muster_params_way *way, const void *bytes, size_t size)
{
    struct muster_params *params = way->params;
    struct muster_error error;
    enum muster_rc rc = muster_params_map_take(params, bytes, size, way, &error);

    /* The map comes again over the next link. A server that sends a malformed one does not end a client
     * that has other servers. */
    if (rc == MUSTER_RESOURCE_EXHAUSTED || (rc == MUSTER_INVALID_ARGUMENT && params->map != NULL)) {
        muster_params_way_break(way, &error);
        return;
    }
    if (rc != MUSTER_OK) {
        muster_params_way_fail(way, &error);
        return;
    }
    muster_task_post(&params->look, params->env->loop); /* the way may be gone */
}

static void on_look(struct muster_task *task)
{
    struct muster_params *params = task->data;

    if (params->is_failed || params->map == NULL)
        return;
    MUSTER_LIST_EACH_SAFE (&params->ways, way, struct muster_params_way, node)
        muster_params_way_name(way, muster_params_way_is_home(way));
    muster_params_pushes_expire(params);
    params_look(params);
    muster_task_post(&params->ask, params->env->loop);
}

static void on_way_open(struct muster_params_way *way, const struct muster_params_opened *opened)
{
    struct muster_params *params = way->params;
    struct muster_error error;

    if (!params->is_ready && opened->sequence > params->sequence)
        params->sequence = opened->sequence;
    if (params->source.generation == 0)
        params->source.generation = opened->generation;
    if (params->lease_ns == 0 || opened->lease_s * MUSTER_NS_PER_S < params->lease_ns)
        params->lease_ns = opened->lease_s * MUSTER_NS_PER_S;
    /* The answers name rounds that were closed while the link was lost. */
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        if (table->is_by_round && table->index < way->table_count &&
            way->tables[table->index].is_known)
            way->tables[table->index].is_asked = false;
    }
    if (!muster_params_way_tell_all_rounds(way) || !muster_params_tables_ask(way) ||
        !muster_params_way_tick(way)) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory to open tables at %s", way->server);
        muster_params_way_break(way, &error);
        return;
    }
    muster_params_requests_resend(way);
    muster_params_seeds_drop(params);
    muster_params_marks_send(params);
    on_look(&params->look);
}

/* --- Seeds --- */

/* One address of the list, and where the next one begins; NULL: there is none. */
static const char *seed_next(const char *list, char *ret_text, size_t room)
{
    size_t length = strcspn(list, ",");

    snprintf(ret_text, room, "%.*s", (int)(length < room ? length : room - 1), list);
    return list[length] == ',' ? list + length + 1 : NULL;
}

static enum muster_rc seeds_check(const char *list, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    while (list != NULL && rc == MUSTER_OK) {
        char text[MUSTER_PARAMS_ADDRESS_BYTES];
        struct muster_address address;

        list = seed_next(list, text, sizeof(text));
        rc = muster_address_parse(text, &address, ret_error);
    }
    return rc;
}

static bool has_way_to(const struct muster_params *params, const char *server)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (strcmp(way->server, server) == 0)
            return true;
    }
    return false;
}

/* Those that no way leads to. False: no memory. */
static bool seeds_open(struct muster_params *params)
{
    const char *list = params->options.server;

    while (list != NULL) {
        char text[MUSTER_PARAMS_ADDRESS_BYTES];
        struct muster_address address;
        struct muster_params_way *way;
        struct muster_error error;

        list = seed_next(list, text, sizeof(text));
        if (has_way_to(params, text))
            continue;
        if (muster_address_parse(text, &address, &error) != MUSTER_OK)
            return false;
        way = muster_params_way_new(params, NULL, &address, text);
        if (way == NULL)
            return false;
        way->is_seed = true;
    }
    return true;
}

/* When no server of the map can be reached, those that the program has named may know a newer one. */
static void on_way_unreached(struct muster_params_way *lost)
{
    struct muster_params *params = lost->params;

    if (params->map == NULL || lost->is_seed)
        return;
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (!way->is_seed &&
            (way->state == MUSTER_PARAMS_WAY_MEETING || way->state == MUSTER_PARAMS_WAY_OPENING ||
             way->state == MUSTER_PARAMS_WAY_OPEN))
            return;
    }
    (void)seeds_open(params); /* the next attempt asks those that memory lacks for */
}

static const struct muster_params_way_events way_events = {.on_map = on_way_map,
                                                           .on_open = on_way_open,
                                                           .on_failed = on_way_failed,
                                                           .on_frame = on_frame,
                                                           .on_payload = on_payload,
                                                           .on_lost = on_lost,
                                                           .on_acked = on_acked,
                                                           .on_unreached = on_way_unreached};

/* Ask primaries, connected or not, and other servers that have been connected. */
static bool servers_ask(struct muster_params *params, bool *ret_is_whole)
{
    bool has_asked = false;

    *ret_is_whole = true;
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way == params->nowhere || !(way->leads || way->was_open))
            continue;
        has_asked |= way->leads;
        *ret_is_whole &= muster_params_tables_ask(way);
    }
    return has_asked;
}

/* Operations that open tables wait for this turn, so that all servers of the map are asked. Without a
 * primary they wait for the next map. */
static void on_ask(struct muster_task *task)
{
    struct muster_params *params = task->data;
    struct muster_error error;
    bool is_whole;

    if (!params->is_ready || params->is_failed || !servers_ask(params, &is_whole))
        return;
    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory to open a table");
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        struct muster_params_op *op = table->opening;

        if (op == NULL)
            continue;
        table->opening = NULL;
        op->opens = NULL;
        muster_params_table_release(table, op, is_whole ? MUSTER_OK : error.rc, &error);
    }
}

/* --- Opening --- */

static void params_free(struct muster_params *params)
{
    struct muster_env *env = params->env;

    MUSTER_LIST_EACH_SAFE (&params->ways, way, struct muster_params_way, node) {
        muster_params_way_hang_up(way);
        muster_params_requests_free(way);
        muster_params_way_free(way);
    }
    muster_params_cutting_drop(params);
    muster_mem_free(env->mem, params->map);
    MUSTER_LIST_EACH_SAFE (&params->tables, table, struct muster_params_table, node) {
        muster_params_rounds_forget(table);
        muster_mem_free(env->mem, table);
    }
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

/* The id of a named source is a hash of its name: each process of that name has the same. */
static void source_init(struct muster_params *params, const char *name)
{
    muster_rng_fill(params->env->rng, params->hello.incarnation.bytes,
                    sizeof(params->hello.incarnation.bytes));
    memcpy(&params->source.process, params->hello.incarnation.bytes,
           sizeof(params->source.process));
    params->source.process |= 1; /* 0: not known */
    params->source.source = params->hello.incarnation;
    if (name == NULL)
        return;
    snprintf(params->source.name, sizeof(params->source.name), "%s", name);
    params->source.source = muster_params_source_id(name);
}

static enum muster_rc options_check(const struct muster_params_options *options,
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
    return MUSTER_OK;
}

static bool nowhere_open(struct muster_params *params)
{
    params->nowhere = muster_params_way_new(params, NULL, NULL, "no server");
    if (params->nowhere == NULL)
        return false;
    muster_error_set(&params->nowhere->error, MUSTER_UNAVAILABLE,
                     "some shards have no server now");
    return true;
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
    muster_list_init(&params->ticks);
    params->options.clock_sources = options->clock_sources;
    params->options.no_host_memory = options->no_host_memory;
    muster_list_init(&params->ways);
    params->way_events = &way_events;
    muster_task_init(&params->look, on_look, params);
    muster_task_init(&params->ask, on_ask, params);
    muster_task_init(&params->flush, muster_params_on_flush, params);
    muster_timer_init(&params->deadline, muster_params_on_op_deadline, params);
    muster_timer_init(&params->opening_deadline, on_opening_deadline, params);
}

enum muster_rc muster_params_open(struct muster_env *env,
                                  const struct muster_params_options *options,
                                  muster_params_fn *opened, struct muster_params **ret_params,
                                  struct muster_error *ret_error)
{
    struct muster_params *params;
    enum muster_rc rc = options_check(options, ret_error);
    char *server;

    if (rc == MUSTER_OK)
        rc = seeds_check(options->server, ret_error);
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
    if (!nowhere_open(params) || !seeds_open(params)) {
        params_free(params);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a client");
    }
    muster_timer_start(&params->opening_deadline, env->loop, options->connect_deadline_ns);
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

uint32_t muster_params_short_shards(const struct muster_params *params)
{
    uint32_t count = 0;

    for (uint32_t shard = 0; shard < params->shard_count; shard++)
        count += params->map->shards[shard].copy_count < params->map->copies_wanted;
    return count;
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
    muster_list_init(&table->ranges);
    table->tensor = (struct muster_params_tensor){.elements = schema->tensor_elements,
                                                  .block_elements = schema->row_elements,
                                                  .dtype = schema->wire_dtype};
    muster_list_init(&table->held);
    muster_list_init(&table->closings);
    table->is_by_round = schema->is_by_round;
    table->index = params->table_count++;
    muster_params_schema_pack(schema, table->schema);
    muster_list_append(&params->tables, &table->node);
    return table;
}

enum muster_rc muster_params_table_start(struct muster_params_op *op, struct muster_params *params,
                                         const struct muster_params_schema *schema,
                                         struct muster_params_table **ret_table,
                                         uint64_t deadline_ns, muster_params_op_fn *done)
{
    struct muster_params_table *table;
    enum muster_rc rc = muster_params_schema_check(schema, &op->error);

    if (rc == MUSTER_OK && schema->is_by_round &&
        params->options.clock_sources > MUSTER_PARAMS_ROUND_SOURCES_MAX)
        rc = muster_error_set(&op->error, MUSTER_INVALID_ARGUMENT,
                              "table %s: clock_sources must be at most %u in a job with tables by "
                              "round, got %u",
                              schema->name, MUSTER_PARAMS_ROUND_SOURCES_MAX,
                              params->options.clock_sources);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_op_begin(op, params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    table = table_new(params, schema); /* without an answer it stays, unused, until close */
    if (table == NULL) {
        muster_list_remove(&op->node);
        op->params = NULL;
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    table->opening = op;
    table->ret_table = ret_table;
    op->opens = table;
    muster_task_post(&params->ask, params->env->loop);
    return MUSTER_OK;
}

/* --- Pushes and pulls --- */

static enum muster_rc rows_start(struct muster_params_op *op, struct muster_params_table *table,
                                 const struct muster_params_rows *rows, uint64_t min_clock,
                                 uint64_t deadline_ns, muster_params_op_fn *done,
                                 struct muster_list *queue)
{
    enum muster_rc rc;

    if (rows->count == 0 || rows->keys == NULL || rows->values == NULL || table->tensor.elements > 0)
        return MUSTER_INVALID_ARGUMENT;
    rc = muster_params_op_begin(op, table->params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    op->table = table;
    op->keys = rows->keys;
    op->values = rows->values;
    op->count = rows->count;
    op->is_push = queue == &table->pushes;
    op->clock = op->is_push ? table->params->ticked : min_clock;
    muster_list_append(table->is_by_round ? &table->held : queue, &op->queued);
    muster_task_post(&table->params->flush, table->params->env->loop);
    return MUSTER_OK;
}

static enum muster_rc push_start(struct muster_params_op *op, struct muster_params_table *table,
                                 const struct muster_params_rows *rows, void *ret_values,
                                 uint64_t deadline_ns, muster_params_op_fn *done)
{
    struct muster_params *params = table->params;
    uint64_t bytes = rows->count * (sizeof(uint64_t) + value_bytes(table));
    enum muster_rc rc;

    if (params->queued_bytes + params->collected_bytes + bytes > params->options.queue_max_bytes)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = rows_start(op, table, rows, 0, deadline_ns, done, &table->pushes);
    if (rc != MUSTER_OK)
        return rc;
    op->ret_values = ret_values;
    params->collected_bytes += bytes;
    return MUSTER_OK;
}

enum muster_rc muster_params_push_start(struct muster_params_op *op,
                                        struct muster_params_table *table,
                                        const struct muster_params_rows *rows, uint64_t deadline_ns,
                                        muster_params_op_fn *done)
{
    return push_start(op, table, rows, NULL, deadline_ns, done);
}

enum muster_rc muster_params_push_pull_start(struct muster_params_op *op,
                                             struct muster_params_table *table,
                                             const struct muster_params_rows *rows,
                                             void *ret_values, uint64_t deadline_ns,
                                             muster_params_op_fn *done)
{
    if (ret_values == NULL || table->is_by_round)
        return MUSTER_INVALID_ARGUMENT;
    return push_start(op, table, rows, ret_values, deadline_ns, done);
}

enum muster_rc muster_params_pull_start(struct muster_params_op *op,
                                        struct muster_params_table *table,
                                        const struct muster_params_rows *rows, uint64_t deadline_ns,
                                        muster_params_op_fn *done)
{
    return rows_start(op, table, rows, 0, deadline_ns, done, &table->pulls);
}

enum muster_rc muster_params_pull_after_start(struct muster_params_op *op,
                                              struct muster_params_table *table,
                                              const struct muster_params_rows *rows,
                                              uint64_t min_clock, uint64_t deadline_ns,
                                              muster_params_op_fn *done)
{
    return rows_start(op, table, rows, min_clock, deadline_ns, done, &table->pulls);
}

/* --- Closing --- */

static void on_closed(struct muster_task *task)
{
    struct muster_params *params = task->data;
    enum muster_rc rc =
        params->push_count == 0 ? MUSTER_OK : MUSTER_DEADLINE_EXCEEDED;
    struct muster_error error;

    muster_error_set(&error, MUSTER_CANCELLED, "the client was closed");
    muster_params_ops_fail(params, MUSTER_CANCELLED, &error);
    muster_timer_stop(&params->closing_deadline);
    muster_timer_stop(&params->deadline);
    muster_task_cancel(&params->flush);
    muster_task_cancel(&params->look);
    muster_task_cancel(&params->ask);
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
