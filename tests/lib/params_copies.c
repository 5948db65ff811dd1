#include "params_copies.h"

#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/server/followers/follower.h"

#define ROWS PARAMS_COPIES_ROWS

const struct muster_params_schema params_copies_counters = {.name = "counters",
                                                            .row_elements = 2,
                                                            .wire_dtype = MUSTER_F32,
                                                            .optimizer = MUSTER_PARAMS_ADAGRAD,
                                                            .learning_rate = 0.5f};

static void on_params(struct muster_params *params, enum muster_rc rc)
{
    struct params_copies *scene = muster_params_data(params);

    scene->is_done = true;
    scene->rc = rc;
}

void params_copies_on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_copies *scene = op->data;

    scene->is_done = true;
    scene->rc = rc;
}

void params_copies_await(struct params_copies *scene)
{
    test_env_run_until(scene->job.env, test_env_is_true, &scene->is_done);
    assert_int_equal(scene->rc, MUSTER_OK);
    scene->is_done = false;
}

uint64_t params_copies_deadline(const struct params_copies *scene)
{
    return muster_loop_after_ns(scene->job.env->loop, 60 * MUSTER_NS_PER_S);
}

void params_copies_connect(struct params_copies *scene)
{
    const struct muster_params_options options = {.server = scene->job.members[0].address,
                                                  .job = "test",
                                                  .connect_deadline_ns =
                                                      params_copies_deadline(scene),
                                                  .data = scene};
    struct muster_params_op op = {.data = scene};
    struct muster_error error;

    assert_int_equal(
        muster_params_open(scene->job.env, &options, on_params, &scene->params, &error), MUSTER_OK);
    params_copies_await(scene);
    assert_int_equal(muster_params_table_start(&op, scene->params, &params_copies_counters,
                                               &scene->table, params_copies_deadline(scene),
                                               params_copies_on_op),
                     MUSTER_OK);
    params_copies_await(scene);
}

void params_copies_push(struct params_copies *scene)
{
    struct muster_params_op op = {.data = scene};
    uint64_t keys[ROWS];
    float values[ROWS][2];
    const struct muster_params_rows rows = {keys, values, ROWS};

    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i;
        values[i][0] = (float)i;
        values[i][1] = 1;
    }
    assert_int_equal(muster_params_push_start(&op, scene->table, &rows,
                                              params_copies_deadline(scene), params_copies_on_op),
                     MUSTER_OK);
    params_copies_await(scene);
}

void params_copies_pull(struct params_copies *scene, float ret_values[ROWS][2])
{
    struct muster_params_op op = {.data = scene};
    uint64_t keys[ROWS];
    const struct muster_params_rows rows = {keys, ret_values, ROWS};

    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    assert_int_equal(muster_params_pull_start(&op, scene->table, &rows,
                                              params_copies_deadline(scene), params_copies_on_op),
                     MUSTER_OK);
    params_copies_await(scene);
}

void params_copies_serve(struct params_copies *scene, uint32_t servers, uint32_t replicas)
{
    memset(scene, 0, sizeof(*scene));
    params_job_prepare(&scene->job, servers, replicas);
    for (uint32_t i = 0; i < servers; i++)
        params_job_member_open(&scene->job, i);
}

void params_copies_open(struct params_copies *scene, uint32_t servers, uint32_t replicas)
{
    params_copies_serve(scene, servers, replicas);
    params_copies_connect(scene);
}

void params_copies_join(struct params_copies *scene, uint32_t member)
{
    assert_int_equal(member, scene->job.count);
    params_job_member_open(&scene->job, member);
    scene->job.count++;
}

void params_copies_close(struct params_copies *scene)
{
    muster_params_close(scene->params, params_copies_deadline(scene), on_params);
    params_copies_await(scene);
    params_job_close(&scene->job);
}

/* The acknowledgements of followers are not read, whatever they have done. */
void params_copies_pause(struct params_copies *scene, bool is_paused)
{
    for (uint32_t i = 0; i < 2; i++) {
        MUSTER_LIST_EACH (&scene->job.members[i].server->followers, follower,
                          struct muster_params_follower, node) {
            if (is_paused)
                muster_peer_link_pause(follower->link);
            else
                muster_peer_link_resume(follower->link);
        }
    }
}

struct muster_params_digest params_copies_digest(const struct params_copies *scene, uint32_t member)
{
    const struct muster_params_region *region = scene->job.members[member].server->region;
    const struct muster_params_store_table *table = muster_params_table_find(region, "counters");

    assert_non_null(table);
    return muster_params_table_digest(region, table);
}

uint32_t params_copies_shard_led(const struct params_copies *scene, uint32_t i)
{
    const struct muster_params_server *server = scene->job.members[i].server;
    uint32_t shard = 0;

    while (!muster_params_server_leads(server, shard, server->map->epoch))
        shard++;
    return shard;
}

bool params_copies_are_whole(const struct params_copies *scene)
{
    const struct muster_params_map *map = NULL;

    for (uint32_t i = 0; i < scene->job.count; i++) {
        if (scene->job.members[i].server != NULL)
            map = scene->job.members[i].server->map;
    }
    for (uint32_t shard = 0; map != NULL && shard < PARAMS_CALLER_SHARDS; shard++) {
        if (map->shards[shard].copy_count != map->copies_wanted ||
            map->shards[shard].learner_count != 0)
            return false;
    }
    return map != NULL;
}

bool params_copies_are_two(void *data)
{
    const struct params_copies *scene = data;

    return scene->job.members[0].server->map->server_count == 2 && params_copies_are_whole(scene);
}
