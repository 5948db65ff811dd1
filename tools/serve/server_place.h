/* Which task `muster server` is, and its devices: what a resolver tells, and what --devices says. */
#ifndef MUSTER_TOOLS_SERVER_PLACE_H
#define MUSTER_TOOLS_SERVER_PLACE_H

#include <muster/server.h>

#define SERVER_DEVICES_MAX 64

struct server_place {
    char *cluster; /* JSON, NULL: not asked for */
    char job[64];
    int32_t task;
    struct muster_server_device devices[SERVER_DEVICES_MAX]; /* of a TYPE in types, or a constant */
    char types[SERVER_DEVICES_MAX][32];
    size_t device_count; /* 0: the default of a server */
};

/** Ask the resolver of `uri`. Without devices yet: one CPU, and the accelerators that the platform tells. Errors:
 * NOT_FOUND (it names no task for this process) and the resolver's. */
enum muster_rc server_place_ask(struct server_place *place, const char *uri,
                                struct muster_error *ret_error);
/** "CPU:1,GPU:4": one of type CPU and four of type GPU, each numbered from 0. Errors: INVALID_ARGUMENT. */
enum muster_rc server_place_add_devices(struct server_place *place, const char *text,
                                        struct muster_error *ret_error);
void server_place_fini(struct server_place *place);

#endif
