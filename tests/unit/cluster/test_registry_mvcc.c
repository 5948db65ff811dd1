/* Revisions, ranges, writes, transactions and compaction, as short scripts and what they answer. */
#include <stdlib.h>
#include <string.h>

#include "test_env.h"

#include "cluster/registry_mvcc.h"

#define WORDS_MAX 16
#define OPS_MAX   400

struct fixture {
    struct muster_mem_limited mem;
    struct muster_registry_store *store;
    struct muster_registry_arena arena;
    struct muster_mvcc mvcc;
    char text[4096];
};

static bool has_lease(void *data, int64_t lease)
{
    (void)data;
    return lease == 7 || lease == 8;
}

static void open_fixture(struct fixture *f)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;

    memset(f, 0, sizeof(*f));
    muster_mem_limited_init(&f->mem, muster_mem_system(), 0);
    assert_int_equal(muster_registry_store_open(&f->mem.mem, &options, &f->store, &error),
                     MUSTER_OK);
    muster_registry_arena_init(&f->arena, &f->mem.mem, MUSTER_MVCC_ANSWER_BYTES_MAX);
    assert_int_equal(muster_mvcc_init(&f->mvcc, f->store, has_lease, NULL), MUSTER_OK);
}

static void close_fixture(struct fixture *f)
{
    muster_registry_arena_fini(&f->arena);
    muster_registry_store_close(f->store);
    assert_int_equal(muster_mem_limited_fini(&f->mem), 0);
}

/* Text of answers: "a=1:2,3,4" is key, value, create revision, mod revision, version. */

static void say(struct fixture *f, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static void say(struct fixture *f, const char *fmt, ...)
{
    size_t used = strlen(f->text);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(f->text + used, sizeof(f->text) - used, fmt, args);
    va_end(args);
}

static void say_result(struct fixture *f, const struct muster_mvcc_result *result)
{
    for (size_t i = 0; i < result->record_count; i++) {
        const struct muster_registry_record *r = &result->records[i];

        say(f, "%.*s=%.*s:%d,%d,%d", (int)r->key.size, (const char *)r->key.data,
            (int)r->value.size, (const char *)r->value.data, (int)r->create_revision,
            (int)r->mod_revision, (int)r->version);
        if (r->lease != 0)
            say(f, "/%d", (int)r->lease);
        say(f, " ");
    }
    if (result->kind == MUSTER_MVCC_RANGE)
        say(f, "#%d%s", (int)result->count, result->is_more ? "+" : "");
    if (result->kind == MUSTER_MVCC_DELETE)
        say(f, "-%d", (int)result->count);
    if (result->kind == MUSTER_MVCC_PUT)
        say(f, "put");
    if (result->kind == MUSTER_MVCC_TXN)
        say(f, "%s", result->is_succeeded ? "yes" : "no");
    for (size_t i = 0; i < result->result_count; i++) {
        say(f, " [");
        say_result(f, &result->results[i]);
        say(f, "]");
    }
}

/* Words of scripts: "put k v lease=7 prev", "del k end", "range k end limit=2 desc by=mod", "*" is
 * the open end. */

static struct muster_bytes bytes_of(const char *word)
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
    int64_t order = 0;

    for (int i = 0; i < 5; i++) {
        if (strcmp(word, targets[i]) == 0)
            range->target = i;
    }
    if (number_word(word, "order", &order))
        range->order = (int)order;
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
    struct muster_registry_span span = {.key = bytes_of(count > 1 ? words[1] : "''")};

    if (strcmp(words[0], "put") == 0) {
        request.kind = MUSTER_MVCC_PUT;
        request.put.key = span.key;
        request.put.value = bytes_of(words[2]);
        for (next = 3; next < count; next++)
            parse_put_word(words[next], &request.put);
        return request;
    }
    span.end = (struct muster_bytes){.data = "", .size = 0};
    if (count > 2 && !is_option(words[2]))
        span.end = bytes_of(words[next++]);
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

static size_t split(char *text, char **ret_words)
{
    size_t count = 0;
    char *rest = NULL;

    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        assert_true(count < WORDS_MAX);
        ret_words[count++] = word;
    }
    return count;
}

static void apply(struct fixture *f, struct muster_mvcc_request *request)
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
        say(f, "%s %s", muster_rc_name(rc), error.text);
    muster_registry_arena_reset(&f->arena);
    assert_int_equal(muster_mvcc_commit(&f->mvcc), MUSTER_OK);
}

static void compact(struct fixture *f, int64_t revision)
{
    struct muster_error error;
    bool is_done = false;
    enum muster_rc rc = muster_mvcc_compact(&f->mvcc, revision, &error);

    say(f, "%s", rc == MUSTER_OK ? "compacted" : error.text);
    for (int i = 0; rc == MUSTER_OK && !is_done && i < 1000; i++)
        assert_int_equal(muster_mvcc_compact_some(&f->mvcc, 3, &is_done), MUSTER_OK);
    assert_int_equal(muster_mvcc_commit(&f->mvcc), MUSTER_OK);
}

/* Run one line; its answer is f->text. */
static const char *line(struct fixture *f, const char *script)
{
    char copy[256];
    char *words[WORDS_MAX];
    struct muster_mvcc_request request;
    size_t count = 0;

    f->text[0] = '\0';
    (void)snprintf(copy, sizeof(copy), "%s", script);
    count = split(copy, words);
    if (strcmp(words[0], "compact") == 0) {
        compact(f, strtoll(words[1], NULL, 10));
        return f->text;
    }
    request = parse_op(words, count);
    apply(f, &request);
    return f->text;
}

/* Lines separated by ';'. */
static void run_script(struct fixture *f, const char *script)
{
    char copy[1024];
    char *rest = NULL;

    (void)snprintf(copy, sizeof(copy), "%s", script);
    for (char *one = strtok_r(copy, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest))
        (void)line(f, one);
    f->text[0] = '\0';
}

struct row {
    const char *name, *before, *script, *answer;
};

static void check_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct fixture f;

        open_fixture(&f);
        run_script(&f, rows[i].before);
        (void)line(&f, rows[i].script);
        if (strcmp(f.text, rows[i].answer) != 0)
            fail_msg("%s: %s\n  answers %s\n  not     %s", rows[i].name, rows[i].script, f.text,
                     rows[i].answer);
        close_fixture(&f);
    }
}

#define ABC       "put a 1;put b 2;put c 3;"
#define FUTURE    "OUT_OF_RANGE etcdserver: mvcc: required revision is a future revision"
#define COMPACTED "OUT_OF_RANGE etcdserver: mvcc: required revision has been compacted"

static void ranges_answer_as_etcd_does(void **state)
{
    static const struct row rows[] = {
        {"missing key", "", "range a", "#0"},
        {"one key", ABC, "range b", "b=2:3,3,1 #1"},
        {"half-open", ABC, "range a c", "a=1:2,2,1 b=2:3,3,1 #2"},
        {"open end", ABC, "range b *", "b=2:3,3,1 c=3:4,4,1 #2"},
        {"end before key", ABC, "range c a", "#0"},
        {"limit cuts, count does not", ABC, "range a * limit=2", "a=1:2,2,1 b=2:3,3,1 #3+"},
        {"limit equal to the count", ABC, "range a * limit=3", "a=1:2,2,1 b=2:3,3,1 c=3:4,4,1 #3"},
        {"keys only", ABC, "range a c keys_only", "a=:2,2,1 b=:3,3,1 #2"},
        {"count only", ABC, "range a * count_only", "#3"},
        {"descending", ABC, "range a * desc limit=1", "c=3:4,4,1 #3+"},
        {"target without order ascends", ABC "put a 0", "range a * by=mod",
         "b=2:3,3,1 c=3:4,4,1 a=0:2,5,2 #3"},
        {"by value", "put a 9;put b 10;put c 1", "range a * by=value",
         "c=1:4,4,1 b=10:3,3,1 a=9:2,2,1 #3"},
        {"by create, newest first, one", ABC "put a 5", "range a * by=create desc limit=1",
         "c=3:4,4,1 #3+"},
        {"by version", ABC "put b 5", "range a * by=version desc limit=1", "b=5:3,5,2 #3+"},
        {"min and max mod", ABC, "range a * min_mod=3 max_mod=3", "b=2:3,3,1 #3"},
        {"max create", ABC "put a 5", "range a * max_create=2", "a=5:2,5,2 #3"},
        {"the past", ABC "put a 5;del b", "range a * rev=4", "a=1:2,2,1 b=2:3,3,1 c=3:4,4,1 #3"},
        {"before a key was", ABC, "range a * rev=2", "a=1:2,2,1 #1"},
        {"deleted and made again", "put a 1;del a;put a 2", "range a", "a=2:4,4,1 #1"},
        {"while it was deleted", "put a 1;del a;put a 2", "range a rev=3", "#0"},
        {"first life", "put a 1;del a;put a 2", "range a rev=2", "a=1:2,2,1 #1"},
        {"future", ABC, "range a rev=5", FUTURE},
        {"negative is now", ABC, "range a rev=-3", "a=1:2,2,1 #1"},
        {"empty key", ABC, "range ''", "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"bad order", ABC, "range a order=3", "INVALID_ARGUMENT etcdserver: invalid sort option"},
        {"compacted", ABC "put a 2;compact 4", "range a rev=3", COMPACTED},
        {"the compact revision stays", ABC "put a 2;compact 4", "range a * rev=4",
         "a=1:2,2,1 b=2:3,3,1 c=3:4,4,1 #3"},
    };

    (void)state;
    check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

static void writes_answer_as_etcd_does(void **state)
{
    static const struct row rows[] = {
        {"previous of a new key", "", "put a 1 prev", "put"},
        {"previous", "put a 1", "put a 2 prev", "a=1:2,2,1 put"},
        {"previous of a deleted key", "put a 1;del a", "put a 2 prev", "put"},
        {"ignore value", "put a 1", "put a '' ignore_value prev", "a=1:2,2,1 put"},
        {"ignore value with a value", "put a 1", "put a 2 ignore_value",
         "INVALID_ARGUMENT etcdserver: value is provided"},
        {"ignore value without key", "", "put a '' ignore_value",
         "INVALID_ARGUMENT etcdserver: key not found"},
        {"ignore value of a deleted key", "put a 1;del a", "put a '' ignore_value",
         "INVALID_ARGUMENT etcdserver: key not found"},
        {"ignore lease with a lease", "put a 1", "put a 2 ignore_lease lease=7",
         "INVALID_ARGUMENT etcdserver: lease is provided"},
        {"unknown lease", "", "put a 1 lease=9", "NOT_FOUND etcdserver: requested lease not found"},
        {"empty key", "", "put '' 1", "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"delete nothing", "", "del a", "-0"},
        {"delete one", ABC, "del a", "-1"},
        {"delete twice", ABC "del a", "del a", "-0"},
        {"delete a range with previous", ABC, "del a c prev", "a=1:2,2,1 b=2:3,3,1 -2"},
        {"delete everything", ABC, "del * *", "-3"},
        {"delete empty key", "", "del ''", "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"ignore lease keeps it", "put a 1 lease=7;put a 2 ignore_lease", "range a",
         "a=2:2,3,2/7 #1"},
        {"ignore value keeps it", "put a 1;put a '' ignore_value lease=8", "range a",
         "a=1:2,3,2/8 #1"},
        {"a put without lease detaches", "put a 1 lease=7;put a 2", "range a", "a=2:2,3,2 #1"},
        {"reads and empty deletes use no revision", "put a 1;range a;del x;range a", "put b 1 prev",
         "put"},
        {"so the next revision is 3", "put a 1;range a;del x;range a;put b 1", "range b",
         "b=1:3,3,1 #1"},
    };

    (void)state;
    check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

static void compaction_forgets_history_and_keeps_what_lives(void **state)
{
    static const struct row rows[] = {
        {"live keys stay", ABC "put a 2;del b;compact 6", "range a *", "a=2:2,5,2 c=3:4,4,1 #2"},
        {"twice", ABC "compact 3", "compact 3",
         "etcdserver: mvcc: required revision has been compacted"},
        {"future", ABC, "compact 9", "etcdserver: mvcc: required revision is a future revision"},
        {"deleted key can come again", "put a 1;del a;compact 3;put a 2", "range a",
         "a=2:4,4,1 #1"},
        {"deletion after the compact revision", "put a 1;put b 1;compact 3;del a", "range a rev=3",
         "a=1:2,2,1 #1"},
        {"later history survives", "put a 1;put a 2;put a 3;put a 4;compact 3", "range a rev=4",
         "a=3:2,4,3 #1"},
        {"previous of a compacted value", "put a 1;put a 2;compact 3", "put a 3 prev",
         "a=2:2,3,2 put"},
    };

    (void)state;
    check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

/* Transactions, built from lines: "if" compares, "then" ops, "else" ops. */

static struct muster_mvcc_compare compare(const char *key, int target, int relation, int64_t number)
{
    return (struct muster_mvcc_compare){.span.key = bytes_of(key),
                                        .span.end = {.data = "", .size = 0},
                                        .target = target,
                                        .relation = relation,
                                        .number = number};
}

static struct muster_mvcc_compare compare_value(const char *key, int relation, const char *value)
{
    struct muster_mvcc_compare result = compare(key, MUSTER_MVCC_COMPARE_VALUE, relation, 0);

    result.value = bytes_of(value);
    return result;
}

static struct muster_mvcc_request op(char *copy, const char *script)
{
    char *words[WORDS_MAX];

    (void)strcpy(copy, script);
    return parse_op(words, split(copy, words));
}

static struct muster_mvcc_request txn_of(const struct muster_mvcc_compare *compares, size_t count,
                                         struct muster_mvcc_request *success, size_t success_count,
                                         struct muster_mvcc_request *failure, size_t failure_count)
{
    return (struct muster_mvcc_request){.kind = MUSTER_MVCC_TXN,
                                        .txn = {.compares = compares,
                                                .compare_count = count,
                                                .success = success,
                                                .success_count = success_count,
                                                .failure = failure,
                                                .failure_count = failure_count}};
}

static void compares_decide_as_etcd_does(void **state)
{
    struct {
        const char *name;
        struct muster_mvcc_compare compare;
        bool holds;
    } rows[] = {
        {"version equal", compare("a", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_EQUAL, 2), true},
        {"create less", compare("a", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_LESS, 2), false},
        {"mod greater", compare("a", MUSTER_MVCC_COMPARE_MOD, MUSTER_MVCC_GREATER, 2), true},
        {"lease", compare("b", MUSTER_MVCC_COMPARE_LEASE, MUSTER_MVCC_EQUAL, 7), true},
        {"value equal", compare_value("a", MUSTER_MVCC_EQUAL, "9"), true},
        {"value not equal", compare_value("a", MUSTER_MVCC_NOT_EQUAL, "9"), false},
        {"value less in byte order", compare_value("a", MUSTER_MVCC_GREATER, "10"), true},
        {"missing key has create 0", compare("x", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_EQUAL, 0),
         true},
        {"missing key has version 0",
         compare("x", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_GREATER, 0), false},
        {"value of a missing key", compare_value("x", MUSTER_MVCC_NOT_EQUAL, "9"), false},
        {"deleted key is missing", compare("d", MUSTER_MVCC_COMPARE_MOD, MUSTER_MVCC_EQUAL, 0),
         true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct muster_mvcc_request request = txn_of(&rows[i].compare, 1, NULL, 0, NULL, 0);

        open_fixture(&f);
        run_script(&f, "put a 1;put b 2 lease=7;put a 9;put d 1;del d");
        apply(&f, &request);
        if (strcmp(f.text, rows[i].holds ? "yes" : "no") != 0)
            print_error("row %s\n", rows[i].name);
        assert_string_equal(f.text, rows[i].holds ? "yes" : "no");
        close_fixture(&f);
    }
}

static void compare_of_a_range_must_hold_for_every_key(void **state)
{
    struct fixture f;
    struct muster_mvcc_compare all =
        compare("a", MUSTER_MVCC_COMPARE_VERSION, MUSTER_MVCC_EQUAL, 1);
    struct muster_mvcc_request request = txn_of(&all, 1, NULL, 0, NULL, 0);

    (void)state;
    all.span.end = bytes_of("*");
    open_fixture(&f);
    run_script(&f, ABC);

    apply(&f, &request);
    assert_string_equal(f.text, "yes");
    run_script(&f, "put b 5");
    f.text[0] = '\0';
    apply(&f, &request);
    assert_string_equal(f.text, "no");

    close_fixture(&f);
}

static void txn_shares_one_revision_and_sees_its_own_writes(void **state)
{
    struct fixture f;
    char text[4][64];
    struct muster_mvcc_request ops[4] = {op(text[0], "put x 1"), op(text[1], "range x"),
                                         op(text[2], "del a"), op(text[3], "put y 2")};
    struct muster_mvcc_request request = txn_of(NULL, 0, ops, 4, NULL, 0);

    (void)state;
    open_fixture(&f);
    run_script(&f, ABC);

    apply(&f, &request);

    assert_string_equal(f.text, "yes [put] [x=1:5,5,1 #1] [-1] [put]");
    assert_int_equal(f.mvcc.meta.revision, 5);
    assert_string_equal(line(&f, "range y"), "y=2:5,5,1 #1");
    close_fixture(&f);
}

static void nested_compares_see_the_state_before_the_txn(void **state)
{
    struct fixture f;
    char text[3][64];
    struct muster_mvcc_compare absent =
        compare("x", MUSTER_MVCC_COMPARE_CREATE, MUSTER_MVCC_EQUAL, 0);
    struct muster_mvcc_request then = op(text[0], "put y 1");
    struct muster_mvcc_request otherwise = op(text[1], "put y 2");
    struct muster_mvcc_request ops[2] = {op(text[2], "put x 1"),
                                         txn_of(&absent, 1, &then, 1, &otherwise, 1)};
    struct muster_mvcc_request request = txn_of(NULL, 0, ops, 2, NULL, 0);

    (void)state;
    open_fixture(&f);

    apply(&f, &request);

    assert_string_equal(f.text, "yes [put] [yes [put]]");
    assert_string_equal(line(&f, "range y"), "y=1:2,2,1 #1");
    close_fixture(&f);
}

struct bad_txn {
    const char *name;
    const char *ops[3];
    const char *answer;
};

static void an_invalid_op_fails_the_whole_txn_before_any_write(void **state)
{
    static const char duplicate[] =
        "INVALID_ARGUMENT etcdserver: duplicate key given in txn request";
    static const struct bad_txn rows[] = {
        {"put twice", {"put x 1", "put y 1", "put x 2"}, duplicate},
        {"put under a delete", {"del w z", "put y 1", "range a"}, duplicate},
        {"overlapping deletes are fine", {"del a c", "del a", "range a"}, "yes [-2] [-0] [#0]"},
        {"empty key",
         {"put x 1", "put '' 1", "range a"},
         "INVALID_ARGUMENT etcdserver: key is not provided"},
        {"no operation",
         {"put x 1", "nothing", "range a"},
         "INVALID_ARGUMENT etcdserver: key not found"},
        {"unknown lease",
         {"put x 1", "put y 1 lease=9", "range a"},
         "NOT_FOUND etcdserver: requested lease not found"},
        {"future range", {"put x 1", "range a rev=9", "range a"}, FUTURE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        char text[3][64];
        struct muster_mvcc_request ops[3];
        struct muster_mvcc_request request = txn_of(NULL, 0, ops, 3, NULL, 0);

        for (int k = 0; k < 3; k++)
            ops[k] = op(text[k], rows[i].ops[k]);
        open_fixture(&f);
        run_script(&f, ABC);
        apply(&f, &request);
        assert_string_equal(f.text, rows[i].answer);
        if (strncmp(f.text, "yes", 3) != 0)
            assert_int_equal(f.mvcc.meta.revision, 4);
        assert_string_equal(line(&f, "range x"), "#0");
        close_fixture(&f);
    }
}

static void lists_are_bounded_and_inner_txns_get_what_is_left(void **state)
{
    struct fixture f;
    char text[64];
    static struct muster_mvcc_request ops[OPS_MAX];
    struct muster_mvcc_request inner[2];
    struct muster_mvcc_request request;
    static const char refused[] = "INVALID_ARGUMENT etcdserver: too many operations in txn request";

    (void)state;
    open_fixture(&f);
    for (size_t i = 0; i < OPS_MAX; i++)
        ops[i] = op(text, "range a");

    request = txn_of(NULL, 0, ops, 128, NULL, 0);
    apply(&f, &request);
    assert_memory_equal(f.text, "yes", 3);
    f.text[0] = '\0';
    request = txn_of(NULL, 0, ops, 129, NULL, 0);
    apply(&f, &request);
    assert_string_equal(f.text, refused);
    f.text[0] = '\0';
    inner[0] = txn_of(NULL, 0, ops, 127, NULL, 0);
    inner[1] = ops[0];
    request = txn_of(NULL, 0, inner, 2, NULL, 0);
    apply(&f, &request);
    assert_string_equal(f.text, refused);

    close_fixture(&f);
}

static void both_branches_of_an_inner_txn_may_put_one_key(void **state)
{
    struct fixture f;
    char text[3][64];
    struct muster_mvcc_request then = op(text[0], "put x 1");
    struct muster_mvcc_request otherwise = op(text[1], "put x 2");
    struct muster_mvcc_request ops[2] = {txn_of(NULL, 0, &then, 1, &otherwise, 1),
                                         op(text[2], "put x 3")};
    struct muster_mvcc_request alone = txn_of(NULL, 0, ops, 1, NULL, 0);
    struct muster_mvcc_request both = txn_of(NULL, 0, ops, 2, NULL, 0);

    (void)state;
    open_fixture(&f);

    apply(&f, &alone);
    assert_string_equal(f.text, "yes [yes [put]]");
    f.text[0] = '\0';
    apply(&f, &both);
    assert_string_equal(f.text, "INVALID_ARGUMENT etcdserver: duplicate key given in txn request");

    close_fixture(&f);
}

static void keys_of_a_lease_go_in_one_revision(void **state)
{
    struct fixture f;
    int64_t deleted = 0;

    (void)state;
    open_fixture(&f);
    run_script(&f, "put c 1 lease=7;put a 1 lease=7;put b 1 lease=8;put d 1 lease=7;put d 2");

    assert_int_equal(muster_mvcc_delete_leased(&f.mvcc, 7, &f.arena, &deleted), MUSTER_OK);
    assert_int_equal(deleted, 2);
    assert_int_equal(f.mvcc.meta.revision, 7);
    assert_int_equal(muster_mvcc_delete_leased(&f.mvcc, 7, &f.arena, &deleted), MUSTER_OK);
    assert_int_equal(deleted, 0);
    assert_int_equal(f.mvcc.meta.revision, 7);
    assert_string_equal(line(&f, "range a *"), "b=1:4,4,1/8 d=2:5,6,2 #2");

    close_fixture(&f);
}

static void rollback_forgets_what_was_not_committed(void **state)
{
    struct fixture f;
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;
    char text[64];
    struct muster_mvcc_request put = op(text, "put z 1");

    (void)state;
    open_fixture(&f);
    run_script(&f, ABC);
    assert_int_equal(muster_mvcc_apply(&f.mvcc, &put, &f.arena, &result, &error, &is_broken),
                     MUSTER_OK);

    assert_int_equal(muster_mvcc_init(&f.mvcc, f.store, has_lease, NULL), MUSTER_OK);

    assert_int_equal(f.mvcc.meta.revision, 4);
    assert_string_equal(line(&f, "range z"), "#0");
    assert_string_equal(line(&f, "put z 2"), "put");
    close_fixture(&f);
}

static void a_request_without_memory_is_refused_or_undone_whole(void **state)
{
    struct fixture f;
    char text[4][64];
    struct muster_mvcc_request ops[4] = {op(text[0], "put x 1"), op(text[1], "range a * by=value"),
                                         op(text[2], "del a c prev"), op(text[3], "put b 2 prev")};
    unsigned refusals = 0;

    (void)state;
    ops[3].put.key = bytes_of("Z");
    open_fixture(&f);
    run_script(&f, ABC);
    muster_registry_arena_fini(&f.arena);
    for (size_t limit = 0; limit < 20000; limit += 64) {
        struct muster_mvcc_request request = txn_of(NULL, 0, ops, 4, NULL, 0);
        struct muster_mvcc_result result;
        struct muster_error error;
        bool is_broken = false;

        f.arena.limit_bytes = limit;
        if (muster_mvcc_apply(&f.mvcc, &request, &f.arena, &result, &error, &is_broken) ==
            MUSTER_OK)
            break;
        refusals++;
        assert_int_equal(error.rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_true(is_broken || !muster_registry_store_is_writing(f.store));
        assert_int_equal(muster_mvcc_rollback(&f.mvcc), MUSTER_OK);
        assert_int_equal(f.mvcc.meta.revision, 4);
        muster_registry_arena_reset(&f.arena);
    }
    assert_true(refusals > 10);
    muster_registry_arena_reset(&f.arena);
    f.arena.limit_bytes = MUSTER_MVCC_ANSWER_BYTES_MAX;
    assert_string_equal(line(&f, "range a *"), "c=3:4,4,1 x=1:5,5,1 #2");
    close_fixture(&f);
}

static void a_full_store_refuses_puts_and_allows_deletes(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    run_script(&f, ABC);
    f.mvcc.is_full = true;

    assert_string_equal(line(&f, "put d 1"),
                        "RESOURCE_EXHAUSTED etcdserver: mvcc: database space exceeded");
    assert_string_equal(line(&f, "del a"), "-1");

    close_fixture(&f);
}

static void hash_tells_equal_histories_and_different_ones(void **state)
{
    struct fixture f;
    struct fixture g;
    struct muster_error error;
    uint32_t one = 0;
    uint32_t two = 0;

    (void)state;
    open_fixture(&f);
    open_fixture(&g);
    run_script(&f, ABC "put a 2");
    run_script(&g, ABC);

    assert_int_equal(muster_mvcc_hash(&f.mvcc, 4, &one, &error), MUSTER_OK);
    assert_int_equal(muster_mvcc_hash(&g.mvcc, 0, &two, &error), MUSTER_OK);
    assert_int_equal(one, two);
    assert_int_equal(muster_mvcc_hash(&f.mvcc, 0, &one, &error), MUSTER_OK);
    assert_int_not_equal(one, two);
    assert_int_equal(muster_mvcc_hash(&f.mvcc, 6, &one, &error), MUSTER_OUT_OF_RANGE);

    close_fixture(&f);
    close_fixture(&g);
}

/* A random run of puts, deletes and compactions agrees with a plain model at every readable
 * revision. */
static void history_agrees_with_a_model(void **state)
{
    enum { KEYS = 6, STEPS = 120 };
    static int values[STEPS + 2][KEYS]; /* by revision; 0: absent */
    struct fixture f;
    struct muster_rng_seeded rng;
    int64_t oldest = 1;

    (void)state;
    memset(values, 0, sizeof(values));
    muster_rng_seeded_init(&rng, 17);
    open_fixture(&f);
    for (int step = 0; step < STEPS; step++) {
        int64_t revision = f.mvcc.meta.revision;
        unsigned key = (unsigned)muster_rng_below(&rng.rng, KEYS);
        char text[64];

        memcpy(values[revision + 1], values[revision], sizeof(values[0]));
        values[revision + 1][key] = muster_rng_below(&rng.rng, 3) == 0 ? 0 : step + 1;
        (void)snprintf(text, sizeof(text),
                       values[revision + 1][key] == 0 ? "del k%u" : "put k%u %d", key,
                       values[revision + 1][key]);
        (void)line(&f, text);
        if (muster_rng_below(&rng.rng, 10) == 0) {
            oldest +=
                (int64_t)muster_rng_below(&rng.rng, (uint64_t)(f.mvcc.meta.revision - oldest + 1));
            compact(&f, oldest);
        }
    }
    for (int64_t revision = oldest; revision <= f.mvcc.meta.revision; revision++) {
        for (unsigned key = 0; key < KEYS; key++) {
            char text[64];
            char expected[32];

            (void)snprintf(text, sizeof(text), "range k%u rev=%d", key, (int)revision);
            (void)snprintf(expected, sizeof(expected), "k%u=%d:", key, values[revision][key]);
            (void)line(&f, text);
            if (values[revision][key] == 0)
                assert_string_equal(f.text, "#0");
            else
                assert_memory_equal(f.text, expected, strlen(expected));
        }
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_answer_as_etcd_does),
        cmocka_unit_test(writes_answer_as_etcd_does),
        cmocka_unit_test(compaction_forgets_history_and_keeps_what_lives),
        cmocka_unit_test(compares_decide_as_etcd_does),
        cmocka_unit_test(compare_of_a_range_must_hold_for_every_key),
        cmocka_unit_test(txn_shares_one_revision_and_sees_its_own_writes),
        cmocka_unit_test(nested_compares_see_the_state_before_the_txn),
        cmocka_unit_test(an_invalid_op_fails_the_whole_txn_before_any_write),
        cmocka_unit_test(lists_are_bounded_and_inner_txns_get_what_is_left),
        cmocka_unit_test(both_branches_of_an_inner_txn_may_put_one_key),
        cmocka_unit_test(keys_of_a_lease_go_in_one_revision),
        cmocka_unit_test(rollback_forgets_what_was_not_committed),
        cmocka_unit_test(a_request_without_memory_is_refused_or_undone_whole),
        cmocka_unit_test(a_full_store_refuses_puts_and_allows_deletes),
        cmocka_unit_test(hash_tells_equal_histories_and_different_ones),
        cmocka_unit_test(history_agrees_with_a_model),
    };

    return cmocka_run_group_tests_name("registry_mvcc", tests, NULL, NULL);
}
