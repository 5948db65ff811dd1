/* A job whose servers have all gone, and their rows with them: servers that come then say so, or begin anew, all with
 * the same cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <muster/channel.h>
#include <muster/log.h>
#include <muster/params_inspect.h>

#include "params/server/core/server_internal.h"
#include "params/snapshot/snapshot.h"
#include "params/store/table.h"
#include "params/wire/map.h"
#include "tests/lib/assertion_count.h"
#include "tests/sim/params_scene.h"

#define SECOND  MUSTER_NS_PER_S
#define LEASE   (4 * SECOND) /* longer than that of a server's key */
#define SERVERS 2u

static void job_open(struct params_scene *scene, uint32_t replicas)
{
    memset(scene, 0, sizeof(*scene));
    scene->replicas = replicas;
    params_scene_open(scene, SERVERS);
    params_scene_client_leave(scene);
}

static void servers_kill(struct params_scene *scene)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        sim_kill(scene->servers[i].node);
}

static void servers_replace(struct params_scene *scene)
{
    for (uint32_t i = 0; i < SERVERS; i++) {
        params_scene_forget(scene, i);
        params_scene_serve(scene, i);
    }
}

static bool have_failed(void *data)
{
    const struct params_scene *scene = data;

    return scene->servers[0].failures > 0 && scene->servers[1].failures > 0;
}

static void health_expect(const struct params_scene *scene, uint32_t server, const char *text)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_params_server_check(params_scene_program(scene, server), &error);

    assert_int_equal(rc, text == NULL ? MUSTER_OK : MUSTER_UNAVAILABLE);
    if (text != NULL && strstr(error.text, text) == NULL)
        fail_msg("%s", error.text);
}

static void servers_of_a_job_whose_rows_are_gone_end_with_an_error(void **state)
{
    (void)state;
    for (uint32_t replicas = 1; replicas <= SERVERS; replicas++) {
        for (uint64_t pause_ns = 0; pause_ns <= LEASE; pause_ns += LEASE) {
            struct params_scene scene;

            job_open(&scene, replicas);
            health_expect(&scene, 0, NULL);
            servers_kill(&scene);
            assert_true(sim_run_for(scene.world, pause_ns));
            servers_replace(&scene);
            assert_true(sim_run_for(scene.world, 2 * LEASE - pause_ns));
            for (uint32_t i = 0; i < SERVERS; i++) {
                health_expect(&scene, i, "which have all gone");
                assert_int_equal(scene.servers[i].failures, 0);
            }
            assert_true(sim_run_until(scene.world, have_failed, &scene, 20 * SECOND));

            assert_non_null(strstr(scene.servers[0].failure, "--force-new"));
            params_scene_close(&scene);
        }
    }
}

static bool are_in_one_map(void *data)
{
    const struct params_scene *scene = data;

    if (!params_scene_is_whole(data))
        return false;
    for (uint32_t i = 0; i < SERVERS; i++) {
        const struct muster_params_server *server = params_scene_program(scene, i);

        if (server->place == MUSTER_PARAMS_NOWHERE)
            return false;
    }
    return true;
}

/* All servers serve in one map, and a client makes the table. */
static void anew_expect(struct params_scene *scene)
{
    assert_true(sim_run_until(scene->world, are_in_one_map, scene, 20 * SECOND));
    for (uint32_t i = 0; i < SERVERS; i++)
        health_expect(scene, i, NULL);
    params_scene_client(scene);
    params_scene_table(scene);
}

static void on_inspected(struct muster_params_inspect *inspect, enum muster_rc rc)
{
    struct params_scene *scene = inspect->data;

    scene->rc = rc;
    snprintf(scene->text, sizeof(scene->text), "%s",
             rc == MUSTER_OK ? inspect->inspection->waits : inspect->error.text);
    scene->is_done = true;
}

/* The server tells that it does not take part, and why. */
static void inspect_expect(struct params_scene *scene, uint32_t server, const char *text)
{
    const struct muster_params_inspect_options options = {.deadline_ns = UINT64_MAX};
    const struct muster_channel_options direct = {0};
    struct muster_params_inspect inspect = {.data = scene};
    struct muster_env *env = sim_node_env(scene->client);
    struct muster_channel *channel;
    struct muster_error error;
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    muster_address_format(muster_params_server_address(params_scene_program(scene, server)),
                          address);
    sim_enter(scene->client);
    assert_int_equal(muster_channel_open(env, address, &direct, &channel, &error), MUSTER_OK);
    assert_int_equal(muster_params_inspect_start(&inspect, env, channel, &options, on_inspected),
                     MUSTER_OK);
    sim_leave(scene->client);
    params_scene_await(scene, 20 * SECOND);
    if (text[0] == '\0')
        assert_string_equal(scene->text, "");
    else if (strstr(scene->text, text) == NULL)
        fail_msg("%s", scene->text);
    sim_enter(scene->client);
    muster_channel_close(channel, NULL);
    sim_leave(scene->client);
    assert_true(sim_run_for(scene->world, SECOND));
}

/* A log that keeps why a server has not drained. */
struct drain_log {
    struct muster_log log;
    unsigned waits;
    char reason[MUSTER_ERROR_TEXT_BYTES];
};

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct drain_log *drains = MUSTER_CONTAINER_OF(log, struct drain_log, log);

    (void)level, (void)wall_ns;
    drains->waits += strcmp(event, "params_drain_waits") == 0;
    if (strcmp(event, "params_not_drained") == 0 && count > 0)
        snprintf(drains->reason, sizeof(drains->reason), "%s", fields[0].text);
}

static void drain_log_init(struct drain_log *drains)
{
    static const struct muster_log_ops ops = {.write = on_log};

    *drains = (struct drain_log){.log = {.ops = &ops, .level_max = MUSTER_LOG_WARN}};
}

static void on_not_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct params_scene_server *one = muster_params_server_data(server);

    assert_int_equal(rc, MUSTER_DEADLINE_EXCEEDED);
    one->scene->is_done = true;
}

static void on_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct params_scene_server *one = muster_params_server_data(server);

    assert_int_equal(rc, MUSTER_OK);
    one->scene->is_done = true;
}

/* SIGTERM to the program: it ends well within this time. */
static void drain_await(struct params_scene *scene, uint32_t number, uint64_t limit_ns)
{
    struct muster_params_server *server = sim_node_program(scene->servers[number].node);

    sim_enter(scene->servers[number].node);
    muster_params_server_drain(server, muster_loop_after_ns(server->env->loop, 60 * SECOND),
                               on_drained);
    sim_leave(scene->servers[number].node);
    assert_true(sim_run_until(scene->world, params_scene_is_done, scene, limit_ns));
    scene->is_done = false;
}

static void a_server_that_waits_for_rows_that_are_gone_has_nothing_to_give_away(void **state)
{
    struct params_scene scene;

    (void)state;
    job_open(&scene, 1);
    servers_kill(&scene);
    assert_true(sim_run_for(scene.world, LEASE));
    servers_replace(&scene);
    assert_true(sim_run_for(scene.world, 2 * SECOND));

    drain_await(&scene, 0, 2 * SECOND);
    params_scene_close(&scene);
}

static void a_server_without_rows_ends_while_the_registry_is_away(void **state)
{
    struct params_scene scene;

    (void)state;
    job_open(&scene, SERVERS);
    registry_stage_kill(scene.registry);
    servers_kill(&scene);
    servers_replace(&scene);
    assert_true(sim_run_for(scene.world, 2 * SECOND));

    drain_await(&scene, 0, 2 * SECOND);
    registry_stage_restart(scene.registry);
    params_scene_close(&scene);
}

/* Its rows would end with it, though the other one could take them when the registry is back. */
static void a_server_with_rows_waits_for_the_registry_and_names_it(void **state)
{
    struct params_scene scene;
    struct drain_log log;

    (void)state;
    job_open(&scene, 1);
    registry_stage_kill(scene.registry);
    assert_true(sim_run_for(scene.world, 2 * SECOND));
    drain_log_init(&log);
    sim_node_env(scene.servers[0].node)->log = &log.log;
    sim_enter(scene.servers[0].node);
    muster_params_server_drain(
        sim_node_program(scene.servers[0].node),
        muster_loop_after_ns(sim_node_env(scene.servers[0].node)->loop, 10 * SECOND),
        on_not_drained);
    sim_leave(scene.servers[0].node);
    assert_true(sim_run_until(scene.world, params_scene_is_done, &scene, 20 * SECOND));

    assert_int_equal(log.waits, 1);
    assert_non_null(strstr(log.reason, "the registry at " REGISTRY_STAGE_ENDPOINT " is away"));
    registry_stage_restart(scene.registry);
    params_scene_close(&scene);
}

static unsigned drained_count;

static void count_drained(struct muster_params_server *server, enum muster_rc rc)
{
    (void)server;
    assert_int_equal(rc, MUSTER_OK);
    drained_count++;
}

static bool are_drained(void *data)
{
    return drained_count == *(const unsigned *)data;
}

/* SIGTERM to the program, which may take a minute. */
static void drain_start(struct params_scene *scene, uint32_t number)
{
    struct muster_params_server *server = sim_node_program(scene->servers[number].node);

    sim_enter(scene->servers[number].node);
    muster_params_server_drain(server, muster_loop_after_ns(server->env->loop, 60 * SECOND),
                               count_drained);
    sim_leave(scene->servers[number].node);
}

/* The first one waits for the other one, which could take its rows until it ends, too. */
static void servers_that_all_end_while_the_registry_is_away_wait_for_nobody(void **state)
{
    unsigned all = SERVERS;

    (void)state;
    for (uint32_t replicas = 1; replicas <= SERVERS; replicas++) {
        struct params_scene scene;

        drained_count = 0;
        job_open(&scene, replicas);
        registry_stage_kill(scene.registry);
        drain_start(&scene, 0);
        assert_true(sim_run_for(scene.world, 10 * SECOND));
        assert_int_equal(drained_count, 0);
        drain_start(&scene, 1);

        assert_true(sim_run_until(scene.world, are_drained, &all, 5 * SECOND));
        registry_stage_restart(scene.registry);
        params_scene_close(&scene);
    }
}

/* It has rows, and they end with it: nobody could take them when the registry is back. */
static void the_last_server_ends_while_the_registry_is_away(void **state)
{
    unsigned first = 1, both = SERVERS;
    struct params_scene scene;

    (void)state;
    drained_count = 0;
    job_open(&scene, 1);
    drain_start(&scene, 0);
    assert_true(sim_run_until(scene.world, are_drained, &first, 20 * SECOND));
    sim_kill(scene.servers[0].node);
    assert_true(sim_run_for(scene.world, LEASE));
    registry_stage_kill(scene.registry);
    drain_start(&scene, 1);

    assert_true(sim_run_until(scene.world, are_drained, &both, 10 * SECOND));
    registry_stage_restart(scene.registry);
    params_scene_close(&scene);
}

/* A registry that comes back in time loses no rows. */
static void a_server_that_ends_gives_its_rows_away_when_the_registry_is_back(void **state)
{
    unsigned first = 1;
    struct params_scene scene;

    (void)state;
    drained_count = 0;
    job_open(&scene, 1);
    registry_stage_kill(scene.registry);
    drain_start(&scene, 0);
    assert_true(sim_run_for(scene.world, 20 * SECOND));
    assert_int_equal(drained_count, 0);
    registry_stage_restart(scene.registry);
    assert_true(sim_run_until(scene.world, are_drained, &first, 20 * SECOND));
    sim_kill(scene.servers[0].node);
    params_scene_client(&scene);
    params_scene_table(&scene);
    params_scene_compare(&scene, 1);
    params_scene_close(&scene);
}

/* Its rows come with it: the other one has waited for that. */
static void a_server_that_comes_back_in_its_memory_ends_the_wait(void **state)
{
    struct params_scene scene;

    (void)state;
    job_open(&scene, SERVERS);
    servers_kill(&scene);
    assert_true(sim_run_for(scene.world, LEASE));
    params_scene_forget(&scene, 0);
    params_scene_serve(&scene, 0);
    assert_true(sim_run_for(scene.world, LEASE));
    health_expect(&scene, 0, "which have all gone");
    params_scene_serve(&scene, 1);
    assert_true(sim_run_until(scene.world, are_in_one_map, &scene, 60 * SECOND));
    assert_true(sim_run_for(scene.world, 20 * SECOND));

    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_int_equal(scene.servers[i].failures, 0);
        health_expect(&scene, i, NULL);
    }
    params_scene_client(&scene);
    params_scene_table(&scene);
    params_scene_compare(&scene, 1);
    params_scene_close(&scene);
}

/* Both have their memory, and one is away for longer than its lease. */
static void a_job_of_which_one_server_lives_goes_on(void **state)
{
    struct params_scene scene;

    (void)state;
    job_open(&scene, 1);
    servers_kill(&scene);
    assert_true(sim_run_for(scene.world, 2 * LEASE));
    params_scene_serve(&scene, 0);
    assert_true(sim_run_for(scene.world, 30 * SECOND));
    health_expect(&scene, 0, NULL);
    params_scene_serve(&scene, 1);
    params_scene_client(&scene);
    params_scene_table(&scene);
    params_scene_compare(&scene, 1);

    assert_int_equal(scene.servers[0].failures + scene.servers[1].failures, 0);
    params_scene_close(&scene);
}

static void a_job_begins_anew_by_force_without_rows(void **state)
{
    (void)state;
    for (uint32_t replicas = 1; replicas <= SERVERS; replicas++) {
        struct params_scene scene;

        job_open(&scene, replicas);
        servers_kill(&scene);
        assert_true(sim_run_for(scene.world, LEASE));
        scene.is_new_by_force = true;
        servers_replace(&scene);
        anew_expect(&scene);
        params_scene_compare(&scene, 0);

        assert_int_equal(scene.servers[0].failures + scene.servers[1].failures, 0);
        params_scene_close(&scene);
    }
}

static void a_job_whose_servers_live_is_not_begun_anew(void **state)
{
    struct params_scene scene;

    (void)state;
    job_open(&scene, SERVERS);
    sim_kill(scene.servers[0].node);
    params_scene_forget(&scene, 0);
    scene.is_new_by_force = true;
    params_scene_serve(&scene, 0);
    assert_true(sim_run_for(scene.world, LEASE));

    assert_int_equal(scene.servers[0].failures, 1);
    assert_non_null(strstr(scene.servers[0].failure, "are alive"));
    health_expect(&scene, 1, NULL);
    params_scene_close(&scene);
}

/* --- No tables --- */

static void unused_open(struct params_scene *scene, uint32_t replicas)
{
    memset(scene, 0, sizeof(*scene));
    scene->replicas = replicas;
    scene->is_unused = true;
    params_scene_open(scene, SERVERS);
}

/* Nothing can be lost. The servers come when those of before still count as alive, or later. */
static void a_job_that_never_had_a_table_begins_anew_by_itself(void **state)
{
    (void)state;
    for (uint32_t replicas = 1; replicas <= SERVERS; replicas++) {
        for (uint64_t pause_ns = 0; pause_ns <= LEASE; pause_ns += LEASE) {
            struct params_scene scene;

            unused_open(&scene, replicas);
            servers_kill(&scene);
            assert_true(sim_run_for(scene.world, pause_ns));
            servers_replace(&scene);
            anew_expect(&scene);
            params_scene_push(&scene, 60 * SECOND);
            params_scene_await(&scene, 60 * SECOND);
            params_scene_compare(&scene, 1);

            assert_int_equal(scene.servers[0].failures + scene.servers[1].failures, 0);
            params_scene_close(&scene);
        }
    }
}

/* One of two comes first: it does not begin the job alone. */
static void a_job_that_begins_anew_waits_for_all_of_its_servers(void **state)
{
    struct params_scene scene;

    (void)state;
    unused_open(&scene, 1);
    servers_kill(&scene);
    assert_true(sim_run_for(scene.world, LEASE));
    params_scene_forget(&scene, 0);
    params_scene_serve(&scene, 0);
    assert_true(sim_run_for(scene.world, 20 * SECOND));
    health_expect(&scene, 0, "it waits for 2 servers (--expect), 1 are there");
    params_scene_forget(&scene, 1);
    params_scene_serve(&scene, 1);
    assert_true(sim_run_until(scene.world, are_in_one_map, &scene, 20 * SECOND));

    health_expect(&scene, 0, NULL);
    params_scene_close(&scene);
}

/* Otherwise servers that come later could take the job for one without tables. */
static void the_first_table_of_a_job_waits_for_the_registry(void **state)
{
    const struct muster_params_schema schema = {
        .name = "counts", .row_elements = 1, .optimizer = MUSTER_PARAMS_ADD};
    struct params_scene scene;

    (void)state;
    unused_open(&scene, SERVERS);
    params_scene_client(&scene);
    registry_stage_kill(scene.registry);
    scene.op.data = &scene;
    sim_enter(scene.client);
    assert_int_equal(muster_params_table_start(
                         &scene.op, scene.params, &schema, &scene.table,
                         muster_loop_after_ns(sim_node_env(scene.client)->loop, 60 * SECOND),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene.client);
    assert_true(sim_run_for(scene.world, 10 * SECOND));
    assert_false(scene.is_done);
    registry_stage_restart(scene.registry);
    params_scene_await(&scene, 20 * SECOND);

    assert_false(params_scene_program(&scene, 0)->map->is_unused);
    params_scene_close(&scene);
}

/* --- Cuts --- */

static enum muster_rc folder_sync(const char *folder)
{
    (void)folder;
    return MUSTER_OK;
}

/* Each host has a folder of its own: the same cut is in all of them. */
static void cut_save(const struct params_scene *scene, const char *folder, uint64_t cut)
{
    const struct muster_params_region *region = params_scene_region(scene, 0);
    struct muster_params_snapshot_manifest manifest;
    struct muster_params_schema schema;
    struct muster_error error;
    enum muster_rc rc;

    muster_params_table_schema(&region->head->tables[0], &schema);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct muster_env *env = sim_node_env(scene->servers[i].node);
        const struct muster_params_snapshot snapshot = {
            .files = env->files, .mem = env->mem, .folder = folder, .sync_folder = folder_sync};

        rc = muster_params_snapshot_manifest_init(&manifest, env->mem, &schema, 1,
                                                  PARAMS_SCENE_SHARDS, &error);
        assert_int_equal(rc, MUSTER_OK);
        manifest.cut = cut;
        for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS && rc == MUSTER_OK; shard++)
            rc = muster_params_snapshot_save_shard(&snapshot, region, shard, cut, NULL, NULL,
                                                   &manifest.shards[shard], &error);
        if (rc == MUSTER_OK)
            rc = muster_params_snapshot_save_manifest(&snapshot, &manifest, &error);
        if (rc != MUSTER_OK)
            fail_msg("%s", error.text);
        muster_params_snapshot_manifest_fini(&manifest);
    }
}

/* A new job of these servers, each with its cut. */
static void cuts_serve(struct params_scene *scene, const char *first, const char *second)
{
    servers_kill(scene);
    assert_true(sim_run_for(scene->world, LEASE));
    scene->is_new_by_force = true;
    scene->servers[0].restore = first;
    scene->servers[1].restore = second;
    servers_replace(scene);
}

static void servers_with_different_cuts_do_not_begin_a_job(void **state)
{
    static const struct {
        const char *first, *second, *text;
    } rows[] = {
        {"one", "two", "with cut 2 ("},
        {"one", "other", "with cut 1 ("}, /* of another job, with the same number */
        {"one", NULL, "with no cut"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_scene scene;

        job_open(&scene, SERVERS);
        cut_save(&scene, "one", 1);
        params_scene_client(&scene);
        params_scene_table(&scene);
        params_scene_push(&scene, 60 * SECOND);
        params_scene_await(&scene, 60 * SECOND);
        cut_save(&scene, "two", 2);
        cut_save(&scene, "other", 1);
        params_scene_client_leave(&scene);
        cuts_serve(&scene, rows[i].first, rows[i].second);
        assert_true(sim_run_for(scene.world, LEASE));
        health_expect(&scene, 0, rows[i].text);
        assert_true(sim_run_until(scene.world, have_failed, &scene, 20 * SECOND));

        if (strstr(scene.servers[0].failure, rows[i].text) == NULL ||
            strstr(scene.servers[0].failure, ":7301 begins the job") == NULL)
            fail_msg("%s", scene.servers[0].failure);
        assert_null(params_scene_program(&scene, 0)->map);
        params_scene_close(&scene);
    }
}

/* The key of a dead one, which had another cut, is there for a while. */
static void servers_begin_a_job_with_the_right_cut_after_a_wrong_one(void **state)
{
    struct params_scene scene;

    (void)state;
    job_open(&scene, SERVERS);
    cut_save(&scene, "one", 1);
    cut_save(&scene, "two", 2);
    cuts_serve(&scene, "one", "two");
    assert_true(sim_run_until(scene.world, have_failed, &scene, 20 * SECOND));
    scene.servers[0].failures = scene.servers[1].failures = 0;
    scene.servers[0].restore = "two";
    servers_kill(&scene);
    servers_replace(&scene);
    assert_true(sim_run_until(scene.world, are_in_one_map, &scene, 20 * SECOND));
    params_scene_client(&scene);
    params_scene_table(&scene);
    params_scene_compare(&scene, 1);

    assert_int_equal(scene.servers[0].failures + scene.servers[1].failures, 0);
    params_scene_close(&scene);
}

static bool is_away(void *data)
{
    const struct muster_params_server *server = params_scene_program(data, 1);
    struct muster_error error = {.rc = MUSTER_OK};

    return server != NULL && muster_params_server_check(server, &error) == MUSTER_UNAVAILABLE &&
           strstr(error.text, "the registry at " REGISTRY_STAGE_ENDPOINT " is away") != NULL;
}

static void a_server_that_knows_no_map_says_that_the_registry_is_away(void **state)
{
    struct params_scene scene;

    (void)state;
    job_open(&scene, SERVERS);
    params_scene_client(&scene);
    registry_stage_kill(scene.registry);
    sim_kill(scene.servers[1].node);
    params_scene_serve(&scene, 1);
    assert_true(sim_run_until(scene.world, is_away, &scene, 20 * SECOND));
    health_expect(&scene, 0, NULL);
    inspect_expect(&scene, 1, "the registry at " REGISTRY_STAGE_ENDPOINT " is away");
    inspect_expect(&scene, 0, "");
    registry_stage_restart(scene.registry);
    assert_true(sim_run_until(scene.world, are_in_one_map, &scene, 60 * SECOND));

    health_expect(&scene, 1, NULL);
    params_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_of_a_job_whose_rows_are_gone_end_with_an_error),
        cmocka_unit_test(a_server_that_waits_for_rows_that_are_gone_has_nothing_to_give_away),
        cmocka_unit_test(a_server_without_rows_ends_while_the_registry_is_away),
        cmocka_unit_test(a_server_with_rows_waits_for_the_registry_and_names_it),
        cmocka_unit_test(servers_that_all_end_while_the_registry_is_away_wait_for_nobody),
        cmocka_unit_test(the_last_server_ends_while_the_registry_is_away),
        cmocka_unit_test(a_server_that_ends_gives_its_rows_away_when_the_registry_is_back),
        cmocka_unit_test(a_server_that_comes_back_in_its_memory_ends_the_wait),
        cmocka_unit_test(a_job_of_which_one_server_lives_goes_on),
        cmocka_unit_test(a_job_begins_anew_by_force_without_rows),
        cmocka_unit_test(a_job_whose_servers_live_is_not_begun_anew),
        cmocka_unit_test(a_job_that_never_had_a_table_begins_anew_by_itself),
        cmocka_unit_test(a_job_that_begins_anew_waits_for_all_of_its_servers),
        cmocka_unit_test(the_first_table_of_a_job_waits_for_the_registry),
        cmocka_unit_test(servers_with_different_cuts_do_not_begin_a_job),
        cmocka_unit_test(servers_begin_a_job_with_the_right_cut_after_a_wrong_one),
        cmocka_unit_test(a_server_that_knows_no_map_says_that_the_registry_is_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
