/* Where a channel leads: endpoints in the order of preference, and the authority (gRPC naming.md).
 * A pure parser; resolution.c and subchannel_connect.c look names up later. */
#include "net/grpc/client/target.h"

#include <stdio.h>
#include <string.h>

#define ENDPOINT_TEXT_BYTES (MUSTER_HOST_TEXT_BYTES + 16)
/* gRPC naming.md: a dns target without a port means the port of https. */
#define DEFAULT_PORT 443

static bool skip_prefix(const char **text, const char *prefix)
{
    size_t length = strlen(prefix);

    if (strncmp(*text, prefix, length) != 0)
        return false;
    *text += length;
    return true;
}

/* "dns://server/host" names a name server of its own; only the system's is used here. "ipv4:" and
 * "ipv6:" are literal addresses, which the parser of endpoints knows by their form. */
static enum muster_rc skip_scheme(const char **text, struct muster_error *ret_error)
{
    const char *rest = *text;

    if (strncmp(rest, "unix", 4) == 0)
        return MUSTER_OK;
    if (skip_prefix(&rest, "dns:") || skip_prefix(&rest, "ipv4:") || skip_prefix(&rest, "ipv6:")) {
        if (skip_prefix(&rest, "//") && !skip_prefix(&rest, "/"))
            return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                    "target must be dns:///HOST:PORT, since the system's name "
                                    "servers are asked and no others, got \"%.64s\"",
                                    *text);
        *text = rest;
        return MUSTER_OK;
    }
    if (strstr(rest, "://") != NULL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "the scheme of a target must be dns, ipv4, ipv6, unix or "
                                "unix-abstract, got \"%.64s\"",
                                *text);
    return MUSTER_OK;
}

/* gRPC's two other spellings of unix sockets become the one that muster_endpoint_parse knows. */
static enum muster_rc endpoint_parse(const char *text, size_t length,
                                     struct muster_endpoint *ret_endpoint,
                                     struct muster_error *ret_error)
{
    char copy[ENDPOINT_TEXT_BYTES];
    int written;

    if (strncmp(text, "unix-abstract:", 14) == 0)
        written = snprintf(copy, sizeof(copy), "unix:@%.*s", (int)length - 14, text + 14);
    else if (strncmp(text, "unix:///", 8) == 0)
        written = snprintf(copy, sizeof(copy), "unix:%.*s", (int)length - 7, text + 7);
    else
        written = snprintf(copy, sizeof(copy), "%.*s", (int)length, text);
    if (written < 0 || (size_t)written >= sizeof(copy))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "an address of a target must be shorter than %d bytes, got %zu: "
                                "\"%.64s…\"",
                                (int)sizeof(copy), length, text);
    return muster_endpoint_parse(copy, DEFAULT_PORT, ret_endpoint, ret_error);
}

/* The :authority of calls is the first target as it was written, with its port. A unix socket has
 * none; gRPC sends "localhost". */
static void authority_set(struct muster_rpc_target *target, const char *text)
{
    const struct muster_endpoint *first = &target->endpoints[0];
    size_t length = strcspn(text, ",");

    if (first->address.family == MUSTER_ADDRESS_UNIX)
        (void)snprintf(target->authority, sizeof(target->authority), "localhost");
    else
        (void)snprintf(target->authority, sizeof(target->authority), "%.*s", (int)length, text);
}

enum muster_rc muster_rpc_target_parse(const char *text, struct muster_rpc_target *ret_target,
                                       struct muster_error *ret_error)
{
    struct muster_rpc_target target = {.count = 0};
    const char *at = text;
    enum muster_rc rc = skip_scheme(&at, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    text = at;
    for (;;) {
        size_t length = strcspn(at, ",");

        if (length == 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "an address of a target must not be empty, got \"%.64s\"",
                                    text);
        if (target.count == MUSTER_RPC_ENDPOINTS_MAX)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "a target must have at most %d addresses, got more",
                                    MUSTER_RPC_ENDPOINTS_MAX);
        rc = endpoint_parse(at, length, &target.endpoints[target.count], ret_error);
        if (rc != MUSTER_OK)
            return rc;
        target.count++;
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    authority_set(&target, text);
    *ret_target = target;
    return MUSTER_OK;
}
