/* The TPU mesh: what is refused, the way back from a place to its device, names, the wire form. */
#include <muster/tpu.h>

#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

/* Two tasks with two devices each in a 2x1x1x2 mesh: task t is chip x = t. */
static const int32_t mesh_2x1x1x2[4] = {2, 1, 1, 2};
static const int32_t devices_2x2[16] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1};

static struct muster_tpu_topology_options two_tasks(void)
{
    return (struct muster_tpu_topology_options){
        .mesh_shape = mesh_2x1x1x2,
        .mesh_rank = 4,
        .num_tasks = 2,
        .num_tpu_devices_per_task = 2,
        .device_coordinates = devices_2x2,
        .device_coordinate_count = 16,
    };
}

static struct muster_tpu_topology *make_topology(struct test_env *test,
                                                 const struct muster_tpu_topology_options *options)
{
    struct muster_tpu_topology *topology = NULL;
    struct muster_error error = {0};

    assert_int_equal(muster_tpu_topology_new(test->env.mem, options, &topology, &error), MUSTER_OK);
    return topology;
}

static void a_place_leads_back_to_its_task_and_device(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_topology_options options = two_tasks();
    struct muster_tpu_coordinates at = {{1, 0, 0, 1}};
    struct muster_tpu_topology *topology;
    uint32_t task = 9, device = 9;

    topology = make_topology(test, &options);

    assert_int_equal(muster_tpu_topology_find(topology, &at, &task, &device, NULL), MUSTER_OK);
    assert_int_equal(task, 1);
    assert_int_equal(device, 1);
    for (uint32_t i = 0; i < 4; i++) {
        const struct muster_tpu_coordinates *place =
            muster_tpu_topology_device(topology, i / 2, i % 2);

        assert_memory_equal(place, devices_2x2 + i * 4, sizeof(*place));
        assert_int_equal(muster_tpu_topology_find(topology, place, &task, &device, NULL),
                         MUSTER_OK);
        assert_int_equal(task, i / 2);
        assert_int_equal(device, i % 2);
        task = device = 9;
        assert_int_equal(muster_tpu_topology_find(topology, place, NULL, &device, NULL), MUSTER_OK);
        assert_int_equal(muster_tpu_topology_find(topology, place, &task, NULL, NULL), MUSTER_OK);
        assert_int_equal(task, i / 2);
        assert_int_equal(device, i % 2);
    }
    assert_ptr_equal(muster_tpu_topology_ref(topology), topology);
    muster_tpu_topology_unref(topology);
    muster_tpu_topology_unref(NULL);
    assert_null(muster_tpu_topology_device(topology, 1, 2));
    assert_null(muster_tpu_topology_device(topology, 2, 0));
    assert_int_equal(topology->missing_device_count, 0);
    muster_tpu_topology_unref(topology);
}

static void names_follow_tensorflow(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_topology_options options = two_tasks();
    struct muster_tpu_coordinates at = {{1, 0, 0, 1}};
    struct muster_tpu_topology *topology;
    char name[MUSTER_TPU_DEVICE_NAME_BYTES];
    struct muster_error error = {0};

    topology = make_topology(test, &options);

    assert_int_equal(muster_tpu_topology_device_name(topology, &at, MUSTER_TPU_DEVICE_TPU, "worker",
                                                     sizeof(name), name, &error),
                     MUSTER_OK);
    assert_string_equal(name, "/job:worker/task:1/device:TPU:1");
    assert_int_equal(muster_tpu_topology_device_name(topology, &at, MUSTER_TPU_DEVICE_CPU, NULL,
                                                     sizeof(name), name, &error),
                     MUSTER_OK);
    assert_string_equal(name, "/task:1/device:CPU:0");
    memset(name, 'x', sizeof(name));
    assert_int_equal(muster_tpu_topology_device_name(topology, &at, MUSTER_TPU_DEVICE_CPU, NULL, 20,
                                                     name, &error),
                     MUSTER_OUT_OF_RANGE);
    assert_string_equal(error.text, "the device name of task 1 does not fit into 20 bytes");
    assert_int_equal(name[0], 'x');
    assert_int_equal(muster_tpu_topology_device_name(topology, &at, MUSTER_TPU_DEVICE_CPU, NULL, 21,
                                                     name, &error),
                     MUSTER_OK);
    assert_string_equal(name, "/task:1/device:CPU:0");
    assert_int_equal(name[21], 'x');
    muster_tpu_topology_unref(topology);
}

/* "/job:", "/task:1/device:TPU:1" and 294 characters are 320 with the NUL. */
static void a_job_of_294_characters_has_room(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_topology_options options = two_tasks();
    struct muster_tpu_coordinates at = {{1, 0, 0, 1}}, nowhere = {{1, 1, 0, 1}};
    struct muster_tpu_topology *topology;
    char job[400], name[500];

    topology = make_topology(test, &options);
    memset(job, 'j', sizeof(job));
    job[295] = '\0';

    assert_int_equal(muster_tpu_topology_device_name(topology, &at, MUSTER_TPU_DEVICE_TPU, job,
                                                     sizeof(name), name, NULL),
                     MUSTER_OUT_OF_RANGE);
    job[294] = '\0';
    assert_int_equal(muster_tpu_topology_device_name(topology, &at, MUSTER_TPU_DEVICE_TPU, job,
                                                     sizeof(name), name, NULL),
                     MUSTER_OK);
    assert_int_equal(strlen(name), MUSTER_TPU_DEVICE_NAME_BYTES - 1);
    assert_int_equal(muster_tpu_topology_device_name(topology, &nowhere, MUSTER_TPU_DEVICE_TPU, job,
                                                     sizeof(name), name, NULL),
                     MUSTER_INVALID_ARGUMENT);
    muster_tpu_topology_unref(topology);
}

static void a_place_without_device_is_not_found(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_topology_options options = two_tasks();
    struct muster_tpu_coordinates gap = {{1, 0, 0, 1}}, outside = {{2, 0, 0, 0}};
    struct muster_tpu_topology *topology;
    struct muster_error error = {0};

    options.num_tasks = 1;
    options.device_coordinate_count = 8;

    topology = make_topology(test, &options);

    assert_int_equal(topology->missing_device_count, 2);
    assert_int_equal(muster_tpu_topology_find(topology, &gap, NULL, NULL, &error),
                     MUSTER_NOT_FOUND);
    assert_string_equal(error.text, "no TPU device sits at (1, 0, 0, 1)");
    for (size_t i = 0; i < 4; i++) {
        struct muster_tpu_coordinates at = {{0, 0, 0, 0}};

        at.at[i] = -1;
        assert_int_equal(muster_tpu_topology_find(topology, &at, NULL, NULL, NULL),
                         MUSTER_INVALID_ARGUMENT);
        at.at[i] = mesh_2x1x1x2[i];
        assert_int_equal(muster_tpu_topology_find(topology, &at, NULL, NULL, NULL),
                         MUSTER_INVALID_ARGUMENT);
    }
    assert_int_equal(muster_tpu_topology_find(topology, &outside, NULL, NULL, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "(2, 0, 0, 0) lies outside the TPU mesh of 2x1x1x2");
    muster_tpu_topology_unref(topology);
}

static void what_cannot_be_a_mesh_is_refused(void **state)
{
    struct test_env *test = *state;
    static const int32_t flat_mesh[3] = {2, 1, 2}, zero_mesh[4] = {2, 0, 1, 2},
                         huge_mesh[4] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    static const int32_t outside[16] = {0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0, 1},
                         negative[16] = {0, 0, 0, 0, 0, 0, 0, -1, 1, 0, 0, 0, 1, 0, 0, 1},
                         last_outside[16] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1},
                         last_twice[16] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1},
                         first_twice[16] = {0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1},
                         zero_x[4] = {0, 1, 1, 2}, negative_core[4] = {2, 1, 1, -1},
                         twice[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1};
    static const struct {
        const char *name;
        const int32_t *mesh;
        size_t rank;
        int32_t tasks, devices;
        const int32_t *coordinates;
        size_t coordinate_count;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"rank 3", flat_mesh, 3, 2, 2, devices_2x2, 16, MUSTER_INVALID_ARGUMENT, "not 3"},
        {"no rank", NULL, 0, 0, 0, NULL, 0, MUSTER_INVALID_ARGUMENT, "not 0"},
        {"zero dimension", zero_mesh, 4, 2, 2, devices_2x2, 16, MUSTER_INVALID_ARGUMENT,
         "mesh_shape[1]"},
        {"huge", huge_mesh, 4, 0, 0, NULL, 0, MUSTER_RESOURCE_EXHAUSTED, "refused"},
        {"negative tasks", mesh_2x1x1x2, 4, -1, 2, devices_2x2, 16, MUSTER_INVALID_ARGUMENT, "-1"},
        {"negative devices", mesh_2x1x1x2, 4, 2, -2, devices_2x2, 16, MUSTER_INVALID_ARGUMENT,
         "-2"},
        {"too few coordinates", mesh_2x1x1x2, 4, 2, 2, devices_2x2, 12, MUSTER_INVALID_ARGUMENT,
         "needs 16"},
        {"too many devices", mesh_2x1x1x2, 4, 3, 2, devices_2x2, 24, MUSTER_INVALID_ARGUMENT,
         "cannot hold 6"},
        {"outside", mesh_2x1x1x2, 4, 2, 2, outside, 16, MUSTER_INVALID_ARGUMENT,
         "TPU device 1 of task 0 lies at (0, 0, 0, 2), outside the mesh"},
        {"negative place", mesh_2x1x1x2, 4, 2, 2, negative, 16, MUSTER_INVALID_ARGUMENT,
         "TPU device 1 of task 0 lies at (0, 0, 0, -1), outside the mesh"},
        {"one place twice", mesh_2x1x1x2, 4, 2, 2, twice, 16, MUSTER_INVALID_ARGUMENT,
         "TPU device 1 of task 0 lies at (0, 0, 0, 0), where another one is"},
        {"first twice", mesh_2x1x1x2, 4, 2, 2, first_twice, 16, MUSTER_INVALID_ARGUMENT,
         "TPU device 0 of task 1 lies at (1, 0, 0, 0), where another one is"},
        {"last outside", mesh_2x1x1x2, 4, 2, 2, last_outside, 16, MUSTER_INVALID_ARGUMENT,
         "TPU device 1 of task 1 lies at (1, 1, 0, 1), outside the mesh"},
        {"last twice", mesh_2x1x1x2, 4, 2, 2, last_twice, 16, MUSTER_INVALID_ARGUMENT,
         "TPU device 1 of task 1 lies at (0, 0, 0, 1), where another one is"},
        {"first dimension", zero_x, 4, 0, 0, NULL, 0, MUSTER_INVALID_ARGUMENT,
         "mesh_shape[0] of a TPU topology is 0; every dimension must be at least 1"},
        {"negative dimension", negative_core, 4, 0, 0, NULL, 0, MUSTER_INVALID_ARGUMENT,
         "mesh_shape[3] of a TPU topology is -1"},
        {"too many coordinates", mesh_2x1x1x2, 4, 2, 2, devices_2x2, 17, MUSTER_INVALID_ARGUMENT,
         "needs 16 device coordinates, not 17"},
        {"no devices, but coordinates", mesh_2x1x1x2, 4, 0, 2, devices_2x2, 4,
         MUSTER_INVALID_ARGUMENT, "0 tasks with 2 devices each needs 0 device coordinates, not 4"},
    };
    size_t blocks;
    blocks = test->mem.block_count;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_topology_options options = {
            .mesh_shape = rows[i].mesh,
            .mesh_rank = rows[i].rank,
            .num_tasks = rows[i].tasks,
            .num_tpu_devices_per_task = rows[i].devices,
            .device_coordinates = rows[i].coordinates,
            .device_coordinate_count = rows[i].coordinate_count,
        };
        struct muster_tpu_topology *topology = NULL;
        struct muster_error error = {0};

        assert_int_equal(test->mem.block_count, blocks);
        fail_if(muster_tpu_topology_new(test->env.mem, &options, &topology, &error) != rows[i].rc ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].name, error.text);
    }
}

static void a_topology_survives_the_wire(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_topology_options options = two_tasks();
    struct muster_tpu_topology *topology, *again = NULL;
    struct muster_error error = {0};
    void *bytes = NULL;
    size_t size = 0;

    options.embedding_feature = MUSTER_TPU_EMBEDDING_V2;
    topology = make_topology(test, &options);

    assert_int_equal(muster_tpu_topology_pack(topology, test->env.mem, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_tpu_topology_unpack(test->env.mem, bytes, size, &again, &error),
                     MUSTER_OK);

    assert_memory_equal(again->mesh_shape.at, mesh_2x1x1x2, sizeof(mesh_2x1x1x2));
    assert_int_equal(again->num_tasks, 2);
    assert_int_equal(again->num_tpu_devices_per_task, 2);
    assert_int_equal(again->embedding_feature, MUSTER_TPU_EMBEDDING_V2);
    assert_memory_equal(again->devices, devices_2x2, sizeof(devices_2x2));
    assert_int_equal(again->missing_device_count, 0);
    muster_mem_free(test->env.mem, bytes);
    muster_tpu_topology_unref(again);
    again = NULL;
    test->mem.fail_at = 1;
    assert_int_equal(muster_tpu_topology_pack(topology, test->env.mem, &bytes, &size),
                     MUSTER_RESOURCE_EXHAUSTED);
    muster_tpu_topology_unref(topology);
}

static void the_largest_mesh_has_four_million_places(void **state)
{
    struct test_env *test = *state;
    static const int32_t largest[4] = {1 << 20, 2, 1, 2}, larger[4] = {1 << 20, 1, 5, 1};
    struct muster_tpu_topology_options options = {.mesh_shape = largest, .mesh_rank = 4};
    struct muster_tpu_topology *topology = NULL;
    struct muster_error error = {0};

    topology = make_topology(test, &options);
    assert_int_equal(topology->missing_device_count, MUSTER_TPU_MESH_SIZE_MAX);
    assert_int_equal(topology->num_tasks, 0);
    muster_tpu_topology_unref(topology);
    topology = NULL;
    test->mem.fail_at = 1;
    assert_int_equal(muster_tpu_topology_new(test->env.mem, &options, &topology, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "no memory for a TPU mesh of 4194304 positions");
    options.mesh_shape = larger;
    assert_int_equal(muster_tpu_topology_new(test->env.mem, &options, &topology, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "a TPU mesh of more than 4194304 positions is refused");
    assert_null(topology);
}

static void bytes_of_tensorflow_are_read(void **state)
{
    struct test_env *test = *state;

    /* mesh_shape [1,1,1,2] packed, 1 task, 2 devices, coordinates packed, embedding V1 */
    static const unsigned char bytes[] = {0x0a, 4, 1, 1, 1, 2, 0x10, 1, 0x18, 2, 0x22, 8,
                                          0,    0, 0, 0, 0, 0, 0,    1, 0x2a, 2, 0x08, 1};
    struct muster_tpu_topology *topology = NULL;
    struct muster_error error = {0};

    assert_int_equal(
        muster_tpu_topology_unpack(test->env.mem, bytes, sizeof(bytes), &topology, &error),
        MUSTER_OK);

    assert_int_equal(topology->num_tpu_devices_per_task, 2);
    assert_int_equal(topology->devices[1].at[3], 1);
    assert_int_equal(topology->embedding_feature, MUSTER_TPU_EMBEDDING_V1);
    muster_tpu_topology_unref(topology);
    topology = NULL;
    assert_int_equal(muster_tpu_topology_unpack(test->env.mem, bytes, 5, &topology, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_tpu_topology_unpack(test->env.mem, bytes, 0, &topology, &error),
                     MUSTER_INVALID_ARGUMENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_place_leads_back_to_its_task_and_device),
        CASE(names_follow_tensorflow),
        CASE(a_job_of_294_characters_has_room),
        CASE(the_largest_mesh_has_four_million_places),
        CASE(a_place_without_device_is_not_found),
        CASE(what_cannot_be_a_mesh_is_refused),
        CASE(a_topology_survives_the_wire),
        CASE(bytes_of_tensorflow_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
