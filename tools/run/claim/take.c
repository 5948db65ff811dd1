/* The beginning: until the place is this launcher's no worker is started.
 *
 * Rounds of asking and looking turn the loop here, which nothing else uses yet. A place that is
 * free, or whose launcher is known to be dead, is taken by one transaction that also reads all
 * places. One that is held is asked for: its launcher, if it lives, writes its record again, which
 * refuses this one; a dead one's lease ends. A registry that is away at the start stops nothing:
 * the workers wait for it themselves, and keep.c takes the place later. */
#include "run/claim/claim.h"

#include "common/command.h"
#include "common/pause.h"
#include "run/claim/claim_internal.h"
#include "run/output/log.h"

#define ANSWER_NS       (1 * MUSTER_NS_PER_S)  /* a living holder answers sooner */
#define ASK_AGAIN_NS    (3 * MUSTER_NS_PER_S)  /* an answer may get lost with its connection */
#define ABSENCE_NS      (2 * MUSTER_NS_PER_S)  /* of the registry: then the workers wait for it */
#define ABSENT_FIRST_NS (10 * MUSTER_NS_PER_S) /* before people are told which launchers miss */

static void on_asked(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_claim *claim = op->data;

    claim->is_busy = false;
    claim->rc = rc;
}

static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_claim *claim = op->data;

    claim->is_busy = false;
    claim->rc = rc;
    /* With the own one, and its revision. If the watch was faster, it has shown all of this, and
     * what came later. */
    if (rc == MUSTER_OK && op->is_succeeded && op->revision >= claim->seen_revision)
        run_claim_show_all(claim, op->kvs, op->kv_count);
}

static bool claim_await(struct run_claim *claim)
{
    struct muster_loop *loop = claim->run->env->loop;

    while (claim->is_busy || claim->is_leasing)
        muster_loop_turn(loop, UINT64_MAX);
    return claim->rc == MUSTER_OK;
}

/* A launcher that stands against this one, and was there before its own record was. */
static struct claim_place *claim_find_conflict(struct run_claim *claim)
{
    char mine[24], theirs[24];

    for (size_t i = 0; i < run_claim_place_count(claim); i++) {
        struct claim_place *place = &claim->places[i];

        /* The one with the lower revision of two launchers that disagree was first, and stays. */
        if (place->revision == 0 || run_claim_is_own(claim, &place->record) ||
            (claim->revision != 0 && place->revision > claim->revision) ||
            (place->rank != claim->own.node_rank &&
             run_claim_record_difference(&claim->own, &place->record, mine, theirs) == NULL) ||
            run_claim_holder_is_dead(claim, &place->record))
            continue;
        return place;
    }
    return NULL;
}

static void claim_refuse(const struct run_claim *claim, const struct run_claim_record *holder,
                         int *ret_exit)
{
    const char *job = claim->run->settings.job_name;
    char who[RUN_CLAIM_TEXT_BYTES], mine[24], theirs[24];
    const char *option = run_claim_record_difference(&claim->own, holder, mine, theirs);

    run_claim_record_describe(holder, who);
    *ret_exit = option != NULL ? EXIT_USAGE : EXIT_UNAVAILABLE;
    if (option != NULL)
        run_log_error("this launcher says %s %s, that of node rank %llu of job %s, at %s, "
                      "says %s %s: give all launchers of the job the same",
                      option, mine, (unsigned long long)holder->node_rank, job, who, option,
                      theirs);
    else
        run_log_error("the place of node rank %llu in job %s is held by the launcher at %s, "
                      "which lives: end that one, or give this one another --node-rank or --job",
                      (unsigned long long)holder->node_rank, job, who);
}

/* The own record beside the places: the launchers that are there tell it, and show that they live.
 */
static void claim_ask(struct run_claim *claim)
{
    claim->rc = muster_registry_put_start(&claim->op, run_claim_client(claim),
                                          text_bytes(claim->ask_key), text_bytes(claim->value),
                                          claim->lease.id, run_claim_soon(claim), on_asked);
    claim->is_busy = claim->rc == MUSTER_OK;
    (void)claim_await(claim);
}

static void claim_tell_wait(struct run_claim *claim, struct claim_place *holder)
{
    char who[RUN_CLAIM_TEXT_BYTES];

    if (holder->is_wait_told)
        return;
    holder->is_wait_told = true;
    run_tell(claim->run,
             "waits for the launcher of node rank %llu at %s, which does not answer: when it is "
             "dead its lease ends within %d s",
             (unsigned long long)holder->record.node_rank,
             run_claim_record_describe(&holder->record, who), RUN_CLAIM_LEASE_S);
}

/* Put the own record where nobody's, or a dead launcher's, is; the compare fails when another
 * launcher was faster. All places are read in the same transaction, so that a launcher that
 * disagrees is seen with its revision before this one believes that it holds its place. A job that
 * had ended begins again: its mark goes. */
static bool claim_put(struct run_claim *claim)
{
    struct claim_place *own = &claim->places[claim->own.node_rank];
    struct muster_registry_compare is_as_seen = {.key = text_bytes(claim->key),
                                                 .target = MUSTER_REGISTRY_MOD_REVISION,
                                                 .relation = MUSTER_REGISTRY_EQUAL,
                                                 .number = own->revision};
    struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_PUT,
         .key = text_bytes(claim->key),
         .value = text_bytes(claim->value),
         .lease = claim->lease.id},
        {.kind = MUSTER_REGISTRY_DELETE, .key = text_bytes(claim->ended_key)},
        {.kind = MUSTER_REGISTRY_GET,
         .key = text_bytes(claim->prefix),
         .reach = MUSTER_REGISTRY_PREFIX}};
    struct muster_registry_txn txn = {
        .compares = &is_as_seen, .compare_count = 1, .success = steps, .success_count = 3};

    MUSTER_ASSERT(claim->state == CLAIM_ASKING && !claim->is_busy);
    claim->rc = muster_registry_txn_start(&claim->op, run_claim_client(claim), &txn,
                                          run_claim_soon(claim), on_put);
    claim->is_busy = claim->rc == MUSTER_OK;
    return claim_await(claim) && claim->revision != 0;
}

/* The registry does not take this launcher, now or ever: the best reason that is known is reported.
 */
static bool claim_fail(struct run_claim *claim, int *ret_exit)
{
    const struct muster_error *refusal = muster_registry_refusal(run_claim_client(claim));
    const char *text =
        claim->op.error.text[0] != '\0' ? claim->op.error.text : claim->lease.error.text;
    struct muster_error error;

    if (refusal != NULL)
        error = *refusal;
    else if (text[0] != '\0')
        muster_error_set(&error, claim->rc, "the registry at %.100s refuses: %.120s",
                         run_registry_endpoint(claim->run), text);
    else /* the question has not even begun */
        muster_error_set(&error, claim->rc, "the registry at %.100s cannot be asked: %s",
                         run_registry_endpoint(claim->run), muster_rc_text(claim->rc));
    run_log_error("%s", error.text);
    *ret_exit = command_exit_of(error.rc);
    return false;
}

/* A registry without room (its quota, or its disk) stays so until an operator does something. */
static bool claim_is_hopeless(const struct run_claim *claim, bool is_late)
{
    return muster_registry_refusal(run_claim_client(claim)) != NULL ||
           claim->rc == MUSTER_PERMISSION_DENIED || claim->rc == MUSTER_UNAUTHENTICATED ||
           (is_late && claim->rc == MUSTER_RESOURCE_EXHAUSTED);
}

static void claim_tell_failure(struct run_claim *claim)
{
    if (claim->is_failure_told)
        return;
    claim->is_failure_told = true;
    run_tell(claim->run, "waits for the registry at %s, which does not take this launcher yet: %s",
             run_registry_endpoint(claim->run), muster_rc_text(claim->rc));
}

/* One round: true when the place is ours, or is refused for good (*ret_exit). */
static bool claim_settle(struct run_claim *claim, int *ret_exit)
{
    uint64_t now_ns = muster_loop_now_ns(claim->run->env->loop);
    struct claim_place *holder = claim_find_conflict(claim);

    if (holder == NULL && claim->revision != 0) {
        run_claim_hold(claim);
        return true;
    }
    if (holder == NULL) {
        (void)claim_put(claim);
        return false;
    }
    if (holder->has_answered || claim->revision != 0) { /* it has met the own record as well */
        claim_refuse(claim, &holder->record, ret_exit);
        return true;
    }
    if (claim->asked_ns == 0 || now_ns > claim->asked_ns + ASK_AGAIN_NS) {
        claim->asked_ns = now_ns;
        if (claim->asked_first_ns == 0)
            claim->asked_first_ns = now_ns;
        claim_ask(claim);
    } else if (now_ns > claim->asked_first_ns + ANSWER_NS) {
        claim_tell_wait(claim, holder);
    }
    return false;
}

bool run_claim_take(struct run *run, int *ret_exit)
{
    struct run_claim *claim;
    uint64_t until_ns;
    bool is_settled = false, is_late;

    MUSTER_ASSERT(run->claim == NULL);
    if (run->settings.is_embedded)
        return true;
    claim = run->claim = run_claim_new(run);
    until_ns = run_claim_after(claim, ABSENCE_NS);
    *ret_exit = EXIT_OK;
    while (!is_settled) {
        is_late = muster_loop_now_ns(run->env->loop) > until_ns;
        if (claim_is_hopeless(claim, is_late))
            return claim_fail(claim, ret_exit);
        if (!claim->is_watching && is_late) {
            run_claim_later(claim);
            break;
        }
        if (is_late && claim->rc != MUSTER_OK)
            claim_tell_failure(claim);
        claim->rc = MUSTER_OK; /* what failed is tried again */
        run_claim_lease(claim);
        if (claim_await(claim) && !claim->is_watching)
            run_claim_look(claim);
        if (claim_await(claim) && claim->is_leased && claim->is_watching)
            is_settled = claim_settle(claim, ret_exit);
        if (!is_settled && (claim->revision == 0 || claim->rc != MUSTER_OK))
            loop_pause(run->env->loop, RUN_CLAIM_RETRY_NS / 6); /* the watch may show a change */
    }
    if (claim->state != CLAIM_HELD && claim->state != CLAIM_LOST)
        return false;
    run_registry_go_on(run);
    if (run->settings.nodes_max > 1)
        muster_timer_start(&claim->absent, run->env->loop, run_claim_after(claim, ABSENT_FIRST_NS));
    return true;
}
