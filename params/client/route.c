/* Which server gets which rows. A new map sends messages whose shards have moved to other ways: rows of
 * a run stay together and in their order, and messages keep their sequence numbers, so that servers
 * tell what they have applied already. */
#include "params/client/client_internal.h"

#include <stdio.h>
#include <string.h>

#include "params/wire/hash.h"

struct muster_params_way *muster_params_route(const struct muster_params *params, uint32_t shard)
{
    const struct muster_params_map_shard *entry = &params->map->shards[shard];

    return entry->copy_count > 0 ? params->routes[entry->copies[0]] : params->nowhere;
}

bool muster_params_way_is_home(const struct muster_params_way *way)
{
    const struct muster_params *params = way->params;

    return params->map != NULL &&
           muster_params_route(params, muster_params_source_home(&params->source.source,
                                                                 params->shard_count)) == way;
}

/* --- Tables --- */

static bool tables_grow(struct muster_params_way *way)
{
    struct muster_params *params = way->params;
    uint32_t count = params->table_count;
    struct muster_params_way_table *tables;

    if (way->table_count >= count)
        return true;
    tables = muster_mem_realloc(params->env->mem, way->tables, count * sizeof(*tables));
    if (tables == NULL)
        return false;
    memset(&tables[way->table_count], 0, (count - way->table_count) * sizeof(*tables));
    way->tables = tables;
    way->table_count = count;
    return true;
}

/* It was asked when no operation waited for the answer. */
static void question_join(struct muster_params_way *way, struct muster_params_table *table)
{
    MUSTER_LIST_EACH (&way->requests, request, struct muster_params_request, node) {
        if (request->kind != MUSTER_PARAMS_REQUEST_TABLE || request->table != table ||
            request->is_answered || request->parts[0].op != NULL)
            continue;
        request->parts[0].op = table->opening;
        table->opening->waits++;
    }
}

bool muster_params_tables_ask(struct muster_params_way *way)
{
    struct muster_params *params = way->params;

    if (!tables_grow(way))
        return false;
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        struct muster_params_request *request;

        if (way->tables[table->index].is_asked) {
            if (table->opening != NULL)
                question_join(way, table);
            continue;
        }
        request = muster_params_request_new(params, table, MUSTER_PARAMS_REQUEST_TABLE,
                                            MUSTER_PARAMS_SCHEMA_BYTES, 1);
        if (request == NULL)
            return false;
        memcpy(request->payload, table->schema, MUSTER_PARAMS_SCHEMA_BYTES);
        if (table->opening != NULL) {
            request->parts[0] = (struct muster_params_part){.op = table->opening};
            table->opening->waits++;
        }
        way->tables[table->index].is_asked = true;
        muster_params_request_send(request, way, params->number++);
    }
    return true;
}

void muster_params_table_release(struct muster_params_table *table, struct muster_params_op *op,
                                 enum muster_rc rc, const struct muster_error *error)
{
    if (op->waits == 1 && rc == MUSTER_OK && op->rc == MUSTER_OK) {
        *table->ret_table = table;
        table->is_given = true;
    }
    muster_params_op_release(op, rc, error);
}

/* --- Messages whose shards have moved --- */

static void request_view(const struct muster_params_request *request,
                         struct muster_params_rows_frame *ret_frame)
{
    bool has_runs = muster_params_request_is_push(request);

    muster_params_rows_view(request->payload, has_runs, ret_frame);
}

static uint32_t key_shard(const struct muster_params_request *request, uint64_t key)
{
    return muster_params_shard_of(muster_params_hash(request->table->seed, key),
                                  request->params->shard_count);
}

/* The check that the server makes, too: the message went to the present primary of the shard, which has
 * been primary since the map by which the message was routed. */
static bool shard_has_stayed(const struct muster_params_request *request, uint32_t shard)
{
    const struct muster_params *params = request->params;

    return muster_params_route(params, shard) == request->way &&
           params->map->shards[shard].since <= request->frame.header.epoch;
}

static bool request_has_stayed(const struct muster_params_request *request)
{
    struct muster_params_rows_frame frame;

    if (request->kind == MUSTER_PARAMS_REQUEST_TABLE ||
        muster_params_request_kind_is_wide(request->kind))
        return true;
    if (muster_params_request_is_range(request))
        return shard_has_stayed(request, request->shard);
    request_view(request, &frame);
    for (uint32_t i = 0; i < frame.run_count; i++) {
        if (!shard_has_stayed(request, muster_params_run_shard(&frame.runs[i])))
            return false;
    }
    for (uint32_t i = 0; request->kind == MUSTER_PARAMS_REQUEST_PULL && i < frame.row_count; i++) {
        if (!shard_has_stayed(request, key_shard(request, frame.keys[i])))
            return false;
    }
    return true;
}

/* The message in which the source came to the shard first was given up: the next one to it is the first. */
static struct muster_params_run run_renew(struct muster_params *params, struct muster_params_run run)
{
    if (muster_params_shard_is_new(params, muster_params_run_shard(&run)))
        run.shard |= MUSTER_PARAMS_RUN_FIRST;
    return run;
}

/* The runs of a push that this server leads now, in a message of the same sequence. NULL: no memory. */
static struct muster_params_request *push_piece(const struct muster_params_request *request,
                                                const struct muster_params_rows_frame *frame,
                                                const struct muster_params_way *way)
{
    struct muster_params *params = request->params;
    const struct muster_params_table *table = request->table;
    size_t value_bytes = table->row_elements * muster_dtype_bytes(table->wire_dtype);
    bool has_row_parts = request->kind == MUSTER_PARAMS_REQUEST_PUSH_PULL;
    struct muster_params_rows_frame cut = *frame;
    struct muster_params_request *piece;
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;
    size_t from = 0, to = 0;

    cut.run_count = 0;
    cut.row_count = 0;
    for (uint32_t i = 0; i < frame->run_count; i++) {
        if (muster_params_route(params, muster_params_run_shard(&frame->runs[i])) != way)
            continue;
        cut.run_count++;
        cut.row_count += frame->runs[i].rows;
    }
    piece =
        muster_params_request_new(params, request->table, request->kind,
                                  muster_params_rows_bytes(cut.run_count, cut.row_count,
                                                           table->row_elements, table->wire_dtype),
                                  has_row_parts ? cut.row_count : request->part_count);
    if (piece == NULL)
        return NULL;
    piece->row_bytes = cut.row_count * (sizeof(uint64_t) + value_bytes);
    muster_params_rows_pack(&cut, piece->payload, &runs, &keys, &values);
    for (uint32_t i = 0; i < frame->run_count; i++) {
        const struct muster_params_run *run = &frame->runs[i];

        if (muster_params_route(params, muster_params_run_shard(run)) == way) {
            *runs++ = run_renew(params, *run);
            memcpy(keys + to, frame->keys + from, run->rows * sizeof(*keys));
            memcpy((uint8_t *)values + to * value_bytes,
                   (const uint8_t *)frame->values + from * value_bytes, run->rows * value_bytes);
            if (has_row_parts)
                memcpy(piece->parts + to, request->parts + from, run->rows * sizeof(*piece->parts));
            to += run->rows;
        }
        from += run->rows;
    }
    if (++params->piece == 0)
        params->piece = 1;
    piece->frame.header.chunk = params->piece;
    if (!has_row_parts)
        memcpy(piece->parts, request->parts, request->part_count * sizeof(*piece->parts));
    for (uint32_t i = 0; i < piece->part_count; i++) {
        if (piece->parts[i].op != NULL)
            piece->parts[i].op->waits++;
    }
    return piece;
}

/* The rows of a pull that this server leads now, each a part of its own. NULL: no memory. */
static struct muster_params_request *pull_piece(const struct muster_params_request *request,
                                                const struct muster_params_rows_frame *frame,
                                                const struct muster_params_way *way)
{
    struct muster_params *params = request->params;
    const struct muster_params_table *table = request->table;
    size_t value_bytes = table->row_elements * muster_dtype_bytes(table->wire_dtype);
    struct muster_params_rows_frame cut = *frame;
    struct muster_params_request *piece;
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;
    uint32_t row = 0, to = 0;

    cut.row_count = 0;
    for (uint32_t i = 0; i < frame->row_count; i++)
        cut.row_count += muster_params_route(params, key_shard(request, frame->keys[i])) == way;
    piece = muster_params_request_new(
        params, request->table, MUSTER_PARAMS_REQUEST_PULL,
        muster_params_rows_bytes(0, cut.row_count, 0, table->wire_dtype), cut.row_count);
    if (piece == NULL)
        return NULL;
    muster_params_rows_pack(&cut, piece->payload, &runs, &keys, &values);
    for (uint32_t i = 0; i < request->part_count; i++) {
        const struct muster_params_part *part = &request->parts[i];

        for (uint32_t j = 0; j < part->row_count; j++, row++) {
            if (muster_params_route(params, key_shard(request, frame->keys[row])) != way)
                continue;
            keys[to] = frame->keys[row];
            piece->parts[to++] =
                (struct muster_params_part){.op = part->op,
                                            .row_count = 1,
                                            .values = (uint8_t *)part->values + j * value_bytes};
            if (part->op != NULL)
                part->op->waits++;
        }
    }
    return piece;
}

/* The request for the server that leads the shard now takes the operation and the copy. NULL: no memory. */
static struct muster_params_request *range_piece(struct muster_params_request *request)
{
    struct muster_params *params = request->params;
    struct muster_params_request *again;

    if (muster_params_request_is_push(request))
        request->range.is_first |= muster_params_shard_is_new(params, request->shard);
    again =
        muster_params_range_request_new(request->table, request->kind, &request->range,
                                        request->parts[0].values);

    muster_params_request_take_back(request);
    if (again == NULL)
        return NULL;
    again->copy = request->copy;
    again->frame.payload = request->copy != NULL ? request->copy : again->frame.payload;
    request->copy = NULL;
    again->parts[0].op = request->parts[0].op;
    if (again->parts[0].op != NULL)
        again->parts[0].op->waits++;
    if (muster_params_request_is_push(again)) {
        if (++params->piece == 0)
            params->piece = 1;
        again->frame.header.chunk = params->piece;
    }
    return again;
}

static bool way_gets_rows(const struct muster_params_request *request,
                          const struct muster_params_rows_frame *frame,
                          const struct muster_params_way *way)
{
    const struct muster_params *params = request->params;

    for (uint32_t i = 0; i < frame->run_count; i++) {
        if (muster_params_route(params, muster_params_run_shard(&frame->runs[i])) == way)
            return true;
    }
    for (uint32_t i = 0; request->kind == MUSTER_PARAMS_REQUEST_PULL && i < frame->row_count; i++) {
        if (muster_params_route(params, key_shard(request, frame->keys[i])) == way)
            return true;
    }
    return false;
}

/* Nobody may have heard of the source there, and the client marks no other push to these shards. */
static void firsts_give_up(const struct muster_params_request *request,
                           const struct muster_params_way *way)
{
    struct muster_params *params = request->params;
    struct muster_params_rows_frame frame;

    if (muster_params_request_is_range(request)) {
        if (request->range.is_first)
            muster_params_shard_renew(params, request->shard);
        return;
    }
    request_view(request, &frame);
    for (uint32_t i = 0; i < frame.run_count; i++) {
        uint32_t shard = muster_params_run_shard(&frame.runs[i]);

        if ((frame.runs[i].shard & MUSTER_PARAMS_RUN_FIRST) != 0 &&
            muster_params_route(params, shard) == way)
            muster_params_shard_renew(params, shard);
    }
}

/* piece NULL: no memory. */
static void piece_send(const struct muster_params_request *request,
                       struct muster_params_request *piece, struct muster_params_way *way,
                       struct muster_error *error)
{
    if (piece == NULL) {
        muster_error_set(error, MUSTER_RESOURCE_EXHAUSTED,
                         "no memory to send rows of table %s to the server that has them now",
                         request->table->name);
        if (muster_params_request_is_push(request))
            firsts_give_up(request, way);
    } else {
        piece->first_ns = request->first_ns;
        muster_params_request_send(piece, way,
                                   muster_params_request_is_push(request)
                                       ? request->number
                                       : request->params->number++);
    }
}

static void rows_scatter(struct muster_params_request *request, struct muster_error *error)
{
    struct muster_params *params = request->params;
    bool is_push = muster_params_request_is_push(request);
    struct muster_params_rows_frame frame;

    request_view(request, &frame);
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way_gets_rows(request, &frame, way))
            piece_send(request,
                       is_push ? push_piece(request, &frame, way)
                               : pull_piece(request, &frame, way),
                       way, error);
    }
}

/* Send the rows of the request again, in one message for each server that leads some of them; the
 * operations wait for all of these messages. */
static void request_scatter(struct muster_params_request *request)
{
    struct muster_error error = {.rc = MUSTER_OK};

    if (muster_params_request_is_range(request))
        piece_send(request, range_piece(request),
                   muster_params_route(request->params, request->shard), &error);
    else
        rows_scatter(request, &error);
    for (uint32_t i = 0; i < request->part_count; i++) {
        struct muster_params_op *op = request->parts[i].op;

        request->parts[i].op = NULL;
        if (op != NULL)
            muster_params_op_release(op, error.rc, &error);
    }
}

/* request_scatter puts new messages into the same list, so the ones to scatter are taken out first. */
static void list_scatter(struct muster_list *list)
{
    struct muster_list moved;

    muster_list_init(&moved);
    MUSTER_LIST_EACH_SAFE (list, request, struct muster_params_request, node) {
        if (request->is_answered || request_has_stayed(request))
            continue;
        muster_list_remove(&request->node);
        muster_list_append(&moved, &request->node);
    }
    MUSTER_LIST_EACH_SAFE (&moved, request, struct muster_params_request, node) {
        request_scatter(request);
        muster_params_request_drop(request);
    }
}

/* --- The map --- */

/* A way that has failed is left out: a seed that refused the client is tried anew as a server of the map. */
static struct muster_params_way *way_find(const struct muster_params *params,
                                          const struct muster_incarnation *id)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way != params->nowhere && way->state != MUSTER_PARAMS_WAY_FAILED &&
            muster_incarnation_is_equal(&way->id, id))
            return way;
    }
    return NULL;
}

/* A seed that has not answered yet may be one of the map's servers. */
static struct muster_params_way *seed_find(const struct muster_params *params,
                                           const struct muster_params_map_server *server)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way != params->nowhere && way->state != MUSTER_PARAMS_WAY_FAILED &&
            muster_incarnation_is_zero(&way->id) && strcmp(way->server, server->address) == 0) {
            way->id = server->id;
            return way;
        }
    }
    return NULL;
}

/* A server that is alone tells of itself, and stays where it was found: its map has no address, and got the way's. */
static bool way_is_at(const struct muster_params_way *way, const char *address)
{
    return strncmp(way->server, address, MUSTER_PARAMS_ADDRESS_BYTES - 1) == 0;
}

/* NULL: no memory. Rows for a server whose address cannot be parsed wait for another map. */
static struct muster_params_way *way_make(struct muster_params *params,
                                          const struct muster_params_map_server *server)
{
    struct muster_params_way *way = way_find(params, &server->id);
    struct muster_endpoint endpoint;
    struct muster_error error;

    if (way == NULL)
        way = seed_find(params, server);
    if (way != NULL)
        way->is_seed = false;
    if (way != NULL && way_is_at(way, server->address))
        return way;
    if (muster_endpoint_parse(server->address, 0, &endpoint, &error) == MUSTER_OK) {
        if (way != NULL) { /* its next link goes there */
            way->endpoint = endpoint;
            snprintf(way->server, sizeof(way->server), "%s", server->address);
            return way;
        }
        return muster_params_way_new(params, &server->id, &endpoint, server->address);
    }
    MUSTER_LOG(params->env, ERROR, "params_server_not_reached", "server", server->address);
    return way != NULL ? way : params->nowhere;
}

/* False: no memory. Ways made so far stay for the next attempt. */
static bool routes_make(struct muster_params *params, const struct muster_params_map *map,
                        struct muster_params_way *ret_routes[MUSTER_PARAMS_SERVERS_MAX])
{
    for (uint32_t i = 0; i < map->server_count; i++) {
        ret_routes[i] = way_make(params, &map->servers[i]);
        if (ret_routes[i] == NULL)
            return false;
    }
    return true;
}

static bool way_is_routed(const struct muster_params_way *way)
{
    const struct muster_params *params = way->params;

    for (uint32_t i = 0; i < params->map->server_count; i++) {
        if (params->routes[i] == way)
            return true;
    }
    return way == params->nowhere;
}

/* The request asked a server that has left the map. The servers that come instead are asked, and the
 * operation waits for at least one of them. */
static void table_ask_others(struct muster_params_request *request)
{
    struct muster_params_table *table = request->table;
    struct muster_params_op *op = request->parts[0].op;

    request->parts[0].op = NULL;
    if (op == NULL)
        return;
    if (table->opening == op) {
        MUSTER_ASSERT(op->waits > 1);
        op->waits--;
        return;
    }
    table->opening = op;
    op->opens = table;
    muster_task_post(&request->params->ask, request->params->env->loop);
}

static void requests_end(struct muster_params_way *way)
{
    while (!muster_list_is_empty(&way->requests)) {
        struct muster_params_request *request =
            MUSTER_CONTAINER_OF(way->requests.next, struct muster_params_request, node);
        struct muster_error gone;

        if (request->kind == MUSTER_PARAMS_REQUEST_CUT ||
            request->kind == MUSTER_PARAMS_REQUEST_HOLD) {
            muster_error_set(&gone, MUSTER_UNAVAILABLE, "it has left the map amid the cut");
            muster_params_cut_answer(request, NULL, 0, &gone);
            continue;
        }
        if (request->kind ==
            MUSTER_PARAMS_REQUEST_TABLE) /* a clock is told to the servers that are left */
            table_ask_others(request);
        muster_params_request_finish(request, MUSTER_OK, NULL);
    }
}

/* Pushes and pulls have moved to other ways by now: the way carries only requests for tables and ticks. */
static void way_drop(struct muster_params_way *way)
{
    requests_end(way);
    muster_params_way_free(way);
}

static void ways_drop(struct muster_params *params)
{
    MUSTER_LIST_EACH_SAFE (&params->ways, way, struct muster_params_way, node) {
        if (!way_is_routed(way))
            way_drop(way);
    }
}

void muster_params_seeds_drop(struct muster_params *params)
{
    MUSTER_LIST_EACH_SAFE (&params->ways, way, struct muster_params_way, node) {
        if (way->is_seed)
            way_drop(way);
    }
}

static void leaders_find(struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node)
        way->leads = false;
    params->only = muster_params_route(params, 0);
    for (uint32_t shard = 0; shard < params->shard_count; shard++) {
        struct muster_params_way *way = muster_params_route(params, shard);

        way->leads = true;
        if (way != params->only)
            params->only = NULL;
    }
}

/* The home of the source has moved while the source was being opened there for the first time. The old
 * home's answer would have another generation than the new home's, so it is not waited for. */
static void home_leave(struct muster_params *params)
{
    struct muster_error error;

    if (params->source.generation != 0)
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "another server opens this source now");
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way->state == MUSTER_PARAMS_WAY_OPENING && !muster_params_way_is_home(way))
            muster_params_way_break(way, &error);
    }
}

/* A server that leads a shard now told of it when another one did, and has got pushes of an older process from
 * that one since: numbers that this process must not use. It is asked again. */
static void openings_leave(struct muster_params *params)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "shards have moved while the source was opened");
    for (uint32_t shard = 0; shard < params->shard_count && !params->is_ready; shard++) {
        struct muster_params_way *way = muster_params_route(params, shard);

        if ((way->state == MUSTER_PARAMS_WAY_OPENING || way->state == MUSTER_PARAMS_WAY_OPEN) &&
            params->map->shards[shard].since > way->map_number)
            muster_params_way_break(way, &error);
    }
}

static void map_follow(struct muster_params *params)
{
    leaders_find(params);
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        list_scatter(&way->pushes);
        list_scatter(&way->requests);
    }
    ways_drop(params);
    home_leave(params);
    openings_leave(params);
    MUSTER_LIST_EACH_SAFE (&params->ways, way, struct muster_params_way, node)
        muster_params_way_name(way, muster_params_way_is_home(way));
}

enum muster_rc muster_params_map_take(struct muster_params *params, const void *bytes, size_t size,
                                      struct muster_params_way *from,
                                      struct muster_error *ret_error)
{
    struct muster_params_way *routes[MUSTER_PARAMS_SERVERS_MAX] = {NULL};
    struct muster_params_map *map = NULL;
    bool is_alone = false;
    enum muster_rc rc = muster_params_map_unpack(params->env->mem, bytes, size, &map, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (params->map != NULL && map->epoch <= params->map->epoch) {
        muster_mem_free(params->env->mem, map);
        if (from->is_seed)
            way_drop(from);
        return MUSTER_OK;
    }
    if (params->map != NULL && map->shard_count != params->shard_count) {
        muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                         "the servers have %u shards, and had %u before: their memory is lost",
                         map->shard_count, params->shard_count);
        muster_mem_free(params->env->mem, map);
        return MUSTER_FAILED_PRECONDITION;
    }
    for (uint32_t i = 0; i < map->server_count; i++) {
        if (map->servers[i].address[0] != '\0')
            continue;
        is_alone = true; /* it tells of itself, and is where it was found */
        snprintf(map->servers[i].address, sizeof(map->servers[i].address), "%.*s",
                 (int)sizeof(map->servers[i].address) - 1, from->server);
    }
    if (!routes_make(params, map, routes)) {
        muster_mem_free(params->env->mem, map);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for the connections to the servers");
    }
    memcpy(params->routes, routes, sizeof(routes));
    muster_mem_free(params->env->mem, params->map);
    params->map = map;
    params->is_alone = is_alone;
    params->shard_count = map->shard_count;
    map_follow(params);
    return MUSTER_OK;
}
