/* Interop cases about load reports (ORCA): with a call, and beside the calls. */
#include <stdio.h>
#include <string.h>

#include "interop_client.h"
#include "interop_orca.h"
#include "proto/guard.h"
#include "tests/proto/orca_report.pb-c.h"
#include "tests/proto/orca_service.pb-c.h"

#define REPORT_INTERVAL_NS                                                                         \
    100000000 /* a server may take it for too short, and report more seldom */

/* The request, and the report expected back. */
struct load {
    double cpu, memory, cost, use; /* cost 0: none */
};

static bool check_report(struct interop_client *client, const struct load *expected,
                         const Xds__Data__Orca__V3__OrcaLoadReport *report)
{
    size_t costs = expected->cost > 0 ? 1 : 0;

    return interop_check(client,
                         report->cpu_utilization == expected->cpu &&
                             report->mem_utilization == expected->memory,
                         "the report says cpu %g, memory %g, expected %g, %g",
                         report->cpu_utilization, report->mem_utilization, expected->cpu,
                         expected->memory) &&
           interop_check(client, report->n_request_cost == costs && report->n_utilization == 1,
                         "the report has %zu costs and %zu utilizations, expected %zu and 1",
                         report->n_request_cost, report->n_utilization, costs) &&
           interop_check(client,
                         costs == 0 || (strcmp(report->request_cost[0]->key, "cost") == 0 &&
                                        report->request_cost[0]->value == expected->cost),
                         "the report has another cost") &&
           interop_check(client,
                         strcmp(report->utilization[0]->key, "util") == 0 &&
                             report->utilization[0]->value == expected->use,
                         "the report has another utilization");
}

/* A TestOrcaReport and its parts. */
struct wish {
    Grpc__Testing__TestOrcaReport report;
    Grpc__Testing__TestOrcaReport__RequestCostEntry cost, *costs;
    Grpc__Testing__TestOrcaReport__UtilizationEntry use, *uses;
};

static void wish_init(struct wish *wish, const struct load *load)
{
    static char cost_name[] = "cost", use_name[] = "util";

    grpc__testing__test_orca_report__init(&wish->report);
    grpc__testing__test_orca_report__request_cost_entry__init(&wish->cost);
    grpc__testing__test_orca_report__utilization_entry__init(&wish->use);
    wish->report.cpu_utilization = load->cpu;
    wish->report.memory_utilization = load->memory;
    wish->cost.key = cost_name;
    wish->cost.value = load->cost;
    wish->costs = &wish->cost;
    wish->report.request_cost = &wish->costs;
    wish->report.n_request_cost = load->cost > 0 ? 1 : 0;
    wish->use.key = use_name;
    wish->use.value = load->use;
    wish->uses = &wish->use;
    wish->report.utilization = &wish->uses;
    wish->report.n_utilization = 1;
}

static bool check_trailer(struct interop_client *client, const struct interop_value *trailer,
                          const struct load *expected)
{
    Xds__Data__Orca__V3__OrcaLoadReport *report = NULL;
    struct muster_error error;
    bool is_right;

    if (!interop_check(client, trailer->count == 1, "%s came %u times, expected 1",
                       INTEROP_ORCA_TRAILER, trailer->count))
        return false;
    is_right =
        muster_proto_unpack(client->env->mem, &xds__data__orca__v3__orca_load_report__descriptor,
                            trailer->value, trailer->bytes, NULL, &report, &error) == MUSTER_OK;
    is_right = interop_check(client, is_right, "%s is not an OrcaLoadReport", INTEROP_ORCA_TRAILER) &&
               check_report(client, expected, report);
    muster_proto_free(report);
    return is_right;
}

bool interop_orca_per_rpc(struct interop_client *client)
{
    static const struct load load = {0.8210, 0.5847, 3456.32, 0.30499};
    const struct interop_ask ask = {.method = INTEROP_TEST_SERVICE "UnaryCall",
                                    .answer = &grpc__testing__simple_response__descriptor,
                                    .trailing_name = INTEROP_ORCA_TRAILER};
    struct interop_call call = {.client = NULL};
    Grpc__Testing__SimpleRequest request;
    struct wish wish;
    bool is_right;

    wish_init(&wish, &load);
    grpc__testing__simple_request__init(&request);
    request.orca_per_query_report = &wish.report;
    is_right = interop_unary(&call, client, &ask, &request, MUSTER_OK) &&
               check_trailer(client, &call.trailing, &load);
    interop_call_fini(&call);
    return is_right;
}

/* Tell the server its load by one message of the stream, and wait for the answer to it. */
static bool call_tell(struct interop_call *call, size_t answers, const struct load *load)
{
    Grpc__Testing__StreamingOutputCallRequest request;
    Grpc__Testing__ResponseParameters wanted, *list = &wanted;
    struct wish wish;

    wish_init(&wish, load);
    grpc__testing__response_parameters__init(&wanted);
    wanted.size = 1;
    grpc__testing__streaming_output_call_request__init(&request);
    request.orca_oob_report = &wish.report;
    request.response_parameters = &list;
    request.n_response_parameters = 1;
    return interop_call_send(call, &request, false) && interop_call_await(call, answers);
}

/* The stream of reports, which goes on until it is cancelled. */
static bool open_reports(struct interop_call *reports, struct interop_client *client)
{
    const struct interop_ask ask = {.method =
                                        "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
                                    .answer = &xds__data__orca__v3__orca_load_report__descriptor};
    Xds__Service__Orca__V3__OrcaLoadReportRequest request;
    Xds__Service__Orca__V3__Duration interval;

    xds__service__orca__v3__orca_load_report_request__init(&request);
    xds__service__orca__v3__duration__init(&interval);
    interval.nanos = REPORT_INTERVAL_NS;
    request.report_interval = &interval;
    if (!interop_call_start(reports, client, &ask) || !interop_call_send(reports, &request, false))
        return false;
    muster_call_half_close(&reports->call);
    return true;
}

/* Soon a report shows it: those that were on their way say what was before. *at: where to look
 * next. */
static bool check_reports(struct interop_call *reports, const struct load *expected, size_t *at)
{
    const Xds__Data__Orca__V3__OrcaLoadReport *report;

    do {
        if (!interop_check(reports->client, *at < INTEROP_ANSWERS_MAX,
                           "no report says cpu %g, memory %g", expected->cpu, expected->memory) ||
            !interop_call_await(reports, *at + 1))
            return false;
        report = reports->answers[(*at)++].message;
        if (!interop_check(reports->client, report != NULL, "no OrcaLoadReport"))
            return false;
    } while (report->cpu_utilization != expected->cpu);
    return check_report(reports->client, expected, report);
}

bool interop_orca_oob(struct interop_client *client)
{
    static const struct load loads[2] = {{0.8210, 0.5847, 0, 0.30499}, {0.29309, 0.2, 0, 0.2039}};
    const struct interop_ask ask = {.method = INTEROP_TEST_SERVICE "FullDuplexCall",
                                    .answer =
                                        &grpc__testing__streaming_output_call_response__descriptor};
    struct interop_call call = {.client = NULL}, reports = {.client = NULL};
    size_t at = 0;
    bool is_right = interop_call_start(&call, client, &ask) && call_tell(&call, 1, &loads[0]) &&
                    open_reports(&reports, client) && check_reports(&reports, &loads[0], &at) &&
                    call_tell(&call, 2, &loads[1]) && check_reports(&reports, &loads[1], &at);

    if (is_right) {
        muster_call_half_close(&call.call);
        is_right = interop_call_end(&call, MUSTER_OK);
    }
    interop_call_fini(&reports);
    interop_call_fini(&call);
    return is_right;
}
