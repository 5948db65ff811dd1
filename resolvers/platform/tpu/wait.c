/* Wait until a TPU is healthy: three looks in a row, then a pause, until the time is over. Looks
 * and figures are those of cloud_tpu_client's wait_for_healthy, which reads the health three times
 * in each round; a look here is one query of the node. */
#include <string.h>

#include "resolvers/platform/tpu/client.h"

#define TIMEOUT_DEFAULT_NS  (1200 * MUSTER_NS_PER_S) /* wait_for_healthy(timeout_s=1200) */
#define INTERVAL_DEFAULT_NS (30 * MUSTER_NS_PER_S)   /* wait_for_healthy(interval=30) */
#define LOOKS_PER_ROUND     3
#define LOOK_NS             (60 * MUSTER_NS_PER_S) /* one that hangs must not use up the wait */

static void wait_look(struct muster_tpu_wait *wait);

static void wait_finish(struct muster_tpu_wait *wait, enum muster_rc rc)
{
    struct muster_tpu_client *client = wait->client;

    muster_timer_stop(&wait->timer);
    muster_list_remove(&wait->node);
    wait->done(wait, rc);
    muster_tpu_client_check_closed(client);
}

/* The time that has passed, or that would have passed if no look had come early
 * (muster_tpu_wait_look_now): a hurried wait gives up after as many looks as a slow one. */
static uint64_t elapsed_ns(const struct muster_tpu_wait *wait)
{
    uint64_t real_ns = muster_loop_now_ns(wait->client->env->loop) - wait->started_ns;

    return real_ns > wait->waited_ns ? real_ns : wait->waited_ns;
}

/* A round of looks has found no healthy TPU: pause, unless the pause would end after the time is
 * over. */
static void sleep_or_give_up(struct muster_tpu_wait *wait, const struct muster_tpu_node *node)
{
    struct muster_loop *loop = wait->client->env->loop;
    enum muster_rc rc;

    if (elapsed_ns(wait) + wait->interval_ns > wait->timeout_ns) {
        rc = muster_error_set(&wait->error, MUSTER_DEADLINE_EXCEEDED,
                              "TPU %.60s did not become healthy in time: state %.30s, health %.40s",
                              wait->client->target.name, node->state != NULL ? node->state : "none",
                              node->health != NULL ? node->health : "none");
        wait_finish(wait, rc);
        return;
    }
    wait->look_count = 0;
    wait->waited_ns += wait->interval_ns;
    muster_timer_start(&wait->timer, loop, muster_loop_after_ns(loop, wait->interval_ns));
    if (wait->on_wait != NULL)
        wait->on_wait(wait, MUSTER_UNAVAILABLE);
}

/* A failed query ends the wait, as in cloud_tpu_client: the HTTP client has retried it already. */
static void on_node(struct muster_tpu_query *query, enum muster_rc rc)
{
    struct muster_tpu_wait *wait = query->data;
    struct muster_tpu_node *node = query->node;
    bool is_healthy =
        rc == MUSTER_OK && node->health != NULL && strcmp(node->health, "HEALTHY") == 0;

    wait->is_asking = false;
    if (wait->is_cancelled)
        rc = muster_error_set(&wait->error, MUSTER_CANCELLED, "cancelled");
    else if (rc != MUSTER_OK)
        wait->error = query->error;
    if (rc == MUSTER_OK && !is_healthy && ++wait->look_count >= LOOKS_PER_ROUND)
        sleep_or_give_up(wait, node);
    else if (rc == MUSTER_OK && !is_healthy)
        wait_look(wait);
    else
        wait_finish(wait, rc);
    muster_tpu_node_unref(node);
}

static void wait_look(struct muster_tpu_wait *wait)
{
    struct muster_loop *loop = wait->client->env->loop;
    enum muster_rc rc;

    wait->query.data = wait;
    wait->query.what = MUSTER_TPU_NODE;
    wait->query.is_watch = false;
    wait->query.deadline_ns = muster_loop_after_ns(loop, LOOK_NS);
    rc = muster_tpu_query_start(&wait->query, wait->client, on_node);
    wait->is_asking = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        wait_finish(wait, muster_error_set(&wait->error, rc, "cannot ask about the TPU: %s",
                                           muster_rc_text(rc)));
}

static void on_interval(struct muster_timer *timer)
{
    struct muster_tpu_wait *wait = timer->data;

    if (wait->is_cancelled)
        wait_finish(wait, muster_error_set(&wait->error, MUSTER_CANCELLED, "cancelled"));
    else
        wait_look(wait);
}

enum muster_rc muster_tpu_wait_start(struct muster_tpu_wait *wait, struct muster_tpu_client *client,
                                     muster_tpu_wait_fn *done)
{
    if (client->is_closed)
        return MUSTER_FAILED_PRECONDITION;
    /* Without an API the health never changes; TensorFlow would poll until the time is over. */
    if (!muster_tpu_client_has_api(client))
        return muster_error_set(&wait->error, MUSTER_FAILED_PRECONDITION,
                                "TPU %.60s has no API that would tell its health",
                                client->target.name);
    if (wait->timeout_ns == 0)
        wait->timeout_ns = TIMEOUT_DEFAULT_NS;
    if (wait->interval_ns == 0)
        wait->interval_ns = INTERVAL_DEFAULT_NS;
    wait->client = client;
    wait->done = done;
    wait->error = (struct muster_error){.rc = MUSTER_OK};
    wait->started_ns = muster_loop_now_ns(client->env->loop);
    wait->waited_ns = 0;
    wait->look_count = 0;
    wait->is_cancelled = wait->is_asking = false;
    muster_list_append(&client->waits, &wait->node);
    muster_timer_init(&wait->timer, on_interval, wait);
    muster_timer_start(&wait->timer, client->env->loop, wait->started_ns);
    return MUSTER_OK;
}

void muster_tpu_wait_look_now(struct muster_tpu_wait *wait)
{
    struct muster_loop *loop = wait->client->env->loop;

    if (!wait->is_asking)
        muster_timer_start(&wait->timer, loop, muster_loop_now_ns(loop));
}

void muster_tpu_wait_cancel(struct muster_tpu_wait *wait)
{
    wait->is_cancelled = true;
    if (wait->is_asking)
        muster_tpu_query_cancel(&wait->query);
    else
        muster_tpu_wait_look_now(wait);
}
