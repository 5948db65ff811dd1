/* When the only worker has the terminal. */
#include "tools/run/task/terminal.c"

#include "test_env.h"

static void who_asks_for_logs_gets_no_terminal_for_the_worker(void **state)
{
    static const struct {
        struct run_settings settings;
        bool wants;
    } rows[] = {
        {{.log_dir = NULL}, false},
        {{.log_dir = "/logs"}, true},
        {{.tee = "3"}, true},
        {{.redirects = "3"}, true},
        {{.log_dir = "/logs", .tee = "3", .redirects = "3"}, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(wants_logs(&rows[i].settings), rows[i].wants);
}

static void without_a_terminal_nothing_is_lent(void **state)
{
    struct run_output output = {.is_log_json = false};
    struct run run = {.settings = {.world_size = 1}, .output = &output, .is_terminal_lent = true};
    struct run_task task = {.run = &run};

    (void)state;
    run_terminal_open(&run);
    assert_false(run.is_terminal_lent); /* standard input is not one */
    assert_false(run_terminal_take(&task));
    assert_false(run_terminal_return(&run, SIGINT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_asks_for_logs_gets_no_terminal_for_the_worker),
        cmocka_unit_test(without_a_terminal_nothing_is_lent),
    };

    return cmocka_run_group_tests_name("terminal", tests, NULL, NULL);
}
