/* The members of a job take its folder of checkpoints together. */
#include "training/strategy_folder.h"

#include <string.h>

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

/* --- The giver takes it --- */

struct attempt {
    struct muster_strategy *strategy;
    const char *job;
    struct muster_timer again;
    uint64_t life, until_ns;
    struct muster_checkpoint_other other;
    enum muster_rc rc;
    bool is_over;
};

static void attempt_make(struct attempt *attempt)
{
    struct muster_strategy *strategy = attempt->strategy;
    uint64_t now_ns = muster_loop_now_ns(strategy->env->loop);

    attempt->rc = muster_checkpoint_owner_take(&strategy->owner, strategy->schedule.folder,
                                               attempt->job, attempt->life, &attempt->other);
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

static struct claim claim_make(struct muster_strategy *strategy, const char *job)
{
    struct attempt attempt = {
        .strategy = strategy,
        .job = job,
        .until_ns = muster_loop_after_ns(strategy->env->loop, strategy->schedule.take_ns)};
    const char *folder = strategy->schedule.folder;
    struct claim claim = {.life = 0};

    while (attempt.life == 0)
        attempt.life = muster_rng_next(strategy->env->rng);
    muster_timer_init(&attempt.again, on_again, &attempt);
    attempt_make(&attempt);
    muster_strategy_wait_until(strategy, muster_strategy_is_true, &attempt.is_over);
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
                   muster_rc_text(attempt.rc));
    }
    return claim;
}

/* --- All agree --- */

/* Those that have it already, when another attempt was cut short. */
static enum muster_rc life_find(struct muster_strategy *strategy, uint64_t *ret_life)
{
    struct muster_tensor tensor = {.data = ret_life, .count = 1, .dtype = MUSTER_U64};

    *ret_life = strategy->owner.life;
    return muster_strategy_all_reduce_in_seat(strategy, TAKE, &tensor, MUSTER_MAX);
}

static enum muster_rc claim_share(struct muster_strategy *strategy,
                                  const struct muster_strategy_sharers *sharers,
                                  struct claim *claim)
{
    struct muster_tensor tensor = {.data = claim, .count = CLAIM_WORDS, .dtype = MUSTER_U64};
    struct muster_root root = {.incarnation =
                                   muster_strategy_sharer_at(sharers, sharers->giver)->incarnation,
                               .epoch = sharers->view->epoch};
    enum muster_rc rc;

    if (sharers->self == sharers->giver)
        *claim = claim_make(strategy, sharers->view->job);
    rc = muster_strategy_broadcast_in_seat(strategy, TAKE, &tensor, 1, &root);
    claim->job[sizeof(claim->job) - 1] = '\0';
    if (rc != MUSTER_OK || !claim->is_refused)
        return rc;
    return muster_error_set(
        &strategy->error, MUSTER_INVALID_ARGUMENT,
        "the checkpoint directory %.80s is in use by another job, %.63s, which runs: end that "
        "one, or give this job another --checkpoint-dir",
        strategy->schedule.folder, claim->job);
}

static enum muster_rc sight_refuse(struct muster_strategy *strategy,
                                   const struct muster_member *blind)
{
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    return muster_error_set(
        &strategy->error, MUSTER_INVALID_ARGUMENT,
        "%.16s:%u (%.40s, host key %.36s) does not see in the checkpoint directory %.48s what "
        "another member has put there: mount the same one on all hosts",
        blind->task_type, blind->task_index, muster_address_format(&blind->address, address),
        blind->host_key, strategy->schedule.folder);
}

static enum muster_rc sight_compare(struct muster_strategy *strategy,
                                    const struct muster_strategy_sharers *sharers, uint64_t life)
{
    uint64_t blind = muster_checkpoint_owner_join(&strategy->owner, strategy->schedule.folder,
                                                  sharers->view->job, life) != MUSTER_OK
                         ? sharers->self + 1u
                         : 0;
    struct muster_tensor tensor = {.data = &blind, .count = 1, .dtype = MUSTER_U64};
    enum muster_rc rc = muster_strategy_all_reduce_in_seat(strategy, TAKE, &tensor, MUSTER_MAX);

    if (rc != MUSTER_OK || blind == 0 || blind > sharers->count)
        return rc;
    return sight_refuse(strategy, muster_strategy_sharer_at(sharers, (uint32_t)blind - 1));
}

enum muster_rc muster_strategy_folder_take(struct muster_strategy *strategy,
                                           const struct muster_strategy_sharers *sharers)
{
    struct claim claim = {.life = 0};
    enum muster_rc rc;

    if (strategy->schedule.folder == NULL)
        return MUSTER_OK;
    rc = life_find(strategy, &claim.life);
    if (rc == MUSTER_OK && claim.life == 0)
        rc = claim_share(strategy, sharers, &claim);
    return rc == MUSTER_OK && claim.life != 0 ? sight_compare(strategy, sharers, claim.life) : rc;
}

/* --- A member that comes later --- */

enum muster_rc muster_strategy_folder_join(struct muster_strategy *strategy, uint64_t life)
{
    const struct muster_view *view = strategy->view;
    uint32_t rank = 0;

    if (life == 0 || muster_checkpoint_owner_join(&strategy->owner, strategy->schedule.folder,
                                                  view->job, life) == MUSTER_OK)
        return MUSTER_OK;
    if (!muster_view_find(view, muster_node_incarnation(strategy->node), &rank))
        return MUSTER_OK;
    return sight_refuse(strategy, &view->members[rank]);
}
