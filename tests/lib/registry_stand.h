/* The embedded registry on a virtual clock, before clients that are played by hand. */
#ifndef MUSTER_TEST_REGISTRY_STAND_H
#define MUSTER_TEST_REGISTRY_STAND_H

#include "rpc_stand.h"
#include "store_stage.h"

#include "cluster/registry/server_internal.h"

struct registry_stand {
    struct rpc_stand rpc;
    struct store_stage stage; /* a data file */
    struct muster_metrics *metrics;
    struct muster_registry_server *server;
};

void registry_stand_open(struct registry_stand *stand);
/** The server alone; registry_stand_close follows. */
void registry_stand_stop(struct registry_stand *stand);
void registry_stand_close(struct registry_stand *stand);

/** A write as a request makes it: applied, not committed. bytes: of the value, at most 1 MiB. */
void registry_stand_put(struct registry_stand *stand, const char *key, size_t bytes, int64_t lease);
void registry_stand_delete(struct registry_stand *stand, const char *key);
void registry_stand_grant(struct registry_stand *stand, int64_t lease, int64_t ttl_s);
struct sqlite3 *registry_stand_database(struct registry_stand *stand);

#endif
