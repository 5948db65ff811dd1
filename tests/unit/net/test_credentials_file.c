/* Credential files as values: what is needed, what is refused, and that no error quotes a secret. */
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/credentials_file.h"

static enum muster_rc parse(const char *text, struct muster_credentials_file *file,
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
    assert_int_equal(parse("{\"type\":\"service_account\",\"client_email\":\"a@b\","
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
        parse("{\"type\":\"impersonated_service_account\",\"service_account_impersonation_url\":"
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
        {"[]", MUSTER_INVALID_ARGUMENT, "no JSON object"},
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
         MUSTER_INVALID_ARGUMENT, "\"token_uri\" is no http url"},
        {"{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"hush\"}",
         MUSTER_INVALID_ARGUMENT, "\"refresh_token\""},
        {EXTERNAL("\"token_url\":\"https://t/\""), MUSTER_INVALID_ARGUMENT,
         "\"credential_source\""},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"url\":\"http://x\"}"),
         MUSTER_UNIMPLEMENTED, "\"file\""},
        {EXTERNAL("\"token_url\":\"https://t/\",\"credential_source\":{\"file\":\"f\","
                  "\"format\":{\"type\":\"xml\"}}"),
         MUSTER_INVALID_ARGUMENT, "neither text nor json"},
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
        enum muster_rc rc = parse(rows[i].text, &file, &error);

        if (rc != rows[i].rc || strstr(error.text, rows[i].named) == NULL)
            fail_msg("row %zu: %s: %s", i, muster_rc_name(rc), error.text);
        assert_null(strstr(error.text, "hush"));
        assert_null(file.root);
    }
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
    assert_int_equal(parse(text, &file, &error), MUSTER_RESOURCE_EXHAUSTED);
    free(text);
}

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
        struct muster_json *root = NULL;
        const char *token = NULL;
        char text[32];
        enum muster_rc rc;

        strcpy(text, rows[i].text);
        rc = muster_subject_token_read(&file, text, strlen(text), &root, &token, NULL);
        assert_int_equal(rc, rows[i].token != NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (rows[i].token != NULL)
            assert_string_equal(token, rows[i].token);
        muster_json_free(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_account_has_its_parts_and_a_default_server),
        cmocka_unit_test(an_impersonated_account_stands_on_its_source),
        cmocka_unit_test(what_is_missing_or_wrong_is_named),
        cmocka_unit_test(a_file_that_is_too_large_is_refused),
        cmocka_unit_test(a_subject_token_is_the_file_or_a_member_of_it),
    };

    return cmocka_run_group_tests_name("credentials file", tests, NULL, NULL);
}
