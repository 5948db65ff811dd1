/* Running a scenario with each of its allocations refused. */
#include "torture.h"

#include "careful_mem.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALLOCATIONS_MAX 200000 /* a scenario that never comes to its end */
#define STEP_SEED       UINT64_C(0x746f7274757265)

void __sanitizer_print_stack_trace(void) __attribute__((weak));
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* The run that is under way, for who reports its failure. */
static struct {
    char name[64]; /* of the scenario; "": none */
    const struct torture *torture;
    bool is_traced;
} current;

static const char *current_mode(char text[24])
{
    text[0] = '\0';
    if (current.torture->is_lasting)
        (void)strcpy(text, ":lasting");
    else if (current.torture->variant > 0)
        (void)snprintf(text, 24, ":%u", current.torture->variant);
    return text;
}

static void current_print(void)
{
    char text[256], mode[24];
    int length;

    if (current.name[0] == '\0')
        return;
    length = snprintf(text, sizeof(text),
                      "torture: %" PRIu64 " refused; alone: MUSTER_TORTURE='%s:%" PRIu64 "%s'\n",
                      current.torture->refused, current.name, current.torture->fail_at,
                      current_mode(mode));
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0)
        return;
}

int torture_tell(void **state)
{
    (void)state;
    current_print();
    return 0;
}

bool torture_is_traced(void)
{
    return current.is_traced;
}

static void on_abort(int number)
{
    current_print();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

bool torture_refuses(struct torture *torture)
{
    bool is_refused;
    uint64_t count;

    if (!torture->is_armed)
        return false;
    count = ++torture->count;
    is_refused = torture->fail_at != 0 &&
                 (torture->is_lasting ? count >= torture->fail_at : count == torture->fail_at);
    torture->refused += is_refused;
    if (is_refused && current.is_traced && __sanitizer_print_stack_trace != NULL)
        __sanitizer_print_stack_trace();
    return is_refused;
}

static void *torture_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    if (bytes == 0) {
        muster_mem_free(careful_mem(), ptr);
        return NULL;
    }
    if (torture_refuses(MUSTER_CONTAINER_OF(mem, struct torture, mem)))
        return NULL;
    return muster_mem_realloc(careful_mem(), ptr, bytes);
}

void torture_arm(struct torture *torture)
{
    torture->is_armed = true;
}

void torture_arm_limited(struct torture *torture, struct muster_mem_limited *mem)
{
    /* Blocks that are there already are freed by what allocated them. */
    assert_true(mem->base == careful_mem() || mem->base == &torture->mem);
    mem->base = &torture->mem;
    torture_arm(torture);
}

void torture_disarm(struct torture *torture)
{
    torture->is_armed = false;
}

/* --- The system's heap --- */

static _Atomic(struct torture *) of_system; /* these two: any thread of the program may allocate */
static _Atomic size_t system_block_count;

static void *system_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    struct torture *torture = of_system;
    void *block;

    (void)mem;
    if (bytes == 0) {
        system_block_count -= ptr != NULL;
        free(ptr);
        return NULL;
    }
    if (torture != NULL && torture->is_of_system && torture_refuses(torture))
        return NULL;
    block = realloc(ptr, bytes);
    system_block_count += block != NULL && ptr == NULL;
    return block;
}

size_t torture_count_system_blocks(void)
{
    static const struct muster_mem_ops ops = {.realloc = system_realloc};

    /* Blocks from before are the same heap's. A later call finds threads that allocate. */
    if (muster_mem_system()->ops != &ops)
        muster_mem_system()->ops = &ops;
    return system_block_count;
}

void torture_arm_system(struct torture *torture)
{
    (void)torture_count_system_blocks();
    of_system = torture;
    torture->is_of_system = true;
    torture_arm(torture);
}

/* --- Libraries --- */

static struct torture *of_libraries;

void torture_arm_library(struct torture *torture)
{
    of_libraries = torture;
    torture->is_of_libraries = true;
    torture_arm(torture);
}

static bool is_library_refused(void)
{
    if (of_libraries == NULL || !of_libraries->is_of_libraries || !torture_refuses(of_libraries))
        return false;
    errno = ENOMEM;
    return true;
}

void *torture_malloc(size_t bytes)
{
    return is_library_refused() ? NULL : malloc(bytes);
}

void *torture_calloc(size_t count, size_t bytes)
{
    return is_library_refused() ? NULL : calloc(count, bytes);
}

void *torture_library_realloc(void *ptr, size_t bytes)
{
    return is_library_refused() ? NULL : realloc(ptr, bytes);
}

void torture_free(void *ptr)
{
    free(ptr);
}

/* --- Runs --- */

struct torture_mode {
    bool is_lasting;
    unsigned variant;
};

/* Returns how many allocations there were while armed, and whether one was refused. */
static uint64_t run_once(const struct torture_scenario *scenario, uint64_t fail_at,
                         const struct torture_mode *mode, bool *ret_refused)
{
    static const struct muster_mem_ops ops = {.realloc = torture_realloc};
    static struct torture torture; /* told of when the case has failed, and the stack is gone */

    torture = (struct torture){.mem.ops = &ops,
                               .fail_at = fail_at,
                               .is_lasting = mode->is_lasting,
                               .variant = mode->variant};
    (void)snprintf(current.name, sizeof(current.name), "%s", scenario->name);
    current.torture = &torture;
    scenario->run(&torture, scenario->data);
    current.name[0] = '\0';
    *ret_refused = torture.refused > 0;
    return torture.count;
}

/* "NAME:37:lasting" of this scenario. */
static bool is_asked_for(const struct torture_scenario *scenario, const char *wish,
                         uint64_t *ret_at, struct torture_mode *ret_mode)
{
    size_t length = strlen(scenario->name);
    char *rest = NULL;

    if (strncmp(wish, scenario->name, length) != 0 || wish[length] != ':')
        return false;
    *ret_at = strtoull(wish + length + 1, &rest, 10);
    ret_mode->is_lasting = strcmp(rest, ":lasting") == 0;
    ret_mode->variant = *rest == ':' ? (unsigned)strtoul(rest + 1, NULL, 10) : 0;
    return true;
}

static uint64_t run_mode(const struct torture_scenario *scenario, uint64_t total,
                         const struct torture_mode *mode)
{
    uint64_t stride = scenario->runs_max == 0 ? 1 : 1 + total / scenario->runs_max;
    struct muster_rng_seeded rng;
    bool is_refused = true;
    uint64_t at = 1, runs = 0;

    muster_rng_seeded_init(&rng, STEP_SEED + mode->is_lasting);
    while (is_refused) {
        (void)run_once(scenario, at, mode, &is_refused);
        at += 1 + (stride > 1 ? muster_rng_below(&rng.rng, 2 * stride - 1) : 0);
        runs++;
        assert_true(at < ALLOCATIONS_MAX);
    }
    return runs;
}

static uint64_t run_modes(const struct torture_scenario *scenario, uint64_t total)
{
    struct torture_mode mode = {.is_lasting = false};
    uint64_t runs = run_mode(scenario, total, &mode);

    while (++mode.variant < scenario->variant_count)
        runs += run_mode(scenario, total, &mode);
    mode = (struct torture_mode){.is_lasting = true};
    return scenario->variant_count > 0 ? runs : runs + run_mode(scenario, total, &mode);
}

/* Returns how many allocations there are to refuse. */
static uint64_t scenario_run(const struct torture_scenario *scenario)
{
    const char *wish = getenv("MUSTER_TORTURE");
    struct torture_mode mode = {.is_lasting = false};
    uint64_t at, total, runs;
    bool is_refused;

    (void)signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(current_print);
    if (wish != NULL) {
        current.is_traced = true;
        if (is_asked_for(scenario, wish, &at, &mode))
            (void)run_once(scenario, at, &mode, &is_refused);
        return 1;
    }
    total = run_once(scenario, 0, &mode, &is_refused);
    runs = total > 0 ? run_modes(scenario, total) : 0;
    print_message("%s: %" PRIu64 " to refuse, %" PRIu64 " runs%s\n", scenario->name, total, runs,
                  scenario->runs_max != 0 && total > scenario->runs_max ? ", by a seeded step"
                                                                        : "");
    return total;
}

void torture_run(const struct torture_scenario *scenario)
{
    assert_true(scenario_run(scenario) > 0);
}

void torture_run_all(const struct torture_scenario *scenarios, size_t count)
{
    for (size_t i = 0; i < count; i++)
        torture_run(&scenarios[i]);
}

void torture_run_rows(torture_fn *run, const void *rows, size_t count, size_t row_bytes)
{
    uint64_t total = 0;

    for (size_t i = 0; i < count; i++) {
        const void *row = (const char *)rows + i * row_bytes;
        const struct torture_scenario scenario = {
            .name = *(const char *const *)row, .run = run, .data = row};

        total += scenario_run(&scenario);
    }
    assert_true(total > 0);
}
