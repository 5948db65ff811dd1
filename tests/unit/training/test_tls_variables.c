/* Half of what TLS needs is no plain text. */
#include "test_env.h"
#include "test_vars.h"

#include <string.h>

#include "training/tls_variables.h"

static enum muster_rc open_with(const struct test_var *list, struct muster_error *ret_error)
{
    struct test_env test;
    struct test_vars vars;
    enum muster_rc rc;

    test_env_open(&test);
    test_vars_init(&vars, list);
    test.env.vars = &vars.vars;
    rc = muster_training_open_tls(&test.env, ret_error);
    assert_null(test.env.tls);
    test_env_close(&test);
    return rc;
}

static void without_variables_links_are_plain(void **state)
{
    static const struct test_var list[] = {{"MUSTER_TLS_RELOAD_MS", "50"}, {NULL, NULL}};
    struct muster_error error;

    (void)state;
    assert_int_equal(open_with(list, &error), MUSTER_OK);
}

static void half_of_them_are_refused(void **state)
{
    static const struct test_var rows[] = {{"MUSTER_TLS_PEERS", "spiffe://test/job/a/*"},
                                           {"MUSTER_TLS_CA_FILE", "/nowhere/ca.pem"},
                                           {"MUSTER_TLS_KEY_FILE", "/nowhere/key.pem"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct test_var list[] = {rows[i], {NULL, NULL}};
        struct muster_error error;

        assert_int_equal(open_with(list, &error), MUSTER_INVALID_ARGUMENT);
        assert_ptr_equal(strstr(error.text, rows[i].name), error.text);
        assert_non_null(strstr(error.text, "without MUSTER_TLS_CERT_FILE"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_variables_links_are_plain),
        cmocka_unit_test(half_of_them_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
