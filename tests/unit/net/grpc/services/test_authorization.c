/* A policy decides whether a caller may call a method. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>
#include <muster/authorization.h>
#include <muster/log.h>
#include <muster/tls.h>

#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/rpc_fixture.h"
#include "tests/lib/torture.h"

#define JOB_A "spiffe://test/job/a"
#define JOB_B "spiffe://test/job/b"

static const struct muster_identity task_of_a = {.spiffe_id = JOB_A "/task/1", .subject = ""};
static const struct muster_identity task_of_b = {.spiffe_id = JOB_B "/task/1", .subject = ""};
static const struct muster_identity task_of_ab = {.spiffe_id = JOB_A "b/task/1", .subject = ""};

/* Each kind of rule is asked about each kind of caller. */

static const char *const of_b[] = {JOB_B "/*"}, *const gets[] = {"/s/Get", "/s/List*"},
                         *const deletes[] = {"/s/Delete*"}, *const hosts[] = {"x", "*.test"};
static const struct muster_authorization_rule
    everybody = {.name = "all"},
    b_may_all = {.principals = of_b, .principal_count = 1},
    all_may_get = {.methods = gets, .method_count = 2},
    all_may_delete = {.methods = deletes, .method_count = 1},
    b_may_get = {.principals = of_b, .principal_count = 1, .methods = gets, .method_count = 2},
    hosts_may_all = {.principals = hosts, .principal_count = 2};
static const char *const dns_names[] = {"a.test", JOB_A "/task/1"};
static const struct muster_identity host = {
    .dns_names = dns_names, .dns_name_count = 2, .subject = JOB_A "/task/1"};
static const struct muster_identity job_alone = {.spiffe_id = JOB_A, .subject = ""};

static void rules_say_who_may_call_what(void **state)
{
    static const struct {
        const char *name;
        const struct muster_authorization_rule *deny, *allow; /* NULL: none */
        const char *job;
        const struct muster_identity *identity; /* NULL: no certificate */
        const char *method;
        bool is_allowed;
    } rows[] = {
        {"no rule at all", NULL, NULL, NULL, &task_of_a, "/s/Get", false},
        {"no rule, no certificate", NULL, NULL, NULL, NULL, "/s/Get", false},
        {"a task of the job", NULL, NULL, JOB_A, &task_of_a, "/s/Get", true},
        {"a task of another job", NULL, NULL, JOB_A, &task_of_b, "/s/Get", false},
        {"a job whose name goes on", NULL, NULL, JOB_A, &task_of_ab, "/s/Get", false},
        {"the job without a task", NULL, NULL, JOB_A, &job_alone, "/s/Get", false},
        {"no certificate, a job", NULL, NULL, JOB_A, NULL, "/s/Get", false},
        {"the job's name among other names", NULL, NULL, JOB_A, &host, "/s/Get", false},
        {"a rule beside the job", NULL, &b_may_all, JOB_A, &task_of_b, "/s/Get", true},
        {"what is denied to all", &all_may_delete, NULL, JOB_A, &task_of_a, "/s/Delete", false},
        {"what is not denied", &all_may_delete, NULL, JOB_A, &task_of_a, "/s/Get", true},
        {"denied and allowed", &b_may_all, &everybody, NULL, &task_of_b, "/s/Get", false},
        {"denied to another", &b_may_all, &everybody, NULL, &task_of_a, "/s/Get", true},
        {"denied to another, no certificate", &b_may_all, &everybody, NULL, NULL, "/s/Get", true},
        {"everybody", NULL, &everybody, NULL, NULL, "/s/Get", true},
        {"a method for everybody", NULL, &all_may_get, NULL, NULL, "/s/Get", true},
        {"the second method", NULL, &all_may_get, NULL, NULL, "/s/ListAll", true},
        {"another method", NULL, &all_may_get, NULL, NULL, "/s/Put", false},
        {"a method whose name goes on", NULL, &all_may_get, NULL, NULL, "/s/GetAll", false},
        {"a method in other letters", NULL, &all_may_get, NULL, NULL, "/s/get", false},
        {"all methods for one", NULL, &b_may_all, NULL, &task_of_b, "/s/Put", true},
        {"all methods for one, no certificate", NULL, &b_may_all, NULL, NULL, "/s/Put", false},
        {"the right one, another method", NULL, &b_may_get, NULL, &task_of_b, "/s/Put", false},
        {"the right method, another one", NULL, &b_may_get, NULL, &task_of_a, "/s/Get", false},
        {"the right one and method", NULL, &b_may_get, NULL, &task_of_b, "/s/Get", true},
        {"the second principal", NULL, &hosts_may_all, NULL, &host, "/s/Get", true},
        {"no principal of them", NULL, &hosts_may_all, NULL, &task_of_a, "/s/Get", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_authorization_options options = {.deny = rows[i].deny,
                                                             .deny_count = rows[i].deny != NULL,
                                                             .allow = rows[i].allow,
                                                             .allow_count = rows[i].allow != NULL,
                                                             .job = rows[i].job};
        struct test_env test;
        struct muster_authorization *authorization = NULL;

        test_env_open(&test);
        assert_int_equal(muster_authorization_new(&test.env, &options, &authorization), MUSTER_OK);
        fail_if(muster_authorization_is_allowed(authorization, rows[i].identity, rows[i].method) !=
                    rows[i].is_allowed,
                "%s", rows[i].name);
        muster_authorization_free(authorization);
        test_env_close(&test);
    }
}

static void without_options_nobody_may_call(void **state)
{
    struct test_env test;
    struct muster_authorization *authorization = NULL;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_authorization_new(&test.env, NULL, &authorization), MUSTER_OK);

    assert_false(muster_authorization_is_allowed(authorization, &task_of_a, "/s/Get"));
    muster_authorization_free(authorization);
    muster_authorization_free(NULL);
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

/* A policy of one rule with some members. */
#define ALLOW(members) "{\"allow_rules\": [{" members "}]}"
#define DENY(members)  "{\"deny_rules\": [{" members "}], \"allow_rules\": [{\"name\": \"a\"}]}"
#define NAMED(members) ALLOW("\"name\": \"a\", " members)

/* The blocks that jansson holds. */
static size_t json_blocks;

static void *on_json_malloc(size_t bytes)
{
    json_blocks++;
    return malloc(bytes);
}

static void on_json_free(void *ptr)
{
    json_blocks -= ptr != NULL;
    free(ptr);
}

static void what_a_policy_cannot_mean_is_named(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
        const char *says;
    } rows[] = {
        {"[", MUSTER_INVALID_ARGUMENT, ""},
        {"[]", MUSTER_INVALID_ARGUMENT, "the policy must be an object"},
        {"{\"name\": \"p\"}", MUSTER_INVALID_ARGUMENT, "would refuse everybody"},
        {"{\"allow_rules\": []}", MUSTER_INVALID_ARGUMENT, "would refuse everybody"},
        {"{\"deny_rules\": [{\"name\": \"d\"}]}", MUSTER_INVALID_ARGUMENT, "refuse everybody"},
        {"{\"allow_rule\": []}", MUSTER_INVALID_ARGUMENT, "\"allow_rule\" in the policy"},
        {"{\"headers\": []}", MUSTER_UNIMPLEMENTED, "\"headers\" in the policy"},
        {"{\"allow_rules\": {\"name\": \"a\"}}", MUSTER_INVALID_ARGUMENT,
         "allow_rules must be a list of at most 256 rules"},
        {"{\"allow_rules\": [{\"name\": \"a\"}], \"deny_rules\": {}}", MUSTER_INVALID_ARGUMENT,
         "deny_rules must be a list"},
        {"{\"allow_rules\": [{\"name\": \"a\"}], \"deny_rules\": null}", MUSTER_INVALID_ARGUMENT,
         "deny_rules must be a list"},
        {"{\"allow_rules\": [{\"name\": \"a\"}], \"allow_rules\": [{\"name\": \"a\"}]}",
         MUSTER_INVALID_ARGUMENT, "duplicate"},
        {"{\"allow_rules\": [5]}", MUSTER_INVALID_ARGUMENT, "a rule must be an object"},
        {ALLOW(""), MUSTER_INVALID_ARGUMENT, "must have a name"},
        {ALLOW("\"name\": 5"), MUSTER_INVALID_ARGUMENT, "must have a name"},
        {DENY(""), MUSTER_INVALID_ARGUMENT, "must have a name"},
        {DENY("\"name\": \"d\", \"paths\": []"), MUSTER_INVALID_ARGUMENT, "\"paths\" in a rule"},
        {NAMED("\"principals\": []"), MUSTER_INVALID_ARGUMENT, "\"principals\" in a rule"},
        {NAMED("\"source\": []"), MUSTER_INVALID_ARGUMENT, "source must be an object"},
        {NAMED("\"source\": null"), MUSTER_INVALID_ARGUMENT, "source must be an object"},
        {NAMED("\"source\": {\"paths\": []}"), MUSTER_INVALID_ARGUMENT, "\"paths\" in source"},
        {NAMED("\"source\": {\"principals\": \"x\"}"), MUSTER_INVALID_ARGUMENT,
         "principals must be a list of at most 1024 texts"},
        {NAMED("\"source\": {\"principals\": null}"), MUSTER_INVALID_ARGUMENT,
         "principals must be a list"},
        {NAMED("\"source\": {\"principals\": [1]}"), MUSTER_INVALID_ARGUMENT,
         "principals must contain"},
        {NAMED("\"source\": {\"principals\": [\"x\", \"\"]}"), MUSTER_INVALID_ARGUMENT,
         "principals must contain only non-empty strings"},
        {NAMED("\"request\": 1"), MUSTER_INVALID_ARGUMENT, "request must be an object"},
        {NAMED("\"request\": {\"principals\": []}"), MUSTER_INVALID_ARGUMENT,
         "\"principals\" in request"},
        {NAMED("\"request\": {\"paths\": {}}"), MUSTER_INVALID_ARGUMENT, "paths must be a list"},
        {NAMED("\"request\": {\"paths\": [\"\"]}"), MUSTER_INVALID_ARGUMENT, "paths must contain"},
        {NAMED("\"request\": {\"headers\": []}"), MUSTER_UNIMPLEMENTED, "\"headers\" in request"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_env test;
        struct muster_authorization *authorization = NULL;
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc;

        test_env_open(&test);
        rc = muster_authorization_parse(&test.env, rows[i].text, &authorization, &error);
        fail_if(rc != rows[i].rc || error.rc != rc || strstr(error.text, rows[i].says) == NULL ||
                    authorization != NULL,
                "%s: %s", rows[i].text, error.text);
        assert_int_equal(json_blocks, 0);
        test_env_close(&test);
    }
}

/* count times "piece" with commas between, and what stands around. Gives. */
static char *repeat_piece(const char *head, const char *piece, size_t count, const char *tail)
{
    char *text = malloc(strlen(head) + count * (strlen(piece) + 1) + strlen(tail) + 1);
    char *at = text;

    assert_non_null(text);
    at = stpcpy(at, head);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(stpcpy(at, i > 0 ? "," : ""), piece);
    (void)stpcpy(at, tail);
    return text;
}

static void lists_of_a_policy_have_an_end(void **state)
{
    static const struct {
        const char *head, *piece, *tail;
        size_t count_max;
    } rows[] = {
        {"{\"allow_rules\":[", "{\"name\":\"a\"}", "]}", 256},
        {"{\"allow_rules\":[{\"name\":\"a\"}],\"deny_rules\":[", "{\"name\":\"d\"}", "]}", 256},
        {"{\"allow_rules\":[{\"name\":\"a\",\"source\":{\"principals\":[", "\"x\"", "]}}]}", 1024},
        {"{\"allow_rules\":[{\"name\":\"a\",\"request\":{\"paths\":[", "\"x\"", "]}}]}", 1024},
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_env test;
        struct muster_authorization *authorization = NULL;
        struct muster_error error;
        size_t row = i / 2, more = i % 2;
        char *text = repeat_piece(rows[row].head, rows[row].piece, rows[row].count_max + more,
                                  rows[row].tail);

        test_env_open(&test);
        assert_int_equal(muster_authorization_parse(&test.env, text, &authorization, &error),
                         more == 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        muster_authorization_free(authorization);
        test_env_close(&test);
        free(text);
    }
}

/* Want of memory. */

static enum muster_rc make_rules(struct muster_env *env, struct muster_authorization **ret_rules,
                                 struct muster_error *ret_error)
{
    const struct muster_authorization_rule allow[] = {b_may_get, hosts_may_all};
    const struct muster_authorization_options options = {
        .deny = &b_may_get, .deny_count = 1, .allow = allow, .allow_count = 2, .job = JOB_A};
    enum muster_rc rc = muster_authorization_new(env, &options, ret_rules);

    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "out of memory");
}

static enum muster_rc read_rules(struct muster_env *env, struct muster_authorization **ret_rules,
                                 struct muster_error *ret_error)
{
    return muster_authorization_parse(
        env,
        NAMED("\"source\": {\"principals\": [\"x\", \"y\"]}, \"request\": {\"paths\": [\"z\"]}"),
        ret_rules, ret_error);
}

struct making {
    const char *name;
    enum muster_rc (*make)(struct muster_env *env, struct muster_authorization **ret_rules,
                           struct muster_error *ret_error);
};

static void run_making(struct torture *torture, const void *data)
{
    const struct making *row = data;
    struct muster_authorization *authorization = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    struct test_env test;
    enum muster_rc rc;

    test_env_open(&test);
    torture_arm_limited(torture, &test.mem);
    rc = row->make(&test.env, &authorization, &error);
    torture_disarm(torture);

    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_int_equal(error.rc, rc);
    assert_string_equal(error.text, rc == MUSTER_OK ? "" : "out of memory");
    assert_int_equal(json_blocks, 0);
    assert_true((authorization != NULL) == (rc == MUSTER_OK));
    muster_authorization_free(authorization);
    test_env_close(&test);
}

static void whatever_allocation_fails_nothing_is_lost(void **state)
{
    static const struct making rows[] = {{"made", make_rules}, {"read", read_rules}};

    (void)state;
    TORTURE_RUN_ROWS(run_making, rows);
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
    rpc_fixture_serve(&fixture, &(struct muster_rpc_server_options){.tls = tls,
                                                                    .interceptors = &interceptor,
                                                                    .interceptor_count = 1});
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
        cmocka_unit_test(rules_say_who_may_call_what),
        cmocka_unit_test(without_options_nobody_may_call),
        cmocka_unit_test(a_policy_denies_first_then_allows),
        cmocka_unit_test(what_a_policy_cannot_mean_is_named),
        cmocka_unit_test(lists_of_a_policy_have_an_end),
        cmocka_unit_test_teardown(whatever_allocation_fails_nothing_is_lost, torture_tell),
        cmocka_unit_test(a_caller_of_another_job_is_told_so_once_in_the_log),
    };

    json_set_alloc_funcs(on_json_malloc, on_json_free);
    return cmocka_run_group_tests_name("authorization", tests, NULL, NULL);
}
