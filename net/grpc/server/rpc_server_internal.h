/* Shared by the files of the gRPC server: server, connections and calls. */
#ifndef MUSTER_NET_RPC_SERVER_INTERNAL_H
#define MUSTER_NET_RPC_SERVER_INTERNAL_H

#include <muster/rpc.h>

#include "net/grpc/frame.h"
#include "net/grpc/metadata.h"
#include "net/h2/session.h"
#include "net/grpc/inbox.h"
#include "net/grpc/interceptor.h"
#include "net/grpc/server/lifetime.h"
#include "net/grpc/server/mismatch.h"
#include "net/grpc/server/method_table.h"
#include "net/grpc/server/ping_strikes.h"
#include "net/grpc/session.h"
#include "net/grpc/tally.h"

struct muster_rpc_connection;

/** An object that lives in a server and ends with it: memory of stubs, the services that the
 * library brings. */
struct muster_rpc_part {
    struct muster_list node;
    void (*on_closing)(struct muster_rpc_part *part); /* the drain begins; may be NULL */
    void (*on_closed)(struct muster_rpc_part *part);  /* no call is left: free it */
};

/** Clients whose TLS handshake is under way, and those that wait for a place to begin. */
struct rpc_guests {
    struct muster_list shaking, waiting; /* the oldest first */
    uint32_t shaking_count, waiting_count;
    struct muster_timer timer; /* while some wait: the oldest handshake takes too long */
};

struct muster_rpc_server {
    struct muster_env *env;
    struct muster_mem_pool pool; /* of connections and calls */
    void *data;
    struct muster_rpc_server_options options;
    struct muster_rpc_method_table methods;
    struct muster_rpc_method_slot fallback; /* for paths that methods lacks; method may be NULL */
    uint32_t fallback_open_count;
    struct muster_interceptor_chain interceptors;
    struct muster_rpc_metrics *metrics; /* NULL: calls are not counted */
    struct muster_rpc_counters own_counters, *counters;
    struct muster_list listeners;
    struct muster_list connections;
    struct rpc_guests guests;
    uint32_t connection_count;
    struct muster_list free_rpcs;              /* kept for the next calls */
    struct muster_list parts;                  /* of struct muster_rpc_part */
    struct muster_list pages;                  /* of struct muster_rpc_page */
    struct muster_list visits, closing_visits; /* net/grpc/server/server_visit.c */
    uint32_t visit_count;                      /* but for those that close */
    uint32_t free_rpc_count;
    bool is_closing, is_held;
    size_t memory_bytes;             /* that all calls hold, but those of expelled connections */
    struct muster_h2_holding unsent; /* answers of all but expelled connections */
    bool is_unsent_full;
    struct muster_timer unsent_timer; /* while it is full */
    uint32_t leaving_count;           /* connections that make room for others */
    struct muster_rpc_inflation inflation;
    struct muster_rpc_mismatches mismatches;
    struct muster_timer sweep_timer; /* server_stall.c */
    struct muster_task relief_task;  /* server_memory.c */
    struct muster_timer close_timer; /* the deadline of close */
    struct muster_task closed_task;  /* posted when the last part has gone */
    muster_rpc_server_close_fn *closed;
};

struct muster_rpc_connection {
    struct muster_list node;
    struct muster_rpc_server *server;
    struct muster_rpc_session session;
    const struct muster_identity *identity; /* of the stream; NULL: none */
    struct muster_rpc_ping_strikes pings;
    struct muster_rpc_lifetime lifetime;
    size_t memory_bytes; /* that its calls hold */
    struct muster_h2_holding unsent;
    uint64_t write_mark; /* at the last sweep */
    bool has_called;     /* a call has reached a service */
    bool is_expelled;    /* told to go; its memory counts for the server no more */
    bool is_making_room; /* told to go for another one; among leaving_count */
};

enum muster_rpc_state {
    MUSTER_RPC_STARTING, /* request headers are coming in */
    MUSTER_RPC_OPEN,     /* the service has it */
    MUSTER_RPC_FINISHED, /* the service has finished it; trailers are on their way */
    MUSTER_RPC_ENDED,    /* on_end has run, or the service never knew it */
};

/** The thing that a call awaits from its client. */
enum muster_rpc_awaited {
    MUSTER_RPC_AWAITS_NOTHING,
    MUSTER_RPC_AWAITS_HEADERS,
    MUSTER_RPC_AWAITS_REQUEST, /* a message of which the start is there, or a unary one */
    MUSTER_RPC_AWAITS_READER,  /* of the answer */
    MUSTER_RPC_AWAITS_END,     /* of the stream; nobody but HTTP/2 knows it any more */
};

/** Why the server ends a call, from the loop. */
enum muster_rpc_abort_reason {
    MUSTER_RPC_DEADLINE,    /* also of a call that nobody has decided to end */
    MUSTER_RPC_OVERFLOWING, /* its answers queue up */
    MUSTER_RPC_HEAVY,       /* its connection holds too much */
    MUSTER_RPC_STALLED,     /* its client is too slow */
    MUSTER_RPC_UNSENT,      /* the answers of all connections queue up */
};

/** How a request that is no proper call is answered. */
enum muster_rpc_refusal {
    MUSTER_RPC_ACCEPTED,
    MUSTER_RPC_PAGE,               /* GET / */
    MUSTER_RPC_NOT_FOUND,          /* GET anything else */
    MUSTER_RPC_METHOD_NOT_ALLOWED, /* 405 */
    MUSTER_RPC_UNSUPPORTED_MEDIA,  /* 415 */
};

struct muster_rpc {
    struct muster_h2_stream stream;
    struct muster_list node; /* of the server's free list */
    struct muster_rpc_connection *connection;
    const struct muster_rpc_method *method;
    uint32_t *open_count; /* of the method, this call among them; NULL: not counted */
    void *service;
    char *path; /* of a call that the fallback serves; NULL: the method's */
    void *data;
    enum muster_rpc_state state;
    struct muster_grpc_parser parser;
    struct muster_rpc_inbox inbox;
    struct muster_grpc_metadata metadata;
    struct muster_grpc_metadata initial;
    struct muster_grpc_metadata trailing;
    struct muster_interception interception;
    struct muster_rpc_tally tally;
    struct muster_timer timer; /* the deadline, or an overflow to be acted upon */
    uint64_t deadline_ns;
    /* the request line */
    bool is_post, is_get, is_head, is_root, is_grpc;
    bool is_page;                 /* no call: GET of / or of a page */
    struct muster_rpc_page *page; /* NULL: none has the path */
    bool has_bad_timeout, has_unknown_encoding, has_unknown_codec;
    bool is_gzip_welcome; /* grpc-accept-encoding has it */
    enum muster_rc metadata_rc;
    /* progress */
    bool are_headers_sent;
    bool has_compression, is_compressing;
    enum muster_rpc_abort_reason abort_reason;
    uint64_t received_bytes;
    enum muster_rpc_awaited awaited; /* at the last sweep */
    uint64_t awaited_mark, awaited_since_ns;
    size_t accounted_bytes;
    bool has_message;
    struct muster_bytes held; /* a unary request that waits for the end of the stream */
    /* the outcome */
    enum muster_rc status; /* its text is in trailing */
};

static inline struct muster_loop *muster_rpc_loop(const struct muster_rpc *rpc)
{
    return rpc->connection->server->env->loop;
}

/* net/grpc/server/server.c */
/** The server's credential; NULL: it speaks plain text. */
static inline const struct muster_tls *muster_rpc_server_tls(const struct muster_rpc_server *server)
{
    return server->options.tls;
}

/* net/grpc/server/server_core.c: the states of a call; how calls, connections and the server end.
 */
void muster_rpc_move(struct muster_rpc *rpc, enum muster_rpc_state state);
/** As muster_rpc_abort, but in the next turn of the loop, for callers inside a service's function.
 */
void muster_rpc_abort_later(struct muster_rpc *rpc, enum muster_rpc_abort_reason reason);
/** Asks the client to leave by GOAWAY; the connection ends when its calls have. */
void muster_rpc_connection_drain(struct muster_rpc_connection *connection);
/** Ends a connection that costs too much: GOAWAY with ENHANCE_YOUR_CALM and text (static) if the
 * client can still be told, then as close. */
void muster_rpc_connection_expel(struct muster_rpc_connection *connection, const char *text);
/** Asks an idle connection to leave, and closes it soon after. */
void muster_rpc_connection_make_room(struct muster_rpc_connection *connection);
/** Closes it at once; its calls end UNAVAILABLE. */
void muster_rpc_connection_close(struct muster_rpc_connection *connection);
/** To be called when a part of the server has gone: closed follows the last one. */
void muster_rpc_server_check_closed(struct muster_rpc_server *server);

/* net/grpc/server/server_page.c */
#define MUSTER_RPC_PAGE_TYPE "text/plain; charset=utf-8"

/** The page of a path, which may have a query; NULL: none. */
struct muster_rpc_page *muster_rpc_server_find_page(const struct muster_rpc_server *server,
                                                    const char *path, size_t path_bytes);
/** Asks the page for its answer. Gives ret_answer->body. */
void muster_rpc_page_ask(struct muster_rpc_page *page, struct muster_rpc_page_answer *ret_answer);

/* net/grpc/server/server_visit.c */
/** Serves a stream that speaks HTTP/2, or asks for one page by HTTP/1.1. Takes stream. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_server_visit(struct muster_rpc_server *server,
                                                         struct muster_stream *stream);
void muster_rpc_server_end_visits(struct muster_rpc_server *server);

/* net/grpc/server/server_tls.c */
/** Begins the TLS handshake, or puts it in line. Takes stream; its connection opens afterwards. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_server_shake(struct muster_rpc_server *server,
                                                         struct muster_stream *stream);
void muster_rpc_server_guests_init(struct muster_rpc_server *server);
void muster_rpc_server_cancel_guests(struct muster_rpc_server *server);

/* net/grpc/server/server_connection.c */
/** As muster_rpc_server_attach, for a stream whose handshake is done, or that has none. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_server_attach_secured(struct muster_rpc_server *server,
                                                                  struct muster_stream *stream);
/** Shows the server's counters under this name, unless they are shown under another. */
void muster_rpc_server_name_counters(struct muster_rpc_server *server, const char *name);

/* net/grpc/server/server_call_events.c: the life of a call, driven by its connection's events. */
struct muster_rpc *muster_rpc_new(struct muster_rpc_connection *connection);
void muster_rpc_on_headers(struct muster_rpc *rpc);
void muster_rpc_on_over_limit(struct muster_rpc *rpc);
void muster_rpc_on_trailers(struct muster_rpc *rpc);
void muster_rpc_on_drained(struct muster_rpc *rpc);
void muster_rpc_on_close(struct muster_rpc *rpc, uint32_t code);

/* net/grpc/server/server_call.c */
/** Moves the call to ENDED and runs on_end. */
void muster_rpc_end(struct muster_rpc *rpc, enum muster_rc rc);
/** Ends the call from the library's side: queued answers are dropped, and the client is told why.
 */
void muster_rpc_abort(struct muster_rpc *rpc, enum muster_rc status, const char *message);
/** Takes the record of a call whose stream has gone; a few are kept for the next calls. */
void muster_rpc_release(struct muster_rpc *rpc);
void muster_rpc_free(struct muster_rpc *rpc);

/* net/grpc/server/server_memory.c */
void muster_rpc_server_memory_init(struct muster_rpc_server *server);
/** Counts the memory of a call again; to be called whenever that has changed. */
void muster_rpc_account(struct muster_rpc *rpc);
void muster_rpc_unaccount(struct muster_rpc *rpc);
/** Whether its connection may hold so much more. */
bool muster_rpc_is_affordable(struct muster_rpc *rpc, size_t more);

/* net/grpc/server/server_unsent.c */
void muster_rpc_server_unsent_init(struct muster_rpc_server *server);
/** Whether its connection may queue so many more bytes of answers, or with 0 begin another call. */
bool muster_rpc_may_queue(struct muster_rpc *rpc, size_t more);
#define MUSTER_RPC_UNSENT_TEXT "too many answers of this server wait to be sent: read them"

/* net/grpc/server/server_stall.c */
void muster_rpc_server_watch_init(struct muster_rpc_server *server);
/** Begins to sweep for slow clients; the sweeps go on while there are connections. */
void muster_rpc_server_watch(struct muster_rpc_server *server);

/* net/grpc/server/server_limits.c */
/** Whether the method takes one more call, whose message and deadline are then held to its limits.
 * Else ret_error tells the client why. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_admit(struct muster_rpc *rpc,
                                                  struct muster_error *ret_error);
/** Counts an admitted call as open, and as over. */
void muster_rpc_count(struct muster_rpc *rpc);
void muster_rpc_uncount(struct muster_rpc *rpc);

/* net/grpc/server/server_receive.c */
extern const struct muster_rpc_inbox_events muster_rpc_inbox_events;
void muster_rpc_on_data(struct muster_rpc *rpc, struct muster_bytes bytes, bool is_last);
void muster_rpc_on_end(struct muster_rpc *rpc);
void *muster_rpc_on_place(void *owner, size_t bytes); /* a muster_grpc_place_fn */

/* net/grpc/server/server_headers.c: what is read from request headers and written as response
 * headers. */
void muster_rpc_header_parse(struct muster_rpc *rpc, const char *name, size_t name_bytes,
                             const char *value, size_t value_bytes);
enum muster_rpc_refusal muster_rpc_headers_judge(const struct muster_rpc *rpc);
void muster_rpc_refuse(struct muster_rpc *rpc, enum muster_rpc_refusal refusal);
void muster_rpc_respond(struct muster_rpc *rpc);
void muster_rpc_respond_trailers_only(struct muster_rpc *rpc);
void muster_rpc_submit_trailers(struct muster_rpc *rpc);

#endif
