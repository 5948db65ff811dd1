/* Folders of checkpoints: all members see the same one and can use it, and one job has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/strategy_checkpoint.h>

#include "test_env.h"
#include "trainee.h"
#include "training/strategy_folder.h"
#include "training/strategy_internal.h"

static struct job_stage stage;

/* --- The folder of the job --- */

static void check_refused_begin(struct trainee *one, const char *text)
{
    JOB_RC(one->strategy, muster_strategy_begin(one->strategy, &one->step, &one->is_restored),
           MUSTER_INVALID_ARGUMENT, text);
    trainee_close(one);
}

static void see_another_folder(unsigned rank, void *data)
{
    struct trainee one;

    (void)rank;
    (void)data;
    setenv("MUSTER_CHECKPOINT_DIR", trainee_other, 1);
    trainee_open(&one, 3, NULL);
    check_refused_begin(&one, "worker:1 (");
}

/* All learn it before the first step. */
static void a_member_that_sees_another_folder_is_named_at_once(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 2);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    job_stage_start(&stage, 1, see_another_folder, NULL);
    trainee_open(&one, 3, NULL);
    check_refused_begin(&one, "what another member has put there");
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_join(&stage);
    job_stage_close(&stage);
}

struct bad_folder {
    const char *path[2]; /* by rank */
    enum muster_rc rc;
    const char *text;
};

static void use_bad_folder(unsigned rank, void *data)
{
    const struct bad_folder *row = data;
    struct trainee one;

    setenv("MUSTER_CHECKPOINT_DIR", row->path[rank], 1);
    trainee_open(&one, 3, NULL);
    JOB_RC(one.strategy, muster_strategy_begin(one.strategy, &one.step, &one.is_restored), row->rc,
           row->text);
    trainee_close(&one);
    unsetenv("MUSTER_CHECKPOINT_DIR");
}

/* Nobody trains on without it. Root, too, cannot write to a folder below /proc/sys. */
static void a_member_that_cannot_use_the_folder_is_named_to_all(void **state)
{
#define ALL_UNABLE                                                                                 \
    "worker:1 cannot save checkpoints; mend that, or name another directory "                      \
    "(MUSTER_CHECKPOINT_DIR): "
#define ONE_UNABLE " cannot save checkpoints; mount the same one on all hosts: "
#define NO_PARENT  "cannot make the folder (not found, its parent must be there): /proc/nothing"
    static char loop[80];
    struct bad_folder rows[] = {
        {{trainee_folder, "/proc/nothing"}, MUSTER_INVALID_ARGUMENT, ONE_UNABLE NO_PARENT},
        {{trainee_folder, "/proc/nothing"}, MUSTER_INVALID_ARGUMENT, "worker:1 ("},
        {{"/proc/nothing", trainee_folder}, MUSTER_INVALID_ARGUMENT, "worker:0 ("},
        {{"/proc/nothing", "/proc/nothing"}, MUSTER_INVALID_ARGUMENT, ALL_UNABLE NO_PARENT},
        {{"/proc/version", "/proc/version"},
         MUSTER_INVALID_ARGUMENT,
         ALL_UNABLE "not a folder, name another one or move that file away: /proc/version"},
        {{"/proc/sys", "/proc/sys"},
         MUSTER_INVALID_ARGUMENT,
         ALL_UNABLE "cannot write to the folder (permission denied): /proc/sys"},
        {{trainee_folder, loop},
         MUSTER_INTERNAL,
         ONE_UNABLE "cannot make the folder (Too many levels of symbolic links): /"},
    };

    (void)state;
    (void)snprintf(loop, sizeof(loop), "%s/loop", trainee_other);
    assert_int_equal(symlink(loop, loop), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        job_stage_open(&stage, 0, 2);
        job_stage_start(&stage, 1, use_bad_folder, &rows[i]);
        use_bad_folder(0, &rows[i]);
        job_stage_join(&stage);
        job_stage_close(&stage);
    }
    assert_int_equal(unlink(loop), 0);
}

/* Where the others train already. */
static void a_later_member_that_sees_another_folder_is_named(void **state)
{
    struct trainee one;
    uint64_t life;

    (void)state;
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    trainee_open(&one, 3, NULL);
    trainee_begin(&one);
    life = one.strategy->owner.life;
    assert_int_not_equal(life, 0);
    assert_int_equal(muster_strategy_folder_join(one.strategy, trainee_folder, life), MUSTER_OK);

    assert_int_equal(muster_strategy_folder_join(one.strategy, trainee_folder, life + 1),
                     MUSTER_INVALID_ARGUMENT);

    trainee_text_check(&one, "worker:0 (");
    trainee_commit(&one);
    trainee_close(&one);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_close(&stage);
}

static void a_folder_that_a_living_job_has_is_refused_and_later_taken(void **state)
{
    struct muster_checkpoint_owner owner = {.life = 0};
    struct muster_checkpoint_other other;
    struct trainee one;

    (void)state;
    assert_int_equal(muster_checkpoint_owner_take(&owner, trainee_folder, "another", 1, &other),
                     MUSTER_OK);
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    trainee_open(&one, 3, NULL);
    one.strategy->schedule.take_ns = 1;
    check_refused_begin(&one, "is in use by another job, another, which runs");
    job_stage_close(&stage);

    muster_checkpoint_owner_leave(&owner);
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    trainee_open(&one, 3, NULL);
    trainee_begin(&one);
    trainee_commit(&one);
    trainee_close(&one);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_close(&stage);
}

/* --- A folder that the program names --- */

static void assert_held(const struct trainee *one, const char *folder)
{
    struct muster_checkpoint_owner owner = {.life = 0};
    struct muster_checkpoint_other other;

    assert_int_equal(muster_checkpoint_owner_take(&owner, folder, "another", 1, &other),
                     MUSTER_UNAVAILABLE);
    assert_string_equal(other.job, one->strategy->view->job);
}

static void a_named_folder_that_a_living_job_has_is_refused_and_later_taken(void **state)
{
    struct muster_checkpoint_owner owner = {.life = 0};
    struct muster_checkpoint_other other;
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1); /* its processes would hold the file, too */
    trainee_open(&one, 3, NULL);
    assert_int_equal(muster_checkpoint_owner_take(&owner, trainee_folder, "another", 1, &other),
                     MUSTER_OK);
    one.strategy->schedule.take_ns = 1;
    trainee_train(&one, 1);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_INVALID_ARGUMENT);
    trainee_text_check(&one, " is in use by another job, another, which runs: end that one, or "
                             "name another folder");
    assert_int_equal(trainee_save(&one, trainee_other), MUSTER_OK);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    assert_held(&one, trainee_other);

    muster_checkpoint_owner_leave(&owner);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    assert_held(&one, trainee_folder);
    trainee_commit(&one);
    trainee_close(&one);
    job_stage_close(&stage);
    assert_int_equal(muster_checkpoint_owner_take(&owner, trainee_folder, "another", 1, &other),
                     MUSTER_OK);
    assert_string_not_equal(other.job, "");
    muster_checkpoint_owner_leave(&owner);
}

/* The operation in which the others wait for the answer has an end. */
static void a_folder_of_another_job_is_waited_for_within_an_operation(void **state)
{
    struct muster_checkpoint_owner owner = {.life = 0};
    struct muster_checkpoint_other other;
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, 3, NULL);
    assert_int_equal(muster_checkpoint_owner_take(&owner, trainee_folder, "another", 1, &other),
                     MUSTER_OK);
    one.strategy->schedule.take_ns = UINT64_MAX;
    trainee_train(&one, 1);
    trainee_begin(&one);
    one.strategy->op_timeout_ns = MUSTER_NS_PER_S;
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_INVALID_ARGUMENT);
    muster_checkpoint_owner_leave(&owner);
    trainee_commit(&one);
    trainee_close(&one);
    job_stage_close(&stage);
}

/* By another path than that of the variable, and by its own one. */
static void a_program_may_name_the_folder_that_its_job_has(void **state)
{
    struct trainee one;
    char path[80];

    (void)state;
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    trainee_open(&one, 3, NULL);
    one.strategy->schedule.take_ns = 1;
    trainee_train(&one, 1);
    trainee_begin(&one);
    snprintf(path, sizeof(path), "%s/.", trainee_folder);
    assert_int_equal(trainee_save(&one, path), MUSTER_OK);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
    trainee_commit(&one);
    trainee_close(&one);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_close(&stage);
}

static void a_program_may_name_a_folder_by_two_paths(void **state)
{
    struct trainee one;
    char path[80];

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, 3, NULL);
    one.strategy->schedule.take_ns = 1;
    trainee_train(&one, 1);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    snprintf(path, sizeof(path), "%s/.", trainee_folder);
    assert_int_equal(trainee_save(&one, path), MUSTER_OK);
    trainee_commit(&one);
    trainee_close(&one);
    job_stage_close(&stage);
}

/* More than a process marks: the first ones are left. */
static void many_named_folders_are_marked_in_turn(void **state)
{
    struct muster_checkpoint_owner owner = {.life = 0};
    struct muster_checkpoint_other other;
    struct trainee one;
    char path[96];

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, 3, NULL);
    trainee_train(&one, 1);
    trainee_begin(&one);
    for (unsigned i = 0; i <= MUSTER_STRATEGY_NAMED_FOLDERS; i++) {
        snprintf(path, sizeof(path), "%s/%u", trainee_folder, i);
        assert_int_equal(trainee_save(&one, path), MUSTER_OK);
        assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
        assert_held(&one, path);
    }
    snprintf(path, sizeof(path), "%s/0", trainee_folder);
    assert_int_equal(muster_checkpoint_owner_take(&owner, path, "another", 1, &other), MUSTER_OK);
    muster_checkpoint_owner_leave(&owner);
    trainee_commit(&one);
    trainee_close(&one);
    job_stage_close(&stage);
    for (unsigned i = 0; i <= MUSTER_STRATEGY_NAMED_FOLDERS; i++) {
        snprintf(path, sizeof(path), "%s/%u", trainee_folder, i);
        trainee_folder_delete(path);
    }
}

static void save_together(struct trainee *one, const char *folder, enum muster_rc rc)
{
    trainee_open(one, 3, NULL);
    trainee_train(one, 1);
    trainee_begin(one);
    JOB_CHECK(trainee_save(one, folder) == rc);
}

static void save_elsewhere(unsigned rank, void *data)
{
    struct trainee one;

    (void)rank;
    (void)data;
    save_together(&one, trainee_other, MUSTER_INVALID_ARGUMENT);
    trainee_text_check(&one, "worker:1 (");
    JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_OK);
    trainee_commit(&one);
    trainee_close(&one);
}

static void members_that_name_different_folders_are_told(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 2);
    job_stage_start(&stage, 1, save_elsewhere, NULL);
    save_together(&one, trainee_folder, MUSTER_INVALID_ARGUMENT);
    trainee_text_check(&one, "what another member has put there");
    JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_OK);
    trainee_commit(&one);
    trainee_close(&one);
    job_stage_join(&stage);
    job_stage_close(&stage);
    trainee_folder_check("1 ");
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, trainee_folders_make, trainee_folders_delete)
    const struct CMUnitTest tests[] = {
        CASE(a_member_that_sees_another_folder_is_named_at_once),
        CASE(a_member_that_cannot_use_the_folder_is_named_to_all),
        CASE(a_later_member_that_sees_another_folder_is_named),
        CASE(a_folder_that_a_living_job_has_is_refused_and_later_taken),
        CASE(a_named_folder_that_a_living_job_has_is_refused_and_later_taken),
        CASE(a_folder_of_another_job_is_waited_for_within_an_operation),
        CASE(a_program_may_name_the_folder_that_its_job_has),
        CASE(a_program_may_name_a_folder_by_two_paths),
        CASE(many_named_folders_are_marked_in_turn),
        CASE(members_that_name_different_folders_are_told),
    };
#undef CASE

    return cmocka_run_group_tests_name("training.strategy_folder", tests, NULL, NULL);
}
