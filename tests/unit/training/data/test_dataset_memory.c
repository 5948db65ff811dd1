/* Datasets when each allocation fails in turn: an error or all records, no leak, and the next call goes on. */
#include "assertion_count.h"
#include "test_env.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/dataset.h>

#include "dataset_files.h"

static struct dataset_files files;

struct row {
    const char *name; /* first, for torture_run_rows */
    const char *path;
    struct muster_dataset_options options;
};

/* Open, then read all; each call that has failed for memory is made again. */
static void dataset_play(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct muster_dataset_options options = row->options;
    struct muster_dataset *dataset = NULL;
    struct muster_dataset_batch batch;
    struct muster_error error;
    char path[128];
    const char *paths[] = {path};
    unsigned records = 0;
    enum muster_rc rc;

    snprintf(path, sizeof(path), "%s", dataset_files_path(&files, row->path));
    options.paths = paths;
    options.path_count = 1;
    options.mem = &torture->mem;
    options.epoch_count = 1;
    torture_arm(torture);
    rc = muster_dataset_open(&options, &dataset, &error);
    if (rc != MUSTER_OK) {
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_true(error.text[0] != '\0');
        torture_disarm(torture);
        assert_int_equal(muster_dataset_open(&options, &dataset, &error), MUSTER_OK);
    }
    do {
        rc = muster_dataset_next(dataset, &batch, &error);
        if (rc == MUSTER_OK)
            records += (unsigned)batch.count;
        else
            torture_disarm(torture);
    } while (rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
    torture_disarm(torture);
    assert_int_equal(rc, MUSTER_OUT_OF_RANGE);
    assert_int_equal(records, 40);
    muster_dataset_close(dataset);
}

static void a_dataset_without_memory_fails_and_goes_on(void **state)
{
    static const struct row rows[] = {
        {"tfrecords", "part-*", {.kind = MUSTER_DATASET_TFRECORD, .batch = 7, .is_shuffled = true}},
        {"without threads",
         "part-*",
         {.kind = MUSTER_DATASET_TFRECORD, .batch = 9, .is_prefetch_off = true}},
        {"a small bound",
         "part-*",
         {.kind = MUSTER_DATASET_TFRECORD, .batch = 4, .prefetch_bytes_max = 250}},
        {"gzip", "lines.gz", {.kind = MUSTER_DATASET_LINES, .batch = 16}},
    };
    char command[256];

    (void)state;
    dataset_files_open(&files);
    dataset_files_write_tfrecords(&files, "part-0", 0, 25);
    dataset_files_write_tfrecords(&files, "part-1", 25, 15);
    snprintf(command, sizeof(command), "seq 40 | gzip > %s/lines.gz", files.folder);
    assert_int_equal(system(command), 0);
    TORTURE_RUN_ROWS(dataset_play, rows);
    dataset_files_close(&files);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_dataset_without_memory_fails_and_goes_on),
    };

    return cmocka_run_group_tests(cases, NULL, torture_tell);
}
