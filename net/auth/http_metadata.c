/* Questions to the metadata server, one value each. credentials_metadata.c and the resolvers of
 * Google's platforms ask through it. It goes around proxies and follows no redirects: the server is
 * on the machine's own link, and its answers are trusted. */
#include "net/auth/http_metadata.h"

#include <string.h>

#include "runtime/loop/deadline.h"

#define HOST_DEFAULT  "metadata.google.internal"
#define FLAVOR_HEADER "Metadata-Flavor"
#define FLAVOR        "Google"

const char *muster_metadata_host(struct muster_env *env)
{
    /* The names that Google's own libraries know, in their order. */
    static const char *const names[] = {"GCE_METADATA_HOST", "GCE_METADATA_ROOT",
                                        "GCE_METADATA_IP"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = muster_vars_get(env->vars, names[i]);

        if (value != NULL && value[0] != '\0')
            return value;
    }
    return HOST_DEFAULT;
}

void muster_metadata_get_init(struct muster_metadata_get *get, void *data)
{
    *get = (struct muster_metadata_get){.data = data};
    muster_http_call_init(&get->call, get);
    get->call.retry.attempts_max = MUSTER_METADATA_TRIES;
    get->call.retry.attempt_timeout_ns = MUSTER_METADATA_TRY_NS;
    get->call.request.source = "metadata";
    /* A proxy or a redirect would carry the machine's token away from the machine. */
    get->call.request.is_direct = true;
    get->call.request.redirects_max = MUSTER_HTTP_REDIRECTS_NONE;
    get->call.request.response_bytes_max = MUSTER_METADATA_BYTES_MAX;
    get->header = (struct muster_http_header){.name = FLAVOR_HEADER, .value = FLAVOR};
}

void muster_metadata_get_fini(struct muster_metadata_get *get)
{
    struct muster_mem *mem = get->call.env != NULL ? get->call.env->mem : NULL;

    muster_http_call_fini(&get->call);
    if (mem != NULL)
        muster_mem_free(mem, get->url);
    get->url = NULL;
}

/* Something else may answer under that name: a captive portal, or a resolver that knows every name.
 * The real server sends the flavour back, which shows that it is one. */
static enum muster_rc check_answer(struct muster_metadata_get *get)
{
    const struct muster_http_request *request = &get->call.request;
    const char *flavor = muster_http_response_header(request, FLAVOR_HEADER);
    const char *host = muster_metadata_host(get->call.env);
    enum muster_rc rc;

    if (flavor == NULL || strcmp(flavor, FLAVOR) != 0)
        return muster_error_set(&get->error, MUSTER_UNAVAILABLE,
                                "%s is not a metadata server (status %d, lacks "
                                "Metadata-Flavor: Google); GCE_METADATA_HOST names the right one",
                                host, request->status);
    rc = muster_http_check(request, &get->error);
    if (rc != MUSTER_OK)
        return rc;
    get->text = request->answer;
    get->bytes = request->answer_bytes;
    return MUSTER_OK;
}

/* The usual reason is that this is not a machine of Google's at all, so the text says so. */
static void on_call(struct muster_http_call *call, enum muster_rc rc)
{
    struct muster_metadata_get *get = call->data;

    if (rc == MUSTER_OK)
        rc = check_answer(get);
    else if (rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED)
        (void)muster_error_set(
            &get->error, rc,
            "metadata server: %s; not on a Google machine? GCE_METADATA_HOST names "
            "another server",
            call->request.error.text);
    else
        get->error = call->request.error;
    get->done(get, rc);
}

enum muster_rc muster_metadata_get_start(struct muster_metadata_get *get, struct muster_env *env,
                                         const char *path, uint64_t deadline_ns,
                                         muster_metadata_get_fn *done)
{
    static const char prefix[] = "http://", middle[] = "/computeMetadata/v1/";
    const char *host = muster_metadata_host(env);
    size_t room = sizeof(prefix) + strlen(host) + sizeof(middle) + strlen(path);
    char *url = muster_mem_alloc(env->mem, room);
    enum muster_rc rc;

    MUSTER_ASSERT(get->call.state == MUSTER_HTTP_CALL_IDLE);
    if (url == NULL)
        return muster_error_set(&get->error, MUSTER_RESOURCE_EXHAUSTED, "metadata: no memory");
    (void)stpcpy(stpcpy(stpcpy(stpcpy(url, prefix), host), middle), path);
    muster_mem_free(env->mem, get->url);
    /* The old url was kept for the request before, which is over. */
    get->url = url;
    get->text = NULL;
    get->bytes = 0;
    get->error = (struct muster_error){.rc = MUSTER_OK};
    get->done = done;
    get->call.request.url = url;
    get->call.request.headers = &get->header;
    get->call.request.header_count = 1;
    get->call.request.deadline_ns = muster_deadline_inherit(env->loop, deadline_ns);
    get->call.env = env;
    rc = muster_http_call_start(&get->call, env, on_call);
    if (rc != MUSTER_OK)
        get->error = get->call.request.error;
    return rc;
}

void muster_metadata_get_cancel(struct muster_metadata_get *get)
{
    muster_http_call_cancel(&get->call);
}
