/* Keeps a seat: forks its server and a spare, and forks again whenever one is killed.
 *
 * The keeper does nothing else, so that nothing but a kill ends it; its children end with it. */
#include "params/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"

#define CHILDREN 2u
/* After so many children in a row that died before they had the seat, one that came at once would die, too. */
#define FAILURES_MAX 5u
#define LINES_BYTES  1024u /* what a child says when it is ready */
/* To start a process takes half a millisecond of the processor that the spare needs now to take the dead server's
 * place, so the next spare comes a little later. */
#define SPARE_PAUSE_NS (10 * MUSTER_NS_PER_MS)
/* Where other servers go on with the rows nobody waits for the next process, which makes new memory: the processors are
 * theirs, and their clients', until these have all their answers. */
#define RENEW_PAUSE_NS (100 * MUSTER_NS_PER_MS)
/* A process that cannot open what it needs, such as a file, may do so later. */
#define AGAIN_PAUSE_NS (500 * MUSTER_NS_PER_MS)

struct house {
    struct keeper *keeper;
    pid_t children[CHILDREN]; /* 0: none */
    unsigned child_count;
    unsigned failures;
    unsigned takes_seen;
    bool is_stopping;
    uint64_t spare_due_ns; /* when a child is to be started; 0: none is */
    bool is_again_told;    /* since one was killed */
    bool is_again; /* those before could not open: even without a child it is not started earlier */
    sigset_t signals, before;
};

enum muster_rc keeper_init(struct keeper *keeper, struct muster_error *ret_error)
{
    void *memory = mmap(NULL, sizeof(*keeper->board), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return muster_error_set_sys(ret_error, MUSTER_RESOURCE_EXHAUSTED, errno,
                                    "no memory for the keeper's board");
    keeper->board = memory;
    if (pipe2(keeper->lines, O_CLOEXEC | O_NONBLOCK) != 0)
        return muster_error_set_sys(ret_error, MUSTER_RESOURCE_EXHAUSTED, errno,
                                    "no pipe for the ready line");
    keeper->has_pipe = true;
    return MUSTER_OK;
}

void keeper_fini(struct keeper *keeper)
{
    if (keeper->board != NULL)
        munmap(keeper->board, sizeof(*keeper->board));
    keeper->board = NULL;
    if (keeper->has_pipe) {
        close(keeper->lines[0]);
        close(keeper->lines[1]);
    }
    keeper->has_pipe = false;
}

void keeper_listen(struct keeper *keeper)
{
    (void)dup2(keeper->lines[1], STDOUT_FILENO);
}

void keeper_ready(void)
{
    (void)kill(getppid(), SIGUSR1);
}

void keeper_taken(struct keeper *keeper)
{
    atomic_store_explicit(&keeper->board->serving, getpid(), memory_order_relaxed);
    atomic_fetch_add_explicit(&keeper->board->takes, 1, memory_order_relaxed);
}

/* --- Children --- */

static bool child_start(struct house *house, unsigned i)
{
    pid_t keeper = getpid(), child;

    fflush(NULL);
    child = fork();
    if (child < 0) {
        fprintf(stderr, "muster %s: cannot start a process: %s\n", house->keeper->name,
                strerror(errno));
        return false;
    }
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)sigprocmask(SIG_SETMASK, &house->before, NULL);
        if (getppid() != keeper) /* it died before the line above */
            _exit(EXIT_OTHER);
        exit(house->keeper->serve(house->keeper));
    }
    house->children[i] = child;
    return true;
}

static void children_signal(const struct house *house, int number)
{
    for (unsigned i = 0; i < CHILDREN; i++) {
        if (house->children[i] != 0)
            (void)kill(house->children[i], number);
    }
}

/* The keeper, or a terminal, ends children by these; any other signal is a fault of the child's. */
static bool is_end(int number)
{
    return number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP;
}

/* A seat that has served has rows. They stay until a process can open again, and until SIGTERM. */
static bool is_to_try_again(const struct house *house, int status)
{
    struct keeper_board *board = house->keeper->board;

    return !house->is_stopping && WEXITSTATUS(status) != EXIT_OK &&
           atomic_load_explicit(&board->is_told, memory_order_relaxed) &&
           atomic_load_explicit(&board->failure, memory_order_relaxed) == EXIT_OK;
}

/* Many were killed before they could serve. Rows, which a seat has that has served, would end with the keeper. */
static int deaths_judge(struct house *house)
{
    bool has_served = atomic_load_explicit(&house->keeper->board->is_told, memory_order_relaxed);

    if (house->failures == FAILURES_MAX)
        fprintf(stderr, "muster %s: %u processes in a row died before they could serve; %s\n",
                house->keeper->name, FAILURES_MAX,
                has_served ? "trying again each half second until SIGTERM" : "giving up");
    house->is_again = has_served;
    return has_served ? -1 : EXIT_OTHER;
}

/* A child that was killed is replaced; one that gave up has said why, and the next would, too, unless it could not
 * open. */
static int child_judge(struct house *house, int status)
{
    unsigned takes = atomic_load_explicit(&house->keeper->board->takes, memory_order_relaxed);

    if (WIFEXITED(status) && is_to_try_again(house, status)) {
        if (!house->is_again_told)
            fprintf(stderr, "muster %s: trying again until SIGTERM%s\n", house->keeper->name,
                    house->keeper->renew == NULL ? "; the rows stay in the memory of the seat"
                                                 : "");
        house->is_again = house->is_again_told = true;
        return -1;
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status) == EXIT_OK && !house->is_stopping ? EXIT_OTHER
                                                                     : WEXITSTATUS(status);
    if (house->is_stopping && is_end(WTERMSIG(status)))
        return EXIT_OK;
    if (house->is_stopping) {
        fprintf(stderr,
                "muster %s: a process of the seat was killed by signal %d (%s) while it ended\n",
                house->keeper->name, WTERMSIG(status), strsignal(WTERMSIG(status)));
        return EXIT_OTHER;
    }
    fprintf(stderr,
            "muster %s: a process of the seat was killed by signal %d (%s); the next one %s\n",
            house->keeper->name, WTERMSIG(status), strsignal(WTERMSIG(status)),
            house->keeper->renew == NULL ? "goes on in its memory"
                                         : "joins again, and copies from the other servers");
    house->is_again_told = false;
    house->failures = takes == house->takes_seen ? house->failures + 1 : 0;
    house->takes_seen = takes;
    return house->failures < FAILURES_MAX ? -1 : deaths_judge(house);
}

static bool child_replace(struct house *house, unsigned i)
{
    struct keeper *keeper = house->keeper;

    return (keeper->renew == NULL || keeper->renew(keeper)) && child_start(house, i);
}

static bool has_children(const struct house *house)
{
    for (unsigned i = 0; i < house->child_count; i++) {
        if (house->children[i] != 0)
            return true;
    }
    return false;
}

static uint64_t clock_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Returns the exit code of the keeper, or -1: go on. */
static int children_fill(struct house *house)
{
    int code = -1;

    house->spare_due_ns = 0;
    house->is_again = false;
    for (unsigned i = 0; i < house->child_count && code < 0; i++) {
        if (house->children[i] == 0 && !child_replace(house, i))
            code = EXIT_OTHER;
    }
    return code;
}

static uint64_t pause_ns(const struct house *house)
{
    if (house->is_again)
        return AGAIN_PAUSE_NS;
    return house->keeper->renew != NULL ? RENEW_PAUSE_NS : SPARE_PAUSE_NS;
}

/* Returns the exit code of the keeper, or -1: go on. */
static int child_ended(struct house *house, pid_t pid, int status)
{
    struct keeper *keeper = house->keeper;
    unsigned i = 0;
    int code;

    while (i < house->child_count && house->children[i] != pid)
        i++;
    if (i == house->child_count) {
        if (keeper->on_other_ended != NULL && !house->is_stopping)
            keeper->on_other_ended(keeper, pid, status);
        return -1;
    }
    house->children[i] = 0;
    code = child_judge(house, status);
    if (code < 0)
        house->spare_due_ns = clock_ns() + pause_ns(house);
    return code;
}

/* Returns the exit code of the keeper, or -1: go on. */
static int children_reap(struct house *house)
{
    int status, code = -1;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int ended = child_ended(house, pid, status);

        if (ended >= 0 && code <= EXIT_OK)
            code = ended;
    }
    if (code < 0 && house->spare_due_ns != 0 && !house->is_again && !has_children(house) &&
        house->keeper->renew == NULL)
        code = children_fill(house);
    return code;
}

static void children_wait(struct house *house)
{
    for (unsigned i = 0; i < CHILDREN; i++) {
        if (house->children[i] != 0)
            (void)waitpid(house->children[i], NULL, 0);
        house->children[i] = 0;
    }
}

/* --- The keeper --- */

/* The first child that is ready may be dead by now: its line stands for the next one, too. Whoever reads the lines
 * wants them once. */
static bool lines_tell(struct house *house)
{
    struct keeper_board *board = house->keeper->board;
    char lines[LINES_BYTES];
    ssize_t bytes = read(house->keeper->lines[0], lines, sizeof(lines)), done = 0;

    if (bytes <= 0 || atomic_load_explicit(&board->is_told, memory_order_relaxed))
        return true;
    while (done < bytes) {
        ssize_t some = write(STDOUT_FILENO, lines + done, (size_t)(bytes - done));

        if (some < 0 && errno != EINTR)
            return false;
        done += some > 0 ? some : 0;
    }
    atomic_store_explicit(&board->is_told, true, memory_order_relaxed);
    return true;
}

/* The serving child drains at SIGTERM; a spare has nothing to drain and would take the seat. */
static void house_stop(struct house *house)
{
    pid_t serving = atomic_load_explicit(&house->keeper->board->serving, memory_order_relaxed);

    house->is_stopping = true;
    for (unsigned i = 0; i < house->child_count; i++) {
        if (house->children[i] != 0)
            (void)kill(house->children[i], house->children[i] == serving ? SIGTERM : SIGKILL);
    }
}

/* The serving child reads its certificates again; a spare has none yet, and would die. */
static void house_reload(const struct house *house)
{
    pid_t serving = atomic_load_explicit(&house->keeper->board->serving, memory_order_relaxed);

    for (unsigned i = 0; i < house->child_count; i++) {
        if (house->children[i] != 0 && house->children[i] == serving)
            (void)kill(serving, SIGHUP);
    }
}

/* Returns 0 when none has come and a child is to be started. */
static int signal_await(const struct house *house)
{
    bool is_short = house->spare_due_ns != 0 && !house->is_stopping;
    int number;

    do {
        uint64_t now_ns = is_short ? clock_ns() : 0;
        uint64_t left_ns = house->spare_due_ns > now_ns ? house->spare_due_ns - now_ns : 1;
        const struct timespec left = {.tv_nsec = (long)left_ns};

        number = sigtimedwait(&house->signals, NULL, is_short ? &left : NULL);
    } while (number < 0 && errno == EINTR);
    return number < 0 ? 0 : number;
}

/* It is stopped in the pause before the next process, whose rows others have. */
static bool is_left_to_others(const struct house *house)
{
    return house->is_stopping && house->spare_due_ns != 0 && house->keeper->renew != NULL;
}

static int house_run(struct house *house)
{
    int code = -1;

    while (code <= EXIT_OK &&
           (has_children(house) || (house->spare_due_ns != 0 && !house->is_stopping))) {
        int number = signal_await(house), reaped;

        if (number == 0) {
            code = children_fill(house);
            continue;
        }
        if (number == SIGHUP)
            house_reload(house);
        else if (number != SIGCHLD && number != SIGUSR1 && !house->is_stopping)
            house_stop(house);
        if (!lines_tell(house) &&
            !house->is_stopping) { /* a script that waits for the line would wait for ever */
            fprintf(stderr, "muster %s: cannot write to standard output: %s\n", house->keeper->name,
                    strerror(errno));
            code = EXIT_OTHER;
            break;
        }
        reaped = children_reap(house);
        if (reaped > code)
            code = reaped;
    }
    if (code < 0)
        return is_left_to_others(house) ? EXIT_OK : EXIT_OTHER;
    return code;
}

/* Those that came after the last wait, as a spare's that has just become ready, would end the keeper once they are no
 * longer blocked. */
static void signals_drop(const struct house *house)
{
    static const struct timespec no_wait;

    while (sigtimedwait(&house->signals, NULL, &no_wait) > 0)
        continue;
}

int keeper_run(struct keeper *keeper)
{
    struct house house = {.keeper = keeper, .child_count = keeper->has_spare ? CHILDREN : 1};
    int code = EXIT_OK;

    sigemptyset(&house.signals);
    sigaddset(&house.signals, SIGCHLD);
    sigaddset(&house.signals, SIGTERM);
    sigaddset(&house.signals, SIGINT);
    sigaddset(&house.signals, SIGHUP);
    sigaddset(&house.signals, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &house.signals, &house.before);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* for the anchors of children that were killed */
    for (unsigned i = 0; i < house.child_count && code == EXIT_OK; i++)
        code = child_start(&house, i) ? EXIT_OK : EXIT_OTHER;
    if (code == EXIT_OK)
        code = house_run(&house);
    children_signal(&house, SIGKILL);
    children_wait(&house);
    signals_drop(&house);
    (void)sigprocmask(SIG_SETMASK, &house.before, NULL);
    return code;
}
