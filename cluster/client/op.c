/* Operations of the registry client: one call each, again at the next endpoint where that is safe.
 * A read may be repeated at any time; a write only when it has certainly not been applied, because
 * a second put or transaction could undo another client's. A write in doubt ends with an error for
 * which muster_registry_is_unknown is true, and the caller looks for itself. */
#include "cluster/client/registry_client_internal.h"

#include <string.h>

#include "runtime/loop/deadline.h"

#define RENEWALS_MAX 3 /* members may forget a token one after another */

enum request_state {
    /* No call has been made yet. */
    REQUEST_NEW,
    REQUEST_AWAITS_TOKEN, /* until the login has ended; the timer is the deadline */
    /* The call is under way, and its on_done always follows. */
    REQUEST_CALLING,
    REQUEST_PAUSED, /* the call has ended: again by the timer, or complete */
};
#define REQUEST_STATES 4

/* moves[from]: the states that may follow. */
static const unsigned moves[REQUEST_STATES] = {
    [REQUEST_NEW] = 1u << REQUEST_AWAITS_TOKEN | 1u << REQUEST_CALLING,
    [REQUEST_AWAITS_TOKEN] = 1u << REQUEST_AWAITS_TOKEN | 1u << REQUEST_CALLING,
    [REQUEST_CALLING] = 1u << REQUEST_PAUSED,
    [REQUEST_PAUSED] = 1u << REQUEST_AWAITS_TOKEN | 1u << REQUEST_CALLING,
};

struct muster_registry_request {
    struct muster_registry *registry;
    struct muster_registry_op *op;
    enum muster_registry_kind kind;
    struct muster_registry_packed packed;
    struct muster_registry_answer answer;
    struct muster_call call;
    size_t endpoint;
    uint64_t deadline_ns;
    uint64_t backoff_ns;
    struct muster_timer retry;
    struct muster_task cancelled; /* ends a request that has no call under way */
    struct muster_task refused;   /* the same, without a token */
    struct muster_list node;
    enum request_state state;
    /* The caller wants it to end; the callback is still to come. */
    bool is_cancelled;
    bool is_starved; /* the call began, and there was no memory for its message */
    bool has_answer;
    unsigned renewals;   /* how often its token was refused */
    uint64_t generation; /* its token's */
    enum muster_rc answer_rc;
};

static const char *const method_paths[] = {
    [MUSTER_REGISTRY_OP_RANGE] = "/etcdserverpb.KV/Range",
    [MUSTER_REGISTRY_OP_PUT] = "/etcdserverpb.KV/Put",
    [MUSTER_REGISTRY_OP_DELETE] = "/etcdserverpb.KV/DeleteRange",
    [MUSTER_REGISTRY_OP_TXN] = "/etcdserverpb.KV/Txn",
    [MUSTER_REGISTRY_OP_GRANT] = "/etcdserverpb.Lease/LeaseGrant",
    [MUSTER_REGISTRY_OP_REVOKE] = "/etcdserverpb.Lease/LeaseRevoke",
    [MUSTER_REGISTRY_OP_TIME_TO_LIVE] = "/etcdserverpb.Lease/LeaseTimeToLive",
    [MUSTER_REGISTRY_OP_COMPACT] = "/etcdserverpb.KV/Compact",
};

static void request_move(struct muster_registry_request *request, enum request_state to)
{
    MUSTER_ASSERT((moves[request->state] >> to & 1u) != 0);
    request->state = to;
}

/* Reads change nothing, so they may be repeated whatever became of them. */
static bool is_read(enum muster_registry_kind kind)
{
    return kind == MUSTER_REGISTRY_OP_RANGE || kind == MUSTER_REGISTRY_OP_TIME_TO_LIVE;
}

static struct muster_loop *loop_of(const struct muster_registry_request *request)
{
    return request->registry->env->loop;
}

/* The end. */

static void free_request(struct muster_registry_request *request)
{
    struct muster_mem *mem = request->registry->env->mem;

    muster_timer_stop(&request->retry);
    muster_task_cancel(&request->cancelled);
    muster_task_cancel(&request->refused);
    muster_registry_answer_free(mem, &request->answer);
    muster_mem_free(mem, request->packed.bytes);
    muster_mem_free(mem, request);
}

static void request_complete(struct muster_registry_request *request, enum muster_rc rc)
{
    struct muster_registry *registry = request->registry;
    struct muster_registry_op *op = request->op;

    MUSTER_ASSERT(op->request == request && request->state != REQUEST_CALLING);
    op->request = NULL;
    op->error.rc = rc;
    /* The callback borrows the results from the answer, so the request is freed after it. Until
     * then it stays in the list, so that a close from inside the callback waits for it. */
    op->done(op, rc);
    muster_list_remove(&request->node);
    free_request(request);
    muster_registry_check_closed(registry);
}

/* One attempt. */

/* Free the answer of an attempt that failed after it had come. */
static void drop_answer(struct muster_registry_request *request)
{
    muster_registry_answer_free(request->registry->env->mem, &request->answer);
    request->has_answer = false;
}

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    struct muster_registry_request *request = call->data;

    MUSTER_ASSERT(request->state == REQUEST_CALLING);
    /* A unary call has one answer; what a broken server sends after it is ignored. */
    if (request->has_answer)
        return;
    request->has_answer = true;
    request->answer_rc = muster_registry_parse_answer(request->registry->env->mem, request->kind,
                                                      message, request->op, &request->answer);
    if (request->answer.cluster_id != 0)
        request->registry->cluster_id = request->answer.cluster_id;
}

static void on_done(struct muster_call *call, enum muster_rc rc);

/* Without a token the request waits for the login and its deadline; it has not left this
 * process. */
static enum muster_rc start_call(struct muster_registry_request *request)
{
    struct muster_registry *registry = request->registry;
    struct muster_metadata_entry entries[2];
    struct muster_call_options options = {
        .method = method_paths[request->kind],
        .deadline_ns = muster_deadline_inherit(registry->env->loop, request->deadline_ns),
        .metadata = muster_registry_metadata(registry, entries),
        .on_message = on_message};
    enum muster_rc rc = MUSTER_OK;

    if (!muster_registry_has_token(registry)) {
        request_move(request, REQUEST_AWAITS_TOKEN);
        muster_registry_authenticate(registry);
        muster_timer_start(&request->retry, registry->env->loop, request->deadline_ns);
        return MUSTER_OK;
    }
    request->generation = registry->auth.generation;
    drop_answer(request);
    request->endpoint = registry->current;
    request->call.data = request;
    rc =
        muster_call_start(&request->call, registry->channels[request->endpoint], &options, on_done);
    if (rc != MUSTER_OK)
        return rc;
    request_move(request, REQUEST_CALLING);
    request->is_starved =
        muster_call_send(&request->call, request->packed.bytes, request->packed.size) != MUSTER_OK;
    if (request->is_starved) /* the call then ends by itself */
        muster_call_cancel(&request->call);
    muster_call_half_close(&request->call);
    return MUSTER_OK;
}

/* If no login has worked since one was refused, that refusal says more than a deadline would. */
static void on_login_late(struct muster_registry_request *request)
{
    const struct muster_registry_auth *auth = &request->registry->auth;
    struct muster_registry_op *op = request->op;

    MUSTER_ASSERT(request->state == REQUEST_AWAITS_TOKEN);
    op->is_unsent = true;
    if (auth->refused_ns != 0)
        op->error = auth->error;
    else
        muster_error_set(&op->error, MUSTER_DEADLINE_EXCEEDED,
                         "the registry does not answer the login");
    request_complete(request, op->error.rc);
}

static void on_retry(struct muster_timer *timer)
{
    struct muster_registry_request *request = timer->data;
    enum muster_rc rc = MUSTER_OK;

    if (request->state == REQUEST_AWAITS_TOKEN &&
        request->deadline_ns <= muster_loop_now_ns(loop_of(request))) {
        on_login_late(request);
        return;
    }
    rc = start_call(request);
    if (rc != MUSTER_OK)
        request_complete(request,
                         muster_error_set(&request->op->error, rc, "no memory to ask again"));
}

static void on_refused(struct muster_task *task)
{
    struct muster_registry_request *request = task->data;

    request->op->is_unsent = true;
    request->op->error = request->registry->auth.error;
    request_complete(request, request->op->error.rc != MUSTER_OK ? request->op->error.rc
                                                                 : MUSTER_UNAUTHENTICATED);
}

void muster_registry_resume_requests(struct muster_registry *registry, enum muster_rc rc)
{
    struct muster_loop *loop = registry->env->loop;

    MUSTER_LIST_EACH (&registry->requests, request, struct muster_registry_request, node) {
        if (request->state != REQUEST_AWAITS_TOKEN || request->is_cancelled)
            continue;
        muster_timer_stop(&request->retry);
        if (rc == MUSTER_OK)
            /* The call is started from a timer, because this may run inside the start of another
             * operation. */
            muster_timer_start(&request->retry, loop, muster_loop_now_ns(loop));
        else
            muster_task_post(&request->refused, loop);
    }
}

/* A member without a leader refuses before it does anything. */
static bool is_untouched(const struct muster_registry_op *op)
{
    return op->is_unsent || strcmp(op->error.text, "etcdserver: no leader") == 0;
}

/* True: refused for its token, which is asked for anew. */
static bool renew_token(struct muster_registry_request *request)
{
    struct muster_registry *registry = request->registry;

    if (request->renewals == RENEWALS_MAX ||
        !muster_registry_is_stale(registry, &request->op->error))
        return false;
    request->renewals++;
    muster_registry_drop_token(registry, request->generation);
    muster_timer_start(&request->retry, registry->env->loop,
                       muster_loop_now_ns(registry->env->loop));
    return true;
}

/* True: it will be tried again. What has left for a registry is repeated only when it changes
 * nothing. */
static bool try_again(struct muster_registry_request *request, enum muster_rc rc)
{
    struct muster_loop *loop = request->registry->env->loop;
    uint64_t due_ns = 0;

    if (request->is_cancelled || request->registry->is_closing)
        return false;
    if (renew_token(request))
        return true;
    if (rc != MUSTER_UNAVAILABLE)
        return false;
    if (!is_read(request->kind) && !is_untouched(request->op))
        return false;
    due_ns = muster_loop_after_ns(loop,
                                  muster_registry_backoff(request->registry, &request->backoff_ns));
    /* The error of this attempt says more than a deadline would. */
    if (due_ns >= request->deadline_ns)
        return false;
    muster_timer_start(&request->retry, loop, due_ns);
    return true;
}

/* Memory may lack here for the answer to a write that was applied. */
static enum muster_rc doubt_refusal(const struct muster_registry_request *request,
                                    enum muster_rc rc)
{
    struct muster_registry_op *op = request->op;
    bool is_refused = rc == MUSTER_RESOURCE_EXHAUSTED;
    bool is_ours = !request->call.is_answered || request->call.status.rc == MUSTER_OK;

    /* RESOURCE_EXHAUSTED from the registry means that nothing was applied. From this side, it may
     * stand for a write that was applied and whose answer did not fit. */
    if (!is_refused || !is_ours || op->is_unsent || is_read(request->kind))
        return rc;
    return muster_error_set(
        &op->error, MUSTER_UNKNOWN, "the answer of the registry cannot be taken: %.150s",
        request->call.status.rc == MUSTER_OK ? "out of memory" : request->call.status.text);
}

/* The request has not left this process, so the status of its call means nothing to the caller: the
 * lack of memory does. */
static void on_starved(struct muster_registry_request *request)
{
    enum muster_rc rc = request->is_cancelled ? MUSTER_CANCELLED : MUSTER_UNAVAILABLE;

    MUSTER_ASSERT(request->is_starved);
    request->op->is_unsent = true;
    muster_error_set(&request->op->error, rc, "%s",
                     request->is_cancelled ? "cancelled" : "no memory for the request");
    if (!try_again(request, rc))
        request_complete(request, rc);
}

/* The status of the call is translated in order: TLS and address errors, a missing answer, an
 * answer that could not be parsed. */
static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct muster_registry_request *request = call->data;
    struct muster_registry_op *op = request->op;

    request_move(request, REQUEST_PAUSED);
    if (request->is_starved) {
        on_starved(request);
        return;
    }
    if (rc != MUSTER_OK || request->answer_rc == MUSTER_OK)
        op->error = call->status; /* else it says why the answer was not taken */
    op->is_unsent = rc != MUSTER_OK && call->is_unsent;
    if (rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED)
        muster_registry_leave_endpoint(request->registry, request->endpoint);
    if (rc != MUSTER_OK)
        rc = muster_registry_judge(request->registry, request->endpoint, &op->error);
    if (rc == MUSTER_OK && !request->has_answer) {
        rc = muster_error_set(&op->error, MUSTER_INTERNAL, "the registry answered nothing");
    } else if (rc == MUSTER_OK) {
        rc = request->answer_rc;
    }
    rc = doubt_refusal(request, rc);
    if (rc == MUSTER_INVALID_ARGUMENT && request->registry->auth.user == NULL &&
        strcmp(op->error.text, "etcdserver: user name is empty") == 0)
        rc = muster_error_set(&op->error, MUSTER_UNAUTHENTICATED,
                              "the registry asks who this is: set MUSTER_REGISTRY_USER and "
                              "MUSTER_REGISTRY_PASSWORD_FILE (%s)",
                              call->status.text);
    if (!try_again(request, rc))
        request_complete(request, rc);
}

/* Starting and cancelling. */

static void on_cancelled(struct muster_task *task)
{
    struct muster_registry_request *request = task->data;

    request_complete(request, muster_error_set(&request->op->error, MUSTER_CANCELLED, "cancelled"));
}

static void reset_op(struct muster_registry_op *op, muster_registry_op_fn *done)
{
    void *data = op->data;

    memset(op, 0, sizeof(*op));
    op->data = data;
    op->done = done;
}

/* Arguments that all starts have in common. */
struct request_start {
    struct muster_registry *registry;
    enum muster_registry_kind kind;
    uint64_t deadline_ns;
    struct muster_registry_packed packed; /* taken */
};

static enum muster_rc request_start(struct muster_registry_op *op, const struct request_start *with,
                                    muster_registry_op_fn *done)
{
    struct muster_registry *registry = with->registry;
    struct muster_mem *mem = registry->env->mem;
    struct muster_registry_request *request = NULL;
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(op != NULL);
    rc = muster_deadline_check(registry->env, method_paths[with->kind], with->deadline_ns,
                               &op->error);
    if (rc == MUSTER_OK) {
        MUSTER_ASSERT(done != NULL && !registry->is_closing);
        request = muster_mem_alloc_zero(mem, 1, sizeof(*request));
        rc = MUSTER_RESOURCE_EXHAUSTED;
    }
    if (request == NULL) {
        muster_mem_free(mem, with->packed.bytes);
        return rc;
    }
    request->registry = registry;
    request->op = op;
    request->kind = with->kind;
    request->packed = with->packed;
    request->deadline_ns = with->deadline_ns;
    muster_timer_init(&request->retry, on_retry, request);
    muster_task_init(&request->cancelled, on_cancelled, request);
    muster_task_init(&request->refused, on_refused, request);
    rc = start_call(request);
    if (rc != MUSTER_OK) {
        free_request(request);
        return rc;
    }
    reset_op(op, done);
    op->request = request;
    muster_list_append(&registry->requests, &request->node);
    return MUSTER_OK;
}

static void request_cancel(struct muster_registry_request *request)
{
    if (request->is_cancelled)
        return;
    request->is_cancelled = true;
    if (request->state == REQUEST_CALLING) {
        muster_call_cancel(&request->call);
        return;
    }
    muster_timer_stop(&request->retry);
    muster_task_post(&request->cancelled, request->registry->env->loop);
}

void muster_registry_op_cancel(struct muster_registry_op *op)
{
    /* A cancel after the callback finds no request and does nothing. */
    if (op->request != NULL)
        request_cancel(op->request);
}

void muster_registry_stop_requests(struct muster_registry *registry)
{
    MUSTER_LIST_EACH (&registry->requests, request, struct muster_registry_request, node)
        request_cancel(request);
}

/* The operations. */

static enum muster_rc check_open(const struct muster_registry *registry)
{
    return registry->is_closing ? MUSTER_FAILED_PRECONDITION : MUSTER_OK;
}

enum muster_rc muster_registry_range_start(struct muster_registry_op *op,
                                           struct muster_registry *registry,
                                           const struct muster_registry_range *range,
                                           uint64_t deadline_ns, muster_registry_op_fn *done)
{
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_RANGE, .deadline_ns = deadline_ns};
    enum muster_rc rc = check_open(registry);

    if (rc == MUSTER_OK && range->key.size == 0 && range->reach == MUSTER_REGISTRY_KEY)
        rc = MUSTER_INVALID_ARGUMENT;
    if (rc == MUSTER_OK)
        rc = muster_registry_pack_range(registry->env->mem, range, &with.packed);
    return rc == MUSTER_OK ? request_start(op, &with, done) : rc;
}

enum muster_rc muster_registry_put_start(struct muster_registry_op *op,
                                         struct muster_registry *registry, struct muster_bytes key,
                                         struct muster_bytes value, int64_t lease,
                                         uint64_t deadline_ns, muster_registry_op_fn *done)
{
    struct muster_registry_step step = {
        .kind = MUSTER_REGISTRY_PUT, .key = key, .value = value, .lease = lease};
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_PUT, .deadline_ns = deadline_ns};
    enum muster_rc rc = check_open(registry);

    if (rc == MUSTER_OK && key.size == 0)
        rc = MUSTER_INVALID_ARGUMENT;
    if (rc == MUSTER_OK)
        rc = muster_registry_pack_put(registry->env->mem, &step, &with.packed);
    return rc == MUSTER_OK ? request_start(op, &with, done) : rc;
}

enum muster_rc muster_registry_delete_start(struct muster_registry_op *op,
                                            struct muster_registry *registry,
                                            struct muster_bytes key,
                                            enum muster_registry_reach reach, uint64_t deadline_ns,
                                            muster_registry_op_fn *done)
{
    struct muster_registry_step step = {.kind = MUSTER_REGISTRY_DELETE, .key = key, .reach = reach};
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_DELETE, .deadline_ns = deadline_ns};
    enum muster_rc rc = check_open(registry);

    if (rc == MUSTER_OK && key.size == 0 && reach == MUSTER_REGISTRY_KEY)
        rc = MUSTER_INVALID_ARGUMENT;
    if (rc == MUSTER_OK)
        rc = muster_registry_pack_delete(registry->env->mem, &step, &with.packed);
    return rc == MUSTER_OK ? request_start(op, &with, done) : rc;
}

enum muster_rc muster_registry_txn_start(struct muster_registry_op *op,
                                         struct muster_registry *registry,
                                         const struct muster_registry_txn *txn,
                                         uint64_t deadline_ns, muster_registry_op_fn *done)
{
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_TXN, .deadline_ns = deadline_ns};
    enum muster_rc rc = check_open(registry);

    if (rc == MUSTER_OK)
        rc = muster_registry_pack_txn(registry->env->mem, txn, &with.packed);
    return rc == MUSTER_OK ? request_start(op, &with, done) : rc;
}

enum muster_rc muster_registry_swap_start(struct muster_registry_op *op,
                                          struct muster_registry *registry, struct muster_bytes key,
                                          uint64_t mod_revision, struct muster_bytes value,
                                          int64_t lease, uint64_t deadline_ns,
                                          muster_registry_op_fn *done)
{
    /* The put happens only if the key is as the caller has read it; otherwise the transaction reads
     * it again, which saves a second call. */
    struct muster_registry_compare is_as_read = {.key = key,
                                                 .target = MUSTER_REGISTRY_MOD_REVISION,
                                                 .relation = MUSTER_REGISTRY_EQUAL,
                                                 .number = mod_revision};
    struct muster_registry_step put = {
        .kind = MUSTER_REGISTRY_PUT, .key = key, .value = value, .lease = lease};
    struct muster_registry_step get = {.kind = MUSTER_REGISTRY_GET, .key = key};
    struct muster_registry_txn txn = {.compares = &is_as_read,
                                      .compare_count = 1,
                                      .success = &put,
                                      .success_count = 1,
                                      .failure = &get,
                                      .failure_count = 1};

    return muster_registry_txn_start(op, registry, &txn, deadline_ns, done);
}

enum muster_rc muster_registry_grant_start(struct muster_registry_op *op,
                                           struct muster_registry *registry, uint64_t ttl_s,
                                           int64_t id, uint64_t deadline_ns,
                                           muster_registry_op_fn *done)
{
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_GRANT, .deadline_ns = deadline_ns};
    enum muster_rc rc = check_open(registry);

    if (rc == MUSTER_OK)
        rc = muster_registry_pack_grant(registry->env->mem, ttl_s, id, &with.packed);
    return rc == MUSTER_OK ? request_start(op, &with, done) : rc;
}

static enum muster_rc start_number(struct muster_registry_op *op, struct request_start *with,
                                   int64_t number, muster_registry_op_fn *done)
{
    enum muster_rc rc = check_open(with->registry);

    if (rc == MUSTER_OK)
        rc = muster_registry_pack_number(with->registry->env->mem, with->kind, number,
                                         &with->packed);
    return rc == MUSTER_OK ? request_start(op, with, done) : rc;
}

enum muster_rc muster_registry_revoke_start(struct muster_registry_op *op,
                                            struct muster_registry *registry, int64_t lease,
                                            uint64_t deadline_ns, muster_registry_op_fn *done)
{
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_REVOKE, .deadline_ns = deadline_ns};

    return start_number(op, &with, lease, done);
}

enum muster_rc muster_registry_time_to_live_start(struct muster_registry_op *op,
                                                  struct muster_registry *registry, int64_t lease,
                                                  uint64_t deadline_ns, muster_registry_op_fn *done)
{
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_TIME_TO_LIVE, .deadline_ns = deadline_ns};

    return start_number(op, &with, lease, done);
}

enum muster_rc muster_registry_compact_start(struct muster_registry_op *op,
                                             struct muster_registry *registry, uint64_t revision,
                                             uint64_t deadline_ns, muster_registry_op_fn *done)
{
    struct request_start with = {
        .registry = registry, .kind = MUSTER_REGISTRY_OP_COMPACT, .deadline_ns = deadline_ns};

    return start_number(op, &with, (int64_t)revision, done);
}
