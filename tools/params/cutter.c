/* Cuts are made by a process of their own, which the death of a server does not end. */
#include "params/cutter.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"
#include "params/params.h"

#define NAME "params serve"
/* A cutter that the kernel kills for want of memory would be killed again at once. */
#define AGAIN_PAUSE_S 1

/* No cut ends with this code, so it shows that the process could not begin. */
static _Noreturn void start_fail(const char *what)
{
    fprintf(stderr, "muster " NAME ": %s: %s\n", what, strerror(errno));
    _exit(EXIT_NOT_RUNNABLE);
}

static void word_add(char *words[], size_t *count, const char *option, const char *value)
{
    size_t bytes = strlen(option) + strlen(value) + 1;

    words[*count] = malloc(bytes);
    if (words[*count] == NULL)
        start_fail("the words of 'muster params cut' cannot be kept");
    snprintf(words[(*count)++], bytes, "%s%s", option, value);
}

pid_t cutter_fork(bool is_again)
{
    const struct timespec pause = {.tv_sec = is_again ? AGAIN_PAUSE_S : 0};
    pid_t parent = getpid(), child;
    sigset_t none;

    fflush(NULL);
    child = fork();
    if (child < 0)
        fprintf(stderr, "muster " NAME ": cuts cannot be started: %s\n", strerror(errno));
    if (child != 0)
        return child;
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigemptyset(&none); /* the parent may wait for signals, which it then has blocked */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (getppid() != parent) /* it died before prctl */
        _exit(EXIT_OTHER);
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    return 0;
}

bool cutter_must_restart(pid_t cutter, pid_t ended, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_OK;

    if (ended != cutter)
        return false;
    if (code == EXIT_USAGE || code == EXIT_NOT_RUNNABLE) {
        fprintf(stderr,
                "muster " NAME ": no cuts are made any more: the process that makes them could not "
                "begin, and has ended with exit code %d; correct what it has told above, and start "
                "this command again\n",
                code);
        return false;
    }
    if (WIFSIGNALED(status))
        fprintf(stderr,
                "muster " NAME ": the process that makes the cuts was killed by signal %d (%s); "
                "the next one begins in %d s\n",
                WTERMSIG(status), strsignal(WTERMSIG(status)), AGAIN_PAUSE_S);
    else
        fprintf(stderr,
                "muster " NAME ": the process that makes the cuts has ended with exit code %d; "
                "the next one begins in %d s\n",
                code, AGAIN_PAUSE_S);
    return true;
}

/* The lines of cuts are not for those who wait for the ready line. */
_Noreturn void cutter_run(const struct params_seat_settings *settings, const char *servers)
{
    char *words[8], every[32], keep[32];
    size_t count = 0;

    if (freopen("/dev/null", "w", stdout) == NULL)
        start_fail("/dev/null cannot be opened");
    snprintf(every, sizeof(every), "%.6f", (double)settings->cut_every_ns / 1e9);
    snprintf(keep, sizeof(keep), "%" PRIu64, settings->cut_keep);
    word_add(words, &count, "cut", "");
    word_add(words, &count, "--server=", servers);
    word_add(words, &count, "--every=", every);
    word_add(words, &count, "--keep=", keep);
    if (settings->job != NULL)
        word_add(words, &count, "--job=", settings->job);
    word_add(words, &count, settings->cut_folder, "");
    words[count] = NULL;
    _exit(params_cut((int)count, words));
}
