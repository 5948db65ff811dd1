/* Two streams over a socket pair that shake hands with each other. */
#include "tls_pair.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_authority.h"
#include "net/stream/net_internal.h"

static void open_inner(struct tls_pair *pair)
{
    struct tls_side *sides[] = {&pair->client, &pair->server};

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fds), 0);
    for (size_t i = 0; i < 2; i++) {
        memset(sides[i], 0, sizeof(*sides[i]));
        assert_int_equal(muster_stream_socket_open(&pair->test.env, pair->fds[i], &sides[i]->inner),
                         MUSTER_OK);
    }
}

void tls_pair_open(struct tls_pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    test_env_open(&pair->test);
    open_inner(pair);
}

void tls_pair_credentials(struct tls_pair *pair)
{
    struct fake_authority *authority = fake_authority_new("authority");
    struct muster_env *env = &pair->test.env;
    struct fake_cert cert;

    assert_true(fake_cert_init(
        &cert, authority,
        &(struct fake_cert_options){.name = "server", .alt_names = "DNS:localhost"}));
    assert_int_equal(muster_tls_open(env,
                                     &(struct muster_tls_options){.cert_pem = cert.cert_pem,
                                                                  .key_pem = cert.key_pem},
                                     &pair->server_tls, NULL),
                     MUSTER_OK);
    assert_int_equal(
        muster_tls_open(env, &(struct muster_tls_options){.ca_pem = fake_authority_pem(authority)},
                        &pair->client_tls, NULL),
        MUSTER_OK);
    fake_cert_fini(&cert);
    fake_authority_free(authority);
}

static void on_done(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    struct tls_side *side = handshake->data;

    side->done_count++;
    side->rc = rc;
    side->error = handshake->error;
    side->stream = handshake->stream;
}

void tls_pair_start(struct tls_pair *pair, struct tls_side *side, struct muster_tls *tls,
                    const struct muster_tls_handshake_options *options, uint64_t timeout_ns)
{
    struct muster_stream *inner = side->inner;

    side->inner = NULL;
    side->handshake.data = side;
    assert_int_equal(
        muster_tls_handshake_start(&side->handshake, tls, inner, options,
                                   muster_loop_after_ns(pair->test.env.loop, timeout_ns), on_done),
        MUSTER_OK);
    assert_int_equal(side->done_count, 0);
}

static bool is_done(void *data)
{
    return ((const struct tls_side *)data)->done_count > 0;
}

void tls_pair_wait(struct tls_pair *pair, const struct tls_side *side)
{
    test_env_run_until(&pair->test.env, is_done, (void *)(uintptr_t)side);
}

void tls_pair_shake(struct tls_pair *pair, struct muster_tls *client, struct muster_tls *server,
                    const char *server_name, struct muster_tls_sessions *sessions)
{
    const struct muster_tls_handshake_options client_options = {
        .server_name = server_name, .protocols = "h2", .sessions = sessions};
    const struct muster_tls_handshake_options server_options = {.is_server = true,
                                                                .protocols = "h2"};

    tls_pair_start(pair, &pair->client, client, &client_options, 60 * MUSTER_NS_PER_S);
    tls_pair_start(pair, &pair->server, server, &server_options, 60 * MUSTER_NS_PER_S);
    tls_pair_wait(pair, &pair->client);
    tls_pair_wait(pair, &pair->server);
}

static void on_closed(struct muster_stream *stream)
{
    (*(unsigned *)stream->data)++;
}

static bool is_closed(void *data)
{
    return *(const unsigned *)data > 0;
}

static void close_side(struct tls_pair *pair, struct tls_side *side)
{
    struct muster_stream *stream = side->stream != NULL ? side->stream : side->inner;

    side->stream = side->inner = NULL;
    if (stream == NULL)
        return;
    stream->data = &side->closed_count;
    muster_stream_close(stream, on_closed);
    test_env_run_until(&pair->test.env, is_closed, &side->closed_count);
}

void tls_pair_again(struct tls_pair *pair)
{
    close_side(pair, &pair->client);
    close_side(pair, &pair->server);
    open_inner(pair);
}

void tls_pair_close(struct tls_pair *pair)
{
    muster_tls_close(pair->server_tls);
    muster_tls_close(pair->client_tls);
    close_side(pair, &pair->client);
    close_side(pair, &pair->server);
    test_env_close(&pair->test);
}
