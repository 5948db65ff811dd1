/* A process is killed after each single instruction of its work on a region, and the next one goes
 * on in the same memory: nothing is lost, nothing is applied twice. The instructions are those of
 * the compiled code: a child works, and is traced step by step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define PAGE         4096u
#define PAGES        (REGION_BYTES / PAGE)
#define SHARDS       2u
#define STEPS_MAX    4000000u

typedef void work_fn(struct region_stand *stand);

/* The pages that the work may change, as they were before it, and as they were at the last look. */
struct watch {
    uint32_t pages[PAGES];
    uint32_t count;
    uint8_t *start; /* the region before the work */
    uint8_t *seen;  /* count x PAGE */
};

static struct muster_params_digest digest_of(const struct region_stand *stand)
{
    struct muster_params_digest all = {{0, 0}};

    for (uint32_t i = 0; i < stand->region.head->table_count; i++) {
        struct muster_params_digest digest =
            muster_params_table_digest(&stand->region, &stand->region.head->tables[i]);

        all.sums[0] += digest.sums[0];
        all.sums[1] ^= digest.sums[1];
    }
    return all;
}

static void count_row(void *data, const struct muster_params_store_table *table,
                      const struct muster_params_row *row)
{
    uint64_t *left = data;

    (void)table;
    assert_int_equal(row->version % 2, 0);
    (*left)--;
}

/* Every row is found by its key, every count is right. */
static void check_structure(struct region_stand *stand)
{
    const struct muster_params_region *region = &stand->region;

    assert_int_equal(region->head->segments[0].pages[0].next, 0); /* page 0 is none */
    for (uint32_t t = 0; t < region->head->table_count; t++) {
        const struct muster_params_store_table *table = &region->head->tables[t];
        uint64_t sum = 0;

        for (uint32_t i = 0; i < SHARDS; i++) {
            uint64_t left = muster_params_shard_at(region, table, i)->row_count;

            sum += left;
            muster_params_rows_visit(region, table, i, count_row, &left);
            assert_int_equal(left, 0);
        }
        assert_int_equal(sum, table->row_count);
    }
}

/* The work is run to its end twice, since a second run may touch other pages than the first. */
static void watch_open(struct watch *watch, struct region_stand *stand, work_fn *work)
{
    struct region_stand rehearsal;

    memset(watch, 0, sizeof(*watch));
    watch->start = test_malloc(REGION_BYTES);
    memcpy(watch->start, stand->memory, REGION_BYTES);
    region_stand_open(&rehearsal, REGION_BYTES, SHARDS);
    memcpy(rehearsal.memory, stand->memory, REGION_BYTES);
    region_stand_recover(&rehearsal);
    work(&rehearsal);
    work(&rehearsal);
    for (uint32_t i = 0; i < PAGES; i++) {
        if (memcmp(rehearsal.memory + i * PAGE, stand->memory + i * PAGE, PAGE) != 0)
            watch->pages[watch->count++] = i;
    }
    region_stand_close(&rehearsal);
    watch->seen = test_malloc(watch->count * PAGE);
    for (uint32_t i = 0; i < watch->count; i++)
        memcpy(watch->seen + i * PAGE, stand->memory + watch->pages[i] * PAGE, PAGE);
}

static void watch_close(struct watch *watch)
{
    test_free(watch->start);
    test_free(watch->seen);
}

static bool watch_has_changed(struct watch *watch, const struct region_stand *stand)
{
    bool has_changed = false;

    for (uint32_t i = 0; i < watch->count; i++) {
        uint8_t *seen = watch->seen + i * PAGE;
        const uint8_t *now = stand->memory + watch->pages[i] * PAGE;

        if (memcmp(seen, now, PAGE) == 0)
            continue;
        memcpy(seen, now, PAGE);
        has_changed = true;
    }
    return has_changed;
}

/* The next process of the seat, in a copy of the memory as the killed one has left it. */
static void successor_check(struct region_stand *successor, const struct watch *watch,
                            work_fn *work, const struct muster_params_digest *expected)
{
    struct muster_params_digest digest;

    for (uint32_t i = 0; i < watch->count; i++)
        memcpy(successor->memory + watch->pages[i] * PAGE, watch->seen + i * PAGE, PAGE);
    region_stand_recover(successor);
    check_structure(successor);
    work(successor); /* the sources send again what was not answered: all of it */
    digest = digest_of(successor);
    assert_memory_equal(&digest, expected, sizeof(digest));
    check_structure(successor);
}

/* False: this system does not let a process be traced. */
static bool child_start(struct region_stand *stand, work_fn *work, pid_t *ret_child)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(3);
        raise(SIGSTOP);
        work(stand);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    *ret_child = child;
    return WIFSTOPPED(status);
}

/* Returns how many different states the memory has been in. */
static uint32_t kill_everywhere(struct region_stand *stand, work_fn *work)
{
    struct region_stand successor;
    struct muster_params_digest expected;
    struct watch watch;
    uint32_t states = 0, steps = 0;
    int status = 0;
    pid_t child;

    watch_open(&watch, stand, work);
    region_stand_open(&successor, REGION_BYTES, SHARDS);
    memcpy(successor.memory, watch.start, REGION_BYTES);
    region_stand_recover(&successor);
    work(&successor);
    expected = digest_of(&successor);
    if (!child_start(stand, work, &child))
        skip();
    for (; steps < STEPS_MAX; steps++) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status))
            break;
        if (watch_has_changed(&watch, stand)) {
            states++;
            successor_check(&successor, &watch, work, &expected);
        }
    }
    print_message("%u instructions, %u states, %u pages\n", steps, states, watch.count);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    region_stand_close(&successor);
    watch_close(&watch);
    return states;
}

/* --- The works --- */

/* Two sources, rows that are new, known, and pushed to twice in one frame. */
static void push_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("items", 5, MUSTER_PARAMS_MOMENTUM);
    struct muster_params_store_table *table = region_table(stand, &schema);
    static const uint64_t keys[] = {11, 12, 13, 11};
    float values[4 * 5];

    for (uint32_t i = 0; i < 4 * 5; i++)
        values[i] = (float)i + 1;
    for (uint8_t number = 0; number < 2; number++) {
        struct muster_params_source *source = region_source(stand, number);

        region_push(stand, table, source, 1, keys, values, 4, NULL);
        region_push(stand, table, source, 2, keys + 1, values, 2, NULL);
    }
    /* Both sources are at the same position now, and push to different rows in turn. */
    for (uint64_t i = 0; i < 4; i++)
        region_push(stand, table, region_source(stand, i % 2), 3 + i / 2, keys + i % 2, values, 1,
                    NULL);
}

static void a_push_is_whole_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    uint32_t states;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    states = kill_everywhere(&stand, push_work);
    assert_true(states > 300);
    region_stand_close(&stand);
}

#define FULL ((1u << 16) - 2) /* rows that the first index takes before a larger one is begun */

static void fill_table(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("counters", 1, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 9);
    uint64_t keys[64];
    float ones[64];

    for (uint32_t i = 0; i < 64; i++)
        ones[i] = 1;
    for (uint64_t from = 0; from < FULL; from += 64) {
        uint32_t count = FULL - from < 64 ? (uint32_t)(FULL - from) : 64;

        for (uint32_t i = 0; i < count; i++)
            keys[i] = from + i;
        region_push(stand, table, source, from / 64 + 1, keys, ones, count, NULL);
    }
}

/* Begins a larger index, and moves some slots to it. */
static void grow_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("counters", 1, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 1);
    static const uint64_t keys[] = {1000001, 1000002, 1000003, 5};
    static const float values[] = {1, 2, 3, 4};

    region_push(stand, table, source, 1, keys, values, 4, NULL);
}

static void an_index_grows_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    uint32_t states;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    fill_table(&stand);
    states = kill_everywhere(&stand, grow_work);
    assert_true(states > 80);
    region_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_is_whole_wherever_the_process_is_killed),
        cmocka_unit_test(an_index_grows_wherever_the_process_is_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
