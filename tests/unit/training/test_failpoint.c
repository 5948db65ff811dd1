/* The failpoint: what MUSTER_KILL accepts, and that the process dies at the chosen chunk and no
 * other. */
#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "training/failpoint.h"

static enum muster_rc init_with(struct muster_failpoint *failpoint, const char *text,
                                struct muster_error *ret_error)
{
    const struct test_var list[] = {{text != NULL ? "MUSTER_KILL" : NULL, text}, {NULL, NULL}};
    struct test_vars vars;
    struct test_env test;
    enum muster_rc rc;

    test_env_open(&test);
    test_vars_init(&vars, list);
    test.env.vars = &vars.vars;
    memset(failpoint, 0x55, sizeof(*failpoint));
    rc = muster_failpoint_init(failpoint, &test.env, ret_error);
    test_env_close(&test);
    return rc;
}

static void a_step_and_a_chunk_are_read_or_refused_by_name(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
        struct muster_failpoint expected;
    } rows[] = {
        {NULL, MUSTER_OK, {.is_armed = false}},
        {"", MUSTER_OK, {.is_armed = false}},
        {"step=0", MUSTER_OK, {.is_armed = true}},
        {"step=9", MUSTER_OK, {.is_armed = true, .step = 9}},
        {"step=150,chunk=3", MUSTER_OK, {.is_armed = true, .step = 150, .chunk = 3}},
        {"step=150,stop", MUSTER_OK, {.is_armed = true, .step = 150, .is_stop = true}},
        {"step=2,chunk=1,stop",
         MUSTER_OK,
         {.is_armed = true, .step = 2, .chunk = 1, .is_stop = true}},
        {"step=1,chunk=4294967295", MUSTER_OK, {.is_armed = true, .step = 1, .chunk = UINT32_MAX}},
        {"step=1,chunk=4294967296", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=18446744073709551615", MUSTER_OK, {.is_armed = true, .step = UINT64_MAX}},
        {"step=18446744073709551616", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=1,chunk=18446744073709551616", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"stop=5", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=x", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=/", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=:", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=-1", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step= 1", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=1 ", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"chunk=3", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=1,", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=1,chunk=", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=1,chunk=-2", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=1,chunk=2,x", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=1,stopped", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {"step=x,stop", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
        {",stop", MUSTER_INVALID_ARGUMENT, {.is_armed = false}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_failpoint *expected = &rows[i].expected;
        struct muster_failpoint failpoint;
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc = init_with(&failpoint, rows[i].text, &error);
        char text[128];

        fail_if(rc != rows[i].rc, "%s: %d", rows[i].text, (int)rc);
        assert_int_equal(failpoint.is_armed, expected->is_armed);
        if (rc != MUSTER_OK) {
            snprintf(text, sizeof(text), "MUSTER_KILL must be step=S[,chunk=C][,stop], got %s",
                     rows[i].text);
            assert_string_equal(error.text, text);
            continue;
        }
        fail_if(failpoint.step != expected->step || failpoint.chunk != expected->chunk ||
                    failpoint.is_stop != expected->is_stop,
                "%s", rows[i].text);
        assert_int_equal(failpoint.seen, 0);
        assert_null(failpoint.on_hit);
    }
}

/* --- the death --- */

struct death {
    const char *text;
    int signal;
    unsigned
        hits; /* how many the process lives through: the first two are of step 6, others of 7 */
    bool is_told;
};

#define HITS 9

static void tell_death(void *data)
{
    const int *fd = data;

    if (write(*fd, "d", 1) != 1)
        _exit(1);
}

/* In a child; returns when nothing has hit. */
static void hit_all(struct muster_failpoint *failpoint, int told)
{
    for (unsigned hit = 0; hit < HITS; hit++) {
        muster_failpoint_hit(failpoint, hit < 2 ? 6 : 7);
        if (write(told, "h", 1) != 1)
            _exit(1);
    }
}

static void a_process_dies_or_stops_at_the_chosen_chunk_only(void **state)
{
    static const struct death rows[] = {
        {"step=7", SIGKILL, 2, true},
        {"step=7,chunk=2", SIGKILL, 4, true},
        {"step=6,chunk=1", SIGKILL, 1, true},
        {"step=7,chunk=2,stop", SIGSTOP, HITS, false}, /* it goes on when it is told to */
        {"step=8", 0, HITS, false},
        {"step=7,chunk=7", 0, HITS, false},
        {"", 0, HITS, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_failpoint failpoint;
        char told[HITS + 2] = "", expected[HITS + 2] = "";
        int fds[2], status = 0;
        pid_t child;

        assert_int_equal(init_with(&failpoint, rows[i].text, NULL), MUSTER_OK);
        assert_int_equal(pipe(fds), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            failpoint.on_hit = tell_death;
            failpoint.data = &fds[1];
            hit_all(&failpoint, fds[1]);
            exit(0);
        }
        assert_int_equal(waitpid(child, &status, WUNTRACED), child);
        if (WIFSTOPPED(status)) {
            assert_int_equal(WSTOPSIG(status), rows[i].signal);
            assert_int_equal(kill(child, SIGCONT), 0);
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_int_equal(status, 0);
        } else {
            assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, rows[i].signal);
        }
        close(fds[1]);
        assert_true(read(fds[0], told, sizeof(told) - 1) > 0);
        close(fds[0]);
        memset(expected, 'h', rows[i].hits);
        if (rows[i].is_told)
            strcat(expected, "d");
        assert_string_equal(told, expected);
    }
}

/* A failpoint that is not armed, or is of another step, counts nothing. */
static void hits_of_the_step_are_counted(void **state)
{
    struct muster_failpoint failpoint;

    (void)state;
    assert_int_equal(init_with(&failpoint, "step=7,chunk=50", NULL), MUSTER_OK);
    for (uint64_t step = 6; step <= 8; step++)
        muster_failpoint_hit(&failpoint, step);
    assert_int_equal(failpoint.seen, 1);
    muster_failpoint_hit(&failpoint, 7);
    assert_int_equal(failpoint.seen, 2);
    assert_int_equal(init_with(&failpoint, NULL, NULL), MUSTER_OK);
    muster_failpoint_hit(&failpoint, 0);
    assert_int_equal(failpoint.seen, 0);
}

static void end_instead(void *data)
{
    exit(*(const int *)data);
}

static void the_last_word_comes_before_the_death(void **state)
{
    static int code = 7;
    struct muster_failpoint failpoint;
    int status = 0;
    pid_t child;

    (void)state;
    assert_int_equal(init_with(&failpoint, "step=7", NULL), MUSTER_OK);
    failpoint.on_hit = end_instead;
    failpoint.data = &code;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        muster_failpoint_hit(&failpoint, 7);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

/* Without anybody to tell it dies all the same: in a child that says so by its end. */
static void nobody_need_be_told(void **state)
{
    struct muster_failpoint failpoint;
    int status = 0;
    pid_t child;

    (void)state;
    assert_int_equal(init_with(&failpoint, "step=7", NULL), MUSTER_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        muster_failpoint_hit(&failpoint, 7);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_and_a_chunk_are_read_or_refused_by_name),
        cmocka_unit_test(a_process_dies_or_stops_at_the_chosen_chunk_only),
        cmocka_unit_test(hits_of_the_step_are_counted),
        cmocka_unit_test(the_last_word_comes_before_the_death),
        cmocka_unit_test(nobody_need_be_told),
    };

    return cmocka_run_group_tests_name("failpoint", tests, NULL, NULL);
}
