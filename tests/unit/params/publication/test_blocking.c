/* Blocking calls of publications: a program with a runtime publishes, takes versions and puts them back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "publication_stand.h"

#include <string.h>

#define TIMEOUT_NS (60 * MUSTER_NS_PER_S)
#define SOON_NS    (20 * MUSTER_NS_PER_MS)
#define COUNT      100000u

struct scene {
    struct publication_stand stand;
    struct muster_runtime *runtime;
    struct muster_error error;
    float *weights;
};

static void scene_open(struct scene *scene)
{
    publication_stand_open(&scene->stand);
    scene->weights = scene->stand.weights;
    assert_int_equal(muster_runtime_open(&(struct muster_runtime_options){.env = scene->stand.env},
                                         &scene->runtime),
                     MUSTER_OK);
}

static void scene_close(struct scene *scene)
{
    muster_runtime_close(scene->runtime);
    publication_stand_close(&scene->stand);
}

static void assert_rc(const struct scene *scene, enum muster_rc rc, enum muster_rc expected,
                      const char *text)
{
    if (rc != expected || (rc != MUSTER_OK && strstr(scene->error.text, text) == NULL))
        fail_msg("%d: %s", rc, scene->error.text);
}

static enum muster_rc scene_publisher(struct scene *scene, const char *registry,
                                      uint64_t timeout_ns, struct muster_publication **ret_made)
{
    struct muster_address listen;
    const struct muster_publication_options options = {
        .name = PUBLICATION_STAND_NAME, .job = "test", .registry = registry, .listen = &listen};

    assert_int_equal(muster_address_parse("127.0.0.1:0", &listen, &scene->error), MUSTER_OK);
    return muster_publication_connect(scene->runtime, &options, timeout_ns, ret_made,
                                      &scene->error);
}

static struct muster_publication *scene_publish(struct scene *scene)
{
    struct muster_publication *made = NULL;

    assert_rc(scene, scene_publisher(scene, scene->stand.registry.endpoints, TIMEOUT_NS, &made),
              MUSTER_OK, "");
    return made;
}

static struct muster_reader *scene_read(struct scene *scene)
{
    const struct muster_reader_options options = {
        .name = PUBLICATION_STAND_NAME, .job = "test", .registry = scene->stand.registry.endpoints};
    struct muster_reader *reader = NULL;

    assert_rc(scene, muster_reader_connect(scene->runtime, &options, &reader, &scene->error),
              MUSTER_OK, "");
    return reader;
}

static enum muster_rc scene_put(struct scene *scene, struct muster_publication *publication,
                                float value, uint64_t *ret_version)
{
    const struct muster_named_tensor tensor = {
        .name = "w", .dtype = MUSTER_F32, .count = COUNT, .data = scene->weights};
    const struct muster_publication_put put = {.tensors = &tensor, .count = 1};

    for (uint32_t i = 0; i < COUNT; i++)
        scene->weights[i] = value;
    return muster_publication_publish(publication, &put, TIMEOUT_NS, ret_version, &scene->error);
}

static void what_is_published_is_taken_and_put_back(void **state)
{
    struct scene scene;
    struct muster_publication *publication;
    struct muster_reader *reader;
    uint64_t number = 0;

    (void)state;
    scene_open(&scene);
    publication = scene_publish(&scene);
    reader = scene_read(&scene);
    for (uint64_t i = 1; i <= 3; i++) {
        const struct muster_version *version = NULL;

        assert_rc(&scene, scene_put(&scene, publication, (float)i, &number), MUSTER_OK, "");
        assert_int_equal(number, i);
        assert_rc(&scene, muster_reader_take(reader, number, TIMEOUT_NS, &version, &scene.error),
                  MUSTER_OK, "");
        assert_int_equal(version->number, i);
        assert_true(((const float *)version->tensors[0].data)[COUNT - 1] == (float)i);
        assert_rc(&scene, muster_reader_put_back(reader, version, &scene.error), MUSTER_OK, "");
    }

    assert_rc(&scene, muster_reader_disconnect(reader, &scene.error), MUSTER_OK, "");
    assert_rc(&scene, muster_publication_disconnect(publication, &scene.error), MUSTER_OK, "");
    scene_close(&scene);
}

static void version_that_does_not_come_is_named(void **state)
{
    const struct muster_version *version = NULL;
    struct muster_reader *reader;
    struct scene scene;

    (void)state;
    scene_open(&scene);
    reader = scene_read(&scene);

    assert_rc(&scene, muster_reader_take(reader, 7, SOON_NS, &version, &scene.error),
              MUSTER_DEADLINE_EXCEEDED, "version 7 is not here");
    assert_null(version);

    assert_rc(&scene, muster_reader_disconnect(reader, NULL), MUSTER_OK, "");
    scene_close(&scene);
}

static void publisher_that_came_first_is_told_of_the_second(void **state)
{
    struct muster_publication *first, *second;
    struct scene scene;
    uint64_t number = 0;

    (void)state;
    scene_open(&scene);
    first = scene_publish(&scene);
    second = scene_publish(&scene);

    assert_rc(&scene, scene_put(&scene, first, 1, &number), MUSTER_ABORTED, "another publisher");
    assert_int_equal(number, 0);
    assert_rc(&scene, scene_put(&scene, second, 1, &number), MUSTER_OK, "");
    assert_int_equal(number, 1);

    assert_rc(&scene, muster_publication_disconnect(first, NULL), MUSTER_OK, "");
    assert_rc(&scene, muster_publication_disconnect(second, NULL), MUSTER_OK, "");
    scene_close(&scene);
}

static void publisher_without_a_registry_leaves_nothing_behind(void **state)
{
    struct muster_publication *made = NULL;
    struct scene scene;

    (void)state;
    scene_open(&scene);

    assert_rc(&scene, scene_publisher(&scene, "127.0.0.1:1", SOON_NS, &made),
              MUSTER_DEADLINE_EXCEEDED, "the registry at 127.0.0.1:1 has not answered in time");
    assert_null(made);

    scene_close(&scene);
}

static void objects_of_a_loop_are_refused(void **state)
{
    const struct muster_version *version = NULL;
    struct muster_publication *publication;
    struct muster_reader *reader;
    struct scene scene;

    (void)state;
    publication_stand_open(&scene.stand);
    scene.weights = scene.stand.weights;
    publication = publication_stand_publish(&scene.stand);
    reader = publication_stand_read(&scene.stand, 0);

    assert_rc(&scene, scene_put(&scene, publication, 1, NULL), MUSTER_FAILED_PRECONDITION,
              "needs what muster_publication_connect has made");
    assert_rc(&scene, muster_publication_disconnect(publication, &scene.error),
              MUSTER_FAILED_PRECONDITION, "needs what muster_publication_connect has made");
    assert_rc(&scene, muster_reader_take(reader, 0, 0, &version, &scene.error),
              MUSTER_FAILED_PRECONDITION, "needs what muster_reader_connect has made");
    assert_rc(&scene, muster_reader_disconnect(reader, &scene.error), MUSTER_FAILED_PRECONDITION,
              "needs what muster_reader_connect has made");

    publication_stand_close(&scene.stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_published_is_taken_and_put_back),
        cmocka_unit_test(version_that_does_not_come_is_named),
        cmocka_unit_test(publisher_that_came_first_is_told_of_the_second),
        cmocka_unit_test(publisher_without_a_registry_leaves_nothing_behind),
        cmocka_unit_test(objects_of_a_loop_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
