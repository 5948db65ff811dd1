/* Metrics of a running job for Prometheus. */
#ifndef MUSTER_RUN_METRICS_H
#define MUSTER_RUN_METRICS_H

struct muster_http_reply;
struct run;

void run_metrics_write(const struct run *run, struct muster_http_reply *reply);

#endif
