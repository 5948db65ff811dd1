/* Three copies: those that outlive a primary give each other what they have of its last changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_job.h"

#include <string.h>

#include "params/client/client_internal.h"
#include "params/client/forward.h"
#include "params/map/place.h"
#include "params/server/followers/follower.h"
#include "params/server/followers/tail.h"
#include "params/server/leaders/leader_internal.h"
#include "params/server/registry/registration_internal.h"
#include "params/server/state/round_internal.h"
#include "params/store/row.h"
#include "params/store/turnover.h"

#define KEYS PARAMS_JOB_KEYS

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

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
    uint64_t keys[KEYS];
    float values[KEYS];
    bool is_done;
    enum muster_rc rc;
};

static void on_params(struct muster_params *params, enum muster_rc rc)
{
    struct scene *scene = muster_params_data(params);

    scene->is_done = true;
    scene->rc = rc;
}

static void on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    scene->is_done = true;
    scene->rc = rc;
}

static void end_await(struct scene *scene, enum muster_rc expected)
{
    test_env_run_until(scene->job.env, test_env_is_true, &scene->is_done);
    assert_int_equal(scene->rc, expected);
    scene->is_done = false;
}

static void done_await(struct scene *scene)
{
    end_await(scene, MUSTER_OK);
}

static uint64_t deadline_of(const struct scene *scene)
{
    return muster_loop_after_ns(scene->job.env->loop, 60 * MUSTER_NS_PER_S);
}

static void scene_open_copied(struct scene *scene, const struct muster_params_schema *schema,
                              uint32_t servers, uint32_t replicas)
{
    struct muster_params_options options = {
        .job = "test", .clock_sources = schema->is_by_round ? 1 : 0, .data = scene};
    struct muster_params_op op = {.data = scene};
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    params_job_open(&scene->job, servers, replicas);
    options.server = scene->job.members[servers > 2 ? 2 : 0].address;
    options.connect_deadline_ns = deadline_of(scene);
    assert_int_equal(
        muster_params_open(scene->job.env, &options, on_params, &scene->params, &error), MUSTER_OK);
    done_await(scene);
    assert_int_equal(muster_params_table_start(&op, scene->params, schema, &scene->table,
                                               deadline_of(scene), on_op),
                     MUSTER_OK);
    done_await(scene);
    for (uint32_t i = 0; i < KEYS; i++)
        scene->keys[i] = i;
}

static void scene_open_with(struct scene *scene, const struct muster_params_schema *schema,
                            uint32_t servers)
{
    scene_open_copied(scene, schema, servers, 3);
}

static void scene_open(struct scene *scene, const struct muster_params_schema *schema)
{
    scene_open_with(scene, schema, 3);
}

static void scene_close(struct scene *scene)
{
    muster_params_close(scene->params, deadline_of(scene), on_params);
    done_await(scene);
    params_job_close(&scene->job);
}

static void push_start(struct scene *scene, struct muster_params_op *op)
{
    const struct muster_params_rows rows = {scene->keys, scene->values, KEYS};

    op->data = scene;
    for (uint32_t i = 0; i < KEYS; i++)
        scene->values[i] = 1;
    assert_int_equal(muster_params_push_start(op, scene->table, &rows, deadline_of(scene), on_op),
                     MUSTER_OK);
}

static void push_run(struct scene *scene)
{
    struct muster_params_op op;

    push_start(scene, &op);
    done_await(scene);
}

static void pull_compare(struct scene *scene, float expected)
{
    const struct muster_params_rows rows = {scene->keys, scene->values, KEYS};
    struct muster_params_op op = {.data = scene};

    assert_int_equal(muster_params_pull_start(&op, scene->table, &rows, deadline_of(scene), on_op),
                     MUSTER_OK);
    done_await(scene);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(scene->values[i] == expected);
}

static struct muster_params_server *server_of(const struct scene *scene, uint32_t i)
{
    return scene->job.members[i].server;
}

static struct muster_params_digest digest_of(const struct scene *scene, uint32_t i)
{
    const struct muster_params_region *region = server_of(scene, i)->region;

    return muster_params_table_digest(region, muster_params_table_find(region, "counters"));
}

/* The server's end of its link to that other one. NULL: there is none. */
static struct muster_params_follower *follower_of(const struct scene *scene, uint32_t server,
                                                  uint32_t other)
{
    const struct muster_incarnation *id = &server_of(scene, other)->region->head->id;

    MUSTER_LIST_EACH (&server_of(scene, server)->followers, follower, struct muster_params_follower,
                      node) {
        if (muster_incarnation_is_equal(&follower->id, id))
            return follower;
    }
    return NULL;
}

/* The first server sends that other one nothing from now on. */
static void follower_mute(const struct scene *scene, uint32_t other)
{
    follower_of(scene, 0, other)->is_met = false;
}

struct shard_look {
    const struct scene *scene;
    uint32_t server;
    uint64_t sequence; /* of the only source: it is applied to all shards of the first server */
};

static bool is_applied(void *data)
{
    const struct shard_look *look = data;
    const struct muster_params_region *region = server_of(look->scene, look->server)->region;
    const struct muster_params_map *map = server_of(look->scene, 0)->map;

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_server_leads(server_of(look->scene, 0), shard, map->epoch) &&
            muster_params_source_at(region, 0)->positions[shard] >> 16 <= look->sequence)
            return false;
    }
    return true;
}

/* No copy had to be made anew. */
static void assert_both_have_all(const struct scene *scene)
{
    const struct muster_params_map *map = server_of(scene, 1)->map;

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        assert_int_equal(map->shards[shard].copy_count, 2);
        assert_int_equal(map->shards[shard].learner_count, 0);
    }
}

static void a_push_that_one_survivor_lacks_is_given_to_it(void **state)
{
    (void)state;
    for (uint32_t behind = 1; behind <= 2; behind++) {
        struct muster_params_digest first, second;
        struct muster_params_op push;
        struct scene scene;
        struct shard_look look = {.scene = &scene, .server = 3 - behind, .sequence = 2};

        scene_open(&scene, &counters);
        push_run(&scene);
        follower_mute(&scene, behind);
        push_start(&scene, &push);
        test_env_run_until(scene.job.env, is_applied, &look);
        assert_false(scene.is_done);

        params_job_member_close(&scene.job, 0);
        done_await(&scene);
        assert_both_have_all(&scene);
        pull_compare(&scene, 2);
        first = digest_of(&scene, 1);
        second = digest_of(&scene, 2);
        assert_memory_equal(&first, &second, sizeof(first));
        scene_close(&scene);
    }
}

/* --- A server that learns while the copies give each other what they have --- */

/* All copies but the one that is behind have the first server's last push. */
static bool is_applied_elsewhere(void *data)
{
    const struct shard_look *look = data;
    const struct muster_params_server *first = server_of(look->scene, 0);
    const struct muster_params_map *map = first->map;

    for (uint32_t i = 1; i < look->scene->job.count; i++) {
        const struct muster_params_server *other = server_of(look->scene, i);

        for (uint32_t shard = 0; shard < map->shard_count && i != look->server; shard++) {
            if (muster_params_server_leads(first, shard, map->epoch) &&
                muster_params_map_is_copy(map, shard, other->place) &&
                muster_params_source_at(other->region, 0)->positions[shard] >> 16 <= look->sequence)
                return false;
        }
    }
    return true;
}

static bool is_whole_without_first(void *data)
{
    const struct scene *scene = data;
    const struct muster_params_map *map = server_of(scene, 1)->map;
    bool is_whole = map->server_count == 3;

    for (uint32_t shard = 0; shard < map->shard_count; shard++)
        is_whole = is_whole && map->shards[shard].copy_count == 3;
    return is_whole;
}

/* Its push is not answered, and nobody sends it again. */
static void client_abandon(struct scene *scene)
{
    muster_params_close(scene->params, muster_loop_now_ns(scene->job.env->loop), on_params);
    end_await(scene, MUSTER_DEADLINE_EXCEEDED);
    scene->params = NULL;
}

static void a_server_that_learns_gets_what_its_teacher_is_given(void **state)
{
    (void)state;
    for (uint32_t behind = 1; behind <= 3; behind++) {
        struct muster_params_op push;
        struct scene scene;
        struct shard_look look = {.scene = &scene, .server = behind, .sequence = 2};

        scene_open_with(&scene, &counters, 4);
        push_run(&scene);
        follower_mute(&scene, behind);
        push_start(&scene, &push);
        test_env_run_until(scene.job.env, is_applied_elsewhere, &look);
        client_abandon(&scene);

        params_job_member_close(&scene.job, 0);
        test_env_run_until(scene.job.env, is_whole_without_first, &scene);

        for (uint32_t other = 2; other <= 3; other++) {
            struct muster_params_digest first = digest_of(&scene, 1);
            struct muster_params_digest second = digest_of(&scene, other);

            assert_memory_equal(&first, &second, sizeof(first));
        }
        params_job_close(&scene.job);
    }
}

/* --- A push that is refused --- */

/* The client takes a round for open that no server has come to. */
static void early_push_start(struct scene *scene, struct muster_params_op *op)
{
    const struct muster_params_forward_push push = {.rows = {scene->keys, scene->values, KEYS},
                                                    .clock = 5};

    scene->table->round = 5;
    op->data = scene;
    assert_int_equal(
        muster_params_forward_start(op, scene->table, &push, deadline_of(scene), on_op), MUSTER_OK);
}

static void assert_same_positions(const struct scene *scene, uint32_t one, uint32_t other)
{
    const struct muster_params_region *region = server_of(scene, one)->region;
    uint32_t known = 0;

    for (uint32_t shard = 0; shard < region->head->shard_count; shard++) {
        known += muster_params_source_at(region, 0)->positions[shard] == (uint64_t)1 << 16;
        assert_true(muster_params_positions_digest(region, shard) ==
                    muster_params_positions_digest(server_of(scene, other)->region, shard));
    }
    assert_int_equal(known, region->head->shard_count);
}

static void all_copies_know_of_a_refusal_before_the_client_does(void **state)
{
    struct muster_params_op op;
    struct scene scene;

    (void)state;
    scene_open(&scene, &sums);

    early_push_start(&scene, &op);
    end_await(&scene, MUSTER_FAILED_PRECONDITION);

    assert_same_positions(&scene, 0, 1);
    assert_same_positions(&scene, 0, 2);
    scene_close(&scene);
}

static void a_refusal_that_one_survivor_lacks_is_given_to_it(void **state)
{
    (void)state;
    for (uint32_t behind = 1; behind <= 2; behind++) {
        struct muster_params_op op;
        struct scene scene;
        struct shard_look look = {.scene = &scene, .server = 3 - behind};

        scene_open(&scene, &sums);
        follower_mute(&scene, behind);
        early_push_start(&scene, &op);
        test_env_run_until(scene.job.env, is_applied, &look);

        params_job_member_close(&scene.job, 0);
        end_await(&scene, MUSTER_FAILED_PRECONDITION);

        assert_both_have_all(&scene);
        assert_same_positions(&scene, 1, 2);
        scene_close(&scene);
    }
}

/* --- A source that has a name --- */

static bool is_united_without_first(void *data)
{
    const struct scene *scene = data;

    for (uint32_t i = 1; i <= 2; i++) {
        const struct muster_params_server *server = server_of(scene, i);

        if (server->map->server_count != 2 || muster_params_unite_waits(server))
            return false;
        MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
            if (!muster_list_is_empty(&follower->records))
                return false;
        }
    }
    return true;
}

/* The survivor that leads one of the first server's shards next. */
static uint32_t heir_find(const struct scene *scene)
{
    const struct muster_params_map *map = server_of(scene, 0)->map;
    uint32_t shard = 0;

    while (!muster_params_server_leads(server_of(scene, 0), shard, map->epoch))
        shard++;
    return map->shards[shard].copies[1] == server_of(scene, 1)->place ? 1 : 2;
}

/* Without it the lease would drop what its processes have pushed. */
static void a_source_that_a_tail_tells_of_has_its_name(void **state)
{
    struct muster_params_op push;
    struct scene scene;
    struct shard_look look = {.scene = &scene, .sequence = 1};
    uint32_t heir;

    (void)state;
    scene_open(&scene, &counters);
    heir = heir_find(&scene);
    look.server = 3 - heir;
    follower_mute(&scene, heir);
    push_start(&scene, &push);
    test_env_run_until(scene.job.env, is_applied, &look);
    muster_params_source_at(server_of(&scene, look.server)->region, 0)->flags |=
        MUSTER_PARAMS_SOURCE_NAMED;
    client_abandon(&scene);

    params_job_member_close(&scene.job, 0);
    test_env_run_until(scene.job.env, is_united_without_first, &scene);

    assert_int_not_equal(muster_params_source_at(server_of(&scene, heir)->region, 0)->flags &
                             MUSTER_PARAMS_SOURCE_NAMED,
                         0);
    params_job_close(&scene.job);
}

/* --- A row that is removed --- */

/* No row of it is evicted here, but one could be. */
static const struct muster_params_schema evicted = {.name = "counters",
                                                    .row_elements = 1,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .rows_max = 64 * KEYS};

static struct muster_params_leader *leader_of(const struct scene *scene, uint32_t server,
                                              uint32_t other)
{
    const struct muster_incarnation *id = &server_of(scene, other)->region->head->id;

    MUSTER_LIST_EACH (&server_of(scene, server)->leaders, leader, struct muster_params_leader,
                      node) {
        if (muster_incarnation_is_equal(&leader->id, id))
            return leader;
    }
    return NULL;
}

/* The copy hears from the first server that a row of each of its shards goes with its next push,
 * and nothing of the push. */
static void removals_tell(const struct scene *scene, uint32_t server)
{
    const struct muster_params_server *first = server_of(scene, 0);
    const struct muster_params_store_table *table =
        muster_params_table_find(first->region, "counters");
    struct muster_params_leader *leader = leader_of(scene, server, 0);
    const struct muster_frame_header header = {.offset = 2,
                                               .chunk =
                                                   muster_params_table_number(first->region, table),
                                               .descriptor = table->descriptor,
                                               .epoch = first->map->epoch,
                                               .op.step = first->record_count + 1};

    for (uint32_t shard = 0; shard < first->map->shard_count; shard++) {
        struct muster_params_turned turned = {.shard = shard, .kind = MUSTER_PARAMS_TURNED_REMOVED};
        struct muster_frame_header message = header;

        if (!muster_params_server_leads(first, shard, first->map->epoch))
            continue;
        while (muster_params_key_shard(table, turned.key, first->map->shard_count) != shard)
            turned.key++;
        message.payload_bytes = sizeof(turned);
        assert_true(muster_params_leader_turnover(leader, &message, (uint8_t *)(void *)&turned));
        assert_int_equal(server_of(scene, server)->region->head->removals[shard], 1);
    }
}

/* A primary that dies, or gives the shard away, may have told one copy of a removal, and not of
 * the push behind it. */
static void a_removal_without_its_push_is_given_to_all_copies(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= 2; ahead++) {
        struct scene scene;

        scene_open(&scene, &evicted);
        push_run(&scene);
        pull_compare(&scene, 1);
        for (uint32_t i = 1; i <= 2; i++)
            muster_params_tail_sweep(server_of(&scene, i));
        removals_tell(&scene, ahead);

        params_job_member_close(&scene.job, 0);
        test_env_run_until(scene.job.env, is_united_without_first, &scene);

        assert_both_have_all(&scene);
        for (uint32_t shard = 0; shard < server_of(&scene, 1)->map->shard_count; shard++)
            assert_int_equal(server_of(&scene, 1)->region->head->removals[shard],
                             server_of(&scene, 2)->region->head->removals[shard]);
        scene_close(&scene);
    }
}

/* --- Rounds --- */

static const struct muster_params_rounds *rounds_of(const struct scene *scene, uint32_t i)
{
    const struct muster_list *rounds = &server_of(scene, i)->rounds;

    assert_false(muster_list_is_empty(rounds));
    return MUSTER_CONTAINER_OF(rounds->next, struct muster_params_rounds, node);
}

/* The server that decides about rounds; its predecessor is gone. */
static uint32_t home_find(const struct scene *scene, uint32_t gone)
{
    uint32_t i = 0;

    while (i == gone ||
           !muster_params_server_leads_now(server_of(scene, i), rounds_of(scene, i)->home))
        assert_true(++i < 3);
    return i;
}

/* The servers read nothing from their followers. */
static void followers_pause(const struct scene *scene, uint32_t gone, bool is_paused)
{
    for (uint32_t i = 0; i < 3; i++) {
        if (i == gone)
            continue;
        MUSTER_LIST_EACH (&server_of(scene, i)->followers, follower, struct muster_params_follower,
                          node) {
            if (is_paused)
                muster_peer_link_pause(follower->link);
            else
                muster_peer_link_resume(follower->link);
        }
    }
}

struct home_look {
    const struct scene *scene;
    uint32_t server, gone;
};

static bool have_survivors_a_map(void *data)
{
    const struct home_look *look = data;

    for (uint32_t i = 0; i < 3; i++) {
        if (i != look->gone && server_of(look->scene, i)->map->server_count > 2)
            return false;
    }
    return true;
}

static bool is_at_home(void *data)
{
    const struct home_look *look = data;

    return rounds_of(look->scene, look->server)->is_home;
}

static void rounds_go_on_when_the_copies_have_answered(void **state)
{
    struct scene scene;
    struct home_look look = {.scene = &scene};

    (void)state;
    scene_open(&scene, &sums);
    look.gone = home_find(&scene, UINT32_MAX);
    followers_pause(&scene, look.gone, true);
    params_job_member_close(&scene.job, look.gone);
    test_env_run_until(scene.job.env, have_survivors_a_map, &look);
    look.server = home_find(&scene, look.gone);

    test_env_turn(scene.job.env, 200);
    assert_true(muster_params_unite_waits(server_of(&scene, look.server)));
    assert_false(is_at_home(&look));

    followers_pause(&scene, look.gone, false);
    test_env_run_until(scene.job.env, is_at_home, &look);
    assert_false(muster_params_unite_waits(server_of(&scene, look.server)));
    scene_close(&scene);
}

static void what_all_copies_have_is_not_kept(void **state)
{
    struct scene scene;
    uint64_t most = 0;

    (void)state;
    scene_open(&scene, &counters);

    for (int i = 0; i < 300; i++) {
        push_run(&scene);
        for (uint32_t j = 0; j < 3; j++)
            most =
                server_of(&scene, j)->tail.count > most ? server_of(&scene, j)->tail.count : most;
    }

    assert_in_range(most, 1, 100);
    scene_close(&scene);
}

/* --- A shard that moves, with two replicas --- */

/* Two servers get a third, which some shards have as their second copy, and then a fourth: of a shard that the third
 * and the fourth are to have, the primary leaves the map when the fourth has learned it. */
struct move {
    struct scene scene;
    uint32_t behind; /* the third or the fourth: it lacks the last push of these shards */
};

#define THIRD  2u
#define FOURTH 3u

static const struct muster_params_map *map_of(const struct move *move)
{
    return server_of(&move->scene, 0)->map;
}

static bool is_primary_to_leave(const struct muster_params_map *map, uint32_t shard)
{
    uint16_t targets[MUSTER_PARAMS_COPIES_MAX];
    uint32_t count = muster_params_place_targets(map, NULL, shard, targets);

    for (uint32_t i = 0; i < count; i++) {
        if (targets[i] == map->shards[shard].copies[0])
            return false;
    }
    return true;
}

/* Whether all servers have the same map, by which some learn or none does. No shard may have one copy alone. */
static bool has_map(const struct move *move, bool has_learners)
{
    uint64_t epoch = map_of(move) != NULL ? map_of(move)->epoch : 0;
    bool is_same = true;
    uint32_t learners = 0;

    for (uint32_t i = 0; i < move->scene.job.count; i++) {
        const struct muster_params_map *map = server_of(&move->scene, i)->map;

        is_same = is_same && map != NULL && map->epoch == epoch &&
                  map->server_count == move->scene.job.count;
        for (uint32_t shard = 0; map != NULL && shard < map->shard_count; shard++) {
            assert_in_range(map->shards[shard].copy_count, 2, MUSTER_PARAMS_COPIES_MAX);
            learners += map->shards[shard].learner_count;
        }
    }
    return is_same && (learners > 0) == has_learners;
}

static bool is_learning(void *data)
{
    return has_map(data, true);
}

static bool is_settled(void *data)
{
    return has_map(data, false);
}

/* False: the ids of the servers leave each shard with its primary. */
static bool move_try(struct move *move, uint32_t draw)
{
    struct scene *scene = &move->scene;
    bool does_leave = false;
    uint8_t drawn[16];

    scene_open_copied(scene, &counters, 2, 2);
    push_run(scene);
    for (uint32_t i = 0; i < draw; i++)
        muster_rng_fill(scene->job.env->rng, drawn, sizeof(drawn));
    params_job_member_open(&scene->job, THIRD);
    scene->job.count++;
    test_env_run_until(scene->job.env, is_settled, move);
    params_job_member_open(&scene->job, FOURTH);
    scene->job.count++;
    test_env_run_until(scene->job.env, is_learning, move);
    for (uint32_t shard = 0; shard < map_of(move)->shard_count; shard++)
        does_leave = does_leave || is_primary_to_leave(map_of(move), shard);
    if (!does_leave)
        scene_close(scene);
    return does_leave;
}

static void move_open(struct move *move, uint32_t behind)
{
    uint32_t draw = 0;

    move->behind = behind;
    while (!move_try(move, draw)) {
        draw++;
        assert_in_range(draw, 1, 20);
    }
}

/* No map is made, or each server that has something to say makes one. */
static void maps_hold(const struct move *move, bool is_held)
{
    for (uint32_t i = 0; i < move->scene.job.count; i++) {
        struct muster_params_registration *registration = server_of(&move->scene, i)->registration;

        registration->is_swapping = is_held;
        if (!is_held)
            muster_params_decide_post(registration);
    }
}

/* The server that is behind reads nothing of what the others send it to copy. */
static void links_hold(const struct move *move, bool is_held)
{
    MUSTER_LIST_EACH (&server_of(&move->scene, move->behind)->leaders, leader,
                      struct muster_params_leader, node) {
        if (is_held)
            muster_peer_link_pause(leader->link);
        else
            muster_peer_link_resume(leader->link);
    }
}

static const struct muster_params_server *primary_of(const struct move *move, uint32_t shard)
{
    uint32_t place = map_of(move)->shards[shard].copies[0];

    for (uint32_t i = 0; i < move->scene.job.count; i++) {
        if (server_of(&move->scene, i)->place == place)
            return server_of(&move->scene, i);
    }
    return NULL;
}

static bool are_all_ready(void *data)
{
    const struct move *move = data;
    const struct muster_params_map *map = map_of(move);

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        for (uint32_t i = 0; i < map->shards[shard].learner_count; i++) {
            if (!muster_params_follower_is_ready(primary_of(move, shard), shard,
                                                 map->shards[shard].learners[i]))
                return false;
        }
    }
    return true;
}

/* The shards that count are those whose primary is to leave. */
static bool is_second_push_elsewhere(void *data)
{
    const struct move *move = data;
    const struct muster_params_server *other =
        server_of(&move->scene, move->behind == THIRD ? FOURTH : THIRD);

    for (uint32_t shard = 0; shard < map_of(move)->shard_count; shard++) {
        if (is_primary_to_leave(map_of(move), shard) &&
            muster_params_source_at(other->region, 0)->positions[shard] >> 16 <= 2)
            return false;
    }
    return true;
}

static bool is_push_settled(void *data)
{
    const struct move *move = data;

    return is_settled(data) && move->scene.is_done;
}

static bool have_primaries_left(void *data)
{
    const struct move *move = data;

    for (uint32_t shard = 0; shard < map_of(move)->shard_count; shard++) {
        if (is_primary_to_leave(map_of(move), shard))
            return false;
    }
    return true;
}

static void a_shard_that_moves_has_two_copies_all_the_time(void **state)
{
    (void)state;
    for (uint32_t behind = THIRD; behind <= FOURTH; behind++) {
        struct muster_params_op push;
        struct move move;

        move_open(&move, behind);
        maps_hold(&move, true);
        test_env_run_until(move.scene.job.env, are_all_ready, &move);
        links_hold(&move, true);
        push_start(&move.scene, &push);
        test_env_run_until(move.scene.job.env, is_second_push_elsewhere, &move);

        maps_hold(&move, false);
        test_env_run_until(move.scene.job.env, have_primaries_left, &move);
        links_hold(&move, false);
        test_env_run_until(move.scene.job.env, is_push_settled, &move); /* no copy is made anew */
        done_await(&move.scene);

        pull_compare(&move.scene, 2);
        scene_close(&move.scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_that_one_survivor_lacks_is_given_to_it),
        cmocka_unit_test(a_server_that_learns_gets_what_its_teacher_is_given),
        cmocka_unit_test(all_copies_know_of_a_refusal_before_the_client_does),
        cmocka_unit_test(a_refusal_that_one_survivor_lacks_is_given_to_it),
        cmocka_unit_test(a_source_that_a_tail_tells_of_has_its_name),
        cmocka_unit_test(a_removal_without_its_push_is_given_to_all_copies),
        cmocka_unit_test(rounds_go_on_when_the_copies_have_answered),
        cmocka_unit_test(what_all_copies_have_is_not_kept),
        cmocka_unit_test(a_shard_that_moves_has_two_copies_all_the_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
