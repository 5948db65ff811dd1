/* A registry client and the embedded registry on one loop, or the etcd cluster that
 * MUSTER_TEST_REGISTRY names. */
#ifndef MUSTER_TEST_REGISTRY_PAIR_H
#define MUSTER_TEST_REGISTRY_PAIR_H

#include "held_port.h"
#include "test_env.h"
#include <muster/registry.h>
#include <muster/registry_server.h>
#include <muster/stream.h>

#define DEADLINE_NS (30 * MUSTER_NS_PER_S)
#define PREFIX      "/muster-test/"

struct registry_pair {
    struct test_env test;
    struct muster_env *env;
    const char *outside; /* endpoints of somebody else's registry, or NULL */
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct muster_registry *registry;
    struct held_ports ports;
    char endpoints[MUSTER_ADDRESS_TEXT_BYTES]; /* this process's own until the pair is closed */
    bool is_closed;
    /* of the last operation */
    struct muster_registry_op op;
    enum muster_rc rc;
    bool is_done;
    bool is_succeeded;
    uint64_t revision;
    uint64_t count;
    size_t kv_count;
    char text[2048]; /* "key=value;…" */
};

struct muster_bytes registry_pair_bytes_of(const char *text);
void registry_pair_start_server(struct registry_pair *f, const char *listen);
void registry_pair_stop_server(struct registry_pair *f);
void registry_pair_open_store(struct registry_pair *f);
void registry_pair_on_op(struct muster_registry_op *op, enum muster_rc rc);
uint64_t registry_pair_soon(struct registry_pair *f);
enum muster_rc registry_pair_finish_op(struct registry_pair *f, enum muster_rc rc);
/** REGISTRY_PAIR_RUN(f, revoke, lease): the operation, with what its start takes between registry and
 * deadline, until it is done. Its code. */
#define REGISTRY_PAIR_RUN(f, verb, ...)                                                            \
    registry_pair_finish_op((f), muster_registry_##verb##_start(                                   \
                                     &(f)->op, (f)->registry, __VA_ARGS__, registry_pair_soon(f),  \
                                     registry_pair_on_op))
enum muster_rc registry_pair_put(struct registry_pair *f, const char *key, const char *value);
/** Where nobody listens. The first deadline that leaves time for an attempt decides: a busy machine
 * needs a long one. */
enum muster_rc registry_pair_put_nowhere(struct registry_pair *f, const char *key);
enum muster_rc registry_pair_range(struct registry_pair *f, const char *key,
                                   enum muster_registry_reach reach);
/** Until so many keys begin with prefix: steps of several clients take effect in any order. */
void registry_pair_wait_for_keys(struct registry_pair *f, const char *prefix, uint64_t count);
enum muster_rc registry_pair_remove_keys(struct registry_pair *f, const char *key,
                                         enum muster_registry_reach reach);
void registry_pair_open_client(struct registry_pair *f, const char *endpoints);
void registry_pair_close_client(struct registry_pair *f);
void registry_pair_open(struct registry_pair *f);
void registry_pair_close(struct registry_pair *f);

#endif
