/* The listening port against those who connect and say nothing: how long they are waited for, and
 * how many of them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include <muster/stream.h>

#include "net/link/port.h"
#include "tests/sim/world.h"

#define PORT       7000
#define SILENT_MAX 1024 /* connections that have not spoken yet */
#define CALLERS    (SILENT_MAX + 8)
#define SILENCE_NS (10 * MUSTER_NS_PER_S)
#define SHORT_NS   (100 * MUSTER_NS_PER_MS)

struct scene;

/** One connection, as its client sees it. */
struct caller {
    struct scene *scene;
    struct muster_connect connect;
    struct muster_stream *stream;
    struct muster_stream_read read;
    struct muster_stream_write write;
    struct iovec iov;
    const char *speech;
    uint8_t byte;
    bool is_dropped;
};

struct scene {
    struct sim_world *world;
    struct sim_node *server, *client;
    struct muster_port *port;
    struct muster_address address;
    struct muster_stream *peers[CALLERS]; /* that the port has handed on */
    unsigned peer_count, caller_count;
    struct caller callers[CALLERS];
    bool is_port_closed;
};

/* --- the server --- */

static void on_peer(struct muster_port *port, struct muster_stream *stream)
{
    struct scene *scene = muster_port_data(port);

    scene->peers[scene->peer_count++] = stream;
}

static void run_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)node;
    if (muster_port_open(env, &scene->address, NULL, on_peer, scene, &scene->port, &error) !=
        MUSTER_OK)
        sim_fail(scene->world, "the port does not open: %s", error.text);
}

/* --- the clients --- */

static void on_hang_up(struct muster_stream_read *read, enum muster_rc rc)
{
    struct caller *caller = read->data;

    if (rc == MUSTER_CANCELLED)
        return;
    caller->is_dropped = true;
}

static void on_said(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)write;
    (void)rc;
}

static void caller_say(struct caller *caller, const char *speech)
{
    caller->iov = (struct iovec){(void *)(uintptr_t)speech, strlen(speech)};
    if (caller->iov.iov_len > 0 &&
        muster_stream_submit(&caller->write, caller->stream, &caller->iov, 1, on_said) != MUSTER_OK)
        sim_fail(caller->scene->world, "a caller cannot speak");
}

static void on_connected(struct muster_connect *connect, enum muster_rc rc)
{
    struct caller *caller = connect->data;

    if (rc != MUSTER_OK) {
        sim_fail(caller->scene->world, "a caller is not connected: %s", connect->error.text);
        return;
    }
    caller->stream = connect->stream;
    caller->read.data = caller;
    if (muster_stream_receive_into(&caller->read, caller->stream, &caller->byte, 1, 1,
                                   on_hang_up) != MUSTER_OK)
        sim_fail(caller->scene->world, "a caller cannot listen");
    caller_say(caller, caller->speech);
}

static struct caller *scene_call(struct scene *scene, const char *speech)
{
    struct caller *caller = &scene->callers[scene->caller_count++];

    caller->scene = scene;
    caller->connect.data = caller;
    caller->speech = speech;
    sim_enter(scene->client);
    if (muster_connect_start(&caller->connect, sim_node_env(scene->client)->net, &scene->address,
                             NULL, UINT64_MAX, on_connected) != MUSTER_OK)
        sim_fail(scene->world, "a caller cannot start");
    sim_leave(scene->client);
    return caller;
}

static void say_later(struct caller *caller, const char *speech)
{
    sim_enter(caller->scene->client);
    caller_say(caller, speech);
    sim_leave(caller->scene->client);
}

static void run_client(struct sim_node *node, struct muster_env *env, void *data)
{
    (void)node;
    (void)env;
    (void)data;
}

/* --- the scene --- */

static void open_scene(struct scene *scene)
{
    struct sim_host *host;

    memset(scene, 0, sizeof(*scene));
    scene->world = sim_world_open(1, NULL);
    host = sim_host_add(scene->world, "server");
    scene->address = sim_host_address(host, PORT);
    scene->server = sim_node_start(
        scene->world, &(struct sim_node_options){
                          .name = "server", .host = host, .start = run_server, .data = scene});
    host = sim_host_add(scene->world, "client");
    scene->client = sim_node_start(
        scene->world, &(struct sim_node_options){
                          .name = "client", .host = host, .start = run_client, .data = scene});
    assert_true(sim_run_for(scene->world, SHORT_NS));
}

static void scene_pass(struct scene *scene, uint64_t span_ns)
{
    (void)sim_run_for(scene->world, span_ns);
    if (sim_failure(scene->world) != NULL)
        print_error("%s\n", sim_failure(scene->world));
    assert_null(sim_failure(scene->world));
}

static void on_port_closed(struct muster_port *port)
{
    ((struct scene *)muster_port_data(port))->is_port_closed = true;
}

static void close_scene(struct scene *scene)
{
    sim_enter(scene->server);
    for (unsigned i = 0; i < scene->peer_count; i++)
        muster_stream_close(scene->peers[i], NULL);
    muster_port_close(scene->port, on_port_closed);
    sim_leave(scene->server);
    sim_enter(scene->client);
    for (unsigned i = 0; i < scene->caller_count; i++)
        if (scene->callers[i].stream != NULL)
            muster_stream_close(scene->callers[i].stream, NULL);
    sim_leave(scene->client);
    scene_pass(scene, MUSTER_NS_PER_S);
    assert_true(scene->is_port_closed);
    sim_exit(scene->server);
    sim_exit(scene->client);
    assert_int_equal(sim_world_close(scene->world), 0);
}

static unsigned count_dropped(const struct scene *scene)
{
    unsigned count = 0;

    for (unsigned i = 0; i < scene->caller_count; i++)
        count += scene->callers[i].is_dropped;
    return count;
}

static void who_says_nothing_is_dropped_after_ten_seconds(void **state)
{
    static struct scene scene;
    struct caller *caller;

    (void)state;
    open_scene(&scene);
    caller = scene_call(&scene, "");

    scene_pass(&scene, SILENCE_NS - SHORT_NS);
    assert_false(caller->is_dropped);
    scene_pass(&scene, 2 * SHORT_NS);

    assert_true(caller->is_dropped);
    close_scene(&scene);
}

static void a_few_bytes_win_no_time(void **state)
{
    static struct scene scene;
    struct caller *caller;

    (void)state;
    open_scene(&scene);
    caller = scene_call(&scene, "M");

    scene_pass(&scene, SILENCE_NS / 2);
    say_later(caller, "ST");
    scene_pass(&scene, SILENCE_NS / 2 + SHORT_NS);

    assert_true(caller->is_dropped);
    assert_int_equal(scene.peer_count, 0);
    close_scene(&scene);
}

static void who_has_spoken_may_be_silent_for_ever(void **state)
{
    static struct scene scene;
    struct caller *caller;

    (void)state;
    open_scene(&scene);
    caller = scene_call(&scene, "MSTR");

    scene_pass(&scene, 3 * SILENCE_NS);

    assert_false(caller->is_dropped);
    assert_int_equal(scene.peer_count, 1);
    close_scene(&scene);
}

static void beyond_1024_silent_ones_the_next_is_dropped_at_once(void **state)
{
    static struct scene scene;
    struct caller *last;

    (void)state;
    open_scene(&scene);
    for (unsigned i = 0; i < SILENT_MAX; i++)
        scene_call(&scene, "");
    scene_pass(&scene, MUSTER_NS_PER_S);
    assert_int_equal(count_dropped(&scene), 0);

    last = scene_call(&scene, "MSTR");
    scene_pass(&scene, SHORT_NS);

    assert_true(last->is_dropped);
    assert_int_equal(count_dropped(&scene), 1);
    assert_int_equal(scene.peer_count, 0);
    close_scene(&scene);
}

static void who_speaks_makes_room_for_the_next(void **state)
{
    static struct scene scene;
    struct caller *last;

    (void)state;
    open_scene(&scene);
    for (unsigned i = 0; i < SILENT_MAX; i++)
        scene_call(&scene, "");
    scene_pass(&scene, MUSTER_NS_PER_S);
    say_later(&scene.callers[5], "MSTR");
    scene_pass(&scene, SHORT_NS);

    last = scene_call(&scene, "");
    scene_pass(&scene, SHORT_NS);

    assert_false(last->is_dropped);
    assert_int_equal(scene.peer_count, 1);
    close_scene(&scene);
}

static void when_the_silent_ones_are_dropped_others_are_served(void **state)
{
    static struct scene scene;

    (void)state;
    open_scene(&scene);
    for (unsigned i = 0; i < SILENT_MAX; i++)
        scene_call(&scene, "");
    scene_pass(&scene, SILENCE_NS + MUSTER_NS_PER_S);
    assert_int_equal(count_dropped(&scene), SILENT_MAX);

    scene_call(&scene, "MSTR");
    scene_pass(&scene, SHORT_NS);

    assert_int_equal(scene.peer_count, 1);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_says_nothing_is_dropped_after_ten_seconds),
        cmocka_unit_test(a_few_bytes_win_no_time),
        cmocka_unit_test(who_has_spoken_may_be_silent_for_ever),
        cmocka_unit_test(beyond_1024_silent_ones_the_next_is_dropped_at_once),
        cmocka_unit_test(who_speaks_makes_room_for_the_next),
        cmocka_unit_test(when_the_silent_ones_are_dropped_others_are_served),
    };

    return cmocka_run_group_tests_name("port in the simulated world", tests, NULL, NULL);
}
