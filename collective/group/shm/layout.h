/* The layout of a board. Only its owner writes a board, from its loop; the other members map it read-only. Each
 * atomic field names its writer, its readers, the order of its stores and loads, and the load or store that it
 * pairs with; a field that names no reader outside is its owner's alone. "Seqlock" means: a reader loads
 * `ready` (or `key`), reads the fields, and loads it again; they are valid when both loads have given the key of
 * its operation. */
#ifndef MUSTER_COLLECTIVE_SHM_LAYOUT_H
#define MUSTER_COLLECTIVE_SHM_LAYOUT_H

#include <stdatomic.h>

#include "collective/group/shm.h"

/* The tables and 4 MiB for slots: 16 places of one lane with 256 KiB each, the largest of the small operations.
 * A member with a smaller board says no to boards. */
#define MUSTER_SHM_BOARD_BYTES_MIN (sizeof(struct muster_shm_board) + ((size_t)4 << 20))
/* Staging areas that are kept for the next operations; sharing and mapping a new one costs system calls here
 * and a round trip to every peer. */
#define SHM_STAGES_IDLE_MAX 8u
/* A cache line of x86-64 and of most ARM servers: fields that different members wait for are kept apart by it. */
#define SHM_LINE_BYTES 64u
/* Messages to one member that are shown at the same time: more go in frames. */
#define SHM_SHOWN_MAX 16u
/* Operations of one lane that can be open at the same time on a board: one that finds its place taken waits. */
#define SHM_LANE_ENTRIES 16u
/* Sizes of slots are powers of two below 4 GiB. */
#define SHM_HEAP_CLASSES 32u
/* A process looks whether the others are dead once in so many looks without news: the look loads a line of each
 * thread of each peer. */
#define SHM_LOOKS_PER_DEATH 2u
/* A process loads how far the others are with what has been delivered here once in so many looks, when no
 * announcement has said it: each load takes the line away from the owner who is about to write it. */
#define SHM_LOOKS_PER_DONE 16u

/** Where a participant's input lies. Others read it from the board, so a reader accepts any number. */
enum muster_shm_input {
    SHM_INPUT_NONE,  /* it gives nothing */
    SHM_INPUT_BOARD, /* in a slot of its board */
    SHM_INPUT_SHARE, /* in memory that the others have mapped: a tensor, or a staging area */
    SHM_INPUT_COPY, /* in a staging area, which does not change if all have such copies (pieces.c) */
};

/** One operation of its owner; kept until all participants have what they need of it. */
struct muster_shm_entry {
    /* Key of the operation; 0: none. Writer: owner. Readers: all participants.
     * Stored last, with release, by announce_run: fields of the operation are valid after an acquire load
     * that gives the key (muster_shm_read_entry). Taken back with a relaxed 0 and a release fence before anything
     * that others may read changes (begin_entry, muster_shm_revoke, muster_shm_kept_give); a reader that has
     * copied such memory sees that by an acquire fence and a relaxed load (muster_shm_is_valid).
     * muster_shm_hold and muster_shm_withdraw use a seq_cst fence instead, which pairs with that of
     * hear_all_ready: one of the two sees the other's store. has_gone_on loads it relaxed: another key only
     * makes its reader stop. */
    _Alignas(SHM_LINE_BYTES) _Atomic uint64_t ready;
    /* All fields up to slot_at are plain. Writer: owner, while `ready` does not give the key of the operation.
     * Readers: all participants, by seqlock with `ready`. */
    uint64_t ordinal;
    uint64_t descriptor;
    uint64_t input_offset;
    uint64_t weight;
    uint64_t done_before; /* muster_shm_lane.done at that time; also while `opened` gives the key */
    uint32_t input, input_share; /* enum muster_shm_input; the number of the share */
    uint32_t slot_at;            /* lines from the start of the board */
    /* Participants that it goes on without, a bit each. Writer: owner. Readers: all participants. Stored with
     * release, and a release fence before the next store (muster_shm_leave). muster_shm_is_valid loads it with
     * acquire before `ready`: a reader that has used memory which the owner changed after it had left the
     * reader behind sees the bit. left_by loads it relaxed, behind an acquire fence after `ready` and
     * `ordinal`, which pairs with the release fence of begin_entry: the new ordinal comes without old bits. */
    _Alignas(SHM_LINE_BYTES) _Atomic uint64_t left;
    /* Key of an operation whose input is being copied (pieces.c); 0: none. Writer: owner. Readers: all participants.
     * Stored with release by muster_shm_pieces_open: the fields of the operation, but for done_before, are valid
     * after an acquire load that gives the key (muster_shm_read_entry), and so are the pieces that `staged` counts.
     * Taken back with `ready`, by the same fences. What was read of a copy counts by `ready`. */
    _Atomic uint64_t opened;
    /* Pieces of its input that stand in its copy. Writer: owner. Readers: all participants. Stored with release
     * after each piece (stage_piece); loaded with acquire before the piece is read (is_staged_by). */
    _Atomic uint32_t staged;
    /* Key when its owner has its whole result, and reads no other board for it any more. Writer: owner.
     * Readers: all participants. Stored with release after the last copy (muster_shm_completed); loaded with
     * acquire, after `ready` (is_complete): from then on the reader may change what it has shown. */
    _Alignas(SHM_LINE_BYTES) _Atomic uint64_t complete;
    /* The number of its own chunks that are sums, in the place of its input. Writer: owner. Readers: all
     * participants. Stored with release after the sum stands there (produce_chunk); loaded with acquire before
     * the sum is read (find_sum, is_shown). */
    _Atomic uint32_t published;
    /* Exchanges with the caller's counts: where the participants' parts begin in its input, in elements, and
     * their end. Plain. Writer: owner. Readers: all participants, by seqlock with `ready`. */
    uint64_t parts[MUSTER_SHM_MEMBERS_MAX + 1];
    /* Per-member checksum of send counts minus expected receive counts; sums to 0 over all members iff the
     * counts agree. Plain. Writer: owner. Readers: all participants, by seqlock with `ready`. */
    uint64_t expect_checksum;
    /* One more than the chunk whose sum the slot has; 0: none. Writer: owner. Readers: heirs, when somebody is
     * out. Stored with release when the slot has the sum, and a release fence before the input is overwritten
     * (muster_shm_hold_chunk); loaded with acquire (is_held): the slot is valid while a second load gives the
     * same, and a sum of inputs counts only if a load after it gives another chunk (is_begun). */
    _Alignas(SHM_LINE_BYTES) _Atomic uint32_t held;
    /* One more than the chunk that its owner sums for a dead participant: the others take another. 0: none.
     * Writer: owner. Readers: heirs. Relaxed on both sides: a hint, for two that sum the same chunk make the
     * same bits. */
    _Atomic uint32_t taken;
};

/** A bit for each chunk that its owner has taken over, after the sum in the slot. Writer: owner. Readers: all
 * participants. Stored with release after the sum stands in the place of the input (mark_chunk); loaded with
 * acquire before the sum is read (is_marked). Cleared by begin_entry while `ready` is 0. */
typedef _Atomic uint64_t muster_shm_mark_word;
#define SHM_MARK_BITS 64u

struct muster_shm_lane {
    /* Its owner needs nothing of operations whose ordinal is less. Writer: owner. Readers: all. Stored with
     * release after the last copy (advance_done), rises only; loaded with acquire (is_complete): from then on
     * the reader may change what it has shown. 0 again when no other member is there
     * (muster_group_start_over). */
    _Alignas(SHM_LINE_BYTES) _Atomic uint64_t done;
};

/** Only its owner reads and writes it. */
struct muster_shm_heap {
    uint64_t top;                    /* bytes; 0: not initialised */
    uint32_t free[SHM_HEAP_CLASSES]; /* lines; 0: none */
};

/** A slot whose operation this process has dropped while others may still read the input in it. It is
 * given back when its place is taken by another operation, or when the heap has nothing else. Only its owner
 * reads and writes it. */
struct muster_shm_kept {
    uint32_t line; /* 0: none */
    uint32_t class;
};

/** A message, on its sender's board. */
struct muster_shm_shown {
    /* Key of the message; 0: none. Writer: sender. Reader: receiver. Stored last, with release
     * (muster_message_show); taken back with a relaxed 0 and a release fence before the caller's memory changes
     * (muster_message_hide). Loaded with acquire before the fields, and after an acquire fence after each copy
     * (has_key). */
    _Alignas(SHM_LINE_BYTES) _Atomic uint64_t key;
    /* Plain. Writer: sender, while `key` is 0. Reader: receiver, by seqlock with `key`. */
    uint64_t offset, count;
    uint32_t input, share;      /* enum muster_shm_input; NONE: it goes in frames */
    uint32_t dtype, first_open; /* the sender has no open message before */
    /* The sender looks for `taken`. Writer: sender. Reader: receiver. Relaxed, with a seq_cst fence after the
     * store (say_looking) and before the load (take_message): either the receiver sees that the sender has
     * stopped looking, and sends a frame, or the sender's last look sees `taken`. */
    _Atomic uint32_t is_awaited;
};

/** The receiver's answer to a message, on its own board. */
struct muster_shm_taken {
    /* Key of the message for which the receiver looks; 0: none. Writer: receiver (say_looking). Reader: sender
     * (is_looked_for). Relaxed, and a seq_cst fence after the store, before the receiver's last look at
     * `key`: a hint, for a sender that reads it late sends an OFFER too many, or too late. */
    _Atomic uint64_t looks_for;
    /* Key of the message that the receiver has copied. Writer: receiver. Reader: sender. Stored with release
     * after the copy (take_message); loaded with acquire (look_for_taken): the sender's memory is its caller's
     * again. */
    _Atomic uint64_t taken;
};

struct muster_shm_board {
    struct muster_shm_lane lanes[MUSTER_LANES_MAX];
    struct muster_shm_entry entries[MUSTER_LANES_MAX][SHM_LANE_ENTRIES];
    struct muster_shm_shown shown[MUSTER_SHM_MEMBERS_MAX][SHM_SHOWN_MAX]; /* by receiver */
    struct muster_shm_taken taken[MUSTER_SHM_MEMBERS_MAX][SHM_SHOWN_MAX]; /* by sender */
    /* Only its owner reads and writes these. They stand on the board, not in a group, because groups follow
     * each other and overlap on one board. */
    _Alignas(SHM_LINE_BYTES) struct muster_shm_heap heap;
    uint64_t messages_bytes; /* that are in slots */
    struct muster_shm_stage idle_stages[SHM_STAGES_IDLE_MAX];
    bool is_taken[MUSTER_LANES_MAX][SHM_LANE_ENTRIES]; /* a run of this process has the place */
    struct muster_shm_kept kept[MUSTER_LANES_MAX][SHM_LANE_ENTRIES];
    /* Its owner wants to be signalled. Writer: owner (muster_shm_set_asleep). Readers: all (muster_shm_wake,
     * wake_peer). Relaxed, pairs with nothing: a signal that is missed costs the time until the owner's loop
     * wakes up by itself. */
    _Alignas(SHM_LINE_BYTES) _Atomic uint32_t is_asleep;
    /* Rises while its owner works on its operations. Writer: owner (muster_shm_beat). Readers: members whose
     * deadline has passed, once in a grace period (has_stalled). Relaxed, pairs with nothing: only a change is
     * looked for, and no memory is read because of it. */
    _Alignas(SHM_LINE_BYTES) _Atomic uint64_t beat;
};

#endif
