/* Metrics in both formats. */
#include <muster/http.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void play_printf(struct muster_http_reply *reply, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static void play_add(struct muster_http_reply *reply, const void *bytes, size_t count);
static const char *play_header(const struct muster_http_reply *reply, const char *name);
static void play_set_type(struct muster_http_reply *reply, const char *type);
#define muster_http_reply_printf         play_printf
#define muster_http_reply_add            play_add
#define muster_http_reply_request_header play_header
#define muster_http_reply_set_type       play_set_type
#include "tools/jobs/metrics_text.c"

#include "test_env.h"

static char page[4096];
static size_t page_bytes;
static const char *accepted, *page_type;

static void play_add(struct muster_http_reply *reply, const void *bytes, size_t count)
{
    (void)reply;
    assert_true(page_bytes + count < sizeof(page));
    memcpy(page + page_bytes, bytes, count);
    page_bytes += count;
    page[page_bytes] = '\0';
}

static void play_printf(struct muster_http_reply *reply, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    assert_true(length >= 0 && (size_t)length < sizeof(text));
    play_add(reply, text, (size_t)length);
}

static const char *play_header(const struct muster_http_reply *reply, const char *name)
{
    (void)reply;
    assert_string_equal(name, "Accept");
    return accepted;
}

static void play_set_type(struct muster_http_reply *reply, const char *type)
{
    (void)reply;
    page_type = type;
}

static void page_begin(struct metrics_text *text, const char *accept)
{
    page_bytes = 0;
    page[0] = '\0';
    accepted = accept;
    metrics_text_begin(text, NULL);
}

/* A family of each kind, with a unit and without. */
static void write_all(struct metrics_text *text)
{
    static const double bounds[] = {0.5, 1};
    static const uint64_t counts[] = {2, 1, 4};

    metrics_text_family(text, METRICS_INFO, "run", "", "The job.");
    metrics_text_sample(text, 1, 2, "job", "a\"b\\c\nd", "rank", "0");
    metrics_text_family(text, METRICS_COUNTER, "time_seconds", "seconds", "Time.");
    metrics_text_sample(text, 1.5, 0);
    metrics_text_family(text, METRICS_GAUGE, "step", "", "Step.");
    metrics_text_sample(text, 3, 0);
    metrics_text_family(text, METRICS_HISTOGRAM, "stop_seconds", "seconds", "Stops.");
    metrics_text_histogram(text, "verdict", "retry", bounds, 2, counts, 9.25);
    metrics_text_end(text);
}

#define BUCKETS                                                                                    \
    "stop_seconds_bucket{verdict=\"retry\",le=\"0.5\"} 2\n"                                        \
    "stop_seconds_bucket{verdict=\"retry\",le=\"1.0\"} 3\n"                                        \
    "stop_seconds_bucket{verdict=\"retry\",le=\"+Inf\"} 7\n"                                       \
    "stop_seconds_sum{verdict=\"retry\"} 9.25\n"                                                   \
    "stop_seconds_count{verdict=\"retry\"} 7\n"

static void who_asks_for_open_metrics_gets_them(void **state)
{
    struct metrics_text text;

    (void)state;
    page_begin(&text, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    write_all(&text);

    assert_string_equal(page_type, TYPE_OPEN);
    assert_string_equal(page, "# TYPE run info\n"
                              "# HELP run The job.\n"
                              "run_info{job=\"a\\\"b\\\\c\\nd\",rank=\"0\"} 1\n"
                              "# TYPE time_seconds counter\n"
                              "# UNIT time_seconds seconds\n"
                              "# HELP time_seconds Time.\n"
                              "time_seconds_total 1.5\n"
                              "# TYPE step gauge\n"
                              "# HELP step Step.\n"
                              "step 3\n"
                              "# TYPE stop_seconds histogram\n"
                              "# UNIT stop_seconds seconds\n"
                              "# HELP stop_seconds Stops.\n" BUCKETS "# EOF\n");
}

static void all_others_get_the_text_of_prometheus(void **state)
{
    static const char *const accepts[] = {NULL, "*/*", "text/plain"};

    (void)state;
    for (size_t i = 0; i < sizeof(accepts) / sizeof(accepts[0]); i++) {
        struct metrics_text text;

        print_message("Accept: %s\n", accepts[i] != NULL ? accepts[i] : "(none)");
        page_begin(&text, accepts[i]);
        write_all(&text);
        assert_string_equal(page_type, TYPE_PLAIN);
        assert_string_equal(page, "# HELP run_info The job.\n"
                                  "# TYPE run_info gauge\n"
                                  "run_info{job=\"a\\\"b\\\\c\\nd\",rank=\"0\"} 1\n"
                                  "# HELP time_seconds_total Time.\n"
                                  "# TYPE time_seconds_total counter\n"
                                  "time_seconds_total 1.5\n"
                                  "# HELP step Step.\n"
                                  "# TYPE step gauge\n"
                                  "step 3\n"
                                  "# HELP stop_seconds Stops.\n"
                                  "# TYPE stop_seconds histogram\n" BUCKETS);
    }
}

static void a_number_is_as_short_as_it_reads_back(void **state)
{
    static const struct {
        double value;
        const char *text, *bound;
    } rows[] = {
        {0, "0", "0.0"},
        {1e6, "1e+06", "1e+06"},
        {123456789, "123456789", "123456789.0"},
        {0.1, "0.1", "0.1"},
        {0.30000000000000004, "0.30000000000000004", "0.30000000000000004"},
        {(double)NAN, "NaN", "NaN"},
        {(double)INFINITY, "+Inf", "+Inf"},
        {-(double)INFINITY, "-Inf", "-Inf"},
    };
    char text[40];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(format_number(rows[i].value, false, text, sizeof(text)), rows[i].text);
        assert_string_equal(format_number(rows[i].value, true, text, sizeof(text)), rows[i].bound);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_asks_for_open_metrics_gets_them),
        cmocka_unit_test(all_others_get_the_text_of_prometheus),
        cmocka_unit_test(a_number_is_as_short_as_it_reads_back),
    };

    return cmocka_run_group_tests_name("metrics_text", tests, NULL, NULL);
}
