/* A device that hangs: a call that waits for it has a bound, its error and the log name the device, and the others go
 * on. The fakes have threads, so that this process, which starts the others, never loads them. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/strategy_request.h>

#include "device_tensors.h"
#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define COUNT 5u
#define CUDA  MUSTER_BINARY_DIR "/lib/fake_gpu/libcuda.so.1"
#define WAIT_NS                                                                                    \
    (80 * MUSTER_NS_PER_MS) /* passes whatever the machine does, because nothing ends it before */

/* The fake's threads run until the end of the process, and what a device that hangs may write to stays. */
const char *__asan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0:handle_sigill=2";
}

static struct job_stage stage;
static sem_t gate; /* of what hangs */

struct run {
    unsigned rank;
    struct muster_strategy *strategy;
    struct muster_tensor part;
};

#define OK(call) JOB_RC(run->strategy, (call), MUSTER_OK, "")
#define HANGS(call, operation)                                                                     \
    JOB_RC(run->strategy, (call), MUSTER_UNAVAILABLE, "device 0 hangs: " operation " has waited ")

static void stay_at_gate(void *data)
{
    (void)data;
    while (sem_wait(&gate) != 0)
        continue;
}

/* The program's stream gets work that does not end before the gate opens. From now on waits have a short bound: those
 * before it end as late as a busy machine likes. */
static void hang_stream(const struct run *run)
{
    bool (*enqueue)(void *, void (*)(void *), void *);

    for (size_t i = 0; i < run->strategy->memory_count; i++)
        muster_device_memory_set_timeout(run->strategy->memories[i].memory, WAIT_NS);

    *(void **)&enqueue = device_symbol("fake_cuda_enqueue");
    JOB_CHECK(enqueue(NULL, stay_at_gate, NULL));
}

static void run_open(struct run *run)
{
    const struct muster_strategy_options options = {.op_timeout_ns = JOB_WAIT_NS,
                                                    .start_timeout_ns = JOB_WAIT_NS,
                                                    .device_timeout_ns = JOB_WAIT_NS};
    struct muster_error error = {.rc = MUSTER_OK};

    unsetenv("MUSTER_REPORT_FD");
    JOB_CHECK(sem_init(&gate, 0, 0) == 0);
    if (muster_strategy_open(&options, &run->strategy, &error) != MUSTER_OK)
        job_check(false, error.text, __FILE__, __LINE__);
    run->part = device_tensor_new(COUNT, run->rank + 1);
    OK(muster_strategy_register(run->strategy, "part", &run->part));
    job_begin(run->strategy);
}

/* Work that the device does later finds its memory. */
static void run_close(struct run *run)
{
    muster_strategy_close(run->strategy);
    JOB_CHECK(sem_post(&gate) == 0);
    JOB_CHECK(device_knob_get("misuse") == 0);
}

/* Alone, or with the other one. */
static void sum_steps(struct run *run, unsigned steps)
{
    int64_t sum = 1;

    for (unsigned i = 0; i < steps; i++, sum = 1) {
        job_sum(run->strategy, &sum);
        JOB_CHECK(sum == 1 || sum == 2);
        job_commit(run->strategy);
        job_begin(run->strategy);
    }
    job_commit(run->strategy);
}

static void play_members(unsigned size, job_member_fn *body)
{
    setenv("MUSTER_CUDA_LIBRARY", CUDA, 1);
    job_stage_open(&stage, 0, size);
    for (unsigned rank = 0; rank < size; rank++)
        job_stage_start(&stage, rank, body, NULL);
    job_stage_join(&stage); /* each has checked what it saw */
    job_stage_close(&stage);
}

/* --- Commit --- */

static void hang_in_commit(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;

    (void)data;
    run_open(run);
    if (rank == 0) {
        hang_stream(run);
        HANGS(muster_strategy_commit(run->strategy), "commit");
        HANGS(muster_strategy_commit(run->strategy), "commit"); /* at once */
    } else {
        sum_steps(run, 2);
    }
    run_close(run);
}

static void a_commit_names_the_device_and_the_others_go_on(void **state)
{
    (void)state;
    play_members(2, hang_in_commit);
}

/* --- Close --- */

static bool has_logged(FILE *log, const char *event)
{
    char text[8192];
    size_t length;

    rewind(log);
    length = fread(text, 1, sizeof(text) - 1, log);
    text[length] = '\0';
    return strstr(text, event) != NULL;
}

static void hang_in_close(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_error error = {.rc = MUSTER_OK};
    FILE *log = tmpfile();
    int terminal = dup(STDERR_FILENO);

    (void)data;
    run_open(run);
    job_commit(run->strategy);
    hang_stream(run);
    JOB_CHECK(log != NULL && dup2(fileno(log), STDERR_FILENO) >= 0);
    JOB_CHECK(muster_strategy_close_checked(run->strategy, &error) == MUSTER_UNAVAILABLE);
    JOB_CHECK(dup2(terminal, STDERR_FILENO) >= 0);
    JOB_CHECK(strstr(error.text, "device 0 hangs: close has waited ") != NULL);
    JOB_CHECK(has_logged(log, "device_hangs device=0 operation=close waited_ms="));
    JOB_CHECK(sem_post(&gate) == 0);
}

static void a_close_ends_by_the_bound_and_the_log_says_why(void **state)
{
    (void)state;
    play_members(1, hang_in_close);
}

/* --- Requests --- */

/* Its memory is pinned, so that its copies go on beside the stream. */
static void hang_in_request(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request request = {.output = &run->part};

    (void)data;
    run_open(run);
    if (rank == 0)
        hang_stream(run);
    OK(muster_request_start(&request, run->strategy));
    if (rank == 0) {
        HANGS(muster_request_wait(&request), "a request");
    } else {
        OK(muster_request_wait(&request));
        JOB_CHECK(device_tensor_has(&run->part, 0, COUNT, 1)); /* all began with that of rank 0 */
        sum_steps(run, 1);
    }
    run_close(run);
}

static void a_request_ends_by_the_bound_and_the_others_go_on(void **state)
{
    (void)state;
    play_members(2, hang_in_request);
}

static void hang_in_unpinned_request(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request request = {.output = &run->part};

    (void)data;
    run_open(run);
    if (rank == 0) {
        device_knob_set("pinned_fails", 1);
        hang_stream(run);
        HANGS(muster_request_start(&request, run->strategy), "all_reduce");
    } else {
        sum_steps(run, 2);
    }
    run_close(run);
}

static void a_request_without_pinned_memory_does_so_at_its_start(void **state)
{
    (void)state;
    play_members(2, hang_in_unpinned_request);
}

/* The request is under way when the program closes. */
static void close_with_request(unsigned rank, void *data)
{
    struct run own = {.rank = rank}, *run = &own;
    struct muster_request request = {.output = &run->part};

    (void)data;
    run_open(run);
    if (rank == 0) {
        hang_stream(run);
        OK(muster_request_start(&request, run->strategy));
    } else {
        sum_steps(run, 2);
    }
    run_close(run);
}

static void a_close_with_requests_ends_by_the_bound(void **state)
{
    (void)state;
    play_members(2, close_with_request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_names_the_device_and_the_others_go_on),
        cmocka_unit_test(a_close_ends_by_the_bound_and_the_log_says_why),
        cmocka_unit_test(a_request_ends_by_the_bound_and_the_others_go_on),
        cmocka_unit_test(a_request_without_pinned_memory_does_so_at_its_start),
        cmocka_unit_test(a_close_with_requests_ends_by_the_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
