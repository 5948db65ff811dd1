/* Reader threads, and the order of their batches. One mutex guards the states of slots and the order; a slot's other
 * fields belong to whoever its state names. */
#include "training/data/queue_system.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "runtime/system/huge_memory.h"

#define SLOTS_MAX   64u
#define THREADS_MAX 16u

struct muster_data_queue {
    const struct muster_data_source *source;
    struct muster_mem *mem;
    uint64_t bytes_max;
    struct muster_data_slot slots[SLOTS_MAX];
    unsigned slot_count; /* fewer where numbers and records of a batch are much beside bytes_max */
    /* The program's thread alone has these. */
    struct muster_data_slot *taken;
    struct muster_data_cursor cursor; /* of reads without a thread */
    size_t held_bytes;                /* capacities of slots other than the taken one */
    pid_t pid;                        /* of the process that has the threads */
    /* Guarded by mutex. */
    struct muster_data_slot *order[SLOTS_MAX]; /* a ring: first, count */
    unsigned first, count;
    bool is_closing;
    pthread_mutex_t mutex;
    pthread_cond_t planned, ready;
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
};

static struct muster_data_slot *order_at(const struct muster_data_queue *queue, unsigned i)
{
    return queue->order[(queue->first + i) % SLOTS_MAX];
}

/* --- Threads --- */

static struct muster_data_slot *planned_find(struct muster_data_queue *queue)
{
    for (unsigned i = 0; i < queue->count; i++)
        if (order_at(queue, i)->state == MUSTER_DATA_SLOT_PLANNED)
            return order_at(queue, i);
    return NULL;
}

static void *thread_run(void *data)
{
    struct muster_data_queue *queue = data;
    struct muster_data_cursor cursor = {0};

    (void)pthread_mutex_lock(&queue->mutex);
    while (!queue->is_closing) {
        struct muster_data_slot *slot = planned_find(queue);

        if (slot == NULL) {
            (void)pthread_cond_wait(&queue->planned, &queue->mutex);
            continue;
        }
        slot->state = MUSTER_DATA_SLOT_READING;
        (void)pthread_mutex_unlock(&queue->mutex);
        muster_data_slot_read(slot, queue->source, &cursor);
        (void)pthread_mutex_lock(&queue->mutex);
        slot->state = MUSTER_DATA_SLOT_READY;
        (void)pthread_cond_broadcast(&queue->ready);
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    muster_data_cursor_close(&cursor, queue->source);
    return NULL;
}

/* Signals stay with the program's threads. */
static void threads_start(struct muster_data_queue *queue, uint32_t count)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (queue->thread_count < count && queue->thread_count < THREADS_MAX &&
           pthread_create(&queue->threads[queue->thread_count], NULL, thread_run, queue) == 0)
        queue->thread_count++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void locks_init(struct muster_data_queue *queue)
{
    (void)pthread_mutex_init(&queue->mutex, NULL); /* these never fail on Linux */
    (void)pthread_cond_init(&queue->planned, NULL);
    (void)pthread_cond_init(&queue->ready, NULL);
}

/* The program's side calls this first. A child of fork has the queue, and none of the threads: one of them may have had
 * the mutex, or been reading. Each change that they make is of one state, so the order is whole. The child reads
 * itself, by descriptors of its own. */
static void fork_notice(struct muster_data_queue *queue)
{
    if (queue->pid == getpid())
        return;
    queue->pid = getpid();
    queue->thread_count = 0;
    locks_init(queue);
    for (unsigned i = 0; i < queue->count; i++)
        order_at(queue, i)->state = MUSTER_DATA_SLOT_PLANNED;
}

static void threads_join(struct muster_data_queue *queue)
{
    (void)pthread_mutex_lock(&queue->mutex);
    queue->is_closing = true;
    (void)pthread_cond_broadcast(&queue->planned);
    (void)pthread_mutex_unlock(&queue->mutex);
    for (unsigned i = 0; i < queue->thread_count; i++)
        (void)pthread_join(queue->threads[i], NULL);
}

/* --- Life --- */

/* Two at least: the one that the program has, and the next one. */
static unsigned slot_count_choose(uint32_t batch, uint64_t bytes_max)
{
    uint64_t count = bytes_max / (batch * MUSTER_DATA_RECORD_BYTES);

    if (count < 2)
        return 2;
    return count < SLOTS_MAX ? (unsigned)count : SLOTS_MAX;
}

enum muster_rc muster_data_queue_open(const struct muster_data_source *source, uint32_t batch,
                                      uint32_t thread_count, uint64_t bytes_max,
                                      struct muster_data_queue **ret_queue)
{
    struct muster_data_queue *queue = muster_mem_alloc_zero(source->mem, 1, sizeof(*queue));

    if (queue == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    queue->source = source;
    queue->mem = source->mem;
    queue->bytes_max = bytes_max;
    queue->slot_count = slot_count_choose(batch, bytes_max);
    queue->pid = getpid();
    locks_init(queue);
    for (unsigned i = 0; i < queue->slot_count; i++) {
        if (muster_data_slot_init(&queue->slots[i], queue->mem, batch) != MUSTER_OK) {
            muster_data_queue_close(queue);
            return MUSTER_RESOURCE_EXHAUSTED;
        }
    }
    threads_start(queue, thread_count);
    *ret_queue = queue;
    return MUSTER_OK;
}

void muster_data_queue_close(struct muster_data_queue *queue)
{
    struct muster_mem *mem;

    if (queue == NULL)
        return;
    mem = queue->mem;
    fork_notice(queue);
    threads_join(queue);
    muster_data_cursor_close(&queue->cursor, queue->source);
    for (unsigned i = 0; i < queue->slot_count; i++)
        muster_data_slot_fini(&queue->slots[i], mem);
    (void)pthread_cond_destroy(&queue->ready);
    (void)pthread_cond_destroy(&queue->planned);
    (void)pthread_mutex_destroy(&queue->mutex);
    muster_mem_free(mem, queue);
}

/* --- The program's side --- */

/* The largest free one, so that memory is used again. Only the program's thread makes a slot free, or frees one. */
struct muster_data_slot *muster_data_queue_reserve(struct muster_data_queue *queue)
{
    struct muster_data_slot *best = NULL;

    fork_notice(queue);
    (void)pthread_mutex_lock(&queue->mutex);
    for (unsigned i = 0; i < queue->slot_count; i++) {
        struct muster_data_slot *slot = &queue->slots[i];

        if (slot->state == MUSTER_DATA_SLOT_FREE &&
            (best == NULL || slot->capacity > best->capacity))
            best = slot;
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    return best;
}

/* Free slots keep their memory only as long as it is within the bound. */
static void memory_trim(struct muster_data_queue *queue, const struct muster_data_slot *but)
{
    for (unsigned i = 0; i < queue->slot_count; i++) {
        struct muster_data_slot *slot = &queue->slots[i];

        if (slot->state != MUSTER_DATA_SLOT_FREE || slot == but || slot->capacity == 0)
            continue;
        queue->held_bytes -= slot->capacity;
        muster_mem_free(queue->mem, slot->bytes);
        slot->bytes = NULL;
        slot->capacity = 0;
    }
}

/* Records that a file's map has count as others do: their pages, too, are to be in the cache when they are used. */
static enum muster_rc slot_grow(struct muster_data_queue *queue, struct muster_data_slot *slot,
                                size_t bytes, bool is_copied)
{
    uint8_t *grown = NULL;

    if (bytes < slot->capacity)
        bytes = slot->capacity;
    if (bytes == slot->capacity && (bytes == 0 || slot->bytes != NULL || !is_copied))
        return MUSTER_OK;
    if (is_copied || slot->bytes != NULL) {
        grown = muster_mem_alloc(queue->mem, bytes); /* what it has is not needed */
        if (grown == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        muster_huge_memory_advise(grown, bytes);
    }
    muster_mem_free(queue->mem, slot->bytes);
    queue->held_bytes += bytes - slot->capacity;
    slot->bytes = grown;
    slot->capacity = bytes;
    return MUSTER_OK;
}

enum muster_rc muster_data_queue_append(struct muster_data_queue *queue,
                                        struct muster_data_slot *slot, bool *ret_is_appended)
{
    bool is_copied;
    size_t bytes = muster_data_slot_bytes(slot, queue->source, &is_copied);
    size_t more = bytes > slot->capacity ? bytes - slot->capacity : 0;
    enum muster_rc rc;

    fork_notice(queue);
    (void)pthread_mutex_lock(&queue->mutex);
    if (queue->held_bytes + more > queue->bytes_max)
        memory_trim(queue, slot);
    *ret_is_appended = queue->count == 0 || queue->held_bytes + more <= queue->bytes_max;
    rc = *ret_is_appended ? slot_grow(queue, slot, bytes, is_copied) : MUSTER_OK;
    if (rc == MUSTER_OK && *ret_is_appended) {
        slot->state = MUSTER_DATA_SLOT_PLANNED;
        queue->order[(queue->first + queue->count++) % SLOTS_MAX] = slot;
        (void)pthread_cond_signal(&queue->planned);
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    return rc;
}

const struct muster_data_place *muster_data_queue_first(const struct muster_data_queue *queue)
{
    return queue->count > 0 ? &order_at(queue, 0)->place : NULL;
}

static void taken_free(struct muster_data_queue *queue)
{
    if (queue->taken == NULL)
        return;
    queue->taken->state = MUSTER_DATA_SLOT_FREE;
    queue->held_bytes += queue->taken->capacity;
    queue->taken = NULL;
}

struct muster_data_slot *muster_data_queue_take(struct muster_data_queue *queue)
{
    struct muster_data_slot *slot;

    fork_notice(queue);
    (void)pthread_mutex_lock(&queue->mutex);
    MUSTER_ASSERT(queue->count > 0);
    slot = order_at(queue, 0);
    if (queue->thread_count == 0)
        muster_data_slot_read(slot, queue->source, &queue->cursor);
    else
        while (slot->state != MUSTER_DATA_SLOT_READY)
            (void)pthread_cond_wait(&queue->ready, &queue->mutex);
    taken_free(queue);
    queue->first = (queue->first + 1) % SLOTS_MAX;
    queue->count--;
    slot->state = MUSTER_DATA_SLOT_TAKEN;
    queue->held_bytes -= slot->capacity;
    queue->taken = slot;
    /* Batches beyond the bound are read one by one, and take turns in two buffers. */
    if (queue->held_bytes > queue->bytes_max && queue->count > 0)
        memory_trim(queue, NULL);
    (void)pthread_mutex_unlock(&queue->mutex);
    return slot;
}

void muster_data_queue_flush(struct muster_data_queue *queue)
{
    fork_notice(queue);
    (void)pthread_mutex_lock(&queue->mutex);
    for (unsigned i = 0; i < queue->count; i++) {
        struct muster_data_slot *slot = order_at(queue, i);

        while (slot->state == MUSTER_DATA_SLOT_READING)
            (void)pthread_cond_wait(&queue->ready, &queue->mutex);
        slot->state = MUSTER_DATA_SLOT_FREE;
    }
    queue->count = 0;
    (void)pthread_mutex_unlock(&queue->mutex);
}

size_t muster_data_queue_held_bytes(const struct muster_data_queue *queue)
{
    return queue->held_bytes;
}
