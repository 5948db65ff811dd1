/* Tokens that need no exchange: a given one, and one in a file that another process rotates (that
 * of a Kubernetes service account, which the kubelet renews). Both fetches end at once. */
#include "net/http/credentials_internal.h"

#include <stdio.h>
#include <string.h>

#define FILE_LIFE_NS (120 * MUSTER_NS_PER_S) /* half of it is fresh: read again each minute */

/* A fixed token. */

struct bearer {
    struct muster_credentials credentials;
    char *token;
};

static void bearer_fetch(struct muster_credentials *credentials, uint64_t deadline_ns)
{
    struct bearer *bearer = MUSTER_CONTAINER_OF(credentials, struct bearer, credentials);

    (void)deadline_ns;
    muster_credentials_fetched(credentials, bearer->token, MUSTER_TOKEN_FOREVER_NS);
}

static void bearer_free(struct muster_credentials *credentials)
{
    struct bearer *bearer = MUSTER_CONTAINER_OF(credentials, struct bearer, credentials);
    struct muster_mem *mem = credentials->env->mem;

    muster_credentials_fini(credentials);
    explicit_bzero(bearer->token, strlen(bearer->token));
    muster_mem_free(mem, bearer->token);
    muster_mem_free(mem, bearer);
}

enum muster_rc muster_credentials_bearer_open(struct muster_env *env, const char *token,
                                              struct muster_credentials **ret_credentials,
                                              struct muster_error *ret_error)
{
    static const struct muster_credentials_ops ops = {.fetch = bearer_fetch, .free = bearer_free};
    struct bearer *bearer;

    if (!muster_token_is_valid(token))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the bearer token must be 1 to %u visible ASCII characters without "
                                "blanks",
                                MUSTER_TOKEN_BYTES_MAX);
    bearer = muster_mem_alloc_zero(env->mem, 1, sizeof(*bearer));
    if (bearer != NULL)
        bearer->token = muster_mem_strdup(env->mem, token);
    if (bearer == NULL || bearer->token == NULL) {
        muster_mem_free(env->mem, bearer);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "bearer token: no memory");
    }
    muster_credentials_init(&bearer->credentials, env, &ops);
    snprintf(bearer->credentials.text, sizeof(bearer->credentials.text), "the given bearer token");
    *ret_credentials = &bearer->credentials;
    return MUSTER_OK;
}

/* A token in a file. */

struct token_file {
    struct muster_credentials credentials;
    char *path;
};

/* The file is read at each fetch, because another process writes it anew before its token ends. */
static void file_fetch(struct muster_credentials *credentials, uint64_t deadline_ns)
{
    struct token_file *file = MUSTER_CONTAINER_OF(credentials, struct token_file, credentials);
    struct muster_env *env = credentials->env;
    struct muster_error error = {.rc = MUSTER_OK};
    char *text = NULL;
    size_t bytes = 0;
    enum muster_rc rc =
        muster_files_read(env->files, env->mem, file->path, MUSTER_TOKEN_BYTES_MAX, &text, &bytes);

    (void)deadline_ns;
    if (rc != MUSTER_OK) {
        (void)muster_error_set(&error, rc, "%s: %s; is the service account mounted?",
                               credentials->text, muster_rc_text(rc));
        muster_credentials_failed(credentials, &error);
        return;
    }
    /* Editors and shells end a file with a line break, which is not part of the token. */
    while (bytes > 0 && (unsigned char)text[bytes - 1] <= ' ')
        text[--bytes] = '\0';
    muster_credentials_fetched(credentials, text + strspn(text, " \t\r\n"), FILE_LIFE_NS);
    explicit_bzero(text, bytes);
    muster_mem_free(env->mem, text);
}

static void file_free(struct muster_credentials *credentials)
{
    struct token_file *file = MUSTER_CONTAINER_OF(credentials, struct token_file, credentials);
    struct muster_mem *mem = credentials->env->mem;

    muster_credentials_fini(credentials);
    muster_mem_free(mem, file->path);
    muster_mem_free(mem, file);
}

enum muster_rc muster_credentials_token_file_open(struct muster_env *env, const char *path,
                                                  struct muster_credentials **ret_credentials,
                                                  struct muster_error *ret_error)
{
    static const struct muster_credentials_ops ops = {.fetch = file_fetch, .free = file_free};
    struct token_file *file = muster_mem_alloc_zero(env->mem, 1, sizeof(*file));

    if (file != NULL)
        file->path = muster_mem_strdup(env->mem, path);
    if (file == NULL || file->path == NULL) {
        muster_mem_free(env->mem, file);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "token file: no memory");
    }
    muster_credentials_init(&file->credentials, env, &ops);
    snprintf(file->credentials.text, sizeof(file->credentials.text), "token file %s", path);
    *ret_credentials = &file->credentials;
    return MUSTER_OK;
}
