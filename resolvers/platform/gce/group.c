/* List a group page by page, look its instances up in parallel, sort their addresses. The steps are
 * those of TensorFlow's GCEClusterResolver: instanceGroups.listInstances names the instances, but
 * not their addresses, so instances.get follows for each of them (Compute Engine API v1). */
#include "resolvers/platform/gce/group.h"

#include <stdlib.h>
#include <string.h>

#include "net/http/failure.h"
#include "net/http/url.h"
#include "resolvers/spec/task_address.h"
#include "runtime/loop/deadline.h"
#include "runtime/value/text.h"

#define PAGES_MAX          1000       /* an API that repeats its token must not keep us for ever */
#define INSTANCE_BYTES_MAX (1u << 20) /* its metadata are at most 512 KiB */

/* Instances that are being created or stopped have no tasks. */
static const char list_body[] = "{\"instanceState\":\"RUNNING\"}";

static const struct muster_http_remedies remedies = {
    .refused = "renew the credentials (gcloud auth application-default login)",
    .forbidden = "give this account roles/compute.viewer",
    .missing = "is there such a group in this project and zone?",
    .untrusted = "renew it, or name its authority in SSL_CERT_FILE",
    .unreachable = "check the network and api_endpoint",
    .malformed = "is api_endpoint a Compute Engine API?",
};

static struct muster_mem *mem_of(const struct muster_gce_group *group)
{
    return group->options.env->mem;
}

/* Release all and report. Nothing may be open: a call that still runs would use freed memory. */
static void group_finish(struct muster_gce_group *group)
{
    MUSTER_ASSERT(group->open_count == 0);
    for (size_t i = 0; i < MUSTER_GCE_LOOKUPS_MAX; i++) {
        muster_http_call_fini(&group->lookups[i].call);
        muster_mem_free(mem_of(group), group->lookups[i].url);
    }
    muster_http_call_fini(&group->list);
    muster_google_place_fini(&group->place);
    muster_gce_instances_fini(&group->instances);
    muster_mem_free(mem_of(group), group->addresses);
    muster_mem_free(mem_of(group), group->url);
    group->done(group, group->rc);
}

/* Record the first failure and cancel all open look-ups: the group ends when the last of them has.
 * */
static void group_fail(struct muster_gce_group *group, enum muster_rc rc,
                       const struct muster_error *error)
{
    if (group->rc == MUSTER_OK) {
        group->rc = rc;
        group->error = *error;
    }
    for (size_t i = 0; i < MUSTER_GCE_LOOKUPS_MAX; i++)
        muster_http_call_cancel(&group->lookups[i].call);
    if (group->open_count == 0)
        group_finish(group);
}

static void group_fail_no_memory(struct muster_gce_group *group)
{
    struct muster_error error;
    enum muster_rc rc = muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory");

    group_fail(group, rc, &error);
}

/* "{endpoint}/compute/v1/projects/P/zones/Z/instances/NAME" and the like; gives, or NULL. A project
 * of a domain is "example.com:name": ':' and '.' stay as they are. The page token is "" once all
 * pages are read, so URLs of instances have none. */
static char *format_url(const struct muster_gce_group *group, const char *collection,
                        const char *name, const char *rest)
{
    struct muster_text url;
    char *text = NULL;

    muster_text_init(&url, mem_of(group));
    muster_text_add_string(&url, group->options.api_endpoint);
    muster_text_add_string(&url, "/compute/v1/projects/");
    muster_http_url_add_encoded(&url, group->place.project, ":.");
    muster_text_add_string(&url, "/zones/");
    muster_http_url_add_encoded(&url, group->place.zone, "");
    muster_text_add_format(&url, "/%s/", collection);
    muster_http_url_add_encoded(&url, name, "");
    muster_text_add_string(&url, rest);
    if (group->instances.page_token != NULL && group->instances.page_token[0] != '\0') {
        muster_text_add_string(&url, "&pageToken=");
        muster_http_url_add_encoded(&url, group->instances.page_token, "");
    }
    if (muster_text_take(&url, &text, NULL) != MUSTER_OK)
        muster_text_fini(&url);
    return text;
}

static void prepare_call(const struct muster_gce_group *group, struct muster_http_call *call)
{
    call->credentials = group->options.credentials;
    call->request.source = "gce";
    call->request.deadline_ns =
        muster_deadline_inherit(group->options.env->loop, group->options.deadline_ns);
}

/* Addresses. */

static int compare_addresses(const void *a, const void *b)
{
    const struct muster_gce_address *x = a, *y = b;

    return strcmp(x->text, y->text);
}

/* Tasks are numbered by their addresses sorted as text, as in TensorFlow's GCEClusterResolver:
 * 10.0.0.10 comes before 10.0.0.2, and every member finds the same order. */
static void build_cluster(struct muster_gce_group *group)
{
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    if (group->instances.count > 1)
        qsort(group->addresses, group->instances.count, sizeof(group->addresses[0]),
              compare_addresses);
    muster_cluster_spec_builder_init(&builder, mem_of(group), false);
    muster_cluster_spec_builder_add_job(&builder, group->options.job);
    for (size_t i = 0; i < group->instances.count; i++)
        muster_cluster_spec_builder_add_task(&builder, (int32_t)i, group->addresses[i].text);
    rc = muster_cluster_spec_build(&builder, &group->cluster_spec);
    muster_cluster_spec_builder_fini(&builder);
    if (rc != MUSTER_OK)
        group_fail_no_memory(group);
    else
        group_finish(group);
}

static void lookup_start_next(struct muster_gce_lookup *lookup);

static const struct muster_http_remedies instance_remedies = {
    .refused = "renew the credentials (gcloud auth application-default login)",
    .forbidden = "give this account roles/compute.viewer",
    .missing = "was the instance deleted meanwhile? ask again",
    .untrusted = "renew it, or name its authority in SSL_CERT_FILE",
    .unreachable = "check the network and api_endpoint",
    .malformed = "is api_endpoint a Compute Engine API?",
};

static enum muster_rc take_instance(struct muster_gce_lookup *lookup, struct muster_error *error)
{
    const struct muster_http_request *request = &lookup->call.request;
    struct muster_gce_address *address = &lookup->group->addresses[lookup->index];
    char ip[48];
    enum muster_rc rc = muster_http_check(request, error);

    if (rc == MUSTER_OK)
        rc = muster_gce_instance_ip(request->answer, request->answer_bytes, sizeof(ip), ip, error);
    if (rc == MUSTER_OK && !muster_task_address_format(ip, lookup->group->options.port,
                                                       sizeof(address->text), address->text))
        rc = muster_error_set(error, MUSTER_INVALID_ARGUMENT, "'%s' is not an address", ip);
    return rc;
}

static void on_instance(struct muster_http_call *call, enum muster_rc rc)
{
    struct muster_gce_lookup *lookup = call->data;
    struct muster_gce_group *group = lookup->group;
    struct muster_error error = {.rc = MUSTER_OK};

    MUSTER_ASSERT(group->open_count > 0);
    group->open_count--;
    if (rc != MUSTER_OK)
        error = call->request.error;
    else
        rc = take_instance(lookup, &error);
    if (rc != MUSTER_OK)
        muster_http_failure_explain(call, &instance_remedies, &error);
    if (rc != MUSTER_OK || group->rc != MUSTER_OK)
        group_fail(group, rc, &error);
    else if (group->next < group->instances.count)
        lookup_start_next(lookup);
    else if (group->open_count == 0)
        build_cluster(group);
}

static void lookup_start_next(struct muster_gce_lookup *lookup)
{
    struct muster_gce_group *group = lookup->group;
    enum muster_rc rc;

    MUSTER_ASSERT(group->next < group->instances.count);
    lookup->index = group->next++;
    muster_mem_free(mem_of(group), lookup->url);
    lookup->url = format_url(group, "instances", group->instances.names[lookup->index], "");
    if (lookup->url == NULL) {
        group_fail_no_memory(group);
        return;
    }
    prepare_call(group, &lookup->call);
    lookup->call.memory = group->options.memory;
    lookup->call.request.response_bytes_max = INSTANCE_BYTES_MAX;
    lookup->call.request.url = lookup->url;
    rc = muster_http_call_start(&lookup->call, group->options.env, on_instance);
    if (rc == MUSTER_OK)
        group->open_count++;
    else
        group_fail(group, rc, &lookup->call.request.error);
}

/* Each look-up starts the next one when it ends (on_instance), so as many run at a time as are
 * started here. */
static void lookups_start(struct muster_gce_group *group)
{
    size_t count = group->instances.count;

    group->addresses = muster_mem_alloc_zero(mem_of(group), count, sizeof(group->addresses[0]));
    if (group->addresses == NULL) {
        group_fail_no_memory(group);
        return;
    }
    if (count == 0) {
        build_cluster(group);
        return;
    }
    group->open_count++; /* held by this loop: a failure inside it must not free the group */
    for (size_t i = 0; i < MUSTER_GCE_LOOKUPS_MAX && i < count && group->rc == MUSTER_OK; i++)
        lookup_start_next(&group->lookups[i]);
    group->open_count--;
    if (group->open_count == 0)
        group_finish(group);
}

/* Pages. */

static void request_page(struct muster_gce_group *group);

static void on_page(struct muster_http_call *call, enum muster_rc rc)
{
    struct muster_gce_group *group = call->data;
    struct muster_error error = {.rc = MUSTER_OK};

    if (rc != MUSTER_OK)
        error = call->request.error;
    else
        rc = muster_http_check(&call->request, &error);
    if (rc == MUSTER_OK)
        rc = muster_gce_instances_add_page(&group->instances, call->request.answer,
                                           call->request.answer_bytes, &error);
    if (rc != MUSTER_OK)
        muster_http_failure_explain(call, &remedies, &error);
    if (rc == MUSTER_OK && group->instances.page_token[0] != '\0' &&
        ++group->page_count == PAGES_MAX)
        rc = muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                              "instance group '%.63s' gives pages without end (%d were read); is "
                              "api_endpoint a Compute Engine API?",
                              group->options.instance_group, PAGES_MAX);
    if (rc != MUSTER_OK)
        group_fail(group, rc, &error);
    else if (group->instances.page_token[0] != '\0')
        request_page(group);
    else
        lookups_start(group);
}

static void request_page(struct muster_gce_group *group)
{
    static const struct muster_http_header headers[] = {{"Content-Type", "application/json"}};
    enum muster_rc rc;

    muster_mem_free(mem_of(group), group->url);
    group->url = format_url(group, "instanceGroups", group->options.instance_group,
                            "/listInstances?orderBy=name");
    if (group->url == NULL) {
        group_fail_no_memory(group);
        return;
    }
    prepare_call(group, &group->list);
    group->list.is_idempotent = true; /* a POST that only lists: it may be retried */
    group->list.request.method = "POST";
    group->list.request.url = group->url;
    group->list.request.headers = headers;
    group->list.request.header_count = sizeof(headers) / sizeof(headers[0]);
    group->list.request.body = list_body;
    group->list.request.body_bytes = sizeof(list_body) - 1;
    rc = muster_http_call_start(&group->list, group->options.env, on_page);
    if (rc != MUSTER_OK)
        group_fail(group, rc, &group->list.request.error);
}

static void on_place(struct muster_google_place *place, enum muster_rc rc)
{
    struct muster_gce_group *group = place->data;
    struct muster_error error;

    if (rc == MUSTER_OK && group->is_cancelled)
        rc = muster_error_set(&place->error, MUSTER_CANCELLED, "cancelled");
    if (rc != MUSTER_OK) {
        muster_error_set(&error, rc, "no %s= is given, and %s",
                         place->project == NULL ? "project" : "zone", place->error.text);
        group_fail(group, rc, &error);
    } else {
        request_page(group);
    }
}

enum muster_rc muster_gce_group_start(struct muster_gce_group *group,
                                      const struct muster_gce_group_options *options,
                                      muster_gce_group_fn *done)
{
    enum muster_rc rc;

    group->options = *options;
    group->done = done;
    group->cluster_spec = NULL;
    group->addresses = NULL;
    group->url = NULL;
    group->next = group->open_count = 0;
    group->page_count = 0;
    group->is_cancelled = false;
    group->rc = MUSTER_OK;
    rc = muster_google_place_init(&group->place, options->env, options->project, options->zone);
    if (rc != MUSTER_OK)
        return muster_error_set(&group->error, rc, "no memory");
    group->place.data = group;
    muster_gce_instances_init(&group->instances, options->env->mem);
    muster_http_call_init(&group->list, group);
    for (size_t i = 0; i < MUSTER_GCE_LOOKUPS_MAX; i++) {
        group->lookups[i] = (struct muster_gce_lookup){.group = group};
        muster_http_call_init(&group->lookups[i].call, &group->lookups[i]);
    }
    muster_google_place_start(&group->place, options->deadline_ns, on_place);
    return MUSTER_OK;
}

void muster_gce_group_cancel(struct muster_gce_group *group)
{
    group->is_cancelled = true;
    muster_google_place_cancel(&group->place);
    muster_http_call_cancel(&group->list);
    for (size_t i = 0; i < MUSTER_GCE_LOOKUPS_MAX; i++)
        muster_http_call_cancel(&group->lookups[i].call);
}
