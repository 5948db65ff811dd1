/* The cut of `muster bench params`: rows of a given size, pushes, and one cut amid them. The stall is the longest
 * time in which no push was answered, beside the same without a cut. */
#include "bench/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/command.h"
#include "common/output.h"
#include "params/params.h"

#define LOOK_NS (2 * MUSTER_NS_PER_MS)

static uint64_t now_ns(const struct bench_params *bench)
{
    return muster_loop_now_ns(bench->env->loop);
}

static void cut_fork(struct bench_params *bench)
{
    char command[] = "cut", server[sizeof(bench->servers) + 16], job[] = "--job=" BENCH_JOB;
    char *words[] = {command, server, (char *)(uintptr_t)bench->settings->cut_dir, job, NULL};

    snprintf(server, sizeof(server), "--server=%s", bench->servers);
    fflush(NULL);
    bench->cutter = fork();
    if (bench->cutter != 0)
        return;
    if (freopen("/dev/null", "w", stdout) == NULL)
        _exit(EXIT_OTHER);
    _exit(params_cut(bench->server_count > 1 ? 4 : 3, words));
}

static void on_look(struct muster_timer *timer)
{
    struct bench_params *bench = timer->data;
    int status = 0;

    if (bench->cut_begin_ns == 0) {
        bench->cut_begin_ns = now_ns(bench);
        bench->answered_ns = bench->cut_begin_ns;
        cut_fork(bench);
        if (bench->cutter < 0)
            bench->failures++;
    } else if (waitpid(bench->cutter, &status, WNOHANG) == bench->cutter) {
        bench->cut_end_ns = now_ns(bench);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_OK)
            bench->failures++;
        return;
    }
    muster_timer_start(timer, bench->env->loop, muster_loop_after_ns(bench->env->loop, LOOK_NS));
}

/* In the middle of the load: until then it says what the stall is without a cut. */
void bench_params_cut_start(struct bench_params *bench)
{
    bench->answered_ns = bench->begin_ns;
    muster_timer_init(&bench->cut, on_look, bench);
    if (bench->settings->cut_dir != NULL)
        muster_timer_start(&bench->cut, bench->env->loop,
                           bench->begin_ns + bench->settings->duration_ns / 2);
}

bool bench_params_cut_is_done(const struct bench_params *bench)
{
    return bench->settings->cut_dir == NULL || bench->cut_end_ns != 0;
}

void bench_params_cut_note_answer(struct bench_params *bench)
{
    uint64_t at_ns = now_ns(bench);
    uint64_t *stall_ns = bench->cut_begin_ns == 0 ? &bench->plain_stall_ns : &bench->cut_stall_ns;

    if (bench->cut_end_ns != 0)
        return;
    if (at_ns - bench->answered_ns > *stall_ns)
        *stall_ns = at_ns - bench->answered_ns;
    bench->answered_ns = at_ns;
}

void bench_params_cut_print(const struct bench_params *bench)
{
    uint64_t cut_ns = bench->cut_end_ns - bench->cut_begin_ns;

    if (bench->settings->cut_dir == NULL)
        printf(",\"cut_ms\":null,\"cut_stall_ms\":null,\"plain_stall_ms\":null");
    else
        printf(",\"cut_ms\":%.1f,\"cut_stall_ms\":%.2f,\"plain_stall_ms\":%.2f",
               (double)cut_ns / 1e6, (double)bench->cut_stall_ns / 1e6,
               (double)bench->plain_stall_ns / 1e6);
}
