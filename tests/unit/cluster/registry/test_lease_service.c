/* etcdserverpb.Lease, as a client of etcd asks it: each field of the answers. */
#include "registry_ask.h"
#include "scene_case.h"
#include "store_stage.h"

#include <stdio.h>
#include <string.h>

#include "proto/etcd.pb-c.h"

#define LEASE   77
#define TTL_S   60
#define KEYS    20
#define METHOD  "/etcdserverpb.Lease/"
#define UNKNOWN 79

struct scene {
    struct registry_pair pair;
    struct registry_ask ask;
};

static void scene_open(struct scene *scene)
{
    registry_pair_open(&scene->pair);
    registry_ask_open(&scene->ask, scene->pair.env,
                      scene->pair.outside != NULL ? scene->pair.outside : scene->pair.endpoints);
}

static void scene_close(struct scene *scene)
{
    registry_ask_close(&scene->ask);
    registry_pair_close(&scene->pair);
}

static enum muster_rc grant_lease(struct scene *scene, int64_t id, int64_t ttl_s)
{
    Etcdserverpb__LeaseGrantRequest request = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

    request.id = id;
    request.ttl = ttl_s;
    return registry_ask(&scene->ask, METHOD "LeaseGrant", &request,
                        &etcdserverpb__lease_grant_response__descriptor);
}

static enum muster_rc revoke_lease(struct scene *scene, int64_t id)
{
    Etcdserverpb__LeaseRevokeRequest request = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;

    request.id = id;
    return registry_ask(&scene->ask, METHOD "LeaseRevoke", &request,
                        &etcdserverpb__lease_revoke_response__descriptor);
}

static const Etcdserverpb__LeaseTimeToLiveResponse *time_to_live(struct scene *scene, int64_t id,
                                                                 bool wants_keys)
{
    Etcdserverpb__LeaseTimeToLiveRequest request = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;

    request.id = id;
    request.keys = wants_keys;
    assert_int_equal(registry_ask(&scene->ask, METHOD "LeaseTimeToLive", &request,
                                  &etcdserverpb__lease_time_to_live_response__descriptor),
                     MUSTER_OK);
    return scene->ask.answer;
}

/* LEASE may be there from a test of a registry outside. */
static void grant_anew(struct scene *scene)
{
    (void)revoke_lease(scene, LEASE);
    assert_int_equal(grant_lease(scene, LEASE, TTL_S), MUSTER_OK);
}

static void put_keys(struct scene *scene)
{
    for (int i = 0; i < KEYS; i++) {
        struct registry_pair *f = &scene->pair;
        char key[32];

        (void)snprintf(key, sizeof(key), PREFIX "%02d", i);
        assert_int_equal(REGISTRY_PAIR_RUN(f, put, registry_pair_bytes_of(key),
                                           registry_pair_bytes_of("1"), LEASE),
                         MUSTER_OK);
    }
}

SCENE_CASES(struct scene, scene_open, scene_close)

static void a_grant_is_answered_with_its_id_and_time(void **state)
{
    struct scene *scene = *state;
    const Etcdserverpb__LeaseGrantResponse *answer = NULL;
    uint64_t cluster_id = 0;

    grant_anew(scene);
    answer = scene->ask.answer;
    cluster_id = answer->header->cluster_id;
    assert_true(cluster_id != 0);
    assert_int_equal(answer->header->revision, scene->pair.revision);
    assert_int_equal(answer->id, LEASE);
    assert_int_equal(answer->ttl, TTL_S);
    assert_int_equal(grant_lease(scene, 0, TTL_S), MUSTER_OK);
    answer = scene->ask.answer;
    assert_true(answer->id != 0 && answer->id != LEASE);
    assert_int_equal(answer->header->cluster_id, cluster_id);

    assert_int_equal(grant_lease(scene, LEASE, TTL_S), MUSTER_FAILED_PRECONDITION);
    assert_string_equal(scene->ask.error.text, "etcdserver: lease already exists");
    assert_int_equal(grant_lease(scene, 0, INT64_MAX), MUSTER_OUT_OF_RANGE);
    assert_string_equal(scene->ask.error.text, "etcdserver: too large lease TTL");
}

static void the_time_to_live_tells_time_and_keys(void **state)
{
    struct scene *scene = *state;
    const Etcdserverpb__LeaseTimeToLiveResponse *answer = NULL;

    grant_anew(scene);
    put_keys(scene);
    answer = time_to_live(scene, LEASE, true);
    assert_int_equal(answer->header->revision, scene->pair.revision);
    assert_int_equal(answer->id, LEASE);
    assert_int_equal(answer->grantedttl, TTL_S);
    assert_in_range(answer->ttl, 1, TTL_S);
    assert_int_equal(answer->n_keys, KEYS);
    for (size_t i = 0; i < KEYS; i++) {
        char key[32];

        (void)snprintf(key, sizeof(key), PREFIX "%02d", (int)i);
        assert_int_equal(answer->keys[i].len, strlen(key));
        assert_memory_equal(answer->keys[i].data, key, strlen(key));
    }
    answer = time_to_live(scene, LEASE, false);
    assert_int_equal(answer->n_keys, 0);
    assert_int_equal(answer->grantedttl, TTL_S);

    answer = time_to_live(scene, UNKNOWN, true);
    assert_int_equal(answer->id, UNKNOWN);
    assert_int_equal(answer->ttl, -1);
    assert_int_equal(answer->grantedttl, 0);
}

static void a_revoked_lease_is_gone_with_its_keys(void **state)
{
    struct scene *scene = *state;

    grant_anew(scene);
    put_keys(scene);
    assert_int_equal(revoke_lease(scene, LEASE), MUSTER_OK);
    assert_int_equal(
        ((const Etcdserverpb__LeaseRevokeResponse *)scene->ask.answer)->header->revision,
        scene->pair.revision + 1);
    assert_int_equal(registry_pair_range(&scene->pair, PREFIX, MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_int_equal(scene->pair.kv_count, 0);

    assert_int_equal(time_to_live(scene, LEASE, true)->ttl, -1);
    assert_int_equal(revoke_lease(scene, LEASE), MUSTER_NOT_FOUND);
    assert_string_equal(scene->ask.error.text, "etcdserver: requested lease not found");
}

static void all_leases_are_listed(void **state)
{
    struct scene *scene = *state;
    Etcdserverpb__LeaseLeasesRequest request = ETCDSERVERPB__LEASE_LEASES_REQUEST__INIT;
    const Etcdserverpb__LeaseLeasesResponse *answer = NULL;
    unsigned found = 0;

    (void)revoke_lease(scene, LEASE + 1);
    grant_anew(scene);
    assert_int_equal(grant_lease(scene, LEASE + 1, TTL_S), MUSTER_OK);
    assert_int_equal(registry_ask(&scene->ask, METHOD "LeaseLeases", &request,
                                  &etcdserverpb__lease_leases_response__descriptor),
                     MUSTER_OK);

    answer = scene->ask.answer;
    assert_int_equal(answer->header->revision, scene->pair.revision);
    for (size_t i = 0; i < answer->n_leases; i++)
        found += answer->leases[i]->id == LEASE || answer->leases[i]->id == LEASE + 1;
    assert_int_equal(found, 2);
    if (scene->pair.outside == NULL)
        assert_int_equal(answer->n_leases, 2);
}

static void say_keep_alive(struct scene *scene, int64_t id)
{
    Etcdserverpb__LeaseKeepAliveRequest request = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;

    request.id = id;
    registry_ask_say(&scene->ask, &request);
}

static void one_stream_keeps_any_lease_alive(void **state)
{
    struct scene *scene = *state;
    static const struct {
        int64_t id, ttl_s;
    } rows[] = {{LEASE, TTL_S}, {LEASE + 1, 2 * TTL_S}, {UNKNOWN, 0}, {LEASE, TTL_S}};

    (void)revoke_lease(scene, LEASE + 1);
    grant_anew(scene);
    assert_int_equal(grant_lease(scene, LEASE + 1, 2 * TTL_S), MUSTER_OK);
    registry_ask_begin(&scene->ask, METHOD "LeaseKeepAlive",
                       &etcdserverpb__lease_keep_alive_response__descriptor);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const Etcdserverpb__LeaseKeepAliveResponse *answer = NULL;

        say_keep_alive(scene, rows[i].id);
        answer = scene->ask.answer;
        assert_non_null(answer);
        assert_int_equal(answer->id, rows[i].id);
        assert_int_equal(answer->ttl, rows[i].ttl_s);
        assert_int_equal(answer->header->revision, scene->pair.revision);
    }

    assert_int_equal(registry_ask_end(&scene->ask), MUSTER_OK);
}

static void on_server_closed(struct muster_registry_server *server)
{
    ((struct scene *)muster_registry_server_data(server))->pair.is_closed = true;
}

static void stop_server(struct scene *scene)
{
    struct registry_pair *f = &scene->pair;

    f->is_closed = false;
    muster_registry_server_set_data(f->server, scene);
    muster_registry_server_close(f->server, registry_pair_soon(f), on_server_closed);
    test_env_run_until(f->env, test_env_is_true, &f->is_closed);
    f->server = NULL;
}

static void a_registry_that_stops_ends_the_stream(void **state)
{
    struct scene *scene = *state;

    if (scene->pair.outside == NULL) {
        registry_ask_begin(&scene->ask, METHOD "LeaseKeepAlive",
                           &etcdserverpb__lease_keep_alive_response__descriptor);
        say_keep_alive(scene, LEASE);
        stop_server(scene);
        test_env_run_until(scene->pair.env, test_env_is_true, &scene->ask.is_done);

        assert_int_equal(scene->ask.rc, MUSTER_UNAVAILABLE);
        assert_string_equal(scene->ask.error.text, "etcdserver: server stopped");
    }
}

static void bytes_that_are_no_message_are_refused(void **state)
{
    struct scene *scene = *state;
    static const char *const methods[] = {
        METHOD "LeaseGrant",  METHOD "LeaseRevoke",    METHOD "LeaseTimeToLive",
        METHOD "LeaseLeases", METHOD "LeaseKeepAlive",
    };

    for (size_t i = 0; scene->pair.outside == NULL && i < sizeof(methods) / sizeof(methods[0]); i++)
        assert_int_equal(registry_ask(&scene->ask, methods[i], NULL,
                                      &etcdserverpb__lease_grant_response__descriptor),
                         MUSTER_INVALID_ARGUMENT);
    assert_int_equal(grant_lease(scene, 0, TTL_S), MUSTER_OK);
}

/* A lease that cannot be written does not exist, and the registry goes on when it can be written again. */
static void a_store_that_fails_is_told_and_undone(void **state)
{
    struct scene *scene = *state;
    struct sqlite3 *db = NULL;

    if (scene->pair.outside == NULL) {
        grant_anew(scene);
        put_keys(scene);
        db = muster_registry_store_database(scene->pair.store);
        store_stage_run_sql(db, "ALTER TABLE leases RENAME TO away");
        assert_int_equal(grant_lease(scene, LEASE + 1, TTL_S), MUSTER_UNAVAILABLE);
        assert_non_null(strstr(scene->ask.error.text, "registry store: "));
        assert_int_equal(revoke_lease(scene, LEASE), MUSTER_UNAVAILABLE);
        assert_non_null(strstr(scene->ask.error.text, "store"));
        store_stage_run_sql(db, "ALTER TABLE away RENAME TO leases");

        assert_int_equal(time_to_live(scene, LEASE + 1, true)->ttl, -1);
        assert_int_equal(time_to_live(scene, LEASE, true)->n_keys, KEYS);
        assert_int_equal(revoke_lease(scene, LEASE), MUSTER_OK);
        assert_int_equal(grant_lease(scene, LEASE + 1, TTL_S), MUSTER_OK);
    }
}

int main(void)
{
    const struct CMUnitTest registry_lease_service[] = {
        CASE(a_grant_is_answered_with_its_id_and_time), CASE(the_time_to_live_tells_time_and_keys),
        CASE(a_revoked_lease_is_gone_with_its_keys),    CASE(all_leases_are_listed),
        CASE(one_stream_keeps_any_lease_alive),         CASE(a_registry_that_stops_ends_the_stream),
        CASE(bytes_that_are_no_message_are_refused),    CASE(a_store_that_fails_is_told_and_undone),
    };

    return cmocka_run_group_tests(registry_lease_service, NULL, NULL);
}
