/* The first state of a job on a node that the case plays: what is given in which pieces, and what is kept for
 * the case that the giver dies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "played_node.h"
#include "runtime/system/huge_memory.h"

#define PIECE ((size_t)4 << 20)

#define LOST(left)                                                                                 \
    "the initial state is lost: the members that had theirs whole have died while one gave its "   \
    "own to all, and the " left " that are left have parts of several; start the job again"

/* The members of the first view, by bits. */
static uint32_t members;

static void start_with_members(void)
{
    played_view(1, members, 0, 0, 0, NULL);
    played_ready(0, false);
}

/* --- what is given --- */

/* The others' values differ from this one's in these pieces of a batch, by the number of the comparison. */
static uint32_t (*differing)(unsigned comparison);
static unsigned comparison_count;
static char given[1024]; /* "c": a comparison; a number: so many pieces were given behind it */
static unsigned given_count;

static void write_given(void)
{
    if (given_count > 0)
        snprintf(given + strlen(given), sizeof(given) - strlen(given), "%u ", given_count);
    given_count = 0;
}

/* From this word of a digest on (0 … 3: both halves of it and of its complement) the others' is larger. */
static unsigned differing_word;

static void give_state(struct played_op *op)
{
    uint8_t *bytes = op->tensor.data;

    if (strcmp(op->kind, "all_reduce") == 0) {
        int64_t(*largest)[4] = op->tensor.data;
        uint32_t pieces = differing(comparison_count++);

        assert_int_equal(op->tensor.count, 8 * 4);
        for (unsigned i = 0; i < 8; i++)
            largest[i][differing_word] ^= (int64_t)(pieces >> i & 1) << 40;
        write_given();
        strcat(given, "c");
    } else if (strcmp(op->kind, "broadcast") == 0) {
        given_count++;
        if (op->root.incarnation.bytes[1] != PLAYED_SELF)
            for (uint64_t i = 0; i < op->tensor.count * muster_dtype_bytes(op->tensor.dtype); i++)
                bytes[i] ^= 0xff;
    }
}

static uint32_t none_differ(unsigned comparison)
{
    (void)comparison;
    return 0;
}

static uint32_t all_differ(unsigned comparison)
{
    (void)comparison;
    return 0xff;
}

static uint32_t odd_differ(unsigned comparison)
{
    (void)comparison;
    return 0xaa;
}

/* All of the first four batches that are compared. */
static uint32_t first_differ(unsigned comparison)
{
    return comparison < 4 ? 0xff : comparison == 4 ? 0x7f : 0xff;
}

static struct muster_strategy *open_giving(uint32_t of_members, uint32_t (*differ)(unsigned))
{
    played_open();
    members = of_members;
    played.is_spread = true;
    differing = differ;
    differing_word = 0;
    comparison_count = given_count = 0;
    given[0] = '\0';
    played.on_state = start_with_members;
    played.on_op = give_state;
    return played_strategy();
}

static void register_parts(struct muster_strategy *strategy, uint8_t *bytes, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct muster_tensor tensor = {.data = &bytes[i], .count = 1, .dtype = MUSTER_U8};
        char name[16];

        snprintf(name, sizeof(name), "t%u", i);
        bytes[i] = (uint8_t)(i % 100);
        assert_int_equal(muster_strategy_register(strategy, name, &tensor), MUSTER_OK);
    }
}

struct giving {
    const char *name;
    unsigned count; /* of tensors of one byte */
    uint32_t (*differing)(unsigned comparison);
    unsigned word;
    const char *given;
};

/* Eight pieces are compared together. Where all of them differ, the next ones are given without a
 * comparison: one batch, two, four, eight, eight. */
static void what_differs_is_given_in_batches(void **state)
{
    static const struct giving rows[] = {
        {"nothing", 0, all_differ, 0, ""},
        {"one", 1, all_differ, 0, "c1 "},
        {"one, alike", 1, none_differ, 0, "c"},
        {"the other half of the digest", 1, all_differ, 1, "c1 "},
        {"the smallest digest", 1, all_differ, 2, "c1 "},
        {"its other half", 1, all_differ, 3, "c1 "},
        {"a batch", 8, all_differ, 0, "c8 "},
        {"a batch and one", 9, all_differ, 0, "c9 "},
        {"two batches and one", 17, all_differ, 0, "c16 c1 "},
        {"all alike", 33, none_differ, 0, "ccccc"},
        {"half of them", 20, odd_differ, 0, "c4 c4 c2 "},
        {"very many", 8 * 40, all_differ, 0, "c16 c24 c40 c72 c72 c72 c24 "},
        {"one batch is alike in one", 8 * 30, first_differ, 0, "c16 c24 c40 c72 c7 c16 c24 c40 "},
    };
    static uint8_t bytes[8 * 40];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_giving(7, rows[i].differing);

        differing_word = rows[i].word;
        register_parts(strategy, bytes, rows[i].count);
        assert_int_equal(played_try_begin(strategy), MUSTER_OK);
        write_given();
        fail_if(strcmp(given, rows[i].given) != 0, "%s: %s", rows[i].name, given);
        assert_int_equal(strategy->shared_bytes, rows[i].count);
        assert_false(strategy->is_torn);
        played_close_strategy(strategy);
    }
}

/* Only what differs is overwritten. */
static void what_is_alike_stays(void **state)
{
    static uint8_t bytes[20];
    struct muster_strategy *strategy = open_giving(7, odd_differ);

    (void)state;
    register_parts(strategy, bytes, 20);
    assert_int_equal(played_try_begin(strategy), MUSTER_OK);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(bytes[i], i % 2 == 0 ? i : 0xff - i);
    assert_non_null(strstr(played_trace(), "state_shared 0 20 1\n"));
    played_close_strategy(strategy);
}

static void large_tensors_are_given_in_pieces(void **state)
{
    static const struct {
        enum muster_dtype dtype;
        uint64_t count;
        const char *pieces;
    } rows[] = {
        {MUSTER_U8, PIECE, "broadcast 4194304 x u8 of 0 in 1\ntouch\n"},
        {MUSTER_U8, PIECE + 1,
         "broadcast 4194304 x u8 of 0 in 1\nbroadcast 1 x u8 of 0 in 1\ntouch\ntouch\n"},
        {MUSTER_F64, PIECE / 8 * 2 + 3,
         "broadcast 524288 x f64 of 0 in 1\nbroadcast 524288 x f64 of 0 in 1\n"
         "broadcast 3 x f64 of 0 in 1\ntouch\ntouch\ntouch\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_giving(7, all_differ);
        size_t bytes = rows[i].count * muster_dtype_bytes(rows[i].dtype);
        uint8_t *data = calloc(1, bytes);
        const struct muster_tensor tensor = {
            .data = data, .count = rows[i].count, .dtype = rows[i].dtype};
        char expected[512];

        assert_non_null(data);
        assert_int_equal(muster_strategy_register(strategy, "a", &tensor), MUSTER_OK);
        assert_int_equal(played_try_begin(strategy), MUSTER_OK);
        snprintf(expected, sizeof(expected), "all_reduce 32 x i64 max\ntouch\n%scommit 0\n",
                 rows[i].pieces);
        fail_if(strstr(played.journal, expected) == NULL, "%s", played.journal);
        for (size_t k = 0; k < bytes; k++)
            if (data[k] != 0xff)
                fail_msg("byte %zu", k);
        assert_int_equal(strategy->shared_bytes, bytes);
        played_close_strategy(strategy);
        free(data);
    }
}

/* --- the giver dies --- */

#define PARTS 20u
/* Sizes of the record of a batch that is kept, and of the scratch in the first of two rounds. */
#define KEPT_BYTES    (sizeof(void *) + 8 * 24 + 8 + sizeof(struct muster_huge_memory))
#define SCRATCH_BYTES (8 * PIECE + MUSTER_HUGE_PAGE_BYTES)

struct death {
    const char *name;
    uint32_t members; /* the first of them dies */
    bool is_last_odd; /* the last one has registered another state */
    unsigned at;      /* it dies before so many broadcasts have ended */
    size_t refused_bytes;
    bool is_whole;  /* this one has all its own values then … */
    bool is_filled; /* … or all of the giver's */
};

static const struct death *death;
static unsigned broadcast_count;
static uint8_t parts[PARTS];

static void check_own(bool is_whole)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < PARTS; i++)
        kept += parts[i] == i;
    assert_int_equal(kept == PARTS, is_whole);
}

static void die_once(struct played_op *op)
{
    if (strcmp(op->kind, "gather_now") == 0) {
        uint64_t *words = op->output.data;
        uint32_t last = played.view->member_count - 1;

        if (played.view->epoch == 2) {
            assert_int_equal(((const uint64_t *)op->tensor.data)[1],
                             death->is_whole || death->is_filled);
            if (!death->is_filled)
                check_own(death->is_whole);
            for (uint32_t rank = 0; rank <= last; rank++)
                words[2 * rank + 1] = 1; /* the others are whole */
        }
        if (death->is_last_odd && played.view->epoch == 1)
            words[2 * last]++;
        return;
    }
    if (op->tensor.dtype != MUSTER_U8 && strcmp(op->kind, "broadcast") == 0)
        return; /* the size of a description */
    if (strcmp(op->kind, "broadcast") == 0 && op->tensor.count > 1)
        return; /* the description */
    give_state(op);
    if (played.view->epoch > 1 || strcmp(op->kind, "broadcast") != 0 ||
        ++broadcast_count <= death->at)
        return;
    op->rc = MUSTER_ABORTED;
    if (broadcast_count == death->at + 1)
        played_view(2, death->members & (death->members - 1), 0, 0, 1, NULL);
}

/* The last one that may give keeps its own values until it has all of the giver's. */
static void who_is_last_has_its_own_again_when_the_giver_dies(void **state)
{
    static const struct death rows[] = {
        {"the last one", 3, false, 0, 0, true, false},
        {"the last one, late", 3, false, 11, 0, true, false},
        {"the last one, at the end", 3, false, 19, 0, true, false},
        {"one before the last", 7, false, 11, 0, false, false},
        {"one before the last, which may not give", 7, true, 11, 0, true, false},
        {"the last one, without memory", 3, false, 11, KEPT_BYTES, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_giving(rows[i].members, all_differ);

        print_message("%s\n", rows[i].name);
        death = &rows[i];
        broadcast_count = 0;
        played.on_op = die_once;
        played.refused_bytes = rows[i].refused_bytes;
        register_parts(strategy, parts, PARTS);
        assert_int_equal(played_try_begin(strategy), MUSTER_OK);
        assert_int_equal(strategy->shared_bytes, PARTS); /* not what the first attempt gave */
        assert_false(strategy->is_torn);
        if (rows[i].members == 3)
            check_own(rows[i].is_whole); /* alone now: it is the giver */
        played_close_strategy(strategy);
    }
}

/* Among three on a host: the last one that may give is given to when the others have all. */
static void in_two_rounds_one_is_whole_whenever_the_giver_dies(void **state)
{
    static const struct death rows[] = {
        {"the keeper, at the begin", 7, true, 0, 0, true, false},
        {"the keeper, in the first round", 7, true, 19, 0, true, false},
        {"the keeper, in the second", 7, true, 31, 0, false, false},
        {"another one, in the first round", 7, false, 11, 0, false, false},
        {"another one, at the end of it", 7, false, 19, 0, false, false},
        {"another one, in the second", 7, false, 31, 0, false, true},
        {"without a scratch, in the first", 7, true, 11, SCRATCH_BYTES, true, false},
        {"without a scratch, in the second", 7, true, 31, SCRATCH_BYTES, true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_giving(rows[i].members, all_differ);

        print_message("%s\n", rows[i].name);
        played.is_spread = false;
        death = &rows[i];
        broadcast_count = 0;
        played.on_op = die_once;
        played.refused_bytes = rows[i].refused_bytes;
        register_parts(strategy, parts, PARTS);
        assert_int_equal(played_try_begin(strategy), MUSTER_OK);
        assert_true(broadcast_count > rows[i].at);
        assert_false(strategy->is_torn);
        played_close_strategy(strategy);
    }
}

static void lose_giver(struct played_op *op)
{
    if (strcmp(op->kind, "gather_now") == 0) {
        assert_int_equal(((const uint64_t *)op->tensor.data)[1], 0);
        ((uint64_t *)op->output.data)[1] = played.view->epoch == 1; /* the first one is whole */
    }
    give_state(op);
    if (strcmp(op->kind, "broadcast") != 0)
        return;
    played_view(2, 2, 0, 0, 1, NULL);
    op->rc = MUSTER_ABORTED;
}

/* Values of several members stay so, whoever keeps a copy of them. */
static void who_was_torn_is_so_when_the_giver_dies(void **state)
{
    static uint8_t byte;
    struct muster_strategy *strategy = open_giving(3, all_differ);

    (void)state;
    played.on_op = lose_giver;
    strategy->is_torn = true;
    register_parts(strategy, &byte, 1);
    assert_int_equal(played_try_begin(strategy), MUSTER_UNAVAILABLE);
    assert_string_equal(muster_strategy_error(strategy)->text, LOST("1"));
    played_close_strategy(strategy);
}

static size_t blocks_first, blocks_last;

static void count_blocks(struct played_op *op)
{
    give_state(op);
    if (strcmp(op->kind, "broadcast") != 0)
        return;
    blocks_last = played_blocks();
    if (blocks_first == 0)
        blocks_first = blocks_last;
}

/* It has them anyway. */
static void the_giver_keeps_no_copy(void **state)
{
    static const struct {
        uint32_t members;
        bool is_keeper;
    } rows[] = {{6, false}, {3, true}, {7, false}};
    static uint8_t bytes[20];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy *strategy = open_giving(rows[i].members, all_differ);

        blocks_first = 0;
        played.on_op = count_blocks;
        register_parts(strategy, bytes, 20);
        assert_int_equal(played_try_begin(strategy), MUSTER_OK);
        assert_int_equal(blocks_last - blocks_first, rows[i].is_keeper ? 4 : 0);
        played_close_strategy(strategy);
    }
}

static void miss_one(struct played_op *op)
{
    give_state(op);
    if (strcmp(op->kind, "all_reduce") == 0 && comparison_count == 1)
        op->op->result.contributor_count = 2;
}

/* A digest of fewer than all says nothing: all over again. */
static void a_comparison_without_one_is_repeated(void **state)
{
    static uint8_t bytes[3];
    struct muster_strategy *strategy = open_giving(7, all_differ);

    (void)state;
    played.on_op = miss_one;
    register_parts(strategy, bytes, 3);
    assert_int_equal(played_try_begin(strategy), MUSTER_OK);
    write_given();
    assert_string_equal(given, "cc3 ");
    played_close_strategy(strategy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_differs_is_given_in_batches),
        cmocka_unit_test(what_is_alike_stays),
        cmocka_unit_test(large_tensors_are_given_in_pieces),
        cmocka_unit_test(who_is_last_has_its_own_again_when_the_giver_dies),
        cmocka_unit_test(in_two_rounds_one_is_whole_whenever_the_giver_dies),
        cmocka_unit_test(who_was_torn_is_so_when_the_giver_dies),
        cmocka_unit_test(the_giver_keeps_no_copy),
        cmocka_unit_test(a_comparison_without_one_is_repeated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
