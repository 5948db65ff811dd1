/* Where the members find each other: a registry inside this process, or one elsewhere; and
 * confirmed deaths.
 *
 * An embedded registry is started on a free port of 127.0.0.1 and ends with the launcher. One
 * elsewhere may be away, at the start or later: the workers wait for it, and people are told. A
 * confirmed death is written until the registry has taken it, since the members go on only then. */
#include "run/registry/registry.h"

#include "common/output.h"
#include "common/text_bytes.h"
#include "jobs/local_jobs.h"
#include "run/output/log.h"
#include "run/registry/dead.h"
#include "run/registry/tls.h"
#include "run/state/resume.h"

#include <muster/registry_server.h>
#include <muster/stream.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define PUT_WITHIN_NS   (5 * MUSTER_NS_PER_S) /* of one attempt to write a death */
#define PROBE_WITHIN_NS (2 * MUSTER_NS_PER_S)
#define PUT_AGAIN_NS    (200 * MUSTER_NS_PER_MS)
#define CLOSE_WITHIN_NS (2 * MUSTER_NS_PER_S) /* for deaths that are still being written */
#define SILENCE_NS      (3 * MUSTER_NS_PER_S) /* before people are told of it */

struct run_registry {
    struct run *run;
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct muster_registry *client;
    char endpoint[512];
    struct muster_list deaths; /* being written */
    struct run_dead *dead;     /* those that are */
    struct muster_registry_op probe;
    bool is_probing;
    char absence[MUSTER_ERROR_TEXT_BYTES + 4]; /* why the last probe failed: " (reason)" */
    struct muster_timer silence_timer;
    bool is_silence_told;
    bool is_under_way; /* the launcher has its place, and its workers may run */
    bool is_closing;
    bool is_refusal_told;
    bool is_client_closed, is_server_closed;
};

/* One death that the registry does not know yet. */
struct death {
    struct muster_registry_op op;
    struct run_registry *registry;
    struct muster_list node;
    struct muster_timer again;
    char key[160];
    char how[128];
    bool is_known;     /* how it came, so that this record is the last one of it */
    bool is_corrected; /* while it was written: it is written again */
};

static bool registry_serve(struct run_registry *registry, struct muster_error *ret_error)
{
    struct muster_registry_store_options store_options = {.path = NULL};
    struct muster_tls *tls = run_tls_served(registry->run);
    struct muster_registry_server_options options = {.listen = "127.0.0.1:0", .tls = tls};
    struct muster_env *env = registry->run->env;
    struct run_resume *resume = registry->run->resume;
    char text[MUSTER_ADDRESS_TEXT_BYTES], listen[32], path[600];

    if (resume != NULL) { /* where the workers look for it, with what they know of it */
        snprintf(path, sizeof(path), "%s/registry.db", resume->dir);
        snprintf(listen, sizeof(listen), "127.0.0.1:%u", resume->registry_port);
        store_options.path = path;
        options.listen = listen;
    }

    if (muster_registry_store_open(env->mem, &store_options, &registry->store, ret_error) !=
        MUSTER_OK)
        return false;
    if (muster_registry_server_open(env, registry->store, &options, &registry->server, ret_error) !=
        MUSTER_OK) {
        muster_loop_turn(env->loop, 0); /* it is taken down by the loop's next turn */
        return false;
    }
    muster_registry_server_set_data(registry->server, registry);
    if (resume != NULL)
        resume->registry_port = muster_registry_server_address(registry->server)->port;
    snprintf(registry->endpoint, sizeof(registry->endpoint), "%s%s", tls != NULL ? "https://" : "",
             muster_address_format(muster_registry_server_address(registry->server), text));
    return true;
}

/* A refusal stays: waiting does not help, so the run ends. Before the workers are started,
 * run_registry_open or run_claim_take reports it. */
static void on_refused(struct run_registry *registry)
{
    if (!registry->is_under_way || registry->is_closing || registry->is_refusal_told)
        return;
    registry->is_refusal_told = true;
    run_tell(registry->run, "the registry cannot be used: %s",
             muster_registry_refusal(registry->client)->text);
    registry->run->control->end_all(registry->run, SIGTERM);
}

static void on_probed(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_registry *registry = op->data;

    registry->is_probing = false; /* whether the connection is up says the rest */
    if (rc != MUSTER_OK && op->error.text[0] != '\0')
        snprintf(registry->absence, sizeof(registry->absence), " (%s)",
                 muster_endpoint_cause(op->error.text, registry->endpoint));
    if (muster_registry_refusal(registry->client) != NULL)
        on_refused(registry);
    else if (rc == MUSTER_UNAUTHENTICATED || rc == MUSTER_PERMISSION_DENIED)
        run_tell(registry->run, "the registry at %s refuses: %s", registry->endpoint,
                 op->error.text);
}

/* The client connects when there is a request, so this one is made only to learn whether it can. */
static void registry_probe(struct run_registry *registry)
{
    struct muster_loop *loop = registry->run->env->loop;
    struct muster_registry_range range = {.key = text_bytes("/muster/"),
                                          .reach = MUSTER_REGISTRY_KEY};

    if (registry->is_probing)
        return;
    registry->probe.data = registry;
    registry->is_probing = muster_registry_range_start(&registry->probe, registry->client, &range,
                                                       muster_loop_after_ns(loop, PROBE_WITHIN_NS),
                                                       on_probed) == MUSTER_OK;
}

/* A registry elsewhere may be started after this launcher, and be away at any time: each change is
 * told once. */
static void on_silence(struct muster_timer *timer)
{
    struct run_registry *registry = timer->data;
    struct muster_loop *loop = registry->run->env->loop;
    bool is_up = muster_registry_is_connected(registry->client);

    if (is_up && registry->is_silence_told)
        run_tell(registry->run, "the registry at %s answers", registry->endpoint);
    else if (!is_up && !registry->is_silence_told)
        run_tell(registry->run,
                 "the registry at %s does not answer%s: is 'muster registry' running there, and "
                 "does its --listen name an address that this machine reaches?",
                 registry->endpoint, registry->absence);
    registry->is_silence_told = !is_up;
    if (!is_up)
        registry_probe(registry);
    muster_timer_start(timer, loop, muster_loop_after_ns(loop, SILENCE_NS));
}

/* Under TLS the first contact comes before the first worker: a refusal is for good. */
static bool registry_meet(struct run_registry *registry, struct muster_error *ret_error)
{
    struct muster_loop *loop = registry->run->env->loop;

    registry_probe(registry);
    while (registry->is_probing && strstr(registry->endpoint, "https://") != NULL)
        muster_loop_turn(loop, UINT64_MAX);
    if (muster_registry_refusal(registry->client) == NULL)
        return true;
    *ret_error = *muster_registry_refusal(registry->client);
    if (run_tls_registry(registry->run) != NULL && ret_error->rc != MUSTER_FAILED_PRECONDITION)
        run_tell(registry->run,
                 "the registry must be that of job %s, started with the same --tls-secret (compare "
                 "--job, and the files with sha256sum); for a registry with certificates of its "
                 "own set MUSTER_REGISTRY_CA_FILE",
                 registry->run->settings.job_name);
    return false;
}

bool run_registry_open(struct run *run, struct muster_error *ret_error)
{
    struct run_registry *registry = calloc(1, sizeof(*registry));
    struct muster_registry_options options = {.tls = run_tls_registry(run)};

    if (registry == NULL)
        output_no_memory();
    MUSTER_ASSERT(run->registry == NULL);
    registry->run = run;
    muster_list_init(&registry->deaths);
    muster_timer_init(&registry->silence_timer, on_silence, registry);
    run->registry = registry;
    if (!run->settings.is_embedded)
        snprintf(registry->endpoint, sizeof(registry->endpoint), "%s", run->settings.registry);
    else if (!registry_serve(registry, ret_error))
        return false;
    if (run->tls != NULL && strstr(registry->endpoint, "https://") == NULL)
        run_tell(run,
                 "the connection to the registry at %s is plain text: TLS covers only the links "
                 "between members; write https:// in --registry to encrypt both",
                 registry->endpoint);
    options.endpoints = registry->endpoint;
    if (muster_registry_open(run->env, &options, &registry->client, ret_error) != MUSTER_OK)
        return false;
    muster_registry_set_data(registry->client, registry);
    registry->dead = run_dead_open(registry->client, run->env->loop, run->settings.job_name);
    if (run->settings.is_embedded) {
        local_jobs_add(registry->endpoint);
        return true;
    }
    if (!registry_meet(registry, ret_error))
        return false;
    muster_timer_start(&registry->silence_timer, run->env->loop,
                       muster_loop_after_ns(run->env->loop, SILENCE_NS));
    return true;
}

void run_registry_go_on(struct run *run)
{
    run->registry->is_under_way = true;
}

struct muster_registry *run_registry_client(const struct run *run)
{
    return run->registry->client;
}

const char *run_registry_endpoint(const struct run *run)
{
    return run->registry->endpoint;
}

static void write_death(struct death *death);

static void death_free(struct death *death)
{
    muster_list_remove(&death->node);
    free(death);
}

static void on_written(struct muster_registry_op *op, enum muster_rc rc)
{
    struct death *death = op->data;
    struct muster_loop *loop = death->registry->run->env->loop;

    if (rc == MUSTER_OK && death->is_known && !death->is_corrected)
        run_dead_count(death->registry->dead);
    if (death->is_corrected && !death->registry->is_closing) {
        death->is_corrected = false;
        write_death(death);
    } else if (rc == MUSTER_OK || death->registry->is_closing) {
        death_free(death);
    } else {
        muster_timer_start(&death->again, loop, muster_loop_after_ns(loop, PUT_AGAIN_NS));
    }
}

static void on_again(struct muster_timer *timer)
{
    write_death(timer->data);
}

static void write_death(struct death *death)
{
    struct muster_loop *loop = death->registry->run->env->loop;

    death->op.data = death;
    if (muster_registry_put_start(
            &death->op, death->registry->client, text_bytes(death->key), text_bytes(death->how), 0,
            muster_loop_after_ns(loop, PUT_WITHIN_NS), on_written) == MUSTER_OK)
        return;
    /* Memory lacked for the request. The members wait for this death, so it is tried again. */
    muster_timer_start(&death->again, loop, muster_loop_after_ns(loop, PUT_AGAIN_NS));
}

/* A death whose record is not written yet gets the new text, so that the older one cannot come last. */
static bool correct_death(struct run_registry *registry, const char *key, const char *how,
                          bool is_known)
{
    MUSTER_LIST_EACH (&registry->deaths, death, struct death, node) {
        if (strcmp(death->key, key) != 0)
            continue;
        snprintf(death->how, sizeof(death->how), "%s", how);
        death->is_known = is_known;
        death->is_corrected = !muster_timer_is_started(&death->again);
        return true;
    }
    return false;
}

void run_registry_confirm_death(struct run *run, const struct run_task *task, const char *how,
                                bool is_known)
{
    struct death *death;
    char key[sizeof(death->key)], incarnation[MUSTER_INCARNATION_TEXT_BYTES];

    MUSTER_ASSERT(run->registry != NULL && !run->registry->is_closing);
    snprintf(key, sizeof(key), "/muster/%s/dead/%s", run->settings.job_name,
             muster_incarnation_format(&task->incarnation, incarnation));
    if (correct_death(run->registry, key, how, is_known))
        return;
    death = calloc(1, sizeof(*death));
    if (death == NULL)
        output_no_memory();
    death->registry = run->registry;
    muster_timer_init(&death->again, on_again, death);
    memcpy(death->key, key, sizeof(key));
    death->is_known = is_known;
    snprintf(death->how, sizeof(death->how), "%s", how);
    muster_list_append(&run->registry->deaths, &death->node);
    write_death(death);
}

static void on_client_closed(struct muster_registry *client)
{
    struct run_registry *registry = muster_registry_data(client);

    registry->is_client_closed = true;
}

static void on_server_closed(struct muster_registry_server *server)
{
    struct run_registry *registry = muster_registry_server_data(server);

    registry->is_server_closed = true;
}

static bool are_deaths_written(const struct run_registry *registry)
{
    return muster_list_is_empty(&registry->deaths);
}

/* Those whose write is under way are freed by its callback; those that wait for another attempt
 * have no callback to come. */
static void drop_waiting_deaths(struct run_registry *registry)
{
    MUSTER_LIST_EACH_SAFE (&registry->deaths, death, struct death, node) {
        if (!muster_timer_is_started(&death->again))
            continue;
        muster_timer_stop(&death->again);
        death_free(death);
    }
}

/* The order: deaths, for as long as the members may wait for them; the client, which completes its
 * requests; the server; the store beneath it. */
void run_registry_close(struct run *run)
{
    struct run_registry *registry = run->registry;
    struct muster_loop *loop = run->env->loop;
    uint64_t until_ns = muster_loop_after_ns(loop, CLOSE_WITHIN_NS);

    if (registry == NULL)
        return;
    while (!are_deaths_written(registry) && !run->settings.is_embedded &&
           muster_loop_now_ns(loop) < until_ns)
        muster_loop_turn(loop, 10 * MUSTER_NS_PER_MS);
    registry->is_closing = true;
    muster_timer_stop(&registry->silence_timer);
    drop_waiting_deaths(registry);
    if (registry->client != NULL) {
        muster_registry_close(registry->client, on_client_closed);
        while (!registry->is_client_closed)
            muster_loop_turn(loop, UINT64_MAX);
    }
    if (registry->server != NULL) {
        muster_registry_server_close(registry->server, muster_loop_now_ns(loop), on_server_closed);
        while (!registry->is_server_closed)
            muster_loop_turn(loop, UINT64_MAX);
    }
    if (registry->server != NULL)
        local_jobs_remove();
    run_dead_close(registry->dead);
    muster_registry_store_close(registry->store);
    free(registry);
    run->registry = NULL;
}
