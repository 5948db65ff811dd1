/* Credentials: who keeps a token, for how long, and what is said when none can be had. */
#include "cloud_fixture.h"

#include <muster/credentials.h>
#include <muster/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/stream/base64.h"
#include "net/http/credentials_internal.h"

struct asker {
    struct muster_token_get get;
    int count;
    enum muster_rc rc;
    char token[256];
    bool is_done;
};

static struct muster_credentials *credentials; /* of the case, which may open some */
static struct asker asker;

static int tear_down(void **state)
{
    if (credentials != NULL)
        cloud_fixture_close_credentials(*state, credentials);
    credentials = NULL;
    return cloud_fixture_tear_down(state);
}

/* The credentials of the case are those of the metadata server, which answers by the script. */
static void open_metadata(struct cloud_fixture *fixture, const char *script)
{
    cloud_fixture_script(fixture, script);
    assert_int_equal(muster_credentials_metadata_open(fixture->env, &credentials, NULL), MUSTER_OK);
}

static void on_token(struct muster_token_get *get, enum muster_rc rc)
{
    struct asker *one = get->data;

    one->count++;
    one->rc = rc;
    one->is_done = true;
    snprintf(one->token, sizeof(one->token), "%s", rc == MUSTER_OK ? get->token : "");
}

static void asker_start(struct cloud_fixture *fixture, struct asker *one, const char *stale)
{
    *one = (struct asker){.get = {.data = one}};
    assert_int_equal(muster_token_get_start(&one->get, credentials, stale,
                                            cloud_fixture_in_s(fixture, 30), on_token),
                     MUSTER_OK);
    assert_int_equal(one->count, 0);
}

static enum muster_rc ask_token(struct cloud_fixture *fixture, const char *stale)
{
    asker_start(fixture, &asker, stale);
    test_env_run_until(fixture->env, test_env_is_true, &asker.is_done);
    assert_int_equal(asker.count, 1);
    return asker.rc;
}

/* The cache. */

#define METADATA_TOKEN(token, seconds)                                                             \
    "{\"match\": {\"method\": \"GET\", \"headers\": {\"Metadata-Flavor\": \"Google\"}, "           \
    "\"path\": \"/computeMetadata/v1/instance/service-accounts/default/token\"}, "                 \
    "\"times\": 1, \"response\": {\"headers\": {\"Metadata-Flavor\": \"Google\"}, \"body\": "      \
    "{\"access_token\": \"" token "\", \"expires_in\": " seconds ", \"token_type\": \"Bearer\"}}}"

static void the_metadata_server_gives_a_token_that_is_kept(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, "[" METADATA_TOKEN("t1", "3600") "]");
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, NULL),
                     MUSTER_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
        assert_string_equal(asker.token, "t1");
    }
    assert_int_equal(cloud_fixture_request_count(fixture), 1);
}

static void any_number_of_askers_share_one_exchange(void **state)
{
    static struct asker askers[50];
    struct cloud_fixture *fixture = *state;

    open_metadata(fixture, "[" METADATA_TOKEN("t1", "3600") "]");
    for (int i = 0; i < 50; i++)
        asker_start(fixture, &askers[i], NULL);
    for (int i = 0; i < 50; i++) {
        test_env_run_until(fixture->env, test_env_is_true, &askers[i].is_done);
        assert_string_equal(askers[i].token, "t1");
    }
    assert_int_equal(cloud_fixture_request_count(fixture), 1);
}

static void a_token_is_renewed_well_before_its_end(void **state)
{
    struct cloud_fixture *fixture = *state;
    uint64_t now_ns;

    open_metadata(fixture, "[" METADATA_TOKEN("t1", "3600") "," METADATA_TOKEN("t2", "3600") "]");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    now_ns = muster_loop_now_ns(fixture->env->loop);
    assert_in_range(credentials->token_fresh_until_ns, now_ns + 3300 * MUSTER_NS_PER_S,
                    now_ns + 3375 * MUSTER_NS_PER_S);

    credentials->token_fresh_until_ns = now_ns; /* that time has come */
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    assert_string_equal(asker.token, "t2");
}

static void a_token_that_still_lives_bridges_a_failing_renewal(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_metadata(fixture, "[" METADATA_TOKEN("t1", "3600") "]");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    credentials->token_fresh_until_ns = 1;
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    assert_string_equal(asker.token, "t1");
    assert_string_equal(asker.get.error.text, "");

    credentials->token_until_ns = 1;
    assert_int_equal(ask_token(fixture, NULL), MUSTER_UNAVAILABLE);
    assert_string_not_equal(asker.get.error.text, "");
}

static void a_refused_token_is_replaced_and_a_newer_one_is_not(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_metadata(fixture, "[" METADATA_TOKEN("t1", "3600") "," METADATA_TOKEN("t2", "3600") "]");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    assert_int_equal(ask_token(fixture, "t1"), MUSTER_OK);
    assert_string_equal(asker.token, "t2");
    assert_int_equal(ask_token(fixture, "t1"), MUSTER_OK);
    assert_string_equal(asker.token, "t2");
    assert_int_equal(cloud_fixture_request_count(fixture), 2);
}

/* Ends. */

static void an_asker_may_leave_and_the_others_are_served(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct asker a, b;

    open_metadata(fixture, "[" METADATA_TOKEN("t1", "3600") "]");
    asker_start(fixture, &a, NULL);
    asker_start(fixture, &b, NULL);
    muster_token_get_cancel(&a.get);
    muster_token_get_cancel(&a.get);
    test_env_run_until(fixture->env, test_env_is_true, &b.is_done);

    assert_int_equal(a.count, 1);
    assert_int_equal(a.rc, MUSTER_CANCELLED);
    assert_string_equal(b.token, "t1");
}

static void an_asker_waits_until_its_own_deadline(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_metadata(fixture, "[{\"response\": {\"hang\": true}}]");
    asker = (struct asker){.get = {.data = &asker}};
    assert_int_equal(muster_token_get_start(
                         &asker.get, credentials, NULL,
                         muster_loop_after_ns(fixture->env->loop, MUSTER_NS_PER_MS), on_token),
                     MUSTER_OK);
    test_env_run_until(fixture->env, test_env_is_true, &asker.is_done);

    assert_int_equal(asker.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(asker.get.error.text, "metadata server"));
}

static void closing_answers_everybody_who_waits(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct asker a, b;

    open_metadata(fixture, "[{\"response\": {\"hang\": true}}]");
    asker_start(fixture, &a, NULL);
    asker_start(fixture, &b, NULL);
    test_env_turn(fixture->env, 5);
    cloud_fixture_close_credentials(fixture, credentials);
    credentials = NULL;

    assert_int_equal(a.rc, MUSTER_CANCELLED);
    assert_int_equal(b.rc, MUSTER_CANCELLED);
    assert_int_equal(a.count + b.count, 2);
}

/* The metadata server. */

static void an_answer_without_flavor_is_not_believed(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_metadata(fixture, "[{\"response\": {\"body\": {\"access_token\": \"evil-token\"}}}]");

    assert_int_equal(ask_token(fixture, NULL), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(asker.get.error.text, "is not a metadata server"));
    assert_null(strstr(asker.get.error.text, "evil-token"));
}

static void a_machine_without_service_account_is_told_to_attach_one(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_metadata(fixture, "[{\"response\": {\"status\": 404, \"headers\": "
                           "{\"Metadata-Flavor\": \"Google\"}, \"body\": \"\"}}]");

    assert_int_equal(ask_token(fixture, NULL), MUSTER_NOT_FOUND);
    assert_non_null(strstr(asker.get.error.text, "no service account"));
}

static void with_nothing_anywhere_the_error_names_every_place(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_set_var(fixture, "GCE_METADATA_HOST", "127.0.0.1:1");
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, NULL),
                     MUSTER_OK);

    assert_int_equal(ask_token(fixture, NULL), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(asker.get.error.text, "GOOGLE_APPLICATION_CREDENTIALS is not set"));
    assert_non_null(strstr(asker.get.error.text, "127.0.0.1:1"));
    assert_non_null(strstr(asker.get.error.text, "gcloud auth application-default login"));
}

/* Files. */

static void open_file(struct cloud_fixture *fixture, const char *text)
{
    struct muster_error error = {.text = ""};

    cloud_fixture_set_var(fixture, "GOOGLE_APPLICATION_CREDENTIALS",
                          cloud_fixture_write(fixture, "key.json", text));
    if (muster_credentials_default_open(fixture->env, NULL, &credentials, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

#define USER_FILE                                                                                  \
    "{\"type\": \"authorized_user\", \"client_id\": \"me&you\", \"client_secret\": "               \
    "\"hush-secret\", \"refresh_token\": \"hush-refresh\", \"quota_project_id\": \"p1\", "         \
    "\"token_uri\": \"{{base}}/token\"}"

static void a_user_trades_the_refresh_token(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_file(fixture, USER_FILE);
    fake_cloud_say(fixture->cloud, "POST", "/token", 200,
                   "{\"access_token\": \"u1\", \"expires_in\": 3599, \"token_type\": \"Bearer\"}");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);

    assert_string_equal(asker.token, "u1");
    assert_string_equal(muster_credentials_project(credentials), "p1");
    assert_string_equal(fake_cloud_request(fixture->cloud, 0)->body,
                        "grant_type=refresh_token&client_id=me%26you&client_secret=hush-secret&"
                        "refresh_token=hush-refresh");
    assert_string_equal(
        fake_cloud_request_header(fake_cloud_request(fixture->cloud, 0), "content-type"),
        "application/x-www-form-urlencoded");
}

static void closing_ends_the_exchange_of_a_file(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_file(fixture, USER_FILE);
    cloud_fixture_script(fixture, "[{\"response\": {\"hang\": true}}]");
    asker_start(fixture, &asker, NULL);
    for (unsigned i = 0; i < 100 && cloud_fixture_request_count(fixture) == 0; i++)
        test_env_turn(fixture->env, 1);
    cloud_fixture_close_credentials(fixture, credentials);
    credentials = NULL;

    assert_int_equal(asker.rc, MUSTER_CANCELLED);
    assert_int_equal(asker.count, 1);
}

static void a_refusal_names_file_and_remedy_and_no_secret(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_file(fixture, USER_FILE);
    fake_cloud_say(fixture->cloud, "POST", "/token", 400,
                   "{\"error\": \"invalid_grant\", \"error_description\": \"Bad hush-refresh\"}");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_UNAUTHENTICATED);

    assert_non_null(strstr(asker.get.error.text, "key.json (GOOGLE_APPLICATION_CREDENTIALS)"));
    assert_non_null(strstr(asker.get.error.text, "status 400: Bad ****"));
    assert_non_null(strstr(asker.get.error.text, "run gcloud auth application-default login"));
    assert_null(strstr(asker.get.error.text, "hush"));
}

static void a_passing_failure_of_the_token_server_is_tried_again(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_file(fixture, USER_FILE);
    cloud_fixture_script(fixture,
                         "[{\"match\": {}, \"times\": 1, \"response\": {\"status\": 503, "
                         "\"headers\": {\"Retry-After\": \"0\"}}}, {\"match\": {}, \"response\": "
                         "{\"body\": {\"access_token\": \"u2\"}}}]");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    assert_string_equal(asker.token, "u2");
}

/* The RSA key as it stands in JSON. */
static void escape_lines(const char *pem, char *out)
{
    for (; *pem != '\0'; pem++) {
        if (*pem == '\n') {
            *out++ = '\\';
            *out++ = 'n';
        } else {
            *out++ = *pem;
        }
    }
    *out = '\0';
}

/* Undo base64url of a part of a JWT into out, NUL-terminated. */
static size_t decode_part(const char *part, size_t length, char *out)
{
    char copy[2048];
    size_t size = 0;

    assert_true(length < sizeof(copy));
    for (size_t i = 0; i < length; i++)
        copy[i] = (char)(part[i] == '-' ? '+' : part[i] == '_' ? '/' : part[i]);
    assert_int_equal(muster_base64_decode(copy, length, out, &size), MUSTER_OK);
    out[size] = '\0';
    return size;
}

static void check_assertion(struct cloud_fixture *fixture, const char *body, const char *public_pem)
{
    static const char prefix[] =
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
    const char *jwt = body + sizeof(prefix) - 1;
    const char *dot1, *dot2;
    char text[2048], audience[256];
    struct muster_json *claims = NULL;
    int64_t now_s = (int64_t)(muster_host_wall_ns(fixture->env->host) / MUSTER_NS_PER_S);
    size_t size;

    assert_memory_equal(body, prefix, sizeof(prefix) - 1);
    dot1 = strchr(jwt, '.');
    dot2 = strchr(dot1 + 1, '.');
    size = decode_part(jwt, (size_t)(dot1 - jwt), text);
    assert_string_equal(text, "{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"k7\"}");
    size = decode_part(dot1 + 1, (size_t)(dot2 - dot1) - 1, text);
    assert_int_equal(muster_json_parse(text, size, &claims, NULL), MUSTER_OK);
    snprintf(audience, sizeof(audience), "%s/token", fake_cloud_base(fixture->cloud));
    assert_string_equal(muster_json_text(muster_json_member(claims, "iss")), "robot@p2.example");
    assert_string_equal(muster_json_text(muster_json_member(claims, "aud")), audience);
    assert_string_equal(muster_json_text(muster_json_member(claims, "scope")),
                        MUSTER_SCOPE_DEFAULT);
    assert_in_range(muster_json_integer(muster_json_member(claims, "iat")), now_s - 120, now_s);
    assert_int_equal(muster_json_integer(muster_json_member(claims, "exp")),
                     muster_json_integer(muster_json_member(claims, "iat")) + 3600);
    muster_json_free(claims);
    size = decode_part(dot2 + 1, strlen(dot2 + 1), text);
    assert_true(fake_rsa_is_signed(public_pem, jwt, (unsigned long)(dot2 - jwt),
                                   (const unsigned char *)text, size));
}

static void a_service_account_signs_an_assertion(void **state)
{
    struct cloud_fixture *fixture = *state;
    char *private_pem = NULL, *public_pem = NULL;
    char escaped[4096], file[8192];

    assert_true(fake_rsa_key_new(&private_pem, &public_pem));
    escape_lines(private_pem, escaped);
    snprintf(file, sizeof(file),
             "{\"type\": \"service_account\", \"project_id\": \"p2\", \"private_key_id\": \"k7\", "
             "\"private_key\": \"%s\", \"client_email\": \"robot@p2.example\", "
             "\"token_uri\": \"{{base}}/token\"}",
             escaped);
    open_file(fixture, file);
    fake_cloud_say(fixture->cloud, "POST", "/token", 200,
                   "{\"access_token\": \"s1\", \"expires_in\": \"3600\"}");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);

    assert_string_equal(asker.token, "s1");
    assert_string_equal(muster_credentials_project(credentials), "p2");
    assert_non_null(
        strstr(muster_credentials_text(credentials), "service account robot@p2.example from "));
    check_assertion(fixture, fake_cloud_request(fixture->cloud, 0)->body, public_pem);
    free(private_pem);
    free(public_pem);
}

static void a_key_that_is_none_is_an_error_without_its_text(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_file(fixture, "{\"type\": \"service_account\", \"private_key\": \"hush-no-key\", "
                       "\"client_email\": \"a@b\", \"token_uri\": \"{{base}}/token\"}");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(asker.get.error.text, "not an RSA key"));
    assert_null(strstr(asker.get.error.text, "hush"));
}

static void a_workload_trades_the_token_of_its_file_and_impersonates(void **state)
{
    struct cloud_fixture *fixture = *state;
    char path[256], file[2048];

    strcpy(path, cloud_fixture_write(fixture, "subject.json", "{\"tok\": \"subject+1\"}"));
    snprintf(file, sizeof(file),
             "{\"type\": \"external_account\", \"audience\": \"//iam/pools/x\", "
             "\"subject_token_type\": \"urn:ietf:params:oauth:token-type:jwt\", "
             "\"token_url\": \"{{base}}/sts\", \"service_account_impersonation_url\": "
             "\"{{base}}/impersonate\", \"service_account_impersonation\": "
             "{\"token_lifetime_seconds\": 1800}, \"credential_source\": {\"file\": \"%s\", "
             "\"format\": {\"type\": \"json\", \"subject_token_field_name\": \"tok\"}}}",
             path);
    open_file(fixture, file);
    cloud_fixture_script(
        fixture, "[{\"match\": {\"path\": \"/sts\"}, \"response\": {\"body\": {\"access_token\": "
                 "\"federated\", \"expires_in\": 3600}}}, {\"match\": {\"path\": "
                 "\"/impersonate\", \"headers\": {\"Authorization\": \"Bearer federated\"}}, "
                 "\"response\": {\"body\": {\"accessToken\": \"final\", \"expireTime\": "
                 "\"2125-01-01T00:00:00Z\"}}}]");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);

    assert_string_equal(asker.token, "final");
    assert_string_equal(
        fake_cloud_request(fixture->cloud, 0)->body,
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&audience=%2F%2Fiam%"
        "2Fpools%2Fx&scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform&requested_"
        "token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token&subject_token=subject%"
        "2B1&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt");
    assert_string_equal(fake_cloud_request(fixture->cloud, 1)->body,
                        "{\"scope\":[\"https://www.googleapis.com/auth/cloud-platform\"],"
                        "\"lifetime\":\"1800s\",\"delegates\":[]}");
}

static void a_missing_subject_file_is_named(void **state)
{
    struct cloud_fixture *fixture = *state;

    open_file(fixture,
              "{\"type\": \"external_account\", \"audience\": \"a\", \"subject_token_type\": "
              "\"t\", \"token_url\": \"{{base}}/sts\", \"credential_source\": {\"file\": "
              "\"/no/such/subject\"}}");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_NOT_FOUND);
    assert_non_null(strstr(asker.get.error.text, "/no/such/subject"));
}

static void an_unreadable_or_malformed_file_ends_the_search(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_error error;

    cloud_fixture_set_var(fixture, "GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file.json");
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "/no/such/file.json (GOOGLE_APPLICATION_CREDENTIALS)"));
    assert_non_null(strstr(error.text, ", or unset the variable"));

    cloud_fixture_set_var(fixture, "GOOGLE_APPLICATION_CREDENTIALS",
                          cloud_fixture_write(fixture, "bad.json", "{\"type\": "));
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "bad.json (GOOGLE_APPLICATION_CREDENTIALS)"));
    assert_int_equal(cloud_fixture_request_count(fixture), 0);
}

/* Another place would act as somebody else than the user has logged in as. */
static void a_broken_file_of_gcloud_ends_the_search_too(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)cloud_fixture_write(fixture, "application_default_credentials.json", "{\"type\": ");
    cloud_fixture_set_var(fixture, "CLOUDSDK_CONFIG", fixture->folder);
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(error.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "application_default_credentials.json"));
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, NULL),
                     MUSTER_INVALID_ARGUMENT);

    assert_null(credentials);
    assert_int_equal(cloud_fixture_request_count(fixture), 0);
}

static void the_file_of_gcloud_comes_before_the_metadata_server(void **state)
{
    struct cloud_fixture *fixture = *state;

    (void)cloud_fixture_write(fixture, "application_default_credentials.json", USER_FILE);
    cloud_fixture_set_var(fixture, "CLOUDSDK_CONFIG", fixture->folder);
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, NULL),
                     MUSTER_OK);
    assert_non_null(
        strstr(muster_credentials_text(credentials), "application_default_credentials.json"));
}

/* A caller that looks at the error alone must not take a file that may be missing for a failure. */
static void what_is_not_there_leaves_no_error_behind(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_error error = {.rc = MUSTER_OK, .text = ""};

    cloud_fixture_set_var(fixture, "CLOUDSDK_CONFIG", "/nonexistent");
    assert_int_equal(muster_credentials_default_open(fixture->env, NULL, &credentials, &error),
                     MUSTER_OK);
    assert_int_equal(error.rc, MUSTER_OK);
    assert_string_equal(error.text, "");
}

static void a_token_file_is_read_again_when_its_token_was_refused(void **state)
{
    struct cloud_fixture *fixture = *state;
    char path[256];

    strcpy(path, cloud_fixture_write(fixture, "token", "  first\n"));
    assert_int_equal(muster_credentials_token_file_open(fixture->env, path, &credentials, NULL),
                     MUSTER_OK);
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    assert_string_equal(asker.token, "first");
    (void)cloud_fixture_write(fixture, "token", "second\n");
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    assert_string_equal(asker.token, "first");
    assert_int_equal(ask_token(fixture, "first"), MUSTER_OK);
    assert_string_equal(asker.token, "second");
}

static void a_bearer_token_must_fit_into_a_header(void **state)
{
    struct cloud_fixture *fixture = *state;

    assert_int_equal(muster_credentials_bearer_open(fixture->env, "a\r\nb", &credentials, NULL),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_credentials_bearer_open(fixture->env, "", &credentials, NULL),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_credentials_bearer_open(fixture->env, "ok", &credentials, NULL),
                     MUSTER_OK);
    assert_int_equal(ask_token(fixture, NULL), MUSTER_OK);
    assert_string_equal(asker.token, "ok");
}

static void an_answer_without_usable_token_is_refused(void **state)
{
    static const char *const rows[] = {
        "not json",
        "{}",
        "[]",
        "{\"access_token\": 5}",
        "{\"access_token\": \"\"}",
        "{\"access_token\": \"hush hush\"}",
        "{\"access_token\": \"hush\", \"expires_in\": \"soon\"}",
        "{\"access_token\": \"hush\", \"expires_in\": -5}",
        "{\"access_token\": \"hush\", \"expires_in\": 1e300}",
        "{\"access_token\": \"hush\", \"token_type\": \"MAC\"}",
        "{\"accessToken\": \"hush\", \"expireTime\": \"tomorrow\"}",
    };
    struct cloud_fixture *fixture = *state;

    open_file(fixture, USER_FILE);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fake_cloud_forget_script(fixture->cloud);
        fake_cloud_say(fixture->cloud, "POST", "/token", 200, rows[i]);
        if (ask_token(fixture, NULL) != MUSTER_INVALID_ARGUMENT)
            fail_msg("%s: %s", rows[i], asker.get.error.text);
        assert_null(strstr(asker.get.error.text, "hush"));
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, cloud_fixture_set_up_metadata, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_metadata_server_gives_a_token_that_is_kept),
        T(any_number_of_askers_share_one_exchange),
        T(a_token_is_renewed_well_before_its_end),
        T(a_token_that_still_lives_bridges_a_failing_renewal),
        T(a_refused_token_is_replaced_and_a_newer_one_is_not),
        T(an_asker_may_leave_and_the_others_are_served),
        T(an_asker_waits_until_its_own_deadline),
        T(closing_answers_everybody_who_waits),
        T(an_answer_without_flavor_is_not_believed),
        T(a_machine_without_service_account_is_told_to_attach_one),
        T(with_nothing_anywhere_the_error_names_every_place),
        T(a_user_trades_the_refresh_token),
        T(closing_ends_the_exchange_of_a_file),
        T(a_refusal_names_file_and_remedy_and_no_secret),
        T(a_passing_failure_of_the_token_server_is_tried_again),
        T(a_service_account_signs_an_assertion),
        T(a_key_that_is_none_is_an_error_without_its_text),
        T(a_workload_trades_the_token_of_its_file_and_impersonates),
        T(a_missing_subject_file_is_named),
        T(an_unreadable_or_malformed_file_ends_the_search),
        T(a_broken_file_of_gcloud_ends_the_search_too),
        T(the_file_of_gcloud_comes_before_the_metadata_server),
        T(what_is_not_there_leaves_no_error_behind),
        T(a_token_file_is_read_again_when_its_token_was_refused),
        T(a_bearer_token_must_fit_into_a_header),
        T(an_answer_without_usable_token_is_refused),
    };

    return cmocka_run_group_tests_name("credentials", tests, NULL, NULL);
}
