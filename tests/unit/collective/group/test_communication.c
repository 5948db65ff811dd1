/* Communication options: names, and what is set over what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <muster/view.h>

static void names_are_read_in_either_case(void **state)
{
    enum muster_communication implementation = MUSTER_COMMUNICATION_AUTO;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_communication_parse("ring", &implementation, &error), MUSTER_OK);
    assert_int_equal(implementation, MUSTER_COMMUNICATION_RING);
    assert_int_equal(muster_communication_parse("NCCL", &implementation, &error), MUSTER_OK);
    assert_string_equal(muster_communication_name(implementation), "NCCL");
    assert_string_equal(muster_communication_name((enum muster_communication)9), "unknown");
}

static void an_unknown_name_is_refused_with_the_choices(void **state)
{
    enum muster_communication implementation = MUSTER_COMMUNICATION_RING;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_communication_parse("MPI", &implementation, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "communication 'MPI': use one of AUTO, RING, NCCL");
    assert_int_equal(implementation, MUSTER_COMMUNICATION_RING);
}

static void what_differs_from_the_default_wins(void **state)
{
    const struct muster_communication_options under = {
        .implementation = MUSTER_COMMUNICATION_RING, .bytes_per_pack = 100, .timeout_ns = 7};
    const struct muster_communication_options over = {.bytes_per_pack = 200};
    struct muster_communication_options merged = muster_communication_merge(&under, &over);

    (void)state;
    assert_int_equal(merged.implementation, MUSTER_COMMUNICATION_RING);
    assert_int_equal(merged.bytes_per_pack, 200);
    assert_int_equal(merged.timeout_ns, 7);
    merged = muster_communication_merge(NULL, &over);
    assert_int_equal(merged.bytes_per_pack, 200);
    merged = muster_communication_merge(&under, NULL);
    assert_int_equal(merged.bytes_per_pack, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_in_either_case),
        cmocka_unit_test(an_unknown_name_is_refused_with_the_choices),
        cmocka_unit_test(what_differs_from_the_default_wins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
