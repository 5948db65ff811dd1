/* The list of devices that a program or a variable asks for. */
#include "training/device_list.h"

#include <string.h>

#include "test_env.h"
#include "test_vars.h"

static void a_list_is_all_none_or_numbers(void **state)
{
    static const struct {
        const char *text;
        bool is_all;
        uint32_t count;
        int gpus[4];
    } rows[] = {{"all", true, 0, {0}},     {"cpu", false, 0, {0}},
                {"", false, 0, {0}},       {"0", false, 1, {0}},
                {"0,2", false, 2, {0, 2}}, {"7,0,7,12", false, 4, {7, 0, 7, 12}}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_device_list list;
        struct muster_error error;

        assert_int_equal(muster_device_list_parse(rows[i].text, "devices", &list, &error),
                         MUSTER_OK);
        assert_int_equal(list.is_all, rows[i].is_all);
        assert_int_equal(list.count, rows[i].count);
        for (uint32_t k = 0; k < list.count; k++)
            assert_int_equal(list.gpus[k], rows[i].gpus[k]);
    }
}

static void other_texts_are_refused(void **state)
{
    static const char *const texts[] = {" ",  "ALL",  "0,",    ",0",
                                        "-1", "+1",   "0 1",   "0;1",
                                        "1x", "0,,1", "32768", "99999999999999999999"};
    struct muster_device_list list = {.count = 77};
    char many[2 * (MUSTER_REPLICAS_MAX + 1)];
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(muster_device_list_parse(texts[i], "devices", &list, &error),
                         MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_device_list_parse("0;1", "MUSTER_DEVICES", &list, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "MUSTER_DEVICES must be all, cpu, or numbers of devices such "
                                    "as 0,2 (at most 256), got \"0;1\"");
    for (size_t i = 0; i < sizeof(many); i += 2) {
        many[i] = '1';
        many[i + 1] = ',';
    }
    many[sizeof(many) - 1] = '\0';
    assert_int_equal(muster_device_list_parse(many, "devices", &list, &error),
                     MUSTER_INVALID_ARGUMENT);
    many[sizeof(many) - 3] = '\0';
    assert_int_equal(list.count, 77); /* written only on success */
    assert_int_equal(muster_device_list_parse(many, "devices", &list, &error), MUSTER_OK);
    assert_int_equal(list.count, MUSTER_REPLICAS_MAX);
}

static void a_variable_is_checked_and_an_empty_one_is_none(void **state)
{
    struct test_var list[] = {{"MUSTER_DEVICES", ""}, {NULL, NULL}};
    struct test_vars vars;
    struct muster_env env;
    struct muster_error error;

    (void)state;
    memset(&env, 0, sizeof(env));
    test_vars_init(&vars, list);
    env.vars = &vars.vars;
    assert_int_equal(muster_device_list_check(&env, &error), MUSTER_OK);
    list[0].value = "all";
    assert_int_equal(muster_device_list_check(&env, &error), MUSTER_OK);
    list[0].value = "some";
    assert_int_equal(muster_device_list_check(&env, &error), MUSTER_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_all_none_or_numbers),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(a_variable_is_checked_and_an_empty_one_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
