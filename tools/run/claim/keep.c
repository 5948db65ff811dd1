/* The place of this launcher, once it is asked for: what the registry shows of all places of the
 * job is followed, launchers that disagree or ask are answered, and a place whose lease has run out
 * is taken again.
 *
 * take.c asks for the place at the beginning and decides whether it is this launcher's; from then
 * on only the watch, the lease and one timer drive this file. The registry serialises everything: a
 * place changes hands by compare-and-swap on the revision of its key alone, never by a clock. */
#include "run/claim/claim_internal.h"

#include "common/command.h"
#include "run/output/log.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

uint64_t run_claim_after(const struct run_claim *claim, uint64_t delay_ns)
{
    return muster_loop_after_ns(claim->run->env->loop, delay_ns);
}

void run_claim_move(struct run_claim *claim, enum claim_state to)
{
    static const unsigned allowed[] = {
        [CLAIM_ASKING] = 1u << CLAIM_HELD | 1u << CLAIM_LOST | 1u << CLAIM_OVER,
        [CLAIM_HELD] = 1u << CLAIM_LOST | 1u << CLAIM_OVER,
        [CLAIM_LOST] = 1u << CLAIM_HELD | 1u << CLAIM_OVER,
        [CLAIM_OVER] = 0,
    };

    MUSTER_ASSERT((allowed[claim->state] & 1u << to) != 0);
    claim->state = to;
    if (to == CLAIM_HELD)
        claim->run->control->on_place_held(claim->run, claim->own.launcher);
}

/* --- what the others say */

bool run_claim_is_own(const struct run_claim *claim, const struct run_claim_record *record)
{
    return record->launcher == claim->own.launcher;
}

/* A successor has the place: this launcher had been stopped, or was cut off, for longer than its
 * lease. */
static void claim_superseded(struct run_claim *claim, const struct run_claim_record *successor)
{
    struct run *run = claim->run;
    char who[RUN_CLAIM_TEXT_BYTES];

    MUSTER_ASSERT(!run_claim_is_own(claim, successor));
    run_claim_move(claim, CLAIM_OVER);
    run_log_error(
        "the place of node rank %llu in job %s has been taken over by the launcher "
        "at %s, while this one was stopped or without the registry: its workers are killed",
        (unsigned long long)claim->own.node_rank, run->settings.job_name,
        run_claim_record_describe(successor, who));
    run->fatal_code = EXIT_OTHER;
    run->control->end_all(run,
                          SIGTERM); /* first: the ends of workers are then no deaths to restart */
    run->control->kill_all(run);    /* a successor's workers wait for their places */
}

static void claim_take_again(struct run_claim *claim);

/* A refused launcher ends at once, perhaps on a machine that nobody looks at, so the holder tells
 * it as well. */
static void claim_tell_refused(struct run_claim *claim, const struct run_claim_record *other)
{
    char who[RUN_CLAIM_TEXT_BYTES], mine[24], theirs[24];
    const char *option = run_claim_record_difference(&claim->own, other, mine, theirs);

    run_claim_record_describe(other, who);
    if (option != NULL)
        run_tell(claim->run, "the launcher at %s was refused: it says %s %s, this job has %s %s",
                 who, option, theirs, option, mine);
    else if (other->node_rank == claim->own.node_rank)
        run_tell(claim->run,
                 "another launcher for node rank %llu was refused: that at %s; this one holds the "
                 "place",
                 (unsigned long long)other->node_rank, who);
}

static void claim_answer(struct run_claim *claim);

/* A failed answer is not repeated here: the asker asks again, and a lost place shows in the watch.
 */
static void on_answered(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_claim *claim = op->data;

    claim->is_putting = false;
    if (rc == MUSTER_OK && op->is_succeeded)
        claim->revision = op->revision; /* what went wrong shows in the watch, or is asked again */
    if (claim->is_asked)
        claim_answer(claim);
}

/* The same record once more tells a launcher that asks that this one lives. */
static void claim_answer(struct run_claim *claim)
{
    if (claim->is_putting || claim->state != CLAIM_HELD)
        return;
    claim->is_asked = false;
    claim->is_putting =
        muster_registry_swap_start(&claim->put, run_claim_client(claim), text_bytes(claim->key),
                                   claim->revision, text_bytes(claim->value), claim->lease.id,
                                   run_claim_soon(claim), on_answered) == MUSTER_OK;
}

/* The own key has changed, or is gone (record NULL). A stranger in it is a successor, unless its
 * process is known to have ended; an empty key means that the lease ran out. */
static void claim_show_own(struct run_claim *claim, const struct run_claim_record *record,
                           uint64_t revision)
{
    if (record != NULL && run_claim_is_own(claim, record)) {
        claim->revision = revision;
        return;
    }
    if (claim->state != CLAIM_HELD && claim->state != CLAIM_LOST)
        return;
    if (record != NULL && run_claim_holder_is_dead(claim, record)) {
        claim->revision = revision; /* it is taken from there */
        return;
    }
    if (record != NULL) {
        claim_superseded(claim, record);
        return;
    }
    claim->revision = 0;
    if (claim->state == CLAIM_HELD) {
        run_claim_move(claim, CLAIM_LOST);
        claim_take_again(claim);
    }
}

/* A rival that disagrees has ended without asking when it saw an older record. */
static void claim_tell_rivals(struct run_claim *claim)
{
    if (claim->state != CLAIM_HELD)
        return;
    for (size_t i = 0; i < RUN_CLAIM_RIVALS; i++) {
        struct claim_rival *rival = &claim->rivals[i];

        if (rival->is_told || rival->revision <= claim->revision)
            continue;
        rival->is_told = true;
        claim_tell_refused(claim, &rival->record);
    }
    if (claim->is_asked)
        claim_answer(claim);
}

/* The newest RUN_CLAIM_RIVALS are kept. A record is known by launcher and revision, since the watch
 * and a range may both show it. */
static void claim_add_rival(struct run_claim *claim, const struct run_claim_record *record,
                            uint64_t revision)
{
    bool is_known = false;

    for (size_t i = 0; i < RUN_CLAIM_RIVALS; i++)
        is_known = is_known || (claim->rivals[i].revision == revision &&
                                claim->rivals[i].record.launcher == record->launcher);
    if (!is_known)
        claim->rivals[claim->rival_count++ % RUN_CLAIM_RIVALS] =
            (struct claim_rival){.record = *record, .revision = revision};
    claim_tell_rivals(claim);
}

void run_claim_hold(struct run_claim *claim)
{
    run_claim_move(claim, CLAIM_HELD);
    claim_tell_rivals(claim);
}

/* NULL: a stranger's rank, and no room. */
static struct claim_place *claim_find_place(struct run_claim *claim, uint64_t rank)
{
    struct claim_place *beyond = claim->places + claim->run->settings.nodes_max;
    struct claim_place *free_place = NULL;

    if (rank < claim->run->settings.nodes_max)
        return &claim->places[rank];
    for (size_t i = 0; i < RUN_CLAIM_BEYOND; i++) {
        if (beyond[i].revision != 0 && beyond[i].rank == rank)
            return &beyond[i];
        if (beyond[i].revision == 0)
            free_place = &beyond[i];
    }
    return free_place;
}

/* record NULL: the key is gone. */
static void claim_show_place(struct run_claim *claim, uint64_t rank,
                             const struct run_claim_record *record, uint64_t revision)
{
    struct claim_place *place = claim_find_place(claim, rank);
    char mine[24], theirs[24];

    if (rank == claim->own.node_rank)
        claim_show_own(claim, record, revision);
    if (place == NULL)
        return;
    if (record == NULL) {
        memset(place, 0, sizeof(*place));
        return;
    }
    /* A launcher that lives answers a question by putting its record again (claim_answer). */
    if (place->revision != 0 && revision > place->revision &&
        place->record.launcher == record->launcher)
        place->has_answered = true;
    else if (place->revision == 0 || place->record.launcher != record->launcher)
        place->has_answered = place->is_wait_told = false;
    place->record = *record;
    place->revision = revision;
    place->rank = rank;
    if (!run_claim_is_own(claim, record) &&
        run_claim_record_difference(&claim->own, record, mine, theirs) != NULL)
        claim_add_rival(claim, record, revision);
}

/* "<node rank>" or "asks/<launcher>" after the prefix. False: a record could not be read for want
 * of memory. */
static bool claim_show_key(struct run_claim *claim, const struct muster_registry_kv *kv,
                           bool is_delete)
{
    enum muster_rc rc = MUSTER_OK;
    size_t prefix = strlen(claim->prefix);
    struct run_claim_record record;
    char name[32];
    bool is_record;
    char *end;
    uint64_t rank;

    if (kv->key.size <= prefix || kv->key.size - prefix >= sizeof(name))
        return true;
    memcpy(name, (const char *)kv->key.data + prefix, kv->key.size - prefix);
    name[kv->key.size - prefix] = '\0';
    if (!is_delete)
        rc = run_claim_record_parse(kv->value.data, kv->value.size, &record);
    if (rc == MUSTER_RESOURCE_EXHAUSTED)
        return false;
    is_record = !is_delete && rc == MUSTER_OK;
    rank = strtoull(name, &end, 10);
    if (end != name && *end == '\0') {
        if (is_delete || is_record)
            claim_show_place(claim, rank, is_record ? &record : NULL, kv->mod_revision);
    } else if (is_record && !run_claim_is_own(claim, &record)) {
        claim->is_asked = true;
        claim_add_rival(claim, &record, UINT64_MAX);
    }
    return true;
}

/* --- the watch */

static void claim_try_again(struct run_claim *claim)
{
    if (claim->state == CLAIM_OVER)
        return;
    muster_timer_start(&claim->again, claim->run->env->loop,
                       run_claim_after(claim, RUN_CLAIM_RETRY_NS));
}

/* The view of the places has a gap: close the watch, and read all of them again. */
static void claim_read_again(struct run_claim *claim)
{
    if (claim->is_watching)
        muster_registry_watch_stop(&claim->watch);
    claim->is_watching = false;
    claim_try_again(claim);
}

/* The registry delivers changes in the order of their revisions. */
static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct run_claim *claim = watch->data;

    for (size_t i = 0; i < count && claim->state != CLAIM_OVER; i++) {
        claim->seen_revision = changes[i].kv.mod_revision;
        if (!claim_show_key(claim, &changes[i].kv, changes[i].is_delete)) {
            claim_read_again(claim);
            return;
        }
    }
}

/* The registry has forgotten, or lost, what was to be shown: everything is read again. */
static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct run_claim *claim = watch->data;

    (void)rc;
    claim->is_watching = false;
    claim_try_again(claim);
}

/* All places are as in kvs, so those that are not in it are gone. An own key that is missing counts
 * as a change of it, since the deletion may have come while nothing was watched. */
void run_claim_show_all(struct run_claim *claim, const struct muster_registry_kv *kvs, size_t count)
{
    bool is_own_there = false;

    for (size_t i = 0; i < run_claim_place_count(claim); i++)
        claim->places[i].revision = 0;
    for (size_t i = 0; i < count && claim->state != CLAIM_OVER; i++) {
        is_own_there = is_own_there || (kvs[i].key.size == strlen(claim->key) &&
                                        memcmp(kvs[i].key.data, claim->key, kvs[i].key.size) == 0);
        if (!claim_show_key(claim, &kvs[i], false)) {
            claim_read_again(claim);
            return;
        }
    }
    if (!is_own_there)
        claim_show_own(claim, NULL, 0);
}

static void on_looked(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_claim *claim = op->data;

    claim->is_busy = false;
    claim->rc = rc;
    if (rc != MUSTER_OK || claim->state == CLAIM_OVER) {
        claim_try_again(claim);
        return;
    }
    claim->watch.data = claim;
    claim->is_watching =
        muster_registry_watch_start(&claim->watch, run_claim_client(claim),
                                    text_bytes(claim->prefix), MUSTER_REGISTRY_PREFIX,
                                    op->revision + 1, on_changes, on_watch_end) == MUSTER_OK;
    claim->seen_revision = op->revision;
    run_claim_show_all(claim, op->kvs, op->kv_count);
}

/* The range and the watch join without a gap: the watch begins at the revision after that of the
 * range. */
void run_claim_look(struct run_claim *claim)
{
    struct muster_registry_range range = {.key = text_bytes(claim->prefix),
                                          .reach = MUSTER_REGISTRY_PREFIX};

    if (claim->is_watching || claim->is_busy || claim->state == CLAIM_OVER)
        return;
    claim->rc = muster_registry_range_start(&claim->op, run_claim_client(claim), &range,
                                            run_claim_soon(claim), on_looked);
    claim->is_busy = claim->rc == MUSTER_OK;
}

void run_claim_on_again(struct muster_timer *timer)
{
    struct run_claim *claim = timer->data;

    run_claim_look(claim);
    if (claim->state == CLAIM_LOST)
        claim_take_again(claim);
}

/* --- the lease */

/* The lease has run out: the registry has deleted the own record, or will do so. Workers go on; the
 * members judge each other by their own links. */
static void on_lease_lost(struct muster_registry_lease *lease)
{
    struct run_claim *claim = lease->data;

    claim->is_leased = false;
    if (claim->state != CLAIM_HELD)
        return;
    run_claim_move(claim, CLAIM_LOST);
    claim_take_again(claim);
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct run_claim *claim = lease->data;

    claim->is_leasing = false;
    claim->is_leased = rc == MUSTER_OK;
    claim->rc = rc;
    if (claim->state != CLAIM_LOST)
        return;
    if (rc == MUSTER_OK)
        claim_take_again(claim);
    else
        claim_try_again(claim);
}

void run_claim_lease(struct run_claim *claim)
{
    if (claim->is_leased || claim->is_leasing)
        return;
    claim->rc =
        muster_registry_lease_start(&claim->lease, run_claim_client(claim), RUN_CLAIM_LEASE_S,
                                    run_claim_soon(claim), on_granted, on_lease_lost);
    claim->is_leasing = claim->rc == MUSTER_OK;
}

/* --- a place that was lost */

static void on_taken_again(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_claim *claim = op->data;
    enum muster_rc holder = MUSTER_INVALID_ARGUMENT; /* nobody, or no record */
    struct run_claim_record record;

    claim->is_putting = false;
    if (claim->state != CLAIM_LOST)
        return;
    if (rc == MUSTER_NOT_FOUND && claim->is_leased) { /* the lease is gone as well */
        muster_registry_lease_stop(&claim->lease);
        claim->is_leased = false;
    }
    if (rc == MUSTER_OK && op->is_succeeded) {
        claim->revision = op->revision;
        run_claim_move(claim, CLAIM_HELD);
        return;
    }
    if (rc == MUSTER_OK && op->kv_count > 0)
        holder = run_claim_record_parse(op->kvs[0].value.data, op->kvs[0].value.size, &record);
    if (holder == MUSTER_OK && !run_claim_is_own(claim, &record) &&
        !run_claim_holder_is_dead(claim, &record)) {
        claim_superseded(claim, &record);
        return;
    }
    /* A record that memory did not suffice to read may be of a living launcher: keep the revision,
     * so that the next swap fails against it instead of taking its place. */
    if (rc == MUSTER_OK && holder != MUSTER_RESOURCE_EXHAUSTED)
        claim->revision = op->kv_count > 0 ? op->kvs[0].mod_revision : 0;
    claim_try_again(claim);
}

/* The swap compares with the revision of the record that stood there last, or with 0 for none: it
 * fails if another launcher was faster. */
static void claim_take_again(struct run_claim *claim)
{
    run_claim_lease(claim);
    if (!claim->is_leased || claim->is_putting)
        return;
    claim->is_putting =
        muster_registry_swap_start(&claim->put, run_claim_client(claim), text_bytes(claim->key),
                                   claim->revision, text_bytes(claim->value), claim->lease.id,
                                   run_claim_soon(claim), on_taken_again) == MUSTER_OK;
    if (!claim->is_putting)
        claim_try_again(claim);
}

void run_claim_later(struct run_claim *claim)
{
    run_claim_move(claim, CLAIM_LOST);
    claim_try_again(claim);
}
