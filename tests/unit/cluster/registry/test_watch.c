/* Watches: order, history, filters, compaction, progress, slow readers. Steps are words, and answers are kept
 * as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mvcc_stage.h"
#include "torture.h"
#include "virtual_loop.h"

#include "cluster/registry/watch.h"

#define STEP_BYTES 80

struct fixture {
    struct mvcc_stage stage;
    struct virtual_loop loop;
    struct muster_env env;
    struct muster_watch_hub hub;
    struct muster_watch_stream stream;
    size_t queued_bytes;
    size_t bytes_per_event; /* added to queued_bytes by each event sent */
    char text[8192];
};

/* --- Answers --- */

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

static void open_fixture(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    mvcc_stage_open(&f->stage);
    virtual_loop_init(&f->loop);
    f->env = (struct muster_env){.mem = &f->stage.mem.mem, .loop = &f->loop.loop};
    muster_watch_hub_init(&f->hub, &f->env, &f->stage.mvcc, 600 * MUSTER_NS_PER_S);
    muster_watch_stream_open(&f->stream, &f->hub, &stream_ops, f);
}

static void close_fixture(struct fixture *f)
{
    muster_watch_stream_close(&f->stream);
    muster_watch_hub_fini(&f->hub);
    mvcc_stage_close(&f->stage);
}

/* --- Steps --- */

/* "x*1000" is a thousand times x, "-" nothing. */
static struct muster_bytes bytes_of(const char *word)
{
    static char large[2000000];

    if (strncmp(word, "x*", 2) != 0)
        return (struct muster_bytes){.data = word,
                                     .size = strcmp(word, "-") == 0 ? 0 : strlen(word)};
    memset(large, 'x', sizeof(large));
    return (struct muster_bytes){.data = large, .size = strtoul(word + 2, NULL, 10)};
}

static void write_one(struct fixture *f, struct muster_mvcc_request *request)
{
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;

    assert_int_equal(
        muster_mvcc_apply(&f->stage.mvcc, request, &f->stage.arena, &result, &error, &is_broken),
        MUSTER_OK);
    muster_registry_arena_reset(&f->stage.arena);
}

/* One put per letter of keys, all in one revision. */
static void put_keys(struct fixture *f, const char *keys, struct muster_bytes value)
{
    struct muster_mvcc_request ops[16] = {{.kind = MUSTER_MVCC_NOTHING}};
    struct muster_mvcc_request txn = {.kind = MUSTER_MVCC_TXN,
                                      .txn = {.success = ops, .success_count = strlen(keys)}};

    for (size_t i = 0; keys[i] != '\0'; i++)
        ops[i] = (struct muster_mvcc_request){
            .kind = MUSTER_MVCC_PUT, .put = {.key = {.data = keys + i, .size = 1}, .value = value}};
    write_one(f, &txn);
}

static void commit_changes(struct fixture *f)
{
    assert_int_equal(muster_mvcc_commit(&f->stage.mvcc), MUSTER_OK);
    muster_watch_hub_committed(&f->hub);
}

static void compact_log(struct fixture *f, int64_t revision)
{
    struct muster_error error;
    bool is_done = false;

    assert_int_equal(muster_mvcc_compact(&f->stage.mvcc, revision, &error), MUSTER_OK);
    while (!is_done)
        assert_int_equal(muster_mvcc_compact_step(&f->stage.mvcc, 2, &is_done), MUSTER_OK);
    commit_changes(f);
}

/* "watch key end start" and what it wants besides. */
static void create_watch(struct fixture *f, char words[][20], size_t count)
{
    struct muster_watch_wish wish = {.span = {.key = bytes_of(words[1]), .end = bytes_of(words[2])},
                                     .start_revision = strtoll(words[3], NULL, 10)};

    for (size_t i = 4; i < count; i++) {
        wish.wants_previous |= strcmp(words[i], "previous") == 0;
        wish.wants_progress |= strcmp(words[i], "progress") == 0;
        wish.wants_fragments |= strcmp(words[i], "fragments") == 0;
        wish.skips_puts |= strcmp(words[i], "no_put") == 0;
        wish.skips_deletes |= strcmp(words[i], "no_delete") == 0;
        if (strncmp(words[i], "id=", 3) == 0)
            wish.watch_id = strtoll(words[i] + 3, NULL, 10);
    }
    muster_watch_stream_create(&f->stream, &wish);
}

static void run_step(struct fixture *f, const char *step)
{
    char words[6][20];
    int count = sscanf(step, "%19s %19s %19s %19s %19s %19s", words[0], words[1], words[2],
                       words[3], words[4], words[5]);
    const char *verb = words[0];
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_NOTHING};
    int64_t number = count > 1 ? strtoll(words[1], NULL, 10) : 0;

    assert_true(count > 0);
    if (strcmp(verb, "|") == 0) { /* what comes from here on */
        format_event(f, "|");
    } else if (strcmp(verb, "watch") == 0) {
        create_watch(f, words, (size_t)count);
    } else if (strcmp(verb, "put") == 0) {
        request.kind = MUSTER_MVCC_PUT;
        request.put =
            (struct muster_mvcc_put){.key = bytes_of(words[1]), .value = bytes_of(words[2])};
        write_one(f, &request);
    } else if (strcmp(verb, "puts") == 0) {
        put_keys(f, words[1], bytes_of(words[2]));
    } else if (strcmp(verb, "del") == 0) {
        request.kind = MUSTER_MVCC_DELETE;
        request.delete.span.key = bytes_of(words[1]);
        request.delete.span.end = bytes_of(words[2]);
        write_one(f, &request);
    } else if (strcmp(verb, "commit") == 0) {
        commit_changes(f);
    } else if (strcmp(verb, "compact") == 0) {
        compact_log(f, number);
    } else if (strcmp(verb, "cancel") == 0) {
        muster_watch_stream_cancel(&f->stream, number);
    } else if (strcmp(verb, "progress") == 0) {
        muster_watch_stream_progress(&f->stream);
    } else if (strcmp(verb, "wait") == 0) { /* so many seconds */
        virtual_loop_advance(&f->loop, (uint64_t)number * MUSTER_NS_PER_S);
    } else if (strcmp(verb, "forget") == 0) { /* what has come so far */
        f->text[0] = '\0';
    } else {
        fail_msg("%s is not a step", step);
    }
}

/* Steps between semicolons. */
static void run_steps(struct fixture *f, const char *steps)
{
    char step[STEP_BYTES];

    for (const char *at = steps; *at != '\0'; at += strcspn(at, ";"), at += *at == ';') {
        (void)snprintf(step, sizeof(step), "%.*s", (int)strcspn(at, ";"), at);
        run_step(f, step);
    }
}

static const struct {
    const char *name, *steps, *answers;
} rows[] = {
    {"new changes come after the commit", "watch a - 0;put a 1;put b 2;|;commit;|;del a -;commit",
     "[0 r1: created]|[0 r3: a=1@2]|[0 r4: a-@4]"},
    {"history comes first, then live changes, without gap or repeat",
     "put a 1;put a 2;put ab 3;commit;watch a b 3;put a 4;commit;wait 0;|;put a 5;commit",
     "[0 r4: created][0 r5: a=2@3 ab=3@4 a=4@5]|[0 r6: a=5@6]"},
    {"uncommitted changes are not shown to a watch that catches up",
     "put a 1;commit;watch a - 1;put a 2;wait 0;|;commit",
     "[0 r2: created][0 r2: a=1@2]|[0 r3: a=2@3]"},
    {"a start in the future skips what comes before",
     "watch a - 4;put a 1;put a 2;commit;put a 3;commit", "[0 r1: created][0 r4: a=3@4]"},
    {"previous values come when asked for",
     "watch a - 0 previous;put a 1;put a 2;del a -;put a 3;commit",
     "[0 r1: created][0 r5: a=1@2 a=2@3(was 1) a-@4(was 2) a=3@5]"},
    {"filters drop kinds of change",
     "watch a - 0 no_put;watch a - 0 no_delete;put a 1;del a -;commit",
     "[0 r1: created][1 r1: created][0 r3: a-@3][1 r3: a=1@2]"},
    {"ids are given or taken, and bad wishes refused",
     "watch a - 0 id=1;watch a - 0 id=1;watch a - 0;watch a - 0;watch b a 0;watch b - -1",
     "[1 r1: created][-1 r1: created canceled (mvcc: duplicate watch ID provided on the "
     "WatchStream)][0 r1: created][2 r1: created]"
     "[-1 r1: created canceled (mvcc: watcher range is empty)]"
     "[-1 r1: created canceled (etcdserver: mvcc: required revision has been compacted)]"},
    {"a cancelled watch is silent", "watch a - 0;cancel 0;cancel 5;put a 1;commit",
     "[0 r1: created][0 r1: canceled]"},
    {"a compacted start is answered with the smallest that is allowed",
     "put a 1;put a 2;del a -;put b 1;commit;compact 4;watch a z 3;watch a z 4;wait 0",
     "[0 r5: created][1 r5: created][0 r5: canceled compacted 4][1 r5: a-@4 b=1@5]"},
    {"progress waits until every watch of the stream has caught up",
     "put a 1;commit;watch a - 1;progress;|;wait 0;|;progress",
     "[0 r2: created]|[0 r2: a=1@2][-1 r2:]|[-1 r2:]"},
    {"quiet watches are told of progress when they asked",
     "watch a - 0;watch a - 0 progress;wait 600;forget;put b 1;commit;wait 601", "[1 r2:]"},
    {"all changes of one revision share a message",
     "put a 1;put b 1;put c 1;commit;watch a z 0;del a c;commit",
     "[0 r4: created][0 r5: a-@5 b-@5]"},
    {"no revision of a large history is cut, also where one is larger than a step",
     "put a 1;puts bcdefghijklm x*99999;put z 1;commit;watch a zz 2;wait 0",
     "[0 r4: created][0 r4: a=1@2 b=x@3 c=x@3 d=x@3 e=x@3 f=x@3 g=x@3 h=x@3 i=x@3 j=x@3 k=x@3 "
     "l=x@3 m=x@3][0 r4: z=1@4]"},
    {"a large message is cut into fragments when asked",
     "watch a z 0 fragments;forget;put a x*999999;put b x*999999;put c 1;commit",
     "[0 r4: a=x@2 more][0 r4: b=x@3 c=1@4]"},
    {"one change larger than a fragment comes alone",
     "watch a z 0 fragments;forget;put a x*1999999;put b x*1999999;commit",
     "[0 r3: a=x@2 more][0 r3: b=x@3]"},
    {"what was before counts in a fragment too",
     "put a x*499999;put b x*499999;commit;watch a z 0 fragments previous;forget;"
     "put a x*499999;put b x*499999;commit",
     "[0 r5: a=x@4(was x) more][0 r5: b=x@5(was x)]"},
};

static void watches_are_told_in_order_what_they_want(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;

        open_fixture(&f);
        run_steps(&f, rows[i].steps);
        if (strcmp(f.text, rows[i].answers) != 0)
            fail_msg("%s:\n  %s\n  is not\n  %s", rows[i].name, f.text, rows[i].answers);
        close_fixture(&f);
    }
}

/* The texts of a wish are the caller's: they are somebody else's when it has been granted. */
static void a_watch_sees_its_range_and_nothing_beyond(void **state)
{
    static const struct {
        const char *key, *end, *seen;
    } ranges[] = {
        {"b", "", "[0 r6: b=1@3]"},
        {"b", "d", "[0 r6: b=1@3 c=1@4]"},
        {"b", "b0", "[0 r6: b=1@3]"},
        {"bb", "c0", "[0 r6: c=1@4]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        char key[8], end[8];
        const struct muster_watch_wish wish = {
            .span = {.key = {key, strlen(ranges[i].key)}, .end = {end, strlen(ranges[i].end)}}};
        struct fixture f;

        open_fixture(&f);
        (void)strcpy(key, ranges[i].key);
        (void)strcpy(end, ranges[i].end);
        muster_watch_stream_create(&f.stream, &wish);
        memset(key, 0, sizeof(key));
        memset(end, 0xff, sizeof(end));
        run_steps(&f, "forget;put a 1;put b 1;put c 1;put d 1;put e 1;commit");

        assert_string_equal(f.text, ranges[i].seen);
        close_fixture(&f);
    }
}

static void there_is_a_bound_of_watches(void **state)
{
    struct fixture f;

    (void)state;
    open_fixture(&f);
    f.stream.watch_count = MUSTER_WATCHES_PER_STREAM_MAX - 1; /* as if there were so many */
    run_steps(&f, "watch a - 0;watch a - 0");

    assert_string_equal(f.text,
                        "[0 r1: created]"
                        "[-1 r1: created canceled (etcdserver: too many watches on one stream)]");
    f.stream.watch_count = 1;
    close_fixture(&f);
}

/* A change is told whole, if later, whichever allocation fails. */
static void run_previous(struct torture *torture, const void *data)
{
    struct fixture f;

    (void)data;
    open_fixture(&f);
    run_steps(&f, "watch a - 0 previous;put a 1;put a 2");
    assert_int_equal(muster_mvcc_commit(&f.stage.mvcc), MUSTER_OK);
    torture_arm_limited(torture, &f.stage.mem);
    muster_watch_hub_committed(&f.hub);
    torture_disarm(torture);
    run_steps(&f, "wait 10");

    assert_string_equal(f.text, "[0 r1: created][0 r3: a=1@2 a=2@3(was 1)]");
    close_fixture(&f);
}

static void without_memory_no_previous_value_is_left_out(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "previous", .run = run_previous});
}

static void a_slow_stream_is_left_alone_and_loses_nothing(void **state)
{
    struct fixture f;
    char expected[4096] = "[0 r52:";
    char step[STEP_BYTES];

    (void)state;
    open_fixture(&f);
    run_steps(&f, "watch a - 0;forget");
    f.bytes_per_event = MUSTER_WATCH_QUEUE_BYTES + 1;
    run_steps(&f, "put a 0;commit");
    assert_string_equal(f.text, "[0 r2: a=0@2]");
    run_steps(&f, "forget");

    for (int i = 1; i <= 50; i++) {
        (void)snprintf(step, sizeof(step), "put a %d;commit;wait 0", i);
        run_steps(&f, step);
        (void)snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), " a=%d@%d",
                       i, i + 2);
    }
    assert_string_equal(f.text, "");
    f.queued_bytes = 0;
    f.bytes_per_event = 0;
    muster_watch_stream_resume(&f.stream);
    run_steps(&f, "wait 0");
    assert_memory_equal(f.text, expected, strlen(expected));
    run_steps(&f, "forget;put a x;commit");
    assert_string_equal(f.text, "[0 r53: a=x@53]");

    close_fixture(&f);
}

static void large_histories_come_in_steps_of_whole_revisions(void **state)
{
    struct fixture f;
    size_t answers = 0;

    (void)state;
    open_fixture(&f);
    for (int i = 0; i < 12; i++)
        run_steps(&f, "put a x*99999");
    run_steps(&f, "commit;watch a - 2;wait 0");

    for (const char *at = f.text; (at = strchr(at, '[')) != NULL; at++)
        answers++;
    assert_int_equal(answers, 1 + 4);
    assert_non_null(strstr(f.text, "a=x@13]"));
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watches_are_told_in_order_what_they_want),
        cmocka_unit_test(a_watch_sees_its_range_and_nothing_beyond),
        cmocka_unit_test(there_is_a_bound_of_watches),
        cmocka_unit_test(without_memory_no_previous_value_is_left_out),
        cmocka_unit_test(a_slow_stream_is_left_alone_and_loses_nothing),
        cmocka_unit_test(large_histories_come_in_steps_of_whole_revisions),
    };

    return cmocka_run_group_tests_name("registry_watch", tests, NULL, NULL);
}
