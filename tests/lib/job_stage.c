/* A job of real processes on this host, for tests of the strategy. */
#include "job_stage.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/registry_server.h>
#include <muster/stream.h>

#include "test_env.h"

static bool is_member;   /* this process is one of the others */
static int reports = -1; /* where the launcher of the case's member is told, or -1 */

void job_check(bool is_true, const char *text, const char *file, int line)
{
    if (is_true)
        return;
    if (!is_member)
        fail_msg("%s:%d: %s", file, line, text);
    fprintf(stderr, "member: %s:%d: %s\n", file, line, text);
    exit(1);
}

void job_check_rc(const struct muster_strategy *strategy, enum muster_rc rc,
                  enum muster_rc expected, const char *text, const char *file, int line)
{
    const char *error = muster_strategy_error(strategy)->text;

    if (rc != expected || (rc != MUSTER_OK && strstr(error, text) == NULL))
        job_check(false, error, file, line);
}

/* --- The registry --- */

static bool has_hung_up(int fd)
{
    struct pollfd watched = {.fd = fd};

    return poll(&watched, 1, 0) == 1;
}

static void on_server_closed(struct muster_registry_server *server)
{
    *(bool *)muster_registry_server_data(server) = true;
}

/* Until the case has closed its end of the pipe. */
static void serve_registry(int from_case, int to_case)
{
    const struct muster_registry_store_options store_options = {.path = NULL};
    const struct muster_registry_server_options options = {.listen = "127.0.0.1:0"};
    struct muster_registry_server *server = NULL;
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    struct test_env test;
    bool is_closed = false;

    test_env_open(&test);
    JOB_CHECK(muster_net_system_open(&test.env, &test.env.net) == MUSTER_OK);
    JOB_CHECK(muster_registry_store_open(test.env.mem, &store_options, &store, &error) ==
              MUSTER_OK);
    JOB_CHECK(muster_registry_server_open(&test.env, store, &options, &server, &error) ==
              MUSTER_OK);
    muster_registry_server_set_data(server, &is_closed);
    muster_address_format(muster_registry_server_address(server), endpoint);
    JOB_CHECK(write(to_case, endpoint, strlen(endpoint) + 1) > 0);
    close(to_case);
    while (!has_hung_up(from_case))
        muster_loop_turn(test.env.loop, 10 * MUSTER_NS_PER_MS);
    muster_registry_server_close(server, 0, on_server_closed);
    while (!is_closed)
        muster_loop_turn(test.env.loop, MUSTER_NS_PER_MS);
    test_env_turn(&test.env, 4);
    muster_registry_store_close(store);
    muster_net_system_close(test.env.net);
    test_env_close(&test);
}

/* Before this process has a thread: fork is safe. */
static pid_t start_process(void)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        is_member = true;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

static void start_registry(struct job_stage *stage)
{
    int there[2], back[2];

    assert_int_equal(pipe2(there, O_CLOEXEC), 0);
    assert_int_equal(pipe2(back, O_CLOEXEC), 0);
    stage->registry = start_process();
    if (stage->registry == 0) {
        close(there[1]);
        close(back[0]);
        serve_registry(there[0], back[1]);
        exit(0);
    }
    close(there[0]);
    close(back[1]);
    stage->registry_pipe = there[1];
    assert_true(read(back[0], stage->endpoint, sizeof(stage->endpoint)) > 0);
    close(back[0]);
}

/* --- The stage --- */

static void set_number(const char *name, long number)
{
    char text[32];

    snprintf(text, sizeof(text), "%ld", number);
    assert_int_equal(setenv(name, text, 1), 0);
}

void job_stage_open(struct job_stage *stage, unsigned rank, unsigned size)
{
    static const char *const unset[] = {"TF_CONFIG",          "MUSTER_RESOLVER",
                                        "MUSTER_INCARNATION", "MUSTER_LOG_FORMAT",
                                        "MUSTER_REJOIN",      "MUSTER_REPORT_FD"};
    static unsigned jobs;

    memset(stage, 0, sizeof(*stage));
    stage->size = size;
    for (size_t i = 0; i < sizeof(unset) / sizeof(unset[0]); i++)
        unsetenv(unset[i]);
    start_registry(stage);
    assert_int_equal(pipe2(stage->reports, O_CLOEXEC | O_NONBLOCK), 0);
    set_number("RANK", rank);
    set_number("WORLD_SIZE", size);
    reports = stage->reports[1];
    set_number("MUSTER_JOB", (long)getpid() * 100 + (long)++jobs % 100);
    setenv("MUSTER_REGISTRY", stage->endpoint, 1);
    setenv("MUSTER_TRACE", "off", 1);
    setenv("MUSTER_LOG_LEVEL", "error", 1);
}

static void start_member(struct job_stage *stage, unsigned rank, job_member_fn *body, void *data,
                         bool is_told)
{
    stage->others[rank] = start_process();
    if (stage->others[rank] > 0)
        return;
    close(stage->registry_pipe);
    close(stage->reports[0]);
    if (!is_told)
        close(stage->reports[1]);
    reports = is_told ? stage->reports[1] : -1;
    set_number("RANK", rank);
    body(rank, data);
    exit(0);
}

void job_stage_start(struct job_stage *stage, unsigned rank, job_member_fn *body, void *data)
{
    start_member(stage, rank, body, data, false);
}

void job_stage_start_told(struct job_stage *stage, unsigned rank, job_member_fn *body, void *data)
{
    start_member(stage, rank, body, data, true);
}

static int join_one(struct job_stage *stage, unsigned rank)
{
    int status = 0;

    assert_int_equal(waitpid(stage->others[rank], &status, 0), stage->others[rank]);
    stage->others[rank] = 0;
    return status;
}

void job_stage_join(struct job_stage *stage)
{
    for (unsigned rank = 0; rank < JOB_MEMBERS_MAX; rank++)
        if (stage->others[rank] != 0 && join_one(stage, rank) != 0)
            fail_msg("rank %u has not returned from its script", rank);
}

bool job_stage_join_killed(struct job_stage *stage, unsigned rank)
{
    int status = join_one(stage, rank);

    assert_true(status == 0 || WIFSIGNALED(status));
    return status != 0;
}

void job_stage_close(struct job_stage *stage)
{
    int status = 0;

    job_stage_join(stage);
    close(stage->registry_pipe);
    assert_int_equal(waitpid(stage->registry, &status, 0), stage->registry);
    assert_int_equal(status, 0);
    close(stage->reports[0]);
    close(stage->reports[1]);
    reports = -1;
}

const char *job_stage_told(struct job_stage *stage)
{
    size_t length = strlen(stage->told);
    ssize_t bytes;

    while ((bytes = read(stage->reports[0], stage->told + length,
                         sizeof(stage->told) - 1 - length)) > 0)
        length += (size_t)bytes;
    stage->told[length] = '\0';
    return stage->told;
}

/* --- Strategies --- */

/* Each strategy has a descriptor of its own, which it closes. */
static void set_reports(void)
{
    if (reports >= 0)
        set_number("MUSTER_REPORT_FD", fcntl(reports, F_DUPFD_CLOEXEC, 0));
    else
        unsetenv("MUSTER_REPORT_FD");
}

struct muster_strategy *job_strategy_open(void)
{
    const struct muster_strategy_options options = {.op_timeout_ns = JOB_WAIT_NS,
                                                    .start_timeout_ns = JOB_WAIT_NS};
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    set_reports();
    if (muster_strategy_open(&options, &strategy, &error) != MUSTER_OK)
        job_check(false, error.text, __FILE__, __LINE__);
    return strategy;
}

uint64_t job_begin(struct muster_strategy *strategy)
{
    uint64_t step = 0;

    if (muster_strategy_begin(strategy, &step, NULL) != MUSTER_OK)
        job_check(false, muster_strategy_error(strategy)->text, __FILE__, __LINE__);
    return step;
}

void job_commit(struct muster_strategy *strategy)
{
    if (muster_strategy_commit(strategy) != MUSTER_OK)
        job_check(false, muster_strategy_error(strategy)->text, __FILE__, __LINE__);
}

void job_sum(struct muster_strategy *strategy, int64_t *value)
{
    const struct muster_tensor tensor = {.data = value, .count = 1, .dtype = MUSTER_I64};

    if (muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM) != MUSTER_OK)
        job_check(false, muster_strategy_error(strategy)->text, __FILE__, __LINE__);
}
