/* Each system call of the network's adapters fails in turn while two streams exchange bytes: every
 * request ends once, what arrives is right, no descriptor is left. */
#include <muster/stream.h>

#include "torture_calls.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BULK_BYTES     200000u
#define ZEROCOPY_BYTES 50000u
#define END_NS         (5 * MUSTER_NS_PER_S)

/* One end of the connection: it sends the block and receives the other's. */
struct side {
    struct muster_stream *stream; /* NULL: not there, or closed */
    struct muster_stream_write write;
    struct muster_stream_read read;
    struct iovec iov[2];
    unsigned write_count, read_count, open_count; /* callbacks; requests that are open */
    bool has_failed, has_received;
    char received[BULK_BYTES];
};

struct scene {
    struct test_env test;
    struct muster_listener *listener;
    struct muster_connect connect;
    unsigned connect_count, closing_count;
    bool is_connect_over;
    bool is_zerocopy; /* large sends go without a copy */
    struct side client, server;
};

struct row {
    const char *address;
    bool is_zerocopy;
};

static char block[BULK_BYTES];
static char unix_path[64];

static void on_closed(struct muster_stream *stream)
{
    ((struct scene *)stream->data)->closing_count--;
}

static void close_side(struct scene *scene, struct side *side)
{
    struct muster_stream *stream = side->stream;

    if (stream == NULL)
        return;
    side->stream = NULL;
    scene->closing_count++;
    muster_stream_close(stream, on_closed);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct side *side = write->data;

    side->write_count++;
    side->open_count--;
    side->has_failed |= rc != MUSTER_OK;
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct side *side = read->data;

    side->read_count++;
    side->open_count--;
    side->has_failed |= rc != MUSTER_OK;
    side->has_received = rc == MUSTER_OK;
    if (rc == MUSTER_OK)
        assert_memory_equal(side->received, block, BULK_BYTES);
}

static void begin_exchange(struct scene *scene, struct side *side, struct muster_stream *stream)
{
    stream->data = scene;
    side->stream = stream;
    if (scene->is_zerocopy)
        muster_stream_set_zerocopy(stream, ZEROCOPY_BYTES);
    side->iov[0] = (struct iovec){block, 1000};
    side->iov[1] = (struct iovec){block + 1000, BULK_BYTES - 1000};
    side->write.data = side->read.data = side;
    if (muster_stream_submit(&side->write, stream, side->iov, 2, on_written) == MUSTER_OK)
        side->open_count++;
    if (muster_stream_receive_into(&side->read, stream, side->received, BULK_BYTES, BULK_BYTES,
                                   on_read) == MUSTER_OK)
        side->open_count++;
    side->has_failed |= side->open_count != 2;
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct scene *scene = listener->data;

    begin_exchange(scene, &scene->server, stream);
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct scene *scene = connect->data;

    scene->connect_count++;
    scene->is_connect_over = true;
    if (rc == MUSTER_OK)
        begin_exchange(scene, &scene->client, connect->stream);
}

/* The side that fails closes its stream, so that the other one sees the end. */
static bool is_over(void *data)
{
    struct scene *scene = data;

    if (scene->client.has_failed)
        close_side(scene, &scene->client);
    if (scene->server.has_failed)
        close_side(scene, &scene->server);
    return (scene->client.stream == NULL || scene->client.open_count == 0) &&
           (scene->server.stream == NULL || scene->server.open_count == 0);
}

static bool is_all_closed(void *data)
{
    return ((struct scene *)data)->closing_count == 0;
}

static void run_exchange(struct scene *scene)
{
    struct muster_env *env = &scene->test.env;

    scene->connect.data = scene;
    if (muster_connect_start(&scene->connect, env->net, muster_listener_address(scene->listener),
                             NULL, muster_loop_after_ns(env->loop, END_NS),
                             on_connect) != MUSTER_OK)
        return;
    test_env_run_until(env, test_env_is_true, &scene->is_connect_over);
    if (scene->client.stream != NULL)
        test_env_run_until(env, is_over, scene);
    assert_int_equal(scene->connect_count, 1);
}

static void close_all(struct scene *scene)
{
    muster_listener_close(scene->listener, NULL);
    test_env_turn(&scene->test.env, 4); /* what waits to be accepted is, or is dropped */
    close_side(scene, &scene->client);
    close_side(scene, &scene->server);
    test_env_run_until(&scene->test.env, is_all_closed, scene);
    test_env_turn(&scene->test.env, 4);
    muster_net_system_close(scene->test.env.net);
    scene->test.env.net = NULL;
}

static void run_scenario(struct torture *torture, const void *data)
{
    static struct scene scene;
    const struct row *row = data;
    size_t count = torture_count_descriptors();
    struct muster_address address;
    struct muster_error error;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    scene.is_zerocopy = row->is_zerocopy;
    assert_int_equal(muster_address_parse(row->address, &address, NULL), MUSTER_OK);
    torture_arm_calls(torture);
    if (muster_net_system_open(&scene.test.env, &scene.test.env.net) == MUSTER_OK) {
        if (muster_listener_open(scene.test.env.net, &address, NULL, on_accept, &scene,
                                 &scene.listener, &error) == MUSTER_OK) {
            assert_int_not_equal(muster_listener_address(scene.listener)->family,
                                 MUSTER_ADDRESS_NONE);
            run_exchange(&scene);
        } else {
            assert_int_not_equal(error.text[0], '\0');
            scene.listener = NULL;
        }
    }
    torture_disarm(torture);
    if (scene.test.env.net != NULL && scene.listener != NULL)
        close_all(&scene);
    else
        muster_net_system_close(scene.test.env.net);
    test_env_close(&scene.test);

    assert_true(scene.client.write_count <= 1 && scene.client.read_count <= 1);
    assert_true(scene.server.write_count <= 1 && scene.server.read_count <= 1);
    assert_int_equal(scene.client.open_count + scene.server.open_count, 0);
    if (torture->refused == 0 || torture_call_was_harmless())
        assert_true(scene.client.has_received && scene.server.has_received);
    assert_int_equal(torture_count_descriptors(), count);
}

static void an_exchange_ends_whatever_call_fails(void **state)
{
    static const struct row rows[] = {
        {"127.0.0.1:0", false}, {unix_path, false}, {"127.0.0.1:0", true}};
    static const struct torture_scenario scenarios[] = {
        {"tcp", run_scenario, &rows[0], TORTURE_CALL_VARIANTS, 0},
        {"unix", run_scenario, &rows[1], TORTURE_CALL_VARIANTS, 0},
        {"zero-copy", run_scenario, &rows[2], TORTURE_CALL_VARIANTS, 0},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_exchange_ends_whatever_call_fails, torture_tell),
    };

    (void)snprintf(unix_path, sizeof(unix_path), "unix:/tmp/muster-calls-%d", (int)getpid());
    for (size_t i = 0; i < BULK_BYTES; i++)
        block[i] = (char)(i * 31 % 251);
    return cmocka_run_group_tests_name("system_calls", tests, NULL, NULL);
}
