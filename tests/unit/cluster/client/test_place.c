/* A place in a queue before a registry that is played by hand: who is in front, and who is told so. */
#include "played_registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/locks.h>
#include <muster/registry.h>

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

#define ANSWERS_MAX 4

struct row {
    const char *name;
    bool is_try;
    const char *answers[ANSWERS_MAX]; /* to its transactions, in order: see answer_txn */
    enum muster_rc rc;
    unsigned revision; /* with OK */
    unsigned txns, deletes;
};

struct stand {
    struct played_registry played;
    const struct row *row;
    struct muster_session session;
    struct muster_lease_place place;
    unsigned txns, deletes, watches;
    bool is_opened, is_done, is_stopped, is_closed;
    enum muster_rc rc;
};

/* --- The registry --- */

static void answer_bytes(struct muster_rpc *rpc, const char *bytes, size_t size)
{
    assert_int_equal(muster_rpc_send(rpc, bytes, size), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* Lease 9 for 60 s, at revision 5. */
static void on_grant(struct muster_rpc *rpc, struct muster_bytes request)
{
    (void)request;
    answer_bytes(rpc, "\x0a\x02\x18\x05\x10\x09\x18\x3c", 8);
}

static void on_delete(struct muster_rpc *rpc, struct muster_bytes request)
{
    (void)request;
    ((struct stand *)muster_rpc_service(rpc))->deletes++;
    answer_bytes(rpc, "\x0a\x02\x18\x05", 4);
}

static void on_revoke(struct muster_rpc *rpc, struct muster_bytes request)
{
    (void)request;
    answer_bytes(rpc, "\x0a\x02\x18\x05", 4);
}

static void on_nothing(struct muster_rpc *rpc, struct muster_bytes request)
{
    (void)rpc;
    (void)request;
}

/* "S7:5,6": succeeded at revision 7, shows keys that were made at 5 and 6; F: did not succeed. "!14"
 * ends with that code. */
static void answer_txn(struct muster_rpc *rpc, const char *answer)
{
    Etcdserverpb__TxnResponse response = ETCDSERVERPB__TXN_RESPONSE__INIT;
    Etcdserverpb__ResponseHeader header = ETCDSERVERPB__RESPONSE_HEADER__INIT;
    Etcdserverpb__ResponseOp ops[2], *op_pointers[2];
    Etcdserverpb__RangeResponse ranges[2];
    Mvccpb__KeyValue kvs[2], *kv_pointers[2];
    char *at = NULL;

    if (*answer == '!') {
        muster_rpc_finish(rpc, (enum muster_rc)atoi(answer + 1), "so");
        return;
    }
    header.revision = strtol(answer + 1, &at, 10);
    response.header = &header;
    response.succeeded = *answer == 'S';
    response.responses = op_pointers;
    for (at++; *at != '\0'; at += *at == ',') {
        size_t i = response.n_responses++;

        mvccpb__key_value__init(&kvs[i]);
        kvs[i].key = (ProtobufCBinaryData){3, (uint8_t *)(uintptr_t) "q/1"};
        kvs[i].create_revision = kvs[i].mod_revision = strtol(at, &at, 10);
        kv_pointers[i] = &kvs[i];
        etcdserverpb__range_response__init(&ranges[i]);
        ranges[i].n_kvs = 1;
        ranges[i].kvs = &kv_pointers[i];
        etcdserverpb__response_op__init(&ops[i]);
        ops[i].response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
        ops[i].response_range = &ranges[i];
        op_pointers[i] = &ops[i];
    }
    played_registry_send(rpc, &response);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_txn(struct muster_rpc *rpc, struct muster_bytes request)
{
    struct stand *stand = muster_rpc_service(rpc);

    (void)request;
    assert_true(stand->txns < ANSWERS_MAX && stand->row->answers[stand->txns] != NULL);
    answer_txn(rpc, stand->row->answers[stand->txns++]);
}

/* The key that is waited for is put anew, then deleted. */
static void on_watch(struct muster_rpc *rpc, struct muster_bytes request)
{
    struct stand *stand = muster_rpc_service(rpc);
    Etcdserverpb__WatchResponse response = ETCDSERVERPB__WATCH_RESPONSE__INIT;
    Etcdserverpb__ResponseHeader header = ETCDSERVERPB__RESPONSE_HEADER__INIT;
    Mvccpb__KeyValue kv = MVCCPB__KEY_VALUE__INIT;
    Mvccpb__Event event = MVCCPB__EVENT__INIT, *events = &event;

    (void)request;
    header.revision = 10 + 10 * ++stand->watches;
    response.header = &header;
    response.created = 1;
    played_registry_send(rpc, &response);
    kv.key = (ProtobufCBinaryData){3, (uint8_t *)(uintptr_t) "q/1"};
    event.kv = &kv;
    response.created = 0;
    response.n_events = 1;
    response.events = &events;
    for (int i = 0; i < 2; i++) {
        kv.mod_revision = header.revision + 1 + i;
        event.type = i == 0 ? MVCCPB__EVENT__EVENT_TYPE__PUT : MVCCPB__EVENT__EVENT_TYPE__DELETE;
        played_registry_send(rpc, &response);
    }
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Lease/LeaseGrant", .on_message = on_grant, .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseRevoke", .on_message = on_revoke, .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseKeepAlive", .on_message = on_nothing},
    {.path = "/etcdserverpb.KV/Txn", .on_message = on_txn, .is_unary = true},
    {.path = "/etcdserverpb.KV/DeleteRange", .on_message = on_delete, .is_unary = true},
    {.path = "/etcdserverpb.Watch/Watch", .on_message = on_watch},
};

/* --- The place --- */

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    ((struct stand *)session->data)->is_opened = true;
}

static void on_session_lost(struct muster_session *session)
{
    (void)session;
    fail();
}

static void on_session_closed(struct muster_session *session)
{
    ((struct stand *)session->data)->is_closed = true;
}

static void on_done(struct muster_lease_place *place, enum muster_rc rc)
{
    struct stand *stand = place->data;

    assert_false(stand->is_done);
    stand->is_done = true;
    stand->rc = rc;
}

static void on_lost(struct muster_lease_place *place)
{
    (void)place;
    fail();
}

static void on_stopped(struct muster_lease_place *place)
{
    ((struct stand *)place->data)->is_stopped = true;
}

static void stand_open(struct stand *stand, const struct row *row)
{
    const struct muster_lease_place_options options = {
        .queue = {"q", 1}, .deadline_ns = UINT64_MAX, .is_try = row->is_try};

    memset(stand, 0, sizeof(*stand));
    stand->row = row;
    played_registry_open(&stand->played, methods, sizeof(methods) / sizeof(methods[0]), stand,
                         NULL);
    stand->session.data = stand->place.data = stand;
    assert_int_equal(muster_session_open(&stand->session, stand->played.registry, 60,
                                         played_registry_soon(&stand->played), on_opened,
                                         on_session_lost),
                     MUSTER_OK);
    test_env_run_until(stand->played.env, test_env_is_true, &stand->is_opened);
    assert_int_equal(
        muster_lease_place_start(&stand->place, &stand->session, &options, on_done, on_lost),
        MUSTER_OK);
    test_env_run_until(stand->played.env, test_env_is_true, &stand->is_done);
}

static void stand_close(struct stand *stand)
{
    if (stand->rc == MUSTER_OK) {
        assert_int_equal(muster_lease_place_stop(&stand->place, on_stopped), MUSTER_OK);
        test_env_run_until(stand->played.env, test_env_is_true, &stand->is_stopped);
    }
    muster_session_close(&stand->session, on_session_closed);
    test_env_run_until(stand->played.env, test_env_is_true, &stand->is_closed);
    played_registry_close(&stand->played);
}

static const struct row rows[] = {
    {"alone", false, {"S7:7"}, MUSTER_OK, 7, 1, 1},
    {"alone, and tries", true, {"S7:7"}, MUSTER_OK, 7, 1, 1},
    {"there before", false, {"F8:6,6"}, MUSTER_OK, 6, 1, 1},
    {"there before, behind another", false, {"F8:6,5", "S9:"}, MUSTER_OK, 6, 2, 1},
    {"behind another", false, {"S7:5", "S8:"}, MUSTER_OK, 7, 2, 1},
    {"behind another, and tries", true, {"S7:5"}, MUSTER_FAILED_PRECONDITION, 0, 1, 1},
    {"behind another that goes", false, {"S7:5", "S8:5", "S23:"}, MUSTER_OK, 7, 3, 1},
    {"behind two", false, {"S7:5", "S8:6", "S23:5", "S24:"}, MUSTER_OK, 7, 4, 1},
    {"deleted meanwhile", false, {"S7:5", "F8:"}, MUSTER_ABORTED, 0, 2, 0},
    {"deleted while it waits", false, {"S7:5", "S8:5", "F23:"}, MUSTER_ABORTED, 0, 3, 0},
    {"not shown", false, {"S7:"}, MUSTER_INTERNAL, 0, 1, 1},
    {"perhaps made", false, {"!14", "F8:6,6"}, MUSTER_OK, 6, 2, 1},
    {"perhaps in front", false, {"S7:5", "!14", "S9:"}, MUSTER_OK, 7, 3, 1},
    {"without a lease", false, {"!5"}, MUSTER_ABORTED, 0, 1, 0},
    {"not permitted", false, {"!7"}, MUSTER_PERMISSION_DENIED, 0, 1, 1},
};

static void who_has_the_oldest_key_is_in_front(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stand stand;

        stand_open(&stand, &rows[i]);
        if (stand.rc != rows[i].rc || stand.txns != rows[i].txns)
            fail_msg("%s: %s after %u", rows[i].name, muster_rc_name(stand.rc), stand.txns);
        if (rows[i].rc == MUSTER_OK)
            assert_int_equal(stand.place.revision, rows[i].revision);
        stand_close(&stand);
        if (stand.deletes != rows[i].deletes)
            fail_msg("%s: %u deletes", rows[i].name, stand.deletes);
    }
}

int main(void)
{
    const struct CMUnitTest place[] = {
        cmocka_unit_test(who_has_the_oldest_key_is_in_front),
    };

    return cmocka_run_group_tests(place, NULL, NULL);
}
