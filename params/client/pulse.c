/* Links that are half open: a server that answers is never given up, however long an answer takes. */
#include "params/client/client_internal.h"

/* Whatever an operation waits for on another way, or on none: a server's map may tell where its shard is now,
 * and any server may tell that its round is closed. */
static bool client_is_awaiting(const struct muster_params *params)
{
    return !muster_list_is_empty(&params->ops) || params->push_count > 0;
}

static bool is_awaiting(const struct muster_params_way *way)
{
    switch (way->state) {
    case MUSTER_PARAMS_WAY_MEETING:
    case MUSTER_PARAMS_WAY_OPENING:
        return true;
    case MUSTER_PARAMS_WAY_OPEN:
        return client_is_awaiting(way->params) || !muster_list_is_empty(&way->requests);
    default:
        return way->is_strange;
    }
}

static bool alive_send(struct muster_params_way *way, uint16_t flags)
{
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_ALIVE, .flags = flags};

    return muster_peer_link_send_copy(way->link, &header, NULL) == MUSTER_OK;
}

bool muster_params_way_alive(struct muster_params_way *way,
                             const struct muster_frame_header *header)
{
    return header->flags != MUSTER_PARAMS_ALIVE_ASKS || alive_send(way, 0);
}

static void check_schedule(struct muster_params_way *way)
{
    struct muster_loop *loop = way->params->env->loop;

    muster_timer_start(&way->check, loop, muster_loop_after_ns(loop, MUSTER_PARAMS_PULSE_NS));
}

void muster_params_way_watch(struct muster_params_way *way)
{
    if (way->link == NULL || muster_timer_is_started(&way->check))
        return;
    way->pulse.queued_bytes = 0;
    muster_params_pulse_hear(&way->pulse, muster_loop_now_ns(way->params->env->loop));
    check_schedule(way);
}

void muster_params_ways_watch(struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node)
        muster_params_way_watch(way);
}

enum muster_rc muster_params_way_check(struct muster_params_way *way,
                                       struct muster_error *ret_error)
{
    uint64_t now_ns = muster_loop_now_ns(way->params->env->loop);

    if (way->link == NULL || !is_awaiting(way))
        return MUSTER_OK;
    switch (muster_params_pulse_check(&way->pulse, now_ns,
                                      muster_peer_link_queued_bytes(way->link), true)) {
    case MUSTER_PARAMS_PULSE_ASK:
        (void)alive_send(way, MUSTER_PARAMS_ALIVE_ASKS); /* a link that is down says so next */
        break;
    case MUSTER_PARAMS_PULSE_LOST:
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "the server at %s has sent nothing for %.1f s", way->server,
                                (double)(now_ns - way->pulse.heard_ns) / MUSTER_NS_PER_S);
    case MUSTER_PARAMS_PULSE_BEATS:
        break;
    }
    check_schedule(way);
    return MUSTER_OK;
}
