/* Calls to a server that is alone which wait for a clock, or for a round. A call is kept as its message, and handled
 * from its beginning when what it waits for has come: what has changed meanwhile is checked again. */
#include <inttypes.h>
#include <string.h>

#include <muster/proto.h>

#include "params/server/services/agents.h"
#include "params/server/services/params_service.h"
#include "params/server/state/clock.h"
#include "params/server/state/round.h"

struct call_wait {
    struct muster_params_clock_call call;
    struct muster_params_server *server;
    struct muster_rpc *rpc;
    struct muster_params_awaited awaited;
    muster_params_call_fn *handle;
    const ProtobufCMessageDescriptor *descriptor;
    struct muster_timer deadline;
    size_t bytes;
    uint8_t packed[];
};

bool muster_params_awaited_has_come(const struct muster_params_server *server,
                                    const struct muster_params_awaited *awaited)
{
    if (awaited->table == NULL)
        return muster_params_rounds_allow_tick_of(server, awaited->source, awaited->clock);
    if (awaited->table->is_by_round)
        return muster_params_rounds_open_of(server, awaited->table) >= awaited->clock;
    return muster_params_server_clock_has_come(server, awaited->clock);
}

static void source_show(struct call_wait *wait, bool is_waiting)
{
    if (wait->awaited.source != NULL)
        muster_params_server_clock_link(wait->server, wait->awaited.slot, is_waiting);
}

static void wait_free(struct call_wait *wait)
{
    source_show(wait, false);
    muster_timer_stop(&wait->deadline);
    muster_list_remove(&wait->call.node);
    muster_mem_free(&wait->server->pool.mem, wait);
}

static void wait_fail(struct call_wait *wait, enum muster_rc rc, const char *text)
{
    struct muster_rpc *rpc = wait->rpc;

    muster_rpc_set_data(rpc, NULL);
    wait_free(wait);
    muster_rpc_finish(rpc, rc, text);
}

static void wait_end(struct call_wait *wait)
{
    struct muster_params_server *server = wait->server;
    struct muster_rpc *rpc = wait->rpc;
    muster_params_call_fn *handle = wait->handle;
    struct muster_error error;
    void *message;
    enum muster_rc rc = muster_proto_unpack(server->env->mem, wait->descriptor, wait->packed,
                                            wait->bytes, NULL, &message, &error);

    muster_rpc_set_data(rpc, NULL);
    wait_free(wait);
    if (rc != MUSTER_OK) {
        muster_rpc_finish(rpc, rc, error.text);
        return;
    }
    handle(rpc, message);
    muster_proto_free(message);
}

static void on_review(struct muster_params_clock_call *call)
{
    struct call_wait *wait = MUSTER_CONTAINER_OF(call, struct call_wait, call);

    if (muster_params_awaited_has_come(wait->server, &wait->awaited))
        wait_end(wait);
}

static void on_deadline(struct muster_timer *timer)
{
    struct call_wait *wait = timer->data;
    const struct muster_params_awaited *awaited = &wait->awaited;
    char why[MUSTER_PARAMS_WAIT_TEXT_BYTES] = "";
    struct muster_error error;

    if (awaited->table == NULL) {
        muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED,
                         "round %" PRIu64 " of a table to which the source has pushed is not closed",
                         awaited->clock - 2);
    } else if (awaited->table->is_by_round) {
        muster_params_rounds_text(wait->server, awaited->table, why);
        muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED,
                         "round %" PRIu64 " of table %s is open, the call waits for %" PRIu64
                         ": %.120s",
                         muster_params_rounds_open_of(wait->server, awaited->table),
                         awaited->table->name, awaited->clock, why);
    } else {
        muster_params_server_clock_text(wait->server, awaited->clock, why);
        muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED, "%s", why);
    }
    wait_fail(wait, error.rc, error.text);
}

void muster_params_call_await(struct muster_rpc *rpc, const void *message,
                              const struct muster_params_awaited *awaited,
                              muster_params_call_fn *handle)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct muster_loop *loop = server->env->loop;
    const ProtobufCMessage *base = message;
    uint64_t own_ns = muster_rpc_deadline_ns(rpc);
    uint64_t most_ns = muster_loop_after_ns(loop, MUSTER_PARAMS_ERRAND_TIMEOUT_NS);
    size_t bytes = protobuf_c_message_get_packed_size(base);
    struct call_wait *wait = muster_mem_alloc(&server->pool.mem, sizeof(*wait) + bytes);

    if (wait == NULL || server->is_closing) {
        muster_mem_free(&server->pool.mem, wait);
        muster_rpc_finish(rpc, wait == NULL ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_UNAVAILABLE,
                          wait == NULL ? "no memory for the call" : "the server closes");
        return;
    }
    *wait = (struct call_wait){.call = {.review = on_review},
                               .server = server,
                               .rpc = rpc,
                               .awaited = *awaited,
                               .handle = handle,
                               .descriptor = base->descriptor,
                               .bytes = bytes};
    (void)protobuf_c_message_pack(base, wait->packed);
    muster_list_append(&server->clocks.calls, &wait->call.node);
    muster_timer_init(&wait->deadline, on_deadline, wait);
    muster_timer_start(&wait->deadline, loop, own_ns < most_ns ? own_ns : most_ns);
    muster_rpc_set_data(rpc, wait);
    source_show(wait, true);
}

void muster_params_call_wait_on_end(struct muster_rpc *rpc)
{
    struct call_wait *wait = muster_rpc_data(rpc);

    if (wait != NULL)
        wait_free(wait);
}

void muster_params_call_waits_close(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->clocks.calls, call, struct muster_params_clock_call, node)
        wait_fail(MUSTER_CONTAINER_OF(call, struct call_wait, call), MUSTER_UNAVAILABLE,
                  "the server closes");
}
