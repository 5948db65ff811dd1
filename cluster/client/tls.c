/* TLS to a registry: credentials for endpoints that begin with https://, and the errors of
 * endpoints that speak something else. A wrong scheme or certificate is a mistake of the set-up, so
 * at the first contact it ends calls at once with a text that names the remedy. Once a connection
 * has been made, the same error may pass (a certificate that is being renewed) and is retried. */
#include "cluster/client/registry_client_internal.h"

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

    /* Without an https:// endpoint the TLS files are not looked at, so variables that are set for
     * other programs do no harm. */
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

/* HTTP/2 is not spoken there, as it was dialled last. */
static bool endpoint_is_foreign(const struct muster_registry *registry, size_t endpoint)
{
    return muster_channel_error(registry->channels[endpoint])->rc == MUSTER_UNIMPLEMENTED;
}

/* Something else is spoken there: not HTTP/2, or TLS where plain text is asked, or the reverse. */
static bool endpoint_is_mismatched(const struct muster_registry *registry, size_t endpoint)
{
    return endpoint_is_foreign(registry, endpoint) ||
           muster_channel_error(registry->channels[endpoint])->rc == MUSTER_FAILED_PRECONDITION;
}

/* Under TLS, and it has refused or was refused when it was dialled last. */
static bool endpoint_is_refused(const struct muster_registry *registry, size_t endpoint)
{
    return muster_channel_error(registry->channels[endpoint])->rc == MUSTER_UNAUTHENTICATED;
}

/* Trying again is of no use. An endpoint that does not answer may be started later, and stands for
 * the others only where those speak what was asked. */
static bool endpoints_are_hopeless(const struct muster_registry *registry)
{
    size_t mismatched = 0, refused = 0;

    for (size_t i = 0; i < registry->channel_count; i++) {
        if (muster_channel_error(registry->channels[i])->rc == MUSTER_OK)
            return false; /* not dialled yet, or connected */
        mismatched += endpoint_is_mismatched(registry, i);
        refused += endpoint_is_refused(registry, i);
    }
    return refused + mismatched == registry->channel_count || (mismatched > 0 && refused == 0);
}

static void registry_refuse_mismatch(struct muster_registry *registry, size_t endpoint)
{
    const char *shown = registry->endpoints[endpoint];
    const char *bare = muster_registry_without_scheme(shown);
    bool asks_tls = muster_registry_wants_tls(shown);

    if (asks_tls)
        (void)muster_error_set(&registry->refusal, MUSTER_FAILED_PRECONDITION,
                               "registry %.50s speaks plain text, and https:// asks for TLS: write "
                               "%.50s without https://, or start the registry with --tls-cert and "
                               "--tls-key",
                               bare, bare);
    else
        (void)muster_error_set(&registry->refusal, MUSTER_FAILED_PRECONDITION,
                               "registry %.50s speaks TLS, and is asked in plain text: write "
                               "https://%.50s and name its authority in MUSTER_REGISTRY_CA_FILE",
                               bare, bare);
    MUSTER_LOG(registry->env, ERROR, "registry_tls_mismatch", "endpoint", shown, "client",
               asks_tls ? "TLS" : "plain text", "registry", asks_tls ? "plain text" : "TLS",
               "remedy", registry->refusal.text);
}

static void registry_refuse_foreign(struct muster_registry *registry, size_t endpoint)
{
    static const char peer[] = "the peer ";
    const char *why = muster_channel_error(registry->channels[endpoint])->text;

    if (strncmp(why, peer, strlen(peer)) == 0)
        why += strlen(peer);
    (void)muster_error_set(&registry->refusal, MUSTER_FAILED_PRECONDITION,
                           "the server at %.63s %.100s: is this the registry's address?",
                           muster_registry_without_scheme(registry->endpoints[endpoint]), why);
    MUSTER_LOG(registry->env, ERROR, "registry_is_another_server", "endpoint",
               registry->endpoints[endpoint], "reason", registry->refusal.text);
}

static void registry_refuse(struct muster_registry *registry, size_t endpoint)
{
    const char *why = muster_channel_error(registry->channels[endpoint])->text;

    (void)muster_error_set(&registry->refusal, MUSTER_UNAUTHENTICATED,
                           "TLS with %.40s: %.120s (see MUSTER_REGISTRY_CA_FILE, _CERT_FILE and "
                           "_KEY_FILE)",
                           registry->endpoints[endpoint], why);
    MUSTER_LOG(registry->env, ERROR, "registry_tls_refused", "endpoint",
               registry->endpoints[endpoint], "reason", why, "remedy",
               "MUSTER_REGISTRY_CA_FILE says whom we trust, MUSTER_REGISTRY_CERT_FILE and "
               "MUSTER_REGISTRY_KEY_FILE who we are");
}

/* The text is of an endpoint that has answered. */
static void registry_keep_refusal(struct muster_registry *registry)
{
    for (size_t i = 0; i < registry->channel_count; i++) {
        if (endpoint_is_foreign(registry, i)) {
            registry_refuse_foreign(registry, i);
            return;
        }
        if (endpoint_is_mismatched(registry, i)) {
            registry_refuse_mismatch(registry, i);
            return;
        }
        if (endpoint_is_refused(registry, i)) {
            registry_refuse(registry, i);
            return;
        }
    }
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
    bool is_refused;

    if ((error->rc != MUSTER_UNAVAILABLE && error->rc != MUSTER_DEADLINE_EXCEEDED) ||
        why->rc == MUSTER_OK)
        return error->rc;
    is_refused = !registry->has_connected && endpoints_are_hopeless(registry);
    if (!is_refused && error->rc == MUSTER_DEADLINE_EXCEEDED)
        return muster_error_set(error, error->rc, "no connection to %.50s: %.160s",
                                registry->endpoints[endpoint],
                                muster_endpoint_cause(why->text, registry->endpoints[endpoint]));
    if (!is_refused)
        return error->rc; /* its text says it */
    if (registry->refusal.rc == MUSTER_OK)
        registry_keep_refusal(registry);
    *error = registry->refusal;
    return error->rc;
}

void muster_registry_tls_fini(struct muster_registry *registry)
{
    muster_tls_close(registry->tls);
}
