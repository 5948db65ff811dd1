/* Metrics: registration, and the page in Prometheus text format 0.0.4. */
#include <muster/metrics.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/value/text.h"

struct muster_metrics {
    struct muster_mem *mem;
    struct muster_list series; /* one name's series are neighbours */
    struct muster_list collectors;
};

enum muster_rc muster_metrics_open(struct muster_mem *mem, struct muster_metrics **ret_metrics)
{
    struct muster_metrics *metrics = muster_mem_alloc(mem, sizeof(*metrics));

    if (metrics == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    metrics->mem = mem;
    muster_list_init(&metrics->series);
    muster_list_init(&metrics->collectors);
    *ret_metrics = metrics;
    return MUSTER_OK;
}

/* Objects that still count may outlive the page: their metrics go on unregistered. */
void muster_metrics_close(struct muster_metrics *metrics)
{
    if (metrics == NULL)
        return;
    while (muster_list_pop(&metrics->series) != NULL)
        continue;
    while (muster_list_pop(&metrics->collectors) != NULL)
        continue;
    muster_mem_free(metrics->mem, metrics);
}

static struct muster_metric *metric_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_metric, node);
}

/* Prometheus wants all series of a name in one block, below one HELP and TYPE. */
static void insert_by_name(struct muster_metrics *metrics, struct muster_metric *metric)
{
    struct muster_list *at = metrics->series.prev;

    while (at != &metrics->series && strcmp(metric_of(at)->name, metric->name) != 0)
        at = at->prev;
    if (at == &metrics->series)
        muster_list_append(&metrics->series, &metric->node);
    else
        muster_list_prepend(at, &metric->node);
}

void muster_metric_init(struct muster_metric *metric, struct muster_metrics *metrics,
                        enum muster_metric_kind kind, const char *name, const char *help,
                        const char *labels)
{
    MUSTER_ASSERT(name != NULL && help != NULL);
    *metric = (struct muster_metric){.kind = kind, .name = name, .help = help, .labels = labels};
    muster_list_init(&metric->node);
    if (metrics != NULL)
        insert_by_name(metrics, metric);
}

void muster_metric_fini(struct muster_metric *metric)
{
    muster_list_remove(&metric->node);
}

void muster_metric_show(struct muster_metric *metric, const int64_t *source)
{
    metric->source = source;
}

void muster_metrics_collector_add(struct muster_metrics *metrics,
                                  struct muster_metrics_collector *collector)
{
    MUSTER_ASSERT(collector->collect != NULL);
    muster_list_init(&collector->node);
    if (metrics != NULL)
        muster_list_append(&metrics->collectors, &collector->node);
}

void muster_metrics_collector_remove(struct muster_metrics_collector *collector)
{
    muster_list_remove(&collector->node);
}

void muster_histogram_init(struct muster_histogram *histogram, struct muster_metrics *metrics,
                           const char *name, const char *help, const char *labels,
                           const struct muster_histogram_bounds *bounds)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->bounds = bounds;
    muster_metric_init(&histogram->metric, metrics, MUSTER_HISTOGRAM, name, help, labels);
}

void muster_histogram_fini(struct muster_histogram *histogram)
{
    muster_metric_fini(&histogram->metric);
}

/* Bucket i counts values in (2^(i-1), 2^i]; bucket 0 all up to 1, the last everything above. */
static int bucket_of_power(double value)
{
    int bucket = 0;

    if (value > 1.0) {
        double fraction =
            frexp(value, &bucket); /* value = fraction * 2^bucket, fraction in [0.5, 1) */

        if (fraction == 0.5)
            bucket--;
        if (isinf(value) || bucket >= MUSTER_HISTOGRAM_BUCKETS)
            bucket = MUSTER_HISTOGRAM_BUCKETS - 1;
    }
    return bucket;
}

/* NaN would make the sum useless for ever, and is left out. */
void muster_histogram_observe(struct muster_histogram *histogram, double value)
{
    const struct muster_histogram_bounds *bounds = histogram->bounds;
    size_t bucket = 0;

    if (isnan(value))
        return;
    if (bounds == NULL)
        bucket = (size_t)bucket_of_power(value);
    else
        while (bucket < bounds->count && value > bounds->upper[bucket])
            bucket++;
    histogram->buckets[bucket]++;
    histogram->count++;
    histogram->sum += value;
}

static void add_series(struct muster_text *text, const struct muster_metric *metric,
                       const char *suffix)
{
    muster_text_add_format(text, "%s%s", metric->name, suffix);
    if (metric->labels != NULL && metric->labels[0] != '\0')
        muster_text_add_format(text, "{%s}", metric->labels);
    muster_text_add(text, " ", 1);
}

static void add_bucket(struct muster_text *text, const struct muster_metric *metric,
                       const char *bound, uint64_t count)
{
    const char *labels = metric->labels == NULL ? "" : metric->labels;

    muster_text_add_format(text, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", metric->name, labels,
                           labels[0] == '\0' ? "" : ",", bound, count);
}

/* Powers of two above the largest observation add nothing: +Inf stands for them. Bounds
 * that were given are shown all, so that histograms of several processes can be added up. */
static void add_histogram(struct muster_text *text, const struct muster_histogram *histogram)
{
    const struct muster_histogram_bounds *bounds = histogram->bounds;
    const size_t last = bounds == NULL ? MUSTER_HISTOGRAM_BUCKETS - 1 : bounds->count;
    uint64_t count = 0;
    char bound[32];

    for (size_t i = 0; i < last && (bounds != NULL || count < histogram->count); i++) {
        count += histogram->buckets[i];
        if (bounds == NULL)
            snprintf(bound, sizeof(bound), "%" PRIu64, UINT64_C(1) << i);
        else
            snprintf(bound, sizeof(bound), "%.10g", bounds->upper[i]);
        add_bucket(text, &histogram->metric, bound, count);
    }
    add_bucket(text, &histogram->metric, "+Inf", histogram->count);
    add_series(text, &histogram->metric, "_sum");
    muster_text_add_format(text, "%.17g\n", histogram->sum);
    add_series(text, &histogram->metric, "_count");
    muster_text_add_format(text, "%" PRIu64 "\n", histogram->count);
}

static void add_metric(struct muster_text *text, const struct muster_metric *metric, bool is_first)
{
    static const char *const kind_names[] = {
        [MUSTER_COUNTER] = "counter",
        [MUSTER_GAUGE] = "gauge",
        [MUSTER_HISTOGRAM] = "histogram",
    };
    int64_t value = metric->source != NULL ? *metric->source : metric->value;

    if (is_first)
        muster_text_add_format(text, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help,
                               metric->name, kind_names[metric->kind]);
    if (metric->kind == MUSTER_HISTOGRAM) {
        add_histogram(text, MUSTER_CONTAINER_OF(metric, const struct muster_histogram, metric));
        return;
    }
    add_series(text, metric, "");
    if (metric->per_unit != 0)
        muster_text_add_format(text, "%.15g\n", (double)value / (double)metric->per_unit);
    else
        muster_text_add_format(text, "%" PRId64 "\n", value);
}

/* Collectors run first: they bring values up to date that are too dear to keep so all the time. */
enum muster_rc muster_metrics_format(struct muster_metrics *metrics, struct muster_mem *mem,
                                     char **ret_text, size_t *ret_bytes)
{
    struct muster_text text;
    const char *name = "";
    enum muster_rc rc;

    MUSTER_LIST_EACH_SAFE(&metrics->collectors, collector, struct muster_metrics_collector, node)
        collector->collect(collector);
    muster_text_init(&text, mem);
    MUSTER_LIST_EACH(&metrics->series, metric, const struct muster_metric, node) {
        add_metric(&text, metric, strcmp(name, metric->name) != 0);
        name = metric->name;
    }
    rc = muster_text_take(&text, ret_text, ret_bytes);
    muster_text_fini(&text);
    return rc;
}
