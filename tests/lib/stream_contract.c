/* The contract of every byte stream: cases over a connected pair of streams. */
#include "tests/lib/stream_contract.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "net/stream/net_internal.h"

#define TURNS_MAX  200000
#define BULK_BYTES 300000
#define FAR_NS     (60 * MUSTER_NS_PER_S)

struct pair {
    struct stream_contract contract;
    stream_contract_open_fn *open;
    stream_contract_close_fn *close;
    void (*run)(struct pair *pair);
    struct muster_listener *listener;
    struct muster_connect connect;
    struct muster_stream *client, *server;
    unsigned connect_count, accept_count, closed_count, listener_closed_count;
    enum muster_rc connect_rc;
    bool is_inside; /* a call that must not call back is under way */
};

/* One request with what its callback saw. */
struct seen_write {
    struct muster_stream_write write;
    struct iovec iov[3];
    struct pair *pair;
    unsigned count;
    enum muster_rc rc;
};
struct seen_read {
    struct muster_stream_read read;
    struct pair *pair;
    unsigned count;
    enum muster_rc rc;
    unsigned closed_before;
};

static void pair_enter(struct pair *pair)
{
    if (pair->contract.enter != NULL)
        pair->contract.enter(&pair->contract);
    pair->is_inside = true;
}

static void pair_leave(struct pair *pair)
{
    pair->is_inside = false;
    if (pair->contract.leave != NULL)
        pair->contract.leave(&pair->contract);
}

static void pair_turn(struct pair *pair)
{
    pair->contract.turn(&pair->contract);
}

static uint64_t far_ns(struct pair *pair)
{
    return muster_loop_after_ns(pair->contract.env->loop, FAR_NS);
}

static void run_until_count(struct pair *pair, const unsigned *count, unsigned wanted)
{
    unsigned turns;

    for (turns = 0; *count < wanted && turns < TURNS_MAX; turns++)
        pair_turn(pair);
    assert_int_equal(*count, wanted);
}

static void on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    struct seen_write *seen = write->data;

    assert_false(seen->pair->is_inside);
    seen->rc = rc;
    seen->count++;
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct seen_read *seen = read->data;

    assert_false(seen->pair->is_inside);
    seen->rc = rc;
    seen->closed_before = seen->pair->closed_count;
    seen->count++;
}

static enum muster_rc pair_submit(struct pair *pair, struct seen_write *seen,
                                  struct muster_stream *stream, const void *bytes, size_t count)
{
    enum muster_rc rc;

    seen->pair = pair;
    seen->write.data = seen;
    seen->iov[0] = (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
    pair_enter(pair);
    rc = muster_stream_submit(&seen->write, stream, seen->iov, 1, on_write);
    pair_leave(pair);
    return rc;
}

static enum muster_rc pair_receive(struct pair *pair, struct seen_read *seen,
                                   struct muster_stream *stream, void *buffer, size_t bytes_min,
                                   size_t bytes_max)
{
    enum muster_rc rc;

    seen->pair = pair;
    seen->read.data = seen;
    pair_enter(pair);
    rc = muster_stream_receive_into(&seen->read, stream, buffer, bytes_min, bytes_max, on_read);
    pair_leave(pair);
    return rc;
}

static void on_closed(struct muster_stream *stream)
{
    struct pair *pair = stream->data;

    assert_false(pair->is_inside);
    pair->closed_count++;
}

static void close_stream(struct pair *pair, struct muster_stream **stream)
{
    if (*stream == NULL)
        return;
    pair_enter(pair);
    (*stream)->data = pair;
    muster_stream_close(*stream, on_closed);
    pair_leave(pair);
    *stream = NULL;
}

static void fill_bytes(uint8_t *bytes, size_t count, unsigned salt)
{
    size_t i;

    for (i = 0; i < count; i++)
        bytes[i] = (uint8_t)((i * 2654435761u + salt) >> 7);
}

/* Cases. */

static void bytes_of_a_gathered_write_arrive_whole_and_in_order(struct pair *pair)
{
    static uint8_t sent[BULK_BYTES], received[BULK_BYTES];
    struct seen_write write = {.pair = pair, .write.data = &write};
    struct seen_read read = {.count = 0};
    size_t bytes = 0;

    fill_bytes(sent, sizeof(sent), 3);
    write.iov[0] = (struct iovec){.iov_base = sent, .iov_len = 1};
    write.iov[1] = (struct iovec){.iov_base = sent + 1, .iov_len = 99999};
    write.iov[2] = (struct iovec){.iov_base = sent + 100000, .iov_len = sizeof(sent) - 100000};
    pair_enter(pair);
    assert_int_equal(muster_stream_submit(&write.write, pair->client, write.iov, 3, on_write),
                     MUSTER_OK);
    pair_leave(pair);
    while (bytes < sizeof(received)) {
        size_t rest = sizeof(received) - bytes;

        read.count = 0;
        assert_int_equal(pair_receive(pair, &read, pair->server, received + bytes,
                                      rest < 700 ? rest : 700, rest),
                         MUSTER_OK);
        run_until_count(pair, &read.count, 1);
        assert_int_equal(read.rc, MUSTER_OK);
        bytes += read.read.bytes_done;
    }

    run_until_count(pair, &write.count, 1);
    assert_int_equal(write.rc, MUSTER_OK);
    assert_int_equal(write.write.bytes_done, sizeof(sent));
    assert_memory_equal(sent, received, sizeof(sent));
}

static void writes_of_one_turn_keep_their_order(struct pair *pair)
{
    struct seen_write writes[3] = {{.count = 0}};
    struct seen_read read = {.count = 0};
    char received[6];

    assert_int_equal(pair_submit(pair, &writes[0], pair->client, "ab", 2), MUSTER_OK);
    assert_int_equal(pair_submit(pair, &writes[1], pair->client, "cd", 2), MUSTER_OK);
    assert_int_equal(pair_submit(pair, &writes[2], pair->client, "ef", 2), MUSTER_OK);
    assert_int_equal(pair_receive(pair, &read, pair->server, received, 6, 6), MUSTER_OK);
    run_until_count(pair, &read.count, 1);

    assert_memory_equal(received, "abcdef", 6);
}

static void a_read_waits_for_its_minimum(struct pair *pair)
{
    struct seen_write first = {.count = 0}, second = {.count = 0};
    struct seen_read read = {.count = 0};
    char received[8];
    unsigned i;

    assert_int_equal(pair_receive(pair, &read, pair->server, received, 4, 8), MUSTER_OK);
    assert_int_equal(pair_submit(pair, &first, pair->client, "abc", 3), MUSTER_OK);
    run_until_count(pair, &first.count, 1);
    for (i = 0; i < 20; i++)
        pair_turn(pair);
    assert_int_equal(read.count, 0);
    assert_int_equal(pair_submit(pair, &second, pair->client, "d", 1), MUSTER_OK);
    run_until_count(pair, &read.count, 1);

    assert_int_equal(read.read.bytes_done, 4);
    assert_memory_equal(received, "abcd", 4);
}

static void a_second_read_is_refused(struct pair *pair)
{
    struct seen_read first = {.count = 0}, second = {.count = 0};
    char received[2];

    assert_int_equal(pair_receive(pair, &first, pair->server, received, 1, 1), MUSTER_OK);
    assert_int_equal(pair_receive(pair, &second, pair->server, received + 1, 1, 1),
                     MUSTER_FAILED_PRECONDITION);
    close_stream(pair, &pair->server);
    run_until_count(pair, &first.count, 1);

    assert_int_equal(first.rc, MUSTER_CANCELLED);
    assert_int_equal(second.count, 0);
}

static void shutdown_sends_what_is_queued_and_then_the_end(struct pair *pair)
{
    struct seen_write write = {.count = 0}, late = {.count = 0};
    struct seen_read read = {.count = 0};
    char received[8];

    assert_int_equal(pair_submit(pair, &write, pair->client, "abc", 3), MUSTER_OK);
    pair_enter(pair);
    muster_stream_shutdown(pair->client);
    pair_leave(pair);
    assert_int_equal(pair_submit(pair, &late, pair->client, "d", 1), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(pair_receive(pair, &read, pair->server, received, 8, 8), MUSTER_OK);
    run_until_count(pair, &read.count, 1);

    assert_int_equal(write.rc, MUSTER_OK);
    assert_int_equal(read.rc, MUSTER_UNAVAILABLE);
    assert_true(read.read.is_eof);
    assert_int_equal(read.read.bytes_done, 3);
    assert_memory_equal(received, "abc", 3);
}

static void the_other_direction_works_after_shutdown(struct pair *pair)
{
    struct seen_write write = {.count = 0};
    struct seen_read read = {.count = 0};
    char received[3];

    pair_enter(pair);
    muster_stream_shutdown(pair->client);
    pair_leave(pair);
    assert_int_equal(pair_submit(pair, &write, pair->server, "xyz", 3), MUSTER_OK);
    assert_int_equal(pair_receive(pair, &read, pair->client, received, 3, 3), MUSTER_OK);
    run_until_count(pair, &read.count, 1);

    assert_int_equal(read.rc, MUSTER_OK);
    assert_memory_equal(received, "xyz", 3);
}

static void close_cancels_open_requests_and_calls_closed_last(struct pair *pair)
{
    static uint8_t bulk[8 << 20];
    struct seen_write write = {.count = 0};
    struct seen_read read = {.count = 0};
    char received[1];

    assert_int_equal(pair_submit(pair, &write, pair->client, bulk, sizeof(bulk)), MUSTER_OK);
    assert_int_equal(pair_receive(pair, &read, pair->client, received, 1, 1), MUSTER_OK);
    close_stream(pair, &pair->client);
    assert_int_equal(write.count + read.count + pair->closed_count, 0);
    run_until_count(pair, &pair->closed_count, 1);

    assert_int_equal(write.count, 1);
    assert_int_equal(write.rc, MUSTER_CANCELLED);
    assert_int_equal(read.count, 1);
    assert_int_equal(read.rc, MUSTER_CANCELLED);
    assert_int_equal(read.closed_before, 0);
}

static void a_closed_peer_is_the_end_of_the_stream(struct pair *pair)
{
    struct seen_read read = {.count = 0};
    char received[1];

    assert_int_equal(pair_receive(pair, &read, pair->server, received, 1, 1), MUSTER_OK);
    close_stream(pair, &pair->client);
    run_until_count(pair, &read.count, 1);

    assert_int_equal(read.rc, MUSTER_UNAVAILABLE);
    assert_true(read.read.is_eof);
}

static void writing_to_a_closed_peer_fails_in_the_end(struct pair *pair)
{
    static uint8_t bulk[100000];
    struct seen_write write = {.count = 0};
    unsigned tries;

    close_stream(pair, &pair->server);
    for (tries = 0; tries < 1000 && write.rc == MUSTER_OK; tries++) {
        write.count = 0;
        assert_int_equal(pair_submit(pair, &write, pair->client, bulk, sizeof(bulk)), MUSTER_OK);
        run_until_count(pair, &write.count, 1);
    }

    assert_int_equal(write.rc, MUSTER_UNAVAILABLE);
}

static void a_recalled_read_keeps_the_bytes_that_follow(struct pair *pair)
{
    struct seen_write write = {.count = 0};
    struct seen_read recalled = {.count = 0}, read = {.count = 0};
    char received[6];
    size_t placed;

    assert_int_equal(pair_receive(pair, &recalled, pair->server, received, 6, 6), MUSTER_OK);
    assert_int_equal(pair_submit(pair, &write, pair->client, "abc", 3), MUSTER_OK);
    run_until_count(pair, &write.count, 1);
    pair_turn(pair);
    pair_enter(pair);
    placed = muster_stream_receive_recall(&recalled.read, pair->server);
    pair_leave(pair);
    assert_true(placed <= 3);
    assert_int_equal(pair_submit(pair, &write, pair->client, "def", 3), MUSTER_OK);
    assert_int_equal(
        pair_receive(pair, &read, pair->server, received + placed, 6 - placed, 6 - placed),
        MUSTER_OK);
    run_until_count(pair, &read.count, 1);

    assert_int_equal(recalled.count, 0);
    assert_memory_equal(received, "abcdef", 6);
}

static void the_rest_of_a_recalled_write_goes_first(struct pair *pair)
{
    static uint8_t sent[8 << 20], received[sizeof(sent) + 3];
    struct seen_write first = {.count = 0}, behind = {.count = 0}, rest = {.count = 0};
    struct seen_read read = {.count = 0};
    unsigned turns;
    size_t taken;

    fill_bytes(sent, sizeof(sent), 7);
    assert_int_equal(pair_submit(pair, &first, pair->client, sent, sizeof(sent)), MUSTER_OK);
    assert_int_equal(pair_submit(pair, &behind, pair->client, "end", 3), MUSTER_OK);
    for (turns = 0; turns < 100 && first.write.bytes_done == 0; turns++)
        pair_turn(pair);
    pair_enter(pair);
    taken = muster_stream_submit_recall(&first.write, pair->client);
    pair_leave(pair);
    assert_true(taken > 0 && taken < sizeof(sent));
    assert_int_equal(pair_submit(pair, &rest, pair->client, sent + taken, sizeof(sent) - taken),
                     MUSTER_OK);
    assert_int_equal(
        pair_receive(pair, &read, pair->server, received, sizeof(received), sizeof(received)),
        MUSTER_OK);
    run_until_count(pair, &read.count, 1);

    assert_int_equal(first.count, 0);
    assert_memory_equal(received, sent, sizeof(sent));
    assert_memory_equal(received + sizeof(sent), "end", 3);
}

static void unread_bytes_come_back_first(struct pair *pair)
{
    struct seen_write write = {.count = 0};
    struct seen_read read = {.count = 0};
    char received[6];

    assert_int_equal(pair_submit(pair, &write, pair->client, "abcdef", 6), MUSTER_OK);
    assert_int_equal(pair_receive(pair, &read, pair->server, received, 4, 4), MUSTER_OK);
    run_until_count(pair, &read.count, 1);
    pair_enter(pair);
    muster_stream_unread(pair->server, "cd", 2);
    muster_stream_unread(pair->server, "ab", 2);
    pair_leave(pair);
    memset(received, 0, sizeof(received));
    read.count = 0;
    assert_int_equal(pair_receive(pair, &read, pair->server, received, 6, 6), MUSTER_OK);
    run_until_count(pair, &read.count, 1);

    assert_memory_equal(received, "abcdef", 6);
}

static void take_now_takes_only_what_is_there(struct pair *pair)
{
    struct seen_write write = {.count = 0};
    char received[4] = {0};
    size_t bytes = 0;
    unsigned turns;

    pair_enter(pair);
    assert_int_equal(muster_stream_take_now(pair->server, received, 4), 0);
    pair_leave(pair);
    assert_int_equal(pair_submit(pair, &write, pair->client, "wxyz", 4), MUSTER_OK);
    for (turns = 0; turns < TURNS_MAX && bytes < 4; turns++) {
        pair_turn(pair);
        pair_enter(pair);
        bytes += muster_stream_take_now(pair->server, received + bytes, 4 - bytes);
        pair_leave(pair);
    }

    assert_memory_equal(received, "wxyz", 4);
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct pair *pair = connect->data;

    assert_false(pair->is_inside);
    pair->connect_rc = rc;
    pair->connect_count++;
    if (rc == MUSTER_OK)
        pair->client = connect->stream;
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct pair *pair = listener->data;

    pair->accept_count++;
    if (pair->server != NULL) /* of a connect that was cancelled */
        muster_stream_close(stream, NULL);
    else
        pair->server = stream;
}

static void on_listener_closed(struct muster_listener *listener)
{
    struct pair *pair = listener->data;

    pair->listener_closed_count++;
}

static void start_connect(struct pair *pair, const struct muster_address *address,
                          uint64_t deadline_ns)
{
    pair->connect_count = 0;
    pair->connect.data = pair;
    pair_enter(pair);
    assert_int_equal(muster_connect_start(&pair->connect, pair->contract.env->net, address, NULL,
                                          deadline_ns, on_connect),
                     MUSTER_OK);
    pair_leave(pair);
}

static void close_listener(struct pair *pair)
{
    if (pair->listener == NULL)
        return;
    pair_enter(pair);
    muster_listener_close(pair->listener, on_listener_closed);
    pair_leave(pair);
    pair->listener = NULL;
    run_until_count(pair, &pair->listener_closed_count, 1);
}

static void connecting_where_nobody_listens_is_unavailable(struct pair *pair)
{
    struct muster_address address = *muster_listener_address(pair->listener);

    close_stream(pair, &pair->client);
    run_until_count(pair, &pair->closed_count, 1);
    close_listener(pair);
    start_connect(pair, &address, far_ns(pair));
    run_until_count(pair, &pair->connect_count, 1);

    assert_int_equal(pair->connect_rc, MUSTER_UNAVAILABLE);
    assert_int_equal(pair->connect.error.rc, MUSTER_UNAVAILABLE);
}

static void a_cancelled_connect_is_called_back_once(struct pair *pair)
{
    unsigned i;

    close_stream(pair, &pair->client);
    start_connect(pair, muster_listener_address(pair->listener), far_ns(pair));
    pair_enter(pair);
    muster_connect_cancel(&pair->connect);
    pair_leave(pair);
    assert_int_equal(pair->connect_count, 0);
    run_until_count(pair, &pair->connect_count, 1);
    for (i = 0; i < 50; i++)
        pair_turn(pair);

    assert_int_equal(pair->connect_count, 1);
    assert_int_equal(pair->connect_rc, MUSTER_CANCELLED);
}

static void a_taken_port_is_named(struct pair *pair)
{
    struct muster_listener *second = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    pair_enter(pair);
    rc = muster_listener_open(pair->contract.env->net, muster_listener_address(pair->listener),
                              NULL, on_accept, pair, &second, &error);
    pair_leave(pair);

    assert_int_equal(rc, MUSTER_ALREADY_EXISTS);
    assert_true(error.text[0] != '\0');
}

static void both_sides_name_each_other(struct pair *pair)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES], other[MUSTER_ADDRESS_TEXT_BYTES];

    muster_address_format(muster_stream_peer(pair->client), text);
    muster_address_format(muster_stream_local(pair->server), other);
    assert_string_equal(text, other);
    muster_address_format(muster_stream_local(pair->client), text);
    muster_address_format(muster_stream_peer(pair->server), other);
    assert_string_equal(text, other);
}

/* The runner. */

static void make_pair(struct pair *pair)
{
    struct muster_stream *streams[2];

    pair_enter(pair);
    assert_int_equal(pair->contract.make(pair->contract.env, streams), MUSTER_OK);
    pair_leave(pair);
    pair->client = streams[0];
    pair->server = streams[1];
}

static void connect_pair(struct pair *pair)
{
    pair_enter(pair);
    assert_int_equal(muster_listener_open(pair->contract.env->net, &pair->contract.address, NULL,
                                          on_accept, pair, &pair->listener, NULL),
                     MUSTER_OK);
    pair_leave(pair);
    start_connect(pair, muster_listener_address(pair->listener), far_ns(pair));
    run_until_count(pair, &pair->connect_count, 1);
    run_until_count(pair, &pair->accept_count, 1);
    assert_int_equal(pair->connect_rc, MUSTER_OK);
    if (pair->contract.is_prompt) {
        muster_stream_socket_set_prompt(pair->client);
        muster_stream_socket_set_prompt(pair->server);
    }
}

static void run_case(void **state)
{
    struct pair *pair = *state;
    unsigned turns;

    pair->open(&pair->contract);
    if (pair->contract.make != NULL)
        make_pair(pair);
    else
        connect_pair(pair);
    pair->run(pair);
    close_stream(pair, &pair->client);
    close_stream(pair, &pair->server);
    close_listener(pair);
    for (turns = 0; turns < 300; turns++)
        pair_turn(pair);
    pair->close(&pair->contract);
}

#define CASE(function)                                                                             \
    {                                                                                              \
#function, function                                                                        \
    }

static int contract_run(const char *group, stream_contract_open_fn *open,
                        stream_contract_close_fn *close, bool has_network)
{
    static const struct {
        const char *name;
        void (*run)(struct pair *pair);
    } cases[] = {
        CASE(bytes_of_a_gathered_write_arrive_whole_and_in_order),
        CASE(writes_of_one_turn_keep_their_order),
        CASE(a_read_waits_for_its_minimum),
        CASE(a_second_read_is_refused),
        CASE(shutdown_sends_what_is_queued_and_then_the_end),
        CASE(the_other_direction_works_after_shutdown),
        CASE(close_cancels_open_requests_and_calls_closed_last),
        CASE(a_closed_peer_is_the_end_of_the_stream),
        CASE(writing_to_a_closed_peer_fails_in_the_end),
        CASE(a_recalled_read_keeps_the_bytes_that_follow),
        CASE(the_rest_of_a_recalled_write_goes_first),
        CASE(unread_bytes_come_back_first),
        CASE(take_now_takes_only_what_is_there),
        /* With a network. */
        CASE(connecting_where_nobody_listens_is_unavailable),
        CASE(a_cancelled_connect_is_called_back_once),
        CASE(a_taken_port_is_named),
        CASE(both_sides_name_each_other),
    };
    enum { COUNT = sizeof(cases) / sizeof(cases[0]), NETWORK_COUNT = 4 };
    static struct pair pairs[COUNT];
    struct CMUnitTest tests[COUNT];
    size_t count = has_network ? COUNT : COUNT - NETWORK_COUNT;
    size_t i;

    for (i = 0; i < count; i++) {
        pairs[i] = (struct pair){.run = cases[i].run, .open = open, .close = close};
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name,
            .test_func = run_case,
            .initial_state = &pairs[i],
        };
    }
    return _cmocka_run_group_tests(group, tests, count, NULL, NULL);
}

int stream_contract_run(const char *group, stream_contract_open_fn *open,
                        stream_contract_close_fn *close)
{
    return contract_run(group, open, close, true);
}

int stream_contract_run_pairs(const char *group, stream_contract_open_fn *open,
                              stream_contract_close_fn *close)
{
    return contract_run(group, open, close, false);
}
