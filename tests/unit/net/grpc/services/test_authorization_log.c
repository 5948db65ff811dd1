/* The log is told of callers whose calls are refused. The calls are played: no server is here. */
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include <muster/authorization.h>
#include <muster/log.h>

#define CALLERS_KNOWN 256

/* These would come from the server of a call. */
static const struct muster_identity *caller;
static struct muster_address address;

const struct muster_identity *muster_rpc_identity(const struct muster_rpc *rpc)
{
    (void)rpc;
    return caller;
}

const struct muster_address *muster_rpc_peer(const struct muster_rpc *rpc)
{
    (void)rpc;
    return &address;
}

struct scene {
    struct test_env test;
    struct muster_log log;
    struct muster_authorization *authorization;
    unsigned count; /* of lines */
    char line[256];
    struct muster_error error;
};

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct scene *scene = MUSTER_CONTAINER_OF(log, struct scene, log);
    int used = snprintf(scene->line, sizeof(scene->line), "%s", event);

    (void)wall_ns;
    assert_int_equal(level, MUSTER_LOG_WARN);
    scene->count++;
    for (size_t i = 0; i < count; i++)
        used += snprintf(scene->line + used, sizeof(scene->line) - (size_t)used, " %s=%s",
                         fields[i].name, fields[i].text);
}

static int set_up(void **state)
{
    static const struct muster_log_ops ops = {.write = on_log};
    static struct scene scene;
    const struct muster_authorization_rule allow = {
        .principals = (const char *const[]){"CN=friend"}, .principal_count = 1};

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    scene.log = (struct muster_log){.ops = &ops, .level_max = MUSTER_LOG_TRACE};
    scene.test.env.log = &scene.log;
    assert_int_equal(muster_address_parse("10.0.0.1:5", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_authorization_new(
                         &scene.test.env,
                         &(struct muster_authorization_options){.allow = &allow, .allow_count = 1},
                         &scene.authorization),
                     MUSTER_OK);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    muster_authorization_free(scene->authorization);
    test_env_close(&scene->test);
    return 0;
}

/* name NULL: without a certificate. */
static enum muster_rc call_as(struct scene *scene, const char *name)
{
    const struct muster_interceptor *interceptor =
        muster_authorization_interceptor(scene->authorization);
    const struct muster_identity identity = {.subject = name};
    struct muster_intercepted call = {
        .interceptor = interceptor, .env = &scene->test.env, .method = "/s/Get"};

    caller = name != NULL ? &identity : NULL;
    return interceptor->on_start(&call, &scene->error);
}

static unsigned lines_for(struct scene *scene, unsigned number)
{
    char name[32];
    unsigned before = scene->count;

    (void)snprintf(name, sizeof(name), "CN=caller-%03u", number); /* all of one length */
    assert_int_equal(call_as(scene, name), MUSTER_PERMISSION_DENIED);
    return scene->count - before;
}

static void a_refusal_names_caller_method_and_address(void **state)
{
    struct scene *scene = *state;

    assert_int_equal(call_as(scene, "CN=other"), MUSTER_PERMISSION_DENIED);
    assert_string_equal(scene->error.text, "CN=other may not call /s/Get");
    assert_string_equal(scene->line,
                        "call_not_allowed caller=CN=other method=/s/Get peer=10.0.0.1:5");
    assert_int_equal(call_as(scene, NULL), MUSTER_PERMISSION_DENIED);
    assert_string_equal(scene->error.text, "nobody (no certificate) may not call /s/Get");
    assert_string_equal(scene->line,
                        "call_not_allowed caller=nobody method=/s/Get peer=10.0.0.1:5");
    assert_int_equal(scene->count, 2);
}

static void who_may_call_is_not_told_of(void **state)
{
    struct scene *scene = *state;

    assert_int_equal(call_as(scene, "CN=friend"), MUSTER_OK);

    assert_int_equal(scene->count, 0);
    assert_int_equal(scene->error.rc, MUSTER_OK);
}

/* Memory and log are bounded, whoever comes how often. */
static void of_each_caller_the_log_is_told_once_until_many_others_came(void **state)
{
    struct scene *scene = *state;

    for (unsigned i = 0; i < CALLERS_KNOWN; i++) {
        assert_int_equal(lines_for(scene, i), 1);
        assert_int_equal(lines_for(scene, i), 0);
        assert_int_equal(lines_for(scene, 0), 0);
    }
    for (unsigned i = 0; i < CALLERS_KNOWN; i++)
        assert_int_equal(lines_for(scene, i), 0);
    assert_int_equal(lines_for(scene, CALLERS_KNOWN), 1); /* takes the oldest one's place */
    assert_int_equal(lines_for(scene, CALLERS_KNOWN), 0);
    assert_int_equal(lines_for(scene, CALLERS_KNOWN - 1), 0);
    assert_int_equal(lines_for(scene, 0), 1);
    assert_int_equal(lines_for(scene, 1), 1);
    assert_int_equal(lines_for(scene, 3), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_refusal_names_caller_method_and_address),
        CASE(who_may_call_is_not_told_of),
        CASE(of_each_caller_the_log_is_told_once_until_many_others_came),
    };

    return cmocka_run_group_tests_name("authorization_log", tests, NULL, NULL);
}
