/* Timers in (due, start order): an intrusive pairing heap. Pure; real and simulated loops share it.
 */
#ifndef MUSTER_RUNTIME_TIMER_QUEUE_H
#define MUSTER_RUNTIME_TIMER_QUEUE_H

#include <muster/loop.h>

struct muster_timer_queue {
    struct muster_timer *root;
    uint64_t next_order; /* start_order of the next insert */
};

void muster_timer_queue_init(struct muster_timer_queue *queue);

/**
 * Insert by timer->due_ns, after all timers with the same due time.
 *
 * Owns:   borrows timer until it is removed or popped; sets its private heap fields and
 * start_order. Source: Fredman, Sedgewick, Sleator & Tarjan 1986 (pairing heap): insert O(1), pop
 * O(log n) amortised.
 */
void muster_timer_queue_insert(struct muster_timer_queue *queue, struct muster_timer *timer);

/** The timer must be in the queue. */
void muster_timer_queue_remove(struct muster_timer_queue *queue, struct muster_timer *timer);

/** The earliest timer, still queued, or NULL. */
struct muster_timer *muster_timer_queue_first(const struct muster_timer_queue *queue);

/**
 * Take out the earliest timer if it is due at now_ns and was inserted before order_limit, else
 * NULL. A turn reads next_order once and passes it, so a timer started during the turn waits for
 * the next one; this needs due times clamped to now_ns at start, which muster_timer_start does.
 */
struct muster_timer *muster_timer_queue_pop_due(struct muster_timer_queue *queue, uint64_t now_ns,
                                                uint64_t order_limit);

#endif
