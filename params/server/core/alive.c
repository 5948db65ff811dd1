/* Links that are half open: a server gives up followers from which nothing comes though much is awaited, and,
 * later, clients and leaders that are silent. Where it does not read itself, it says that it is alive. */
#include "params/server/core/alive.h"

#include "params/server/core/server_internal.h"

#define IDLE_PERIOD_NS (10 * MUSTER_NS_PER_S)

bool muster_params_alive_send(struct muster_peer_link *link, uint8_t type, uint16_t flags)
{
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS, .type = type, .flags = flags};

    return muster_peer_link_send_copy(link, &header, NULL) == MUSTER_OK;
}

void muster_params_alive_watch(struct muster_params_server *server, bool is_awaited)
{
    uint64_t period_ns = is_awaited ? MUSTER_PARAMS_PULSE_NS : IDLE_PERIOD_NS;
    uint64_t due_ns = muster_loop_after_ns(server->env->loop, period_ns);

    if (!muster_timer_is_started(&server->alive) || due_ns < server->alive.due_ns)
        muster_timer_start(&server->alive, server->env->loop, due_ns);
}
