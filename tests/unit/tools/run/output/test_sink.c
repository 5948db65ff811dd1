/* A descriptor that is written without blocking the loop. */
#include "tools/run/output/sink.c"

#include "test_env.h"

#include <fcntl.h>
#include <sys/socket.h>

#define CHUNK_BYTES ((size_t)64 << 10)

static unsigned told, crossings;

void output_tell_lost(const char *what, int fd, int error)
{
    (void)what;
    (void)fd;
    (void)error;
    told++;
}

static void on_level(struct run_sink *sink)
{
    (void)sink;
    crossings++;
}

static int set_up(void **state)
{
    told = crossings = 0;
    return test_env_set_up(state);
}

static void what_can_block_is_written_by_the_loop(void **state)
{
    struct muster_env *env = test_env_of(state);
    int pair[2], ends[2], file = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct {
        const char *name;
        int fd;
        bool is_watched;
    } rows[3];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    rows[0].name = "a pipe", rows[0].fd = ends[1], rows[0].is_watched = true;
    rows[1].name = "a socket", rows[1].fd = pair[0], rows[1].is_watched = true;
    rows[2].name = "a device", rows[2].fd = file, rows[2].is_watched = false;
    for (size_t i = 0; i < 3; i++) {
        struct run_sink sink;

        print_message("%s\n", rows[i].name);
        run_sink_open(&sink, env->loop, rows[i].fd, NULL, NULL);
        assert_int_equal(sink.is_watched, rows[i].is_watched);
        run_sink_write(&sink, "abc", 3);
        assert_true(run_sink_close(&sink));
        close(rows[i].fd);
    }
    close(ends[0]);
    close(pair[1]);
}

/* Bytes that have come out of the pipe, after one turn of the loop. */
static size_t read_some(struct muster_env *env, int fd, size_t read_before)
{
    static unsigned char bytes[CHUNK_BYTES];
    ssize_t count;

    muster_loop_turn(env->loop, 0);
    count = read(fd, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < count; i++)
        assert_int_equal(bytes[i], (unsigned char)((read_before + (size_t)i) / CHUNK_BYTES));
    return count > 0 ? (size_t)count : 0;
}

static void a_reader_that_is_slow_gets_all_and_the_owner_hears_of_it(void **state)
{
    static unsigned char chunk[CHUNK_BYTES];
    struct muster_env *env = test_env_of(state);
    size_t written = 0, got = 0;
    struct run_sink sink;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    run_sink_open(&sink, env->loop, ends[1], on_level, NULL);
    assert_true(sink.is_watched);

    while (!run_sink_is_full(&sink)) {
        memset(chunk, (int)(written / CHUNK_BYTES), sizeof(chunk));
        run_sink_write(&sink, (const char *)chunk, sizeof(chunk));
        written += sizeof(chunk);
    }
    assert_true(written > RUN_SINK_BYTES_MAX && written <= RUN_SINK_BYTES_MAX + 2 * CHUNK_BYTES);
    assert_int_equal(crossings, 1);
    while (got < written)
        got += read_some(env, ends[0], got);
    assert_false(run_sink_is_full(&sink));
    assert_int_equal(crossings, 2);
    assert_true(run_sink_close(&sink));
    assert_int_equal(got, written);
    close(ends[0]);
    close(ends[1]);
}

static void a_broken_sink_is_told_once_and_takes_no_more(void **state)
{
    struct muster_env *env = test_env_of(state);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct run_sink sink;

    run_sink_open(&sink, env->loop, fd, NULL, NULL);
    for (int i = 0; i < 3; i++)
        run_sink_write(&sink, "abc", 3);

    assert_int_equal(told, 1);
    assert_int_equal(sink.error, ENOSPC);
    assert_false(run_sink_close(&sink));
    assert_int_equal(told, 1);
    close(fd);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_can_block_is_written_by_the_loop),
        CASE(a_reader_that_is_slow_gets_all_and_the_owner_hears_of_it),
        CASE(a_broken_sink_is_told_once_and_takes_no_more),
    };

    return cmocka_run_group_tests_name("sink", tests, NULL, NULL);
}
