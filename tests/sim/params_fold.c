/* Rounds folded by one process: the rows of a table by round are a function of the pushes that counted. */
#include <inttypes.h>
#include <string.h>

#include "params/wire/hash.h"
#include "params/wire/run.h"
#include "tests/sim/params_workers.h"

typedef float fold_rows[PARAMS_DENSE][PARAMS_ROUND_WIDTH];

uint64_t params_fold_key(uint64_t round, uint32_t row)
{
    return row < PARAMS_MARKERS ? (round + 1) * 1000 + row + 1 : row + 1;
}

/* A marker counts the pushes of its element's worker; gradients of dense rows make sums round. */
float params_fold_gradient(uint32_t worker, uint64_t round, uint32_t row, uint32_t element)
{
    uint64_t mixed =
        (((round * 64 + row) * 64 + worker) * 64 + element + 1) * UINT64_C(0x9E3779B97F4A7C15);

    if (row < PARAMS_MARKERS)
        return element == worker ? 1 : 0;
    return (float)((double)(mixed >> 40) / 8388608.0 - 1.0);
}

void params_fold_order(const struct params_crew *crew, uint32_t ret_order[PARAMS_WORKERS_MAX])
{
    struct muster_incarnation ids[PARAMS_WORKERS_MAX];

    for (uint32_t i = 0; i < crew->worker_count; i++) {
        uint32_t at = i;

        ids[i] = muster_params_source_id(crew->workers[i].name);
        for (; at > 0 && memcmp(&ids[i], &ids[ret_order[at - 1]], sizeof(ids[i])) < 0; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = i;
    }
}

/* The round adds this to an element of a row, when these workers count. */
static float round_sum(const struct params_crew *crew, uint64_t round, uint32_t row,
                       uint32_t element, uint32_t counted)
{
    uint32_t order[PARAMS_WORKERS_MAX];
    double sum = 0, weight = 0;

    params_fold_order(crew, order);
    for (uint32_t i = 0; i < crew->worker_count; i++) {
        uint32_t worker = order[i];
        double one = (double)crew->workers[worker].weights[round];

        if ((counted >> worker & 1u) == 0)
            continue;
        weight += one;
        sum += one * (double)params_fold_gradient(worker, round, row, element);
    }
    return (float)(crew->is_mean && weight > 0 ? sum / weight : sum);
}

/* MUSTER_PARAMS_SGD with rate 1. */
static bool marker_agrees(const struct params_crew *crew, uint64_t round, const float *marker,
                          uint32_t counted)
{
    for (uint32_t i = 0; i < crew->worker_count; i++)
        if (marker[i] != 0 - round_sum(crew, round, 0, i, counted))
            return false;
    return true;
}

/* The workers that a marker of the round says have counted. UINT32_MAX: it has another value. */
static uint32_t counted_find(const struct params_crew *crew, uint64_t round, const float *marker)
{
    uint32_t all = 0;

    for (uint32_t i = 0; i < crew->worker_count; i++)
        all |= crew->workers[i].weights[round] > 0 ? 1u << i : 0;
    for (uint32_t counted = 0; counted < 1u << crew->worker_count; counted++)
        if ((counted & ~all) == 0 && marker_agrees(crew, round, marker, counted))
            return counted;
    return UINT32_MAX;
}

static uint32_t round_counted(const struct params_crew *crew, uint64_t round)
{
    uint32_t counted = 0;

    for (uint32_t row = 0; row < PARAMS_MARKERS; row++) {
        const float *marker = crew->rows[0][round * PARAMS_MARKERS + row];
        uint32_t found = counted_find(crew, round, marker);

        if (found == UINT32_MAX)
            sim_fail(crew->world,
                     "round %" PRIu64 " row %" PRIu32 " has %g %g %g %g, which no set of workers "
                     "gives",
                     round, row, (double)marker[0], (double)marker[1], (double)marker[2],
                     (double)marker[3]);
        if (row > 0 && found != counted)
            sim_fail(crew->world,
                     "round %" PRIu64 " counts workers %" PRIx32 " in one shard and %" PRIx32
                     " in another",
                     round, counted, found);
        counted = found;
    }
    for (uint32_t i = 0; i < crew->worker_count && crew->quorum == 0; i++)
        if (crew->workers[i].is_sure[round] && (counted >> i & 1u) == 0)
            sim_fail(crew->world, "round %" PRIu64 " does not count %s, which has completed it",
                     round, crew->workers[i].name);
    return counted;
}

static void round_fold(const struct params_crew *crew, uint64_t round, uint32_t counted,
                       fold_rows rows)
{
    for (uint32_t row = 0; row < PARAMS_DENSE; row++)
        for (uint32_t i = 0; i < PARAMS_ROUND_WIDTH; i++)
            rows[row][i] -= round_sum(crew, round, PARAMS_MARKERS + row, i, counted);
}

/* Which rounds a look may show: with a quorum, others may have gone on. */
static void looks_mark(const struct params_crew *crew, uint64_t closed, fold_rows rows,
                       bool (*is_right)[PARAMS_DENSE])
{
    for (uint32_t i = 0; i < crew->look_count; i++) {
        const struct params_look *look = &crew->looks[i];

        if (closed != look->clock && !(crew->quorum > 0 && closed > look->clock))
            continue;
        for (uint32_t row = 0; row < PARAMS_DENSE; row++)
            is_right[i][row] |= memcmp(look->rows[row], rows[row], sizeof(rows[row])) == 0;
    }
}

void params_fold_check(struct params_crew *crew)
{
    fold_rows rows = {{0}};
    bool is_right[PARAMS_LOOKS_MAX][PARAMS_DENSE] = {{false}};

    for (uint32_t i = 1; i < crew->worker_count; i++)
        if (crew->has_rows[i] && memcmp(crew->rows[0], crew->rows[i], sizeof(crew->rows[0])) != 0)
            sim_fail(crew->world, "%s and %s see other rows at rest", crew->workers[0].name,
                     crew->workers[i].name);
    for (uint64_t round = 0; round < PARAMS_ROUNDS_MAX && sim_failure(crew->world) == NULL;
         round++) {
        looks_mark(crew, round, rows, is_right);
        round_fold(crew, round, round_counted(crew, round), rows);
    }
    looks_mark(crew, PARAMS_ROUNDS_MAX, rows, is_right);
    if (memcmp(rows, crew->rows[0][PARAMS_ROUNDS_MAX * PARAMS_MARKERS], sizeof(rows)) != 0)
        sim_fail(crew->world, "the rows at rest are not those of a fold");
    for (uint32_t i = 0; i < crew->look_count; i++)
        for (uint32_t row = 0; row < PARAMS_DENSE; row++)
            if (!is_right[i][row])
                sim_fail(crew->world,
                         "a pull after %" PRIu64 " rounds shows a row that no such round has",
                         crew->looks[i].clock);
}
