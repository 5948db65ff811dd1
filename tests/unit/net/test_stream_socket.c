/* A stream on a socket: order, completeness, ends of every kind. The other side is a plain
 * descriptor. */
#include "test_env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/net_internal.h"

#define LARGE_BYTES (6u << 20)

struct fixture {
    struct test_env test;
    struct muster_stream *stream; /* NULL once closed */
    int fd;                       /* the other side; -1 once closed */
    bool is_closed;
};

/* A request and what became of it. */
struct outcome {
    struct fixture *fixture;
    unsigned done_count;
    enum muster_rc rc;
    unsigned order;
};

static unsigned next_order;

static void make_tcp_pair(int fds[2])
{
    union muster_sockaddr address;
    socklen_t length = sizeof(address);
    struct muster_address loopback;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(muster_address_parse("127.0.0.1:0", &loopback, NULL), MUSTER_OK);
    assert_int_equal(bind(listener, &address.any, muster_sockaddr_from(&loopback, &address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, &address.any, &length), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fds[0], &address.any, length), 0);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    close(listener);
}

static void set_nonblocking(int fd)
{
    assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

static void open_fixture(struct fixture *fixture, const int fds[2])
{
    memset(fixture, 0, sizeof(*fixture));
    next_order = 1;
    test_env_open(&fixture->test);
    set_nonblocking(fds[0]);
    set_nonblocking(fds[1]);
    fixture->fd = fds[1];
    assert_int_equal(muster_stream_socket_open(&fixture->test.env, fds[0], &fixture->stream),
                     MUSTER_OK);
    fixture->stream->data = fixture;
}

static int set_up(void **state)
{
    static struct fixture fixture;
    int fds[2];

    make_tcp_pair(fds);
    open_fixture(&fixture, fds);
    *state = &fixture;
    return 0;
}

static int set_up_unix(void **state)
{
    static struct fixture fixture;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_fixture(&fixture, fds);
    *state = &fixture;
    return 0;
}

static void on_closed(struct muster_stream *stream)
{
    struct fixture *fixture = stream->data;

    fixture->is_closed = true;
}

static void close_stream(struct fixture *fixture)
{
    muster_stream_close(fixture->stream, on_closed);
    fixture->stream = NULL;
}

static void close_fd(struct fixture *fixture)
{
    close(fixture->fd);
    fixture->fd = -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    if (fixture->stream != NULL)
        close_stream(fixture);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);
    if (fixture->fd >= 0)
        close_fd(fixture);
    test_env_close(&fixture->test);
    return 0;
}

static void on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    struct outcome *outcome = write->data;

    outcome->done_count++;
    outcome->rc = rc;
    outcome->order = next_order++;
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct outcome *outcome = read->data;

    outcome->done_count++;
    outcome->rc = rc;
    outcome->order = next_order++;
}

static bool is_done(void *data)
{
    return ((struct outcome *)data)->done_count > 0;
}

static void wait_for(struct fixture *fixture, struct outcome *outcome)
{
    test_env_run_until(&fixture->test.env, is_done, outcome);
    assert_int_equal(outcome->done_count, 1);
}

static void submit(struct fixture *fixture, struct muster_stream_write *write,
                   struct outcome *outcome, const struct iovec *iov, size_t count)
{
    write->data = outcome;
    assert_int_equal(muster_stream_submit(write, fixture->stream, iov, count, on_write), MUSTER_OK);
}

static void receive(struct fixture *fixture, struct muster_stream_read *read,
                    struct outcome *outcome, void *buffer, size_t min, size_t max)
{
    read->data = outcome;
    assert_int_equal(muster_stream_receive_into(read, fixture->stream, buffer, min, max, on_read),
                     MUSTER_OK);
}

static struct iovec text_iov(const char *text)
{
    return (struct iovec){(void *)(uintptr_t)text, strlen(text)};
}

static void raw_send(struct fixture *fixture, const char *text)
{
    assert_int_equal(send(fixture->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Reads `count` bytes from the other side while the loop turns. */
static void raw_receive(struct fixture *fixture, void *buffer, size_t count)
{
    size_t done = 0;

    while (done < count) {
        ssize_t got = recv(fixture->fd, (char *)buffer + done, count - done, 0);

        if (got < 0) {
            assert_int_equal(errno, EAGAIN);
            test_env_turn(&fixture->test.env, 1);
            continue;
        }
        assert_true(got > 0);
        done += (size_t)got;
    }
}

static void expect_raw(struct fixture *fixture, const char *text)
{
    char buffer[64];

    raw_receive(fixture, buffer, strlen(text));
    assert_memory_equal(buffer, text, strlen(text));
    assert_int_equal(recv(fixture->fd, buffer, sizeof(buffer), 0), -1);
}

static uint8_t *make_pattern(size_t bytes)
{
    uint8_t *pattern = malloc(bytes);
    uint32_t value = 1;
    size_t i;

    assert_non_null(pattern);
    for (i = 0; i < bytes; i++) {
        value = value * 1664525u + 1013904223u;
        pattern[i] = (uint8_t)(value >> 24);
    }
    return pattern;
}

/* A send buffer so small that a large write must stop in the middle. */
static void shrink_buffers(struct fixture *fixture)
{
    int bytes = 16 * 1024;
    int stream_fd = -1;
    int candidate;
    struct muster_address peer = muster_socket_local(fixture->fd);

    assert_int_equal(setsockopt(fixture->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
    for (candidate = 3; candidate < 64 && stream_fd < 0; candidate++) {
        struct muster_address found = muster_socket_peer(candidate);

        if (muster_address_is_equal(&found, &peer))
            stream_fd = candidate;
    }
    assert_true(stream_fd >= 0);
    assert_int_equal(setsockopt(stream_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
}

/* Writes. */

static void writes_of_one_turn_arrive_in_order_and_complete_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct iovec first[] = {text_iov("ab"), text_iov(""), text_iov("c")};
    struct iovec second[] = {text_iov("de")};
    struct iovec third[] = {text_iov(""), text_iov("fgh"), text_iov("")};
    struct muster_stream_write writes[3];
    struct outcome outcomes[3] = {{.done_count = 0}};

    submit(fixture, &writes[0], &outcomes[0], first, 3);
    submit(fixture, &writes[1], &outcomes[1], second, 1);
    submit(fixture, &writes[2], &outcomes[2], third, 3);
    wait_for(fixture, &outcomes[2]);

    expect_raw(fixture, "abcdefgh");
    assert_int_equal(outcomes[0].order, 1);
    assert_int_equal(outcomes[1].order, 2);
    assert_int_equal(outcomes[2].order, 3);
    assert_int_equal(outcomes[1].rc, MUSTER_OK);
    assert_int_equal(writes[2].bytes_done, 3);
}

static void submit_runs_no_callback_inside(void **state)
{
    struct fixture *fixture = *state;
    struct iovec iov = text_iov("x");
    struct muster_stream_write writes[2];
    struct outcome outcomes[2] = {{.done_count = 0}};

    submit(fixture, &writes[0], &outcomes[0], &iov, 1);
    submit(fixture, &writes[1], &outcomes[1], NULL, 0);
    assert_int_equal(outcomes[0].done_count + outcomes[1].done_count, 0);

    test_env_turn(&fixture->test.env, 1);
    assert_int_equal(outcomes[0].done_count, 1);
    assert_int_equal(outcomes[1].done_count, 1);
    assert_int_equal(outcomes[1].rc, MUSTER_OK);
}

static void more_pieces_than_one_system_call_takes_all_arrive(void **state)
{
    enum { PIECES = 3000 };
    struct fixture *fixture = *state;
    static struct iovec iov[PIECES];
    uint8_t *pattern = make_pattern(PIECES * 3);
    uint8_t *received = malloc(PIECES * 3);
    struct muster_stream_write write;
    struct outcome outcome = {.done_count = 0};
    size_t i;

    for (i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){pattern + 3 * i, 3};
    submit(fixture, &write, &outcome, iov, PIECES);
    raw_receive(fixture, received, PIECES * 3);
    wait_for(fixture, &outcome);

    assert_memory_equal(received, pattern, PIECES * 3);
    free(pattern);
    free(received);
}

static void large_writes_go_on_when_the_kernel_buffer_was_full(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *pattern = make_pattern(LARGE_BYTES);
    uint8_t *received = malloc(LARGE_BYTES);
    struct iovec first[] = {{pattern, 5}, {pattern + 5, LARGE_BYTES / 2 - 5}};
    struct iovec second = {pattern + LARGE_BYTES / 2, LARGE_BYTES / 2};
    struct muster_stream_write writes[2];
    struct outcome outcomes[2] = {{.done_count = 0}};

    submit(fixture, &writes[0], &outcomes[0], first, 2);
    submit(fixture, &writes[1], &outcomes[1], &second, 1);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcomes[1].done_count, 0);
    raw_receive(fixture, received, LARGE_BYTES);
    wait_for(fixture, &outcomes[1]);

    assert_int_equal(outcomes[0].rc, MUSTER_OK);
    assert_int_equal(outcomes[1].rc, MUSTER_OK);
    assert_memory_equal(received, pattern, LARGE_BYTES);
    free(pattern);
    free(received);
}

static void write_to_a_peer_that_reset_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    struct iovec iov = text_iov("x");
    struct muster_stream_write writes[2];
    struct outcome outcomes[2] = {{.done_count = 0}};

    assert_int_equal(setsockopt(fixture->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    close_fd(fixture);
    submit(fixture, &writes[0], &outcomes[0], &iov, 1);
    wait_for(fixture, &outcomes[0]);
    submit(fixture, &writes[1], &outcomes[1], &iov, 1);
    wait_for(fixture, &outcomes[1]);

    assert_int_equal(outcomes[0].rc, MUSTER_UNAVAILABLE);
    assert_int_equal(writes[0].bytes_done, 0);
    assert_int_equal(outcomes[1].rc, MUSTER_UNAVAILABLE);
}

static void resubmit(struct muster_stream_write *write, enum muster_rc rc)
{
    struct outcome *outcome = write->data;
    static const char byte = 'x';
    static struct iovec iov;

    iov = (struct iovec){(void *)(uintptr_t)&byte, 1};
    outcome->rc = rc;
    if (++outcome->done_count < 5)
        assert_int_equal(muster_stream_submit(write, outcome->fixture->stream, &iov, 1, resubmit),
                         MUSTER_OK);
}

static void write_may_be_used_again_in_its_callback(void **state)
{
    struct fixture *fixture = *state;
    struct iovec iov = text_iov("x");
    struct outcome outcome = {.fixture = fixture};
    struct muster_stream_write write = {.data = &outcome};

    assert_int_equal(muster_stream_submit(&write, fixture->stream, &iov, 1, resubmit), MUSTER_OK);
    while (outcome.done_count < 5)
        test_env_turn(&fixture->test.env, 1);

    expect_raw(fixture, "xxxxx");
}

/* Reads. */

static void receive_waits_for_the_minimum_and_takes_up_to_the_maximum(void **state)
{
    struct fixture *fixture = *state;
    char buffer[8] = "";
    struct muster_stream_read read;
    struct outcome outcome = {.done_count = 0};

    receive(fixture, &read, &outcome, buffer, 4, 7);
    raw_send(fixture, "abc");
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcome.done_count, 0);
    raw_send(fixture, "defghi");
    wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(read.bytes_done, 7);
    assert_memory_equal(buffer, "abcdefg", 7);

    outcome.done_count = 0;
    receive(fixture, &read, &outcome, buffer, 1, 7);
    wait_for(fixture, &outcome);
    assert_int_equal(read.bytes_done, 2);
    assert_memory_equal(buffer, "hi", 2);
}

/* Reads messages of one byte, starting the next receive in the callback of the last. */
struct chain {
    struct fixture *fixture;
    struct muster_stream_read read;
    unsigned count;
    char byte;
};

static void on_chain(struct muster_stream_read *read, enum muster_rc rc)
{
    struct chain *chain = read->data;

    if (rc != MUSTER_OK)
        return;
    chain->count++;
    assert_int_equal(
        muster_stream_receive_into(read, chain->fixture->stream, &chain->byte, 1, 1, on_chain),
        MUSTER_OK);
}

static void start_chain(struct fixture *fixture, struct chain *chain)
{
    chain->fixture = fixture;
    chain->read.data = chain;
    assert_int_equal(
        muster_stream_receive_into(&chain->read, fixture->stream, &chain->byte, 1, 1, on_chain),
        MUSTER_OK);
}

static void receives_started_in_callbacks_go_on_in_the_same_turn(void **state)
{
    struct fixture *fixture = *state;
    struct chain chain = {.count = 0};

    raw_send(fixture, "0123456789");
    start_chain(fixture, &chain);
    muster_loop_turn(fixture->test.env.loop, UINT64_MAX);
    (void)muster_stream_receive_recall(&chain.read, fixture->stream);

    assert_int_equal(chain.count, 10);
}

static void one_stream_does_not_keep_the_turn_for_ever(void **state)
{
    struct fixture *fixture = *state;
    struct chain chain = {.count = 0};
    char many[200];

    memset(many, 'm', sizeof(many));
    assert_int_equal(send(fixture->fd, many, sizeof(many), 0), sizeof(many));
    start_chain(fixture, &chain);
    muster_loop_turn(fixture->test.env.loop, UINT64_MAX);
    assert_in_range(chain.count, 1, 199);

    while (chain.count < 200)
        muster_loop_turn(fixture->test.env.loop, UINT64_MAX);
    (void)muster_stream_receive_recall(&chain.read, fixture->stream);
}

static void orderly_end_gives_the_bytes_so_far_and_is_told_again(void **state)
{
    struct fixture *fixture = *state;
    char buffer[8];
    struct muster_stream_read read;
    struct outcome outcome = {.done_count = 0};

    raw_send(fixture, "abc");
    close_fd(fixture);
    receive(fixture, &read, &outcome, buffer, 8, 8);
    wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_true(read.is_eof);
    assert_int_equal(read.bytes_done, 3);
    assert_memory_equal(buffer, "abc", 3);

    outcome.done_count = 0;
    receive(fixture, &read, &outcome, buffer, 1, 8);
    assert_int_equal(outcome.done_count, 0);
    wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_true(read.is_eof);
}

static void reset_is_not_an_orderly_end(void **state)
{
    struct fixture *fixture = *state;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    char buffer[8];
    struct muster_stream_read read;
    struct outcome outcome = {.done_count = 0};
    unsigned round;

    assert_int_equal(setsockopt(fixture->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    close_fd(fixture);
    for (round = 0; round < 2; round++) {
        outcome.done_count = 0;
        receive(fixture, &read, &outcome, buffer, 1, 8);
        wait_for(fixture, &outcome);
        assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
        assert_false(read.is_eof);
    }
}

static void reset_seen_first_by_a_write_is_no_orderly_end_for_the_read(void **state)
{
    struct fixture *fixture = *state;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    char buffer[8];
    struct iovec iov = text_iov("x");
    struct muster_stream_write write;
    struct muster_stream_read read;
    struct outcome written = {.done_count = 0}, outcome = {.done_count = 0};

    assert_int_equal(setsockopt(fixture->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    close_fd(fixture);
    submit(fixture, &write, &written, &iov, 1);
    wait_for(fixture, &written);
    receive(fixture, &read, &outcome, buffer, 1, 8);
    wait_for(fixture, &outcome);

    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_false(read.is_eof);
}

static void shutdown_sends_the_end_after_queued_writes_and_still_receives(void **state)
{
    struct fixture *fixture = *state;
    char buffer[8];
    struct iovec iov = text_iov("bye");
    struct muster_stream_write write, late;
    struct muster_stream_read read;
    struct outcome written = {.done_count = 0}, outcome = {.done_count = 0};

    submit(fixture, &write, &written, &iov, 1);
    muster_stream_shutdown(fixture->stream);
    assert_int_equal(muster_stream_submit(&late, fixture->stream, &iov, 1, on_write),
                     MUSTER_FAILED_PRECONDITION);
    wait_for(fixture, &written);
    assert_int_equal(written.rc, MUSTER_OK);
    raw_receive(fixture, buffer, 3);
    assert_int_equal(recv(fixture->fd, buffer, sizeof(buffer), 0), 0);

    raw_send(fixture, "hi");
    receive(fixture, &read, &outcome, buffer, 2, 8);
    wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_OK);
}

/* Starts that are refused. */

static void second_receive_and_empty_receive_are_refused_untouched(void **state)
{
    struct fixture *fixture = *state;
    char buffer[8], other[8];
    struct muster_stream_read read;
    struct outcome outcome = {.done_count = 0};

    receive(fixture, &read, &outcome, buffer, 2, 4);
    assert_int_equal(muster_stream_receive_into(&read, fixture->stream, other, 1, 8, on_read),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_stream_receive_into(&read, fixture->stream, other, 0, 8, on_read),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_stream_receive_into(&read, fixture->stream, other, 9, 8, on_read),
                     MUSTER_INVALID_ARGUMENT);
    raw_send(fixture, "ab");
    wait_for(fixture, &outcome);

    assert_memory_equal(buffer, "ab", 2);
}

static void nothing_starts_on_a_closed_stream(void **state)
{
    struct fixture *fixture = *state;
    struct muster_stream *stream = fixture->stream;
    struct iovec iov = text_iov("x");
    struct muster_stream_write write;
    struct muster_stream_read read;
    char byte;

    close_stream(fixture);
    assert_int_equal(muster_stream_submit(&write, stream, &iov, 1, on_write),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_stream_receive_into(&read, stream, &byte, 1, 1, on_read),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_stream_take_now(stream, &byte, 1), 0);
}

/* Close. */

static void close_cancels_open_requests_and_calls_closed_last(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *pattern = make_pattern(LARGE_BYTES);
    char buffer[8];
    struct iovec iov = {pattern, LARGE_BYTES};
    struct muster_stream_write writes[2];
    struct muster_stream_read read;
    struct outcome outcomes[3] = {{.done_count = 0}};

    submit(fixture, &writes[0], &outcomes[0], &iov, 1);
    submit(fixture, &writes[1], &outcomes[1], &iov, 1);
    receive(fixture, &read, &outcomes[2], buffer, 1, 8);
    test_env_turn(&fixture->test.env, 2);
    close_stream(fixture);
    assert_int_equal(outcomes[0].done_count + outcomes[1].done_count + outcomes[2].done_count, 0);
    while (!fixture->is_closed) {
        assert_int_equal(outcomes[2].done_count, 0);
        test_env_turn(&fixture->test.env, 1);
    }

    assert_int_equal(outcomes[0].rc, MUSTER_CANCELLED);
    assert_true(writes[0].bytes_done > 0 && writes[0].bytes_done < LARGE_BYTES);
    assert_int_equal(outcomes[1].rc, MUSTER_CANCELLED);
    assert_int_equal(outcomes[2].rc, MUSTER_CANCELLED);
    assert_int_equal(outcomes[2].done_count, 1);
    free(pattern);
}

static void close_on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct outcome *outcome = read->data;

    outcome->rc = rc;
    outcome->done_count++;
    close_stream(outcome->fixture);
}

static void stream_may_be_closed_in_a_read_callback(void **state)
{
    struct fixture *fixture = *state;
    char buffer[8];
    struct outcome outcome = {.fixture = fixture}, written = {.done_count = 0};
    struct muster_stream_read read = {.data = &outcome};
    struct muster_stream_write write;
    struct iovec iov = text_iov("x");

    raw_send(fixture, "abc");
    submit(fixture, &write, &written, &iov, 1);
    assert_int_equal(
        muster_stream_receive_into(&read, fixture->stream, buffer, 1, 1, close_on_read), MUSTER_OK);
    wait_for(fixture, &outcome);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(written.done_count, 1);
}

static void close_on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    on_write(write, rc);
    close_stream(((struct outcome *)write->data)->fixture);
}

static void stream_may_be_closed_in_a_write_callback(void **state)
{
    struct fixture *fixture = *state;
    struct iovec iov = text_iov("x");
    struct outcome outcomes[2] = {{.fixture = fixture}, {.fixture = fixture}};
    struct muster_stream_write writes[2] = {{.data = &outcomes[0]}, {.data = &outcomes[1]}};

    assert_int_equal(muster_stream_submit(&writes[0], fixture->stream, &iov, 1, close_on_write),
                     MUSTER_OK);
    submit(fixture, &writes[1], &outcomes[1], &iov, 1);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);

    assert_int_equal(outcomes[0].done_count, 1);
    assert_int_equal(outcomes[1].done_count, 1);
    assert_int_equal(outcomes[1].rc, MUSTER_OK); /* both had left in the same system call */
}

/* Recall. */

static void recalled_read_tells_what_it_placed_and_never_calls_back(void **state)
{
    struct fixture *fixture = *state;
    char buffer[8];
    struct muster_stream_read read, next;
    struct outcome outcome = {.done_count = 0}, after = {.done_count = 0};

    receive(fixture, &read, &outcome, buffer, 8, 8);
    raw_send(fixture, "abc");
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(muster_stream_receive_recall(&read, fixture->stream), 3);
    assert_memory_equal(buffer, "abc", 3);

    raw_send(fixture, "def");
    receive(fixture, &next, &after, buffer, 3, 8);
    wait_for(fixture, &after);
    assert_memory_equal(buffer, "def", 3);
    assert_int_equal(outcome.done_count, 0);
}

static void recalled_write_that_was_not_sent_leaves_no_trace(void **state)
{
    struct fixture *fixture = *state;
    struct iovec iov[] = {text_iov("a"), text_iov("b"), text_iov("c")};
    struct muster_stream_write writes[3];
    struct outcome outcomes[3] = {{.done_count = 0}};
    unsigned i;

    for (i = 0; i < 3; i++)
        submit(fixture, &writes[i], &outcomes[i], &iov[i], 1);
    assert_int_equal(muster_stream_submit_recall(&writes[1], fixture->stream), 0);
    wait_for(fixture, &outcomes[2]);

    expect_raw(fixture, "ac");
    assert_int_equal(outcomes[1].done_count, 0);
    assert_int_equal(muster_stream_submit_recall(&writes[0], fixture->stream), 1);
}

static void rest_of_a_partly_sent_write_goes_before_everything_else(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *pattern = make_pattern(LARGE_BYTES);
    uint8_t *received = malloc(LARGE_BYTES + 4);
    struct iovec large = {pattern, LARGE_BYTES}, tail = text_iov("tail"), rest;
    struct muster_stream_write writes[2], again[2];
    struct outcome outcomes[4] = {{.done_count = 0}};
    size_t sent;

    shrink_buffers(fixture);
    submit(fixture, &writes[0], &outcomes[0], &large, 1);
    submit(fixture, &writes[1], &outcomes[1], &tail, 1);
    test_env_turn(&fixture->test.env, 3);
    sent = muster_stream_submit_recall(&writes[0], fixture->stream);
    assert_in_range(sent, 1, LARGE_BYTES - 1);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcomes[1].done_count, 0);

    /* The rest may be recalled as well, and is still due then. */
    rest = (struct iovec){pattern + sent, LARGE_BYTES - sent};
    submit(fixture, &again[0], &outcomes[2], &rest, 1);
    sent += muster_stream_submit_recall(&again[0], fixture->stream);
    raw_receive(fixture, received, sent);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcomes[1].done_count, 0);
    rest = (struct iovec){pattern + sent, LARGE_BYTES - sent};
    submit(fixture, &again[1], &outcomes[3], &rest, 1);
    raw_receive(fixture, received + sent, LARGE_BYTES + 4 - sent);
    wait_for(fixture, &outcomes[1]);

    assert_memory_equal(received, pattern, LARGE_BYTES);
    assert_memory_equal(received + LARGE_BYTES, "tail", 4);
    assert_int_equal(outcomes[3].rc, MUSTER_OK);
    assert_int_equal(outcomes[0].done_count + outcomes[2].done_count, 0);
    free(pattern);
    free(received);
}

static void recall_of_everything_while_the_kernel_is_full_does_not_wedge_the_stream(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *pattern = make_pattern(LARGE_BYTES);
    uint8_t *received = malloc(LARGE_BYTES);
    struct iovec large = {pattern, LARGE_BYTES}, rest;
    struct muster_stream_write write, again;
    struct outcome outcomes[2] = {{.done_count = 0}};
    size_t sent;

    submit(fixture, &write, &outcomes[0], &large, 1);
    test_env_turn(&fixture->test.env, 3);
    sent = muster_stream_submit_recall(&write, fixture->stream);
    assert_in_range(sent, 1, LARGE_BYTES - 1);
    raw_receive(fixture, received, sent);
    test_env_turn(&fixture->test.env, 3);
    rest = (struct iovec){pattern + sent, LARGE_BYTES - sent};
    submit(fixture, &again, &outcomes[1], &rest, 1);
    raw_receive(fixture, received + sent, LARGE_BYTES - sent);
    wait_for(fixture, &outcomes[1]);

    assert_memory_equal(received, pattern, LARGE_BYTES);
    free(pattern);
    free(received);
}

struct recaller {
    struct outcome outcome;
    struct muster_stream_write *victim;
    size_t victim_bytes;
};

static void recall_on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    struct recaller *recaller = write->data;

    recaller->outcome.rc = rc;
    recaller->outcome.done_count++;
    recaller->victim_bytes =
        muster_stream_submit_recall(recaller->victim, recaller->outcome.fixture->stream);
}

static void write_that_is_out_but_not_told_yet_can_be_recalled(void **state)
{
    struct fixture *fixture = *state;
    struct iovec iov = text_iov("abc");
    struct muster_stream_write first, victim;
    struct outcome outcome = {.done_count = 0};
    struct recaller recaller = {.outcome = {.fixture = fixture}, .victim = &victim};

    first.data = &recaller;
    assert_int_equal(muster_stream_submit(&first, fixture->stream, &iov, 1, recall_on_write),
                     MUSTER_OK);
    submit(fixture, &victim, &outcome, &iov, 1);
    wait_for(fixture, &recaller.outcome);
    test_env_turn(&fixture->test.env, 3);

    assert_int_equal(recaller.victim_bytes, 3);
    assert_int_equal(outcome.done_count, 0);
    expect_raw(fixture, "abcabc");
}

/* Unread and take_now. */

static void unread_bytes_come_first_and_never_inside_the_start(void **state)
{
    struct fixture *fixture = *state;
    char buffer[16];
    struct muster_stream_read read;
    struct outcome outcome = {.done_count = 0};

    raw_send(fixture, "world");
    muster_stream_unread(fixture->stream, "lo ", 3);
    muster_stream_unread(fixture->stream, "hel", 3);
    receive(fixture, &read, &outcome, buffer, 2, 4);
    assert_int_equal(outcome.done_count, 0);
    wait_for(fixture, &outcome);
    assert_int_equal(read.bytes_done, 4);
    assert_memory_equal(buffer, "hell", 4);

    outcome.done_count = 0;
    receive(fixture, &read, &outcome, buffer, 7, 16);
    wait_for(fixture, &outcome);
    assert_int_equal(read.bytes_done, 7);
    assert_memory_equal(buffer, "o world", 7);
}

static void take_now_gives_what_is_there_without_waiting(void **state)
{
    struct fixture *fixture = *state;
    char buffer[16];
    struct muster_stream_read read;
    struct outcome outcome = {.done_count = 0};

    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 0);
    muster_stream_unread(fixture->stream, "ab", 2);
    raw_send(fixture, "cd");
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, 3), 3);
    assert_memory_equal(buffer, "abc", 3);
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 1);

    receive(fixture, &read, &outcome, buffer, 1, 1);
    raw_send(fixture, "e");
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 0);
    wait_for(fixture, &outcome);
    close_fd(fixture);
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 0);
    outcome.done_count = 0;
    receive(fixture, &read, &outcome, buffer, 1, 1);
    wait_for(fixture, &outcome);
    assert_true(read.is_eof);
}

static void stream_without_a_reader_does_not_spin(void **state)
{
    struct fixture *fixture = *state;
    struct muster_loop *loop = fixture->test.env.loop;
    struct chain chain = {.count = 0};
    uint64_t before_ns;

    start_chain(fixture, &chain);
    raw_send(fixture, "x");
    muster_loop_turn(loop, UINT64_MAX);
    (void)muster_stream_receive_recall(&chain.read, fixture->stream);
    close_fd(fixture);
    test_env_turn(&fixture->test.env, 3);

    /* Nothing is watched any more, so a turn that may wait does wait. */
    before_ns = muster_loop_now_ns(loop);
    muster_loop_turn(loop, MUSTER_NS_PER_MS);
    assert_true(muster_loop_now_ns(loop) - before_ns >= MUSTER_NS_PER_MS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define UNIX_CASE(name)                                                                            \
    {                                                                                              \
#name " (unix)", name, set_up_unix, tear_down, NULL                                        \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(writes_of_one_turn_arrive_in_order_and_complete_in_order),
        CASE(submit_runs_no_callback_inside),
        CASE(more_pieces_than_one_system_call_takes_all_arrive),
        UNIX_CASE(more_pieces_than_one_system_call_takes_all_arrive),
        CASE(large_writes_go_on_when_the_kernel_buffer_was_full),
        UNIX_CASE(large_writes_go_on_when_the_kernel_buffer_was_full),
        CASE(write_to_a_peer_that_reset_is_unavailable),
        CASE(write_may_be_used_again_in_its_callback),
        CASE(receive_waits_for_the_minimum_and_takes_up_to_the_maximum),
        CASE(receives_started_in_callbacks_go_on_in_the_same_turn),
        CASE(one_stream_does_not_keep_the_turn_for_ever),
        CASE(orderly_end_gives_the_bytes_so_far_and_is_told_again),
        UNIX_CASE(orderly_end_gives_the_bytes_so_far_and_is_told_again),
        CASE(reset_is_not_an_orderly_end),
        CASE(reset_seen_first_by_a_write_is_no_orderly_end_for_the_read),
        CASE(shutdown_sends_the_end_after_queued_writes_and_still_receives),
        UNIX_CASE(shutdown_sends_the_end_after_queued_writes_and_still_receives),
        CASE(second_receive_and_empty_receive_are_refused_untouched),
        CASE(nothing_starts_on_a_closed_stream),
        CASE(close_cancels_open_requests_and_calls_closed_last),
        CASE(stream_may_be_closed_in_a_read_callback),
        CASE(stream_may_be_closed_in_a_write_callback),
        CASE(recalled_read_tells_what_it_placed_and_never_calls_back),
        CASE(recalled_write_that_was_not_sent_leaves_no_trace),
        CASE(rest_of_a_partly_sent_write_goes_before_everything_else),
        CASE(recall_of_everything_while_the_kernel_is_full_does_not_wedge_the_stream),
        CASE(write_that_is_out_but_not_told_yet_can_be_recalled),
        CASE(unread_bytes_come_first_and_never_inside_the_start),
        CASE(take_now_gives_what_is_there_without_waiting),
        CASE(stream_without_a_reader_does_not_spin),
    };

    return cmocka_run_group_tests_name("stream_socket", tests, NULL, NULL);
}
