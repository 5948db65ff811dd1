/* Checkpoints of a strategy whose members end, die or cannot write. */
#include <limits.h>
#include <sched.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <muster/checkpoint.h>
#include <muster/strategy_checkpoint.h>

#include "test_env.h"
#include "trainee.h"
#include "training/strategy_internal.h"

static struct job_stage stage;

/* --- The last step --- */

struct last_scene {
    uint64_t closes_behind[3]; /* by rank: its last step */
    bool dies[3];              /* instead of closing */
    bool begins[3];            /* another step, in which it does nothing */
};

static void be_in_last_scene(unsigned rank, void *data)
{
    const struct last_scene *scene = data;
    struct trainee one;

    trainee_open(&one, TRAINEE_COUNT, NULL);
    if (scene->closes_behind[rank] < scene->closes_behind[2]) /* in vain */
        one.strategy->schedule.patience_ns = 100 * MUSTER_NS_PER_MS;
    trainee_train(&one, scene->closes_behind[rank]);
    if (scene->dies[rank])
        raise(SIGKILL);
    if (scene->begins[rank])
        trainee_begin(&one);
    JOB_CHECK(muster_strategy_close_checked(one.strategy, NULL) == MUSTER_OK);
    free(one.values);
}

static void last_scene_play(struct last_scene *scene, const char *expected)
{
    job_stage_open(&stage, 0, 3);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    setenv("MUSTER_CHECKPOINT_EVERY", "1000", 1);
    for (unsigned rank = 1; rank < 3; rank++)
        job_stage_start(&stage, rank, be_in_last_scene, scene);
    be_in_last_scene(0, scene);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    unsetenv("MUSTER_CHECKPOINT_EVERY");
    for (unsigned rank = 1; rank < 3; rank++)
        assert_int_equal(job_stage_join_killed(&stage, rank), scene->dies[rank]);
    job_stage_close(&stage);
    trainee_folder_check(expected);
}

/* Three shards and a manifest. */
static void files_count(uint32_t expected)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;

    assert_int_equal(
        muster_checkpoint_list(muster_mem_system(), trainee_folder, &entries, &count, &error),
        MUSTER_OK);
    assert_int_equal(entries[0].file_count, expected);
    muster_mem_free(muster_mem_system(), entries);
}

static void the_last_step_is_saved_by_all_that_close_behind_it(void **state)
{
    struct last_scene scene = {.closes_behind = {4, 4, 4}};

    (void)state;
    last_scene_play(&scene, "4 ");
    files_count(4);
}

static void the_others_save_the_last_step_of_one_that_dies_behind_it(void **state)
{
    struct last_scene scene = {.closes_behind = {4, 4, 4}, .dies = {false, true, false}};

    (void)state;
    last_scene_play(&scene, "4 ");
    files_count(3);
}

static void one_that_closes_before_the_others_leaves_the_last_step_to_them(void **state)
{
    struct last_scene scene = {.closes_behind = {2, 5, 5}};

    (void)state;
    last_scene_play(&scene, "5 ");
    files_count(3);
}

static void a_step_that_was_begun_only_leaves_the_last_commit_to_be_saved(void **state)
{
    struct last_scene scene = {.closes_behind = {4, 4, 4}, .begins = {true, true, true}};

    (void)state;
    last_scene_play(&scene, "4 ");
    files_count(4);
}

/* --- Members that are lost amid it --- */

enum role { ROLE_STAYS, ROLE_DIES, ROLE_ELSEWHERE };

struct scene {
    enum role roles[3];
    int is_written[2]; /* pipe: a byte from each member that has written its shard */
    enum muster_rc rc;
    const char *text;
};

/* The shard of this rank is there. */
static void shard_await(const struct trainee *one, const char *where, unsigned rank)
{
    char path[PATH_MAX], name[MUSTER_CHECKPOINT_NAME_BYTES];

    (void)muster_checkpoint_name_format(&one->strategy->saving.checkpoint->name, name);
    (void)snprintf(path, sizeof(path), "%s/%s.shard-%05u-of-00003", where, name, rank);
    while (access(path, F_OK) != 0)
        usleep(1000);
}

#define LIFE 77u /* of the job, so that the name of its mark is known */

/* This member writes elsewhere, but finds there the mark of the others' folder. */
static void mark_forge(struct muster_strategy *strategy)
{
    char mark[PATH_MAX], target[PATH_MAX];

    (void)snprintf(mark, sizeof(mark), "used-by-%s-%016x", strategy->view->job, LIFE);
    (void)snprintf(target, sizeof(target), "%s/%.200s", trainee_folder, mark);
    JOB_CHECK(chdir(trainee_other) == 0 && symlink(target, mark) == 0);
    strategy->named_folders[0].owner = (struct muster_checkpoint_owner){.life = LIFE, .hold = -1};
}

/* It has this folder already, and the others find their own one taken as well. */
static void folder_forge(struct muster_strategy *strategy, const char *folder)
{
    char mark[PATH_MAX];
    int fd;

    (void)snprintf(mark, sizeof(mark), "%s/used-by-%s-%016x", trainee_folder, strategy->view->job,
                   LIFE);
    fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    JOB_CHECK(fd >= 0 && close(fd) == 0);
    strategy->named_folders[0] = (struct muster_strategy_named_folder){
        .path = muster_mem_strdup(strategy->env->mem, folder), .owner = {.life = LIFE, .hold = -1}};
}

static void be_in_scene(unsigned rank, void *data)
{
    const struct scene *scene = data;
    enum role role = scene->roles[rank];
    const char *where = role == ROLE_ELSEWHERE ? trainee_other : trainee_folder;
    struct trainee one;
    enum muster_rc rc;

    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 4);
    trainee_begin(&one);
    if (role == ROLE_ELSEWHERE)
        mark_forge(one.strategy);
    JOB_CHECK(trainee_save(&one, where) == MUSTER_OK);
    if (role != ROLE_STAYS) {
        char byte;

        shard_await(&one, where, rank);
        /* Behind a death that one would write none. */
        if (role == ROLE_DIES && scene->roles[2] == ROLE_ELSEWHERE)
            shard_await(&one, trainee_other, 2);
        if (role == ROLE_ELSEWHERE && scene->roles[0] == ROLE_DIES) /* else that one gives up */
            JOB_CHECK(read(scene->is_written[0], &byte, 1) == 1);
        JOB_CHECK(write(scene->is_written[1], "", 1) == 1);
        raise(SIGKILL);
    }
    trainee_commit(&one);
    rc = muster_strategy_checkpoint_wait(one.strategy);
    JOB_CHECK(rc == scene->rc);
    if (rc != MUSTER_OK)
        trainee_text_check(&one, scene->text);
    do {
        trainee_begin(&one);
        rc = trainee_save(&one, trainee_folder); /* the members that are left */
    } while (rc == MUSTER_ABORTED);
    JOB_CHECK(rc == MUSTER_OK);
    trainee_commit(&one);
    JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) == MUSTER_OK);
    trainee_close(&one);
}

static void scene_play(struct scene *scene)
{
    job_stage_open(&stage, 1, 3);
    assert_int_equal(pipe(scene->is_written), 0);
    for (unsigned rank = 0; rank < 3; rank++)
        if (rank != 1)
            job_stage_start(&stage, rank, be_in_scene, scene);
    be_in_scene(1, scene);
    for (unsigned rank = 0; rank < 3; rank++)
        if (rank != 1)
            assert_int_equal(job_stage_join_killed(&stage, rank), scene->roles[rank] != ROLE_STAYS);
    close(scene->is_written[0]);
    close(scene->is_written[1]);
    job_stage_close(&stage);
}

static void a_member_that_dies_before_its_shard_is_there_ends_this_checkpoint_alone(void **state)
{
    struct scene scene = {.roles = {ROLE_STAYS, ROLE_STAYS, ROLE_ELSEWHERE},
                          .rc = MUSTER_ABORTED,
                          .text = "checkpoint of step 4: worker:2 (rank 2) has gone, and its shard "
                                  "is not there"};

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_save_alone(3);
    job_stage_close(&stage);
    scene_play(&scene);
    trainee_folder_check("5 3 "); /* what was left of the other one is deleted */
}

static void the_others_finish_for_one_that_dies_behind_its_shard(void **state)
{
    struct scene scene = {.roles = {ROLE_DIES, ROLE_STAYS, ROLE_STAYS}, .rc = MUSTER_OK};

    (void)state;
    scene_play(&scene);
    trainee_folder_check("5 4 ");
}

static void the_others_notice_the_one_of_two_dead_whose_shard_is_not_there(void **state)
{
    struct scene scene = {.roles = {ROLE_DIES, ROLE_STAYS, ROLE_ELSEWHERE},
                          .rc = MUSTER_ABORTED,
                          .text = "worker:2 (rank 2) has gone, and its shard is not there"};

    (void)state;
    scene_play(&scene);
    trainee_folder_check("5 ");
}

/* A page that holds up the thread which reads it, until the loop waits for it to end what is cancelled. */
#define TRAP_BYTES 4096u
static struct {
    uint8_t *page;
    pid_t program;
    const struct muster_strategy *strategy;
    atomic_bool is_released;
    atomic_uint *held; /* threads of all members */
} trap;

static void on_fault(int number, siginfo_t *info, void *context)
{
    uint8_t *at = info->si_addr;

    (void)context;
    if (trap.page == NULL || at < trap.page || at >= trap.page + TRAP_BYTES) {
        (void)signal(number, SIG_DFL);
        return;
    }
    if (gettid() != trap.program)
        (void)atomic_fetch_add(trap.held, 1);
    while (gettid() != trap.program && !atomic_load(&trap.is_released))
        (void)syscall(SYS_sched_yield);
    (void)mprotect(trap.page, TRAP_BYTES, PROT_READ | PROT_WRITE);
}

int sched_yield(void)
{
    if (trap.page != NULL && trap.strategy->saving.why[0] != '\0')
        atomic_store(&trap.is_released, true);
    return (int)syscall(SYS_sched_yield);
}

/* Run reads a chunk at the begin of the member's part, which has no room for a copy. */
static void trap_open(struct trainee *one)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    uintptr_t begin = (uintptr_t)one->values + muster_strategy_rank(one->strategy) * 2 * (1u << 20);

    trap.page = (uint8_t *)((begin + 2 * TRAP_BYTES - 1) & ~(uintptr_t)(TRAP_BYTES - 1));
    trap.program = gettid();
    trap.strategy = one->strategy;
    JOB_CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    JOB_CHECK(mprotect(trap.page, TRAP_BYTES, PROT_NONE) == 0);
}

static void held_await(unsigned count)
{
    while (atomic_load(trap.held) < count)
        (void)syscall(SYS_sched_yield);
}

/* Without an update, so that nothing else ends the held thread. */
static void be_held(unsigned rank, void *data)
{
    struct trainee one;

    (void)data;
    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 4);
    trainee_begin(&one);
    trainee_copy_bytes_max = 1;
    if (rank == 2) {
        mark_forge(one.strategy);
        JOB_CHECK(trainee_save(&one, trainee_other) == MUSTER_OK);
        held_await(2);
        raise(SIGKILL);
    }
    trap_open(&one);
    JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_OK);
    JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) == MUSTER_ABORTED);
    /* Worker 2; or worker 1, where that has given up and closed before this member came to look. */
    trainee_text_check(&one, ") has gone, and its shard is not there");
    JOB_CHECK(atomic_load(&trap.is_released));
    JOB_CHECK(mprotect(trap.page, TRAP_BYTES, PROT_READ | PROT_WRITE) == 0);
    trap.page = NULL;
    (void)signal(SIGSEGV, SIG_DFL);
    trainee_copy_bytes_max = 0;
    trainee_commit(&one);
    trainee_close(&one);
}

static void members_that_still_write_give_up_as_soon_as_another_has_gone(void **state)
{
    (void)state;
    trap.held = mmap(NULL, TRAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(trap.held, MAP_FAILED);
    job_stage_open(&stage, 0, 3);
    for (unsigned rank = 1; rank < 3; rank++)
        job_stage_start(&stage, rank, be_held, NULL);
    be_held(0, NULL);
    assert_false(job_stage_join_killed(&stage, 1));
    assert_true(job_stage_join_killed(&stage, 2));
    trainee_folder_check("");
    job_stage_close(&stage);
    assert_int_equal(munmap(trap.held, TRAP_BYTES), 0);
}

/* --- Members that cannot write --- */

/* As a full disk. */
static void file_size_limit(rlim_t bytes)
{
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};

    JOB_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* Rank 2 cannot begin, or its file may not become as large. */
static void be_unable(unsigned rank, void *data)
{
    const bool *begins = data;
    struct trainee one;

    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    if (rank == 2 && *begins) {
        file_size_limit(100000);
        JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_OK);
        JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) != MUSTER_OK);
        trainee_text_check(&one, "cannot write ");
        file_size_limit(RLIM_INFINITY);
    } else if (rank == 2) {
        folder_forge(one.strategy, "/proc/nothing");
        JOB_CHECK(trainee_save(&one, "/proc/nothing") == MUSTER_NOT_FOUND);
        trainee_text_check(&one, "there): /proc/nothing");
    } else {
        JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_OK);
        JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) == MUSTER_ABORTED);
        trainee_text_check(&one, *begins ? "rank 2: cannot write /tmp/"
                                         : "rank 2 could not begin: not found");
    }
    trainee_commit(&one);
    trainee_begin(&one);
    JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_OK);
    trainee_commit(&one);
    JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) == MUSTER_OK);
    trainee_close(&one);
}

static void a_member_that_cannot_write_is_named_at_once_and_the_next_one_is_whole(void **state)
{
    (void)state;
    for (unsigned begins = 0; begins < 2; begins++) {
        bool does_begin = begins != 0;

        job_stage_open(&stage, 0, 3);
        for (unsigned rank = 1; rank < 3; rank++)
            job_stage_start(&stage, rank, be_unable, &does_begin);
        be_unable(0, &does_begin);
        job_stage_join(&stage);
        trainee_folder_check("3 ");
        job_stage_close(&stage);
        trainee_folder_delete(trainee_folder);
        assert_int_equal(mkdir(trainee_folder, 0700), 0);
    }
}

/* Rank 2's disk is full, twice. The shards of the others must not stay: they would fill the disk of all. */
static void be_unable_twice(unsigned rank, void *data)
{
    struct trainee one;

    (void)data;
    trainee_open(&one, TRAINEE_COUNT, NULL);
    for (uint64_t step = 2; step < 4; step++) {
        trainee_train(&one, step);
        trainee_begin(&one);
        if (rank == 2)
            file_size_limit(100000);
        JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_OK);
        JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) != MUSTER_OK);
        file_size_limit(RLIM_INFINITY);
        trainee_commit(&one);
    }
    trainee_close(&one);
}

static void what_a_failed_one_has_left_is_deleted_when_the_next_one_begins(void **state)
{
    (void)state;
    job_stage_open(&stage, 0, 3);
    for (unsigned rank = 1; rank < 3; rank++)
        job_stage_start(&stage, rank, be_unable_twice, NULL);
    be_unable_twice(0, NULL);
    job_stage_join(&stage);
    trainee_folder_check("3? ");
    job_stage_close(&stage);
}

static void check_failed_end(struct trainee *one, const char *text)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_strategy_close_checked(one->strategy, &error);

    file_size_limit(RLIM_INFINITY);
    JOB_CHECK(rc != MUSTER_OK && error.rc == rc);
    if (strstr(error.text, text) == NULL)
        job_check(false, error.text, __FILE__, __LINE__);
    free(one->values);
}

static void be_unable_at_the_end(unsigned rank, void *data)
{
    struct trainee one;

    (void)rank;
    (void)data;
    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 4);
    file_size_limit(100000);
    check_failed_end(&one, "the checkpoint of step 4 failed; mend the cause and start the job "
                           "again: ");
}

static void a_program_whose_last_step_cannot_be_saved_hears_of_it(void **state)
{
    (void)state;
    job_stage_open(&stage, 0, 3);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    for (unsigned rank = 1; rank < 3; rank++)
        job_stage_start(&stage, rank, be_unable_at_the_end, NULL);
    be_unable_at_the_end(0, NULL);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_join(&stage);
    job_stage_close(&stage);
}

/* No folder is named, so that nothing is saved at the end. */
static void a_last_checkpoint_of_the_program_that_has_failed_is_told_at_the_end(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    file_size_limit(100000);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
    trainee_commit(&one);
    check_failed_end(&one, "the checkpoint of step 2 failed; mend the cause and start the job "
                           "again: cannot write ");

    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, "/proc/nothing"), MUSTER_NOT_FOUND);
    trainee_commit(&one);
    check_failed_end(&one, "the checkpoint of step 2 failed; mend the cause and start the job "
                           "again: cannot make the folder");
    job_stage_close(&stage);
}

static void be_busy(unsigned rank, void *data)
{
    const char *where = rank == 1 ? trainee_other : trainee_folder;
    struct trainee one;

    (void)data;
    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    if (rank == 1)
        mark_forge(one.strategy);
    JOB_CHECK(trainee_save(&one, where) == MUSTER_OK);
    trainee_commit(&one);
    trainee_begin(&one);
    JOB_CHECK(trainee_save(&one, trainee_folder) == MUSTER_FAILED_PRECONDITION);
    trainee_text_check(&one, "rank 0 has not finished the checkpoint of step 2 yet");
    if (rank == 1) { /* as a full disk would, before it can tell */
        JOB_CHECK(muster_strategy_enter(one.strategy, "test") == MUSTER_OK);
        muster_strategy_saving_abandon(one.strategy, MUSTER_RESOURCE_EXHAUSTED, "a test");
        muster_strategy_leave(one.strategy);
    }
    trainee_commit(&one);
    trainee_begin(&one);

    if (trainee_save(&one, trainee_folder) != MUSTER_OK)
        job_check(false, muster_strategy_error(one.strategy)->text, __FILE__, __LINE__);

    trainee_commit(&one);
    JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) == MUSTER_OK);
    trainee_close(&one);
}

static void a_second_one_waits_for_the_end_of_the_first_unless_a_member_has_given_it_up(
    void **state)
{
    (void)state;
    job_stage_open(&stage, 0, 2);
    job_stage_start(&stage, 1, be_busy, NULL);
    be_busy(0, NULL);
    job_stage_join(&stage);
    trainee_folder_check("4 ");
    job_stage_close(&stage);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, trainee_folders_make, trainee_folders_delete)
    const struct CMUnitTest tests[] = {
        CASE(the_last_step_is_saved_by_all_that_close_behind_it),
        CASE(the_others_save_the_last_step_of_one_that_dies_behind_it),
        CASE(one_that_closes_before_the_others_leaves_the_last_step_to_them),
        CASE(a_step_that_was_begun_only_leaves_the_last_commit_to_be_saved),
        CASE(a_member_that_dies_before_its_shard_is_there_ends_this_checkpoint_alone),
        CASE(the_others_finish_for_one_that_dies_behind_its_shard),
        CASE(the_others_notice_the_one_of_two_dead_whose_shard_is_not_there),
        CASE(members_that_still_write_give_up_as_soon_as_another_has_gone),
        CASE(a_member_that_cannot_write_is_named_at_once_and_the_next_one_is_whole),
        CASE(what_a_failed_one_has_left_is_deleted_when_the_next_one_begins),
        CASE(a_program_whose_last_step_cannot_be_saved_hears_of_it),
        CASE(a_last_checkpoint_of_the_program_that_has_failed_is_told_at_the_end),
        CASE(a_second_one_waits_for_the_end_of_the_first_unless_a_member_has_given_it_up),
    };
#undef CASE

    return cmocka_run_group_tests_name("training.strategy_checkpoint_loss", tests, NULL, NULL);
}
