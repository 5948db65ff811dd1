#include "params_puppets.h"

#include "params/wire/pulse.h"

#include <muster/stream.h>

#include <string.h>

static uint64_t deadline_of(const struct params_puppets *puppets)
{
    return muster_loop_after_ns(puppets->env->loop, 60 * MUSTER_NS_PER_S);
}

/* --- Maps --- */

void params_puppets_map_next(struct params_puppets *puppets)
{
    puppets->map->epoch++;
}

void params_puppets_lead(struct params_puppets *puppets, uint32_t shard, uint32_t puppet)
{
    struct muster_params_map_shard *entry = &puppets->map->shards[shard];

    entry->since = puppets->map->epoch;
    entry->copy_count = puppet == UINT32_MAX ? 0 : 1;
    entry->copies[0] = puppet == UINT32_MAX ? 0 : (uint16_t)puppet;
}

void params_puppets_lead_all(struct params_puppets *puppets, uint32_t puppet)
{
    for (uint32_t shard = 0; shard < PARAMS_PUPPETS_SHARDS; shard++)
        params_puppets_lead(puppets, shard, puppet);
}

void params_puppets_tell(struct params_puppets *puppets, uint32_t puppet)
{
    struct params_peer *peer = &puppets->list[puppet].host.peer;

    test_env_run_until(puppets->env, test_env_is_true, &peer->is_ready);
    params_peer_tell(peer, puppets->map);
}

void params_puppets_move(struct params_puppets *puppets, uint32_t shard, uint32_t puppet,
                         uint32_t teller)
{
    params_puppets_map_next(puppets);
    params_puppets_lead(puppets, shard, puppet);
    params_puppets_tell(puppets, teller);
}

static void map_init(struct params_puppets *puppets)
{
    struct muster_params_map *map = puppets->map;

    map->epoch = 1;
    map->shard_count = PARAMS_PUPPETS_SHARDS;
    map->copies_wanted = 1;
    map->server_count = puppets->count;
    for (uint32_t i = 0; i < puppets->count; i++) {
        map->servers[i].id = puppets->list[i].host.hello.incarnation;
        strcpy(map->servers[i].address, puppets->list[i].host.address);
    }
    for (uint32_t shard = 0; shard < map->shard_count; shard++)
        params_puppets_lead(puppets, shard, shard * puppets->count / map->shard_count);
}

/* --- Puppets --- */

void params_puppets_open(struct params_puppets *puppets, uint32_t count)
{
    memset(puppets, 0, sizeof(*puppets));
    test_env_open(&puppets->test);
    puppets->env = &puppets->test.env;
    assert_int_equal(muster_net_system_open(puppets->env, &puppets->env->net), MUSTER_OK);
    puppets->count = count;
    puppets->map = muster_params_map_new(puppets->env->mem);
    assert_non_null(puppets->map);
    for (uint32_t i = 0; i < count; i++) {
        struct params_puppet *puppet = &puppets->list[i];

        puppet->index = i;
        params_host_open(&puppet->host, puppets->env);
        puppet->host.hello.incarnation = (struct muster_incarnation){{(uint8_t)(i + 1)}};
        puppet->host.map = puppets->map;
        puppet->host.is_slow = true;
    }
    map_init(puppets);
}

void params_puppets_close(struct params_puppets *puppets)
{
    for (uint32_t i = 0; i < puppets->count; i++)
        params_host_close(&puppets->list[i].host);
    muster_mem_free(puppets->env->mem, puppets->map);
    test_env_turn(puppets->env, 4); /* a closed link's memory goes in a later turn */
    muster_net_system_close(puppets->env->net);
    test_env_close(&puppets->test);
}

/* --- Frames --- */

/* A client whose shards move often sends more messages than a puppet takes: those that were taken are dropped, and
 * where too many are left the puppet does not read on. */
static void frames_drop(struct params_puppet *puppet)
{
    struct params_peer *peer = &puppet->host.peer;
    uint32_t handled = puppet->handled, left = peer->count - handled;

    if (handled < 32)
        return;
    for (uint32_t i = 0; i < handled; i++)
        test_free(peer->payloads[i]);
    memmove(peer->headers, peer->headers + handled, left * sizeof(peer->headers[0]));
    memmove(peer->payloads, peer->payloads + handled, (left + 1) * sizeof(peer->payloads[0]));
    memset(peer->payloads + left + 1, 0, handled * sizeof(peer->payloads[0]));
    if (peer->count == PARAMS_PEER_FRAMES_MAX)
        muster_peer_link_resume(peer->link);
    peer->count = left;
    puppet->handled = 0;
}

static bool alive_answer(struct params_puppet *puppet, const struct muster_frame_header *header)
{
    const struct muster_frame_header answer = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_ALIVE};

    if (header->type != MUSTER_PARAMS_ALIVE)
        return false;
    if ((header->flags & MUSTER_PARAMS_ALIVE_ASKS) != 0)
        params_puppet_send(puppet, &answer, NULL);
    return true;
}

/* Clients ask whether a server is there when the test has not run for a second. */
bool params_puppet_next(struct params_puppet *puppet, struct params_puppet_frame *ret_frame)
{
    struct params_peer *peer = &puppet->host.peer;

    if (puppet->link != puppet->host.link_count) {
        puppet->link = puppet->host.link_count;
        puppet->handled = 0;
    }
    if (peer->link == NULL)
        return false;
    frames_drop(puppet);
    while (puppet->handled < peer->count && alive_answer(puppet, &peer->headers[puppet->handled]))
        puppet->handled++;
    if (puppet->handled == peer->count)
        return false;
    *ret_frame = (struct params_puppet_frame){peer->headers[puppet->handled],
                                              peer->payloads[puppet->handled]};
    puppet->handled++;
    if (ret_frame->header.type == MUSTER_PARAMS_PUSH ||
        ret_frame->header.type == MUSTER_PARAMS_PUSH_RANGE)
        puppet->pieces[ret_frame->header.offset % PARAMS_PUPPET_PIECES] = ret_frame->header.chunk;
    return true;
}

struct awaited {
    struct params_puppet *puppet;
    struct params_puppet_frame frame;
};

static bool has_frame(void *data)
{
    struct awaited *awaited = data;

    return params_puppet_next(awaited->puppet, &awaited->frame);
}

struct params_puppet_frame params_puppet_await(struct params_puppet *puppet)
{
    struct awaited awaited = {.puppet = puppet};

    test_env_run_until(puppet->host.peer.env, has_frame, &awaited);
    return awaited.frame;
}

struct params_puppet_frame params_puppet_expect(struct params_puppet *puppet,
                                                enum muster_params_message type)
{
    struct params_puppet_frame frame = params_puppet_await(puppet);

    assert_int_equal(frame.header.type, type);
    return frame;
}

void params_puppet_send(struct params_puppet *puppet, const struct muster_frame_header *header,
                        const void *payload)
{
    params_peer_send(&puppet->host.peer, header, payload);
}

void params_puppet_opened(struct params_puppet *puppet, uint64_t slot, uint64_t generation,
                          uint64_t sequence)
{
    const struct muster_params_opened opened = {.slot = slot,
                                                .generation = generation,
                                                .shard_count = PARAMS_PUPPETS_SHARDS,
                                                .sequence = sequence};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_OPENED,
                                               .payload_bytes = MUSTER_PARAMS_OPENED_BYTES};
    uint8_t bytes[MUSTER_PARAMS_OPENED_BYTES];

    muster_params_opened_pack(&opened, bytes);
    params_puppet_send(puppet, &header, bytes);
}

struct params_puppet_frame params_puppet_reopen(struct params_puppet *puppet, uint64_t generation)
{
    struct params_puppet_frame frame = params_puppet_expect(puppet, MUSTER_PARAMS_OPEN);

    params_puppet_opened(puppet, 10 + puppet->index, generation, 1);
    return frame;
}

void params_puppet_table_opened(struct params_puppet *puppet,
                                const struct params_puppet_frame *frame, uint32_t number)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_TABLE_OPEN,
                                               .phase = number,
                                               .offset = frame->header.offset,
                                               .descriptor = 77};

    assert_int_equal(frame->header.type, MUSTER_PARAMS_TABLE);
    params_puppet_send(puppet, &header, NULL);
}

void params_puppet_acknowledge(struct params_puppet *puppet, uint64_t sequence)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_ACK,
                                               .payload_bytes = MUSTER_PARAMS_ACK_BYTES};
    const struct muster_params_ack ack = {.sequence = sequence,
                                          .piece = puppet->pieces[sequence % PARAMS_PUPPET_PIECES]};
    uint8_t bytes[MUSTER_PARAMS_ACK_BYTES];

    muster_params_ack_pack(&ack, bytes);
    params_puppet_send(puppet, &header, bytes);
}

static uint16_t flags_of(const struct params_puppet_frame *frame)
{
    return frame->header.type == MUSTER_PARAMS_PUSH ? MUSTER_PARAMS_REFUSED_PUSH : 0;
}

void params_puppet_moved(struct params_puppet *puppet, const struct params_puppet_frame *frame,
                         uint64_t epoch)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_MOVED,
                                               .flags = flags_of(frame),
                                               .chunk = frame->header.chunk,
                                               .offset = frame->header.offset,
                                               .epoch = epoch};

    params_puppet_send(puppet, &header, NULL);
}

void params_puppet_refuse(struct params_puppet *puppet, const struct params_puppet_frame *frame,
                          enum muster_rc rc, const char *text)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_REFUSED,
                                               .flags = flags_of(frame),
                                               .phase = (uint32_t)rc,
                                               .chunk = frame->header.chunk,
                                               .offset = frame->header.offset,
                                               .payload_bytes = (uint32_t)strlen(text)};

    params_puppet_send(puppet, &header, text);
}

void params_puppet_hang_up(struct params_puppet *puppet)
{
    params_peer_close(&puppet->host.peer);
}

/* --- The client --- */

static void on_client(struct muster_params *params, enum muster_rc rc)
{
    struct params_puppets *puppets = muster_params_data(params);

    puppets->is_done = true;
    puppets->rc = rc;
}

void params_puppets_client(struct params_puppets *puppets, const char *server)
{
    const struct muster_params_options options = {
        .server = server != NULL ? server : puppets->list[0].host.address,
        .job = "test",
        .clock_sources = puppets->clock_sources,
        .connect_deadline_ns = deadline_of(puppets),
        .data = puppets};
    struct muster_error error;

    puppets->is_done = false;
    if (muster_params_open(puppets->env, &options, on_client, &puppets->params, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

/* Answers what a client asks before it pushes. */
static void puppet_serve(struct params_puppet *puppet)
{
    struct params_puppet_frame frame;

    while (params_puppet_next(puppet, &frame)) {
        if (frame.header.type == MUSTER_PARAMS_OPEN)
            params_puppet_opened(puppet, 10 + puppet->index, 1, 1);
        else if (frame.header.type == MUSTER_PARAMS_TICK)
            params_puppet_send(puppet,
                               &(struct muster_frame_header){.channel = MUSTER_FRAME_PARAMS,
                                                             .type = MUSTER_PARAMS_TICKED,
                                                             .offset = frame.header.offset},
                               NULL);
        else
            params_puppet_table_opened(puppet, &frame, 5 + puppet->index);
    }
}

static bool is_served(void *data)
{
    struct params_puppets *puppets = data;

    for (uint32_t i = 0; i < puppets->count; i++)
        puppet_serve(&puppets->list[i]);
    return puppets->is_done;
}

void params_puppets_client_await(struct params_puppets *puppets)
{
    test_env_run_until(puppets->env, is_served, puppets);
    assert_int_equal(puppets->rc, MUSTER_OK);
}

static void on_table(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_puppets *puppets = op->data;

    puppets->is_done = true;
    puppets->rc = rc;
}

struct muster_params_table *params_puppets_table(struct params_puppets *puppets,
                                                 const struct muster_params_schema *schema)
{
    struct muster_params_table *table = NULL;
    struct muster_params_op op = {.data = puppets};

    puppets->is_done = false;
    assert_int_equal(muster_params_table_start(&op, puppets->params, schema, &table,
                                               deadline_of(puppets), on_table),
                     MUSTER_OK);
    params_puppets_client_await(puppets);
    assert_non_null(table);
    return table;
}

enum muster_rc params_puppets_client_close(struct params_puppets *puppets)
{
    puppets->is_done = false;
    muster_params_close(puppets->params, muster_loop_now_ns(puppets->env->loop), on_client);
    test_env_run_until(puppets->env, test_env_is_true, &puppets->is_done);
    return puppets->rc;
}
