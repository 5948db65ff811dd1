/* The registry's meaning over a store in memory, with short words for requests. */
#include "careful_mem.h"
#include "mvcc_stage.h"

#include <stdlib.h>
#include <string.h>

bool mvcc_stage_has_lease(void *data, int64_t lease)
{
    (void)data;
    return lease == 7 || lease == 8;
}

void mvcc_stage_open(struct mvcc_stage *f)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;

    memset(f, 0, sizeof(*f));
    muster_mem_limited_init(&f->mem, careful_mem(), 0);
    assert_int_equal(muster_registry_store_open(&f->mem.mem, &options, &f->store, &error),
                     MUSTER_OK);
    muster_registry_arena_init(&f->arena, &f->mem.mem, MUSTER_MVCC_ANSWER_BYTES_MAX);
    assert_int_equal(muster_mvcc_init(&f->mvcc, f->store, mvcc_stage_has_lease, NULL), MUSTER_OK);
}

void mvcc_stage_close(struct mvcc_stage *f)
{
    muster_registry_arena_fini(&f->arena);
    muster_registry_store_close(f->store);
    assert_int_equal(muster_mem_limited_fini(&f->mem), 0);
}

static void trace_say(struct mvcc_stage *f, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static void trace_say(struct mvcc_stage *f, const char *fmt, ...)
{
    size_t used = strlen(f->text);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(f->text + used, sizeof(f->text) - used, fmt, args);
    va_end(args);
}

static void say_result(struct mvcc_stage *f, const struct muster_mvcc_result *result)
{
    for (size_t i = 0; i < result->record_count; i++) {
        const struct muster_registry_record *r = &result->records[i];

        trace_say(f, "%.*s=%.*s:%d,%d,%d", (int)r->key.size, (const char *)r->key.data,
                  (int)r->value.size, (const char *)r->value.data, (int)r->create_revision,
                  (int)r->mod_revision, (int)r->version);
        if (r->lease != 0)
            trace_say(f, "/%d", (int)r->lease);
        trace_say(f, " ");
    }
    if (result->kind == MUSTER_MVCC_RANGE)
        trace_say(f, "#%d%s", (int)result->count, result->is_more ? "+" : "");
    if (result->kind == MUSTER_MVCC_DELETE)
        trace_say(f, "-%d", (int)result->count);
    if (result->kind == MUSTER_MVCC_PUT)
        trace_say(f, "put");
    if (result->kind == MUSTER_MVCC_TXN)
        trace_say(f, "%s", result->is_succeeded ? "yes" : "no");
    for (size_t i = 0; i < result->result_count; i++) {
        trace_say(f, " [");
        say_result(f, &result->results[i]);
        trace_say(f, "]");
    }
}

struct muster_bytes mvcc_stage_bytes_of(const char *word)
{
    struct muster_bytes bytes = {.data = word, .size = strlen(word)};

    if (strcmp(word, "*") == 0)
        return (struct muster_bytes){.data = "\0", .size = 1};
    if (strcmp(word, "''") == 0)
        return (struct muster_bytes){.data = "", .size = 0};
    return bytes;
}

static bool number_word(const char *word, const char *name, int64_t *ret_number)
{
    size_t length = strlen(name);

    if (strncmp(word, name, length) != 0 || word[length] != '=')
        return false;
    *ret_number = strtoll(word + length + 1, NULL, 10);
    return true;
}

static void parse_range_word(const char *word, struct muster_mvcc_range *range)
{
    static const char *const targets[] = {"by=key", "by=version", "by=create", "by=mod",
                                          "by=value"};
    int64_t order = 0, target = 0;

    for (int i = 0; i < 5; i++) {
        if (strcmp(word, targets[i]) == 0)
            range->target = i;
    }
    if (number_word(word, "order", &order))
        range->order = (int)order;
    if (number_word(word, "by_number", &target))
        range->target = (int)target;
    if (strcmp(word, "desc") == 0)
        range->order = MUSTER_MVCC_DESCEND;
    range->is_keys_only |= strcmp(word, "keys_only") == 0;
    range->is_count_only |= strcmp(word, "count_only") == 0;
    (void)(number_word(word, "limit", &range->limit) ||
           number_word(word, "rev", &range->revision) ||
           number_word(word, "min_mod", &range->min_mod_revision) ||
           number_word(word, "max_mod", &range->max_mod_revision) ||
           number_word(word, "min_create", &range->min_create_revision) ||
           number_word(word, "max_create", &range->max_create_revision));
}

static void parse_put_word(const char *word, struct muster_mvcc_put *put)
{
    put->wants_prev |= strcmp(word, "prev") == 0;
    put->ignores_value |= strcmp(word, "ignore_value") == 0;
    put->ignores_lease |= strcmp(word, "ignore_lease") == 0;
    (void)number_word(word, "lease", &put->lease);
}

static bool is_option(const char *word)
{
    return strchr(word, '=') != NULL || strcmp(word, "prev") == 0 || strcmp(word, "desc") == 0 ||
           strcmp(word, "keys_only") == 0 || strcmp(word, "count_only") == 0;
}

static struct muster_mvcc_request parse_op(char **words, size_t count)
{
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_NOTHING};
    size_t next = 2;
    struct muster_registry_span span = {.key = mvcc_stage_bytes_of(count > 1 ? words[1] : "''")};

    if (strcmp(words[0], "put") == 0) {
        request.kind = MUSTER_MVCC_PUT;
        request.put.key = span.key;
        request.put.value = mvcc_stage_bytes_of(words[2]);
        for (next = 3; next < count; next++)
            parse_put_word(words[next], &request.put);
        return request;
    }
    span.end = (struct muster_bytes){.data = "", .size = 0};
    if (count > 2 && !is_option(words[2]))
        span.end = mvcc_stage_bytes_of(words[next++]);
    if (strcmp(words[0], "del") == 0) {
        request.kind = MUSTER_MVCC_DELETE;
        request.delete.span = span;
        request.delete.wants_prev = next < count && strcmp(words[next], "prev") == 0;
    } else if (strcmp(words[0], "range") == 0) {
        request.kind = MUSTER_MVCC_RANGE;
        request.range.span = span;
        for (; next < count; next++)
            parse_range_word(words[next], &request.range);
    }
    return request;
}

static size_t split_words(char *text, char **ret_words)
{
    size_t count = 0;
    char *rest = NULL;

    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        assert_true(count < WORDS_MAX);
        ret_words[count++] = word;
    }
    return count;
}

void mvcc_stage_apply(struct mvcc_stage *f, struct muster_mvcc_request *request)
{
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;
    enum muster_rc rc =
        muster_mvcc_apply(&f->mvcc, request, &f->arena, &result, &error, &is_broken);

    assert_false(is_broken);
    if (rc == MUSTER_OK)
        say_result(f, &result);
    else
        trace_say(f, "%s %s", muster_rc_name(rc), error.text);
    muster_registry_arena_reset(&f->arena);
    assert_int_equal(muster_mvcc_commit(&f->mvcc), MUSTER_OK);
}

void mvcc_stage_compact(struct mvcc_stage *f, int64_t revision)
{
    struct muster_error error;
    bool is_done = false;
    enum muster_rc rc = muster_mvcc_compact(&f->mvcc, revision, &error);

    trace_say(f, "%s", rc == MUSTER_OK ? "compacted" : error.text);
    for (int i = 0; rc == MUSTER_OK && !is_done && i < 1000; i++)
        assert_int_equal(muster_mvcc_compact_step(&f->mvcc, 3, &is_done), MUSTER_OK);
    assert_int_equal(muster_mvcc_commit(&f->mvcc), MUSTER_OK);
}

const char *mvcc_stage_line(struct mvcc_stage *f, const char *script)
{
    char copy[256];
    char *words[WORDS_MAX];
    struct muster_mvcc_request request;
    size_t count = 0;

    f->text[0] = '\0';
    (void)snprintf(copy, sizeof(copy), "%s", script);
    count = split_words(copy, words);
    if (strcmp(words[0], "mvcc_stage_compact") == 0) {
        mvcc_stage_compact(f, strtoll(words[1], NULL, 10));
        return f->text;
    }
    request = parse_op(words, count);
    mvcc_stage_apply(f, &request);
    return f->text;
}

void mvcc_stage_run_script(struct mvcc_stage *f, const char *script)
{
    char copy[1024];
    char *rest = NULL;

    (void)snprintf(copy, sizeof(copy), "%s", script);
    for (char *one = strtok_r(copy, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest))
        (void)mvcc_stage_line(f, one);
    f->text[0] = '\0';
}

void mvcc_stage_check_rows(const struct mvcc_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct mvcc_stage f;

        mvcc_stage_open(&f);
        mvcc_stage_run_script(&f, rows[i].before);
        (void)mvcc_stage_line(&f, rows[i].script);
        if (strcmp(f.text, rows[i].answer) != 0)
            fail_msg("%s: %s\n  answers %s\n  not     %s", rows[i].name, rows[i].script, f.text,
                     rows[i].answer);
        mvcc_stage_close(&f);
    }
}

struct muster_mvcc_request mvcc_stage_op(char *copy, const char *script)
{
    char *words[WORDS_MAX];

    (void)strcpy(copy, script);
    return parse_op(words, split_words(copy, words));
}

struct muster_mvcc_request mvcc_stage_txn_of(const struct muster_mvcc_compare *compares,
                                             size_t count, struct muster_mvcc_request *success,
                                             size_t success_count,
                                             struct muster_mvcc_request *failure,
                                             size_t failure_count)
{
    return (struct muster_mvcc_request){.kind = MUSTER_MVCC_TXN,
                                        .txn = {.compares = compares,
                                                .compare_count = count,
                                                .success = success,
                                                .success_count = success_count,
                                                .failure = failure,
                                                .failure_count = failure_count}};
}
