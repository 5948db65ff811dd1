/* Output of workers while each allocation of the launcher fails in turn: it arrives whole, or the launcher ends and
 * says why. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *refused_strndup(const char *text, size_t length)
{
    char *copy = torture_malloc(strnlen(text, length) + 1);

    if (copy != NULL)
        *(char *)mempcpy(copy, text, strnlen(text, length)) = '\0';
    return copy;
}

static int refused_vasprintf(char **ret_text, const char *fmt, va_list args) MUSTER_PRINTF(2, 0);
static int refused_vasprintf(char **ret_text, const char *fmt, va_list args)
{
    void *probe = torture_malloc(1);

    torture_free(probe);
    return probe != NULL ? vasprintf(ret_text, fmt, args) : -1;
}

#define malloc    torture_malloc
#define realloc   torture_library_realloc
#define strndup   refused_strndup
#define vasprintf refused_vasprintf
#include "tools/run/output/console.c"
#include "tools/run/output/log.c"
#include "tools/run/output/output.c"
#include "tools/run/output/sink.c"
#include "tools/run/output/stream.c"
#undef malloc
#undef realloc
#undef strndup
#undef vasprintf

#include <jansson.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PIPE_BYTES (1 << 20)
#define LONG_BYTES 60000

struct row {
    const char *name;
    bool is_json;
    const char *said;     /* by the worker; NULL: a long line */
    const char *told;     /* by the launcher; NULL: nothing */
    const char *parts[3]; /* of what arrives */
};

/* Said by a worker whose words cannot be read. Its address marks that row, so it is no constant: a
 * compiler may give two equal constants one address. */
static char unreadable[] = "first\n";

/* The launcher's other parts. */

void run_spool_poll_later(struct run *run)
{
    (void)run;
}

bool run_mask_of(const char *text, uint32_t rank, unsigned *ret_mask)
{
    (void)text;
    (void)rank;
    (void)ret_mask;
    return true;
}

void output_tell_lost(const char *what, int fd, int error)
{
    (void)what;
    (void)fd;
    (void)error;
}

const char *output_error_text(int error)
{
    return strerror(error);
}

/* --- A launcher in a process of its own --- */

static struct run run;
static struct run_task task;
static struct run_output output;
static struct run_task_output task_output;

/* The read end of a pipe that holds what the worker has said. */
static int write_said(const struct row *row)
{
    static char text[LONG_BYTES];
    int fds[2];

    memset(text, 'x', sizeof(text));
    text[LONG_BYTES - 1] = '\n';
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    if (row->said != NULL)
        assert_int_equal(write(fds[1], row->said, strlen(row->said)), (ssize_t)strlen(row->said));
    else
        assert_int_equal(write(fds[1], text, sizeof(text)), (ssize_t)sizeof(text));
    close(fds[row->said == unreadable ? 0 : 1]);
    return fds[row->said == unreadable ? 1 : 0];
}

static _Noreturn void launch_run(const struct row *row, struct torture *torture, int out)
{
    int said = write_said(row);

    assert_int_equal(muster_env_system_open(NULL, &run.env), MUSTER_OK);
    run.settings.log_format = row->is_json ? "json" : "text";
    run.resume = NULL;
    task.run = &run;
    task_output.out.log_fd = task_output.err.log_fd = -1;
    (void)snprintf(task.name, sizeof(task.name), "worker:0");
    run.output = &output;
    task.output = &task_output;
    run_log_open(&run);
    run_sink_open(&output.sinks[0], run.env->loop, out, on_sink_level, &run);
    output.out = output.err = task_output.out.console = &output.sinks[0];
    torture_arm_system(torture);
    torture_arm_library(torture);
    run_stream_open(&task_output.out, &task, said, run_output_line);
    if (row->told != NULL)
        run_tell(&run, "%s", row->told);
    while (task_output.out.is_open)
        muster_loop_turn(run.env->loop, UINT64_MAX);
    _exit(run_sink_close(output.out) ? 0 : 3);
}

static char arrived[PIPE_BYTES], complaint[256];

static size_t read_all(int fd, char *text, size_t room)
{
    size_t length = 0;
    ssize_t count;

    while ((count = read(fd, text + length, room - 1 - length)) > 0)
        length += (size_t)count;
    text[length] = '\0';
    close(fd);
    return length;
}

/* Its exit code; what it has written is read. */
static int launch_apart(const struct row *row, struct torture *torture)
{
    int out[2], err[2], status = 0;
    pid_t pid;

    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    assert_true(fcntl(out[1], F_SETPIPE_SZ, PIPE_BYTES) > 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(err[1], STDERR_FILENO);
        launch_run(row, torture, out[1]);
    }
    close(out[1]);
    close(err[1]);
    (void)read_all(out[0], arrived, sizeof(arrived));
    (void)read_all(err[0], complaint, sizeof(complaint));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static size_t count_x(void)
{
    size_t count = 0;

    for (const char *at = arrived; *at != '\0'; at++)
        count += *at == 'x';
    return count;
}

static void check_arrived(const struct row *row)
{
    for (size_t i = 0; i < 3 && row->parts[i] != NULL; i++)
        if (strstr(arrived, row->parts[i]) == NULL)
            fail_msg("'%s' is not in '%s'", row->parts[i], arrived);
    if (row->said == NULL)
        assert_int_equal(count_x(), LONG_BYTES - 1);
}

static void run_row(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct torture *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int code;

    assert_ptr_not_equal(shared, MAP_FAILED);
    *shared = *torture;
    code = launch_apart(row, shared);
    torture->count = shared->count;
    torture->refused = shared->refused;
    assert_int_equal(munmap(shared, sizeof(*shared)), 0);

    if (code == 0) {
        check_arrived(row);
    } else {
        assert_int_equal(code, 1);
        assert_true(torture->refused > 0);
        assert_string_equal(complaint, "muster: out of memory\n");
    }
}

static void no_line_of_a_worker_is_lost_in_silence(void **state)
{
    static const struct row rows[] = {
        {"lines", false, "first\nsecond\n", NULL, {"[worker:0] first\n", "[worker:0] second\n"}},
        {"a line without an end", false, "first\nsec", NULL, {"[worker:0] sec\n"}},
        {"a long line", false, NULL, NULL, {"[worker:0] xx"}},
        {"a line in JSON", true, "first\nsecond\n", NULL, {"\"first\"", "\"second\"", "worker:0"}},
        {"a record in JSON", true, "{\"loss\": 0.5}\n", NULL, {"loss"}}, /* or as a text */
        {"UTF-8", true, "f\xc3\xa4st\n", NULL, {"f\xc3\xa4st"}},
        {"bytes that are not UTF-8", true, "fi\xffst\n", NULL, {"fi?st"}},
        {"a word of ours", false, "first\n", "a word", {"a word\n", "[worker:0] first\n"}},
        {"what cannot be read",
         false,
         unreadable,
         NULL,
         {"what worker:0 prints is lost from here on: Bad file descriptor\n"}},
        {"a word of ours in JSON", true, "first\n", "a word", {"a word", "first"}},
    };

    (void)state;
    TORTURE_RUN_ROWS(run_row, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(no_line_of_a_worker_is_lost_in_silence, torture_tell),
    };

    json_set_alloc_funcs(torture_malloc, torture_free);
    return cmocka_run_group_tests_name("run_output", tests, NULL, NULL);
}
