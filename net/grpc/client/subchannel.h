/* A subchannel: the way of a channel to one server, through one connection after another. Pick
 * first has one that tries all its addresses in turn, round robin one for each address. */
#ifndef MUSTER_NET_RPC_SUBCHANNEL_H
#define MUSTER_NET_RPC_SUBCHANNEL_H

#include <muster/rpc.h>

#include "net/tls/dial.h"
#include "net/tls/dial_probe.h"
#include "net/grpc/session.h"

struct muster_rpc_subchannel;
struct muster_rpc_transport;

/** The events by which a subchannel reports to its owner (balance.c), which spreads calls over
 * several. */
struct muster_rpc_subchannel_listener {
    /** Its state has changed, or it takes calls that it could not take before. */
    void (*on_change)(struct muster_rpc_subchannel *subchannel);
    /** It has lost its server, so the names may lead to other addresses now. */
    void (*on_loss)(struct muster_rpc_subchannel *subchannel);
    /** It has left the channel's list and is freed. */
    void (*on_gone)(struct muster_channel *channel);
};

/** The events by which the parts of a subchannel (transport, connect, scale, health) report to it.
 */
struct muster_rpc_subchannel_events {
    /** No address of any endpoint worked. */
    void (*on_attempt_failed)(struct muster_rpc_subchannel *subchannel);
    /** The server's SETTINGS are there. */
    void (*on_transport_ready)(struct muster_rpc_subchannel *subchannel,
                               struct muster_rpc_transport *transport);
    /** The transport takes no more calls. */
    void (*on_transport_lost)(struct muster_rpc_subchannel *subchannel,
                              struct muster_rpc_transport *transport,
                              const struct muster_error *error);
    /** A connected server can be used, or not; error is why. */
    void (*on_judged)(struct muster_rpc_subchannel *subchannel, enum muster_channel_state state,
                      const struct muster_error *error);
    /** A look-up, dial, probe, transport or health call is over: one that closes may now be freed.
     */
    void (*on_part_ended)(struct muster_rpc_subchannel *subchannel);
};

enum muster_rpc_transport_state {
    MUSTER_RPC_TRANSPORT_OPENING, /* the server's SETTINGS have not come */
    MUSTER_RPC_TRANSPORT_READY,
    MUSTER_RPC_TRANSPORT_LOST,    /* takes no more calls: GOAWAY, or its end has begun */
    MUSTER_RPC_TRANSPORT_CLOSING, /* frees itself when its session has closed */
};

/** One connection of a subchannel, which may have several: one current, others beside it when that
 * is full, others draining. */
struct muster_rpc_transport {
    struct muster_list node;
    struct muster_rpc_subchannel *subchannel;
    struct muster_rpc_session session;
    enum muster_rpc_transport_state state;
    uint64_t ready_ns;
    uint32_t call_count;
    bool has_served; /* a call got an answer */
};

/** A further connection that is being made. */
struct muster_rpc_scale {
    struct muster_dial dial;
    bool is_dialling;
    struct muster_rpc_transport *transport; /* before its server's SETTINGS; else NULL */
    uint64_t earliest_ns;                   /* of the next one */
};

struct grpc_health_v1_health_watch_call;

enum muster_rpc_health_state {
    MUSTER_RPC_HEALTH_STOPPED,  /* no connection is to be watched */
    MUSTER_RPC_HEALTH_WATCHING, /* the call is open */
    MUSTER_RPC_HEALTH_STALE,    /* the open call is of an earlier connection; the next one follows it */
    MUSTER_RPC_HEALTH_RESTING,  /* the call has ended; another one follows if the timer runs */
    MUSTER_RPC_HEALTH_STOPPING, /* the open call is cancelled and has not ended yet */
};

/** The Watch call by which a server tells its own health. */
struct muster_rpc_subchannel_health {
    struct grpc_health_v1_health_watch_call *call; /* NULL: nobody asks */
    struct muster_timer timer;
    uint64_t backoff_ns; /* the last wait before a further Watch; 0: the last one said something */
    enum muster_rpc_health_state state;
};

/** The operation by which an attempt to connect goes on. At most one runs, and its callback comes
 * even after a cancel: the subchannel must live until then. */
enum muster_rpc_connect_step {
    MUSTER_RPC_CONNECT_NONE,   /* no attempt, or it has led to a transport */
    MUSTER_RPC_CONNECT_LOOKUP, /* the addresses of an endpoint */
    MUSTER_RPC_CONNECT_DIAL,   /* a stream to one of them, with its TLS handshake */
    MUSTER_RPC_CONNECT_PROBE,  /* why one that was reached has said nothing */
};

struct muster_rpc_subchannel {
    struct muster_list node; /* of the channel's */
    struct muster_channel *channel;
    const struct muster_rpc_subchannel_listener *listener;
    const struct muster_rpc_subchannel_events *events;
    struct muster_endpoint endpoint;         /* its own one, when it has one */
    const struct muster_endpoint *endpoints; /* to be tried in turn */
    size_t endpoint_count;
    enum muster_channel_state state; /* SHUTDOWN: it goes when its connections have */
    struct muster_error error;       /* of the last failed attempt */
    bool has_failed;                 /* and no attempt since then was a success */
    bool is_kept;                    /* the resolver has named it again */
    struct muster_list transports;
    struct muster_rpc_transport *current; /* connecting or ready; NULL: none */
    struct muster_rpc_scale scale;
    struct muster_rpc_subchannel_health health;
    struct muster_timer backoff_timer; /* runs in TRANSIENT_FAILURE after a failed attempt */
    uint64_t backoff_ns;               /* the last wait; 0: none since a connection was of use */
    /* the attempt in progress */
    size_t endpoint_at, endpoints_tried;
    const struct muster_address *addresses;
    size_t address_count, address_at;
    struct muster_lookup lookup;
    struct muster_dial dial;
    struct muster_dial_probe probe;
    enum muster_rpc_connect_step step;
};

/* net/grpc/client/subchannel.c */

/** A subchannel in IDLE, in the list of the channel. Borrows endpoints, to be tried in turn; with
 * NULL it has its own `endpoint`, which the caller then sets. Gives; NULL: no memory. */
struct muster_rpc_subchannel *muster_rpc_subchannel_new(
    struct muster_channel *channel, const struct muster_rpc_subchannel_listener *listener,
    const struct muster_endpoint *endpoints, size_t count);
/** Begins to connect; the state must be IDLE. */
void muster_rpc_subchannel_connect(struct muster_rpc_subchannel *subchannel);
/** Ends it: at once, or with is_orderly when its calls have ended. When its last part has gone,
 * perhaps inside this call, it leaves the channel's list, is freed, and on_gone follows.
 * Idempotent. */
void muster_rpc_subchannel_close(struct muster_rpc_subchannel *subchannel, bool is_orderly);
/** The transport refused a call: it takes no more, and ends when its open ones have. */
void muster_rpc_subchannel_retire(struct muster_rpc_subchannel *subchannel,
                                  struct muster_rpc_transport *transport, const char *why);

/* net/grpc/client/subchannel_connect.c */
/** Tries all endpoints once: `current` is set when one of them worked, else on_attempt_failed. */
void muster_rpc_subchannel_connect_begin(struct muster_rpc_subchannel *subchannel);
/** The address that was tried does not work, because of error: the next one is tried. */
void muster_rpc_subchannel_connect_next(struct muster_rpc_subchannel *subchannel,
                                        const struct muster_error *error);
/** The same of one that ended the connection before its first byte: perhaps it speaks TLS where
 * this side does not, or the reverse, which a probe tells first. */
void muster_rpc_subchannel_connect_doubt(struct muster_rpc_subchannel *subchannel,
                                         const struct muster_error *error);
void muster_rpc_subchannel_connect_cancel(struct muster_rpc_subchannel *subchannel);
void muster_rpc_subchannel_dial_options(const struct muster_rpc_subchannel *subchannel,
                                        struct muster_dial_options *ret_options);

/* net/grpc/client/subchannel_scale.c */
/** The transport that takes the next call; the subchannel must be READY. NULL: all are full, and
 * another connection is on its way: wait for on_change. */
struct muster_rpc_transport *muster_rpc_subchannel_choose(struct muster_rpc_subchannel *subchannel);
/** Any transport that takes calls, or NULL. */
struct muster_rpc_transport *muster_rpc_subchannel_other(
    const struct muster_rpc_subchannel *subchannel);
/** To be called when scale.transport is ready, or lost. */
void muster_rpc_subchannel_scaled(struct muster_rpc_subchannel *subchannel);
void muster_rpc_subchannel_scale_failed(struct muster_rpc_subchannel *subchannel);
void muster_rpc_subchannel_scale_cancel(struct muster_rpc_subchannel *subchannel);

/* net/grpc/client/subchannel_health_proto.c */
/** Sets up the watch if the channel wants one. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_subchannel_health_init(
    struct muster_rpc_subchannel *subchannel);
void muster_rpc_subchannel_health_fini(struct muster_rpc_subchannel *subchannel);
/** Asks on the current connection, which must be ready; on_judged follows. */
void muster_rpc_subchannel_health_start(struct muster_rpc_subchannel *subchannel);
/** Idempotent. A call that is open is cancelled; on_part_ended comes when it is over. */
void muster_rpc_subchannel_health_stop(struct muster_rpc_subchannel *subchannel);

/** Whether a call is open, which has the subchannel's memory until it ends. */
bool muster_rpc_subchannel_health_is_open(const struct muster_rpc_subchannel *subchannel);

/* net/grpc/client/transport.c */
void muster_rpc_transport_move(struct muster_rpc_transport *transport,
                               enum muster_rpc_transport_state state);
/** Takes stream (also on failure). Gives *ret_transport, which closes by itself when it is down. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_transport_open(
    struct muster_rpc_subchannel *subchannel, struct muster_stream *stream,
    struct muster_rpc_transport **ret_transport);
/** At once: calls on it end UNAVAILABLE. Idempotent. */
void muster_rpc_transport_close(struct muster_rpc_transport *transport);

#endif
