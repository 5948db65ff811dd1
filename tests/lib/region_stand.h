/* A region of parameters in memory of the test, and sources that push to it. */
#ifndef MUSTER_TEST_REGION_STAND_H
#define MUSTER_TEST_REGION_STAND_H

#include "params/store/apply.h"
#include "params/store/row.h"

struct region_stand {
    struct muster_params_region region;
    struct muster_params_region_options options;
    uint8_t *memory;
    size_t bytes;
};

/** Fresh memory, cut for `shard_count` shards. Fails the case. */
void region_stand_open(struct region_stand *stand, size_t bytes, uint32_t shard_count);
void region_stand_close(struct region_stand *stand);
/** Recover as the next process of the seat would. Fails the case. */
void region_stand_recover(struct region_stand *stand);

/** A schema of `elements` per row with initial values that differ by key. */
struct muster_params_schema region_schema(const char *name, uint32_t elements,
                                          enum muster_params_optimizer optimizer);
struct muster_params_store_table *region_table(struct region_stand *stand,
                                         const struct muster_params_schema *schema);
/** The source whose id is made of `number`; opened anew with each call. */
struct muster_params_source *region_source(struct region_stand *stand, uint8_t number);
/** Push each key's gradient to its shard, in runs as a client makes them: the rows of a shard in
 * their order. Returns the rows refused; *ret_duplicates (may be NULL) counts runs that had been
 * applied before. */
uint32_t region_push(struct region_stand *stand, struct muster_params_store_table *table,
                     struct muster_params_source *source, uint64_t sequence, const uint64_t *keys,
                     const float *values, uint32_t count, uint32_t *ret_duplicates);

#endif
