/* Shapes: counts, axes, sums along them, parts that are joined and split. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include "training/replicas/shape.h"

static float numbers[64];

static struct muster_shaped_tensor shape_of(uint32_t count, uint64_t a, uint64_t b, uint64_t c)
{
    struct muster_shaped_tensor shaped = {
        .data = numbers, .dtype = MUSTER_F32, .dimension_count = count};

    shaped.dimensions[0] = a;
    shaped.dimensions[1] = b;
    shaped.dimensions[2] = c;
    for (unsigned i = 0; i < 64; i++)
        numbers[i] = (float)i;
    return shaped;
}

static void elements_are_counted_or_refused(void **state)
{
    struct muster_shaped_tensor shaped = shape_of(3, 2, 3, 4);
    struct muster_error error;
    uint64_t count = 7;

    (void)state;
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_OK);
    assert_int_equal(count, 24);
    shaped.dimension_count = 0;
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_OK);
    assert_int_equal(count, 1);
    shaped = shape_of(2, 0, UINT64_MAX, 0);
    shaped.data = NULL;
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_OK);
    assert_int_equal(count, 0);
    shaped = shape_of(2, 2, 2, 0);
    shaped.data = NULL;
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "data of a tensor must be aligned to its f32, got NULL");
    shaped.data = (uint8_t *)numbers + 2;
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_INVALID_ARGUMENT);
    shaped = shape_of(2, UINT64_MAX / 2, 4, 0);
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_INVALID_ARGUMENT);
    shaped.dimension_count = MUSTER_DIMENSIONS_MAX + 1;
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "a tensor must have at most 8 dimensions, got 9");
    shaped = shape_of(1, 2, 0, 0);
    shaped.dtype = (enum muster_dtype)99;
    assert_int_equal(muster_shape_count(&shaped, &count, &error), MUSTER_INVALID_ARGUMENT);
}

static void axes_count_from_both_ends(void **state)
{
    static const struct {
        int32_t axis;
        struct muster_axis seen;
    } rows[] = {{0, {1, 2, 12}}, {1, {2, 3, 4}}, {2, {6, 4, 1}}, {-1, {6, 4, 1}}, {-3, {1, 2, 12}}};
    const struct muster_shaped_tensor shaped = shape_of(3, 2, 3, 4), scalar = shape_of(0, 0, 0, 0);
    struct muster_axis seen;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_shape_axis(&shaped, rows[i].axis, &seen, &error), MUSTER_OK);
        assert_memory_equal(&seen, &rows[i].seen, sizeof(seen));
    }
    assert_int_equal(muster_shape_axis(&shaped, 3, &seen, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "the axis of a tensor with 3 dimensions must be -3 to 2, got 3");
    assert_int_equal(muster_shape_axis(&shaped, -4, &seen, &error), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_shape_axis(&scalar, 0, &seen, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "a tensor without dimensions has no axis, got 0"));
}

static void sums_go_along_an_axis(void **state)
{
    const struct muster_shaped_tensor shaped = shape_of(3, 2, 3, 2);
    const float middle[] = {6, 9, 24, 27}, last[] = {1, 5, 9, 13, 17, 21};
    float into[6] = {0};
    struct muster_axis seen;

    (void)state;
    assert_int_equal(muster_shape_axis(&shaped, 1, &seen, NULL), MUSTER_OK);
    muster_shape_add_along(&seen, MUSTER_F32, into, shaped.data);
    assert_memory_equal(into, middle, sizeof(middle));
    memset(into, 0, sizeof(into));
    assert_int_equal(muster_shape_axis(&shaped, 2, &seen, NULL), MUSTER_OK);
    muster_shape_add_along(&seen, MUSTER_F32, into, shaped.data);
    assert_memory_equal(into, last, sizeof(last));
}

static void parts_are_placed_along_an_axis(void **state)
{
    const struct muster_axis whole = {2, 3, 2}, two = {2, 2, 2}, one = {2, 1, 2};
    const float first[] = {0, 1, 2, 3, 4, 5, 6, 7}, second[] = {20, 21, 22, 23};
    const float joined[] = {0, 1, 2, 3, 20, 21, 4, 5, 6, 7, 22, 23};
    float into[12] = {0};

    (void)state;
    muster_shape_place(&whole, 0, &two, sizeof(float), into, first);
    muster_shape_place(&whole, 2, &one, sizeof(float), into, second);
    assert_memory_equal(into, joined, sizeof(joined));
}

/* 5 x 4 over 2 x 3 devices: rows of 3 and 2, columns of 2, 2 and none. */
static void tensors_are_split_with_the_rest_last(void **state)
{
    static const struct {
        uint64_t number, first[2], extent[2];
    } rows[] = {{0, {0, 0}, {3, 2}}, {1, {0, 2}, {3, 2}}, {2, {0, 4}, {3, 0}},
                {3, {3, 0}, {2, 2}}, {4, {3, 2}, {2, 2}}, {5, {3, 4}, {2, 0}}};
    const struct muster_shaped_tensor shaped = shape_of(2, 5, 4, 0);
    const uint64_t partition[] = {2, 3};
    const float last[] = {14, 15, 18, 19};
    float into[20];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tensor_part part = muster_shape_split(&shaped, partition, rows[i].number);

        assert_memory_equal(part.first, rows[i].first, sizeof(rows[i].first));
        assert_memory_equal(part.extent, rows[i].extent, sizeof(rows[i].extent));
        into[0] = -1;
        muster_shape_read_part(&shaped, &part, into);
        if (rows[i].number == 4)
            assert_memory_equal(into, last, sizeof(last));
        if (part.extent[1] == 0)
            assert_true(into[0] < 0);
    }
}

/* Each element of a tensor of three dimensions is in one part. */
static void parts_of_three_dimensions_are_read_whole(void **state)
{
    const struct muster_shaped_tensor shaped = shape_of(3, 3, 4, 5);
    const uint64_t partition[] = {2, 1, 3};
    unsigned seen[60] = {0};

    (void)state;
    for (uint64_t number = 0; number < 6; number++) {
        struct muster_tensor_part part = muster_shape_split(&shaped, partition, number);
        uint64_t count = part.extent[0] * part.extent[1] * part.extent[2];
        float into[60];

        muster_shape_read_part(&shaped, &part, into);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t place = (unsigned)into[i];

            seen[place]++;
            assert_in_range(place / 20, part.first[0], part.first[0] + part.extent[0] - 1);
            assert_in_range(place % 5, part.first[2], part.first[2] + part.extent[2] - 1);
        }
    }
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(seen[i], 1);
}

static void one_element_is_a_part(void **state)
{
    const struct muster_shaped_tensor shaped = shape_of(0, 0, 0, 0);
    struct muster_tensor_part part = muster_shape_split(&shaped, NULL, 0);
    float into = -1;

    (void)state;
    muster_shape_read_part(&shaped, &part, &into);
    assert_true(into >= 0);
}

static void shapes_have_a_text(void **state)
{
    const struct muster_shaped_tensor shaped = shape_of(2, 5, 4, 0), none = shape_of(0, 0, 0, 0);
    char text[32], cut[6];

    (void)state;
    muster_shape_format(&shaped, text, sizeof(text));
    assert_string_equal(text, "f32[5,4]");
    muster_shape_format(&none, text, sizeof(text));
    assert_string_equal(text, "f32[]");
    muster_shape_format(&shaped, cut, sizeof(cut));
    assert_string_equal(cut, "f32[5");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(elements_are_counted_or_refused),
        cmocka_unit_test(axes_count_from_both_ends),
        cmocka_unit_test(sums_go_along_an_axis),
        cmocka_unit_test(parts_are_placed_along_an_axis),
        cmocka_unit_test(tensors_are_split_with_the_rest_last),
        cmocka_unit_test(parts_of_three_dimensions_are_read_whole),
        cmocka_unit_test(one_element_is_a_part),
        cmocka_unit_test(shapes_have_a_text),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
