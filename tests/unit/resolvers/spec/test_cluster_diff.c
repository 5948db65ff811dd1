/* Two descriptions side by side: which tasks came, went and moved. */
#include <muster/cluster_spec.h>

#include "test_env.h"

#include <string.h>

static struct muster_cluster_spec *read_spec(struct test_env *test, const char *text)
{
    struct muster_cluster_spec *spec = NULL;

    if (text != NULL)
        assert_int_equal(muster_cluster_spec_parse(test->env.mem, text, strlen(text), &spec, NULL),
                         MUSTER_OK);
    return spec;
}

/* "+worker/2=c -ps/0=p ~worker/0=a>b" */
static void write_changes(const struct muster_cluster_diff *diff, char *text, size_t bytes)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < diff->change_count; i++) {
        const struct muster_cluster_change *change = &diff->changes[i];

        length +=
            (size_t)snprintf(text + length, bytes - length, "%s%c%s/%d=%s%s%s", i > 0 ? " " : "",
                             "+-~"[change->kind], change -> job, change -> index,
                             change -> before != NULL ? change -> before : "",
                             change->kind == MUSTER_CLUSTER_MOVED ? ">" : "",
                             change->after != NULL ? change->after : "");
    }
}

static void each_change_is_one_task(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *before, *after, *changes;
    } rows[] = {
        {NULL, "{\"w\":[\"a\"],\"p\":[\"p\"]}", "+p/0=p +w/0=a"},
        {"{\"w\":[\"a\"]}", "{}", "-w/0=a"},
        {"{\"w\":[\"a\"]}", "{\"w\":[\"a\"]}", ""},
        {"{\"w\":[\"a\"]}", "{\"w\":[\"b\"]}", "~w/0=a>b"},
        {"{\"w\":[\"a\",\"b\"]}", "{\"w\":{\"1\":\"b\",\"5\":\"f\"}}", "-w/0=a +w/5=f"},
        {"{\"a\":[\"1\"],\"c\":[\"3\"]}", "{\"c\":[\"4\"],\"b\":[\"2\"]}",
         "-a/0=1 +b/0=2 ~c/0=3>4"},
        {"{\"w\":{\"-1\":\"x\",\"3\":\"y\"}}", "{\"w\":{\"2\":\"z\",\"3\":\"y\"}}",
         "-w/-1=x +w/2=z"},
        {"{\"w\":[]}", "{}", ""},
        {"{}", "{\"w\":[]}", ""},
        {"{\"a\":[\"1\"],\"b\":[\"2\"],\"d\":[\"4\"]}", "{\"c\":[\"3\"]}",
         "-a/0=1 -b/0=2 +c/0=3 -d/0=4"},
        {"{\"w\":{\"1\":\"b\",\"2\":\"c\",\"4\":\"e\"}}",
         "{\"w\":{\"0\":\"a\",\"2\":\"x\",\"3\":\"d\",\"5\":\"f\"}}",
         "+w/0=a -w/1=b ~w/2=c>x +w/3=d -w/4=e +w/5=f"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *before = read_spec(test, rows[i].before);
        struct muster_cluster_spec *after = read_spec(test, rows[i].after);
        struct muster_cluster_diff diff;
        char text[200];

        assert_int_equal(muster_cluster_diff_init(&diff, test->env.mem, before, after), MUSTER_OK);
        write_changes(&diff, text, sizeof(text));
        assert_string_equal(text, rows[i].changes);
        assert_int_equal(diff.added_count + diff.removed_count + diff.moved_count,
                         diff.change_count);
        muster_cluster_diff_fini(&diff);
        muster_cluster_spec_unref(before);
        muster_cluster_spec_unref(after);
    }
}

static void kinds_are_counted(void **state)
{
    struct test_env *test = *state;
    struct muster_cluster_diff diff;

    struct muster_cluster_spec *before = read_spec(test, "{\"w\":[\"a\",\"b\",\"c\"]}");
    struct muster_cluster_spec *after =
        read_spec(test, "{\"w\":[\"x\",\"b\"],\"p\":[\"1\",\"2\"]}");

    assert_int_equal(muster_cluster_diff_init(&diff, test->env.mem, before, after), MUSTER_OK);
    assert_int_equal(diff.added_count, 2);
    assert_int_equal(diff.removed_count, 1);
    assert_int_equal(diff.moved_count, 1);
    assert_int_equal(diff.change_count, 4);
    muster_cluster_diff_fini(&diff);
    assert_null(diff.changes);
    assert_int_equal(diff.change_count, 0);
    muster_cluster_diff_fini(&diff);
    muster_cluster_spec_unref(before);
    muster_cluster_spec_unref(after);
}

static void without_memory_nothing_is_told(void **state)
{
    struct test_env *test = *state;
    struct muster_cluster_diff diff;

    struct muster_cluster_spec *after = read_spec(test, "{\"w\":[\"a\"]}");
    test->mem.fail_at = 1;

    diff.change_count = 7;
    assert_int_equal(muster_cluster_diff_init(&diff, test->env.mem, NULL, after),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(diff.change_count, 7);
    muster_cluster_spec_unref(after);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_change_is_one_task),
        CASE(kinds_are_counted),
        CASE(without_memory_nothing_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
