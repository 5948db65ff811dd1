/* The health of the registry: whether writes reach the store, whether the quota is passed, and the
 * gauges. commit.c reports failures and successes here; 'muster registry status', /health and
 * /metrics read it. */
#include "cluster/registry/server_internal.h"

#include <stdio.h>

/* The values are set when metrics are collected. */
static const struct gauge {
    const char *name, *help;
} gauges[MUSTER_REGISTRY_GAUGE_COUNT] = {
    [MUSTER_REGISTRY_FILE_BYTES] = {"muster_registry_file_bytes", "size of the data file"},
    [MUSTER_REGISTRY_USED_BYTES] = {"muster_registry_used_bytes",
                                    "what the data take of the file; the quota holds for it"},
    [MUSTER_REGISTRY_JOURNAL_BYTES] = {"muster_registry_journal_bytes",
                                       "written to the journal since the last checkpoint"},
    [MUSTER_REGISTRY_QUOTA_BYTES] = {"muster_registry_quota_bytes", "puts are refused above it"},
    [MUSTER_REGISTRY_KEYS] = {"muster_registry_keys", "keys that exist"},
    [MUSTER_REGISTRY_LEASES] = {"muster_registry_leases", "leases that are held"},
    [MUSTER_REGISTRY_WATCHES] = {"muster_registry_watches", "watches that are open"},
    [MUSTER_REGISTRY_REVISION] = {"muster_registry_revision", "the newest revision"},
    [MUSTER_REGISTRY_IS_FAILING] = {"muster_registry_write_failing",
                                    "1 while writes to the data file fail"},
    [MUSTER_REGISTRY_IS_OVER_QUOTA] = {"muster_registry_over_quota",
                                       "1 while puts are refused because of the quota"},
};

static uint64_t count_watches(const struct muster_watch_hub *hub)
{
    uint64_t count = 0;

    MUSTER_LIST_EACH (&hub->streams, stream, struct muster_watch_stream, node)
        count += stream->watch_count;
    return count;
}

void muster_registry_server_status(const struct muster_registry_server *server,
                                   struct muster_registry_server_status *ret_status)
{
    struct muster_registry_store_size size;

    muster_registry_store_measure(server->store, &size);
    *ret_status = (struct muster_registry_server_status){
        .revision = server->mvcc.meta.revision,
        .file_bytes = size.file_bytes,
        .used_bytes = size.used_bytes,
        .journal_bytes = size.journal_bytes,
        .quota_bytes = size.quota_bytes,
        .key_count = size.key_count,
        .lease_count = server->leases.count,
        .watch_count = count_watches(&server->hub),
        .is_failing = server->status.is_failing,
        .is_over_quota = server->mvcc.is_full,
    };
}

enum muster_rc muster_registry_server_check(const struct muster_registry_server *server,
                                            struct muster_error *ret_error)
{
    struct muster_registry_server_status status;

    if (server->status.is_failing)
        return muster_error_set(ret_error, server->status.rc, "%s", server->status.text);
    if (!server->mvcc.is_full)
        return MUSTER_OK;
    muster_registry_server_status(server, &status);
    return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                            "the data have %llu bytes and must stay below the quota of %llu: "
                            "delete keys and compact them, or start it with a larger --quota",
                            (unsigned long long)status.used_bytes,
                            (unsigned long long)status.quota_bytes);
}

/* --- Gauges --- */

static void on_collect(struct muster_metrics_collector *collector)
{
    struct muster_registry_server *server = collector->data;
    struct muster_metric *of = server->status.gauges;
    struct muster_registry_server_status status;

    muster_registry_server_status(server, &status);
    muster_metric_set(&of[MUSTER_REGISTRY_FILE_BYTES], (int64_t)status.file_bytes);
    muster_metric_set(&of[MUSTER_REGISTRY_USED_BYTES], (int64_t)status.used_bytes);
    muster_metric_set(&of[MUSTER_REGISTRY_JOURNAL_BYTES], (int64_t)status.journal_bytes);
    muster_metric_set(&of[MUSTER_REGISTRY_QUOTA_BYTES], (int64_t)status.quota_bytes);
    muster_metric_set(&of[MUSTER_REGISTRY_KEYS], (int64_t)status.key_count);
    muster_metric_set(&of[MUSTER_REGISTRY_LEASES], (int64_t)status.lease_count);
    muster_metric_set(&of[MUSTER_REGISTRY_WATCHES], (int64_t)status.watch_count);
    muster_metric_set(&of[MUSTER_REGISTRY_REVISION], status.revision);
    muster_metric_set(&of[MUSTER_REGISTRY_IS_FAILING], status.is_failing);
    muster_metric_set(&of[MUSTER_REGISTRY_IS_OVER_QUOTA], status.is_over_quota);
}

/* --- Whether writes reach the store --- */

void muster_registry_status_failed(struct muster_registry_server *server, enum muster_rc rc)
{
    struct muster_registry_server_health *status = &server->status;

    MUSTER_ASSERT(rc != MUSTER_OK);
    (void)snprintf(status->text, sizeof(status->text), "%s",
                   muster_registry_store_error(server->store));
    muster_metric_add(&status->failures_total, 1);
    status->failed_count++;
    status->failed_ns = muster_loop_now_ns(server->env->loop);
    status->rc = rc;
    /* A failure is logged once until writes work again; the counter has the rest. */
    if (status->is_failing || server->is_closing)
        return;
    status->is_failing = true;
    MUSTER_LOG(server->env, ERROR, "registry_store_failed", "error", status->text);
    muster_timer_start(&status->probe, server->env->loop,
                       muster_loop_after_ns(server->env->loop, MUSTER_REGISTRY_PROBE_INTERVAL_NS));
}

void muster_registry_status_mended(struct muster_registry_server *server)
{
    struct muster_registry_server_health *status = &server->status;

    MUSTER_ASSERT(status->is_failing);
    MUSTER_LOG(server->env, INFO, "registry_writes_again", "failed_writes", status->failed_count);
    muster_timer_stop(&status->probe);
    status->is_failing = false;
    status->failed_count = 0;
}

void muster_registry_status_measured(struct muster_registry_server *server,
                                     const struct muster_registry_store_size *size)
{
    /* The free pages of the file do not count, so a registry that was full recovers by deleting and
     * compacting, without defragmentation. */
    bool is_full = size->used_bytes >= size->quota_bytes;

    if (is_full == server->mvcc.is_full)
        return;
    server->mvcc.is_full = is_full;
    if (is_full)
        MUSTER_LOG(server->env, ERROR, "registry_quota_passed", "used_bytes", size->used_bytes,
                   "quota_bytes", size->quota_bytes, "remedy",
                   "delete keys and compact them, or start it with a larger --quota");
    else
        MUSTER_LOG(server->env, INFO, "registry_below_quota", "used_bytes", size->used_bytes,
                   "quota_bytes", size->quota_bytes);
}

void muster_registry_status_init(struct muster_registry_server *server)
{
    struct muster_registry_server_health *status = &server->status;
    struct muster_metrics *metrics = server->env->metrics;

    muster_metric_init(&status->failures_total, metrics, MUSTER_COUNTER,
                       "muster_registry_write_failures_total", "commits that the data file refused",
                       NULL);
    for (size_t i = 0; i < MUSTER_REGISTRY_GAUGE_COUNT; i++)
        muster_metric_init(&status->gauges[i], metrics, MUSTER_GAUGE, gauges[i].name,
                           gauges[i].help, NULL);
    status->collector = (struct muster_metrics_collector){.data = server, .collect = on_collect};
    muster_metrics_collector_add(metrics, &status->collector);
}

void muster_registry_status_fini(struct muster_registry_server *server)
{
    muster_timer_stop(&server->status.probe);
    muster_metrics_collector_remove(&server->status.collector);
    muster_metric_fini(&server->status.failures_total);
    for (size_t i = 0; i < MUSTER_REGISTRY_GAUGE_COUNT; i++)
        muster_metric_fini(&server->status.gauges[i]);
}
