/* Memory that lives until the program ends: names and texts. The plugin runs for one request, so
 * single frees would gain nothing, and without memory there is nothing to do but end. */
#include "pool.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct piece {
    struct piece *next;
    alignas(max_align_t) char bytes[];
};

static struct piece *pieces;

void *pool_alloc(size_t count, size_t bytes)
{
    struct piece *piece;

    if (bytes != 0 && count > (SIZE_MAX - sizeof(*piece)) / bytes)
        abort();
    piece = calloc(1, sizeof(*piece) + count * bytes);
    if (piece == NULL) {
        fprintf(stderr, "protoc-gen-muster: out of memory\n");
        exit(1);
    }
    piece->next = pieces;
    pieces = piece;
    return piece->bytes;
}

char *pool_text(const char *format, ...)
{
    va_list args, again;
    char *text;
    int length;

    va_start(args, format);
    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        abort();
    text = pool_alloc(1, (size_t)length + 1);
    (void)vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void pool_free_all(void)
{
    while (pieces != NULL) {
        struct piece *next = pieces->next;

        free(pieces);
        pieces = next;
    }
}
