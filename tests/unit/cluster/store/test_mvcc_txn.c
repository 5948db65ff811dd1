/* Transactions of the registry: compares, branches, bounds, all or nothing. */
#include "mvcc_stage.h"
#include "scene_case.h"
#include "store_stage.h"

#include <string.h>

/* Transactions, built from lines: "if" compares, "then" ops, "else" ops. */

static struct muster_mvcc_compare make_compare(const char *key, int target, int relation,
                                               int64_t number)
{
    return (struct muster_mvcc_compare){.span.key = mvcc_stage_bytes_of(key),
                                        .span.end = {.data = "", .size = 0},
                                        .target = target,
                                        .relation = relation,
                                        .number = number};
}

static struct muster_mvcc_compare compare_value(const char *key, int relation, const char *value)
{
    struct muster_mvcc_compare result = make_compare(key, MUSTER_MVCC_COMPARE_VALUE, relation, 0);

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
        {"version equal", make_compare("a", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_EQUAL, 2),
         true},
        {"create less", make_compare("a", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_LESS, 2), false},
        {"mod greater", make_compare("a", MUSTER_MVCC_COMPARE_MOD, MUSTER_MVCC_GREATER, 2), true},
        {"lease", make_compare("b", MUSTER_MVCC_COMPARE_LEASE, MUSTER_MVCC_EQUAL, 7), true},
        {"value equal", compare_value("a", MUSTER_MVCC_EQUAL, "9"), true},
        {"value not equal", compare_value("a", MUSTER_MVCC_NOT_EQUAL, "9"), false},
        {"value less in byte order", compare_value("a", MUSTER_MVCC_GREATER, "10"), true},
        {"missing key has create 0",
         make_compare("x", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_EQUAL, 0), true},
        {"missing key has version 0",
         make_compare("x", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_GREATER, 0), false},
        {"value of a missing key", compare_value("x", MUSTER_MVCC_NOT_EQUAL, "9"), false},
        {"deleted key is missing", make_compare("d", MUSTER_MVCC_COMPARE_MOD, MUSTER_MVCC_EQUAL, 0),
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

SCENE_CASES(struct mvcc_stage, mvcc_stage_open, mvcc_stage_close)

static void compare_of_a_range_must_hold_for_every_key(void **state)
{
    struct mvcc_stage *f = *state;
    struct muster_mvcc_compare all =
        make_compare("a", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_EQUAL, 1);
    struct muster_mvcc_request request = mvcc_stage_txn_of(&all, 1, NULL, 0, NULL, 0);

    all.span.end = mvcc_stage_bytes_of("*");
    mvcc_stage_run_script(f, ABC);

    mvcc_stage_apply(f, &request);
    assert_string_equal(f->text, "yes");
    mvcc_stage_run_script(f, "put b 5");
    f->text[0] = '\0';
    mvcc_stage_apply(f, &request);
    assert_string_equal(f->text, "no");
}

static void txn_shares_one_revision_and_sees_its_own_writes(void **state)
{
    struct mvcc_stage *f = *state;
    char text[4][64];
    struct muster_mvcc_request ops[4] = {
        mvcc_stage_op(text[0], "put x 1"), mvcc_stage_op(text[1], "range x"),
        mvcc_stage_op(text[2], "del a"), mvcc_stage_op(text[3], "put y 2")};
    struct muster_mvcc_request request = mvcc_stage_txn_of(NULL, 0, ops, 4, NULL, 0);

    mvcc_stage_run_script(f, ABC);

    mvcc_stage_apply(f, &request);

    assert_string_equal(f->text, "yes [put] [x=1:5,5,1 #1] [-1] [put]");
    assert_int_equal(f->mvcc.meta.revision, 5);
    assert_string_equal(mvcc_stage_line(f, "range y"), "y=2:5,5,1 #1");
}

static void nested_compares_see_the_state_before_the_txn(void **state)
{
    struct mvcc_stage *f = *state;
    char text[3][64];
    struct muster_mvcc_compare absent =
        make_compare("x", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_EQUAL, 0);
    struct muster_mvcc_request then = mvcc_stage_op(text[0], "put y 1");
    struct muster_mvcc_request otherwise = mvcc_stage_op(text[1], "put y 2");
    struct muster_mvcc_request ops[2] = {mvcc_stage_op(text[2], "put x 1"),
                                         mvcc_stage_txn_of(&absent, 1, &then, 1, &otherwise, 1)};
    struct muster_mvcc_request request = mvcc_stage_txn_of(NULL, 0, ops, 2, NULL, 0);

    mvcc_stage_apply(f, &request);

    assert_string_equal(f->text, "yes [put] [yes [put]]");
    assert_string_equal(mvcc_stage_line(f, "range y"), "y=1:2,2,1 #1");
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
    struct mvcc_stage *f = *state;
    char text[64];
    static struct muster_mvcc_request ops[OPS_MAX];
    struct muster_mvcc_request inner[2];
    struct muster_mvcc_request request;
    static const char refused[] = "INVALID_ARGUMENT etcdserver: too many operations in txn request";

    for (size_t i = 0; i < OPS_MAX; i++)
        ops[i] = mvcc_stage_op(text, "range a");

    request = mvcc_stage_txn_of(NULL, 0, ops, 128, NULL, 0);
    mvcc_stage_apply(f, &request);
    assert_memory_equal(f->text, "yes", 3);
    f->text[0] = '\0';
    request = mvcc_stage_txn_of(NULL, 0, ops, 129, NULL, 0);
    mvcc_stage_apply(f, &request);
    assert_string_equal(f->text, refused);
    f->text[0] = '\0';
    inner[0] = mvcc_stage_txn_of(NULL, 0, ops, 127, NULL, 0);
    inner[1] = ops[0];
    request = mvcc_stage_txn_of(NULL, 0, inner, 2, NULL, 0);
    mvcc_stage_apply(f, &request);
    assert_string_equal(f->text, refused);
}

/* Rows that a compare needs are gone, or cannot be read. */
static void damage_of_the_store_breaks_a_compare(void **state)
{
    static const struct {
        int target;
        const char *damage;
        enum muster_rc rc;
    } rows[] = {
        {MUSTER_MVCC_COMPARE_VERSION, "DROP TABLE keys", MUSTER_UNAVAILABLE},
        {MUSTER_MVCC_COMPARE_VALUE, "DROP TABLE keys", MUSTER_UNAVAILABLE},
        {MUSTER_MVCC_COMPARE_VALUE, "DELETE FROM log WHERE seq = 1", MUSTER_DATA_LOSS},
    };

    (void)state;
    for (size_t inner = 0; inner < 2; inner++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            struct mvcc_stage f;
            struct muster_mvcc_compare wanted =
                make_compare("a", rows[i].target, MUSTER_MVCC_EQUAL, 1);
            struct muster_mvcc_request request = mvcc_stage_txn_of(&wanted, 1, NULL, 0, NULL, 0);
            struct muster_mvcc_request outer = mvcc_stage_txn_of(NULL, 0, &request, 1, NULL, 0);
            struct muster_mvcc_result result;
            struct muster_error error;
            bool is_broken = false;
            enum muster_rc rc;

            mvcc_stage_open(&f);
            mvcc_stage_run_script(&f, ABC);
            store_stage_run_sql(muster_registry_store_database(f.store), rows[i].damage);

            rc = muster_mvcc_apply(&f.mvcc, inner == 1 ? &outer : &request, &f.arena, &result,
                                   &error, &is_broken);
            if (rc != rows[i].rc || error.rc != rows[i].rc || !is_broken)
                fail_msg("row %zu: %s %s", i, muster_rc_name(rc), error.text);
            mvcc_stage_close(&f);
        }
}

static void a_key_is_written_once_by_all_that_can_run_together(void **state)
{
    static const char refused[] = "INVALID_ARGUMENT etcdserver: duplicate key given in txn request";
    static const struct {
        const char *name;
        const char *then[2], *otherwise[2]; /* of an inner transaction */
        const char *next;                   /* beside it */
        bool is_next_inner;
        const char *answer;
    } rows[] = {
        {"both branches put", {"put x 1"}, {"put x 2"}, "range a", false, "yes [yes [put]] [#0]"},
        {"branches put and delete",
         {"put x 1"},
         {"del x"},
         "range a",
         false,
         "yes [yes [put]] [#0]"},
        {"put twice in a branch", {"put x 1", "put x 2"}, {NULL}, "range a", false, refused},
        {"put twice in the other", {NULL}, {"put x 1", "put x 2"}, "range a", false, refused},
        {"put within and beside", {"put x 1"}, {NULL}, "put x 2", false, refused},
        {"put in the other, and beside", {NULL}, {"put x 1"}, "put x 2", false, refused},
        {"put within, deleted beside", {"put x 1"}, {NULL}, "del w z", false, refused},
        {"deleted within, put beside", {"del w z"}, {NULL}, "put x 1", false, refused},
        {"deleted in the other, put beside", {NULL}, {"del w z"}, "put x 1", false, refused},
        {"put in two of them", {"put x 1"}, {NULL}, "put x 2", true, refused},
        {"put in the other branch of one", {NULL}, {"put x 1"}, "put x 2", true, refused},
        {"deleted in one, put in the next", {"del w z"}, {NULL}, "put x 1", true, refused},
        {"different keys",
         {"put x 1", "put y 1"},
         {"put y 1"},
         "put z 2",
         true,
         "yes [yes [put] [put]] [yes [put]]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mvcc_stage f;
        char text[5][64];
        struct muster_mvcc_request lists[2][2], next = mvcc_stage_op(text[4], rows[i].next);
        size_t counts[2] = {0, 0};
        struct muster_mvcc_request ops[2], request;

        for (size_t k = 0; k < 4; k++) {
            const char *op = k < 2 ? rows[i].then[k] : rows[i].otherwise[k - 2];

            if (op != NULL)
                lists[k / 2][counts[k / 2]++] = mvcc_stage_op(text[k], op);
        }
        ops[0] = mvcc_stage_txn_of(NULL, 0, lists[0], counts[0], lists[1], counts[1]);
        ops[1] = rows[i].is_next_inner ? mvcc_stage_txn_of(NULL, 0, &next, 1, NULL, 0) : next;
        request = mvcc_stage_txn_of(NULL, 0, ops, 2, NULL, 0);
        mvcc_stage_open(&f);

        mvcc_stage_apply(&f, &request);
        if (strcmp(f.text, rows[i].answer) != 0)
            fail_msg("%s: %s", rows[i].name, f.text);
        mvcc_stage_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares_decide_as_etcd_does),
        CASE(compare_of_a_range_must_hold_for_every_key),
        CASE(txn_shares_one_revision_and_sees_its_own_writes),
        CASE(nested_compares_see_the_state_before_the_txn),
        cmocka_unit_test(an_invalid_op_fails_the_whole_txn_before_any_write),
        CASE(lists_are_bounded_and_inner_txns_get_what_is_left),
        cmocka_unit_test(damage_of_the_store_breaks_a_compare),
        cmocka_unit_test(a_key_is_written_once_by_all_that_can_run_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
