/* `muster bench recover`: its line of JSON. */
#include "bench_recover.h"

#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_quantiles(const char *name, struct recover_samples *samples, const char *end)
{
    if (samples->count == 0)
        printf("\"%s\":null%s", name, end);
    else
        printf("\"%s\":{\"count\":%zu,\"median\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}%s",
               name, samples->count, recover_quantile(samples, 0.5), recover_quantile(samples, 0.9),
               recover_quantile(samples, 0.99), recover_quantile(samples, 1), end);
    free(samples->at);
}

int recover_print(struct recover *run, long restarts, long steps_lost)
{
    struct recover_samples stall = {0}, adopt = {0}, retry = {0}, control = {0};
    double median_ns = recover_quantile(&run->calm_ns, 0.5);
    long survivors_restarted = restarts < 0 ? -1 : restarts - (long)run->attempts;
    size_t adopted, retried;

    for (uint64_t k = 0; k < run->in_op; k++) {
        const struct recover_kill *entry = &run->log[k];

        recover_sample(&stall, (double)entry->stall_ns / 1e6);
        recover_sample(entry->is_adopted ? &adopt : &retry,
                       ((double)entry->duration_ns - median_ns) / 1e6);
    }
    for (size_t i = 0; i < run->calm_ns.count; i++)
        recover_sample(&control, (run->calm_ns.at[i] - median_ns) / 1e6);
    adopted = adopt.count;
    retried = retry.count;
    steps_lost = steps_lost < 0 ? -1 : steps_lost + (long)run->steps_unfinished;
    printf("{\"bench\":\"recover\",\"n\":%u,\"bytes\":%" PRIu64
           ",\"wire\":\"%s\",\"kills\":%" PRIu64 ",\"kills_in_op\":%" PRIu64 ",\"steps\":%" PRIu64
           ",\"seconds\":%.1f,\"undisturbed_ms\":%.3f,\"undisturbed_one_less_ms\":%.3f,",
           run->tasks, run->bytes, run->wire, run->attempts, run->in_op, run->steps,
           (double)(recover_now_ns() - run->started_ns) / 1e9, median_ns / 1e6,
           run->one_less_ns / 1e6);
    print_quantiles("stall_ms", &stall, ",\"overhead_ms\":{");
    print_quantiles("adopt", &adopt, ",");
    print_quantiles("retry", &retry, ",");
    print_quantiles("control", &control, "},");
    printf("\"adopted\":%zu,\"retried\":%zu,\"identical\":%s,\"steps_lost\":%ld,"
           "\"survivors_restarted\":%ld}\n",
           adopted, retried, run->is_different ? "false" : "true", steps_lost, survivors_restarted);
    return !run->is_different && survivors_restarted == 0 && steps_lost == 0 ? EXIT_OK : EXIT_OTHER;
}
