/* A checkpoint that is being written. */
#include "training/strategy_saving.h"

#include <stdio.h>
#include <string.h>

#include "runtime/system/aside_system.h"
#include "runtime/system/folder_system.h"
#include "training/checkpoint/folder.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/writer.h"
#include "training/strategy_internal.h"

#define TIMEOUT_NS           (10 * 60 * MUSTER_NS_PER_S)
#define LOOK_INTERVAL_NS     (5 * MUSTER_NS_PER_MS)
#define LOOK_INTERVAL_MAX_NS (200 * MUSTER_NS_PER_MS)
#define DETACH_INTERVAL_NS   (2 * MUSTER_NS_PER_MS)

#define FROM(state) (1u << MUSTER_SAVING_##state)

/* The states from which each state is reached. */
static const uint8_t moves[] = {
    [MUSTER_SAVING_NONE] = FROM(WRITES) | FROM(AWAITED) | FROM(LOOKS),
    [MUSTER_SAVING_WRITES] = FROM(NONE),
    [MUSTER_SAVING_AWAITED] = FROM(WRITES) | FROM(LOOKS),
    [MUSTER_SAVING_LOOKS] = FROM(AWAITED),
};

static void saving_move(struct muster_strategy_saving *saving,
                        enum muster_strategy_saving_state state)
{
    MUSTER_ASSERT((moves[state] & 1u << saving->state) != 0);
    saving->state = state;
}

bool muster_strategy_saving_is_over(void *data)
{
    const struct muster_strategy *strategy = data;

    return strategy->saving.state == MUSTER_SAVING_NONE;
}

static void saving_free(struct muster_strategy *strategy)
{
    struct muster_strategy_saving *saving = &strategy->saving;

    muster_timer_stop(&saving->look_timer);
    muster_timer_stop(&saving->detach_timer);
    muster_aside_close(saving->aside);
    muster_aside_close(saving->copier);
    muster_checkpoint_writer_free(saving->writer);
    muster_checkpoint_close(saving->checkpoint);
    muster_mem_free(strategy->env->mem, saving->members);
    muster_mem_free(strategy->env->mem, saving->gone_marks);
    saving->aside = saving->copier = NULL;
    saving->writer = NULL;
    saving->checkpoint = NULL;
    saving->members = NULL;
    saving->gone_marks = NULL;
}

static void saving_end(struct muster_strategy *strategy, enum muster_rc rc, const char *text)
{
    struct muster_strategy_saving *saving = &strategy->saving;
    struct muster_strategy_checkpoint_result *result = &saving->running;

    result->duration_ns = muster_loop_clock_ns(strategy->env->loop) - saving->begun_ns;
    result->rc = rc;
    (void)snprintf(result->text, sizeof(result->text), "%s", rc != MUSTER_OK ? text : "");
    if (rc != MUSTER_OK) {
        saving->failed_id = saving->checkpoint->name.id;
        MUSTER_LOG(strategy->env, WARN, "checkpoint_abandoned", "step", result->step, "reason",
                   text);
    } else {
        MUSTER_LOG(strategy->env, INFO, "checkpoint_saved", "step", result->step, "ms",
                   result->duration_ns / MUSTER_NS_PER_MS, "copied", result->copied_bytes, "new",
                   result->new_bytes, "stall_us", result->stall_ns / 1000);
    }
    if (!saving->is_alone && rc != MUSTER_CANCELLED)
        muster_report_checkpoint(strategy->report, result->step, result->duration_ns,
                                 rc != MUSTER_OK ? text : NULL);
    saving->last = *result;
    saving_move(saving, MUSTER_SAVING_NONE);
    saving_free(strategy);
}

void muster_strategy_saving_abandon(struct muster_strategy *strategy, enum muster_rc rc,
                                    const char *text)
{
    if (strategy->saving.state == MUSTER_SAVING_NONE)
        return;
    muster_checkpoint_writer_cancel(strategy->saving.writer);
    saving_end(strategy, rc, text);
}

/* --- Copies --- */

static enum muster_rc chunks_copy(void *data)
{
    const struct muster_strategy *strategy = data;

    (void)muster_checkpoint_writer_copy(strategy->saving.writer);
    return MUSTER_OK;
}

/* Nobody waits for it: detach copies the rest, too. */
static void on_copied(void *data, enum muster_rc rc)
{
    struct muster_strategy *strategy = data;

    (void)rc;
    strategy->saving.is_copier_busy = false;
    if (strategy->saving.must_look)
        muster_strategy_saving_note_loss(strategy);
}

static bool is_detached(void *data)
{
    struct muster_strategy *strategy = data;
    struct muster_strategy_saving *saving = &strategy->saving;

    if (saving->state == MUSTER_SAVING_NONE || saving->is_detached)
        return true;
    saving->running.copied_bytes +=
        muster_checkpoint_writer_detach(saving->writer, &saving->is_detached);
    return saving->is_detached;
}

/* The wait looks again in the turn that ends it. */
static void on_detach_timer(struct muster_timer *timer)
{
    struct muster_strategy *strategy = timer->data;

    muster_timer_start(timer, strategy->env->loop,
                       muster_loop_after_ns(strategy->env->loop, DETACH_INTERVAL_NS));
}

void muster_strategy_saving_detach(struct muster_strategy *strategy)
{
    struct muster_strategy_saving *saving = &strategy->saving;
    uint64_t begun_ns;

    if (saving->state == MUSTER_SAVING_NONE || saving->is_detached)
        return;
    begun_ns = muster_loop_clock_ns(strategy->env->loop);
    if (!is_detached(strategy)) {
        on_detach_timer(&saving->detach_timer);
        muster_strategy_wait_until(strategy, is_detached, strategy);
        muster_timer_stop(&saving->detach_timer);
    }
    saving->running.stall_ns += muster_loop_clock_ns(strategy->env->loop) - begun_ns;
}

/* --- The others' shards --- */

static bool is_there(const struct muster_strategy *strategy, uint32_t rank)
{
    return muster_view_find(muster_node_view(strategy->node),
                            &strategy->saving.members[rank].incarnation, NULL);
}

/* In the thread. A member that had gone before the look has written its shard by then, or never does. */
static void lost_find(const struct muster_checkpoint *checkpoint, struct muster_strategy_look *look)
{
    look->lost = checkpoint->shard_count;
    for (uint32_t rank = checkpoint->shard_count; rank-- > 0;)
        if (look->is_gone[rank] && !muster_checkpoint_has_shard(checkpoint, rank))
            look->lost = rank;
}

static void look_init(const struct muster_strategy *strategy, struct muster_strategy_look *look,
                      uint8_t *marks)
{
    *look = (struct muster_strategy_look){.is_gone = marks};
    for (uint32_t rank = 0; rank < strategy->saving.checkpoint->shard_count; rank++)
        marks[rank] = !is_there(strategy, rank);
}

static void gone_format(const struct muster_strategy_saving *saving, uint32_t rank,
                        char ret_text[MUSTER_ERROR_TEXT_BYTES])
{
    (void)snprintf(ret_text, MUSTER_ERROR_TEXT_BYTES,
                   "%s:%u (rank %u) has gone, and its shard is not there",
                   saving->members[rank].task_type, saving->members[rank].task_index, rank);
}

static enum muster_rc look_do(void *data)
{
    struct muster_strategy_saving *saving = data;
    struct muster_strategy_look *look = &saving->look;
    struct muster_checkpoint *checkpoint = saving->checkpoint;
    enum muster_rc rc;

    look->is_whole = muster_checkpoint_has_manifest(checkpoint);
    if (look->is_whole)
        return MUSTER_OK;
    rc = muster_checkpoint_find_missing(checkpoint, &look->missing, &look->error);
    if (rc == MUSTER_OK && look->missing < checkpoint->shard_count)
        look->is_begun = muster_checkpoint_shard_is_begun(checkpoint, look->missing);
    lost_find(checkpoint, look);
    if (rc != MUSTER_OK || !look->is_sealer || look->missing < checkpoint->shard_count)
        return rc;
    rc = muster_checkpoint_seal(checkpoint, &look->error);
    if (rc != MUSTER_OK)
        return rc;
    look->is_whole = true;
    /* Old ones that stay cost room, and nothing else: the next one tries again. */
    (void)!muster_checkpoint_sweep(checkpoint->mem, checkpoint->folder, &checkpoint->name,
                                   saving->keep_count, &look->error);
    return MUSTER_OK;
}

/* At the end of a program no agreement says that the others save this step, too. */
static bool is_alone(const struct muster_strategy_saving *saving, uint64_t now_ns)
{
    const struct muster_strategy_look *look = &saving->look;

    return saving->patience_ns != 0 && look->missing < saving->checkpoint->shard_count &&
           !look->is_begun && now_ns - saving->begun_ns >= saving->patience_ns;
}

static void on_looked(void *data, enum muster_rc rc)
{
    struct muster_strategy_saving *saving = data;
    struct muster_strategy *strategy = MUSTER_CONTAINER_OF(saving, struct muster_strategy, saving);
    const struct muster_strategy_look *look = &saving->look;
    const struct muster_member *missing =
        &saving->members[look->missing < saving->checkpoint->shard_count ? look->missing : 0];
    uint64_t now_ns = muster_loop_now_ns(strategy->env->loop);
    char text[MUSTER_ERROR_TEXT_BYTES];

    if (rc != MUSTER_OK) {
        saving_end(strategy, rc, look->error.text);
    } else if (look->is_whole) {
        if (look->error.text[0] != '\0')
            MUSTER_LOG(strategy->env, WARN, "checkpoints_not_deleted", "reason", look->error.text);
        saving_end(strategy, MUSTER_OK, "");
    } else if (look->lost < saving->checkpoint->shard_count) {
        gone_format(saving, look->lost, text);
        saving_end(strategy, MUSTER_ABORTED, text);
    } else if (is_alone(saving, now_ns)) {
        (void)snprintf(text, sizeof(text), "%s:%u (rank %u) does not save this step",
                       missing->task_type, missing->task_index, look->missing);
        saving->is_alone = true;
        saving_end(strategy, MUSTER_ABORTED, text);
    } else if (now_ns >= saving->deadline_ns) {
        (void)snprintf(text, sizeof(text),
                       "the shard of %s:%u (rank %u), or the manifest, has not come in time: is %s "
                       "the same folder on all hosts?",
                       missing->task_type, missing->task_index, look->missing,
                       saving->checkpoint->folder);
        saving_end(strategy, MUSTER_DEADLINE_EXCEEDED, text);
    } else {
        saving_move(saving, MUSTER_SAVING_AWAITED);
        muster_timer_start(&saving->look_timer, strategy->env->loop,
                           now_ns + saving->look_interval_ns);
        saving->look_interval_ns *= 2;
        if (saving->look_interval_ns > LOOK_INTERVAL_MAX_NS)
            saving->look_interval_ns = LOOK_INTERVAL_MAX_NS;
    }
}

static void on_look_timer(struct muster_timer *timer)
{
    struct muster_strategy *strategy = timer->data;
    struct muster_strategy_saving *saving = &strategy->saving;

    look_init(strategy, &saving->look, saving->gone_marks);
    saving->look.is_sealer = true;
    for (uint32_t rank = 0; rank < saving->rank; rank++)
        saving->look.is_sealer &= saving->look.is_gone[rank] != 0;
    saving_move(saving, MUSTER_SAVING_LOOKS);
    muster_aside_start(saving->aside, look_do, on_looked, saving);
}

/* --- A member that goes while this one writes --- */

static enum muster_rc gone_look(void *data)
{
    struct muster_strategy *strategy = data;

    lost_find(strategy->saving.checkpoint, &strategy->saving.gone);
    return MUSTER_OK;
}

/* A shard that is cancelled ends by on_written; one that is written already, by the look after it. */
static void on_gone_looked(void *data, enum muster_rc rc)
{
    struct muster_strategy *strategy = data;
    struct muster_strategy_saving *saving = &strategy->saving;

    (void)rc;
    saving->is_copier_busy = false;
    if (saving->state == MUSTER_SAVING_WRITES &&
        saving->gone.lost < saving->checkpoint->shard_count) {
        gone_format(saving, saving->gone.lost, saving->why);
        muster_checkpoint_writer_cancel(saving->writer);
        saving->is_detached = true;
    } else if (saving->must_look) {
        muster_strategy_saving_note_loss(strategy);
    }
}

void muster_strategy_saving_note_loss(struct muster_strategy *strategy)
{
    struct muster_strategy_saving *saving = &strategy->saving;

    if (saving->state != MUSTER_SAVING_WRITES)
        return;
    saving->must_look = saving->is_copier_busy;
    if (saving->is_copier_busy)
        return;
    look_init(strategy, &saving->gone, saving->gone_marks + saving->checkpoint->shard_count);
    saving->is_copier_busy = true;
    muster_aside_start(saving->copier, gone_look, on_gone_looked, strategy);
}

/* --- This member's shard --- */

static enum muster_rc shard_write(void *data)
{
    const struct muster_strategy *strategy = data;
    const struct muster_checkpoint *checkpoint = strategy->saving.checkpoint;
    struct muster_error error;

    /* Remains that cannot be deleted cost room, and nothing else. */
    if (strategy->saving.rank == 0)
        (void)!muster_checkpoint_clear(checkpoint->mem, checkpoint->folder, &checkpoint->name,
                                       &error);
    return muster_checkpoint_writer_run(strategy->saving.writer);
}

static void on_written(void *data, enum muster_rc rc)
{
    struct muster_strategy *strategy = data;
    struct muster_strategy_saving *saving = &strategy->saving;

    if (rc != MUSTER_OK) {
        if (saving->why[0] != '\0')
            saving_end(strategy, MUSTER_ABORTED, saving->why);
        else
            saving_end(strategy, rc, muster_checkpoint_writer_error(saving->writer)->text);
        return;
    }
    saving->is_detached = true; /* the file has all of it */
    saving_move(saving, MUSTER_SAVING_AWAITED);
    muster_timer_start(&saving->look_timer, strategy->env->loop,
                       muster_loop_now_ns(strategy->env->loop));
}

static enum muster_rc members_copy(struct muster_strategy *strategy)
{
    struct muster_strategy_saving *saving = &strategy->saving;
    const struct muster_view *view = strategy->view;
    uint32_t rank = 0;

    saving->members =
        muster_mem_alloc_zero(strategy->env->mem, strategy->size, sizeof(saving->members[0]));
    saving->gone_marks = muster_mem_alloc_zero(strategy->env->mem, strategy->size, 2);
    if (saving->members == NULL || saving->gone_marks == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < view->member_count; i++)
        if (muster_strategy_takes_part(strategy, NULL, &view->members[i]))
            saving->members[rank++] = view->members[i];
    MUSTER_ASSERT(rank == strategy->size);
    return MUSTER_OK;
}

static enum muster_rc parts_open(struct muster_strategy *strategy,
                                 const struct muster_strategy_saving_start *start)
{
    struct muster_strategy_saving *saving = &strategy->saving;
    struct muster_mem *mem = strategy->env->mem;
    size_t copy_bytes = muster_strategy_copies_bytes(strategy, start->copy_bytes_max);
    struct muster_checkpoint_tensor *described =
        muster_mem_alloc_zero(mem, strategy->tensor_count + 1, sizeof(*described));
    struct muster_tensor *tensors =
        muster_mem_alloc_zero(mem, strategy->tensor_count + 1, sizeof(*tensors));
    struct muster_far_memory **memories =
        muster_mem_alloc_zero(mem, strategy->tensor_count + 1, sizeof(*memories));
    enum muster_rc rc = described != NULL && tensors != NULL && memories != NULL
                            ? MUSTER_OK
                            : MUSTER_RESOURCE_EXHAUSTED;

    for (size_t i = 0; i < strategy->tensor_count && rc == MUSTER_OK; i++) {
        tensors[i] = strategy->tensors[i].tensor;
        memories[i] = strategy->tensors[i].memory;
        described[i] = (struct muster_checkpoint_tensor){.name = strategy->tensors[i].name,
                                                         .dtype = tensors[i].dtype,
                                                         .count = tensors[i].count};
    }
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_new(muster_mem_system(), start->folder, described,
                                   (uint32_t)strategy->tensor_count, strategy->size,
                                   &saving->checkpoint);
    if (rc == MUSTER_OK)
        rc = muster_strategy_copies_reserve(strategy, copy_bytes);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_writer_new(
            &(struct muster_checkpoint_writer_options){.mem = mem,
                                                       .folder = start->folder,
                                                       .name = start->name,
                                                       .tensors = tensors,
                                                       .memories = memories,
                                                       .tensor_count = strategy->tensor_count,
                                                       .shard = strategy->rank,
                                                       .shard_count = strategy->size,
                                                       .copies = saving->copies.memory.bytes,
                                                       .copy_bytes = copy_bytes},
            &saving->writer);
    muster_mem_free(mem, described);
    muster_mem_free(mem, tensors);
    muster_mem_free(mem, memories);
    return rc;
}

/* The others hear of it by failed_id, and this member's program by the last result. */
static enum muster_rc saving_fail_start(struct muster_strategy_saving *saving,
                                        const struct muster_strategy_saving_start *start,
                                        const struct muster_error *error)
{
    saving->failed_id = start->name.id;
    saving->last =
        (struct muster_strategy_checkpoint_result){.step = start->name.step, .rc = error->rc};
    (void)snprintf(saving->last.text, sizeof(saving->last.text), "%s", error->text);
    return error->rc;
}

enum muster_rc muster_strategy_saving_start(struct muster_strategy *strategy,
                                            const struct muster_strategy_saving_start *start,
                                            struct muster_error *ret_error)
{
    struct muster_strategy_saving *saving = &strategy->saving;
    struct muster_env *env = strategy->env;
    enum muster_rc rc;

    MUSTER_ASSERT(saving->state == MUSTER_SAVING_NONE);
    muster_timer_init(&saving->look_timer, on_look_timer, strategy);
    muster_timer_init(&saving->detach_timer, on_detach_timer, strategy);
    saving->rank = strategy->rank;
    saving->keep_count = start->keep_count;
    saving->look_interval_ns = LOOK_INTERVAL_NS;
    saving->is_detached = saving->must_look = saving->is_alone = false;
    saving->why[0] = '\0';
    saving->patience_ns = start->patience_ns;
    saving->begun_ns = muster_loop_clock_ns(env->loop);
    saving->deadline_ns =
        muster_loop_after_ns(env->loop, start->timeout_ns != 0 ? start->timeout_ns : TIMEOUT_NS);
    if (muster_checkpoint_make_folder(start->folder, ret_error) != MUSTER_OK)
        return saving_fail_start(saving, start, ret_error);
    rc = members_copy(strategy);
    if (rc == MUSTER_OK)
        rc = parts_open(strategy, start);
    if (rc == MUSTER_OK)
        rc = muster_aside_open(env, &saving->aside);
    if (rc == MUSTER_OK)
        rc = muster_aside_open(env, &saving->copier);
    if (rc != MUSTER_OK) {
        saving_free(strategy);
        muster_error_set(ret_error, rc, "cannot begin a checkpoint: %s", muster_rc_text(rc));
        return saving_fail_start(saving, start, ret_error);
    }
    saving->checkpoint->name = start->name;
    saving->checkpoint->saved_wall_ns = start->wall_ns;
    saving->running = (struct muster_strategy_checkpoint_result){
        .step = start->name.step,
        .bytes = saving->checkpoint->shards[strategy->rank].bytes,
        .new_bytes = muster_strategy_copies_new_bytes(
            strategy, muster_strategy_copies_bytes(strategy, start->copy_bytes_max))};
    saving_move(saving, MUSTER_SAVING_WRITES);
    saving->is_copier_busy = true;
    muster_aside_keep_priority(saving->copier); /* update_begin may wait for it */
    if (start->is_awaited)
        muster_aside_keep_priority(saving->aside);
    muster_aside_start(saving->copier, chunks_copy, on_copied, strategy);
    muster_aside_start(saving->aside, shard_write, on_written, strategy);
    return MUSTER_OK;
}
