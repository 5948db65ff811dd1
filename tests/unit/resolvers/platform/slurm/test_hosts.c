/* Slurm's host lists. */
#include "resolvers/platform/slurm/text.h"

#include <muster/platforms.h>

#include "test_env.h"

#include <string.h>

static void join_names(const struct muster_slurm_hosts *hosts, char *text, size_t bytes)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < hosts->count; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%s", i > 0 ? " " : "",
                                   hosts->names[i]);
}

static void lists_become_names(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *list, *names;
    } rows[] = {
        {"", ""},
        {"a", "a"},
        {"a,b.x,c-1", "a b.x c-1"},
        {"n[1-3]", "n1 n2 n3"},
        {"n[1-2],m5,o[3-4,6,8-9]", "n1 n2 m5 o3 o4 o6 o8 o9"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[001,5,009-010]", "n001 n5 n009 n010"},
        {"n[9-11]", "n9 n10 n11"},
        {"n[098-101]", "n098 n099 n100 n101"},
        {"rack[1-2]-ib", "rack1-ib rack2-ib"},
        {"r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"},
        {"rack[1-2]node[01-02].x,login", "rack1node01.x rack1node02.x rack2node01.x "
                                         "rack2node02.x login"},
        {"[1-2]", "1 2"},
        {"a[1][2]b[3]", "a12b3"},
        {"n[5-3],m1", "m1"},
        {"n[3-1][1-65536],m1", "m1"},
        {" a,b , c\td\n", "a b c d"},
        {"a,b,", "a b"},
        {"n[1-2], ", "n1 n2"},
        {"n[1,1],n1", "n1 n1 n1"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_slurm_hosts hosts;
        char names[200];

        assert_int_equal(muster_slurm_hosts_parse(&hosts, test->env.mem, rows[i].list, NULL),
                         MUSTER_OK);
        join_names(&hosts, names, sizeof(names));
        assert_string_equal(names, rows[i].names);
        muster_slurm_hosts_fini(&hosts);
    }
}

static void a_bad_list_is_refused_with_the_place(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *list, *text;
    } rows[] = {
        {"n[1-2", "character 2"},       {"a,,b", "character 3: a host must stand before ','"},
        {"a, ,b", "character 4"},       {",a", "character 1"},
        {"n[1-2],,c", "character 8"},   {",", "character 1"},
        {"n1]", "character 3"},         {"n[]", "character 2"},
        {"n[a-b]", "numbers"},          {"n[1-]", "numbers"},
        {"n[-1]", "numbers"},           {"n[1,]", "numbers"},
        {"a,n[1-2-3]", "character 4"},  {"n[[1]]", "numbers"},
        {"n[1x3]", "numbers"},          {"n[1234567890123456]", "numbers"},
        {"a\x01", "control character"}, {"[1][2][3][4][5][6][7][8][9]", "8 bracket groups"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_slurm_hosts hosts;
        struct muster_error error = {0};

        assert_int_equal(muster_slurm_hosts_parse(&hosts, test->env.mem, rows[i].list, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: '%s' does not hold '%s'", rows[i].list, error.text, rows[i].text);
    }
}

static void more_hosts_than_the_limit_are_refused_before_they_are_made(void **state)
{
    struct test_env *test = *state;
    static const char *const lists[] = {
        "n[0-999999999999999]",
        "n[0-65535],m",
        "n[0-65535][0-65535][0-65535][0-65535][0-65535][0-65535][0-65535][0-65535]",
    };
    struct muster_slurm_hosts hosts;

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        assert_int_equal(muster_slurm_hosts_parse(&hosts, test->env.mem, lists[i], NULL),
                         MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_slurm_hosts_parse(&hosts, test->env.mem, "n[0-65535]", NULL),
                     MUSTER_OK);
    assert_int_equal(hosts.count, MUSTER_SLURM_HOSTS_MAX);
    muster_slurm_hosts_fini(&hosts);
}

static void a_name_above_255_characters_is_refused(void **state)
{
    struct test_env *test = *state;
    struct muster_slurm_hosts hosts;
    char list[300];

    memset(list, 'a', sizeof(list));
    strcpy(list + 250, "[00000-1]");

    assert_int_equal(muster_slurm_hosts_parse(&hosts, test->env.mem, list, NULL), MUSTER_OK);
    muster_slurm_hosts_fini(&hosts);
    strcpy(list + 251, "[00000-1]");
    assert_int_equal(muster_slurm_hosts_parse(&hosts, test->env.mem, list, NULL),
                     MUSTER_INVALID_ARGUMENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(lists_become_names),
        CASE(a_bad_list_is_refused_with_the_place),
        CASE(more_hosts_than_the_limit_are_refused_before_they_are_made),
        CASE(a_name_above_255_characters_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
