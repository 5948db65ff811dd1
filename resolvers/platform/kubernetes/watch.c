/* The watch of one selector: a stream of events (GET …/pods?watch=true, one JSON object per line),
 * reopened from the last resourceVersion that the server reported. The events only say that
 * something has changed; the resolver then lists the pods anew. Kubernetes' "Efficient detection of
 * changes" (API concepts) describes the protocol: list, watch from the version of the list, list
 * again after 410 Gone. */
#include "resolvers/platform/kubernetes/watch.h"

#include <stdio.h>
#include <string.h>

#include "runtime/value/backoff.h"

#define STREAM_S       300                   /* timeoutSeconds: the server ends the stream then */
#define STREAM_GRACE_S 30                    /* the server's end comes before our own deadline */
#define LINE_BYTES_MAX (4u << 20)            /* an object in etcd has 1.5 MiB at most by default */
#define HEALTHY_NS     (5 * MUSTER_NS_PER_S) /* a stream that lasts as long ends the backoff */

/* The jitter keeps the tasks of a job apart, which all lose their streams when the API server
 * restarts. */
static const struct muster_backoff reopen = {.first_ns = MUSTER_NS_PER_S,
                                             .max_ns = 60 * MUSTER_NS_PER_S,
                                             .growth_permille = 2000,
                                             .jitter_permille = 300};

static const bool allowed[6][6] = {
    /*                 OFF    UNLISTED STREAMING BACKOFF STOPPING RENEWING */
    /* OFF */ {false, true, false, false, false, false},
    /* UNLISTED */ {true, false, true, true, false, false},
    /* STREAMING */ {false, true, true, true, true, false},
    /* BACKOFF */ {true, true, true, true, false, false},
    /* STOPPING */ {true, false, false, false, false, true},
    /* RENEWING */ {false, true, false, false, true, false},
};

/* Every change of state goes through here, so that the table above holds. */
static void watch_move(struct muster_kubernetes_watch *watch,
                       enum muster_kubernetes_watch_state state)
{
    MUSTER_ASSERT(allowed[watch->state][state]);
    watch->state = state;
}

static void open_stream(struct muster_kubernetes_watch *watch);

static void back_off(struct muster_kubernetes_watch *watch)
{
    struct muster_env *env = watch->server->env;
    uint64_t wait_ns = muster_backoff_next(&reopen, &watch->backoff_ns, env->rng);

    watch_move(watch, MUSTER_KUBERNETES_WATCH_BACKOFF);
    muster_timer_start(&watch->timer, env->loop, muster_loop_after_ns(env->loop, wait_ns));
}

/* The version is too old for the server to continue from: report a change, so that the resolver
 * lists the pods and hands over a new version. */
static void ask_for_listing(struct muster_kubernetes_watch *watch)
{
    watch->is_expired = false;
    watch_move(watch, MUSTER_KUBERNETES_WATCH_UNLISTED);
    watch->on_change(watch);
}

static void on_backoff_over(struct muster_timer *timer)
{
    struct muster_kubernetes_watch *watch = timer->data;

    if (watch->is_expired)
        ask_for_listing(watch);
    else
        open_stream(watch);
}

static void turn_off(struct muster_kubernetes_watch *watch)
{
    muster_text_clear(&watch->line);
    watch->is_expired = false;
    watch_move(watch, MUSTER_KUBERNETES_WATCH_OFF);
    watch->on_off(watch);
}

/* Handle one event, which is one line of JSON. Every event carries the version to go on from, a
 * BOOKMARK nothing else: bookmarks keep the version fresh while no pod of the selector changes, so
 * that a reopened stream seldom meets 410. An error ends the request, and on_end decides. */
static enum muster_rc take_event(struct muster_kubernetes_watch *watch, const char *text,
                                 size_t size)
{
    struct muster_kubernetes_event event;
    enum muster_rc rc = muster_kubernetes_event_parse(text, size, &event, NULL);

    if (rc != MUSTER_OK)
        return rc;
    if (event.resource_version[0] != '\0')
        memcpy(watch->version, event.resource_version, sizeof(watch->version));
    switch (event.kind) {
    case MUSTER_KUBERNETES_EVENT_CHANGE:
        watch->on_change(watch);
        break;
    case MUSTER_KUBERNETES_EVENT_BOOKMARK:
        break;
    case MUSTER_KUBERNETES_EVENT_EXPIRED:
        watch->is_expired = true;
        return MUSTER_OUT_OF_RANGE;
    case MUSTER_KUBERNETES_EVENT_FAILURE:
        return MUSTER_UNAVAILABLE;
    }
    return MUSTER_OK;
}

/* Cut the stream into lines. The state is checked for each of them, because on_change may stop the
 * watch. */
static enum muster_rc on_body(struct muster_http_request *request, const void *bytes, size_t count)
{
    struct muster_http_call *call = MUSTER_CONTAINER_OF(request, struct muster_http_call, request);
    struct muster_kubernetes_watch *watch = call->data;
    const char *at = bytes;
    enum muster_rc rc = MUSTER_OK;

    while (count > 0 && rc == MUSTER_OK && watch->state == MUSTER_KUBERNETES_WATCH_STREAMING) {
        const char *newline = memchr(at, '\n', count);
        size_t length = newline != NULL ? (size_t)(newline - at) : count;
        size_t used = newline != NULL ? length + 1 : length;

        if (watch->line.count + length > LINE_BYTES_MAX)
            return MUSTER_RESOURCE_EXHAUSTED;
        muster_text_add(&watch->line, at, length);
        if (watch->line.is_failed)
            return MUSTER_RESOURCE_EXHAUSTED;
        if (newline != NULL && watch->line.count > 0) {
            rc = take_event(watch, watch->line.bytes, watch->line.count);
            muster_text_clear(&watch->line);
        }
        at += used;
        count -= used;
    }
    return rc;
}

static void on_end(struct muster_http_call *call, enum muster_rc rc)
{
    struct muster_kubernetes_watch *watch = call->data;
    struct muster_env *env = watch->server->env;
    bool was_healthy = rc == MUSTER_OK && call->request.status == 200;

    muster_text_clear(&watch->line);
    muster_mem_free(env->mem, watch->url);
    watch->url = NULL;
    if (watch->state == MUSTER_KUBERNETES_WATCH_STOPPING) {
        turn_off(watch);
        return;
    }
    if (watch->state == MUSTER_KUBERNETES_WATCH_RENEWING) {
        ask_for_listing(watch); /* a listing that ended while RENEWING was ignored */
        return;
    }
    if (rc == MUSTER_OK && muster_http_status_rc(call->request.status) == MUSTER_OUT_OF_RANGE)
        watch->is_expired = true;
    if (muster_loop_now_ns(env->loop) - watch->opened_ns >= HEALTHY_NS)
        watch->backoff_ns = 0;
    else
        was_healthy =
            false; /* a server that ends streams at once must not be asked in a tight loop */
    if (!was_healthy)
        MUSTER_LOG(env, DEBUG, "kubernetes_watch_ended", "rc", rc, "status", call->request.status,
                   "expired", watch->is_expired);
    if (watch->is_expired && watch->backoff_ns == 0) {
        watch->backoff_ns = reopen.first_ns; /* a second expiry soon after waits */
        ask_for_listing(watch);
    } else if (was_healthy) {
        open_stream(watch);
    } else {
        back_off(watch);
    }
}

/* One attempt only: the retries of the HTTP client would ask for the same old version again, while
 * on_end knows the version of the last event, and 410. */
static void open_stream(struct muster_kubernetes_watch *watch)
{
    struct muster_env *env = watch->server->env;
    struct muster_kubernetes_query query = {
        .selector = watch->selector, .watch_version = watch->version, .timeout_s = STREAM_S};

    watch->url = muster_kubernetes_url_format(watch->server, &query);
    watch->opened_ns = muster_loop_now_ns(env->loop);
    if (watch->url == NULL) {
        back_off(watch);
        return;
    }
    muster_kubernetes_call_prepare(watch->server, &watch->call);
    watch->call.request.url = watch->url;
    watch->call.request.on_body = on_body;
    watch->call.request.deadline_ns =
        muster_loop_after_ns(env->loop, (STREAM_S + STREAM_GRACE_S) * MUSTER_NS_PER_S);
    watch->call.retry.attempts_max = 1;
    if (muster_http_call_start(&watch->call, env, on_end) != MUSTER_OK) {
        muster_mem_free(env->mem, watch->url);
        watch->url = NULL;
        back_off(watch);
        return;
    }
    watch_move(watch, MUSTER_KUBERNETES_WATCH_STREAMING);
}

void muster_kubernetes_watch_init(struct muster_kubernetes_watch *watch,
                                  const struct muster_kubernetes_server *server,
                                  const char *selector)
{
    *watch = (struct muster_kubernetes_watch){.server = server, .selector = selector};
    muster_http_call_init(&watch->call, watch);
    muster_timer_init(&watch->timer, on_backoff_over, watch);
    muster_text_init(&watch->line, server->env->mem);
}

void muster_kubernetes_watch_fini(struct muster_kubernetes_watch *watch)
{
    MUSTER_ASSERT(watch->state == MUSTER_KUBERNETES_WATCH_OFF);
    muster_http_call_fini(&watch->call);
    muster_text_fini(&watch->line);
}

void muster_kubernetes_watch_start(struct muster_kubernetes_watch *watch)
{
    if (watch->state == MUSTER_KUBERNETES_WATCH_OFF)
        watch_move(watch, MUSTER_KUBERNETES_WATCH_UNLISTED);
    else if (watch->state == MUSTER_KUBERNETES_WATCH_STOPPING)
        watch_move(watch, MUSTER_KUBERNETES_WATCH_RENEWING);
}

void muster_kubernetes_watch_stop(struct muster_kubernetes_watch *watch)
{
    muster_timer_stop(&watch->timer);
    switch (watch->state) {
    case MUSTER_KUBERNETES_WATCH_STREAMING:
        watch_move(watch, MUSTER_KUBERNETES_WATCH_STOPPING);
        muster_http_call_cancel(&watch->call);
        break;
    case MUSTER_KUBERNETES_WATCH_UNLISTED:
    case MUSTER_KUBERNETES_WATCH_BACKOFF:
        turn_off(watch);
        break;
    case MUSTER_KUBERNETES_WATCH_RENEWING:
        watch_move(watch, MUSTER_KUBERNETES_WATCH_STOPPING);
        break;
    case MUSTER_KUBERNETES_WATCH_OFF:
    case MUSTER_KUBERNETES_WATCH_STOPPING:
        break;
    }
}

/* Only UNLISTED takes a version: in the other states a stream is open or due, from a version that
 * it knows itself. Without a version (a proxy that strips it) there is nothing to watch from, and
 * the resolver's interval alone finds changes. */
void muster_kubernetes_watch_listed(struct muster_kubernetes_watch *watch, const char *version)
{
    if (watch->state != MUSTER_KUBERNETES_WATCH_UNLISTED || strlen(version) == 0 ||
        strlen(version) >= sizeof(watch->version))
        return;
    memcpy(watch->version, version, strlen(version) + 1);
    open_stream(watch);
}
