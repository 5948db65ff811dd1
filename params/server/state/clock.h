/* Clocks of sources: how many steps each has completed, and pulls that wait for the slowest. */
#ifndef MUSTER_PARAMS_SERVER_CLOCK_H
#define MUSTER_PARAMS_SERVER_CLOCK_H

#include "params/server/core/server_internal.h"

#define MUSTER_PARAMS_WAIT_TEXT_BYTES 200u

/* The clock of a source as it is stored: 0 no tick yet, else the clock + 1, or this: it is done. */
#define MUSTER_PARAMS_STORED_DONE UINT64_MAX

/* A client that has lost its link is back within milliseconds; a process that was started again by its launcher within
 * seconds. */
#define MUSTER_PARAMS_ABSENCE_MAX_NS (10 * MUSTER_NS_PER_S)

struct muster_params_presence {
    uint32_t links;
    uint32_t leaders;   /* that name it by a slot of their own */
    uint32_t clients;   /* links of clients among its links (absent.h) */
    bool is_absent;     /* it has none of these, and is expected … */
    uint64_t absent_ns; /* … since then */
    char *name;         /* of one that is expected; NULL: not known (absent.h) */
    uint64_t lost_ns;   /* since when it has no link */
    uint64_t tick_ns;   /* of its newest tick */
};

/** NULL: no memory; then the source is taken for one that is there. */
struct muster_params_presence *muster_params_server_presence(struct muster_params_server *server,
                                                             uint64_t slot);
/** Whether others wait for the source: it has ticked, and is not done. */
static inline bool muster_params_stored_counts(uint64_t stored)
{
    return stored != 0 && stored != MUSTER_PARAMS_STORED_DONE;
}
/** Clocks are as the memory of a dead process says. */
void muster_params_server_clocks_open(struct muster_params_server *server);
void muster_params_server_clocks_close(struct muster_params_server *server);
/** A client has opened its source, or its link is gone. */
void muster_params_server_clock_link(struct muster_params_server *server, uint64_t slot,
                                     bool is_open);
/** How long the source has had no link; 0: it has one. Begins anew with the server. */
uint64_t muster_params_server_clock_absence(struct muster_params_server *server, uint64_t slot);
/** It begins anew. */
void muster_params_server_clock_renew(struct muster_params_server *server, uint64_t slot);
/** A leader names the source by a slot of its own, or, which cannot fail, no more. False: no memory. */
bool muster_params_server_clock_refer(struct muster_params_server *server, uint64_t slot,
                                      bool refers);
/** Sources that have ticked are counted against those that are expected, and stand in rounds. */
bool muster_params_server_clock_counts(const struct muster_params_source *source);
/** Nobody names the source by its slot, and nobody waits for its clock. */
bool muster_params_server_clock_is_free(struct muster_params_server *server, uint64_t slot);
/** The source has completed so many steps, or is done (MUSTER_PARAMS_CLOCK_DONE); of so many sources. True: it
 * has completed a round. */
bool muster_params_server_clock_tick(struct muster_params_server *server, uint64_t slot,
                                     const struct muster_params_tick *tick);
/** The clock of a source as another server knows it counts where this one has not heard of any; its completed
 * rounds where they are more. */
void muster_params_server_clock_learn(struct muster_params_server *server, uint64_t slot,
                                      uint64_t stored,
                                      const struct muster_params_copied_source *source);

/** Whether a source has ticked, or a server has told that some will. */
bool muster_params_server_has_ticks(const struct muster_params_server *server);
/** Whether all sources have completed so many steps. */
bool muster_params_server_clock_has_come(const struct muster_params_server *server, uint64_t clock);
/**
 * Keep a pull until muster_params_server_clock_has_come, and tell the client for whom it waits; then `handle` gets
 * it. False: no memory.
 */
MUSTER_MUST_CHECK bool muster_params_server_clock_wait(struct muster_params_client *client,
                                                       const struct muster_frame_header *header,
                                                       const uint8_t *payload, uint64_t clock,
                                                       muster_params_handle_fn *handle);
/** The same for a message that is not a pull, also when the clock has come already: its rounds may not be in the
 * rows yet. */
MUSTER_MUST_CHECK bool muster_params_server_clock_call(struct muster_params_client *client,
                                                       const struct muster_frame_header *header,
                                                       const uint8_t *payload, uint64_t clock,
                                                       muster_params_handle_fn *handle);
/** A call that waits, as its owner keeps it. */
struct muster_params_clock_call {
    struct muster_list node; /* of server->clocks.calls */
    /** Clocks or rounds have changed. A call that need not wait any more leaves the list. */
    void (*review)(struct muster_params_clock_call *call);
};
/** Why what is for this clock waits: the slowest source, its clock and since when. */
void muster_params_server_clock_text(const struct muster_params_server *server, uint64_t clock,
                                     char ret_text[MUSTER_PARAMS_WAIT_TEXT_BYTES]);
/** The client is being closed. */
void muster_params_server_clock_drop(struct muster_params_client *client);

#endif
