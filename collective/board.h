/* What the processes of one host show each other: one board per process, written by it alone and
 * mapped read-only by the others; tensors that they map; and who of them is dead. Real
 * (board_system.c) or simulated. */
#ifndef MUSTER_COLLECTIVE_BOARD_H
#define MUSTER_COLLECTIVE_BOARD_H

#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/status.h>
#include <muster/view.h>

struct muster_board;

/** Another process of this host. The board's memory. */
struct muster_board_peer {
    struct muster_list node;
    struct muster_incarnation incarnation;
    bool is_ready;  /* both map each other's boards, and all tensors shared so far */
    bool is_failed; /* no connection will come: `why` says why not */
    struct muster_error why;
    const uint8_t
        *memory; /* its board, once ready; stays mapped until release, also when it dies */
    size_t memory_bytes;
};

/** Told on the loop. */
struct muster_board_events {
    /* The outcome of connect: ready or failed. Later: failed (it hung up, or died). */
    void (*on_peer)(void *data, struct muster_board_peer *peer);
    /* A peer has signalled this process. */
    void (*on_signal)(void *data);
};

struct muster_board_ops {
    void (*close)(struct muster_board *board);
    enum muster_rc (*connect)(struct muster_board *board, const struct muster_member *member,
                              struct muster_board_peer **ret_peer);
    void (*release)(struct muster_board *board, struct muster_board_peer *peer);
    void (*enter)(struct muster_board *board);
    void (*signal)(struct muster_board *board, struct muster_board_peer *peer);
    bool (*is_dead)(const struct muster_board_peer *peer);
    bool (*find_share)(struct muster_board *board, const void *at, size_t bytes,
                       uint32_t *ret_share, uint64_t *ret_offset);
    bool (*is_share_mapped)(const struct muster_board *board, uint32_t share,
                            const struct muster_board_peer *peer);
    const uint8_t *(*share_at)(const struct muster_board_peer *peer, uint32_t share,
                               uint64_t offset, size_t bytes);
};

/** Embed as the first field of an implementation. */
struct muster_board {
    const struct muster_board_ops *ops;
    uint8_t *memory; /* this process's own, read and write */
    size_t memory_bytes;
    const struct muster_board_events *events; /* NULL: nobody is attached */
    void *events_data;
};

/** Have `member`, a process of this host, as a peer; on_peer tells the outcome (never inside, also
 * when it is known already: then in the next turn). A peer that exists is given again. */
MUSTER_MUST_CHECK enum muster_rc muster_board_connect(struct muster_board *board,
                                                      const struct muster_member *member,
                                                      struct muster_board_peer **ret_peer);
/** Its memory and tensors are unmapped. */
void muster_board_release(struct muster_board *board, struct muster_board_peer *peer);

/** Before this thread writes the board: others see its death then. Costs a comparison when the
 * thread is known. */
void muster_board_enter(struct muster_board *board);

/** Wake the peer if it sleeps. */
void muster_board_signal(struct muster_board *board, struct muster_board_peer *peer);

/** True: its death is confirmed, every store of it is visible and none will follow. A few loads, no
 * system call. */
bool muster_board_is_dead(const struct muster_board_peer *peer);

/** [at, at + bytes) lies in a tensor of muster_tensor_new: its number and the offset there. */
bool muster_board_find_share(struct muster_board *board, const void *at, size_t bytes,
                             uint32_t *ret_share, uint64_t *ret_offset);
/** The peer has said that it has mapped it. */
bool muster_board_is_share_mapped(const struct muster_board *board, uint32_t share,
                                  const struct muster_board_peer *peer);
/** Where this process has mapped [offset, offset + bytes) of the peer's share; NULL: not mapped, or
 * outside of it. */
const uint8_t *muster_board_share_at(const struct muster_board_peer *peer, uint32_t share,
                                     uint64_t offset, size_t bytes);

#endif
