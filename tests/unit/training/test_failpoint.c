/* The failpoint: what MUSTER_KILL accepts, and that the process dies at the chosen chunk and no
 * other. */
#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "training/failpoint.h"

static enum muster_rc init_with(struct muster_failpoint *failpoint, const char *text)
{
    const struct test_var list[] = {{text != NULL ? "MUSTER_KILL" : NULL, text}, {NULL, NULL}};
    struct muster_error error;
    struct test_vars vars;
    struct test_env test;
    enum muster_rc rc;

    test_env_open(&test);
    test_vars_init(&vars, list);
    test.env.vars = &vars.vars;
    rc = muster_failpoint_init(failpoint, &test.env, &error);
    test_env_close(&test);
    return rc;
}

static void unset_variable_disarms(void **state)
{
    struct muster_failpoint failpoint;

    (void)state;
    assert_int_equal(init_with(&failpoint, NULL), MUSTER_OK);

    assert_false(failpoint.is_armed);
}

static void step_and_chunk_are_read(void **state)
{
    struct muster_failpoint failpoint;

    (void)state;
    assert_int_equal(init_with(&failpoint, "step=150,chunk=3"), MUSTER_OK);

    assert_true(failpoint.is_armed);
    assert_int_equal(failpoint.step, 150);
    assert_int_equal(failpoint.chunk, 3);
    assert_false(failpoint.is_stop);
    assert_int_equal(init_with(&failpoint, "step=2,chunk=1,stop"), MUSTER_OK);
    assert_true(failpoint.is_stop);
}

static void malformed_text_is_refused(void **state)
{
    static const char *const texts[] = {"step",
                                        "step=",
                                        "step=x",
                                        "chunk=3",
                                        "step=1,",
                                        "step=1,chunk=",
                                        "step=-1",
                                        "step=1,chunk=99999999999",
                                        "step=1,chunk=2,x",
                                        "step=1,stopped"};
    struct muster_failpoint failpoint;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        fail_if(init_with(&failpoint, texts[i]) != MUSTER_INVALID_ARGUMENT, "accepted: %s",
                texts[i]);
}

static void process_dies_at_the_chosen_chunk_only(void **state)
{
    struct muster_failpoint failpoint;
    int survived[2], status;
    unsigned char hits = 0;
    pid_t child;

    (void)state;
    assert_int_equal(init_with(&failpoint, "step=7,chunk=2"), MUSTER_OK);
    assert_int_equal(pipe(survived), 0);

    child = fork();
    if (child == 0) {
        for (unsigned char hit = 1; hit < 9; hit++) {
            muster_failpoint_hit(&failpoint,
                                 hit < 3 ? 6 : 7); /* hits 3, 4, 5 are chunks 0, 1, 2 of step 7 */
            if (write(survived[1], &hit, 1) != 1)
                break;
        }
        _exit(0);
    }
    close(survived[1]);
    while (read(survived[0], &hits, 1) == 1)
        ;
    close(survived[0]);

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(hits, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unset_variable_disarms),
        cmocka_unit_test(step_and_chunk_are_read),
        cmocka_unit_test(malformed_text_is_refused),
        cmocka_unit_test(process_dies_at_the_chosen_chunk_only),
    };

    return cmocka_run_group_tests_name("failpoint", tests, NULL, NULL);
}
