/* Entries of operations as they are written and read, and a large all_reduce that goes by pieces of copies. */
#ifndef MUSTER_COLLECTIVE_SHM_PIECES_H
#define MUSTER_COLLECTIVE_SHM_PIECES_H

#include "collective/group/shm/shm_internal.h"

/* collective/group/shm/entry.c */
/** An entry of a participant as it was read. */
struct muster_shm_shown_input {
    uint64_t descriptor, weight, done_before;
    uint32_t kind;     /* enum muster_shm_input */
    const uint8_t *at; /* NULL: none, or not mapped yet */
    struct muster_shm_part part;
};
/** Fill in the fields of the own entry that tell the operation from others. */
void muster_shm_describe(struct muster_run *run);
/** `key` is `ready` or `opened` of the participant's entry. False: it does not show the operation. */
bool muster_shm_read_entry(const struct muster_run *run, uint32_t index,
                           const _Atomic uint64_t *key, struct muster_shm_shown_input *ret_shown);
/** Keep what is known of a participant that has called what this process has. */
void muster_shm_note_input(struct muster_run *run, uint32_t index,
                           const struct muster_shm_shown_input *shown);
/** Look which participants show copies. */
void muster_shm_hear_all_open(struct muster_run *run);

/* collective/group/shm/board.c */
/** If the inputs of all turn out to be copies. */
bool muster_shm_may_go_by_pieces(const struct muster_run *run);

/* collective/group/shm/pieces.c */
/** The inputs of all are copies. */
bool muster_shm_goes_by_pieces(const struct muster_run *run);
/** The others have mapped the staging area: they may read what is copied from now on. */
void muster_shm_pieces_open(struct muster_run *run);
/** Copy and sum some pieces. True: something moved. */
bool muster_shm_pieces_move(struct muster_run *run);
bool muster_shm_pieces_are_staged(const struct muster_run *run);
bool muster_shm_pieces_are_whole(const struct muster_run *run);
/** The tensor is the input again. */
void muster_shm_pieces_restore(struct muster_run *run);

#endif
