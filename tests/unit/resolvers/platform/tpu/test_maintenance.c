/* Notices of the metadata server that the machine will be taken away. */
#include "resolvers/platform/tpu/maintenance.h"

#include "cloud_fixture.h"

#include <string.h>

#define PATH(name) "/computeMetadata/v1/instance/" name
#define FLAVOR     "\"Metadata-Flavor\":\"Google\""
#define TAG(name, at)                                                                              \
    "{\"match\":{\"path\":\"" PATH(name) "\",\"query\":{\"last_etag\":\"" at "\"}},\"response\":"
#define SEEN(name, at, etag, value)                                                                \
    TAG(name, at) "{\"headers\":{" FLAVOR ",\"ETag\":\"" etag "\"},\"body\":\"" value "\"}}"
#define HANGS(name, at) TAG(name, at) "{\"hang\":true}}"
#define EVENT           "maintenance-event"
#define PREEMPTED       "preempted"

struct stage {
    struct cloud_fixture f;
    struct muster_maintenance maintenance;
    char causes[128];
    unsigned off_count;
    size_t awaited; /* requests */
};

static void on_notice(struct muster_maintenance *maintenance, const char *cause)
{
    struct stage *stage = maintenance->data;

    strcat(strcat(stage->causes, cause), " ");
}

static void on_off(struct muster_maintenance *maintenance)
{
    ((struct stage *)maintenance->data)->off_count++;
}

static void stage_open(struct stage *stage, const char *script)
{
    memset(stage, 0, sizeof(*stage));
    cloud_fixture_open(&stage->f, NULL);
    cloud_fixture_set_var(&stage->f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(&stage->f, script);
    muster_maintenance_init(&stage->maintenance, stage->f.env);
    stage->maintenance.data = stage;
    stage->maintenance.on_notice = on_notice;
    stage->maintenance.on_off = on_off;
}

static bool is_off(void *data)
{
    return ((struct stage *)data)->off_count > 0;
}

static void stage_close(struct stage *stage)
{
    muster_maintenance_stop(&stage->maintenance);
    test_env_run_until(stage->f.env, is_off, stage);
    assert_int_equal(stage->off_count, 1);
    muster_maintenance_fini(&stage->maintenance);
    cloud_fixture_close(&stage->f);
}

static bool has_asked(void *data)
{
    const struct stage *stage = data;

    return fake_cloud_counts(stage->f.cloud)->requests >= stage->awaited;
}

static void watch_values(struct stage *stage, size_t requests)
{
    stage->awaited = requests;
    muster_maintenance_start(&stage->maintenance);
    test_env_run_until(stage->f.env, has_asked, stage);
}

static void a_maintenance_that_ends_the_machine_is_a_notice(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(
        &stage,
        "[" SEEN(EVENT, "0", "a", "NONE") "," SEEN(
            EVENT, "a", "b",
            "TERMINATE_ON_HOST_MAINTENANCE\\n") "," HANGS(EVENT,
                                                          "b") "," SEEN(PREEMPTED, "0", "c",
                                                                        "FALSE") "," HANGS(PREEMPTED,
                                                                                           "c") "]");

    watch_values(&stage, 5);

    assert_string_equal(stage.causes, "TERMINATE_ON_HOST_MAINTENANCE ");
    stage_close(&stage);
}

static void a_migration_is_none(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" SEEN(EVENT, "0", "a", "MIGRATE_ON_HOST_MAINTENANCE") "," HANGS(
                           EVENT, "a") "," SEEN(PREEMPTED, "0", "c", "FALSE") "," HANGS(PREEMPTED,
                                                                                        "c") "]");

    watch_values(&stage, 4);

    assert_string_equal(stage.causes, "");
    stage_close(&stage);
}

static void the_end_of_a_spot_machine_is_a_notice(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" SEEN(EVENT, "0", "a", "NONE") "," HANGS(EVENT, "a") "," SEEN(
                           PREEMPTED, "0", "c", "TRUE") "," HANGS(PREEMPTED, "c") "]");

    watch_values(&stage, 4);

    assert_string_equal(stage.causes, "PREEMPTED ");
    stage_close(&stage);
}

static void values_of_other_lengths_are_none(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, "[" SEEN(EVENT, "0", "a", "") "," HANGS(EVENT, "a") "," SEEN(
                           PREEMPTED, "0", "c", "TRUER") "," HANGS(PREEMPTED, "c") "]");

    watch_values(&stage, 4);

    assert_string_equal(stage.causes, "");
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_maintenance_that_ends_the_machine_is_a_notice),
        cmocka_unit_test(a_migration_is_none),
        cmocka_unit_test(the_end_of_a_spot_machine_is_a_notice),
        cmocka_unit_test(values_of_other_lengths_are_none),
    };

    return cmocka_run_group_tests_name("maintenance", tests, NULL, NULL);
}
