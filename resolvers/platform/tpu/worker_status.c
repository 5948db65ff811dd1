/* GetStatus of many workers in parallel: a channel each, tries with backoff, one result for all. A
 * TPU worker that starts up is not there for minutes, so a refused connection is no failure yet;
 * TensorFlow retries up to 120 times, too. */
#include "resolvers/platform/tpu/worker_status.h"

#include <stdio.h>
#include <string.h>

#include <muster/address.h>
#include <muster/rpc.h>

#include "runtime/loop/deadline.h"
#include "runtime/value/backoff.h"

#define PAUSE_FIRST_NS (250 * MUSTER_NS_PER_MS) /* doubles */
#define PAUSE_MAX_NS   (5 * MUSTER_NS_PER_S)
#define PAUSE_MIN_NS   (5 * MUSTER_NS_PER_MS)  /* less time than this is not worth a try */
#define MARGIN_NS      (20 * MUSTER_NS_PER_MS) /* our reason comes before the caller's deadline */

enum ask_state {
    ASK_WAITING, /* its turn has not come */
    ASK_ASKING,
    ASK_PAUSING, /* before the next try */
    ASK_CLOSING, /* its channel */
    ASK_DONE,
};

struct muster_status_ask {
    struct muster_worker_status *status;
    char *address;
    enum ask_state state;
    struct muster_channel *channel;
    struct muster_unary unary;
    struct muster_timer timer;
    uint64_t pause_ns; /* the last one; 0: none yet */
    uint32_t tries;
    char **devices;
    size_t device_count;
};

/* Every change of state goes through here, so that the table holds. */
static void ask_move(struct muster_status_ask *ask, enum ask_state to)
{
    static const unsigned allowed[] = {
        [ASK_WAITING] = 1u << ASK_ASKING,
        [ASK_ASKING] = 1u << ASK_PAUSING | 1u << ASK_CLOSING,
        [ASK_PAUSING] = 1u << ASK_ASKING | 1u << ASK_CLOSING,
        [ASK_CLOSING] = 1u << ASK_DONE,
        [ASK_DONE] = 0,
    };

    MUSTER_ASSERT((allowed[ask->state] & 1u << to) != 0);
    ask->state = to;
}

/* The end. */

static void asks_free(struct muster_worker_status *status)
{
    struct muster_mem *mem = status->env->mem;

    for (size_t i = 0; i < status->ask_count; i++) {
        struct muster_status_ask *ask = &status->asks[i];

        muster_worker_status_devices_free(mem, ask->devices, ask->device_count);
        muster_mem_free(mem, ask->address);
    }
    muster_mem_free(mem, status->asks);
    status->asks = NULL;
    status->ask_count = 0;
}

/* The names of all workers, moved into one array. */
static enum muster_rc gather_devices(struct muster_worker_status *status)
{
    size_t count = 0, at = 0;

    for (size_t i = 0; i < status->ask_count; i++)
        count += status->asks[i].device_count;
    status->devices = muster_mem_alloc_zero(status->env->mem, count, sizeof(char *));
    if (status->devices == NULL)
        return muster_error_set(&status->error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for the names of %zu devices", count);
    for (size_t i = 0; i < status->ask_count; i++) {
        struct muster_status_ask *ask = &status->asks[i];

        if (ask->device_count > 0)
            memcpy(status->devices + at, ask->devices, ask->device_count * sizeof(char *));
        at += ask->device_count;
        ask->device_count = 0;
    }
    status->device_count = count;
    return MUSTER_OK;
}

static void on_end(struct muster_task *task)
{
    struct muster_worker_status *status = task->data;
    enum muster_rc rc = status->rc;

    if (rc == MUSTER_OK)
        rc = gather_devices(status);
    asks_free(status);
    status->done(status, rc);
}

static void ask_begin(struct muster_status_ask *ask);

/* Start as many asks as may run at once; end when none runs and none is left. The end comes by a
 * task, so that `done` may free status. */
static void status_continue(struct muster_worker_status *status)
{
    while (!status->is_over && status->active < MUSTER_WORKER_STATUS_AT_ONCE &&
           status->next < status->ask_count)
        ask_begin(&status->asks[status->next++]);
    if (status->active > 0)
        return;
    status->is_over = true;
    muster_task_init(&status->task, on_end, status);
    muster_task_post(&status->task, status->env->loop);
}

static void on_begin(struct muster_task *task)
{
    status_continue(task->data);
}

static void on_closed(struct muster_channel *channel)
{
    struct muster_status_ask *ask = muster_channel_data(channel);
    struct muster_worker_status *status = ask->status;

    ask_move(ask, ASK_DONE);
    MUSTER_ASSERT(status->active > 0);
    status->active--;
    status_continue(status);
}

static void ask_close(struct muster_status_ask *ask)
{
    muster_timer_stop(&ask->timer);
    ask_move(ask, ASK_CLOSING);
    muster_channel_close(ask->channel, on_closed);
}

/* The first failure is the result for all: asks that still run are closed. */
static void status_end(struct muster_worker_status *status, enum muster_rc rc)
{
    if (status->is_over)
        return;
    status->is_over = true;
    status->rc = rc;
    for (size_t i = 0; i < status->next; i++) {
        struct muster_status_ask *ask = &status->asks[i];

        if (ask->state == ASK_ASKING || ask->state == ASK_PAUSING)
            ask_close(ask);
    }
}

/* One worker. */

static enum muster_rc take_answer(struct muster_status_ask *ask, struct muster_bytes response)
{
    struct muster_worker_status *status = ask->status;
    struct muster_error error = {0};
    enum muster_rc rc = muster_worker_status_unpack(status->env->mem, response.data, response.size,
                                                    &ask->devices, &ask->device_count, &error);

    if (rc != MUSTER_OK)
        return muster_error_set(&status->error, rc,
                                "TPU worker %.80s lists no devices (%.80s): is there a TensorFlow "
                                "server on this port?",
                                ask->address, error.text);
    return MUSTER_OK;
}

static void ask_fail(struct muster_status_ask *ask, enum muster_rc rc, const char *reason)
{
    struct muster_error *error = &ask->status->error;

    if (rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED)
        rc =
            muster_error_set(error, MUSTER_UNAVAILABLE,
                             "cannot connect to TPU worker %.80s (tried %u times, last: %.60s): "
                             "is it running, and reachable from here?",
                             ask->address, ask->tries, muster_endpoint_cause(reason, ask->address));
    else
        (void)muster_error_set(error, rc,
                               "TPU worker %.80s answers GetStatus with %s (%.60s): is there a "
                               "TensorFlow server on this port?",
                               ask->address, muster_rc_name(rc), reason);
    status_end(ask->status, rc);
}

static uint64_t pause_first_ns(const struct muster_worker_status *status)
{
    return status->pause_first_ns != 0 ? status->pause_first_ns : PAUSE_FIRST_NS;
}

/* A pause that leaves time for a try, or 0: none is left. */
static uint64_t next_pause_ns(struct muster_status_ask *ask)
{
    uint64_t now_ns = muster_loop_now_ns(ask->status->env->loop);
    uint64_t left_ns = now_ns < ask->status->deadline_ns ? ask->status->deadline_ns - now_ns : 0;
    struct muster_backoff backoff = {.first_ns = pause_first_ns(ask->status),
                                     .max_ns = PAUSE_MAX_NS,
                                     .growth_permille = 2000};
    uint64_t pause_ns;

    if (ask->tries >= MUSTER_WORKER_STATUS_TRIES_MAX)
        return 0;
    pause_ns = muster_backoff_next(&backoff, &ask->pause_ns, NULL);
    if (pause_ns > left_ns / 2)
        pause_ns = left_ns / 2;
    return pause_ns < PAUSE_MIN_NS ? 0 : pause_ns;
}

static void on_answer(struct muster_unary *unary, enum muster_rc rc)
{
    struct muster_status_ask *ask = unary->data;
    struct muster_loop *loop = ask->status->env->loop;
    uint64_t pause_ns;

    if (ask->state == ASK_CLOSING)
        return;
    if (rc == MUSTER_OK) {
        rc = take_answer(ask, unary->response);
        if (rc == MUSTER_OK)
            ask_close(ask);
        else
            status_end(ask->status, rc);
        return;
    }
    pause_ns = rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED ? next_pause_ns(ask) : 0;
    if (pause_ns == 0) {
        ask_fail(ask, rc, unary->status.text);
        return;
    }
    ask_move(ask, ASK_PAUSING);
    muster_timer_start(&ask->timer, loop, muster_loop_after_ns(loop, pause_ns));
}

static void ask_try(struct muster_status_ask *ask)
{
    struct muster_worker_status *status = ask->status;
    uint64_t try_ns =
        status->try_timeout_ns != 0 ? status->try_timeout_ns : MUSTER_WORKER_STATUS_TRY_NS;
    uint64_t due_ns = muster_loop_after_ns(status->env->loop, try_ns);
    enum muster_rc rc;

    if (due_ns > status->deadline_ns)
        due_ns = status->deadline_ns;
    ask_move(ask, ASK_ASKING);
    ask->tries++;
    ask->unary.data = ask;
    rc = muster_unary_start(&ask->unary, ask->channel, MUSTER_WORKER_STATUS_METHOD, "", 0,
                            muster_deadline_inherit(status->env->loop, due_ns), on_answer);
    if (rc != MUSTER_OK)
        ask_fail(ask, rc, muster_rc_text(rc));
}

static void on_pause_over(struct muster_timer *timer)
{
    ask_try(timer->data);
}

static void ask_begin(struct muster_status_ask *ask)
{
    struct muster_worker_status *status = ask->status;
    /* The channel backs off for less time than we pause, so that each try connects anew. */
    struct muster_channel_options options = {
        .connect_timeout_ns = MUSTER_WORKER_STATUS_TRY_NS,
        .backoff_base_ns = pause_first_ns(status) / 2,
        .backoff_max_ns = pause_first_ns(status) / 2,
        .receive_message_max_bytes = MUSTER_WORKER_STATUS_RESPONSE_MAX,
    };
    struct muster_endpoint endpoint;
    struct muster_error error = {0};
    enum muster_rc rc = muster_endpoint_parse(ask->address, 0, &endpoint, &error);

    if (rc == MUSTER_OK) /* a channel takes lists and schemes, too */
        rc = endpoint.address.family != MUSTER_ADDRESS_UNIX && strchr(ask->address, ',') == NULL
                 ? muster_channel_open(status->env, ask->address, &options, &ask->channel, &error)
                 : muster_error_set(&error, MUSTER_INVALID_ARGUMENT, "it is not a host:port");
    if (rc != MUSTER_OK) {
        (void)muster_error_set(&status->error, rc, "TPU worker %.80s cannot be asked: %.100s",
                               ask->address, error.text);
        status_end(status, rc);
        return;
    }
    muster_channel_set_data(ask->channel, ask);
    status->active++;
    ask_try(ask);
}

/* Starting. */

static enum muster_rc asks_new(struct muster_worker_status *status, const char *const *addresses,
                               size_t count)
{
    struct muster_mem *mem = status->env->mem;

    if (count > MUSTER_WORKER_STATUS_WORKERS_MAX)
        return MUSTER_RESOURCE_EXHAUSTED;
    status->asks = muster_mem_alloc_zero(mem, count, sizeof(status->asks[0]));
    if (status->asks == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    status->ask_count = count;
    for (size_t i = 0; i < count; i++) {
        struct muster_status_ask *ask = &status->asks[i];

        ask->status = status;
        muster_timer_init(&ask->timer, on_pause_over, ask);
        ask->address = muster_mem_strdup(mem, addresses[i]);
        if (ask->address == NULL) {
            asks_free(status);
            return MUSTER_RESOURCE_EXHAUSTED;
        }
    }
    return MUSTER_OK;
}

enum muster_rc muster_worker_status_start(struct muster_worker_status *status,
                                          struct muster_env *env, const char *const *addresses,
                                          size_t address_count, uint64_t deadline_ns,
                                          muster_worker_status_fn *done)
{
    struct muster_worker_status fresh = {
        .data = status->data,
        .try_timeout_ns = status->try_timeout_ns,
        .pause_first_ns = status->pause_first_ns,
        .env = env,
        .done = done,
        .deadline_ns = deadline_ns > MARGIN_NS ? deadline_ns - MARGIN_NS : 0,
    };
    enum muster_rc rc = asks_new(&fresh, addresses, address_count);

    if (rc != MUSTER_OK)
        return rc;
    *status = fresh;
    for (size_t i = 0; i < address_count; i++)
        status->asks[i].status = status;
    muster_task_init(&status->task, on_begin, status);
    muster_task_post(&status->task, env->loop);
    return MUSTER_OK;
}

void muster_worker_status_cancel(struct muster_worker_status *status)
{
    if (!status->is_over)
        status_end(status, muster_error_set(&status->error, MUSTER_CANCELLED,
                                            "the question was cancelled"));
}

void muster_worker_status_fini(struct muster_worker_status *status)
{
    if (status->env == NULL)
        return;
    muster_worker_status_devices_free(status->env->mem, status->devices, status->device_count);
    status->devices = NULL;
    status->device_count = 0;
}
