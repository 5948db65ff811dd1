/* A decision as data: which sources count in a round, and with which of their pushes. */
#include <stdlib.h>
#include <string.h>

#include "params/server/state/round_internal.h"

size_t muster_params_decision_bytes(uint32_t count, bool has_origins)
{
    return sizeof(struct muster_params_decision) +
           count * (sizeof(struct muster_params_round_source) +
                    (has_origins ? sizeof(struct muster_params_round_origin) : 0));
}

const struct muster_params_round_origin *muster_params_decision_origins(
    const struct muster_params_decision *decision)
{
    return decision->has_origins == 0 ? NULL : (const void *)&decision->sources[decision->count];
}

struct muster_params_decision *muster_params_decision_new(struct muster_params_server *server,
                                                          const struct muster_params_round *round)
{
    struct muster_params_decision *decision =
        muster_mem_alloc(server->env->mem,
                         muster_params_decision_bytes(round->source_count, round->origins != NULL));

    if (decision == NULL)
        return NULL;
    *decision = (struct muster_params_decision){
        .round = round->round, .count = round->source_count, .has_origins = round->origins != NULL};
    if (decision->count > 0)
        memcpy(decision->sources, round->sources, decision->count * sizeof(round->sources[0]));
    if (decision->count > 0 && round->origins != NULL)
        memcpy(&decision->sources[decision->count], round->origins,
               decision->count * sizeof(round->origins[0]));
    return decision;
}

uint32_t muster_params_decision_label(const struct muster_params_decision *decision,
                                      uint32_t source)
{
    const struct muster_params_round_origin *origins = muster_params_decision_origins(decision);

    if (origins == NULL)
        return (uint32_t)(decision->round + 1);
    return origins[source].counts != 0 ? origins[source].from + 1 : 0;
}

/* The first round whose pushes of the source are in no round up to this one. */
static uint32_t source_next(const struct muster_params_decision *decision, uint32_t source)
{
    const struct muster_params_round_origin *origin =
        &muster_params_decision_origins(decision)[source];

    return origin->counts != 0 ? (uint32_t)(decision->round + 1) : origin->from;
}

const struct muster_params_decision *muster_params_decision_at(
    const struct muster_params_rounds *rounds, uint64_t round)
{
    const struct muster_params_decision *decision =
        rounds->decisions[round % MUSTER_PARAMS_DECISIONS_KEPT];

    return decision != NULL && decision->round == round ? decision : NULL;
}

/* --- A new one --- */

static int source_compare(const void *one, const void *other)
{
    const struct muster_params_round_source *a = one, *b = other;

    return memcmp(a->id.bytes, b->id.bytes, sizeof(a->id.bytes));
}

static struct muster_params_decision *decision_alloc(struct muster_params_rounds *rounds,
                                                     uint32_t count)
{
    bool is_carried = muster_params_rounds_are_carried(rounds);
    struct muster_params_decision *decision =
        muster_mem_alloc(rounds->server->env->mem, muster_params_decision_bytes(count, is_carried));

    if (decision != NULL)
        *decision =
            (struct muster_params_decision){.round = rounds->open, .has_origins = is_carried};
    return decision;
}

/* The sources that have completed the open round. */
static void counted_list(const struct muster_params_rounds *rounds,
                         struct muster_params_decision *decision, uint32_t count)
{
    const struct muster_params_region *region = rounds->server->region;

    for (uint64_t slot = 0; slot < region->head->source_count && decision->count < count; slot++) {
        const struct muster_params_source *source = muster_params_source_at(region, slot);

        if (source->rounds > rounds->open)
            decision->sources[decision->count++] = (struct muster_params_round_source){
                .id = source->id, .weight = source->round_weight};
    }
    qsort(decision->sources, decision->count, sizeof(decision->sources[0]), source_compare);
}

/* The newest decision that this server knows; NULL: none. */
static const struct muster_params_decision *decision_newest(
    const struct muster_params_rounds *rounds)
{
    return rounds->open > 0 ? muster_params_decision_at(rounds, rounds->open - 1) : NULL;
}

static const struct muster_params_round_source *source_find(
    const struct muster_params_decision *decision, const struct muster_incarnation *id)
{
    const struct muster_params_round_source key = {.id = *id};

    return decision == NULL || decision->count == 0
               ? NULL
               : bsearch(&key, decision->sources, decision->count, sizeof(key), source_compare);
}

/* The sources that have counted before stay listed, so that a server which hears of this round only knows what of
 * each has not counted yet. NULL: no memory. */
static struct muster_params_decision *decision_unite(struct muster_params_rounds *rounds,
                                                     const struct muster_params_decision *before,
                                                     const struct muster_params_decision *counted)
{
    uint32_t known = before != NULL ? before->count : 0, more = 0, room, at = 0;
    struct muster_params_round_origin *origins;
    struct muster_params_decision *whole;

    for (uint32_t i = 0; i < counted->count; i++)
        more += source_find(before, &counted->sources[i].id) == NULL;
    room = MUSTER_PARAMS_ROUND_SOURCES_MAX - known;
    more = more < room ? more : room;
    whole = decision_alloc(rounds, known + more);
    if (whole == NULL)
        return NULL;
    whole->count = known + more;
    for (uint32_t i = 0; i < known; i++)
        whole->sources[at++] = before->sources[i];
    for (uint32_t i = 0; i < counted->count && at < whole->count; i++)
        if (source_find(before, &counted->sources[i].id) == NULL)
            whole->sources[at++] = counted->sources[i];
    qsort(whole->sources, whole->count, sizeof(whole->sources[0]), source_compare);
    origins = (void *)&whole->sources[whole->count];
    for (uint32_t i = 0; i < whole->count; i++) {
        struct muster_params_round_source *source = &whole->sources[i];
        const struct muster_params_round_source *had = source_find(before, &source->id);
        const struct muster_params_round_source *now = source_find(counted, &source->id);

        origins[i] = (struct muster_params_round_origin){
            .from = had != NULL ? source_next(before, (uint32_t)(had - before->sources)) : 0,
            .counts = now != NULL};
        source->weight = now != NULL ? now->weight : 0;
    }
    return whole;
}

struct muster_params_decision *muster_params_decision_make(struct muster_params_rounds *rounds,
                                                           uint32_t count)
{
    struct muster_params_decision *decision, *whole;

    if (!muster_params_rounds_are_carried(rounds) && count > MUSTER_PARAMS_ROUND_SOURCES_MAX)
        count = MUSTER_PARAMS_ROUND_SOURCES_MAX; /* calls of gRPC may bring more */
    decision = decision_alloc(rounds, count);
    if (decision == NULL)
        return NULL;
    counted_list(rounds, decision, count);
    if (decision->has_origins == 0)
        return decision;
    whole = decision_unite(rounds, decision_newest(rounds), decision);
    muster_mem_free(rounds->server->env->mem, decision);
    return whole;
}

/* --- Pushes --- */

enum muster_rc muster_params_round_label(const struct muster_params_rounds *rounds,
                                         const struct muster_incarnation *id, uint32_t *ret_label,
                                         struct muster_error *ret_error)
{
    const struct muster_params_decision *newest = decision_newest(rounds);
    const struct muster_params_round_source *source = source_find(newest, id);

    if (source == NULL && newest != NULL && newest->count == MUSTER_PARAMS_ROUND_SOURCES_MAX)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "table %s has had %u sources, the most that count in its rounds",
                                rounds->table->name, newest->count);
    *ret_label = source == NULL ? 1 : source_next(newest, (uint32_t)(source - newest->sources)) + 1;
    return MUSTER_OK;
}
