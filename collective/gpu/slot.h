/* Where the driver's callbacks write. They may come late, after the operation, its communicator and
 * the backend are gone, so the slots are never freed. */
#ifndef MUSTER_COLLECTIVE_GPU_SLOT_H
#define MUSTER_COLLECTIVE_GPU_SLOT_H

#include <muster/loop.h>

#define MUSTER_GPU_SLOT_COUNT 4096u /* of the process */

struct muster_gpu_slot;

/** A slot whose callback wakes `wake`; NULL: all are in use. */
struct muster_gpu_slot *muster_gpu_slot_take(struct muster_wake *wake);
/** The callback: muster_cuda_launch_host(…, muster_gpu_slot_fire, slot). Any thread. */
void muster_gpu_slot_fire(void *slot);
bool muster_gpu_slot_has_fired(const struct muster_gpu_slot *slot);
/** Nobody waits for it any more; used again once it has fired (has_callback false: at once). NULL is
 * accepted. */
void muster_gpu_slot_drop(struct muster_gpu_slot *slot, bool has_callback);

#endif
