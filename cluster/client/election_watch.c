/* Observers of an election: a range for the leader, then a watch of its key, or of all keys when
 * there is no leader. Changes behind the leader in the queue cost an observer nothing that way. */
#include <muster/locks.h>

#include <string.h>

#include "cluster/client/registry_client_internal.h"

/* An attempt that takes longer is repeated at another endpoint. */
#define ATTEMPT_NS (5 * MUSTER_NS_PER_S)

/* Outlives the caller's watch when that is stopped before the answer. */
struct muster_election_asking {
    struct muster_registry_op op;
    struct muster_mem *mem;
    struct muster_election_watch *watch; /* NULL: stopped */
};

static void read_leader(struct muster_election_watch *watch);

static void ask_later(struct muster_election_watch *watch)
{
    struct muster_loop *loop = watch->registry->env->loop;
    uint64_t wait_ns = muster_registry_backoff(watch->registry, &watch->backoff_ns);

    muster_timer_start(&watch->again, loop, muster_loop_after_ns(loop, wait_ns));
}

static void on_again(struct muster_timer *timer)
{
    read_leader(timer->data);
}

/* The last thing that a caller does: the watch may be stopped in it. */
static void show_leader(struct muster_election_watch *watch,
                        const struct muster_registry_kv *leader)
{
    uint64_t revision = leader != NULL ? leader->mod_revision : 0;

    /* A new range may find what was shown already. */
    if (watch->has_shown && watch->shown_revision == revision)
        return;
    watch->has_shown = true;
    watch->shown_revision = revision;
    watch->on_leader(watch, leader);
}

/* A put of the leader's key shows its new value. After its deletion, or after the first put of a
 * queue that was empty, the leader is read again. */
static void on_changes(struct muster_registry_watch *keys,
                       const struct muster_registry_change *changes, size_t count)
{
    struct muster_election_watch *watch = keys->data;
    bool is_led = watch->shown_revision != 0;

    for (size_t i = 0; i < count; i++) {
        if (changes[i].is_delete != is_led)
            continue;
        muster_registry_watch_stop(&watch->watch);
        read_leader(watch);
        return;
    }
    if (is_led)
        show_leader(watch, &changes[count - 1].kv);
}

static void on_watch_end(struct muster_registry_watch *keys, enum muster_rc rc)
{
    struct muster_election_watch *watch = keys->data;

    (void)rc; /* a new range says more */
    ask_later(watch);
}

static void watch_from(struct muster_election_watch *watch, const struct muster_registry_kv *leader,
                       uint64_t revision)
{
    struct muster_bytes queue = {.data = watch->queue, .size = watch->queue_bytes};

    watch->watch.data = watch;
    if (muster_registry_watch_start(&watch->watch, watch->registry,
                                    leader != NULL ? leader->key : queue,
                                    leader != NULL ? MUSTER_REGISTRY_KEY : MUSTER_REGISTRY_PREFIX,
                                    revision + 1, on_changes, on_watch_end) != MUSTER_OK)
        ask_later(watch);
}

static void on_range(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_election_asking *asking = op->data;
    struct muster_election_watch *watch = asking->watch;
    const struct muster_registry_kv *leader = op->kv_count > 0 ? &op->kvs[0] : NULL;
    uint64_t revision = op->revision;

    muster_mem_free(asking->mem, asking);
    if (watch == NULL)
        return;
    watch->asking = NULL;
    if (rc != MUSTER_OK) {
        if (!watch->registry->is_closing)
            ask_later(watch);
        return;
    }
    watch->backoff_ns = 0;
    /* The watch goes on from the revision of the range, so no change is lost between the two. */
    watch_from(watch, leader, revision);
    show_leader(watch, leader);
}

static void read_leader(struct muster_election_watch *watch)
{
    struct muster_env *env = watch->registry->env;
    struct muster_registry_range range = {.key = {watch->queue, watch->queue_bytes},
                                          .reach = MUSTER_REGISTRY_PREFIX,
                                          .order = MUSTER_REGISTRY_OLDEST_FIRST,
                                          .limit = 1};
    struct muster_election_asking *asking = muster_mem_alloc_zero(env->mem, 1, sizeof(*asking));

    if (asking == NULL) {
        ask_later(watch);
        return;
    }
    asking->op.data = asking;
    asking->mem = env->mem;
    asking->watch = watch;
    if (muster_registry_range_start(&asking->op, watch->registry, &range,
                                    muster_loop_after_ns(env->loop, ATTEMPT_NS),
                                    on_range) == MUSTER_OK) {
        watch->asking = asking;
        return;
    }
    muster_mem_free(env->mem, asking);
    if (!watch->registry->is_closing)
        ask_later(watch);
}

enum muster_rc muster_election_watch_start(struct muster_election_watch *watch,
                                           struct muster_registry *registry,
                                           struct muster_bytes name,
                                           muster_election_watch_fn *on_leader)
{
    void *data = watch->data;
    char *queue = NULL;

    if (name.size == 0)
        return MUSTER_INVALID_ARGUMENT;
    queue = muster_mem_alloc(registry->env->mem, name.size + 1);
    if (queue == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(queue, name.data, name.size);
    queue[name.size] = '/';
    memset(watch, 0, sizeof(*watch));
    watch->data = data;
    watch->on_leader = on_leader;
    watch->registry = registry;
    watch->queue = queue;
    watch->queue_bytes = name.size + 1;
    muster_timer_init(&watch->again, on_again, watch);
    read_leader(watch);
    return MUSTER_OK;
}

void muster_election_watch_stop(struct muster_election_watch *watch)
{
    if (watch->queue == NULL)
        return;
    muster_timer_stop(&watch->again);
    muster_registry_watch_stop(&watch->watch);
    if (watch->asking != NULL) {
        watch->asking->watch = NULL;
        muster_registry_op_cancel(&watch->asking->op);
        watch->asking = NULL;
    }
    muster_mem_free(watch->registry->env->mem, watch->queue);
    watch->queue = NULL;
}
