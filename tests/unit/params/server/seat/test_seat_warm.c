/* A seat that waits for its holder maps memory before it needs it. */
#include "params/server/seat/seat_system.c"

#include "test_env.h"

static void the_head_of_the_region_is_mapped_before_the_seat_is_taken(void **state)
{
    const struct muster_params_seat_options options = {.memory_max = (uint64_t)2 << 30};
    struct muster_params_seat *seat = NULL;
    struct muster_error error;
    uint64_t bits;

    (void)state;
    if (muster_params_seat_new(&options, &seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    bits = atomic_load(&head_of(seat)->committed[0]);

    assert_true(seat_warm(seat));
    assert_false(seat_warm(seat));

    if (muster_params_seat_take(seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_int_equal(bits, ((uint64_t)1 << muster_params_seat_region(seat)->segments_used) - 1);
    assert_int_equal(seat->warmed[0], bits);
    muster_params_seat_free(seat);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_of_the_region_is_mapped_before_the_seat_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
