/* Checkpoints of a strategy: all members write a part while they go on, and any number of members begins with it. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <muster/checkpoint.h>
#include <muster/strategy_checkpoint.h>

#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define COUNT       600000u /* 5 chunks, the last one short */
#define LARGE_COUNT 8000000u

static struct job_stage stage;
static char folder[64], other[64];
static uint64_t copy_bytes_max;
static bool is_reversed; /* the order in which tensors are registered */

struct trainee {
    struct muster_strategy *strategy;
    int64_t *values;
    uint8_t flags[3];
    size_t count;
    uint64_t step;
    bool is_restored;
};

static void trainee_open(struct trainee *trainee, size_t count, const char *restore)
{
    const struct muster_tensor flags = {.data = trainee->flags, .count = 3, .dtype = MUSTER_U8};
    struct muster_tensor values = {.count = count, .dtype = MUSTER_I64};

    memset(trainee, 0, sizeof(*trainee));
    trainee->count = count;
    trainee->values = values.data = calloc(count, sizeof(int64_t));
    JOB_CHECK(trainee->values != NULL);
    trainee->strategy = job_strategy_open();
    for (size_t i = 0; i < 2; i++) {
        bool is_flags = (i == 0) != is_reversed;

        JOB_CHECK(muster_strategy_register(trainee->strategy, is_flags ? "flags" : "values",
                                           is_flags ? &flags : &values) == MUSTER_OK);
    }
    if (restore != NULL)
        JOB_CHECK(muster_strategy_restore(trainee->strategy, restore) == MUSTER_OK);
}

static void trainee_close(struct trainee *trainee)
{
    muster_strategy_close(trainee->strategy);
    free(trainee->values);
}

static void trainee_begin(struct trainee *trainee)
{
    if (muster_strategy_begin(trainee->strategy, &trainee->step, &trainee->is_restored) !=
        MUSTER_OK)
        job_check(false, muster_strategy_error(trainee->strategy)->text, __FILE__, __LINE__);
}

/* The state of a step, after its commit. */
static void trainee_check(const struct trainee *trainee, uint64_t step)
{
    JOB_CHECK(trainee->flags[2] == (uint8_t)step);
    for (size_t i = 0; i < trainee->count; i++)
        if (trainee->values[i] != (int64_t)(step * 1000003 + i))
            job_check(false, "a value is not that of the step", __FILE__, __LINE__);
}

static void trainee_commit(struct trainee *trainee)
{
    JOB_CHECK(muster_strategy_update_begin(trainee->strategy) == MUSTER_OK);
    memset(trainee->flags, (int)trainee->step, sizeof(trainee->flags));
    for (size_t i = 0; i < trainee->count; i++)
        trainee->values[i] = (int64_t)(trainee->step * 1000003 + i);
    job_commit(trainee->strategy);
}

/* Up to and with this step. */
static void trainee_train(struct trainee *trainee, uint64_t last)
{
    while (trainee->step < last) {
        trainee_begin(trainee);
        trainee_commit(trainee);
    }
}

static enum muster_rc trainee_save(struct trainee *trainee, const char *where)
{
    return muster_strategy_checkpoint_start(
        trainee->strategy, &(struct muster_strategy_checkpoint_options){
                               .folder = where, .keep_count = 2, .copy_bytes_max = copy_bytes_max});
}

static void text_check(const struct trainee *trainee, const char *text)
{
    if (strstr(muster_strategy_error(trainee->strategy)->text, text) == NULL)
        job_check(false, muster_strategy_error(trainee->strategy)->text, __FILE__, __LINE__);
}

/* --- Folders --- */

static int folders_make(void **state)
{
    (void)state;
    (void)strcpy(folder, "/tmp/strategy_checkpoint.XXXXXX");
    (void)strcpy(other, "/tmp/strategy_elsewhere.XXXXXX");
    return mkdtemp(folder) == NULL || mkdtemp(other) == NULL;
}

static void folder_delete(const char *path)
{
    DIR *names = opendir(path);
    struct dirent *entry;
    char file[512];

    while (names != NULL && (entry = readdir(names)) != NULL) {
        (void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        (void)unlink(file);
    }
    if (names != NULL)
        (void)closedir(names);
    (void)rmdir(path);
}

static int folders_delete(void **state)
{
    (void)state;
    folder_delete(folder);
    folder_delete(other);
    return 0;
}

/* "30 20? ": steps of the whole ones and of the half-written ones. */
static void folder_check(const char *expected)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    char text[256] = "";
    size_t count = 0;

    JOB_CHECK(muster_checkpoint_list(muster_mem_system(), folder, &entries, &count, &error) ==
              MUSTER_OK);
    for (size_t i = 0; i < count; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%llu%s ",
                       (unsigned long long)entries[i].name.step,
                       entries[i].has_manifest ? "" : "?");
    muster_mem_free(muster_mem_system(), entries);
    if (strcmp(text, expected) != 0)
        job_check(false, text, __FILE__, __LINE__);
}

/* Flip a bit of each shard of that step. */
static void shards_damage(uint64_t step)
{
    DIR *names = opendir(folder);
    struct dirent *entry;
    char begin[64], path[512];

    (void)snprintf(begin, sizeof(begin), "checkpoint-%012llu-", (unsigned long long)step);
    JOB_CHECK(names != NULL);
    while ((entry = readdir(names)) != NULL) {
        uint8_t byte = 0;
        int fd;

        if (strncmp(entry->d_name, begin, strlen(begin)) != 0 ||
            strstr(entry->d_name, "shard") == NULL)
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        JOB_CHECK(fd >= 0 && pread(fd, &byte, 1, 1000) == 1);
        byte ^= 1;
        JOB_CHECK(pwrite(fd, &byte, 1, 1000) == 1);
        close(fd);
    }
    (void)closedir(names);
}

/* --- One member --- */

static void save_alone(uint64_t step)
{
    struct muster_strategy_checkpoint_result result;
    struct trainee one;

    trainee_open(&one, COUNT, NULL);
    trainee_train(&one, step);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, folder), MUSTER_OK);
    trainee_commit(&one);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    muster_strategy_checkpoint_result(one.strategy, &result);
    assert_false(result.is_running);
    assert_int_equal(result.step, step);
    assert_int_equal(result.rc, MUSTER_OK);
    assert_int_equal(result.bytes, 3 + COUNT * sizeof(int64_t));
    trainee_close(&one);
}

static void what_was_saved_while_the_step_went_on_is_restored(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    save_alone(3);
    job_stage_close(&stage);

    job_stage_open(&stage, 0, 1);
    trainee_open(&one, COUNT, folder);
    trainee_begin(&one);

    assert_int_equal(one.step, 4);
    assert_true(one.is_restored);
    trainee_check(&one, 3);
    trainee_commit(&one);
    trainee_close(&one);
    job_stage_close(&stage);
}

static void restore_reversed(unsigned rank, void *data)
{
    struct trainee one;

    (void)rank;
    (void)data;
    trainee_open(&one, COUNT, folder);
    trainee_begin(&one);
    JOB_CHECK(one.is_restored);
    trainee_check(&one, 3);
    trainee_commit(&one);
    trainee_close(&one);
}

static void tensors_are_restored_by_name_whatever_their_order(void **state)
{
    (void)state;
    job_stage_open(&stage, 0, 1);
    save_alone(3);
    job_stage_close(&stage);

    is_reversed = true;
    job_stage_open(&stage, 0, 3);
    for (unsigned rank = 1; rank < 3; rank++)
        job_stage_start(&stage, rank, restore_reversed, NULL);
    restore_reversed(0, NULL);
    job_stage_join(&stage);
    job_stage_close(&stage);
    is_reversed = false;
}

/* Twice: the second one has the memory of the first. */
static void an_update_waits_for_the_disk_where_copies_have_little_room(void **state)
{
    static const uint64_t rows[] = {1, MUSTER_CHECKPOINT_CHUNK_BYTES, 0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy_checkpoint_result result;
        struct trainee one;

        copy_bytes_max = rows[i];
        job_stage_open(&stage, 0, 1);
        trainee_open(&one, COUNT, NULL);
        for (uint64_t step = 3; step <= 6; step += 3) {
            trainee_train(&one, step);
            trainee_begin(&one);
            assert_int_equal(trainee_save(&one, folder), MUSTER_OK);
            trainee_commit(&one);
            assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
            muster_strategy_checkpoint_result(one.strategy, &result);
            assert_true(rows[i] == 0 || result.copied_bytes <= rows[i]);
        }
        trainee_close(&one);
        trainee_open(&one, COUNT, folder);
        trainee_begin(&one);
        assert_int_equal(one.step, 7);
        trainee_check(&one, 6);
        trainee_commit(&one);
        trainee_close(&one);
        job_stage_close(&stage);
        folder_delete(folder);
        assert_int_equal(mkdir(folder, 0700), 0);
    }
    copy_bytes_max = 0;
}

static void the_newest_whole_one_is_taken_and_damage_ends_a_job_that_has_no_other(void **state)
{
    static const struct {
        uint64_t damaged[2];
        enum muster_rc rc;
        uint64_t step;
    } rows[] = {{{0, 0}, MUSTER_OK, 6}, {{6, 0}, MUSTER_OK, 4}, {{6, 4}, MUSTER_DATA_LOSS, 0}};

    (void)state;
    job_stage_open(&stage, 0, 1);
    save_alone(3);
    save_alone(5);
    job_stage_close(&stage);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct trainee one;
        enum muster_rc rc;

        for (size_t k = 0; k < 2; k++)
            if (rows[i].damaged[k] != 0 && (i == 0 || rows[i].damaged[k] != rows[i - 1].damaged[k]))
                shards_damage(rows[i].damaged[k] - 1);
        job_stage_open(&stage, 0, 1);
        trainee_open(&one, COUNT, folder);
        rc = muster_strategy_begin(one.strategy, &one.step, &one.is_restored);

        assert_int_equal(rc, rows[i].rc);
        if (rc == MUSTER_OK) {
            assert_int_equal(one.step, rows[i].step);
            trainee_check(&one, rows[i].step - 1);
        } else {
            text_check(&one, "is whole, so that the job cannot begin: ");
            text_check(&one, "is damaged in chunk 0 of 5");
        }
        trainee_close(&one);
        job_stage_close(&stage);
    }
}

static void without_a_manifest_a_job_begins_with_its_tensors(void **state)
{
    static const char *const folders[] = {"/nonexistent/folder", folder};
    char path[128];
    FILE *file;

    (void)state;
    (void)snprintf(path, sizeof(path),
                   "%s/checkpoint-000000000009-0000000000000001.shard-00000-of-00002", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < 2; i++) {
        struct trainee one;

        job_stage_open(&stage, 0, 1);
        trainee_open(&one, COUNT, folders[i]);
        trainee_begin(&one);

        assert_int_equal(one.step, 1);
        assert_false(one.is_restored);
        trainee_close(&one);
        job_stage_close(&stage);
    }
}

static void a_program_with_other_tensors_is_told_which(void **state)
{
    struct trainee one;
    uint64_t step;

    (void)state;
    job_stage_open(&stage, 0, 1);
    save_alone(3);
    trainee_open(&one, COUNT - 1, folder);

    assert_int_equal(muster_strategy_begin(one.strategy, &step, NULL), MUSTER_INVALID_ARGUMENT);

    text_check(&one,
               "does not fit: its tensor values is i64 x 600000, this program's i64 x 599999");
    trainee_close(&one);
    job_stage_close(&stage);
}

static void calls_at_the_wrong_time_are_refused(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, COUNT, NULL);
    assert_int_equal(trainee_save(&one, folder), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_strategy_update_begin(one.strategy), MUSTER_FAILED_PRECONDITION);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, ""), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_strategy_restore(one.strategy, folder), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_strategy_update_begin(one.strategy), MUSTER_OK);
    assert_int_equal(trainee_save(&one, folder), MUSTER_FAILED_PRECONDITION);
    text_check(&one, "the tensors have changed in step 1");
    trainee_commit(&one);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    trainee_close(&one);
    job_stage_close(&stage);
}

static void a_commit_without_the_announced_update_gives_the_checkpoint_up(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, LARGE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, folder), MUSTER_OK);

    job_commit(one.strategy);

    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_FAILED_PRECONDITION);
    text_check(&one, "checkpoint of step 2: a step was committed without muster_strategy_update_"
                     "begin");
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, folder), MUSTER_OK);
    trainee_close(&one); /* waits */
    folder_check("3 ");
    job_stage_close(&stage);
}

static void an_abandoned_member_leaves_no_checkpoint(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, LARGE_COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, folder), MUSTER_OK);

    muster_strategy_abandon(one.strategy, "a test");

    trainee_close(&one);
    folder_check("");
    job_stage_close(&stage);
}

static void a_folder_that_cannot_be_made_is_named(void **state)
{
    struct trainee one;

    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_open(&one, COUNT, NULL);
    trainee_train(&one, 1);
    trainee_begin(&one);

    assert_int_equal(trainee_save(&one, "/proc/nothing"), MUSTER_NOT_FOUND);

    text_check(&one, "cannot make the folder /proc/nothing");
    trainee_close(&one);
    job_stage_close(&stage);
}

/* --- By itself --- */

static void variables_that_are_wrong_are_named(void **state)
{
    static const struct {
        const char *folder, *every, *keep, *text;
    } rows[] = {
        {NULL, "5", NULL, "MUSTER_CHECKPOINT_EVERY needs MUSTER_CHECKPOINT_DIR"},
        {NULL, NULL, "5", "MUSTER_CHECKPOINT_KEEP needs MUSTER_CHECKPOINT_DIR"},
        {"/tmp/x", "0", NULL, "MUSTER_CHECKPOINT_EVERY must be a number of steps (100) or a time"},
        {"/tmp/x", "5 s", NULL, "got 5 s"},
        {"/tmp/x", "-5", NULL, "got -5"},
        {"/tmp/x", "s", NULL, "got s"},
        {"/tmp/x", "99999999999", NULL, "got 99999999999"},
        {"/tmp/x", "5", "many", "MUSTER_CHECKPOINT_KEEP must be a number up to 1000000, got many"},
        {"/tmp/x", "5", "-1", "got -1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct {
            const char *name, *value;
        } variables[] = {{"MUSTER_CHECKPOINT_DIR", rows[i].folder},
                         {"MUSTER_CHECKPOINT_EVERY", rows[i].every},
                         {"MUSTER_CHECKPOINT_KEEP", rows[i].keep}};
        struct muster_strategy *strategy = NULL;
        struct muster_error error = {.text = ""};
        enum muster_rc rc;

        job_stage_open(&stage, 0, 1);
        for (size_t k = 0; k < 3; k++)
            if (variables[k].value != NULL)
                setenv(variables[k].name, variables[k].value, 1);
        rc = muster_strategy_open(NULL, &strategy, &error);
        for (size_t k = 0; k < 3; k++)
            unsetenv(variables[k].name);

        assert_int_equal(rc, MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s", error.text);
        job_stage_close(&stage);
    }
}

static void times_and_steps_are_told_apart(void **state)
{
    static const struct {
        const char *text;
        uint64_t steps, ns;
    } rows[] = {{"100", 100, 0},
                {"500ms", 0, 500 * MUSTER_NS_PER_MS},
                {"30s", 0, 30 * MUSTER_NS_PER_S},
                {"10m", 0, 600 * MUSTER_NS_PER_S},
                {"2h", 0, 7200 * MUSTER_NS_PER_S}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t steps = 9, ns = 9;
        struct muster_error error;

        assert_int_equal(muster_checkpoint_every_parse(rows[i].text, &steps, &ns, &error),
                         MUSTER_OK);
        assert_int_equal(steps, rows[i].steps);
        assert_int_equal(ns, rows[i].ns);
    }
}

/* Members that know the folder by their environment alone. */
static void be_scheduled(unsigned rank, void *data)
{
    const uint64_t *last = data;
    struct trainee one;

    (void)rank;
    trainee_open(&one, COUNT, NULL);
    trainee_begin(&one);
    if (one.is_restored)
        trainee_check(&one, one.step - 1);
    JOB_CHECK(one.is_restored == (one.step > 1));
    trainee_commit(&one);
    while (one.step < *last) {
        trainee_begin(&one);
        trainee_commit(&one);
        JOB_CHECK(muster_strategy_checkpoint_wait(one.strategy) == MUSTER_OK);
    }
    trainee_close(&one);
}

static void job_schedule(unsigned size, uint64_t last, const char *every, const char *keep)
{
    job_stage_open(&stage, 0, size);
    setenv("MUSTER_CHECKPOINT_DIR", folder, 1);
    setenv("MUSTER_CHECKPOINT_EVERY", every, 1);
    if (keep != NULL)
        setenv("MUSTER_CHECKPOINT_KEEP", keep, 1);
    for (unsigned rank = 1; rank < size; rank++)
        job_stage_start(&stage, rank, be_scheduled, &last);
    be_scheduled(0, &last);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    unsetenv("MUSTER_CHECKPOINT_EVERY");
    unsetenv("MUSTER_CHECKPOINT_KEEP");
    job_stage_join(&stage);
    job_stage_close(&stage);
}

/* The last step is saved at the end, whether it is due or not. */
static void any_number_of_members_goes_on_from_what_another_number_has_saved(void **state)
{
    (void)state;
    job_schedule(3, 9, "2", NULL);
    folder_check("9 8 6 ");
    job_schedule(2, 13, "2", "2");
    folder_check("13 12 ");
    job_schedule(1, 17, "4", "0");
    folder_check("17 16 13 12 ");
    job_schedule(4, 18, "9", "4");
    folder_check("18 17 16 13 ");
    job_schedule(7, 21, "4", "1");
    folder_check("21 ");
}

static void a_time_that_has_passed_by_rank_0_saves_on_all(void **state)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;

    (void)state;
    job_schedule(2, 4, "1ms", "0");

    assert_int_equal(muster_checkpoint_list(muster_mem_system(), folder, &entries, &count, &error),
                     MUSTER_OK);
    assert_in_range(count, 2, 4);
    for (size_t i = 0; i < count; i++) {
        assert_true(entries[i].has_manifest);
        assert_int_equal(entries[i].file_count, 3);
    }
    muster_mem_free(muster_mem_system(), entries);
}

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

    trainee_open(&one, COUNT, NULL);
    if (scene->closes_behind[rank] < scene->closes_behind[2]) /* in vain */
        one.strategy->schedule.patience_ns = 100 * MUSTER_NS_PER_MS;
    trainee_train(&one, scene->closes_behind[rank]);
    if (scene->dies[rank])
        raise(SIGKILL);
    if (scene->begins[rank])
        trainee_begin(&one);
    trainee_close(&one);
}

static void last_scene_play(struct last_scene *scene, const char *expected)
{
    job_stage_open(&stage, 0, 3);
    setenv("MUSTER_CHECKPOINT_DIR", folder, 1);
    setenv("MUSTER_CHECKPOINT_EVERY", "1000", 1);
    for (unsigned rank = 1; rank < 3; rank++)
        job_stage_start(&stage, rank, be_in_last_scene, scene);
    be_in_last_scene(0, scene);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    unsetenv("MUSTER_CHECKPOINT_EVERY");
    for (unsigned rank = 1; rank < 3; rank++)
        assert_int_equal(job_stage_join_killed(&stage, rank), scene->dies[rank]);
    job_stage_close(&stage);
    folder_check(expected);
}

/* Three shards and a manifest. */
static void files_count(uint32_t expected)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;

    assert_int_equal(muster_checkpoint_list(muster_mem_system(), folder, &entries, &count, &error),
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

/* The shard of this member is there. */
static void shard_await(const struct trainee *one, const char *where)
{
    char path[PATH_MAX], name[MUSTER_CHECKPOINT_NAME_BYTES];

    (void)muster_checkpoint_name_format(&one->strategy->saving.checkpoint->name, name);
    (void)snprintf(path, sizeof(path), "%s/%s.shard-%05u-of-00003", where, name,
                   muster_strategy_rank(one->strategy));
    while (access(path, F_OK) != 0)
        usleep(1000);
}

static void be_in_scene(unsigned rank, void *data)
{
    const struct scene *scene = data;
    enum role role = scene->roles[rank];
    const char *where = role == ROLE_ELSEWHERE ? other : folder;
    struct trainee one;
    enum muster_rc rc;

    trainee_open(&one, COUNT, NULL);
    trainee_train(&one, 4);
    trainee_begin(&one);
    JOB_CHECK(trainee_save(&one, where) == MUSTER_OK);
    if (role != ROLE_STAYS) {
        shard_await(&one, where);
        JOB_CHECK(write(scene->is_written[1], "", 1) == 1);
        raise(SIGKILL);
    }
    trainee_commit(&one);
    rc = muster_strategy_checkpoint_wait(one.strategy);
    JOB_CHECK(rc == scene->rc);
    if (rc != MUSTER_OK)
        text_check(&one, scene->text);
    do {
        trainee_begin(&one);
        rc = trainee_save(&one, folder); /* the members that are left */
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
    save_alone(3);
    job_stage_close(&stage);
    scene_play(&scene);
    folder_check("5 3 "); /* what was left of the other one is deleted */
}

static void the_others_finish_for_one_that_dies_behind_its_shard(void **state)
{
    struct scene scene = {.roles = {ROLE_DIES, ROLE_STAYS, ROLE_STAYS}, .rc = MUSTER_OK};

    (void)state;
    scene_play(&scene);
    folder_check("5 4 ");
}

static void be_busy(unsigned rank, void *data)
{
    const char *where = rank == 1 ? other : folder;
    struct trainee one;

    (void)data;
    trainee_open(&one, COUNT, NULL);
    trainee_train(&one, 2);
    trainee_begin(&one);
    JOB_CHECK(trainee_save(&one, where) == MUSTER_OK);
    trainee_commit(&one);
    trainee_begin(&one);
    JOB_CHECK(trainee_save(&one, folder) == MUSTER_FAILED_PRECONDITION);
    text_check(&one, "rank 0 has not finished the checkpoint of step 2 yet");
    if (rank == 1) { /* as a full disk would, before it can tell */
        JOB_CHECK(muster_strategy_enter(one.strategy, "test") == MUSTER_OK);
        muster_strategy_saving_abandon(one.strategy, MUSTER_RESOURCE_EXHAUSTED, "a test");
        muster_strategy_leave(one.strategy);
    }
    trainee_commit(&one);
    trainee_begin(&one);

    if (trainee_save(&one, folder) != MUSTER_OK)
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
    folder_check("4 ");
    job_stage_close(&stage);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, folders_make, folders_delete)
    const struct CMUnitTest tests[] = {
        CASE(what_was_saved_while_the_step_went_on_is_restored),
        CASE(tensors_are_restored_by_name_whatever_their_order),
        CASE(an_update_waits_for_the_disk_where_copies_have_little_room),
        CASE(the_newest_whole_one_is_taken_and_damage_ends_a_job_that_has_no_other),
        CASE(without_a_manifest_a_job_begins_with_its_tensors),
        CASE(a_program_with_other_tensors_is_told_which),
        CASE(calls_at_the_wrong_time_are_refused),
        CASE(a_commit_without_the_announced_update_gives_the_checkpoint_up),
        CASE(an_abandoned_member_leaves_no_checkpoint),
        CASE(a_folder_that_cannot_be_made_is_named),
        CASE(variables_that_are_wrong_are_named),
        CASE(times_and_steps_are_told_apart),
        CASE(any_number_of_members_goes_on_from_what_another_number_has_saved),
        CASE(a_time_that_has_passed_by_rank_0_saves_on_all),
        CASE(the_last_step_is_saved_by_all_that_close_behind_it),
        CASE(the_others_save_the_last_step_of_one_that_dies_behind_it),
        CASE(one_that_closes_before_the_others_leaves_the_last_step_to_them),
        CASE(a_step_that_was_begun_only_leaves_the_last_commit_to_be_saved),
        CASE(a_member_that_dies_before_its_shard_is_there_ends_this_checkpoint_alone),
        CASE(the_others_finish_for_one_that_dies_behind_its_shard),
        CASE(a_second_one_waits_for_the_end_of_the_first_unless_a_member_has_given_it_up),
    };
#undef CASE

    return cmocka_run_group_tests_name("training.strategy_checkpoint", tests, NULL, NULL);
}
