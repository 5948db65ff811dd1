/* The answers of the servers of a job, as JSON. */
#include "params/inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <muster/hash.h>
#include <muster/json.h>

#include "common/output.h"

static struct muster_json *number_new(uint64_t number)
{
    return muster_json_integer_new((int64_t)number);
}

/* A key of 2^63 or more is a text: JSON's integers end there in many readers. */
static struct muster_json *key_new(uint64_t key)
{
    char text[24];

    if (key <= INT64_MAX)
        return number_new(key);
    snprintf(text, sizeof(text), "%" PRIu64, key);
    return muster_json_text_new(text);
}

static struct muster_json *rate_new(const struct inspect_server *server, double rate)
{
    return server->has_rates ? muster_json_real_new(rate) : muster_json_null_new();
}

static bool answer_set(struct muster_json *json, const struct inspect_server *server)
{
    const struct muster_params_stats *stats = &server->stats;
    char incarnation[MUSTER_INCARNATION_TEXT_BYTES];

    muster_incarnation_format(&server->incarnation, incarnation);
    return muster_json_set(json, "incarnation", muster_json_text_new(incarnation)) &&
           muster_json_set(json, "rows", number_new(stats->rows)) &&
           muster_json_set(json, "memory_bytes", number_new(stats->memory_bytes)) &&
           muster_json_set(json, "memory_max_bytes", number_new(stats->memory_max_bytes)) &&
           muster_json_set(json, "links", number_new(stats->clients)) &&
           muster_json_set(json, "pushes", number_new(stats->pushes)) &&
           muster_json_set(json, "pulls", number_new(stats->pulls)) &&
           muster_json_set(json, "pushed_rows", number_new(stats->pushed_rows)) &&
           muster_json_set(json, "pulled_rows", number_new(stats->pulled_rows)) &&
           muster_json_set(json, "duplicate_runs", number_new(stats->duplicate_runs)) &&
           muster_json_set(json, "refused_rows", number_new(stats->refused_rows)) &&
           muster_json_set(json, "pushes_per_s", rate_new(server, server->pushed_rows_per_s)) &&
           muster_json_set(json, "pulls_per_s", rate_new(server, server->pulled_rows_per_s)) &&
           muster_json_set(json, "lag_frames", number_new(server->lag_frames));
}

static struct muster_json *server_new(const struct inspect_server *server)
{
    struct muster_json *json = muster_json_object_new();
    bool is_made = muster_json_set(json, "address", muster_json_text_new(server->address)) &&
                   muster_json_set(json, "primaries", number_new(server->primaries)) &&
                   muster_json_set(json, "replicas", number_new(server->replicas));

    if (is_made && server->is_leaving)
        is_made = muster_json_set(json, "leaving", muster_json_bool_new(true));
    if (is_made)
        is_made = server->has_answered
                      ? answer_set(json, server)
                      : muster_json_set(json, "error", muster_json_text_new(server->error.text));
    if (is_made && server->waits[0] != '\0')
        is_made = muster_json_set(json, "waits", muster_json_text_new(server->waits));
    if (is_made)
        return json;
    muster_json_free(json);
    return NULL;
}

static struct muster_json *table_new(const struct inspect_table *table)
{
    const struct muster_params_table_state *state = &table->state;
    const char *optimizer = muster_params_optimizer_name(state->optimizer);
    const char *evict_by = muster_params_evict_name(state->evict_by);
    char digest[2 * MUSTER_PARAMS_DIGEST_BYTES + 1];
    struct muster_json *json = muster_json_object_new();

    if (muster_json_set(json, "name", muster_json_text_new(table->name)) &&
        muster_json_set(json, "rows", number_new(state->led_rows)) &&
        muster_json_set(json, "row_elements", number_new(state->row_elements)) &&
        muster_json_set(json, "row_bytes", number_new(state->row_bytes)) &&
        muster_json_set(json, "dtype", muster_json_text_new(muster_dtype_name(state->wire_dtype))) &&
        muster_json_set(json, "optimizer", muster_json_text_new(optimizer)) &&
        (state->rows_max == 0 ||
         (muster_json_set(json, "rows_max", number_new(state->rows_max)) &&
          muster_json_set(json, "evict_by", muster_json_text_new(evict_by)))) &&
        (!state->has_digest ||
         muster_json_set(json, "digest",
                         muster_json_text_new(muster_hash128_format(state->digest, digest)))))
        return json;
    muster_json_free(json);
    return NULL;
}

/* JSON has no infinity: null stands for what it cannot write. */
static struct muster_json *values_new(const struct muster_params_row_state *state)
{
    struct muster_json *values = muster_json_array_new();
    bool is_made = values != NULL;

    for (size_t i = 0; i < state->value_count && is_made; i++)
        is_made = muster_json_append(values, isfinite(state->values[i])
                                                 ? muster_json_real_new((double)state->values[i])
                                                 : muster_json_null_new());
    if (is_made)
        return values;
    muster_json_free(values);
    return NULL;
}

static struct muster_json *row_new(const struct muster_params_row_state *state)
{
    struct muster_json *row = muster_json_object_new();

    if (muster_json_set(row, "key", key_new(state->key)) &&
        muster_json_set(row, "exists", muster_json_bool_new(state->exists)) &&
        muster_json_set(row, "pushes", number_new(state->version / 2)) &&
        muster_json_set(row, "clock", number_new(state->clock)) &&
        muster_json_set(row, "values", values_new(state)))
        return row;
    muster_json_free(row);
    return NULL;
}

static struct muster_json *sources_new(const struct inspect_job *job)
{
    const struct muster_params_clocks_state *clocks = &job->clocks;
    char slowest[MUSTER_INCARNATION_TEXT_BYTES];
    bool has_slowest = clocks->has_low && !muster_incarnation_is_zero(&clocks->slowest);
    struct muster_json *json = muster_json_object_new();

    muster_incarnation_format(&clocks->slowest, slowest);
    if (muster_json_set(json, "open", number_new(job->sources)) &&
        muster_json_set(json, "clock_low",
                        clocks->has_low ? number_new(clocks->low) : muster_json_null_new()) &&
        muster_json_set(json, "clock_high",
                        clocks->has_low ? number_new(clocks->high) : muster_json_null_new()) &&
        muster_json_set(json, "slowest",
                        has_slowest ? muster_json_text_new(slowest) : muster_json_null_new()) &&
        muster_json_set(json, "slowest_name",
                        has_slowest && clocks->slowest_name[0] != '\0'
                            ? muster_json_text_new(clocks->slowest_name)
                            : muster_json_null_new()))
        return json;
    muster_json_free(json);
    return NULL;
}

/* Shards that a server is about to hold. */
static struct muster_json *move_new(const struct inspect_server *server)
{
    struct muster_json *json = muster_json_object_new();

    if (muster_json_set(json, "to", muster_json_text_new(server->address)) &&
        muster_json_set(json, "shards", number_new(server->learning)))
        return json;
    muster_json_free(json);
    return NULL;
}

static struct muster_json *cut_new(const struct inspect_cut *cut)
{
    struct muster_json *json = muster_json_object_new();

    if (muster_json_set(json, "name", muster_json_text_new(cut->folder)) &&
        muster_json_set(json, "clock", number_new(cut->clock)) &&
        muster_json_set(json, "bytes", number_new(cut->bytes)))
        return json;
    muster_json_free(json);
    return NULL;
}

static bool servers_set(struct muster_json *root, const struct inspect_job *job)
{
    struct muster_json *servers = muster_json_array_new(), *moves = muster_json_array_new();
    bool is_made = true;

    for (uint32_t i = 0; i < job->server_count; i++) {
        is_made = muster_json_append(servers, server_new(&job->servers[i])) && is_made;
        if (job->servers[i].learning > 0)
            is_made = muster_json_append(moves, move_new(&job->servers[i])) && is_made;
    }
    is_made = muster_json_set(root, "servers", servers) && is_made;
    return muster_json_set(root, "moves", moves) && is_made;
}

static bool lists_set(struct muster_json *root, const struct inspect_job *job)
{
    struct muster_json *tables = muster_json_array_new(), *shown = muster_json_array_new();
    struct muster_json *cuts = muster_json_array_new();
    bool is_made = true;

    for (size_t i = 0; i < job->table_count; i++)
        is_made = muster_json_append(tables, table_new(&job->tables[i])) && is_made;
    for (size_t i = 0; i < job->row_count; i++)
        is_made = muster_json_append(shown, row_new(&job->rows[i].state)) && is_made;
    for (uint32_t i = 0; i < job->cut_count; i++)
        is_made = muster_json_append(cuts, cut_new(&job->cuts[i])) && is_made;
    is_made = muster_json_set(root, "tables", tables) && is_made;
    is_made = muster_json_set(root, "cuts", cuts) && is_made;
    if (job->row_count > 0)
        return muster_json_set(root, "rows", shown) && is_made;
    muster_json_free(shown);
    return is_made;
}

bool inspect_print_json(const struct inspect_job *job)
{
    struct muster_mem *mem = job->connection.env->mem;
    struct muster_json *root = muster_json_object_new();
    char *text = NULL;
    bool is_made = muster_json_set(root, "map_epoch", number_new(job->map));

    is_made = muster_json_set(root, "replicas", number_new(job->replicas)) && is_made;
    is_made = muster_json_set(root, "shards", number_new(job->shards)) && is_made;
    is_made = muster_json_set(root, "short_shards", number_new(job->short_shards)) && is_made;
    is_made = servers_set(root, job) && is_made;
    is_made = lists_set(root, job) && is_made;
    is_made = muster_json_set(root, "sources", sources_new(job)) && is_made;
    is_made = is_made && muster_json_format(root, false, mem, &text) == MUSTER_OK;
    if (is_made)
        puts(text);
    muster_mem_free(mem, text);
    muster_json_free(root);
    return is_made && output_flush();
}
