/* Sessions: a lease that is kept alive, and the places that depend on it. When the lease is lost
 * every place is told before the session is; when the session closes its places leave first, and
 * then the lease is revoked. */
#include "cluster/client/session_internal.h"
#include "runtime/loop/deadline.h"
#include "cluster/client/registry_client_internal.h"

#include <string.h>

/* A lease that cannot be revoked in this time is left to expire. */
#define REVOKE_WITHIN_NS (5 * MUSTER_NS_PER_S)

static void on_revoked(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_session *session = op->data;

    (void)rc; /* a lease that cannot be revoked expires */
    session->is_revoked = true;
    muster_session_check_ended(session);
}

static void session_revoke(struct muster_session *session)
{
    struct muster_loop *loop = session->registry->env->loop;

    MUSTER_ASSERT(session->is_closing);
    muster_registry_lease_stop(&session->keeper);
    session->op.data = session;
    if (session->is_granted &&
        muster_registry_revoke_start(&session->op, session->registry, session->lease,
                                     muster_loop_after_ns(loop, REVOKE_WITHIN_NS),
                                     on_revoked) == MUSTER_OK)
        return;
    session->is_revoked = true;
    muster_session_check_ended(session);
}

/* Places go first: the lease is revoked only when no key of it is in use. */
static void on_task(struct muster_task *task)
{
    struct muster_session *session = task->data;

    if (!muster_list_is_empty(&session->places))
        return;
    if (session->is_revoked)
        session->closed(session);
    else if (session->is_closing)
        session_revoke(session);
    else if (session->is_lost) /* once: no place is taken on it any more */
        session->on_lost(session);
}

static void drop_places(struct muster_session *session, enum muster_rc rc)
{
    MUSTER_LIST_EACH (&session->places, place, struct muster_lease_place, node)
        muster_lease_place_drop(place, rc);
    muster_session_check_ended(session);
}

static void on_lease_lost(struct muster_registry_lease *lease)
{
    struct muster_session *session = lease->data;

    MUSTER_ASSERT(!session->is_lost);
    session->is_lost = true;
    drop_places(session, MUSTER_ABORTED);
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct muster_session *session = lease->data;

    session->lease = lease->id;
    session->is_granted = rc == MUSTER_OK;
    session->error = lease->error;
    session->opened(session, rc);
}

enum muster_rc muster_session_open(struct muster_session *session, struct muster_registry *registry,
                                   uint64_t ttl_s, uint64_t deadline_ns,
                                   muster_session_opened_fn *opened,
                                   muster_session_lost_fn *on_lost)
{
    /* A start that fails leaves the caller's struct as it was. */
    struct muster_session before = *session;
    enum muster_rc rc =
        muster_deadline_check(registry->env, "muster_session_open", deadline_ns, &session->error);

    if (rc != MUSTER_OK)
        return rc;
    memset(session, 0, sizeof(*session));
    session->data = before.data;
    session->keeper.data = session;
    rc = muster_registry_lease_start(&session->keeper, registry,
                                     ttl_s != 0 ? ttl_s : MUSTER_SESSION_TTL_S, deadline_ns,
                                     on_granted, on_lease_lost);
    if (rc != MUSTER_OK) {
        *session = before;
        return rc;
    }
    session->registry = registry;
    session->opened = opened;
    session->on_lost = on_lost;
    muster_list_init(&session->places);
    muster_task_init(&session->task, on_task, session);
    return MUSTER_OK;
}

void muster_session_close(struct muster_session *session, muster_session_closed_fn *closed)
{
    MUSTER_ASSERT(!session->is_closing);
    session->is_closing = true;
    session->closed = closed;
    drop_places(session, MUSTER_CANCELLED);
}
