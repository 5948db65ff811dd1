/* The first begin of a job on a node that the case plays: who gives, and when
 * it is all done again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "played_node.h"

/* The members of the first view, by bits. */
static uint32_t members, joiners;
static uint64_t joined_step;

static void start_with_members(void)
{
    played_view(1, members, joiners, joined_step, 0, NULL);
    played_ready(0, false);
}

/* --- who gives --- */

enum said { OWN, OWN_TORN, OTHER, OTHER_TORN };

/* The descriptions of the members, from rank 0 on; this one is worker:1. */
struct choice {
    const char *name;
    uint32_t members;
    enum said said[5];
    const char *journal; /* behind the gathering */
    enum muster_rc rc;
    const char *text;
};

static const struct choice *choice;

/* The descriptions in the order of ranks. */
static void say_descriptions(struct played_op *op)
{
    static char text[] = "theirs";
    const uint64_t *own = op->tensor.data;
    uint64_t *words = op->output.data;

    if (strcmp(op->kind, "gather_now") == 0) {
        assert_int_equal(own[1], 1);
        for (uint32_t rank = 0; rank < played.view->member_count; rank++) {
            words[2 * rank] = own[0] + (choice->said[rank] >= OTHER);
            words[2 * rank + 1] = choice->said[rank] % 2 == 0;
        }
    } else if (op->root.incarnation.bytes[1] == PLAYED_SELF) {
        assert_memory_equal(op->tensor.data, op->tensor.count == 1 ? "\6\0\0\0\0\0\0" : "shape",
                            op->tensor.count == 1 ? 8 : 6);
    } else if (op->tensor.dtype == MUSTER_I64) {
        assert_int_equal(*own, 6);
        *(uint64_t *)op->tensor.data = sizeof(text);
    } else {
        memcpy(op->tensor.data, text, sizeof(text));
    }
}

#define SIZES(giver) "broadcast 1 x i64 of " giver " in 1\ntouch\n"
#define SHAPE(giver) SIZES(giver) "broadcast 7 x u8 of " giver " in 1\ntouch\n"
#define OURS         SIZES("1") "broadcast 6 x u8 of 1 in 1\ntouch\n"
#define MATCHED      "match 7 bytes \"theirs\"\n"
#define LOST(left)                                                                                 \
    "the initial state is lost: the members that had theirs whole have died while one gave its "   \
    "own to all, and the " left " that are left have parts of several; start the job again"

static const struct choice choices[] = {
    {"all alike", 7, {OWN, OWN, OWN}, "", MUSTER_OK, ""},
    {"another differs", 7, {OWN, OWN, OTHER}, SHAPE("0"), MUSTER_OK, ""},
    {"the first differs", 15, {OTHER, OWN, OWN, OWN}, OURS, MUSTER_OK, ""},
    {"this one differs",
     7,
     {OTHER, OWN, OTHER},
     SHAPE("0") MATCHED,
     MUSTER_INVALID_ARGUMENT,
     "worker:1 differs from 2 of 3 members; compared with the state of worker:0: a is not b"},
    {"two sides, ours is first", 30, {OWN, OWN, OTHER, OTHER}, OURS, MUSTER_OK, ""},
    {"two sides, theirs is first",
     15,
     {OTHER, OWN, OTHER, OWN},
     SHAPE("0") MATCHED,
     MUSTER_INVALID_ARGUMENT,
     "worker:1 differs from 2 of 4 members; compared with the state of worker:0: a is not b"},
    {"more at the end",
     31,
     {OWN, OWN, OTHER, OTHER, OTHER},
     SHAPE("2") MATCHED,
     MUSTER_INVALID_ARGUMENT,
     "worker:1 differs from 3 of 5 members; compared with the state of worker:2: a is not b"},
    {"the first is torn", 15, {OWN_TORN, OWN, OTHER, OWN}, OURS, MUSTER_OK, ""},
    {"all but the last are torn", 15, {OWN_TORN, OWN_TORN, OTHER, OWN}, SHAPE("3"), MUSTER_OK, ""},
    {"all are torn", 7, {OWN_TORN, OWN_TORN, OWN_TORN}, "", MUSTER_UNAVAILABLE, LOST("3")},
    {"who is whole is not like the most",
     15,
     {OWN_TORN, OWN_TORN, OTHER, OWN_TORN},
     SHAPE("0"),
     MUSTER_UNAVAILABLE,
     LOST("3")},
};

static void the_first_whole_one_of_the_most_gives(void **state)
{
    static int64_t nothing;
    const struct muster_tensor tensor = {.data = &nothing, .count = 0, .dtype = MUSTER_I64};

    (void)state;
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        struct muster_strategy *strategy;
        const char *behind;
        enum muster_rc rc;

        choice = &choices[i];
        print_message("%s\n", choice->name);
        members = choice->members;
        joiners = 0;
        played_open();
        played.on_state = start_with_members;
        played.on_op = say_descriptions;
        played.match = "a is not b";
        strategy = played_strategy();
        assert_int_equal(muster_strategy_register(strategy, "a", &tensor), MUSTER_OK);
        rc = played_try_begin(strategy);
        assert_int_equal(rc, choice->rc);
        assert_string_equal(muster_strategy_error(strategy)->text, choice->text);
        behind = strstr(played.journal, "touch\n") + strlen("touch\n");
        fail_if(strncmp(behind, choice->journal, strlen(choice->journal)) != 0, "%s", behind);
        behind += strlen(choice->journal);
        fail_if(strncmp(behind, rc == MUSTER_OK ? "commit 0\n" : "give up:", 8) != 0, "%s", behind);
        assert_int_not_equal(strategy->begin, MUSTER_STRATEGY_BEGIN_SHARES);
        played_close_strategy(strategy);
    }
}

static void who_differs_in_words_only_is_told_so(void **state)
{
    static const struct choice odd = {"odd", 7, {OTHER, OWN, OTHER}, "", MUSTER_OK, ""};
    struct muster_strategy *strategy;

    (void)state;
    choice = &odd;
    played_open();
    played.on_op = say_descriptions;
    strategy = played_strategy();
    assert_int_equal(played_try_begin(strategy), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(
        muster_strategy_error(strategy)->text,
        "worker:1 differs from 2 of 3 members; compared with the state of worker:0: "
        "the descriptions differ");
    played_close_strategy(strategy);
}

static int64_t said_size;

static void say_size(struct played_op *op)
{
    if (strcmp(op->kind, "gather_now") == 0)
        say_descriptions(op);
    else if (op->tensor.dtype == MUSTER_I64)
        *(int64_t *)op->tensor.data = said_size;
}

#define MAX_BYTES ((int64_t)64 << 20)

static void a_description_has_a_size_that_makes_sense(void **state)
{
    static const struct choice odd = {"odd", 7, {OTHER, OWN, OTHER}, "", MUSTER_OK, ""};
    static const struct {
        int64_t size;
        size_t refused_bytes;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {-1, 0, MUSTER_DATA_LOSS, "rank 0 describes its state with -1 bytes"},
        {0, 0, MUSTER_INVALID_ARGUMENT, "the descriptions differ"},
        {MAX_BYTES, 0, MUSTER_INVALID_ARGUMENT, "the descriptions differ"},
        {MAX_BYTES + 1, 0, MUSTER_DATA_LOSS, "rank 0 describes its state with 67108865 bytes"},
        {4711, 4711, MUSTER_RESOURCE_EXHAUSTED,
         "comparison of the registered tensors: resource exhausted"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy;

        choice = &odd;
        played_open();
        played.on_op = say_size;
        played.refused_bytes = rows[i].refused_bytes;
        said_size = rows[i].size;
        strategy = played_strategy();
        assert_int_equal(played_try_begin(strategy), rows[i].rc);
        fail_if(strstr(muster_strategy_error(strategy)->text, rows[i].text) == NULL, "%s",
                muster_strategy_error(strategy)->text);
        assert_int_equal(muster_strategy_error(strategy)->rc, rows[i].rc);
        played_close_strategy(strategy);
    }
}

static void fail_broadcast(struct played_op *op)
{
    say_descriptions(op);
    if (strcmp(op->kind, "broadcast") == 0 &&
        op->tensor.dtype == (said_size % 2 == 0 ? MUSTER_I64 : MUSTER_U8))
        op->rc = MUSTER_DEADLINE_EXCEEDED;
}

/* The comparison broadcasts the size, then the bytes: either may fail. */
static void a_comparison_that_fails_ends_begin(void **state)
{
    static const struct choice odd[] = {{"another", 7, {OWN, OWN, OTHER}, "", MUSTER_OK, ""},
                                        {"this one", 7, {OTHER, OWN, OTHER}, "", MUSTER_OK, ""}};

    (void)state;
    for (said_size = 0; said_size < 4; said_size++) {
        struct muster_strategy *strategy;

        choice = &odd[said_size / 2];
        played_open();
        played.on_op = fail_broadcast;
        strategy = played_strategy();
        assert_int_equal(played_try_begin(strategy), MUSTER_DEADLINE_EXCEEDED);
        assert_string_equal(muster_strategy_error(strategy)->text,
                            "comparison of the registered tensors: deadline exceeded");
        played_close_strategy(strategy);
    }
}

static void without_memory_to_compare_begin_fails(void **state)
{
    static const struct {
        size_t refused_bytes;
        enum muster_rc pack_rc;
    } rows[] = {{3 * 16, MUSTER_OK}, {0, MUSTER_RESOURCE_EXHAUSTED}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy;

        played_open();
        strategy = played_strategy();
        played.refused_bytes = rows[i].refused_bytes;
        played.pack_rc = rows[i].pack_rc;
        assert_int_equal(played_try_begin(strategy), MUSTER_RESOURCE_EXHAUSTED);
        assert_string_equal(muster_strategy_error(strategy)->text,
                            "comparison of the registered tensors: resource exhausted");
        played_close_strategy(strategy);
    }
}

/* A member that joins for a later step has no part in it, and ranks are those of the others. */
static void who_joins_meanwhile_is_not_compared(void **state)
{
    struct muster_strategy *strategy;
    static uint8_t byte = 1;
    const struct muster_tensor tensor = {.data = &byte, .count = 1, .dtype = MUSTER_U8};

    (void)state;
    played_open();
    members = 15;
    joiners = 1;
    joined_step = 1;
    played.on_state = start_with_members;
    strategy = played_strategy();
    assert_int_equal(muster_strategy_register(strategy, "a", &tensor), MUSTER_OK);
    assert_int_equal(played_try_begin(strategy), MUSTER_OK);
    assert_non_null(strstr(played.journal, "gather_now 2 x i64 into 6\n"));
    assert_int_equal(strategy->shared_bytes, 1);
    played_close_strategy(strategy);
}

/* --- attempts --- */

static unsigned gathered;

static void abort_always(struct played_op *op)
{
    gathered += strcmp(op->kind, "gather_now") == 0;
    op->rc = MUSTER_ABORTED;
}

static void attempts_have_an_end(void **state)
{
    struct muster_strategy *strategy;

    (void)state;
    gathered = 0;
    played_open();
    played.on_op = abort_always;
    strategy = played_strategy();
    assert_int_equal(played_try_begin(strategy), MUSTER_ABORTED);
    assert_int_equal(gathered, 64);
    assert_non_null(
        strstr(played.journal, "give up: comparison of the registered tensors: aborted"));
    assert_int_not_equal(strategy->begin, MUSTER_STRATEGY_BEGIN_SHARES);
    played_close_strategy(strategy);
}

static void start_in_a_change(void)
{
    played_start_job();
    played.is_changing = true;
}

static void end_change_alone(void)
{
    played.is_changing = false;
    played_view(2, 2, 0, 0, 1, NULL);
}

/* The members are counted when the change is over. */
static void a_change_that_is_under_way_is_awaited(void **state)
{
    struct muster_strategy *strategy;

    (void)state;
    played_open();
    played.on_state = start_in_a_change;
    played.on_look = end_change_alone;
    strategy = played_strategy();
    assert_int_equal(played_try_begin(strategy), MUSTER_OK);
    assert_non_null(strstr(played.journal, "gather_now 2 x i64 into 2\n"));
    assert_null(strstr(played.journal, "into 6\n"));
    played_close_strategy(strategy);
}

static void fail_in_change(void)
{
    played.is_changing = false;
    played_fail(MUSTER_UNAVAILABLE, "no registry");
}

static void exclude_in_change(void)
{
    played.is_changing = false;
    played.on_state = played_catch_up;
    played_exclude(MUSTER_ABORTED, "suspected");
}

/* A process that is no longer a member afterwards has nothing to share. */
static void a_change_may_be_the_end(void **state)
{
    static const struct {
        void (*on_look)(void);
        enum muster_rc rc;
    } rows[] = {{fail_in_change, MUSTER_UNAVAILABLE}, {exclude_in_change, MUSTER_OK}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy;

        played_open();
        played.on_state = start_in_a_change;
        played.on_look = rows[i].on_look;
        strategy = played_strategy();
        assert_int_equal(played_try_begin(strategy), rows[i].rc);
        assert_null(strstr(played.journal, "gather"));
        assert_null(strstr(played.journal, "give up"));
        assert_int_not_equal(strategy->begin, MUSTER_STRATEGY_BEGIN_SHARES);
        played_close_strategy(strategy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_whole_one_of_the_most_gives),
        cmocka_unit_test(who_differs_in_words_only_is_told_so),
        cmocka_unit_test(a_description_has_a_size_that_makes_sense),
        cmocka_unit_test(a_comparison_that_fails_ends_begin),
        cmocka_unit_test(without_memory_to_compare_begin_fails),
        cmocka_unit_test(who_joins_meanwhile_is_not_compared),
        cmocka_unit_test(attempts_have_an_end),
        cmocka_unit_test(a_change_that_is_under_way_is_awaited),
        cmocka_unit_test(a_change_may_be_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
