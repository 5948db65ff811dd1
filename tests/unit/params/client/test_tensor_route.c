/* Ranges of a tensor whose shard moves, or whose link is lost. The case plays the servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_puppet_calls.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "params/client/client_internal.h"
#include "params/wire/host.h"

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
    struct params_call call;
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
    scene->call = (struct params_call){.is_done = false};
    scene->call.op.data = &scene->call;
    for (uint32_t i = 0; i < 2 * BLOCK; i++)
        scene->values[i] = (float)i;
    assert_int_equal(muster_params_tensor_start(&scene->call.op, scene->table, &range, direction,
                                                puppet_deadline(&scene->puppets), params_on_call),
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

/* --- Through memory of the host --- */

#define LARGE_BLOCK    16384u
#define LARGE_ELEMENTS (32u * LARGE_BLOCK) /* two messages */

/* Other processes may play servers of the same ids at the same time. */
static void ids_draw(struct params_puppets *puppets)
{
    for (uint32_t i = 0; i < puppets->count; i++) {
        struct muster_incarnation *id = &puppets->list[i].host.hello.incarnation;

        muster_rng_fill(puppets->env->rng, &id->bytes[1], 8);
        snprintf((char *)&id->bytes[8], 8, "%d", (int)getpid());
        puppets->map->servers[i].id = *id;
    }
}

static enum muster_rc large_push(struct params_puppets *puppets, struct muster_params_table *table,
                                 struct params_call *call, float *values)
{
    const struct muster_params_range range = {.values = values};

    *call = (struct params_call){.is_done = false};
    call->op.data = call;
    return muster_params_tensor_start(&call->op, table, &range, MUSTER_PARAMS_DIRECTION_PUSH,
                                      puppet_deadline(puppets), params_on_call);
}

/* The first push offers the memory, the second one uses it. */
static void a_push_through_memory_whose_shard_moves_has_its_values_in_the_message(void **state)
{
    static const struct muster_params_schema large = {.name = "large",
                                                      .row_elements = LARGE_BLOCK,
                                                      .wire_dtype = MUSTER_F32,
                                                      .optimizer = MUSTER_PARAMS_ADD,
                                                      .tensor_elements = LARGE_ELEMENTS};
    static float values[LARGE_ELEMENTS];
    struct muster_frame_header staged = {.channel = MUSTER_FRAME_PARAMS,
                                         .type = MUSTER_PARAMS_STAGED};
    struct muster_params_table *table;
    struct params_puppet *old, *new;
    struct params_puppets puppets;
    struct params_call call;
    uint32_t shard;
    int socket = -1;

    (void)state;
    for (size_t i = 0; i < LARGE_ELEMENTS; i++)
        values[i] = (float)i;
    params_puppets_open(&puppets, 2);
    ids_draw(&puppets);
    params_puppets_client(&puppets, NULL);
    params_puppets_client_await(&puppets);
    table = params_puppets_table(&puppets, &large);
    shard = muster_params_range_shard(table, 0);
    old = &puppets.list[shard / (PARAMS_PUPPETS_SHARDS / 2)];
    new = &puppets.list[1 - old->index];
    assert_int_equal(muster_params_host_stage_open(&old->host.hello.incarnation, &socket),
                     MUSTER_OK);

    assert_int_equal(large_push(&puppets, table, &call, values), MUSTER_OK);
    staged.offset = params_puppet_expect(old, MUSTER_PARAMS_STAGE).header.offset;
    params_puppet_send(old, &staged, NULL);
    for (uint64_t i = 1; i <= 2; i++) {
        (void)params_puppet_expect(old, MUSTER_PARAMS_PUSH_RANGE);
        params_puppet_acknowledge(old, i);
    }
    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    assert_int_equal(large_push(&puppets, table, &call, values), MUSTER_OK);
    for (uint64_t i = 3; i <= 4; i++)
        assert_int_equal(params_puppet_expect(old, MUSTER_PARAMS_PUSH_STAGED).header.offset, i);
    params_puppets_move(&puppets, shard, new->index, old->index);

    for (uint64_t i = 3; i <= 4; i++) {
        struct params_puppet_frame frame = params_puppet_expect(new, MUSTER_PARAMS_PUSH_RANGE);

        assert_int_equal(frame.header.offset, i);
        assert_memory_equal(frame.payload, values + (i - 3) * LARGE_ELEMENTS / 2,
                            sizeof(values) / 2);
        params_puppet_acknowledge(new, i);
    }
    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    close(socket);
    puppet_scene_close(&puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_whose_shard_moves_goes_to_its_new_server_as_it_was),
        cmocka_unit_test(a_pull_whose_shard_moves_is_answered_by_its_new_server),
        cmocka_unit_test(a_push_that_was_cancelled_moves_too),
        cmocka_unit_test(a_push_whose_link_is_lost_is_sent_again_as_it_was),
        cmocka_unit_test(an_answer_of_another_size_ends_the_link),
        cmocka_unit_test(a_push_through_memory_whose_shard_moves_has_its_values_in_the_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
