/* Sources: their slots, generations and positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <string.h>

#define MIB    ((size_t)1 << 20)
#define SHARDS 4096u

static struct muster_incarnation id_of(uint32_t number)
{
    struct muster_incarnation id = {{7}};

    memcpy(id.bytes + 4, &number, sizeof(number));
    return id;
}

static void each_opening_raises_the_generation(void **state)
{
    struct region_stand stand;
    struct muster_incarnation one = id_of(1), two = id_of(2), three = id_of(3);
    uint64_t slots[3] = {9, 9, 9}, found = 9;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 8);
    assert_null(muster_params_source_at(&stand.region, 0));
    assert_int_equal(muster_params_source_open(
                         &stand.region, &(struct muster_params_opener){.id = one}, &slots[0]),
                     MUSTER_OK);
    assert_int_equal(muster_params_source_open(
                         &stand.region, &(struct muster_params_opener){.id = two}, &slots[1]),
                     MUSTER_OK);
    muster_params_source_at(&stand.region, 0)->positions[3] = 5;
    assert_int_equal(muster_params_source_open(
                         &stand.region, &(struct muster_params_opener){.id = one}, &slots[2]),
                     MUSTER_OK);

    assert_int_equal(slots[0], 0);
    assert_int_equal(slots[1], 1);
    assert_int_equal(slots[2], 0);
    assert_int_equal(muster_params_source_at(&stand.region, 0)->generation, 2);
    assert_int_equal(muster_params_source_at(&stand.region, 1)->generation, 1);
    assert_int_equal(muster_params_source_at(&stand.region, 0)->positions[3], 5);
    assert_ptr_equal(muster_params_source_find(&stand.region, &two, &found),
                     muster_params_source_at(&stand.region, 1));
    assert_int_equal(found, 1);
    assert_null(muster_params_source_find(&stand.region, &three, &found));
    assert_int_equal(found, 1);
    assert_null(muster_params_source_at(&stand.region, 2));
    region_stand_close(&stand);
}

#define SOURCES 200u /* 63 lie in a segment: one has 4,096 positions */

static void sources_of_several_segments_lie_apart(void **state)
{
    struct region_stand stand;

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    for (uint32_t i = 0; i < SOURCES; i++) {
        struct muster_incarnation id = id_of(i);
        struct muster_params_source *source;
        uint64_t slot;

        assert_int_equal(muster_params_source_open(&stand.region,
                                                   &(struct muster_params_opener){.id = id}, &slot),
                         MUSTER_OK);
        assert_int_equal(slot, i);
        source = muster_params_source_at(&stand.region, slot);
        for (uint32_t shard = 0; shard < SHARDS; shard++)
            source->positions[shard] = i;
    }
    region_stand_recover(&stand);

    assert_int_equal(stand.region.head->source_segment_count, 4);
    for (uint32_t i = 0; i < SOURCES; i++) {
        const struct muster_params_source *source = muster_params_source_at(&stand.region, i);
        struct muster_incarnation id = id_of(i);

        assert_int_equal(source->generation, 1);
        assert_memory_equal(&source->id, &id, sizeof(id));
        assert_int_equal(source->positions[0], i);
        assert_int_equal(source->positions[SHARDS - 1], i);
    }
    region_stand_close(&stand);
}

static void a_source_without_memory_is_refused_and_a_known_one_is_not(void **state)
{
    struct region_stand stand;
    struct muster_incarnation id;
    uint32_t count = 0;
    uint64_t slot = 0;

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    do
        id = id_of(count++);
    while (muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = id},
                                     &slot) == MUSTER_OK);

    assert_int_equal(count - 1, 7 * 63);
    assert_int_equal(slot, 7 * 63 - 1);
    assert_int_equal(
        muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = id}, &slot),
        MUSTER_RESOURCE_EXHAUSTED);
    id = id_of(100);
    assert_int_equal(
        muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = id}, &slot),
        MUSTER_OK);
    assert_int_equal(slot, 100);
    region_stand_close(&stand);
}

static void further_links_of_a_process_raise_the_generation_until_a_younger_one_comes(void **state)
{
    struct region_stand stand;
    struct muster_incarnation one = id_of(1), two = id_of(2);
    const struct muster_params_source *source;
    uint64_t slot = 9, first, second;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 8);
    assert_int_equal(
        muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = one}, &slot),
        MUSTER_OK);
    source = muster_params_source_at(&stand.region, slot);
    first = source->generation;
    assert_int_equal(
        muster_params_source_reopen(
            &stand.region, &(struct muster_params_opener){.id = one, .generation = first}, &slot),
        MUSTER_OK);
    second = source->generation;
    /* Its answer was lost: the process knows the first generation only. */
    assert_int_equal(
        muster_params_source_reopen(
            &stand.region, &(struct muster_params_opener){.id = one, .generation = first}, &slot),
        MUSTER_OK);
    assert_int_not_equal(first, second);
    assert_int_not_equal(second, source->generation);
    assert_int_equal(slot, 0);

    assert_int_equal(
        muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = one}, &slot),
        MUSTER_OK);
    assert_int_equal(
        muster_params_source_reopen(
            &stand.region, &(struct muster_params_opener){.id = one, .generation = second}, &slot),
        MUSTER_ABORTED);
    assert_int_equal(
        muster_params_source_reopen(
            &stand.region,
            &(struct muster_params_opener){.id = one, .generation = source->generation}, &slot),
        MUSTER_OK);
    assert_int_equal(
        muster_params_source_reopen(
            &stand.region, &(struct muster_params_opener){.id = two, .generation = first}, &slot),
        MUSTER_FAILED_PRECONDITION);
    region_stand_close(&stand);
}

/* A first opening may come to two homes, or twice to one, over links of which the process has left some. */
static void a_process_that_comes_again_is_not_taken_for_a_younger_one(void **state)
{
    struct region_stand stand;
    struct muster_params_opener a = {.id = id_of(1), .process = 7, .link = 1};
    struct muster_params_opener b = {.id = id_of(1), .process = 8, .link = 1};
    const struct muster_params_source *source;
    uint64_t slot, before;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 8);
    assert_int_equal(muster_params_source_open(&stand.region, &a, &slot), MUSTER_OK);
    source = muster_params_source_at(&stand.region, slot);
    a.link = 3;
    assert_int_equal(muster_params_source_open(&stand.region, &a, &slot), MUSTER_OK);
    assert_int_equal((uint32_t)source->generation, 1);

    before = source->generation;
    a.link = 2;
    assert_int_equal(muster_params_source_open(&stand.region, &a, &slot), MUSTER_UNAVAILABLE);
    assert_int_equal(source->generation, before);

    /* This server was the home before, and its number is ahead of the new home's. */
    b.link = 1;
    assert_int_equal(muster_params_source_open(&stand.region, &b, &slot), MUSTER_OK);
    b = (struct muster_params_opener){.id = b.id, .process = 8, .link = 2, .generation = 1};
    assert_int_equal(muster_params_source_adopt(&stand.region, &b, &slot), MUSTER_OK);
    b.link = 3;
    assert_int_equal(muster_params_source_reopen(&stand.region, &b, &slot), MUSTER_OK);
    assert_int_equal((uint32_t)source->generation, 2);
    before = source->generation;
    b.generation = 9;
    assert_int_equal(muster_params_source_learn(&stand.region, &b, &slot), MUSTER_OK);
    assert_int_equal(source->generation, before);

    a.link = 4;
    a.generation = 1;
    assert_int_equal(muster_params_source_adopt(&stand.region, &a, &slot), MUSTER_ABORTED);
    assert_int_equal(muster_params_source_reopen(&stand.region, &a, &slot), MUSTER_ABORTED);
    region_stand_close(&stand);
}

/* The home has moved, and this server does not know: each of three processes opens the source here, is killed, and
 * never hears of its generation. The home gives the first of these numbers to another process. */
static void generations_that_a_former_home_has_given_are_void(void **state)
{
    struct muster_params_opener opener = {.id = {{1}}, .process = 1}, late;
    struct region_stand stand;
    uint64_t slot, of_first = 0;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 1);
    assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
    muster_params_source_confirm(&stand.region, slot, 1);
    for (opener.process = 2; opener.process < 5; opener.process++) {
        assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
        if (opener.process == 2)
            of_first = muster_params_source_at(&stand.region, slot)->generation;
    }
    assert_int_equal((uint32_t)muster_params_source_at(&stand.region, slot)->generation, 4);

    opener.generation = 2;
    opener.process = 9;
    assert_int_equal(muster_params_source_adopt(&stand.region, &opener, &slot), MUSTER_ABORTED);
    opener.home_is_elsewhere = true;
    assert_int_equal(muster_params_source_adopt(&stand.region, &opener, &slot), MUSTER_OK);
    assert_int_equal((uint32_t)muster_params_source_at(&stand.region, slot)->generation, 2);
    assert_true(muster_params_source_at(&stand.region, slot)->generation != of_first);

    late = (struct muster_params_opener){
        .id = opener.id, .generation = 1, .process = 1, .home_is_elsewhere = true};
    assert_int_equal(muster_params_source_adopt(&stand.region, &late, &slot), MUSTER_ABORTED);
    region_stand_close(&stand);
}

/* A copy hears from the home which generation counts: it has given others itself while it was the home. */
static void the_home_tells_its_copies_which_generation_counts(void **state)
{
    static const struct {
        uint32_t confirmed, told;
        bool is_home; /* that tells */
        uint32_t generation; /* then */
    } rows[] = {{1, 2, true, 2}, {1, 2, false, 4}, {3, 2, true, 4}, {1, 6, true, 6}, {1, 6, false, 6}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_opener opener = {.id = {{1}}};
        struct region_stand stand;
        uint64_t slot;

        region_stand_open(&stand, 16 * MIB, 1);
        for (opener.process = 1; opener.process < 5; opener.process++)
            assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
        muster_params_source_confirm(&stand.region, slot, rows[i].confirmed);
        opener.process = 9;
        opener.generation = rows[i].told;
        opener.home_is_elsewhere = rows[i].is_home;
        assert_int_equal(muster_params_source_learn(&stand.region, &opener, &slot), MUSTER_OK);
        assert_int_equal((uint32_t)muster_params_source_at(&stand.region, slot)->generation,
                         rows[i].generation);
        region_stand_close(&stand);
    }
}

static void source_forget(struct region_stand *stand, uint64_t slot)
{
    uint8_t shards[1] = {0xff};

    muster_params_source_forget(&stand->region, slot, shards);
}

static void slots_that_are_free_are_used_again(void **state)
{
    struct region_stand stand;
    struct muster_params_opener opener = {.process = 3};
    uint64_t slots[20], slot;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 8);
    for (uint32_t i = 0; i < 20; i++) {
        opener.id = id_of(i);
        assert_int_equal(muster_params_source_open(&stand.region, &opener, &slots[i]), MUSTER_OK);
        muster_params_source_at(&stand.region, slots[i])->positions[5] = 77;
    }
    for (uint32_t i = 0; i < 20; i += 2) {
        source_forget(&stand, slots[i]);
        muster_params_source_free(&stand.region, slots[i]);
    }

    assert_int_equal(muster_params_source_live(&stand.region), 10);
    for (uint32_t i = 0; i < 20; i++) {
        struct muster_incarnation id = id_of(i);
        bool is_there = muster_params_source_find(&stand.region, &id, &slot) != NULL;

        assert_int_equal(is_there, i % 2);
        assert_true(!is_there || slot == slots[i]);
    }
    for (uint32_t i = 100; i < 110; i++) {
        opener.id = id_of(i);
        assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
        assert_true(slot < 20 && slot % 2 == 0);
        assert_int_equal(muster_params_source_at(&stand.region, slot)->positions[5], 0);
        assert_int_equal(muster_params_source_at(&stand.region, slot)->generation, 1);
    }
    assert_int_equal(stand.region.head->source_count, 20);
    region_stand_close(&stand);
}

/* It may have pushed what it would send again. */
static void the_process_of_a_forgotten_source_is_not_let_in_again(void **state)
{
    struct region_stand stand;
    struct muster_params_opener opener = {.id = id_of(1), .process = 3};
    uint64_t slot;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 8);
    assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
    source_forget(&stand, slot);
    opener.generation = 1;
    assert_int_equal(muster_params_source_reopen(&stand.region, &opener, &slot),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_params_source_adopt(&stand.region, &opener, &slot),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_params_source_learn(&stand.region, &opener, &slot), MUSTER_OK);

    opener = (struct muster_params_opener){.id = id_of(1), .process = 4};
    assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
    opener.generation = 2;
    assert_int_equal(muster_params_source_reopen(&stand.region, &opener, &slot), MUSTER_OK);
    region_stand_close(&stand);
}

static void sources_beyond_the_limit_are_refused(void **state)
{
    struct region_stand stand;
    struct muster_params_opener opener = {.process = 3};
    uint64_t slot;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 8);
    stand.region.sources_max = 3;
    for (uint32_t i = 0; i < 3; i++) {
        opener.id = id_of(i);
        assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
    }
    opener.id = id_of(3);
    assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot),
                     MUSTER_RESOURCE_EXHAUSTED);
    opener.id = id_of(2);
    assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
    muster_params_source_free(&stand.region, slot);
    opener.id = id_of(3);
    assert_int_equal(muster_params_source_open(&stand.region, &opener, &slot), MUSTER_OK);
    region_stand_close(&stand);
}

/* A death may have cut short a push: within a run, or between two runs. Numbers of refused pushes are
 * used by no rows. */
static void a_new_process_leaves_out_a_push_that_is_applied_in_part(void **state)
{
    static const struct {
        uint64_t pushed, position, sequence;
    } rows[] = {
        {0, 0, 1},
        {41, 0, 42},
        {41, (uint64_t)42 << 16, 42},
        {41, (uint64_t)42 << 16 | 5, 43},
        {41, (uint64_t)43 << 16, 43},
        {40, (uint64_t)42 << 16 | 5, 43}, /* 41 was refused */
    };
    struct region_stand stand;
    struct muster_incarnation one = id_of(1);
    struct muster_params_source *source;
    uint64_t slot;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 8);
    assert_int_equal(
        muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = one}, &slot),
        MUSTER_OK);
    source = muster_params_source_at(&stand.region, slot);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        source->pushed = rows[i].pushed;
        source->positions[3] = rows[i].position;
        source->positions[7] = rows[i].pushed << 16;
        assert_int_equal(muster_params_source_sequence(&stand.region, source), rows[i].sequence);
    }
    region_stand_close(&stand);
}

/* All segments of sources but for the first are said to be this one: their slots are not used. */
static void the_list_of_segments_has_a_limit(void **state)
{
    struct region_stand stand;
    struct muster_params_region_head *head;
    struct muster_incarnation id = id_of(1);
    uint64_t slot = 0;

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    head = stand.region.head;
    assert_int_equal(
        muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = id}, &slot),
        MUSTER_OK);
    for (uint32_t i = 1; i < MUSTER_PARAMS_SOURCE_SEGMENTS_MAX; i++)
        head->source_segments[i] = head->source_segments[0];
    head->source_segment_count = MUSTER_PARAMS_SOURCE_SEGMENTS_MAX;
    head->source_count = MUSTER_PARAMS_SOURCE_SEGMENTS_MAX * 63;
    id = id_of(2);

    assert_int_equal(
        muster_params_source_open(&stand.region, &(struct muster_params_opener){.id = id}, &slot),
        MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(head->source_segment_count, MUSTER_PARAMS_SOURCE_SEGMENTS_MAX);
    region_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_opening_raises_the_generation),
        cmocka_unit_test(further_links_of_a_process_raise_the_generation_until_a_younger_one_comes),
        cmocka_unit_test(a_process_that_comes_again_is_not_taken_for_a_younger_one),
        cmocka_unit_test(generations_that_a_former_home_has_given_are_void),
        cmocka_unit_test(the_home_tells_its_copies_which_generation_counts),
        cmocka_unit_test(slots_that_are_free_are_used_again),
        cmocka_unit_test(the_process_of_a_forgotten_source_is_not_let_in_again),
        cmocka_unit_test(sources_beyond_the_limit_are_refused),
        cmocka_unit_test(a_new_process_leaves_out_a_push_that_is_applied_in_part),
        cmocka_unit_test(sources_of_several_segments_lie_apart),
        cmocka_unit_test(a_source_without_memory_is_refused_and_a_known_one_is_not),
        cmocka_unit_test(the_list_of_segments_has_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
