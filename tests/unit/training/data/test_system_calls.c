/* Each system call of a dataset fails in turn: an error is told and nothing is left open, or every record comes once;
 * and a call that has failed can be made again. */
#include "assertion_count.h"
#include "test_env.h"
#include "torture_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <muster/dataset.h>

#include "dataset_files.h"

#define RECORDS 40u

struct row {
    const char *name;
    const char *file;
    enum muster_dataset_kind kind;
    uint32_t batch;
    bool is_prefetch_off, is_mapped;
};

static const struct row rows[] = {
    {"lines", "lines.txt", MUSTER_DATASET_LINES, 7, false, false},
    {"lines_in_calls", "lines.txt", MUSTER_DATASET_LINES, 7, true, false},
    {"tfrecords", "*.tfrecord", MUSTER_DATASET_TFRECORD, 3, false, false},
    {"tfrecords_in_calls", "*.tfrecord", MUSTER_DATASET_TFRECORD, 3, true, false},
    {"tfrecords_mapped", "*.tfrecord", MUSTER_DATASET_TFRECORD, 4, false, true},
    {"gzip", "lines.gz", MUSTER_DATASET_LINES, 16, true, false},
};

static struct dataset_files files;

static int files_set_up(void **state)
{
    char text[RECORDS * 3 + 1] = "";
    gzFile packed;

    (void)state;
    dataset_files_open(&files);
    for (unsigned i = 0; i < RECORDS; i++)
        snprintf(text + strlen(text), 4, "%02u\n", i);
    dataset_files_write(&files, "lines.txt", text, strlen(text));
    dataset_files_write_tfrecords(&files, "a.tfrecord", 0, 15);
    dataset_files_write_tfrecords(&files, "b.tfrecord", 15, RECORDS - 15);
    packed = gzopen(dataset_files_path(&files, "lines.gz"), "w");
    assert_non_null(packed);
    assert_int_equal(gzwrite(packed, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(packed), Z_OK);
    return 0;
}

static int files_tear_down(void **state)
{
    (void)state;
    dataset_files_close(&files);
    return 0;
}

static enum muster_rc row_open(const struct row *row, struct muster_mem *mem,
                               struct muster_dataset **ret_dataset, struct muster_error *ret_error)
{
    char path[128];
    const char *paths[] = {path};
    const struct muster_dataset_options options = {
        .kind = row->kind,
        .mem = mem,
        .paths = paths,
        .path_count = 1,
        .scratch_folder = files.folder,
        .batch = row->batch,
        .epoch_count = 1,
        .is_prefetch_off = row->is_prefetch_off,
        .is_mapped = row->is_mapped,
    };

    snprintf(path, sizeof(path), "%s/%s", files.folder, row->file);
    return muster_dataset_open(&options, ret_dataset, ret_error);
}

static void batch_check(const struct muster_dataset_batch *batch, unsigned *next)
{
    for (size_t i = 0; i < batch->count; i++, ++*next) {
        char text[8] = "";

        assert_in_range(batch->records[i].size, 1, 2);
        memcpy(text, batch->records[i].data, batch->records[i].size);
        assert_int_equal(strtoul(text, NULL, 10), *next);
    }
}

static void error_check(const struct torture *torture, const struct muster_error *error)
{
    assert_true(torture->refused > 0 && !torture_call_was_harmless());
    if (strstr(error->text, files.folder) == NULL)
        fail_msg("the error does not name a path: %s", error->text);
}

/* Reads up to the end. A call that fails says why, and is made again when no call fails any more. */
static void records_read(struct torture *torture, struct muster_dataset *dataset)
{
    struct muster_dataset_batch batch;
    struct muster_error error = {.rc = MUSTER_OK};
    unsigned next = 0;
    enum muster_rc rc;

    for (;;) {
        rc = muster_dataset_next(dataset, &batch, &error);
        if (rc == MUSTER_OUT_OF_RANGE)
            break;
        if (rc == MUSTER_OK) {
            batch_check(&batch, &next);
            continue;
        }
        error_check(torture, &error);
        torture_disarm(torture);
    }
    assert_int_equal(next, RECORDS);
}

static void run_row(struct torture *torture, const void *data)
{
    const struct row *row = data;
    size_t descriptors = torture_count_descriptors();
    struct muster_mem_limited mem;
    struct muster_dataset *dataset = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    muster_mem_limited_init(&mem, muster_mem_system(), 0);
    torture_arm_calls(torture);
    rc = row_open(row, &mem.mem, &dataset, &error);
    if (rc != MUSTER_OK) {
        torture_disarm(torture);
        error_check(torture, &error);
        assert_null(dataset);
        assert_int_equal(torture_count_descriptors(), descriptors);
        assert_int_equal(row_open(row, &mem.mem, &dataset, &error), MUSTER_OK);
    }
    records_read(torture, dataset);
    torture_disarm(torture);
    muster_dataset_close(dataset);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    assert_int_equal(torture_count_descriptors(), descriptors);
}

static void every_record_comes_once_whichever_call_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct torture_scenario scenario = {.name = rows[i].name,
                                                  .run = run_row,
                                                  .data = &rows[i],
                                                  .variant_count = TORTURE_CALL_VARIANTS};

        torture_run(&scenario);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_record_comes_once_whichever_call_fails, torture_tell),
    };

    return cmocka_run_group_tests_name("system_calls", tests, files_set_up, files_tear_down);
}
