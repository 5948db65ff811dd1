/* Clients of a server with a credential, until their handshake is done: at most SHAKING_MAX
 * handshakes run, further clients wait in line. Neither those that say nothing nor a crowd that
 * dials at once may keep out others. A secured stream goes on to server_visit.c or
 * server_connection.c by the protocol that ALPN chose. */
#include <string.h>

#include "net/grpc/server/rpc_server_internal.h"
#include "net/tls/tls_internal.h"
#include "net/tls/stream.h"

#define HTTP1_PROTOCOL "http/1.1" /* for pages; RFC 7301 6 */

#define SHAKING_MAX 1024                  /* handshakes at a time: each holds 70 KiB; others wait */
#define SHAKING_NS  (3 * MUSTER_NS_PER_S) /* what one may take while others wait */
#define WAITING_MAX 16384                 /* one more ends the one that has waited longest */

struct rpc_guest {
    struct muster_list node;
    struct muster_rpc_server *server;
    struct muster_stream *stream; /* NULL: the handshake has it */
    struct muster_tls_handshake handshake;
    uint64_t since_ns;
    struct muster_address peer;
};

static struct rpc_guest *guest_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct rpc_guest, node);
}

static void guest_free(struct rpc_guest *guest)
{
    MUSTER_ASSERT(guest->stream == NULL || guest->server->guests.waiting_count > 0);
    muster_list_remove(&guest->node);
    muster_mem_free(guest->server->env->mem, guest);
}

static void admit_waiting(struct muster_rpc_server *server);

static enum muster_rc attach_shaken(struct muster_rpc_server *server, struct muster_stream *stream)
{
    if (strcmp(muster_tls_stream_protocol(stream), HTTP1_PROTOCOL) == 0)
        return muster_rpc_server_visit(server, stream);
    return muster_rpc_server_attach_secured(server, stream);
}

static void on_shaken(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    struct rpc_guest *guest = handshake->data;
    struct muster_rpc_server *server = guest->server;
    struct muster_stream *stream = handshake->stream;

    MUSTER_ASSERT(server->guests.shaking_count > 0);
    /* The handshake has recognised plain text; other failures are the certificate's or the
     * network's. */
    if (rc == MUSTER_FAILED_PRECONDITION)
        muster_rpc_mismatch_tell(&server->mismatches, server->env, &guest->peer, true);
    else if (rc != MUSTER_OK)
        muster_tls_log_refusal(server->options.tls, &guest->peer, &handshake->error);
    guest_free(guest);
    server->guests.shaking_count--;
    if (rc == MUSTER_OK && attach_shaken(server, stream) != MUSTER_OK)
        MUSTER_LOG(server->env, WARN, "rpc_connection_refused");
    admit_waiting(server);
    muster_rpc_server_check_closed(server);
}

/* The handshake takes the stream, also on failure. */
static enum muster_rc guest_shake(struct rpc_guest *guest)
{
    struct muster_rpc_server *server = guest->server;
    const struct muster_tls_handshake_options options = {
        .is_server = true,
        .protocols = muster_list_is_empty(&server->pages) ? "h2" : "h2," HTTP1_PROTOCOL};
    struct muster_loop *loop = server->env->loop;
    struct muster_stream *stream = guest->stream;
    enum muster_rc rc;

    MUSTER_ASSERT(stream != NULL && server->guests.shaking_count < SHAKING_MAX);
    guest->stream = NULL;
    guest->handshake.data = guest;
    guest->since_ns = muster_loop_now_ns(loop);
    muster_list_append(&server->guests.shaking, &guest->node);
    server->guests.shaking_count++;
    rc = muster_tls_handshake_start(
        &guest->handshake, server->options.tls, stream, &options,
        muster_loop_after_ns(loop, server->options.handshake_timeout_ns), on_shaken);
    if (rc != MUSTER_OK) {
        guest_free(guest);
        server->guests.shaking_count--;
    }
    return rc;
}

static void set_timer(struct muster_rpc_server *server)
{
    struct rpc_guests *guests = &server->guests;

    if (muster_list_is_empty(&guests->waiting) || muster_list_is_empty(&guests->shaking))
        muster_timer_stop(&guests->timer);
    else if (!muster_timer_is_started(&guests->timer))
        muster_timer_start(&guests->timer, server->env->loop,
                           guest_of(guests->shaking.next)->since_ns + SHAKING_NS);
}

/* Those that wait take the places that are free, the oldest first. */
static void admit_waiting(struct muster_rpc_server *server)
{
    struct rpc_guests *guests = &server->guests;

    while (guests->shaking_count < SHAKING_MAX && !muster_list_is_empty(&guests->waiting)) {
        struct rpc_guest *guest = guest_of(muster_list_pop(&guests->waiting));

        guests->waiting_count--;
        if (guest_shake(guest) != MUSTER_OK)
            MUSTER_LOG(server->env, WARN, "rpc_connection_refused");
    }
    set_timer(server);
}

/* While others wait, a client whose handshake takes too long loses its place, but no more clients
 * than wait. */
static void on_timer(struct muster_timer *timer)
{
    struct muster_rpc_server *server = timer->data;
    struct rpc_guests *guests = &server->guests;
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    struct muster_list *node = guests->shaking.next;
    uint32_t count = guests->waiting_count;

    for (; node != &guests->shaking && count > 0; node = node->next, count--) {
        if (guest_of(node)->since_ns + SHAKING_NS > now_ns)
            break;
        muster_tls_handshake_cancel(&guest_of(node)->handshake); /* its callback admits others */
    }
    if (count > 0 && node != &guests->shaking)
        muster_timer_start(timer, server->env->loop, guest_of(node)->since_ns + SHAKING_NS);
}

/* The one that has waited longest has probably given up. */
static void drop_waiting(struct muster_rpc_server *server)
{
    struct rpc_guest *guest = guest_of(server->guests.waiting.next);

    MUSTER_ASSERT(server->guests.waiting_count > 0);
    muster_stream_close(guest->stream, NULL);
    guest_free(guest);
    server->guests.waiting_count--;
}

enum muster_rc muster_rpc_server_shake(struct muster_rpc_server *server,
                                       struct muster_stream *stream)
{
    struct rpc_guests *guests = &server->guests;
    struct rpc_guest *guest = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*guest));

    if (guest == NULL) {
        muster_stream_close(stream, NULL);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    guest->server = server;
    guest->stream = stream;
    guest->peer = *muster_stream_peer(stream);
    if (guests->shaking_count < SHAKING_MAX && muster_list_is_empty(&guests->waiting))
        return guest_shake(guest);
    if (guests->waiting_count == WAITING_MAX)
        drop_waiting(server);
    muster_list_append(&guests->waiting, &guest->node);
    guests->waiting_count++;
    set_timer(server);
    return MUSTER_OK;
}

void muster_rpc_server_guests_init(struct muster_rpc_server *server)
{
    muster_list_init(&server->guests.shaking);
    muster_list_init(&server->guests.waiting);
    muster_timer_init(&server->guests.timer, on_timer, server);
}

void muster_rpc_server_cancel_guests(struct muster_rpc_server *server)
{
    struct rpc_guests *guests = &server->guests;

    muster_timer_stop(&guests->timer);
    while (!muster_list_is_empty(&guests->waiting))
        drop_waiting(server);
    MUSTER_LIST_EACH(&guests->shaking, guest, struct rpc_guest, node)
        muster_tls_handshake_cancel(&guest->handshake);
}
