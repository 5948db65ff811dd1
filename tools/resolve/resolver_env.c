/* An environment in which a command asks resolvers: the system's loop, variables and files, network
 * and HTTP client. Parts close in the reverse order, and the HTTP client first turns the loop until
 * its connections are gone. */
#include "resolve/resolver_env.h"

#include <muster/http.h>
#include <muster/stream.h>

static bool is_http_closed;

static void on_http_closed(struct muster_http *http)
{
    (void)http;
    is_http_closed = true;
}

enum muster_rc resolver_env_open(struct muster_env **ret_env, struct muster_error *ret_error)
{
    struct muster_env *env = NULL;
    enum muster_rc rc = muster_env_system_open(NULL, &env);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no event loop: %s", muster_rc_text(rc));
    rc = muster_net_system_open(env, &env->net);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "no network: %s", muster_rc_text(rc));
    else
        rc = muster_http_curl_open(env, NULL, &env->http, ret_error);
    if (rc == MUSTER_OK)
        *ret_env = env;
    else
        resolver_env_close(env);
    return rc;
}

void resolver_env_close(struct muster_env *env)
{
    if (env->http != NULL) {
        is_http_closed = false;
        muster_http_close(env->http, on_http_closed);
        while (!is_http_closed)
            muster_loop_turn(env->loop, UINT64_MAX);
    }
    if (env->net != NULL)
        muster_net_system_close(env->net);
    muster_env_system_close(env);
}
