/* Option tables: precedence, forms, errors that name the culprit, help. */
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include <muster/options.h>

struct settings {
    bool is_json, is_verbose;
    const char *only;
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
    {.name = "verbose",
     .letter = 'v',
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_verbose),
     .help = "Say more."},
    {.variable = "MUSTER_TEST_ONLY",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, only),
     .help = "A variable without a flag."},
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

static enum muster_rc parse_line(const char *line, struct settings *settings)
{
    return parse_with(&options, line, settings);
}

static void defaults_fill_what_nobody_gave(void **state)
{
    struct settings settings;

    (void)state;
    assert_int_equal(parse_line("", &settings), MUSTER_OK);
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
    assert_int_equal(parse_line("", &settings), MUSTER_OK);
    assert_int_equal(settings.count, 7);
    assert_string_equal(settings.kills.values[0], "worker:0");
    assert_int_equal(parse_line("-n 8 --kill a --kill=b", &settings), MUSTER_OK);
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
    assert_int_equal(parse_line("--json --job=x --wire tcp -n4 --min-members-timeout 250ms "
                                "--bytes=64K --rate -1.5", &settings),
                     MUSTER_OK);
    assert_true(settings.is_json);
    assert_string_equal(settings.job, "x");
    assert_string_equal(settings.wire, "tcp");
    assert_int_equal(settings.count, 4);
    assert_int_equal(settings.timeout_ns, 250 * MUSTER_NS_PER_MS);
    assert_int_equal(settings.bytes, 65536);
    assert_true(settings.rate == -1.5);
    assert_int_equal(parse_line("--json --no-json --min-members-timeout=1.5",
                                &settings), MUSTER_OK);
    assert_false(settings.is_json);
    assert_int_equal(settings.timeout_ns, 1500 * MUSTER_NS_PER_MS);
}

static void a_letter_takes_its_value_in_every_form(void **state)
{
    static const struct {
        const char *line;
        uint64_t count;
        bool is_verbose;
    } cases[] = {
        {"-n4", 4, false},        {"-n 4", 4, false},     {"-n=4", 4, false},
        {"-v", 1, true},          {"-vtrue", 1, true},    {"-v=false", 1, false},
        {"-v -v=no -v", 1, true}, {"-n 4 -n5", 5, false}, {"-v -n=6", 6, true},
    };
    struct settings settings;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse_line(cases[i].line, &settings), MUSTER_OK);
        assert_int_equal(settings.count, cases[i].count);
        assert_int_equal(settings.is_verbose, cases[i].is_verbose);
        assert_null(argv[rest]);
    }
}

/* Each line, and what it leaves: words joined by commas. */
static void words_keep_their_order_wherever_they_stand(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"--", ""},
        {"a", "a"},
        {"a b c", "a,b,c"},
        {"-n 2 a b", "a,b"},
        {"a -n 2 b", "a,b"},
        {"a b -n 2", "a,b"},
        {"a -n 2 b --json c -v d", "a,b,c,d"},
        {"a b c --job x -n 3 d", "a,b,c,d"},
        {"a -- -n b --json", "a,-n,b,--json"},
        {"-- a -- b", "a,--,b"},
        {"- a -", "-,a,-"},
    };
    struct settings settings;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char left[64] = "";

        assert_int_equal(parse_line(cases[i][0], &settings), MUSTER_OK);
        for (int at = rest; argv[at] != NULL; at++) {
            strcat(left, at > rest ? "," : "");
            strcat(left, argv[at]);
        }
        assert_string_equal(left, cases[i][1]);
    }
}

static void words_are_moved_behind_the_options_in_order(void **state)
{
    struct settings settings;

    (void)state;
    assert_int_equal(parse_line("one --job x two --json - -- --three", &settings), MUSTER_OK);
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
        {"-xy", "-xy: unknown option"},
        {"-hx", "-hx: unknown option"},
        {"--help=x", "--help: unknown option"},
        {"--no-json=true", "--no-json: unknown option; did you mean --json?"},
        {"--no-job", "--no-job: unknown option; did you mean --job?"},
        {"--no-zzzzzz", "--no-zzzzzz: unknown option"},
        {"--jso", "--jso: unknown option; did you mean --json?"},
        {"--=x", "--: unknown option"},
        {"--nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
         "--nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn: unknown option"},
        {"-n", "-n: must have a value, got none"},
        {"-n --json", "-n: must have a value, got none"},
        {"-n=", "-n: must be a whole number, got \"\""},
        {"-v=2", "-v: must be true or false, got \"2\""},
        {"--job", "--job: must have a value, got none"},
        {"--job --json", "--job: must have a value, got none"},
        {"--job -- x", "--job: must have a value, got none"},
        {"--job=", "--job: must have a value, got \"\"; give it one, or leave it out"},
        {"--kill=", "--kill: must have a value, got \"\"; give it one, or leave it out"},
        {"--path=b", "--path: \"b\" does not begin with a"},
        {"--min-members-timeout 1us", "--min-members-timeout: must be at least 2ms, got \"1us\""},
        {"--min-members-timeout 3m", "--min-members-timeout: must be at most 2m, got \"3m\""},
        {"--bytes 1", "--bytes: must be at least 2K, got \"1\""},
        {"--count=four", "--count: must be a whole number, got \"four\""},
        {"--count=-1", "--count: must be a whole number, got \"-1\""},
        {"-n 0", "-n: must be at least 1, got \"0\""},
        {"-n 101", "-n: must be at most 100, got \"101\""},
        {"-n 99999999999999999999", "-n: must be at most 100, got \"99999999999999999999\""},
        {"--wire=udp", "--wire: must be one of auto|shm|tcp, got \"udp\""},
        {"--wire=", "--wire: must be one of auto|shm|tcp, got \"\""},
        {"--json=maybe", "--json: must be true or false, got \"maybe\""},
        {"--min-members-timeout 3d",
         "--min-members-timeout: must be a duration such as 10s or 250ms, got \"3d\""},
        {"--bytes 1.2.3", "--bytes: must be a size such as 65536, 64K or 1M, got \"1.2.3\""},
        {"--bytes 20000000000000G",
         "--bytes: must be a size such as 65536, 64K or 1M, got \"20000000000000G\""},
        {"--rate nan", "--rate: must be a number, got \"nan\""},
        {"--rate=\t5", "--rate: must be a number, got \"\t5\""},
    };
    struct settings settings;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse_line(cases[i].line, &settings), MUSTER_INVALID_ARGUMENT);
        assert_string_equal(error.text, cases[i].text);
    }
}

static void a_bad_variable_is_named(void **state)
{
    struct settings settings;

    (void)state;
    setenv("MUSTER_TEST_COUNT", "many", 1);
    assert_int_equal(parse_line("", &settings), MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "MUSTER_TEST_COUNT: must be a whole number, got \"many\"");
    unsetenv("MUSTER_TEST_COUNT");
}

static void help_is_told_apart_from_errors(void **state)
{
    static const struct muster_option own_rows[] = {
        {.name = "help", .letter = 'h', .kind = MUSTER_OPTION_FLAG}};
    struct muster_options own = options;
    struct settings settings;

    (void)state;
    rest = 77;
    assert_int_equal(parse_line("--help", &settings), MUSTER_CANCELLED);
    assert_string_equal(error.text, "help was asked for");
    assert_int_equal(parse_line("-h", &settings), MUSTER_CANCELLED);
    assert_string_equal(error.text, "help was asked for");
    assert_int_equal(parse_line("one -h", &settings), MUSTER_CANCELLED);
    assert_int_equal(rest, 77); /* written on success alone */

    own.rows = own_rows; /* a command may have its own */
    own.row_count = 1;
    assert_int_equal(parse_with(&own, "-h", &settings), MUSTER_OK);
    assert_true(settings.is_json);
    assert_int_equal(parse_with(&own, "--help", &settings), MUSTER_OK);
    assert_true(settings.is_json);
}

static void variables_are_read_where_there_are_some(void **state)
{
    struct settings settings;
    char *none[] = {NULL, NULL};

    (void)state;
    setenv("MUSTER_TEST_ONLY", "only", 1);
    setenv("MUSTER_TEST_COUNT", "", 1); /* as if it was not there */
    assert_int_equal(parse_line("", &settings), MUSTER_OK);
    assert_string_equal(settings.only, "only");
    assert_int_equal(settings.count, 1);
    memset(&settings, 0, sizeof(settings));
    assert_int_equal(muster_options_parse(&options, NULL, 1, none, &settings, &rest, NULL),
                     MUSTER_OK);
    assert_null(settings.only);
    assert_int_equal(settings.count, 1);
    assert_int_equal(rest, 1);
    unsetenv("MUSTER_TEST_ONLY");
    unsetenv("MUSTER_TEST_COUNT");
}

/* The distance of two texts with swapped neighbours as one change, by its definition. */
static size_t distance_of(const char *a, size_t i, const char *b, size_t j)
{
    size_t least, other;

    if (i == 0 || j == 0)
        return i + j;
    least = distance_of(a, i - 1, b, j) + 1;
    other = distance_of(a, i, b, j - 1) + 1;
    least = other < least ? other : least;
    other = distance_of(a, i - 1, b, j - 1) + (a[i - 1] != b[j - 1]);
    least = other < least ? other : least;
    if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        other = distance_of(a, i - 2, b, j - 2) + 1;
        least = other < least ? other : least;
    }
    return least;
}

static void make_word(struct muster_rng *rng, char ret_word[8])
{
    size_t length = muster_rng_below(rng, 7);

    for (size_t i = 0; i < length; i++)
        ret_word[i] = (char)('a' + muster_rng_below(rng, 3));
    ret_word[length] = '\0';
}

/* The first of the nearest, if less than a third of the letters and two more are wrong. */
static void the_nearest_name_is_found_or_none(void **state)
{
    struct muster_rng *rng = test_env_of(state)->rng;

    for (unsigned round = 0; round < 2000; round++) {
        char words[4][8];
        const char *const names[] = {words[1], words[2], words[3]};
        const char *expected = NULL;
        size_t least;

        for (size_t i = 0; i < 4; i++)
            make_word(rng, words[i]);
        least = strlen(words[0]) / 3 + 2;
        for (size_t i = 0; i < 3; i++) {
            size_t distance = distance_of(words[0], strlen(words[0]), names[i], strlen(names[i]));

            if (distance < least) {
                least = distance;
                expected = names[i];
            }
        }
        assert_ptr_equal(muster_options_nearest(words[0], names, 3), expected);
    }
    assert_null(muster_options_nearest("x", NULL, 0));
}

static void a_name_beyond_the_longest_is_near_to_none(void **state)
{
    static const char longest[] = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"; /* 48 */
    static const char longer[] = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";
    const char *const names[] = {longest}, *const others[] = {longer};

    (void)state;
    assert_ptr_equal(muster_options_nearest(longest, names, 1), longest);
    assert_null(muster_options_nearest(longer, names, 1));
    assert_null(muster_options_nearest(longest, others, 1));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(defaults_fill_what_nobody_gave),
        CASE(a_flag_beats_the_variable_and_the_variable_the_default),
        CASE(every_form_of_a_value_is_read),
        CASE(a_letter_takes_its_value_in_every_form),
        CASE(words_keep_their_order_wherever_they_stand),
        CASE(words_are_moved_behind_the_options_in_order),
        CASE(a_command_that_stops_at_a_word_leaves_the_rest_alone),
        CASE(errors_name_the_culprit),
        CASE(a_bad_variable_is_named),
        CASE(help_is_told_apart_from_errors),
        CASE(the_nearest_name_is_found_or_none),
        CASE(a_name_beyond_the_longest_is_near_to_none),
        CASE(variables_are_read_where_there_are_some),
    };

    return cmocka_run_group_tests_name("options", cases, NULL, NULL);
}
