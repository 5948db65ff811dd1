/* Long requests to the metadata server: wait_for_change with the ETag of the value last seen
 * (Google's "Query VM metadata: wait for changes"). The server answers when the value has another
 * tag, or after timeout_sec with the old one. */
#include "resolvers/platform/tpu/metadata_watch.h"

#include <stdio.h>
#include <string.h>

#include "runtime/value/backoff.h"

#define GRACE_S        15 /* the server's timeout_sec comes before our own deadline */
#define BACKOFF_MAX_NS (60 * MUSTER_NS_PER_S)
#define PATH_BYTES     256 /* paths are constants of this folder, and a tag is bounded */
#define ETAG_LETTERS   "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

static const bool allowed[4][4] = {
    /*              OFF    WAITING PAUSING STOPPING */
    /* OFF */ {false, true, true, false},
    /* WAITING */ {false, true, true, true},
    /* PAUSING */ {true, true, true, false},
    /* STOPPING */ {true, true, true, false},
};

/* Every change of state goes through here, so that the table above holds. */
static void watch_move(struct muster_metadata_watch *watch, enum muster_metadata_watch_state state)
{
    MUSTER_ASSERT(allowed[watch->state][state]);
    watch->state = state;
}

static uint64_t interval_min_ns(const struct muster_metadata_watch *watch)
{
    return watch->interval_min_ns != 0 ? watch->interval_min_ns : MUSTER_METADATA_WATCH_INTERVAL_NS;
}

static void pause_for(struct muster_metadata_watch *watch, uint64_t wait_ns)
{
    struct muster_loop *loop = watch->env->loop;

    watch_move(watch, MUSTER_METADATA_WATCH_PAUSING);
    muster_timer_start(&watch->timer, loop, muster_loop_after_ns(loop, wait_ns));
}

static void back_off(struct muster_metadata_watch *watch)
{
    uint64_t first_ns = interval_min_ns(watch);
    struct muster_backoff backoff = {
        .first_ns = first_ns,
        .max_ns = first_ns < BACKOFF_MAX_NS ? BACKOFF_MAX_NS : first_ns,
        .growth_permille = 2000,
        .jitter_permille = 300,
    };

    pause_for(watch, muster_backoff_next(&backoff, &watch->backoff_ns, watch->env->rng));
}

static void on_answer(struct muster_metadata_get *get, enum muster_rc rc);

/* One attempt only: back_off paces the next one, and a stop need not wait for retries. */
static void open_request(struct muster_metadata_watch *watch)
{
    struct muster_loop *loop = watch->env->loop;
    char path[PATH_BYTES];
    /* No value has the tag 0: the server answers at once. */
    int length =
        snprintf(path, sizeof(path), "%s?wait_for_change=true&timeout_sec=%u&last_etag=%s",
                 watch->path, MUSTER_METADATA_WATCH_S, watch->etag[0] != '\0' ? watch->etag : "0");

    MUSTER_ASSERT((size_t)length < sizeof(path));
    watch->get.call.retry.attempts_max = 1;
    watch->get.call.retry.attempt_timeout_ns =
        (MUSTER_METADATA_WATCH_S + GRACE_S) * MUSTER_NS_PER_S;
    watch->opened_ns = muster_loop_now_ns(loop);
    if (muster_metadata_get_start(
            &watch->get, watch->env, path,
            muster_loop_after_ns(loop, watch->get.call.retry.attempt_timeout_ns),
            on_answer) == MUSTER_OK)
        watch_move(watch, MUSTER_METADATA_WATCH_WAITING);
    else
        back_off(watch);
}

static void on_pause_over(struct muster_timer *timer)
{
    open_request(timer->data);
}

/* True: the value is new. A missing tag, or one with letters that a URL cannot hold, counts as "0",
 * so that every answer is new. */
static bool take_etag(struct muster_metadata_watch *watch)
{
    const char *etag = muster_http_response_header(&watch->get.call.request, "ETag");
    size_t length = etag != NULL ? strlen(etag) : 0;

    if (length == 0 || length >= sizeof(watch->etag) || strspn(etag, ETAG_LETTERS) != length) {
        watch->etag[0] = '\0';
        return true;
    }
    if (strcmp(etag, watch->etag) == 0)
        return false;
    memcpy(watch->etag, etag, length + 1);
    return true;
}

static void take_value(struct muster_metadata_watch *watch)
{
    size_t bytes = watch->get.bytes;

    if (bytes >= sizeof(watch->value))
        bytes = sizeof(watch->value) - 1;
    if (bytes > 0)
        memcpy(watch->value, watch->get.text, bytes);
    watch->value[bytes] = '\0';
}

/* Make at most one request per interval. The first answer comes at once, and the next request may
 * follow it at once. */
static void watch_continue(struct muster_metadata_watch *watch, bool is_first)
{
    uint64_t passed_ns = muster_loop_now_ns(watch->env->loop) - watch->opened_ns;

    if (passed_ns < interval_min_ns(watch) && !(is_first && watch->etag[0] != '\0'))
        pause_for(watch, interval_min_ns(watch) - passed_ns);
    else
        open_request(watch);
}

static void on_answer(struct muster_metadata_get *get, enum muster_rc rc)
{
    struct muster_metadata_watch *watch = get->data;
    bool is_first = watch->etag[0] == '\0', is_new;

    if (watch->state == MUSTER_METADATA_WATCH_STOPPING) {
        if (watch->is_wanted) {
            open_request(watch);
            return;
        }
        watch_move(watch, MUSTER_METADATA_WATCH_OFF);
        watch->on_off(watch);
        return;
    }
    if (rc != MUSTER_OK) {
        MUSTER_LOG(watch->env, DEBUG, "metadata_watch_failed", "rc", rc, "reason", get->error.text);
        back_off(watch);
        return;
    }
    watch->backoff_ns = 0;
    is_new = take_etag(watch);
    take_value(watch);               /* the next request forgets it */
    watch_continue(watch, is_first); /* before on_change, which may stop the watch */
    if (is_new)
        watch->on_change(watch);
}

void muster_metadata_watch_init(struct muster_metadata_watch *watch, struct muster_env *env,
                                const char *path)
{
    *watch = (struct muster_metadata_watch){.env = env, .path = path};
    muster_metadata_get_init(&watch->get, watch);
    muster_timer_init(&watch->timer, on_pause_over, watch);
}

void muster_metadata_watch_fini(struct muster_metadata_watch *watch)
{
    MUSTER_ASSERT(watch->state == MUSTER_METADATA_WATCH_OFF);
    muster_metadata_get_fini(&watch->get);
}

void muster_metadata_watch_start(struct muster_metadata_watch *watch)
{
    if (watch->state == MUSTER_METADATA_WATCH_OFF) {
        watch->etag[0] = '\0'; /* report also what changed while the watch was off */
        open_request(watch);
    }
    watch->is_wanted = true;
}

void muster_metadata_watch_stop(struct muster_metadata_watch *watch)
{
    watch->is_wanted = false;
    muster_timer_stop(&watch->timer);
    switch (watch->state) {
    case MUSTER_METADATA_WATCH_WAITING:
        watch_move(watch, MUSTER_METADATA_WATCH_STOPPING);
        muster_metadata_get_cancel(&watch->get);
        break;
    case MUSTER_METADATA_WATCH_PAUSING:
        watch_move(watch, MUSTER_METADATA_WATCH_OFF);
        watch->on_off(watch);
        break;
    case MUSTER_METADATA_WATCH_OFF:
    case MUSTER_METADATA_WATCH_STOPPING:
        break;
    }
}
