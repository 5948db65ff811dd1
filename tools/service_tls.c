/* What a command that serves asks about TLS: options to a credential. */
#include "service_tls.h"

enum muster_rc service_tls_open(struct muster_env *env, const struct service_tls_settings *settings,
                                struct muster_tls **ret_tls, struct muster_error *ret_error)
{
    const struct muster_tls_options options = {.cert_file = settings->cert,
                                               .key_file = settings->key,
                                               .ca_file = settings->client_ca,
                                               .is_peer_required = settings->client_ca != NULL};

    if (settings->cert == NULL && settings->key == NULL && settings->client_ca == NULL)
        return MUSTER_OK;
    if (settings->cert == NULL || settings->key == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "TLS needs --tls-cert and --tls-key, both");
    return muster_tls_open(env, &options, ret_tls, ret_error);
}
