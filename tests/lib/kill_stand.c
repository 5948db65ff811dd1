#include "kill_stand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE      4096u
#define STEPS_MAX 8000000u
/* Single steps are slow: of the recoveries that go on with one kind of change the first is killed, and
 * one of so many. */
#define RECOVERIES_PER_KILL 64u

/* The pages that the work may change, as they were before it, and as they were at the last look. */
struct watch {
    uint32_t *pages;
    uint32_t count;
    uint8_t *seen; /* count x PAGE */
};

struct outcome {
    struct muster_params_digest digest;
    uint64_t bytes_used;
};

struct scene {
    kill_work_fn *work;
    struct watch watch;
    struct outcome expected;
    struct region_stand recovering; /* its recovery is killed */
    struct region_stand successor;
    struct kill_counts counts;
    uint64_t steps;
    uint32_t recoveries[MUSTER_PARAMS_INTENT_COUNT]; /* by the change that is under way */
};

/* --- Checks --- */

struct visit {
    const struct muster_params_region *region;
    uint64_t left;
};

static void check_row(void *data, const struct muster_params_store_table *table,
                      const struct muster_params_row *row)
{
    struct visit *visit = data;
    uint64_t hash = muster_params_hash(table->seed, row->key);

    if (row->version % 2 != 0 ||
        muster_params_index_find(visit->region, table, hash, row->key) != row)
        fail_msg("row %llu of version %u", (unsigned long long)row->key, row->version);
    visit->left--;
}

/* Every row that a page counts has a key, or is in the list of the free ones of its shard. */
static void check_free_rows(const struct muster_params_region *region,
                            const struct muster_params_store_table *table, uint32_t number)
{
    const struct muster_params_shard *shard = muster_params_shard_at(region, table, number);
    uint64_t used = 0, free_rows = 0;

    for (uint32_t page = shard->first_page, next; page != 0; page = next) {
        const struct muster_params_page *head =
            &region->head->segments[page / MUSTER_PARAMS_SEGMENT_PAGES]
                 .pages[page % MUSTER_PARAMS_SEGMENT_PAGES];

        used += head->used;
        next = head->next;
    }
    for (uint32_t at = shard->free_row; at != 0; free_rows++) {
        const struct muster_params_row *row = muster_params_row_of(region, at);

        assert_int_equal(row->version % 2, 1);
        assert_true(free_rows < used);
        at = row->clock;
    }
    assert_int_equal(used, shard->row_count + free_rows);
}

static void check_structure(const struct region_stand *stand)
{
    const struct muster_params_region *region = &stand->region;
    struct muster_params_region again;
    struct muster_error error;

    assert_int_equal(region->head->segments[0].pages[0].next, 0); /* page 0 is none */
    for (uint32_t t = 0; t < region->head->table_count; t++) {
        const struct muster_params_store_table *table = &region->head->tables[t];
        uint64_t sum = 0;

        for (uint32_t i = 0; i < region->head->shard_count; i++) {
            struct visit visit = {region, muster_params_shard_at(region, table, i)->row_count};

            sum += visit.left;
            muster_params_rows_visit(region, table, i, check_row, &visit);
            assert_int_equal(visit.left, 0);
            check_free_rows(region, table, i);
        }
        assert_int_equal(sum, table->row_count);
        assert_int_equal(table->removal_count % 2, 0);
    }
    assert_int_equal(
        muster_params_region_attach(&again, stand->memory, stand->bytes, &stand->options, &error),
        MUSTER_OK);
    assert_int_equal(again.segments_used, region->segments_used);
    assert_int_equal(again.segments_freed, region->segments_freed);
}

static struct outcome outcome_of(const struct region_stand *stand)
{
    struct outcome outcome = {.bytes_used = muster_params_region_bytes_used(&stand->region)};

    for (uint32_t i = 0; i < stand->region.head->table_count; i++) {
        struct muster_params_digest digest =
            muster_params_table_digest(&stand->region, &stand->region.head->tables[i]);

        outcome.digest.sums[0] += digest.sums[0];
        outcome.digest.sums[1] ^= digest.sums[1];
    }
    return outcome;
}

/* --- Looks at the memory --- */

/* Pages that the rehearsal has written to, also those that look at its end as they did before. */
static struct {
    uint8_t *memory;
    bool *is_written;
} rehearsed;

static void on_write(int number, siginfo_t *info, void *context)
{
    size_t page = (size_t)((uint8_t *)info->si_addr - rehearsed.memory) / PAGE;

    (void)number;
    (void)context;
    rehearsed.is_written[page] = true;
    if (mprotect(rehearsed.memory + page * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(1);
}

/* The work is run to its end twice, since a second run may touch other pages than the first. */
static void watch_open(struct watch *watch, const struct region_stand *stand, kill_work_fn *work)
{
    struct sigaction action = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO}, before;
    uint32_t pages = (uint32_t)(stand->bytes / PAGE);
    struct region_stand rehearsal;

    watch->count = 0;
    watch->pages = test_malloc(pages * sizeof(watch->pages[0]));
    region_stand_open(&rehearsal, stand->bytes, stand->options.shard_count);
    memcpy(rehearsal.memory, stand->memory, stand->bytes);
    rehearsed.memory = rehearsal.memory;
    rehearsed.is_written = test_calloc(pages, sizeof(rehearsed.is_written[0]));
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    assert_int_equal(mprotect(rehearsal.memory, rehearsal.bytes, PROT_READ), 0);
    region_stand_recover(&rehearsal);
    work(&rehearsal);
    work(&rehearsal);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    for (uint32_t i = 0; i < pages; i++) {
        if (rehearsed.is_written[i])
            watch->pages[watch->count++] = i;
    }
    test_free(rehearsed.is_written);
    region_stand_close(&rehearsal);
    watch->seen = test_malloc((size_t)watch->count * PAGE);
}

static void watch_close(struct watch *watch)
{
    test_free(watch->pages);
    test_free(watch->seen);
}

static bool watch_look(struct watch *watch, const struct region_stand *stand)
{
    bool has_changed = false;

    for (uint32_t i = 0; i < watch->count; i++) {
        uint8_t *seen = watch->seen + (size_t)i * PAGE;
        const uint8_t *now = stand->memory + (size_t)watch->pages[i] * PAGE;

        if (memcmp(seen, now, PAGE) == 0)
            continue;
        memcpy(seen, now, PAGE);
        has_changed = true;
    }
    return has_changed;
}

static void watch_copy(const struct watch *watch, struct region_stand *to)
{
    for (uint32_t i = 0; i < watch->count; i++)
        memcpy(to->memory + (size_t)watch->pages[i] * PAGE, watch->seen + (size_t)i * PAGE, PAGE);
}

/* --- Steps --- */

/* The sanitizer would clear the shadow of the whole stack before a call that does not return: tens of
 * thousands of instructions. */
__attribute__((no_sanitize("address"))) static void child_work(struct region_stand *stand,
                                                               kill_work_fn *work)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(3);
    raise(SIGSTOP);
    work(stand);
    _exit(0);
}

/* Calls on_state after each instruction of work that has changed the memory. False: this system
 * does not let a process be traced. */
static bool child_step(struct region_stand *stand, kill_work_fn *work, struct watch *watch,
                       void (*on_state)(struct scene *scene), struct scene *scene)
{
    pid_t child = fork();
    uint32_t steps = 0;
    int status = 0;

    if (child == 0)
        child_work(stand, work);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status))
        return false;
    for (; steps < STEPS_MAX; steps++) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status))
            break;
        if (watch_look(watch, stand))
            on_state(scene);
    }
    scene->steps += steps;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

/* The next process of the seat, in the memory as the killed one has left it. The sources send again
 * what was not answered: all of it. */
static void check_successor(struct scene *scene)
{
    struct region_stand *successor = &scene->successor;
    struct outcome outcome;

    region_stand_recover(successor);
    check_structure(successor);
    scene->work(successor);
    check_structure(successor);
    outcome = outcome_of(successor);
    assert_memory_equal(&outcome, &scene->expected, sizeof(outcome));
}

static void on_recovery_state(struct scene *scene)
{
    scene->counts.recovery_states++;
    for (uint32_t i = 0; i < scene->watch.count; i++) {
        size_t at = (size_t)scene->watch.pages[i] * PAGE;

        memcpy(scene->successor.memory + at, scene->recovering.memory + at, PAGE);
    }
    check_successor(scene);
}

static bool has_to_mend(const struct muster_params_region *region)
{
    const struct muster_params_region_head *head = region->head;

    return head->intent.kind != MUSTER_PARAMS_INTENT_NONE ||
           (head->undo.position_before != UINT64_MAX &&
            *(const uint64_t *)muster_params_at(region, head->undo.position_at) ==
                head->undo.position_before);
}

/* To clear a segment again takes a hundred thousand instructions. */
static bool has_to_clear(const struct muster_params_region *region)
{
    const struct muster_params_region_head *head = region->head;
    bool takes_segment = head->intent.kind == MUSTER_PARAMS_INTENT_TABLE ||
                         head->intent.kind == MUSTER_PARAMS_INTENT_SEGMENT ||
                         head->intent.kind == MUSTER_PARAMS_INTENT_GROW ||
                         head->intent.kind == MUSTER_PARAMS_INTENT_SOURCES;

    return takes_segment && head->intent.segment < head->segment_end;
}

static bool recovery_is_killed(struct scene *scene)
{
    const struct muster_params_region *region = &scene->recovering.region;
    uint32_t before;

    if (!has_to_mend(region) || has_to_clear(region))
        return false;
    before = scene->recoveries[region->head->intent.kind]++;
    return before % RECOVERIES_PER_KILL == 0;
}

static void on_state(struct scene *scene)
{
    struct watch watch = scene->watch; /* the same pages */

    scene->counts.states++;
    watch_copy(&scene->watch, &scene->successor);
    check_successor(scene);
    watch_copy(&scene->watch, &scene->recovering);
    if (!recovery_is_killed(scene))
        return;
    scene->counts.recoveries++;
    watch.seen = test_malloc((size_t)watch.count * PAGE);
    memcpy(watch.seen, scene->watch.seen, (size_t)watch.count * PAGE);
    assert_true(
        child_step(&scene->recovering, region_stand_recover, &watch, on_recovery_state, scene));
    test_free(watch.seen);
}

static void copy_open(struct region_stand *copy, const struct region_stand *stand)
{
    region_stand_open(copy, stand->bytes, stand->options.shard_count);
    memcpy(copy->memory, stand->memory, stand->bytes);
    region_stand_recover(copy);
}

struct kill_counts kill_everywhere(struct region_stand *stand, kill_work_fn *work)
{
    static struct scene scene;
    struct region_stand undisturbed;

    memset(&scene, 0, sizeof(scene));
    scene.work = work;
    watch_open(&scene.watch, stand, work);
    (void)watch_look(&scene.watch, stand);
    copy_open(&scene.recovering, stand);
    copy_open(&scene.successor, stand);
    copy_open(&undisturbed, stand);
    work(&undisturbed);
    scene.expected = outcome_of(&undisturbed);
    if (!child_step(stand, work, &scene.watch, on_state, &scene))
        skip();
    print_message("%llu instructions, %u states, %u recoveries with %u states, %u pages\n",
                  (unsigned long long)scene.steps, scene.counts.states, scene.counts.recoveries,
                  scene.counts.recovery_states, scene.watch.count);
    region_stand_close(&undisturbed);
    region_stand_close(&scene.successor);
    region_stand_close(&scene.recovering);
    watch_close(&scene.watch);
    return scene.counts;
}
