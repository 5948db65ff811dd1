/* Operations that end before their answers come: deadlines, cancellation, a client that closes. */
#include "params/client/client_internal.h"

/* End the operation without waiting for its messages, queue or round. */
static void op_abandon(struct muster_params_op *op, enum muster_rc rc,
                       const struct muster_error *error)
{
    muster_params_requests_forget(op->params, op);
    muster_params_cutting_abandon(op->params, op);
    muster_params_op_note(op, rc, error);
    muster_params_op_end(op);
}

/* A server for which the operation waits: one that is not connected, if there is one. */
static const struct muster_params_way *op_way(const struct muster_params_op *op)
{
    const struct muster_params_way *found = NULL;

    MUSTER_LIST_EACH (&op->params->ways, way, struct muster_params_way, node) {
        if ((found == NULL || found->state == MUSTER_PARAMS_WAY_OPEN) &&
            muster_params_way_has_op(way, op))
            found = way;
    }
    return found;
}

enum muster_rc muster_params_way_describe(const struct muster_params_way *way, enum muster_rc rc,
                                          struct muster_error *ret_error)
{
    uint64_t away_ns = muster_loop_now_ns(way->params->env->loop) - way->since_ns;
    const char *remedy = muster_params_way_remedy(way);

    return muster_error_set(
        ret_error, rc, "no connection to the server at %s for %.3f s: %.*s%s", way->server,
        (double)away_ns / MUSTER_NS_PER_S, remedy[0] == '\0' ? 160 : 100,
        way->error.rc != MUSTER_OK ? way->error.text : "it has not answered yet", remedy);
}

static void deadline_describe(const struct muster_params_op *op, struct muster_error *ret_error)
{
    const struct muster_params *params = op->params;
    const struct muster_params_way *way = op_way(op);

    if (muster_params_cutting_describe(op, ret_error))
        return;
    if (way != NULL && way == params->nowhere)
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "some of the rows have no server that can be reached (map %llu)",
                         (unsigned long long)params->map->epoch);
    else if (way != NULL && way->state != MUSTER_PARAMS_WAY_OPEN)
        muster_params_way_describe(way, MUSTER_DEADLINE_EXCEEDED, ret_error);
    else if (way != NULL && muster_params_way_starves(way, op))
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "the server at %s has not answered %llu bytes of this client, and takes "
                         "no more before (its credit is %llu bytes)",
                         way->server,
                         (unsigned long long)(way->outstanding[0] + way->outstanding[1]),
                         (unsigned long long)way->credit);
    else if (way != NULL && way->waits_for[0] != '\0' && !op->is_push)
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED, "%s", way->waits_for);
    else if (way == NULL && op->is_push && !muster_params_holds_allow(params, op->clock))
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "a cut at a clock waits for sources that are slower");
    else if (way == NULL && op->table != NULL && op->table->is_by_round &&
             op->clock > op->table->round)
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "round %llu of table %s is not closed%s%.170s",
                         (unsigned long long)op->table->round, op->table->name,
                         params->round_waits[0] != '\0' ? ": " : "", params->round_waits);
    else if (way != NULL || params->error.rc == MUSTER_OK)
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "the server at %s has not answered in time",
                         way != NULL ? way->server : params->options.server);
    else
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "no connection to the server at %s: %s", params->options.server,
                         params->error.text);
}

/* Due operations are moved to a list of their own first: callbacks may start and cancel others. */
void muster_params_on_op_deadline(struct muster_timer *timer)
{
    struct muster_params *params = timer->data;
    uint64_t now_ns = muster_loop_now_ns(params->env->loop), next_ns = UINT64_MAX;
    struct muster_list due;

    muster_list_init(&due);
    MUSTER_LIST_EACH_SAFE (&params->ops, op, struct muster_params_op, node) {
        if (op->deadline_ns <= now_ns) {
            muster_list_remove(&op->node);
            muster_list_append(&due, &op->node);
        } else if (op->deadline_ns < next_ns) {
            next_ns = op->deadline_ns;
        }
    }
    if (next_ns != UINT64_MAX)
        muster_params_deadline_watch(params, next_ns);
    while (!muster_list_is_empty(&due)) {
        struct muster_params_op *op = MUSTER_CONTAINER_OF(due.next, struct muster_params_op, node);
        struct muster_error error;

        deadline_describe(op, &error);
        op_abandon(op, MUSTER_DEADLINE_EXCEEDED, &error);
    }
}

void muster_params_ops_fail(struct muster_params *params, enum muster_rc rc,
                            const struct muster_error *error)
{
    while (!muster_list_is_empty(&params->ops))
        op_abandon(MUSTER_CONTAINER_OF(params->ops.next, struct muster_params_op, node), rc, error);
}

static void on_left(struct muster_frame *frame, enum muster_rc rc)
{
    struct muster_params *params = frame->data;

    (void)rc; /* a server that does not hear of it makes cuts wait for this client for a while */
    params->leaving_count--;
    muster_params_close_check(params);
}

/* Servers hear that nothing of this client is under way. */
static void ways_leave(struct muster_params *params)
{
    params->has_left = true;
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way->state != MUSTER_PARAMS_WAY_OPEN)
            continue;
        way->leaving = (struct muster_frame){.data = params};
        way->leaving.header = (struct muster_frame_header){.channel = MUSTER_FRAME_PARAMS,
                                                           .type = MUSTER_PARAMS_ALIVE,
                                                           .flags = MUSTER_PARAMS_ALIVE_LEAVES};
        params->leaving_count++;
        if (muster_peer_link_send(&way->leaving, way->link, on_left) != MUSTER_OK)
            params->leaving_count--;
    }
}

/* A client that closes waits for its pushes alone, and for nothing once the server has refused it. */
void muster_params_close_check(struct muster_params *params)
{
    bool is_over = params->is_failed || (params->collected_bytes == 0 && params->push_count == 0 &&
                                         muster_params_ranges_are_numbered(params, UINT64_MAX));

    if (!params->is_closing || params->is_closed || !is_over)
        return;
    if (!params->is_failed && !params->has_left)
        ways_leave(params);
    if (params->is_failed || params->leaving_count == 0)
        muster_task_post(&params->tell, params->env->loop);
}
