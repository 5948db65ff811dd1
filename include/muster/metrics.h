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

/** One time series. Caller's memory (usually inside the object it counts); registered while that
 * lives. */
struct muster_metric {
    const char *name;   /* "muster_rpc_received_bytes_total"; static text */
    const char *help;   /* static text */
    const char *labels; /* "job=\"worker\"" or NULL; borrowed */
    enum muster_metric_kind kind;
    int64_t value;    /* counter, gauge */
    int64_t per_unit; /* so many of value are one of the unit of the name; 0: 1 */
    /* private */
    const int64_t *source; /* shown in place of value; NULL: value */
    struct muster_list node;
};

/** Where buckets end: ascending, in the unit of the name. What is above the last counts as +Inf.
 * Static. */
struct muster_histogram_bounds {
    const double *upper;
    size_t count; /* below MUSTER_HISTOGRAM_BUCKETS */
};

#define MUSTER_HISTOGRAM_BUCKETS 42

/** A series of kind MUSTER_HISTOGRAM: how many observations were how large. */
struct muster_histogram {
    struct muster_metric metric;
    const struct muster_histogram_bounds *bounds; /* NULL: powers of two */
    uint64_t count;
    double sum;
    uint64_t buckets[MUSTER_HISTOGRAM_BUCKETS];
};

/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_metrics_open(
    struct muster_mem *mem, struct muster_metrics **ret_metrics);
MUSTER_API void muster_metrics_close(struct muster_metrics *metrics);

/** Set up and register a counter or gauge; metrics may be NULL (then the metric only counts). Borrows metric until
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
/** Show *source (borrowed until fini) in place of the metric's own value: for numbers that are
 * counted side by side where speed matters. */
MUSTER_API void muster_metric_show(struct muster_metric *metric, const int64_t *source);

/** As muster_metric_init. bounds NULL: powers of two of the unit from 1 on, of which those above
 * the largest observation are not shown; others are shown all. */
MUSTER_API void muster_histogram_init(struct muster_histogram *histogram,
                                      struct muster_metrics *metrics, const char *name,
                                      const char *help, const char *labels,
                                      const struct muster_histogram_bounds *bounds);
MUSTER_API void muster_histogram_fini(struct muster_histogram *histogram);
MUSTER_API void muster_histogram_observe(struct muster_histogram *histogram, double value);

struct muster_metrics_collector;
/** Set the metrics whose values are found only when somebody asks. Must return at once. */
typedef void muster_metrics_collect_fn(struct muster_metrics_collector *collector);

/** Caller's memory, borrowed from add to remove (or to the close of metrics). */
struct muster_metrics_collector {
    void *data;
    muster_metrics_collect_fn *collect;
    /* private */
    struct muster_list node;
};

/** collect runs before each muster_metrics_format; metrics may be NULL (then never). */
MUSTER_API void muster_metrics_collector_add(struct muster_metrics *metrics,
                                             struct muster_metrics_collector *collector);
/** Idempotent after add. */
MUSTER_API void muster_metrics_collector_remove(struct muster_metrics_collector *collector);

/** All metrics in Prometheus text format 0.0.4; series of one name stand together. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_metrics_format(struct muster_metrics *metrics,
                                                                  struct muster_mem *mem,
                                                                  char **ret_text,
                                                                  size_t *ret_bytes);

MUSTER_END

#endif
