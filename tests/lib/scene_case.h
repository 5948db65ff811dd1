/* Cases that share one way to open their scene, which lies on the heap. */
#ifndef MUSTER_TEST_SCENE_CASE_H
#define MUSTER_TEST_SCENE_CASE_H

#include <stdlib.h>

/** Set-up and teardown of CASE: *state is an open scene of that type. */
#define SCENE_CASES(type, open, close)                                                             \
    static int scene_set_up(void **state)                                                          \
    {                                                                                              \
        type *scene = malloc(sizeof(*scene));                                                      \
                                                                                                   \
        open(scene);                                                                               \
        *state = scene;                                                                            \
        return 0;                                                                                  \
    }                                                                                              \
    static int scene_tear_down(void **state)                                                       \
    {                                                                                              \
        close(*state);                                                                             \
        free(*state);                                                                              \
        return 0;                                                                                  \
    }

#define CASE(name) cmocka_unit_test_setup_teardown(name, scene_set_up, scene_tear_down)

#endif
