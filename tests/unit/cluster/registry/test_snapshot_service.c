/* Snapshots of a living registry, read through its API, and what is made of them. */
#include "registry_ask.h"
#include "registry_pair.h"
#include "scene_case.h"
#include "rpc_stand.h"

#include <muster/registry.h>

#include "cluster/registry/server_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/etcd.pb-c.h"

#define KEYS        40
#define VALUE_BYTES 50000 /* so that a snapshot takes many turns */

struct reader {
    struct muster_registry_snapshot snapshot;
    char *bytes;
    size_t size;
    enum muster_rc rc;
    bool is_done;
};

static void on_bytes(struct muster_registry_snapshot *snapshot, struct muster_bytes bytes)
{
    struct reader *reader = snapshot->data;

    reader->bytes = realloc(reader->bytes, reader->size + bytes.size + 1);
    assert_non_null(reader->bytes);
    memcpy(reader->bytes + reader->size, bytes.data, bytes.size);
    reader->size += bytes.size;
}

static void on_done(struct muster_registry_snapshot *snapshot, enum muster_rc rc)
{
    struct reader *reader = snapshot->data;

    reader->rc = rc;
    reader->is_done = true;
}

static void begin_call(struct reader *reader, struct registry_pair *f)
{
    memset(reader, 0, sizeof(*reader));
    reader->snapshot.data = reader;
    assert_int_equal(muster_registry_snapshot_start(&reader->snapshot, f->registry,
                                                    registry_pair_soon(f), on_bytes, on_done),
                     MUSTER_OK);
    assert_false(reader->is_done);
}

static enum muster_rc end_call(struct reader *reader, struct registry_pair *f)
{
    test_env_run_until(f->env, test_env_is_true, &reader->is_done);
    return reader->rc;
}

static void fill_store(struct registry_pair *f)
{
    static char value[VALUE_BYTES + 1];

    memset(value, 'v', VALUE_BYTES);
    for (int i = 0; i < KEYS; i++) {
        char key[64];

        (void)snprintf(key, sizeof(key), PREFIX "k/%02d", i);
        assert_int_equal(registry_pair_put(f, key, value), MUSTER_OK);
    }
}

/* A snapshot as a file, and the data file made of it; both are gone afterwards. */
static void restore_copy(const struct reader *reader, struct registry_pair *f, char *ret_data)
{
    char from[] = "/tmp/muster-snapshot-XXXXXX";
    int fd = mkstemp(from);
    struct muster_registry_restored restored;
    struct muster_error error = {.rc = MUSTER_OK};

    assert_true(fd >= 0);
    assert_int_equal(write(fd, reader->bytes, reader->size), reader->size);
    close(fd);
    (void)sprintf(ret_data, "%s.db", from);
    if (muster_registry_backup_restore(f->env->mem, from, ret_data, &restored, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_true(restored.keys >= KEYS);
    assert_int_equal(unlink(from), 0);
}

SCENE_CASES(struct registry_pair, registry_pair_open, registry_pair_close)

static void a_snapshot_holds_what_was_there_when_it_ended(void **state)
{
    struct registry_pair *f = *state;
    struct reader reader;
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;
    char data[64];
    uint64_t revision = 0;

    fill_store(f);
    begin_call(&reader, f);
    assert_int_equal(end_call(&reader, f), MUSTER_OK);
    assert_int_equal(reader.size, reader.snapshot.bytes);
    assert_int_equal(reader.size % 512, 32);
    assert_int_equal(f->server->send_arena.held_bytes, 0);
    restore_copy(&reader, f, data);
    revision = f->revision;

    registry_pair_close_client(f);
    registry_pair_stop_server(f);
    muster_registry_store_close(f->store);
    options.path = data;
    assert_int_equal(muster_registry_store_open(f->env->mem, &options, &f->store, &error),
                     MUSTER_OK);
    registry_pair_start_server(f, "127.0.0.1:0");
    registry_pair_open_client(f, f->endpoints);
    assert_int_equal(registry_pair_range(f, PREFIX "k/", MUSTER_REGISTRY_PREFIX), MUSTER_OK);
    assert_int_equal(f->count, KEYS);
    assert_true(f->revision > revision + MUSTER_REGISTRY_RESTORE_REVISIONS / 2);

    assert_int_equal(unlink(data), 0);
    free(reader.bytes);
}

static void writes_go_on_meanwhile_and_are_whole_or_absent(void **state)
{
    struct registry_pair *f = *state;
    struct reader reader;
    char data[64];

    fill_store(f);

    begin_call(&reader, f);
    for (int i = 0; i < 200 && !reader.is_done; i++)
        assert_int_equal(registry_pair_put(f, PREFIX "more", "1"), MUSTER_OK);
    assert_int_equal(end_call(&reader, f), MUSTER_OK);
    restore_copy(&reader, f, data); /* it checks the contents */

    assert_int_equal(unlink(data), 0);
    free(reader.bytes);
}

struct remainder {
    uint64_t bytes, left; /* of the data; behind the last piece */
    unsigned pieces;
};

static void on_piece(struct registry_ask *ask)
{
    const Etcdserverpb__SnapshotResponse *answer = ask->answer;
    struct remainder *remainder = ask->data;

    if (remainder->pieces++ > 0 && remainder->left > 0)
        assert_int_equal(answer->remaining_bytes + answer->blob.len, remainder->left);
    else
        assert_int_equal(answer->remaining_bytes == 0, remainder->pieces > 1);
    remainder->left = answer->remaining_bytes;
    remainder->bytes += answer->blob.len;
}

/* The digest behind the data does not count. */
static void each_piece_tells_how_much_is_left(void **state)
{
    Etcdserverpb__SnapshotRequest request = ETCDSERVERPB__SNAPSHOT_REQUEST__INIT;
    struct remainder remainder = {.pieces = 0};
    struct registry_pair f;
    struct registry_ask ask;

    (void)state;
    registry_pair_open(&f);
    fill_store(&f);
    registry_ask_open(&ask, f.env, f.endpoints);
    ask.data = &remainder;
    ask.on_answer = on_piece;
    registry_ask_begin(&ask, "/etcdserverpb.Maintenance/Snapshot",
                       &etcdserverpb__snapshot_response__descriptor);
    registry_ask_send(&ask, &request);
    assert_int_equal(registry_ask_end(&ask), MUSTER_OK);

    assert_true(remainder.bytes > (size_t)KEYS * VALUE_BYTES && remainder.pieces > 2);
    assert_int_equal(remainder.left, 0);
    registry_ask_close(&ask);
    registry_pair_close(&f);
}

/* A snapshot of any size takes the memory of some pieces. */
static void what_has_been_sent_takes_no_memory(void **state)
{
    struct registry_pair f;
    struct muster_mem_limited *mem = &f.test.mem;
    struct reader reader;
    size_t before;

    (void)state;
    registry_pair_open(&f);
    fill_store(&f);
    before = mem->held_peak_bytes = mem->held_bytes;
    begin_call(&reader, &f);
    assert_int_equal(end_call(&reader, &f), MUSTER_OK);

    assert_true(reader.size > (size_t)KEYS * VALUE_BYTES);
    assert_in_range(mem->held_peak_bytes - before, 1, reader.size);
    registry_pair_close(&f);
    free(reader.bytes);
}

static void there_is_one_at_a_time(void **state)
{
    struct registry_pair *f = *state;
    struct reader first, second;

    fill_store(f);

    begin_call(&first, f);
    begin_call(&second, f);
    assert_int_equal(end_call(&second, f), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(end_call(&first, f), MUSTER_OK);
    begin_call(&second, f);
    assert_int_equal(end_call(&second, f), MUSTER_OK);

    free(first.bytes);
    free(second.bytes);
}

static void one_that_is_cancelled_leaves_room_for_the_next(void **state)
{
    struct registry_pair *f = *state;
    struct reader reader;

    fill_store(f);

    begin_call(&reader, f);
    muster_registry_snapshot_cancel(&reader.snapshot);
    muster_registry_snapshot_cancel(&reader.snapshot);
    assert_false(reader.is_done);
    assert_int_equal(end_call(&reader, f), MUSTER_CANCELLED);
    free(reader.bytes);
    do {
        begin_call(&reader, f);
        (void)end_call(&reader, f);
        free(reader.bytes);
    } while (reader.rc == MUSTER_RESOURCE_EXHAUSTED); /* the server may not know it yet */
    assert_int_equal(reader.rc, MUSTER_OK);
}

static void closing_either_side_ends_it(void **state)
{
    struct registry_pair *f = *state;
    struct reader reader;

    fill_store(f);

    begin_call(&reader, f);
    test_env_turn(f->env, 8);
    registry_pair_close_client(f);
    assert_true(reader.is_done);
    assert_int_equal(reader.rc, MUSTER_CANCELLED);
    free(reader.bytes);
    registry_pair_open_client(f, f->endpoints);
    do {
        begin_call(&reader, f);
        while (reader.size == 0 && !reader.is_done)
            test_env_turn(f->env, 1);
    } while (reader.is_done);
    registry_pair_stop_server(f);
    assert_int_equal(end_call(&reader, f), MUSTER_UNAVAILABLE);
    free(reader.bytes);
}

/* A registry on a virtual clock, whose clients open their windows or not. */
struct slow_scene {
    struct rpc_stand stand;
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct rpc_raw *raw;
};

static void slow_put(struct slow_scene *scene, uint32_t stream)
{
    static uint8_t put[VALUE_BYTES + 8] = {0x0a,
                                           2,
                                           'k',
                                           0,
                                           0x12,
                                           (VALUE_BYTES & 0x7f) | 0x80,
                                           (VALUE_BYTES >> 7 & 0x7f) | 0x80,
                                           VALUE_BYTES >> 14}; /* key, value */

    put[3] = (uint8_t)stream;
    rpc_raw_headers(scene->raw, stream, "/etcdserverpb.KV/Put", NULL, NULL, 0);
    rpc_raw_message(scene->raw, stream, 0, sizeof(put), put, sizeof(put), FLAG_END_STREAM);
    rpc_stand_advance(&scene->stand, 0);
    assert_int_equal(rpc_raw_status(scene->raw, stream), MUSTER_OK);
}

/* Streams begin with a shut window. */
static void slow_open(struct slow_scene *scene)
{
    static const uint32_t shut[1][2] = {{4, 0}};
    struct muster_registry_server_options options = {.listen = NULL};
    const struct muster_registry_store_options memory = {.path = NULL};
    struct rpc_raw *raw = NULL;

    rpc_stand_open(&scene->stand, NULL);
    assert_int_equal(
        muster_registry_store_open(scene->stand.test.env.mem, &memory, &scene->store, NULL),
        MUSTER_OK);
    options.rpc_server = scene->stand.server;
    assert_int_equal(muster_registry_server_open(&scene->stand.test.env, scene->store, &options,
                                                 &scene->server, NULL),
                     MUSTER_OK);
    scene->raw = raw = rpc_raw_open(&scene->stand);
    for (uint32_t i = 0; i < KEYS; i++)
        slow_put(scene, 2 * i + 1);
    scene->raw = rpc_raw_connect(&scene->stand);
    rpc_raw_greet(scene->raw, shut, 1);
    rpc_raw_window(scene->raw, 0, 0x7fff0000);
}

static void slow_close(struct slow_scene *scene)
{
    rpc_stand_begin_close(&scene->stand, 0);
    rpc_stand_advance(&scene->stand, MUSTER_NS_PER_S);
    muster_registry_server_close(scene->server, 0, NULL);
    rpc_stand_advance(&scene->stand, MUSTER_NS_PER_S);
    muster_registry_store_close(scene->store);
    rpc_stand_close(&scene->stand);
}

static void ask_for_snapshot(struct slow_scene *scene, uint32_t stream)
{
    rpc_raw_headers(scene->raw, stream, "/etcdserverpb.Maintenance/Snapshot", NULL, NULL, 0);
    rpc_raw_message(scene->raw, stream, 0, 0, NULL, 0, FLAG_END_STREAM);
    rpc_stand_advance(&scene->stand, 0);
}

static void who_does_not_read_loses_the_place(void **state)
{
    struct slow_scene scene = {.raw = NULL};

    (void)state;
    slow_open(&scene);
    ask_for_snapshot(&scene, 1);
    ask_for_snapshot(&scene, 3);
    rpc_stand_advance(&scene.stand, 61 * MUSTER_NS_PER_S);
    ask_for_snapshot(&scene, 5);
    rpc_raw_window(scene.raw, 5, 8 << 20);
    rpc_stand_advance(&scene.stand, 0);

    assert_int_equal(rpc_raw_status(scene.raw, 3), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(rpc_raw_status(scene.raw, 5), MUSTER_OK);
    assert_true(rpc_raw_data_bytes(scene.raw, 5) > KEYS * VALUE_BYTES);
    rpc_raw_window(scene.raw, 1, 8 << 20); /* what was queued comes first */
    rpc_stand_advance(&scene.stand, 0);
    assert_int_equal(rpc_raw_status(scene.raw, 1), MUSTER_DEADLINE_EXCEEDED);
    slow_close(&scene);
}

static void who_reads_slowly_keeps_it(void **state)
{
    struct slow_scene scene = {.raw = NULL};

    (void)state;
    slow_open(&scene);
    ask_for_snapshot(&scene, 1);
    for (int i = 0; i < 8; i++) {
        rpc_raw_window(scene.raw, 1, 600 << 10);
        rpc_stand_advance(&scene.stand, 30 * MUSTER_NS_PER_S);
    }

    assert_int_equal(rpc_raw_status(scene.raw, 1), MUSTER_OK);
    slow_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_snapshot_holds_what_was_there_when_it_ended),
        CASE(writes_go_on_meanwhile_and_are_whole_or_absent),
        cmocka_unit_test(each_piece_tells_how_much_is_left),
        cmocka_unit_test(what_has_been_sent_takes_no_memory),
        CASE(there_is_one_at_a_time),
        CASE(one_that_is_cancelled_leaves_room_for_the_next),
        CASE(closing_either_side_ends_it),
        cmocka_unit_test(who_does_not_read_loses_the_place),
        cmocka_unit_test(who_reads_slowly_keeps_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
