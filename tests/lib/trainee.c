/* A member that trains, for tests of checkpoints. */
#include "trainee.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/checkpoint.h>
#include <muster/strategy_checkpoint.h>

#include "test_env.h"

char trainee_folder[64], trainee_other[64];
uint64_t trainee_copy_bytes_max;
bool trainee_is_reversed;

void trainee_open(struct trainee *trainee, size_t count, const char *restore)
{
    const struct muster_tensor flags = {.data = trainee->flags, .count = 3, .dtype = MUSTER_U8};
    struct muster_tensor values = {.count = count, .dtype = MUSTER_I64};

    memset(trainee, 0, sizeof(*trainee));
    trainee->count = count;
    trainee->values = values.data = calloc(count, sizeof(int64_t));
    JOB_CHECK(trainee->values != NULL);
    trainee->strategy = job_strategy_open();
    for (size_t i = 0; i < 2; i++) {
        bool is_flags = (i == 0) != trainee_is_reversed;

        JOB_CHECK(muster_strategy_register(trainee->strategy, is_flags ? "flags" : "values",
                                           is_flags ? &flags : &values) == MUSTER_OK);
    }
    if (restore != NULL)
        JOB_CHECK(muster_strategy_restore(trainee->strategy, restore) == MUSTER_OK);
}

void trainee_close(struct trainee *trainee)
{
    muster_strategy_close(trainee->strategy);
    free(trainee->values);
}

void trainee_begin(struct trainee *trainee)
{
    if (muster_strategy_begin(trainee->strategy, &trainee->step, &trainee->is_restored) !=
        MUSTER_OK)
        job_check(false, muster_strategy_error(trainee->strategy)->text, __FILE__, __LINE__);
}

void trainee_check(const struct trainee *trainee, uint64_t step)
{
    JOB_CHECK(trainee->flags[2] == (uint8_t)step);
    for (size_t i = 0; i < trainee->count; i++)
        if (trainee->values[i] != (int64_t)(step * 1000003 + i))
            job_check(false, "a value is not that of the step", __FILE__, __LINE__);
}

void trainee_commit(struct trainee *trainee)
{
    JOB_CHECK(muster_strategy_update_begin(trainee->strategy) == MUSTER_OK);
    memset(trainee->flags, (int)trainee->step, sizeof(trainee->flags));
    for (size_t i = 0; i < trainee->count; i++)
        trainee->values[i] = (int64_t)(trainee->step * 1000003 + i);
    job_commit(trainee->strategy);
}

void trainee_train(struct trainee *trainee, uint64_t last)
{
    while (trainee->step < last) {
        trainee_begin(trainee);
        trainee_commit(trainee);
    }
}

enum muster_rc trainee_save(struct trainee *trainee, const char *where)
{
    return muster_strategy_checkpoint_start(
        trainee->strategy,
        &(struct muster_strategy_checkpoint_options){
            .folder = where, .keep_count = 2, .copy_bytes_max = trainee_copy_bytes_max});
}

void trainee_text_check(const struct trainee *trainee, const char *text)
{
    if (strstr(muster_strategy_error(trainee->strategy)->text, text) == NULL)
        job_check(false, muster_strategy_error(trainee->strategy)->text, __FILE__, __LINE__);
}

/* --- Folders --- */

int trainee_folders_make(void **state)
{
    (void)state;
    (void)strcpy(trainee_folder, "/tmp/strategy_checkpoint.XXXXXX");
    (void)strcpy(trainee_other, "/tmp/strategy_elsewhere.XXXXXX");
    return mkdtemp(trainee_folder) == NULL || mkdtemp(trainee_other) == NULL;
}

void trainee_folder_delete(const char *path)
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

int trainee_folders_delete(void **state)
{
    (void)state;
    trainee_folder_delete(trainee_folder);
    trainee_folder_delete(trainee_other);
    return 0;
}

void trainee_folder_check(const char *expected)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    char text[256] = "";
    size_t count = 0;

    JOB_CHECK(muster_checkpoint_list(muster_mem_system(), trainee_folder, &entries, &count,
                                     &error) == MUSTER_OK);
    for (size_t i = 0; i < count; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%llu%s ",
                       (unsigned long long)entries[i].name.step,
                       entries[i].has_manifest ? "" : "?");
    muster_mem_free(muster_mem_system(), entries);
    if (strcmp(text, expected) != 0)
        job_check(false, text, __FILE__, __LINE__);
}

void trainee_save_alone(uint64_t step)
{
    struct muster_strategy_checkpoint_result result;
    struct trainee one;

    trainee_open(&one, TRAINEE_COUNT, NULL);
    trainee_train(&one, step);
    trainee_begin(&one);
    assert_int_equal(trainee_save(&one, trainee_folder), MUSTER_OK);
    trainee_commit(&one);
    assert_int_equal(muster_strategy_checkpoint_wait(one.strategy), MUSTER_OK);
    muster_strategy_checkpoint_result(one.strategy, &result);
    assert_false(result.is_running);
    assert_int_equal(result.step, step);
    assert_int_equal(result.rc, MUSTER_OK);
    assert_int_equal(result.bytes, 3 + TRAINEE_COUNT * sizeof(int64_t));
    trainee_close(&one);
}
