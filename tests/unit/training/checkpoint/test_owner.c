/* The owner of a folder of checkpoints. */
#include "training/checkpoint/owner.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/checkpoint.h>

#include "test_env.h"

static char folder[64];

static int folder_make(void **state)
{
    (void)state;
    (void)strcpy(folder, "/tmp/checkpoint_owner.XXXXXX");
    return mkdtemp(folder) == NULL;
}

/* Deletes them, too. */
static unsigned files_count(void)
{
    DIR *names = opendir(folder);
    struct dirent *entry;
    char path[512];
    unsigned count = 0;

    while (names != NULL && (entry = readdir(names)) != NULL) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        count += unlink(path) == 0;
    }
    if (names != NULL)
        (void)closedir(names);
    return count;
}

static int folder_delete(void **state)
{
    (void)state;
    (void)files_count();
    return rmdir(folder);
}

static void check_take(struct muster_checkpoint_owner *owner, const char *job, uint64_t life,
                       enum muster_rc expected, const char *other_job)
{
    struct muster_checkpoint_other other;

    assert_int_equal(muster_checkpoint_owner_take(owner, folder, job, life, &other), expected);
    assert_string_equal(other.job, other_job);
    assert_int_equal(other.is_alive, expected == MUSTER_UNAVAILABLE);
    assert_int_equal(owner->life, expected == MUSTER_OK ? life : 0);
}

static void a_folder_has_one_living_job(void **state)
{
    struct muster_checkpoint_owner one = {.life = 0}, two = {.life = 0};

    (void)state;
    check_take(&one, "a", 1, MUSTER_OK, "");
    check_take(&two, "b", 2, MUSTER_UNAVAILABLE, "a");
    check_take(&two, "a", 2, MUSTER_UNAVAILABLE, "a"); /* another one of that name */
    muster_checkpoint_owner_leave(&one);
    check_take(&two, "b-c", 2, MUSTER_OK, "a");
    check_take(&one, "d", 3, MUSTER_UNAVAILABLE, "b-c");
    muster_checkpoint_owner_leave(&two);

    assert_int_equal(files_count(), 1); /* that of the job that had it last */
}

/* The members of a job hold it, whichever of them is left. */
static void a_job_has_the_folder_as_long_as_a_member_lives(void **state)
{
    struct muster_checkpoint_owner one = {.life = 0}, two = {.life = 0}, three = {.life = 0};

    (void)state;
    check_take(&one, "a", 1, MUSTER_OK, "");
    assert_int_equal(muster_checkpoint_owner_join(&two, folder, "a", 1), MUSTER_OK);
    muster_checkpoint_owner_leave(&one);
    check_take(&three, "b", 2, MUSTER_UNAVAILABLE, "a");
    muster_checkpoint_owner_leave(&two);
    check_take(&three, "b", 2, MUSTER_OK, "a");
    muster_checkpoint_owner_leave(&three);
}

static void a_member_that_does_not_find_the_file_sees_another_folder(void **state)
{
    struct muster_checkpoint_owner one = {.life = 0}, two = {.life = 0};

    (void)state;
    check_take(&one, "a", 1, MUSTER_OK, "");
    assert_int_equal(muster_checkpoint_owner_join(&two, folder, "a", 2), MUSTER_NOT_FOUND);
    assert_int_equal(muster_checkpoint_owner_join(&two, "/nonexistent", "a", 1), MUSTER_NOT_FOUND);
    assert_int_equal(two.life, 0);
    muster_checkpoint_owner_leave(&one);
}

static void other_files_are_left_alone(void **state)
{
    static const char *const names[] = {"used-by-", "used-by-x", "used-by-a-000000000000000g",
                                        "checkpoint-000000000008-0000000000000001.manifest"};
    struct muster_checkpoint_owner one = {.life = 0};
    char path[256];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        FILE *file;

        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        file = fopen(path, "w");
        assert_non_null(file);
        (void)fclose(file);
    }
    check_take(&one, "a", 1, MUSTER_OK, "");
    muster_checkpoint_owner_leave(&one);

    assert_int_equal(files_count(), 1 + sizeof(names) / sizeof(names[0]));
}

static void the_living_job_is_told_to_who_asks(void **state)
{
    struct muster_checkpoint_owner one = {.life = 0};
    char job[MUSTER_JOB_NAME_BYTES] = "";

    (void)state;
    assert_false(muster_checkpoint_is_in_use("/nowhere", job));
    assert_false(muster_checkpoint_is_in_use(folder, job));
    check_take(&one, "a-b", 1, MUSTER_OK, "");
    assert_true(muster_checkpoint_is_in_use(folder, job));
    assert_string_equal(job, "a-b");
    muster_checkpoint_owner_leave(&one);

    assert_false(muster_checkpoint_is_in_use(folder, job));
    assert_int_equal(files_count(), 1); /* its file stays */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, folder_make, folder_delete)
    const struct CMUnitTest tests[] = {
        CASE(a_folder_has_one_living_job),
        CASE(a_job_has_the_folder_as_long_as_a_member_lives),
        CASE(a_member_that_does_not_find_the_file_sees_another_folder),
        CASE(other_files_are_left_alone),
        CASE(the_living_job_is_told_to_who_asks),
    };
#undef CASE

    return cmocka_run_group_tests_name("training.checkpoint.owner", tests, NULL, NULL);
}
