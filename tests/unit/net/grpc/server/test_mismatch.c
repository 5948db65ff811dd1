/* The log lines about clients that disagree with a server about TLS, and how often. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include <muster/log.h>

#include "net/grpc/server/mismatch.h"
#include "virtual_loop.h"

#define MINUTE_NS (60 * MUSTER_NS_PER_S)

struct scene {
    struct virtual_loop loop;
    struct muster_env env;
    struct muster_log log;
    struct muster_rpc_mismatches mismatches;
    unsigned count;
    char event[32], peer[MUSTER_ADDRESS_TEXT_BYTES], client[16], server[16];
};

static void keep_field(const struct muster_field *field, const char *name, char *out, size_t room)
{
    if (strcmp(field->name, name) == 0)
        (void)snprintf(out, room, "%s", field->text);
}

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct scene *scene = MUSTER_CONTAINER_OF(log, struct scene, log);

    (void)level, (void)wall_ns;
    scene->count++;
    (void)snprintf(scene->event, sizeof(scene->event), "%s", event);
    for (size_t i = 0; i < count; i++) {
        keep_field(&fields[i], "peer", scene->peer, sizeof(scene->peer));
        keep_field(&fields[i], "client", scene->client, sizeof(scene->client));
        keep_field(&fields[i], "server", scene->server, sizeof(scene->server));
    }
}

static int set_up(void **state)
{
    static const struct muster_log_ops ops = {.write = on_log};
    static struct scene scene;

    memset(&scene, 0, sizeof(scene));
    virtual_loop_init(&scene.loop);
    scene.log = (struct muster_log){.ops = &ops, .level_max = MUSTER_LOG_WARN};
    scene.env.loop = &scene.loop.loop;
    scene.env.log = &scene.log;
    *state = &scene;
    return 0;
}

static void tell_mismatch(struct scene *scene, const char *peer, bool is_server_secured)
{
    struct muster_address address;

    assert_int_equal(muster_address_parse(peer, &address, NULL), MUSTER_OK);
    muster_rpc_mismatch_tell(&scene->mismatches, &scene->env, &address, is_server_secured);
}

static void both_values_and_the_client_are_named(void **state)
{
    struct scene *scene = *state;

    tell_mismatch(scene, "10.0.0.7:4711", true);
    assert_string_equal(scene->event, "client_speaks_plain_text");
    assert_string_equal(scene->peer, "10.0.0.7:4711");
    assert_string_equal(scene->client, "plain text");
    assert_string_equal(scene->server, "TLS");
    tell_mismatch(scene, "[fd00::7]:4711", false);

    assert_string_equal(scene->event, "client_speaks_tls");
    assert_string_equal(scene->peer, "[fd00::7]:4711");
    assert_string_equal(scene->client, "TLS");
    assert_string_equal(scene->server, "plain text");
}

static void a_host_is_told_of_once_a_minute(void **state)
{
    struct scene *scene = *state;

    tell_mismatch(scene, "10.0.0.7:4711", true);
    tell_mismatch(scene, "10.0.0.7:4712", true);
    assert_int_equal(scene->count, 1);
    tell_mismatch(scene, "10.0.0.8:4711", true);
    assert_int_equal(scene->count, 2);
    virtual_loop_advance(&scene->loop, MINUTE_NS);
    tell_mismatch(scene, "10.0.0.7:4713", true);

    assert_int_equal(scene->count, 3);
}

static void many_hosts_do_not_fill_the_log(void **state)
{
    struct scene *scene = *state;
    char peer[MUSTER_ADDRESS_TEXT_BYTES];

    for (unsigned i = 0; i < 200; i++) {
        (void)snprintf(peer, sizeof(peer), "10.0.0.%u:1", i);
        tell_mismatch(scene, peer, false);
    }
    assert_int_equal(scene->count, MUSTER_RPC_MISMATCHES_MAX);
    virtual_loop_advance(&scene->loop, MINUTE_NS);
    tell_mismatch(scene, "10.0.0.199:1", false);

    assert_int_equal(scene->count, MUSTER_RPC_MISMATCHES_MAX + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(both_values_and_the_client_are_named, set_up),
        cmocka_unit_test_setup(a_host_is_told_of_once_a_minute, set_up),
        cmocka_unit_test_setup(many_hosts_do_not_fill_the_log, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
