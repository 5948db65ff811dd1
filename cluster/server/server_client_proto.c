/* The questions of a task to another task's server: messages out, and answers as plain structs. */
#include <muster/server_client.h>

#include <string.h>

#include "proto/worker.muster.h"

static enum muster_rc question_start(struct muster_stub_call *stub, struct muster_channel *channel,
                                     const struct muster_stub_method *method, uint64_t deadline_ns,
                                     const void *request)
{
    const struct muster_call_options options = {.deadline_ns = deadline_ns};

    return muster_stub_start(stub, channel, method, &options, request);
}

/* In the server's own words: programs compare them with TensorFlow's. */
static void error_take(struct muster_error *ret_error, const struct muster_stub_call *stub,
                       enum muster_rc rc)
{
    *ret_error = stub->call.status;
    ret_error->rc = rc;
}

/* --- Devices --- */

static void device_pack(const struct muster_server_peer *peer, Tensorflow__DeviceAttributes *device,
                        Tensorflow__DeviceLocality *locality)
{
    tensorflow__device_attributes__init(device);
    tensorflow__device_locality__init(locality);
    locality->numa_node = peer->numa_node;
    device->locality = locality;
    device->name = (char *)(uintptr_t)peer->device;
    device->device_type = (char *)(uintptr_t)peer->type;
    device->memory_limit = peer->memory_limit_bytes;
    device->incarnation = peer->incarnation;
    if (peer->description != NULL)
        device->physical_device_desc = (char *)(uintptr_t)peer->description;
}

/* Gives an array whose texts are the messages'. */
static enum muster_rc peers_unpack(struct muster_mem *mem, Tensorflow__DeviceAttributes **devices,
                                   size_t count, struct muster_server_peer **ret_peers)
{
    struct muster_server_peer *peers = muster_mem_alloc_zero(mem, count + 1, sizeof(*peers));

    if (peers == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < count; i++) {
        const Tensorflow__DeviceLocality *locality = devices[i]->locality;

        peers[i] =
            (struct muster_server_peer){.device = devices[i]->name,
                                        .type = devices[i]->device_type,
                                        .memory_limit_bytes = devices[i]->memory_limit,
                                        .numa_node = locality != NULL ? locality->numa_node : 0,
                                        .incarnation = devices[i]->incarnation,
                                        .description = devices[i]->physical_device_desc};
    }
    *ret_peers = peers;
    return MUSTER_OK;
}

static const struct muster_stub_method get_status = {
    .path = "/tensorflow.WorkerService/GetStatus",
    .request = &tensorflow__get_status_request__descriptor,
    .response = &tensorflow__get_status_response__descriptor,
};

static void on_devices(struct muster_stub_call *stub, enum muster_rc rc, const void *message)
{
    struct muster_server_devices *op =
        MUSTER_CONTAINER_OF(stub, struct muster_server_devices, stub);
    const Tensorflow__GetStatusResponse *response = message;
    struct muster_server_peer *peers = NULL;
    struct muster_mem *mem = stub->mem;

    error_take(&op->error, stub, rc);
    if (rc == MUSTER_OK) {
        rc = peers_unpack(mem, response->device_attributes, response->n_device_attributes, &peers);
        if (rc != MUSTER_OK)
            muster_error_set(&op->error, rc, "no memory for the devices");
    }
    op->peers = peers;
    op->count = peers != NULL ? response->n_device_attributes : 0;
    op->done(op, rc);
    muster_mem_free(mem, peers);
}

enum muster_rc muster_server_devices_start(struct muster_server_devices *op,
                                           struct muster_channel *channel, uint64_t deadline_ns,
                                           muster_server_devices_fn *done)
{
    Tensorflow__GetStatusRequest request;

    tensorflow__get_status_request__init(&request);
    op->done = done;
    op->stub.done = on_devices;
    return question_start(&op->stub, channel, &get_status, deadline_ns, &request);
}

void muster_server_devices_cancel(struct muster_server_devices *op)
{
    muster_call_cancel(&op->stub.call);
}

/* --- Groups --- */

static const struct muster_stub_method complete_group = {
    .path = "/tensorflow.WorkerService/CompleteGroup",
    .request = &tensorflow__complete_group_request__descriptor,
    .response = &tensorflow__complete_group_response__descriptor,
};

static void on_group(struct muster_stub_call *stub, enum muster_rc rc, const void *message)
{
    struct muster_server_group *op = MUSTER_CONTAINER_OF(stub, struct muster_server_group, stub);
    const Tensorflow__CompleteGroupResponse *response = message;
    struct muster_server_peer *members = NULL;
    struct muster_mem *mem = stub->mem;

    error_take(&op->error, stub, rc);
    op->count = op->task_count = 0;
    op->communicator_key = (struct muster_bytes){NULL, 0};
    if (rc == MUSTER_OK) {
        rc =
            peers_unpack(mem, response->device_attributes, response->n_device_attributes, &members);
        if (rc != MUSTER_OK)
            muster_error_set(&op->error, rc, "no memory for the members");
    }
    op->members = members;
    if (members != NULL) {
        op->count = response->n_device_attributes;
        op->task_count = (uint32_t)response->num_tasks;
        op->communicator_key =
            (struct muster_bytes){response->communicator_key.data, response->communicator_key.len};
    }
    op->done(op, rc);
    muster_mem_free(mem, members);
}

enum muster_rc muster_server_group_start(struct muster_server_group *op,
                                         struct muster_channel *channel,
                                         const struct muster_server_group_options *options,
                                         uint64_t deadline_ns, muster_server_group_fn *done)
{
    Tensorflow__CompleteGroupRequest request;
    Tensorflow__DeviceAttributes device;
    Tensorflow__DeviceLocality locality;

    tensorflow__complete_group_request__init(&request);
    device_pack(options->member, &device, &locality);
    request.group_key = options->key;
    request.group_size = (int32_t)options->size;
    request.device_type = device.device_type;
    request.device_attributes = &device;
    op->done = done;
    op->stub.done = on_group;
    return question_start(&op->stub, channel, &complete_group, deadline_ns, &request);
}

void muster_server_group_cancel(struct muster_server_group *op)
{
    muster_call_cancel(&op->stub.call);
}

/* --- Instances --- */

static const struct muster_stub_method complete_instance = {
    .path = "/tensorflow.WorkerService/CompleteInstance",
    .request = &tensorflow__complete_instance_request__descriptor,
    .response = &tensorflow__complete_instance_response__descriptor,
};

static void on_instance(struct muster_stub_call *stub, enum muster_rc rc, const void *message)
{
    struct muster_server_instance *op =
        MUSTER_CONTAINER_OF(stub, struct muster_server_instance, stub);
    const Tensorflow__CompleteInstanceResponse *response = message;

    error_take(&op->error, stub, rc);
    op->source_rank = rc == MUSTER_OK ? response->source_rank : -1;
    op->done(op, rc);
}

enum muster_rc muster_server_instance_start(struct muster_server_instance *op,
                                            struct muster_channel *channel,
                                            const struct muster_server_instance_options *options,
                                            uint64_t deadline_ns, muster_server_instance_fn *done)
{
    Tensorflow__CompleteInstanceRequest request;
    Tensorflow__TensorShape shape;
    Tensorflow__TensorShapeDim dims[MUSTER_SERVER_DIMS_MAX], *dim_pointers[MUSTER_SERVER_DIMS_MAX];

    if (options->dim_count > MUSTER_SERVER_DIMS_MAX)
        return MUSTER_INVALID_ARGUMENT;
    tensorflow__complete_instance_request__init(&request);
    tensorflow__tensor_shape__init(&shape);
    for (size_t i = 0; i < options->dim_count; i++) {
        tensorflow__tensor_shape_dim__init(&dims[i]);
        dims[i].size = options->dims[i];
        dim_pointers[i] = &dims[i];
    }
    shape.dim = dim_pointers;
    shape.n_dim = options->dim_count;
    request.type = (int32_t)options->collective;
    request.data_type = options->data_type;
    request.shape = &shape;
    request.group_key = options->group_key;
    request.group_size = (int32_t)options->group_size;
    request.instance_key = options->key;
    request.device_type = (char *)(uintptr_t)options->member->type;
    request.device = (char *)(uintptr_t)options->member->device;
    request.is_source = options->is_source;
    request.step_id = options->step_id;
    op->done = done;
    op->stub.done = on_instance;
    return question_start(&op->stub, channel, &complete_instance, deadline_ns, &request);
}

void muster_server_instance_cancel(struct muster_server_instance *op)
{
    muster_call_cancel(&op->stub.call);
}

/* --- Buffers --- */

static const struct muster_stub_method recv_buf = {
    .path = "/tensorflow.WorkerService/RecvBuf",
    .request = &tensorflow__recv_buf_request__descriptor,
    .response = &tensorflow__recv_buf_response__descriptor,
};

/* One piece is taken where it lies. Several are put together in *ret_joined, which this gives. */
static enum muster_rc pieces_join(struct muster_mem *mem, const Tensorflow__RecvBufRespExtra *extra,
                                  uint8_t **ret_joined, struct muster_bytes *ret_bytes)
{
    size_t size = 0, at = 0;
    uint8_t *joined;

    for (size_t i = 0; i < extra->n_tensor_content; i++)
        size += extra->tensor_content[i].len;
    if (extra->n_tensor_content == 1)
        *ret_bytes = (struct muster_bytes){extra->tensor_content[0].data, size};
    if (extra->n_tensor_content <= 1)
        return MUSTER_OK;
    joined = muster_mem_alloc(mem, size + 1);
    if (joined == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < extra->n_tensor_content; at += extra->tensor_content[i].len, i++)
        if (extra->tensor_content[i].len > 0)
            memcpy(joined + at, extra->tensor_content[i].data, extra->tensor_content[i].len);
    *ret_joined = joined;
    *ret_bytes = (struct muster_bytes){joined, size};
    return MUSTER_OK;
}

static void on_fetched(struct muster_stub_call *stub, enum muster_rc rc, const void *message)
{
    struct muster_server_fetch *op = MUSTER_CONTAINER_OF(stub, struct muster_server_fetch, stub);
    const Tensorflow__RecvBufResponse *response = message;
    Tensorflow__RecvBufRespExtra *extra = NULL;
    struct muster_mem *mem = stub->mem;
    uint8_t *joined = NULL;

    error_take(&op->error, stub, rc);
    op->bytes = (struct muster_bytes){NULL, 0};
    op->is_dead = rc == MUSTER_OK && response->is_dead;
    if (rc == MUSTER_OK && response->transport_options != NULL) {
        rc = muster_proto_unpack(mem, &tensorflow__recv_buf_resp_extra__descriptor,
                                 response->transport_options->value.data,
                                 response->transport_options->value.len, NULL, &extra, &op->error);
        if (rc == MUSTER_INVALID_ARGUMENT) /* the server's fault, not the program's */
            rc = op->error.rc = MUSTER_INTERNAL;
    }
    if (extra != NULL) {
        rc = pieces_join(mem, extra, &joined, &op->bytes);
        if (rc != MUSTER_OK)
            muster_error_set(&op->error, rc, "no memory for the bytes");
    }
    op->done(op, rc);
    muster_proto_free(extra);
    muster_mem_free(mem, joined);
}

enum muster_rc muster_server_fetch_start(struct muster_server_fetch *op,
                                         struct muster_channel *channel,
                                         const struct muster_server_fetch_options *options,
                                         uint64_t deadline_ns, muster_server_fetch_fn *done)
{
    Tensorflow__RecvBufRequest request;

    tensorflow__recv_buf_request__init(&request);
    request.buf_rendezvous_key = (char *)(uintptr_t)options->key;
    request.step_id = options->step_id;
    request.src_device = (char *)(uintptr_t)options->source->device;
    request.src_incarnation = options->source->incarnation;
    request.dst_device = (char *)(uintptr_t)options->destination;
    op->done = done;
    op->stub.done = on_fetched;
    return question_start(&op->stub, channel, &recv_buf, deadline_ns, &request);
}

void muster_server_fetch_cancel(struct muster_server_fetch *op)
{
    muster_call_cancel(&op->stub.call);
}
