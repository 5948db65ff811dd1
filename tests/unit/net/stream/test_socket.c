/* A stream on a socket: order, completeness, turns. The other side is a plain descriptor. */
#include "socket_stand.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "net/stream/socket_internal.h"

static void writes_of_one_turn_arrive_in_order_and_complete_in_order(void **state)
{
    struct socket_stand *fixture = *state;
    struct iovec first[] = {socket_stand_text_iov("ab"), socket_stand_text_iov(""),
                            socket_stand_text_iov("c")};
    struct iovec second[] = {socket_stand_text_iov("de")};
    struct iovec third[] = {socket_stand_text_iov(""), socket_stand_text_iov("fgh"),
                            socket_stand_text_iov("")};
    struct muster_stream_write writes[3];
    struct socket_outcome outcomes[3] = {{.done_count = 0}};

    socket_stand_submit(fixture, &writes[0], &outcomes[0], first, 3);
    socket_stand_submit(fixture, &writes[1], &outcomes[1], second, 1);
    socket_stand_submit(fixture, &writes[2], &outcomes[2], third, 3);
    socket_stand_wait_for(fixture, &outcomes[2]);

    socket_stand_expect_raw(fixture, "abcdefgh");
    assert_int_equal(outcomes[0].order, 1);
    assert_int_equal(outcomes[1].order, 2);
    assert_int_equal(outcomes[2].order, 3);
    assert_int_equal(outcomes[1].rc, MUSTER_OK);
    assert_int_equal(writes[2].bytes_done, 3);
}

static void submit_runs_no_callback_inside(void **state)
{
    struct socket_stand *fixture = *state;
    struct iovec iov = socket_stand_text_iov("x");
    struct muster_stream_write writes[2];
    struct socket_outcome outcomes[2] = {{.done_count = 0}};

    socket_stand_submit(fixture, &writes[0], &outcomes[0], &iov, 1);
    socket_stand_submit(fixture, &writes[1], &outcomes[1], NULL, 0);
    assert_int_equal(outcomes[0].done_count + outcomes[1].done_count, 0);

    test_env_turn(&fixture->test.env, 1);
    assert_int_equal(outcomes[0].done_count, 1);
    assert_int_equal(outcomes[1].done_count, 1);
    assert_int_equal(outcomes[1].rc, MUSTER_OK);
}

static void more_pieces_than_one_system_call_takes_all_arrive(void **state)
{
    enum { PIECES = 3000 };
    struct socket_stand *fixture = *state;
    static struct iovec iov[PIECES];
    uint8_t *pattern = socket_stand_make_pattern(PIECES * 3);
    uint8_t *received = malloc(PIECES * 3);
    struct muster_stream_write write;
    struct socket_outcome outcome = {.done_count = 0};
    size_t i;

    for (i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){pattern + 3 * i, 3};
    socket_stand_submit(fixture, &write, &outcome, iov, PIECES);
    socket_stand_raw_receive(fixture, received, PIECES * 3);
    socket_stand_wait_for(fixture, &outcome);

    assert_memory_equal(received, pattern, PIECES * 3);
    free(pattern);
    free(received);
}

static void large_writes_go_on_when_the_kernel_buffer_was_full(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *pattern = socket_stand_make_pattern(LARGE_BYTES);
    uint8_t *received = malloc(LARGE_BYTES);
    struct iovec first[] = {{pattern, 5}, {pattern + 5, LARGE_BYTES / 2 - 5}};
    struct iovec second = {pattern + LARGE_BYTES / 2, LARGE_BYTES / 2};
    struct muster_stream_write writes[2];
    struct socket_outcome outcomes[2] = {{.done_count = 0}};

    socket_stand_submit(fixture, &writes[0], &outcomes[0], first, 2);
    socket_stand_submit(fixture, &writes[1], &outcomes[1], &second, 1);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcomes[1].done_count, 0);
    socket_stand_raw_receive(fixture, received, LARGE_BYTES);
    socket_stand_wait_for(fixture, &outcomes[1]);

    assert_int_equal(outcomes[0].rc, MUSTER_OK);
    assert_int_equal(outcomes[1].rc, MUSTER_OK);
    assert_memory_equal(received, pattern, LARGE_BYTES);
    free(pattern);
    free(received);
}

static void a_turn_sends_some_writes_and_leaves_the_rest_to_the_next(void **state)
{
    enum { WRITES = 9, BYTES = 100 << 10 };
    const int much = 4 << 20; /* the kernel would take them all */
    struct socket_stand *fixture = *state;
    uint8_t *pattern = socket_stand_make_pattern(WRITES * BYTES);
    uint8_t *received = malloc(WRITES * BYTES);
    struct iovec iov[WRITES];
    struct muster_stream_write writes[WRITES];
    struct socket_outcome outcomes[WRITES] = {{.done_count = 0}};

    assert_int_equal(
        setsockopt(fixture->stream_fd, SOL_SOCKET, SO_SNDBUF, &much, sizeof(much)), 0);
    for (size_t i = 0; i < WRITES; i++) {
        iov[i] = (struct iovec){pattern + i * BYTES, BYTES};
        socket_stand_submit(fixture, &writes[i], &outcomes[i], &iov[i], 1);
    }
    test_env_turn(&fixture->test.env, 1);
    assert_int_equal(outcomes[WRITES - 1].done_count, 0);
    socket_stand_raw_receive(fixture, received, WRITES * BYTES);
    socket_stand_wait_for(fixture, &outcomes[WRITES - 1]);

    assert_memory_equal(received, pattern, WRITES * BYTES);
    free(pattern);
    free(received);
}

static void submit_again(struct muster_stream_write *write, enum muster_rc rc)
{
    struct socket_outcome *outcome = write->data;
    static const char byte = 'x';
    static struct iovec iov;

    iov = (struct iovec){(void *)(uintptr_t)&byte, 1};
    outcome->rc = rc;
    if (++outcome->done_count < 5)
        assert_int_equal(
            muster_stream_submit(write, outcome->fixture->stream, &iov, 1, submit_again),
            MUSTER_OK);
}

static void write_may_be_used_again_in_its_callback(void **state)
{
    struct socket_stand *fixture = *state;
    struct iovec iov = socket_stand_text_iov("x");
    struct socket_outcome outcome = {.fixture = fixture};
    struct muster_stream_write write = {.data = &outcome};

    assert_int_equal(muster_stream_submit(&write, fixture->stream, &iov, 1, submit_again),
                     MUSTER_OK);
    while (outcome.done_count < 5)
        test_env_turn(&fixture->test.env, 1);

    socket_stand_expect_raw(fixture, "xxxxx");
}

/* Reads. */

static void receive_waits_for_the_minimum_and_takes_up_to_the_maximum(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8] = "";
    struct muster_stream_read read;
    struct socket_outcome outcome = {.done_count = 0};

    socket_stand_receive(fixture, &read, &outcome, buffer, 4, 7);
    socket_stand_raw_send(fixture, "abc");
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcome.done_count, 0);
    socket_stand_raw_send(fixture, "defghi");
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(read.bytes_done, 7);
    assert_memory_equal(buffer, "abcdefg", 7);

    outcome.done_count = 0;
    socket_stand_receive(fixture, &read, &outcome, buffer, 1, 7);
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(read.bytes_done, 2);
    assert_memory_equal(buffer, "hi", 2);
}

static void pattern_send(struct socket_stand *fixture, const uint8_t *pattern, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t sent = send(fixture->fd, pattern + done, bytes - done, MSG_DONTWAIT);

        done += sent > 0 ? (size_t)sent : 0;
        test_env_turn(&fixture->test.env, 1);
    }
}

/* The kernel is told to wait for many bytes only while so many are missing. */
static void the_last_bytes_of_a_large_receive_come_alone_and_small_ones_behind_it(void **state)
{
    enum { BYTES = 700 << 10, LAST = 5 };
    struct socket_stand *fixture = *state;
    uint8_t *pattern = socket_stand_make_pattern(BYTES), *received = malloc(BYTES);
    struct muster_stream_read read;
    struct socket_outcome outcome = {.done_count = 0};
    char byte = 0;

    socket_stand_receive(fixture, &read, &outcome, received, BYTES, BYTES);
    pattern_send(fixture, pattern, BYTES - LAST);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcome.done_count, 0);
    pattern_send(fixture, pattern + BYTES - LAST, LAST);
    socket_stand_wait_for(fixture, &outcome);
    assert_memory_equal(received, pattern, BYTES);

    outcome.done_count = 0;
    socket_stand_receive(fixture, &read, &outcome, received, BYTES, BYTES);
    (void)muster_stream_receive_recall(&read, fixture->stream);
    socket_stand_receive(fixture, &read, &outcome, &byte, 1, 1);
    socket_stand_raw_send(fixture, "x");
    socket_stand_wait_for(fixture, &outcome);
    assert_int_equal(byte, 'x');
    free(pattern);
    free(received);
}

/* Reads messages of one byte, starting the next socket_stand_receive in the callback of the last. */
struct chain {
    struct socket_stand *fixture;
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

static void start_chain(struct socket_stand *fixture, struct chain *chain)
{
    chain->fixture = fixture;
    chain->read.data = chain;
    assert_int_equal(
        muster_stream_receive_into(&chain->read, fixture->stream, &chain->byte, 1, 1, on_chain),
        MUSTER_OK);
}

static void receives_started_in_callbacks_go_on_in_the_same_turn(void **state)
{
    struct socket_stand *fixture = *state;
    struct chain chain = {.count = 0};

    socket_stand_raw_send(fixture, "0123456789");
    start_chain(fixture, &chain);
    muster_loop_turn(fixture->test.env.loop, UINT64_MAX);
    (void)muster_stream_receive_recall(&chain.read, fixture->stream);

    assert_int_equal(chain.count, 10);
}

static void one_stream_does_not_keep_the_turn_for_ever(void **state)
{
    struct socket_stand *fixture = *state;
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

/* Prompt streams: the callback of a read answers. */

struct answerer {
    struct socket_stand *fixture;
    struct muster_stream_read read;
    struct muster_stream_write writes[2];
    muster_stream_write_fn *written;
    struct iovec pieces[2];
    const char *put_back; /* NULL: it reads no more */
    unsigned read_count, written_count;
    char bytes[2];
};

static void on_answered(struct muster_stream_write *write, enum muster_rc rc)
{
    struct answerer *answerer = write->data;

    assert_int_equal(rc, MUSTER_OK);
    answerer->written_count++;
}

static void on_answered_close(struct muster_stream_write *write, enum muster_rc rc)
{
    struct answerer *answerer = write->data;

    on_answered(write, rc);
    socket_stand_close_stream(answerer->fixture);
}

static void submit_answer(struct answerer *answerer, size_t i, const char *text)
{
    answerer->pieces[i] = socket_stand_text_iov(text);
    answerer->writes[i].data = answerer;
    assert_int_equal(muster_stream_submit(&answerer->writes[i], answerer->fixture->stream,
                                          &answerer->pieces[i], 1, answerer->written),
                     MUSTER_OK);
}

static void on_ask_again(struct muster_stream_read *read, enum muster_rc rc)
{
    struct answerer *answerer = read->data;

    assert_int_equal(rc, MUSTER_OK);
    answerer->read_count++;
}

static void on_ask(struct muster_stream_read *read, enum muster_rc rc)
{
    struct answerer *answerer = read->data;
    struct muster_stream *stream = answerer->fixture->stream;

    assert_int_equal(rc, MUSTER_OK);
    answerer->read_count++;
    submit_answer(answerer, 1, "answer");
    assert_int_equal(answerer->written_count, 0);
    if (answerer->put_back == NULL)
        return;
    muster_stream_unread(stream, answerer->put_back, 1);
    assert_int_equal(muster_stream_receive_into(read, stream, answerer->bytes, 1, 1, on_ask_again),
                     MUSTER_OK);
}

/* One turn, in which a byte comes. */
static void ask_one_turn(struct socket_stand *fixture, struct answerer *answerer)
{
    answerer->fixture = fixture;
    answerer->read.data = answerer;
    assert_int_equal(
        muster_stream_receive_into(&answerer->read, fixture->stream, answerer->bytes, 1, 2, on_ask),
        MUSTER_OK);
    socket_stand_raw_send(fixture, "a");
    muster_loop_turn(fixture->test.env.loop, UINT64_MAX);
    assert_int_equal(answerer->read_count, 1);
}

static size_t raw_take(const struct socket_stand *fixture, char bytes[16])
{
    ssize_t count = recv(fixture->fd, bytes, 16, MSG_DONTWAIT);

    return count < 0 ? 0 : (size_t)count;
}

static void an_answer_leaves_in_a_later_turn_unless_the_stream_is_prompt(void **state)
{
    struct socket_stand *fixture = *state;
    struct answerer answerer = {.written = on_answered};
    char bytes[16];

    ask_one_turn(fixture, &answerer);

    assert_int_equal(raw_take(fixture, bytes), 0);
    assert_int_equal(answerer.written_count, 0);
    socket_stand_expect_raw(fixture, "answer");
}

static void a_prompt_answer_leaves_in_the_event_of_its_request(void **state)
{
    struct socket_stand *fixture = *state;
    struct answerer answerer = {.written = on_answered};
    char bytes[16];

    muster_stream_socket_set_prompt(fixture->stream);
    ask_one_turn(fixture, &answerer);

    assert_int_equal(raw_take(fixture, bytes), 6);
    assert_int_equal(answerer.written_count, 1);
    assert_false(muster_task_is_posted(&muster_stream_socket_of(fixture->stream)->task));
}

static void on_queue(struct muster_task *task)
{
    submit_answer(task->data, 0, "first ");
}

static void a_prompt_answer_leaves_behind_what_was_queued_before(void **state)
{
    struct socket_stand *fixture = *state;
    struct answerer answerer = {.fixture = fixture, .written = on_answered};
    struct muster_task task;
    char bytes[16];

    muster_stream_socket_set_prompt(fixture->stream);
    muster_task_init(&task, on_queue, &answerer);
    muster_task_post(&task, fixture->test.env.loop); /* its write would leave in the next turn */
    ask_one_turn(fixture, &answerer);

    assert_int_equal(raw_take(fixture, bytes), 12);
    assert_memory_equal(bytes, "first answer", 12);
    assert_int_equal(answerer.written_count, 2);
}

static void bytes_put_back_beside_a_prompt_answer_are_read(void **state)
{
    struct socket_stand *fixture = *state;
    struct answerer answerer = {.written = on_answered, .put_back = "b"};

    muster_stream_socket_set_prompt(fixture->stream);
    ask_one_turn(fixture, &answerer);
    while (answerer.read_count < 2)
        muster_loop_turn(fixture->test.env.loop, UINT64_MAX);

    assert_int_equal(answerer.bytes[0], 'b');
    assert_int_equal(answerer.written_count, 1);
}

static void a_prompt_stream_may_be_closed_when_an_answer_has_left(void **state)
{
    struct socket_stand *fixture = *state;
    struct answerer answerer = {.written = on_answered_close};

    muster_stream_socket_set_prompt(fixture->stream);
    ask_one_turn(fixture, &answerer);

    assert_int_equal(answerer.written_count, 1);
    assert_null(fixture->stream);
}

static void a_prompt_stream_that_is_blocked_goes_on_when_there_is_room(void **state)
{
    struct socket_stand *fixture = *state;
    uint8_t *pattern = socket_stand_make_pattern(LARGE_BYTES);
    uint8_t *received = malloc(LARGE_BYTES);
    struct answerer answerer = {.written = on_answered};
    struct iovec iov = {pattern, LARGE_BYTES};
    struct muster_stream_write write;
    struct socket_outcome outcome = {.done_count = 0};

    socket_stand_submit(fixture, &write, &outcome, &iov, 1);
    while (!muster_stream_socket_of(fixture->stream)->is_blocked)
        test_env_turn(&fixture->test.env, 1);
    muster_stream_socket_set_prompt(fixture->stream);
    ask_one_turn(fixture, &answerer);
    assert_int_equal(answerer.written_count, 0);
    socket_stand_raw_receive(fixture, received, LARGE_BYTES);
    socket_stand_expect_raw(fixture, "answer");

    assert_memory_equal(received, pattern, LARGE_BYTES);
    assert_int_equal(outcome.rc, MUSTER_OK);
    free(pattern);
    free(received);
}

/* Starts that are refused. */

static void second_receive_and_empty_receive_are_refused_untouched(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[8], other[8];
    struct muster_stream_read read;
    struct socket_outcome outcome = {.done_count = 0};

    socket_stand_receive(fixture, &read, &outcome, buffer, 2, 4);
    assert_int_equal(
        muster_stream_receive_into(&read, fixture->stream, other, 1, 8, socket_stand_on_read),
        MUSTER_FAILED_PRECONDITION);
    assert_int_equal(
        muster_stream_receive_into(&read, fixture->stream, other, 0, 8, socket_stand_on_read),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_stream_receive_into(&read, fixture->stream, other, 9, 8, socket_stand_on_read),
        MUSTER_INVALID_ARGUMENT);
    socket_stand_raw_send(fixture, "ab");
    socket_stand_wait_for(fixture, &outcome);

    assert_memory_equal(buffer, "ab", 2);
}

static void take_now_gives_what_is_there_without_waiting(void **state)
{
    struct socket_stand *fixture = *state;
    char buffer[16];
    struct muster_stream_read read;
    struct socket_outcome outcome = {.done_count = 0};

    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 0);
    muster_stream_unread(fixture->stream, "ab", 2);
    socket_stand_raw_send(fixture, "cd");
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, 3), 3);
    assert_memory_equal(buffer, "abc", 3);
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 1);

    socket_stand_receive(fixture, &read, &outcome, buffer, 1, 1);
    socket_stand_raw_send(fixture, "e");
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 0);
    socket_stand_wait_for(fixture, &outcome);
    socket_stand_close_fd(fixture);
    assert_int_equal(muster_stream_take_now(fixture->stream, buffer, sizeof(buffer)), 0);
    outcome.done_count = 0;
    socket_stand_receive(fixture, &read, &outcome, buffer, 1, 1);
    socket_stand_wait_for(fixture, &outcome);
    assert_true(read.is_eof);
}

static void stream_without_a_reader_does_not_spin(void **state)
{
    struct socket_stand *fixture = *state;
    struct muster_loop *loop = fixture->test.env.loop;
    struct chain chain = {.count = 0};
    uint64_t before_ns;

    start_chain(fixture, &chain);
    socket_stand_raw_send(fixture, "x");
    muster_loop_turn(loop, UINT64_MAX);
    (void)muster_stream_receive_recall(&chain.read, fixture->stream);
    socket_stand_close_fd(fixture);
    test_env_turn(&fixture->test.env, 3);

    /* Nothing is watched any more, so a turn that may wait does wait. */
    before_ns = muster_loop_now_ns(loop);
    muster_loop_turn(loop, MUSTER_NS_PER_MS);
    assert_true(muster_loop_now_ns(loop) - before_ns >= MUSTER_NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SOCKET_CASE(writes_of_one_turn_arrive_in_order_and_complete_in_order),
        SOCKET_CASE(submit_runs_no_callback_inside),
        SOCKET_CASE(more_pieces_than_one_system_call_takes_all_arrive),
        SOCKET_UNIX_CASE(more_pieces_than_one_system_call_takes_all_arrive),
        SOCKET_CASE(large_writes_go_on_when_the_kernel_buffer_was_full),
        SOCKET_CASE(a_turn_sends_some_writes_and_leaves_the_rest_to_the_next),
        SOCKET_UNIX_CASE(large_writes_go_on_when_the_kernel_buffer_was_full),
        SOCKET_CASE(write_may_be_used_again_in_its_callback),
        SOCKET_CASE(receive_waits_for_the_minimum_and_takes_up_to_the_maximum),
        SOCKET_CASE(the_last_bytes_of_a_large_receive_come_alone_and_small_ones_behind_it),
        SOCKET_UNIX_CASE(the_last_bytes_of_a_large_receive_come_alone_and_small_ones_behind_it),
        SOCKET_CASE(receives_started_in_callbacks_go_on_in_the_same_turn),
        SOCKET_CASE(one_stream_does_not_keep_the_turn_for_ever),
        SOCKET_CASE(an_answer_leaves_in_a_later_turn_unless_the_stream_is_prompt),
        SOCKET_CASE(a_prompt_answer_leaves_in_the_event_of_its_request),
        SOCKET_CASE(a_prompt_answer_leaves_behind_what_was_queued_before),
        SOCKET_CASE(bytes_put_back_beside_a_prompt_answer_are_read),
        SOCKET_CASE(a_prompt_stream_may_be_closed_when_an_answer_has_left),
        SOCKET_CASE(a_prompt_stream_that_is_blocked_goes_on_when_there_is_room),
        SOCKET_CASE(second_receive_and_empty_receive_are_refused_untouched),
        SOCKET_CASE(take_now_gives_what_is_there_without_waiting),
        SOCKET_CASE(stream_without_a_reader_does_not_spin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
