/* A cluster in a file: read anew at each question, watched, malformed. */
#include <muster/resolver.h>

#include "test_env.h"
#include "virtual_loop.h"

#include <string.h>

/* A file system of one file. */
struct shelf {
    struct muster_files files;
    const char *path;
    const char *text; /* NULL: there is no file */
    unsigned reads;
};

struct world {
    struct test_env test;
    struct muster_env env;
    struct virtual_loop loop;
    struct shelf shelf;
    struct muster_resolver *resolver;
    enum muster_rc rc;
    struct muster_error error;
    size_t added, removed;
    unsigned told;
};

static enum muster_rc shelf_read(struct muster_files *files, struct muster_mem *mem,
                                 const char *path, size_t limit_bytes, char **ret_text,
                                 size_t *ret_bytes)
{
    struct shelf *shelf = MUSTER_CONTAINER_OF(files, struct shelf, files);

    shelf->reads++;
    assert_string_equal(path, shelf->path);
    assert_int_equal(limit_bytes, MUSTER_CLUSTER_SPEC_BYTES_MAX);
    if (shelf->text == NULL)
        return MUSTER_NOT_FOUND;
    *ret_text = muster_mem_strdup(mem, shelf->text);
    *ret_bytes = strlen(shelf->text);
    return MUSTER_OK;
}

static void world_open(struct world *world, const char *uri, const char *path)
{
    static const struct muster_files_ops ops = {.read = shelf_read};

    *world = (struct world){.shelf = {.files = {.ops = &ops}, .path = path}};
    test_env_open(&world->test);
    world->env = world->test.env;
    virtual_loop_init(&world->loop);
    world->env.loop = &world->loop.loop;
    world->env.files = &world->shelf.files;
    assert_int_equal(muster_resolver_open(&world->env, uri, NULL, &world->resolver, NULL),
                     MUSTER_OK);
}

static void world_close(struct world *world)
{
    muster_resolver_close(world->resolver, NULL);
    virtual_loop_advance(&world->loop, 1);
    test_env_close(&world->test);
}

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct world *world = resolve->data;

    world->rc = rc;
    world->error = resolve->error;
    muster_cluster_spec_unref(resolve->cluster_spec);
}

static void ask_world(struct world *world, enum muster_resolve_what what, char **ret_master)
{
    struct muster_resolve resolve = {.data = world, .what = what, .deadline_ns = UINT64_MAX};

    assert_int_equal(muster_resolve_start(&resolve, world->resolver, on_answer), MUSTER_OK);
    virtual_loop_advance(&world->loop, 1);
    if (ret_master != NULL)
        *ret_master = resolve.master;
}

static void each_question_reads_the_file(void **state)
{
    struct world world;
    char *master = NULL;
    (void)state;

    world_open(&world, "file:/etc/my%20cluster.json?task_type=w&task_id=1&rpc_layer=grpc",
               "/etc/my cluster.json");
    world.shelf.text = "{\"w\":[\"a:1\",\"b:1\"]}";
    ask_world(&world, MUSTER_RESOLVE_MASTER, &master);
    assert_string_equal(master, "grpc://b:1");
    muster_mem_free(world.env.mem, master);
    world.shelf.text = "{\"w\":[\"a:1\",\"c:1\"]}";
    ask_world(&world, MUSTER_RESOLVE_MASTER, &master);

    assert_string_equal(master, "grpc://c:1");
    assert_string_equal(muster_resolver_source(world.resolver, MUSTER_FACT_CLUSTER_SPEC),
                        "/etc/my cluster.json");
    muster_mem_free(world.env.mem, master);
    world_close(&world);
}

static void what_is_wrong_with_the_file_is_said_with_its_path(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
        const char *error;
    } rows[] = {
        {NULL, MUSTER_NOT_FOUND, "cannot be read"},
        {"", MUSTER_INVALID_ARGUMENT, "JSON"},
        {"{\"w\":", MUSTER_INVALID_ARGUMENT, "line 1"},
        {"[]", MUSTER_INVALID_ARGUMENT, "must be an object from job to addresses, got list"},
        {"{\"w\":[7]}", MUSTER_INVALID_ARGUMENT, "'w'"},
    };
    struct world world;
    (void)state;

    world_open(&world, "file:/c.json", "/c.json");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        world.shelf.text = rows[i].text;
        ask_world(&world, MUSTER_RESOLVE_CLUSTER_SPEC, NULL);
        assert_int_equal(world.rc, rows[i].rc);
        assert_non_null(strstr(world.error.text, "/c.json"));
        if (strstr(world.error.text, rows[i].error) == NULL)
            fail_msg("'%s' does not hold '%s'", world.error.text, rows[i].error);
    }
    world_close(&world);
}

static void on_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec,
                      const struct muster_cluster_diff *diff)
{
    struct world *world = watch->data;

    (void)spec;
    world->told++;
    world->added = diff->added_count;
    world->removed = diff->removed_count;
}

static void a_watch_sees_a_new_file_within_two_seconds(void **state)
{
    struct muster_resolver_watch watch = {.on_change = on_change};
    struct world world;
    (void)state;

    world_open(&world, "file:/c.json", "/c.json");
    watch.data = &world;
    world.shelf.text = "{\"w\":[\"a:1\"]}";
    assert_int_equal(muster_resolver_watch_open(&watch, world.resolver), MUSTER_OK);
    virtual_loop_advance(&world.loop, 1);
    assert_int_equal(world.told, 1);
    world.shelf.text = "{\"w\":[\"a:1\",\"b:1\"";
    virtual_loop_advance(&world.loop, MUSTER_NS_PER_S);
    assert_int_equal(watch.error.rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(world.told, 1);
    world.shelf.text = "{\"w\":[\"a:1\",\"b:1\"]}";
    virtual_loop_advance(&world.loop, 2 * MUSTER_NS_PER_S);

    assert_int_equal(world.told, 2);
    assert_int_equal(world.added, 1);
    assert_int_equal(world.removed, 0);
    muster_resolver_watch_close(&watch, NULL);
    virtual_loop_advance(&world.loop, 1);
    world_close(&world);
}

static void a_uri_without_a_path_is_refused(void **state)
{
    static const char *const uris[] = {"file:", "file:?task_id=1", "file:/a%zz", "file:/a?color=1"};
    struct muster_resolver *resolver = NULL;
    struct test_env test;
    (void)state;

    test_env_open(&test);
    for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++)
        assert_int_equal(muster_resolver_open(&test.env, uris[i], NULL, &resolver, NULL),
                         MUSTER_INVALID_ARGUMENT);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_question_reads_the_file),
        cmocka_unit_test(what_is_wrong_with_the_file_is_said_with_its_path),
        cmocka_unit_test(a_watch_sees_a_new_file_within_two_seconds),
        cmocka_unit_test(a_uri_without_a_path_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
