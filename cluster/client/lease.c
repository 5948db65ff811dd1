/* Leases that are kept alive: one stream for all of a client, opened again after every loss. A
 * lease is given up only when its time has run out here, or when the registry says that it is gone;
 * an endpoint that fails does not end it. */
#include "cluster/client/registry_client_internal.h"

/* Three keep-alives in the life of a lease, as etcd's client sends them: two may be lost. */
#define ASKS_PER_TTL 3

static void open_stream(struct muster_registry *registry);

static uint64_t ttl_ns(const struct muster_registry_lease *lease)
{
    return lease->ttl_s > UINT64_MAX / (4 * MUSTER_NS_PER_S) ? UINT64_MAX / 4
                                                             : lease->ttl_s * MUSTER_NS_PER_S;
}

static void unlink_lease(struct muster_registry_lease *lease)
{
    muster_timer_stop(&lease->timer);
    muster_timer_stop(&lease->expiry);
    muster_list_remove(&lease->node);
}

static void lease_lose(struct muster_registry_lease *lease)
{
    unlink_lease(lease);
    MUSTER_LOG(lease->registry->env, WARN, "registry_lease_lost", "lease", lease->id);
    lease->on_lost(lease);
}

/* Asking. */

static void request_keep_alive(struct muster_registry_lease *lease)
{
    struct muster_registry *registry = lease->registry;
    struct muster_registry_packed packed;

    MUSTER_ASSERT(registry->keeper.is_open);
    if (muster_registry_pack_keep_alive(registry->env->mem, lease->id, &packed) != MUSTER_OK)
        return; /* asked again at the next third */
    if (muster_call_send(&registry->keeper.call, packed.bytes, packed.size) == MUSTER_OK &&
        lease->asked_ns == 0)
        lease->asked_ns = muster_loop_now_ns(registry->env->loop);
    muster_mem_free(registry->env->mem, packed.bytes);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_registry_lease *lease = timer->data;
    struct muster_registry *registry = lease->registry;

    muster_timer_start(timer, registry->env->loop,
                       muster_loop_after_ns(registry->env->loop, ttl_ns(lease) / ASKS_PER_TTL));
    if (!registry->keeper.is_open) {
        open_stream(registry);
    } else if (lease->asked_ns != 0) {
        /* A whole third without an answer: the stream is taken for dead and opened elsewhere. */
        muster_call_cancel(&registry->keeper.call);
    } else {
        request_keep_alive(lease);
    }
}

static void on_expiry(struct muster_timer *timer)
{
    lease_lose(timer->data);
}

/* The stream. */

static struct muster_registry_lease *find_lease(struct muster_registry *registry, int64_t id)
{
    MUSTER_LIST_EACH (&registry->leases, lease, struct muster_registry_lease, node) {
        if (lease->id == id)
            return lease;
    }
    return NULL;
}

/* The time counts from when it was asked for, so that we never believe in a lease longer than the
 * registry does. */
static void lease_extend(struct muster_registry_lease *lease, uint64_t ttl_s)
{
    uint64_t from_ns = lease->asked_ns;

    /* An answer to nothing that was asked says nothing about when its time began. */
    if (from_ns == 0)
        return;
    lease->ttl_s = ttl_s;
    lease->asked_ns = 0;
    lease->expires_ns = from_ns + ttl_ns(lease);
    muster_timer_start(&lease->expiry, lease->registry->env->loop, lease->expires_ns);
}

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    struct muster_registry *registry = call->data;
    struct muster_registry_lease *lease = NULL;
    int64_t id = 0;
    int64_t ttl_s = 0;

    if (muster_registry_parse_keep_alive(registry->env->mem, message, &id, &ttl_s) != MUSTER_OK) {
        muster_call_cancel(call);
        return;
    }
    registry->keeper.backoff_ns = 0;
    lease = find_lease(registry, id);
    if (lease == NULL)
        return;
    if (ttl_s > 0)
        lease_extend(lease, (uint64_t)ttl_s);
    else
        lease_lose(lease);
}

static void reopen_later(struct muster_registry *registry)
{
    struct muster_registry_keeper *keeper = &registry->keeper;
    struct muster_loop *loop = registry->env->loop;

    muster_timer_start(
        &keeper->timer, loop,
        muster_loop_after_ns(loop, muster_registry_backoff(registry, &keeper->backoff_ns)));
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct muster_registry *registry = call->data;
    struct muster_registry_keeper *keeper = &registry->keeper;

    (void)rc;
    keeper->is_open = false;
    if (muster_registry_is_stale(registry, &call->status))
        muster_registry_drop_token(registry, keeper->generation);
    /* The stream has no deadline, so any end of it is taken for a failure of the endpoint. */
    muster_registry_leave_endpoint(registry, keeper->endpoint);
    MUSTER_LIST_EACH (&registry->leases, lease, struct muster_registry_lease, node)
        lease->asked_ns = 0;
    if (!muster_list_is_empty(&registry->leases)) /* closing takes all of them */
        reopen_later(registry);
}

static void on_reopen(struct muster_timer *timer)
{
    open_stream(timer->data);
}

static void open_stream(struct muster_registry *registry)
{
    struct muster_registry_keeper *keeper = &registry->keeper;
    struct muster_metadata_entry entries[2];
    /* The stream itself has no deadline: the expiry of the leases is the limit. */
    struct muster_call_options options = {.method = "/etcdserverpb.Lease/LeaseKeepAlive",
                                          .deadline_ns = UINT64_MAX,
                                          .metadata = muster_registry_metadata(registry, entries),
                                          .on_message = on_message};

    /* Both the timer of a lease and the wait after a failure come here, so the stream may be open
     * already. */
    if (keeper->is_open || registry->is_closing || muster_list_is_empty(&registry->leases))
        return;
    muster_timer_stop(&keeper->timer);
    muster_timer_init(&keeper->timer, on_reopen, registry);
    if (!muster_registry_has_token(registry)) {
        muster_registry_authenticate(registry);
        reopen_later(registry);
        return;
    }
    keeper->endpoint = registry->current;
    keeper->generation = registry->auth.generation;
    keeper->call.data = registry;
    /* Without memory the next third tries again. */
    if (muster_call_start(&keeper->call, registry->channels[keeper->endpoint], &options, on_done) !=
        MUSTER_OK)
        return;
    keeper->is_open = true;
    MUSTER_LIST_EACH (&registry->leases, lease, struct muster_registry_lease, node)
        request_keep_alive(lease);
}

/* Granting. */

/* Outlives the caller's lease when that is stopped before the answer. */
struct grant {
    struct muster_registry_op op;
    struct muster_mem *mem;
};

static void on_granted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct grant *grant = MUSTER_CONTAINER_OF(op, struct grant, op);
    struct muster_registry_lease *lease = op->data;

    MUSTER_ASSERT(lease == NULL || lease->op == op);
    if (lease == NULL) { /* stopped meanwhile: a lease that is not kept alive expires */
        muster_mem_free(grant->mem, grant);
        return;
    }
    lease->op = NULL;
    lease->id = op->lease;
    lease->ttl_s = op->ttl_s;
    lease->error = op->error;
    muster_mem_free(grant->mem, grant);
    if (rc == MUSTER_OK) {
        struct muster_registry *registry = lease->registry;

        muster_list_append(&registry->leases, &lease->node);
        lease_extend(lease, lease->ttl_s);
        muster_timer_start(&lease->timer, registry->env->loop,
                           muster_loop_after_ns(registry->env->loop, ttl_ns(lease) / ASKS_PER_TTL));
    }
    lease->granted(lease, rc);
}

enum muster_rc muster_registry_lease_start(struct muster_registry_lease *lease,
                                           struct muster_registry *registry, uint64_t ttl_s,
                                           uint64_t deadline_ns,
                                           muster_registry_lease_granted_fn *granted,
                                           muster_registry_lease_lost_fn *on_lost)
{
    struct grant *grant = muster_mem_alloc_zero(registry->env->mem, 1, sizeof(*grant));
    enum muster_rc rc = MUSTER_OK;

    if (grant == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    grant->mem = registry->env->mem;
    grant->op.data = lease;
    rc = muster_registry_grant_start(&grant->op, registry, ttl_s, 0, deadline_ns, on_granted);
    if (rc != MUSTER_OK) {
        muster_mem_free(grant->mem, grant);
        return rc;
    }
    lease->granted = granted;
    lease->on_lost = on_lost;
    lease->registry = registry;
    lease->op = &grant->op;
    lease->asked_ns = muster_loop_now_ns(registry->env->loop);
    muster_timer_init(&lease->timer, on_timer, lease);
    muster_timer_init(&lease->expiry, on_expiry, lease);
    muster_list_init(&lease->node);
    return MUSTER_OK;
}

void muster_registry_lease_stop(struct muster_registry_lease *lease)
{
    struct muster_registry_op *op = lease->op;

    unlink_lease(lease);
    lease->op = NULL;
    if (op == NULL)
        return;
    op->data = NULL;
    /* The grant lives on until its callback, which then finds that nobody wants the lease. */
    muster_registry_op_cancel(op);
}

void muster_registry_stop_leases(struct muster_registry *registry)
{
    struct muster_registry_keeper *keeper = &registry->keeper;

    MUSTER_LIST_EACH_SAFE (&registry->leases, lease, struct muster_registry_lease, node)
        unlink_lease(lease);
    muster_timer_stop(&keeper->timer);
    if (keeper->is_open)
        muster_call_cancel(&keeper->call);
}
