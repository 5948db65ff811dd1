/* A query to a TPU, step by step: its project and zone, its node in the API, its workers. The kind
 * of query says which steps are needed (is_needed); each step ends in work_next. The API is Cloud
 * TPU's projects.locations.nodes.get. */
#include <stdio.h>
#include <string.h>

#include "net/http/failure.h"
#include "net/http/url.h"
#include "resolvers/platform/tpu/client.h"
#include "runtime/loop/deadline.h"
#include "runtime/value/text.h"

static const struct muster_http_remedies remedies = {
    .refused = "renew the credentials (gcloud auth application-default login)",
    .forbidden = "give this account roles/tpu.viewer",
    .missing = "is there such a TPU in this project and zone?",
    .untrusted = "renew it, or name its authority in SSL_CERT_FILE",
    .unreachable = "check the network and api_endpoint",
    .malformed = "is api_endpoint a Cloud TPU API?",
};

static struct muster_mem *mem_of(const struct muster_tpu_work *work)
{
    return work->client->env->mem;
}

static enum muster_rc no_memory(struct muster_tpu_work *work)
{
    return muster_error_set(&work->query->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
}

static void work_next(struct muster_tpu_work *work, enum muster_rc rc);

/* The end. */

static void on_done(struct muster_task *task)
{
    struct muster_tpu_query *query = task->data;
    struct muster_tpu_client *client = query->client;

    MUSTER_ASSERT(query->impl == NULL);
    muster_list_remove(&query->node_in_client);
    query->done(query, query->rc);
    muster_tpu_client_check_closed(client);
}

static void work_free(struct muster_tpu_work *work)
{
    muster_http_call_fini(&work->call);
    muster_metadata_get_fini(&work->metadata);
    muster_google_place_fini(&work->place);
    muster_tpu_node_unref(work->node);
    muster_mem_free(mem_of(work), work->resource_name);
    muster_mem_free(mem_of(work), work->url);
    muster_mem_free(mem_of(work), work);
}

/* The end of every query. `done` is called by a task, because the steps may all end inside
 * muster_tpu_query_start. */
static void work_finish(struct muster_tpu_work *work, enum muster_rc rc)
{
    struct muster_tpu_query *query = work->query;

    MUSTER_ASSERT(query->impl == work); /* each query ends exactly once */
    if (rc == MUSTER_OK && query->what == MUSTER_TPU_NODE) {
        query->node = work->node;
        work->node = NULL;
    }
    if (rc != MUSTER_OK) {
        muster_mem_free(mem_of(work), query->text);
        query->text = NULL;
        query->error.rc = rc;
    }
    query->rc = rc;
    query->impl = NULL;
    work_free(work);
    muster_task_post(&query->task, query->client->env->loop);
}

/* Project and zone. */

/* A project of a domain is "example.com:name": ':' and '.' stay as they are. */
static enum muster_rc name_resource(struct muster_tpu_work *work)
{
    struct muster_text name;
    enum muster_rc rc;

    muster_text_init(&name, mem_of(work));
    muster_text_add_string(&name, "projects/");
    muster_http_url_add_encoded(&name, work->place.project, ":.");
    muster_text_add_string(&name, "/locations/");
    muster_http_url_add_encoded(&name, work->place.zone, "");
    muster_text_add_string(&name, "/nodes/");
    muster_http_url_add_encoded(&name, work->client->target.node, "");
    rc = muster_text_take(&name, &work->resource_name, NULL);
    muster_text_fini(&name);
    return rc == MUSTER_OK ? MUSTER_OK : no_memory(work);
}

static void on_place(struct muster_google_place *place, enum muster_rc rc)
{
    struct muster_tpu_work *work = place->data;
    const char *missing = place->project == NULL ? "project" : "zone";

    if (rc == MUSTER_OK)
        rc = name_resource(work);
    else
        muster_error_set(&work->query->error, rc, "TPU %.60s: no %s is given, and %s",
                         work->client->target.name, missing, place->error.text);
    work_next(work, rc);
}

static void find_place(struct muster_tpu_work *work)
{
    muster_google_place_start(&work->place, work->query->deadline_ns, on_place);
}

/* The API. */

/* Check an answer of the API; an error names the TPU and a remedy. */
static enum muster_rc take_answer(struct muster_tpu_work *work, enum muster_rc rc, const char *what)
{
    struct muster_error error = work->call.request.error;

    if (rc == MUSTER_OK)
        rc = muster_http_check(&work->call.request, &error);
    if (rc != MUSTER_OK && work->call.is_token_missing) {
        work->query->error = error; /* it names the credentials and what helps */
    } else if (rc != MUSTER_OK) {
        muster_error_set(&work->query->error, rc, "TPU %.60s: %s: %s", work->client->target.name,
                         what, error.text);
        muster_http_failure_explain(&work->call, &remedies, &work->query->error);
    }
    return rc;
}

static void start_call(struct muster_tpu_work *work, const char *url, bool has_token,
                       muster_http_call_fn *done)
{
    enum muster_rc rc;

    work->call.request.url = url;
    work->call.request.source = "tpu";
    work->call.request.deadline_ns =
        muster_deadline_inherit(work->client->env->loop, work->query->deadline_ns);
    work->call.credentials = has_token ? work->client->credentials : NULL;
    rc = muster_http_call_start(&work->call, work->client->env, done);
    if (rc != MUSTER_OK)
        work_next(work, take_answer(work, rc, "cannot ask the API"));
}

static void on_document(struct muster_http_call *call, enum muster_rc rc)
{
    struct muster_tpu_work *work = call->data;
    struct muster_error error;

    rc = take_answer(work, rc, "no discovery document");
    if (rc == MUSTER_OK) {
        rc = muster_tpu_discovery_parse(mem_of(work), call->request.answer,
                                        call->request.answer_bytes, work->resource_name, &work->url,
                                        &error);
        if (rc != MUSTER_OK) {
            work->query->error = error;
            muster_http_failure_explain(call, &remedies, &work->query->error);
        }
    }
    work_next(work, rc);
}

/* Discovery documents are public: the token stays with the API, whatever host the URL names. */
static void fetch_discovery(struct muster_tpu_work *work)
{
    start_call(work, work->client->discovery_url, false, on_document);
}

/* A version can only be set on workers that the node lists (cloud_tpu_client's network_endpoints).
 * */
static enum muster_rc check_workers(struct muster_tpu_work *work)
{
    const struct muster_tpu_node *node = work->node;
    const char *name = work->client->target.name;
    enum muster_rc rc = muster_tpu_node_check(node, name, false, &work->query->error);

    if (rc == MUSTER_OK && node->endpoint_count == 0)
        return muster_error_set(&work->query->error, MUSTER_FAILED_PRECONDITION,
                                "TPU %.60s has no worker whose version could be set", name);
    return rc;
}

static void on_node(struct muster_http_call *call, enum muster_rc rc)
{
    struct muster_tpu_work *work = call->data;

    rc = take_answer(work, rc, "the API does not tell of it");
    if (rc == MUSTER_OK) {
        rc = muster_tpu_node_parse(mem_of(work), call->request.answer, call->request.answer_bytes,
                                   &work->node, &work->query->error);
        if (rc != MUSTER_OK)
            muster_http_failure_explain(call, &remedies, &work->query->error);
    }
    if (rc == MUSTER_OK && work->query->what == MUSTER_TPU_CONFIGURE_VERSION)
        rc = check_workers(work);
    work_next(work, rc);
}

static void on_ready_node(struct muster_task *task)
{
    struct muster_tpu_work *work = task->data;

    work_next(work, work->query->error.rc);
}

/* A node that has nothing but the addresses of the target. */
static enum muster_rc build_node(struct muster_tpu_work *work)
{
    struct muster_tpu_endpoint *endpoints = NULL;
    struct muster_tpu_node *node = NULL;
    size_t count = 0;
    enum muster_rc rc = muster_tpu_node_parse(mem_of(work), "{}", 2, &node, &work->query->error);

    if (rc == MUSTER_OK && work->client->target.kind == MUSTER_TPU_TARGET_ENDPOINTS) {
        rc = muster_tpu_endpoints_parse(mem_of(work), work->client->target.name, &endpoints, &count,
                                        &work->query->error);
        if (rc == MUSTER_OK) {
            muster_mem_free(mem_of(work), (void *)(uintptr_t)node->endpoints);
            node->endpoints = endpoints;
            node->endpoint_count = count;
        }
    }
    work->node = node;
    return rc;
}

static enum muster_rc format_url(struct muster_tpu_work *work)
{
    struct muster_text url;
    enum muster_rc rc;

    muster_text_init(&url, mem_of(work));
    muster_text_add_format(&url, "%s/%s/%s", work->client->api_endpoint, work->client->api_version,
                           work->resource_name);
    rc = muster_text_take(&url, &work->url, NULL);
    muster_text_fini(&url);
    return rc == MUSTER_OK ? MUSTER_OK : no_memory(work);
}

static void fetch_node(struct muster_tpu_work *work)
{
    enum muster_rc rc = MUSTER_OK;

    if (!muster_tpu_client_has_api(work->client)) {
        work->query->error.rc = build_node(work);
        muster_task_init(&work->task, on_ready_node, work);
        muster_task_post(&work->task, work->client->env->loop);
        return;
    }
    if (work->url == NULL)
        rc = format_url(work);
    work->call.memory = work->query->is_watch ? &work->client->memory : NULL;
    if (rc == MUSTER_OK)
        start_call(work, work->url, true, on_node);
    else
        work_next(work, rc);
}

/* The node is known here: its endpoints are the workers. */
static void query_workers(struct muster_tpu_work *work)
{
    enum muster_rc rc = muster_tpu_workers_start(work, work_next);

    if (rc != MUSTER_OK)
        work_next(work, rc);
}

/* The address of this machine. */

static void on_local_ip(struct muster_metadata_get *get, enum muster_rc rc)
{
    struct muster_tpu_work *work = get->data;
    size_t length = rc == MUSTER_OK ? strcspn(get->text, " \t\r\n") : 0;

    if (rc != MUSTER_OK)
        work->query->error = get->error;
    else if (length == 0)
        rc = muster_error_set(&work->query->error, MUSTER_INVALID_ARGUMENT,
                              "the metadata server gives no address of this machine");
    if (rc == MUSTER_OK) {
        work->query->text = muster_mem_strndup(mem_of(work), get->text, length);
        rc = work->query->text != NULL ? MUSTER_OK : no_memory(work);
    }
    work_next(work, rc);
}

/* The coordinator's address must be one that the workers reach: the first interface's, in the
 * VPC. */
static void fetch_local_ip(struct muster_tpu_work *work)
{
    enum muster_rc rc = muster_metadata_get_start(&work->metadata, work->client->env,
                                                  "instance/network-interfaces/0/ip",
                                                  work->query->deadline_ns, on_local_ip);

    if (rc != MUSTER_OK) {
        work->query->error = work->metadata.error;
        work_next(work, rc);
    }
}

/* The steps. */

/* The version of a node with an API stands in the node itself; without one, the first worker is
 * asked (cloud_tpu_client's runtime_version). */
static bool is_needed(const struct muster_tpu_work *work, enum muster_tpu_step step)
{
    bool has_api = muster_tpu_client_has_api(work->client);
    bool is_version = work->query->what == MUSTER_TPU_RUNTIME_VERSION ||
                      work->query->what == MUSTER_TPU_CONFIGURE_VERSION;
    bool wants_node = is_version || work->query->what == MUSTER_TPU_NODE;

    switch (step) {
    case MUSTER_TPU_STEP_LOCATE:
        return has_api && (wants_node || work->query->what == MUSTER_TPU_RESOURCE_NAME);
    case MUSTER_TPU_STEP_DISCOVER:
        return has_api && wants_node && work->client->discovery_url != NULL;
    case MUSTER_TPU_STEP_NODE:
        return wants_node;
    case MUSTER_TPU_STEP_WORKERS:
        return work->query->what == MUSTER_TPU_CONFIGURE_VERSION ||
               (work->query->what == MUSTER_TPU_RUNTIME_VERSION && !has_api);
    case MUSTER_TPU_STEP_LOCAL_IP:
        return work->query->what == MUSTER_TPU_LOCAL_IP;
    case MUSTER_TPU_STEP_END:
        break;
    }
    return false;
}

/* The text that a query answers after its last step. */
static enum muster_rc take_text(struct muster_tpu_work *work)
{
    const char *text = NULL;

    if (work->query->what == MUSTER_TPU_RESOURCE_NAME)
        text = work->resource_name != NULL ? work->resource_name : work->client->target.name;
    else if (work->query->what == MUSTER_TPU_RUNTIME_VERSION &&
             muster_tpu_client_has_api(work->client))
        text = work->node->runtime_version;
    if (text == NULL)
        return MUSTER_OK;
    work->query->text = muster_mem_strdup(mem_of(work), text);
    return work->query->text != NULL ? MUSTER_OK : no_memory(work);
}

/* Skip the steps that this query does not need, and start the next one. */
static void run_step(struct muster_tpu_work *work)
{
    static void (*const run[])(struct muster_tpu_work * work) = {
        [MUSTER_TPU_STEP_LOCATE] = find_place,       [MUSTER_TPU_STEP_DISCOVER] = fetch_discovery,
        [MUSTER_TPU_STEP_NODE] = fetch_node,         [MUSTER_TPU_STEP_WORKERS] = query_workers,
        [MUSTER_TPU_STEP_LOCAL_IP] = fetch_local_ip,
    };

    while (work->step < MUSTER_TPU_STEP_END && !is_needed(work, work->step))
        work->step++;
    if (work->step == MUSTER_TPU_STEP_END)
        work_finish(work, take_text(work));
    else
        run[work->step](work);
}

/* A step has ended: go on, or end the query. */
static void work_next(struct muster_tpu_work *work, enum muster_rc rc)
{
    if (rc == MUSTER_OK && work->query->is_cancelled)
        rc = muster_error_set(&work->query->error, MUSTER_CANCELLED, "cancelled");
    if (rc != MUSTER_OK) {
        work_finish(work, rc);
        return;
    }
    work->step++;
    run_step(work);
}

enum muster_rc muster_tpu_query_start(struct muster_tpu_query *query,
                                      struct muster_tpu_client *client, muster_tpu_query_fn *done)
{
    struct muster_tpu_work *work;

    if (client->is_closed)
        return MUSTER_FAILED_PRECONDITION;
    if (muster_deadline_check(client->env, "muster_tpu_query_start", query->deadline_ns,
                              &query->error) != MUSTER_OK)
        return MUSTER_INVALID_ARGUMENT;
    work = muster_mem_alloc_zero(client->env->mem, 1, sizeof(*work));
    if (work == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (muster_google_place_init(&work->place, client->env, client->target.project,
                                 client->target.zone) != MUSTER_OK) {
        muster_mem_free(client->env->mem, work);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    query->client = client;
    query->done = done;
    query->node = NULL;
    query->text = NULL;
    query->error = (struct muster_error){.rc = MUSTER_OK};
    query->is_cancelled = false;
    query->impl = work;
    muster_task_init(&query->task, on_done, query);
    muster_list_append(&client->queries, &query->node_in_client);
    work->query = query;
    work->client = client;
    work->place.data = work;
    muster_metadata_get_init(&work->metadata, work);
    muster_http_call_init(&work->call, work);
    run_step(work);
    return MUSTER_OK;
}

/* One of the parts is open at most; the others ignore the cancellation, and work_next ends the
 * query if the open one had won. */
void muster_tpu_query_cancel(struct muster_tpu_query *query)
{
    struct muster_tpu_work *work = query->impl;

    query->is_cancelled = true;
    if (work == NULL)
        return;
    muster_google_place_cancel(&work->place);
    muster_metadata_get_cancel(&work->metadata);
    muster_http_call_cancel(&work->call);
    muster_tpu_workers_cancel(work);
}
