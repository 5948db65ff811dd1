/* Time slices: what changes of a thread's scheduling, and what does not. */
#include "runtime/time_slice.h"

#include <errno.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assertion_count.h"
#include "test_env.h"

#define SHORT_NS  100000
#define NO_SLICES "this kernel has no time slices of a thread's choice (Linux 6.12)"

static struct sched_attr scheduling(void)
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
    return scheduling().sched_runtime > SHORT_NS;
}

static int shorten_kindly(void)
{
    struct sched_attr attr;

    if (setpriority(PRIO_PROCESS, 0, 7) != 0)
        return 2;
    muster_time_slice_shorten();
    attr = scheduling();
    return attr.sched_runtime == SHORT_NS && attr.sched_nice == 7 &&
           attr.sched_policy == SCHED_NORMAL && in_child(has_long_slices);
}

static int leave_batch_alone(void)
{
    struct sched_attr attr = scheduling();

    attr.sched_policy = SCHED_BATCH;
    if (syscall(SYS_sched_setattr, 0, &attr, 0) != 0)
        return 2;
    muster_time_slice_shorten();
    return has_long_slices() && scheduling().sched_policy == SCHED_BATCH;
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

int main(void)
{
    const struct CMUnitTest time_slice[] = {
        cmocka_unit_test(a_thread_gets_short_slices_and_its_children_do_not),
        cmocka_unit_test(who_has_chosen_a_policy_keeps_it),
    };

    return cmocka_run_group_tests(time_slice, NULL, NULL);
}
