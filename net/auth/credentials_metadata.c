/* The token that the metadata server gives to every program on the machine: no secret is needed,
 * only that the machine has an account. http_metadata.c asks; this file reads the answer and says
 * what to do when there is none. */
#include "net/http/credentials_internal.h"

#include <stdio.h>
#include <string.h>

#include "net/auth/http_metadata.h"

#define TOKEN_PATH "instance/service-accounts/default/token"

struct metadata_credentials {
    struct muster_credentials credentials;
    struct muster_metadata_get get;
};

/* The text says what failed, which server was asked, and where else a token may come from: away
 * from Google's machines this server is the last place that is tried, and the words then name the
 * others. */
static void explain_failure(const struct metadata_credentials *self, enum muster_rc rc,
                            const struct muster_error *why, struct muster_error *ret_error)
{
    const char *text = self->credentials.text;
    const char *cause = strstr(why->text, TOKEN_PATH ": ");

    /* The path is of no use to the reader, and the text has little room. */
    cause = cause != NULL ? cause + strlen(TOKEN_PATH ": ") : why->text;
    if (rc == MUSTER_NOT_FOUND)
        (void)muster_error_set(ret_error, rc,
                               "%s: this machine has no service account; attach one, or set "
                               "GOOGLE_APPLICATION_CREDENTIALS",
                               text);
    else if (self->credentials.is_last_resort &&
             (rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED))
        (void)muster_error_set(ret_error, rc,
                               "no credentials: GOOGLE_APPLICATION_CREDENTIALS is not set, gcloud "
                               "has none; run gcloud auth application-default login (%.50s: %.70s)",
                               text, cause);
    else
        (void)muster_error_set(ret_error, rc, "%s: %.110s; GCE_METADATA_HOST names the right one",
                               text, cause);
}

static void on_answer(struct muster_metadata_get *get, enum muster_rc rc)
{
    struct metadata_credentials *self = get->data;
    struct muster_env *env = self->credentials.env;
    struct muster_json *root = NULL;
    struct muster_error error = get->error, told;
    const char *token = NULL;
    uint64_t lifetime_ns = 0;

    if (rc == MUSTER_OK)
        rc = muster_json_parse(get->text, get->bytes, &root, &error);
    if (rc == MUSTER_OK)
        rc = muster_token_answer_read(root, muster_host_wall_ns(env->host), &token, &lifetime_ns,
                                      &error);
    if (rc == MUSTER_OK) {
        muster_credentials_fetched(&self->credentials, token, lifetime_ns);
    } else {
        explain_failure(self, rc, &error, &told);
        told.rc = rc;
        muster_credentials_failed(&self->credentials, &told);
    }
    muster_json_free(root);
}

static void metadata_fetch(struct muster_credentials *credentials, uint64_t deadline_ns)
{
    struct metadata_credentials *self =
        MUSTER_CONTAINER_OF(credentials, struct metadata_credentials, credentials);

    if (muster_metadata_get_start(&self->get, credentials->env, TOKEN_PATH, deadline_ns,
                                  on_answer) != MUSTER_OK)
        muster_credentials_failed(credentials, &self->get.error);
}

static void metadata_cancel(struct muster_credentials *credentials)
{
    struct metadata_credentials *self =
        MUSTER_CONTAINER_OF(credentials, struct metadata_credentials, credentials);

    muster_metadata_get_cancel(&self->get);
}

static void metadata_free(struct muster_credentials *credentials)
{
    struct metadata_credentials *self =
        MUSTER_CONTAINER_OF(credentials, struct metadata_credentials, credentials);
    struct muster_mem *mem = credentials->env->mem;

    muster_metadata_get_fini(&self->get);
    muster_credentials_fini(credentials);
    muster_mem_free(mem, self);
}

enum muster_rc muster_credentials_metadata_open(struct muster_env *env,
                                                struct muster_credentials **ret_credentials,
                                                struct muster_error *ret_error)
{
    static const struct muster_credentials_ops ops = {
        .fetch = metadata_fetch, .cancel = metadata_cancel, .free = metadata_free};
    struct metadata_credentials *self = muster_mem_alloc_zero(env->mem, 1, sizeof(*self));

    if (self == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "credentials: no memory");
    muster_credentials_init(&self->credentials, env, &ops);
    muster_metadata_get_init(&self->get, self);
    snprintf(self->credentials.text, sizeof(self->credentials.text), "metadata server %s",
             muster_metadata_host(env));
    *ret_credentials = &self->credentials;
    return MUSTER_OK;
}
