/* From when the recovery time of a view counts. */
#include "tools/run/report/recovery.c"

#include "test_env.h"

#include <string.h>

#define MS(ms) ((ms)*MUSTER_NS_PER_MS)

/* worker:0 is the one that the view has lost. */
struct scene {
    struct run run;
    struct run_task task;
    struct run_epoch epoch;
};

bool run_names_contain(const char list[RUN_NAMES_BYTES], const char *name)
{
    return strcmp(list, name) == 0;
}

/* Detected after 1,000 ms, and over after 1,010 ms. */
static struct scene *scene_of_loss(struct scene *scene)
{
    *scene = (struct scene){.run = {.task_count = 1, .tasks = &scene->task},
                            .task = {.run = &scene->run},
                            .epoch = {.run = &scene->run,
                                      .epoch = 4,
                                      .lost = "worker:0",
                                      .recovery_ms = 5,
                                      .detected_ns = MS(1000),
                                      .ended_ns = MS(1010)}};
    strcpy(scene->task.name, "worker:0");
    return scene;
}

static void recovery_counts_from_the_death(void **state)
{
    struct scene scene;

    (void)state;
    scene_of_loss(&scene)->task.died_ns = MS(990);

    run_recovery_settle(&scene.epoch);

    assert_float_equal(scene.epoch.recovery_ms, 20, 0.001);
    assert_float_equal(scene.epoch.detection_ms, 10, 0.001);
}

static void an_eviction_does_not_count_from_the_death_of_a_former_life(void **state)
{
    struct scene scene;

    (void)state;
    scene_of_loss(&scene)->task.died_ns = MS(100);
    scene.task.joined_ns = MS(200);
    scene.task.join_epoch = 3;

    run_recovery_settle(&scene.epoch);

    assert_float_equal(scene.epoch.recovery_ms, 10, 0.001);
    assert_true(scene.epoch.detection_ms < 0);
}

static void a_death_counts_although_the_next_life_has_joined_already(void **state)
{
    struct scene scene;

    (void)state;
    scene_of_loss(&scene)->task.died_ns = MS(990);
    scene.task.joined_ns = MS(1005);
    scene.task.join_epoch = 5;

    run_recovery_settle(&scene.epoch);

    assert_float_equal(scene.epoch.recovery_ms, 20, 0.001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recovery_counts_from_the_death),
        cmocka_unit_test(an_eviction_does_not_count_from_the_death_of_a_former_life),
        cmocka_unit_test(a_death_counts_although_the_next_life_has_joined_already),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
