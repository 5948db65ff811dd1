/* Pods as tasks (TensorFlow's KubernetesClusterResolver): options, questions, watches. A question
 * is one listing (list.c); while somebody watches the resolver, each selector also has a stream of
 * events (watch.c) that asks for the next listing early. */
#include <muster/platforms.h>

#include <string.h>

#include "resolvers/core/cluster_answer.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/kubernetes/list.h"
#include "resolvers/platform/kubernetes/server.h"
#include "resolvers/platform/kubernetes/watch.h"
#include "resolvers/platform/schemes.h"

#define PARTS_MAX         256 /* each is a request per question, and a stream per watch */
#define WATCH_INTERVAL_NS (60 * MUSTER_NS_PER_S) /* the API server tells of changes in between */

struct kubernetes_resolver {
    struct muster_resolver resolver;
    struct muster_kubernetes_server server;
    struct muster_kubernetes_part *parts;
    struct muster_kubernetes_watch *watches; /* one for each part */
    size_t part_count;
    uint16_t port;
    enum muster_kubernetes_address address;
    size_t open_count; /* while it stops: watches and credentials that are not closed yet */
};

/* A question under way. */
struct kubernetes_question {
    struct muster_kubernetes_list list;
    struct muster_resolve *resolve;
};

static struct kubernetes_resolver *kubernetes_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct kubernetes_resolver, resolver);
}

/* Questions. */

/* A listing is the point from which its watch goes on: hand over the version at once, before the
 * other parts are listed, so that no change in between is lost. */
static void on_part(struct muster_kubernetes_list *list, size_t part, const char *resource_version)
{
    struct kubernetes_question *question = list->data;
    struct kubernetes_resolver *own = kubernetes_of(question->resolve->resolver);

    if (!own->resolver.is_closed)
        muster_kubernetes_watch_listed(&own->watches[part],
                                       resource_version != NULL ? resource_version : "");
}

static void on_list(struct muster_kubernetes_list *list, enum muster_rc rc)
{
    struct kubernetes_question *question = list->data;
    struct muster_resolve *resolve = question->resolve;

    if (rc == MUSTER_OK)
        rc = muster_resolve_answer_cluster(resolve, list->cluster_spec);
    else
        resolve->error = list->error;
    muster_resolve_end(resolve, rc);
}

static void kubernetes_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct kubernetes_resolver *own = kubernetes_of(resolver);
    struct muster_kubernetes_list_options options = {
        .server = &own->server,
        .parts = own->parts,
        .part_count = own->part_count,
        .port = own->port,
        .address = own->address,
        .deadline_ns = resolve->deadline_ns,
    };
    struct kubernetes_question *question;
    enum muster_rc rc;

    question = muster_resolve_begin(resolve, sizeof(*question));
    if (question == NULL)
        return;
    question->resolve = resolve;
    question->list.data = question;
    question->list.on_part = on_part;
    rc = muster_kubernetes_list_start(&question->list, &options, on_list);
    if (rc != MUSTER_OK) {
        resolve->error = question->list.error;
        muster_resolve_end(resolve, rc);
    }
}

static void kubernetes_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct kubernetes_question *question = resolve->impl;

    (void)resolver;
    if (question != NULL)
        muster_kubernetes_list_cancel(&question->list);
}

static const char *kubernetes_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    switch (fact) {
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_MASTER:
        return kubernetes_of(resolver)->server.source;
    case MUSTER_FACT_NUM_ACCELERATORS:
        return "devices of this process";
    case MUSTER_FACT_TASK_TYPE:
    case MUSTER_FACT_TASK_ID:
    case MUSTER_FACT_RPC_LAYER:
    case MUSTER_FACT_WORLD_SIZE:
        break;
    }
    return NULL;
}

/* Watches. */

static void on_change(struct muster_kubernetes_watch *watch)
{
    struct kubernetes_resolver *own = watch->data;

    muster_resolver_changed(&own->resolver);
}

/* Watches and credentials close at their own time; the last one of them stops the resolver. A watch
 * that goes off before the resolver stops (open_count is 0) counts for nothing. */
static void release_open(struct kubernetes_resolver *own)
{
    if (own->open_count > 0 && --own->open_count == 0)
        muster_resolver_stopped(&own->resolver);
}

static void on_off(struct muster_kubernetes_watch *watch)
{
    release_open(watch->data);
}

static void kubernetes_watched(struct muster_resolver *resolver, bool is_watched)
{
    struct kubernetes_resolver *own = kubernetes_of(resolver);

    for (size_t i = 0; i < own->part_count; i++) {
        if (is_watched)
            muster_kubernetes_watch_start(&own->watches[i]);
        else
            muster_kubernetes_watch_stop(&own->watches[i]);
    }
}

/* Opening and closing. */

static void on_credentials_closed(struct muster_credentials *credentials)
{
    struct kubernetes_resolver *own = muster_credentials_data(credentials);

    own->server.credentials = NULL;
    release_open(own);
}

static void kubernetes_stop(struct muster_resolver *resolver)
{
    struct kubernetes_resolver *own = kubernetes_of(resolver);

    own->open_count = 1; /* this function */
    for (size_t i = 0; i < own->part_count; i++) {
        own->open_count += own->watches[i].state != MUSTER_KUBERNETES_WATCH_OFF;
        muster_kubernetes_watch_stop(&own->watches[i]);
    }
    if (own->server.credentials != NULL) {
        own->open_count++;
        muster_credentials_set_data(own->server.credentials, own);
        muster_credentials_close(own->server.credentials, on_credentials_closed);
    }
    release_open(own);
}

static void own_free(struct kubernetes_resolver *own)
{
    struct muster_mem *mem = own->server.env->mem;

    for (size_t i = 0; i < own->part_count; i++)
        muster_kubernetes_watch_fini(&own->watches[i]);
    muster_kubernetes_server_fini(&own->server);
    muster_mem_free(mem, own->watches);
    muster_mem_free(mem, own->parts);
    muster_mem_free(mem, own);
}

static void kubernetes_close(struct muster_resolver *resolver)
{
    muster_resolver_fini(resolver);
    own_free(kubernetes_of(resolver));
}

static const struct muster_resolver_ops kubernetes_ops = {
    .name = "kubernetes",
    .start = kubernetes_start,
    .cancel = kubernetes_cancel,
    .source = kubernetes_source,
    .watched = kubernetes_watched,
    .stop = kubernetes_stop,
    .close = kubernetes_close,
    .watch_interval_ns = WATCH_INTERVAL_NS,
    .default_rpc_layer = "grpc",
};

/* Copy the selectors: parts and their texts share one block. The watches point to the texts, so
 * they are made last, and part_count is set last: own_free finishes as many watches as it says. */
static enum muster_rc copy_parts(struct kubernetes_resolver *own, struct muster_mem *mem,
                                 const struct muster_kubernetes_job *jobs, size_t job_count,
                                 struct muster_error *ret_error)
{
    size_t count = 0, text_bytes = 0, part = 0;
    char *at;

    for (size_t j = 0; j < job_count; j++) {
        count += jobs[j].selector_count;
        text_bytes += strlen(jobs[j].name) + 1;
        for (size_t s = 0; s < jobs[j].selector_count; s++)
            text_bytes += strlen(jobs[j].selectors[s]) + 1;
    }
    if (count == 0 || count > PARTS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a Kubernetes resolver must have 1 to %d label selectors, got %zu",
                                PARTS_MAX, count);
    own->parts = muster_mem_alloc(mem, count * sizeof(own->parts[0]) + text_bytes);
    own->watches = muster_mem_alloc_zero(mem, count, sizeof(own->watches[0]));
    if (own->parts == NULL || own->watches == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    at = (char *)(own->parts + count);
    for (size_t j = 0; j < job_count; j++) {
        const char *job = strcpy(at, jobs[j].name);

        at += strlen(at) + 1;
        for (size_t s = 0; s < jobs[j].selector_count; s++) {
            own->parts[part++] = (struct muster_kubernetes_part){
                .job = job, .selector = strcpy(at, jobs[j].selectors[s])};
            at += strlen(at) + 1;
        }
    }
    for (size_t i = 0; i < count; i++) {
        muster_kubernetes_watch_init(&own->watches[i], &own->server, own->parts[i].selector);
        own->watches[i].data = own;
        own->watches[i].on_change = on_change;
        own->watches[i].on_off = on_off;
    }
    own->part_count = count;
    return MUSTER_OK;
}

static enum muster_rc own_init(struct kubernetes_resolver *own, struct muster_env *env,
                               const struct muster_kubernetes_resolver_options *options,
                               struct muster_error *ret_error)
{
    static const char *const default_selectors[] = {MUSTER_KUBERNETES_SELECTOR};
    static const struct muster_kubernetes_job default_job = {"worker", default_selectors, 1};
    struct muster_resolver_options common = options->common;
    bool has_jobs = options->job_count > 0;
    enum muster_rc rc;

    own->server.env = env;
    own->port = options->port != 0 ? options->port : MUSTER_KUBERNETES_PORT;
    own->address = options->address;
    rc = copy_parts(own, env->mem, has_jobs ? options->jobs : &default_job,
                    has_jobs ? options->job_count : 1, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (common.environment == NULL)
        common.environment = "";
    rc = muster_resolver_init(&own->resolver, env, &kubernetes_ops, &common);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory");
    rc = muster_kubernetes_server_init(&own->server, env, options, ret_error);
    if (rc != MUSTER_OK)
        muster_resolver_fini(&own->resolver);
    return rc;
}

enum muster_rc muster_kubernetes_resolver_open(
    struct muster_env *env, const struct muster_kubernetes_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error)
{
    static const struct muster_kubernetes_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct kubernetes_resolver *own;
    enum muster_rc rc;

    if (options->location > MUSTER_KUBERNETES_OFF_CLUSTER)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "unknown location of the API server: within or off the cluster");
    own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));
    if (own == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    rc = own_init(own, env, options, ret_error);
    if (rc != MUSTER_OK) {
        own_free(own);
        return rc;
    }
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
}

/* "worker:job-name=a" as one more selector of its job, cut apart in place. Selectors of a job stand
 * together in one array, hence so must they in the text. */
static enum muster_rc add_selector(struct muster_kubernetes_job *jobs, size_t *job_count,
                                   const char **selectors, size_t *selector_count, char *text,
                                   struct muster_error *ret_error)
{
    char *colon = strchr(text, ':');
    struct muster_kubernetes_job *last = *job_count > 0 ? &jobs[*job_count - 1] : NULL;

    if (colon == NULL || colon == text || colon[1] == '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "selector '%.80s' is not of the form job:label=value", text);
    if (*selector_count == PARTS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "more than %d selectors",
                                PARTS_MAX);
    *colon = '\0';
    if (last == NULL || strcmp(last->name, text) != 0) {
        for (size_t j = 0; j < *job_count; j++) {
            if (strcmp(jobs[j].name, text) == 0)
                return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                        "the selectors of job '%.60s' must stand together", text);
        }
        last = &jobs[(*job_count)++];
        *last =
            (struct muster_kubernetes_job){.name = text, .selectors = &selectors[*selector_count]};
    }
    selectors[(*selector_count)++] = colon + 1;
    last->selector_count++;
    return MUSTER_OK;
}

/* "worker:job-name=a;worker:job-name=b;ps:job-name=c" */
static enum muster_rc parse_selectors(struct muster_mem *mem, char *text,
                                      struct muster_kubernetes_resolver_options *options,
                                      void **ret_block, struct muster_error *ret_error)
{
    struct block {
        struct muster_kubernetes_job jobs[PARTS_MAX];
        const char *selectors[PARTS_MAX];
    } *block = muster_mem_alloc_zero(mem, 1, sizeof(*block));
    size_t selector_count = 0;
    enum muster_rc rc = MUSTER_OK;
    char *rest = NULL;

    if (block == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    for (char *one = strtok_r(text, ";", &rest); one != NULL && rc == MUSTER_OK;
         one = strtok_r(NULL, ";", &rest))
        rc = add_selector(block->jobs, &options->job_count, block->selectors, &selector_count, one,
                          ret_error);
    options->jobs = block->jobs;
    *ret_block = block;
    return rc;
}

/* The options after "kubernetes:". */
struct kubernetes_uri_values {
    struct muster_kubernetes_resolver_options own;
    char *selector;
    const char *location;
    const char *address;
    int64_t port;
};

static enum muster_rc read_words(struct kubernetes_uri_values *values,
                                 struct muster_error *ret_error)
{
    const char *location = values->location, *address = values->address;

    if (strcmp(location, "within") == 0)
        values->own.location = MUSTER_KUBERNETES_WITHIN_CLUSTER;
    else if (strcmp(location, "off") == 0)
        values->own.location = MUSTER_KUBERNETES_OFF_CLUSTER;
    else if (strcmp(location, "auto") != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "kubernetes: location must be within, off or auto, got '%.40s'",
                                location);
    if (strcmp(address, "pod") == 0)
        values->own.address = MUSTER_KUBERNETES_POD_IP;
    else if (strcmp(address, "host") != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "kubernetes: address must be host or pod, got '%.40s'", address);
    values->own.port = (uint16_t)values->port;
    return MUSTER_OK;
}

#define TEXT_ROW(name, member)                                                                     \
    {                                                                                              \
        name, MUSTER_URI_TEXT, offsetof(struct kubernetes_uri_values, member), 0, 0                \
    }

enum muster_rc muster_kubernetes_resolver_open_uri(struct muster_env *env, const char *rest,
                                                   const struct muster_resolver_options *options,
                                                   struct muster_resolver **ret_resolver,
                                                   struct muster_error *ret_error)
{
    static const struct muster_uri_row rows[] = {
        TEXT_ROW("selector", selector),
        TEXT_ROW("location", location),
        TEXT_ROW("address", address),
        {"port", MUSTER_URI_NUMBER, offsetof(struct kubernetes_uri_values, port), 1, UINT16_MAX},
        TEXT_ROW("namespace", own.name_space),
        TEXT_ROW("kubeconfig", own.kubeconfig),
        TEXT_ROW("context", own.context),
        TEXT_ROW("api_server", own.api_server),
        TEXT_ROW("token_file", own.token_file),
        TEXT_ROW("ca_file", own.ca_file),
        MUSTER_URI_COMMON(struct kubernetes_uri_values, own.common),
    };
    static const struct muster_uri_table table = {"kubernetes", rows,
                                                  sizeof(rows) / sizeof(rows[0])};
    struct kubernetes_uri_values values = {.own = {.common = *options},
                                           .location = "auto",
                                           .address = "host",
                                           .port = MUSTER_KUBERNETES_PORT};
    struct muster_uri_options texts = {.mem = env->mem};
    void *block = NULL;
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);

    if (rc == MUSTER_OK)
        rc = read_words(&values, ret_error);
    if (rc == MUSTER_OK && values.selector != NULL)
        rc = parse_selectors(env->mem, values.selector, &values.own, &block, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_kubernetes_resolver_open(env, &values.own, ret_resolver, ret_error);
    muster_mem_free(env->mem, block);
    muster_uri_options_fini(&texts);
    return rc;
}
