/* Copies of what is too large to stay in the caches, by the streaming stores of SSE2, which every
 * x86-64 has. Elsewhere it is memcpy. */
#include "collective/kernel/kernels_copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>

#define LINE_BYTES 64

/* Four stores fill one line of the write-combining buffer, which then leaves as a whole. A line
 * that is filled in parts would be read first, which is what streaming is to avoid. */
static void copy_line(uint8_t *into, const uint8_t *from)
{
    __m128i part[4];

    for (int i = 0; i < 4; i++)
        part[i] = _mm_loadu_si128((const __m128i *)(const void *)from + i);
    for (int i = 0; i < 4; i++)
        _mm_stream_si128((__m128i *)(void *)into + i, part[i]);
}

void muster_copy_nontemporal(void *restrict into, const void *restrict from, size_t bytes)
{
    uint8_t *to = into;
    const uint8_t *at = from;
    size_t head = (size_t)(-(uintptr_t)to % LINE_BYTES);

    if (head > bytes)
        head = bytes;
    memcpy(to, at, head);
    for (to += head, at += head, bytes -= head; bytes >= LINE_BYTES; bytes -= LINE_BYTES) {
        copy_line(to, at);
        to += LINE_BYTES;
        at += LINE_BYTES;
    }
    memcpy(to, at, bytes);
    /* Streaming stores are not ordered with later ones, not even by a release store. A flag that
     * says "the copy is there" must not become visible before the copy. */
    _mm_sfence();
}

#else

void muster_copy_nontemporal(void *restrict into, const void *restrict from, size_t bytes)
{
    memcpy(into, from, bytes);
}

#endif
