/* Command lines of the interop programs. */
#include "interop_flags.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_flag(const struct muster_options *options, const char *argument)
{
    if (strncmp(argument, "--", 2) != 0)
        return false;
    for (size_t i = 0; i < options->row_count; i++) {
        const struct muster_option *row = &options->rows[i];

        if (row->kind == MUSTER_OPTION_FLAG && strcmp(row->name, argument + 2) == 0)
            return true;
    }
    return false;
}

/* "--use_tls true" is "--use_tls"; "--use_tls false" says what is so without it. */
static int join_truth(const struct muster_options *options, int argc, char **argv)
{
    int to = 1;

    for (int from = 1; from < argc; from++) {
        bool has_value = from + 1 < argc && is_flag(options, argv[from]);

        if (has_value && strcasecmp(argv[from + 1], "false") == 0) {
            from++;
            continue;
        }
        argv[to++] = argv[from];
        if (has_value && strcasecmp(argv[from + 1], "true") == 0)
            from++;
    }
    return to;
}

static void show_help(const struct muster_options *options)
{
    char *text = NULL;
    size_t bytes = 0;

    if (muster_options_help(options, muster_mem_system(), &text, &bytes) == MUSTER_OK)
        (void)fwrite(text, 1, bytes, stdout);
    muster_mem_free(muster_mem_system(), text);
}

bool interop_flags_parse(const struct muster_options *options, int argc, char **argv,
                         void *settings, int *ret_code)
{
    struct muster_error error;
    int rest = 0;
    enum muster_rc rc;

    argc = join_truth(options, argc, argv);
    rc = muster_options_parse(options, NULL, argc, argv, settings, &rest, &error);
    if (rc == MUSTER_CANCELLED) {
        show_help(options);
        *ret_code = 0;
        return false;
    }
    if (rc == MUSTER_OK && rest < argc)
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT, "%s: no such option", argv[rest]);
    if (rc != MUSTER_OK) {
        fprintf(stderr, "%s: %s\n", options->command, error.text);
        *ret_code = 2;
        return false;
    }
    return true;
}
