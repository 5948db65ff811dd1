/* The weights of the other machines: each launcher leaves its own in the registry for a minute, and
 * looks at those that are there already, so that the last one to end has seen all.
 *
 * The comparison is by a digest after the same step; it happens once, when all workers of this
 * launcher have ended. It is a check of the result and not needed for it, so a registry that does
 * not answer within seconds is reported and nothing else. */
#include "run/registry/weights.h"

#include "common/command.h"
#include "common/output.h"
#include "common/text_bytes.h"
#include "run/output/log.h"
#include "run/registry/registry.h"
#include "run/state/outcome.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WITHIN_NS (3 * MUSTER_NS_PER_S)
#define LEASE_S   60

struct run_weights {
    struct run *run;
    struct muster_registry_op op;
    bool is_busy;
    enum muster_rc rc;
    int64_t lease;
    char prefix[160], key[200], value[64 + RUN_DIGEST_BYTES];
    uint64_t steps;
    const char *digest;
    uint32_t same;
};

static uint64_t weights_deadline(const struct run_weights *weights)
{
    return muster_loop_after_ns(weights->run->env->loop, WITHIN_NS);
}

static void on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_weights *weights = op->data;

    weights->is_busy = false;
    weights->rc = rc;
    weights->lease = op->lease;
}

/* True: it has been done. */
static bool weights_await(struct run_weights *weights, enum muster_rc started)
{
    MUSTER_ASSERT(!weights->is_busy);
    weights->is_busy = started == MUSTER_OK;
    weights->rc = started;
    while (weights->is_busy)
        muster_loop_turn(weights->run->env->loop, UINT64_MAX);
    return weights->rc == MUSTER_OK;
}

static void weights_compare(struct run_weights *weights, const struct muster_registry_kv *kv)
{
    char text[sizeof(weights->value)], digest[RUN_DIGEST_BYTES] = "";
    const char *rank = (const char *)kv->key.data + strlen(weights->prefix);
    int rank_bytes = (int)(kv->key.size - strlen(weights->prefix));
    unsigned long long steps = 0, epoch = 0;
    char *space;

    snprintf(text, sizeof(text), "%.*s", (int)kv->value.size, (const char *)kv->value.data);
    epoch = strtoull(text, &space, 10);
    steps = strtoull(space, &space, 10);
    if (*space == ' ')
        snprintf(digest, sizeof(digest), "%s", space + 1);
    /* The record is of an earlier run of this job, or that machine's workers left earlier than ours
     * or went on without them: the weights are of another step, so there is nothing to compare. */
    if (epoch < weights->run->epoch_first || steps != weights->steps)
        return;
    if (strcmp(digest, weights->digest) == 0) {
        weights->same++;
        return;
    }
    weights->run->is_different_elsewhere = true;
    run_tell(weights->run, "machine %.*s has other weights after step %llu: %s", rank_bytes, rank,
             steps, digest);
}

static void on_listed(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_weights *weights = op->data;

    for (size_t i = 0; rc == MUSTER_OK && i < op->kv_count; i++)
        weights_compare(weights, &op->kvs[i]);
    on_op(op, rc);
}

static bool weights_exchange(struct run_weights *weights)
{
    struct muster_registry *client = run_registry_client(weights->run);
    struct muster_registry_range all = {.key = text_bytes(weights->prefix),
                                        .reach = MUSTER_REGISTRY_PREFIX};

    while (weights->is_busy) /* the deletion, on a very short job */
        muster_loop_turn(weights->run->env->loop, UINT64_MAX);
    return weights_await(weights, muster_registry_grant_start(&weights->op, client, LEASE_S, 0,
                                                              weights_deadline(weights), on_op)) &&
           weights_await(weights,
                         muster_registry_put_start(&weights->op, client, text_bytes(weights->key),
                                                   text_bytes(weights->value), weights->lease,
                                                   weights_deadline(weights), on_op)) &&
           weights_await(weights,
                         muster_registry_range_start(&weights->op, client, &all,
                                                     weights_deadline(weights), on_listed));
}

static void name_keys(struct run_weights *weights)
{
    const struct run_settings *settings = &weights->run->settings;

    snprintf(weights->prefix, sizeof(weights->prefix), "/muster/%s/weights/", settings->job_name);
    snprintf(weights->key, sizeof(weights->key), "%s%llu", weights->prefix,
             (unsigned long long)settings->node_rank);
}

static const char *final_digest(const struct run *run, const struct run_outcome *outcome)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run_outcome_is_final(outcome, &run->tasks[i]))
            return run->tasks[i].digest;
    return "";
}

void run_weights_open(struct run *run)
{
    struct run_weights *weights = calloc(1, sizeof(*weights));

    if (weights == NULL)
        output_no_memory();
    MUSTER_ASSERT(run->weights == NULL && run->registry != NULL);
    weights->run = run;
    run->weights = weights;
    name_keys(weights);
    weights->op.data = weights;
    /* Weights of an earlier run of this job. A registry that does not answer is reported by
     * registry.c. */
    if (run->settings.nodes_max > 1 && run->resume == NULL)
        weights->is_busy = muster_registry_delete_start(
                               &weights->op, run_registry_client(run), text_bytes(weights->key),
                               MUSTER_REGISTRY_KEY, weights_deadline(weights), on_op) == MUSTER_OK;
}

/* Those that end later will compare theirs with ours. */
static void tell_same(struct run *run, uint32_t same, uint32_t results)
{
    run->machines_same = same > 1 ? same : 1;
    if (same > 1)
        run_tell(run, "weights byte-identical on %u machines that have ended", same);
    else if (!run->is_different_elsewhere && run->progress.members > results)
        run_tell(run, "the weights of the other machines are not known yet: the launcher that ends "
                      "last compares them");
}

void run_weights_compare(struct run *run)
{
    struct run_weights *weights = run->weights;
    struct run_outcome outcome;

    run_outcome_gather(run, &outcome);
    run->machines_same = 1;
    if (run->settings.nodes_max == 1 || !outcome.is_identical)
        return;
    weights->steps = outcome.steps;
    weights->digest = final_digest(run, &outcome);
    snprintf(weights->value, sizeof(weights->value), "%" PRIu64 " %" PRIu64 " %s", run->epoch_last,
             weights->steps, weights->digest);
    if (!weights_exchange(weights))
        run_tell(run,
                 "the registry does not tell whether the weights of other machines are the same");
    else
        tell_same(run, weights->same, outcome.results);
    if (run->is_different_elsewhere && run->exit_code == EXIT_OK)
        run->exit_code = EXIT_DIFFERENT;
}

void run_weights_close(struct run *run)
{
    free(run->weights);
    run->weights = NULL;
}
