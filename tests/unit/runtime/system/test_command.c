/* Programs of a host: what is handed to whoever plays the host. */
#include <muster/command.h>

#include "test_env.h"

struct played_host {
    struct muster_host host;
    unsigned run_count, cancel_count;
    enum muster_rc rc;
};

static void on_done(struct muster_command *command, enum muster_rc rc)
{
    (void)command;
    (void)rc;
    fail_msg("nobody has ended the program");
}

/* Nothing is left of an earlier run. */
static enum muster_rc played_run(struct muster_host *host, struct muster_command *command)
{
    struct played_host *played = (struct played_host *)host;

    assert_ptr_equal(command->host, host);
    assert_null(command->done); /* it must not be ended yet */
    assert_null(command->output);
    assert_int_equal(command->output_bytes, 0);
    assert_int_equal(command->exit_status, 0);
    played->run_count++;
    return played->rc;
}

static void played_cancel(struct muster_host *host, struct muster_command *command)
{
    assert_ptr_equal(command->host, host);
    ((struct played_host *)host)->cancel_count++;
}

static void a_command_is_handed_to_its_host(void **state)
{
    static const struct muster_host_ops ops = {.run = played_run, .cancel_run = played_cancel};
    static const enum muster_rc rows[] = {MUSTER_OK, MUSTER_NOT_FOUND};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct played_host played = {.host = {.ops = &ops}, .rc = rows[i]};
        char before[] = "of an earlier run";
        struct muster_command command = {.output = before, .output_bytes = 17, .exit_status = 3};

        assert_int_equal(muster_command_start(&command, &played.host, on_done), rows[i]);
        assert_int_equal(played.run_count, 1);
        assert_ptr_equal(command.done, rows[i] == MUSTER_OK ? on_done : NULL);
        assert_int_equal(played.cancel_count, 0);
        muster_command_cancel(&command);
        assert_int_equal(played.cancel_count, 1);
    }
}

static void a_host_that_runs_nothing_says_so(void **state)
{
    static const struct muster_host_ops ops = {.run = NULL};
    struct muster_host host = {.ops = &ops};
    struct muster_command command = {.exit_status = 3};

    (void)state;
    assert_int_equal(muster_command_start(&command, &host, on_done), MUSTER_UNIMPLEMENTED);
    assert_int_equal(muster_command_start(&command, NULL, on_done), MUSTER_UNIMPLEMENTED);
    assert_int_equal(command.exit_status, 3); /* untouched */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_is_handed_to_its_host),
        cmocka_unit_test(a_host_that_runs_nothing_says_so),
    };

    return cmocka_run_group_tests_name("command", tests, NULL, NULL);
}
