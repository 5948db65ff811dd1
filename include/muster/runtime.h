/* A loop that goes on while the program computes: a keeper thread drives it whenever the program is
 * elsewhere. */
#ifndef MUSTER_RUNTIME_H
#define MUSTER_RUNTIME_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/loop.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_runtime;

struct muster_runtime_options {
    struct muster_env
        *env;         /* borrowed until close; its loop is a real one of its own (not joined) */
    uint64_t tick_ns; /* the keeper takes the seat after 1 to 2 ticks without use; 0: 0.5 ms */
};

/**
 * Start the keeper. From now on env, its loop and everything on it may be touched only by loop
 * callbacks, or between enter and leave. The keeper and the calling thread ask the kernel for short
 * time slices (Linux 6.12): woken, they take the processor from threads that compute; their share of
 * it stays the same, and threads and processes that are made later have usual slices.
 *
 * Owns:    gives. Borrows options->env.
 * Errors:  RESOURCE_EXHAUSTED, INVALID_ARGUMENT (no env).
 * Thread:  the thread that calls this, or one at a time that takes its part, is "the program".
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_runtime_open(
    const struct muster_runtime_options *options, struct muster_runtime **ret_runtime);

/** Stop the keeper; afterwards env belongs to the caller alone. Program tasks still queued are
 * dropped. Not between enter and leave. In a fork of the process that opened it nothing happens, and its
 * memory stays. NULL is accepted. */
MUSTER_API void muster_runtime_close(struct muster_runtime *runtime);

MUSTER_API struct muster_env *muster_runtime_env(const struct muster_runtime *runtime);

/**
 * Take the driver's seat: the caller may start, cancel and look at everything until leave. Runs
 * waiting program tasks. Nests. Costs a few ns when the seat stayed with the program, a thread hop
 * when the keeper has it.
 *
 * Errors:  FAILED_PRECONDITION: another thread is between its enter and leave, or this process is a
 *          fork of the one that opened the runtime. Nothing has happened then, and nothing may be
 *          touched.
 * Thread:  the program; never from a loop callback.
 */
MUSTER_API enum muster_rc muster_runtime_enter(struct muster_runtime *runtime);
/** The same, with the caller's name for errors (static text), which name both threads and both calls. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_runtime_enter_as(struct muster_runtime *runtime,
                                                                    const char *call,
                                                                    struct muster_error *ret_error);
/** Whether enter would be refused now, without taking the seat. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_runtime_check(struct muster_runtime *runtime,
                                                                 const char *call,
                                                                 struct muster_error *ret_error);
/** Give the seat back. The keeper takes it when it stays unused for about a millisecond. Without effect
 * for a thread that is not in. */
MUSTER_API void muster_runtime_leave(struct muster_runtime *runtime);

/**
 * Drive the loop in the caller's thread until is_done(data); it is asked in the seat. NULL: until the
 * deadline. May be called between enter and leave and from a program task.
 *
 * Units:   deadline_ns is loop time, absolute; UINT64_MAX: none.
 * Errors:  DEADLINE_EXCEEDED; FAILED_PRECONDITION as enter.
 * Thread:  the program.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_runtime_wait(struct muster_runtime *runtime,
                                                                bool (*is_done)(void *data),
                                                                void *data, uint64_t deadline_ns);

/**
 * Run task on the program's thread, in the seat but outside loop turns: at its next enter or inside
 * wait. User callbacks go this way, since the keeper must not run them. A no-op when the task is
 * posted already; muster_task_cancel takes it back.
 *
 * Owns:    borrows task until it has begun to run.
 * Thread:  in the seat (loop callbacks included).
 */
MUSTER_API void muster_runtime_post_program(struct muster_runtime *runtime,
                                            struct muster_task *task);

MUSTER_END

#endif
