/* A job queue over gRPC: jobs and results are in a registry, so servers may come, go and be killed;
 * what a server has taken is under its lease.
 *
 * job_queue --registry HOST:PORT[,HOST:PORT…] [--listen HOST:PORT]; prints "listening HOST:PORT". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job_queue.muster.h"
#include "job_store.h"
#include "serving.h"

#define CONTENT_BYTES_MAX                                                                          \
    (1u << 20) /* of a payload or a result: a registry takes 1.5 MiB at once */
#define CONTENT_TOO_LARGE "a payload or a result has at most 1 MiB"

struct queue {
    struct serving serving;
    struct job_store store;
    struct muster_list workers;
    struct muster_list waiters;
};

/* One Work stream. Lives until its call is over and its job is settled. */
struct worker {
    struct muster_list node;
    struct queue *queue;
    struct muster_rpc *rpc; /* NULL: gone */
    bool is_asking;         /* wants a job */
    bool is_busy;           /* an operation is under way */
    char *job;              /* the id of what it has; NULL: nothing */
    struct job_op op;
};

/* One Submit, Wait or Forget. */
struct request {
    struct muster_list node; /* of waiters */
    struct queue *queue;
    struct muster_rpc *rpc; /* NULL: gone */
    bool is_busy;
    char id[128];
    struct job_op op;
};

static struct worker *worker_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct worker, node);
}

/* The caller learns of a request that the registry rejects (it is full, say). After any other failure the result is
 * unknown. */
static void finish_failed(struct muster_rpc *rpc, const struct job_op *op, enum muster_rc rc,
                          const char *text)
{
    if (rc == MUSTER_INVALID_ARGUMENT || rc == MUSTER_RESOURCE_EXHAUSTED)
        muster_rpc_finish(rpc, rc, op->op.error.text);
    else
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, text);
}

/* --- Workers --- */

static void queue_dispatch(struct queue *queue);

static void job_unclaim(struct worker *worker)
{
    if (worker->job != NULL)
        job_store_unclaim(&worker->queue->store, worker->job);
    free(worker->job);
    worker->job = NULL;
}

static void worker_free(struct worker *worker)
{
    muster_list_remove(&worker->node);
    free(worker);
}

static void on_given_back(struct job_op *op, enum muster_rc rc, bool is_applied)
{
    struct worker *worker = op->data;
    struct queue *queue = worker->queue;

    (void)rc; /* the store repeats what failed; what is not applied was another's already */
    (void)is_applied;
    worker->is_busy = false;
    job_unclaim(worker);
    worker_free(worker);
    queue_dispatch(queue);
}

/* The worker's stream is over and nothing is under way: its job goes to another. */
static void job_settle(struct worker *worker)
{
    if (worker->rpc != NULL || worker->is_busy)
        return;
    if (worker->job == NULL) {
        worker_free(worker);
        return;
    }
    worker->is_busy = true;
    worker->op.data = worker;
    job_store_give_back(&worker->queue->store, &worker->op, worker->job, on_given_back);
}

static void hand_out(struct worker *worker, const struct job *job)
{
    JobQueue__Job message;

    job_queue__job__init(&message);
    message.id = worker->job;
    message.payload.data = (uint8_t *)(uintptr_t)job->content.data;
    message.payload.len = job->content.size;
    (void)job_queue_job_queue_work_reply(worker->rpc, &message);
}

static void on_taken(struct job_op *op, enum muster_rc rc, bool is_applied)
{
    struct worker *worker = op->data;
    struct queue *queue = worker->queue;
    const struct job *job = job_store_find(&queue->store, worker->job);

    worker->is_busy = false;
    if (rc == MUSTER_OK && is_applied && job != NULL && worker->rpc != NULL)
        hand_out(worker, job);
    else if (rc == MUSTER_OK && !is_applied)
        job_unclaim(worker); /* another server was faster */
    else if (worker->rpc != NULL)
        muster_rpc_finish(worker->rpc, MUSTER_UNAVAILABLE, "the registry does not answer");
    worker->is_asking = worker->job == NULL && worker->rpc != NULL;
    job_settle(worker);
    queue_dispatch(queue);
}

static void queue_dispatch(struct queue *queue)
{
    struct muster_list *node, *next;

    for (node = queue->workers.next; node != &queue->workers; node = next) {
        struct worker *worker = worker_of(node);
        struct job *job;

        next = node->next;
        if (!worker->is_asking || worker->is_busy || worker->rpc == NULL)
            continue;
        job = job_store_next(&queue->store);
        if (job == NULL)
            return;
        job->is_claiming = true;
        worker->job = strdup(job->id);
        worker->is_asking = false;
        worker->is_busy = true;
        worker->op.data = worker;
        if (job_store_take(&queue->store, &worker->op, job, on_taken) != MUSTER_OK) {
            worker->is_busy = false;
            worker->is_asking = true;
            job_unclaim(worker);
            return;
        }
    }
}

static void on_finished(struct job_op *op, enum muster_rc rc, bool is_applied)
{
    struct worker *worker = op->data;
    struct queue *queue = worker->queue;

    worker->is_busy = false;
    if (rc == MUSTER_OK) {
        job_unclaim(worker);
        worker->is_asking = is_applied;
        if (!is_applied && worker->rpc != NULL)
            muster_rpc_finish(worker->rpc, MUSTER_ABORTED, "the job was given to another worker");
    } else if (worker->rpc != NULL) {
        finish_failed(worker->rpc, op, rc,
                      "the registry does not answer: the job may be begun again");
    }
    job_settle(worker);
    queue_dispatch(queue);
}

static void on_work(struct muster_rpc *rpc, const JobQueue__WorkRequest *request)
{
    struct worker *worker = muster_rpc_data(rpc);

    if (worker == NULL || worker->rpc == NULL)
        return;
    if (request->done == NULL && worker->job == NULL && !worker->is_busy) {
        worker->is_asking = true;
        queue_dispatch(worker->queue);
        return;
    }
    if (request->done != NULL && request->done->result.len > CONTENT_BYTES_MAX) {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, CONTENT_TOO_LARGE);
        return;
    }
    if (worker->is_busy || worker->job == NULL || request->done == NULL ||
        strcmp(request->done->id, worker->job) != 0) {
        muster_rpc_finish(rpc, MUSTER_FAILED_PRECONDITION,
                          "a worker asks, gets a job, and then sends the result of that job");
        return;
    }
    const struct muster_bytes result = {request->done->result.data, request->done->result.len};
    worker->is_busy = true;
    worker->op.data = worker;
    if (job_store_finish(&worker->queue->store, &worker->op, worker->job, result, on_finished) !=
        MUSTER_OK)
        on_finished(&worker->op, MUSTER_UNAVAILABLE, false);
}

static void on_work_start(struct muster_rpc *rpc)
{
    struct queue *queue = muster_rpc_service(rpc);
    struct worker *worker = calloc(1, sizeof(*worker));

    if (worker == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    worker->queue = queue;
    worker->rpc = rpc;
    muster_rpc_set_data(rpc, worker);
    muster_list_append(&queue->workers, &worker->node);
}

static void on_work_half_close(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_work_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct worker *worker = muster_rpc_data(rpc);

    (void)rc;
    if (worker == NULL)
        return;
    worker->rpc = NULL;
    worker->is_asking = false;
    job_settle(worker);
}

static void end_workers(struct queue *queue, const char *text)
{
    struct muster_list *node, *next;

    for (node = queue->workers.next; node != &queue->workers; node = next) {
        next = node->next;
        if (worker_of(node)->rpc != NULL)
            muster_rpc_finish(worker_of(node)->rpc, MUSTER_UNAVAILABLE, text);
    }
}

/* --- Submit, Wait, Forget, GetCount --- */

static struct request *request_new(struct muster_rpc *rpc, const char *id)
{
    struct request *request = NULL;

    if (strlen(id) >= sizeof(request->id) || strchr(id, '/') != NULL)
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "an id has at most 127 bytes and no '/'");
    else if ((request = calloc(1, sizeof(*request))) == NULL)
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    if (request == NULL)
        return NULL;
    request->queue = muster_rpc_service(rpc);
    request->rpc = rpc;
    request->op.data = request;
    (void)snprintf(request->id, sizeof(request->id), "%s", id);
    muster_list_init(&request->node);
    muster_rpc_set_data(rpc, request);
    return request;
}

static void request_settle(struct request *request)
{
    if (request->rpc != NULL || request->is_busy)
        return;
    muster_list_remove(&request->node);
    free(request);
}

static void on_request_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct request *request = muster_rpc_data(rpc);

    (void)rc;
    if (request == NULL)
        return;
    request->rpc = NULL;
    request_settle(request);
}

static void answer_id(struct job_op *op, enum muster_rc rc, bool is_applied, enum muster_rc refusal,
                      const char *text)
{
    struct request *request = op->data;
    JobQueue__JobId message;

    request->is_busy = false;
    job_queue__job_id__init(&message);
    message.id = request->id;
    if (request->rpc != NULL && is_applied)
        (void)job_queue_job_queue_submit_reply(request->rpc, &message);
    else if (request->rpc != NULL && rc == MUSTER_OK)
        muster_rpc_finish(request->rpc, refusal, text);
    else if (request->rpc != NULL)
        finish_failed(request->rpc, op, rc, "the registry does not answer");
    request_settle(request);
}

static void on_submitted(struct job_op *op, enum muster_rc rc, bool is_applied)
{
    answer_id(op, rc, is_applied, MUSTER_ALREADY_EXISTS, "a job with that id is known");
}

static void on_submit(struct muster_rpc *rpc, const JobQueue__Job *job)
{
    struct request *request = NULL;
    const struct muster_bytes payload = {job->payload.data, job->payload.len};

    if (payload.size > CONTENT_BYTES_MAX)
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, CONTENT_TOO_LARGE);
    else
        request = request_new(rpc, job->id);
    if (request == NULL)
        return;
    if (request->id[0] == '\0')
        (void)snprintf(request->id, sizeof(request->id), "%016llx",
                       (unsigned long long)muster_rng_next(muster_rpc_env(rpc)->rng));
    request->is_busy = true;
    if (job_store_submit(&request->queue->store, &request->op, request->id, payload,
                         on_submitted) != MUSTER_OK)
        on_submitted(&request->op, MUSTER_UNAVAILABLE, false);
}

static void on_forgotten(struct job_op *op, enum muster_rc rc, bool is_applied)
{
    answer_id(op, rc, is_applied, MUSTER_FAILED_PRECONDITION, "no such job is done");
}

static void on_forget(struct muster_rpc *rpc, const JobQueue__JobId *job)
{
    struct request *request = request_new(rpc, job->id);

    if (request == NULL)
        return;
    request->is_busy = true;
    if (job_store_forget(&request->queue->store, &request->op, request->id, on_forgotten) !=
        MUSTER_OK)
        on_forgotten(&request->op, MUSTER_UNAVAILABLE, false);
}

static void reply_result(struct muster_rpc *rpc, const struct job *job)
{
    JobQueue__Result message;

    job_queue__result__init(&message);
    message.id = (char *)(uintptr_t)job->id;
    message.result.data = (uint8_t *)(uintptr_t)job->content.data;
    message.result.len = job->content.size;
    (void)job_queue_job_queue_wait_reply(rpc, &message);
}

static void on_wait(struct muster_rpc *rpc, const JobQueue__JobId *wanted)
{
    struct queue *queue = muster_rpc_service(rpc);
    const struct job *job = job_store_find(&queue->store, wanted->id);
    struct request *request;

    if (job != NULL && job->state == JOB_DONE) {
        reply_result(rpc, job);
        return;
    }
    request = request_new(rpc, wanted->id);
    if (request != NULL)
        muster_list_append(&queue->waiters, &request->node);
}

static void on_done(struct job_store *store, const struct job *job)
{
    struct queue *queue = store->data;
    struct muster_list *node, *next;

    for (node = queue->waiters.next; node != &queue->waiters; node = next) {
        struct request *request = MUSTER_CONTAINER_OF(node, struct request, node);

        next = node->next;
        if (request->rpc != NULL && strcmp(request->id, job->id) == 0) {
            muster_list_remove(node);
            reply_result(request->rpc, job);
        }
    }
}

static void on_get_count(struct muster_rpc *rpc, const JobQueue__CountRequest *request)
{
    const struct queue *queue = muster_rpc_service(rpc);
    JobQueue__Count count;

    (void)request;
    job_queue__count__init(&count);
    count.waiting = job_store_count(&queue->store, JOB_WAITING);
    count.taken = job_store_count(&queue->store, JOB_TAKEN);
    count.done = job_store_count(&queue->store, JOB_DONE);
    (void)job_queue_job_queue_get_count_reply(rpc, &count);
}

/* --- The program --- */

static void on_change(struct job_store *store)
{
    queue_dispatch(store->data);
}

static void on_session_lost(struct job_store *store)
{
    end_workers(store->data, "the queue lost its lease: what you work on may be begun by others");
}

static void queue_drain(struct serving *serving)
{
    struct queue *queue = MUSTER_CONTAINER_OF(serving, struct queue, serving);
    struct muster_list *node, *next;

    end_workers(queue, "the queue server is ending");
    for (node = queue->waiters.next; node != &queue->waiters; node = next) {
        next = node->next;
        muster_rpc_finish(MUSTER_CONTAINER_OF(node, struct request, node)->rpc, MUSTER_UNAVAILABLE,
                          "the queue server is ending");
    }
}

static void on_store_closed(struct job_store *store)
{
    serving_ended(&((struct queue *)store->data)->serving);
}

static void close_store(struct serving *serving)
{
    job_store_close(&MUSTER_CONTAINER_OF(serving, struct queue, serving)->store);
}

static const struct job_queue_job_queue_handlers handlers = {
    .submit = {.on_request = on_submit, .on_end = on_request_end},
    .work = {.on_start = on_work_start,
             .on_message = on_work,
             .on_half_close = on_work_half_close,
             .on_end = on_work_end},
    .wait = {.on_request = on_wait, .on_end = on_request_end},
    .forget = {.on_request = on_forget, .on_end = on_request_end},
    .get_count = {.on_request = on_get_count},
};

struct settings {
    const char *listen, *registry;
};

static const struct muster_option rows[] = {
    SERVING_LISTEN_ROW(struct settings),
    {.name = "registry",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, registry),
     .value = "HOST:PORT,…",
     .help = "Where the jobs are: a 'muster registry' or an etcd cluster; required."},
};

static const struct muster_options options = {
    .command = "job_queue",
    .usage = "--registry HOST:PORT[,…] [--listen HOST:PORT]",
    .about = "A queue of jobs over gRPC (job_queue.proto).",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int main(int argc, char **argv)
{
    static struct queue queue = {
        .serving = {.program = "job_queue", .on_drain = queue_drain, .on_closed = close_store},
        .store = {.on_change = on_change,
                  .on_done = on_done,
                  .on_session_lost = on_session_lost,
                  .on_closed = on_store_closed}};
    struct settings settings = {.registry = NULL};
    int code;

    if (!serving_parse(&options, argc, argv, &settings, &code))
        return code;
    if (settings.registry == NULL) {
        fprintf(stderr, "usage: job_queue %s\n", options.usage);
        return 2;
    }
    muster_list_init(&queue.workers);
    muster_list_init(&queue.waiters);
    queue.store.data = &queue;
    if (!serving_open(&queue.serving, NULL) ||
        !serving_describe(&queue.serving, &job_queue_descriptors) ||
        job_queue_job_queue_service_add(queue.serving.server, &handlers, &queue) != MUSTER_OK ||
        !job_store_open(&queue.store, queue.serving.env, settings.registry))
        return 1;
    return serving_run(&queue.serving, settings.listen);
}
