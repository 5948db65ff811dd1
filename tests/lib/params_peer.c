#include "params_peer.h"

#include "params/wire/pulse.h"

#include <muster/address.h>

#include <stdio.h>
#include <string.h>

#define SHARDS 8u

static uint64_t peer_deadline(const struct params_peer *peer)
{
    return muster_loop_after_ns(peer->env->loop, 30 * MUSTER_NS_PER_S);
}

/* --- Frames --- */

void params_peer_tell(struct params_peer *peer, const struct muster_params_map *map)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_MAP};
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_params_map_pack(map, peer->env->mem, &bytes, &size), MUSTER_OK);
    header.payload_bytes = (uint32_t)size;
    params_peer_send(peer, &header, bytes);
    muster_mem_free(peer->env->mem, bytes);
}

static void on_ready(struct muster_peer_link *link)
{
    struct params_peer *peer = muster_peer_link_data(link);

    peer->is_ready = true;
    if (peer->map != NULL)
        params_peer_tell(peer, peer->map);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct params_peer *peer = muster_peer_link_data(link);

    if (peer->discards ||
        (header->channel == MUSTER_FRAME_PARAMS && header->type == MUSTER_PARAMS_MAP))
        return NULL;
    assert_true(peer->count < PARAMS_PEER_FRAMES_MAX);
    peer->payloads[peer->count] =
        header->payload_bytes > 0 ? test_malloc(header->payload_bytes) : NULL;
    return peer->payloads[peer->count];
}

/* A server asks when the case has not run for a second. */
static bool alive_answer(struct params_peer *peer, const struct muster_frame_header *header)
{
    const struct muster_frame_header answer = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_ALIVE};

    if (!peer->is_client || header->channel != MUSTER_FRAME_PARAMS ||
        header->type != MUSTER_PARAMS_ALIVE)
        return false;
    if ((header->flags & MUSTER_PARAMS_ALIVE_ASKS) != 0)
        params_peer_send(peer, &answer, NULL);
    return true;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct params_peer *peer = muster_peer_link_data(link);

    (void)buffer;
    if (alive_answer(peer, header))
        return;
    peer->headers[peer->count++] = *header;
    if (peer->is_slow && peer->count == PARAMS_PEER_FRAMES_MAX)
        muster_peer_link_pause(link);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct params_peer *peer = muster_peer_link_data(link);

    peer->is_down = true;
    peer->error = *error;
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

void params_peer_send(struct params_peer *peer, const struct muster_frame_header *header,
                      const void *payload)
{
    assert_int_equal(muster_peer_link_send_copy(peer->link, header, payload), MUSTER_OK);
}

struct awaited {
    const struct params_peer *peer;
    uint32_t count;
};

static bool has_come(void *data)
{
    const struct awaited *awaited = data;

    return awaited->peer->count >= awaited->count || awaited->peer->is_down;
}

void params_peer_await(struct params_peer *peer, uint32_t count)
{
    struct awaited awaited = {peer, count};

    test_env_run_until(peer->env, has_come, &awaited);
}

void params_peer_await_down(struct params_peer *peer)
{
    test_env_run_until(peer->env, test_env_is_true, &peer->is_down);
}

void params_peer_close(struct params_peer *peer)
{
    if (peer->link != NULL)
        muster_peer_link_close(peer->link);
    for (uint32_t i = 0; i < PARAMS_PEER_FRAMES_MAX; i++)
        test_free(peer->payloads[i]);
    *peer = (struct params_peer){.env = peer->env};
}

/* --- A client --- */

struct muster_peer_hello params_peer_hello(void)
{
    return (struct muster_peer_hello){.job = "test",
                                      .incarnation = {{9}},
                                      .version = MUSTER_PEER_VERSION,
                                      .purpose = MUSTER_LINK_PARAMS};
}

void params_peer_open(struct params_peer *peer, struct muster_env *env, const char *address,
                      const struct muster_peer_hello *hello)
{
    struct muster_address where;
    struct muster_error error;

    *peer = (struct params_peer){.env = env, .is_client = true};
    if (muster_address_parse(address, &where, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_int_equal(
        muster_peer_link_open(env, &where, hello, peer_deadline(peer), &events, peer, &peer->link),
        MUSTER_OK);
    test_env_run_until(env, test_env_is_true, &peer->is_ready);
}

/* --- A server --- */

static void on_stream(struct muster_port *port, struct muster_stream *stream)
{
    struct params_host *host = muster_port_data(port);

    params_peer_close(&host->peer);
    host->peer.map = host->map;
    host->peer.is_slow = host->is_slow;
    host->link_count++;
    assert_int_equal(muster_peer_link_accept(host->peer.env, stream, &host->hello,
                                             peer_deadline(&host->peer), &events, &host->peer,
                                             &host->peer.link),
                     MUSTER_OK);
}

void params_host_open(struct params_host *host, struct muster_env *env)
{
    struct muster_address address;
    struct muster_error error;

    *host = (struct params_host){.hello = params_peer_hello(),
                                 .own_map = muster_params_map_new(env->mem),
                                 .peer = {.env = env}};
    assert_non_null(host->own_map);
    muster_params_map_single(host->own_map, &host->hello.incarnation, SHARDS);
    host->map = host->own_map;
    host->hello.purpose = MUSTER_LINK_AS_OPENED;
    if (muster_address_parse_listen("127.0.0.1:0", &address, &error) != MUSTER_OK ||
        muster_port_open(env, &address, NULL, on_stream, host, &host->port, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_address_format(muster_port_address(host->port), host->address);
}

static void on_port_closed(struct muster_port *port)
{
    struct params_host *host = muster_port_data(port);

    host->is_closed = true;
}

void params_host_close(struct params_host *host)
{
    params_peer_close(&host->peer);
    muster_port_close(host->port, on_port_closed);
    test_env_run_until(host->peer.env, test_env_is_true, &host->is_closed);
    muster_mem_free(host->peer.env->mem, host->own_map);
}

struct host_awaited {
    const struct params_host *host;
    uint32_t link_count, count;
};

static bool host_has_heard(void *data)
{
    const struct host_awaited *awaited = data;

    return awaited->host->link_count > awaited->link_count &&
           awaited->host->peer.count >= awaited->count;
}

void params_host_await(struct params_host *host, uint32_t link_count, uint32_t count)
{
    struct host_awaited awaited = {host, link_count, count};

    test_env_run_until(host->peer.env, host_has_heard, &awaited);
}

void params_host_answer_open(struct params_host *host, uint32_t link_count, uint64_t slot,
                             uint64_t generation, uint32_t shard_count)
{
    const struct muster_params_opened opened = {
        .slot = slot, .generation = generation, .shard_count = shard_count, .sequence = 1};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_OPENED,
                                               .payload_bytes = MUSTER_PARAMS_OPENED_BYTES};
    uint8_t bytes[MUSTER_PARAMS_OPENED_BYTES];

    params_host_await(host, link_count, 1);
    assert_int_equal(host->peer.headers[0].type, MUSTER_PARAMS_OPEN);
    muster_params_opened_pack(&opened, bytes);
    params_peer_send(&host->peer, &header, bytes);
}

void params_host_answer_table(struct params_host *host, uint32_t frame)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_TABLE_OPEN,
                                               .offset = host->peer.headers[frame].offset,
                                               .descriptor = 77};

    assert_int_equal(host->peer.headers[frame].type, MUSTER_PARAMS_TABLE);
    params_peer_send(&host->peer, &header, NULL);
}
