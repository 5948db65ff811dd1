/* Clients whose handshake is under way: how many, for how long, who waits and who goes.
 * Handshakes and streams are played. */
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include "net/grpc/server/rpc_server_internal.h"
#include "net/tls/tls_internal.h"
#include "net/tls/stream.h"
#include "virtual_loop.h"

#define TIMEOUT_NS  (20 * MUSTER_NS_PER_S)
#define SHAKING_MAX 1024
#define WAITING_MAX 16384
#define CLIENTS     (SHAKING_MAX + WAITING_MAX + 2)

struct client {
    struct muster_stream stream;
    struct muster_tls_handshake *handshake; /* NULL: has not begun, or is over */
    unsigned begun_count, cancelled_count, closed_count, visited_count, attached_count;
};

static struct {
    struct test_env test;
    struct muster_env env;
    struct virtual_loop loop;
    struct muster_rpc_server server;
    struct client clients[CLIENTS];
    const char *protocols; /* that were offered last */
    uint64_t deadline_ns;  /* of the handshake that began last */
    enum muster_rc start_rc, attach_rc;
    const char *protocol; /* that was chosen */
    unsigned told_count, logged_count, checked_count;
    char logged[MUSTER_ERROR_TEXT_BYTES];
} scene;

/* These functions stand in for the modules below and above. */

enum muster_rc muster_tls_handshake_start(struct muster_tls_handshake *handshake,
                                          struct muster_tls *tls, struct muster_stream *inner,
                                          const struct muster_tls_handshake_options *options,
                                          uint64_t deadline_ns, muster_tls_handshake_fn *done)
{
    struct client *client = MUSTER_CONTAINER_OF(inner, struct client, stream);

    (void)tls;
    assert_true(options->is_server);
    scene.protocols = options->protocols;
    scene.deadline_ns = deadline_ns;
    client->begun_count++;
    if (scene.start_rc != MUSTER_OK) {
        muster_stream_close(inner, NULL);
        return scene.start_rc;
    }
    handshake->done = done;
    handshake->stream = inner;
    client->handshake = handshake;
    return MUSTER_OK;
}

void muster_tls_handshake_cancel(struct muster_tls_handshake *handshake)
{
    MUSTER_CONTAINER_OF(handshake->stream, struct client, stream)->cancelled_count++;
}

const char *muster_tls_stream_protocol(const struct muster_stream *stream)
{
    (void)stream;
    return scene.protocol;
}

void muster_tls_log_refusal(struct muster_tls *tls, const struct muster_address *peer,
                            const struct muster_error *error)
{
    (void)tls, (void)peer;
    scene.logged_count++;
    snprintf(scene.logged, sizeof(scene.logged), "%s", error->text);
}

void muster_rpc_mismatch_tell(struct muster_rpc_mismatches *mismatches, struct muster_env *env,
                              const struct muster_address *peer, bool is_server_secured)
{
    (void)mismatches, (void)env, (void)peer;
    assert_true(is_server_secured);
    scene.told_count++;
}

enum muster_rc muster_rpc_server_visit(struct muster_rpc_server *server,
                                       struct muster_stream *stream)
{
    (void)server;
    MUSTER_CONTAINER_OF(stream, struct client, stream)->visited_count++;
    return scene.attach_rc;
}

enum muster_rc muster_rpc_server_attach_secured(struct muster_rpc_server *server,
                                                struct muster_stream *stream)
{
    (void)server;
    MUSTER_CONTAINER_OF(stream, struct client, stream)->attached_count++;
    return scene.attach_rc;
}

void muster_rpc_server_check_closed(struct muster_rpc_server *server)
{
    assert_ptr_equal(server, &scene.server);
    scene.checked_count++;
}

static void client_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    assert_null(closed);
    MUSTER_CONTAINER_OF(stream, struct client, stream)->closed_count++;
}

static const struct muster_address *client_peer(const struct muster_stream *stream)
{
    static const struct muster_address address;

    (void)stream;
    return &address;
}

/* The scene. */

static int set_up(void **state)
{
    static const struct muster_stream_ops ops = {.close = client_close, .peer = client_peer};

    (void)state;
    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    virtual_loop_init(&scene.loop);
    scene.env = scene.test.env;
    scene.env.loop = &scene.loop.loop;
    scene.server.env = &scene.env;
    scene.server.options.handshake_timeout_ns = TIMEOUT_NS;
    scene.protocol = "h2";
    muster_list_init(&scene.server.pages);
    muster_rpc_server_guests_init(&scene.server);
    for (size_t i = 0; i < CLIENTS; i++)
        scene.clients[i].stream.ops = &ops;
    virtual_loop_advance(&scene.loop, MUSTER_NS_PER_S);
    return 0;
}

static void finish_client(size_t client, enum muster_rc rc)
{
    struct muster_tls_handshake *handshake = scene.clients[client].handshake;

    assert_non_null(handshake);
    scene.clients[client].handshake = NULL;
    handshake->error.rc = rc;
    snprintf(handshake->error.text, sizeof(handshake->error.text), "why");
    handshake->done(handshake, rc);
}

static int tear_down(void **state)
{
    (void)state;
    muster_rpc_server_cancel_guests(&scene.server);
    for (size_t i = 0; i < CLIENTS; i++)
        if (scene.clients[i].handshake != NULL)
            finish_client(i, MUSTER_CANCELLED);
    assert_int_equal(scene.server.guests.shaking_count, 0);
    assert_int_equal(scene.server.guests.waiting_count, 0);
    test_env_close(&scene.test);
    return 0;
}

static void clients_come(size_t from, size_t until)
{
    for (size_t i = from; i < until; i++)
        assert_int_equal(muster_rpc_server_shake(&scene.server, &scene.clients[i].stream),
                         MUSTER_OK);
}

static size_t count_cancelled(size_t until)
{
    size_t count = 0;

    for (size_t i = 0; i < until; i++)
        count += scene.clients[i].cancelled_count;
    return count;
}

/* Ends. */

static void who_is_let_in_is_served_what_it_speaks(void **state)
{
    struct muster_list page;

    (void)state;
    clients_come(0, 1);
    assert_string_equal(scene.protocols, "h2");
    assert_int_equal(scene.deadline_ns, muster_loop_now_ns(&scene.loop.loop) + TIMEOUT_NS);
    finish_client(0, MUSTER_OK);
    assert_int_equal(scene.clients[0].attached_count, 1);
    muster_list_append(&scene.server.pages, &page);
    clients_come(1, 2);
    assert_string_equal(scene.protocols, "h2,http/1.1");
    scene.protocol = "http/1.1";
    finish_client(1, MUSTER_OK);

    assert_int_equal(scene.clients[1].visited_count, 1);
    assert_int_equal(scene.clients[1].attached_count, 0);
    assert_int_equal(scene.checked_count, 2);
    assert_int_equal(scene.server.guests.shaking_count, 0);
    assert_int_equal(scene.told_count + scene.logged_count, 0);
}

static void who_is_not_let_in_is_told_of(void **state)
{
    static const struct {
        enum muster_rc rc;
        unsigned told_count, logged_count;
    } rows[] = {
        {MUSTER_UNAUTHENTICATED, 0, 1},
        {MUSTER_UNAVAILABLE, 0, 1},
        {MUSTER_CANCELLED, 0, 1}, /* what is not for the log is the log's to know */
        {MUSTER_FAILED_PRECONDITION, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene.told_count = scene.logged_count = 0;
        clients_come(i, i + 1);
        finish_client(i, rows[i].rc);

        assert_int_equal(scene.told_count, rows[i].told_count);
        assert_int_equal(scene.logged_count, rows[i].logged_count);
        assert_int_equal(scene.clients[i].attached_count, 0);
        assert_int_equal(scene.server.guests.shaking_count, 0);
        assert_int_equal(scene.checked_count, i + 1);
    }
    assert_string_equal(scene.logged, "why");
}

static void a_handshake_that_cannot_begin_holds_no_place(void **state)
{
    (void)state;
    scene.start_rc = MUSTER_RESOURCE_EXHAUSTED;
    assert_int_equal(muster_rpc_server_shake(&scene.server, &scene.clients[0].stream),
                     MUSTER_RESOURCE_EXHAUSTED);
    scene.start_rc = MUSTER_OK;
    scene.test.mem.fail_at = 1;
    assert_int_equal(muster_rpc_server_shake(&scene.server, &scene.clients[1].stream),
                     MUSTER_RESOURCE_EXHAUSTED);

    assert_int_equal(scene.clients[0].closed_count, 1);
    assert_int_equal(scene.clients[1].closed_count, 1);
    assert_int_equal(scene.clients[1].begun_count, 0);
    assert_int_equal(scene.server.guests.shaking_count, 0);
}

/* Places. */

static void so_many_shake_and_the_others_wait_their_turn(void **state)
{
    (void)state;
    clients_come(0, SHAKING_MAX + 3);
    assert_int_equal(scene.clients[SHAKING_MAX - 1].begun_count, 1);
    assert_int_equal(scene.clients[SHAKING_MAX].begun_count, 0);
    assert_int_equal(scene.server.guests.shaking_count, SHAKING_MAX);
    assert_int_equal(scene.server.guests.waiting_count, 3);
    finish_client(5, MUSTER_OK);

    assert_int_equal(scene.clients[SHAKING_MAX].begun_count, 1); /* first come, first served */
    assert_int_equal(scene.clients[SHAKING_MAX + 1].begun_count, 0);
    assert_int_equal(scene.server.guests.shaking_count, SHAKING_MAX);
    assert_int_equal(scene.server.guests.waiting_count, 2);
    scene.start_rc = MUSTER_RESOURCE_EXHAUSTED; /* those who cannot begin make
                                                 room for the next */
    finish_client(6, MUSTER_OK);
    assert_int_equal(scene.clients[SHAKING_MAX + 1].closed_count, 1);
    assert_int_equal(scene.clients[SHAKING_MAX + 2].closed_count, 1);
    assert_int_equal(scene.server.guests.waiting_count, 0);
}

static void one_too_many_sends_the_oldest_that_waits_away(void **state)
{
    (void)state;
    clients_come(0, SHAKING_MAX + WAITING_MAX);
    assert_int_equal(scene.clients[SHAKING_MAX].closed_count, 0);
    clients_come(SHAKING_MAX + WAITING_MAX, CLIENTS);

    assert_int_equal(scene.server.guests.waiting_count, WAITING_MAX);
    assert_int_equal(scene.clients[SHAKING_MAX].closed_count, 1);
    assert_int_equal(scene.clients[SHAKING_MAX + 1].closed_count, 1);
    assert_int_equal(scene.clients[SHAKING_MAX + 2].closed_count, 0);
    finish_client(0, MUSTER_OK);
    assert_int_equal(scene.clients[SHAKING_MAX + 2].begun_count, 1);
}

/* Time. */

static void who_takes_long_goes_when_others_wait(void **state)
{
    (void)state;
    clients_come(0, 2);
    virtual_loop_advance(&scene.loop, MUSTER_NS_PER_S);
    clients_come(2, SHAKING_MAX);
    virtual_loop_advance(&scene.loop, 10 * MUSTER_NS_PER_S);
    assert_int_equal(count_cancelled(SHAKING_MAX), 0); /* nobody waits */
    for (size_t i = 0; i < SHAKING_MAX; i++)
        finish_client(i, MUSTER_UNAVAILABLE);

    for (size_t i = 0; i < SHAKING_MAX; i++) {
        clients_come(i, i + 1);
        if (i == 1)
            virtual_loop_advance(&scene.loop, MUSTER_NS_PER_S);
    }
    clients_come(SHAKING_MAX, SHAKING_MAX + 3);
    virtual_loop_advance(&scene.loop, 2 * MUSTER_NS_PER_S - 1);
    assert_int_equal(count_cancelled(SHAKING_MAX), 0);
    virtual_loop_advance(&scene.loop, 1); /* 3 s for the first two */
    assert_int_equal(scene.clients[0].cancelled_count, 1);
    assert_int_equal(scene.clients[1].cancelled_count, 1);
    assert_int_equal(count_cancelled(SHAKING_MAX), 2);
    finish_client(0, MUSTER_CANCELLED);
    finish_client(1, MUSTER_CANCELLED);
    assert_int_equal(scene.server.guests.waiting_count, 1);
    virtual_loop_advance(&scene.loop, MUSTER_NS_PER_S - 1);
    assert_int_equal(count_cancelled(SHAKING_MAX), 2);
    virtual_loop_advance(&scene.loop, 1);

    assert_int_equal(count_cancelled(SHAKING_MAX), 3); /* one waits, one goes: the oldest */
    assert_int_equal(scene.clients[2].cancelled_count, 1);
}

static void when_nobody_waits_any_more_nobody_goes(void **state)
{
    (void)state;
    clients_come(0, SHAKING_MAX + 1);
    finish_client(7, MUSTER_OK);
    assert_int_equal(scene.server.guests.waiting_count, 0);
    virtual_loop_advance(&scene.loop, 30 * MUSTER_NS_PER_S);

    assert_int_equal(count_cancelled(SHAKING_MAX + 1), 0);
    assert_false(muster_timer_is_started(&scene.server.guests.timer));
}

static void a_server_that_ends_sends_everybody_away(void **state)
{
    (void)state;
    clients_come(0, SHAKING_MAX + 2);
    muster_rpc_server_cancel_guests(&scene.server);

    assert_int_equal(count_cancelled(SHAKING_MAX), SHAKING_MAX);
    assert_int_equal(scene.clients[SHAKING_MAX].closed_count, 1);
    assert_int_equal(scene.clients[SHAKING_MAX + 1].closed_count, 1);
    assert_false(muster_timer_is_started(&scene.server.guests.timer));
    for (size_t i = 0; i < SHAKING_MAX; i++)
        finish_client(i, MUSTER_CANCELLED);
    assert_int_equal(scene.checked_count, SHAKING_MAX);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(who_is_let_in_is_served_what_it_speaks),
        CASE(who_is_not_let_in_is_told_of),
        CASE(a_handshake_that_cannot_begin_holds_no_place),
        CASE(so_many_shake_and_the_others_wait_their_turn),
        CASE(one_too_many_sends_the_oldest_that_waits_away),
        CASE(who_takes_long_goes_when_others_wait),
        CASE(when_nobody_waits_any_more_nobody_goes),
        CASE(a_server_that_ends_sends_everybody_away),
    };

    return cmocka_run_group_tests_name("rpc_server_tls", tests, NULL, NULL);
}
