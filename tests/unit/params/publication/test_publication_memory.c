/* Each allocation of a publisher, and of a reader, fails in turn: a version is made or it is not, as is said,
 * and readers see whole ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "careful_mem.h"
#include "publication_stand.h"
#include "torture.h"

#include <string.h>

#define COUNT    70000u /* two chunks */
#define RUNS_MAX 60
#define PUTS     2u
#define TURNS    40 /* without memory for good; more is tried again in the same way */

struct scene {
    struct torture *torture;
    struct publication_stand stand;
    struct muster_mem_limited mem;
    struct muster_env env; /* its memory fails */
    struct muster_publication *publication;
    struct muster_reader *reader;
    struct muster_address any;
    bool is_done;
    enum muster_rc rc;
};

static float weights[COUNT];

static void scene_open(struct scene *scene, struct torture *torture)
{
    memset(scene, 0, sizeof(*scene));
    scene->torture = torture;
    publication_stand_open(&scene->stand);
    muster_mem_limited_init(&scene->mem, careful_mem(), 0);
    scene->env = *scene->stand.env;
    scene->env.mem = &scene->mem.mem;
    assert_int_equal(muster_address_parse("127.0.0.1:0", &scene->any, NULL), MUSTER_OK);
}

static void scene_close(struct scene *scene)
{
    publication_stand_close(&scene->stand);
    assert_int_equal(muster_mem_limited_fini(&scene->mem), 0);
}

static uint64_t scene_deadline(const struct scene *scene)
{
    return muster_loop_after_ns(scene->env.loop, 60 * MUSTER_NS_PER_S);
}

/* Memory comes back after some turns. */
static enum muster_rc scene_await(struct scene *scene)
{
    for (unsigned i = 0; i < TURNS && !scene->is_done; i++)
        muster_loop_turn(scene->env.loop, 0);
    torture_disarm(scene->torture);
    test_env_run_until(&scene->env, test_env_is_true, &scene->is_done);
    return scene->rc;
}

static void check_hunger(const struct scene *scene, enum muster_rc rc,
                         const struct muster_error *error)
{
    if (rc == MUSTER_OK)
        return;
    if (scene->torture->refused == 0 || rc != MUSTER_RESOURCE_EXHAUSTED)
        fail_msg("%s: %s", muster_rc_name(rc), error->text);
    assert_true(error->text[0] != '\0');
}

/* --- A publisher --- */

static void on_publication(struct muster_publication *publication, enum muster_rc rc)
{
    struct scene *scene = muster_publication_data(publication);

    assert_false(scene->is_done);
    scene->is_done = true;
    scene->rc = rc;
}

static void publication_end(struct scene *scene)
{
    scene->is_done = false;
    muster_publication_close(scene->publication, on_publication);
    (void)scene_await(scene);
    scene->publication = NULL;
}

static enum muster_rc publication_try(struct scene *scene)
{
    const struct muster_publication_options options = {.name = PUBLICATION_STAND_NAME,
                                                       .job = "test",
                                                       .registry = scene->stand.registry.endpoints,
                                                       .listen = &scene->any,
                                                       .deadline_ns = scene_deadline(scene),
                                                       .data = scene};
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    scene->is_done = false;
    rc =
        muster_publication_open(&scene->env, &options, on_publication, &scene->publication, &error);
    if (rc == MUSTER_OK) {
        rc = scene_await(scene);
        error = *muster_publication_error(scene->publication);
        if (rc != MUSTER_OK)
            publication_end(scene);
    }
    torture_disarm(scene->torture);
    check_hunger(scene, rc, &error);
    return rc;
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    assert_false(scene->is_done);
    scene->is_done = true;
    scene->rc = rc;
}

static uint32_t put_try(struct scene *scene, float value)
{
    const struct muster_named_tensor tensor = {
        .name = "weights", .dtype = MUSTER_F32, .count = COUNT, .data = weights};
    const struct muster_publication_put put = {
        .tensors = &tensor, .count = 1, .deadline_ns = scene_deadline(scene)};
    struct muster_publication_op op = {.data = scene};
    enum muster_rc rc;

    for (uint32_t i = 0; i < COUNT; i++)
        weights[i] = value;
    scene->is_done = false;
    rc = muster_publication_put_start(&op, scene->publication, &put, on_put);
    if (rc == MUSTER_OK) {
        rc = scene_await(scene);
        check_hunger(scene, rc, &op.error);
        assert_int_equal(op.version == 0, rc != MUSTER_OK);
    } else {
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    }
    torture_disarm(scene->torture);
    return rc == MUSTER_OK;
}

static void check_weights(struct muster_reader *reader, uint64_t number, float value)
{
    const struct muster_version *version = muster_reader_current(reader);
    const float *found;

    assert_non_null(version);
    assert_int_equal(version->number, number);
    assert_int_equal(version->count, 1);
    assert_int_equal(version->tensors[0].count, COUNT);
    found = version->tensors[0].data;
    for (uint32_t i = 0; i < COUNT; i++) {
        if (found[i] != value)
            fail_msg("element %u is %g, not %g", i, (double)found[i], (double)value);
    }
    muster_reader_release(reader, version);
}

static void run_publisher(struct torture *torture, const void *data)
{
    const bool *is_opening = data;
    struct muster_reader *reader;
    struct scene scene;
    uint32_t made = 0;

    scene_open(&scene, torture);
    reader = publication_stand_read(&scene.stand, 0);
    if (*is_opening)
        torture_arm_limited(torture, &scene.mem);
    if (publication_try(&scene) != MUSTER_OK)
        assert_int_equal(publication_try(&scene), MUSTER_OK);
    for (uint32_t i = 0; i < PUTS; i++) {
        if (!*is_opening)
            torture_arm_limited(torture, &scene.mem);
        made += put_try(&scene, (float)i);
    }
    made += put_try(&scene, 7);
    assert_int_equal(muster_publication_version(scene.publication), made);
    publication_stand_await(&scene.stand, reader, made);
    check_weights(reader, made, 7);
    publication_end(&scene);
    scene_close(&scene);
}

/* --- A reader --- */

static void on_wait(struct muster_reader_op *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    scene->is_done = true;
    scene->rc = rc;
}

static void reader_await(struct scene *scene, uint64_t version)
{
    struct muster_reader_op op = {.data = scene};

    scene->is_done = false;
    assert_int_equal(
        muster_reader_wait_start(&op, scene->reader, version, scene_deadline(scene), on_wait),
        MUSTER_OK);
    assert_int_equal(scene_await(scene), MUSTER_OK);
}

static void reader_open(struct scene *scene)
{
    const struct muster_reader_options options = {.name = PUBLICATION_STAND_NAME,
                                                  .job = "test",
                                                  .registry = scene->stand.registry.endpoints,
                                                  .listen = &scene->any,
                                                  .data = scene};
    struct muster_error error = {.text = ""};
    enum muster_rc rc = muster_reader_open(&scene->env, &options, NULL, &scene->reader, &error);

    check_hunger(scene, rc, &error);
    torture_disarm(scene->torture);
    if (rc != MUSTER_OK)
        assert_int_equal(muster_reader_open(&scene->env, &options, NULL, &scene->reader, &error),
                         MUSTER_OK);
}

static void on_reader_closed(struct muster_reader *reader)
{
    ((struct scene *)muster_reader_data(reader))->is_done = true;
}

static void run_reader(struct torture *torture, const void *data)
{
    const bool *is_opening = data;
    struct scene scene;

    scene_open(&scene, torture);
    assert_int_equal(publication_try(&scene), MUSTER_OK);
    assert_int_equal(put_try(&scene, 1), 1);
    if (*is_opening)
        torture_arm_limited(torture, &scene.mem);
    reader_open(&scene);
    if (!*is_opening)
        torture_arm_limited(torture, &scene.mem);
    reader_await(&scene, 1);
    check_weights(scene.reader, 1, 1);

    assert_int_equal(put_try(&scene, 2), 1);
    reader_await(&scene, 2);
    check_weights(scene.reader, 2, 2);
    scene.is_done = false;
    muster_reader_close(scene.reader, on_reader_closed);
    (void)scene_await(&scene);
    publication_end(&scene);
    scene_close(&scene);
}

static void each_allocation_of_a_publication_may_fail(void **state)
{
    static const bool later = false, opening = true;
    static const struct torture_scenario scenarios[] = {
        {.name = "publisher, opening",
         .run = run_publisher,
         .data = &opening,
         .runs_max = RUNS_MAX},
        {.name = "publisher, versions", .run = run_publisher, .data = &later, .runs_max = RUNS_MAX},
        {.name = "reader, opening", .run = run_reader, .data = &opening, .runs_max = RUNS_MAX},
        {.name = "reader, versions", .run = run_reader, .data = &later, .runs_max = RUNS_MAX},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_allocation_of_a_publication_may_fail, torture_tell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
