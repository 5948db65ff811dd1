/* The state of a server, and of its clients. */
#ifndef MUSTER_PARAMS_SERVER_INTERNAL_H
#define MUSTER_PARAMS_SERVER_INTERNAL_H

#include <muster/metrics.h>
#include <muster/params_server.h>
#include <muster/rpc.h>

#include "net/link/peer_link.h"
#include "net/link/port.h"
#include "params/server/seat/seat.h"
#include "params/store/apply.h"
#include "params/wire/frame.h"
#include "params/wire/map.h"
#include "params/wire/pulse.h"

#define MUSTER_PARAMS_METRIC_COUNT 24
#define MUSTER_PARAMS_NOWHERE      UINT32_MAX

struct muster_params_clocks {
    struct muster_params_presence *presences; /* by slot */
    size_t presence_count;
    uint64_t known;             /* sources that have ticked, also those that are done */
    uint64_t low;               /* of all sources that count; UINT64_MAX: there is none */
    uint64_t slowest;           /* slot of one that has it */
    struct muster_list waiting; /* pulls */
    struct muster_list calls;   /* by gRPC, to a server that is alone */
    struct muster_task come;    /* low has changed */
    struct muster_timer expiry;
};

/** A cut at a clock waits for sources (hold.h). */
struct muster_params_server_hold {
    uint64_t number; /* of the cut */
    uint64_t clock;  /* 0: there is none */
    uint64_t called; /* the newest step in which a source has pushed by gRPC, and 1; 0: none */
    struct muster_params_client *asker;
    struct muster_frame_header request; /* the asker's; type 0: it is answered */
    struct muster_timer deadline;
};

enum muster_params_cut_state {
    MUSTER_PARAMS_CUT_NONE,
    MUSTER_PARAMS_CUT_MARKING, /* clients are awaited */
    MUSTER_PARAMS_CUT_FROZEN,  /* whoever began the cut is awaited, to say where it is saved */
    MUSTER_PARAMS_CUT_SAVING,
};

struct muster_params_server_cut {
    enum muster_params_cut_state state;
    uint64_t number;                    /* of this cut, or the last one */
    uint64_t map, clock;                /* when it was complete */
    uint32_t awaited;                   /* clients that have not marked */
    uint64_t sources;                   /* digest of those that have */
    uint64_t pushed;                    /* the highest of their marks */
    struct muster_params_client *asker; /* waits for SAVED; NULL: nobody */
    struct muster_frame_header request; /* the asker's */
    char folder[MUSTER_PARAMS_FOLDER_BYTES_MAX + 1];
    bool is_led[MUSTER_PARAMS_SHARD_COUNT_MAX];
    uint32_t shard; /* that is saved next */
    struct muster_params_saved_shard *entries;
    /* The files of shards in kept_folder, as long as they are the same; cut 0: none. NULL: no memory for it. */
    struct muster_params_saved_shard *kept;
    char kept_folder[MUSTER_PARAMS_FOLDER_BYTES_MAX + 1];
    uint32_t saved_count;
    struct muster_aside *aside; /* writes files; NULL: nothing is saved */
    struct muster_params_saving *saving;
    struct muster_timer deadline;
    struct muster_params_freeze *copies; /* of a cut that has ended, which are freed; NULL: none */
    struct muster_task marked, step, drop;
    struct muster_error error; /* of the last one that ended */
    uint64_t told_reason; /* hash of the last one that was logged; 0: none since a cut was saved */
    struct {
        char folder[MUSTER_PARAMS_FOLDER_BYTES_MAX + 1]; /* "": there is none */
        uint64_t clock, bytes;
    } saved; /* the last one */
};

/* Changes that other copies may lack (tail.h). */
#define MUSTER_PARAMS_TAIL_FLOORS 64u
struct muster_params_tail_floor {
    struct muster_incarnation leader;
    uint64_t number;
};

struct muster_params_tail {
    struct muster_list entries;  /* in the order in which they came */
    uint64_t count, swept_count; /* entries; and after the last sweep */
    uint64_t bytes, swept_bytes; /* that they keep; likewise */
    uint32_t idle_count;         /* messages since then that nothing was kept of */
    uint64_t stamp;              /* of the next entry */
    struct muster_params_tail_floor floors[MUSTER_PARAMS_TAIL_FLOORS];
    uint32_t floor_count;
    uint64_t *since; /* of each shard: older entries tell nothing of it; UINT64_MAX: all */
    uint64_t *asked; /* of each shard: the stamp when its primary asked for the copy last */
};

/* Shards whose copies are asked what they have (unite.h). */
struct muster_params_unite {
    bool *is_open;       /* of each shard: some copy has not said what it has */
    uint32_t open_count; /* while there are some, messages of clients wait, … */
    uint32_t stale_count; /* … and while some copy differs and is not dropped: it could lead next */
    struct muster_list told; /* messages of tails that are to be adopted */
    uint64_t failed;         /* a bit for each follower whose tail could not be adopted whole */
    struct muster_task task;
};

/** Bytes that are held for clients (credit.h). */
struct muster_params_credits {
    uint64_t budget;        /* for all clients */
    uint64_t share;         /* of each of them */
    uint64_t held_bytes;    /* for all of them now */
    uint32_t starved_count; /* clients of which a message waits for credit */
    bool has_clock_waits;   /* a pull whose clock has come does */
    struct muster_task review;
};

struct muster_params_server {
    struct muster_env *env;
    void *data;
    struct muster_params_region *region;
    struct muster_port *port;
    struct muster_rpc_server *rpc_server;             /* at the same port */
    struct muster_interceptor job_guard;              /* its calls name this job, or none */
    uint32_t digest_count;                            /* that calls of Inspect compute now */
    const struct muster_authorization *authorization; /* NULL: everybody may do everything */
    uint64_t refused_servers[8]; /* hashes of names: told of that they may not copy to it */
    size_t refused_count;
    struct muster_peer_hello hello; /* its incarnation is the memory's: clients know it by that */
    struct muster_incarnation incarnation; /* of this process */
    struct muster_mem_pool pool;           /* payloads and answers */
    struct muster_list clients;
    struct muster_list due; /* clients that the next flush has something for */
    uint32_t client_count;
    struct muster_params_credits credits;
    float *scratch; /* values of one message as f32 */
    size_t scratch_count;
    struct muster_params_turned *turned; /* keys that one message turns */
    size_t turned_count;
    struct muster_timer alive; /* finds links that are half open */
    uint64_t replica_lag_ns;   /* a follower that stands still is waited for so long; 0: always */
    struct muster_timer still; /* finds them */
    struct muster_timer handover; /* shards are to be handed over, or have not been in time */
    uint32_t handing_count; /* shards that are being handed over: no push is read until they are */
    uint8_t handing[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* a bit for each of them */
    struct muster_timer full;  /* runs while there is no memory for what this server was to copy */
    bool is_full;              /* meanwhile */
    uint64_t full_wait_ns;     /* before it may learn again; grows with each time */
    uint64_t source_lease_ns;  /* 0: sources are not forgotten */
    struct muster_timer lease; /* forgets them */
    uint64_t lease_slot;       /* the next one that is looked at */
    uint64_t lease_record;     /* record_count a round of these before */
    struct muster_task flush;  /* acknowledgements of a turn leave together */
    struct muster_params_map *map; /* NULL: not known yet */
    bool wants_tables; /* a client asks for the first table of the job: the next map is to say so */
    uint32_t place;                /* of this server in it, or MUSTER_PARAMS_NOWHERE */
    struct muster_list followers, leaders;
    struct muster_list leader_marks; /* the youngest link of each leader */
    uint64_t record_count;           /* changes that followers must have */
    uint64_t mark_number;            /* the newest mark among them, … */
    uint64_t mark_turn;              /* … and the turn in which it was made */
    uint64_t turn;                   /* counts turns in which something was sent or acknowledged */
    uint64_t *shard_records;         /* of each shard: the newest of them */
    uint64_t *shard_followers;       /* of each shard: a bit for each follower that must have it */
    uint64_t *digests;               /* of each shard's positions; NULL: none were asked for */
    bool has_digests;                /* they are of the present ones */
    uint64_t *shard_stale;           /* of each shard: those of them whose copy differs */
    struct muster_params_tail tail;
    struct muster_params_unite unite;
    struct muster_params_clocks clocks;
    uint32_t absent_count; /* sources whose clients may come back (absent.h) */
    struct muster_timer absent_expiry;
    struct muster_list rounds; /* of tables by round */
    struct muster_task round_review;
    struct muster_task early_review; /* messages that have waited for a round may go on */
    bool has_round_waits;            /* a message or a pull waits until a round is applied whole */
    struct muster_timer round_timer; /* a grace ends, or clients are told for whom they wait */
    struct muster_params_server_cut cut;
    struct muster_params_server_hold hold;
    struct muster_params_restore *restore; /* NULL: nothing is to be restored */
    struct muster_list held;               /* answers that wait for followers */
    struct muster_task held_check;
    struct muster_task decide;                       /* the next map may be due */
    struct muster_params_registration *registration; /* NULL: there is no registry */
    /* A server says over a link that it leaves. */
    void (*on_leaves)(struct muster_params_server *server, const struct muster_incarnation *id);
    bool
        is_shared; /* with other servers: there is a registry, or was one until the server closed */
    struct muster_params_agents *agents; /* NULL: it is alone, or closes */
    struct muster_list watches;          /* callers of Watch */
    struct muster_task watch_tell;       /* they are told what has changed */
    struct muster_timer watch_keep;      /* sources that watch are not gone */
    struct muster_params_share *share;   /* NULL: clients of this host do not read the memory */
    struct muster_params_stats stats;
    struct muster_metric metrics[MUSTER_PARAMS_METRIC_COUNT];
    struct muster_histogram apply_seconds, ack_wait_seconds;
    struct muster_metrics_collector collector; /* data NULL: there are no metrics */
    bool is_closing; /* the registry's answers still come, and change nothing */
    muster_params_server_fn *closed;
    muster_params_drained_fn *drained; /* NULL: it does not drain, or has */
    struct muster_timer drain_deadline;
    muster_params_server_fn *on_drain; /* NULL: clients may not ask for it */
    struct muster_list drain_calls;    /* clients that did */
};

/** A frame that the server owns until it has left. */
struct muster_params_answer {
    struct muster_frame frame;
    struct muster_params_client *client;
    uint32_t capacity;
    _Alignas(8) uint8_t payload[];
};

/** A client's link. The fields that each message touches come first: of thousands of clients none is
 * in the caches when its message comes. */
struct muster_params_client {
    struct muster_params_server *server;
    struct muster_peer_link *link;
    struct muster_params_pulse pulse;
    uint64_t denied;     /* a bit for each message that it may not send */
    uint8_t *payload;    /* of the message that is being received */
    uint64_t held_bytes; /* messages and answers that are held for it */
    uint64_t slot;       /* of the source */
    bool may_not_lead;   /* it may not be a server that this one copies */
    bool is_open;        /* it has named its source */
    bool is_told;        /* OPENED has left: other messages may, too */
    bool is_awaited;     /* its mark is */
    bool is_marked;      /* nothing is read from it until the cut is complete */
    bool is_starved;     /* a message of it waits for credit (starved_…) */
    bool is_short;       /* of memory: it waits for an answer that is lost */
    struct muster_frame_header
        early; /* its payload waits for a map, a round or copies; type 0: none */
    struct muster_params_answer *acks;   /* of this turn; NULL: none */
    struct muster_list due_node;         /* of the server's due */
    struct muster_list waiting;          /* answers that wait for followers */
    uint64_t parked_bytes;               /* of its pulls that wait for a clock */
    uint64_t starved_own, starved_bytes; /* bytes of it that are held, and that it needs */
    struct muster_list node;
    const struct muster_identity *identity; /* of the link's stream; NULL: no certificate */
    uint64_t generation;                    /* that the source had when this link named it */
    const uint8_t *stage;                   /* memory of the client, to read from; NULL: none */
    char name[MUSTER_PARAMS_NAME_BYTES];    /* for people; "": none */
};

/** Whether clients whose map has this number may send this server rows of the shard. */
static inline bool muster_params_server_leads(const struct muster_params_server *server,
                                              uint32_t shard, uint64_t map_number)
{
    const struct muster_params_map_shard *entry = &server->map->shards[shard];

    return entry->copy_count > 0 && entry->copies[0] == server->place && entry->since <= map_number;
}

/** The same for those with the newest map. Before it has a map it has no place. */
static inline bool muster_params_server_leads_now(const struct muster_params_server *server,
                                                  uint32_t shard)
{
    return server->place != MUSTER_PARAMS_NOWHERE &&
           muster_params_server_leads(server, shard, server->map->epoch);
}

/** Whether copies give each other what they have of the last changes. A job without replicas has two copies of a shard
 * only while the shard moves from one to the other. */
static inline bool muster_params_has_tails(const struct muster_params_server *server)
{
    return server->map->copies_wanted > 1;
}

/** Whether rows may not change, nor be shown. */
static inline bool muster_params_unite_waits(const struct muster_params_server *server)
{
    return server->unite.open_count > 0 || server->unite.stale_count > 0;
}

/** A copy has answered, or need not answer any more: shards may be united in the next turn. */
static inline void muster_params_unite_look(struct muster_params_server *server)
{
    if (muster_params_has_tails(server))
        muster_task_post(&server->unite.task, server->env->loop);
}

/** A copy of the shard has been asked. */
static inline void muster_params_unite_begin(struct muster_params_server *server, uint32_t shard)
{
    if (server->unite.is_open[shard])
        return;
    server->unite.is_open[shard] = true;
    server->unite.open_count++;
}

/** The map, the clocks or the tables may have changed: callers are told in a later turn. */
static inline void muster_params_watches_note(struct muster_params_server *server)
{
    if (!muster_list_is_empty(&server->watches) && !server->is_closing)
        muster_task_post(&server->watch_tell, server->env->loop);
}

/** The text of ABORTED for a source whose name a younger process has. */
#define MUSTER_PARAMS_YOUNGER                                                                      \
    "a younger process has opened this source, and one process of a name may push: end this one, " \
    "or give it a name of its own"

/** Handle one message. False: the client must be closed. */
typedef bool muster_params_handle_fn(struct muster_params_client *client,
                                     const struct muster_frame_header *header,
                                     const uint8_t *payload);

#endif
