/* Memory that a client gives to a server of its host: what the server maps, what it reads of it, and pushes to
 * tensors that are refused. The case plays the client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_peer.h"
#include "params_stand.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "params/server/core/server_internal.h"
#include "params/server/followers/follower.h"
#include "params/server/seat/seat.h"
#include "params/wire/host.h"
#include "params/wire/range.h"

#define SHARDS   8u
#define BLOCK    1024u
#define ELEMENTS (3u * BLOCK + 5u)

static const struct muster_params_schema weights = {.name = "weights",
                                                    .row_elements = BLOCK,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .tensor_elements = ELEMENTS};
static const struct muster_params_stage_token token = {{1, 2, 3}}, other_token = {{1, 2, 4}};

struct scene {
    struct params_stand stand;
    struct params_peer peer;
    uint64_t descriptor;
    uint32_t answers; /* that were looked at */
};

static void message_send(struct scene *scene, struct muster_frame_header header,
                         const void *payload)
{
    header.channel = MUSTER_FRAME_PARAMS;
    header.descriptor = scene->descriptor;
    params_peer_send(&scene->peer, &header, payload);
}

static const struct muster_frame_header *answer_await(struct scene *scene)
{
    params_peer_await(&scene->peer, scene->answers + 1);
    assert_false(scene->peer.is_down);
    return &scene->peer.headers[scene->answers++];
}

static void scene_open(struct scene *scene)
{
    const struct muster_peer_hello hello = params_peer_hello();
    const struct muster_params_open open = {.source = {{1}}, .name = "played"};
    uint8_t opening[MUSTER_PARAMS_OPEN_BYTES], schema[MUSTER_PARAMS_SCHEMA_BYTES];

    memset(scene, 0, sizeof(*scene));
    params_stand_open_seat(&scene->stand, SHARDS, (uint64_t)16 << 20);
    params_peer_open(&scene->peer, &scene->stand.test.env, scene->stand.address, &hello);
    muster_params_open_pack(&open, opening);
    muster_params_schema_pack(&weights, schema);
    message_send(
        scene,
        (struct muster_frame_header){.type = MUSTER_PARAMS_OPEN, .payload_bytes = sizeof(opening)},
        opening);
    message_send(scene,
                 (struct muster_frame_header){
                     .type = MUSTER_PARAMS_TABLE, .offset = 1, .payload_bytes = sizeof(schema)},
                 schema);
    assert_int_equal(answer_await(scene)->type, MUSTER_PARAMS_OPENED);
    scene->descriptor = answer_await(scene)->descriptor;
}

static void scene_close(struct scene *scene)
{
    params_peer_close(&scene->peer);
    test_env_turn(&scene->stand.test.env, 4);
    params_stand_close(&scene->stand);
}

static int memory_new(size_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void memory_give(const struct scene *scene, int fd)
{
    const struct muster_incarnation *id = &muster_params_seat_region(scene->stand.seat)->head->id;
    int socket = -1;

    assert_int_equal(muster_params_host_stage_connect(id, &socket), MUSTER_OK);
    assert_true(muster_params_host_stage_send(socket, &token, fd));
    close(socket);
}

static const struct muster_frame_header *memory_name(struct scene *scene,
                                                     const struct muster_params_stage_token *named)
{
    message_send(scene,
                 (struct muster_frame_header){.type = MUSTER_PARAMS_STAGE,
                                              .offset = 9,
                                              .payload_bytes = sizeof(named->bytes)},
                 named->bytes);
    return answer_await(scene);
}

static void memory_is_mapped_only_when_it_cannot_shrink(void **state)
{
    static const struct {
        const char *name;
        size_t bytes;
        int seals;
        bool is_named_wrongly, is_mapped;
    } rows[] = {
        {"right", MUSTER_PARAMS_STAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW, false, true},
        {"another token", MUSTER_PARAMS_STAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW, true, false},
        {"no seals", MUSTER_PARAMS_STAGE_BYTES, 0, false, false},
        {"it may shrink", MUSTER_PARAMS_STAGE_BYTES, F_SEAL_GROW, false, false},
        {"it is smaller", MUSTER_PARAMS_STAGE_BYTES - 4096, F_SEAL_SHRINK | F_SEAL_GROW, false,
         false},
        {"it is larger", MUSTER_PARAMS_STAGE_BYTES + 4096, F_SEAL_SHRINK | F_SEAL_GROW, false,
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_frame_header *answer;
        struct scene scene;
        int fd = memory_new(rows[i].bytes, rows[i].seals);

        scene_open(&scene);
        memory_give(&scene, fd);
        answer = memory_name(&scene, rows[i].is_named_wrongly ? &other_token : &token);
        if (answer->type != (rows[i].is_mapped ? MUSTER_PARAMS_STAGED : MUSTER_PARAMS_REFUSED) ||
            answer->offset != 9 || (!rows[i].is_mapped && answer->phase != MUSTER_UNAVAILABLE))
            fail_msg("%s: answer %u", rows[i].name, answer->type);
        if (rows[i].is_mapped) { /* a link has one */
            memory_give(&scene, fd);
            assert_int_equal(memory_name(&scene, &token)->type, MUSTER_PARAMS_REFUSED);
        }
        close(fd);
        scene_close(&scene);
    }
}

static void staged_push_send(struct scene *scene, uint64_t sequence, uint64_t offset, uint64_t at,
                             uint64_t count)
{
    const struct muster_params_range_frame range = {.offset = offset, .is_first = true};
    struct muster_frame_header header = {.type = MUSTER_PARAMS_PUSH_STAGED,
                                         .offset = sequence,
                                         .payload_bytes = MUSTER_PARAMS_STAGED_BYTES};
    uint8_t payload[MUSTER_PARAMS_STAGED_BYTES];

    muster_params_range_pack(&range, &header, NULL);
    muster_params_staged_pack(at, count, payload);
    message_send(scene, header, payload);
}

static const struct muster_frame_header *staged_push(struct scene *scene, uint64_t sequence,
                                                     uint64_t offset, uint64_t at, uint64_t count)
{
    staged_push_send(scene, sequence, offset, at, count);
    return answer_await(scene);
}

static void values_beyond_the_memory_are_refused_and_not_read(void **state)
{
    static const struct {
        const char *name;
        uint64_t offset, at, count;
        bool is_right;
    } rows[] = {
        {"the first block", 0, 0, BLOCK, true},
        {"the last room for a block", BLOCK, MUSTER_PARAMS_STAGE_BYTES - 4 * BLOCK, BLOCK, true},
        {"the part of a block, before its rest", 3 * BLOCK, 8, 5, true},
        {"a block beyond", 0, MUSTER_PARAMS_STAGE_BYTES - 4 * BLOCK + 8, BLOCK, false},
        {"the rest of a block beyond", 3 * BLOCK, MUSTER_PARAMS_STAGE_BYTES - 64, 5, false},
        {"a place beyond", 0, MUSTER_PARAMS_STAGE_BYTES + 8, BLOCK, false},
        {"a place that overflows", 0, UINT64_MAX - 7, BLOCK, false},
        {"a place that is not aligned", 0, 4, BLOCK, false},
        {"a count that overflows", 0, 0, (UINT64_C(1) << 62) + BLOCK, false},
        {"half a block", 0, 0, BLOCK / 2, false},
        {"nothing", 0, 0, 0, false},
    };
    int fd = memory_new(MUSTER_PARAMS_STAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
    uint64_t rows_pushed = 0;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    assert_int_equal(staged_push(&scene, 1, 0, 0, BLOCK)->type, MUSTER_PARAMS_REFUSED);
    memory_give(&scene, fd);
    assert_int_equal(memory_name(&scene, &token)->type, MUSTER_PARAMS_STAGED);
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_frame_header *answer =
            staged_push(&scene, 2 + i, rows[i].offset, rows[i].at, rows[i].count);

        rows_pushed += rows[i].is_right;
        if (answer->type != (rows[i].is_right ? MUSTER_PARAMS_ACK : MUSTER_PARAMS_REFUSED) ||
            params_stand_stats(&scene.stand).pushed_rows != rows_pushed)
            fail_msg("%s: answer %u", rows[i].name, answer->type);
        if (!rows[i].is_right)
            assert_true(answer->flags == MUSTER_PARAMS_REFUSED_PUSH &&
                        answer->phase == MUSTER_INVALID_ARGUMENT);
    }
    close(fd);
    scene_close(&scene);
}

/* A client that has died cannot take back what it has named: the server has the memory. */
static void values_are_read_after_their_client_has_let_go_of_them(void **state)
{
    int fd = memory_new(MUSTER_PARAMS_STAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
    float *values =
        mmap(NULL, MUSTER_PARAMS_STAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const struct muster_frame_header *answer;
    struct muster_frame_header pull = {.type = MUSTER_PARAMS_PULL_RANGE,
                                       .offset = 10,
                                       .payload_bytes = MUSTER_PARAMS_PULL_RANGE_BYTES};
    const struct muster_params_range_frame range = {.offset = 2 * BLOCK - 1, .count = 2};
    uint8_t payload[MUSTER_PARAMS_PULL_RANGE_BYTES];
    struct scene scene;
    float found[2];

    (void)state;
    assert_true(values != MAP_FAILED);
    scene_open(&scene);
    memory_give(&scene, fd);
    close(fd);
    assert_int_equal(memory_name(&scene, &token)->type, MUSTER_PARAMS_STAGED);
    values[2 + 2 * BLOCK - 1] = 5;
    values[2 + 2 * BLOCK] = 6;
    munmap(values, MUSTER_PARAMS_STAGE_BYTES);
    assert_int_equal(staged_push(&scene, 1, 0, 8, 3 * BLOCK)->type, MUSTER_PARAMS_ACK);

    muster_params_range_pack(&range, &pull, payload);
    message_send(&scene, pull, payload);
    answer = answer_await(&scene);
    assert_true(answer->type == MUSTER_PARAMS_ROWS && answer->payload_bytes == sizeof(found));
    memcpy(found, scene.peer.payloads[scene.answers - 1], sizeof(found));
    assert_true(found[0] <= 5 && found[0] >= 5 && found[1] <= 6 && found[1] >= 6);
    scene_close(&scene);
}

/* Records of the push go to followers later, when the client may fill the room again. */
static void values_are_copied_where_there_are_followers(void **state)
{
    int fd = memory_new(MUSTER_PARAMS_STAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
    struct muster_params_follower follower = {.place = MUSTER_PARAMS_NOWHERE};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    memory_give(&scene, fd);
    close(fd);
    assert_int_equal(memory_name(&scene, &token)->type, MUSTER_PARAMS_STAGED);
    follower.server = scene.stand.server;
    muster_list_init(&follower.records);
    muster_list_append(&scene.stand.server->followers, &follower.node);

    assert_int_equal(staged_push(&scene, 1, 0, 0, 3 * BLOCK)->type, MUSTER_PARAMS_ACK);
    assert_int_equal(params_stand_stats(&scene.stand).pushed_rows, 3);
    muster_list_remove(&follower.node);
    scene_close(&scene);
}

/* --- Refusals --- */

static void range_push_send(struct scene *scene, uint64_t sequence,
                            const struct muster_params_range_frame *range)
{
    static const float values[BLOCK];
    struct muster_frame_header header = {.type = MUSTER_PARAMS_PUSH_RANGE, .offset = sequence};

    muster_params_range_pack(range, &header, NULL);
    header.payload_bytes = (uint32_t)(range->count * sizeof(float));
    message_send(scene, header, values);
}

static const struct muster_frame_header *range_push(struct scene *scene, uint64_t sequence,
                                                    const struct muster_params_range_frame *range)
{
    range_push_send(scene, sequence, range);
    return answer_await(scene);
}

/* The client marks the first push to a shard, and no later one. */
static void the_push_behind_a_refused_one_is_taken(void **state)
{
    static const struct {
        const char *name;
        uint64_t offset, count;
        bool has_another_schema, is_staged;
    } rows[] = {
        {"another schema", 0, BLOCK, true, false},
        {"half a block", 0, BLOCK / 2, false, false},
        {"from within a block", 1, BLOCK - 1, false, false},
        {"no memory of the client", 0, BLOCK, false, true},
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_params_range_frame wrong = {
            .offset = rows[i].offset, .count = rows[i].count, .is_first = true};
        const struct muster_params_range_frame right = {.count = BLOCK};
        struct scene scene;

        scene_open(&scene);
        scene.descriptor ^= rows[i].has_another_schema;
        if ((rows[i].is_staged ? staged_push(&scene, 1, 0, 0, BLOCK)
                               : range_push(&scene, 1, &wrong))
                ->type != MUSTER_PARAMS_REFUSED)
            fail_msg("%s is taken", rows[i].name);
        scene.descriptor ^= rows[i].has_another_schema;
        if (range_push(&scene, 2, &right)->type != MUSTER_PARAMS_ACK)
            fail_msg("%s: the next push is refused: %.*s", rows[i].name,
                     (int)scene.peer.headers[scene.answers - 1].payload_bytes,
                     (const char *)scene.peer.payloads[scene.answers - 1]);
        assert_int_equal(params_stand_stats(&scene.stand).rows, 1);
        scene_close(&scene);
    }
}

/* --- Handovers --- */

static bool is_held_or_answered(void *data)
{
    const struct scene *scene = data;
    const struct muster_list *clients = &scene->stand.server->clients;

    return scene->peer.count > scene->answers ||
           MUSTER_CONTAINER_OF(clients->next, struct muster_params_client, node)->early.type != 0;
}

/* A push that is applied then would be missing at the heir. */
static void pushes_to_tensors_wait_for_the_end_of_a_handover(void **state)
{
    static const bool staged_rows[] = {false, true};
    const struct muster_params_range_frame block = {.count = BLOCK, .is_first = true};

    (void)state;
    for (size_t i = 0; i < sizeof(staged_rows) / sizeof(staged_rows[0]); i++) {
        int fd = memory_new(MUSTER_PARAMS_STAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
        struct scene scene;

        scene_open(&scene);
        memory_give(&scene, fd);
        close(fd);
        assert_int_equal(memory_name(&scene, &token)->type, MUSTER_PARAMS_STAGED);
        scene.stand.server->handing_count = 1;
        if (staged_rows[i])
            staged_push_send(&scene, 1, 0, 0, BLOCK);
        else
            range_push_send(&scene, 1, &block);
        test_env_run_until(&scene.stand.test.env, is_held_or_answered, &scene);
        if (scene.peer.count > scene.answers || params_stand_stats(&scene.stand).pushed_rows != 0)
            fail_msg("%s is applied amid a handover", staged_rows[i] ? "a staged push" : "a push");

        scene.stand.server->handing_count = 0;
        muster_task_post(&scene.stand.server->early_review, scene.stand.test.env.loop);
        assert_int_equal(answer_await(&scene)->type, MUSTER_PARAMS_ACK);
        assert_int_equal(params_stand_stats(&scene.stand).pushed_rows, 1);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_mapped_only_when_it_cannot_shrink),
        cmocka_unit_test(values_beyond_the_memory_are_refused_and_not_read),
        cmocka_unit_test(values_are_read_after_their_client_has_let_go_of_them),
        cmocka_unit_test(values_are_copied_where_there_are_followers),
        cmocka_unit_test(the_push_behind_a_refused_one_is_taken),
        cmocka_unit_test(pushes_to_tensors_wait_for_the_end_of_a_handover),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
