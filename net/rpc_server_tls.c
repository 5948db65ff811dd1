/* Clients of a server with a credential, until their handshake is done. */
#include "net/rpc_server_internal.h"
#include "net/tls_internal.h"
#include "net/tls_stream.h"

#define GUESTS_MAX 1024 /* handshakes at a time; one more ends the oldest */

struct rpc_guest {
    struct muster_list node;
    struct muster_rpc_server *server;
    struct muster_tls_handshake handshake;
    struct muster_address peer;
};

static void guest_free(struct rpc_guest *guest)
{
    muster_list_remove(&guest->node);
    guest->server->guest_count--;
    muster_mem_free(guest->server->env->mem, guest);
}

static void on_shaken(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    struct rpc_guest *guest = handshake->data;
    struct muster_rpc_server *server = guest->server;
    struct muster_stream *stream = handshake->stream;

    if (rc != MUSTER_OK)
        muster_tls_log_refusal(server->options.tls, &guest->peer, &handshake->error);
    guest_free(guest);
    if (rc == MUSTER_OK && muster_rpc_server_attach_secured(server, stream) != MUSTER_OK)
        MUSTER_LOG(server->env, WARN, "rpc_connection_refused");
    muster_rpc_server_check_closed(server);
}

/* Whoever connects and says nothing goes when others come. */
static void make_room(struct muster_rpc_server *server)
{
    struct muster_list *node = server->guests.next;

    for (uint32_t over = server->guest_count; over >= GUESTS_MAX; over--, node = node->next)
        muster_tls_handshake_cancel(&MUSTER_CONTAINER_OF(node, struct rpc_guest, node)->handshake);
}

enum muster_rc muster_rpc_server_shake(struct muster_rpc_server *server,
                                       struct muster_stream *stream)
{
    static const struct muster_tls_handshake_options options = {.is_server = true,
                                                                .protocols = "h2"};
    struct muster_loop *loop = server->env->loop;
    struct rpc_guest *guest = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*guest));
    enum muster_rc rc;

    make_room(server);
    if (guest == NULL) {
        muster_stream_close(stream, NULL);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    guest->server = server;
    guest->handshake.data = guest;
    guest->peer = *muster_stream_peer(stream);
    muster_list_append(&server->guests, &guest->node);
    server->guest_count++;
    rc = muster_tls_handshake_start(
        &guest->handshake, server->options.tls, stream, &options,
        muster_loop_after_ns(loop, server->options.handshake_timeout_ns), on_shaken);
    if (rc != MUSTER_OK)
        guest_free(guest);
    return rc;
}

void muster_rpc_server_cancel_guests(struct muster_rpc_server *server)
{
    struct muster_list *node;

    for (node = server->guests.next; node != &server->guests; node = node->next)
        muster_tls_handshake_cancel(&MUSTER_CONTAINER_OF(node, struct rpc_guest, node)->handshake);
}
