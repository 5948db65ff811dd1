/* Preemption: all members of a job stop behind one step, which is saved, and the next job begins there. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <muster/checkpoint.h>
#include <muster/strategy_preemption.h>

#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define MEMBERS 3
#define LAST    1000u /* a step that no job of these cases comes to */

static struct job_stage stage;
static char folder[64];

struct member {
    struct muster_strategy *strategy;
    int64_t total;
    uint64_t step; /* the last that was begun */
    enum muster_rc rc;
};

struct scene {
    uint64_t asks_at;      /* rank 1 asks the job to stop in this step */
    uint64_t dies_at;      /* rank 2 dies in this step; 0: it does not */
    bool is_unwritable[8]; /* by rank: its folder is none */
};

/* --- A folder --- */

static int folder_make(void **state)
{
    (void)state;
    (void)strcpy(folder, "/tmp/strategy_preempt.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int folder_delete(void **state)
{
    DIR *names = opendir(folder);
    struct dirent *entry;
    char file[512];

    (void)state;
    while (names != NULL && (entry = readdir(names)) != NULL) {
        (void)snprintf(file, sizeof(file), "%s/%s", folder, entry->d_name);
        (void)unlink(file);
    }
    if (names != NULL)
        (void)closedir(names);
    return rmdir(folder);
}

/* The newest whole checkpoint; 0: there is none. */
static uint64_t find_saved(void)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;
    uint64_t step = 0;

    assert_int_equal(muster_checkpoint_list(muster_mem_system(), folder, &entries, &count, &error),
                     MUSTER_OK);
    for (size_t i = 0; i < count; i++)
        if (entries[i].has_manifest && entries[i].name.step > step)
            step = entries[i].name.step;
    muster_mem_free(muster_mem_system(), entries);
    return step;
}

/* --- Members --- */

static void member_open(struct member *member)
{
    const struct muster_tensor total = {.data = &member->total, .count = 1, .dtype = MUSTER_I64};

    memset(member, 0, sizeof(*member));
    member->strategy = job_strategy_open();
    JOB_CHECK(muster_strategy_register(member->strategy, "total", &total) == MUSTER_OK);
}

static bool member_step(struct member *member)
{
    int64_t one = 1;

    member->rc = muster_strategy_begin(member->strategy, &member->step, NULL);
    if (member->rc != MUSTER_OK)
        return false;
    job_sum(member->strategy, &one);
    member->total += 1;
    job_commit(member->strategy);
    return true;
}

static void expect_text(const struct member *member, const char *text)
{
    if (strstr(muster_strategy_error(member->strategy)->text, text) == NULL)
        job_check(false, muster_strategy_error(member->strategy)->text, __FILE__, __LINE__);
}

static void member_train(struct member *member, unsigned rank, const struct scene *scene)
{
    for (uint64_t step = 1; step < LAST; step++) {
        if (rank == 1 && step == scene->asks_at)
            JOB_CHECK(muster_strategy_preempt(member->strategy, "by the case") == MUSTER_OK);
        if (rank == 2 && step == scene->dies_at)
            raise(SIGKILL);
        if (!member_step(member))
            return;
        if (step == 1 && scene->is_unwritable[rank]) /* begin has proved that all see the folder */
            (void)strcpy(member->strategy->schedule.folder, "/dev/null/folder");
        JOB_CHECK((uint64_t)member->total == member->step);
    }
}

static void be_preempted(unsigned rank, void *data)
{
    const struct scene *scene = data;
    uint64_t step;
    struct member member;

    member_open(&member);
    JOB_CHECK(!muster_strategy_is_preempted(member.strategy));
    member_train(&member, rank, scene);

    JOB_CHECK(muster_strategy_is_preempted(member.strategy));
    if (scene->is_unwritable[rank]) {
        JOB_CHECK(member.rc != MUSTER_OK && member.rc != MUSTER_CANCELLED);
        expect_text(&member, "/dev/null/folder");
    } else {
        JOB_CHECK(member.rc == MUSTER_CANCELLED);
        expect_text(&member, "preempted: stopped after step ");
        JOB_CHECK(muster_strategy_begin(member.strategy, &step, NULL) == MUSTER_CANCELLED);
    }
    muster_strategy_close(member.strategy);
}

static void scene_play(struct scene *scene, const char *checkpoint_dir)
{
    job_stage_open(&stage, 0, MEMBERS);
    if (checkpoint_dir != NULL)
        setenv("MUSTER_CHECKPOINT_DIR", checkpoint_dir, 1);
    for (unsigned rank = 1; rank < MEMBERS; rank++)
        job_stage_start(&stage, rank, be_preempted, scene);
    be_preempted(0, scene);
    if (scene->dies_at != 0)
        assert_true(job_stage_join_killed(&stage, 2));
    job_stage_join(&stage);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    (void)job_stage_told(&stage);
    job_stage_close(&stage);
}

/* Up to the step behind which the job stopped, and two more. */
static void go_on_from(uint64_t step)
{
    struct member member;

    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", folder, 1);
    member_open(&member);
    assert_true(member_step(&member));
    assert_int_equal(member.step, step + 1);
    assert_int_equal(member.total, step + 1);
    muster_strategy_close(member.strategy);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_close(&stage);
}

/* --- Cases --- */

static void all_members_stop_behind_one_step_which_is_saved(void **state)
{
    struct scene scene = {.asks_at = 5};
    uint64_t step;

    (void)state;
    scene_play(&scene, folder);
    step = find_saved();
    assert_true(step >= 4 && step < LAST);
    go_on_from(step);
}

static void a_member_that_dies_meanwhile_is_done_without(void **state)
{
    struct scene scene = {.asks_at = 5, .dies_at = 5};

    (void)state;
    scene_play(&scene, folder);
    go_on_from(find_saved());
}

static void who_cannot_save_fails_and_the_others_save_without_it(void **state)
{
    struct scene scene = {.asks_at = 5, .is_unwritable = {false, false, true}};

    (void)state;
    scene_play(&scene, folder);
    go_on_from(find_saved());
}

static void where_nobody_can_save_nobody_says_so(void **state)
{
    struct scene scene = {.asks_at = 5, .is_unwritable = {true, true, true}};

    (void)state;
    scene_play(&scene, folder);
    assert_int_equal(find_saved(), 0);
}

static void without_a_folder_nothing_is_saved(void **state)
{
    struct scene scene = {.asks_at = 5};

    (void)state;
    scene_play(&scene, NULL);
    assert_int_equal(find_saved(), 0);
    assert_non_null(strstr(stage.told, "\"report\":\"preempted\",\"step\":"));
    assert_non_null(strstr(stage.told, "\"saved\":false"));
    assert_null(strstr(stage.told, "\"report\":\"result\""));
}

/* Nobody has begun a step, so there is nothing to save. */
static void a_job_that_is_preempted_before_its_first_step_saves_nothing(void **state)
{
    struct muster_strategy *strategy;
    uint64_t step;

    (void)state;
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", folder, 1);
    strategy = job_strategy_open();
    assert_int_equal(muster_strategy_preempt(strategy, NULL), MUSTER_OK);
    while (!muster_strategy_is_preempted(strategy))
        sched_yield(); /* the keeper thread turns the loop */
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_CANCELLED);
    assert_non_null(strstr(muster_strategy_error(strategy)->text, "there is nothing to save"));
    muster_strategy_close(strategy);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_close(&stage);
    assert_int_equal(find_saved(), 0);
}

/* The folder has it already. */
static void a_step_that_was_restored_is_not_saved_again(void **state)
{
    struct scene scene = {.asks_at = 3};
    struct member member;
    uint64_t step;

    (void)state;
    scene_play(&scene, folder);
    step = find_saved();
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", folder, 1);
    member_open(&member);
    assert_int_equal(muster_strategy_preempt(member.strategy, "again"), MUSTER_OK);
    while (!muster_strategy_is_preempted(member.strategy))
        sched_yield();
    assert_false(member_step(&member));
    assert_int_equal(member.rc, MUSTER_CANCELLED);
    muster_strategy_close(member.strategy);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_close(&stage);
    assert_int_equal(find_saved(), step);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, folder_make, folder_delete)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_members_stop_behind_one_step_which_is_saved),
        CASE(a_member_that_dies_meanwhile_is_done_without),
        CASE(who_cannot_save_fails_and_the_others_save_without_it),
        CASE(where_nobody_can_save_nobody_says_so),
        CASE(without_a_folder_nothing_is_saved),
        CASE(a_job_that_is_preempted_before_its_first_step_saves_nothing),
        CASE(a_step_that_was_restored_is_not_saved_again),
    };

    return cmocka_run_group_tests_name("strategy_preempt", tests, NULL, NULL);
}
