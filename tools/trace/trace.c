/* muster trace: files of the flight recorder, merged into one trace.
 *
 * All files are read before anything is written, so that one that cannot be read leaves no half
 * trace. */
#include "trace/trace.h"

#include "common/command.h"
#include "common/output.h"

#include <muster/env.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    const char *output;
    bool is_kinds;
};

static const struct muster_option rows[] = {
    {.name = "output",
     .letter = 'o',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, output),
     .value = "OUT.json",
     .help = "File of the trace; standard output by default."},
    {.name = "kinds",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_kinds),
     .help = "List the kinds of events and the meaning of their numbers."},
};

const struct muster_options trace_options = {
    .command = "muster trace",
    .usage = "FILE… [--output OUT.json]",
    .about = "Merge flight recorder files, which members write when they end with an error, into "
             "one trace for ui.perfetto.dev or chrome://tracing: one process per life of a member, "
             "by wall clock.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static void print_kinds(void)
{
    size_t count;
    const struct muster_trace_kind *kinds = muster_trace_kinds(&count);

    for (size_t i = 0; i < count; i++) {
        const char *const *numbers = kinds[i].numbers;

        printf("%s:", kinds[i].name);
        for (size_t k = 0; k < 3; k++)
            if (numbers[k][0] != '\0')
                printf(" %s", numbers[k]);
        if (kinds[i].text[0] != '\0')
            printf(" %s", kinds[i].text);
        printf(": %s\n", kinds[i].meaning);
    }
}

static bool write_text(const char *path, const char *text, size_t bytes)
{
    enum muster_rc rc;

    if (path == NULL || strcmp(path, "-") == 0) {
        fwrite(text, 1, bytes, stdout);
        return output_flush();
    }
    rc = muster_files_write(muster_files_system(), path, text, bytes);
    if (rc != MUSTER_OK)
        fprintf(stderr, "muster trace: cannot write %s: %s\n", path, output_error_text(errno));
    return rc == MUSTER_OK;
}

static int merge_files(char **paths, size_t count, const struct settings *settings)
{
    struct trace_file *files = calloc(count, sizeof(files[0]));
    struct muster_error error = {.rc = MUSTER_OK};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    enum muster_rc rc = files != NULL && out != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
    int code;

    error.rc = rc;
    for (size_t i = 0; rc == MUSTER_OK && i < count; i++)
        rc = trace_file_read(paths[i], &files[i], &error);
    if (rc == MUSTER_OK)
        rc = trace_merge(files, count, out, &error);
    if (out != NULL && fclose(out) != 0 && rc == MUSTER_OK)
        rc = muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc != MUSTER_OK)
        code = command_fail("trace", &error);
    else
        code = write_text(settings->output, text, bytes) ? EXIT_OK : EXIT_OTHER;
    free(text);
    for (size_t i = 0; files != NULL && i < count; i++)
        trace_file_free(&files[i]);
    free(files);
    return code;
}

int command_trace(int argc, char **argv)
{
    struct settings settings = {.output = NULL};
    int rest = argc, code = EXIT_OK;

    if (!command_parse(&trace_options, argc, argv, &settings, &rest, &code))
        return code;
    if (settings.is_kinds && rest == argc) {
        print_kinds();
        return output_flush() ? EXIT_OK : EXIT_OTHER;
    }
    if (settings.is_kinds)
        return command_refuse("muster trace", "--kinds must stand alone, got a file as well");
    if (rest == argc)
        return command_refuse("muster trace",
                              "at least one file of the flight recorder must be given, such as "
                              "JOB-worker-1-0123abcd.trace.jsonl");
    return merge_files(argv + rest, (size_t)(argc - rest), &settings);
}
