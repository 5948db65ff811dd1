/* muster params inspect: what a server holds, for people or as JSON. */
#include "params/params.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/hash.h>
#include <muster/json.h>
#include <muster/params_inspect.h>

#include "common/command.h"
#include "common/output.h"
#include "params/connection.h"

#define KEYS_MAX         1000
#define VALUES_SHOWN_MAX 8u /* of a row, to people */
#define OPTIMIZER_WIDTH  11 /* row_adagrad is the longest name */

struct settings {
    struct params_connection_settings connection;
    bool wants_digest, is_json;
};

static const struct muster_option rows[] = {
    {.name = "server",
     .letter = 's',
     .variable = "MUSTER_PARAMS_SERVER",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, connection.server),
     .value = "HOST:PORT",
     .help = "Address of the server; required."},
    {.name = "digest",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, wants_digest),
     .help = "Show a digest of all rows of each table. The server reads every row for it, a few at "
             "a time; the digest is exact when nobody pushes meanwhile."},
    {.name = "timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, connection.timeout_ns),
     .fallback = "60",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "How long to wait for the answer."},
    PARAMS_TLS_ROWS(struct settings),
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one line of JSON."},
};

static const struct muster_options params_inspect_options = {
    .command = "muster params inspect",
    .usage = "--server HOST:PORT [options] [TABLE [KEY...]]",
    .about = "Show the tables of a server of parameters, or one table and rows of it.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

/* The answer is borrowed until this returns, so it is printed here. */
struct asker {
    const struct settings *settings;
    struct params_connection connection;
    struct muster_params_inspect inspect;
    bool is_done;
    enum muster_rc rc;
    bool is_printed;
};

/* --- For people --- */

static void table_print(const struct muster_params_table_state *table, int width)
{
    char digest[2 * MUSTER_PARAMS_DIGEST_BYTES + 1];

    printf("%-*s  %12" PRIu64 "  %8u  %9u  %-4s  ", width, table->name, table->rows,
           table->row_elements, table->row_bytes, muster_dtype_name(table->wire_dtype));
    if (table->has_digest)
        printf("%-*s  %s\n", OPTIMIZER_WIDTH, muster_params_optimizer_name(table->optimizer),
               muster_hash128_format(table->digest, digest));
    else
        printf("%s\n", muster_params_optimizer_name(table->optimizer));
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

static bool people_print(const struct asker *asker, const struct muster_params_inspection *found)
{
    const struct muster_params_stats *stats = &found->stats;
    size_t width = strlen("TABLE");

    printf("%s: %" PRIu64 " rows in %.1f of %.1f MiB, %u shards, %u sources, %u links\n",
           asker->settings->connection.server, stats->rows, (double)stats->memory_bytes / (1 << 20),
           (double)stats->memory_max_bytes / (1 << 20), found->shard_count, stats->sources,
           stats->clients);
    printf("since its start: %" PRIu64 " pushes of %" PRIu64 " rows, %" PRIu64 " pulls of %" PRIu64
           " rows, %" PRIu64 " repeated runs, %" PRIu64 " refused rows\n",
           stats->pushes, stats->pushed_rows, stats->pulls, stats->pulled_rows,
           stats->duplicate_runs, stats->refused_rows);
    for (size_t i = 0; i < found->table_count; i++) {
        size_t length = strlen(found->tables[i].name);

        width = length > width ? length : width;
    }
    if (found->table_count > 0)
        printf("\n%-*s  %12s  %8s  %9s  %-4s  %s\n", (int)width, "TABLE", "ROWS", "ELEMENTS",
               "ROW BYTES", "TYPE",
               asker->settings->wants_digest ? "OPTIMIZER    DIGEST" : "OPTIMIZER");
    for (size_t i = 0; i < found->table_count; i++)
        table_print(&found->tables[i], (int)width);
    if (found->row_count > 0)
        printf("\n%20s  %7s  %7s  %s\n", "KEY", "PUSHES", "CLOCK", "VALUES");
    for (size_t i = 0; i < found->row_count; i++)
        row_print(&found->rows[i]);
    return output_flush();
}

/* --- As JSON --- */

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

static struct muster_json *server_new(const struct asker *asker,
                                      const struct muster_params_inspection *found)
{
    const struct muster_params_stats *stats = &found->stats;
    char incarnation[MUSTER_INCARNATION_TEXT_BYTES];
    struct muster_json *server = muster_json_object_new();

    muster_incarnation_format(&found->incarnation, incarnation);
    if (muster_json_set(server, "address",
                        muster_json_text_new(asker->settings->connection.server)) &&
        muster_json_set(server, "incarnation", muster_json_text_new(incarnation)) &&
        muster_json_set(server, "rows", number_new(stats->rows)) &&
        muster_json_set(server, "memory_bytes", number_new(stats->memory_bytes)) &&
        muster_json_set(server, "memory_max_bytes", number_new(stats->memory_max_bytes)) &&
        muster_json_set(server, "links", number_new(stats->clients)) &&
        muster_json_set(server, "pushes", number_new(stats->pushes)) &&
        muster_json_set(server, "pulls", number_new(stats->pulls)) &&
        muster_json_set(server, "pushed_rows", number_new(stats->pushed_rows)) &&
        muster_json_set(server, "pulled_rows", number_new(stats->pulled_rows)) &&
        muster_json_set(server, "duplicate_runs", number_new(stats->duplicate_runs)) &&
        muster_json_set(server, "refused_rows", number_new(stats->refused_rows)))
        return server;
    muster_json_free(server);
    return NULL;
}

static struct muster_json *table_new(const struct muster_params_table_state *state)
{
    const char *optimizer = muster_params_optimizer_name(state->optimizer);
    char digest[2 * MUSTER_PARAMS_DIGEST_BYTES + 1];
    struct muster_json *table = muster_json_object_new();

    if (muster_json_set(table, "name", muster_json_text_new(state->name)) &&
        muster_json_set(table, "rows", number_new(state->rows)) &&
        muster_json_set(table, "row_elements", number_new(state->row_elements)) &&
        muster_json_set(table, "row_bytes", number_new(state->row_bytes)) &&
        muster_json_set(table, "dtype",
                        muster_json_text_new(muster_dtype_name(state->wire_dtype))) &&
        muster_json_set(table, "optimizer", muster_json_text_new(optimizer)) &&
        (!state->has_digest ||
         muster_json_set(table, "digest",
                         muster_json_text_new(muster_hash128_format(state->digest, digest)))))
        return table;
    muster_json_free(table);
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

static bool lists_set(struct muster_json *root, const struct muster_params_inspection *found)
{
    struct muster_json *tables = muster_json_array_new(), *shown = muster_json_array_new();
    bool is_made = true;

    for (size_t i = 0; i < found->table_count; i++)
        is_made = muster_json_append(tables, table_new(&found->tables[i])) && is_made;
    for (size_t i = 0; i < found->row_count; i++)
        is_made = muster_json_append(shown, row_new(&found->rows[i])) && is_made;
    is_made = muster_json_set(root, "tables", tables) && is_made;
    if (found->row_count > 0)
        return muster_json_set(root, "rows", shown) && is_made;
    muster_json_free(shown);
    return is_made;
}

static bool json_print(const struct asker *asker, const struct muster_params_inspection *found)
{
    struct muster_json *root = muster_json_object_new();
    struct muster_json *servers = muster_json_array_new(), *sources = muster_json_object_new();
    char *text = NULL;
    bool is_made = muster_json_append(servers, server_new(asker, found));

    is_made = muster_json_set(sources, "open", number_new(found->stats.sources)) && is_made;
    is_made = muster_json_set(root, "shards", number_new(found->shard_count)) && is_made;
    is_made = muster_json_set(root, "servers", servers) && is_made;
    is_made = lists_set(root, found) && is_made;
    is_made = muster_json_set(root, "sources", sources) && is_made;
    is_made =
        is_made && muster_json_format(root, false, asker->connection.env->mem, &text) == MUSTER_OK;
    if (is_made)
        puts(text);
    muster_mem_free(asker->connection.env->mem, text);
    muster_json_free(root);
    return is_made && output_flush();
}

/* --- The question --- */

static void on_inspected(struct muster_params_inspect *inspect, enum muster_rc rc)
{
    struct asker *asker = inspect->data;

    asker->is_done = true;
    asker->rc = rc;
    if (rc == MUSTER_OK)
        asker->is_printed = asker->settings->is_json ? json_print(asker, inspect->inspection)
                                                     : people_print(asker, inspect->inspection);
}

static enum muster_rc question_ask(struct asker *asker,
                                   struct muster_params_inspect_options *options,
                                   struct muster_error *ret_error)
{
    struct muster_loop *loop = asker->connection.env->loop;
    enum muster_rc rc;

    options->deadline_ns = muster_loop_after_ns(loop, asker->settings->connection.timeout_ns);
    asker->inspect.data = asker;
    rc = muster_params_inspect_start(&asker->inspect, asker->connection.env,
                                     asker->connection.channel, options, on_inspected);
    while (rc == MUSTER_OK && !asker->is_done)
        muster_loop_turn(loop, UINT64_MAX);
    if (rc == MUSTER_OK)
        rc = asker->rc;
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "%s: %s", asker->settings->connection.server,
                         asker->inspect.error.text);
    return rc;
}

/* --- The command line --- */

/* Keys are numbers as C writes them: 10, 0x0a. */
static bool key_parse(const char *text, uint64_t *ret_key)
{
    char *end = NULL;

    errno = 0;
    *ret_key = strtoull(text, &end, 0);
    return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0';
}

static bool words_read(int count, char **words, struct muster_params_inspect_options *options,
                       uint64_t keys[KEYS_MAX], int *ret_exit)
{
    const char *command = params_inspect_options.command;

    if (count > KEYS_MAX + 1) {
        *ret_exit = command_refuse(command, "at most %d keys are shown at a time, got %d", KEYS_MAX,
                                   count - 1);
        return false;
    }
    for (int i = 1; i < count; i++) {
        if (key_parse(words[i], &keys[i - 1]))
            continue;
        *ret_exit = command_refuse(command, "a key must be a number from 0 to 2^64 - 1, got '%s'",
                                   words[i]);
        return false;
    }
    options->table = count > 0 ? words[0] : NULL;
    options->keys = keys;
    options->key_count = count > 1 ? (size_t)count - 1 : 0;
    return true;
}

static bool settings_check(const struct settings *settings, int *ret_exit)
{
    const char *command = params_inspect_options.command;

    if (settings->connection.server != NULL)
        return params_connection_check(command, &settings->connection, ret_exit);
    *ret_exit = command_refuse(command, "--server must be the address of a server, got none");
    return false;
}

int params_inspect(int argc, char **argv)
{
    struct settings settings = {.is_json = false};
    struct muster_params_inspect_options options = {.table = NULL};
    struct asker asker = {.settings = &settings};
    struct muster_error error = {.rc = MUSTER_OK};
    uint64_t keys[KEYS_MAX];
    int rest = argc, code = EXIT_OK;
    enum muster_rc rc;

    if (!command_parse(&params_inspect_options, argc, argv, &settings, &rest, &code) ||
        !settings_check(&settings, &code) ||
        !words_read(argc - rest, argv + rest, &options, keys, &code))
        return code;
    options.wants_digest = settings.wants_digest;
    rc = params_connection_open(&asker.connection, &settings.connection, &error);
    if (rc == MUSTER_OK)
        rc = question_ask(&asker, &options, &error);
    if (rc != MUSTER_OK)
        code = command_fail("params inspect", &error);
    else if (!asker.is_printed)
        code = EXIT_OTHER;
    params_connection_close(&asker.connection);
    return code;
}
