/* XXH3: known values, pieces against the whole. */
#include "test_env.h"

#include <stdalign.h>
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
    assert_ptr_equal(muster_hash128_format(hash, text), text);
}

static void a_seed_makes_another_hash(void **state)
{
    (void)state;
    assert_int_not_equal(muster_hash64("", 0, 1), muster_hash64("", 0, 0));
    assert_int_not_equal(muster_hash64("a", 1, 1), muster_hash64("a", 1, 2));
}

static void pieces_hash_like_the_whole(void **state)
{
    static uint8_t bytes[3000];
    uint8_t pieces[MUSTER_HASH128_BYTES], whole[MUSTER_HASH128_BYTES];
    struct muster_rng_seeded rng;
    struct muster_hash_stream stream;
    size_t at = 0;

    (void)state;
    muster_rng_seeded_init(&rng, 9);
    muster_rng_fill(&rng.rng, bytes, sizeof(bytes));
    muster_hash_stream_init(&stream);
    muster_hash_stream_add(&stream, NULL, 0);
    while (at < sizeof(bytes)) {
        size_t count = at < 3 ? 1 : muster_rng_below(&rng.rng, 300);

        count = count < sizeof(bytes) - at ? count : sizeof(bytes) - at;
        muster_hash_stream_add(&stream, bytes + at, count);
        at += count;
        muster_hash_stream_hash128(&stream, pieces);
        muster_hash128(bytes, at, whole);
        assert_memory_equal(pieces, whole, sizeof(whole));
        assert_int_equal(muster_hash_stream_hash64(&stream), muster_hash64(bytes, at, 0));
    }
}

/* Whatever the alignment, the state stays inside. */
static void a_stream_writes_only_into_itself(void **state)
{
    static uint8_t content[1000];
    struct place {
        alignas(64) uint8_t bytes[64 + sizeof(struct muster_hash_stream) + 128];
    } place;

    (void)state;
    memset(content, 7, sizeof(content));
    for (size_t shift = 0; shift < 64; shift++) {
        uint8_t *begin = place.bytes + 64 + shift, *end = begin + sizeof(struct muster_hash_stream);
        struct muster_hash_stream *stream = (struct muster_hash_stream *)begin;

        memset(place.bytes, 0xA5, sizeof(place.bytes));
        muster_hash_stream_init(stream);
        muster_hash_stream_add(stream, content, sizeof(content));
        assert_int_equal(muster_hash_stream_hash64(stream),
                         muster_hash64(content, sizeof(content), 0));
        for (uint8_t *at = place.bytes; at < place.bytes + sizeof(place.bytes); at++)
            if (at < begin || at >= end)
                assert_int_equal(*at, 0xA5);
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
        cmocka_unit_test(a_seed_makes_another_hash),
        cmocka_unit_test(pieces_hash_like_the_whole),
        cmocka_unit_test(a_stream_writes_only_into_itself),
        cmocka_unit_test(one_changed_bit_changes_the_hash),
    };

    return cmocka_run_group_tests_name("hash_xxhash", cases, NULL, NULL);
}
