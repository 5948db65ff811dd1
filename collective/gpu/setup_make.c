/* The part of a setup that uses the device: a unique id, and the communicator itself. Its events lead back to the
 * rounds of setup.c; a member that fails alarms the others, whose libraries would wait for it. */
#include "collective/gpu/setup_internal.h"

#include <muster/hash.h>

#include <stdio.h>

static void set_word_error(struct muster_gpu_setup *setup, const struct muster_error *error)
{
    setup->word.rc = error->rc;
    snprintf(setup->word.text, sizeof(setup->word.text), "%.*s", (int)sizeof(setup->word.text) - 1,
             error->rc != MUSTER_OK ? error->text : "");
}

/* When one member has failed nobody's communicator comes up: without the alarm NCCL waits on the others until
 * init_timeout_ns. A member that fails because of an alarm (CANCELLED) sends none. */
static void send_alarm(struct muster_gpu_setup *setup)
{
    struct muster_group *group = setup->group->group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_ALARM,
        .epoch = group->view->epoch,
        .op = muster_gpu_setup_round_id(setup, MUSTER_GPU_SETUP_OUTCOME),
    };

    if (group->is_frozen) /* the change of members ends the setup on all */
        return;
    for (uint32_t i = 0; i < setup->count; i++)
        if (i != setup->index)
            muster_wire_send(group->wire, muster_op_participant_rank(group, &header.op, i), &header,
                             NULL, NULL);
}

void muster_gpu_setup_start_outcome(struct muster_gpu_setup *setup,
                                    const struct muster_error *error)
{
    set_word_error(setup, error);
    setup->step = MUSTER_GPU_SETUP_OUTCOME;
    if (error->rc != MUSTER_OK && error->rc != MUSTER_CANCELLED)
        send_alarm(setup);
    muster_gpu_setup_start_round(setup);
}

/* --- Another member has failed --- */

static bool is_alarmed(const struct muster_gpu_setup *setup)
{
    struct muster_op_id id = muster_gpu_setup_round_id(setup, MUSTER_GPU_SETUP_OUTCOME);

    return setup->group->has_alarm && muster_op_id_compare(&setup->group->alarm, &id) == 0;
}

static void give_way(struct muster_gpu_setup *setup)
{
    struct muster_error why;

    muster_gpu_communicator_release(setup->comm, false);
    setup->comm = NULL;
    muster_error_set(&why, MUSTER_CANCELLED, "another rank has failed");
    muster_gpu_setup_start_outcome(setup, &why);
}

void muster_gpu_setup_hear_alarm(struct muster_gpu_setup *setup)
{
    if (setup->step == MUSTER_GPU_SETUP_MAKE && is_alarmed(setup))
        give_way(setup);
}

static void on_comm_ready(struct muster_gpu_communicator *comm)
{
    muster_gpu_setup_start_outcome(comm->data, &(struct muster_error){.rc = MUSTER_OK});
}

static void on_comm_failed(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_setup *setup = comm->data;
    struct muster_error why = comm->error;

    muster_gpu_communicator_release(comm, false);
    setup->comm = NULL;
    muster_gpu_setup_start_outcome(setup, &why);
}

/* The communicator has not returned from its call, and is left to end in the background; or it has ended without an
 * error of its own. */
static void on_comm_stopped(struct muster_gpu_communicator *comm)
{
    if (comm->error.rc == MUSTER_OK)
        muster_error_set(&comm->error, MUSTER_UNAVAILABLE,
                         "communicator %s: it has ended before it was up", comm->name);
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

/* The library wants the id from new members and from the one that made it, and NULL from the others. */
static void start_grow(struct muster_gpu_setup *setup, const struct muster_nccl_id *id)
{
    bool is_old = setup->index < setup->plan.old_count;
    bool has_id = !is_old || setup->index == 0;

    muster_gpu_communicator_start_grow(setup->comm, is_old ? setup->group->comm : NULL,
                                       has_id ? id : NULL);
}

/* An operation that was cancelled, or was late, while the members talked has taken the old communicator along. */
static bool has_lost_parent(const struct muster_gpu_setup *setup, struct muster_error *ret_error)
{
    bool is_needed =
        setup->plan.kind == MUSTER_GPU_PLAN_SHRINK ||
        (setup->plan.kind == MUSTER_GPU_PLAN_GROW && setup->index < setup->plan.old_count);

    if (!is_needed || muster_gpu_communicator_can_be_parent(setup->group->comm))
        return false;
    muster_error_set(ret_error, MUSTER_UNAVAILABLE, "the old communicator has ended");
    return true;
}

void muster_gpu_setup_start_make(struct muster_gpu_setup *setup, const struct muster_nccl_id *id)
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

    setup->step = MUSTER_GPU_SETUP_MAKE;
    if (is_alarmed(setup)) { /* Another member had failed before this one came so far. */
        give_way(setup);
        return;
    }
    if (has_lost_parent(setup, &why) ||
        muster_gpu_communicator_new(&options, &setup->comm, &why) != MUSTER_OK) {
        muster_gpu_setup_start_outcome(setup, &why);
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
        muster_gpu_setup_start_outcome(setup, &why);
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
    setup->step = MUSTER_GPU_SETUP_ID;
    muster_gpu_setup_start_round(setup);
}

static void give_parent_back(struct muster_gpu_setup *setup)
{
    struct muster_gpu_communicator *lender = setup->lender;

    setup->lender = NULL;
    if (lender != NULL)
        muster_gpu_communicator_take_back(lender);
}

static void on_id_made(struct muster_gpu_request *request)
{
    struct muster_gpu_setup *setup = request->data;

    give_parent_back(setup);
    setup->is_request_open = false;
    /* At another step it was late: the round has gone on without the id. */
    if (muster_gpu_setup_is_dropped(setup) || setup->step != MUSTER_GPU_SETUP_MAKE_ID)
        return;
    setup->word.id = setup->made_id;
    start_id(setup, &setup->answer);
}

static void on_id_late(struct muster_gpu_request *request)
{
    struct muster_gpu_setup *setup = request->data;
    struct muster_error why;

    /* Its end is tried all the same: waiting for a call that may never return would keep it for ever. */
    give_parent_back(setup);
    muster_error_set(&why, MUSTER_DEADLINE_EXCEEDED, "the unique id took too long");
    if (setup->group != NULL) {
        start_id(setup, &why);
    } else if (!setup->is_left) { /* closing does not wait for it */
        setup->is_left = true;
        setup->backend->setup_count--;
        muster_gpu_backend_settle(setup->backend);
    }
}

void muster_gpu_setup_make_id(struct muster_gpu_setup *setup)
{
    const struct muster_error fine = {.rc = MUSTER_OK};
    struct muster_gpu_device *device = &setup->backend->device;

    setup->step = MUSTER_GPU_SETUP_MAKE_ID;
    if (setup->index != 0) {
        start_id(setup, &fine);
        return;
    }
    if (has_lost_parent(setup, &setup->answer)) {
        start_id(setup, &setup->answer);
        return;
    }
    setup->answer = fine;
    setup->parent = NULL;
    if (setup->plan.kind == MUSTER_GPU_PLAN_GROW) {
        setup->lender = setup->group->comm;
        setup->parent = muster_gpu_communicator_lend(setup->lender);
    }
    setup->request.data = setup;
    setup->request.work = work_make_id;
    setup->request.on_answer = on_id_made;
    setup->request.on_late = on_id_late;
    /* It is not idle while the id of an earlier attempt, which was late, is still made. */
    if (setup->request.state == MUSTER_GPU_REQUEST_IDLE &&
        muster_gpu_control_start(device->control, &setup->request, device->init_timeout_ns) ==
            MUSTER_OK) {
        setup->is_request_open = true;
        return;
    }
    give_parent_back(setup);
    muster_error_set(&setup->answer, MUSTER_RESOURCE_EXHAUSTED,
                     "the queue of device calls is full");
    start_id(setup, &setup->answer);
}
