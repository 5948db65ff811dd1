/* A job begins with the newest whole checkpoint, and that must have what the program registers. */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <muster/micro_batches.h>
#include <muster/strategy_checkpoint.h>

#include "test_env.h"
#include "trainee.h"

static struct job_stage stage;
static atomic_uint lowered_count;

/* Threads that let others go first ask the system for it. */
int setpriority(__priority_which_t which, id_t who, int priority)
{
    (void)which;
    (void)who;
    lowered_count += priority > 0;
    return 0;
}

/* Flip a bit of each shard of that step. */
static void shards_damage(uint64_t step)
{
    DIR *names = opendir(trainee_folder);
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
        (void)snprintf(path, sizeof(path), "%s/%s", trainee_folder, entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        JOB_CHECK(fd >= 0 && pread(fd, &byte, 1, 1000) == 1);
        byte ^= 1;
        JOB_CHECK(pwrite(fd, &byte, 1, 1000) == 1);
        close(fd);
    }
    (void)closedir(names);
}

static atomic_uint ahead_count; /* files of which the system reads further ahead */

int posix_fadvise(int fd, off_t offset, off_t bytes, int advice)
{
    (void)fd;
    (void)offset;
    (void)bytes;
    ahead_count += advice == POSIX_FADV_SEQUENTIAL;
    return 0;
}

static void restore_reversed(unsigned rank, void *data)
{
    struct trainee one;
    unsigned before = lowered_count;

    (void)rank;
    (void)data;
    trainee_open(&one, TRAINEE_COUNT, trainee_folder);
    trainee_begin(&one);
    JOB_CHECK(one.is_restored);
    JOB_CHECK(ahead_count > 0);
    JOB_CHECK(lowered_count == before); /* members wait for it, on a busy machine, too */
    trainee_check(&one, 3);
    trainee_commit(&one);
    trainee_close(&one);
}

static void tensors_are_restored_by_name_whatever_their_order(void **state)
{
    (void)state;
    job_stage_open(&stage, 0, 1);
    trainee_save_alone(3);
    job_stage_close(&stage);

    trainee_is_reversed = true;
    job_stage_open(&stage, 0, 3);
    for (unsigned rank = 1; rank < 3; rank++)
        job_stage_start(&stage, rank, restore_reversed, NULL);
    restore_reversed(0, NULL);
    job_stage_join(&stage);
    job_stage_close(&stage);
    trainee_is_reversed = false;
}

static void save_last(unsigned rank, void *data)
{
    struct trainee one;
    unsigned before;

    (void)rank;
    (void)data;
    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, 2);
    before = lowered_count;
    trainee_close(&one);
    JOB_CHECK(lowered_count == before);
    JOB_CHECK(rmdir(trainee_folder) != 0); /* it has files */
}

static void the_last_step_is_saved_at_the_priority_of_the_program(void **state)
{
    (void)state;
    job_stage_open(&stage, 0, 1);
    setenv("MUSTER_CHECKPOINT_DIR", trainee_folder, 1);
    save_last(0, NULL);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    job_stage_close(&stage);
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
    trainee_save_alone(3);
    trainee_save_alone(5);
    job_stage_close(&stage);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct trainee one;
        enum muster_rc rc;

        for (size_t k = 0; k < 2; k++)
            if (rows[i].damaged[k] != 0 && (i == 0 || rows[i].damaged[k] != rows[i - 1].damaged[k]))
                shards_damage(rows[i].damaged[k] - 1);
        job_stage_open(&stage, 0, 1);
        trainee_open(&one, TRAINEE_COUNT, trainee_folder);
        rc = muster_strategy_begin(one.strategy, &one.step, &one.is_restored);

        assert_int_equal(rc, rows[i].rc);
        if (rc == MUSTER_OK) {
            assert_int_equal(one.step, rows[i].step);
            trainee_check(&one, rows[i].step - 1);
        } else {
            trainee_text_check(&one, "no checkpoint is whole: ");
            trainee_text_check(&one, "; name an empty folder to begin anew");
            trainee_text_check(&one, "is damaged in chunk 0 of 5");
        }
        trainee_close(&one);
        job_stage_close(&stage);
    }
}

static void without_a_manifest_a_job_begins_with_its_tensors(void **state)
{
    static const char *const folders[] = {"/nonexistent/folder", trainee_folder};
    char path[128];
    FILE *file;

    (void)state;
    (void)snprintf(path, sizeof(path),
                   "%s/checkpoint-000000000009-0000000000000001.shard-00000-of-00002",
                   trainee_folder);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < 2; i++) {
        struct trainee one;

        job_stage_open(&stage, 0, 1);
        trainee_open(&one, TRAINEE_COUNT, folders[i]);
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
    trainee_save_alone(3);
    trainee_open(&one, TRAINEE_COUNT - 1, trainee_folder);

    assert_int_equal(muster_strategy_begin(one.strategy, &step, NULL), MUSTER_INVALID_ARGUMENT);

    trainee_text_check(
        &one, "does not fit: its tensor values is i64 x 600000, this program's i64 x 599999; "
              "register what it has, or name an empty folder");
    trainee_close(&one);
    job_stage_close(&stage);
}

/* A member whose steps are in so many slots, 0: without. It saves a step, or its begin is refused. */
static void slots_play(uint32_t slots, uint64_t step, const char *refusal)
{
    const struct muster_micro_batches_options options = {
        .slot_count = slots, .dtype = MUSTER_F32, .element_count = 5};
    struct muster_micro_batches *micro = NULL;
    struct muster_error error;
    struct trainee one;

    trainee_open(&one, TRAINEE_COUNT, refusal != NULL ? trainee_folder : NULL);
    if (slots > 0)
        assert_int_equal(muster_micro_batches_open(one.strategy, &options, &micro, &error),
                         MUSTER_OK);
    if (refusal != NULL) {
        assert_int_equal(muster_strategy_begin(one.strategy, &one.step, NULL),
                         MUSTER_INVALID_ARGUMENT);
        trainee_text_check(&one, refusal);
    } else {
        trainee_train(&one, step);
        trainee_begin(&one);
        assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
        trainee_commit(&one);
        assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    }
    muster_micro_batches_close(micro);
    trainee_close(&one);
}

static void a_program_with_other_slots_is_told_their_number(void **state)
{
    static const struct {
        uint32_t saved, others;
        const char *text;
    } rows[] = {
        {8, 16,
         "does not fit: it has 8 micro-batches a step, this program 16; give the same number "
         "(--constant-batch, slots=), or name an empty folder"},
        {65536, 0,
         "does not fit: it has 65536 micro-batches a step, this program none; give the same number "
         "(--constant-batch, slots=), or name an empty folder"},
        {0, 8,
         "does not fit: it has no micro-batches, this program 8 a step; leave them out "
         "(--constant-batch, slots=), or name an empty folder"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        job_stage_open(&stage, 0, 1);
        slots_play(rows[i].saved, i + 1, NULL);
        slots_play(rows[i].others, i + 1, rows[i].text);
        job_stage_close(&stage);
    }
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, trainee_folders_make, trainee_folders_delete)
    const struct CMUnitTest tests[] = {
        CASE(tensors_are_restored_by_name_whatever_their_order),
        CASE(the_last_step_is_saved_at_the_priority_of_the_program),
        CASE(a_program_with_other_slots_is_told_their_number),
        CASE(the_newest_whole_one_is_taken_and_damage_ends_a_job_that_has_no_other),
        CASE(without_a_manifest_a_job_begins_with_its_tensors),
        CASE(a_program_with_other_tensors_is_told_which),
    };
#undef CASE

    return cmocka_run_group_tests_name("training.strategy_restore", tests, NULL, NULL);
}
