/* Work beside the loop of a simulated process: it ends after a while, in a turn of the loop, and not at all when
 * the process dies before. The linker leads the product's calls here (tests/CMakeLists.txt). */
#include "tests/sim/params_aside.h"

#include "runtime/system/aside_system.h"
#include "runtime/system/folder_system.h"

#define WORK_MAX_NS (5 * MUSTER_NS_PER_MS)

struct sim_aside {
    struct muster_env *env;
    struct muster_timer timer;
    muster_aside_fn *work;
    muster_aside_done_fn *done; /* NULL: nothing is under way */
    void *data;
};

enum muster_rc __wrap_muster_aside_open(struct muster_env *env, void **ret_aside);
void __wrap_muster_aside_keep_priority(void *aside);
void __wrap_muster_aside_start(void *aside, muster_aside_fn *work, muster_aside_done_fn *done,
                               void *data);
void __wrap_muster_aside_close(void *aside);
enum muster_rc __wrap_muster_folder_sync(const char *folder);
enum muster_rc __wrap_muster_file_hold_shared(const char *path, int *ret_hold);
void __wrap_muster_file_release_last(int hold, const char *path);

void params_aside_link(void)
{
}

static void on_timer(struct muster_timer *timer)
{
    struct sim_aside *aside = timer->data;
    muster_aside_done_fn *done = aside->done;

    aside->done = NULL;
    done(aside->data, aside->work(aside->data));
}

enum muster_rc __wrap_muster_aside_open(struct muster_env *env, void **ret_aside)
{
    struct sim_aside *aside = muster_mem_alloc_zero(env->mem, 1, sizeof(*aside));

    if (aside == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    aside->env = env;
    muster_timer_init(&aside->timer, on_timer, aside);
    *ret_aside = aside;
    return MUSTER_OK;
}

void __wrap_muster_aside_keep_priority(void *aside)
{
    (void)aside;
}

void __wrap_muster_aside_start(void *data_aside, muster_aside_fn *work, muster_aside_done_fn *done,
                               void *data)
{
    struct sim_aside *aside = data_aside;

    MUSTER_ASSERT(aside->done == NULL);
    aside->work = work;
    aside->done = done;
    aside->data = data;
    muster_timer_start(
        &aside->timer, aside->env->loop,
        muster_loop_after_ns(aside->env->loop, muster_rng_below(aside->env->rng, WORK_MAX_NS)));
}

void __wrap_muster_aside_close(void *data_aside)
{
    struct sim_aside *aside = data_aside;

    if (aside == NULL)
        return;
    muster_timer_stop(&aside->timer);
    if (aside->done != NULL) /* a thread that is joined ends its work */
        (void)aside->work(aside->data);
    muster_mem_free(aside->env->mem, aside);
}

enum muster_rc __wrap_muster_folder_sync(const char *folder)
{
    (void)folder;
    return MUSTER_OK;
}

/* The folders of simulated processes are not on the disk. A hold ends in the call that has begun it, so that no two of
 * them meet. */
enum muster_rc __wrap_muster_file_hold_shared(const char *path, int *ret_hold)
{
    (void)path;
    *ret_hold = -1;
    return MUSTER_OK;
}

void __wrap_muster_file_release_last(int hold, const char *path)
{
    (void)path;
    MUSTER_ASSERT(hold == -1);
}
