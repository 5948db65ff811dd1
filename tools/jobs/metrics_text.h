/* A page of metrics whose numbers are read when it is asked for: OpenMetrics 1.0, or Prometheus
 * text 0.0.4 for a client that does not ask for that. */
#ifndef MUSTER_TOOLS_METRICS_TEXT_H
#define MUSTER_TOOLS_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <muster/base.h>

struct muster_http_reply;

struct metrics_text {
    struct muster_http_reply *reply;
    bool is_open;       /* OpenMetrics */
    const char *name;   /* of the present family */
    const char *suffix; /* of its samples */
};

enum metrics_kind { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM, METRICS_INFO };

/** Sets the content type by the request's Accept. */
void metrics_text_begin(struct metrics_text *text, struct muster_http_reply *reply);
void metrics_text_end(struct metrics_text *text);
/** Samples of `name` follow; unit: its last word ("seconds", "bytes"), or "". Static texts. A
 * counter's samples are called NAME_total, an info's NAME_info. */
void metrics_text_family(struct metrics_text *text, enum metrics_kind kind, const char *name,
                         const char *unit, const char *help);
/** label_count pairs of label and value; values are escaped. */
void metrics_text_sample(struct metrics_text *text, double value, size_t label_count, ...);
/** counts[i] of bounds[i], not cumulative, and counts[bound_count] above all; one pair of label and
 * value. */
void metrics_text_histogram(struct metrics_text *text, const char *label, const char *value,
                            const double *bounds, size_t bound_count, const uint64_t *counts,
                            double sum);

#endif
