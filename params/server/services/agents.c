/* Agents of callers: each has a client of its own, which connects to all servers of the job, this one too. */
#include "params/server/services/agents.h"

#include <stdio.h>
#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/server/registry/registration.h"

#define SOURCES_MAX       256u /* agents at a time: each has a link to each server */
#define IDLE_MAX_NS       (10 * MUSTER_NS_PER_S)
#define SWEEP_INTERVAL_NS (2 * MUSTER_NS_PER_S)

/* The data of a client of params.h. It outlives its agent until it is closed. */
struct agent_client {
    struct muster_params_agents *agents;
    struct muster_params_agent *agent; /* NULL: it closes */
    struct muster_list tables;
};

struct agent_table {
    struct muster_list node;
    struct agent_client *client;
    struct muster_params_op op;
    uint8_t schema[MUSTER_PARAMS_SCHEMA_BYTES];
    struct muster_params_table *table; /* NULL: it is being opened, or was refused */
    bool is_refused;                   /* op.error says why */
};

struct muster_params_agent {
    struct muster_list node;
    struct muster_params_agents *agents;
    bool is_reader;                     /* for all callers: its source pushes nothing */
    struct muster_params_origin origin; /* generation 0: not known yet */
    struct muster_params *params;       /* NULL: it is closed, or was */
    struct agent_client *client;
    bool is_open;
    struct muster_list waiting, running; /* errands */
    uint64_t used_ns;
};

struct muster_params_agents {
    struct muster_params_server *server;
    struct muster_list list;
    uint32_t count;
    struct muster_params_agent *reader; /* NULL: nobody has asked yet */
    uint32_t client_count;              /* also of those that close */
    struct muster_timer sweep;
    struct muster_task advance;             /* errands that were handed over begin */
    struct muster_task tell;                /* calls closed */
    muster_params_agents_closed_fn *closed; /* NULL: it does not close */
};

static struct muster_env *env_of(const struct muster_params_agents *agents)
{
    return agents->server->env;
}

/* --- Errands --- */

static void errand_finish(struct muster_params_errand *errand, enum muster_rc rc,
                          const struct muster_error *error)
{
    struct muster_params_agent *agent = errand->agent;

    muster_list_remove(&errand->node);
    errand->agent = NULL;
    errand->generation = agent->origin.generation;
    if (agent->params != NULL && agent->is_open)
        errand->next_sequence = muster_params_source_position(agent->params) + 1;
    agent->used_ns = muster_loop_now_ns(env_of(agent->agents)->loop);
    errand->done(errand, rc, error);
}

static struct muster_params_errand *errand_first(struct muster_list *list)
{
    return muster_list_is_empty(list)
               ? NULL
               : MUSTER_CONTAINER_OF(list->next, struct muster_params_errand, node);
}

static void errands_fail(struct muster_params_agent *agent, const struct muster_error *error)
{
    struct muster_params_errand *errand;

    while ((errand = errand_first(&agent->waiting)) != NULL)
        errand_finish(errand, error->rc, error);
}

/* --- The client of an agent --- */

static void on_client_closed(struct muster_params *params, enum muster_rc rc)
{
    struct agent_client *client = muster_params_data(params);
    struct muster_params_agents *agents = client->agents;

    (void)rc;
    MUSTER_LIST_EACH_SAFE (&client->tables, table, struct agent_table, node)
        muster_mem_free(env_of(agents)->mem, table);
    muster_mem_free(env_of(agents)->mem, client);
    if (--agents->client_count == 0 && agents->closed != NULL)
        muster_task_post(&agents->tell, env_of(agents)->loop);
}

/* The operations of its errands end CANCELLED, in a later turn. */
static void client_close(struct muster_params_agent *agent)
{
    agent->is_open = false;
    if (agent->params == NULL)
        return;
    agent->client->agent = NULL;
    muster_params_close(agent->params, 0, on_client_closed);
    agent->params = NULL;
    agent->client = NULL;
}

static void agent_free(struct muster_params_agent *agent)
{
    struct muster_params_agents *agents = agent->agents;

    MUSTER_ASSERT(muster_list_is_empty(&agent->waiting) && muster_list_is_empty(&agent->running));
    client_close(agent);
    muster_list_remove(&agent->node);
    if (agent->is_reader)
        agents->reader = NULL;
    else
        agents->count--;
    muster_mem_free(env_of(agents)->mem, agent);
}

static void agent_advance(struct muster_params_agent *agent);

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct agent_client *client = muster_params_data(params);
    struct muster_params_agent *agent = client->agent;
    struct muster_error error;

    if (agent == NULL)
        return;
    if (rc == MUSTER_OK) {
        agent->origin.generation = muster_params_forward_generation(params);
        agent->is_open = true;
        agent_advance(agent);
        return;
    }
    error = *muster_params_error(params);
    error.rc = rc;
    client_close(agent);
    errands_fail(agent, &error);
}

static enum muster_rc client_open(struct muster_params_agent *agent, struct muster_error *ret_error)
{
    struct muster_params_agents *agents = agent->agents;
    struct muster_params_server *server = agents->server;
    struct muster_params_options options = {
        .server = muster_params_registration_reach(server),
        .job = server->hello.job,
        .connect_deadline_ns =
            muster_loop_after_ns(server->env->loop, MUSTER_PARAMS_ERRAND_TIMEOUT_NS)};
    struct agent_client *client = muster_mem_alloc(server->env->mem, sizeof(*client));
    enum muster_rc rc;

    if (client == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the call");
    *client = (struct agent_client){.agents = agents, .agent = agent};
    muster_list_init(&client->tables);
    options.data = client;
    rc = agent->is_reader
             ? muster_params_open(server->env, &options, on_opened, &agent->params, ret_error)
             : muster_params_forward_open(server->env, &options, &agent->origin, on_opened,
                                          &agent->params, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(server->env->mem, client);
        return rc;
    }
    agent->client = client;
    agents->client_count++;
    return MUSTER_OK;
}

/* A new client goes on in the same generation: where a younger process has opened the source, it is
 * refused. */
static void agent_reopen(struct muster_params_agent *agent)
{
    struct muster_error error;

    client_close(agent);
    if (client_open(agent, &error) != MUSTER_OK)
        errands_fail(agent, &error);
}

/* --- Tables --- */

static void on_table(struct muster_params_op *op, enum muster_rc rc)
{
    struct agent_table *table = op->data;

    table->is_refused = rc != MUSTER_OK;
    if (table->client->agent != NULL)
        agent_advance(table->client->agent);
}

/* Each schema is asked for once; one that was refused, again. NULL: no memory. */
static struct agent_table *table_ask(struct muster_params_agent *agent,
                                     const struct muster_params_schema *schema)
{
    struct muster_env *env = env_of(agent->agents);
    uint8_t packed[MUSTER_PARAMS_SCHEMA_BYTES];
    struct agent_table *table;
    enum muster_rc rc;

    muster_params_schema_pack(schema, packed);
    MUSTER_LIST_EACH (&agent->client->tables, known, struct agent_table, node) {
        if (memcmp(known->schema, packed, sizeof(packed)) == 0)
            return known;
    }
    table = muster_mem_alloc_zero(env->mem, 1, sizeof(*table));
    if (table == NULL)
        return NULL;
    table->client = agent->client;
    table->op.data = table;
    memcpy(table->schema, packed, sizeof(packed));
    rc = muster_params_table_start(&table->op, agent->params, schema, &table->table,
                                   muster_loop_after_ns(env->loop, MUSTER_PARAMS_ERRAND_TIMEOUT_NS),
                                   on_table);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, table);
        return NULL;
    }
    muster_list_append(&agent->client->tables, &table->node);
    return table;
}

/* --- The next errand --- */

/* False: it waits for its table. Else *ret_table is the table, or an error says why there is none. */
static bool errand_table(struct muster_params_errand *errand, struct agent_table **ret_table,
                         struct muster_error *ret_error)
{
    struct agent_table *table;

    *ret_table = NULL;
    ret_error->rc = MUSTER_OK;
    if (errand->schema.name == NULL)
        return true;
    table = table_ask(errand->agent, &errand->schema);
    if (table == NULL) {
        muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory to open the table");
        return true;
    }
    if (table->is_refused) {
        *ret_error = table->op.error;
        muster_list_remove(&table->node);
        muster_mem_free(env_of(errand->agent->agents)->mem, table);
        return true;
    }
    *ret_table = table;
    return table->table != NULL;
}

/* The errand waits, before all others, for another client of its agent. */
static void errand_repeat(struct muster_params_errand *errand)
{
    struct muster_params_agent *agent = errand->agent;

    errand->is_again = true;
    errand->is_started = false;
    muster_list_remove(&errand->node);
    muster_list_prepend(&agent->waiting, &errand->node);
    agent_reopen(agent);
}

static void errand_start(struct muster_params_errand *errand, struct muster_params_table *table)
{
    struct muster_params_agent *agent = errand->agent;
    struct muster_error error;
    enum muster_rc rc;

    if (errand->start == NULL) {
        errand_finish(errand, MUSTER_OK, NULL);
        return;
    }
    errand->is_started = true;
    errand->op.data = errand;
    muster_list_remove(&errand->node);
    muster_list_append(&agent->running, &errand->node);
    errand->op.error.rc = MUSTER_OK;
    rc = errand->start(errand, agent->params, table);
    if (rc == MUSTER_OK)
        return;
    if (rc == MUSTER_FAILED_PRECONDITION) { /* the client has failed */
        error = *muster_params_error(agent->params);
        error.rc = error.rc != MUSTER_OK ? error.rc : rc;
        if (!errand->is_again) {
            errand_repeat(errand);
            return;
        }
    } else if (errand->op.error.rc == rc) {
        error = errand->op.error;
    } else {
        muster_error_set(&error, rc, "the call was not begun: %s", muster_rc_text(rc));
    }
    errand_finish(errand, error.rc, &error);
}

/* Start errands that need not wait: of all callers' agent any, of a source's one at a time, in
 * their order. */
static void agent_advance(struct muster_params_agent *agent)
{
    bool has_moved = true;

    while (has_moved) {
        has_moved = false;
        MUSTER_LIST_EACH_SAFE (&agent->waiting, errand, struct muster_params_errand, node) {
            struct agent_table *table;
            struct muster_error error;

            if (!agent->is_open || (!agent->is_reader && !muster_list_is_empty(&agent->running)))
                return;
            has_moved = errand_table(errand, &table, &error);
            if (has_moved && error.rc != MUSTER_OK)
                errand_finish(errand, error.rc, &error);
            else if (has_moved)
                errand_start(errand, table != NULL ? table->table : NULL);
            if (has_moved || !agent->is_reader)
                break;
        }
    }
}

/* ABORTED: another link, perhaps of another server, has named the source since. */
void muster_params_errand_on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct muster_params_errand *errand = op->data;
    struct muster_params_agent *agent = errand->agent;
    struct muster_error error = op->error;

    if (rc == MUSTER_ABORTED && !errand->is_again && !agent->is_reader &&
        agent->agents->closed == NULL) {
        errand_repeat(errand);
        return;
    }
    errand_finish(errand, rc, &error);
    if (agent->agents->closed == NULL)
        agent_advance(agent);
}

void muster_params_errand_cancel(struct muster_params_errand *errand)
{
    struct muster_error error;

    if (errand->is_started) {
        muster_params_op_cancel(&errand->op);
        return;
    }
    muster_error_set(&error, MUSTER_CANCELLED, "the call was cancelled");
    errand_finish(errand, error.rc, &error);
}

/* --- Agents --- */

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
    agent_free(oldest);
    return true;
}

static enum muster_rc agent_new(struct muster_params_agents *agents,
                                const struct muster_params_origin *origin,
                                struct muster_params_agent **ret_agent,
                                struct muster_error *ret_error)
{
    struct muster_env *env = env_of(agents);
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
        rc = client_open(agent, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    errand->agent = agent;
    errand->is_started = errand->is_again = false;
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
    struct muster_loop *loop = env_of(agents)->loop;
    uint64_t now_ns = muster_loop_now_ns(loop);

    MUSTER_LIST_EACH_SAFE (&agents->list, agent, struct muster_params_agent, node) {
        if (agent_is_idle(agent) && now_ns - agent->used_ns >= IDLE_MAX_NS)
            agent_free(agent);
    }
    if (agents->count > 0)
        muster_timer_start(timer, loop, muster_loop_after_ns(loop, SWEEP_INTERVAL_NS));
}

static void on_advance(struct muster_task *task)
{
    struct muster_params_agents *agents = task->data;

    MUSTER_LIST_EACH (&agents->list, agent, struct muster_params_agent, node)
        agent_advance(agent);
}

static void on_tell(struct muster_task *task)
{
    struct muster_params_agents *agents = task->data;
    struct muster_params_server *server = agents->server;
    muster_params_agents_closed_fn *closed = agents->closed;

    MUSTER_LIST_EACH_SAFE (&agents->list, agent, struct muster_params_agent, node)
        agent_free(agent);
    muster_mem_free(server->env->mem, agents);
    server->agents = NULL;
    closed(server);
}

enum muster_rc muster_params_agents_open(struct muster_params_server *server)
{
    struct muster_params_agents *agents =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*agents));

    if (agents == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    agents->server = server;
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
        client_close(agent);
        errands_fail(agent, &error);
    }
    if (agents->client_count == 0)
        muster_task_post(&agents->tell, server->env->loop);
}
