/* Hash and HashKV: what they tell, and that a long log is hashed between other requests. */
#include "registry_stand.h"

#include <string.h>

#include "proto/etcd.pb-c.h"

#define HASH    "/etcdserverpb.Maintenance/Hash"
#define HASH_KV "/etcdserverpb.Maintenance/HashKV"
#define PUT     "/etcdserverpb.KV/Put"
#define NONE    (-1) /* no status yet */

/* Sent, without a turn of the loop. */
static void send_request(struct rpc_raw *raw, uint32_t stream, const char *path,
                         const void *request, size_t bytes)
{
    rpc_raw_headers(raw, stream, path, NULL, NULL, 0);
    rpc_raw_message(raw, stream, 0, bytes, request, bytes, FLAG_END_STREAM);
}

static struct rpc_raw *open_with_keys(struct registry_stand *stand, int count, size_t bytes)
{
    registry_stand_open(stand);
    for (int i = 0; i < count; i++) {
        registry_stand_put(stand, (const char[]){(char)('a' + i), '\0'}, bytes, 0);
        rpc_stand_advance(&stand->rpc, 0);
    }
    return rpc_raw_open(&stand->rpc);
}

static void run_one_task(struct registry_stand *stand, unsigned *steps)
{
    struct muster_list *node = muster_list_pop(&stand->rpc.loop.tasks);
    struct muster_task *task = NULL;

    assert_non_null(node);
    task = MUSTER_CONTAINER_OF(node, struct muster_task, node);
    *steps += task == &stand->server->hash;
    task->on_run(task);
}

/* 4 MiB take more than four steps. Two hashes take turns with the put, not with each other. */
static void requests_are_answered_while_a_long_log_is_hashed(void **state)
{
    struct registry_stand stand;
    struct rpc_raw *raw = open_with_keys(&stand, 4, (size_t)1 << 20);
    unsigned steps = 0, steps_at_put = 0;

    (void)state;
    send_request(raw, 1, HASH_KV, "", 0);
    send_request(raw, 3, HASH, "", 0);
    send_request(raw, 5, PUT, "\x0a\x01z", 3);
    while (rpc_raw_status(raw, 1) == NONE) {
        run_one_task(&stand, &steps);
        if (rpc_raw_status(raw, 5) == NONE)
            steps_at_put = steps;
    }
    assert_int_equal(rpc_raw_status(raw, 1), MUSTER_OK);
    assert_int_equal(rpc_raw_status(raw, 5), MUSTER_OK);
    assert_int_equal(rpc_raw_status(raw, 3), NONE);
    assert_true(steps > 4);
    assert_true(steps_at_put < 3);
    rpc_stand_advance(&stand.rpc, 0);

    assert_int_equal(rpc_raw_status(raw, 3), MUSTER_OK);
    registry_stand_close(&stand);
}

static Etcdserverpb__HashKVResponse *unpack_answer(const struct rpc_raw *raw)
{
    const uint8_t *frame = played_stream_sent_frame(&raw->played, FRAME_DATA, 0);
    size_t bytes;

    assert_non_null(frame);
    bytes = ((size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2]) - 5;
    return etcdserverpb__hash_kvresponse__unpack(NULL, bytes, frame + 9 + 5);
}

static void hash_kv_tells_its_revision_and_the_compact_revision(void **state)
{
    struct registry_stand stand;
    struct rpc_raw *raw = open_with_keys(&stand, 4, 10);
    Etcdserverpb__HashKVResponse *answer = NULL;
    struct muster_mvcc_hash hash;
    struct muster_error error;
    bool is_done = false;

    (void)state;
    assert_int_equal(muster_mvcc_compact(&stand.server->mvcc, 3, &error), MUSTER_OK);
    send_request(raw, 1, HASH_KV, "\x08\x04", 2);
    rpc_stand_advance(&stand.rpc, 0);
    answer = unpack_answer(raw);
    assert_non_null(answer);
    assert_int_equal(muster_mvcc_hash_init(&stand.server->mvcc, 4, &hash, &error), MUSTER_OK);
    assert_int_equal(muster_mvcc_hash_step(&stand.server->mvcc, &hash, SIZE_MAX, &is_done, &error),
                     MUSTER_OK);

    assert_int_equal(answer->hash_revision, 4);
    assert_int_equal(answer->compact_revision, 3);
    assert_int_equal(answer->hash, hash.value);
    assert_int_equal(answer->header->revision, 5);
    etcdserverpb__hash_kvresponse__free_unpacked(answer, NULL);
    registry_stand_close(&stand);
}

static void a_hash_ends_with_its_call_or_an_error(void **state)
{
    struct registry_stand stand;
    struct rpc_raw *raw = open_with_keys(&stand, 4, (size_t)1 << 20);
    unsigned steps = 0;

    (void)state;
    send_request(raw, 1, HASH_KV, "", 0);
    send_request(raw, 3, HASH_KV, "\x08\x63", 2); /* a future revision */
    while (steps < 2)
        run_one_task(&stand, &steps);
    rpc_raw_reset(raw, 1, 8);
    rpc_stand_advance(&stand.rpc, 0);
    assert_int_equal(rpc_raw_status(raw, 1), NONE);
    assert_int_equal(rpc_raw_status(raw, 3), MUSTER_OUT_OF_RANGE);
    assert_true(muster_list_is_empty(&stand.server->hashes));

    send_request(raw, 5, HASH, "", 0); /* under way when the server stops */
    run_one_task(&stand, &steps);
    registry_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest registry_hash_service[] = {
        cmocka_unit_test(requests_are_answered_while_a_long_log_is_hashed),
        cmocka_unit_test(hash_kv_tells_its_revision_and_the_compact_revision),
        cmocka_unit_test(a_hash_ends_with_its_call_or_an_error),
    };

    return cmocka_run_group_tests(registry_hash_service, NULL, NULL);
}
