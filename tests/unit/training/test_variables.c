/* Variables of the launcher: taken as they stand, or refused by name. */
#include "training/variables.h"

#include <stdio.h>
#include <string.h>

#include <muster/strategy.h>

#include "test_env.h"
#include "test_vars.h"

#define INCARNATION "0123456789abcdef0123456789ABCDEF"

/* The outcome of one variable; its value is "" or NULL for none. */
static enum muster_rc read_one(const char *name, const char *value,
                               struct muster_node_options *ret_node, struct muster_error *ret_error)
{
    const struct test_var list[] = {{name, value}, {NULL, NULL}};
    struct test_env test;
    struct test_vars vars;
    enum muster_rc rc;

    memset(ret_node, 0, sizeof(*ret_node));
    test_env_open(&test);
    test_vars_init(&vars, list);
    test.env.vars = &vars.vars;
    rc = muster_training_read_variables(&test.env, ret_node, ret_error);
    if (rc == MUSTER_OK)
        assert_int_equal(muster_strategy_check_variables(&test.env, ret_error), MUSTER_OK);
    else
        assert_int_equal(muster_strategy_check_variables(&test.env, ret_error), rc);
    test_env_close(&test);
    return rc;
}

#define FIELD(name, member)                                                                        \
    static uint64_t name(const struct muster_node_options *node)                                   \
    {                                                                                              \
        return node->member;                                                                       \
    }
FIELD(min_members, min_members)
FIELD(min_members_start, min_members_start)
FIELD(min_members_timeout_ns, min_members_timeout_ns)
FIELD(is_return, is_return)
FIELD(stripe_count, stripe_count)
FIELD(replica_count, replica_count)
FIELD(read_machine, machine)
FIELD(evict_after_ns, evict_after_ns)
FIELD(is_reproducible, plan.is_reproducible)

#define S       MUSTER_NS_PER_S
#define REFUSED UINT64_MAX

struct row {
    const char *name, *value;
    uint64_t (*field)(const struct muster_node_options *node);
    uint64_t expected;
};

static const struct row rows[] = {
    {"MUSTER_MIN_MEMBERS", NULL, min_members, 0},
    {"MUSTER_MIN_MEMBERS", "", min_members, 0},
    {"MUSTER_MIN_MEMBERS", "3", min_members, 3},
    {"MUSTER_MIN_MEMBERS", "4294967295", min_members, UINT32_MAX},
    {"MUSTER_MIN_MEMBERS", "4294967296", min_members, REFUSED},
    {"MUSTER_MIN_MEMBERS", "99999999999999999999", min_members, REFUSED},
    {"MUSTER_MIN_MEMBERS", "-1", min_members, REFUSED},
    {"MUSTER_MIN_MEMBERS", "+1", min_members, REFUSED},
    {"MUSTER_MIN_MEMBERS", " 1", min_members, REFUSED},
    {"MUSTER_MIN_MEMBERS", "1 ", min_members, REFUSED},
    {"MUSTER_MIN_MEMBERS", "two", min_members, REFUSED},
    {"MUSTER_MIN_MEMBERS", "0", min_members, 0},
    {"MUSTER_MIN_MEMBERS", "9", min_members, 9},
    {"MUSTER_MIN_MEMBERS_START", NULL, min_members_start, 0},
    {"MUSTER_MIN_MEMBERS_START", "5", min_members_start, 5},
    {"MUSTER_MIN_MEMBERS_START", "4294967296", min_members_start, REFUSED},
    {"MUSTER_MIN_MEMBERS_TIMEOUT_S", NULL, min_members_timeout_ns, 0},
    {"MUSTER_MIN_MEMBERS_TIMEOUT_S", "7", min_members_timeout_ns, 7 * S},
    {"MUSTER_MIN_MEMBERS_TIMEOUT_S", "1000000000", min_members_timeout_ns, 1000000000 * S},
    {"MUSTER_MIN_MEMBERS_TIMEOUT_S", "1000000001", min_members_timeout_ns, REFUSED},
    {"MUSTER_REJOIN", NULL, is_return, 0},
    {"MUSTER_REJOIN", "0", is_return, 0},
    {"MUSTER_REJOIN", "1", is_return, 1},
    {"MUSTER_REJOIN", "2", is_return, REFUSED},
    {"MUSTER_STRIPES", NULL, stripe_count, 0},
    {"MUSTER_STRIPES", "8", stripe_count, 8},
    {"MUSTER_STRIPES", "9", stripe_count, REFUSED},
    {"MUSTER_NODE_RANK", NULL, read_machine, 0},
    {"MUSTER_NODE_RANK", "0", read_machine, 1},
    {"MUSTER_NODE_RANK", "1000000", read_machine, 1000001},
    {"MUSTER_NODE_RANK", "1000001", read_machine, REFUSED},
    {"MUSTER_REPLICAS", NULL, replica_count, 0},
    {"MUSTER_REPLICAS", "256", replica_count, 256},
    {"MUSTER_REPLICAS", "257", replica_count, REFUSED},
    {"MUSTER_EVICT_AFTER_S", NULL, evict_after_ns, 0},
    {"MUSTER_EVICT_AFTER_S", "", evict_after_ns, 0},
    {"MUSTER_EVICT_AFTER_S", "0.25", evict_after_ns, S / 4},
    {"MUSTER_EVICT_AFTER_S", "1000000000", evict_after_ns, 1000000000 * S},
    {"MUSTER_EVICT_AFTER_S", "1000000001", evict_after_ns, REFUSED},
    {"MUSTER_EVICT_AFTER_S", "1e-9", evict_after_ns, 1},
    {"MUSTER_EVICT_AFTER_S", "0.9e-9", evict_after_ns, REFUSED},
    {"MUSTER_EVICT_AFTER_S", "0", evict_after_ns, REFUSED},
    {"MUSTER_EVICT_AFTER_S", "-1", evict_after_ns, REFUSED},
    {"MUSTER_EVICT_AFTER_S", "nan", evict_after_ns, REFUSED},
    {"MUSTER_EVICT_AFTER_S", "2s", evict_after_ns, REFUSED},
    {"MUSTER_REPRODUCIBLE", NULL, is_reproducible, 0},
    {"MUSTER_REPRODUCIBLE", "", is_reproducible, 0},
    {"MUSTER_REPRODUCIBLE", "no", is_reproducible, 0},
    {"MUSTER_REPRODUCIBLE", "view", is_reproducible, 1},
    {"MUSTER_REPRODUCIBLE", "yes", is_reproducible, REFUSED},
    {"MUSTER_WIRE", "tcp", read_machine, 0},
    {"MUSTER_WIRE", "pigeon", read_machine, REFUSED},
};

static void numbers_are_read_whole_or_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        const char *value = row->value != NULL ? row->value : "not set";
        struct muster_node_options node;
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc = read_one(row->name, row->value, &node, &error);

        if (row->expected == REFUSED) {
            if (rc != MUSTER_INVALID_ARGUMENT || strstr(error.text, row->name) != error.text ||
                strstr(error.text, value) == NULL)
                fail_msg("%s=%s: %d %s", row->name, value, (int)rc, error.text);
        } else if (rc != MUSTER_OK || row->field(&node) != row->expected) {
            fail_msg("%s=%s: %d %s, %llu", row->name, value, (int)rc, error.text,
                     (unsigned long long)row->field(&node));
        }
    }
}

static void a_bound_of_waits_for_devices_is_read_or_refused_by_name(void **state)
{
    struct test_var list[] = {{"MUSTER_DEVICE_TIMEOUT_S", "90.5"}, {NULL, NULL}};
    struct test_env test;
    struct test_vars vars;
    struct muster_error error = {.rc = MUSTER_OK};
    uint64_t ns = 0;

    (void)state;
    test_env_open(&test);
    test_vars_init(&vars, list);
    test.env.vars = &vars.vars;
    assert_int_equal(muster_training_read_device_timeout(&test.env, &ns, &error), MUSTER_OK);
    assert_int_equal(ns, 90 * S + S / 2);
    list[0].value = "10m";
    assert_int_equal(muster_strategy_check_variables(&test.env, &error), MUSTER_INVALID_ARGUMENT);
    assert_ptr_equal(strstr(error.text, "MUSTER_DEVICE_TIMEOUT_S must be seconds"), error.text);
    test_env_close(&test);
}

static void the_slots_of_a_constant_batch_are_read_or_refused_by_name(void **state)
{
    static const struct {
        const char *value;
        uint32_t slots; /* UINT32_MAX: refused */
    } slots[] = {{NULL, 0},
                 {"", 0},
                 {"1", 1},
                 {"65536", 65536},
                 {"0", UINT32_MAX},
                 {"65537", UINT32_MAX},
                 {"-8", UINT32_MAX},
                 {"8x", UINT32_MAX},
                 {"eight", UINT32_MAX}};

    (void)state;
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        const struct test_var list[] = {{"MUSTER_CONSTANT_BATCH", slots[i].value}, {NULL, NULL}};
        struct test_env test;
        struct test_vars vars;
        struct muster_error error = {.rc = MUSTER_OK};
        uint32_t read = 99;
        enum muster_rc rc;

        test_env_open(&test);
        test_vars_init(&vars, list);
        test.env.vars = &vars.vars;
        rc = muster_training_read_constant_batch(&test.env, &read, &error);
        assert_int_equal(muster_strategy_check_variables(&test.env, &error), rc);
        if (slots[i].slots == UINT32_MAX) {
            char text[128];

            (void)snprintf(text, sizeof(text),
                           "MUSTER_CONSTANT_BATCH must be a number of slots from 1 to 65536, got "
                           "%s; or unset it",
                           slots[i].value);
            assert_int_equal(rc, MUSTER_INVALID_ARGUMENT);
            assert_string_equal(error.text, text);
            assert_int_equal(read, 99);
        } else {
            assert_int_equal(rc, MUSTER_OK);
            assert_int_equal(read, slots[i].slots);
        }
        test_env_close(&test);
    }
}

static void an_incarnation_is_all_of_it(void **state)
{
    static const char *const bad[] = {"0123", INCARNATION "0", "g123456789abcdef0123456789abcdef"};
    static const struct muster_incarnation none;
    struct muster_node_options node;
    struct muster_error error;

    (void)state;
    assert_int_equal(read_one("MUSTER_INCARNATION", INCARNATION, &node, &error), MUSTER_OK);
    assert_int_equal(node.incarnation.bytes[0], 0x01);
    assert_int_equal(node.incarnation.bytes[15], 0xef);
    assert_int_equal(read_one("MUSTER_INCARNATION", "", &node, &error), MUSTER_OK);
    assert_true(muster_incarnation_is_equal(&node.incarnation, &none));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_one("MUSTER_INCARNATION", bad[i], &node, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "32 hexadecimal digits"));
    }
}

static void a_host_key_has_room(void **state)
{
    char text[MUSTER_HOST_KEY_BYTES + 1];
    struct muster_node_options node;
    struct muster_error error;

    (void)state;
    memset(text, 'k', sizeof(text));
    text[MUSTER_HOST_KEY_BYTES] = '\0';
    assert_int_equal(read_one("MUSTER_HOST_KEY", text, &node, &error), MUSTER_INVALID_ARGUMENT);
    text[MUSTER_HOST_KEY_BYTES - 1] = '\0';
    assert_int_equal(read_one("MUSTER_HOST_KEY", text, &node, &error), MUSTER_OK);
    assert_ptr_equal(node.host_key, text);
    assert_int_equal(read_one("MUSTER_HOST_KEY", "", &node, &error), MUSTER_OK);
    assert_null(node.host_key);
}

static void a_table_of_plans_that_is_not_there_is_named(void **state)
{
    struct muster_node_options node;
    struct muster_error error;

    (void)state;
    assert_int_equal(read_one("MUSTER_TUNE_FILE", "/nowhere/tune.json", &node, &error),
                     MUSTER_NOT_FOUND);
    assert_ptr_equal(strstr(error.text, "MUSTER_TUNE_FILE="), error.text);
    assert_int_equal(read_one("MUSTER_TUNE_FILE", "", &node, &error), MUSTER_OK);
}

/* --- log and trace --- */

struct says {
    const char *name, *value;
    enum muster_rc rc;
    int level;
    bool is_json;
    int trace;
};

static void log_and_trace_are_as_said_or_refused_by_name(void **state)
{
    static const struct says says[] = {
        {"MUSTER_LOG_LEVEL", NULL, MUSTER_OK, MUSTER_LOG_WARN, false, 0},
        {"MUSTER_LOG_LEVEL", "", MUSTER_OK, MUSTER_LOG_WARN, false, 0},
        {"MUSTER_LOG_LEVEL", "error", MUSTER_OK, MUSTER_LOG_ERROR, false, 0},
        {"MUSTER_LOG_LEVEL", "trace", MUSTER_OK, MUSTER_LOG_TRACE, false, 0},
        {"MUSTER_LOG_LEVEL", "loud", MUSTER_INVALID_ARGUMENT, 0, false, 0},
        {"MUSTER_LOG_FORMAT", "", MUSTER_OK, MUSTER_LOG_WARN, false, 0},
        {"MUSTER_LOG_FORMAT", "text", MUSTER_OK, MUSTER_LOG_WARN, false, 0},
        {"MUSTER_LOG_FORMAT", "json", MUSTER_OK, MUSTER_LOG_WARN, true, 0},
        {"MUSTER_LOG_FORMAT", "xml", MUSTER_INVALID_ARGUMENT, 0, false, 0},
        {"MUSTER_TRACE", "", MUSTER_OK, MUSTER_LOG_WARN, false, MUSTER_TRAINING_TRACE_FAILURE},
        {"MUSTER_TRACE", "failure", MUSTER_OK, MUSTER_LOG_WARN, false,
         MUSTER_TRAINING_TRACE_FAILURE},
        {"MUSTER_TRACE", "always", MUSTER_OK, MUSTER_LOG_WARN, false, MUSTER_TRAINING_TRACE_ALWAYS},
        {"MUSTER_TRACE", "off", MUSTER_OK, MUSTER_LOG_WARN, false, MUSTER_TRAINING_TRACE_OFF},
        {"MUSTER_TRACE", "on", MUSTER_INVALID_ARGUMENT, 0, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
        const struct test_var list[] = {{says[i].name, says[i].value}, {NULL, NULL}};
        struct test_env test;
        struct test_vars vars;
        enum muster_log_level level = MUSTER_LOG_ERROR;
        enum muster_training_trace trace = MUSTER_TRAINING_TRACE_OFF;
        struct muster_error error = {.rc = MUSTER_OK};
        bool is_json = true;
        enum muster_rc rc;

        test_env_open(&test);
        test_vars_init(&vars, list);
        test.env.vars = &vars.vars;
        rc = muster_training_read_log(&test.env, &level, &is_json, &error);
        if (rc == MUSTER_OK)
            rc = muster_training_read_trace(&test.env, &trace, &error);
        assert_int_equal(muster_strategy_check_variables(&test.env, &error), rc);

        if (rc != says[i].rc ||
            (rc == MUSTER_OK && ((int)level != says[i].level || is_json != says[i].is_json ||
                                 (int)trace != says[i].trace)))
            fail_msg("row %zu: %d %s", i, (int)rc, error.text);
        if (rc != MUSTER_OK) {
            assert_ptr_equal(strstr(error.text, says[i].name), error.text);
            assert_non_null(strstr(error.text, says[i].value));
        }
        test_env_close(&test);
    }
}

/* --- one member per process --- */

static void a_process_of_a_launcher_is_one_member_and_returns_once(void **state)
{
    struct muster_node_options first = {.is_return = true}, second, unnamed = {.is_return = true};
    struct muster_error error;
    bool is_taken = false;

    (void)state;
    assert_int_equal(muster_training_take_incarnation(&unnamed, &is_taken, &error), MUSTER_OK);
    assert_false(is_taken); /* no launcher: as many as the program likes */
    assert_true(unnamed.is_return);

    first.incarnation.bytes[15] = 1;
    second = first;
    assert_int_equal(muster_training_take_incarnation(&first, &is_taken, &error), MUSTER_OK);
    assert_true(is_taken);
    assert_true(first.is_return);
    is_taken = false;
    assert_int_equal(muster_training_take_incarnation(&second, &is_taken, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_false(is_taken);
    assert_non_null(strstr(error.text, "a strategy is open in this process"));

    muster_training_give_incarnation();
    assert_int_equal(muster_training_take_incarnation(&second, &is_taken, &error), MUSTER_OK);
    assert_true(is_taken);
    assert_false(second.is_return);
    muster_training_give_incarnation();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_whole_or_refused_by_name),
        cmocka_unit_test(a_bound_of_waits_for_devices_is_read_or_refused_by_name),
        cmocka_unit_test(the_slots_of_a_constant_batch_are_read_or_refused_by_name),
        cmocka_unit_test(an_incarnation_is_all_of_it),
        cmocka_unit_test(a_host_key_has_room),
        cmocka_unit_test(a_table_of_plans_that_is_not_there_is_named),
        cmocka_unit_test(log_and_trace_are_as_said_or_refused_by_name),
        cmocka_unit_test(a_process_of_a_launcher_is_one_member_and_returns_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
