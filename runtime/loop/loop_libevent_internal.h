/* The parts of the real loop: loop_libevent*.c only. */
#ifndef MUSTER_RUNTIME_LOOP_LIBEVENT_INTERNAL_H
#define MUSTER_RUNTIME_LOOP_LIBEVENT_INTERNAL_H

#include "runtime/loop/loop_libevent.h"

#include <event2/event_struct.h>

#include "runtime/loop/loop_poll.h"
#include "runtime/loop/timer_queue.h"

struct libevent_loop {
    struct muster_loop loop;
    struct muster_mem *mem;
    struct event_base *base;
    bool is_joined; /* the base is the caller's: `tick` brings the loop its turns */
    bool is_in_turn;
    bool is_stopped;
    bool is_clock_stale; /* the poll may have slept: read the clock when it is asked for */
    bool has_foreign_events;
    uint64_t now_ns;
    uint64_t awake_until_ns;  /* before it a turn polls instead of sleeping, unless it is parked */
    uint64_t parked_until_ns; /* before it a turn sleeps: another thread wants the processor */
    uint64_t parked_ns;       /* the length of the last park, for the backoff */
    bool is_background;
    uint32_t event_count; /* of descriptors, in this poll; since tasks were run amid them */
    bool has_moved; /* an event of ours has come since this flag was cleared */
    bool has_skipped_poll;
    /* The last turn ended because something moved in memory: this one belongs to it. */
    bool is_second;
    bool was_second; /* never twice in a row: timers */
    struct event tick;
    uint64_t tick_due_ns; /* UINT64_MAX: not armed */
    int tick_fd; /* timerfd of a base of our own: libevent would set one before every poll; -1:
                    joined */
    struct muster_loop_poll poll;
    struct muster_timer_queue timers;
    struct muster_list tasks;
    struct muster_list watches;
    struct muster_timer refused_again; /* tries refused watches again */
    int mirror_fd; /* epoll over duplicates of all watched descriptors, made by muster_loop_fd; -1:
                      none */
};

static inline struct libevent_loop *ours_of(const struct muster_loop *loop)
{
    return (struct libevent_loop *)(uintptr_t)loop;
}

/* loop_libevent_work.c */
uint64_t muster_loop_libevent_clock_ns(void);
/** The time at which the loop next has work: 0 with tasks waiting, UINT64_MAX for never. */
uint64_t muster_loop_libevent_due_ns(const struct libevent_loop *ours);
/** Set the tick so that the poll ends at due_ns at the latest. */
void muster_loop_libevent_arm(struct libevent_loop *ours, uint64_t due_ns, uint64_t now_ns);
/** Move the tick of a joined base forward if there is earlier work now: its owner may poll at any
 * time. */
void muster_loop_libevent_rearm(struct libevent_loop *ours);
/** Tasks that are posted, but for those that they post. Returns whether there were any. */
bool muster_loop_libevent_tasks(struct libevent_loop *ours);
/** Timers that are due, and tasks posted before this turn. Returns whether there were any. */
bool muster_loop_libevent_work(struct libevent_loop *ours);

/* loop_libevent_fd.c */
enum muster_rc muster_loop_libevent_fd_open(struct muster_loop *loop,
                                            struct muster_fd_watch *watch);
void muster_loop_libevent_fd_update(struct muster_loop *loop, struct muster_fd_watch *watch,
                                    unsigned wanted);
void muster_loop_libevent_on_refused_again(struct muster_timer *timer);
void muster_loop_libevent_fd_close(struct muster_loop *loop, struct muster_fd_watch *watch);
/** An epoll and a pair of descriptors, as a base opens them, could be opened just now: libevent ends the
 * process when it cannot make the pair. */
bool muster_loop_libevent_has_descriptors(void);

#endif
