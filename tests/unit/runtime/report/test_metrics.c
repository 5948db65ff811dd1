/* Metrics: registration, histograms, the Prometheus page. */
#include "test_env.h"

#include <math.h>
#include <string.h>

static char *format_page(struct muster_env *env, struct muster_metrics *metrics)
{
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(muster_metrics_format(metrics, env->mem, &text, &bytes), MUSTER_OK);
    assert_int_equal(strlen(text), bytes);
    return text;
}

static void series_of_one_name_stand_together(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_metric a, other, b;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_metric_init(&a, metrics, MUSTER_COUNTER, "m_bytes_total", "Bytes.", "peer=\"a\"");
    muster_metric_init(&other, metrics, MUSTER_GAUGE, "m_open", "Open.", NULL);
    muster_metric_init(&b, metrics, MUSTER_COUNTER, "m_bytes_total", "Bytes.", "peer=\"b\"");
    muster_metric_add(&a, 5);
    muster_metric_set(&other, -2);
    muster_metric_add(&b, 7);
    text = format_page(env, metrics);

    assert_string_equal(text, "# HELP m_bytes_total Bytes.\n"
                              "# TYPE m_bytes_total counter\n"
                              "m_bytes_total{peer=\"a\"} 5\n"
                              "m_bytes_total{peer=\"b\"} 7\n"
                              "# HELP m_open Open.\n"
                              "# TYPE m_open gauge\n"
                              "m_open -2\n");
    muster_mem_free(env->mem, text);
    muster_metric_fini(&a);
    muster_metrics_close(metrics);
    muster_metric_fini(&b);
}

/* Whatever the order in which they come. */
static void names_are_shown_once_in_the_order_of_their_first_series(void **state)
{
    static const char *const names[] = {"m_b", "m_a", "m_c"};
    struct muster_env *env = test_env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_metric series[9], unseen;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    for (size_t i = 0; i < 9; i++) {
        muster_metric_init(&series[i], metrics, MUSTER_GAUGE, names[i % 3], "H.", i < 3 ? "" : "x");
        muster_metric_set(&series[i], (int64_t)i);
    }
    muster_metric_init(&unseen, NULL, MUSTER_COUNTER, "m_unseen", "H.", NULL);
    muster_metric_add(&unseen, 1);
    muster_metric_fini(&series[3]);
    muster_metric_fini(&series[3]);
    text = format_page(env, metrics);

    assert_string_equal(text, "# HELP m_b H.\n# TYPE m_b gauge\nm_b 0\nm_b{x} 6\n"
                              "# HELP m_a H.\n# TYPE m_a gauge\nm_a 1\nm_a{x} 4\nm_a{x} 7\n"
                              "# HELP m_c H.\n# TYPE m_c gauge\nm_c 2\nm_c{x} 5\nm_c{x} 8\n");
    muster_mem_free(env->mem, text);
    muster_metrics_close(metrics);
    for (size_t i = 0; i < 9; i++)
        muster_metric_fini(&series[i]); /* they outlive the page */
    muster_metric_fini(&unseen);
    muster_metrics_close(NULL);
}

static void a_value_falls_into_the_bucket_that_ends_at_or_above_it(void **state)
{
    static const double upper[] = {-1, 0, 2.5};
    static const struct muster_histogram_bounds bounds = {upper, 3};
    static const struct {
        const struct muster_histogram_bounds *bounds;
        double value;
        int bucket; /* -1: none */
    } rows[] = {
        {NULL, -5, 0},
        {NULL, 0, 0},
        {NULL, 1, 0},
        {NULL, 1.0000001, 1},
        {NULL, 2, 1},
        {NULL, 2.0000001, 2},
        {NULL, 4, 2},
        {NULL, 1099511627776.0, 40}, /* 2^40 */
        {NULL, 1099511627777.0, 41}, /* the last, of all that is larger */
        {NULL, 2199023255552.0, 41}, /* 2^41 */
        {NULL, 2199023255553.0, 41},
        {NULL, 1e300, 41},
        {NULL, (double)INFINITY, 41},
        {NULL, (double)NAN, -1},
        {&bounds, -1.5, 0},
        {&bounds, -1, 0},
        {&bounds, -0.5, 1},
        {&bounds, 0, 1},
        {&bounds, 2.5, 2},
        {&bounds, 2.6, 3},
        {&bounds, (double)INFINITY, 3},
        {&bounds, (double)NAN, -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_histogram histogram;
        bool is_counted = rows[i].bucket >= 0;

        memset(&histogram, 0xA5, sizeof(histogram));
        muster_histogram_init(&histogram, NULL, "m_us", "Wait.", NULL, rows[i].bounds);
        muster_histogram_observe(&histogram, rows[i].value);
        assert_int_equal(histogram.count, is_counted);
        assert_true(histogram.sum == (is_counted ? rows[i].value : 0));
        for (int bucket = 0; bucket < MUSTER_HISTOGRAM_BUCKETS; bucket++)
            assert_int_equal(histogram.buckets[bucket], bucket == rows[i].bucket);
        muster_histogram_fini(&histogram);
    }
}

/* Up to the one that holds the largest observation; +Inf stands for the rest. */
static void buckets_of_powers_of_two_are_shown_as_far_as_they_count(void **state)
{
    static const double values[] = {1, 1099511627776.0, 1e300};
    static const unsigned lines[] = {1, 41, 41};
    struct muster_env *env = test_env_of(state);

    for (size_t i = 0; i < 3; i++) {
        struct muster_metrics *metrics = NULL;
        struct muster_histogram wait;
        unsigned count = 0;
        char *text;

        assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
        muster_histogram_init(&wait, metrics, "m_us", "Wait.", NULL, NULL);
        text = format_page(env, metrics);
        assert_null(strstr(text, "le=\"1\""));
        assert_non_null(strstr(text, "m_us_bucket{le=\"+Inf\"} 0\n"));
        muster_mem_free(env->mem, text);
        muster_histogram_observe(&wait, values[i]);
        text = format_page(env, metrics);
        for (const char *at = text; (at = strstr(at, "_bucket{le=\"")) != NULL; at++)
            count++;
        assert_int_equal(count, lines[i] + 1);
        assert_int_equal(strstr(text, "le=\"1099511627776\"") != NULL, i > 0);
        assert_non_null(strstr(text, "m_us_bucket{le=\"+Inf\"} 1\n"));
        muster_mem_free(env->mem, text);
        muster_histogram_fini(&wait);
        muster_metrics_close(metrics);
    }
}

static void a_histogram_counts_cumulatively_by_powers_of_two(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_histogram wait;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_histogram_init(&wait, metrics, "m_us", "Wait.", "q=\"1\"", NULL);
    muster_histogram_observe(&wait, 0.5);
    muster_histogram_observe(&wait, 2);
    muster_histogram_observe(&wait, 3);
    text = format_page(env, metrics);

    assert_string_equal(text, "# HELP m_us Wait.\n"
                              "# TYPE m_us histogram\n"
                              "m_us_bucket{q=\"1\",le=\"1\"} 1\n"
                              "m_us_bucket{q=\"1\",le=\"2\"} 2\n"
                              "m_us_bucket{q=\"1\",le=\"4\"} 3\n"
                              "m_us_bucket{q=\"1\",le=\"+Inf\"} 3\n"
                              "m_us_sum{q=\"1\"} 5.5\n"
                              "m_us_count{q=\"1\"} 3\n");
    muster_mem_free(env->mem, text);
    muster_metrics_close(metrics);
}

static void a_histogram_with_bounds_shows_them_all(void **state)
{
    static const double upper[] = {0, 0.00001, 0.5, 4294967296.0};
    static const struct muster_histogram_bounds bounds = {upper, 4};
    struct muster_env *env = test_env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_histogram wait;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_histogram_init(&wait, metrics, "m_seconds", "Wait.", NULL, &bounds);
    muster_histogram_observe(&wait, 0);
    muster_histogram_observe(&wait, 0.5);
    muster_histogram_observe(&wait, 0.25);
    muster_histogram_observe(&wait, 5e9);
    text = format_page(env, metrics);

    assert_string_equal(text, "# HELP m_seconds Wait.\n"
                              "# TYPE m_seconds histogram\n"
                              "m_seconds_bucket{le=\"0\"} 1\n"
                              "m_seconds_bucket{le=\"1e-05\"} 1\n"
                              "m_seconds_bucket{le=\"0.5\"} 3\n"
                              "m_seconds_bucket{le=\"4294967296\"} 3\n"
                              "m_seconds_bucket{le=\"+Inf\"} 4\n"
                              "m_seconds_sum 5000000000.75\n"
                              "m_seconds_count 4\n");
    muster_mem_free(env->mem, text);
    muster_histogram_fini(&wait);
    muster_metrics_close(metrics);
}

static void a_metric_can_show_a_number_elsewhere(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_metric calls;
    int64_t count = 1;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_metric_init(&calls, metrics, MUSTER_COUNTER, "m_total", "Calls.", NULL);
    muster_metric_show(&calls, &count);
    count = 3;
    text = format_page(env, metrics);

    assert_non_null(strstr(text, "m_total 3\n"));
    muster_mem_free(env->mem, text);
    muster_metrics_close(metrics);
}

static void read_clock(struct muster_metrics_collector *collector)
{
    struct muster_metric *metric = collector->data;

    muster_metric_add(metric, 1500);
}

static void a_collector_sets_values_when_the_page_is_asked_for(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_metric seconds;
    struct muster_metrics_collector collector = {.data = &seconds, .collect = read_clock};
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_metric_init(&seconds, metrics, MUSTER_COUNTER, "m_seconds_total", "Time.", NULL);
    seconds.per_unit = 1000;
    muster_metrics_collector_add(metrics, &collector);
    text = format_page(env, metrics);

    assert_non_null(strstr(text, "\nm_seconds_total 1.5\n"));
    muster_mem_free(env->mem, text);
    muster_metrics_collector_remove(&collector);
    text = format_page(env, metrics);

    assert_non_null(strstr(text, "\nm_seconds_total 1.5\n"));
    muster_mem_free(env->mem, text);
    muster_metric_fini(&seconds);
    muster_metrics_close(metrics);
}

static void remove_itself(struct muster_metrics_collector *collector)
{
    ++*(unsigned *)collector->data;
    muster_metrics_collector_remove(collector);
}

static void count_call(struct muster_metrics_collector *collector)
{
    ++*(unsigned *)collector->data;
}

static void a_collector_may_go_while_it_runs(void **state)
{
    struct muster_env *env = test_env_of(state);
    struct muster_metrics *metrics = NULL;
    unsigned counts[3] = {0};
    struct muster_metrics_collector collectors[] = {
        {.data = &counts[0], .collect = remove_itself},
        {.data = &counts[1], .collect = count_call},
        {.data = &counts[2], .collect = count_call},
    };

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_metrics_collector_add(metrics, &collectors[0]);
    muster_metrics_collector_add(metrics, &collectors[1]);
    muster_metrics_collector_add(NULL, &collectors[2]); /* nobody asks it */
    for (unsigned i = 1; i <= 2; i++) {
        muster_mem_free(env->mem, format_page(env, metrics));
        assert_int_equal(counts[0] + 10 * counts[1] + 100 * counts[2], 1 + 10 * i);
    }
    muster_metrics_close(metrics);
    for (size_t i = 0; i < 3; i++) /* after the close, too */
        muster_metrics_collector_remove(&collectors[i]);
}

static void without_memory_the_page_is_refused(void **state)
{
    struct test_env *test = *state;
    struct muster_metrics *metrics = NULL;
    struct muster_metric metric;
    char *text = NULL;
    size_t bytes = 0, blocks;

    test->mem.fail_at = 1;
    assert_int_equal(muster_metrics_open(test->env.mem, &metrics), MUSTER_RESOURCE_EXHAUSTED);
    assert_null(metrics);
    assert_int_equal(muster_metrics_open(test->env.mem, &metrics), MUSTER_OK);
    blocks = test->mem.block_count;
    test->mem.fail_at = 1;
    assert_int_equal(muster_metrics_format(metrics, test->env.mem, &text, &bytes),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_metrics_format(metrics, test->env.mem, &text, &bytes), MUSTER_OK);
    assert_string_equal(text, "");
    muster_mem_free(test->env.mem, text);

    muster_metric_init(&metric, metrics, MUSTER_COUNTER, "m_total",
                       "A help that is longer than what a text begins with, so that it grows: "
                       "when it cannot, what it had is given back, too. A help that is longer than "
                       "what a text begins with.",
                       "label=\"a value that is long, too: so long that the page must grow\"");
    text = NULL;
    test->mem.fail_at = 2;
    assert_int_equal(muster_metrics_format(metrics, test->env.mem, &text, &bytes),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_null(text);
    assert_int_equal(test->mem.fail_at, 0);
    assert_int_equal(test->mem.block_count, blocks);
    muster_metrics_close(metrics);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(series_of_one_name_stand_together),
        CASE(a_histogram_counts_cumulatively_by_powers_of_two),
        CASE(a_histogram_with_bounds_shows_them_all),
        CASE(a_metric_can_show_a_number_elsewhere),
        CASE(a_collector_sets_values_when_the_page_is_asked_for),
        CASE(names_are_shown_once_in_the_order_of_their_first_series),
        CASE(a_value_falls_into_the_bucket_that_ends_at_or_above_it),
        CASE(buckets_of_powers_of_two_are_shown_as_far_as_they_count),
        CASE(a_collector_may_go_while_it_runs),
        CASE(without_memory_the_page_is_refused),
    };

    return cmocka_run_group_tests_name("metrics", cases, NULL, NULL);
}
