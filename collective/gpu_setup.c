/* One setup: a few small all_gathers in host memory around the making of a communicator. */
#include "collective/gpu_internal.h"

#include <muster/hash.h>

#include <stdio.h>
#include <string.h>

#define ATTEMPT_MAX_DEFAULT 3u
#define STEPS_PER_ATTEMPT   4u /* ids of a setup: occasion * 16 + attempt * 4 + step */
#define IDS_PER_OCCASION    16u

enum setup_step {
    SETUP_REST,     /* the old communicator comes to rest */
    SETUP_STANDING, /* what has everybody? */
    SETUP_REVOKE,   /* shrink: quiet here, revoked elsewhere: the same everywhere */
    SETUP_MAKE_ID,  /* the first member makes the id … */
    SETUP_ID,       /* … and all get it */
    SETUP_MAKE,     /* the communicator comes up, or not */
    SETUP_OUTCOME,  /* on all? */
};

/** What a member has come to; the same size for all three rounds. */
struct setup_word {
    struct muster_gpu_standing standing;
    struct muster_nccl_id id;
    uint32_t rc;
    char text[100];
};

struct muster_gpu_setup {
    struct muster_gpu_group *group; /* NULL: dropped, freed when nothing of it is under way */
    struct muster_gpu_backend *backend;
    struct muster_op_id occasion;
    enum setup_step step;
    uint32_t attempt;
    uint32_t count, index; /* participants */
    struct muster_op op;
    bool is_op_open, is_request_open, is_left;
    struct muster_gpu_request request;
    struct muster_nccl_id made_id;
    struct muster_error answer;      /* of make_id; written on the thread */
    struct muster_nccl_comm *parent; /* grow: of made_id */
    struct muster_gpu_communicator *comm;
    struct muster_gpu_plan plan;
    struct setup_word word;
    struct setup_word *words; /* of all */
};

/* --- The plan (pure) --- */

static bool have_parent(const struct muster_gpu_standing *standings, uint32_t count,
                        enum muster_gpu_parent least)
{
    for (uint32_t i = 0; i < count; i++)
        if (standings[i].parent == MUSTER_GPU_PARENT_NONE ||
            (least == MUSTER_GPU_PARENT_READY && standings[i].parent != MUSTER_GPU_PARENT_READY) ||
            standings[i].parent_key != standings[0].parent_key ||
            (i > 0 && standings[i].parent_rank <= standings[i - 1].parent_rank))
            return false;
    return true;
}

static bool have_feature(const struct muster_gpu_standing *standings, uint32_t count,
                         unsigned feature)
{
    for (uint32_t i = 0; i < count; i++)
        if ((standings[i].features & feature) == 0)
            return false;
    return true;
}

/* New ranks come after the old ones, so the old ones must be the first. */
static bool can_grow(const struct muster_gpu_standing *standings, uint32_t count)
{
    uint32_t old = standings[0].parent_count;

    if (standings[0].parent == MUSTER_GPU_PARENT_NONE || old >= count ||
        !have_parent(standings, old, MUSTER_GPU_PARENT_READY))
        return false;
    for (uint32_t i = old; i < count; i++)
        if (standings[i].parent != MUSTER_GPU_PARENT_NONE &&
            standings[i].parent_key == standings[0].parent_key)
            return false;
    return have_feature(standings, count, MUSTER_NCCL_GROW);
}

static bool find_stranger(const struct muster_gpu_standing *standings, uint32_t count,
                          struct muster_error *ret_error)
{
    for (uint32_t i = 1; i < count; i++) {
        if (standings[i].version == standings[0].version)
            continue;
        muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                         "rank %u has NCCL %u, rank 0 %u: all need the same", i,
                         standings[i].version, standings[0].version);
        return true;
    }
    return false;
}

struct muster_gpu_plan muster_gpu_plan_make(const struct muster_gpu_standing *standings,
                                            uint32_t count)
{
    struct muster_gpu_plan plan = {.kind = MUSTER_GPU_PLAN_INIT};
    uint32_t old = standings[0].parent_count;

    if (find_stranger(standings, count, &plan.error)) {
        plan.kind = MUSTER_GPU_PLAN_REFUSE;
    } else if (can_grow(standings, count)) {
        plan.kind = MUSTER_GPU_PLAN_GROW;
        plan.old_count = old;
    } else if (have_parent(standings, count, MUSTER_GPU_PARENT_READY) && old == count) {
        plan.kind = MUSTER_GPU_PLAN_KEEP;
    } else if (have_parent(standings, count, MUSTER_GPU_PARENT_REVOKED) && old > count &&
               have_feature(standings, count, MUSTER_NCCL_SHRINK)) {
        plan.kind = MUSTER_GPU_PLAN_SHRINK;
    }
    return plan;
}

/* --- Life --- */

static void setup_free(struct muster_gpu_setup *setup)
{
    struct muster_gpu_backend *backend = setup->backend;

    if (!setup->is_left)
        backend->setup_count--;
    muster_mem_free(backend->env->mem, setup->words);
    muster_mem_free(backend->env->mem, setup);
    muster_gpu_backend_settle(backend);
}

static bool is_dropped(struct muster_gpu_setup *setup)
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
    (void)is_dropped(setup);
}

static void end(struct muster_gpu_setup *setup, const struct muster_error *why)
{
    struct muster_gpu_group *group = setup->group;
    struct muster_gpu_communicator *comm = setup->comm;

    setup->comm = NULL;
    setup->group = NULL;
    if (why->rc != MUSTER_OK) {
        muster_gpu_communicator_release(comm, false);
        comm = NULL;
        MUSTER_LOG(group->backend->env, ERROR, "gpu_setup_failed", "why", why->text);
    }
    muster_gpu_group_set_up(group, comm, why);
    (void)is_dropped(setup);
}

/* --- Rounds --- */

static void on_round(struct muster_op *op, enum muster_rc rc);

static void start_round(struct muster_gpu_setup *setup)
{
    struct muster_group *group = setup->group->group;
    struct muster_gpu_device *device = &setup->backend->device;
    uint64_t wait_ns = 2 * (device->init_timeout_ns + device->abort_timeout_ns);
    struct muster_op_id id = setup->occasion;
    struct muster_error why;
    enum muster_rc rc;

    id.lane = setup->backend->options.lane + 1;
    id.sequence = id.sequence * IDS_PER_OCCASION + setup->attempt * STEPS_PER_ATTEMPT +
                  (setup->step == SETUP_STANDING ? 0
                   : setup->step == SETUP_ID     ? 1
                                                 : 2);
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
    end(setup, &why);
}

static void set_word_error(struct muster_gpu_setup *setup, const struct muster_error *error)
{
    setup->word.rc = error->rc;
    snprintf(setup->word.text, sizeof(setup->word.text), "%.*s", (int)sizeof(setup->word.text) - 1,
             error->rc != MUSTER_OK ? error->text : "");
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
    if (setup->attempt == 0 && comm != NULL && muster_gpu_communicator_is_quiet(comm)) {
        standing->parent =
            comm->state == MUSTER_GPU_READY ? MUSTER_GPU_PARENT_READY : MUSTER_GPU_PARENT_REVOKED;
        standing->parent_rank = comm->rank;
        standing->parent_count = comm->count;
        standing->parent_key = comm->key;
    }
    setup->step = SETUP_STANDING;
    start_round(setup);
}

/* --- Making --- */

static void start_outcome(struct muster_gpu_setup *setup, const struct muster_error *error)
{
    set_word_error(setup, error);
    setup->step = SETUP_OUTCOME;
    start_round(setup);
}

static void on_comm_ready(struct muster_gpu_communicator *comm)
{
    start_outcome(comm->data, &(struct muster_error){.rc = MUSTER_OK});
}

static void on_comm_failed(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_setup *setup = comm->data;
    struct muster_error why = comm->error;

    muster_gpu_communicator_release(comm, false);
    setup->comm = NULL;
    start_outcome(setup, &why);
}

/* It has not returned from its call: what becomes of it is seen in the background. */
static void on_comm_stopped(struct muster_gpu_communicator *comm)
{
    on_comm_failed(comm);
}

static const struct muster_gpu_communicator_events making_events = {
    .on_ready = on_comm_ready,
    .on_failed = on_comm_failed,
    .on_stopped = on_comm_stopped,
};

/* The same on all members, never twice. */
static uint64_t key_of(const struct muster_gpu_setup *setup)
{
    const struct muster_view *view = setup->group->group->view;
    const uint64_t words[] = {view->epoch, view->digest, setup->occasion.step,
                              setup->occasion.sequence, setup->attempt};

    return muster_hash64(words, sizeof(words), 0);
}

/* Ranks of the parent that nobody here had. */
static uint32_t find_excluded(const struct muster_gpu_setup *setup, uint32_t *excluded)
{
    uint32_t count = 0, next = 0;

    for (uint32_t i = 0; i < setup->count; i++) {
        while (next < setup->words[i].standing.parent_rank)
            excluded[count++] = next++;
        next++;
    }
    while (next < setup->words[0].standing.parent_count)
        excluded[count++] = next++;
    return count;
}

static enum muster_rc start_shrink(struct muster_gpu_setup *setup)
{
    struct muster_mem *mem = setup->backend->env->mem;
    uint32_t *excluded =
        muster_mem_alloc_zero(mem, setup->words[0].standing.parent_count, sizeof(*excluded));

    if (excluded == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_gpu_communicator_start_shrink(setup->comm, setup->group->comm, excluded,
                                         find_excluded(setup, excluded));
    muster_mem_free(mem, excluded);
    return MUSTER_OK;
}

static void start_grow(struct muster_gpu_setup *setup, const struct muster_nccl_id *id)
{
    bool is_old = setup->index < setup->plan.old_count;
    bool has_id = !is_old || setup->index == 0;

    muster_gpu_communicator_start_grow(setup->comm, is_old ? setup->group->comm : NULL,
                                       has_id ? id : NULL);
}

static void start_make(struct muster_gpu_setup *setup, const struct muster_nccl_id *id)
{
    struct muster_gpu_communicator_options options = {
        .device = &setup->backend->device,
        .events = &making_events,
        .data = setup,
        .key = key_of(setup),
        .count = setup->count,
        .rank = setup->index,
    };
    struct muster_error why;

    setup->step = SETUP_MAKE;
    if (muster_gpu_communicator_new(&options, &setup->comm, &why) != MUSTER_OK) {
        start_outcome(setup, &why);
        return;
    }
    if (setup->plan.kind == MUSTER_GPU_PLAN_GROW) {
        start_grow(setup, id);
    } else if (setup->plan.kind == MUSTER_GPU_PLAN_INIT) {
        muster_gpu_communicator_start_init(setup->comm, id);
    } else if (start_shrink(setup) != MUSTER_OK) {
        muster_error_set(&why, MUSTER_RESOURCE_EXHAUSTED, "no memory");
        muster_gpu_communicator_release(setup->comm, false);
        setup->comm = NULL;
        start_outcome(setup, &why);
    }
}

/* --- The id --- */

static void work_make_id(struct muster_gpu_request *request)
{
    struct muster_gpu_setup *setup = request->data;
    const struct muster_nccl *nccl = setup->backend->device.nccl;

    if (setup->parent != NULL)
        setup->answer.rc =
            muster_nccl_make_grow_id(nccl, setup->parent, &setup->made_id, &setup->answer);
    else
        setup->answer.rc = muster_nccl_make_id(nccl, &setup->made_id, &setup->answer);
}

static void start_id(struct muster_gpu_setup *setup, const struct muster_error *error)
{
    set_word_error(setup, error);
    setup->step = SETUP_ID;
    start_round(setup);
}

static void on_id_made(struct muster_gpu_request *request)
{
    struct muster_gpu_setup *setup = request->data;

    setup->is_request_open = false;
    if (is_dropped(setup) || setup->step != SETUP_MAKE_ID)
        return;
    setup->word.id = setup->made_id;
    start_id(setup, &setup->answer);
}

static void on_id_late(struct muster_gpu_request *request)
{
    struct muster_gpu_setup *setup = request->data;
    struct muster_error why;

    muster_error_set(&why, MUSTER_DEADLINE_EXCEEDED, "the unique id took too long");
    if (setup->group != NULL) {
        start_id(setup, &why);
    } else if (!setup->is_left) { /* closing does not wait for it */
        setup->is_left = true;
        setup->backend->setup_count--;
        muster_gpu_backend_settle(setup->backend);
    }
}

static void make_id(struct muster_gpu_setup *setup)
{
    const struct muster_error fine = {.rc = MUSTER_OK};
    struct muster_gpu_device *device = &setup->backend->device;

    setup->step = SETUP_MAKE_ID;
    if (setup->index != 0) {
        start_id(setup, &fine);
        return;
    }
    setup->answer = fine;
    setup->parent = setup->plan.kind == MUSTER_GPU_PLAN_GROW ? setup->group->comm->nccl : NULL;
    setup->request.data = setup;
    setup->request.work = work_make_id;
    setup->request.on_answer = on_id_made;
    setup->request.on_late = on_id_late;
    if (setup->request.state == MUSTER_GPU_REQUEST_IDLE &&
        muster_gpu_control_start(device->control, &setup->request, device->init_timeout_ns) ==
            MUSTER_OK) {
        setup->is_request_open = true;
        return;
    }
    muster_error_set(&setup->answer, MUSTER_RESOURCE_EXHAUSTED,
                     "the queue of device calls is full");
    start_id(setup, &setup->answer);
}

/* --- After each round --- */

static void let_old_go(struct muster_gpu_setup *setup, bool is_orderly)
{
    struct muster_gpu_communicator *old = setup->group->comm;

    setup->group->comm = NULL;
    muster_gpu_communicator_release(old, is_orderly);
}

static void start_shrinking(struct muster_gpu_setup *setup)
{
    bool is_revoked_somewhere = false;

    for (uint32_t i = 0; i < setup->count; i++)
        is_revoked_somewhere |= setup->words[i].standing.parent == MUSTER_GPU_PARENT_REVOKED;
    if (!is_revoked_somewhere || setup->group->comm->state == MUSTER_GPU_REVOKED) {
        start_make(setup, NULL);
        return;
    }
    setup->step = SETUP_REVOKE;
    muster_gpu_communicator_stop(setup->group->comm);
}

static void carry_out(struct muster_gpu_setup *setup)
{
    switch (setup->plan.kind) {
    case MUSTER_GPU_PLAN_KEEP:
        setup->comm = setup->group->comm;
        end(setup, &(struct muster_error){.rc = MUSTER_OK});
        return;
    case MUSTER_GPU_PLAN_SHRINK:
        start_shrinking(setup);
        return;
    case MUSTER_GPU_PLAN_GROW:
        make_id(setup);
        return;
    case MUSTER_GPU_PLAN_INIT:
        let_old_go(setup, false);
        make_id(setup);
        return;
    case MUSTER_GPU_PLAN_REFUSE:
        end(setup, &setup->plan.error);
        return;
    }
}

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

/* The first member that has failed; setup->count: none. */
static uint32_t find_failure(const struct muster_gpu_setup *setup, struct muster_error *ret_why)
{
    for (uint32_t i = 0; i < setup->count; i++) {
        const struct setup_word *word = &setup->words[i];

        if (word->rc == MUSTER_OK)
            continue;
        muster_error_set(ret_why, MUSTER_UNAVAILABLE, "no communicator: rank %u: %.*s", i,
                         (int)sizeof(word->text) - 1, word->text);
        return i;
    }
    return setup->count;
}

static void try_again(struct muster_gpu_setup *setup, const struct muster_error *why)
{
    setup->backend->counters.failed_count++;
    MUSTER_LOG(setup->backend->env, WARN, "gpu_setup_again", "attempt", setup->attempt + 1, "why",
               why->text);
    if (setup->attempt + 1 >= setup->backend->options.attempt_max) {
        end(setup, why);
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
    end(setup, &why);
}

static void use_id(struct muster_gpu_setup *setup)
{
    struct muster_error why;

    if (setup->words[0].rc == MUSTER_OK) {
        start_make(setup, &setup->words[0].id);
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
    if (is_dropped(setup))
        return;
    if (rc == MUSTER_OK && setup->step == SETUP_STANDING)
        rc = use_standings(setup);
    if (rc != MUSTER_OK) {
        muster_error_set(&why, MUSTER_UNAVAILABLE, "no communicator: %s", op->error.text);
        end(setup, &why);
    } else if (setup->step == SETUP_STANDING) {
        carry_out(setup);
    } else if (setup->step == SETUP_ID) {
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

    if (setup->step == SETUP_REVOKE && setup->group->comm->state == MUSTER_GPU_REVOKED) {
        start_make(setup, NULL);
        return;
    }
    if (setup->step == SETUP_REVOKE) {
        muster_error_set(&why, MUSTER_UNAVAILABLE, "the old communicator could not be revoked");
        start_outcome(setup, &why);
        return;
    }
    if (setup->step == SETUP_REST && is_at_rest(setup->group->comm))
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
    setup->step = SETUP_REST;
    group->setup = setup;
    group->backend->setup_count++;
    muster_gpu_setup_proceed(setup);
    return group->setup;
}
