/* Rings through boxes of chips: every place once, neighbours next to each other. */
#include "resolvers/platform/tpu/ring.h"

#include "test_env.h"

#include <stdlib.h>

static int ring_distance(struct muster_tpu_ring_place a, struct muster_tpu_ring_place b)
{
    return abs(a.at[0] - b.at[0]) + abs(a.at[1] - b.at[1]) + abs(a.at[2] - b.at[2]);
}

static void a_plane_of_16_is_walked_as_drawn(void **state)
{
    static const int32_t sizes[3] = {4, 4, 1};
    static const uint32_t picture[4][4] = {/* [y][x] */
                                           {0, 1, 2, 3},
                                           {15, 6, 5, 4},
                                           {14, 7, 8, 9},
                                           {13, 12, 11, 10}};
    (void)state;

    for (int32_t y = 0; y < 4; y++) {
        for (int32_t x = 0; x < 4; x++) {
            struct muster_tpu_ring_place place = muster_tpu_ring_place(sizes, picture[y][x]);

            assert_int_equal(place.at[0], x);
            assert_int_equal(place.at[1], y);
            assert_int_equal(place.at[2], 0);
        }
    }
}

static void the_second_plane_begins_above_the_end_of_the_first(void **state)
{
    static const int32_t sizes[3] = {4, 4, 4};
    (void)state;

    assert_int_equal(muster_tpu_ring_place(sizes, 15).at[1], 1);
    assert_int_equal(muster_tpu_ring_place(sizes, 16).at[1], 1);
    assert_int_equal(muster_tpu_ring_place(sizes, 16).at[2], 1);
    assert_int_equal(muster_tpu_ring_place(sizes, 30).at[0], 1);
    assert_int_equal(muster_tpu_ring_place(sizes, 63).at[2], 1);
}

static void boxes_of_even_sizes_become_closed_rings(void **state)
{
    static const int32_t sides[] = {1, 2, 4, 6};
    (void)state;

    for (size_t n = 0; n < 64; n++) {
        const int32_t sizes[3] = {sides[n % 4], sides[n / 4 % 4], sides[n / 16]};
        uint32_t count = (uint32_t)(sizes[0] * sizes[1] * sizes[2]);
        bool seen[216] = {false};

        if ((sizes[0] == 1) + (sizes[1] == 1) + (sizes[2] == 1) >= 2)
            continue;
        for (uint32_t i = 0; i < count; i++) {
            struct muster_tpu_ring_place place = muster_tpu_ring_place(sizes, i);
            struct muster_tpu_ring_place next = muster_tpu_ring_place(sizes, (i + 1) % count);
            int32_t position = (place.at[2] * sizes[1] + place.at[1]) * sizes[0] + place.at[0];

            assert_in_range(position, 0, count - 1);
            assert_false(seen[position]);
            seen[position] = true;
            assert_int_equal(ring_distance(place, next), 1);
        }
    }
}

static void odd_boxes_and_lines_are_walked_x_first(void **state)
{
    static const int32_t boxes[][3] = {{3, 2, 2}, {1, 1, 8}, {8, 1, 1}, {1, 5, 1}, {2, 2, 3}};
    (void)state;

    for (size_t b = 0; b < sizeof(boxes) / sizeof(boxes[0]); b++) {
        uint32_t i = 0;

        for (int32_t z = 0; z < boxes[b][2]; z++) {
            for (int32_t y = 0; y < boxes[b][1]; y++) {
                for (int32_t x = 0; x < boxes[b][0]; x++) {
                    struct muster_tpu_ring_place place = muster_tpu_ring_place(boxes[b], i++);

                    assert_int_equal(place.at[0], x);
                    assert_int_equal(place.at[1], y);
                    assert_int_equal(place.at[2], z);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plane_of_16_is_walked_as_drawn),
        cmocka_unit_test(the_second_plane_begins_above_the_end_of_the_first),
        cmocka_unit_test(boxes_of_even_sizes_become_closed_rings),
        cmocka_unit_test(odd_boxes_and_lines_are_walked_x_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
