/* Helpers of every sub-command: exit codes, parsing of options, errors. */
#ifndef MUSTER_TOOLS_COMMAND_H
#define MUSTER_TOOLS_COMMAND_H

#include <stdint.h>

#include <muster/env.h>
#include <muster/options.h>
#include <muster/status.h>

/* Shown by `muster help exit-codes`; `muster run` adds those of its workers. */
enum command_exit {
    EXIT_OK = 0,
    EXIT_OTHER = 1,       /* something failed that has no code of its own */
    EXIT_USAGE = 2,       /* unknown command, flag or value */
    EXIT_BAD_INPUT = 3,   /* input data are malformed, or name what does not exist */
    EXIT_UNAVAILABLE = 4, /* a server cannot be reached, an address is taken, time is up */
    EXIT_DENIED = 5,      /* permission denied */
    EXIT_DIFFERENT = 6,   /* workers that ended with 0 have different weights */
    EXIT_NOT_RUNNABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128, /* + the number of the signal */
};

/** The option row of a command that logs: --log-level, into settings' field log_level. */
#define COMMAND_LOG_ROW(settings_type, level)                                                      \
    {                                                                                              \
        .name = "log-level", .variable = "MUSTER_LOG_LEVEL", .kind = MUSTER_OPTION_CHOICE,         \
        .offset = offsetof(settings_type, log_level), .fallback = (level),                         \
        .choices = "error|warn|info|debug|trace", .help = "Log level of standard error."           \
    }

/** The option row of a command that logs: --log-format, into settings' field log_format. */
#define COMMAND_LOG_FORMAT_ROW(settings_type)                                                      \
    {                                                                                              \
        .name = "log-format", .variable = "MUSTER_LOG_FORMAT", .kind = MUSTER_OPTION_CHOICE,       \
        .offset = offsetof(settings_type, log_format), .fallback = "text", .choices = "text|json", \
        .help = "Format of standard error: lines of text, or one JSON object per line."            \
    }

/**
 * Parse argv into *settings. True: go on, *ret_rest is the first argument that is not an
 * option. False: --help was printed or an error reported on standard error; *ret_exit is the exit code.
 */
bool command_parse(const struct muster_options *options, int argc, char **argv, void *settings,
                   int *ret_rest, int *ret_exit);

/** The same, for a command that takes options only. */
bool command_parse_all(const struct muster_options *options, int argc, char **argv, void *settings,
                       int *ret_exit);

/** "COMMAND: what is wrong ('COMMAND --help' shows all options)" on standard error. Returns
 * EXIT_USAGE. */
int command_refuse(const char *command, const char *format, ...) MUSTER_PRINTF(2, 3);

/** Checks of option values, for the field `check` of an option row. */
bool command_check_listen(const char *text, struct muster_error *ret_error);
bool command_check_registry(const char *text, struct muster_error *ret_error);
bool command_check_servers(const char *text, struct muster_error *ret_error);
bool command_check_resolver(const char *text, struct muster_error *ret_error);

/** One of the commands after a word of `muster`. */
struct command_choice {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is its name */
};
/** A word of `muster` that has commands of its own. */
struct command_group {
    const char *name;      /* "params" */
    const char *arguments; /* "NAME [options]" */
    const struct command_choice *choices;
    size_t choice_count;
};
/** Run the command that argv[1] names, or print the list: on standard output where --help asks for it, else on
 * standard error. Returns the exit code. */
int command_choose(const struct command_group *group, int argc, char **argv);

/** "muster NAME: <error>" on standard error. Returns the exit code of the error. */
int command_fail(const char *name, const struct muster_error *error);

/** This process and its children may open count files, more than by default if need be. False: standard
 * error names the limit and how to raise it. */
bool command_has_files(const char *command, uint64_t count);

/** The exit code that stands for rc. */
int command_exit_of(enum muster_rc rc);

#endif
