/* Tensors that a client moves through memory of its host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_calls.h"
#include "params_tensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "params/client/client_internal.h"
#include "params/client/stage.h"

#define SHARDS   8u
#define BLOCK    16384u
#define ELEMENTS (5u * 64u * BLOCK / 4u + 3u * BLOCK + 17u) /* 5.4 MB: the last block in part */

static const struct muster_params_schema weights = {.name = "weights",
                                                    .row_elements = BLOCK,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .tensor_elements = ELEMENTS};

static void scene_open(struct params_tensors *scene, const struct muster_params_schema *schema)
{
    params_stand_open_seat(&scene->stand, SHARDS, (uint64_t)64 << 20);
    params_tensors_enter(scene, params_stand_client(&scene->stand, NULL), schema);
}

static enum muster_rc range_do(struct params_tensors *scene, struct muster_params_table *table,
                               void *values, enum muster_params_direction direction)
{
    return params_tensors_move(scene, table, &(struct muster_params_range){.values = values},
                               direction);
}

/* A second client, which keeps to connections, sees what the first one has pushed through memory. */
static void pushes_and_pulls_through_memory_are_as_others(void **state)
{
    struct params_tensors scene;
    struct muster_params_options options = {.job = "test", .no_host_memory = true};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params *other;
    float *ramp = params_ramp_new(ELEMENTS, 1), *found = params_ramp_new(ELEMENTS, 0);
    uint64_t pulls;

    (void)state;
    scene_open(&scene, &weights);
    options.server = scene.stand.address;
    options.connect_deadline_ns = params_stand_deadline(&scene.stand);
    options.data = &outcome;
    for (unsigned i = 1; i <= 4; i++) { /* the first one asks for the memory */
        assert_int_equal(range_do(&scene, scene.table, ramp, MUSTER_PARAMS_DIRECTION_PUSH),
                         MUSTER_OK);
        assert_int_equal(range_do(&scene, scene.table, found, MUSTER_PARAMS_DIRECTION_PULL),
                         MUSTER_OK);
        params_ramp_expect(found, 0, ELEMENTS, (float)i);
    }
    pulls = params_stand_stats(&scene.stand).pulls;
    assert_int_equal(range_do(&scene, scene.table, found, MUSTER_PARAMS_DIRECTION_PULL), MUSTER_OK);
    assert_int_equal(params_stand_stats(&scene.stand).pulls, pulls + 1); /* the part of a block */
    params_ramp_expect(found, 0, ELEMENTS, 4);

    assert_int_equal(
        muster_params_open(&scene.stand.test.env, &options, params_on_client, &other, NULL),
        MUSTER_OK);
    assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_OK);
    memset(found, 0, ELEMENTS * sizeof(*found));
    assert_int_equal(range_do(&scene, params_stand_table(&scene.stand, other, &weights), found,
                              MUSTER_PARAMS_DIRECTION_PULL),
                     MUSTER_OK);
    assert_true(params_stand_stats(&scene.stand).pulls > pulls + 2);
    params_ramp_expect(found, 0, ELEMENTS, 4);
    outcome.is_done = false;
    muster_params_close(other, params_stand_deadline(&scene.stand), params_on_client);
    assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_OK);
    free(ramp);
    free(found);
    params_tensors_leave(&scene);
}

static struct muster_params_way *way_of(const struct params_tensors *scene)
{
    return muster_params_route(scene->params, 0);
}

static bool has_staged(void *data)
{
    const struct params_tensors *scene = data;

    MUSTER_LIST_EACH (&way_of(scene)->pushes, request, struct muster_params_request, node) {
        if (request->slot > 0)
            return true;
    }
    return false;
}

/* The values of a push lie in the memory while its operation is cancelled, or its link is lost. */
static void a_push_through_memory_counts_once_whatever_ends(void **state)
{
    static const struct {
        const char *name;
        bool is_cancelled, is_broken;
    } rows[] = {{"nothing", false, false},
                {"the operation", true, false},
                {"the link", false, true},
                {"both", true, true}};
    float *found = params_ramp_new(ELEMENTS, 0);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_outcome outcome = {.is_done = false};
        struct muster_params_op op = {.data = &outcome};
        struct muster_params_range range = {.count = 16 * BLOCK,
                                            .values = params_ramp_new(ELEMENTS, 1)};
        struct muster_error error = {.rc = MUSTER_UNAVAILABLE, .text = "lost"};
        struct params_tensors scene;

        scene_open(&scene, &weights);
        assert_int_equal(range_do(&scene, scene.table, range.values, MUSTER_PARAMS_DIRECTION_PUSH),
                         MUSTER_OK);
        assert_int_equal(
            muster_params_tensor_start(&op, scene.table, &range, MUSTER_PARAMS_DIRECTION_PUSH,
                                       params_stand_deadline(&scene.stand), params_tensors_on_op),
            MUSTER_OK);
        test_env_run_until(&scene.stand.test.env, has_staged, &scene);
        if (rows[i].is_cancelled)
            muster_params_op_cancel(&op);
        if (rows[i].is_broken)
            muster_params_way_break(way_of(&scene), &error);
        if (params_outcome_await(&scene.stand.test.env, &outcome) !=
            (rows[i].is_cancelled ? MUSTER_CANCELLED : MUSTER_OK))
            fail_msg("%s: %s", rows[i].name, muster_rc_text(outcome.rc));
        free(range.values);

        assert_int_equal(range_do(&scene, scene.table, found, MUSTER_PARAMS_DIRECTION_PULL),
                         MUSTER_OK);
        for (size_t j = 0; j < ELEMENTS; j++)
            found[j] -= j < range.count ? (float)j : 0;
        params_ramp_expect(found, 0, ELEMENTS, 1);
        params_tensors_leave(&scene);
    }
    free(found);
}

/* The server's memory does not have a push yet that was started before the pull. */
static void a_pull_shows_the_push_before_it_also_where_it_reads_memory(void **state)
{
    float *ramp = params_ramp_new(ELEMENTS, 1), *found = params_ramp_new(ELEMENTS, 0);
    const struct muster_params_range ranges[2] = {{.count = 4 * BLOCK, .values = ramp},
                                                  {.count = 4 * BLOCK, .values = found}};
    struct params_tensors scene;

    (void)state;
    scene_open(&scene, &weights);
    for (unsigned i = 1; i <= 4; i++) {
        struct params_outcome outcomes[2] = {{.is_done = false}, {.is_done = false}};
        struct muster_params_op ops[2] = {{.data = &outcomes[0]}, {.data = &outcomes[1]}};

        for (unsigned j = 0; j < 2; j++)
            assert_int_equal(muster_params_tensor_start(&ops[j], scene.table, &ranges[j],
                                                        j == 0 ? MUSTER_PARAMS_DIRECTION_PUSH
                                                               : MUSTER_PARAMS_DIRECTION_PULL,
                                                        params_stand_deadline(&scene.stand),
                                                        params_tensors_on_op),
                             MUSTER_OK);
        for (unsigned j = 0; j < 2; j++)
            assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcomes[j]), MUSTER_OK);
        for (size_t j = 0; j < 4 * BLOCK; j++)
            assert_true(found[j] <= (float)(j * i) && found[j] >= (float)(j * i));
    }
    free(ramp);
    free(found);
    params_tensors_leave(&scene);
}

static void places_in_the_memory_are_used_again(void **state)
{
    float *ramp = params_ramp_new(ELEMENTS, 1);
    const struct muster_params_range range = {.count = 4 * BLOCK, .values = ramp};
    struct params_tensors scene;

    (void)state;
    scene_open(&scene, &weights);
    assert_int_equal(range_do(&scene, scene.table, ramp, MUSTER_PARAMS_DIRECTION_PUSH), MUSTER_OK);
    for (unsigned i = 0; i < 10; i++) { /* it has four places */
        struct params_outcome outcome = {.is_done = false};
        struct muster_params_op op = {.data = &outcome};

        assert_int_equal(muster_params_tensor_start(&op, scene.table, &range,
                                                    MUSTER_PARAMS_DIRECTION_PUSH,
                                                    params_stand_deadline(&scene.stand),
                                                    params_tensors_on_op),
                         MUSTER_OK);
        test_env_run_until(&scene.stand.test.env, has_staged, &scene);
        assert_int_equal(params_outcome_await(&scene.stand.test.env, &outcome), MUSTER_OK);
    }
    free(ramp);
    params_tensors_leave(&scene);
}

/* Neither a block for it, nor a descriptor: its pushes go by messages, and nothing is left of it. */
static void without_memory_to_share_there_is_none(void **state)
{
    struct rlimit limit, few;
    struct params_tensors scene;
    int next;

    (void)state;
    scene_open(&scene, &weights);
    assert_null(way_of(&scene)->stage);
    scene.stand.test.mem.fail_at = 1;
    muster_params_stage_offer(way_of(&scene));
    assert_int_equal(scene.stand.test.mem.fail_at, 0); /* it has asked */
    assert_null(way_of(&scene)->stage);

    way_of(&scene)->stage_ns = 0; /* it may ask again */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    next = dup(0);
    assert_int_equal(close(next), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0); /* for the socket alone */
    muster_params_stage_offer(way_of(&scene));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_null(way_of(&scene)->stage);
    assert_int_equal(dup(0), next); /* which is closed */
    assert_int_equal(close(next), 0);
    params_tensors_leave(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_and_pulls_through_memory_are_as_others),
        cmocka_unit_test(a_push_through_memory_counts_once_whatever_ends),
        cmocka_unit_test(a_pull_shows_the_push_before_it_also_where_it_reads_memory),
        cmocka_unit_test(places_in_the_memory_are_used_again),
        cmocka_unit_test(without_memory_to_share_there_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
