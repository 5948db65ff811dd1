/* Servers of a job that copy each other, and a client whose table has rows at all of them. */
#ifndef MUSTER_TEST_PARAMS_COPIES_H
#define MUSTER_TEST_PARAMS_COPIES_H

#include "params_job.h"

#include "params/store/row.h"

#define PARAMS_COPIES_ROWS 200u

/** The client has a table of it: two values a row, whose optimizer has state. */
extern const struct muster_params_schema params_copies_counters;

struct params_copies {
    struct params_job job;
    struct muster_params *params;
    struct muster_params_table *table;
    bool is_done;
    enum muster_rc rc;
};

/** params_copies_serve and params_copies_connect. */
void params_copies_open(struct params_copies *scene, uint32_t servers, uint32_t replicas);
/** The servers alone; they need not have a map. */
void params_copies_serve(struct params_copies *scene, uint32_t servers, uint32_t replicas);
void params_copies_connect(struct params_copies *scene);
/** Another server comes to the job, at this place among its members. */
void params_copies_join(struct params_copies *scene, uint32_t member);
void params_copies_close(struct params_copies *scene);

uint64_t params_copies_deadline(const struct params_copies *scene);
/** For an operation whose data is the scene. */
void params_copies_on_op(struct muster_params_op *op, enum muster_rc rc);
/** Fails the case unless it ends well. */
void params_copies_await(struct params_copies *scene);
/** All rows, the same values each time. */
void params_copies_push(struct params_copies *scene);
void params_copies_pull(struct params_copies *scene, float ret_values[PARAMS_COPIES_ROWS][2]);

/** The acknowledgements of followers of the first two servers are not read, whatever they have done. */
void params_copies_pause(struct params_copies *scene, bool is_paused);
struct muster_params_digest params_copies_digest(const struct params_copies *scene,
                                                 uint32_t member);
/** A shard that it leads. */
uint32_t params_copies_shard_led(const struct params_copies *scene, uint32_t member);
/** Every shard has all of its copies, and no learner, in the map of the last server that is there. */
bool params_copies_are_whole(const struct params_copies *scene);
/** For test_env_run_until: likewise, and the first server's map has two servers. */
bool params_copies_are_two(void *scene);

#endif
