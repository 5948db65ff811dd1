/* Cuts: nothing behind a mark is applied before the cut is complete, whatever the order of events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/clock/cut.h"
#include "test_env.h"

#include <string.h>

#define DEADLINE (1500 * MUSTER_NS_PER_MS)

struct stand {
    struct test_env test;
    struct muster_params_cut cut;
    struct muster_error error;
};

static struct muster_incarnation id_of(uint32_t number)
{
    struct muster_incarnation id = {{0}};

    id.bytes[0] = (uint8_t)(number + 1);
    return id;
}

static void source_join(struct stand *stand, uint32_t number)
{
    struct muster_incarnation id = id_of(number);

    assert_int_equal(muster_params_cut_join(&stand->cut, &id), MUSTER_OK);
}

static void source_leave(struct stand *stand, uint32_t number)
{
    struct muster_incarnation id = id_of(number);

    muster_params_cut_leave(&stand->cut, &id);
}

static void source_mark(struct stand *stand, uint32_t number, uint64_t cut)
{
    struct muster_incarnation id = id_of(number);

    muster_params_cut_mark(&stand->cut, &id, cut);
}

/* Whether it was held. */
static bool message_come(struct stand *stand, uint32_t number, struct muster_params_cut_held *held)
{
    struct muster_incarnation id = id_of(number);

    if (!muster_params_cut_must_hold(&stand->cut, &id))
        return false;
    muster_params_cut_hold(&stand->cut, &id, held);
    return true;
}

static enum muster_rc cut_begin(struct stand *stand, uint64_t number)
{
    return muster_params_cut_begin(&stand->cut, number, 0, DEADLINE, &stand->error);
}

static void stand_open(struct stand *stand, uint32_t sources)
{
    test_env_open(&stand->test);
    muster_params_cut_init(&stand->cut, stand->test.env.mem);
    for (uint32_t i = 0; i < sources; i++)
        source_join(stand, i);
}

static void stand_close(struct stand *stand)
{
    muster_params_cut_fini(&stand->cut);
    test_env_close(&stand->test);
}

static void messages_behind_a_mark_wait_for_the_other_sources(void **state)
{
    struct muster_params_cut_held held[3];
    struct stand stand;

    (void)state;
    stand_open(&stand, 2);
    assert_false(message_come(&stand, 0, &held[0]));
    assert_int_equal(cut_begin(&stand, 7), MUSTER_OK);
    assert_false(message_come(&stand, 0, &held[0]));
    source_mark(&stand, 0, 7);
    assert_true(message_come(&stand, 0, &held[0]));
    assert_false(message_come(&stand, 1, &held[1]));
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_MARKING);
    source_mark(&stand, 1, 7);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_COMPLETE);
    assert_true(message_come(&stand, 1, &held[1]));

    assert_ptr_equal(muster_params_cut_release(&stand.cut), &held[0]);
    assert_true(message_come(&stand, 0, &held[2])); /* not before what it sent earlier */
    assert_ptr_equal(muster_params_cut_release(&stand.cut), &held[1]);
    assert_ptr_equal(muster_params_cut_release(&stand.cut), &held[2]);
    assert_null(muster_params_cut_release(&stand.cut));
    assert_false(message_come(&stand, 0, &held[0]));
    assert_int_equal(cut_begin(&stand, 8), MUSTER_OK);
    muster_params_cut_abandon(&stand.cut);
    assert_null(muster_params_cut_release(&stand.cut));
    stand_close(&stand);
}

static void a_source_that_does_not_mark_ends_the_cut_by_name(void **state)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    struct muster_incarnation id = id_of(1);
    struct muster_params_cut_held held;
    struct stand stand;

    (void)state;
    stand_open(&stand, 3);
    assert_int_equal(cut_begin(&stand, 7), MUSTER_OK);
    source_mark(&stand, 0, 7);
    assert_true(message_come(&stand, 0, &held));
    assert_int_equal(muster_params_cut_expire(&stand.cut, DEADLINE - 1, &stand.error), MUSTER_OK);
    assert_int_equal(muster_params_cut_expire(&stand.cut, DEADLINE, &stand.error),
                     MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(stand.error.text, "cut 7 has ended: the source "));
    assert_non_null(strstr(stand.error.text, muster_incarnation_format(&id, text)));
    assert_non_null(strstr(stand.error.text, "within 1.500 s (2 sources have not)"));

    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_ENDED);
    source_mark(&stand, 1, 7); /* too late */
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_ENDED);
    assert_int_equal(muster_params_cut_expire(&stand.cut, UINT64_MAX, &stand.error), MUSTER_OK);
    assert_ptr_equal(muster_params_cut_release(&stand.cut), &held);
    assert_null(muster_params_cut_release(&stand.cut));
    stand_close(&stand);
}

static void marks_of_other_cuts_and_second_ones_are_left_out(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 2);
    source_mark(&stand, 0, 1); /* none is made */
    assert_int_equal(cut_begin(&stand, 7), MUSTER_OK);
    source_mark(&stand, 0, 6);
    source_mark(&stand, 0, 8);
    source_mark(&stand, 5, 7); /* a stranger */
    source_mark(&stand, 0, 7);
    source_mark(&stand, 0, 7);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_MARKING);
    source_mark(&stand, 1, 7);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_COMPLETE);
    assert_null(muster_params_cut_release(&stand.cut));
    stand_close(&stand);
}

static void a_cut_must_be_new_and_alone(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 1);
    assert_int_equal(cut_begin(&stand, 7), MUSTER_OK);
    assert_int_equal(cut_begin(&stand, 8), MUSTER_FAILED_PRECONDITION);
    assert_string_equal(stand.error.text, "cut 7 is not done yet");
    muster_params_cut_abandon(&stand.cut);
    muster_params_cut_abandon(&stand.cut);
    assert_null(muster_params_cut_release(&stand.cut));
    assert_int_equal(cut_begin(&stand, 7), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(stand.error.text, "the number of a cut must be above 7, got 7");
    stand_close(&stand);
}

static void a_source_that_goes_is_not_waited_for(void **state)
{
    struct muster_params_cut_held held;
    struct stand stand;

    (void)state;
    stand_open(&stand, 2);
    assert_int_equal(cut_begin(&stand, 7), MUSTER_OK);
    source_mark(&stand, 0, 7);
    assert_true(message_come(&stand, 0, &held));
    source_leave(&stand, 0); /* its mark stands, and so does what it sent behind it */
    source_leave(&stand, 0);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_MARKING);
    source_leave(&stand, 1);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_COMPLETE);
    assert_ptr_equal(muster_params_cut_release(&stand.cut), &held);
    assert_null(muster_params_cut_release(&stand.cut));

    assert_int_equal(cut_begin(&stand, 8), MUSTER_OK); /* without sources */
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_COMPLETE);
    assert_null(muster_params_cut_release(&stand.cut));
    stand_close(&stand);
}

static void a_source_that_comes_amid_a_cut_is_behind_it(void **state)
{
    struct muster_incarnation id = id_of(1);
    struct muster_params_cut_held held;
    struct stand stand;

    (void)state;
    stand_open(&stand, 1);
    assert_int_equal(cut_begin(&stand, 7), MUSTER_OK);
    source_join(&stand, 1);
    assert_int_equal(muster_params_cut_join(&stand.cut, &id), MUSTER_ALREADY_EXISTS);
    assert_true(message_come(&stand, 1, &held));
    source_mark(&stand, 0, 7);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_COMPLETE);
    assert_ptr_equal(muster_params_cut_release(&stand.cut), &held);
    assert_null(muster_params_cut_release(&stand.cut));

    assert_int_equal(cut_begin(&stand, 8), MUSTER_OK); /* the next one waits for it */
    source_mark(&stand, 0, 8);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_MARKING);
    source_mark(&stand, 1, 8);
    assert_int_equal(stand.cut.state, MUSTER_PARAMS_CUT_COMPLETE);
    assert_null(muster_params_cut_release(&stand.cut));
    stand_close(&stand);
}

/* --- Every order --- */

enum { SOURCES = 3, EACH = 3 };

/* Each source sends a push, its mark and a push, in every order: at the cut exactly the first ones are
 * applied, and afterwards all of them, for each source in its order. */
static void every_order_cuts_at_the_marks(void **state)
{
    uint32_t played = 0;

    (void)state;
    for (uint32_t order = 0; order < 19683; order++) { /* 3 to the 9th */
        struct muster_params_cut_held held[SOURCES];
        uint32_t done[SOURCES] = {0}, rest = order, applied = 0, held_count = 0;
        struct stand stand;

        for (uint32_t i = 0; i < SOURCES * EACH; i++, rest /= SOURCES)
            done[rest % SOURCES]++;
        if (done[0] != EACH || done[1] != EACH || done[2] != EACH)
            continue;
        stand_open(&stand, SOURCES);
        assert_int_equal(cut_begin(&stand, 1), MUSTER_OK);
        memset(done, 0, sizeof(done));
        rest = order;
        for (uint32_t i = 0; i < SOURCES * EACH; i++, rest /= SOURCES) {
            uint32_t source = rest % SOURCES;

            if (++done[source] == 2)
                source_mark(&stand, source, 1);
            else if (message_come(&stand, source, &held[source]))
                held_count++;
            else
                applied |= 1u << (2 * source + done[source] / 2);
            assert_int_equal(stand.cut.state, done[0] > 1 && done[1] > 1 && done[2] > 1
                                                  ? MUSTER_PARAMS_CUT_COMPLETE
                                                  : MUSTER_PARAMS_CUT_MARKING);
        }
        assert_int_equal(applied, 0x15); /* the first of each */
        assert_int_equal(held_count, SOURCES);
        for (uint32_t i = 0; i < SOURCES; i++)
            assert_non_null(muster_params_cut_release(&stand.cut));
        assert_null(muster_params_cut_release(&stand.cut));
        stand_close(&stand);
        played++;
    }
    assert_int_equal(played, 1680);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_behind_a_mark_wait_for_the_other_sources),
        cmocka_unit_test(a_source_that_does_not_mark_ends_the_cut_by_name),
        cmocka_unit_test(marks_of_other_cuts_and_second_ones_are_left_out),
        cmocka_unit_test(a_cut_must_be_new_and_alone),
        cmocka_unit_test(a_source_that_goes_is_not_waited_for),
        cmocka_unit_test(a_source_that_comes_amid_a_cut_is_behind_it),
        cmocka_unit_test(every_order_cuts_at_the_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
