/* The runner of cmocka, which here fails a case that returns without an assertion. */
#include "assertion_count.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

_Atomic size_t assertion_count;

/* clang 14's thread sanitizer does not see that pthread_mutex_clocklock takes the lock of a seat of parameters. */
const char *__tsan_default_suppressions(void);

__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "mutex:muster_params_seat_free\nmutex:muster_params_seat_take\n";
}

static const struct CMUnitTest *group; /* the cases as the program has given them */
static size_t next_case;               /* cmocka runs them in their order */

/* The functions below stand before those of cmocka. */
#define COUNTED(name, parameters, arguments)                                                       \
    void __real_##name parameters;                                                                 \
    void __wrap_##name parameters;                                                                 \
    void __wrap_##name parameters                                                                  \
    {                                                                                              \
        assertion_count++;                                                                         \
        __real_##name arguments;                                                                   \
    }
#define NUMBER LargestIntegralType
#define PLACE  const char *const file, const int line

COUNTED(_assert_true, (const NUMBER result, const char *const text, PLACE),
        (result, text, file, line))
COUNTED(_assert_int_equal, (const NUMBER a, const NUMBER b, PLACE), (a, b, file, line))
COUNTED(_assert_int_not_equal, (const NUMBER a, const NUMBER b, PLACE), (a, b, file, line))
COUNTED(_assert_string_equal, (const char *const a, const char *const b, PLACE), (a, b, file, line))
COUNTED(_assert_string_not_equal, (const char *const a, const char *const b, PLACE),
        (a, b, file, line))
COUNTED(_assert_memory_equal, (const void *const a, const void *const b, const size_t size, PLACE),
        (a, b, size, file, line))
COUNTED(_assert_memory_not_equal,
        (const void *const a, const void *const b, const size_t size, PLACE),
        (a, b, size, file, line))
COUNTED(_assert_in_range, (const NUMBER value, const NUMBER low, const NUMBER high, PLACE),
        (value, low, high, file, line))
COUNTED(_assert_not_in_range, (const NUMBER value, const NUMBER low, const NUMBER high, PLACE),
        (value, low, high, file, line))
COUNTED(_assert_float_equal, (const float a, const float b, const float epsilon, PLACE),
        (a, b, epsilon, file, line))
COUNTED(_assert_float_not_equal, (const float a, const float b, const float epsilon, PLACE),
        (a, b, epsilon, file, line))

static int case_begin(void **state)
{
    const struct CMUnitTest *test = &group[next_case++];

    assertion_count = 0;
    return test->setup_func != NULL ? test->setup_func(state) : 0;
}

static void case_run(void **state)
{
    assertion_count = 0;
    group[next_case - 1].test_func(state);
    if (assertion_count == 0)
        fail_msg("%s passes without an assertion", group[next_case - 1].name);
}

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    struct CMUnitTest *counted = calloc(count, sizeof(*counted));
    int failed;

    if (counted == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        counted[i] = tests[i];
        counted[i].setup_func = case_begin;
        counted[i].test_func = case_run;
    }
    group = tests;
    next_case = 0;
    failed = __real__cmocka_run_group_tests(name, counted, count, setup, teardown);
    free(counted);
    return failed;
}

void skip_with_reason(const char *reason)
{
    printf("skipped: %s: %s\n", group[next_case - 1].name, reason);
    fflush(stdout);
    skip();
    abort();
}
