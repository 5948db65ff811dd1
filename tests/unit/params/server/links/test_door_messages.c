/* The door of links: messages that no client sends, wrong rows, and clients that do not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_peer.h"
#include "params_stand.h"

#include <string.h>

#include "net/link/peer_link_internal.h"
#include "net/stream/socket_internal.h"
#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/wire/hash.h"

#define SHARDS 8u

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 2,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

/* A client that the case plays. */
struct scene {
    struct params_stand stand;
    struct params_peer peer;
    uint64_t descriptor; /* of the table */
};

static void message_send(struct scene *scene, uint8_t type, uint64_t number, const void *payload,
                         uint32_t bytes)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = type,
                                               .offset = number,
                                               .descriptor = scene->descriptor,
                                               .payload_bytes = bytes};

    params_peer_send(&scene->peer, &header, payload);
}

static void open_send(struct scene *scene, uint8_t source)
{
    const struct muster_params_open open = {.source = {{source}}, .name = "played"};
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];

    muster_params_open_pack(&open, bytes);
    message_send(scene, MUSTER_PARAMS_OPEN, 0, bytes, sizeof(bytes));
}

/* Connected; nothing is said yet. */
static void scene_connect(struct scene *scene)
{
    const struct muster_peer_hello hello = params_peer_hello();

    memset(scene, 0, sizeof(*scene));
    params_stand_open(&scene->stand, SHARDS);
    params_peer_open(&scene->peer, &scene->stand.test.env, scene->stand.address, &hello);
}

/* Source 0 is opened, and table 0: two frames have come. */
static void scene_open(struct scene *scene)
{
    uint8_t schema[MUSTER_PARAMS_SCHEMA_BYTES];

    scene_connect(scene);
    open_send(scene, 1);
    muster_params_schema_pack(&counters, schema);
    message_send(scene, MUSTER_PARAMS_TABLE, 1, schema, sizeof(schema));
    params_peer_await(&scene->peer, 2);
    assert_int_equal(scene->peer.headers[0].type, MUSTER_PARAMS_OPENED);
    assert_int_equal(scene->peer.headers[1].type, MUSTER_PARAMS_TABLE_OPEN);
    scene->descriptor = scene->peer.headers[1].descriptor;
}

static void scene_close(struct scene *scene)
{
    params_peer_close(&scene->peer);
    test_env_turn(&scene->stand.test.env, 4);
    params_stand_close(&scene->stand);
}

static uint16_t shard_of(uint64_t key)
{
    uint64_t seed = muster_params_hash_seed("counters");

    return (uint16_t)muster_params_shard_of(muster_params_hash(seed, key), SHARDS);
}

/* --- Messages that no client sends --- */

static void messages_that_no_client_sends_end_the_link(void **state)
{
    static uint8_t bytes[256];
    static const struct {
        const char *name;
        struct muster_frame_header header;
        bool is_open;
    } rows[] = {
        {"another channel",
         {.channel = MUSTER_FRAME_MEMBERSHIP, .type = MUSTER_PARAMS_OPEN, .payload_bytes = 88},
         false},
        {"type 0", {.channel = MUSTER_FRAME_PARAMS, .type = 0}, true},
        {"an answer", {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_OPENED}, true},
        {"an acknowledgement", {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_ACK}, true},
        {"a type beyond all",
         {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_PULL + 1},
         true},
        {"the last type", {.channel = MUSTER_FRAME_PARAMS, .type = 255}, true},
        {"a large opening",
         {.channel = MUSTER_FRAME_PARAMS,
          .type = MUSTER_PARAMS_OPEN,
          .payload_bytes = MUSTER_PARAMS_OPEN_BYTES + 1},
         false},
        {"a large schema",
         {.channel = MUSTER_FRAME_PARAMS,
          .type = MUSTER_PARAMS_TABLE,
          .payload_bytes = MUSTER_PARAMS_SCHEMA_BYTES + 1},
         true},
        {"a table before opening",
         {.channel = MUSTER_FRAME_PARAMS,
          .type = MUSTER_PARAMS_TABLE,
          .payload_bytes = MUSTER_PARAMS_SCHEMA_BYTES},
         false},
        {"a push before opening",
         {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_PUSH, .payload_bytes = 64},
         false},
        {"a pull before opening",
         {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_PULL, .payload_bytes = 64},
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        if (rows[i].is_open)
            scene_open(&scene);
        else
            scene_connect(&scene);
        params_peer_send(&scene.peer, &rows[i].header, bytes);
        params_peer_await_down(&scene.peer);
        fail_if(scene.peer.count != (rows[i].is_open ? 2u : 0u), "%s: answered", rows[i].name);
        assert_int_equal(params_stand_stats(&scene.stand).clients, 0);
        scene_close(&scene);
    }
}

static void links_for_other_things_are_ended(void **state)
{
    static const struct {
        const char *name;
        enum muster_link_purpose purpose;
        enum muster_link_intent intent;
    } rows[] = {{"control", MUSTER_LINK_CONTROL, MUSTER_LINK_NEW},
                {"data", MUSTER_LINK_DATA, MUSTER_LINK_NEW}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct muster_peer_hello hello = params_peer_hello();

        memset(&scene, 0, sizeof(scene));
        hello.purpose = rows[i].purpose;
        hello.intent = rows[i].intent;
        params_stand_open(&scene.stand, SHARDS);
        params_peer_open(&scene.peer, &scene.stand.test.env, scene.stand.address, &hello);
        params_peer_await_down(&scene.peer);
        assert_int_equal(params_stand_stats(&scene.stand).clients, 0);
        scene_close(&scene);
    }
}

/* --- Messages that are refused with a text --- */

static void check_refusal(struct scene *scene, uint32_t frame, enum muster_rc rc, const char *text)
{
    char found[256] = "";

    params_peer_await(&scene->peer, frame + 1);
    fail_if(scene->peer.is_down, "the link is down, expected: %s", text);
    assert_int_equal(scene->peer.headers[frame].type, MUSTER_PARAMS_REFUSED);
    memcpy(found, scene->peer.payloads[frame], scene->peer.headers[frame].payload_bytes);
    assert_int_equal(scene->peer.headers[frame].phase, rc);
    assert_string_equal(found, text);
}

static void a_link_names_its_source_once(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    open_send(&scene, 2);
    check_refusal(&scene, 2, MUSTER_FAILED_PRECONDITION, "the link has named its source already");
    assert_int_equal(params_stand_stats(&scene.stand).sources, 1);
    scene_close(&scene);
}

/* Its pushes of the step have been refused. */
static void a_tick_of_an_older_process_is_refused(void **state)
{
    const struct muster_peer_hello hello = params_peer_hello();
    const struct muster_params_open open = {.source = {{1}}, .name = "played"};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_OPEN,
                                               .payload_bytes = MUSTER_PARAMS_OPEN_BYTES};
    uint8_t opening[MUSTER_PARAMS_OPEN_BYTES], tick[MUSTER_PARAMS_TICK_BYTES];
    struct params_peer younger = {.discards = false};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    muster_params_tick_pack(&(struct muster_params_tick){.clock = 3, .source_count = 1}, tick);
    message_send(&scene, MUSTER_PARAMS_TICK, 2, tick, sizeof(tick));
    params_peer_await(&scene.peer, 3);
    assert_int_equal(scene.peer.headers[2].type, MUSTER_PARAMS_TICKED);
    muster_params_open_pack(&open, opening);
    params_peer_open(&younger, &scene.stand.test.env, scene.stand.address, &hello);
    params_peer_send(&younger, &header, opening);
    params_peer_await(&younger, 1);
    assert_int_equal(younger.headers[0].type, MUSTER_PARAMS_OPENED);

    muster_params_tick_pack(&(struct muster_params_tick){.clock = 4, .source_count = 1}, tick);
    message_send(&scene, MUSTER_PARAMS_TICK, 3, tick, sizeof(tick));
    check_refusal(&scene, 3, MUSTER_ABORTED, MUSTER_PARAMS_YOUNGER);
    assert_int_equal(scene.stand.server->clocks.low, 3);
    params_peer_close(&younger);
    scene_close(&scene);
}

static void a_source_without_an_id_is_refused(void **state)
{
    struct scene scene;

    (void)state;
    scene_connect(&scene);
    open_send(&scene, 0);
    check_refusal(&scene, 0, MUSTER_INVALID_ARGUMENT, "message OPEN of parameters has no source");
    open_send(&scene, 1); /* the link goes on */
    params_peer_await(&scene.peer, 2);
    assert_int_equal(scene.peer.headers[1].type, MUSTER_PARAMS_OPENED);
    scene_close(&scene);
}

/* A push or pull as a client makes it, but for what a row of the table changes. */
struct wrong {
    const char *name;
    enum muster_rc rc;
    const char *text;
    uint64_t number;
    uint64_t slot;
    uint32_t table;
    enum muster_dtype dtype;
    uint16_t shard; /* of the run, added to the right one */
    uint32_t bytes; /* added to the right ones */
    bool has_another_descriptor, is_not_first, is_pull;
};

static void wrong_send(struct scene *scene, const struct wrong *wrong)
{
    const uint64_t key = 42;
    struct muster_params_rows_frame frame = {.slot = wrong->slot,
                                             .table = wrong->table,
                                             .row_count = 1,
                                             .run_count = wrong->is_pull ? 0 : 1,
                                             .dtype = (uint8_t)wrong->dtype};
    size_t bytes =
        muster_params_rows_bytes(frame.run_count, 1, wrong->is_pull ? 0 : 2, wrong->dtype);
    static _Alignas(8) uint8_t payload[256];
    uint64_t descriptor = scene->descriptor;
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;

    memset(payload, 0, sizeof(payload));
    muster_params_rows_pack(&frame, payload, &runs, &keys, &values);
    if (!wrong->is_pull) {
        runs[0].shard = (uint16_t)((shard_of(key) + wrong->shard) % SHARDS);
        runs[0].rows = 1;
        if (!wrong->is_not_first)
            runs[0].shard |= MUSTER_PARAMS_RUN_FIRST;
    }
    keys[0] = key;
    scene->descriptor += wrong->has_another_descriptor;
    message_send(scene, wrong->is_pull ? MUSTER_PARAMS_PULL : MUSTER_PARAMS_PUSH, wrong->number,
                 payload, (uint32_t)bytes + wrong->bytes);
    scene->descriptor = descriptor;
}

static void wrong_rows_are_refused_and_change_nothing(void **state)
{
    static const struct wrong rows[] = {
        {.name = "not the first",
         .rc = MUSTER_FAILED_PRECONDITION,
         .number = 1,
         .is_not_first = true},
        {.name = "slot",
         .rc = MUSTER_INVALID_ARGUMENT,
         .text = "a push of source 7 came over the link of source 0",
         .number = 1,
         .slot = 7},
        {.name = "table",
         .rc = MUSTER_INVALID_ARGUMENT,
         .text = "the server has no table of number 1",
         .number = 1,
         .table = 1},
        {.name = "dtype",
         .rc = MUSTER_INVALID_ARGUMENT,
         .text = "values of table counters must be f32, got bf16",
         .number = 1,
         .dtype = MUSTER_BF16},
        {.name = "dtype of a pull",
         .rc = MUSTER_INVALID_ARGUMENT,
         .text = "values of table counters must be f32, got f16",
         .number = 1,
         .dtype = MUSTER_F16,
         .is_pull = true},
        {.name = "sequence 0",
         .rc = MUSTER_INVALID_ARGUMENT,
         .text = "the sequence number of a push must be from 1 to 2^47 - 1, got 0"},
        {.name = "sequence beyond",
         .rc = MUSTER_INVALID_ARGUMENT,
         .text = "the sequence number of a push must be from 1 to 2^47 - 1, got 140737488355328",
         .number = UINT64_C(1) << 47},
        {.name = "shard", .rc = MUSTER_INVALID_ARGUMENT, .number = 1, .shard = 1},
        {.name = "size", .rc = MUSTER_INVALID_ARGUMENT, .number = 1, .bytes = 4},
        {.name = "size of a pull",
         .rc = MUSTER_INVALID_ARGUMENT,
         .number = 1,
         .bytes = 8,
         .is_pull = true},
        {.name = "descriptor",
         .rc = MUSTER_INVALID_ARGUMENT,
         .number = 1,
         .has_another_descriptor = true},
        {.name = "descriptor of a pull",
         .rc = MUSTER_INVALID_ARGUMENT,
         .number = 1,
         .has_another_descriptor = true,
         .is_pull = true},
    };
    struct scene scene;
    uint32_t count = sizeof(rows) / sizeof(rows[0]);
    const struct wrong right = {.number = 1};

    (void)state;
    scene_open(&scene);
    for (uint32_t i = 0; i < count; i++) {
        const struct muster_frame_header *header = &scene.peer.headers[2 + i];

        wrong_send(&scene, &rows[i]);
        params_peer_await(&scene.peer, 3 + i);
        fail_if(scene.peer.is_down || header->type != MUSTER_PARAMS_REFUSED ||
                    header->phase != (uint32_t)rows[i].rc || header->offset != rows[i].number ||
                    header->flags != (rows[i].is_pull ? 0 : MUSTER_PARAMS_REFUSED_PUSH),
                "%s", rows[i].name);
        if (rows[i].text != NULL)
            check_refusal(&scene, 2 + i, rows[i].rc, rows[i].text);
    }
    assert_int_equal(params_stand_stats(&scene.stand).rows, 0);
    assert_int_equal(params_stand_stats(&scene.stand).pushes, 0);
    wrong_send(&scene, &right);
    params_peer_await(&scene.peer, 3 + count);

    assert_int_equal(scene.peer.headers[2 + count].type, MUSTER_PARAMS_ACK);
    assert_int_equal(params_stand_stats(&scene.stand).rows, 1);
    scene_close(&scene);
}

/* The client marks the source's first push to a shard, and no later one. */
static void the_push_behind_a_refused_one_is_taken(void **state)
{
    static const struct wrong rows[] = {
        {.name = "dtype", .number = 1, .dtype = MUSTER_BF16},
        {.name = "descriptor", .number = 1, .has_another_descriptor = true},
    };
    const struct wrong right = {.number = 2, .is_not_first = true};

    (void)state;
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        scene_open(&scene);
        wrong_send(&scene, &rows[i]);
        wrong_send(&scene, &right);
        params_peer_await(&scene.peer, 4);

        fail_if(scene.peer.headers[2].type != MUSTER_PARAMS_REFUSED ||
                    scene.peer.headers[3].type != MUSTER_PARAMS_ACK,
                "%s", rows[i].name);
        assert_int_equal(params_stand_stats(&scene.stand).rows, 1);
        scene_close(&scene);
    }
}

/* --- Rows without memory --- */

#define WIDE 16384u

/* A row of its own; it returns the answer. */
static struct muster_params_ack wide_push(struct scene *scene, uint64_t key, uint32_t frame)
{
    const struct muster_params_rows_frame head = {
        .table = 1, .row_count = 1, .run_count = 1, .dtype = (uint8_t)MUSTER_F32};
    size_t bytes = muster_params_rows_bytes(1, 1, WIDE, MUSTER_F32);
    uint64_t seed = muster_params_hash_seed("wide"), *keys;
    uint8_t *payload = test_malloc(bytes);
    struct muster_params_run *runs;
    struct muster_params_ack ack;
    void *values;

    memset(payload, 0, bytes);
    muster_params_rows_pack(&head, payload, &runs, &keys, &values);
    runs[0].shard = (uint16_t)(muster_params_shard_of(muster_params_hash(seed, key), SHARDS) |
                               MUSTER_PARAMS_RUN_FIRST);
    runs[0].rows = 1;
    keys[0] = key;
    message_send(scene, MUSTER_PARAMS_PUSH, key, payload, (uint32_t)bytes);
    test_free(payload);
    params_peer_await(&scene->peer, frame + 1);
    assert_int_equal(scene->peer.headers[frame].type, MUSTER_PARAMS_ACK);
    muster_params_ack_unpack(scene->peer.payloads[frame], &ack);
    return ack;
}

/* The first answer may be lost, or the push may have moved in part. */
static void a_repetition_tells_of_rows_that_were_refused(void **state)
{
    const struct muster_params_schema wide = {.name = "wide",
                                              .row_elements = WIDE,
                                              .wire_dtype = MUSTER_F32,
                                              .optimizer = MUSTER_PARAMS_ADD};
    uint8_t schema[MUSTER_PARAMS_SCHEMA_BYTES];
    struct muster_params_ack ack = {.rc = MUSTER_OK};
    struct scene scene;
    uint64_t key = 0;
    uint32_t frame = 2;

    (void)state;
    scene_open(&scene);
    muster_params_schema_pack(&wide, schema);
    message_send(&scene, MUSTER_PARAMS_TABLE, 2, schema, sizeof(schema));
    params_peer_await(&scene.peer, ++frame);
    scene.descriptor = scene.peer.headers[2].descriptor;
    while (ack.rc == MUSTER_OK)
        ack = wide_push(&scene, ++key, frame++);
    assert_int_equal(ack.refused, 1);

    ack = wide_push(&scene, key, frame++);
    assert_int_equal(ack.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(ack.refused, 1);
    assert_true(params_stand_stats(&scene.stand).duplicate_runs == 1);
    assert_int_equal(params_stand_stats(&scene.stand).refused_rows, 1);
    scene_close(&scene);
}

/* --- Clients that do not read --- */

#define PULL_ROWS 60000u
#define PULLS     900u

/* Each pull of 16 bytes a row is answered with 8 bytes a row: 480 KB. */
static void pull_pack(uint8_t *payload)
{
    const struct muster_params_rows_frame frame = {.row_count = PULL_ROWS,
                                                   .dtype = (uint8_t)MUSTER_F32};
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;

    muster_params_rows_pack(&frame, payload, &runs, &keys, &values);
    for (uint64_t i = 0; i < PULL_ROWS; i++)
        keys[i] = i;
}

struct greedy {
    struct scene *scene;
    struct muster_frame frames[PULLS];
    uint8_t *payload;
    unsigned sent;
    uint64_t last;  /* pulls at the last look */
    unsigned quiet; /* looks without a new one */
};

static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct greedy *greedy = frame->data;

    greedy->sent += rc == MUSTER_OK;
}

static bool is_quiet(void *data)
{
    struct greedy *greedy = data;
    uint64_t pulls = params_stand_stats(&greedy->scene->stand).pulls;

    greedy->quiet = pulls == greedy->last ? greedy->quiet + 1 : 0;
    greedy->last = pulls;
    return greedy->quiet == 200;
}

static bool is_answered(void *data)
{
    const struct greedy *greedy = data;

    return params_stand_stats(&greedy->scene->stand).pulls == PULLS;
}

static void keep_turning(struct muster_task *task)
{
    struct greedy *greedy = task->data;

    muster_task_post(task, greedy->scene->stand.test.env.loop);
}

/* Answers of more than 64 MiB wait, and no further pull is read; when the client reads, all are
 * answered. */
static void a_client_that_does_not_read_is_not_read_from(void **state)
{
    static struct greedy greedy;
    struct scene scene;
    uint32_t bytes = (uint32_t)muster_params_rows_bytes(0, PULL_ROWS, 0, MUSTER_F32);
    struct muster_task turning;

    (void)state;
    scene_open(&scene);
    greedy.scene = &scene;
    greedy.payload = test_malloc(bytes);
    pull_pack(greedy.payload);
    scene.peer.discards = true;
    muster_peer_link_pause(scene.peer.link);
    for (unsigned i = 0; i < PULLS; i++) {
        greedy.frames[i] = (struct muster_frame){.data = &greedy,
                                                 .header = {.channel = MUSTER_FRAME_PARAMS,
                                                            .type = MUSTER_PARAMS_PULL,
                                                            .offset = i + 10,
                                                            .descriptor = scene.descriptor,
                                                            .payload_bytes = bytes},
                                                 .payload = greedy.payload};
        assert_int_equal(muster_peer_link_send(&greedy.frames[i], scene.peer.link, on_sent),
                         MUSTER_OK);
    }
    muster_task_init(&turning, keep_turning, &greedy);
    muster_task_post(&turning, scene.stand.test.env.loop);
    test_env_run_until(&scene.stand.test.env, is_quiet, &greedy);

    assert_true(greedy.last >= (64u << 20) / (PULL_ROWS * 8));
    assert_true(greedy.last < (96u << 20) / (PULL_ROWS * 8)); /* and what the sockets hold */
    muster_peer_link_resume(scene.peer.link);
    test_env_run_until(&scene.stand.test.env, is_answered, &greedy);
    assert_int_equal(params_stand_stats(&scene.stand).clients, 1);
    muster_task_cancel(&turning);
    scene_close(&scene);
    test_free(greedy.payload);
}

static void answers_leave_in_the_event_of_their_message(void **state)
{
    const struct muster_params_client *client;
    struct scene scene;

    (void)state;
    scene_connect(&scene);

    client =
        MUSTER_CONTAINER_OF(scene.stand.server->clients.next, struct muster_params_client, node);
    assert_true(muster_stream_socket_of(client->link->stream)->is_prompt);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_leave_in_the_event_of_their_message),
        cmocka_unit_test(messages_that_no_client_sends_end_the_link),
        cmocka_unit_test(links_for_other_things_are_ended),
        cmocka_unit_test(a_link_names_its_source_once),
        cmocka_unit_test(a_tick_of_an_older_process_is_refused),
        cmocka_unit_test(a_source_without_an_id_is_refused),
        cmocka_unit_test(wrong_rows_are_refused_and_change_nothing),
        cmocka_unit_test(the_push_behind_a_refused_one_is_taken),
        cmocka_unit_test(a_repetition_tells_of_rows_that_were_refused),
        cmocka_unit_test(a_client_that_does_not_read_is_not_read_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
