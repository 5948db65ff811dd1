/* The thread for device calls that may block: requests go in through a bounded ring, answers come
 * back on the loop. A call that never returns costs a thread, not the program. */
#ifndef MUSTER_COLLECTIVE_GPU_CONTROL_H
#define MUSTER_COLLECTIVE_GPU_CONTROL_H

#include <muster/env.h>
#include <muster/list.h>
#include <muster/loop.h>

struct muster_gpu_control;
struct muster_gpu_request;

typedef void muster_gpu_request_fn(struct muster_gpu_request *request);

enum muster_gpu_request_state {
    MUSTER_GPU_REQUEST_IDLE,
    MUSTER_GPU_REQUEST_STARTED,
    MUSTER_GPU_REQUEST_LATE, /* on_late has run; the work may still be done */
};

/** Caller's memory, borrowed from start to on_answer; also after on_late. */
struct muster_gpu_request {
    void *data;
    muster_gpu_request_fn *work; /* on a thread of the control's; touches nothing of the loop */
    muster_gpu_request_fn *on_answer; /* on the loop: the work is done. Once */
    muster_gpu_request_fn *on_late; /* on the loop: it is not done in time. At most once, before */
    enum muster_gpu_request_state state;
    bool is_skipped; /* in on_answer: it was late before it had begun, and its work is left out */
    /* private */
    struct muster_gpu_control *control;
    struct muster_timer timer;
    struct muster_list node; /* finished; the control's mutex */
    void *worker;            /* that works on it; the control's mutex */
    bool is_begun;           /* the control's mutex */
};

#define MUSTER_GPU_RING_COUNT 64u

/** on_thread(data) begins each thread. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_control_open(struct muster_env *env,
                                                         void (*on_thread)(void *data), void *data,
                                                         struct muster_gpu_control **ret_control);

/** In turn, on the control thread. RESOURCE_EXHAUSTED: the ring is full. When a request is late,
 * the thread that works on it is left to itself and another one takes over the ring. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_control_start(struct muster_gpu_control *control,
                                                          struct muster_gpu_request *request,
                                                          uint64_t timeout_ns);
/** At once, on a thread of its own: requests that must all begin before any of them can end.
 * RESOURCE_EXHAUSTED: no thread. */
MUSTER_MUST_CHECK enum muster_rc muster_gpu_control_start_apart(struct muster_gpu_control *control,
                                                                struct muster_gpu_request *request,
                                                                uint64_t timeout_ns);

/** Threads that were left to themselves and have not come back. */
uint32_t muster_gpu_control_stuck_count(const struct muster_gpu_control *control);
/** No request may be open but late ones, whose answers never come then. Threads that are stuck keep
 * the memory that they use. NULL is accepted. */
void muster_gpu_control_close(struct muster_gpu_control *control);

#endif
