/* The hashes of a large state, shared out among the members. */
#include "catch_up_stand.h"

#include <string.h>

static struct catch_up_stand stand;

TEST_SET_UP(set_up, catch_up_stand_open(&stand))
TEST_SET_UP(tear_down, catch_up_stand_close(&stand))
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* So that the commit has hashes of all chunks but `count`. */
static void commit_known(uint32_t count)
{
    for (int i = 0; i < CATCH_UP_MEMBERS; i++) {
        struct muster_tensor part = {catch_up_stand_bytes(&stand, i),
                                     count * (uint64_t)MUSTER_STATE_CHUNK_BYTES, MUSTER_U8};

        muster_state_server_commit(stand.members[i].server, 4);
        muster_state_hashes_compute(&stand.members[i].chunks, CATCH_UP_CHUNKS);
        muster_state_server_touch(stand.members[i].server);
        assert_int_equal(muster_state_hashes_change(&stand.members[i].chunks, &part, 1), MUSTER_OK);
    }
    catch_up_stand_commit(&stand, 5);
}

static void each_member_hashes_a_part(void **state)
{
    (void)state;
    catch_up_stand_commit(&stand, 5);

    catch_up_stand_start(&stand, 5);
    catch_up_stand_finish(&stand, MUSTER_OK);

    assert_int_equal(catch_up_stand_hashed(&stand, 0), 34);
    assert_int_equal(catch_up_stand_hashed(&stand, 1), 33);
    assert_int_equal(catch_up_stand_hashed(&stand, 2), 33);
    assert_int_equal(stand.catch_up.bytes_fetched, CATCH_UP_BYTES);
}

static void little_is_hashed_by_all(void **state)
{
    (void)state;
    commit_known(10);

    catch_up_stand_start(&stand, 5);
    catch_up_stand_finish(&stand, MUSTER_OK);

    for (int i = 0; i < CATCH_UP_MEMBERS; i++)
        assert_int_equal(catch_up_stand_hashed(&stand, i), CATCH_UP_CHUNKS);
}

static void a_member_with_other_bytes_is_named(void **state)
{
    (void)state;
    for (size_t chunk = 0; chunk < CATCH_UP_CHUNKS; chunk++)
        catch_up_stand_bytes(&stand, 2)[chunk * MUSTER_STATE_CHUNK_BYTES + 7] ^= 1;
    catch_up_stand_commit(&stand, 5);

    catch_up_stand_start(&stand, 5);
    catch_up_stand_finish(&stand, MUSTER_DATA_LOSS);

    assert_non_null(strstr(stand.catch_up.error.text, "worker:2"));
}

/* Every chunk comes from another member than its hash, in both directions. */
static void two_members_are_compared_in_every_chunk(void **state)
{
    (void)state;
    catch_up_stand_view(&stand, 0, 2);
    for (size_t chunk = 0; chunk < CATCH_UP_CHUNKS; chunk += CATCH_UP_CHUNKS - 1) {
        uint8_t *byte = catch_up_stand_bytes(&stand, 0) + chunk * MUSTER_STATE_CHUNK_BYTES;

        *byte ^= 1;
        memset(stand.tensor.tensor.data, 0, CATCH_UP_BYTES); /* it has none of the chunks */
        muster_state_hashes_forget_all(&stand.chunks);
        catch_up_stand_commit(&stand, 5);
        catch_up_stand_start(&stand, 5);
        catch_up_stand_finish(&stand, MUSTER_DATA_LOSS);
        assert_non_null(strstr(stand.catch_up.error.text, "worker:0"));
        assert_non_null(strstr(stand.catch_up.error.text, "worker:1"));
        *byte ^= 1;
    }
}

static bool have_others_hashed(void *data)
{
    (void)data;
    return catch_up_stand_hashed(&stand, 1) + catch_up_stand_hashed(&stand, 2) >= 66;
}

static void the_part_of_a_dead_member_is_hashed_by_the_others(void **state)
{
    (void)state;
    muster_state_server_commit(stand.members[1].server, 5);
    muster_state_server_commit(stand.members[2].server, 5);
    catch_up_stand_start(&stand, 5);
    test_env_run_until(&stand.test.env, have_others_hashed, NULL);

    catch_up_stand_close_member(&stand, 0);
    catch_up_stand_follow(&stand, 3, 1, 2);
    catch_up_stand_finish(&stand, MUSTER_OK);
}

static bool has_first_hashed(void *data)
{
    (void)data;
    return catch_up_stand_hashed(&stand, 0) >= 34;
}

/* It was left out because it holds other bytes. */
static void hashes_of_a_member_that_is_left_out_are_void(void **state)
{
    (void)state;
    for (size_t chunk = 0; chunk < CATCH_UP_CHUNKS; chunk++)
        catch_up_stand_bytes(&stand, 0)[chunk * MUSTER_STATE_CHUNK_BYTES] ^= 1;
    muster_state_server_commit(stand.members[0].server, 5);
    catch_up_stand_start(&stand, 5);
    test_env_run_until(&stand.test.env, has_first_hashed, NULL);
    test_env_turn(&stand.test.env, 20);

    catch_up_stand_follow(&stand, 3, 1, 2);
    catch_up_stand_commit(&stand, 5);
    catch_up_stand_finish(&stand, MUSTER_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_member_hashes_a_part),
        CASE(little_is_hashed_by_all),
        CASE(a_member_with_other_bytes_is_named),
        CASE(two_members_are_compared_in_every_chunk),
        CASE(the_part_of_a_dead_member_is_hashed_by_the_others),
        CASE(hashes_of_a_member_that_is_left_out_are_void),
    };

    return cmocka_run_group_tests_name("catch_up_hashes", tests, NULL, NULL);
}
