/* TLS options of a command that serves, turned into a credential. */
#include "serve/service_tls.h"

#include "common/command.h"

/* A policy is a few rules for each service; more than this is another file given by mistake. */
#define POLICY_BYTES_MAX (1u << 20)

/* A certificate without its key, or roots for clients without TLS, would serve something else than
 * the user meant. */
bool service_tls_check(const char *command, const struct service_tls_settings *settings,
                       int *ret_exit)
{
    if ((settings->cert == NULL) == (settings->key == NULL) &&
        (settings->client_ca == NULL || settings->cert != NULL))
        return true;
    *ret_exit = command_refuse(
        command, "--tls-cert and --tls-key must both be given for TLS, got %s",
        settings->cert == NULL && settings->key == NULL ? "--tls-client-ca alone" : "one of them");
    return false;
}

/* Without a certificate the service speaks plain text. Roots for clients make their certificates a
 * duty, since a service that asks for them in vain would protect nothing. */
enum muster_rc service_tls_open(struct muster_env *env, const struct service_tls_settings *settings,
                                struct muster_tls **ret_tls, struct muster_error *ret_error)
{
    const struct muster_tls_options options = {.cert_file = settings->cert,
                                               .key_file = settings->key,
                                               .ca_file = settings->client_ca,
                                               .is_peer_required = settings->client_ca != NULL};

    if (settings->cert == NULL)
        return MUSTER_OK;
    return muster_tls_open(env, &options, ret_tls, ret_error);
}

enum muster_rc service_authorization_new(struct muster_env *env,
                                         const struct service_tls_settings *settings,
                                         struct muster_authorization **ret_authorization,
                                         struct muster_error *ret_error)
{
    struct muster_error error;
    char *text = NULL;
    size_t bytes = 0;
    enum muster_rc rc;

    if (settings->authorization == NULL)
        return MUSTER_OK;
    rc = muster_files_read(env->files, env->mem, settings->authorization, POLICY_BYTES_MAX, &text,
                           &bytes);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "--authorization %.150s cannot be read: %s",
                                settings->authorization, muster_rc_text(rc));
    rc = muster_authorization_parse(env, text, ret_authorization, &error);
    muster_mem_free(env->mem, text);
    return rc == MUSTER_OK ? rc
                           : muster_error_set(ret_error, rc, "--authorization %.100s: %s",
                                              settings->authorization, error.text);
}
