/* Inside the fake cloud: one request and how its answer is played, whatever the wire. */
#ifndef MUSTER_FAKE_CLOUD_INTERNAL_H
#define MUSTER_FAKE_CLOUD_INTERNAL_H

#include "fake_cloud.h"
#include "fake_tls.h"

#define FAKE_REQUESTS_KEPT 4096
#define FAKE_HEADER_BYTES  (64u << 10)
#define FAKE_BODY_BYTES    (4u << 20)
#define FAKE_PIECE_BYTES   (64u << 10)

struct fake_exchange;

/** How an answer leaves: HTTP/1.1 or HTTP/2. After each body the wire calls fake_exchange_drained, later. */
struct fake_wire {
    /* length < 0: unknown */
    void (*head)(struct fake_exchange *exchange, int status, const struct muster_json *headers,
                 const char *content_type, int64_t length);
    void (*body)(struct fake_exchange *exchange, const void *bytes, size_t count);
    void (*end)(struct fake_exchange *exchange);
    void (*raw)(struct fake_exchange *exchange, const char *text); /* and break */
    void (*breaks)(struct fake_exchange *exchange);
};

/** A request as it was sent; shared by its answer and the list of kept ones. */
struct fake_record {
    struct fake_cloud_request request;
    char *method, *target, *path, *body;
    struct muster_json *headers, *query;
    unsigned refs;
};

enum fake_phase { FAKE_WAITING, FAKE_BODY, FAKE_CHUNKS, FAKE_HELD, FAKE_ENDED };

/** Embedded by a wire's connection or stream. */
struct fake_exchange {
    struct fake_cloud *cloud;
    const struct fake_wire *wire;
    struct muster_list node;     /* of open answers */
    struct muster_json *headers; /* until begin */
    struct fake_record *record;  /* from begin */
    const struct muster_json *response;
    enum fake_phase phase;
    struct muster_timer timer;
    char *body;
    size_t body_bytes;
    uint64_t total_bytes; /* announced */
    uint64_t until_bytes; /* sent before the cut */
    uint64_t sent_bytes;
    size_t chunk;
};

/** One connection, of either wire. */
struct fake_connection {
    struct muster_list node;
    struct fake_cloud *cloud;
    void (*close)(struct fake_connection *connection);
};

/** An entry of the script. */
struct fake_entry {
    struct muster_list node;
    struct muster_json *root; /* of the entry that owns the tree; NULL: another does */
    const struct muster_json *match;
    const struct muster_json *response;
    int64_t times; /* left; -1: always */
};

struct fake_cloud {
    struct muster_env *env;
    struct muster_listener *listener;
    struct fake_identity *identity;
    struct fake_tls_context *tls;
    struct fake_cloud_options options;
    struct fake_cloud_counts counts;
    char base[64];
    char hostport[48];
    char host[40];
    char port[8];
    struct muster_list entries;
    struct muster_list retired; /* entries whose answers may still be played */
    struct muster_list connections;
    struct muster_list answers; /* of fake_exchange */
    struct fake_record *kept[FAKE_REQUESTS_KEPT];
    size_t kept_count;
    fake_cloud_log_fn *on_request;
    void *log_data;
    struct muster_task task;
    fake_cloud_close_fn *closed;
    void *closed_data;
    bool is_closing;
    bool is_listener_closed;
};

/* fake_cloud.c */
void fake_connection_init(struct fake_connection *connection, struct fake_cloud *cloud,
                          void (*close)(struct fake_connection *connection));
void fake_connection_fini(struct fake_connection *connection);
/** The entry's response, or NULL. */
const struct muster_json *fake_cloud_find(struct fake_cloud *cloud,
                                          const struct fake_cloud_request *request);

/* fake_cloud_answer.c */
void fake_exchange_init(struct fake_exchange *exchange, struct fake_cloud *cloud,
                        const struct fake_wire *wire);
/** Its connection goes: nothing is pushed to it any more. */
void fake_exchange_leave(struct fake_exchange *exchange);
void fake_exchange_fini(struct fake_exchange *exchange);
/** Names are lower case. */
void fake_exchange_add_header(struct fake_exchange *exchange, const char *name, const char *value);
/** The request is whole: find what to answer and play it. */
void fake_exchange_begin(struct fake_exchange *exchange, const char *method, const char *target,
                         const char *body, size_t body_bytes, bool is_h2);
void fake_exchange_drained(struct fake_exchange *exchange);

/* fake_cloud_h1.c, fake_cloud_h2.c: take stream. */
void fake_h1_open(struct fake_cloud *cloud, struct muster_stream *stream);
void fake_h2_open(struct fake_cloud *cloud, struct muster_stream *stream);

#endif
