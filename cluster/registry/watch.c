/* The watches of the registry. A watch is in one of two lists of the hub. Those that are up to date
 * share one read of each commit's changes; those that lag (they began at an old revision, or their
 * client reads slowly) read the log for themselves, a slice at a time. watch_service.c turns
 * messages into calls of this file; the queues of locks and elections use it without a client. */
#include "cluster/registry/watch.h"

#include <string.h>

/* The changes that a watch which is behind reads in one step. */
#define SLICE_BYTES ((size_t)256 << 10)
/* The arena holds a slice and the events of all watches that it is delivered to. A watch for which
 * nothing is left falls behind and reads for itself. */
#define ARENA_BYTES_MAX ((size_t)128 << 20)
/* etcd cuts at its limit of requests as well (fragment of WatchCreateRequest). */
#define FRAGMENT_BYTES MUSTER_MVCC_REQUEST_BYTES_MAX
/* Many watches that begin in the past must not hold up the requests of others. */
#define CATCH_UP_WATCHES_PER_TURN 16

struct watch {
    int64_t id;
    struct muster_watch_stream *stream;
    struct muster_watch_wish wish; /* span points after this struct */
    /* All changes below this revision have been sent, or are not to be sent. It may be in the
     * future: such a watch counts as up to date and skips what comes before. */
    int64_t next_revision;
    bool is_quiet; /* nothing sent since the last notice of progress */
    struct muster_list hub_node;
    struct muster_list stream_node;
};

/* Consecutive changes of the log, whole revisions only. */
struct slice {
    struct muster_watch_hub *hub;
    struct muster_registry_record *records;
    size_t count;
    size_t capacity;
    size_t bytes;
    size_t bytes_max;
    int64_t upto_revision; /* everything up to here is in it */
};

/* Reading the log. */

static enum muster_rc take_change(void *data, const struct muster_registry_record *record)
{
    struct slice *slice = data;
    struct muster_registry_arena *arena = &slice->hub->arena;
    struct muster_registry_record *records = NULL, *slot = NULL;

    /* The scan sees the writes of an open transaction, which may still be undone. */
    if (record->mod_revision > slice->hub->revision)
        return MUSTER_ABORTED;
    /* A revision is never cut in two: a watch would have no place to go on from. */
    if (slice->bytes > slice->bytes_max &&
        record->mod_revision > slice->records[slice->count - 1].mod_revision) {
        slice->upto_revision = record->mod_revision - 1;
        return MUSTER_ABORTED;
    }
    records = muster_registry_arena_reserve(arena, slice->records, slice->count, &slice->capacity,
                                            sizeof(*records));
    if (records == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    slice->records = records;
    slot = &records[slice->count];
    *slot = *record;
    if (!muster_registry_arena_copy(arena, record->key, &slot->key) ||
        !muster_registry_arena_copy(arena, record->value, &slot->value))
        return MUSTER_RESOURCE_EXHAUSTED;
    slice->count++;
    slice->bytes += record->key.size + record->value.size + sizeof(*record);
    return MUSTER_OK;
}

/* Changes from `revision` to the last committed, or about bytes_max of them. */
static enum muster_rc read_slice(struct muster_watch_hub *hub, int64_t revision, size_t bytes_max,
                                 struct slice *ret_slice)
{
    int64_t seq = 0;
    enum muster_rc rc = muster_registry_store_seek(hub->mvcc->store, revision, &seq);

    memset(ret_slice, 0, sizeof(*ret_slice));
    ret_slice->hub = hub;
    ret_slice->bytes_max = bytes_max;
    ret_slice->upto_revision = hub->revision;
    muster_registry_arena_reset(&hub->arena);
    if (rc == MUSTER_OK)
        rc = muster_registry_store_scan_log(hub->mvcc->store, seq, take_change, ret_slice);
    /* ABORTED is how take_change ends the scan. */
    return rc == MUSTER_ABORTED ? MUSTER_OK : rc;
}

/* Sending. */

static void send_simple(struct watch *watch, struct muster_watch_answer answer)
{
    answer.watch_id = watch->id;
    answer.revision = watch->stream->hub->revision;
    watch->stream->ops->send(watch->stream, &answer);
}

static void free_watch(struct watch *watch)
{
    struct muster_watch_stream *stream = watch->stream;

    muster_list_remove(&watch->hub_node);
    muster_list_remove(&watch->stream_node);
    stream->watch_count--;
    muster_mem_free(stream->hub->env->mem, watch);
}

static void cancel_watch(struct watch *watch, const char *reason, int64_t compact_revision)
{
    send_simple(watch, (struct muster_watch_answer){.is_canceled = true,
                                                    .cancel_reason = reason,
                                                    .compact_revision = compact_revision});
    free_watch(watch);
}

static size_t event_bytes(const struct muster_watch_event *event)
{
    /* 64 bytes stand for the numbers and tags of a message, about the most that they take. */
    size_t bytes = 64 + event->record->key.size + event->record->value.size;

    if (event->has_previous)
        bytes += 64 + event->previous.key.size + event->previous.value.size;
    return bytes;
}

/* A client that did not ask for fragments gets all events of one read in one message, however
 * large. */
static void send_events(struct watch *watch, const struct muster_watch_event *events, size_t count)
{
    size_t start = 0;
    size_t bytes = 0;

    watch->is_quiet = false;
    for (size_t i = 0; i < count && watch->wish.wants_fragments; i++) {
        size_t more = event_bytes(&events[i]);

        if (i > start && bytes + more > FRAGMENT_BYTES) {
            send_simple(watch, (struct muster_watch_answer){.events = events + start,
                                                            .event_count = i - start,
                                                            .is_fragment = true});
            start = i;
            bytes = 0;
        }
        bytes += more;
    }
    send_simple(watch, (struct muster_watch_answer){.events = events + start,
                                                    .event_count = count - start});
}

static bool is_wanted(const struct watch *watch, const struct muster_registry_record *record)
{
    bool is_delete = record->version == 0;

    return record->mod_revision >= watch->next_revision &&
           !(is_delete ? watch->wish.skips_deletes : watch->wish.skips_puts) &&
           muster_registry_span_has(&watch->wish.span, record->key);
}

static enum muster_rc add_event(struct watch *watch, const struct muster_registry_record *record,
                                struct muster_watch_event *ret_event)
{
    struct muster_watch_hub *hub = watch->stream->hub;
    enum muster_rc rc = MUSTER_NOT_FOUND;

    memset(ret_event, 0, sizeof(*ret_event));
    ret_event->record = record;
    /* A previous value that was compacted away is left out, as in etcd; the event itself is still
     * sent. */
    if (watch->wish.wants_previous)
        rc = muster_mvcc_previous(hub->mvcc, record, &hub->arena, &ret_event->previous);
    ret_event->has_previous = rc == MUSTER_OK;
    return rc == MUSTER_NOT_FOUND ? MUSTER_OK : rc;
}

/* Nothing is sent unless all events could be built, so a watch that fails here can begin again from
 * the same revision without sending anything twice. */
static enum muster_rc deliver_changes(struct watch *watch, const struct slice *slice)
{
    size_t wanted = 0;
    size_t count = 0;
    struct muster_watch_event *events = NULL;

    for (size_t i = 0; i < slice->count; i++)
        /* The events are counted first, because the arena cannot give back what an array had too
         * much. */
        wanted += is_wanted(watch, &slice->records[i]);
    if (wanted > 0)
        events = muster_registry_arena_alloc(&slice->hub->arena, wanted * sizeof(*events));
    if (wanted > 0 && events == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < slice->count && count < wanted; i++) {
        enum muster_rc rc = MUSTER_OK;

        if (!is_wanted(watch, &slice->records[i]))
            continue;
        rc = add_event(watch, &slice->records[i], &events[count++]);
        if (rc != MUSTER_OK)
            return rc;
    }
    if (wanted > 0)
        send_events(watch, events, wanted);
    if (watch->next_revision <= slice->upto_revision)
        watch->next_revision = slice->upto_revision + 1;
    return MUSTER_OK;
}

/* Progress. */

static bool is_synced(const struct watch *watch)
{
    return watch->next_revision > watch->stream->hub->revision;
}

static void answer_progress(struct muster_watch_stream *stream)
{
    /* The answer to a progress request is for the whole stream; its watch id is -1 (etcd's
     * InvalidWatchID). It promises that every watch of the stream has seen all up to this revision,
     * so it waits for the slowest. */
    struct muster_watch_answer answer = {.watch_id = -1, .revision = stream->hub->revision};

    if (!stream->wants_progress)
        return;
    MUSTER_LIST_EACH (&stream->watches, watch, struct watch, stream_node) {
        if (!is_synced(watch))
            return;
    }
    stream->wants_progress = false;
    stream->ops->send(stream, &answer);
}

static void on_progress_timer(struct muster_timer *timer)
{
    struct muster_watch_hub *hub = timer->data;

    MUSTER_LIST_EACH (&hub->synced, watch, struct watch, hub_node) {
        /* Events tell the client the revision as well, so only quiet watches need the notice. A
         * message without events is that notice. */
        if (watch->wish.wants_progress && watch->is_quiet && !watch->stream->is_blocked)
            send_simple(watch, (struct muster_watch_answer){.event_count = 0});
        watch->is_quiet = true;
    }
    muster_timer_start(timer, hub->env->loop,
                       muster_loop_after_ns(hub->env->loop, hub->progress_interval_ns));
}

/* Up to date, or behind. */

static void check_queue(struct muster_watch_stream *stream)
{
    if (stream->ops->queued_bytes(stream) > MUSTER_WATCH_QUEUE_BYTES)
        stream->is_blocked = true;
}

static void move_to(struct watch *watch, struct muster_list *list)
{
    muster_list_remove(&watch->hub_node);
    muster_list_append(list, &watch->hub_node);
}

static void fall_behind(struct watch *watch)
{
    struct muster_watch_hub *hub = watch->stream->hub;

    move_to(watch, &hub->behind);
    if (!watch->stream->is_blocked)
        muster_task_post(&hub->catch_up, hub->env->loop);
}

/* One step of a watch that is behind. */
static void advance_stream(struct watch *watch)
{
    struct muster_watch_stream *stream = watch->stream;
    struct muster_watch_hub *hub = stream->hub;
    struct slice slice;
    enum muster_rc rc = MUSTER_OK;

    /* The client learns the compact revision and can begin again from there. */
    if (watch->next_revision < hub->mvcc->meta.compact_revision) {
        cancel_watch(watch, "etcdserver: mvcc: required revision has been compacted",
                     hub->mvcc->meta.compact_revision);
        return;
    }
    rc = read_slice(hub, watch->next_revision, SLICE_BYTES, &slice);
    if (rc == MUSTER_OK)
        rc = deliver_changes(watch, &slice);
    if (rc != MUSTER_OK) {
        cancel_watch(watch, muster_rc_text(rc), 0);
        return;
    }
    check_queue(stream);
    if (is_synced(watch))
        move_to(watch, &hub->synced);
    else
        move_to(watch, &hub->behind);
}

static void on_catch_up(struct muster_task *task)
{
    struct muster_watch_hub *hub = task->data;
    struct muster_list round;
    struct muster_list *node = NULL;
    int steps = 0;
    bool is_work_left = false;

    /* The list is walked by taking its entries out, because a step may move its watch to the other
     * list or free it. */
    muster_list_take_all(&round, &hub->behind);
    while ((node = muster_list_pop(&round)) != NULL) {
        struct watch *watch = MUSTER_CONTAINER_OF(node, struct watch, hub_node);
        struct muster_watch_stream *stream = watch->stream;

        muster_list_append(&hub->behind, node);
        if (stream->is_blocked)
            continue;
        if (steps++ >= CATCH_UP_WATCHES_PER_TURN) {
            is_work_left = true;
            continue;
        }
        advance_stream(watch);
        answer_progress(stream);
    }
    MUSTER_LIST_EACH (&hub->behind, watch, struct watch, hub_node)
        is_work_left |= !watch->stream->is_blocked;
    if (is_work_left)
        muster_task_post(&hub->catch_up, hub->env->loop);
}

void muster_watch_hub_committed(struct muster_watch_hub *hub)
{
    int64_t seen = hub->revision;
    struct slice slice;
    struct muster_list round;
    struct muster_list *node = NULL;
    enum muster_rc rc = MUSTER_OK;

    hub->revision = hub->mvcc->meta.revision;
    if (hub->revision == seen || muster_list_is_empty(&hub->synced))
        return;
    rc = read_slice(hub, seen + 1, 16 * SLICE_BYTES, &slice);
    muster_list_take_all(&round, &hub->synced);
    while ((node = muster_list_pop(&round)) != NULL) {
        struct watch *watch = MUSTER_CONTAINER_OF(node, struct watch, hub_node);

        muster_list_append(&hub->synced, node);
        /* A client that does not read is left behind before more is queued for it, and the log
         * holds the events in the meantime. */
        check_queue(watch->stream);
        if (rc != MUSTER_OK || watch->stream->is_blocked ||
            deliver_changes(watch, &slice) != MUSTER_OK || !is_synced(watch))
            fall_behind(watch);
    }
}

/* Hub and streams. */

void muster_watch_hub_init(struct muster_watch_hub *hub, struct muster_env *env,
                           struct muster_mvcc *mvcc, uint64_t progress_interval_ns)
{
    memset(hub, 0, sizeof(*hub));
    hub->env = env;
    hub->mvcc = mvcc;
    hub->revision = mvcc->meta.revision;
    hub->progress_interval_ns = progress_interval_ns;
    muster_list_init(&hub->streams);
    muster_list_init(&hub->synced);
    muster_list_init(&hub->behind);
    muster_task_init(&hub->catch_up, on_catch_up, hub);
    muster_timer_init(&hub->progress, on_progress_timer, hub);
    muster_registry_arena_init(&hub->arena, env->mem, ARENA_BYTES_MAX);
    muster_timer_start(&hub->progress, env->loop,
                       muster_loop_after_ns(env->loop, progress_interval_ns));
}

void muster_watch_hub_fini(struct muster_watch_hub *hub)
{
    muster_task_cancel(&hub->catch_up);
    muster_timer_stop(&hub->progress);
    muster_registry_arena_fini(&hub->arena);
}

void muster_watch_stream_open(struct muster_watch_stream *stream, struct muster_watch_hub *hub,
                              const struct muster_watch_stream_ops *ops, void *data)
{
    memset(stream, 0, sizeof(*stream));
    stream->data = data;
    stream->ops = ops;
    stream->hub = hub;
    muster_list_init(&stream->watches);
    muster_list_append(&hub->streams, &stream->node);
}

void muster_watch_stream_close(struct muster_watch_stream *stream)
{
    while (!muster_list_is_empty(&stream->watches))
        free_watch(MUSTER_CONTAINER_OF(stream->watches.next, struct watch, stream_node));
    muster_list_remove(&stream->node);
}

static struct watch *find_watch(const struct muster_watch_stream *stream, int64_t id)
{
    MUSTER_LIST_EACH (&stream->watches, watch, struct watch, stream_node) {
        if (watch->id == id)
            return watch;
    }
    return NULL;
}

/* The texts are those of etcd's watch server (server/storage/mvcc/watcher.go), where it has one. */
static const char *why_refused(const struct muster_watch_stream *stream,
                               const struct muster_watch_wish *wish)
{
    if (wish->start_revision < 0)
        return "etcdserver: mvcc: required revision has been compacted";
    if (muster_registry_span_is_empty(&wish->span))
        return "mvcc: watcher range is empty";
    if (wish->watch_id != 0 && find_watch(stream, wish->watch_id) != NULL)
        return "mvcc: duplicate watch ID provided on the WatchStream";
    if (stream->watch_count >= MUSTER_WATCHES_PER_STREAM_MAX)
        return "etcdserver: too many watches on one stream";
    return NULL;
}

/* Ids that the client chose and ids that the stream picks share one space, so taken ones are passed
 * over. */
static int64_t pick_id(struct muster_watch_stream *stream)
{
    while (find_watch(stream, stream->next_id) != NULL)
        stream->next_id++;
    return stream->next_id++;
}

static struct watch *new_watch(struct muster_watch_stream *stream,
                               const struct muster_watch_wish *wish)
{
    size_t key_bytes = wish->span.key.size;
    size_t end_bytes = wish->span.end.size;
    struct watch *watch =
        muster_mem_alloc(stream->hub->env->mem, sizeof(*watch) + key_bytes + end_bytes);
    uint8_t *bytes = NULL;

    if (watch == NULL)
        return NULL;
    bytes = (uint8_t *)(watch + 1);
    memset(watch, 0, sizeof(*watch));
    watch->stream = stream;
    watch->wish = *wish;
    if (key_bytes > 0)
        memcpy(bytes, wish->span.key.data, key_bytes);
    if (end_bytes > 0)
        memcpy(bytes + key_bytes, wish->span.end.data, end_bytes);
    watch->wish.span.key.data = bytes;
    watch->wish.span.end.data = bytes + key_bytes;
    watch->id = wish->watch_id != 0 ? wish->watch_id : pick_id(stream);
    return watch;
}

void muster_watch_stream_create(struct muster_watch_stream *stream,
                                const struct muster_watch_wish *wish)
{
    struct muster_watch_hub *hub = stream->hub;
    const char *reason = why_refused(stream, wish);
    struct watch *watch = reason == NULL ? new_watch(stream, wish) : NULL;
    struct muster_watch_answer refused = {.watch_id = -1,
                                          .revision = hub->revision,
                                          .is_created = true,
                                          .is_canceled = true,
                                          .cancel_reason = reason};

    if (watch == NULL) {
        if (reason == NULL)
            refused.cancel_reason = "etcdserver: no memory for a watch";
        stream->ops->send(stream, &refused);
        return;
    }
    /* A watch without a start sees what is committed from now on. The open transaction of this turn
     * counts as later. */
    watch->next_revision = wish->start_revision > 0 ? wish->start_revision : hub->revision + 1;
    muster_list_append(&stream->watches, &watch->stream_node);
    stream->watch_count++;
    muster_list_init(&watch->hub_node);
    /* The client must see the watch created before its first event. */
    send_simple(watch, (struct muster_watch_answer){.is_created = true});
    if (is_synced(watch))
        move_to(watch, &hub->synced);
    else
        fall_behind(watch);
}

void muster_watch_stream_cancel(struct muster_watch_stream *stream, int64_t watch_id)
{
    struct watch *watch = find_watch(stream, watch_id);

    if (watch != NULL)
        cancel_watch(watch, NULL, 0);
}

void muster_watch_stream_progress(struct muster_watch_stream *stream)
{
    stream->wants_progress = true;
    answer_progress(stream);
}

void muster_watch_stream_resume(struct muster_watch_stream *stream)
{
    if (!stream->is_blocked)
        return;
    stream->is_blocked = false;
    muster_task_post(&stream->hub->catch_up, stream->hub->env->loop);
}
