/* Questions of commands that need a resolver's answer before they begin: the loop is turned until it is there. */
#include "resolve/ask.h"

#include "resolve/resolver_env.h"

#define ANSWER_WITHIN_NS (60 * MUSTER_NS_PER_S)

struct asking {
    enum muster_rc rc;
    bool is_done;
    bool is_closed;
};

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct asking *asking = resolve->data;

    asking->rc = rc;
    asking->is_done = true;
}

static void on_closed(struct muster_resolver *resolver)
{
    ((struct asking *)resolver->data)->is_closed = true;
}

static enum muster_rc ask_opened(struct muster_resolver *resolver, struct muster_resolve *resolve,
                                 struct muster_error *ret_error)
{
    struct muster_loop *loop = resolver->env->loop;
    struct asking asking = {.is_done = false};
    enum muster_rc rc;

    resolve->data = &asking;
    resolve->deadline_ns = muster_loop_after_ns(loop, ANSWER_WITHIN_NS);
    rc = muster_resolve_start(resolve, resolver, on_answer);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot ask the resolver: %s", muster_rc_text(rc));
    while (!asking.is_done)
        muster_loop_turn(loop, UINT64_MAX);
    if (asking.rc != MUSTER_OK)
        *ret_error = resolve->error;
    return asking.rc;
}

enum muster_rc resolve_ask_accelerators(struct muster_resolver *resolver,
                                        struct muster_accelerators *ret_accelerators,
                                        struct muster_error *ret_error)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS};
    enum muster_rc rc = ask_opened(resolver, &resolve, ret_error);

    if (rc == MUSTER_OK)
        *ret_accelerators = resolve.accelerators;
    return rc;
}

static enum muster_rc ask_in(struct muster_env *env, const char *uri, resolve_read_fn *read,
                             void *data, struct muster_error *ret_error)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_resolver *resolver = NULL;
    struct asking closing = {.is_closed = false};
    enum muster_rc rc = muster_resolver_open(env, uri, NULL, &resolver, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = ask_opened(resolver, &resolve, ret_error);
    if (rc == MUSTER_OK) {
        rc = read(data, resolver, resolve.cluster_spec, ret_error);
        muster_cluster_spec_unref(resolve.cluster_spec);
    }
    resolver->data = &closing;
    muster_resolver_close(resolver, on_closed);
    while (!closing.is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    return rc;
}

enum muster_rc resolve_ask(const char *uri, resolve_read_fn *read, void *data,
                           struct muster_error *ret_error)
{
    struct muster_env *env = NULL;
    enum muster_rc rc = resolver_env_open(&env, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = ask_in(env, uri, read, data, ret_error);
    resolver_env_close(env);
    return rc;
}
