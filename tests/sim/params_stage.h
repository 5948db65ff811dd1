/* Servers of parameters in a play: they share the shards of a job, die, leave, lose their memory, come back. */
#ifndef MUSTER_SIM_PARAMS_STAGE_H
#define MUSTER_SIM_PARAMS_STAGE_H

#include <muster/params_server.h>

#include "params/store/region.h"
#include "params/wire/map.h"
#include "tests/sim/faults.h"
#include "tests/sim/params_memory.h"
#include "tests/sim/registry_stage.h"

#define PARAMS_STAGE_SERVERS_MAX 5u
#define PARAMS_STAGE_SHARDS      8u
#define PARAMS_STAGE_HEAL_NS     (60 * MUSTER_NS_PER_S)

struct params_stage;
struct sim_run;

struct params_server {
    struct params_stage *stage;
    uint32_t number;
    struct sim_host *host;
    struct sim_node *node;        /* NULL: never started */
    struct params_memory *memory; /* of its host: it outlives the process */
    struct muster_params_seat *seat;
    uint64_t restart_ns;
    bool is_draining, is_closed;
    bool is_empty;   /* others have all that it had */
    bool is_wiped;   /* the memory goes with the process */
    bool is_unheard; /* nothing arrives from other servers */
};

struct params_stage {
    struct sim_world *world;
    const char *job;
    const char *restore; /* folder of a cut that the job begins with; NULL: none */
    size_t memory_bytes; /* of each server; 0: the least */
    char addresses[512]; /* of all servers, for options of clients */
    struct registry_stage *registry;
    struct sim_host *registry_host;
    struct params_server servers[PARAMS_STAGE_SERVERS_MAX];
    uint32_t server_count;
    uint32_t first_count;  /* servers that begin the job; the others come later */
    bool is_one_host;      /* all servers run on one host, with one disk */
    bool is_apart;         /* each has a host of its own */
    struct sim_host *host; /* that of all; NULL: a new one */
    uint32_t shards;       /* 0: PARAMS_STAGE_SHARDS */
    uint32_t replicas;
    uint64_t slowness;    /* times the times of a quick play */
    bool is_wiping;       /* servers lose their memory, and nothing else happens to them */
    uint32_t losses_left; /* before all copies must be there again */
    uint64_t seen_map;    /* the number of the last map that was looked at for a second loss */
    uint32_t kill_permille, move_permille, registry_permille;
    uint64_t registry_restart_ns;
    uint32_t blows, blows_max; /* deaths and moves that the play makes */
    /* A server that dies takes clients and the registry with it, comes back at once, and dies again. */
    bool is_doubled;
    sim_action_fn *kill_clients; /* in such a play */
    void *clients;
    struct params_server *last_dead;
    struct params_server
        *watched; /* its link to a copy is awaited, so that its answers can be cut off */
};

/** Draw what happens: copies, speed, and how often servers die and move. */
void params_stage_draw(struct params_stage *stage);
/** Start the registry, and the first servers. */
void params_stage_open(struct params_stage *stage);
/** After the world: its processes use the memory. */
void params_stage_close(struct params_stage *stage);
/** Faults of the network and of processes that may strike this stage. */
struct sim_faults_options params_stage_faults(struct params_stage *stage);
typedef void params_stage_scene_fn(void *scene);
/** Play a scene on an open stage amid its faults, heal them, let it finish unless it has failed, and
 * close run, world and stage. */
void params_stage_run(struct params_stage *stage, struct sim_run *run, void *scene,
                      params_stage_scene_fn *play, params_stage_scene_fn *finish);
/** Between two events: the dead come back in their time. */
void params_stage_revive(struct params_stage *stage, bool is_at_once);
/** Between two events: servers may die, come, or leave; the registry may die. */
void params_stage_strike(struct params_stage *stage);
/** No server dies any more in the middle of a push that comes. */
void params_stage_spare(struct params_stage *stage);
/** Servers that leave have left, or have come back, and the others have all copies. */
void params_stage_settle(struct params_stage *stage);
/** All copies of each shard have equal rows and positions. */
void params_stage_compare(struct params_stage *stage);
/** Ending in order: nothing may be left. */
void params_stage_exit(struct params_stage *stage);

/* For scenarios that say who dies. */
bool params_server_is_alive(const struct params_server *server);
/** NULL: its process is dead, or has not begun. */
struct muster_params_server *params_server_program(const struct params_server *server);
void params_server_start(struct params_server *server);
void params_server_drain(struct params_server *server);
/** Its place in its map; MUSTER_PARAMS_NOWHERE: it has none. */
uint32_t params_stage_place(const struct params_server *server);
/** The newest map that a server has; NULL: none. Borrowed. */
const struct muster_params_map *params_stage_map(const struct params_stage *stage);
/** The server that leads the shard, by the newest map; NULL: none that lives. */
struct params_server *params_stage_primary(struct params_stage *stage, uint32_t shard);
/** Every shard has all its copies, on servers that live, and nothing moves. data: the stage. */
bool params_stage_is_settled(void *data);

#endif
