/* Cuts are read back from their files as soon as they are whole. */
#include "tests/sim/params_cuts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "params/client/client_internal.h"
#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/snapshot/snapshot.h"
#include "params/store/index.h"
#include "tests/sim/sim_internal.h"

#define CUT_PATIENCE_NS (20 * MUSTER_NS_PER_S)

/* --- The pushes of sources --- */

size_t params_cuts_push(struct params_cuts *cuts, const struct params_slot *slot)
{
    struct params_push_log *log = &cuts->logs[slot->client->life->source->element];
    struct params_push *push;

    if (log->count == log->room) {
        log->room = log->room * 2 + 256;
        log->pushes = realloc(log->pushes, log->room * sizeof(*log->pushes));
        MUSTER_ASSERT(log->pushes != NULL);
    }
    push = &log->pushes[log->count];
    *push = (struct params_push){.clock = slot->clock};
    for (uint32_t i = 0; i < slot->count; i++)
        push->rows[slot->rows[i]]++;
    return log->count++;
}

void params_cuts_pushed(struct params_cuts *cuts, const struct params_slot *slot)
{
    cuts->logs[slot->client->life->source->element].pushes[slot->number].is_answered = true;
}

/* --- Files --- */

struct reading {
    struct params_cuts *cuts;
    struct params_cut *cut;
};

static uint32_t row_of(uint64_t key)
{
    for (uint32_t row = 0; row < PARAMS_ROWS; row++)
        if (params_cast_key(row) == key)
            return row;
    return PARAMS_ROWS;
}

static enum muster_rc on_row(void *data, uint32_t table, uint64_t key, uint32_t clock,
                             const float *values)
{
    const struct reading *reading = data;
    uint32_t row = row_of(key);

    (void)table;
    (void)clock;
    if (row == PARAMS_ROWS)
        return MUSTER_DATA_LOSS;
    for (uint32_t i = 0; i < reading->cuts->cast->source_count; i++)
        reading->cut->rows[row][i] = (uint64_t)values[i];
    return MUSTER_OK;
}

/* By the process whose turn it is, on whose host the files are. */
static enum muster_rc cut_read(struct params_cuts *cuts, struct muster_env *env,
                               struct params_cut *ret_cut, uint64_t *ret_number,
                               struct muster_error *ret_error)
{
    const struct muster_params_snapshot snapshot = {
        .files = env->files, .mem = env->mem, .folder = PARAMS_CUTS_FOLDER};
    struct reading reading = {.cuts = cuts, .cut = ret_cut};
    const struct muster_params_snapshot_visitor visitor = {.data = &reading, .on_row = on_row};
    struct muster_params_snapshot_manifest manifest;
    enum muster_rc rc = muster_params_snapshot_open(&snapshot, &manifest, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    memset(ret_cut, 0, sizeof(*ret_cut));
    *ret_number = manifest.cut;
    for (uint32_t shard = 0; shard < manifest.shard_count && rc == MUSTER_OK; shard++)
        rc = muster_params_snapshot_visit(&snapshot, &manifest, shard, &visitor, ret_error);
    muster_params_snapshot_manifest_fini(&manifest);
    return rc;
}

/* --- Asking --- */

static void cut_check_bounds(struct params_cuts *cuts, const struct params_cut *cut)
{
    const struct params_cast *cast = cuts->cast;

    for (uint32_t row = 0; row < PARAMS_ROWS; row++) {
        for (uint32_t i = 0; i < cast->source_count; i++) {
            uint64_t count = cut->rows[row][i];

            if (count < cuts->least[row][i] || count > cast->rows[row].begun[i])
                sim_fail(cast->world,
                         "a cut has %" PRIu64 " pushes of source %" PRIu32 " to row %" PRIu32
                         ": %" PRIu64 " were answered before it, %" PRIu64 " have begun",
                         count, i, row, cuts->least[row][i], cast->rows[row].begun[i]);
        }
    }
}

/* Whatever has come of the newest cut: the folder has a whole one, if it has had one before. */
static void on_cut(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_cuts *cuts = op->data;
    struct sim_world *world = cuts->cast->world;
    struct params_cut read;
    struct muster_error error;
    uint64_t number = 0;
    enum muster_rc read_rc = cut_read(cuts, sim_node_env(cuts->life->node), &read, &number, &error);

    sim_note(world, "cut_end", cuts->count, (uint64_t)rc, (uint64_t)read_rc);
    cuts->is_busy = false;
    if (read_rc != MUSTER_OK && !(read_rc == MUSTER_NOT_FOUND && cuts->count == 0))
        sim_fail(world, "a cut cannot be read: %s", error.text);
    if (rc == MUSTER_OUT_OF_RANGE && cuts->clock > 0)
        rc = MUSTER_UNAVAILABLE; /* a source was faster */
    if (rc != MUSTER_OK && rc != MUSTER_UNAVAILABLE && rc != MUSTER_DEADLINE_EXCEEDED &&
        rc != MUSTER_FAILED_PRECONDITION && rc != MUSTER_CANCELLED && rc != MUSTER_ABORTED)
        sim_fail(world, "a cut ends with %s: %s", muster_rc_text(rc), op->error.text);
    if (rc != MUSTER_OK || read_rc != MUSTER_OK)
        return;
    if (number != cuts->cut.number)
        sim_fail(world, "the folder has cut %" PRIu64 ", not %" PRIu64, number, cuts->cut.number);
    cut_check_bounds(cuts, &read);
    read.clock = cuts->clock;
    cuts->cuts[cuts->count++] = read;
}

/* A clock that no source has passed, but may before the servers hear of the cut. */
static uint64_t clock_draw(const struct params_cuts *cuts)
{
    const struct params_cast *cast = cuts->cast;
    uint64_t clock = 0;

    if (!cast->is_ticking || params_cast_draw(cuts->cast, 2) == 0)
        return 0;
    for (uint32_t i = 0; i < cast->source_count; i++)
        clock = cast->sources[i].ticked > clock ? cast->sources[i].ticked : clock;
    clock += 1 + params_cast_draw(cuts->cast, 2);
    return clock < PARAMS_STEPS_MAX ? clock : 0;
}

void params_cuts_begin(struct params_cuts *cuts, struct params_client *client)
{
    if (cuts->is_busy && sim_node_is_alive(cuts->life->node) && cuts->life == client->life)
        return;
    if (cuts->count == PARAMS_CUTS_MAX)
        return;
    for (uint32_t row = 0; row < PARAMS_ROWS; row++)
        memcpy(cuts->least[row], cuts->cast->rows[row].answered, sizeof(cuts->least[row]));
    cuts->life = client->life;
    cuts->op.data = cuts;
    cuts->clock = clock_draw(cuts);
    cuts->is_busy =
        muster_params_cut_at_start(&cuts->op, client->params, PARAMS_CUTS_FOLDER, cuts->clock,
                                   &cuts->cut,
                                   muster_loop_after_ns(client->env->loop, CUT_PATIENCE_NS),
                                   on_cut) == MUSTER_OK;
    cuts->try_count += cuts->is_busy;
}

/* --- At rest --- */

/* Whether the cut has all answered pushes among the first `count` and none behind them. Those that were not
 * answered may have been applied, or not. */
static bool prefix_agrees(const struct params_cut *cut, uint32_t element,
                          const uint64_t certain[PARAMS_ROWS], const uint64_t maybe[PARAMS_ROWS])
{
    for (uint32_t row = 0; row < PARAMS_ROWS; row++) {
        uint64_t count = cut->rows[row][element];

        if (count < certain[row] || count > certain[row] + maybe[row])
            return false;
    }
    return true;
}

static bool cut_has_prefix(const struct params_cut *cut, const struct params_push_log *log,
                           uint32_t element)
{
    uint64_t certain[PARAMS_ROWS] = {0}, maybe[PARAMS_ROWS] = {0};

    for (size_t i = 0;; i++) {
        if (prefix_agrees(cut, element, certain, maybe))
            return true;
        if (i == log->count)
            return false;
        for (uint32_t row = 0; row < PARAMS_ROWS; row++)
            *(log->pushes[i].is_answered ? &certain[row] : &maybe[row]) += log->pushes[i].rows[row];
    }
}

/* All answered pushes of the steps before the clock, and none of later ones. */
static bool cut_has_steps(const struct params_cut *cut, const struct params_push_log *log,
                          uint32_t element)
{
    uint64_t certain[PARAMS_ROWS] = {0}, maybe[PARAMS_ROWS] = {0};

    for (size_t i = 0; i < log->count; i++)
        for (uint32_t row = 0; row < PARAMS_ROWS && log->pushes[i].clock < cut->clock; row++)
            *(log->pushes[i].is_answered ? &certain[row] : &maybe[row]) += log->pushes[i].rows[row];
    return prefix_agrees(cut, element, certain, maybe);
}

void params_cuts_check(struct params_cuts *cuts)
{
    const struct params_cast *cast = cuts->cast;

    for (uint32_t i = 0; i < cuts->count; i++)
        for (uint32_t element = 0; element < cast->source_count; element++)
            if (!cut_has_prefix(&cuts->cuts[i], &cuts->logs[element], element))
                sim_fail(cast->world,
                         "cut %" PRIu32 " has pushes of source %" PRIu32
                         " that are not its first ones",
                         i, element);
            else if (cuts->cuts[i].clock > 0 &&
                     !cut_has_steps(&cuts->cuts[i], &cuts->logs[element], element))
                sim_fail(cast->world,
                         "cut %" PRIu32 " at clock %" PRIu64 " has not the pushes of source %" PRIu32
                         " before that, and no others",
                         i, cuts->cuts[i].clock, element);
}

static bool row_agrees(const struct params_cuts *cuts, const struct params_cut *cut, uint32_t row,
                       const struct muster_params_region *region)
{
    const struct muster_params_store_table *table = muster_params_table_find(region, "counts");
    uint64_t key = params_cast_key(row);
    const struct muster_params_row *found =
        table == NULL
            ? NULL
            : muster_params_index_find(region, table, muster_params_hash(table->seed, key), key);

    for (uint32_t i = 0; i < cuts->cast->source_count; i++)
        if ((found == NULL ? 0 : (uint64_t)found->values[i]) != cut->rows[row][i])
            return false;
    return true;
}

/* The client may have died when the cut was whole, and before it was told. */
static void folder_read(struct params_cuts *cuts, struct params_stage *stage,
                        struct params_cut *ret_cut)
{
    struct sim_node *node = stage->servers[0].node;
    struct muster_error error;
    uint64_t number;

    sim_enter(node);
    if (cut_read(cuts, sim_node_env(node), ret_cut, &number, &error) != MUSTER_OK)
        sim_fail(stage->world, "the cut cannot be read: %s", error.text);
    sim_leave(node);
}

void params_cuts_compare(struct params_cuts *cuts, struct params_stage *stage)
{
    uint64_t seed = muster_params_hash_seed("counts");
    const struct muster_params_map *map = params_stage_map(stage);
    struct params_cut cut;

    folder_read(cuts, stage, &cut);
    for (uint32_t row = 0; row < PARAMS_ROWS; row++) {
        uint32_t shard = muster_params_shard_of(muster_params_hash(seed, params_cast_key(row)),
                                                map->shard_count);
        const struct params_server *server = params_stage_primary(stage, shard);

        if (server == NULL || !row_agrees(cuts, &cut, row, params_server_program(server)->region))
            sim_fail(stage->world, "row %" PRIu32 " is not as in the cut", row);
    }
}

void params_cuts_close(struct params_cuts *cuts)
{
    for (uint32_t i = 0; i < PARAMS_SOURCES_MAX; i++)
        free(cuts->logs[i].pushes);
}
