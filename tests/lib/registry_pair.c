/* A registry client and the embedded registry on one loop, or the etcd cluster that
 * MUSTER_TEST_REGISTRY names. */
#include "registry_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPT_NS (100 * MUSTER_NS_PER_MS) /* enough for one that is refused, mostly */

struct muster_bytes registry_pair_bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static void on_server_closed(struct muster_registry_server *server)
{
    struct registry_pair *f = muster_registry_server_data(server);

    f->is_closed = true;
}

void registry_pair_start_server(struct registry_pair *f, const char *listen)
{
    struct muster_registry_server_options options = {.listen = listen};
    struct muster_error error;

    if (muster_registry_server_open(f->env, f->store, &options, &f->server, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_registry_server_set_data(f->server, f);
    muster_address_format(muster_registry_server_address(f->server), f->endpoints);
}

void registry_pair_stop_server(struct registry_pair *f)
{
    f->is_closed = false;
    muster_registry_server_close(f->server, muster_loop_now_ns(f->env->loop), on_server_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
    f->server = NULL;
}

void registry_pair_open_store(struct registry_pair *f)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;

    assert_int_equal(muster_registry_store_open(f->env->mem, &options, &f->store, &error),
                     MUSTER_OK);
}

void registry_pair_on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct registry_pair *f = op->data;

    f->rc = rc;
    f->is_done = true;
    f->is_succeeded = op->is_succeeded;
    f->revision = op->revision;
    f->count = op->count;
    f->kv_count = op->kv_count;
    f->text[0] = '\0';
    for (size_t i = 0; i < op->kv_count; i++) {
        size_t used = strlen(f->text);

        (void)snprintf(f->text + used, sizeof(f->text) - used, "%.*s=%.*s;",
                       (int)op->kvs[i].key.size, (const char *)op->kvs[i].key.data,
                       (int)op->kvs[i].value.size, (const char *)op->kvs[i].value.data);
    }
}

uint64_t registry_pair_soon(struct registry_pair *f)
{
    return muster_loop_after_ns(f->env->loop, DEADLINE_NS);
}

enum muster_rc registry_pair_finish_op(struct registry_pair *f, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &f->is_done);
    f->is_done = false;
    return f->rc;
}

enum muster_rc registry_pair_put(struct registry_pair *f, const char *key, const char *value)
{
    return REGISTRY_PAIR_RUN(f, put, registry_pair_bytes_of(key), registry_pair_bytes_of(value), 0);
}

enum muster_rc registry_pair_put_nowhere(struct registry_pair *f, const char *key)
{
    enum muster_rc rc = MUSTER_DEADLINE_EXCEEDED;

    for (uint64_t within_ns = ATTEMPT_NS; rc == MUSTER_DEADLINE_EXCEEDED && within_ns < DEADLINE_NS;
         within_ns *= 4)
        rc = registry_pair_finish_op(
            f, muster_registry_put_start(
                   &f->op, f->registry, registry_pair_bytes_of(key), registry_pair_bytes_of("1"), 0,
                   muster_loop_after_ns(f->env->loop, within_ns), registry_pair_on_op));
    return rc;
}

enum muster_rc registry_pair_range(struct registry_pair *f, const char *key,
                                   enum muster_registry_reach reach)
{
    struct muster_registry_range wanted = {.key = registry_pair_bytes_of(key), .reach = reach};

    return REGISTRY_PAIR_RUN(f, range, &wanted);
}

void registry_pair_wait_for_keys(struct registry_pair *f, const char *prefix, uint64_t count)
{
    do
        assert_int_equal(registry_pair_range(f, prefix, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    while (f->count != count);
}

enum muster_rc registry_pair_remove_keys(struct registry_pair *f, const char *key,
                                         enum muster_registry_reach reach)
{
    return REGISTRY_PAIR_RUN(f, delete, registry_pair_bytes_of(key), reach);
}

void registry_pair_open_client(struct registry_pair *f, const char *endpoints)
{
    struct muster_registry_options options = {.endpoints = endpoints};
    struct muster_error error;

    if (muster_registry_open(f->env, &options, &f->registry, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_registry_set_data(f->registry, f);
}

static void on_client_closed(struct muster_registry *registry)
{
    struct registry_pair *f = muster_registry_data(registry);

    f->is_closed = true;
}

void registry_pair_close_client(struct registry_pair *f)
{
    f->is_closed = false;
    muster_registry_close(f->registry, on_client_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
    f->registry = NULL;
}

void registry_pair_open(struct registry_pair *f)
{
    struct muster_address own;

    memset(f, 0, sizeof(*f));
    test_env_open(&f->test);
    f->env = &f->test.env;
    f->op.data = f;
    f->outside = muster_vars_get(f->env->vars, "MUSTER_TEST_REGISTRY");
    assert_int_equal(muster_net_system_open(f->env, &f->env->net), MUSTER_OK);
    if (f->outside == NULL) {
        registry_pair_open_store(f);
        held_ports_take(&f->ports, &own);
        registry_pair_start_server(f, muster_address_format(&own, f->endpoints));
    }
    registry_pair_open_client(f, f->outside != NULL ? f->outside : f->endpoints);
    assert_int_equal(registry_pair_remove_keys(f, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
}

void registry_pair_close(struct registry_pair *f)
{
    registry_pair_close_client(f);
    if (f->server != NULL)
        registry_pair_stop_server(f);
    test_env_turn(f->env, 4);
    muster_registry_store_close(f->store);
    held_ports_release(&f->ports);
    muster_net_system_close(f->env->net);
    test_env_close(&f->test);
}
