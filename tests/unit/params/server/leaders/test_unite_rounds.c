/* Three copies of a table by round: a primary's sums that one survivor lacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_job.h"

#include <string.h>

#include "params/client/client_internal.h"
#include "params/server/followers/follower.h"
#include "params/server/state/round_internal.h"

#define SERVERS 3u
#define KEYS    PARAMS_JOB_KEYS

static const struct muster_params_schema sums = {.name =
                                                     "counters", /* the keys are of all shards */
                                                 .row_elements = 1,
                                                 .wire_dtype = MUSTER_F32,
                                                 .optimizer = MUSTER_PARAMS_ADD,
                                                 .is_by_round = true};

struct scene {
    struct params_job job;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_op push, tick;
    uint64_t keys[KEYS];
    float values[KEYS];
    uint32_t done_count; /* operations that have ended */
    uint32_t gone;       /* a server that leads other shards than that of the decisions */
    uint32_t behind;     /* a follower of it */
};

static void on_params(struct muster_params *params, enum muster_rc rc)
{
    struct scene *scene = muster_params_data(params);

    assert_int_equal(rc, MUSTER_OK);
    scene->done_count++;
}

static void on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    assert_int_equal(rc, MUSTER_OK);
    scene->done_count++;
}

static bool is_done(void *data)
{
    const struct scene *scene = data;

    return scene->done_count > 0;
}

static void done_await(struct scene *scene)
{
    test_env_run_until(scene->job.env, is_done, scene);
    scene->done_count--;
}

static uint64_t deadline_of(const struct scene *scene)
{
    return muster_loop_after_ns(scene->job.env->loop, 60 * MUSTER_NS_PER_S);
}

static void scene_open(struct scene *scene)
{
    struct muster_params_options options = {.job = "test", .clock_sources = 1, .data = scene};
    struct muster_params_op op = {.data = scene};
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    params_job_open(&scene->job, SERVERS, SERVERS);
    options.server = scene->job.members[0].address;
    options.connect_deadline_ns = deadline_of(scene);
    assert_int_equal(
        muster_params_open(scene->job.env, &options, on_params, &scene->params, &error), MUSTER_OK);
    done_await(scene);
    assert_int_equal(muster_params_table_start(&op, scene->params, &sums, &scene->table,
                                               deadline_of(scene), on_op),
                     MUSTER_OK);
    done_await(scene);
    for (uint32_t i = 0; i < KEYS; i++)
        scene->keys[i] = i;
}

static void scene_close(struct scene *scene)
{
    muster_params_close(scene->params, deadline_of(scene), on_params);
    done_await(scene);
    params_job_close(&scene->job);
}

static void push_start(struct scene *scene)
{
    const struct muster_params_rows rows = {scene->keys, scene->values, KEYS};

    scene->push.data = scene;
    for (uint32_t i = 0; i < KEYS; i++)
        scene->values[i] = 1;
    assert_int_equal(
        muster_params_push_start(&scene->push, scene->table, &rows, deadline_of(scene), on_op),
        MUSTER_OK);
}

static void tick_start(struct scene *scene, uint64_t clock)
{
    scene->tick.data = scene;
    assert_int_equal(
        muster_params_tick_start(&scene->tick, scene->params, clock, deadline_of(scene), on_op),
        MUSTER_OK);
}

static struct muster_params_server *server_of(const struct scene *scene, uint32_t i)
{
    return scene->job.members[i].server;
}

static const struct muster_params_rounds *rounds_of(const struct scene *scene, uint32_t i)
{
    assert_false(muster_list_is_empty(&server_of(scene, i)->rounds));
    return MUSTER_CONTAINER_OF(server_of(scene, i)->rounds.next, struct muster_params_rounds, node);
}

/* The server that is gone next sends that other one nothing from now on. */
static void follower_mute(struct scene *scene, uint32_t nth)
{
    const struct muster_incarnation *id;

    while (muster_params_server_leads_now(server_of(scene, scene->gone),
                                          rounds_of(scene, scene->gone)->home))
        scene->gone++;
    scene->behind = (scene->gone + nth) % SERVERS;
    id = &server_of(scene, scene->behind)->region->head->id;
    MUSTER_LIST_EACH (&server_of(scene, scene->gone)->followers, follower,
                      struct muster_params_follower, node) {
        if (muster_incarnation_is_equal(&follower->id, id))
            follower->is_met = false;
    }
}

/* The other follower has so much of a source in all shards whose primary is gone next. */
static bool has_position(const struct scene *scene, const struct muster_params_source *source,
                         uint64_t sequence)
{
    const struct muster_params_server *gone = server_of(scene, scene->gone);
    bool has_all = true;

    for (uint32_t shard = 0; shard < gone->map->shard_count; shard++) {
        if (muster_params_server_leads_now(gone, shard))
            has_all = has_all && source->positions[shard] >> 16 > sequence;
    }
    return has_all;
}

static uint32_t other_of(const struct scene *scene)
{
    return SERVERS - scene->gone - scene->behind;
}

static bool is_round_summed(void *data)
{
    const struct scene *scene = data;

    return has_position(scene, rounds_of(scene, other_of(scene))->source, 1) &&
           muster_params_table_round(scene->table) == 1;
}

static bool is_second_push_kept(void *data)
{
    const struct scene *scene = data;
    const struct muster_params_region *region = server_of(scene, other_of(scene))->region;
    const struct muster_params_source *source;
    uint64_t slot;

    source = muster_params_source_find(region, &scene->params->source.source, &slot);
    return source != NULL && has_position(scene, source, 2);
}

/* Each round adds 1. */
static void pull_compare(struct scene *scene, uint64_t rounds)
{
    const struct muster_params_rows rows = {scene->keys, scene->values, KEYS};
    struct muster_params_op op = {.data = scene};

    assert_int_equal(
        muster_params_pull_after_start(&op, scene->table, &rows, rounds, deadline_of(scene), on_op),
        MUSTER_OK);
    done_await(scene);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(scene->values[i] == (float)rounds);
}

/* The next primary cannot make these sums itself: what a source pushes to a round is kept in the place of what it has
 * pushed to the round before. */
static void a_sum_that_one_survivor_lacks_comes_before_pushes_of_the_next_round(void **state)
{
    (void)state;
    for (uint32_t nth = 1; nth < SERVERS; nth++) {
        struct scene scene;

        scene_open(&scene);
        push_start(&scene);
        done_await(&scene);
        follower_mute(&scene, nth);
        tick_start(&scene, 1);
        test_env_run_until(scene.job.env, is_round_summed, &scene);
        push_start(&scene);
        test_env_run_until(scene.job.env, is_second_push_kept, &scene);

        params_job_member_close(&scene.job, scene.gone);
        done_await(&scene);
        done_await(&scene);

        pull_compare(&scene, 1);
        tick_start(&scene, 2);
        done_await(&scene);
        pull_compare(&scene, 2);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_that_one_survivor_lacks_comes_before_pushes_of_the_next_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
