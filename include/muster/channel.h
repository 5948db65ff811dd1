/* A gRPC client's way to a service: connections that come and go, and what is wanted of calls. */
#ifndef MUSTER_CHANNEL_H
#define MUSTER_CHANNEL_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/method_policy.h>
#include <muster/retry_policy.h>
#include <muster/status.h>
#include <muster/tls.h>

MUSTER_BEGIN

struct muster_interceptor; /* interceptor.h */
struct muster_channel;

enum muster_channel_state {
    MUSTER_CHANNEL_IDLE,
    MUSTER_CHANNEL_CONNECTING,
    MUSTER_CHANNEL_READY,
    MUSTER_CHANNEL_TRANSIENT_FAILURE,
    MUSTER_CHANNEL_SHUTDOWN,
};

enum muster_load_balancing {
    MUSTER_PICK_FIRST,  /* one connection, to the first address that answers */
    MUSTER_ROUND_ROBIN, /* one to each address (at most 64), calls go to them in turn */
};

struct muster_channel_options {
    const char *authority; /* NULL: from the target */
    enum muster_load_balancing load_balancing;
    bool is_shuffled; /* pick first tries the addresses in random order (gRPC A62) */
    /* Of round robin: ask each server by grpc.health.v1.Health/Watch for this service ("": for the
     * server) and send calls only where it is SERVING, or where nobody answers that (gRPC A17).
     * NULL: do not ask. Copied. */
    const char *health_service;
    uint32_t connections_max; /* 0: 1. To a server whose bound of concurrent streams is reached, as
                                 many are opened (gRPC A105); calls beyond all of them wait */
    uint64_t connect_timeout_ns;      /* 0: 20 s */
    uint64_t backoff_base_ns;         /* 0: 1 s; first reconnect waits this, jittered by 20 % */
    uint64_t backoff_max_ns;          /* 0: 120 s; factor 1.6 */
    uint64_t keepalive_interval_ns;   /* 0: no pings; twice as long once a server finds it short */
    uint64_t keepalive_timeout_ns;    /* 0: 20 s */
    size_t receive_message_max_bytes; /* 0: 4 MiB */
    size_t replay_max_bytes; /* 0: 256 KiB; kept of what a call has sent, to send it again */
    const struct muster_method_policy *method_policies; /* copied */
    size_t method_policy_count;
    struct muster_retry_throttle retry_throttle;
    /* gRPC's service config as JSON: loadBalancingConfig, methodConfig, retryThrottling,
     * healthCheckConfig; what it has takes the place of the options here. NULL: none. Copied. */
    const char *service_config;
    const struct muster_interceptor *const *interceptors; /* array copied, each borrowed */
    size_t interceptor_count;
    struct muster_tls *tls;      /* NULL: plain text. Shared until the channel is closed */
    const char *tls_server_name; /* whose certificate it must be; copied; NULL: the host of
                                  * authority, else of the endpoint */
};

typedef void muster_channel_close_fn(struct muster_channel *channel);
typedef void muster_channel_event_fn(struct muster_channel *channel);
/** target: "host:port", "dns:///host:port", "ipv4:…", "ipv6:…", "unix:/path"; several
 * "host:port" joined by commas are tried in turn, or all connected to, as load_balancing says.
 * Connects with the first call, reconnects with jittered backoff; names are looked up again for it,
 * by round robin 30 s apart. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_channel_open(
    struct muster_env *env, const char *target, const struct muster_channel_options *options,
    struct muster_channel **ret_channel, struct muster_error *ret_error);
/** Open calls end with CANCELLED, then closed (may be NULL) runs. */
MUSTER_API void muster_channel_close(struct muster_channel *channel,
                                     muster_channel_close_fn *closed);
MUSTER_API enum muster_channel_state muster_channel_state(const struct muster_channel *channel);
/** Why the last attempt to connect failed; rc OK: none has since READY. Waiting mends nothing of
 * UNAUTHENTICATED (TLS refused a certificate), FAILED_PRECONDITION (TLS meets plain text), and
 * UNIMPLEMENTED (the server does not speak HTTP/2). Borrowed until the loop turns. */
MUSTER_API const struct muster_error *muster_channel_error(const struct muster_channel *channel);
/** on_state (NULL: nobody) runs from the loop after the state has changed; of changes in one turn it
 * shows the last. Not for SHUTDOWN: closed tells that. */
MUSTER_API void muster_channel_set_on_state(struct muster_channel *channel,
                                            muster_channel_event_fn *on_state);
/** Connect now instead of with the first call. In another state than IDLE: nothing. */
MUSTER_API void muster_channel_connect(struct muster_channel *channel);
MUSTER_API void muster_channel_set_data(struct muster_channel *channel, void *data);
MUSTER_API void *muster_channel_data(const struct muster_channel *channel);

MUSTER_END

#endif
