/* A node whose registry refuses some of its calls: what it asks again, and when it gives up. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>

#include <muster/rpc.h>

#include "cluster/node/node_internal.h"
#include "cluster/registry/server_internal.h"

#define KV    "/etcdserverpb.KV/"
#define LEASE "/etcdserverpb.Lease/"

/* The answers of the registry to calls of one method, from the first on. */
struct refusal {
    const char *method;
    unsigned count;
    enum muster_rc rc;
    const char *text;
};

struct scene {
    struct node_stand stand;
    struct muster_rpc_server *rpc_server;
    struct muster_interceptor interceptor;
    bool is_armed; /* calls are those of the node */
    struct refusal refusals[2];
    bool is_watch_blind; /* a swap is told by its answer alone */
    unsigned grants, puts, swaps, ranges, revokes;
    bool is_rpc_closed;
};

static struct scene scene; /* of the case that runs */

static void note_call(const char *method)
{
    const struct {
        const char *method;
        unsigned *count;
    } rows[] = {{LEASE "LeaseGrant", &scene.grants},
                {LEASE "LeaseRevoke", &scene.revokes},
                {KV "Put", &scene.puts},
                {KV "Range", &scene.ranges},
                {KV "Txn", &scene.swaps}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        *rows[i].count += strcmp(method, rows[i].method) == 0;
}

static void blind_watches(const struct muster_registry_server *server)
{
    for (struct muster_list *at = server->hub.streams.next; at != &server->hub.streams;
         at = at->next)
        MUSTER_CONTAINER_OF(at, struct muster_watch_stream, node)->is_blocked = true;
}

static enum muster_rc on_start(struct muster_intercepted *call, struct muster_error *ret_error)
{
    if (!scene.is_armed)
        return MUSTER_OK;
    note_call(call->method);
    if (scene.is_watch_blind && strcmp(call->method, KV "Txn") == 0)
        blind_watches(scene.stand.pair.server);
    for (size_t i = 0; i < 2; i++) {
        struct refusal *refusal = &scene.refusals[i];

        if (refusal->count == 0 || strcmp(call->method, refusal->method) != 0)
            continue;
        refusal->count--;
        return muster_error_set(ret_error, refusal->rc, "%s", refusal->text);
    }
    return MUSTER_OK;
}

/* The stand's registry, behind an rpc server that looks at each call. */
static void scene_open(void)
{
    struct registry_pair *f = &scene.stand.pair;
    const struct muster_interceptor *interceptor = &scene.interceptor;
    const struct muster_rpc_server_options rpc = {.interceptors = &interceptor,
                                                  .interceptor_count = 1};
    struct muster_registry_server_options options = {.listen = NULL};
    struct muster_address any, bound;

    memset(&scene, 0, sizeof(scene));
    scene.interceptor = (struct muster_interceptor){.data = &scene, .on_start = on_start};
    node_stand_open(&scene.stand);
    registry_pair_close_client(f);
    registry_pair_stop_server(f);
    assert_int_equal(muster_rpc_server_open(f->env, &rpc, &scene.rpc_server), MUSTER_OK);
    muster_rpc_server_set_data(scene.rpc_server, &scene);
    options.rpc_server = scene.rpc_server;
    assert_int_equal(muster_registry_server_open(f->env, f->store, &options, &f->server, NULL),
                     MUSTER_OK);
    muster_registry_server_set_data(f->server, f);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(scene.rpc_server, &any, &bound, NULL), MUSTER_OK);
    muster_address_format(&bound, f->endpoints);
    registry_pair_open_client(f, f->endpoints);
}

static void on_rpc_closed(struct muster_rpc_server *server)
{
    ((struct scene *)muster_rpc_server_data(server))->is_rpc_closed = true;
}

static void close_node(void)
{
    node_stand_close_node(&scene.stand);
    scene.is_armed = false;
}

static void scene_close(void)
{
    muster_rpc_server_close(scene.rpc_server, 0, on_rpc_closed);
    test_env_run_until(scene.stand.pair.env, test_env_is_true, &scene.is_rpc_closed);
    node_stand_close(&scene.stand);
}

static void open_node(void)
{
    scene.is_armed = true;
    node_stand_open_node(&scene.stand);
    node_stand_wait(&scene.stand);
}

/* --- Cases --- */

#define NO_LEASE  "etcdserver: requested lease not found"
#define FORBIDDEN "etcdserver: permission denied"

/* The refusals come last: which method, how often, by which code. */
#define ROW(name_, told_, grants_, puts_, swaps_, ranges_, ...)                                    \
    {                                                                                              \
        name_, {__VA_ARGS__}, grants_, puts_, swaps_, ranges_, told_                               \
    }

static void what_the_registry_refuses_is_asked_again_or_ends_it(void **state)
{
    static const struct {
        const char *name;
        struct refusal refusals[2];
        unsigned grants, puts, swaps, ranges; /* at least */
        const char *told;
    } rows[] = {
        ROW("nothing", "view:1 ", 1, 1, 1, 1, {NULL, 0, 0, NULL}),
        ROW("no lease", "view:1 ", 3, 1, 1, 1, {LEASE "LeaseGrant", 2, MUSTER_INTERNAL, "no"}),
        ROW("the lease is gone", "view:1 ", 2, 2, 1, 1, {KV "Put", 1, MUSTER_NOT_FOUND, NO_LEASE}),
        ROW("no key", "view:1 ", 1, 3, 1, 1, {KV "Put", 2, MUSTER_INTERNAL, "no"}),
        ROW("no look", "view:1 ", 1, 1, 1, 3, {KV "Range", 2, MUSTER_INTERNAL, "no"}),
        ROW("no swap", "view:1 ", 1, 1, 2, 2, {KV "Txn", 1, MUSTER_UNAVAILABLE, "no"}),
        ROW("no answer, no look behind it", "view:1 ", 1, 1, 2, 3,
            {KV "Txn", 1, MUSTER_UNAVAILABLE, "no"}, {KV "Range", 1, MUSTER_INTERNAL, "no"}),
        ROW("a lease is forbidden", "failed:7 ", 1, 0, 0, 0,
            {LEASE "LeaseGrant", 9, MUSTER_PERMISSION_DENIED, FORBIDDEN}),
        ROW("who it is is not known", "failed:16 ", 1, 0, 0, 0,
            {LEASE "LeaseGrant", 9, MUSTER_UNAUTHENTICATED, "who?"}),
        ROW("a key is forbidden", "failed:7 ", 1, 1, 0, 0,
            {KV "Put", 9, MUSTER_PERMISSION_DENIED, FORBIDDEN}),
        ROW("a look is forbidden", "failed:7 ", 0, 0, 0, 1,
            {KV "Range", 9, MUSTER_PERMISSION_DENIED, FORBIDDEN}),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[240];

        scene_open();
        memcpy(scene.refusals, rows[i].refusals, sizeof(scene.refusals));
        open_node();

        if (strcmp(scene.stand.told, rows[i].told) != 0 ||
            (rows[i].told[0] == 'v' && scene.grants != rows[i].grants) ||
            (rows[i].told[0] == 'v' && scene.puts != rows[i].puts) ||
            (rows[i].told[0] == 'v' && scene.swaps != rows[i].swaps) ||
            scene.grants < rows[i].grants || scene.puts < rows[i].puts ||
            scene.swaps < rows[i].swaps || scene.ranges < rows[i].ranges)
            fail_msg("%s: '%s', %u grants, %u puts, %u swaps, %u ranges", rows[i].name,
                     scene.stand.told, scene.grants, scene.puts, scene.swaps, scene.ranges);
        if (rows[i].told[0] == 'f') {
            (void)snprintf(text, sizeof(text),
                           "the registry at %s does not let this process in: %s",
                           scene.stand.pair.endpoints, rows[i].refusals[0].text);
            assert_string_equal(scene.stand.error.text, text);
        }
        close_node();
        scene_close();
    }
}

static bool has_put_twice(void *data)
{
    (void)data;
    return scene.puts == 2;
}

static void *refuse_memory(struct muster_mem *mem, void *ptr, size_t bytes)
{
    (void)mem;
    (void)ptr;
    (void)bytes;
    return NULL;
}

static void a_key_that_finds_no_memory_is_put_later(void **state)
{
    static const struct muster_mem_ops no_ops = {refuse_memory};
    struct muster_mem none = {&no_ops}, *mem;
    struct muster_node *node;

    (void)state;
    for (unsigned is_lasting = 0; is_lasting < 2; is_lasting++) {
        scene_open();
        open_node();
        node = scene.stand.node;
        assert_int_equal(scene.puts, 1);
        mem = node->env->mem;
        if (is_lasting != 0)
            node->env->mem = &none;
        else
            scene.stand.pair.test.mem.fail_at = 1; /* the record; the put would find memory */
        muster_node_register(node);
        node->env->mem = mem;
        assert_int_equal(scene.stand.pair.test.mem.fail_at, 0);
        assert_int_equal(node->registry.registration, NODE_REGISTRATION_WAITS);
        test_env_run_until(node->env, has_put_twice, NULL);

        close_node();
        scene_close();
    }
}

static bool is_registered(void *data)
{
    return ((struct muster_node *)data)->registry.registration == NODE_REGISTERED;
}

/* A second request would reuse the first one's memory. */
static void a_key_that_is_on_its_way_is_not_put_twice(void **state)
{
    struct muster_node *node;

    (void)state;
    scene_open();
    open_node();
    node = scene.stand.node;
    muster_node_register(node);
    muster_node_register(node);
    assert_false(is_registered(node));
    test_env_run_until(node->env, is_registered, node);

    assert_int_equal(scene.puts, 2);
    close_node();
}

/* A refusal of a member may be lifted again: it trains on. */
static void a_member_is_not_ended_by_a_refusal(void **state)
{
    struct registry_pair *f = &scene.stand.pair;

    (void)state;
    scene_open();
    open_node();
    assert_string_equal(scene.stand.told, "view:1 ");
    scene.refusals[0] =
        (struct refusal){LEASE "LeaseGrant", 2, MUSTER_PERMISSION_DENIED, FORBIDDEN};
    assert_int_equal(
        registry_pair_finish_op(f, muster_registry_revoke_start(
                                       &f->op, f->registry, scene.stand.node->registry.lease.id,
                                       registry_pair_soon(f), registry_pair_on_op)),
        MUSTER_OK);
    registry_pair_wait_for_keys(f, NODE_STAND_FOLDER "members/", 1);

    assert_int_equal(scene.grants, 4);
    assert_string_equal(scene.stand.told, "view:1 ");
    close_node();
}

static void the_answer_of_a_swap_is_enough(void **state)
{
    (void)state;
    scene_open();
    scene.is_watch_blind = true;
    open_node();

    assert_string_equal(scene.stand.told, "view:1 ");
    assert_int_equal(scene.swaps, 1);
    close_node();
}

/* With its lease goes its key, whatever the registry answers. */
static void its_lease_is_given_back_when_it_closes(void **state)
{
    static const struct {
        struct refusal refusal;
        uint64_t keys;
    } rows[] = {
        {{NULL, 0, 0, NULL}, 0},
        {{LEASE "LeaseRevoke", 1, MUSTER_NOT_FOUND, NO_LEASE}, 1},
        {{LEASE "LeaseRevoke", 1, MUSTER_INTERNAL, "no"}, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_open();
        open_node();
        scene.refusals[0] = rows[i].refusal;
        close_node();

        assert_int_equal(scene.revokes, 1);
        assert_int_equal(registry_pair_range(&scene.stand.pair, NODE_STAND_FOLDER "members/",
                                             MUSTER_REGISTRY_PREFIX),
                         MUSTER_OK);
        assert_int_equal(scene.stand.pair.kv_count, rows[i].keys);
        scene_close();
    }
}

static bool is_waiting(void *data)
{
    (void)data;
    return scene.grants > 0 && scene.stand.node->registry.registration == NODE_REGISTRATION_WAITS;
}

static void what_waits_to_be_asked_again_ends_with_the_node(void **state)
{
    (void)state;
    scene_open();
    scene.refusals[0] = (struct refusal){LEASE "LeaseGrant", 99, MUSTER_INTERNAL, "no"};
    scene.is_armed = true;
    node_stand_open_node(&scene.stand);
    test_env_run_until(scene.stand.pair.env, is_waiting, NULL);
    close_node();

    assert_string_equal(scene.stand.told, "");
    assert_int_equal(scene.puts, 0);
    scene_close();
}

static void on_left(struct muster_node *node, void *data)
{
    (void)node;
    *(bool *)data = true;
}

static void who_has_left_has_no_key_any_more(void **state)
{
    static const struct {
        struct refusal refusal;
        unsigned revokes;
    } rows[] = {
        {{NULL, 0, 0, NULL}, 1},
        {{LEASE "LeaseRevoke", 2, MUSTER_INTERNAL, "no"}, 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct registry_pair *f = &scene.stand.pair;
        bool has_left = false;

        scene_open();
        open_node();
        scene.refusals[0] = rows[i].refusal;
        muster_node_leave(scene.stand.node, true,
                          muster_loop_after_ns(f->env->loop, 30 * MUSTER_NS_PER_S), on_left,
                          &has_left);
        test_env_run_until(f->env, test_env_is_true, &has_left);

        assert_int_equal(scene.revokes, rows[i].revokes);
        assert_false(muster_timer_is_started(&scene.stand.node->registry.lease.timer));
        assert_false(muster_timer_is_started(&scene.stand.node->registry.lease.expiry));
        assert_int_equal(
            registry_pair_range(f, NODE_STAND_FOLDER "members/", MUSTER_REGISTRY_PREFIX),
            MUSTER_OK);
        assert_int_equal(f->kv_count, 0);
        close_node();
        assert_int_equal(scene.revokes, rows[i].revokes);
        scene_close();
    }
}

TEST_SET_UP(tear_down, scene_close())
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest node_registry[] = {
        cmocka_unit_test(what_the_registry_refuses_is_asked_again_or_ends_it),
        cmocka_unit_test(a_key_that_finds_no_memory_is_put_later),
        CASE(a_key_that_is_on_its_way_is_not_put_twice),
        CASE(a_member_is_not_ended_by_a_refusal),
        CASE(the_answer_of_a_swap_is_enough),
        cmocka_unit_test(what_waits_to_be_asked_again_ends_with_the_node),
        cmocka_unit_test(who_has_left_has_no_key_any_more),
        cmocka_unit_test(its_lease_is_given_back_when_it_closes),
    };

    return cmocka_run_group_tests(node_registry, NULL, NULL);
}
