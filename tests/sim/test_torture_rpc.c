/* Calls between two simulated processes, while each allocation of one of them fails in turn: a call
 * that has started ends once, whatever it has for a deadline, and the next one is served. */
#include <string.h>

#include <muster/rpc.h>

#include "torture.h"

#include "tests/sim/world.h"

#define SEED        UINT64_C(7)
#define PORT        8080
#define END_NS      (60 * MUSTER_NS_PER_S)
#define LARGE_BYTES 100000u
#define MESSAGES    3

struct row {
    bool is_server_hungry;
    bool is_stream; /* several messages each way */
    size_t bytes;
    enum muster_compression compression;
};

struct scene {
    const struct row *row;
    struct sim_world *world;
    struct sim_node *server_node, *client_node;
    struct muster_rpc_server *server;
    struct muster_channel *channel;
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_call call;
    unsigned done_count, answer_count, started, ended;
    enum muster_rc rc;
    bool is_answer_wrong, is_server_closed, is_channel_closed;
};

static char block[LARGE_BYTES];

/* The server. */

static void on_start(struct muster_rpc *rpc)
{
    ((struct scene *)muster_rpc_service(rpc))->started++;
    muster_rpc_set_compression(rpc, ((struct scene *)muster_rpc_service(rpc))->row->compression);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    enum muster_rc rc = muster_rpc_send(rpc, message.data, message.size);

    if (rc != MUSTER_OK)
        muster_rpc_finish(rpc, rc, "no room for the answer");
}

static void on_half_close(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, "all is said");
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    (void)rc;
    ((struct scene *)muster_rpc_service(rpc))->ended++;
}

static void run_server(struct sim_node *node, struct muster_env *env, void *data)
{
    static const struct muster_rpc_method method = {.path = "/sim.Torture/Echo",
                                                    .on_start = on_start,
                                                    .on_message = on_message,
                                                    .on_half_close = on_half_close,
                                                    .on_end = on_end};
    struct scene *scene = data;
    struct muster_address address = sim_host_address(sim_node_host(node), PORT);

    assert_int_equal(muster_rpc_server_open(env, NULL, &scene->server), MUSTER_OK);
    muster_rpc_server_set_data(scene->server, scene);
    assert_int_equal(muster_rpc_server_add(scene->server, &method, 1, scene), MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(scene->server, &address, &address, NULL), MUSTER_OK);
    muster_address_format(&address, scene->target);
}

/* The client. */

static void run_client(struct sim_node *node, struct muster_env *env, void *data)
{
    const struct muster_channel_options options = {.connect_timeout_ns = MUSTER_NS_PER_S,
                                                   .backoff_base_ns = MUSTER_NS_PER_MS,
                                                   .backoff_max_ns = MUSTER_NS_PER_S};
    struct scene *scene = data;

    (void)node;
    assert_int_equal(muster_channel_open(env, scene->target, &options, &scene->channel, NULL),
                     MUSTER_OK);
    muster_channel_set_data(scene->channel, scene);
}

static void on_answer(struct muster_call *call, struct muster_bytes message)
{
    struct scene *scene = call->data;

    scene->answer_count++;
    scene->is_answer_wrong |=
        message.size != scene->row->bytes || memcmp(message.data, block, message.size) != 0;
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct scene *scene = call->data;

    scene->done_count++;
    scene->rc = rc;
}

/* Whether it has started. */
static bool start_call(struct scene *scene, bool is_patient)
{
    const struct muster_metadata_entry entry = {
        .name = "x-torture", .value = "1", .value_bytes = 1};
    const struct muster_call_options options = {.method = "/sim.Torture/Echo",
                                                .deadline_ns = UINT64_MAX,
                                                .metadata = {&entry, 1},
                                                .wait_for_ready = is_patient,
                                                .compression = scene->row->compression,
                                                .on_message = on_answer};
    enum muster_rc rc;

    scene->done_count = scene->answer_count = 0;
    scene->call = (struct muster_call){.data = scene};
    rc = muster_call_start(&scene->call, scene->channel, &options, on_done);
    if (rc != MUSTER_OK) {
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        return false;
    }
    for (unsigned i = 0; i < (scene->row->is_stream ? MESSAGES : 1) && rc == MUSTER_OK; i++)
        rc = muster_call_send(&scene->call, block, scene->row->bytes);
    if (rc == MUSTER_OK)
        muster_call_half_close(&scene->call);
    else
        muster_call_cancel(&scene->call);
    assert_int_equal(scene->done_count, 0);
    return true;
}

static bool is_done(void *data)
{
    return ((struct scene *)data)->done_count > 0;
}

static void begin_call(struct scene *scene, bool is_patient)
{
    bool has_started;

    sim_enter(scene->client_node);
    has_started = start_call(scene, is_patient);
    sim_leave(scene->client_node);
    if (has_started && !sim_run_until(scene->world, is_done, scene, END_NS))
        fail_msg("the call does not end");
    (void)sim_run_for(scene->world, MUSTER_NS_PER_MS);
    assert_int_equal(scene->done_count, has_started);
    assert_false(scene->is_answer_wrong);
    if (scene->rc == MUSTER_OK && has_started)
        assert_int_equal(scene->answer_count, scene->row->is_stream ? MESSAGES : 1);
}

/* The end. */

static void on_server_closed(struct muster_rpc_server *server)
{
    ((struct scene *)muster_rpc_server_data(server))->is_server_closed = true;
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct scene *)muster_channel_data(channel))->is_channel_closed = true;
}

static bool is_closed(void *data)
{
    const struct scene *scene = data;

    return scene->is_server_closed && scene->is_channel_closed;
}

static void close_scene(struct scene *scene)
{
    sim_enter(scene->client_node);
    muster_channel_close(scene->channel, on_channel_closed);
    sim_leave(scene->client_node);
    sim_enter(scene->server_node);
    muster_rpc_server_close(scene->server,
                            muster_loop_now_ns(sim_node_env(scene->server_node)->loop),
                            on_server_closed);
    sim_leave(scene->server_node);
    assert_true(sim_run_until(scene->world, is_closed, scene, END_NS));
    (void)sim_run_for(scene->world, 10 * MUSTER_NS_PER_S);
    assert_int_equal(scene->started, scene->ended);
    sim_exit(scene->client_node);
    sim_exit(scene->server_node);
    if (sim_failure(scene->world) != NULL)
        fail_msg("%s", sim_failure(scene->world));
    (void)sim_world_close(scene->world);
}

static struct sim_node *start_node(struct scene *scene, const char *name, sim_main_fn *start)
{
    struct sim_node *node = sim_node_start(
        scene->world,
        &(struct sim_node_options){
            .name = name, .host = sim_host_add(scene->world, name), .start = start, .data = scene});

    (void)sim_run_for(scene->world, MUSTER_NS_PER_MS);
    return node;
}

static bool refuses_call(void *data)
{
    return torture_refuses(data);
}

static void run_scenario(struct torture *torture, const void *data)
{
    struct scene scene = {.row = data, .world = sim_world_open(SEED, NULL)};

    if (torture_is_traced())
        sim_world_set_trace(scene.world, stdout);
    scene.server_node = start_node(&scene, "server", run_server);
    scene.client_node = start_node(&scene, "client", run_client);
    sim_refuse(scene.row->is_server_hungry ? scene.server_node : scene.client_node, refuses_call,
               torture);

    torture_arm(torture);
    begin_call(&scene, false);
    torture_disarm(torture);
    begin_call(&scene, true);
    assert_int_equal(scene.rc, MUSTER_OK);

    close_scene(&scene);
}

static void a_call_ends_once_and_the_next_is_served(void **state)
{
    static const struct row rows[] = {
        {true, false, 10, MUSTER_COMPRESSION_NONE},
        {false, false, 10, MUSTER_COMPRESSION_NONE},
        {true, true, 10, MUSTER_COMPRESSION_NONE},
        {false, true, 10, MUSTER_COMPRESSION_NONE},
        {true, true, LARGE_BYTES, MUSTER_COMPRESSION_NONE},
        {false, true, LARGE_BYTES, MUSTER_COMPRESSION_NONE},
        {true, true, LARGE_BYTES, MUSTER_COMPRESSION_GZIP},
        {false, true, LARGE_BYTES, MUSTER_COMPRESSION_GZIP},
    };
    static const struct torture_scenario scenarios[] = {
        {"server, unary", run_scenario, &rows[0], 0, 0},
        {"client, unary", run_scenario, &rows[1], 0, 0},
        {"server, stream", run_scenario, &rows[2], 0, 0},
        {"client, stream", run_scenario, &rows[3], 0, 0},
        {"server, large messages", run_scenario, &rows[4], 0, 0},
        {"client, large messages", run_scenario, &rows[5], 0, 0},
        {"server, compressed", run_scenario, &rows[6], 0, 0},
        {"client, compressed", run_scenario, &rows[7], 0, 0},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_call_ends_once_and_the_next_is_served, torture_tell),
    };

    for (size_t i = 0; i < LARGE_BYTES; i++)
        block[i] = (char)(i * 31 % 251);
    return cmocka_run_group_tests_name("sim_torture_rpc", tests, NULL, NULL);
}
