/* Elastic data-parallel training: begin → all_reduce … → update → commit, while workers die and
 * come back. What needs the other members blocks. One call at a time, from whichever thread: a call
 * while another thread is in one ends with FAILED_PRECONDITION, and so does every call in a child of
 * fork; nothing has happened then (muster_strategy_error tells the thread whose call it was). */
#ifndef MUSTER_STRATEGY_H
#define MUSTER_STRATEGY_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/resolver.h>
#include <muster/status.h>
#include <muster/view.h>

MUSTER_BEGIN

struct muster_strategy;

struct muster_strategy_options {
    const char
        *resolver; /* "slurm:", "static:…"; NULL: MUSTER_RESOLVER, or what the environment shows */
    /* Asked instead of a URI, if there is one, and watched until the first view: tasks that come or go change how many
     * that view waits for. Its own loop is turned in open, in begin until the first view, and in close, so none of
     * these is called from a callback of that loop. Borrowed until close. */
    struct muster_resolver *opened_resolver;
    const char *registry;      /* "host:port"; NULL: MUSTER_REGISTRY */
    const char *job;           /* NULL: MUSTER_JOB, else "default" */
    uint64_t op_timeout_ns;    /* deadline of each operation; 0: 5 min */
    uint64_t start_timeout_ns; /* waiting for the first view; 0: 5 min */
    /* Defaults of every call. Fields that are unset follow the members' agreement (the leader's
     * values in the first view); fields that are set must equal it, see begin. */
    struct muster_communication_options communication;
    bool
        is_reproducible; /* so, too: the same bits of a sum whatever the timing (docs/collectives.md,
                             "Bits"); MUSTER_REPRODUCIBLE asks for the same */
    /* No healing, as TensorFlow: when a member dies, or leaves before the others have done their steps, their
     * calls end with UNAVAILABLE, which names it, and only close is left. The same on all members: begin refuses
     * one that differs with INVALID_ARGUMENT, which names both sides. */
    bool is_fixed_size;
    /* Replicas of the model that this process computes side by side, one per device (muster/replicas.h). Members may
     * have different numbers. 0: MUSTER_REPLICAS; if that is unset, as many as `devices` gives, or 1. */
    uint32_t replica_count;
    uint32_t logical_device_count; /* devices over which each replica divides its tensors; 0: 1 */
    /* GPUs on which the replicas compute: "all" that the process sees, a list of their numbers there ("0,2"), or "cpu".
     * Each replica has the next logical_device_count GPUs of the list; a GPU may be named twice. "" is "cpu", and the
     * log says so (`replicas_on_cpu`). NULL: MUSTER_DEVICES.
     * If that is unset, too: "all" in local mode (muster_strategy_is_local), if there are GPUs, no number of replicas
     * is given and communication is not NCCL; otherwise "cpu". docs/gpu.md, "Several devices in one process". */
    const char *devices;
    /* How long a call may wait for what a GPU has yet to do. Then the GPU counts as failed: this member ends with
     * UNAVAILABLE, which names the GPU and the call, and the others go on. The log tells of long waits before
     * (`waits_for_device`). 0: MUSTER_DEVICE_TIMEOUT_S; if that is unset, 10 min. */
    uint64_t device_timeout_ns;
    /* A directory from which a new job begins, and to which the strategy saves by itself: each checkpoint_every steps
     * ("100") or so often ("30s"), and the last step at close; checkpoint_keep_count stay (MUSTER_CHECKPOINT_KEEP_ALL:
     * all). What is NULL or 0 is taken from MUSTER_CHECKPOINT_DIR, _EVERY and _KEEP, by which `muster run
     * --checkpoint-dir` asks for the same; a directory that differs from that one is refused. docs/checkpoints.md. */
    const char *checkpoint_dir;
    const char *checkpoint_every;
    uint32_t checkpoint_keep_count;
};

#define MUSTER_CHECKPOINT_KEEP_ALL UINT32_MAX

/**
 * Check the variables (MUSTER_*) by which a strategy is set up, before any process is started with them.
 *
 * Errors:  INVALID_ARGUMENT, NOT_FOUND: the text names the variable and what it must be.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_check_variables(
    struct muster_env *env, struct muster_error *ret_error);

/** name is cut at 127 bytes; nearest is a name that muster knows and that differs by at most two letters, or NULL. Both
 * are borrowed during the call. */
typedef void muster_unknown_variable_fn(void *data, const char *name, const char *nearest);

/**
 * Call on_unknown for each variable MUSTER_* of the environment whose name muster does not know: a misspelt one is
 * not read by anybody. Names that MUSTER_UNKNOWN_VARIABLES lists are left out: a launcher has told of them.
 * muster_strategy_open logs the others, once per process.
 *
 * Owns:    data is handed to on_unknown as it is.
 * Thread:  any, while no other thread changes the environment.
 */
MUSTER_API void muster_strategy_find_unknown_variables(struct muster_env *env, void *data,
                                                       muster_unknown_variable_fn *on_unknown);

/**
 * Find out which task this process is, and start towards membership: of the first view, or of a
 * running job. Does not wait for the others, begin does. Runs muster on a keeper thread
 * whenever the program is elsewhere.
 *
 * Owns:    gives; options are borrowed during the call.
 * Errors:  FAILED_PRECONDITION (not started by `muster run` and no registry named; or started by it
 *          and another strategy of this process is not closed yet: it is one member),
 *          UNAVAILABLE, UNIMPLEMENTED, RESOURCE_EXHAUSTED (`devices` or communication NCCL is asked for, and a device,
 *          the driver or NCCL is missing or cannot be opened),
 *          INVALID_ARGUMENT, NOT_FOUND (TF_CONFIG, RANK, a variable of muster: the text names it).
 *          Who is missing shows in begin.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_open(
    const struct muster_strategy_options *options, struct muster_strategy **ret_strategy,
    struct muster_error *ret_error);

/** A tensor of zeroes that the other processes of the host map, which makes operations on it several
 * times as fast as on ordinary memory: see muster_tensor_new. Gives, muster_strategy_tensor_free before
 * close, and not while it is registered. INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_tensor_new(
    struct muster_strategy *strategy, enum muster_dtype dtype, uint64_t count,
    struct muster_tensor *ret_tensor);
MUSTER_API void muster_strategy_tensor_free(struct muster_strategy *strategy,
                                            struct muster_tensor *tensor);

/** The memory of a tensor whose strategy is closed. */
struct muster_kept_memory {
    void *start;
    size_t bytes; /* size of its mapping; 0: it is ordinary memory */
};
/** Keep the tensor's data where it is when the strategy is closed, so that pointers into it which others
 * hold stay valid. Free it by muster_strategy_tensor_free before close, or by muster_kept_memory_free
 * after close. FAILED_PRECONDITION (another thread is in a call). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_tensor_keep(
    struct muster_strategy *strategy, const struct muster_tensor *tensor,
    struct muster_kept_memory *ret_kept);
/** Accepts a struct that is all zero, and leaves one. */
MUSTER_API void muster_kept_memory_free(struct muster_kept_memory *kept);

/** Name a tensor that is part of the training state, the same on every member, before the first
 * begin; see there when it may change. Borrows tensor->data until close; name is copied.
 *
 * It may be in device memory (CUDA's): then begin and commit wait until the device has done what the program's
 * stream holds (muster_strategy_set_stream, muster_replicas_set_stream), and a device that fails ends this member with
 * UNAVAILABLE. Copies go through pinned memory of 4 MiB for each device (docs/gpu.md). Of a tensor that each replica
 * has, register the first replica's (muster_replicas_mirror).
 *
 * ALREADY_EXISTS, INVALID_ARGUMENT (no name; an unknown type; data that is NULL or not aligned to its type),
 * FAILED_PRECONDITION (after begin), UNAVAILABLE, RESOURCE_EXHAUSTED (the device cannot be opened; the
 * state is larger than a joiner can be told of, docs/known-limits.md); what is final in begin, if it is known by
 * now. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_register(
    struct muster_strategy *strategy, const char *name, const struct muster_tensor *tensor);

/**
 * Begin the next step. Call it again when an operation of the step ended ABORTED: the step is
 * run again, or the members' state has replaced this one's. The first call gives every member
 * rank 0's registered tensors (a new job; the lowest rank of most, when rank 0 differs from them in
 * shape) or the members' committed state (a joiner, or a member that was excluded while it was alive:
 * *ret_is_restored). When rank 0 dies before all have its state, all start over with that of another
 * rank: after begin all tensors are one rank's, whole. For that the last rank keeps a copy of what
 * differs in its own tensors until it has all of rank 0's. Rank 0's death in that time costs nothing but
 * time; when the last rank dies in it as well, begin fails with UNAVAILABLE.
 *
 * Waits for the others (start_timeout_ns), for a change of view that is under way, and, in the step that
 * a member joins, until that member has read the state.
 *
 * Registered tensors may change (weights, running statistics, counters, states of generators) from the
 * return of begin to commit, at any point. They must not change between commit and the return of the
 * next begin: members that join read them in that time.
 *
 * Units:   *ret_step counts from 1. ret_is_restored may be NULL.
 * Errors:  each is final, only close is left: UNAVAILABLE (registry; no member is left that has the
 *          state, committed or initial), DEADLINE_EXCEEDED (others did not come, did not admit this
 *          process (again), or did not commit within 10 min the step that it needs; the text names
 *          who), ABORTED (below min members), INVALID_ARGUMENT (the state differs in shape
 *          from that of most members, or an option from what the members have agreed on: the text
 *          names both sides; or a step was committed here without an operation that others wait for, which
 *          operations end with as well; the others go on), FAILED_PRECONDITION (the members speak another version),
 *          OUT_OF_RANGE (restarted by `muster run` too late: all members have left, the job is
 *          over. The launcher counts such an end as a success whatever the exit code).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_begin(struct muster_strategy *strategy,
                                                                  uint64_t *ret_step,
                                                                  bool *ret_is_restored);
/**
 * The same for a job of last_step steps: OUT_OF_RANGE when they are all committed, by this member or by those whose
 * state it has, and no step has begun then. A loop that ends by it cannot train too far: a process that is started
 * again behind the last step, or that loads the last step's checkpoint, learns only here that nothing is left to do.
 *
 *     while ((rc = muster_strategy_begin_until(strategy, 1000, &step, NULL)) == MUSTER_OK && …)
 *
 * Errors:  those of begin. OUT_OF_RANGE is the end of the work. The registered tensors are those of the last step,
 *          and rank 0 does what one process is to do with them; close comes after that. Who was started again too
 *          late gets OUT_OF_RANGE, too: its rank is MUSTER_RANK_NOBODY, and its tensors are not a result.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_begin_until(
    struct muster_strategy *strategy, uint64_t last_step, uint64_t *ret_step,
    bool *ret_is_restored);

/**
 * Reduce each of `count` tensors over all members, in place; blocks until all are delivered.
 * See muster_all_reduce_start. MEAN divides by those who contributed.
 *
 * Device memory (CUDA's) is reduced by NCCL; also for broadcast, reduce, all_gather, all_to_all and
 * reduce_scatter. There a change of view ends a call with ABORTED, after which its tensors may be partly
 * written: run the step again from begin (docs/gpu.md). With communication RING, and for all other
 * calls, device memory is copied to the host's, reduced there as host memory is, and copied back.
 * Host memory with communication NCCL: INVALID_ARGUMENT.
 *
 * Errors:  FAILED_PRECONDITION (begin first), INVALID_ARGUMENT (a bad tensor; or a rank has called
 *          another one, or commit: the text has both), DEADLINE_EXCEEDED and ABORTED (op_timeout_ns
 *          has passed here or on another rank: the text names the rank that did not call; or this
 *          member was left out). Inputs are then as they were; begin says how to go on.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_reduce(
    struct muster_strategy *strategy, const struct muster_tensor *tensors, size_t count,
    enum muster_reduction reduction);
/** The same with options of this call over those of the strategy. With bytes_per_pack the tensors
 * travel in packs, the last first (muster_all_reduce_list_start), and after an error those that did
 * not travel in place are as they were. Errors also: FAILED_PRECONDITION (NCCL). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_reduce_with(
    struct muster_strategy *strategy, const struct muster_tensor *tensors, size_t count,
    enum muster_reduction reduction, const struct muster_communication_options *options);
/** The mean by weight (muster_all_reduce_weighted_start), the number of this member's examples for
 * one. Floats only. muster_strategy_result has the total. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_reduce_weighted(
    struct muster_strategy *strategy, const struct muster_tensor *tensors, size_t count,
    uint64_t weight);
/** tensor of rank `root`, as counted since begin, to all. ABORTED on all when root dies before
 * anybody has it, and when the ranks of a member that began the step later name another one:
 * begin says how to go on. Other errors as above. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_broadcast(
    struct muster_strategy *strategy, const struct muster_tensor *tensor, uint32_t root);
/** The reduction of all members' tensor in that of rank `root`; the others' stay as they are. ABORTED
 * as for broadcast. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_reduce(
    struct muster_strategy *strategy, const struct muster_tensor *tensor,
    enum muster_reduction reduction, uint32_t root);
/** Part r of output is rank r's input: output->count = size * input->count. Size and ranks are those
 * since begin: ABORTED on all when a member has gone since. See muster_all_gather_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_gather(
    struct muster_strategy *strategy, const struct muster_tensor *input,
    const struct muster_tensor *output);
/** Part s of rank r's output is part r of rank s's input; otherwise as all_gather. See
 * muster_all_to_all_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_all_to_all(
    struct muster_strategy *strategy, const struct muster_tensor *input,
    const struct muster_tensor *output);
/**
 * Whether all members, as of begin, answer: each has to show itself twice from now on, which it does
 * whatever its program does. No member has to call it together with this one. Returns as soon as each has
 * answered or is gone.
 *
 * Units:   timeout_ns 0: 10 s.
 * Errors:  UNAVAILABLE: the text names the members that are silent, and those that have died or left since
 *          begin. FAILED_PRECONDITION (begin first). What is final in begin.
 * Source:  MultiWorkerMirroredStrategy's check of its peers' health.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_check_health(
    struct muster_strategy *strategy, uint64_t timeout_ns);

/** Returns when all members have called it. Errors as above. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_barrier(
    struct muster_strategy *strategy);

/** Whether the program wants out of a call. It is called in the thread of a call that waits for other
 * members, after about a millisecond and then every 50 ms. If it returns true the strategy is abandoned:
 * the call ends with CANCELLED, and only close is left. It must return soon, and must not call muster. */
typedef bool muster_strategy_interrupt_fn(void *data);
/** Let a program out of begin and operations that wait, for example when a signal has come. open and
 * close do not ask. NULL: no call asks. data is borrowed until close. Refused, as any call is, while
 * another thread is in one. */
MUSTER_API void muster_strategy_set_interrupt(struct muster_strategy *strategy,
                                              muster_strategy_interrupt_fn *is_interrupted,
                                              void *data);

/** A CUstream of the program: what it holds when an operation on device memory is called comes before
 * it, and what it holds at begin and commit belongs to the state. NULL: the default stream. Borrowed
 * until the next one, or close. With several devices it is of the first one (muster_replicas_set_stream). */
MUSTER_API void muster_strategy_set_stream(struct muster_strategy *strategy, void *stream);

/**
 * Let the stream of muster_strategy_set_stream wait, on the device, for the work that another stream of the program
 * (CUstream, NULL: the default one) holds now. That work then comes before the operations on device memory that are
 * called from now on, and before begin and commit. For a tensor that another stream still writes.
 *
 * Owns:    borrows both during the call. tensor is in device memory.
 * Errors:  those of muster_strategy_register on a device; UNAVAILABLE also: the driver refuses the stream, and the
 *          order is not made.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_wait_stream(
    struct muster_strategy *strategy, const struct muster_tensor *tensor, void *stream);

/** The registered tensors are now the state after this step. FAILED_PRECONDITION without begin.
 * OK also for a member that was left out meanwhile: its next begin brings the members' state. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_commit(
    struct muster_strategy *strategy);

/** Detail of the last error of a call on this strategy. */
MUSTER_API const struct muster_error *muster_strategy_error(const struct muster_strategy *strategy);

/** muster_strategy_rank after a begin that has ended with OUT_OF_RANGE: this process has done no part of the job. */
#define MUSTER_RANK_NOBODY UINT32_MAX

/* Valid between begin and commit; they change only in begin. Two members may begin one step in different views, before
 * and after a death: how many operations a step has, and which, must not follow from rank and size. */
/** MUSTER_RANK_NOBODY after a begin that has ended with OUT_OF_RANGE (the job is over). */
MUSTER_API uint32_t muster_strategy_rank(const struct muster_strategy *strategy);
MUSTER_API uint32_t muster_strategy_size(const struct muster_strategy *strategy);
/** Members among `size` for whom this step is the first since they came, or came back: they have been given the
 * state in this begin, and work that all must do anew with them belongs here. The same on all members, also when
 * the step runs again; 0 in the first step of a job. */
MUSTER_API uint32_t muster_strategy_joined(const struct muster_strategy *strategy);
/** The number of replicas of all members together. Source: tf.distribute.Strategy. */
MUSTER_API uint32_t muster_strategy_num_replicas_in_sync(const struct muster_strategy *strategy);
MUSTER_API uint64_t muster_strategy_epoch(const struct muster_strategy *strategy);
/** The last step that is in the registered tensors: this member has committed it, or begin has brought it, from the
 * other members or from a checkpoint; 0: none. */
MUSTER_API uint64_t muster_strategy_committed_step(const struct muster_strategy *strategy);
/** Options that the members have agreed on; before the first begin, those given to open. */
MUSTER_API struct muster_communication_options muster_strategy_communication(
    const struct muster_strategy *strategy);
MUSTER_API bool muster_strategy_is_reproducible(const struct muster_strategy *strategy);
/** Members that contributed to the last delivered operation. */
MUSTER_API uint32_t muster_strategy_contributors(const struct muster_strategy *strategy);
/** How the last delivered operation ended: contributors; and whether a change of view fell into
 * its call (one call may reduce many tensors), with the verdict. Borrowed. */
MUSTER_API const struct muster_op_result *muster_strategy_result(
    const struct muster_strategy *strategy);

/** 16 hexadecimal digits of XXH3 over all registered tensors in order of registration. */
#define MUSTER_DIGEST_TEXT_BYTES 17
MUSTER_API void muster_strategy_state_digest(const struct muster_strategy *strategy,
                                             char ret_text[MUSTER_DIGEST_TEXT_BYTES]);

/** A named number for the launcher's progress line ("loss", "images_per_s"); shown with the next
 * commit. Refused, as any call is, while another thread is in one (muster_strategy_error). */
MUSTER_API void muster_strategy_report(struct muster_strategy *strategy, const char *name,
                                       double value);
/** A named number for the summary at the end ("accuracy"). */
MUSTER_API void muster_strategy_report_result(struct muster_strategy *strategy, const char *name,
                                              double value);

/**
 * Leave, stop, and free the strategy. NULL is accepted, and in a child of fork nothing happens.
 *
 * After commit the program's work is done: the result is reported, the others need not wait for this
 * one, and whoever comes back when all have closed so is told that the job is over. Waits until no other
 * member needs this one. With `muster run --checkpoint-dir` the state of the last commit is saved first. The caller
 * does not learn whether that failed: the log says so (`last_checkpoint_failed`), and `muster run` ends with 1 whatever
 * the exit code of this program. A program that saves without that launcher calls muster_strategy_close_checked
 * instead, or it exits with 0 although its last steps are lost.
 *
 * After begin, without any operation since (a loop that leaves when begin says a step beyond its last),
 * the exit code says whether the work is done: 0, or the launcher starts it again.
 *
 * With state on a device, close waits for what the program's streams hold, for device_timeout_ns at most.
 *
 * In the middle of a step (an operation was called since begin, and no commit), or after an operation
 * that failed, it is a failure, as muster_strategy_abandon: a program that closes on its way out of an
 * error needs nothing else.
 */
MUSTER_API void muster_strategy_close(struct muster_strategy *strategy);
/**
 * The same, and says whether the state is that of all members, and the last checkpoint of it whole: for the end of a
 * program whose work is done, which must not end with 0 otherwise. `muster run` counts such an end as a failure of the
 * run whatever the exit code, and does not start the worker again: the training is done, and another life would
 * repeat it.
 *
 * Errors:  those of the checkpoint that is begun here (RESOURCE_EXHAUSTED: the disk is full; ABORTED: another
 *          member could not write), or of the last one before, if none is needed here; INVALID_ARGUMENT (others wait
 *          for an operation of the last step, which was committed here without it); FAILED_PRECONDITION (another
 *          thread is in a call, or the replicas run: nothing is closed). ret_error (may be NULL) names the step, the
 *          reason and the remedy. OK after a failure of the program's own, where nothing is saved.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_close_checked(
    struct muster_strategy *strategy, struct muster_error *ret_error);

/**
 * This process cannot go on: the others go on without it at once, the job is not over, and `muster run`
 * starts it again as after a death, whatever the exit code. text says why, for its log; copied. Returns
 * when the others know, or after two seconds. Only close is left then. NULL is accepted.
 *
 * A program that ends without close (exit, return from main, an exception) does this by itself if it is
 * in the middle of a step, and else leaves as one that is not done: `muster run` names who does so
 * with exit code 0 after begin, or before the others have done their steps. Not at _exit and at
 * signals: those tell the others as soon as the system has taken the process down. A job whose workers have all
 * ended with 0 so, in a step or by _exit, has failed.
 */
MUSTER_API void muster_strategy_abandon(struct muster_strategy *strategy, const char *text);

/* Splits of a strategy: operations among some of the members, by a color of each. Data, tensor and
 * pipeline groups are splits of the same members. */

struct muster_strategy;
struct muster_strategy_split;

#define MUSTER_SPLIT_NOBODY UINT32_MAX

/**
 * Groups of those members that have one color, for all of the strategy's life. A member that comes
 * back, or joins, has the color of its task; a group without its dead goes on. One change of view
 * decides the operations of all groups of all splits: what can be finished is, the rest runs again or
 * ends ABORTED, in each group alike on all its members. Groups do not wait for each other.
 *
 * All members make the same splits in the same order. One that is made after the first begin is there from then on:
 * nothing is exchanged, and operations on it wait for members that have not made it yet. A program that is started
 * again makes all splits that the others have made, before it calls an operation on one.
 *
 *     static uint32_t column(void *data, const struct muster_member *member)
 *     {
 *         return member->task_index % *(uint32_t *)data;
 *     }
 *     muster_strategy_split(strategy, column, &width, &data_group);
 *
 * Owns:    *ret_split is the strategy's, until close. color is pure and may be called on another
 *          thread; data is borrowed until close.
 * Errors:  INVALID_ARGUMENT (no color), RESOURCE_EXHAUSTED (MUSTER_SPLITS_MAX).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split(
    struct muster_strategy *strategy, muster_color_fn *color, void *data,
    struct muster_strategy_split **ret_split);

/** The color of a task. */
struct muster_task_color {
    const char *task_type; /* "worker"; NULL: every type */
    uint32_t task_index, color;
};
/** The same by a table of the tasks' colors, which is copied; of two rows for a task the first counts. A task that
 * it lacks has no group. For programs that can give no function, such as those in other languages. Errors as above. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_table(
    struct muster_strategy *strategy, const struct muster_task_color *colors, size_t count,
    struct muster_strategy_split **ret_split);

/** Members with this one's color, and its place among them, as of begin: they change only there. A
 * member without a group (a color above MUSTER_COLOR_MAX) has size 0. */
MUSTER_API uint32_t muster_strategy_split_size(const struct muster_strategy_split *split);
MUSTER_API uint32_t muster_strategy_split_rank(const struct muster_strategy_split *split);

/* Each as its namesake of the strategy, among the members of this one's group; root, parts and size
 * are counted there. Device memory is copied to the host's. Errors also: FAILED_PRECONDITION (this
 * member has no group). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_reduce(
    struct muster_strategy_split *split, const struct muster_tensor *tensors, size_t count,
    enum muster_reduction reduction);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_broadcast(
    struct muster_strategy_split *split, const struct muster_tensor *tensor, uint32_t root);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_reduce(
    struct muster_strategy_split *split, const struct muster_tensor *tensor,
    enum muster_reduction reduction, uint32_t root);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_gather(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_tensor *output);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_to_all(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_tensor *output);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_barrier(
    struct muster_strategy_split *split);

MUSTER_END

#endif
