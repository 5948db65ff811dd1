/* The thread that makes the pages of segments before they are used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "params/server/seat/ahead_system.h"
#include "params/store/region.h"

#define SEGMENTS 16u
#define SKIPPED  5u

struct scene {
    uint8_t *memory;
    _Atomic unsigned made[SEGMENTS]; /* how often */
    struct muster_params_ahead *ahead;
};

static void on_made(void *data, size_t segment)
{
    struct scene *scene = data;

    atomic_fetch_add(&scene->made[segment], 1);
}

static bool is_made(const void *data, size_t segment)
{
    const struct scene *scene = data;

    return segment == SKIPPED || atomic_load(&scene->made[segment]) > 0;
}

static void scene_open(struct scene *scene, size_t segments_used)
{
    const struct muster_params_ahead_options options = {
        .memory = mmap(NULL, SEGMENTS * MUSTER_PARAMS_SEGMENT_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        .segment_count = SEGMENTS,
        .segments_used = segments_used,
        .made = on_made,
        .is_made = is_made,
        .data = scene};

    memset(scene, 0, sizeof(*scene));
    scene->memory = options.memory;
    assert_ptr_not_equal(scene->memory, MAP_FAILED);
    assert_int_equal(muster_params_ahead_open(&options, &scene->ahead), MUSTER_OK);
}

static void made_await(const struct scene *scene, size_t segment)
{
    while (atomic_load(&scene->made[segment]) == 0)
        (void)sched_yield();
}

static void scene_close(struct scene *scene)
{
    muster_params_ahead_close(scene->ahead);
    munmap(scene->memory, SEGMENTS * MUSTER_PARAMS_SEGMENT_BYTES);
}

static void segments_behind_those_in_use_are_made(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 1);
    muster_params_ahead_of(scene.ahead, 1);
    made_await(&scene, 2);
    scene_close(&scene);

    for (size_t i = 0; i < SEGMENTS; i++)
        assert_int_equal(scene.made[i], i == 1 || i == 2);
}

/* A large index has its memory at once, and is cleared by and by; rows go on behind it. */
static void all_before_a_segment_are_made_once_but_those_that_others_have_made(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, 1);
    muster_params_ahead_until(scene.ahead, 10);
    muster_params_ahead_of(scene.ahead, 12);
    made_await(&scene, 13);
    scene_close(&scene);

    for (size_t i = 0; i < SEGMENTS; i++)
        assert_int_equal(scene.made[i], i >= 1 && i <= 13 && i != SKIPPED);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_behind_those_in_use_are_made),
        cmocka_unit_test(all_before_a_segment_are_made_once_but_those_that_others_have_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
