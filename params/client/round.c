/* Tables by round. A push of round c + 1, or a pull that must show round c, waits here until a
 * server has said that round c is closed. All servers are told so before the push or pull leaves:
 * each server hears of the end of a round before it gets anything of the next one, from whichever
 * client that comes. */
#include "params/client/client_internal.h"

#include <string.h>

#include "params/wire/frame.h"

#define CLOSINGS_KEPT 8u /* rounds; a server that was away hears of the ends of so many */

/* A message ROUND by which a server has closed a round, kept to tell the other servers. */
struct closing {
    struct muster_list node;
    uint64_t round;
    uint32_t bytes;
    _Alignas(8) uint8_t payload[];
};

#define TABLE_AT 8 /* in the payload: the number of the table, which is another at each server */

/* --- Operations that wait --- */

static bool is_range(const struct muster_params_op *op)
{
    return op->keys == NULL;
}

/* Values of a range are not collected: they stay where the program has them. */
static uint64_t op_bytes(const struct muster_params_op *op)
{
    const struct muster_params_table *table = op->table;

    if (is_range(op))
        return sizeof(*op);
    return op->count * (sizeof(uint64_t) +
                        (uint64_t)table->row_elements * muster_dtype_bytes(table->wire_dtype));
}

static void push_refuse(struct muster_params_op *op)
{
    struct muster_error error;

    muster_list_remove(&op->queued);
    muster_error_set(&error, MUSTER_OUT_OF_RANGE, "round %llu of table %s is closed; %llu is open",
                     (unsigned long long)op->clock, op->table->name,
                     (unsigned long long)op->table->round);
    muster_params_op_release(op, error.rc, &error);
}

/* A push whose number is given may be a repetition of one that counts already: its servers know. */
static uint64_t table_admit(struct muster_params_table *table)
{
    struct muster_list ops;
    uint64_t bytes = 0;

    muster_list_take_all(&ops, &table->held);
    while (!muster_list_is_empty(&ops)) { /* a callback may end others of them */
        struct muster_params_op *op =
            MUSTER_CONTAINER_OF(ops.next, struct muster_params_op, queued);

        muster_list_remove(&op->queued);
        if (op->clock > table->round) {
            bytes += op->is_push ? op_bytes(op) : 0;
            muster_list_append(&table->held, &op->queued);
        } else if (op->is_push && op->clock < table->round && op->sequence == 0 &&
                   !table->is_round_carried) {
            push_refuse(op);
        } else {
            if (!op->is_push)
                op->clock = 0; /* the server has closed the round before it gets this */
            muster_list_append(is_range(op)  ? &table->ranges
                               : op->is_push ? &table->pushes
                                             : &table->pulls,
                               &op->queued);
        }
    }
    return bytes;
}

uint64_t muster_params_rounds_admit(struct muster_params *params)
{
    uint64_t bytes = 0;

    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        if (table->is_by_round)
            bytes += table_admit(table);
    }
    return bytes;
}

bool muster_params_rounds_allow_number(const struct muster_params *params, uint64_t clock)
{
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        if (!table->is_by_round)
            continue;
        MUSTER_LIST_EACH (&table->held, op, struct muster_params_op, queued) {
            if (op->is_push && op->clock < clock)
                return false;
        }
    }
    return true;
}

bool muster_params_rounds_allow_tick(const struct muster_params *params, uint64_t clock)
{
    if (clock == MUSTER_PARAMS_CLOCK_DONE)
        return true;
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        if (table->is_by_round && clock > table->round + 1)
            return false;
    }
    return true;
}

uint64_t muster_params_table_round(const struct muster_params_table *table)
{
    return table->round;
}

/* --- Rounds that are closed --- */

static bool closing_send(struct muster_params_way *way, const struct muster_params_table *table,
                         const struct closing *closing)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                         .type = MUSTER_PARAMS_ROUND,
                                         .payload_bytes = closing->bytes};
    uint8_t payload[MUSTER_PARAMS_ROUND_BYTES_MAX];

    memcpy(payload, closing->payload, closing->bytes);
    memcpy(payload + TABLE_AT, &way->tables[table->index].number, sizeof(uint32_t));
    return muster_peer_link_send_copy(way->link, &header, payload) == MUSTER_OK;
}

static bool way_knows(const struct muster_params_way *way, const struct muster_params_table *table)
{
    return way->state == MUSTER_PARAMS_WAY_OPEN && table->index < way->table_count &&
           way->tables[table->index].is_known;
}

bool muster_params_way_tell_rounds(struct muster_params_way *way,
                                   const struct muster_params_table *table)
{
    if (!way_knows(way, table))
        return true;
    MUSTER_LIST_EACH (&table->closings, closing, struct closing, node) {
        if (!closing_send(way, table, closing))
            return false;
    }
    return true;
}

bool muster_params_way_tell_all_rounds(struct muster_params_way *way)
{
    MUSTER_LIST_EACH (&way->params->tables, table, struct muster_params_table, node) {
        if (table->is_by_round && !muster_params_way_tell_rounds(way, table))
            return false;
    }
    return true;
}

static void closing_drop_oldest(struct muster_params_table *table)
{
    struct closing *oldest = MUSTER_CONTAINER_OF(table->closings.next, struct closing, node);

    muster_list_remove(&oldest->node);
    muster_mem_free(table->params->env->mem, oldest);
}

void muster_params_rounds_forget(struct muster_params_table *table)
{
    while (!muster_list_is_empty(&table->closings))
        closing_drop_oldest(table);
}

static struct muster_params_table *table_of(struct muster_params_way *way, uint32_t number)
{
    MUSTER_LIST_EACH (&way->params->tables, table, struct muster_params_table, node) {
        if (table->is_by_round && way_knows(way, table) &&
            way->tables[table->index].number == number)
            return table;
    }
    return NULL;
}

static bool closing_keep(struct muster_params_table *table, uint64_t round, const void *payload,
                         size_t bytes)
{
    struct closing *closing = muster_mem_alloc(table->params->env->mem, sizeof(*closing) + bytes);

    if (closing == NULL)
        return false;
    closing->round = round;
    closing->bytes = (uint32_t)bytes;
    memcpy(closing->payload, payload, bytes);
    muster_list_append(&table->closings, &closing->node);
    if (round >= CLOSINGS_KEPT &&
        MUSTER_CONTAINER_OF(table->closings.next, struct closing, node)->round <=
            round - CLOSINGS_KEPT)
        closing_drop_oldest(table);
    table->round = round + 1;
    return true;
}

/* A way whose link has no memory for the message is broken: the next link begins with all closings. */
static void closing_spread(const struct muster_params_way *from, struct muster_params_table *table)
{
    const struct closing *closing = MUSTER_CONTAINER_OF(table->closings.prev, struct closing, node);
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory to send the end of a round");
    MUSTER_LIST_EACH (&from->params->ways, way, struct muster_params_way, node) {
        if (way != from && way_knows(way, table) && !closing_send(way, table, closing))
            muster_params_way_break(way, &error);
    }
}

bool muster_params_round_receive(struct muster_params_way *way, const void *payload, size_t bytes)
{
    struct muster_params *params = way->params;
    struct muster_params_table *table;
    struct muster_params_round round;
    struct muster_error error;

    if (muster_params_round_unpack(payload, bytes, &round, &error) != MUSTER_OK)
        return false;
    table = table_of(way, round.table);
    if (table == NULL || round.round < table->round)
        return true;
    if (!closing_keep(table, round.round, payload, bytes))
        return false;
    params->round_waits[0] = '\0';
    closing_spread(way, table);
    muster_task_post(&params->flush, params->env->loop);
    return true;
}
