/* How long after kill() a survivor knows of a death on its host: by the words of the victim's board,
 * which it polls; beside it by the socket's hang-up and the pidfd, which a loop would wait for. A small
 * victim and one with 1 GiB resident.
 *
 *   bench_liveness [TRIALS]    one JSON line per victim */
#include "collective/board/system.h"
#include "bench_clock.h"

#include <muster/env.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRIALS_MAX     100000
#define TRIALS_DEFAULT 200
#define BIG_BYTES      ((size_t)1 << 30)

struct process {
    struct muster_env *env;
    struct muster_board *board;
    struct muster_board_peer *peer;
};

struct samples {
    double *word_us, *pidfd_us, *hang_up_us;
    int count;
};

static struct muster_member member_of(pid_t survivor, unsigned i, int trial)
{
    struct muster_member member = {.incarnation = {.bytes = {(uint8_t)(i + 1)}}};

    memcpy(&member.incarnation.bytes[4], &survivor, sizeof(survivor));
    memcpy(&member.incarnation.bytes[8], &trial, sizeof(trial));
    return member;
}

static bool open_process(struct process *process, pid_t survivor, unsigned i, int trial)
{
    struct muster_member self = member_of(survivor, i, trial);
    struct muster_member other = member_of(survivor, 1 - i, trial);
    struct muster_board_options options = {.job = "bench_liveness", .self = &self};
    struct muster_error error = {.text = "no environment"};

    if (muster_env_system_open(NULL, &process->env) != MUSTER_OK)
        return false;
    options.env = process->env;
    if (muster_board_system_open(&options, &process->board, &error) != MUSTER_OK ||
        muster_board_connect(process->board, &other, &process->peer) != MUSTER_OK) {
        fprintf(stderr, "bench_liveness: %s\n", error.text);
        return false;
    }
    while (!process->peer->is_ready && !process->peer->is_failed)
        muster_loop_turn(process->env->loop, UINT64_MAX);
    return process->peer->is_ready;
}

static void close_process(struct process *process)
{
    muster_board_close(process->board);
    muster_env_system_close(process->env);
}

static void be_victim(pid_t survivor, int trial, size_t resident_bytes, int to_survivor)
{
    struct process process = {.env = NULL};
    void *memory = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!open_process(&process, survivor, 1, trial))
        _exit(1);
    muster_board_enter(process.board);
    if (resident_bytes > 0) {
        memory =
            mmap(NULL, resident_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            _exit(1);
        memset(memory, 1, resident_bytes);
    }
    if (write(to_survivor, "x", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static void measure_process(struct process *process, pid_t victim, struct samples *samples)
{
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, victim, 0u), .events = POLLIN};
    double start = bench_clock_us();

    kill(victim, SIGKILL);
    while (!muster_board_is_dead(process->peer))
        ;
    samples->word_us[samples->count] = bench_clock_us() - start;
    while (poll(&end, 1, 0) == 0 && !process->peer->is_failed)
        muster_loop_turn(process->env->loop, 0);
    while (!process->peer->is_failed)
        muster_loop_turn(process->env->loop, 0);
    samples->hang_up_us[samples->count] = bench_clock_us() - start;
    poll(&end, 1, -1);
    samples->pidfd_us[samples->count++] = bench_clock_us() - start;
    close(end.fd);
}

static bool run_trial(int trial, size_t resident_bytes, struct samples *samples)
{
    struct process process = {.env = NULL};
    pid_t survivor = getpid(), victim;
    int pipes[2];
    char byte;

    if (pipe(pipes) != 0)
        return false;
    victim = fork();
    if (victim == 0)
        be_victim(survivor, trial, resident_bytes, pipes[1]);
    close(pipes[1]);
    if (victim < 0 || !open_process(&process, survivor, 0, trial) || read(pipes[0], &byte, 1) != 1)
        return false;
    measure_process(&process, victim, samples);
    waitpid(victim, NULL, 0);
    close(pipes[0]);
    close_process(&process);
    return true;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void print_quantiles(const char *name, double *us, int count)
{
    qsort(us, (size_t)count, sizeof(*us), compare_doubles);
    printf(",\"%s\":{\"median\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, us[count / 2],
           us[count * 9 / 10], us[count * 99 / 100], us[count - 1]);
}

static bool run_trials(size_t resident_bytes, int trials)
{
    struct samples samples = {.word_us = calloc((size_t)trials, sizeof(double)),
                              .pidfd_us = calloc((size_t)trials, sizeof(double)),
                              .hang_up_us = calloc((size_t)trials, sizeof(double))};
    bool is_ok = samples.word_us != NULL && samples.pidfd_us != NULL && samples.hang_up_us != NULL;

    for (int i = 0; i < trials && is_ok; i++)
        is_ok = run_trial(i, resident_bytes, &samples);
    if (is_ok) {
        printf("{\"bench\":\"liveness\",\"victim_rss_bytes\":%zu,\"trials\":%d", resident_bytes,
               trials);
        print_quantiles("word_us", samples.word_us, trials);
        print_quantiles("hang_up_us", samples.hang_up_us, trials);
        print_quantiles("pidfd_us", samples.pidfd_us, trials);
        printf("}\n");
        fflush(stdout);
    }
    free(samples.word_us);
    free(samples.pidfd_us);
    free(samples.hang_up_us);
    return is_ok;
}

int main(int argc, char **argv)
{
    int trials = argc > 1 ? atoi(argv[1]) : TRIALS_DEFAULT;

    if (trials < 1 || trials > TRIALS_MAX) {
        fprintf(stderr, "usage: bench_liveness [TRIALS]\n");
        return 2;
    }
    return run_trials(0, trials) && run_trials(BIG_BYTES, trials) ? 0 : 1;
}
