/* Names to addresses and services, asynchronously. */
#ifndef MUSTER_NET_DNS_H
#define MUSTER_NET_DNS_H

#include <muster/env.h>
#include <muster/stream.h>

struct muster_dns;
struct muster_dns_srv;

struct muster_dns_options {
    const char *servers; /* "127.0.0.1:53,[::1]:5300"; NULL: the system's (resolv.conf) */
    uint32_t timeout_ms; /* of the first try; 0: 2 s */
    uint32_t tries;      /* per server; 0: 3 */
};

/** options NULL: defaults. Borrows env, copies options. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_dns_open(struct muster_env *env,
                                                 const struct muster_dns_options *options,
                                                 struct muster_dns **ret_dns);
/** Nothing may be open any more. NULL is accepted. */
void muster_dns_close(struct muster_dns *dns);

/** The contract of muster_lookup_start; the request has been filled by it. */
MUSTER_MUST_CHECK enum muster_rc muster_dns_lookup(struct muster_dns *dns,
                                                   struct muster_lookup *lookup, const char *host,
                                                   uint64_t deadline_ns);
void muster_dns_lookup_cancel(struct muster_dns *dns, struct muster_lookup *lookup);

#define MUSTER_DNS_SERVICES_MAX 1024

struct muster_dns_service {
    char target[MUSTER_HOST_TEXT_BYTES];
    uint16_t port, priority, weight;
};

typedef void muster_dns_srv_fn(struct muster_dns_srv *srv, enum muster_rc rc);
/** One SRV query (RFC 2782). Caller's memory. */
struct muster_dns_srv {
    void *data;
    struct muster_dns_service
        services[MUSTER_DNS_SERVICES_MAX]; /* by priority, then weight falling */
    size_t service_count;
    struct muster_error error;
    /* private */
    muster_dns_srv_fn *done;
    void *impl;
};
/** name: "_etcd-server._tcp.example.org". By done: NOT_FOUND, UNAVAILABLE, DEADLINE_EXCEEDED,
 * CANCELLED, RESOURCE_EXHAUSTED (more services than there is room for). */
MUSTER_MUST_CHECK enum muster_rc muster_dns_srv_start(struct muster_dns_srv *srv,
                                                      struct muster_dns *dns, const char *name,
                                                      uint64_t deadline_ns,
                                                      muster_dns_srv_fn *done);
void muster_dns_srv_cancel(struct muster_dns_srv *srv);

#endif
