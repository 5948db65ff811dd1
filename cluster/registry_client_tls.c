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
    }
    return muster_tls_open(registry->env, &tls, &registry->tls, ret_error);
}

void muster_registry_tls_fini(struct muster_registry *registry)
{
    muster_tls_close(registry->tls);
    registry->tls = NULL;
}
