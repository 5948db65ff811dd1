/* Opening and closing a server of parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <stdio.h>
#include <string.h>

#include "params/server/registry/map.h"

/* The leak check at the end sees what a failed opening leaves. */
static void a_server_whose_address_is_taken_is_not_opened(void **state)
{
    struct params_stand stand;
    struct muster_params_server_options options = {.job = "test"};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, 8);
    options.listen = muster_params_server_address(stand.server);
    options.seat = stand.seat;
    assert_int_equal(muster_params_server_open(&stand.test.env, &options, &server, &error),
                     MUSTER_ALREADY_EXISTS);

    assert_null(server);
    test_env_turn(&stand.test.env, 4);
    params_stand_close(&stand);
}

/* It would serve a job whose other servers and clients never hear of it. */
static void a_server_without_its_registry_is_not_opened(void **state)
{
    struct params_stand stand;
    struct muster_address any;
    struct muster_params_server_options options = {
        .job = "test", .listen = &any, .registry = "no such address"};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, 8);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    options.seat = stand.seat;
    assert_int_equal(muster_params_server_open(&stand.test.env, &options, &server, &error),
                     MUSTER_INVALID_ARGUMENT);

    assert_null(server);
    assert_non_null(strstr(error.text, "no such address"));
    test_env_turn(&stand.test.env, 4);
    params_stand_close(&stand);
}

/* A map of the server and of one that follows it. */
static struct muster_params_map *map_with_follower(const struct muster_params_server *server)
{
    struct muster_params_map *map = muster_params_map_new(server->env->mem);

    assert_non_null(map);
    *map = *server->map;
    map->epoch++;
    map->server_count = 2;
    map->servers[1] = map->servers[0];
    memset(map->servers[1].id.bytes, 0xff, sizeof(map->servers[1].id.bytes));
    snprintf(map->servers[1].address, sizeof(map->servers[1].address), "127.0.0.1:1");
    for (uint32_t i = 0; i < map->shard_count; i++) {
        map->shards[i].copy_count = 2;
        map->shards[i].copies[1] = 1;
    }
    return map;
}

/* The registry tells of maps until its connection has ended. */
static void a_server_that_closes_follows_no_map(void **state)
{
    struct params_stand stand;
    struct muster_address any;
    struct muster_params_server_options options = {.job = "test", .listen = &any};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, 8);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    options.seat = stand.seat;
    assert_int_equal(muster_params_server_open(&stand.test.env, &options, &server, &error),
                     MUSTER_OK);
    muster_params_server_close(server, NULL);
    muster_params_server_set_map(server, map_with_follower(server));

    assert_true(muster_list_is_empty(&server->followers));
    test_env_turn(&stand.test.env, 4);
    params_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_whose_address_is_taken_is_not_opened),
        cmocka_unit_test(a_server_without_its_registry_is_not_opened),
        cmocka_unit_test(a_server_that_closes_follows_no_map),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
