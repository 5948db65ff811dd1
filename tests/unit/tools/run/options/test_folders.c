/* The folders of a launcher that takes workers over: one that cannot be used for a moment is waited for. */
#include "tools/run/options/folders.c"

#include "test_env.h"
#include "virtual_loop.h"

#include <stdarg.h>

static struct virtual_loop played_loop;
static unsigned pause_count, back_after;

static struct {
    struct run run;
    struct run_resume resume;
    struct muster_env env;
    char root[64], folder[96], whole[PATH_MAX];
    unsigned tell_count;
    char told[1024], failed[1024];
} stand;

static void keep_text(char *text, const char *fmt, va_list args) MUSTER_PRINTF(2, 0);

static void keep_text(char *text, const char *fmt, va_list args)
{
    assert_true(vsnprintf(text, 1024, fmt, args) < 1024);
}

void run_log_error(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    keep_text(stand.failed, fmt, args);
    va_end(args);
}

void run_tell(struct run *run, const char *fmt, ...)
{
    va_list args;

    (void)run;
    stand.tell_count++;
    va_start(args, fmt);
    keep_text(stand.told, fmt, args);
    va_end(args);
}

static void folder_bring_back(void)
{
    assert_int_equal(mkdir(stand.folder, 0777), 0);
}

void loop_pause(struct muster_loop *loop, uint64_t pause_ns)
{
    assert_ptr_equal(loop, &played_loop.loop);
    if (++pause_count == back_after)
        folder_bring_back();
    virtual_loop_advance(&played_loop, pause_ns);
}

static int set_up(void **state)
{
    (void)state;
    memset(&stand, 0, sizeof(stand));
    pause_count = back_after = 0;
    virtual_loop_init(&played_loop);
    stand.env.loop = &played_loop.loop;
    stand.run.env = &stand.env;
    stand.run.resume = &stand.resume;
    stand.resume.is_resumed = true;
    strcpy(stand.resume.dir, "/runs/r");
    strcpy(stand.root, "/tmp/muster-folders-XXXXXX");
    assert_non_null(mkdtemp(stand.root));
    snprintf(stand.folder, sizeof(stand.folder), "%s/checkpoints", stand.root);
    stand.run.settings.checkpoint_dir = stand.folder;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)!rmdir(stand.folder);
    assert_int_equal(rmdir(stand.root), 0);
    return 0;
}

static void a_successor_takes_the_folder_that_is_there(void **state)
{
    (void)state;
    folder_bring_back();
    assert_true(run_checkpoint_dir_open(&stand.run));
    assert_string_equal(stand.run.settings.checkpoint_dir, stand.folder);
    assert_int_equal(stand.tell_count, 0);
    assert_int_equal(pause_count, 0);
}

static void a_successor_waits_for_the_folder_and_says_so(void **state)
{
    char expected[1024];

    (void)state;
    back_after = 3;
    assert_true(run_checkpoint_dir_open(&stand.run));
    assert_int_equal(pause_count, 3);
    assert_int_equal(stand.tell_count, 1);
    snprintf(
        expected, sizeof(expected),
        "waits up to 60 s for the directory %s of --checkpoint-dir: No such file or directory; "
        "the workers go on meanwhile",
        stand.folder);
    assert_string_equal(stand.told, expected);
    assert_string_equal(stand.run.settings.checkpoint_dir, stand.folder);
}

/* It is not made anew: under the place of a file system that is not mounted it would be another one. */
static void a_successor_gives_up_at_its_bound(void **state)
{
    char expected[1024];

    (void)state;
    assert_false(run_checkpoint_dir_open(&stand.run));
    assert_int_equal(pause_count, 60);
    assert_int_equal(stand.tell_count, 6);
    snprintf(expected, sizeof(expected),
             "the directory %s of --checkpoint-dir cannot be used for 60 s: No such file or "
             "directory; the workers go on: mount or mend it, and take them over with 'muster run "
             "--resume /runs/r'",
             stand.folder);
    assert_string_equal(stand.failed, expected);
    assert_int_not_equal(access(stand.folder, F_OK), 0);
}

static void the_first_launcher_makes_the_folder(void **state)
{
    (void)state;
    stand.resume.is_resumed = false;
    assert_true(run_checkpoint_dir_open(&stand.run));
    assert_int_equal(access(stand.folder, F_OK), 0);
    assert_int_equal(pause_count, 0);
}

static void a_successor_waits_for_the_folder_of_traces(void **state)
{
    (void)state;
    stand.run.settings.trace_dir = stand.folder;
    back_after = 1;
    assert_true(run_trace_dir_open(&stand.run));
    assert_string_equal(stand.run.trace_dir, stand.folder);
    assert_non_null(strstr(stand.told, " of --trace: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_successor_takes_the_folder_that_is_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_successor_waits_for_the_folder_and_says_so, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_successor_gives_up_at_its_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_launcher_makes_the_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_successor_waits_for_the_folder_of_traces, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
