/* Credential files of Google's tools: what they say, as a value. Pure. */
#ifndef MUSTER_NET_CREDENTIALS_FILE_H
#define MUSTER_NET_CREDENTIALS_FILE_H

#include <muster/json.h>
#include <muster/status.h>

#define MUSTER_CREDENTIALS_FILE_BYTES_MAX (256u << 10)
#define MUSTER_DELEGATES_MAX              16u

enum muster_credentials_kind {
    MUSTER_CREDENTIALS_SERVICE_ACCOUNT,
    MUSTER_CREDENTIALS_AUTHORIZED_USER,
    MUSTER_CREDENTIALS_EXTERNAL_ACCOUNT,
};

/** Texts are borrowed from root. */
struct muster_credentials_file {
    struct muster_json *root; /* to be freed with muster_json_free */
    enum muster_credentials_kind kind;
    const char *token_url;
    const char *project; /* or NULL */
    /* service account */
    const char *client_email;
    const char *private_key;
    const char *private_key_id; /* or NULL */
    /* authorized user; id and secret also of an external account, or NULL there */
    const char *client_id;
    const char *client_secret;
    const char *refresh_token;
    /* external account */
    const char *audience;
    const char *subject_token_type;
    const char *subject_file;
    const char *subject_field; /* of a JSON file; NULL: the file is the token */
    /* any: the token is used to get one of another account; NULL: no */
    const char *impersonation_url;
    const struct muster_json *delegates; /* array of texts, or NULL */
    int64_t impersonation_s;
};

/**
 * Read the text of a file of type service_account, authorized_user, external_account or
 * impersonated_service_account.
 *
 * Errors:  INVALID_ARGUMENT names the member that is missing or wrong, never its value; UNIMPLEMENTED: another
 *          type, or an external account whose token comes from elsewhere than a file; RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_credentials_file_parse(
    const char *text, size_t size, struct muster_credentials_file *ret_file,
    struct muster_error *ret_error);

/** The token in the text of a subject file. Borrowed from text (which is cut) or *ret_root (to be freed).
 * Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_subject_token_read(
    const struct muster_credentials_file *file, char *text, size_t size,
    struct muster_json **ret_root, const char **ret_token, struct muster_error *ret_error);

#endif
