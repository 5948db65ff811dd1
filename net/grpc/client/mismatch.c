/* Clients that speak plain text to a server under TLS, or TLS to one in plain text. */
#include "net/grpc/client/mismatch.h"

#include <muster/log.h>
#include <muster/loop.h>

#define QUIET_NS (60 * MUSTER_NS_PER_S) /* after a host was named */

static bool slot_is_recent(const struct muster_rpc_mismatch *slot, uint64_t now_ns)
{
    return slot->logged_ns != 0 && now_ns - slot->logged_ns < QUIET_NS;
}

/* Where this host goes; NULL: it is not told now. */
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

    host.port = 0;
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
