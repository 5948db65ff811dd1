/* An agent has a client of its own, which connects to all servers of the job; to this one through memory. */
#include "params/server/services/agents_internal.h"

#include <string.h>

#include "params/server/registry/registration.h"
#include "params/server/state/round.h"
#include "runtime/value/backoff.h"

struct muster_params_agent_table {
    struct muster_list node;
    struct muster_params_agent_client *client;
    struct muster_params_op op;
    uint8_t schema[MUSTER_PARAMS_SCHEMA_BYTES];
    struct muster_params_table *table; /* NULL: it is being opened, or was refused */
    bool is_refused;                   /* op.error says why */
};

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
    agent->used_ns = muster_loop_now_ns(muster_params_agents_env(agent->agents)->loop);
    agent->again_wait_ns = 0;
    errand->done(errand, rc, error);
}

static struct muster_params_errand *errand_first(struct muster_list *list)
{
    return muster_list_is_empty(list)
               ? NULL
               : MUSTER_CONTAINER_OF(list->next, struct muster_params_errand, node);
}

void muster_params_agent_fail(struct muster_params_agent *agent, const struct muster_error *error)
{
    struct muster_params_errand *errand;

    while ((errand = errand_first(&agent->waiting)) != NULL)
        errand_finish(errand, error->rc, error);
}

/* --- The client of an agent --- */

static void on_client_closed(struct muster_params *params, enum muster_rc rc)
{
    struct muster_params_agent_client *client = muster_params_data(params);
    struct muster_params_agents *agents = client->agents;

    (void)rc;
    MUSTER_LIST_EACH_SAFE (&client->tables, table, struct muster_params_agent_table, node)
        muster_mem_free(muster_params_agents_env(agents)->mem, table);
    muster_mem_free(muster_params_agents_env(agents)->mem, client);
    if (--agents->client_count == 0 && agents->closed != NULL)
        muster_task_post(&agents->tell, muster_params_agents_env(agents)->loop);
}

void muster_params_agent_close_client(struct muster_params_agent *agent)
{
    agent->is_open = false;
    if (agent->params == NULL)
        return;
    agent->client->agent = NULL;
    muster_params_close(agent->params, 0, on_client_closed);
    agent->params = NULL;
    agent->client = NULL;
}

void muster_params_agent_free(struct muster_params_agent *agent)
{
    struct muster_params_agents *agents = agent->agents;

    MUSTER_ASSERT(muster_list_is_empty(&agent->waiting) && muster_list_is_empty(&agent->running));
    muster_timer_stop(&agent->again);
    muster_params_agent_close_client(agent);
    muster_list_remove(&agent->node);
    if (agent->is_reader)
        agents->reader = NULL;
    else
        agents->count--;
    muster_mem_free(muster_params_agents_env(agents)->mem, agent);
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct muster_params_agent_client *client = muster_params_data(params);
    struct muster_params_agent *agent = client->agent;
    struct muster_error error;

    if (agent == NULL)
        return;
    if (rc == MUSTER_OK) {
        agent->origin.generation = muster_params_forward_generation(params);
        agent->is_open = true;
        muster_params_agent_advance(agent);
        return;
    }
    error = *muster_params_error(params);
    error.rc = rc;
    muster_params_agent_close_client(agent);
    muster_params_agent_fail(agent, &error);
}

enum muster_rc muster_params_agent_open_client(struct muster_params_agent *agent,
                                               struct muster_error *ret_error)
{
    struct muster_params_agents *agents = agent->agents;
    struct muster_params_server *server = agents->server;
    struct muster_params_options options = {
        .server = muster_params_registration_reach(server),
        .job = server->hello.job,
        .connect_deadline_ns =
            muster_loop_after_ns(server->env->loop, MUSTER_PARAMS_ERRAND_TIMEOUT_NS)};
    struct muster_params_agent_client *client = muster_mem_alloc(server->env->mem, sizeof(*client));
    enum muster_rc rc;

    if (client == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the call");
    *client = (struct muster_params_agent_client){.agents = agents, .agent = agent};
    muster_list_init(&client->tables);
    options.data = client;
    rc = muster_params_forward_open(server->env, &options, agent->is_reader ? NULL : &agent->origin,
                                    &agents->home, on_opened, &agent->params, ret_error);
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

    if (muster_params_agent_open_client(agent, &error) != MUSTER_OK)
        muster_params_agent_fail(agent, &error);
}

void muster_params_agent_on_again(struct muster_timer *timer)
{
    struct muster_params_agent *agent = timer->data;

    if (agent->params == NULL && !muster_list_is_empty(&agent->waiting))
        agent_reopen(agent);
}

/* Clients of two servers that have calls of one source under way take each other's links. */
static void agent_reopen_later(struct muster_params_agent *agent)
{
    static const struct muster_backoff again = {.first_ns = MUSTER_NS_PER_MS,
                                                .max_ns = 256 * MUSTER_NS_PER_MS,
                                                .growth_permille = 2000,
                                                .jitter_permille = 250};
    struct muster_env *env = muster_params_agents_env(agent->agents);

    muster_timer_start(
        &agent->again, env->loop,
        muster_loop_after_ns(env->loop,
                             muster_backoff_next(&again, &agent->again_wait_ns, env->rng)));
}

/* --- Tables --- */

static void on_table(struct muster_params_op *op, enum muster_rc rc)
{
    struct muster_params_agent_table *table = op->data;

    table->is_refused = rc != MUSTER_OK;
    if (table->client->agent != NULL)
        muster_params_agent_advance(table->client->agent);
}

/* Each schema is asked for once; one that was refused, again. NULL: no memory. */
static struct muster_params_agent_table *table_ask(struct muster_params_agent *agent,
                                                   const struct muster_params_schema *schema)
{
    struct muster_env *env = muster_params_agents_env(agent->agents);
    uint8_t packed[MUSTER_PARAMS_SCHEMA_BYTES];
    struct muster_params_agent_table *table;
    enum muster_rc rc;

    muster_params_schema_pack(schema, packed);
    MUSTER_LIST_EACH (&agent->client->tables, known, struct muster_params_agent_table, node) {
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

/* A client waits with a tick for the rounds of the tables that it has opened: also of those to which the source has
 * pushed before this client was opened. False: one of them is not open yet. Without memory the tick does not wait. */
static bool round_tables_open(struct muster_params_agent *agent)
{
    const struct muster_params_server *server = agent->agents->server;
    bool are_open = true;

    for (uint32_t i = 0; i < server->region->head->table_count; i++) {
        const struct muster_params_store_table *table = &server->region->head->tables[i];
        const struct muster_params_agent_table *asked;
        struct muster_params_schema schema;

        if (!muster_params_rounds_has_pushed(server, table, &agent->origin.source))
            continue;
        muster_params_table_schema(table, &schema);
        asked = table_ask(agent, &schema);
        are_open = are_open && (asked == NULL || asked->table != NULL || asked->is_refused);
    }
    return are_open;
}

/* --- The next errand --- */

/* False: it waits for its table. Else *ret_table is the table, or an error says why there is none. */
static bool errand_table(struct muster_params_errand *errand,
                         struct muster_params_agent_table **ret_table,
                         struct muster_error *ret_error)
{
    struct muster_params_agent_table *table;

    *ret_table = NULL;
    ret_error->rc = MUSTER_OK;
    if (errand->schema.name == NULL)
        return !errand->is_tick || round_tables_open(errand->agent);
    table = table_ask(errand->agent, &errand->schema);
    if (table == NULL) {
        muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory to open the table");
        return true;
    }
    if (table->is_refused) {
        *ret_error = table->op.error;
        muster_list_remove(&table->node);
        muster_mem_free(muster_params_agents_env(errand->agent->agents)->mem, table);
        return true;
    }
    *ret_table = table;
    return table->table != NULL;
}

/* The errand waits, before all others, for another client of its agent. */
static void errand_repeat(struct muster_params_errand *errand)
{
    struct muster_params_agent *agent = errand->agent;
    bool is_first = errand->again_until_ns == 0;

    if (is_first)
        errand->again_until_ns = muster_loop_after_ns(muster_params_agents_env(agent->agents)->loop,
                                                      MUSTER_PARAMS_ERRAND_TIMEOUT_NS);
    errand->is_started = false;
    muster_list_remove(&errand->node);
    muster_list_prepend(&agent->waiting, &errand->node);
    muster_params_agent_close_client(agent);
    if (is_first)
        agent_reopen(agent);
    else
        agent_reopen_later(agent);
}

/* Another link has named the source since: one of another server, to which the caller turned before. That
 * server's client names it anew whenever it connects again, as after a server's death, so this may happen
 * several times in a call. Where a younger process has the source, opening the next client fails. */
static bool errand_may_repeat(const struct muster_params_errand *errand)
{
    const struct muster_params_agent *agent = errand->agent;

    return !agent->is_reader && agent->agents->closed == NULL &&
           (errand->again_until_ns == 0 ||
            muster_loop_now_ns(muster_params_agents_env(agent->agents)->loop) <
                errand->again_until_ns);
}

/* An errand that ends ABORTED has lost a link to another client. */
static void errand_end(struct muster_params_errand *errand, enum muster_rc rc,
                       const struct muster_error *error)
{
    if (rc == MUSTER_ABORTED && errand_may_repeat(errand))
        errand_repeat(errand);
    else
        errand_finish(errand, rc, error);
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
    if (rc == MUSTER_FAILED_PRECONDITION && agent->agents->closed != NULL) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "the server closes");
    } else if (rc == MUSTER_FAILED_PRECONDITION) { /* the client has failed */
        error = *muster_params_error(agent->params);
        error.rc = error.rc != MUSTER_OK ? error.rc : rc;
        if (errand->again_until_ns == 0) {
            errand_repeat(errand);
            return;
        }
    } else if (errand->op.error.rc == rc) {
        error = errand->op.error;
    } else {
        muster_error_set(&error, rc, "the call was not begun: %s", muster_rc_text(rc));
    }
    errand_end(errand, error.rc, &error);
}

void muster_params_agent_advance(struct muster_params_agent *agent)
{
    bool has_moved = true;

    while (has_moved) {
        has_moved = false;
        MUSTER_LIST_EACH_SAFE (&agent->waiting, errand, struct muster_params_errand, node) {
            struct muster_params_agent_table *table;
            struct muster_error error;

            if (!agent->is_open || (!agent->is_reader && !muster_list_is_empty(&agent->running)))
                return;
            has_moved = errand_table(errand, &table, &error);
            if (has_moved && error.rc != MUSTER_OK)
                errand_end(errand, error.rc, &error);
            else if (has_moved)
                errand_start(errand, table != NULL ? table->table : NULL);
            if (has_moved || !agent->is_reader)
                break;
        }
    }
}

void muster_params_errand_on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct muster_params_errand *errand = op->data;
    struct muster_params_agent *agent = errand->agent;
    struct muster_error error = op->error;

    errand_end(errand, rc, &error);
    if (agent->agents->closed == NULL)
        muster_params_agent_advance(agent);
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
