/* kill -9 of the registry's process amid puts: no acknowledged write is lost, watches and leases go
 * on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_env.h"

#include <muster/registry.h>
#include <muster/registry_server.h>
#include <muster/stream.h>

#define SLOTS      16
#define ROUNDS     4
#define VALUES_MAX 20000
#define PREFIX     "/kill/"

struct world;

/* One key, written one value after the other. */
struct slot {
    struct world *world;
    struct muster_registry_op op;
    char key[32];
    unsigned attempted; /* last value sent */
    unsigned acked;     /* last value acknowledged */
    unsigned seen;      /* last value that the watch has shown */
    bool *is_acked;     /* by value */
    bool *is_seen;
};

struct world {
    struct test_env test;
    struct muster_env *env;
    char folder[64];
    char path[96];
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    pid_t server;
    struct muster_registry *registry;
    struct muster_registry_watch watch;
    struct muster_registry_lease lease;
    struct slot slots[SLOTS];
    size_t open; /* puts under way */
    uint64_t acks;
    uint64_t acks_wanted;
    bool is_enough;
    bool is_stopping;
    bool is_quiet; /* stopping, nothing under way */
    bool is_caught_up;
    bool is_granted;
    bool is_done;
    bool is_lost;
    bool has_ended;
    unsigned stored_value; /* of the last range */
    uint64_t stored_version;
};

/* The server's process. */

static void serve_puts(struct world *world, int fd)
{
    struct muster_env *env = NULL;
    struct muster_registry_store_options store_options = {.path = world->path};
    struct muster_registry_server_options options = {
        .listen = world->address[0] != '\0' ? world->address : "127.0.0.1:0"};
    struct muster_registry_store *store = NULL;
    struct muster_registry_server *server = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    char text[MUSTER_ADDRESS_TEXT_BYTES] = "";

    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_registry_store_open(env->mem, &store_options, &store, &error) != MUSTER_OK ||
        muster_registry_server_open(env, store, &options, &server, &error) != MUSTER_OK) {
        fprintf(stderr, "server: %s\n", error.text);
        _exit(1);
    }
    muster_address_format(muster_registry_server_address(server), text);
    if (write(fd, text, sizeof(text)) != (ssize_t)sizeof(text))
        _exit(1);
    for (;;)
        muster_loop_turn(env->loop, UINT64_MAX);
}

static void start_server(struct world *world)
{
    int fds[2];
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    assert_int_equal(pipe(fds), 0);
    world->server = fork();
    assert_true(world->server >= 0);
    if (world->server == 0) {
        close(fds[0]);
        serve_puts(world, fds[1]);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], text, sizeof(text)), sizeof(text));
    close(fds[0]);
    memcpy(world->address, text, sizeof(text));
}

static void kill_server(struct world *world)
{
    assert_int_equal(kill(world->server, SIGKILL), 0);
    assert_int_equal(waitpid(world->server, NULL, 0), world->server);
}

/* The client. */

static void put_next(struct slot *slot);

static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct slot *slot = op->data;
    struct world *world = slot->world;

    world->open--;
    if (rc == MUSTER_OK) {
        slot->acked = slot->attempted;
        slot->is_acked[slot->attempted] = true;
        world->acks++;
        world->is_enough = world->acks >= world->acks_wanted;
    } else {
        assert_true(muster_registry_is_unknown(rc));
    }
    if (!world->is_stopping)
        put_next(slot);
    world->is_quiet = world->is_stopping && world->open == 0;
}

static void put_next(struct slot *slot)
{
    struct world *world = slot->world;
    char value[16];

    assert_true(slot->attempted + 1 < VALUES_MAX);
    (void)snprintf(value, sizeof(value), "%u", ++slot->attempted);
    assert_int_equal(muster_registry_put_start(
                         &slot->op, world->registry,
                         (struct muster_bytes){.data = slot->key, .size = strlen(slot->key)},
                         (struct muster_bytes){.data = value, .size = strlen(value)}, 0,
                         muster_loop_after_ns(world->env->loop, 30 * MUSTER_NS_PER_S), on_put),
                     MUSTER_OK);
    world->open++;
}

static unsigned number_of(struct muster_bytes bytes)
{
    char text[16] = "";

    assert_true(bytes.size < sizeof(text));
    memcpy(text, bytes.data, bytes.size);
    return (unsigned)strtoul(text, NULL, 10);
}

static bool all_are_shown(const struct world *world)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (world->slots[i].seen < world->slots[i].acked)
            return false;
    }
    return true;
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct world *world = watch->data;

    for (size_t i = 0; i < count; i++) {
        struct slot *slot = NULL;
        unsigned value = number_of(changes[i].kv.value);

        for (size_t k = 0; k < SLOTS; k++) {
            if (strlen(world->slots[k].key) == changes[i].kv.key.size &&
                memcmp(world->slots[k].key, changes[i].kv.key.data, changes[i].kv.key.size) == 0)
                slot = &world->slots[k];
        }
        assert_non_null(slot);
        assert_true(value > slot->seen); /* in order, none twice */
        slot->seen = value;
        slot->is_seen[value] = true;
    }
    world->is_caught_up = all_are_shown(world);
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct world *world = watch->data;

    (void)rc;
    world->has_ended = true;
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct world *world = lease->data;

    assert_int_equal(rc, MUSTER_OK);
    world->is_granted = true;
}

static void on_lost(struct muster_registry_lease *lease)
{
    struct world *world = lease->data;

    world->is_lost = true;
}

static void on_done(struct muster_registry_op *op, enum muster_rc rc)
{
    struct world *world = op->data;

    assert_int_equal(rc, MUSTER_OK);
    if (op->kv_count == 1) {
        world->stored_value = number_of(op->kvs[0].value);
        world->stored_version = op->kvs[0].version;
    }
    world->is_done = true;
}

static void wait_op(struct world *world, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    test_env_run_until(world->env, test_env_is_true, &world->is_done);
    world->is_done = false;
}

static uint64_t deadline_soon(struct world *world)
{
    return muster_loop_after_ns(world->env->loop, 30 * MUSTER_NS_PER_S);
}

static void open_client(struct world *world)
{
    struct muster_registry_options options = {.endpoints = world->address,
                                              .backoff_base_ns = MUSTER_NS_PER_MS,
                                              .backoff_max_ns = 20 * MUSTER_NS_PER_MS};
    struct muster_registry_op op = {.data = world};
    struct muster_error error;

    assert_int_equal(muster_registry_open(world->env, &options, &world->registry, &error),
                     MUSTER_OK);
    world->lease.data = world;
    world->watch.data = world;
    assert_int_equal(muster_registry_lease_start(&world->lease, world->registry, 60,
                                                 deadline_soon(world), on_granted, on_lost),
                     MUSTER_OK);
    test_env_run_until(world->env, test_env_is_true, &world->is_granted);
    wait_op(world, muster_registry_put_start(&op, world->registry,
                                             (struct muster_bytes){.data = "/leased", .size = 7},
                                             (struct muster_bytes){.data = "1", .size = 1},
                                             world->lease.id, deadline_soon(world), on_done));
    assert_int_equal(
        muster_registry_watch_start(&world->watch, world->registry,
                                    (struct muster_bytes){.data = PREFIX, .size = strlen(PREFIX)},
                                    MUSTER_REGISTRY_PREFIX, 1, on_changes, on_watch_end),
        MUSTER_OK);
}

static void on_closed(struct muster_registry *registry)
{
    *(bool *)muster_registry_data(registry) = true;
}

static void open_world(struct world *world)
{
    memset(world, 0, sizeof(*world));
    test_env_open(&world->test);
    world->env = &world->test.env;
    assert_int_equal(muster_net_system_open(world->env, &world->env->net), MUSTER_OK);
    (void)snprintf(world->folder, sizeof(world->folder), "/tmp/registry_kill.XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    (void)snprintf(world->path, sizeof(world->path), "%s/registry.db", world->folder);
    for (size_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &world->slots[i];

        slot->world = world;
        slot->op.data = slot;
        (void)snprintf(slot->key, sizeof(slot->key), PREFIX "%zu", i);
        slot->is_acked = test_calloc(VALUES_MAX, sizeof(bool));
        slot->is_seen = test_calloc(VALUES_MAX, sizeof(bool));
    }
    start_server(world);
    open_client(world);
}

static void close_world(struct world *world)
{
    char wal[128];
    bool is_closed = false;

    muster_registry_set_data(world->registry, &is_closed);
    muster_registry_close(world->registry, on_closed);
    test_env_run_until(world->env, test_env_is_true, &is_closed);
    kill_server(world);
    muster_net_system_close(world->env->net);
    test_env_close(&world->test);
    for (size_t i = 0; i < SLOTS; i++) {
        test_free(world->slots[i].is_acked);
        test_free(world->slots[i].is_seen);
    }
    (void)snprintf(wal, sizeof(wal), "%s-wal", world->path);
    (void)unlink(wal);
    (void)unlink(world->path);
    (void)rmdir(world->folder);
}

/* The stored value of a key is the last acknowledged one, or one sent after it whose answer was
 * lost. */
static void check_key(struct world *world, struct slot *slot)
{
    struct muster_registry_range range = {.key = {.data = slot->key, .size = strlen(slot->key)}};
    struct muster_registry_op op = {.data = world};
    bool is_shown = true;
    uint64_t acks = 0;

    wait_op(world, muster_registry_range_start(&op, world->registry, &range, deadline_soon(world),
                                               on_done));
    assert_int_equal(op.count, 1);
    for (unsigned value = 1; value <= slot->attempted; value++) {
        is_shown &= !slot->is_acked[value] || slot->is_seen[value];
        acks += slot->is_acked[value];
    }
    assert_true(is_shown);
    assert_in_range(world->stored_value, slot->acked, slot->attempted);
    assert_true(world->stored_version >= acks); /* none of them was ever undone */
}

static void no_acknowledged_write_is_lost_to_kill_9(void **state)
{
    static struct world world;
    struct muster_registry_op op = {.data = &world};

    (void)state;
    open_world(&world);
    for (size_t i = 0; i < SLOTS; i++)
        put_next(&world.slots[i]);

    for (int round = 0; round < ROUNDS; round++) {
        world.acks_wanted = world.acks + 50 + muster_rng_below(world.env->rng, 200);
        world.is_enough = false;
        test_env_run_until(world.env, test_env_is_true, &world.is_enough);
        kill_server(&world);
        start_server(&world);
    }
    world.is_stopping = true;
    test_env_run_until(world.env, test_env_is_true, &world.is_quiet);
    world.is_caught_up = all_are_shown(&world);
    test_env_run_until(world.env, test_env_is_true, &world.is_caught_up);

    for (size_t i = 0; i < SLOTS; i++)
        check_key(&world, &world.slots[i]);
    wait_op(&world, muster_registry_time_to_live_start(&op, world.registry, world.lease.id,
                                                       deadline_soon(&world), on_done));
    assert_false(world.is_lost);
    assert_false(world.has_ended);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_acknowledged_write_is_lost_to_kill_9),
    };

    return cmocka_run_group_tests_name("registry_kill", tests, NULL, NULL);
}
