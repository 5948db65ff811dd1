/* One setup: a few small all_gathers in host memory around the making of a communicator. The library hangs on all
 * members if one of them does something else, so all see all standings first (plan.c decides), and all hear at the
 * end whether it is up on all. group.c starts a setup; setup_make.c uses the device. */
#include "collective/gpu/setup_internal.h"

#include <string.h>

/* Ids of the rounds: occasion * 16 + attempt * 4 + round, the same on all members without an agreement. */
#define STEPS_PER_ATTEMPT 4u
#define IDS_PER_OCCASION  16u

/* --- Life --- */

/* A setup that is left behind by a late call has been counted off already (setup_make.c, on_id_late). */
static void setup_free(struct muster_gpu_setup *setup)
{
    struct muster_gpu_backend *backend = setup->backend;

    if (!setup->is_left)
        backend->setup_count--;
    muster_mem_free(backend->env->mem, setup->words);
    muster_mem_free(backend->env->mem, setup);
    muster_gpu_backend_settle(backend);
}

bool muster_gpu_setup_is_dropped(struct muster_gpu_setup *setup)
{
    if (setup->group != NULL)
        return false;
    if (!setup->is_op_open && !setup->is_request_open)
        setup_free(setup);
    return true;
}

void muster_gpu_setup_drop(struct muster_gpu_setup *setup)
{
    if (setup == NULL)
        return;
    muster_gpu_communicator_release(setup->comm, false);
    setup->comm = NULL;
    setup->group = NULL;
    (void)muster_gpu_setup_is_dropped(setup);
}

static void end_setup(struct muster_gpu_setup *setup, const struct muster_error *why)
{
    struct muster_gpu_group *group = setup->group;
    struct muster_gpu_communicator *comm = setup->comm;

    MUSTER_ASSERT(group != NULL && !setup->is_op_open);
    setup->comm = NULL;
    setup->group = NULL;
    if (why->rc != MUSTER_OK) {
        muster_gpu_communicator_release(comm, false);
        comm = NULL;
        MUSTER_LOG(group->backend->env, ERROR, "gpu_setup_failed", "reason", why->text);
    }
    muster_gpu_group_set_up(group, comm, why);
    (void)muster_gpu_setup_is_dropped(setup);
}

/* --- Rounds --- */

static void on_round(struct muster_op *op, enum muster_rc rc);

struct muster_op_id muster_gpu_setup_round_id(const struct muster_gpu_setup *setup,
                                              enum muster_gpu_setup_step step)
{
    struct muster_op_id id = setup->occasion;
    uint32_t round = step == MUSTER_GPU_SETUP_STANDING ? 0 : step == MUSTER_GPU_SETUP_ID ? 1 : 2;

    id.lane = setup->backend->options.lane + 1;
    id.sequence = id.sequence * IDS_PER_OCCASION + setup->attempt * STEPS_PER_ATTEMPT + round;
    return id;
}

void muster_gpu_setup_start_round(struct muster_gpu_setup *setup)
{
    struct muster_group *group = setup->group->group;
    struct muster_gpu_device *device = &setup->backend->device;
    uint64_t wait_ns = 2 * (device->init_timeout_ns + device->abort_timeout_ns);
    struct muster_op_id id = muster_gpu_setup_round_id(setup, setup->step);
    struct muster_error why;
    enum muster_rc rc;

    MUSTER_ASSERT(!setup->is_op_open);
    /* The slowest member may still be in the making of a communicator, and then in its abort. */
    setup->op.data = setup;
    setup->op.lane = id.lane;
    setup->op.deadline_ns = muster_loop_after_ns(group->env->loop, wait_ns);
    rc = muster_group_start_call(&setup->op, group,
                                 &(struct muster_op_call){
                                     .kind = MUSTER_OP_ALL_GATHER,
                                     .dtype = MUSTER_U8,
                                     .count = setup->count * sizeof(setup->word),
                                     .part_count = sizeof(setup->word),
                                     .n = setup->count,
                                     .input = &setup->word,
                                     .output = setup->words,
                                     .device = {.kind = MUSTER_DEVICE_SETUP, .id = id},
                                 },
                                 on_round);
    setup->is_op_open = rc == MUSTER_OK;
    if (rc == MUSTER_OK)
        return;
    muster_error_set(&why, MUSTER_UNAVAILABLE, "the members cannot talk about a communicator: %s",
                     muster_rc_text(rc));
    end_setup(setup, &why);
}

static void start_standing(struct muster_gpu_setup *setup)
{
    const struct muster_gpu_communicator *comm = setup->group->comm;
    struct muster_gpu_standing *standing = &setup->word.standing;
    const struct muster_nccl *nccl = setup->backend->device.nccl;

    memset(&setup->word, 0, sizeof(setup->word));
    standing->version = (uint32_t)muster_nccl_version(nccl);
    standing->features = muster_nccl_features(nccl);
    standing->attempt = setup->attempt;
    /* Only the first attempt builds on the old communicator; later ones begin anew. A call of a setup that a change
     * has dropped may still use it: it ends with that call. */
    if (setup->attempt == 0 && muster_gpu_communicator_can_be_parent(comm)) {
        standing->parent =
            comm->state == MUSTER_GPU_READY ? MUSTER_GPU_PARENT_READY : MUSTER_GPU_PARENT_REVOKED;
        standing->parent_rank = comm->rank;
        standing->parent_count = comm->count;
        standing->parent_key = comm->key;
    }
    setup->step = MUSTER_GPU_SETUP_STANDING;
    muster_gpu_setup_start_round(setup);
}

/* --- After each round --- */

/* The old communicator is released when nothing is made of it any more; in order only if all its members do so. */
static void let_old_go(struct muster_gpu_setup *setup, bool is_orderly)
{
    struct muster_gpu_communicator *old = setup->group->comm;

    setup->group->comm = NULL;
    muster_gpu_communicator_release(old, is_orderly);
}

/* A parent that is revoked on one member must be revoked on all before it is shrunk. One that has ended since its
 * standing was told is none: muster_gpu_setup_start_make says so to all. */
static void start_shrinking(struct muster_gpu_setup *setup)
{
    bool is_revoked_somewhere = false;

    for (uint32_t i = 0; i < setup->count; i++)
        is_revoked_somewhere |= setup->words[i].standing.parent == MUSTER_GPU_PARENT_REVOKED;
    if (!is_revoked_somewhere || setup->group->comm->state == MUSTER_GPU_REVOKED ||
        !muster_gpu_communicator_can_be_parent(setup->group->comm)) {
        muster_gpu_setup_start_make(setup, NULL);
        return;
    }
    setup->step = MUSTER_GPU_SETUP_REVOKE;
    muster_gpu_communicator_stop(setup->group->comm);
}

static void carry_out(struct muster_gpu_setup *setup)
{
    switch (setup->plan.kind) {
    case MUSTER_GPU_PLAN_KEEP:
        setup->comm = setup->group->comm;
        end_setup(setup, &(struct muster_error){.rc = MUSTER_OK});
        return;
    case MUSTER_GPU_PLAN_SHRINK:
        start_shrinking(setup);
        return;
    case MUSTER_GPU_PLAN_GROW:
        muster_gpu_setup_make_id(setup);
        return;
    case MUSTER_GPU_PLAN_INIT:
        let_old_go(setup, false);
        muster_gpu_setup_make_id(setup);
        return;
    case MUSTER_GPU_PLAN_REFUSE:
        end_setup(setup, &setup->plan.error);
        return;
    }
}

/* plan.c knows no rounds: it gets the standings without the words around them. */
static enum muster_rc use_standings(struct muster_gpu_setup *setup)
{
    struct muster_gpu_standing *standings =
        muster_mem_alloc_zero(setup->backend->env->mem, setup->count, sizeof(*standings));

    if (standings == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < setup->count; i++)
        standings[i] = setup->words[i].standing;
    setup->plan = muster_gpu_plan_make(standings, setup->count);
    muster_mem_free(setup->backend->env->mem, standings);
    return MUSTER_OK;
}

/* The first member that has failed by itself, or else the first that has failed; setup->count: none. */
static uint32_t find_failure(const struct muster_gpu_setup *setup, struct muster_error *ret_why)
{
    uint32_t found = setup->count;

    for (uint32_t i = 0; i < setup->count; i++) {
        enum muster_rc rc = (enum muster_rc)setup->words[i].rc;

        if (rc != MUSTER_OK &&
            (found == setup->count ||
             (setup->words[found].rc == MUSTER_CANCELLED && rc != MUSTER_CANCELLED)))
            found = i;
    }
    if (found < setup->count)
        muster_error_set(ret_why, MUSTER_UNAVAILABLE, "no communicator: rank %u: %.*s", found,
                         (int)sizeof(setup->words[found].text) - 1, setup->words[found].text);
    return found;
}

/* All members have seen the same failure, so all try again, or all give up, in the same round. */
static void try_again(struct muster_gpu_setup *setup, const struct muster_error *why)
{
    setup->backend->counters.failed_count++;
    MUSTER_LOG(setup->backend->env, WARN, "gpu_setup_again", "attempt", setup->attempt + 1,
               "reason", why->text);
    if (setup->attempt + 1 >= setup->backend->options.attempt_max) {
        end_setup(setup, why);
        return;
    }
    muster_gpu_communicator_release(setup->comm, false);
    setup->comm = NULL;
    setup->attempt++;
    start_standing(setup);
}

static void count_success(struct muster_gpu_setup *setup)
{
    struct muster_gpu_counters *counters = &setup->backend->counters;

    if (setup->plan.kind == MUSTER_GPU_PLAN_SHRINK)
        counters->shrink_count++;
    else if (setup->plan.kind == MUSTER_GPU_PLAN_GROW)
        counters->grow_count++;
    else
        counters->init_count++;
}

static void use_outcomes(struct muster_gpu_setup *setup)
{
    struct muster_error why = {.rc = MUSTER_OK};

    if (find_failure(setup, &why) < setup->count) {
        try_again(setup, &why);
        return;
    }
    count_success(setup);
    if (setup->group->comm != NULL) /* grown: all members of the old one are there to end it */
        let_old_go(setup, setup->plan.kind == MUSTER_GPU_PLAN_GROW);
    end_setup(setup, &why);
}

static void use_id(struct muster_gpu_setup *setup)
{
    struct muster_error why;

    if (setup->words[0].rc == MUSTER_OK) {
        muster_gpu_setup_start_make(setup, &setup->words[0].id);
        return;
    }
    (void)find_failure(setup, &why);
    try_again(setup, &why);
}

static void on_round(struct muster_op *op, enum muster_rc rc)
{
    struct muster_gpu_setup *setup = op->data;
    struct muster_error why;

    setup->is_op_open = false;
    if (muster_gpu_setup_is_dropped(setup))
        return;
    if (rc == MUSTER_OK && setup->step == MUSTER_GPU_SETUP_STANDING)
        rc = use_standings(setup);
    if (rc != MUSTER_OK) {
        muster_error_set(&why, MUSTER_UNAVAILABLE, "no communicator: %s", op->error.text);
        end_setup(setup, &why);
    } else if (setup->step == MUSTER_GPU_SETUP_STANDING) {
        carry_out(setup);
    } else if (setup->step == MUSTER_GPU_SETUP_ID) {
        use_id(setup);
    } else {
        use_outcomes(setup);
    }
}

/* --- Beginning --- */

static bool is_at_rest(const struct muster_gpu_communicator *comm)
{
    return comm == NULL || muster_gpu_communicator_is_quiet(comm) ||
           muster_gpu_communicator_is_stopped(comm);
}

void muster_gpu_setup_proceed(struct muster_gpu_setup *setup)
{
    struct muster_error why;

    if (setup->step == MUSTER_GPU_SETUP_REVOKE && setup->group->comm->state == MUSTER_GPU_REVOKED) {
        muster_gpu_setup_start_make(setup, NULL);
        return;
    }
    if (setup->step == MUSTER_GPU_SETUP_REVOKE) {
        muster_error_set(&why, MUSTER_UNAVAILABLE, "the old communicator could not be revoked");
        muster_gpu_setup_start_outcome(setup, &why);
        return;
    }
    if (setup->step == MUSTER_GPU_SETUP_REST && is_at_rest(setup->group->comm))
        start_standing(setup);
}

struct muster_gpu_setup *muster_gpu_setup_start(struct muster_gpu_group *group,
                                                const struct muster_op_id *occasion)
{
    struct muster_mem *mem = group->backend->env->mem;
    struct muster_gpu_setup *setup = muster_mem_alloc_zero(mem, 1, sizeof(*setup));
    const struct muster_group *host = group->group;

    if (setup == NULL)
        return NULL;
    setup->group = group;
    setup->backend = group->backend;
    setup->occasion = *occasion;
    setup->count = muster_group_participants(host, occasion->step);
    setup->index = muster_group_participant_index(host, occasion->step, host->rank);
    setup->words = muster_mem_alloc_zero(mem, setup->count, sizeof(*setup->words));
    if (setup->words == NULL) {
        muster_mem_free(mem, setup);
        return NULL;
    }
    setup->step = MUSTER_GPU_SETUP_REST;
    group->setup = setup;
    group->backend->setup_count++;
    muster_gpu_setup_proceed(setup);
    return group->setup; /* not `setup`, which may have ended at once */
}
