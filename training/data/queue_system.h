/* Batches that threads read ahead, in order. The program's thread plans and takes; all memory is allocated there. */
#ifndef MUSTER_TRAINING_DATA_QUEUE_SYSTEM_H
#define MUSTER_TRAINING_DATA_QUEUE_SYSTEM_H

#include "training/data/slot.h"

struct muster_data_queue;

/** Borrows source. bytes_max is for the bytes of records, and once more for their numbers and places.
 * thread_count 0, or a system that gives no threads: records are read by take. Gives. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_data_queue_open(const struct muster_data_source *source,
                                                        uint32_t batch, uint32_t thread_count,
                                                        uint64_t bytes_max,
                                                        struct muster_data_queue **ret_queue);
/** Waits for the reads that are under way. NULL is accepted. */
void muster_data_queue_close(struct muster_data_queue *queue);

/** A slot to plan in: place and part are the caller's to fill. NULL: all are in use. */
struct muster_data_slot *muster_data_queue_reserve(struct muster_data_queue *queue);
/** Append the reserved slot, to be read. False: the bytes that wait would be more than bytes_max; the slot is free
 * again. The first in an empty queue always fits. Errors: RESOURCE_EXHAUSTED (no memory; the slot is free again). */
MUSTER_MUST_CHECK enum muster_rc muster_data_queue_append(struct muster_data_queue *queue,
                                                          struct muster_data_slot *slot,
                                                          bool *ret_is_appended);
/** The place of the first batch; NULL: the queue is empty. */
const struct muster_data_place *muster_data_queue_first(const struct muster_data_queue *queue);
/** Wait until the first batch is read, and take it; the one taken before is free again. */
struct muster_data_slot *muster_data_queue_take(struct muster_data_queue *queue);
/** Forget what was appended and is not taken. */
void muster_data_queue_flush(struct muster_data_queue *queue);
/** Bytes of batches that wait or are being read; for tests. */
size_t muster_data_queue_held_bytes(const struct muster_data_queue *queue);

#endif
