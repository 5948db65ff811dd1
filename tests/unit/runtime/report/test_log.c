/* Log lines: levels, fields, text and JSON, byte by byte. */
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A host that knows the time of day and nothing else. */
struct clock_host {
    struct muster_host host;
    uint64_t wall_ns;
};

static uint64_t clock_read(struct muster_host *host)
{
    return ((struct clock_host *)host)->wall_ns;
}

static const struct muster_host_ops clock_ops = {.wall_ns = clock_read};

/* An environment that logs to `page` at 2023-11-14 22:13:20.123. */
struct stage {
    struct muster_mem_limited mem;
    struct clock_host host;
    struct muster_env env;
    FILE *file;
    char *page;
    size_t page_bytes;
};

static struct stage *stage_open(bool is_json, enum muster_log_level level_max)
{
    static struct stage stage;

    memset(&stage, 0, sizeof(stage));
    muster_mem_limited_init(&stage.mem, muster_mem_system(), 0);
    stage.host =
        (struct clock_host){.host = {.ops = &clock_ops}, .wall_ns = UINT64_C(1700000000123456789)};
    stage.env.host = &stage.host.host;
    stage.file = open_memstream(&stage.page, &stage.page_bytes);
    assert_int_equal(
        muster_log_file_open(&stage.mem.mem, stage.file, is_json, level_max, &stage.env.log),
        MUSTER_OK);
    return &stage;
}

/* A record is in the file at once. */
static void stage_close(struct stage *stage, const char *expected)
{
    char text[4096];

    snprintf(text, sizeof(text), "%s", stage->page_bytes > 0 ? stage->page : "");
    muster_log_file_close(stage->env.log);
    fclose(stage->file);
    free(stage->page);
    assert_string_equal(text, expected);
    assert_int_equal(muster_mem_limited_fini(&stage->mem), 0);
}

static void a_text_record_names_level_event_and_fields(void **state)
{
    struct stage *stage = stage_open(false, MUSTER_LOG_TRACE);
    const char *nothing = NULL;

    (void)state;
    MUSTER_LOG(&stage->env, WARN, "peer_lost", "task", "worker:2", "epoch", UINT64_C(7), "why",
               "a b", "change", -1, "load", 0.5);
    MUSTER_LOG(&stage->env, ERROR, "worst", "most", UINT64_MAX, "least", INT64_MIN, "none",
               nothing);
    stage->host.wall_ns = UINT64_C(86400999999999);
    MUSTER_LOG(&stage->env, INFO, "ready");
    stage->env.host = NULL;
    MUSTER_LOG(&stage->env, DEBUG, "timeless", "yes", true);
    MUSTER_LOG(&stage->env, TRACE, "timeless");
    stage_close(stage, "2023-11-14T22:13:20.123Z warn  peer_lost task=worker:2 epoch=7 why=\"a b\" "
                       "change=-1 load=0.5\n"
                       "2023-11-14T22:13:20.123Z error worst most=18446744073709551615 "
                       "least=-9223372036854775808 none=null\n"
                       "1970-01-02T00:00:00.999Z info  ready\n"
                       "1970-01-01T00:00:00.000Z debug timeless yes=1\n"
                       "1970-01-01T00:00:00.000Z trace timeless\n");
}

static void text_is_quoted_where_it_could_be_misread(void **state)
{
    static const char *const rows[][2] = {
        {"", "\"\""},
        {"plain", "plain"},
        {"!~", "!~"},
        {" ", "\" \""},
        {"a b", "\"a b\""},
        {"a=b", "\"a=b\""},
        {"a\"b", "\"a\\\"b\""},
        {"a\\b", "\"a\\\\b\""},
        {"a\nb", "\"a\\nb\""},
        {"a\x7f", "\"a\\u007f\""},
        {"\xc3\xa9", "\"\xc3\xa9\""},
        {"\x80", "\"\xEF\xBF\xBD\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage *stage = stage_open(false, MUSTER_LOG_INFO);
        char expected[128];

        MUSTER_LOG(&stage->env, INFO, "e", "t", rows[i][0]);
        snprintf(expected, sizeof(expected), "2023-11-14T22:13:20.123Z info  e t=%s\n", rows[i][1]);
        stage_close(stage, expected);
    }
}

static void a_json_record_is_one_object(void **state)
{
    struct stage *stage = stage_open(true, MUSTER_LOG_INFO);
    const char *nothing = NULL;

    (void)state;
    MUSTER_LOG(&stage->env, ERROR, "broken", "text", "quote\" back\\ line\n bell\a", "none",
               nothing, "count", (size_t)3, "bad", "\xff\xc3\xa9", "plain", "word", "change", -1,
               "load", 0.5);
    MUSTER_LOG(&stage->env, INFO, "ready");
    stage_close(stage, "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"error\","
                       "\"event\":\"broken\",\"text\":\"quote\\\" back\\\\ line\\n bell\\u0007\","
                       "\"none\":null,\"count\":3,\"bad\":\"\xEF\xBF\xBD\xc3\xa9\","
                       "\"plain\":\"word\",\"change\":-1,\"load\":0.5}\n"
                       "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"info\","
                       "\"event\":\"ready\"}\n");
}

static void a_record_without_memory_is_lost_and_the_next_is_not(void **state)
{
    struct stage *stage = stage_open(false, MUSTER_LOG_INFO);

    (void)state;
    stage->mem.fail_at = 1;
    MUSTER_LOG(&stage->env, INFO, "lost");
    MUSTER_LOG(&stage->env, INFO, "kept");
    stage_close(stage, "2023-11-14T22:13:20.123Z info  kept\n");

    stage = stage_open(false, MUSTER_LOG_INFO);
    stage->mem.fail_at = 2; /* what has begun is not written either */
    MUSTER_LOG(
        &stage->env, INFO, "lost", "text",
        "that is longer than what a line begins with, so that it has to grow, which it cannot "
        "do here, and more of that kind until there are two hundred and fifty six letters or "
        "so, for which this sentence must go on somewhat longer than it would otherwise");
    assert_int_equal(stage->mem.fail_at, 0);
    stage_close(stage, "");

    stage = stage_open(false, MUSTER_LOG_INFO);
    stage->mem.fail_at = 1;
    assert_int_equal(muster_log_file_open(&stage->mem.mem, stage->file, false, MUSTER_LOG_INFO,
                                          &(struct muster_log *){NULL}),
                     MUSTER_RESOURCE_EXHAUSTED);
    stage_close(stage, "");
    muster_log_file_close(NULL);
}

static void check_wall(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                       const char *event, const struct muster_field *fields, size_t count)
{
    (void)level;
    (void)event;
    (void)fields;
    assert_int_equal(count, 3);
    assert_int_equal(wall_ns, log->level_max == MUSTER_LOG_INFO ? 77 : 0);
}

/* The host's time, or none. */
static void a_sink_gets_the_time_of_day(void **state)
{
    static const struct muster_log_ops ops = {.write = check_wall};
    struct clock_host host = {.host = {.ops = &clock_ops}, .wall_ns = 77};
    struct muster_log logs[] = {{.ops = &ops, .level_max = MUSTER_LOG_INFO},
                                {.ops = &ops, .level_max = MUSTER_LOG_WARN}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct muster_env env = {.log = &logs[i], .host = i == 0 ? &host.host : NULL};

        muster_log_write(&env, MUSTER_LOG_WARN, "event", NULL, 3);
    }
}

/* Warnings and errors go to the recorder, too, whatever the log takes. */
static void a_level_is_wanted_by_the_log_or_by_the_recorder(void **state)
{
    struct test_env test;

    (void)state;
    test_env_open(&test);
    for (int max = -1; max <= MUSTER_LOG_TRACE; max++) { /* -1: no log */
        for (unsigned is_traced = 0; is_traced < 2; is_traced++) {
            struct stage *stage = stage_open(false, max < 0 ? 0 : (enum muster_log_level)max);
            struct muster_env env = {.loop = test.env.loop, .log = max < 0 ? NULL : stage->env.log};
            struct muster_trace *trace = NULL;

            assert_int_equal(muster_trace_open(test.env.mem, 4, &trace), MUSTER_OK);
            env.trace = is_traced != 0 ? trace : NULL;
            for (int level = MUSTER_LOG_ERROR; level <= MUSTER_LOG_TRACE; level++) {
                bool is_logged = level <= max;
                bool is_event = is_traced != 0 && level <= MUSTER_LOG_WARN;
                size_t count = muster_trace_count(trace), bytes = stage->page_bytes;

                assert_int_equal(muster_log_wants(&env, (enum muster_log_level)level),
                                 is_logged || is_event);
                muster_log_write(&env, (enum muster_log_level)level, "event", NULL, 0);
                assert_int_equal(stage->page_bytes > bytes, is_logged);
                assert_int_equal(muster_trace_count(trace) - count, is_event);
                if (!is_event)
                    continue;
                assert_string_equal(muster_trace_at(trace, count)->kind, "logged");
                assert_string_equal(muster_trace_at(trace, count)->text, "event");
                assert_int_equal(muster_trace_at(trace, count)->a, level);
                assert_int_equal(muster_trace_at(trace, count)->b, 0);
                assert_int_equal(muster_trace_at(trace, count)->c, 0);
            }
            muster_trace_close(trace);
            stage->page_bytes = 0; /* the lines are another case's */
            stage_close(stage, "");
        }
    }
    test_env_close(&test);
}

static void level_names_are_read_without_case(void **state)
{
    static const char *const rows[][2] = {{"error", "ERROR"},
                                          {"warn", "Warn"},
                                          {"info", "inFO"},
                                          {"debug", "DeBug"},
                                          {"trace", "TRACE"}};
    static const char *const others[] = {"", "loud", "warning", "err", "trace "};

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 2; j++) {
            enum muster_log_level level = i == 0 ? MUSTER_LOG_TRACE : MUSTER_LOG_ERROR;

            assert_int_equal(muster_log_level_parse(rows[i][j], &level), MUSTER_OK);
            assert_int_equal(level, i);
        }
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        enum muster_log_level level = MUSTER_LOG_INFO;

        assert_int_equal(muster_log_level_parse(others[i], &level), MUSTER_INVALID_ARGUMENT);
        assert_int_equal(level, MUSTER_LOG_INFO);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_text_record_names_level_event_and_fields),
        cmocka_unit_test(text_is_quoted_where_it_could_be_misread),
        cmocka_unit_test(a_json_record_is_one_object),
        cmocka_unit_test(a_record_without_memory_is_lost_and_the_next_is_not),
        cmocka_unit_test(a_sink_gets_the_time_of_day),
        cmocka_unit_test(a_level_is_wanted_by_the_log_or_by_the_recorder),
        cmocka_unit_test(level_names_are_read_without_case),
    };

    return cmocka_run_group_tests_name("log", cases, NULL, NULL);
}
