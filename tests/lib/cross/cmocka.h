/* As much of cmocka as tests of pure functions need, for processors whose cmocka is not installed
 * (integration.kernels_neon): a failure ends the program. */
#ifndef MUSTER_CROSS_CMOCKA_H
#define MUSTER_CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define fail_msg(...)                                                                              \
    do {                                                                                           \
        printf("%s:%d: ", __FILE__, __LINE__);                                                     \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        exit(1);                                                                                   \
    } while (0)
#define assert_true(is)                  ((is) ? (void)0 : cross_fail(#is, __FILE__, __LINE__))
#define assert_false(is)                 assert_true(!(is))
#define assert_null(pointer)             assert_true((pointer) == NULL)
#define assert_non_null(pointer)         assert_true((pointer) != NULL)
#define assert_int_equal(a, b)           assert_true((a) == (b))
#define assert_int_not_equal(a, b)       assert_true((a) != (b))
#define assert_ptr_equal(a, b)           assert_true((a) == (b))
#define assert_string_equal(a, b)        assert_true(strcmp((a), (b)) == 0)
#define assert_memory_equal(a, b, bytes) assert_true(memcmp((a), (b), (bytes)) == 0)

/* assertion_count.h declares it; nothing counts here. */
__attribute__((weak)) _Atomic size_t assertion_count;

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(run)                                                                      \
    {                                                                                              \
#run, run                                                                                  \
    }
#define cmocka_run_group_tests(tests, set_up, tear_down)                                           \
    cross_run(tests, sizeof(tests) / sizeof((tests)[0]))

static inline void cross_fail(const char *what, const char *file, int line)
{
    printf("%s:%d: not so: %s\n", file, line, what);
    exit(1);
}

static inline int cross_run(const struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *state = NULL;

        tests[i].run(&state);
        printf("ok %s\n", tests[i].name);
    }
    return 0;
}

#endif
