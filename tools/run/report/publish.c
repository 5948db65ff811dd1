/* One small record of this launcher's tasks in the registry, under a lease, which `muster status`
 * and `muster top` read.
 *
 * A job that nobody looks at writes only when a member changes; a command that looks writes the
 * job's ask key, and is answered with a new record. A registry that forbids these keys is left in
 * peace for a minute: the job does not need them. */
#include "run/report/publish.h"

#include "common/output.h"
#include "common/text_bytes.h"
#include "jobs/job_keys.h"
#include "run/registry/registry.h"
#include "run/report/status.h"
#include "run/report/status_json.h"

#include <stdlib.h>
#include <string.h>

#define INTERVAL_NS MUSTER_NS_PER_S          /* of looks whether there is something to write */
#define SPACING_NS  (500 * MUSTER_NS_PER_MS) /* between two records, whoever asks */
#define WITHIN_NS   (3 * MUSTER_NS_PER_S)    /* of one write; an old record helps nobody */
#define REFUSED_NS  (60 * MUSTER_NS_PER_S)   /* until the next try, when it is forbidden */
#define REVOKE_NS   (500 * MUSTER_NS_PER_MS)

struct run_publish {
    struct run *run;
    struct muster_registry_lease lease;
    struct muster_registry_op op;
    struct muster_registry_watch watch;
    struct muster_timer timer;
    char key[JOB_KEY_BYTES], ask_key[JOB_KEY_BYTES];
    bool is_leased, is_watching;
    bool is_busy;
    bool is_asked; /* since the last record */
    uint64_t written_ns;
    uint64_t again_ns; /* refused: nothing is tried before */
    uint64_t shown;    /* fingerprint of the last record that was written without being asked */
};

static struct muster_registry *client_of(const struct run_publish *publish)
{
    return run_registry_client(publish->run);
}

static uint64_t deadline_of(const struct run_publish *publish, uint64_t within_ns)
{
    return muster_loop_after_ns(publish->run->env->loop, within_ns);
}

/* A change of this number is worth a record that nobody has asked for. Steps and waits are not part
 * of it: they come and go. */
static uint64_t fingerprint_of(const struct run *run)
{
    uint64_t sum = run->epoch_last * 31 + (uint64_t)run->state + 1;

    for (uint32_t i = 0; i < run->task_count; i++)
        sum = sum * 1000003 + (uint64_t)run->tasks[i].state * 8191 + run->tasks[i].lives;
    return sum;
}

static void refusal_note(struct run_publish *publish, enum muster_rc rc)
{
    if (rc == MUSTER_PERMISSION_DENIED || rc == MUSTER_UNAUTHENTICATED)
        publish->again_ns = deadline_of(publish, REFUSED_NS);
}

static void on_written(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_publish *publish = op->data;

    publish->is_busy = false;
    refusal_note(publish, rc);
    if (rc != MUSTER_OK)
        publish->shown = 0; /* again in a second */
}

static void record_write(struct run_publish *publish)
{
    struct muster_json *record = run_status_json(publish->run, run_status_url(publish->run));
    char *text = NULL;

    MUSTER_ASSERT(publish->is_leased && !publish->is_busy);
    publish->op.data = publish;
    if (record != NULL &&
        muster_json_format(record, false, publish->run->env->mem, &text) == MUSTER_OK)
        publish->is_busy =
            muster_registry_put_start(&publish->op, client_of(publish), text_bytes(publish->key),
                                      text_bytes(text), publish->lease.id,
                                      deadline_of(publish, WITHIN_NS), on_written) == MUSTER_OK;
    muster_mem_free(publish->run->env->mem, text);
    muster_json_free(record);
}

/* The request comes first: an answer must not wait for a change. */
static void record_offer(struct run_publish *publish)
{
    uint64_t fingerprint = fingerprint_of(publish->run);

    if (!publish->is_leased || publish->is_busy ||
        (!publish->is_asked && fingerprint == publish->shown))
        return;
    publish->is_asked = false;
    publish->shown = fingerprint;
    publish->written_ns = muster_loop_now_ns(publish->run->env->loop);
    record_write(publish);
}

static void watch_start(struct run_publish *publish);
static void lease_start(struct run_publish *publish);

static void on_due(struct muster_timer *timer)
{
    struct run_publish *publish = timer->data;

    if (muster_loop_now_ns(publish->run->env->loop) >= publish->again_ns) {
        if (!publish->is_watching)
            watch_start(publish);
        if (publish->lease.registry == NULL)
            lease_start(publish);
        record_offer(publish);
    }
    muster_timer_start(timer, publish->run->env->loop, deadline_of(publish, INTERVAL_NS));
}

/* --- The asking */

static void on_asked(struct muster_registry_watch *watch,
                     const struct muster_registry_change *changes, size_t count)
{
    struct run_publish *publish = watch->data;

    for (size_t i = 0; i < count; i++)
        publish->is_asked = publish->is_asked || !changes[i].is_delete;
    if (muster_loop_now_ns(publish->run->env->loop) - publish->written_ns >= SPACING_NS)
        record_offer(publish); /* else the timer does */
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct run_publish *publish = watch->data;

    refusal_note(publish, rc);
    publish->is_watching = false; /* compacted, or another store: the timer starts a new one */
}

static void watch_start(struct run_publish *publish)
{
    publish->watch.data = publish;
    publish->is_watching = muster_registry_watch_start(
                               &publish->watch, client_of(publish), text_bytes(publish->ask_key),
                               MUSTER_REGISTRY_KEY, 0, on_asked, on_watch_end) == MUSTER_OK;
}

/* --- The lease */

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct run_publish *publish = lease->data;

    publish->is_leased = rc == MUSTER_OK;
    refusal_note(publish, rc);
    if (rc != MUSTER_OK)
        publish->lease.registry = NULL;
    record_offer(publish);
}

/* The record has gone with its lease: it is written again under the next one. */
static void on_lost(struct muster_registry_lease *lease)
{
    struct run_publish *publish = lease->data;

    publish->is_leased = false;
    publish->shown = 0;
    publish->lease.registry = NULL;
}

static void lease_start(struct run_publish *publish)
{
    publish->lease = (struct muster_registry_lease){.data = publish};
    if (muster_registry_lease_start(&publish->lease, client_of(publish), JOB_RECORD_TTL_S,
                                    deadline_of(publish, 60 * MUSTER_NS_PER_S), on_granted,
                                    on_lost) != MUSTER_OK)
        publish->lease.registry = NULL;
}

void run_publish_open(struct run *run)
{
    struct run_publish *publish = calloc(1, sizeof(*publish));

    if (publish == NULL)
        output_no_memory();
    MUSTER_ASSERT(run->publish == NULL && run->registry != NULL);
    publish->run = run;
    snprintf(publish->key, sizeof(publish->key), "%s%s/%llu", JOB_STATUS_PREFIX,
             run->settings.job_name, (unsigned long long)run->settings.node_rank);
    snprintf(publish->ask_key, sizeof(publish->ask_key), "%s%s", JOB_ASK_PREFIX,
             run->settings.job_name);
    muster_timer_init(&publish->timer, on_due, publish);
    run->publish = publish;
    on_due(&publish->timer);
}

static void on_revoked(struct muster_registry_op *op, enum muster_rc rc)
{
    (void)rc; /* else it expires */
    ((struct run_publish *)op->data)->is_busy = false;
}

/* The revocation takes the record away at once. With an embedded registry there is nobody left to
 * see it. */
void run_publish_close(struct run *run)
{
    struct run_publish *publish = run->publish;
    int64_t lease;

    if (publish == NULL)
        return;
    muster_timer_stop(&publish->timer);
    if (publish->is_watching)
        muster_registry_watch_stop(&publish->watch);
    lease = publish->is_leased ? publish->lease.id : 0;
    if (publish->lease.registry != NULL)
        muster_registry_lease_stop(&publish->lease);
    if (publish->is_busy)
        muster_registry_op_cancel(&publish->op);
    while (publish->is_busy)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    publish->op.data = publish;
    publish->is_busy =
        lease != 0 && !run->settings.is_embedded &&
        muster_registry_revoke_start(&publish->op, client_of(publish), lease,
                                     deadline_of(publish, REVOKE_NS), on_revoked) == MUSTER_OK;
    while (publish->is_busy)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    free(publish);
    run->publish = NULL;
}
