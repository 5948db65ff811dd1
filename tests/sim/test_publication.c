/* Versions to many readers whose hosts have one network card each: how long they take, compared with the bound that
 * no way to distribute them is below. PUBLICATION_READERS and PUBLICATION_CHUNKS in the environment: a larger play,
 * for which a release build is better (docs/performance.md). */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/publication.h>

#include "params/publication/manifest.h"
#include "params/publication/model.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/world.h"

#define NAME           "weights"
#define PORT           7400
#define READERS        256u
#define CHUNKS         40u
#define BYTES_PER_MS   50000u /* 400 Mbit/s */
#define OPEN_NS        (60 * MUSTER_NS_PER_S)
#define PUT_TIMEOUT_NS (600 * MUSTER_NS_PER_S)

struct play {
    struct sim_world *world;
    struct registry_stage *registry;
    struct sim_host *publisher_host;
    struct sim_node *publisher;
    uint32_t reader_count;
    uint64_t bytes; /* of a version */
    /* In the publisher's process. */
    struct muster_publication *publication;
    struct muster_publication_op op;
    uint8_t *weights;
    bool is_open, is_put;
    enum muster_rc rc;
};

struct seat {
    struct play *play;
    struct sim_host *host;
    struct sim_node *node;
    struct muster_reader *reader;
};

static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void on_opened(struct muster_publication *publication, enum muster_rc rc)
{
    struct play *play = muster_publication_data(publication);

    play->is_open = rc == MUSTER_OK;
}

static void run_publisher(struct sim_node *node, struct muster_env *env, void *data)
{
    struct play *play = data;
    struct muster_address listen = sim_host_address(play->publisher_host, PORT);
    const struct muster_publication_options options = {.name = NAME,
                                                       .job = REGISTRY_STAGE_JOB,
                                                       .registry = REGISTRY_STAGE_ENDPOINT,
                                                       .listen = &listen,
                                                       .deadline_ns = UINT64_MAX,
                                                       .data = play};
    struct muster_error error;

    (void)node;
    play->weights = sim_mem_alloc_surely(env->mem, play->bytes);
    for (uint64_t i = 0; i < play->bytes; i++)
        play->weights[i] = (uint8_t)(i * 131 + i / 251);
    if (muster_publication_open(env, &options, on_opened, &play->publication, &error) != MUSTER_OK)
        sim_fail(play->world, "the publisher does not open: %s", error.text);
}

static void on_version(struct muster_reader *reader)
{
    (void)reader;
}

static void run_reader(struct sim_node *node, struct muster_env *env, void *data)
{
    struct seat *seat = data;
    struct muster_address listen = sim_host_address(seat->host, PORT);
    const struct muster_reader_options options = {.name = NAME,
                                                  .job = REGISTRY_STAGE_JOB,
                                                  .registry = REGISTRY_STAGE_ENDPOINT,
                                                  .listen = &listen,
                                                  .data = seat};
    struct muster_error error;

    (void)node;
    if (muster_reader_open(env, &options, on_version, &seat->reader, &error) != MUSTER_OK)
        sim_fail(seat->play->world, "a reader does not open: %s", error.text);
}

static bool is_open(void *data)
{
    const struct play *play = data;
    struct muster_publication_stats stats = {.readers = 0};

    if (!play->is_open)
        return false;
    muster_publication_stats(play->publication, &stats);
    return stats.readers == play->reader_count;
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    struct play *play = op->data;

    play->is_put = true;
    play->rc = rc;
}

static bool is_put(void *data)
{
    return ((const struct play *)data)->is_put;
}

/* A version that all readers wait for. Returns how long it took. */
static double play_put(struct play *play)
{
    const struct muster_named_tensor tensor = {
        .name = "w", .dtype = MUSTER_U8, .count = play->bytes, .data = play->weights};
    struct muster_publication_put put = {
        .tensors = &tensor, .count = 1, .wait_readers = play->reader_count};
    uint64_t begin_ns = sim_world_now_ns(play->world);
    enum muster_rc rc;

    play->is_put = false;
    play->op.data = play;
    sim_enter(play->publisher);
    put.deadline_ns = muster_loop_after_ns(sim_node_env(play->publisher)->loop, PUT_TIMEOUT_NS);
    rc = muster_publication_put_start(&play->op, play->publication, &put, on_put);
    sim_leave(play->publisher);
    assert_int_equal(rc, MUSTER_OK);
    if (!sim_run_until(play->world, is_put, play, PUT_TIMEOUT_NS))
        fail_msg("%s", sim_failure(play->world) != NULL ? sim_failure(play->world) : "no end");
    if (play->rc != MUSTER_OK)
        fail_msg("%s", play->op.error.text);
    return (double)(sim_world_now_ns(play->world) - begin_ns) * 1e-9;
}

static void play_open(struct play *play, struct seat *seats)
{
    struct sim_conditions conditions = sim_conditions_calm;

    conditions.host_bytes_per_ms = BYTES_PER_MS;
    play->world = sim_world_open(1, &conditions);
    sim_world_share_once(play->world); /* a thousand versions do not fit into memory */
    play->registry = registry_stage_open(play->world, sim_host_add(play->world, "registry"), NULL);
    play->publisher_host = sim_host_add(play->world, "publisher");
    play->publisher =
        sim_node_start(play->world, &(struct sim_node_options){.name = "publisher",
                                                               .host = play->publisher_host,
                                                               .start = run_publisher,
                                                               .data = play});
    for (uint32_t i = 0; i < play->reader_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "reader%" PRIu32, i);
        seats[i].play = play;
        seats[i].host = sim_host_add(play->world, name);
        seats[i].node = sim_node_start(
            play->world,
            &(struct sim_node_options){
                .name = name, .host = seats[i].host, .start = run_reader, .data = &seats[i]});
    }
    if (!sim_run_until(play->world, is_open, play, OPEN_NS))
        fail_msg("%s", sim_failure(play->world) != NULL ? sim_failure(play->world) : "not open");
}

/* Nobody dies: nobody may leave its source, and the publisher sends each chunk once. Returns the ratio to the bound. */
static double play_version(uint32_t reader_count, uint32_t chunk_count)
{
    struct play play = {.reader_count = reader_count,
                        .bytes = (uint64_t)chunk_count * MUSTER_VERSION_CHUNK_BYTES};
    const struct muster_publication_load load = {.host_count = play.reader_count,
                                                 .bytes = play.bytes,
                                                 .chunk_bytes = MUSTER_VERSION_CHUNK_BYTES,
                                                 .bytes_per_s = BYTES_PER_MS * 1e3,
                                                 .latency_s = 1e-4};
    struct seat *seats = calloc(play.reader_count, sizeof(*seats));
    struct muster_publication_stats stats;
    double took_s, bound_s = muster_publication_lower_bound_s(&load);

    assert_non_null(seats);
    play_open(&play, seats);
    took_s = play_put(&play);
    muster_publication_stats(play.publication, &stats);

    print_message("%" PRIu32 " readers, %" PRIu64 " bytes: %.1f ms, bound %.1f ms, ratio %.3f; "
                  "from the publisher %" PRIu64 " bytes; one after the other %.1f ms\n",
                  play.reader_count, play.bytes, took_s * 1e3, bound_s * 1e3, took_s / bound_s,
                  stats.bytes_sent, muster_publication_star_s(&load) * 1e3);
    for (uint32_t i = 0; i < play.reader_count; i++) {
        struct muster_reader_stats reader;

        muster_reader_stats(seats[i].reader, &reader);
        assert_int_equal(reader.parents_lost, 0); /* all live */
    }
    assert_true(took_s >= bound_s);
    assert_true(stats.bytes_sent == play.bytes);
    registry_stage_close(play.registry);
    (void)!sim_world_close(play.world);
    free(seats);
    return took_s / bound_s;
}

static void a_version_reaches_all_readers_within_1_3_of_the_bound(void **state)
{
    (void)state;
    assert_true(play_version(number_of("PUBLICATION_READERS", READERS),
                             number_of("PUBLICATION_CHUNKS", CHUNKS)) <= 1.3);
}

/* The publisher tells all of them at once where to fetch. What it tells is short, and those that others wait for are
 * told first: the chunk reaches the last reader soon. */
static void one_chunk_reaches_a_thousand_readers_within_2_5_of_the_bound(void **state)
{
    (void)state;
    assert_true(play_version(1000, 1) < 2.5); /* one chunk: depth counts more than bytes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_reaches_all_readers_within_1_3_of_the_bound),
        cmocka_unit_test(one_chunk_reaches_a_thousand_readers_within_2_5_of_the_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
