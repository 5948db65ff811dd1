/* Pings a silent connection and tells when it stays silent (gRPC A8, A9). session.c embeds one for
 * each connection of either side. Any byte that arrives counts as life, so a busy connection is
 * never pinged, and the timer only looks back: it is not moved for each frame. */
#include "net/grpc/keepalive.h"

static void wait_for(struct muster_rpc_keepalive *keepalive, uint64_t delay_ns)
{
    muster_timer_start(&keepalive->timer, keepalive->loop,
                       muster_loop_after_ns(keepalive->loop, delay_ns));
}

static void on_expire(struct muster_timer *timer)
{
    struct muster_rpc_keepalive *keepalive = timer->data;
    uint64_t bytes = muster_h2_session_received_bytes(keepalive->session);

    if (bytes != keepalive->seen_bytes) { /* anything that arrives shows life */
        keepalive->seen_bytes = bytes;
        keepalive->is_waiting = false;
        wait_for(keepalive, keepalive->interval_ns);
    } else if (keepalive->is_waiting) {
        keepalive->on_dead(keepalive);
    } else if (keepalive->is_idle_allowed || muster_h2_session_has_streams(keepalive->session)) {
        /* A8: a client without calls does not ping, because servers would count that as abuse; a
         * server may. */
        keepalive->is_waiting = true;
        muster_h2_session_ping(keepalive->session);
        if (keepalive->sent != NULL)
            ++*keepalive->sent;
        wait_for(keepalive, keepalive->timeout_ns);
    } else {
        wait_for(keepalive, keepalive->interval_ns);
    }
}

void muster_rpc_keepalive_start(struct muster_rpc_keepalive *keepalive, struct muster_loop *loop,
                                struct muster_h2_session *session)
{
    keepalive->loop = loop;
    keepalive->session = session;
    keepalive->seen_bytes = muster_h2_session_received_bytes(session);
    keepalive->is_waiting = false;
    muster_timer_init(&keepalive->timer, on_expire, keepalive);
    if (keepalive->interval_ns > 0)
        wait_for(keepalive, keepalive->interval_ns);
}

void muster_rpc_keepalive_on_pong(struct muster_rpc_keepalive *keepalive)
{
    /* Other bytes have shown life already. */
    if (!keepalive->is_waiting)
        return;
    keepalive->is_waiting = false;
    keepalive->seen_bytes = muster_h2_session_received_bytes(keepalive->session);
    wait_for(keepalive, keepalive->interval_ns);
}

void muster_rpc_keepalive_stop(struct muster_rpc_keepalive *keepalive)
{
    if (keepalive->loop != NULL)
        muster_timer_stop(&keepalive->timer);
}
