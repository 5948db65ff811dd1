/* A resolver watched until the first view: its tasks are those that the view waits for. */
#include "training/expectation.h"

#include "training/place.h"

#define TURN_NS (20 * MUSTER_NS_PER_MS) /* between two turns of the program's loop */

static void on_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec,
                      const struct muster_cluster_diff *diff)
{
    struct muster_expectation *expectation = watch->data;
    uint32_t count = muster_replica_place_count(expectation->resolver, spec);

    (void)diff;
    if (count == 0 || !expectation->is_watching)
        return;
    if (expectation->is_borrowed) /* perhaps the program turns its loop, and is in no call */
        expectation->count = count;
    else
        muster_node_set_expected(expectation->node, count);
}

static void watch_open(struct muster_expectation *expectation)
{
    expectation->watch =
        (struct muster_resolver_watch){.data = expectation, .on_change = on_change};
    expectation->is_watching =
        muster_resolver_watch_open(&expectation->watch, expectation->resolver) == MUSTER_OK;
    expectation->is_watch_closing = expectation->is_watch_closed = !expectation->is_watching;
}

/* A cluster that cannot be watched is no reason not to start: the number of tasks then stays as it
 * was found. */
void muster_expectation_open(struct muster_expectation *expectation, struct muster_env *env,
                             const char *uri, struct muster_node *node)
{
    MUSTER_ASSERT(expectation->resolver == NULL && !expectation->has_http); /* all zero */
    expectation->env = env;
    expectation->node = node;
    if (env->http == NULL)
        expectation->has_http = muster_http_curl_open(env, NULL, &env->http, NULL) == MUSTER_OK;
    if (muster_resolver_open(env, uri, NULL, &expectation->resolver, NULL) != MUSTER_OK)
        return;
    watch_open(expectation);
}

static void on_turn(struct muster_timer *timer)
{
    struct muster_expectation *expectation = timer->data;
    struct muster_loop *loop = expectation->env->loop;

    muster_loop_turn(expectation->resolver->env->loop, 0);
    if (expectation->is_watching && expectation->count > 0)
        muster_node_set_expected(expectation->node, expectation->count);
    expectation->count = 0;
    muster_timer_start(timer, loop, muster_loop_after_ns(loop, TURN_NS));
}

void muster_expectation_open_borrowed(struct muster_expectation *expectation,
                                      struct muster_env *env, struct muster_resolver *resolver,
                                      struct muster_node *node)
{
    MUSTER_ASSERT(expectation->resolver == NULL); /* all zero */
    expectation->env = env;
    expectation->node = node;
    expectation->resolver = resolver;
    expectation->is_borrowed = true;
    muster_timer_init(&expectation->timer, on_turn, expectation);
    watch_open(expectation);
}

void muster_expectation_start_wait(struct muster_expectation *expectation)
{
    if (expectation->is_borrowed && expectation->is_watching)
        muster_timer_start(&expectation->timer, expectation->env->loop,
                           muster_loop_now_ns(expectation->env->loop));
}

static void on_watch_closed(struct muster_resolver_watch *watch)
{
    struct muster_expectation *expectation = watch->data;

    MUSTER_ASSERT(!expectation->is_watching && !expectation->is_watch_closed);
    expectation->is_watch_closed = true;
}

void muster_expectation_stop_wait(struct muster_expectation *expectation)
{
    if (!expectation->is_borrowed)
        return;
    muster_timer_stop(&expectation->timer);
    if (!expectation->is_watching && !expectation->is_watch_closing) {
        expectation->is_watch_closing = true;
        muster_resolver_watch_close(&expectation->watch, on_watch_closed);
    }
}

/* A thread of ours may be here, to which the program's loop is forbidden: that watch is closed after the next wait. */
void muster_expectation_stop(struct muster_expectation *expectation)
{
    if (!expectation->is_watching)
        return;
    expectation->is_watching = false;
    if (!expectation->is_borrowed)
        muster_resolver_watch_close(&expectation->watch, on_watch_closed);
}

static void on_resolver_closed(struct muster_resolver *resolver)
{
    struct muster_expectation *expectation = resolver->data;

    expectation->is_resolver_closed = true;
}

static void on_http_closed(struct muster_http *http)
{
    MUSTER_CONTAINER_OF(http->tracer, struct muster_expectation, tracer)->is_http_closed = true;
}

static void turn_until(const struct muster_env *env, const bool *is_done)
{
    while (!*is_done)
        muster_loop_turn(env->loop, UINT64_MAX);
}

static void close_borrowed(struct muster_expectation *expectation)
{
    muster_expectation_stop(expectation);
    muster_expectation_stop_wait(expectation);
    turn_until(expectation->resolver->env, &expectation->is_watch_closed);
    expectation->resolver = NULL;
    expectation->is_borrowed = false;
}

/* In the reverse order of open, each awaited: a resolver may still use the HTTP client while it
 * closes. */
void muster_expectation_close(struct muster_expectation *expectation)
{
    if (expectation->is_borrowed)
        close_borrowed(expectation);
    if (expectation->resolver != NULL) {
        muster_expectation_stop(expectation);
        turn_until(expectation->env, &expectation->is_watch_closed);
        expectation->resolver->data = expectation;
        muster_resolver_close(expectation->resolver, on_resolver_closed);
        turn_until(expectation->env, &expectation->is_resolver_closed);
        expectation->resolver = NULL;
    }
    if (expectation->has_http) {
        /* The tracer leads on_http_closed to the expectation. It hears of no exchange: the resolver's are over. */
        expectation->env->http->tracer = &expectation->tracer;
        muster_http_close(expectation->env->http, on_http_closed);
        turn_until(expectation->env, &expectation->is_http_closed);
        expectation->env->http = NULL;
        expectation->has_http = false;
    }
}
