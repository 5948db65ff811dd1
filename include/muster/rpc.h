/* gRPC over HTTP/2: calls (client; channel.h has where they go), servers and methods. Messages are
 * bytes here.
 *
 * Fixed limits, both sides: 16 KiB of headers (beyond: RESOURCE_EXHAUSTED), 100 metadata
 * entries (the path of a request is one of them), windows of 1 MiB per stream and 16 MiB per
 * connection. A stream that the server never processed is sent again, at most 4 times; failed calls
 * as muster_retry_policy in channel.h says. Too many resets, provoked stream errors, empty or
 * CONTINUATION frames, settings or pings, or 128 KiB of headers in one list end the connection.
 * The limits that can be set stand in the options.
 *
 * Thread: loop only, all functions here. done, on_end and closed never run inside the function that
 * leads to them. */
#ifndef MUSTER_RPC_H
#define MUSTER_RPC_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/channel.h>
#include <muster/env.h>
#include <muster/proto.h>
#include <muster/status.h>
#include <muster/stream.h>
#include <muster/tls.h>

MUSTER_BEGIN

struct muster_rpc_subchannel;
struct muster_call;
struct muster_rpc_server;
struct muster_rpc;

/** One message. Borrowed for the duration of the callback that shows it. */
struct muster_bytes {
    const void *data;
    size_t size;
};

/** One metadata entry; "-bin" names carry raw bytes (base64 is done inside). Lower-case names. */
struct muster_metadata_entry {
    const char *name;
    const void *value; /* received ones have a NUL after value_bytes */
    size_t value_bytes;
};
struct muster_metadata {
    const struct muster_metadata_entry *entries;
    size_t count;
};
/** The first entry of that name, or NULL. Borrowed. */
MUSTER_API const struct muster_metadata_entry *muster_metadata_find(
    const struct muster_metadata *metadata, const char *name);

/** Each message says itself whether it is compressed: one that would not get smaller is sent as it
 * is. What comes in gzip is always taken. */
enum muster_compression {
    MUSTER_COMPRESSION_NONE,
    MUSTER_COMPRESSION_GZIP, /* RFC 1952, at zlib's usual level */
};

/** A message that is sent without a copy. Caller's memory, borrowed with its pieces until
 * released. */
struct muster_loan;
typedef void muster_loan_fn(struct muster_loan *loan);
struct muster_loan {
    void *data;
    /* private */
    muster_loan_fn *released;
    struct muster_loop *loop;
    struct muster_task task;
    size_t buffer_count;
};

/* Client. */

typedef void muster_call_message_fn(struct muster_call *call, struct muster_bytes message);
typedef void muster_call_event_fn(struct muster_call *call);
typedef void muster_call_done_fn(struct muster_call *call, enum muster_rc rc);

/** As muster_rpc_place_fn, of a response message; the library writes there until on_message or done. */
typedef void *muster_call_place_fn(struct muster_call *call, size_t bytes);

struct muster_call_options {
    const char *method;   /* "/package.Service/Method" */
    uint64_t deadline_ns; /* absolute loop time; UINT64_MAX only for long-lived streams */
    struct muster_metadata metadata;     /* borrowed during start */
    bool wait_for_ready;                 /* wait out TRANSIENT_FAILURE instead of UNAVAILABLE */
    enum muster_compression compression; /* of what is sent */
    muster_call_event_fn *on_headers;    /* may be NULL */
    muster_call_place_fn *on_place;      /* for large messages; may be NULL */
    muster_call_message_fn *on_message;
    muster_call_event_fn *on_writable; /* the last send has left the queue; may be NULL */
    /* private */
    struct muster_rpc_subchannel *subchannel; /* NULL: as the channel chooses */
};

/** One call of any kind. Caller's memory, first field is the caller's. */
struct muster_call {
    void *data;
    /* valid in done */
    struct muster_error status; /* rc and grpc-message */
    /* borrowed until done returns; the initial one is there from on_headers on */
    struct muster_metadata initial_metadata, trailing_metadata;
    bool is_unsent;   /* it ended before a connection took it: the server cannot have acted */
    bool is_answered; /* the server has sent status; false: the call ended here, or on the way */
    /* private */
    muster_call_done_fn *done;
    void *impl;
};

/** Open the stream. done runs once, after the last message, with the gRPC status. Borrows call until
 * done, options during the call. Errors: returned FAILED_PRECONDITION (the channel is closed),
 * RESOURCE_EXHAUSTED (no memory, too many metadata entries), INVALID_ARGUMENT (no options, no method,
 * a deadline_ns that is zero or past, metadata that gRPC does not allow); call->status says why. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_call_start(
    struct muster_call *call, struct muster_channel *channel,
    const struct muster_call_options *options, muster_call_done_fn *done);
/** Queue one message (copied). Once the call's end is decided, messages until done are dropped with
 * MUSTER_OK. Errors: FAILED_PRECONDITION after half_close or done; RESOURCE_EXHAUSTED for a message
 * above the method policy's request_max_bytes or from 4 GiB on, beyond 256 MiB queued, without memory. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_call_send(struct muster_call *call,
                                                             const void *message, size_t bytes);
/** As muster_call_send of all pieces in order, without a copy. After MUSTER_OK, released runs exactly
 * once, from the loop, when nobody reads the pieces any more, however the call ends; after an error
 * never. The array pieces is borrowed during this function only. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_call_send_loan(struct muster_call *call,
                                                                  struct muster_loan *loan,
                                                                  const struct iovec *pieces,
                                                                  size_t count,
                                                                  muster_loan_fn *released);
/** The messages sent from now on are compressed, or not; only of a call that started with a
 * compression. */
MUSTER_API void muster_call_set_compressing(struct muster_call *call, bool is_compressing);
/** From on_headers on: what the server compresses its messages with, if it does. */
MUSTER_API enum muster_compression muster_call_compression(const struct muster_call *call);
/** In on_message: whether this message came compressed. */
MUSTER_API bool muster_call_is_compressed(const struct muster_call *call);
/** No on_message runs from here on, also not for what has come already; then the server cannot send
 * more than the stream's window (1 MiB), which waits here beside at most one message in pieces.
 * Other calls of the connection go on. done still comes at once after a cancel, at the deadline,
 * and when the call or its connection breaks; an orderly end waits until the messages before it were
 * shown. From any callback; idempotent. */
MUSTER_API void muster_call_pause(struct muster_call *call);
/** Resume a paused call; messages that arrived meanwhile are delivered from the loop. */
MUSTER_API void muster_call_resume(struct muster_call *call);
/** No more messages from this side. */
MUSTER_API void muster_call_half_close(struct muster_call *call);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_call_cancel(struct muster_call *call);
/** Bytes queued and not yet taken by flow control. */
MUSTER_API size_t muster_call_queued_bytes(const struct muster_call *call);

/** The common case: one message each way. */
struct muster_unary {
    void *data;
    /* valid in done */
    struct muster_bytes response; /* borrowed until done returns */
    struct muster_error status;
    /* private */
    void (*done)(struct muster_unary *unary, enum muster_rc rc);
    struct muster_call call;
    void *copy;
};
typedef void muster_unary_done_fn(struct muster_unary *unary, enum muster_rc rc);
/** Borrows unary until done; method and request during this function. Errors: returned as
 * muster_call_start, unary->status says why; by done UNIMPLEMENTED for no response or several. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_unary_start(
    struct muster_unary *unary, struct muster_channel *channel, const char *method,
    const void *request, size_t bytes, uint64_t deadline_ns, muster_unary_done_fn *done);
/** As muster_call_cancel. */
MUSTER_API void muster_unary_cancel(struct muster_unary *unary);

/* Server. */

typedef void muster_rpc_event_fn(struct muster_rpc *rpc);
typedef void muster_rpc_message_fn(struct muster_rpc *rpc, struct muster_bytes message);
/** Where a message of so many bytes, which is beginning to come, shall arrive: each byte is copied
 * there once, from the connection's buffer. NULL: in memory of the library's. The memory is the
 * service's; the library writes to it until on_message shows the message there, or until on_end.
 * Not asked for compressed messages. */
typedef void *muster_rpc_place_fn(struct muster_rpc *rpc, size_t bytes);
/** Runs exactly once per call, last: OK after a normal finish, CANCELLED / DEADLINE_EXCEEDED /
 * UNAVAILABLE else. */
typedef void muster_rpc_end_fn(struct muster_rpc *rpc, enum muster_rc rc);

/** One method; static or owned by the service, borrowed by the server until close. */
struct muster_rpc_method {
    const char *path;                   /* "/package.Service/Method"; the slash in front is a must */
    muster_rpc_event_fn *on_start;      /* headers are there; may be NULL */
    muster_rpc_place_fn *on_place;      /* for large messages; may be NULL */
    muster_rpc_message_fn *on_message;  /* each request message */
    muster_rpc_event_fn *on_half_close; /* the client will send no more; may be NULL */
    muster_rpc_event_fn *on_writable;   /* the send queue is empty again; may be NULL */
    muster_rpc_end_fn *on_end;          /* may be NULL */
    bool is_unary; /* exactly one request message: the library answers a client that breaks this */
    /* limits of this method alone */
    size_t receive_message_max_bytes; /* 0: the server's */
    uint32_t concurrent_calls_max;    /* 0: none; beyond it calls end RESOURCE_EXHAUSTED */
    uint64_t timeout_ns;              /* 0: none; for a call that comes without a deadline */
    uint64_t timeout_max_ns;          /* 0: none; a later deadline, or none, is brought forward */
};

struct muster_rpc_server_options {
    size_t receive_message_max_bytes; /* 0: 4 MiB */
    size_t
        send_queue_max_bytes; /* 0: 64 MiB per call; beyond it the call ends RESOURCE_EXHAUSTED */
    uint32_t concurrent_streams_max; /* 0: 1,000 per connection */
    uint32_t connections_max;        /* 0: 10,000; beyond it an idle one makes room for a new one */
    uint64_t keepalive_interval_ns;  /* 0: 2 h */
    uint64_t keepalive_timeout_ns;   /* 0: 20 s */
    /* A client whose pings come faster is sent away at the third (gRPC A8); what the server sends for
     * a call forgives them. */
    uint64_t ping_interval_min_ns;      /* 0: 5 s */
    uint64_t idle_ping_interval_min_ns; /* while no call is open; 0: as ping_interval_min_ns */
    /* Connections that are asked to leave (gRPC A9); their calls may end. */
    uint64_t connection_idle_max_ns;  /* 0: none; without a call for so long */
    uint64_t connection_age_max_ns;   /* 0: none; each connection moves it by up to 10 % */
    uint64_t connection_age_grace_ns; /* 0: none; then open calls end UNAVAILABLE */
    uint64_t handshake_timeout_ns;    /* 0: 10 s for the first HTTP/2 frames */
    /* Within it a client has to send 16 KiB of a request that it has begun, or its rest: else the
     * call ends DEADLINE_EXCEEDED (or the connection, amid headers). And its socket has to take one
     * write of up to 1 MiB: else the connection ends. Looked at once per timeout, so that twice the
     * time may go by. */
    uint64_t stall_timeout_ns; /* 0: 60 s */
    /* Within it a client has to take 16 KiB of the answer of a call that the service has finished, or
     * its rest: else the stream is reset. A client may pause so long. */
    uint64_t reader_timeout_ns; /* 0: 10 min */
    /* Memory of calls: records, headers, requests that are incomplete or wait, queued answers. */
    size_t memory_max_bytes;            /* 0: 1 GiB; beyond it the heaviest connection is ended */
    size_t connection_memory_max_bytes; /* 0: 256 MiB; beyond it calls end RESOURCE_EXHAUSTED */
    /* Answers of all calls that wait to be sent, copied or lent. Beyond it a connection that has more
     * than its share of them (this divided by the connections) gets RESOURCE_EXHAUSTED for new calls
     * and further answers, and those whose clients have not read for a second are ended, the longest
     * stalled first. 0: a quarter of memory_max_bytes (256 MiB), no less than send_queue_max_bytes. */
    size_t unsent_max_bytes;
    const struct muster_interceptor *const *interceptors; /* array copied, each borrowed */
    size_t interceptor_count;
    struct muster_tls *tls; /* NULL: plain text; else nothing but TLS. Shared until closed */
};

typedef void muster_rpc_server_close_fn(struct muster_rpc_server *server);

/** Serves nothing until methods are added and an address is listened on. Borrows env until closed.
 * Gives. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (too many interceptors). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_server_open(
    struct muster_env *env, const struct muster_rpc_server_options *options,
    struct muster_rpc_server **ret_server);
/** Serve methods, which are borrowed until close; muster_rpc_service gives service back. Errors:
 * ALREADY_EXISTS (a path is taken), RESOURCE_EXHAUSTED; nothing is added then. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_server_add(
    struct muster_rpc_server *server, const struct muster_rpc_method *methods, size_t count,
    void *service);
/** Set the method that serves every path without a method of its own (a proxy, a catch-all). Its
 * path field is not read; muster_rpc_path gives the caller's. NULL: such calls end UNIMPLEMENTED,
 * the default. Borrows method until close. */
MUSTER_API void muster_rpc_server_set_fallback(struct muster_rpc_server *server,
                                               const struct muster_rpc_method *method,
                                               void *service);
struct muster_rpc_page;
/** Starts as 200, plain text, without a body. */
struct muster_rpc_page_answer {
    int status;       /* 200, 500 or 503 */
    const char *type; /* static text of at most 128 bytes */
    char *body;       /* of the memory of the server's env; the server takes it */
    size_t body_bytes;
};
/** Fills in the answer before it returns. */
typedef void muster_rpc_page_fn(struct muster_rpc_page *page,
                                struct muster_rpc_page_answer *answer);
/** Caller's memory, borrowed until the server is closed. */
struct muster_rpc_page {
    void *data;
    const char *path; /* "/health"; static text */
    muster_rpc_page_fn *on_request;
    /* private */
    struct muster_list node;
};
/** Answer GET and HEAD of a path at the server's own port, for probes: by HTTP/2, and by HTTP/1.1 with
 * one request for each connection (8 KiB of it, within 10 s). Before listen. */
MUSTER_API void muster_rpc_server_add_page(struct muster_rpc_server *server,
                                           struct muster_rpc_page *page);
/** Bind one more address; *ret_bound (may be NULL) has the port that a port of 0 became. Errors:
 * FAILED_PRECONDITION (the server closes, or its credential has no certificate), RESOURCE_EXHAUSTED,
 * and those of muster_listener_open. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_server_listen(
    struct muster_rpc_server *server, const struct muster_address *address,
    struct muster_address *ret_bound, struct muster_error *ret_error);
/** While the server is held it accepts no connection: clients connect and wait. Also of addresses to
 * come. Not after close. */
MUSTER_API void muster_rpc_server_hold(struct muster_rpc_server *server, bool is_held);
/** Serve one accepted stream (first bytes unread). Takes stream, also on failure. Errors:
 * FAILED_PRECONDITION (the server closes), RESOURCE_EXHAUSTED (no memory, or no connection is idle to
 * make room). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_server_attach(
    struct muster_rpc_server *server, struct muster_stream *stream);
/** GOAWAY, let open calls end until deadline_ns (absolute loop time), then close; calls that are open
 * then end UNAVAILABLE. closed (may be NULL) runs last. A second close does nothing. */
MUSTER_API void muster_rpc_server_close(struct muster_rpc_server *server, uint64_t deadline_ns,
                                        muster_rpc_server_close_fn *closed);
MUSTER_API void muster_rpc_server_set_data(struct muster_rpc_server *server, void *data);
MUSTER_API void *muster_rpc_server_data(const struct muster_rpc_server *server);

/** A call seen from the server. Lives until on_end returns. */
MUSTER_API void *muster_rpc_service(const struct muster_rpc *rpc);
/** "/package.Service/Method" as the client asked for it. Borrowed for the call's life. */
MUSTER_API const char *muster_rpc_path(const struct muster_rpc *rpc);
MUSTER_API void muster_rpc_set_data(struct muster_rpc *rpc, void *data);
MUSTER_API void *muster_rpc_data(const struct muster_rpc *rpc);
MUSTER_API struct muster_env *muster_rpc_env(const struct muster_rpc *rpc);
MUSTER_API struct muster_metadata muster_rpc_metadata(const struct muster_rpc *rpc);
MUSTER_API const struct muster_address *muster_rpc_peer(const struct muster_rpc *rpc);
/** Identity of the caller from its verified certificate; NULL: plain text, or a client without a
 * certificate. Borrowed for the life of the call. */
MUSTER_API const struct muster_identity *muster_rpc_identity(const struct muster_rpc *rpc);
/** Absolute loop time; UINT64_MAX when the client named none. */
MUSTER_API uint64_t muster_rpc_deadline_ns(const struct muster_rpc *rpc);
/** Initial metadata (copied); must precede the first send. */
MUSTER_API void muster_rpc_send_headers(struct muster_rpc *rpc, struct muster_metadata metadata);
/** Compress what is sent, if the client takes that; must precede headers and the first send. */
MUSTER_API void muster_rpc_set_compression(struct muster_rpc *rpc,
                                           enum muster_compression compression);
/** As muster_call_set_compressing, muster_call_compression and muster_call_is_compressed. */
MUSTER_API enum muster_compression muster_rpc_compression(const struct muster_rpc *rpc);
MUSTER_API void muster_rpc_set_compressing(struct muster_rpc *rpc, bool is_compressing);
MUSTER_API bool muster_rpc_is_compressed(const struct muster_rpc *rpc);
/** As muster_call_pause and muster_call_resume: on_message waits, and on_half_close after it; on_end
 * does not wait. From any callback, also on_start. */
MUSTER_API void muster_rpc_pause(struct muster_rpc *rpc);
MUSTER_API void muster_rpc_resume(struct muster_rpc *rpc);
/** Queue one message (copied). RESOURCE_EXHAUSTED beyond the bound; FAILED_PRECONDITION after
 * finish. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_send(struct muster_rpc *rpc,
                                                            const void *message, size_t bytes);
/** As muster_rpc_send of all pieces in order, without a copy; see muster_call_send_loan. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_send_loan(struct muster_rpc *rpc,
                                                                 struct muster_loan *loan,
                                                                 const struct iovec *pieces,
                                                                 size_t count,
                                                                 muster_loan_fn *released);
MUSTER_API size_t muster_rpc_queued_bytes(const struct muster_rpc *rpc);
/** Trailers with status and message (NULL: none; copied). on_end follows once they are out. */
MUSTER_API void muster_rpc_finish(struct muster_rpc *rpc, enum muster_rc rc, const char *message);
/** Trailing metadata (copied); before finish. */
MUSTER_API void muster_rpc_set_trailers(struct muster_rpc *rpc, struct muster_metadata metadata);

/* Functions that see each call of a channel or a server, add metadata to it, or refuse it.
 *
 * A chain is an array of pointers in the options of the channel or server. on_start and on_send
 * run in the order of the array, all others in the opposite one. A chain of none costs nothing,
 * and none allocates. */

#define MUSTER_INTERCEPTORS_MAX 8

struct muster_interceptor;

/** One call as an interceptor sees it. Valid during the function that gets it; what it points to
 * as well. */
struct muster_intercepted {
    void *data; /* of this interceptor and this call: NULL in on_start, then what it left there */
    const struct muster_interceptor *interceptor;
    struct muster_env *env;
    const char *method;              /* "/package.Service/Method" */
    struct muster_metadata metadata; /* of the request, decoded; at a client in on_start only */
    uint64_t start_ns;               /* loop time of on_start */
    uint64_t deadline_ns;            /* absolute loop time; UINT64_MAX: none */
    struct muster_call *call;        /* at a client, else NULL */
    struct muster_rpc *rpc;          /* at a server, else NULL: muster_rpc_peer and the like */
    /* private */
    struct muster_grpc_metadata *added;
};

struct muster_intercepted_message {
    const struct iovec *pieces; /* in order; plain, whatever goes over the wire */
    size_t count;
    size_t bytes;      /* of all pieces */
    size_t wire_bytes; /* as sent or received: compressed or not, without its prefix */
};

struct muster_intercepted_end {
    enum muster_rc rc;    /* client: the outcome. Server: the status sent; when none was, why */
    const char *text;     /* grpc-message; at a server "" */
    uint64_t duration_ns; /* since on_start */
    struct muster_metadata trailing; /* client: received. Server: sent */
};

/** Each function may be NULL. The struct is borrowed until the channel or server is closed. The
 * functions run on the loop and must not end or start anything of the call that they see. */
struct muster_interceptor {
    void *data; /* the owner's */
    /* A client's call before anything is sent, a server's before its method sees it. Other than
     * OK: the call ends with that status and the error's text; of the interceptors before this one
     * on_end runs, of this one and those after it nothing more. */
    enum muster_rc (*on_start)(struct muster_intercepted *call, struct muster_error *ret_error);
    /* A message is queued (client: of the request; server: of the response), or is shown next. */
    void (*on_send)(struct muster_intercepted *call,
                    const struct muster_intercepted_message *message);
    void (*on_receive)(struct muster_intercepted *call,
                       const struct muster_intercepted_message *message);
    /* Client: the call goes to a connection (attempt 1, 2, ...), and what became of that. */
    void (*on_attempt)(struct muster_intercepted *call, unsigned attempt);
    void (*on_attempt_end)(struct muster_intercepted *call, enum muster_rc rc);
    /* Exactly once for each on_start that gave OK; just before the call's own done or on_end. */
    void (*on_end)(struct muster_intercepted *call, const struct muster_intercepted_end *end);
};

/** In on_start: metadata (copied) of the request at a client; at a server of the response, sent
 * with its headers when it has any. Errors: INVALID_ARGUMENT (a name or value that gRPC does not
 * allow), RESOURCE_EXHAUSTED, FAILED_PRECONDITION (not in on_start). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_intercepted_add(struct muster_intercepted *call,
                                                                   const char *name,
                                                                   const void *value,
                                                                   size_t value_bytes);

/* The health service of a gRPC server (grpc.health.v1): what load balancers, `grpc` probes of
 * Kubernetes and clients ask before they send calls. */

struct muster_rpc_health;

/** grpc.health.v1.HealthCheckResponse.ServingStatus. */
enum muster_health_status {
    MUSTER_HEALTH_UNKNOWN = 0,
    MUSTER_HEALTH_SERVING = 1,
    MUSTER_HEALTH_NOT_SERVING = 2,
    MUSTER_HEALTH_SERVICE_UNKNOWN = 3,
};

/**
 * Serve Check, Watch and List on `server`. The empty name, the whole server, is SERVING at first.
 *
 * When the server begins to close, all services are NOT_SERVING and each Watch ends with
 * UNAVAILABLE after it has been told, so that none of them holds up the drain.
 *
 * Bounds:  1,000 open Watch calls, beyond them RESOURCE_EXHAUSTED; a Watch that does not read is
 *          told the newest status alone; List answers RESOURCE_EXHAUSTED beyond 100 services;
 *          names of at most 1,024 bytes.
 * Owns:    the health belongs to server and ends with it.
 * Errors:  ALREADY_EXISTS when the server has the service already, RESOURCE_EXHAUSTED.
 * Source:  grpc/doc/health-checking.md, gRFC A90.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_health_open(
    struct muster_rpc_server *server, struct muster_rpc_health **ret_health);
/** service: "package.Service", "" for the whole server. MUSTER_HEALTH_SERVICE_UNKNOWN forgets it.
 * After a shut-down nothing changes any more. Errors: INVALID_ARGUMENT (name too long),
 * RESOURCE_EXHAUSTED. */
MUSTER_API enum muster_rc muster_rpc_health_set(struct muster_rpc_health *health,
                                                const char *service,
                                                enum muster_health_status status);
/** All services are NOT_SERVING from now on, before the server closes: so that clients go elsewhere
 * first. */
MUSTER_API void muster_rpc_health_shut_down(struct muster_rpc_health *health);

/* Metrics of gRPC calls under the names of gRFC A66, and of connections as channelz counts them:
 * for env->metrics, and so for /metrics. */

struct muster_rpc_metrics;

/**
 * Count the calls of all servers and channels that are opened while env->rpc_metrics is what this
 * gives: open it before them, close it after them.
 *
 * Servers:  grpc_server_call_started_total{grpc_method}, grpc_server_call_duration_seconds,
 *           grpc_server_call_sent_total_compressed_message_size_bytes and …_rcvd_…
 *           {grpc_method, grpc_status}.
 * Channels: grpc_client_attempt_started_total{grpc_method, grpc_target},
 *           grpc_client_attempt_duration_seconds, grpc_client_attempt_sent_… and _rcvd_…,
 *           grpc_client_call_duration_seconds {grpc_method, grpc_target, grpc_status}.
 * Both:     muster_rpc_server_…{server} and muster_rpc_channel_…{target}: connections,
 *           connections_opened_total, streams_started_total, streams_succeeded_total,
 *           streams_failed_total, messages_sent_total, messages_received_total,
 *           keepalives_sent_total. server is the first address listened on.
 *           Servers also report unsent_bytes (answers that wait to be sent), and how many calls were
 *           refused and connections closed because too much waited: unsent_refusals_total,
 *           unsent_expulsions_total (see unsent_max_bytes of the options).
 *
 * Units:    seconds, from the turn of the loop in which a call came or began; bytes of messages as they are
 *           on the wire, without gRPC's and HTTP/2's framing.
 * Bounds:   methods that a server has not are "other". 512 pairs of method and target, 128 servers
 *           and targets have series of their own; what comes after them is "other".
 * Owns:     gives; borrows env until closed.
 * Errors:   FAILED_PRECONDITION (env->metrics is NULL), RESOURCE_EXHAUSTED.
 * Source:   gRFC A66 (names, labels, buckets), gRFC A14 (counters of sockets).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_metrics_open(
    struct muster_env *env, struct muster_rpc_metrics **ret_metrics);
/** Takes; NULL is accepted. Before env->metrics is closed. */
MUSTER_API void muster_rpc_metrics_close(struct muster_rpc_metrics *metrics);

/* The reflection service of a gRPC server (grpc.reflection.v1 and v1alpha): clients that have no
 * .proto files, grpcurl for one, ask the server for them. */

/**
 * Serve ServerReflectionInfo on `server`, under both names.
 *
 * The services that are listed are those that the server has methods of, also of later
 * muster_rpc_server_add; what can be said about them stands in `sets`, which protoc-gen-muster
 * makes (NAME_descriptors). The files of the health and reflection services are known besides. A
 * file is sent together with all that it imports.
 *
 * Bounds:  a client that does not read is not read from once 256 KiB of answers wait for it.
 * Owns:    copies the array; borrows what it points at, static as a rule, until server is closed.
 * Errors:  ALREADY_EXISTS when the server has the service already, RESOURCE_EXHAUSTED (no memory, or
 *          more than 1,024 files).
 * Source:  grpc/doc/server-reflection.md, gRFC A15.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_reflection_open(
    struct muster_rpc_server *server, const struct muster_descriptors *const *sets, size_t count);

MUSTER_END

#endif
