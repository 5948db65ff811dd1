/* Memory that other processes find by process, number and file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "runtime/system/host_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 100000u

/* A process whose memory the case maps. It ends when the case closes its pipe. */
struct owner {
    pid_t pid;
    int end;
    struct muster_host_memory memory; /* as it has told */
};

static void owner_run(int told, int end)
{
    struct muster_host_memory memory;
    char byte;

    if (muster_host_memory_system_open(BYTES, &memory) != MUSTER_OK)
        _exit(1);
    memset(memory.bytes, 7, BYTES);
    if (write(told, &memory, sizeof(memory)) != sizeof(memory))
        _exit(2);
    while (read(end, &byte, 1) == 1)
        memory.bytes[0] = (uint8_t)byte;
    _exit(0);
}

static void owner_start(struct owner *owner)
{
    int told[2], end[2];

    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(end), 0);
    owner->pid = fork();
    assert_true(owner->pid >= 0);
    if (owner->pid == 0) {
        close(told[0]);
        close(end[1]);
        owner_run(told[1], end[0]);
    }
    close(told[1]);
    close(end[0]);
    owner->end = end[1];
    assert_int_equal(read(told[0], &owner->memory, sizeof(owner->memory)), sizeof(owner->memory));
    close(told[0]);
}

static void owner_end(struct owner *owner)
{
    int status;

    close(owner->end);
    assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
    assert_int_equal(status, 0);
}

static void another_process_reads_what_is_written(void **state)
{
    struct owner owner;
    struct muster_host_memory mapped, again;

    (void)state;
    owner_start(&owner);
    assert_int_equal(muster_host_memory_system_map(&owner.memory, &mapped), MUSTER_OK);
    assert_int_equal(mapped.bytes[BYTES - 1], 7);
    assert_int_equal(write(owner.end, "x", 1), 1);
    while (((volatile uint8_t *)mapped.bytes)[0] != 'x') /* the owner has it soon */
        ;

    owner_end(&owner);
    assert_int_equal(mapped.bytes[0], 'x'); /* it outlives its owner */
    assert_int_equal(muster_host_memory_system_map(&owner.memory, &again), MUSTER_NOT_FOUND);
    assert_int_equal(muster_host_memory_system_map(&mapped, &again), MUSTER_OK);
    assert_int_equal(again.bytes[0], 'x');
    muster_host_memory_system_close(&again);
    muster_host_memory_system_close(&mapped);
}

static void another_number_file_or_size_is_not_mapped(void **state)
{
    struct owner owner;
    struct muster_host_memory mapped;

    (void)state;
    owner_start(&owner);
    for (int i = 0; i < 4; i++) {
        struct muster_host_memory wrong = owner.memory;

        wrong.number += i == 0 ? 100 : 0;
        wrong.file += i == 1;
        wrong.size += i == 2 ? 4096 : 0;
        wrong.number = i == 3 ? 0 : wrong.number; /* standard input */
        assert_int_equal(muster_host_memory_system_map(&wrong, &mapped), MUSTER_NOT_FOUND);
    }
    owner_end(&owner);
}

/* Whoever could cut it off would end the process that reads it. */
static void a_file_without_seals_is_not_mapped(void **state)
{
    struct muster_host_memory mapped, theirs = {.size = BYTES, .pid = getpid()};
    struct stat status;
    char path[] = "/tmp/muster-memory-XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(fstat(fd, &status), 0);
    theirs.number = (uint32_t)fd;
    theirs.file = status.st_ino;
    assert_int_equal(muster_host_memory_system_map(&theirs, &mapped), MUSTER_NOT_FOUND);
    close(fd);
}

static void a_host_without_memory_says_so(void **state)
{
    static const struct muster_host_ops ops = {.key = NULL};
    struct muster_host host = {.ops = &ops};
    struct muster_host_memory memory = {.bytes = NULL};

    (void)state;
    assert_int_equal(muster_host_memory_open(&host, BYTES, &memory), MUSTER_UNIMPLEMENTED);
    assert_int_equal(muster_host_memory_map(NULL, &memory, &memory), MUSTER_UNIMPLEMENTED);
    muster_host_memory_close(&host, &memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_reads_what_is_written),
        cmocka_unit_test(another_number_file_or_size_is_not_mapped),
        cmocka_unit_test(a_file_without_seals_is_not_mapped),
        cmocka_unit_test(a_host_without_memory_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
