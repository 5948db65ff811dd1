/* The variables of docs/protocol.md that concern membership. */
#ifndef MUSTER_TRAINING_VARIABLES_H
#define MUSTER_TRAINING_VARIABLES_H

#include <sys/types.h>

#include <muster/log.h>

#include "cluster/node/member.h"

/** Fill in the options that the environment sets; texts are borrowed from it. Errors: INVALID_ARGUMENT, NOT_FOUND
 * (MUSTER_TUNE_FILE); the text names the variable. */
MUSTER_MUST_CHECK enum muster_rc muster_training_read_variables(struct muster_env *env,
                                                                struct muster_node_options *node,
                                                                struct muster_error *ret_error);

/** Under a launcher: this strategy is the process's member until give; the second one at the same
 * time is refused (FAILED_PRECONDITION). Of several one after the other the first alone is a return
 * after a restart. */
MUSTER_MUST_CHECK enum muster_rc muster_training_take_incarnation(struct muster_node_options *node,
                                                                  bool *ret_is_taken,
                                                                  struct muster_error *ret_error);
void muster_training_give_incarnation(void);

/** MUSTER_LOG_LEVEL (warn) and MUSTER_LOG_FORMAT (text). */
MUSTER_MUST_CHECK enum muster_rc muster_training_read_log(struct muster_env *env,
                                                          enum muster_log_level *ret_level,
                                                          bool *ret_is_json,
                                                          struct muster_error *ret_error);

/** MUSTER_CONSTANT_BATCH: slots of a step; 0 when it is not set. INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_training_read_constant_batch(
    struct muster_env *env, uint32_t *ret_slots, struct muster_error *ret_error);

/** MUSTER_DEVICE_TIMEOUT_S; *ret_ns is 0 when it is not set. INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_training_read_device_timeout(
    struct muster_env *env, uint64_t *ret_ns, struct muster_error *ret_error);

/** When the flight recorder is written to a file: MUSTER_TRACE. */
enum muster_training_trace {
    MUSTER_TRAINING_TRACE_FAILURE, /* "failure": when the member ends in an error */
    MUSTER_TRAINING_TRACE_ALWAYS,  /* "always": at every end */
    MUSTER_TRAINING_TRACE_OFF,     /* "off": never, and no handler of signals is installed */
};
MUSTER_MUST_CHECK enum muster_rc muster_training_read_trace(struct muster_env *env,
                                                            enum muster_training_trace *ret_trace,
                                                            struct muster_error *ret_error);

/** Notices by which this process learns that the job is preempted: MUSTER_PREEMPTION. */
struct muster_training_notices {
    bool has_signals;  /* SIGTERM and SIGUSR1 to it … */
    pid_t launcher;    /* … but those of its launcher, whose SIGTERM ends it; 0: it has none */
    bool has_metadata; /* "gce": of Google's metadata server */
};
MUSTER_MUST_CHECK enum muster_rc muster_training_read_notices(
    struct muster_env *env, struct muster_training_notices *ret_notices,
    struct muster_error *ret_error);

#endif
