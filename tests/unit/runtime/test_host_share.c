/* Memory that only its owner can write, and the list of it. */
#include "runtime/host_share.h"
#include "test_env.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct heard {
    unsigned new_count, free_count;
    uint32_t number;
};

static void on_new(void *data, const struct muster_share *share)
{
    struct heard *heard = data;

    heard->new_count++;
    heard->number = share->number;
}

static void on_free(void *data, const struct muster_share *share)
{
    struct heard *heard = data;

    heard->free_count++;
    heard->number = share->number;
}

static void others_read_what_the_owner_writes_and_cannot_write(void **state)
{
    struct muster_shared_memory shared;
    uint8_t *view = NULL;
    (void)state;

    assert_int_equal(muster_shared_memory_open("test", 5000, &shared), MUSTER_OK);
    assert_int_equal(shared.bytes % 4096, 0);
    shared.memory[4999] = 7;

    view = mmap(NULL, shared.bytes, PROT_READ, MAP_SHARED, shared.fd, 0);
    assert_true(view != MAP_FAILED);
    assert_int_equal(view[4999], 7);
    assert_true(mmap(NULL, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd, 0) ==
                MAP_FAILED);
    assert_int_equal(errno, EPERM);
    assert_int_equal(mprotect(view, shared.bytes, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(pwrite(shared.fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(shared.fd, 0), -1);
    assert_int_equal(ftruncate(shared.fd, 1 << 20), -1);
    assert_int_equal(munmap(view, shared.bytes), 0);
    muster_shared_memory_close(&shared);
    muster_shared_memory_close(&shared);
}

static void large_memory_can_be_mapped_in_huge_pages(void **state)
{
    const size_t huge = (size_t)2 << 20;
    struct muster_shared_memory shared;
    uint8_t *view;
    (void)state;

    assert_int_equal(muster_shared_memory_open("test", 2 * huge + 5000, &shared), MUSTER_OK);
    view = muster_shared_memory_map(shared.fd, shared.bytes, PROT_READ);
    assert_non_null(view);
    assert_int_equal((uintptr_t)shared.memory % huge, 0);
    assert_int_equal((uintptr_t)view % huge, 0);

    shared.memory[2 * huge + 4999] = 7;
    muster_shared_memory_commit(&shared); /* whether the kernel makes huge pages is its business */
    shared.memory[huge] = 5;
    assert_int_equal(view[huge], 5);
    assert_int_equal(view[2 * huge + 4999], 7);

    assert_int_equal(munmap(view, shared.bytes), 0);
    muster_shared_memory_close(&shared);
}

static void a_size_that_no_process_has_is_refused(void **state)
{
    struct muster_shared_memory shared;
    (void)state;

    assert_int_equal(muster_shared_memory_open("test", SIZE_MAX - 1, &shared),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_shared_memory_open("test", (size_t)1 << 60, &shared),
                     MUSTER_RESOURCE_EXHAUSTED);
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
    struct test_env test;
    struct heard heard = {.number = 0};
    struct muster_share_listener listener = {.data = &heard, .on_new = on_new, .on_free = on_free};
    struct muster_shares *shares = NULL;
    struct muster_share *first = NULL, *second = NULL;
    (void)state;

    test_env_open(&test);
    shares = muster_host_shares(test.env.host);
    muster_shares_listen(shares, &listener);

    assert_int_equal(muster_share_new(shares, 1, &first), MUSTER_OK);
    assert_int_equal(heard.number, 1);
    muster_share_free(shares, first);
    assert_int_equal(heard.number, 1);
    assert_int_equal(muster_share_new(shares, 1, &second), MUSTER_OK);
    assert_int_equal(heard.number, 2);
    muster_share_listener_stop(&listener);
    muster_share_free(shares, second);

    assert_int_equal(heard.new_count, 2);
    assert_int_equal(heard.free_count, 1);
    test_env_close(&test);
}

static void without_memory_there_is_no_share(void **state)
{
    struct test_env test;
    struct muster_share *share = NULL;
    (void)state;

    test_env_open(&test);
    for (uint64_t at = 1; at <= 2; at++) {
        test.mem.fail_at = at;
        assert_int_equal(muster_share_new(muster_host_shares(test.env.host), 1, &share),
                         MUSTER_RESOURCE_EXHAUSTED);
    }
    test.mem.fail_at = 0;
    test_env_close(&test);
}

static void the_last_quarter_of_the_descriptors_is_left_to_others(void **state)
{
    struct test_env test;
    struct rlimit before, low;
    struct muster_share *share = NULL;
    enum muster_rc rc = MUSTER_OK;
    unsigned made = 0;
    (void)state;

    test_env_open(&test);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (; rc == MUSTER_OK && made < 64; made++)
        rc = muster_share_new(muster_host_shares(test.env.host), 1, &share);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);

    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_true(made > 1 && made <= 48);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_read_what_the_owner_writes_and_cannot_write),
        cmocka_unit_test(large_memory_can_be_mapped_in_huge_pages),
        cmocka_unit_test(a_size_that_no_process_has_is_refused),
        cmocka_unit_test(a_range_is_found_when_all_of_it_is_in_one_share),
        cmocka_unit_test(listeners_hear_of_every_share_and_numbers_are_new),
        cmocka_unit_test(without_memory_there_is_no_share),
        cmocka_unit_test(the_last_quarter_of_the_descriptors_is_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
