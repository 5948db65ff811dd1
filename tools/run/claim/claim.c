/* The place of a launcher in its job: /muster/<job>/launchers/<node rank>, taken by
 * compare-and-swap under a lease. A place has one launcher; all launchers of a job have the same
 * --nnodes, -n, --tls, --checkpoint-every and --constant-batch, and all or none --checkpoint-dir.
 *
 * This file makes the claim and gives it back. take.c takes the place before the first worker
 * starts, keep.c keeps it, former.c confirms the deaths of the members of a launcher that had it
 * before. */
#include "run/claim/claim.h"

#include "common/command.h"
#include "common/output.h"
#include "run/claim/claim_internal.h"
#include "run/output/log.h"
#include "run/state/outcome.h"

#include <inttypes.h>
#include <stdlib.h>

/* How long the end waits for the registry. If it does not answer, the lease frees the place soon.
 * */
#define RELEASE_NS      (1 * MUSTER_NS_PER_S)
#define ABSENT_AGAIN_NS (30 * MUSTER_NS_PER_S)

/* Only until the job has begun: people are then told at which machines a launcher has yet to be
 * started. */
static void on_absent(struct muster_timer *timer)
{
    struct run_claim *claim = timer->data;
    struct run *run = claim->run;
    char ranks[160] = "";
    size_t length = 0;

    if (run_outcome_has_begun(run) || run->state != RUN_STATE_RUNNING)
        return;
    for (uint32_t rank = 0; rank < run->settings.nodes_max && length + 24 < sizeof(ranks); rank++)
        if (claim->places[rank].revision == 0)
            length += (size_t)snprintf(ranks + length, sizeof(ranks) - length, "%s%u",
                                       length > 0 ? ", " : "", rank);
    if (length > 0)
        run_tell(run,
                 "waiting for the launchers of node rank %s: job %s has %u machines; start them "
                 "with the same --job and --registry",
                 ranks, run->settings.job_name, run->settings.nodes_max);
    muster_timer_start(timer, run->env->loop, run_claim_after(claim, ABSENT_AGAIN_NS));
}

struct run_claim *run_claim_new(struct run *run)
{
    struct run_claim *claim = calloc(1, sizeof(*claim));

    if (claim == NULL)
        output_no_memory();
    claim->run = run;
    claim->op.data = claim->put.data = claim->release.data = claim->lease.data = claim;
    claim->places = calloc(run_claim_place_count(claim), sizeof(claim->places[0]));
    if (claim->places == NULL)
        output_no_memory();
    muster_timer_init(&claim->again, run_claim_on_again, claim);
    muster_timer_init(&claim->absent, on_absent, claim);
    run_claim_record_init(&claim->own, run->env, &run->settings, run_registry_endpoint(run));
    claim->value = run_claim_record_format(&claim->own);
    snprintf(claim->prefix, sizeof(claim->prefix), "/muster/%s/launchers/", run->settings.job_name);
    snprintf(claim->key, sizeof(claim->key), "%s%llu", claim->prefix,
             (unsigned long long)run->settings.node_rank);
    snprintf(claim->ask_key, sizeof(claim->ask_key), "%sasks/%016" PRIx64, claim->prefix,
             claim->own.launcher);
    snprintf(claim->ended_key, sizeof(claim->ended_key), "/muster/%s/ended",
             run->settings.job_name);
    return claim;
}

bool run_claim_is_held(const struct run *run)
{
    return run->claim->state == CLAIM_HELD;
}

static void on_released(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_claim *claim = op->data;

    (void)rc;
    claim->is_releasing = false;
}

/* The revocation deletes the own record and an ask key at once, so the next launcher at this place
 * need not wait for the lease. */
static void claim_release(struct run_claim *claim)
{
    muster_registry_lease_stop(&claim->lease);
    claim->is_leased = false;
    claim->is_releasing =
        muster_registry_revoke_start(&claim->release, run_claim_client(claim), claim->lease.id,
                                     run_claim_after(claim, RELEASE_NS), on_released) == MUSTER_OK;
}

void run_claim_close(struct run *run)
{
    struct run_claim *claim = run->claim;

    if (claim == NULL)
        return;
    if (claim->state != CLAIM_OVER)
        run_claim_move(claim, CLAIM_OVER);
    if (claim->is_watching)
        muster_registry_watch_stop(&claim->watch);
    muster_timer_stop(&claim->again);
    muster_timer_stop(&claim->absent);
    if (claim->is_leased)
        claim_release(claim);
    else if (claim->is_leasing)
        muster_registry_lease_stop(&claim->lease);
    if (claim->is_putting)
        muster_registry_op_cancel(&claim->put);
    if (claim->is_busy)
        muster_registry_op_cancel(&claim->op);
    /* The requests are part of the claim: their callbacks must have come before it is freed. */
    while (claim->is_releasing || claim->is_putting || claim->is_busy)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    free(claim->places);
    free(claim->value);
    free(claim);
    run->claim = NULL;
}
