/* Servers of a job as the registry shows them: one whose process is gone is forgotten before its lease ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_job.h"
#include "scene_case.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "params/server/core/server_internal.h"
#include "params/server/registry/registration_internal.h"
#include "params/wire/server_record.h"

#define SERVERS_PREFIX "/muster/test/params/servers/"
#define MAP_KEY        "/muster/test/params/map"

static void job_open(struct params_job *job)
{
    params_job_open(job, 1, 1);
    job->registry.op.data = &job->registry;
    registry_pair_open_client(&job->registry, job->registry.endpoints);
}

static void job_close(struct params_job *job)
{
    registry_pair_close_client(&job->registry);
    params_job_close(job);
}

SCENE_CASES(struct params_job, job_open, job_close)

static pid_t child_start(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return pid;
}

static void child_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A key as another server of this host puts it, but under no lease. */
static void server_put_with(struct params_job *job, uint8_t number, pid_t pid, const char *host_key,
                            uint32_t shard_count)
{
    struct muster_params_server_record record = {.pid = pid,
                                                 .started =
                                                     muster_host_started(job->env->host, pid),
                                                 .shard_count = shard_count,
                                                 .replicas = 1};
    uint8_t bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES];
    char name[MUSTER_INCARNATION_TEXT_BYTES], key[128];

    record.server.id.bytes[0] = record.server.id.bytes[15] = number;
    snprintf(record.server.address, sizeof(record.server.address), "127.0.0.1:9");
    snprintf(record.server.host_key, sizeof(record.server.host_key), "%s", host_key);
    snprintf(key, sizeof(key), SERVERS_PREFIX "%s",
             muster_incarnation_format(&record.server.id, name));
    muster_params_server_record_pack(&record, bytes);
    assert_int_equal(REGISTRY_PAIR_RUN(&job->registry, put, registry_pair_bytes_of(key),
                                       ((struct muster_bytes){bytes, sizeof(bytes)}), 0),
                     MUSTER_OK);
}

static void server_put(struct params_job *job, uint8_t number, pid_t pid, const char *host_key)
{
    server_put_with(job, number, pid, host_key, PARAMS_CALLER_SHARDS);
}

struct crowd {
    const struct muster_params_server *server;
    uint32_t count;
};

static bool has_map_of(void *data)
{
    const struct crowd *crowd = data;

    return crowd->server->map->server_count == crowd->count;
}

static void map_await(struct params_job *job, uint32_t count)
{
    struct crowd crowd = {job->members[0].server, count};

    test_env_run_until(job->env, has_map_of, &crowd);
}

static void a_server_whose_process_dies_is_forgotten(void **state)
{
    struct params_job *job = *state;
    pid_t pid = child_start();

    server_put(job, 200, pid, muster_host_key(job->env->host));
    map_await(job, 2);
    child_kill(pid);

    registry_pair_wait_for_keys(&job->registry, SERVERS_PREFIX, 1);
    map_await(job, 1);
}

static bool is_swapping(void *data)
{
    const struct params_job *job = data;

    return job->members[0].server->registration->is_swapping;
}

/* Pushes wait for the map: it does not wait until the registry has said that the key is gone. */
static void the_map_after_a_death_leaves_with_the_deletion_of_the_key(void **state)
{
    struct params_job *job = *state;
    const struct muster_params_registration *registration = job->members[0].server->registration;
    pid_t pid = child_start();

    server_put(job, 200, pid, muster_host_key(job->env->host));
    map_await(job, 2);
    while (is_swapping(job))
        test_env_turn(job->env, 1);
    child_kill(pid);
    test_env_run_until(job->env, is_swapping, job);

    assert_int_equal(registration->peer_count, 2);
    map_await(job, 1);
    registry_pair_wait_for_keys(&job->registry, SERVERS_PREFIX, 1);
}

/* The revisions of the deletion of a server's key, and of the newest map that was not later. */
struct sights {
    uint64_t map, deletion;
};

static void on_sights(struct muster_registry_watch *watch,
                      const struct muster_registry_change *changes, size_t count)
{
    struct sights *sights = watch->data;

    for (size_t i = 0; i < count; i++) {
        uint64_t revision = changes[i].kv.mod_revision;

        if (changes[i].is_delete)
            sights->deletion = revision;
        else if (changes[i].kv.key.size == strlen(MAP_KEY) &&
                 (sights->deletion == 0 || sights->deletion == revision))
            sights->map = revision;
    }
}

static void on_sights_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    (void)watch;
    (void)rc;
}

static bool is_deleted(void *data)
{
    return ((const struct sights *)data)->deletion != 0;
}

/* Whoever saw the map first would take the dead server for one that comes. */
static void the_map_after_a_death_and_the_deletion_of_the_key_are_one_change(void **state)
{
    struct params_job *job = *state;
    struct sights sights = {.map = 0};
    struct muster_registry_watch watch = {.data = &sights};
    pid_t pid = child_start();

    server_put(job, 200, pid, muster_host_key(job->env->host));
    map_await(job, 2);
    while (is_swapping(job))
        test_env_turn(job->env, 1);
    assert_int_equal(muster_registry_watch_start(&watch, job->registry.registry,
                                                 registry_pair_bytes_of("/muster/test/params/"),
                                                 MUSTER_REGISTRY_PREFIX, job->registry.revision + 1,
                                                 on_sights, on_sights_end),
                     MUSTER_OK);
    child_kill(pid);
    map_await(job, 1);
    test_env_run_until(job->env, is_deleted, &sights);

    muster_registry_watch_stop(&watch);

    assert_int_equal(sights.map, sights.deletion);
}

static void a_server_whose_process_is_gone_already_is_forgotten(void **state)
{
    struct params_job *job = *state;
    pid_t pid = child_start();

    child_kill(pid);
    server_put(job, 200, pid, muster_host_key(job->env->host));

    registry_pair_wait_for_keys(&job->registry, SERVERS_PREFIX, 1);
    map_await(job, 1);
}

/* Nothing is known here about the processes of another host. */
static void a_server_of_another_host_is_left_to_its_lease(void **state)
{
    struct params_job *job = *state;
    pid_t pid = child_start();

    child_kill(pid);
    server_put(job, 200, pid, "another-host");
    map_await(job, 2);
    server_put(job, 201, pid, muster_host_key(job->env->host));

    registry_pair_wait_for_keys(&job->registry, SERVERS_PREFIX, 2);
    assert_true(job->members[0].server->map->server_count >= 2);
}

static void a_server_with_another_number_of_shards_gets_none(void **state)
{
    struct params_job *job = *state;

    server_put_with(job, 200, getpid(), muster_host_key(job->env->host), PARAMS_CALLER_SHARDS * 2);
    server_put(job, 201, getpid(), muster_host_key(job->env->host));
    map_await(job, 2);

    assert_false(muster_params_map_find(
        job->members[0].server->map, &(struct muster_incarnation){{[0] = 200, [15] = 200}}, NULL));
}

static bool has_failed(void *data)
{
    return ((const struct params_job_member *)data)->has_failed;
}

static void a_server_beside_others_with_another_number_of_shards_fails(void **state)
{
    struct params_job *job = *state;
    struct params_job_member *member = &job->members[0];
    struct muster_params_map *map = muster_params_map_new(job->env->mem);
    void *bytes = NULL;
    size_t size = 0;

    assert_non_null(map);
    muster_params_map_single(map, &member->server->map->servers[0].id, PARAMS_CALLER_SHARDS * 2);
    map->epoch = member->server->map->epoch + 1;
    assert_int_equal(muster_params_map_pack(map, job->env->mem, &bytes, &size), MUSTER_OK);
    assert_int_equal(REGISTRY_PAIR_RUN(&job->registry, put,
                                       registry_pair_bytes_of("/muster/test/params/map"),
                                       ((struct muster_bytes){bytes, size}), 0),
                     MUSTER_OK);
    test_env_run_until(job->env, has_failed, member);

    assert_int_equal(member->server->map->shard_count, PARAMS_CALLER_SHARDS);
    muster_mem_free(job->env->mem, bytes);
    muster_mem_free(job->env->mem, map);
}

static bool is_unready(void *data)
{
    struct muster_error error;

    return muster_params_server_check(data, &error) == MUSTER_UNAVAILABLE &&
           strstr(error.text, "is not a registry: ") != NULL;
}

/* The address of another server of parameters, for example. */
static void a_service_that_is_not_a_registry_is_told_of_by_its_address(void **state)
{
    struct params_job *job = *state;
    char endpoints[sizeof(job->registry.endpoints)];
    struct muster_error error;

    strcpy(endpoints, job->registry.endpoints);
    strcpy(job->registry.endpoints, job->members[0].address);
    params_job_member_open(job, 1);
    job->count = 2;
    strcpy(job->registry.endpoints, endpoints);
    test_env_run_until(job->env, is_unready, job->members[1].server);

    assert_int_equal(muster_params_server_check(job->members[1].server, &error),
                     MUSTER_UNAVAILABLE);
    assert_non_null(strstr(error.text, job->members[0].address));
    assert_int_equal(muster_params_server_check(job->members[0].server, &error), MUSTER_OK);
}

/* --- A process that died while it changed the map --- */

static bool has_map(void *data)
{
    const struct params_job *job = data;

    return job->members[0].server->map != NULL;
}

static uint32_t *swapping_of(struct params_job *job)
{
    return &job->members[0].server->region->head->swapping;
}

static void a_change_of_the_map_is_noted_until_its_outcome_is_known(void **state)
{
    struct params_job *job = *state;

    assert_int_equal(*swapping_of(job), 0);
    server_put(job, 200, 1, "another-host");
    test_env_run_until(job->env, is_swapping, job);
    assert_int_equal(*swapping_of(job), 1);
    map_await(job, 2);
    while (is_swapping(job))
        test_env_turn(job->env, 1);

    assert_int_equal(*swapping_of(job), 0);
}

/* A change that the dead process has sent compares with the revision that it knew. */
static void a_late_change_of_a_dead_process_does_not_count(void **state)
{
    struct params_job *job = *state;

    for (uint32_t was_swapping = 0; was_swapping <= 1; was_swapping++) {
        uint64_t revision = job->members[0].server->registration->map_revision;

        *swapping_of(job) = was_swapping;
        params_job_member_restart(job, 0);
        test_env_run_until(job->env, has_map, job);

        assert_int_equal(job->members[0].server->registration->map_revision > revision,
                         was_swapping);
        while (is_swapping(job) || *swapping_of(job) != 0)
            test_env_turn(job->env, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_server_whose_process_dies_is_forgotten),
        CASE(the_map_after_a_death_leaves_with_the_deletion_of_the_key),
        CASE(the_map_after_a_death_and_the_deletion_of_the_key_are_one_change),
        CASE(a_server_whose_process_is_gone_already_is_forgotten),
        CASE(a_server_of_another_host_is_left_to_its_lease),
        CASE(a_server_with_another_number_of_shards_gets_none),
        CASE(a_server_beside_others_with_another_number_of_shards_fails),
        CASE(a_service_that_is_not_a_registry_is_told_of_by_its_address),
        CASE(a_change_of_the_map_is_noted_until_its_outcome_is_known),
        CASE(a_late_change_of_a_dead_process_does_not_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
