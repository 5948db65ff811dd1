/* Cuts at a clock. From the time when a server asks for one, pushes of that step and of later ones wait here
 * until the cut is complete. Those of the steps before leave, and so do the ticks that say that there are no
 * more of them. */
#include "params/client/client_internal.h"

#include "params/wire/frame.h"

/* Steps from here on wait; UINT64_MAX: none. The servers of a cut say the same clock. */
static uint64_t hold_clock(const struct muster_params *params)
{
    uint64_t clock = UINT64_MAX;

    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way->hold_clock != 0 && way->hold_clock < clock)
            clock = way->hold_clock;
    }
    return clock;
}

bool muster_params_holds_allow(const struct muster_params *params, uint64_t clock)
{
    uint64_t hold = hold_clock(params);

    return hold == UINT64_MAX || clock < hold;
}

static uint64_t op_bytes(const struct muster_params_op *op)
{
    const struct muster_params_table *table = op->table;

    return op->count * (sizeof(uint64_t) +
                        (uint64_t)table->row_elements * muster_dtype_bytes(table->wire_dtype));
}

static uint64_t table_admit(struct muster_params_table *table)
{
    struct muster_list ops;
    uint64_t bytes = 0;

    if (muster_list_is_empty(&table->kept) && muster_params_holds_allow(table->params, UINT64_MAX))
        return 0;
    MUSTER_LIST_EACH_SAFE (&table->pushes, op, struct muster_params_op, queued) {
        muster_list_remove(&op->queued);
        muster_list_append(&table->kept, &op->queued);
    }
    muster_list_take_all(&ops, &table->kept);
    MUSTER_LIST_EACH_SAFE (&ops, op, struct muster_params_op, queued) {
        bool is_allowed = muster_params_holds_allow(table->params, op->clock);

        muster_list_remove(&op->queued);
        muster_list_append(is_allowed ? &table->pushes : &table->kept, &op->queued);
        bytes += is_allowed ? 0 : op_bytes(op);
    }
    return bytes;
}

uint64_t muster_params_holds_admit(struct muster_params *params)
{
    uint64_t bytes = 0;

    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node)
        bytes += table_admit(table);
    return bytes;
}

bool muster_params_holds_allow_number(const struct muster_params *params, uint64_t clock)
{
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        MUSTER_LIST_EACH (&table->kept, op, struct muster_params_op, queued) {
            if (op->clock < clock)
                return false;
        }
    }
    return true;
}

void muster_params_pushed_note(struct muster_params *params, uint64_t clock)
{
    if (clock >= params->pushed)
        params->pushed = clock < UINT64_MAX ? clock + 1 : clock;
}

static void way_hold(struct muster_params_way *way, uint64_t clock)
{
    if (way->hold_clock == clock)
        return;
    way->hold_clock = clock;
    muster_task_post(&way->params->flush, way->params->env->loop);
}

bool muster_params_hold_receive(struct muster_params_way *way, const void *payload, size_t bytes)
{
    struct muster_params_hold hold;
    struct muster_error error;

    if (muster_params_hold_unpack(payload, bytes, &hold, &error) != MUSTER_OK)
        return false;
    way_hold(way, hold.clock);
    return true;
}

void muster_params_hold_drop(struct muster_params_way *way)
{
    way_hold(way, 0);
}
