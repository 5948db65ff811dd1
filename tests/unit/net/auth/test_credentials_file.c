/* Credential files as values: what is needed, what is refused, and that no error quotes a secret. */
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"
#include "net/auth/credentials_file.h"

static enum muster_rc parse_file(const char *text, struct muster_credentials_file *file,
                                 struct muster_error *error)
{
    *file = (struct muster_credentials_file){.root = NULL};
    *error = (struct muster_error){.text = ""};
    return muster_credentials_file_parse(text, strlen(text), file, error);
}

static void a_service_account_has_its_parts_and_a_default_server(void **state)
{
    struct muster_credentials_file file;
    struct muster_error error;

    (void)state;
    assert_int_equal(parse_file("{\"type\":\"service_account\",\"client_email\":\"a@b\","
                                "\"private_key\":\"K\",\"project_id\":\"p\"}",
                                &file, &error),
                     MUSTER_OK);
    assert_int_equal(file.kind, MUSTER_CREDENTIALS_SERVICE_ACCOUNT);
    assert_string_equal(file.token_url, "https://oauth2.googleapis.com/token");
    assert_string_equal(file.project, "p");
    assert_null(file.private_key_id);
    assert_null(file.impersonation_url);
    muster_json_free(file.root);
}

static void an_impersonated_account_stands_on_its_source(void **state)
{
    struct muster_credentials_file file;
    struct muster_error error;

    (void)state;
    assert_int_equal(
        parse_file(
            "{\"type\":\"impersonated_service_account\",\"service_account_impersonation_url\":"
            "\"https://i/x\",\"delegates\":[\"d1\",\"d2\"],\"source_credentials\":{\"type\":"
            "\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"s\","
            "\"refresh_token\":\"r\"}}",
            &file, &error),
        MUSTER_OK);
    assert_int_equal(file.kind, MUSTER_CREDENTIALS_AUTHORIZED_USER);
    assert_string_equal(file.impersonation_url, "https://i/x");
    assert_int_equal(muster_json_count(file.delegates), 2);
    assert_int_equal(file.impersonation_s, 3600);
    muster_json_free(file.root);
}

#define EXTERNAL(rest)                                                                             \
    "{\"type\":\"external_account\",\"audience\":\"a\",\"subject_token_type\":\"t\"," rest "}"

static void what_is_missing_or_wrong_is_named(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
        const char *named;
    } rows[] = {
        {"", MUSTER_INVALID_ARGUMENT, ""},
        {"[]", MUSTER_INVALID_ARGUMENT, "must be a JSON object"},
        {"{}", MUSTER_INVALID_ARGUMENT, "\"type\""},
        {"{\"type\":7}", MUSTER_INVALID_ARGUMENT, "\"type\""},
        {"{\"type\":\"gdch_service_account\"}", MUSTER_UNIMPLEMENTED, "gdch_service_account"},
        {"{\"type\":\"service_account\",\"private_key\":\"hush\"}", MUSTER_INVALID_ARGUMENT,
         "\"client_email\""},
        {"{\"type\":\"service_account\",\"client_email\":\"a\",\"private_key\":[\"hush\"]}",
         MUSTER_INVALID_ARGUMENT, "\"private_key\""},
        {"{\"type\":\"service_account\",\"client_email\":\"a\",\"private_key\":\"hush\","
         "\"token_uri\":\"http://evil/\"}",
         MUSTER_INVALID_ARGUMENT, "\"token_uri\" must be https"},
        {"{\"type\":\"service_account\",\"client_email\":\"a\",\"private_key\":\"hush\","
         "\"token_uri\":\"http://127.0.0.1.evil/\"}",
         MUSTER_INVALID_ARGUMENT, "\"token_uri\" must be https"},
        {"{\"type\":\"service_account\",\"client_email\":\"a\",\"private_key\":\"hush\","
         "\"token_uri\":\"file:///x\"}",
         MUSTER_INVALID_ARGUMENT, "\"token_uri\" is not an http url"},
        {"{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"hush\"}",
         MUSTER_INVALID_ARGUMENT, "\"refresh_token\""},
        {EXTERNAL("\"token_url\":\"https://t/\""), MUSTER_INVALID_ARGUMENT,
         "\"credential_source\""},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"url\":\"http://x\"}"),
         MUSTER_UNIMPLEMENTED, "\"file\""},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"f\","
                  "\"format\":{\"type\":\"xml\"}}"),
         MUSTER_INVALID_ARGUMENT, "must be text or json"},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"f\","
                  "\"format\":{\"type\":\"json\"}}"),
         MUSTER_INVALID_ARGUMENT, "\"subject_token_field_name\""},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"f\"},"
                  "\"service_account_impersonation\":{\"token_lifetime_seconds\":-1}"),
         MUSTER_INVALID_ARGUMENT, "\"token_lifetime_seconds\""},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"f\"},"
                  "\"service_account_impersonation_url\":\"http://evil/\""),
         MUSTER_INVALID_ARGUMENT, "\"service_account_impersonation_url\" must be https"},
        {"{\"type\":\"impersonated_service_account\"}", MUSTER_INVALID_ARGUMENT, "\"type\""},
        {"{\"type\":\"impersonated_service_account\",\"source_credentials\":{\"type\":"
         "\"impersonated_service_account\"}}",
         MUSTER_UNIMPLEMENTED, "impersonated_service_account"},
    };
    struct muster_credentials_file file;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum muster_rc rc = parse_file(rows[i].text, &file, &error);

        if (rc != rows[i].rc || strstr(error.text, rows[i].named) == NULL)
            fail_msg("row %zu: %s: %s", i, muster_rc_name(rc), error.text);
        assert_null(strstr(error.text, "hush"));
        assert_null(file.root);
    }
}

#define USER                                                                                       \
    "{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"hush\","                \
    "\"refresh_token\":\"hush\"}"
#define IMPERSONATED(rest)                                                                         \
    "{\"type\":\"impersonated_service_account\",\"source_credentials\":" USER                      \
    ",\"service_account_impersonation_url\":\"https://i/x\"" rest "}"
#define FILE_SOURCE "\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"f\"}"
#define LIFE(number)                                                                               \
    EXTERNAL(FILE_SOURCE ",\"service_account_impersonation\":{\"token_lifetime_seconds\":" number  \
                         "}")
#define TOKEN_URI(url)                                                                             \
    "{\"type\":\"service_account\",\"client_email\":\"a\",\"private_key\":\"hush\",\"token_uri\":" \
    "\"" url "\"}"
#define D4 "\"d\",\"d\",\"d\",\"d\""

/* Secrets go by https, or stay on this machine; numbers and lists have an end. */
static void each_limit_has_a_last_value_that_is_good(void **state)
{
    static const struct {
        const char *text, *named; /* NULL: good */
        enum muster_rc rc;
    } rows[] = {
        {TOKEN_URI("https://t/"), NULL, MUSTER_OK},
        {TOKEN_URI("http://localhost/"), NULL, MUSTER_OK},
        {TOKEN_URI("http://127.0.0.1:8/x"), NULL, MUSTER_OK},
        {TOKEN_URI("http://[::1]:8/x"), NULL, MUSTER_OK},
        {TOKEN_URI("http://localhostx/"), "must be https", MUSTER_INVALID_ARGUMENT},
        {TOKEN_URI("http://localhos/"), "must be https", MUSTER_INVALID_ARGUMENT},
        {TOKEN_URI("http://localhost.evil/"), "must be https", MUSTER_INVALID_ARGUMENT},
        {TOKEN_URI("http://127.0.0.2/"), "must be https", MUSTER_INVALID_ARGUMENT},
        {TOKEN_URI("http://[::2]/"), "must be https", MUSTER_INVALID_ARGUMENT},
        {TOKEN_URI("http://localhost@evil/"), "token_uri", MUSTER_INVALID_ARGUMENT},
        {LIFE("1"), NULL, MUSTER_OK},
        {LIFE("43200"), NULL, MUSTER_OK},
        {LIFE("0"), "must be 1 to 43200", MUSTER_INVALID_ARGUMENT},
        {LIFE("43201"), "must be 1 to 43200", MUSTER_INVALID_ARGUMENT},
        {LIFE("\"5\""), "must be 1 to 43200", MUSTER_INVALID_ARGUMENT},
        {LIFE("null"), NULL, MUSTER_OK},
        {IMPERSONATED(""), NULL, MUSTER_OK},
        {IMPERSONATED(",\"delegates\":null"), NULL, MUSTER_OK},
        {IMPERSONATED(",\"delegates\":[]"), NULL, MUSTER_OK},
        {IMPERSONATED(",\"delegates\":[" D4 "," D4 "," D4 "," D4 "]"), NULL, MUSTER_OK},
        {IMPERSONATED(",\"delegates\":[" D4 "," D4 "," D4 "," D4 ",\"d\"]"), "at most 16",
         MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"impersonated_service_account\",\"source_credentials\":{\"type\":"
         "\"external_account\",\"service_account_impersonation_url\":\"https://i/y\"}}",
         "\"audience\"", MUSTER_INVALID_ARGUMENT},
        {IMPERSONATED(",\"delegates\":\"d\""), "must be a list", MUSTER_INVALID_ARGUMENT},
        {IMPERSONATED(",\"delegates\":[\"d\",5]"), "must hold texts only", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"impersonated_service_account\",\"source_credentials\":" USER "}",
         "service_account_impersonation_url", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"impersonated_service_account\",\"source_credentials\":" USER
         ",\"service_account_impersonation_url\":\"http://evil/\"}",
         "must be https", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"impersonated_service_account\",\"service_account_impersonation_url\":"
         "\"https://i/x\",\"source_credentials\":" EXTERNAL(
             FILE_SOURCE ",\"service_account_impersonation_url\":\"https://i/y\"") "}",
         "impersonate somebody themselves", MUSTER_UNIMPLEMENTED},
        {EXTERNAL(FILE_SOURCE), NULL, MUSTER_OK},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"\"}"),
         "names no \"file\"", MUSTER_UNIMPLEMENTED},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":5"), "must be an object",
         MUSTER_INVALID_ARGUMENT},
        {EXTERNAL("\"credential_source\":{\"file\":\"f\"}"), "\"token_url\"",
         MUSTER_INVALID_ARGUMENT},
        {EXTERNAL("\"token_url\":\"http://evil/\",\"credential_source\":{\"file\":\"f\"}"),
         "must be https", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"external_account\",\"subject_token_type\":\"t\"," FILE_SOURCE "}",
         "\"audience\"", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"external_account\",\"audience\":\"a\"," FILE_SOURCE "}",
         "\"subject_token_type\"", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"authorized_user\",\"client_secret\":\"hush\",\"refresh_token\":\"hush\"}",
         "\"client_id\"", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"authorized_user\",\"client_id\":\"c\",\"refresh_token\":\"hush\"}",
         "\"client_secret\"", MUSTER_INVALID_ARGUMENT},
        {"{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"\","
         "\"refresh_token\":\"hush\"}",
         "\"client_secret\"", MUSTER_INVALID_ARGUMENT},
    };
    struct muster_credentials_file file;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum muster_rc rc = parse_file(rows[i].text, &file, &error);

        fail_if(rc != rows[i].rc ||
                    (rows[i].named != NULL && strstr(error.text, rows[i].named) == NULL),
                "row %zu: %s: %s", i, muster_rc_name(rc), error.text);
        assert_null(strstr(error.text, "hush"));
        assert_true((file.root != NULL) == (rc == MUSTER_OK));
        muster_json_free(file.root);
    }
}

/* Each kind takes its own members from its file. */
static void a_workload_and_a_user_have_their_parts(void **state)
{
    struct muster_credentials_file file;
    struct muster_error error;

    (void)state;
    assert_int_equal(
        parse_file(
            EXTERNAL(
                "\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"f\",\"format\":"
                "{\"type\":\"json\",\"subject_token_field_name\":\"tok\"}},\"client_id\":\"c\","
                "\"client_secret\":\"s\",\"quota_project_id\":\"p\","
                "\"service_account_impersonation_url\":\"https://i/\","
                "\"service_account_impersonation\":{\"token_lifetime_seconds\":9}"),
            &file, &error),
        MUSTER_OK);
    assert_int_equal(file.kind, MUSTER_CREDENTIALS_EXTERNAL_ACCOUNT);
    assert_string_equal(file.audience, "a");
    assert_string_equal(file.subject_token_type, "t");
    assert_string_equal(file.subject_file, "f");
    assert_string_equal(file.subject_field, "tok");
    assert_string_equal(file.client_id, "c");
    assert_string_equal(file.client_secret, "s");
    assert_string_equal(file.project, "p");
    assert_string_equal(file.impersonation_url, "https://i/");
    assert_int_equal(file.impersonation_s, 9);
    muster_json_free(file.root);
    assert_int_equal(parse_file(USER, &file, &error), MUSTER_OK);
    assert_int_equal(file.kind, MUSTER_CREDENTIALS_AUTHORIZED_USER);
    assert_string_equal(file.client_id, "c");
    assert_string_equal(file.client_secret, "hush");
    assert_string_equal(file.refresh_token, "hush");
    assert_string_equal(file.token_url, "https://oauth2.googleapis.com/token");
    assert_null(file.impersonation_url);
    muster_json_free(file.root);
    assert_int_equal(parse_file(IMPERSONATED(",\"delegates\":[\"d\"]"), &file, &error), MUSTER_OK);
    assert_int_equal(muster_json_count(file.delegates), 1);
    muster_json_free(file.root);
    assert_int_equal(parse_file(IMPERSONATED(",\"delegates\":[]"), &file, &error), MUSTER_OK);
    assert_null(file.delegates);
    muster_json_free(file.root);
}

static void a_file_that_is_too_large_is_refused(void **state)
{
    struct muster_credentials_file file;
    struct muster_error error;
    char *text = malloc(MUSTER_CREDENTIALS_FILE_BYTES_MAX + 2);

    (void)state;
    assert_non_null(text);
    memset(text, ' ', MUSTER_CREDENTIALS_FILE_BYTES_MAX + 1);
    text[MUSTER_CREDENTIALS_FILE_BYTES_MAX + 1] = '\0';
    assert_int_equal(parse_file(text, &file, &error), MUSTER_RESOURCE_EXHAUSTED);
    memcpy(text, USER, strlen(USER));
    text[MUSTER_CREDENTIALS_FILE_BYTES_MAX] = '\0';
    assert_int_equal(parse_file(text, &file, &error), MUSTER_OK);
    muster_json_free(file.root);
    free(text);
}

static char text_of_nobody[] = "x";

static void a_subject_token_is_the_file_or_a_member_of_it(void **state)
{
    static const struct {
        const char *field, *text, *token; /* NULL token: refused */
    } rows[] = {
        {NULL, " abc \n", "abc"},      {NULL, " \n", NULL},       {"t", "{\"t\": \"x y\"}", "x y"},
        {"t", "{\"u\": \"x\"}", NULL}, {"t", "{\"t\": 1}", NULL}, {"t", "abc", NULL},
        {"t", "{\"t\": \"\"}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_credentials_file file = {.subject_field = rows[i].field};
        struct muster_json *root = (struct muster_json *)text_of_nobody; /* is set in any case */
        const char *token = NULL;
        char text[32];
        enum muster_rc rc;

        strcpy(text, rows[i].text);
        rc = muster_subject_token_read(&file, text, strlen(text), &root, &token, NULL);
        assert_int_equal(rc, rows[i].token != NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (rows[i].token != NULL)
            assert_string_equal(token, rows[i].token);
        assert_true((root != NULL) == (rc == MUSTER_OK && rows[i].field != NULL));
        muster_json_free(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_account_has_its_parts_and_a_default_server),
        cmocka_unit_test(an_impersonated_account_stands_on_its_source),
        cmocka_unit_test(what_is_missing_or_wrong_is_named),
        cmocka_unit_test(each_limit_has_a_last_value_that_is_good),
        cmocka_unit_test(a_workload_and_a_user_have_their_parts),
        cmocka_unit_test(a_file_that_is_too_large_is_refused),
        cmocka_unit_test(a_subject_token_is_the_file_or_a_member_of_it),
    };

    return cmocka_run_group_tests_name("credentials file", tests, NULL, NULL);
}
