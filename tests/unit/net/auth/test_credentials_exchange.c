/* Exchanges that fail: what is said of them, that no secret is, and that nothing is lost without
 * memory. Where credentials are looked for. */
#include "careful_mem.h"
#include "cloud_fixture.h"

#include <muster/credentials.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assertion_count.h"

struct scene {
    struct cloud_fixture fixture;
    struct muster_env env; /* the cloud's, but for its memory */
    struct muster_mem_limited mem;
    bool is_done;
    enum muster_rc rc;
    struct muster_error error;
    char token[64];
};

static int set_up(void **state)
{
    static struct scene scene;

    memset(&scene, 0, sizeof(scene));
    cloud_fixture_open(&scene.fixture, NULL);
    cloud_fixture_set_var(&scene.fixture, "GCE_METADATA_HOST", "127.0.0.1:1");
    muster_mem_limited_init(&scene.mem, careful_mem(), 0);
    scene.env = *scene.fixture.env;
    scene.env.mem = &scene.mem.mem;
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    cloud_fixture_close(&scene->fixture);
    assert_int_equal(muster_mem_limited_fini(&scene->mem), 0);
    return 0;
}

static void on_token(struct muster_token_get *get, enum muster_rc rc)
{
    struct scene *scene = get->data;

    scene->is_done = true;
    scene->rc = rc;
    scene->error = get->error;
    (void)snprintf(scene->token, sizeof(scene->token), "%s", rc == MUSTER_OK ? get->token : "");
}

/* Open the file's credentials, ask once, close them. */
static enum muster_rc ask_once(struct scene *scene, const char *path)
{
    struct muster_credentials *credentials = NULL;
    struct muster_token_get get = {.data = scene};

    scene->rc = muster_credentials_file_open(&scene->env, path, NULL, &credentials, &scene->error);
    if (scene->rc != MUSTER_OK)
        return scene->rc;
    scene->is_done = false;
    assert_int_equal(muster_token_get_start(&get, credentials, NULL,
                                            cloud_fixture_in_s(&scene->fixture, 30), on_token),
                     MUSTER_OK);
    test_env_run_until(&scene->env, test_env_is_true, &scene->is_done);
    cloud_fixture_close_credentials(&scene->fixture, credentials);
    return scene->rc;
}

/* A file with the subject's token in another, whose path stands for {{subject}}. */
static const char *write_file(struct scene *scene, const char *text)
{
    char whole[4096], *at = whole;
    const char *mark = strstr(text, "{{subject}}");

    if (mark != NULL) {
        at += snprintf(at, sizeof(whole), "%.*s%s", (int)(mark - text), text,
                       cloud_fixture_write(&scene->fixture, "subject", "hush-subject"));
        text = mark + strlen("{{subject}}");
    }
    (void)strcpy(at, text);
    return cloud_fixture_write(&scene->fixture, "key.json", whole);
}

#define USER                                                                                       \
    "{\"type\": \"authorized_user\", \"client_id\": \"me\", \"client_secret\": \"hush-client\", "  \
    "\"refresh_token\": \"hush-refresh\", \"token_uri\": \"{{base}}/token\"}"
#define WORKLOAD(more)                                                                             \
    "{\"type\": \"external_account\", \"audience\": \"a\", \"subject_token_type\": \"t\", "        \
    "\"token_url\": \"{{base}}/token\", \"credential_source\": {\"file\": \"{{subject}}\"}" more   \
    "}"
#define IMPERSONATE ", \"service_account_impersonation_url\": \"{{base}}/impersonate\""
#define TOKEN       "{\"access_token\": \"hush-token\"}"
#define CLIENT      ", \"client_id\": \"me\", \"client_secret\": \"hush-client\""

static void a_refusal_is_explained_and_tells_no_secret(void **state)
{
    static const struct {
        const char *name, *file;
        int status;
        const char *said; /* by the token server */
        enum muster_rc rc;
        const char *words;
    } rows[] = {
        {"a grant that is none", USER, 400, "bad", MUSTER_UNAUTHENTICATED,
         "run gcloud auth application-default login"},
        {"a client that is none", USER, 401, "bad", MUSTER_UNAUTHENTICATED,
         "run gcloud auth application-default login"},
        {"a client that may not", USER, 403, "bad", MUSTER_PERMISSION_DENIED,
         "run gcloud auth application-default login"},
        {"no token server", USER, 404, "bad", MUSTER_NOT_FOUND, "is token_uri a token server?"},
        {"a workload that is not believed", WORKLOAD(""), 400, "bad", MUSTER_UNAUTHENTICATED,
         "does the pool's provider accept this subject token"},
        {"an answer that quotes the refresh token", USER, 400, "so hush-refresh is bad",
         MUSTER_UNAUTHENTICATED, "so *****"},
        {"an answer that quotes the client's secret", USER, 400, "so hush-client is bad",
         MUSTER_UNAUTHENTICATED, "so *****"},
        {"an answer that quotes the subject's token", WORKLOAD(""), 400, "so hush-subject is bad",
         MUSTER_UNAUTHENTICATED, "so *****"},
        {"an answer that quotes a workload's secret", WORKLOAD(CLIENT), 400,
         "so hush-client is bad", MUSTER_UNAUTHENTICATED, "so *****"},
    };
    struct scene *scene = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char answer[256];

        (void)snprintf(answer, sizeof(answer), "{\"error\": \"e\", \"error_description\": \"%s\"}",
                       rows[i].said);
        fake_cloud_forget_script(scene->fixture.cloud);
        fake_cloud_say(scene->fixture.cloud, "POST", "/token", rows[i].status, answer);
        fail_if(ask_once(scene, write_file(scene, rows[i].file)) != rows[i].rc ||
                    strstr(scene->error.text, rows[i].words) == NULL ||
                    strstr(scene->error.text, "hush") != NULL,
                "%s: %s %s", rows[i].name, muster_rc_name(scene->rc), scene->error.text);
        assert_int_equal(scene->error.rc, rows[i].rc);
    }
}

static void who_may_not_impersonate_is_told_what_is_missing(void **state)
{
    struct scene *scene = *state;

    fake_cloud_say(scene->fixture.cloud, "POST", "/token", 200, TOKEN);
    fake_cloud_say(scene->fixture.cloud, "POST", "/impersonate", 403,
                   "{\"error\": {\"message\": \"denied to hush-token\"}}");

    assert_int_equal(ask_once(scene, write_file(scene, WORKLOAD(IMPERSONATE))),
                     MUSTER_PERMISSION_DENIED);
    assert_non_null(strstr(scene->error.text, "roles/iam.serviceAccountTokenCreator"));
    assert_null(strstr(scene->error.text, "hush"));
}

static void a_client_shows_itself_where_it_has_a_secret(void **state)
{
    static const struct {
        const char *file, *authorization;
    } rows[] = {
        {WORKLOAD(CLIENT), "Basic bWU6aHVzaC1jbGllbnQ="}, /* me:hush-client */
        {WORKLOAD(", \"client_id\": \"you\", \"client_secret\": \"xy\""), "Basic eW91Onh5"},
        {WORKLOAD(", \"client_id\": \"m\", \"client_secret\": \"xy\""), "Basic bTp4eQ=="},
        {WORKLOAD(", \"client_id\": \"m\""), NULL},
        {WORKLOAD(", \"client_secret\": \"xy\""), NULL},
        {USER, NULL},
    };
    struct scene *scene = *state;

    fake_cloud_say(scene->fixture.cloud, "POST", "/token", 200, TOKEN);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *shown;

        assert_int_equal(ask_once(scene, write_file(scene, rows[i].file)), MUSTER_OK);
        shown =
            fake_cloud_request_header(fake_cloud_request(scene->fixture.cloud, i), "authorization");
        fail_if(rows[i].authorization == NULL
                    ? shown != NULL
                    : shown == NULL || strcmp(shown, rows[i].authorization) != 0,
                "row %zu: %s", i, shown);
    }
}

/* An impersonation sends these, with the token of the first exchange. */
static void an_impersonation_names_scope_life_and_delegates(void **state)
{
    struct scene *scene = *state;
    const struct fake_cloud_request *request;

    fake_cloud_say(scene->fixture.cloud, "POST", "/token", 200, TOKEN);
    fake_cloud_say(scene->fixture.cloud, "POST", "/impersonate", 200,
                   "{\"accessToken\": \"final\", \"expireTime\": \"2125-01-01T00:00:00Z\"}");
    assert_int_equal(
        ask_once(scene,
                 write_file(scene, "{\"type\": \"impersonated_service_account\", "
                                   "\"service_account_impersonation_url\": "
                                   "\"{{base}}/impersonate\", \"delegates\": [\"d1\", \"d2\"], "
                                   "\"source_credentials\": " USER "}")),
        MUSTER_OK);
    request = fake_cloud_request(scene->fixture.cloud, 1);

    assert_string_equal(scene->token, "final");
    assert_string_equal(request->body,
                        "{\"scope\":[\"https://www.googleapis.com/auth/cloud-platform\"],"
                        "\"lifetime\":\"3600s\",\"delegates\":[\"d1\",\"d2\"]}");
    assert_string_equal(fake_cloud_request_header(request, "authorization"), "Bearer hush-token");
    assert_string_equal(fake_cloud_request_header(request, "content-type"), "application/json");
}

static void whatever_allocation_fails_nothing_is_lost(void **state)
{
    static const char *const files[] = {USER, WORKLOAD(CLIENT IMPERSONATE)};
    struct scene *scene = *state;

    fake_cloud_say(scene->fixture.cloud, "POST", "/token", 200, TOKEN);
    fake_cloud_say(scene->fixture.cloud, "POST", "/impersonate", 200, TOKEN);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[256];
        enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
        uint64_t fail_at = 0;

        (void)snprintf(path, sizeof(path), "%s", write_file(scene, files[i]));
        for (bool has_failed = true; has_failed;) {
            scene->mem.fail_at = ++fail_at;
            rc = ask_once(scene, path);
            has_failed = scene->mem.fail_at == 0;
            scene->mem.fail_at = 0;
            assert_true(rc == MUSTER_OK || (has_failed && rc == MUSTER_RESOURCE_EXHAUSTED));
            assert_true(rc == MUSTER_OK || scene->error.rc == MUSTER_RESOURCE_EXHAUSTED);
            assert_int_equal(scene->mem.block_count, 0);
        }
        assert_int_equal(rc, MUSTER_OK);
        assert_true(fail_at > 4);
    }
}

/* Where credentials are looked for, in order. */

static void the_first_place_that_has_a_file_counts(void **state)
{
    struct scene *scene = *state;
    const char *folder;
    char home[160], full[160], path[256], long_name[300], folders[3][200], full_name[300];
    const struct {
        const char *name, *named, *config, *home;
        const char *text; /* of the credentials; NULL: an error */
    } rows[] = {
        {"the variable", path, NULL, NULL, "key.json (GOOGLE_APPLICATION_CREDENTIALS)"},
        {"an empty variable", "", NULL, NULL, "metadata server 127.0.0.1:1"},
        {"the folder of gcloud", NULL, home, "/nowhere", "me/application_default_credentials"},
        {"another folder", NULL, "/nowhere", home, "metadata server"},
        {"an empty name of it", NULL, "", home, "metadata server"},
        {"home without it", NULL, NULL, home, "metadata server"},
        {"an empty home", NULL, NULL, "", "metadata server"},
        {"a home with it", NULL, NULL, full, "full/.config/gcloud/"},
        {"a home with it, and an empty name", NULL, "", full, "full/.config/gcloud/"},
        {"a home with it, and another folder", NULL, "/nowhere", full, "metadata server"},
        {"the variable, and nothing there", "/no/such", home, NULL, NULL},
    };

    (void)snprintf(path, sizeof(path), "%s", write_file(scene, USER));
    folder = scene->fixture.folder;
    (void)snprintf(home, sizeof(home), "%s/home", folder);
    assert_int_equal(mkdir(home, 0700), 0);
    (void)snprintf(long_name, sizeof(long_name), "%s/application_default_credentials.json", home);
    assert_int_equal(symlink(path, long_name), 0);
    (void)snprintf(full, sizeof(full), "%s/full", folder);
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"", "/.config", "/.config/gcloud"};

        (void)snprintf(folders[i], sizeof(folders[i]), "%s%s", full, names[i]);
        assert_int_equal(mkdir(folders[i], 0700), 0);
    }
    (void)snprintf(full_name, sizeof(full_name), "%s/application_default_credentials.json",
                   folders[2]);
    assert_int_equal(symlink(path, full_name), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_credentials *credentials = NULL;
        struct muster_error error = {.text = ""};
        enum muster_rc rc;

        cloud_fixture_set_var(&scene->fixture, "GOOGLE_APPLICATION_CREDENTIALS", rows[i].named);
        cloud_fixture_set_var(&scene->fixture, "CLOUDSDK_CONFIG", rows[i].config);
        cloud_fixture_set_var(&scene->fixture, "HOME", rows[i].home);
        rc = muster_credentials_default_open(&scene->env, NULL, &credentials, &error);
        fail_if((rc == MUSTER_OK) != (rows[i].text != NULL), "%s: %s", rows[i].name, error.text);
        if (rc != MUSTER_OK)
            continue;
        fail_if(strstr(muster_credentials_text(credentials), rows[i].text) == NULL, "%s: %s",
                rows[i].name, muster_credentials_text(credentials));
        cloud_fixture_close_credentials(&scene->fixture, credentials);
    }
    assert_int_equal(unlink(long_name), 0);
    assert_int_equal(rmdir(home), 0);
    assert_int_equal(unlink(full_name), 0);
    for (size_t i = 3; i-- > 0;)
        assert_int_equal(rmdir(folders[i]), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_refusal_is_explained_and_tells_no_secret),
        CASE(who_may_not_impersonate_is_told_what_is_missing),
        CASE(a_client_shows_itself_where_it_has_a_secret),
        CASE(an_impersonation_names_scope_life_and_delegates),
        CASE(whatever_allocation_fails_nothing_is_lost),
        CASE(the_first_place_that_has_a_file_counts),
    };

    return cmocka_run_group_tests_name("credentials_exchange", tests, NULL, NULL);
}
