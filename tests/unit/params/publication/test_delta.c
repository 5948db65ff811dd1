/* Deltas: the kinds of blocks at their boundaries, equal bytes on all paths, and deltas of strangers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/publication/delta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK        MUSTER_DELTA_BLOCK_ELEMENTS
#define ELEMENTS_MAX (3 * BLOCK)
#define BYTES_MAX    (4 * ELEMENTS_MAX)
#define HEAD         MUSTER_DELTA_HEAD_BYTES
#define GUARD        0xa5u

enum { NOTHING, GAPS, BITMAP, ALL };

struct scene {
    uint32_t count, element_bytes;
    uint8_t base[BYTES_MAX], range[BYTES_MAX], into[BYTES_MAX + 1];
    uint8_t delta[BYTES_MAX + 64];
    size_t delta_bytes;
};

static uint32_t bytes_of(const struct scene *scene)
{
    return scene->count * scene->element_bytes;
}

/* Two equal versions. */
static void scene_open(struct scene *scene, uint32_t count, uint32_t element_bytes)
{
    scene->count = count;
    scene->element_bytes = element_bytes;
    for (uint32_t i = 0; i < bytes_of(scene); i++)
        scene->base[i] = (uint8_t)(i * 7 + i / 256);
    memcpy(scene->range, scene->base, bytes_of(scene));
}

/* In one byte of the element: each in its turn. */
static void change_element(struct scene *scene, uint32_t element)
{
    if (element < scene->count)
        scene->range[element * scene->element_bytes + element % scene->element_bytes] ^= 0x40;
}

static bool is_changed(const struct scene *scene, uint32_t element)
{
    size_t at = (size_t)element * scene->element_bytes;

    return memcmp(scene->base + at, scene->range + at, scene->element_bytes) != 0;
}

/* The size of the shortest kind of one block, determined without lists of places. */
static size_t block_size(const struct scene *scene, uint32_t begin, uint32_t count)
{
    size_t changed = 0, gap_bytes = 0, all = (size_t)count * scene->element_bytes, best = all;
    uint32_t gap = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!is_changed(scene, begin + i)) {
            gap++;
            continue;
        }
        changed++;
        gap_bytes += gap / 255 + 1;
        gap = 0;
    }
    if (changed == 0)
        return 1;
    changed *= scene->element_bytes;
    if (gap_bytes <= 255 && 1 + gap_bytes + changed < best)
        best = 1 + gap_bytes + changed;
    if ((count + 7) / 8 + changed < best)
        best = (count + 7) / 8 + changed;
    return 1 + best;
}

static size_t expected_bytes(const struct scene *scene)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < scene->count; i += BLOCK)
        bytes += block_size(scene, i, scene->count - i < BLOCK ? scene->count - i : BLOCK);
    return bytes;
}

static const struct muster_delta_path *path_at(size_t index)
{
    const struct muster_delta_path *const paths[] = {
        muster_delta_path_baseline(), muster_delta_path_avx2(), muster_delta_path_avx512()};

    return paths[index];
}

#define PATH_COUNT 3u

static void check_path(struct scene *scene, const struct muster_delta_path *path, const char *what)
{
    const uint32_t bytes = bytes_of(scene);
    const struct muster_delta_source source = {scene->base, scene->range, bytes,
                                               scene->element_bytes};
    static uint8_t blocks[BYTES_MAX + 64];
    size_t size;

    memset(blocks, GUARD, sizeof(blocks));
    size = path->encode(&source, blocks);
    if (size != scene->delta_bytes - HEAD || memcmp(blocks, scene->delta + HEAD, size) != 0)
        fail_msg("%s, %u elements of %u: other bytes on path %s", what, scene->count,
                 scene->element_bytes, path->name);
    assert_int_equal(blocks[muster_delta_bytes_max(bytes) - HEAD], GUARD);
    assert_true(path->check(blocks, size, scene->count, scene->element_bytes));
    memcpy(scene->into, scene->base, bytes);
    scene->into[bytes] = GUARD;
    path->apply(blocks, scene->into, scene->count, scene->element_bytes);
    if (memcmp(scene->into, scene->range, bytes) != 0 || scene->into[bytes] != GUARD)
        fail_msg("%s, %u elements of %u: path %s does not give the newer version", what,
                 scene->count, scene->element_bytes, path->name);
}

/* Encodes, compares the size with the shortest, and plays it on all paths. */
static void check_scene(struct scene *scene, const char *what)
{
    const uint32_t bytes = bytes_of(scene);
    const struct muster_delta_source source = {scene->base, scene->range, bytes,
                                               scene->element_bytes};

    scene->delta_bytes = muster_delta_encode(&source, scene->delta);
    if (scene->delta_bytes - HEAD != expected_bytes(scene))
        fail_msg("%s, %u elements of %u: %zu bytes, the shortest has %zu", what, scene->count,
                 scene->element_bytes, scene->delta_bytes - HEAD, expected_bytes(scene));
    assert_true(scene->delta_bytes <= muster_delta_bytes_max(bytes));
    for (size_t i = 0; i < PATH_COUNT; i++) {
        if (path_at(i) != NULL)
            check_path(scene, path_at(i), what);
    }
    memcpy(scene->into, scene->base, bytes);
    assert_int_equal(muster_delta_apply(scene->delta, scene->delta_bytes, scene->into, bytes, NULL),
                     MUSTER_OK);
    assert_int_equal(memcmp(scene->into, scene->range, bytes), 0);
}

static void a_block_is_of_the_shortest_kind(void **state)
{
    static const struct {
        uint32_t count, element_bytes;
        const char *changed; /* element by element */
        size_t size;
        uint8_t blocks[24];
    } rows[] = {
        {0, 2, "", 0, {0}},
        {1, 2, ".", 1, {NOTHING}},
        {1, 2, "x", 3, {ALL, 0x40, 0x07}},
        {2, 2, "..", 1, {NOTHING}},
        {2, 2, ".x", 4, {BITMAP, 2, 0x0e, 0x55}},
        {2, 2, "xx", 5, {ALL, 0x40, 0x07, 0x0e, 0x55}},
        {2, 1, "x.", 3, {BITMAP, 1, 0x40}}, /* no shorter than all: the first of equal ones */
        {9, 1, "........x", 4, {GAPS, 1, 8, 0x78}},
        {8, 1, ".......x", 3, {BITMAP, 0x80, 0x71}},
        {9, 1, "x.......x", 5, {BITMAP, 1, 1, 0x40, 0x78}},
        {17, 1, "x..............x.", 6, {GAPS, 2, 0, 14, 0x40, 0x29}},
        {3, 4, "x..", 6, {BITMAP, 1, 0x40, 7, 14, 21}},
    };
    static struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_open(&scene, rows[i].count, rows[i].element_bytes);
        for (uint32_t j = 0; j < rows[i].count; j++) {
            if (rows[i].changed[j] == 'x')
                change_element(&scene, j);
        }
        check_scene(&scene, rows[i].changed);
        assert_int_equal(scene.delta_bytes, HEAD + rows[i].size);
        if (memcmp(scene.delta + HEAD, rows[i].blocks, rows[i].size) != 0)
            fail_msg("%s: other bytes", rows[i].changed);
    }
}

static void the_head_says_format_element_and_range(void **state)
{
    static const uint8_t expected[] = {1, 2, 0, 0, 0x02, 0x10, 0, 0};
    static struct scene scene;

    (void)state;
    scene_open(&scene, 2049, 2);
    check_scene(&scene, "head");
    assert_memory_equal(scene.delta, expected, sizeof(expected));
    assert_int_equal(scene.delta_bytes, HEAD + 2);
}

/* Changes from `first` on, every `step`, `max` of them. */
struct pattern {
    const char *what;
    uint32_t first, step, max;
};

static void check_pattern(const struct pattern *pattern, uint32_t count, uint32_t element_bytes)
{
    static struct scene scene;
    uint32_t changed = 0;

    scene_open(&scene, count, element_bytes);
    for (uint32_t i = pattern->first; i < count && changed < pattern->max;
         i += pattern->step, changed++)
        change_element(&scene, i);
    check_scene(&scene, pattern->what);
}

static void every_boundary_comes_back_on_every_path(void **state)
{
    static const uint32_t counts[] = {0,    1,    2,    7,    8,    9,    63,   64,   65,
                                      127,  255,  256,  257,  511,  512,  2047, 2048, 2049,
                                      2050, 2111, 2112, 4095, 4096, 4097, 6144};
    static const struct pattern patterns[] = {
        {"none", 0, 1, 0},
        {"the first", 0, 1, 1},
        {"the second", 1, 1, 1},
        {"the last of the first word", 63, 1, 1},
        {"the first of the second word", 64, 1, 1},
        {"the last of the first block", 2047, 1, 1},
        {"the first of the second block", 2048, 1, 1},
        {"all", 0, 1, UINT32_MAX},
        {"all but the first", 1, 1, UINT32_MAX},
        {"all but the last of a block", 0, 1, 2047},
        {"every other", 0, 2, UINT32_MAX},
        {"every third", 2, 3, UINT32_MAX},
        {"every eighth", 0, 8, UINT32_MAX},
        {"every ninth", 8, 9, UINT32_MAX},
        {"a gap of 254", 254, 4096, 1},
        {"a gap of 255", 255, 4096, 1},
        {"a gap of 256", 256, 4096, 1},
        {"gaps of 254", 0, 255, UINT32_MAX},
        {"gaps of 255", 0, 256, UINT32_MAX},
        {"gaps of 256", 0, 257, UINT32_MAX},
        {"gaps of 509", 0, 510, UINT32_MAX},
        {"gaps of 510", 0, 511, UINT32_MAX},
        {"254 of a block", 0, 1, 254},
        {"255 of a block", 0, 1, 255},
        {"256 of a block", 0, 1, 256},
        {"254 after a long gap", 300, 1, 254},
        {"255 after a long gap", 300, 1, 255},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (size_t j = 0; j < sizeof(patterns) / sizeof(patterns[0]); j++) {
            for (uint32_t element_bytes = 1; element_bytes <= 4; element_bytes *= 2)
                check_pattern(&patterns[j], counts[i], element_bytes);
        }
    }
}

/* xorshift32. */
static uint32_t random_next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void random_changes_come_back_on_every_path(void **state)
{
    static struct scene scene;
    uint32_t random = 1;

    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t one_in = 1 + random_next(&random) % (round % 2 == 0 ? 4 : 400);

        scene_open(&scene, random_next(&random) % (ELEMENTS_MAX + 1), 1u << round % 3);
        for (uint32_t i = 0; i < scene.count; i++) {
            if (random_next(&random) % one_in == 0)
                change_element(&scene, i);
        }
        check_scene(&scene, "random");
    }
}

static void bits_are_compared_and_not_numbers(void **state)
{
    static const struct {
        uint32_t base, range;
        bool is_changed;
    } rows[] = {
        {0x00000000, 0x80000000, true},  /* 0.0 and -0.0, which are equal numbers */
        {0x7fc00000, 0x7fc00000, false}, /* the same NaN, which does not equal itself */
        {0x7fc00000, 0x7fc00001, true},  /* NaNs with other payloads */
        {0x7f800001, 0x7fc00001, true},  /* a signaling NaN, and the quiet one of it */
        {0x7f800000, 0xff800000, true},  {0x00000001, 0x00000000, true}, /* denormal */
    };
    static struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint32_t at = 0; at < 200; at += 67) {
            scene_open(&scene, 200, 4);
            memcpy(scene.base + (size_t)at * 4, &rows[i].base, 4);
            memcpy(scene.range + (size_t)at * 4, &rows[i].range, 4);
            check_scene(&scene, "numbers");
            assert_int_equal(scene.delta[HEAD], rows[i].is_changed ? GAPS : NOTHING);
        }
    }
}

static void unaligned_versions_are_compared_too(void **state)
{
    static uint8_t base[2 * 3000 + 1], range[2 * 3000 + 1], delta[8192], into[2 * 3000 + 3];
    const struct muster_delta_source source = {base + 1, range + 1, 6000, 2};
    size_t bytes;

    (void)state;
    range[1 + 2 * 2100] = 9;
    bytes = muster_delta_encode(&source, delta);
    assert_int_equal(muster_delta_apply(delta, bytes, into + 3, 6000, NULL), MUSTER_OK);
    assert_memory_equal(into + 3, range + 1, 6000);
}

/* Elements have two bytes, changes are drawn evenly: the bar of the design. */
static void one_changed_percent_is_less_than_two_of_the_bytes(void **state)
{
    enum { COUNT = 64 * 2048 };
    uint8_t *base = calloc(COUNT, 2), *range = calloc(COUNT, 2);
    uint8_t *delta = malloc(muster_delta_bytes_max(2 * COUNT));
    const struct muster_delta_source source = {base, range, 2 * COUNT, 2};
    uint32_t random = 1;
    size_t bytes;

    (void)state;
    assert_true(base != NULL && range != NULL && delta != NULL);
    for (uint32_t i = 0; i < COUNT; i++)
        range[(size_t)2 * i] = random_next(&random) % 100 == 0;
    bytes = muster_delta_encode(&source, delta);
    print_message("1 %% changed: %.2f %% of the bytes\n", (double)bytes * 100 / (2 * COUNT));
    assert_true(bytes * 100 < 2 * 2 * COUNT);
    free(base);
    free(range);
    free(delta);
}

static void blocks_of_strangers_are_refused_on_every_path(void **state)
{
    static const struct {
        const char *what;
        uint32_t count, element_bytes;
        size_t size;
        uint8_t blocks[12];
        bool is_valid;
    } rows[] = {
        {"no bytes", 1, 1, 0, {0}, false},
        {"nothing", 1, 1, 1, {NOTHING}, true},
        {"a byte too many", 1, 1, 2, {NOTHING, 0}, false},
        {"a byte of no elements", 0, 1, 1, {NOTHING}, false},
        {"an unknown kind", 1, 1, 1, {4}, false},
        {"kind 255", 1, 1, 1, {255}, false},
        {"one block of two", 2049, 1, 1, {NOTHING}, false},
        {"two blocks", 2049, 1, 2, {NOTHING, NOTHING}, true},
        {"all without values", 2, 2, 1, {ALL}, false},
        {"all with a value too few", 2, 2, 4, {ALL, 1, 2, 3}, false},
        {"all", 2, 2, 5, {ALL, 1, 2, 3, 4}, true},
        {"gaps without their number", 9, 1, 1, {GAPS}, false},
        {"gaps of 0 bytes", 9, 1, 2, {GAPS, 0}, false},
        {"gaps that are cut", 9, 1, 3, {GAPS, 2, 0}, false},
        {"gaps without values", 9, 1, 3, {GAPS, 1, 0}, false},
        {"the last element", 9, 1, 4, {GAPS, 1, 8, 7}, true},
        {"an element behind the last", 9, 1, 4, {GAPS, 1, 9, 7}, false},
        {"a second element behind the last", 9, 1, 6, {GAPS, 2, 8, 0, 7, 7}, false},
        {"a gap that goes on behind the end", 9, 1, 3, {GAPS, 1, 255}, false},
        {"a long gap to the end", 300, 1, 5, {GAPS, 2, 255, 44, 7}, true},
        {"a long gap over the end", 300, 1, 5, {GAPS, 2, 255, 45, 7}, false},
        {"a long gap at the end", 600, 1, 5, {GAPS, 2, 3, 255, 7}, false},
        {"half a value", 9, 2, 4, {GAPS, 1, 8, 7}, false},
        {"a bitmap that is cut", 9, 1, 2, {BITMAP, 0}, false},
        {"a bitmap without its value", 9, 1, 3, {BITMAP, 1, 0}, false},
        {"a bitmap", 9, 1, 4, {BITMAP, 0, 1, 7}, true},
        {"a bit behind the last", 9, 1, 4, {BITMAP, 0, 2, 7}, false},
        {"a bitmap of nothing", 9, 1, 3, {BITMAP, 0, 0}, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t *blocks = malloc(rows[i].size > 0 ? rows[i].size : 1);

        assert_non_null(blocks);
        memcpy(blocks, rows[i].blocks, rows[i].size);
        for (size_t path = 0; path < PATH_COUNT; path++) {
            if (path_at(path) != NULL &&
                path_at(path)->check(blocks, rows[i].size, rows[i].count, rows[i].element_bytes) !=
                    rows[i].is_valid)
                fail_msg("%s: path %s", rows[i].what, path_at(path)->name);
        }
        free(blocks);
    }
}

static void heads_of_strangers_are_refused_by_their_part(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        const char *text;
    } rows[] = {
        {0, 0, "its format"},
        {0, 2, "its format"},
        {2, 1, "its format"},
        {3, 1, "its format"},
        {1, 0, "size of an element"},
        {1, 3, "size of an element"},
        {1, 8, "size of an element"},
        {1, 4, "size of an element"},
        {4, 0, "the size of the range"},
        {7, 1, "the size of the range"},
        {HEAD, 9, "a block"},
    };
    static struct scene scene;

    (void)state;
    scene_open(&scene, 5, 2);
    change_element(&scene, 3);
    check_scene(&scene, "head");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};
        uint8_t kept = scene.delta[rows[i].at];

        memcpy(scene.into, scene.base, 10);
        scene.delta[rows[i].at] = rows[i].value;
        assert_int_equal(muster_delta_apply(scene.delta, scene.delta_bytes, scene.into, 10, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("byte %zu: %s", rows[i].at, error.text);
        assert_memory_equal(scene.into, scene.base, 10);
        scene.delta[rows[i].at] = kept;
    }
    for (size_t cut = 0; cut < scene.delta_bytes; cut++)
        assert_int_equal(muster_delta_apply(scene.delta, cut, scene.into, 10, NULL),
                         MUSTER_INVALID_ARGUMENT);
}

static void a_refused_delta_leaves_the_range_as_it_was(void **state)
{
    static struct scene scene;

    (void)state;
    scene_open(&scene, 2 * BLOCK, 2);
    for (uint32_t i = 0; i < scene.count; i += 3)
        change_element(&scene, i);
    check_scene(&scene, "two blocks");
    memcpy(scene.into, scene.base, bytes_of(&scene));
    assert_int_equal(
        muster_delta_apply(scene.delta, scene.delta_bytes - 1, scene.into, bytes_of(&scene), NULL),
        MUSTER_INVALID_ARGUMENT);
    assert_memory_equal(scene.into, scene.base, bytes_of(&scene));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_of_the_shortest_kind),
        cmocka_unit_test(the_head_says_format_element_and_range),
        cmocka_unit_test(every_boundary_comes_back_on_every_path),
        cmocka_unit_test(random_changes_come_back_on_every_path),
        cmocka_unit_test(bits_are_compared_and_not_numbers),
        cmocka_unit_test(unaligned_versions_are_compared_too),
        cmocka_unit_test(one_changed_percent_is_less_than_two_of_the_bytes),
        cmocka_unit_test(blocks_of_strangers_are_refused_on_every_path),
        cmocka_unit_test(heads_of_strangers_are_refused_by_their_part),
        cmocka_unit_test(a_refused_delta_leaves_the_range_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
