/* How a run ended, for people and as JSON. */
#include "tools/run/report/preemption.c"
#include "tools/run/report/saved.c"
#include "tools/run/report/summary.c"
#include "tools/run/state/outcome.c"

#include "test_env.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

enum { TASKS = 2 };

static char told[4096], written[8192];

static void add_told(const char *fmt, va_list args) MUSTER_PRINTF(1, 0);
static void add_told(const char *fmt, va_list args)
{
    size_t length = strlen(told);

    vsnprintf(told + length, sizeof(told) - length, fmt, args);
    length = strlen(told);
    snprintf(told + length, sizeof(told) - length, "\n");
}

/* --- The launcher's other parts */

const char *run_activity_state(const struct run_task *task)
{
    (void)task;
    return "computing";
}

const char *run_activity_waits_for(const struct run_task *task)
{
    (void)task;
    return "";
}

uint64_t run_activity_silent_ns(const struct run_task *task)
{
    (void)task;
    return 0;
}

void run_tell(struct run *run, const char *fmt, ...)
{
    va_list args;

    (void)run;
    va_start(args, fmt);
    add_told(fmt, args);
    va_end(args);
}

void run_log_error(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add_told(fmt, args);
    va_end(args);
}

void run_log(struct run *run, enum muster_log_level level, const char *event,
             const struct muster_field *fields, size_t count, const char *fmt, ...)
{
    va_list args;

    (void)run;
    (void)level;
    (void)event;
    (void)fields;
    (void)count;
    va_start(args, fmt);
    add_told(fmt, args);
    va_end(args);
}

void run_log_report(struct run *run, const char *event, const struct muster_field *fields,
                    size_t count, char *text)
{
    size_t length = strlen(told);

    (void)run;
    (void)event;
    (void)fields;
    (void)count;
    snprintf(told + length, sizeof(told) - length, "%s", text);
}

const char *output_error_text(int error)
{
    return strerror(error);
}

void run_sink_write(struct run_sink *sink, const char *bytes, size_t count)
{
    (void)sink;
    snprintf(written, sizeof(written), "%.*s", (int)count, bytes);
}

struct muster_json *run_anew_steps(const struct run *run)
{
    (void)run;
    return muster_json_array_new();
}

const char *run_task_death(int wait_status, char *text, size_t bytes)
{
    snprintf(text, bytes, "ended by %d", wait_status);
    return text;
}

int run_task_exit_code(int wait_status)
{
    return wait_status;
}

/* --- A run whose workers have ended */

struct scene {
    struct test_env test;
    struct run run;
    struct run_task tasks[TASKS];
    struct run_task_output outputs[TASKS];
    struct run_output output;
};

/* 2.5 s ago. */
static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    if (scene == NULL)
        return -1;
    told[0] = written[0] = '\0';
    test_env_open(&scene->test);
    scene->run = (struct run){.env = &scene->test.env,
                              .tasks = scene->tasks,
                              .task_count = TASKS,
                              .output = &scene->output,
                              .settings = {.json = "-", .job_name = "train", .nodes_max = 1},
                              .epoch_last = 4};
    scene->run.started_ns = muster_loop_now_ns(scene->test.env.loop) - 2500 * MUSTER_NS_PER_MS;
    for (uint32_t i = 0; i < TASKS; i++) {
        scene->tasks[i].run = &scene->run;
        scene->tasks[i].rank = i;
        scene->tasks[i].lives = 1;
        scene->tasks[i].worker_pid = (int)(100 + i);
        scene->tasks[i].output = &scene->outputs[i];
        snprintf(scene->tasks[i].name, sizeof(scene->tasks[i].name), "worker:%u", i);
    }
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    test_env_close(&scene->test);
    free(scene);
    return 0;
}

static void put_results(struct scene *scene, uint64_t steps)
{
    for (uint32_t i = 0; i < TASKS; i++) {
        scene->tasks[i].has_result = scene->tasks[i].took_part = true;
        scene->tasks[i].steps = steps;
        snprintf(scene->tasks[i].digest, sizeof(scene->tasks[i].digest), "00ff");
    }
}

/* The keys of docs/summary.md in their order, and what they hold here. */
static void check_json(const char *const rows[][2], size_t count)
{
    struct muster_json *root = NULL;

    assert_int_equal(muster_json_parse(written, strlen(written), &root, NULL), MUSTER_OK);
    for (size_t i = 0; i < count; i++) {
        const struct muster_json *value = muster_json_member(root, rows[i][0]);
        char *text = NULL;

        print_message("%s\n", rows[i][0]);
        assert_non_null(value);
        assert_int_equal(muster_json_format(value, false, muster_mem_system(), &text), MUSTER_OK);
        if (rows[i][1] != NULL)
            assert_string_equal(text, rows[i][1]);
        muster_mem_free(muster_mem_system(), text);
    }
    muster_json_free(root);
}

static void the_summary_has_all_keys(void **state)
{
    static const char *const rows[][2] = {
        {"exit_code", "0"},
        {"steps", "7"},
        {"kills", "1"},
        {"kills_unreached", "[]"},
        {"restarts", "2"},
        {"rejoins", "3"},
        {"steps_lost", "5"},
        {"begun_anew_at", "[]"},
        {"preempted", "null"},
        {"epochs", "4"},
        {"views", "4"},
        {"joins", "6"},
        {"recovery_ms", "{\"median\":null,\"max\":null}"},
        {"detection_ms", "{\"median\":null,\"max\":null}"},
        {"recovery_ms_max", "null"},
        {"identical", "true"},
        {"digests", "[\"00ff\",\"00ff\"]"},
        {"survivors_restarted", "8"},
        {"workers", "2"},
        {"took_part", "2"},
        {"machines", "1"},
        {"machines_identical", "9"},
        {"members_max", "10"},
        {"seconds", NULL},
        {"job", "\"train\""},
        {"values", "{}"},
        {"tasks", NULL},
        {"first_failure", "null"},
    };
    struct scene *scene = *state;

    put_results(scene, 7);
    scene->run.kills = 1;
    scene->run.restarts = 2;
    scene->run.rejoins = 3;
    scene->run.steps_undone = 5;
    scene->run.joins = 6;
    scene->run.survivors_restarted = 8;
    scene->run.machines_same = 9;
    scene->run.members_max = 10;

    assert_true(run_summary_write(&scene->run));

    check_json(rows, sizeof(rows) / sizeof(rows[0]));
    assert_non_null(strstr(written, "\"seconds\":2."));
    assert_int_equal(written[strlen(written) - 1], '\n');
}

static void the_first_failure_is_named(void **state)
{
    static const char *const rows[][2] = {
        {"exit_code", "3"},
        {"identical", "null"},
        {"first_failure", "{\"task\":\"worker:1\",\"pid\":101,\"exit_code\":3,\"how\":\"ended by "
                          "3\",\"reason\":null,\"trace\":null}"},
    };
    struct scene *scene = *state;

    scene->run.exit_code = scene->run.failed_code = 3;
    scene->run.failed = &scene->tasks[1];
    scene->tasks[1].wait_status = 3;

    assert_true(run_summary_write(&scene->run));

    check_json(rows, sizeof(rows) / sizeof(rows[0]));
}

static void a_failure_that_no_restart_would_mend_has_its_reason(void **state)
{
    static const char *const rows[][2] = {
        {"first_failure", "{\"task\":\"worker:1\",\"pid\":101,\"exit_code\":3,\"how\":\"ended by "
                          "3\",\"reason\":\"no checkpoint is whole\",\"trace\":null}"},
    };
    struct scene *scene = *state;

    scene->run.exit_code = scene->run.failed_code = 3;
    scene->run.failed = &scene->tasks[1];
    scene->tasks[1].wait_status = 3;
    scene->tasks[1].is_refused = true;
    strcpy(scene->tasks[1].refusal, "no checkpoint is whole");

    assert_true(run_summary_write(&scene->run));

    check_json(rows, sizeof(rows) / sizeof(rows[0]));
}

static void the_first_failure_is_reported_whole(void **state)
{
    struct scene *scene = *state;
    struct run_task *task = &scene->tasks[1];

    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    scene->run.exit_code = scene->run.failed_code = 3;
    scene->run.failed = task;
    scene->run.settings.restarts_max = 5;
    task->wait_status = 3;
    task->restarts = 2;
    task->ended_wall_ns = UINT64_C(1700000000) * MUSTER_NS_PER_S;
    strcpy(task->output->last_lines[0], "first");
    strcpy(task->output->last_lines[1], "second");
    task->output->last_line_count = 2;

    run_summary_print(&scene->run);

    assert_non_null(strstr(told, "  task       worker:1 (rank 1)\n"));
    assert_non_null(strstr(told, "  pid        101\n"
                                 "  ended      ended by 3, exit code of this run 3\n"
                                 "  time       2023-11-14 22:13:20 +0000\n"
                                 "  restarts   2 of 5 used\n"
                                 "  last output\n"
                                 "    first\n"
                                 "    second\n"));
}

static void people_are_told_steps_and_seconds(void **state)
{
    struct scene *scene = *state;

    put_results(scene, 7);
    run_summary_print(&scene->run);
    assert_non_null(strstr(told, "done: 7 steps in 2.5 s\n"));
    assert_non_null(strstr(told, "weights byte-identical on 2 workers\n"));
    assert_non_null(strstr(told, "2 of 2 tasks took part\n"));
}

static void weights_are_not_known_where_no_state_is_registered(void **state)
{
    static const char *const rows[][2] = {{"identical", "null"}, {"digests", "[]"}};
    struct scene *scene = *state;

    put_results(scene, 7);
    for (uint32_t i = 0; i < TASKS; i++)
        scene->tasks[i].digest[0] = '\0';

    run_summary_print(&scene->run);
    assert_non_null(strstr(told, "no state is registered: whether weights are the same is not "
                                 "known\n"));
    assert_null(strstr(told, "byte-identical"));
    assert_null(strstr(told, "had left"));

    assert_true(run_summary_write(&scene->run));
    check_json(rows, sizeof(rows) / sizeof(rows[0]));
}

static void a_run_that_was_stopped_tells_its_steps(void **state)
{
    struct scene *scene = *state;

    scene->run.stop_signal = SIGTERM;
    scene->run.progress.step = 7;
    run_summary_print(&scene->run);
    assert_string_equal(told, "ended by SIGTERM after 7 steps in 2.5 s\n");
}

static void a_run_that_saved_nothing_says_so(void **state)
{
    static const char *const rows[][2] = {
        {"not_saved", "{\"step\":7,\"task\":null,\"reason\":\"the directory does not have it\"}"}};
    struct scene *scene = *state;
    struct run_outcome outcome;

    put_results(scene, 7);
    scene->run.settings.checkpoint_dir = "/nonexistent";
    scene->run.exit_code = 1;
    run_summary_print(&scene->run);
    assert_true(run_summary_write(&scene->run));

    assert_non_null(strstr(told,
                           "step 7 is not saved: /nonexistent has no checkpoint, and the same "
                           "command begins with step 1; exit code of this run 1\n"));
    check_json(rows, 1);
    run_outcome_gather(&scene->run, &outcome);
    assert_true(run_saved_is_missing(&scene->run, &outcome));
    scene->run.settings.checkpoint_dir = NULL;
    assert_false(run_saved_is_missing(&scene->run, &outcome));
}

static void the_end_of_rank_0_that_may_be_missing_is_told(void **state)
{
    struct scene *scene = *state;

    put_results(scene, 7);
    scene->run.exit_code = 1;
    scene->tasks[0].has_result = false;
    scene->tasks[0].is_too_late = true;
    scene->tasks[0].undone_step = 7;
    run_summary_print(&scene->run);
    assert_true(run_summary_write(&scene->run));

    assert_non_null(strstr(told, "the end of rank 0 may be missing: worker:0 died after the last "
                                 "step, 7, before it closed"));
    assert_non_null(strstr(told, "exit code of this run 1; no checkpoint has its state"));
    assert_non_null(strstr(written, "\"died_after_step\":7"));

    told[0] = '\0';
    scene->run.settings.checkpoint_dir = "/nonexistent";
    run_summary_print(&scene->run);
    assert_non_null(strstr(told, "step 7 is not saved: /nonexistent has no checkpoint, "));
    assert_non_null(strstr(told, "if that step is saved, start the same command again for it"));
}

/* The program's own folder counts like that of --checkpoint-dir, and not beside it. */
static void the_end_is_looked_for_where_the_program_saves(void **state)
{
    char beyond[PATH_MAX + 1];
    struct scene *scene = *state;
    struct run_outcome outcome;

    put_results(scene, 7);
    run_outcome_gather(&scene->run, &outcome);
    run_saved_on_folder(&scene->run, NULL);
    assert_null(run_saved_folder(&scene->run));
    assert_false(run_saved_is_missing(&scene->run, &outcome));
    run_saved_on_folder(&scene->run, "/nonexistent");
    assert_true(run_saved_is_missing(&scene->run, &outcome));
    scene->run.exit_code = 1;
    run_summary_print(&scene->run);
    assert_non_null(strstr(told, "step 7 is not saved: /nonexistent has no checkpoint, "));

    memset(beyond, 'a', PATH_MAX);
    beyond[PATH_MAX] = '\0';
    run_saved_on_folder(&scene->run, beyond);
    assert_string_equal(run_saved_folder(&scene->run), "/nonexistent");
    scene->run.settings.checkpoint_dir = "/data/job";
    assert_string_equal(run_saved_folder(&scene->run), "/data/job");
}

/* Nobody has a result; the folder tells whether the last step is lost. */
static void who_is_late_alone_is_told_what_is_saved(void **state)
{
    struct scene *scene = *state;

    scene->run.settings.checkpoint_dir = "/nonexistent";
    scene->run.progress.step = 7;
    scene->run.exit_code = 137;
    scene->tasks[0].is_too_late = true;
    scene->run.failed = &scene->tasks[0];
    run_summary_print(&scene->run);

    assert_non_null(strstr(told, "step 7 is not saved: /nonexistent has no checkpoint, "));
}

static void a_folder_that_cannot_be_read_is_not_called_empty(void **state)
{
    struct scene *scene = *state;
    char folder[] = "/tmp/muster-loop-XXXXXX";

    assert_non_null(mkdtemp(folder));
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(symlink(folder, folder), 0); /* a link to itself */
    put_results(scene, 7);
    scene->run.settings.checkpoint_dir = folder;
    scene->run.exit_code = 1;
    run_summary_print(&scene->run);
    assert_int_equal(unlink(folder), 0);

    assert_non_null(strstr(told, "step 7 may not be saved: cannot list /tmp/muster-loop-"));
}

static void file_make(const char *folder, const char *name, bool is_held, int *ret_fd)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    *ret_fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(*ret_fd >= 0);
    if (is_held)
        assert_int_equal(flock(*ret_fd, LOCK_EX), 0);
}

static void file_delete(const char *folder, const char *name, int fd)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

/* Other members went on to it. When none is left it is one with which the run could not begin, unless it is whole. */
static void a_checkpoint_of_a_later_step_saves_the_last_one_while_its_job_runs(void **state)
{
    static const char manifest[] = "checkpoint-000000000008-0000000000000001.manifest";
    static const char mark[] = "used-by-day-00000000000000aa";
    struct scene *scene = *state;
    struct run_outcome outcome;
    char folder[] = "/tmp/muster-saved-XXXXXX";
    int manifest_fd, mark_fd;

    assert_non_null(mkdtemp(folder));
    file_make(folder, manifest, false, &manifest_fd);
    file_make(folder, mark, true, &mark_fd);
    put_results(scene, 7);
    scene->run.settings.checkpoint_dir = folder;
    run_outcome_gather(&scene->run, &outcome);

    assert_false(run_saved_is_missing(&scene->run, &outcome));

    file_delete(folder, mark, mark_fd);
    scene->run.saved.is_known = false;
    assert_true(run_saved_is_missing(&scene->run, &outcome));
    file_delete(folder, manifest, manifest_fd);
    assert_int_equal(rmdir(folder), 0);
}

static void a_last_checkpoint_that_failed_is_told_with_the_way_out(void **state)
{
    static const char *const rows[][2] = {
        {"not_saved", "{\"step\":7,\"task\":\"worker:1\",\"reason\":\"No space left\"}"}};
    struct scene *scene = *state;
    struct run_outcome outcome;

    put_results(scene, 7);
    scene->run.exit_code = 1;
    snprintf(scene->tasks[1].unsaved, sizeof(scene->tasks[1].unsaved), "No space left");
    scene->tasks[1].unsaved_step = 7;
    run_summary_print(&scene->run);
    assert_true(run_summary_write(&scene->run));
    assert_non_null(strstr(told, "muster run: THE LAST CHECKPOINT FAILED, exit code of this run 1\n"
                                 "  step       7\n"
                                 "  reason     worker:1: No space left\n"));
    assert_non_null(strstr(told, "mend that where the program saves, and start it again\n"));
    check_json(rows, 1);

    scene->run.settings.checkpoint_dir = "/nonexistent";
    told[0] = '\0';
    run_summary_print(&scene->run);
    assert_non_null(strstr(told, "  directory  /nonexistent\n"));
    assert_non_null(strstr(told, "start the same command again: it begins with step 1\n"));

    scene->tasks[0].steps = 8; /* went on, and says nothing of a failure */
    run_outcome_gather(&scene->run, &outcome);
    assert_null(run_saved_find_lost(&scene->run, &outcome));
}

static void a_run_without_a_step_says_nothing_of_checkpoints(void **state)
{
    struct scene *scene = *state;

    put_results(scene, 0);
    scene->run.settings.checkpoint_dir = "/nonexistent";
    run_summary_print(&scene->run);

    assert_non_null(strstr(told, "done: 0 steps"));
    assert_null(strstr(told, "/nonexistent"));
}

static void a_preempted_run_tells_where_it_goes_on(void **state)
{
    static const char *const rows[][2] = {{"preempted", "{\"step\":7,\"saved\":true}"}};
    struct scene *scene = *state;

    scene->run.settings.checkpoint_dir = "/data/job";
    scene->run.stop_signal = SIGTERM;
    for (uint32_t i = 0; i < TASKS; i++) {
        scene->tasks[i].is_preempted = true;
        scene->tasks[i].step = 7;
    }
    scene->tasks[1].is_saved = true; /* the other one had come too late to take part */

    run_summary_print(&scene->run);
    assert_true(run_summary_write(&scene->run));

    assert_string_equal(told, "preempted after step 7, which is saved in /data/job: the same "
                              "command goes on from there\n");
    check_json(rows, 1);
}

static void a_run_that_was_stopped_tells_what_is_saved(void **state)
{
    struct scene *scene = *state;

    scene->run.settings.checkpoint_dir = "/nonexistent";
    scene->run.stop_signal = SIGTERM;
    scene->run.exit_code = 143;
    scene->run.progress.step = 7;
    run_summary_print(&scene->run);

    assert_non_null(strstr(told, "ended by SIGTERM after 7 steps"));
    assert_non_null(strstr(told, "step 7 is not saved: /nonexistent has no checkpoint, "));
}

static void programs_that_do_not_use_muster_save_nothing(void **state)
{
    struct scene *scene = *state;

    scene->run.settings.checkpoint_dir = "/data/job";
    run_summary_print(&scene->run);
    assert_non_null(strstr(told, "nothing is saved in /data/job: no worker has opened"));

    told[0] = '\0';
    scene->tasks[1].uses_muster = true;
    run_summary_print(&scene->run);
    assert_null(strstr(told, "/data/job"));
}

static void programs_that_do_not_use_muster_have_no_constant_batch(void **state)
{
    static const struct {
        uint64_t slots;
        bool uses_muster;
        int exit_code;
        bool is_told;
    } rows[] = {
        {8, false, 0, true}, {8, true, 0, false}, {0, false, 0, false}, {8, false, 1, false}};
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        told[0] = '\0';
        scene->run.settings.constant_batch = rows[i].slots;
        scene->tasks[1].uses_muster = rows[i].uses_muster;
        scene->run.exit_code = rows[i].exit_code;
        run_summary_print(&scene->run);
        print_message("row %zu: %s\n", i, told);
        assert_int_equal(
            strstr(told, "--constant-batch 8 has done nothing: no worker has opened a strategy; "
                         "if the program does not use muster, leave it out") != NULL,
            rows[i].is_told);
    }
}

static void a_preempted_run_without_a_directory_says_that_nothing_is_saved(void **state)
{
    struct scene *scene = *state;

    scene->tasks[0].is_preempted = true;
    scene->tasks[0].step = 7;
    run_summary_print(&scene->run);
    assert_string_equal(told, "preempted after step 7; nothing is saved\n");
}

static void a_preempted_run_that_saves_by_itself_says_so(void **state)
{
    struct scene *scene = *state;

    scene->tasks[0].is_preempted = scene->tasks[0].is_saved = true;
    scene->tasks[0].step = 7;
    run_summary_print(&scene->run);
    assert_string_equal(told, "preempted after step 7, which is saved in the program's own folder: "
                              "the same command goes on from there\n");
}

static void a_summary_that_cannot_be_written_is_told(void **state)
{
    struct scene *scene = *state;

    scene->run.settings.json = "/nonexistent/summary";
    assert_false(run_summary_write(&scene->run));
    assert_string_equal(told, "cannot write the summary to /nonexistent/summary: No such file or "
                              "directory\n");

    scene->run.settings.json = NULL;
    assert_true(run_summary_write(&scene->run));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_summary_has_all_keys),
        CASE(the_first_failure_is_named),
        CASE(a_failure_that_no_restart_would_mend_has_its_reason),
        CASE(the_first_failure_is_reported_whole),
        CASE(people_are_told_steps_and_seconds),
        CASE(weights_are_not_known_where_no_state_is_registered),
        CASE(a_run_that_was_stopped_tells_its_steps),
        CASE(a_run_that_saved_nothing_says_so),
        CASE(the_end_is_looked_for_where_the_program_saves),
        CASE(a_folder_that_cannot_be_read_is_not_called_empty),
        CASE(a_checkpoint_of_a_later_step_saves_the_last_one_while_its_job_runs),
        CASE(the_end_of_rank_0_that_may_be_missing_is_told),
        CASE(who_is_late_alone_is_told_what_is_saved),
        CASE(a_last_checkpoint_that_failed_is_told_with_the_way_out),
        CASE(a_run_without_a_step_says_nothing_of_checkpoints),
        CASE(a_preempted_run_tells_where_it_goes_on),
        CASE(a_run_that_was_stopped_tells_what_is_saved),
        CASE(programs_that_do_not_use_muster_save_nothing),
        CASE(programs_that_do_not_use_muster_have_no_constant_batch),
        CASE(a_preempted_run_without_a_directory_says_that_nothing_is_saved),
        CASE(a_preempted_run_that_saves_by_itself_says_so),
        CASE(a_summary_that_cannot_be_written_is_told),
    };

    return cmocka_run_group_tests_name("summary", tests, NULL, NULL);
}
