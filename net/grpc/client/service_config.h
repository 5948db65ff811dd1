/* gRPC's service config: what the operator of a service wants of its clients, as JSON. */
#ifndef MUSTER_NET_RPC_SERVICE_CONFIG_H
#define MUSTER_NET_RPC_SERVICE_CONFIG_H

#include <muster/rpc.h>

struct muster_json;

/** The parsed text. All zero, it has nothing to apply. */
struct muster_service_config {
    bool has_load_balancing;
    enum muster_load_balancing load_balancing;
    bool is_shuffled;
    const char *health_service; /* NULL: none. Borrowed from root, as methods */
    struct muster_retry_throttle throttle;
    struct muster_method_policy *policies;
    size_t policy_count;
    /* private */
    struct muster_mem *mem;
    struct muster_json *root;
    char **methods; /* the texts of policies */
};

/**
 * Parse the JSON form of grpc.service_config.ServiceConfig. Members that nobody here knows are left
 * out, as gRPC does (hedgingPolicy among them).
 *
 * Owns:    gives what *ret_config points to, until fini.
 * Errors:  INVALID_ARGUMENT names the member; RESOURCE_EXHAUSTED.
 * Source:  grpc/doc/service_config.md, gRFC A6, A17, A21.
 */
MUSTER_MUST_CHECK enum muster_rc muster_service_config_init(
    struct muster_service_config *ret_config, struct muster_mem *mem, const char *text,
    struct muster_error *ret_error);
/** Replaces the options that the config names. They borrow its texts and policies. */
void muster_service_config_apply(const struct muster_service_config *config,
                                 struct muster_channel_options *options);
/** Also for a config that is all zero. */
void muster_service_config_fini(struct muster_service_config *config);

#endif
