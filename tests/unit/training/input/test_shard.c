/* Shards: the unit that each policy divides, and that each number is one worker's. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include <muster/input.h>

static const struct {
    const char *name;
    struct muster_shard shard;
    struct muster_shard_input input;
    enum muster_rc rc;
    enum muster_shard_unit unit;
    const char *error;
} rows[] = {
    {"off", {MUSTER_SHARD_OFF, 2, 1}, {true, 4, false}, MUSTER_OK, MUSTER_SHARD_WHOLE, ""},
    {"alone", {MUSTER_SHARD_FILE, 1, 0}, {false, 0, 0}, MUSTER_OK, MUSTER_SHARD_WHOLE, ""},
    {"file", {MUSTER_SHARD_FILE, 2, 1}, {true, 2, 0}, MUSTER_OK, MUSTER_SHARD_FILES, ""},
    {"auto with files", {MUSTER_SHARD_AUTO, 2, 1}, {true, 2, 0}, MUSTER_OK, MUSTER_SHARD_FILES, ""},
    {"auto without",
     {MUSTER_SHARD_AUTO, 2, 1},
     {false, 0, 0},
     MUSTER_OK,
     MUSTER_SHARD_ELEMENTS,
     ""},
    {"data of files",
     {MUSTER_SHARD_DATA, 2, 1},
     {true, 1, 0},
     MUSTER_OK,
     MUSTER_SHARD_ELEMENTS,
     ""},
    {"data, alone", {MUSTER_SHARD_DATA, 1, 0}, {true, 1, 0}, MUSTER_OK, MUSTER_SHARD_ELEMENTS, ""},
    {"hint", {MUSTER_SHARD_HINT, 2, 1}, {true, 1, true}, MUSTER_OK, MUSTER_SHARD_MARK, ""},
    {"a mark that nothing uses",
     {MUSTER_SHARD_OFF, 1, 0},
     {true, 1, true},
     MUSTER_FAILED_PRECONDITION,
     0,
     "choose HINT"},
    {"a mark, and no files",
     {MUSTER_SHARD_FILE, 2, 0},
     {false, 0, true},
     MUSTER_NOT_FOUND,
     0,
     "use DATA or AUTO"},
    {"a mark before too few files",
     {MUSTER_SHARD_FILE, 2, 0},
     {true, 1, true},
     MUSTER_FAILED_PRECONDITION,
     0,
     "choose HINT"},
    {"hint without a mark",
     {MUSTER_SHARD_HINT, 2, 1},
     {true, 1, 0},
     MUSTER_OK,
     MUSTER_SHARD_WHOLE,
     ""},
    {"no files", {MUSTER_SHARD_FILE, 2, 1}, {false, 0, 0}, MUSTER_NOT_FOUND, 0, "use DATA or AUTO"},
    {"few files",
     {MUSTER_SHARD_FILE, 3, 1},
     {true, 2, 0},
     MUSTER_INVALID_ARGUMENT,
     0,
     "3 workers, got 2"},
    {"few files, auto",
     {MUSTER_SHARD_AUTO, 3, 2},
     {true, 2, 0},
     MUSTER_INVALID_ARGUMENT,
     0,
     "3 workers, got 2"},
    {"beyond",
     {MUSTER_SHARD_OFF, 2, 2},
     {true, 2, 0},
     MUSTER_INVALID_ARGUMENT,
     0,
     "number 2, got 2"},
    {"nobody",
     {MUSTER_SHARD_OFF, 0, 0},
     {true, 2, 0},
     MUSTER_INVALID_ARGUMENT,
     0,
     "number 0, got 0"},
    {"no policy",
     {(enum muster_shard_policy)9, 2, 0},
     {false, 0, 0},
     MUSTER_INVALID_ARGUMENT,
     0,
     "must be AUTO, FILE, DATA, HINT or OFF, got 9"},
};

static void each_policy_divides_its_unit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_shard_unit unit = MUSTER_SHARD_WHOLE;
        enum muster_rc rc = muster_shard_choose(&rows[i].shard, &rows[i].input, &unit, &error);

        if (rc != rows[i].rc || unit != rows[i].unit || strstr(error.text, rows[i].error) == NULL)
            fail_msg("%s: %d, unit %d, \"%s\"", rows[i].name, (int)rc, (int)unit, error.text);
        assert_int_equal(rc, rows[i].rc);
    }
}

static void each_number_is_one_workers(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers < 6; workers++)
        for (uint64_t number = 0; number < 20; number++) {
            unsigned owners = 0;

            for (uint32_t index = 0; index < workers; index++)
                owners += muster_shard_has(
                    &(struct muster_shard){.num_workers = workers, .index = index}, number);
            assert_int_equal(owners, 1);
        }
}

static void a_worker_that_has_an_element_is_told_when_others_have_none(void **state)
{
    struct muster_shard shard = {MUSTER_SHARD_DATA, 3, 1};
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_shard_check_elements(&shard, 3, &error), MUSTER_OK);
    assert_int_equal(muster_shard_check_elements(&shard, 2, &error), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "the input must have an element for each of 3 workers, got 2");
    assert_int_equal(muster_shard_check_elements(&shard, 1, &error), MUSTER_OK);
    assert_int_equal(muster_shard_check_elements(&shard, 0, &error), MUSTER_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_policy_divides_its_unit),
        cmocka_unit_test(each_number_is_one_workers),
        cmocka_unit_test(a_worker_that_has_an_element_is_told_when_others_have_none),
    };

    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
