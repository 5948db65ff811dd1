/* Rows are kept by source and summed only when the round closes, so that the order in which they came
 * does not show in the sum. */
#include "params/clock/round.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 16u

enum source_state {
    SOURCE_LIVE,
    SOURCE_DEAD, /* its outcome is not decided yet */
    SOURCE_DECIDED, /* also of one that has left: it goes when the rounds that it counts in are closed */
};

struct muster_params_round_source {
    struct muster_list node;
    struct muster_incarnation id;
    enum source_state state;
    uint64_t ticked;                 /* rounds before this one are complete */
    uint64_t first;                  /* the round that it takes part from */
    uint64_t missed_from, missed_to; /* the last rounds that closed without it */
    struct muster_list parts;        /* rounds rise */
};

/* A source's part of a round. */
struct part {
    struct muster_list node;
    uint64_t round;
    double weight; /* valid when the round is ticked */
    uint32_t count, room;
    uint64_t *keys; /* as they came, also twice */
    float *values;
};

/* From which states a state is reached. */
#define FROM(state) (1u << SOURCE_##state)
static const uint8_t moves[] = {
    [SOURCE_DEAD] = FROM(LIVE),
    [SOURCE_DECIDED] = FROM(LIVE) | FROM(DEAD),
};

static void source_move(struct muster_params_round_source *source, enum source_state state)
{
    MUSTER_ASSERT((moves[state] & 1u << source->state) != 0);
    source->state = state;
}

/* --- Parts --- */

static void part_free(struct muster_params_rounds *rounds, struct part *part)
{
    muster_list_remove(&part->node);
    muster_mem_free(rounds->mem, part->keys);
    muster_mem_free(rounds->mem, part->values);
    muster_mem_free(rounds->mem, part);
}

static struct part *part_find(struct muster_params_round_source *source, uint64_t round)
{
    MUSTER_LIST_EACH (&source->parts, part, struct part, node) {
        if (part->round == round)
            return part;
    }
    return NULL;
}

static struct part *part_get(struct muster_params_rounds *rounds,
                             struct muster_params_round_source *source, uint64_t round)
{
    struct part *part = part_find(source, round);

    if (part != NULL)
        return part;
    part = muster_mem_alloc_zero(rounds->mem, 1, sizeof(*part));
    if (part == NULL)
        return NULL;
    part->round = round;
    MUSTER_LIST_EACH (&source->parts, later, struct part, node) {
        if (later->round > round) {
            muster_list_append(&later->node, &part->node); /* before it */
            return part;
        }
    }
    muster_list_append(&source->parts, &part->node);
    return part;
}

static enum muster_rc part_reserve(struct muster_params_rounds *rounds, struct part *part,
                                   uint32_t count)
{
    uint32_t room = part->room != 0 ? part->room : ROOM_MIN;
    uint64_t *keys;
    float *values;

    if (count > UINT32_MAX / 2 - part->count)
        return MUSTER_RESOURCE_EXHAUSTED;
    while (room < part->count + count)
        room *= 2;
    if (room == part->room)
        return MUSTER_OK;
    keys = muster_mem_realloc(rounds->mem, part->keys, room * sizeof(*keys));
    if (keys == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    part->keys = keys;
    values = muster_mem_realloc(rounds->mem, part->values,
                                (size_t)room * rounds->options.row_elements * sizeof(*values));
    if (values == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    part->values = values;
    part->room = room;
    return MUSTER_OK;
}

static enum muster_rc part_add(struct muster_params_rounds *rounds, struct part *part,
                               const uint64_t *keys, const float *values, uint32_t count)
{
    size_t width = rounds->options.row_elements;
    enum muster_rc rc = part_reserve(rounds, part, count);

    if (rc != MUSTER_OK || count == 0)
        return rc;
    memcpy(part->keys + part->count, keys, count * sizeof(*keys));
    memcpy(part->values + part->count * width, values, count * width * sizeof(*values));
    part->count += count;
    return MUSTER_OK;
}

static void parts_drop(struct muster_params_rounds *rounds,
                       struct muster_params_round_source *source, uint64_t from)
{
    MUSTER_LIST_EACH_SAFE (&source->parts, part, struct part, node) {
        if (part->round >= from)
            part_free(rounds, part);
    }
}

/* --- Sources --- */

static struct muster_params_round_source *source_find(const struct muster_params_rounds *rounds,
                                                      const struct muster_incarnation *id)
{
    MUSTER_LIST_EACH (&rounds->sources, source, struct muster_params_round_source, node) {
        if (muster_incarnation_is_equal(&source->id, id))
            return source;
    }
    return NULL;
}

static void source_free(struct muster_params_rounds *rounds,
                        struct muster_params_round_source *source)
{
    parts_drop(rounds, source, 0);
    muster_list_remove(&source->node);
    muster_mem_free(rounds->mem, source);
}

/* Goes when no round is left that it counts in. */
static void source_review(struct muster_params_rounds *rounds,
                          struct muster_params_round_source *source)
{
    if (source->state == SOURCE_DECIDED && source->ticked <= rounds->open)
        source_free(rounds, source);
}

void muster_params_rounds_init(struct muster_params_rounds *rounds, struct muster_mem *mem,
                               const struct muster_params_round_options *options, uint64_t open)
{
    MUSTER_ASSERT(options->row_elements > 0);
    *rounds = (struct muster_params_rounds){.mem = mem, .options = *options, .open = open};
    muster_list_init(&rounds->sources);
}

void muster_params_rounds_fini(struct muster_params_rounds *rounds)
{
    MUSTER_LIST_EACH_SAFE (&rounds->sources, source, struct muster_params_round_source, node)
        source_free(rounds, source);
}

/* --- Counts --- */

struct tally {
    uint32_t waited_for; /* live ones that have not ticked the open round */
    uint32_t ticked;     /* that count in it */
    uint32_t undecided;
};

static bool source_counts(const struct muster_params_rounds *rounds,
                          const struct muster_params_round_source *source)
{
    return source->ticked > rounds->open && source->first <= rounds->open;
}

static struct tally sources_tally(const struct muster_params_rounds *rounds)
{
    struct tally tally = {0};

    MUSTER_LIST_EACH (&rounds->sources, source, struct muster_params_round_source, node) {
        if (source->first > rounds->open)
            continue;
        if (source->state == SOURCE_DEAD)
            tally.undecided++;
        else if (source_counts(rounds, source))
            tally.ticked++;
        else if (source->state == SOURCE_LIVE)
            tally.waited_for++;
    }
    return tally;
}

/* The grace begins with the tick that makes the quorum, and again if a death has taken it away. */
static void quorum_review(struct muster_params_rounds *rounds, uint64_t now_ns)
{
    struct tally tally = sources_tally(rounds);
    bool has_quorum = rounds->options.quorum > 0 && tally.ticked >= rounds->options.quorum;

    if (has_quorum && !rounds->has_quorum)
        rounds->quorum_ns = now_ns;
    rounds->has_quorum = has_quorum;
}

enum muster_params_round_state muster_params_rounds_state(const struct muster_params_rounds *rounds,
                                                          uint64_t now_ns,
                                                          uint64_t *ret_grace_end_ns)
{
    struct tally tally = sources_tally(rounds);
    bool is_complete = tally.ticked > 0 && tally.waited_for == 0;
    uint64_t end_ns;

    if (is_complete && tally.undecided == 0)
        return MUSTER_PARAMS_ROUND_DUE;
    if (is_complete)
        return MUSTER_PARAMS_ROUND_UNDECIDED;
    if (!rounds->has_quorum)
        return MUSTER_PARAMS_ROUND_OPEN;
    end_ns = rounds->quorum_ns > UINT64_MAX - rounds->options.grace_ns
                 ? UINT64_MAX
                 : rounds->quorum_ns + rounds->options.grace_ns;
    if (now_ns >= end_ns)
        return tally.undecided == 0 ? MUSTER_PARAMS_ROUND_DUE : MUSTER_PARAMS_ROUND_UNDECIDED;
    if (ret_grace_end_ns != NULL)
        *ret_grace_end_ns = end_ns;
    return MUSTER_PARAMS_ROUND_GRACE;
}

/* --- Events --- */

enum muster_rc muster_params_rounds_join(struct muster_params_rounds *rounds,
                                         const struct muster_incarnation *id, uint64_t round)
{
    struct muster_params_round_source *source;

    if (source_find(rounds, id) != NULL)
        return MUSTER_ALREADY_EXISTS;
    source = muster_mem_alloc_zero(rounds->mem, 1, sizeof(*source));
    if (source == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    source->id = *id;
    source->first = round > rounds->open ? round : rounds->open;
    source->ticked = source->first;
    muster_list_init(&source->parts);
    MUSTER_LIST_EACH (&rounds->sources, later, struct muster_params_round_source, node) {
        if (memcmp(later->id.bytes, id->bytes, sizeof(id->bytes)) > 0) {
            muster_list_append(&later->node, &source->node); /* before it */
            return MUSTER_OK;
        }
    }
    muster_list_append(&rounds->sources, &source->node);
    return MUSTER_OK;
}

/* The round that an event of the source is for, if it may have any. */
static enum muster_rc event_check(const struct muster_params_rounds *rounds,
                                  const struct muster_incarnation *id, uint64_t round,
                                  struct muster_params_round_source **ret_source,
                                  struct muster_error *ret_error)
{
    struct muster_params_round_source *source = source_find(rounds, id);
    char text[MUSTER_INCARNATION_TEXT_BYTES];

    muster_incarnation_format(id, text);
    if (source == NULL)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "the source %s takes part in no rounds", text);
    if (source->state != SOURCE_LIVE)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the source %s has ended: its rounds are decided without it", text);
    if (round > rounds->open && round - rounds->open > rounds->options.ahead_max)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "round %" PRIu64 " is more than %u rounds ahead of %" PRIu64, round,
                                rounds->options.ahead_max, rounds->open);
    *ret_source = source;
    return MUSTER_OK;
}

static enum muster_rc round_refuse(uint64_t round, struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE, "round %" PRIu64 " is closed", round);
}

enum muster_rc muster_params_rounds_push(struct muster_params_rounds *rounds,
                                         const struct muster_incarnation *id, uint64_t round,
                                         const uint64_t *keys, const float *values, uint32_t count,
                                         struct muster_error *ret_error)
{
    struct muster_params_round_source *source;
    enum muster_rc rc = event_check(rounds, id, round, &source, ret_error);
    struct part *part;

    if (rc != MUSTER_OK)
        return rc;
    if (round < rounds->open && !rounds->options.is_late_kept)
        return round_refuse(round, ret_error);
    if (round < rounds->open)
        round = source->ticked;
    if (round < source->ticked)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the source has completed round %" PRIu64, round);
    part = part_get(rounds, source, round);
    if (part == NULL || part_add(rounds, part, keys, values, count) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a round");
    return MUSTER_OK;
}

enum muster_rc muster_params_rounds_tick(struct muster_params_rounds *rounds,
                                         const struct muster_incarnation *id, uint64_t round,
                                         double weight, uint64_t now_ns,
                                         struct muster_error *ret_error)
{
    struct muster_params_round_source *source;
    enum muster_rc rc = event_check(rounds, id, round, &source, ret_error);
    struct part *part;

    if (rc != MUSTER_OK)
        return rc;
    if (!isfinite(weight) || weight < 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the weight of a source must be finite and not negative");
    if (round >= source->missed_from && round < source->missed_to && !rounds->options.is_late_kept)
        return round_refuse(round, ret_error);
    if (round < source->ticked)
        return MUSTER_OK;
    if (round > source->ticked)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a source must complete round %" PRIu64 " first, got %" PRIu64,
                                source->ticked, round);
    part = part_get(rounds, source, round);
    if (part == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a round");
    part->weight = weight;
    source->ticked = round + 1;
    quorum_review(rounds, now_ns);
    return MUSTER_OK;
}

void muster_params_rounds_leave(struct muster_params_rounds *rounds,
                                const struct muster_incarnation *id)
{
    struct muster_params_round_source *source = source_find(rounds, id);

    if (source == NULL || source->state != SOURCE_LIVE)
        return;
    source_move(source, SOURCE_DECIDED);
    parts_drop(rounds, source, source->ticked);
    source_review(rounds, source);
}

void muster_params_rounds_die(struct muster_params_rounds *rounds,
                              const struct muster_incarnation *id)
{
    struct muster_params_round_source *source = source_find(rounds, id);

    if (source == NULL || source->state != SOURCE_LIVE)
        return;
    source_move(source, SOURCE_DEAD);
    if (sources_tally(rounds).ticked < rounds->options.quorum)
        rounds->has_quorum = false;
}

uint64_t muster_params_rounds_ticked(const struct muster_params_rounds *rounds,
                                     const struct muster_incarnation *id)
{
    const struct muster_params_round_source *source = source_find(rounds, id);

    return source != NULL && source->state == SOURCE_DEAD ? source->ticked : UINT64_MAX;
}

void muster_params_rounds_decide(struct muster_params_rounds *rounds,
                                 const struct muster_incarnation *id, uint64_t counts_before,
                                 uint64_t now_ns)
{
    struct muster_params_round_source *source = source_find(rounds, id);

    MUSTER_ASSERT(source != NULL && counts_before <= source->ticked);
    source_move(source, SOURCE_DECIDED);
    source->ticked = counts_before;
    parts_drop(rounds, source, counts_before);
    source_review(rounds, source);
    quorum_review(rounds, now_ns);
}

/* --- The close --- */

/* A row of a part; in the order of the sources, and for each as they came. */
struct entry {
    uint64_t key;
    size_t order;
    double weight;
    const float *values;
};

static int entry_compare(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;

    if (left->key != right->key)
        return left->key < right->key ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

static size_t rows_count(const struct muster_params_rounds *rounds)
{
    size_t count = 0;

    MUSTER_LIST_EACH (&rounds->sources, source, struct muster_params_round_source, node) {
        const struct part *part =
            source_counts(rounds, source) ? part_find(source, rounds->open) : NULL;

        count += part != NULL ? part->count : 0;
    }
    return count;
}

static void entries_fill(const struct muster_params_rounds *rounds, struct entry *entries,
                         struct muster_params_round_sum *sum)
{
    size_t count = 0;

    MUSTER_LIST_EACH (&rounds->sources, source, struct muster_params_round_source, node) {
        const struct part *part;

        if (!source_counts(rounds, source))
            continue;
        part = part_find(source, rounds->open);
        MUSTER_ASSERT(part != NULL); /* its tick has made one */
        sum->source_count++;
        sum->weight += part->weight;
        for (uint32_t i = 0; i < part->count; i++, count++)
            entries[count] =
                (struct entry){.key = part->keys[i],
                               .order = count,
                               .weight = part->weight,
                               .values = part->values + (size_t)i * rounds->options.row_elements};
    }
}

static void entries_fold(const struct entry *entries, size_t count, uint32_t width,
                         struct muster_params_round_sum *sum)
{
    for (size_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count && entries[end].key == entries[begin].key;)
            end++;
        for (uint32_t element = 0; element < width; element++) {
            double total = 0;

            for (size_t i = begin; i < end; i++)
                total += entries[i].weight * (double)entries[i].values[element];
            sum->values[(size_t)sum->row_count * width + element] = (float)total;
        }
        sum->keys[sum->row_count++] = entries[begin].key;
    }
}

static enum muster_rc round_sum(const struct muster_params_rounds *rounds,
                                struct muster_params_round_sum *ret_sum)
{
    size_t count = rows_count(rounds), width = rounds->options.row_elements;
    struct muster_params_round_sum sum = {.round = rounds->open};
    struct entry *entries = muster_mem_alloc_zero(rounds->mem, count + 1, sizeof(*entries));

    sum.keys = muster_mem_alloc_zero(rounds->mem, count + 1, sizeof(*sum.keys));
    sum.values = muster_mem_alloc_zero(rounds->mem, count + 1, width * sizeof(*sum.values));
    if (entries == NULL || sum.keys == NULL || sum.values == NULL) {
        muster_mem_free(rounds->mem, entries);
        muster_params_round_sum_fini(&sum, rounds->mem);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    entries_fill(rounds, entries, &sum);
    qsort(entries, count, sizeof(*entries), entry_compare);
    entries_fold(entries, count, rounds->options.row_elements, &sum);
    muster_mem_free(rounds->mem, entries);
    *ret_sum = sum;
    return MUSTER_OK;
}

static bool is_late(const struct muster_params_rounds *rounds,
                    const struct muster_params_round_source *source)
{
    return source->ticked <= rounds->open && source->first <= rounds->open;
}

/* Room in the parts that are late for what their sources have pushed for the next round. */
static enum muster_rc late_reserve(struct muster_params_rounds *rounds)
{
    MUSTER_LIST_EACH (&rounds->sources, source, struct muster_params_round_source, node) {
        struct part *late = is_late(rounds, source) ? part_find(source, rounds->open) : NULL;
        struct part *next = late != NULL ? part_find(source, rounds->open + 1) : NULL;

        if (next != NULL && part_reserve(rounds, late, next->count) != MUSTER_OK)
            return MUSTER_RESOURCE_EXHAUSTED;
    }
    return MUSTER_OK;
}

/* Late rows come before those that were pushed for the next round. */
static void late_move(struct muster_params_rounds *rounds,
                      struct muster_params_round_source *source)
{
    struct part *late = part_find(source, rounds->open);
    struct part *next = part_find(source, rounds->open + 1);
    enum muster_rc rc;

    if (late == NULL)
        return;
    if (next != NULL) {
        rc = part_add(rounds, late, next->keys, next->values, next->count);
        MUSTER_ASSERT(rc == MUSTER_OK); /* late_reserve has made room */
        part_free(rounds, next);
    }
    late->round = rounds->open + 1;
}

static void source_close(struct muster_params_rounds *rounds,
                         struct muster_params_round_source *source)
{
    struct part *part;

    if (is_late(rounds, source)) {
        if (rounds->options.is_late_kept)
            late_move(rounds, source);
        if (source->missed_to != rounds->open)
            source->missed_from = rounds->open;
        source->missed_to = rounds->open + 1;
        source->ticked = rounds->open + 1;
    }
    part = part_find(source, rounds->open);
    if (part != NULL)
        part_free(rounds, part);
}

enum muster_rc muster_params_rounds_close(struct muster_params_rounds *rounds, uint64_t now_ns,
                                          struct muster_params_round_sum *ret_sum)
{
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(muster_params_rounds_state(rounds, now_ns, NULL) == MUSTER_PARAMS_ROUND_DUE);
    if (rounds->options.is_late_kept)
        rc = late_reserve(rounds);
    if (rc == MUSTER_OK)
        rc = round_sum(rounds, ret_sum);
    if (rc != MUSTER_OK)
        return rc;
    MUSTER_LIST_EACH (&rounds->sources, source, struct muster_params_round_source, node)
        source_close(rounds, source);
    rounds->open++;
    rounds->has_quorum = false;
    MUSTER_LIST_EACH_SAFE (&rounds->sources, source, struct muster_params_round_source, node)
        source_review(rounds, source);
    quorum_review(rounds, now_ns);
    return MUSTER_OK;
}

void muster_params_round_sum_fini(struct muster_params_round_sum *sum, struct muster_mem *mem)
{
    muster_mem_free(mem, sum->keys);
    muster_mem_free(mem, sum->values);
    *sum = (struct muster_params_round_sum){0};
}
