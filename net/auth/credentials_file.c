/* Credential files: which members each type needs, and where secrets may be sent
 * (google.aip.dev/auth). Pure: texts in, a value out; credentials_exchange.c acts on it. An error
 * names the member, never its value, which may be a secret. */
#include "net/auth/credentials_file.h"

#include <string.h>

#include "net/http/url.h"

#define TOKEN_URL_DEFAULT "https://oauth2.googleapis.com/token"
/* The lifetime of an impersonated token in seconds: Google's default is an hour, and 12 hours are
 * the most that it grants. */
#define IMPERSONATION_S     3600
#define IMPERSONATION_S_MAX 43200

/* The error names the member only: its value may be half of a secret. */
static enum muster_rc need_field(const struct muster_json *object, const char *name,
                                 const char **ret_text, struct muster_error *ret_error)
{
    const char *text = muster_json_text(muster_json_member(object, name));

    if (text == NULL || text[0] == '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%s\" must be a text that is not empty", name);
    *ret_text = text;
    return MUSTER_OK;
}

/* An empty text counts as missing, as templates leave them. */
static const char *may_have(const struct muster_json *object, const char *name)
{
    const char *text = muster_json_text(muster_json_member(object, name));

    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Secrets go by https, or would be readable on the way; plain http stays on this machine, for tests
 * and local proxies. */
static enum muster_rc check_url(const char *name, const char *text, struct muster_error *ret_error)
{
    static const char *const loopback[] = {"localhost", "127.0.0.1", "::1"};
    struct muster_http_url url;

    if (muster_http_url_parse(text, &url, NULL) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "\"%s\" is not an http url",
                                name);
    for (size_t i = 0; i < 3; i++)
        if (url.host_length == strlen(loopback[i]) &&
            memcmp(url.host, loopback[i], url.host_length) == 0)
            return MUSTER_OK;
    if (!url.is_https)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%s\" must be https: secrets are sent there", name);
    return MUSTER_OK;
}

/* A service account signs its own assertion (RFC 7523), so its file holds a private key. */
static enum muster_rc read_service_account(const struct muster_json *root,
                                           struct muster_credentials_file *file,
                                           struct muster_error *ret_error)
{
    enum muster_rc rc = need_field(root, "client_email", &file->client_email, ret_error);

    file->kind = MUSTER_CREDENTIALS_SERVICE_ACCOUNT;
    if (rc == MUSTER_OK)
        rc = need_field(root, "private_key", &file->private_key, ret_error);
    file->private_key_id = may_have(root, "private_key_id");
    file->project = may_have(root, "project_id");
    file->token_url = may_have(root, "token_uri");
    return rc;
}

/* A person has logged in with gcloud: the file holds the refresh token of that login (RFC 6749 6).
 */
static enum muster_rc read_authorized_user(const struct muster_json *root,
                                           struct muster_credentials_file *file,
                                           struct muster_error *ret_error)
{
    enum muster_rc rc = need_field(root, "client_id", &file->client_id, ret_error);

    file->kind = MUSTER_CREDENTIALS_AUTHORIZED_USER;
    if (rc == MUSTER_OK)
        rc = need_field(root, "client_secret", &file->client_secret, ret_error);
    if (rc == MUSTER_OK)
        rc = need_field(root, "refresh_token", &file->refresh_token, ret_error);
    file->project = may_have(root, "quota_project_id");
    file->token_url = may_have(root, "token_uri");
    return rc;
}

/* The subject token comes from a file here; a url, a program or AWS are other sources that the
 * format knows. */
static enum muster_rc read_source(const struct muster_json *source,
                                  struct muster_credentials_file *file,
                                  struct muster_error *ret_error)
{
    const struct muster_json *format = muster_json_member(source, "format");
    const char *type = may_have(format, "type");

    file->subject_file = may_have(source, "file");
    if (file->subject_file == NULL && muster_json_kind(source) == MUSTER_JSON_OBJECT)
        return muster_error_set(
            ret_error, MUSTER_UNIMPLEMENTED,
            "\"credential_source\" names no \"file\"; tokens from a url, a program "
            "or AWS are not built");
    if (file->subject_file == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"credential_source\" must be an object");
    if (type == NULL || strcmp(type, "text") == 0)
        return MUSTER_OK;
    if (strcmp(type, "json") != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the \"type\" of \"format\" must be text or json");
    return need_field(format, "subject_token_field_name", &file->subject_field, ret_error);
}

static enum muster_rc read_lifetime(const struct muster_json *value, int64_t *ret_s,
                                    struct muster_error *ret_error)
{
    int64_t seconds = muster_json_integer(value);

    if (muster_json_kind(value) == MUSTER_JSON_NULL)
        seconds = IMPERSONATION_S;
    if (seconds < 1 || seconds > IMPERSONATION_S_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"token_lifetime_seconds\" must be 1 to %d", IMPERSONATION_S_MAX);
    *ret_s = seconds;
    return MUSTER_OK;
}

/* A token of another party (a Kubernetes cluster, a CI system) is exchanged for one of Google's
 * (RFC 8693). */
static enum muster_rc read_external_account(const struct muster_json *root,
                                            struct muster_credentials_file *file,
                                            struct muster_error *ret_error)
{
    const struct muster_json *how = muster_json_member(root, "service_account_impersonation");
    enum muster_rc rc = need_field(root, "audience", &file->audience, ret_error);

    file->kind = MUSTER_CREDENTIALS_EXTERNAL_ACCOUNT;
    if (rc == MUSTER_OK)
        rc = need_field(root, "subject_token_type", &file->subject_token_type, ret_error);
    if (rc == MUSTER_OK)
        rc = need_field(root, "token_url", &file->token_url, ret_error);
    if (rc == MUSTER_OK)
        rc = read_source(muster_json_member(root, "credential_source"), file, ret_error);
    if (rc == MUSTER_OK)
        rc = read_lifetime(muster_json_member(how, "token_lifetime_seconds"),
                           &file->impersonation_s, ret_error);
    file->impersonation_url = may_have(root, "service_account_impersonation_url");
    file->client_id = may_have(root, "client_id");
    file->client_secret = may_have(root, "client_secret");
    file->project = may_have(root, "quota_project_id");
    return rc;
}

static enum muster_rc read_by_type(const struct muster_json *root,
                                   struct muster_credentials_file *file,
                                   struct muster_error *ret_error)
{
    const char *type = NULL;
    enum muster_rc rc = need_field(root, "type", &type, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (strcmp(type, "service_account") == 0)
        return read_service_account(root, file, ret_error);
    if (strcmp(type, "authorized_user") == 0)
        return read_authorized_user(root, file, ret_error);
    if (strcmp(type, "external_account") == 0)
        return read_external_account(root, file, ret_error);
    return muster_error_set(
        ret_error, MUSTER_UNIMPLEMENTED,
        "credentials of type \"%.40s\" are not built; service_account, "
        "authorized_user, external_account and impersonated_service_account are",
        type);
}

/* The file of the source, with the way from there to another account on top. One step only: chains
 * are what "delegates" is for. */
static enum muster_rc read_impersonated(const struct muster_json *root,
                                        struct muster_credentials_file *file,
                                        struct muster_error *ret_error)
{
    const struct muster_json *delegates = muster_json_member(root, "delegates");
    enum muster_rc rc =
        read_by_type(muster_json_member(root, "source_credentials"), file, ret_error);

    if (rc == MUSTER_OK && file->impersonation_url != NULL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "\"source_credentials\" impersonate somebody themselves");
    if (rc == MUSTER_OK)
        rc = need_field(root, "service_account_impersonation_url", &file->impersonation_url,
                        ret_error);
    if (rc == MUSTER_OK && (muster_json_count(delegates) > MUSTER_DELEGATES_MAX ||
                            (muster_json_kind(delegates) != MUSTER_JSON_NULL &&
                             muster_json_kind(delegates) != MUSTER_JSON_ARRAY)))
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "\"delegates\" must be a list of at most %u", MUSTER_DELEGATES_MAX);
    for (size_t i = 0; rc == MUSTER_OK && i < muster_json_count(delegates); i++)
        if (muster_json_text(muster_json_at(delegates, i)) == NULL)
            rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "\"delegates\" must hold texts only");
    file->delegates = muster_json_count(delegates) > 0 ? delegates : NULL;
    file->impersonation_s = IMPERSONATION_S;
    return rc;
}

static enum muster_rc read_any(const struct muster_json *root, struct muster_credentials_file *file,
                               struct muster_error *ret_error)
{
    const char *type = may_have(root, "type");
    bool is_impersonated = type != NULL && strcmp(type, "impersonated_service_account") == 0;
    enum muster_rc rc = is_impersonated ? read_impersonated(root, file, ret_error)
                                        : read_by_type(root, file, ret_error);

    /* Google's own tools leave it out of some files. */
    if (rc == MUSTER_OK && file->token_url == NULL)
        file->token_url = TOKEN_URL_DEFAULT;
    if (rc == MUSTER_OK)
        rc = check_url("token_uri", file->token_url, ret_error);
    if (rc == MUSTER_OK && file->impersonation_url != NULL)
        rc = check_url("service_account_impersonation_url", file->impersonation_url, ret_error);
    return rc;
}

enum muster_rc muster_credentials_file_parse(const char *text, size_t size,
                                             struct muster_credentials_file *ret_file,
                                             struct muster_error *ret_error)
{
    struct muster_credentials_file file = {.root = NULL};
    enum muster_rc rc;

    if (size > MUSTER_CREDENTIALS_FILE_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "it must be at most %u bytes, got %zu",
                                MUSTER_CREDENTIALS_FILE_BYTES_MAX, size);
    rc = muster_json_parse(text, size, &file.root, ret_error);
    if (rc == MUSTER_OK && muster_json_kind(file.root) != MUSTER_JSON_OBJECT)
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "it must be a JSON object");
    if (rc == MUSTER_OK)
        rc = read_any(file.root, &file, ret_error);
    if (rc != MUSTER_OK) {
        muster_json_free(file.root);
        return rc;
    }
    *ret_file = file;
    return MUSTER_OK;
}

enum muster_rc muster_subject_token_read(const struct muster_credentials_file *file, char *text,
                                         size_t size, struct muster_json **ret_root,
                                         const char **ret_token, struct muster_error *ret_error)
{
    const char *token = text + strspn(text, " \t\r\n");

    *ret_root = NULL;
    if (file->subject_field == NULL) {
        /* The whole file is the token; editors and shells put a line feed after it. */
        while (size > 0 && strchr(" \t\r\n", text[size - 1]) != NULL)
            text[--size] = '\0';
    } else {
        if (muster_json_parse(text, size, ret_root, NULL) != MUSTER_OK)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "it must be JSON");
        token = muster_json_text(muster_json_member(*ret_root, file->subject_field));
    }
    if (token != NULL && token[0] != '\0') {
        *ret_token = token;
        return MUSTER_OK;
    }
    muster_json_free(*ret_root);
    *ret_root = NULL;
    if (file->subject_field == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "it must hold a token");
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "\"%.60s\" must be a text that is not empty", file->subject_field);
}
