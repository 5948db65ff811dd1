/* Metrics: registration, histograms, the Prometheus page. */
#include "test_env.h"

#include <string.h>

static int set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    test_env_close(*state);
    return 0;
}

static struct muster_env *env_of(void **state)
{
    return &((struct test_env *)*state)->env;
}

static char *format(struct muster_env *env, struct muster_metrics *metrics)
{
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(muster_metrics_format(metrics, env->mem, &text, &bytes), MUSTER_OK);
    assert_int_equal(strlen(text), bytes);
    return text;
}

static void series_of_one_name_stand_together(void **state)
{
    struct muster_env *env = env_of(state);
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
    text = format(env, metrics);

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

static void a_histogram_counts_cumulatively_by_powers_of_two(void **state)
{
    struct muster_env *env = env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_histogram wait;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_histogram_init(&wait, metrics, "m_us", "Wait.", "q=\"1\"", NULL);
    muster_histogram_observe(&wait, 0.5);
    muster_histogram_observe(&wait, 2);
    muster_histogram_observe(&wait, 3);
    text = format(env, metrics);

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
    struct muster_env *env = env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_histogram wait;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_histogram_init(&wait, metrics, "m_seconds", "Wait.", NULL, &bounds);
    muster_histogram_observe(&wait, 0);
    muster_histogram_observe(&wait, 0.5);
    muster_histogram_observe(&wait, 0.25);
    muster_histogram_observe(&wait, 5e9);
    text = format(env, metrics);

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
    struct muster_env *env = env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_metric calls;
    int64_t count = 1;
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_metric_init(&calls, metrics, MUSTER_COUNTER, "m_total", "Calls.", NULL);
    muster_metric_show(&calls, &count);
    count = 3;
    text = format(env, metrics);

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
    struct muster_env *env = env_of(state);
    struct muster_metrics *metrics = NULL;
    struct muster_metric seconds;
    struct muster_metrics_collector collector = {.data = &seconds, .collect = read_clock};
    char *text;

    assert_int_equal(muster_metrics_open(env->mem, &metrics), MUSTER_OK);
    muster_metric_init(&seconds, metrics, MUSTER_COUNTER, "m_seconds_total", "Time.", NULL);
    seconds.per_unit = 1000;
    muster_metrics_collector_add(metrics, &collector);
    text = format(env, metrics);

    assert_non_null(strstr(text, "\nm_seconds_total 1.5\n"));
    muster_mem_free(env->mem, text);
    muster_metrics_collector_remove(&collector);
    text = format(env, metrics);

    assert_non_null(strstr(text, "\nm_seconds_total 1.5\n"));
    muster_mem_free(env->mem, text);
    muster_metric_fini(&seconds);
    muster_metrics_close(metrics);
}

static void values_out_of_scale_fall_into_the_last_bucket(void **state)
{
    struct muster_histogram wait;

    (void)state;
    muster_histogram_init(&wait, NULL, "m_us", "Wait.", NULL, NULL);
    muster_histogram_observe(&wait, 1e300);
    muster_histogram_observe(&wait, -1);
    muster_histogram_observe(&wait, 0.0 / 0.0);

    assert_int_equal(wait.buckets[MUSTER_HISTOGRAM_BUCKETS - 1], 1);
    assert_int_equal(wait.buckets[0], 1);
    assert_int_equal(wait.count, 2);
}

static void without_memory_the_page_is_refused(void **state)
{
    struct test_env *test = *state;
    struct muster_metrics *metrics = NULL;
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(muster_metrics_open(test->env.mem, &metrics), MUSTER_OK);
    test->mem.fail_at = 1;
    assert_int_equal(muster_metrics_format(metrics, test->env.mem, &text, &bytes),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_metrics_format(metrics, test->env.mem, &text, &bytes), MUSTER_OK);
    assert_string_equal(text, "");
    muster_mem_free(test->env.mem, text);
    muster_metrics_close(metrics);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(series_of_one_name_stand_together),
        CASE(a_histogram_counts_cumulatively_by_powers_of_two),
        CASE(a_histogram_with_bounds_shows_them_all),
        CASE(a_metric_can_show_a_number_elsewhere),
        CASE(a_collector_sets_values_when_the_page_is_asked_for),
        CASE(values_out_of_scale_fall_into_the_last_bucket),
        CASE(without_memory_the_page_is_refused),
    };

    return cmocka_run_group_tests_name("metrics", cases, NULL, NULL);
}
