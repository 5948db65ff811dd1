/* Shared by the files of the gRPC client: channel, transports and calls. */
#ifndef MUSTER_NET_RPC_CHANNEL_INTERNAL_H
#define MUSTER_NET_RPC_CHANNEL_INTERNAL_H

#include <muster/rpc.h>

#include "net/grpc/frame.h"
#include "net/grpc/metadata.h"
#include "net/grpc/timeout.h"
#include "net/h2/session.h"
#include "net/grpc/client/balance.h"
#include "net/grpc/inbox.h"
#include "net/grpc/interceptor.h"
#include "net/grpc/client/method_policy.h"
#include "net/grpc/client/retry.h"
#include "net/grpc/session.h"
#include "net/grpc/client/target.h"
#include "net/grpc/tally.h"
#include "runtime/value/backoff.h"

struct muster_grpc_call;

/** The events by which calls and subchannels report to their channel; channel.c acts on them. */
struct muster_channel_listener {
    /** The call is WAITING again, and has to be placed. */
    void (*on_call_waiting)(struct muster_channel *channel, struct muster_grpc_call *call);
    /** The state of a subchannel or of the resolution has changed, and with it perhaps the
     * channel's. */
    void (*on_change)(struct muster_channel *channel);
    /** A call, a subchannel or a look-up is gone: a channel that closes may have been waiting for
     * it. */
    void (*on_part_gone)(struct muster_channel *channel);
};

struct muster_channel {
    const struct muster_channel_listener *listener;
    struct muster_env *env;
    struct muster_mem_pool pool; /* of connections and calls */
    void *data;
    struct muster_channel_options options;
    struct muster_backoff backoff; /* between attempts to connect, look up or watch */
    struct muster_rpc_target target;
    struct muster_interceptor_chain interceptors;
    struct muster_method_policy_table policies;
    struct muster_rpc_throttle throttle;
    struct muster_rpc_metrics *metrics; /* NULL: calls are not counted */
    char *target_text;                  /* with its scheme; of metrics */
    struct muster_rpc_counters own_counters, *counters;
    enum muster_channel_state state;
    struct muster_list subchannels;           /* in the order of their turns */
    struct muster_rpc_resolution *resolution; /* of round robin, else NULL */
    char *health_service;                     /* NULL: nobody is asked */
    bool is_begun;                            /* to connect */
    struct muster_list waiting;               /* calls without a transport */
    struct muster_list calls;                 /* all calls, by channel_node */
    struct muster_list free_calls;
    uint32_t free_call_count;
    struct muster_rpc_inflation inflation;
    struct muster_task state_task; /* tells on_state */
    muster_channel_event_fn *on_state;
    struct muster_tls_sessions *tls_sessions; /* NULL: plain text */
    char *tls_server_name;                    /* NULL: the endpoint's host */
    struct muster_task closed_task;
    muster_channel_close_fn *closed;
};

enum muster_grpc_call_state {
    MUSTER_GRPC_CALL_WAITING, /* for a transport */
    MUSTER_GRPC_CALL_ACTIVE,  /* has a stream */
    MUSTER_GRPC_CALL_PAUSED,  /* an attempt has failed, the next one is not due */
    MUSTER_GRPC_CALL_DECIDED, /* the outcome is known; done is due in the next turn */
    MUSTER_GRPC_CALL_DONE,    /* done has run; the stream may still have to close */
};

struct muster_grpc_call {
    struct muster_h2_stream stream;
    struct muster_list node;         /* of waiting or free_calls */
    struct muster_list channel_node; /* of calls */
    struct muster_channel *channel;
    struct muster_rpc_subchannel *subchannel; /* NULL: as the channel chooses */
    struct muster_rpc_transport *transport;
    struct muster_call *call; /* NULL once done */
    enum muster_grpc_call_state state;
    bool is_streaming;  /* the session has the stream */
    bool is_delivering; /* done is running */
    uint64_t deadline_ns;
    char timeout_text[MUSTER_GRPC_TIMEOUT_TEXT_BYTES];
    bool wait_for_ready;
    enum muster_compression compression;
    bool is_compressing;
    muster_call_event_fn *on_headers;
    muster_call_place_fn *on_place;
    muster_call_message_fn *on_message;
    muster_call_event_fn *on_writable;
    struct muster_grpc_metadata request; /* in wire form; the first entry is :path */
    struct muster_grpc_metadata initial, trailing;
    struct muster_grpc_parser parser;
    struct muster_interception interception;
    struct muster_rpc_tally tally;
    struct muster_rpc_inbox inbox;
    struct muster_timer timer;
    struct muster_task done_task;
    unsigned attempts; /* streams begun */
    unsigned resent;   /* of them, because the server had not seen the one before */
    struct muster_rpc_retry retry;
    struct muster_timer retry_timer;
    size_t request_max_bytes; /* of one message */
    bool is_committed;        /* to this attempt: response headers are there */
    /* the response */
    int http_status;
    bool has_headers; /* or the trailers that are all there is */
    bool has_peer_ended;
    bool is_grpc;
    bool has_unknown_encoding;
    bool has_status;
    bool has_answer; /* it has ended with that status */
    enum muster_rc status;
    enum muster_rc metadata_rc;
    struct muster_error outcome;
};

/* net/grpc/client/channel.c */
/** Places a call that has no transport: it is sent, waits in the list, or fails. Connects when
 * needed. */
void muster_channel_place(struct muster_channel *channel, struct muster_grpc_call *call);

/* net/grpc/client/call.c */
void muster_grpc_call_reset(struct muster_grpc_call *call);
/** The done_task of a call: runs the done of one that is decided. */
void muster_grpc_call_on_done(struct muster_task *task);
/** Send the call on a transport. FAILED_PRECONDITION: the transport takes none. */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_call_submit(struct muster_grpc_call *call,
                                                         struct muster_rpc_transport *transport);
/** Decides the outcome; done follows from the loop. It does nothing when the outcome is known. */
void muster_grpc_call_decide(struct muster_grpc_call *call, enum muster_rc rc, const char *text);
/** Takes the record of a call that is done and whose stream has gone; a few are kept for the next.
 */
void muster_grpc_call_release(struct muster_grpc_call *call);
void muster_grpc_call_free(struct muster_grpc_call *call);
void muster_grpc_call_move(struct muster_grpc_call *call, enum muster_grpc_call_state state);
/** Decides and runs done at once, so only from an event of the loop. With text NULL the text that
 * the outcome has already stays. */
void muster_grpc_call_finish(struct muster_grpc_call *call, enum muster_rc rc, const char *text);
/** Forgets the response so far: the attempt will be repeated. */
void muster_grpc_call_forget_response(struct muster_grpc_call *call);
/** Resets the stream unless both sides have ended it; its on_close still comes. A call without a
 * stream is left as it is. */
void muster_grpc_call_leave_stream(struct muster_grpc_call *call);

/* net/grpc/client/call_events.c */
/** Ends the attempt because of a message that cannot be taken. */
void muster_grpc_call_refuse(struct muster_grpc_call *call, enum muster_grpc_parsed parsed);
void muster_grpc_call_on_headers(struct muster_grpc_call *call, bool is_end);
/** The response has ended, and all its messages were shown. */
void muster_grpc_call_on_end(struct muster_grpc_call *call);
void muster_grpc_call_on_over_limit(struct muster_grpc_call *call);
void muster_grpc_call_on_drained(struct muster_grpc_call *call);
void muster_grpc_call_on_close(struct muster_grpc_call *call, uint32_t code);

/* net/grpc/client/call_receive.c */
void muster_grpc_call_receive_init(struct muster_grpc_call *call);

/* net/grpc/client/call_retry.c */
/** The callback of the retry timer. A call whose stream has not closed yet restarts when it does.
 */
void muster_grpc_call_on_retry(struct muster_timer *timer);
/** The stream of a paused call has closed. */
void muster_grpc_call_resume(struct muster_grpc_call *call);
/** Asks the policy after an attempt that ended with rc: true, and the call is PAUSED, when another
 * one is due. False: the call ends. */
MUSTER_MUST_CHECK bool muster_grpc_call_repeat(struct muster_grpc_call *call, enum muster_rc rc,
                                               const char *text);
/** No connection takes the call: it is repeated by its policy, or decided. */
void muster_grpc_call_reject(struct muster_grpc_call *call, enum muster_rc rc, const char *text);
/** Sends the call again whose closed stream the server has not seen (A6, "transparent retries").
 * False: it must not be sent again. */
MUSTER_MUST_CHECK bool muster_grpc_call_resend(struct muster_grpc_call *call);

/* net/grpc/client/call_headers.c */
void muster_grpc_call_header_parse(struct muster_grpc_call *call, const char *name,
                                   size_t name_bytes, const char *value, size_t value_bytes);
MUSTER_MUST_CHECK enum muster_rc muster_grpc_call_request(struct muster_grpc_call *call,
                                                          struct muster_h2_session *session);

#endif
