/* Between the files of agents: agent.c has one agent, agents.c all of them. */
#ifndef MUSTER_PARAMS_SERVER_AGENTS_INTERNAL_H
#define MUSTER_PARAMS_SERVER_AGENTS_INTERNAL_H

#include "params/server/services/agents.h"

/* The data of a client of params.h. It outlives its agent until it is closed. */
struct muster_params_agent_client {
    struct muster_params_agents *agents;
    struct muster_params_agent *agent; /* NULL: it closes */
    struct muster_list tables;
};

struct muster_params_agent {
    struct muster_list node;
    struct muster_params_agents *agents;
    bool is_reader;                     /* for all callers: its source pushes nothing */
    struct muster_params_origin origin; /* generation 0: not known yet */
    struct muster_params *params;       /* NULL: it is closed, or was */
    struct muster_params_agent_client *client;
    bool is_open;
    struct muster_list waiting, running; /* errands */
    uint64_t used_ns;
    struct muster_timer
        again; /* opens the next client, when the errand that waits has lost one before */
    uint64_t again_wait_ns;
};

struct muster_params_agents {
    struct muster_params_server *server;
    struct muster_params_home home; /* the server itself */
    struct muster_list list;
    uint32_t count;
    struct muster_params_agent *reader; /* NULL: nobody has asked yet */
    uint32_t client_count;              /* also of those that close */
    struct muster_timer sweep;
    struct muster_task advance;             /* errands that were handed over begin */
    struct muster_task tell;                /* calls closed */
    muster_params_agents_closed_fn *closed; /* NULL: it does not close */
};

static inline struct muster_env *muster_params_agents_env(const struct muster_params_agents *agents)
{
    return agents->server->env;
}

/* --- agent.c --- */

/** Open a client of params.h for it. Errors: those of muster_params_open. */
MUSTER_MUST_CHECK enum muster_rc muster_params_agent_open_client(struct muster_params_agent *agent,
                                                                 struct muster_error *ret_error);
/** The callback of agent->again. */
void muster_params_agent_on_again(struct muster_timer *timer);
/** The operations of its errands end CANCELLED, in a later turn. */
void muster_params_agent_close_client(struct muster_params_agent *agent);
/** End the errands that have not begun. */
void muster_params_agent_fail(struct muster_params_agent *agent, const struct muster_error *error);
/** Start errands that need not wait: of all callers' agent any, of a source's one at a time, in their order. */
void muster_params_agent_advance(struct muster_params_agent *agent);
/** It has no errands. */
void muster_params_agent_free(struct muster_params_agent *agent);

#endif
