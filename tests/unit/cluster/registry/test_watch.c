/* Watches: order, history, filters, compaction, progress, slow readers. Answers are kept as text.
 */
#include <stdio.h>
#include <string.h>

#include "careful_mem.h"
#include "test_env.h"
#include "virtual_loop.h"

#include "cluster/registry/watch.h"

struct fixture {
    struct muster_mem_limited mem;
    struct virtual_loop loop;
    struct muster_env env;
    struct muster_registry_store *store;
    struct muster_registry_arena arena;
    struct muster_mvcc mvcc;
    struct muster_watch_hub hub;
    struct muster_watch_stream stream;
    size_t queued_bytes;
    size_t bytes_per_event; /* added to queued_bytes by each event sent */
    char text[8192];
};

static void format_event(struct fixture *f, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static void format_event(struct fixture *f, const char *fmt, ...)
{
    size_t used = strlen(f->text);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(f->text + used, sizeof(f->text) - used, fmt, args);
    va_end(args);
}

static void say_event(struct fixture *f, const struct muster_watch_event *event)
{
    const struct muster_registry_record *r = event->record;

    format_event(f, " %.*s", (int)r->key.size, (const char *)r->key.data);
    if (r->version == 0)
        format_event(f, "-@%d", (int)r->mod_revision);
    else
        format_event(f, "=%.*s@%d", r->value.size > 20 ? 1 : (int)r->value.size,
                     (const char *)r->value.data, (int)r->mod_revision);
    if (event->has_previous)
        format_event(f, "(was %.*s)",
                     event->previous.value.size > 20 ? 1 : (int)event->previous.value.size,
                     (const char *)event->previous.value.data);
}

/* "[id rev: created a=1@2]" */
static void on_send(struct muster_watch_stream *stream, const struct muster_watch_answer *answer)
{
    struct fixture *f = stream->data;

    format_event(f, "[%d r%d:", (int)answer->watch_id, (int)answer->revision);
    if (answer->is_created)
        format_event(f, " created");
    if (answer->is_canceled)
        format_event(f, " canceled");
    if (answer->compact_revision != 0)
        format_event(f, " compacted %d", (int)answer->compact_revision);
    if (answer->is_canceled && answer->cancel_reason != NULL && answer->compact_revision == 0)
        format_event(f, " (%s)", answer->cancel_reason);
    for (size_t i = 0; i < answer->event_count; i++)
        say_event(f, &answer->events[i]);
    if (answer->is_fragment)
        format_event(f, " more");
    format_event(f, "]");
    f->queued_bytes += answer->event_count * f->bytes_per_event;
}

static size_t queued_bytes(const struct muster_watch_stream *stream)
{
    const struct fixture *f = stream->data;

    return f->queued_bytes;
}

static const struct muster_watch_stream_ops stream_ops = {.send = on_send,
                                                          .queued_bytes = queued_bytes};

static bool has_lease(void *data, int64_t lease)
{
    (void)data;
    (void)lease;
    return false;
}

static void open_fixture(struct fixture *f)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;

    memset(f, 0, sizeof(*f));
    muster_mem_limited_init(&f->mem, careful_mem(), 0);
    virtual_loop_init(&f->loop);
    f->env = (struct muster_env){.mem = &f->mem.mem, .loop = &f->loop.loop};
    assert_int_equal(muster_registry_store_open(f->env.mem, &options, &f->store, &error),
                     MUSTER_OK);
    muster_registry_arena_init(&f->arena, f->env.mem, MUSTER_MVCC_ANSWER_BYTES_MAX);
    assert_int_equal(muster_mvcc_init(&f->mvcc, f->store, has_lease, NULL), MUSTER_OK);
    muster_watch_hub_init(&f->hub, &f->env, &f->mvcc, 600 * MUSTER_NS_PER_S);
    muster_watch_stream_open(&f->stream, &f->hub, &stream_ops, f);
}

static void close_fixture(struct fixture *f)
{
    muster_watch_stream_close(&f->stream);
    muster_watch_hub_fini(&f->hub);
    muster_registry_arena_fini(&f->arena);
    muster_registry_store_close(f->store);
    assert_int_equal(muster_mem_limited_fini(&f->mem), 0);
}

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static void write_one(struct fixture *f, struct muster_mvcc_request *request)
{
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;

    assert_int_equal(muster_mvcc_apply(&f->mvcc, request, &f->arena, &result, &error, &is_broken),
                     MUSTER_OK);
    muster_registry_arena_reset(&f->arena);
}

static void put_key(struct fixture *f, const char *key, const char *value)
{
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_PUT,
                                          .put = {.key = bytes_of(key), .value = bytes_of(value)}};

    write_one(f, &request);
}

static void delete_key(struct fixture *f, const char *key, const char *end)
{
    struct muster_mvcc_request request = {
        .kind = MUSTER_MVCC_DELETE,
        .delete = {.span = {.key = bytes_of(key), .end = bytes_of(end)}}};

    write_one(f, &request);
}

static void commit_changes(struct fixture *f)
{
    assert_int_equal(muster_mvcc_commit(&f->mvcc), MUSTER_OK);
    muster_watch_hub_committed(&f->hub);
}

static void compact_log(struct fixture *f, int64_t revision)
{
    struct muster_error error;
    bool is_done = false;

    assert_int_equal(muster_mvcc_compact(&f->mvcc, revision, &error), MUSTER_OK);
    while (!is_done)
        assert_int_equal(muster_mvcc_compact_step(&f->mvcc, 2, &is_done), MUSTER_OK);
    commit_changes(f);
}

static struct muster_watch_wish wish_for(const char *key, const char *end, int64_t start)
{
    return (struct muster_watch_wish){.span = {.key = bytes_of(key), .end = bytes_of(end)},
                                      .start_revision = start};
}

static void create_watch(struct fixture *f, struct muster_watch_wish wish)
{
    muster_watch_stream_create(&f->stream, &wish);
}

static void expect_events(struct fixture *f, const char *text)
{
    assert_string_equal(f->text, text);
    f->text[0] = '\0';
}

static void new_changes_come_after_the_commit(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    create_watch(&f, wish_for("a", "", 0));
    expect_events(&f, "[0 r1: created]");

    put_key(&f, "a", "1");
    put_key(&f, "b", "2");
    expect_events(&f, "");
    commit_changes(&f);
    expect_events(&f, "[0 r3: a=1@2]");
    delete_key(&f, "a", "");
    commit_changes(&f);
    expect_events(&f, "[0 r4: a-@4]");

    close_fixture(&f);
}

/* The texts of a wish are the caller's: they are somebody else's when it has been granted. */
static void a_watch_sees_its_range_and_nothing_beyond(void **state)
{
    static const struct {
        const char *key, *end, *seen;
    } rows[] = {
        {"b", "", "[0 r6: b=1@3]"},
        {"b", "d", "[0 r6: b=1@3 c=1@4]"},
        {"b", "b0", "[0 r6: b=1@3]"},
        {"bb", "c0", "[0 r6: c=1@4]"},
    };
    static const char *const keys[] = {"a", "b", "c", "d", "e"};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        char key[8], end[8];

        open_fixture(&f);
        (void)strcpy(key, rows[i].key);
        (void)strcpy(end, rows[i].end);
        create_watch(&f, wish_for(key, end, 0));
        memset(key, 0, sizeof(key));
        memset(end, 0xff, sizeof(end));
        f.text[0] = '\0';
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
            put_key(&f, keys[k], "1");
        commit_changes(&f);

        expect_events(&f, rows[i].seen);
        close_fixture(&f);
    }
}

static void history_comes_first_then_live_changes_without_gap_or_repeat(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    put_key(&f, "a", "1");
    put_key(&f, "a", "2");
    put_key(&f, "ab", "3");
    commit_changes(&f);

    create_watch(&f, wish_for("a", "b", 3));
    put_key(&f, "a", "4");
    commit_changes(&f);
    virtual_loop_advance(&f.loop, 0);
    expect_events(&f, "[0 r4: created][0 r5: a=2@3 ab=3@4 a=4@5]");
    put_key(&f, "a", "5");
    commit_changes(&f);
    expect_events(&f, "[0 r6: a=5@6]");

    close_fixture(&f);
}

static void uncommitted_changes_are_not_shown_to_a_watch_that_catches_up(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    put_key(&f, "a", "1");
    commit_changes(&f);
    create_watch(&f, wish_for("a", "", 1));

    put_key(&f, "a", "2");
    virtual_loop_advance(&f.loop, 0);
    expect_events(&f, "[0 r2: created][0 r2: a=1@2]");
    commit_changes(&f);
    expect_events(&f, "[0 r3: a=2@3]");

    close_fixture(&f);
}

static void a_start_in_the_future_skips_what_comes_before(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    create_watch(&f, wish_for("a", "", 4));

    put_key(&f, "a", "1");
    put_key(&f, "a", "2");
    commit_changes(&f);
    put_key(&f, "a", "3");
    commit_changes(&f);

    expect_events(&f, "[0 r1: created][0 r4: a=3@4]");
    close_fixture(&f);
}

static void previous_values_come_when_asked_for(void **state)
{
    struct fixture f;
    struct muster_watch_wish wish = wish_for("a", "", 0);

    (void)state;
    open_fixture(&f);
    wish.wants_previous = true;
    create_watch(&f, wish);

    put_key(&f, "a", "1");
    put_key(&f, "a", "2");
    delete_key(&f, "a", "");
    put_key(&f, "a", "3");
    commit_changes(&f);

    expect_events(&f, "[0 r1: created][0 r5: a=1@2 a=2@3(was 1) a-@4(was 2) a=3@5]");
    close_fixture(&f);
}

/* A change is told whole, if later, whichever allocation fails. */
static void without_memory_no_previous_value_is_left_out(void **state)
{
    struct muster_watch_wish wish = wish_for("a", "", 0);
    bool was_refused = true;
    unsigned refused = 0;

    (void)state;
    wish.wants_previous = true;
    for (uint64_t fail_at = 1; was_refused; fail_at++) {
        struct fixture f;

        open_fixture(&f);
        create_watch(&f, wish);
        put_key(&f, "a", "1");
        put_key(&f, "a", "2");
        assert_int_equal(muster_mvcc_commit(&f.mvcc), MUSTER_OK);
        f.mem.fail_at = fail_at;
        muster_watch_hub_committed(&f.hub);
        was_refused = f.mem.fail_at == 0;
        refused += was_refused;
        f.mem.fail_at = 0;
        virtual_loop_advance(&f.loop, 10 * MUSTER_NS_PER_S);

        expect_events(&f, "[0 r1: created][0 r3: a=1@2 a=2@3(was 1)]");
        close_fixture(&f);
    }
    assert_int_not_equal(refused, 0);
}

static void filters_drop_kinds_of_change(void **state)
{
    struct fixture f;
    struct muster_watch_wish wish = wish_for("a", "", 0);

    (void)state;
    open_fixture(&f);
    wish.skips_puts = true;
    create_watch(&f, wish);
    wish.skips_puts = false;
    wish.skips_deletes = true;
    create_watch(&f, wish);

    put_key(&f, "a", "1");
    delete_key(&f, "a", "");
    commit_changes(&f);

    expect_events(&f, "[0 r1: created][1 r1: created][0 r3: a-@3][1 r3: a=1@2]");
    close_fixture(&f);
}

static void ids_are_given_or_taken_and_bad_wishes_refused(void **state)
{
    struct fixture f;
    struct muster_watch_wish wish = wish_for("a", "", 0);

    (void)state;
    open_fixture(&f);
    wish.watch_id = 1;
    create_watch(&f, wish);
    create_watch(&f, wish);
    wish.watch_id = 0;
    create_watch(&f, wish);
    create_watch(&f, wish);
    create_watch(&f, wish_for("b", "a", 0));
    create_watch(&f, wish_for("b", "", -1));

    expect_events(
        &f, "[1 r1: created]"
            "[-1 r1: created canceled (mvcc: duplicate watch ID provided on the WatchStream)]"
            "[0 r1: created][2 r1: created]"
            "[-1 r1: created canceled (mvcc: watcher range is empty)]"
            "[-1 r1: created canceled (etcdserver: mvcc: required revision has been compacted)]");
    close_fixture(&f);
}

static void there_is_a_bound_of_watches(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    f.stream.watch_count = MUSTER_WATCHES_PER_STREAM_MAX - 1; /* as if there were so many */
    create_watch(&f, wish_for("a", "", 0));
    create_watch(&f, wish_for("a", "", 0));

    expect_events(&f, "[0 r1: created]"
                      "[-1 r1: created canceled (etcdserver: too many watches on one stream)]");
    f.stream.watch_count = 1;
    close_fixture(&f);
}

static void a_cancelled_watch_is_silent(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    create_watch(&f, wish_for("a", "", 0));

    muster_watch_stream_cancel(&f.stream, 0);
    muster_watch_stream_cancel(&f.stream, 5);
    put_key(&f, "a", "1");
    commit_changes(&f);

    expect_events(&f, "[0 r1: created][0 r1: canceled]");
    close_fixture(&f);
}

static void a_compacted_start_is_answered_with_the_smallest_that_is_allowed(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    put_key(&f, "a", "1");
    put_key(&f, "a", "2");
    delete_key(&f, "a", "");
    put_key(&f, "b", "1");
    commit_changes(&f);
    compact_log(&f, 4);

    create_watch(&f, wish_for("a", "z", 3));
    create_watch(&f, wish_for("a", "z", 4));
    virtual_loop_advance(&f.loop, 0);

    expect_events(&f, "[0 r5: created][1 r5: created][0 r5: canceled compacted 4]"
                      "[1 r5: a-@4 b=1@5]");
    close_fixture(&f);
}

static void progress_waits_until_every_watch_of_the_stream_has_caught_up(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    put_key(&f, "a", "1");
    commit_changes(&f);
    create_watch(&f, wish_for("a", "", 1));

    muster_watch_stream_progress(&f.stream);
    expect_events(&f, "[0 r2: created]");
    virtual_loop_advance(&f.loop, 0);
    expect_events(&f, "[0 r2: a=1@2][-1 r2:]");
    muster_watch_stream_progress(&f.stream);
    expect_events(&f, "[-1 r2:]");

    close_fixture(&f);
}

static void quiet_watches_are_told_of_progress_when_they_asked(void **state)
{
    struct fixture f;
    struct muster_watch_wish wish = wish_for("a", "", 0);

    (void)state;
    open_fixture(&f);
    create_watch(&f, wish);
    wish.wants_progress = true;
    create_watch(&f, wish);
    virtual_loop_advance(&f.loop, 600 * MUSTER_NS_PER_S);
    f.text[0] = '\0';

    put_key(&f, "b", "1");
    commit_changes(&f);
    virtual_loop_advance(&f.loop, 601 * MUSTER_NS_PER_S);

    expect_events(&f, "[1 r2:]");
    close_fixture(&f);
}

static void a_slow_stream_is_left_alone_and_loses_nothing(void **state)
{
    struct fixture f;
    char expected[4096] = "";
    char value[16];

    (void)state;
    open_fixture(&f);
    create_watch(&f, wish_for("a", "", 0));
    f.text[0] = '\0';
    f.bytes_per_event = MUSTER_WATCH_QUEUE_BYTES + 1;
    put_key(&f, "a", "0");
    commit_changes(&f);
    expect_events(&f, "[0 r2: a=0@2]");

    for (int i = 1; i <= 50; i++) {
        (void)snprintf(value, sizeof(value), "%d", i);
        put_key(&f, "a", value);
        commit_changes(&f);
        virtual_loop_advance(&f.loop, 0);
        (void)snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), " a=%d@%d",
                       i, i + 2);
    }
    expect_events(&f, "");
    f.queued_bytes = 0;
    f.bytes_per_event = 0;
    muster_watch_stream_resume(&f.stream);
    virtual_loop_advance(&f.loop, 0);
    assert_memory_equal(f.text, "[0 r52:", 7);
    assert_memory_equal(f.text + 7, expected, strlen(expected));
    f.text[0] = '\0';
    put_key(&f, "a", "x");
    commit_changes(&f);
    expect_events(&f, "[0 r53: a=x@53]");

    close_fixture(&f);
}

static void all_changes_of_one_revision_share_a_message(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    put_key(&f, "a", "1");
    put_key(&f, "b", "1");
    put_key(&f, "c", "1");
    commit_changes(&f);
    create_watch(&f, wish_for("a", "z", 0));

    delete_key(&f, "a", "c");
    commit_changes(&f);

    expect_events(&f, "[0 r4: created][0 r5: a-@5 b-@5]");
    close_fixture(&f);
}

static void large_histories_come_in_steps_of_whole_revisions(void **state)
{
    struct fixture f;
    static char large[100000];
    size_t answers = 0;

    (void)state;
    memset(large, 'x', sizeof(large) - 1);
    open_fixture(&f);
    for (int i = 0; i < 12; i++)
        put_key(&f, "a", large);
    commit_changes(&f);

    create_watch(&f, wish_for("a", "", 2));
    virtual_loop_advance(&f.loop, 0);

    for (const char *at = f.text; (at = strchr(at, '[')) != NULL; at++)
        answers++;
    assert_int_equal(answers, 1 + 4);
    assert_non_null(strstr(f.text, "a=x@13]"));
    close_fixture(&f);
}

/* Also where one of them is larger than a step. */
static void no_revision_of_a_large_history_is_cut(void **state)
{
    static const char *const keys[] = {"b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"};
    static char large[100000];
    struct muster_mvcc_request ops[12], txn = {.kind = MUSTER_MVCC_TXN};
    struct fixture f;

    (void)state;
    memset(large, 'x', sizeof(large) - 1);
    open_fixture(&f);
    put_key(&f, "a", "1");
    for (size_t i = 0; i < 12; i++)
        ops[i] = (struct muster_mvcc_request){
            .kind = MUSTER_MVCC_PUT, .put = {.key = bytes_of(keys[i]), .value = bytes_of(large)}};
    txn.txn.success = ops;
    txn.txn.success_count = 12;
    write_one(&f, &txn);
    put_key(&f, "z", "1");
    commit_changes(&f);
    create_watch(&f, wish_for("a", "zz", 2));
    virtual_loop_advance(&f.loop, 0);

    expect_events(
        &f, "[0 r4: created][0 r4: a=1@2 b=x@3 c=x@3 d=x@3 e=x@3 f=x@3 g=x@3 h=x@3 i=x@3 j=x@3 "
            "k=x@3 l=x@3 m=x@3][0 r4: z=1@4]");
    close_fixture(&f);
}

static void a_large_message_is_cut_into_fragments_when_asked(void **state)
{
    struct fixture f;
    static char large[1000000];
    struct muster_watch_wish wish = wish_for("a", "z", 0);

    (void)state;
    memset(large, 'x', sizeof(large) - 1);
    open_fixture(&f);
    wish.wants_fragments = true;
    create_watch(&f, wish);
    f.text[0] = '\0';

    put_key(&f, "a", large);
    put_key(&f, "b", large);
    put_key(&f, "c", "1");
    commit_changes(&f);

    expect_events(&f, "[0 r4: a=x@2 more][0 r4: b=x@3 c=1@4]");
    close_fixture(&f);
}

static void one_change_larger_than_a_fragment_comes_alone(void **state)
{
    struct fixture f;
    static char large[2000000];
    struct muster_watch_wish wish = wish_for("a", "z", 0);

    (void)state;
    memset(large, 'x', sizeof(large) - 1);
    open_fixture(&f);
    wish.wants_fragments = true;
    create_watch(&f, wish);
    f.text[0] = '\0';

    put_key(&f, "a", large);
    put_key(&f, "b", large);
    commit_changes(&f);

    expect_events(&f, "[0 r3: a=x@2 more][0 r3: b=x@3]");
    close_fixture(&f);
}

static void what_was_before_counts_in_a_fragment_too(void **state)
{
    struct fixture f;
    static char large[500000];
    struct muster_watch_wish wish = wish_for("a", "z", 0);

    (void)state;
    memset(large, 'x', sizeof(large) - 1);
    open_fixture(&f);
    put_key(&f, "a", large);
    put_key(&f, "b", large);
    commit_changes(&f);
    wish.wants_fragments = wish.wants_previous = true;
    create_watch(&f, wish);
    f.text[0] = '\0';
    put_key(&f, "a", large);
    put_key(&f, "b", large);
    commit_changes(&f);

    expect_events(&f, "[0 r5: a=x@4(was x) more][0 r5: b=x@5(was x)]");
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_changes_come_after_the_commit),
        cmocka_unit_test(a_watch_sees_its_range_and_nothing_beyond),
        cmocka_unit_test(history_comes_first_then_live_changes_without_gap_or_repeat),
        cmocka_unit_test(uncommitted_changes_are_not_shown_to_a_watch_that_catches_up),
        cmocka_unit_test(a_start_in_the_future_skips_what_comes_before),
        cmocka_unit_test(previous_values_come_when_asked_for),
        cmocka_unit_test(without_memory_no_previous_value_is_left_out),
        cmocka_unit_test(filters_drop_kinds_of_change),
        cmocka_unit_test(ids_are_given_or_taken_and_bad_wishes_refused),
        cmocka_unit_test(there_is_a_bound_of_watches),
        cmocka_unit_test(a_cancelled_watch_is_silent),
        cmocka_unit_test(a_compacted_start_is_answered_with_the_smallest_that_is_allowed),
        cmocka_unit_test(progress_waits_until_every_watch_of_the_stream_has_caught_up),
        cmocka_unit_test(quiet_watches_are_told_of_progress_when_they_asked),
        cmocka_unit_test(a_slow_stream_is_left_alone_and_loses_nothing),
        cmocka_unit_test(all_changes_of_one_revision_share_a_message),
        cmocka_unit_test(large_histories_come_in_steps_of_whole_revisions),
        cmocka_unit_test(no_revision_of_a_large_history_is_cut),
        cmocka_unit_test(a_large_message_is_cut_into_fragments_when_asked),
        cmocka_unit_test(what_was_before_counts_in_a_fragment_too),
        cmocka_unit_test(one_change_larger_than_a_fragment_comes_alone),
    };

    return cmocka_run_group_tests_name("registry_watch", tests, NULL, NULL);
}
