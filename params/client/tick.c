/* Ticks: a source tells all servers how many steps it has completed, when all that it has pushed in them is
 * acknowledged. So no server that has a tick lacks a push of its steps, wherever shards have moved
 * meanwhile. */
#include "params/client/client_internal.h"

#include <math.h>

#include "params/wire/frame.h"

/* op NULL: nobody waits for the answer. */
static bool tick_send(struct muster_params_way *way, const struct muster_params_tick *tick,
                      struct muster_params_op *op)
{
    struct muster_params *params = way->params;
    struct muster_params_request *request = muster_params_request_new(
        params, NULL, MUSTER_PARAMS_REQUEST_TICK, MUSTER_PARAMS_TICK_BYTES, 1);

    if (request == NULL)
        return false;
    muster_params_tick_pack(tick, request->payload);
    request->parts[0].op = op;
    if (op != NULL)
        op->waits++;
    muster_params_request_send(request, way, params->number++);
    return true;
}

static struct muster_params_tick tick_newest(const struct muster_params *params)
{
    return (struct muster_params_tick){.clock = params->clock,
                                       .weight = params->weight,
                                       .source_count = params->options.clock_sources};
}

/* A server that is opened late, or again, gets the newest clock. A source that is done counts still in the last round
 * that it has completed: a server that is to decide about that round may have heard of neither. */
bool muster_params_way_tick(struct muster_params_way *way)
{
    const struct muster_params *params = way->params;
    const struct muster_params_tick newest = tick_newest(params);

    if (params->options.clock_sources == 0)
        return true;
    return (params->completed.clock == 0 || tick_send(way, &params->completed, NULL)) &&
           tick_send(way, &newest, NULL);
}

/* The number of the oldest push that is not acknowledged. */
static uint64_t oldest_push(const struct muster_params *params)
{
    uint64_t oldest = UINT64_MAX;

    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        MUSTER_LIST_EACH (&way->pushes, request, struct muster_params_request, node) {
            if (request->is_answered)
                continue;
            oldest = request->number < oldest ? request->number : oldest;
            break;
        }
    }
    return oldest;
}

/* All pushes that were started before a tick have their numbers by now; the tick waits for those below
 * its barrier. */
void muster_params_ticks_number(struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ticks, op, struct muster_params_op, queued) {
        if (op->barrier == 0 && muster_params_rounds_allow_number(params, op->clock) &&
            muster_params_holds_allow_number(params, op->clock) &&
            muster_params_ranges_are_numbered(params, op->order))
            op->barrier = params->sequence;
    }
}

static void op_tick(struct muster_params *params, struct muster_params_op *op)
{
    enum muster_rc rc = MUSTER_OK;
    struct muster_params_tick tick;
    struct muster_error error;

    muster_list_remove(&op->queued);
    if (op->clock > params->clock) {
        if (op->clock == MUSTER_PARAMS_CLOCK_DONE)
            params->completed = tick_newest(params);
        params->clock = op->clock;
        params->weight = op->weight;
    }
    tick = tick_newest(params);
    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                     "no memory to send the clock to the servers");
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        /* A server that leads shards decides about their rounds: it must know, also if it is away now. */
        if (way != params->nowhere && (way->was_open || way->leads) && !tick_send(way, &tick, op))
            rc = error.rc;
    }
    muster_params_op_release(op, rc, &error);
}

void muster_params_ticks_check(struct muster_params *params)
{
    uint64_t oldest;

    if (muster_list_is_empty(&params->ticks) || !params->is_ready)
        return;
    oldest = oldest_push(params);
    MUSTER_LIST_EACH_SAFE (&params->ticks, op, struct muster_params_op, queued) {
        if (op->barrier != 0 && op->barrier <= oldest &&
            muster_params_rounds_allow_tick(params, op->clock))
            op_tick(params, op);
    }
}

enum muster_rc muster_params_tick_start(struct muster_params_op *op, struct muster_params *params,
                                        uint64_t clock, uint64_t deadline_ns,
                                        muster_params_op_fn *done)
{
    return muster_params_tick_weighted_start(op, params, clock, 1, deadline_ns, done);
}

static enum muster_rc tick_check(const struct muster_params *params, uint64_t clock, double weight,
                                 struct muster_error *ret_error)
{
    if (params->options.clock_sources == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a client that ticks must be opened with clock_sources, got 0");
    if (clock < params->ticked)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "clocks must rise: this source has ticked %llu, got %llu",
                                (unsigned long long)params->ticked, (unsigned long long)clock);
    if (!isfinite(weight) || weight < 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the weight of a tick must be 0 or more and finite, got %g",
                                weight);
    return MUSTER_OK;
}

enum muster_rc muster_params_tick_weighted_start(struct muster_params_op *op,
                                                 struct muster_params *params, uint64_t clock,
                                                 double weight, uint64_t deadline_ns,
                                                 muster_params_op_fn *done)
{
    enum muster_rc rc = tick_check(params, clock, weight, &op->error);

    if (rc == MUSTER_OK)
        rc = muster_params_op_begin(op, params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    op->clock = params->ticked = clock;
    op->weight = weight;
    op->barrier = 0;
    op->order = params->range_pushes;
    muster_list_append(&params->ticks, &op->queued);
    muster_task_post(&params->flush, params->env->loop);
    return MUSTER_OK;
}
