/* Keys job_queue/todo/ID, job_queue/taken/ID (under the lease of the server that took it) and
 * job_queue/done/ID. */
#include "job_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX      "job_queue/"
#define SESSION_S   10
#define DEADLINE_NS (10 * MUSTER_NS_PER_S)
#define AGAIN_NS    (200 * MUSTER_NS_PER_MS)

static struct muster_bytes text_bytes(const char *text)
{
    return (struct muster_bytes){text, strlen(text)};
}

static uint64_t op_deadline(const struct job_store *store)
{
    return muster_loop_after_ns(store->env->loop, DEADLINE_NS);
}

/* --- The mirror --- */

static struct job *job_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct job, node);
}

struct job *job_store_find(struct job_store *store, const char *id)
{
    for (struct muster_list *node = store->jobs.next; node != &store->jobs; node = node->next) {
        if (strcmp(job_of(node)->id, id) == 0)
            return job_of(node);
    }
    return NULL;
}

struct job *job_store_next(struct job_store *store)
{
    for (struct muster_list *node = store->jobs.next; store->has_session && node != &store->jobs;
         node = node->next) {
        if (job_of(node)->state == JOB_WAITING && !job_of(node)->is_claiming &&
            !job_of(node)->is_removed)
            return job_of(node);
    }
    return NULL;
}

size_t job_store_count(const struct job_store *store, enum job_state state)
{
    size_t count = 0;

    for (struct muster_list *node = store->jobs.next; node != &store->jobs; node = node->next)
        count += job_of(node)->state == state;
    return count;
}

static void job_free(struct job *job)
{
    muster_list_remove(&job->node);
    free((void *)(uintptr_t)job->content.data);
    free(job);
}

/* Out of the registry: it goes now, or when it is unclaimed. */
static void job_remove(struct job *job)
{
    job->is_removed = true;
    if (!job->is_claiming)
        job_free(job);
}

void job_store_unclaim(struct job_store *store, const char *id)
{
    struct job *job = job_store_find(store, id);

    if (job == NULL)
        return;
    job->is_claiming = false;
    if (job->is_removed)
        job_free(job);
}

static void set_content(struct job *job, struct muster_bytes content)
{
    char *copy = malloc(content.size + 1);

    if (copy == NULL)
        abort();
    memcpy(copy, content.data, content.size);
    free((void *)(uintptr_t)job->content.data);
    job->content = (struct muster_bytes){copy, content.size};
}

static struct job *job_at(struct job_store *store, const char *id, size_t id_bytes, bool is_made)
{
    char text[200];
    struct job *job;

    (void)snprintf(text, sizeof(text), "%.*s", (int)id_bytes, id);
    job = job_store_find(store, text);
    if (job != NULL && is_made)
        job->is_removed = false;
    if (job != NULL || !is_made)
        return job;
    job = calloc(1, sizeof(*job) + id_bytes + 1);
    if (job == NULL)
        abort();
    memcpy(job->id, id, id_bytes);
    muster_list_append(&store->jobs, &job->node);
    return job;
}

static bool is_kind(struct muster_bytes key, const char *kind, size_t *ret_bytes)
{
    *ret_bytes = strlen(kind);
    return key.size > *ret_bytes && memcmp(key.data, kind, *ret_bytes) == 0;
}

static void change_apply(struct job_store *store, const struct muster_registry_kv *kv,
                         bool is_delete)
{
    const char *key = kv->key.data;
    size_t bytes;
    struct job *job;

    if (is_kind(kv->key, PREFIX "todo/", &bytes)) {
        job = job_at(store, key + bytes, kv->key.size - bytes, !is_delete);
        if (job != NULL && !is_delete)
            set_content(job, kv->value);
        else if (job != NULL && job->state != JOB_DONE)
            job_remove(job); /* by hand: a job that is done has its result before this */
    } else if (is_kind(kv->key, PREFIX "taken/", &bytes)) {
        job = job_at(store, key + bytes, kv->key.size - bytes, !is_delete);
        if (job != NULL && job->state != JOB_DONE)
            job->state = is_delete ? JOB_WAITING : JOB_TAKEN;
        if (job != NULL)
            job->lease = is_delete ? 0 : kv->lease;
    } else if (is_kind(kv->key, PREFIX "done/", &bytes)) {
        job = job_at(store, key + bytes, kv->key.size - bytes, !is_delete);
        if (job == NULL)
            return;
        if (is_delete) {
            job_remove(job);
            return;
        }
        job->state = JOB_DONE;
        set_content(job, kv->value);
        store->on_done(store, job);
    }
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct job_store *store = watch->data;

    for (size_t i = 0; i < count; i++)
        change_apply(store, &changes[i].kv, changes[i].is_delete);
    store->on_change(store);
}

static void look_again(struct job_store *store)
{
    if (!store->is_closing)
        muster_timer_start(&store->again, store->env->loop,
                           muster_loop_after_ns(store->env->loop, AGAIN_NS));
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    (void)rc; /* history was compacted, or the registry is another: look at all of it again */
    look_again(watch->data);
}

/* The copy follows the registry: keys that are gone are removed, the others are put. */
static void on_range(struct muster_registry_op *op, enum muster_rc rc)
{
    struct job_store *store = op->data;
    struct muster_list *node, *next;

    store->is_ranging = false;
    if (rc != MUSTER_OK) {
        look_again(store);
        return;
    }
    for (node = store->jobs.next; node != &store->jobs; node = next) {
        next = node->next;
        job_remove(job_of(node));
    }
    for (size_t i = 0; i < op->kv_count; i++)
        change_apply(store, &op->kvs[i], false);
    store->watch.data = store;
    if (muster_registry_watch_start(&store->watch, store->registry, text_bytes(PREFIX),
                                    MUSTER_REGISTRY_PREFIX, op->revision + 1, on_changes,
                                    on_watch_end) != MUSTER_OK)
        look_again(store);
    store->on_change(store);
}

static void on_session(struct muster_session *session, enum muster_rc rc);

static void on_session_closed(struct muster_session *session)
{
    struct job_store *store = session->data;

    store->is_session_busy = false;
    look_again(store);
}

static void on_session_lost(struct muster_session *session)
{
    struct job_store *store = session->data;

    store->has_session = false;
    store->is_session_busy = true;
    store->on_session_lost(store);
    muster_session_close(session, on_session_closed);
}

static void range_start(struct job_store *store)
{
    const struct muster_registry_range range = {.key = text_bytes(PREFIX),
                                                .reach = MUSTER_REGISTRY_PREFIX};

    muster_registry_watch_stop(&store->watch);
    store->range.data = store;
    store->is_ranging = muster_registry_range_start(&store->range, store->registry, &range,
                                                    op_deadline(store), on_range) == MUSTER_OK;
    if (!store->is_ranging)
        look_again(store);
}

static void session_start(struct job_store *store)
{
    store->session.data = store;
    store->is_session_busy =
        muster_session_open(&store->session, store->registry, SESSION_S, op_deadline(store),
                            on_session, on_session_lost) == MUSTER_OK;
    if (!store->is_session_busy)
        look_again(store);
}

/* A request that is under way goes on; its callback looks again. */
static void on_again(struct muster_timer *timer)
{
    struct job_store *store = timer->data;

    if (!store->is_ranging)
        range_start(store);
    if (!store->has_session && !store->is_session_busy)
        session_start(store);
}

static void on_session(struct muster_session *session, enum muster_rc rc)
{
    struct job_store *store = session->data;

    store->is_session_busy = false;
    if (rc != MUSTER_OK) {
        look_again(store);
        return;
    }
    store->has_session = true;
    store->on_change(store);
}

/* --- Opening and closing --- */

bool job_store_open(struct job_store *store, struct muster_env *env, const char *endpoints)
{
    const struct muster_registry_options options = {.endpoints = endpoints};
    struct muster_error error;

    store->env = env;
    muster_list_init(&store->jobs);
    muster_list_init(&store->give_backs);
    muster_timer_init(&store->again, on_again, store);
    if (muster_registry_open(env, &options, &store->registry, &error) != MUSTER_OK) {
        fprintf(stderr, "job_queue: %s\n", error.text);
        return false;
    }
    muster_registry_set_data(store->registry, store);
    on_again(&store->again);
    return true;
}

static void on_registry_closed(struct muster_registry *registry)
{
    struct job_store *store = muster_registry_data(registry);

    while (!muster_list_is_empty(&store->jobs))
        job_free(job_of(store->jobs.next));
    store->on_closed(store);
}

static void close_registry(struct muster_session *session)
{
    struct job_store *store = session->data;

    muster_registry_close(store->registry, on_registry_closed);
}

static void end_give_backs(struct job_store *store)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&store->give_backs)) != NULL) {
        struct job_op *op = MUSTER_CONTAINER_OF(node, struct job_op, node);

        muster_timer_stop(&op->again);
        op->done(op, MUSTER_CANCELLED, false);
    }
}

void job_store_close(struct job_store *store)
{
    store->is_closing = true;
    end_give_backs(store);
    muster_timer_stop(&store->again);
    muster_registry_watch_stop(&store->watch);
    if (store->has_session)
        muster_session_close(&store->session, close_registry); /* gives all jobs back at once */
    else
        close_registry(&store->session);
}

/* --- Changes --- */

static void on_txn(struct muster_registry_op *registry_op, enum muster_rc rc)
{
    struct job_op *op = MUSTER_CONTAINER_OF(registry_op, struct job_op, op);

    op->done(op, rc, rc == MUSTER_OK && registry_op->is_succeeded);
}

static void set_keys(struct job_op *op, const char *id, job_op_fn *done)
{
    static const char *const kinds[3] = {"todo", "taken", "done"};

    for (size_t i = 0; i < 3; i++)
        (void)snprintf(op->keys[i], sizeof(op->keys[i]), PREFIX "%s/%s", kinds[i], id);
    op->done = done;
}

static struct muster_registry_compare compare_absent(const char *key)
{
    return (struct muster_registry_compare){.key = text_bytes(key),
                                            .target = MUSTER_REGISTRY_CREATE_REVISION,
                                            .relation = MUSTER_REGISTRY_EQUAL};
}

static struct muster_registry_compare compare_present(const char *key)
{
    return (struct muster_registry_compare){.key = text_bytes(key),
                                            .target = MUSTER_REGISTRY_CREATE_REVISION,
                                            .relation = MUSTER_REGISTRY_GREATER};
}

static struct muster_registry_compare is_ours(const struct job_store *store, const char *key)
{
    return (struct muster_registry_compare){.key = text_bytes(key),
                                            .target = MUSTER_REGISTRY_LEASE,
                                            .relation = MUSTER_REGISTRY_EQUAL,
                                            .number = (uint64_t)store->session.lease};
}

static struct muster_registry_step step_put(const char *key, struct muster_bytes value,
                                            int64_t lease)
{
    return (struct muster_registry_step){
        .kind = MUSTER_REGISTRY_PUT, .key = text_bytes(key), .value = value, .lease = lease};
}

static struct muster_registry_step step_delete(const char *key)
{
    return (struct muster_registry_step){.kind = MUSTER_REGISTRY_DELETE, .key = text_bytes(key)};
}

static enum muster_rc store_commit(struct job_store *store, struct job_op *op,
                                   const struct muster_registry_compare *compares,
                                   size_t compare_count, const struct muster_registry_step *steps,
                                   size_t step_count)
{
    const struct muster_registry_txn txn = {.compares = compares,
                                            .compare_count = compare_count,
                                            .success = steps,
                                            .success_count = step_count};

    return muster_registry_txn_start(&op->op, store->registry, &txn, op_deadline(store), on_txn);
}

enum muster_rc job_store_submit(struct job_store *store, struct job_op *op, const char *id,
                                struct muster_bytes payload, job_op_fn *done)
{
    set_keys(op, id, done);
    const struct muster_registry_compare new_id[] = {compare_absent(op->keys[0]),
                                                     compare_absent(op->keys[2])};
    const struct muster_registry_step step = step_put(op->keys[0], payload, 0);
    return store_commit(store, op, new_id, 2, &step, 1);
}

enum muster_rc job_store_take(struct job_store *store, struct job_op *op, struct job *job,
                              job_op_fn *done)
{
    set_keys(op, job->id, done);
    const struct muster_registry_compare free_job[] = {compare_present(op->keys[0]),
                                                       compare_absent(op->keys[1])};
    const struct muster_registry_step step =
        step_put(op->keys[1], (struct muster_bytes){"", 0}, store->session.lease);
    return store_commit(store, op, free_job, 2, &step, 1);
}

enum muster_rc job_store_finish(struct job_store *store, struct job_op *op, const char *id,
                                struct muster_bytes result, job_op_fn *done)
{
    set_keys(op, id, done);
    const struct muster_registry_compare ours = is_ours(store, op->keys[1]);
    const struct muster_registry_step steps[] = {
        step_put(op->keys[2], result, 0), step_delete(op->keys[0]), step_delete(op->keys[1])};
    return store_commit(store, op, &ours, 1, steps, 3);
}

static void give_back(struct job_op *op);

static void on_give_back_again(struct muster_timer *timer)
{
    struct job_op *op = timer->data;

    muster_list_remove(&op->node);
    give_back(op);
}

static void give_back_later(struct job_op *op)
{
    struct muster_loop *loop = op->store->env->loop;

    muster_list_append(&op->store->give_backs, &op->node);
    muster_timer_start(&op->again, loop, muster_loop_after_ns(loop, AGAIN_NS));
}

/* Nobody else would do it: after its own loss the registry keeps the lease alive. */
static void on_given_back(struct muster_registry_op *registry_op, enum muster_rc rc)
{
    struct job_op *op = MUSTER_CONTAINER_OF(registry_op, struct job_op, op);

    if (rc != MUSTER_OK && !op->store->is_closing)
        give_back_later(op);
    else
        op->done(op, rc, rc == MUSTER_OK && registry_op->is_succeeded);
}

static void give_back(struct job_op *op)
{
    const struct muster_registry_compare ours = is_ours(op->store, op->keys[1]);
    const struct muster_registry_step step = step_delete(op->keys[1]);
    const struct muster_registry_txn txn = {
        .compares = &ours, .compare_count = 1, .success = &step, .success_count = 1};

    if (muster_registry_txn_start(&op->op, op->store->registry, &txn, op_deadline(op->store),
                                  on_given_back) != MUSTER_OK)
        give_back_later(op);
}

void job_store_give_back(struct job_store *store, struct job_op *op, const char *id,
                         job_op_fn *done)
{
    set_keys(op, id, done);
    op->store = store;
    muster_list_init(&op->node);
    muster_timer_init(&op->again, on_give_back_again, op);
    give_back(op);
}

enum muster_rc job_store_forget(struct job_store *store, struct job_op *op, const char *id,
                                job_op_fn *done)
{
    set_keys(op, id, done);
    const struct muster_registry_compare there = compare_present(op->keys[2]);
    const struct muster_registry_step step = step_delete(op->keys[2]);
    return store_commit(store, op, &there, 1, &step, 1);
}
