/* A folder of files and a dataset of them, for tests of datasets. */
#ifndef MUSTER_TEST_DATASET_WORLD_H
#define MUSTER_TEST_DATASET_WORLD_H

#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/dataset.h>

#include "dataset_files.h"

struct world {
    struct muster_mem_limited mem;
    struct dataset_files files;
    struct muster_dataset *dataset;
    struct muster_error error;
};

static int world_set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    muster_mem_limited_init(&world->mem, muster_mem_system(), 0);
    dataset_files_open(&world->files);
    *state = world;
    return 0;
}

static int world_tear_down(void **state)
{
    struct world *world = *state;

    muster_dataset_close(world->dataset);
    assert_int_equal(muster_mem_limited_fini(&world->mem), 0);
    dataset_files_close(&world->files);
    free(world);
    return 0;
}

/* The dataset of the files whose names fit the pattern, in place of the one that was open. */
static enum muster_rc files_open(struct world *world, struct muster_dataset_options options,
                                 const char *pattern)
{
    char path[128];
    const char *paths[] = {path};

    snprintf(path, sizeof(path), "%s/%s", world->files.folder, pattern);
    options.paths = paths;
    options.path_count = 1;
    options.mem = &world->mem.mem;
    muster_dataset_close(world->dataset);
    world->dataset = NULL;
    return muster_dataset_open(&options, &world->dataset, &world->error);
}

static void assert_error_has(const struct world *world, const char *text)
{
    if (strstr(world->error.text, text) == NULL)
        fail_msg("\"%s\" does not have \"%s\"", world->error.text, text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

#endif
