/* A coordination service on a clock that a test turns, with memory that is counted. */
#ifndef TESTS_LIB_COORDINATION_SCENE_H
#define TESTS_LIB_COORDINATION_SCENE_H

#include <muster/mem.h>

#include "cluster/coordination/coordination.h"

struct coordination_scene {
    struct muster_mem_limited mem;
    struct muster_coordination *coordination;
    uint64_t now_ns;
};

/** At one second. ops->answer receives scene as its data. */
void coordination_scene_open(struct coordination_scene *scene,
                             const struct muster_coordination_options *options,
                             const struct muster_coordination_ops *ops);

/** Fails the case when memory is not given back. */
void coordination_scene_close(struct coordination_scene *scene);

#endif
