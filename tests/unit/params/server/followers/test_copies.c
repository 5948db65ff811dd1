/* Servers that share a job: what is acknowledged is at both, and shards are learned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_copies.h"
#include "params_peer.h"
#include "test_env.h"

#include "params/server/followers/follower.h"
#include "params/server/followers/record.h"
#include "params/server/leaders/leader.h"
#include "params/server/leaders/leader_internal.h"
#include "params/server/registry/map.h"
#include "params/server/state/absent.h"

#define ROWS PARAMS_COPIES_ROWS

static void what_is_acknowledged_is_at_both(void **state)
{
    struct params_copies scene;
    struct muster_params_digest first, second;

    (void)state;
    params_copies_open(&scene, 2, 2);

    for (int i = 0; i < 3; i++) {
        params_copies_push(&scene);
        first = params_copies_digest(&scene, 0);
        second = params_copies_digest(&scene, 1);
        assert_memory_equal(&first, &second, sizeof(first));
        assert_int_not_equal(first.sums[0], 0);
    }

    params_copies_close(&scene);
}

static bool has_second_all_rows(void *data)
{
    const struct params_copies *scene = data;
    const struct muster_params_region_head *head = scene->job.members[1].server->region->head;

    return head->table_count > 0 && head->tables[0].row_count == ROWS;
}

static uint64_t lag_of(const struct params_copies *scene)
{
    struct muster_params_stats stats;

    muster_params_server_stats(scene->job.members[0].server, &stats);
    return stats.replica_lag_frames;
}

static void nothing_is_answered_before_the_other_copy_has_said_so(void **state)
{
    struct muster_params_op push, pull;
    struct params_copies scene;
    uint64_t keys[ROWS];
    static float values[ROWS][2], found[ROWS][2];
    const struct muster_params_rows rows = {keys, values, ROWS}, wanted = {keys, found, ROWS};

    (void)state;
    params_copies_open(&scene, 2, 2);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    params_copies_pause(&scene, true);
    push.data = pull.data = &scene;
    assert_int_equal(muster_params_push_start(&push, scene.table, &rows,
                                              params_copies_deadline(&scene), params_copies_on_op),
                     MUSTER_OK);
    test_env_run_until(scene.job.env, has_second_all_rows, &scene);
    test_env_turn(scene.job.env, 50);
    assert_false(scene.is_done);
    assert_int_not_equal(lag_of(&scene), 0);

    params_copies_pause(&scene, false);
    params_copies_await(&scene);
    assert_int_equal(lag_of(&scene), 0);
    assert_int_not_equal(scene.job.members[0].server->ack_wait_seconds.count, 0);
    params_copies_pause(&scene, true);
    assert_int_equal(muster_params_pull_start(&pull, scene.table, &wanted,
                                              params_copies_deadline(&scene), params_copies_on_op),
                     MUSTER_OK);
    test_env_turn(scene.job.env, 200);
    assert_false(scene.is_done); /* it asks whether they still follow */

    params_copies_pause(&scene, false);
    params_copies_await(&scene);
    params_copies_close(&scene);
}

/* --- A learner beside a copy that lacks what it has --- */

static bool has_third_learned(void *data)
{
    const struct params_copies *scene = data;
    uint32_t count = 0;

    for (uint32_t i = 0; i < 2; i++) {
        MUSTER_LIST_EACH (&scene->job.members[i].server->followers, follower,
                          struct muster_params_follower, node)
            count += follower->settling_count;
    }
    return count == PARAMS_CALLER_SHARDS;
}

static bool are_whole(void *data)
{
    return params_copies_are_whole(data);
}

static void a_learner_is_no_copy_before_the_copies_have_what_it_has(void **state)
{
    static float values[ROWS][2];
    uint64_t keys[ROWS];
    const struct muster_params_rows rows = {keys, values, ROWS};
    const struct muster_params_map *map;
    struct muster_params_op push;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 2, 3);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    params_copies_pause(&scene, true);
    push.data = &scene;
    assert_int_equal(muster_params_push_start(&push, scene.table, &rows,
                                              params_copies_deadline(&scene), params_copies_on_op),
                     MUSTER_OK);
    test_env_run_until(scene.job.env, has_second_all_rows, &scene);

    params_copies_join(&scene, 2);
    test_env_run_until(scene.job.env, has_third_learned, &scene);
    test_env_turn(scene.job.env, 50);
    map = scene.job.members[0].server->map;
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        assert_int_equal(map->shards[shard].copy_count, 2);
        assert_int_equal(map->shards[shard].learner_count, 1);
    }
    assert_false(scene.is_done);

    params_copies_pause(&scene, false);
    params_copies_await(&scene);
    test_env_run_until(scene.job.env, are_whole, &scene);
    params_copies_close(&scene);
}

/* The second server takes nothing from the first one. */
static void leaders_pause(const struct params_copies *scene, bool is_paused)
{
    MUSTER_LIST_EACH (&scene->job.members[1].server->leaders, leader, struct muster_params_leader,
                      node) {
        if (is_paused)
            muster_peer_link_pause(leader->link);
        else
            muster_peer_link_resume(leader->link);
    }
}

static bool is_first_settling(void *data)
{
    const struct params_copies *scene = data;
    const struct muster_params_server *server = scene->job.members[0].server;
    uint32_t settling = 0, led = 0;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node)
        settling += follower->settling_count;
    for (uint32_t shard = 0; shard < PARAMS_CALLER_SHARDS; shard++)
        led += muster_params_server_leads(server, shard, server->map->epoch);
    return settling == led;
}

static bool has_early_answer(void *data)
{
    const struct params_copies *scene = data;

    MUSTER_LIST_EACH (&scene->job.members[0].server->followers, follower,
                      struct muster_params_follower, node)
        if (follower->early_map != 0)
            return true;
    return false;
}

static void map_set(const struct params_copies *scene, uint32_t member,
                    const struct muster_params_map *map)
{
    struct muster_params_server *server = scene->job.members[member].server;
    struct muster_params_map *copy = muster_params_map_new(server->env->mem);

    *copy = *map;
    muster_params_server_set_map(server, copy);
}

static void a_learner_is_a_copy_when_the_answers_of_a_later_map_count(void **state)
{
    static float values[ROWS][2];
    static struct muster_params_map map;
    uint64_t keys[ROWS];
    const struct muster_params_rows rows = {keys, values, ROWS};
    struct muster_params_op push;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 2, 3);
    params_copies_push(&scene);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    leaders_pause(&scene, true);
    push.data = &scene;
    assert_int_equal(muster_params_push_start(&push, scene.table, &rows,
                                              params_copies_deadline(&scene), params_copies_on_op),
                     MUSTER_OK);
    params_copies_join(&scene, 2);
    test_env_run_until(scene.job.env, is_first_settling, &scene);
    test_env_turn(scene.job.env, 50);
    assert_false(scene.is_done);

    map = *scene.job.members[0].server->map;
    map.epoch++;
    map_set(&scene, 1, &map);
    leaders_pause(&scene, false);
    test_env_run_until(scene.job.env, has_early_answer, &scene);
    map_set(&scene, 0, &map);

    params_copies_await(&scene);
    test_env_run_until(scene.job.env, are_whole, &scene);
    params_copies_close(&scene);
}

/* The other servers have the same rows, and know the source. */
static void rows_stay_without(struct params_copies *scene, uint32_t member, float before[ROWS][2])
{
    static float after[ROWS][2];

    params_job_member_close(&scene->job, member);
    params_copies_pull(scene, after);
    assert_memory_equal(before, after, sizeof(after));
    params_copies_push(scene);
}

static void the_other_copy_goes_on_when_a_server_is_gone(void **state)
{
    static float before[ROWS][2];
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 2, 2);
    params_copies_push(&scene);
    params_copies_pull(&scene, before);

    rows_stay_without(&scene, 1, before);
    params_copies_close(&scene);
}

static void a_server_that_comes_learns_all_of_its_shards(void **state)
{
    static float before[ROWS][2];
    struct muster_params_digest first, second;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 1, 2);
    params_copies_push(&scene);
    params_copies_push(&scene);
    params_copies_pull(&scene, before);

    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);

    first = params_copies_digest(&scene, 0);
    second = params_copies_digest(&scene, 1); /* values and the optimizer's state */
    assert_memory_equal(&first, &second, sizeof(first));
    rows_stay_without(&scene, 0, before); /* positions were copied, too: the source is known */
    params_copies_close(&scene);
}

static void on_abandoned(struct muster_params *params, enum muster_rc rc)
{
    (void)params;
    assert_int_equal(rc, MUSTER_DEADLINE_EXCEEDED);
}

/* The client may be far away, and have pushes under way that the first server will not get any more. */
static void a_server_that_comes_expects_the_clients_of_its_teacher(void **state)
{
    struct muster_params_op push;
    struct params_copies scene;
    uint64_t key = 1, slot;
    float values[2] = {1, 1};
    const struct muster_params_rows rows = {&key, values, 1};

    (void)state;
    params_copies_open(&scene, 1, 2);
    params_copies_push(&scene);
    push.data = &scene;
    assert_int_equal(muster_params_push_start(&push, scene.table, &rows,
                                              params_copies_deadline(&scene), params_copies_on_op),
                     MUSTER_OK);
    muster_params_close(scene.params, muster_loop_now_ns(scene.job.env->loop), on_abandoned);
    test_env_run_until(scene.job.env, test_env_is_true, &scene.is_done);
    test_env_turn(scene.job.env, 20);
    scene.is_done = false;

    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);

    assert_true(muster_params_absent_find(scene.job.members[1].server, &slot));
    params_copies_connect(&scene);
    params_copies_close(&scene);
}

static void a_shard_that_moves_takes_its_rows_along(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 1, 1);
    params_copies_push(&scene);
    params_copies_pull(&scene, before);

    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);

    assert_true(scene.job.members[1].server->region->head->tables[0].row_count > 0);
    params_copies_pull(&scene, after);
    assert_memory_equal(before, after, sizeof(before));
    params_copies_push(&scene);
    params_copies_close(&scene);
}

/* --- The pace of copies --- */

#define MANY_ROWS   100000u
#define MANY_PUSHED 10000u /* by one call */
#define PIECE_BYTES ((size_t)128 << 10)
#define AHEAD_BYTES (2 * PIECE_BYTES)

static void many_push(struct params_copies *scene)
{
    static uint64_t keys[MANY_PUSHED];
    static float values[MANY_PUSHED][2];
    const struct muster_params_rows rows = {keys, values, MANY_PUSHED};

    for (uint64_t from = 0; from < MANY_ROWS; from += MANY_PUSHED) {
        struct muster_params_op op = {.data = scene};

        for (uint32_t i = 0; i < MANY_PUSHED; i++)
            keys[i] = from + i;
        assert_int_equal(muster_params_push_start(&op, scene->table, &rows,
                                                  params_copies_deadline(scene),
                                                  params_copies_on_op),
                         MUSTER_OK);
        params_copies_await(scene);
    }
}

struct pace {
    struct params_copies *scene;
    size_t ahead_max;
    uint32_t expected_count; /* messages that tell how many rows come */
};

static bool are_whole_at_a_pace(void *data)
{
    struct pace *pace = data;
    const struct muster_params_server *server = pace->scene->job.members[0].server;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        size_t bytes = 0;

        MUSTER_LIST_EACH (&follower->records, record, struct muster_params_record, node) {
            const struct muster_frame_header *header = &record->frame.header;

            if (header->type != MUSTER_PARAMS_COPY_ROWS)
                continue;
            bytes += header->payload_bytes;
            assert_int_equal(header->offset, MANY_ROWS);
            pace->expected_count++;
        }
        pace->ahead_max = bytes > pace->ahead_max ? bytes : pace->ahead_max;
    }
    return params_copies_are_two(pace->scene);
}

/* Pushes wait behind the pieces that are on their way. */
static void a_copy_is_a_few_pieces_ahead_of_its_learner(void **state)
{
    struct params_copies scene;
    struct pace pace = {.scene = &scene};

    (void)state;
    params_copies_open(&scene, 1, 2);
    many_push(&scene);
    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, are_whole_at_a_pace, &pace);

    assert_in_range(pace.ahead_max, PIECE_BYTES + 1, AHEAD_BYTES);
    assert_int_not_equal(pace.expected_count, 0);
    assert_int_equal(scene.job.members[1].server->region->head->tables[0].row_count, MANY_ROWS);
    params_copies_close(&scene);
}

static bool is_copying(void *data)
{
    const struct params_copies *scene = data;

    MUSTER_LIST_EACH (&scene->job.members[0].server->followers, follower,
                      struct muster_params_follower, node)
        if (follower->copying > 0)
            return true;
    return false;
}

/* The records of the copy are forgotten with the link; what was pushed meanwhile is not. */
static void a_copy_whose_link_is_lost_begins_anew(void **state)
{
    struct muster_params_digest first, second;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 1, 2);
    params_copies_push(&scene);
    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, is_copying, &scene);
    muster_params_leaders_close(scene.job.members[1].server);
    params_copies_push(&scene);
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);

    first = params_copies_digest(&scene, 0);
    second = params_copies_digest(&scene, 1);
    assert_memory_equal(&first, &second, sizeof(first));
    params_copies_close(&scene);
}

static bool are_three_in_map(void *data)
{
    const struct params_copies *scene = data;

    return scene->job.members[0].server->map->server_count == 3 && params_copies_are_whole(scene);
}

/* A copy that another server has taken the place of is learned again when that one is gone. */
static void a_shard_that_comes_back_is_learned_again(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 1, 2);
    params_copies_push(&scene);
    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);
    params_copies_join(&scene, 2);
    test_env_run_until(scene.job.env, are_three_in_map, &scene);
    params_copies_push(&scene);
    params_copies_pull(&scene, before);
    params_job_member_close(&scene.job, 2);
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);

    params_job_member_close(&scene.job, 0);
    params_copies_pull(&scene, after);
    assert_memory_equal(before, after, sizeof(before));
    params_copies_close(&scene);
}

static bool is_learner(void *data)
{
    const struct params_copies *scene = data;
    const struct muster_params_server *server = scene->job.members[1].server;

    for (uint32_t shard = 0; server->map != NULL && shard < PARAMS_CALLER_SHARDS; shard++) {
        if (muster_params_map_is_learner(server->map, shard, server->place))
            return true;
    }
    return false;
}

static void on_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct params_job_member *member = muster_params_server_data(server);

    assert_int_equal(rc, MUSTER_OK);
    member->is_drained = true;
}

static bool is_drained(void *data)
{
    const struct params_copies *scene = data;

    return scene->job.members[1].is_drained;
}

/* The map that makes it a copy may be on its way. */
static void a_server_that_learns_shards_is_not_drained_before_they_are_taken_from_it(void **state)
{
    static float before[ROWS][2], after[ROWS][2];
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 1, 1);
    params_copies_push(&scene);
    params_copies_pull(&scene, before);

    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, is_learner, &scene);
    muster_params_server_drain(scene.job.members[1].server, params_copies_deadline(&scene),
                               on_drained);
    test_env_run_until(scene.job.env, is_drained, &scene);

    assert_false(is_learner(&scene));
    params_job_member_close(&scene.job, 1);
    params_copies_pull(&scene, after);
    assert_memory_equal(before, after, sizeof(before));
    params_copies_close(&scene);
}

/* --- Sources are opened --- */

static bool is_held(void *data)
{
    const struct params_copies *scene = data;

    return !muster_list_is_empty(&scene->job.members[0].server->held);
}

static void home_lead(struct params_copies *scene, uint32_t home, uint32_t member)
{
    struct muster_params_server *server = scene->job.members[0].server;
    struct muster_params_map *map = muster_params_map_new(server->env->mem);
    struct muster_params_map_shard *shard = &map->shards[home];

    *map = *server->map;
    map->epoch++;
    shard->since = map->epoch;
    shard->copies[0] = (uint16_t)scene->job.members[member].server->place;
    for (uint32_t i = 0; i < map->shard_count; i++)
        map->shards[i].copy_count = 1;
    muster_params_server_set_map(server, map);
}

/* The shard has no copies: the map of its own server says so. */
static void shard_single(struct params_copies *scene, uint32_t shard)
{
    struct muster_params_server *server = scene->job.members[0].server;
    struct muster_params_map *map = muster_params_map_new(server->env->mem);

    *map = *server->map;
    map->epoch++;
    map->shards[shard].copy_count = 1;
    muster_params_server_set_map(server, map);
}

static bool is_known_at_both(const struct params_copies *scene, const struct muster_incarnation *id)
{
    uint64_t slot;

    for (uint32_t i = 0; i < 2; i++) {
        if (muster_params_source_find(scene->job.members[i].server->region, id, &slot) == NULL)
            return false;
    }
    return true;
}

/* A server that takes over another shard of this one must refuse older processes of the source, too. */
static void a_source_is_open_when_all_that_may_lead_a_shard_know_it(void **state)
{
    static const struct {
        uint16_t flags;
        uint64_t generation;
    } rows[] = {{0, 0}, {MUSTER_PARAMS_OPEN_JOIN, 3}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_open open = {.generation = rows[i].generation, .process = 7};
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                                   .type = MUSTER_PARAMS_OPEN,
                                                   .flags = rows[i].flags,
                                                   .payload_bytes = MUSTER_PARAMS_OPEN_BYTES};
        struct muster_peer_hello hello = params_peer_hello();
        uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];
        struct params_peer peer = {.discards = false};
        struct params_copies scene;
        uint32_t home;

        params_copies_open(&scene, 2, 2);
        home = params_copies_shard_led(&scene, 0);
        while (muster_params_source_home(&open.source, PARAMS_CALLER_SHARDS) != home)
            open.source.bytes[0]++;
        muster_params_open_pack(&open, bytes);
        params_peer_open(&peer, scene.job.env, scene.job.members[0].address, &hello);
        shard_single(&scene, home);
        params_copies_pause(&scene, true);
        params_peer_send(&peer, &header, bytes);
        test_env_run_until(scene.job.env, is_held, &scene);

        assert_int_equal(peer.count, 0);
        params_copies_pause(&scene, false);
        params_peer_await(&peer, 1);
        assert_int_equal(peer.headers[0].type, MUSTER_PARAMS_OPENED);
        assert_true(is_known_at_both(&scene, &open.source));
        params_peer_close(&peer);
        params_copies_close(&scene);
    }
}

static void a_source_whose_home_moves_is_named_again_over_the_same_link(void **state)
{
    struct muster_params_open open = {.generation = 0};
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_OPEN,
                                               .payload_bytes = MUSTER_PARAMS_OPEN_BYTES};
    struct muster_peer_hello hello = params_peer_hello();
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];
    struct params_peer peer = {.discards = false};
    struct params_copies scene;
    uint32_t home;

    (void)state;
    params_copies_open(&scene, 2, 2);
    home = params_copies_shard_led(&scene, 0);
    while (muster_params_source_home(&open.source, PARAMS_CALLER_SHARDS) != home)
        open.source.bytes[0]++;
    muster_params_open_pack(&open, bytes);
    params_peer_open(&peer, scene.job.env, scene.job.members[0].address, &hello);
    params_copies_pause(&scene, true);
    params_peer_send(&peer, &header, bytes);
    test_env_run_until(scene.job.env, is_held, &scene);

    home_lead(&scene, home, 1);
    home_lead(&scene, home, 0);
    params_peer_await(&peer, 1);
    assert_int_equal(peer.headers[peer.count - 1].type, MUSTER_PARAMS_MOVED);
    params_peer_send(&peer, &header, bytes);
    params_peer_await(&peer, 2);

    assert_int_equal(peer.headers[peer.count - 1].type, MUSTER_PARAMS_OPENED);
    params_copies_pause(&scene, false);
    params_peer_close(&peer);
    params_copies_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_acknowledged_is_at_both),
        cmocka_unit_test(nothing_is_answered_before_the_other_copy_has_said_so),
        cmocka_unit_test(a_learner_is_no_copy_before_the_copies_have_what_it_has),
        cmocka_unit_test(a_learner_is_a_copy_when_the_answers_of_a_later_map_count),
        cmocka_unit_test(the_other_copy_goes_on_when_a_server_is_gone),
        cmocka_unit_test(a_server_that_comes_learns_all_of_its_shards),
        cmocka_unit_test(a_copy_is_a_few_pieces_ahead_of_its_learner),
        cmocka_unit_test(a_copy_whose_link_is_lost_begins_anew),
        cmocka_unit_test(a_shard_that_comes_back_is_learned_again),
        cmocka_unit_test(a_server_that_comes_expects_the_clients_of_its_teacher),
        cmocka_unit_test(a_shard_that_moves_takes_its_rows_along),
        cmocka_unit_test(a_server_that_learns_shards_is_not_drained_before_they_are_taken_from_it),
        cmocka_unit_test(a_source_is_open_when_all_that_may_lead_a_shard_know_it),
        cmocka_unit_test(a_source_whose_home_moves_is_named_again_over_the_same_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
