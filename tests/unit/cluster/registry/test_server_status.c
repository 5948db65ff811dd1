/* How a registry fares, as its pages, its gauges and its operator see it, over a virtual clock. */
#include "registry_stand.h"
#include "scene_case.h"

#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

/* The page of that path: its status, and its body into text. */
static int get_page(struct registry_stand *stand, const char *path, char *text, size_t room)
{
    struct muster_rpc_page_answer answer = {.status = 200, .type = ""};

    for (size_t i = 0; i < MUSTER_REGISTRY_PAGE_COUNT; i++) {
        struct muster_rpc_page *page = &stand->server->pages[i];

        if (page->path == NULL || strcmp(page->path, path) != 0)
            continue;
        page->on_request(page, &answer);
        if (answer.body == NULL)
            return answer.status;
        (void)snprintf(text, room, "%s: %.*s", answer.type, (int)answer.body_bytes, answer.body);
        muster_mem_free(stand->rpc.test.env.mem, answer.body);
        return answer.status;
    }
    fail_msg("no page %s", path);
    return 0;
}

static void check_health(struct registry_stand *stand, int status, const char *reason)
{
    char text[512], expected[512];
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_registry_server_status figures;
    enum muster_rc rc = muster_registry_server_check(stand->server, &error);

    muster_registry_server_status(stand->server, &figures);
    assert_int_equal(get_page(stand, "/health", text, sizeof(text)), status);
    (void)snprintf(expected, sizeof(expected),
                   "application/json: {\"health\":\"%s\",\"reason\":\"%s\"}",
                   status == 200 ? "true" : "false", reason);
    assert_string_equal(text, expected);
    assert_int_equal(rc == MUSTER_OK, status == 200);
    assert_int_equal(figures.is_failing || figures.is_over_quota, status != 200);
    if (rc != MUSTER_OK)
        assert_string_equal(error.text, reason);
}

SCENE_CASES(struct registry_stand, registry_stand_open, registry_stand_close)

static void failing_writes_are_told_until_they_are_well_again(void **state)
{
    struct registry_stand *stand = *state;
    char reason[160];
    int64_t commits = 0;

    muster_registry_pages_add(stand->server);
    (void)snprintf(reason, sizeof(reason), "%s: no such table: meta", stand->stage.path);
    check_health(stand, 200, "");
    store_stage_run_sql(registry_stand_database(stand), "ALTER TABLE meta RENAME TO away");
    registry_stand_put(stand, "a", 1, 0);
    rpc_stand_advance(&stand->rpc, 0);
    check_health(stand, 503, reason);
    assert_int_equal(stand->server->status.rc, MUSTER_UNAVAILABLE);
    rpc_stand_advance(&stand->rpc, 20 * MUSTER_NS_PER_S);
    check_health(stand, 503, reason);
    commits = stand->server->commits_total.value;
    store_stage_run_sql(registry_stand_database(stand), "ALTER TABLE away RENAME TO meta");
    rpc_stand_advance(&stand->rpc, 4 * MUSTER_NS_PER_S);
    check_health(stand, 503, reason);

    rpc_stand_advance(&stand->rpc, 2 * MUSTER_NS_PER_S);
    check_health(stand, 200, "");
    assert_int_equal(stand->server->commits_total.value, commits + 1); /* the registry's own */
    rpc_stand_advance(&stand->rpc, 60 * MUSTER_NS_PER_S);
    assert_int_equal(stand->server->commits_total.value, commits + 1);
}

/* One failed write among good ones counts for some seconds. */
static void writes_that_succeed_meanwhile_do_not_hide_it(void **state)
{
    struct registry_stand *stand = *state;

    muster_registry_pages_add(stand->server);
    muster_registry_server_break(stand->server, MUSTER_RESOURCE_EXHAUSTED);
    for (unsigned i = 0; i < 4; i++) {
        registry_stand_put(stand, "a", 1, 0);
        rpc_stand_advance(&stand->rpc, MUSTER_NS_PER_S);
        assert_true(stand->server->status.is_failing);
    }
    muster_registry_server_break(stand->server, MUSTER_RESOURCE_EXHAUSTED);
    rpc_stand_advance(&stand->rpc, 4 * MUSTER_NS_PER_S);
    assert_true(stand->server->status.is_failing);
    assert_int_equal(stand->server->status.failed_count, 2);

    rpc_stand_advance(&stand->rpc, 2 * MUSTER_NS_PER_S);
    assert_false(stand->server->status.is_failing);
    assert_int_equal(stand->server->status.failures_total.value, 2);
}

/* A compaction that the store refuses until its log is back. */
static void fail_compaction(struct registry_stand *stand)
{
    struct muster_error error;

    registry_stand_put(stand, "a", 1, 0);
    registry_stand_put(stand, "a", 1, 0);
    rpc_stand_advance(&stand->rpc, 0);
    assert_int_equal(muster_mvcc_compact(&stand->server->mvcc, 3, &error), MUSTER_OK);
    muster_registry_server_commit(stand->server);
    store_stage_run_sql(registry_stand_database(stand), "ALTER TABLE log RENAME TO away");
    muster_registry_server_clean(stand->server);
    rpc_stand_advance(&stand->rpc, 0);
    assert_true(stand->server->status.is_failing);
    assert_int_equal(stand->server->mvcc.meta.compacted_seq, 0);
    store_stage_run_sql(registry_stand_database(stand), "ALTER TABLE away RENAME TO log");
}

static void a_compaction_that_fails_is_told(void **state)
{
    struct registry_stand *stand = *state;

    fail_compaction(stand);
    muster_registry_server_clean(stand->server);
    rpc_stand_advance(&stand->rpc, 0);
    assert_true(stand->server->mvcc.meta.compacted_seq > 0);
}

static void a_compaction_that_failed_goes_on_once_writes_work(void **state)
{
    struct registry_stand *stand = *state;

    fail_compaction(stand);
    rpc_stand_advance(&stand->rpc, 7 * MUSTER_NS_PER_S);

    assert_false(stand->server->status.is_failing);
    assert_true(stand->server->mvcc.meta.compacted_seq > 0);
}

static void a_reason_cannot_end_the_text_of_the_page(void **state)
{
    struct registry_stand *stand = *state;
    char text[512];

    muster_registry_pages_add(stand->server);
    stand->server->status.is_failing = true;
    stand->server->status.rc = MUSTER_DATA_LOSS;
    (void)strcpy(stand->server->status.text, "a \"b\" \\ c\n\x1f \x7f");

    assert_int_equal(get_page(stand, "/health", text, sizeof(text)), 503);
    assert_string_equal(text,
                        "application/json: {\"health\":\"false\",\"reason\":\"a 'b' ' c'' \x7f\"}");
}

static void the_version_is_that_of_an_etcd(void **state)
{
    struct registry_stand *stand = *state;
    char text[512];

    muster_registry_pages_add(stand->server);
    assert_int_equal(get_page(stand, "/version", text, sizeof(text)), 200);
    assert_string_equal(text, "application/json: {\"etcdserver\":\"" MUSTER_REGISTRY_ETCD_VERSION
                              "\",\"etcdcluster\":\"" MUSTER_REGISTRY_ETCD_CLUSTER_VERSION "\"}");
}

static void check_metric(const char *text, const char *name, uint64_t value)
{
    char line[128];

    (void)snprintf(line, sizeof(line), "\nmuster_registry_%s %llu\n", name,
                   (unsigned long long)value);
    if (strstr(text, line) == NULL)
        fail_msg("no%sin %s", line, text);
}

static void gauges_show_what_there_is(void **state)
{
    struct registry_stand *stand = *state;
    static char text[64 << 10];
    struct muster_registry_store_size size;
    char *left = NULL;
    size_t bytes = 0;

    muster_registry_pages_add(stand->server);
    registry_stand_put(stand, "a", 100000, 0);
    rpc_stand_advance(&stand->rpc, 0);
    registry_stand_put(stand, "b", 1, 0);
    registry_stand_grant(stand, 0, 60);
    rpc_stand_advance(&stand->rpc, 0);
    muster_registry_store_measure(stand->stage.store, &size);
    assert_int_equal(get_page(stand, "/metrics", text, sizeof(text)), 200);

    assert_memory_equal(text, "text/plain; version=0.0.4; charset=utf-8: ", 42);
    check_metric(text, "file_bytes", size.file_bytes);
    check_metric(text, "used_bytes", size.used_bytes);
    check_metric(text, "journal_bytes", size.journal_bytes);
    check_metric(text, "quota_bytes", (uint64_t)2 << 30);
    check_metric(text, "keys", 2);
    check_metric(text, "leases", 1);
    check_metric(text, "watches", 0);
    check_metric(text, "revision", 3);
    check_metric(text, "write_failing", 0);
    check_metric(text, "over_quota", 0);
    check_metric(text, "write_failures_total", 0);
    assert_true(size.file_bytes > 100000 && size.used_bytes > 100000);
    assert_true(size.journal_bytes > 100000);

    stand->server->status.is_failing = stand->server->mvcc.is_full = true;
    (void)get_page(stand, "/metrics", text, sizeof(text));
    check_metric(text, "write_failing", 1);
    check_metric(text, "over_quota", 1);
    registry_stand_stop(stand);
    assert_int_equal(muster_metrics_format(stand->metrics, stand->rpc.test.env.mem, &left, &bytes),
                     MUSTER_OK);
    assert_null(left != NULL ? strstr(left, "muster_registry_") : NULL);
    muster_mem_free(stand->rpc.test.env.mem, left);
}

static void the_page_of_metrics_is_empty_without_them(void **state)
{
    struct registry_stand *stand = *state;
    char text[64];

    muster_registry_pages_add(stand->server);
    stand->rpc.test.env.metrics = NULL;
    assert_int_equal(get_page(stand, "/metrics", text, sizeof(text)), 200);
    stand->rpc.test.env.metrics = stand->metrics;
    stand->rpc.test.mem.fail_at = 1;
    assert_int_equal(get_page(stand, "/metrics", text, sizeof(text)), 500);
    stand->rpc.test.mem.fail_at = 1;
    assert_int_equal(get_page(stand, "/version", text, sizeof(text)), 500);
    stand->rpc.test.mem.fail_at = 0;
}

static struct muster_registry_server_status status_of(const struct registry_stand *stand)
{
    struct muster_registry_server_status status;

    muster_registry_server_status(stand->server, &status);
    return status;
}

/* The journal goes into the data file when nothing is written, or when it is large. */
static void the_journal_is_kept_short(void **state)
{
    struct registry_stand *stand = *state;

    muster_registry_pages_add(stand->server);
    assert_int_equal(status_of(stand).journal_bytes, 0);
    registry_stand_put(stand, "a", 1000, 0);
    rpc_stand_advance(&stand->rpc, 400 * MUSTER_NS_PER_MS);
    assert_true(status_of(stand).journal_bytes > 1000);
    registry_stand_put(stand, "a", 1000, 0);
    rpc_stand_advance(&stand->rpc, 499 * MUSTER_NS_PER_MS);
    assert_true(status_of(stand).journal_bytes > 1000);
    rpc_stand_advance(&stand->rpc, MUSTER_NS_PER_MS);
    assert_int_equal(status_of(stand).journal_bytes, 0);

    for (unsigned i = 0; i < 15; i++)
        registry_stand_put(stand, "a", MIB, 0);
    rpc_stand_advance(&stand->rpc, 0);
    assert_true(status_of(stand).journal_bytes > 15 * MIB);
    registry_stand_put(stand, "a", MIB, 0);
    rpc_stand_advance(&stand->rpc, 0);
    assert_int_equal(status_of(stand).journal_bytes, 0);
}

/* Its keys go with it, however late they can be written away. */
static void a_lease_that_expires_while_writes_fail_goes_later(void **state)
{
    struct registry_stand *stand = *state;

    registry_stand_grant(stand, 7, 2);
    registry_stand_put(stand, "a", 1, 7);
    rpc_stand_advance(&stand->rpc, 1900 * MUSTER_NS_PER_MS);
    store_stage_run_sql(registry_stand_database(stand), "ALTER TABLE leases RENAME TO away");
    rpc_stand_advance(&stand->rpc, 5 * MUSTER_NS_PER_S);
    assert_true(stand->server->status.is_failing);
    assert_true(muster_leases_has(&stand->server->leases, 7));
    assert_int_equal(status_of(stand).key_count, 1);

    store_stage_run_sql(registry_stand_database(stand), "ALTER TABLE away RENAME TO leases");
    rpc_stand_advance(&stand->rpc, 2 * MUSTER_NS_PER_S);
    assert_false(muster_leases_has(&stand->server->leases, 7));
    assert_int_equal(status_of(stand).key_count, 0);
    assert_false(muster_registry_store_is_writing(stand->stage.store));
}

int main(void)
{
    const struct CMUnitTest registry_server_status[] = {
        CASE(failing_writes_are_told_until_they_are_well_again),
        CASE(writes_that_succeed_meanwhile_do_not_hide_it),
        CASE(a_compaction_that_fails_is_told),
        CASE(a_compaction_that_failed_goes_on_once_writes_work),
        CASE(a_reason_cannot_end_the_text_of_the_page),
        CASE(the_version_is_that_of_an_etcd),
        CASE(gauges_show_what_there_is),
        CASE(the_page_of_metrics_is_empty_without_them),
        CASE(the_journal_is_kept_short),
        CASE(a_lease_that_expires_while_writes_fail_goes_later),
    };

    return cmocka_run_group_tests(registry_server_status, NULL, NULL);
}
