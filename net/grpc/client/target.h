/* Where a channel leads: endpoints in the order of preference, and the authority. */
#ifndef MUSTER_NET_RPC_TARGET_H
#define MUSTER_NET_RPC_TARGET_H

#include <muster/address.h>

/* Names in one target, joined by commas; each may lead to several addresses. */
#define MUSTER_RPC_ENDPOINTS_MAX 16

struct muster_rpc_target {
    struct muster_endpoint endpoints[MUSTER_RPC_ENDPOINTS_MAX];
    size_t count;
    char authority[MUSTER_HOST_TEXT_BYTES + 8];
};

/** "host:port", "dns:///host:port", "ipv4:…", "ipv6:…", "unix:/path", "unix:///path",
 * "unix-abstract:name", several joined by commas. Errors: INVALID_ARGUMENT, UNIMPLEMENTED (another
 * scheme). */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_target_parse(const char *text,
                                                         struct muster_rpc_target *ret_target,
                                                         struct muster_error *ret_error);

#endif
