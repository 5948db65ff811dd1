/* The pairing heap of timers. `child` is the first child; `next` the next sibling; `prev` the
 * previous sibling or, for a first child, the parent; the root has prev NULL. Most timers are
 * stopped before they are due, so a heap whose insert is cheap does better than a sorted one. */
#include "runtime/loop/timer_queue.h"

static bool is_before(const struct muster_timer *a, const struct muster_timer *b)
{
    if (a->due_ns != b->due_ns)
        return a->due_ns < b->due_ns;
    return a->start_order < b->start_order;
}

/** The winner of two roots, with the loser as its first child. Either may be NULL. */
static struct muster_timer *timer_meld(struct muster_timer *a, struct muster_timer *b)
{
    struct muster_timer *loser;

    if (a == NULL)
        return b;
    if (b == NULL)
        return a;
    loser = b;
    if (is_before(b, a)) {
        loser = a;
        a = b;
    }
    loser->next = a->child;
    if (a->child != NULL)
        a->child->prev = loser;
    loser->prev = a;
    a->child = loser;
    return a;
}

static void timer_detach(struct muster_timer *timer)
{
    timer->prev = NULL;
    timer->next = NULL;
}

/** One heap of a sibling list: meld pairs from the left, then the results from the right. */
static struct muster_timer *meld_siblings(struct muster_timer *first)
{
    struct muster_timer *pairs = NULL; /* stack through next */
    struct muster_timer *root = NULL;

    while (first != NULL) {
        struct muster_timer *a = first;
        struct muster_timer *b = a->next;

        first = b == NULL ? NULL : b->next;
        timer_detach(a);
        if (b != NULL)
            timer_detach(b);
        a = timer_meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs != NULL) {
        struct muster_timer *rest = pairs->next;

        timer_detach(pairs);
        root = timer_meld(root, pairs);
        pairs = rest;
    }
    return root;
}

void muster_timer_queue_init(struct muster_timer_queue *queue)
{
    *queue = (struct muster_timer_queue){.root = NULL};
}

void muster_timer_queue_insert(struct muster_timer_queue *queue, struct muster_timer *timer)
{
    MUSTER_ASSERT(timer->prev == NULL && queue->root != timer); /* in no queue */
    timer->start_order = queue->next_order++;
    timer->child = NULL;
    timer_detach(timer);
    queue->root = timer_meld(queue->root, timer);
}

/* The children of the removed timer are melded into one heap, which takes its place at the root or
 * is melded with the rest. */
void muster_timer_queue_remove(struct muster_timer_queue *queue, struct muster_timer *timer)
{
    struct muster_timer *rest = meld_siblings(timer->child);

    timer->child = NULL;
    if (queue->root == timer) {
        queue->root = rest;
        return;
    }
    MUSTER_ASSERT(timer->prev != NULL); /* else it is in no queue, or in another */
    if (timer->prev->child == timer)
        timer->prev->child = timer->next;
    else
        timer->prev->next = timer->next;
    if (timer->next != NULL)
        timer->next->prev = timer->prev;
    timer_detach(timer);
    queue->root = timer_meld(queue->root, rest);
}

struct muster_timer *muster_timer_queue_first(const struct muster_timer_queue *queue)
{
    return queue->root;
}

struct muster_timer *muster_timer_queue_pop_due(struct muster_timer_queue *queue, uint64_t now_ns,
                                                uint64_t order_limit)
{
    struct muster_timer *first = queue->root;

    if (first == NULL || first->due_ns > now_ns || first->start_order >= order_limit)
        return NULL;
    muster_timer_queue_remove(queue, first);
    return first;
}
