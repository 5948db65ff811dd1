/* Watches of the registry client: one stream each, resumed after every loss from what was shown
 * last. A change is shown once and in order. Whole revisions are shown together, also when the
 * registry sends them in fragments. A watch ends only where the registry refuses it, or where it
 * could not go on without a gap: after a compaction, or when the registry is not the same one. */
#include "cluster/client/registry_client_internal.h"

#include <string.h>

/* A fragment has up to 1.5 MiB of a registry, so this bounds what one revision may hold here to
 * about 100 MiB. */
#define FRAGMENTS_MAX 64
/* Changes that cannot be taken are fetched again, since memory may come back. After so many attempts
 * in a row they never can be. */
#define ATTEMPTS_MAX 8

/* Outlives the caller's watch until its call has ended. */
struct watch_stream {
    struct muster_registry *registry;
    struct muster_registry_watch *watch; /* NULL: stopped */
    struct muster_call call;
    struct muster_timer timer; /* to the next attempt */
    struct muster_list node;
    size_t endpoint;
    uint64_t generation; /* its token's */
    uint64_t backoff_ns;
    uint64_t cluster_id;    /* the registry that revisions belong to; 0: not known yet */
    uint64_t seen_revision; /* the newest that it has told */
    /* The call is under way, and its on_done always follows. */
    bool is_open;
    bool is_renewed; /* refused, and asking again with a new token */
    /* OK, or why this stream's changes could not be taken. */
    enum muster_rc untaken_rc;
    unsigned untaken_count; /* streams in a row that ended so */
    enum muster_registry_reach reach;
    struct muster_registry_notice
        fragments[FRAGMENTS_MAX]; /* parts of a revision that is not whole yet */
    size_t fragment_count;
    size_t key_bytes;
    uint8_t key[];
};

static void drop_fragments(struct watch_stream *stream)
{
    struct muster_mem *mem = stream->registry->env->mem;

    for (size_t i = 0; i < stream->fragment_count; i++)
        muster_registry_notice_free(mem, &stream->fragments[i]);
    stream->fragment_count = 0;
}

static void free_stream(struct watch_stream *stream)
{
    struct muster_registry *registry = stream->registry;

    MUSTER_ASSERT(stream->watch == NULL);
    drop_fragments(stream);
    muster_timer_stop(&stream->timer);
    muster_list_remove(&stream->node);
    muster_mem_free(registry->env->mem, stream);
    muster_registry_check_closed(registry);
}

/* The caller's watch is not touched any more; the stream goes when its call has ended. */
static void watch_detach(struct watch_stream *stream)
{
    if (stream->watch != NULL)
        stream->watch->impl = NULL;
    stream->watch = NULL;
    muster_timer_stop(&stream->timer);
    if (stream->is_open)
        muster_call_cancel(&stream->call);
}

static void end_watch(struct watch_stream *stream, enum muster_rc rc, const char *text)
{
    struct muster_registry_watch *watch = stream->watch;
    bool is_open = stream->is_open;

    MUSTER_ASSERT(stream->watch != NULL && stream->watch->impl == stream);
    (void)muster_error_set(&watch->error, rc, "%.200s", text);
    watch_detach(stream);
    if (!is_open)
        free_stream(stream);
    watch->on_end(watch, rc);
}

/* Messages. */

static void deliver_changes(struct watch_stream *stream,
                            const struct muster_registry_change *changes, size_t count)
{
    struct muster_registry_watch *watch = stream->watch;
    size_t first = 0;

    while (first < count && changes[first].kv.mod_revision < watch->next_revision)
        first++; /* shown before the stream was lost */
    if (first == count)
        return;
    stream->untaken_count = 0;
    /* The place moves before the callback, which may stop the watch and free it. */
    watch->next_revision = changes[count - 1].kv.mod_revision + 1;
    watch->on_changes(watch, changes + first, count - first);
}

/* Revisions below this one are whole: no part that follows adds to them. */
static uint64_t whole_below(const struct muster_registry_notice *part)
{
    if (!part->is_fragment)
        return UINT64_MAX;
    /* A fragment may break off inside its last revision, so only those before it are whole. */
    return part->change_count > 0 ? part->changes[part->change_count - 1].kv.mod_revision : 0;
}

/* Count the held changes below this revision, in their order. Copies them to all unless it is
 * NULL. */
static size_t gather_below(const struct watch_stream *stream, uint64_t revision,
                           struct muster_registry_change *all)
{
    size_t count = 0;

    for (size_t i = 0; i < stream->fragment_count; i++) {
        const struct muster_registry_notice *part = &stream->fragments[i];

        for (size_t j = 0; j < part->change_count; j++) {
            if (part->changes[j].kv.mod_revision >= revision)
                return count;
            if (all != NULL)
                all[count] = part->changes[j];
            count++;
        }
    }
    return count;
}

/* Parts that have nothing from this revision on. */
static void drop_below(struct watch_stream *stream, uint64_t revision)
{
    size_t kept = 0;

    for (size_t i = 0; i < stream->fragment_count; i++) {
        struct muster_registry_notice *part = &stream->fragments[i];

        if (part->change_count > 0 &&
            part->changes[part->change_count - 1].kv.mod_revision >= revision)
            stream->fragments[kept++] = *part;
        else
            muster_registry_notice_free(stream->registry->env->mem, part);
    }
    stream->fragment_count = kept;
}

/* Shows what the held parts have below this revision, so that no revision is shown in pieces. */
static void show_below(struct watch_stream *stream, uint64_t revision)
{
    struct muster_mem *mem = stream->registry->env->mem;
    size_t count = gather_below(stream, revision, NULL);
    struct muster_registry_change *all = NULL;

    if (count > 0) {
        all = muster_mem_alloc_zero(mem, count, sizeof(*all));
        if (all == NULL) { /* begin again from the last whole revision */
            stream->untaken_rc = MUSTER_RESOURCE_EXHAUSTED;
            muster_call_cancel(&stream->call);
            return;
        }
        (void)gather_below(stream, revision, all);
        deliver_changes(stream, all, count);
        muster_mem_free(mem, all);
    }
    drop_below(stream, revision);
}

/* Takes part. */
static void take_part(struct watch_stream *stream, const struct muster_registry_notice *part)
{
    MUSTER_ASSERT(stream->fragment_count < FRAGMENTS_MAX);
    stream->fragments[stream->fragment_count++] = *part;
    show_below(stream, whole_below(part));
    if (stream->watch != NULL && stream->fragment_count == FRAGMENTS_MAX)
        end_watch(stream, MUSTER_RESOURCE_EXHAUSTED,
                  "one revision has more changes than a watch holds: read the keys again");
}

static void on_created(struct watch_stream *stream, const struct muster_registry_notice *notice)
{
    /* Revisions of different clusters, or of one that was restored from a backup, have nothing to
     * do with each other. A watch that went on would miss changes silently. */
    uint64_t expected = stream->cluster_id;

    stream->is_renewed = false;
    stream->cluster_id = notice->cluster_id;
    stream->registry->cluster_id = notice->cluster_id;
    if (expected != 0 && notice->cluster_id != expected)
        end_watch(stream, MUSTER_DATA_LOSS, "the registry is not the one it was");
    else if (notice->revision < stream->seen_revision)
        end_watch(stream, MUSTER_DATA_LOSS, "the registry has lost revisions");
    else if (stream->watch->next_revision == 0)
        stream->watch->next_revision = notice->revision + 1;
}

/* A watch is refused with the same words for a token that the member has forgotten and for want of
 * permission: one new token shows which. */
static bool may_be_stale(const struct watch_stream *stream, const char *reason)
{
    return stream->registry->auth.user != NULL && !stream->is_renewed &&
           (strstr(reason, "permission denied") != NULL || strstr(reason, "auth") != NULL);
}

static void on_canceled(struct watch_stream *stream, const struct muster_registry_notice *notice)
{
    const char *reason = notice->cancel_reason != NULL ? notice->cancel_reason : "";

    if (may_be_stale(stream, reason)) {
        stream->is_renewed = true;
        muster_registry_drop_token(stream->registry, stream->generation);
        muster_call_cancel(&stream->call); /* and again, with a new one */
    } else if (notice->compact_revision != 0 || strstr(reason, "compacted") != NULL)
        end_watch(stream, MUSTER_OUT_OF_RANGE, "the revision to watch from has been compacted");
    else if (strstr(reason, "permission denied") != NULL)
        end_watch(stream, MUSTER_PERMISSION_DENIED, reason);
    else
        end_watch(stream, MUSTER_FAILED_PRECONDITION, reason);
}

/* Takes notice. */
static void handle_response(struct watch_stream *stream, struct muster_registry_notice *notice)
{
    if (notice->is_canceled) {
        on_canceled(stream, notice);
    } else if (notice->is_created) {
        on_created(stream, notice);
    } else if (notice->is_fragment || stream->fragment_count > 0) {
        take_part(stream, notice);
        return;
    } else if (notice->change_count > 0) {
        deliver_changes(stream, notice->changes, notice->change_count);
    } else if (notice->revision >= stream->watch->next_revision) {
        stream->watch->next_revision = notice->revision + 1; /* a notice of progress */
    }
    muster_registry_notice_free(stream->registry->env->mem, notice);
}

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    struct watch_stream *stream = call->data;
    struct muster_registry_notice notice;
    uint64_t revision = 0;
    enum muster_rc rc = MUSTER_OK;

    if (stream->watch == NULL)
        return;
    rc = muster_registry_parse_watch(stream->registry->env->mem, message, &notice);
    if (rc != MUSTER_OK) {
        stream->untaken_rc = rc == MUSTER_RESOURCE_EXHAUSTED ? rc : MUSTER_INTERNAL;
        muster_call_cancel(call);
        return;
    }
    stream->backoff_ns = 0;
    revision = notice.revision;
    handle_response(stream, &notice);
    if (revision > stream->seen_revision)
        stream->seen_revision = revision;
}

/* The stream. */

static void open_stream(struct watch_stream *stream);

static bool is_final(enum muster_rc rc)
{
    /* Errors that another attempt would only repeat. */
    return rc == MUSTER_PERMISSION_DENIED || rc == MUSTER_UNAUTHENTICATED ||
           rc == MUSTER_UNIMPLEMENTED || rc == MUSTER_INVALID_ARGUMENT;
}

static void retry_later(struct watch_stream *stream)
{
    struct muster_loop *loop = stream->registry->env->loop;

    muster_timer_start(
        &stream->timer, loop,
        muster_loop_after_ns(loop, muster_registry_backoff(stream->registry, &stream->backoff_ns)));
}

/* True: the same changes could not be taken several times, and the watch has ended. */
static bool has_given_up(struct watch_stream *stream)
{
    if (stream->untaken_rc == MUSTER_OK || ++stream->untaken_count < ATTEMPTS_MAX)
        return false;
    end_watch(
        stream, stream->untaken_rc,
        stream->untaken_rc == MUSTER_RESOURCE_EXHAUSTED
            ? "the next changes are too large for this client: read the keys again, and "
              "watch from there"
            : "the answers to the watch cannot be read: is this a registry of etcd's v3 API?");
    return true;
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct watch_stream *stream = call->data;
    struct muster_error error = call->status;

    error.rc = rc;
    stream->is_open = false;
    drop_fragments(stream);
    if (stream->watch == NULL) {
        free_stream(stream);
        return;
    }
    if (rc == MUSTER_RESOURCE_EXHAUSTED && !call->is_answered)
        stream->untaken_rc = rc; /* a message above the limit of the channel, or no memory */
    if (has_given_up(stream))
        return;
    if (muster_registry_is_stale(stream->registry, &call->status)) {
        muster_registry_drop_token(stream->registry, stream->generation);
        retry_later(stream);
        return;
    }
    /* An endpoint that refused the token is well, and is asked again with a new one. */
    if (!stream->is_renewed)
        muster_registry_leave_endpoint(stream->registry, stream->endpoint);
    rc = muster_registry_judge(stream->registry, stream->endpoint, &error);
    if (is_final(rc) || muster_registry_refusal(stream->registry) != NULL)
        end_watch(stream, rc, error.text);
    else
        retry_later(stream);
}

static void on_retry(struct muster_timer *timer)
{
    open_stream(timer->data);
}

static enum muster_rc send_create(struct watch_stream *stream)
{
    struct muster_mem *mem = stream->registry->env->mem;
    struct muster_bytes key = {.data = stream->key, .size = stream->key_bytes};
    struct muster_registry_packed packed;
    enum muster_rc rc =
        muster_registry_pack_watch(mem, key, stream->reach, stream->watch->next_revision, &packed);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_call_send(&stream->call, packed.bytes, packed.size);
    muster_mem_free(mem, packed.bytes);
    return rc;
}

static void open_stream(struct watch_stream *stream)
{
    struct muster_registry *registry = stream->registry;
    struct muster_metadata_entry entries[2];
    struct muster_call_options options = {.method = "/etcdserverpb.Watch/Watch",
                                          .deadline_ns = UINT64_MAX,
                                          .metadata = muster_registry_metadata(registry, entries),
                                          .on_message = on_message};

    MUSTER_ASSERT(!stream->is_open);
    if (!muster_registry_has_token(registry)) {
        muster_registry_authenticate(registry);
        retry_later(stream);
        return;
    }
    stream->untaken_rc = MUSTER_OK;
    stream->endpoint = registry->current;
    stream->generation = registry->auth.generation;
    stream->call.data = stream;
    if (muster_call_start(&stream->call, registry->channels[stream->endpoint], &options, on_done) !=
        MUSTER_OK) {
        retry_later(stream);
        return;
    }
    stream->is_open = true;
    if (send_create(stream) != MUSTER_OK)
        muster_call_cancel(&stream->call);
}

enum muster_rc muster_registry_watch_start(
    struct muster_registry_watch *watch, struct muster_registry *registry, struct muster_bytes key,
    enum muster_registry_reach reach, uint64_t start_revision,
    muster_registry_changes_fn *on_changes, muster_registry_watch_end_fn *on_end)
{
    void *data = watch->data;
    struct watch_stream *stream = NULL;

    if (registry->is_closing)
        return MUSTER_FAILED_PRECONDITION;
    if (key.size == 0 && reach == MUSTER_REGISTRY_KEY)
        return MUSTER_INVALID_ARGUMENT;
    stream = muster_mem_alloc_zero(registry->env->mem, 1, sizeof(*stream) + key.size);
    if (stream == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    stream->registry = registry;
    stream->watch = watch;
    stream->reach = reach;
    /* A start revision was read from the registry that answered last, so the watch must reach the
     * same one. */
    stream->cluster_id = start_revision != 0 ? registry->cluster_id : 0;
    stream->key_bytes = key.size;
    if (key.size > 0)
        memcpy(stream->key, key.data, key.size);
    muster_timer_init(&stream->timer, on_retry, stream);
    muster_list_append(&registry->watches, &stream->node);
    memset(watch, 0, sizeof(*watch));
    watch->data = data;
    watch->next_revision = start_revision;
    watch->on_changes = on_changes;
    watch->on_end = on_end;
    watch->registry = registry;
    watch->impl = stream;
    open_stream(stream);
    return MUSTER_OK;
}

void muster_registry_watch_stop(struct muster_registry_watch *watch)
{
    struct watch_stream *stream = watch->impl;

    if (stream == NULL)
        return;
    watch_detach(stream);
    if (!stream->is_open)
        free_stream(stream);
}

void muster_registry_stop_watches(struct muster_registry *registry)
{
    MUSTER_LIST_EACH_SAFE (&registry->watches, stream, struct watch_stream, node) {
        watch_detach(stream);
        if (!stream->is_open)
            free_stream(stream);
    }
}
