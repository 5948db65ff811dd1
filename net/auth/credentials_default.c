/* Application Default Credentials (google.aip.dev/auth/4110): where to look, in order, and what to
 * say when nothing is there. The variable, then gcloud's own file, then the metadata server.
 * credentials_file.c reads what is found, credentials_exchange.c and credentials_metadata.c turn it
 * into tokens. */
#include "net/auth/credentials_exchange.h"
#include "net/http/credentials_internal.h"

#include <stdio.h>
#include <string.h>

#define VARIABLE       "GOOGLE_APPLICATION_CREDENTIALS"
#define FILE_NAME      "application_default_credentials.json"
#define PATH_BYTES_MAX 4096

static enum muster_rc open_file(struct muster_env *env, const char *path, const char *origin,
                                const struct muster_credentials_options *options,
                                struct muster_credentials **ret_credentials,
                                struct muster_error *ret_error)
{
    struct muster_credentials_file file = {.root = NULL};
    struct muster_error detail = {.text = ""};
    char *text = NULL;
    size_t bytes = 0;
    enum muster_rc rc = muster_files_read(env->files, env->mem, path,
                                          MUSTER_CREDENTIALS_FILE_BYTES_MAX, &text, &bytes);

    if (rc != MUSTER_OK)
        return muster_error_set(
            ret_error, rc, "credentials file %.100s%s: %s; name one that can be read%s", path,
            origin, muster_rc_text(rc), origin[0] != '\0' ? ", or unset the variable" : "");
    rc = muster_credentials_file_parse(text, bytes, &file, &detail);
    /* The file holds secrets; memory that is freed may be read by whoever gets it next. */
    explicit_bzero(text, bytes);
    muster_mem_free(env->mem, text);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "credentials file %.80s%s: %s", path, origin,
                                detail.text);
    rc = muster_credentials_exchange_open(env, path, origin, &file, options, ret_credentials);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "credentials: no memory");
    return MUSTER_OK;
}

enum muster_rc muster_credentials_file_open(struct muster_env *env, const char *path,
                                            const struct muster_credentials_options *options,
                                            struct muster_credentials **ret_credentials,
                                            struct muster_error *ret_error)
{
    return open_file(env, path, "", options, ret_credentials, ret_error);
}

/* False: there is no home directory to look in. */
static bool find_gcloud_path(struct muster_env *env, char *path, size_t room)
{
    const char *config = muster_vars_get(env->vars, "CLOUDSDK_CONFIG");
    const char *home = muster_vars_get(env->vars, "HOME");
    int count = -1;

    if (config != NULL && config[0] != '\0')
        count = snprintf(path, room, "%s/%s", config, FILE_NAME);
    else if (home != NULL && home[0] != '\0')
        count = snprintf(path, room, "%s/.config/gcloud/%s", home, FILE_NAME);
    return count > 0 && (size_t)count < room;
}

enum muster_rc muster_credentials_default_open(struct muster_env *env,
                                               const struct muster_credentials_options *options,
                                               struct muster_credentials **ret_credentials,
                                               struct muster_error *ret_error)
{
    const char *named = muster_vars_get(env->vars, VARIABLE);
    struct muster_error error;
    char path[PATH_BYTES_MAX];
    enum muster_rc rc;

    if (named != NULL && named[0] != '\0')
        /* A named file that cannot be used is an error: falling back would act as somebody else
         * than the user meant. */
        return open_file(env, named, " (" VARIABLE ")", options, ret_credentials, ret_error);
    if (find_gcloud_path(env, path, sizeof(path))) {
        rc = open_file(env, path, "", options, ret_credentials, &error);
        if (rc != MUSTER_OK && rc != MUSTER_NOT_FOUND && ret_error != NULL)
            *ret_error = error;
        /* A file that is not there is passed over, a broken one is not. */
        if (rc != MUSTER_NOT_FOUND)
            return rc;
    }
    rc = muster_credentials_metadata_open(env, ret_credentials, ret_error);
    if (rc == MUSTER_OK)
        /* Only a request can tell whether there is a metadata server; its failure then says where
         * else credentials could come from. */
        (*ret_credentials)->is_last_resort = true;
    return rc;
}
