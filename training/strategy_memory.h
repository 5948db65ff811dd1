/* Tensors of the training state in device memory: they are copied, in pieces, wherever the host's bytes of others are
 * used as they lie. */
#ifndef MUSTER_TRAINING_STRATEGY_MEMORY_H
#define MUSTER_TRAINING_STRATEGY_MEMORY_H

#include "collective/gpu/device_memory.h"
#include "training/strategy_internal.h"

/** The state is given to others in pieces of up to so many bytes, so many at a time. */
#define MUSTER_STRATEGY_PIECE_BYTES ((size_t)4 << 20)
#define MUSTER_STRATEGY_PIECES_MAX  8u

/** The memory of a device, which is opened once. ret_memory may be NULL. Errors: those of muster_device_memory_open;
 * name is for errors. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_open(
    struct muster_strategy *strategy, const char *name, int gpu,
    struct muster_device_memory **ret_memory);
/** The memory of the device that address is on. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_open_of(
    struct muster_strategy *strategy, const char *name, const void *address,
    struct muster_device_memory **ret_memory);
/** The batch of an open device, which is opened once. Errors: those of muster_device_batch_open. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_batch(
    struct muster_strategy *strategy, const char *name, const struct muster_device_memory *memory,
    struct muster_device_batch **ret_batch);
/** The memory of a tensor that is registered now; *ret_memory NULL: the host's. Errors: those of
 * muster_device_memory_open. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_find(struct muster_strategy *strategy,
                                                             const char *name,
                                                             const struct muster_tensor *tensor,
                                                             struct muster_far_memory **ret_memory);
void muster_strategy_memory_close(struct muster_strategy *strategy);

/** The program's stream on a device: that of the first replica there. */
void *muster_strategy_stream_of(const struct muster_strategy *strategy,
                                const struct muster_device_memory *memory);
/** Call `wait` with each of the program's streams on all open devices, once. */
typedef void muster_strategy_stream_fn(void *data, struct muster_device_memory *memory,
                                       void *stream);
void muster_strategy_each_stream(const struct muster_strategy *strategy,
                                 muster_strategy_stream_fn *wait, void *data);
/** Wait for all of the program's streams on all open devices. What fails is kept by the memory. Any thread, not in the
 * seat. */
void muster_strategy_streams_wait(const struct muster_strategy *strategy, const char *name);
/** Whether a wait for one of the devices has taken too long: it may yet write to memory of the host … */
bool muster_strategy_memory_hangs(const struct muster_strategy *strategy);
/** … such as this, which stays where it is until the process ends. */
void muster_strategy_memory_abandon(const struct muster_strategy *strategy,
                                    struct muster_tensor *tensor);

/* strategy_idle.c: in the seat. The loop is turned meanwhile, so that this member answers the others. */
/** Wait until the program's stream on a device has done what it holds now. What fails is kept by the memory. */
void muster_strategy_await_stream(struct muster_strategy *strategy, const char *name,
                                  struct muster_device_memory *memory);
/** The same of all of the program's streams on all open devices. */
void muster_strategy_await_streams(struct muster_strategy *strategy, const char *name);
/** Wait for the end of the transfers of all open devices. */
void muster_strategy_await_transfers(struct muster_strategy *strategy);

/** The memory of a piece of the state; NULL: the host's. */
struct muster_far_memory *muster_strategy_memory_at(const struct muster_strategy *strategy,
                                                    const void *data);
/** Wait for the program's streams. Not in the seat: it may take long. A failure is kept for check. */
void muster_strategy_memory_settle(struct muster_strategy *strategy, const char *name);
bool muster_strategy_memory_has_failed(const struct muster_strategy *strategy);
/** UNAVAILABLE: a device has failed, with its text. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_memory_explain(
    const struct muster_strategy *strategy, struct muster_error *ret_error);
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
