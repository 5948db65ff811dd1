/* A reader says to those that wait at its door that it goes on, as long as it does: with a source that stands still it
 * falls silent, so that they can look elsewhere. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include <muster/publication.h>

#include "params/publication/door.h"
#include "params/publication/manifest.h"
#include "params/publication/messages.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/world.h"

#define NAME         "weights"
#define PORT         7400
#define CHUNKS       40u
#define BYTES        ((uint64_t)CHUNKS * MUSTER_VERSION_CHUNK_BYTES)
#define BYTES_PER_MS 50000u /* a chunk takes 5 ms */
#define LIMIT_NS     (60 * MUSTER_NS_PER_S)
#define STANDSTILL_S 20

struct scene {
    struct sim_world *world;
    struct registry_stage *registry;
    struct sim_host *hosts[3];
    struct sim_node *nodes[3]; /* publisher, reader, one that waits at the reader's door */
    struct muster_publication *publication;
    struct muster_publication_op op;
    bool is_open;
    uint8_t *weights;
    struct muster_named_tensor tensor;
    struct muster_reader *reader;
    struct muster_peer_link *link;
    struct muster_publication_join join;
    bool is_joined, has_chunk;
    uint32_t alive_count;
    uint8_t *chunk; /* room for the answer */
};

enum { PUBLISHER, READER, WAITER };

static void on_opened(struct muster_publication *publication, enum muster_rc rc)
{
    struct scene *scene = muster_publication_data(publication);

    scene->is_open = rc == MUSTER_OK;
}

static void run_publisher(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct muster_address listen = sim_host_address(scene->hosts[PUBLISHER], PORT);
    const struct muster_publication_options options = {.name = NAME,
                                                       .job = REGISTRY_STAGE_JOB,
                                                       .registry = REGISTRY_STAGE_ENDPOINT,
                                                       .listen = &listen,
                                                       .deadline_ns = UINT64_MAX,
                                                       .data = scene};
    struct muster_error error;

    (void)node;
    scene->weights = sim_mem_alloc_surely(env->mem, BYTES);
    memset(scene->weights, 7, BYTES);
    if (muster_publication_open(env, &options, on_opened, &scene->publication, &error) != MUSTER_OK)
        sim_fail(scene->world, "the publisher does not open: %s", error.text);
}

static void on_version(struct muster_reader *reader)
{
    (void)reader;
}

static void run_reader(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct muster_address listen = sim_host_address(scene->hosts[READER], PORT);
    const struct muster_reader_options options = {.name = NAME,
                                                  .job = REGISTRY_STAGE_JOB,
                                                  .registry = REGISTRY_STAGE_ENDPOINT,
                                                  .listen = &listen};
    struct muster_error error;

    (void)node;
    if (muster_reader_open(env, &options, on_version, &scene->reader, &error) != MUSTER_OK)
        sim_fail(scene->world, "the reader does not open: %s", error.text);
}

/* --- The one that waits --- */

static void message_send(struct scene *scene, struct muster_frame_header header,
                         const void *payload, size_t bytes)
{
    if (!muster_publication_send(scene->link, header, payload, bytes))
        sim_fail(scene->world, "a message is not sent");
}

static void on_ready(struct muster_peer_link *link)
{
    struct scene *scene = muster_peer_link_data(link);
    const struct muster_frame_header join = {.type = MUSTER_PUBLICATION_JOIN};
    const struct muster_frame_header ask = {
        .type = MUSTER_PUBLICATION_CHUNK_REQUEST, .op.step = 1, .chunk = CHUNKS - 1};
    uint8_t bytes[MUSTER_PUBLICATION_JOIN_BYTES];

    muster_publication_join_pack(&scene->join, bytes);
    message_send(scene, join, bytes, sizeof(bytes));
    message_send(scene, ask, NULL, 0);
    scene->is_joined = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct scene *scene = muster_peer_link_data(link);

    scene->alive_count += header->type == MUSTER_PUBLICATION_ALIVE;
    return header->type == MUSTER_PUBLICATION_CHUNK ? scene->chunk : NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct scene *scene = muster_peer_link_data(link);

    (void)buffer;
    scene->has_chunk = scene->has_chunk || header->type == MUSTER_PUBLICATION_CHUNK;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct scene *scene = muster_peer_link_data(link);

    sim_fail(scene->world, "the door is closed: %s", error->text);
}

static const struct muster_peer_link_events link_events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void run_waiter(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct muster_address address = sim_host_address(scene->hosts[READER], PORT);
    struct muster_peer_hello hello;

    (void)node;
    muster_publication_hello_fill(env, REGISTRY_STAGE_JOB, &hello);
    strcpy(scene->join.name, NAME);
    scene->join.reader = hello.incarnation;
    scene->chunk = sim_mem_alloc_surely(env->mem, MUSTER_VERSION_CHUNK_BYTES);
    if (muster_peer_link_open(env, &address, &hello, UINT64_MAX, &link_events, scene,
                              &scene->link) != MUSTER_OK)
        sim_fail(scene->world, "a link does not open");
}

/* --- The play --- */

static bool is_open(void *data)
{
    const struct scene *scene = data;
    struct muster_publication_stats stats = {.readers = 0};

    if (scene->is_open)
        muster_publication_stats(scene->publication, &stats);
    return stats.readers == 1;
}

static bool is_under_way(void *data)
{
    const struct scene *scene = data;
    struct muster_reader_stats stats;

    muster_reader_stats(scene->reader, &stats);
    return stats.chunks_received >= CHUNKS / 4;
}

static bool is_joined(void *data)
{
    return ((const struct scene *)data)->is_joined;
}

static bool has_chunk(void *data)
{
    return ((const struct scene *)data)->has_chunk;
}

static void scene_run_until(struct scene *scene, sim_condition_fn *condition, const char *what)
{
    if (!sim_run_until(scene->world, condition, scene, LIMIT_NS))
        fail_msg("%s: %s", what,
                 sim_failure(scene->world) != NULL ? sim_failure(scene->world) : "does not come");
}

static void node_start(struct scene *scene, uint32_t which, const char *name, sim_main_fn *start)
{
    scene->nodes[which] = sim_node_start(
        scene->world,
        &(struct sim_node_options){
            .name = name, .host = scene->hosts[which], .start = start, .data = scene});
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    (void)op;
    (void)rc;
}

static void scene_put(struct scene *scene)
{
    const struct muster_publication_put put = {
        .tensors = &scene->tensor, .count = 1, .deadline_ns = UINT64_MAX};
    enum muster_rc rc;

    scene->tensor = (struct muster_named_tensor){
        .name = "w", .dtype = MUSTER_U8, .count = BYTES, .data = scene->weights};
    sim_enter(scene->nodes[PUBLISHER]);
    rc = muster_publication_put_start(&scene->op, scene->publication, &put, on_put);
    sim_leave(scene->nodes[PUBLISHER]);
    assert_int_equal(rc, MUSTER_OK);
}

/* The reader is in the middle of a version, and another one waits at its door for the last chunk. */
static void scene_open(struct scene *scene)
{
    static const char *const names[] = {"publisher", "reader", "waiter"};
    struct sim_conditions conditions = sim_conditions_calm;

    conditions.host_bytes_per_ms = BYTES_PER_MS;
    scene->world = sim_world_open(1, &conditions);
    scene->registry =
        registry_stage_open(scene->world, sim_host_add(scene->world, "registry"), NULL);
    for (uint32_t i = 0; i < 3; i++)
        scene->hosts[i] = sim_host_add(scene->world, names[i]);
    node_start(scene, PUBLISHER, "publisher", run_publisher);
    node_start(scene, READER, "reader", run_reader);
    scene_run_until(scene, is_open, "the reader");
    scene_put(scene);
    scene_run_until(scene, is_under_way, "the version");
    node_start(scene, WAITER, "waiter", run_waiter);
    scene_run_until(scene, is_joined, "the one that waits");
}

static void a_reader_whose_source_stands_still_falls_silent(void **state)
{
    const uint32_t most = MUSTER_PUBLICATION_SILENCE_NS / MUSTER_PUBLICATION_ALIVE_NS + 1;
    struct scene scene = {.is_open = false};

    (void)state;
    scene_open(&scene);
    sim_pause(scene.nodes[PUBLISHER]);
    assert_true(sim_run_for(scene.world, STANDSTILL_S * MUSTER_NS_PER_S));
    print_message("%u signs of life in %u s\n", scene.alive_count, STANDSTILL_S);
    assert_in_range(scene.alive_count, 2, most); /* while the reader waits for its source itself */
    assert_false(scene.has_chunk);
    sim_resume(scene.nodes[PUBLISHER]);
    scene_run_until(&scene, has_chunk, "the chunk");

    registry_stage_close(scene.registry);
    (void)!sim_world_close(scene.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_whose_source_stands_still_falls_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
