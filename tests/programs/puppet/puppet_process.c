/* Commands about the process: its end, its threads, and its children. */
#include "puppet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A program may need time to end: PUPPET_LINGERS_S. */
void puppet_wait_for_end(void)
{
    const char *text = getenv("PUPPET_LINGERS_S");

    if (text != NULL)
        sleep((unsigned)strtoul(text, NULL, 10));
}

/* exit CODE: without close */
void puppet_exit(const struct words *words)
{
    exit((int)puppet_number(words, 1, "0"));
}

/* As a process in which CPython takes itself down. */
static int is_finalizing;
int Py_IsFinalizing(void);
__attribute__((visibility("default"))) int Py_IsFinalizing(void)
{
    return __atomic_load_n(&is_finalizing, __ATOMIC_SEQ_CST);
}

void puppet_finalize(const struct words *words)
{
    (void)words;
    __atomic_store_n(&is_finalizing, 1, __ATOMIC_SEQ_CST);
    printf("ok\n");
}

static pthread_t background;
static enum muster_rc background_rc;

static void *run_barrier(void *data)
{
    (void)data;
    do /* refused while the main thread is in a call, to see whether this one is */
        background_rc = muster_strategy_barrier(puppet_strategy);
    while (background_rc == MUSTER_FAILED_PRECONDITION);
    return NULL;
}

/* A barrier in another thread, until background_end. */
void puppet_background_barrier(const struct words *words)
{
    (void)words;
    if (pthread_create(&background, NULL, run_barrier, NULL) != 0)
        abort();
    pthread_setname_np(background, "loader");
    printf("ok\n");
}

void puppet_background_end(const struct words *words)
{
    (void)words;
    pthread_join(background, NULL);
    if (puppet_is_ok(background_rc))
        printf("ok\n");
}

enum { REPORTS_MAX = 2000000 };

static bool is_refused; /* some report of one of two threads */

static void *report_often(void *data)
{
    (void)data;
    for (int i = 0; i < REPORTS_MAX && !__atomic_load_n(&is_refused, __ATOMIC_RELAXED); i++) {
        muster_strategy_report(puppet_strategy, "value", i);
        if (strstr(muster_strategy_error(puppet_strategy)->text, "report by thread") != NULL)
            __atomic_store_n(&is_refused, true, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Two threads report until one of them is refused. */
void puppet_report_twice(const struct words *words)
{
    pthread_t other;

    (void)words;
    if (pthread_create(&other, NULL, report_often, NULL) != 0)
        abort();
    report_often(NULL);
    pthread_join(other, NULL);
    printf("ok refused=%d\n", is_refused);
}

/* A child of fork tries every call: each call's code, one after the other, then close and exit. */
void puppet_fork(const struct words *words)
{
    struct muster_tensor tensor = {
        .data = puppet_make_tensor(1, 1), .count = 1, .dtype = MUSTER_F64};
    uint64_t step;
    int status = -1;
    pid_t child;

    (void)words;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        printf("ok begin=%s", muster_rc_name(muster_strategy_begin(puppet_strategy, &step, NULL)));
        printf(" all_reduce=%s",
               muster_rc_name(muster_strategy_all_reduce(puppet_strategy, &tensor, 1, MUSTER_SUM)));
        printf(" commit=%s", muster_rc_name(muster_strategy_commit(puppet_strategy)));
        printf(" fork=%d", strstr(muster_strategy_error(puppet_strategy)->text, "fork") != NULL);
        muster_strategy_abandon(puppet_strategy, "a child");
        muster_strategy_close(puppet_strategy);
        exit(7);
    }
    waitpid(child, &status, 0);
    printf(" exit=%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    free(tensor.data);
}
