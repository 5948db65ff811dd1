/* The parts of the real loop that are not for every user of loops: its base, and its sleep. */
#ifndef MUSTER_RUNTIME_LOOP_LIBEVENT_H
#define MUSTER_RUNTIME_LOOP_LIBEVENT_H

#include <muster/loop.h>

/** The loop's base, for libevent's own servers (evhttp). Borrowed. A loop that was asked for it is
 * turned at least every 10 ms by an owner that embeds it by descriptor. */
struct event_base *muster_loop_event_base(struct muster_loop *loop);

/* A thread that waits beside the loop, while nobody turns it or another thread does. */

/** A descriptor that becomes readable when the loop has to be turned, for poll(2) in any thread. Unlike that of
 * muster_loop_fd it is the one by which a turn sleeps: it costs nothing while the loop is turned. Borrowed until
 * close. -1: there is none (a joined base, or libevent does not use epoll). */
int muster_loop_descriptor(struct muster_loop *loop);
/** Let that descriptor become readable for the next timer and for tasks, too: call it before the loop is left. Returns
 * false when it would not tell of all (pollers are started, or libevent's own servers run). */
bool muster_loop_arm(struct muster_loop *loop);
/** Tasks wait, or timers are due. */
bool muster_loop_has_work(const struct muster_loop *loop);

#endif
