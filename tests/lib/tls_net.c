/* Connects and accepts as the inner network does, and shakes hands before anybody is told. */
#include "tls_net.h"

#include <assert.h>
#include <stdlib.h>

#include "fake_authority.h"
#include "net/tls/stream.h"

#define HANDSHAKE_NS (60 * MUSTER_NS_PER_S)

struct tls_dial {
    struct muster_connect *connect; /* the caller's */
    struct muster_connect inner;
    struct muster_tls_handshake handshake;
    struct tls_net *net;
    uint64_t deadline_ns;
    bool is_cancelled;
};

struct tls_door {
    struct muster_listener listener;
    struct muster_listener *inner;
    struct tls_net *net;
    muster_listener_accept_fn *on_accept;
    muster_listener_close_fn *closed;
};

struct tls_guest {
    struct muster_tls_handshake handshake;
    struct tls_door *door;
};

static struct tls_net *net_of(struct muster_net *net)
{
    return MUSTER_CONTAINER_OF(net, struct tls_net, net);
}

static void end_dial(struct tls_dial *dial, struct muster_stream *stream,
                     const struct muster_error *error, enum muster_rc rc)
{
    struct muster_connect *connect = dial->connect;

    connect->stream = stream;
    connect->error = *error;
    free(dial);
    connect->done(connect, rc);
}

static void on_client_shaken(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    end_dial(handshake->data, handshake->stream, &handshake->error, rc);
}

static void on_connected(struct muster_connect *inner, enum muster_rc rc)
{
    static const struct muster_tls_handshake_options options = {.server_name = "localhost",
                                                                .protocols = "h2"};
    struct tls_dial *dial = inner->data;

    if (rc != MUSTER_OK) {
        end_dial(dial, NULL, &inner->error, rc);
        return;
    }
    dial->handshake.data = dial;
    rc = muster_tls_handshake_start(&dial->handshake, dial->net->client, inner->stream, &options,
                                    dial->deadline_ns, on_client_shaken);
    assert(rc == MUSTER_OK);
    if (dial->is_cancelled)
        muster_tls_handshake_cancel(&dial->handshake);
}

static enum muster_rc tls_connect(struct muster_net *net, struct muster_connect *connect,
                                  const struct muster_stream_options *options, uint64_t deadline_ns)
{
    struct tls_dial *dial = calloc(1, sizeof(*dial));
    enum muster_rc rc;

    assert(dial != NULL);
    dial->connect = connect;
    dial->net = net_of(net);
    dial->deadline_ns = deadline_ns;
    dial->inner.data = dial;
    connect->impl = dial;
    rc = muster_connect_start(&dial->inner, dial->net->inner, &connect->address, options,
                              deadline_ns, on_connected);
    if (rc != MUSTER_OK)
        free(dial);
    return rc;
}

static void tls_connect_cancel(struct muster_net *net, struct muster_connect *connect)
{
    struct tls_dial *dial = connect->impl;

    (void)net;
    dial->is_cancelled = true;
    if (dial->handshake.data != NULL)
        muster_tls_handshake_cancel(&dial->handshake);
    else
        muster_connect_cancel(&dial->inner);
}

static void on_server_shaken(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    struct tls_guest *guest = handshake->data;
    struct tls_door *door = guest->door;
    struct muster_stream *stream = handshake->stream;

    if (rc == MUSTER_OK)
        door->on_accept(&door->listener, stream);
    else
        door->net->error = handshake->error;
    free(guest);
}

static void on_inner_accept(struct muster_listener *inner, struct muster_stream *stream)
{
    static const struct muster_tls_handshake_options options = {.is_server = true,
                                                                .protocols = "h2"};
    struct tls_door *door = inner->data;
    struct tls_guest *guest = calloc(1, sizeof(*guest));
    struct muster_env *env = door->net->env;
    enum muster_rc rc;

    assert(guest != NULL);
    guest->handshake.data = guest;
    guest->door = door;
    rc =
        muster_tls_handshake_start(&guest->handshake, door->net->server, stream, &options,
                                   muster_loop_after_ns(env->loop, HANDSHAKE_NS), on_server_shaken);
    assert(rc == MUSTER_OK);
}

static const struct muster_address *door_address(const struct muster_listener *listener)
{
    return muster_listener_address(MUSTER_CONTAINER_OF(listener, struct tls_door, listener)->inner);
}

static void on_inner_closed(struct muster_listener *inner)
{
    struct tls_door *door = inner->data;

    if (door->closed != NULL)
        door->closed(&door->listener);
    free(door);
}

static void door_close(struct muster_listener *listener, muster_listener_close_fn *closed)
{
    struct tls_door *door = MUSTER_CONTAINER_OF(listener, struct tls_door, listener);

    door->closed = closed;
    muster_listener_close(door->inner, on_inner_closed);
}

static enum muster_rc tls_listen(struct muster_net *net, const struct muster_address *address,
                                 const struct muster_stream_options *options,
                                 muster_listener_accept_fn *on_accept, void *data,
                                 struct muster_listener **ret_listener,
                                 struct muster_error *ret_error)
{
    static const struct muster_listener_ops ops = {.address = door_address, .close = door_close};
    struct tls_door *door = calloc(1, sizeof(*door));
    enum muster_rc rc;

    assert(door != NULL);
    *door = (struct tls_door){
        .listener = {.ops = &ops, .data = data}, .net = net_of(net), .on_accept = on_accept};
    rc = muster_listener_open(door->net->inner, address, options, on_inner_accept, door,
                              &door->inner, ret_error);
    if (rc == MUSTER_OK)
        *ret_listener = &door->listener;
    else
        free(door);
    return rc;
}

void tls_net_init(struct tls_net *tls_net, struct muster_env *env)
{
    static const struct muster_net_ops ops = {
        .connect = tls_connect, .connect_cancel = tls_connect_cancel, .listen = tls_listen};
    const struct fake_cert_options options = {
        .name = "tls-net", .alt_names = "DNS:localhost", .is_timeless = true};
    struct fake_authority *authority = fake_authority_new("tls-net-authority");
    struct fake_cert cert;
    bool is_made = authority != NULL && fake_cert_init(&cert, authority, &options);
    enum muster_rc rc;

    assert(is_made);
    *tls_net = (struct tls_net){.net = {.ops = &ops}, .env = env, .inner = env->net};
    rc = muster_tls_open(
        env, &(struct muster_tls_options){.cert_pem = cert.cert_pem, .key_pem = cert.key_pem},
        &tls_net->server, NULL);
    assert(rc == MUSTER_OK);
    rc = muster_tls_open(env, &(struct muster_tls_options){.ca_pem = fake_authority_pem(authority)},
                         &tls_net->client, NULL);
    assert(rc == MUSTER_OK);
    fake_cert_fini(&cert);
    fake_authority_free(authority);
    env->net = &tls_net->net;
}

void tls_net_fini(struct tls_net *tls_net)
{
    muster_tls_close(tls_net->server);
    muster_tls_close(tls_net->client);
    tls_net->env->net = tls_net->inner;
}
