/* Random numbers: known sequence, bounds, jitter, bytes. */
#include "test_env.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Words that a case has chosen. */
struct word_rng {
    struct muster_rng rng;
    const uint64_t *words;
    size_t count; /* drawn */
};

static uint64_t word_next(struct muster_rng *rng)
{
    struct word_rng *ours = (struct word_rng *)rng;

    return ours->words[ours->count++];
}

static struct word_rng words_open(const uint64_t *words)
{
    static const struct muster_rng_ops ops = {.next = word_next};

    return (struct word_rng){.rng = {.ops = &ops}, .words = words};
}

static void the_seeded_sequence_is_the_same_everywhere(void **state)
{
    /* xoshiro256** of the state {1, 2, 3, 4}: the authors' code */
    static const uint64_t expected[] = {
        11520,
        0,
        1509978240,
        UINT64_C(1215971899390074240),
        UINT64_C(1216172134540287360),
        UINT64_C(607988272756665600),
        UINT64_C(16172922978634559625),
        UINT64_C(8476171486693032832),
        UINT64_C(10595114339597558777),
        UINT64_C(2904607092377533576),
    };
    struct muster_rng_seeded rng;

    (void)state;
    muster_rng_seeded_init(&rng, 0);
    for (size_t i = 0; i < 4; i++)
        rng.state[i] = i + 1;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        assert_int_equal(muster_rng_next(&rng.rng), expected[i]);
}

static void the_seed_is_spread_by_splitmix(void **state)
{
    static const uint64_t expected[] = {UINT64_C(0xe220a8397b1dcdaf), UINT64_C(0x6e789e6aa1b965f4),
                                        UINT64_C(0x06c45d188009454f), UINT64_C(0xf88bb8a8724c81ec)};
    struct muster_rng_seeded rng;

    (void)state;
    muster_rng_seeded_init(&rng, 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(rng.state[i], expected[i]);
}

static void below_scales_a_word_and_draws_again_where_it_would_be_uneven(void **state)
{
    const uint64_t third = UINT64_C(0xAAAAAAAAAAAAAAAB); /* times 3: 2 and 1 / 2^64 */
    const struct {
        uint64_t bound, words[3], expected;
        size_t drawn;
    } rows[] = {
        {1, {0}, 0, 1},
        {1, {UINT64_MAX}, 0, 1},
        {2, {UINT64_MAX / 2}, 0, 1},
        {2, {UINT64_MAX / 2 + 1}, 1, 1},
        {4, {0}, 0, 1}, /* a power of two is even */
        {3, {third}, 2, 1},
        {3, {0, UINT64_C(1) << 63}, 1, 2}, /* one of the 2^64 is too many */
        {3, {0, 0, UINT64_MAX}, 2, 3},
        {UINT64_MAX, {0, 1}, 0, 2},
        {UINT64_MAX, {UINT64_MAX}, UINT64_MAX - 1, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct word_rng rng = words_open(rows[i].words);

        assert_int_equal(muster_rng_below(&rng.rng, rows[i].bound), rows[i].expected);
        assert_int_equal(rng.count, rows[i].drawn);
    }
}

static void below_stays_below_and_reaches_every_value(void **state)
{
    struct muster_rng_seeded rng;
    unsigned seen[7] = {0};

    (void)state;
    muster_rng_seeded_init(&rng, 3);
    for (size_t i = 0; i < 7000; i++) {
        uint64_t value = muster_rng_below(&rng.rng, 7);

        assert_true(value < 7);
        seen[value]++;
    }
    for (size_t i = 0; i < 7; i++)
        assert_in_range(seen[i], 850, 1150);
}

static void jitter_stays_within_its_permille(void **state)
{
    static const struct {
        uint64_t value;
        uint32_t permille;
        uint64_t word, expected;
    } rows[] = {
        {1000, 100, 0, 900},
        {1000, 100, UINT64_MAX, 1100},
        {1000, 100, UINT64_C(1) << 63, 1000},
        {1000, 1000, 0, 0},
        {1000, 1001, 0, 0}, /* as 1000 */
        {1000, UINT32_MAX, UINT64_MAX, 2000},
        {1000, 999, 0, 1},
        {UINT64_MAX, 10, 0, UINT64_MAX - UINT64_MAX / 100},
        {UINT64_MAX, 10, UINT64_MAX, UINT64_MAX},
        {UINT64_MAX, 1000, 0, 0},
    };
    static const uint64_t none[] = {UINT64_MAX};
    struct word_rng rng = words_open(none);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rng = words_open(&rows[i].word);
        assert_int_equal(muster_rng_jitter(&rng.rng, rows[i].value, rows[i].permille),
                         rows[i].expected);
        assert_int_equal(rng.count, 1);
    }
    rng = words_open(none);
    assert_int_equal(muster_rng_jitter(&rng.rng, 1000, 0), 1000);
    assert_int_equal(muster_rng_jitter(&rng.rng, 9, 100), 9); /* less than one */
    assert_int_equal(rng.count, 0);
    assert_int_equal(muster_rng_jitter(&rng.rng, 10, 100), 11);
}

static void fill_writes_every_byte_and_no_more(void **state)
{
    static const uint64_t words[] = {UINT64_C(0x0807060504030201), UINT64_C(0x100f0e0d0c0b0a09),
                                     UINT64_C(0x1817161514131211)};

    (void)state;
    for (size_t count = 0; count <= 17; count++) {
        struct word_rng rng = words_open(words);
        uint8_t bytes[20] = {0};

        muster_rng_fill(&rng.rng, bytes, count);
        assert_int_equal(rng.count, (count + 7) / 8);
        for (size_t i = 0; i < sizeof(bytes); i++)
            assert_int_equal(bytes[i], i < count ? i + 1 : 0);
    }
}

/* --- The kernel's --- */

static int failures[3]; /* errno of the next calls; 0: it works */
static size_t call_count;

ssize_t getrandom(void *bytes, size_t count, unsigned flags)
{
    int failure = call_count < 3 ? failures[call_count] : 0;

    call_count++;
    assert_int_equal(count, 8);
    assert_int_equal(flags, 0);
    if (failure != 0) {
        errno = failure;
        return failure > 0 ? -1 : 4; /* or half of it */
    }
    return (ssize_t)syscall(SYS_getrandom, bytes, count, flags);
}

static void play_failures(int first, int second)
{
    failures[0] = first;
    failures[1] = second;
    call_count = 0;
}

static void the_kernels_words_differ(void **state)
{
    uint64_t word;

    (void)state;
    play_failures(0, 0);
    word = muster_rng_next(muster_rng_system());
    assert_int_not_equal(word, 0);
    assert_int_not_equal(word, muster_rng_next(muster_rng_system()));
    assert_int_equal(call_count, 2);
    play_failures(EINTR, EINTR);
    assert_int_not_equal(muster_rng_next(muster_rng_system()), 0);
    assert_int_equal(call_count, 3);
}

/* Identities would collide. */
static void without_random_numbers_the_process_ends(void **state)
{
    static const int rows[] = {ENOSYS, -1};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        pid_t pid = fork();
        int status = 0;

        if (pid == 0) {
            prctl(PR_SET_DUMPABLE, 0); /* no core */
            signal(SIGABRT, SIG_DFL);
            play_failures(rows[i], 0);
            (void)muster_rng_next(muster_rng_system());
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_seeded_sequence_is_the_same_everywhere),
        cmocka_unit_test(the_seed_is_spread_by_splitmix),
        cmocka_unit_test(below_scales_a_word_and_draws_again_where_it_would_be_uneven),
        cmocka_unit_test(below_stays_below_and_reaches_every_value),
        cmocka_unit_test(jitter_stays_within_its_permille),
        cmocka_unit_test(fill_writes_every_byte_and_no_more),
        cmocka_unit_test(the_kernels_words_differ),
        cmocka_unit_test(without_random_numbers_the_process_ends),
    };

    return cmocka_run_group_tests_name("rng", cases, NULL, NULL);
}
