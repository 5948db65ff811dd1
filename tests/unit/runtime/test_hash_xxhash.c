/* XXH3: known values, pieces against the whole. */
#include "test_env.h"

#include <string.h>

#include <muster/hash.h>

static void known_values_of_the_specification(void **state)
{
    char text[MUSTER_HASH128_TEXT_BYTES];
    uint8_t hash[MUSTER_HASH128_BYTES];

    (void)state;
    assert_int_equal(muster_hash64("", 0, 0), UINT64_C(0x2d06800538d394c2));
    muster_hash128("", 0, hash);
    assert_string_equal(muster_hash128_format(hash, text), "99aa06d3014798d86001c324468d497f");
}

static void pieces_hash_like_the_whole(void **state)
{
    static uint8_t bytes[3000];
    uint8_t pieces[MUSTER_HASH128_BYTES], whole[MUSTER_HASH128_BYTES];
    struct muster_rng_seeded rng;
    struct block {
        char shift; /* any alignment must do */
        struct muster_hash_stream stream;
    } block;
    size_t at = 0;

    (void)state;
    muster_rng_seeded_init(&rng, 9);
    muster_rng_fill(&rng.rng, bytes, sizeof(bytes));
    muster_hash_stream_init(&block.stream);
    while (at < sizeof(bytes)) {
        size_t count = muster_rng_below(&rng.rng, 300);

        count = count < sizeof(bytes) - at ? count : sizeof(bytes) - at;
        muster_hash_stream_add(&block.stream, bytes + at, count);
        at += count;
        muster_hash_stream_hash128(&block.stream, pieces);
        muster_hash128(bytes, at, whole);
        assert_memory_equal(pieces, whole, sizeof(whole));
        assert_int_equal(muster_hash_stream_hash64(&block.stream), muster_hash64(bytes, at, 0));
    }
}

static void one_changed_bit_changes_the_hash(void **state)
{
    uint8_t bytes[64] = {0};
    uint8_t before[MUSTER_HASH128_BYTES], after[MUSTER_HASH128_BYTES];

    (void)state;
    muster_hash128(bytes, sizeof(bytes), before);
    bytes[40] ^= 1;
    muster_hash128(bytes, sizeof(bytes), after);
    assert_memory_not_equal(before, after, sizeof(after));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(known_values_of_the_specification),
        cmocka_unit_test(pieces_hash_like_the_whole),
        cmocka_unit_test(one_changed_bit_changes_the_hash),
    };

    return cmocka_run_group_tests_name("hash_xxhash", cases, NULL, NULL);
}
