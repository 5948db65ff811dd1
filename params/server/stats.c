/* The counts of a server, and the contents of its memory: for callers, and as metrics. */
#include "params/server/stats.h"

#include "params/server/services/state_proto.h"

void muster_params_server_stats(const struct muster_params_server *server,
                                struct muster_params_stats *ret_stats)
{
    const struct muster_params_region_head *head = server->region->head;

    Muster__Params__V1__Clocks clocks;

    *ret_stats = server->stats;
    muster_params_clocks_describe(server, &clocks);
    ret_stats->clock_low = clocks.low;
    ret_stats->clock_lag = clocks.has_low && clocks.high > clocks.low ? clocks.high - clocks.low : 0;
    ret_stats->replica_lag_frames = muster_params_followers_lag(server);
    for (uint32_t i = 0; i < head->table_count; i++)
        ret_stats->rows += head->tables[i].row_count;
    ret_stats->memory_bytes = muster_params_region_bytes_used(server->region);
    ret_stats->memory_max_bytes = muster_params_region_bytes_max(server->region);
    ret_stats->tables = head->table_count;
    ret_stats->sources = muster_params_source_live(server->region);
    ret_stats->clients = server->client_count;
    ret_stats->credit_bytes = server->credits.share;
    ret_stats->held_bytes = server->credits.held_bytes;
}

/* --- Metrics --- */

#define FIELD(name)                                                                                \
    offsetof(struct muster_params_stats, name), sizeof(((struct muster_params_stats *)NULL)->name)

static const struct {
    const char *name, *help, *labels;
    enum muster_metric_kind kind;
    size_t offset, bytes; /* of the number in struct muster_params_stats */
} rows[MUSTER_PARAMS_METRIC_COUNT] = {
    {"muster_params_pushes_total", "pushes that were answered, also those sent again", NULL,
     MUSTER_COUNTER, FIELD(pushes)},
    {"muster_params_pulls_total", "pulls that were answered", NULL, MUSTER_COUNTER, FIELD(pulls)},
    {"muster_params_rows_total", "rows of pushes and pulls", "op=\"push\"", MUSTER_COUNTER,
     FIELD(pushed_rows)},
    {"muster_params_rows_total", "rows of pushes and pulls", "op=\"pull\"", MUSTER_COUNTER,
     FIELD(pulled_rows)},
    {"muster_params_bytes_total", "bytes of the values of these rows, as they travel", "op=\"push\"",
     MUSTER_COUNTER, FIELD(pushed_bytes)},
    {"muster_params_bytes_total", "bytes of the values of these rows, as they travel", "op=\"pull\"",
     MUSTER_COUNTER, FIELD(pulled_bytes)},
    {"muster_params_clock_low", "lowest clock of sources that tick; 0 where none does", NULL,
     MUSTER_GAUGE, FIELD(clock_low)},
    {"muster_params_clock_lag", "steps between the lowest and the highest clock", NULL, MUSTER_GAUGE,
     FIELD(clock_lag)},
    {"muster_params_replica_lag_frames",
     "messages that the slowest of the servers that copy this one has not done yet", NULL,
     MUSTER_GAUGE, FIELD(replica_lag_frames)},
    {"muster_params_still_replicas_total",
     "times that a server which copies this one stood still, and its copies left the map", NULL,
     MUSTER_COUNTER, FIELD(still_replicas)},
    {"muster_params_dup_refused_total",
     "runs of pushes that had been applied before, and were not applied again", NULL,
     MUSTER_COUNTER, FIELD(duplicate_runs)},
    {"muster_params_refused_rows_total", "new rows for which there was no memory", NULL,
     MUSTER_COUNTER, FIELD(refused_rows)},
    {"muster_params_unadmitted_rows_total", "rows pushed to keys that have no row yet (admit_after)",
     NULL, MUSTER_COUNTER, FIELD(unadmitted_rows)},
    {"muster_params_removed_rows_total", "rows that a primary has removed, and why",
     "reason=\"limit\"", MUSTER_COUNTER, FIELD(evicted_rows)},
    {"muster_params_removed_rows_total", "rows that a primary has removed, and why",
     "reason=\"age\"", MUSTER_COUNTER, FIELD(expired_rows)},
    {"muster_params_table_rows", "rows in all tables", NULL, MUSTER_GAUGE, FIELD(rows)},
    {"muster_params_tables", "tables", NULL, MUSTER_GAUGE, FIELD(tables)},
    {"muster_params_memory_bytes", "memory of the seat in use", NULL, MUSTER_GAUGE,
     FIELD(memory_bytes)},
    {"muster_params_memory_max_bytes", "memory that the seat may use", NULL, MUSTER_GAUGE,
     FIELD(memory_max_bytes)},
    {"muster_params_sources", "sources that the server knows", NULL, MUSTER_GAUGE, FIELD(sources)},
    {"muster_params_clients", "links of clients", NULL, MUSTER_GAUGE, FIELD(clients)},
    {"muster_params_credits_bytes", "bytes that each client may have outstanding", NULL,
     MUSTER_GAUGE, FIELD(credit_bytes)},
    {"muster_params_held_bytes",
     "messages of clients that wait, and answers that have not left", NULL, MUSTER_GAUGE,
     FIELD(held_bytes)},
    {"muster_params_credit_waits_total",
     "times that a client had more outstanding than its credit, and was not read from", NULL,
     MUSTER_COUNTER, FIELD(credit_waits)},
};

static int64_t number_of(const struct muster_params_stats *stats, size_t offset, size_t bytes)
{
    const void *at = (const uint8_t *)stats + offset;

    return bytes == sizeof(uint64_t) ? (int64_t) * (const uint64_t *)at
                                     : (int64_t) * (const uint32_t *)at;
}

static void on_collect(struct muster_metrics_collector *collector)
{
    struct muster_params_server *server = collector->data;
    struct muster_params_stats stats;

    muster_params_server_stats(server, &stats);
    for (size_t i = 0; i < MUSTER_PARAMS_METRIC_COUNT; i++)
        muster_metric_set(&server->metrics[i], number_of(&stats, rows[i].offset, rows[i].bytes));
}

/* Seconds: a push of some rows takes microseconds, an answer of a follower a network's round trip. */
static const double seconds[] = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 1};
static const struct muster_histogram_bounds bounds = {seconds, sizeof(seconds) / sizeof(seconds[0])};

void muster_params_metrics_open(struct muster_params_server *server)
{
    muster_histogram_init(&server->apply_seconds, server->env->metrics, "muster_params_apply_seconds",
                          "time to apply a push, of every 64th one", NULL, &bounds);
    muster_histogram_init(&server->ack_wait_seconds, server->env->metrics,
                          "muster_params_ack_wait_seconds",
                          "time that an answer has waited for servers that copy this one", NULL,
                          &bounds);
    for (size_t i = 0; i < MUSTER_PARAMS_METRIC_COUNT; i++)
        muster_metric_init(&server->metrics[i], server->env->metrics, rows[i].kind, rows[i].name,
                           rows[i].help, rows[i].labels);
    server->collector = (struct muster_metrics_collector){.data = server, .collect = on_collect};
    muster_metrics_collector_add(server->env->metrics, &server->collector);
}

void muster_params_metrics_close(struct muster_params_server *server)
{
    if (server->collector.data == NULL)
        return;
    muster_metrics_collector_remove(&server->collector);
    for (size_t i = 0; i < MUSTER_PARAMS_METRIC_COUNT; i++)
        muster_metric_fini(&server->metrics[i]);
    muster_histogram_fini(&server->apply_seconds);
    muster_histogram_fini(&server->ack_wait_seconds);
}
