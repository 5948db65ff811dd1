/* List pods part by part and page by page, then build a cluster of them. A part is one selector of
 * one job; the tasks of a job are the pods of its selectors, one selector after the other. The list
 * fails as a whole while any pod is not Running, as TensorFlow's KubernetesClusterResolver does: a
 * cluster with holes would number its tasks differently on each member. */
#include "resolvers/platform/kubernetes/list.h"

#include <string.h>

#include "net/http/failure.h"
#include "resolvers/spec/task_address.h"
#include "runtime/value/array.h"
#include "runtime/loop/deadline.h"

/* A continue mark lives about 5 minutes, so one restart is rare; a server that needs more of them,
 * or that gives marks without end, is broken and must not keep us. Both count for one part. */
#define RESTARTS_MAX 3
#define PAGES_MAX    1000

static const struct muster_http_remedies remedies = {
    .refused = "renew the token of the kubeconfig or service account",
    .forbidden = "let this account list pods (kubectl auth can-i list pods)",
    .missing = "is this the address of a Kubernetes API server?",
    .untrusted = "mend the server's certificate, or name its authority (ca_file, "
                 "certificate-authority)",
    .unreachable = "is the API server up, and its address right?",
    .malformed = "is this the address of a Kubernetes API server?",
};

static struct muster_env *env_of(const struct muster_kubernetes_list *list)
{
    return list->options.server->env;
}

static void list_finish(struct muster_kubernetes_list *list, enum muster_rc rc)
{
    struct muster_mem *mem = env_of(list)->mem;

    muster_http_call_fini(&list->call);
    muster_kubernetes_pods_fini(&list->pods);
    muster_mem_free(mem, list->places);
    muster_mem_free(mem, list->url);
    list->places = NULL;
    list->url = NULL;
    list->done(list, rc);
}

static enum muster_rc no_memory(struct muster_kubernetes_list *list)
{
    return muster_error_set(&list->error, MUSTER_RESOURCE_EXHAUSTED,
                            "no memory for a list of pods");
}

static void on_page(struct muster_http_call *call, enum muster_rc rc);

/* Ask for the next page of the part: the continue mark is empty for the first one. */
static enum muster_rc request_page(struct muster_kubernetes_list *list)
{
    struct muster_kubernetes_query query = {.selector = list->options.parts[list->part].selector,
                                            .continue_mark = list->pods.continue_mark};

    muster_mem_free(env_of(list)->mem, list->url);
    list->url = muster_kubernetes_url_format(list->options.server, &query);
    if (list->url == NULL)
        return no_memory(list);
    muster_kubernetes_call_prepare(list->options.server, &list->call);
    list->call.request.url = list->url;
    list->call.request.deadline_ns =
        muster_deadline_inherit(env_of(list)->loop, list->options.deadline_ns);
    list->error = (struct muster_error){.rc = MUSTER_OK};
    if (muster_http_call_start(&list->call, env_of(list), on_page) != MUSTER_OK) {
        list->error = list->call.request.error;
        if (list->error.rc == MUSTER_OK)
            muster_error_set(&list->error, MUSTER_FAILED_PRECONDITION, "cannot ask %.120s",
                             list->options.server->base_url);
        return list->error.rc;
    }
    return MUSTER_OK;
}

static struct muster_kubernetes_place *new_place(struct muster_kubernetes_list *list)
{
    struct muster_kubernetes_place *places =
        muster_array_reserve(env_of(list)->mem, list->places, list->place_count,
                             &list->place_capacity, sizeof(places[0]));

    if (places == NULL)
        return NULL;
    list->places = places;
    return &places[list->place_count++];
}

/* TensorFlow takes status.hostIP, because its pods use the host's network; podIP is for those that
 * have their own. */
static enum muster_rc take_pod(struct muster_kubernetes_list *list,
                               const struct muster_kubernetes_pod *pod)
{
    bool is_host = list->options.address == MUSTER_KUBERNETES_HOST_IP;
    const char *ip = is_host ? pod->host_ip : pod->pod_ip;
    struct muster_kubernetes_place *place;

    if (strcmp(pod->phase, "Running") != 0)
        return muster_error_set(&list->error, MUSTER_FAILED_PRECONDITION,
                                "pod '%.63s' (namespace '%.40s') is in phase '%.20s', not Running; "
                                "wait until all pods of '%.60s' run",
                                pod->name, pod->name_space, pod->phase,
                                list->options.parts[list->part].selector);
    if (ip[0] == '\0')
        return muster_error_set(&list->error, MUSTER_FAILED_PRECONDITION,
                                "pod '%.63s' (namespace '%.40s') has no status.%s yet", pod->name,
                                pod->name_space, is_host ? "hostIP" : "podIP");
    place = new_place(list);
    if (place == NULL)
        return no_memory(list);
    place->part = list->part;
    if (!muster_task_address_format(ip, list->options.port, sizeof(place->address), place->address))
        return muster_error_set(&list->error, MUSTER_INVALID_ARGUMENT,
                                "pod '%.63s' has an address that is malformed: '%.60s'", pod->name,
                                ip);
    return MUSTER_OK;
}

/* Parts of one job stand together, so the index goes on from one part to the next of the job. A
 * job whose selectors match no pod stays, without tasks, as in TensorFlow. */
static enum muster_rc build_cluster(struct muster_kubernetes_list *list)
{
    const struct muster_kubernetes_part *parts = list->options.parts;
    struct muster_cluster_spec_builder builder;
    size_t at = 0;
    int32_t index = 0;
    enum muster_rc rc;

    muster_cluster_spec_builder_init(&builder, env_of(list)->mem, false);
    for (size_t part = 0; part < list->options.part_count; part++) {
        if (part == 0 || strcmp(parts[part].job, parts[part - 1].job) != 0) {
            muster_cluster_spec_builder_add_job(&builder, parts[part].job);
            index = 0;
        }
        for (; at < list->place_count && list->places[at].part == part; at++)
            muster_cluster_spec_builder_add_task(&builder, index++, list->places[at].address);
    }
    rc = muster_cluster_spec_build(&builder, &list->cluster_spec);
    muster_cluster_spec_builder_fini(&builder);
    return rc == MUSTER_OK ? MUSTER_OK : no_memory(list);
}

/* The part is complete: pods become tasks in the order of their names, as in TensorFlow. */
static enum muster_rc take_part(struct muster_kubernetes_list *list)
{
    enum muster_rc rc = MUSTER_OK;

    muster_kubernetes_pods_sort(&list->pods);
    for (size_t i = 0; i < list->pods.count && rc == MUSTER_OK; i++)
        rc = take_pod(list, &list->pods.pods[i]);
    if (list->on_part != NULL)
        list->on_part(list, list->part, list->pods.resource_version);
    muster_kubernetes_pods_fini(&list->pods);
    list->restart_count = list->page_count = 0;
    list->part++;
    return rc;
}

/* Take one page. 410 Gone means that the continue mark has expired ("Retrieving large results sets
 * in chunks" of the API concepts): the pages read so far are of another version, so the part is
 * listed anew. *ret_is_whole: all parts are complete. */
static enum muster_rc take_page(struct muster_kubernetes_list *list, bool *ret_is_whole)
{
    const struct muster_http_request *request = &list->call.request;
    enum muster_rc rc = muster_http_check(request, &list->error);

    *ret_is_whole = false;
    if (rc == MUSTER_OUT_OF_RANGE && list->restart_count < RESTARTS_MAX) {
        list->restart_count++;
        list->page_count = 0;
        muster_kubernetes_pods_fini(&list->pods);
        return MUSTER_OK;
    }
    if (rc == MUSTER_OK)
        rc = muster_kubernetes_pods_add_page(&list->pods, request->answer, request->answer_bytes,
                                             &list->error);
    if (rc != MUSTER_OK) {
        muster_http_failure_explain(&list->call, &remedies, &list->error);
        return rc;
    }
    if (list->pods.count > MUSTER_KUBERNETES_PODS_MAX)
        return muster_error_set(&list->error, MUSTER_RESOURCE_EXHAUSTED,
                                "'%.80s' selects more than %d pods; name a narrower selector",
                                list->options.parts[list->part].selector,
                                MUSTER_KUBERNETES_PODS_MAX);
    if (list->pods.continue_mark[0] != '\0' && ++list->page_count < PAGES_MAX)
        return MUSTER_OK;
    if (list->pods.continue_mark[0] != '\0')
        return muster_error_set(
            &list->error, MUSTER_RESOURCE_EXHAUSTED,
            "'%.80s' gives pages without end (%d were read); is this the address "
            "of a Kubernetes API server?",
            list->options.parts[list->part].selector, PAGES_MAX);
    rc = take_part(list);
    *ret_is_whole = rc == MUSTER_OK && list->part == list->options.part_count;
    return rc;
}

static void on_page(struct muster_http_call *call, enum muster_rc rc)
{
    struct muster_kubernetes_list *list = call->data;
    bool is_whole = false;

    MUSTER_ASSERT(list->part < list->options.part_count);
    if (rc != MUSTER_OK) {
        list->error = call->request.error;
        muster_http_failure_explain(call, &remedies, &list->error);
    } else
        rc = take_page(list, &is_whole);
    if (rc == MUSTER_OK && is_whole)
        rc = build_cluster(list);
    else if (rc == MUSTER_OK)
        rc = request_page(list);
    if (rc != MUSTER_OK || is_whole)
        list_finish(list, rc);
}

enum muster_rc muster_kubernetes_list_start(struct muster_kubernetes_list *list,
                                            const struct muster_kubernetes_list_options *options,
                                            muster_kubernetes_list_fn *done)
{
    enum muster_rc rc;

    list->options = *options;
    list->done = done;
    list->cluster_spec = NULL;
    list->places = NULL;
    list->place_count = list->place_capacity = 0;
    list->part = 0;
    list->restart_count = list->page_count = 0;
    list->url = NULL;
    muster_http_call_init(&list->call, list);
    muster_kubernetes_pods_init(&list->pods, env_of(list)->mem);
    rc = request_page(list);
    if (rc != MUSTER_OK) {
        muster_http_call_fini(&list->call);
        muster_mem_free(env_of(list)->mem, list->url);
    }
    return rc;
}

void muster_kubernetes_list_cancel(struct muster_kubernetes_list *list)
{
    muster_http_call_cancel(&list->call);
}
