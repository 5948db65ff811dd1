/* Names of tasks that were members: each is new once. */
#include "tools/run/registry/roll.c"

#include "test_env.h"

struct muster_registry *run_registry_client(const struct run *run)
{
    (void)run;
    fail_msg("a launcher that is alone asks no registry");
    return NULL;
}

static void a_name_is_new_once_and_survives_the_launcher(void **state)
{
    static const char *const names[] = {"worker:0", "worker:1", "ps:0"};
    struct run_roll *roll = run_roll_new(), *next = run_roll_new();
    struct muster_json *saved;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_true(run_roll_add(roll, names[i]));
    saved = run_roll_save(roll);
    run_roll_load(next, saved);
    for (size_t i = 0; i < 3; i++) {
        assert_false(run_roll_add(roll, names[i]));
        assert_false(run_roll_add(next, names[i]));
    }
    assert_true(run_roll_add(next, "worker:2"));
    muster_json_free(saved);
    run_roll_free(roll);
    run_roll_free(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_new_once_and_survives_the_launcher),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
