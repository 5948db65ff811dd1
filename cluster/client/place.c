/* Places in queues: a key by create-if-absent, one look at the key before it, a watch of that key.
 * Each place watches only the one before it, so a release wakes one client and not all (the recipe
 * of etcd's client/v3/concurrency/key.go and of ZooKeeper's locks). lock.c and election.c are made
 * of places; session.c owns the lease of their keys. */
#include "cluster/client/registry_client_internal.h"
#include "cluster/client/session_internal.h"
#include "runtime/loop/deadline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One attempt; the place itself waits as long as its caller allows. */
#define ATTEMPT_NS (5 * MUSTER_NS_PER_S)
/* Sixteen digits and NUL. */
#define LEASE_HEX_BYTES 17

static void place_step(struct muster_lease_place *place);

static struct muster_env *env_of(const struct muster_lease_place *place)
{
    return place->session->registry->env;
}

static struct muster_bytes key_of(const struct muster_lease_place *place)
{
    return (struct muster_bytes){.data = place->key, .size = place->key_bytes};
}

static struct muster_bytes queue_of(const struct muster_lease_place *place)
{
    return (struct muster_bytes){.data = place->key, .size = place->queue_bytes};
}

static struct muster_bytes value_of(const struct muster_lease_place *place)
{
    return (struct muster_bytes){.data = place->value, .size = place->value_bytes};
}

static void place_move(struct muster_lease_place *place, enum muster_lease_place_state to)
{
    /* A place that ends while its key may exist goes through LEAVING, which deletes the key; IDLE
     * directly means that the key goes with its lease. */
    static const uint8_t allowed[] = {
        [MUSTER_LEASE_PLACE_IDLE] = 1u << MUSTER_LEASE_PLACE_ENTERING,
        [MUSTER_LEASE_PLACE_ENTERING] =
            1u << MUSTER_LEASE_PLACE_LOOKING | 1u << MUSTER_LEASE_PLACE_FIRST |
            1u << MUSTER_LEASE_PLACE_LEAVING | 1u << MUSTER_LEASE_PLACE_IDLE,
        [MUSTER_LEASE_PLACE_LOOKING] =
            1u << MUSTER_LEASE_PLACE_WAITING | 1u << MUSTER_LEASE_PLACE_FIRST |
            1u << MUSTER_LEASE_PLACE_LEAVING | 1u << MUSTER_LEASE_PLACE_IDLE,
        [MUSTER_LEASE_PLACE_WAITING] = 1u << MUSTER_LEASE_PLACE_LOOKING |
                                       1u << MUSTER_LEASE_PLACE_LEAVING |
                                       1u << MUSTER_LEASE_PLACE_IDLE,
        [MUSTER_LEASE_PLACE_FIRST] =
            1u << MUSTER_LEASE_PLACE_LEAVING | 1u << MUSTER_LEASE_PLACE_IDLE,
        [MUSTER_LEASE_PLACE_LEAVING] = 1u << MUSTER_LEASE_PLACE_IDLE,
    };

    MUSTER_ASSERT((allowed[place->state] >> to & 1u) != 0);
    place->state = to;
}

/* Attempts. */

static uint64_t attempt_deadline(const struct muster_lease_place *place, uint64_t limit_ns)
{
    uint64_t until_ns = muster_loop_after_ns(env_of(place)->loop, ATTEMPT_NS);

    return until_ns < limit_ns ? until_ns : muster_deadline_inherit(env_of(place)->loop, limit_ns);
}

static void step_later(struct muster_lease_place *place)
{
    struct muster_loop *loop = env_of(place)->loop;
    uint64_t wait_ns = muster_registry_backoff(place->session->registry, &place->backoff_ns);

    muster_timer_start(&place->again, loop, muster_loop_after_ns(loop, wait_ns));
}

static void on_again(struct muster_timer *timer)
{
    place_step(timer->data);
}

static void stop_watch(struct muster_lease_place *place)
{
    if (place->is_watching)
        muster_registry_watch_stop(&place->watch);
    place->is_watching = false;
}

/* The end. */

static void place_complete(struct muster_lease_place *place)
{
    struct muster_session *session = place->session;
    struct muster_mem *mem = env_of(place)->mem;
    enum muster_rc rc = place->result;

    MUSTER_ASSERT(!place->is_calling && place->is_ending);
    /* The caller may free the place in its callback, so all of it is put in order before. */
    place_move(place, MUSTER_LEASE_PLACE_IDLE);
    muster_list_remove(&place->node);
    muster_mem_free(mem, place->key);
    muster_mem_free(mem, place->value);
    place->key = place->value = NULL;
    muster_session_check_ended(session);
    if (place->done != NULL)
        place->done(place, rc);
    else if (place->stopped != NULL)
        place->stopped(place);
    else if (rc == MUSTER_ABORTED)
        place->on_lost(place);
}

/* Nothing is under way any more: the key goes by itself with the session, or now. */
static void place_go_on(struct muster_lease_place *place)
{
    if (place->is_dropped || place->state == MUSTER_LEASE_PLACE_IDLE) {
        place_complete(place);
        return;
    }
    if (place->state != MUSTER_LEASE_PLACE_LEAVING)
        place_move(place, MUSTER_LEASE_PLACE_LEAVING);
    place_step(place);
}

static void on_task(struct muster_task *task)
{
    place_go_on(task->data);
}

static void place_end(struct muster_lease_place *place, enum muster_rc rc)
{
    place->is_ending = true;
    place->result = rc;
    muster_timer_stop(&place->again);
    muster_timer_stop(&place->deadline);
    stop_watch(place);
    if (place->is_calling)
        muster_registry_op_cancel(&place->op); /* its callback goes on */
    else
        muster_task_post(&place->task, env_of(place)->loop);
}

static void end_with(struct muster_lease_place *place, enum muster_rc rc, const char *text)
{
    place_end(place, muster_error_set(&place->error, rc, "%s", text));
}

/* The key is not ours any more: there is nothing to delete. */
static void end_without_key(struct muster_lease_place *place)
{
    place->is_dropped = true;
    end_with(place, MUSTER_ABORTED, "the key of this place was deleted, or its lease has ended");
}

/* True: the call has ended and something has to follow that is not its caller's business. */
static bool has_ended(struct muster_lease_place *place)
{
    place->is_calling = false;
    if (place->is_ending)
        place_go_on(place);
    return place->is_ending;
}

/* True: asked again later, or ended. */
static bool has_failed(struct muster_lease_place *place, enum muster_rc rc)
{
    if (rc == MUSTER_OK) {
        place->backoff_ns = 0;
        return false;
    }
    /* An attempt in doubt is repeated: entering finds the key if the first one made it, and a look
     * changes nothing. */
    if (muster_registry_is_unknown(rc))
        step_later(place);
    else if (rc == MUSTER_NOT_FOUND)
        end_without_key(place); /* no such lease */
    else
        end_with(place, rc, place->op.error.text);
    return true;
}

/* In front. */

static void become_first(struct muster_lease_place *place)
{
    muster_lease_place_done_fn *done = place->done;

    MUSTER_ASSERT(place->done != NULL);
    muster_timer_stop(&place->deadline);
    place_move(place, MUSTER_LEASE_PLACE_FIRST);
    place->done = NULL;
    done(place, MUSTER_OK);
}

/* Waiting. */

static void look_again(struct muster_lease_place *place)
{
    stop_watch(place);
    place_move(place, MUSTER_LEASE_PLACE_LOOKING);
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct muster_lease_place *place = watch->data;
    bool is_gone = false;

    for (size_t i = 0; i < count; i++)
        is_gone = is_gone || changes[i].is_delete;
    if (!is_gone)
        return;
    look_again(place);
    place_step(place);
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct muster_lease_place *place = watch->data;

    (void)rc; /* a new look says more */
    place->is_watching = false;
    look_again(place);
    step_later(place);
}

static void wait_for(struct muster_lease_place *place, struct muster_bytes key, uint64_t revision)
{
    place->watch.data = place;
    /* The watch starts right after the revision of the look, so a deletion in between is seen. */
    if (muster_registry_watch_start(&place->watch, place->session->registry, key,
                                    MUSTER_REGISTRY_KEY, revision + 1, on_changes,
                                    on_watch_end) != MUSTER_OK) {
        step_later(place);
        return;
    }
    place->is_watching = true;
    place_move(place, MUSTER_LEASE_PLACE_WAITING);
}

/* Looking: is our key there, and which key is the next before it? */

static void on_look(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_lease_place *place = op->data;

    if (has_ended(place) || has_failed(place, rc))
        return;
    if (!op->is_succeeded)
        end_without_key(place);
    else if (op->kv_count == 0)
        become_first(place);
    else
        wait_for(place, op->kvs[0].key, op->revision);
}

static enum muster_rc place_look(struct muster_lease_place *place)
{
    /* The create revision tells our key from one that somebody has made again after ours was
     * deleted. */
    struct muster_registry_compare is_there = muster_lease_place_compare(place);
    struct muster_registry_step before = {.kind = MUSTER_REGISTRY_GET,
                                          .key = queue_of(place),
                                          .reach = MUSTER_REGISTRY_PREFIX,
                                          .order = MUSTER_REGISTRY_NEWEST_FIRST,
                                          .limit = 1,
                                          .create_revision_max = place->revision - 1};
    struct muster_registry_txn txn = {
        .compares = &is_there, .compare_count = 1, .success = &before, .success_count = 1};

    return muster_registry_txn_start(&place->op, place->session->registry, &txn,
                                     attempt_deadline(place, place->deadline_ns), on_look);
}

/* Entering: make our key unless it is there, and see which key is in front. */

static void on_entered(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_lease_place *place = op->data;
    const struct muster_registry_kv *first = NULL;

    if (has_ended(place) || has_failed(place, rc))
        return;
    if (op->kv_count == 0) {
        end_with(place, MUSTER_INTERNAL, "the registry does not show a key that it has");
        return;
    }
    /* The last key of the answer is the one in front; before it comes our own key, where it was
     * found. */
    first = &op->kvs[op->kv_count - 1];
    /* The key is there already when an attempt in doubt had made it. */
    place->revision = op->is_succeeded ? op->revision : op->kvs[0].create_revision;
    if (first->create_revision == place->revision) {
        become_first(place);
    } else if (place->is_try) {
        end_with(place, MUSTER_FAILED_PRECONDITION, "another is in front");
    } else {
        place_move(place, MUSTER_LEASE_PLACE_LOOKING);
        place_step(place);
    }
}

static enum muster_rc place_enter(struct muster_lease_place *place)
{
    struct muster_registry_compare is_absent = {.key = key_of(place),
                                                .target = MUSTER_REGISTRY_CREATE_REVISION,
                                                .relation = MUSTER_REGISTRY_EQUAL,
                                                .number = 0};
    struct muster_registry_step front = {.kind = MUSTER_REGISTRY_GET,
                                         .key = queue_of(place),
                                         .reach = MUSTER_REGISTRY_PREFIX,
                                         .order = MUSTER_REGISTRY_OLDEST_FIRST,
                                         .limit = 1};
    struct muster_registry_step make[] = {{.kind = MUSTER_REGISTRY_PUT,
                                           .key = key_of(place),
                                           .value = value_of(place),
                                           .lease = place->session->lease},
                                          front};
    struct muster_registry_step find[] = {{.kind = MUSTER_REGISTRY_GET, .key = key_of(place)},
                                          front};
    struct muster_registry_txn txn = {.compares = &is_absent,
                                      .compare_count = 1,
                                      .success = make,
                                      .success_count = 2,
                                      .failure = find,
                                      .failure_count = 2};

    return muster_registry_txn_start(&place->op, place->session->registry, &txn,
                                     attempt_deadline(place, place->deadline_ns), on_entered);
}

/* Leaving. */

/* It may be gone, or stand in the way of the others as long as our session lives. */
static bool may_be_there(enum muster_rc rc)
{
    return muster_registry_is_unknown(rc) || rc == MUSTER_RESOURCE_EXHAUSTED;
}

static void on_left(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_lease_place *place = op->data;

    place->is_calling = false;
    if (place->is_dropped || !may_be_there(rc))
        place_complete(place);
    else
        step_later(place);
}

static enum muster_rc place_leave(struct muster_lease_place *place)
{
    return muster_registry_delete_start(&place->op, place->session->registry, key_of(place),
                                        MUSTER_REGISTRY_KEY, attempt_deadline(place, UINT64_MAX),
                                        on_left);
}

/* The next attempt of what the state asks for. */
static void place_step(struct muster_lease_place *place)
{
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(!place->is_calling);
    place->op.data = place;
    if (place->state == MUSTER_LEASE_PLACE_ENTERING)
        rc = place_enter(place);
    else if (place->state == MUSTER_LEASE_PLACE_LOOKING)
        rc = place_look(place);
    else if (place->state == MUSTER_LEASE_PLACE_LEAVING)
        rc = place_leave(place);
    else
        return;
    place->is_calling = rc == MUSTER_OK;
    if (rc == MUSTER_FAILED_PRECONDITION) { /* the registry client is closing */
        place->is_dropped = true;
        end_with(place, MUSTER_CANCELLED, "the registry client is closed");
    } else if (rc != MUSTER_OK) {
        step_later(place);
    }
}

static void on_deadline(struct muster_timer *timer)
{
    end_with(timer->data, MUSTER_DEADLINE_EXCEEDED, "another is still in front");
}

/* The calls of the program. */

static bool is_in(const struct muster_session *session, struct muster_bytes queue)
{
    MUSTER_LIST_EACH (&session->places, other, struct muster_lease_place, node) {
        /* The key is made of the name and the lease, so two places of one session in one queue
         * would share it. */
        if (other->queue_bytes == queue.size + 1 && memcmp(other->key, queue.data, queue.size) == 0)
            return true;
    }
    return false;
}

static enum muster_rc make_key(struct muster_lease_place *place,
                               const struct muster_lease_place_options *options)
{
    struct muster_mem *mem = env_of(place)->mem;
    size_t room = options->queue.size + 1 + LEASE_HEX_BYTES;

    place->key = muster_mem_alloc(mem, room);
    place->value = muster_mem_alloc(mem, options->value.size + 1);
    if (place->key == NULL || place->value == NULL) {
        muster_mem_free(mem, place->key);
        muster_mem_free(mem, place->value);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    memcpy(place->key, options->queue.data, options->queue.size);
    place->key[options->queue.size] = '/';
    place->queue_bytes = options->queue.size + 1;
    place->key_bytes =
        place->queue_bytes + (size_t)snprintf(place->key + place->queue_bytes, LEASE_HEX_BYTES,
                                              "%" PRIx64, (uint64_t)place->session->lease);
    if (options->value.size > 0)
        memcpy(place->value, options->value.data, options->value.size);
    place->value_bytes = options->value.size;
    return MUSTER_OK;
}

static void place_begin(struct muster_lease_place *place,
                        const struct muster_lease_place_options *options)
{
    place->deadline_ns = options->deadline_ns;
    place->is_try = options->is_try;
    muster_timer_init(&place->again, on_again, place);
    muster_timer_init(&place->deadline, on_deadline, place);
    muster_task_init(&place->task, on_task, place);
    /* The place is in the session's list before its first call, so that a session which is lost
     * meanwhile ends it. */
    muster_list_append(&place->session->places, &place->node);
    if (options->deadline_ns != UINT64_MAX)
        muster_timer_start(&place->deadline, env_of(place)->loop, options->deadline_ns);
    place_move(place, MUSTER_LEASE_PLACE_ENTERING);
    place_step(place);
}

static enum muster_rc options_check(const struct muster_lease_place_options *options,
                                    const struct muster_env *env, struct muster_error *ret_error)
{
    if (options == NULL || options->queue.size == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "options must name what is waited for (queue of a place, name of a "
                                "lock or an election), got none");
    return muster_deadline_check(env, "muster_lease_place_start", options->deadline_ns, ret_error);
}

enum muster_rc muster_lease_place_start(struct muster_lease_place *place,
                                        struct muster_session *session,
                                        const struct muster_lease_place_options *options,
                                        muster_lease_place_done_fn *done,
                                        muster_lease_place_fn *on_lost)
{
    struct muster_lease_place fresh = {.data = place->data,
                                       .state = MUSTER_LEASE_PLACE_IDLE,
                                       .done = done,
                                       .on_lost = on_lost,
                                       .session = session};
    enum muster_rc rc = options_check(options, session->registry->env, &place->error);

    if (rc != MUSTER_OK)
        return rc;
    if (!session->is_granted || session->is_lost || session->is_closing ||
        is_in(session, options->queue))
        return muster_error_set(&place->error, MUSTER_FAILED_PRECONDITION,
                                "the session is not open, or waits there already");
    rc = make_key(&fresh, options);
    if (rc != MUSTER_OK)
        return muster_error_set(&place->error, rc, "no memory for a place in the queue");
    *place = fresh;
    place_begin(place, options);
    return MUSTER_OK;
}

void muster_lease_place_cancel(struct muster_lease_place *place)
{
    if (place->done != NULL && place->state != MUSTER_LEASE_PLACE_IDLE && !place->is_ending)
        end_with(place, MUSTER_CANCELLED, "cancelled");
}

enum muster_rc muster_lease_place_stop(struct muster_lease_place *place,
                                       muster_lease_place_fn *stopped)
{
    if (place->state != MUSTER_LEASE_PLACE_FIRST || place->is_ending)
        return MUSTER_FAILED_PRECONDITION;
    place->stopped = stopped;
    place_end(place, MUSTER_OK);
    return MUSTER_OK;
}

void muster_lease_place_drop(struct muster_lease_place *place, enum muster_rc rc)
{
    place->is_dropped = true;
    if (place->is_ending && place->is_calling) {
        muster_registry_op_cancel(&place->op);
        return;
    }
    if (!place->is_ending)
        end_with(place, rc, rc == MUSTER_CANCELLED ? "cancelled" : "the session is lost");
    else
        place_end(place, place->result);
}

struct muster_registry_compare muster_lease_place_compare(const struct muster_lease_place *place)
{
    return (struct muster_registry_compare){.key = key_of(place),
                                            .target = MUSTER_REGISTRY_CREATE_REVISION,
                                            .relation = MUSTER_REGISTRY_EQUAL,
                                            .number = place->revision};
}

/* Another value. */

static void on_set(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_lease_place *place = op->data;
    muster_lease_place_done_fn *was_set = place->was_set;
    bool is_ending = place->is_ending;

    MUSTER_ASSERT(place->was_set != NULL);
    place->is_calling = false;
    place->was_set = NULL;
    /* The end waits for this call, because both use place->op. */
    if (is_ending)
        muster_task_post(&place->task, env_of(place)->loop);
    if (rc == MUSTER_OK && !op->is_succeeded)
        rc = muster_error_set(&op->error, MUSTER_ABORTED,
                              "the key of this place was deleted, or its lease has ended");
    place->error = op->error;
    was_set(place, rc);
}

enum muster_rc muster_lease_place_set_start(struct muster_lease_place *place,
                                            struct muster_bytes value, uint64_t deadline_ns,
                                            muster_lease_place_done_fn *was_set)
{
    struct muster_registry_compare is_ours;
    struct muster_registry_step put = {.kind = MUSTER_REGISTRY_PUT, .value = value};
    struct muster_registry_txn txn = {
        .compares = &is_ours, .compare_count = 1, .success = &put, .success_count = 1};
    enum muster_rc rc = MUSTER_OK;

    /* One call at a time uses place->op; the deletion at the end is one of them. */
    if (place->state != MUSTER_LEASE_PLACE_FIRST || place->is_ending || place->is_calling)
        return MUSTER_FAILED_PRECONDITION;
    is_ours = muster_lease_place_compare(place);
    put.key = key_of(place);
    put.lease = place->session->lease;
    place->op.data = place;
    rc = muster_registry_txn_start(&place->op, place->session->registry, &txn, deadline_ns, on_set);
    if (rc != MUSTER_OK)
        return rc;
    place->is_calling = true;
    place->was_set = was_set;
    return MUSTER_OK;
}
