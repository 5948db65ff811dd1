/* Maps and records of servers: what is packed is unpacked, and nothing malformed gets through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/wire/map.h"
#include "params/wire/server_record.h"
#include "scene_case.h"
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#define HEAD_BYTES   32u
#define SERVER_BYTES 152u

static struct muster_params_map *map_of_three(struct muster_mem *mem)
{
    struct muster_params_map *map = muster_params_map_new(mem);

    assert_non_null(map);
    map->epoch = 7;
    map->shard_count = 4;
    map->copies_wanted = 2;
    map->server_count = 3;
    for (uint8_t i = 0; i < 3; i++) {
        map->servers[i].id.bytes[3] = (uint8_t)(i + 1);
        snprintf(map->servers[i].address, sizeof(map->servers[i].address), "10.0.0.%u:7300", i);
        snprintf(map->servers[i].host_key, sizeof(map->servers[i].host_key), "host%u", i);
    }
    map->servers[2].is_leaving = true;
    map->is_unused = true;
    for (uint32_t i = 0; i < 4; i++)
        map->shards[i] = (struct muster_params_map_shard){.since = i,
                                                          .copy_count = 2,
                                                          .learner_count = 1,
                                                          .copies = {(uint16_t)(i % 3), 2},
                                                          .learners = {1}};
    map->shards[1].learners[0] = 0;
    map->shards[2] = (struct muster_params_map_shard){.since = 7};
    return map;
}

struct scene {
    struct test_env test;
    struct muster_params_map *map; /* of three servers */
    uint8_t *bytes;                /* the map, packed */
    size_t size;
};

static void scene_open(struct scene *scene)
{
    void *bytes;

    test_env_open(&scene->test);
    scene->map = map_of_three(scene->test.env.mem);
    assert_int_equal(muster_params_map_pack(scene->map, scene->test.env.mem, &bytes, &scene->size),
                     MUSTER_OK);
    scene->bytes = bytes;
}

static void scene_close(struct scene *scene)
{
    muster_mem_free(scene->test.env.mem, scene->bytes);
    muster_mem_free(scene->test.env.mem, scene->map);
    test_env_close(&scene->test);
}

SCENE_CASES(struct scene, scene_open, scene_close)

/* The bytes say what the map says. */
static void unpacked_check(struct scene *scene)
{
    struct muster_params_map *found = NULL;
    struct muster_error error;

    if (muster_params_map_unpack(scene->test.env.mem, scene->bytes, scene->size, &found, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
    assert_memory_equal(found, scene->map, sizeof(*found));
    muster_mem_free(scene->test.env.mem, found);
}

static void refused_check(struct scene *scene, size_t size, const char *name, const char *text)
{
    struct muster_params_map *found = NULL;
    struct muster_error error;

    if (muster_params_map_unpack(scene->test.env.mem, scene->bytes, size, &found, &error) !=
            MUSTER_INVALID_ARGUMENT ||
        strstr(error.text, text) == NULL)
        fail_msg("%s: %s", name, error.text);
    assert_null(found);
}

static void what_is_packed_is_unpacked(void **state)
{
    unpacked_check(*state);
}

static void copies_and_learners_are_told_apart(void **state)
{
    const struct scene *scene = *state;
    const struct muster_params_map *map = scene->map;
    const struct muster_incarnation stranger = {{9}};
    uint32_t place = 0;

    assert_true(muster_params_map_is_copy(map, 0, 0) && muster_params_map_is_copy(map, 0, 2));
    assert_false(muster_params_map_is_copy(map, 0, 1));
    assert_true(muster_params_map_is_learner(map, 0, 1));
    assert_false(muster_params_map_is_learner(map, 0, 0));
    assert_true(muster_params_map_find(map, &map->servers[2].id, &place));
    assert_int_equal(place, 2);
    assert_false(muster_params_map_find(map, &stranger, &place));
}

static const struct change {
    const char *name;
    uint32_t at;
    uint8_t value;
    const char *text;
} changes[] = {
    {"other first bytes", 0, 0, "first bytes"},
    {"another version", 4, 9, "version 9"},
    {"number 0", 8, 0, "number 0"},
    {"no shards", 16, 0, "its size"},
    {"three shards", 16, 3, "its size"},
    {"too many shards", 17, 0xff, "number of shards"},
    {"no replicas", 20, 0, "number of replicas"},
    {"six replicas", 20, 6, "number of replicas"},
    {"too many servers", 24, 65, "number of servers"},
    {"more servers than bytes", 24, 4, "its size"},
    {"a server without an id", HEAD_BYTES + 3, 0, "without an id"},
    {"two servers of one id", HEAD_BYTES + SERVER_BYTES + 3, 1, "order of the servers"},
    {"servers that do not rise", HEAD_BYTES, 9, "order of the servers"},
    {"a space in an address", HEAD_BYTES + 18, ' ', "address of a server"},
    {"a control character in a host key", HEAD_BYTES + 82, '\n', "host key"},
    {"a shard from the future", HEAD_BYTES + 3 * SERVER_BYTES, 8, "servers of a shard"},
    {"six copies", HEAD_BYTES + 3 * SERVER_BYTES + 8, 6, "servers of a shard"},
    {"three learners", HEAD_BYTES + 3 * SERVER_BYTES + 9, 3, "servers of a shard"},
    {"a copy at no place", HEAD_BYTES + 3 * SERVER_BYTES + 10, 3, "servers of a shard"},
    {"a copy twice", HEAD_BYTES + 3 * SERVER_BYTES + 10, 2, "servers of a shard"},
    {"a copy that learns", HEAD_BYTES + 3 * SERVER_BYTES + 20, 0, "servers of a shard"},
};

static void a_malformed_map_is_refused_by_its_part(void **state)
{
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        uint8_t before = scene->bytes[changes[i].at];

        scene->bytes[changes[i].at] = changes[i].value;
        refused_check(scene, scene->size, changes[i].name, changes[i].text);
        scene->bytes[changes[i].at] = before;
    }
    for (size_t cut = 0; cut < scene->size; cut++)
        refused_check(scene, cut, "cut", "its size");
    scene->bytes[3] = 0; /* the last of its first bytes, beyond the cut */
    refused_check(scene, 3, "cut before other bytes", "its size");
}

/* Texts that fill their room have no end. */
static void a_text_without_end_is_refused(void **state)
{
    struct scene *scene = *state;

    memset(scene->bytes + HEAD_BYTES + 16, 'a', MUSTER_PARAMS_ADDRESS_BYTES);

    refused_check(scene, scene->size, "no end", "address of a server");
}

/* Otherwise a decision that changes nothing would look like a change for ever. */
static void bytes_beyond_texts_and_lists_are_left_out(void **state)
{
    static const uint32_t at[] = {
        HEAD_BYTES + 16 + 63,               /* the address */
        HEAD_BYTES + 80 + 60,               /* the host key */
        HEAD_BYTES + 3 * SERVER_BYTES + 14, /* the third copy of two */
        HEAD_BYTES + 3 * SERVER_BYTES + 22, /* the second learner of one */
    };
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        scene->bytes[at[i]] = 'x';

    unpacked_check(scene);
}

static void a_server_that_is_alone_has_all_shards(void **state)
{
    struct scene *scene = *state;
    const struct muster_incarnation id = {{5}};
    struct muster_error error;

    memset(scene->map, 0, sizeof(*scene->map));
    muster_params_map_single(scene->map, &id, 16);

    assert_int_equal(muster_params_map_check(scene->map, &error), MUSTER_OK);
    for (uint32_t shard = 0; shard < 16; shard++)
        assert_true(muster_params_map_is_copy(scene->map, shard, 0));
}

/* --- Records --- */

static const struct muster_params_server_record record = {.server = {.id = {{1, 2, 3}},
                                                                     .address = "10.0.0.1:7300",
                                                                     .host_key = "host",
                                                                     .is_leaving = true},
                                                          .pid = 1234,
                                                          .started = 99,
                                                          .shard_count = 256,
                                                          .replicas = 2,
                                                          .cut = UINT64_C(1) << 40,
                                                          .cut_hash = 77};

#define RECORD_ADDRESS  24u
#define RECORD_HOST_KEY (RECORD_ADDRESS + MUSTER_PARAMS_ADDRESS_BYTES)

/* The bytes say what the record says. */
static void record_check(const uint8_t bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES])
{
    struct muster_params_server_record found;
    struct muster_error error;

    memset(&found, 0xff, sizeof(found)); /* of an older record */
    if (muster_params_server_record_unpack(bytes, MUSTER_PARAMS_SERVER_RECORD_BYTES, &found,
                                           &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_memory_equal(&found.server, &record.server, sizeof(found.server));
    assert_int_equal(found.pid, record.pid);
    assert_int_equal(found.started, record.started);
    assert_int_equal(found.shard_count, record.shard_count);
    assert_int_equal(found.replicas, record.replicas);
    assert_int_equal(found.cut, record.cut);
    assert_int_equal(found.cut_hash, record.cut_hash);
}

static void a_record_is_packed_and_unpacked(void **state)
{
    uint8_t bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES];

    (void)state;
    muster_params_server_record_pack(&record, bytes);

    record_check(bytes);
}

static void bytes_behind_the_texts_of_a_record_are_left_out(void **state)
{
    uint8_t bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES];

    (void)state;
    muster_params_server_record_pack(&record, bytes);
    bytes[RECORD_ADDRESS + 20] = 'x';
    bytes[RECORD_HOST_KEY + 20] = 'x';

    record_check(bytes);
}

static void a_malformed_record_is_refused(void **state)
{
    static const struct {
        uint32_t at;
        uint8_t value;
        uint8_t lacking; /* bytes at the end */
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {0, 0, 0, MUSTER_INVALID_ARGUMENT, "PSRV"},
        {4, 2, 0, MUSTER_FAILED_PRECONDITION, "version 2"},
        {RECORD_HOST_KEY - 1, 'x', 0, MUSTER_INVALID_ARGUMENT, "has no NUL"},
        {RECORD_HOST_KEY + MUSTER_HOST_KEY_BYTES - 1, 'x', 0, MUSTER_INVALID_ARGUMENT,
         "has no NUL"},
        {RECORD_ADDRESS, 'x', 1, MUSTER_INVALID_ARGUMENT, "bytes, got"},
    };
    struct muster_params_server_record found;
    uint8_t bytes[MUSTER_PARAMS_SERVER_RECORD_BYTES];
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        muster_params_server_record_pack(&record, bytes);
        bytes[rows[i].at] = rows[i].value;
        fail_if(muster_params_server_record_unpack(bytes, sizeof(bytes) - rows[i].lacking, &found,
                                                   &error) != rows[i].rc ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].text, error.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_packed_is_unpacked),
        CASE(copies_and_learners_are_told_apart),
        CASE(a_malformed_map_is_refused_by_its_part),
        CASE(a_text_without_end_is_refused),
        CASE(a_server_that_is_alone_has_all_shards),
        cmocka_unit_test(a_record_is_packed_and_unpacked),
        CASE(bytes_beyond_texts_and_lists_are_left_out),
        cmocka_unit_test(bytes_behind_the_texts_of_a_record_are_left_out),
        cmocka_unit_test(a_malformed_record_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
