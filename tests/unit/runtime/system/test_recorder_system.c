/* The flight recorder's file: what it says, and where it may lie. */
#include "test_env.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <muster/json.h>

#include "runtime/system/recorder_system.h"

struct stand {
    struct test_env test;
    char folder[64];
};

static int set_up(void **state)
{
    static struct stand stand;

    strcpy(stand.folder, "/tmp/muster-recorder-XXXXXX");
    assert_non_null(mkdtemp(stand.folder));
    test_env_open(&stand.test);
    assert_int_equal(muster_trace_open(stand.test.env.mem, 4, &stand.test.env.trace), MUSTER_OK);
    *state = &stand;
    return 0;
}

static int tear_down(void **state)
{
    struct stand *stand = *state;

    muster_trace_close(stand->test.env.trace);
    test_env_close(&stand->test);
    rmdir(stand->folder);
    return 0;
}

static struct muster_recorder *recorder_telling(struct stand *stand, const char *job,
                                                const char *folder, const int *report_fd)
{
    struct muster_recorder_options options = {
        .mem = stand->test.env.mem,
        .trace = stand->test.env.trace,
        .folder = folder,
        .temporary = stand->folder,
        .job = job,
        .task = "worker:2",
        .incarnation = "0123456789abcdef0123456789abcdef",
        .report_fd = report_fd,
    };
    struct muster_recorder *recorder = NULL;

    assert_int_equal(muster_recorder_open(&options, &recorder), MUSTER_OK);
    return recorder;
}

static struct muster_recorder *recorder_of(struct stand *stand, const char *job, const char *folder)
{
    return recorder_telling(stand, job, folder, NULL);
}

static struct muster_json *line_of(FILE *file)
{
    char line[4096];
    struct muster_json *root = NULL;

    assert_non_null(fgets(line, sizeof(line), file));
    assert_int_equal(muster_json_parse(line, strlen(line), &root, NULL), MUSTER_OK);
    return root;
}

static void the_header_tells_the_error_whatever_is_in_it(void **state)
{
    struct stand *stand = *state;
    struct muster_recorder *recorder = recorder_of(stand, "a/../\"job\"", stand->folder);
    struct muster_json *header;
    FILE *file;

    for (uint64_t i = 0; i < 6; i++)
        muster_trace_emit_at(&stand->test.env, i, "step_begun", NULL, i, 0, 0);
    muster_recorder_set_rank(recorder, 7);
    assert_int_equal(muster_recorder_dump(recorder, "\"quoted\"\\\n\xff\xc3\xa9"), MUSTER_OK);

    assert_non_null(strstr(muster_recorder_path(recorder), "/a_..__job_-worker-2-01234567"));
    file = fopen(muster_recorder_path(recorder), "re");
    assert_non_null(file);
    header = line_of(file);
    assert_string_equal(muster_json_text(muster_json_member(header, "error")),
                        "\"quoted\"\\\n?\xc3\xa9");
    assert_string_equal(muster_json_text(muster_json_member(header, "job")), "a/../\"job\"");
    assert_int_equal(muster_json_integer(muster_json_member(header, "rank")), 7);
    assert_int_equal(muster_json_integer(muster_json_member(header, "emitted")), 6);
    assert_int_equal(muster_json_integer(muster_json_member(header, "events")), 4);
    muster_json_free(header);
    header = line_of(file);
    assert_int_equal(muster_json_integer(muster_json_member(header, "a")), 2);
    muster_json_free(header);
    fclose(file);
    unlink(muster_recorder_path(recorder));
    muster_recorder_close(recorder);
}

static void a_number_beyond_the_integers_of_json_is_a_text(void **state)
{
    struct muster_trace_event event = {
        .time_ns = 1, .kind = "k", .text = "t", .a = INT64_MAX, .b = UINT64_MAX};
    char line[MUSTER_TRACE_LINE_BYTES];
    size_t length = muster_trace_format(&event, line);

    (void)state;
    line[length] = '\0';
    assert_string_equal(line,
                        "{\"time_ns\":1,\"a\":9223372036854775807,"
                        "\"b\":\"18446744073709551615\",\"c\":0,\"kind\":\"k\",\"text\":\"t\"}\n");
}

static void a_folder_that_others_may_write_is_refused(void **state)
{
    struct stand *stand = *state;
    struct muster_recorder *recorder = recorder_of(stand, "job", NULL);
    char folder[128];

    snprintf(folder, sizeof(folder), "%s/muster-%u", stand->folder, (unsigned)geteuid());
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(muster_recorder_dump(recorder, "e"), MUSTER_PERMISSION_DENIED);
    assert_int_equal(rmdir(folder), 0); /* it is empty */

    assert_int_equal(muster_recorder_dump(recorder, "e"), MUSTER_OK);
    assert_int_equal(unlink(muster_recorder_path(recorder)), 0);
    assert_int_equal(rmdir(folder), 0);
    muster_recorder_close(recorder);
}

static void make_file(const char *folder, const char *name, time_t seconds, long nanoseconds)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {.tv_sec = seconds, .tv_nsec = nanoseconds}};
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static bool take_away(const char *folder, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return unlink(path) == 0;
}

/* The folder that nobody has named does not grow for ever: the oldest traces go, and nothing else. */
static void the_oldest_files_of_the_own_folder_go(void **state)
{
    enum { COUNT = MUSTER_RECORDER_FILES_MAX + 3 };
    struct stand *stand = *state;
    struct muster_recorder *recorder;
    char folder[128], name[64];

    snprintf(folder, sizeof(folder), "%s/muster-%u", stand->folder, (unsigned)geteuid());
    assert_int_equal(mkdir(folder, 0700), 0);
    make_file(folder, "notes.txt", 1, 0);
    for (int i = 0; i < COUNT; i++) { /* the last ones are the oldest */
        snprintf(name, sizeof(name), "%d.trace.jsonl", i);
        make_file(folder, name, 1000 - i / 2, 1 - i % 2);
    }

    recorder = recorder_of(stand, "job", NULL);
    assert_false(take_away(folder, "66.trace.jsonl"));
    assert_int_equal(muster_recorder_dump(recorder, "e"), MUSTER_OK);

    assert_int_equal(unlink(muster_recorder_path(recorder)), 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "%d.trace.jsonl", i);
        assert_int_equal(take_away(folder, name), i < COUNT - 4);
    }
    assert_true(take_away(folder, "notes.txt"));
    assert_int_equal(rmdir(folder), 0);
    muster_recorder_close(recorder);
}

static void a_launcher_is_told_where_the_file_lies(void **state)
{
    struct stand *stand = *state;
    struct muster_recorder *recorder;
    struct muster_json *line;
    FILE *told;
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    recorder = recorder_telling(stand, "job", stand->folder, &ends[1]);
    assert_int_equal(muster_recorder_dump(recorder, "an error"), MUSTER_OK);
    close(ends[1]);
    told = fdopen(ends[0], "r");
    assert_non_null(told);
    line = line_of(told);

    assert_string_equal(muster_json_text(muster_json_member(line, "error")), "an error");
    assert_int_equal(fgetc(told), EOF);
    assert_int_equal(unlink(muster_recorder_path(recorder)), 0);
    muster_json_free(line);
    muster_recorder_close(recorder);
    fclose(told);
}

/* Also in a handler of signals: the process could not end. */
static void a_launcher_that_does_not_read_is_not_waited_for(void **state)
{
    struct stand *stand = *state;
    char full[4096] = "";
    struct muster_recorder *recorder;
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, sizeof(full)) >= 0);
    assert_int_equal(write(ends[1], full, sizeof(full)), sizeof(full));
    recorder = recorder_telling(stand, "job", stand->folder, &ends[1]);

    assert_int_equal(muster_recorder_dump(recorder, "e"), MUSTER_OK);

    assert_int_equal(unlink(muster_recorder_path(recorder)), 0);
    muster_recorder_close(recorder);
    close(ends[0]);
    close(ends[1]);
}

static volatile sig_atomic_t limit_signals;

static void on_limit_signal(int number)
{
    (void)number;
    limit_signals++;
}

static void a_file_beyond_the_limit_of_sizes_is_lost_and_the_program_goes_on(void **state)
{
    struct stand *stand = *state;
    struct muster_recorder *recorder = recorder_of(stand, "job", stand->folder);
    struct rlimit before, limit;

    assert_true(signal(SIGXFSZ, on_limit_signal) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 16;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);

    assert_int_equal(muster_recorder_dump(recorder, "e"), MUSTER_RESOURCE_EXHAUSTED);

    assert_int_equal(errno, EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(limit_signals, 0);
    assert_int_equal(access(muster_recorder_path(recorder), F_OK), -1);
    muster_recorder_close(recorder);
    (void)signal(SIGXFSZ, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_header_tells_the_error_whatever_is_in_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_number_beyond_the_integers_of_json_is_a_text, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_oldest_files_of_the_own_folder_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_launcher_is_told_where_the_file_lies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_launcher_that_does_not_read_is_not_waited_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_file_beyond_the_limit_of_sizes_is_lost_and_the_program_goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_others_may_write_is_refused, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
