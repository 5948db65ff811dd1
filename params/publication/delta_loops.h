/* The loops of every path, written once. A path defines DELTA_PATH, DELTA_TARGET and elements_compare, and gets
 * the table `loops`.
 *
 * A block has MUSTER_DELTA_BLOCK_ELEMENTS, the last one what is left. Its first byte is its kind:
 * nothing; gaps: bytes of the gaps u8, gaps u8 each, values; bitmap: a bit per element, values; all: values. A gap
 * is the number of equal elements before the next changed one; 255 stands for 255 equal ones, and more follow. The
 * shortest kind is taken, of equal ones the first. */
#ifndef MUSTER_PARAMS_PUBLICATION_DELTA_LOOPS_H
#define MUSTER_PARAMS_PUBLICATION_DELTA_LOOPS_H

#include <string.h>

#include "params/publication/delta.h"

#ifndef DELTA_PATH
#define DELTA_PATH   "none"
#define DELTA_TARGET __attribute__((unused))
static inline uint64_t elements_compare(const uint8_t *base, const uint8_t *range,
                                        uint32_t element_bytes)
{
    (void)base;
    (void)range;
    return element_bytes;
}
#endif

/* Inlined with a constant size of the element, so that copies are single moves. */
#define DELTA_INLINE static inline __attribute__((always_inline)) DELTA_TARGET

#define WORD_BITS      64u
#define WORD_COUNT     (MUSTER_DELTA_BLOCK_ELEMENTS / WORD_BITS)
#define LINE_BYTES     64u
#define PREFETCH_LINES 16u
#define GAP_LONG       255u
#define GAP_BYTES_MAX  255u

enum block_kind { BLOCK_NOTHING, BLOCK_GAPS, BLOCK_BITMAP, BLOCK_ALL };

DELTA_INLINE uint32_t block_elements(uint32_t left)
{
    return left < MUSTER_DELTA_BLOCK_ELEMENTS ? left : MUSTER_DELTA_BLOCK_ELEMENTS;
}

/* --- Encoding --- */

/* Bit i of the words: element i differs. Returns how many do. */
DELTA_INLINE uint32_t block_compare(const uint8_t *base, const uint8_t *range, uint32_t count,
                                    uint32_t element_bytes, uint64_t words[WORD_COUNT])
{
    const uint32_t whole = count / WORD_BITS;
    uint32_t changed = 0;

    for (uint32_t word = 0; word < whole; word++) {
        size_t at = (size_t)word * WORD_BITS * element_bytes;

        words[word] = elements_compare(base + at, range + at, element_bytes);
        changed += (uint32_t)__builtin_popcountll(words[word]);
    }
    if (count % WORD_BITS == 0)
        return changed;
    words[whole] = 0;
    for (uint32_t i = whole * WORD_BITS; i < count; i++) {
        size_t at = (size_t)i * element_bytes;

        if (memcmp(base + at, range + at, element_bytes) != 0)
            words[whole] |= UINT64_C(1) << i % WORD_BITS;
    }
    return changed + (uint32_t)__builtin_popcountll(words[whole]);
}

/* Writes the places of the changed elements. */
DELTA_INLINE void block_list(const uint64_t *words, uint32_t count, uint16_t *ret_places)
{
    uint32_t found = 0;

    for (uint32_t word = 0; word < (count + WORD_BITS - 1) / WORD_BITS; word++) {
        for (uint64_t bits = words[word]; bits != 0; bits &= bits - 1)
            ret_places[found++] = (uint16_t)(word * WORD_BITS + (uint32_t)__builtin_ctzll(bits));
    }
}

DELTA_INLINE uint32_t gaps_measure(const uint16_t *places, uint32_t changed)
{
    uint32_t bytes = changed, next = 0;

    for (uint32_t i = 0; i < changed; i++) {
        bytes += (places[i] - next) / GAP_LONG;
        next = places[i] + 1u;
    }
    return bytes;
}

DELTA_INLINE uint8_t *gaps_write(const uint16_t *places, uint32_t changed, uint8_t *at)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < changed; i++) {
        uint32_t gap = places[i] - next;

        for (; gap >= GAP_LONG; gap -= GAP_LONG)
            *at++ = GAP_LONG;
        *at++ = (uint8_t)gap;
        next = places[i] + 1u;
    }
    return at;
}

DELTA_INLINE uint8_t *values_write(const uint8_t *range, const uint16_t *places, uint32_t changed,
                                   uint32_t element_bytes, uint8_t *at)
{
    for (uint32_t i = 0; i < changed; i++, at += element_bytes)
        memcpy(at, range + (size_t)places[i] * element_bytes, element_bytes);
    return at;
}

/* The kind that a block gets; for BLOCK_GAPS also the bytes of its gaps. Writes the places, except for BLOCK_ALL. */
DELTA_INLINE enum block_kind block_choose(const uint64_t *words, uint32_t count, uint32_t changed,
                                          uint32_t element_bytes, uint16_t *ret_places,
                                          uint8_t *ret_gap_bytes)
{
    const uint32_t values = changed * element_bytes, bitmap = (count + 7) / 8 + values;
    const bool is_bitmap = bitmap <= count * element_bytes;
    const uint32_t other = is_bitmap ? bitmap : count * element_bytes;
    uint32_t gaps;

    if (!is_bitmap && 1 + changed + values > other)
        return BLOCK_ALL;
    block_list(words, count, ret_places);
    gaps = changed <= GAP_BYTES_MAX ? gaps_measure(ret_places, changed) : GAP_BYTES_MAX + 1;
    if (gaps <= GAP_BYTES_MAX && 1 + gaps + values <= other) {
        *ret_gap_bytes = (uint8_t)gaps;
        return BLOCK_GAPS;
    }
    return is_bitmap ? BLOCK_BITMAP : BLOCK_ALL;
}

/* A block is about a page, and processors do not prefetch beyond the page that they read. The first lines of the next
 * one are asked for when this one has been read: its reads would wait for them. */
DELTA_INLINE void block_prefetch(const uint8_t *base, const uint8_t *range)
{
    for (uint32_t line = 0; line < PREFETCH_LINES; line++) {
        __builtin_prefetch(base + line * LINE_BYTES);
        __builtin_prefetch(range + line * LINE_BYTES);
    }
}

/* `left` elements are there from the block on. */
DELTA_INLINE uint8_t *block_encode(const uint8_t *base, const uint8_t *range, uint32_t left,
                                   uint32_t element_bytes, uint8_t *at)
{
    const uint32_t count = block_elements(left);
    const size_t bytes = (size_t)count * element_bytes;
    uint64_t words[WORD_COUNT];
    uint16_t places[MUSTER_DELTA_BLOCK_ELEMENTS];
    uint32_t changed = block_compare(base, range, count, element_bytes, words);
    enum block_kind kind = BLOCK_NOTHING;

    if (left >= 2 * MUSTER_DELTA_BLOCK_ELEMENTS)
        block_prefetch(base + bytes, range + bytes);
    if (changed > 0)
        kind = block_choose(words, count, changed, element_bytes, places, at + 1);
    *at++ = (uint8_t)kind;
    if (kind == BLOCK_NOTHING)
        return at;
    if (kind == BLOCK_ALL) {
        memcpy(at, range, bytes);
        return at + bytes;
    }
    if (kind == BLOCK_GAPS) {
        at = gaps_write(places, changed, at + 1);
    } else {
        memcpy(at, words, (count + 7) / 8);
        at += (count + 7) / 8;
    }
    return values_write(range, places, changed, element_bytes, at);
}

DELTA_INLINE size_t blocks_encode(const struct muster_delta_source *source, uint32_t element_bytes,
                                  uint8_t *ret_blocks)
{
    const uint8_t *base = source->base, *range = source->range;
    const uint32_t count = source->bytes / element_bytes;
    uint8_t *at = ret_blocks;

    for (uint32_t i = 0; i < count; i += MUSTER_DELTA_BLOCK_ELEMENTS) {
        const size_t offset = (size_t)i * element_bytes;

        at = block_encode(base + offset, range + offset, count - i, element_bytes, at);
    }
    return (size_t)(at - ret_blocks);
}

static DELTA_TARGET size_t encode_blocks(const struct muster_delta_source *source,
                                         uint8_t *ret_blocks)
{
    if (source->element_bytes == 4)
        return blocks_encode(source, 4, ret_blocks);
    if (source->element_bytes == 2)
        return blocks_encode(source, 2, ret_blocks);
    return blocks_encode(source, 1, ret_blocks);
}

/* --- Checking --- */

/* A block after its kind: its bytes before the values, and the number of these. */
struct block_parts {
    size_t head_bytes;
    uint32_t values;
};

/* `left` bytes are there behind the kind. */
DELTA_INLINE bool gaps_check(const uint8_t *at, size_t left, uint32_t count,
                             struct block_parts *ret_parts)
{
    uint32_t bytes, long_gaps = 0, sum = 0;

    if (left < 1 || at[0] == 0 || left - 1 < at[0])
        return false;
    bytes = at[0];
    for (uint32_t i = 1; i <= bytes; i++) {
        sum += at[i];
        long_gaps += at[i] == GAP_LONG;
    }
    *ret_parts = (struct block_parts){1 + bytes, bytes - long_gaps};
    return at[bytes] != GAP_LONG && sum + ret_parts->values <= count;
}

DELTA_INLINE bool bitmap_check(const uint8_t *at, size_t left, uint32_t count,
                               struct block_parts *ret_parts)
{
    const uint32_t bytes = (count + 7) / 8;
    uint32_t values = 0;

    if (left < bytes || (count % 8 != 0 && at[bytes - 1] >> count % 8 != 0))
        return false;
    for (uint32_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;

        memcpy(&word, at + i, sizeof(word));
        values += (uint32_t)__builtin_popcountll(word);
    }
    for (uint32_t i = bytes / 8 * 8; i < bytes; i++)
        values += (uint32_t)__builtin_popcount(at[i]);
    *ret_parts = (struct block_parts){bytes, values};
    return true;
}

static DELTA_TARGET bool check_blocks(const uint8_t *blocks, size_t bytes, uint32_t element_count,
                                      uint32_t element_bytes)
{
    const uint8_t *at = blocks, *end = blocks + bytes;

    for (uint32_t i = 0; i < element_count; i += MUSTER_DELTA_BLOCK_ELEMENTS) {
        const uint32_t count = block_elements(element_count - i);
        struct block_parts parts = {0, 0};
        enum block_kind kind;
        size_t size;

        if (at == end || *at > BLOCK_ALL)
            return false;
        kind = (enum block_kind) * at++;
        if (kind == BLOCK_ALL)
            parts.values = count;
        if ((kind == BLOCK_GAPS && !gaps_check(at, (size_t)(end - at), count, &parts)) ||
            (kind == BLOCK_BITMAP && !bitmap_check(at, (size_t)(end - at), count, &parts)))
            return false;
        size = parts.head_bytes + (size_t)parts.values * element_bytes;
        if ((size_t)(end - at) < size)
            return false;
        at += size;
    }
    return at == end;
}

/* --- Applying --- */

/* `at` is behind the kind. Returns the end of the block. */
DELTA_INLINE const uint8_t *gaps_apply(const uint8_t *at, uint8_t *range, uint32_t element_bytes)
{
    const uint8_t *gaps = at + 1, *values = gaps + at[0];

    for (uint32_t bytes = at[0]; bytes > 0; bytes--, gaps++) {
        range += (size_t)*gaps * element_bytes;
        if (*gaps == GAP_LONG)
            continue;
        memcpy(range, values, element_bytes);
        range += element_bytes;
        values += element_bytes;
    }
    return values;
}

DELTA_INLINE const uint8_t *bitmap_apply(const uint8_t *at, uint8_t *range, uint32_t count,
                                         uint32_t element_bytes)
{
    const uint32_t bytes = (count + 7) / 8;
    const uint8_t *values = at + bytes;

    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t bits = 0;

        memcpy(&bits, at + i, bytes - i < 8 ? bytes - i : 8);
        for (; bits != 0; bits &= bits - 1, values += element_bytes)
            memcpy(range + (i * 8 + (size_t)__builtin_ctzll(bits)) * element_bytes, values,
                   element_bytes);
    }
    return values;
}

DELTA_INLINE void blocks_apply(const uint8_t *at, uint8_t *range, uint32_t element_count,
                               uint32_t element_bytes)
{
    for (uint32_t i = 0; i < element_count; i += MUSTER_DELTA_BLOCK_ELEMENTS) {
        const uint32_t count = block_elements(element_count - i);
        uint8_t *into = range + (size_t)i * element_bytes;
        enum block_kind kind = (enum block_kind) * at++;

        if (kind == BLOCK_GAPS) {
            at = gaps_apply(at, into, element_bytes);
        } else if (kind == BLOCK_BITMAP) {
            at = bitmap_apply(at, into, count, element_bytes);
        } else if (kind == BLOCK_ALL) {
            memcpy(into, at, (size_t)count * element_bytes);
            at += (size_t)count * element_bytes;
        }
    }
}

static DELTA_TARGET void apply_blocks(const uint8_t *blocks, uint8_t *range, uint32_t element_count,
                                      uint32_t element_bytes)
{
    if (element_bytes == 4)
        blocks_apply(blocks, range, element_count, 4);
    else if (element_bytes == 2)
        blocks_apply(blocks, range, element_count, 2);
    else
        blocks_apply(blocks, range, element_count, 1);
}

static const struct muster_delta_path loops = {
    .name = DELTA_PATH, .encode = encode_blocks, .check = check_blocks, .apply = apply_blocks};

#endif
