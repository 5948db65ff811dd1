/* Asynchronous operations of a strategy: a request is started, and ends while the program computes. */
#ifndef MUSTER_STRATEGY_REQUEST_H
#define MUSTER_STRATEGY_REQUEST_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

struct muster_request;

/** Called in the thread of the program, from within muster_request_wait or muster_strategy_poll (or close), outside of
 * the library's locks. The request is the program's again: it may be started anew, or freed. */
typedef void muster_request_fn(struct muster_request *request, enum muster_rc rc);

/** The blocking call of the same name says what each does. */
enum muster_request_kind {
    MUSTER_REQUEST_ALL_REDUCE,
    MUSTER_REQUEST_ALL_REDUCE_WEIGHTED,
    MUSTER_REQUEST_BROADCAST,
    MUSTER_REQUEST_REDUCE,
    MUSTER_REQUEST_BARRIER,
    MUSTER_REQUEST_ALL_GATHER,
    MUSTER_REQUEST_ALL_TO_ALL,
    MUSTER_REQUEST_REDUCE_SCATTER,
    MUSTER_REQUEST_GATHER,
    MUSTER_REQUEST_SCATTER,
    MUSTER_REQUEST_ALL_GATHER_UNEVEN,
    MUSTER_REQUEST_REDUCE_SCATTER_UNEVEN,
    MUSTER_REQUEST_ALL_TO_ALL_UNEVEN,
    MUSTER_REQUEST_SEND,
    MUSTER_REQUEST_RECEIVE,
};

/** One operation. All zero before its first use; borrowed from start until it has been completed. */
struct muster_request {
    void *data;
    /* set before start; what the kind does not have is not looked at */
    enum muster_request_kind kind;
    struct muster_strategy_split *split; /* NULL: all members */
    /* Structs and counts are read during start only; the tensors' memory is borrowed until it has ended. */
    const struct muster_tensor *input, *output;            /* one that is both: output */
    size_t count;                                          /* all_reduce: tensors at output; 0: 1 */
    const struct muster_parts *input_parts, *output_parts; /* in their place, of the uneven kinds */
    enum muster_reduction reduction;
    uint64_t weight;
    uint32_t rank;           /* the root, or the other member of a message */
    uint64_t timeout_ns;     /* from start; 0: the strategy's */
    muster_request_fn *done; /* or NULL */
    /* valid when it has been completed */
    struct muster_error error;
    struct muster_op_result
        result; /* of its last tensor; an interruption of any is one of the request */
    /* private */
    void *impl; /* NULL: the program's */
    struct muster_list node;
    bool is_under_way; /* atomic */
};

/**
 * Start the operation, in a step. The library goes on with it on its own thread while the program computes, and
 * within the program's calls. It is completed, once, by muster_request_wait or muster_strategy_poll, in the program's
 * thread.
 *
 * Members may call one operation by a request and in the blocking form: all_reduce, too, but where the blocking call
 * travels in packs (bytes_per_pack), which a request does not. Up to 1,024 may be open.
 *
 * commit is refused while a request of the step has not been completed. begin waits for the end of those that are
 * open, and each is completed afterwards as it ended.
 *
 * Tensors in device memory are copied to the host's after what the program's stream holds now, which start does not
 * wait for, and what the operation has written is copied back. The requests and calls after it begin when its own
 * operation has: in the same order on all members. Memory that cannot be pinned makes start wait for the stream. A
 * blocking call of the same operation goes through NCCL, unless communication is RING: all members take the same form.
 *
 * Owns:    borrows request until it has been completed, and the memory of its tensors until it has ended
 *          (muster_request_has_ended); of tensors in device memory until it has been completed.
 * Errors:  returned, and nothing has happened then: those of the blocking call that this member finds out by itself;
 *          FAILED_PRECONDITION (the request is open), RESOURCE_EXHAUSTED, UNAVAILABLE (the device has failed).
 *          By the completion: the others, and CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_request_start(struct muster_request *request,
                                                                 struct muster_strategy *strategy);

/** Whether it has ended, or is not open: wait does not wait then. A load; for the thread that may wait for it. */
MUSTER_API bool muster_request_has_ended(const struct muster_request *request);

/** Wait until it has ended, and complete it and what else has ended: the callbacks run in here. Returns how it ended;
 * at once, if it is not open. The interrupt of the strategy works as in every call that waits. FAILED_PRECONDITION
 * (another thread is in a call): it is still open. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_request_wait(struct muster_request *request);

/** Complete all that have ended, in the order of their ends, without waiting. *ret_count, which may be NULL: how many
 * are still open. FAILED_PRECONDITION (another thread is in a call). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_poll(struct muster_strategy *strategy,
                                                                 size_t *ret_count);

/** The operation ends with CANCELLED here, unless it was delivered before, and with ABORTED on the others: begin says
 * how to go on. It still has to be completed. One that is not open is accepted; refused, as any call is, while another
 * thread is in one. */
MUSTER_API void muster_request_cancel(struct muster_request *request);

MUSTER_END

#endif
