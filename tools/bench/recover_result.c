/* `muster bench recover`: its line of JSON, and the verdict: results that differ, lost steps,
 * restarted survivors or another transport than the one asked for fail the benchmark. */
#include "bench/recover.h"

#include "common/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_quantiles(const char *name, struct bench_samples *samples, const char *end)
{
    if (samples->count == 0)
        printf("\"%s\":null%s", name, end);
    else
        printf("\"%s\":{\"count\":%zu,\"median\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}%s",
               name, samples->count, bench_samples_quantile(samples, 0.5),
               bench_samples_quantile(samples, 0.9), bench_samples_quantile(samples, 0.99),
               bench_samples_quantile(samples, 1), end);
    free(samples->at);
}

/* Samples over all kills. */
struct sums {
    struct bench_samples stall, all, adopt, retry, control;
    size_t shm, adopted, retried;
    size_t retried_issued; /* although all members had started it well before */
};

/* The overhead is the duration less the median of undisturbed operations; those themselves are the
 * control. */
static void add_up(struct sums *sums, const struct recover *run, double median_ns)
{
    for (uint64_t k = 0; k < run->in_op; k++) {
        const struct recover_kill *entry = &run->log[k];
        double overhead_ms = ((double)entry->duration_ns - median_ns) / 1e6;

        bench_samples_add(&sums->stall, (double)entry->stall_ns / 1e6);
        bench_samples_add(&sums->all, overhead_ms);
        bench_samples_add(entry->is_adopted ? &sums->adopt : &sums->retry, overhead_ms);
        sums->shm += entry->is_shm;
        sums->retried_issued += !entry->is_adopted && entry->is_issued;
    }
    for (size_t i = 0; i < run->calm_ns.count; i++)
        bench_samples_add(&sums->control, (run->calm_ns.at[i] - median_ns) / 1e6);
    sums->adopted = sums->adopt.count;
    sums->retried = sums->retry.count;
}

static const char *wire_of(const struct recover *run, const struct sums *sums)
{
    if (sums->shm == 0)
        return "tcp";
    return sums->shm == run->in_op ? "shm" : "mixed";
}

/* Through shared memory a member that has started an operation has given its part to it, so no
 * operation that all had started may be retried without the victim. */
static bool is_good(const struct recover *run, const struct sums *sums, long steps_lost,
                    long survivors_restarted)
{
    bool is_wire_right =
        strcmp(run->wire, "auto") == 0 || strcmp(run->wire, wire_of(run, sums)) == 0;

    return !run->is_different && survivors_restarted == 0 && steps_lost == 0 && is_wire_right &&
           (sums->shm < run->in_op || sums->retried_issued == 0);
}

int recover_print(struct recover *run, long restarts, long steps_lost)
{
    struct sums sums = {.shm = 0};
    double median_ns = bench_samples_quantile(&run->calm_ns, 0.5);
    long expected = run->is_bystander ? 0 : (long)run->attempts;
    long survivors_restarted = restarts < 0 ? -1 : restarts - expected;

    add_up(&sums, run, median_ns);
    steps_lost = steps_lost < 0 ? -1 : steps_lost + (long)run->steps_unfinished;
    printf("{\"bench\":\"recover\",\"n\":%u,\"bytes\":%" PRIu64
           ",\"wire\":\"%s\",\"memory\":\"%s\",\"victim\":\"%s\",\"victim_rss_bytes\":%" PRIu64
           ",\"kills\":%" PRIu64 ",\"kills_in_op\":%" PRIu64 ",\"steps\":%" PRIu64
           ",\"seconds\":%.1f,\"undisturbed_ms\":%.3f,\"undisturbed_one_less_ms\":%.3f,",
           run->tasks, run->bytes, wire_of(run, &sums), run->memory,
           run->is_bystander ? "bystander" : "worker", run->victim_rss_bytes, run->attempts,
           run->in_op, run->steps, (double)(recover_now_ns() - run->started_ns) / 1e9,
           median_ns / 1e6, run->one_less_ns / 1e6);
    print_quantiles("stall_ms", &sums.stall, ",\"overhead_ms\":{");
    print_quantiles("all", &sums.all, ",");
    print_quantiles("adopt", &sums.adopt, ",");
    print_quantiles("retry", &sums.retry, ",");
    print_quantiles("control", &sums.control, "},");
    printf("\"adopted\":%zu,\"retried\":%zu,\"retried_issued\":%zu,\"identical\":%s,"
           "\"steps_lost\":%ld,\"survivors_restarted\":%ld}\n",
           sums.adopted, sums.retried, sums.retried_issued, run->is_different ? "false" : "true",
           steps_lost, survivors_restarted);
    return is_good(run, &sums, steps_lost, survivors_restarted) ? EXIT_OK : EXIT_OTHER;
}
