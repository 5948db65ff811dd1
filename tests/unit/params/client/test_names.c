/* Servers that are given by name: looked up at every attempt, all addresses in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_calls.h"
#include "params_stand.h"

#include <stdio.h>
#include <string.h>

#define SHARDS 8u

/* The system's network with a name server of its own. */
struct names {
    struct muster_net net;
    struct muster_net *inner;
    struct muster_loop *loop;
    const char *addresses[3]; /* of every name, once unknown_count look-ups have failed; NULL: no more */
    unsigned unknown_count;
    bool is_silent;
    unsigned lookup_count;
    struct muster_lookup *open;
    struct muster_task answer;
};

struct scene {
    struct params_stand stand;
    struct names names;
    struct params_outcome opened;
    struct muster_params *params;
};

static enum muster_rc names_connect(struct muster_net *net, struct muster_connect *connect,
                                    const struct muster_stream_options *options,
                                    uint64_t deadline_ns)
{
    struct muster_net *inner = MUSTER_CONTAINER_OF(net, struct names, net)->inner;

    return inner->ops->connect(inner, connect, options, deadline_ns);
}

static void names_connect_cancel(struct muster_net *net, struct muster_connect *connect)
{
    struct muster_net *inner = MUSTER_CONTAINER_OF(net, struct names, net)->inner;

    inner->ops->connect_cancel(inner, connect);
}

static void on_answer(struct muster_task *task)
{
    struct names *names = task->data;
    struct muster_lookup *lookup = names->open;
    enum muster_rc rc = MUSTER_OK;

    names->open = NULL;
    if (lookup->is_cancelled)
        rc = muster_error_set(&lookup->error, MUSTER_CANCELLED, "cancelled");
    else if (names->lookup_count <= names->unknown_count)
        rc = muster_error_set(&lookup->error, MUSTER_NOT_FOUND, "no such name");
    for (uint32_t i = 0; rc == MUSTER_OK && i < 3 && names->addresses[i] != NULL; i++) {
        struct muster_address *address = &lookup->addresses[lookup->address_count++];
        char text[MUSTER_ADDRESS_TEXT_BYTES];

        snprintf(text, sizeof(text), "%s:%u", names->addresses[i], lookup->port);
        assert_int_equal(muster_address_parse(text, address, NULL), MUSTER_OK);
    }
    lookup->done(lookup, rc);
}

static enum muster_rc names_lookup(struct muster_net *net, struct muster_lookup *lookup,
                                   const char *host, uint64_t deadline_ns)
{
    struct names *names = MUSTER_CONTAINER_OF(net, struct names, net);

    (void)host, (void)deadline_ns;
    names->lookup_count++;
    names->open = lookup;
    if (!names->is_silent)
        muster_task_post(&names->answer, names->loop);
    return MUSTER_OK;
}

static void names_lookup_cancel(struct muster_net *net, struct muster_lookup *lookup)
{
    struct names *names = MUSTER_CONTAINER_OF(net, struct names, net);

    lookup->is_cancelled = true;
    muster_task_post(&names->answer, names->loop);
}

static const struct muster_net_ops ops = {.connect = names_connect,
                                          .connect_cancel = names_connect_cancel,
                                          .lookup = names_lookup,
                                          .lookup_cancel = names_lookup_cancel};

static void scene_open(struct scene *scene)
{
    struct muster_env *env;

    memset(scene, 0, sizeof(*scene));
    params_stand_open(&scene->stand, SHARDS);
    env = &scene->stand.test.env;
    scene->names = (struct names){
        .net.ops = &ops, .inner = env->net, .loop = env->loop, .addresses = {"127.0.0.1"}};
    muster_task_init(&scene->names.answer, on_answer, &scene->names);
    env->net = &scene->names.net;
}

static void scene_close(struct scene *scene)
{
    scene->stand.test.env.net = scene->names.inner;
    params_stand_close(&scene->stand);
}

static void client_open(struct scene *scene, const char *host, uint64_t wait_ns)
{
    struct muster_env *env = &scene->stand.test.env;
    struct muster_params_options options = {.job = "test", .no_host_memory = true};
    struct muster_error error;
    char server[MUSTER_HOST_TEXT_BYTES + 8];

    snprintf(server, sizeof(server), "%s:%u", host, scene->stand.port);
    options.server = server;
    options.data = &scene->opened;
    options.connect_deadline_ns = muster_loop_after_ns(env->loop, wait_ns);
    if (muster_params_open(env, &options, params_on_client, &scene->params, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static void client_close(struct scene *scene)
{
    scene->opened.is_done = false;
    muster_params_close(scene->params, params_stand_deadline(&scene->stand), params_on_client);
    (void)params_outcome_await(&scene->stand.test.env, &scene->opened);
}

static void assert_pushes(struct scene *scene)
{
    struct muster_params_table *table =
        params_stand_table(&scene->stand, scene->params, &params_counters);
    const uint64_t key = 5;
    float value = 1;

    assert_int_equal(params_stand_push(&scene->stand, table, &key, &value, 1, NULL), MUSTER_OK);
}

static void a_name_is_looked_up(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    client_open(&scene, "params.example", 60 * MUSTER_NS_PER_S);

    assert_int_equal(params_outcome_await(&scene.stand.test.env, &scene.opened), MUSTER_OK);
    assert_int_equal(scene.names.lookup_count, 1);
    assert_pushes(&scene);
    client_close(&scene);
    scene_close(&scene);
}

static void a_server_that_is_alone_is_looked_up_again_when_it_has_died(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    client_open(&scene, "params.example", 60 * MUSTER_NS_PER_S);
    assert_int_equal(params_outcome_await(&scene.stand.test.env, &scene.opened), MUSTER_OK);
    params_stand_kill(&scene.stand);
    scene.stand.test.env.net = scene.names.inner;
    params_stand_serve(&scene.stand);
    scene.stand.test.env.net = &scene.names.net;

    assert_pushes(&scene);
    assert_true(scene.names.lookup_count > 1);
    client_close(&scene);
    scene_close(&scene);
}

/* 127.0.0.3 and ::1 refuse connections: the server listens at 127.0.0.1 alone. */
static void the_addresses_of_a_name_are_tried_in_turn(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    scene.names.addresses[0] = "[::1]";
    scene.names.addresses[1] = "127.0.0.3";
    scene.names.addresses[2] = "127.0.0.1";
    client_open(&scene, "params.example", 60 * MUSTER_NS_PER_S);

    assert_int_equal(params_outcome_await(&scene.stand.test.env, &scene.opened), MUSTER_OK);
    assert_int_equal(scene.names.lookup_count, 1);
    assert_pushes(&scene);
    client_close(&scene);
    scene_close(&scene);
}

static void a_name_that_is_not_known_yet_is_asked_for_again(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    scene.names.unknown_count = 2;
    client_open(&scene, "params.example", 60 * MUSTER_NS_PER_S);
    test_env_run_until(&scene.stand.test.env, params_has_error, scene.params);
    assert_non_null(strstr(muster_params_error(scene.params)->text, "params.example"));
    assert_non_null(strstr(muster_params_error(scene.params)->text, "no such name"));

    assert_int_equal(params_outcome_await(&scene.stand.test.env, &scene.opened), MUSTER_OK);
    assert_int_equal(scene.names.lookup_count, 3);
    client_close(&scene);
    scene_close(&scene);
}

static void a_client_ends_amid_a_look_up(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    scene.names.is_silent = true;
    client_open(&scene, "params.example", 60 * MUSTER_NS_PER_S);
    assert_non_null(scene.names.open);

    client_close(&scene);
    test_env_turn(&scene.stand.test.env, 4);
    assert_null(scene.names.open);
    scene_close(&scene);
}

static void texts_that_do_not_name_a_place_are_refused(void **state)
{
    char text[MUSTER_HOST_TEXT_BYTES + 16];
    const char *const texts[] = {"params.example", "params.example:", ":7300:", "a b:1",
                                 "127.0.0.1:7300,", text};
    struct muster_params *params;
    struct muster_error error;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    memset(text, 'a', sizeof(text));
    memcpy(text + sizeof(text) - 4, ":73", 4);
    for (uint32_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const struct muster_params_options options = {.server = texts[i]};

        error.text[0] = '\0';
        assert_int_equal(muster_params_open(&scene.stand.test.env, &options, params_on_client,
                                            &params, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_int_not_equal(error.text[0], '\0');
    }
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_looked_up),
        cmocka_unit_test(a_server_that_is_alone_is_looked_up_again_when_it_has_died),
        cmocka_unit_test(the_addresses_of_a_name_are_tried_in_turn),
        cmocka_unit_test(a_name_that_is_not_known_yet_is_asked_for_again),
        cmocka_unit_test(a_client_ends_amid_a_look_up),
        cmocka_unit_test(texts_that_do_not_name_a_place_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
