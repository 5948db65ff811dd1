/* The version service of TPU workers (port 8475): which runtime runs, and which one shall run
 * (cloud_tpu_client's runtime_version and configure_tpu_version). All workers are asked side by
 * side; the first failure is the result, but every answer is awaited, because workers that have
 * taken a version cannot give it back. */
#include <string.h>

#include <muster/json.h>

#include "net/http/url.h"
#include "resolvers/platform/tpu/client.h"
#include "resolvers/spec/task_address.h"
#include "runtime/loop/deadline.h"
#include "runtime/value/text.h"

/* One worker's call. */
struct worker {
    struct muster_tpu_work *work;
    struct muster_http_call call;
    char *url;
    const char *host;
};

struct muster_tpu_workers {
    struct worker *list;
    size_t count;
    size_t open_count;
    enum muster_rc rc; /* the first failure */
    struct muster_task task;
    muster_tpu_work_fn *done;
};

static struct muster_mem *mem_of(const struct muster_tpu_work *work)
{
    return work->client->env->mem;
}

static void workers_free(struct muster_tpu_work *work)
{
    struct muster_tpu_workers *workers = work->workers;

    for (size_t i = 0; i < workers->count; i++) {
        muster_http_call_fini(&workers->list[i].call);
        muster_mem_free(mem_of(work), workers->list[i].url);
    }
    muster_mem_free(mem_of(work), workers->list);
    muster_mem_free(mem_of(work), workers);
    work->workers = NULL;
}

static void on_all(struct muster_task *task)
{
    struct muster_tpu_work *work = task->data;
    enum muster_rc rc = work->workers->rc;
    muster_tpu_work_fn *done = work->workers->done;

    workers_free(work);
    done(work, rc);
}

static void release_open(struct muster_tpu_work *work)
{
    MUSTER_ASSERT(work->workers->open_count > 0);
    if (--work->workers->open_count == 0)
        muster_task_post(&work->workers->task, work->client->env->loop);
}

/* Read {"currentVersion": "2.9.1"}. A worker without a version service (404), or without that
 * member, has no version. */
static enum muster_rc take_version(struct worker *worker)
{
    const struct muster_http_request *request = &worker->call.request;
    struct muster_tpu_query *query = worker->work->query;
    struct muster_json *root = NULL;
    struct muster_error bad;
    const char *version;
    enum muster_rc rc;

    if (request->status == 404)
        return MUSTER_OK;
    rc = muster_http_check(request, &bad);
    if (rc == MUSTER_OK)
        rc = muster_json_parse(request->answer, request->answer_bytes, &root, &bad);
    if (rc != MUSTER_OK)
        return muster_error_set(&query->error, rc, "TPU worker %.60s: %.150s", worker->host,
                                bad.text);
    version = muster_json_text(muster_json_member(root, "currentVersion"));
    if (version != NULL) {
        query->text = muster_mem_strdup(mem_of(worker->work), version);
        if (query->text == NULL)
            rc = muster_error_set(&query->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    }
    muster_json_free(root);
    return rc;
}

static enum muster_rc take_configured(struct worker *worker)
{
    const struct muster_http_request *request = &worker->call.request;
    struct muster_tpu_query *query = worker->work->query;
    struct muster_error bad;
    enum muster_rc rc = muster_http_check(request, &bad);

    if (request->status == 404)
        return muster_error_set(&query->error, MUSTER_NOT_FOUND,
                                "version '%.40s' is not on offer for Cloud TPU (worker %.60s); see "
                                "the list of supported TPU software versions",
                                query->version, worker->host);
    if (rc != MUSTER_OK)
        muster_error_set(&query->error, rc,
                         "TPU worker %.60s does not take version '%.40s': %.100s", worker->host,
                         query->version, bad.text);
    return rc;
}

static void on_worker(struct muster_http_call *call, enum muster_rc rc)
{
    struct worker *worker = call->data;
    struct muster_tpu_work *work = worker->work;
    struct muster_tpu_query *query = work->query;

    if (work->workers->rc == MUSTER_OK) {
        if (rc != MUSTER_OK)
            muster_error_set(&query->error, rc, "TPU worker %.60s: %.150s", worker->host,
                             call->request.error.text);
        else if (query->what == MUSTER_TPU_RUNTIME_VERSION)
            rc = take_version(worker);
        else
            rc = take_configured(worker);
        work->workers->rc = rc;
    }
    release_open(work);
}

static char *format_url(const struct muster_tpu_work *work,
                        const struct muster_tpu_endpoint *endpoint)
{
    const struct muster_tpu_query *query = work->query;
    char address[MUSTER_TPU_ADDRESS_BYTES], *text = NULL;
    struct muster_text url;

    if (!muster_task_address_format(endpoint->host, work->client->version_port, sizeof(address),
                                    address))
        return NULL;
    muster_text_init(&url, mem_of(work));
    muster_text_add_format(&url, "http://%s/requestversion", address);
    if (query->what == MUSTER_TPU_CONFIGURE_VERSION) {
        muster_text_add_string(&url, "/");
        muster_http_url_add_encoded(&url, query->version, "");
        muster_text_add_string(&url, query->is_restart_if_needed ? "?restartType=ifNeeded"
                                                                 : "?restartType=always");
    }
    if (muster_text_take(&url, &text, NULL) != MUSTER_OK)
        muster_text_fini(&url);
    return text;
}

/* A call that cannot start counts as one that has failed: the task posted by release_open reports
 * it, so `done` is never called inside muster_tpu_workers_start. */
static void start_worker(struct muster_tpu_work *work, struct worker *worker,
                         const struct muster_tpu_endpoint *endpoint)
{
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    worker->work = work;
    worker->host = endpoint->host;
    muster_http_call_init(&worker->call, worker);
    worker->url = format_url(work, endpoint);
    if (work->query->what == MUSTER_TPU_CONFIGURE_VERSION)
        worker->call.request.method = "POST";
    worker->call.request.url = worker->url;
    worker->call.request.source = "tpu worker";
    worker->call.request.is_direct = true;
    worker->call.request.deadline_ns =
        muster_deadline_inherit(work->client->env->loop, work->query->deadline_ns);
    work->workers->open_count++;
    if (worker->url != NULL)
        rc = muster_http_call_start(&worker->call, work->client->env, on_worker);
    if (rc == MUSTER_OK)
        return;
    if (work->workers->rc == MUSTER_OK) {
        work->workers->rc = rc;
        muster_error_set(&work->query->error, rc, "cannot ask TPU worker %.60s", worker->host);
    }
    release_open(work);
}

enum muster_rc muster_tpu_workers_start(struct muster_tpu_work *work, muster_tpu_work_fn *done)
{
    const struct muster_tpu_node *node = work->node;
    bool is_first_only = work->query->what == MUSTER_TPU_RUNTIME_VERSION;
    size_t count = is_first_only && node->endpoint_count > 1 ? 1 : node->endpoint_count;
    struct muster_tpu_workers *workers = muster_mem_alloc_zero(mem_of(work), 1, sizeof(*workers));

    if (workers != NULL)
        workers->list = muster_mem_alloc_zero(mem_of(work), count, sizeof(workers->list[0]));
    if (workers == NULL || workers->list == NULL) {
        muster_mem_free(mem_of(work), workers);
        return muster_error_set(&work->query->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    }
    work->workers = workers;
    workers->count = count;
    workers->done = done;
    workers->open_count = 1; /* this function */
    muster_task_init(&workers->task, on_all, work);
    for (size_t i = 0; i < count; i++)
        start_worker(work, &workers->list[i], &node->endpoints[i]);
    release_open(work);
    return MUSTER_OK;
}

void muster_tpu_workers_cancel(struct muster_tpu_work *work)
{
    for (size_t i = 0; work->workers != NULL && i < work->workers->count; i++)
        muster_http_call_cancel(&work->workers->list[i].call);
}
