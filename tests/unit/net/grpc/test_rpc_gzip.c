/* Compressed messages of calls, message by message, both ways. */
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

#define LONG_BYTES 3000

struct seen {
    char compressed[16]; /* by message: 'z' or '-' */
    size_t count;
};

static struct seen server_seen, client_seen;

static void see_message(struct seen *seen, bool is_compressed)
{
    assert_true(seen->count + 1 < sizeof(seen->compressed));
    seen->compressed[seen->count++] = is_compressed ? 'z' : '-';
    seen->compressed[seen->count] = '\0';
}

static void on_start(struct muster_rpc *rpc)
{
    muster_rpc_set_compression(rpc, MUSTER_COMPRESSION_GZIP);
}

/* Every second answer is sent plainly. */
static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    see_message(&server_seen, muster_rpc_is_compressed(rpc));
    muster_rpc_set_compressing(rpc, server_seen.count % 2 == 1);
    assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
}

static void on_half_close(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_unary(struct muster_rpc *rpc, struct muster_bytes message)
{
    on_message(rpc, message);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/test.Gzip/Echo",
     .on_start = on_start,
     .on_message = on_message,
     .on_half_close = on_half_close},
    {.path = "/test.Gzip/Unary", .on_start = on_start, .on_message = on_unary, .is_unary = true},
};

static int set_up(void **state)
{
    const struct muster_rpc_server_options options = {.receive_message_max_bytes = 10000};
    struct rpc_fixture *fixture = rpc_scene_open(state, sizeof(*fixture), &options, NULL);

    memset(&server_seen, 0, sizeof(server_seen));
    memset(&client_seen, 0, sizeof(client_seen));
    assert_int_equal(muster_rpc_server_add(fixture->server, methods, 2, NULL), MUSTER_OK);
    return 0;
}

static void see_answer(struct rpc_probe *probe)
{
    see_message(&client_seen, muster_call_is_compressed(&probe->call));
}

static void probe_start(struct rpc_probe *probe, struct rpc_fixture *fixture, const char *method,
                        enum muster_compression compression)
{
    struct muster_call_options options = {
        .method = method, .deadline_ns = UINT64_MAX, .compression = compression};

    probe->on_message_hook = see_answer;
    assert_int_equal(rpc_probe_start_with(probe, fixture, &options), MUSTER_OK);
}

static void send_letters(struct rpc_probe *probe, size_t bytes)
{
    char *text = calloc(1, bytes + 1);

    memset(text, 'a', bytes);
    rpc_probe_send(probe, text);
    free(text);
}

static void each_message_is_compressed_or_not(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    probe_start(&probe, fixture, "/test.Gzip/Echo", MUSTER_COMPRESSION_GZIP);
    send_letters(&probe, LONG_BYTES);
    muster_call_set_compressing(&probe.call, false);
    send_letters(&probe, LONG_BYTES);
    muster_call_set_compressing(&probe.call, true);
    send_letters(&probe, LONG_BYTES);
    send_letters(&probe, 3); /* would get longer */
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(server_seen.compressed, "z-z-");
    assert_string_equal(client_seen.compressed, "z-z-");
    assert_int_equal(probe.message_bytes, 3 * LONG_BYTES + 3);
}

static void a_call_without_compression_sends_none(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    probe_start(&probe, fixture, "/test.Gzip/Unary", MUSTER_COMPRESSION_NONE);
    muster_call_set_compressing(&probe.call, true);
    send_letters(&probe, LONG_BYTES);
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(server_seen.compressed, "-");
    assert_string_equal(client_seen.compressed, "z"); /* it takes gzip all the same */
}

static void what_comes_out_is_limited_too(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    probe_start(&probe, fixture, "/test.Gzip/Unary", MUSTER_COMPRESSION_GZIP);
    send_letters(&probe, 10001);
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(probe.text, "holds more than 10000"));
    assert_int_equal(server_seen.count, 0);
}

static bool is_returned;

static void on_returned(struct muster_loan *loan)
{
    (void)loan;
    is_returned = true;
}

static void lent_pieces_are_compressed_and_returned(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_loan loan = {.data = NULL};
    char text[LONG_BYTES];
    const struct iovec pieces[] = {{text, 1000}, {text, 0}, {text + 1000, LONG_BYTES - 1000}};

    memset(text, 'b', sizeof(text));
    is_returned = false;
    probe_start(&probe, fixture, "/test.Gzip/Unary", MUSTER_COMPRESSION_GZIP);
    assert_int_equal(muster_call_send_loan(&probe.call, &loan, pieces, 3, on_returned), MUSTER_OK);
    assert_false(is_returned);
    rpc_probe_end(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_true(is_returned);
    assert_string_equal(server_seen.compressed, "z");
    assert_int_equal(probe.message_bytes, LONG_BYTES);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest rpc_gzip[] = {
        CASE(each_message_is_compressed_or_not),
        CASE(a_call_without_compression_sends_none),
        CASE(what_comes_out_is_limited_too),
        CASE(lent_pieces_are_compressed_and_returned),
    };

    return cmocka_run_group_tests(rpc_gzip, NULL, NULL);
}
