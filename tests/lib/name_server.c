/* Answers of a name server, byte by byte. */
#include "name_server.h"

#include "test_env.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TYPE_A     1
#define TYPE_AAAA  28
#define TYPE_SRV   33
#define PACKET_MAX 512

/* RFC 1035 4.1, one question per packet. */

struct packet {
    uint8_t bytes[PACKET_MAX];
    size_t count;
};

static void packet_put16(struct packet *packet, unsigned value)
{
    assert_true(packet->count + 2 <= PACKET_MAX);
    packet->bytes[packet->count++] = (uint8_t)(value >> 8);
    packet->bytes[packet->count++] = (uint8_t)value;
}

static void put_bytes(struct packet *packet, const void *bytes, size_t count)
{
    assert_true(packet->count + count <= PACKET_MAX);
    memcpy(packet->bytes + packet->count, bytes, count);
    packet->count += count;
}

/* A record whose name is the question's. */
static void put_record(struct packet *packet, unsigned type, const void *data, size_t bytes)
{
    packet_put16(packet, 0xc00c);
    packet_put16(packet, type);
    packet_put16(packet, 1);
    packet_put16(packet, 0);
    packet_put16(packet, 60);
    packet_put16(packet, (unsigned)bytes);
    put_bytes(packet, data, bytes);
    packet->bytes[7]++;
}

static void put_service(struct packet *packet, unsigned priority, unsigned weight, unsigned port,
                        const char *label)
{
    struct packet data = {.count = 0};

    packet_put16(&data, priority);
    packet_put16(&data, weight);
    packet_put16(&data, port);
    data.bytes[data.count++] = (uint8_t)strlen(label);
    put_bytes(&data, label, strlen(label));
    data.bytes[data.count++] = 0;
    put_record(packet, TYPE_SRV, data.bytes, data.count);
}

static void put_answers(struct packet *packet, unsigned type)
{
    static const uint8_t first[4] = {10, 1, 2, 3}, second[4] = {10, 1, 2, 4};
    static const uint8_t third[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 7};

    if (type == TYPE_A) {
        put_record(packet, TYPE_A, first, 4);
        put_record(packet, TYPE_A, second, 4);
    } else if (type == TYPE_AAAA) {
        put_record(packet, TYPE_AAAA, third, 16);
    } else if (type == TYPE_SRV) {
        put_service(packet, 20, 1, 2382, "late");
        put_service(packet, 10, 1, 2380, "light");
        put_service(packet, 10, 9, 2379, "heavy");
    }
}

static void on_query(struct muster_fd_watch *watch, unsigned ready)
{
    struct name_server *server = watch->data;
    struct sockaddr_in from;
    socklen_t length = sizeof(from);
    struct packet packet = {.count = 0};
    ssize_t count =
        recvfrom(watch->fd, packet.bytes, PACKET_MAX, 0, (struct sockaddr *)&from, &length);
    size_t at = 12;
    unsigned type;

    (void)ready;
    assert_true(count > 16);
    server->query_count++;
    if (server->mood == IS_SILENT)
        return;
    while (packet.bytes[at] != 0)
        at += packet.bytes[at] + 1u;
    type = (unsigned)packet.bytes[at + 1] << 8 | packet.bytes[at + 2];
    packet.count = at + 5;
    packet.bytes[2] = 0x81; /* an answer, recursion as asked for */
    packet.bytes[3] = server->mood == SAYS_NO_SUCH_NAME ? 0x83
                      : server->mood == FAILS           ? 0x82
                                                        : 0x80;
    memset(packet.bytes + 6, 0, 6);
    if (server->mood == ANSWERS)
        put_answers(&packet, type);
    assert_int_equal(
        sendto(watch->fd, packet.bytes, packet.count, 0, (struct sockaddr *)&from, length),
        (ssize_t)packet.count);
}

void name_server_open(struct name_server *server, struct muster_env *env)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);

    *server = (struct name_server){.mood = ANSWERS};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->watch.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->watch.fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(server->watch.fd, (struct sockaddr *)&address, &length), 0);
    server->watch.data = server;
    server->watch.on_ready = on_query;
    server->watch.wanted = MUSTER_FD_READ;
    assert_int_equal(muster_fd_watch_open(&server->watch, env->loop), MUSTER_OK);
    snprintf(server->address, sizeof(server->address), "127.0.0.1:%u", ntohs(address.sin_port));
}

void name_server_close(struct name_server *server)
{
    muster_fd_watch_close(&server->watch);
    close(server->watch.fd);
}
