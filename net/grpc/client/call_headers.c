/* Request headers written, response headers and trailers read (gRPC PROTOCOL-HTTP2.md). Reading
 * only records; call_events.c judges when the block is whole, since a server may order the headers
 * as it likes. */
#include <stdlib.h>
#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"
#include "net/grpc/timeout.h"
#include "net/grpc/client/channel_internal.h"

/* HTTP/2 has checked that there are three digits. */
static void parse_http_status(struct muster_grpc_call *call, const char *value, size_t bytes)
{
    int status = 0;

    for (size_t i = 0; i < bytes && i < 3; i++)
        status = status * 10 + (value[i] - '0');
    call->http_status = status;
}

static void parse_message(struct muster_grpc_call *call, const char *value, size_t bytes)
{
    (void)muster_grpc_message_decode(value, bytes, call->outcome.text, sizeof(call->outcome.text));
}

/* True when the header is gRPC's own and not metadata. */
static bool parse_own(struct muster_grpc_call *call, const char *name, size_t name_bytes,
                      const char *value, size_t value_bytes)
{
    if (name_bytes > 0 && name[0] == ':') {
        if (muster_grpc_is_text(name, name_bytes, ":status"))
            parse_http_status(call, value, value_bytes);
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "grpc-status")) {
        call->has_status = true;
        call->status = muster_grpc_status_parse(value, value_bytes);
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "grpc-message")) {
        parse_message(call, value, value_bytes);
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "content-type")) {
        /* A codec may follow ("+proto"): the caller knows the one that it asked for. */
        call->is_grpc = value_bytes >= 16 && memcmp(value, "application/grpc", 16) == 0;
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "grpc-encoding")) {
        call->parser.takes_gzip = muster_grpc_is_text(value, value_bytes, "gzip");
        call->has_unknown_encoding =
            !call->parser.takes_gzip && !muster_grpc_is_text(value, value_bytes, "identity");
        return true;
    }
    if (muster_grpc_is_text(name, name_bytes, "grpc-retry-pushback-ms")) {
        muster_rpc_retry_parse_pushback(&call->retry, value, value_bytes);
        return true;
    }
    return muster_grpc_is_text(name, name_bytes, "grpc-accept-encoding");
}

void muster_grpc_call_header_parse(struct muster_grpc_call *call, const char *name,
                                   size_t name_bytes, const char *value, size_t value_bytes)
{
    /* The first block is initial metadata, unless the response ends with it: then on_headers swaps
     * the two. */
    struct muster_grpc_metadata *store = call->has_headers ? &call->trailing : &call->initial;
    enum muster_rc rc;

    if (call->state != MUSTER_GRPC_CALL_ACTIVE ||
        parse_own(call, name, name_bytes, value, value_bytes))
        return;
    rc = muster_grpc_metadata_add_wire(store, name, name_bytes, value, value_bytes);
    if (rc != MUSTER_OK)
        call->metadata_rc = rc;
}

/* Stable: the text stays where it is until the stream closes, so the session need not copy it. */
static struct muster_h2_header stable_header(const char *name, const char *value,
                                             size_t value_bytes)
{
    struct muster_h2_header header = {
        .name = name,
        .value = value,
        .name_bytes = (uint16_t)strlen(name),
        .value_bytes = (uint32_t)value_bytes,
        .is_stable = true,
    };

    return header;
}

/* Writes the headers that gRPC reserves; entry 0 of the request's metadata is its :path. */
static size_t head_format(struct muster_grpc_call *call, struct muster_h2_header *headers)
{
    static const struct muster_h2_header fixed[] = {
        MUSTER_H2_STATIC(":method", "POST"),
        MUSTER_H2_STATIC(":scheme", "http"),
        MUSTER_H2_STATIC("te", "trailers"),
        MUSTER_H2_STATIC("content-type", "application/grpc"),
        MUSTER_H2_STATIC("user-agent", "muster/" MUSTER_VERSION),
        MUSTER_H2_STATIC("grpc-accept-encoding", "identity,gzip"),
        MUSTER_H2_STATIC("grpc-encoding", "gzip"),
        MUSTER_H2_STATIC(":scheme", "https"),
    };
    static const struct muster_h2_header repeated[MUSTER_RETRY_ATTEMPTS_MAX - 1] = {
        MUSTER_H2_STATIC("grpc-previous-rpc-attempts", "1"),
        MUSTER_H2_STATIC("grpc-previous-rpc-attempts", "2"),
        MUSTER_H2_STATIC("grpc-previous-rpc-attempts", "3"),
        MUSTER_H2_STATIC("grpc-previous-rpc-attempts", "4"),
    };
    const struct muster_metadata_entry *path = &call->request.entries[0];
    const char *authority = call->channel->target.authority;
    uint64_t now_ns = muster_loop_now_ns(call->channel->env->loop);
    size_t count = 0;

    headers[count++] = fixed[0];
    headers[count++] = call->channel->options.tls == NULL ? fixed[1] : fixed[7];
    headers[count++] = stable_header(path->name, path->value, path->value_bytes);
    headers[count++] = stable_header(":authority", authority, strlen(authority));
    headers[count++] = fixed[2];
    if (call->deadline_ns != UINT64_MAX) {
        /* 0 would be no timeout to some servers: the shortest one says that the call is late. */
        uint64_t left_ns = call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 1;
        size_t length = muster_grpc_timeout_format(left_ns, call->timeout_text);

        headers[count] = stable_header("grpc-timeout", call->timeout_text, length);
        /* It hardly comes again, so the header compression does not index it (RFC 7541 6.2.2): an
         * entry for it would push out others. */
        headers[count++].is_volatile = true;
    }
    headers[count++] = fixed[3];
    headers[count++] = fixed[4];
    headers[count++] = fixed[5];
    if (call->compression == MUSTER_COMPRESSION_GZIP)
        headers[count++] = fixed[6];
    if (call->retry.repeated > 0)
        headers[count++] = repeated[call->retry.repeated - 1];
    return count;
}

enum muster_rc muster_grpc_call_request(struct muster_grpc_call *call,
                                        struct muster_h2_session *session)
{
    struct muster_h2_header headers[MUSTER_H2_HEADERS_MAX];
    size_t count = head_format(call, headers);

    for (size_t i = 1; i < call->request.count && count < MUSTER_H2_HEADERS_MAX; i++) {
        const struct muster_metadata_entry *entry = &call->request.entries[i];

        headers[count++] = stable_header(entry->name, entry->value, entry->value_bytes);
    }
    return muster_h2_stream_request(&call->stream, session, headers, count);
}
