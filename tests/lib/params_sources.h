/* Sources that tick at one server, each with its own client and the same table. */
#ifndef MUSTER_TEST_PARAMS_SOURCES_H
#define MUSTER_TEST_PARAMS_SOURCES_H

#include "params_stand.h"

#define PARAMS_SOURCES_MAX 3u

struct params_sources {
    struct params_stand stand;
    uint32_t count;
    const struct muster_params_schema *schema;         /* borrowed until the scene is closed */
    struct muster_params *sources[PARAMS_SOURCES_MAX]; /* NULL: it has left */
    struct muster_params_table *tables[PARAMS_SOURCES_MAX];
};

void params_sources_open(struct params_sources *scene, uint32_t shard_count, uint32_t count,
                         const struct muster_params_schema *schema);
/** Those that are there leave, and the server closes. */
void params_sources_close(struct params_sources *scene);
/** A source comes, also again, by the name "worker:<source>". */
void params_sources_join(struct params_sources *scene, uint32_t source);
void params_sources_leave(struct params_sources *scene, uint32_t source);
/** It has completed so many steps. Fails the case. */
void params_sources_tick(struct params_sources *scene, uint32_t source, uint64_t clock,
                         double weight);

#endif
