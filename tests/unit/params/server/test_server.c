/* Opening and closing a server of parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <string.h>

/* The leak check at the end sees what a failed opening leaves. */
static void a_server_whose_address_is_taken_is_not_opened(void **state)
{
    struct params_stand stand;
    struct muster_params_server_options options = {.job = "test"};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, 8);
    options.listen = muster_params_server_address(stand.server);
    options.seat = stand.seat;
    assert_int_equal(muster_params_server_open(&stand.test.env, &options, &server, &error),
                     MUSTER_ALREADY_EXISTS);

    assert_null(server);
    test_env_turn(&stand.test.env, 4);
    params_stand_close(&stand);
}

/* It would serve a job whose other servers and clients never hear of it. */
static void a_server_without_its_registry_is_not_opened(void **state)
{
    struct params_stand stand;
    struct muster_address any;
    struct muster_params_server_options options = {
        .job = "test", .listen = &any, .registry = "no such address"};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, 8);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    options.seat = stand.seat;
    assert_int_equal(muster_params_server_open(&stand.test.env, &options, &server, &error),
                     MUSTER_INVALID_ARGUMENT);

    assert_null(server);
    assert_non_null(strstr(error.text, "no such address"));
    test_env_turn(&stand.test.env, 4);
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_whose_address_is_taken_is_not_opened),
        cmocka_unit_test(a_server_without_its_registry_is_not_opened),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
