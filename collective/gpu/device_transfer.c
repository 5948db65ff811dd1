/* Transfers: each puts its copies on a stream, and after them an event and a host function, which wakes the loop. The
 * driver may lose the latter, and does not call it when the device fails: a slow timer looks at the events. */
#include "collective/gpu/device_transfer.h"

#include "collective/gpu/device_memory_internal.h"
#include "collective/gpu/slot.h"

#define SLOW_NS (20 * MUSTER_NS_PER_MS)

bool muster_device_pin(struct muster_device_memory *memory, void *host, size_t bytes)
{
    struct muster_error error;
    void *before = muster_cuda_enter(memory->cuda);
    enum muster_rc rc = muster_cuda_host_pin(memory->cuda, host, bytes, &error);

    muster_cuda_leave(memory->cuda, before);
    if (rc != MUSTER_OK)
        MUSTER_LOG(memory->env, WARN, "memory_not_pinned", "bytes", (uint64_t)bytes, "reason",
                   error.text);
    return rc == MUSTER_OK;
}

void muster_device_unpin(struct muster_device_memory *memory, void *host)
{
    void *before = muster_cuda_enter(memory->cuda);

    muster_cuda_host_unpin(memory->cuda, host);
    muster_cuda_leave(memory->cuda, before);
}

/* --- Ends --- */

static void transfer_release(struct muster_device_transfer *transfer,
                             struct muster_device_memory *memory)
{
    void *before = muster_cuda_enter(memory->cuda);

    muster_list_remove(&transfer->node);
    muster_cuda_event_free(memory->cuda, transfer->event);
    muster_cuda_leave(memory->cuda, before);
    muster_gpu_slot_drop(transfer->slot, true);
    transfer->event = NULL;
    transfer->slot = NULL;
}

static void transfer_end(struct muster_device_transfer *transfer,
                         struct muster_device_memory *memory, enum muster_rc rc)
{
    transfer_release(transfer, memory);
    transfer->done(transfer, rc == MUSTER_OK ? transfer->rc : rc);
}

static struct muster_device_transfer *first_of(struct muster_list *list)
{
    return MUSTER_CONTAINER_OF(list->next, struct muster_device_transfer, node);
}

static void end_all(struct muster_device_memory *memory, enum muster_rc rc)
{
    while (!muster_list_is_empty(&memory->transfers))
        transfer_end(first_of(&memory->transfers), memory, rc);
}

static bool has_fired(const struct muster_device_transfer *transfer)
{
    return transfer->slot != NULL && muster_gpu_slot_has_fired(transfer->slot);
}

/* Each done may start others and end others: the search begins anew after it. */
static struct muster_device_transfer *find_fired(struct muster_device_memory *memory)
{
    MUSTER_LIST_EACH (&memory->transfers, transfer, struct muster_device_transfer, node)
        if (has_fired(transfer))
            return transfer;
    return NULL;
}

static void on_wake(struct muster_wake *wake)
{
    struct muster_device_memory *memory = muster_wake_data(wake);
    struct muster_device_transfer *transfer;

    while ((transfer = find_fired(memory)) != NULL)
        transfer_end(transfer, memory, MUSTER_OK);
}

static void start_slow(struct muster_device_memory *memory)
{
    if (!muster_timer_is_started(&memory->slow))
        muster_timer_start(&memory->slow, memory->env->loop,
                           muster_loop_after_ns(memory->env->loop, SLOW_NS));
}

static enum muster_rc transfer_look(struct muster_device_transfer *transfer,
                                    struct muster_device_memory *memory, bool *ret_is_done)
{
    struct muster_error error;
    enum muster_rc rc = muster_device_look(
        memory, transfer->event, transfer->is_out ? memory->out : memory->in, ret_is_done, &error);

    if (rc != MUSTER_OK)
        return muster_device_memory_fail(memory, &error);
    return *ret_is_done ? MUSTER_OK : muster_device_stall_look(&transfer->stall, memory);
}

/* One whose callback is lost ends by its event. After an error nothing ends any more, and none can start. */
static void on_slow(struct muster_timer *timer)
{
    struct muster_device_memory *memory = timer->data;
    struct muster_device_transfer *lost = NULL;
    enum muster_rc rc = MUSTER_OK;

    MUSTER_LIST_EACH (&memory->transfers, transfer, struct muster_device_transfer, node) {
        bool is_done = false;

        rc = transfer_look(transfer, memory, &is_done);
        if (rc != MUSTER_OK)
            break;
        if (is_done && lost == NULL && !has_fired(transfer))
            lost = transfer;
    }
    if (rc != MUSTER_OK) {
        end_all(memory, rc);
        return;
    }
    if (lost != NULL)
        transfer_release(lost, memory);
    if (!muster_list_is_empty(&memory->transfers))
        start_slow(memory);
    if (lost != NULL)
        lost->done(lost, lost->rc);
}

/* --- Start --- */

static enum muster_rc transfers_open(struct muster_device_memory *memory,
                                     struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    if (memory->wake == NULL) {
        rc = muster_wake_open(memory->env->mem, memory->env->loop, on_wake, memory, &memory->wake);
        if (rc != MUSTER_OK)
            return muster_error_set(ret_error, rc, "no memory");
        muster_timer_init(&memory->slow, on_slow, memory);
    }
    if (memory->out == NULL)
        rc = muster_cuda_stream_new(memory->cuda, &memory->out, ret_error);
    if (rc == MUSTER_OK && memory->in == NULL)
        rc = muster_cuda_stream_new(memory->cuda, &memory->in, ret_error);
    return rc;
}

/* The same event first stands after what the program's stream holds. */
static enum muster_rc order_behind(const struct muster_device_transfer *transfer,
                                   const struct muster_device_memory *memory, void *stream,
                                   struct muster_error *ret_error)
{
    enum muster_rc rc = muster_cuda_event_record(memory->cuda, transfer->event, stream, ret_error);

    return rc == MUSTER_OK
               ? muster_cuda_stream_wait(memory->cuda, memory->out, transfer->event, ret_error)
               : rc;
}

static enum muster_rc copies_issue(struct muster_device_transfer *transfer,
                                   const struct muster_device_memory *memory,
                                   const struct muster_device_copy *copies, size_t count,
                                   struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < count && rc == MUSTER_OK; i++) {
        rc = transfer->is_out ? muster_cuda_copy_out(memory->cuda, copies[i].host, copies[i].device,
                                                     copies[i].bytes, memory->out, ret_error)
                              : muster_cuda_copy_in(memory->cuda, copies[i].device, copies[i].host,
                                                    copies[i].bytes, memory->in, ret_error);
        transfer->is_issued = transfer->is_issued || rc == MUSTER_OK;
    }
    return rc;
}

/* Without a slot, of which there are so many in a process, the slow timer sees the end. */
static enum muster_rc callback_issue(struct muster_device_transfer *transfer,
                                     const struct muster_device_memory *memory,
                                     struct muster_cuda_stream *own, struct muster_error *ret_error)
{
    enum muster_rc rc;

    transfer->slot = muster_gpu_slot_take(memory->wake);
    if (transfer->slot == NULL)
        return MUSTER_OK;
    rc =
        muster_cuda_launch_host(memory->cuda, own, muster_gpu_slot_fire, transfer->slot, ret_error);
    if (rc != MUSTER_OK) {
        muster_gpu_slot_drop(transfer->slot, false);
        transfer->slot = NULL;
    }
    return rc;
}

static void event_drop(struct muster_device_transfer *transfer,
                       const struct muster_device_memory *memory)
{
    muster_cuda_event_free(memory->cuda, transfer->event);
    transfer->event = NULL;
}

static enum muster_rc transfer_issue(struct muster_device_transfer *transfer,
                                     struct muster_device_memory *memory,
                                     const struct muster_device_copy *copies, size_t count,
                                     void *stream, struct muster_error *ret_error)
{
    struct muster_cuda_stream *own;
    enum muster_rc rc = transfers_open(memory, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_cuda_event_new(memory->cuda, &transfer->event, ret_error);
    if (rc == MUSTER_OK && transfer->is_out)
        rc = order_behind(transfer, memory, stream, ret_error);
    if (rc == MUSTER_OK)
        rc = copies_issue(transfer, memory, copies, count, ret_error);
    own = transfer->is_out ? memory->out : memory->in;
    if (rc == MUSTER_OK)
        rc = muster_cuda_event_record(memory->cuda, transfer->event, own, ret_error);
    if (rc != MUSTER_OK) { /* it may stand before the copies: the stream itself is asked */
        event_drop(transfer, memory);
        return rc;
    }
    transfer->is_issued = true; /* the event, also where there is nothing to copy */
    return callback_issue(transfer, memory, own, ret_error);
}

/* Copies that were issued before a failure may still write to the memory: the transfer ends when they have. */
enum muster_rc muster_device_transfer_start(struct muster_device_transfer *transfer,
                                            struct muster_device_memory *memory,
                                            const struct muster_device_copy *copies, size_t count,
                                            bool is_out, void *stream,
                                            muster_device_transfer_fn *done)
{
    struct muster_error error = {.rc = MUSTER_OK};
    void *before;

    if (muster_device_memory_has_failed(memory, &error))
        return MUSTER_UNAVAILABLE;
    *transfer =
        (struct muster_device_transfer){.data = transfer->data, .done = done, .is_out = is_out};
    before = muster_cuda_enter(memory->cuda);
    transfer->rc = transfer_issue(transfer, memory, copies, count, stream, &error);
    muster_cuda_leave(memory->cuda, before);
    if (transfer->rc == MUSTER_RESOURCE_EXHAUSTED && !transfer->is_issued)
        return transfer->rc;
    if (transfer->rc != MUSTER_OK)
        transfer->rc = muster_device_memory_fail(memory, &error);
    if (transfer->rc != MUSTER_OK && !transfer->is_issued)
        return transfer->rc;
    muster_device_stall_begin(&transfer->stall, memory, "a request");
    muster_list_append(&memory->transfers, &transfer->node);
    start_slow(memory);
    return MUSTER_OK;
}

/* --- Ends of all --- */

bool muster_device_transfers_are_over(const struct muster_device_memory *memory)
{
    return muster_list_is_empty(&memory->transfers);
}

void muster_device_transfers_close(struct muster_device_memory *memory)
{
    MUSTER_ASSERT(muster_list_is_empty(&memory->transfers));
    if (memory->wake == NULL)
        return;
    muster_timer_stop(&memory->slow);
    muster_wake_close(memory->wake);
    if (muster_device_memory_hangs(memory))
        return;
    muster_cuda_stream_free(memory->cuda, memory->out);
    muster_cuda_stream_free(memory->cuda, memory->in);
}
