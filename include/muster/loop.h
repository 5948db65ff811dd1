/* The event loop: time, timers, posted tasks, descriptor readiness. Everything else hangs on it,
 * and whatever belongs to a loop is touched by the thread that turns it alone, unless said
 * otherwise. */
#ifndef MUSTER_LOOP_H
#define MUSTER_LOOP_H

#include <muster/base.h>
#include <muster/list.h>
#include <muster/mem.h>
#include <muster/status.h>

struct event_base;

MUSTER_BEGIN

struct muster_loop;
struct muster_timer;
struct muster_task;
struct muster_fd_watch;
struct muster_poller; /* poller.h */

typedef void muster_timer_fn(struct muster_timer *timer);
typedef void muster_task_fn(struct muster_task *task);
typedef void muster_fd_fn(struct muster_fd_watch *watch, unsigned ready);

/** Fires once at due_ns. Caller's memory; init once, then start and stop at will. */
struct muster_timer {
    void *data;
    muster_timer_fn *on_expire;
    uint64_t due_ns;
    /* private */
    struct muster_loop *loop; /* NULL while stopped */
    uint64_t start_order;
    struct muster_timer *child, *next, *prev; /* pairing heap */
};

/** Runs once in the next turn. Caller's memory. */
struct muster_task {
    void *data;
    muster_task_fn *on_run;
    /* private */
    struct muster_list node;
};

#define MUSTER_FD_READ  1u
#define MUSTER_FD_WRITE 2u

/** Level-triggered readiness of one descriptor. Caller's memory. Real loops only. */
struct muster_fd_watch {
    void *data;
    muster_fd_fn *on_ready;
    int fd;
    unsigned wanted; /* MUSTER_FD_READ | MUSTER_FD_WRITE; 0 = watched for nothing */
    /* private */
    struct muster_loop *loop;
    void *impl;
};

/** Functions that a loop implementation provides (libevent or the simulated world). */
struct muster_loop_ops {
    uint64_t (*now_ns)(const struct muster_loop *loop);
    void (*timer_start)(struct muster_loop *loop, struct muster_timer *timer);
    void (*timer_stop)(struct muster_loop *loop, struct muster_timer *timer);
    void (*task_post)(struct muster_loop *loop, struct muster_task *task);
    enum muster_rc (*fd_open)(struct muster_loop *loop, struct muster_fd_watch *watch);
    void (*fd_update)(struct muster_loop *loop, struct muster_fd_watch *watch, unsigned wanted);
    void (*fd_close)(struct muster_loop *loop, struct muster_fd_watch *watch);
    void (*stay_awake)(struct muster_loop *loop, uint64_t for_ns); /* NULL: it never sleeps */
    /* NULL: it does not poll; its world tells of every change */
    void (*poller_start)(struct muster_loop *loop, struct muster_poller *poller);
    void (*set_crowd)(struct muster_loop *loop, uint32_t count);
    bool (*is_crowded)(const struct muster_loop *loop);
    uint64_t (*clock_ns)(const struct muster_loop *loop); /* NULL: time is what now_ns says */
};

/** Embed as the first field of an implementation. */
struct muster_loop {
    const struct muster_loop_ops *ops;
};

/** Monotonic loop time. Within a turn it is read at the start and again when the poll returns,
 * and all callbacks between see the same value; outside a turn it is the clock itself. */
MUSTER_API uint64_t muster_loop_now_ns(const struct muster_loop *loop);

/** The clock of loop time itself, also within a turn: to measure what a turn does, not to decide
 * anything. */
MUSTER_API uint64_t muster_loop_clock_ns(const struct muster_loop *loop);

/** loop time + delay, saturating. */
MUSTER_API uint64_t muster_loop_after_ns(const struct muster_loop *loop, uint64_t delay_ns);

MUSTER_API void muster_timer_init(struct muster_timer *timer, muster_timer_fn *on_expire,
                                  void *data);

/** Start, or move a started timer, to the absolute loop time due_ns (a past time fires next turn).
 *  Cannot fail, allocates nothing. Timers due at the same time fire in start order. */
MUSTER_API void muster_timer_start(struct muster_timer *timer, struct muster_loop *loop,
                                   uint64_t due_ns);

/** Idempotent; on_expire will not run. */
MUSTER_API void muster_timer_stop(struct muster_timer *timer);

MUSTER_API bool muster_timer_is_started(const struct muster_timer *timer);

MUSTER_API void muster_task_init(struct muster_task *task, muster_task_fn *on_run, void *data);

/** Run the task in the next turn; a no-op when it is posted already. Loop thread only (other
 *  threads use muster_wake). Cannot fail, allocates nothing. */
MUSTER_API void muster_task_post(struct muster_task *task, struct muster_loop *loop);

/** Idempotent; on_run will not run. */
MUSTER_API void muster_task_cancel(struct muster_task *task);

MUSTER_API bool muster_task_is_posted(const struct muster_task *task);

/** Begin to watch watch->fd for watch->wanted. Borrows watch until close.
 *  Errors: RESOURCE_EXHAUSTED; UNIMPLEMENTED in the simulated world. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_fd_watch_open(struct muster_fd_watch *watch,
                                                                 struct muster_loop *loop);
/** Watch it for something else. What the system has no room for is asked for again until it has. */
MUSTER_API void muster_fd_watch_update(struct muster_fd_watch *watch, unsigned wanted);
/** Synchronous; does not close the descriptor. Idempotent. */
MUSTER_API void muster_fd_watch_close(struct muster_fd_watch *watch);

/* The libevent loop. */

/** A loop of its own (base NULL), or one that joins the caller's event_base (then the caller
 * turns the base and muster's work runs inside). Ignores SIGPIPE for the process. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_loop_open(struct muster_mem *mem,
                                                             struct event_base *base,
                                                             struct muster_loop **ret_loop);

/** Nothing may be started on the loop any more. NULL is accepted. */
MUSTER_API void muster_loop_close(struct muster_loop *loop);

/** One turn: read the clock, expire timers, run the tasks posted before this turn, poll for at
 * most wait_ns (0: do not wait; UINT64_MAX: until something happens). A turn that ran a timer
 * or a task does not wait (and may leave the poll to the next turn), so that its caller can
 * look at what changed. Where the poll tells of many descriptors, tasks that their callbacks have
 * posted run between them, too. */
MUSTER_API void muster_loop_turn(struct muster_loop *loop, uint64_t wait_ns);

/** Run the few turns in which links and their streams are freed after the close of a params client, a publication or a
 * reader has called back, or after a server has failed to open: call it then, before the environment is closed. It does
 * not wait. */
MUSTER_API void muster_loop_turn_closing(struct muster_loop *loop);

/** Turn until muster_loop_stop is called. */
MUSTER_API void muster_loop_run(struct muster_loop *loop);

/** Make muster_loop_run return after the current turn. Loop thread only. */
MUSTER_API void muster_loop_stop(struct muster_loop *loop);

/** For embedding in another loop: a descriptor that becomes readable when a turn is needed, and
 * the time of the next timer (0: at once, UINT64_MAX: none). Call muster_loop_turn(loop, 0)
 * when either is due. The descriptor is the loop's; -1 when the system has none left. */
MUSTER_API int muster_loop_fd(struct muster_loop *loop);
MUSTER_API uint64_t muster_loop_next_due_ns(const struct muster_loop *loop);
/** The same as poll, epoll_wait and their like take it: milliseconds from now, rounded up; 0: at
 * once, -1: no timer. */
MUSTER_API int muster_loop_wait_ms(const struct muster_loop *loop);

/** Something is expected within microseconds: for so long from now, a turn that would sleep
 * looks again and again (yielding the processor), because to fall asleep and be woken would
 * take longer. Of several calls the latest time counts. A hint: loops that do not sleep, joined
 * ones and those in the background ignore it. */
MUSTER_API void muster_loop_stay_awake(struct muster_loop *loop, uint64_t for_ns);

/** While true nobody waits for what the loop does, so it never stays awake: its thread would
 * take time from those that compute. A loop of its own only. */
MUSTER_API void muster_loop_set_background(struct muster_loop *loop, bool is_background);

/* Waking the loop from another thread. */

struct muster_wake;
typedef void muster_wake_fn(struct muster_wake *wake);

/** Gives. on_wake runs on the loop once or more after each muster_wake_signal (signals
 * coalesce). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_wake_open(struct muster_mem *mem,
                                                             struct muster_loop *loop,
                                                             muster_wake_fn *on_wake, void *data,
                                                             struct muster_wake **ret_wake);
MUSTER_API void *muster_wake_data(const struct muster_wake *wake);
/** Any thread, any time until close; also from a signal handler. */
MUSTER_API void muster_wake_signal(struct muster_wake *wake);
MUSTER_API void muster_wake_close(struct muster_wake *wake);

/* Pollers: a loop that looks at memory which others write. */

/** True when something moved. Runs thousands of times between two polls of the descriptors: no
 * system calls. */
typedef bool muster_poll_fn(struct muster_poller *poller);

/** Memory that others write and no descriptor tells of (slots shared with other processes). Caller's
 * memory, zero before the first start. */
struct muster_poller {
    void *data;
    muster_poll_fn *on_poll;
    /* May be NULL. The loop is about to sleep (true: say so where the writers look; on_poll is asked
     * once more before it sleeps), or has woken (false). */
    void (*on_sleep)(struct muster_poller *poller, bool is_asleep);
    /* private */
    struct muster_loop *loop; /* NULL while stopped */
    struct muster_list node;
};

/** Look at poller in every turn from now on; a turn that would sleep looks again and again for a
 * while, then sleeps for 0.2 ms at most. Only while something is expected: such a loop never rests.
 * A no-op when it is started. Simulated loops do not poll: their worlds tell of every change. */
MUSTER_API void muster_poller_start(struct muster_poller *poller, struct muster_loop *loop);
/** Idempotent. Inside an on_poll only if that returns true then; a poller's memory outlives its
 * on_poll. */
MUSTER_API void muster_poller_stop(struct muster_poller *poller);
MUSTER_API bool muster_poller_is_started(const struct muster_poller *poller);

/** So many processes of this host wait for each other. With fewer processors than these a loop that
 * polls lets others run after a few looks. 0 or 1: none do. A hint. */
MUSTER_API void muster_loop_set_crowd(struct muster_loop *loop, uint32_t count);
/** More of them than processors, as set: whatever one does now it takes from the others. */
MUSTER_API bool muster_loop_is_crowded(const struct muster_loop *loop);

MUSTER_END

#endif
