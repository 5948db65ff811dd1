/* Clients that speak plain text to a server under TLS, or TLS to one in plain text. Both look like
 * garbage to the parser that meets them, so the operator is told of the likely mistake, and how to
 * mend it. server_tls.c and server_connection.c recognise them and end the connection; this file
 * only decides whether the log may have another line. */
#include "net/grpc/server/mismatch.h"

#include <muster/log.h>
#include <muster/loop.h>

/* A client that is set up wrongly dials again every second or so: one line a minute is enough to be
 * noticed, and does not fill the log. */
#define QUIET_NS (60 * MUSTER_NS_PER_S)

static bool slot_is_recent(const struct muster_rpc_mismatch *slot, uint64_t now_ns)
{
    return slot->logged_ns != 0 && now_ns - slot->logged_ns < QUIET_NS;
}

/* A slot for this host, or NULL: the host was logged within the last minute, or all slots hold hosts
 * that were, and so the log has had its lines for this minute. */
static struct muster_rpc_mismatch *slot_find(struct muster_rpc_mismatches *mismatches,
                                             const struct muster_address *host, uint64_t now_ns)
{
    struct muster_rpc_mismatch *found = NULL;

    for (size_t i = 0; i < MUSTER_RPC_MISMATCHES_MAX; i++) {
        struct muster_rpc_mismatch *slot = &mismatches->slots[i];

        if (!slot_is_recent(slot, now_ns))
            found = slot;
        else if (muster_address_is_equal(&slot->host, host))
            return NULL;
    }
    return found;
}

void muster_rpc_mismatch_tell(struct muster_rpc_mismatches *mismatches, struct muster_env *env,
                              const struct muster_address *peer, bool is_server_secured)
{
    uint64_t now_ns = muster_loop_now_ns(env->loop);
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address host = *peer;
    struct muster_rpc_mismatch *slot;

    host.port = 0; /* each attempt comes from another port; they must share a slot */
    slot = slot_find(mismatches, &host, now_ns);
    if (slot == NULL)
        return;
    *slot = (struct muster_rpc_mismatch){.host = host, .logged_ns = now_ns};
    (void)muster_address_format(peer, text);
    if (is_server_secured)
        MUSTER_LOG(env, WARN, "client_speaks_plain_text", "peer", text, "client", "plain text",
                   "server", "TLS", "remedy",
                   "the client must dial with TLS (https://HOST:PORT), or start this server "
                   "without a certificate");
    else
        MUSTER_LOG(env, WARN, "client_speaks_tls", "peer", text, "client", "TLS", "server",
                   "plain text", "remedy",
                   "the client must dial in plain text (HOST:PORT without https://), or start this "
                   "server with a certificate and its key");
}
