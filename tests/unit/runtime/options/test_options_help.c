/* The pages that show an option table, byte by byte. */
#include "torture.h"

#include <string.h>

#include <muster/options.h>

static const struct muster_option rows[] = {
    {.name = "json", .letter = 'j', .kind = MUSTER_OPTION_FLAG, .help = "Write JSON."},
    {.name = "job", .variable = "MUSTER_JOB", .kind = MUSTER_OPTION_TEXT, .help = "A name."},
    {.name = "kill", .kind = MUSTER_OPTION_TEXTS, .help = "A task."},
    {.name = "plan", .kind = MUSTER_OPTION_TEXT, .value = "FILE", .help = "A file."},
    {.name = "wire", .kind = MUSTER_OPTION_CHOICE, .choices = "auto|shm", .help = "A wire."},
    {.name = "count",
     .letter = 'n',
     .variable = "MUSTER_COUNT",
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "1",
     .unit = "tasks",
     .help = "Members."},
    {.name = "rate", .kind = MUSTER_OPTION_REAL, .fallback = "0.5", .help = "A rate."},
    {.name = "wait", .kind = MUSTER_OPTION_DURATION, .unit = "s", .help = "A time."},
    {.name = "rest", .kind = MUSTER_OPTION_DURATION, .unit = "s", .fallback = "5", .help = "One."},
    {.name = "nap", .kind = MUSTER_OPTION_DURATION, .unit = "s", .fallback = "5ms", .help = "One."},
    {.name = "room", .kind = MUSTER_OPTION_BYTES, .help = "A size."},
    {.variable = "MUSTER_ONLY", .kind = MUSTER_OPTION_TEXT, .fallback = "x", .help = "Hidden."},
    {.name = "odd", .kind = (enum muster_option_kind)99, .help = "Of no kind."},
};

static const struct muster_options options = {
    .command = "muster test",
    .usage = "[options] -- PROGRAM",
    .about = "Tests.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};
static const struct muster_options bare = {
    .command = "muster bare", .usage = "FILE", .about = "Nothing can be chosen."};

static void check_help(struct muster_env *env, const struct muster_options *table,
                       const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(muster_options_help(table, env->mem, &text, &bytes), MUSTER_OK);
    assert_string_equal(text, expected);
    assert_int_equal(bytes, strlen(expected));
    muster_mem_free(env->mem, text);
}

static void the_help_page_shows_every_row(void **state)
{
    struct muster_env *env = &((struct test_env *)*state)->env;

    check_help(env, &bare, "Usage: muster bare FILE\n\nNothing can be chosen.\n");
    check_help(env, &options,
               "Usage: muster test [options] -- PROGRAM\n"
               "\n"
               "Tests.\n"
               "\n"
               "Options:\n"
               "  -j, --json\n"
               "          Write JSON.\n"
               "  --job TEXT\n"
               "          A name. Variable MUSTER_JOB.\n"
               "  --kill TEXT\n"
               "          A task.\n"
               "  --plan FILE\n"
               "          A file.\n"
               "  --wire auto|shm\n"
               "          A wire.\n"
               "  -n, --count N\n"
               "          Members. Default 1 tasks. Variable MUSTER_COUNT.\n"
               "  --rate X\n"
               "          A rate. Default 0.5.\n"
               "  --wait TIME\n"
               "          A time. Unit: s.\n"
               "  --rest TIME\n"
               "          One. Default 5 s.\n"
               "  --nap TIME\n"
               "          One. Default 5ms.\n"
               "  --room SIZE\n"
               "          A size.\n"
               "  MUSTER_ONLY (variable)\n"
               "          Hidden. Default x.\n"
               "  --odd \n"
               "          Of no kind.\n");
}

/* `count` letters. */
static const char *word_of(size_t count)
{
    static const char letters[] =
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

    return letters + sizeof(letters) - 1 - count;
}

/* 78 columns, of which the help of an option has 68. A word that is longer stands alone. */
static void help_is_broken_between_words_at_the_last_column(void **state)
{
    static const struct {
        size_t indent, first, second;
        bool is_broken;
    } cases[] = {
        {0, 40, 36, false},  {0, 40, 37, false}, {0, 40, 38, true}, {0, 80, 5, true},
        {0, 78, 1, true},    {0, 77, 1, true},   {0, 76, 1, false}, {10, 30, 36, false},
        {10, 30, 37, false}, {10, 30, 38, true}, {10, 68, 1, true}, {10, 66, 1, false},
        {10, 80, 1, true},
    };
    struct muster_env *env = &((struct test_env *)*state)->env;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char help[256], broken[256], expected[512];
        struct muster_option row = {.name = "a", .kind = MUSTER_OPTION_FLAG, .help = help};
        struct muster_options table = {.command = "c", .usage = "u", .about = "b", .rows = &row};

        snprintf(help, sizeof(help), "%s   %s ", word_of(cases[i].first), word_of(cases[i].second));
        snprintf(broken, sizeof(broken), "%s%s%*s%s", word_of(cases[i].first),
                 cases[i].is_broken ? "\n" : " ", cases[i].is_broken ? (int)cases[i].indent : 0, "",
                 word_of(cases[i].second));
        if (cases[i].indent == 0) {
            table.about = help;
            snprintf(expected, sizeof(expected), "Usage: c u\n\n%s\n", broken);
        } else {
            table.row_count = 1;
            snprintf(expected, sizeof(expected),
                     "Usage: c u\n\nb\n\nOptions:\n  --a\n          %s\n", broken);
        }
        check_help(env, &table, expected);
    }
}

static void the_table_has_one_line_per_option(void **state)
{
    static const struct muster_option few[] = {
        {.name = "job", .letter = 'j', .variable = "MUSTER_JOB", .kind = MUSTER_OPTION_TEXT},
        {.name = "count",
         .kind = MUSTER_OPTION_NUMBER,
         .value = "N,…",
         .fallback = "1",
         .unit = "tasks"},
        {.variable = "MUSTER_ONLY", .kind = MUSTER_OPTION_TEXT, .fallback = "", .unit = ""},
    };
    const struct muster_options one = {.command = "one", .rows = few, .row_count = 3};
    const struct muster_options *commands[] = {&one, &bare};
    struct muster_env *env = &((struct test_env *)*state)->env;
    static const char expected[] =
        "one\n"
        "  option                             variable                       default      unit\n"
        "  -j, --job TEXT                     MUSTER_JOB                     -            -\n"
        "  --count N,…                        -                              1            tasks\n"
        "  -                                  MUSTER_ONLY                    -            -\n"
        "\n"
        "muster bare\n"
        "  option                             variable                       default      unit\n";
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(muster_options_table(commands, 2, env->mem, &text, &bytes), MUSTER_OK);
    assert_string_equal(text, expected);
    assert_int_equal(bytes, strlen(expected));
    muster_mem_free(env->mem, text);
    assert_int_equal(muster_options_table(commands, 0, env->mem, &text, &bytes), MUSTER_OK);
    assert_string_equal(text, "");
    muster_mem_free(env->mem, text);
}

/* The page, its growth, and the words of a row. */
struct page_row {
    const char *name;
    bool is_table;
};

static void run_page(struct torture *torture, const void *data)
{
    const struct muster_options *commands[] = {&options};
    const struct page_row *row = data;
    struct test_env test;
    enum muster_rc rc;
    char *text = NULL;
    size_t bytes = 0;

    test_env_open(&test);
    torture_arm_limited(torture, &test.mem);
    rc = row->is_table ? muster_options_table(commands, 1, test.env.mem, &text, &bytes)
                       : muster_options_help(&options, test.env.mem, &text, &bytes);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_int_equal(text != NULL, rc == MUSTER_OK);
    muster_mem_free(test.env.mem, text);
    test_env_close(&test);
}

static void without_memory_there_is_no_page(void **state)
{
    static const struct page_row pages[] = {{"help", false}, {"table", true}};

    (void)state;
    TORTURE_RUN_ROWS(run_page, pages);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_help_page_shows_every_row),
        CASE(help_is_broken_between_words_at_the_last_column),
        CASE(the_table_has_one_line_per_option),
        cmocka_unit_test_teardown(without_memory_there_is_no_page, torture_tell),
    };

    return cmocka_run_group_tests_name("options_help", tests, NULL, NULL);
}
