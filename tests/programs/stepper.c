/* A training program for tests of a whole job: COUNT elements of state named NAME, STEPS steps,
 * each one all_reduce of ELEMENTS elements. Ends with 0, 42 if it was preempted, or with 1 and the error's text. With
 * STEPPER_HOLD=FILE it stands still after the last step, a member until there is such a file; with
 * STEPPER_HURRY=FILE it takes its time until there is, STEPPER_LINGER_MS (5) for each step; with
 * STEPPER_DIES rank 1 kills itself behind the first step of each life; with STEPPER_ERRS=begin:N or
 * all_reduce:N rank 1's first life has an error of its own in step N, behind that call, and closes;
 * with STEPPER_QUITS=begin:N or commit:N it calls exit(0) there, and so does every rank with STEPPER_ALL_QUIT; with
 * STEPPER_QUITS_BY=_exit it calls that; with STEPPER_SKIPS=begin:N rank 1 commits that step without all_reduce; with
 * STEPPER_CRASHES=segv:N or abrt:N it is ended in step N by that signal, of a real cause; with
 * STEPPER_GAPS everybody says
 * how long it has waited for each step's result since the one before; with STEPPER_IGNORES it ends with 0 although
 * close says that the last checkpoint failed; with STEPPER_UNTIL it names the last step to muster. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <muster/muster.h>

static uint64_t number_argument(int argc, char **argv, int i, uint64_t fallback)
{
    return i < argc ? strtoull(argv[i], NULL, 10) : fallback;
}

static void wait_for_end(void)
{
    const char *hurry = getenv("STEPPER_HURRY"), *linger_ms = getenv("STEPPER_LINGER_MS");

    if (hurry != NULL && access(hurry, F_OK) != 0)
        usleep(1000 * (linger_ms != NULL ? (useconds_t)strtoul(linger_ms, NULL, 10) : 5));
}

/* By the launcher's RANK: behind a death another member may be rank 1 of the view. */
static bool is_rank_1(const struct muster_strategy *strategy)
{
    const char *rank = getenv("RANK");

    return rank != NULL ? strcmp(rank, "1") == 0 : muster_strategy_rank(strategy) == 1;
}

/* The variable wishes that rank 1's first life ends here. */
static bool strategy_errs(const struct muster_strategy *strategy, const char *variable,
                          const char *call, uint64_t step)
{
    const char *life = getenv("MUSTER_RESTART_COUNT"), *wish = getenv(variable);
    char here[40];

    snprintf(here, sizeof(here), "%s:%llu", call, (unsigned long long)step);
    return wish != NULL && strcmp(wish, here) == 0 &&
           (is_rank_1(strategy) || getenv("STEPPER_ALL_QUIT") != NULL) && life != NULL &&
           strcmp(life, "0") == 0;
}

static void strategy_crash(const struct muster_strategy *strategy, uint64_t step)
{
    if (strategy_errs(strategy, "STEPPER_CRASHES", "abrt", step))
        abort();
    if (strategy_errs(strategy, "STEPPER_CRASHES", "segv", step)) {
        volatile char *page = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        *page = 1;
    }
}

static void quit_in_step(const struct muster_strategy *strategy, const char *call, uint64_t step)
{
    if (!strategy_errs(strategy, "STEPPER_QUITS", call, step))
        return;
    if (getenv("STEPPER_QUITS_BY") != NULL)
        _exit(0);
    exit(0);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* An operation was delivered. */
static void measure_gap(uint64_t step)
{
    static double last_ms;
    double ms = now_ms();

    if (getenv("STEPPER_GAPS") != NULL && last_ms > 0) {
        printf("gap %llu %.3f\n", (unsigned long long)step, ms - last_ms);
        fflush(stdout); /* it may be killed in the next step */
    }
    last_ms = ms;
}

static enum muster_rc strategy_train(struct muster_strategy *strategy, struct muster_tensor *state,
                                     struct muster_tensor *share, uint64_t steps)
{
    double *total = state->data, *values = share->data;
    enum muster_rc rc = MUSTER_OK;
    uint64_t step = 0;

    while (step < steps) {
        if (getenv("STEPPER_UNTIL") != NULL)
            rc = muster_strategy_begin_until(strategy, steps, &step, NULL);
        else
            rc = muster_strategy_begin(strategy, &step, NULL);
        if (rc != MUSTER_OK || step > steps)
            return rc;
        wait_for_end();
        quit_in_step(strategy, "begin", step);
        if (strategy_errs(strategy, "STEPPER_ERRS", "begin", step))
            return MUSTER_UNKNOWN;
        strategy_crash(strategy, step);
        for (uint64_t i = 0; i < share->count; i++)
            values[i] = 1;
        if (!strategy_errs(strategy, "STEPPER_SKIPS", "begin", step))
            rc = muster_strategy_all_reduce(strategy, share, 1, MUSTER_MEAN);
        if (rc == MUSTER_ABORTED) {
            step--;
            continue;
        }
        if (rc != MUSTER_OK)
            return rc;
        measure_gap(step);
        if (strategy_errs(strategy, "STEPPER_ERRS", "all_reduce", step))
            return MUSTER_UNKNOWN;
        for (uint64_t i = 0; i < state->count; i++)
            total[i] += values[0];
        rc = muster_strategy_commit(strategy);
        if (rc != MUSTER_OK)
            return rc;
        quit_in_step(strategy, "commit", step);
        if (getenv("STEPPER_DIES") != NULL && is_rank_1(strategy))
            raise(SIGKILL);
    }
    return MUSTER_OK;
}

/* stepper STEPS [COUNT [NAME [ELEMENTS]]] */
int main(int argc, char **argv)
{
    struct muster_tensor state = {.count = number_argument(argc, argv, 2, 8), .dtype = MUSTER_F64};
    struct muster_tensor share = {.count = number_argument(argc, argv, 4, 1), .dtype = MUSTER_F64};
    const char *hold = getenv("STEPPER_HOLD");
    const char *name = argc > 3 ? argv[3] : "total";
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {0};
    enum muster_rc rc, closed;

    state.data = calloc(state.count, sizeof(double));
    share.data = calloc(share.count, sizeof(double));
    rc = state.data == NULL || share.data == NULL
             ? muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "out of memory")
             : muster_strategy_open(NULL, &strategy, &error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_register(strategy, name, &state);
    if (rc == MUSTER_OK)
        rc = strategy_train(strategy, &state, &share, number_argument(argc, argv, 1, 1));
    if (rc == MUSTER_OK) {
        printf("total %g\n", *(double *)state.data);
        fflush(stdout);
    } else
        fprintf(stderr, "stepper: %s: %s\n", muster_rc_name(rc),
                strategy != NULL ? muster_strategy_error(strategy)->text : error.text);
    while (rc == MUSTER_OK && hold != NULL && access(hold, F_OK) != 0)
        usleep(10000);
    if (getenv("STEPPER_IGNORES") != NULL) {
        muster_strategy_close(strategy);
    } else {
        closed = muster_strategy_close_checked(strategy, &error);
        if (closed != MUSTER_OK)
            fprintf(stderr, "stepper: %s\n", error.text);
        rc = rc == MUSTER_OK ? closed : rc;
    }
    free(state.data);
    free(share.data);
    return rc == MUSTER_OK ? 0 : rc == MUSTER_CANCELLED ? MUSTER_EXIT_PREEMPTED : 1;
}
