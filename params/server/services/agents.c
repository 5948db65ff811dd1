/* Agents of callers: which there are, and how long they stay. */
#include "params/server/services/agents.h"

#include "net/stream/ring.h"
#include "params/server/links/door.h"
#include "params/server/registry/registration.h"
#include "params/server/services/agents_internal.h"

#define SOURCES_MAX       256u /* agents at a time: each has a link to each server */
#define IDLE_MAX_NS       (10 * MUSTER_NS_PER_S)
#define SWEEP_INTERVAL_NS (2 * MUSTER_NS_PER_S)

static bool origin_is_equal(const struct muster_params_origin *a,
                            const struct muster_params_origin *b)
{
    return a->generation == b->generation && muster_incarnation_is_equal(&a->source, &b->source);
}

static struct muster_params_agent *agent_find(const struct muster_params_agents *agents,
                                              const struct muster_params_origin *origin)
{
    if (origin == NULL)
        return agents->reader;
    MUSTER_LIST_EACH (&agents->list, agent, struct muster_params_agent, node) {
        if (!agent->is_reader && origin->generation != 0 && origin_is_equal(&agent->origin, origin))
            return agent;
    }
    return NULL;
}

static bool agent_is_idle(const struct muster_params_agent *agent)
{
    return !agent->is_reader && muster_list_is_empty(&agent->waiting) &&
           muster_list_is_empty(&agent->running);
}

/* Make room for one more agent: of too many, the one that is idle for longest is freed. False: all
 * are busy. */
static bool room_make(struct muster_params_agents *agents)
{
    struct muster_params_agent *oldest = NULL;

    if (agents->count < SOURCES_MAX)
        return true;
    MUSTER_LIST_EACH (&agents->list, agent, struct muster_params_agent, node) {
        if (agent_is_idle(agent) && (oldest == NULL || agent->used_ns < oldest->used_ns))
            oldest = agent;
    }
    if (oldest == NULL)
        return false;
    muster_params_agent_free(oldest);
    return true;
}

static enum muster_rc agent_new(struct muster_params_agents *agents,
                                const struct muster_params_origin *origin,
                                struct muster_params_agent **ret_agent,
                                struct muster_error *ret_error)
{
    struct muster_env *env = muster_params_agents_env(agents);
    struct muster_params_agent *agent;

    if (origin != NULL && !room_make(agents))
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "%u sources push through this server by gRPC now: call another one",
                                SOURCES_MAX);
    agent = muster_mem_alloc_zero(env->mem, 1, sizeof(*agent));
    if (agent == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the call");
    agent->agents = agents;
    agent->is_reader = origin == NULL;
    if (origin != NULL)
        agent->origin = *origin;
    muster_list_init(&agent->waiting);
    muster_list_init(&agent->running);
    muster_timer_init(&agent->again, muster_params_agent_on_again, agent);
    muster_list_append(&agents->list, &agent->node);
    if (agent->is_reader)
        agents->reader = agent;
    else
        agents->count++;
    agent->used_ns = muster_loop_now_ns(env->loop);
    if (!muster_timer_is_started(&agents->sweep))
        muster_timer_start(&agents->sweep, env->loop,
                           muster_loop_after_ns(env->loop, SWEEP_INTERVAL_NS));
    *ret_agent = agent;
    return MUSTER_OK;
}

/* NULL: there is none. */
static const struct muster_params_errand *other_push_find(const struct muster_list *list,
                                                          uint64_t sequence)
{
    MUSTER_LIST_EACH (list, other, struct muster_params_errand, node) {
        if (other->sequence != 0 && other->sequence != sequence)
            return other;
    }
    return NULL;
}

/* A repetition may come before its first call has ended; another push must not: the first may have failed. */
static enum muster_rc push_check(const struct muster_params_agent *agent, uint64_t sequence,
                                 struct muster_error *ret_error)
{
    const struct muster_params_errand *other = NULL;

    if (sequence != 0)
        other = other_push_find(&agent->running, sequence);
    if (sequence != 0 && other == NULL)
        other = other_push_find(&agent->waiting, sequence);
    if (other == NULL)
        return MUSTER_OK;
    return muster_error_set(
        ret_error, MUSTER_FAILED_PRECONDITION,
        "push %llu of the source is under way, got %llu: send one at a time, and again until it "
        "is answered",
        (unsigned long long)other->sequence, (unsigned long long)sequence);
}

enum muster_rc muster_params_errand_hand(struct muster_params_server *server,
                                         const struct muster_params_origin *origin,
                                         struct muster_params_errand *errand,
                                         struct muster_error *ret_error)
{
    struct muster_params_agents *agents = server->agents;
    struct muster_params_agent *agent = agent_find(agents, origin);
    enum muster_rc rc = MUSTER_OK;

    if (agents->closed != NULL)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "the server closes");
    if (agent == NULL)
        rc = agent_new(agents, origin, &agent, ret_error);
    if (rc == MUSTER_OK)
        rc = push_check(agent, errand->sequence, ret_error);
    if (rc == MUSTER_OK && agent->params == NULL)
        rc = muster_params_agent_open_client(agent, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    errand->agent = agent;
    errand->is_started = false;
    errand->again_until_ns = 0;
    muster_list_append(&agent->waiting, &errand->node);
    muster_task_post(&agents->advance, server->env->loop);
    return MUSTER_OK;
}

bool muster_params_agents_keep(struct muster_params_server *server,
                               const struct muster_params_origin *origin)
{
    struct muster_params_agent *agent = agent_find(server->agents, origin);

    if (agent != NULL)
        agent->used_ns = muster_loop_now_ns(server->env->loop);
    return agent != NULL;
}

static void on_sweep(struct muster_timer *timer)
{
    struct muster_params_agents *agents = timer->data;
    struct muster_loop *loop = muster_params_agents_env(agents)->loop;
    uint64_t now_ns = muster_loop_now_ns(loop);

    MUSTER_LIST_EACH_SAFE (&agents->list, agent, struct muster_params_agent, node) {
        if (agent_is_idle(agent) && now_ns - agent->used_ns >= IDLE_MAX_NS)
            muster_params_agent_free(agent);
    }
    if (agents->count > 0)
        muster_timer_start(timer, loop, muster_loop_after_ns(loop, SWEEP_INTERVAL_NS));
}

static void on_advance(struct muster_task *task)
{
    struct muster_params_agents *agents = task->data;

    MUSTER_LIST_EACH (&agents->list, agent, struct muster_params_agent, node)
        muster_params_agent_advance(agent);
}

static void on_tell(struct muster_task *task)
{
    struct muster_params_agents *agents = task->data;
    struct muster_params_server *server = agents->server;
    muster_params_agents_closed_fn *closed = agents->closed;

    MUSTER_LIST_EACH_SAFE (&agents->list, agent, struct muster_params_agent, node)
        muster_params_agent_free(agent);
    muster_mem_free(server->env->mem, agents);
    server->agents = NULL;
    closed(server);
}

static enum muster_rc home_connect(void *data, struct muster_stream **ret_stream)
{
    struct muster_params_agents *agents = data;
    struct muster_stream *streams[2];
    enum muster_rc rc = muster_ring_stream_pair(muster_params_agents_env(agents), streams);

    if (rc != MUSTER_OK)
        return rc;
    muster_params_door_accept_own(agents->server, streams[1]);
    *ret_stream = streams[0];
    return MUSTER_OK;
}

enum muster_rc muster_params_agents_open(struct muster_params_server *server)
{
    struct muster_params_agents *agents =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*agents));

    if (agents == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    agents->server = server;
    agents->home =
        (struct muster_params_home){.data = agents,
                                    .id = server->hello.incarnation,
                                    .address = muster_params_registration_reach(server),
                                    .connect = home_connect};
    muster_list_init(&agents->list);
    muster_timer_init(&agents->sweep, on_sweep, agents);
    muster_task_init(&agents->advance, on_advance, agents);
    muster_task_init(&agents->tell, on_tell, agents);
    server->agents = agents;
    return MUSTER_OK;
}

void muster_params_agents_close(struct muster_params_server *server,
                                muster_params_agents_closed_fn *closed)
{
    struct muster_params_agents *agents = server->agents;
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "the server closes");
    agents->closed = closed;
    muster_timer_stop(&agents->sweep);
    muster_task_cancel(&agents->advance);
    MUSTER_LIST_EACH (&agents->list, agent, struct muster_params_agent, node) {
        muster_params_agent_close_client(agent);
        muster_params_agent_fail(agent, &error);
    }
    if (agents->client_count == 0)
        muster_task_post(&agents->tell, server->env->loop);
}
