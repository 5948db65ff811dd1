/* Answers of servers, and whose operations they end. */
#include "params/client/stage.h"

#include <stdio.h>
#include <string.h>

static void broken_answer(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE,
                     "the server at %s sent a malformed answer of type %u", way->server,
                     header->type);
    muster_params_way_break(way, &error);
}

static size_t values_bytes(const struct muster_params_request *request)
{
    size_t rows = 0;

    if (muster_params_request_is_range(request))
        return request->range.count * muster_dtype_bytes(request->table->wire_dtype);
    for (uint32_t i = 0; i < request->part_count; i++)
        rows += request->parts[i].row_count;
    return rows * muster_params_value_bytes(request->table);
}

/* A pull that is alone in its message gets its values in place. */
void *muster_params_answer_on_frame(struct muster_params_way *way,
                                    const struct muster_frame_header *header)
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

void muster_params_answer_on_lost(struct muster_params_way *way)
{
    way->receiving = NULL;
    muster_mem_free(&way->params->pool.mem, way->received);
    way->received = NULL;
    muster_params_hold_drop(way);
    muster_params_requests_unsend(way);
}

static void memory_lacks(const struct muster_params_request *request, uint32_t refused,
                         struct muster_error *ret_error)
{
    muster_error_set(
        ret_error, MUSTER_RESOURCE_EXHAUSTED,
        "the server at %s has no memory for %u or more new rows of table %s; the other "
        "rows are applied; start servers with a higher --memory-max",
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

void muster_params_answer_on_acked(struct muster_params_request *request, uint32_t refused)
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

/* The values of a pull, or those after a push. */
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
        size_t bytes =
            muster_params_request_is_range(request)
                ? header->payload_bytes
                : request->parts[i].row_count * muster_params_value_bytes(request->table);

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

static void held_receive(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_params_request *request =
        muster_params_request_find(way, false, header->offset, 0);

    if (request == NULL)
        return;
    if (request->kind == MUSTER_PARAMS_REQUEST_HOLD)
        muster_params_cut_answer(request, NULL, 0, NULL);
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
    else if (request->kind == MUSTER_PARAMS_REQUEST_CUT ||
             request->kind == MUSTER_PARAMS_REQUEST_HOLD)
        muster_params_cut_answer(request, NULL, 0, &error);
    else
        muster_params_request_finish(request, error.rc, &error);
    muster_params_ticks_check(params);
    muster_params_close_check(params);
}

void muster_params_answer_on_payload(struct muster_params_way *way,
                                     const struct muster_frame_header *header, void *buffer)
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
        snprintf(header->offset == 0 ? params->round_waits : way->waits_for, sizeof(way->waits_for),
                 "%.*s", (int)header->payload_bytes, (const char *)buffer);
        break;
    case MUSTER_PARAMS_CUT:
        if (!muster_params_mark_receive(params, buffer, header->payload_bytes))
            broken_answer(way, header);
        break;
    case MUSTER_PARAMS_HOLD:
        if (!muster_params_hold_receive(way, buffer, header->payload_bytes))
            broken_answer(way, header);
        break;
    case MUSTER_PARAMS_HELD:
        held_receive(way, header);
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
