/* Credential files, subject tokens and token servers' answers with any bytes in them. */
#include <stdlib.h>
#include <string.h>

#include "net/auth/credentials_file.h"
#include "net/http/credentials_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_subject(const char *text, size_t size, const char *field)
{
    struct muster_credentials_file file = {.subject_field = field};
    struct muster_json *root = NULL;
    const char *token = NULL;
    char *copy = strndup(text, size);

    if (copy == NULL)
        abort();
    if (muster_subject_token_read(&file, copy, strlen(copy), &root, &token, NULL) == MUSTER_OK &&
        token[0] == '\0')
        abort();
    muster_json_free(root);
    free(copy);
}

static void read_answer(const char *text, size_t size)
{
    struct muster_json *root = NULL;
    const char *token = NULL;
    uint64_t lifetime_ns = 0;

    if (muster_json_parse(text, size, &root, NULL) != MUSTER_OK)
        return;
    if (muster_token_answer_read(root, 0, &token, &lifetime_ns, NULL) == MUSTER_OK &&
        !muster_token_is_valid(token))
        abort();
    muster_json_free(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *text = (const char *)bytes;
    struct muster_credentials_file file = {.root = NULL};
    struct muster_error error = {.text = ""};

    if (muster_credentials_file_parse(text, size, &file, &error) == MUSTER_OK) {
        if (file.token_url == NULL)
            abort();
        muster_json_free(file.root);
    } else if (error.text[0] == '\0') {
        abort();
    }
    read_subject(text, size, NULL);
    read_subject(text, size, "token");
    read_answer(text, size);
    return 0;
}
