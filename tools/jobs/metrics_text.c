/* Metrics as text: names, units and labels as OpenMetrics 1.0 wants them. Prometheus asks for that
 * format in Accept and falls back to its own text format 0.0.4, in which a family has the name of
 * its samples and no unit. */
#include "jobs/metrics_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <muster/http.h>

#define TYPE_OPEN  "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define TYPE_PLAIN "text/plain; version=0.0.4; charset=utf-8"

void metrics_text_begin(struct metrics_text *text, struct muster_http_reply *reply)
{
    const char *accept = muster_http_reply_request_header(reply, "Accept");

    *text = (struct metrics_text){.reply = reply};
    text->is_open = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
    muster_http_reply_set_type(reply, text->is_open ? TYPE_OPEN : TYPE_PLAIN);
}

void metrics_text_end(struct metrics_text *text)
{
    if (text->is_open)
        muster_http_reply_printf(text->reply, "# EOF\n");
}

void metrics_text_family(struct metrics_text *text, enum metrics_kind kind, const char *name,
                         const char *unit, const char *help)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram", "info"};
    static const char *const suffixes[] = {"_total", "", "", "_info"};
    bool is_info = kind == METRICS_INFO;

    text->name = name;
    text->suffix = suffixes[kind];
    if (text->is_open) {
        muster_http_reply_printf(text->reply, "# TYPE %s %s\n", name, kinds[kind]);
        if (unit[0] != '\0')
            muster_http_reply_printf(text->reply, "# UNIT %s %s\n", name, unit);
        muster_http_reply_printf(text->reply, "# HELP %s %s\n", name, help);
        return;
    }
    muster_http_reply_printf(text->reply, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, text->suffix,
                             help, name, text->suffix, is_info ? "gauge" : kinds[kind]);
}

/* Both formats escape backslash, quote and newline, and nothing else. */
static void add_escaped(struct muster_http_reply *reply, const char *value)
{
    for (const char *at = value; *at != '\0'; at++) {
        if (*at == '\n')
            muster_http_reply_add(reply, "\\n", 2);
        else if (*at == '"' || *at == '\\')
            muster_http_reply_printf(reply, "\\%c", *at);
        else
            muster_http_reply_add(reply, at, 1);
    }
}

static void add_label(struct muster_http_reply *reply, bool is_first, const char *label,
                      const char *value)
{
    muster_http_reply_printf(reply, "%s%s=\"", is_first ? "{" : ",", label);
    add_escaped(reply, value);
    muster_http_reply_add(reply, "\"", 1);
}

/* The shortest text that reads back as the same number. A bound stands in a label, where 1 is
 * "1.0": histograms of several writers must agree on the text. */
static const char *format_number(double value, bool is_bound, char *text, size_t bytes)
{
    if (isnan(value))
        return "NaN";
    if (isinf(value))
        return value > 0 ? "+Inf" : "-Inf";
    for (int digits = 6; digits <= 17; digits++) {
        double back = 0;

        snprintf(text, bytes, "%.*g", digits, value);
        if (sscanf(text, "%lf", &back) == 1 && !(back < value) && !(back > value))
            break;
    }
    if (is_bound && strpbrk(text, ".e") == NULL && strlen(text) + 2 < bytes)
        strcat(text, ".0");
    return text;
}

void metrics_text_sample(struct metrics_text *text, double value, size_t label_count, ...)
{
    char number[40];
    va_list args;

    muster_http_reply_printf(text->reply, "%s%s", text->name, text->suffix);
    va_start(args, label_count);
    for (size_t i = 0; i < label_count; i++) {
        const char *label = va_arg(args, const char *);

        add_label(text->reply, i == 0, label, va_arg(args, const char *));
    }
    va_end(args);
    muster_http_reply_printf(text->reply, "%s %s\n", label_count > 0 ? "}" : "",
                             format_number(value, false, number, sizeof(number)));
}

/* Buckets are cumulative on the wire, and the last one, "+Inf", equals the count (OpenMetrics 1.0,
 * "Histogram"). */
void metrics_text_histogram(struct metrics_text *text, const char *label, const char *value,
                            const double *bounds, size_t bound_count, const uint64_t *counts,
                            double sum)
{
    uint64_t count = 0;
    char number[40];

    for (size_t i = 0; i <= bound_count; i++) {
        double bound = i < bound_count ? bounds[i] : (double)INFINITY;

        count += counts[i];
        text->suffix = "_bucket";
        muster_http_reply_printf(text->reply, "%s_bucket", text->name);
        add_label(text->reply, true, label, value);
        add_label(text->reply, false, "le", format_number(bound, true, number, sizeof(number)));
        muster_http_reply_printf(text->reply, "} %llu\n", (unsigned long long)count);
    }
    text->suffix = "_sum";
    metrics_text_sample(text, sum, 1, label, value);
    text->suffix = "_count";
    metrics_text_sample(text, (double)count, 1, label, value);
}
