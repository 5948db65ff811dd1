/* A member that trains a state which is a function of the step, for tests of checkpoints; its folders. */
#ifndef MUSTER_TEST_TRAINEE_H
#define MUSTER_TEST_TRAINEE_H

#include "job_stage.h"

#define TRAINEE_COUNT 600000u /* 5 chunks, the last one short */

struct trainee {
    struct muster_strategy *strategy;
    int64_t *values;
    uint8_t flags[3];
    size_t count;
    uint64_t step;
    bool is_restored;
};

/** Set for each case: where checkpoints go, and a place that is not the same for all. */
extern char trainee_folder[64], trainee_other[64];
extern uint64_t trainee_copy_bytes_max;
extern bool trainee_is_reversed; /* the order in which tensors are registered */

/** restore: a folder, or NULL. */
void trainee_open(struct trainee *trainee, size_t count, const char *restore);
void trainee_close(struct trainee *trainee);
void trainee_begin(struct trainee *trainee);
/** Update the state, and commit. */
void trainee_commit(struct trainee *trainee);
/** Up to and with this step. */
void trainee_train(struct trainee *trainee, uint64_t last);
/** Fails where the state is not that of a step, after its commit. */
void trainee_check(const struct trainee *trainee, uint64_t step);
/** Begin a checkpoint. */
enum muster_rc trainee_save(struct trainee *trainee, const char *where);
/** Fails where the last error does not have the text. */
void trainee_text_check(const struct trainee *trainee, const char *text);
/** Train to a step in a job of one, and save it in trainee_folder. */
void trainee_save_alone(uint64_t step);

/** For cmocka's set-up and tear-down. */
int trainee_folders_make(void **state);
int trainee_folders_delete(void **state);
void trainee_folder_delete(const char *path);
/** "30 20? ": steps of the whole ones and of the half-written ones. */
void trainee_folder_check(const char *expected);

#endif
