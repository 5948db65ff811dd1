/* Series of gRPC's metrics (gRPC A66): one for each method (and target), with a set of histograms
 * for each status that has come; counters of connections. Calls find their series once and count
 * through tally.c; the program opens one for its env, and it outlives all servers and channels. */
#include <muster/rpc.h>

#include <stdio.h>
#include <string.h>

#include <muster/hash.h>

#include "net/grpc/metrics_internal.h"

/* Each series may have histograms for 17 statuses: names beyond these share "other", so nobody can
 * fill the memory with names. */
#define SERIES_MAX   512
#define BUCKETS      256 /* of the table of series */
#define COUNTERS_MAX 128

/* The buckets that A66 prescribes, so that dashboards for other gRPC implementations fit. */
static const double latency_bounds[] = {
    0,     0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004,
    0.005, 0.006,   0.008,   0.01,   0.013,  0.016,  0.02,   0.025, 0.03,  0.04,  0.05,
    0.065, 0.08,    0.1,     0.13,   0.16,   0.2,    0.25,   0.3,   0.4,   0.5,   0.65,
    0.8,   1,       2,       5,      10,     20,     50,     100};
static const double size_bounds[] = {0,        1024,      2048,       4096,      16384,
                                     65536,    262144,    1048576,    4194304,   16777216,
                                     67108864, 268435456, 1073741824, 4294967296};
static const struct muster_histogram_bounds latencies = {
    latency_bounds, sizeof(latency_bounds) / sizeof(latency_bounds[0])};
static const struct muster_histogram_bounds sizes = {size_bounds,
                                                     sizeof(size_bounds) / sizeof(size_bounds[0])};

/* Names and help, by side. */
static const struct {
    const char *started, *duration, *sent, *received;
    const char *started_help, *duration_help, *sent_help, *received_help;
} texts[] = {
    [MUSTER_RPC_SERVER] = {"grpc_server_call_started_total", "grpc_server_call_duration_seconds",
                           "grpc_server_call_sent_total_compressed_message_size_bytes",
                           "grpc_server_call_rcvd_total_compressed_message_size_bytes",
                           "Calls received.", "Duration of a call, from its request's headers to its end.",
                           "Messages sent per call, as on the wire.",
                           "Messages received per call, as on the wire."},
    [MUSTER_RPC_CLIENT] = {"grpc_client_attempt_started_total",
                           "grpc_client_attempt_duration_seconds",
                           "grpc_client_attempt_sent_total_compressed_message_size_bytes",
                           "grpc_client_attempt_rcvd_total_compressed_message_size_bytes",
                           "Attempts of calls begun.",
                           "Duration of an attempt, including its wait for a connection.",
                           "Messages sent per attempt, as on the wire.",
                           "Messages received per attempt, as on the wire."},
};

/* Counters of connections: a name for each field, by side. */
static const struct {
    size_t offset;
    enum muster_metric_kind kind;
    const char *names[2];
    const char *help;
} counter_rows[] = {
#define ROW(field, kind, suffix, help)                                                             \
    {                                                                                              \
        offsetof(struct muster_rpc_counters, field), kind,                                         \
            {"muster_rpc_server_" suffix, "muster_rpc_channel_" suffix}, help                      \
    }
    ROW(connections, MUSTER_GAUGE, "connections", "Open connections."),
    ROW(connections_opened, MUSTER_COUNTER, "connections_opened_total", "Connections opened."),
    ROW(streams_started, MUSTER_COUNTER, "streams_started_total", "HTTP/2 streams begun."),
    ROW(streams_succeeded, MUSTER_COUNTER, "streams_succeeded_total",
        "HTTP/2 streams ended by both sides."),
    ROW(streams_failed, MUSTER_COUNTER, "streams_failed_total",
        "HTTP/2 streams reset, or lost with their connection."),
    ROW(messages_sent, MUSTER_COUNTER, "messages_sent_total", "Messages queued."),
    ROW(messages_received, MUSTER_COUNTER, "messages_received_total", "Messages taken."),
    ROW(keepalives_sent, MUSTER_COUNTER, "keepalives_sent_total", "Keepalive pings sent."),
#undef ROW
#define ROW(field, kind, suffix, help)                                                             \
    {                                                                                              \
        offsetof(struct muster_rpc_counters, field), kind, {"muster_rpc_server_" suffix, NULL},    \
            help                                                                                   \
    }
    ROW(unsent_bytes, MUSTER_GAUGE, "unsent_bytes",
        "Bytes of answers that the system has not taken yet."),
    ROW(unsent_refusals, MUSTER_COUNTER, "unsent_refusals_total",
        "Calls refused or ended because too many answers waited to be sent."),
    ROW(unsent_expulsions, MUSTER_COUNTER, "unsent_expulsions_total",
        "Connections ended because they did not read while too many answers waited."),
#undef ROW
};
#define COUNTER_ROWS (sizeof(counter_rows) / sizeof(counter_rows[0]))

struct shown_counters {
    struct muster_list node;
    enum muster_rpc_side side;
    struct muster_rpc_counters counters;
    struct muster_metric metrics[COUNTER_ROWS];
    char *name;
    char labels[];
};

struct muster_rpc_metrics {
    struct muster_env *env;
    struct muster_list table[BUCKETS]; /* of series */
    size_t series_count;
    struct muster_rpc_series *others[2];
    struct muster_list counters;
    size_t counter_count;
    struct shown_counters *other_counters[2];
};

/* The value of a label, as Prometheus quotes it. Returns what snprintf would. */
static size_t quote_label(const char *text, char *to, size_t size)
{
    size_t count = 0;

    for (; *text != '\0'; text++) {
        char mark = *text == '\n' ? 'n' : *text == '"' || *text == '\\' ? *text : '\0';

        if (mark != '\0' && count + 1 < size)
            to[count++] = '\\';
        if (count + 1 < size)
            to[count++] = mark != '\0' ? mark : *text;
    }
    if (size > 0)
        to[count] = '\0';
    return count;
}

/* Series. */

static void series_free(struct muster_rpc_series *series)
{
    struct muster_mem *mem = series->metrics->env->mem;

    for (size_t i = 0; i < MUSTER_RPC_STATUS_COUNT; i++) {
        struct muster_rpc_outcome *outcome = series->outcomes[i];

        if (outcome == NULL)
            continue;
        muster_histogram_fini(&outcome->duration);
        muster_histogram_fini(&outcome->sent);
        muster_histogram_fini(&outcome->received);
        if (series->side == MUSTER_RPC_CLIENT)
            muster_histogram_fini(&outcome->call);
        muster_mem_free(mem, outcome);
    }
    muster_list_remove(&series->node);
    muster_metric_fini(&series->started);
    muster_mem_free(mem, series);
}

static size_t write_labels(const struct muster_rpc_series *series, char *to, size_t size)
{
    size_t count = (size_t)snprintf(to, size, "grpc_method=\"");

    count += quote_label(series->method + (series->method[0] == '/'), to + count, size - count);
    count += (size_t)snprintf(to + count, size - count, "\"");
    if (series->side == MUSTER_RPC_CLIENT) {
        count += (size_t)snprintf(to + count, size - count, ",grpc_target=\"");
        count += quote_label(series->target, to + count, size - count);
        count += (size_t)snprintf(to + count, size - count, "\"");
    }
    return count;
}

/* Method, target and labels lie after the series in its memory. A quoted label is at most twice as
 * long as its text. */
static struct muster_rpc_series *series_new(struct muster_rpc_metrics *metrics,
                                            enum muster_rpc_side side, const char *method,
                                            const char *target)
{
    size_t method_bytes = strlen(method) + 1, target_bytes = strlen(target) + 1;
    size_t labels_bytes = 64 + 2 * (method_bytes + target_bytes);
    struct muster_rpc_series *series = muster_mem_alloc_zero(
        metrics->env->mem, 1, sizeof(*series) + method_bytes + target_bytes + labels_bytes);
    char *text = (char *)(series + 1);

    if (series == NULL)
        return NULL;
    series->metrics = metrics;
    series->side = side;
    series->method = memcpy(text, method, method_bytes);
    series->target = memcpy(text + method_bytes, target, target_bytes);
    series->labels = text + method_bytes + target_bytes;
    (void)write_labels(series, series->labels, labels_bytes);
    muster_list_init(&series->node);
    muster_metric_init(&series->started, metrics->env->metrics, MUSTER_COUNTER, texts[side].started,
                       texts[side].started_help, series->labels);
    return series;
}

static struct muster_rpc_outcome *outcome_new(struct muster_rpc_series *series, enum muster_rc rc)
{
    struct muster_metrics *metrics = series->metrics->env->metrics;
    enum muster_rpc_side side = series->side;
    size_t bytes = strlen(series->labels) + 64;
    struct muster_rpc_outcome *outcome =
        muster_mem_alloc_zero(series->metrics->env->mem, 1, sizeof(*outcome) + bytes);
    const char *labels;

    if (outcome == NULL)
        return NULL;
    labels = outcome->labels;
    (void)snprintf(outcome->labels, bytes, "%s,grpc_status=\"%s\"", series->labels,
                   muster_rc_name(rc));
    muster_histogram_init(&outcome->duration, metrics, texts[side].duration,
                          texts[side].duration_help, labels, &latencies);
    muster_histogram_init(&outcome->sent, metrics, texts[side].sent, texts[side].sent_help, labels,
                          &sizes);
    muster_histogram_init(&outcome->received, metrics, texts[side].received,
                          texts[side].received_help, labels, &sizes);
    if (side == MUSTER_RPC_CLIENT)
        muster_histogram_init(&outcome->call, metrics, "grpc_client_call_duration_seconds",
                              "Duration of a call, including all its attempts.", labels, &latencies);
    return outcome;
}

/* Histograms are made when a status first comes: most methods know two or three. */
struct muster_rpc_outcome *muster_rpc_series_outcome(struct muster_rpc_series *series,
                                                     enum muster_rc rc)
{
    unsigned at = (unsigned)rc < MUSTER_RPC_STATUS_COUNT ? (unsigned)rc : MUSTER_UNKNOWN;

    if (series->outcomes[at] == NULL)
        series->outcomes[at] = outcome_new(series, (enum muster_rc)at);
    return series->outcomes[at];
}

static struct muster_rpc_series *find_series(struct muster_list *row, uint64_t hash,
                                             const char *method, const char *target)
{
    MUSTER_LIST_EACH(row, series, struct muster_rpc_series, node) {
        if (series->hash == hash && strcmp(series->method, method) == 0 &&
            strcmp(series->target, target) == 0)
            return series;
    }
    return NULL;
}

struct muster_rpc_series *muster_rpc_metrics_series(struct muster_rpc_metrics *metrics,
                                                    enum muster_rpc_side side, const char *method,
                                                    const char *target)
{
    struct muster_rpc_series *series;
    struct muster_list *row;
    uint64_t hash;

    if (metrics == NULL)
        return NULL;
    if (method == NULL)
        return metrics->others[side];
    /* The side is part of the key: a process may serve and call the same method. */
    hash = muster_hash64(target, strlen(target), (uint64_t)side);
    hash = muster_hash64(method, strlen(method), hash);
    row = &metrics->table[hash % BUCKETS];
    series = find_series(row, hash, method, target);
    if (series != NULL)
        return series;
    if (metrics->series_count < SERIES_MAX)
        series = series_new(metrics, side, method, target);
    if (series == NULL)
        return metrics->others[side];
    metrics->series_count++;
    series->hash = hash;
    muster_list_append(row, &series->node);
    return series;
}

/* Counters. */

static void counters_free(struct muster_rpc_metrics *metrics, struct shown_counters *shown)
{
    for (size_t i = 0; i < COUNTER_ROWS; i++) {
        if (counter_rows[i].names[shown->side] != NULL)
            muster_metric_fini(&shown->metrics[i]);
    }
    muster_list_remove(&shown->node);
    muster_mem_free(metrics->env->mem, shown);
}

/* Labels and name lie after it in its memory. */
static struct shown_counters *counters_new(struct muster_rpc_metrics *metrics,
                                           enum muster_rpc_side side, const char *name)
{
    size_t name_bytes = strlen(name) + 1, labels_bytes = 16 + 2 * name_bytes;
    struct shown_counters *shown =
        muster_mem_alloc_zero(metrics->env->mem, 1, sizeof(*shown) + labels_bytes + name_bytes);
    size_t count;

    if (shown == NULL)
        return NULL;
    shown->side = side;
    shown->name = memcpy(shown->labels + labels_bytes, name, name_bytes);
    count = (size_t)snprintf(shown->labels, labels_bytes, "%s=\"",
                             side == MUSTER_RPC_SERVER ? "server" : "target");
    count += quote_label(name, shown->labels + count, labels_bytes - count);
    (void)snprintf(shown->labels + count, labels_bytes - count, "\"");
    for (size_t i = 0; i < COUNTER_ROWS; i++) {
        if (counter_rows[i].names[side] == NULL)
            continue;
        muster_metric_init(&shown->metrics[i], metrics->env->metrics, counter_rows[i].kind,
                           counter_rows[i].names[side], counter_rows[i].help, shown->labels);
        muster_metric_show(&shown->metrics[i],
                           (const int64_t *)(const void *)((const char *)&shown->counters +
                                                           counter_rows[i].offset));
    }
    muster_list_append(&metrics->counters, &shown->node);
    metrics->counter_count++;
    return shown;
}

struct muster_rpc_counters *muster_rpc_metrics_counters(struct muster_rpc_metrics *metrics,
                                                        enum muster_rpc_side side, const char *name,
                                                        struct muster_rpc_counters *own)
{
    struct shown_counters *shown = NULL;

    if (metrics == NULL)
        return own;
    MUSTER_LIST_EACH(&metrics->counters, known, struct shown_counters, node) {
        if (known->side == side && strcmp(known->name, name) == 0)
            return &known->counters;
    }
    shown = metrics->counter_count < COUNTERS_MAX ? counters_new(metrics, side, name) : NULL;
    /* Too many names share "other"; without memory even for that, the owner counts for itself and
     * is not shown. */
    if (shown == NULL && metrics->other_counters[side] == NULL)
        metrics->other_counters[side] = counters_new(metrics, side, "other");
    if (shown == NULL)
        shown = metrics->other_counters[side];
    return shown == NULL ? own : &shown->counters;
}

/* The whole. */

void muster_rpc_metrics_close(struct muster_rpc_metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        struct muster_list *row = &metrics->table[i];

        while (row->next != row)
            series_free(MUSTER_CONTAINER_OF(row->next, struct muster_rpc_series, node));
    }
    for (size_t side = 0; side < 2; side++) {
        if (metrics->others[side] != NULL)
            series_free(metrics->others[side]);
    }
    while (metrics->counters.next != &metrics->counters)
        counters_free(metrics,
                      MUSTER_CONTAINER_OF(metrics->counters.next, struct shown_counters, node));
    muster_mem_free(metrics->env->mem, metrics);
}

enum muster_rc muster_rpc_metrics_open(struct muster_env *env,
                                       struct muster_rpc_metrics **ret_metrics)
{
    struct muster_rpc_metrics *metrics;

    if (env->metrics == NULL)
        return MUSTER_FAILED_PRECONDITION;
    metrics = muster_mem_alloc_zero(env->mem, 1, sizeof(*metrics));
    if (metrics == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    metrics->env = env;
    for (size_t i = 0; i < BUCKETS; i++)
        muster_list_init(&metrics->table[i]);
    muster_list_init(&metrics->counters);
    metrics->others[MUSTER_RPC_SERVER] = series_new(metrics, MUSTER_RPC_SERVER, "other", "");
    metrics->others[MUSTER_RPC_CLIENT] = series_new(metrics, MUSTER_RPC_CLIENT, "other", "other");
    if (metrics->others[0] == NULL || metrics->others[1] == NULL) {
        muster_rpc_metrics_close(metrics);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_metrics = metrics;
    return MUSTER_OK;
}
