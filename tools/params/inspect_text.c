/* The answers of the servers of a job, for people. */
#include "params/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <muster/hash.h>

#include "common/output.h"

#define VALUES_SHOWN_MAX 8u /* of a row */
#define OPTIMIZER_WIDTH  11 /* row_adagrad is the longest name */

static void table_print(const struct inspect_table *table, int width)
{
    const struct muster_params_table_state *state = &table->state;
    char digest[2 * MUSTER_PARAMS_DIGEST_BYTES + 1];

    printf("%-*s  %12" PRIu64 "  %8u  %9u  %-4s  ", width, table->name, state->led_rows,
           state->row_elements, state->row_bytes, muster_dtype_name(state->wire_dtype));
    if (state->has_digest)
        printf("%-*s  %s\n", OPTIMIZER_WIDTH, muster_params_optimizer_name(state->optimizer),
               muster_hash128_format(state->digest, digest));
    else
        printf("%s\n", muster_params_optimizer_name(state->optimizer));
}

static void tables_print(const struct inspect_job *job)
{
    size_t width = strlen("TABLE");

    for (size_t i = 0; i < job->table_count; i++) {
        size_t length = strlen(job->tables[i].name);

        width = length > width ? length : width;
    }
    if (job->table_count > 0)
        printf("\n%-*s  %12s  %8s  %9s  %-4s  %s\n", (int)width, "TABLE", "ROWS", "ELEMENTS",
               "ROW BYTES", "TYPE",
               job->settings->wants_digest ? "OPTIMIZER    DIGEST" : "OPTIMIZER");
    for (size_t i = 0; i < job->table_count; i++)
        table_print(&job->tables[i], (int)width);
}

static void row_print(const struct muster_params_row_state *row)
{
    size_t shown = row->value_count < VALUES_SHOWN_MAX ? row->value_count : VALUES_SHOWN_MAX;

    if (row->exists)
        printf("%20" PRIu64 "  %7u  %7u ", row->key, row->version / 2, row->clock);
    else
        printf("%20" PRIu64 "  %7s  %7s ", row->key, "none", "none");
    for (size_t i = 0; i < shown; i++)
        printf(" %g", (double)row->values[i]);
    printf("%s\n", shown < row->value_count ? " ..." : "");
}

static void server_print(const struct inspect_job *job, const struct inspect_server *server)
{
    const struct muster_params_stats *stats = &server->stats;

    if (!server->has_answered) {
        printf("%s: no answer: %s\n", server->address, server->error.text);
        return;
    }
    printf("%s: %" PRIu64 " rows in %.1f of %.1f MiB, %u of %u shards, %u copied, %u sources, %u links\n",
           server->address, stats->rows, (double)stats->memory_bytes / (1 << 20),
           (double)stats->memory_max_bytes / (1 << 20), server->primaries, job->shards,
           server->replicas, stats->sources, stats->clients);
    printf("  since its start: %" PRIu64 " pushes of %" PRIu64 " rows, %" PRIu64 " pulls of %" PRIu64
           " rows, %" PRIu64 " repeated runs, %" PRIu64 " refused rows\n",
           stats->pushes, stats->pushed_rows, stats->pulls, stats->pulled_rows,
           stats->duplicate_runs, stats->refused_rows);
    if (server->has_rates)
        printf("  now: %.0f rows pushed and %.0f pulled a second, %" PRIu64
               " messages behind at the slowest copy\n",
               server->pushed_rows_per_s, server->pulled_rows_per_s, server->lag_frames);
}

static void job_print(const struct inspect_job *job)
{
    const struct muster_params_clocks_state *clocks = &job->clocks;
    char slowest[MUSTER_INCARNATION_TEXT_BYTES];

    if (job->server_count > 1)
        printf("map %" PRIu64 ": %u servers, %u shards with %u replicas, %u of them short\n", job->map,
               job->server_count, job->shards, job->replicas, job->short_shards);
    for (uint32_t i = 0; i < job->server_count; i++)
        server_print(job, &job->servers[i]);
    for (uint32_t i = 0; i < job->server_count; i++) {
        if (job->servers[i].learning > 0)
            printf("moving: %u shards to %s\n", job->servers[i].learning, job->servers[i].address);
    }
    if (clocks->has_low)
        printf("clocks: %" PRIu64 " to %" PRIu64 ", %u of %u sources have ticked, slowest %s\n",
               clocks->low, clocks->high, clocks->known, clocks->expected,
               clocks->slowest_name[0] != '\0'                ? clocks->slowest_name
               : muster_incarnation_is_zero(&clocks->slowest) ? "not known"
                                                              : muster_incarnation_format(&clocks->slowest, slowest));
    for (uint32_t i = 0; i < job->cut_count; i++)
        printf("cut: %s, %" PRIu64 " bytes written by these servers\n", job->cuts[i].folder,
               job->cuts[i].bytes);
}

bool inspect_print(const struct inspect_job *job)
{
    job_print(job);
    tables_print(job);
    if (job->row_count > 0)
        printf("\n%20s  %7s  %7s  %s\n", "KEY", "PUSHES", "CLOCK", "VALUES");
    for (size_t i = 0; i < job->row_count; i++)
        row_print(&job->rows[i].state);
    return output_flush();
}
