/* A server and a client of parameters that reach each other and nobody else: other servers take over what that one
 * led, and the client, which does not hear of it, goes on asking the one it reaches. */
#ifndef MUSTER_SIM_PARAMS_ISLAND_H
#define MUSTER_SIM_PARAMS_ISLAND_H

#include "tests/sim/params_cast.h"
#include "tests/sim/params_stage.h"

struct params_island {
    struct params_stage *stage;
    struct params_cast *cast;
    bool is_played; /* in this play */
    bool is_apart;  /* now */
    struct sim_host *server, *client;
};

/** After params_stage_draw: whether the play has islands. stage and cast outlive it. */
void params_island_draw(struct params_island *island, struct params_stage *stage,
                        struct params_cast *cast);
/** Between two events: perhaps cut a server and a client off for longer than a lease. */
void params_island_strike(struct params_island *island);
/** All hosts reach each other again. Does nothing when they do. */
void params_island_heal(struct params_island *island);

#endif
