/* A server without memory for what it was to copy learns nothing until it tries again, later each time. */
#include "params/server/leaders/full.h"

#include "params/server/core/server_internal.h"

#define WAIT_FIRST_NS (10 * MUSTER_NS_PER_S)
#define WAIT_MAX_NS   (300 * MUSTER_NS_PER_S)

/* The registration shows it with its next decision. */
static void full_set(struct muster_params_server *server, bool is_full)
{
    server->is_full = is_full;
    if (server->registration != NULL)
        muster_task_post(&server->decide, server->env->loop);
}

static void on_full(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;

    MUSTER_LOG(server->env, INFO, "params_replica_tries_again", "waited_s",
               server->full_wait_ns / MUSTER_NS_PER_S);
    full_set(server, false);
}

void muster_params_full_init(struct muster_params_server *server)
{
    muster_timer_init(&server->full, on_full, server);
}

void muster_params_full_begin(struct muster_params_server *server)
{
    struct muster_params_stats stats;

    if (muster_timer_is_started(&server->full))
        return;
    server->full_wait_ns = server->full_wait_ns == 0                  ? WAIT_FIRST_NS
                           : server->full_wait_ns < WAIT_MAX_NS / 2 ? 2 * server->full_wait_ns
                                                                      : WAIT_MAX_NS;
    muster_timer_start(&server->full, server->env->loop,
                       muster_loop_after_ns(server->env->loop, server->full_wait_ns));
    muster_params_server_stats(server, &stats);
    MUSTER_LOG(server->env, ERROR, "params_replica_full", "memory_bytes", stats.memory_bytes,
               "memory_max_bytes", stats.memory_max_bytes, "wait_s",
               server->full_wait_ns / MUSTER_NS_PER_S);
    full_set(server, true);
}
