/* The embedded registry on a virtual clock, before clients that are played by hand. */
#include "registry_stand.h"

void registry_stand_open(struct registry_stand *stand)
{
    struct muster_registry_server_options options = {.listen = NULL};
    struct muster_env *env = &stand->rpc.test.env;

    rpc_stand_open(&stand->rpc, NULL);
    store_stage_open(&stand->stage);
    assert_int_equal(muster_metrics_open(env->mem, &stand->metrics), MUSTER_OK);
    env->metrics = stand->metrics;
    options.rpc_server = stand->rpc.server;
    assert_int_equal(
        muster_registry_server_open(env, stand->stage.store, &options, &stand->server, NULL),
        MUSTER_OK);
    rpc_stand_advance(&stand->rpc, MUSTER_NS_PER_S);
}

void registry_stand_stop(struct registry_stand *stand)
{
    rpc_stand_begin_close(&stand->rpc, 0);
    rpc_stand_advance(&stand->rpc, MUSTER_NS_PER_S);
    muster_registry_server_close(stand->server, 0, NULL);
    rpc_stand_advance(&stand->rpc, MUSTER_NS_PER_S);
    stand->server = NULL;
}

void registry_stand_close(struct registry_stand *stand)
{
    if (stand->server != NULL)
        registry_stand_stop(stand);
    store_stage_close(&stand->stage);
    muster_metrics_close(stand->metrics);
    rpc_stand_close(&stand->rpc);
}

static void stand_apply(struct registry_stand *stand, struct muster_mvcc_request request)
{
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;

    assert_int_equal(muster_mvcc_apply(&stand->server->mvcc, &request, &stand->server->arena,
                                       &result, &error, &is_broken),
                     MUSTER_OK);
    muster_registry_arena_reset(&stand->server->arena);
    muster_registry_server_touch(stand->server);
}

void registry_stand_put(struct registry_stand *stand, const char *key, size_t bytes, int64_t lease)
{
    static const char value[1 << 20];

    assert_true(bytes <= sizeof(value));
    stand_apply(stand, (struct muster_mvcc_request){.kind = MUSTER_MVCC_PUT,
                                                    .put = {.key = store_stage_bytes_of(key),
                                                            .value = {value, bytes},
                                                            .lease = lease}});
}

void registry_stand_delete(struct registry_stand *stand, const char *key)
{
    stand_apply(stand, (struct muster_mvcc_request){
                           .kind = MUSTER_MVCC_DELETE,
                           .delete = {.span = {.key = store_stage_bytes_of(key)}}});
}

void registry_stand_grant(struct registry_stand *stand, int64_t lease, int64_t ttl_s)
{
    struct muster_error error;
    int64_t id = 0, granted_s = 0;
    bool is_broken = false;

    assert_int_equal(muster_leases_grant(&stand->server->leases, ttl_s, lease, &id, &granted_s,
                                         &error, &is_broken),
                     MUSTER_OK);
    muster_registry_server_touch(stand->server);
}

struct sqlite3 *registry_stand_database(struct registry_stand *stand)
{
    return muster_registry_store_database(stand->stage.store);
}
