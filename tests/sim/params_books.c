/* The books of clients: a pull shows at least what was answered before it, at most what was begun. */
#include "tests/sim/params_cast.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/params_cuts.h"
#include "tests/sim/params_turnover.h"

static int vectors_compare(const uint64_t *a, const uint64_t *b, uint32_t count,
                           bool *ret_is_ordered)
{
    bool is_below = false, is_above = false;

    for (uint32_t i = 0; i < count; i++) {
        is_below |= a[i] < b[i];
        is_above |= a[i] > b[i];
    }
    *ret_is_ordered = !(is_below && is_above);
    return is_below ? -1 : is_above;
}

/* The chain is searched from its newest end, where almost all answers belong. */
static void chain_insert(struct params_cast *cast, uint32_t row, const uint64_t *vector)
{
    struct params_row_book *book = &cast->rows[row];
    size_t at = book->chain_count;

    for (; at > 0; at--) {
        bool is_ordered;
        int order = vectors_compare(vector, book->chain[at - 1], cast->source_count, &is_ordered);

        if (!is_ordered)
            sim_fail(cast->world, "row %" PRIu32 ": two pulls disagree about the order of pushes",
                     row);
        if (!is_ordered || order == 0)
            return;
        if (order > 0)
            break;
    }
    if (book->chain_count == book->chain_room) {
        book->chain_room = book->chain_room * 2 + 64;
        book->chain = realloc(book->chain, book->chain_room * sizeof(*book->chain));
        MUSTER_ASSERT(book->chain != NULL);
    }
    memmove(book->chain + at + 1, book->chain + at,
            (book->chain_count - at) * sizeof(*book->chain));
    memcpy(book->chain[at], vector, sizeof(*book->chain));
    book->chain_count++;
}

/* Its own pushes that were started before it lie before it, whether they are answered or not. */
void params_books_expect(struct params_slot *slot, uint32_t place)
{
    const struct params_life *life = slot->client->life;
    struct params_cast *cast = life->cast;
    uint32_t row = slot->rows[place], own = life->source->element;
    const struct params_row_book *book = &cast->rows[row];
    uint64_t *least = slot->least[place];

    for (uint32_t i = 0; i < cast->source_count; i++)
        least[i] = book->answered[i] > book->seen[i] ? book->answered[i] : book->seen[i];
    slot->own[place] = book->answered[own] - life->answered[row] + life->begun[row];
}

/* A push of a process that is refused may have failed at one of several servers, and not have ended. */
static bool pull_is_ambiguous(const struct params_life *life)
{
    return life->cast->has_several_servers && (life->is_superseded || life->is_contested);
}

static void pull_check_element(const struct params_slot *slot, uint32_t place, uint32_t element,
                               uint64_t count)
{
    const struct params_life *life = slot->client->life;
    struct params_cast *cast = life->cast;
    uint32_t row = slot->rows[place];
    const struct params_row_book *book = &cast->rows[row];

    if (count < slot->least[place][element])
        sim_fail(cast->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32 ", at least %" PRIu64
                 " were answered or seen before",
                 row, count, element, slot->least[place][element]);
    if (count > book->begun[element])
        sim_fail(cast->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32 ", only %" PRIu64
                 " were begun",
                 row, count, element, book->begun[element]);
    if (element == life->source->element && !pull_is_ambiguous(life) &&
        count + life->failed[row] < slot->own[place])
        sim_fail(cast->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32
                 ", which had begun %" PRIu64 " before its pull",
                 row, count, element, slot->own[place]);
    if (slot->is_last && count < book->answered[element])
        sim_fail(cast->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32 " at rest, %" PRIu64
                 " were answered",
                 row, count, element, book->answered[element]);
}

/* The count-th push of a source or a later one is in the row, so all that was answered before that began. */
static void pull_check_before(const struct params_slot *slot, uint32_t place,
                              const uint64_t *vector)
{
    struct params_cast *cast = slot->client->life->cast;
    const struct params_row_book *book = &cast->rows[slot->rows[place]];

    for (uint32_t i = 0; i < cast->source_count; i++) {
        for (uint32_t j = 0; j < cast->source_count && vector[i] > 0; j++) {
            if (vector[j] < book->before[i][vector[i] - 1][j])
                sim_fail(cast->world,
                         "row %" PRIu32 " has push %" PRIu64 " of source %" PRIu32
                         " without a push of source %" PRIu32 " that was answered before it began",
                         slot->rows[place], vector[i], i, j);
        }
    }
}

/* Pushes to a key that gets no row change nothing. */
static void absent_check(struct params_cast *cast, uint32_t row, const float *values)
{
    for (uint32_t i = 0; i < cast->source_count; i++)
        if (values[i] != 0)
            sim_fail(cast->world, "row %" PRIu32 " is not admitted, and has pushes", row);
}

void params_books_pulled(struct params_slot *slot)
{
    struct params_cast *cast = slot->client->life->cast;
    const float *values = slot->values;

    for (uint32_t i = 0; i < slot->count; i++, values += cast->source_count) {
        uint64_t vector[PARAMS_SOURCES_MAX] = {0};
        uint64_t *seen = cast->rows[slot->rows[i]].seen;

        if (!params_turnover_has_row(cast, slot->rows[i])) {
            absent_check(cast, slot->rows[i], values);
            continue;
        }
        for (uint32_t j = 0; j < cast->source_count; j++) {
            vector[j] = (uint64_t)values[j];
            if ((float)vector[j] != values[j])
                sim_fail(cast->world, "row %" PRIu32 " has a value that is not a count",
                         slot->rows[i]);
            pull_check_element(slot, i, j, vector[j]);
            seen[j] = vector[j] > seen[j] ? vector[j] : seen[j];
        }
        if (sim_failure(cast->world) != NULL)
            return;
        pull_check_before(slot, i, vector);
        chain_insert(cast, slot->rows[i], vector);
    }
}

/* The clocks of sources that have retired, or that nobody is any more, have come. */
static bool source_has_come(const struct params_source *source, uint64_t clock)
{
    return source->ticked >= clock || source->life->is_contested;
}

void params_books_waited(const struct params_slot *slot)
{
    struct params_cast *cast = slot->client->life->cast;
    const float *values = slot->values;

    for (uint32_t i = 0; i < cast->source_count; i++) {
        if (!source_has_come(&cast->sources[i], slot->clock))
            sim_fail(cast->world,
                     "a pull for clock %" PRIu64 " did not wait for source %" PRIu32
                     ", which is at %" PRIu64,
                     slot->clock, i, cast->sources[i].ticked);
    }
    for (uint32_t place = 0; place < slot->count; place++, values += cast->source_count) {
        const struct params_row_book *book = &cast->rows[slot->rows[place]];

        for (uint32_t i = 0;
             i < cast->source_count && params_turnover_has_row(cast, slot->rows[place]); i++) {
            uint64_t least = 0;

            for (uint64_t step = 0; step < slot->clock; step++)
                least += book->in_step[i][step];
            if ((uint64_t)values[i] < least && !cast->sources[i].life->is_contested)
                sim_fail(cast->world,
                         "row %" PRIu32 " has %.0f pushes of source %" PRIu32 " for clock %" PRIu64
                         ", which has made %" PRIu64 " in its first steps",
                         slot->rows[place], (double)values[i], i, slot->clock, least);
        }
    }
}

/* The pushes to the row that were answered before this one began. */
static void before_record(struct params_row_book *book, uint32_t element)
{
    size_t count = book->begun[element];

    if (count == book->before_room[element]) {
        book->before_room[element] = count * 2 + 64;
        book->before[element] = realloc(book->before[element], book->before_room[element] *
                                                                   sizeof(*book->before[element]));
        MUSTER_ASSERT(book->before[element] != NULL);
    }
    memcpy(book->before[element][count], book->answered, sizeof(book->answered));
}

void params_books_push(struct params_slot *slot)
{
    struct params_life *life = slot->client->life;

    for (uint32_t i = 0; i < slot->count; i++) {
        struct params_row_book *book = &life->cast->rows[slot->rows[i]];

        before_record(book, life->source->element);
        book->begun[life->source->element]++;
        life->begun[slot->rows[i]]++;
    }
    if (life->cast->cuts != NULL)
        slot->number = params_cuts_push(life->cast->cuts, slot);
}

void params_books_pushed(struct params_slot *slot, enum muster_rc rc)
{
    struct params_life *life = slot->client->life;
    struct params_cast *cast = life->cast;

    if (rc == MUSTER_OK && slot->is_fenced)
        sim_fail(cast->world, "%s: a push was taken that began after a younger process had come",
                 life->name);
    if (rc == MUSTER_OK && cast->cuts != NULL)
        params_cuts_pushed(cast->cuts, slot);
    for (uint32_t i = 0; i < slot->count; i++) {
        struct params_row_book *book = &cast->rows[slot->rows[i]];

        book->answered[life->source->element] += rc == MUSTER_OK;
        if (life->cast->is_ticking)
            book->in_step[life->source->element][slot->clock] += rc == MUSTER_OK;
        life->answered[slot->rows[i]] += rc == MUSTER_OK;
        life->failed[slot->rows[i]] += rc != MUSTER_OK;
    }
}
