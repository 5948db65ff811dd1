/* leader NAME: one of all copies of this program does the work; when it dies, the next one goes on.
 *
 *   muster registry --listen 127.0.0.1:2379 &
 *   export MUSTER_REGISTRY=127.0.0.1:2379
 *   leader cleaner & leader cleaner & leader cleaner
 *
 * What the leader writes is fenced: a former leader that stood still and wakes up late can believe
 * that it leads, but its writes are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/muster.h>

#define LEASE_S   5 /* how long a dead leader is waited for */
#define WORK_NS   (200 * MUSTER_NS_PER_MS)
#define WITHIN_NS (5 * MUSTER_NS_PER_S)

struct worker {
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_session session;
    struct muster_election election;
    struct muster_registry_op op;
    struct muster_timer timer;
    const char *name;
    char self[32], result_key[128], result[64];
    uint64_t pieces;
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

/* A supervisor starts us again; the lease ends by itself. */
static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "leader: %s: %s\n", what, why);
    exit(1);
}

static void work_later(struct worker *worker)
{
    muster_timer_start(&worker->timer, worker->env->loop,
                       muster_loop_after_ns(worker->env->loop, WORK_NS));
}

static void on_written(struct muster_registry_op *op, enum muster_rc rc)
{
    struct worker *worker = op->data;

    if (rc == MUSTER_OK && !op->is_succeeded)
        give_up("work", "somebody else leads");
    if (rc == MUSTER_OK) {
        printf("%s did piece %llu\n", worker->self, (unsigned long long)worker->pieces);
        fflush(stdout);
    } else if (!muster_registry_is_unknown(rc)) {
        give_up("work", op->error.text);
    }
    work_later(worker); /* a write whose outcome is unknown is simply written again */
}

/* The result of the work, on the condition that we lead. */
static void on_work(struct muster_timer *timer)
{
    struct worker *worker = timer->data;
    struct muster_registry_compare still_leads = muster_election_compare(&worker->election);
    struct muster_registry_step put = {.kind = MUSTER_REGISTRY_PUT,
                                       .key = bytes_of(worker->result_key)};
    struct muster_registry_txn txn = {
        .compares = &still_leads, .compare_count = 1, .success = &put, .success_count = 1};

    worker->pieces++;
    snprintf(worker->result, sizeof(worker->result), "%llu by %s",
             (unsigned long long)worker->pieces, worker->self);
    put.value = bytes_of(worker->result);
    worker->op.data = worker;
    if (muster_registry_txn_start(&worker->op, worker->registry, &txn,
                                  muster_loop_after_ns(worker->env->loop, WITHIN_NS),
                                  on_written) != MUSTER_OK)
        give_up("work", "cannot be written");
}

static void on_elected(struct muster_election *election, enum muster_rc rc)
{
    struct worker *worker = election->data;

    if (rc != MUSTER_OK)
        give_up("election", election->error.text);
    printf("%s leads, term %llu\n", worker->self, (unsigned long long)election->term);
    fflush(stdout);
    work_later(worker);
}

static void on_deposed(struct muster_election *election)
{
    (void)election;
    give_up("election", "the session was lost");
}

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    struct worker *worker = session->data;
    struct muster_election_options options = {
        .name = bytes_of(worker->name), .value = bytes_of(worker->self), .deadline_ns = UINT64_MAX};

    if (rc != MUSTER_OK)
        give_up("session", session->error.text);
    if (muster_election_start(&worker->election, session, &options, on_elected, on_deposed) !=
        MUSTER_OK)
        give_up("election", "cannot be entered");
}

static void on_lost(struct muster_session *session)
{
    (void)session;
    give_up("session", "lost");
}

int main(int argc, char **argv)
{
    struct muster_registry_options options = {.endpoints = getenv("MUSTER_REGISTRY")};
    struct worker worker = {.name = argc > 1 ? argv[1] : "example"};
    struct muster_error error;

    if (argc > 2 || worker.name[0] == '-' || worker.name[0] == '\0') {
        fprintf(stderr, "usage: leader [NAME]\n");
        return 2;
    }
    snprintf(worker.self, sizeof(worker.self), "process %d", (int)getpid());
    snprintf(worker.result_key, sizeof(worker.result_key), "%.100s-result", worker.name);
    if (muster_env_system_open(NULL, &worker.env) != MUSTER_OK ||
        muster_net_system_open(worker.env, &worker.env->net) != MUSTER_OK)
        give_up("start", "no event loop");
    if (muster_registry_open(worker.env, &options, &worker.registry, &error) != MUSTER_OK)
        give_up("registry", error.text);
    worker.session.data = worker.election.data = &worker;
    muster_timer_init(&worker.timer, on_work, &worker);
    if (muster_session_open(&worker.session, worker.registry, LEASE_S,
                            muster_loop_after_ns(worker.env->loop, 60 * MUSTER_NS_PER_S), on_opened,
                            on_lost) != MUSTER_OK)
        give_up("session", "cannot be opened");
    muster_loop_run(worker.env->loop);
    return 0;
}
