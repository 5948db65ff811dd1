/* Inputs of two kinds: the first byte names the kind, the others are read. */
#ifndef MUSTER_FUZZ_KINDS_H
#define MUSTER_FUZZ_KINDS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/** Borrows bytes, and may change them. */
typedef void fuzz_read_fn(uint8_t *bytes, size_t size);

/** Read a copy, whose ends sanitizers watch: by `manifest` behind an 'm', else by `other`. */
static inline void fuzz_kinds_read(const uint8_t *bytes, size_t size, fuzz_read_fn *manifest,
                                   fuzz_read_fn *other)
{
    uint8_t *copy = size > 0 ? malloc(size) : NULL;

    if (copy == NULL)
        return;
    memcpy(copy, bytes + 1, size - 1);
    if (bytes[0] == 'm')
        manifest(copy, size - 1);
    else
        other(copy, size - 1);
    free(copy);
}

#endif
