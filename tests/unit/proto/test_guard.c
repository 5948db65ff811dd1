/* Hostile and honest messages before the guard of protobuf-c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/echo.pb-c.h"
#include "proto/guard.h"
#include "tests/lib/assertion_count.h"
#include "tests/lib/careful_mem.h"
#include "tests/lib/torture.h"
#include "tests/proto/guard_sample.pb-c.h"

#define TREE (&sample__tree__descriptor)

struct fixture {
    struct muster_mem_limited mem;
    struct muster_error error;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    *state = fixture;
    return fixture == NULL;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    size_t leaked = muster_mem_limited_fini(&fixture->mem);

    free(fixture);
    return leaked != 0;
}

static enum muster_rc unpack_bytes(struct fixture *fixture, const void *bytes, size_t size,
                                   Sample__Tree **ret_tree)
{
    memset(&fixture->error, 0, sizeof(fixture->error));
    return muster_proto_unpack(&fixture->mem.mem, TREE, bytes, size, NULL, ret_tree,
                               &fixture->error);
}

static void expect_refused(struct fixture *fixture, const void *bytes, size_t size,
                           enum muster_rc expected)
{
    Sample__Tree *tree = NULL;
    enum muster_rc rc = unpack_bytes(fixture, bytes, size, &tree);

    if (rc != expected)
        print_error("got %s, expected %s\n", muster_rc_name(rc), muster_rc_name(expected));
    assert_int_equal(rc, expected);
    assert_null(tree);
    assert_int_equal(fixture->error.rc, expected);
    assert_true(fixture->error.text[0] != '\0');
}

/* Nested `left` fields around so many bytes, which the caller puts, innermost last; returns the size.
 * Lengths are 5-byte varints. */
static size_t nest_messages(uint8_t *out, size_t depth, size_t inside)
{
    size_t size = depth * 6 + inside;

    for (size_t i = 0; i < depth; i++) {
        size_t inner = size - (i + 1) * 6;
        uint8_t *at = out + i * 6;

        at[0] = 9 << 3 | 2;
        for (int k = 0; k < 4; k++)
            at[1 + k] = (uint8_t)(0x80 | (inner >> (7 * k) & 0x7f));
        at[5] = (uint8_t)(inner >> 28);
    }
    return size;
}

/* A block of such pairs of bytes, which the caller frees. */
static uint8_t *repeat_pair(size_t size, uint8_t first, uint8_t second)
{
    uint8_t *bytes = malloc(size);

    assert_non_null(bytes);
    for (size_t i = 0; i + 1 < size; i += 2) {
        bytes[i] = first;
        bytes[i + 1] = second;
    }
    return bytes;
}

static void a_full_message_survives_the_round_trip(void **state)
{
    struct fixture *fixture = *state;
    Sample__Tree child, root, *children[1] = {&child}, *tree = NULL;
    Sample__Tree__LabelsEntry label, *labels[1] = {&label};
    int32_t numbers[] = {1, -1, 300};
    uint32_t words[] = {7, 8};
    void *bytes = NULL;
    size_t size = 0;

    sample__tree__init(&child);
    sample__tree__init(&root);
    sample__tree__labels_entry__init(&label);
    label.key = (char *)(uintptr_t) "k";
    label.value = (char *)(uintptr_t) "v";
    child.name = (char *)(uintptr_t) "żółw";
    root.blob.data = (uint8_t *)(uintptr_t) "\0\xff";
    root.blob.len = 2;
    root.n_children = 1;
    root.children = children;
    root.n_packed = 3;
    root.packed = numbers;
    root.n_words = 2;
    root.words = words;
    root.n_labels = 1;
    root.labels = labels;
    root.ratio = 0.5;
    root.choice_case = SAMPLE__TREE__CHOICE_TREE;
    root.tree = &child;
    assert_int_equal(muster_proto_pack(&fixture->mem.mem, &root, &bytes, &size), MUSTER_OK);

    assert_int_equal(unpack_bytes(fixture, bytes, size, &tree), MUSTER_OK);

    assert_string_equal(tree->children[0]->name, "żółw");
    assert_memory_equal(tree->blob.data, "\0\xff", 2);
    assert_int_equal(tree->packed[2], 300);
    assert_int_equal(tree->words[1], 8);
    assert_string_equal(tree->labels[0]->value, "v");
    assert_string_equal(tree->tree->name, "żółw");
    assert_true(tree->ratio > 0.4 && tree->ratio < 0.6);
    muster_proto_free(tree);
    muster_mem_free(&fixture->mem.mem, bytes);
}

static void an_empty_message_has_default_fields(void **state)
{
    struct fixture *fixture = *state;
    Sample__Tree *tree = NULL;

    assert_int_equal(unpack_bytes(fixture, NULL, 0, &tree), MUSTER_OK);

    assert_string_equal(tree->name, "");
    assert_int_equal(tree->n_children, 0);
    muster_proto_free(tree);
    muster_proto_free(NULL);
}

static void a_large_payload_costs_one_copy(void **state)
{
    struct fixture *fixture = *state;
    size_t bytes_max = 8u << 20;
    uint8_t *payload = calloc(1, bytes_max);
    Bench__Msg message, *copy = NULL;
    void *bytes = NULL;
    size_t size = 0;

    assert_non_null(payload);
    bench__msg__init(&message);
    message.payload.data = payload;
    message.payload.len = bytes_max;
    assert_int_equal(muster_proto_pack(&fixture->mem.mem, &message, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_proto_unpack(&fixture->mem.mem, &bench__msg__descriptor, bytes, size,
                                         NULL, &copy, NULL),
                     MUSTER_OK);

    assert_int_equal(copy->payload.len, bytes_max);
    assert_true(fixture->mem.held_bytes < size + bytes_max + 4096);
    muster_proto_free(copy);
    muster_mem_free(&fixture->mem.mem, bytes);
    free(payload);
}

static void deep_nesting_is_refused_before_the_stack_notices(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *bytes = malloc(34000 + 6);
    size_t size = nest_messages(bytes, 34000 / 6, 0);

    expect_refused(fixture, bytes, size, MUSTER_RESOURCE_EXHAUSTED);
    free(bytes);
}

static void nesting_is_allowed_up_to_the_limit(void **state)
{
    struct fixture *fixture = *state;
    uint8_t bytes[40 * 6];
    Sample__Tree *tree = NULL;

    assert_int_equal(unpack_bytes(fixture, bytes, nest_messages(bytes, 31, 0), &tree), MUSTER_OK);
    muster_proto_free(tree);
    expect_refused(fixture, bytes, nest_messages(bytes, 32, 0), MUSTER_RESOURCE_EXHAUSTED);
}

static void a_flood_of_unknown_fields_leaves_nothing_behind(void **state)
{
    struct fixture *fixture = *state;
    size_t size = 1u << 20;
    uint8_t *bytes = repeat_pair(size, 15 << 3, 1); /* field 15 is not declared */
    Sample__Tree *tree = NULL;

    assert_int_equal(unpack_bytes(fixture, bytes, size, &tree), MUSTER_OK);

    assert_int_equal(tree->base.n_unknown_fields, 0);
    assert_true(fixture->mem.held_bytes < 4096);
    assert_true(fixture->mem.held_peak_bytes < 2 * size);
    muster_proto_free(tree);
    free(bytes);
}

static void unknown_fields_are_stripped_at_every_depth(void **state)
{
    struct fixture *fixture = *state;
    /* children { 15: 1, name: "a" }, 15: "xy", number: 5, name with wire type 0 */
    static const uint8_t bytes[] = {0x1a, 5,   0x78, 1,    0x0a, 1, 'a', 0x7a,
                                    2,    'x', 'y',  0x38, 5,    8, 9};
    Sample__Tree *tree = NULL;

    assert_int_equal(unpack_bytes(fixture, bytes, sizeof(bytes), &tree), MUSTER_OK);

    assert_int_equal(tree->n_children, 1);
    assert_string_equal(tree->children[0]->name, "a");
    assert_int_equal(tree->children[0]->base.n_unknown_fields, 0);
    assert_int_equal(tree->number, 5);
    assert_string_equal(tree->name, "");
    muster_proto_free(tree);
}

static void empty_map_entries_hit_the_memory_limit(void **state)
{
    struct fixture *fixture = *state;
    size_t size = 1u << 20;
    uint8_t *bytes = repeat_pair(size, 6 << 3 | 2, 0);

    expect_refused(fixture, bytes, size, MUSTER_RESOURCE_EXHAUSTED);

    assert_true(fixture->mem.held_peak_bytes <= 17 * size + (128u << 10));
    free(bytes);
}

static void too_many_values_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct muster_proto_limits limits = {.elements_max = 3};
    static const uint8_t three[] = {0x22, 2, 1, 2}, four[] = {0x22, 3, 1, 2, 3};
    Sample__Tree *tree = NULL;

    assert_int_equal(
        muster_proto_unpack(&fixture->mem.mem, TREE, three, sizeof(three), &limits, &tree, NULL),
        MUSTER_OK);
    muster_proto_free(tree);
    assert_int_equal(
        muster_proto_unpack(&fixture->mem.mem, TREE, four, sizeof(four), &limits, &tree, NULL),
        MUSTER_RESOURCE_EXHAUSTED);
}

static void malformed_messages_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *name;
        const char *bytes;
        size_t size;
    } rows[] = {
        {"field number 0", "\x00\x01", 2},
        {"tag cut off", "\x88", 1},
        {"tag of six bytes", "\xb8\x80\x80\x80\x80\x00\x05", 7},
        {"varint cut off", "\x38\xff", 2},
        {"varint of eleven bytes", "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
        {"length cut off", "\x0a\x80", 2},
        {"length beyond the end",
         "\x0a\x05"
         "ab",
         4},
        {"length of 4 GiB", "\x0a\xff\xff\xff\xff\x0f", 6},
        {"length of six bytes", "\x0a\x81\x80\x80\x80\x80\x00x", 8},
        {"fixed32 cut off", "\x2d\x01\x02", 3},
        {"fixed64 cut off", "\x41\x01\x02\x03\x04", 5},
        {"group", "\x0b\x0c", 2},
        {"wire type 6", "\x0e", 1},
        {"unknown field cut off", "\x7a\x09x", 3},
        {"inner length beyond the inner end", "\x1a\x02\x0a\x05xxxxx", 9},
        {"packed varint cut off", "\x22\x02\x01\xff", 4},
        {"packed fixed32 of 5 bytes", "\x2a\x05\x01\x02\x03\x04\x05", 7},
        {"bad UTF-8", "\x0a\x02\xc3\x28", 4},
        {"overlong UTF-8", "\x0a\x02\xc0\xaf", 4},
        {"UTF-16 surrogate", "\x0a\x03\xed\xa0\x80", 5},
        {"beyond U+10FFFF", "\x0a\x04\xf4\x90\x80\x80", 6},
        {"UTF-8 cut off", "\x0a\x02\xe2\x82", 4},
        {"NUL in a string",
         "\x0a\x03"
         "a\0b",
         5},
        {"bad UTF-8 in a map", "\x32\x03\x0a\x01\xff", 5},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("row: %s\n", rows[i].name);
        expect_refused(fixture, rows[i].bytes, rows[i].size, MUSTER_INVALID_ARGUMENT);
    }
}

static void every_cut_and_every_flipped_byte_is_survived(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t whole[] = {
        0x0a, 2, 'h',  'i',  0x12, 2, 0,    1, 0x1a, 4, 0x0a, 2,    'o',  'k',  0x22,
        3,    1, 0xac, 2,    0x2a, 4, 1,    0, 0,    0, 0x32, 6,    0x0a, 1,    'k',
        0x12, 1, 'v',  0x38, 0x96, 1, 0x4a, 0, 0x52, 1, 't',  0x5a, 2,    0x38, 1};
    Sample__Tree *tree = NULL;

    for (size_t size = 0; size <= sizeof(whole); size++) {
        uint8_t *exact = malloc(size + 1);

        memcpy(exact, whole, size);
        if (unpack_bytes(fixture, exact, size, &tree) == MUSTER_OK)
            muster_proto_free(tree);
        for (size_t at = 0; at < size; at++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                exact[at] ^= (uint8_t)(1u << bit);
                if (unpack_bytes(fixture, exact, size, &tree) == MUSTER_OK)
                    muster_proto_free(tree);
                exact[at] ^= (uint8_t)(1u << bit);
            }
        }
        free(exact);
    }
    assert_int_equal(fixture->mem.block_count, 0);
}

/* A limit of 0 is the default; any other is the limit. */
static void limits_are_chosen_one_by_one(void **state)
{
    static const struct {
        const char *name;
        struct muster_proto_limits limits;
        size_t depth, count; /* of the message: nested, and packed values in the innermost */
        enum muster_rc rc;
    } rows[] = {
        {"the default depth", {.elements_max = 99}, 31, 0, MUSTER_OK},
        {"beyond it", {.elements_max = 99}, 32, 0, MUSTER_RESOURCE_EXHAUSTED},
        {"a depth", {.depth_max = 3}, 2, 0, MUSTER_OK},
        {"beyond that", {.depth_max = 3}, 3, 0, MUSTER_RESOURCE_EXHAUSTED},
        {"a greater depth", {.depth_max = 40}, 39, 0, MUSTER_OK},
        {"the default count", {.depth_max = 9}, 1, 100, MUSTER_OK},
        {"a count", {.elements_max = 102}, 1, 100, MUSTER_OK},
        {"beyond that", {.elements_max = 101}, 1, 100, MUSTER_RESOURCE_EXHAUSTED},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t bytes[512] = {0};
        size_t inner = rows[i].count > 0 ? rows[i].count + 2 : 0;
        size_t size = nest_messages(bytes, rows[i].depth, inner);
        Sample__Tree *tree = NULL;
        enum muster_rc rc;

        if (inner > 0) {
            bytes[size - inner] = 0x22;
            bytes[size - inner + 1] = (uint8_t)rows[i].count;
        }
        rc = muster_proto_unpack(&fixture->mem.mem, TREE, bytes, size, &rows[i].limits, &tree,
                                 &fixture->error);
        fail_if(rc != rows[i].rc, "%s: %s", rows[i].name, muster_rc_name(rc));
        muster_proto_free(tree);
    }
}

/* Empty children: two bytes of wire, a struct and a pointer in memory. */
static void memory_is_bounded_by_the_size_of_the_wire(void **state)
{
    static const struct {
        uint32_t per_byte;
        enum muster_rc rc;
    } rows[] = {{1, MUSTER_RESOURCE_EXHAUSTED}, {200, MUSTER_OK}, {0, MUSTER_RESOURCE_EXHAUSTED}};
    struct fixture *fixture = *state;
    size_t size = 20000;
    uint8_t *bytes = repeat_pair(size, 0x1a, 0);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_proto_limits limits = {.memory_per_byte = rows[i].per_byte};
        uint32_t per_byte = rows[i].per_byte != 0 ? rows[i].per_byte : 16;
        Sample__Tree *tree = NULL;

        fixture->mem.held_peak_bytes = 0;
        assert_int_equal(muster_proto_unpack(&fixture->mem.mem, TREE, bytes, size, &limits, &tree,
                                             &fixture->error),
                         rows[i].rc);
        assert_in_range(fixture->mem.held_peak_bytes, 1, size * per_byte + (66u << 10));
        assert_true((tree != NULL) == (rows[i].rc == MUSTER_OK));
        assert_true(tree != NULL || strstr(fixture->error.text, "of memory") != NULL);
        assert_true(tree == NULL || tree->n_children == size / 2);
        muster_proto_free(tree);
    }
    free(bytes);
}

/* With a byte of memory for each of the wire, the guess at the first block reaches the limit at sizes
 * around 128 KiB: these messages need more and are refused, whatever the guess leaves. */
static void a_guess_near_the_limit_stays_within_it(void **state)
{
    static const struct muster_proto_limits limits = {.memory_per_byte = 1};
    struct fixture *fixture = *state;
    const size_t size_max = 132000;
    uint8_t *bytes = repeat_pair(size_max, 0x1a, 0);

    for (size_t size = size_max - 2000; size <= size_max; size += 2) {
        Sample__Tree *tree = NULL;

        assert_int_equal(muster_proto_unpack(&fixture->mem.mem, TREE, bytes, size, &limits, &tree,
                                             &fixture->error),
                         MUSTER_RESOURCE_EXHAUSTED);
        assert_null(tree);
    }
    free(bytes);
}

/* With as many chunks as it takes. */
static void run_unpacking(struct torture *torture, const void *data)
{
    const size_t *size = data;
    uint8_t bytes[800];
    struct muster_mem_limited mem;
    struct muster_error error = {.rc = MUSTER_OK};
    Sample__Tree *tree = NULL;
    enum muster_rc rc;

    for (size_t i = 0; i < *size; i += 4) /* children { 15: 1 } */
        memcpy(bytes + i, "\x1a\x02\x78\x01", 4);
    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_limited(torture, &mem);
    rc =
        muster_proto_unpack(&mem.mem, &sample__tree__descriptor, bytes, *size, NULL, &tree, &error);
    torture_disarm(torture);

    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_int_equal(error.rc, rc);
    assert_true(rc == MUSTER_OK || error.text[0] != '\0');
    if (rc == MUSTER_OK)
        assert_int_equal(tree->n_children, *size / 4);
    else
        assert_null(tree);
    muster_proto_free(tree);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void whatever_allocation_fails_nothing_is_lost(void **state)
{
    static const size_t sizes[] = {4, 800};
    static const struct torture_scenario scenarios[] = {
        {.name = "a small message", .run = run_unpacking, .data = &sizes[0]},
        {.name = "a message of many", .run = run_unpacking, .data = &sizes[1]},
    };

    (void)state;
    torture_run_all(scenarios, 2);
}

static void what_cannot_be_packed_is_told(void **state)
{
    struct fixture *fixture = *state;
    Sample__Tree tree;
    void *bytes = NULL;
    size_t size = 7;

    sample__tree__init(&tree);
    fixture->mem.fail_at = 1;

    assert_int_equal(muster_proto_pack(&fixture->mem.mem, &tree, &bytes, &size),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_null(bytes);
    assert_int_equal(size, 7);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest guard[] = {
        CASE(a_full_message_survives_the_round_trip),
        CASE(an_empty_message_has_default_fields),
        CASE(a_large_payload_costs_one_copy),
        CASE(deep_nesting_is_refused_before_the_stack_notices),
        CASE(nesting_is_allowed_up_to_the_limit),
        CASE(a_flood_of_unknown_fields_leaves_nothing_behind),
        CASE(unknown_fields_are_stripped_at_every_depth),
        CASE(empty_map_entries_hit_the_memory_limit),
        CASE(too_many_values_are_refused),
        CASE(malformed_messages_are_refused),
        CASE(every_cut_and_every_flipped_byte_is_survived),
        CASE(limits_are_chosen_one_by_one),
        CASE(memory_is_bounded_by_the_size_of_the_wire),
        CASE(a_guess_near_the_limit_stays_within_it),
        cmocka_unit_test_teardown(whatever_allocation_fails_nothing_is_lost, torture_tell),
        CASE(what_cannot_be_packed_is_told),
    };

    return cmocka_run_group_tests(guard, NULL, NULL);
}
