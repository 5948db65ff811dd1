/* Memory, processor time and descriptors of this process, under the names of Prometheus' client libraries. */
#ifndef MUSTER_TOOLS_PROCESS_METRICS_H
#define MUSTER_TOOLS_PROCESS_METRICS_H

#include <muster/metrics.h>

enum process_metric {
    PROCESS_RESIDENT_BYTES,
    PROCESS_VIRTUAL_BYTES,
    PROCESS_CPU_SECONDS,
    PROCESS_OPEN_FDS,
    PROCESS_MAX_FDS,
    PROCESS_START_SECONDS,
    PROCESS_METRIC_COUNT
};

/** Caller's memory, from open to close. */
struct process_metrics {
    struct muster_metric metrics[PROCESS_METRIC_COUNT];
    struct muster_metrics_collector collector;
};

void process_metrics_open(struct process_metrics *process, struct muster_metrics *metrics);
void process_metrics_close(struct process_metrics *process);

#endif
