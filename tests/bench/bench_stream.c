/* Streams over loopback TCP between two processes, beside a plain sendmsg/recv loop: one-way rate
 * and ping-pong time. One JSON object per line. */
#include <muster/env.h>
#include <muster/stream.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net/stream/net_internal.h"
#include "bench_clock.h"

#define BUFFER_BYTES    (4u << 20)
#define ONE_WAY_BYTES   (512u << 20)
#define PING_PONG_BYTES (128u << 20)
#define QUEUE_LENGTH    4
#define ROUNDS          5

enum mode { ONE_WAY, PING_PONG };

struct run {
    enum mode mode;
    size_t chunk_bytes;
    size_t chunk_count;
    int listener;
    union muster_sockaddr address;
    socklen_t address_bytes;
};

static const struct muster_stream_options options = {.send_buffer_bytes = BUFFER_BYTES,
                                                     .receive_buffer_bytes = BUFFER_BYTES};

static void require_that(bool holds, const char *what)
{
    if (holds)
        return;
    perror(what);
    exit(1);
}

static uint8_t *make_chunks(size_t bytes)
{
    uint8_t *chunks = malloc(bytes);

    require_that(chunks != NULL, "malloc");
    memset(chunks, 0x5a, bytes);
    return chunks;
}

/* Plain sockets. */

static void make_blocking(int fd)
{
    require_that(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0, "fcntl");
}

static void plain_send(int fd, uint8_t *chunk, size_t bytes)
{
    struct iovec iov = {chunk, bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    while (iov.iov_len > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);

        require_that(sent > 0, "sendmsg");
        iov.iov_base = (uint8_t *)iov.iov_base + sent;
        iov.iov_len -= (size_t)sent;
    }
}

static void plain_receive(int fd, uint8_t *chunk, size_t bytes)
{
    while (bytes > 0) {
        ssize_t received = recv(fd, chunk, bytes, 0);

        require_that(received > 0, "recv");
        chunk += received;
        bytes -= (size_t)received;
    }
}

static void plain_serve(const struct run *run)
{
    uint8_t *chunk = make_chunks(run->chunk_bytes);
    int fd = muster_socket_new(MUSTER_ADDRESS_IPV4, &options);
    size_t i;

    make_blocking(fd);
    require_that(connect(fd, &run->address.any, run->address_bytes) == 0, "connect");
    for (i = 0; i < run->chunk_count; i++) {
        plain_receive(fd, chunk, run->chunk_bytes);
        if (run->mode == PING_PONG)
            plain_send(fd, chunk, run->chunk_bytes);
    }
    plain_send(fd, chunk, 1);
    close(fd);
    free(chunk);
}

static double plain_drive(const struct run *run, int fd)
{
    uint8_t *chunk = make_chunks(run->chunk_bytes);
    double start_s;
    size_t i;

    make_blocking(fd);
    start_s = bench_clock_s();
    for (i = 0; i < run->chunk_count; i++) {
        plain_send(fd, chunk, run->chunk_bytes);
        if (run->mode == PING_PONG)
            plain_receive(fd, chunk, run->chunk_bytes);
    }
    plain_receive(fd, chunk, 1);
    close(fd);
    free(chunk);
    return bench_clock_s() - start_s;
}

/* Streams. */

struct side {
    const struct run *run;
    struct muster_env *env;
    struct muster_stream *stream;
    struct muster_connect connect;
    struct muster_stream_read read;
    struct muster_stream_write writes[QUEUE_LENGTH];
    struct iovec iov, last;
    uint8_t *chunk;
    size_t sent_count, received_count;
    bool is_driver;
    bool is_finished;
    bool is_closed;
};

static void send_chunk(struct side *side, struct muster_stream_write *write);

static void on_sent(struct muster_stream_write *write, enum muster_rc rc)
{
    struct side *side = write->data;

    require_that(rc == MUSTER_OK, "write");
    if (side->is_driver && side->run->mode == ONE_WAY && side->sent_count < side->run->chunk_count)
        send_chunk(side, write);
    else if (!side->is_driver && side->received_count == side->run->chunk_count)
        side->is_finished = write->bytes_total == 1;
}

static void send_chunk(struct side *side, struct muster_stream_write *write)
{
    write->data = side;
    side->sent_count++;
    require_that(muster_stream_submit(write, side->stream, &side->iov, 1, on_sent) == MUSTER_OK,
                 "submit");
}

static void receive_chunk(struct side *side, size_t bytes);

static void on_received(struct muster_stream_read *read, enum muster_rc rc)
{
    struct side *side = read->data;
    const struct run *run = side->run;

    require_that(rc == MUSTER_OK, "read");
    if (side->is_driver && (run->mode == ONE_WAY || side->received_count == run->chunk_count)) {
        side->is_finished = true;
        return;
    }
    side->received_count++;
    if (run->mode == PING_PONG && (!side->is_driver || side->sent_count < run->chunk_count))
        send_chunk(side, &side->writes[0]);
    if (side->received_count < run->chunk_count)
        receive_chunk(side, run->chunk_bytes);
    else if (side->is_driver)
        receive_chunk(side, 1);
    else {
        side->writes[1].data = side;
        require_that(muster_stream_submit(&side->writes[1], side->stream, &side->last, 1,
                                          on_sent) == MUSTER_OK,
                     "submit");
    }
}

static void receive_chunk(struct side *side, size_t bytes)
{
    side->read.data = side;
    require_that(muster_stream_receive_into(&side->read, side->stream, side->chunk, bytes, bytes,
                                            on_received) == MUSTER_OK,
                 "receive");
}

static void on_closed(struct muster_stream *stream)
{
    ((struct side *)stream->data)->is_closed = true;
}

static void side_open(struct side *side, const struct run *run, bool is_driver)
{
    memset(side, 0, sizeof(*side));
    side->run = run;
    side->is_driver = is_driver;
    side->chunk = make_chunks(run->chunk_bytes);
    side->iov = (struct iovec){side->chunk, run->chunk_bytes};
    side->last = (struct iovec){side->chunk, 1};
    require_that(muster_env_system_open(NULL, &side->env) == MUSTER_OK, "env");
    require_that(muster_net_system_open(side->env, &side->env->net) == MUSTER_OK, "net");
}

static void side_finish(struct side *side)
{
    while (!side->is_finished)
        muster_loop_turn(side->env->loop, UINT64_MAX);
}

static void side_close(struct side *side)
{
    side->stream->data = side;
    muster_stream_close(side->stream, on_closed);
    while (!side->is_closed)
        muster_loop_turn(side->env->loop, UINT64_MAX);
    muster_net_system_close(side->env->net);
    muster_env_system_close(side->env);
    free(side->chunk);
}

static void on_connected(struct muster_connect *connect, enum muster_rc rc)
{
    struct side *side = connect->data;

    require_that(rc == MUSTER_OK, "connect");
    side->stream = connect->stream;
    receive_chunk(side, side->run->chunk_bytes);
}

static void muster_serve(const struct run *run)
{
    struct muster_address address = muster_sockaddr_to_address(&run->address, run->address_bytes);
    struct side side;

    side_open(&side, run, false);
    side.connect.data = &side;
    require_that(muster_connect_start(&side.connect, side.env->net, &address, &options, UINT64_MAX,
                                      on_connected) == MUSTER_OK,
                 "connect");
    side_finish(&side);
    side_close(&side);
}

static double muster_drive(const struct run *run, int fd)
{
    struct side side;
    double start_s, end_s;
    size_t i;

    side_open(&side, run, true);
    muster_socket_set_options(fd, MUSTER_ADDRESS_IPV4, &options);
    require_that(muster_stream_socket_open(side.env, fd, &side.stream) == MUSTER_OK, "stream");
    start_s = bench_clock_s();
    receive_chunk(&side, run->mode == PING_PONG ? run->chunk_bytes : 1);
    for (i = 0; i < (run->mode == PING_PONG ? 1 : QUEUE_LENGTH); i++)
        send_chunk(&side, &side.writes[i]);
    side_finish(&side);
    end_s = bench_clock_s();
    side_close(&side);
    return end_s - start_s;
}

/* Both, side by side. */

typedef void serve_fn(const struct run *run);
typedef double drive_fn(const struct run *run, int fd);

static double measure_run(struct run *run, serve_fn *serve, drive_fn *drive)
{
    struct muster_address loopback;
    pid_t child;
    double seconds;
    int status;
    int fd;

    require_that(muster_address_parse("127.0.0.1:0", &loopback, NULL) == MUSTER_OK, "address");
    require_that(muster_socket_listen(&loopback, &options, &run->listener, NULL) == MUSTER_OK,
                 "listen");
    run->address_bytes = sizeof(run->address);
    require_that(getsockname(run->listener, &run->address.any, &run->address_bytes) == 0,
                 "getsockname");
    child = fork();
    require_that(child >= 0, "fork");
    if (child == 0) {
        close(run->listener);
        serve(run);
        exit(0);
    }
    do
        fd = accept4(run->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0);
    close(run->listener);
    seconds = drive(run, fd);
    require_that(waitpid(child, &status, 0) == child && status == 0, "child");
    return seconds;
}

static int compare_times(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void show_run(const struct run *run, double plain_s, double muster_s)
{
    double bytes = (double)run->chunk_bytes * (double)run->chunk_count;

    if (run->mode == ONE_WAY)
        printf("{\"bench\":\"stream\",\"mode\":\"one_way\",\"chunk_bytes\":%zu,"
               "\"gb_per_s\":%.3f,\"plain_gb_per_s\":%.3f,\"ratio\":%.3f}\n",
               run->chunk_bytes, bytes / muster_s * 1e-9, bytes / plain_s * 1e-9,
               plain_s / muster_s);
    else
        printf("{\"bench\":\"stream\",\"mode\":\"ping_pong\",\"chunk_bytes\":%zu,"
               "\"round_trip_us\":%.2f,\"plain_round_trip_us\":%.2f,\"ratio\":%.3f}\n",
               run->chunk_bytes, muster_s / (double)run->chunk_count * 1e6,
               plain_s / (double)run->chunk_count * 1e6, plain_s / muster_s);
    fflush(stdout);
}

/* The median of interleaved rounds: other work on the machine disturbs both alike. */
static void compare_run(enum mode mode, size_t chunk_bytes)
{
    struct run run = {.mode = mode, .chunk_bytes = chunk_bytes};
    double plain_s[ROUNDS], muster_s[ROUNDS];
    size_t i;

    run.chunk_count = (mode == ONE_WAY ? ONE_WAY_BYTES : PING_PONG_BYTES) / chunk_bytes;
    if (run.chunk_count > 20000)
        run.chunk_count = 20000;
    for (i = 0; i < ROUNDS; i++) {
        plain_s[i] = measure_run(&run, plain_serve, plain_drive);
        muster_s[i] = measure_run(&run, muster_serve, muster_drive);
    }
    qsort(plain_s, ROUNDS, sizeof(double), compare_times);
    qsort(muster_s, ROUNDS, sizeof(double), compare_times);
    show_run(&run, plain_s[ROUNDS / 2], muster_s[ROUNDS / 2]);
}

/* bench_stream [one_way|ping_pong CHUNK_BYTES]: all sizes, or the one named. */
int main(int argc, char **argv)
{
    static const size_t sizes[] = {64, 64 << 10, 256 << 10, 1 << 20};
    size_t i;

    if (argc == 3) {
        compare_run(strcmp(argv[1], "one_way") == 0 ? ONE_WAY : PING_PONG,
                    strtoul(argv[2], NULL, 10));
        return 0;
    }
    for (i = 1; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        compare_run(ONE_WAY, sizes[i]);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        compare_run(PING_PONG, sizes[i]);
    return 0;
}
