/* Attacks with messages: lengths that lie, bombs of gzip and protobuf. */
#include "rpc_attack.h"

#include <stdlib.h>
#include <string.h>

#include "net/grpc/gzip.h"
#include "net/grpc/status.h"

/* The tags of the fields of sample.Tree. */
#define NAME_TAG  0x0a
#define CHILD_TAG 0x1a

static void send_message(struct rpc_raw *raw, const char *path, const char *encoding,
                         size_t claimed, const void *bytes, size_t count)
{
    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_headers(raw, 1, path, NULL, encoding, 0);
    rpc_raw_message(raw, 1, encoding != NULL, claimed, bytes, count, FLAG_END_STREAM);
    rpc_stand_advance(raw->stand, 0);
}

static void a_length_of_4_gib(struct rpc_raw *raw)
{
    send_message(raw, "/t/Echo", NULL, 0xffffffff, "hi", 2);
}

static void a_length_beyond_the_bytes(struct rpc_raw *raw)
{
    send_message(raw, "/t/Echo", NULL, 4 * MIB, "hi", 2);
}

static void many_lengths_beyond_the_bytes(struct rpc_raw *raw)
{
    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t i = 1; i < 1000; i++) {
        rpc_raw_headers(raw, 2 * i + 1, "/t/Take", NULL, NULL, 0);
        rpc_raw_message(raw, 2 * i + 1, 0, 4 * MIB, "hi", 2, 0);
    }
    rpc_stand_advance(raw->stand, 0);
}

static void partial_messages(struct rpc_raw *raw)
{
    static const uint8_t block[60 * KIB];

    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t i = 0; i < 100; i++) {
        rpc_raw_headers(raw, 2 * i + 1, "/t/Take", NULL, NULL, 0);
        rpc_raw_message(raw, 2 * i + 1, 0, 2 * MIB, block, sizeof(block), 0);
        for (unsigned k = 0; k < 16; k++) {
            rpc_raw_frame(raw, FRAME_DATA, 0, 2 * i + 1, block, sizeof(block));
            rpc_stand_advance(raw->stand, 0);
        }
    }
    assert_int_equal(rpc_raw_status(raw, 199), MUSTER_RESOURCE_EXHAUSTED);
}

/* Zeros. Returns the size of the bomb. */
static size_t pack_zeros(size_t plain_bytes, uint8_t *bomb, size_t bomb_bytes_max)
{
    void *plain = calloc(1, plain_bytes);
    const struct iovec piece = {plain, plain_bytes};
    size_t count = 0;

    assert_int_equal(
        muster_grpc_gzip_deflate(muster_mem_system(), &piece, 1, bomb, bomb_bytes_max, &count),
        MUSTER_OK);
    free(plain);
    return count;
}

static void a_gzip_bomb(struct rpc_raw *raw)
{
    static uint8_t bomb[60 * KIB];
    size_t count = pack_zeros(32 * MIB, bomb, sizeof(bomb));

    send_message(raw, "/t/Echo", "gzip", count, bomb, count);
}

/* One goes on while others are served. */
static void a_gzip_bomb_that_takes_its_time(struct rpc_raw *raw)
{
    static uint8_t bomb[60 * KIB];
    size_t count = pack_zeros(32 * MIB, bomb, sizeof(bomb));
    struct rpc_raw *other = rpc_raw_open(raw->stand);

    rpc_raw_greet(raw, NULL, 0);
    rpc_raw_headers(raw, 1, "/t/Echo", NULL, "gzip", 0);
    rpc_raw_message(raw, 1, 1, count, bomb, count, FLAG_END_STREAM);
    rpc_raw_ask(other, 1, "/t/Echo");
    for (unsigned turns = 0; turns < 4; turns++)
        virtual_loop_turn(&raw->stand->loop);

    assert_int_equal(rpc_raw_status(other, 1), MUSTER_OK);
    assert_int_equal(rpc_raw_status(raw, 1), RPC_ATTACK_NOTHING);
    for (unsigned turns = 0; turns < 8; turns++)
        virtual_loop_turn(&raw->stand->loop);
    assert_int_equal(rpc_raw_status(raw, 1), RPC_ATTACK_NOTHING);
}

/* Unary requests, each whole but for the end of its stream. */
static void gzip_bombs_that_wait(struct rpc_raw *raw)
{
    static uint8_t bomb[8 * KIB];
    size_t count = pack_zeros(1 * MIB, bomb, sizeof(bomb));

    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t i = 0; i < 100; i++) {
        rpc_raw_headers(raw, 2 * i + 1, "/t/Echo", NULL, "gzip", 0);
        rpc_raw_message(raw, 2 * i + 1, 1, count, bomb, count, 0);
    }
    rpc_stand_advance(raw->stand, 0);
    assert_int_equal(rpc_raw_status(raw, 199), MUSTER_RESOURCE_EXHAUSTED);
}

/* Messages that the service has had leave nothing behind. */
static void gzip_bombs_that_are_over(struct rpc_raw *raw)
{
    static uint8_t bomb[8 * KIB];
    size_t count = pack_zeros(1 * MIB, bomb, sizeof(bomb));

    rpc_raw_greet(raw, NULL, 0);
    for (uint32_t i = 0; i < 100; i++) {
        rpc_raw_headers(raw, 2 * i + 1, "/t/Take", NULL, "gzip", 0);
        rpc_raw_message(raw, 2 * i + 1, 1, count, bomb, count, 0);
        rpc_stand_advance(raw->stand, 0);
    }
    assert_int_equal(raw->stand->messages, 101); /* and one of the bystander */
    assert_int_equal(rpc_raw_status(raw, 199), RPC_ATTACK_NOTHING);
}

static void no_gzip(struct rpc_raw *raw)
{
    send_message(raw, "/t/Echo", "gzip", 4, "gzip", 4);
}

/* Tree is message Tree { repeated Tree children = ...; }: see guard_sample.proto. */
static void a_deep_message(struct rpc_raw *raw)
{
    static uint8_t bytes[32 * KIB];
    size_t at = sizeof(bytes), inner = 0;

    while (at > 4) { /* from the inside out: each level holds all that is behind it */
        size_t before = at;

        if (inner >= 16384)
            break;
        if (inner >= 128) {
            bytes[--at] = (uint8_t)(inner >> 7);
            bytes[--at] = (uint8_t)(inner | 0x80);
        } else {
            bytes[--at] = (uint8_t)inner;
        }
        bytes[--at] = CHILD_TAG;
        inner += before - at;
    }
    send_message(raw, "/t/Proto", NULL, sizeof(bytes) - at, bytes + at, sizeof(bytes) - at);
}

static void unknown_fields(struct rpc_raw *raw)
{
    static uint8_t bytes[60 * KIB];

    for (size_t i = 0; i + 1 < sizeof(bytes); i += 2)
        bytes[i] = 0x78; /* field 15, a varint of 0 */
    send_message(raw, "/t/Proto", NULL, sizeof(bytes), bytes, sizeof(bytes));
}

static void empty_children(struct rpc_raw *raw)
{
    static uint8_t bytes[60 * KIB];

    for (size_t i = 0; i + 1 < sizeof(bytes); i += 2)
        bytes[i] = CHILD_TAG;
    send_message(raw, "/t/Proto", NULL, sizeof(bytes), bytes, sizeof(bytes));
}

static void invalid_utf8(struct rpc_raw *raw)
{
    static const uint8_t bytes[] = {NAME_TAG, 2, 0xc0, 0xaf};

    send_message(raw, "/t/Proto", NULL, sizeof(bytes), bytes, sizeof(bytes));
}

#define NONE RPC_ATTACK_NOTHING
#define ANY  RPC_ATTACK_ANY
static const struct rpc_attack attacks[] = {
    {"a length of 4 GiB", a_length_of_4_gib, 256 * KIB, NONE, NONE, MUSTER_RESOURCE_EXHAUSTED,
     true},
    {"a length beyond the bytes", a_length_beyond_the_bytes, 256 * KIB, NONE, NONE, MUSTER_INTERNAL,
     true},
    {"many lengths beyond the bytes", many_lengths_beyond_the_bytes, 8 * MIB, NONE, NONE, NONE,
     true},
    {"messages in pieces", partial_messages, 14 * MIB, NONE, NONE, NONE, true},
    /* at most 4 MiB come out; what the server keeps for later is counted too */
    {"gzip bomb", a_gzip_bomb, 16 * MIB, NONE, NONE, MUSTER_RESOURCE_EXHAUSTED, true},
    {"gzip bomb that takes its time", a_gzip_bomb_that_takes_its_time, 16 * MIB, NONE, NONE,
     MUSTER_RESOURCE_EXHAUSTED, true},
    {"gzip bombs that wait", gzip_bombs_that_wait, 32 * MIB, NONE, ANY, ANY, true},
    {"gzip bombs that are over", gzip_bombs_that_are_over, 4 * MIB, NONE, NONE, NONE, true},
    {"no gzip", no_gzip, 256 * KIB, NONE, NONE, MUSTER_INTERNAL, true},
    {"a deep message", a_deep_message, 512 * KIB, NONE, NONE, MUSTER_RESOURCE_EXHAUSTED, true},
    {"unknown fields", unknown_fields, 1 * MIB, NONE, NONE, MUSTER_OK, true},
    {"empty children", empty_children, 2 * MIB, NONE, NONE, MUSTER_RESOURCE_EXHAUSTED, true},
    {"invalid UTF-8", invalid_utf8, 256 * KIB, NONE, NONE, MUSTER_INVALID_ARGUMENT, true},
};

int main(void)
{
    return rpc_attacks_run(attacks, sizeof(attacks) / sizeof(attacks[0]));
}
