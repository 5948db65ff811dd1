/* The parts of a catch-up: shared by catch_up.c and catch_up_source.c only. */
#ifndef MUSTER_CLUSTER_CATCH_UP_INTERNAL_H
#define MUSTER_CLUSTER_CATCH_UP_INTERNAL_H

#include "cluster/node/catch_up.h"

#define MUSTER_FETCH_REQUESTS_MAX 8 /* open at one source: 2 MiB under way */
#define MUSTER_FETCH_AHEAD_MAX    2 /* ahead of the admission: the member trains */
#define MUSTER_FETCH_NO_CHUNK     UINT32_MAX
#define MUSTER_FETCH_SEVERAL      UINT32_MAX

enum fetch_source_state {
    FETCH_SOURCE_CLOSED,  /* no link; opened (again) at due_ns */
    FETCH_SOURCE_ASKED,   /* a link, ready or not; its manifest is asked for */
    FETCH_SOURCE_AGREES,  /* its manifest is here: it has the state */
    FETCH_SOURCE_REFUSED, /* it has no such state any more */
    FETCH_SOURCE_GONE,    /* no member any more, or it sends wrong bytes */
};
#define FETCH_SOURCE_STATES 5

struct fetch;

/** A member to fetch from. */
struct fetch_source {
    struct fetch *fetch;
    struct muster_incarnation incarnation;
    struct muster_address address;
    char name[MUSTER_JOB_NAME_BYTES + 12]; /* "worker:3" */
    bool is_elder; /* takes part in the step wanted: it has the state, or will have it */
    struct muster_state_part part;       /* the chunks that it is to hash … */
    struct muster_state_part asked_part; /* … and was asked for last */
    enum fetch_source_state state;
    struct muster_peer_link *link;
    uint64_t due_ns, backoff_ns;
    uint32_t open[MUSTER_FETCH_REQUESTS_MAX]; /* chunks asked for; MUSTER_FETCH_NO_CHUNK = free */
    uint32_t open_count;
    void *payload; /* manifest or refusal while it arrives */
    uint8_t *room; /* a chunk while it arrives that the host does not reach; NULL: there was none */
    bool is_broken; /* no memory for a frame from or to it: its link is given up by the timer */
    bool has_answered;
    struct muster_state_tensor *tensors; /* with has_answered: where its memory can be read */
    bool is_unreadable;                  /* … which has failed */
    bool must_hash_all;                  /* it sent other bytes than another one announced */
    uint32_t wrong_count;                /* chunks with other bytes than announced */
    struct muster_error error;
};

struct fetch {
    struct muster_env *env;
    struct muster_catch_up *owner;
    /* A source has changed: agree, hand out the missing chunks, give up when no source is left. */
    void (*on_changed)(struct fetch *fetch);
    struct muster_state_chunks *chunks;
    struct muster_peer_hello hello;
    uint64_t step;
    bool is_ahead; /* of the admission: step is MUSTER_STATE_STABLE … */
    bool
        is_first; /* … and for the first time: what the members have not hashed yet is fetched, too */
    uint32_t pace_count; /* chunks that may be asked for until pace_timer ends */
    struct muster_timer pace_timer;
    uint64_t epoch; /* of the view that the sources are of */
    uint64_t deadline_ns, log_due_ns;
    struct fetch_source *sources;
    size_t source_count;
    struct fetch_reader *readers;            /* threads; NULL: not needed yet */
    uint32_t reading_count;                  /* chunks that they have */
    struct muster_board *board;              /* or NULL */
    bool has_hashes;                         /* a source has answered */
    uint8_t (*hashes)[MUSTER_HASH128_BYTES]; /* as the sources have told them; zeros: not known */
    uint32_t *hashed_by; /* per chunk: the source that has told its hash, MUSTER_FETCH_SEVERAL */
    struct muster_node_blob *blobs; /* as the first source has told them; NULL: none has */
    size_t blob_count, blobs_of;    /* … which is this one */
    bool has_difference;            /* two sources have told different hashes … */
    size_t differing[2];            /* … these */
    bool is_agreed;                 /* every source that must have the state has told the same */
    uint32_t compared;              /* chunks below are compared with ours */
    uint32_t *missing;              /* stack of chunks to fetch */
    uint32_t missing_count;
    uint32_t open_count; /* requests under way at all sources */
    bool is_finished;
    struct muster_error error;
    struct muster_task task;   /* compares, reads, and finishes */
    struct muster_timer timer; /* sources due, the deadline */
};

/* catch_up_hashes.c */
MUSTER_MUST_CHECK enum muster_rc muster_fetch_hashes_init(struct fetch *fetch);
void muster_fetch_hashes_fini(struct fetch *fetch);
bool muster_fetch_hashes_is_known(const struct fetch *fetch, uint32_t chunk);
/** Add the hashes and the blobs that the source has told. The first blobs are taken from the manifest; a difference to
 * those of others is noted. */
void muster_fetch_hashes_add(struct fetch_source *source, struct muster_state_manifest *manifest);
/** Whether the hash of every chunk is known. */
bool muster_fetch_hashes_is_whole(const struct fetch *fetch);
/** A source has sent other bytes than another one's hash says, and has not told its own hashes yet. */
bool muster_fetch_hashes_are_in_question(const struct fetch *fetch);
/** Forget all hashes; each elder that is left tells a part. */
void muster_fetch_hashes_forget(struct fetch *fetch);
/** Which part of the hashes each source is asked for. */
void muster_fetch_hashes_divide(struct fetch *fetch);

/* catch_up_memory.c */
/** The next missing chunk is to be read in the memory of a source … */
bool muster_fetch_has_memory(const struct fetch *fetch);
/** … and now. */
bool muster_fetch_can_read(const struct fetch *fetch);
/** Read some of the missing chunks, or have threads read them. */
void muster_fetch_read_memory(struct fetch *fetch);
/** Waits for the threads. */
void muster_fetch_memory_fini(struct fetch *fetch);

/* catch_up_source.c */
/** Finish the fetch: done is called in a turn of its own, so that no callback stands on freed memory. Only the first
 * call counts. */
void muster_fetch_finish(struct fetch *fetch, enum muster_rc rc, const char *fmt, ...)
    MUSTER_PRINTF(3, 4);
void muster_fetch_source_init(struct fetch_source *source, struct fetch *fetch,
                              const struct muster_member *member);
/** Connect and ask for the manifest. */
void muster_fetch_source_open(struct fetch_source *source);
/** Forget its manifest and open its link anew. */
void muster_fetch_source_ask_again(struct fetch_source *source);
/** Give up its link, which is opened again later. */
void muster_fetch_source_try_later(struct fetch_source *source, const struct muster_error *error);
void muster_fetch_source_ask_chunk(struct fetch_source *source, uint32_t chunk);
/** The bytes of chunk are here, from source, in `buffer`: its place, or where it is copied from. False: they are others
 * than announced, and the source is asked again; or the fetch has failed. */
bool muster_fetch_source_take_bytes(struct fetch_source *source, uint32_t chunk, const void *buffer,
                                    const uint8_t hash[MUSTER_HASH128_BYTES]);
/** End it as FETCH_SOURCE_GONE or FETCH_SOURCE_REFUSED: the other sources get its requests. */
void muster_fetch_source_end(struct fetch_source *source, enum fetch_source_state state,
                             const struct muster_error *error);
void muster_fetch_source_fini(struct fetch_source *source);

#endif
