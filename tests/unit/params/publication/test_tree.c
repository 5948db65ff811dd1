/* Trees of readers: shape, sources after deaths, and the time that a version takes through them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "torture.h"
#include "params/publication/model.h"
#include "params/publication/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT MUSTER_PUBLICATION_ROOT

/* `per_host` readers on each host, hosts interleaved: reader i is on host i % hosts. */
static void tree_grow(uint64_t version, uint32_t hosts, uint32_t per_host,
                      struct muster_publication_tree *ret_tree)
{
    uint32_t count = hosts * per_host;
    char(*names)[16] = calloc(count + 1, sizeof(*names));
    const char **keys = calloc(count + 1, sizeof(*keys));

    assert_true(names != NULL && keys != NULL);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "host-%u", i % hosts);
        keys[i] = names[i];
    }
    assert_int_equal(muster_publication_tree_init(careful_mem(), version, keys, count, ret_tree),
                     MUSTER_OK);
    free(keys);
    free(names);
}

/* Hops from the publisher; fails on a circle. */
static uint32_t depth_of(const struct muster_publication_tree *tree, uint32_t which,
                         uint32_t reader)
{
    uint32_t depth = 0;

    for (; reader != ROOT; depth++) {
        assert_true(depth <= tree->reader_count);
        reader = muster_publication_tree_parent_of(tree, which, reader);
    }
    return depth;
}

static uint32_t log2_floor(uint32_t value)
{
    uint32_t result = 0;

    while (value >>= 1)
        result++;
    return result;
}

static void check_shape(const struct muster_publication_tree *tree)
{
    uint32_t *sent = calloc(tree->reader_count, sizeof(*sent));
    uint32_t children[MUSTER_PUBLICATION_CHILDREN];

    assert_non_null(sent);
    for (uint32_t which = 0; which < MUSTER_PUBLICATION_TREES; which++) {
        assert_int_equal(muster_publication_tree_children(tree, which, ROOT, children), 1);
        for (uint32_t reader = 0; reader < tree->reader_count; reader++) {
            uint32_t count = muster_publication_tree_children(tree, which, reader, children);

            for (uint32_t i = 0; i < count; i++)
                assert_int_equal(muster_publication_tree_parent_of(tree, which, children[i]),
                                 reader);
            sent[reader] += count;
            if (muster_publication_tree_is_fetcher(tree, reader))
                assert_true(depth_of(tree, which, reader) <= log2_floor(tree->host_count) + 1);
        }
    }
    for (uint32_t reader = 0; reader < tree->reader_count; reader++)
        assert_true(sent[reader] <= MUSTER_PUBLICATION_CHILDREN);
    free(sent);
}

static void each_reader_sends_to_two_children_at_most_in_both_trees_together(void **state)
{
    (void)state;
    for (uint32_t hosts = 1; hosts <= 70; hosts++) {
        for (uint64_t version = 1; version < 6; version++) {
            struct muster_publication_tree tree;

            tree_grow(version * 1000003, hosts, 1 + hosts % 3, &tree);
            assert_int_equal(tree.host_count, hosts);
            check_shape(&tree);
            muster_publication_tree_fini(&tree);
        }
    }
}

static void the_first_reader_of_each_host_fetches_and_the_others_take_it_from_there(void **state)
{
    static const char *const keys[] = {"b", "a", "b", "", "a", "", "b"};
    static const uint32_t hosts[] = {0, 1, 0, 2, 1, 3, 0};
    struct muster_publication_tree tree;

    (void)state;
    assert_int_equal(muster_publication_tree_init(careful_mem(), 1, keys, 7, &tree), MUSTER_OK);

    assert_int_equal(tree.host_count, 4);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(tree.hosts[i], hosts[i]);
        assert_int_equal(muster_publication_tree_is_fetcher(&tree, i),
                         i == 0 || i == 1 || i == 3 || i == 5);
    }
    for (uint32_t which = 0; which < MUSTER_PUBLICATION_TREES; which++) {
        assert_int_equal(muster_publication_tree_parent_of(&tree, which, 2), 0);
        assert_int_equal(muster_publication_tree_parent_of(&tree, which, 6), 0);
        assert_int_equal(muster_publication_tree_parent_of(&tree, which, 4), 1);
    }
    muster_publication_tree_fini(&tree);
}

static void each_reader_stands_once_in_an_order_where_its_parents_come_first(void **state)
{
    (void)state;
    for (uint32_t hosts = 1; hosts <= 70; hosts++) {
        struct muster_publication_tree tree;
        uint32_t order[256], place[256];

        tree_grow(hosts * 1000003, hosts, 1 + hosts % 3, &tree);
        memset(place, 0xff, sizeof(place));
        muster_publication_tree_order(&tree, order);
        for (uint32_t i = 0; i < tree.reader_count; i++) {
            assert_true(order[i] < tree.reader_count && place[order[i]] == UINT32_MAX);
            place[order[i]] = i;
        }
        /* A reader has children in one tree at most; there its parents are told before it. */
        for (uint32_t which = 0; which < MUSTER_PUBLICATION_TREES; which++) {
            for (uint32_t reader = 0; reader < tree.reader_count; reader++) {
                uint32_t children[MUSTER_PUBLICATION_CHILDREN];
                uint32_t parent = muster_publication_tree_parent_of(&tree, which, reader);

                if (parent != ROOT &&
                    muster_publication_tree_children(&tree, which, reader, children) > 0)
                    assert_true(place[parent] < place[reader]);
            }
        }
        muster_publication_tree_fini(&tree);
    }
}

/* Version 8 of 8 hosts: not turned. Tree 0 is the heap 0..7, tree 1 the heap 7..0. */
static void sources_are_the_ancestors_in_their_order(void **state)
{
    static const struct {
        uint32_t which, reader, sources[5];
    } rows[] = {
        {0, 0, {ROOT, ROOT, ROOT, ROOT, ROOT}},
        {0, 3, {1, 0, ROOT, ROOT, ROOT}},
        {0, 7, {3, 1, 0, ROOT, ROOT}},
        {0, 6, {2, 0, ROOT, ROOT, ROOT}},
        {1, 7, {ROOT, ROOT, ROOT, ROOT, ROOT}},
        {1, 0, {4, 6, 7, ROOT, ROOT}},
        {1, 5, {7, ROOT, ROOT, ROOT, ROOT}},
        /* The readers 8 to 23 are on the same hosts. */
        {0, 11, {3, 1, 0, ROOT, ROOT}},
        {0, 19, {3, 11, 1, 0, ROOT}},
        {1, 16, {0, 8, 4, 6, 7}},
    };
    struct muster_publication_tree tree;

    (void)state;
    tree_grow(8, 8, 3, &tree);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint32_t dead = 0; dead < 5; dead++) {
            uint32_t source =
                muster_publication_tree_source(&tree, rows[i].which, rows[i].reader, dead);

            if (source != rows[i].sources[dead])
                fail_msg("reader %u, tree %u, %u dead: %u, expected %u", rows[i].reader,
                         rows[i].which, dead, source, rows[i].sources[dead]);
        }
        assert_int_equal(
            muster_publication_tree_source(&tree, rows[i].which, rows[i].reader, UINT32_MAX), ROOT);
    }
    muster_publication_tree_fini(&tree);
}

static void versions_take_turns_at_the_top(void **state)
{
    bool was_top[9] = {false};

    (void)state;
    for (uint64_t version = 1; version <= 9; version++) {
        struct muster_publication_tree tree;
        uint32_t top[MUSTER_PUBLICATION_CHILDREN];

        tree_grow(version, 9, 1, &tree);
        assert_int_equal(muster_publication_tree_children(&tree, 0, ROOT, top), 1);
        assert_false(was_top[top[0]]);
        was_top[top[0]] = true;
        muster_publication_tree_fini(&tree);
    }
}

static void without_readers_the_publisher_has_no_children(void **state)
{
    struct muster_publication_tree tree;
    uint32_t children[MUSTER_PUBLICATION_CHILDREN];

    (void)state;
    tree_grow(3, 0, 0, &tree);
    assert_int_equal(muster_publication_tree_children(&tree, 0, ROOT, children), 0);
    assert_int_equal(muster_publication_tree_children(&tree, 1, ROOT, children), 0);
    muster_publication_tree_fini(&tree);
}

static const char *const hosts[] = {"a", "b", "a"};

static void run_tree(struct torture *torture, const void *data)
{
    struct muster_publication_tree tree;
    struct muster_mem_limited mem;
    enum muster_rc rc;

    (void)data;
    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_limited(torture, &mem);
    rc = muster_publication_tree_init(&mem.mem, 1, hosts, 3, &tree);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK)
        muster_publication_tree_fini(&tree);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void memory_that_is_refused_leaves_nothing_behind(void **state)
{
    struct muster_publication_tree tree;

    (void)state;
    torture_run(&(struct torture_scenario){.name = "tree", .run = run_tree});
    assert_int_equal(muster_publication_tree_init(careful_mem(), 1, hosts,
                                                  MUSTER_PUBLICATION_READERS_MAX + 1, &tree),
                     MUSTER_RESOURCE_EXHAUSTED);
}

/* --- A version on its way, round by round --- */

/* In a round a host, or the publisher, can send one chunk and receive one: streams share that evenly. */
#define CHUNK 60u /* parts, so that up to six streams have whole numbers */

struct play_host {
    bool is_dead;
    uint32_t have[MUSTER_PUBLICATION_TREES]; /* parts of the chunks of each tree, in their order */
    uint32_t before[MUSTER_PUBLICATION_TREES]; /* at the beginning of the round */
    uint32_t source[MUSTER_PUBLICATION_TREES];
    uint32_t sending, receiving; /* streams that have something to do in the round */
};

struct play {
    struct muster_publication_tree tree;
    uint32_t chunk_count;
    uint32_t host_count;
    struct play_host *hosts; /* behind the readers' the publisher */
    uint32_t *listed;        /* the host of each reader in the tree's list */
};

/* A tree of the readers that live. */
static void play_grow(struct play *play, uint64_t version)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < play->host_count; i++) {
        if (!play->hosts[i].is_dead)
            play->listed[count++] = i;
    }
    muster_publication_tree_fini(&play->tree);
    tree_grow(version, count, 1, &play->tree);
}

static void play_open(struct play *play, uint32_t readers, uint32_t chunk_count)
{
    *play = (struct play){.chunk_count = chunk_count, .host_count = readers};
    play->hosts = calloc(readers + 1, sizeof(*play->hosts));
    play->listed = calloc(readers, sizeof(*play->listed));
    assert_true(play->hosts != NULL && play->listed != NULL);
    for (uint32_t which = 0; which < MUSTER_PUBLICATION_TREES; which++)
        play->hosts[readers].have[which] = (chunk_count + 1 - which) / 2 * CHUNK;
    play_grow(play, 12345);
}

static void play_close(struct play *play)
{
    muster_publication_tree_fini(&play->tree);
    free(play->hosts);
    free(play->listed);
}

/* The place in hosts[] of the nearest source that lives. */
static uint32_t play_source(const struct play *play, uint32_t which, uint32_t reader)
{
    for (uint32_t dead = 0;; dead++) {
        uint32_t source = muster_publication_tree_source(&play->tree, which, reader, dead);

        if (source == ROOT)
            return play->host_count;
        if (!play->hosts[play->listed[source]].is_dead)
            return play->listed[source];
    }
}

/* A chunk is passed on when it is there as a whole. */
static uint32_t play_offer(const struct play *play, uint32_t which, uint32_t host)
{
    return play->hosts[play->hosts[host].source[which]].before[which] / CHUNK * CHUNK;
}

static bool play_is_active(const struct play *play, uint32_t which, uint32_t host)
{
    return !play->hosts[host].is_dead &&
           play_offer(play, which, host) > play->hosts[host].before[which];
}

static void play_transfer(struct play *play, uint32_t which, uint32_t place)
{
    struct play_host *host = &play->hosts[place];
    uint32_t sending = play->hosts[host->source[which]].sending;
    uint32_t rate = CHUNK / (sending > host->receiving ? sending : host->receiving);
    uint32_t offer = play_offer(play, which, place);

    host->have[which] = host->before[which] + (rate > 0 ? rate : 1);
    if (host->have[which] > offer)
        host->have[which] = offer;
}

static void play_round(struct play *play)
{
    for (uint32_t i = 0; i <= play->host_count; i++) {
        memcpy(play->hosts[i].before, play->hosts[i].have, sizeof(play->hosts[i].have));
        play->hosts[i].sending = play->hosts[i].receiving = 0;
    }
    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES * play->tree.reader_count; i++) {
        uint32_t which = i % 2, host = play->listed[i / 2];

        play->hosts[host].source[which] = play_source(play, which, i / 2);
        if (play_is_active(play, which, host)) {
            play->hosts[host].receiving++;
            play->hosts[play->hosts[host].source[which]].sending++;
        }
    }
    for (uint32_t i = 0; i < MUSTER_PUBLICATION_TREES * play->tree.reader_count; i++) {
        if (play_is_active(play, i % 2, play->listed[i / 2]))
            play_transfer(play, i % 2, play->listed[i / 2]);
    }
}

static bool play_is_done(const struct play *play)
{
    for (uint32_t i = 0; i < play->host_count; i++) {
        const struct play_host *host = &play->hosts[i];

        if (!host->is_dead && host->have[0] + host->have[1] < play->chunk_count * CHUNK)
            return false;
    }
    return true;
}

struct play_deaths {
    uint32_t round, first, step; /* every step-th reader from the first on dies; step 0: none */
    uint32_t regrow_round;       /* from then on a tree of those that live; 0: never */
};

/* Returns the rounds. */
static uint32_t play_version(uint32_t readers, uint32_t chunk_count,
                             const struct play_deaths *deaths)
{
    struct play play;
    uint32_t rounds = 0;

    play_open(&play, readers, chunk_count);
    while (!play_is_done(&play)) {
        for (uint32_t i = deaths->first; deaths->step > 0 && i < readers && rounds == deaths->round;
             i += deaths->step)
            play.hosts[i].is_dead = true;
        if (deaths->regrow_round > 0 && rounds == deaths->regrow_round)
            play_grow(&play, 12345);
        play_round(&play);
        rounds++;
        assert_true(rounds < 100 * (readers + chunk_count));
    }
    play_close(&play);
    return rounds;
}

/* In rounds. */
static double bound_of(uint32_t readers, uint32_t chunk_count)
{
    const struct muster_publication_load load = {
        .host_count = readers, .bytes = chunk_count, .chunk_bytes = 1, .bytes_per_s = 1};

    return muster_publication_lower_bound_s(&load);
}

static void a_version_comes_within_1_3_of_the_bound(void **state)
{
    static const struct {
        uint32_t readers, chunks;
        double factor;
    } rows[] = {
        {1, 256, 1.0},    {2, 256, 1.02},  {3, 256, 1.02},     {8, 256, 1.1},    {100, 256, 1.1},
        {1000, 256, 1.1}, {1000, 64, 1.3}, {1000, 4096, 1.02}, {4096, 256, 1.1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t rounds =
            play_version(rows[i].readers, rows[i].chunks, &(struct play_deaths){.step = 0});
        double bound = bound_of(rows[i].readers, rows[i].chunks);

        print_message("%u readers, %u chunks: %u rounds, bound %.0f\n", rows[i].readers,
                      rows[i].chunks, rounds, bound);
        if (rounds < bound || rounds > rows[i].factor * bound)
            fail_msg("%u readers, %u chunks: %u rounds, bound %.0f", rows[i].readers,
                     rows[i].chunks, rounds, bound);
    }
}

/* Hosts of the version are turned by 12345 % 1000: reader 655 is at the top of tree 0, 656 below it. */
static void deaths_cost_little_once_there_is_a_new_list(void **state)
{
    static const struct {
        const char *what;
        struct play_deaths deaths;
        double factor;
    } rows[] = {
        {"the top of a tree, at once", {0, 655, 1000, 0}, 1.55},
        {"the same, and a new list after 20 rounds", {0, 655, 1000, 20}, 1.15},
        {"the same in the middle", {130, 655, 1000, 150}, 1.15},
        {"below the top", {0, 656, 1000, 0}, 1.55},
        {"below the top, and a new list", {60, 656, 1000, 80}, 1.15},
        {"shortly before the end", {255, 655, 1000, 0}, 1.1},
        {"ten", {60, 55, 100, 0}, 2},
        {"ten, and a new list", {60, 55, 100, 80}, 1.15},
        {"a hundred, and a new list", {60, 5, 10, 80}, 1.3},
    };
    double bound = bound_of(1000, 256);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t rounds = play_version(1000, 256, &rows[i].deaths);

        print_message("%s: %u rounds, bound %.0f\n", rows[i].what, rounds, bound);
        if (rounds > rows[i].factor * bound)
            fail_msg("%s: %u rounds, bound %.0f", rows[i].what, rounds, bound);
    }
}

static void the_bound_is_known_for_small_cases(void **state)
{
    static const struct {
        struct muster_publication_load load;
        double bound, star;
    } rows[] = {
        {{.host_count = 0, .bytes = 100, .chunk_bytes = 10, .bytes_per_s = 10}, 0, 0},
        {{.host_count = 5, .bytes = 0, .chunk_bytes = 10, .bytes_per_s = 10}, 0, 0},
        {{.host_count = 1, .bytes = 100, .chunk_bytes = 10, .bytes_per_s = 10}, 10, 10},
        {{.host_count = 2, .bytes = 100, .chunk_bytes = 10, .bytes_per_s = 10}, 11, 20},
        {{.host_count = 3, .bytes = 100, .chunk_bytes = 10, .bytes_per_s = 10}, 11, 30},
        {{.host_count = 4, .bytes = 100, .chunk_bytes = 10, .bytes_per_s = 10}, 12, 40},
        {{.host_count = 7, .bytes = 95, .chunk_bytes = 10, .bytes_per_s = 10}, 10.5, 66.5},
        {{.host_count = 7, .bytes = 95, .chunk_bytes = 10, .bytes_per_s = 10, .latency_s = 2},
         12.5,
         68.5},
        {{.host_count = UINT32_MAX, .bytes = 10, .chunk_bytes = 10, .bytes_per_s = 10},
         32,
         4294967295.0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(muster_publication_lower_bound_s(&rows[i].load) == rows[i].bound);
        assert_true(muster_publication_star_s(&rows[i].load) == rows[i].star);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reader_sends_to_two_children_at_most_in_both_trees_together),
        cmocka_unit_test(the_first_reader_of_each_host_fetches_and_the_others_take_it_from_there),
        cmocka_unit_test(sources_are_the_ancestors_in_their_order),
        cmocka_unit_test(each_reader_stands_once_in_an_order_where_its_parents_come_first),
        cmocka_unit_test(versions_take_turns_at_the_top),
        cmocka_unit_test(without_readers_the_publisher_has_no_children),
        cmocka_unit_test_teardown(memory_that_is_refused_leaves_nothing_behind, torture_tell),
        cmocka_unit_test(a_version_comes_within_1_3_of_the_bound),
        cmocka_unit_test(deaths_cost_little_once_there_is_a_new_list),
        cmocka_unit_test(the_bound_is_known_for_small_cases),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
