/* Interop cases that call again and again: over one channel, or over a new one each time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interop_client.h"
#include "tests/proto/interop.pb-c.h"

#define WORKERS_MAX 64

/* One of the "threads": it makes one call after the other. */
struct worker {
    struct interop_call call;
    struct muster_timer timer; /* wakes the loop for the next call */
    uint64_t start_ns;
    uint64_t left; /* calls not begun */
    bool is_calling;
};

struct soak {
    struct interop_client *client;
    bool is_new_channel; /* for each call */
    uint64_t until_ns;
    Grpc__Testing__SimpleRequest request;
    Grpc__Testing__Payload payload;
    struct worker *workers;
    size_t worker_count;
    uint64_t *latencies_ns, done, failed;
};

static const struct interop_ask soak_ask = {.method = INTEROP_TEST_SERVICE "UnaryCall",
                                            .answer = &grpc__testing__simple_response__descriptor};

static void on_wake(struct muster_timer *timer)
{
    (void)timer;
}

/* A failed call counts, and does not end the case. */
static void count_failure(struct soak *soak, const struct worker *worker)
{
    struct interop_client *client = soak->client;

    soak->failed++;
    fprintf(stderr, "soak call failed: %s\n",
            client->failure[0] != '\0' ? client->failure : muster_rc_name(worker->call.rc));
    client->failure[0] = '\0';
}

static void soak_begin(struct soak *soak, struct worker *worker)
{
    struct interop_client *client = soak->client;

    worker->left--;
    worker->start_ns = muster_loop_now_ns(client->env->loop);
    worker->call = (struct interop_call){.client = client};
    worker->is_calling = true;
    if (soak->is_new_channel)
        worker->call.channel = interop_channel_open(client);
    if ((soak->is_new_channel && worker->call.channel == NULL) ||
        !interop_call_start(&worker->call, client, &soak_ask) ||
        !interop_call_send(&worker->call, &soak->request, false))
        worker->call.is_done = true; /* judged as any other that ended */
    else
        muster_call_half_close(&worker->call.call);
}

static void soak_judge(struct soak *soak, struct worker *worker)
{
    const struct interop_settings *settings = soak->client->settings;
    struct interop_client *client = soak->client;
    uint64_t ns = muster_loop_now_ns(client->env->loop) - worker->start_ns;
    const Grpc__Testing__SimpleResponse *answer = worker->call.answers[0].message;
    bool is_right =
        worker->call.is_started && client->failure[0] == '\0' &&
        interop_call_end(&worker->call, MUSTER_OK) &&
        interop_check(client, answer != NULL && answer->payload != NULL, "the answer is empty") &&
        interop_check_body(client, &answer->payload->body, settings->soak_response_bytes) &&
        interop_check(client, ns <= settings->soak_latency_max_ns,
                      "a call took %.1f ms, above the %.1f ms that are acceptable",
                      (double)ns / 1e6, (double)settings->soak_latency_max_ns / 1e6);

    if (!is_right)
        count_failure(soak, worker);
    soak->latencies_ns[soak->done++] = ns;
    worker->is_calling = false;
    interop_call_fini(&worker->call);
    interop_channel_close(client, worker->call.channel);
}

/* True while there is something left to wait for. */
static bool soak_step(struct soak *soak, struct worker *worker)
{
    struct muster_loop *loop = soak->client->env->loop;
    uint64_t now_ns, due_ns;

    if (worker->is_calling && worker->call.is_done)
        soak_judge(soak, worker);
    if (worker->is_calling)
        return true;
    now_ns = muster_loop_now_ns(loop);
    if (worker->left == 0 || now_ns >= soak->until_ns)
        return false;
    due_ns = worker->start_ns == 0 ? now_ns
                                   : worker->start_ns + soak->client->settings->soak_interval_ns;
    if (due_ns <= now_ns)
        soak_begin(soak, worker);
    if (!worker->is_calling)
        muster_timer_start(&worker->timer, loop, due_ns);
    else if (worker->call.is_done) /* could not begin: look again in the next turn */
        muster_timer_start(&worker->timer, loop, now_ns);
    return true;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static bool soak_report(struct soak *soak)
{
    const struct interop_settings *settings = soak->client->settings;
    uint64_t *ns = soak->latencies_ns, done = soak->done;

    qsort(ns, (size_t)done, sizeof(*ns), compare_times);
    fprintf(stderr,
            "(server_uri: %s:%llu) soak test ran: %llu / %llu iterations. total failures: %llu. "
            "p50: %.1f ms p90: %.1f ms p100: %.1f ms\n",
            settings->server_host, (unsigned long long)settings->server_port,
            (unsigned long long)done, (unsigned long long)settings->soak_iterations,
            (unsigned long long)soak->failed, done > 0 ? (double)ns[done / 2] / 1e6 : 0,
            done > 0 ? (double)ns[done * 9 / 10] / 1e6 : 0,
            done > 0 ? (double)ns[done - 1] / 1e6 : 0);
    return interop_check(soak->client, done == settings->soak_iterations,
                         "only %llu of %llu calls were made in time", (unsigned long long)done,
                         (unsigned long long)settings->soak_iterations) &&
           interop_check(soak->client, soak->failed <= settings->soak_failures_max,
                         "%llu calls failed, more than %llu", (unsigned long long)soak->failed,
                         (unsigned long long)settings->soak_failures_max);
}

static void soak_run(struct soak *soak)
{
    bool is_busy = true;

    while (is_busy) {
        is_busy = false;
        for (size_t i = 0; i < soak->worker_count; i++)
            is_busy = soak_step(soak, &soak->workers[i]) || is_busy;
        if (is_busy)
            muster_loop_turn(soak->client->env->loop, UINT64_MAX);
    }
    for (size_t i = 0; i < soak->worker_count; i++)
        muster_timer_stop(&soak->workers[i].timer);
}

static bool soak_init(struct soak *soak, struct interop_client *client)
{
    const struct interop_settings *settings = client->settings;
    struct muster_mem *mem = client->env->mem;

    soak->worker_count = (size_t)settings->soak_thread_count;
    soak->workers = muster_mem_alloc_zero(mem, soak->worker_count, sizeof(*soak->workers));
    soak->latencies_ns =
        muster_mem_alloc_zero(mem, settings->soak_iterations + 1, sizeof(uint64_t));
    grpc__testing__simple_request__init(&soak->request);
    grpc__testing__payload__init(&soak->payload);
    soak->payload.body.len = settings->soak_request_bytes;
    soak->payload.body.data = muster_mem_alloc_zero(mem, settings->soak_request_bytes + 1, 1);
    if (soak->workers == NULL || soak->latencies_ns == NULL || soak->payload.body.data == NULL)
        return interop_check(client, false, "no memory for so many calls");
    soak->request.payload = &soak->payload;
    soak->request.response_size = (int32_t)settings->soak_response_bytes;
    soak->until_ns = muster_loop_after_ns(
        client->env->loop, settings->soak_timeout_ns > 0
                               ? settings->soak_timeout_ns
                               : settings->soak_iterations * settings->soak_latency_max_ns);
    for (size_t i = 0; i < soak->worker_count; i++) {
        muster_timer_init(&soak->workers[i].timer, on_wake, NULL);
        soak->workers[i].left = settings->soak_iterations / soak->worker_count;
    }
    return true;
}

static bool do_soak(struct interop_client *client, bool is_new_channel)
{
    const struct interop_settings *settings = client->settings;
    struct soak soak = {.client = client, .is_new_channel = is_new_channel};
    bool is_right;

    if (!interop_check(client, settings->soak_iterations % settings->soak_thread_count == 0,
                       "--soak_iterations must be a multiple of --soak_num_threads"))
        return false;
    is_right = soak_init(&soak, client);
    if (is_right) {
        soak_run(&soak);
        is_right = soak_report(&soak);
    }
    muster_mem_free(client->env->mem, soak.workers);
    muster_mem_free(client->env->mem, soak.latencies_ns);
    muster_mem_free(client->env->mem, soak.payload.body.data);
    return is_right;
}

bool interop_rpc_soak(struct interop_client *client)
{
    return do_soak(client, false);
}

bool interop_channel_soak(struct interop_client *client)
{
    return do_soak(client, true);
}
