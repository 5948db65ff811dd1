/* muster bench NAME: measurements that anybody can repeat. This file picks the benchmark; help
 * lists those with a summary. */
#include "bench/bench.h"

#include "common/command.h"

#include <stdio.h>
#include <string.h>

static const struct bench benches[] = {
    {"allreduce", "all-reduce between processes of this machine", bench_allreduce},
    {"tune", "time all algorithms and write a table for 'muster run --tune-file'", bench_tune},
    {"scale", "simulate all-reduces among many members with a model of the network", bench_scale},
    {"params", "push to and pull from a server of parameters, and kill it meanwhile", bench_params},
    {"checkpoint", "save a state beside steps, and restore it", bench_checkpoint},
    {"publish", "publish versions to many readers, and kill some of them meanwhile", bench_publish},
    {"publish-reader", NULL, bench_publish_reader},
    {"join", "let a process join workers that train, and measure the cost to them", bench_join},
    {"join-worker", NULL, bench_join_worker},
    {"recover", "kill workers inside an all-reduce and measure the cost to the others",
     bench_recover},
    {"recover-worker", NULL, bench_recover_worker},
};

static void print_benches(FILE *file)
{
    fprintf(file, "usage: muster bench NAME [options]\n\n");
    for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++)
        if (benches[i].summary != NULL)
            fprintf(file, "  %-12s %s\n", benches[i].name, benches[i].summary);
    fprintf(file, "\n'muster bench NAME --help' shows the options of a benchmark.\n");
}

int command_bench(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_benches(stdout);
        return EXIT_OK;
    }
    if (argc >= 2 && strcmp(argv[1], "--tune") == 0)
        return bench_tune(argc - 1, argv + 1);
    for (size_t i = 0; argc >= 2 && i < sizeof(benches) / sizeof(benches[0]); i++)
        if (strcmp(benches[i].name, argv[1]) == 0)
            return benches[i].run(argc - 1, argv + 1);
    if (argc >= 2)
        fprintf(stderr, "muster bench: there is no benchmark '%s'\n", argv[1]);
    print_benches(stderr);
    return EXIT_USAGE;
}
