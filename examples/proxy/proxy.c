/* A gRPC proxy: every call of every service goes on to a target, message by message, with its
 * metadata, its deadline, its status, and at the pace of the slower side.
 *
 * proxy [--listen HOST:PORT] --to TARGET; prints "listening HOST:PORT". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serving.h"

#define QUEUED_MAX_BYTES  (1u << 20) /* of one direction of a call: beyond it the source waits */
#define MESSAGE_MAX_BYTES (64u << 20)
#define METADATA_MAX      100 /* of a call, as the library takes them */

struct proxy {
    struct serving serving;
    struct muster_channel *channel;
};

/* One call, seen from both sides. Freed when both are over. */
struct relay {
    struct muster_rpc *rpc; /* NULL: the client's side is over */
    struct muster_call call;
    bool is_call_over;
};

static void free_when_over(struct relay *relay)
{
    if (relay->rpc == NULL && relay->is_call_over)
        free(relay);
}

/* The caller's metadata, without what a hop says for itself. Returns the count. */
static size_t end_to_end(struct muster_metadata from, struct muster_metadata_entry to[METADATA_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < from.count && count < METADATA_MAX; i++) {
        const char *name = from.entries[i].name;

        if (strcmp(name, "user-agent") != 0 && strncmp(name, "grpc-", 5) != 0)
            to[count++] = from.entries[i];
    }
    return count;
}

/* From the target to the client. */

static void on_answer_headers(struct muster_call *call)
{
    struct relay *relay = call->data;

    if (relay->rpc == NULL)
        return;
    muster_rpc_set_compression(relay->rpc, muster_call_compression(call));
    muster_rpc_send_headers(relay->rpc, call->initial_metadata);
}

static void on_answer(struct muster_call *call, struct muster_bytes message)
{
    struct relay *relay = call->data;

    if (relay->rpc == NULL)
        return;
    muster_rpc_set_compressing(relay->rpc, muster_call_is_compressed(call));
    if (muster_rpc_send(relay->rpc, message.data, message.size) != MUSTER_OK)
        muster_call_cancel(call);
    else if (muster_rpc_queued_bytes(relay->rpc) > QUEUED_MAX_BYTES)
        muster_call_pause(call);
}

static void on_client_writable(struct muster_rpc *rpc)
{
    struct relay *relay = muster_rpc_data(rpc);

    if (relay != NULL && !relay->is_call_over)
        muster_call_resume(&relay->call);
}

static void on_target_done(struct muster_call *call, enum muster_rc rc)
{
    struct relay *relay = call->data;

    relay->is_call_over = true;
    if (relay->rpc != NULL) {
        muster_rpc_set_trailers(relay->rpc, call->trailing_metadata);
        muster_rpc_finish(relay->rpc, rc, call->status.text);
    }
    free_when_over(relay);
}

/* From the client to the target. */

static void on_target_writable(struct muster_call *call)
{
    struct relay *relay = call->data;

    if (relay->rpc != NULL)
        muster_rpc_resume(relay->rpc);
}

static void on_start(struct muster_rpc *rpc)
{
    struct proxy *proxy = muster_rpc_service(rpc);
    struct muster_metadata_entry entries[METADATA_MAX];
    const struct muster_call_options options = {
        .method = muster_rpc_path(rpc),
        .deadline_ns = muster_rpc_deadline_ns(rpc),
        .metadata = {entries, end_to_end(muster_rpc_metadata(rpc), entries)},
        .compression = muster_rpc_compression(rpc),
        .on_headers = on_answer_headers,
        .on_message = on_answer,
        .on_writable = on_target_writable,
    };
    struct relay *relay = calloc(1, sizeof(*relay));

    if (relay == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "proxy: out of memory");
        return;
    }
    relay->rpc = rpc;
    relay->call.data = relay;
    enum muster_rc rc = muster_call_start(&relay->call, proxy->channel, &options, on_target_done);
    if (rc != MUSTER_OK) {
        free(relay);
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, "proxy: the call cannot be passed on");
        return;
    }
    muster_rpc_set_data(rpc, relay);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct relay *relay = muster_rpc_data(rpc);

    if (relay == NULL || relay->is_call_over)
        return;
    muster_call_set_compressing(&relay->call, muster_rpc_is_compressed(rpc));
    if (muster_call_send(&relay->call, message.data, message.size) != MUSTER_OK)
        muster_call_cancel(&relay->call);
    else if (muster_call_queued_bytes(&relay->call) > QUEUED_MAX_BYTES)
        muster_rpc_pause(rpc);
}

static void on_half_close(struct muster_rpc *rpc)
{
    struct relay *relay = muster_rpc_data(rpc);

    if (relay != NULL && !relay->is_call_over)
        muster_call_half_close(&relay->call);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct relay *relay = muster_rpc_data(rpc);

    (void)rc;
    if (relay == NULL)
        return;
    relay->rpc = NULL;
    if (!relay->is_call_over)
        muster_call_cancel(&relay->call); /* the client has gone */
    free_when_over(relay);
}

static const struct muster_rpc_method everything = {.on_start = on_start,
                                                    .on_message = on_message,
                                                    .on_half_close = on_half_close,
                                                    .on_writable = on_client_writable,
                                                    .on_end = on_end};

/* The program. */

static void on_channel_closed(struct muster_channel *channel)
{
    serving_ended(muster_channel_data(channel));
}

static void close_channel(struct serving *serving)
{
    muster_channel_close(MUSTER_CONTAINER_OF(serving, struct proxy, serving)->channel,
                         on_channel_closed);
}

struct settings {
    const char *listen, *target;
};

static const struct muster_option rows[] = {
    SERVING_LISTEN_ROW(struct settings),
    {.name = "to",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, target),
     .value = "TARGET",
     .help = "Who answers: HOST:PORT, or another name of a gRPC server; required."},
};

static const struct muster_options options = {
    .command = "proxy",
    .usage = "[--listen HOST:PORT] --to TARGET",
    .about = "Pass gRPC calls on without knowing their messages.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int main(int argc, char **argv)
{
    static struct proxy proxy = {.serving = {.program = "proxy", .on_closed = close_channel}};
    const struct muster_rpc_server_options server = {.receive_message_max_bytes =
                                                         MESSAGE_MAX_BYTES};
    const struct muster_channel_options channel = {.receive_message_max_bytes = MESSAGE_MAX_BYTES};
    struct settings settings = {.target = NULL};
    struct muster_error error;
    int code;

    if (!serving_parse(&options, argc, argv, &settings, &code))
        return code;
    if (settings.target == NULL) {
        fprintf(stderr, "usage: proxy %s\n", options.usage);
        return 2;
    }
    if (!serving_open(&proxy.serving, &server))
        return 1;
    if (muster_channel_open(proxy.serving.env, settings.target, &channel, &proxy.channel, &error) !=
        MUSTER_OK) {
        fprintf(stderr, "proxy: %s\n", error.text);
        return 1;
    }
    muster_channel_set_data(proxy.channel, &proxy.serving);
    muster_rpc_server_set_fallback(proxy.serving.server, &everything, &proxy);
    return serving_run(&proxy.serving, settings.listen);
}
