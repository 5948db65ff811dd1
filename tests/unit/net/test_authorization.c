/* Who may call what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <muster/authorization.h>
#include <muster/log.h>
#include <muster/tls.h>

#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/rpc_fixture.h"

#define JOB_A "spiffe://test/job/a"
#define JOB_B "spiffe://test/job/b"

static const struct muster_identity task_of_a = {.spiffe_id = JOB_A "/task/1", .subject = ""};
static const struct muster_identity task_of_b = {.spiffe_id = JOB_B "/task/1", .subject = ""};
static const struct muster_identity task_of_ab = {.spiffe_id = JOB_A "b/task/1", .subject = ""};

static void other_jobs_are_kept_out(void **state)
{
    struct test_env test;
    struct muster_authorization *authorization = NULL;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_authorization_new(&test.env,
                                              &(struct muster_authorization_options){.job = JOB_A},
                                              &authorization),
                     MUSTER_OK);

    assert_true(muster_authorization_is_allowed(authorization, &task_of_a, "/s/m"));
    assert_false(muster_authorization_is_allowed(authorization, &task_of_b, "/s/m"));
    assert_false(muster_authorization_is_allowed(authorization, &task_of_ab, "/s/m"));
    assert_false(muster_authorization_is_allowed(authorization, NULL, "/s/m"));
    muster_authorization_free(authorization);
    test_env_close(&test);
}

static void a_policy_denies_first_then_allows(void **state)
{
    static const char policy[] =
        "{\"name\": \"p\", \"deny_rules\": [{\"name\": \"no-delete\", \"request\": {\"paths\": "
        "[\"/s/Delete*\"]}}], \"allow_rules\": [{\"name\": \"b\", \"source\": {\"principals\": "
        "[\"" JOB_B "/*\"]}, \"request\": {\"paths\": [\"/s/*\"]}}, {\"name\": \"health\", "
        "\"request\": {\"paths\": [\"/grpc.health.v1.Health/Check\"]}}]}";
    static const struct {
        const struct muster_identity *identity;
        const char *method;
        bool is_allowed;
    } rows[] = {
        {&task_of_b, "/s/Get", true},
        {&task_of_b, "/s/Delete", false},
        {&task_of_b, "/s/DeleteAll", false},
        {&task_of_b, "/other/Get", false},
        {&task_of_a, "/s/Get", false},
        {NULL, "/s/Get", false},
        {NULL, "/grpc.health.v1.Health/Check", true},
        {NULL, "/grpc.health.v1.Health/Watch", false},
    };
    struct test_env test;
    struct muster_authorization *authorization = NULL;
    struct muster_error error;

    (void)state;
    test_env_open(&test);
    fail_if(muster_authorization_parse(&test.env, policy, &authorization, &error) != MUSTER_OK,
            "%s", error.text);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_authorization_is_allowed(authorization, rows[i].identity, rows[i].method) !=
                    rows[i].is_allowed,
                "%s by %s", rows[i].method, muster_identity_name(rows[i].identity));
    muster_authorization_free(authorization);
    test_env_close(&test);
}

static void what_a_policy_cannot_mean_is_named(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
        const char *says;
    } rows[] = {
        {"[", MUSTER_INVALID_ARGUMENT, ""},
        {"[]", MUSTER_INVALID_ARGUMENT, "no object"},
        {"{\"name\": \"p\"}", MUSTER_INVALID_ARGUMENT, "would refuse everybody"},
        {"{\"allow_rule\": []}", MUSTER_INVALID_ARGUMENT, "\"allow_rule\" in the policy"},
        {"{\"allow_rules\": [{}]}", MUSTER_INVALID_ARGUMENT, "has no name"},
        {"{\"allow_rules\": [{\"name\": \"a\", \"source\": {\"principals\": \"x\"}}]}",
         MUSTER_INVALID_ARGUMENT, "principals is no list"},
        {"{\"allow_rules\": [{\"name\": \"a\", \"source\": {\"principals\": [1]}}]}",
         MUSTER_INVALID_ARGUMENT, "principals holds"},
        {"{\"allow_rules\": [{\"name\": \"a\", \"request\": {\"headers\": []}}]}",
         MUSTER_UNIMPLEMENTED, "\"headers\" in request"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_env test;
        struct muster_authorization *authorization = NULL;
        struct muster_error error;

        test_env_open(&test);
        assert_int_equal(
            muster_authorization_parse(&test.env, rows[i].text, &authorization, &error),
            rows[i].rc);
        fail_if(strstr(error.text, rows[i].says) == NULL, "%s: %s", rows[i].text, error.text);
        test_env_close(&test);
    }
}

static void whatever_allocation_fails_nothing_is_lost(void **state)
{
    static const char policy[] =
        "{\"allow_rules\": [{\"name\": \"a\", \"source\": {\"principals\": [\"x\", \"y\"]}}]}";
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    uint64_t fail_at;

    (void)state;
    for (fail_at = 1; rc != MUSTER_OK && fail_at < 50; fail_at++) {
        struct test_env test;
        struct muster_authorization *authorization = NULL;

        test_env_open(&test);
        test.mem.fail_at = fail_at;
        rc = muster_authorization_parse(&test.env, policy, &authorization, NULL);
        test.mem.fail_at = 0;
        muster_authorization_free(authorization);
        test_env_close(&test);
    }
    assert_true(rc == MUSTER_OK && fail_at > 6);
}

/* Over the wire. */

static struct muster_tls *open_tls(struct muster_env *env, struct fake_authority *authority,
                                   const char *alt_names, bool is_peer_required)
{
    struct fake_cert cert;
    struct muster_tls *tls = NULL;

    assert_true(fake_cert_init(&cert, authority,
                               &(struct fake_cert_options){.name = "x", .alt_names = alt_names}));
    assert_int_equal(
        muster_tls_open(env,
                        &(struct muster_tls_options){.cert_pem = cert.cert_pem,
                                                     .key_pem = cert.key_pem,
                                                     .ca_pem = fake_authority_pem(authority),
                                                     .is_peer_required = is_peer_required},
                        &tls, NULL),
        MUSTER_OK);
    fake_cert_fini(&cert);
    return tls;
}

static void ask_as(struct rpc_fixture *fixture, struct muster_tls *tls, struct rpc_probe *probe)
{
    char target[MUSTER_ADDRESS_TEXT_BYTES];

    memset(probe, 0, sizeof(*probe));
    rpc_fixture_hang_up(fixture);
    rpc_fixture_dial(fixture, muster_address_format(&fixture->address, target),
                     &(struct muster_channel_options){.tls = tls});
    rpc_probe_ask(probe, fixture, "Unary", "hello");
    muster_tls_close(tls);
}

static void a_caller_of_another_job_is_told_so_once_in_the_log(void **state)
{
    struct fake_authority *authority = fake_authority_new("authority");
    struct muster_authorization *authorization = NULL;
    const struct muster_interceptor *interceptor;
    struct muster_log *log = NULL;
    struct rpc_fixture fixture;
    struct rpc_probe probe;
    struct muster_tls *tls;
    char lines[4096] = "";
    FILE *file = fmemopen(lines, sizeof(lines), "w");

    (void)state;
    assert_non_null(file);
    rpc_fixture_open(&fixture, NULL, NULL);
    rpc_fixture_hang_up(&fixture);
    rpc_fixture_stop_serving(&fixture, 0);
    assert_int_equal(muster_log_file_open(fixture.env->mem, file, false, MUSTER_LOG_WARN, &log),
                     MUSTER_OK);
    fixture.env->log = log;
    assert_int_equal(muster_authorization_new(fixture.env,
                                              &(struct muster_authorization_options){.job = JOB_A},
                                              &authorization),
                     MUSTER_OK);
    interceptor = muster_authorization_interceptor(authorization);
    tls = open_tls(fixture.env, authority, "IP:127.0.0.1", true);
    rpc_fixture_serve_anew(&fixture,
                           &(struct muster_rpc_server_options){
                               .tls = tls, .interceptors = &interceptor, .interceptor_count = 1});
    ask_as(&fixture, open_tls(fixture.env, authority, "URI:" JOB_A "/task/1", false), &probe);
    assert_int_equal(probe.rc, MUSTER_OK);
    ask_as(&fixture, open_tls(fixture.env, authority, "URI:" JOB_B "/task/1", false), &probe);
    assert_int_equal(probe.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(probe.text, JOB_B "/task/1 may not call /test.Echo/Unary");
    ask_as(&fixture, open_tls(fixture.env, authority, "URI:" JOB_B "/task/1", false), &probe);

    assert_int_equal(probe.rc, MUSTER_PERMISSION_DENIED);
    assert_int_equal(fixture.started, 1);
    rpc_fixture_hang_up(&fixture);
    rpc_fixture_stop_serving(&fixture, 0);
    muster_tls_close(tls);
    muster_authorization_free(authorization);
    fixture.env->log = NULL;
    muster_log_file_close(log);
    fclose(file);
    assert_non_null(strstr(lines, "call_not_allowed"));
    assert_null(strstr(strstr(lines, "call_not_allowed") + 1, "call_not_allowed"));
    rpc_fixture_close(&fixture);
    fake_authority_free(authority);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_jobs_are_kept_out),
        cmocka_unit_test(a_policy_denies_first_then_allows),
        cmocka_unit_test(what_a_policy_cannot_mean_is_named),
        cmocka_unit_test(whatever_allocation_fails_nothing_is_lost),
        cmocka_unit_test(a_caller_of_another_job_is_told_so_once_in_the_log),
    };

    return cmocka_run_group_tests_name("authorization", tests, NULL, NULL);
}
