/* Blobs of a strategy on a node that the case plays: whose bytes they are after each begin and commit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy_blob.h>

#include "assertion_count.h"
#include "played_node.h"

static struct muster_strategy *open_with_blob(const char *value)
{
    struct muster_strategy *strategy;

    played_open();
    strategy = played_strategy();
    assert_int_equal(muster_strategy_register_blob(strategy, "extra"), MUSTER_OK);
    assert_int_equal(muster_strategy_set_blob(strategy, "extra", value, strlen(value)), MUSTER_OK);
    return strategy;
}

static void expect_blob(struct muster_strategy *strategy, const char *value)
{
    const void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_strategy_blob(strategy, "extra", &bytes, &size), MUSTER_OK);
    assert_int_equal(size, strlen(value));
    if (size > 0)
        assert_memory_equal(bytes, value, size);
    assert_int_equal(played.blobs[0].size, size); /* joiners are shown the same */
    if (size > 0)
        assert_memory_equal(played.blobs[0].bytes, value, size);
}

/* --- Whose they are --- */

static const char *given;   /* by rank 0 */
static unsigned dies_in;    /* the broadcast in which rank 0 is lost, from 1; 0: none */
static unsigned broadcasts; /* since the first begin */

/* Rank 0's answers. All have described the same state. */
static void give_blob(struct played_op *op)
{
    if (strcmp(op->kind, "gather_now") == 0) {
        for (uint32_t rank = 0; rank < played.view->member_count; rank++)
            memcpy((uint64_t *)op->output.data + 2 * rank, op->tensor.data, 2 * sizeof(uint64_t));
        return;
    }
    if (strcmp(op->kind, "broadcast") != 0)
        return;
    if (++broadcasts == dies_in) {
        played_view(2, 6, 0, 0, 0, NULL);
        op->rc = MUSTER_ABORTED;
        return;
    }
    if (op->root.incarnation.bytes[1] == PLAYED_SELF)
        return;
    if (op->tensor.dtype == MUSTER_U64)
        *(uint64_t *)op->tensor.data = strlen(given);
    else
        memcpy(op->tensor.data, given, op->tensor.count);
}

static struct muster_strategy *begin_given(const char *own, const char *theirs, unsigned dies)
{
    struct muster_strategy *strategy = open_with_blob(own);

    given = theirs;
    dies_in = dies;
    broadcasts = 0;
    played.on_state = played_start_job;
    played.on_op = give_blob;
    played_begin_unnoted(strategy);
    played.on_op = NULL;
    return strategy;
}

static void a_new_job_begins_with_those_of_the_giver(void **state)
{
    static const char *const rows[][2] = {
        {"own", "a longer one"}, {"a long one", "brief"}, {"", "some"}, {"some", ""}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = begin_given(rows[i][0], rows[i][1], 0);

        expect_blob(strategy, rows[i][1]);
        played_close_strategy(strategy);
    }
}

/* In the broadcast of the size, and in that of the bytes: this one gives next. */
static void its_own_are_whole_when_the_giver_dies(void **state)
{
    (void)state;
    for (unsigned dies = 1; dies <= 2; dies++) {
        struct muster_strategy *strategy = begin_given("own", "theirs", dies);

        expect_blob(strategy, "own");
        assert_int_equal(broadcasts, dies + 2);
        played_close_strategy(strategy);
    }
}

static void who_comes_back_has_those_that_were_fetched(void **state)
{
    static const struct muster_node_blob fetched[] = {{"from the members", 16}};
    struct muster_strategy *strategy = open_with_blob("own");

    (void)state;
    played.on_state = played_catch_up;
    played.fetched_blobs = fetched;
    played_begin_unnoted(strategy);
    expect_blob(strategy, "from the members");
    played_close_strategy(strategy);
}

/* Left out alone, it comes back with the state that it has. */
static void who_keeps_its_state_keeps_its_blobs(void **state)
{
    struct muster_strategy *strategy = open_with_blob("own");

    (void)state;
    played.on_state = played_catch_up;
    played_begin_unnoted(strategy);
    expect_blob(strategy, "own");
    played_close_strategy(strategy);
}

/* A joiner is told the hashes of all parts in one message, which blobs are in, too. */
static void a_state_that_no_joiner_could_be_told_of_is_refused(void **state)
{
    static const uint64_t gib = (uint64_t)1 << 30;
    static double first;
    struct muster_tensor large = {&first, 100 * gib / sizeof(first), MUSTER_F64};
    struct muster_strategy *strategy;

    (void)state;
    played_open();
    strategy = played_strategy();
    assert_int_equal(muster_strategy_register(strategy, "large", &large), MUSTER_OK);
    assert_int_equal(muster_strategy_register(strategy, "more", &large), MUSTER_OK);
    played_expect_error(strategy, muster_strategy_register_blob(strategy, "extra"),
                        MUSTER_RESOURCE_EXHAUSTED,
                        "register extra: the state must have at most 524259 parts of 256 KiB "
                        "beside blobs (127 GiB), so that a joiner can be told their hashes; "
                        "register less");
    played_expect_error(strategy, muster_strategy_register(strategy, "most", &large),
                        MUSTER_RESOURCE_EXHAUSTED,
                        "register most: the state must have at most 1048547 parts of 256 KiB (255 "
                        "GiB), so that a joiner can be told their hashes; register less");
    assert_int_equal(strategy->tensor_count, 2);
    played_close_strategy(strategy);
}

/* --- Steps --- */

static void a_value_counts_from_commit(void **state)
{
    struct muster_strategy *strategy = begin_given("", "first", 0);

    (void)state;
    assert_int_equal(muster_strategy_set_blob(strategy, "extra", "second", 6), MUSTER_OK);
    expect_blob(strategy, "first");
    played_commit(strategy);
    expect_blob(strategy, "second");
    played_begin_unnoted(strategy);
    played_commit(strategy);
    expect_blob(strategy, "second");
    played_close_strategy(strategy);
}

static void a_step_without_commit_leaves_it_as_it_was(void **state)
{
    struct muster_strategy *strategy = begin_given("", "first", 0);

    (void)state;
    assert_int_equal(muster_strategy_set_blob(strategy, "extra", "second", 6), MUSTER_OK);
    played_begin_unnoted(strategy);
    expect_blob(strategy, "first");
    played_commit(strategy);
    expect_blob(strategy, "first");
    played_close_strategy(strategy);
}

static void its_bytes_are_in_the_digest(void **state)
{
    struct muster_strategy *strategy = begin_given("", "first", 0);
    char digests[2][MUSTER_DIGEST_TEXT_BYTES];

    (void)state;
    muster_strategy_state_digest(strategy, digests[0]);
    assert_int_equal(muster_strategy_set_blob(strategy, "extra", "others", 6), MUSTER_OK);
    played_commit(strategy);
    muster_strategy_state_digest(strategy, digests[1]);
    assert_string_not_equal(digests[0], digests[1]);
    played_close_strategy(strategy);
}

/* The name is compared by a tensor that has no elements, whatever the blob has. */
static void the_node_sees_its_name_alone(void **state)
{
    struct muster_strategy *strategy = open_with_blob("own");

    (void)state;
    played.on_state = played_start_job;
    played.on_op = give_blob;
    given = "theirs";
    dies_in = broadcasts = 0;
    assert_int_equal(played_try_begin(strategy), MUSTER_OK);
    assert_int_equal(played_count_lines("blobs 1\n"), 1);
    assert_int_equal(played_count_lines("state extra"), 1);
    assert_int_equal(played_count_lines("broadcast 6 x u8"), 1);
    played_close_strategy(strategy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_job_begins_with_those_of_the_giver),
        cmocka_unit_test(its_own_are_whole_when_the_giver_dies),
        cmocka_unit_test(who_comes_back_has_those_that_were_fetched),
        cmocka_unit_test(who_keeps_its_state_keeps_its_blobs),
        cmocka_unit_test(a_state_that_no_joiner_could_be_told_of_is_refused),
        cmocka_unit_test(a_value_counts_from_commit),
        cmocka_unit_test(a_step_without_commit_leaves_it_as_it_was),
        cmocka_unit_test(its_bytes_are_in_the_digest),
        cmocka_unit_test(the_node_sees_its_name_alone),
    };

    return cmocka_run_group_tests_name("strategy_blob_played", tests, NULL, NULL);
}
