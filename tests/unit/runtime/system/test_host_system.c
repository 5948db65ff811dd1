/* The real host: its key, processes and their beginnings, their death. */
#include "assertion_count.h"
#include "runtime/system/host_share.h"
#include "test_env.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STARTED_FIELD 22

static void on_exit_told(struct muster_process_watch *watch);

/* The errno of pidfd_open, which libc has no function for; 0: it works. */
static int pidfd_failure;
/* The text of files below /proc; NULL: the real one. */
static const char *proc_text;

int open(const char *path, int flags, ...)
{
    static const char folder[] = "/proc/";
    int fds[2];

    if (proc_text == NULL || strncmp(path, folder, sizeof(folder) - 1) != 0)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], proc_text, strlen(proc_text)), strlen(proc_text));
    close(fds[1]);
    return fds[0];
}

/* No call of the product has more than five words. */
long syscall(long number, ...)
{
    long (*real)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
    long words[5];
    va_list args;

    if (number == SYS_pidfd_open && pidfd_failure != 0) {
        errno = pidfd_failure;
        return -1;
    }
    va_start(args, number);
    for (size_t i = 0; i < 5; i++)
        words[i] = va_arg(args, long);
    va_end(args);
    return real(number, words[0], words[1], words[2], words[3], words[4]);
}

static int set_up(void **state)
{
    static struct test_env test;

    pidfd_failure = 0;
    proc_text = NULL;
    test_env_open(&test);
    *state = &test;
    return 0;
}

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

static void the_key_is_of_the_boot_and_both_namespaces(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_host *again = NULL;
    char expected[128], boot[64] = "";
    struct stat pids, network;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    assert_non_null(file);
    assert_non_null(fgets(boot, sizeof(boot), file));
    fclose(file);
    boot[36] = '\0';
    assert_int_equal(stat("/proc/self/ns/pid", &pids), 0);
    assert_int_equal(stat("/proc/self/ns/net", &network), 0);
    snprintf(expected, sizeof(expected), "%s/%llu/%llu", boot, (unsigned long long)pids.st_ino,
             (unsigned long long)network.st_ino);

    assert_string_equal(muster_host_key(env->host), expected);
    assert_true(strlen(expected) < MUSTER_HOST_KEY_BYTES);
    assert_int_equal(muster_host_system_open(env->mem, env->loop, &again), MUSTER_OK);
    assert_string_equal(muster_host_key(again), expected);
    muster_host_system_close(again);
    muster_host_system_close(NULL);
}

/* A machine that does not say which one it is shares its key with nobody. */
static void a_host_that_cannot_read_its_key_is_alone(void **state)
{
    struct test_env *test = *state;
    char keys[2][MUSTER_HOST_KEY_BYTES];

    for (size_t i = 0; i < 2; i++) {
        struct muster_host *host = NULL;

        test->mem.fail_at = 2; /* of the boot's id; the first is the host */
        assert_int_equal(muster_host_system_open(test->env.mem, test->env.loop, &host), MUSTER_OK);
        (void)strcpy(keys[i], muster_host_key(host));
        muster_host_system_close(host);
        assert_int_equal(strlen(keys[i]), 6 + 16);
        assert_int_equal(strspn(keys[i] + 6, "0123456789abcdef"), 16);
        keys[i][6] = '\0';
        assert_string_equal(keys[i], "alone/");
        keys[i][6] = '0';
    }
    assert_string_not_equal(keys[0] + 7, keys[1] + 7);
}

/* The boot as a kernel may tell it: cut to 36 letters, without what follows the line. */
static void a_boot_of_another_form_is_a_key_too(void **state)
{
    static const struct {
        const char *text, *boot; /* NULL: it is alone */
    } rows[] = {
        {"", NULL},
        {"b", "b"},
        {"short\nmore", "short"},
        {"0123456789012345678901234567890123456789\n", "012345678901234567890123456789012345"},
    };
    struct muster_env *env = test_env_of(state);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_host *host = NULL;
        const char *key;

        proc_text = rows[i].text;
        assert_int_equal(muster_host_system_open(env->mem, env->loop, &host), MUSTER_OK);
        key = muster_host_key(host);
        if (rows[i].boot == NULL)
            assert_memory_equal(key, "alone/", 6);
        else
            assert_memory_equal(key, rows[i].boot, strlen(rows[i].boot));
        if (rows[i].boot != NULL)
            assert_int_equal(key[strlen(rows[i].boot)], '/');
        muster_host_system_close(host);
    }
}

static void a_beginning_that_is_not_told_is_not_known(void **state)
{
    static const struct {
        const char *text;
        uint64_t started;
    } rows[] = {
        {"", 0},
        {"1 (name", 0},
        {"1 (name) S", 0},
        {"1 (name) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21", 0},
        {"1 (name) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 777 23", 777},
        {"1 (a ) b) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 1 23", 1},
    };
    struct muster_env *env = test_env_of(state);
    struct muster_process_watch watch = {
        .on_exit = on_exit_told, .pid = getpid(), .started = 2};
    size_t last = sizeof(rows) / sizeof(rows[0]) - 1;

    for (size_t i = 0; i <= last; i++) {
        proc_text = rows[i].text;
        assert_int_equal(muster_host_started(env->host, 1), rows[i].started);
    }
    assert_int_equal(muster_process_watch_open(&watch, env->host), MUSTER_NOT_FOUND);
    proc_text = rows[0].text; /* then the number is all that there is */
    if (muster_process_watch_open(&watch, env->host) == MUSTER_UNIMPLEMENTED)
        skip_with_reason("this kernel has no pidfd_open");
    assert_ptr_equal(watch.host, env->host);
    muster_process_watch_close(&watch);
}

static void the_host_knows_the_number_of_the_process_and_the_time_of_day(void **state)
{
    struct muster_host *host = test_env_of(state)->host;
    struct timespec before, after;
    uint64_t wall_ns;

    assert_int_equal(muster_host_pid(host), getpid());
    clock_gettime(CLOCK_REALTIME, &before);
    wall_ns = muster_host_wall_ns(host);
    clock_gettime(CLOCK_REALTIME, &after);
    assert_in_range(wall_ns, (uint64_t)before.tv_sec * MUSTER_NS_PER_S + (uint64_t)before.tv_nsec,
                    (uint64_t)after.tv_sec * MUSTER_NS_PER_S + (uint64_t)after.tv_nsec);
    assert_non_null(muster_host_shares(host));
}

/* Field 22 of this process, whose name has no blank now. */
static uint64_t started_of_this(void)
{
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    char *word;

    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    word = strtok(text, " ");
    for (int field = 1; field < STARTED_FIELD; field++)
        word = strtok(NULL, " ");
    return strtoull(word, NULL, 10);
}

static void a_process_has_begun_at_one_time_whatever_its_name(void **state)
{
    static const char *const names[] = {"plain", "a b c", ") S 1 2 (", "(1) 2 (3", ")"};
    struct muster_host *host = test_env_of(state)->host;
    uint64_t started;

    prctl(PR_SET_NAME, names[0]);
    started = started_of_this();
    assert_true(started > 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        prctl(PR_SET_NAME, names[i]);
        assert_int_equal(muster_host_started(host, getpid()), started);
    }
    assert_int_equal(muster_host_started(host, 0), 0);
    assert_int_equal(muster_host_started(host, -1), 0);
    assert_int_equal(muster_host_started(host, INT32_MAX), 0);
    assert_true(muster_host_started(host, 1) <= started); /* 0 where it cannot be seen */
}

struct told {
    bool is_dead;
    unsigned count;
};

static void on_exit_told(struct muster_process_watch *watch)
{
    struct told *told = watch->data;

    assert_null(watch->host); /* closed by now */
    told->is_dead = true;
    told->count++;
}

/* A child that waits for a signal. */
static pid_t start_child(void)
{
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    assert_true(pid > 0);
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void open_watch(struct muster_env *env, struct muster_process_watch *watch)
{
    enum muster_rc rc = muster_process_watch_open(watch, env->host);

    if (rc == MUSTER_UNIMPLEMENTED) {
        end_child((pid_t)watch->pid);
        skip_with_reason("this kernel has no pidfd_open");
    }
    assert_int_equal(rc, MUSTER_OK);
}

static void a_killed_process_is_told_once(void **state)
{
    struct muster_env *env = test_env_of(state);
    int next = next_descriptor();
    struct told told = {.count = 0};
    pid_t pid = start_child();
    struct muster_process_watch watch = {.data = &told, .on_exit = on_exit_told, .pid = pid};
    uint64_t started = muster_host_started(env->host, pid);

    assert_true(started >= started_of_this());
    for (unsigned i = 0; i < 2; i++) { /* what began when is known, or not */
        watch.started = i == 0 ? 0 : started;
        open_watch(env, &watch);
        test_env_turn(env, 2);
        assert_false(told.is_dead);
        muster_process_watch_close(&watch);
        assert_int_equal(next_descriptor(), next);
    }
    open_watch(env, &watch);
    kill(pid, SIGKILL);
    test_env_run_until(env, test_env_is_true, &told.is_dead);
    test_env_turn(env, 3);

    assert_int_equal(told.count, 1);
    assert_int_equal(next_descriptor(), next);
    muster_process_watch_close(&watch);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(muster_process_watch_open(&watch, env->host), MUSTER_NOT_FOUND);
    assert_int_equal(next_descriptor(), next);
}

static void a_number_that_another_process_has_by_now_is_not_watched(void **state)
{
    struct muster_env *env = test_env_of(state);
    int next = next_descriptor();
    struct told told = {.count = 0};
    pid_t pid = start_child();
    struct muster_process_watch watch = {.data = &told, .on_exit = on_exit_told, .pid = pid};

    open_watch(env, &watch); /* or there are no watches */
    muster_process_watch_close(&watch);
    watch.started = muster_host_started(env->host, pid) + 1;
    assert_int_equal(muster_process_watch_open(&watch, env->host), MUSTER_NOT_FOUND);
    assert_int_equal(next_descriptor(), next);
    end_child(pid);
    test_env_turn(env, 2);
    assert_false(told.is_dead);
}

static void a_closed_watch_tells_nothing(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct told told = {.count = 0};
    pid_t pid = start_child();
    struct muster_process_watch watch = {.data = &told, .on_exit = on_exit_told, .pid = pid};

    open_watch(env, &watch);
    muster_process_watch_close(&watch);
    muster_process_watch_close(&watch);
    end_child(pid);
    test_env_turn(env, 2);

    assert_false(told.is_dead);
}

/* 0 is a descriptor. */
static void a_process_without_standard_input_watches(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_process_watch watch = {.on_exit = on_exit_told, .pid = getpid()};
    int kept = dup(STDIN_FILENO);
    enum muster_rc rc;

    close(STDIN_FILENO);
    rc = muster_process_watch_open(&watch, env->host);
    assert_int_equal(next_descriptor() != STDIN_FILENO, rc == MUSTER_OK);
    muster_process_watch_close(&watch);
    assert_int_equal(next_descriptor(), STDIN_FILENO);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    assert_int_equal(rc == MUSTER_UNIMPLEMENTED ? MUSTER_OK : rc, MUSTER_OK);
}

static void a_watch_that_cannot_be_opened_says_why(void **state)
{
    static const struct {
        int sys;
        enum muster_rc rc;
    } rows[] = {
        {EPERM, MUSTER_UNIMPLEMENTED}, /* a sandbox */
        {ENOSYS, MUSTER_UNIMPLEMENTED},      {ESRCH, MUSTER_NOT_FOUND},
        {EMFILE, MUSTER_RESOURCE_EXHAUSTED}, {EINVAL, MUSTER_INVALID_ARGUMENT},
    };
    struct test_env *test = *state;
    struct muster_process_watch watch = {.on_exit = on_exit_told, .pid = getpid()};
    int next = next_descriptor();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pidfd_failure = rows[i].sys;
        assert_int_equal(muster_process_watch_open(&watch, test->env.host), rows[i].rc);
    }
    pidfd_failure = 0;
    test->mem.fail_at = 1;
    assert_int_equal(muster_process_watch_open(&watch, test->env.host), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(next_descriptor(), next);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, test_env_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_key_is_of_the_boot_and_both_namespaces),
        CASE(a_host_that_cannot_read_its_key_is_alone),
        CASE(a_boot_of_another_form_is_a_key_too),
        CASE(a_beginning_that_is_not_told_is_not_known),
        CASE(the_host_knows_the_number_of_the_process_and_the_time_of_day),
        CASE(a_process_has_begun_at_one_time_whatever_its_name),
        CASE(a_killed_process_is_told_once),
        CASE(a_number_that_another_process_has_by_now_is_not_watched),
        CASE(a_closed_watch_tells_nothing),
        CASE(a_process_without_standard_input_watches),
        CASE(a_watch_that_cannot_be_opened_says_why),
    };

    return cmocka_run_group_tests_name("host_system", tests, NULL, NULL);
}
