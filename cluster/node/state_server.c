/* The serving side of state catch-up: one manifest per committed step, hashed in slices, chunks sent from
 * the tensors without a copy, or read there by a joiner of this host. A frame that is still queued when the
 * program begins to write is sent with other bytes than announced; the joiner sees that by the hash, asks
 * again, and is told that the step is past. */
#include "cluster/node/state_server.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/value/far_memory.h"

/* One turn hashes for a few milliseconds, so heartbeats and operations go on meanwhile. */
#define HASH_CHUNKS_PER_TURN 64 /* 16 MiB */
/* A member with at most this much left hashes all of it, so that the joiner compares all members. */
#define WHOLE_CHUNKS_MAX 64
/* Nobody waits for the hashes of an observer, and the members compute: a tenth of a millisecond in each. */
#define STABLE_CHUNKS_PER_TURN 4
#define STABLE_INTERVAL_NS     MUSTER_NS_PER_MS
#define OBSERVED_NS            (5 * MUSTER_NS_PER_S) /* so long the hashes are kept complete for an observer */
#define REQUESTS_MAX           64 /* open chunk requests per link; a joiner asks for fewer */

/* One chunk on its way: the frame borrows the tensor's memory, or room, where a chunk is copied that the host does not
 * reach. */
struct chunk_frame {
    struct muster_frame frame;
    struct client *client;
    uint8_t *room; /* NULL: not needed so far */
    struct chunk_frame *next_free;
};

/* A joiner's link. */
struct client {
    struct muster_list node;
    struct muster_state_server *server;
    struct muster_peer_link *link;
    bool wants_manifest; /* of wanted_step, or MUSTER_STATE_STABLE */
    uint64_t wanted_step;
    struct muster_state_part part; /* … of these chunks */
    bool is_part_hashed;
    bool is_hurried;  /* the manifest of what is stable, as far as it is known */
    void *request;    /* payload of a manifest request while it arrives */
    bool is_given_up; /* there was no memory to answer: it is closed, and may ask again */
    struct chunk_frame frames[REQUESTS_MAX];
    struct chunk_frame *free_frames;
};

struct muster_state_server {
    struct muster_env *env;
    struct muster_state_chunks *chunks;
    struct muster_board *board; /* NULL: nobody reads the memory */
    struct muster_list clients;
    uint64_t epoch; /* of the view that this process is in */
    uint64_t step;  /* of the last commit */
    bool has_state;
    bool is_clean;
    bool is_withdrawn; /* left out: what is asked of it is refused, not kept waiting */
    struct muster_task hash_task;
    struct muster_timer stable_timer; /* hashes for observers … */
    uint64_t observed_until_ns;       /* … until then */
    struct muster_task give_up_task;
};

static void free_client(struct client *client)
{
    struct muster_env *env = client->server->env;

    muster_list_remove(&client->node);
    muster_peer_link_close(client->link);
    muster_mem_free(env->mem, client->request);
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        muster_mem_free(env->mem, client->frames[i].room);
    muster_mem_free(env->mem, client);
}

/* The client is freed by a task and not at once: the caller goes on using it. */
static void give_up(struct client *client)
{
    client->is_given_up = true;
    muster_task_post(&client->server->give_up_task, client->server->env->loop);
}

static void on_give_up(struct muster_task *task)
{
    struct muster_state_server *server = task->data;

    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct client, node)
        if (client->is_given_up)
            free_client(client);
}

static void refuse_request(struct client *client, uint32_t chunk, const struct muster_error *error)
{
    struct muster_mem *mem = client->server->env->mem;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_STATE,
        .type = MUSTER_STATE_REFUSED,
        .chunk = chunk,
    };
    void *bytes = NULL;
    size_t size = 0;

    if (muster_state_refusal_pack(mem, error, &bytes, &size) != MUSTER_OK) {
        give_up(client);
        return;
    }
    header.payload_bytes = (uint32_t)size;
    if (muster_peer_link_send_copy(client->link, &header, bytes) != MUSTER_OK)
        give_up(client);
    muster_mem_free(mem, bytes);
}

/* The state that the client wants is gone: the members went on without it. */
static void refuse_past(struct client *client, uint32_t chunk, uint64_t step)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_OUT_OF_RANGE,
                     "state %" PRIu64 " is past; this member is at %" PRIu64, step,
                     client->server->step);
    refuse_request(client, chunk, &error);
}

static void refuse_withdrawn(struct client *client)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "this process has been left out of the job");
    refuse_request(client, UINT32_MAX, &error);
}

static void refuse_failed(struct client *client)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "the memory of this member cannot be read");
    refuse_request(client, UINT32_MAX, &error);
}

/* The board whose peer the client is. */
static struct muster_board *board_of(const struct client *client)
{
    struct muster_board *board = client->server->board;
    const struct muster_incarnation *who = &muster_peer_link_hello(client->link)->incarnation;

    return board != NULL && muster_board_find(board, who) != NULL ? board : NULL;
}

static void send_manifest(struct client *client)
{
    struct muster_state_server *server = client->server;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_STATE,
        .type = MUSTER_STATE_MANIFEST,
        .epoch = server->epoch,
        .op.step = client->wanted_step,
    };
    const struct muster_state_answer answer = {
        .hashes = (const uint8_t(*)[MUSTER_HASH128_BYTES])server->chunks->hashes.at,
        .board = board_of(client)};
    void *bytes = NULL;
    size_t size = 0;

    client->wants_manifest = false;
    if (muster_state_manifest_pack(server->chunks, client->wanted_step, &answer, &bytes, &size) !=
        MUSTER_OK) {
        give_up(client);
        return;
    }
    header.payload_bytes = (uint32_t)size;
    if (size > MUSTER_FRAME_PAYLOAD_MAX ||
        muster_peer_link_send_copy(client->link, &header, bytes) != MUSTER_OK) {
        MUSTER_LOG(server->env, WARN, "state_manifest_not_sent", "bytes", (uint64_t)size);
        give_up(client);
    }
    muster_mem_free(server->env->mem, bytes);
}

/* Some chunks are served while the program trains: it says which ones it changes. */
static bool has_stable(const struct muster_state_server *server)
{
    return server->has_state && server->chunks->hashes.is_by_parts;
}

/* The hashes are kept complete also between two rounds of an observer: what the last round lacked is all that is hashed
 * after its admission, when the members wait. */
static void hash_for_observers(struct muster_state_server *server)
{
    if (muster_loop_now_ns(server->env->loop) < server->observed_until_ns && has_stable(server) &&
        !muster_state_hashes_is_settled(server->chunks) &&
        !muster_timer_is_started(&server->stable_timer))
        muster_timer_start(&server->stable_timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, STABLE_INTERVAL_NS));
}

/* An observer is refused at once where nothing can be fetched ahead: it asks to be admitted then. */
static void answer_observer(struct client *client)
{
    struct muster_state_server *server = client->server;
    struct muster_error error;

    if (!has_stable(server)) {
        client->wants_manifest = false;
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "this member does not know what a step changes");
        refuse_request(client, UINT32_MAX, &error);
        return;
    }
    hash_for_observers(server);
    if (client->is_hurried || muster_state_hashes_is_settled(server->chunks))
        send_manifest(client);
}

/* Answer, refuse, or leave waiting each request for a manifest. A step that is not committed yet waits: its
 * joiner was admitted for it. A step that is past is refused for good, so that the joiner comes back for a
 * later one. */
static void answer_requests(struct muster_state_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct client, node) {
        if (client->wants_manifest && client->wanted_step == MUSTER_STATE_STABLE) {
            answer_observer(client);
            continue;
        }
        if (client->wants_manifest && server->is_withdrawn) {
            client->wants_manifest = false;
            refuse_withdrawn(client);
        }
        if (!client->wants_manifest || !server->has_state)
            continue;
        if (client->wanted_step < server->step ||
            (client->wanted_step == server->step && !server->is_clean)) {
            client->wants_manifest = false;
            refuse_past(client, UINT32_MAX, client->wanted_step);
        } else if (client->wanted_step == server->step) {
            if (client->is_part_hashed || muster_state_hashes_is_whole(server->chunks))
                send_manifest(client);
            else
                muster_task_post(&server->hash_task, server->env->loop);
        }
    }
}

/* The members share the hashing of a large state, which would take each of them longer than a step. */
static void hash_for_client(struct client *client, uint32_t *budget)
{
    const struct muster_state_chunks *chunks = client->server->chunks;

    if (client->part.seen == 0 &&
        chunks->chunk_count - chunks->hashes.known_count - chunks->hashes.changing_count <=
            WHOLE_CHUNKS_MAX)
        client->part.count = 0;
    client->is_part_hashed =
        muster_state_hashes_compute_part(client->server->chunks, &client->part, budget);
    if (client->part.has_failed) {
        client->wants_manifest = false;
        refuse_failed(client);
    }
}

/* Nothing is hashed before somebody asks: most commits are never served. */
static void on_hash_turn(struct muster_task *task)
{
    struct muster_state_server *server = task->data;
    uint32_t budget = HASH_CHUNKS_PER_TURN;

    if (!server->is_clean)
        return;
    MUSTER_LIST_EACH (&server->clients, client, struct client, node)
        if (client->wants_manifest && client->wanted_step == server->step)
            hash_for_client(client, &budget);
    answer_requests(server);
}

static void on_stable_timer(struct muster_timer *timer)
{
    struct muster_state_server *server = timer->data;

    if (!has_stable(server))
        return;
    muster_state_hashes_compute(server->chunks, STABLE_CHUNKS_PER_TURN);
    if (muster_state_hashes_is_settled(server->chunks))
        answer_requests(server);
    else
        muster_timer_start(timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, STABLE_INTERVAL_NS));
}

/* --- requests --- */

static void on_chunk_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct chunk_frame *chunk = frame->data;

    (void)rc; /* a failed link tells on_down */
    chunk->next_free = chunk->client->free_frames;
    chunk->client->free_frames = chunk;
}

/* Whether the bytes of the request are there; else it has been refused. */
static bool has_chunk(struct client *client, const struct muster_frame_header *request)
{
    struct muster_state_server *server = client->server;
    struct muster_error error;

    if (request->op.step != MUSTER_STATE_STABLE) {
        if (server->has_state && request->op.step == server->step && server->is_clean)
            return true;
        refuse_past(client, request->chunk, request->op.step);
        return false;
    }
    if (has_stable(server) && (request->chunk >= server->chunks->chunk_count ||
                               !muster_state_hashes_is_changing(server->chunks, request->chunk)))
        return true;
    muster_error_set(&error, MUSTER_FAILED_PRECONDITION, "the step under way may change it");
    refuse_request(client, request->chunk, &error);
    return false;
}

/* The bytes of a chunk, for as long as the frame is under way. NULL: no memory, or the chunk's has failed. */
static const void *chunk_payload(struct muster_state_server *server, struct chunk_frame *frame,
                                 uint32_t chunk, uint32_t *ret_bytes)
{
    struct muster_far_memory *memory = muster_state_chunk_memory(server->chunks, chunk);
    const void *at = muster_state_chunk_at(server->chunks, chunk, ret_bytes);

    if (memory == NULL)
        return at;
    if (frame->room == NULL)
        frame->room = muster_mem_alloc(server->env->mem, MUSTER_STATE_CHUNK_BYTES);
    if (frame->room == NULL ||
        muster_far_memory_read(memory, frame->room, at, *ret_bytes) != MUSTER_OK)
        return NULL;
    return frame->room;
}

static void serve_chunk(struct client *client, const struct muster_frame_header *request)
{
    struct muster_state_server *server = client->server;
    struct chunk_frame *chunk = client->free_frames;
    struct muster_error error;
    uint32_t bytes;

    if (!has_chunk(client, request))
        return;
    if (request->chunk >= server->chunks->chunk_count || chunk == NULL) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "chunk %u of %u cannot be asked for, with %d open requests at most",
                         request->chunk, server->chunks->chunk_count, REQUESTS_MAX);
        refuse_request(client, request->chunk, &error);
        return;
    }
    chunk->frame.payload = chunk_payload(server, chunk, request->chunk, &bytes);
    if (chunk->frame.payload == NULL) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "chunk %u cannot be read", request->chunk);
        refuse_request(client, request->chunk, &error);
        return;
    }
    client->free_frames = chunk->next_free;
    chunk->frame.data = chunk;
    chunk->frame.header = (struct muster_frame_header){
        .channel = MUSTER_FRAME_STATE,
        .type = MUSTER_STATE_CHUNK,
        .payload_bytes = bytes,
        .op.step = request->op.step,
        .chunk = request->chunk,
    };
    /* A link that is down takes nothing, and its client goes with it. */
    (void)!muster_peer_link_send(&chunk->frame, client->link, on_chunk_sent);
}

static void accept_manifest_request(struct client *client, const struct muster_frame_header *header,
                                    const void *payload)
{
    struct muster_state_server *server = client->server;
    struct muster_state_manifest theirs;
    struct muster_error error = {.rc = MUSTER_OK};

    if (server->chunks == NULL) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "this member has not begun");
        refuse_request(client, UINT32_MAX, &error);
        return;
    }
    error.rc = muster_state_manifest_unpack(server->env->mem, payload, header->payload_bytes,
                                            &theirs, &error);
    if (error.rc == MUSTER_OK) {
        error.rc = muster_state_match(server->chunks, &theirs, &error);
        muster_state_manifest_fini(&theirs);
    }
    if (error.rc != MUSTER_OK) {
        refuse_request(client, UINT32_MAX, &error);
        return;
    }
    client->wants_manifest = true;
    client->wanted_step = header->op.step;
    client->part = (struct muster_state_part){.index = header->chunk, .count = header->phase};
    client->is_part_hashed = false;
    client->is_hurried = (header->flags & MUSTER_STATE_AT_ONCE) != 0;
    if (client->wanted_step == MUSTER_STATE_STABLE)
        server->observed_until_ns = muster_loop_after_ns(server->env->loop, OBSERVED_NS);
    answer_requests(server);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct client *client = muster_peer_link_data(link);
    struct muster_mem *mem = client->server->env->mem;

    if (header->channel != MUSTER_FRAME_STATE || header->type != MUSTER_STATE_MANIFEST_REQUEST ||
        header->payload_bytes == 0 || header->payload_bytes > MUSTER_STATE_REQUEST_MAX)
        return NULL;
    muster_mem_free(mem, client->request);
    client->request = muster_mem_alloc(mem, header->payload_bytes);
    if (client->request == NULL)
        give_up(client);
    return client->request;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct client *client = muster_peer_link_data(link);

    if (header->channel != MUSTER_FRAME_STATE)
        return;
    if (header->type == MUSTER_STATE_MANIFEST_REQUEST && buffer != NULL)
        accept_manifest_request(client, header, buffer);
    else if (header->type == MUSTER_STATE_CHUNK_REQUEST)
        serve_chunk(client, header);
}

static void on_ready(struct muster_peer_link *link)
{
    (void)link;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct client *client = muster_peer_link_data(link);

    MUSTER_LOG(client->server->env, DEBUG, "state_link_down", "reason", error->text);
    free_client(client);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_payload = on_payload,
    .on_down = on_down,
};

/* --- life --- */

enum muster_rc muster_state_server_open(struct muster_env *env,
                                        struct muster_state_server **ret_server)
{
    struct muster_state_server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));

    if (server == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    server->env = env;
    muster_list_init(&server->clients);
    muster_task_init(&server->hash_task, on_hash_turn, server);
    muster_task_init(&server->give_up_task, on_give_up, server);
    muster_timer_init(&server->stable_timer, on_stable_timer, server);
    *ret_server = server;
    return MUSTER_OK;
}

void muster_state_server_set_chunks(struct muster_state_server *server,
                                    struct muster_state_chunks *chunks)
{
    server->chunks = chunks;
}

void muster_state_server_set_board(struct muster_state_server *server, struct muster_board *board)
{
    server->board = board;
}

void muster_state_server_set_epoch(struct muster_state_server *server, uint64_t epoch)
{
    server->epoch = epoch;
}

void muster_state_server_commit(struct muster_state_server *server, uint64_t step)
{
    if (server->chunks == NULL)
        return;
    server->step = step;
    server->has_state = true;
    server->is_clean = true;
    server->is_withdrawn = false;
    muster_state_hashes_commit(server->chunks);
    answer_requests(server);
    hash_for_observers(server);
}

void muster_state_server_touch(struct muster_state_server *server)
{
    if (!server->is_clean)
        return;
    server->is_clean = false;
    muster_task_cancel(&server->hash_task);
    answer_requests(server);
}

void muster_state_server_withdraw(struct muster_state_server *server)
{
    server->is_clean = false;
    server->is_withdrawn = true;
    if (server->chunks != NULL)
        muster_state_hashes_forget_all(server->chunks);
    muster_task_cancel(&server->hash_task);
    answer_requests(server);
}

void muster_state_server_accept(struct muster_state_server *server, struct muster_peer_link *link)
{
    struct client *client = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*client));

    if (client == NULL) {
        muster_peer_link_close(link);
        return;
    }
    client->server = server;
    client->link = link;
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        client->frames[i].client = client;
        client->frames[i].next_free = client->free_frames;
        client->free_frames = &client->frames[i];
    }
    muster_list_append(&server->clients, &client->node);
    muster_peer_link_set_owner(link, &events, client);
}

void muster_state_server_close(struct muster_state_server *server)
{
    if (server == NULL)
        return;
    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct client, node)
        free_client(client);
    muster_task_cancel(&server->hash_task);
    muster_task_cancel(&server->give_up_task);
    muster_timer_stop(&server->stable_timer);
    muster_mem_free(server->env->mem, server);
}
