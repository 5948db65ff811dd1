/* muster help: the commands, the page of one of them, all options, the exit codes. */
#include "bench/bench.h"
#include "checkpoint/checkpoint.h"
#include "common/command.h"
#include "params/params.h"
#include "serve/registry_files.h"
#include "table/commands.h"

#include <string.h>

/* Codes above 125 are those of a shell (POSIX 2.8.2), because `muster run` stands in for the
 * program that it starts. */
static const char exit_codes[] =
    "Exit codes of muster\n"
    "\n"
    "    0  success; 'muster run': all workers exited with 0\n"
    "    1  a failure that has no code of its own\n"
    "    2  unknown command or option, or an invalid value\n"
    "    3  input data are malformed, or name a job, task or file that does not exist\n"
    "    4  a server cannot be reached, an address or a file is in use or exists already,\n"
    "       or a time limit has passed\n"
    "    5  permission denied\n"
    "    6  'muster run': all workers exited with 0, but their weights differ after the same step\n"
    "   42  'muster run': preempted; the same command goes on (docs/preemption.md)\n"
    "\n"
    "'muster run' exits with the code of the first worker that failed with no restart left:\n"
    "\n"
    "    N      the worker's own exit code\n"
    "    126    the program cannot be executed\n"
    "    127    the program was not found\n"
    "    128+S  signal S killed the worker (137 = SIGKILL), or signal S told 'muster run' itself "
    "to\n"
    "           stop and its workers did not exit with 0 (130 = Ctrl-C, 143 = SIGTERM)\n";

static void print_commands(FILE *file)
{
    fprintf(file,
            "muster " MUSTER_VERSION ": elastic training that survives the death of its workers\n\n"
            "usage: muster COMMAND [options]\n\n");
    for (size_t i = 0; i < command_count; i++)
        fprintf(file, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(file, "\n'muster COMMAND --help' shows the options of a command.\n");
}

static int print_options(void)
{
    const struct muster_options *tables[32] = {
        &bench_allreduce_options,   &bench_recover_options,    &bench_checkpoint_options,
        &bench_join_options,        &bench_scale_options,      &bench_tune_options,
        &bench_params_options,      &bench_publish_options,    &params_cut_options,
        &params_drain_options,      &params_inspect_options,   &params_serve_options,
        &registry_backup_options,   &registry_restore_options, &checkpoint_list_options,
        &checkpoint_verify_options, &checkpoint_show_options,  &checkpoint_export_options,
        &checkpoint_import_options};
    char *text = NULL;
    size_t bytes = 0;
    size_t count = 19;

    for (size_t i = 0; i < command_count && count < sizeof(tables) / sizeof(tables[0]); i++) {
        if (commands[i].options != NULL)
            tables[count++] = commands[i].options;
    }
    if (muster_options_table(tables, count, muster_mem_system(), &text, &bytes) != MUSTER_OK)
        return EXIT_OTHER;
    fwrite(text, 1, bytes, stdout);
    muster_mem_free(muster_mem_system(), text);
    return EXIT_OK;
}

/* 'help COMMAND' is 'COMMAND --help': each command has one page. */
static int print_page(const char *name)
{
    char help[] = "--help";
    char *argv[] = {NULL, help, NULL};

    for (size_t i = 0; i < command_count; i++) {
        if (strcmp(commands[i].name, name) == 0 && commands[i].run != command_help) {
            argv[0] = (char *)(uintptr_t)commands[i].name;
            return commands[i].run(2, argv);
        }
    }
    fprintf(stderr, "muster help: there is no page '%s' ('muster help' shows all commands)\n",
            name);
    return EXIT_USAGE;
}

int command_help(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-' || strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "options") == 0)
        return print_options();
    if (strcmp(argv[1], "exit-codes") == 0) {
        fputs(exit_codes, stdout);
        return EXIT_OK;
    }
    return print_page(argv[1]);
}
