/* Reads and writes that are recalled from a stream on a socket, and bytes that are unread. */
#include "socket_stand.h"

#include <stdlib.h>

/* Recall. */

static void recalled_read_tells_what_it_placed_and_never_calls_back(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8];
    struct muster_stream_read read, next;
    struct socket_outcome outcome = {.done_count = 0}, after = {.done_count = 0};

    socket_stand_receive(fixture, &read, &outcome, buffer, 8, 8);
    socket_stand_raw_send(fixture, "abc");
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(muster_stream_receive_recall(&read, fixture->stream), 3);
    assert_memory_equal(buffer, "abc", 3);

    socket_stand_raw_send(fixture, "def");
    socket_stand_receive(fixture, &next, &after, buffer, 3, 8);
    socket_stand_wait_for(fixture, &after);
    assert_memory_equal(buffer, "def", 3);
    assert_int_equal(outcome.done_count, 0);
}

static void recalled_write_that_was_not_sent_leaves_no_trace(void **state)
{
    struct socket_stand *fixture = *state;
    struct iovec iov[] = {socket_stand_text_iov("a"), socket_stand_text_iov("b"),
                          socket_stand_text_iov("c")};
    struct muster_stream_write writes[3];
    struct socket_outcome outcomes[3] = {{.done_count = 0}};
    unsigned i;

    for (i = 0; i < 3; i++)
        socket_stand_submit(fixture, &writes[i], &outcomes[i], &iov[i], 1);
    assert_int_equal(muster_stream_submit_recall(&writes[1], fixture->stream), 0);
    socket_stand_wait_for(fixture, &outcomes[2]);

    socket_stand_expect_raw(fixture, "ac");
    assert_int_equal(outcomes[1].done_count, 0);
    assert_int_equal(muster_stream_submit_recall(&writes[0], fixture->stream), 1);
}

static void rest_of_a_partly_sent_write_goes_before_everything_else(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *pattern = socket_stand_make_pattern(LARGE_BYTES);
    uint8_t *received = malloc(LARGE_BYTES + 4);
    struct iovec large = {pattern, LARGE_BYTES}, tail = socket_stand_text_iov("tail"), rest;
    struct muster_stream_write writes[2], again[2];
    struct socket_outcome outcomes[4] = {{.done_count = 0}};
    size_t sent;

    socket_stand_shrink_buffers(fixture);
    socket_stand_submit(fixture, &writes[0], &outcomes[0], &large, 1);
    socket_stand_submit(fixture, &writes[1], &outcomes[1], &tail, 1);
    test_env_turn(&fixture->test.env, 3);
    sent = muster_stream_submit_recall(&writes[0], fixture->stream);
    assert_in_range(sent, 1, LARGE_BYTES - 1);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcomes[1].done_count, 0);

    /* The rest may be recalled as well, and is still due then. */
    rest = (struct iovec){pattern + sent, LARGE_BYTES - sent};
    socket_stand_submit(fixture, &again[0], &outcomes[2], &rest, 1);
    sent += muster_stream_submit_recall(&again[0], fixture->stream);
    socket_stand_raw_receive(fixture, received, sent);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcomes[1].done_count, 0);
    rest = (struct iovec){pattern + sent, LARGE_BYTES - sent};
    socket_stand_submit(fixture, &again[1], &outcomes[3], &rest, 1);
    socket_stand_raw_receive(fixture, received + sent, LARGE_BYTES + 4 - sent);
    socket_stand_wait_for(fixture, &outcomes[1]);

    assert_memory_equal(received, pattern, LARGE_BYTES);
    assert_memory_equal(received + LARGE_BYTES, "tail", 4);
    assert_int_equal(outcomes[3].rc, MUSTER_OK);
    assert_int_equal(outcomes[0].done_count + outcomes[2].done_count, 0);
    free(pattern);
    free(received);
}

static void recall_of_everything_while_the_kernel_is_full_does_not_wedge_the_stream(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *pattern = socket_stand_make_pattern(LARGE_BYTES);
    uint8_t *received = malloc(LARGE_BYTES);
    struct iovec large = {pattern, LARGE_BYTES}, rest;
    struct muster_stream_write write, again;
    struct socket_outcome outcomes[2] = {{.done_count = 0}};
    size_t sent;

    socket_stand_submit(fixture, &write, &outcomes[0], &large, 1);
    test_env_turn(&fixture->test.env, 3);
    sent = muster_stream_submit_recall(&write, fixture->stream);
    assert_in_range(sent, 1, LARGE_BYTES - 1);
    socket_stand_raw_receive(fixture, received, sent);
    test_env_turn(&fixture->test.env, 3);
    rest = (struct iovec){pattern + sent, LARGE_BYTES - sent};
    socket_stand_submit(fixture, &again, &outcomes[1], &rest, 1);
    socket_stand_raw_receive(fixture, received + sent, LARGE_BYTES - sent);
    socket_stand_wait_for(fixture, &outcomes[1]);

    assert_memory_equal(received, pattern, LARGE_BYTES);
    free(pattern);
    free(received);
}

struct recaller {
    struct socket_outcome outcome;
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
    struct socket_stand *fixture = *state;
    struct iovec iov = socket_stand_text_iov("abc");
    struct muster_stream_write first, victim;
    struct socket_outcome outcome = {.done_count = 0};
    struct recaller recaller = {.outcome = {.fixture = fixture}, .victim = &victim};

    first.data = &recaller;
    assert_int_equal(muster_stream_submit(&first, fixture->stream, &iov, 1, recall_on_write),
                     MUSTER_OK);
    socket_stand_submit(fixture, &victim, &outcome, &iov, 1);
    socket_stand_wait_for(fixture, &recaller.outcome);
    test_env_turn(&fixture->test.env, 3);

    assert_int_equal(recaller.victim_bytes, 3);
    assert_int_equal(outcome.done_count, 0);
    socket_stand_expect_raw(fixture, "abcabc");
}

/* Unread and take_now. */

static void unread_bytes_come_first_and_never_inside_the_start(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[16];
    struct muster_stream_read read;
    struct socket_outcome outcome = {.done_count = 0};

    socket_stand_raw_send(fixture, "world");
    muster_stream_unread(fixture->stream, "lo ", 3);
    muster_stream_unread(fixture->stream, "hel", 3);
    socket_stand_receive(fixture, &read, &outcome, buffer, 2, 4);
    assert_int_equal(outcome.done_count, 0);
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(read.bytes_done, 4);
    assert_memory_equal(buffer, "hell", 4);

    outcome.done_count = 0;
    socket_stand_receive(fixture, &read, &outcome, buffer, 7, 16);
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(read.bytes_done, 7);
    assert_memory_equal(buffer, "o world", 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SOCKET_CASE(recalled_read_tells_what_it_placed_and_never_calls_back),
        SOCKET_CASE(recalled_write_that_was_not_sent_leaves_no_trace),
        SOCKET_CASE(rest_of_a_partly_sent_write_goes_before_everything_else),
        SOCKET_CASE(recall_of_everything_while_the_kernel_is_full_does_not_wedge_the_stream),
        SOCKET_CASE(write_that_is_out_but_not_told_yet_can_be_recalled),
        SOCKET_CASE(unread_bytes_come_first_and_never_inside_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
