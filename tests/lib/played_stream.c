/* A byte stream whose other end is played by hand. */
#include "played_stream.h"

#include <stdlib.h>
#include <string.h>

#define TURNS_MAX 300 /* a reader that pauses for longer has stopped */

static struct played_stream *played_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct played_stream, stream);
}

static enum muster_rc play_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct played_stream *played = played_of(stream);

    assert_null(played->write);
    played->write = write;
    played->writes++;
    for (size_t i = 0; i < write->iov_count; i++) {
        assert_true(played->sent_bytes + write->iov[i].iov_len <= played->sent_max);
        memcpy(played->sent + played->sent_bytes, write->iov[i].iov_base, write->iov[i].iov_len);
        played->sent_bytes += write->iov[i].iov_len;
    }
    if (!played->is_stuck)
        muster_task_post(&played->write_task, played->env->loop);
    return MUSTER_OK;
}

static void on_write_task(struct muster_task *task)
{
    struct played_stream *played = task->data;
    struct muster_stream_write *write = played->write;

    played->write = NULL;
    write->done(write, MUSTER_OK);
}

static enum muster_rc play_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    assert_null(played_of(stream)->read);
    played_of(stream)->read = read;
    return MUSTER_OK;
}

static void on_end_task(struct muster_task *task)
{
    played_stream_feed_end(task->data);
}

static void play_shutdown(struct muster_stream *stream)
{
    struct played_stream *played = played_of(stream);

    played->is_shut = true;
    if (!played->is_patient)
        muster_task_post(&played->end_task, played->env->loop);
}

static void on_close_task(struct muster_task *task)
{
    struct played_stream *played = task->data;

    played->is_closed = true;
    if (played->closed != NULL)
        played->closed(&played->stream);
}

static void play_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct played_stream *played = played_of(stream);

    played->closed = closed;
    played->read = NULL;
    muster_task_cancel(&played->write_task);
    muster_task_cancel(&played->end_task);
    played->write = NULL;
    muster_task_post(&played->close_task, played->env->loop);
}

static const struct muster_stream_ops ops = {
    .submit = play_submit, .receive = play_receive, .shutdown = play_shutdown, .close = play_close};

void played_stream_init(struct played_stream *played, struct muster_env *env, size_t sent_max)
{
    memset(played, 0, sizeof(*played));
    played->env = env;
    played->sent = malloc(sent_max);
    played->sent_max = sent_max;
    played->stream.ops = &ops;
    muster_task_init(&played->write_task, on_write_task, played);
    muster_task_init(&played->close_task, on_close_task, played);
    muster_task_init(&played->end_task, on_end_task, played);
}

void played_stream_fini(struct played_stream *played)
{
    free(played->sent);
}

static bool awaits_bytes(struct played_stream *played)
{
    for (unsigned i = 0; i < TURNS_MAX && played->read == NULL && !played->is_closed; i++) {
        if (played->turn != NULL)
            played->turn(played->turn_data);
        else
            test_env_turn(played->env, 1);
    }
    return played->read != NULL;
}

size_t played_stream_feed(struct played_stream *played, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    size_t left = count;

    while (left > 0 && awaits_bytes(played)) {
        struct muster_stream_read *read = played->read;
        size_t part = left < read->bytes_max ? left : read->bytes_max;

        played->read = NULL;
        memcpy(read->buffer, at, part);
        read->bytes_done = part;
        read->done(read, MUSTER_OK);
        at += part;
        left -= part;
    }
    return count - left;
}

void played_stream_feed_frame(struct played_stream *played, uint8_t type, uint8_t flags,
                              uint32_t stream, const void *payload, size_t bytes)
{
    static uint8_t frame[70000];

    (void)played_stream_feed(played, frame,
                             played_frame_put(frame, type, flags, stream, payload, bytes));
}

void played_stream_feed_end(struct played_stream *played)
{
    struct muster_stream_read *read = played->read;

    if (read == NULL)
        return;
    played->read = NULL;
    read->bytes_done = 0;
    read->is_eof = true;
    read->done(read, MUSTER_UNAVAILABLE);
}

void played_stream_release(struct played_stream *played)
{
    played->is_stuck = false;
    if (played->write != NULL)
        muster_task_post(&played->write_task, played->env->loop);
}

size_t played_frame_put(uint8_t *out, uint8_t type, uint8_t flags, uint32_t stream,
                        const void *payload, size_t bytes)
{
    const uint8_t head[9] = {(uint8_t)(bytes >> 16),
                             (uint8_t)(bytes >> 8),
                             (uint8_t)bytes,
                             type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};

    memcpy(out, head, 9);
    if (bytes > 0)
        memcpy(out + 9, payload, bytes);
    return 9 + bytes;
}

const uint8_t *played_stream_sent_frame(const struct played_stream *played, uint8_t type,
                                        unsigned n)
{
    for (size_t at = 0; at + 9 <= played->sent_bytes;) {
        const uint8_t *frame = played->sent + at;
        size_t bytes = (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];

        if (frame[3] == type && n-- == 0)
            return frame;
        at += 9 + bytes;
    }
    return NULL;
}
