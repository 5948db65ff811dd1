#include "params_sources.h"

#include <stdio.h>
#include <string.h>

void params_sources_join(struct params_sources *scene, uint32_t source)
{
    char name[16];

    snprintf(name, sizeof(name), "worker:%u", source);
    scene->sources[source] = params_stand_source(&scene->stand, name, scene->count);
    scene->tables[source] =
        params_stand_table(&scene->stand, scene->sources[source], scene->schema);
}

void params_sources_leave(struct params_sources *scene, uint32_t source)
{
    assert_int_equal(params_stand_leave(&scene->stand, scene->sources[source]), MUSTER_OK);
    scene->sources[source] = NULL;
}

void params_sources_open(struct params_sources *scene, uint32_t shard_count, uint32_t count,
                         const struct muster_params_schema *schema)
{
    memset(scene, 0, sizeof(*scene));
    scene->count = count;
    scene->schema = schema;
    params_stand_open_in(&scene->stand, shard_count, (size_t)64 << 20);
    for (uint32_t i = 0; i < count; i++)
        params_sources_join(scene, i);
}

void params_sources_close(struct params_sources *scene)
{
    for (uint32_t i = 0; i < scene->count; i++) {
        if (scene->sources[i] != NULL)
            params_sources_leave(scene, i);
    }
    params_stand_close(&scene->stand);
}

void params_sources_tick(struct params_sources *scene, uint32_t source, uint64_t clock,
                         double weight)
{
    struct muster_error error;

    if (params_stand_tick(&scene->stand, scene->sources[source], clock, weight, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}
