/* A table of leases by id, each with one timer. The rows in the store outlive the process; the time
 * left does not, so after a restart every lease has its full time again, as in etcd after a change
 * of leader. The owner deletes the keys of an expired lease. Leases that the open transaction has
 * granted or removed are in two lists until it ends, so that undoing them needs neither memory nor
 * the store. */
#include "cluster/registry/lease.h"

#include <muster/loop.h>

#include <string.h>

#define BUCKETS_FIRST 64
/* The wait before a lease that could not be revoked is tried again; revoking fails only while the
 * store does. */
#define RETRY_NS MUSTER_NS_PER_S

struct muster_lease {
    int64_t id;
    int64_t ttl_s;
    struct muster_timer timer;
    struct muster_leases *leases;
    struct muster_lease *next;       /* in its bucket */
    struct muster_list pending_node; /* of granted or removed; alone: committed */
};

static size_t bucket_of(int64_t id, size_t bucket_count)
{
    /* Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4): clients choose ids
     * too, and these may be consecutive numbers. */
    return (size_t)(((uint64_t)id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (bucket_count - 1);
}

static struct muster_lease *find_lease(const struct muster_leases *leases, int64_t id)
{
    struct muster_lease *lease = leases->buckets[bucket_of(id, leases->bucket_count)];

    while (lease != NULL && lease->id != id)
        lease = lease->next;
    return lease;
}

static void insert_lease(struct muster_lease **buckets, size_t count, struct muster_lease *lease)
{
    struct muster_lease **bucket = &buckets[bucket_of(lease->id, count)];

    lease->next = *bucket;
    *bucket = lease;
}

/* Twice the buckets; without memory the chains just grow longer. */
static void grow_table(struct muster_leases *leases)
{
    size_t count = leases->bucket_count * 2;
    struct muster_lease **buckets =
        muster_mem_alloc_zero(leases->env->mem, count, sizeof(struct muster_lease *));

    if (buckets == NULL)
        return;
    for (size_t i = 0; i < leases->bucket_count; i++) {
        struct muster_lease *lease = leases->buckets[i];

        while (lease != NULL) {
            struct muster_lease *next = lease->next;

            insert_lease(buckets, count, lease);
            lease = next;
        }
    }
    muster_mem_free(leases->env->mem, leases->buckets);
    leases->buckets = buckets;
    leases->bucket_count = count;
}

static void start_full_time(struct muster_lease *lease)
{
    struct muster_loop *loop = lease->leases->env->loop;

    muster_timer_start(&lease->timer, loop,
                       muster_loop_after_ns(loop, (uint64_t)lease->ttl_s * MUSTER_NS_PER_S));
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_lease *lease = timer->data;
    struct muster_leases *leases = lease->leases;
    struct muster_loop *loop = leases->env->loop;

    /* The timer starts again before the owner is called, because a successful revocation frees the
     * lease and its timer. */
    muster_timer_start(timer, loop, muster_loop_after_ns(loop, RETRY_NS));
    leases->on_expire(leases, lease->id);
}

/* NULL: no memory. */
static struct muster_lease *add_lease(struct muster_leases *leases, int64_t id, int64_t ttl_s)
{
    struct muster_lease *lease = muster_mem_alloc_zero(leases->env->mem, 1, sizeof(*lease));

    MUSTER_ASSERT(find_lease(leases, id) == NULL);
    if (lease == NULL)
        return NULL;
    lease->id = id;
    lease->ttl_s = ttl_s;
    lease->leases = leases;
    muster_timer_init(&lease->timer, on_timer, lease);
    muster_list_init(&lease->pending_node);
    if (leases->count >= leases->bucket_count)
        grow_table(leases);
    insert_lease(leases->buckets, leases->bucket_count, lease);
    leases->count++;
    start_full_time(lease);
    return lease;
}

/* Takes the lease out of the table and stops its time; its memory stays. */
static void unlink_lease(struct muster_leases *leases, struct muster_lease *lease)
{
    struct muster_lease **place = &leases->buckets[bucket_of(lease->id, leases->bucket_count)];

    MUSTER_ASSERT(leases->count > 0);
    while (*place != lease)
        place = &(*place)->next;
    *place = lease->next;
    leases->count--;
    muster_timer_stop(&lease->timer);
}

static void unlink_and_free(struct muster_leases *leases, struct muster_lease *lease)
{
    unlink_lease(leases, lease);
    muster_list_remove(&lease->pending_node);
    muster_mem_free(leases->env->mem, lease);
}

static void remove_all(struct muster_leases *leases)
{
    for (size_t i = 0; i < leases->bucket_count; i++) {
        while (leases->buckets[i] != NULL)
            unlink_and_free(leases, leases->buckets[i]);
    }
}

static struct muster_lease *pop_pending(struct muster_list *list)
{
    struct muster_list *node = muster_list_pop(list);

    return node != NULL ? MUSTER_CONTAINER_OF(node, struct muster_lease, pending_node) : NULL;
}

/* Frees the leases whose removal cannot be undone any more. */
static void free_removed(struct muster_leases *leases)
{
    struct muster_lease *lease = NULL;

    while ((lease = pop_pending(&leases->removed)) != NULL)
        muster_mem_free(leases->env->mem, lease);
}

/* A damaged file may have any time. */
static enum muster_rc load_row(void *data, int64_t id, int64_t ttl_s)
{
    int64_t time_s = ttl_s < MUSTER_LEASE_TTL_MIN_S   ? MUSTER_LEASE_TTL_MIN_S
                     : ttl_s > MUSTER_LEASE_TTL_MAX_S ? MUSTER_LEASE_TTL_MAX_S
                                                      : ttl_s;

    return add_lease(data, id, time_s) != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

static enum muster_rc load_leases(struct muster_leases *leases)
{
    leases->count = 0;
    leases->bucket_count = BUCKETS_FIRST;
    leases->buckets =
        muster_mem_alloc_zero(leases->env->mem, BUCKETS_FIRST, sizeof(struct muster_lease *));
    if (leases->buckets == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return muster_registry_store_scan_leases(leases->store, load_row, leases);
}

enum muster_rc muster_leases_init(struct muster_leases *leases, struct muster_env *env,
                                  struct muster_registry_store *store,
                                  muster_leases_expire_fn *on_expire, void *data)
{
    enum muster_rc rc = MUSTER_OK;

    memset(leases, 0, sizeof(*leases));
    leases->data = data;
    leases->on_expire = on_expire;
    leases->env = env;
    leases->store = store;
    muster_list_init(&leases->granted);
    muster_list_init(&leases->removed);
    rc = load_leases(leases);
    if (rc != MUSTER_OK)
        muster_leases_fini(leases);
    return rc;
}

void muster_leases_fini(struct muster_leases *leases)
{
    if (leases->buckets == NULL)
        return;
    remove_all(leases);
    free_removed(leases);
    muster_mem_free(leases->env->mem, leases->buckets);
    leases->buckets = NULL;
}

void muster_leases_committed(struct muster_leases *leases)
{
    while (muster_list_pop(&leases->granted) != NULL)
        continue;
    free_removed(leases);
}

/* Grants are undone first: one of them may have taken the id of a lease that was removed before it
 * in the same transaction. */
void muster_leases_rollback(struct muster_leases *leases)
{
    struct muster_lease *lease = NULL;

    while ((lease = pop_pending(&leases->granted)) != NULL)
        unlink_and_free(leases, lease);
    while ((lease = pop_pending(&leases->removed)) != NULL) {
        MUSTER_ASSERT(find_lease(leases, lease->id) == NULL);
        insert_lease(leases->buckets, leases->bucket_count, lease);
        leases->count++;
        start_full_time(lease);
    }
}

bool muster_leases_has(const struct muster_leases *leases, int64_t id)
{
    return find_lease(leases, id) != NULL;
}

static int64_t pick_id(struct muster_leases *leases)
{
    int64_t id = 0;

    do {
        /* Lease ids are positive, because 0 means none and clients print them as int64. */
        id = (int64_t)(muster_rng_next(leases->env->rng) >> 1);
    } while (id == 0 || muster_leases_has(leases, id));
    return id;
}

enum muster_rc muster_leases_grant(struct muster_leases *leases, int64_t ttl_s, int64_t id,
                                   int64_t *ret_id, int64_t *ret_ttl_s,
                                   struct muster_error *ret_error, bool *ret_is_broken)
{
    int64_t granted_s = ttl_s < MUSTER_LEASE_TTL_MIN_S ? MUSTER_LEASE_TTL_MIN_S : ttl_s;
    struct muster_lease *lease = NULL;
    enum muster_rc rc = MUSTER_OK;

    *ret_is_broken = false;
    if (ttl_s > MUSTER_LEASE_TTL_MAX_S)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE, "etcdserver: too large lease TTL");
    if (muster_leases_has(leases, id)) /* never 0 */
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "etcdserver: lease already exists");
    if (leases->count >= MUSTER_LEASES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "etcdserver: too many requests");
    if (id == 0)
        id = pick_id(leases);
    rc = muster_registry_store_begin(leases->store);
    if (rc == MUSTER_OK)
        rc = muster_registry_store_put_lease(leases->store, id, granted_s);
    if (rc == MUSTER_OK) {
        lease = add_lease(leases, id, granted_s);
        rc = lease != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_is_broken = rc != MUSTER_OK;
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "registry store: %s",
                                muster_registry_store_error(leases->store));
    muster_list_append(&leases->granted, &lease->pending_node);
    *ret_id = id;
    *ret_ttl_s = granted_s;
    return MUSTER_OK;
}

/* The memory of a committed lease stays until the removal is committed too. */
static void lease_take_out(struct muster_leases *leases, struct muster_lease *lease)
{
    if (!muster_list_is_empty(&lease->pending_node)) { /* granted by the same transaction */
        unlink_and_free(leases, lease);
        return;
    }
    unlink_lease(leases, lease);
    muster_list_append(&leases->removed, &lease->pending_node);
}

enum muster_rc muster_leases_remove(struct muster_leases *leases, int64_t id)
{
    struct muster_lease *lease = find_lease(leases, id);
    enum muster_rc rc = muster_registry_store_begin(leases->store);

    if (rc == MUSTER_OK)
        rc = muster_registry_store_delete_lease(leases->store, id);
    if (rc == MUSTER_OK && lease != NULL)
        lease_take_out(leases, lease);
    return rc;
}

int64_t muster_leases_renew(struct muster_leases *leases, int64_t id)
{
    struct muster_lease *lease = find_lease(leases, id);

    if (lease == NULL)
        return 0;
    start_full_time(lease);
    return lease->ttl_s;
}

bool muster_leases_time_to_live(const struct muster_leases *leases, int64_t id, int64_t *ret_left_s,
                                int64_t *ret_granted_s)
{
    const struct muster_lease *lease = find_lease(leases, id);
    uint64_t now_ns = muster_loop_now_ns(leases->env->loop);

    if (lease == NULL)
        return false;
    *ret_left_s = lease->timer.due_ns > now_ns
                      ? (int64_t)((lease->timer.due_ns - now_ns) / MUSTER_NS_PER_S)
                      : 0;
    *ret_granted_s = lease->ttl_s;
    return true;
}

void muster_leases_list(const struct muster_leases *leases, int64_t *ret_ids)
{
    size_t count = 0;

    for (size_t i = 0; i < leases->bucket_count; i++) {
        for (const struct muster_lease *lease = leases->buckets[i]; lease != NULL;
             lease = lease->next)
            ret_ids[count++] = lease->id;
    }
}
