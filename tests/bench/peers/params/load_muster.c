/* The load's side of links of muster's parameters. Not its client: 10,000 of them in one process would be what is
 * measured. */
#include "load.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "net/link/peer_version.h"
#include "params/wire/version.h"

#define TABLE       "load"
#define SHARDS      256u
#define FILL_AHEAD  100u
#define PAYLOAD_MAX 65536u

enum { OPEN = 1, OPENED, TABLE_ASK, TABLE_OPEN, PUSH, ACK, PULL, ROWS, MAP = 10, ALIVE = 29 };

struct header {
    uint8_t channel, type;
    uint16_t flags;
    uint32_t payload_bytes;
    uint64_t epoch, step;
    uint32_t lane, sequence, phase, chunk;
    uint64_t offset, descriptor, received;
};

struct hello {
    char magic[4];
    uint32_t version, purpose;
    uint16_t stripe, stripe_count;
    uint64_t incarnation[2];
    char job[64];
    uint64_t session, received;
    uint32_t intent, connection;
    uint64_t target[2];
};

struct open {
    uint64_t source[2];
    char name[64];
    uint64_t generation, process;
    uint32_t link, version;
};

struct schema {
    char name[64];
    uint32_t row_elements, dtype, optimizer, init;
    uint8_t rest[80];
};

struct rows {
    uint64_t slot, clock;
    uint32_t table, row_count;
    uint16_t run_count;
    uint8_t dtype, reserved[5];
};

static uint64_t epoch, slot, descriptor;
static uint32_t table, link_count;

static void bytes_send(int fd, const void *bytes, size_t count)
{
    for (size_t sent = 0; sent < count;) {
        ssize_t some = write(fd, (const char *)bytes + sent, count - sent);

        if (some <= 0)
            load_fail("write");
        sent += (size_t)some;
    }
}

static void bytes_receive(int fd, void *bytes, size_t count)
{
    for (size_t got = 0; got < count;) {
        ssize_t some = read(fd, (char *)bytes + got, count - got);

        if (some <= 0)
            load_fail("the server has hung up");
        got += (size_t)some;
    }
}

static void frame_send(int fd, struct header *header, const void *payload, size_t bytes)
{
    char frame[sizeof(*header) + 256];

    header->channel = (uint8_t)MUSTER_ROWS_FIRST;
    header->payload_bytes = (uint32_t)bytes;
    memcpy(frame, header, sizeof(*header));
    memcpy(frame + sizeof(*header), payload, bytes);
    bytes_send(fd, frame, sizeof(*header) + bytes);
}

/* The next frame of this type. */
static struct header frame_await(int fd, uint8_t type, uint8_t *ret_payload)
{
    struct header header;

    do {
        bytes_receive(fd, &header, sizeof(header));
        if (header.payload_bytes > PAYLOAD_MAX)
            load_fail("a frame is too long");
        bytes_receive(fd, ret_payload, header.payload_bytes);
        if (header.type != type && header.type != MAP) {
            fprintf(stderr, "load: message %u with code %u came: %.*s\n", header.type, header.phase,
                    (int)header.payload_bytes, (const char *)ret_payload);
            exit(1);
        }
    } while (header.type != type);
    return header;
}

/* --- Opening --- */

static void hello_exchange(int fd, uint64_t incarnation)
{
    struct hello hello = {
        .magic = "MSTR", .version = MUSTER_PEER_VERSION, .purpose = 4, .incarnation = {incarnation, 1}};

    bytes_send(fd, &hello, sizeof(hello));
    bytes_receive(fd, &hello, sizeof(hello));
}

void muster_link_open(int fd, unsigned value_bytes)
{
    static uint8_t payload[PAYLOAD_MAX];
    uint64_t source = (uint64_t)getpid() << 32 | ++link_count;
    const struct open open = {.source = {source, 1},
                              .process = 1,
                              .link = 1,
                              .version = MUSTER_PARAMS_MESSAGES_VERSION};
    const struct schema schema = {.name = TABLE, .row_elements = value_bytes / 4, .optimizer = 0};
    struct header header = {.type = OPEN, .flags = 1}; /* it was not open there before */

    hello_exchange(fd, source);
    (void)frame_await(fd, MAP, payload);
    memcpy(&epoch, payload + 8, sizeof(epoch));
    header.epoch = epoch;
    frame_send(fd, &header, &open, sizeof(open));
    (void)frame_await(fd, OPENED, payload);
    memcpy(&slot, payload, sizeof(slot));
    header = (struct header){.type = TABLE_ASK, .epoch = epoch, .offset = 1};
    frame_send(fd, &header, &schema, sizeof(schema));
    header = frame_await(fd, TABLE_OPEN, payload);
    table = header.phase;
    descriptor = header.descriptor;
}

/* --- Rows --- */

static uint32_t shard_of(uint64_t key)
{
    uint64_t hash = key ^ XXH3_64bits(TABLE, strlen(TABLE));

    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    hash ^= hash >> 33;
    return (uint32_t)((hash >> 32) * SHARDS >> 32);
}

/* One row per push: then each is one run. */
static void row_push(FILE *to, uint64_t key, uint64_t sequence, unsigned value_bytes)
{
    static bool is_known[SHARDS];
    struct {
        struct rows rows;
        uint16_t shard, count, reserved[2];
        uint64_t key;
    } payload = {.rows = {.slot = slot, .table = table, .row_count = 1, .run_count = 1},
                 .shard = (uint16_t)shard_of(key),
                 .count = 1,
                 .key = key};
    const struct header header = {.channel = (uint8_t)MUSTER_ROWS_FIRST,
                                  .type = PUSH,
                                  .payload_bytes = (uint32_t)(sizeof(payload) + value_bytes),
                                  .epoch = epoch,
                                  .offset = sequence,
                                  .descriptor = descriptor};

    if (!is_known[payload.shard]) {
        is_known[payload.shard] = true;
        payload.shard |= 0x8000u; /* the source's first to this shard */
    }
    fwrite(&header, sizeof(header), 1, to);
    fwrite(&payload, sizeof(payload), 1, to);
    for (unsigned i = 0; i < value_bytes / 4; i++)
        fwrite(&(float){1}, sizeof(float), 1, to);
}

void muster_rows_fill(int fd, unsigned key_count, unsigned value_bytes)
{
    static uint8_t payload[PAYLOAD_MAX];

    muster_link_open(fd, value_bytes);
    for (unsigned from = 0; from < key_count; from += FILL_AHEAD) {
        unsigned count = key_count - from < FILL_AHEAD ? key_count - from : FILL_AHEAD;
        char *bytes;
        size_t size;
        FILE *to = open_memstream(&bytes, &size);

        for (unsigned i = 0; i < count; i++)
            row_push(to, from + i, from + i + 1, value_bytes);
        fclose(to);
        bytes_send(fd, bytes, size);
        free(bytes);
        for (unsigned acked = 0; acked < count;)
            acked += frame_await(fd, ACK, payload).payload_bytes / 24;
    }
}

void muster_pull_write(FILE *to, const unsigned *keys, unsigned count)
{
    const struct rows rows = {.table = table, .row_count = count};
    const struct header header = {.channel = (uint8_t)MUSTER_ROWS_FIRST,
                                  .type = PULL,
                                  .payload_bytes =
                                      (uint32_t)(sizeof(rows) + count * sizeof(uint64_t)),
                                  .epoch = epoch,
                                  .offset = 1,
                                  .descriptor = descriptor};

    fwrite(&header, sizeof(header), 1, to);
    fwrite(&rows, sizeof(rows), 1, to);
    for (unsigned i = 0; i < count; i++)
        fwrite(&(uint64_t){keys[i]}, sizeof(uint64_t), 1, to);
}

size_t muster_rows_bytes(unsigned count, unsigned value_bytes)
{
    return sizeof(struct header) + (size_t)count * value_bytes;
}

size_t muster_alive_answer(int fd, const char *bytes, size_t count)
{
    struct header header = {.type = ALIVE};

    if (count < 2 || bytes[0] != MUSTER_ROWS_FIRST || bytes[1] != ALIVE)
        return 0;
    if (count < sizeof(header))
        load_fail("a frame came in parts");
    frame_send(fd, &header, "", 0);
    return sizeof(header);
}
