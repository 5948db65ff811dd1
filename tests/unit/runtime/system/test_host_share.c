/* Memory that only its owner can write, and the list of it. */
#include "runtime/system/host_share.h"
#include "torture.h"
#include "uninstrumented.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES 4096

/* The failures that the kernel is to show, and the calls that it got. Only calls of the product and
 * of the cases come here. */
static struct {
    bool has_huge_pages; /* of a reserve: a plain file stands for it */
    int memfd_failure;   /* errno; 0: none */
    int seals_failure;
    unsigned mmap_fail_at; /* the call from now on that fails; 0: none */
    int collapse_failure;
    unsigned collapse_count;
    const uint8_t *collapsed;
    size_t collapsed_bytes;
    bool is_each_touched; /* each of the huge pages has held something */
    bool has_no_limits, are_limits_unknown;
} kernel;

static int fail_with(int sys)
{
    errno = sys;
    return -1;
}

int memfd_create(const char *name, unsigned flags)
{
    if ((flags & MFD_HUGETLB) != 0 && !kernel.has_huge_pages)
        return fail_with(ENOMEM);
    if (kernel.memfd_failure != 0)
        return fail_with(kernel.memfd_failure);
    return (int)syscall(SYS_memfd_create, name, flags & ~MFD_HUGETLB);
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    long word;

    va_start(args, command);
    word = va_arg(args, long);
    va_end(args);
    if (command == F_ADD_SEALS && kernel.seals_failure != 0)
        return fail_with(kernel.seals_failure);
    return (int)syscall(SYS_fcntl, fd, command, word);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (kernel.mmap_fail_at != 0 && --kernel.mmap_fail_at == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* Whether [at, at + HUGE_BYTES) holds any page. */
static bool is_touched(const uint8_t *at)
{
    unsigned char pages[HUGE_BYTES / PAGE_BYTES] = {0};
    bool is_any = false;

    assert_int_equal(mincore((void *)(uintptr_t)at, HUGE_BYTES, pages), 0);
    for (size_t i = 0; i < sizeof(pages); i++)
        is_any = is_any || (pages[i] & 1) != 0;
    return is_any;
}

int madvise(void *at, size_t bytes, int advice)
{
    if (advice != 25) /* MADV_COLLAPSE */
        return (int)syscall(SYS_madvise, at, bytes, advice);
    kernel.collapse_count++;
    kernel.collapsed = at;
    kernel.collapsed_bytes = bytes;
    kernel.is_each_touched = true;
    for (size_t i = 0; i < bytes; i += HUGE_BYTES)
        kernel.is_each_touched = kernel.is_each_touched && is_touched(kernel.collapsed + i);
    return kernel.collapse_failure == 0 ? 0 : fail_with(kernel.collapse_failure);
}

UNINSTRUMENTED int getrlimit(__rlimit_resource_t resource, struct rlimit *ret_limit)
{
    int result = (int)syscall(SYS_getrlimit, resource, ret_limit);

    if (kernel.has_no_limits)
        ret_limit->rlim_cur = RLIM_INFINITY;
    return kernel.are_limits_unknown ? fail_with(EPERM) : result;
}

static int set_up(void **state)
{
    (void)state;
    memset(&kernel, 0, sizeof(kernel));
    return 0;
}

/* Pages of address space that the process has; nothing is allocated here. */
static unsigned long count_pages(void)
{
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY);

    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    return strtoul(text, NULL, 10);
}

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* "a1": listener a was told of share 1; "A1": that it goes. */
static char heard[32];

static void hear_share(char letter, const struct muster_share *share)
{
    size_t length = strlen(heard);

    assert_int_equal(share->shared.memory[0], 0); /* it is there */
    snprintf(heard + length, sizeof(heard) - length, "%c%u", letter, share->number);
}

static void on_new(void *data, const struct muster_share *share)
{
    hear_share(*(const char *)data, share);
}

static void on_free(void *data, const struct muster_share *share)
{
    hear_share((char)(*(const char *)data - 'a' + 'A'), share);
}

static void others_read_what_the_owner_writes_and_cannot_write(void **state)
{
    struct muster_shared_memory shared;
    uint8_t *view = NULL;
    (void)state;

    assert_int_equal(muster_shared_memory_open("test", 5000, &shared), MUSTER_OK);
    assert_int_equal(fcntl(shared.fd, F_GETFD), FD_CLOEXEC); /* programs do not get it */
    shared.memory[4999] = 7;

    view = mmap(NULL, shared.bytes, PROT_READ, MAP_SHARED, shared.fd, 0);
    assert_true(view != MAP_FAILED);
    assert_int_equal(view[4999], 7);
    assert_true(mmap(NULL, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd, 0) ==
                MAP_FAILED);
    assert_int_equal(errno, EPERM);
    assert_int_equal(mprotect(view, shared.bytes, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(pwrite(shared.fd, "x", 1, 0), -1);
    assert_int_equal(fcntl(shared.fd, F_ADD_SEALS, F_SEAL_GROW), -1); /* for good */
    assert_int_equal(ftruncate(shared.fd, 0), -1);
    assert_int_equal(ftruncate(shared.fd, 1 << 20), -1);
    assert_int_equal(munmap(view, shared.bytes), 0);
    muster_shared_memory_close(&shared);
}

/* Its descriptor has another use by then. */
static void a_second_close_closes_nothing(void **state)
{
    struct muster_shared_memory shared;
    unsigned long before = count_pages();
    int other;
    (void)state;

    assert_int_equal(muster_shared_memory_open("test", 8 * HUGE_BYTES, &shared), MUSTER_OK);
    muster_shared_memory_close(&shared);
    assert_int_equal(count_pages(), before);
    other = dup(STDERR_FILENO);
    assert_int_equal(other, shared.fd);
    muster_shared_memory_close(&shared);
    assert_int_equal(close(other), 0);
}

static void memory_is_whole_pages_of_zeroes(void **state)
{
    static const size_t rows[][2] = {
        {0, PAGE_BYTES},
        {1, PAGE_BYTES},
        {PAGE_BYTES, PAGE_BYTES},
        {PAGE_BYTES + 1, 2 * PAGE_BYTES},
        {HUGE_BYTES - 1, HUGE_BYTES},
        {HUGE_BYTES + 1, HUGE_BYTES + PAGE_BYTES},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_shared_memory shared;

        assert_int_equal(muster_shared_memory_open("test", rows[i][0], &shared), MUSTER_OK);
        assert_int_equal(shared.bytes, rows[i][1]);
        assert_int_equal(lseek(shared.fd, 0, SEEK_END), rows[i][1]);
        assert_false(shared.is_huge);
        assert_int_equal(shared.memory[0] | shared.memory[shared.bytes - 1], 0);
        muster_shared_memory_close(&shared);
    }
}

static void huge_pages_of_a_reserve_are_taken_when_little_is_wasted(void **state)
{
    static const struct {
        size_t bytes, got;
        bool is_huge;
    } rows[] = {
        {HUGE_BYTES - 1, HUGE_BYTES, false}, /* too small */
        {HUGE_BYTES, HUGE_BYTES, true},
        {HUGE_BYTES + 1, HUGE_BYTES + PAGE_BYTES, false}, /* half of it for nothing */
        {3728270, 911 * PAGE_BYTES, false},               /* more than an eighth, by a byte */
        {3728271, 2 * HUGE_BYTES, true},                  /* an eighth */
        {8 * HUGE_BYTES + 1, 9 * HUGE_BYTES, true},
    };

    (void)state;
    kernel.has_huge_pages = true;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_shared_memory shared;

        assert_int_equal(muster_shared_memory_open("test", rows[i].bytes, &shared), MUSTER_OK);
        assert_int_equal(shared.bytes, rows[i].got);
        assert_int_equal(shared.is_huge, rows[i].is_huge);
        muster_shared_memory_close(&shared);
    }
}

static void a_commit_touches_each_huge_page_and_asks_once(void **state)
{
    static const struct {
        size_t bytes, collapsed;
        int failure;
    } rows[] = {
        {PAGE_BYTES, 0, 0},
        {HUGE_BYTES - PAGE_BYTES, 0, 0},
        {HUGE_BYTES, HUGE_BYTES, 0},
        {2 * HUGE_BYTES + 5000, 2 * HUGE_BYTES, 0},
        {2 * HUGE_BYTES + 5000, 2 * HUGE_BYTES, EINVAL}, /* before Linux 6.1 */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_huge = rows[i].collapsed != 0 && rows[i].failure == 0;
        struct muster_shared_memory shared;

        (void)set_up(NULL);
        kernel.collapse_failure = rows[i].failure;
        assert_int_equal(muster_shared_memory_open("test", rows[i].bytes, &shared), MUSTER_OK);
        muster_shared_memory_commit(&shared);

        assert_int_equal(shared.is_huge, is_huge);
        assert_int_equal(kernel.collapse_count, rows[i].collapsed != 0);
        assert_int_equal(kernel.collapsed_bytes, rows[i].collapsed);
        for (size_t at = 0; at < shared.bytes; at += PAGE_BYTES)
            assert_int_equal(shared.memory[at], 0); /* as it was */
        if (rows[i].collapsed != 0)
            assert_true(kernel.collapsed == shared.memory && kernel.is_each_touched);
        muster_shared_memory_commit(&shared); /* what is huge is left alone */
        assert_int_equal(kernel.collapse_count, rows[i].failure == 0 ? is_huge : 2);
        muster_shared_memory_close(&shared);
    }
}

static void large_memory_can_be_mapped_in_huge_pages(void **state)
{
    struct muster_shared_memory shared;
    (void)state;

    /* The kernel's address for each size begins elsewhere within a huge page. */
    for (size_t pages = 0; pages < 9; pages++) {
        uint8_t *view;

        assert_int_equal(
            muster_shared_memory_open("test", 2 * HUGE_BYTES + pages * PAGE_BYTES, &shared),
            MUSTER_OK);
        view = muster_shared_memory_map(shared.fd, shared.bytes, PROT_READ);
        assert_non_null(view);
        assert_int_equal((uintptr_t)shared.memory % HUGE_BYTES, 0);
        assert_int_equal((uintptr_t)view % HUGE_BYTES, 0);

        shared.memory[shared.bytes - 1] = 7;
        shared.memory[HUGE_BYTES] = 5;
        assert_int_equal(view[HUGE_BYTES], 5);
        assert_int_equal(view[shared.bytes - 1], 7);

        assert_int_equal(munmap(view, shared.bytes), 0);
        muster_shared_memory_close(&shared);
    }
}

static void a_mapping_takes_no_more_room_than_it_has(void **state)
{
    static const size_t rows[] = {PAGE_BYTES, HUGE_BYTES, HUGE_BYTES + PAGE_BYTES,
                                  5 * HUGE_BYTES + 3 * PAGE_BYTES};
    uint8_t *kept[4] = {NULL};
    struct muster_shared_memory shared;

    (void)state;
    assert_int_equal(muster_shared_memory_open("test", 6 * HUGE_BYTES, &shared), MUSTER_OK);
    for (size_t i = 0; i < 4; i++) {
        unsigned long before = count_pages();

        kept[i] = muster_shared_memory_map(shared.fd, rows[i], PROT_READ);
        assert_non_null(kept[i]);
        assert_int_equal(count_pages() - before, rows[i] / PAGE_BYTES);
    }
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(munmap(kept[i], rows[i]), 0);
    muster_shared_memory_close(&shared);
}

/* Room is looked for, then the file is put there. */
static void a_mapping_that_fails_leaves_nothing(void **state)
{
    static const size_t rows[] = {PAGE_BYTES, 2 * HUGE_BYTES, 2 * HUGE_BYTES};
    static const unsigned fail_at[] = {1, 1, 2};
    int next = next_descriptor();

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        unsigned long before = count_pages();
        struct muster_shared_memory shared = {.fd = -1};

        kernel.mmap_fail_at = fail_at[i];
        assert_int_equal(muster_shared_memory_open("test", rows[i], &shared),
                         MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(kernel.mmap_fail_at, 0);
        assert_int_equal(shared.fd, -1);
        assert_int_equal(count_pages(), before);
        assert_int_equal(next_descriptor(), next);
    }
}

/* Linux before 5.1 does not know one of the seals; and what others have mapped stays, wherever. */
static void a_file_that_cannot_be_made_leaves_nothing(void **state)
{
    const uintptr_t low_address = 1u << 20;
    uint8_t *low = mmap((void *)low_address, PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    int next = next_descriptor();
    unsigned long before = count_pages();
    unsigned char page = 0;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct muster_shared_memory shared = {.fd = -1};

        kernel.seals_failure = i == 0 ? EINVAL : 0;
        kernel.mmap_fail_at = i == 0 ? 0 : 1;
        assert_int_equal(muster_shared_memory_open("test", 2 * HUGE_BYTES, &shared),
                         i == 0 ? MUSTER_UNIMPLEMENTED : MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(shared.fd, -1);
        assert_int_equal(next_descriptor(), next);
        assert_int_equal(count_pages(), before);
        if (low != MAP_FAILED)
            assert_int_equal(mincore(low, PAGE_BYTES, &page), 0);
    }
    if (low != MAP_FAILED)
        assert_int_equal(munmap(low, PAGE_BYTES), 0);
}

static void a_kernel_that_has_no_such_memory_is_told_from_a_full_one(void **state)
{
    static const struct {
        int sys;
        enum muster_rc rc;
    } rows[] = {
        {EINVAL, MUSTER_UNIMPLEMENTED},      {ENOSYS, MUSTER_UNIMPLEMENTED},
        {EPERM, MUSTER_UNIMPLEMENTED},       {EACCES, MUSTER_UNIMPLEMENTED},
        {EMFILE, MUSTER_RESOURCE_EXHAUSTED}, {ENOMEM, MUSTER_RESOURCE_EXHAUSTED},
    };
    struct muster_shared_memory shared = {.fd = -1};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        kernel.memfd_failure = rows[i].sys;
        assert_int_equal(muster_shared_memory_open("test", 1, &shared), rows[i].rc);
        assert_int_equal(shared.fd, -1);
    }
}

static void a_size_that_no_process_has_is_refused(void **state)
{
    static const size_t rows[] = {SIZE_MAX - 1, SIZE_MAX / 2, (size_t)1 << 60, (size_t)1 << 48};
    struct muster_shared_memory shared;
    int next = next_descriptor();

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_shared_memory_open("test", rows[i], &shared),
                         MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(next_descriptor(), next);
}

/* It is closed like any other: 0 is a descriptor. */
static void memory_may_have_the_first_descriptor(void **state)
{
    int kept = dup(STDIN_FILENO);
    struct muster_shared_memory shared;

    (void)state;
    close(STDIN_FILENO);
    assert_int_equal(muster_shared_memory_open("test", 1, &shared), MUSTER_OK);
    assert_int_equal(shared.fd, STDIN_FILENO);
    muster_shared_memory_close(&shared);
    assert_int_equal(next_descriptor(), STDIN_FILENO);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
}

static void check_found(struct muster_shares *shares, struct muster_share *const *made,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t *start = made[i]->shared.memory;
        size_t bytes = made[i]->shared.bytes;

        assert_ptr_equal(muster_shares_find(shares, start, bytes), made[i]);
        assert_ptr_equal(muster_shares_find(shares, start + bytes - 1, 1), made[i]);
    }
}

/* The new ones come before, between and behind the others. */
static void shares_are_found_wherever_they_lie(void **state)
{
    struct test_env test;
    struct muster_shares *shares = NULL;
    struct muster_share *made[32];
    size_t count = 0;
    (void)state;

    test_env_open(&test);
    shares = muster_host_shares(test.env.host);
    for (; count < 32; count++) { /* up to a full list */
        assert_int_equal(muster_share_new(shares, PAGE_BYTES, &made[count]), MUSTER_OK);
        check_found(shares, made, count + 1);
    }
    for (size_t i = 0; i < 32; i++) {
        size_t at = i * 7 % 32;

        muster_share_free(shares, made[at]);
        assert_int_equal(shares->count, 31);
        assert_int_equal(muster_share_new(shares, PAGE_BYTES, &made[at]), MUSTER_OK);
        check_found(shares, made, count);
    }
    test_env_close(&test);
}

static void a_range_is_found_when_all_of_it_is_in_one_share(void **state)
{
    struct test_env test;
    struct muster_shares *shares = NULL;
    struct muster_share *made[40];
    (void)state;

    test_env_open(&test);
    shares = muster_host_shares(test.env.host);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(muster_share_new(shares, 4096 * (i % 3 + 1), &made[i]), MUSTER_OK);
    for (size_t i = 0; i < 40; i += 2) {
        muster_share_free(shares, made[i]);
        made[i] = NULL;
    }

    for (size_t i = 1; i < 40; i += 2) {
        uint8_t *start = made[i]->shared.memory;
        size_t bytes = made[i]->shared.bytes;

        assert_ptr_equal(muster_shares_find(shares, start, bytes), made[i]);
        assert_ptr_equal(muster_shares_find(shares, start + bytes - 1, 1), made[i]);
        assert_ptr_equal(muster_shares_find(shares, start + bytes, 0), made[i]);
        assert_true(muster_shares_find(shares, start - 1, 2) == NULL);
        assert_true(muster_shares_find(shares, start + bytes - 1, 2) == NULL);
        assert_true(muster_shares_find(shares, start, SIZE_MAX) == NULL);
    }
    assert_null(muster_shares_find(shares, &test, 1));
    test_env_close(&test); /* frees the rest */
}

static void listeners_hear_of_every_share_and_numbers_are_new(void **state)
{
    char letters[] = "ab";
    struct muster_share_listener listeners[] = {
        {.data = &letters[0], .on_new = on_new, .on_free = on_free},
        {.data = &letters[1], .on_new = on_new, .on_free = on_free},
    };
    struct muster_share *first = NULL, *second = NULL;
    struct muster_shares *shares = NULL;
    struct test_env test;
    int next;
    (void)state;

    test_env_open(&test);
    shares = muster_host_shares(test.env.host);
    muster_shares_listen(shares, &listeners[0]);
    muster_shares_listen(shares, &listeners[1]);
    next = next_descriptor();
    assert_int_equal(muster_share_new(shares, 5000, &first), MUSTER_OK);
    assert_int_equal(first->shared.bytes, 2 * PAGE_BYTES);
    assert_ptr_equal(shares->list.next, &first->node);
    muster_share_free(shares, first);
    muster_share_free(shares, NULL);
    assert_true(muster_list_is_empty(&shares->list));
    assert_int_equal(next_descriptor(), next);
    muster_share_listener_stop(&listeners[0]);
    muster_share_listener_stop(&listeners[0]);
    assert_int_equal(muster_share_new(shares, 1, &second), MUSTER_OK);
    muster_share_listener_stop(&listeners[1]);
    muster_share_free(shares, second);

    assert_string_equal(heard, "a1b1A1B1b2");
    test_env_close(&test);
}

static void run_share(struct torture *torture, const void *data)
{
    struct muster_share *share = NULL;
    struct test_env test;
    enum muster_rc rc;
    int next;
    (void)data;

    test_env_open(&test);
    next = next_descriptor();
    torture_arm_limited(torture, &test.mem);
    rc = muster_share_new(muster_host_shares(test.env.host), 1, &share);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_int_equal(share != NULL, rc == MUSTER_OK);
    assert_int_equal(next_descriptor() == next, rc != MUSTER_OK);
    test_env_close(&test);
}

static void without_memory_there_is_no_share(void **state)
{
    struct test_env test;
    struct muster_shares *shares = NULL;
    struct muster_share *share = NULL;
    int next;
    (void)state;

    torture_run(&(struct torture_scenario){.name = "share", .run = run_share});
    test_env_open(&test);
    shares = muster_host_shares(test.env.host);
    next = next_descriptor();
    kernel.memfd_failure = ENOSYS;
    assert_int_equal(muster_share_new(shares, 1, &share), MUSTER_UNIMPLEMENTED);
    kernel.memfd_failure = 0;
    assert_null(share);
    assert_int_equal(next_descriptor(), next);

    for (unsigned i = 1; i <= 16; i++) {
        assert_int_equal(muster_share_new(shares, 1, &share), MUSTER_OK);
        assert_int_equal(share->number, i);
    }
    test.mem.fail_at = 1; /* the list of all is full */
    assert_int_equal(muster_share_new(shares, 1, &share), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(shares->count, 16);
    test_env_close(&test);
}

static void a_set_of_shares_begins_empty_whatever_lay_there(void **state)
{
    struct muster_shares shares;
    struct muster_share *share = NULL;
    int next = next_descriptor();
    (void)state;

    memset(&shares, 0xA5, sizeof(shares));
    muster_shares_init(&shares, muster_mem_system());
    assert_null(muster_shares_find(&shares, &shares, 1));
    assert_int_equal(muster_share_new(&shares, 1, &share), MUSTER_OK);
    assert_int_equal(share->number, 1);
    muster_shares_fini(&shares);
    assert_int_equal(next_descriptor(), next);
}

/* An address above all shares is looked for behind the last one. */
static void what_is_beyond_all_shares_is_not_found(void **state)
{
    const uint8_t *const end = (const uint8_t *)(UINTPTR_MAX - PAGE_BYTES);
    struct test_env test;
    struct muster_share *share = NULL;
    (void)state;

    test_env_open(&test);
    for (unsigned count = 0; count < 17; count++) {
        struct muster_shares *shares = muster_host_shares(test.env.host);

        assert_null(muster_shares_find(shares, end, 1));
        assert_null(muster_shares_find(shares, end, 1));
        assert_null(muster_shares_find(shares, NULL, 1));
        assert_int_equal(muster_share_new(shares, 1, &share), MUSTER_OK);
    }
    test_env_close(&test);
}

static void a_large_share_asks_for_huge_pages(void **state)
{
    struct test_env test;
    struct muster_share *share = NULL;
    (void)state;

    test_env_open(&test);
    assert_int_equal(muster_share_new(muster_host_shares(test.env.host), HUGE_BYTES, &share),
                     MUSTER_OK);
    assert_ptr_equal(kernel.collapsed, share->shared.memory);
    assert_int_equal(kernel.collapsed_bytes, HUGE_BYTES);
    test_env_close(&test);
}

static void numbers_do_not_begin_anew(void **state)
{
    struct test_env test;
    struct muster_shares *shares = NULL;
    struct muster_share *share = NULL;
    (void)state;

    test_env_open(&test);
    shares = muster_host_shares(test.env.host);
    shares->number_last = UINT32_MAX - 1;
    assert_int_equal(muster_share_new(shares, 1, &share), MUSTER_OK);
    assert_int_equal(share->number, UINT32_MAX);
    assert_int_equal(muster_share_new(shares, 1, &share), MUSTER_RESOURCE_EXHAUSTED);
    test_env_close(&test);
}

/* The last quarter of 64 descriptors begins with 48. */
static void the_last_quarter_of_the_descriptors_is_left_to_others(void **state)
{
    struct test_env test;
    struct rlimit before, low;
    struct muster_share *share = NULL;
    enum muster_rc rc = MUSTER_OK;
    int last = -1;
    (void)state;

    test_env_open(&test);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (unsigned made = 0; rc == MUSTER_OK && made < 64; made++) {
        rc = muster_share_new(muster_host_shares(test.env.host), 1, &share);
        last = share->shared.fd;
    }
    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(last, 47);
    assert_int_equal(next_descriptor(), 48);

    /* A process whose limit is not known has enough. */
    kernel.has_no_limits = true;
    assert_int_equal(muster_share_new(muster_host_shares(test.env.host), 1, &share), MUSTER_OK);
    kernel.has_no_limits = false;
    kernel.are_limits_unknown = true;
    assert_int_equal(muster_share_new(muster_host_shares(test.env.host), 1, &share), MUSTER_OK);
    kernel.are_limits_unknown = false;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    test_env_close(&test);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        CASE(others_read_what_the_owner_writes_and_cannot_write),
        CASE(a_second_close_closes_nothing),
        CASE(memory_is_whole_pages_of_zeroes),
        CASE(huge_pages_of_a_reserve_are_taken_when_little_is_wasted),
        CASE(a_commit_touches_each_huge_page_and_asks_once),
        CASE(large_memory_can_be_mapped_in_huge_pages),
        CASE(a_mapping_takes_no_more_room_than_it_has),
        CASE(a_mapping_that_fails_leaves_nothing),
        CASE(a_file_that_cannot_be_made_leaves_nothing),
        CASE(a_kernel_that_has_no_such_memory_is_told_from_a_full_one),
        CASE(a_size_that_no_process_has_is_refused),
        CASE(memory_may_have_the_first_descriptor),
        CASE(shares_are_found_wherever_they_lie),
        CASE(a_range_is_found_when_all_of_it_is_in_one_share),
        CASE(listeners_hear_of_every_share_and_numbers_are_new),
        CASE(without_memory_there_is_no_share),
        CASE(what_is_beyond_all_shares_is_not_found),
        CASE(a_large_share_asks_for_huge_pages),
        CASE(a_set_of_shares_begins_empty_whatever_lay_there),
        CASE(numbers_do_not_begin_anew),
        CASE(the_last_quarter_of_the_descriptors_is_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
