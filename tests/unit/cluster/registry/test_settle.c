/* Messages that the registry sends by itself show committed state: to the next in a queue, to observers; and its
 * own write does not meet an open transaction. Also streams that begin without memory. */
#include "registry_stand.h"
#include "scene_case.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LOCK    "/v3lockpb.Lock/Lock"
#define OBSERVE "/v3electionpb.Election/Observe"
#define LEASE_A 0x1a
#define LEASE_B 0x2b

/* A call of one message whose client may say more. */
static void call_server(struct rpc_raw *raw, uint32_t stream, const char *path, const void *request,
                        size_t bytes, uint8_t flags)
{
    rpc_raw_headers(raw, stream, path, NULL, NULL, 0);
    rpc_raw_message(raw, stream, 0, bytes, request, bytes, flags);
    rpc_stand_advance(raw->stand, 0);
}

/* A has the lock m, B waits for it. */
static struct rpc_raw *queue_up(struct registry_stand *stand)
{
    struct rpc_raw *raw = rpc_raw_open(&stand->rpc);

    registry_stand_grant(stand, LEASE_A, 3600);
    registry_stand_grant(stand, LEASE_B, 3600);
    call_server(raw, 1, LOCK, "\x0a\x01m\x10\x1a", 5, FLAG_END_STREAM);
    assert_int_equal(rpc_raw_status(raw, 1), MUSTER_OK);
    call_server(raw, 3, LOCK, "\x0a\x01m\x10\x2b", 5, FLAG_END_STREAM);
    assert_int_equal(rpc_raw_status(raw, 3), -1);
    return raw;
}

/* A key of the queue is deleted, so that all look again; then A's, which is not committed yet. It cannot be
 * either when is_failing: the transaction is undone with what hinders it. */
static void look_again_amid(struct registry_stand *stand, bool is_failing)
{
    registry_stand_put(stand, "m/other", 1, 0);
    rpc_stand_advance(&stand->rpc, 0);
    registry_stand_delete(stand, "m/other");
    muster_registry_server_commit(stand->server);
    registry_stand_delete(stand, "m/1a");
    assert_true(muster_registry_store_is_writing(stand->stage.store));
    if (is_failing)
        store_stage_run_sql(registry_stand_database(stand), "ALTER TABLE meta RENAME TO away");
    rpc_stand_advance(&stand->rpc, 0);
}

static void who_is_next_has_the_lock_when_the_write_is_committed(void **state)
{
    (void)state;
    for (int is_failing = 0; is_failing <= 1; is_failing++) {
        struct registry_stand stand;
        struct rpc_raw *raw;

        registry_stand_open(&stand);
        raw = queue_up(&stand);
        look_again_amid(&stand, is_failing != 0);

        assert_int_equal(rpc_raw_status(raw, 3), is_failing != 0 ? -1 : MUSTER_OK);
        assert_int_equal(stand.server->status.is_failing, is_failing != 0);
        registry_stand_close(&stand);
    }
}

static void observers_are_shown_what_is_committed(void **state)
{
    (void)state;
    for (int is_failing = 0; is_failing <= 1; is_failing++) {
        struct registry_stand stand;
        struct rpc_raw *raw;
        size_t bytes;

        registry_stand_open(&stand);
        raw = queue_up(&stand);
        call_server(raw, 5, OBSERVE, "\x0a\x01m", 3, 0);
        bytes = rpc_raw_data_bytes(raw, 5);
        assert_true(bytes > 0); /* A leads */
        look_again_amid(&stand, is_failing != 0);

        assert_int_equal(rpc_raw_data_bytes(raw, 5) > bytes, is_failing == 0); /* then B */
        registry_stand_close(&stand);
    }
}

static off_t journal_size(const struct registry_stand *stand)
{
    char path[128];
    struct stat status;

    (void)snprintf(path, sizeof(path), "%s-wal", stand->stage.path);
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

SCENE_CASES(struct registry_stand, registry_stand_open, registry_stand_close)

/* Before its own write the registry gives room back, for which no transaction may be open. */
static void the_write_that_tries_the_disk_gives_room_back_first(void **state)
{
    struct registry_stand *stand = *state;

    registry_stand_put(stand, "a", 200000, 0);
    rpc_stand_advance(&stand->rpc, 0);
    muster_registry_server_break(stand->server, MUSTER_RESOURCE_EXHAUSTED);
    rpc_stand_advance(&stand->rpc, 4900 * MUSTER_NS_PER_MS);
    assert_true(journal_size(stand) > 200000);
    registry_stand_put(stand, "b", 1, 0);
    muster_task_cancel(&stand->server->commit); /* it stays open until somebody asks */
    rpc_stand_advance(&stand->rpc, 200 * MUSTER_NS_PER_MS);

    assert_false(stand->server->status.is_failing);
    assert_true(journal_size(stand) < 50000);
}

static const struct stream_row {
    const char *path, *request;
    size_t bytes;
} streams[] = {
    {"/etcdserverpb.Watch/Watch", "\x0a\x03\x0a\x01k", 5},
    {"/etcdserverpb.Lease/LeaseKeepAlive", "\x08\x07", 2},
    {"/etcdserverpb.Maintenance/Snapshot", "", 0},
    {"/etcdserverpb.Maintenance/HashKV", "", 0}, /* answered over several turns, as these */
};

/* The client opens such streams, one after another. */
struct hungry {
    const struct stream_row *row;
    struct registry_stand *stand;
    unsigned *told; /* streams, that memory lacks */
};

static void run_stream(struct torture *torture, const void *data)
{
    const struct hungry *hungry = data;
    struct rpc_stand *rpc = &hungry->stand->rpc;
    struct rpc_raw *raw = rpc_raw_open(rpc);
    int64_t status;

    torture_arm_limited(torture, &rpc->test.mem);
    call_server(raw, 1, hungry->row->path, hungry->row->request, hungry->row->bytes,
                FLAG_END_STREAM);
    torture_disarm(torture);
    rpc_stand_advance(rpc, MUSTER_NS_PER_S);
    status = rpc_raw_status(raw, 1);
    *hungry->told += status == MUSTER_UNAVAILABLE || status == MUSTER_RESOURCE_EXHAUSTED;
}

static void streams_without_memory_are_told_or_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        struct registry_stand stand;
        unsigned told = 0;
        const struct hungry hungry = {&streams[i], &stand, &told};

        registry_stand_open(&stand);
        torture_run(&(struct torture_scenario){
            .name = streams[i].path, .run = run_stream, .data = &hungry});
        assert_true(told > 1);
        registry_stand_close(&stand);
    }
}

static void streams_of_no_message_are_refused(void **state)
{
    struct registry_stand *stand = *state;

    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        struct rpc_raw *raw = rpc_raw_open(&stand->rpc);

        call_server(raw, 1, streams[i].path, "\xff", 1, FLAG_END_STREAM);
        assert_int_equal(rpc_raw_status(raw, 1), MUSTER_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest registry_settle[] = {
        cmocka_unit_test(who_is_next_has_the_lock_when_the_write_is_committed),
        cmocka_unit_test(observers_are_shown_what_is_committed),
        CASE(the_write_that_tries_the_disk_gives_room_back_first),
        cmocka_unit_test(streams_without_memory_are_told_or_go_on),
        CASE(streams_of_no_message_are_refused),
    };

    return cmocka_run_group_tests(registry_settle, NULL, NULL);
}
