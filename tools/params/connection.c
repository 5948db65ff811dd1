/* A channel to a server of parameters: its loop, its credential. */
#include "params/connection.h"

#include <string.h>

#include <muster/stream.h>

#include "common/command.h"

#define RECEIVE_BYTES_MAX ((size_t)32 << 20)

bool params_connection_check(const char *command, const struct params_connection_settings *settings,
                             int *ret_exit)
{
    if ((settings->cert == NULL) == (settings->key == NULL))
        return true;
    *ret_exit =
        command_refuse(command, "--tls-cert and --tls-key must both be given, got one of them");
    return false;
}

enum muster_rc params_connection_tls_open(struct muster_env *env,
                                          const struct params_connection_settings *settings,
                                          struct muster_tls **ret_tls,
                                          struct muster_error *ret_error)
{
    const struct muster_tls_options options = {
        .cert_file = settings->cert, .key_file = settings->key, .ca_file = settings->ca};

    if (settings->ca == NULL && settings->cert == NULL)
        return MUSTER_OK;
    return muster_tls_open(env, &options, ret_tls, ret_error);
}

static void on_closed(struct muster_channel *channel)
{
    ((struct params_connection *)muster_channel_data(channel))->is_closed = true;
}

static enum muster_rc channel_open(struct params_connection *connection,
                                   const struct params_connection_settings *settings,
                                   struct muster_error *ret_error)
{
    struct muster_channel_options options = {.receive_message_max_bytes = RECEIVE_BYTES_MAX};
    enum muster_rc rc =
        params_connection_tls_open(connection->env, settings, &connection->tls, ret_error);

    options.tls = connection->tls;
    if (rc == MUSTER_OK)
        rc = muster_channel_open(connection->env, settings->server, &options, &connection->channel,
                                 ret_error);
    if (rc == MUSTER_OK)
        muster_channel_set_data(connection->channel, connection);
    return rc;
}

enum muster_rc params_connection_open(struct params_connection *connection,
                                      const struct params_connection_settings *settings,
                                      struct muster_error *ret_error)
{
    enum muster_rc rc;

    memset(connection, 0, sizeof(*connection));
    rc = muster_env_system_open(NULL, &connection->env);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(connection->env, &connection->env->net);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no event loop: %s", muster_rc_text(rc));
    return channel_open(connection, settings, ret_error);
}

/* gRPC servers say "unknown method" or "unknown service" of what they do not have, a registry among them. */
enum muster_rc params_connection_explain(const char *address, const struct muster_channel *channel,
                                         uint64_t timeout_ns, const struct muster_error *error,
                                         struct muster_error *ret_error)
{
    double seconds = (double)timeout_ns / (double)MUSTER_NS_PER_S;
    bool is_late = error->rc == MUSTER_DEADLINE_EXCEEDED &&
                   strncmp(error->text, "deadline exceeded", 17) == 0; /* not the server's own */

    if (error->rc == MUSTER_UNIMPLEMENTED && strncmp(error->text, "unknown ", 8) == 0)
        return muster_error_set(ret_error, error->rc,
                                "%s is not a server of parameters: a registry or another gRPC "
                                "server answers there; give the address of a 'muster params serve'",
                                address);
    if (is_late && muster_channel_state(channel) != MUSTER_CHANNEL_READY)
        return muster_error_set(ret_error, error->rc,
                                "%s has not answered within %g s (--timeout): it must be a "
                                "'muster params serve' that runs; %.80s",
                                address, seconds, error->text);
    if (is_late)
        return muster_error_set(ret_error, error->rc,
                                "%s: the server answers, but was not done within %g s (--timeout): "
                                "look at its log, or give it more time",
                                address, seconds);
    return muster_error_set(ret_error, error->rc, "%s: %.180s", address, error->text);
}

void params_connection_close(struct params_connection *connection)
{
    struct muster_env *env = connection->env;

    if (env == NULL)
        return;
    if (connection->channel != NULL)
        muster_channel_close(connection->channel, on_closed);
    while (connection->channel != NULL && !connection->is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    muster_tls_close(connection->tls);
    if (env->net != NULL)
        muster_net_system_close(env->net);
    muster_env_system_close(env);
}
