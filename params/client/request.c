/* Messages that are kept until they are answered. A message is sent again as it was: the server
 * tells by its number and its runs what of it is applied already. */
#include "params/client/client_internal.h"

#include <string.h>

#include "params/client/stage.h"
#include "params/wire/hash.h"

#define SMALL_BYTES (64u << 10)

static size_t parts_offset(size_t payload_bytes)
{
    return (sizeof(struct muster_params_request) + payload_bytes + 15) / 16 * 16;
}

struct muster_params_request *muster_params_request_new(struct muster_params *params,
                                                        struct muster_params_table *table,
                                                        enum muster_params_request_kind kind,
                                                        size_t payload_bytes, uint32_t part_count)
{
    static const uint8_t types[] = {[MUSTER_PARAMS_REQUEST_TABLE] = MUSTER_PARAMS_TABLE,
                                    [MUSTER_PARAMS_REQUEST_PUSH] = MUSTER_PARAMS_PUSH,
                                    [MUSTER_PARAMS_REQUEST_PULL] = MUSTER_PARAMS_PULL,
                                    [MUSTER_PARAMS_REQUEST_PUSH_PULL] = MUSTER_PARAMS_PUSH_PULL,
                                    [MUSTER_PARAMS_REQUEST_TICK] = MUSTER_PARAMS_TICK,
                                    [MUSTER_PARAMS_REQUEST_CUT] = MUSTER_PARAMS_CUT,
                                    [MUSTER_PARAMS_REQUEST_HOLD] = MUSTER_PARAMS_HOLD,
                                    [MUSTER_PARAMS_REQUEST_PUSH_RANGE] = MUSTER_PARAMS_PUSH_RANGE,
                                    [MUSTER_PARAMS_REQUEST_PULL_RANGE] = MUSTER_PARAMS_PULL_RANGE};
    size_t bytes = parts_offset(payload_bytes) + part_count * sizeof(struct muster_params_part);
    struct muster_params_request *request = muster_mem_alloc(&params->pool.mem, bytes);

    MUSTER_ASSERT(payload_bytes <= MUSTER_FRAME_PAYLOAD_MAX);
    if (request == NULL)
        return NULL;
    memset(request, 0, sizeof(*request));
    request->params = params;
    request->table = table;
    request->kind = kind;
    request->part_count = part_count;
    request->parts = (void *)((uint8_t *)request + parts_offset(payload_bytes));
    request->frame.data = request;
    request->frame.payload = request->payload;
    request->frame.header =
        (struct muster_frame_header){.channel = MUSTER_FRAME_PARAMS,
                                     .type = types[kind],
                                     .payload_bytes = (uint32_t)payload_bytes,
                                     .descriptor = table != NULL ? table->descriptor : 0};
    memset(request->parts, 0, part_count * sizeof(struct muster_params_part));
    return request;
}

uint32_t muster_params_range_shard(const struct muster_params_table *table, uint64_t offset)
{
    uint64_t key = muster_params_block_key(table->seed,
                                           muster_params_range_block(&table->tensor, offset));

    return muster_params_shard_of(muster_params_hash(table->seed, key), table->params->shard_count);
}

struct muster_params_request *muster_params_range_request_new(
    struct muster_params_table *table, enum muster_params_request_kind kind,
    const struct muster_params_range_frame *range, void *values)
{
    bool is_push = kind == MUSTER_PARAMS_REQUEST_PUSH_RANGE;
    struct muster_params_request *request = muster_params_request_new(
        table->params, table, kind,
        is_push ? MUSTER_PARAMS_STAGED_BYTES : MUSTER_PARAMS_PULL_RANGE_BYTES, 1);
    size_t bytes = range->count * muster_dtype_bytes(table->wire_dtype);

    if (request == NULL)
        return NULL;
    request->range = *range;
    request->shard = muster_params_range_shard(table, range->offset);
    request->parts[0].values = values;
    muster_params_range_pack(range, &request->frame.header, request->payload);
    if (is_push) {
        request->frame.payload = values;
        request->frame.header.payload_bytes = (uint32_t)bytes;
    }
    table->params->range_bytes += bytes;
    table->range_pushes += is_push;
    return request;
}

static void request_free(struct muster_params_request *request)
{
    if (muster_params_request_is_push(request) && request->way != NULL)
        request->params->queued_bytes -= request->row_bytes;
    muster_mem_free(&request->params->pool.mem, request->copy);
    muster_mem_free(&request->params->pool.mem, request);
}

/* CANCELLED: the link is gone; the request stays for the next one. */
static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct muster_params_request *request = frame->data;

    MUSTER_ASSERT(request->is_sending);
    request->is_sending = false;
    if (request->is_answered)
        request_free(request);
    else if (request->has_ack && rc == MUSTER_OK)
        request->params->way_events->on_acked(request, request->refused);
}

static bool request_has_rows(const struct muster_params_request *request)
{
    return request->kind != MUSTER_PARAMS_REQUEST_TABLE &&
           !muster_params_request_kind_is_wide(request->kind);
}

/* Fill in the slot and the number of the table as the way's server counts them. False: the number is not
 * known yet. */
static bool request_is_addressed(struct muster_params_request *request)
{
    const struct muster_params_way *way = request->way;
    uint32_t index;

    if (!request_has_rows(request))
        return true;
    index = request->table->index;
    if (index >= way->table_count || !way->tables[index].is_known)
        return false;
    if (muster_params_request_is_range(request)) {
        request->frame.header.phase = way->tables[index].number;
        return true;
    }
    muster_params_rows_address(request->payload,
                               muster_params_request_is_push(request) ? way->slot : 0,
                               way->tables[index].number);
    return true;
}

/* Servers may have forgotten that they have applied it. */
static bool is_expired(const struct muster_params_request *request)
{
    const struct muster_params *params = request->params;

    return params->lease_ns != 0 && params->source.name[0] == '\0' &&
           muster_params_request_is_push(request) && request->first_ns != 0 &&
           muster_loop_now_ns(params->env->loop) - request->first_ns > params->lease_ns / 2;
}

static bool request_is_pull(const struct muster_params_request *request)
{
    return request->kind == MUSTER_PARAMS_REQUEST_PULL ||
           request->kind == MUSTER_PARAMS_REQUEST_PULL_RANGE;
}

/* --- Credit: what the server says that it holds for this client --- */

static uint64_t values_bytes(const struct muster_params_request *request)
{
    uint64_t rows = 0;

    if (request->kind == MUSTER_PARAMS_REQUEST_PULL_RANGE)
        return request->range.count * muster_dtype_bytes(request->table->wire_dtype);
    if (request->kind != MUSTER_PARAMS_REQUEST_PULL &&
        request->kind != MUSTER_PARAMS_REQUEST_PUSH_PULL)
        return 0;
    for (uint32_t i = 0; i < request->part_count; i++)
        rows += request->parts[i].row_count;
    return rows * muster_params_value_bytes(request->table);
}

/* A message may be larger than the credit where none of its kind is outstanding. Pushes and pulls have halves of
 * their own: a pull may wait for a clock that comes with a push. While a server waits for a mark nothing waits
 * here: all that has a number must leave before the mark. */
static bool credit_take(struct muster_params_request *request)
{
    struct muster_params_way *way = request->way;
    uint64_t *outstanding = &way->outstanding[request_is_pull(request)];
    uint64_t cost;

    if (!request_has_rows(request))
        return true;
    cost = MUSTER_FRAME_HEADER_BYTES + request->frame.header.payload_bytes + values_bytes(request);
    if (way->credit != 0 && *outstanding != 0 && *outstanding + cost > way->credit / 2 &&
        request->params->mark_wanted <= request->params->marked)
        return false;
    request->cost = cost;
    *outstanding += cost;
    return true;
}

static void credit_return(struct muster_params_request *request)
{
    if (request->way != NULL)
        request->way->outstanding[request_is_pull(request)] -= request->cost;
    request->cost = 0;
}

/* Small pulls pass what is queued on the link, where none of it is a push to their table. Pulls of a table by
 * round stay after the ends of rounds. */
static bool request_passes(const struct muster_params_request *request)
{
    const struct muster_list *pushes = &request->way->pushes;

    return request->kind == MUSTER_PARAMS_REQUEST_PULL && request->cost <= SMALL_BYTES &&
           !request->table->is_by_round &&
           (muster_list_is_empty(pushes) ||
            request->barrier <
                MUSTER_CONTAINER_OF(pushes->next, struct muster_params_request, node)->number);
}

/* False: the request waits for the link, for credit, or for the number of its table. */
static bool request_transmit(struct muster_params_request *request)
{
    struct muster_params_way *way = request->way;

    if (request->is_sent || request->is_answered)
        return true;
    if (way->state != MUSTER_PARAMS_WAY_OPEN || !request_is_addressed(request))
        return false;
    MUSTER_ASSERT(!request->is_sending);
    if (is_expired(request)) { /* it ends in a turn of its own, and stops no others */
        muster_task_post(&request->params->look, request->params->env->loop);
        return true;
    }
    if (!credit_take(request))
        return false;
    request->frame.priority = request_passes(request);
    if (request->kind == MUSTER_PARAMS_REQUEST_PUSH_RANGE)
        muster_params_stage_put(request);
    request->has_ack = false;
    request->is_sent = request->is_sending = true;
    if (request->first_ns == 0)
        request->first_ns = muster_loop_now_ns(request->params->env->loop);
    else if (request->kind == MUSTER_PARAMS_REQUEST_CUT)
        request->frame.header.flags = MUSTER_PARAMS_CUT_AGAIN;
    muster_params_way_watch(way);
    if (muster_peer_link_send(&request->frame, way->link, on_sent) != MUSTER_OK)
        request->is_sending = false; /* the link is down, and says so next */
    return true;
}

/* Pushes are sent in the order of their numbers, also across tables: a server that has had a higher
 * number for a shard takes a lower one for applied. */
static void pushes_transmit(struct muster_params_way *way)
{
    way->is_behind = false;
    MUSTER_LIST_EACH (&way->pushes, request, struct muster_params_request, node) {
        if (!request_transmit(request)) {
            way->is_behind = true;
            way->behind = request->number;
            return;
        }
    }
}

/* Pulls wait behind the pushes to their tables: they show what the same program has pushed before. They wait for
 * credit in their order, so that large ones get theirs, too. A tick waits for its pushes by itself. The hold of a cut
 * that is begun again must come before the end of the one before, which waits for nothing. */
static void request_advance(struct muster_params_request *request)
{
    struct muster_params_way *way = request->way;

    if (!request_is_pull(request)) {
        if (!way->is_behind || request->kind == MUSTER_PARAMS_REQUEST_TABLE ||
            request->kind == MUSTER_PARAMS_REQUEST_TICK ||
            request->kind == MUSTER_PARAMS_REQUEST_HOLD)
            (void)request_transmit(request);
    } else if (!way->is_pull_behind && (!way->is_behind || request->barrier < way->behind)) {
        way->is_pull_behind = !request_transmit(request) &&
                              way->state == MUSTER_PARAMS_WAY_OPEN &&
                              request_is_addressed(request);
    }
}

static void requests_transmit(struct muster_params_way *way)
{
    way->is_pull_behind = false;
    MUSTER_LIST_EACH (&way->requests, request, struct muster_params_request, node)
        request_advance(request);
}

/* Numbers rise within a list. The search begins at the end, where most requests belong. */
static void list_insert(struct muster_list *list, struct muster_params_request *request)
{
    struct muster_list *after = list->prev;

    while (after != list &&
           MUSTER_CONTAINER_OF(after, struct muster_params_request, node)->number > request->number)
        after = after->prev;
    muster_list_prepend(after, &request->node);
}

void muster_params_request_send(struct muster_params_request *request,
                                struct muster_params_way *way, uint64_t number)
{
    struct muster_params *params = request->params;
    bool is_push = muster_params_request_is_push(request);

    request->way = way;
    request->number = number;
    request->frame.header.offset = number;
    if (request_has_rows(request))
        request->frame.header.epoch = params->map->epoch;
    list_insert(is_push ? &way->pushes : &way->requests, request);
    if (!is_push) {
        request->barrier = request->table != NULL ? request->table->pushed : 0;
        request_advance(request);
        return;
    }
    params->queued_bytes += request->row_bytes;
    params->push_count++;
    if (number > request->table->pushed)
        request->table->pushed = number;
    if (way->is_behind && number < way->behind)
        way->behind = number;
    if (way->is_behind || request_transmit(request))
        return;
    way->is_behind = true;
    way->behind = number;
}

void muster_params_requests_resend(struct muster_params_way *way)
{
    pushes_transmit(way);
    requests_transmit(way);
}

void muster_params_requests_unsend(struct muster_params_way *way)
{
    MUSTER_LIST_EACH (&way->requests, request, struct muster_params_request, node) {
        request->is_sent = false;
        credit_return(request);
    }
    MUSTER_LIST_EACH (&way->pushes, request, struct muster_params_request, node) {
        request->is_sent = false;
        credit_return(request);
        muster_params_stage_take(request);
    }
    muster_params_stage_drop(way);
}

void muster_params_requests_go_on(struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way->state == MUSTER_PARAMS_WAY_OPEN && (way->is_behind || way->is_pull_behind))
            muster_params_requests_resend(way);
    }
}

struct muster_params_request *muster_params_request_find(const struct muster_params_way *way,
                                                         bool is_push, uint64_t number,
                                                         uint32_t piece)
{
    const struct muster_list *list = is_push ? &way->pushes : &way->requests;

    MUSTER_LIST_EACH (list, request, struct muster_params_request, node)
        if (request->number == number && request->frame.header.chunk == piece &&
            !request->is_answered)
            return request;
    return NULL;
}

static void request_leave(struct muster_params_request *request)
{
    MUSTER_ASSERT(request->is_answered);
    credit_return(request);
    if (request->way->is_behind || request->way->is_pull_behind)
        muster_task_post(&request->params->flush, request->params->env->loop);
    if (muster_params_request_is_push(request))
        request->params->push_count--;
    if (muster_params_request_is_range(request)) {
        muster_params_stage_take(request);
        request->table->range_pushes -= muster_params_request_is_push(request);
        request->params->range_bytes -= request->range.count * muster_dtype_bytes(request->table->wire_dtype);
        muster_task_post(&request->params->flush, request->params->env->loop);
    }
    muster_list_remove(&request->node);
    if (!request->is_sending)
        request_free(request);
}

/* The request stays in its list until the last callback has returned, so that an operation that a
 * callback cancels is found there. */
void muster_params_request_finish(struct muster_params_request *request, enum muster_rc rc,
                                  const struct muster_error *error)
{
    MUSTER_ASSERT(!request->is_answered);
    request->is_answered = true;
    for (uint32_t i = 0; i < request->part_count; i++) {
        struct muster_params_op *op = request->parts[i].op;

        request->parts[i].op = NULL;
        if (op != NULL)
            muster_params_op_release(op, rc, error);
    }
    request_leave(request);
}

void muster_params_request_drop(struct muster_params_request *request)
{
    struct muster_params_way *way = request->way;
    struct muster_error error;

    MUSTER_ASSERT(!request->is_answered);
    request->is_answered = true;
    if (way->receiving == request) {
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "a shard moved while an answer with its rows was being received");
        muster_params_way_break(way, &error);
    }
    request_leave(request);
}

void muster_params_request_take_back(struct muster_params_request *request)
{
    struct muster_error error;

    if (request->way->link != NULL && (request->slot > 0 ? request->is_sent : request->is_sending)) {
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "a push to tensor %s was taken back while it was being sent",
                         request->table->name);
        muster_params_way_break(request->way, &error);
    }
    muster_params_stage_take(request);
    MUSTER_ASSERT(!request->is_sending);
}

/* A piece that has left may count, and is repeated until it is answered; without memory for that it is given up, and
 * the next push to the shard is as its first. */
static void range_forget(struct muster_params_request *request)
{
    struct muster_params *params = request->params;
    size_t bytes = request->range.count * muster_dtype_bytes(request->table->wire_dtype);

    if (request->is_answered || request->copy != NULL)
        return;
    if (request->slot == 0)
        muster_params_request_take_back(request);
    request->copy = muster_mem_alloc(&params->pool.mem, bytes);
    if (request->copy != NULL) {
        memcpy(request->copy, request->parts[0].values, bytes);
        if (request->slot == 0)
            request->frame.payload = request->copy;
        return;
    }
    muster_params_request_take_back(request);
    muster_params_shard_renew(params, request->shard);
    muster_params_request_drop(request);
}

static bool list_forget(struct muster_list *list, const struct muster_params_op *op,
                        const struct muster_params_request *receiving)
{
    bool is_receiving = false;

    MUSTER_LIST_EACH_SAFE (list, request, struct muster_params_request, node) {
        for (uint32_t i = 0; i < request->part_count; i++) {
            if (request->parts[i].op != op)
                continue;
            request->parts[i].op = NULL;
            is_receiving |= request == receiving;
            if (request->kind == MUSTER_PARAMS_REQUEST_PUSH_RANGE)
                range_forget(request);
        }
    }
    return is_receiving;
}

void muster_params_requests_forget(struct muster_params *params, struct muster_params_op *op)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "an operation ended while its answer was being received");
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        (void)list_forget(&way->pushes, op, NULL);
        if (list_forget(&way->requests, op, way->receiving))
            muster_params_way_break(way, &error);
    }
}

static bool list_has_op(const struct muster_list *list, const struct muster_params_op *op)
{
    MUSTER_LIST_EACH (list, request, struct muster_params_request, node) {
        for (uint32_t i = 0; i < request->part_count; i++) {
            if (request->parts[i].op == op)
                return true;
        }
    }
    return false;
}

static bool list_starves(const struct muster_list *list, const struct muster_params_op *op)
{
    MUSTER_LIST_EACH (list, request, struct muster_params_request, node) {
        for (uint32_t i = 0; i < request->part_count; i++) {
            if (request->parts[i].op == op && request_has_rows(request) && !request->is_sent)
                return request_is_addressed(request);
        }
    }
    return false;
}

bool muster_params_way_starves(const struct muster_params_way *way,
                               const struct muster_params_op *op)
{
    return way->state == MUSTER_PARAMS_WAY_OPEN && way->credit != 0 &&
           (list_starves(&way->pushes, op) || list_starves(&way->requests, op));
}

bool muster_params_way_has_op(const struct muster_params_way *way,
                              const struct muster_params_op *op)
{
    return list_has_op(&way->pushes, op) || list_has_op(&way->requests, op);
}

static void list_free(struct muster_list *list)
{
    MUSTER_LIST_EACH_SAFE (list, request, struct muster_params_request, node) {
        MUSTER_ASSERT(!request->is_sending);
        muster_list_remove(&request->node);
        request_free(request);
    }
}

void muster_params_requests_free(struct muster_params_way *way)
{
    list_free(&way->pushes);
    list_free(&way->requests);
}

static struct muster_params_request *expired_find(const struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        MUSTER_LIST_EACH (&way->pushes, request, struct muster_params_request, node) {
            if (!request->is_sent && !request->is_answered && is_expired(request))
                return request;
        }
    }
    return NULL;
}

void muster_params_pushes_expire(struct muster_params *params)
{
    struct muster_params_request *request;
    struct muster_error error;

    while ((request = expired_find(params)) != NULL) {
        muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED,
                         "the server at %s has not answered for %.0f s: the push may be applied, "
                         "and is not sent again",
                         request->way->server, (double)params->lease_ns / 2 / MUSTER_NS_PER_S);
        muster_params_request_finish(request, error.rc, &error);
    }
}
