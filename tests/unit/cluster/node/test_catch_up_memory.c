/* Chunks read in the memory of members of the same host. */
#include "catch_up_stand.h"
#include "torture.h"

#include <string.h>

static struct catch_up_stand stand;

TEST_SET_UP(set_up, catch_up_stand_open(&stand))
TEST_SET_UP(tear_down, catch_up_stand_close(&stand))
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void fetch_all(void)
{
    catch_up_stand_commit(&stand, 5);
    catch_up_stand_start(&stand, 5);
    catch_up_stand_finish(&stand, MUSTER_OK);
    assert_int_equal(stand.catch_up.bytes_fetched, CATCH_UP_BYTES);
}

static void memory_of_members_is_read(void **state)
{
    (void)state;
    catch_up_stand_connect(&stand);

    fetch_all();

    assert_int_equal(stand.catch_up.bytes_read, CATCH_UP_BYTES);
}

/* A chunk is not read from the only one that has told its hash. */
static void members_are_compared(void **state)
{
    (void)state;
    catch_up_stand_connect(&stand);
    catch_up_stand_view(&stand, 0, 2);
    catch_up_stand_bytes(&stand, 0)[5] ^= 1;
    catch_up_stand_commit(&stand, 5);

    catch_up_stand_start(&stand, 5);
    catch_up_stand_finish(&stand, MUSTER_DATA_LOSS);

    assert_non_null(strstr(stand.catch_up.error.text, "worker:0"));
    assert_non_null(strstr(stand.catch_up.error.text, "worker:1"));
}

static void a_single_member_is_read(void **state)
{
    (void)state;
    catch_up_stand_connect(&stand);
    catch_up_stand_view(&stand, 1, 1);

    fetch_all();

    assert_int_equal(stand.catch_up.bytes_read, CATCH_UP_BYTES);
}

static void where_reading_is_forbidden_members_send(void **state)
{
    (void)state;
    stand.boards.is_reading_forbidden = true;
    catch_up_stand_connect(&stand);

    fetch_all();

    assert_int_equal(stand.catch_up.bytes_read, 0);
}

static void shared_tensors_are_read_where_reading_is_forbidden(void **state)
{
    (void)state;
    stand.boards.is_reading_forbidden = true;
    stand.boards.keeps_shares = true;
    catch_up_stand_connect(&stand);
    for (int i = 0; i < CATCH_UP_MEMBERS; i++) {
        struct catch_up_member *member = &stand.members[i];
        void *at = NULL;

        assert_int_equal(muster_board_share_new(member->board, CATCH_UP_BYTES, &at), MUSTER_OK);
        memcpy(at, catch_up_stand_bytes(&stand, i), CATCH_UP_BYTES);
        member->chunks.tensors[0].tensor.data = at;
    }
    test_env_turn(&stand.test.env, 10);

    fetch_all();

    assert_int_equal(stand.catch_up.bytes_read, CATCH_UP_BYTES);
}

static void a_member_that_is_no_peer_is_left_to_the_others(void **state)
{
    (void)state;
    catch_up_stand_connect(&stand);
    sim_board_refuse(&stand.boards, &stand.self, &stand.members[0].hello.incarnation);

    fetch_all();

    assert_int_equal(stand.catch_up.bytes_read, CATCH_UP_BYTES);
}

static bool has_read(void *data)
{
    (void)data;
    return stand.catch_up.bytes_read > 0;
}

/* Its memory is gone before its link breaks. */
static void a_member_that_dies_is_left_to_the_others(void **state)
{
    (void)state;
    catch_up_stand_connect(&stand);
    catch_up_stand_commit(&stand, 5);
    catch_up_stand_start(&stand, 5);
    test_env_run_until(&stand.test.env, has_read, NULL);

    sim_board_kill(&stand.boards, &stand.members[0].hello.incarnation);
    catch_up_stand_finish(&stand, MUSTER_OK);

    assert_int_equal(stand.catch_up.bytes_read, CATCH_UP_BYTES);
}

/* It says so when it is asked again. */
static void bytes_of_a_member_that_went_on_do_not_count(void **state)
{
    (void)state;
    catch_up_stand_connect(&stand);
    catch_up_stand_commit(&stand, 5);
    catch_up_stand_start(&stand, 5);
    test_env_run_until(&stand.test.env, has_read, NULL);

    muster_state_server_touch(stand.members[0].server);
    memset(catch_up_stand_bytes(&stand, 0), 0, CATCH_UP_BYTES);
    catch_up_stand_finish(&stand, MUSTER_OK);
}

/* A member, the joiner or its readers get none; without readers the members send. */
static void run_short(struct torture *torture, const void *data)
{
    (void)data;
    catch_up_stand_open(&stand);
    catch_up_stand_connect(&stand);
    catch_up_stand_commit(&stand, 5);
    catch_up_stand_start(&stand, 5);
    torture_arm_limited(torture, &stand.test.mem);
    test_env_run_until(&stand.test.env, test_env_is_true, &stand.is_done);
    torture_disarm(torture);

    if (stand.rc == MUSTER_OK)
        assert_memory_equal(stand.tensor.tensor.data, catch_up_stand_bytes(&stand, 1),
                            CATCH_UP_BYTES);
    else
        assert_int_equal(stand.rc, MUSTER_RESOURCE_EXHAUSTED);
    catch_up_stand_close(&stand);
}

static void want_of_memory_keeps_no_joiner_waiting(void **state)
{
    const struct torture_scenario scenario = {
        .name = "catch-up in memory", .run = run_short, .variant_count = 1, .runs_max = 8};

    (void)state;
    torture_run(&scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(memory_of_members_is_read),
        CASE(members_are_compared),
        CASE(a_single_member_is_read),
        CASE(where_reading_is_forbidden_members_send),
        CASE(shared_tensors_are_read_where_reading_is_forbidden),
        CASE(a_member_that_is_no_peer_is_left_to_the_others),
        CASE(a_member_that_dies_is_left_to_the_others),
        CASE(bytes_of_a_member_that_went_on_do_not_count),
        cmocka_unit_test_teardown(want_of_memory_keeps_no_joiner_waiting, torture_tell),
    };

    return cmocka_run_group_tests_name("catch_up_memory", tests, NULL, NULL);
}
