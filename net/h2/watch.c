/* The frames that a client sends, followed ahead of nghttp2. Only their heads are read; payloads
 * are counted and skipped, so a block of headers need not be decoded twice. */
#include "net/h2/watch.h"

#include <string.h>

#include "net/h2/h2_code.h"

#define PREFACE_BYTES 24 /* RFC 9113 3.4 */

/* RFC 9113 6.1, 6.2, 6.4 */
enum { TYPE_DATA = 0, TYPE_HEADERS = 1, TYPE_RST_STREAM = 3 };
#define FLAG_END_STREAM 1

void muster_h2_watch_init(struct muster_h2_watch *watch)
{
    *watch = (struct muster_h2_watch){.skip_bytes = PREFACE_BYTES};
}

/* The head of a frame is 24 bits of length, 8 of type, 8 of flags, and 31 of stream id (RFC 9113
 * 4.1). WINDOW_UPDATE and RST_STREAM may still cross the end of a stream (RFC 9113 5.1), so only
 * content on an ended one is an error. */
static uint32_t judge_frame(struct muster_h2_watch *watch)
{
    const uint8_t *head = watch->head;
    uint32_t id = (uint32_t)(head[5] & 0x7f) << 24 | (uint32_t)head[6] << 16 |
                  (uint32_t)head[7] << 8 | head[8];
    bool has_content = head[3] == TYPE_DATA || head[3] == TYPE_HEADERS;

    if (id % 2 == 0) /* the connection itself, or no stream of a client: for nghttp2 */
        return MUSTER_H2_NO_ERROR;
    if (has_content && muster_h2_ids_is_ended(&watch->ids, (int32_t)id))
        return MUSTER_H2_STREAM_CLOSED;
    if (head[3] == TYPE_HEADERS && !muster_h2_ids_open(&watch->ids, (int32_t)id))
        return MUSTER_H2_PROTOCOL_ERROR;
    if (head[3] == TYPE_RST_STREAM || (has_content && (head[4] & FLAG_END_STREAM) != 0))
        muster_h2_ids_end(&watch->ids, (int32_t)id);
    return MUSTER_H2_NO_ERROR;
}

size_t muster_h2_watch_feed(struct muster_h2_watch *watch, const uint8_t *bytes, size_t count,
                            uint32_t *ret_code)
{
    size_t at = 0;

    for (;;) {
        size_t skip = watch->skip_bytes < count - at ? watch->skip_bytes : count - at;
        size_t wanted = MUSTER_H2_FRAME_HEAD_BYTES - watch->head_bytes;

        watch->skip_bytes -= skip;
        at += skip;
        if (wanted > count - at)
            wanted = count - at;
        memcpy(watch->head + watch->head_bytes, bytes + at, wanted);
        watch->head_bytes += wanted;
        at += wanted;
        if (watch->head_bytes < MUSTER_H2_FRAME_HEAD_BYTES)
            return at;
        *ret_code = judge_frame(watch);
        if (*ret_code != MUSTER_H2_NO_ERROR) /* the head stays: later calls find the same error */
            return at - wanted;
        watch->skip_bytes =
            (size_t)watch->head[0] << 16 | (size_t)watch->head[1] << 8 | watch->head[2];
        watch->head_bytes = 0;
    }
}
