/* How a stream on a socket ends: in order, by reset, by close, by recall. */
#include "socket_stand.h"

#include <stdlib.h>

static void write_to_a_peer_that_reset_is_unavailable(void **state)
{
    struct socket_stand *fixture = *state;
    struct iovec iov = socket_stand_text_iov("x");
    struct muster_stream_write writes[2];
    struct socket_outcome outcomes[2] = {{.done_count = 0}};

    socket_stand_reset_fd(fixture);
    socket_stand_submit(fixture, &writes[0], &outcomes[0], &iov, 1);
    socket_stand_wait_for(fixture, &outcomes[0]);
    socket_stand_submit(fixture, &writes[1], &outcomes[1], &iov, 1);
    socket_stand_wait_for(fixture, &outcomes[1]);

    assert_int_equal(outcomes[0].rc, MUSTER_UNAVAILABLE);
    assert_int_equal(writes[0].bytes_done, 0);
    assert_int_equal(outcomes[1].rc, MUSTER_UNAVAILABLE);
}

static void orderly_end_gives_the_bytes_so_far_and_is_told_again(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8];
    struct muster_stream_read read;
    struct socket_outcome outcome = {.done_count = 0};

    socket_stand_raw_send(fixture, "abc");
    socket_stand_close_fd(fixture);
    socket_stand_receive(fixture, &read, &outcome, buffer, 8, 8);
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_true(read.is_eof);
    assert_int_equal(read.bytes_done, 3);
    assert_memory_equal(buffer, "abc", 3);

    outcome.done_count = 0;
    socket_stand_receive(fixture, &read, &outcome, buffer, 1, 8);
    assert_int_equal(outcome.done_count, 0);
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_true(read.is_eof);
}

static void reset_is_not_an_orderly_end(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8];
    struct muster_stream_read read;
    struct socket_outcome outcome = {.done_count = 0};
    unsigned round;

    socket_stand_reset_fd(fixture);
    for (round = 0; round < 2; round++) {
        outcome.done_count = 0;
        socket_stand_receive(fixture, &read, &outcome, buffer, 1, 8);
        socket_stand_wait_for(fixture, &outcome);
        assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
        assert_false(read.is_eof);
    }
}

static void reset_seen_first_by_a_write_is_no_orderly_end_for_the_read(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8];
    struct iovec iov = socket_stand_text_iov("x");
    struct muster_stream_write write;
    struct muster_stream_read read;
    struct socket_outcome written = {.done_count = 0}, outcome = {.done_count = 0};

    socket_stand_reset_fd(fixture);
    socket_stand_submit(fixture, &write, &written, &iov, 1);
    socket_stand_wait_for(fixture, &written);
    socket_stand_receive(fixture, &read, &outcome, buffer, 1, 8);
    socket_stand_wait_for(fixture, &outcome);

    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_false(read.is_eof);
}

static void shutdown_sends_the_end_after_queued_writes_and_still_receives(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8];
    struct iovec iov = socket_stand_text_iov("bye");
    struct muster_stream_write write, late;
    struct muster_stream_read read;
    struct socket_outcome written = {.done_count = 0}, outcome = {.done_count = 0};

    socket_stand_submit(fixture, &write, &written, &iov, 1);
    muster_stream_shutdown(fixture->stream);
    assert_int_equal(muster_stream_submit(&late, fixture->stream, &iov, 1, socket_stand_on_write),
                     MUSTER_FAILED_PRECONDITION);
    socket_stand_wait_for(fixture, &written);
    assert_int_equal(written.rc, MUSTER_OK);
    socket_stand_raw_receive(fixture, buffer, 3);
    assert_int_equal(recv(fixture->fd, buffer, sizeof(buffer), 0), 0);

    socket_stand_raw_send(fixture, "hi");
    socket_stand_receive(fixture, &read, &outcome, buffer, 2, 8);
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_OK);
}

static void nothing_starts_on_a_closed_stream(void **state)
{
    struct socket_stand *fixture = *state;
    struct muster_stream *stream = fixture->stream;
    struct iovec iov = socket_stand_text_iov("x");
    struct muster_stream_write write;
    struct muster_stream_read read;
    char byte;

    socket_stand_close_stream(fixture);
    assert_int_equal(muster_stream_submit(&write, stream, &iov, 1, socket_stand_on_write),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_stream_receive_into(&read, stream, &byte, 1, 1, socket_stand_on_read),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_stream_take_now(stream, &byte, 1), 0);
}

/* Close. */

static void close_cancels_open_requests_and_calls_closed_last(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *pattern = socket_stand_make_pattern(LARGE_BYTES);
    char buffer[8];
    struct iovec iov = {pattern, LARGE_BYTES};
    struct muster_stream_write writes[2];
    struct muster_stream_read read;
    struct socket_outcome outcomes[3] = {{.done_count = 0}};

    socket_stand_submit(fixture, &writes[0], &outcomes[0], &iov, 1);
    socket_stand_submit(fixture, &writes[1], &outcomes[1], &iov, 1);
    socket_stand_receive(fixture, &read, &outcomes[2], buffer, 1, 8);
    test_env_turn(&fixture->test.env, 2);
    socket_stand_close_stream(fixture);
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
    struct socket_outcome *outcome = read->data;

    outcome->rc = rc;
    outcome->done_count++;
    socket_stand_close_stream(outcome->fixture);
}

static void stream_may_be_closed_in_a_read_callback(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8];
    struct socket_outcome outcome = {.fixture = fixture}, written = {.done_count = 0};
    struct muster_stream_read read = {.data = &outcome};
    struct muster_stream_write write;
    struct iovec iov = socket_stand_text_iov("x");

    socket_stand_raw_send(fixture, "abc");
    socket_stand_submit(fixture, &write, &written, &iov, 1);
    assert_int_equal(
        muster_stream_receive_into(&read, fixture->stream, buffer, 1, 1, close_on_read), MUSTER_OK);
    socket_stand_wait_for(fixture, &outcome);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(written.done_count, 1);
}

static void close_on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    socket_stand_on_write(write, rc);
    socket_stand_close_stream(((struct socket_outcome *)write->data)->fixture);
}

static void stream_may_be_closed_in_a_write_callback(void **state)
{
    struct socket_stand *fixture = *state;
    struct iovec iov = socket_stand_text_iov("x");
    struct socket_outcome outcomes[2] = {{.fixture = fixture}, {.fixture = fixture}};
    struct muster_stream_write writes[2] = {{.data = &outcomes[0]}, {.data = &outcomes[1]}};

    assert_int_equal(muster_stream_submit(&writes[0], fixture->stream, &iov, 1, close_on_write),
                     MUSTER_OK);
    socket_stand_submit(fixture, &writes[1], &outcomes[1], &iov, 1);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);

    assert_int_equal(outcomes[0].done_count, 1);
    assert_int_equal(outcomes[1].done_count, 1);
    assert_int_equal(outcomes[1].rc, MUSTER_OK); /* both had left in the same system call */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SOCKET_CASE(write_to_a_peer_that_reset_is_unavailable),
        SOCKET_CASE(orderly_end_gives_the_bytes_so_far_and_is_told_again),
        SOCKET_UNIX_CASE(orderly_end_gives_the_bytes_so_far_and_is_told_again),
        SOCKET_CASE(reset_is_not_an_orderly_end),
        SOCKET_CASE(reset_seen_first_by_a_write_is_no_orderly_end_for_the_read),
        SOCKET_CASE(shutdown_sends_the_end_after_queued_writes_and_still_receives),
        SOCKET_UNIX_CASE(shutdown_sends_the_end_after_queued_writes_and_still_receives),
        SOCKET_CASE(nothing_starts_on_a_closed_stream),
        SOCKET_CASE(close_cancels_open_requests_and_calls_closed_last),
        SOCKET_CASE(stream_may_be_closed_in_a_read_callback),
        SOCKET_CASE(stream_may_be_closed_in_a_write_callback),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
