/* Questions of `muster params inspect` to all servers of a job, and what their answers are together. */
#include "params/inspect.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pause.h"

#define RECEIVE_BYTES_MAX ((size_t)32 << 20)
#define AGAIN_NS          (100 * MUSTER_NS_PER_MS)

/* --- Answers --- */

static struct inspect_table *table_of(struct inspect_job *job,
                                      const struct muster_params_table_state *state)
{
    struct inspect_table *tables;

    for (size_t i = 0; i < job->table_count; i++) {
        if (strcmp(job->tables[i].name, state->name) == 0)
            return &job->tables[i];
    }
    tables = realloc(job->tables, (job->table_count + 1) * sizeof(*tables));
    job->is_short_of_memory = job->is_short_of_memory || tables == NULL;
    if (tables == NULL)
        return NULL;
    job->tables = tables;
    tables = &tables[job->table_count++];
    snprintf(tables->name, sizeof(tables->name), "%s", state->name);
    tables->state = *state;
    tables->state.name = NULL; /* the array may move */
    tables->state.led_rows = 0;
    memset(tables->state.digest, 0, sizeof(tables->state.digest));
    return tables;
}

static void table_add(struct inspect_job *job, const struct muster_params_table_state *state)
{
    struct inspect_table *table = table_of(job, state);

    if (table == NULL)
        return;
    table->state.led_rows += state->led_rows;
    table->state.has_digest = table->state.has_digest && state->has_digest;
    if (state->has_digest)
        muster_params_digest_join(table->state.digest, state->digest);
}

/* Several servers may have a row: the primary has seen most pushes. */
static void row_add(struct inspect_job *job, struct inspect_row *row,
                    const struct muster_params_row_state *state)
{
    if (row->values != NULL &&
        (!state->exists || (row->state.exists && row->state.version >= state->version)))
        return;
    free(row->values);
    row->state = *state;
    row->values = calloc(state->value_count + 1, sizeof(*row->values));
    job->is_short_of_memory = job->is_short_of_memory || row->values == NULL;
    if (row->values == NULL) {
        row->state.value_count = 0;
        return;
    }
    memcpy(row->values, state->values, state->value_count * sizeof(*row->values));
    row->state.values = row->values;
}

static void rows_add(struct inspect_job *job, const struct muster_params_inspection *found)
{
    if (job->rows == NULL && found->row_count > 0) {
        job->rows = calloc(found->row_count, sizeof(*job->rows));
        job->row_count = job->rows != NULL ? found->row_count : 0;
        job->is_short_of_memory = job->is_short_of_memory || job->rows == NULL;
    }
    for (size_t i = 0; i < found->row_count && i < job->row_count; i++)
        row_add(job, &job->rows[i], &found->rows[i]);
}

static void clocks_add(struct inspect_job *job, const struct muster_params_clocks_state *clocks)
{
    uint64_t high = clocks->high > job->clocks.high ? clocks->high : job->clocks.high;

    if (clocks->has_low && (!job->clocks.has_low || clocks->low < job->clocks.low ||
                            (clocks->low == job->clocks.low && job->clocks.slowest_name[0] == '\0')))
        job->clocks = *clocks;
    job->clocks.high = high;
}

static void cut_add(struct inspect_job *job, const struct muster_params_cut_told *cut)
{
    for (uint32_t i = 0; cut->folder != NULL && i < job->cut_count; i++) {
        if (strcmp(job->cuts[i].folder, cut->folder) == 0 && job->cuts[i].clock == cut->clock) {
            job->cuts[i].bytes += cut->bytes;
            return;
        }
    }
    if (cut->folder == NULL)
        return;
    snprintf(job->cuts[job->cut_count].folder, INSPECT_FOLDER_BYTES, "%s", cut->folder);
    job->cuts[job->cut_count].clock = cut->clock;
    job->cuts[job->cut_count++].bytes = cut->bytes;
}

static void answer_add(struct inspect_server *server, const struct muster_params_inspection *found)
{
    struct inspect_job *job = server->job;

    server->has_answered = true;
    job->has_moved = job->has_moved || found->map != job->map;
    server->incarnation = found->incarnation;
    server->stats = found->stats;
    server->lag_frames = found->lag_frames;
    snprintf(server->waits, sizeof(server->waits), "%s",
             found->waits[0] != '\0' || found->map != 0 ? found->waits : "it knows no map of it");
    job->sources = found->stats.sources > job->sources ? found->stats.sources : job->sources;
    for (size_t i = 0; i < found->table_count; i++)
        table_add(job, &found->tables[i]);
    rows_add(job, found);
    clocks_add(job, &found->clocks);
    cut_add(job, &found->cut);
}

/* --- The servers of the map --- */

static struct inspect_server *server_add(struct inspect_job *job, const char *address)
{
    struct inspect_server *server = &job->servers[job->server_count++];

    server->job = job;
    snprintf(server->address, sizeof(server->address), "%s", address);
    return server;
}

static void map_read(struct inspect_job *job, const struct muster_params_inspection *found)
{
    job->map = found->map;
    job->replicas = found->replicas;
    job->shards = found->shard_count;
    job->short_shards = found->short_shards;
    for (size_t i = 0; i < found->server_count && i < INSPECT_SERVERS_MAX; i++) {
        const struct muster_params_server_state *state = &found->servers[i];
        struct inspect_server *server =
            server_add(job, state->address[0] != '\0' ? state->address : job->asked.address);

        server->id = state->id;
        server->primaries = state->primaries;
        server->replicas = state->replicas;
        server->learning = state->learning;
        server->is_leaving = state->is_leaving;
    }
}

static struct inspect_server *server_of(struct inspect_job *job, const struct muster_incarnation *id)
{
    for (uint32_t i = 0; i < job->server_count; i++) {
        if (muster_incarnation_is_equal(&job->servers[i].id, id))
            return &job->servers[i];
    }
    return NULL;
}

/* --- Questions --- */

static void question_end(struct inspect_server *server, enum muster_rc rc)
{
    server->is_asked = false;
    if (rc != MUSTER_OK)
        server->error = server->question.error;
    if (rc != MUSTER_OK && server->error.rc == MUSTER_OK)
        muster_error_set(&server->error, rc, "%s", muster_rc_text(rc));
}

/* A server that has just come is in no map. */
static void on_first(struct muster_params_inspect *question, enum muster_rc rc)
{
    struct inspect_server *asked = question->data, *server;
    struct inspect_job *job = asked->job;

    question_end(asked, rc);
    if (rc != MUSTER_OK)
        return;
    map_read(job, question->inspection);
    server = server_of(job, &question->inspection->id);
    if (server == NULL && job->server_count < INSPECT_SERVERS_MAX)
        server = server_add(job, asked->address);
    if (server == NULL)
        return;
    server->channel = asked->channel;
    answer_add(server, question->inspection);
    server->answered_ns = muster_loop_now_ns(job->connection.env->loop);
}

/* Another server answers where two have one --reach. */
static bool server_check(struct inspect_server *server,
                         const struct muster_params_inspection *found)
{
    if (muster_incarnation_is_equal(&server->id, &found->id))
        return true;
    muster_error_set(
        &server->error, MUSTER_FAILED_PRECONDITION,
        "another server answers at this address: this one is gone, or both have one --reach");
    return false;
}

static void on_next(struct muster_params_inspect *question, enum muster_rc rc)
{
    struct inspect_server *server = question->data;

    question_end(server, rc);
    if (rc == MUSTER_NOT_FOUND) /* it has no shard of the table, and has not heard of it */
        server->has_answered = true;
    if (rc != MUSTER_OK || !server_check(server, question->inspection))
        return;
    answer_add(server, question->inspection);
    server->answered_ns = muster_loop_now_ns(server->job->connection.env->loop);
}

/* Another process of the server counts from 0. */
static void on_again(struct muster_params_inspect *question, enum muster_rc rc)
{
    struct inspect_server *server = question->data;
    const struct muster_params_inspection *found = question->inspection;
    uint64_t now_ns = muster_loop_now_ns(server->job->connection.env->loop);
    double seconds = (double)(now_ns - server->answered_ns) / (double)MUSTER_NS_PER_S;

    question_end(server, rc);
    if (rc != MUSTER_OK || !(seconds > 0) ||
        !muster_incarnation_is_equal(&server->incarnation, &found->incarnation))
        return;
    server->has_rates = true;
    server->pushed_rows_per_s =
        (double)(found->stats.pushed_rows - server->stats.pushed_rows) / seconds;
    server->pulled_rows_per_s =
        (double)(found->stats.pulled_rows - server->stats.pulled_rows) / seconds;
}

static void server_ask(struct inspect_server *server, struct muster_params_inspect_options options,
                       void *data, muster_params_inspect_fn *done)
{
    struct inspect_job *job = server->job;
    struct muster_env *env = job->connection.env;
    enum muster_rc rc;

    options.deadline_ns = muster_loop_after_ns(env->loop, job->settings->connection.timeout_ns);
    server->question = (struct muster_params_inspect){.data = data};
    server->is_asked = true;
    rc = muster_params_inspect_start(&server->question, env, server->channel, &options, done);
    if (rc != MUSTER_OK)
        question_end(server, rc);
}

static void channel_ask(struct inspect_server *server,
                        const struct muster_params_inspect_options *options)
{
    const struct muster_channel_options channel = {.receive_message_max_bytes = RECEIVE_BYTES_MAX,
                                                   .tls = server->job->connection.tls};

    if (muster_channel_open(server->job->connection.env, server->address, &channel, &server->channel,
                            &server->error) != MUSTER_OK)
        return;
    muster_channel_set_data(server->channel, server);
    server_ask(server, *options, server, on_next);
}

static void answers_await(struct inspect_job *job)
{
    for (uint32_t i = 0; i < job->server_count; i++) {
        while (job->servers[i].is_asked)
            muster_loop_turn(job->connection.env->loop, UINT64_MAX);
    }
}

static void rates_ask(struct inspect_job *job)
{
    const struct muster_params_inspect_options options = {.table = NULL};

    loop_pause(job->connection.env->loop, job->settings->interval_ns);
    for (uint32_t i = 0; i < job->server_count; i++) {
        if (job->servers[i].has_answered && job->servers[i].channel != NULL)
            server_ask(&job->servers[i], options, &job->servers[i], on_again);
    }
    answers_await(job);
}

static void on_closed(struct muster_channel *channel)
{
    struct inspect_server *server = muster_channel_data(channel);

    server->channel = NULL;
}

/* All that was learned is forgotten, but not the connection. */
static void answers_drop(struct inspect_job *job)
{
    for (uint32_t i = 0; i < job->server_count; i++) {
        struct inspect_server *server = &job->servers[i];

        if (server->channel == NULL || server->channel == job->connection.channel)
            continue;
        muster_channel_close(server->channel, on_closed);
        while (server->channel != NULL)
            muster_loop_turn(job->connection.env->loop, UINT64_MAX);
    }
    for (size_t i = 0; i < job->row_count; i++)
        free(job->rows[i].values);
    free(job->rows);
    free(job->tables);
    memset(&job->asked, 0, sizeof(*job) - offsetof(struct inspect_job, asked));
}

static enum muster_rc servers_ask(struct inspect_job *job,
                                  const struct muster_params_inspect_options *options,
                                  struct muster_error *ret_error)
{
    struct inspect_server *asked = &job->asked;

    asked->job = job;
    asked->channel = job->connection.channel;
    snprintf(asked->address, sizeof(asked->address), "%s", job->settings->connection.server);
    server_ask(asked, *options, asked, on_first);
    while (asked->is_asked)
        muster_loop_turn(job->connection.env->loop, UINT64_MAX);
    if (asked->error.rc != MUSTER_OK)
        return params_connection_explain(asked->address, asked->channel,
                                         job->settings->connection.timeout_ns, &asked->error,
                                         ret_error);
    for (uint32_t i = 0; i < job->server_count; i++) {
        if (!job->servers[i].has_answered)
            channel_ask(&job->servers[i], options);
    }
    answers_await(job);
    return job->is_short_of_memory
               ? muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the answers")
               : MUSTER_OK;
}

/* Digests of servers that follow different maps miss shards, or have them twice. */
enum muster_rc inspect_ask(struct inspect_job *job,
                           const struct muster_params_inspect_options *options,
                           struct muster_error *ret_error)
{
    struct muster_loop *loop = job->connection.env->loop;
    uint64_t deadline_ns = muster_loop_after_ns(loop, job->settings->connection.timeout_ns);
    enum muster_rc rc = servers_ask(job, options, ret_error);

    while (rc == MUSTER_OK && options->wants_digest && job->has_moved) {
        if (muster_loop_now_ns(loop) >= deadline_ns)
            return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                    "servers follow different maps of the job, so that no digest "
                                    "is of all rows; ask again when shards have moved and all "
                                    "reach the registry, or without --digest");
        answers_drop(job);
        loop_pause(loop, AGAIN_NS); /* a digest reads all rows */
        rc = servers_ask(job, options, ret_error);
    }
    if (rc == MUSTER_OK && job->settings->interval_ns > 0)
        rates_ask(job);
    return rc;
}

void inspect_free(struct inspect_job *job)
{
    answers_drop(job);
    params_connection_close(&job->connection);
}
