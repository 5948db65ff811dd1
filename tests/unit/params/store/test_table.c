/* Schemas and tables: what a schema may say, which schemas are equal, and how many tables there
 * may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

#define NAME_63 "a23456789b123456789c123456789d123456789e123456789f123456789g123"

/* Designators that come after SGD replace its fields. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define SGD(...)                                                                                   \
    {                                                                                              \
        .name = "t", .row_elements = 4, .wire_dtype = MUSTER_F32, .optimizer = MUSTER_PARAMS_SGD,  \
        __VA_ARGS__                                                                                \
    }

/* --- What a schema may say --- */

static void each_wrong_part_of_a_schema_is_named(void **state)
{
    static const struct {
        struct muster_params_schema schema;
        const char *text;
    } rows[] = {
        {SGD(.name = NULL), "the name of a table must have 1 to 63 bytes, got 0"},
        {SGD(.name = ""), "the name of a table must have 1 to 63 bytes, got 0"},
        {SGD(.name = NAME_63 "4"), "the name of a table must have 1 to 63 bytes, got 64 or more"},
        {SGD(.name = "a\xff"), "the name of a table must be UTF-8 without control characters"},
        {SGD(.name = "a\n"), "the name of a table must be UTF-8 without control characters"},
        {SGD(.row_elements = 0), "table t: row_elements must be from 1 to 16384, got 0"},
        {SGD(.row_elements = 16385), "table t: row_elements must be from 1 to 16384, got 16385"},
        {SGD(.wire_dtype = MUSTER_F64), "table t: wire_dtype must be f32, f16 or bf16, got f64"},
        {SGD(.wire_dtype = MUSTER_I32), "table t: wire_dtype must be f32, f16 or bf16, got i32"},
        {SGD(.optimizer = (enum muster_params_optimizer)11),
         "table t: optimizer must be from 0 to 10, got 11"},
        {SGD(.init = (enum muster_params_init)4), "table t: init must be from 0 to 3, got 4"},
        {SGD(.optimizer = MUSTER_PARAMS_ADD, .learning_rate = 0.5f),
         "table t: optimizer add has no learning_rate, got 0.5; leave it 0"},
        {SGD(.learning_rate = -1), "table t: learning_rate must be from 0 to 1e+30, got -1"},
        {SGD(.learning_rate = NAN), "table t: learning_rate must be from 0 to 1e+30, got nan"},
        {SGD(.learning_rate = INFINITY),
         "table t: learning_rate must be from 0 to 1e+30, got inf"},
        {SGD(.beta1 = 0.5f), "table t: optimizer sgd has no beta1, got 0.5; leave it 0"},
        {SGD(.beta1 = NAN), "table t: optimizer sgd has no beta1, got nan; leave it 0"},
        {SGD(.optimizer = MUSTER_PARAMS_MOMENTUM, .beta1 = 1),
         "table t: beta1 must be from 0 to 1, got 1"},
        {SGD(.optimizer = MUSTER_PARAMS_NESTEROV, .beta2 = 0.5f),
         "table t: optimizer nesterov has no beta2, got 0.5; leave it 0"},
        {SGD(.optimizer = MUSTER_PARAMS_ADAM, .beta2 = 1),
         "table t: beta2 must be from 0 to 1, got 1"},
        {SGD(.optimizer = MUSTER_PARAMS_FTRL, .beta2 = 0.5f),
         "table t: optimizer ftrl has no beta2, got 0.5; leave it 0"},
        {SGD(.epsilon = 1), "table t: optimizer sgd has no epsilon, got 1; leave it 0"},
        {SGD(.optimizer = MUSTER_PARAMS_ADAGRAD, .epsilon = -1e-3f),
         "table t: epsilon must be from 0 to 1e+30, got -0.001"},
        {SGD(.l1 = 1), "table t: optimizer sgd has no l1, got 1; leave it 0"},
        {SGD(.optimizer = MUSTER_PARAMS_ADAM, .l2 = 1),
         "table t: optimizer adam has no l2, got 1; leave it 0"},
        {SGD(.optimizer = MUSTER_PARAMS_FTRL, .l1 = -1),
         "table t: l1 must be from 0 to 1e+30, got -1"},
        {SGD(.is_by_round = true, .rows_max = 1),
         "table t: a table by round has no admit_after, admit_share, ttl_clocks and rows_max; leave them 0"},
        {SGD(.tensor_elements = (UINT64_C(1) << 40) + 1, .row_elements = 1024),
         "table t: tensor_elements must be at most 1099511627776, got 1099511627777"},
        {SGD(.tensor_elements = 5000, .row_elements = 1023),
         "table t: a tensor must have blocks (row_elements) of 1024 elements or more, got 1023"},
        {SGD(.tensor_elements = 5000, .row_elements = 1024, .rows_max = 5),
         "table t: a tensor has no admit_after, admit_share, ttl_clocks and rows_max; leave them 0"},
        {SGD(.admit_after = 65536), "table t: admit_after must be at most 65535, got 65536"},
        {SGD(.rows_max = 5, .evict_by = (enum muster_params_evict)2),
         "table t: evict_by must be from 0 to 1, got 2"},
        {SGD(.evict_by = MUSTER_PARAMS_EVICT_LFU), "table t: evict_by lfu needs rows_max"},
        {SGD(.admit_share = 65536), "table t: admit_share must be at most 65535, got 65536"},
        {SGD(.ttl_clocks = UINT64_C(1) << 31),
         "table t: ttl_clocks must be below 2^31, got 2147483648"},
        {SGD(.init_scale = 1), "table t: optimizer sgd has no init_scale, got 1; leave it 0"},
        {SGD(.init = MUSTER_PARAMS_INIT_UNIFORM, .init_scale = -2),
         "table t: init_scale must be from 0 to 1e+30, got -2"},
        {SGD(.init = MUSTER_PARAMS_INIT_CONSTANT, .init_scale = NAN),
         "table t: init_scale must be from 0 to 1e+30, got nan"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};

        fail_if(muster_params_schema_check(&rows[i].schema, &error) != MUSTER_INVALID_ARGUMENT,
                "%s: accepted", rows[i].text);
        assert_string_equal(error.text, rows[i].text);
    }
}

static void a_schema_at_its_limits_is_right(void **state)
{
    static const struct {
        const char *name;
        struct muster_params_schema schema;
    } rows[] = {
        {"plain", SGD(.l1 = 0)},
        {"long name", SGD(.name = NAME_63)},
        {"one element", SGD(.row_elements = 1)},
        {"widest row", SGD(.row_elements = 16384)},
        {"f16", SGD(.wire_dtype = MUSTER_F16)},
        {"bf16", SGD(.wire_dtype = MUSTER_BF16)},
        {"highest rate", SGD(.learning_rate = 1e30f)},
        {"highest betas", SGD(.optimizer = MUSTER_PARAMS_ADAM, .beta1 = 0.9999999f,
                              .beta2 = 0.9999999f)},
        {"beta of ftrl", SGD(.optimizer = MUSTER_PARAMS_FTRL, .beta1 = 3, .l1 = 1, .l2 = 2)},
        {"epsilon", SGD(.optimizer = MUSTER_PARAMS_ROW_ADAGRAD, .epsilon = 1)},
        {"negative constant", SGD(.init = MUSTER_PARAMS_INIT_CONSTANT, .init_scale = -2)},
        {"admitted late", SGD(.admit_after = 65535)},
        {"admitted by a hash", SGD(.admit_share = 65535)},
        {"expiring", SGD(.ttl_clocks = (UINT64_C(1) << 31) - 1)},
        {"a tensor", SGD(.tensor_elements = 5000, .row_elements = 1024)},
        {"evicting", SGD(.rows_max = UINT64_MAX)},
        {"evicting by counts", SGD(.rows_max = 5, .evict_by = MUSTER_PARAMS_EVICT_LFU)},
        {"last init", SGD(.init = MUSTER_PARAMS_INIT_NORMAL, .init_scale = 1)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};

        fail_if(muster_params_schema_check(&rows[i].schema, &error) != MUSTER_OK, "%s: %s",
                rows[i].name, error.text);
    }
}

static void optimizers_are_found_by_their_names(void **state)
{
    enum muster_params_optimizer optimizer = MUSTER_PARAMS_FTRL;

    (void)state;
    for (uint32_t i = 0; i < MUSTER_PARAMS_OPTIMIZER_COUNT; i++) {
        const char *name = muster_params_optimizer_name((enum muster_params_optimizer)i);

        assert_int_equal(muster_params_optimizer_parse(name, &optimizer), MUSTER_OK);
        assert_int_equal(optimizer, i);
    }
    assert_string_equal(muster_params_optimizer_name(MUSTER_PARAMS_ROW_ADAGRAD), "row_adagrad");
    assert_string_equal(
        muster_params_optimizer_name((enum muster_params_optimizer)MUSTER_PARAMS_OPTIMIZER_COUNT),
        "unknown");
    assert_int_equal(muster_params_optimizer_parse("adamw", &optimizer), MUSTER_NOT_FOUND);
    assert_int_equal(optimizer, MUSTER_PARAMS_CLOCK_SUM);
}

/* --- Equal schemas --- */

static void defaults_count_as_what_they_stand_for(void **state)
{
    static const struct {
        const char *name;
        struct muster_params_schema left, right;
    } rows[] = {
        {"sgd", SGD(.l1 = 0), SGD(.learning_rate = 0.01f)},
        {"momentum", SGD(.optimizer = MUSTER_PARAMS_MOMENTUM),
         SGD(.optimizer = MUSTER_PARAMS_MOMENTUM, .learning_rate = 0.01f, .beta1 = 0.9f)},
        {"nesterov", SGD(.optimizer = MUSTER_PARAMS_NESTEROV),
         SGD(.optimizer = MUSTER_PARAMS_NESTEROV, .learning_rate = 0.01f, .beta1 = 0.9f)},
        {"adagrad", SGD(.optimizer = MUSTER_PARAMS_ADAGRAD),
         SGD(.optimizer = MUSTER_PARAMS_ADAGRAD, .learning_rate = 0.01f, .epsilon = 1e-10f)},
        {"row_adagrad", SGD(.optimizer = MUSTER_PARAMS_ROW_ADAGRAD),
         SGD(.optimizer = MUSTER_PARAMS_ROW_ADAGRAD, .learning_rate = 0.01f, .epsilon = 1e-10f)},
        {"adam", SGD(.optimizer = MUSTER_PARAMS_ADAM),
         SGD(.optimizer = MUSTER_PARAMS_ADAM, .learning_rate = 0.001f, .beta1 = 0.9f,
             .beta2 = 0.999f, .epsilon = 1e-8f)},
        {"ftrl", SGD(.optimizer = MUSTER_PARAMS_FTRL),
         SGD(.optimizer = MUSTER_PARAMS_FTRL, .learning_rate = 0.05f, .beta1 = 1)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_params_schema_descriptor(&rows[i].left) !=
                    muster_params_schema_descriptor(&rows[i].right),
                "%s", rows[i].name);
}

#define ADAM(...)                                                                                  \
    SGD(.optimizer = MUSTER_PARAMS_ADAM, .init = MUSTER_PARAMS_INIT_NORMAL, .init_scale = 1,       \
        __VA_ARGS__)
#define FTRL(...) SGD(.optimizer = MUSTER_PARAMS_FTRL, __VA_ARGS__)

static void each_part_of_a_schema_tells_tables_apart(void **state)
{
    static const struct {
        const char *name;
        struct muster_params_schema left, right;
    } rows[] = {
        {"name", ADAM(.l1 = 0), ADAM(.name = "u")},
        {"elements", ADAM(.l1 = 0), ADAM(.row_elements = 5)},
        {"wire_dtype", ADAM(.l1 = 0), ADAM(.wire_dtype = MUSTER_BF16)},
        {"optimizer", SGD(.optimizer = MUSTER_PARAMS_ADD), SGD(.optimizer = MUSTER_PARAMS_MAX)},
        {"learning_rate", ADAM(.l1 = 0), ADAM(.learning_rate = 0.5f)},
        {"beta1", ADAM(.l1 = 0), ADAM(.beta1 = 0.5f)},
        {"beta2", ADAM(.l1 = 0), ADAM(.beta2 = 0.5f)},
        {"epsilon", ADAM(.l1 = 0), ADAM(.epsilon = 0.5f)},
        {"l1", FTRL(.l1 = 0), FTRL(.l1 = 1)},
        {"l2", FTRL(.l2 = 0), FTRL(.l2 = 1)},
        {"init", ADAM(.l1 = 0), ADAM(.init = MUSTER_PARAMS_INIT_UNIFORM)},
        {"init_scale", ADAM(.l1 = 0), ADAM(.init_scale = 2)},
        {"init_seed", ADAM(.l1 = 0), ADAM(.init_seed = 2)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_params_schema_descriptor(&rows[i].left) ==
                    muster_params_schema_descriptor(&rows[i].right),
                "%s", rows[i].name);
}

/* --- Tables --- */

static void each_part_that_differs_is_named_with_both_values(void **state)
{
    static const struct {
        struct muster_params_schema has, asks;
        const char *text;
    } rows[] = {
        {ADAM(.beta1 = 0.5f), ADAM(.l1 = 0), "beta1 0.5, the caller's schema has 0.9"},
        {ADAM(.beta2 = 0.5f), ADAM(.l1 = 0), "beta2 0.5, the caller's schema has 0.999"},
        {ADAM(.epsilon = 0.5f), ADAM(.l1 = 0), "epsilon 0.5, the caller's schema has 1e-08"},
        {FTRL(.l1 = 2), FTRL(.l2 = 0), "l1 2, the caller's schema has 0"},
        {FTRL(.l2 = 2), FTRL(.l2 = 0), "l2 2, the caller's schema has 0"},
        {ADAM(.init_scale = 3), ADAM(.l1 = 0), "init_scale 3, the caller's schema has 1"},
        {ADAM(.init_seed = UINT64_MAX), ADAM(.l1 = 0),
         "init_seed 18446744073709551615, the caller's schema has 0"},
        {SGD(.is_by_round = true, .is_round_mean = true), SGD(.is_by_round = true),
         "is_round_mean 1, the caller's schema has 0"},
        {SGD(.is_by_round = true, .round_quorum = 3), SGD(.is_by_round = true),
         "round_quorum 3, the caller's schema has 0"},
        {SGD(.is_by_round = true, .round_grace_ns = 3), SGD(.is_by_round = true),
         "round_grace_ns 3, the caller's schema has 0"},
        {SGD(.rows_max = 3, .evict_by = MUSTER_PARAMS_EVICT_LFU), SGD(.rows_max = 3),
         "evict_by lfu, the caller's schema has lru"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_store_table *table;
        struct region_stand stand;
        struct muster_error error;

        region_stand_open(&stand, 16 * MIB, 4);
        region_table(&stand, &rows[i].has);
        fail_if(muster_params_table_open(&stand.region, &rows[i].asks, &table, &error) !=
                        MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].text, error.text);
        region_stand_close(&stand);
    }
}

static void a_table_is_opened_again_by_an_equal_schema(void **state)
{
    static const struct muster_params_schema schema = SGD(.l1 = 0), other = SGD(.name = "u");
    struct region_stand stand;
    struct muster_params_store_table *table, *second;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    table = region_table(&stand, &schema);
    second = region_table(&stand, &other);

    assert_ptr_equal(region_table(&stand, &schema), table);
    assert_ptr_equal(region_table(&stand, &other), second);
    assert_ptr_equal(muster_params_table_find(&stand.region, "u"), second);
    assert_null(muster_params_table_find(&stand.region, "v"));
    assert_int_equal(muster_params_table_number(&stand.region, second), 1);
    assert_int_equal(stand.region.head->table_count, 2);
    region_stand_close(&stand);
}

static void another_schema_under_the_same_name_names_both_sides(void **state)
{
    static const struct muster_params_schema schema = SGD(.l1 = 0);
    static const struct {
        struct muster_params_schema schema;
        const char *text;
    } rows[] = {
        {SGD(.row_elements = 5, .optimizer = MUSTER_PARAMS_ADD),
         "table t has rows of 4 elements, the caller's schema has 5"},
        {SGD(.optimizer = MUSTER_PARAMS_ADAM, .wire_dtype = MUSTER_F16),
         "table t has optimizer sgd, the caller's schema has adam"},
        {SGD(.wire_dtype = MUSTER_BF16, .learning_rate = 1),
         "table t has values of f32 on the wire, the caller's schema has bf16"},
        {SGD(.is_by_round = true, .is_round_carried = true),
         "table t is not by round, the caller's schema is by round with late pushes carried "
         "(is_round_carried)"},
        {SGD(.learning_rate = 1), "table t has learning_rate 0.01, the caller's schema has 1"},
        {SGD(.learning_rate = 0.01000001f),
         "table t has learning_rate 0.00999999978, the caller's schema has 0.01000001"},
        {SGD(.init = MUSTER_PARAMS_INIT_NORMAL, .init_scale = 2),
         "table t has init zero, the caller's schema has normal"},
        {SGD(.init_seed = 7), "table t has init_seed 0, the caller's schema has 7"},
        {SGD(.ttl_clocks = 9), "table t has ttl_clocks 0, the caller's schema has 9"},
        {SGD(.admit_after = 3), "table t has admit_after 0, the caller's schema has 3"},
        {SGD(.admit_share = 4), "table t has admit_share 0, the caller's schema has 4"},
        {SGD(.rows_max = 10, .evict_by = MUSTER_PARAMS_EVICT_LFU),
         "table t has rows_max 0, the caller's schema has 10"},
    };
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_schema rate = SGD(.learning_rate = -1);
    struct muster_error error;
    char expected[MUSTER_ERROR_TEXT_BYTES];

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    region_table(&stand, &schema);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            muster_params_table_open(&stand.region, &rows[i].schema, &table, &error),
            MUSTER_INVALID_ARGUMENT);
        (void)snprintf(expected, sizeof(expected),
                       "%s; open it with its schema, or under another name", rows[i].text);
        assert_string_equal(error.text, expected);
    }
    assert_int_equal(muster_params_table_open(&stand.region, &rate, &table, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "table t: learning_rate must be from 0 to 1e+30, got -1");
    assert_int_equal(stand.region.head->table_count, 1);
    region_stand_close(&stand);
}

static enum muster_rc table_make(struct region_stand *stand, unsigned i,
                                 struct muster_params_store_table **ret_table,
                                 struct muster_error *ret_error)
{
    char name[16];
    struct muster_params_schema schema = SGD(.name = name);

    snprintf(name, sizeof(name), "t%u", i);
    return muster_params_table_open(&stand->region, &schema, ret_table, ret_error);
}

static void a_region_has_1024_tables(void **state)
{
    struct region_stand stand;
    struct muster_params_store_table *table = NULL, *last = NULL;
    struct muster_error error;

    (void)state;
    region_stand_open(&stand, (MUSTER_PARAMS_TABLES_MAX + 8) * MUSTER_PARAMS_SEGMENT_BYTES, 4);
    for (unsigned i = 0; i < MUSTER_PARAMS_TABLES_MAX; i++) {
        if (table_make(&stand, i, &last, &error) != MUSTER_OK)
            fail_msg("table %u: %s", i, error.text);
        assert_int_equal(muster_params_table_number(&stand.region, last), i);
    }

    assert_int_equal(table_make(&stand, MUSTER_PARAMS_TABLES_MAX, &table, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "table t1024 cannot be made: the server has 1024 tables of "
                                       "1024 and "));
    assert_int_equal(table_make(&stand, MUSTER_PARAMS_TABLES_MAX - 1, &table, &error), MUSTER_OK);
    assert_ptr_equal(table, last);
    region_stand_recover(&stand);
    assert_string_equal(muster_params_table_find(&stand.region, "t1023")->name, "t1023");
    region_stand_close(&stand);
}

static void a_table_for_which_there_is_no_memory_is_refused(void **state)
{
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_error error;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(table_make(&stand, i, &table, &error), MUSTER_OK);

    assert_int_equal(table_make(&stand, 7, &table, &error), MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "table t7 cannot be made: the server has 7 tables of 1024 and "
                                    "16777216 bytes in use of 16777216; start it with a "
                                    "higher --memory-max");
    assert_int_equal(table_make(&stand, 6, &table, &error), MUSTER_OK);
    region_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wrong_part_of_a_schema_is_named),
        cmocka_unit_test(a_schema_at_its_limits_is_right),
        cmocka_unit_test(optimizers_are_found_by_their_names),
        cmocka_unit_test(defaults_count_as_what_they_stand_for),
        cmocka_unit_test(each_part_of_a_schema_tells_tables_apart),
        cmocka_unit_test(a_table_is_opened_again_by_an_equal_schema),
        cmocka_unit_test(another_schema_under_the_same_name_names_both_sides),
        cmocka_unit_test(each_part_that_differs_is_named_with_both_values),
        cmocka_unit_test(a_region_has_1024_tables),
        cmocka_unit_test(a_table_for_which_there_is_no_memory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
