/* A gRPC client's channel to a service, and the policies of its calls.
 *
 * Thread: loop only, all functions here. */
#ifndef MUSTER_CHANNEL_H
#define MUSTER_CHANNEL_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>
#include <muster/tls.h>

MUSTER_BEGIN

/* Retries: when a client sends a failed call again (gRPC A6).
 *
 * A call is repeated while nothing of a response has come: the server answered with a status alone
 * (Trailers-Only), reset the stream, or the connection broke. What the call has sent is kept for
 * that, up to replay_max_bytes of the channel's options; beyond them, and from the first response
 * headers on, the call is committed to its attempt. The call's deadline spans all attempts. What
 * the server has never seen is sent again without any policy and does not count. */

#define MUSTER_RETRY_ATTEMPTS_MAX 5

/** The bit of a status in codes. */
#define MUSTER_RETRY_ON(rc) (1u << (rc))

/** attempts_max 0 or 1: no repetition. The wait before the n-th one is backoff_base_ns times
 * backoff_multiplier to the power of n - 1, at most backoff_max_ns, jittered by 20 %. A server
 * that sends "grpc-retry-pushback-ms" sets the wait itself; one that it makes negative (or no
 * number) ends the call. */
struct muster_retry_policy {
    unsigned attempts_max;     /* with the first; above MUSTER_RETRY_ATTEMPTS_MAX: that many */
    uint32_t codes;            /* MUSTER_RETRY_ON(MUSTER_UNAVAILABLE) | ... */
    uint64_t backoff_base_ns;  /* of the first repetition; > 0 */
    uint64_t backoff_max_ns;   /* > 0 */
    double backoff_multiplier; /* > 0 */
};

/** A channel counts tokens, tokens_max at first: a failure with a retryable status (or a negative
 * pushback) costs one, a success gives token_ratio back. At tokens_max / 2 or fewer nothing is
 * repeated. */
struct muster_retry_throttle {
    unsigned tokens_max; /* 1 ... 1,000; 0: no throttle */
    double token_ratio;  /* > 0; to three decimals */
};

/* Method policies: retries, deadlines and limits for the calls of one method, of one service, or
 * of all methods. */

#define MUSTER_METHOD_POLICIES_MAX 1024

/** If several policies match a call, only the most specific one applies: method, then service, then
 * all methods. */
struct muster_method_policy {
    const char *method;        /* "/package.Service/Method", "/package.Service/", or NULL: all */
    uint64_t timeout_ns;       /* 0: none. Of this and the call's own deadline the earlier holds */
    bool wait_for_ready;       /* also for calls that do not ask for it */
    size_t request_max_bytes;  /* of one message, 0: no limit; a larger send: RESOURCE_EXHAUSTED */
    size_t response_max_bytes; /* of one message, 0: as the channel; larger: RESOURCE_EXHAUSTED */
    struct muster_retry_policy retry;
};

/* A gRPC client's way to a service: connections that come and go, and what is wanted of calls. */

struct muster_interceptor; /* muster/rpc.h */
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
    const char *authority; /* the :authority of calls, a host's name at most; NULL: from the target */
    enum muster_load_balancing load_balancing;
    bool is_shuffled; /* pick first tries the addresses in random order (gRPC A62) */
    /* For round robin: watch this service on each server by grpc.health.v1.Health/Watch ("": the
     * server as a whole) and send calls only to servers that are SERVING or do not implement the
     * health service (gRPC A17). NULL: no health checks. Copied. */
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
 * by round robin 30 s apart. Borrows env until closed, target and options during this function, but
 * for what options say. Gives. Errors: INVALID_ARGUMENT (the target, an option, or env without net;
 * the text names it), UNIMPLEMENTED (another scheme or name server), ALREADY_EXISTS (two policies of
 * one method), RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_channel_open(
    struct muster_env *env, const char *target, const struct muster_channel_options *options,
    struct muster_channel **ret_channel, struct muster_error *ret_error);
/** End open calls with CANCELLED, then closed (may be NULL) runs. A second close does nothing. */
MUSTER_API void muster_channel_close(struct muster_channel *channel,
                                     muster_channel_close_fn *closed);
MUSTER_API enum muster_channel_state muster_channel_state(const struct muster_channel *channel);
/** Why the last attempt to connect failed; rc OK: none has since READY. Waiting does not help against
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
