/* The second dial to a peer that ended a connection without a byte: which answers settle what. */
#include <stdlib.h>
#include <string.h>

#include "net/tls/dial_probe.h"
#include "net/stream/net_internal.h"
#include "tests/lib/test_env.h"

#define WHY "the peer ended the connection before it said anything"

struct scene {
    struct test_env test;
    struct muster_net *net;
    struct muster_listener *listener;
    struct muster_dial_probe probe;
    unsigned done_count;
    bool is_done;
    /* the peer */
    const struct row *row;
    struct muster_stream *guest;
    struct muster_stream_read read;
    struct muster_stream_write write;
    struct iovec answer;
    uint8_t heard[512];
    size_t heard_bytes;
};

/* After what, a peer says what, and what is known then. */
struct row {
    const char *name;
    bool was_tls;
    const char *answer;
    size_t bytes;
    enum muster_rc rc;
};

#define SAYS(text) .answer = (text), .bytes = sizeof(text) - 1

static const struct row rows[] = {
    {"a hello of TLS", false, SAYS("\x16\x03\x03"), MUSTER_FAILED_PRECONDITION},
    {"an alert of TLS", false, SAYS("\x15\x03\x01"), MUSTER_FAILED_PRECONDITION},
    {"HTTP/1.1 after plain text", false, SAYS("HTTP/1.1 400 Bad"), MUSTER_UNAVAILABLE},
    {"SETTINGS after plain text", false, SAYS("\0\0\0\4\0\0\0\0\0"), MUSTER_UNAVAILABLE},
    {"nothing after plain text", false, SAYS(""), MUSTER_UNAVAILABLE},
    {"SETTINGS", true, SAYS("\0\0\6\4\0\0\0\0\0\0\3\0\0\0\x64"), MUSTER_FAILED_PRECONDITION},
    {"SETTINGS cut short", true, SAYS("\0\0\6\4\0"), MUSTER_UNAVAILABLE},
    {"another frame", true, SAYS("\0\0\0\6\0\0\0\0\0"), MUSTER_UNAVAILABLE},
    {"HTTP/1.1 after TLS", true, SAYS("HTTP/1.1 400 Bad"), MUSTER_UNAVAILABLE},
    {"nothing after TLS", true, SAYS(""), MUSTER_UNAVAILABLE},
};

static void on_probe(struct muster_dial_probe *probe)
{
    struct scene *scene = probe->data;

    scene->done_count++;
    scene->is_done = true;
}

static void guest_leave(struct scene *scene)
{
    if (scene->guest != NULL)
        muster_stream_close(scene->guest, NULL);
    scene->guest = NULL;
}

static void on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)rc;
    guest_leave(write->data);
}

/* All of the hello came: the answer goes out, and the end of the connection behind it. */
static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct scene *scene = read->data;

    if (rc == MUSTER_CANCELLED)
        return;
    scene->heard_bytes = read->bytes_done;
    if (scene->row == NULL)
        return; /* it stays silent */
    scene->answer = (struct iovec){(void *)(uintptr_t)scene->row->answer, scene->row->bytes};
    scene->write.data = scene;
    if (scene->row->bytes == 0 ||
        muster_stream_submit(&scene->write, scene->guest, &scene->answer, 1, on_write) != MUSTER_OK)
        guest_leave(scene);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct scene *scene = listener->data;

    scene->guest = stream;
    scene->read.data = scene;
    assert_int_equal(muster_stream_receive_into(&scene->read, stream, scene->heard, 1,
                                                sizeof(scene->heard), on_read),
                     MUSTER_OK);
}

static void scene_open(struct scene *scene, const struct row *row)
{
    struct muster_address address;
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    scene->row = row;
    test_env_open(&scene->test);
    assert_int_equal(muster_net_system_open(&scene->test.env, &scene->net), MUSTER_OK);
    scene->test.env.net = scene->net;
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_listener_open(scene->net, &address, NULL, on_accept, scene,
                                          &scene->listener, &error),
                     MUSTER_OK);
    scene->probe.data = scene;
}

static void scene_close(struct scene *scene)
{
    guest_leave(scene);
    muster_listener_close(scene->listener, NULL);
    test_env_turn(&scene->test.env, 5);
    muster_net_system_close(scene->net);
    test_env_close(&scene->test);
}

static void scene_start(struct scene *scene, bool was_tls)
{
    struct muster_error why;

    (void)muster_error_set(&why, MUSTER_UNAVAILABLE, WHY);
    assert_int_equal(muster_dial_probe_start(&scene->probe, &scene->test.env,
                                             muster_listener_address(scene->listener), was_tls,
                                             &why, on_probe),
                     MUSTER_OK);
}

static void the_first_bytes_settle_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        const char *words = row->was_tls ? "the peer speaks plain text, and this side speaks TLS"
                                         : "the peer speaks TLS, and this side speaks plain text";
        struct scene scene;

        scene_open(&scene, row);
        scene_start(&scene, row->was_tls);
        test_env_run_until(&scene.test.env, test_env_is_true, &scene.is_done);

        if (scene.probe.error.rc != row->rc ||
            strcmp(scene.probe.error.text, row->rc == MUSTER_UNAVAILABLE ? WHY : words) != 0)
            fail_msg("%s: %s", row->name, scene.probe.error.text);
        assert_int_equal(scene.done_count, 1);
        scene_close(&scene);
    }
}

static bool has_heard(void *data)
{
    return ((struct scene *)data)->heard_bytes > 0;
}

static void the_hellos_are_complete_and_constant(void **state)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    struct scene scene;

    (void)state;
    scene_open(&scene, &rows[0]);
    scene_start(&scene, false);
    test_env_run_until(&scene.test.env, has_heard, &scene);
    assert_int_equal(scene.heard[0], 0x16);
    assert_int_equal(scene.heard_bytes, 5 + (scene.heard[3] << 8 | scene.heard[4]));
    assert_int_equal(scene.heard_bytes, 9 + (scene.heard[7] << 8 | scene.heard[8]));
    test_env_run_until(&scene.test.env, test_env_is_true, &scene.is_done);
    scene_close(&scene);

    scene_open(&scene, &rows[5]);
    scene_start(&scene, true);
    test_env_run_until(&scene.test.env, has_heard, &scene);
    assert_int_equal(scene.heard_bytes, sizeof(preface));
    assert_memory_equal(scene.heard, preface, sizeof(preface));
    test_env_run_until(&scene.test.env, test_env_is_true, &scene.is_done);
    scene_close(&scene);
}

static void a_cancelled_one_ends_once_with_what_was_known(void **state)
{
    struct scene scene;

    (void)state;
    for (unsigned is_connected = 0; is_connected < 2; is_connected++) {
        scene_open(&scene, NULL);
        scene_start(&scene, false);
        if (is_connected)
            test_env_run_until(&scene.test.env, has_heard, &scene);
        muster_dial_probe_cancel(&scene.probe);
        muster_dial_probe_cancel(&scene.probe);
        test_env_run_until(&scene.test.env, test_env_is_true, &scene.is_done);

        assert_string_equal(scene.probe.error.text, WHY);
        assert_int_equal(scene.done_count, 1);
        scene_close(&scene);
    }
}

static void nobody_there_changes_nothing(void **state)
{
    struct scene scene;
    struct muster_address nowhere;
    struct muster_error why;

    (void)state;
    scene_open(&scene, NULL);
    assert_int_equal(muster_address_parse("unix:/nowhere/socket", &nowhere, NULL), MUSTER_OK);
    (void)muster_error_set(&why, MUSTER_UNAVAILABLE, WHY);
    assert_int_equal(
        muster_dial_probe_start(&scene.probe, &scene.test.env, &nowhere, true, &why, on_probe),
        MUSTER_OK);
    test_env_run_until(&scene.test.env, test_env_is_true, &scene.is_done);

    assert_string_equal(scene.probe.error.text, WHY);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_bytes_settle_it),
        cmocka_unit_test(the_hellos_are_complete_and_constant),
        cmocka_unit_test(a_cancelled_one_ends_once_with_what_was_known),
        cmocka_unit_test(nobody_there_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
