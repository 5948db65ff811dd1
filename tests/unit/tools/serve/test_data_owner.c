/* The process that has a data file open: when it is waited for, and how it is named. */
#include <fcntl.h>
#include <poll.h>

static int play_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
#define poll(fds, count, timeout_ms) play_poll(fds, count, timeout_ms)
#include "tools/serve/data_owner.c"
#undef poll

#include "test_env.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static char path[64];
static unsigned waits;
static pid_t ends_at_once; /* while the check waits; 0: nobody */

static void end_process(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int play_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    assert_null(fds);
    assert_int_equal(count, 0);
    assert_int_equal(timeout_ms, WAIT_MS);
    waits++;
    if (ends_at_once != 0)
        end_process(ends_at_once);
    ends_at_once = 0;
    return 0;
}

/* A process that has a lock on the file; it lives until it is ended. */
static pid_t start_owner(void)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 1};
        int fd = open(path, O_RDWR | O_CLOEXEC);

        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a case that fails leaves nobody behind */
        if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static int set_up(void **state)
{
    int fd;

    (void)state;
    waits = 0;
    ends_at_once = 0;
    snprintf(path, sizeof(path), "/tmp/muster-test-owner-XXXXXX");
    fd = mkstemp(path);
    return fd >= 0 ? close(fd) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void a_file_that_nobody_has_open_is_free(void **state)
{
    struct muster_error error;

    (void)state;
    assert_int_equal(data_owner_check(path, &error), MUSTER_OK);
    assert_int_equal(data_owner_check("/nonexistent/file", &error), MUSTER_OK);
    assert_int_equal(waits, 0);
}

static void a_process_that_lives_is_named(void **state)
{
    pid_t owner = start_owner();
    struct muster_error error;
    char expected[32];

    (void)state;
    assert_int_equal(data_owner_check(path, &error), MUSTER_UNAVAILABLE);
    snprintf(expected, sizeof(expected), "by process %d (", (int)owner);
    assert_non_null(strstr(error.text, expected));
    assert_non_null(strstr(error.text, path));
    assert_int_equal(waits, LIVING_TRIES);

    end_process(owner);
}

static void a_process_that_ends_is_waited_for(void **state)
{
    struct muster_error error;

    (void)state;
    ends_at_once = start_owner();

    assert_int_equal(data_owner_check(path, &error), MUSTER_OK);
    assert_int_equal(waits, 1);
}

static void what_a_process_tells_is_cut_where_the_room_ends(void **state)
{
    static const char whole[] = "Name:\tab";
    char text[16];

    (void)state;
    assert_int_equal(prctl(PR_SET_NAME, "abcdefgh"), 0);
    for (size_t room = 1; room < sizeof(whole); room++) {
        memset(text, '#', sizeof(text));
        read_process(getpid(), "status", text, room);
        assert_int_equal(strlen(text), room - 1);
        assert_memory_equal(text, whole, room - 1);
        assert_int_equal(text[room], '#');
    }
    read_process(getpid(), "nothing", text, sizeof(text));
    assert_string_equal(text, "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_file_that_nobody_has_open_is_free),
        CASE(a_process_that_lives_is_named),
        CASE(a_process_that_ends_is_waited_for),
        CASE(what_a_process_tells_is_cut_where_the_room_ends),
    };

    return cmocka_run_group_tests_name("data_owner", tests, NULL, NULL);
}
