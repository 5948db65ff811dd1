/* The files by which `muster status` finds the jobs of a host. Jobs of others may run beside the test: it looks for
 * what it has written itself, which stands in the folder that is read first. */
#include "tools/jobs/local_jobs.c"

#include "test_env.h"

#include <sys/wait.h>

static char runtime[64], folder[96];

static void path_of(pid_t pid, char path[static 128])
{
    snprintf(path, 128, "%s/%ld", folder, (long)pid);
}

/* The file of another launcher. */
static void put_file(pid_t pid, const char *endpoint)
{
    char path[128];
    FILE *file;

    path_of(pid, path);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(endpoint, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static const struct local_job *find_job(const struct local_job *jobs, size_t count, pid_t launcher)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i].launcher == launcher)
            return &jobs[i];
    return NULL;
}

static bool is_shown(pid_t launcher)
{
    static struct local_job jobs[LOCAL_JOBS_MAX];

    return find_job(jobs, local_jobs_list(jobs, LOCAL_JOBS_MAX), launcher) != NULL;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(runtime, sizeof(runtime), "/tmp/muster-test-jobs-XXXXXX");
    assert_non_null(mkdtemp(runtime));
    snprintf(folder, sizeof(folder), "%s/muster", runtime);
    assert_int_equal(mkdir(folder, 0700), 0);
    return setenv("XDG_RUNTIME_DIR", runtime, 1);
}

static int tear_down(void **state)
{
    char path[128];

    (void)state;
    local_jobs_remove();
    path_of(getppid(), path);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
    return rmdir(runtime);
}

static void a_job_is_shown_until_it_is_removed(void **state)
{
    (void)state;
    local_jobs_add("127.0.0.1:4001");
    assert_true(is_shown(getpid()));

    local_jobs_remove();
    assert_false(is_shown(getpid()));
}

static void as_many_jobs_are_listed_as_there_is_room_for(void **state)
{
    struct local_job jobs[2];

    (void)state;
    local_jobs_add("127.0.0.1:4001");
    put_file(getppid(), "127.0.0.1:4002");

    assert_int_equal(local_jobs_list(jobs, 0), 0);
    assert_int_equal(local_jobs_list(jobs, 1), 1);
    assert_int_equal(local_jobs_list(jobs, 2), 2);
    assert_string_equal(find_job(jobs, 2, getpid())->endpoint, "127.0.0.1:4001");
    assert_string_equal(find_job(jobs, 2, getppid())->endpoint, "127.0.0.1:4002");
}

static void the_longest_endpoint_is_read_whole(void **state)
{
    char endpoint[LOCAL_ENDPOINT_BYTES] = {0};
    struct local_job jobs[1];

    (void)state;
    memset(endpoint, 'a', sizeof(endpoint) - 1);
    local_jobs_add(endpoint);

    assert_int_equal(local_jobs_list(jobs, 1), 1);
    assert_string_equal(jobs[0].endpoint, endpoint);
}

static void the_file_of_a_dead_launcher_goes(void **state)
{
    char path[128];
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    put_file(pid, "127.0.0.1:4001");

    assert_false(is_shown(pid));
    path_of(pid, path);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void what_is_not_a_file_holds_nobody_up(void **state)
{
    char path[128];

    (void)state;
    path_of(getppid(), path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(is_shown(getppid()));
    assert_int_equal(unlink(path), 0);

    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_false(is_shown(getppid()));
}

static void a_folder_into_which_others_write_is_not_read(void **state)
{
    (void)state;
    local_jobs_add("127.0.0.1:4001");
    assert_int_equal(chmod(folder, 0720), 0);
    assert_false(is_shown(getpid()));

    assert_int_equal(chmod(folder, 0700), 0);
    assert_true(is_shown(getpid()));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_job_is_shown_until_it_is_removed),
        CASE(as_many_jobs_are_listed_as_there_is_room_for),
        CASE(the_longest_endpoint_is_read_whole),
        CASE(the_file_of_a_dead_launcher_goes),
        CASE(what_is_not_a_file_holds_nobody_up),
        CASE(a_folder_into_which_others_write_is_not_read),
    };

    return cmocka_run_group_tests_name("local_jobs", tests, NULL, NULL);
}
