/* Log lines: levels, fields, text and JSON. */
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
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

static char *page;
static size_t page_bytes;

static FILE *open_log(struct muster_env *env, bool is_json, enum muster_log_level level_max)
{
    FILE *file = open_memstream(&page, &page_bytes);

    assert_int_equal(muster_log_file_open(env->mem, file, is_json, level_max, &env->log),
                     MUSTER_OK);
    return file;
}

/* What was written after the time stamp. */
static const char *close_log(struct muster_env *env, FILE *file, const char *from)
{
    static char text[1024];
    const char *at;

    muster_log_file_close(env->log);
    fclose(file);
    at = strstr(page, from);
    snprintf(text, sizeof(text), "%s", at == NULL ? page : at);
    free(page);
    return text;
}

static void a_text_record_names_level_event_and_fields(void **state)
{
    struct muster_env *env = env_of(state);
    FILE *file = open_log(env, false, MUSTER_LOG_INFO);

    MUSTER_LOG(env, WARN, "peer_lost", "task", "worker:2", "epoch", UINT64_C(7), "why", "a b",
               "change", -1, "load", 0.5);

    assert_string_equal(close_log(env, file, "warn"),
                        "warn  peer_lost task=worker:2 epoch=7 why=\"a b\" change=-1 load=0.5\n");
}

static void a_json_record_is_one_object(void **state)
{
    struct muster_env *env = env_of(state);
    FILE *file = open_log(env, true, MUSTER_LOG_INFO);
    const char *nothing = NULL;

    MUSTER_LOG(env, ERROR, "broken", "text", "quote\" back\\ line\n bell\a", "none", nothing,
               "count", (size_t)3, "bad", "\xff\xc3\xa9");

    assert_string_equal(
        close_log(env, file, "\"level\""),
        "\"level\":\"error\",\"event\":\"broken\",\"text\":\"quote\\\" back\\\\ line\\n "
        "bell\\u0007\",\"none\":null,\"count\":3,\"bad\":\"\xEF\xBF\xBD\xc3\xa9\"}\n");
}

static void a_record_without_fields_is_written(void **state)
{
    struct muster_env *env = env_of(state);
    FILE *file = open_log(env, false, MUSTER_LOG_INFO);

    MUSTER_LOG(env, INFO, "ready");

    assert_string_equal(close_log(env, file, "info"), "info  ready\n");
}

static void verbose_levels_are_dropped(void **state)
{
    struct muster_env *env = env_of(state);
    FILE *file = open_log(env, false, MUSTER_LOG_WARN);

    MUSTER_LOG(env, INFO, "dropped", "a", 1);
    assert_false(muster_log_wants(env, MUSTER_LOG_INFO));
    assert_true(muster_log_wants(env, MUSTER_LOG_WARN));

    assert_string_equal(close_log(env, file, "dropped"), "");
}

static void a_silent_environment_takes_every_record(void **state)
{
    MUSTER_LOG(env_of(state), ERROR, "nobody_listens", "a", 1);
    assert_false(muster_log_wants(env_of(state), MUSTER_LOG_ERROR));
}

static void level_names_are_read_without_case(void **state)
{
    enum muster_log_level level = MUSTER_LOG_ERROR;

    (void)state;
    assert_int_equal(muster_log_level_parse("Trace", &level), MUSTER_OK);
    assert_int_equal(level, MUSTER_LOG_TRACE);
    assert_int_equal(muster_log_level_parse("loud", &level), MUSTER_INVALID_ARGUMENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_text_record_names_level_event_and_fields), CASE(a_json_record_is_one_object),
        CASE(a_record_without_fields_is_written),         CASE(verbose_levels_are_dropped),
        CASE(a_silent_environment_takes_every_record),    CASE(level_names_are_read_without_case),
    };

    return cmocka_run_group_tests_name("log", cases, NULL, NULL);
}
