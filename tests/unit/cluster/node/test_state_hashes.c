/* A state's hashes through steps that change parts of it. */
#include "test_env.h"

#include <string.h>

#include "cluster/node/state_manifest.h"

#define IN_CHUNK (MUSTER_STATE_CHUNK_BYTES / sizeof(float))
#define FIRST    (3 * IN_CHUNK) /* a tensor of three chunks */
#define SECOND   (IN_CHUNK + 5) /* and one of two */

struct stand {
    struct test_env test;
    float *first, *second;
    struct muster_state_chunks chunks;
};

static struct stand stand;

static void stand_open(void)
{
    struct muster_env *env = &stand.test.env;
    struct muster_node_tensor tensors[2] = {{.name = "first"}, {.name = "second"}};

    memset(&stand, 0, sizeof(stand));
    test_env_open(&stand.test);
    stand.first = muster_mem_alloc_zero(env->mem, FIRST, sizeof(float));
    stand.second = muster_mem_alloc_zero(env->mem, SECOND, sizeof(float));
    tensors[0].tensor = (struct muster_tensor){stand.first, FIRST, MUSTER_F32};
    tensors[1].tensor = (struct muster_tensor){stand.second, SECOND, MUSTER_F32};
    assert_int_equal(muster_state_chunks_init(&stand.chunks, env->mem, tensors, 2), MUSTER_OK);
}

static void stand_close(void)
{
    muster_state_chunks_fini(&stand.chunks);
    muster_mem_free(stand.test.env.mem, stand.first);
    muster_mem_free(stand.test.env.mem, stand.second);
    test_env_close(&stand.test);
}

static enum muster_rc change_part(float *at, size_t count)
{
    struct muster_tensor part = {at, count, MUSTER_F32};

    return muster_state_hashes_change(&stand.chunks, &part, 1);
}

/* A letter for each chunk: known, unknown or changing. A hash is zeros unless it is known. */
static const char *tell_marks(void)
{
    static const uint8_t zeros[MUSTER_HASH128_BYTES];
    static char text[16];

    for (uint32_t i = 0; i < stand.chunks.chunk_count; i++) {
        bool is_known = muster_state_hashes_is_known(&stand.chunks, i);

        text[i] = is_known ? 'k' : muster_state_hashes_is_changing(&stand.chunks, i) ? 'c' : 'u';
        assert_int_equal(memcmp(stand.chunks.hashes.at[i], zeros, sizeof(zeros)) != 0, is_known);
    }
    return text;
}

static void each_is_computed_once_and_of_the_bytes_that_are_there(void **state)
{
    uint8_t expected[MUSTER_HASH128_BYTES];

    (void)state;
    assert_string_equal(tell_marks(), "uuuuu");
    muster_state_hashes_compute(&stand.chunks, 2);
    assert_string_equal(tell_marks(), "kkuuu");
    assert_false(muster_state_hashes_is_settled(&stand.chunks));
    muster_state_hashes_compute(&stand.chunks, 2);
    assert_string_equal(tell_marks(), "kkkku");
    muster_state_hashes_compute(&stand.chunks, 2);
    assert_string_equal(tell_marks(), "kkkkk");
    assert_true(muster_state_hashes_is_whole(&stand.chunks));

    muster_state_hashes_forget(&stand.chunks, 1);
    stand.first[IN_CHUNK] = 7;
    muster_state_chunk_hash(&stand.chunks, 1, expected);
    assert_false(muster_state_hashes_is_whole(&stand.chunks));
    assert_memory_equal(muster_state_hashes_get(&stand.chunks, 1), expected, sizeof(expected));
    assert_true(muster_state_hashes_is_whole(&stand.chunks));
}

static void what_a_step_changes_is_forgotten_and_nothing_else(void **state)
{
    (void)state;
    muster_state_hashes_compute(&stand.chunks, 9);

    assert_int_equal(change_part(stand.first + IN_CHUNK - 1, 2), MUSTER_OK);
    assert_string_equal(tell_marks(), "cckkk");
    assert_true(muster_state_hashes_is_settled(&stand.chunks));
    assert_false(muster_state_hashes_is_whole(&stand.chunks));
    muster_state_hashes_compute(&stand.chunks, 9); /* no hash of what is being written */
    muster_state_hashes_forget(&stand.chunks, 0);
    assert_string_equal(tell_marks(), "cckkk");
    assert_int_equal(change_part(stand.second + SECOND - 1, 1), MUSTER_OK);
    assert_string_equal(tell_marks(), "cckkc");

    muster_state_hashes_commit(&stand.chunks);
    assert_string_equal(tell_marks(), "uukku");
    assert_true(stand.chunks.hashes.is_by_parts);
    muster_state_hashes_compute(&stand.chunks, 9);
    assert_string_equal(tell_marks(), "kkkkk");
}

static void a_step_that_names_nothing_may_have_changed_anything(void **state)
{
    (void)state;
    muster_state_hashes_compute(&stand.chunks, 9);
    assert_int_equal(change_part(stand.first, 0), MUSTER_OK); /* a step that changes nothing */
    muster_state_hashes_commit(&stand.chunks);
    assert_string_equal(tell_marks(), "kkkkk");

    muster_state_hashes_commit(&stand.chunks);
    assert_string_equal(tell_marks(), "uuuuu");
    assert_false(stand.chunks.hashes.is_by_parts);
}

static void parts_beside_anything_are_not_counted_on(void **state)
{
    (void)state;
    for (int is_after = 0; is_after < 2; is_after++) {
        muster_state_hashes_compute(&stand.chunks, 9);
        if (is_after)
            muster_state_hashes_change_all(&stand.chunks);
        assert_int_equal(change_part(stand.first, 1), MUSTER_OK);
        if (!is_after)
            muster_state_hashes_change_all(&stand.chunks);
        muster_state_hashes_compute(&stand.chunks, 9);

        muster_state_hashes_commit(&stand.chunks);
        assert_string_equal(tell_marks(), "uuuuu");
        assert_false(stand.chunks.hashes.is_by_parts);
    }
}

static void bytes_that_are_committed_as_they_are_stay_known(void **state)
{
    (void)state;
    muster_state_hashes_compute(&stand.chunks, 9);
    muster_state_hashes_keep(&stand.chunks);
    muster_state_hashes_commit(&stand.chunks);
    assert_string_equal(tell_marks(), "kkkkk");
    assert_false(stand.chunks.hashes.is_by_parts); /* the program has not said anything yet */

    muster_state_hashes_commit(&stand.chunks);
    assert_string_equal(tell_marks(), "uuuuu");
}

static void who_forgets_all_forgets_what_was_promised(void **state)
{
    (void)state;
    assert_int_equal(change_part(stand.first, 1), MUSTER_OK);
    muster_state_hashes_forget_all(&stand.chunks);
    assert_string_equal(tell_marks(), "uuuuu");
    muster_state_hashes_compute(&stand.chunks, 9);

    muster_state_hashes_commit(&stand.chunks);
    assert_string_equal(tell_marks(), "uuuuu");
    assert_false(stand.chunks.hashes.is_by_parts);
}

static void a_part_lies_inside_one_tensor(void **state)
{
    static float stranger;

    (void)state;
    muster_state_hashes_compute(&stand.chunks, 9);
    assert_int_equal(change_part(&stranger, 1), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(change_part(stand.first + FIRST - 1, 2), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(change_part(stand.first - 1, 1), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(change_part(stand.second, SIZE_MAX / sizeof(float)), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(tell_marks(), "kkkkk");
    muster_state_hashes_commit(&stand.chunks);
    assert_string_equal(tell_marks(), "uuuuu"); /* a refused part is not a named one */

    muster_state_hashes_compute(&stand.chunks, 9);
    assert_int_equal(change_part(stand.first, FIRST), MUSTER_OK);
    assert_int_equal(change_part(stand.second, IN_CHUNK), MUSTER_OK);
    assert_string_equal(tell_marks(), "cccck");
}

TEST_SET_UP(set_up, stand_open())
TEST_SET_UP(tear_down, stand_close())
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_is_computed_once_and_of_the_bytes_that_are_there),
        CASE(what_a_step_changes_is_forgotten_and_nothing_else),
        CASE(a_step_that_names_nothing_may_have_changed_anything),
        CASE(parts_beside_anything_are_not_counted_on),
        CASE(bytes_that_are_committed_as_they_are_stay_known),
        CASE(who_forgets_all_forgets_what_was_promised),
        CASE(a_part_lies_inside_one_tensor),
    };

    return cmocka_run_group_tests_name("state_hashes", tests, NULL, NULL);
}
