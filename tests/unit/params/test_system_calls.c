/* Each system call of a seat, of memory that clients of a host share with their server, and of memory that
 * readers of a publication map fails in turn: an error or success, what was acknowledged counts once, no
 * descriptor is left. */
#include "params_calls.h"
#include "params_stand.h"
#include "publication_stand.h"
#include "torture_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "params/server/seat/seat.h"

#define SHARDS      4u
#define MEMORY_MAX  ((uint64_t)32 << 20)
#define BLOCK       16384u
#define ELEMENTS    (4u * BLOCK) /* 256 KiB: large enough for shared memory */
#define PUSHES      3u
#define SHARE_TURNS 40 /* both sides are of this process: more than they need to share memory */
#define RUNS_MAX    60

/* --- A seat --- */

static void check_error(const struct torture *torture, enum muster_rc rc,
                        const struct muster_error *error)
{
    assert_true(rc == MUSTER_OK || (torture->refused > 0 && error->text[0] != '\0'));
}

static void run_seat(struct torture *torture, const void *data)
{
    const struct muster_params_seat_options options = {.memory_max = MEMORY_MAX,
                                                       .shard_count = SHARDS};
    size_t count = torture_count_descriptors();
    struct muster_params_seat *seat = NULL;
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    (void)data;
    torture_arm_calls(torture);
    rc = muster_params_seat_new(&options, &seat, &error);
    check_error(torture, rc, &error);
    assert_true(rc == MUSTER_OK || seat == NULL);
    if (rc != MUSTER_OK && torture->variant == 0) /* no call fails so first */
        assert_int_not_equal(error.sys, EPERM);
    if (rc == MUSTER_OK) {
        assert_int_equal(muster_params_seat_take(seat, &error), MUSTER_OK);
        assert_int_equal(muster_params_seat_region(seat)->head->shard_count, SHARDS);
    }
    muster_params_seat_free(seat);
    torture_disarm(torture);
    assert_int_equal(torture_count_descriptors(), count);
}

/* --- A server and a client of its host --- */

static const struct muster_params_schema weights = {.name = "weights",
                                                    .row_elements = BLOCK,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .tensor_elements = ELEMENTS};

struct scene {
    struct torture *torture;
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *tensor, *counters;
    float values[ELEMENTS];
};

static void tensor_do(struct scene *scene, enum muster_params_direction direction)
{
    const struct muster_params_range range = {.values = scene->values};
    struct params_call call = {.op = {.data = &call}};

    assert_int_equal(muster_params_tensor_start(&call.op, scene->tensor, &range, direction,
                                                params_stand_deadline(&scene->stand),
                                                params_on_call),
                     MUSTER_OK);
    if (params_call_await(&scene->stand.test.env, &call) != MUSTER_OK)
        fail_msg("%s", call.op.error.text);
}

/* Pushes and looks; memory that could not be shared is asked for again. */
static void work_do(struct scene *scene)
{
    static const uint64_t key = 7;
    struct params_call call;
    const struct muster_params_rows rows = {.keys = &key, .values = &call.value, .count = 1};

    for (unsigned i = 0; i < PUSHES; i++) {
        for (size_t j = 0; j < ELEMENTS; j++)
            scene->values[j] = 1;
        tensor_do(scene, MUSTER_PARAMS_DIRECTION_PUSH);
        params_call_push(&call, scene->counters, key, params_stand_deadline(&scene->stand));
        assert_int_equal(params_call_await(&scene->stand.test.env, &call), MUSTER_OK);
        (void)!muster_params_peek(scene->counters, &rows);
        test_env_turn(&scene->stand.test.env, SHARE_TURNS);
    }
}

static void check_work(struct scene *scene)
{
    static const uint64_t key = 7;
    float value = 0;
    const struct muster_params_rows rows = {.keys = &key, .values = &value, .count = 1};

    while (muster_params_peek(scene->counters, &rows) != MUSTER_OK)
        muster_loop_turn(scene->stand.test.env.loop, 10 * MUSTER_NS_PER_MS);
    assert_true(value == PUSHES);
    memset(scene->values, 0, sizeof(scene->values));
    tensor_do(scene, MUSTER_PARAMS_DIRECTION_PULL);
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_true(scene->values[i] == PUSHES);
}

static void run_host(struct torture *torture, const void *data)
{
    static struct scene scene;
    size_t count = torture_count_descriptors();

    (void)data;
    memset(&scene, 0, sizeof(scene));
    params_stand_open_seat(&scene.stand, SHARDS, MEMORY_MAX);
    scene.params = params_stand_client(&scene.stand, NULL);
    scene.tensor = params_stand_table(&scene.stand, scene.params, &weights);
    scene.counters = params_stand_table(&scene.stand, scene.params, &params_counters);
    torture_arm_calls(torture);
    work_do(&scene);
    torture_disarm(torture);
    check_work(&scene);
    assert_int_equal(params_stand_leave(&scene.stand, scene.params), MUSTER_OK);
    params_stand_close(&scene.stand);
    assert_int_equal(torture_count_descriptors(), count);
}

/* It serves, or it says why not, and may be opened again. */
static void run_server(struct torture *torture, const void *data)
{
    static struct scene scene;
    struct muster_params_server_options options = {.job = "test"};
    size_t count = torture_count_descriptors();
    struct muster_address address;
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    (void)data;
    memset(&scene, 0, sizeof(scene));
    params_stand_open_seat(&scene.stand, SHARDS, MEMORY_MAX);
    muster_params_server_close(scene.stand.server, NULL);
    test_env_turn(&scene.stand.test.env, SHARE_TURNS);
    assert_int_equal(muster_address_parse_listen("127.0.0.1:0", &address, &error), MUSTER_OK);
    options.listen = &address;
    options.seat = scene.stand.seat;
    scene.stand.server = NULL;
    torture_arm_calls(torture);
    rc = muster_params_server_open(&scene.stand.test.env, &options, &scene.stand.server, &error);
    torture_disarm(torture);
    check_error(torture, rc, &error);
    if (rc != MUSTER_OK) {
        assert_null(scene.stand.server);
        assert_int_equal(
            muster_params_server_open(&scene.stand.test.env, &options, &scene.stand.server, &error),
            MUSTER_OK);
    }
    muster_params_server_set_data(scene.stand.server, &scene.stand);
    params_stand_close(&scene.stand);
    assert_int_equal(torture_count_descriptors(), count);
}

/* --- Readers that map --- */

/* They map, or fetch. */
static void run_mapped(struct torture *torture, const void *data)
{
    static struct publication_stand stand;
    struct muster_publication *publication;
    size_t count = torture_count_descriptors();

    (void)data;
    memset(&stand, 0, sizeof(stand));
    publication_stand_open(&stand);
    publication_stand_share(&stand);
    publication = publication_stand_publish(&stand);
    for (unsigned i = 0; i < 2; i++)
        (void)publication_stand_read(&stand, 0);
    torture_arm_calls(torture);
    for (int version = 1; version <= 2; version++)
        publication_stand_commit(&stand, publication, (float)version, 2);
    torture_disarm(torture);
    for (unsigned i = 0; i < 2; i++)
        publication_stand_check(stand.readers[i], 2, 2);
    publication_stand_close(&stand);
    assert_int_equal(torture_count_descriptors(), count);
}

static void work_goes_on_whatever_call_fails(void **state)
{
    static const struct torture_scenario scenarios[] = {
        {"seat", run_seat, NULL, TORTURE_CALL_VARIANTS, 0},
        {"server", run_server, NULL, TORTURE_CALL_VARIANTS, 0},
        {"host memory", run_host, NULL, TORTURE_CALL_VARIANTS, RUNS_MAX},
        {"mapped readers", run_mapped, NULL, TORTURE_CALL_VARIANTS, RUNS_MAX},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(work_goes_on_whatever_call_fails, torture_tell),
    };

    return cmocka_run_group_tests_name("system_calls", tests, NULL, NULL);
}
