/* Figures of a process about itself, against those of the system by other calls. */
#include "tools/common/process_metrics.c"

#include <fcntl.h>
#include <time.h>

#include "test_env.h"

struct shown {
    struct test_env test;
    struct muster_metrics *metrics;
    struct process_metrics process;
};

static void shown_open(struct shown *shown)
{
    test_env_open(&shown->test);
    assert_int_equal(muster_metrics_open(shown->test.env.mem, &shown->metrics), MUSTER_OK);
    process_metrics_open(&shown->process, shown->metrics);
    on_collect(&shown->process.collector);
}

static void shown_close(struct shown *shown)
{
    process_metrics_close(&shown->process);
    muster_metrics_close(shown->metrics);
    test_env_close(&shown->test);
}

static int64_t value_of(const struct shown *shown, enum process_metric metric)
{
    return shown->process.metrics[metric].value;
}

static void memory_and_time_are_those_of_this_process(void **state)
{
    struct timespec now, cpu;
    struct shown shown;
    struct rlimit limit;
    int64_t start_ms, up_ms;

    (void)state;
    shown_open(&shown);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);

    assert_true(value_of(&shown, PROCESS_RESIDENT_BYTES) >= 4096);
    assert_int_equal(value_of(&shown, PROCESS_RESIDENT_BYTES) % sysconf(_SC_PAGESIZE), 0);
    assert_true(value_of(&shown, PROCESS_VIRTUAL_BYTES) > value_of(&shown, PROCESS_RESIDENT_BYTES));
    assert_true(value_of(&shown, PROCESS_CPU_SECONDS) >= 0);
    assert_true(value_of(&shown, PROCESS_CPU_SECONDS) <=
                cpu.tv_sec * MILLI + cpu.tv_nsec / 1000000 + MILLI);
    assert_int_equal(value_of(&shown, PROCESS_MAX_FDS), limit.rlim_cur);
    start_ms = value_of(&shown, PROCESS_START_SECONDS);
    up_ms = (int64_t)now.tv_sec * MILLI - start_ms;
    assert_true(start_ms > boot_time_s() * MILLI);
    assert_true(up_ms > -2 * MILLI && up_ms < 3600 * MILLI);
    shown_close(&shown);
}

static void every_open_descriptor_counts(void **state)
{
    struct shown shown;
    int64_t before;
    int fds[3];

    (void)state;
    shown_open(&shown);
    before = value_of(&shown, PROCESS_OPEN_FDS);
    for (size_t i = 0; i < 3; i++) {
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fds[i] >= 0);
    }
    on_collect(&shown.process.collector);
    assert_int_equal(value_of(&shown, PROCESS_OPEN_FDS), before + 3);
    for (size_t i = 0; i < 3; i++)
        close(fds[i]);
    on_collect(&shown.process.collector);

    assert_int_equal(value_of(&shown, PROCESS_OPEN_FDS), before);
    shown_close(&shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_and_time_are_those_of_this_process),
        cmocka_unit_test(every_open_descriptor_counts),
    };

    return cmocka_run_group_tests_name("process_metrics", tests, NULL, NULL);
}
