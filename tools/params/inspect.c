/* muster params inspect: what the servers of a job hold, for people or as JSON. */
#include "params/inspect.h"
#include "params/params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"

#define KEYS_MAX 1000

static const struct muster_option rows[] = {
    {.name = "server",
     .letter = 's',
     .variable = "MUSTER_PARAMS_SERVER",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct inspect_settings, connection.server),
     .value = "HOST:PORT,…",
     .check = command_check_servers,
     .help = "Address of a server, of several of a job any; all others of its job are asked, too. "
             "Required."},
    {.name = "digest",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct inspect_settings, wants_digest),
     .help = "Show a digest of all rows of each table. The server reads every row for it, a few at "
             "a time; the digest is exact when nobody pushes meanwhile."},
    {.name = "timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct inspect_settings, connection.timeout_ns),
     .fallback = "60",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "How long to wait for each answer."},
    {.name = "interval",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct inspect_settings, interval_ns),
     .fallback = "0.2",
     .unit = "s",
     .help = "Time between two questions, for rows per second; 0: no second one."},
    PARAMS_TLS_ROWS(struct inspect_settings),
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct inspect_settings, is_json),
     .help = "Print one line of JSON."},
};

const struct muster_options params_inspect_options = {
    .command = "muster params inspect",
    .usage = "--server HOST:PORT [options] [TABLE [KEY...]]",
    .about = "Show the servers of a job and their tables of parameters, or one table and rows of it.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

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

static bool settings_check(const struct inspect_settings *settings, int *ret_exit)
{
    const char *command = params_inspect_options.command;

    if (settings->connection.server != NULL)
        return params_connection_check(command, &settings->connection, ret_exit);
    *ret_exit = command_refuse(command, "--server must be the address of a server, got none");
    return false;
}

/* Servers that have not answered, or do not take part, are named, whatever is printed. */
static int answers_check(const struct inspect_job *job)
{
    int code = EXIT_OK;

    for (uint32_t i = 0; i < job->server_count; i++) {
        struct muster_error error = job->servers[i].error;

        if (job->servers[i].has_answered && job->servers[i].waits[0] == '\0')
            continue;
        if (job->servers[i].has_answered)
            muster_error_set(&error, MUSTER_UNAVAILABLE, "%s does not take part in its job: %s",
                             job->servers[i].address, job->servers[i].waits);
        else
            muster_error_set(&error, error.rc, "%s: %.160s", job->servers[i].address,
                             job->servers[i].error.text);
        code = command_fail("params inspect", &error);
    }
    return code;
}

static int job_show(struct inspect_job *job, const struct muster_params_inspect_options *options)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc =
        params_connection_open(&job->connection, &job->settings->connection, &error);

    if (rc == MUSTER_OK)
        rc = inspect_ask(job, options, &error);
    if (rc != MUSTER_OK)
        return command_fail("params inspect", &error);
    if (!(job->settings->is_json ? inspect_print_json(job) : inspect_print(job)))
        return EXIT_OTHER;
    return answers_check(job);
}

int params_inspect(int argc, char **argv)
{
    struct inspect_settings settings = {.is_json = false};
    struct muster_params_inspect_options options = {.table = NULL};
    struct inspect_job *job;
    uint64_t keys[KEYS_MAX];
    int rest = argc, code = EXIT_OK;

    if (!command_parse(&params_inspect_options, argc, argv, &settings, &rest, &code) ||
        !settings_check(&settings, &code) ||
        !words_read(argc - rest, argv + rest, &options, keys, &code))
        return code;
    options.wants_digest = settings.wants_digest;
    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        fprintf(stderr, "muster params inspect: no memory\n");
        return EXIT_OTHER;
    }
    job->settings = &settings;
    code = job_show(job, &options);
    inspect_free(job);
    free(job);
    return code;
}
