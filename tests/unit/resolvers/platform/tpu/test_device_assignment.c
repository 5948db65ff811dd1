/* Replicas laid out in the TPU mesh. */
#include <muster/tpu.h>

#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#define CORES_MAX 512

/* A mesh full of devices, devices_per_task of them to a task, cores fastest, then x, y, z; the
 * first `missing` places of the walk stay empty. */
static struct muster_tpu_topology *make_mesh(struct test_env *test,
                                             struct muster_tpu_coordinates shape,
                                             int32_t devices_per_task, int32_t missing)
{
    static const size_t fastest_first[4] = {3, 0, 1, 2};
    int32_t count = shape.at[0] * shape.at[1] * shape.at[2] * shape.at[3];
    struct muster_tpu_coordinates devices[CORES_MAX];
    struct muster_tpu_topology *topology = NULL;
    struct muster_tpu_topology_options options;
    struct muster_error error = {0};

    for (int32_t n = missing; n < count; n++) {
        int32_t rest = n;

        for (size_t k = 0; k < 4; k++) {
            size_t i = fastest_first[k];

            devices[n - missing].at[i] = rest % shape.at[i];
            rest /= shape.at[i];
        }
    }
    options = (struct muster_tpu_topology_options){
        .mesh_shape = shape.at,
        .mesh_rank = 4,
        .num_tasks = (count - missing) / devices_per_task,
        .num_tpu_devices_per_task = devices_per_task,
        .device_coordinates = devices[0].at,
        .device_coordinate_count = (size_t)(count - missing) * 4,
    };
    fail_if(muster_tpu_topology_new(test->env.mem, &options, &topology, &error) != MUSTER_OK, "%s",
            error.text);
    return topology;
}

static struct muster_tpu_device_assignment *build_assignment(
    struct test_env *test, struct muster_tpu_topology *topology,
    struct muster_tpu_device_assignment_options options)
{
    struct muster_tpu_device_assignment *assignment = NULL;
    struct muster_error error = {0};

    fail_if(muster_tpu_device_assignment_build(test->env.mem, topology, &options, &assignment,
                                               &error) != MUSTER_OK,
            "%s", error.text);
    return assignment;
}

static void assert_core(const char *name, const struct muster_tpu_device_assignment *assignment,
                        uint32_t replica, uint32_t core, struct muster_tpu_coordinates expected)
{
    const struct muster_tpu_coordinates *at =
        muster_tpu_device_assignment_coordinates(assignment, replica, core);

    fail_if(memcmp(at, &expected, sizeof(expected)) != 0,
            "%s: core %u of replica %u: (%d, %d, %d, %d)", name, core, replica, at->at[0],
            at->at[1], at->at[2], at->at[3]);
}

static void an_assignment_lives_until_its_last_reference_goes(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_device_assignment *assignment;
    struct muster_tpu_topology *topology;

    topology = make_mesh(test, (struct muster_tpu_coordinates){{2, 2, 1, 2}}, 8, 0);
    assignment = build_assignment(test, topology, (struct muster_tpu_device_assignment_options){0});

    assert_int_equal(assignment->num_replicas, 1);
    assert_int_equal(assignment->num_cores_per_replica, 1);
    assert_ptr_equal(muster_tpu_device_assignment_ref(assignment), assignment);
    muster_tpu_device_assignment_unref(assignment);

    assert_core("no options", assignment, 0, 0, (struct muster_tpu_coordinates){{0, 0, 0, 0}});
    muster_tpu_device_assignment_unref(assignment);
    muster_tpu_topology_unref(topology);
}

/* Orders and tie-breaks are TensorFlow's. */
static void replicas_are_laid_out_as_in_tensorflow(void **state)
{
    static const struct {
        const char *name;
        struct muster_tpu_coordinates mesh;
        struct muster_tpu_device_assignment_options options;
        size_t count;
        struct {
            uint32_t replica, core;
            struct muster_tpu_coordinates at;
        } cores[5];
    } rows[] = {
        {"no options: the one core at the origin",
         {{2, 2, 1, 2}},
         {.num_replicas = 0},
         1,
         {{0, 0, {{0, 0, 0, 0}}}}},
        {"few replicas share chips before they spread along x: 2x1x1x2, not 1x2x1x2",
         {{4, 4, 1, 2}},
         {.num_replicas = 4},
         4,
         {{0, 0, {{0, 0, 0, 0}}},
          {1, 0, {{0, 0, 0, 1}}},
          {2, 0, {{1, 0, 0, 0}}},
          {3, 0, {{1, 0, 0, 1}}}}},
        {"whole chips that fill the mesh form a ring",
         {{4, 4, 1, 2}},
         {.computation_shape = {{1, 1, 1, 2}}, .num_replicas = 16},
         5,
         {{3, 0, {{3, 0, 0, 0}}},
          {3, 1, {{3, 0, 0, 1}}},
          {4, 0, {{3, 1, 0, 0}}},
          {6, 0, {{1, 1, 0, 0}}},
          {15, 1, {{0, 1, 0, 1}}}}},
        {"the order of the mesh, where it is asked for",
         {{4, 4, 1, 2}},
         {.computation_shape = {{1, 1, 1, 2}},
          .num_replicas = 16,
          .order = MUSTER_TPU_DEVICE_ORDER_MESH},
         1,
         {{4, 0, {{0, 1, 0, 0}}}}},
        {"chips within a replica form a ring, too",
         {{4, 4, 1, 2}},
         {.computation_shape = {{2, 2, 1, 2}}, .num_replicas = 4},
         4,
         {{0, 4, {{1, 1, 0, 0}}},
          {0, 6, {{0, 1, 0, 0}}},
          {2, 0, {{2, 2, 0, 0}}},
          {3, 7, {{0, 3, 0, 1}}}}},
        {"a stride interleaves replicas",
         {{4, 1, 1, 2}},
         {.computation_shape = {{2, 1, 1, 1}},
          .computation_stride = {{2, 1, 1, 1}},
          .num_replicas = 4},
         5,
         {{0, 0, {{0, 0, 0, 0}}},
          {0, 1, {{2, 0, 0, 0}}},
          {1, 1, {{2, 0, 0, 1}}},
          {2, 0, {{1, 0, 0, 0}}},
          {2, 1, {{3, 0, 0, 0}}}}},
    };
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_topology *topology = make_mesh(test, rows[i].mesh, 8, 0);
        struct muster_tpu_device_assignment *assignment =
            build_assignment(test, topology, rows[i].options);

        for (size_t k = 0; k < rows[i].count; k++)
            assert_core(rows[i].name, assignment, rows[i].cores[k].replica, rows[i].cores[k].core,
                        rows[i].cores[k].at);
        muster_tpu_device_assignment_unref(assignment);
        muster_tpu_topology_unref(topology);
    }
}

static void every_full_layout_uses_every_core_once(void **state)
{
    struct test_env *test = *state;
    static const struct muster_tpu_coordinates meshes[] = {
        {{2, 2, 1, 2}}, {{4, 4, 1, 2}}, {{4, 2, 4, 1}}, {{2, 3, 2, 2}}, {{4, 4, 4, 1}}};
    static const struct muster_tpu_coordinates shapes[] = {
        {{1, 1, 1, 1}}, {{2, 1, 1, 1}}, {{1, 1, 2, 1}}, {{2, 1, 2, 1}}};

    for (size_t n = 0; n < 40; n++) {
        struct muster_tpu_coordinates size = meshes[n % 5], shape = shapes[n / 5 % 4];
        int32_t places = size.at[0] * size.at[1] * size.at[2] * size.at[3];
        uint32_t cores = (uint32_t)(shape.at[0] * shape.at[2]);
        struct muster_tpu_device_assignment *assignment;
        struct muster_tpu_topology *topology;
        bool seen[CORES_MAX] = {false};

        if (size.at[2] < shape.at[2])
            continue;
        topology = make_mesh(test, size, 2, 0);
        assignment = build_assignment(
            test, topology,
            (struct muster_tpu_device_assignment_options){
                .computation_shape = shape,
                .num_replicas = (uint32_t)places / cores,
                .order = n < 20 ? MUSTER_TPU_DEVICE_ORDER_AUTO : MUSTER_TPU_DEVICE_ORDER_MESH});
        for (int32_t i = 0; i < places; i++) {
            uint32_t task, device;

            assert_int_equal(
                muster_tpu_topology_find(topology, &assignment->cores[i], &task, &device, NULL),
                MUSTER_OK);
            assert_false(seen[task * 2 + device]);
            seen[task * 2 + device] = true;
        }
        muster_tpu_device_assignment_unref(assignment);
        muster_tpu_topology_unref(topology);
    }
}

static void a_mesh_with_gaps_is_filled_in_task_order(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_device_assignment *assignment = NULL;
    struct muster_tpu_topology *topology;
    struct muster_tpu_device_assignment_options options = {.computation_shape = {{1, 1, 1, 2}},
                                                           .num_replicas = 3};
    struct muster_error error = {0};

    topology = make_mesh(test, (struct muster_tpu_coordinates){{4, 1, 1, 2}}, 2, 2);

    assignment = build_assignment(test, topology, options);

    assert_core("gaps", assignment, 0, 0, (struct muster_tpu_coordinates){{1, 0, 0, 0}});
    assert_core("gaps", assignment, 2, 1, (struct muster_tpu_coordinates){{3, 0, 0, 1}});
    muster_tpu_device_assignment_unref(assignment);
    options.num_replicas = 4;
    assert_int_equal(
        muster_tpu_device_assignment_build(test->env.mem, topology, &options, &assignment, &error),
        MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "room for 3"));
    options = (struct muster_tpu_device_assignment_options){.computation_stride = {{2, 1, 1, 1}}};
    assert_int_equal(
        muster_tpu_device_assignment_build(test->env.mem, topology, &options, &assignment, &error),
        MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "missing"));
    muster_tpu_topology_unref(topology);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct test_env *test = *state;
    static const struct {
        struct muster_tpu_device_assignment_options options;
        const char *text;
    } rows[] = {
        {{.computation_shape = {{5, 1, 1, 1}}}, "dimension 0"},
        {{.computation_shape = {{1, 1, 1, 2}}, .computation_stride = {{1, 1, 1, 2}}},
         "dimension 3"},
        {{.computation_shape = {{1, 0, 1, 1}}}, "computation_shape[1]"},
        {{.computation_stride = {{1, 1, -1, 1}}}, "computation_stride[2]"},
        {{.num_replicas = 33}, "room for 32"},
        {{.computation_shape = {{3, 1, 1, 1}}, .num_replicas = 9},
         "room for 8"}, /* gaps are left */
        {{.num_replicas = 4, .order = MUSTER_TPU_DEVICE_ORDER_RING}, "ring"},
    };
    struct muster_tpu_topology *topology;
    topology = make_mesh(test, (struct muster_tpu_coordinates){{4, 4, 1, 2}}, 8, 0);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_device_assignment *assignment = NULL;
        struct muster_error error = {0};

        fail_if(muster_tpu_device_assignment_build(test->env.mem, topology, &rows[i].options,
                                                   &assignment,
                                                   &error) != MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, rows[i].text) == NULL,
                "row %zu: %s", i, error.text);
    }
    muster_tpu_topology_unref(topology);
}

static void replicas_are_found_by_the_task_that_computes_them(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_device_assignment *assignment;
    struct muster_tpu_topology *topology;
    char name[MUSTER_TPU_DEVICE_NAME_BYTES];
    uint32_t replicas[8] = {0}, ordinal = 9;
    size_t count = 0;

    topology = make_mesh(test, (struct muster_tpu_coordinates){{2, 2, 1, 2}}, 4, 0);
    assignment = build_assignment(test, topology,
                                  (struct muster_tpu_device_assignment_options){
                                      .computation_shape = {{1, 1, 1, 2}}, .num_replicas = 4});

    /* task 1 holds y = 1, which the ring visits third and fourth */
    assert_int_equal(
        muster_tpu_device_assignment_lookup_replicas(assignment, 1, 0, 8, replicas, &count, NULL),
        MUSTER_OK);
    assert_int_equal(count, 2);
    assert_int_equal(replicas[0], 2);
    assert_int_equal(replicas[1], 3);
    assert_int_equal(
        muster_tpu_device_assignment_lookup_replicas(assignment, 1, 0, 1, replicas, &count, NULL),
        MUSTER_OUT_OF_RANGE);
    assert_int_equal(
        muster_tpu_device_assignment_lookup_replicas(assignment, 2, 0, 8, replicas, &count, NULL),
        MUSTER_NOT_FOUND);
    assert_int_equal(muster_tpu_device_assignment_tpu_ordinal(assignment, 2, 1, &ordinal, NULL),
                     MUSTER_OK);
    assert_int_equal(ordinal, 3);
    assert_int_equal(muster_tpu_device_assignment_tpu_ordinal(assignment, 4, 0, &ordinal, NULL),
                     MUSTER_OUT_OF_RANGE);
    assert_int_equal(muster_tpu_device_assignment_device_name(assignment, 2, 1,
                                                              MUSTER_TPU_DEVICE_TPU, "worker",
                                                              sizeof(name), name, NULL),
                     MUSTER_OK);
    assert_string_equal(name, "/job:worker/task:1/device:TPU:3");
    assert_int_equal(muster_tpu_device_assignment_device_name(assignment, 99, 1,
                                                              MUSTER_TPU_DEVICE_TPU, "worker",
                                                              sizeof(name), name, NULL),
                     MUSTER_OUT_OF_RANGE);
    muster_tpu_device_assignment_unref(assignment);
    muster_tpu_topology_unref(topology);
}

static void an_assignment_as_given_must_name_devices(void **state)
{
    struct test_env *test = *state;
    static const struct muster_tpu_coordinates good[2] = {{{0, 0, 0, 1}}, {{1, 1, 0, 0}}},
                                               bad[2] = {{{0, 0, 0, 1}}, {{2, 1, 0, 0}}};
    struct muster_tpu_device_assignment *assignment = NULL;
    struct muster_tpu_topology *topology, *gaps;
    const struct muster_tpu_coordinates gap = {{0, 0, 0, 0}};
    struct muster_error error = {0};

    topology = make_mesh(test, (struct muster_tpu_coordinates){{2, 2, 1, 2}}, 4, 0);
    gaps = make_mesh(test, (struct muster_tpu_coordinates){{4, 1, 1, 2}}, 2, 2);

    assert_int_equal(
        muster_tpu_device_assignment_new(test->env.mem, topology, good, 2, 1, &assignment, &error),
        MUSTER_OK);
    assert_core("as given", assignment, 1, 0, good[1]);
    muster_tpu_device_assignment_unref(assignment);
    assert_int_equal(
        muster_tpu_device_assignment_new(test->env.mem, topology, bad, 1, 2, &assignment, &error),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(error.rc, MUSTER_INVALID_ARGUMENT);
    error.rc = MUSTER_OK;
    assert_int_equal(
        muster_tpu_device_assignment_new(test->env.mem, gaps, &gap, 1, 1, &assignment, &error),
        MUSTER_INVALID_ARGUMENT); /* what is not found is not a right argument, either */
    assert_int_equal(error.rc, MUSTER_INVALID_ARGUMENT);
    muster_tpu_topology_unref(gaps);
    assert_int_equal(
        muster_tpu_device_assignment_new(test->env.mem, topology, good, 0, 2, &assignment, &error),
        MUSTER_INVALID_ARGUMENT);
    muster_tpu_topology_unref(topology);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_assignment_lives_until_its_last_reference_goes),
        CASE(replicas_are_laid_out_as_in_tensorflow),
        CASE(every_full_layout_uses_every_core_once),
        CASE(a_mesh_with_gaps_is_filled_in_task_order),
        CASE(what_does_not_fit_is_refused),
        CASE(replicas_are_found_by_the_task_that_computes_them),
        CASE(an_assignment_as_given_must_name_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
