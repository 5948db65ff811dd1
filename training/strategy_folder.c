/* The members of a job take its folders of checkpoints together. */
#include "training/strategy_folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/system/folder_system.h"
#include "runtime/value/errno_reason.h"
#include "training/checkpoint/folder.h"
#include "training/strategy_internal.h"

#define TAKE "checkpoint folder"

#define AGAIN_NS        (50 * MUSTER_NS_PER_MS)
#define AGAIN_JITTER_NS (200 * MUSTER_NS_PER_MS) /* two that begin at the same time */

/* The giver's, told to all. */
struct claim {
    uint64_t life; /* 0: the folder cannot be marked, and nothing is proved */
    uint64_t is_refused;
    char job[MUSTER_JOB_NAME_BYTES]; /* of the other one */
};

#define CLAIM_WORDS (sizeof(struct claim) / sizeof(uint64_t))

/* --- Folders of this member --- */

/* A folder, and how the user has named it. */
struct place {
    const char *path;
    struct muster_checkpoint_owner *owner;
    const char *another; /* the remedy */
};

static struct place place_of_schedule(struct muster_strategy *strategy)
{
    return (struct place){.path = strategy->schedule.folder,
                          .owner = &strategy->owner,
                          .another = "give this job another --checkpoint-dir"};
}

bool muster_strategy_is_scheduled(const struct muster_strategy *strategy, const char *folder)
{
    return strategy->schedule.folder != NULL && strcmp(strategy->schedule.folder, folder) == 0;
}

static struct muster_strategy_named_folder *named_find(struct muster_strategy *strategy,
                                                       const char *folder)
{
    for (uint32_t i = 0; i < MUSTER_STRATEGY_NAMED_FOLDERS; i++)
        if (strategy->named_folders[i].path != NULL &&
            strcmp(strategy->named_folders[i].path, folder) == 0)
            return &strategy->named_folders[i];
    return NULL;
}

static void named_leave(struct muster_strategy *strategy,
                        struct muster_strategy_named_folder *named)
{
    muster_checkpoint_owner_leave(&named->owner);
    muster_mem_free(strategy->env->mem, named->path);
    named->path = NULL;
}

/* Without memory for its path it is taken all the same, as the others do, and is joined anew the next time. */
static struct place place_find(struct muster_strategy *strategy, const char *folder)
{
    struct muster_strategy_named_folder *named = named_find(strategy, folder);

    if (muster_strategy_is_scheduled(strategy, folder))
        return place_of_schedule(strategy);
    if (named == NULL) {
        named = &strategy->named_folders[strategy->named_next++ % MUSTER_STRATEGY_NAMED_FOLDERS];
        named_leave(strategy, named);
        named->path = muster_mem_strdup(strategy->env->mem, folder);
    }
    return (struct place){.path = folder, .owner = &named->owner, .another = "name another folder"};
}

uint64_t muster_strategy_folder_life(struct muster_strategy *strategy, const char *folder)
{
    const struct muster_strategy_named_folder *named = named_find(strategy, folder);

    if (muster_strategy_is_scheduled(strategy, folder))
        return strategy->owner.life;
    return named != NULL ? named->owner.life : 0;
}

/* All folders are taken in the same life, so that one that has two paths is not refused to its own job. */
uint64_t muster_strategy_job_life(const struct muster_strategy *strategy)
{
    uint64_t life = strategy->owner.life;

    for (uint32_t i = 0; i < MUSTER_STRATEGY_NAMED_FOLDERS && life == 0; i++)
        life = strategy->named_folders[i].owner.life;
    return life;
}

void muster_strategy_folders_leave(struct muster_strategy *strategy)
{
    muster_checkpoint_owner_leave(&strategy->owner);
    for (uint32_t i = 0; i < MUSTER_STRATEGY_NAMED_FOLDERS; i++)
        named_leave(strategy, &strategy->named_folders[i]);
}

/* --- The giver takes it --- */

struct attempt {
    struct muster_strategy *strategy;
    const struct place *place;
    const char *job;
    struct muster_timer again;
    uint64_t life, until_ns;
    struct muster_checkpoint_other other;
    enum muster_rc rc;
    int sys; /* its errno */
    bool is_over;
};

static void attempt_make(struct attempt *attempt)
{
    struct muster_strategy *strategy = attempt->strategy;
    uint64_t now_ns = muster_loop_now_ns(strategy->env->loop);

    attempt->rc = muster_checkpoint_owner_take(attempt->place->owner, attempt->place->path,
                                               attempt->job, attempt->life, &attempt->other);
    attempt->sys = errno;
    attempt->is_over = attempt->rc != MUSTER_UNAVAILABLE || now_ns >= attempt->until_ns;
    if (!attempt->is_over)
        muster_timer_start(&attempt->again, strategy->env->loop,
                           now_ns + AGAIN_NS +
                               muster_rng_next(strategy->env->rng) % AGAIN_JITTER_NS);
}

static void on_again(struct muster_timer *timer)
{
    attempt_make(timer->data);
}

/* The others wait for the giver's claim in an operation, which must not end before it. */
static uint64_t patience_of(const struct muster_strategy *strategy)
{
    uint64_t take_ns = strategy->schedule.take_ns, others_ns = strategy->op_timeout_ns / 2;

    return take_ns < others_ns ? take_ns : others_ns;
}

/* life 0: a new one. */
static struct claim claim_make(struct muster_strategy *strategy, const struct place *place,
                               const char *job, uint64_t life)
{
    struct attempt attempt = {.strategy = strategy,
                              .place = place,
                              .job = job,
                              .life = life,
                              .until_ns =
                                  muster_loop_after_ns(strategy->env->loop, patience_of(strategy))};
    const char *folder = place->path;
    struct claim claim = {.life = 0};

    while (attempt.life == 0)
        attempt.life = muster_rng_next(strategy->env->rng);
    muster_timer_init(&attempt.again, on_again, &attempt);
    attempt_make(&attempt);
    strategy->awaited_folder = folder;
    strategy->awaited_job = attempt.other.job;
    muster_strategy_wait_until(strategy, muster_strategy_is_true, &attempt.is_over);
    strategy->awaited_folder = strategy->awaited_job = NULL;
    muster_timer_stop(&attempt.again);
    claim.is_refused = attempt.rc == MUSTER_UNAVAILABLE;
    (void)strcpy(claim.job, attempt.other.job);
    if (attempt.rc == MUSTER_OK) {
        claim.life = attempt.life;
        if (attempt.other.job[0] != '\0' && strcmp(attempt.other.job, job) != 0)
            MUSTER_LOG(strategy->env, INFO, "checkpoint_folder_taken_over", "folder", folder, "job",
                       attempt.other.job);
    } else if (!claim.is_refused) {
        MUSTER_LOG(strategy->env, WARN, "checkpoint_folder_not_marked", "folder", folder, "reason",
                   muster_errno_reason(attempt.rc, attempt.sys));
    }
    return claim;
}

/* --- All agree --- */

static enum muster_rc claim_refuse(struct muster_strategy *strategy, const struct place *place,
                                   const struct claim *claim)
{
    return muster_error_set(
        &strategy->error, MUSTER_INVALID_ARGUMENT,
        "the checkpoint directory %.80s is in use by another job, %.63s, which runs: end that "
        "one, or %s",
        place->path, claim->job, place->another);
}

static enum muster_rc claim_share(struct muster_strategy *strategy, const struct place *place,
                                  const struct muster_member *giver, const struct muster_view *view,
                                  struct claim *claim)
{
    struct muster_tensor tensor = {.data = claim, .count = CLAIM_WORDS, .dtype = MUSTER_U64};
    struct muster_root root = {.incarnation = giver->incarnation, .epoch = view->epoch};
    enum muster_rc rc;

    if (muster_incarnation_is_equal(&giver->incarnation, muster_node_incarnation(strategy->node)))
        *claim = claim_make(strategy, place, view->job, claim->life);
    rc = muster_strategy_broadcast_in_seat(strategy, TAKE, &tensor, 1, &root);
    claim->job[sizeof(claim->job) - 1] = '\0';
    return rc == MUSTER_OK && claim->is_refused ? claim_refuse(strategy, place, claim) : rc;
}

static enum muster_rc sight_refuse(struct muster_strategy *strategy, const char *folder,
                                   const struct muster_member *blind)
{
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    return muster_error_set(
        &strategy->error, MUSTER_INVALID_ARGUMENT,
        "%.16s:%u (%.40s, host key %.36s) does not see in the checkpoint directory %.48s what "
        "another member has put there: mount the same one on all hosts",
        blind->task_type, blind->task_index, muster_address_format(&blind->address, address),
        blind->host_key, folder);
}

/* `self` is this member's number + 1. *ret_blind: that of one that does not see the folder; 0: none. */
static enum muster_rc sight_compare(struct muster_strategy *strategy, const struct place *place,
                                    const char *job, uint64_t life, uint64_t self,
                                    uint64_t *ret_blind)
{
    struct muster_tensor tensor = {.data = ret_blind, .count = 1, .dtype = MUSTER_U64};

    *ret_blind =
        muster_checkpoint_owner_join(place->owner, place->path, job, life) != MUSTER_OK ? self : 0;
    return muster_strategy_all_reduce_in_seat(strategy, TAKE, &tensor, MUSTER_MAX);
}

/* --- All can use it --- */

/* Each word becomes the largest of all members. */
struct look {
    uint64_t life;         /* when another attempt was cut short; 0: nobody has the folder yet */
    uint64_t able, unable; /* number + 1 of a member; 0: there is none */
};

#define LOOK_WORDS (sizeof(struct look) / sizeof(uint64_t))

/* Told to all by a member that cannot use the folder. */
struct obstacle {
    uint64_t rc;
    char text[160];
};

#define OBSTACLE_WORDS (sizeof(struct obstacle) / sizeof(uint64_t))

/* The first checkpoint would tell of a folder that cannot be used, perhaps hours later. */
static struct obstacle obstacle_find(const char *folder)
{
    struct obstacle obstacle = {.rc = MUSTER_OK};
    struct muster_error why = {.text = ""};
    enum muster_rc rc = muster_checkpoint_make_folder(folder, &why);

    if (rc == MUSTER_OK) {
        rc = muster_folder_check(folder);
        (void)muster_error_set(&why, rc, "cannot write to the folder (%s): %s",
                               muster_errno_reason(rc, errno), folder);
    }
    obstacle.rc = rc;
    (void)snprintf(obstacle.text, sizeof(obstacle.text), "%.159s", why.text);
    return obstacle;
}

/* A disk that fails or is full may be mended when the worker starts again. */
static enum muster_rc obstacle_code(const struct obstacle *obstacle)
{
    enum muster_rc rc = (enum muster_rc)obstacle->rc;

    return rc == MUSTER_NOT_FOUND || rc == MUSTER_ALREADY_EXISTS || rc == MUSTER_PERMISSION_DENIED
               ? MUSTER_INVALID_ARGUMENT
               : rc;
}

static enum muster_rc obstacle_refuse(struct muster_strategy *strategy,
                                      const struct muster_member *unable, bool are_others_able,
                                      const struct obstacle *obstacle)
{
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    if (!are_others_able)
        return muster_error_set(&strategy->error, obstacle_code(obstacle),
                                "%.16s:%u cannot save checkpoints; mend that, or name another "
                                "directory (MUSTER_CHECKPOINT_DIR): %s",
                                unable->task_type, unable->task_index, obstacle->text);
    return muster_error_set(
        &strategy->error, obstacle_code(obstacle),
        "%.16s:%u (%.40s, host key %.36s) cannot save checkpoints; mount the same one on all "
        "hosts: %s",
        unable->task_type, unable->task_index, muster_address_format(&unable->address, address),
        unable->host_key, obstacle->text);
}

/* A member that cannot use the folder would otherwise leave alone, and the others would train on without it. *ret_life:
 * as in the look. */
static enum muster_rc folder_compare(struct muster_strategy *strategy, const char *folder,
                                     const struct muster_strategy_sharers *sharers,
                                     uint64_t *ret_life)
{
    struct obstacle obstacle = obstacle_find(folder);
    uint64_t self = sharers->self + 1u;
    struct look look = {.life = strategy->owner.life,
                        .able = obstacle.rc == MUSTER_OK ? self : 0,
                        .unable = obstacle.rc != MUSTER_OK ? self : 0};
    struct muster_tensor tensor = {.data = &look, .count = LOOK_WORDS, .dtype = MUSTER_U64};
    struct muster_tensor told = {.data = &obstacle, .count = OBSTACLE_WORDS, .dtype = MUSTER_U64};
    const struct muster_member *unable;
    struct muster_root root = {.epoch = sharers->view->epoch};
    enum muster_rc rc = muster_strategy_all_reduce_in_seat(strategy, TAKE, &tensor, MUSTER_MAX);

    *ret_life = look.life;
    if (rc != MUSTER_OK || look.unable == 0 || look.unable > sharers->count)
        return rc;
    unable = muster_strategy_sharer_at(sharers, (uint32_t)look.unable - 1);
    root.incarnation = unable->incarnation;
    rc = muster_strategy_broadcast_in_seat(strategy, TAKE, &told, 1, &root);
    obstacle.text[sizeof(obstacle.text) - 1] = '\0';
    return rc == MUSTER_OK ? obstacle_refuse(strategy, unable, look.able != 0, &obstacle) : rc;
}

enum muster_rc muster_strategy_folder_take(struct muster_strategy *strategy,
                                           const struct muster_strategy_sharers *sharers)
{
    struct place place = place_of_schedule(strategy);
    struct claim claim = {.life = 0};
    uint64_t blind = 0;
    enum muster_rc rc;

    if (place.path == NULL)
        return MUSTER_OK;
    rc = folder_compare(strategy, place.path, sharers, &claim.life);
    if (rc == MUSTER_OK && claim.life == 0)
        rc = claim_share(strategy, &place, muster_strategy_sharer_at(sharers, sharers->giver),
                         sharers->view, &claim);
    if (rc == MUSTER_OK && claim.life != 0)
        rc = sight_compare(strategy, &place, sharers->view->job, claim.life, sharers->self + 1u,
                           &blind);
    if (rc != MUSTER_OK || blind == 0 || blind > sharers->count)
        return rc;
    return sight_refuse(strategy, place.path,
                        muster_strategy_sharer_at(sharers, (uint32_t)blind - 1));
}

/* --- A folder that the program names --- */

static enum muster_rc named_take(struct muster_strategy *strategy, const struct place *place,
                                 uint64_t life)
{
    const struct muster_view *view = strategy->view;
    struct claim claim = {.life = life};
    uint64_t blind = 0;
    enum muster_rc rc = claim_share(strategy, place, &view->members[0], view, &claim);

    if (rc == MUSTER_OK && claim.life != 0)
        rc = sight_compare(strategy, place, view->job, claim.life, strategy->rank + 1u, &blind);
    if (rc != MUSTER_OK || blind == 0 || blind > view->member_count)
        return rc;
    return sight_refuse(strategy, place->path, &view->members[blind - 1]);
}

/* One that was refused is not kept: the next attempt asks anew. */
enum muster_rc muster_strategy_folder_name(struct muster_strategy *strategy, const char *folder,
                                           uint64_t life)
{
    struct muster_op_result result = strategy->result;
    struct place place = place_find(strategy, folder);
    enum muster_rc rc = named_take(strategy, &place, life);

    strategy->result = result;
    strategy->ops_rc = MUSTER_OK; /* no operation of the program's step */
    if (rc != MUSTER_OK)
        muster_checkpoint_owner_leave(place.owner);
    return rc;
}

/* --- A member that comes later --- */

enum muster_rc muster_strategy_folder_join(struct muster_strategy *strategy, const char *folder,
                                           uint64_t life)
{
    const struct muster_view *view = strategy->view;
    struct place place;
    uint32_t rank = 0;

    if (life == 0)
        return MUSTER_OK;
    place = place_find(strategy, folder);
    if (muster_checkpoint_owner_join(place.owner, place.path, view->job, life) == MUSTER_OK ||
        !muster_view_find(view, muster_node_incarnation(strategy->node), &rank))
        return MUSTER_OK;
    return sight_refuse(strategy, folder, &view->members[rank]);
}
