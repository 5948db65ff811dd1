/* Tokens and what they are traded for: memory that held one is wiped before it is given back. */
#include "assertion_count.h"
#include "cloud_fixture.h"

#include <muster/credentials.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "secret_mem.h"

struct scene {
    struct cloud_fixture fixture;
    struct muster_env env; /* the cloud's, but for its memory */
    struct secret_mem memory;
    bool is_done;
    enum muster_rc rc;
    char token[64];
};

static void scene_open(struct scene *scene, const char *secret)
{
    memset(scene, 0, sizeof(*scene));
    cloud_fixture_open(&scene->fixture, NULL);
    secret_mem_init(&scene->memory, scene->fixture.env->mem, secret, strlen(secret));
    scene->env = *scene->fixture.env;
    scene->env.mem = &scene->memory.mem;
    assert_int_equal(muster_http_curl_open(&scene->env, NULL, &scene->env.http, NULL), MUSTER_OK);
    cloud_fixture_set_var(&scene->fixture, "GCE_METADATA_HOST", "{{hostport}}");
}

static void scene_close(struct scene *scene)
{
    cloud_fixture_close_http(&scene->fixture, scene->env.http);
    cloud_fixture_close(&scene->fixture);
}

static void on_token(struct muster_token_get *get, enum muster_rc rc)
{
    struct scene *scene = get->data;

    scene->is_done = true;
    scene->rc = rc;
    (void)snprintf(scene->token, sizeof(scene->token), "%s", rc == MUSTER_OK ? get->token : "");
}

static enum muster_rc ask_credentials(struct scene *scene, struct muster_credentials *credentials,
                                      const char *stale)
{
    struct muster_token_get get = {.data = scene};

    scene->is_done = false;
    assert_int_equal(muster_token_get_start(&get, credentials, stale,
                                            cloud_fixture_in_s(&scene->fixture, 30), on_token),
                     MUSTER_OK);
    test_env_run_until(scene->fixture.env, test_env_is_true, &scene->is_done);
    return scene->rc;
}

/* Secrets are longer than what a form begins with. */
#define LONG    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LONGER  LONG LONG LONG LONG LONG
#define REFRESH "hush-refresh-token"
#define CLIENT  "hush-secret-of-client"
#define SUBJECT "hush-subject-token"
#define USER_FILE                                                                                  \
    "{\"type\": \"authorized_user\", \"client_id\": \"me\", \"client_secret\": \"" CLIENT LONGER   \
    "\", \"refresh_token\": \"" REFRESH LONGER "\", \"token_uri\": \"{{base}}/token\"}"
#define WORKLOAD_FILE                                                                              \
    "{\"type\": \"external_account\", \"audience\": \"" LONGER                                     \
    "\", \"subject_token_type\": \"t\", "                                                          \
    "\"token_url\": \"{{base}}/sts\", \"client_id\": \"me\", \"client_secret\": \"" CLIENT LONGER  \
    "\", \"service_account_impersonation_url\": \"{{base}}/impersonate\", "                        \
    "\"credential_source\": {\"file\": \"{{subject}}\"}}"
#define ANSWER(token) "{\"access_token\": \"" token "\", \"expires_in\": 3600}"

/* The file of the credentials, and that of the subject's token. */
static void write_file(struct scene *scene, const char *text)
{
    char whole[8192], *at = whole;
    const char *mark = strstr(text, "{{subject}}");

    if (mark != NULL) {
        at += snprintf(at, sizeof(whole), "%.*s%s", (int)(mark - text), text,
                       cloud_fixture_write(&scene->fixture, "subject", SUBJECT LONGER "\n"));
        text = mark + strlen("{{subject}}");
    }
    (void)strcpy(at, text);
    cloud_fixture_set_var(&scene->fixture, "GOOGLE_APPLICATION_CREDENTIALS",
                          cloud_fixture_write(&scene->fixture, "key.json", whole));
}

/* Secret by secret: what one kind of credentials reads, sends, receives and keeps. */
static void no_secret_is_left_in_memory_that_is_given_back(void **state)
{
    static const struct {
        const char *name, *secret;
        const char *file;   /* NULL: the metadata server */
        const char *answer; /* of all servers */
        enum muster_rc rc;
    } rows[] = {
        {"a token of the metadata server", "hush-token", NULL, ANSWER("hush-token"), MUSTER_OK},
        {"a token of the token server", "hush-token", USER_FILE, ANSWER("hush-token" LONGER),
         MUSTER_OK},
        {"a refresh token", REFRESH, USER_FILE, ANSWER("t"), MUSTER_OK},
        {"the secret of a client", CLIENT, USER_FILE, ANSWER("t"), MUSTER_OK},
        {"a refresh token that is refused", REFRESH, USER_FILE, ANSWER(""),
         MUSTER_INVALID_ARGUMENT},
        {"a token that opens the next", "hush-token", WORKLOAD_FILE, ANSWER("hush-token"),
         MUSTER_OK},
        {"a subject token", SUBJECT, WORKLOAD_FILE, ANSWER("t"), MUSTER_OK},
        {"the secret of a workload's client", CLIENT, WORKLOAD_FILE, ANSWER("t"), MUSTER_OK},
        {"that secret in a header", "bWU6aHVzaC1zZWNyZXQtb2YtY2xpZW50", WORKLOAD_FILE, ANSWER("t"),
         MUSTER_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct muster_credentials *credentials = NULL;
        char script[512];

        scene_open(&scene, rows[i].secret);
        (void)snprintf(script, sizeof(script),
                       "[{\"response\": {\"headers\": {\"Metadata-Flavor\": \"Google\"}, "
                       "\"body\": %s}}]",
                       rows[i].answer);
        cloud_fixture_script(&scene.fixture, script);
        if (rows[i].file != NULL)
            write_file(&scene, rows[i].file);
        assert_int_equal(muster_credentials_default_open(&scene.env, NULL, &credentials, NULL),
                         MUSTER_OK);
        assert_int_equal(ask_credentials(&scene, credentials, NULL), rows[i].rc);
        if (rows[i].rc == MUSTER_OK)
            assert_int_equal(ask_credentials(&scene, credentials, scene.token),
                             MUSTER_OK); /* another one */
        cloud_fixture_close_credentials(&scene.fixture, credentials);
        fail_if(scene.memory.leaked_count > 0, "%s: left in %u blocks", rows[i].name,
                scene.memory.leaked_count);
        scene_close(&scene);
    }
}

static enum muster_rc open_bearer(struct scene *scene, struct muster_credentials **ret_credentials)
{
    return muster_credentials_bearer_open(&scene->env, "hush-token", ret_credentials, NULL);
}

static enum muster_rc open_token_file(struct scene *scene,
                                      struct muster_credentials **ret_credentials)
{
    const char *path = cloud_fixture_write(&scene->fixture, "token", " hush-token\n");

    return muster_credentials_token_file_open(&scene->env, path, ret_credentials, NULL);
}

static enum muster_rc open_bad_token_file(struct scene *scene,
                                          struct muster_credentials **ret_credentials)
{
    const char *path = cloud_fixture_write(&scene->fixture, "token", "x hush-token\n");

    return muster_credentials_token_file_open(&scene->env, path, ret_credentials, NULL);
}

static void a_token_that_was_given_is_wiped(void **state)
{
    static const struct {
        enum muster_rc (*open)(struct scene *scene, struct muster_credentials **ret_credentials);
        enum muster_rc rc;
    } rows[] = {{open_bearer, MUSTER_OK},
                {open_token_file, MUSTER_OK},
                {open_bad_token_file, MUSTER_INVALID_ARGUMENT}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct muster_credentials *credentials = NULL;

        scene_open(&scene, "hush-token");
        assert_int_equal(rows[i].open(&scene, &credentials), MUSTER_OK);
        for (int turn = 0; turn < 2; turn++) {
            assert_int_equal(ask_credentials(&scene, credentials, scene.token), rows[i].rc);
            assert_string_equal(scene.token, rows[i].rc == MUSTER_OK ? "hush-token" : "");
            assert_true(secret_mem_is_held(&scene.memory) == (rows[i].rc == MUSTER_OK));
        }
        cloud_fixture_close_credentials(&scene.fixture, credentials);
        assert_int_equal(scene.memory.leaked_count, 0);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_secret_is_left_in_memory_that_is_given_back),
        cmocka_unit_test(a_token_that_was_given_is_wiped),
    };

    return cmocka_run_group_tests_name("credentials_secrets", tests, NULL, NULL);
}
