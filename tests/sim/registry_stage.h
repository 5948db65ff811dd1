/* The registry of a play: its process, the store that outlives it, the launcher's own client. */
#ifndef MUSTER_SIM_REGISTRY_STAGE_H
#define MUSTER_SIM_REGISTRY_STAGE_H

#include <muster/view.h>

#include "tests/sim/ledger.h"
#include "tests/sim/world.h"

#define REGISTRY_STAGE_ENDPOINT "registry:2379"
#define REGISTRY_STAGE_JOB      "sim"

struct registry_stage;

/** The registry runs on `host`, whose name must be "registry". Every view that it accepts is
 * entered in the ledger. Gives. */
struct registry_stage *registry_stage_open(struct sim_world *world, struct sim_host *host,
                                           struct ledger *ledger);
void registry_stage_close(struct registry_stage *stage);
/** kill -9; what was committed stays. */
void registry_stage_kill(struct registry_stage *stage);
/** Its process, also a dead one. */
struct sim_node *registry_stage_node(const struct registry_stage *stage);
/** No-op while it runs. */
void registry_stage_restart(struct registry_stage *stage);
/** The launcher writes dead/<incarnation>, as soon as the registry takes it. */
void registry_stage_confirm_dead(struct registry_stage *stage,
                                 const struct muster_incarnation *incarnation);

#endif
