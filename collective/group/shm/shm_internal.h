/* One operation through boards, and the functions that carry it out: what the files of this folder share. All of it
 * is this process's own memory; the fields that other processes read are in layout.h. */
#ifndef MUSTER_COLLECTIVE_SHM_INTERNAL_H
#define MUSTER_COLLECTIVE_SHM_INTERNAL_H

#include "collective/group/group_internal.h"
#include "collective/group/shm.h"
#include "collective/group/shm/layout.h"

/** The part of another's input that a participant takes, in bytes. */
struct muster_shm_part {
    uint64_t first, bytes;
    uint64_t expect_checksum; /* as in its entry; else 0 */
};

/** The members of one epoch that work through boards. Counted: by the group and by its runs, which
 * may outlive it. */
struct muster_shm {
    struct muster_env *env;
    struct muster_board *board; /* NULL: none */
    struct muster_group *group; /* NULL: closed */
    struct muster_list node;    /* the others of this board, a ring without a head */
    uint32_t references, n;
    bool is_answered; /* this member has said yes or no */
    bool is_settled;  /* all have said yes, or one no: later answers do not matter */
    bool is_used;     /* settled, and all have said yes */
    bool is_short;    /* an operation waits for a slot */
    uint32_t yes_count;
    uint64_t *done;                   /* by lane and rank: what announcements said; a hint */
    bool *is_heard;                   /* by rank */
    struct muster_board_peer **peers; /* by rank; the own is NULL */
};

/** One participant of a run: where its entry and its memory are, and what is known of it. Knowledge only grows. */
struct muster_shm_participant {
    const struct muster_shm_entry *entry;
    const struct muster_shm_lane *lane;
    struct muster_board_peer *peer; /* NULL: this process */
    const uint8_t *board;
    size_t board_bytes;
    const uint8_t *input; /* the part that this one takes … */
    uint64_t bytes;       /* … and its length */
    uint64_t seen;        /* its beat at the last look for those that have stalled */
    uint32_t rank;        /* in the epoch of the run */
    uint32_t staged;      /* pieces that it has copied, as its entry has said it */
    bool is_open;         /* its input is a copy that has been seen */
    bool is_ready;        /* its announcement and its input have been seen */
    bool is_dead;         /* confirmed by the board: it writes and reads nothing any more */
    bool is_complete;     /* it needs nothing of this process for the operation */
    bool is_gone;         /* it may live, and read; nobody waits for it */
};

/** The chunks that one participant owns. */
struct muster_shm_stream {
    uint32_t next; /* first chunk, or piece of a part, that is not known to be in the output here */
};

/** A run's part for this executor, in one buffer of the pool with the arrays at its end (muster_shm_prepare). */
struct muster_shm_run {
    struct muster_shm *link;        /* a reference: peers' memory stays mapped */
    struct muster_shm_entry *entry; /* the own */
    uint64_t key, ordinal;          /* of the operation in the view where it was announced */
    uint64_t expect_checksum;       /* of those that are ready */
    uint32_t n, index, entry_index, stream_count;
    uint32_t ready_count, complete_count, open_count, looks;
    uint32_t staged, summed; /* pieces of the input that are copied; of the output that are sums */
    uint32_t slot_class;             /* of the heap */
    size_t slot_bytes, marks_offset; /* of the whole slot; of the marks in it */
    uint8_t *slot;                   /* NULL: none */
    uint32_t idle;                   /* looks for a chunk that the dead have left, in vain */
    uint64_t missing_until_ns;       /* loop time: an announcement is gone then (leave.c) */
    struct muster_shm_stage stage;
    bool is_open;        /* `opened` was stored */
    bool is_announced;   /* `ready` was stored; stays true when it is taken back */
    bool is_blocked;     /* an announcement is gone, or the view changes: nothing moves */
    bool is_begun;       /* something of an output has changed */
    bool is_unsure;      /* the last piece of a sum has not been validated */
    bool is_left_behind; /* the others have gone on without this process: it cannot end well here */
    bool is_missing;     /* the last look has missed an announcement … */
    bool is_closed;      /* … which is gone for good */
    bool has_seen;       /* participants[i].seen are set */
    struct muster_shm_participant *participants;
    struct muster_shm_stream *streams;
    const void **sources; /* scratch: n */
    uint64_t *weights;    /* by participant, of those that are ready */
};

static inline struct muster_shm_run *muster_shm_of(const struct muster_run *run)
{
    return run->executor;
}

/** A hint: this processor will write the line, so fetch it for writing. Without options compilers turn
 * their own hint into one for reading. */
static inline void muster_shm_own_cache_line(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const uint8_t *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/** Why a member says no to boards: of a frame BOARD, as its `chunk`. */
enum muster_shm_refusal {
    MUSTER_SHM_REFUSES, /* it does not say why */
    MUSTER_SHM_REFUSES_BY_CHOICE,
    MUSTER_SHM_HAS_NO_BOARD,
    MUSTER_SHM_REACHES_NO_PEER,
};

/* collective/group/shm/link.c */
struct muster_shm *muster_shm_ref(struct muster_shm *shm);
void muster_shm_unref(struct muster_shm *shm);
/** Another group of this process uses that board, too. */
bool muster_shm_is_needed(const struct muster_shm *shm, const struct muster_board_peer *peer);

/* collective/group/shm/board.c */
struct muster_shm_board *muster_shm_board_of(struct muster_board *board);
const struct muster_shm_board *muster_shm_board_of_peer(const struct muster_board_peer *peer);
uint64_t muster_shm_ordinal(const struct muster_op_id *id);
uint64_t muster_shm_key(uint64_t epoch, const struct muster_op_id *id);
uint32_t muster_shm_entry_index(const struct muster_op_id *id);

/* collective/group/shm/heap.c: memory of a board for slots, in powers of two from 1 KiB on */
/** NULL: nowhere is that much free at a multiple of its size. What was taken has no say in what can be
 * taken once it has been given back. */
uint8_t *muster_shm_heap_take(struct muster_board *board, size_t bytes, uint32_t *ret_class);
void muster_shm_heap_give(struct muster_board *board, uint8_t *at, uint32_t class);
/** The slot stays as it is while others may read it; one per place of a lane. */
void muster_shm_kept_set(struct muster_board *board, uint32_t lane_index, uint32_t entry_index,
                         const uint8_t *slot, uint32_t class);
/** Takes the announcement of the dropped operation back, if a slot is kept for it, and gives that to
 * the heap. Returns whether there was one. */
bool muster_shm_kept_give(struct muster_board *board, uint32_t lane_index, uint32_t entry_index);
bool muster_shm_kept_give_all(struct muster_board *board);

/** Bytes of the slot before the marks. */
size_t muster_shm_chunk_slot_bytes(const struct muster_plan *plan);
/** Its done as announcements have said it: a hint. */
uint64_t *muster_shm_said_done(const struct muster_run *run,
                               const struct muster_shm_participant *participant);

/* collective/group/shm/run.c */
enum muster_prepared muster_shm_prepare(struct muster_run *run);
enum muster_run_outcome muster_shm_start(struct muster_run *run);
enum muster_run_outcome muster_shm_adopt(struct muster_run *run);
void muster_shm_completed(struct muster_run *run);
void muster_shm_freeze(struct muster_run *run);
void muster_shm_finish(struct muster_run *run);
/** An operation of the wire is complete: operations after it in its lane may be known to be. */
void muster_shm_advance(struct muster_group *group, const struct muster_op_id *id);
void muster_shm_point(const struct muster_run *run, const char *point);
/** Participants that have been read from are still there: what was read is what they had. */
bool muster_shm_is_valid(const struct muster_run *run);
/** Look who is dead, now and then. */
void muster_shm_look(struct muster_run *run);
/** The buffer with what a run knows of its participants. */
size_t muster_shm_table_bytes(const struct muster_plan *plan);
/** A slot for the input (flat), or for the sum of one chunk. */
size_t muster_shm_slot_bytes(const struct muster_plan *plan, size_t input_bytes);
/** Signal the participants that sleep. */
void muster_shm_wake(struct muster_run *run);

/** HAS_RESULT: the run is complete, when its lane has been told so. */
enum muster_run_outcome muster_shm_work(struct muster_run *run, bool *ret_has_moved);
/** Look which participants are complete. True: more than before. */
bool muster_shm_hear_all_complete(struct muster_run *run);
bool muster_shm_is_ready(const struct muster_run *run);
bool muster_shm_has_input(const struct muster_run *run);
bool muster_shm_is_deliverable(const struct muster_run *run);
bool muster_shm_is_stable(const struct muster_run *run);
void muster_shm_revoke(struct muster_run *run);
void muster_shm_hear(struct muster_run *run);
/* drive.c, progress.c */
/** Some of the work of a run. True: something moved. */
bool muster_shm_step(struct muster_run *run);
/** From now on the loop works on the operations of the group. */
void muster_shm_drive(struct muster_group *group);
void muster_shm_set_asleep(struct muster_group *group, bool is_asleep);
void muster_shm_stop_driving(struct muster_group *group);
void muster_shm_init_driving(struct muster_group *group);
/* hold.c */
void muster_shm_end_lingering(struct muster_run *run);
/** Lingering runs that no other member needs any more end. */
void muster_shm_release(struct muster_lane *lane);

/* collective/group/shm/leave.c */
/** All have announced it, so that nobody needs to wait for anybody: it ends well whatever happens. */
bool muster_shm_is_sure(const struct muster_run *run);
void muster_shm_leave_stalled(struct muster_run *run);
bool muster_shm_is_left_behind(const struct muster_run *run);
bool muster_shm_hold(struct muster_run *run);
bool muster_shm_withdraw(struct muster_run *run);
/** A lingering run: no other member needs it any more, and it has no result. */
bool muster_shm_is_released(const struct muster_run *run);
/** Nobody waits for it: its inputs and what it has published stay good. */
static inline bool muster_shm_is_out(const struct muster_shm_participant *participant)
{
    return participant->is_dead || participant->is_gone;
}
/** This process runs. */
void muster_shm_beat(struct muster_run *run);
/** Go on without a participant that lives. Before anything that it may still read changes. */
void muster_shm_leave(struct muster_run *run, uint32_t index);
/** Participants that the others have left behind are left behind here, too. */
void muster_shm_apply_exclusions(struct muster_run *run);
/** After a change of view: when a participant has closed, nobody that needs its memory can come to a result. */
void muster_shm_look_for_closed(struct muster_run *run);
/** The participant has all that it needs, or needs nothing any more (collective/group/shm/run.c). */
bool muster_shm_is_through(const struct muster_run *run, uint32_t index);

/* collective/group/shm/input.c */
/** Whether the others can find an input. */
enum muster_shm_input_state {
    SHM_INPUT_SHOWN,
    SHM_INPUT_NOT_YET,   /* a peer has not mapped it */
    SHM_INPUT_NO_MEMORY, /* here, or for the mapping of a peer: never */
};
/** Fill in where the others find the input. */
enum muster_shm_input_state muster_shm_show_input(struct muster_run *run, size_t bytes);
void muster_shm_hide_input(struct muster_run *run);
/** Copy a part of the input to the staging area. */
void muster_shm_stage_copy(struct muster_run *run, size_t at, size_t bytes);
/** Memory that peers map, or will: for a copy. False: none. */
bool muster_shm_stage_take(struct muster_board *board, size_t bytes,
                           struct muster_shm_stage *ret_stage);
/** Keep it for the next operations. */
void muster_shm_stage_give(struct muster_board *board, struct muster_shm_stage *stage);
/** memcpy, through the caches. */
void muster_shm_copy(uint8_t *into, const uint8_t *from, size_t bytes);
/** At the end of the last group. */
void muster_shm_drop_stages(struct muster_board *board);

/* collective/group/shm/exchange.c */
/** Length of the input that this process shows. */
size_t muster_shm_input_bytes(const struct muster_run *run);
/** The part that it takes of the participant's input; from counts that the participant has
 * announced, which may be nonsense. */
struct muster_shm_part muster_shm_part_of(const struct muster_run *run, uint32_t giver);
/** Announce the counts of the caller's. */
void muster_shm_show_parts(struct muster_run *run);
/** It is what is expected here; of the last participant: and all others get what they expect. */
bool muster_shm_part_fits(struct muster_run *run, uint32_t giver,
                          const struct muster_shm_part *part);
/** Take a piece of each part, or sum one. True: something moved. */
bool muster_shm_exchange_move(struct muster_run *run);
bool muster_shm_exchange_is_whole(const struct muster_run *run);
/** A small one that is over, whose turn has not come: its input again. */
void muster_shm_flat_restore(struct muster_run *run);
bool muster_shm_flat_finish(struct muster_run *run);

/* collective/group/shm/chunks.c */
void muster_shm_chunks_begin(struct muster_run *run);
/** Sum and copy some chunks that are there. True: something moved. */
bool muster_shm_chunks_move(struct muster_run *run);
bool muster_shm_chunks_are_whole(const struct muster_run *run);

/* collective/group/shm/sum.c */
/** into[i] = shm->sources[0][i] (op) shm->sources[1][i] …; MEAN divides. */
void muster_shm_reduce_all(struct muster_run *run, void *into, uint64_t count);
/** Bytes from the start of the tensor. */
size_t muster_shm_chunk_offset(const struct muster_run *run, uint32_t c);
/** Into the slot. False: the inputs are not what they were any more. */
bool muster_shm_reduce_chunk(struct muster_run *run, uint32_t c);
/** The chunk's place will be overwritten, where its input is: from now on the sum in the slot counts. */
void muster_shm_hold_chunk(struct muster_run *run, uint32_t c);
/** Into the output, and into the copy of the input that the others read, if there is one: they find
 * the sum in the place of this process's input. */
void muster_shm_place_chunk(struct muster_run *run, uint32_t c, const uint8_t *from);

/* collective/group/shm/takeover.c */
/** Sum a chunk that a dead participant has left and nobody has taken. True: something
 * moved. */
bool muster_shm_take_over(struct muster_run *run);
/** Whoever shows the sum of a chunk which a dead participant has left; n: nobody. */
uint32_t muster_shm_find_taken_over(const struct muster_run *run, uint32_t c);
/** Bytes of the marks for chunks that were inherited; they lie after the slot. */
size_t muster_shm_marks_bytes(const struct muster_plan *plan);

#endif
