/* Operations of a client whose servers a case plays, and what these servers get of them. */
#ifndef MUSTER_TEST_PARAMS_PUPPET_CALLS_H
#define MUSTER_TEST_PARAMS_PUPPET_CALLS_H

#include "params_calls.h"
#include "params_puppets.h"

/** Tables of one f32 value a row. */
extern const struct muster_params_schema puppet_counters, puppet_others;

uint64_t puppet_deadline(const struct params_puppets *puppets);
/** A row of each of the shards of the table, whose value is its place in the call, from 1. */
struct muster_params_rows puppet_call_init(struct params_call *call, const char *table,
                                           const uint32_t *shards, uint32_t count);
void puppet_push_start(struct params_puppets *puppets, struct muster_params_table *table,
                       struct params_call *call, const uint32_t *shards, uint32_t count);
void puppet_pull_start(struct params_puppets *puppets, struct muster_params_table *table,
                       struct params_call *call, const uint32_t *shards, uint32_t count);
/** Done once. */
enum muster_rc puppet_call_await(struct params_puppets *puppets, struct params_call *call);

/** A push or a pull that has come. */
struct puppet_rows {
    struct muster_params_rows_frame rows;
    struct params_puppet_frame frame;
};

/** The next frame, addressed as this puppet numbers source and table. */
struct puppet_rows puppet_rows_expect(struct params_puppet *puppet,
                                      enum muster_params_message type);
/** A push of this sequence with one row of each of these shards. */
struct puppet_rows puppet_push_expect(struct params_puppet *puppet, uint64_t sequence,
                                      uint64_t epoch, const uint32_t *shards, uint32_t count);
/** A push of this sequence with one row of this shard, which is acknowledged. */
void puppet_push_take(struct params_puppet *puppet, uint64_t sequence, uint64_t epoch,
                      uint32_t shard);
bool puppet_run_is_first(const struct puppet_rows *seen, uint32_t run);
void puppet_rows_answer(struct params_puppet *puppet, const struct puppet_rows *seen,
                        const float *values);
/** Nothing comes here. */
void puppet_quiet_expect(struct params_puppets *puppets, uint32_t puppet);

/** Puppets, and a connected client. */
void puppet_scene_init(struct params_puppets *puppets, uint32_t count);
/** The same, with the table puppet_counters. */
void puppet_scene_open(struct params_puppets *puppets, uint32_t count,
                       struct muster_params_table **ret_table);
void puppet_scene_close(struct params_puppets *puppets);

#endif
