/* Seats: which memory they have, and how one goes from a dead process to the next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "torture.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "params/server/core/push.h"
#include "params/server/seat/seat.h"
#include "params/store/row.h"

#define MIB ((uint64_t)1 << 20)

static const struct muster_params_seat_options small = {.memory_max = 16 * MIB, .shard_count = 4};

static struct muster_params_seat *seat_new(void)
{
    struct muster_params_seat *seat = NULL;
    struct muster_error error;

    if (muster_params_seat_new(&small, &seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return seat;
}

/* --- Options --- */

static void wrong_seats_are_not_made(void **state)
{
    static const struct {
        const char *name;
        struct muster_params_seat_options options;
        const char *text;
    } rows[] = {
        {"small", {.memory_max = MIB}, "the memory of a seat must be 16 MiB to 64 GiB"},
        {"large", {.memory_max = 65 * 1024 * MIB}, "the memory of a seat must be"},
        {"shards", {.memory_max = 16 * MIB, .shard_count = 3}, "shards must be a power of two"},
        {"many shards", {.memory_max = 16 * MIB, .shard_count = 8192}, "got 8192"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_seat *seat = NULL;
        struct muster_error error;

        fail_if(muster_params_seat_new(&rows[i].options, &seat, &error) !=
                        MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].name, error.text);
        assert_null(seat);
    }
    muster_params_seat_free(NULL);
}

static struct rlimit file_size_limit(rlim_t bytes)
{
    struct rlimit before, limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = bytes, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return before;
}

/* A limit of the process is told only of a seat that would be right without it. */
static void a_wrong_size_is_told_before_memory_is_made(void **state)
{
    const struct muster_params_seat_options large = {.memory_max = 65 * 1024 * MIB};
    struct rlimit before = file_size_limit(MIB);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    struct muster_params_seat *seat = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_params_seat_new(&large, &seat, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "the memory of a seat must be 16 MiB to 64 GiB"));
    assert_int_equal(muster_params_seat_new(&small, &seat, &error), muster_rc_from_errno(EFBIG));
    assert_int_equal(error.sys, EFBIG);
    assert_non_null(strstr(error.text, "cannot be made"));
    assert_null(seat);

    signal(SIGXFSZ, handler);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    muster_params_seat_free(seat_new());
}

static void run_new(struct torture *torture, const void *data)
{
    size_t count = torture_count_system_blocks();
    struct muster_params_seat *seat = NULL;
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    (void)data;
    torture_arm_system(torture);
    rc = muster_params_seat_new(&small, &seat, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_int_equal(error.text[0] != '\0', rc != MUSTER_OK);
    assert_int_equal(seat != NULL, rc == MUSTER_OK);
    muster_params_seat_free(seat);
    assert_int_equal(torture_count_system_blocks(), count);
}

static void without_memory_there_is_no_seat(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "new", .run = run_new});
}

static void a_seat_has_the_memory_and_shards_that_were_asked_for(void **state)
{
    static const struct {
        struct muster_params_seat_options options;
        uint64_t bytes_max;
        uint32_t shards;
    } rows[] = {{{.memory_max = 0}, 1024 * MIB, 256},
                {{.memory_max = 16 * MIB, .shard_count = 1}, 16 * MIB, 1},
                {{.memory_max = 17 * MIB, .shard_count = 4096}, 16 * MIB, 4096},
                {{.memory_max = 100 * MIB}, 100 * MIB, 256}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_seat *seat;
        struct muster_params_region *region;
        struct muster_error error;

        if (muster_params_seat_new(&rows[i].options, &seat, &error) != MUSTER_OK ||
            muster_params_seat_take(seat, &error) != MUSTER_OK)
            fail_msg("%s", error.text);
        region = muster_params_seat_region(seat);
        assert_int_equal(muster_params_region_bytes_max(region), rows[i].bytes_max);
        assert_int_equal(region->head->shard_count, rows[i].shards);
        assert_non_null(region->commit);
        muster_params_seat_free(seat);
    }
}

/* --- Processes --- */

static struct muster_params_store_table *table_open(struct muster_params_region *region)
{
    const struct muster_params_schema schema = {.name = "t", .row_elements = 1};
    struct muster_params_store_table *table = NULL;
    struct muster_error error;

    return muster_params_table_open(region, &schema, &table, &error) == MUSTER_OK ? table : NULL;
}

static bool row_make(struct muster_params_region *region, struct muster_params_store_table *table,
                     uint64_t key)
{
    struct muster_params_row *row;

    return muster_params_row_make(region, table, key, muster_params_hash(table->seed, key), &row) ==
           MUSTER_OK;
}

/* A child writes bytes: what it has come to. */
struct child {
    pid_t pid;
    int reports;
};

typedef int child_fn(struct muster_params_seat *seat, int reports);

static struct child child_start(struct muster_params_seat *seat, child_fn *fn)
{
    struct child child;
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0)
        _exit(fn(seat, ends[1]));
    close(ends[1]);
    child.reports = ends[0];
    return child;
}

static char child_hear(const struct child *child)
{
    char report = 0;

    assert_int_equal(read(child->reports, &report, 1), 1);
    return report;
}

static bool child_is_silent(const struct child *child)
{
    struct pollfd poll_fd = {.fd = child->reports, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 0;
}

static int child_end(struct child *child)
{
    int status = 0;

    close(child->reports);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    return status;
}

/* Makes rows until it is killed. */
static int holder_run(struct muster_params_seat *seat, int reports)
{
    struct muster_error error;
    struct muster_params_store_table *table;

    if (muster_params_seat_take(seat, &error) != MUSTER_OK)
        return 1;
    table = table_open(muster_params_seat_region(seat));
    for (uint64_t key = 0; key < 1000000; key++) {
        if (table == NULL || !row_make(muster_params_seat_region(seat), table, key % 100000))
            return 1;
        if (key == 1000 && write(reports, "h", 1) != 1)
            return 1;
    }
    for (;;)
        pause();
}

static int successor_run(struct muster_params_seat *seat, int reports)
{
    struct muster_error error;
    struct muster_params_store_table *table;

    if (write(reports, "w", 1) != 1)
        return 1;
    if (muster_params_seat_take(seat, &error) != MUSTER_OK)
        return 2;
    table = table_open(muster_params_seat_region(seat));
    if (table == NULL || table->row_count < 1000 ||
        !row_make(muster_params_seat_region(seat), table, 1000001))
        return 3;
    return write(reports, "t", 1) == 1 ? 0 : 1;
}

static void the_next_process_takes_the_seat_when_its_holder_is_killed(void **state)
{
    struct muster_params_seat *seat = seat_new();
    struct child holder, successor;
    struct muster_error error;

    (void)state;
    holder = child_start(seat, holder_run);
    assert_int_equal(child_hear(&holder), 'h');
    successor = child_start(seat, successor_run);
    assert_int_equal(child_hear(&successor), 'w');
    assert_true(child_is_silent(&successor));
    kill(holder.pid, SIGKILL);
    assert_int_equal(child_hear(&successor), 't');

    assert_int_equal(child_end(&holder), SIGKILL);
    assert_int_equal(child_end(&successor), 0);
    /* The second one is gone without a word, too. */
    assert_int_equal(muster_params_seat_take(seat, &error), MUSTER_OK);
    assert_true(table_open(muster_params_seat_region(seat))->row_count >= 1000);
    muster_params_seat_free(seat);
}

/* The bytes of shared memory that the process has in its page tables. */
static uint64_t mapped_bytes(pid_t pid)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "RssShmem: %llu kB", &kib);
    fclose(file);
    return (uint64_t)kib << 10;
}

static int waiter_run(struct muster_params_seat *seat, int reports)
{
    struct muster_error error;

    if (write(reports, "w", 1) != 1)
        return 1;
    return muster_params_seat_take(seat, &error) == MUSTER_OK ? 0 : 2;
}

/* Otherwise the first turn of a large server that takes over consists of page faults. The test ends
 * by the limit of ctest where the pages never come. */
static void the_next_process_has_mapped_what_its_holder_uses(void **state)
{
    struct muster_params_seat *seat = seat_new();
    struct child holder, waiter;

    (void)state;
    holder = child_start(seat, holder_run);
    assert_int_equal(child_hear(&holder), 'h');
    waiter = child_start(seat, waiter_run);
    assert_int_equal(child_hear(&waiter), 'w');
    while (mapped_bytes(waiter.pid) < 4 * MIB) { /* index and rows: a segment each */
        assert_int_equal(waitpid(waiter.pid, NULL, WNOHANG), 0);
        sched_yield();
    }
    kill(holder.pid, SIGKILL);

    assert_int_equal(child_end(&holder), SIGKILL);
    assert_int_equal(child_end(&waiter), 0);
    muster_params_seat_free(seat);
}

static int version_raise(struct muster_params_seat *seat, int reports)
{
    struct muster_error error;

    (void)reports;
    if (muster_params_seat_take(seat, &error) != MUSTER_OK)
        return 1;
    muster_params_seat_region(seat)->head->version++;
    return 0;
}

/* The lock is given back: whoever asks next is told the same, and does not wait. */
static void a_seat_of_another_version_is_refused_each_time(void **state)
{
    struct muster_params_seat *seat = seat_new();
    struct child child = child_start(seat, version_raise);
    struct muster_error error;

    (void)state;
    assert_int_equal(child_end(&child), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(muster_params_seat_take(seat, &error), MUSTER_FAILED_PRECONDITION);
        assert_non_null(strstr(error.text, "start a fresh seat"));
    }
    muster_params_seat_free(seat);
}

static int seat_give(struct muster_params_seat *seat, int reports)
{
    struct muster_error error;

    if (muster_params_seat_take(seat, &error) != MUSTER_OK || write(reports, "h", 1) != 1)
        return 1;
    muster_params_seat_free(seat);
    if (write(reports, "f", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static void a_seat_that_is_freed_goes_to_the_next_process_at_once(void **state)
{
    struct muster_params_seat *seat = seat_new();
    struct child holder = child_start(seat, seat_give);
    struct muster_error error;

    (void)state;
    assert_int_equal(child_hear(&holder), 'h');
    assert_int_equal(child_hear(&holder), 'f');
    assert_int_equal(muster_params_seat_take(seat, &error), MUSTER_OK);
    kill(holder.pid, SIGKILL);
    assert_int_equal(child_end(&holder), SIGKILL);
    muster_params_seat_free(seat);
}

/* The first version of the kernel's struct sched_attr, which only new libcs have. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static uint64_t slice_ns(void)
{
    struct scheduling scheduling;

    return syscall(SYS_sched_getattr, 0, &scheduling, sizeof(scheduling), 0) == 0
               ? scheduling.runtime_ns
               : 0;
}

/* Tells the slice before it has the seat as 'l', where it is longer than 100 us, and the slice behind as 's', where
 * it is as long. */
static int slices_tell(struct muster_params_seat *seat, int reports)
{
    const struct sched_param plain = {.sched_priority = 0};
    struct muster_error error;
    char told[2];

    (void)sched_setscheduler(0, SCHED_OTHER, &plain);
    (void)setpriority(PRIO_PROCESS, 0, 0);
    told[0] = slice_ns() > 100000 && sched_getscheduler(0) == SCHED_OTHER ? 'l' : '-';
    if (muster_params_seat_take(seat, &error) != MUSTER_OK)
        return 1;
    told[1] = slice_ns() == 100000 ? 's' : '-';
    return write(reports, told, sizeof(told)) == sizeof(told) ? 0 : 1;
}

/* Else threads that compute keep the processor for milliseconds while messages wait. */
static void the_holder_runs_as_soon_as_it_is_woken(void **state)
{
    struct muster_params_seat *seat = seat_new();
    struct child holder = child_start(seat, slices_tell);
    bool has_slices = child_hear(&holder) == 'l';
    char told = child_hear(&holder);

    (void)state;
    assert_int_equal(child_end(&holder), 0);
    muster_params_seat_free(seat);
    if (!has_slices)
        skip(); /* a kernel before Linux 6.12 */
    assert_int_equal(told, 's');
}

/* --- Memory of the caller --- */

static void memory_of_the_caller_is_cut_once(void **state)
{
    struct muster_params_seat_options other = small;
    struct muster_params_seat *seat = NULL;
    struct muster_error error;
    size_t bytes = (size_t)small.memory_max;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(memory != MAP_FAILED);
    assert_int_equal(muster_params_seat_wrap(memory, bytes, &small, &seat, &error), MUSTER_OK);
    assert_true(
        row_make(muster_params_seat_region(seat), table_open(muster_params_seat_region(seat)), 7));
    assert_null(muster_params_seat_region(seat)->commit);
    muster_params_seat_free(seat);
    assert_int_equal(muster_params_seat_wrap(memory, bytes, &small, &seat, &error), MUSTER_OK);
    assert_int_equal(table_open(muster_params_seat_region(seat))->row_count, 1);
    muster_params_seat_free(seat);
    seat = NULL;
    other.shard_count = 8;
    assert_int_equal(muster_params_seat_wrap(memory, bytes, &other, &seat, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_null(seat);
    munmap(memory, bytes);
}

/* A reader gets the file: what it does with it must not reach the tables. */
static void the_file_of_a_seat_can_be_read_and_not_written(void **state)
{
    struct muster_params_seat *seat = seat_new();
    size_t bytes = 18 * MIB;
    int fd = muster_params_seat_file(seat);
    void *memory;

    (void)state;
    assert_true(fd >= 0);
    assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_not_equal(mprotect(memory, bytes, PROT_READ | PROT_WRITE), 0);
    assert_int_not_equal(ftruncate(fd, 0), 0);
    assert_int_equal(write(fd, "", 1), -1);
    munmap(memory, bytes);
    muster_params_seat_free(seat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_seats_are_not_made),
        cmocka_unit_test(a_wrong_size_is_told_before_memory_is_made),
        cmocka_unit_test(without_memory_there_is_no_seat),
        cmocka_unit_test(a_seat_has_the_memory_and_shards_that_were_asked_for),
        cmocka_unit_test(the_next_process_takes_the_seat_when_its_holder_is_killed),
        cmocka_unit_test(the_next_process_has_mapped_what_its_holder_uses),
        cmocka_unit_test(a_seat_of_another_version_is_refused_each_time),
        cmocka_unit_test(a_seat_that_is_freed_goes_to_the_next_process_at_once),
        cmocka_unit_test(the_holder_runs_as_soon_as_it_is_woken),
        cmocka_unit_test(memory_of_the_caller_is_cut_once),
        cmocka_unit_test(the_file_of_a_seat_can_be_read_and_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
