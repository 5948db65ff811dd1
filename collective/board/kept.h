/* Tensors whose memory outlives their environment. */
#ifndef MUSTER_COLLECTIVE_BOARD_KEPT_H
#define MUSTER_COLLECTIVE_BOARD_KEPT_H

#include <muster/collective.h>

/** The tensor's data stays where it is when env is closed, whose memory is muster_mem_system's.
 * muster_tensor_free is still right before that, and muster_tensor_drop after it. *ret_bytes are those
 * of its mapping; 0: it is ordinary memory. */
void muster_tensor_keep(struct muster_env *env, const struct muster_tensor *tensor,
                        void **ret_start, size_t *ret_bytes);
void muster_tensor_drop(void *start, size_t bytes);

#endif
