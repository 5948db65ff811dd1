/* Agents: clients by which a server among others does what is asked by gRPC, since any server may lead the
 * rows. One agent pulls and opens tables for all callers; each source that pushes by gRPC has one of its own,
 * as long as it calls. */
#ifndef MUSTER_PARAMS_SERVER_AGENTS_H
#define MUSTER_PARAMS_SERVER_AGENTS_H

#include "params/client/forward.h"
#include "params/server/core/server_internal.h"

/** How long a call that names no deadline is worked on. */
#define MUSTER_PARAMS_ERRAND_TIMEOUT_NS (30 * MUSTER_NS_PER_S)

struct muster_params_agents;
struct muster_params_agent;
struct muster_params_errand;

/** Begin; op->done is muster_params_errand_on_op. table NULL: the errand has none. */
typedef enum muster_rc muster_params_errand_start_fn(struct muster_params_errand *errand,
                                                     struct muster_params *params,
                                                     struct muster_params_table *table);
/** The errand is its owner's again. error belongs to rc. */
typedef void muster_params_errand_done_fn(struct muster_params_errand *errand, enum muster_rc rc,
                                          const struct muster_error *error);

/** One call. Owner's memory until done. */
struct muster_params_errand {
    struct muster_list node;
    struct muster_params_agent *agent; /* NULL: it is with no agent */
    struct muster_params_op op;
    struct muster_params_schema schema; /* of its table; name NULL: none. The name is the owner's */
    muster_params_errand_start_fn
        *start; /* NULL: it is done when its agent, and its table, are open */
    muster_params_errand_done_fn *done;
    uint64_t sequence;      /* of a push; 0: it is not a push */
    bool is_tick;           /* it begins when all tables by round that wait for it are open */
    uint64_t generation;    /* that its source has; from done on */
    uint64_t next_sequence; /* of its source when the agent was opened; from done on */
    bool is_started;
    /* Until when it may be begun again; 0: its agent has been able to go on so far. */
    uint64_t again_until_ns;
};

/** Gives server->agents. The server is registered. */
MUSTER_MUST_CHECK enum muster_rc muster_params_agents_open(struct muster_params_server *server);
typedef void muster_params_agents_closed_fn(struct muster_params_server *server);
/** Errands that wait end UNAVAILABLE at once, those that run CANCELLED; then closed is called, from
 * a turn of its own, and server->agents is gone. */
void muster_params_agents_close(struct muster_params_server *server,
                                muster_params_agents_closed_fn *closed);

/**
 * Hand an errand over: to the agent of the source, which does one at a time, or to the one of all callers
 * (origin NULL). Borrows errand until done, which comes from a later turn.
 *
 * Errors:  RESOURCE_EXHAUSTED (no memory, or too many sources at a time), UNAVAILABLE (the server closes),
 *          FAILED_PRECONDITION (the source has another push under way).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_errand_hand(
    struct muster_params_server *server, const struct muster_params_origin *origin,
    struct muster_params_errand *errand, struct muster_error *ret_error);
/** done still comes; a push that has left may count. */
void muster_params_errand_cancel(struct muster_params_errand *errand);
muster_params_op_fn muster_params_errand_on_op;

/** The agent of a source is kept while it is watched, as if the source called. False: there is none. */
bool muster_params_agents_keep(struct muster_params_server *server,
                               const struct muster_params_origin *origin);

#endif
