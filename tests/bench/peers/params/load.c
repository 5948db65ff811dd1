/* Pipelined load for key-value servers: requests made beforehand with keys drawn evenly, replies of known
 * size counted. It says "ready"; each line that comes in starts a run over the same connections, and is answered by
 * one JSON line: of this run, and the p99 of all runs since the last line "warm". For params_table.
 * usage: load redis|memcached|muster write|read PORT CONNECTIONS DEPTH BATCH VALUE_BYTES KEYS SECONDS RATE
 * RATE: messages per second of all connections, at moments drawn at random (a Poisson process), 0: as fast as they
 * are answered. muster has only reads here. */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUESTS   512u
#define FILL_BATCH 100u
#define SAMPLE_MAX (8u << 20)
#define EVENTS_MAX 256

struct request {
    char *bytes;
    size_t count;
};

struct connection {
    int fd;
    const struct request *sending; /* NULL: nothing is left to send */
    size_t sent;
    uint32_t first, waiting; /* of start_ns, a ring */
    uint64_t *start_ns;
    size_t received; /* of the reply that comes */
    bool wants_write;
};

static bool is_redis, is_muster, is_write;
static unsigned batch, depth, connection_count, value_bytes, key_count;
static uint64_t random_state = 1, rate;
static struct request requests[REQUESTS];
static char reply[1 << 20];
static size_t reply_bytes;
static char reply_first;
static struct connection *connections;
static int poller;
static uint64_t answered, in_time, end_ns;
static unsigned running;
static bool is_stopping;
static uint32_t *samples_ns;
static size_t sample_count, run_first; /* those of the run begin at run_first */
static uint64_t late_max_ns;           /* between when a message was due and when it was sent */

void load_fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* --- Requests and replies --- */

static void value_write(FILE *to)
{
    for (unsigned i = 0; i < value_bytes; i++)
        fputc('x', to);
    fputs("\r\n", to);
}

static void redis_write(FILE *to, const unsigned *keys, bool is_writing)
{
    const char *name = is_writing ? batch > 1 ? "MSET" : "SET" : batch > 1 ? "MGET" : "GET";

    fprintf(to, "*%u\r\n$%zu\r\n%s\r\n", 1 + batch * (is_writing ? 2 : 1), strlen(name), name);
    for (unsigned i = 0; i < batch; i++) {
        fprintf(to, "$8\r\nk%07u\r\n", keys[i]);
        if (is_writing) {
            fprintf(to, "$%u\r\n", value_bytes);
            value_write(to);
        }
    }
}

/* Writes are quiet; mn is answered when all are done (protocol.txt, Meta No-Op). */
static void memcached_write(FILE *to, const unsigned *keys, bool is_writing)
{
    if (!is_writing)
        fputs("get", to);
    for (unsigned i = 0; i < batch; i++) {
        if (!is_writing) {
            fprintf(to, " k%07u", keys[i]);
            continue;
        }
        fprintf(to, "ms k%07u %u q\r\n", keys[i], value_bytes);
        value_write(to);
    }
    fputs(is_writing ? "mn\r\n" : "\r\n", to);
}

static struct request request_make(const unsigned *keys, bool is_writing)
{
    struct request request;
    FILE *to = open_memstream(&request.bytes, &request.count);

    if (is_muster)
        muster_pull_write(to, keys, batch);
    else
        (is_redis ? redis_write : memcached_write)(to, keys, is_writing);
    fclose(to);
    return request;
}

static void reply_describe(bool is_writing)
{
    char line[64];
    size_t row;

    if (is_muster) {
        reply_bytes = muster_rows_bytes(batch, value_bytes);
        reply_first = MUSTER_ROWS_FIRST;
    } else if (is_redis) {
        row = (size_t)snprintf(line, sizeof(line), "$%u\r\n", value_bytes) + value_bytes + 2;
        reply_bytes = is_writing ? 5 : row * batch;
        if (!is_writing && batch > 1)
            reply_bytes += (size_t)snprintf(line, sizeof(line), "*%u\r\n", batch);
        reply_first = is_writing ? '+' : batch > 1 ? '*' : '$';
    } else {
        row = (size_t)snprintf(line, sizeof(line), "VALUE k0000000 0 %u\r\n", value_bytes) +
              value_bytes + 2;
        reply_bytes = is_writing ? 4 : row * batch + 5;
        reply_first = is_writing ? 'M' : 'V';
    }
}

/* --- Connections --- */

static int connection_dial(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        load_fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return fd;
}

static void rows_fill(uint16_t port)
{
    int fd = connection_dial(port);
    unsigned asked = batch, *keys = calloc(FILL_BATCH, sizeof(*keys));

    batch = FILL_BATCH;
    reply_describe(true);
    if (is_muster)
        muster_rows_fill(fd, key_count, value_bytes);
    for (unsigned from = 0; !is_muster && from < key_count; from += batch) {
        struct request request;
        size_t got = 0;

        for (unsigned i = 0; i < batch; i++)
            keys[i] = (from + i) % key_count;
        request = request_make(keys, true);
        for (size_t sent = 0; sent < request.count;) {
            ssize_t some = write(fd, request.bytes + sent, request.count - sent);
            if (some <= 0)
                load_fail("write");
            sent += (size_t)some;
        }
        while (got < reply_bytes) {
            ssize_t some = read(fd, reply, reply_bytes - got);
            if (some <= 0 || (got == 0 && reply[0] != reply_first))
                load_fail("the server refuses a write");
            got += (size_t)some;
        }
        free(request.bytes);
    }
    batch = asked;
    free(keys);
    close(fd);
}

static void interest_set(struct connection *connection, bool wants_write)
{
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0u),
                                .data.ptr = connection};

    if (connection->wants_write == wants_write)
        return;
    connection->wants_write = wants_write;
    if (epoll_ctl(poller, EPOLL_CTL_MOD, connection->fd, &event) != 0)
        load_fail("epoll_ctl");
}

/* Start messages up to the depth, or one when the load is paced, as far as the socket takes them. */
static void connection_send(struct connection *connection, unsigned allowed, uint64_t start_ns)
{
    for (;;) {
        ssize_t some;

        if (connection->sending == NULL) {
            if (allowed == 0 || is_stopping || connection->waiting == depth)
                break;
            allowed--;
            connection->start_ns[(connection->first + connection->waiting++) % depth] = start_ns;
            connection->sending = &requests[random_next() % REQUESTS];
            connection->sent = 0;
            running++;
        }
        some = write(connection->fd, connection->sending->bytes + connection->sent,
                     connection->sending->count - connection->sent);
        if (some < 0 && errno != EAGAIN)
            load_fail("write");
        connection->sent += some > 0 ? (size_t)some : 0;
        if (connection->sent < connection->sending->count) {
            interest_set(connection, true);
            return;
        }
        connection->sending = NULL;
    }
    interest_set(connection, false);
}

static void note_answer(struct connection *connection)
{
    uint64_t now = now_ns();

    answered++;
    running--;
    if (now <= end_ns) {
        in_time++;
        if (sample_count < SAMPLE_MAX)
            samples_ns[sample_count++] = (uint32_t)(now - connection->start_ns[connection->first]);
    }
    connection->first = (connection->first + 1) % depth;
    connection->waiting--;
}

static void connection_receive(struct connection *connection)
{
    ssize_t some = read(connection->fd, reply, sizeof(reply));
    size_t at = 0;

    if (some == 0 || (some < 0 && errno != EAGAIN))
        load_fail("the server has hung up");
    while (some > 0 && at < (size_t)some) {
        size_t skipped = is_muster && connection->received == 0
                             ? muster_alive_answer(connection->fd, reply + at, (size_t)some - at)
                             : 0;
        size_t left = reply_bytes - connection->received;
        size_t here = left < (size_t)some - at ? left : (size_t)some - at;

        at += skipped;
        if (skipped > 0)
            continue;
        if (connection->received == 0 && reply[at] != reply_first) {
            fprintf(stderr, "load: a reply begins with '%.*s'\n", (int)(here < 40 ? here : 40), reply + at);
            exit(1);
        }
        at += here;
        connection->received += here;
        if (connection->received == reply_bytes) {
            connection->received = 0;
            note_answer(connection);
        }
    }
    if (rate == 0)
        connection_send(connection, depth, now_ns());
}

static void connections_open(uint16_t port)
{
    connections = calloc(connection_count, sizeof(*connections));
    poller = epoll_create1(0);
    for (unsigned i = 0; i < connection_count; i++) {
        struct connection *connection = &connections[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

        connection->fd = connection_dial(port);
        if (is_muster)
            muster_link_open(connection->fd, value_bytes);
        connection->start_ns = calloc(depth, sizeof(*connection->start_ns));
        fcntl(connection->fd, F_SETFL, O_NONBLOCK);
        if (epoll_ctl(poller, EPOLL_CTL_ADD, connection->fd, &event) != 0)
            load_fail("epoll_ctl");
    }
}

/* --- The course --- */

static uint64_t gap_next_ns(void)
{
    return (uint64_t)(-log1p(-(double)(random_next() >> 11) / 9007199254740992.0) * 1e9 /
                      (double)rate);
}

/* The load does not wait for the server: what starts late is measured from when it was due. It looks for answers
 * between some sends, however late it is. */
static void load_pace(uint64_t *due_ns)
{
    for (unsigned tries = 0; tries < EVENTS_MAX; tries++) {
        struct connection *connection = &connections[random_next() % connection_count];
        uint64_t now = now_ns();

        if (*due_ns > now)
            return;
        if (connection->waiting == depth || connection->sending != NULL)
            continue;
        late_max_ns = now - *due_ns > late_max_ns ? now - *due_ns : late_max_ns;
        connection_send(connection, 1, *due_ns);
        *due_ns += gap_next_ns();
    }
}

static void load_run(uint64_t duration_ns)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t begin_ns = now_ns(), due_ns = begin_ns;

    end_ns = begin_ns + duration_ns;
    in_time = answered = late_max_ns = 0;
    run_first = sample_count;
    is_stopping = false;
    for (unsigned i = 0; rate == 0 && i < connection_count; i++)
        connection_send(&connections[i], depth, begin_ns);
    while (!is_stopping || running > 0) {
        int count;

        is_stopping = now_ns() >= end_ns;
        if (rate > 0 && !is_stopping)
            load_pace(&due_ns);
        count = epoll_wait(poller, events, EVENTS_MAX, rate > 0 && !is_stopping ? 0 : 10);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;

            if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
                connection_receive(connection);
            if (events[i].events & EPOLLOUT)
                connection_send(connection, rate == 0 ? depth : 0, now_ns());
        }
    }
}

static int samples_compare(const void *a, const void *b)
{
    uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;

    return (one > other) - (one < other);
}

static double quantile_us(uint32_t *samples, size_t count, double q)
{
    qsort(samples, count, sizeof(*samples), samples_compare);
    return count == 0 ? 0 : samples[(size_t)(q * (double)(count - 1))] / 1e3;
}

static void load_tell(double seconds)
{
    uint32_t *run = samples_ns + run_first;
    size_t run_count = sample_count - run_first;

    printf("{\"messages_per_s\":%.0f,\"ops_per_s\":%.0f,\"rows\":%llu,", (double)in_time / seconds,
           (double)in_time * batch / seconds, (unsigned long long)(answered * batch));
    printf("\"p50_us\":%.1f,\"p99_us\":%.1f,", quantile_us(run, run_count, 0.5),
           quantile_us(run, run_count, 0.99));
    printf("\"all_p99_us\":%.1f,\"late_max_us\":%.1f}\n",
           quantile_us(samples_ns, sample_count, 0.99), (double)late_max_ns / 1e3);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct rlimit files;
    unsigned *keys;
    uint16_t port;
    double seconds;
    char line[16];

    if (argc != 11)
        return 2;
    is_redis = strcmp(argv[1], "redis") == 0;
    is_muster = strcmp(argv[1], "muster") == 0;
    is_write = strcmp(argv[2], "write") == 0;
    port = (uint16_t)atoi(argv[3]);
    connection_count = (unsigned)atoi(argv[4]);
    depth = (unsigned)atoi(argv[5]);
    batch = (unsigned)atoi(argv[6]);
    value_bytes = (unsigned)atoi(argv[7]);
    key_count = (unsigned)atoi(argv[8]);
    seconds = atof(argv[9]);
    rate = strtoull(argv[10], NULL, 10);
    if (is_muster && is_write)
        return 2;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    samples_ns = calloc(SAMPLE_MAX, sizeof(*samples_ns));
    keys = calloc(batch, sizeof(*keys));
    rows_fill(port);
    for (unsigned i = 0; i < REQUESTS; i++) {
        for (unsigned j = 0; j < batch; j++)
            keys[j] = (unsigned)(random_next() % key_count);
        requests[i] = request_make(keys, is_write);
    }
    reply_describe(is_write);
    connections_open(port);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        load_run((uint64_t)(seconds * 1e9));
        load_tell(seconds);
        if (strcmp(line, "warm\n") == 0)
            sample_count = 0;
    }
    return 0;
}
