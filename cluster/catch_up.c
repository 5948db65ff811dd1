/* The fetching side of state catch-up. Ask every member for its manifest; when all agree, fetch
 * what differs from all of them in parallel: whoever is faster gets more requests. A member that
 * fails hands its open requests back. */
#include "cluster/catch_up.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OPEN_REQUESTS_MAX     8 /* per member: 2 MiB under way */
#define COMPARE_CHUNKS_A_TURN 64
#define NO_CHUNK              UINT32_MAX

enum source_state { SOURCE_ASKED, SOURCE_AGREES, SOURCE_GONE };

/* A member to fetch from. */
struct source {
    struct fetch *fetch;
    struct muster_peer_link *link;
    enum source_state state;
    char name[MUSTER_JOB_NAME_BYTES + 12]; /* "worker:3" */
    struct muster_state_manifest manifest;
    uint32_t open[OPEN_REQUESTS_MAX]; /* chunks asked for; NO_CHUNK = free */
    uint32_t open_count;
    void *payload; /* manifest or refusal while it arrives */
    struct muster_error error;
};

struct fetch {
    struct muster_env *env;
    struct muster_catch_up *owner;
    const struct muster_state_chunks *chunks;
    uint64_t step;
    struct source *sources;
    size_t source_count;
    const struct muster_state_manifest
        *truth;        /* of the first source that agrees, once all have answered */
    uint32_t compared; /* chunks below are compared with ours */
    uint32_t *missing; /* stack of chunks to fetch */
    uint32_t missing_count;
    uint32_t open_count; /* requests under way at all sources */
    bool is_finished;
    struct muster_error error;
    struct muster_task task; /* compares, and finishes */
    struct muster_timer timer;
};

/* --- the end --- */

static void drop_source(struct source *source)
{
    if (source->link != NULL)
        muster_peer_link_close(source->link);
    source->link = NULL;
    source->state = SOURCE_GONE;
}

static void free_fetch(struct fetch *fetch)
{
    struct muster_mem *mem = fetch->env->mem;

    muster_timer_stop(&fetch->timer);
    muster_task_cancel(&fetch->task);
    for (size_t i = 0; i < fetch->source_count; i++) {
        drop_source(&fetch->sources[i]);
        muster_state_manifest_fini(&fetch->sources[i].manifest);
        muster_mem_free(mem, fetch->sources[i].payload);
    }
    muster_mem_free(mem, fetch->sources);
    muster_mem_free(mem, fetch->missing);
    muster_mem_free(mem, fetch);
}

/* The end is announced in a turn of its own, so that no callback stands on freed memory. */
static void MUSTER_PRINTF(3, 4) finish(struct fetch *fetch, enum muster_rc rc, const char *fmt, ...)
{
    va_list args;

    if (fetch->is_finished)
        return;
    fetch->is_finished = true;
    fetch->error.rc = rc;
    va_start(args, fmt);
    vsnprintf(fetch->error.text, sizeof(fetch->error.text), fmt, args);
    va_end(args);
    muster_task_post(&fetch->task, fetch->env->loop);
}

static void announce_end(struct fetch *fetch)
{
    struct muster_catch_up *owner = fetch->owner;
    enum muster_rc rc = fetch->error.rc;

    owner->error = fetch->error;
    owner->impl = NULL;
    owner->sources = 0;
    for (size_t i = 0; i < fetch->source_count; i++)
        owner->sources += fetch->sources[i].manifest.mem != NULL;
    free_fetch(fetch);
    owner->done(owner, rc);
}

/* --- fetching --- */

static void ask_for_chunk(struct source *source, uint32_t chunk)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_STATE,
        .type = MUSTER_STATE_CHUNK_REQUEST,
        .op.step = source->fetch->step,
        .chunk = chunk,
    };

    for (size_t i = 0; i < OPEN_REQUESTS_MAX; i++) {
        if (source->open[i] != NO_CHUNK)
            continue;
        source->open[i] = chunk;
        break;
    }
    source->open_count++;
    source->fetch->open_count++;
    if (muster_peer_link_send_copy(source->link, &header, NULL) != MUSTER_OK)
        MUSTER_LOG(source->fetch->env, DEBUG, "state_request_not_sent", "source", source->name);
}

static void close_request(struct source *source, uint32_t chunk)
{
    for (size_t i = 0; i < OPEN_REQUESTS_MAX; i++) {
        if (source->open[i] != chunk)
            continue;
        source->open[i] = NO_CHUNK;
        source->open_count--;
        source->fetch->open_count--;
        return;
    }
}

static bool has_open_request(const struct source *source, uint32_t chunk)
{
    for (size_t i = 0; i < OPEN_REQUESTS_MAX; i++)
        if (source->open[i] == chunk)
            return true;
    return false;
}

/* Hand out missing chunks, one per member in turn; finish when nothing is missing and nothing under
 * way. */
static void hand_out(struct fetch *fetch)
{
    bool has_room = true;

    if (fetch->is_finished || fetch->truth == NULL)
        return;
    while (fetch->missing_count > 0 && has_room) {
        has_room = false;
        for (size_t i = 0; i < fetch->source_count && fetch->missing_count > 0; i++) {
            struct source *source = &fetch->sources[i];

            if (source->state != SOURCE_AGREES || source->open_count == OPEN_REQUESTS_MAX)
                continue;
            ask_for_chunk(source, fetch->missing[--fetch->missing_count]);
            has_room = true;
        }
    }
    if (fetch->missing_count == 0 && fetch->open_count == 0 &&
        fetch->compared == fetch->chunks->chunk_count)
        finish(fetch, MUSTER_OK, "%s", "");
}

/* Compare a slice of our memory with the members' hashes; what differs is missing. */
static void compare_slice(struct fetch *fetch)
{
    uint32_t count = fetch->chunks->chunk_count;

    for (uint32_t i = 0; i < COMPARE_CHUNKS_A_TURN && fetch->compared < count; i++) {
        uint32_t chunk = fetch->compared++;
        uint8_t hash[MUSTER_HASH128_BYTES];

        muster_state_chunk_hash(fetch->chunks, chunk, hash);
        if (memcmp(hash, fetch->truth->hashes[chunk], sizeof(hash)) != 0)
            fetch->missing[fetch->missing_count++] = chunk;
    }
    if (fetch->compared < count)
        muster_task_post(&fetch->task, fetch->env->loop);
    hand_out(fetch);
}

static void on_task(struct muster_task *task)
{
    struct fetch *fetch = task->data;

    if (fetch->is_finished)
        announce_end(fetch);
    else
        compare_slice(fetch);
}

static void on_deadline(struct muster_timer *timer)
{
    struct fetch *fetch = timer->data;

    for (size_t i = 0; i < fetch->source_count; i++)
        if (fetch->sources[i].state == SOURCE_ASKED || fetch->sources[i].open_count > 0)
            finish(fetch, MUSTER_DEADLINE_EXCEEDED, "%s did not send state %" PRIu64 " in time",
                   fetch->sources[i].name, fetch->step);
    finish(fetch, MUSTER_DEADLINE_EXCEEDED, "state %" PRIu64 " did not arrive in time",
           fetch->step);
}

/* --- agreement --- */

/* Once every member has answered or gone: those that answered must tell the same. */
static void look_at_manifests(struct fetch *fetch)
{
    const struct source *first = NULL;
    const struct muster_error *last_error = NULL;

    if (fetch->is_finished || fetch->truth != NULL)
        return;
    for (size_t i = 0; i < fetch->source_count; i++) {
        const struct source *source = &fetch->sources[i];

        if (source->state == SOURCE_ASKED)
            return;
        if (source->error.rc != MUSTER_OK)
            last_error = &source->error;
        if (source->state != SOURCE_AGREES)
            continue;
        if (first != NULL &&
            memcmp(first->manifest.root, source->manifest.root, MUSTER_HASH128_BYTES) != 0) {
            finish(fetch, MUSTER_DATA_LOSS, "%s and %s hold different bytes of state %" PRIu64,
                   first->name, source->name, fetch->step);
            return;
        }
        first = first != NULL ? first : source;
    }
    if (first == NULL) {
        finish(fetch, MUSTER_UNAVAILABLE, "no member is left that has state %" PRIu64 "%s%s",
               fetch->step, last_error != NULL ? ": " : "",
               last_error != NULL ? last_error->text : "");
        return;
    }
    fetch->truth = &first->manifest;
    muster_task_post(&fetch->task, fetch->env->loop);
}

/* A member is of no use any more: its requests go to the others. */
static void lose_source(struct source *source, const struct muster_error *error)
{
    struct fetch *fetch = source->fetch;
    bool is_any_left = false;

    MUSTER_LOG(fetch->env, DEBUG, "state_source_lost", "source", source->name, "why", error->text);
    source->error = *error;
    drop_source(source);
    for (size_t i = 0; i < OPEN_REQUESTS_MAX; i++) {
        uint32_t chunk = source->open[i];

        if (chunk == NO_CHUNK)
            continue;
        close_request(source, chunk);
        fetch->missing[fetch->missing_count++] = chunk;
    }
    for (size_t i = 0; i < fetch->source_count; i++)
        is_any_left = is_any_left || fetch->sources[i].state != SOURCE_GONE;
    if (!is_any_left)
        finish(fetch, MUSTER_UNAVAILABLE, "no member is left that has state %" PRIu64 ": %s",
               fetch->step, error->text);
    look_at_manifests(fetch);
    hand_out(fetch);
}

/* --- frames --- */

static void take_manifest(struct source *source, const void *payload, uint32_t bytes)
{
    struct fetch *fetch = source->fetch;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    if (source->state != SOURCE_ASKED)
        return;
    rc = muster_state_manifest_unpack(fetch->env->mem, payload, bytes, &source->manifest, &error);
    if (rc == MUSTER_OK)
        rc = muster_state_match(fetch->chunks, &source->manifest, &error);
    if (rc == MUSTER_OK && (source->manifest.chunk_count != fetch->chunks->chunk_count ||
                            source->manifest.step != fetch->step))
        rc = muster_error_set(&error, MUSTER_DATA_LOSS, "%s sent a manifest of another state",
                              source->name);
    if (rc != MUSTER_OK) {
        finish(fetch, rc, "%s: %s", source->name, error.text);
        return;
    }
    source->state = SOURCE_AGREES;
    look_at_manifests(fetch);
}

static void take_chunk(struct source *source, uint32_t chunk)
{
    struct fetch *fetch = source->fetch;
    uint8_t hash[MUSTER_HASH128_BYTES];
    struct muster_error error;
    uint32_t bytes;

    muster_state_chunk_at(fetch->chunks, chunk, &bytes);
    muster_state_chunk_hash(fetch->chunks, chunk, hash);
    if (memcmp(hash, fetch->truth->hashes[chunk], sizeof(hash)) != 0) {
        muster_error_set(&error, MUSTER_DATA_LOSS,
                         "%s sent other bytes of chunk %u than it announced", source->name, chunk);
        lose_source(source, &error);
        return;
    }
    fetch->owner->bytes_fetched += bytes;
    close_request(source, chunk);
    hand_out(fetch);
}

static void take_refusal(struct source *source, const void *payload, uint32_t bytes)
{
    struct muster_error error;

    muster_state_refusal_unpack(source->fetch->env->mem, payload, bytes, &error);
    if (error.rc == MUSTER_INVALID_ARGUMENT)
        finish(source->fetch, error.rc, "%s refuses: %s", source->name, error.text);
    else
        lose_source(source, &error);
}

static void on_ready(struct muster_peer_link *link)
{
    (void)link; /* the request is queued already */
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct source *source = muster_peer_link_data(link);
    struct fetch *fetch = source->fetch;
    uint32_t bytes;
    void *at;

    if (header->channel != MUSTER_FRAME_STATE || header->payload_bytes == 0 || fetch->is_finished)
        return NULL;
    if (header->type == MUSTER_STATE_CHUNK) {
        if (header->op.step != fetch->step || !has_open_request(source, header->chunk))
            return NULL;
        at = muster_state_chunk_at(fetch->chunks, header->chunk, &bytes);
        return bytes == header->payload_bytes ? at : NULL;
    }
    if (header->type != MUSTER_STATE_MANIFEST && header->type != MUSTER_STATE_REFUSED)
        return NULL;
    muster_mem_free(fetch->env->mem, source->payload);
    source->payload = muster_mem_alloc(fetch->env->mem, header->payload_bytes);
    return source->payload;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct source *source = muster_peer_link_data(link);

    if (source->fetch->is_finished || buffer == NULL)
        return;
    switch (header->type) {
    case MUSTER_STATE_MANIFEST:
        take_manifest(source, buffer, header->payload_bytes);
        break;
    case MUSTER_STATE_CHUNK:
        take_chunk(source, header->chunk);
        break;
    case MUSTER_STATE_REFUSED:
        take_refusal(source, buffer, header->payload_bytes);
        break;
    default:
        break;
    }
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct source *source = muster_peer_link_data(link);

    if (source->fetch->is_finished)
        drop_source(source);
    else
        lose_source(source, error);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_payload = on_payload,
    .on_down = on_down,
};

/* --- start --- */

static enum muster_rc open_source(struct fetch *fetch,
                                  const struct muster_catch_up_options *options,
                                  const struct muster_member *member)
{
    struct source *source = &fetch->sources[fetch->source_count];
    struct muster_peer_hello hello = options->hello;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_STATE,
        .type = MUSTER_STATE_MANIFEST_REQUEST,
        .op.step = fetch->step,
    };
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc;

    hello.purpose = MUSTER_LINK_STATE;
    source->fetch = fetch;
    source->state = SOURCE_ASKED;
    snprintf(source->name, sizeof(source->name), "%s:%u", member->task_type, member->task_index);
    for (size_t i = 0; i < OPEN_REQUESTS_MAX; i++)
        source->open[i] = NO_CHUNK;
    rc = muster_peer_link_open(fetch->env, &member->address, &hello, options->deadline_ns, &events,
                               source, &source->link);
    if (rc != MUSTER_OK)
        return rc;
    fetch->source_count++;
    rc = muster_state_manifest_pack(fetch->chunks, fetch->step, NULL, &bytes, &size);
    if (rc != MUSTER_OK)
        return rc;
    header.payload_bytes = (uint32_t)size;
    rc = muster_peer_link_send_copy(source->link, &header, bytes);
    muster_mem_free(fetch->env->mem, bytes);
    return rc;
}

static enum muster_rc open_sources(struct fetch *fetch,
                                   const struct muster_catch_up_options *options)
{
    const struct muster_view *view = options->view;
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < view->member_count && rc == MUSTER_OK; i++) {
        const struct muster_member *member = &view->members[i];

        if (member->from_step <= fetch->step &&
            !muster_incarnation_is_equal(&member->incarnation, &options->hello.incarnation))
            rc = open_source(fetch, options, member);
    }
    return rc;
}

enum muster_rc muster_catch_up_start(struct muster_catch_up *catch_up,
                                     const struct muster_catch_up_options *options,
                                     muster_catch_up_fn *done)
{
    struct muster_mem *mem = options->env->mem;
    struct fetch *fetch = muster_mem_alloc_zero(mem, 1, sizeof(*fetch));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (fetch == NULL)
        return rc;
    fetch->env = options->env;
    fetch->owner = catch_up;
    fetch->chunks = options->chunks;
    fetch->step = options->step;
    muster_task_init(&fetch->task, on_task, fetch);
    muster_timer_init(&fetch->timer, on_deadline, fetch);
    fetch->sources =
        muster_mem_alloc_zero(mem, options->view->member_count, sizeof(*fetch->sources));
    fetch->missing =
        muster_mem_alloc_zero(mem, (size_t)fetch->chunks->chunk_count + 1, sizeof(uint32_t));
    if (fetch->sources == NULL || fetch->missing == NULL)
        goto fail;
    rc = open_sources(fetch, options);
    if (rc != MUSTER_OK)
        goto fail;
    catch_up->done = done;
    catch_up->impl = fetch;
    catch_up->bytes_fetched = 0;
    muster_timer_start(&fetch->timer, fetch->env->loop, options->deadline_ns);
    look_at_manifests(fetch); /* nobody to ask ends it in the next turn */
    return MUSTER_OK;
fail:
    free_fetch(fetch);
    return rc;
}

void muster_catch_up_cancel(struct muster_catch_up *catch_up)
{
    if (catch_up->impl != NULL)
        finish(catch_up->impl, MUSTER_CANCELLED, "cancelled");
}
