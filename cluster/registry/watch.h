/* Watches of the registry: every change of a span, in order, from any revision that is still known.
 */
#ifndef MUSTER_CLUSTER_REGISTRY_WATCH_H
#define MUSTER_CLUSTER_REGISTRY_WATCH_H

#include <muster/env.h>
#include <muster/list.h>

#include "cluster/store/mvcc.h"

#define MUSTER_WATCHES_PER_STREAM_MAX 10000u
/* A stream with more than this unsent is left alone until it is empty; its watches then go on from
 * the log. */
#define MUSTER_WATCH_QUEUE_BYTES ((size_t)1 << 20)

struct muster_watch_stream;

struct muster_watch_event {
    const struct muster_registry_record *record;
    struct muster_registry_record previous;
    bool has_previous;
};

/** One message to the client. Borrowed for the call. */
struct muster_watch_answer {
    int64_t watch_id;
    int64_t revision; /* the header's */
    bool is_created;
    bool is_canceled;
    bool is_fragment; /* more of the same revision follows */
    int64_t compact_revision;
    const char *cancel_reason; /* or NULL */
    const struct muster_watch_event *events;
    size_t event_count;
};

/** How a stream reaches its client. Static table. */
struct muster_watch_stream_ops {
    void (*send)(struct muster_watch_stream *stream, const struct muster_watch_answer *answer);
    size_t (*queued_bytes)(const struct muster_watch_stream *stream);
};

/** One client stream with many watches. Caller's memory. */
struct muster_watch_stream {
    void *data;
    const struct muster_watch_stream_ops *ops;
    /* private */
    struct muster_watch_hub *hub;
    struct muster_list watches;
    struct muster_list node;
    size_t watch_count;
    int64_t next_id;
    bool is_blocked;     /* too much is unsent */
    bool wants_progress; /* a progress request waits for its watches to catch up */
};

/** All streams of one registry. Caller's memory. */
struct muster_watch_hub {
    /* private */
    struct muster_env *env;
    struct muster_mvcc *mvcc;
    int64_t revision; /* the last committed: nothing newer is shown */
    struct muster_list streams;
    /* Every watch of every stream is in one of these two. */
    struct muster_list synced; /* have seen all up to revision */
    struct muster_list behind;
    struct muster_task catch_up;
    struct muster_timer progress;
    uint64_t progress_interval_ns;
    struct muster_registry_arena arena;
};

/** A WatchCreateRequest. */
struct muster_watch_wish {
    struct muster_registry_span span; /* copied */
    int64_t start_revision;
    int64_t watch_id; /* 0: the stream picks */
    bool wants_progress;
    bool wants_previous;
    bool wants_fragments;
    bool skips_puts;
    bool skips_deletes;
};

/** Borrows env and mvcc until fini. */
void muster_watch_hub_init(struct muster_watch_hub *hub, struct muster_env *env,
                           struct muster_mvcc *mvcc, uint64_t progress_interval_ns);
/** Streams must be closed before. */
void muster_watch_hub_fini(struct muster_watch_hub *hub);

/** A group commit is through: everything up to mvcc's revision may be shown now. */
void muster_watch_hub_committed(struct muster_watch_hub *hub);

void muster_watch_stream_open(struct muster_watch_stream *stream, struct muster_watch_hub *hub,
                              const struct muster_watch_stream_ops *ops, void *data);
void muster_watch_stream_close(struct muster_watch_stream *stream);

/** Answers created (and canceled at once when the wish is invalid); events follow. */
void muster_watch_stream_create(struct muster_watch_stream *stream,
                                const struct muster_watch_wish *wish);
void muster_watch_stream_cancel(struct muster_watch_stream *stream, int64_t watch_id);
void muster_watch_stream_progress(struct muster_watch_stream *stream);
/** All that was queued has left. */
void muster_watch_stream_resume(struct muster_watch_stream *stream);

#endif
