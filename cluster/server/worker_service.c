/* tensorflow.WorkerService: messages to groups, instances and buffers, and their answers back.
 * TensorFlow's own runtime calls it in the peers, so names, texts and codes follow TensorFlow 2.21.
 * The state is in worker_groups.c, worker_instances.c and buffer_rendezvous.c. */
#include "cluster/server/worker_service.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/guard.h"
#include "proto/worker.muster.h"

/* The bytes travel in transport_options under this type when no RDMA transport is in use
 * (grpc_worker_service.cc of TensorFlow). */
#define EXTRA_TYPE_URL  "type.googleapis.com/tensorflow.RecvBufRespExtra"
#define SHAPE_BYTES_MAX 256
#define NO_SESSIONS                                                                                \
    "muster runs no graphs and no remote eager operations: run the computation in each task's "    \
    "own process, and let it use the collectives"

enum question_wait {
    QUESTION_ANSWERED,      /* the call is finished, or about to be */
    QUESTION_WAITS_MEMBERS, /* in a group or an instance, by its ask */
    QUESTION_WAITS_BYTES,   /* in the rendezvous, by its take */
};

/* A question that may have to wait; the call's data. */
struct question {
    struct muster_worker_group_ask ask;
    struct muster_buffer_take take;
    struct muster_worker_service *service;
    struct muster_rpc *rpc;
    int32_t key;
    enum question_wait waits;
};

static struct question *question_new(struct muster_rpc *rpc, enum question_wait waits)
{
    struct muster_worker_service *service = muster_rpc_service(rpc);
    struct question *question = muster_mem_alloc_zero(service->env->mem, 1, sizeof(*question));

    if (question == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the question");
        return NULL;
    }
    question->service = service;
    question->rpc = rpc;
    /* The join, the agreement or the take that follows may answer at once, and moves it on. */
    question->waits = waits;
    muster_rpc_set_data(rpc, question);
    return question;
}

/* The call may end before its answer, when the peer gives up; then the question leaves the list in
 * which it waits. */
static void on_question_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct question *question = muster_rpc_data(rpc);

    (void)rc;
    if (question == NULL)
        return;
    if (question->waits == QUESTION_WAITS_BYTES)
        muster_buffer_drop(&question->service->buffers, &question->take);
    else if (question->waits == QUESTION_WAITS_MEMBERS)
        muster_worker_groups_drop(&question->ask);
    muster_mem_free(question->service->env->mem, (void *)(uintptr_t)question->take.key);
    muster_mem_free(question->service->env->mem, question);
}

/* --- GetStatus --- */

static void on_get_status(struct muster_rpc *rpc, const Tensorflow__GetStatusRequest *request)
{
    const struct muster_worker_service *service = muster_rpc_service(rpc);
    Tensorflow__DeviceAttributes devices[64], *pointers[64];
    Tensorflow__DeviceLocality localities[64];
    Tensorflow__GetStatusResponse response;

    (void)request;
    tensorflow__get_status_response__init(&response);
    response.device_attributes = pointers;
    for (size_t i = 0; i < service->device_count && i < 64; i++) {
        const struct muster_worker_device *from = &service->devices[i];

        tensorflow__device_attributes__init(&devices[i]);
        tensorflow__device_locality__init(&localities[i]);
        localities[i].numa_node = from->device.numa_node;
        devices[i].name = from->name;
        devices[i].device_type = (char *)(uintptr_t)from->device.type;
        devices[i].memory_limit = from->device.memory_limit_bytes;
        devices[i].locality = &localities[i];
        devices[i].incarnation = service->incarnation;
        devices[i].physical_device_desc =
            (char *)(uintptr_t)(from->device.description != NULL ? from->device.description : "");
        /* -1 is what TensorFlow reports for a device without XLA. */
        devices[i].xla_global_id = -1;
        pointers[i] = &devices[i];
        response.n_device_attributes++;
    }
    (void)tensorflow_worker_service_get_status_reply(rpc, &response);
}

/* --- CompleteGroup --- */

static void reply_group(struct question *question, const struct muster_worker_group *group)
{
    struct muster_mem *mem = question->service->env->mem;
    uint32_t count = group->member_count, done = 0;
    Tensorflow__CompleteGroupResponse response;
    Tensorflow__DeviceAttributes **devices = muster_mem_alloc_zero(mem, count, sizeof(*devices));

    /* The attributes came from the members as they described themselves, and go to all as they
     * came. */
    while (devices != NULL && done < count &&
           muster_proto_unpack(mem, &tensorflow__device_attributes__descriptor,
                               group->members[done].attributes.data,
                               group->members[done].attributes.size, NULL, &devices[done],
                               NULL) == MUSTER_OK)
        done++;
    tensorflow__complete_group_response__init(&response);
    response.group_key = group->key;
    response.group_size = (int32_t)group->size;
    response.device_type = group->device_type;
    response.num_tasks = (int32_t)group->task_count;
    response.communicator_key.data = (uint8_t *)(uintptr_t)group->communicator_key;
    response.communicator_key.len = sizeof(group->communicator_key);
    response.device_attributes = devices;
    response.n_device_attributes = done;
    if (devices != NULL && done == count)
        (void)tensorflow_worker_service_complete_group_reply(question->rpc, &response);
    else
        muster_rpc_finish(question->rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the group");
    while (done > 0)
        muster_proto_free(devices[--done]);
    muster_mem_free(mem, devices);
}

static void on_group_answer(struct muster_worker_group_ask *ask,
                            const struct muster_worker_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);

    MUSTER_ASSERT(question->waits == QUESTION_WAITS_MEMBERS);
    question->waits = QUESTION_ANSWERED;
    if (answer->rc != MUSTER_OK)
        muster_rpc_finish(question->rpc, answer->rc, answer->text);
    else
        reply_group(question, answer->group);
}

static void on_complete_group(struct muster_rpc *rpc,
                              const Tensorflow__CompleteGroupRequest *request)
{
    struct muster_worker_service *service = muster_rpc_service(rpc);
    struct muster_worker_group_request own = {.key = request->group_key,
                                              .size = request->group_size,
                                              .device_type = request->device_type};
    struct question *question;
    void *attributes = NULL;

    if (request->device_attributes == NULL || request->device_attributes->name[0] == '\0') {
        muster_rpc_finish(rpc, MUSTER_INTERNAL,
                          "CompleteGroupRequest device_attributes is not set. Make sure you're "
                          "running the same version of Tensorflow on all workers.");
        return;
    }
    own.device = request->device_attributes->name;
    own.incarnation = request->device_attributes->incarnation;
    question = question_new(rpc, QUESTION_WAITS_MEMBERS);
    if (question == NULL)
        return;
    if (muster_proto_pack(service->env->mem, request->device_attributes, &attributes,
                          &own.attributes.size) != MUSTER_OK) {
        question->waits = QUESTION_ANSWERED;
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the question");
        return;
    }
    own.attributes.data = attributes;
    question->ask.on_answer = on_group_answer;
    muster_worker_groups_join(service->groups, &question->ask, &own);
    muster_mem_free(service->env->mem, attributes);
}

/* --- CompleteInstance --- */

static void on_instance_answer(struct muster_worker_group_ask *ask,
                               const struct muster_worker_answer *answer)
{
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);
    Tensorflow__CompleteInstanceResponse response;

    MUSTER_ASSERT(question->waits == QUESTION_WAITS_MEMBERS);
    question->waits = QUESTION_ANSWERED;
    if (answer->rc != MUSTER_OK) {
        muster_rpc_finish(question->rpc, answer->rc, answer->text);
        return;
    }
    tensorflow__complete_instance_response__init(&response);
    response.instance_key = question->key;
    response.source_rank = answer->source_rank;
    (void)tensorflow_worker_service_complete_instance_reply(question->rpc, &response);
}

/* "[2,3]", as TensorFlow writes shapes; one too long to be compared is cut. */
static void format_shape(const Tensorflow__TensorShape *shape, char text[SHAPE_BYTES_MAX])
{
    size_t at = 1;

    if (shape != NULL && shape->unknown_rank) {
        (void)snprintf(text, SHAPE_BYTES_MAX, "<unknown>");
        return;
    }
    text[0] = '[';
    for (size_t i = 0; shape != NULL && i < shape->n_dim && at + 24 < SHAPE_BYTES_MAX; i++)
        at += (size_t)snprintf(text + at, SHAPE_BYTES_MAX - at, "%s%" PRId64, i > 0 ? "," : "",
                               shape->dim[i]->size);
    (void)snprintf(text + at, SHAPE_BYTES_MAX - at, "]");
}

static void on_complete_instance(struct muster_rpc *rpc,
                                 const Tensorflow__CompleteInstanceRequest *request)
{
    struct muster_worker_service *service = muster_rpc_service(rpc);
    struct question *question = question_new(rpc, QUESTION_WAITS_MEMBERS);
    char shape[SHAPE_BYTES_MAX];
    const struct muster_worker_instance_request own = {
        .group_key = request->group_key,
        .step_id = request->step_id,
        .key = request->instance_key,
        .type = request->type,
        .data_type = request->data_type,
        .shape = shape,
        .device = request->device,
        .is_source = request->is_source,
    };

    if (question == NULL)
        return;
    format_shape(request->shape, shape);
    question->key = request->instance_key;
    question->ask.on_answer = on_instance_answer;
    muster_worker_groups_agree(service->groups, &question->ask, &own);
}

/* --- RecvBuf --- */

static enum muster_rc reply_buffer(struct question *question, struct muster_bytes bytes)
{
    struct muster_mem *mem = question->service->env->mem;
    ProtobufCBinaryData content = {bytes.size, (uint8_t *)(uintptr_t)bytes.data};
    Tensorflow__RecvBufRespExtra extra;
    Tensorflow__RecvBufResponse response;
    Tensorflow__AnyMessage any;
    void *packed = NULL;
    enum muster_rc rc;

    tensorflow__recv_buf_resp_extra__init(&extra);
    extra.tensor_content = &content;
    extra.n_tensor_content = 1;
    tensorflow__any_message__init(&any);
    any.type_url = (char *)(uintptr_t)EXTRA_TYPE_URL;
    rc = muster_proto_pack(mem, &extra, &packed, &any.value.len);
    any.value.data = packed;
    tensorflow__recv_buf_response__init(&response);
    response.num_bytes = (int64_t)bytes.size;
    response.transport_options = &any;
    response.send_start_micros =
        (int64_t)(muster_host_wall_ns(question->service->env->host) / 1000);
    if (rc == MUSTER_OK)
        rc = tensorflow_worker_service_recv_buf_reply(question->rpc, &response);
    else
        muster_rpc_finish(question->rpc, rc, "no memory for the buffer");
    muster_mem_free(mem, packed);
    return rc;
}

static void on_buffer(struct muster_buffer_take *take, enum muster_rc rc, const char *text,
                      struct muster_server_buffer *buffer)
{
    struct question *question = MUSTER_CONTAINER_OF(take, struct question, take);

    MUSTER_ASSERT(question->waits == QUESTION_WAITS_BYTES);
    question->waits = QUESTION_ANSWERED;
    if (rc != MUSTER_OK) {
        muster_rpc_finish(question->rpc, rc, text);
        return;
    }
    /* The reply copies the bytes, so their owner gets them back right after it. */
    rc = reply_buffer(question, buffer->bytes);
    muster_buffer_taken(&question->service->buffers, buffer, rc);
}

static bool is_own_device(struct muster_rpc *rpc, const Tensorflow__RecvBufRequest *request)
{
    const struct muster_worker_service *service = muster_rpc_service(rpc);
    char text[1024];
    size_t i = 0;

    while (i < service->device_count && strcmp(service->devices[i].name, request->src_device) != 0)
        i++;
    if (i == service->device_count) {
        (void)snprintf(text, sizeof(text), "%s unknown device.", request->src_device);
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, text);
        return false;
    }
    /* A peer that knows an earlier life of this task must not get bytes of this one under the same
     * key. */
    if (request->src_incarnation == service->incarnation)
        return true;
    (void)snprintf(text, sizeof(text),
                   "RecvBuf expects a different device incarnation: %" PRIu64 " vs. %" PRIu64
                   ". Your worker job that contains the device (\"%s\") was probably restarted. "
                   "Check your worker job for the reason why it was restarted.",
                   request->src_incarnation, service->incarnation, request->src_device);
    muster_rpc_finish(rpc, MUSTER_FAILED_PRECONDITION, text);
    return false;
}

static void on_recv_buf(struct muster_rpc *rpc, const Tensorflow__RecvBufRequest *request)
{
    struct muster_worker_service *service = muster_rpc_service(rpc);
    struct question *question = NULL;

    if (is_own_device(rpc, request))
        question = question_new(rpc, QUESTION_WAITS_BYTES);
    if (question == NULL)
        return;
    question->take.key = muster_mem_strdup(service->env->mem, request->buf_rendezvous_key);
    if (question->take.key == NULL) {
        question->waits = QUESTION_ANSWERED;
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the question");
        return;
    }
    question->take.step_id = request->step_id;
    question->take.on_ready = on_buffer;
    muster_buffer_take(&service->buffers, &question->take);
}

/* A sender of TensorFlow may keep an answer for repeated calls until it hears this. Here nothing is
 * kept, so there is nothing to do. */
static void on_mark_recv_finished(struct muster_rpc *rpc,
                                  const Tensorflow__MarkRecvFinishedRequest *request)
{
    Tensorflow__MarkRecvFinishedResponse response;

    (void)request;
    tensorflow__mark_recv_finished_response__init(&response);
    (void)tensorflow_worker_service_mark_recv_finished_reply(rpc, &response);
}

/* --- What is not served --- */

static void on_no_sessions(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_UNIMPLEMENTED, NO_SESSIONS);
}

/* The method is refused when its call begins, before any message of it is read. */
#define ABSENT(name)                                                                               \
    {                                                                                              \
        .path = "/tensorflow." name, .on_start = on_no_sessions                                    \
    }
static const struct muster_rpc_method absent[] = {
    ABSENT("MasterService/CreateSession"),
    ABSENT("MasterService/ExtendSession"),
    ABSENT("MasterService/PartialRunSetup"),
    ABSENT("MasterService/RunStep"),
    ABSENT("MasterService/CloseSession"),
    ABSENT("MasterService/ListDevices"),
    ABSENT("MasterService/Reset"),
    ABSENT("MasterService/MakeCallable"),
    ABSENT("MasterService/RunCallable"),
    ABSENT("MasterService/ReleaseCallable"),
    ABSENT("WorkerService/CreateWorkerSession"),
    ABSENT("WorkerService/DeleteWorkerSession"),
    ABSENT("WorkerService/RegisterGraph"),
    ABSENT("WorkerService/DeregisterGraph"),
    ABSENT("WorkerService/RunGraph"),
    ABSENT("WorkerService/CleanupGraph"),
    ABSENT("WorkerService/CleanupAll"),
    ABSENT("WorkerService/RecvTensor"),
    ABSENT("WorkerService/Logging"),
    ABSENT("WorkerService/Tracing"),
    ABSENT("WorkerService/GetStepSequence"),
    ABSENT("eager.EagerService/CreateContext"),
    ABSENT("eager.EagerService/UpdateContext"),
    ABSENT("eager.EagerService/Enqueue"),
    ABSENT("eager.EagerService/StreamingEnqueue"),
    ABSENT("eager.EagerService/WaitQueueDone"),
    ABSENT("eager.EagerService/RunComponentFunction"),
    ABSENT("eager.EagerService/KeepAlive"),
    ABSENT("eager.EagerService/CloseContext"),
};

static const struct tensorflow_worker_service_handlers handlers = {
    .get_status = {.on_request = on_get_status},
    .recv_buf = {.on_request = on_recv_buf, .on_end = on_question_end},
    .complete_group = {.on_request = on_complete_group, .on_end = on_question_end},
    .complete_instance = {.on_request = on_complete_instance, .on_end = on_question_end},
    .mark_recv_finished = {.on_request = on_mark_recv_finished},
};

enum muster_rc muster_worker_service_add(struct muster_worker_service *service,
                                         struct muster_rpc_server *server)
{
    enum muster_rc rc;

    muster_buffer_rendezvous_init(&service->buffers, service->env->loop);
    rc = tensorflow_worker_service_service_add(server, &handlers, service);
    if (rc != MUSTER_OK)
        return rc;
    return muster_rpc_server_add(server, absent, sizeof(absent) / sizeof(absent[0]), service);
}

void muster_worker_service_end(struct muster_worker_service *service, enum muster_rc rc,
                               const char *text)
{
    muster_worker_groups_abort(service->groups, rc, text);
    muster_buffer_rendezvous_end(&service->buffers, rc, text);
}
