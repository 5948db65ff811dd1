/* Transactions of the registry: compares, branches, bounds, all or nothing. */
#include "mvcc_stage.h"

#include <string.h>

/* Transactions, built from lines: "if" compares, "then" ops, "else" ops. */

static struct muster_mvcc_compare compare(const char *key, int target, int relation, int64_t number)
{
    return (struct muster_mvcc_compare){.span.key = mvcc_stage_bytes_of(key),
                                        .span.end = {.data = "", .size = 0},
                                        .target = target,
                                        .relation = relation,
                                        .number = number};
}

static struct muster_mvcc_compare compare_value(const char *key, int relation, const char *value)
{
    struct muster_mvcc_compare result = compare(key, MUSTER_MVCC_COMPARE_VALUE, relation, 0);

    result.value = mvcc_stage_bytes_of(value);
    return result;
}

static void compares_decide_as_etcd_does(void **state)
{
    struct {
        const char *name;
        struct muster_mvcc_compare compare;
        bool holds;
    } rows[] = {
        {"version equal", compare("a", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_EQUAL, 2), true},
        {"create less", compare("a", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_LESS, 2), false},
        {"mod greater", compare("a", MUSTER_MVCC_COMPARE_MOD, MUSTER_MVCC_GREATER, 2), true},
        {"lease", compare("b", MUSTER_MVCC_COMPARE_LEASE, MUSTER_MVCC_EQUAL, 7), true},
        {"value equal", compare_value("a", MUSTER_MVCC_EQUAL, "9"), true},
        {"value not equal", compare_value("a", MUSTER_MVCC_NOT_EQUAL, "9"), false},
        {"value less in byte order", compare_value("a", MUSTER_MVCC_GREATER, "10"), true},
        {"missing key has create 0", compare("x", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_EQUAL, 0),
         true},
        {"missing key has version 0",
         compare("x", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_GREATER, 0), false},
        {"value of a missing key", compare_value("x", MUSTER_MVCC_NOT_EQUAL, "9"), false},
        {"deleted key is missing", compare("d", MUSTER_MVCC_COMPARE_MOD, MUSTER_MVCC_EQUAL, 0),
         true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mvcc_stage f;
        struct muster_mvcc_request request =
            mvcc_stage_txn_of(&rows[i].compare, 1, NULL, 0, NULL, 0);

        mvcc_stage_open(&f);
        mvcc_stage_run_script(&f, "put a 1;put b 2 lease=7;put a 9;put d 1;del d");
        mvcc_stage_apply(&f, &request);
        if (strcmp(f.text, rows[i].holds ? "yes" : "no") != 0)
            print_error("row %s\n", rows[i].name);
        assert_string_equal(f.text, rows[i].holds ? "yes" : "no");
        mvcc_stage_close(&f);
    }
}

static void compare_of_a_range_must_hold_for_every_key(void **state)
{
    struct mvcc_stage f;
    struct muster_mvcc_compare all =
        compare("a", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_EQUAL, 1);
    struct muster_mvcc_request request = mvcc_stage_txn_of(&all, 1, NULL, 0, NULL, 0);

    (void)state;
    all.span.end = mvcc_stage_bytes_of("*");
    mvcc_stage_open(&f);
    mvcc_stage_run_script(&f, ABC);

    mvcc_stage_apply(&f, &request);
    assert_string_equal(f.text, "yes");
    mvcc_stage_run_script(&f, "put b 5");
    f.text[0] = '\0';
    mvcc_stage_apply(&f, &request);
    assert_string_equal(f.text, "no");

    mvcc_stage_close(&f);
}

static void txn_shares_one_revision_and_sees_its_own_writes(void **state)
{
    struct mvcc_stage f;
    char text[4][64];
    struct muster_mvcc_request ops[4] = {
        mvcc_stage_op(text[0], "put x 1"), mvcc_stage_op(text[1], "range x"),
        mvcc_stage_op(text[2], "del a"), mvcc_stage_op(text[3], "put y 2")};
    struct muster_mvcc_request request = mvcc_stage_txn_of(NULL, 0, ops, 4, NULL, 0);

    (void)state;
    mvcc_stage_open(&f);
    mvcc_stage_run_script(&f, ABC);

    mvcc_stage_apply(&f, &request);

    assert_string_equal(f.text, "yes [put] [x=1:5,5,1 #1] [-1] [put]");
    assert_int_equal(f.mvcc.meta.revision, 5);
    assert_string_equal(mvcc_stage_line(&f, "range y"), "y=2:5,5,1 #1");
    mvcc_stage_close(&f);
}

static void nested_compares_see_the_state_before_the_txn(void **state)
{
    struct mvcc_stage f;
    char text[3][64];
    struct muster_mvcc_compare absent =
        compare("x", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_EQUAL, 0);
    struct muster_mvcc_request then = mvcc_stage_op(text[0], "put y 1");
    struct muster_mvcc_request otherwise = mvcc_stage_op(text[1], "put y 2");
    struct muster_mvcc_request ops[2] = {mvcc_stage_op(text[2], "put x 1"),
                                         mvcc_stage_txn_of(&absent, 1, &then, 1, &otherwise, 1)};
    struct muster_mvcc_request request = mvcc_stage_txn_of(NULL, 0, ops, 2, NULL, 0);

    (void)state;
    mvcc_stage_open(&f);

    mvcc_stage_apply(&f, &request);

    assert_string_equal(f.text, "yes [put] [yes [put]]");
    assert_string_equal(mvcc_stage_line(&f, "range y"), "y=1:2,2,1 #1");
    mvcc_stage_close(&f);
}

struct bad_txn {
    const char *name;
    const char *ops[3];
    const char *answer;
};

static void an_invalid_op_fails_the_whole_txn_before_any_write(void **state)
{
    static const char duplicate[] =
        "INVALID_ARGUMENT etcdserver: duplicate key given in txn request";
    static const struct bad_txn rows[] = {
        {"put twice", {"put x 1", "put y 1", "put x 2"}, duplicate},
        {"put under a delete", {"del w z", "put y 1", "range a"}, duplicate},
        {"overlapping deletes are fine", {"del a c", "del a", "range a"}, "yes [-2] [-0] [#0]"},
        {"empty key",
         {"put x 1", "put '' 1", "range a"},
         "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"no operation",
         {"put x 1", "nothing", "range a"},
         "INVALID_ARGUMENT etcdserver: key not found"},
        {"unknown lease",
         {"put x 1", "put y 1 lease=9", "range a"},
         "NOT_FOUND etcdserver: requested lease not found"},
        {"future range", {"put x 1", "range a rev=9", "range a"}, FUTURE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mvcc_stage f;
        char text[3][64];
        struct muster_mvcc_request ops[3];
        struct muster_mvcc_request request = mvcc_stage_txn_of(NULL, 0, ops, 3, NULL, 0);

        for (int k = 0; k < 3; k++)
            ops[k] = mvcc_stage_op(text[k], rows[i].ops[k]);
        mvcc_stage_open(&f);
        mvcc_stage_run_script(&f, ABC);
        mvcc_stage_apply(&f, &request);
        assert_string_equal(f.text, rows[i].answer);
        if (strncmp(f.text, "yes", 3) != 0)
            assert_int_equal(f.mvcc.meta.revision, 4);
        assert_string_equal(mvcc_stage_line(&f, "range x"), "#0");
        mvcc_stage_close(&f);
    }
}

static void lists_are_bounded_and_inner_txns_get_what_is_left(void **state)
{
    struct mvcc_stage f;
    char text[64];
    static struct muster_mvcc_request ops[OPS_MAX];
    struct muster_mvcc_request inner[2];
    struct muster_mvcc_request request;
    static const char refused[] = "INVALID_ARGUMENT etcdserver: too many operations in txn request";

    (void)state;
    mvcc_stage_open(&f);
    for (size_t i = 0; i < OPS_MAX; i++)
        ops[i] = mvcc_stage_op(text, "range a");

    request = mvcc_stage_txn_of(NULL, 0, ops, 128, NULL, 0);
    mvcc_stage_apply(&f, &request);
    assert_memory_equal(f.text, "yes", 3);
    f.text[0] = '\0';
    request = mvcc_stage_txn_of(NULL, 0, ops, 129, NULL, 0);
    mvcc_stage_apply(&f, &request);
    assert_string_equal(f.text, refused);
    f.text[0] = '\0';
    inner[0] = mvcc_stage_txn_of(NULL, 0, ops, 127, NULL, 0);
    inner[1] = ops[0];
    request = mvcc_stage_txn_of(NULL, 0, inner, 2, NULL, 0);
    mvcc_stage_apply(&f, &request);
    assert_string_equal(f.text, refused);

    mvcc_stage_close(&f);
}

static void both_branches_of_an_inner_txn_may_put_one_key(void **state)
{
    struct mvcc_stage f;
    char text[3][64];
    struct muster_mvcc_request then = mvcc_stage_op(text[0], "put x 1");
    struct muster_mvcc_request otherwise = mvcc_stage_op(text[1], "put x 2");
    struct muster_mvcc_request ops[2] = {mvcc_stage_txn_of(NULL, 0, &then, 1, &otherwise, 1),
                                         mvcc_stage_op(text[2], "put x 3")};
    struct muster_mvcc_request alone = mvcc_stage_txn_of(NULL, 0, ops, 1, NULL, 0);
    struct muster_mvcc_request both = mvcc_stage_txn_of(NULL, 0, ops, 2, NULL, 0);

    (void)state;
    mvcc_stage_open(&f);

    mvcc_stage_apply(&f, &alone);
    assert_string_equal(f.text, "yes [yes [put]]");
    f.text[0] = '\0';
    mvcc_stage_apply(&f, &both);
    assert_string_equal(f.text, "INVALID_ARGUMENT etcdserver: duplicate key given in txn request");

    mvcc_stage_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares_decide_as_etcd_does),
        cmocka_unit_test(compare_of_a_range_must_hold_for_every_key),
        cmocka_unit_test(txn_shares_one_revision_and_sees_its_own_writes),
        cmocka_unit_test(nested_compares_see_the_state_before_the_txn),
        cmocka_unit_test(an_invalid_op_fails_the_whole_txn_before_any_write),
        cmocka_unit_test(lists_are_bounded_and_inner_txns_get_what_is_left),
        cmocka_unit_test(both_branches_of_an_inner_txn_may_put_one_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
