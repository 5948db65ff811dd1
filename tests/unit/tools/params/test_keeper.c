/* The keeper of a seat, in a process of its own. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t play_waitpid(pid_t child, int *ret_status, int options);
static pid_t play_fork(void);
static int play_sigtimedwait(const sigset_t *set, siginfo_t *ret_info, const struct timespec *time);
static int play_clock_gettime(clockid_t id, struct timespec *ret_time);
#define waitpid(child, ret_status, options) play_waitpid(child, ret_status, options)
#define fork()                              play_fork()
#define sigtimedwait(set, ret_info, time)   play_sigtimedwait(set, ret_info, time)
#define clock_gettime(id, ret_time)         play_clock_gettime(id, ret_time)
#include "tools/params/keeper.c"
#undef waitpid
#undef fork
#undef sigtimedwait
#undef clock_gettime

#include "test_env.h"

#define EXIT_OF_CHILD 3

/* It stands still: pauses have their full length, however slow the keeper is. */
static int play_clock_gettime(clockid_t id, struct timespec *ret_time)
{
    (void)id;
    *ret_time = (struct timespec){.tv_sec = 1};
    return 0;
}

static int late_signal;

/* The signal comes while the keeper reaps its last child, so that it is not waited for any more. */
static pid_t play_waitpid(pid_t child, int *ret_status, int options)
{
    pid_t reaped = waitpid(child, ret_status, options);

    if (reaped > 0 && late_signal != 0)
        (void)kill(getpid(), late_signal);
    return reaped;
}

/* So many of the first children are killed once all of these are there; 0: nothing of this is played. */
static unsigned kill_count, first_count = 2;
static pid_t forked[8];
static unsigned fork_count, forks_at_pause;
static uint64_t pause_of_first_ns;

static void child_kill(pid_t child)
{
    siginfo_t info;

    (void)kill(child, SIGKILL);
    (void)waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
}

static unsigned started; /* children, this one included */

static pid_t play_fork(void)
{
    pid_t child;

    started++;
    child = fork();

    if (child <= 0 || kill_count == 0)
        return child;
    forked[fork_count++] = child;
    for (unsigned i = 0; fork_count == first_count && i < kill_count; i++)
        child_kill(forked[i]);
    if (fork_count == first_count + kill_count)
        (void)kill(getpid(), SIGTERM);
    return child;
}

static bool is_hurried;     /* a pause without signals is over at once */
static int signal_of_pause; /* it comes in the first pause, where kill_count is not 0 */

/* The pause is over at once. */
static int play_sigtimedwait(const sigset_t *set, siginfo_t *ret_info, const struct timespec *time)
{
    static const struct timespec no_wait;

    if (is_hurried && time != NULL)
        return sigtimedwait(set, ret_info, &no_wait);
    if (kill_count == 0 || time == NULL || time->tv_nsec == 0)
        return sigtimedwait(set, ret_info, time);
    if (forks_at_pause == 0) {
        forks_at_pause = fork_count;
        pause_of_first_ns = (uint64_t)time->tv_nsec;
    }
    if (signal_of_pause != 0)
        return signal_of_pause;
    errno = EAGAIN;
    return -1;
}

static int serve_nothing(struct keeper *keeper)
{
    keeper_taken(keeper);
    return EXIT_OF_CHILD;
}

static const struct {
    const char *name;
    int signal;
} signals[] = {
    {"none", 0},
    {"a spare that is ready", SIGUSR1},
    {"a second SIGTERM", SIGTERM},
    {"a second SIGINT", SIGINT},
    {"a reload", SIGHUP},
};

/* Run the keeper in a process. Returns how that ended, as waitpid tells it. */
static int keeper_end(struct keeper *keeper, int (*run)(struct keeper *keeper))
{
    struct muster_error error;
    int status = 0;
    pid_t process;

    assert_int_equal(keeper_init(keeper, &error), MUSTER_OK);
    process = fork();
    if (process == 0)
        _exit(run(keeper));
    assert_true(process > 0);
    assert_int_equal(waitpid(process, &status, 0), process);
    keeper_fini(keeper);
    return status;
}

static void late_signal_leaves_the_exit_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct keeper keeper = {.serve = serve_nothing, .name = signals[i].name};
        int status;

        late_signal = signals[i].signal;
        status = keeper_end(&keeper, keeper_run);

        if (!WIFEXITED(status))
            fail_msg("%s: the keeper was killed by signal %d", signals[i].name, WTERMSIG(status));
        assert_int_equal(WEXITSTATUS(status), EXIT_OF_CHILD);
    }
}

static int serve_until_killed(struct keeper *keeper)
{
    while (keeper != NULL)
        pause();
    return EXIT_OF_CHILD;
}

static bool seat_renew(struct keeper *keeper)
{
    return keeper != NULL;
}

static const struct {
    const char *name;
    bool (*renew)(struct keeper *keeper);
    unsigned children, killed, forks_at_pause;
    uint64_t pause_ns;
    int signal_of_pause;
} deaths[] = {
    {"one of two: the other one is left alone first", NULL, 2, 1, 2, SPARE_PAUSE_NS, 0},
    {"both: others come at once", NULL, 2, 2, 0, 0, 0},
    {"one that joins others: these are left alone first", seat_renew, 1, 1, 1, RENEW_PAUSE_NS, 0},
    {"one that joins others and is stopped meanwhile", seat_renew, 1, 1, 1, RENEW_PAUSE_NS,
     SIGTERM},
};

static uint64_t pause_asked_ns;

/* Exits with the number of children at the first pause. */
static int run_counting(struct keeper *keeper)
{
    return keeper_run(keeper) == EXIT_OK && pause_of_first_ns == pause_asked_ns
               ? (int)forks_at_pause
               : 100;
}

/* The processor belongs to the spare after a death: it takes the place of the server. */
static void a_spare_is_replaced_after_a_pause(void **state)
{
    (void)state;
    late_signal = 0;
    for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
        struct keeper keeper = {.serve = serve_until_killed,
                                .renew = deaths[i].renew,
                                .name = deaths[i].name,
                                .has_spare = deaths[i].children == 2};
        int status;

        kill_count = deaths[i].killed;
        first_count = deaths[i].children;
        pause_asked_ns = deaths[i].pause_ns;
        signal_of_pause = deaths[i].signal_of_pause;
        status = keeper_end(&keeper, run_counting);

        if (!WIFEXITED(status) || WEXITSTATUS(status) != (int)deaths[i].forks_at_pause)
            fail_msg("%s: status %x", deaths[i].name, (unsigned)status);
    }
    kill_count = 0;
    signal_of_pause = 0;
}

/* The first child serves and is killed; the next ones cannot open; the last one ends in order. */
static int serve_at_last(struct keeper *keeper)
{
    keeper_listen(keeper);
    keeper_taken(keeper);
    switch (atomic_load(&keeper->board->takes)) {
    case 1:
        printf("listening\n");
        fflush(stdout);
        keeper_ready();
        while (!atomic_load(&keeper->board->is_told))
            (void)sched_yield();
        (void)kill(getpid(), SIGKILL);
        return EXIT_OF_CHILD;
    case 2:
    case 3:
        if (keeper->data != NULL)
            atomic_store(&keeper->board->failure, EXIT_OF_CHILD);
        return EXIT_OF_CHILD;
    default:
        (void)kill(getppid(), SIGTERM);
        return serve_until_killed(keeper);
    }
}

/* Its rows would go with the keeper. */
static void a_seat_that_has_served_waits_until_a_process_can_open(void **state)
{
    struct keeper keeper = {.serve = serve_at_last, .name = "again"};
    int status;

    (void)state;
    late_signal = 0;
    is_hurried = true;
    status = keeper_end(&keeper, keeper_run);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_OK);
    is_hurried = false;
}

static void a_child_that_says_that_the_next_one_would_fail_ends_the_seat(void **state)
{
    static bool is_final = true;
    struct keeper keeper = {.serve = serve_at_last, .name = "final", .data = &is_final};
    int status;

    (void)state;
    is_hurried = true;
    status = keeper_end(&keeper, keeper_run);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_OF_CHILD);
    is_hurried = false;
}

/* Children 2 to 9 are killed before they have the seat; the one after them ends in order. */
static int serve_after_kills(struct keeper *keeper)
{
    if (started == 1)
        return serve_at_last(keeper);
    if (started < 10)
        (void)kill(getpid(), SIGKILL);
    (void)kill(getppid(), SIGTERM);
    return serve_until_killed(keeper);
}

static int serve_never(struct keeper *keeper)
{
    (void)kill(getpid(), SIGKILL);
    return keeper != NULL ? EXIT_OF_CHILD : 0;
}

static void a_seat_that_has_served_outlives_any_number_of_kills(void **state)
{
    struct keeper keeper = {.serve = serve_after_kills, .name = "kills"};
    struct keeper never = {.serve = serve_never, .name = "never served"};

    (void)state;
    is_hurried = true;
    started = 0;

    assert_int_equal(keeper_end(&keeper, keeper_run), EXIT_OK);
    assert_int_equal(WEXITSTATUS(keeper_end(&never, keeper_run)), EXIT_OTHER);
    is_hurried = false;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_signal_leaves_the_exit_code),
        cmocka_unit_test(a_spare_is_replaced_after_a_pause),
        cmocka_unit_test(a_seat_that_has_served_waits_until_a_process_can_open),
        cmocka_unit_test(a_child_that_says_that_the_next_one_would_fail_ends_the_seat),
        cmocka_unit_test(a_seat_that_has_served_outlives_any_number_of_kills),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
