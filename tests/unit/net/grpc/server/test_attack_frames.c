/* Attacks with frames, streams and headers: floods, resets, bombs. */
#include "rpc_attack.h"

#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"

/* Floods of frames. */

static void flood_frames(struct rpc_raw *raw, unsigned count, uint8_t type, uint8_t flags,
                         const void *payload, size_t bytes)
{
    for (unsigned i = 0; i < count && !raw->played.is_closed; i++) {
        rpc_raw_frame(raw, type, flags, 0, payload, bytes);
        if (i % 64 == 63)
            rpc_stand_advance(raw->stand, 0);
    }
}

static void send_continuations(struct rpc_raw *raw)
{
    static uint8_t filler[16 * KIB]; /* indexed :authority, without end */
    uint8_t block[512];
    size_t at = rpc_raw_block_put(block, "/t/Echo");

    rpc_raw_greet(raw, NULL, 0);
    memset(filler, 0x83, sizeof(filler));
    rpc_raw_frame(raw, FRAME_HEADERS, 0, 1, block, at);
    for (unsigned i = 0; i < 1000; i++)
        rpc_raw_frame(raw, FRAME_CONT, 0, 1, i % 2 == 0 ? NULL : filler,
                      i % 2 == 0 ? 0 : sizeof(filler));
}

static void send_pings(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    flood_frames(raw, 20000, FRAME_PING, 0, "12345678", 8);
}

static void pings_unread(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    raw->played.is_stuck = true;
    flood_frames(raw, 20000, FRAME_PING, 0, "12345678", 8);
    rpc_stand_advance(raw->stand, 180 * MUSTER_NS_PER_S);
}

static void settings_unread(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    raw->played.is_stuck = true;
    flood_frames(raw, 20000, FRAME_SETTINGS, 0, NULL, 0);
    rpc_stand_advance(raw->stand, 180 * MUSTER_NS_PER_S);
}

static void settings_read(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    flood_frames(raw, 20000, FRAME_SETTINGS, 0, NULL, 0);
}

static void settings_entries(struct rpc_raw *raw)
{
    static uint8_t entries[6 * 2000];

    rpc_raw_greet(raw, NULL, 0);
    for (size_t i = 0; i < 2000; i++)
        entries[6 * i + 1] = 0x5a;
    rpc_raw_frame(raw, FRAME_SETTINGS, 0, 0, entries, sizeof(entries));
}

static void empty_data(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0);
    for (unsigned i = 0; i < 20000; i++)
        rpc_raw_frame(raw, FRAME_DATA, 0, 1, NULL, 0);
}

static void padding_alone(struct rpc_raw *raw)
{
    static const uint8_t padding[256] = {255};

    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0);
    for (unsigned i = 0; i < 20000; i++) {
        rpc_raw_frame(raw, FRAME_DATA, 8, 1, padding, sizeof(padding));
        if (i % 64 == 63)
            rpc_stand_advance(raw->stand, 0);
    }
}

static void empty_headers(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t id = 1; id < 40000; id += 2) {
        rpc_raw_frame(raw, FRAME_HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, id, NULL, 0);
        if (id % 64 == 1)
            rpc_stand_advance(raw->stand, 0);
    }
}

static void send_priorities(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t parent = 2 * ((i * 7919) % 10000) + 1;
        const uint8_t payload[5] = {0, 0, (uint8_t)(parent >> 8), (uint8_t)parent, 16};

        rpc_raw_frame(raw, FRAME_PRIORITY, 0, 2 * i + 3, payload, 5);
    }
    rpc_stand_advance(raw->stand, 0);
}

static void unknown_frames(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    flood_frames(raw, 20000, 0xbe, 0xff, "grease", 6);
}

/* Resets. */

static void rapid_reset(struct rpc_raw *raw)
{
    struct rpc_stand *stand = raw->stand;

    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t id = 1; id < 40000; id += 2) {
        rpc_raw_headers(raw, id, "/t/Take", NULL, NULL, 0);
        rpc_raw_reset(raw, id, MUSTER_H2_CANCEL);
        if (id % 64 == 1)
            rpc_stand_advance(stand, 0);
    }
    assert_true(stand->started < 1500);
}

static void made_you_reset(struct rpc_raw *raw)
{
    struct rpc_stand *stand = raw->stand;

    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t id = 1; id < 40000; id += 2) {
        rpc_raw_headers(raw, id, "/t/Take", NULL, NULL, 0);
        rpc_raw_window(raw, id, 0x7fffffff); /* an error of the stream */
        if (id % 64 == 1)
            rpc_stand_advance(stand, 0);
    }
    assert_true(stand->started < 1500);
}

static void window_overflow(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_window(raw, 0, 0x7fffffff);
    rpc_raw_window(raw, 0, 0x7fffffff);
}

/* Streams. */

static void more_streams_than_allowed(struct rpc_raw *raw)
{
    struct rpc_stand *stand = raw->stand;

    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t id = 3; id < 2 * 1500; id += 2)
        rpc_raw_headers(raw, id, "/t/Take", NULL, NULL, 0);
    rpc_stand_advance(stand, 0);
    assert_int_equal(stand->started, 1 + 1000);
}

static void the_last_stream_id(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_headers(raw, 0x7fffffff, "/t/Take", NULL, NULL, 0);
    rpc_raw_headers(raw, 1, "/t/Take", NULL, NULL, 0);
}

/* It cannot know the limit before it has seen our SETTINGS: one stream is refused, which a client
 * sends again, and the rest goes on. */
static void more_streams_before_the_settings(struct rpc_raw *raw)
{
    (void)played_stream_feed(&raw->played, H2_PREFACE, sizeof(H2_PREFACE) - 1);
    rpc_raw_frame(raw, FRAME_SETTINGS, 0, 0, NULL, 0);
    for (uint32_t i = 0; i <= 1000; i++)
        rpc_raw_headers(raw, 2 * i + 1, "/t/Take", NULL, NULL, 0);
    rpc_stand_advance(raw->stand, 0);
    assert_int_equal(rpc_raw_reset_code(raw, 2 * 1000 + 1), MUSTER_H2_REFUSED_STREAM);
    assert_int_equal(raw->stand->started, 1001); /* one is the bystander's */
}

static void endless_streams(struct rpc_raw *raw)
{
    struct rpc_stand *stand = raw->stand;

    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_window(raw, 0, 0x70000000);
    for (uint32_t i = 0; i < 20000; i++) {
        rpc_raw_headers(raw, 2 * i + 1, "/t/Echo", NULL, NULL, 0);
        rpc_raw_message(raw, 2 * i + 1, 0, 2, "hi", 2, FLAG_END_STREAM);
        if (i % 64 == 63) {
            rpc_stand_advance(stand, 0);
            if (i > 64)
                raw->played.sent_bytes = 0;
        }
    }
    rpc_stand_advance(stand, 0);
    assert_int_equal(stand->ended, 20001);
}

/* Headers. */

static void hpack_bomb(struct rpc_raw *raw)
{
    static uint8_t block[60000];
    size_t at;

    rpc_raw_greet(raw, NULL, 0);
    at = rpc_raw_block_put(block, "/t/Echo");
    block[at++] = 0x40; /* literal, kept in the table: 3,900 bytes */
    block[at++] = 1;
    block[at++] = 'a';
    block[at++] = 0x7f;
    block[at++] = 0xbd;
    block[at++] = 0x1d;
    memset(block + at, 'v', 3900);
    at += 3900;
    memset(block + at, 0xbe, sizeof(block) - at); /* and 55,000 times again */
    rpc_raw_frame(raw, FRAME_HEADERS, FLAG_END_HEADERS, 1, block, sizeof(block));
    rpc_stand_advance(raw->stand, 0);
}

static void one_huge_header(struct rpc_raw *raw)
{
    static uint8_t block[60000];
    size_t at;

    rpc_raw_greet(raw, NULL, 0);
    at = rpc_raw_block_put(block, "/t/Echo");
    block[at++] = 0x00;
    block[at++] = 1;
    block[at++] = 'a';
    block[at++] = 0x7f; /* 127 + 50,000 */
    block[at++] = 0xd0;
    block[at++] = 0x86;
    block[at++] = 0x03;
    memset(block + at, 'v', 50127);
    at += 50127;
    rpc_raw_frame(raw, FRAME_HEADERS, FLAG_END_HEADERS, 1, block, at);
    rpc_stand_advance(raw->stand, 0);
}

static void many_headers(struct rpc_raw *raw)
{
    uint8_t block[4 * KIB];
    size_t at = rpc_raw_block_put(block, "/t/Echo");

    rpc_raw_greet(raw, NULL, 0);
    for (unsigned i = 0; i < 200; i++)
        at += rpc_raw_header_put(block + at, "x-a", "b");
    rpc_raw_frame(raw, FRAME_HEADERS, FLAG_END_HEADERS, 1, block, at);
    rpc_stand_advance(raw->stand, 0);
}

#define CALM MUSTER_H2_ENHANCE_YOUR_CALM
#define NONE RPC_ATTACK_NOTHING
#define ANY  RPC_ATTACK_ANY
static const struct rpc_attack attacks[] = {
    {"continuations", send_continuations, 256 * KIB, CALM, ANY, NONE, false},
    {"pings", send_pings, 256 * KIB, CALM, NONE, NONE, false},
    {"pings whose answers are not read", pings_unread, 512 * KIB, ANY, NONE, NONE, false},
    {"settings whose answers are not read", settings_unread, 512 * KIB, ANY, NONE, NONE, false},
    {"settings", settings_read, 256 * KIB, CALM, NONE, NONE, false},
    {"settings with many entries", settings_entries, 256 * KIB, CALM, NONE, NONE, false},
    {"empty DATA", empty_data, 256 * KIB, CALM, ANY, NONE, false},
    {"DATA of padding alone", padding_alone, 256 * KIB, CALM, ANY, NONE, false},
    {"empty HEADERS", empty_headers, 512 * KIB, CALM, MUSTER_H2_PROTOCOL_ERROR, NONE, false},
    {"priorities", send_priorities, 256 * KIB, NONE, NONE, NONE, true},
    {"frames of an unknown type", unknown_frames, 256 * KIB, NONE, NONE, NONE, true},
    {"rapid reset", rapid_reset, 512 * KIB, CALM, NONE, NONE, false},
    {"made you reset", made_you_reset, 512 * KIB, CALM, MUSTER_H2_FLOW_CONTROL_ERROR, NONE, false},
    {"a window beyond 2^31", window_overflow, 256 * KIB, MUSTER_H2_FLOW_CONTROL_ERROR, NONE, NONE,
     false},
    {"more streams than allowed", more_streams_than_allowed, 8 * MIB, MUSTER_H2_PROTOCOL_ERROR,
     NONE, NONE, false},
    {"the last stream id first", the_last_stream_id, 256 * KIB, MUSTER_H2_PROTOCOL_ERROR, NONE,
     NONE, false},
    {"more streams before the settings", more_streams_before_the_settings, 8 * MIB, NONE, NONE,
     NONE, true},
    {"streams without end", endless_streams, 1 * MIB, ANY, ANY, ANY, true},
    {"HPACK bomb", hpack_bomb, 256 * KIB, CALM, CALM, NONE, false},
    {"one huge header", one_huge_header, 256 * KIB, NONE, CALM, NONE, true},
    {"many headers", many_headers, 256 * KIB, NONE, MUSTER_H2_NO_ERROR, MUSTER_RESOURCE_EXHAUSTED,
     true},
};

int main(void)
{
    return rpc_attacks_run(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
