/* Pipes between the parent and the ranks of a benchmark, which hand over what they like. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

static ssize_t play_read(int fd, void *bytes, size_t count);
static ssize_t play_write(int fd, const void *bytes, size_t count);
#define read(fd, bytes, count)  play_read(fd, bytes, count)
#define write(fd, bytes, count) play_write(fd, bytes, count)
#include "tools/bench/allreduce_pipe.c"
#undef read
#undef write

#include "test_env.h"

#define BYTES 7

/* Answers of read and write in turn: a number of bytes, or an errno below 0. */
static const int *answers;
static uint8_t moved[2 * BYTES];
static size_t moved_count;

static ssize_t next_answer(size_t count)
{
    int answer = *answers++;

    if (answer >= 0)
        return answer < (int)count ? answer : (ssize_t)count;
    errno = -answer;
    return -1;
}

static ssize_t play_read(int fd, void *bytes, size_t count)
{
    ssize_t done = next_answer(count);

    (void)fd;
    for (ssize_t i = 0; i < done; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)++moved_count;
    return done;
}

static ssize_t play_write(int fd, const void *bytes, size_t count)
{
    ssize_t done = next_answer(count);

    (void)fd;
    if (done > 0) {
        assert_true(moved_count + (size_t)done <= sizeof(moved));
        memcpy(moved + moved_count, bytes, (size_t)done);
        moved_count += (size_t)done;
    }
    return done;
}

static const struct {
    const char *name;
    int answers[8];
    bool is_whole;
} rows[] = {
    {"at once", {99}, true},
    {"in pieces", {1, 2, 99}, true},
    {"interrupted", {-EINTR, 3, -EINTR, -EINTR, 99}, true},
    {"the other side is gone", {3, -EPIPE}, false},
    {"the end", {3, 0, 99}, false},
};

static void a_message_is_put_together(void **state)
{
    static const uint8_t expected[BYTES] = {1, 2, 3, 4, 5, 6, 7};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t bytes[BYTES] = {0};

        print_message("%s\n", rows[i].name);
        answers = rows[i].answers;
        moved_count = 0;
        errno = 0;
        assert_int_equal(bench_read_all(0, bytes, BYTES), rows[i].is_whole);
        if (rows[i].is_whole)
            assert_memory_equal(bytes, expected, BYTES);
        answers = rows[i].answers;
        moved_count = 0;
        errno = 0;
        assert_int_equal(bench_write_all(1, expected, BYTES), rows[i].is_whole);
        assert_memory_equal(moved, expected, moved_count);
        assert_int_equal(moved_count == BYTES, rows[i].is_whole);
    }
}

static void sizes_are_repeated_by_their_bytes(void **state)
{
    static const struct {
        uint64_t asked, bytes, count;
    } given[] = {
        {0, 4, 1000},
        {0, (2 << 20) - 1, 1000},
        {0, (UINT64_C(1) << 24) - 1, 128},
        {0, UINT64_C(1) << 30, 10},
        {0, UINT64_C(1) << 40, 10},
        {1, 4, 1},
        {7, UINT64_C(1) << 40, 7},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        const struct bench_settings settings = {.iterations = given[i].asked};

        assert_int_equal(bench_iterations(&settings, given[i].bytes), given[i].count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_put_together),
        cmocka_unit_test(sizes_are_repeated_by_their_bytes),
    };

    return cmocka_run_group_tests_name("allreduce_pipe", tests, NULL, NULL);
}
