/* The policies of a channel: which one a method has. */
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include "net/grpc/client/method_policy.h"

static int set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    test_env_close(*state);
    return 0;
}

static void the_most_precise_policy_holds(void **state)
{
    static const struct muster_method_policy policies[] = {{.method = NULL, .timeout_ns = 1},
                                                           {.method = "/a.B/", .timeout_ns = 2},
                                                           {.method = "/a.B/C", .timeout_ns = 3},
                                                           {.method = "/a.Bee/", .timeout_ns = 4},
                                                           {.method = "/a.B/Cd", .timeout_ns = 5}};
    static const struct {
        const char *method;
        uint64_t timeout_ns;
    } rows[] = {{"/a.B/C", 3},   {"/a.B/Cd", 5}, {"/a.B/Cde", 2}, {"/a.B/", 2},
                {"/a.Bee/C", 4}, {"/a/C", 1},    {"/", 1},        {"/z.Z/Z", 1}};
    struct test_env *test = *state;
    struct muster_method_policy_table table;

    assert_int_equal(muster_method_policy_table_init(&table, test->env.mem, policies, 5, NULL),
                     MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_method_policy_table_find(&table, rows[i].method)->timeout_ns,
                         rows[i].timeout_ns);
    muster_method_policy_table_fini(&table, test->env.mem);
}

static void without_a_general_policy_others_have_none(void **state)
{
    static const struct muster_method_policy policy = {.method = "/a.B/"};
    struct test_env *test = *state;
    struct muster_method_policy_table table;

    assert_int_equal(muster_method_policy_table_init(&table, test->env.mem, &policy, 1, NULL),
                     MUSTER_OK);
    assert_null(muster_method_policy_table_find(&table, "/a.C/D"));
    assert_non_null(muster_method_policy_table_find(&table, "/a.B/D"));
    muster_method_policy_table_fini(&table, test->env.mem);
    assert_null(muster_method_policy_table_find(&table, "/a.B/D"));
}

static void texts_are_copied(void **state)
{
    char method[] = "/a.B/C";
    const struct muster_method_policy policy = {.method = method};
    struct test_env *test = *state;
    struct muster_method_policy_table table;

    assert_int_equal(muster_method_policy_table_init(&table, test->env.mem, &policy, 1, NULL),
                     MUSTER_OK);
    method[1] = 'z';
    assert_non_null(muster_method_policy_table_find(&table, "/a.B/C"));
    muster_method_policy_table_fini(&table, test->env.mem);
}

static void bad_policies_are_refused_by_name(void **state)
{
    static const struct muster_method_policy rows[][2] = {
        {{.method = "a.B/C"}, {.method = "/x.Y/Z"}},
        {{.method = "/a.B"}, {.method = "/x.Y/Z"}},
        {{.method = "/a.B/C/D"}, {.method = "/x.Y/Z"}},
        {{.method = "//C"}, {.method = "/x.Y/Z"}},
        {{.method = "/a.B/C", .retry.attempts_max = 2}, {.method = "/x.Y/Z"}},
    };
    struct test_env *test = *state;
    struct muster_method_policy_table table;
    struct muster_error error;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_method_policy_table_init(&table, test->env.mem, rows[i], 2, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, rows[i][0].method));
    }
}

static void a_method_has_one_policy(void **state)
{
    static const struct muster_method_policy twice[] = {{.method = NULL}, {.method = ""}};
    struct test_env *test = *state;
    struct muster_method_policy_table table;

    assert_int_equal(muster_method_policy_table_init(&table, test->env.mem, twice, 2, NULL),
                     MUSTER_ALREADY_EXISTS);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest policies[] = {
        CASE(the_most_precise_policy_holds),
        CASE(without_a_general_policy_others_have_none),
        CASE(texts_are_copied),
        CASE(bad_policies_are_refused_by_name),
        CASE(a_method_has_one_policy),
    };

    return cmocka_run_group_tests(policies, NULL, NULL);
}
