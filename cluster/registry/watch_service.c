/* etcdserverpb.Watch: requests of a client stream to its watches, their answers to messages. The
 * watches themselves, and how fast a client gets its events, are in watch.c. */
#include "cluster/registry/kv_proto.h"
#include "cluster/registry/server_internal.h"

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

struct watch_stream {
    struct muster_registry_stream base;
    struct muster_watch_stream watches;
};

/* Answers. */

static bool fill_event(const struct muster_watch_event *event, struct muster_registry_arena *arena,
                       Mvccpb__Event *ret_event)
{
    Mvccpb__KeyValue *kvs = muster_registry_arena_array(arena, 2, sizeof(*kvs));

    if (kvs == NULL)
        return false;
    mvccpb__event__init(ret_event);
    /* A deletion carries the key and its revision and nothing else, as in etcd. */
    if (event->record->version == 0)
        ret_event->type = MVCCPB__EVENT__EVENT_TYPE__DELETE;
    muster_kv_proto_fill(event->record, &kvs[0]);
    ret_event->kv = &kvs[0];
    if (event->has_previous) {
        muster_kv_proto_fill(&event->previous, &kvs[1]);
        ret_event->prev_kv = &kvs[1];
    }
    return true;
}

static bool fill_events(const struct muster_watch_answer *answer,
                        struct muster_registry_arena *arena, Etcdserverpb__WatchResponse *message)
{
    size_t count = answer->event_count;
    Mvccpb__Event *events = muster_registry_arena_array(arena, count, sizeof(*events));
    Mvccpb__Event **pointers = muster_registry_arena_array(arena, count, sizeof(*pointers));

    if (events == NULL || pointers == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!fill_event(&answer->events[i], arena, &events[i]))
            return false;
        pointers[i] = &events[i];
    }
    message->n_events = count;
    message->events = pointers;
    return true;
}

static void on_send(struct muster_watch_stream *watches, const struct muster_watch_answer *answer)
{
    struct watch_stream *stream = watches->data;
    struct muster_registry_server *server = stream->base.server;
    Etcdserverpb__WatchResponse message;
    Etcdserverpb__ResponseHeader header;

    etcdserverpb__watch_response__init(&message);
    muster_registry_fill_header(server, &header);
    /* The revision of the header is the hub's, which is committed. The one that
     * muster_registry_fill_header gives may belong to the open transaction. */
    header.revision = answer->revision;
    message.header = &header;
    message.watch_id = answer->watch_id;
    message.created = answer->is_created;
    message.canceled = answer->is_canceled;
    message.fragment = answer->is_fragment;
    message.compact_revision = answer->compact_revision;
    if (answer->cancel_reason != NULL)
        message.cancel_reason = (char *)(uintptr_t)answer->cancel_reason;
    if (fill_events(answer, &server->send_arena, &message))
        muster_registry_stream_send(server, stream->base.rpc, &message);
    else
        muster_rpc_finish(stream->base.rpc, MUSTER_UNAVAILABLE, "etcdserver: no memory for events");
    muster_registry_arena_reset(&server->send_arena);
}

static size_t on_queued_bytes(const struct muster_watch_stream *watches)
{
    const struct watch_stream *stream = watches->data;

    return muster_rpc_queued_bytes(stream->base.rpc);
}

static const struct muster_watch_stream_ops stream_ops = {.send = on_send,
                                                          .queued_bytes = on_queued_bytes};

/* Requests. */

static void create_watch(struct watch_stream *stream,
                         const Etcdserverpb__WatchCreateRequest *request)
{
    struct muster_watch_wish wish = {
        .span = {.key = {.data = request->key.data, .size = request->key.len},
                 .end = {.data = request->range_end.data, .size = request->range_end.len}},
        .start_revision = request->start_revision,
        .watch_id = request->watch_id,
        .wants_progress = request->progress_notify,
        .wants_previous = request->prev_kv,
        .wants_fragments = request->fragment,
    };

    /* An empty key is the first key there is, as in etcd, so that it makes a range with
     * range_end. */
    if (wish.span.key.size == 0)
        wish.span.key = (struct muster_bytes){.data = "\0", .size = 1};
    for (size_t i = 0; i < request->n_filters; i++) {
        wish.skips_puts |=
            request->filters[i] == ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
        wish.skips_deletes |=
            request->filters[i] == ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE;
    }
    muster_watch_stream_create(&stream->watches, &wish);
}

static void on_start(struct muster_rpc *rpc)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    struct watch_stream *stream = NULL;

    if (!server->is_closing)
        stream = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*stream));
    if (stream == NULL) {
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, MUSTER_REGISTRY_STOPPED);
        return;
    }
    stream->base.server = server;
    stream->base.rpc = rpc;
    muster_list_append(&server->streams, &stream->base.node);
    muster_watch_stream_open(&stream->watches, &server->hub, &stream_ops, stream);
    muster_rpc_set_data(rpc, stream);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct watch_stream *stream = muster_rpc_data(rpc);
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__WatchRequest *request = NULL;

    if (stream == NULL ||
        !muster_registry_unpack(server, rpc, &etcdserverpb__watch_request__descriptor, bytes,
                                &request))
        return;
    switch (request->request_union_case) {
    case ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST:
        create_watch(stream, request->create_request);
        break;
    case ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST:
        muster_watch_stream_cancel(&stream->watches, request->cancel_request->watch_id);
        break;
    case ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST:
        muster_watch_stream_progress(&stream->watches);
        break;
    default:
        break; /* as etcd: a request of a later version is passed over */
    }
    muster_proto_free(request);
}

static void on_half_close(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_writable(struct muster_rpc *rpc)
{
    struct watch_stream *stream = muster_rpc_data(rpc);

    if (stream != NULL)
        muster_watch_stream_resume(&stream->watches);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct watch_stream *stream = muster_rpc_data(rpc);

    (void)rc;
    if (stream == NULL)
        return;
    muster_watch_stream_close(&stream->watches);
    muster_list_remove(&stream->base.node);
    muster_mem_free(stream->base.server->env->mem, stream);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Watch/Watch",
     .on_start = on_start,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_writable = on_writable,
     .on_end = on_end},
};

enum muster_rc muster_registry_watch_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
