/* Helpers of every sub-command: options parsed, errors reported, exit codes.
 *
 * A command's main function parses with command_parse, ends a wrong command line by command_refuse
 * (exit code 2), and a failure by command_fail, whose exit code follows from the error. So all
 * commands speak and end alike. */
#include "common/command.h"

#include <muster/address.h>
#include <muster/registry.h>
#include <muster/resolver.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void print_help(const struct muster_options *options)
{
    char *text = NULL;
    size_t bytes = 0;

    if (muster_options_help(options, muster_mem_system(), &text, &bytes) == MUSTER_OK)
        fwrite(text, 1, bytes, stdout);
    muster_mem_free(muster_mem_system(), text);
}

int command_refuse(const char *command, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " ('%s --help' shows all options)\n", command);
    return EXIT_USAGE;
}

bool command_check_listen(const char *text, struct muster_error *ret_error)
{
    struct muster_address address;

    if (muster_address_parse_listen(text, &address, NULL) == MUSTER_OK)
        return true;
    muster_error_set(
        ret_error, MUSTER_INVALID_ARGUMENT,
        "must be an address such as 127.0.0.1:2379, [::1]:2379 or :2379, got \"%.80s\"", text);
    return false;
}

bool command_check_registry(const char *text, struct muster_error *ret_error)
{
    struct muster_error error;

    if (muster_registry_endpoints_check(text, &error) == MUSTER_OK)
        return true;
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                     "%s; write HOST:PORT or https://HOST:PORT, and commas between several",
                     error.text);
    return false;
}

/* HOST:PORT as a registry's endpoints, without their schemes. */
bool command_check_servers(const char *text, struct muster_error *ret_error)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_INVALID_ARGUMENT, "\"%.80s\" has a scheme", text);
    if (strstr(text, "://") == NULL && muster_registry_endpoints_check(text, &error) == MUSTER_OK)
        return true;
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s; write HOST:PORT, and commas between several",
                     error.text);
    return false;
}

bool command_check_resolver(const char *text, struct muster_error *ret_error)
{
    return muster_resolver_uri_check(text, ret_error) == MUSTER_OK;
}

bool command_parse(const struct muster_options *options, int argc, char **argv, void *settings,
                   int *ret_rest, int *ret_exit)
{
    struct muster_error error = {0};
    enum muster_rc rc =
        muster_options_parse(options, muster_vars_system(), argc, argv, settings, ret_rest, &error);

    if (rc == MUSTER_OK)
        return true;
    if (rc == MUSTER_CANCELLED) {
        print_help(options);
        *ret_exit = EXIT_OK;
        return false;
    }
    *ret_exit = command_refuse(options->command, "%s", error.text);
    return false;
}

bool command_parse_all(const struct muster_options *options, int argc, char **argv, void *settings,
                       int *ret_exit)
{
    int rest = argc;

    if (!command_parse(options, argc, argv, settings, &rest, ret_exit))
        return false;
    if (rest == argc)
        return true;
    *ret_exit = command_refuse(options->command,
                               "the command line must hold options only, got the argument '%s'",
                               argv[rest]);
    return false;
}

/* Exit codes are few, since scripts compare with them: several codes of muster stand for one. */
int command_exit_of(enum muster_rc rc)
{
    switch (rc) {
    case MUSTER_OK:
        return EXIT_OK;
    case MUSTER_INVALID_ARGUMENT:
    case MUSTER_NOT_FOUND:
    case MUSTER_OUT_OF_RANGE:
    case MUSTER_DATA_LOSS:
        return EXIT_BAD_INPUT;
    case MUSTER_UNAVAILABLE:
    case MUSTER_DEADLINE_EXCEEDED:
    case MUSTER_ALREADY_EXISTS:
        return EXIT_UNAVAILABLE;
    case MUSTER_PERMISSION_DENIED:
    case MUSTER_UNAUTHENTICATED:
        return EXIT_DENIED;
    default:
        return EXIT_OTHER;
    }
}

int command_fail(const char *name, const struct muster_error *error)
{
    fprintf(stderr, "muster %s: %s\n", name,
            error->text[0] != '\0' ? error->text : muster_rc_text(error->rc));
    return command_exit_of(error->rc);
}

/* The soft limit is raised as far as needed, for this process and its children: the shell's is
 * often 1,024. */
bool command_has_files(const char *command, uint64_t count)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count)
        return true;
    if (limit.rlim_max >= count) {
        limit.rlim_cur = (rlim_t)count;
        if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
            return true;
    }
    fprintf(stderr,
            "%s: it needs up to %llu open files per process, and the limit is %llu; raise it: "
            "ulimit -n %llu\n",
            command, (unsigned long long)count, (unsigned long long)limit.rlim_max,
            (unsigned long long)count);
    return false;
}
