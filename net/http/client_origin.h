/* The protocols of the servers that a client talks to: HTTP/1.1 or HTTP/2. */
#ifndef MUSTER_NET_HTTP_CLIENT_ORIGIN_H
#define MUSTER_NET_HTTP_CLIENT_ORIGIN_H

#include <muster/list.h>
#include <muster/loop.h>
#include <muster/mem.h>

#include "net/http/url.h"

#define MUSTER_HTTP_ORIGINS_MAX 256 /* remembered beyond those in use */

enum muster_http_wire {
    MUSTER_HTTP_WIRE_UNKNOWN,
    MUSTER_HTTP_WIRE_1, /* a connection per request */
    MUSTER_HTTP_WIRE_2, /* many requests per connection */
};

/** One scheme, host and port. */
struct muster_http_origin {
    enum muster_http_wire wire;
    void *scout;                /* the owner's request that finds out; NULL: none does */
    struct muster_list waiting; /* the owner's requests */
    struct muster_timer timer;  /* the owner's: how long they wait */
    uint32_t use_count;         /* requests that hold a pointer to this */
    /* private */
    struct muster_list node;
    char *key;
};

/** Caller's memory. */
struct muster_http_origins {
    struct muster_mem *mem;
    struct muster_list list; /* last used first */
    size_t count;
};

void muster_http_origins_init(struct muster_http_origins *origins, struct muster_mem *mem);
/** No origin is in use. */
void muster_http_origins_fini(struct muster_http_origins *origins);

/** The origin of url, in use until put; plain http is HTTP/1.1 from the start. Without use the
 * longest unused are forgotten. NULL: no memory. */
struct muster_http_origin *muster_http_origins_take(struct muster_http_origins *origins,
                                                    const struct muster_http_url *url);
void muster_http_origins_put(struct muster_http_origins *origins,
                             struct muster_http_origin *origin);

#endif
