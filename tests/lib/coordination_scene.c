/* A coordination service on a clock that a test turns, with memory that is counted. */
#include "coordination_scene.h"

#include "careful_mem.h"
#include "test_env.h"

void coordination_scene_open(struct coordination_scene *scene,
                             const struct muster_coordination_options *options,
                             const struct muster_coordination_ops *ops)
{
    muster_mem_limited_init(&scene->mem, careful_mem(), 0);
    scene->now_ns = MUSTER_NS_PER_S;
    assert_int_equal(
        muster_coordination_new(&scene->mem.mem, options, ops, scene, &scene->coordination),
        MUSTER_OK);
}

void coordination_scene_close(struct coordination_scene *scene)
{
    muster_coordination_free(scene->coordination);
    assert_int_equal(muster_mem_limited_fini(&scene->mem), 0);
}
