/* One member that a joiner fetches from: its link, opened again whenever it breaks, and what it answers.
 * Only a view, a final refusal or wrong bytes end a source; a broken link does not, because the member is in
 * the view and will be there again. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster/node/catch_up_internal.h"
#include "runtime/value/backoff.h"
#include "runtime/value/far_memory.h"

#define CONNECT_TIMEOUT_NS (2 * MUSTER_NS_PER_S)
/* The first wrong chunk usually means that the member went on: asked again it refuses. One that goes on
 * sending wrong bytes would be asked for ever. */
#define WRONG_MAX 3

/* A link that broke once is back soon; a member that has not begun yet is asked once a second. */
static const struct muster_backoff reopen_backoff = {.first_ns = 20 * MUSTER_NS_PER_MS,
                                                     .max_ns = 1 * MUSTER_NS_PER_S,
                                                     .growth_permille = 2000,
                                                     .jitter_permille = 250};

#define TO(state) (1u << FETCH_SOURCE_##state)

/* moves[from]: the states that may follow. */
static const unsigned moves[FETCH_SOURCE_STATES] = {
    [FETCH_SOURCE_CLOSED] = TO(CLOSED) | TO(ASKED) | TO(GONE),
    [FETCH_SOURCE_ASKED] = TO(CLOSED) | TO(AGREES) | TO(REFUSED) | TO(GONE),
    [FETCH_SOURCE_AGREES] = TO(CLOSED) | TO(REFUSED) | TO(GONE),
    [FETCH_SOURCE_REFUSED] = TO(GONE),
    [FETCH_SOURCE_GONE] = 0,
};

static const char *state_name(enum fetch_source_state state)
{
    static const char *const names[FETCH_SOURCE_STATES] = {
        [FETCH_SOURCE_CLOSED] = "closed", [FETCH_SOURCE_ASKED] = "asked",
        [FETCH_SOURCE_AGREES] = "agrees", [FETCH_SOURCE_REFUSED] = "refused",
        [FETCH_SOURCE_GONE] = "gone",
    };

    return names[state];
}

void muster_fetch_finish(struct fetch *fetch, enum muster_rc rc, const char *fmt, ...)
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

static void source_move(struct fetch_source *source, enum fetch_source_state to, const char *why)
{
    MUSTER_ASSERT((moves[source->state] >> to & 1u) != 0);
    MUSTER_LOG(source->fetch->env, DEBUG, "state_source_moved", "source", source->name, "from",
               state_name(source->state), "to", state_name(to), "reason", why);
    source->state = to;
}

/* --- requests for chunks --- */

static bool close_request(struct fetch_source *source, uint32_t chunk)
{
    for (size_t i = 0; i < MUSTER_FETCH_REQUESTS_MAX; i++) {
        if (source->open[i] != chunk)
            continue;
        source->open[i] = MUSTER_FETCH_NO_CHUNK;
        source->open_count--;
        source->fetch->open_count--;
        return true;
    }
    return false;
}

/* The number comes from the member: that of a free entry is not a chunk. */
static bool has_open_request(const struct fetch_source *source, uint32_t chunk)
{
    for (size_t i = 0; i < MUSTER_FETCH_REQUESTS_MAX && chunk != MUSTER_FETCH_NO_CHUNK; i++)
        if (source->open[i] == chunk)
            return true;
    return false;
}

/* The link is given up by the timer and not at once: the caller goes on using the source. */
static void break_later(struct fetch_source *source)
{
    source->is_broken = true;
    muster_timer_start(&source->fetch->timer, source->fetch->env->loop, 0);
}

void muster_fetch_source_ask_chunk(struct fetch_source *source, uint32_t chunk)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_STATE,
        .type = MUSTER_STATE_CHUNK_REQUEST,
        .op.step = source->fetch->step,
        .chunk = chunk,
    };

    MUSTER_ASSERT(source->state == FETCH_SOURCE_AGREES && source->link != NULL);
    MUSTER_ASSERT(source->open_count < MUSTER_FETCH_REQUESTS_MAX);
    for (size_t i = 0; i < MUSTER_FETCH_REQUESTS_MAX; i++) {
        if (source->open[i] != MUSTER_FETCH_NO_CHUNK)
            continue;
        source->open[i] = chunk;
        break;
    }
    source->open_count++;
    source->fetch->open_count++;
    muster_state_hashes_forget(source->fetch->chunks, chunk);
    if (muster_peer_link_send_copy(source->link, &header, NULL) != MUSTER_OK)
        break_later(source);
}

/* Open chunks go back on the stack of missing ones. A chunk may have arrived in part; it is fetched whole
 * again. */
static void hand_back(struct fetch_source *source)
{
    struct fetch *fetch = source->fetch;

    MUSTER_ASSERT(source->open_count <= MUSTER_FETCH_REQUESTS_MAX);
    for (size_t i = 0; i < MUSTER_FETCH_REQUESTS_MAX; i++) {
        uint32_t chunk = source->open[i];

        if (chunk != MUSTER_FETCH_NO_CHUNK && close_request(source, chunk))
            fetch->missing[fetch->missing_count++] = chunk;
    }
}

/* --- losing it --- */

static void drop_link(struct fetch_source *source)
{
    if (source->link != NULL)
        muster_peer_link_close(source->link);
    source->link = NULL;
    source->is_broken = false;
    hand_back(source);
}

/* The link is given up and the source is asked again later: as long as it is in the view it may come back. */
void muster_fetch_source_try_later(struct fetch_source *source, const struct muster_error *error)
{
    struct fetch *fetch = source->fetch;

    source->error = *error;
    drop_link(source);
    if (fetch->is_finished)
        return;
    source->due_ns = muster_loop_after_ns(
        fetch->env->loop,
        muster_backoff_next(&reopen_backoff, &source->backoff_ns, fetch->env->rng));
    source_move(source, FETCH_SOURCE_CLOSED, error->text);
    fetch->on_changed(fetch);
}

void muster_fetch_source_end(struct fetch_source *source, enum fetch_source_state state,
                             const struct muster_error *error)
{
    source->error = *error;
    drop_link(source);
    source_move(source, state, error->text);
}

/* --- frames --- */

static void forget_tensors(struct fetch_source *source)
{
    muster_mem_free(source->fetch->env->mem, source->tensors);
    source->tensors = NULL;
}

/* Its hashes join those of the others; its places stay with the source. */
static void keep_manifest(struct fetch_source *source, struct muster_state_manifest *manifest)
{
    muster_fetch_hashes_add(source, manifest);
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        muster_mem_free(manifest->mem, manifest->tensors[i].name);
        manifest->tensors[i].name = NULL;
    }
    forget_tensors(source);
    source->tensors = manifest->tensors;
    manifest->tensors = NULL;
    manifest->tensor_count = 0;
    muster_state_manifest_fini(manifest);
}

/* Ahead of the admission a member tells what it knows. */
static bool has_its_part(const struct fetch_source *source,
                         const struct muster_state_manifest *manifest)
{
    static const uint8_t unknown[MUSTER_HASH128_BYTES];

    for (uint64_t i = source->asked_part.index; i < manifest->chunk_count;
         i += source->asked_part.count)
        if (memcmp(manifest->hashes[i], unknown, sizeof(unknown)) == 0)
            return source->fetch->is_ahead;
    return true;
}

static void take_manifest(struct fetch_source *source, const void *payload, uint32_t bytes)
{
    struct fetch *fetch = source->fetch;
    struct muster_state_manifest manifest = {.mem = NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    if (source->state != FETCH_SOURCE_ASKED)
        return;
    rc = muster_state_manifest_unpack(fetch->env->mem, payload, bytes, &manifest, &error);
    if (rc == MUSTER_OK)
        rc = muster_state_match(fetch->chunks, &manifest, &error);
    if (rc == MUSTER_OK && (manifest.chunk_count != fetch->chunks->chunk_count ||
                            manifest.step != fetch->step || !has_its_part(source, &manifest)))
        rc = muster_error_set(&error, MUSTER_DATA_LOSS, "%s sent a manifest of another state",
                              source->name);
    if (rc == MUSTER_OK && !fetch->is_ahead && manifest.blob_count != fetch->chunks->blob_count)
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                              "%zu blobs are registered here and %zu on the other side; register "
                              "the same everywhere",
                              fetch->chunks->blob_count, manifest.blob_count);
    if (rc != MUSTER_OK) {
        muster_state_manifest_fini(&manifest);
        muster_fetch_finish(fetch, rc, "%s: %s", source->name, error.text);
        return;
    }
    source->has_answered = true;
    source->backoff_ns = 0;
    keep_manifest(source, &manifest);
    source_move(source, FETCH_SOURCE_AGREES, "manifest");
    fetch->on_changed(fetch);
}

/* The source knows a view that this process does not know yet. Others that have answered may have been left
 * out of that view, and may hold other bytes, so the answers are not compared before the view is here. */
static void doubt_manifest(struct fetch_source *source)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "%s answers from a later view", source->name);
    muster_fetch_source_try_later(source, &error);
}

/* Other bytes than announced: it went on while it sent (asked again, it says so), it errs, or it holds other bytes than
 * the member that has hashed the chunk. Its own hashes tell. */
static void take_wrong_chunk(struct fetch_source *source, uint32_t chunk)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_DATA_LOSS, "%s sent other bytes of chunk %u than it announced",
                     source->name, chunk);
    source->must_hash_all = true;
    if (++source->wrong_count < WRONG_MAX) {
        muster_fetch_source_try_later(source, &error);
        return;
    }
    muster_fetch_source_end(source, FETCH_SOURCE_GONE, &error);
    source->fetch->on_changed(source->fetch);
}

bool muster_fetch_source_take_bytes(struct fetch_source *source, uint32_t chunk, const void *buffer,
                                    const uint8_t hash[MUSTER_HASH128_BYTES])
{
    struct fetch *fetch = source->fetch;
    struct muster_far_memory *memory = muster_state_chunk_memory(fetch->chunks, chunk);
    uint32_t bytes;
    void *at = muster_state_chunk_at(fetch->chunks, chunk, &bytes);

    MUSTER_ASSERT(fetch->is_agreed);
    if (!fetch->is_ahead && memcmp(hash, fetch->hashes[chunk], MUSTER_HASH128_BYTES) != 0) {
        muster_state_hashes_forget(fetch->chunks, chunk);
        take_wrong_chunk(source, chunk);
        return false;
    }
    if (memory != NULL && muster_far_memory_write(memory, at, buffer, bytes) != MUSTER_OK) {
        muster_fetch_finish(fetch, MUSTER_INTERNAL, "chunk %u of the state cannot be written",
                            chunk);
        return false;
    }
    muster_state_hashes_set(fetch->chunks, chunk, hash);
    fetch->owner->bytes_fetched += bytes;
    return true;
}

static void take_chunk(struct fetch_source *source, uint32_t chunk, const void *buffer)
{
    struct fetch *fetch = source->fetch;
    uint8_t hash[MUSTER_HASH128_BYTES];
    uint32_t bytes;

    muster_state_chunk_at(fetch->chunks, chunk, &bytes);
    muster_hash128(buffer, bytes, hash);
    if (!muster_fetch_source_take_bytes(source, chunk, buffer, hash))
        return;
    (void)close_request(source, chunk);
    fetch->on_changed(fetch);
}

/* INVALID_ARGUMENT: the tensors differ, which no other member will mend. OUT_OF_RANGE: past, for good. All
 * else: not now. */
static void take_refusal(struct fetch_source *source, uint32_t chunk, const void *payload,
                         uint32_t bytes)
{
    struct fetch *fetch = source->fetch;
    struct muster_error error;

    muster_state_refusal_unpack(fetch->env->mem, payload, bytes, &error);
    if (error.rc == MUSTER_INVALID_ARGUMENT) {
        muster_fetch_finish(fetch, error.rc, "%s refuses: %s", source->name, error.text);
    } else if (fetch->is_ahead && has_open_request(source, chunk)) {
        (void)close_request(source, chunk); /* a later round, or the admission, brings it */
        fetch->on_changed(fetch);
    } else if (error.rc == MUSTER_OUT_OF_RANGE || fetch->is_ahead) {
        muster_fetch_source_end(source, FETCH_SOURCE_REFUSED, &error);
        fetch->on_changed(fetch);
    } else {
        muster_fetch_source_try_later(source, &error);
    }
}

/* The request is queued already, and the link has met whom it was opened to (hello.target). */
static void on_ready(struct muster_peer_link *link)
{
    (void)link;
}

/* A chunk of a tensor in device memory is copied there when it is whole. */
static void *chunk_buffer(struct fetch_source *source, uint32_t chunk, void *at)
{
    const struct fetch *fetch = source->fetch;

    if (muster_state_chunk_memory(fetch->chunks, chunk) == NULL)
        return at;
    if (source->room == NULL)
        source->room = muster_mem_alloc(fetch->env->mem, MUSTER_STATE_CHUNK_BYTES);
    if (source->room == NULL)
        break_later(source);
    return source->room;
}

/* Chunks are read straight into the tensor, where the host reaches it, and only those that were asked for and not yet
 * received: nothing else may write there. */
static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct fetch_source *source = muster_peer_link_data(link);
    struct fetch *fetch = source->fetch;
    uint32_t bytes;
    void *at;

    if (header->channel != MUSTER_FRAME_STATE || header->payload_bytes == 0 || fetch->is_finished)
        return NULL;
    if (header->type == MUSTER_STATE_CHUNK) {
        if (header->op.step != fetch->step || !has_open_request(source, header->chunk))
            return NULL;
        at = muster_state_chunk_at(fetch->chunks, header->chunk, &bytes);
        return bytes == header->payload_bytes ? chunk_buffer(source, header->chunk, at) : NULL;
    }
    if (header->type != MUSTER_STATE_MANIFEST && header->type != MUSTER_STATE_REFUSED)
        return NULL;
    muster_mem_free(fetch->env->mem, source->payload);
    source->payload = muster_mem_alloc(fetch->env->mem, header->payload_bytes);
    if (source->payload == NULL)
        break_later(source);
    return source->payload;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct fetch_source *source = muster_peer_link_data(link);

    if (source->fetch->is_finished || buffer == NULL)
        return;
    switch (header->type) {
    case MUSTER_STATE_MANIFEST:
        if (header->epoch > source->fetch->epoch && !source->fetch->is_ahead)
            doubt_manifest(source);
        else
            take_manifest(source, buffer, header->payload_bytes);
        break;
    case MUSTER_STATE_CHUNK:
        take_chunk(source, header->chunk, buffer);
        break;
    case MUSTER_STATE_REFUSED:
        take_refusal(source, header->chunk, buffer, header->payload_bytes);
        break;
    default:
        break;
    }
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    muster_fetch_source_try_later(muster_peer_link_data(link), error);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_payload = on_payload,
    .on_down = on_down,
};

/* --- life --- */

static enum muster_rc ask_for_manifest(struct fetch_source *source)
{
    struct fetch *fetch = source->fetch;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_STATE,
        .type = MUSTER_STATE_MANIFEST_REQUEST,
        .flags = fetch->is_first ? MUSTER_STATE_AT_ONCE : 0,
        .op.step = fetch->step,
    };
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_state_manifest_pack(fetch->chunks, fetch->step, NULL, &bytes, &size);

    if (rc != MUSTER_OK)
        return rc;
    source->asked_part = (struct muster_state_part){.count = 1};
    if (!fetch->is_ahead && !source->must_hash_all && source->part.count > 1)
        source->asked_part = source->part;
    header.phase = source->asked_part.count;
    header.chunk = source->asked_part.index;
    header.payload_bytes = (uint32_t)size;
    rc = muster_peer_link_send_copy(source->link, &header, bytes);
    muster_mem_free(fetch->env->mem, bytes);
    return rc;
}

void muster_fetch_source_init(struct fetch_source *source, struct fetch *fetch,
                              const struct muster_member *member)
{
    source->fetch = fetch;
    source->state = FETCH_SOURCE_CLOSED;
    source->incarnation = member->incarnation;
    source->address = member->address;
    source->is_elder = member->from_step <= fetch->step;
    snprintf(source->name, sizeof(source->name), "%s:%u", member->task_type, member->task_index);
    for (size_t i = 0; i < MUSTER_FETCH_REQUESTS_MAX; i++)
        source->open[i] = MUSTER_FETCH_NO_CHUNK;
}

void muster_fetch_source_open(struct fetch_source *source)
{
    struct fetch *fetch = source->fetch;
    struct muster_peer_hello hello = fetch->hello;
    uint64_t deadline_ns = muster_loop_after_ns(fetch->env->loop, CONNECT_TIMEOUT_NS);
    struct muster_error error;
    enum muster_rc rc;

    hello.purpose = MUSTER_LINK_STATE;
    hello.target = source->incarnation;
    if (deadline_ns > fetch->deadline_ns)
        deadline_ns = fetch->deadline_ns;
    rc = muster_peer_link_open(fetch->env, &source->address, &hello, deadline_ns, &events, source,
                               &source->link);
    if (rc == MUSTER_OK)
        rc = ask_for_manifest(source);
    if (rc == MUSTER_OK) {
        source_move(source, FETCH_SOURCE_ASKED, "due");
        return;
    }
    muster_error_set(&error, rc, "the link cannot be opened: %s", muster_rc_text(rc));
    muster_fetch_source_try_later(source, &error);
}

void muster_fetch_source_ask_again(struct fetch_source *source)
{
    MUSTER_ASSERT(source->state == FETCH_SOURCE_AGREES);
    drop_link(source);
    source->has_answered = false;
    source->due_ns = 0;
    source_move(source, FETCH_SOURCE_CLOSED, "asked again");
}

void muster_fetch_source_fini(struct fetch_source *source)
{
    if (source->link != NULL)
        muster_peer_link_close(source->link);
    muster_mem_free(source->fetch->env->mem, source->payload);
    muster_mem_free(source->fetch->env->mem, source->room);
    forget_tensors(source);
}
