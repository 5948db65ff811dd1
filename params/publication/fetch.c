/* One version from one source at a time. A source that dies, is silent, refuses or sends other bytes than
 * announced is left for the next one; what has arrived stays. */
#include "params/publication/fetch.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/system/host_memory.h"

#define CONNECT_TIMEOUT_NS (2 * MUSTER_NS_PER_S)
/* One turn copies for a few milliseconds, so that other events go on meanwhile. */
#define COPIES_PER_TURN 64u /* 16 MiB */
#define NO_CHUNK        UINT32_MAX

static void source_try(struct muster_publication_lane *lane);

static void received_drop(struct muster_publication_lane *lane)
{
    muster_mem_free(lane->fetch->env->mem, lane->received);
    lane->received = NULL;
}

static void link_drop(struct muster_publication_lane *lane)
{
    struct muster_peer_link *link = lane->link;

    lane->link = NULL;
    lane->is_joined = false;
    lane->open_count = 0;
    lane->cursor = lane->tree;
    muster_timer_stop(&lane->silence);
    if (link != NULL)
        muster_peer_link_close(link);
    received_drop(lane);
}

static void fetch_end(struct muster_publication_fetch *fetch)
{
    fetch->is_active = false;
    muster_task_cancel(&fetch->step);
    muster_held_unref(fetch->base);
    fetch->base = NULL;
    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES; i++) {
        muster_timer_stop(&fetch->lanes[i].silence);
        fetch->lanes[i].open_count = 0;
    }
}

static void source_leave(struct muster_publication_lane *lane, const struct muster_error *error)
{
    struct muster_publication_fetch *fetch = lane->fetch;

    MUSTER_LOG(fetch->env, DEBUG, "publication_source_left", "name", fetch->join.name, "version",
               fetch->record.version, "tree", lane->tree, "reason", error->text);
    link_drop(lane);
    if (!fetch->is_active || lane->source_at == lane->source_count)
        return;
    fetch->error = *error;
    fetch->stats.parents_lost++;
    lane->source_at++;
    source_try(lane);
}

static void silence_restart(struct muster_publication_lane *lane)
{
    struct muster_loop *loop = lane->fetch->env->loop;

    MUSTER_ASSERT(lane->link != NULL);
    if (lane->fetch->is_active)
        muster_timer_start(&lane->silence, loop,
                           muster_loop_after_ns(loop, MUSTER_PUBLICATION_SILENCE_NS));
}

static void on_silence(struct muster_timer *timer)
{
    struct muster_publication_lane *lane = timer->data;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "%s is silent",
                     muster_address_format(&lane->link_address, text));
    source_leave(lane, &error);
}

/* --- Requests --- */

static bool message_send(struct muster_publication_lane *lane, struct muster_frame_header header,
                         const void *payload, size_t bytes)
{
    struct muster_error error;

    header.op.step = lane->fetch->record.version;
    if (muster_publication_send(lane->link, header, payload, bytes))
        return true;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory for a request");
    source_leave(lane, &error);
    return false;
}

static bool chunk_is_open(const struct muster_publication_lane *lane, uint32_t chunk)
{
    for (uint32_t i = 0; i < lane->open_count; i++) {
        if (lane->open[i] == chunk)
            return true;
    }
    return false;
}

static uint32_t next_missing(struct muster_publication_lane *lane)
{
    const struct muster_held_version *held = lane->fetch->held;

    while (lane->cursor < held->manifest.chunk_count) {
        uint32_t chunk = lane->cursor;

        lane->cursor += MUSTER_PUBLICATION_TREES;
        if (!muster_held_has(held, chunk) && !chunk_is_open(lane, chunk))
            return chunk;
    }
    return NO_CHUNK;
}

/* The base has the same bytes at the same place. */
static bool chunk_copy(struct muster_publication_fetch *fetch, uint32_t chunk)
{
    struct muster_held_version *held = fetch->held, *base = fetch->base;
    uint32_t bytes = muster_version_chunk_bytes(&held->manifest, chunk);

    if (held->is_mapped || base == NULL || chunk >= base->manifest.chunk_count ||
        muster_version_chunk_bytes(&base->manifest, chunk) != bytes ||
        memcmp(base->manifest.hashes[chunk], held->manifest.hashes[chunk], MUSTER_HASH128_BYTES) !=
            0)
        return false;
    memcpy(muster_held_chunk(held, chunk), muster_held_chunk(base, chunk), bytes);
    muster_held_set(held, chunk);
    fetch->stats.chunks_equal++;
    return true;
}

static bool chunk_ask(struct muster_publication_lane *lane, uint32_t chunk)
{
    const struct muster_held_version *base = lane->fetch->base, *held = lane->fetch->held;
    const struct muster_frame_header header = {.type = MUSTER_PUBLICATION_CHUNK_REQUEST,
                                               .chunk = chunk,
                                               .offset = base != NULL ? base->shown.number : 0,
                                               .descriptor =
                                                   held->is_mapped ? held->shared.file : 0};

    lane->open[lane->open_count++] = chunk;
    return message_send(lane, header, NULL, 0);
}

/* Returns how many chunks were copied. */
static uint32_t lane_ask(struct muster_publication_lane *lane)
{
    uint32_t copies = 0;

    while (lane->is_joined && lane->open_count < MUSTER_PUBLICATION_REQUESTS_MAX) {
        uint32_t chunk = next_missing(lane);

        if (chunk == NO_CHUNK)
            break;
        if (!chunk_copy(lane->fetch, chunk)) {
            if (!chunk_ask(lane, chunk))
                break; /* it goes on with another source, or is stuck */
        } else if (++copies == COPIES_PER_TURN) {
            muster_task_post(&lane->fetch->step, lane->fetch->env->loop);
            break;
        }
    }
    return copies;
}

/* The owner may start the next version before this returns. */
static void fetch_check_whole(struct muster_publication_fetch *fetch)
{
    if (!muster_held_is_whole(fetch->held))
        return;
    fetch->error.rc = MUSTER_OK;
    fetch->stats.versions++;
    fetch_end(fetch);
    fetch->events->on_done(fetch);
}

static void chunks_ask(struct muster_publication_lane *lane)
{
    struct muster_publication_fetch *fetch = lane->fetch;

    if (lane_ask(lane) > 0)
        fetch->events->on_progress(fetch);
    if (fetch->is_active && fetch->held != NULL) /* the owner may have abandoned it */
        fetch_check_whole(fetch);
}

static void lane_go_on(struct muster_publication_lane *lane)
{
    const struct muster_frame_header header = {.type = MUSTER_PUBLICATION_MANIFEST_REQUEST};

    if (!lane->fetch->is_active || !lane->is_joined)
        return;
    silence_restart(lane);
    if (lane->fetch->held != NULL)
        chunks_ask(lane);
    else
        (void)message_send(lane, header, NULL, 0);
}

static void on_step(struct muster_task *task)
{
    struct muster_publication_fetch *fetch = task->data;

    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES; i++) {
        if (fetch->is_active && fetch->held != NULL && fetch->lanes[i].is_joined)
            chunks_ask(&fetch->lanes[i]);
    }
}

/* --- Answers --- */

static void wrong_bytes(struct muster_publication_lane *lane, const char *of_what)
{
    struct muster_publication_fetch *fetch = lane->fetch;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    muster_error_set(&error, MUSTER_DATA_LOSS, "%s sent another %s than version %" PRIu64 " has",
                     muster_address_format(&lane->link_address, text), of_what,
                     fetch->record.version);
    MUSTER_LOG(fetch->env, WARN, "publication_wrong_bytes", "name", fetch->join.name, "reason",
               error.text);
    fetch->stats.chunks_wrong++;
    source_leave(lane, &error);
}

/* The memory of a source on this host, or memory of our own. Takes manifest. */
static enum muster_rc held_make(struct muster_publication_fetch *fetch,
                                struct muster_version_manifest *manifest,
                                const struct muster_frame_header *header)
{
    const struct muster_host_memory theirs = {.size = (size_t)header->offset,
                                              .pid = header->phase,
                                              .number = header->chunk,
                                              .file = header->descriptor};
    struct muster_host_memory mapped;

    if (theirs.file != 0 && muster_held_fits(manifest, header->offset) &&
        muster_host_memory_map(fetch->env->host, &theirs, &mapped) == MUSTER_OK)
        return muster_held_new_mapped(fetch->env->mem, manifest, fetch->env->host, &mapped,
                                      &fetch->held);
    return muster_held_new(fetch->env->mem, manifest, fetch->spare, &fetch->held);
}

/* Both trees ask for the manifest: the chunks of the other one are asked for by the next turn. */
static void manifest_receive(struct muster_publication_lane *lane,
                             const struct muster_frame_header *header)
{
    struct muster_publication_fetch *fetch = lane->fetch;
    size_t size = header->payload_bytes;
    uint8_t root[MUSTER_HASH128_BYTES];
    struct muster_version_manifest manifest = {.mem = NULL};
    struct muster_error error;
    void *packed = lane->received;
    enum muster_rc rc;

    lane->received = NULL;
    muster_version_manifest_root(packed, size, root);
    if (memcmp(root, fetch->record.root, sizeof(root)) != 0) {
        muster_mem_free(fetch->env->mem, packed);
        wrong_bytes(lane, "manifest");
        return;
    }
    rc = muster_version_manifest_unpack(fetch->env->mem, packed, size, &manifest, &error);
    if (rc == MUSTER_OK &&
        (manifest.version != fetch->record.version || manifest.bytes != fetch->record.bytes)) {
        muster_version_manifest_fini(&manifest);
        rc = muster_error_set(&error, MUSTER_DATA_LOSS,
                              "the manifest is not of the version that the registry names");
    }
    if (rc == MUSTER_OK)
        rc = held_make(fetch, &manifest, header);
    if (rc != MUSTER_OK) {
        muster_mem_free(fetch->env->mem, packed);
        if (rc == MUSTER_RESOURCE_EXHAUSTED)
            muster_error_set(&error, rc, "no memory for version %" PRIu64 " of %" PRIu64 " bytes",
                             fetch->record.version, fetch->record.bytes);
        source_leave(lane, &error);
        return;
    }
    fetch->held->packed = packed;
    fetch->held->packed_bytes = size;
    memcpy(fetch->held->shown.root, root, sizeof(root));
    muster_task_post(&fetch->step, fetch->env->loop);
    fetch->events->on_progress(fetch);
}

static void chunk_close(struct muster_publication_lane *lane, uint32_t chunk)
{
    for (uint32_t i = 0; i < lane->open_count; i++) {
        if (lane->open[i] == chunk) {
            lane->open[i] = lane->open[--lane->open_count];
            return;
        }
    }
}

static bool delta_apply(struct muster_publication_lane *lane,
                        const struct muster_frame_header *header)
{
    struct muster_publication_fetch *fetch = lane->fetch;
    bool is_applied = fetch->base != NULL && header->offset == fetch->base->shown.number &&
                      muster_held_delta_apply(fetch->held, fetch->base, header->chunk,
                                              lane->received, header->payload_bytes);

    received_drop(lane);
    return is_applied;
}

/* The mapped file is not the one that the source fills. The bytes are fetched instead. */
static void mapping_leave(struct muster_publication_lane *lane, uint32_t chunk)
{
    struct muster_error error;

    if (muster_held_detach(lane->fetch->held) == MUSTER_OK) {
        chunk_close(lane, chunk);
        (void)chunk_ask(lane, chunk);
        return;
    }
    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory for version %" PRIu64,
                     lane->fetch->record.version);
    source_leave(lane, &error);
}

static void chunk_count(struct muster_reader_stats *stats, const struct muster_frame_header *header)
{
    if (header->type == MUSTER_PUBLICATION_DELTA)
        stats->deltas_received++;
    else if (header->type == MUSTER_PUBLICATION_IN_PLACE)
        stats->chunks_mapped++;
    else
        stats->chunks_received++;
    stats->bytes_received += header->payload_bytes;
}

static void chunk_receive(struct muster_publication_lane *lane,
                          const struct muster_frame_header *header)
{
    struct muster_publication_fetch *fetch = lane->fetch;
    struct muster_held_version *held = fetch->held;
    bool is_delta = header->type == MUSTER_PUBLICATION_DELTA;

    if (header->type == MUSTER_PUBLICATION_IN_PLACE)
        muster_held_take_mapped(held, header->chunk);
    if ((is_delta && !delta_apply(lane, header)) ||
        !muster_version_chunk_is_valid(&held->manifest, header->chunk,
                                       muster_held_chunk(held, header->chunk))) {
        if (held->is_mapped)
            mapping_leave(lane, header->chunk);
        else
            wrong_bytes(lane, "chunk");
        return;
    }
    chunk_count(&fetch->stats, header);
    chunk_close(lane, header->chunk);
    muster_held_set(held, header->chunk);
    fetch->events->on_progress(fetch);
    chunks_ask(lane);
}

static void refusal_receive(struct muster_publication_lane *lane,
                            const struct muster_frame_header *header)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    lane->text[header->payload_bytes] = '\0';
    muster_error_set(&error,
                     header->phase != MUSTER_OK ? (enum muster_rc)header->phase : MUSTER_UNKNOWN,
                     "%s: %.150s", muster_address_format(&lane->link_address, text), lane->text);
    source_leave(lane, &error);
}

static void *source_refuse(struct muster_publication_lane *lane, const char *reason)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "%s", reason);
    source_leave(lane, &error);
    return NULL;
}

static void *refuse_message(struct muster_publication_lane *lane)
{
    return source_refuse(lane, "it sent a message that was not requested");
}

static void *refuse_for_memory(struct muster_publication_lane *lane)
{
    return source_refuse(lane, "no memory for its message");
}

static void *buffer_new(struct muster_publication_lane *lane, size_t bytes)
{
    if (bytes == 0)
        return refuse_message(lane);
    lane->received = muster_mem_alloc(lane->fetch->env->mem, bytes);
    return lane->received != NULL ? lane->received : refuse_for_memory(lane);
}

static void *chunk_room(struct muster_publication_lane *lane,
                        const struct muster_frame_header *header)
{
    struct muster_held_version *held = lane->fetch->held;
    uint32_t bytes;

    if (held == NULL || !chunk_is_open(lane, header->chunk))
        return refuse_message(lane);
    if (held->is_mapped && muster_held_detach(held) != MUSTER_OK)
        return refuse_for_memory(lane);
    bytes = muster_version_chunk_bytes(&held->manifest, header->chunk);
    if (header->type == MUSTER_PUBLICATION_DELTA)
        return header->payload_bytes < bytes ? buffer_new(lane, header->payload_bytes)
                                             : refuse_message(lane);
    return header->payload_bytes == bytes ? muster_held_chunk(held, header->chunk)
                                          : refuse_message(lane);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_publication_lane *lane = muster_peer_link_data(link);
    struct muster_publication_fetch *fetch = lane->fetch;

    silence_restart(lane);
    if (header->channel != MUSTER_FRAME_PUBLICATION)
        return refuse_message(lane);
    if (header->type == MUSTER_PUBLICATION_REFUSED && header->payload_bytes < sizeof(lane->text))
        return lane->text; /* also of JOIN, which names no version */
    if (!fetch->is_active || header->op.step != fetch->record.version)
        return NULL; /* the answer to a request for a version that was abandoned */
    if (header->type == MUSTER_PUBLICATION_MANIFEST)
        return fetch->held == NULL ? buffer_new(lane, header->payload_bytes) : NULL;
    if (header->type == MUSTER_PUBLICATION_CHUNK || header->type == MUSTER_PUBLICATION_DELTA)
        return chunk_room(lane, header);
    if (header->type == MUSTER_PUBLICATION_IN_PLACE && fetch->held != NULL &&
        header->payload_bytes == 0 && chunk_is_open(lane, header->chunk))
        return NULL;
    return refuse_message(lane);
}

static void on_bytes(struct muster_peer_link *link, const struct muster_frame_header *header,
                     void *buffer, uint32_t bytes_done)
{
    struct muster_publication_lane *lane = muster_peer_link_data(link);

    (void)header;
    (void)buffer;
    (void)bytes_done;
    silence_restart(lane);
    lane->fetch->progress_ns = muster_loop_now_ns(lane->fetch->env->loop);
}

/* Both trees have asked for the manifest; the second one to come is dropped. */
static void manifest_take(struct muster_publication_lane *lane,
                          const struct muster_frame_header *header)
{
    if (lane->fetch->held == NULL) {
        manifest_receive(lane, header);
        return;
    }
    received_drop(lane);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_publication_lane *lane = muster_peer_link_data(link);
    struct muster_publication_fetch *fetch = lane->fetch;
    bool is_wanted = fetch->is_active && header->op.step == fetch->record.version;

    if (header->type == MUSTER_PUBLICATION_REFUSED && (is_wanted || header->op.step == 0))
        refusal_receive(lane, header);
    if (!is_wanted || (buffer == NULL && header->type != MUSTER_PUBLICATION_IN_PLACE))
        return;
    fetch->progress_ns = muster_loop_now_ns(fetch->env->loop);
    if (header->type == MUSTER_PUBLICATION_MANIFEST)
        manifest_take(lane, header);
    else if (header->type != MUSTER_PUBLICATION_REFUSED)
        chunk_receive(lane, header);
}

/* --- The link --- */

static void on_ready(struct muster_peer_link *link)
{
    struct muster_publication_lane *lane = muster_peer_link_data(link);
    const struct muster_frame_header header = {.type = MUSTER_PUBLICATION_JOIN};
    uint8_t bytes[MUSTER_PUBLICATION_JOIN_BYTES];

    muster_publication_join_pack(&lane->fetch->join, bytes);
    lane->is_joined = true;
    if (message_send(lane, header, bytes, sizeof(bytes)))
        lane_go_on(lane);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    source_leave(muster_peer_link_data(link), error);
}

static const struct muster_peer_link_events link_events = {.on_ready = on_ready,
                                                           .on_frame = on_frame,
                                                           .on_progress = on_bytes,
                                                           .on_payload = on_payload,
                                                           .on_down = on_down};

static void source_try(struct muster_publication_lane *lane)
{
    struct muster_publication_fetch *fetch = lane->fetch;
    uint64_t deadline_ns = muster_loop_after_ns(fetch->env->loop, CONNECT_TIMEOUT_NS);

    for (; lane->source_at < lane->source_count; lane->source_at++) {
        const struct muster_address *address = &lane->sources[lane->source_at];

        if (lane->link != NULL && muster_address_is_equal(&lane->link_address, address)) {
            lane_go_on(lane);
            return;
        }
        link_drop(lane);
        lane->link_address = *address;
        if (muster_peer_link_open(fetch->env, address, &fetch->hello, deadline_ns, &link_events,
                                  lane, &lane->link) == MUSTER_OK)
            return;
        lane->link = NULL;
        muster_error_set(&fetch->error, MUSTER_UNAVAILABLE, "a link cannot be opened");
    }
    fetch->events->on_stuck(fetch);
}

/* --- Life --- */

void muster_publication_fetch_init(struct muster_publication_fetch *fetch, struct muster_env *env,
                                   const struct muster_peer_hello *hello,
                                   const struct muster_publication_join *join,
                                   const struct muster_publication_fetch_events *events)
{
    fetch->env = env;
    fetch->hello = *hello;
    fetch->hello.purpose = MUSTER_LINK_PUBLICATION;
    fetch->join = *join;
    fetch->join.is_following = false;
    fetch->events = events;
    muster_task_init(&fetch->step, on_step, fetch);
    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES; i++) {
        fetch->lanes[i].fetch = fetch;
        fetch->lanes[i].tree = i;
        muster_timer_init(&fetch->lanes[i].silence, on_silence, &fetch->lanes[i]);
    }
}

void muster_publication_fetch_start(struct muster_publication_fetch *fetch,
                                    const struct muster_publication_record *record,
                                    struct muster_held_version *base)
{
    MUSTER_ASSERT(!fetch->is_active && fetch->held == NULL && fetch->base == NULL);
    fetch->is_active = true;
    fetch->progress_ns = muster_loop_now_ns(fetch->env->loop);
    fetch->record = *record;
    fetch->base = base;
    if (base != NULL)
        muster_held_ref(base);
    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES; i++) {
        struct muster_publication_lane *lane = &fetch->lanes[i];

        MUSTER_ASSERT(lane->open_count == 0);
        lane->source_count = lane->source_at = 0;
        lane->cursor = lane->tree;
    }
}

static bool lane_is_stuck(const struct muster_publication_lane *lane)
{
    return lane->source_at == lane->source_count;
}

void muster_publication_fetch_from(struct muster_publication_fetch *fetch, uint32_t tree,
                                   const struct muster_address *sources, size_t count)
{
    struct muster_publication_lane *lane = &fetch->lanes[tree];

    MUSTER_ASSERT(fetch->is_active && count <= MUSTER_PUBLICATION_SOURCES_MAX);
    if (!lane_is_stuck(lane))
        return;
    memcpy(lane->sources, sources, count * sizeof(sources[0]));
    lane->source_count = count;
    lane->source_at = 0;
    source_try(lane);
}

bool muster_publication_fetch_is_stuck(const struct muster_publication_fetch *fetch)
{
    return fetch->is_active && (lane_is_stuck(&fetch->lanes[0]) || lane_is_stuck(&fetch->lanes[1]));
}

/* A link on which an answer may be arriving into the version's memory is closed. */
void muster_publication_fetch_abandon(struct muster_publication_fetch *fetch)
{
    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES; i++) {
        struct muster_publication_lane *lane = &fetch->lanes[i];

        if (lane->open_count > 0 || lane->received != NULL)
            link_drop(lane);
    }
    fetch_end(fetch);
    muster_held_unref(fetch->held);
    fetch->held = NULL;
}

void muster_publication_fetch_fini(struct muster_publication_fetch *fetch)
{
    muster_publication_fetch_abandon(fetch);
    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES; i++)
        link_drop(&fetch->lanes[i]);
}
