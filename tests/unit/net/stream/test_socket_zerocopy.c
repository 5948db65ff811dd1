/* A stream on a socket that sends without a copy: over loopback the kernel copies in the end, which
 * it tells; what it still has to send it holds. */
#include "socket_stand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/stream/socket_zerocopy.h"

#define PIECE_BYTES (64u << 10)
#define PIECE_COUNT 4
#define HELD_BYTES  (PIECE_COUNT * PIECE_BYTES)

static int set_up(void **state)
{
    socket_stand_set_up(state);
    muster_stream_set_zerocopy(((struct socket_stand *)*state)->stream, PIECE_BYTES);
    return 0;
}

/* The sending kernel holds all that the peer does not read. */
static int set_up_held(void **state)
{
    struct socket_stand *fixture;
    int room = 4 * PIECE_COUNT * PIECE_BYTES;
    int little = PIECE_BYTES;

    set_up(state);
    fixture = *state;
    assert_int_equal(setsockopt(fixture->fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), 0);
    assert_int_equal(setsockopt(fixture->stream_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    return 0;
}

/* A plain connected socket. */
struct bare {
    struct muster_zerocopy zerocopy;
    struct socket_stand *stand;
    struct iovec iov;
};

static void bare_init(struct bare *bare, struct socket_stand *stand, size_t bytes)
{
    memset(bare, 0, sizeof(*bare));
    bare->stand = stand;
    bare->iov = (struct iovec){socket_stand_make_pattern(bytes), bytes};
    muster_zerocopy_set(&bare->zerocopy, stand->stream_fd, PIECE_BYTES);
    assert_int_equal(bare->zerocopy.bytes_min, PIECE_BYTES);
}

static size_t bare_send(struct bare *bare)
{
    struct msghdr message = {.msg_iov = &bare->iov, .msg_iovlen = 1};
    ssize_t sent = muster_zerocopy_send(&bare->zerocopy, bare->stand->stream_fd, &message,
                                        bare->iov.iov_len);

    assert_true(sent > 0);
    return (size_t)sent;
}

static void bare_fini(struct bare *bare)
{
    free(bare->iov.iov_base);
}

static void bytes_arrive_equal_and_callbacks_come_in_order(void **state)
{
    struct socket_stand *fixture = *state;
    size_t bytes = PIECE_COUNT * PIECE_BYTES;
    uint8_t *pattern = socket_stand_make_pattern(bytes);
    uint8_t *received = malloc(bytes + 4);
    struct iovec iov[PIECE_COUNT + 1];
    struct muster_stream_write writes[PIECE_COUNT + 1];
    struct socket_outcome outcomes[PIECE_COUNT + 1] = {{.done_count = 0}};
    size_t i;

    for (i = 0; i < PIECE_COUNT; i++)
        iov[i] = (struct iovec){pattern + i * PIECE_BYTES, PIECE_BYTES};
    iov[PIECE_COUNT] = socket_stand_text_iov("tail");
    for (i = 0; i <= PIECE_COUNT; i++)
        socket_stand_submit(fixture, &writes[i], &outcomes[i], &iov[i], 1);
    socket_stand_raw_receive(fixture, received, bytes + 4);
    socket_stand_wait_for(fixture, &outcomes[PIECE_COUNT]);

    assert_memory_equal(received, pattern, bytes);
    assert_memory_equal(received + bytes, "tail", 4);
    for (i = 0; i <= PIECE_COUNT; i++) {
        assert_int_equal(outcomes[i].done_count, 1);
        assert_int_equal(outcomes[i].rc, MUSTER_OK);
        assert_int_equal(outcomes[i].order, i + 1);
    }
    free(pattern);
    free(received);
}

/* A write that the kernel has taken whole, and still holds, and a word behind it. */
struct held {
    uint8_t *pattern;
    struct iovec iov[2];
    struct muster_stream_write writes[2];
    struct socket_outcome outcomes[2];
};

static void held_start(struct held *held, struct socket_stand *fixture)
{
    memset(held, 0, sizeof(*held));
    held->pattern = socket_stand_make_pattern(HELD_BYTES);
    held->iov[0] = (struct iovec){held->pattern, HELD_BYTES};
    held->iov[1] = socket_stand_text_iov("tail");
    for (unsigned i = 0; i < 2; i++)
        socket_stand_submit(fixture, &held->writes[i], &held->outcomes[i], &held->iov[i], 1);
    test_env_turn(&fixture->test.env, 5);
    assert_int_equal(held->writes[0].bytes_done, HELD_BYTES);
    assert_int_equal(held->writes[1].bytes_done, 4);
    assert_int_equal(held->outcomes[0].done_count + held->outcomes[1].done_count, 0);
}

static void callback_waits_until_the_kernel_is_done(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *received = malloc(HELD_BYTES + 4);
    struct held held;

    held_start(&held, fixture);
    socket_stand_raw_receive(fixture, received, HELD_BYTES + 4);
    socket_stand_wait_for(fixture, &held.outcomes[1]);

    assert_memory_equal(received, held.pattern, HELD_BYTES);
    assert_memory_equal(received + HELD_BYTES, "tail", 4);
    assert_int_equal(held.outcomes[0].order + 1, held.outcomes[1].order);
    assert_int_equal(held.outcomes[0].rc, MUSTER_OK);
    free(held.pattern);
    free(received);
}

static void notices_end_no_read_that_waits(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *received = malloc(HELD_BYTES + 4);
    struct muster_stream_read read;
    struct socket_outcome reading = {.done_count = 0};
    struct held held;
    char buffer[3];

    held_start(&held, fixture);
    socket_stand_receive(fixture, &read, &reading, buffer, 3, 3);
    socket_stand_raw_receive(fixture, received, HELD_BYTES + 4);
    socket_stand_wait_for(fixture, &held.outcomes[1]);
    assert_int_equal(reading.done_count, 0);
    socket_stand_raw_send(fixture, "abc");
    socket_stand_wait_for(fixture, &reading);

    assert_int_equal(reading.rc, MUSTER_OK);
    free(held.pattern);
    free(received);
}

static void expect_reset(struct socket_stand *fixture)
{
    char bytes[512];

    while (recv(fixture->fd, bytes, sizeof(bytes), 0) > 0)
        continue; /* what had left */
    assert_int_equal(errno, ECONNRESET);
}

static void close_while_the_kernel_holds_memory_drops_it_and_calls_back_once(void **state)
{
    struct socket_stand *fixture = *state;
    struct held held;

    held_start(&held, fixture);
    socket_stand_close_stream(fixture);
    memset(held.pattern, 0, HELD_BYTES);
    assert_int_equal(held.outcomes[0].done_count, 0);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);

    assert_int_equal(held.outcomes[0].done_count, 1);
    assert_int_equal(held.outcomes[1].done_count, 1);
    expect_reset(fixture);
    free(held.pattern);
}

static void recall_while_the_kernel_holds_memory_breaks_the_connection(void **state)
{
    struct socket_stand *fixture = *state;
    struct muster_stream_read read;
    struct socket_outcome reading = {.done_count = 0};
    struct held held;
    char buffer[1];

    held_start(&held, fixture);
    socket_stand_receive(fixture, &read, &reading, buffer, 1, 1);
    assert_int_equal(muster_stream_submit_recall(&held.writes[0], fixture->stream), HELD_BYTES);
    memset(held.pattern, 0, HELD_BYTES);
    socket_stand_wait_for(fixture, &held.outcomes[1]);
    socket_stand_wait_for(fixture, &reading);

    assert_int_equal(held.outcomes[0].done_count, 0);
    assert_int_equal(reading.rc, MUSTER_UNAVAILABLE);
    expect_reset(fixture);
    free(held.pattern);
}

static void recall_of_what_the_kernel_is_done_with_breaks_nothing(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *received = malloc(HELD_BYTES + 4);
    size_t done = 0;
    struct held held;

    held_start(&held, fixture);
    while (done < HELD_BYTES + 4) { /* while the loop stands still */
        ssize_t got = recv(fixture->fd, received + done, HELD_BYTES + 4 - done, 0);

        done += got > 0 ? (size_t)got : 0;
    }
    assert_int_equal(muster_stream_submit_recall(&held.writes[0], fixture->stream), HELD_BYTES);
    socket_stand_wait_for(fixture, &held.outcomes[1]);

    assert_int_equal(held.outcomes[0].done_count, 0);
    assert_int_equal(held.outcomes[1].rc, MUSTER_OK);
    assert_memory_equal(received, held.pattern, HELD_BYTES);
    free(held.pattern);
    free(received);
}

static void reset_by_the_peer_gives_every_write_back_once(void **state)
{
    struct socket_stand *fixture = *state;
    struct held held;

    held_start(&held, fixture);
    socket_stand_close_fd(fixture); /* with bytes that it has not read */
    socket_stand_wait_for(fixture, &held.outcomes[1]);

    assert_int_equal(held.outcomes[0].done_count, 1);
    free(held.pattern);
}

/* The part below the stream. */

static void notice_of_a_copy_turns_it_off_for_good(void **state)
{
    struct bare bare;
    uint8_t *received = malloc(2 * PIECE_BYTES);
    size_t sent;

    bare_init(&bare, *state, PIECE_BYTES);
    sent = bare_send(&bare);
    assert_int_equal(bare.zerocopy.next, 1);
    socket_stand_raw_receive(*state, received, sent);
    assert_true(muster_zerocopy_take_back(&bare.zerocopy, bare.stand->stream_fd));
    assert_true(bare.zerocopy.is_copied);
    bare_send(&bare);
    muster_zerocopy_set(&bare.zerocopy, bare.stand->stream_fd, 1);
    bare_send(&bare);

    assert_int_equal(bare.zerocopy.next, 1);
    assert_false(muster_zerocopy_is_busy(&bare.zerocopy));
    free(received);
    bare_fini(&bare);
}

static void numbers_wrap(void **state)
{
    struct bare bare;

    bare_init(&bare, *state, PIECE_BYTES);
    bare.zerocopy.done = bare.zerocopy.next = UINT32_MAX;
    assert_true(muster_zerocopy_is_done(&bare.zerocopy, UINT32_MAX));
    bare.zerocopy.next++;

    assert_true(muster_zerocopy_is_busy(&bare.zerocopy));
    assert_false(muster_zerocopy_is_done(&bare.zerocopy, 0));
    bare_fini(&bare);
}

static void small_sends_and_too_many_are_copied(void **state)
{
    struct bare bare;

    bare_init(&bare, *state, PIECE_BYTES - 1);
    bare_send(&bare);
    assert_false(muster_zerocopy_is_busy(&bare.zerocopy));
    bare.zerocopy.next = MUSTER_ZEROCOPY_SENDS_MAX;
    bare.zerocopy.bytes_min = 1;
    bare_send(&bare);

    assert_int_equal(bare.zerocopy.next, MUSTER_ZEROCOPY_SENDS_MAX);
    bare_fini(&bare);
}

#define CASE(name)       cmocka_unit_test_setup_teardown(name, set_up, socket_stand_tear_down)
#define HELD_CASE(name) cmocka_unit_test_setup_teardown(name, set_up_held, socket_stand_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_arrive_equal_and_callbacks_come_in_order),
        HELD_CASE(callback_waits_until_the_kernel_is_done),
        HELD_CASE(notices_end_no_read_that_waits),
        HELD_CASE(close_while_the_kernel_holds_memory_drops_it_and_calls_back_once),
        HELD_CASE(recall_while_the_kernel_holds_memory_breaks_the_connection),
        HELD_CASE(recall_of_what_the_kernel_is_done_with_breaks_nothing),
        HELD_CASE(reset_by_the_peer_gives_every_write_back_once),
        SOCKET_CASE(notice_of_a_copy_turns_it_off_for_good),
        SOCKET_CASE(numbers_wrap),
        SOCKET_CASE(small_sends_and_too_many_are_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
