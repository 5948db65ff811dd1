/* The credential that a launcher hands to a member. */
#include "training/tls_variables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <muster/tls.h>

#define GOODBYE_NS    (2 * MUSTER_NS_PER_S)
#define RELOAD_MS_MAX 1000000000u /* 11 days; in nanoseconds it stays far below 64 bits */

static const char *read_variable(struct muster_env *env, const char *name)
{
    const char *value = muster_vars_get(env->vars, name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Trust settings without a certificate are an error: the user clearly did not want plain text. */
static enum muster_rc check_plain(struct muster_env *env, struct muster_error *ret_error)
{
    static const char *const names[] = {"MUSTER_TLS_PEERS", "MUSTER_TLS_CA_FILE",
                                        "MUSTER_TLS_KEY_FILE", "MUSTER_TLS_DATA"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (read_variable(env, names[i]) != NULL)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s without MUSTER_TLS_CERT_FILE: name this member's "
                                    "certificate, or unset all of MUSTER_TLS_* for links in plain "
                                    "text",
                                    names[i]);
    return MUSTER_OK;
}

static enum muster_rc read_reload(struct muster_env *env, uint64_t *ret_interval_ns,
                                  struct muster_error *ret_error)
{
    const char *text = read_variable(env, "MUSTER_TLS_RELOAD_MS");
    char *end = NULL;
    uint64_t ms;

    if (text == NULL)
        return MUSTER_OK;
    errno = 0;
    ms = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || ms > RELOAD_MS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_TLS_RELOAD_MS must be a whole number of milliseconds up to "
                                "%u, got %.40s",
                                RELOAD_MS_MAX, text);
    *ret_interval_ns = ms * MUSTER_NS_PER_MS;
    return MUSTER_OK;
}

static enum muster_rc read_data(struct muster_env *env, struct muster_error *ret_error)
{
    const char *data = read_variable(env, "MUSTER_TLS_DATA");

    env->is_data_authenticated_only = data != NULL && strcmp(data, "authenticated") == 0;
    if (data == NULL || env->is_data_authenticated_only || strcmp(data, "encrypted") == 0)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "MUSTER_TLS_DATA must be encrypted or authenticated, got %.40s", data);
}

enum muster_rc muster_training_open_tls(struct muster_env *env, struct muster_error *ret_error)
{
    const char *peers = read_variable(env, "MUSTER_TLS_PEERS");
    const char *key = read_variable(env, "MUSTER_TLS_KEY_FILE");
    struct muster_tls_options options = {
        .cert_file = read_variable(env, "MUSTER_TLS_CERT_FILE"),
        .ca_file = read_variable(env, "MUSTER_TLS_CA_FILE"),
        .is_peer_required = true,
        .peer_names = &peers,
        .peer_name_count = peers != NULL ? 1 : 0,
    };

    if (options.cert_file == NULL)
        return check_plain(env, ret_error);
    options.key_file = key != NULL ? key : options.cert_file;
    if (read_reload(env, &options.reload_interval_ns, ret_error) != MUSTER_OK)
        return MUSTER_INVALID_ARGUMENT;
    if (peers == NULL || options.ca_file == NULL)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT, "MUSTER_TLS_CERT_FILE without %s",
            peers == NULL ? "MUSTER_TLS_PEERS: say which names members have, as "
                            "spiffe://DOMAIN/job/JOB/*"
                          : "MUSTER_TLS_CA_FILE: name the roots that members are issued under");
    if (read_data(env, ret_error) != MUSTER_OK)
        return MUSTER_INVALID_ARGUMENT;
    return muster_tls_open(env, &options, &env->tls, ret_error);
}

void muster_training_close_tls(struct muster_env *env)
{
    uint64_t until_ns = muster_loop_after_ns(env->loop, GOODBYE_NS);

    while (env->tls != NULL && muster_tls_is_shared(env->tls) &&
           muster_loop_now_ns(env->loop) < until_ns)
        muster_loop_turn(env->loop, MUSTER_NS_PER_MS);
    muster_tls_close(env->tls);
    env->tls = NULL;
}
