/* Slices: sorted, each index once, and added in the order in which they stand. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include "training/replicas/slices.h"

static struct muster_slices rows_of(const uint64_t *indices, const float *values, uint64_t count)
{
    return (struct muster_slices){.indices = indices,
                                  .values = values,
                                  .count = count,
                                  .row_elements = 2,
                                  .dtype = MUSTER_F32};
}

static void rows_are_sorted_and_those_of_one_index_added(void **state)
{
    static const uint64_t indices[] = {7, 2, 7, 0, 2, 7}, sorted[] = {0, 2, 7};
    static const float values[] = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60};
    static const float sums[] = {4, 40, 7, 70, 10, 100};
    struct muster_slices slices = rows_of(indices, values, 6);
    struct muster_slices_sum sum, copy;

    (void)state;
    assert_int_equal(muster_slices_combine(NULL, &slices, 8, &sum, NULL), MUSTER_OK);
    assert_int_equal(sum.slices.count, 3);
    assert_memory_equal(sum.slices.indices, sorted, sizeof(sorted));
    assert_memory_equal(sum.slices.values, sums, sizeof(sums));
    assert_false(sum.is_dense);
    assert_int_equal(muster_slices_sum_copy(&sum, &copy), MUSTER_OK);
    muster_slices_sum_free(&sum);
    assert_null(sum.memory);
    assert_memory_equal(copy.slices.indices, sorted, sizeof(sorted));
    assert_memory_equal(copy.slices.values, sums, sizeof(sums));
    muster_slices_sum_free(&copy);
    muster_slices_sum_free(&copy);
}

/* (1e8 + -1e8) + 1 is 1, and (1 + -1e8) + 1e8 is 0 in f32. */
static void equal_indices_are_added_as_they_stand(void **state)
{
    static const uint64_t indices[] = {3, 1, 3, 3};
    static const float values[] = {1e8f, 1, 5, 5, -1e8f, -1e8f, 1, 1e8f};
    static const float sums[] = {5, 5, 1, 0};
    struct muster_slices slices = rows_of(indices, values, 4);
    struct muster_slices_sum sum;

    (void)state;
    assert_int_equal(muster_slices_combine(NULL, &slices, 0, &sum, NULL), MUSTER_OK);
    assert_memory_equal(sum.slices.values, sums, sizeof(sums));
    muster_slices_sum_free(&sum);
}

static void no_rows_are_a_sum_too(void **state)
{
    struct muster_slices slices = rows_of(NULL, NULL, 0);
    struct muster_slices_sum sum;

    (void)state;
    assert_int_equal(muster_slices_combine(NULL, &slices, 8, &sum, NULL), MUSTER_OK);
    assert_int_equal(sum.slices.count, 0);
    muster_slices_sum_free(&sum);
}

/* Many rows of few indices: each sum is that of its rows, one after the other. */
static void many_rows_are_added_in_their_order(void **state)
{
    enum { ROWS = 2000, INDICES = 37 };
    static uint64_t indices[ROWS];
    static float values[2 * ROWS], plain[2 * INDICES];
    struct muster_slices slices = rows_of(indices, values, ROWS);
    struct muster_slices_sum sum;

    (void)state;
    for (unsigned i = 0; i < ROWS; i++) {
        indices[i] = i * 7919u % 1009u % INDICES;
        for (unsigned k = 0; k < 2; k++) {
            values[2 * i + k] = (float)(i % 13) * 1e-3f - (float)(k + 1) * 1.7f * (float)(i % 5);
            plain[2 * indices[i] + k] += values[2 * i + k];
        }
    }
    assert_int_equal(muster_slices_combine(NULL, &slices, INDICES, &sum, NULL), MUSTER_OK);
    assert_int_equal(sum.slices.count, INDICES);
    assert_memory_equal(sum.slices.values, plain, sizeof(plain));
    muster_slices_sum_free(&sum);
}

static void slices_that_cannot_be_are_refused(void **state)
{
    static const uint64_t indices[] = {7, 8};
    static const float values[8] = {0};
    const struct {
        struct muster_slices slices;
        const char *error;
    } rows[] = {
        {{indices, values, 2, 2, MUSTER_F32},
         "slices: index 8 of row 1 must be below the 8 rows of the tensor"},
        {{indices, values, 2, 2, MUSTER_BOOL}, "sum of bool"},
        {{indices, values, 2, 0, MUSTER_F32}, "rows must have elements"},
        {{indices, values, UINT64_MAX / 8, 2, MUSTER_F32}, "fit into memory"},
        {{indices, values, 1, UINT64_MAX / 2, MUSTER_F32}, "fit into memory"},
        {{NULL, values, 2, 2, MUSTER_F32}, "must not be NULL, and aligned"},
        {{indices, NULL, 2, 2, MUSTER_F32}, "must not be NULL, and aligned"},
        {{indices, (const uint8_t *)values + 1, 1, 1, MUSTER_F32}, "must not be NULL, and aligned"},
        {{(const uint64_t *)(const void *)(values + 1), values, 1, 1, MUSTER_F32},
         "must not be NULL, and aligned"},
    };
    struct muster_slices_sum sum;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (i == 8 && (uintptr_t)(values + 1) % 8 == 0)
            continue;
        assert_int_equal(muster_slices_combine(NULL, &rows[i].slices, 8, &sum, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (i != 1)
            fail_if(strstr(error.text, rows[i].error) == NULL, "%zu: %s", i, error.text);
    }
}

static void without_memory_nothing_is_kept(void **state)
{
    static const uint64_t indices[] = {3, 1};
    static const float values[] = {1, 2, 3, 4};
    struct muster_slices slices = rows_of(indices, values, 2);
    struct muster_mem_limited mem;
    struct muster_slices_sum sum;
    unsigned refused = 0;
    enum muster_rc rc;

    (void)state;
    muster_mem_limited_init(&mem, muster_mem_system(), 0);
    do {
        mem.fail_at = refused + 1;
        rc = muster_slices_combine(&mem.mem, &slices, 0, &sum, NULL);
        if (rc != MUSTER_OK) {
            assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
            assert_int_equal(mem.block_count, 0);
            refused++;
        }
    } while (rc != MUSTER_OK);
    assert_int_equal(refused, 3);
    mem.fail_at = 0;
    muster_slices_sum_free(&sum);
    assert_int_equal(mem.block_count, 0);
}

static void sums_are_added_to_the_larger_tensor(void **state)
{
    static const uint64_t indices[] = {2, 0};
    static const float values[] = {1, 2, 3, 4};
    struct muster_slices slices = rows_of(indices, values, 2);
    float whole[6] = {10, 10, 10, 10, 10, 10};
    const float expected[] = {13, 14, 10, 10, 11, 12};
    struct muster_tensor tensor = {.data = whole, .count = 6, .dtype = MUSTER_F32};
    struct muster_slices_sum sum;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_slices_combine(NULL, &slices, 0, &sum, NULL), MUSTER_OK);
    assert_int_equal(muster_slices_add_to(&sum, &tensor, &error), MUSTER_OK);
    assert_memory_equal(whole, expected, sizeof(expected));
    tensor.count = 4;
    assert_int_equal(muster_slices_add_to(&sum, &tensor, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "slices: row 2 is beyond a tensor of 2");
    tensor.count = 5;
    assert_int_equal(muster_slices_add_to(&sum, &tensor, &error), MUSTER_INVALID_ARGUMENT);
    tensor.count = 6;
    tensor.dtype = MUSTER_I32;
    assert_int_equal(muster_slices_add_to(&sum, &tensor, &error), MUSTER_INVALID_ARGUMENT);
    assert_memory_equal(whole, expected, sizeof(expected));
    muster_slices_sum_free(&sum);
}

/* Rows of 5 bytes: the next member's indices are aligned again. */
static void rows_travel_as_bytes(void **state)
{
    static const uint64_t indices[] = {9, 4, 9};
    static const uint8_t values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const struct muster_slices slices = {indices, values, 3, 5, MUSTER_U8};
    uint64_t wire[8];
    struct muster_slices read;

    (void)state;
    assert_int_equal(muster_slices_wire_bytes(3, 5), 40);
    assert_int_equal(muster_slices_wire_bytes(0, 5), 0);
    memset(wire, 0xff, sizeof(wire));
    muster_slices_write(&slices, wire);
    assert_int_equal(((uint8_t *)wire)[39], 0);
    assert_int_equal(wire[5], UINT64_MAX);
    read = muster_slices_read(wire, 3, &slices);
    assert_memory_equal(read.indices, indices, sizeof(indices));
    assert_memory_equal(read.values, values, sizeof(values));
}

static void rows_of_several_are_joined_and_spread(void **state)
{
    static const uint64_t indices[] = {2, 0};
    static const float values[] = {1, 2, 3, 4}, whole[] = {3, 4, 0, 0, 1, 2};
    struct muster_slices slices[] = {rows_of(indices, values, 1), rows_of(NULL, NULL, 0),
                                     rows_of(indices + 1, values + 2, 1)};
    struct muster_slices_sum joined;
    float into[6] = {0};

    (void)state;
    assert_int_equal(muster_slices_join(muster_mem_system(), slices, 3, &joined), MUSTER_OK);
    assert_int_equal(joined.slices.count, 2);
    assert_memory_equal(joined.slices.indices, indices, sizeof(indices));
    assert_memory_equal(joined.slices.values, values, sizeof(values));
    muster_slices_spread(&joined.slices, into);
    assert_memory_equal(into, whole, sizeof(whole));
    muster_slices_sum_free(&joined);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(rows_are_sorted_and_those_of_one_index_added),
        cmocka_unit_test(equal_indices_are_added_as_they_stand),
        cmocka_unit_test(no_rows_are_a_sum_too),
        cmocka_unit_test(many_rows_are_added_in_their_order),
        cmocka_unit_test(slices_that_cannot_be_are_refused),
        cmocka_unit_test(without_memory_nothing_is_kept),
        cmocka_unit_test(sums_are_added_to_the_larger_tensor),
        cmocka_unit_test(rows_travel_as_bytes),
        cmocka_unit_test(rows_of_several_are_joined_and_spread),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
