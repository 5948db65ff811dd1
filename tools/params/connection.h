/* A channel to a server of parameters, for commands that ask it one thing. */
#ifndef MUSTER_TOOLS_PARAMS_CONNECTION_H
#define MUSTER_TOOLS_PARAMS_CONNECTION_H

#include <muster/channel.h>
#include <muster/env.h>
#include <muster/options.h>
#include <muster/tls.h>

struct params_connection_settings {
    const char *server;
    const char *ca, *cert, *key;
    uint64_t timeout_ns;
};

/** The option rows of a command that asks with TLS, into settings' field connection. */
#define PARAMS_TLS_ROWS(settings_type)                                                             \
    {.name = "tls-ca",                                                                             \
     .variable = "MUSTER_TLS_CA_FILE",                                                             \
     .kind = MUSTER_OPTION_TEXT,                                                                   \
     .offset = offsetof(settings_type, connection.ca),                                             \
     .value = "FILE",                                                                              \
     .help = "Use TLS, and trust servers whose certificates these roots have issued (PEM)."},      \
        {.name = "tls-cert",                                                                       \
         .variable = "MUSTER_TLS_CERT_FILE",                                                       \
         .kind = MUSTER_OPTION_TEXT,                                                               \
         .offset = offsetof(settings_type, connection.cert),                                       \
         .value = "FILE",                                                                          \
         .help = "Use TLS, and show the server this certificate (PEM)."},                          \
    {                                                                                              \
        .name = "tls-key", .variable = "MUSTER_TLS_KEY_FILE", .kind = MUSTER_OPTION_TEXT,          \
        .offset = offsetof(settings_type, connection.key), .value = "FILE",                        \
        .help = "The private key of --tls-cert (PEM, no pass phrase)."                             \
    }

struct params_connection {
    struct muster_env *env;
    struct muster_tls *tls;
    struct muster_channel *channel;
    bool is_closed;
};

/** False: only one of --tls-cert and --tls-key is given; the user was told, and *ret_exit is set. */
bool params_connection_check(const char *command, const struct params_connection_settings *settings,
                             int *ret_exit);
/** *ret_tls stays where no TLS is asked for. Gives, muster_tls_close. Errors: those of muster_tls_open. */
MUSTER_MUST_CHECK enum muster_rc params_connection_tls_open(
    struct muster_env *env, const struct params_connection_settings *settings,
    struct muster_tls **ret_tls, struct muster_error *ret_error);
/** Open the loop, the network and the channel. Call params_connection_close also after an error. */
MUSTER_MUST_CHECK enum muster_rc params_connection_open(
    struct params_connection *connection, const struct params_connection_settings *settings,
    struct muster_error *ret_error);
/** The error of a call to a server at address, over channel, with its address and a remedy. Returns the code. */
enum muster_rc params_connection_explain(const char *address, const struct muster_channel *channel,
                                         uint64_t timeout_ns, const struct muster_error *error,
                                         struct muster_error *ret_error);
void params_connection_close(struct params_connection *connection);

#endif
