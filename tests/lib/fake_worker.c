/* Workers on gRPC servers of the test's own loop. */
#include "fake_worker.h"

#include <stdio.h>

#include "proto/guard.h"
#include "proto/worker.pb-c.h"
#include "test_env.h"

#define DEVICES_MAX 9

static void on_question(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct fake_worker *worker = muster_rpc_service(rpc);
    Tensorflow__GetStatusResponse response = TENSORFLOW__GET_STATUS_RESPONSE__INIT;
    Tensorflow__DeviceAttributes devices[DEVICES_MAX], *list[DEVICES_MAX];
    char names[DEVICES_MAX][64];
    void *bytes = NULL;
    size_t size = 0;

    (void)message;
    worker->asked++;
    if (worker->is_hanging)
        return;
    for (unsigned i = 0; i <= worker->core_count; i++) {
        tensorflow__device_attributes__init(&devices[i]);
        snprintf(names[i], sizeof(names[i]), "/job:worker/replica:0/task:%u/device:%s:%u",
                 worker->task, i == 0 ? "CPU" : "TPU", i == 0 ? 0 : i - 1);
        devices[i].name = names[i];
        list[i] = &devices[i];
    }
    response.n_device_attributes = worker->core_count + 1;
    response.device_attributes = list;
    assert_int_equal(muster_proto_pack(worker->env->mem, &response, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_rpc_send(rpc, bytes, size), MUSTER_OK);
    muster_mem_free(worker->env->mem, bytes);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

void fake_worker_serve(struct fake_worker *worker, struct muster_env *env)
{
    static const struct muster_rpc_method method = {.path = "/tensorflow.WorkerService/GetStatus",
                                                    .on_message = on_question,
                                                    .is_unary = true};

    assert_true(worker->core_count < DEVICES_MAX);
    worker->env = env;
    worker->is_closed = false;
    if (worker->text[0] == '\0')
        assert_int_equal(muster_address_parse("127.0.0.1:0", &worker->address, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_open(env, NULL, &worker->server), MUSTER_OK);
    muster_rpc_server_set_data(worker->server, worker);
    assert_int_equal(muster_rpc_server_add(worker->server, &method, 1, worker), MUSTER_OK);
    assert_int_equal(
        muster_rpc_server_listen(worker->server, &worker->address, &worker->address, NULL),
        MUSTER_OK);
    (void)muster_address_format(&worker->address, worker->text);
}

static void on_closed(struct muster_rpc_server *server)
{
    struct fake_worker *worker = muster_rpc_server_data(server);

    worker->server = NULL;
    worker->is_closed = true;
}

void fake_worker_leave(struct fake_worker *worker)
{
    if (worker->server == NULL)
        return;
    muster_rpc_server_close(worker->server, 0, on_closed);
    test_env_run_until(worker->env, test_env_is_true, &worker->is_closed);
}
