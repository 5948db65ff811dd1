/* Clients of `muster bench params --wire grpc`: calls of muster.params.v1, as a program without muster's client
 * library makes them. Each batch pushes for a source of its own, since a source has one push under way. */
#include "bench/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/channel.h>
#include <muster/stream.h>

#include "proto/params.muster.h"

#define PATIENCE_NS       (60 * MUSTER_NS_PER_S)
#define RECEIVE_BYTES_MAX ((size_t)32 << 20)

struct bench_grpc_batch {
    struct bench_batch *batch;
    union {
        struct muster_params_v1_params_open_call open;
        struct muster_params_v1_params_push_call push;
        struct muster_params_v1_params_pull_call pull;
        struct muster_params_v1_params_push_pull_call push_pull;
    } call;
    uint8_t id[sizeof(struct muster_incarnation)];
    uint64_t slot, generation, sequence; /* of the source */
    bool is_open;
};

static struct muster_call_options call_options(const struct bench_params *bench)
{
    return (struct muster_call_options){
        .deadline_ns = muster_loop_after_ns(bench->env->loop, PATIENCE_NS)};
}

/* --- Connecting --- */

static void on_open(struct muster_params_v1_params_open_call *call, enum muster_rc rc,
                    const Muster__Params__V1__OpenResponse *response)
{
    struct bench_grpc_batch *grpc = call->data;
    struct bench_params *bench = grpc->batch->client->bench;

    if (rc != MUSTER_OK) {
        bench_params_note_failure(bench, rc, &call->stub.call.status);
        return;
    }
    grpc->slot = response->source->slot;
    grpc->generation = response->source->generation;
    grpc->is_open = true;
}

static bool batch_open(struct bench_params *bench, struct bench_client *client,
                       struct bench_batch *batch)
{
    const struct muster_call_options options = call_options(bench);
    struct bench_grpc_batch *grpc = calloc(1, sizeof(*grpc));
    Muster__Params__V1__OpenRequest request;
    enum muster_rc rc;

    batch->grpc = grpc;
    if (grpc == NULL) {
        fprintf(stderr, "muster bench params: out of memory\n");
        return false;
    }
    grpc->batch = batch;
    grpc->call.open.data = grpc;
    for (size_t i = 0; i < sizeof(grpc->id); i++)
        grpc->id[i] = (uint8_t)(bench_params_random(bench) >> 24);
    muster__params__v1__open_request__init(&request);
    request.source_case = MUSTER__PARAMS__V1__OPEN_REQUEST__SOURCE_ID;
    request.id.data = grpc->id;
    request.id.len = sizeof(grpc->id);
    rc = muster_params_v1_params_open_start(&grpc->call.open, client->channel, &options, &request,
                                            on_open);
    if (rc != MUSTER_OK)
        bench_params_note_failure(bench, rc, &grpc->call.open.stub.call.status);
    return rc == MUSTER_OK;
}

static bool sources_are_open(struct bench_params *bench)
{
    for (uint64_t i = 0; i < bench->settings->clients; i++) {
        for (uint64_t j = 0; j < bench->settings->depth; j++) {
            if (!bench->clients[i].batches[j].grpc->is_open)
                return false;
        }
    }
    return true;
}

static bool clients_connect(struct bench_params *bench)
{
    const struct muster_channel_options options = {.receive_message_max_bytes = RECEIVE_BYTES_MAX};

    for (uint64_t i = 0; i < bench->settings->clients; i++) {
        struct bench_client *client = &bench->clients[i];
        struct muster_error error;

        if (muster_channel_open(bench->env, bench->servers, &options, &client->channel, &error) !=
            MUSTER_OK) {
            fprintf(stderr, "muster bench params: %s\n", error.text);
            return false;
        }
        muster_channel_set_data(client->channel, client);
        for (uint64_t j = 0; j < bench->settings->depth; j++) {
            if (!batch_open(bench, client, &client->batches[j]))
                return false;
        }
    }
    return bench_params_run_until(bench, sources_are_open);
}

static void on_closed(struct muster_channel *channel)
{
    struct bench_client *client = muster_channel_data(channel);

    client->channel = NULL;
}

static void client_disconnect(struct bench_client *client)
{
    if (client->channel != NULL)
        muster_channel_close(client->channel, on_closed);
    while (client->channel != NULL)
        muster_loop_turn(client->bench->env->loop, UINT64_MAX);
    for (uint64_t i = 0; client->batches != NULL && i < client->bench->settings->depth; i++)
        free(client->batches[i].grpc);
}

/* --- Calls --- */

static void on_push(struct muster_params_v1_params_push_call *call, enum muster_rc rc,
                    const Muster__Params__V1__PushResponse *response)
{
    struct bench_grpc_batch *grpc = call->data;

    (void)response;
    bench_params_answered(grpc->batch, rc, &call->stub.call.status);
}

static void on_pull(struct muster_params_v1_params_pull_call *call, enum muster_rc rc,
                    const Muster__Params__V1__PullResponse *response)
{
    struct bench_grpc_batch *grpc = call->data;

    (void)response;
    bench_params_answered(grpc->batch, rc, &call->stub.call.status);
}

static void on_push_pull(struct muster_params_v1_params_push_pull_call *call, enum muster_rc rc,
                         const Muster__Params__V1__PushPullResponse *response)
{
    struct bench_grpc_batch *grpc = call->data;

    (void)response;
    bench_params_answered(grpc->batch, rc, &call->stub.call.status);
}

static void push_fill(struct bench_grpc_batch *grpc, Muster__Params__V1__Source *source,
                      Muster__Params__V1__PushRequest *ret_request)
{
    const struct bench_params *bench = grpc->batch->client->bench;

    muster__params__v1__source__init(source);
    source->slot = grpc->slot;
    source->generation = grpc->generation;
    source->id.data = grpc->id;
    source->id.len = sizeof(grpc->id);
    muster__params__v1__push_request__init(ret_request);
    ret_request->source = source;
    ret_request->sequence = ++grpc->sequence;
    ret_request->table_case = MUSTER__PARAMS__V1__PUSH_REQUEST__TABLE_TABLE_NAME;
    ret_request->table_name = (char *)(uintptr_t)BENCH_TABLE;
    ret_request->keys = grpc->batch->keys;
    ret_request->n_keys = bench->rows_per_batch;
    ret_request->value_bytes.data = (uint8_t *)grpc->batch->values;
    ret_request->value_bytes.len = (size_t)bench->rows_per_batch * bench->elements * sizeof(float);
}

static enum muster_rc pull_start(struct bench_grpc_batch *grpc,
                                 const struct muster_call_options *options)
{
    Muster__Params__V1__PullRequest request;

    muster__params__v1__pull_request__init(&request);
    request.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME;
    request.table_name = (char *)(uintptr_t)BENCH_TABLE;
    request.keys = grpc->batch->keys;
    request.n_keys = grpc->batch->client->bench->rows_per_batch;
    request.as_bytes = true;
    grpc->call.pull.data = grpc;
    return muster_params_v1_params_pull_start(&grpc->call.pull, grpc->batch->client->channel,
                                              options, &request, on_pull);
}

static enum muster_rc batch_call(struct bench_batch *batch, struct muster_error *ret_error)
{
    const struct muster_call_options options = call_options(batch->client->bench);
    struct bench_grpc_batch *grpc = batch->grpc;
    struct muster_channel *channel = batch->client->channel;
    Muster__Params__V1__PushPullRequest both;
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__Source source;
    enum muster_rc rc;

    memset(&grpc->call, 0, sizeof(grpc->call));
    if (batch->kind == BENCH_PULL) {
        rc = pull_start(grpc, &options);
    } else if (batch->kind == BENCH_PUSH) {
        push_fill(grpc, &source, &push);
        grpc->call.push.data = grpc;
        rc = muster_params_v1_params_push_start(&grpc->call.push, channel, &options, &push, on_push);
    } else {
        push_fill(grpc, &source, &push);
        muster__params__v1__push_pull_request__init(&both);
        both.push = &push;
        both.as_bytes = true;
        grpc->call.push_pull.data = grpc;
        rc = muster_params_v1_params_push_pull_start(&grpc->call.push_pull, channel, &options, &both,
                                                     on_push_pull);
    }
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "a call cannot be started: %s", muster_rc_text(rc));
    return rc;
}

const struct bench_wire bench_params_grpc = {"grpc", clients_connect, batch_call, client_disconnect};
