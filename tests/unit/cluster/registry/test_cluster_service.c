/* etcdserverpb.Cluster, Maintenance and Auth, as a client of etcd asks them. */
#include "registry_ask.h"
#include "registry_pair.h"

#include <string.h>

#include "cluster/registry/server_internal.h"
#include "proto/etcd.pb-c.h"

#define CLUSTER     "/etcdserverpb.Cluster/"
#define MAINTENANCE "/etcdserverpb.Maintenance/"
#define AUTH        "/etcdserverpb.Auth/"

struct scene {
    struct registry_pair pair;
    struct registry_ask ask;
};

static int set_up(void **state)
{
    static struct scene scene;

    registry_pair_open(&scene.pair);
    registry_ask_open(&scene.ask, scene.pair.env,
                      scene.pair.outside != NULL ? scene.pair.outside : scene.pair.endpoints);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    registry_ask_close(&scene->ask);
    registry_pair_close(&scene->pair);
    return 0;
}

static void bytes_that_are_no_message_are_refused(void **state)
{
    static const char *const methods[] = {
        CLUSTER "MemberList",     MAINTENANCE "Status", MAINTENANCE "Alarm",
        MAINTENANCE "HashKV",     MAINTENANCE "Hash",   MAINTENANCE "Defragment",
        MAINTENANCE "MoveLeader", AUTH "AuthStatus",    AUTH "UserList",
        AUTH "RoleList",
    };
    struct scene *scene = *state;

    for (size_t i = 0; scene->pair.outside == NULL && i < sizeof(methods) / sizeof(methods[0]); i++)
        assert_int_equal(
            registry_ask(&scene->ask, methods[i], NULL, &etcdserverpb__status_response__descriptor),
            MUSTER_INVALID_ARGUMENT);
}

static void the_only_member_is_told_with_its_address(void **state)
{
    struct scene *scene = *state;
    const struct muster_registry_server *server = scene->pair.server;
    Etcdserverpb__MemberListRequest request = ETCDSERVERPB__MEMBER_LIST_REQUEST__INIT;
    const Etcdserverpb__MemberListResponse *answer;

    if (scene->pair.outside != NULL)
        skip();
    assert_int_equal(registry_ask(&scene->ask, CLUSTER "MemberList", &request,
                                  &etcdserverpb__member_list_response__descriptor),
                     MUSTER_OK);
    answer = scene->ask.answer;

    assert_int_equal(answer->n_members, 1);
    assert_true(answer->header->cluster_id == server->mvcc.meta.cluster_id);
    assert_true(answer->members[0]->id == server->mvcc.meta.member_id);
    assert_string_equal(answer->members[0]->name, server->name);
    assert_int_equal(answer->members[0]->n_clienturls, 1);
    assert_string_equal(answer->members[0]->clienturls[0], server->client_url);
}

static void nobody_but_the_only_member_can_lead(void **state)
{
    struct scene *scene = *state;

    if (scene->pair.outside != NULL)
        skip();
    for (uint64_t i = 0; i < 2; i++) {
        Etcdserverpb__MoveLeaderRequest request = ETCDSERVERPB__MOVE_LEADER_REQUEST__INIT;

        request.targetid = scene->pair.server->mvcc.meta.member_id + i;
        assert_int_equal(registry_ask(&scene->ask, MAINTENANCE "MoveLeader", &request,
                                      &etcdserverpb__move_leader_response__descriptor),
                         i == 0 ? MUSTER_OK : MUSTER_FAILED_PRECONDITION);
    }
    assert_string_equal(scene->ask.error.text, "etcdserver: bad leader transferee");
}

static void a_status_tells_what_there_is(void **state)
{
    struct scene *scene = *state;
    const struct muster_registry_meta *meta = &scene->pair.server->mvcc.meta;
    Etcdserverpb__StatusRequest request = ETCDSERVERPB__STATUS_REQUEST__INIT;
    const Etcdserverpb__StatusResponse *answer;

    if (scene->pair.outside != NULL)
        skip();
    assert_int_equal(registry_pair_put(&scene->pair, PREFIX "a", "1"), MUSTER_OK);
    assert_int_equal(registry_ask(&scene->ask, MAINTENANCE "Status", &request,
                                  &etcdserverpb__status_response__descriptor),
                     MUSTER_OK);
    answer = scene->ask.answer;

    assert_string_equal(answer->version, MUSTER_REGISTRY_ETCD_VERSION);
    assert_true(answer->leader == meta->member_id);
    assert_true(answer->raftindex == (uint64_t)meta->revision);
    assert_true(answer->raftappliedindex == (uint64_t)meta->revision);
    assert_true(answer->raftterm == meta->term);
    assert_true(answer->dbsize > 0 && answer->dbsizeinuse > 0 &&
                answer->dbsizequota >= answer->dbsize);
    assert_int_equal(answer->n_errors, 0);
}

/* Clients of etcd look here when their writes are refused. */
static void a_full_registry_says_so(void **state)
{
    struct scene *scene = *state;
    Etcdserverpb__StatusRequest status = ETCDSERVERPB__STATUS_REQUEST__INIT;
    Etcdserverpb__AlarmRequest alarm = ETCDSERVERPB__ALARM_REQUEST__INIT;

    if (scene->pair.outside != NULL)
        skip();
    for (unsigned is_full = 0; is_full <= 1; is_full++) {
        struct muster_mvcc *mvcc = &scene->pair.server->mvcc;
        const Etcdserverpb__StatusResponse *told;
        const Etcdserverpb__AlarmResponse *alarms;

        mvcc->is_full = is_full == 1;
        assert_int_equal(registry_ask(&scene->ask, MAINTENANCE "Status", &status,
                                      &etcdserverpb__status_response__descriptor),
                         MUSTER_OK);
        told = scene->ask.answer;
        assert_int_equal(told->n_errors, is_full);
        assert_string_equal(is_full ? told->errors[0] : "NOSPACE", "NOSPACE");
        assert_int_equal(registry_ask(&scene->ask, MAINTENANCE "Alarm", &alarm,
                                      &etcdserverpb__alarm_response__descriptor),
                         MUSTER_OK);
        alarms = scene->ask.answer;
        assert_int_equal(alarms->n_alarms, is_full);
        if (is_full == 1) {
            assert_true(alarms->alarms[0]->memberid == mvcc->meta.member_id);
            assert_int_equal(alarms->alarms[0]->alarm, ETCDSERVERPB__ALARM_TYPE__NOSPACE);
        }
    }
}

/* Two members with the same history would have the same sum; without a revision it is of now. */
static void a_hash_is_of_a_revision(void **state)
{
    struct scene *scene = *state;
    uint32_t first = 0;

    if (scene->pair.outside != NULL)
        skip();
    for (int i = 0; i < 3; i++) {
        Etcdserverpb__HashKVRequest request = ETCDSERVERPB__HASH_KVREQUEST__INIT;
        const Etcdserverpb__HashKVResponse *answer;

        assert_int_equal(registry_pair_put(&scene->pair, PREFIX "a", "1"), MUSTER_OK);
        request.revision = i == 2 ? scene->pair.server->mvcc.meta.revision - 2 : 0;
        assert_int_equal(registry_ask(&scene->ask, MAINTENANCE "HashKV", &request,
                                      &etcdserverpb__hash_kvresponse__descriptor),
                         MUSTER_OK);
        answer = scene->ask.answer;
        first = i == 0 ? answer->hash : first;

        assert_true(answer->hash_revision ==
                    (i == 2 ? request.revision : scene->pair.server->mvcc.meta.revision));
        assert_true((answer->hash == first) == (i != 1));
    }
}

static void there_are_no_users(void **state)
{
    struct scene *scene = *state;
    Etcdserverpb__AuthenticateRequest who = ETCDSERVERPB__AUTHENTICATE_REQUEST__INIT;
    Etcdserverpb__AuthStatusRequest request = ETCDSERVERPB__AUTH_STATUS_REQUEST__INIT;

    if (scene->pair.outside != NULL)
        skip();
    assert_int_equal(registry_ask(&scene->ask, AUTH "Authenticate", &who,
                                  &etcdserverpb__authenticate_response__descriptor),
                     MUSTER_FAILED_PRECONDITION);
    assert_string_equal(scene->ask.error.text, "etcdserver: authentication is not enabled");
    assert_int_equal(registry_ask(&scene->ask, AUTH "AuthStatus", &request,
                                  &etcdserverpb__auth_status_response__descriptor),
                     MUSTER_OK);
    assert_false(((const Etcdserverpb__AuthStatusResponse *)scene->ask.answer)->enabled);
    assert_int_equal(((const Etcdserverpb__AuthStatusResponse *)scene->ask.answer)->authrevision,
                     1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(bytes_that_are_no_message_are_refused),
        CASE(the_only_member_is_told_with_its_address),
        CASE(nobody_but_the_only_member_can_lead),
        CASE(a_status_tells_what_there_is),
        CASE(a_full_registry_says_so),
        CASE(a_hash_is_of_a_revision),
        CASE(there_are_no_users),
    };

    return cmocka_run_group_tests_name("cluster_service", tests, NULL, NULL);
}
