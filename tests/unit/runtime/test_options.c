/* Option tables: precedence, forms, errors that name the culprit, help. */
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include <muster/options.h>

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

struct settings {
    bool is_json;
    const char *job;
    const char *path;
    const char *wire;
    struct muster_option_texts kills;
    uint64_t count;
    uint64_t timeout_ns;
    uint64_t bytes;
    double rate;
};

static bool begins_with_a(const char *text, struct muster_error *ret_error)
{
    if (text[0] != 'a')
        muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "\"%s\" does not begin with a", text);
    return text[0] == 'a';
}

static const struct muster_option rows[] = {
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Write JSON."},
    {.name = "job",
     .variable = "MUSTER_TEST_JOB",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, job),
     .fallback = "default",
     .help = "Name of the job."},
    {.name = "wire",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct settings, wire),
     .choices = "auto|shm|tcp",
     .fallback = "auto",
     .help = "The wire."},
    {.name = "kill",
     .kind = MUSTER_OPTION_TEXTS,
     .offset = offsetof(struct settings, kills),
     .variable = "MUSTER_TEST_KILL",
     .value = "TASK@step=S",
     .help = "Kill a task."},
    {.name = "count",
     .letter = 'n',
     .variable = "MUSTER_TEST_COUNT",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, count),
     .fallback = "1",
     .min = 1,
     .max = 100,
     .unit = "tasks",
     .help = "How many workers."},
    {.name = "min-members-timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, timeout_ns),
     .fallback = "60",
     .unit = "s",
     .min = 2 * MUSTER_NS_PER_MS,
     .max = 120 * MUSTER_NS_PER_S,
     .help =
         "How long to wait for a rejoin before the job gives up, which is the last thing that it "
         "ever does."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, bytes),
     .min = 2048,
     .help = "Size."},
    {.name = "path",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, path),
     .check = begins_with_a,
     .help = "Checked."},
    {.name = "rate",
     .kind = MUSTER_OPTION_REAL,
     .offset = offsetof(struct settings, rate),
     .help = "Rate."},
};

static const struct muster_options options = {
    .command = "muster test",
    .usage = "[options]",
    .about = "Test.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static struct muster_error error;
static int rest;
static char *argv[16];

static enum muster_rc parse_with(const struct muster_options *table, const char *line,
                                 struct settings *settings)
{
    static char copy[256];
    int argc = 1;

    memset(settings, 0, sizeof(*settings));
    memset(argv, 0, sizeof(argv));
    error.text[0] = '\0';
    snprintf(copy, sizeof(copy), "%s", line);
    argv[0] = copy + sizeof(copy) - 1;
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    return muster_options_parse(table, muster_vars_system(), argc, argv, settings, &rest, &error);
}

static enum muster_rc parse(const char *line, struct settings *settings)
{
    return parse_with(&options, line, settings);
}

static void defaults_fill_what_nobody_gave(void **state)
{
    struct settings settings;

    (void)state;
    assert_int_equal(parse("", &settings), MUSTER_OK);
    assert_string_equal(settings.job, "default");
    assert_string_equal(settings.wire, "auto");
    assert_int_equal(settings.count, 1);
    assert_int_equal(settings.timeout_ns, 60 * MUSTER_NS_PER_S);
    assert_false(settings.is_json);
    assert_int_equal(settings.kills.count, 0);
    assert_int_equal(rest, 1);
}

static void a_flag_beats_the_variable_and_the_variable_the_default(void **state)
{
    struct settings settings;

    (void)state;
    setenv("MUSTER_TEST_COUNT", "7", 1);
    setenv("MUSTER_TEST_KILL", "worker:0", 1);
    assert_int_equal(parse("", &settings), MUSTER_OK);
    assert_int_equal(settings.count, 7);
    assert_string_equal(settings.kills.values[0], "worker:0");
    assert_int_equal(parse("-n 8 --kill a --kill=b", &settings), MUSTER_OK);
    assert_int_equal(settings.count, 8);
    assert_int_equal(settings.kills.count, 2);
    assert_string_equal(settings.kills.values[0], "a");
    assert_string_equal(settings.kills.values[1], "b");
    unsetenv("MUSTER_TEST_COUNT");
    unsetenv("MUSTER_TEST_KILL");
}

static void every_form_of_a_value_is_read(void **state)
{
    struct settings settings;

    (void)state;
    assert_int_equal(parse("--json --job=x --wire tcp -n4 --min-members-timeout 250ms "
                           "--bytes=64K --rate -1.5",
                           &settings),
                     MUSTER_OK);
    assert_true(settings.is_json);
    assert_string_equal(settings.job, "x");
    assert_string_equal(settings.wire, "tcp");
    assert_int_equal(settings.count, 4);
    assert_int_equal(settings.timeout_ns, 250 * MUSTER_NS_PER_MS);
    assert_int_equal(settings.bytes, 65536);
    assert_true(settings.rate == -1.5);
    assert_int_equal(parse("--json --no-json --min-members-timeout=1.5", &settings), MUSTER_OK);
    assert_false(settings.is_json);
    assert_int_equal(settings.timeout_ns, 1500 * MUSTER_NS_PER_MS);
}

static void words_are_moved_behind_the_options_in_order(void **state)
{
    struct settings settings;

    (void)state;
    assert_int_equal(parse("one --job x two --json - -- --three", &settings), MUSTER_OK);
    assert_true(settings.is_json);
    assert_string_equal(argv[rest], "one");
    assert_string_equal(argv[rest + 1], "two");
    assert_string_equal(argv[rest + 2], "-");
    assert_string_equal(argv[rest + 3], "--three");
    assert_null(argv[rest + 4]);
}

static void a_command_that_stops_at_a_word_leaves_the_rest_alone(void **state)
{
    struct muster_options stops = options;
    struct settings settings;

    (void)state;
    stops.stops_at_word = true;
    assert_int_equal(parse_with(&stops, "-n 2 prog --json -x", &settings), MUSTER_OK);
    assert_false(settings.is_json);
    assert_string_equal(argv[rest], "prog");
    assert_string_equal(argv[rest + 2], "-x");
    assert_int_equal(parse_with(&stops, "-n 2 -- prog --json", &settings), MUSTER_OK);
    assert_string_equal(argv[rest], "prog");
}

static void errors_name_the_culprit(void **state)
{
    struct row {
        const char *line, *text;
    } cases[] = {
        {"--jobb x", "--jobb: unknown option; did you mean --job?"},
        {"--min-member-timeout=3", "--min-member-timeout: unknown option; did you mean "
                                   "--min-members-timeout?"},
        {"--zzzzzzzz", "--zzzzzzzz: unknown option"},
        {"-x", "-x: unknown option"},
        {"--job", "--job: a value must follow"},
        {"--job --json", "--job: a value must follow"},
        {"--job -- x", "--job: a value must follow"},
        {"--job=", "--job: \"\" is empty: give it a value, or leave it out"},
        {"--kill=", "--kill: \"\" is empty: give it a value, or leave it out"},
        {"--path=b", "--path: \"b\" does not begin with a"},
        {"--min-members-timeout 1us", "--min-members-timeout: \"1us\" is too small: at least 2ms"},
        {"--min-members-timeout 3m", "--min-members-timeout: \"3m\" is too large: at most 2m"},
        {"--bytes 1", "--bytes: \"1\" is too small: at least 2K"},
        {"--count=four", "--count: \"four\" is not a whole number"},
        {"--count=-1", "--count: \"-1\" is not a whole number"},
        {"-n 0", "-n: \"0\" is too small: at least 1"},
        {"-n 101", "-n: \"101\" is too large: at most 100"},
        {"-n 99999999999999999999", "-n: \"99999999999999999999\" is too large: at most 100"},
        {"--wire=udp", "--wire: must be one of auto|shm|tcp, got \"udp\""},
        {"--wire=", "--wire: must be one of auto|shm|tcp, got \"\""},
        {"--json=maybe", "--json: \"maybe\" is neither true nor false"},
        {"--min-members-timeout 3d",
         "--min-members-timeout: \"3d\" is not a duration such as 10s or 250ms"},
        {"--bytes 1.2.3", "--bytes: \"1.2.3\" is not a size such as 65536, 64K or 1M"},
        {"--bytes 20000000000000G",
         "--bytes: \"20000000000000G\" is not a size such as 65536, 64K or 1M"},
        {"--rate nan", "--rate: \"nan\" is not a number"},
        {"--rate=\t5", "--rate: \"\t5\" is not a number"},
    };
    struct settings settings;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].line, &settings), MUSTER_INVALID_ARGUMENT);
        assert_string_equal(error.text, cases[i].text);
    }
}

static void a_bad_variable_is_named(void **state)
{
    struct settings settings;

    (void)state;
    setenv("MUSTER_TEST_COUNT", "many", 1);
    assert_int_equal(parse("", &settings), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "MUSTER_TEST_COUNT: \"many\" is not a whole number");
    unsetenv("MUSTER_TEST_COUNT");
}

static void help_is_told_apart_from_errors(void **state)
{
    struct settings settings;

    (void)state;
    assert_int_equal(parse("--help", &settings), MUSTER_CANCELLED);
    assert_int_equal(parse("-h", &settings), MUSTER_CANCELLED);
}

static void the_help_page_shows_every_row_within_the_columns(void **state)
{
    struct muster_env *env = env_of(state);
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(muster_options_help(&options, env->mem, &text, &bytes), MUSTER_OK);
    assert_non_null(strstr(text, "Usage: muster test [options]\n\nTest.\n\nOptions:\n"));
    assert_non_null(strstr(text, "  -n, --count N\n          How many workers. Default 1 tasks. "
                                 "Variable MUSTER_TEST_COUNT.\n"));
    assert_non_null(strstr(text, "  --wire auto|shm|tcp\n"));
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        assert_true(strchr(line, '\n') - line <= 78);
    muster_mem_free(env->mem, text);
}

static void the_table_has_one_line_per_option(void **state)
{
    struct muster_env *env = env_of(state);
    const struct muster_options *commands[] = {&options, &options};
    char *text = NULL;
    size_t bytes = 0, lines = 0;

    assert_int_equal(muster_options_table(commands, 2, env->mem, &text, &bytes), MUSTER_OK);
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_int_equal(lines, 2 * (2 + options.row_count) + 1);
    assert_non_null(strstr(text, "MUSTER_TEST_JOB"));
    muster_mem_free(env->mem, text);
}

static void the_nearest_name_is_found_or_none(void **state)
{
    const char *const names[] = {"run", "registry", "resolve"};

    (void)state;
    assert_string_equal(muster_options_nearest("rnu", names, 3), "run");
    assert_string_equal(muster_options_nearest("registery", names, 3), "registry");
    assert_null(muster_options_nearest("frobnicate", names, 3));
    assert_null(muster_options_nearest("x", names, 0));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(defaults_fill_what_nobody_gave),
        CASE(a_flag_beats_the_variable_and_the_variable_the_default),
        CASE(every_form_of_a_value_is_read),
        CASE(words_are_moved_behind_the_options_in_order),
        CASE(a_command_that_stops_at_a_word_leaves_the_rest_alone),
        CASE(errors_name_the_culprit),
        CASE(a_bad_variable_is_named),
        CASE(help_is_told_apart_from_errors),
        CASE(the_help_page_shows_every_row_within_the_columns),
        CASE(the_table_has_one_line_per_option),
        CASE(the_nearest_name_is_found_or_none),
    };

    return cmocka_run_group_tests_name("options", cases, NULL, NULL);
}
