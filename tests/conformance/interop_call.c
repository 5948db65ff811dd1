/* A call of the interop client, waited for step by step. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "interop_client.h"
#include "proto/guard.h"

bool interop_check(struct interop_client *client, bool is_right, const char *fmt, ...)
{
    va_list args;

    if (is_right || client->failure[0] != '\0')
        return is_right;
    va_start(args, fmt);
    (void)vsnprintf(client->failure, sizeof(client->failure), fmt, args);
    va_end(args);
    return false;
}

bool interop_check_body(struct interop_client *client, const ProtobufCBinaryData *body,
                        size_t bytes)
{
    if (!interop_check(client, body->len == bytes, "payload has %zu bytes, expected %zu", body->len,
                       bytes))
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (!interop_check(client, body->data[i] == 0, "byte %zu of the payload is %u, expected 0",
                           i, (unsigned)body->data[i]))
            return false;
    }
    return true;
}

static void value_keep(struct interop_value *value, const struct muster_metadata *metadata,
                       const char *name)
{
    for (size_t i = 0; name != NULL && i < metadata->count; i++) {
        const struct muster_metadata_entry *entry = &metadata->entries[i];

        if (strcmp(entry->name, name) != 0 || entry->value_bytes > sizeof(value->value))
            continue;
        value->count++;
        value->bytes = entry->value_bytes;
        memcpy(value->value, entry->value, entry->value_bytes);
    }
}

static void on_message(struct muster_call *muster_call, struct muster_bytes bytes)
{
    struct interop_call *call = muster_call->data;
    size_t at = call->answer_count++;
    struct muster_error error;

    if (at >= INTEROP_ANSWERS_MAX)
        return;
    call->answers[at].is_compressed = muster_call_is_compressed(muster_call);
    if (muster_proto_unpack(call->client->env->mem, call->descriptor, bytes.data, bytes.size, NULL,
                            &call->answers[at].message, &error) != MUSTER_OK)
        (void)interop_check(call->client, false, "answer %zu is no %s: %s", at,
                            call->descriptor->name, error.text);
}

static void on_done(struct muster_call *muster_call, enum muster_rc rc)
{
    struct interop_call *call = muster_call->data;

    call->is_done = true;
    call->rc = rc;
    memcpy(call->text, muster_call->status.text, sizeof(call->text));
    value_keep(&call->initial, &muster_call->initial_metadata, call->initial_name);
    value_keep(&call->trailing, &muster_call->trailing_metadata, call->trailing_name);
}

bool interop_call_start(struct interop_call *call, struct interop_client *client,
                        const struct interop_ask *ask)
{
    struct muster_metadata_entry entries[INTEROP_METADATA_MAX + INTEROP_ADDITIONAL_MAX];
    struct muster_call_options options = {
        .method = ask->method,
        .deadline_ns = muster_loop_after_ns(
            client->env->loop, ask->timeout_ns > 0 ? ask->timeout_ns : INTEROP_DEADLINE_NS),
        .compression = ask->can_compress ? MUSTER_COMPRESSION_GZIP : MUSTER_COMPRESSION_NONE,
        .on_message = on_message};
    enum muster_rc rc;

    for (size_t i = 0; i < ask->metadata.count && i < INTEROP_METADATA_MAX; i++)
        entries[options.metadata.count++] = ask->metadata.entries[i];
    for (size_t i = 0; i < client->additional_count; i++)
        entries[options.metadata.count++] = client->additional[i];
    options.metadata.entries = entries;
    call->client = client;
    call->descriptor = ask->answer;
    call->initial_name = ask->initial_name;
    call->trailing_name = ask->trailing_name;
    call->call.data = call;
    rc = muster_call_start(&call->call, call->channel != NULL ? call->channel : client->channel,
                           &options, on_done);
    call->is_started = rc == MUSTER_OK;
    return interop_check(client, rc == MUSTER_OK, "%s: the call cannot start: %s", ask->method,
                         muster_rc_name(rc));
}

bool interop_call_send(struct interop_call *call, const void *message, bool is_compressed)
{
    struct muster_mem *mem = call->client->env->mem;
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_proto_pack(mem, message, &bytes, &size);

    if (rc == MUSTER_OK) {
        muster_call_set_compressing(&call->call, is_compressed);
        rc = muster_call_send(&call->call, bytes, size);
    }
    muster_mem_free(mem, bytes);
    return interop_check(call->client, rc == MUSTER_OK, "a message of %zu bytes cannot be sent: %s",
                         size, muster_rc_name(rc));
}

bool interop_call_await(struct interop_call *call, size_t count)
{
    while (!call->is_done && call->answer_count < count)
        muster_loop_turn(call->client->env->loop, UINT64_MAX);
    return interop_check(call->client, call->answer_count >= count,
                         "the call ended with %s (%s) after %zu answers, expected %zu",
                         muster_rc_name(call->rc), call->text, call->answer_count, count) &&
           call->client->failure[0] == '\0'; /* else one of them could not be read */
}

bool interop_call_end(struct interop_call *call, enum muster_rc expected)
{
    while (!call->is_done)
        muster_loop_turn(call->client->env->loop, UINT64_MAX);
    return interop_check(call->client, call->rc == expected,
                         "the call ended with %s (%s), expected %s", muster_rc_name(call->rc),
                         call->text, muster_rc_name(expected));
}

void interop_call_fini(struct interop_call *call)
{
    if (call->is_started && !call->is_done) {
        muster_call_cancel(&call->call);
        while (!call->is_done)
            muster_loop_turn(call->client->env->loop, UINT64_MAX);
    }
    for (size_t i = 0; i < INTEROP_ANSWERS_MAX; i++) {
        muster_proto_free(call->answers[i].message);
        call->answers[i].message = NULL;
    }
}

bool interop_unary(struct interop_call *call, struct interop_client *client,
                   const struct interop_ask *ask, const void *request, enum muster_rc expected)
{
    if (!interop_call_start(call, client, ask) || !interop_call_send(call, request, false))
        return false;
    muster_call_half_close(&call->call);
    if (!interop_call_end(call, expected) || client->failure[0] != '\0')
        return false;
    return interop_check(client, expected != MUSTER_OK || call->answer_count == 1,
                         "the call has %zu answers, expected 1", call->answer_count);
}
