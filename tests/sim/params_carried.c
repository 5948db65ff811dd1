/* Rounds whose late pushes are carried, folded by one process. A tick has its clock as its weight, so that a marker
 * tells in which round it has counted. Each push counts once, those of a worker in their order, and all servers
 * agree. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/params_workers.h"

#define CLOCKS_MAX      64u
#define ASSIGNMENTS_MAX 4096u
#define UNSURE_MAX      16u

/* The clock of the tick with which the pushes of a round have counted; 0: they have not. */
typedef uint64_t fates[PARAMS_WORKERS_MAX][PARAMS_ROUNDS_MAX];

/* Pushes of a round that were not acknowledged before their process died: each row has its own fate. */
struct unsure {
    uint32_t worker, round;
    uint64_t choices[CLOCKS_MAX];
    uint32_t count, chosen;
};

struct search {
    struct params_crew *crew;
    fates fates;
    struct unsure unsure[UNSURE_MAX];
    uint32_t unsure_count;
    uint64_t assignments;
    uint64_t clocks; /* no tick has a higher one */
};

static float marker_of(const struct params_crew *crew, uint32_t worker, uint64_t round,
                       uint32_t row)
{
    return crew->rows[0][round * PARAMS_MARKERS + row][worker];
}

/* --- Markers --- */

static uint64_t marker_clock(const struct params_crew *crew, uint32_t worker, uint64_t round,
                             uint32_t row)
{
    const struct params_worker *of = &crew->workers[worker];
    float value = -marker_of(crew, worker, round, row); /* MUSTER_PARAMS_SGD with rate 1 */
    uint64_t clock = value > 0 && value < (float)CLOCKS_MAX ? (uint64_t)value : 0;

    if ((float)clock != value || (clock > 0 && (clock <= round || clock > of->started)) ||
        (clock > 0 && !of->is_begun[round]))
        sim_fail(crew->world,
                 "round %" PRIu64 " row %" PRIu32 " of %s has %g, which no tick up to %" PRIu64
                 " gives",
                 round, row, of->name, (double)value, of->started);
    return clock;
}

/* Pushes that are acknowledged count as a whole, and are never passed over for later ones. */
static void worker_markers_check(struct search *search, uint32_t worker)
{
    const struct params_crew *crew = search->crew;
    const struct params_worker *of = &crew->workers[worker];
    uint64_t next = UINT64_MAX; /* with which something later has counted */

    for (uint32_t round = PARAMS_ROUNDS_MAX; round-- > 0;) {
        uint64_t first = marker_clock(crew, worker, round, 0), least = UINT64_MAX;

        for (uint32_t row = 0; row < PARAMS_MARKERS; row++) {
            uint64_t clock = marker_clock(crew, worker, round, row);

            least = clock > 0 && clock < least ? clock : least;
            if (of->is_sure[round] && clock != first)
                sim_fail(crew->world,
                         "round %" PRIu32 " of %s counts with %" PRIu64 " and with %" PRIu64, round,
                         of->name, first, clock);
        }
        if (of->is_sure[round] && next != UINT64_MAX && (first == 0 || first > next))
            sim_fail(crew->world,
                     "round %" PRIu32 " of %s counts with %" PRIu64 ", a later one with %" PRIu64,
                     round, of->name, first, next);
        search->fates[worker][round] = first;
        next = least < next ? least : next;
    }
}

/* --- Rows of all rounds --- */

/* A row of a marker that counts tells of the others of its round; without one any tick may have counted it. */
static void choices_list(struct search *search, struct unsure *unsure)
{
    const struct params_crew *crew = search->crew;
    bool has_clock = false;

    unsure->choices[unsure->count++] = 0;
    for (uint32_t row = 0; row < PARAMS_MARKERS; row++) {
        uint64_t clock = marker_clock(crew, unsure->worker, unsure->round, row);

        has_clock |= clock > 0;
        if (clock > 0 && clock != unsure->choices[unsure->count - 1])
            unsure->choices[unsure->count++] = clock;
    }
    for (uint64_t clock = unsure->round + 1;
         !has_clock && clock <= crew->workers[unsure->worker].started && unsure->count < CLOCKS_MAX;
         clock++)
        unsure->choices[unsure->count++] = clock;
}

static void unsure_list(struct search *search)
{
    const struct params_crew *crew = search->crew;

    search->assignments = 1;
    for (uint32_t worker = 0; worker < crew->worker_count; worker++) {
        for (uint32_t round = 0; round < PARAMS_ROUNDS_MAX; round++) {
            struct unsure *unsure = &search->unsure[search->unsure_count];

            if (!crew->workers[worker].is_begun[round] || crew->workers[worker].is_sure[round])
                continue;
            if (search->unsure_count == UNSURE_MAX) {
                search->assignments = UINT64_MAX;
                return;
            }
            search->unsure_count++;
            *unsure = (struct unsure){.worker = worker, .round = round};
            choices_list(search, unsure);
            search->assignments *= unsure->count;
        }
        if (crew->workers[worker].started > search->clocks)
            search->clocks = crew->workers[worker].started;
    }
}

static bool assignment_next(struct search *search)
{
    for (uint32_t i = 0; i < search->unsure_count; i++) {
        struct unsure *unsure = &search->unsure[i];

        unsure->chosen = (unsure->chosen + 1) % unsure->count;
        search->fates[unsure->worker][unsure->round] = unsure->choices[unsure->chosen];
        if (unsure->chosen != 0)
            return true;
    }
    return false;
}

static void assignment_first(struct search *search)
{
    for (uint32_t i = 0; i < search->unsure_count; i++) {
        search->unsure[i].chosen = 0;
        search->fates[search->unsure[i].worker][search->unsure[i].round] = 0;
    }
}

/* The tick of this clock adds so much to an element: the pushes of a worker are summed as they came, and those of all
 * workers in the order of their ids. */
static float clock_sum(const struct search *search, const uint32_t *order, uint64_t clock,
                       uint32_t row, uint32_t element)
{
    const struct params_crew *crew = search->crew;
    double sum = 0;

    for (uint32_t i = 0; i < crew->worker_count; i++) {
        float kept = 0;

        for (uint64_t round = 0; round < PARAMS_ROUNDS_MAX; round++)
            if (search->fates[order[i]][round] == clock)
                kept += params_fold_gradient(order[i], round, PARAMS_MARKERS + row, element);
        sum += (double)clock * (double)kept;
    }
    return (float)sum;
}

typedef float row_steps[CLOCKS_MAX + 1][PARAMS_ROUND_WIDTH]; /* the row after so many rounds */

static void row_fold(const struct search *search, const uint32_t *order, uint32_t row,
                     row_steps ret_steps)
{
    memset(ret_steps[0], 0, sizeof(ret_steps[0]));
    for (uint64_t clock = 1; clock <= search->clocks; clock++)
        for (uint32_t i = 0; i < PARAMS_ROUND_WIDTH; i++)
            ret_steps[clock][i] = ret_steps[clock - 1][i] - clock_sum(search, order, clock, row, i);
}

static void looks_mark(const struct search *search, uint32_t row, row_steps steps, bool *is_right)
{
    const struct params_crew *crew = search->crew;

    for (uint32_t i = 0; i < crew->look_count; i++)
        for (uint64_t closed = crew->looks[i].clock; closed <= search->clocks; closed++)
            is_right[i] |=
                memcmp(crew->looks[i].rows[row], steps[closed], sizeof(steps[closed])) == 0;
}

static void row_check(struct search *search, const uint32_t *order, uint32_t row)
{
    const struct params_crew *crew = search->crew;
    const float *seen = crew->rows[0][PARAMS_ROUNDS_MAX * PARAMS_MARKERS + row];
    bool is_right[PARAMS_LOOKS_MAX] = {false}, has_one = false;
    row_steps steps;

    assignment_first(search);
    do {
        row_fold(search, order, row, steps);
        if (memcmp(steps[search->clocks], seen, sizeof(steps[0])) != 0)
            continue;
        has_one = true;
        looks_mark(search, row, steps, is_right);
    } while (assignment_next(search));
    if (!has_one)
        sim_fail(crew->world, "row %" PRIu32 " at rest is not that of a fold", row);
    for (uint32_t i = 0; has_one && i < crew->look_count; i++)
        if (!is_right[i])
            sim_fail(crew->world,
                     "a pull after %" PRIu64 " rounds shows a row that no such round has",
                     crew->looks[i].clock);
}

void params_carried_check(struct params_crew *crew)
{
    struct search search = {.crew = crew};
    uint32_t order[PARAMS_WORKERS_MAX];

    params_fold_order(crew, order);
    for (uint32_t i = 1; i < crew->worker_count; i++)
        if (memcmp(crew->rows[0], crew->rows[i], sizeof(crew->rows[0])) != 0)
            sim_fail(crew->world, "%s and %s see other rows at rest", crew->workers[0].name,
                     crew->workers[i].name);
    for (uint32_t i = 0; i < crew->worker_count && sim_failure(crew->world) == NULL; i++)
        worker_markers_check(&search, i);
    unsure_list(&search);
    if (search.assignments > ASSIGNMENTS_MAX || search.clocks > CLOCKS_MAX)
        return; /* too many ends of workers to try all */
    for (uint32_t row = 0; row < PARAMS_DENSE && sim_failure(crew->world) == NULL; row++)
        row_check(&search, order, row);
}
