/* Writes the key `preempt` of the job: "VIEW CAUSE". The number is that of the last view that a worker has reported: a
 * request of before the job's last beginning does not count, so it is written again when a newer one is known. */
#include "run/registry/preempt.h"

#include "common/output.h"
#include "common/text_bytes.h"
#include "run/registry/registry.h"

#include <muster/registry.h>

#include <stdio.h>
#include <stdlib.h>

#define PUT_WITHIN_NS (2 * MUSTER_NS_PER_S)
#define LOOK_NS       (100 * MUSTER_NS_PER_MS)

struct run_preempt_key {
    struct run *run;
    struct muster_registry_op op;
    struct muster_timer timer;
    bool is_putting, is_closed;
    uint64_t asked_epoch,
        put_epoch; /* of the put under way, and of the last one that was answered */
};

static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_preempt_key *preempt = op->data;

    preempt->is_putting = false;
    if (rc == MUSTER_OK)
        preempt->put_epoch = preempt->asked_epoch;
    if (preempt->is_closed)
        free(preempt);
}

static void put_key(struct run_preempt_key *preempt)
{
    struct run *run = preempt->run;
    char key[160], value[96];

    snprintf(key, sizeof(key), "/muster/%s/preempt", run->settings.job_name);
    snprintf(value, sizeof(value), "%llu %s", (unsigned long long)run->epoch_last,
             run->preempt_cause);
    preempt->asked_epoch = run->epoch_last;
    preempt->op.data = preempt;
    preempt->is_putting =
        muster_registry_put_start(
            &preempt->op, run_registry_client(run), text_bytes(key), text_bytes(value), 0,
            muster_loop_after_ns(run->env->loop, PUT_WITHIN_NS), on_put) == MUSTER_OK;
}

static void on_look(struct muster_timer *timer)
{
    struct run_preempt_key *preempt = timer->data;
    struct muster_loop *loop = preempt->run->env->loop;

    if (!preempt->is_putting && preempt->put_epoch < preempt->run->epoch_last)
        put_key(preempt);
    muster_timer_start(timer, loop, muster_loop_after_ns(loop, LOOK_NS));
}

void run_preempt_key_open(struct run *run, const char *cause)
{
    struct run_preempt_key *preempt;

    if (run->preempt_key != NULL)
        return;
    preempt = calloc(1, sizeof(*preempt));
    if (preempt == NULL)
        output_no_memory();
    preempt->run = run;
    if (run->preempt_cause[0] == '\0') /* else that of the launcher before */
        snprintf(run->preempt_cause, sizeof(run->preempt_cause), "%s", cause);
    muster_timer_init(&preempt->timer, on_look, preempt);
    run->preempt_key = preempt;
    on_look(&preempt->timer);
}

void run_preempt_key_close(struct run *run)
{
    struct run_preempt_key *preempt = run->preempt_key;

    if (preempt == NULL)
        return;
    run->preempt_key = NULL;
    preempt->is_closed = true;
    muster_timer_stop(&preempt->timer);
    if (!preempt->is_putting)
        free(preempt);
}
