/* Reading a command line and the environment by an option table. */
#include <muster/options.h>

#include <stdio.h>
#include <string.h>

#include "runtime/options/options_internal.h"

#define CULPRIT_BYTES   72 /* longer arguments are cut in the text of an error */
#define NAME_LENGTH_MAX 48 /* longer words resemble no option */
#define ROWS_MAX        96 /* of the largest table, with room to grow */

/* One run over argv. */
struct reader {
    const struct muster_options *options;
    void *settings;
    struct muster_error *ret_error;
    int argc;
    char **argv;
    int at;   /* the next argument */
    int rest; /* argv[rest..at) are the words seen so far */
    bool is_given[ROWS_MAX];
};

static size_t smallest_of(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

/* Edit distance in which swapped neighbours count once (optimal string alignment). */
static size_t distance_of(const char *a, const char *b)
{
    size_t rows[3][NAME_LENGTH_MAX + 1];
    size_t a_length = strlen(a), b_length = strlen(b);

    if (a_length > NAME_LENGTH_MAX || b_length > NAME_LENGTH_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];

        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = smallest_of(above[j] + 1, row[j - 1] + 1,
                                 above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
        }
    }
    return rows[a_length % 3][b_length];
}

static void keep_nearer(const char *name, const char *candidate, size_t *distance,
                        const char **nearest)
{
    size_t found = distance_of(name, candidate);

    if (found < *distance) {
        *distance = found;
        *nearest = candidate;
    }
}

/* A word is a likely typo if at most a third of its letters, plus one, are wrong. The bound itself
 * is no longer near. */
static size_t tolerance_of(const char *name)
{
    return strlen(name) / 3 + 2;
}

const char *muster_options_nearest(const char *name, const char *const *names, size_t count)
{
    return muster_options_nearest_within(name, names, count, tolerance_of(name) - 1);
}

/* The first one of equals. */
const char *muster_options_nearest_within(const char *name, const char *const *names, size_t count,
                                          size_t distance_max)
{
    size_t distance = distance_max + 1;
    const char *nearest = NULL;

    for (size_t i = 0; i < count; i++)
        keep_nearer(name, names[i], &distance, &nearest);
    return nearest;
}

static enum muster_rc fail_unknown(struct reader *reader, const char *name, size_t length)
{
    char text[NAME_LENGTH_MAX + 1];
    size_t distance;
    const char *nearest = NULL;

    snprintf(text, sizeof(text), "%.*s", (int)length, name);
    distance = tolerance_of(text);
    for (size_t i = 0; i < reader->options->row_count; i++) {
        if (reader->options->rows[i].name != NULL)
            keep_nearer(text, reader->options->rows[i].name, &distance, &nearest);
    }
    if (nearest == NULL)
        return muster_error_set(reader->ret_error, MUSTER_INVALID_ARGUMENT, "--%s: unknown option",
                                text);
    return muster_error_set(reader->ret_error, MUSTER_INVALID_ARGUMENT,
                            "--%s: unknown option; did you mean --%s?", text, nearest);
}

static const struct muster_option *find_name(const struct muster_options *options, const char *name,
                                             size_t length)
{
    for (size_t i = 0; i < options->row_count; i++) {
        const struct muster_option *row = &options->rows[i];

        if (row->name != NULL && strlen(row->name) == length &&
            memcmp(row->name, name, length) == 0)
            return row;
    }
    return NULL;
}

static const struct muster_option *find_letter(const struct muster_options *options, char letter)
{
    for (size_t i = 0; i < options->row_count; i++) {
        if (options->rows[i].letter == letter)
            return &options->rows[i];
    }
    return NULL;
}

/* The first --flag of a repeatable option replaces what the variable or the default gave. */
static void clear_once(struct reader *reader, const struct muster_option *row)
{
    size_t index = (size_t)(row - reader->options->rows);
    void *at = (char *)reader->settings + row->offset;

    if (row->kind == MUSTER_OPTION_TEXTS && !reader->is_given[index])
        ((struct muster_option_texts *)at)->count = 0;
    reader->is_given[index] = true;
}

/* The value follows "=" or the letter, or is the next argument; flags need none. */
static enum muster_rc read_value(struct reader *reader, const struct muster_option *row,
                                 const char *culprit, const char *attached)
{
    if (attached == NULL && row->kind == MUSTER_OPTION_FLAG)
        attached = "true";
    if (attached == NULL) {
        if (reader->at == reader->argc || strncmp(reader->argv[reader->at], "--", 2) == 0)
            return muster_error_set(reader->ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s: must have a value, got none", culprit);
        attached = reader->argv[reader->at++];
    }
    clear_once(reader, row);
    return muster_option_store(row, culprit, attached, reader->settings, reader->ret_error);
}

static enum muster_rc read_long(struct reader *reader, const char *argument)
{
    const char *name = argument + 2;
    const char *equals = strchrnul(name, '=');
    size_t length = (size_t)(equals - name);
    const struct muster_option *row = find_name(reader->options, name, length);
    char culprit[CULPRIT_BYTES];

    if (row == NULL && strcmp(name, "help") == 0)
        return muster_error_set(reader->ret_error, MUSTER_CANCELLED, "help was asked for");
    snprintf(culprit, sizeof(culprit), "--%.*s", (int)length, name);
    if (row == NULL && strncmp(name, "no-", 3) == 0 && *equals == '\0') {
        row = find_name(reader->options, name + 3, length - 3);
        if (row != NULL && row->kind == MUSTER_OPTION_FLAG)
            return read_value(reader, row, culprit, "false");
        row = NULL;
    }
    if (row == NULL)
        return fail_unknown(reader, name, length);
    return read_value(reader, row, culprit, *equals == '=' ? equals + 1 : NULL);
}

/* "-n4", "-n 4", "-n=4" and "-v"; letters do not combine. */
static enum muster_rc read_letter(struct reader *reader, const char *argument)
{
    const struct muster_option *row = find_letter(reader->options, argument[1]);
    const char *attached = argument[2] == '\0' ? NULL : argument + 2;
    char culprit[] = {'-', argument[1], '\0'};

    if (row == NULL && strcmp(argument, "-h") == 0)
        return muster_error_set(reader->ret_error, MUSTER_CANCELLED, "help was asked for");
    if (row == NULL)
        return muster_error_set(reader->ret_error, MUSTER_INVALID_ARGUMENT, "%s: unknown option",
                                argument);
    if (attached != NULL && *attached == '=')
        attached++;
    return read_value(reader, row, culprit, attached);
}

/* Move the arguments argv[from..at) in front of the words argv[rest..from). */
static void move_before_words(struct reader *reader, int from)
{
    for (; from < reader->at; from++, reader->rest++) {
        char *argument = reader->argv[from];
        size_t words = (size_t)(from - reader->rest);

        memmove(&reader->argv[reader->rest + 1], &reader->argv[reader->rest],
                words * sizeof(argument));
        reader->argv[reader->rest] = argument;
    }
}

static enum muster_rc read_arguments(struct reader *reader)
{
    while (reader->at < reader->argc) {
        int from = reader->at;
        const char *argument = reader->argv[reader->at++];
        enum muster_rc rc = MUSTER_OK;

        if (strcmp(argument, "--") == 0) {
            move_before_words(reader, from);
            return MUSTER_OK;
        }
        if (argument[0] != '-' || argument[1] == '\0') { /* "-" is a word: standard input */
            if (reader->options->stops_at_word)
                return MUSTER_OK;
            continue;
        }
        rc = argument[1] == '-' ? read_long(reader, argument) : read_letter(reader, argument);
        if (rc != MUSTER_OK)
            return rc;
        move_before_words(reader, from);
    }
    return MUSTER_OK;
}

/* Defaults and variables come first, so that what the command line says replaces them. An empty
 * variable counts as unset, as in a shell's ${NAME:-default}. */
static enum muster_rc store_defaults(struct reader *reader, struct muster_vars *vars)
{
    for (size_t i = 0; i < reader->options->row_count; i++) {
        const struct muster_option *row = &reader->options->rows[i];
        const char *variable =
            vars == NULL || row->variable == NULL ? NULL : muster_vars_get(vars, row->variable);
        enum muster_rc rc = MUSTER_OK;

        if (variable != NULL && *variable != '\0')
            rc = muster_option_store(row, row->variable, variable, reader->settings,
                                     reader->ret_error);
        else if (row->fallback != NULL)
            rc = muster_option_store(row, row->name, row->fallback, reader->settings,
                                     reader->ret_error);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

enum muster_rc muster_options_parse(const struct muster_options *options, struct muster_vars *vars,
                                    int argc, char **argv, void *settings, int *ret_rest,
                                    struct muster_error *ret_error)
{
    struct reader reader = {
        .options = options,
        .settings = settings,
        .ret_error = ret_error,
        .argc = argc,
        .argv = argv,
        .at = 1,
        .rest = 1,
    };
    enum muster_rc rc;

    MUSTER_ASSERT(options->row_count <= ROWS_MAX);
    rc = store_defaults(&reader, vars);
    if (rc != MUSTER_OK)
        return rc;
    rc = read_arguments(&reader);
    if (rc == MUSTER_OK)
        *ret_rest = reader.rest;
    return rc;
}
