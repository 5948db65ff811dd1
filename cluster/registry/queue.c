/* Calls that wait in a queue of keys until all before them are deleted: the concurrency recipe of
 * etcd's client (client/v3/concurrency/mutex.go and election.go), done in the server.
 * lock_service.c and election_service.c call it and write the answers. */
#include "cluster/registry/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SUFFIX_BYTES 18 /* a slash, sixteen digits, NUL */

enum muster_rc muster_registry_queue_apply(struct muster_registry_server *server,
                                           struct muster_registry_arena *arena,
                                           struct muster_mvcc_request *request,
                                           struct muster_mvcc_result *ret_result,
                                           struct muster_error *ret_error)
{
    bool is_broken = false;
    enum muster_rc rc =
        muster_mvcc_apply(&server->mvcc, request, arena, ret_result, ret_error, &is_broken);

    if (is_broken)
        muster_registry_server_break(server, rc);
    else
        muster_registry_server_touch(server);
    return rc;
}

/* The keys of a queue begin with the name and a slash. The end of the span is the name and the next
 * byte, '0', so another name that merely begins alike stays outside. */
bool muster_registry_queue_span(struct muster_registry_arena *arena, struct muster_bytes name,
                                struct muster_registry_span *ret_span)
{
    size_t bytes = name.size + 1;
    char *text = muster_registry_arena_alloc(arena, 2 * bytes);

    if (text == NULL)
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (name.size > 0)
            memcpy(text + i * bytes, name.data, name.size);
        text[i * bytes + name.size] = (char)('/' + i);
    }
    *ret_span = (struct muster_registry_span){.key = {text, bytes}, .end = {text + bytes, bytes}};
    return true;
}

enum muster_rc muster_registry_queue_front(struct muster_registry_server *server,
                                           struct muster_registry_arena *arena,
                                           struct muster_bytes name, int64_t before_revision,
                                           struct muster_registry_record *ret_front)
{
    struct muster_mvcc_request request = {
        .kind = MUSTER_MVCC_RANGE,
        .range = {.limit = 1,
                  .order = MUSTER_MVCC_ASCEND,
                  .target = MUSTER_MVCC_BY_CREATE,
                  /* The key that was created first is in front. A place that asks looks only at
                   * those before its own. */
                  .max_create_revision = before_revision > 0 ? before_revision - 1 : 0}};
    struct muster_mvcc_result result;
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    if (!muster_registry_queue_span(arena, name, &request.range.span))
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = muster_registry_queue_apply(server, arena, &request, &result, &error);
    if (rc == MUSTER_OK && result.record_count == 0)
        rc = MUSTER_NOT_FOUND;
    if (rc == MUSTER_OK)
        *ret_front = result.records[0];
    return rc;
}

/* A place. */

static struct muster_bytes name_of(const struct muster_registry_place *place)
{
    return (struct muster_bytes){place->key.data, place->name_bytes};
}

/* The place's own key, as long as it is the same. */
static bool is_there(struct muster_registry_place *place)
{
    struct muster_registry_server *server = place->base.server;
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_RANGE,
                                          .range = {.span = {.key = place->key}}};
    struct muster_mvcc_result result;
    struct muster_error error;

    return muster_registry_queue_apply(server, &server->arena, &request, &result, &error) ==
               MUSTER_OK &&
           result.record_count == 1 && result.records[0].create_revision == place->create_revision;
}

/* Committed state only: a place in front of an uncommitted deletion might come back. */
static void on_check(struct muster_task *task)
{
    struct muster_registry_place *place = task->data;
    struct muster_registry_server *server = place->base.server;
    struct muster_registry_record front;
    enum muster_rc rc = MUSTER_OK;

    muster_registry_server_settle(server);
    if (!is_there(place)) {
        muster_rpc_finish(place->base.rpc, MUSTER_UNKNOWN, "mutex: session is expired");
    } else {
        rc = muster_registry_queue_front(server, &server->arena, name_of(place),
                                         place->create_revision, &front);
        if (rc == MUSTER_NOT_FOUND) {
            /* The place leaves the list of streams first: on_end takes a place that is still in it
             * for one that has given up, and would delete the key that the caller has just won. */
            muster_list_remove(&place->base.node);
            place->on_front(place);
            muster_rpc_finish(place->base.rpc, MUSTER_OK, NULL);
        } else if (rc != MUSTER_OK) {
            muster_rpc_finish(place->base.rpc, MUSTER_UNAVAILABLE,
                              "etcdserver: the queue cannot be read");
        }
    }
    muster_registry_arena_reset(&server->arena);
}

static void on_deleted(struct muster_watch_stream *watches,
                       const struct muster_watch_answer *answer)
{
    struct muster_registry_place *place = watches->data;

    if (answer->event_count > 0)
        muster_task_post(&place->check, place->base.server->env->loop);
}

/* Events go to no client here, so this stream is never behind. */
static size_t on_queued_bytes(const struct muster_watch_stream *watches)
{
    (void)watches;
    return 0;
}

static const struct muster_watch_stream_ops watch_ops = {.send = on_deleted,
                                                         .queued_bytes = on_queued_bytes};

static struct muster_registry_place *place_new(struct muster_registry_server *server,
                                               struct muster_rpc *rpc, struct muster_bytes name,
                                               int64_t lease)
{
    struct muster_registry_place *place =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*place) + name.size + SUFFIX_BYTES);
    char *text = NULL;
    int digits = 0;

    if (place == NULL)
        return NULL;
    text = (char *)(place + 1);
    if (name.size > 0)
        memcpy(text, name.data, name.size);
    /* The lease in hexadecimal digits names the place, so a caller that asks twice with the same
     * lease has one place only. */
    digits = snprintf(text + name.size, SUFFIX_BYTES, "/%" PRIx64, (uint64_t)lease);
    place->base.server = server;
    place->base.rpc = rpc;
    place->lease = lease;
    place->name_bytes = name.size;
    place->key = (struct muster_bytes){text, name.size + (size_t)digits};
    muster_task_init(&place->check, on_check, place);
    return place;
}

/* Put the key, unless it is there with this value already. */
static enum muster_rc place_join(struct muster_registry_place *place, struct muster_bytes value,
                                 struct muster_error *ret_error)
{
    struct muster_registry_server *server = place->base.server;
    struct muster_mvcc_request range = {.kind = MUSTER_MVCC_RANGE,
                                        .range = {.span = {.key = place->key}}};
    struct muster_mvcc_request put = {
        .kind = MUSTER_MVCC_PUT, .put = {.key = place->key, .value = value, .lease = place->lease}};
    struct muster_mvcc_result result;
    enum muster_rc rc =
        muster_registry_queue_apply(server, &server->arena, &range, &result, ret_error);

    MUSTER_ASSERT(place->create_revision == 0);
    if (rc != MUSTER_OK)
        return rc;
    /* A caller that comes again, after a lost connection for example, keeps its place. The value of
     * a campaign may be another one this time. */
    if (result.record_count == 1) {
        place->create_revision = result.records[0].create_revision;
        if (muster_registry_bytes_compare(result.records[0].value, value) == 0)
            return MUSTER_OK;
    }
    rc = muster_registry_queue_apply(server, &server->arena, &put, &result, ret_error);
    if (rc == MUSTER_OK && place->create_revision == 0)
        /* The put was the last write, so its revision is the newest. */
        place->create_revision = server->mvcc.meta.revision;
    return rc;
}

static void await_front(struct muster_registry_place *place)
{
    struct muster_registry_server *server = place->base.server;
    struct muster_watch_wish wish = {.skips_puts = true};

    MUSTER_ASSERT(place->create_revision > 0);
    muster_list_append(&server->streams, &place->base.node);
    muster_watch_stream_open(&place->watches, &server->hub, &watch_ops, place);
    if (!muster_registry_queue_span(&server->arena, name_of(place), &wish.span)) {
        muster_rpc_finish(place->base.rpc, MUSTER_RESOURCE_EXHAUSTED,
                          "etcdserver: no memory for a watch");
        return;
    }
    /* The watch is there before the first check, so no deletion falls between the two. */
    muster_watch_stream_create(&place->watches, &wish);
    muster_task_post(&place->check, server->env->loop);
}

/* A caller without a lease gets one that nobody keeps alive, so its place lasts
 * MUSTER_QUEUE_LEASE_TTL_S at most. */
static enum muster_rc own_lease(struct muster_registry_server *server, int64_t *ret_lease,
                                struct muster_error *ret_error)
{
    bool is_broken = false;
    int64_t ttl_s = 0;
    enum muster_rc rc = muster_leases_grant(&server->leases, MUSTER_QUEUE_LEASE_TTL_S, 0, ret_lease,
                                            &ttl_s, ret_error, &is_broken);

    if (is_broken)
        muster_registry_server_break(server, rc);
    else
        muster_registry_server_touch(server);
    return rc;
}

void muster_registry_place_take(struct muster_registry_server *server, struct muster_rpc *rpc,
                                const struct muster_registry_wish *wish,
                                muster_registry_front_fn *on_front)
{
    struct muster_registry_place *place = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    int64_t lease = wish->lease;
    enum muster_rc rc = lease != 0 ? MUSTER_OK : own_lease(server, &lease, &error);

    if (rc == MUSTER_OK) {
        place = place_new(server, rpc, wish->name, lease);
        rc = place != NULL ? place_join(place, wish->value, &error)
                           : muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                                              "etcdserver: no memory for a place");
    }
    if (rc != MUSTER_OK) {
        muster_mem_free(server->env->mem, place);
        muster_rpc_finish(rpc, rc, error.text);
    } else {
        place->on_front = on_front;
        muster_rpc_set_data(rpc, place);
        await_front(place);
    }
    muster_registry_arena_reset(&server->arena);
}

static void place_leave(struct muster_registry_place *place)
{
    struct muster_registry_server *server = place->base.server;
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_DELETE,
                                          .delete = {.span = {.key = place->key}}};
    struct muster_mvcc_result result;
    struct muster_error error;

    /* A key that expired, or that another call has made since, is not this place's to delete. */
    if (is_there(place) &&
        muster_registry_queue_apply(server, &server->arena, &request, &result, &error) != MUSTER_OK)
        MUSTER_LOG(server->env, WARN, "registry_place_kept", "error", error.text);
    muster_registry_arena_reset(&server->arena);
}

void muster_registry_place_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct muster_registry_place *place = muster_rpc_data(rpc);
    struct muster_registry_server *server = muster_rpc_service(rpc);

    (void)rc;
    if (place == NULL)
        return;
    /* A server that stops leaves the keys alone, because its clients come back and find their
     * places. */
    if (!muster_list_is_empty(&place->base.node) && !server->is_closing) /* still in the queue */
        place_leave(place);
    muster_watch_stream_close(&place->watches);
    muster_task_cancel(&place->check);
    muster_list_remove(&place->base.node);
    muster_mem_free(server->env->mem, place);
}
