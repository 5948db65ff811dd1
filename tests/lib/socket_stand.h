/* A stream on a socket whose other side is a plain descriptor. */
#ifndef MUSTER_TEST_SOCKET_STAND_H
#define MUSTER_TEST_SOCKET_STAND_H

#include "test_env.h"
#include "net/stream/net_internal.h"

#define LARGE_BYTES (6u << 20)

struct socket_stand {
    struct test_env test;
    struct muster_stream *stream; /* NULL once closed */
    int fd;                       /* the other side; -1 once closed */
    int stream_fd; /* the stream's, for its options */
    bool is_closed;
};

/* A request and what became of it. */
struct socket_outcome {
    struct socket_stand *fixture;
    unsigned done_count;
    enum muster_rc rc;
    unsigned order;
};

int socket_stand_set_up(void **state);
int socket_stand_set_up_unix(void **state);
void socket_stand_close_stream(struct socket_stand *fixture);
void socket_stand_close_fd(struct socket_stand *fixture);
/** The other side closes by a reset. */
void socket_stand_reset_fd(struct socket_stand *fixture);
int socket_stand_tear_down(void **state);
void socket_stand_on_write(struct muster_stream_write *write, enum muster_rc rc);
void socket_stand_on_read(struct muster_stream_read *read, enum muster_rc rc);
void socket_stand_wait_for(struct socket_stand *fixture, struct socket_outcome *outcome);
void socket_stand_submit(struct socket_stand *fixture, struct muster_stream_write *write,
                         struct socket_outcome *outcome, const struct iovec *iov, size_t count);
void socket_stand_receive(struct socket_stand *fixture, struct muster_stream_read *read,
                          struct socket_outcome *outcome, void *buffer, size_t min, size_t max);
struct iovec socket_stand_text_iov(const char *text);
void socket_stand_raw_send(struct socket_stand *fixture, const char *text);
/** Reads `count` bytes from the other side while the loop turns. */
void socket_stand_raw_receive(struct socket_stand *fixture, void *buffer, size_t count);
void socket_stand_expect_raw(struct socket_stand *fixture, const char *text);
uint8_t *socket_stand_make_pattern(size_t bytes);
/** A send buffer so small that a large write must stop in the middle. */
void socket_stand_shrink_buffers(struct socket_stand *fixture);

/* One row of a main's table. */
#define SOCKET_CASE(name)                                                                          \
    cmocka_unit_test_setup_teardown(name, socket_stand_set_up, socket_stand_tear_down)
#define SOCKET_UNIX_CASE(name)                                                                     \
    {                                                                                              \
#name " (unix)", name, socket_stand_set_up_unix, socket_stand_tear_down, NULL              \
    }

#endif
