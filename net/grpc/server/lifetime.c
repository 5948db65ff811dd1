/* How long a server keeps a connection (gRPC A9): one timer drives the idle limit, the age limit
 * and the grace that follows. server_connection.c embeds it; it asks the session to drain and tells
 * its owner when the grace is over, but closes nothing itself. */
#include "net/grpc/server/lifetime.h"

#include <muster/env.h>

/* A9: connections that were opened together must not be told to go together, or their clients all
 * dial at once. */
#define AGE_JITTER 100 /* permille */

/* A connection that makes room for another one has its GRACE at once. */
static const bool moves[4][4] = {
    [MUSTER_RPC_LIFETIME_LIVING] = {[MUSTER_RPC_LIFETIME_LEAVING] = true,
                                    [MUSTER_RPC_LIFETIME_GRACE] = true,
                                    [MUSTER_RPC_LIFETIME_STOPPED] = true},
    [MUSTER_RPC_LIFETIME_LEAVING] =
        {[MUSTER_RPC_LIFETIME_GRACE] = true, [MUSTER_RPC_LIFETIME_STOPPED] = true},
    [MUSTER_RPC_LIFETIME_GRACE] =
        {[MUSTER_RPC_LIFETIME_GRACE] = true, [MUSTER_RPC_LIFETIME_STOPPED] = true},
    [MUSTER_RPC_LIFETIME_STOPPED] = {[MUSTER_RPC_LIFETIME_STOPPED] = true},
};

static void lifetime_move(struct muster_rpc_lifetime *lifetime,
                          enum muster_rpc_lifetime_state state)
{
    MUSTER_ASSERT(moves[lifetime->state][state]);
    lifetime->state = state;
}

static void wait_for(struct muster_rpc_lifetime *lifetime, uint64_t delay_ns)
{
    muster_timer_start(&lifetime->timer, lifetime->loop,
                       muster_loop_after_ns(lifetime->loop, delay_ns));
}

/* Sleeps until something may be due. The timer is not moved when a call ends: it fires, sees the
 * call's time and sleeps again, which is cheaper than a timer for each call. */
static void wait_on(struct muster_rpc_lifetime *lifetime)
{
    uint64_t due_ns = lifetime->age_due_ns;

    if (lifetime->idle_max_ns > 0) {
        uint64_t since_ns = muster_h2_session_has_streams(lifetime->session)
                                ? muster_loop_now_ns(lifetime->loop)
                                : lifetime->idle_since_ns;

        if (due_ns - since_ns > lifetime->idle_max_ns)
            due_ns = since_ns + lifetime->idle_max_ns;
    }
    if (due_ns != UINT64_MAX)
        muster_timer_start(&lifetime->timer, lifetime->loop, due_ns);
}

static bool is_idle(const struct muster_rpc_lifetime *lifetime, uint64_t now_ns)
{
    return lifetime->idle_max_ns > 0 && !muster_h2_session_has_streams(lifetime->session) &&
           now_ns - lifetime->idle_since_ns >= lifetime->idle_max_ns;
}

static void on_living(struct muster_rpc_lifetime *lifetime)
{
    uint64_t now_ns = muster_loop_now_ns(lifetime->loop);

    if (now_ns >= lifetime->age_due_ns)
        muster_rpc_lifetime_leave(lifetime, "max_age");
    else if (is_idle(lifetime, now_ns))
        muster_rpc_lifetime_leave(lifetime, "max_idle");
    else
        wait_on(lifetime);
}

static void on_expire(struct muster_timer *timer)
{
    struct muster_rpc_lifetime *lifetime = timer->data;

    switch (lifetime->state) {
    case MUSTER_RPC_LIFETIME_LIVING:
        on_living(lifetime);
        break;
    case MUSTER_RPC_LIFETIME_LEAVING:
        lifetime_move(lifetime, MUSTER_RPC_LIFETIME_GRACE);
        /* RFC 9113 6.8: the first GOAWAY names no last stream, so that requests on their way are
         * still taken; the client has had leave_timeout_ns to hear of it, and the second one names
         * the last. */
        muster_h2_session_drain_now(lifetime->session, "");
        if (lifetime->grace_ns > 0)
            wait_for(lifetime, lifetime->grace_ns);
        break;
    case MUSTER_RPC_LIFETIME_GRACE:
        lifetime->on_over(lifetime);
        break;
    case MUSTER_RPC_LIFETIME_STOPPED:
        break;
    }
}

void muster_rpc_lifetime_start(struct muster_rpc_lifetime *lifetime, struct muster_env *env,
                               struct muster_h2_session *session)
{
    MUSTER_ASSERT(lifetime->loop == NULL && lifetime->on_over != NULL);
    lifetime->loop = env->loop;
    lifetime->session = session;
    lifetime->idle_since_ns = muster_loop_now_ns(env->loop);
    lifetime->age_due_ns = UINT64_MAX;
    if (lifetime->age_max_ns > 0)
        lifetime->age_due_ns = muster_loop_after_ns(
            env->loop, muster_rng_jitter(env->rng, lifetime->age_max_ns, AGE_JITTER));
    muster_timer_init(&lifetime->timer, on_expire, lifetime);
    wait_on(lifetime);
}

void muster_rpc_lifetime_on_call_end(struct muster_rpc_lifetime *lifetime)
{
    if (!muster_h2_session_has_streams(lifetime->session))
        lifetime->idle_since_ns = muster_loop_now_ns(lifetime->loop);
}

void muster_rpc_lifetime_leave(struct muster_rpc_lifetime *lifetime, const char *text)
{
    if (lifetime->state != MUSTER_RPC_LIFETIME_LIVING)
        return;
    lifetime_move(lifetime, MUSTER_RPC_LIFETIME_LEAVING);
    muster_h2_session_drain(lifetime->session, text);
    wait_for(lifetime, lifetime->leave_timeout_ns);
}

void muster_rpc_lifetime_end(struct muster_rpc_lifetime *lifetime, uint64_t delay_ns)
{
    if (lifetime->state == MUSTER_RPC_LIFETIME_STOPPED)
        return;
    lifetime_move(lifetime, MUSTER_RPC_LIFETIME_GRACE);
    wait_for(lifetime, delay_ns);
}

void muster_rpc_lifetime_stop(struct muster_rpc_lifetime *lifetime)
{
    lifetime_move(lifetime, MUSTER_RPC_LIFETIME_STOPPED);
    if (lifetime->loop != NULL)
        muster_timer_stop(&lifetime->timer);
}
