/* Time slices: what changes of a thread's scheduling, and what does not. */
#include "runtime/loop/time_slice.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assertion_count.h"
#include "test_env.h"

#define SHORT_NS  100000
#define NO_SLICES "this kernel has no time slices of a thread's choice (Linux 6.12)"

/* A kernel that is played: what it says of the thread, and what it is asked for. */
static struct {
    bool is_played;
    int failure; /* of asking */
    struct sched_attr attr, set;
    unsigned set_count;
} kernel;

/* False: it is for the real one. */
static bool kernel_answers(long number, const long words[5], long *ret_result)
{
    if (!kernel.is_played || (number != SYS_sched_getattr && number != SYS_sched_setattr))
        return false;
    assert_int_equal(words[0], 0); /* the calling thread */
    *ret_result = 0;
    if (number == SYS_sched_setattr) {
        assert_int_equal(words[2], 0);
        /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
        kernel.set = *(const struct sched_attr *)words[1];
        kernel.set_count++;
        return true;
    }
    assert_int_equal(words[2], sizeof(kernel.attr));
    assert_int_equal(words[3], 0);
    if (kernel.failure != 0) {
        errno = kernel.failure;
        *ret_result = -1;
    } else {
        /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
        *(struct sched_attr *)words[1] = kernel.attr;
    }
    return true;
}

/* No call of the product has more than five words. */
long syscall(long number, ...)
{
    long (*real)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
    long words[5], result = 0;
    va_list args;

    va_start(args, number);
    for (size_t i = 0; i < 5; i++)
        words[i] = va_arg(args, long);
    va_end(args);
    if (kernel_answers(number, words, &result))
        return result;
    return real(number, words[0], words[1], words[2], words[3], words[4]);
}

static struct sched_attr scheduling_of(void)
{
    struct sched_attr attr;

    memset(&attr, 0, sizeof(attr));
    assert_int_equal(syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0), 0);
    return attr;
}

/* In a process of its own: what it returns is the exit code. */
static int in_child(int (*run)(void))
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(run());
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int has_long_slices(void)
{
    return scheduling_of().sched_runtime > SHORT_NS;
}

/* Whatever started the test may have chosen another policy. */
static bool policy_reset(void)
{
    struct sched_attr attr = scheduling_of();

    attr.sched_policy = SCHED_NORMAL;
    return syscall(SYS_sched_setattr, 0, &attr, 0) == 0;
}

static int shorten_kindly(void)
{
    struct sched_attr attr;

    if (!policy_reset() || setpriority(PRIO_PROCESS, 0, 7) != 0)
        return 2;
    muster_time_slice_shorten();
    attr = scheduling_of();
    return attr.sched_runtime == SHORT_NS && attr.sched_nice == 7 &&
           attr.sched_policy == SCHED_NORMAL && in_child(has_long_slices);
}

static int leave_batch_alone(void)
{
    struct sched_attr attr = scheduling_of();

    attr.sched_policy = SCHED_BATCH;
    if (syscall(SYS_sched_setattr, 0, &attr, 0) != 0)
        return 2;
    muster_time_slice_shorten();
    return has_long_slices() && scheduling_of().sched_policy == SCHED_BATCH;
}

static void a_thread_gets_short_slices_and_its_children_do_not(void **state)
{
    (void)state;
    if (!has_long_slices())
        skip_with_reason(NO_SLICES);
    assert_int_equal(in_child(shorten_kindly), 1);
}

static void who_has_chosen_a_policy_keeps_it(void **state)
{
    (void)state;
    if (!has_long_slices())
        skip_with_reason(NO_SLICES);
    assert_int_equal(in_child(leave_batch_alone), 1);
}

static void only_longer_slices_of_usual_threads_are_shortened(void **state)
{
    static const struct {
        unsigned policy;
        int nice;
        uint64_t runtime, flags;
        int failure;
        bool is_shortened;
    } rows[] = {
        {SCHED_NORMAL, 0, 3000000, 0, 0, true},
        {SCHED_NORMAL, 19, 3000000, SCHED_FLAG_RECLAIM, 0, true},
        {SCHED_NORMAL, 0, SHORT_NS + 1, 0, 0, true},
        {SCHED_NORMAL, 0, SHORT_NS, 0, 0, false},
        {SCHED_NORMAL, 0, 0, 0, 0, false}, /* it knows no slices of a thread's own */
        {SCHED_NORMAL, -1, 3000000, 0, 0, false},
        {SCHED_BATCH, 0, 3000000, 0, 0, false},
        {SCHED_FIFO, 0, 3000000, 0, 0, false},
        {SCHED_NORMAL, 0, 3000000, 0, ENOSYS, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(&kernel, 0, sizeof(kernel));
        kernel.attr = (struct sched_attr){.size = sizeof(kernel.attr),
                                          .sched_policy = rows[i].policy,
                                          .sched_nice = rows[i].nice,
                                          .sched_runtime = rows[i].runtime,
                                          .sched_flags = rows[i].flags};
        kernel.failure = rows[i].failure;
        kernel.is_played = true;
        muster_time_slice_shorten();
        kernel.is_played = false;

        assert_int_equal(kernel.set_count, rows[i].is_shortened);
        if (!rows[i].is_shortened)
            continue;
        assert_int_equal(kernel.set.sched_runtime, SHORT_NS);
        assert_int_equal(kernel.set.sched_flags, rows[i].flags | SCHED_FLAG_RESET_ON_FORK);
        assert_int_equal(kernel.set.sched_policy, rows[i].policy);
        assert_int_equal(kernel.set.sched_nice, rows[i].nice);
        assert_int_equal(kernel.set.size, sizeof(kernel.attr));
    }
}

int main(void)
{
    const struct CMUnitTest time_slice[] = {
        cmocka_unit_test(only_longer_slices_of_usual_threads_are_shortened),
        cmocka_unit_test(a_thread_gets_short_slices_and_its_children_do_not),
        cmocka_unit_test(who_has_chosen_a_policy_keeps_it),
    };

    return cmocka_run_group_tests(time_slice, NULL, NULL);
}
