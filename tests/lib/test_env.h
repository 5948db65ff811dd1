/* A real environment for one test case, checked for leaks at its end. */
#ifndef MUSTER_TEST_ENV_H
#define MUSTER_TEST_ENV_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <muster/env.h>

/** Seeded random numbers, the system's loop, variables, files and host, counted memory; no net,
 * http or sinks: a case sets those it needs and closes them before test_env_close. */
struct test_env {
    struct muster_env env;
    struct muster_mem_limited mem;
    struct muster_rng_seeded rng;
};

/** Fails the case when the environment cannot be opened. */
void test_env_open(struct test_env *test);

/** Fails the case when a block was not freed, or, with the last one that is open, a JSON value. */
void test_env_close(struct test_env *test);

/** For cmocka_unit_test_setup_teardown: each case has an environment of its own, `*state`. */
int test_env_set_up(void **state);
int test_env_tear_down(void **state);
struct muster_env *test_env_of(void **state);

/** Define a function for cmocka_unit_test_setup_teardown that does `act`, an expression that may use *state. */
#define TEST_SET_UP(name, act)                                                                     \
    static int name(void **state)                                                                  \
    {                                                                                              \
        (void)state;                                                                               \
        act;                                                                                       \
        return 0;                                                                                  \
    }

/** Turn the loop until is_done(data) holds; after 60 s the case fails. */
void test_env_run_until(struct muster_env *env, bool (*is_done)(void *data), void *data);

/** Turn the loop `count` times without waiting. */
void test_env_turn(struct muster_env *env, unsigned count);

/** For is_done: *data is a bool. */
bool test_env_is_true(void *data);

#endif
