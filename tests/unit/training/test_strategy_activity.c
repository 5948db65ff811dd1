/* Reports of a member that stands still: for which member it waits, and in which operation. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

static struct job_stage stage;

/* The other member goes on when the launcher has been told this of that state. */
struct gate {
    const char *in, *text;
    int pipe_ends[2];
    bool is_before_open; /* … where it stands until then: before open, or in the step */
};

static void pass_time(const struct gate *gate)
{
    char byte;

    JOB_CHECK(read(gate->pipe_ends[0], &byte, 1) == 1);
}

static void be_late(unsigned rank, void *data)
{
    const struct gate *gate = data;
    struct muster_strategy *strategy;
    int64_t one = 1;

    (void)rank;
    if (gate->is_before_open)
        pass_time(gate);
    strategy = job_strategy_open();
    job_begin(strategy);
    if (!gate->is_before_open)
        pass_time(gate);
    job_sum(strategy, &one);
    job_commit(strategy);
    muster_strategy_close(strategy);
}

static bool is_told(const struct gate *gate)
{
    const char *line = job_stage_told(&stage);

    while ((line = strstr(line, gate->in)) != NULL) {
        const char *text = strstr(line, gate->text), *end = strchr(line, '\n');

        if (text != NULL && text < end)
            return true;
        line++;
    }
    return false;
}

static void *open_gate(void *data)
{
    struct gate *gate = data;

    while (!is_told(gate))
        (void)poll(&(struct pollfd){.fd = stage.reports[0], .events = POLLIN}, 1, -1);
    return write(gate->pipe_ends[1], "x", 1) == 1 ? gate : NULL;
}

static void who_is_awaited_is_told(void **state)
{
    static struct gate gates[] = {
        {.in = "\"state\":\"collective\"",
         .text = "\"waits_for\":\"worker:1\",\"op\":\"all_reduce"},
        {.in = "\"state\":\"begin\"", .text = "\"stands_for\":\"", .is_before_open = true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(gates) / sizeof(gates[0]); i++) {
        struct muster_strategy *strategy;
        pthread_t thread;
        void *done = NULL;
        int64_t one = 1;

        assert_int_equal(pipe(gates[i].pipe_ends), 0);
        job_stage_open(&stage, 0, 2);
        job_stage_start(&stage, 1, be_late, &gates[i]);
        strategy = job_strategy_open();
        assert_int_equal(pthread_create(&thread, NULL, open_gate, &gates[i]), 0);
        job_begin(strategy);
        job_sum(strategy, &one);
        assert_int_equal(pthread_join(thread, &done), 0);
        assert_ptr_equal(done, &gates[i]);
        assert_int_equal(one, 2);
        job_commit(strategy);
        muster_strategy_close(strategy);
        job_stage_close(&stage);
        close(gates[i].pipe_ends[0]);
        close(gates[i].pipe_ends[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_awaited_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
