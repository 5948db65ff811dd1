/* A registry client and a gRPC server whose methods a test plays itself, over loopback. */
#ifndef MUSTER_TEST_PLAYED_REGISTRY_H
#define MUSTER_TEST_PLAYED_REGISTRY_H

#include "test_env.h"

#include <muster/address.h>
#include <muster/registry.h>
#include <muster/rpc.h>

struct played_registry {
    struct test_env test;
    struct muster_env *env;
    struct muster_rpc_server *server;
    struct muster_registry *registry; /* the client; it tries again at once */
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_hanging_up, is_server_closed, is_registry_closed;
};

/** service is what the methods get; password_file NULL: no user, else the user is "u". */
void played_registry_open(struct played_registry *played, const struct muster_rpc_method *methods,
                          size_t count, void *service, const char *password_file);
/** Another client takes the place of the first; endpoints NULL: as that. */
void played_registry_dial(struct played_registry *played, struct muster_registry_options options);
/** The client closes, and has not closed yet; played_registry_close follows. */
void played_registry_hang_up(struct played_registry *played);
void played_registry_close(struct played_registry *played);
/** One message of a call, which goes on. */
void played_registry_send(struct muster_rpc *rpc, const void *message);
/** Loop time. */
uint64_t played_registry_soon(const struct played_registry *played);

#endif
