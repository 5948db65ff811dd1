/* Members that a former launcher had started at this place. It is gone, and they end with it: their
 * deaths are confirmed in the registry, but not that of a process that may still live.
 *
 * Members end with their launcher (its guard sees to that), so the new holder of the place may
 * confirm deaths that the old one could no longer confirm: the job goes on at once instead of after
 * the members' suspicion. A confirmed death of a member that lives would split the job; therefore
 * the kernel is asked on this host, and elsewhere the member's own lease must have run out. */
#include "run/claim/claim.h"

#include "common/command.h"
#include "common/output.h"
#include "common/text_bytes.h"
#include "run/claim/record.h"
#include "run/output/log.h"
#include "run/registry/registry.h"
#include "run/state/outcome.h"

#include <stdlib.h>
#include <string.h>

#define REQUEST_NS    (2 * MUSTER_NS_PER_S) /* of one request; it is repeated */
#define AGAIN_NS      (500 * MUSTER_NS_PER_MS)
#define TELL_FIRST_NS (10 * MUSTER_NS_PER_S)
#define TELL_AGAIN_NS (30 * MUSTER_NS_PER_S)
#define KEY_BYTES     224
#define GIVEN_UP      "given up by --force-new, step not known"

struct former_member {
    struct muster_member member;
    bool is_registered, is_settled; /* dead, and that is written down */
};

struct run_former {
    struct run *run;
    struct muster_registry_op op, put;
    struct muster_timer again;
    bool is_busy, is_putting, has_looked;
    enum muster_rc rc;
    char view_key[KEY_BYTES], members_prefix[KEY_BYTES], dead_prefix[KEY_BYTES], key[KEY_BYTES];
    struct former_member *members;
    size_t count;
    struct former_member *writing;
    uint64_t tell_ns;
};

static uint64_t former_after(const struct run_former *former, uint64_t delay_ns)
{
    return muster_loop_after_ns(former->run->env->loop, delay_ns);
}

/* The workers of a resumed run are this launcher's: they live, whatever the last view says. */
static bool former_is_own(const struct run_former *former, const struct muster_member *member)
{
    for (uint32_t i = 0; i < former->run->task_count; i++)
        if (muster_incarnation_is_equal(&former->run->tasks[i].incarnation, &member->incarnation))
            return true;
    return false;
}

/* The machine in a view counts from 1; 0 is a member that no launcher started. */
static bool former_is_meant(const struct run_former *former, const struct muster_member *member)
{
    const struct run_settings *settings = &former->run->settings;

    return (settings->is_force_new || member->machine == settings->node_rank + 1) &&
           !former_is_own(former, member);
}

/* The members of the first view that is read: the one that the former launcher left, or, when the
 * registry was away at the start, a later one. Members of this launcher that it then holds are left
 * out (former_is_own). */
static void former_collect(struct run_former *former, const struct muster_registry_kv *kv)
{
    struct muster_view *view = NULL;

    if (muster_view_unpack(muster_mem_system(), kv->value.data, kv->value.size, &view) != MUSTER_OK)
        return; /* of another version: the members say so */
    former->members = calloc(view->member_count + 1, sizeof(former->members[0]));
    if (former->members == NULL)
        output_no_memory();
    for (uint32_t i = 0; i < view->member_count; i++)
        if (former_is_meant(former, &view->members[i]))
            former->members[former->count++].member = view->members[i];
    muster_view_unref(view);
}

static struct former_member *former_find(struct run_former *former,
                                         const struct muster_registry_kv *kv, const char *prefix)
{
    size_t length = strlen(prefix);
    char text[MUSTER_INCARNATION_TEXT_BYTES];

    if (kv->key.size != length + sizeof(text) - 1 || memcmp(kv->key.data, prefix, length) != 0)
        return NULL;
    for (size_t i = 0; i < former->count; i++) {
        muster_incarnation_format(&former->members[i].member.incarnation, text);
        if (memcmp((const char *)kv->key.data + length, text, sizeof(text) - 1) == 0)
            return &former->members[i];
    }
    return NULL;
}

static void on_read(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_former *former = op->data;

    former->is_busy = false;
    former->rc = rc;
    if (rc != MUSTER_OK)
        return;
    if (!former->has_looked && op->kv_count > 0 && op->kvs[0].key.size == strlen(former->view_key))
        former_collect(former, &op->kvs[0]);
    former->has_looked = true;
    for (size_t i = 0; i < former->count; i++)
        former->members[i].is_registered = false;
    for (size_t i = 0; i < op->kv_count; i++) {
        struct former_member *alive = former_find(former, &op->kvs[i], former->members_prefix);
        struct former_member *dead = former_find(former, &op->kvs[i], former->dead_prefix);

        if (alive != NULL)
            alive->is_registered = true;
        if (dead != NULL)
            dead->is_settled = true;
    }
}

static void former_read(struct run_former *former)
{
    struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_GET, .key = text_bytes(former->view_key)},
        {.kind = MUSTER_REGISTRY_GET,
         .key = text_bytes(former->members_prefix),
         .reach = MUSTER_REGISTRY_PREFIX},
        {.kind = MUSTER_REGISTRY_GET,
         .key = text_bytes(former->dead_prefix),
         .reach = MUSTER_REGISTRY_PREFIX}};
    struct muster_registry_txn txn = {.success = steps, .success_count = 3};

    former->op.data = former;
    former->rc = muster_registry_txn_start(&former->op, run_registry_client(former->run), &txn,
                                           former_after(former, REQUEST_NS), on_read);
    former->is_busy = former->rc == MUSTER_OK;
}

/* On this host the system says so. A member of another host is dead when its lease has run out:
 * this launcher holds the place, so the former one is gone, and its members end with it. */
static bool former_is_dead(const struct run_former *former, const struct former_member *member)
{
    const char *key = getenv("MUSTER_HOST_KEY");
    const struct muster_member *who = &member->member;

    if (key == NULL || key[0] == '\0')
        key = muster_host_key(former->run->env->host);
    if (strcmp(who->host_key, key) == 0)
        return run_claim_is_dead(former->run->env, who->host_key, who->pid, who->started);
    return !member->is_registered;
}

static struct former_member *former_next_dead(struct run_former *former)
{
    for (size_t i = 0; i < former->count; i++)
        if (!former->members[i].is_settled && former_is_dead(former, &former->members[i]))
            return &former->members[i];
    return NULL;
}

static void former_write(struct run_former *former);

static void on_written(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_former *former = op->data;

    former->is_putting = false;
    former->rc = rc;
    if (rc == MUSTER_OK)
        former_write(former);
    else
        former->writing->is_settled = false; /* another attempt after the next look */
}

static void former_write(struct run_former *former)
{
    struct former_member *member = former_next_dead(former);
    const struct run_settings *settings = &former->run->settings;
    char incarnation[MUSTER_INCARNATION_TEXT_BYTES];
    const char *how = settings->is_force_new ? GIVEN_UP : RUN_DEATH_WITH_LAUNCHER;

    MUSTER_ASSERT(!former->is_putting);
    if (member == NULL)
        return;
    snprintf(former->key, sizeof(former->key), "%s%s", former->dead_prefix,
             muster_incarnation_format(&member->member.incarnation, incarnation));
    former->put.data = former;
    former->is_putting =
        muster_registry_put_start(&former->put, run_registry_client(former->run),
                                  text_bytes(former->key), text_bytes(how), 0,
                                  former_after(former, REQUEST_NS), on_written) == MUSTER_OK;
    member->is_settled = former->is_putting;
    former->writing = member;
}

/* The number of members that are not known to be dead. */
static size_t former_count_rest(const struct run_former *former)
{
    size_t rest = 0;

    for (size_t i = 0; i < former->count; i++)
        rest += former->members[i].is_settled ? 0 : 1;
    return rest;
}

/* Write the names of those members into text, as far as there is room. Returns their number. */
static size_t former_name_rest(const struct run_former *former, char *text, size_t room)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < former->count; i++) {
        const struct muster_member *who = &former->members[i].member;
        char address[MUSTER_ADDRESS_TEXT_BYTES];

        if (former->members[i].is_settled)
            continue;
        if (length < room)
            length += (size_t)snprintf(text + length, room - length, "%s%s:%u (%s, pid %lld)",
                                       length > 0 ? ", " : "", who->task_type, who->task_index,
                                       muster_address_format(&who->address, address),
                                       (long long)who->pid);
    }
    return former_count_rest(former);
}

static void former_tell(struct run_former *former)
{
    uint64_t now_ns = muster_loop_now_ns(former->run->env->loop);
    char names[400];

    if (run_outcome_has_begun(former->run) || now_ns < former->tell_ns ||
        former_name_rest(former, names, sizeof(names)) == 0)
        return;
    former->tell_ns = now_ns + TELL_AGAIN_NS;
    run_tell(former->run,
             "waits for members of a former launcher, which live or are registered: %s; end them, "
             "or take them over with --resume",
             names);
}

/* Each round writes what the last read has shown, then reads again. The timer ends when every
 * member of the former launcher is settled. */
static void on_again(struct muster_timer *timer)
{
    struct run_former *former = timer->data;

    if (!former->is_busy && !former->is_putting && run_claim_is_held(former->run)) {
        former_write(former);
        former_tell(former);
        if (former->has_looked && !former->is_putting && former_count_rest(former) == 0)
            return;
        if (!former->is_putting)
            former_read(former);
    }
    muster_timer_start(timer, former->run->env->loop, former_after(former, AGAIN_NS));
}

/* With --force-new members of other machines are meant too, so a registered one is an error and not
 * something to wait for. */
static bool former_refuse(struct run_former *former, int *ret_exit)
{
    char names[400];

    if (!former->run->settings.is_force_new || former_name_rest(former, names, sizeof(names)) == 0)
        return true;
    run_log_error("--force-new: these members of job %s are registered, so they live: %s; "
                  "end them, or, if they have just died, try again in 10 s",
                  former->run->settings.job_name, names);
    *ret_exit = EXIT_UNAVAILABLE;
    return false;
}

bool run_former_confirm(struct run *run, int *ret_exit)
{
    struct run_former *former;

    MUSTER_ASSERT(run->former == NULL);
    if (run->settings.is_embedded)
        return true;
    former = run->former = calloc(1, sizeof(*former));
    if (former == NULL)
        output_no_memory();
    former->run = run;
    muster_timer_init(&former->again, on_again, former);
    snprintf(former->view_key, KEY_BYTES, "/muster/%s/view", run->settings.job_name);
    snprintf(former->members_prefix, KEY_BYTES, "/muster/%s/members/", run->settings.job_name);
    snprintf(former->dead_prefix, KEY_BYTES, "/muster/%s/dead/", run->settings.job_name);
    former->tell_ns = former_after(former, TELL_FIRST_NS);
    former_read(former);
    while (former->is_busy)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    if (former->rc == MUSTER_OK && run_claim_is_held(run))
        former_write(former);
    while (former->is_putting)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    muster_timer_start(&former->again, run->env->loop, former_after(former, AGAIN_NS));
    if (former->rc == MUSTER_OK || !run->settings.is_force_new)
        return former_refuse(former, ret_exit);
    run_log_error("--force-new: the registry at %s does not answer", run_registry_endpoint(run));
    *ret_exit = EXIT_UNAVAILABLE;
    return false;
}

void run_former_close(struct run *run)
{
    struct run_former *former = run->former;

    if (former == NULL)
        return;
    muster_timer_stop(&former->again);
    if (former->is_busy)
        muster_registry_op_cancel(&former->op);
    if (former->is_putting)
        muster_registry_op_cancel(&former->put);
    while (former->is_busy || former->is_putting)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    free(former->members);
    free(former);
    run->former = NULL;
}
