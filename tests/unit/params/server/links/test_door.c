/* The door of links under TLS and behind a policy: clients are known by their certificates, and whoever
 * is refused is told so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"
#include "refusal_log.h"
#include "task_tls.h"

#include <stdio.h>
#include <string.h>

#define ELEMENTS 2u
#define SHARDS   8u
#define WORKER   "spiffe://test/job/7/task/worker"
#define READER   "spiffe://test/job/7/task/reader"

static struct fake_authority *authority, *strangers;
static struct fake_cert server_cert, worker_cert, reader_cert, stranger_cert;

/* A server under TLS that demands certificates, and a client with an environment of its own. */
struct scene {
    struct params_stand stand;
    struct refusal_log refusals;
    struct muster_env client_env;
    struct muster_params *params;
    struct muster_authorization *authorization;
    bool is_opened, is_closed;
    enum muster_rc rc; /* of the opening */
};

static void scene_open(struct scene *scene, const char *policy)
{
    struct muster_env *env = &scene->stand.test.env;

    memset(scene, 0, sizeof(*scene));
    params_stand_open(&scene->stand, SHARDS);
    params_stand_kill(&scene->stand);
    refusal_log_init(&scene->refusals);
    env->log = &scene->refusals.log;
    env->tls = task_tls_open(env, authority, &server_cert, true);
    if (policy != NULL)
        scene->authorization = task_policy_new(env, policy);
    scene->stand.authorization = scene->authorization;
    params_stand_serve(&scene->stand);
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct scene *scene = muster_params_data(params);

    scene->is_opened = true;
    scene->rc = rc;
}

static bool is_opened(void *data)
{
    return ((struct scene *)data)->is_opened;
}

/* cert NULL: no certificate; has_tls false: plain text. */
static void client_start(struct scene *scene, bool has_tls, const struct fake_cert *cert)
{
    struct muster_params_options options = {.server = scene->stand.address,
                                            .job = "test",
                                            .connect_deadline_ns =
                                                params_stand_deadline(&scene->stand),
                                            .data = scene};
    struct muster_error error;

    scene->client_env = scene->stand.test.env;
    scene->client_env.log = NULL;
    scene->client_env.tls =
        has_tls ? task_tls_open(&scene->client_env, authority, cert, false) : NULL;
    if (muster_params_open(&scene->client_env, &options, on_opened, &scene->params, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

static enum muster_rc client_open(struct scene *scene, const struct fake_cert *cert)
{
    client_start(scene, true, cert);
    test_env_run_until(&scene->client_env, is_opened, scene);
    return scene->rc;
}

static void on_closed(struct muster_params *params, enum muster_rc rc)
{
    struct scene *scene = muster_params_data(params);

    (void)rc;
    scene->is_closed = true;
}

static bool is_closed(void *data)
{
    return ((struct scene *)data)->is_closed;
}

static void client_close(struct scene *scene)
{
    muster_params_close(scene->params, params_stand_deadline(&scene->stand), on_closed);
    test_env_run_until(&scene->client_env, is_closed, scene);
    test_env_turn(&scene->client_env, 4);
    muster_tls_close(scene->client_env.tls);
}

static void scene_close(struct scene *scene)
{
    struct muster_env *env = &scene->stand.test.env;

    params_stand_kill(&scene->stand);
    test_env_turn(env, 4);
    muster_authorization_free(scene->authorization);
    muster_tls_close(env->tls);
    env->tls = NULL;
    env->log = NULL;
    params_stand_close(&scene->stand);
}

static struct muster_params_table *table_open(struct scene *scene)
{
    const struct muster_params_schema schema = {.name = "counters",
                                                .row_elements = ELEMENTS,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD};

    return params_stand_table(&scene->stand, scene->params, &schema);
}

static void a_client_with_a_certificate_pushes_and_pulls(void **state)
{
    static const uint64_t key = 5;
    float values[] = {1, 2}, found[ELEMENTS];
    struct muster_params_table *table;
    struct scene scene;

    (void)state;
    scene_open(&scene, NULL);
    assert_int_equal(client_open(&scene, &worker_cert), MUSTER_OK);
    table = table_open(&scene);
    assert_int_equal(params_stand_push(&scene.stand, table, &key, values, 1, NULL), MUSTER_OK);
    assert_int_equal(params_stand_pull(&scene.stand, table, &key, found, 1, NULL), MUSTER_OK);

    assert_memory_equal(found, values, sizeof(values));
    client_close(&scene);
    scene_close(&scene);
}

/* Both sides say what is wrong. A client whose connection is lost tries again. */
static const struct refusal_row {
    const char *name;
    bool has_tls;
    const struct fake_cert *cert;
    enum muster_rc rc; /* with which the opening ends; OK: it goes on */
    const char *client_text, *server_text;
} refusal_rows[] = {
    {"no certificate", true, NULL, MUSTER_UNAUTHENTICATED,
     "the server demands a certificate of ours", "the client showed no certificate"},
    {"another authority's", true, &stranger_cert, MUSTER_UNAUTHENTICATED,
     "does not trust the issuer of our certificate", "its issuer CN=other is not trusted"},
    {"plain text", false, NULL, MUSTER_OK, "which has no TLS, ", NULL},
};

struct refusal_wait {
    struct scene *scene;
    const struct refusal_row *row;
};

static bool is_refused(void *data)
{
    const struct refusal_wait *wait = data;
    const struct muster_error *error = muster_params_error(wait->scene->params);

    return error->rc != MUSTER_OK && (wait->row->rc == MUSTER_OK || wait->scene->is_opened) &&
           (wait->row->server_text == NULL || wait->scene->refusals.is_told);
}

static void clients_without_a_right_certificate_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusal_rows) / sizeof(refusal_rows[0]); i++) {
        const struct refusal_row *row = &refusal_rows[i];
        struct scene scene;
        struct refusal_wait wait = {&scene, row};

        scene_open(&scene, NULL);
        client_start(&scene, row->has_tls, row->cert);
        test_env_run_until(&scene.client_env, is_refused, &wait);
        if (scene.is_opened != (row->rc != MUSTER_OK) || scene.rc != row->rc ||
            strstr(muster_params_error(scene.params)->text, row->client_text) == NULL ||
            strstr(muster_params_error(scene.params)->text, scene.stand.address) == NULL)
            fail_msg("%s: the client says: %s", row->name, muster_params_error(scene.params)->text);
        if (row->server_text != NULL && strstr(scene.refusals.reason, row->server_text) == NULL)
            fail_msg("%s: the server says: %s", row->name, scene.refusals.reason);
        assert_int_equal(params_stand_stats(&scene.stand).sources, 0);
        client_close(&scene);
        scene_close(&scene);
    }
}

static const char reader_policy[] =
    "{\"name\":\"p\",\"allow_rules\":["
    "{\"name\":\"workers\",\"source\":{\"principals\":[\"" WORKER "\"]}},"
    "{\"name\":\"readers\",\"source\":{\"principals\":[\"" READER "\"]},"
    "\"request\":{\"paths\":[\"/muster.params.v1.Params/Open\",\"/muster.params.v1.Params/Table\","
    "\"/muster.params.v1.Params/Pull\"]}}]}";

static void a_reader_pulls_and_does_not_push(void **state)
{
    static const uint64_t key = 5;
    float values[] = {1, 2}, found[ELEMENTS] = {9, 9};
    struct muster_params_table *table;
    struct muster_error error;
    struct scene scene;

    (void)state;
    scene_open(&scene, reader_policy);
    assert_int_equal(client_open(&scene, &reader_cert), MUSTER_OK);
    table = table_open(&scene);
    assert_int_equal(params_stand_push(&scene.stand, table, &key, values, 1, &error),
                     MUSTER_PERMISSION_DENIED);
    assert_non_null(strstr(error.text, READER " may not call /muster.params.v1.Params/Push"));
    assert_int_equal(params_stand_pull(&scene.stand, table, &key, found, 1, NULL), MUSTER_OK);

    assert_true(found[0] == 0 && found[1] == 0);
    assert_int_equal(params_stand_stats(&scene.stand).rows, 0);
    client_close(&scene);
    scene_close(&scene);
}

/* Pushing and pulling in one needs both permissions. */
static void a_reader_or_a_writer_does_not_push_and_pull_in_one(void **state)
{
    static const struct {
        const char *has, *lacks;
    } rows[] = {{"Pull", "Push"}, {"Push", "Pull"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static const uint64_t key = 5;
        float values[] = {1, 2}, found[ELEMENTS] = {9, 9};
        struct muster_params_table *table;
        char policy[512], text[128];
        struct muster_error error;
        struct scene scene;

        snprintf(policy, sizeof(policy),
                 "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"r\",\"request\":{\"paths\":["
                 "\"/muster.params.v1.Params/Open\",\"/muster.params.v1.Params/Table\","
                 "\"/muster.params.v1.Params/%s\"]}}]}",
                 rows[i].has);
        scene_open(&scene, policy);
        assert_int_equal(client_open(&scene, &reader_cert), MUSTER_OK);
        table = table_open(&scene);
        assert_int_equal(
            params_stand_push_pull(&scene.stand, table, &key, values, 1, found, &error),
            MUSTER_PERMISSION_DENIED);
        snprintf(text, sizeof(text), READER " may not call /muster.params.v1.Params/%s",
                 rows[i].lacks);
        fail_if(strstr(error.text, text) == NULL, "%s: %s", rows[i].has, error.text);
        assert_true(found[0] == 9);
        assert_int_equal(params_stand_stats(&scene.stand).rows, 0);
        /* The client does not mark the next push to the shard as the source's first. */
        assert_int_equal(
            params_stand_push(&scene.stand, table, &key, values, 1, &error),
            rows[i].lacks[2] == 'l' ? MUSTER_OK : MUSTER_PERMISSION_DENIED);
        client_close(&scene);
        scene_close(&scene);
    }
}

static void a_client_that_no_rule_allows_opens_no_source(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"w\",\"source\":{"
                       "\"principals\":[\"" WORKER "\"]}}]}");
    assert_int_equal(client_open(&scene, &reader_cert), MUSTER_PERMISSION_DENIED);
    assert_non_null(strstr(muster_params_error(scene.params)->text,
                           READER " may not call /muster.params.v1.Params/Open"));

    assert_int_equal(params_stand_stats(&scene.stand).sources, 0);
    client_close(&scene);
    scene_close(&scene);
}

static int certs_init(void **state)
{
    const struct fake_cert_options server = {.name = "server", .alt_names = "IP:127.0.0.1"},
                                   worker = {.name = "worker", .alt_names = "URI:" WORKER},
                                   reader = {.name = "reader", .alt_names = "URI:" READER};

    (void)state;
    authority = fake_authority_new("job");
    strangers = fake_authority_new("other");
    return authority != NULL && strangers != NULL &&
                   fake_cert_init(&server_cert, authority, &server) &&
                   fake_cert_init(&worker_cert, authority, &worker) &&
                   fake_cert_init(&reader_cert, authority, &reader) &&
                   fake_cert_init(&stranger_cert, strangers, &worker)
               ? 0
               : -1;
}

static int certs_fini(void **state)
{
    (void)state;
    fake_cert_fini(&server_cert);
    fake_cert_fini(&worker_cert);
    fake_cert_fini(&reader_cert);
    fake_cert_fini(&stranger_cert);
    fake_authority_free(authority);
    fake_authority_free(strangers);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_with_a_certificate_pushes_and_pulls),
        cmocka_unit_test(clients_without_a_right_certificate_are_refused),
        cmocka_unit_test(a_reader_pulls_and_does_not_push),
        cmocka_unit_test(a_reader_or_a_writer_does_not_push_and_pull_in_one),
        cmocka_unit_test(a_client_that_no_rule_allows_opens_no_source),
    };

    return cmocka_run_group_tests(tests, certs_init, certs_fini);
}
