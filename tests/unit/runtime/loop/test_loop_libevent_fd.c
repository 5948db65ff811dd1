/* Descriptors of the real loop: what a watch tells, the descriptor that stands for all of them, and calls
 * that fail. */
#include "runtime/loop/loop_libevent_internal.h"
#include "test_env.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#define COUNT_MAX 1000

/* The call that fails; NULL: none. */
static struct {
    const char *name;
    int sys;
    unsigned skipped; /* so many of that name work before it */
} failing;

static bool call_fails(const char *name)
{
    if (failing.name == NULL || strcmp(failing.name, name) != 0)
        return false;
    if (failing.skipped > 0) {
        failing.skipped--;
        return false;
    }
    failing.name = NULL;
    errno = failing.sys;
    return true;
}

#define FAILING(name, parameters, arguments)                                                       \
    int name parameters                                                                            \
    {                                                                                              \
        int(*real) parameters = (int(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name);             \
        return call_fails(#name) ? -1 : real arguments;                                            \
    }

FAILING(event_assign,
        (struct event * event, struct event_base *base, evutil_socket_t fd, short events,
         event_callback_fn callback, void *data),
        (event, base, fd, events, callback, data))
FAILING(event_add, (struct event * event, const struct timeval *delay), (event, delay))

static int base_epoll; /* libevent's */

int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    if (epoll != base_epoll && what == EPOLL_CTL_ADD && call_fails("epoll_ctl"))
        return -1;
    return (int)syscall(SYS_epoll_ctl, epoll, what, fd, event);
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    long word;

    va_start(args, command);
    word = va_arg(args, long);
    va_end(args);
    return command == F_DUPFD_CLOEXEC && call_fails("fcntl")
               ? -1
               : (int)syscall(SYS_fcntl, fd, command, word);
}

static struct test_env test;
static int pair[2];

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

static int set_up(void **state)
{
    (void)state;
    memset(&failing, 0, sizeof(failing));
    base_epoll = next_descriptor();
    test_env_open(&test);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(pair[0]);
    close(pair[1]);
    test_env_close(&test);
    return 0;
}

/* The events that a watch has told since the case looked last. */
struct told {
    struct muster_fd_watch watch;
    unsigned ready;
    unsigned count; /* ever */
};

static void on_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct told *told = watch->data;

    told->ready = ready;
    if (++told->count == COUNT_MAX)
        muster_fd_watch_close(watch); /* or a turn would never end */
}

static void told_init(struct told *told, unsigned wanted)
{
    *told = (struct told){
        .watch = {.data = told, .on_ready = on_ready, .fd = pair[0], .wanted = wanted}};
}

/* The loop's descriptor and its turn tell the same. */
static void check_told(struct told *told, int mirror, unsigned expected)
{
    struct pollfd readable = {.fd = mirror, .events = POLLIN};

    if (mirror >= 0)
        assert_int_equal(poll(&readable, 1, 0), expected != 0);
    told->ready = 0;
    test_env_turn(&test.env, 1);
    assert_int_equal(told->ready, expected);
}

/* Each change of what is wanted, with and without a descriptor for all; a byte waits in the last rows. */
static void a_watch_tells_what_is_wanted_and_ready(void **state)
{
    enum { NONE = 0, READ = MUSTER_FD_READ, WRITE = MUSTER_FD_WRITE, BOTH = 3 };
    static const struct {
        unsigned wanted, ready;
        bool has_byte;
    } rows[] = {
        {NONE, NONE, false}, {READ, NONE, false},  {WRITE, WRITE, false}, {BOTH, WRITE, false},
        {NONE, NONE, false}, {BOTH, WRITE, false}, {READ, NONE, false},   {READ, READ, true},
        {BOTH, BOTH, true},  {WRITE, WRITE, true}, {NONE, NONE, true},    {READ, READ, true},
    };

    (void)state;
    for (unsigned when = 0; when < 3; when++) { /* no descriptor, one before the watch, one after */
        struct told told;
        char byte;
        int mirror = -1;

        if (when == 1)
            mirror = muster_loop_fd(test.env.loop);
        told_init(&told, rows[0].wanted);
        assert_int_equal(muster_fd_watch_open(&told.watch, test.env.loop), MUSTER_OK);
        if (when == 2)
            mirror = muster_loop_fd(test.env.loop);
        assert_int_equal(mirror >= 0, when > 0);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            if (rows[i].has_byte && !rows[i - 1].has_byte)
                assert_int_equal(write(pair[1], "x", 1), 1);
            muster_fd_watch_update(&told.watch, rows[i].wanted);
            assert_int_equal(told.watch.wanted, rows[i].wanted);
            check_told(&told, mirror, rows[i].ready);
        }
        muster_fd_watch_close(&told.watch);
        assert_null(told.watch.impl);
        check_told(&told, mirror, NONE);
        assert_int_equal(read(pair[0], &byte, 1), 1);
    }
}

static bool looks_idle(struct muster_poller *poller)
{
    (void)poller;
    return false;
}

static void on_run(struct muster_task *task)
{
    (void)task;
}

/* Timers and tasks would wait for as long as a peer sends. */
static void a_descriptor_that_stays_ready_is_told_once_in_a_turn(void **state)
{
    struct muster_poller poller = {.on_poll = looks_idle};
    struct muster_task task;
    struct told told;

    (void)state;
    muster_task_init(&task, on_run, NULL);
    told_init(&told, MUSTER_FD_WRITE);
    assert_int_equal(muster_fd_watch_open(&told.watch, test.env.loop), MUSTER_OK);
    for (unsigned turn = 1; turn <= 8; turn++) {
        static const uint64_t waits_ns[] = {0, 0, UINT64_MAX, UINT64_MAX};

        if (turn % 2 == 0) /* a turn that has run something does not wait */
            muster_task_post(&task, test.env.loop);
        if (turn == 5)
            muster_poller_start(&poller, test.env.loop);
        muster_loop_turn(test.env.loop, turn > 4 ? 0 : waits_ns[turn - 1]);
        if (turn == 4)
            muster_loop_turn(test.env.loop, 0); /* the turn before may leave it to this one */
        assert_int_equal(told.count, turn);
    }
    muster_poller_stop(&poller);
    muster_fd_watch_close(&told.watch);
}

static void the_descriptor_for_all_is_made_once(void **state)
{
    int mirror = muster_loop_fd(test.env.loop), next = next_descriptor();

    (void)state;
    assert_true(mirror >= 0);
    assert_int_equal(muster_loop_fd(test.env.loop), mirror);
    assert_int_equal(next_descriptor(), next);
}

static void a_watch_that_cannot_be_opened_says_why_and_leaves_nothing(void **state)
{
    static const struct {
        const char *name;
        int sys;
        enum muster_rc rc;
    } rows[] = {
        {"event_assign", 0, MUSTER_INVALID_ARGUMENT},
        {"event_add", 0, MUSTER_RESOURCE_EXHAUSTED},
        {"fcntl", EMFILE, MUSTER_RESOURCE_EXHAUSTED},
        {"fcntl", EBADF, MUSTER_INTERNAL},
        {"epoll_ctl", ENOSPC, MUSTER_RESOURCE_EXHAUSTED},
        {"epoll_ctl", EPERM, MUSTER_PERMISSION_DENIED},
        {"memory", 0, MUSTER_RESOURCE_EXHAUSTED},
    };
    struct libevent_loop *ours = ours_of(test.env.loop);
    size_t blocks;
    int next;

    (void)state;
    assert_true(muster_loop_fd(test.env.loop) >= 0);
    next = next_descriptor();
    blocks = test.mem.block_count;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct told told;

        told_init(&told, MUSTER_FD_WRITE);
        failing.name = rows[i].name;
        failing.sys = rows[i].sys;
        test.mem.fail_at = strcmp(rows[i].name, "memory") == 0;
        assert_int_equal(muster_fd_watch_open(&told.watch, test.env.loop), rows[i].rc);
        failing.name = NULL;
        assert_null(told.watch.impl);
        assert_null(told.watch.loop);
        assert_true(muster_list_is_empty(&ours->watches));
        assert_int_equal(next_descriptor(), next);
        assert_int_equal(test.mem.block_count, blocks);
        check_told(&told, muster_loop_fd(test.env.loop), 0);
    }
}

/* 0 is a descriptor, of the duplicate and of the one for all, too. */
static void a_process_without_standard_input_watches(void **state)
{
    int kept = dup(STDIN_FILENO);
    struct told told;

    (void)state;
    told_init(&told, MUSTER_FD_WRITE);
    assert_int_equal(muster_fd_watch_open(&told.watch, test.env.loop), MUSTER_OK);
    for (unsigned i = 0; i < 2; i++) {
        if (i == 1)
            assert_true(muster_loop_fd(test.env.loop) > 0);
        close(STDIN_FILENO);
        if (i == 0)
            assert_int_equal(muster_loop_fd(test.env.loop), STDIN_FILENO);
        muster_fd_watch_update(&told.watch, MUSTER_FD_READ);
        muster_fd_watch_update(&told.watch, MUSTER_FD_WRITE);
        check_told(&told, muster_loop_fd(test.env.loop), MUSTER_FD_WRITE);
        if (i == 0) { /* another loop, whose descriptor is another */
            test_env_turn(&test.env, 1);
            muster_fd_watch_close(&told.watch);
            test_env_close(&test);
            assert_int_equal(next_descriptor(), STDIN_FILENO);
            assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
            test_env_open(&test);
            told_init(&told, MUSTER_FD_WRITE);
            assert_int_equal(muster_fd_watch_open(&told.watch, test.env.loop), MUSTER_OK);
        }
    }
    muster_fd_watch_close(&told.watch);
    assert_int_equal(next_descriptor(), STDIN_FILENO);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
}

/* Blocks of libevent. */
static long block_count;

static void *count_malloc(size_t bytes)
{
    void *block = malloc(bytes);

    block_count += block != NULL;
    return block;
}

static void *count_realloc(void *old, size_t bytes)
{
    void *block = realloc(old, bytes);

    block_count += old == NULL && block != NULL;
    return block;
}

static void count_free(void *block)
{
    block_count -= block != NULL;
    free(block);
}

static void a_loop_gives_back_what_libevent_took(void **state)
{
    struct muster_loop *loop = NULL;
    long before = block_count;

    (void)state;
    assert_true(before > 0); /* the loop of the case */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(muster_loop_open(test.env.mem, NULL, &loop), MUSTER_OK);
        muster_loop_close(loop);
    }
    assert_int_equal(block_count, before);
}

static unsigned warning_count;

static void on_warning(int severity, const char *text)
{
    print_message("libevent, %d: %s\n", severity, text);
    warning_count++;
}

static void a_watch_of_nothing_opens_and_closes_in_silence(void **state)
{
    struct told told;

    (void)state;
    event_set_log_callback(on_warning);
    told_init(&told, 0);
    assert_int_equal(muster_fd_watch_open(&told.watch, test.env.loop), MUSTER_OK);
    muster_fd_watch_update(&told.watch, 0);
    muster_fd_watch_close(&told.watch);
    event_set_log_callback(NULL);

    assert_int_equal(warning_count, 0);
}

/* --- Descriptors that the program has closed --- */

_Noreturn static void turn_without_descriptors(int report)
{
    struct muster_loop *loop = NULL;

    signal(SIGABRT, SIG_DFL);
    if (dup2(report, STDERR_FILENO) < 0 ||
        muster_loop_open(muster_mem_system(), NULL, &loop) != MUSTER_OK ||
        syscall(SYS_close_range, 3u, ~0u, 0u) != 0)
        _exit(1);
    for (int i = 0; i < 3; i++)
        muster_loop_turn(loop, 0);
    _exit(0);
}

static void a_program_that_closes_them_all_ends_with_one_text(void **state)
{
    static char text[16384];
    size_t length = 0;
    const char *told;
    ssize_t count;
    int ends[2], status = 0;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        turn_without_descriptors(ends[1]);
    close(ends[1]);
    while ((count = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)count;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "muster: this process has closed descriptors of muster's: close "
                                 "only your own, or close the others before muster is opened\n"));
    told = strstr(text, "epoll_wait"); /* libevent's own */
    assert_true(told == NULL || strstr(told + 1, "epoll_wait") == NULL);
}

/* --- Many descriptors of one poll --- */

#define CROWD 100u

static struct crowd {
    struct one {
        struct muster_fd_watch watch;
        struct muster_task task;
        int pair[2];
    } list[CROWD];
    unsigned told, run, behind_max;
} crowd;

static void on_crowd_task(struct muster_task *task)
{
    struct one *one = task->data;

    crowd.run++;
    muster_fd_watch_close(&one->watch);
}

static void on_crowd_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct one *one = watch->data;

    (void)ready;
    crowd.told++;
    muster_task_post(&one->task, test.env.loop);
    if (crowd.told - crowd.run > crowd.behind_max)
        crowd.behind_max = crowd.told - crowd.run;
}

/* A poll tells of at most 32 descriptors at first, and of twice as many after each that was full. */
static void tasks_of_many_ready_descriptors_run_amid_them(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        crowd.told = crowd.run = crowd.behind_max = 0;
        for (unsigned i = 0; i < CROWD; i++) {
            struct one *one = &crowd.list[i];

            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, one->pair), 0);
            assert_int_equal(write(one->pair[1], "x", 1), 1);
            one->watch = (struct muster_fd_watch){.fd = one->pair[0],
                                                  .wanted = MUSTER_FD_READ,
                                                  .on_ready = on_crowd_ready,
                                                  .data = one};
            muster_task_init(&one->task, on_crowd_task, one);
            assert_int_equal(muster_fd_watch_open(&one->watch, test.env.loop), MUSTER_OK);
        }
        while (crowd.run < CROWD)
            muster_loop_turn(test.env.loop, 0);

        assert_int_equal(crowd.told, CROWD);
        assert_in_range(crowd.behind_max, 1, 32);
        for (unsigned i = 0; i < CROWD; i++) {
            close(crowd.list[i].pair[0]);
            close(crowd.list[i].pair[1]);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_watch_tells_what_is_wanted_and_ready),
        CASE(a_descriptor_that_stays_ready_is_told_once_in_a_turn),
        CASE(the_descriptor_for_all_is_made_once),
        CASE(a_watch_that_cannot_be_opened_says_why_and_leaves_nothing),
        CASE(a_process_without_standard_input_watches),
        CASE(a_loop_gives_back_what_libevent_took),
        CASE(a_watch_of_nothing_opens_and_closes_in_silence),
        CASE(a_program_that_closes_them_all_ends_with_one_text),
        CASE(tasks_of_many_ready_descriptors_run_amid_them),
    };

    event_set_mem_functions(count_malloc, count_realloc, count_free);
    return cmocka_run_group_tests_name("loop_libevent_fd", tests, NULL, NULL);
}
