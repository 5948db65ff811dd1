/* Where a process listens, as users write it: an address, a host's or an interface's name, and a port
 * or a range of ports. */
#ifndef MUSTER_LISTEN_H
#define MUSTER_LISTEN_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_listen {
    char host[MUSTER_HOST_TEXT_BYTES]; /* as written, without brackets; "": every address */
    struct muster_address address;     /* family NONE: host is a name, or "" */
    uint16_t port_first, port_last;    /* 0 and 0: any free port */
};

/** ADDRESS[:PORT[-PORT]]: "10.0.0.1", "[fd00::1]:5000", "[fe80::1%eth0]", "node1:0", "eth0:5000-5099",
 * "0.0.0.0", "[::]:5000", ":5000-5099". Nothing is looked up. INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_listen_parse(const char *text,
                                                                struct muster_listen *ret_listen,
                                                                struct muster_error *ret_error);

/** Every address of this host is meant. */
MUSTER_API bool muster_listen_is_wildcard(const struct muster_listen *listen);
/** How many ports there are to choose from; 0: any. */
MUSTER_API uint32_t muster_listen_port_count(const struct muster_listen *listen);

/**
 * The address of this host that is meant, with port_first: of a name with several, one of `family`
 * if there is any (NONE: IPv4 first). Interfaces come before names of hosts. Turns env's loop while
 * a name is looked up, at most until deadline_ns. Not for wildcards.
 *
 * Errors: NOT_FOUND (no such name or interface), INVALID_ARGUMENT (not an address of this host),
 * UNAVAILABLE, DEADLINE_EXCEEDED; the text names the culprit.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_listen_find(
    struct muster_env *env, const struct muster_listen *listen, enum muster_address_family family,
    uint64_t deadline_ns, struct muster_address *ret_address, struct muster_error *ret_error);

MUSTER_END

#endif
