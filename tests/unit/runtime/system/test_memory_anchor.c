/* A second process that shares the memory of one that may be killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/system/memory_anchor.h"

#define KCMP_VM 1 /* <linux/kcmp.h> */

struct victim {
    pid_t pid, anchor;
    int said; /* a pipe whose other end is the victim's: it hangs up with its descriptors */
};

static void victim_run(int said)
{
    pid_t anchor = muster_memory_anchor_start(NULL, 0);

    if (write(said, &anchor, sizeof(anchor)) != (ssize_t)sizeof(anchor))
        _exit(1);
    for (;;)
        pause();
}

static bool victim_start(struct victim *victim)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    victim->pid = fork();
    assert_true(victim->pid >= 0);
    if (victim->pid == 0)
        victim_run(ends[1]);
    close(ends[1]);
    victim->said = ends[0];
    assert_int_equal(read(ends[0], &victim->anchor, sizeof(victim->anchor)),
                     sizeof(victim->anchor));
    return victim->anchor > 0;
}

static void victim_kill(struct victim *victim)
{
    int status = 0;

    assert_int_equal(kill(victim->pid, SIGKILL), 0);
    assert_int_equal(waitpid(victim->pid, &status, 0), victim->pid);
    assert_true(WIFSIGNALED(status));
}

static unsigned descriptor_count(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* The line of /proc/PID/status that begins with the name, as hexadecimal. */
static uint64_t signal_set(pid_t pid, const char *name)
{
    char path[64], line[256];
    unsigned long long set = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0)
            (void)sscanf(line + strlen(name), ": %llx", &set);
    }
    fclose(file);
    return set;
}

/* Orphans come to this process, so that it can wait for an anchor that has lost its parent. */
static int adopt_orphans(void **state)
{
    (void)state;
    return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void the_anchor_shares_memory_and_has_no_descriptor(void **state)
{
    struct victim victim;

    (void)state;
    if (!victim_start(&victim)) {
        victim_kill(&victim);
        close(victim.said);
        skip();
    }
    if (syscall(SYS_kcmp, victim.pid, victim.anchor, KCMP_VM, 0, 0) != 0)
        assert_true(errno == ENOSYS || errno == EPERM);
    assert_int_equal(descriptor_count(victim.anchor), 0);
    /* A terminal signals the whole group: no handler of the program may run in the anchor. */
    for (int number = 1; number < SIGSYS; number++) {
        if (number != SIGKILL && number != SIGSTOP)
            assert_true((signal_set(victim.anchor, "SigBlk") >> (number - 1) & 1) != 0);
    }

    victim_kill(&victim);
    assert_int_equal(waitpid(victim.anchor, NULL, __WALL), victim.anchor);
    close(victim.said);
}

static void the_anchor_ends_with_its_process(void **state)
{
    struct victim victim;
    struct pollfd poll_fd;
    bool has_anchor = victim_start(&victim);
    int status = 0;

    (void)state;
    victim_kill(&victim);
    poll_fd = (struct pollfd){.fd = victim.said, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, -1),
                     1); /* its end of the pipe is closed, the anchor has none */
    assert_true((poll_fd.revents & POLLHUP) != 0);
    close(victim.said);
    if (!has_anchor)
        skip();
    assert_int_equal(waitpid(victim.anchor, &status, __WALL), victim.anchor);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* --- Memory that goes in pieces --- */

#define PIECES      3u
#define PIECE_BYTES ((size_t)64 << 20)

/* A page in each piece of the victim's file is in its memory. */
static void sharing_victim_run(int said, int file)
{
    uint8_t *memory = mmap(NULL, PIECES * PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pid_t anchor =
        memory != MAP_FAILED ? muster_memory_anchor_start(memory, PIECES * PIECE_BYTES) : -1;

    for (size_t i = 0; memory != MAP_FAILED && i < PIECES; i++)
        memory[i * PIECE_BYTES] = 1;
    if (write(said, &anchor, sizeof(anchor)) != (ssize_t)sizeof(anchor))
        _exit(1);
    for (;;)
        pause();
}

static bool sharing_victim_start(struct victim *victim, int file)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    victim->pid = fork();
    assert_true(victim->pid >= 0);
    if (victim->pid == 0)
        sharing_victim_run(ends[1], file);
    close(ends[1]);
    victim->said = ends[0];
    assert_int_equal(read(ends[0], &victim->anchor, sizeof(victim->anchor)),
                     sizeof(victim->anchor));
    return victim->anchor > 0;
}

static unsigned long shared_kib(pid_t pid)
{
    char path[64], line[256];
    unsigned long kib = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "RssShmem: %lu kB", &kib);
    fclose(file);
    return kib;
}

/* The anchor is stopped where the kernel begins to end it: what it still has goes at once. */
static void shared_memory_is_gone_before_the_anchor_ends(void **state)
{
    int file = memfd_create("anchor", MFD_CLOEXEC), status = 0;
    struct victim victim;
    unsigned long before, left;

    (void)state;
    assert_true(file >= 0 && ftruncate(file, (off_t)(PIECES * PIECE_BYTES)) == 0);
    if (!sharing_victim_start(&victim, file) ||
        ptrace(PTRACE_SEIZE, victim.anchor, NULL, (void *)PTRACE_O_TRACEEXIT) != 0) {
        victim_kill(&victim);
        skip();
    }
    before = shared_kib(victim.anchor);
    assert_int_equal(kill(victim.anchor, SIGTERM), 0); /* not its parent's end: it waits on */
    assert_int_equal(waitpid(victim.anchor, NULL, __WALL | WNOHANG), 0);

    victim_kill(&victim);
    assert_int_equal(waitpid(victim.anchor, &status, __WALL), victim.anchor);
    assert_true(WIFSTOPPED(status) && status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8));
    left = shared_kib(victim.anchor);
    assert_int_equal(ptrace(PTRACE_CONT, victim.anchor, NULL, NULL), 0);
    assert_int_equal(waitpid(victim.anchor, &status, __WALL), victim.anchor);

    assert_true(before >= PIECES * 4);
    assert_int_equal(left, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(victim.said);
    close(file);
}

/* The process goes on; its end takes longer, that is all. */
static void an_anchor_that_is_killed_disturbs_nobody(void **state)
{
    struct victim victim;
    struct pollfd poll_fd;
    bool has_anchor = victim_start(&victim);

    (void)state;
    if (has_anchor)
        assert_int_equal(kill(victim.anchor, SIGKILL), 0);
    poll_fd = (struct pollfd){.fd = victim.said, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    assert_int_equal(waitpid(victim.pid, NULL, WNOHANG), 0);

    victim_kill(&victim);
    close(victim.said);
    if (has_anchor)
        assert_int_equal(waitpid(victim.anchor, NULL, __WALL), victim.anchor);
    else
        skip();
}

static void errno_is_what_it_was(void **state)
{
    int status = 0;
    pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        errno = EXDEV;
        (void)muster_memory_anchor_start(NULL, 0);
        _exit(errno == EXDEV ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)waitpid(-1, NULL, __WALL); /* the anchor */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_anchor_shares_memory_and_has_no_descriptor),
        cmocka_unit_test(the_anchor_ends_with_its_process),
        cmocka_unit_test(shared_memory_is_gone_before_the_anchor_ends),
        cmocka_unit_test(an_anchor_that_is_killed_disturbs_nobody),
        cmocka_unit_test(errno_is_what_it_was),
    };

    return cmocka_run_group_tests(tests, adopt_orphans, NULL);
}
