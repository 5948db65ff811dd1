/* A client of parameters whose one server the case plays. */
#ifndef MUSTER_TEST_PARAMS_CLIENT_SCENE_H
#define MUSTER_TEST_PARAMS_CLIENT_SCENE_H

#include "params_calls.h"
#include "params_peer.h"

#define PARAMS_CLIENT_SCENE_SHARDS 8u

struct params_client_scene {
    struct test_env test;
    struct muster_env *env;
    struct params_host host;
    struct muster_params *params;
    struct params_outcome outcome; /* of opening or closing it */
    struct muster_params_table *table;
};

/** A client that is being opened. */
void params_client_scene_init(struct params_client_scene *scene);
/** A client with the table params_counters, whose link has sent OPEN and TABLE. */
void params_client_scene_open(struct params_client_scene *scene);
/** Close the client; returns the outcome. */
enum muster_rc params_client_scene_leave(struct params_client_scene *scene, uint64_t deadline_ns);
/** The client is closed before. */
void params_client_scene_fini(struct params_client_scene *scene);
/** Closes the client without waiting for the answers to its pushes. */
void params_client_scene_close(struct params_client_scene *scene);

/** In an hour: an operation that waits for it fails the case by the guard of test_env_run_until. */
uint64_t params_client_scene_deadline(const struct params_client_scene *scene);
/** Something the server says. */
void params_client_scene_send(struct params_client_scene *scene, uint8_t type, uint64_t number,
                              const void *payload, uint32_t bytes);
void params_client_scene_acknowledge(struct params_client_scene *scene, uint64_t sequence);

#endif
