/* Attacks with slowness: of what is sent, and of what is read. */
#include "rpc_attack.h"

#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"

/* Slowness. */

static void stay_silent(struct rpc_raw *raw)
{
    rpc_stand_advance(raw->stand, 11 * MUSTER_NS_PER_S);
}

static void half_a_preface(struct rpc_raw *raw)
{
    for (size_t i = 0; i < 10; i++) {
        (void)played_stream_feed(&raw->played, &H2_PREFACE[i], 1);
        rpc_stand_advance(raw->stand, MUSTER_NS_PER_S);
    }
    rpc_stand_advance(raw->stand, MUSTER_NS_PER_S);
}

static void a_preface_alone(struct rpc_raw *raw)
{
    (void)played_stream_feed(&raw->played, H2_PREFACE, sizeof(H2_PREFACE) - 1);
    rpc_stand_advance(raw->stand, 11 * MUSTER_NS_PER_S);
}

static void another_protocol(struct rpc_raw *raw)
{
    (void)played_stream_feed(&raw->played, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    rpc_stand_advance(raw->stand, 0);
}

static void half_of_the_headers(struct rpc_raw *raw)
{
    uint8_t block[512];
    size_t at = rpc_raw_block_put(block, "/t/Echo");

    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_frame(raw, FRAME_HEADERS, 0, 1, block, at);
    rpc_stand_advance(raw->stand, 121 * MUSTER_NS_PER_S);
}

/* One byte each second. */
static void dribble_message(struct rpc_raw *raw, const char *path)
{
    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_headers(raw, 1, path, NULL, NULL, 0);
    rpc_raw_message(raw, 1, 0, MIB, NULL, 0, 0);
    for (unsigned i = 0; i < 121; i++) {
        rpc_raw_frame(raw, FRAME_DATA, 0, 1, "x", 1);
        rpc_stand_advance(raw->stand, MUSTER_NS_PER_S);
    }
}

static void a_dribbled_message(struct rpc_raw *raw)
{
    dribble_message(raw, "/t/Echo");
}

static void a_dribbled_message_of_a_stream(struct rpc_raw *raw)
{
    dribble_message(raw, "/t/Take");
}

static void a_request_without_an_end(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_headers(raw, 1, "/t/Echo", NULL, NULL, 0);
    rpc_stand_advance(raw->stand, 121 * MUSTER_NS_PER_S);
}

/* Readers. */

static void no_window(struct rpc_raw *raw)
{
    struct rpc_stand *stand = raw->stand;
    static const uint32_t entries[1][2] = {{4, 0}};
    unsigned refused = 0;

    rpc_raw_greet(raw, entries, 1);
    for (uint32_t i = 0; i < 100; i++)
        rpc_raw_ask(raw, 2 * i + 1, "/t/Give");
    rpc_stand_advance(stand, 0);
    for (uint32_t i = 0; i < 100; i++)
        refused += rpc_raw_status(raw, 2 * i + 1) == MUSTER_RESOURCE_EXHAUSTED;
    assert_true(refused > 90 && refused < 100); /* a MiB each, 8 MiB for all */
    rpc_stand_advance(stand, 121 * MUSTER_NS_PER_S);
    assert_int_equal(stand->ended, 101);
}

static void window_dribble(struct rpc_raw *raw)
{
    static const uint32_t entries[1][2] = {{4, 1}};

    rpc_raw_greet(raw, entries, 1);
    rpc_raw_ask(raw, 1, "/t/Give");
    for (unsigned i = 0; i < 121; i++) {
        rpc_raw_window(raw, 1, 1);
        rpc_stand_advance(raw->stand, MUSTER_NS_PER_S);
    }
    assert_true(rpc_raw_data_bytes(raw, 1) < 200);
}

static void a_socket_unread(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_window(raw, 0, 0x7fff0000);
    raw->played.is_stuck = true;
    for (uint32_t i = 0; i < 100; i++) {
        rpc_raw_ask(raw, 2 * i + 1, "/t/Give");
        rpc_stand_advance(raw->stand, 0);
    }
    rpc_stand_advance(raw->stand, 121 * MUSTER_NS_PER_S);
}

static void streams_unread(struct rpc_raw *raw)
{
    static const uint32_t entries[1][2] = {{4, 0}};

    rpc_raw_greet(raw, entries, 1);
    for (uint32_t i = 0; i < 100; i++)
        rpc_raw_ask(raw, 2 * i + 1, "/t/Pour");
    rpc_stand_advance(raw->stand, 0);
}

#define CALM MUSTER_H2_ENHANCE_YOUR_CALM
#define NONE RPC_ATTACK_NOTHING
#define ANY  RPC_ATTACK_ANY
static const struct rpc_attack attacks[] = {
    {"silence", stay_silent, 256 * KIB, NONE, NONE, NONE, false},
    {"half a preface", half_a_preface, 256 * KIB, NONE, NONE, NONE, false},
    {"a preface alone", a_preface_alone, 256 * KIB, NONE, NONE, NONE, false},
    {"another protocol", another_protocol, 256 * KIB, MUSTER_H2_PROTOCOL_ERROR, NONE, NONE, false},
    {"half of the headers", half_of_the_headers, 256 * KIB, CALM, NONE, NONE, false},
    {"a dribbled message", a_dribbled_message, 256 * KIB, NONE, MUSTER_H2_NO_ERROR,
     MUSTER_DEADLINE_EXCEEDED, true},
    {"a dribbled message of a stream", a_dribbled_message_of_a_stream, 256 * KIB, NONE,
     MUSTER_H2_NO_ERROR, MUSTER_DEADLINE_EXCEEDED, true},
    {"a request without an end", a_request_without_an_end, 256 * KIB, NONE, MUSTER_H2_NO_ERROR,
     MUSTER_DEADLINE_EXCEEDED, true},
    {"no window", no_window, 10 * MIB, NONE, MUSTER_H2_CANCEL, NONE, true},
    {"window dribble", window_dribble, 2 * MIB, NONE, MUSTER_H2_CANCEL, NONE, true},
    {"a socket that is not read", a_socket_unread, 12 * MIB, ANY, ANY, ANY, false},
    {"streams that are not read", streams_unread, 10 * MIB, NONE, NONE, NONE, true},
};

int main(void)
{
    return rpc_attacks_run(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
