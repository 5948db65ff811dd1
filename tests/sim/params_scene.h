/* A few servers of parameters and one client in the simulated world, for scenes that say what happens. */
#ifndef MUSTER_SIM_PARAMS_SCENE_H
#define MUSTER_SIM_PARAMS_SCENE_H

#include <muster/params.h>
#include <muster/params_server.h>

#include "params/store/region.h"
#include "tests/sim/params_memory.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/world.h"

#define PARAMS_SCENE_SERVERS     2u
#define PARAMS_SCENE_SERVERS_MAX 3u
#define PARAMS_SCENE_SHARDS      8u
#define PARAMS_SCENE_KEYS        64u /* some of each shard */

struct params_scene;

struct params_scene_server {
    struct params_scene *scene;
    struct sim_host *host;
    struct sim_node *node;
    struct params_memory *memory;
    size_t memory_bytes;
    struct muster_params_seat *seat;
    const char *restore; /* the cut of the next process; NULL: none */
    unsigned failures;
    char failure[256]; /* the text of the last one */
};

struct params_scene {
    struct sim_world *world;
    struct sim_host *registry_host, *client_host;
    struct registry_stage *registry; /* NULL: one server, alone */
    struct params_scene_server servers[PARAMS_SCENE_SERVERS_MAX];
    uint32_t server_count;
    uint64_t source_lease_ns, replica_lag_ns; /* 0: as a server's */
    uint32_t replicas;                        /* 0: one on each server */
    bool is_new_by_force;                     /* servers that are started from now on */
    bool is_unused;                           /* params_scene_open makes no table, nor a client */
    uint32_t clock_sources; /* of the client; not 0: its table is by round */
    const char *source;     /* the next client's name; NULL: none */
    char addresses[128];
    struct sim_node *client;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_op op;
    uint64_t keys[PARAMS_SCENE_KEYS];
    float values[PARAMS_SCENE_KEYS];
    bool is_done;
    enum muster_rc rc;
    char text[256]; /* of the operation's error */
};

/** Servers, each of which has all shards, and a client that has pushed once. */
void params_scene_open(struct params_scene *scene, uint32_t server_count);
/** Nothing may have failed. */
void params_scene_close(struct params_scene *scene);

/** A server that is dead is given other memory. */
void params_scene_forget(struct params_scene *scene, uint32_t server);
/** Another process in the server's memory. */
void params_scene_serve(struct params_scene *scene, uint32_t server);
/** A client, which has no table. */
void params_scene_client(struct params_scene *scene);
void params_scene_client_kill(struct params_scene *scene);
/** It ends in order. */
void params_scene_client_leave(struct params_scene *scene);
void params_scene_table(struct params_scene *scene);
/** 1 is added to all rows. */
void params_scene_push(struct params_scene *scene, uint64_t patience_ns);
/** All rows have this value. */
void params_scene_compare(struct params_scene *scene, float expected);
/** The operation or the opening that is under way ends well. */
void params_scene_await(struct params_scene *scene, uint64_t limit_ns);
muster_params_op_fn params_scene_done;

/** Predicates of sim_run_until. data: the scene. */
bool params_scene_is_done(void *data);
/** Each server has all shards, by its map. */
bool params_scene_is_whole(void *data);

/** The program of a server that lives, and its memory. */
const struct muster_params_server *params_scene_program(const struct params_scene *scene,
                                                        uint32_t server);
const struct muster_params_region *params_scene_region(const struct params_scene *scene,
                                                       uint32_t server);

#endif
