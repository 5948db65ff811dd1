/* Bytes that the owner of a stream pushed back: the next receive begins with them. */
#ifndef MUSTER_NET_STREAM_UNREAD_H
#define MUSTER_NET_STREAM_UNREAD_H

#include <string.h>

#include <muster/stream.h>

struct muster_stream_unread {
    size_t count;
    uint8_t bytes[MUSTER_STREAM_UNREAD_MAX];
};

static inline void muster_stream_unread_put(struct muster_stream_unread *unread, const void *bytes,
                                            size_t count)
{
    MUSTER_ASSERT(count <= sizeof(unread->bytes) - unread->count);
    memmove(unread->bytes + count, unread->bytes, unread->count);
    memcpy(unread->bytes, bytes, count);
    unread->count += count;
}

/** Returns how many bytes were there, at most bytes_max. */
static inline size_t muster_stream_unread_take(struct muster_stream_unread *unread, void *buffer,
                                               size_t bytes_max)
{
    size_t bytes = unread->count < bytes_max ? unread->count : bytes_max;

    if (bytes == 0)
        return 0;
    memcpy(buffer, unread->bytes, bytes);
    memmove(unread->bytes, unread->bytes + bytes, unread->count - bytes);
    unread->count -= bytes;
    return bytes;
}

#endif
