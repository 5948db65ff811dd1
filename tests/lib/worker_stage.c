/* Playing TensorFlow workers. */
#include "worker_stage.h"

#include <muster/stream.h>
#include <stdio.h>
#include <string.h>

#include "proto/guard.h"
#include "proto/worker.pb-c.h"

#define METHOD      "/tensorflow.WorkerService/GetStatus"
#define DEVICES_MAX 8

/* The answer, and the end of the call. */
static void send_devices(struct muster_rpc *rpc, const struct played_worker *worker)
{
    Tensorflow__GetStatusResponse response = TENSORFLOW__GET_STATUS_RESPONSE__INIT;
    Tensorflow__DeviceAttributes devices[DEVICES_MAX], *list[DEVICES_MAX];
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    char names[DEVICES_MAX][64];
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc;

    for (unsigned i = 0; i < worker->device_count; i++) {
        tensorflow__device_attributes__init(&devices[i]);
        snprintf(names[i], sizeof(names[i]), "/job:worker/replica:0/task:%u/device:TPU:%u",
                 worker->index, i);
        devices[i].name = names[i];
        devices[i].device_type = (char *)(uintptr_t) "TPU";
        devices[i].incarnation = 1 + i;
        list[i] = &devices[i];
    }
    response.n_device_attributes = worker->device_count;
    response.device_attributes = list;
    rc = muster_proto_pack(mem, &response, &bytes, &size);
    if (rc == MUSTER_OK)
        rc = muster_rpc_send(rpc, bytes, size);
    muster_mem_free(mem, bytes);
    muster_rpc_finish(rpc, rc, NULL); /* RESOURCE_EXHAUSTED, where a case lets memory fail */
}

/* Some time after the crowd is there: whoever else would come has come, too. */
static void on_crowd(struct muster_timer *timer)
{
    struct worker_stage *stage = timer->data;

    for (size_t i = 0; i < stage->count; i++) {
        struct muster_rpc *rpc = stage->workers[i].held;

        stage->workers[i].held = NULL;
        if (rpc == NULL)
            continue;
        stage->answered++;
        send_devices(rpc, &stage->workers[i]);
    }
}

static void worker_hold(struct played_worker *worker, struct muster_rpc *rpc)
{
    struct worker_stage *stage = worker->stage;

    worker->held = rpc;
    if (stage->open == stage->crowd || stage->open == stage->count - stage->answered)
        muster_timer_start(&stage->crowd_timer, stage->env->loop,
                           muster_loop_after_ns(stage->env->loop, 20 * MUSTER_NS_PER_MS));
}

static void on_question(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct played_worker *worker = muster_rpc_service(rpc);

    assert_int_equal(message.size, 0);
    worker->asked++;
    if (worker->stage->crowd > 0) {
        worker_hold(worker, rpc);
        return;
    }
    if (worker->hangs > 0) {
        worker->hangs--;
        return;
    }
    if (worker->refusals > 0) {
        worker->refusals--;
        muster_rpc_finish(rpc, worker->refusal, "not now");
        return;
    }
    if (worker->raw == NULL) {
        send_devices(rpc, worker);
        return;
    }
    assert_int_equal(muster_rpc_send(rpc, worker->raw, strlen(worker->raw)), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_question_start(struct muster_rpc *rpc)
{
    struct worker_stage *stage = ((struct played_worker *)muster_rpc_service(rpc))->stage;

    if (++stage->open > stage->open_peak)
        stage->open_peak = stage->open;
}

static void on_question_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    (void)rc;
    ((struct played_worker *)muster_rpc_service(rpc))->stage->open--;
}

void worker_stage_serve(struct worker_stage *stage, struct played_worker *worker)
{
    static const struct muster_rpc_method method = {.path = METHOD,
                                                    .on_start = on_question_start,
                                                    .on_message = on_question,
                                                    .on_end = on_question_end,
                                                    .is_unary = true};

    assert_int_equal(muster_rpc_server_open(stage->env, NULL, &worker->server), MUSTER_OK);
    muster_rpc_server_set_data(worker->server, worker);
    if (!worker->is_deaf)
        assert_int_equal(muster_rpc_server_add(worker->server, &method, 1, worker), MUSTER_OK);
    assert_int_equal(
        muster_rpc_server_listen(worker->server, &worker->address, &worker->address, NULL),
        MUSTER_OK);
    worker->is_closed = false;
}

static void on_server_closed(struct muster_rpc_server *server)
{
    struct played_worker *worker = muster_rpc_server_data(server);

    worker->server = NULL;
    worker->is_closed = true;
}

void worker_stage_leave(struct worker_stage *stage, struct played_worker *worker)
{
    if (worker->server == NULL)
        return;
    muster_rpc_server_close(worker->server, 0, on_server_closed);
    test_env_run_until(stage->env, test_env_is_true, &worker->is_closed);
}

void worker_stage_open(struct worker_stage *stage, size_t count)
{
    memset(stage, 0, sizeof(*stage));
    test_env_open(&stage->test);
    stage->env = &stage->test.env;
    assert_int_equal(muster_net_system_open(stage->env, &stage->env->net), MUSTER_OK);
    stage->count = count;
    muster_timer_init(&stage->crowd_timer, on_crowd, stage);
    for (unsigned i = 0; i < count; i++) {
        struct played_worker *worker = &stage->workers[i];

        worker->index = i;
        worker->device_count = 2;
        worker->stage = stage;
        assert_int_equal(muster_address_parse("127.0.0.1:0", &worker->address, NULL), MUSTER_OK);
        worker_stage_serve(stage, worker);
        stage->addresses[i] = muster_address_format(&worker->address, worker->text);
    }
}

void worker_stage_close(struct worker_stage *stage)
{
    for (size_t i = 0; i < stage->count; i++)
        worker_stage_leave(stage, &stage->workers[i]);
    muster_net_system_close(stage->env->net);
    test_env_close(&stage->test);
}
