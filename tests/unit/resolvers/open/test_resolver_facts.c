/* Each resolver that needs no network, asked for all it knows, with memory and without. */
#include <muster/resolver.h>

#include "assertion_count.h"
#include "resolver_ask.h"
#include "resolver_facts.h"
#include "test_env.h"
#include "test_vars.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

#define VARIABLES_MAX 8
#define ROWS_MAX      80

/* A paragraph of resolver_facts.txt: the URI, variables and "devices" down to a "=", then the facts. */
struct row {
    const char *uri;
    struct test_var list[VARIABLES_MAX + 1];
    bool has_devices; /* the caller's list; else the three GPUs of this machine */
    const char *facts;
};

static char *paragraphs;
static struct row rows[ROWS_MAX];
static size_t row_count;

/* Cuts the line off; returns what is behind it. */
static char *cut_line(char *line)
{
    char *end = strchr(line, '\n');

    assert_non_null(end);
    *end = '\0';
    return end + 1;
}

/* Returns what is behind the paragraph. */
static char *read_row(struct row *row, char *text)
{
    char *line = cut_line(text), *end = strstr(line, "\n\n");
    size_t count = 0;

    row->uri = text;
    if (end != NULL)
        end[1] = '\0';
    for (text = line; line = cut_line(text), strcmp(text, "=") != 0; text = line) {
        char *value = strchr(text, '=');

        row->has_devices |= strcmp(text, "devices") == 0;
        if (value == NULL)
            continue;
        assert_true(count < VARIABLES_MAX);
        *value = '\0';
        row->list[count++] = (struct test_var){.name = text, .value = value + 1};
    }
    row->facts = line;
    return end != NULL ? end + 2 : NULL;
}

static int read_rows(void **state)
{
    size_t bytes = 0;
    (void)state;

    if (muster_files_read(muster_files_system(), muster_mem_system(),
                          MUSTER_SOURCE_DIR "/tests/unit/resolvers/open/resolver_facts.txt", 1u << 20,
                          &paragraphs, &bytes) != MUSTER_OK)
        return -1;
    for (char *text = paragraphs; text != NULL && row_count < ROWS_MAX; row_count++)
        text = read_row(&rows[row_count], text);
    return row_count < ROWS_MAX ? 0 : -1;
}

static int free_rows(void **state)
{
    muster_mem_free(muster_mem_system(), paragraphs);
    return torture_tell(state);
}

static enum muster_rc shelf_read(struct muster_files *files, struct muster_mem *mem,
                                 const char *path, size_t limit_bytes, char **ret_text,
                                 size_t *ret_bytes)
{
    static const char text[] = "{\"worker\":[\"f0:1\",\"f1:2\"]}";

    (void)files;
    assert_int_equal(limit_bytes, MUSTER_CLUSTER_SPEC_BYTES_MAX);
    if (strcmp(path, "/c.json") != 0)
        return MUSTER_NOT_FOUND;
    *ret_text = muster_mem_strdup(mem, text);
    *ret_bytes = sizeof(text) - 1;
    return *ret_text != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

static size_t shelf_count(struct muster_files *files, const char *pattern)
{
    (void)files;
    (void)pattern;
    return 3;
}

struct stage {
    struct test_env test;
    struct muster_files files;
    struct test_vars vars;
    struct muster_resolver_options options;
};

static void stage_open(struct stage *stage, const struct row *row)
{
    static const struct muster_files_ops ops = {.read = shelf_read, .count = shelf_count};

    memset(stage, 0, sizeof(*stage));
    test_env_open(&stage->test);
    stage->files.ops = &ops;
    stage->test.env.files = &stage->files;
    test_vars_init(&stage->vars, row->list);
    stage->test.env.vars = &stage->vars.vars;
    if (row->has_devices)
        stage->options.list_devices = resolver_facts_devices;
}

static struct muster_resolver *open_row(struct stage *stage, const struct row *row,
                                        struct muster_error *ret_error)
{
    struct muster_resolver *resolver = NULL;

    if (muster_resolver_open(&stage->test.env, row->uri, &stage->options, &resolver, ret_error) !=
        MUSTER_OK)
        return NULL;
    return resolver;
}

static void each_resolver_tells_what_its_platform_says(void **state)
{
    bool has_failed = false;
    (void)state;

    for (size_t i = 0; i < row_count; i++) {
        struct muster_error error = {.text = ""};
        struct muster_resolver *resolver;
        struct stage stage;
        const char *facts;

        stage_open(&stage, &rows[i]);
        resolver = open_row(&stage, &rows[i], &error);
        fail_if(resolver == NULL, "%s: %s", rows[i].uri, error.text);
        facts = resolver_facts(resolver);
        if (strcmp(facts, rows[i].facts) != 0) {
            (void)fprintf(stderr, "paragraph %zu, %s, is\n=\n%s\n", i + 1, rows[i].uri, facts);
            has_failed = true;
        }
        close_resolver(resolver);
        test_env_close(&stage.test);
    }
    assert_false(has_failed);
}

/* Slurm's own task is known from the first cluster on, so that lines behind one that failed may differ. */
static bool is_settled(const struct row *row)
{
    return strncmp(row->uri, "slurm:", strlen("slurm:")) != 0;
}

static void run_without_memory(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct muster_error error = {.text = ""};
    struct muster_resolver *resolver;
    struct stage stage;
    const char *facts;

    stage_open(&stage, row);
    torture_arm_limited(torture, &stage.test.mem);
    resolver = open_row(&stage, row, &error);
    if (resolver == NULL) {
        assert_int_equal(error.rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_string_not_equal(error.text, "");
    } else {
        facts = resolver_facts(resolver);
        torture_disarm(torture);
        if (is_settled(row)) {
            assert_facts_or_no_memory(facts, row->facts);
            assert_string_equal(resolver_facts(resolver), row->facts);
        }
        close_resolver(resolver);
    }
    torture_disarm(torture);
    test_env_close(&stage.test);
}

static void want_of_memory_is_told_and_makes_no_answer_wrong(void **state)
{
    (void)state;

    for (size_t i = 0; i < row_count; i++) {
        struct torture_scenario scenario = {
            .name = rows[i].uri, .run = run_without_memory, .data = &rows[i]};

        torture_run(&scenario);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_resolver_tells_what_its_platform_says),
        cmocka_unit_test(want_of_memory_is_told_and_makes_no_answer_wrong),
    };

    return cmocka_run_group_tests(tests, read_rows, free_rows);
}
