/* The guard of a killed launcher tells the registry that its members are dead, and that the place
 * is free. It opens its own connection, in its own process, after all are killed. */
#include "run/task/guard.h"

#include "common/pause.h"
#include "common/text_bytes.h"
#include "run/claim/record.h"
#include "run/registry/tls.h"

#include <muster/registry.h>
#include <muster/stream.h>

#include <stdlib.h>
#include <string.h>

/* After this the leases end by themselves, and a successor confirms the deaths (former.c). */
#define WITHIN_NS  (5 * MUSTER_NS_PER_S)
#define REQUEST_NS (2 * MUSTER_NS_PER_S)
#define AGAIN_NS   (100 * MUSTER_NS_PER_MS)
#define KEY_BYTES  224
#define WRITES_MAX 64 /* in one transaction */

struct confirmation {
    struct run *run;
    struct muster_registry *client;
    struct muster_registry_op op;
    uint64_t until_ns;
    bool is_busy, is_closed;
    enum muster_rc rc;
    bool is_ours; /* the place is the killed launcher's still */
    uint64_t revision, launcher;
};

static void on_done(struct muster_registry_op *op, enum muster_rc rc)
{
    struct confirmation *confirmation = op->data;

    confirmation->is_busy = false;
    confirmation->rc = rc;
}

/* True: the request has succeeded. *ret_again: it is worth another attempt. */
static bool confirmation_await(struct confirmation *confirmation, enum muster_rc started,
                               bool *ret_again)
{
    struct muster_loop *loop = confirmation->run->env->loop;

    confirmation->rc = started;
    confirmation->is_busy = started == MUSTER_OK;
    while (confirmation->is_busy)
        muster_loop_turn(loop, UINT64_MAX);
    *ret_again = confirmation->rc != MUSTER_OK &&
                 muster_loop_now_ns(loop) < confirmation->until_ns &&
                 muster_registry_refusal(confirmation->client) == NULL;
    if (*ret_again)
        loop_pause(confirmation->run->env->loop, AGAIN_NS);
    return confirmation->rc == MUSTER_OK;
}

static uint64_t confirmation_soon(const struct confirmation *confirmation)
{
    return muster_loop_after_ns(confirmation->run->env->loop, REQUEST_NS);
}

/* Deaths are written before the place is free: a successor that finds it free may rely on them. */
static bool write_deaths(struct confirmation *confirmation, const struct muster_incarnation *dead,
                         size_t count)
{
    static char keys[WRITES_MAX][KEY_BYTES];
    struct muster_registry_step steps[WRITES_MAX];
    struct muster_registry_txn txn = {.success = steps, .success_count = count};
    char incarnation[MUSTER_INCARNATION_TEXT_BYTES];
    bool is_again = true;

    for (size_t i = 0; i < count; i++) {
        snprintf(keys[i], KEY_BYTES, "/muster/%s/dead/%s", confirmation->run->settings.job_name,
                 muster_incarnation_format(&dead[i], incarnation));
        steps[i] = (struct muster_registry_step){.kind = MUSTER_REGISTRY_PUT,
                                                 .key = text_bytes(keys[i]),
                                                 .value = text_bytes(RUN_DEATH_WITH_LAUNCHER)};
    }
    while (is_again)
        if (confirmation_await(confirmation,
                               muster_registry_txn_start(&confirmation->op, confirmation->client,
                                                         &txn, confirmation_soon(confirmation),
                                                         on_done),
                               &is_again))
            return true;
    return false;
}

static void on_place_read(struct muster_registry_op *op, enum muster_rc rc)
{
    struct confirmation *confirmation = op->data;
    struct run_claim_record record;

    confirmation->is_ours = rc == MUSTER_OK && op->kv_count == 1 &&
                            run_claim_record_parse(op->kvs[0].value.data, op->kvs[0].value.size,
                                                   &record) == MUSTER_OK &&
                            record.launcher == confirmation->launcher;
    if (confirmation->is_ours)
        confirmation->revision = op->kvs[0].mod_revision;
    on_done(op, rc);
}

/* The place is deleted only as long as it holds the record of the killed launcher: a successor may
 * have taken it already. */
static void give_place_back(struct confirmation *confirmation)
{
    char key[KEY_BYTES];
    struct muster_registry_range range = {.reach = MUSTER_REGISTRY_KEY};
    struct muster_registry_step step = {.kind = MUSTER_REGISTRY_DELETE};
    struct muster_registry_compare is_as_read = {.target = MUSTER_REGISTRY_MOD_REVISION,
                                                 .relation = MUSTER_REGISTRY_EQUAL};
    struct muster_registry_txn txn = {
        .compares = &is_as_read, .compare_count = 1, .success = &step, .success_count = 1};
    bool is_again;

    snprintf(key, sizeof(key), "/muster/%s/launchers/%llu", confirmation->run->settings.job_name,
             (unsigned long long)confirmation->run->settings.node_rank);
    range.key = step.key = is_as_read.key = text_bytes(key);
    if (!confirmation_await(confirmation,
                            muster_registry_range_start(&confirmation->op, confirmation->client,
                                                        &range, confirmation_soon(confirmation),
                                                        on_place_read),
                            &is_again) ||
        !confirmation->is_ours)
        return;
    is_as_read.number = confirmation->revision;
    (void)confirmation_await(confirmation,
                             muster_registry_txn_start(&confirmation->op, confirmation->client,
                                                       &txn, confirmation_soon(confirmation),
                                                       on_done),
                             &is_again);
}

static void on_closed(struct muster_registry *registry)
{
    ((struct confirmation *)muster_registry_data(registry))->is_closed = true;
}

static void confirm_in(struct confirmation *confirmation, const struct muster_incarnation *dead,
                       size_t count)
{
    struct run *run = confirmation->run;
    struct muster_registry_options options = {.endpoints = run->settings.registry};
    struct muster_error error;

    if (!run_tls_open(run, &error))
        return;
    options.tls = run_tls_registry(run);
    if (muster_registry_open(run->env, &options, &confirmation->client, &error) != MUSTER_OK)
        return;
    muster_registry_set_data(confirmation->client, confirmation);
    confirmation->op.data = confirmation;
    confirmation->until_ns = muster_loop_after_ns(run->env->loop, WITHIN_NS);
    for (size_t at = 0; at < count; at += WRITES_MAX)
        if (!write_deaths(confirmation, dead + at,
                          count - at < WRITES_MAX ? count - at : WRITES_MAX))
            break;
    if (confirmation->rc == MUSTER_OK)
        give_place_back(confirmation);
    muster_registry_close(confirmation->client, on_closed);
    while (!confirmation->is_closed)
        muster_loop_turn(run->env->loop, UINT64_MAX);
}

void run_guard_confirm(struct run *run, uint64_t launcher, const struct muster_incarnation *dead,
                       size_t count)
{
    struct confirmation confirmation = {.run = run, .launcher = launcher};

    if (muster_env_system_open(NULL, &run->env) != MUSTER_OK ||
        muster_net_system_open(run->env, &run->env->net) != MUSTER_OK)
        return;
    confirm_in(&confirmation, dead, count); /* the process ends then, with all that is open */
}
