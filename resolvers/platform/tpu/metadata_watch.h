/* One value of the metadata server, watched: a request that is answered when the value changes. */
#ifndef MUSTER_RESOLVERS_METADATA_WATCH_H
#define MUSTER_RESOLVERS_METADATA_WATCH_H

#include <muster/env.h>
#include <muster/loop.h>

#include "net/auth/http_metadata.h"

#define MUSTER_METADATA_WATCH_S           60u /* the server answers after that without a change */
#define MUSTER_METADATA_WATCH_INTERVAL_NS MUSTER_NS_PER_S
#define MUSTER_METADATA_ETAG_BYTES        64
#define MUSTER_METADATA_VALUE_BYTES       64

struct muster_metadata_watch;
typedef void muster_metadata_watch_fn(struct muster_metadata_watch *watch);

enum muster_metadata_watch_state {
    MUSTER_METADATA_WATCH_OFF,      /* nobody wants it */
    MUSTER_METADATA_WATCH_WAITING,  /* a request is open */
    MUSTER_METADATA_WATCH_PAUSING,  /* before the next request */
    MUSTER_METADATA_WATCH_STOPPING, /* its request ends; then OFF, or on when it is wanted again */
};

/** Caller's memory. */
struct muster_metadata_watch {
    void *data;
    muster_metadata_watch_fn *on_change; /* the value was seen for the first time, or changed */
    muster_metadata_watch_fn *on_off;    /* stopped, and its request has ended */
    uint64_t interval_min_ns; /* between two requests, and the first pause after a failure, which
                                 doubles up to 60 s; 0: 1 s */
    char value[MUSTER_METADATA_VALUE_BYTES]; /* as last seen, for on_change; cut */
    /* private */
    struct muster_env *env;
    const char *path;
    enum muster_metadata_watch_state state;
    bool is_wanted;
    struct muster_metadata_get get;
    struct muster_timer timer;
    char etag[MUSTER_METADATA_ETAG_BYTES]; /* of the value last seen; "": none */
    uint64_t backoff_ns;
    uint64_t opened_ns;
};

/** Borrows env and path ("instance/attributes/x") until fini. */
void muster_metadata_watch_init(struct muster_metadata_watch *watch, struct muster_env *env,
                                const char *path);
/** Only in state OFF. */
void muster_metadata_watch_fini(struct muster_metadata_watch *watch);

/** Wanted from now on. Idempotent. */
void muster_metadata_watch_start(struct muster_metadata_watch *watch);
/** on_off follows, at once when no request is open. Idempotent. */
void muster_metadata_watch_stop(struct muster_metadata_watch *watch);

#endif
