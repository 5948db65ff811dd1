/* Copies of what is too large to stay in the caches, by the streaming stores of SSE2, which every
 * x86-64 has. Elsewhere it is memcpy. */
#include "collective/kernel/kernels_copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>

#define LINE_BYTES 64
/* Processors fetch ahead within a page only, so lines of several pages are copied in turn: 64 MiB take a quarter less
 * time so. */
#define PAGE_BYTES   4096
#define PAGES_BESIDE 4

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

static void copy_pages(uint8_t *into, const uint8_t *from)
{
    for (size_t line = 0; line < PAGE_BYTES; line += LINE_BYTES)
        for (size_t page = 0; page < PAGES_BESIDE * PAGE_BYTES; page += PAGE_BYTES)
            copy_line(into + page + line, from + page + line);
}

void muster_copy_nontemporal(void *restrict into, const void *restrict from, size_t bytes)
{
    uint8_t *to = into;
    const uint8_t *at = from;
    size_t head = (size_t)(-(uintptr_t)to % LINE_BYTES);

    if (head > bytes)
        head = bytes;
    memcpy(to, at, head);
    to += head, at += head, bytes -= head;
    for (; bytes >= PAGES_BESIDE * PAGE_BYTES; bytes -= PAGES_BESIDE * PAGE_BYTES) {
        copy_pages(to, at);
        to += PAGES_BESIDE * PAGE_BYTES;
        at += PAGES_BESIDE * PAGE_BYTES;
    }
    for (; bytes >= LINE_BYTES; bytes -= LINE_BYTES) {
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
