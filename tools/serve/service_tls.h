/* Options of a command that serves: TLS, and authorization of its callers. */
#ifndef MUSTER_TOOLS_SERVICE_TLS_H
#define MUSTER_TOOLS_SERVICE_TLS_H

#include <muster/authorization.h>
#include <muster/env.h>
#include <muster/options.h>
#include <muster/tls.h>

/** Embed as `tls` in the command's settings. */
struct service_tls_settings {
    const char *cert, *key, *client_ca;
    const char *authorization;
};

/* The rows of its options. */
#define SERVICE_TLS_ROWS(settings_type)                                                            \
    {.name = "tls-cert",                                                                           \
     .kind = MUSTER_OPTION_TEXT,                                                                   \
     .offset = offsetof(settings_type, tls.cert),                                                  \
     .value = "FILE",                                                                              \
     .help = "Serve TLS with this certificate and its issuers (PEM); checked for changes every "   \
             "minute."},                                                                           \
        {.name = "tls-key",                                                                        \
         .kind = MUSTER_OPTION_TEXT,                                                               \
         .offset = offsetof(settings_type, tls.key),                                               \
         .value = "FILE",                                                                          \
         .help = "The private key of --tls-cert (PEM, no pass phrase)."},                          \
        {.name = "tls-client-ca",                                                                  \
         .kind = MUSTER_OPTION_TEXT,                                                               \
         .offset = offsetof(settings_type, tls.client_ca),                                         \
         .value = "FILE",                                                                          \
         .help = "Require client certificates issued under these roots (PEM)."},                   \
    {                                                                                              \
        .name = "authorization", .kind = MUSTER_OPTION_TEXT,                                       \
        .offset = offsetof(settings_type, tls.authorization), .value = "FILE",                     \
        .help = "Policy of permitted calls, as gRPC's JSON (docs/tls.md); calls that no rule "     \
                "allows are denied."                                                               \
    }

/** The policy of settings; *ret_authorization stays NULL without one. Gives. Errors as
 * muster_authorization_parse; NOT_FOUND names the file. */
MUSTER_MUST_CHECK enum muster_rc service_authorization_new(
    struct muster_env *env, const struct service_tls_settings *settings,
    struct muster_authorization **ret_authorization, struct muster_error *ret_error);

/** Whether the options go together. False: told on standard error, *ret_exit is the exit code. */
bool service_tls_check(const char *command, const struct service_tls_settings *settings,
                       int *ret_exit);

/** The credential of settings; *ret_tls stays NULL without any. Gives. Errors as muster_tls_open. */
MUSTER_MUST_CHECK enum muster_rc service_tls_open(struct muster_env *env,
                                                  const struct service_tls_settings *settings,
                                                  struct muster_tls **ret_tls,
                                                  struct muster_error *ret_error);

#endif
