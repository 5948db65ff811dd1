/* A stream on a socket whose other side is a plain descriptor. */
#include "socket_stand.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void open_fixture(struct socket_stand *fixture, const int fds[2])
{
    memset(fixture, 0, sizeof(*fixture));
    next_order = 1;
    test_env_open(&fixture->test);
    set_nonblocking(fds[0]);
    set_nonblocking(fds[1]);
    fixture->fd = fds[1];
    fixture->stream_fd = fds[0];
    assert_int_equal(muster_stream_socket_open(&fixture->test.env, fds[0], &fixture->stream),
                     MUSTER_OK);
    fixture->stream->data = fixture;
}

int socket_stand_set_up(void **state)
{
    static struct socket_stand fixture;
    int fds[2];

    make_tcp_pair(fds);
    open_fixture(&fixture, fds);
    *state = &fixture;
    return 0;
}

int socket_stand_set_up_unix(void **state)
{
    static struct socket_stand fixture;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_fixture(&fixture, fds);
    *state = &fixture;
    return 0;
}

static void on_closed(struct muster_stream *stream)
{
    struct socket_stand *fixture = stream->data;

    fixture->is_closed = true;
}

void socket_stand_close_stream(struct socket_stand *fixture)
{
    muster_stream_close(fixture->stream, on_closed);
    fixture->stream = NULL;
}

void socket_stand_close_fd(struct socket_stand *fixture)
{
    close(fixture->fd);
    fixture->fd = -1;
}

void socket_stand_reset_fd(struct socket_stand *fixture)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};

    assert_int_equal(setsockopt(fixture->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    socket_stand_close_fd(fixture);
}

int socket_stand_tear_down(void **state)
{
    struct socket_stand *fixture = *state;

    if (fixture->stream != NULL)
        socket_stand_close_stream(fixture);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);
    if (fixture->fd >= 0)
        socket_stand_close_fd(fixture);
    test_env_close(&fixture->test);
    return 0;
}

void socket_stand_on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    struct socket_outcome *outcome = write->data;

    outcome->done_count++;
    outcome->rc = rc;
    outcome->order = next_order++;
}

void socket_stand_on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct socket_outcome *outcome = read->data;

    outcome->done_count++;
    outcome->rc = rc;
    outcome->order = next_order++;
}

static bool is_done(void *data)
{
    return ((struct socket_outcome *)data)->done_count > 0;
}

void socket_stand_wait_for(struct socket_stand *fixture, struct socket_outcome *outcome)
{
    test_env_run_until(&fixture->test.env, is_done, outcome);
    assert_int_equal(outcome->done_count, 1);
}

void socket_stand_submit(struct socket_stand *fixture, struct muster_stream_write *write,
                         struct socket_outcome *outcome, const struct iovec *iov, size_t count)
{
    write->data = outcome;
    assert_int_equal(
        muster_stream_submit(write, fixture->stream, iov, count, socket_stand_on_write), MUSTER_OK);
}

void socket_stand_receive(struct socket_stand *fixture, struct muster_stream_read *read,
                          struct socket_outcome *outcome, void *buffer, size_t min, size_t max)
{
    read->data = outcome;
    assert_int_equal(
        muster_stream_receive_into(read, fixture->stream, buffer, min, max, socket_stand_on_read),
        MUSTER_OK);
}

struct iovec socket_stand_text_iov(const char *text)
{
    return (struct iovec){(void *)(uintptr_t)text, strlen(text)};
}

void socket_stand_raw_send(struct socket_stand *fixture, const char *text)
{
    assert_int_equal(send(fixture->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

void socket_stand_raw_receive(struct socket_stand *fixture, void *buffer, size_t count)
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

void socket_stand_expect_raw(struct socket_stand *fixture, const char *text)
{
    char buffer[64];

    socket_stand_raw_receive(fixture, buffer, strlen(text));
    assert_memory_equal(buffer, text, strlen(text));
    assert_int_equal(recv(fixture->fd, buffer, sizeof(buffer), 0), -1);
}

uint8_t *socket_stand_make_pattern(size_t bytes)
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

void socket_stand_shrink_buffers(struct socket_stand *fixture)
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
