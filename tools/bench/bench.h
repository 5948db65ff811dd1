/* The benchmarks of `muster bench`, one file each. */
#ifndef MUSTER_TOOLS_BENCH_H
#define MUSTER_TOOLS_BENCH_H

#include <muster/options.h>

/** One benchmark; argv[0] is its name. Returns the exit code. */
struct bench {
    const char *name;
    const char *summary; /* NULL: not for people, a part of another */
    int (*run)(int argc, char **argv);
};

int bench_allreduce(int argc, char **argv);
extern const struct muster_options bench_allreduce_options;
int bench_scale(int argc, char **argv);
extern const struct muster_options bench_scale_options;
int bench_tune(int argc, char **argv);
extern const struct muster_options bench_tune_options;
int bench_params(int argc, char **argv);
extern const struct muster_options bench_params_options;
int bench_publish(int argc, char **argv);
extern const struct muster_options bench_publish_options;
/** A reader of `muster bench publish`. */
int bench_publish_reader(int argc, char **argv);
/** Alone, or as the program of `muster run`. */
int bench_checkpoint(int argc, char **argv);
extern const struct muster_options bench_checkpoint_options;
int bench_join(int argc, char **argv);
extern const struct muster_options bench_join_options;
/** The worker program of `muster bench join`. */
int bench_join_worker(int argc, char **argv);
int bench_recover(int argc, char **argv);
extern const struct muster_options bench_recover_options;
/** The worker program of `muster bench recover`. */
int bench_recover_worker(int argc, char **argv);

/** `muster bench`: runs one of them. */
int command_bench(int argc, char **argv);

#endif
