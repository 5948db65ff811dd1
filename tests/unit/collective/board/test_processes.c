/* Real boards between real processes: deaths, and what one may do with another's memory. */
#include "collective/board/board_internal.h"
#include "test_env.h"

#include <errno.h>
#include <fcntl.h>
#include <muster/collective.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESIDENT_BYTES ((size_t)512 << 20)
#define TRIALS         5
#define NOBODY         65534u

/* The last thing that a victim does, once both are ready. */
enum victim_kind {
    VICTIM_WRITES, /* its board and its tensor; then it waits to be killed */
    VICTIM_NEVER_WROTE,
    VICTIM_IS_BIG,
    VICTIM_EXECS,
    VICTIM_EXITS_WITH_THREADS,
};

struct process {
    struct test_env test;
    struct muster_board *board;
    struct muster_board_peer *peer;
    bool is_told;
    unsigned told;
    int from_other, to_other;
    pid_t pid; /* of the victim */
};

static void on_peer(void *data, struct muster_board_peer *peer)
{
    struct process *process = data;

    (void)peer;
    process->is_told = true;
    process->told++;
}

static const struct muster_board_events events = {.on_peer = on_peer};

static struct muster_member member_of(pid_t survivor, unsigned i)
{
    struct muster_member member = {.incarnation = {.bytes = {(uint8_t)(i + 1)}}};

    memcpy(&member.incarnation.bytes[8], &survivor, sizeof(survivor));
    return member;
}

static bool open_board(struct process *process, pid_t survivor, unsigned i)
{
    struct muster_member self = member_of(survivor, i), other = member_of(survivor, 1 - i);
    struct muster_board_options options = {
        .env = &process->test.env, .job = "test_board_processes", .self = &self};

    test_env_open(&process->test);
    if (muster_board_system_open(&options, &process->board, NULL) != MUSTER_OK)
        return false;
    process->board->events = &events;
    process->board->events_data = process;
    return muster_board_connect(process->board, &other, &process->peer) == MUSTER_OK;
}

static void say_byte(const struct process *process)
{
    if (write(process->to_other, "x", 1) != 1)
        _exit(9);
}

static void hear_byte(const struct process *process)
{
    char byte;

    if (read(process->from_other, &byte, 1) != 1)
        _exit(8);
}

static void *sleep_for_ever(void *data)
{
    muster_board_enter(data);
    for (;;)
        pause();
    return NULL;
}

static void be_victim(struct process *process, enum victim_kind kind)
{
    struct muster_tensor tensor;
    pthread_t thread;
    uint8_t *big = NULL;

    if (kind != VICTIM_NEVER_WROTE) {
        muster_board_enter(process->board);
        process->board->memory[5] = 55;
    }
    if (muster_tensor_new(&process->test.env, MUSTER_U8, 10000, &tensor) != MUSTER_OK)
        _exit(7);
    memset(tensor.data, 66, 10000);
    if (kind == VICTIM_IS_BIG) {
        big =
            mmap(NULL, RESIDENT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (big == MAP_FAILED)
            _exit(6);
        memset(big, 1, RESIDENT_BYTES);
    }
    if (kind == VICTIM_EXITS_WITH_THREADS)
        for (int i = 0; i < 3; i++)
            if (pthread_create(&thread, NULL, sleep_for_ever, process->board) != 0)
                _exit(5);
    test_env_turn(&process->test.env, 20);
    say_byte(process);
    hear_byte(process);
    if (kind == VICTIM_EXECS)
        execlp("sleep", "sleep", "1000", (char *)NULL);
    if (kind == VICTIM_EXITS_WITH_THREADS)
        _exit(0);
    for (;;)
        pause();
}

/* Before it has a thread: fork is safe. */
static void child_start(struct process *process,
                        void (*body)(struct process *process, int argument), int argument)
{
    int there[2], back[2];
    pid_t survivor = getpid();

    memset(process, 0, sizeof(*process));
    assert_int_equal(pipe2(there, O_CLOEXEC), 0);
    assert_int_equal(pipe2(back, O_CLOEXEC), 0);
    process->pid = fork();
    assert_true(process->pid >= 0);
    if (process->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(there[1]);
        close(back[0]);
        process->from_other = there[0];
        process->to_other = back[1];
        if (!open_board(process, survivor, 1))
            _exit(4);
        test_env_run_until(&process->test.env, test_env_is_true, &process->is_told);
        body(process, argument);
        _exit(3);
    }
    close(there[0]);
    close(back[1]);
    process->from_other = back[0];
    process->to_other = there[1];
    assert_true(open_board(process, survivor, 0));
    test_env_run_until(&process->test.env, test_env_is_true, &process->is_told);
    assert_true(process->peer->is_ready);
}

static void victim_body(struct process *process, int kind)
{
    be_victim(process, (enum victim_kind)kind);
}

static void start_victim(struct process *process, enum victim_kind kind)
{
    child_start(process, victim_body, (int)kind);
    hear_byte(process);
}

static void child_finish(struct process *process)
{
    kill(process->pid, SIGKILL);
    waitpid(process->pid, NULL, 0);
    muster_board_close(process->board);
    process->board = NULL;
    test_env_close(&process->test);
    close(process->from_other);
    close(process->to_other);
}

static bool is_dead(void *data)
{
    return muster_board_is_dead(((struct process *)data)->peer);
}

static bool is_failed(void *data)
{
    return ((struct process *)data)->peer->is_failed;
}

/* By the words alone: the loop does not turn. */
static void spin_until_dead(const struct process *process)
{
    for (uint64_t i = 0; !muster_board_is_dead(process->peer); i++)
        if (i % 1024 == 0)
            sched_yield();
}

/* --- Deaths --- */

static struct process process;

static int process_tear_down(void **state)
{
    (void)state;
    if (process.board != NULL)
        child_finish(&process);
    return 0;
}

#define CASE(name) cmocka_unit_test_teardown(name, process_tear_down)

static void a_kill_is_seen_without_turning_the_loop(void **state)
{
    (void)state;

    start_victim(&process, VICTIM_WRITES);
    assert_false(is_dead(&process));

    kill(process.pid, SIGKILL);
    spin_until_dead(&process);

    assert_int_equal(process.peer->memory[5], 55);
    assert_false(is_failed(&process));
    test_env_run_until(&process.test.env, is_failed, &process);
    assert_true(is_dead(&process));
    assert_int_equal(process.peer->memory[5], 55);
}

static void a_tensor_of_the_dead_can_be_read(void **state)
{
    struct muster_board_peer_system *peer = NULL;
    const uint8_t *view = NULL;
    (void)state;

    start_victim(&process, VICTIM_WRITES);
    test_env_turn(&process.test.env, 20);
    peer = muster_board_peer_system_of(process.peer);
    assert_int_equal(peer->mapping_count, 1);

    kill(process.pid, SIGKILL);
    test_env_run_until(&process.test.env, is_failed, &process);
    view = muster_board_share_at(process.peer, peer->mappings[0].number, 0, 10000);

    assert_non_null(view);
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(view[i], 66);
}

/* Which comes first is the kernel's, but who sees it first may be the scheduler's. */
static void the_death_of_a_big_process_is_seen_before_its_end(void **state)
{
    bool is_seen_first = false;
    (void)state;

    for (int trial = 0; trial < TRIALS && !is_seen_first; trial++) {
        struct pollfd end = {.events = POLLIN};

        start_victim(&process, VICTIM_IS_BIG);
        end.fd = (int)syscall(SYS_pidfd_open, process.pid, 0u);
        assert_true(end.fd >= 0);
        kill(process.pid, SIGKILL);
        spin_until_dead(&process);
        test_env_turn(&process.test.env, 1);
        is_seen_first = poll(&end, 1, 0) == 0 && !is_failed(&process);
        test_env_run_until(&process.test.env, is_failed, &process);
        close(end.fd);
        child_finish(&process);
    }
    assert_true(is_seen_first);
}

static void one_that_sleeps_is_told(void **state)
{
    (void)state;

    start_victim(&process, VICTIM_NEVER_WROTE);
    kill(process.pid, SIGKILL);
    test_env_run_until(&process.test.env, is_failed, &process);
    test_env_run_until(&process.test.env, is_dead, &process); /* it held no word: by its pidfd */
    test_env_turn(&process.test.env, 2);

    assert_true(process.told >= 2);
}

static void exec_ends_what_the_process_was(void **state)
{
    (void)state;

    start_victim(&process, VICTIM_EXECS);
    assert_false(is_dead(&process));
    say_byte(&process);
    spin_until_dead(&process);

    assert_int_equal(process.peer->memory[5], 55);
    test_env_run_until(&process.test.env, is_failed, &process);
}

static void an_exit_with_other_threads_is_a_death(void **state)
{
    (void)state;

    start_victim(&process, VICTIM_EXITS_WITH_THREADS);
    assert_false(is_dead(&process));
    say_byte(&process);
    spin_until_dead(&process);

    test_env_run_until(&process.test.env, is_failed, &process);
}

static void a_stopped_process_is_alive(void **state)
{
    int status = 0;
    (void)state;

    start_victim(&process, VICTIM_WRITES);
    kill(process.pid, SIGSTOP);
    assert_int_equal(waitpid(process.pid, &status, WUNTRACED), process.pid);
    test_env_turn(&process.test.env, 20);

    assert_false(is_dead(&process));
    assert_false(is_failed(&process));
}

/* --- Memory of others --- */

static void the_memory_of_a_peer_cannot_be_written(void **state)
{
    const struct muster_board_peer_system *peer = NULL;
    (void)state;

    start_victim(&process, VICTIM_WRITES);
    peer = muster_board_peer_system_of(process.peer);

    assert_int_equal(
        mprotect((void *)(uintptr_t)peer->page, peer->segment_bytes, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
}

static void show_word(struct process *self, int is_hidden)
{
    static uint64_t words[200000];
    uint64_t at = (uint64_t)(uintptr_t)words;

    for (size_t i = 0; i < 200000; i++)
        words[i] = i;
    if (is_hidden)
        _exit(2);
    if (write(self->to_other, &at, sizeof(at)) != (ssize_t)sizeof(at))
        _exit(2);
    for (;;)
        pause();
}

static void any_memory_of_a_peer_can_be_read_where_allowed(void **state)
{
    static uint64_t words[200000];
    uint64_t at = 0;
    (void)state;

    child_start(&process, show_word, 0);
    assert_int_equal(read(process.from_other, &at, sizeof(at)), sizeof(at));
    if (!process.peer->can_read_memory) {
        print_message("not allowed here: %s\n", process.peer->read_why.text);
        assert_int_not_equal(process.peer->read_why.text[0], '\0');
        return;
    }

    assert_int_equal(muster_board_read_memory(process.peer, at, words, sizeof(words)), MUSTER_OK);
    for (size_t i = 0; i < 200000; i++)
        assert_int_equal(words[i], i);
    assert_int_equal(muster_board_read_memory(process.peer, 16, words, 8), MUSTER_INVALID_ARGUMENT);
    kill(process.pid, SIGKILL);
    test_env_run_until(&process.test.env, is_dead, &process);
    assert_int_equal(muster_board_read_memory(process.peer, at, words, 8), MUSTER_UNAVAILABLE);
}

/* The reader is no administrator, who may read everything. */
static int read_undumpable(void)
{
    int rc = 0;

    if (geteuid() == 0 &&
        (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0))
        return 20;
    prctl(PR_SET_DUMPABLE, 0); /* of the child as well */
    child_start(&process, show_word, 0);
    if (process.peer->can_read_memory)
        rc = 21;
    else if (process.peer->read_why.rc != MUSTER_PERMISSION_DENIED ||
             strstr(process.peer->read_why.text, "process_vm_readv") == NULL)
        rc = 22;
    else if (muster_board_read_memory(process.peer, 4096, &process.is_told, 1) !=
             MUSTER_PERMISSION_DENIED)
        rc = 23;
    kill(process.pid, SIGKILL);
    waitpid(process.pid, NULL, 0);
    return rc;
}

static void memory_that_may_not_be_read_has_a_reason(void **state)
{
    int status = 0;
    pid_t pid = fork();
    (void)state;

    if (pid == 0)
        _exit(read_undumpable());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_kill_is_seen_without_turning_the_loop),
        CASE(a_tensor_of_the_dead_can_be_read),
        cmocka_unit_test(the_death_of_a_big_process_is_seen_before_its_end),
        CASE(one_that_sleeps_is_told),
        CASE(exec_ends_what_the_process_was),
        CASE(an_exit_with_other_threads_is_a_death),
        CASE(a_stopped_process_is_alive),
        CASE(the_memory_of_a_peer_cannot_be_written),
        CASE(any_memory_of_a_peer_can_be_read_where_allowed),
        cmocka_unit_test(memory_that_may_not_be_read_has_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
