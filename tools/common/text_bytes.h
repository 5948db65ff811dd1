/* A text as bytes, without its NUL: keys and values of the registry. */
#ifndef MUSTER_TOOLS_TEXT_BYTES_H
#define MUSTER_TOOLS_TEXT_BYTES_H

#include <string.h>

#include <muster/rpc.h>

/** Borrows text. */
static inline struct muster_bytes text_bytes(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

#endif
