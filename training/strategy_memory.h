/* Tensors of the training state in device memory: they are copied, in pieces, wherever the host's bytes of others are
 * used as they lie. */
#ifndef MUSTER_TRAINING_STRATEGY_MEMORY_H
#define MUSTER_TRAINING_STRATEGY_MEMORY_H

#include "collective/gpu/device_memory.h"
#include "training/strategy_internal.h"

/** The state is given to others in pieces of up to so many bytes, so many at a time. */
#define MUSTER_STRATEGY_PIECE_BYTES ((size_t)4 << 20)
#define MUSTER_STRATEGY_PIECES_MAX  8u

/** Open the device that address is on; once. Errors: INVALID_ARGUMENT (another device is open), those of
 * muster_device_memory_open. name is for errors. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_open(struct muster_strategy *strategy,
                                                             const char *name, const void *address);
/** The memory of a tensor that is registered now; *ret_memory NULL: the host's. Errors: INVALID_ARGUMENT (others are on
 * another device), those of muster_device_memory_open. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_find(struct muster_strategy *strategy,
                                                             const char *name,
                                                             const struct muster_tensor *tensor,
                                                             struct muster_far_memory **ret_memory);
void muster_strategy_memory_close(struct muster_strategy *strategy);

/** The memory of a piece of the state; NULL: the host's. */
struct muster_far_memory *muster_strategy_memory_at(const struct muster_strategy *strategy,
                                                    const void *data);
/** Wait for the program's stream. Not in the seat: it may take long. A failure is kept for check. */
void muster_strategy_memory_settle(struct muster_strategy *strategy, const char *name);
bool muster_strategy_memory_has_failed(const struct muster_strategy *strategy);
/** UNAVAILABLE, and FAILED from here on: the memory has failed. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_check(struct muster_strategy *strategy);

/* strategy_pieces.c */
/** Copy a piece of the state to the host's memory, or from it. Errors: UNAVAILABLE, with its text. In the seat. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_piece_read(struct muster_strategy *strategy,
                                                            const struct muster_tensor *piece,
                                                            void *to);
MUSTER_MUST_CHECK enum muster_rc muster_strategy_piece_write(struct muster_strategy *strategy,
                                                             const struct muster_tensor *piece,
                                                             const void *from);
/** The piece's bytes where the host can read them, as piece `index` of those that are used now. Borrowed until the next
 * one by this index. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_piece_look(struct muster_strategy *strategy,
                                                            const struct muster_tensor *piece,
                                                            size_t index, const void **ret_bytes);
/** muster_strategy_broadcast_in_seat of up to MUSTER_STRATEGY_PIECES_MAX pieces. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_give_pieces(struct muster_strategy *strategy,
                                                             const char *name,
                                                             const struct muster_tensor *pieces,
                                                             size_t count,
                                                             const struct muster_root *root);
/** The room of these pieces goes back to the system. */
void muster_strategy_give_end(struct muster_strategy *strategy);

#endif
