/* Counters, gauges and histograms with a unit in the name, shown as Prometheus text. */
#ifndef MUSTER_METRICS_H
#define MUSTER_METRICS_H

#include <muster/base.h>
#include <muster/list.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_metrics;

enum muster_metric_kind { MUSTER_COUNTER, MUSTER_GAUGE, MUSTER_HISTOGRAM };

#define MUSTER_HISTOGRAM_BUCKETS 40 /* powers of two of the unit */

/** One time series. Caller's memory (usually inside the object it counts); registered while that
 * lives. */
struct muster_metric {
    const char *name;   /* "muster_rpc_received_bytes_total"; static text */
    const char *help;   /* static text */
    const char *labels; /* "job=\"worker\"" or NULL; borrowed */
    enum muster_metric_kind kind;
    int64_t value;  /* counter, gauge */
    uint64_t count; /* histogram: observations, sum, per power of two */
    double sum;
    uint64_t buckets[MUSTER_HISTOGRAM_BUCKETS];
    /* private */
    struct muster_list node;
};

/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_metrics_open(
    struct muster_mem *mem, struct muster_metrics **ret_metrics);
MUSTER_API void muster_metrics_close(struct muster_metrics *metrics);

/** Set up and register; metrics may be NULL (then the metric only counts). Borrows metric until
 * remove. */
MUSTER_API void muster_metric_init(struct muster_metric *metric, struct muster_metrics *metrics,
                                   enum muster_metric_kind kind, const char *name, const char *help,
                                   const char *labels);
MUSTER_API void muster_metric_fini(struct muster_metric *metric);

static inline void muster_metric_add(struct muster_metric *metric, int64_t amount)
{
    metric->value += amount;
}
static inline void muster_metric_set(struct muster_metric *metric, int64_t value)
{
    metric->value = value;
}
MUSTER_API void muster_metric_observe(struct muster_metric *metric, double value);

/** All metrics in Prometheus text format 0.0.4; series of one name stand together. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_metrics_format(struct muster_metrics *metrics,
                                                                  struct muster_mem *mem,
                                                                  char **ret_text,
                                                                  size_t *ret_bytes);

MUSTER_END

#endif
