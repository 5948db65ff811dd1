/* The parts of a puppet: words of commands, answers, and the commands that have files of their own. */
#ifndef MUSTER_TESTS_PUPPET_H
#define MUSTER_TESTS_PUPPET_H

#include <stdbool.h>
#include <stdint.h>

#include <muster/muster.h>

enum { PUPPET_WORDS_MAX = 8, PUPPET_TENSORS_MAX = 100 };

struct words {
    char *at[PUPPET_WORDS_MAX];
    int count;
};

extern struct muster_strategy *puppet_strategy; /* NULL: none is open */

/** The i-th word of the command, or fallback. Borrowed. */
const char *puppet_word(const struct words *words, int i, const char *fallback);
uint64_t puppet_number(const struct words *words, int i, const char *fallback);
double puppet_seconds(const struct words *words, int i);
/** False: the error is the answer. True: the caller answers "ok" and more. */
bool puppet_is_ok(enum muster_rc rc);
/** count elements of f64 that are value. Gives (free). */
void *puppet_make_tensor(uint64_t count, double value);
/** communication=NAME bytes_per_pack=N timeout_ms=N */
struct muster_communication_options puppet_read_communication(const struct words *words);
/** Print the value of all elements, or that they differ. */
void puppet_print_value(const struct muster_tensor *tensor);
enum muster_reduction puppet_reduction_of(const char *name);
/** Answer with the first element of each part. */
void puppet_print_parts(const struct muster_tensor *tensor, uint32_t parts);

/* puppet_device.c: tensors in device memory, and the fake libraries that stand for it */
void puppet_device_all_reduce(const struct words *words);
void puppet_device_broadcast(const struct words *words);
void puppet_device_all_gather(const struct words *words);
void puppet_device_register(const struct words *words);
void puppet_device_set(const struct words *words);
void puppet_device_change(const struct words *words);
void puppet_device_get(const struct words *words);
void puppet_device_copied(const struct words *words);
void puppet_knob(const struct words *words);

/* puppet_blob.c: blobs of the state, and checkpoints */
void puppet_register_blob(const struct words *words);
void puppet_set_blob(const struct words *words);
void puppet_blob(const struct words *words);
void puppet_checkpoint(const struct words *words);
void puppet_restore(const struct words *words);

/* puppet_split.c: groups of some members */
void puppet_split(const struct words *words);
void puppet_split_place(const struct words *words);
void puppet_split_all_reduce(const struct words *words);
void puppet_split_broadcast(const struct words *words);
void puppet_split_all_gather(const struct words *words);
void puppet_split_exchange(const struct words *words);
void puppet_split_barrier(const struct words *words);
void puppet_splits_forget(void);
/** A rank; "-": MUSTER_SPLIT_NOBODY. */
uint32_t puppet_partner(const struct words *words, int i);

/* puppet_exchange.c: operations on parts, and messages */
void puppet_reduce_scatter(const struct words *words);
void puppet_gather(const struct words *words);
void puppet_scatter(const struct words *words);
void puppet_all_gather_uneven(const struct words *words);
void puppet_reduce_scatter_uneven(const struct words *words);
void puppet_all_to_all_uneven(const struct words *words);
void puppet_message(const struct words *words);
void puppet_exchange(const struct words *words);

/* puppet_micro.c: steps in micro-batches */
void puppet_micro(const struct words *words);
void puppet_micro_begin(const struct words *words);
void puppet_micro_sum(const struct words *words);
void puppet_micro_close(void);

/* puppet_replicas.c: replicas, and sparse gradients */
void puppet_replicas(const struct words *words);
void puppet_replicas_reduce(const struct words *words);
void puppet_replicas_gather(const struct words *words);
void puppet_slices(const struct words *words);

/* puppet_process.c: how the process ends, its threads, and its children */
void puppet_exit(const struct words *words);
void puppet_finalize(const struct words *words);
void puppet_background_barrier(const struct words *words);
void puppet_background_end(const struct words *words);
void puppet_report_twice(const struct words *words);
void puppet_fork(const struct words *words);
void puppet_wait_for_end(void);

#endif
