/* TLS to a registry: endpoints that begin with https://, and whom we trust there. */
#include "cluster/registry_client_internal.h"

#include <string.h>

#define SCHEME "https://"

bool muster_registry_wants_tls(const char *endpoint)
{
    return strncmp(endpoint, SCHEME, strlen(SCHEME)) == 0;
}

static bool has_endpoint(const char *endpoints, bool is_secured)
{
    const char *at = endpoints;

    while (at != NULL && *at != '\0') {
        if (muster_registry_wants_tls(at) == is_secured)
            return true;
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return false;
}

enum muster_rc muster_registry_tls_init(struct muster_registry *registry,
                                        const struct muster_registry_options *options,
                                        struct muster_error *ret_error)
{
    const char *peers = NULL;
    struct muster_tls_options tls = {.ca_file = options->ca_file,
                                     .cert_file = options->cert_file,
                                     .key_file = options->key_file};

    if (!has_endpoint(options->endpoints, true))
        return MUSTER_OK;
    if (registry->auth.user != NULL && has_endpoint(options->endpoints, false))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "registry user '%.80s': the password would go in plain text to "
                                "some endpoints and not to others: begin all with " SCHEME,
                                registry->auth.user);
    if (options->tls != NULL) {
        registry->tls = muster_tls_share(options->tls);
        return MUSTER_OK;
    }
    if (tls.ca_file == NULL && tls.cert_file == NULL && tls.key_file == NULL) {
        tls.ca_file = muster_registry_variable(registry, "MUSTER_REGISTRY_CA_FILE");
        tls.cert_file = muster_registry_variable(registry, "MUSTER_REGISTRY_CERT_FILE");
        tls.key_file = muster_registry_variable(registry, "MUSTER_REGISTRY_KEY_FILE");
        peers = muster_registry_variable(registry, "MUSTER_REGISTRY_PEERS");
        tls.peer_names = &peers;
        tls.peer_name_count = peers != NULL ? 1 : 0;
    }
    return muster_tls_open(registry->env, &tls, &registry->tls, ret_error);
}

/* Under TLS, and it has refused or was refused when it was dialled last. */
static bool refuses(const struct muster_channel *channel)
{
    return muster_channel_error(channel)->rc == MUSTER_UNAUTHENTICATED;
}

static void refuse(struct muster_registry *registry, size_t endpoint)
{
    struct muster_error *refusal = &registry->refusal;

    (void)muster_error_set(refusal, MUSTER_UNAUTHENTICATED,
                           "TLS with %.40s: %.120s (see MUSTER_REGISTRY_CA_FILE, _CERT_FILE and "
                           "_KEY_FILE)",
                           registry->endpoints[endpoint],
                           muster_channel_error(registry->channels[endpoint])->text);
    MUSTER_LOG(registry->env, ERROR, "registry_tls_refused", "endpoint",
               registry->endpoints[endpoint], "reason",
               muster_channel_error(registry->channels[endpoint])->text, "remedy",
               "MUSTER_REGISTRY_CA_FILE says whom we trust, MUSTER_REGISTRY_CERT_FILE and "
               "MUSTER_REGISTRY_KEY_FILE who we are");
}

const struct muster_error *muster_registry_refusal(const struct muster_registry *registry)
{
    return registry->refusal.rc != MUSTER_OK && !registry->has_connected ? &registry->refusal
                                                                         : NULL;
}

enum muster_rc muster_registry_judge(struct muster_registry *registry, size_t endpoint,
                                     struct muster_error *error)
{
    const struct muster_error *why = muster_channel_error(registry->channels[endpoint]);
    bool is_refused = !registry->has_connected;

    if ((error->rc != MUSTER_UNAVAILABLE && error->rc != MUSTER_DEADLINE_EXCEEDED) ||
        why->rc == MUSTER_OK)
        return error->rc;
    for (size_t i = 0; i < registry->channel_count; i++)
        is_refused = is_refused && refuses(registry->channels[i]);
    if (!is_refused && error->rc == MUSTER_DEADLINE_EXCEEDED)
        return muster_error_set(error, error->rc, "no connection to %.50s: %.160s",
                                registry->endpoints[endpoint], why->text);
    if (!is_refused)
        return error->rc; /* its text says it */
    if (registry->refusal.rc == MUSTER_OK)
        refuse(registry, endpoint);
    *error = registry->refusal;
    return error->rc;
}

void muster_registry_tls_fini(struct muster_registry *registry)
{
    muster_tls_close(registry->tls);
    registry->tls = NULL;
}
