/* The watch of one value, against a played metadata server. */
#include "resolvers/platform/tpu/metadata_watch.h"

#include "cloud_fixture.h"

#include <string.h>

#define VALUE  "instance/attributes/x"
#define PATH   "/computeMetadata/v1/" VALUE
#define FLAVOR "\"Metadata-Flavor\":\"Google\""
#define TAG(at)                                                                                    \
    "{\"match\":{\"path\":\"" PATH "\",\"query\":{\"last_etag\":\"" at "\"}},\"response\":"
/* The answer to a client that has seen `at`. */
#define SEEN(at, etag) TAG(at) "{\"headers\":{" FLAVOR ",\"ETag\":\"" etag "\"},\"body\":\"v\"}}"
#define SEEN_ONCE(at, etag)                                                                        \
    TAG(at) "{\"headers\":{" FLAVOR ",\"ETag\":\"" etag "\"},\"body\":\"v\"},\"times\":1}"
#define HANGS(at) TAG(at) "{\"hang\":true}}"
#define FAILS(at, times)                                                                           \
    TAG(at) "{\"status\":503,\"headers\":{" FLAVOR "},\"body\":\"\"},\"times\":" times "}"

struct stage {
    struct cloud_fixture f;
    struct muster_metadata_watch watch;
    unsigned change_count, off_count;
    size_t awaited; /* requests */
};

static void on_change(struct muster_metadata_watch *watch)
{
    ((struct stage *)watch->data)->change_count++;
}

static void on_off(struct muster_metadata_watch *watch)
{
    ((struct stage *)watch->data)->off_count++;
}

static void stage_open(struct stage *stage, const char *script)
{
    memset(stage, 0, sizeof(*stage));
    cloud_fixture_open(&stage->f, NULL);
    cloud_fixture_set_var(&stage->f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(&stage->f, script);
    muster_metadata_watch_init(&stage->watch, stage->f.env, VALUE);
    stage->watch.data = stage;
    stage->watch.on_change = on_change;
    stage->watch.on_off = on_off;
    stage->watch.interval_min_ns = 10 * MUSTER_NS_PER_MS;
}

static bool is_off(void *data)
{
    return ((struct stage *)data)->watch.state == MUSTER_METADATA_WATCH_OFF;
}

static void stage_close(struct stage *stage)
{
    muster_metadata_watch_stop(&stage->watch);
    test_env_run_until(stage->f.env, is_off, stage);
    muster_metadata_watch_fini(&stage->watch);
    cloud_fixture_close(&stage->f);
}

static bool has_asked(void *data)
{
    const struct stage *stage = data;

    return fake_cloud_counts(stage->f.cloud)->requests >= stage->awaited;
}

static void wait_for_requests(struct stage *stage, size_t count)
{
    stage->awaited = count;
    test_env_run_until(stage->f.env, has_asked, stage);
}

static const char *query_of(struct stage *stage, size_t request, const char *name)
{
    const char *text =
        muster_json_text(muster_json_member(fake_cloud_request(stage->f.cloud, request)->query, name));

    return text != NULL ? text : "";
}

static void a_changed_value_is_told(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" SEEN("0", "aa-11") "," SEEN("aa-11", "b-1") "," HANGS("b-1") "]");

    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 3);

    assert_int_equal(stage.change_count, 2);
    assert_string_equal(query_of(&stage, 2, "wait_for_change"), "true");
    assert_string_equal(query_of(&stage, 2, "timeout_sec"), "60");
    assert_string_equal(query_of(&stage, 2, "last_etag"), "b-1");
    stage_close(&stage);
    assert_int_equal(stage.off_count, 1);
}

static void an_unchanged_value_is_not_told(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" SEEN("0", "a") "," SEEN_ONCE("a", "a") "," SEEN_ONCE("a", "a") "," HANGS(
                           "a") "]");

    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 4);

    assert_int_equal(stage.change_count, 1);
    stage_close(&stage);
}

static void failures_are_lived_through(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" FAILS("0", "2") "," SEEN("0", "a") "," HANGS("a") "]");

    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 4);

    assert_int_equal(stage.change_count, 1);
    assert_true(stage.watch.backoff_ns == 0);
    stage_close(&stage);
}

static void what_is_no_tag_is_not_sent_back(void **state)
{
    static const char *const scripts[] = {
        "[" SEEN("0", "a&b=c") "]",
        "[" SEEN("0", "") "]",
        "[" SEEN("0", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") "]",
    };
    struct stage stage;
    (void)state;

    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        stage_open(&stage, scripts[i]);
        muster_metadata_watch_start(&stage.watch);
        wait_for_requests(&stage, 3);

        assert_true(stage.change_count >= 2);
        assert_int_equal(stage.watch.state, MUSTER_METADATA_WATCH_WAITING);
        assert_string_equal(query_of(&stage, 2, "last_etag"), "0");
        assert_int_equal(fake_cloud_counts(stage.f.cloud)->unmatched, 0);
        stage_close(&stage);
    }
}

/* The loop's own time: the third request is two intervals after the first at the earliest. */
static void a_hasty_server_is_not_asked_in_a_circle(void **state)
{
    struct stage stage;
    uint64_t begin_ns;
    (void)state;
    stage_open(&stage, "[" SEEN("0", "") "]");
    stage.watch.interval_min_ns = 30 * MUSTER_NS_PER_MS;
    begin_ns = muster_loop_now_ns(stage.f.env->loop);

    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 3);

    assert_true(muster_loop_now_ns(stage.f.env->loop) - begin_ns >= 60 * MUSTER_NS_PER_MS);
    stage_close(&stage);
}

static bool has_changed(void *data)
{
    const struct stage *stage = data;

    return stage->change_count >= stage->awaited;
}

/* The pause counts from the request's begin, and there is none after the first answer. */
static void the_next_request_follows_at_once_unless_it_is_too_early(void **state)
{
    static const struct {
        const char *name;
        uint64_t interval_ns;
        unsigned changes;
        enum muster_metadata_watch_state then;
    } rows[] = {
        {"first", 3600 * MUSTER_NS_PER_S, 1, MUSTER_METADATA_WATCH_WAITING},
        {"second, too early", 3600 * MUSTER_NS_PER_S, 2, MUSTER_METADATA_WATCH_PAUSING},
        {"second, in time", 1, 2, MUSTER_METADATA_WATCH_WAITING},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;

        stage_open(&stage, "[" SEEN("0", "a") "," SEEN("a", "b") "," HANGS("b") "]");
        stage.watch.interval_min_ns = rows[i].interval_ns;
        stage.awaited = rows[i].changes;
        muster_metadata_watch_start(&stage.watch);
        test_env_run_until(stage.f.env, has_changed, &stage);

        if (stage.change_count != rows[i].changes || stage.watch.state != rows[i].then)
            fail_msg("%s: state %d after change %u", rows[i].name, stage.watch.state,
                     stage.change_count);
        stage_close(&stage);
    }
}

static void stopping_ends_the_request(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" HANGS("0") "]");
    muster_metadata_watch_stop(&stage.watch);
    assert_int_equal(stage.off_count, 0);
    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 1);

    muster_metadata_watch_stop(&stage.watch);
    muster_metadata_watch_stop(&stage.watch);
    assert_int_equal(stage.off_count, 0);
    test_env_run_until(stage.f.env, is_off, &stage);

    assert_int_equal(stage.off_count, 1);
    assert_int_equal(stage.change_count, 0);
    stage_close(&stage);
}

static bool is_pausing(void *data)
{
    return ((struct stage *)data)->watch.state == MUSTER_METADATA_WATCH_PAUSING;
}

static void stopping_ends_a_pause_at_once(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" FAILS("0", "99") "]");
    stage.watch.interval_min_ns = 30 * MUSTER_NS_PER_S;
    muster_metadata_watch_start(&stage.watch);
    test_env_run_until(stage.f.env, is_pausing, &stage);

    muster_metadata_watch_stop(&stage.watch);

    assert_int_equal(stage.off_count, 1);
    stage_close(&stage);
}

static void wanted_again_while_it_stops_it_goes_on(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" HANGS("0") "]");
    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 1);

    muster_metadata_watch_stop(&stage.watch);
    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 2);

    assert_int_equal(stage.watch.state, MUSTER_METADATA_WATCH_WAITING);
    assert_int_equal(stage.off_count, 0);
    stage_close(&stage);
}

static void started_again_it_tells_what_it_missed(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" SEEN("0", "a") "," HANGS("a") "]");
    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 2);
    muster_metadata_watch_stop(&stage.watch);
    test_env_run_until(stage.f.env, is_off, &stage);

    muster_metadata_watch_start(&stage.watch);
    wait_for_requests(&stage, 4);

    assert_int_equal(stage.change_count, 2);
    stage_close(&stage);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_changed_value_is_told),
        cmocka_unit_test(an_unchanged_value_is_not_told),
        cmocka_unit_test(failures_are_lived_through),
        cmocka_unit_test(what_is_no_tag_is_not_sent_back),
        cmocka_unit_test(a_hasty_server_is_not_asked_in_a_circle),
        cmocka_unit_test(the_next_request_follows_at_once_unless_it_is_too_early),
        cmocka_unit_test(stopping_ends_the_request),
        cmocka_unit_test(stopping_ends_a_pause_at_once),
        cmocka_unit_test(wanted_again_while_it_stops_it_goes_on),
        cmocka_unit_test(started_again_it_tells_what_it_missed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
