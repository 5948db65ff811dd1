/* A watch of the pods of one selector: reports that something has changed, and survives broken
 * streams. */
#ifndef MUSTER_RESOLVERS_KUBERNETES_WATCH_H
#define MUSTER_RESOLVERS_KUBERNETES_WATCH_H

#include <muster/http.h>
#include <muster/loop.h>

#include "resolvers/platform/kubernetes/pods.h"
#include "resolvers/platform/kubernetes/server.h"
#include "runtime/value/text.h"

struct muster_kubernetes_watch;
typedef void muster_kubernetes_watch_fn(struct muster_kubernetes_watch *watch);

enum muster_kubernetes_watch_state {
    MUSTER_KUBERNETES_WATCH_OFF,       /* no resolver watch wants it */
    MUSTER_KUBERNETES_WATCH_UNLISTED,  /* waits for a listing to go on from */
    MUSTER_KUBERNETES_WATCH_STREAMING, /* a request is open */
    MUSTER_KUBERNETES_WATCH_BACKOFF,   /* waits before the next request */
    MUSTER_KUBERNETES_WATCH_STOPPING,  /* OFF once its request has ended */
    MUSTER_KUBERNETES_WATCH_RENEWING,  /* wanted again before its request has ended */
};

/** Caller's memory. */
struct muster_kubernetes_watch {
    void *data;
    muster_kubernetes_watch_fn *on_change; /* pods came, went or changed, or a listing is needed */
    muster_kubernetes_watch_fn *on_off;    /* stopped, and its request has ended */
    /* private */
    const struct muster_kubernetes_server *server;
    const char *selector;
    enum muster_kubernetes_watch_state state;
    struct muster_http_call call;
    struct muster_timer timer;
    struct muster_text line; /* of an event that is not whole yet */
    char *url;
    char version[64];    /* resourceVersion of the list or of the last event: opaque text */
    uint64_t backoff_ns; /* of muster_backoff_next; 0: the last stream was healthy */
    uint64_t opened_ns;
    bool is_expired; /* the version is too old: list anew */
};

/** Borrows server and selector until fini. */
void muster_kubernetes_watch_init(struct muster_kubernetes_watch *watch,
                                  const struct muster_kubernetes_server *server,
                                  const char *selector);
/** Only in state OFF. */
void muster_kubernetes_watch_fini(struct muster_kubernetes_watch *watch);

/** Wanted from now on; begins with the next listing. */
void muster_kubernetes_watch_start(struct muster_kubernetes_watch *watch);
/** on_off follows, at once when no request is open. Idempotent. */
void muster_kubernetes_watch_stop(struct muster_kubernetes_watch *watch);
/** A listing has ended with this version: go on from it, unless a stream is open already. */
void muster_kubernetes_watch_listed(struct muster_kubernetes_watch *watch, const char *version);

#endif
