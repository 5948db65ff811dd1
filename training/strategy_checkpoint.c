/* Checkpoints of a strategy: agreed on by all members, then written by each. */
#include "training/strategy_checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/group/group.h"
#include "runtime/system/folder_system.h"
#include "runtime/value/errno_reason.h"
#include "training/strategy_call.h"
#include "training/strategy_folder.h"

#define NAME           "checkpoint_start"
#define KEEP_COUNT     3u
#define KEEP_COUNT_MAX 1000000u
/* Members that end at the same step do so at nearly the same time. One that goes on waits for this one meanwhile. */
#define PATIENCE_NS (5 * MUSTER_NS_PER_S)
/* Processes of a job that was killed with its launcher may take a moment to end. */
#define TAKE_NS (10 * MUSTER_NS_PER_S)

/* --- The agreement --- */

/* Each member's words. All members take the same decision from the same words. */
struct proposal {
    uint64_t id, wall_ns; /* rank 0's count */
    uint64_t is_due;      /* rank 0's counts */
    uint64_t step;        /* of the committed state */
    uint64_t busy_step,
        busy_id; /* of the checkpoint that this member still writes, or waits for; id 0: none */
    uint64_t failed_id; /* the last one that it could not write */
    uint64_t outcome;   /* of the start: told when all others are 0 */
    uint64_t
        life; /* of the job, in which it has the folder; 0: it came later, or nobody has it yet */
    uint64_t job_life; /* in which it has any folder; 0: none */
};
#define PROPOSAL_WORDS (sizeof(struct proposal) / sizeof(uint64_t))

static enum muster_rc start_gather(const struct muster_strategy_call *call, size_t i,
                                   struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

/* The program's own last result, and its error, stay as they were. */
static enum muster_rc proposals_gather(struct muster_strategy *strategy, struct proposal *own,
                                       struct proposal *all)
{
    const struct muster_tensor tensors[] = {
        {.data = own, .count = PROPOSAL_WORDS, .dtype = MUSTER_U64},
        {.data = all, .count = (uint64_t)strategy->size * PROPOSAL_WORDS, .dtype = MUSTER_U64}};
    struct muster_op_result result = strategy->result;
    enum muster_rc rc = muster_strategy_run_in_seat(
        strategy, &(struct muster_strategy_call){.name = NAME,
                                                 .tensors = tensors,
                                                 .count = 1,
                                                 .view = strategy->view,
                                                 .start = start_gather});

    strategy->result = result;
    strategy->ops_rc = MUSTER_OK; /* no operation of the program's step */
    return rc;
}

static struct proposal proposal_make(struct muster_strategy *strategy, bool is_due,
                                     const char *folder)
{
    const struct muster_strategy_saving *saving = &strategy->saving;
    struct proposal proposal = {.wall_ns = muster_host_wall_ns(strategy->env->host),
                                .is_due = is_due,
                                .step = strategy->committed_step,
                                .failed_id = saving->failed_id,
                                .life = muster_strategy_folder_life(strategy, folder),
                                .job_life = muster_strategy_job_life(strategy)};

    while (proposal.id == 0)
        proposal.id = muster_rng_next(strategy->env->rng);
    if (saving->state != MUSTER_SAVING_NONE) {
        proposal.busy_step = saving->checkpoint->name.step;
        proposal.busy_id = saving->checkpoint->name.id;
    }
    return proposal;
}

static bool has_failed(const struct proposal *all, uint32_t count, uint64_t id, uint32_t *ret_rank)
{
    for (uint32_t rank = 0; rank < count; rank++)
        if (all[rank].failed_id == id) {
            *ret_rank = rank;
            return true;
        }
    return false;
}

/* The first member that has an earlier one to finish, which nobody has given up. */
static bool find_busy(const struct proposal *all, uint32_t count, uint32_t *ret_rank)
{
    uint32_t other;

    for (uint32_t rank = 0; rank < count; rank++)
        if (all[rank].busy_id != 0 && !has_failed(all, count, all[rank].busy_id, &other)) {
            *ret_rank = rank;
            return true;
        }
    return false;
}

/* A member that could not begin is known to all before the program goes on. When the members change meanwhile, those
 * that are left look for each other's shards. */
static void outcomes_gather(struct muster_strategy *strategy, enum muster_rc own,
                            struct proposal *all)
{
    struct proposal outcome = {.outcome = (uint64_t)own};
    struct muster_error error = strategy->error;
    enum muster_rc rc = proposals_gather(strategy, &outcome, all);
    char text[MUSTER_ERROR_TEXT_BYTES];

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return;
    strategy->error = error;
    for (uint32_t rank = 0; rank < strategy->size && rc == MUSTER_OK; rank++)
        if (all[rank].outcome != MUSTER_OK) {
            (void)snprintf(text, sizeof(text), "rank %u could not begin: %s", rank,
                           muster_rc_text((enum muster_rc)all[rank].outcome));
            muster_strategy_saving_abandon(strategy, MUSTER_ABORTED, text);
            return;
        }
}

/* The same on all members, up to the start of the thread. */
static enum muster_rc proposals_decide(struct muster_strategy *strategy, struct proposal *all,
                                       const struct muster_strategy_checkpoint_options *options)
{
    struct muster_strategy_saving_start start = {
        .name = {.step = strategy->committed_step, .id = all[0].id},
        .wall_ns = all[0].wall_ns,
        .folder = options->folder,
        .keep_count = options->keep_count,
        .timeout_ns = options->timeout_ns,
        .copy_bytes_max = options->copy_bytes_max};
    uint32_t rank = 0;
    enum muster_rc rc;

    for (uint32_t i = 0; i < strategy->size; i++)
        if (all[i].step != all[0].step)
            return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                    NAME ": rank %u has committed step %llu, rank 0 %llu", i,
                                    (unsigned long long)all[i].step,
                                    (unsigned long long)all[0].step);
    if (find_busy(all, strategy->size, &rank))
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                NAME ": rank %u has not finished the checkpoint of step %llu yet",
                                rank, (unsigned long long)all[rank].busy_step);
    if (strategy->saving.state != MUSTER_SAVING_NONE) {
        char text[64];

        (void)has_failed(all, strategy->size, all[strategy->rank].busy_id, &rank);
        (void)snprintf(text, sizeof(text), "rank %u could not write its shard", rank);
        muster_strategy_saving_abandon(strategy, MUSTER_ABORTED, text);
    }
    rc = muster_strategy_saving_start(strategy, &start, &strategy->error);
    outcomes_gather(strategy, rc, all);
    if (rc == MUSTER_OK && strategy->updated_step == 0)
        muster_strategy_saving_detach(strategy);
    return strategy->state == MUSTER_STRATEGY_FAILED ? strategy->error.rc : rc;
}

/* A folder that nobody has yet is taken by all. A member that comes later and sees another one ends alone: the others
 * lose this checkpoint, and save the next one without it. */
static enum muster_rc folder_join(struct muster_strategy *strategy, const char *folder,
                                  const struct proposal *all)
{
    uint64_t life = 0, job_life = 0;
    enum muster_rc rc;

    for (uint32_t rank = 0; rank < strategy->size; rank++) {
        life = all[rank].life > life ? all[rank].life : life;
        job_life = all[rank].job_life > job_life ? all[rank].job_life : job_life;
    }
    if (life == 0 && !muster_strategy_is_scheduled(strategy, folder))
        return muster_strategy_folder_name(strategy, folder, job_life);
    rc = muster_strategy_folder_join(strategy, folder, life);
    if (rc != MUSTER_OK)
        muster_strategy_fail(strategy);
    return rc;
}

enum muster_rc muster_strategy_save(struct muster_strategy *strategy, bool is_due,
                                    const struct muster_strategy_checkpoint_options *options,
                                    bool *ret_is_begun)
{
    struct proposal own = proposal_make(strategy, is_due, options->folder);
    struct proposal *all = muster_mem_alloc_zero(strategy->env->mem, strategy->size, sizeof(*all));
    enum muster_rc rc;

    if (all == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, NAME ": %s",
                                muster_rc_text(MUSTER_RESOURCE_EXHAUSTED));
    rc = proposals_gather(strategy, &own, all);
    if (rc == MUSTER_OK)
        rc = folder_join(strategy, options->folder, all);
    *ret_is_begun = rc == MUSTER_OK && all[0].is_due != 0;
    if (*ret_is_begun)
        rc = proposals_decide(strategy, all, options);
    muster_mem_free(strategy->env->mem, all);
    return rc;
}

/* --- The program's calls --- */

enum muster_rc muster_strategy_checkpoint_start(
    struct muster_strategy *strategy, const struct muster_strategy_checkpoint_options *options)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, NAME);
    bool is_begun;

    if (rc != MUSTER_OK)
        return rc;
    if (options->folder == NULL || options->folder[0] == '\0')
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                NAME ": folder must be a path");
    if (strategy->updated_step == strategy->step)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                NAME ": the tensors have changed in step %llu: call it before "
                                     "muster_strategy_update_begin",
                                (unsigned long long)strategy->step);
    rc = muster_strategy_enter(strategy, NAME);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_strategy_save(strategy, true, options, &is_begun);
    muster_strategy_leave(strategy);
    return rc;
}

/* parts NULL: anything changes. */
static enum muster_rc update_in_seat(struct muster_strategy *strategy,
                                     const struct muster_tensor *parts, size_t count)
{
    if (strategy->state == MUSTER_STRATEGY_STEP) {
        strategy->updated_step = strategy->step;
        muster_strategy_saving_detach(strategy);
        if (parts == NULL)
            muster_node_change_all(strategy->node);
        else if (muster_node_change_parts(strategy->node, parts, count) != MUSTER_OK) {
            muster_node_change_all(strategy->node);
            return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                    "update_begin_parts: each part must lie inside a registered "
                                    "tensor");
        }
    }
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (strategy->state != MUSTER_STRATEGY_STEP &&
        strategy->state != MUSTER_STRATEGY_WAITING) /* begin brings the members' state */
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "update_begin: call begin first");
    return MUSTER_OK;
}

static enum muster_rc update_begin(struct muster_strategy *strategy,
                                   const struct muster_tensor *parts, size_t count)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "update_begin");

    if (rc != MUSTER_OK)
        return rc;
    rc = update_in_seat(strategy, parts, count);
    muster_strategy_leave(strategy);
    return rc;
}

enum muster_rc muster_strategy_update_begin(struct muster_strategy *strategy)
{
    return update_begin(strategy, NULL, 0);
}

enum muster_rc muster_strategy_update_begin_parts(struct muster_strategy *strategy,
                                                  const struct muster_tensor *parts, size_t count)
{
    static const struct muster_tensor nothing; /* no part: nothing changes */

    return update_begin(strategy, count > 0 ? parts : &nothing, count);
}

void muster_strategy_check_update(struct muster_strategy *strategy)
{
    const struct muster_strategy_saving *saving = &strategy->saving;

    if (saving->state == MUSTER_SAVING_WRITES && !saving->is_detached)
        muster_strategy_saving_abandon(
            strategy, MUSTER_FAILED_PRECONDITION,
            "a step was committed without muster_strategy_update_begin, which earlier steps have "
            "called: its values may be in the checkpoint");
}

void muster_strategy_checkpoint_result(struct muster_strategy *strategy,
                                       struct muster_strategy_checkpoint_result *ret_result)
{
    *ret_result = (struct muster_strategy_checkpoint_result){.rc = MUSTER_OK};
    if (muster_strategy_enter(strategy, "checkpoint_result") != MUSTER_OK)
        return;
    *ret_result = strategy->saving.last;
    ret_result->is_running = strategy->saving.state != MUSTER_SAVING_NONE;
    muster_strategy_leave(strategy);
}

enum muster_rc muster_strategy_checkpoint_wait(struct muster_strategy *strategy)
{
    const struct muster_strategy_checkpoint_result *last = &strategy->saving.last;
    enum muster_rc rc = muster_strategy_enter(strategy, "checkpoint_wait");

    if (rc != MUSTER_OK)
        return rc;
    muster_strategy_wait_until(strategy, muster_strategy_saving_is_over, strategy);
    rc = last->rc;
    if (rc != MUSTER_OK && strategy->state != MUSTER_STRATEGY_FAILED)
        (void)muster_error_set(&strategy->error, rc, "checkpoint of step %llu: %s",
                               (unsigned long long)last->step, last->text);
    muster_strategy_leave(strategy);
    return rc;
}

/* --- By itself --- */

enum muster_rc muster_checkpoint_every_parse(const char *text, uint64_t *ret_steps,
                                             uint64_t *ret_ns, struct muster_error *ret_error)
{
    static const struct {
        const char *unit;
        uint64_t ns; /* 0: steps */
    } units[] = {{"", 0},
                 {"ms", MUSTER_NS_PER_MS},
                 {"s", MUSTER_NS_PER_S},
                 {"m", 60 * MUSTER_NS_PER_S},
                 {"h", 3600 * MUSTER_NS_PER_S}};
    char *end = NULL;
    uint64_t value;

    errno = 0;
    value = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (errno == 0 && *text >= '0' && *text <= '9' && value > 0 && value <= UINT32_MAX &&
            strcmp(end, units[i].unit) == 0) {
            *ret_steps = units[i].ns == 0 ? value : 0;
            *ret_ns = value * units[i].ns;
            return MUSTER_OK;
        }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "must be a number of steps (100) or a time (500ms, 30s, 10m, 1h) above "
                            "0, got %.40s",
                            text);
}

static const char *variable_of(struct muster_env *env, const char *name)
{
    const char *text = muster_vars_get(env->vars, name);

    return text != NULL && *text != '\0' ? text : NULL;
}

/* A text of the schedule, and where it stands. */
struct schedule_text {
    const char *text; /* NULL: it is given nowhere */
    const char *name;
    const char *needs; /* the name of the directory beside it */
};

static struct schedule_text text_of(struct muster_env *env, const char *option, const char *name,
                                    const char *variable)
{
    if (option != NULL && *option != '\0')
        return (struct schedule_text){option, name, "checkpoint_dir"};
    return (struct schedule_text){variable_of(env, variable), variable, "MUSTER_CHECKPOINT_DIR"};
}

static enum muster_rc read_every(const struct schedule_text *every,
                                 struct muster_strategy_schedule *schedule,
                                 struct muster_error *ret_error)
{
    struct muster_error why;

    if (every->text == NULL ||
        muster_checkpoint_every_parse(every->text, &schedule->steps, &schedule->every_ns, &why) ==
            MUSTER_OK)
        return MUSTER_OK;
    return muster_error_set(ret_error, why.rc, "%s %s", every->name, why.text);
}

static enum muster_rc read_keep(const struct schedule_text *keep,
                                struct muster_strategy_schedule *schedule,
                                struct muster_error *ret_error)
{
    char *end = NULL;
    unsigned long count = keep->text != NULL ? strtoul(keep->text, &end, 10) : KEEP_COUNT;

    if (keep->text != NULL &&
        (*keep->text < '0' || *keep->text > '9' || *end != '\0' || count > KEEP_COUNT_MAX))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be a number up to %u, got %.40s", keep->name,
                                KEEP_COUNT_MAX, keep->text);
    schedule->keep_count = (uint32_t)count;
    return MUSTER_OK;
}

/* The launcher looks into the directory that it has named. */
static enum muster_rc choose_folder(struct muster_env *env,
                                    const struct muster_strategy_options *options,
                                    char **ret_folder, struct muster_error *ret_error)
{
    const char *named = variable_of(env, "MUSTER_CHECKPOINT_DIR");
    char *own = NULL, *theirs = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (options->checkpoint_dir != NULL && options->checkpoint_dir[0] != '\0')
        rc = muster_folder_absolute(env->mem, options->checkpoint_dir, &own);
    if (rc == MUSTER_OK && named != NULL)
        rc = muster_folder_absolute(env->mem, named, &theirs);
    if (rc != MUSTER_OK)
        muster_error_set(
            ret_error, rc,
            "checkpoint_dir is a relative path, and the current directory is not known: %s",
            muster_errno_reason(rc, errno));
    if (rc == MUSTER_OK && own != NULL && theirs != NULL && strcmp(own, theirs) != 0)
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "checkpoint_dir is %.200s, and MUSTER_CHECKPOINT_DIR (muster run "
                              "--checkpoint-dir) %.200s: leave one of them out",
                              own, theirs);
    *ret_folder = own != NULL ? own : theirs;
    if (own != NULL)
        muster_mem_free(env->mem, theirs);
    if (rc == MUSTER_OK)
        return MUSTER_OK;
    muster_mem_free(env->mem, *ret_folder);
    *ret_folder = NULL;
    return rc;
}

enum muster_rc muster_strategy_schedule_read(struct muster_env *env,
                                             const struct muster_strategy_options *options,
                                             struct muster_strategy_schedule *ret_schedule,
                                             struct muster_error *ret_error)
{
    char count[24] = "";
    struct schedule_text every =
        text_of(env, options->checkpoint_every, "checkpoint_every", "MUSTER_CHECKPOINT_EVERY");
    struct muster_strategy_schedule made = {.patience_ns = PATIENCE_NS, .take_ns = TAKE_NS};
    struct schedule_text keep;
    enum muster_rc rc = read_every(&every, &made, ret_error);

    if (options->checkpoint_keep_count != 0)
        (void)snprintf(count, sizeof(count), "%u",
                       options->checkpoint_keep_count != MUSTER_CHECKPOINT_KEEP_ALL
                           ? options->checkpoint_keep_count
                           : 0u);
    keep = text_of(env, count, "checkpoint_keep_count", "MUSTER_CHECKPOINT_KEEP");
    if (rc == MUSTER_OK)
        rc = read_keep(&keep, &made, ret_error);
    if (rc == MUSTER_OK)
        rc = choose_folder(env, options, &made.folder, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (made.folder == NULL && every.text == NULL)
        every = keep;
    if (made.folder == NULL && every.text != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s needs %s", every.name,
                                every.needs);
    made.due_ns = muster_loop_after_ns(env->loop, made.every_ns);
    *ret_schedule = made;
    return MUSTER_OK;
}

void muster_strategy_schedule_end(struct muster_env *env, struct muster_strategy_schedule *schedule)
{
    muster_mem_free(env->mem, schedule->folder);
    schedule->folder = NULL;
}

/* Whether all members speak about it in this step, which must be the same for all: by the number of the step, or
 * in each step by rank 0's clock. A step that is begun again has had its turn. */
static bool is_turn(struct muster_strategy *strategy)
{
    struct muster_strategy_schedule *schedule = &strategy->schedule;
    uint64_t step = strategy->committed_step;

    if (schedule->folder == NULL || (schedule->steps == 0 && schedule->every_ns == 0) ||
        step == 0 || schedule->attempted_step == step + 1 ||
        (schedule->steps != 0 && step % schedule->steps != 0))
        return false;
    schedule->attempted_step = step + 1;
    return true;
}

static void tell_not_begun(struct muster_strategy *strategy)
{
    MUSTER_LOG(strategy->env, WARN, "checkpoint_not_begun", "step", strategy->committed_step,
               "reason", strategy->error.text);
    muster_report_checkpoint(strategy->report, strategy->committed_step, 0, strategy->error.text);
}

enum muster_rc muster_strategy_save_if_due(struct muster_strategy *strategy)
{
    struct muster_strategy_schedule *schedule = &strategy->schedule;
    const struct muster_strategy_checkpoint_options options = {.folder = schedule->folder,
                                                               .keep_count = schedule->keep_count};
    uint64_t now_ns = muster_loop_now_ns(strategy->env->loop);
    bool is_begun = false;
    enum muster_rc rc;

    if (!is_turn(strategy))
        return MUSTER_OK;
    rc = muster_strategy_save(strategy,
                              (schedule->every_ns == 0 || now_ns >= schedule->due_ns) &&
                                  strategy->committed_step != strategy->restored_step,
                              &options, &is_begun);
    if (is_begun)
        schedule->due_ns = muster_loop_after_ns(strategy->env->loop, schedule->every_ns);
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (rc == MUSTER_FAILED_PRECONDITION) /* the one before takes longer than it may */
        MUSTER_LOG(strategy->env, INFO, "checkpoint_left_out", "step", strategy->committed_step,
                   "reason", strategy->error.text);
    else if (rc != MUSTER_OK)
        tell_not_begun(strategy);
    return MUSTER_OK;
}

/* --- At the end --- */

#define LAST_TRIES    8u
#define NO_COPY_BYTES 1u /* nobody changes the tensors */

/* A program that has begun another step and does not announce its updates may have changed them. */
static bool has_unsaved(const struct muster_strategy *strategy)
{
    const struct muster_strategy_checkpoint_result *last = &strategy->saving.last;

    return strategy->schedule.folder != NULL && strategy->committed_step > 0 &&
           strategy->committed_step != strategy->restored_step &&
           (last->rc != MUSTER_OK || last->step != strategy->committed_step) &&
           (strategy->state == MUSTER_STRATEGY_READY ||
            (strategy->updated_step > 0 && strategy->updated_step < strategy->step));
}

/* Members that close at the same step find the same name without a word, if the same members have done it: the view may
 * have changed for some of them already, by a joiner of a later step. */
static uint64_t last_id(const struct muster_strategy *strategy)
{
    struct muster_hash_stream stream;
    uint8_t hash[MUSTER_HASH128_BYTES];
    uint64_t id;

    muster_hash_stream_init(&stream);
    for (uint32_t i = 0; i < strategy->view->member_count; i++) {
        const struct muster_member *member = &strategy->view->members[i];

        if (muster_strategy_takes_part(strategy, NULL, member))
            muster_hash_stream_add(&stream, &member->incarnation, sizeof(member->incarnation));
    }
    muster_hash_stream_hash128(&stream, hash);
    memcpy(&id, hash, sizeof(id));
    return id != 0 ? id : 1;
}

static enum muster_rc last_save(struct muster_strategy *strategy)
{
    const struct muster_strategy_saving_start start = {
        .name = {.step = strategy->committed_step, .id = last_id(strategy)},
        .wall_ns = muster_host_wall_ns(strategy->env->host),
        .folder = strategy->schedule.folder,
        .keep_count = strategy->schedule.keep_count,
        .copy_bytes_max = NO_COPY_BYTES,
        .patience_ns = strategy->schedule.patience_ns,
        .is_awaited = true};
    struct muster_error error;

    if (muster_strategy_saving_start(strategy, &start, &error) == MUSTER_OK)
        muster_strategy_wait_until(strategy, muster_strategy_saving_is_over, strategy);
    return strategy->saving.last.rc;
}

/* A member that has gone meanwhile had a part of the state: the others write it with the next view. */
static void try_to_save(struct muster_strategy *strategy)
{
    for (unsigned i = 0; i < LAST_TRIES && muster_strategy_is_member(strategy) &&
                         strategy->leave == MUSTER_STRATEGY_STAYS && has_unsaved(strategy);
         i++) {
        muster_strategy_snapshot(strategy);
        if (last_save(strategy) == MUSTER_OK || !muster_strategy_is_member(strategy) ||
            muster_node_view(strategy->node)->epoch == strategy->epoch)
            return;
    }
}

/* Members that others go on without have not lost the job's last step. */
enum muster_rc muster_strategy_save_last(struct muster_strategy *strategy,
                                         struct muster_error *ret_error)
{
    const struct muster_strategy_checkpoint_result *last = &strategy->saving.last;
    const char *folder = strategy->schedule.folder;

    try_to_save(strategy);
    if (last->rc == MUSTER_OK || strategy->saving.is_alone || !muster_strategy_is_member(strategy))
        return MUSTER_OK;
    muster_error_set(ret_error, last->rc,
                     "the checkpoint of step %llu failed; mend the cause and start the job again: "
                     "%s",
                     (unsigned long long)last->step, last->text);
    MUSTER_LOG(strategy->env, ERROR, "last_checkpoint_failed", "step", last->step, "folder",
               folder != NULL ? folder : "", "reason", last->text);
    muster_report_unsaved(strategy->report, last->step, last->text);
    return last->rc;
}
