/* Options as data: one table row says flag, environment variable, default, unit and help. */
#ifndef MUSTER_OPTIONS_H
#define MUSTER_OPTIONS_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

enum muster_option_kind {
    MUSTER_OPTION_FLAG,  /* bool; --x, --no-x, --x=true */
    MUSTER_OPTION_TEXT,  /* const char *, never empty; borrowed from argv, the variable or the table
                         */
    MUSTER_OPTION_TEXTS, /* struct muster_option_texts; the flag may be repeated */
    MUSTER_OPTION_CHOICE,   /* const char *, one of `choices` */
    MUSTER_OPTION_NUMBER,   /* uint64_t in [min, max] */
    MUSTER_OPTION_REAL,     /* double */
    MUSTER_OPTION_DURATION, /* uint64_t ns: "10" counts `unit`, "250ms" itself (ns, us, ms, s, m, h)
                             */
    MUSTER_OPTION_BYTES,    /* uint64_t: "65536", "64K" = "64KiB", "1M", "1G" */
};

#define MUSTER_OPTION_TEXTS_MAX 32

struct muster_option_texts {
    const char *values[MUSTER_OPTION_TEXTS_MAX];
    size_t count;
};

/** Whether text is a value. False: *ret_error says what would be one. */
typedef bool muster_option_check_fn(const char *text, struct muster_error *ret_error);

/** One row. All text is static. */
struct muster_option {
    const char *name;     /* "max-restarts" for --max-restarts; NULL: only the variable */
    char letter;          /* 'n' for -n; 0: none */
    const char *variable; /* environment variable, or NULL */
    enum muster_option_kind kind;
    size_t offset; /* of the value in the settings struct: offsetof(struct settings, field) */
    const char *fallback; /* the default as a user would write it; NULL: the field stays as it is */
    const char *unit;     /* "s", "bytes", "tasks"; a DURATION needs one of its units; NULL: none */
    const char *choices;  /* CHOICE: "auto|shm|tcp" */
    uint64_t min, max;    /* NUMBER, DURATION (ns), BYTES; max 0: no upper bound */
    muster_option_check_fn *check; /* of TEXT and TEXTS; NULL: any */
    const char *value;             /* what help calls the value: "FILE"; NULL: by kind */
    const char *help;              /* a sentence */
};

/** The options of one command. */
struct muster_options {
    const char *command; /* "muster run" */
    const char *usage;   /* "[options] -- PROGRAM [ARGS]" */
    const char *about;   /* a sentence or two */
    const struct muster_option *rows;
    size_t row_count;   /* at most 96 */
    bool stops_at_word; /* options end at the first argument that is none (a program and its
                           arguments) */
};

/**
 * Fill *settings: defaults, then environment variables, then argv[1..argc), where the last of two
 * counts. "--" ends the options. A value that begins with "--" must be written --name=--value.
 * Arguments that are not options are moved after the others; they are argv[*ret_rest..argc), in
 * their order.
 *
 * Owns:    settings borrows text from argv, vars and the table.
 * Errors:  INVALID_ARGUMENT names the culprit ("--max-restart: unknown option; did you mean
 *          --max-restarts?"); CANCELLED: -h or --help was given. *settings is then partly filled.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_options_parse(
    const struct muster_options *options, struct muster_vars *vars, int argc, char **argv,
    void *settings, int *ret_rest, struct muster_error *ret_error);

/** The page of `muster COMMAND --help`. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_options_help(
    const struct muster_options *options, struct muster_mem *mem, char **ret_text,
    size_t *ret_bytes);

/** Every option of every command with variable, default and unit: the page of `muster help
 * options`. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_options_table(
    const struct muster_options *const *commands, size_t command_count, struct muster_mem *mem,
    char **ret_text, size_t *ret_bytes);

/** The nearest of `count` names to `name`, or NULL when none is near. For "did you mean". */
MUSTER_API const char *muster_options_nearest(const char *name, const char *const *names,
                                              size_t count);

/** "250ms" → ns; a bare number counts `unit`. INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_duration_parse(const char *text,
                                                                  const char *unit,
                                                                  uint64_t *ret_ns);
/** "64K" → 65536. INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_bytes_parse(const char *text,
                                                               uint64_t *ret_bytes);

MUSTER_END

#endif
