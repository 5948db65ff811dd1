/* muster bench checkpoint: what a checkpoint costs the steps beside it, and how fast it is restored. Alone, or as
 * the program of `muster run`: then each worker has the whole state, and writes and reads its part of the file. */
#include "bench/bench.h"

#include "bench/samples.h"
#include "common/command.h"
#include "common/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <muster/strategy.h>
#include <muster/strategy_checkpoint.h>

struct settings {
    const char *folder;
    uint64_t bytes, compute_ns, steps, rounds, copy_max;
    bool is_restore;
};

static const struct muster_option rows[] = {
    {.name = "folder",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, folder),
     .value = "DIR",
     .help = "An empty folder on the disk that is measured; the last checkpoint stays there."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, bytes),
     .fallback = "1G",
     .min = 1 << 20,
     .max = UINT64_MAX,
     .help = "Size of the state."},
    {.name = "compute",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, compute_ns),
     .fallback = "500ms",
     .unit = "s",
     .help = "Computing in each step, before the state is updated: one pass over all of it."},
    {.name = "steps",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, steps),
     .fallback = "10",
     .min = 2,
     .max = 1000000,
     .help = "Steps without a checkpoint, to compare with, before each checkpoint."},
    {.name = "rounds",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, rounds),
     .fallback = "3",
     .min = 1,
     .max = 1000,
     .help = "How many checkpoints are made."},
    {.name = "copy-max",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, copy_max),
     .fallback = "0",
     .max = UINT64_MAX,
     .help = "Memory for copies of what is not written yet; 0: as much as a worker's part."},
    {.name = "restore",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_restore),
     .help = "Restore what an earlier run has left in the folder, and save nothing: by any number "
             "of workers of `muster run`, with the same --bytes."},
};

const struct muster_options bench_checkpoint_options = {
    .command = "muster bench checkpoint",
    .usage = "--folder DIR [--bytes BYTES] [--compute TIME] [--restore]",
    .about =
        "Save a state beside steps that compute and then update all of it, or restore it. One JSON "
        "object: by how much the steps beside a checkpoint take longer, in percent, and bytes per "
        "second.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct bench_checkpoint {
    const struct settings *settings;
    struct muster_strategy *strategy;
    struct muster_tensor state;
    uint64_t step;
    struct bench_samples plain_s, beside_s, stall_s, save_s;
    double copied_bytes, new_bytes, part_bytes, restore_s;
    struct muster_error error;
};

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static volatile double sink;

static void time_spend(uint64_t ns)
{
    double end_s = now_s() + (double)ns * 1e-9, x = 1;

    while (now_s() < end_s)
        for (unsigned i = 0; i < 10000; i++)
            x = x * 1.0000001 + 1e-9;
    sink = x;
}

static enum muster_rc strategy_fail(struct bench_checkpoint *bench, enum muster_rc rc)
{
    return rc == MUSTER_OK ? rc
                           : muster_error_set(&bench->error, rc, "%s",
                                              muster_strategy_error(bench->strategy)->text);
}

static enum muster_rc strategy_begin(struct bench_checkpoint *bench, bool is_restored)
{
    enum muster_rc rc = muster_strategy_open(NULL, &bench->strategy, &bench->error);

    if (rc != MUSTER_OK)
        return rc;
    bench->state = (struct muster_tensor){.count = bench->settings->bytes / sizeof(uint64_t),
                                          .dtype = MUSTER_U64};
    bench->state.data = calloc((size_t)bench->state.count, sizeof(uint64_t));
    if (bench->state.data == NULL)
        return muster_error_set(&bench->error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for the state");
    memset(bench->state.data, 1,
           (size_t)bench->state.count * sizeof(uint64_t)); /* its pages are there */
    rc = muster_strategy_register(bench->strategy, "state", &bench->state);
    if (rc == MUSTER_OK && !is_restored)
        rc = muster_strategy_checkpoint_prepare(bench->strategy, bench->settings->copy_max);
    if (rc == MUSTER_OK && is_restored)
        rc = muster_strategy_restore(bench->strategy, bench->settings->folder);
    return strategy_fail(bench, rc);
}

static void strategy_end(struct bench_checkpoint *bench)
{
    struct muster_strategy *strategy = bench->strategy;

    bench->strategy = NULL;
    muster_strategy_close(strategy);
    free(bench->state.data);
    bench->state.data = NULL;
}

/* Compute, reduce a little, update all of the state. */
static enum muster_rc step_do(struct bench_checkpoint *bench, bool is_saved, double *ret_s)
{
    const struct muster_strategy_checkpoint_options options = {.folder = bench->settings->folder,
                                                               .keep_count = 1,
                                                               .copy_bytes_max =
                                                                   bench->settings->copy_max};
    struct muster_strategy *strategy = bench->strategy;
    double loss = 1, begun_s = now_s();
    struct muster_tensor gradient = {.data = &loss, .count = 1, .dtype = MUSTER_F64};
    uint64_t *values = bench->state.data;
    enum muster_rc rc = muster_strategy_begin(strategy, &bench->step, NULL);

    if (rc == MUSTER_OK && is_saved)
        rc = muster_strategy_checkpoint_start(strategy, &options);
    time_spend(bench->settings->compute_ns);
    if (rc == MUSTER_OK)
        rc = muster_strategy_all_reduce(strategy, &gradient, 1, MUSTER_MEAN);
    if (rc == MUSTER_OK)
        rc = muster_strategy_update_begin(strategy);
    for (uint64_t i = 0; i < bench->state.count && rc == MUSTER_OK; i++)
        values[i] = values[i] * 3 + bench->step;
    if (rc == MUSTER_OK)
        rc = muster_strategy_commit(strategy);
    *ret_s = now_s() - begun_s;
    return strategy_fail(bench, rc);
}

/* Steps beside a checkpoint: until it is whole on all members, which go on together. */
static enum muster_rc round_do(struct bench_checkpoint *bench)
{
    struct muster_strategy_checkpoint_result result = {.is_running = true};
    enum muster_rc rc = MUSTER_OK;
    double s = 0;
    uint64_t is_running = 1;
    struct muster_tensor any = {.data = &is_running, .count = 1, .dtype = MUSTER_U64};

    for (uint64_t i = 0; i < bench->settings->steps && rc == MUSTER_OK; i++) {
        rc = step_do(bench, false, &s);
        if (i > 0) /* caches and pages settle in the first */
            bench_samples_add(&bench->plain_s, s);
    }
    for (bool is_first = true; rc == MUSTER_OK && is_running != 0; is_first = false) {
        rc = step_do(bench, is_first, &s);
        bench_samples_add(&bench->beside_s, s);
        muster_strategy_checkpoint_result(bench->strategy, &result);
        is_running = result.is_running;
        if (rc == MUSTER_OK)
            rc = strategy_fail(bench, muster_strategy_begin(bench->strategy, &bench->step, NULL));
        if (rc == MUSTER_OK)
            rc = strategy_fail(bench,
                               muster_strategy_all_reduce(bench->strategy, &any, 1, MUSTER_MAX));
        if (rc == MUSTER_OK)
            rc = strategy_fail(bench, muster_strategy_update_begin(bench->strategy));
        if (rc == MUSTER_OK)
            rc = strategy_fail(bench, muster_strategy_commit(bench->strategy));
    }
    if (rc == MUSTER_OK && result.rc != MUSTER_OK)
        rc = muster_error_set(&bench->error, result.rc, "%s", result.text);
    bench_samples_add(&bench->stall_s, (double)result.stall_ns * 1e-9);
    bench_samples_add(&bench->save_s, (double)result.duration_ns * 1e-9);
    bench->copied_bytes = (double)result.copied_bytes;
    bench->new_bytes += (double)result.new_bytes;
    bench->part_bytes = (double)result.bytes;
    return rc;
}

static enum muster_rc restore_do(struct bench_checkpoint *bench)
{
    enum muster_rc rc = strategy_begin(bench, true);
    double begun_s = now_s();
    bool is_restored = false;

    if (rc == MUSTER_OK)
        rc = strategy_fail(bench,
                           muster_strategy_begin(bench->strategy, &bench->step, &is_restored));
    bench->restore_s = now_s() - begun_s;
    if (rc == MUSTER_OK && !is_restored)
        rc = muster_error_set(&bench->error, MUSTER_DATA_LOSS, "nothing was restored");
    return rc;
}

static double mean_of(const struct bench_samples *samples)
{
    double sum = 0;

    for (size_t i = 0; i < samples->count; i++)
        sum += samples->at[i];
    return samples->count > 0 ? sum / (double)samples->count : 0;
}

static void saved_print(struct bench_checkpoint *bench)
{
    double plain_s = mean_of(&bench->plain_s), beside_s = mean_of(&bench->beside_s);
    double save_s = bench_samples_quantile(&bench->save_s, 0.5);

    printf("{\"bench\":\"checkpoint\",\"bytes\":%" PRIu64
           ",\"part_bytes\":%.0f,\"compute_ms\":%.1f,\"step_ms\":%.3f,\"compute_percent\":%.1f,"
           "\"beside_ms\":%.3f,\"beside_steps\":%zu,\"stalled_percent\":%.2f,\"stall_ms\":%.3f,"
           "\"copied_bytes\":%.0f,\"new_bytes\":%.0f,\"save_s\":%.3f,\"save_bytes_per_s\":%.0f}\n",
           bench->settings->bytes, bench->part_bytes, (double)bench->settings->compute_ns * 1e-6,
           plain_s * 1e3, 100 * (double)bench->settings->compute_ns * 1e-9 / plain_s,
           beside_s * 1e3, bench->beside_s.count, 100 * (beside_s - plain_s) / plain_s,
           bench_samples_quantile(&bench->stall_s, 0.5) * 1e3, bench->copied_bytes,
           bench->new_bytes, save_s, (double)bench->settings->bytes / save_s);
}

static void restored_print(const struct bench_checkpoint *bench)
{
    printf("{\"bench\":\"checkpoint\",\"bytes\":%" PRIu64
           ",\"members\":%u,\"restore_s\":%.3f,\"restore_bytes_per_s\":%.0f}\n",
           bench->settings->bytes, muster_strategy_size(bench->strategy), bench->restore_s,
           (double)bench->settings->bytes / bench->restore_s);
}

int bench_checkpoint(int argc, char **argv)
{
    struct settings settings = {.folder = NULL};
    struct bench_checkpoint bench = {.settings = &settings};
    enum muster_rc rc;
    int code;

    if (!command_parse_all(&bench_checkpoint_options, argc, argv, &settings, &code))
        return code;
    if (settings.folder == NULL)
        return command_refuse("muster bench checkpoint", "--folder must be given");
    rc = settings.is_restore ? restore_do(&bench) : strategy_begin(&bench, false);
    for (uint64_t i = 0; i < settings.rounds && rc == MUSTER_OK && !settings.is_restore; i++)
        rc = round_do(&bench);
    if (rc == MUSTER_OK && settings.is_restore)
        restored_print(&bench);
    else if (rc == MUSTER_OK)
        saved_print(&bench);
    strategy_end(&bench);
    free(bench.plain_s.at);
    free(bench.beside_s.at);
    free(bench.stall_s.at);
    free(bench.save_s.at);
    if (rc != MUSTER_OK)
        return command_fail("bench checkpoint", &bench.error);
    return output_flush() ? EXIT_OK : EXIT_OTHER;
}
