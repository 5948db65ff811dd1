/* The processes of one host show each other a board each, written by its owner alone and mapped
 * read-only by the others; tensors that they map; and which of them is dead. Real
 * (collective/board/system.c) or simulated. */
#ifndef MUSTER_COLLECTIVE_BOARD_H
#define MUSTER_COLLECTIVE_BOARD_H

#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/status.h>
#include <muster/view.h>

struct muster_board;

/** Another process of this host. The board's memory. */
struct muster_board_peer {
    struct muster_list node; /* the board's */
    struct muster_board *board;
    struct muster_incarnation incarnation;
    bool is_ready;  /* both map each other's boards, and all tensors shared so far; stays true */
    bool is_failed; /* no connection will come, or it is gone again: `why` says why */
    struct muster_error why;
    const uint8_t
        *memory; /* its board, once ready; stays mapped until release, also when it dies */
    size_t memory_bytes;
    uint64_t
        refused_end; /* it cannot map the share of this number less 1, the newest such; 0: none */
    bool can_read_memory;         /* muster_board_read_memory works; known once ready */
    struct muster_error read_why; /* else: why it does not, for people */
};

/** Told on the loop. */
struct muster_board_events {
    /* The outcome of connect: ready or failed. Later: failed (it hung up, or died). */
    void (*on_peer)(void *data, struct muster_board_peer *peer);
    /* A peer has signalled this process. */
    void (*on_signal)(void *data);
};

/** How a thread beside the loop reads the memory of a peer, also after its release. A value. */
struct muster_board_reader {
    enum muster_rc (*read)(int64_t pid, uint64_t at, void *ret_bytes, size_t bytes);
    int64_t pid;
};

struct muster_board_ops {
    void (*close)(struct muster_board *board);
    enum muster_rc (*connect)(struct muster_board *board, const struct muster_member *member,
                              struct muster_board_peer **ret_peer);
    struct muster_board_peer *(*find)(const struct muster_board *board,
                                      const struct muster_incarnation *incarnation);
    void (*release)(struct muster_board *board, struct muster_board_peer *peer);
    void (*enter)(struct muster_board *board);
    void (*signal)(struct muster_board *board, struct muster_board_peer *peer);
    bool (*is_dead)(const struct muster_board_peer *peer);
    bool (*find_share)(struct muster_board *board, const void *at, size_t bytes,
                       uint32_t *ret_share, uint64_t *ret_offset);
    bool (*is_share_mapped)(const struct muster_board *board, uint32_t share,
                            const struct muster_board_peer *peer);
    void (*reading_start)(struct muster_board *board);
    void (*reading_stop)(struct muster_board *board);
    const uint8_t *(*share_at)(const struct muster_board_peer *peer, uint32_t share,
                               uint64_t offset, size_t bytes);
    enum muster_rc (*share_new)(struct muster_board *board, size_t bytes, void **ret_at);
    void (*share_free)(struct muster_board *board, void *at);
    enum muster_rc (*read_memory)(const struct muster_board_peer *peer, uint64_t at,
                                  void *ret_bytes, size_t bytes);
    bool (*reader_of)(const struct muster_board_peer *peer, struct muster_board_reader *ret_reader);
};

/** Embed as the first field of an implementation. */
struct muster_board {
    const struct muster_board_ops *ops;
    uint8_t *memory; /* this process's own, read and write */
    size_t memory_bytes;
    const struct muster_board_events *events; /* NULL: nobody is attached */
    void *events_data;
};

/** Close after its users; peers that are left are released. NULL is accepted. */
void muster_board_close(struct muster_board *board);

/** Have `member`, a process of this host, as a peer; on_peer tells the outcome (never inside, also
 * when it is known already: then in the next turn). Ready takes a connect of both sides, within 5 s
 * of each other. A peer that exists is given again. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_board_connect(struct muster_board *board,
                                                      const struct muster_member *member,
                                                      struct muster_board_peer **ret_peer);
/** The peer that a connect has given and nobody has released; NULL: none. */
struct muster_board_peer *muster_board_find(const struct muster_board *board,
                                            const struct muster_incarnation *incarnation);
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
/** Memory that share_at gives between start and stop stays readable until stop. Calls nest; cheap.
 */
void muster_board_reading_start(struct muster_board *board);
void muster_board_reading_stop(struct muster_board *board);
/** Where this process has mapped [offset, offset + bytes) of the peer's share; NULL: not mapped, or
 * outside of it. The owner may free the share as soon as no operation that uses it is open there
 * (it may have timed out); then this reads zeroes until reading_stop. */
const uint8_t *muster_board_share_at(const struct muster_board_peer *peer, uint32_t share,
                                     uint64_t offset, size_t bytes);

/** Memory of zeroes, page aligned, that peers map (staging areas; tensors come from
 * muster_tensor_new). It is told to the peers in the next turn. Gives, muster_board_share_free.
 * Numbers of shares are never used again. RESOURCE_EXHAUSTED, UNIMPLEMENTED (no memfd here). */
MUSTER_MUST_CHECK enum muster_rc muster_board_share_new(struct muster_board *board, size_t bytes,
                                                        void **ret_at);
/** NULL is accepted. */
void muster_board_share_free(struct muster_board *board, void *at);

/** Copy [at, at + bytes) of the peer's address space, any memory of it, to ret_bytes. UNAVAILABLE:
 * it is dead (whatever has been copied is no data); INVALID_ARGUMENT: not readable there;
 * PERMISSION_DENIED. */
MUSTER_MUST_CHECK enum muster_rc muster_board_read_memory(const struct muster_board_peer *peer,
                                                          uint64_t at, void *ret_bytes,
                                                          size_t bytes);
/** The same by any thread: ret_reader->read. The peer may have died, and its number be another process's: the caller
 * verifies what it gets. False: not allowed. */
bool muster_board_reader_of(const struct muster_board_peer *peer,
                            struct muster_board_reader *ret_reader);

#endif
