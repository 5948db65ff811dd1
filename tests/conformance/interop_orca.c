/* Load reports of the interop server. */
#include "interop_orca.h"

#include "proto/guard.h"
#include "tests/proto/orca_report.pb-c.h"
#include "tests/proto/orca_service.pb-c.h"

#define NAMES_MAX       16
#define INTERVAL_MIN_NS (100 * MUSTER_NS_PER_MS)
#define INTERVAL_NS     MUSTER_NS_PER_S /* where the client names none */

/* One StreamCoreMetrics; the call's data. */
struct reporter {
    struct muster_rpc *rpc;
    struct muster_timer timer;
    uint64_t interval_ns;
};

typedef Xds__Data__Orca__V3__OrcaLoadReport__RequestCostEntry cost_entry;
typedef Xds__Data__Orca__V3__OrcaLoadReport__UtilizationEntry utilization_entry;

enum muster_rc interop_orca_pack(struct muster_mem *mem,
                                 const Grpc__Testing__TestOrcaReport *wanted, void **ret_bytes,
                                 size_t *ret_size)
{
    Xds__Data__Orca__V3__OrcaLoadReport report;
    cost_entry costs[NAMES_MAX], *cost_refs[NAMES_MAX];
    utilization_entry uses[NAMES_MAX], *use_refs[NAMES_MAX];

    if (wanted->n_request_cost > NAMES_MAX || wanted->n_utilization > NAMES_MAX)
        return MUSTER_INVALID_ARGUMENT;
    xds__data__orca__v3__orca_load_report__init(&report);
    report.cpu_utilization = wanted->cpu_utilization;
    report.mem_utilization = wanted->memory_utilization;
    for (size_t i = 0; i < wanted->n_request_cost; i++) {
        xds__data__orca__v3__orca_load_report__request_cost_entry__init(&costs[i]);
        costs[i].key = wanted->request_cost[i]->key;
        costs[i].value = wanted->request_cost[i]->value;
        cost_refs[i] = &costs[i];
    }
    for (size_t i = 0; i < wanted->n_utilization; i++) {
        xds__data__orca__v3__orca_load_report__utilization_entry__init(&uses[i]);
        uses[i].key = wanted->utilization[i]->key;
        uses[i].value = wanted->utilization[i]->value;
        use_refs[i] = &uses[i];
    }
    report.n_request_cost = wanted->n_request_cost;
    report.request_cost = cost_refs;
    report.n_utilization = wanted->n_utilization;
    report.utilization = use_refs;
    return muster_proto_pack(mem, &report, ret_bytes, ret_size);
}

enum muster_rc interop_orca_set(struct interop_orca *orca,
                                const Grpc__Testing__TestOrcaReport *wanted)
{
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = interop_orca_pack(orca->env->mem, wanted, &bytes, &size);

    if (rc != MUSTER_OK)
        return rc;
    muster_mem_free(orca->env->mem, orca->bytes);
    orca->bytes = bytes;
    orca->size = size;
    return MUSTER_OK;
}

static void report_now(struct reporter *reporter)
{
    struct interop_orca *orca = muster_rpc_service(reporter->rpc);
    enum muster_rc rc = MUSTER_OK;

    if (muster_rpc_queued_bytes(reporter->rpc) == 0) /* a slow reader gets the next one */
        rc = muster_rpc_send(reporter->rpc, orca->bytes != NULL ? orca->bytes : "", orca->size);
    if (rc != MUSTER_OK) {
        muster_rpc_finish(reporter->rpc, rc, "report cannot be queued");
        return;
    }
    muster_timer_start(&reporter->timer, orca->env->loop,
                       muster_loop_after_ns(orca->env->loop, reporter->interval_ns));
}

static void on_due(struct muster_timer *timer)
{
    report_now(timer->data);
}

static uint64_t interval_of(const Xds__Service__Orca__V3__OrcaLoadReportRequest *request)
{
    const Xds__Service__Orca__V3__Duration *asked = request->report_interval;
    uint64_t interval_ns;

    if (asked == NULL || asked->seconds < 0 || asked->nanos < 0 || asked->seconds > INT32_MAX)
        return INTERVAL_NS;
    interval_ns = (uint64_t)asked->seconds * MUSTER_NS_PER_S + (uint64_t)asked->nanos;
    return interval_ns < INTERVAL_MIN_NS ? INTERVAL_MIN_NS : interval_ns;
}

static void on_stream(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    Xds__Service__Orca__V3__OrcaLoadReportRequest *request = NULL;
    struct reporter *reporter = NULL;
    struct muster_error error;

    if (muster_proto_unpack(mem, &xds__service__orca__v3__orca_load_report_request__descriptor,
                            bytes.data, bytes.size, NULL, &request, &error) != MUSTER_OK) {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, error.text);
        return;
    }
    reporter = muster_mem_alloc_zero(mem, 1, sizeof(*reporter));
    if (reporter == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    } else {
        reporter->rpc = rpc;
        reporter->interval_ns = interval_of(request);
        muster_timer_init(&reporter->timer, on_due, reporter);
        muster_rpc_set_data(rpc, reporter);
        report_now(reporter);
    }
    muster_proto_free(request);
}

static void on_stream_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct reporter *reporter = muster_rpc_data(rpc);

    (void)rc;
    if (reporter == NULL)
        return;
    muster_timer_stop(&reporter->timer);
    muster_mem_free(muster_rpc_env(rpc)->mem, reporter);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
     .on_message = on_stream,
     .on_end = on_stream_end,
     .is_unary = true},
};

void interop_orca_init(struct interop_orca *orca, struct muster_env *env)
{
    *orca = (struct interop_orca){.env = env};
}

void interop_orca_fini(struct interop_orca *orca)
{
    muster_mem_free(orca->env->mem, orca->bytes);
}

enum muster_rc interop_orca_add(struct interop_orca *orca, struct muster_rpc_server *server)
{
    return muster_rpc_server_add(server, methods, sizeof(methods) / sizeof(methods[0]), orca);
}
