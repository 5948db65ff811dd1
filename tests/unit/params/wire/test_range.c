/* Ranges of a tensor: their messages, and the keys of their blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "params/wire/range.h"

#define BLOCK  1024u
#define EXTENT ((uint64_t)BLOCK * MUSTER_PARAMS_EXTENT_BLOCKS)

static const struct muster_params_tensor tensor = {
    .elements = 3 * EXTENT + 100, .block_elements = BLOCK, .dtype = MUSTER_F32};

static enum muster_rc message_read(enum muster_params_message type, uint64_t offset, uint64_t count,
                             struct muster_params_range_frame *ret_range,
                             struct muster_error *ret_error)
{
    struct muster_params_range_frame range = {.clock = UINT64_C(5) << 32 | 7,
                                              .offset = offset,
                                              .count = count,
                                              .table = 3,
                                              .is_first = type == MUSTER_PARAMS_PUSH_RANGE};
    struct muster_frame_header header = {.type = (uint8_t)type};
    uint8_t payload[MUSTER_PARAMS_PULL_RANGE_BYTES];

    muster_params_range_pack(&range, &header, payload);
    header.payload_bytes = type == MUSTER_PARAMS_PUSH_RANGE ? (uint32_t)(count * sizeof(float))
                                                            : MUSTER_PARAMS_PULL_RANGE_BYTES;
    return muster_params_range_unpack(&header, payload, &tensor, ret_range, ret_error);
}

static void a_range_is_read_as_it_was_written(void **state)
{
    static const enum muster_params_message types[] = {MUSTER_PARAMS_PUSH_RANGE,
                                                       MUSTER_PARAMS_PULL_RANGE};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct muster_params_range_frame found;

        assert_int_equal(message_read(types[i], 2 * EXTENT - BLOCK, BLOCK, &found, NULL), MUSTER_OK);
        assert_true(found.clock == (UINT64_C(5) << 32 | 7));
        assert_int_equal(found.offset, 2 * EXTENT - BLOCK);
        assert_int_equal(found.count, BLOCK);
        assert_int_equal(found.table, 3);
        assert_int_equal(found.is_first, i == 0);
    }
}

static void a_range_that_the_tensor_does_not_have_is_refused_by_name(void **state)
{
    static const struct {
        enum muster_params_message type;
        uint64_t offset, count;
        const char *text; /* NULL: it is accepted */
    } rows[] = {
        {MUSTER_PARAMS_PULL_RANGE, 0, EXTENT, NULL},
        {MUSTER_PARAMS_PULL_RANGE, 5, 1, NULL},
        {MUSTER_PARAMS_PULL_RANGE, 3 * EXTENT + 99, 1, NULL},
        {MUSTER_PARAMS_PUSH_RANGE, 3 * EXTENT, 100, NULL},
        {MUSTER_PARAMS_PUSH_RANGE, 0, EXTENT, NULL},
        {MUSTER_PARAMS_PULL_RANGE, 5, 0,
         "a range of 0 elements from 5 is not within a tensor of 196708"},
        {MUSTER_PARAMS_PULL_RANGE, 3 * EXTENT + 100, 1,
         "a range of 1 elements from 196708 is not within a tensor of 196708"},
        {MUSTER_PARAMS_PULL_RANGE, 3 * EXTENT, 101,
         "a range of 101 elements from 196608 is not within a tensor of 196708"},
        {MUSTER_PARAMS_PULL_RANGE, 1, UINT64_MAX,
         "a range of 18446744073709551615 elements from 1 is not within a tensor of 196708"},
        {MUSTER_PARAMS_PULL_RANGE, UINT64_MAX, 2,
         "a range of 2 elements from 18446744073709551615 is not within a tensor of 196708"},
        {MUSTER_PARAMS_PULL_RANGE, EXTENT - 1, 2,
         "a range of 2 elements from 65535 is not within an extent of 65536"},
        {MUSTER_PARAMS_PUSH_RANGE, 0, BLOCK + 1,
         "a range that is pushed must be whole blocks of 1024 elements, got 1025 elements from 0"},
        {MUSTER_PARAMS_PUSH_RANGE, 1, BLOCK,
         "a range that is pushed must be whole blocks of 1024 elements, got 1024 elements from 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_range_frame found;
        struct muster_error error = {.text = "accepted"};
        enum muster_rc rc = message_read(rows[i].type, rows[i].offset, rows[i].count, &found, &error);

        if (rows[i].text != NULL)
            assert_string_equal(error.text, rows[i].text);
        assert_int_equal(rc, rows[i].text == NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
    }
}

static void a_message_of_another_size_is_refused(void **state)
{
    struct muster_frame_header push = {.type = MUSTER_PARAMS_PUSH_RANGE, .payload_bytes = 4095};
    struct muster_frame_header pull = {.type = MUSTER_PARAMS_PULL_RANGE, .payload_bytes = 7};
    struct muster_params_range_frame found;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_params_range_unpack(&push, "", &tensor, &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "message PUSH_RANGE of parameters must have elements of 4 "
                                    "bytes, got 4095 bytes");
    assert_int_equal(muster_params_range_unpack(&pull, "", &tensor, &found, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "message PULL_RANGE of parameters must have 8 bytes, got 7");
}

/* --- Keys of blocks --- */

/* Clients and servers of different versions must agree on them. */
static void keys_of_blocks_never_change(void **state)
{
    static const struct {
        uint64_t block, key;
    } rows[] = {{0, UINT64_C(0x6af7ed6567a3e7ca)},
              {1, UINT64_C(0xd645f33a23c47c26)},
              {64, UINT64_C(0xdc936df981e52690)},
              {UINT64_C(1) << 30, UINT64_C(0x99614600e2d7f2da)}};
    uint64_t seed = muster_params_hash_seed("items");

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_true(muster_params_block_key(seed, rows[i].block) == rows[i].key);
}

static void blocks_of_an_extent_are_of_one_shard_and_in_a_row_in_the_index(void **state)
{
    uint64_t seed = muster_params_hash_seed("items");
    uint32_t used[16] = {0};

    (void)state;
    for (uint64_t block = 0; block < 64 * 1000; block++) {
        uint64_t key = muster_params_block_key(seed, block);
        uint64_t hash = muster_params_hash(seed, key);
        uint64_t first =
            muster_params_hash(seed, muster_params_block_key(seed, block / 64 * 64));

        assert_true(muster_params_hash_key(seed, hash) == key);
        assert_true(hash == first + block % 64);
        assert_int_equal(muster_params_shard_of(hash, 4096), muster_params_shard_of(first, 4096));
        used[muster_params_shard_of(hash, 16)]++;
    }
    for (size_t i = 0; i < 16; i++)
        assert_in_range(used[i], 64 * 30, 64 * 100); /* 62.5 of 1,000 extents */
}

static int keys_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void no_two_blocks_have_one_key(void **state)
{
    const size_t count = 1u << 16;
    uint64_t *keys = malloc(count * sizeof(*keys));

    (void)state;
    assert_non_null(keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = muster_params_block_key(1, i % 2 == 0 ? i * 32 : (i << 20) + 1);
    qsort(keys, count, sizeof(*keys), keys_compare);
    for (size_t i = 1; i < count; i++)
        assert_true(keys[i] != keys[i - 1]);
    free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_read_as_it_was_written),
        cmocka_unit_test(a_range_that_the_tensor_does_not_have_is_refused_by_name),
        cmocka_unit_test(a_message_of_another_size_is_refused),
        cmocka_unit_test(keys_of_blocks_never_change),
        cmocka_unit_test(blocks_of_an_extent_are_of_one_shard_and_in_a_row_in_the_index),
        cmocka_unit_test(no_two_blocks_have_one_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
