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

static void notices_are_those_that_end_the_machine(void **state)
{
    static const struct {
        const char *name, *answers;
        size_t requests;
        const char *causes;
    } rows[] = {
        {"a maintenance that ends the machine",
         "[" SEEN(EVENT, "0", "a", "NONE") "," SEEN(
             EVENT, "a", "b",
             "TERMINATE_ON_HOST_MAINTENANCE\\n") "," HANGS(EVENT,
                                                           "b") "," SEEN(PREEMPTED, "0", "c",
                                                                         "FALSE") "," HANGS(PREEMPTED,
                                                                                            "c") "]",
         5, "TERMINATE_ON_HOST_MAINTENANCE "},
        {"a migration",
         "[" SEEN(EVENT, "0", "a", "MIGRATE_ON_HOST_MAINTENANCE") "," HANGS(EVENT, "a") "," SEEN(
             PREEMPTED, "0", "c", "FALSE") "," HANGS(PREEMPTED, "c") "]",
         4, ""},
        {"the end of a spot machine",
         "[" SEEN(EVENT, "0", "a", "NONE") "," HANGS(EVENT, "a") "," SEEN(
             PREEMPTED, "0", "c", "TRUE") "," HANGS(PREEMPTED, "c") "]",
         4, "PREEMPTED "},
        {"values of other lengths",
         "[" SEEN(EVENT, "0", "a", "") "," HANGS(EVENT, "a") "," SEEN(
             PREEMPTED, "0", "c", "TRUER") "," HANGS(PREEMPTED, "c") "]",
         4, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage stage;

        stage_open(&stage, rows[i].answers);

        watch_values(&stage, rows[i].requests);

        if (strcmp(stage.causes, rows[i].causes) != 0)
            fail_msg("%s: \"%s\" instead of \"%s\"", rows[i].name, stage.causes, rows[i].causes);
        stage_close(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notices_are_those_that_end_the_machine),
    };

    return cmocka_run_group_tests_name("maintenance", tests, NULL, NULL);
}
