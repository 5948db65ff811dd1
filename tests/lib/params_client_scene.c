#include "params_client_scene.h"

#include <string.h>

uint64_t params_client_scene_deadline(const struct params_client_scene *scene)
{
    return muster_loop_after_ns(scene->env->loop, 3600 * MUSTER_NS_PER_S);
}

static void client_open(struct params_client_scene *scene)
{
    struct muster_params_options options = {.server = scene->host.address,
                                            .job = "test",
                                            .connect_deadline_ns =
                                                params_client_scene_deadline(scene),
                                            .data = &scene->outcome};
    struct muster_error error;

    if (muster_params_open(scene->env, &options, params_on_client, &scene->params, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

void params_client_scene_init(struct params_client_scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    scene->env = &scene->test.env;
    assert_int_equal(muster_net_system_open(scene->env, &scene->env->net), MUSTER_OK);
    params_host_open(&scene->host, scene->env);
    client_open(scene);
}

void params_client_scene_open(struct params_client_scene *scene)
{
    struct params_call call = {.op = {.data = &call}};

    params_client_scene_init(scene);
    params_host_answer_open(&scene->host, 0, 0, 1, PARAMS_CLIENT_SCENE_SHARDS);
    assert_int_equal(params_outcome_await(scene->env, &scene->outcome), MUSTER_OK);
    assert_int_equal(muster_params_table_start(&call.op, scene->params, &params_counters,
                                               &scene->table, params_client_scene_deadline(scene),
                                               params_on_call),
                     MUSTER_OK);
    params_host_await(&scene->host, 0, 2);
    params_host_answer_table(&scene->host, 1);
    assert_int_equal(params_call_await(scene->env, &call), MUSTER_OK);
}

enum muster_rc params_client_scene_leave(struct params_client_scene *scene, uint64_t deadline_ns)
{
    scene->outcome.is_done = false;
    muster_params_close(scene->params, deadline_ns, params_on_client);
    return params_outcome_await(scene->env, &scene->outcome);
}

void params_client_scene_fini(struct params_client_scene *scene)
{
    params_host_close(&scene->host);
    muster_net_system_close(scene->env->net);
    test_env_close(&scene->test);
}

void params_client_scene_close(struct params_client_scene *scene)
{
    (void)params_client_scene_leave(scene, muster_loop_now_ns(scene->env->loop));
    params_client_scene_fini(scene);
}

void params_client_scene_send(struct params_client_scene *scene, uint8_t type, uint64_t number,
                              const void *payload, uint32_t bytes)
{
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS, .type = type, .offset = number, .payload_bytes = bytes};

    params_peer_send(&scene->host.peer, &header, payload);
}

void params_client_scene_acknowledge(struct params_client_scene *scene, uint64_t sequence)
{
    uint8_t bytes[MUSTER_PARAMS_ACK_BYTES];

    muster_params_ack_pack(&(struct muster_params_ack){.sequence = sequence}, bytes);
    params_client_scene_send(scene, MUSTER_PARAMS_ACK, 0, bytes, sizeof(bytes));
}
