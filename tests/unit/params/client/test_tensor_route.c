/* Ranges of a tensor whose shard moves, or whose link is lost. The case plays the servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_puppet_calls.h"

#include <string.h>

#include "params/client/client_internal.h"

#define BLOCK 1024u

static const struct muster_params_schema weights = {.name = "weights",
                                                    .row_elements = BLOCK,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .tensor_elements = 4 * BLOCK};

struct scene {
    struct params_puppets puppets;
    struct muster_params_table *table;
    uint32_t shard;
    struct params_puppet *old, *new; /* the shard moves from one to the other */
    struct puppet_call call;
    float values[2 * BLOCK];
};

static void scene_open(struct scene *scene, enum muster_params_direction direction)
{
    const struct muster_params_range range = {
        .offset = BLOCK, .count = 2 * BLOCK, .values = scene->values};
    uint32_t leader;

    puppet_scene_init(&scene->puppets, 2);
    scene->table = params_puppets_table(&scene->puppets, &weights);
    scene->shard = muster_params_range_shard(scene->table, 0);
    leader = scene->shard / (PARAMS_PUPPETS_SHARDS / 2);
    scene->old = &scene->puppets.list[leader];
    scene->new = &scene->puppets.list[1 - leader];
    scene->call = (struct puppet_call){.is_done = false};
    scene->call.op.data = &scene->call;
    for (uint32_t i = 0; i < 2 * BLOCK; i++)
        scene->values[i] = (float)i;
    assert_int_equal(muster_params_tensor_start(&scene->call.op, scene->table, &range, direction,
                                                puppet_deadline(&scene->puppets), puppet_on_call),
                     MUSTER_OK);
}

static void shard_move(struct scene *scene)
{
    params_puppets_move(&scene->puppets, scene->shard, scene->new->index, scene->old->index);
}

static struct params_puppet_frame range_expect(struct scene *scene, struct params_puppet *puppet,
                                               enum muster_params_message type)
{
    struct params_puppet_frame frame = params_puppet_expect(puppet, type);
    const struct muster_params_tensor *tensor = &scene->table->tensor;
    struct muster_params_range_frame range;

    assert_int_equal(
        muster_params_range_unpack(&frame.header, frame.payload, tensor, &range, NULL), MUSTER_OK);
    assert_int_equal(range.offset, BLOCK);
    assert_int_equal(range.count, 2 * BLOCK);
    assert_int_equal(range.table, 5 + puppet->index);
    assert_int_equal(frame.header.epoch, scene->puppets.map->epoch);
    return frame;
}

static void a_push_whose_shard_moves_goes_to_its_new_server_as_it_was(void **state)
{
    struct params_puppet_frame frame;
    static struct scene scene;

    (void)state;
    scene_open(&scene, MUSTER_PARAMS_DIRECTION_PUSH);
    frame = range_expect(&scene, scene.old, MUSTER_PARAMS_PUSH_RANGE);
    assert_int_equal(frame.header.flags, MUSTER_PARAMS_RANGE_FIRST);
    assert_int_equal(frame.header.offset, 1);
    shard_move(&scene);

    frame = range_expect(&scene, scene.new, MUSTER_PARAMS_PUSH_RANGE);
    assert_int_equal(frame.header.flags, MUSTER_PARAMS_RANGE_FIRST);
    assert_int_equal(frame.header.offset, 1);
    assert_true(frame.header.chunk != 0);
    assert_memory_equal(frame.payload, scene.values, sizeof(scene.values));
    params_puppet_acknowledge(scene.old, 1); /* nobody waits for it there */
    test_env_turn(scene.puppets.env, 20);
    assert_false(scene.call.is_done);
    params_puppet_acknowledge(scene.new, 1);
    assert_int_equal(puppet_call_await(&scene.puppets, &scene.call), MUSTER_OK);
    assert_int_equal(scene.call.done_count, 1);
    puppet_scene_close(&scene.puppets);
}

static void a_pull_whose_shard_moves_is_answered_by_its_new_server(void **state)
{
    struct muster_frame_header answer = {.channel = MUSTER_FRAME_PARAMS,
                                         .type = MUSTER_PARAMS_ROWS,
                                         .payload_bytes = 2 * BLOCK * sizeof(float)};
    struct params_puppet_frame frame;
    float values[2 * BLOCK];
    static struct scene scene;

    (void)state;
    for (uint32_t i = 0; i < 2 * BLOCK; i++)
        values[i] = (float)(7 * i);
    scene_open(&scene, MUSTER_PARAMS_DIRECTION_PULL);
    (void)range_expect(&scene, scene.old, MUSTER_PARAMS_PULL_RANGE);
    shard_move(&scene);

    frame = range_expect(&scene, scene.new, MUSTER_PARAMS_PULL_RANGE);
    answer.offset = frame.header.offset;
    params_puppet_send(scene.new, &answer, values);
    assert_int_equal(puppet_call_await(&scene.puppets, &scene.call), MUSTER_OK);
    assert_memory_equal(scene.values, values, sizeof(values));
    puppet_scene_close(&scene.puppets);
}

/* The copy of its values goes with a push whose operation has ended. */
static void a_push_that_was_cancelled_moves_too(void **state)
{
    struct params_puppet_frame frame;
    float values[2 * BLOCK];
    static struct scene scene;

    (void)state;
    scene_open(&scene, MUSTER_PARAMS_DIRECTION_PUSH);
    memcpy(values, scene.values, sizeof(values));
    (void)range_expect(&scene, scene.old, MUSTER_PARAMS_PUSH_RANGE);
    muster_params_op_cancel(&scene.call.op);
    assert_int_equal(puppet_call_await(&scene.puppets, &scene.call), MUSTER_CANCELLED);
    memset(scene.values, 0, sizeof(scene.values));
    shard_move(&scene);

    frame = range_expect(&scene, scene.new, MUSTER_PARAMS_PUSH_RANGE);
    assert_memory_equal(frame.payload, values, sizeof(values));
    params_puppet_acknowledge(scene.new, 1);
    puppet_scene_close(&scene.puppets);
}

static void a_push_whose_link_is_lost_is_sent_again_as_it_was(void **state)
{
    struct params_puppet_frame frame;
    static struct scene scene;

    (void)state;
    scene_open(&scene, MUSTER_PARAMS_DIRECTION_PUSH);
    (void)range_expect(&scene, scene.old, MUSTER_PARAMS_PUSH_RANGE);
    params_puppet_hang_up(scene.old);
    (void)params_puppet_reopen(scene.old, 1);

    frame = range_expect(&scene, scene.old, MUSTER_PARAMS_PUSH_RANGE);
    assert_int_equal(frame.header.offset, 1);
    assert_int_equal(frame.header.flags, MUSTER_PARAMS_RANGE_FIRST);
    assert_memory_equal(frame.payload, scene.values, sizeof(scene.values));
    params_puppet_acknowledge(scene.old, 1);
    assert_int_equal(puppet_call_await(&scene.puppets, &scene.call), MUSTER_OK);
    puppet_scene_close(&scene.puppets);
}

static void an_answer_of_another_size_ends_the_link(void **state)
{
    struct muster_frame_header answer = {
        .channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_ROWS, .payload_bytes = 8};
    struct params_puppet_frame frame;
    static struct scene scene;

    (void)state;
    scene_open(&scene, MUSTER_PARAMS_DIRECTION_PULL);
    frame = range_expect(&scene, scene.old, MUSTER_PARAMS_PULL_RANGE);
    answer.offset = frame.header.offset;
    params_puppet_send(scene.old, &answer, "12345678");
    (void)params_puppet_reopen(scene.old, 1);
    frame = range_expect(&scene, scene.old, MUSTER_PARAMS_PULL_RANGE);

    answer.offset = frame.header.offset;
    answer.payload_bytes = sizeof(scene.values);
    params_puppet_send(scene.old, &answer, scene.values);
    assert_int_equal(puppet_call_await(&scene.puppets, &scene.call), MUSTER_OK);
    puppet_scene_close(&scene.puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_whose_shard_moves_goes_to_its_new_server_as_it_was),
        cmocka_unit_test(a_pull_whose_shard_moves_is_answered_by_its_new_server),
        cmocka_unit_test(a_push_that_was_cancelled_moves_too),
        cmocka_unit_test(a_push_whose_link_is_lost_is_sent_again_as_it_was),
        cmocka_unit_test(an_answer_of_another_size_ends_the_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
