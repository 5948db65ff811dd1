/* Datasets of files, memory and functions, from open to close. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/dataset.h>

#include "dataset_world.h"

/* The records until the end, joined by "|", batches by "/". */
static const char *records_join(struct world *world)
{
    static char text[4096];
    struct muster_dataset_batch batch;
    size_t used = 0;
    enum muster_rc rc;

    text[0] = '\0';
    while ((rc = muster_dataset_next(world->dataset, &batch, &world->error)) == MUSTER_OK) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", used > 0 ? "/" : "");
        for (size_t i = 0; i < batch.count; i++)
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s%.*s", i > 0 ? "|" : "",
                                 (int)batch.records[i].size, (const char *)batch.records[i].data);
    }
    assert_int_equal(rc, MUSTER_OUT_OF_RANGE);
    return text;
}

static const struct {
    const char *name;
    const char *bytes;
    struct muster_dataset_options options;
    const char *records;
} text_rows[] = {
    {"lines", "one\ntwo\r\n\nfour", {.kind = MUSTER_DATASET_LINES}, "one/two//four"},
    {"a header", "h\na\nb\n", {.kind = MUSTER_DATASET_LINES, .header_lines = 1}, "a/b"},
    {"rows",
     "a,1\n\"b\nc\",\"\"\"\"\n\r\nd,2\n",
     {.kind = MUSTER_DATASET_CSV},
     "a,1/\"b\nc\",\"\"\"\"/d,2"},
    {"fixed",
     "HHaabbccF",
     {.kind = MUSTER_DATASET_FIXED, .record_bytes = 2, .header_bytes = 2, .footer_bytes = 1},
     "aa/bb/cc"},
    {"batches", "a\nb\nc\nd\ne\n", {.kind = MUSTER_DATASET_LINES, .batch = 2}, "a|b/c|d/e"},
    {"no remainder",
     "a\nb\nc\n",
     {.kind = MUSTER_DATASET_LINES, .batch = 2, .is_remainder_dropped = true},
     "a|b"},
    {"epochs",
     "a\nb\nc\n",
     {.kind = MUSTER_DATASET_LINES, .batch = 2, .epoch_count = 2},
     "a|b/c/a|b/c"},
};

static void text_is_cut_into_records_and_batches(void **state)
{
    struct world *world = *state;

    for (size_t i = 0; i < sizeof(text_rows) / sizeof(text_rows[0]); i++)
        for (unsigned way = 0; way < 4; way++) {
            struct muster_dataset_options options = text_rows[i].options;

            options.epoch_count += options.epoch_count == 0;
            options.is_prefetch_off = way % 2 != 0;
            options.is_mapped = way / 2 != 0;
            dataset_files_write(&world->files, "text", text_rows[i].bytes,
                                strlen(text_rows[i].bytes));
            assert_int_equal(files_open(world, options, "text"), MUSTER_OK);
            assert_string_equal(records_join(world), text_rows[i].records);
        }
}

/* The first bytes of a file that are read at once end between the two bytes of an empty row. */
static void an_empty_row_is_no_record_wherever_reads_end(void **state)
{
    enum { WINDOW = 256 << 10 };
    static char text[WINDOW + 4];
    struct world *world = *state;
    const struct muster_dataset_options options = {.kind = MUSTER_DATASET_CSV, .epoch_count = 1};

    memset(text, 'x', sizeof(text));
    text[WINDOW - 2] = '\n';
    memcpy(text + WINDOW - 1, "\r\nb\n", 4);
    dataset_files_write(&world->files, "rows", text, WINDOW + 3);

    assert_int_equal(files_open(world, options, "rows"), MUSTER_OK);
    assert_int_equal(muster_dataset_record_count(world->dataset), 2);
}

static void tfrecords_of_files_come_in_the_order_of_their_paths(void **state)
{
    struct world *world = *state;

    dataset_files_write_tfrecords(&world->files, "part-1", 3, 2);
    dataset_files_write_tfrecords(&world->files, "part-0", 0, 3);
    assert_int_equal(files_open(world,
                                (struct muster_dataset_options){
                                    .kind = MUSTER_DATASET_TFRECORD, .epoch_count = 1, .batch = 4},
                                "part-*"),
                     MUSTER_OK);
    assert_int_equal(muster_dataset_record_count(world->dataset), 5);
    assert_string_equal(records_join(world), "0|1|2|3/4");
}

static void a_pattern_that_fits_no_name_is_a_name(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_LINES, .epoch_count = 1};

    dataset_files_write(&world->files, "a[1]", "one\n", 4);
    assert_int_equal(files_open(world, options, "a[1]"), MUSTER_OK);
    assert_int_equal(muster_dataset_record_count(world->dataset), 1);
    dataset_files_write(&world->files, "a1", "one\ntwo\n", 8);
    assert_int_equal(files_open(world, options, "a[1]"), MUSTER_OK);
    assert_int_equal(muster_dataset_record_count(world->dataset), 2);
}

static void a_file_that_two_patterns_name_is_read_once(void **state)
{
    struct world *world = *state;
    char path[128];
    const char *paths[] = {path, path};
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_LINES,
                                             .epoch_count = 1,
                                             .paths = paths,
                                             .path_count = 2,
                                             .mem = &world->mem.mem};

    dataset_files_write(&world->files, "text", "a\nb\n", 4);
    snprintf(path, sizeof(path), "%s", dataset_files_path(&world->files, "text"));
    assert_int_equal(muster_dataset_open(&options, &world->dataset, &world->error), MUSTER_OK);
    assert_string_equal(records_join(world), "a/b");
}

static void a_shuffle_has_each_record_once_and_follows_from_its_seed(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_TFRECORD, .epoch_count = 1, .is_shuffled = true, .batch = 7};
    char first[4096];

    dataset_files_write_tfrecords(&world->files, "a", 0, 40);
    options.seed = 5;
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    snprintf(first, sizeof(first), "%s", records_join(world));
    for (unsigned i = 0; i < 40; i++) {
        char text[8];

        snprintf(text, sizeof(text), "%u", i);
        assert_non_null(strstr(first, text));
    }
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    assert_string_equal(records_join(world), first);
    options.seed = 6;
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    assert_string_not_equal(records_join(world), first);
}

static void a_restored_position_goes_on_with_the_same_records(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_TFRECORD,
                                             .epoch_count = 2,
                                             .is_shuffled = true,
                                             .seed = 9,
                                             .batch = 3};
    struct muster_dataset_batch batch;
    uint64_t saved[64];
    char rest[4096];

    dataset_files_write_tfrecords(&world->files, "a", 0, 20);
    for (unsigned taken = 0; taken < 14; taken++) {
        struct muster_tensor position;

        assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
        for (unsigned i = 0; i < taken; i++)
            assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
        position = muster_dataset_position(world->dataset);
        memcpy(saved, position.data, (size_t)position.count * sizeof(uint64_t));
        snprintf(rest, sizeof(rest), "%s", records_join(world));
        memcpy(position.data, saved, (size_t)position.count * sizeof(uint64_t));
        assert_string_equal(records_join(world), rest); /* in the middle of what was read ahead */
        assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
        memcpy(muster_dataset_position(world->dataset).data, saved,
               (size_t)position.count * sizeof(uint64_t));
        assert_string_equal(records_join(world), rest);
    }
}

static void a_position_of_other_files_is_refused(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_LINES};
    struct muster_dataset_batch batch;
    uint64_t saved[16];

    dataset_files_write(&world->files, "a", "1\n22\n", 5);
    dataset_files_write(&world->files, "b", "11\n2\n", 5);
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    memcpy(saved, muster_dataset_position(world->dataset).data, 9 * sizeof(uint64_t));
    assert_int_equal(files_open(world, options, "b"), MUSTER_OK);
    memcpy(muster_dataset_position(world->dataset).data, saved, 9 * sizeof(uint64_t));

    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error),
                     MUSTER_FAILED_PRECONDITION);
    assert_error_has(world, "2 records, this one has 2 at other places; give all members the same");
}

/* --- Bad input --- */

static enum muster_rc tfrecords_spoil(struct world *world, long at, size_t bytes)
{
    FILE *file;
    int byte;

    dataset_files_write_tfrecords(&world->files, "a", 10, 3); /* of 18 bytes each */
    assert_int_equal(truncate(dataset_files_path(&world->files, "a"), (off_t)bytes), 0);
    if (at >= 0) {
        file = fopen(dataset_files_path(&world->files, "a"), "r+");
        assert_non_null(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        byte = fgetc(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
        assert_int_equal(fclose(file), 0);
    }
    return files_open(world, (struct muster_dataset_options){.kind = MUSTER_DATASET_TFRECORD}, "a");
}

static void a_damaged_tfrecord_is_named_with_file_byte_and_remedy(void **state)
{
    struct world *world = *state;
    struct muster_dataset_batch batch;
    static const struct {
        const char *name;
        long at;
        size_t bytes;
        const char *error;
    } rows[] = {
        {"within a head", -1, 40, "/a, byte 36: the file ends within this record; fetch"},
        {"within a payload", -1, 51, "/a, byte 36: the file ends within this record; fetch"},
        {"length", 18, 54, "/a, byte 18: a record's length has a wrong CRC"},
        {"crc of the length", 26, 54, "/a, byte 18: a record's length has a wrong CRC"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(tfrecords_spoil(world, rows[i].at, rows[i].bytes), MUSTER_DATA_LOSS);
        assert_error_has(world, rows[i].error);
    }
    for (long at = 30; at < 36; at++) { /* a payload and its CRC: found when the record is read */
        assert_int_equal(tfrecords_spoil(world, at, 54), MUSTER_OK);
        assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
        for (unsigned again = 0; again < 2; again++)
            assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error),
                             MUSTER_DATA_LOSS);
        assert_error_has(world, "/a, byte 18: the record has a wrong CRC; fetch the file again");
    }
}

static void files_that_are_wrong_are_refused_at_open(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *name, *bytes, *pattern;
        struct muster_dataset_options options;
        enum muster_rc rc;
        const char *error;
    } rows[] = {
        {"no file",
         "",
         "none-*",
         {.kind = MUSTER_DATASET_LINES},
         MUSTER_NOT_FOUND,
         "none-*: no file has this name; check the path or the pattern"},
        {"a folder",
         "",
         "",
         {.kind = MUSTER_DATASET_LINES},
         MUSTER_INVALID_ARGUMENT,
         "check that it is a file"},
        {"empty",
         "",
         "a",
         {.kind = MUSTER_DATASET_TFRECORD},
         MUSTER_INVALID_ARGUMENT,
         "the files have no records"},
        {"an open quote",
         "a\nb,\"c\n",
         "a",
         {.kind = MUSTER_DATASET_CSV},
         MUSTER_DATA_LOSS,
         "/a, byte 4: a quote is not closed"},
        {"half a record",
         "aab",
         "a",
         {.kind = MUSTER_DATASET_FIXED, .record_bytes = 2},
         MUSTER_DATA_LOSS,
         "/a, byte 3: the size is not header_bytes + records * record_bytes"},
        {"less than its header",
         "aa",
         "a",
         {.kind = MUSTER_DATASET_FIXED, .record_bytes = 2, .header_bytes = 3},
         MUSTER_DATA_LOSS,
         "the size is not header_bytes"},
        {"a batch that never comes",
         "a\nb\n",
         "a",
         {.kind = MUSTER_DATASET_LINES, .batch = 3, .is_remainder_dropped = true},
         MUSTER_INVALID_ARGUMENT,
         "must have a batch of 3 records, got 2"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        dataset_files_write(&world->files, "a", rows[i].bytes, strlen(rows[i].bytes));
        assert_int_equal(files_open(world, rows[i].options, rows[i].pattern), rows[i].rc);
        assert_error_has(world, rows[i].error);
    }
}

static void options_that_are_wrong_are_refused(void **state)
{
    struct world *world = *state;
    static const char *const path = "/";
    static const struct muster_bytes record = {"a", 1};
    static const struct {
        struct muster_dataset_options options;
        const char *error;
    } rows[] = {
        {{.kind = (enum muster_dataset_kind)6}, "kind must be one of"},
        {{.kind = MUSTER_DATASET_CSV}, "must have paths, got none"},
        {{.kind = MUSTER_DATASET_FIXED, .paths = &path, .path_count = 1},
         "record_bytes must be above 0"},
        {{.kind = MUSTER_DATASET_CALLBACK, .record_count = 1}, "must have read and record_bytes"},
        {{.kind = MUSTER_DATASET_MEMORY, .records = &record}, "record_count must be above 0"},
        {{.kind = MUSTER_DATASET_MEMORY, .record_count = 1}, "must have records"},
        {{.batch = (1u << 20) + 1}, "batch must be at most 1048576, got 1048577"},
        {{.thread_count = 17}, "thread_count must be at most 16, got 17"},
        {{.kind = MUSTER_DATASET_MEMORY,
          .records = &record,
          .record_count = 1,
          .shard = {.policy = MUSTER_SHARD_DATA, .num_workers = 2}},
         "a record for each of 2 workers, got 1"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_dataset_open(&rows[i].options, &world->dataset, &world->error),
                         MUSTER_INVALID_ARGUMENT);
        assert_error_has(world, rows[i].error);
    }
}

/* As TensorFlow: the pieces of a global batch are divided, and there are enough of them. */
static void a_global_batch_may_have_fewer_records_than_workers(void **state)
{
    struct world *world = *state;
    static const struct muster_bytes record = {"a", 1};

    for (uint32_t worker = 0; worker < 2; worker++) {
        const struct muster_dataset_options options = {
            .kind = MUSTER_DATASET_MEMORY,
            .records = &record,
            .record_count = 1,
            .batch = 4,
            .epoch_count = 1,
            .replicas_per_worker = 1,
            .shard = {.policy = MUSTER_SHARD_DATA, .num_workers = 2, .index = worker}};
        struct muster_dataset_batch batch;

        assert_int_equal(muster_dataset_open(&options, &world->dataset, &world->error), MUSTER_OK);
        assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
        assert_int_equal(batch.count, worker == 0 ? 1 : 0);
        assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error),
                         MUSTER_OUT_OF_RANGE);
        muster_dataset_close(world->dataset);
        world->dataset = NULL;
    }
}

static void a_file_that_changes_is_found_when_the_next_epoch_opens_it(void **state)
{
    struct world *world = *state;
    struct muster_dataset_batch batch;
    enum muster_rc rc;

    dataset_files_write(&world->files, "a", "1\n2\n", 4);
    assert_int_equal(files_open(world,
                                (struct muster_dataset_options){.kind = MUSTER_DATASET_LINES,
                                                                .is_prefetch_off = true,
                                                                .batch = 2},
                                "a"),
                     MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
    dataset_files_write(&world->files, "a", "1\n2\n3\n", 6);

    rc = muster_dataset_next(world->dataset, &batch, &world->error);

    assert_int_equal(rc, MUSTER_DATA_LOSS);
    assert_error_has(world, "/a has changed from 4 to 6 bytes since it was opened; put the old");
}

static void the_epoch_is_that_of_the_last_batch(void **state)
{
    static const uint64_t epochs[] = {0, 0, 1, 1}; /* behind each batch of two of a file of four */
    struct world *world = *state;
    struct muster_dataset_batch batch;

    dataset_files_write(&world->files, "a", "1\n2\n3\n4\n", 8);
    assert_int_equal(
        files_open(world, (struct muster_dataset_options){.kind = MUSTER_DATASET_LINES, .batch = 2},
                   "a"),
        MUSTER_OK);
    assert_int_equal(muster_dataset_epoch(world->dataset), 0);
    for (size_t i = 0; i < sizeof(epochs) / sizeof(epochs[0]); i++) {
        assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
        assert_int_equal(muster_dataset_epoch(world->dataset), epochs[i]);
    }
}

/* --- Shares --- */

static void share_take(struct world *world, uint32_t rank, uint32_t size, const char *records)
{
    struct muster_dataset_batch batch;
    char text[100] = "";
    size_t used = 0;

    assert_int_equal(muster_dataset_next_share(world->dataset, rank, size, &batch, &world->error),
                     MUSTER_OK);
    for (size_t i = 0; i < batch.count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s",
                                 (int)batch.records[i].size, (const char *)batch.records[i].data);
    assert_string_equal(text, records);
}

static void shares_move_by_claims_and_left_over_records_come_first(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_LINES, .batch = 6, .epoch_count = 1};
    float claims[MUSTER_DATASET_CLAIMS(6)];
    struct muster_dataset_batch batch;
    uint64_t used;

    dataset_files_write(&world->files, "a", "a\nb\nc\nd\ne\nf\ng\nh\n", 16);
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    share_take(world, 1, 3, "cd");
    share_take(world, 1, 3, "cd"); /* again, after ABORTED */
    share_take(world, 1, 2, "def");
    share_take(world, 1, 3, "cd");
    muster_dataset_record_claims(world->dataset, claims);
    assert_int_equal(muster_dataset_apply_claims(world->dataset, claims, &used, &world->error),
                     MUSTER_OK);
    assert_int_equal(used, 2);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error),
                     MUSTER_FAILED_PRECONDITION);
    assert_error_has(world, "records that a member left over");
    share_take(world, 0, 1, "abefgh");
    muster_dataset_record_claims(world->dataset, claims);
    assert_int_equal(muster_dataset_apply_claims(world->dataset, claims, &used, &world->error),
                     MUSTER_OK);
    assert_int_equal(used, 6);
    assert_int_equal(muster_dataset_next_share(world->dataset, 0, 1, &batch, &world->error),
                     MUSTER_OUT_OF_RANGE);
}

static void more_members_than_records_have_empty_shares(void **state)
{
    struct world *world = *state;

    dataset_files_write(&world->files, "a", "a\nb\n", 4);
    assert_int_equal(
        files_open(world, (struct muster_dataset_options){.kind = MUSTER_DATASET_LINES, .batch = 9},
                   "a"),
        MUSTER_OK);
    share_take(world, 0, 4, "");
    share_take(world, 1, 4, "a");
    share_take(world, 2, 4, "");
    share_take(world, 3, 4, "b");
}

static void a_divided_dataset_is_not_shared(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *name;
        struct muster_dataset_options options;
        uint32_t rank, size;
        const char *error;
    } rows[] = {
        {"rank", {.kind = MUSTER_DATASET_LINES}, 2, 2, "the rank must be below the size 2, got 2"},
        {"size", {.kind = MUSTER_DATASET_LINES}, 0, 0, "the rank must be below the size 0, got 0"},
        {"shard",
         {.kind = MUSTER_DATASET_LINES, .shard = {.policy = MUSTER_SHARD_DATA, .num_workers = 2}},
         0,
         1,
         "must have no shard"},
        {"replicas",
         {.kind = MUSTER_DATASET_LINES, .replicas_per_worker = 1},
         0,
         1,
         "no replicas_per_worker"},
        {"remainder",
         {.kind = MUSTER_DATASET_LINES, .is_remainder_dropped = true},
         0,
         1,
         "no is_remainder_dropped"},
    };
    struct muster_dataset_batch batch;

    dataset_files_write(&world->files, "a", "a\nb\n", 4);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(files_open(world, rows[i].options, "a"), MUSTER_OK);
        assert_int_equal(muster_dataset_next_share(world->dataset, rows[i].rank, rows[i].size,
                                                   &batch, &world->error),
                         MUSTER_INVALID_ARGUMENT);
        assert_error_has(world, rows[i].error);
    }
}

static void workers_of_a_policy_have_their_files_or_elements(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *name;
        struct muster_shard shard;
        bool has_mark;
        const char *records;
    } rows[] = {
        {"off", {MUSTER_SHARD_OFF, 2, 1}, false, "0/1/2/3/4/5"},
        {"files", {MUSTER_SHARD_FILE, 2, 1}, false, "3/4/5"},
        {"auto", {MUSTER_SHARD_AUTO, 2, 0}, false, "0/1/2"},
        {"elements", {MUSTER_SHARD_DATA, 2, 1}, false, "1/3/5"},
        {"a mark", {MUSTER_SHARD_HINT, 3, 2}, true, "2/5"},
        {"no mark", {MUSTER_SHARD_HINT, 3, 2}, false, "0/1/2/3/4/5"},
    };

    dataset_files_write_tfrecords(&world->files, "p0", 0, 3);
    dataset_files_write_tfrecords(&world->files, "p1", 3, 3);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_dataset_options options = {.kind = MUSTER_DATASET_TFRECORD,
                                                 .epoch_count = 1,
                                                 .shard = rows[i].shard,
                                                 .has_mark = rows[i].has_mark};

        assert_int_equal(files_open(world, options, "p*"), MUSTER_OK);
        assert_string_equal(records_join(world), rows[i].records);
    }
}

/* --- Memory and functions --- */

static void memory_is_not_copied(void **state)
{
    struct world *world = *state;
    static const struct muster_bytes records[] = {{"a", 1}, {"bb", 2}};
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_MEMORY,
                                             .mem = &world->mem.mem,
                                             .records = records,
                                             .record_count = 2,
                                             .epoch_count = 1};
    struct muster_dataset_batch batch;

    assert_int_equal(muster_dataset_open(&options, &world->dataset, &world->error), MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
    assert_ptr_equal(batch.records[0].data, records[0].data);
    assert_string_equal(records_join(world), "bb");
}

/* Record 3 fails while *data is true; record 4 is too long. */
static enum muster_rc number_read(void *data, uint64_t number, void *ret_bytes, size_t *ret_size)
{
    const bool *is_failing = data;

    if (number == 3 && *is_failing)
        return MUSTER_UNAVAILABLE;
    if (number < 4)
        memset(ret_bytes, 'a' + (int)number, (size_t)number);
    *ret_size = (size_t)number;
    return MUSTER_OK;
}

static void a_function_that_fails_is_asked_again(void **state)
{
    struct world *world = *state;
    bool is_failing = true;
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_CALLBACK,
                                             .mem = &world->mem.mem,
                                             .read = number_read,
                                             .data = &is_failing,
                                             .record_bytes_max = 3,
                                             .record_count = 5,
                                             .batch = 2,
                                             .epoch_count = 1,
                                             .is_prefetch_off = true};
    struct muster_dataset_batch batch;

    assert_int_equal(muster_dataset_open(&options, &world->dataset, &world->error), MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error),
                     MUSTER_UNAVAILABLE);
    assert_error_has(world, "record 3 of the program's function: unavailable");
    is_failing = false;
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
    assert_memory_equal(batch.records[1].data, "ddd", 3);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error),
                     MUSTER_INVALID_ARGUMENT);
    assert_error_has(world, "record 4 of the program's function: invalid argument, 4 bytes of at "
                            "most 3");
}

static void records_of_a_mapped_file_are_not_copied(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_TFRECORD, .epoch_count = 2, .batch = 3, .is_mapped = true};
    struct muster_dataset_batch batch;

    dataset_files_write_tfrecords(&world->files, "a", 10, 5); /* of 18 bytes each */
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);

    assert_ptr_equal(batch.records[1].data, (const char *)batch.records[0].data + 18);
    assert_memory_equal(batch.records[2].data, "12", 2);
    assert_string_equal(records_join(world), "13|14/10|11|12/13|14");
}

static void a_damaged_record_of_a_mapped_file_is_named(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_TFRECORD, .is_mapped = true, .is_prefetch_off = true};
    struct muster_dataset_batch batch;

    assert_int_equal(tfrecords_spoil(world, 31, 54), MUSTER_OK);
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);

    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_DATA_LOSS);
    assert_error_has(world, "/a, byte 18: the record has a wrong CRC; fetch the file again");
}

static void a_mapped_file_that_changes_is_found_when_the_next_epoch_opens_it(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_LINES, .batch = 2, .is_mapped = true, .is_prefetch_off = true};
    struct muster_dataset_batch batch;

    dataset_files_write(&world->files, "a", "1\n2\n", 4);
    assert_int_equal(files_open(world, options, "a"), MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
    dataset_files_write(&world->files, "a", "1\n", 2);

    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_DATA_LOSS);
    assert_error_has(world, "/a has changed from 4 to 2 bytes since it was opened; put the old");
}

/* The process reads up to the end, and closes. */
static bool rest_is_read(struct world *world, const char *expected)
{
    bool is_equal = strcmp(records_join(world), expected) == 0;

    muster_dataset_close(world->dataset);
    world->dataset = NULL;
    return is_equal;
}

static void a_child_of_fork_reads_on_by_itself(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {
        .kind = MUSTER_DATASET_LINES, .batch = 2, .epoch_count = 2, .thread_count = 3};
    struct muster_dataset_batch batch;
    int status = -1;
    pid_t child;

    dataset_files_write(&world->files, "lines", "a\nb\nc\nd\ne\n", 10);
    assert_int_equal(files_open(world, options, "lines"), MUSTER_OK);
    assert_int_equal(muster_dataset_next(world->dataset, &batch, &world->error), MUSTER_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(rest_is_read(world, "c|d/e/a|b/c|d/e") ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);

    assert_int_equal(status, 0);
    assert_true(rest_is_read(world, "c|d/e/a|b/c|d/e"));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(text_is_cut_into_records_and_batches),
        CASE(an_empty_row_is_no_record_wherever_reads_end),
        CASE(tfrecords_of_files_come_in_the_order_of_their_paths),
        CASE(a_pattern_that_fits_no_name_is_a_name),
        CASE(a_file_that_two_patterns_name_is_read_once),
        CASE(a_shuffle_has_each_record_once_and_follows_from_its_seed),
        CASE(a_restored_position_goes_on_with_the_same_records),
        CASE(a_position_of_other_files_is_refused),
        CASE(a_damaged_tfrecord_is_named_with_file_byte_and_remedy),
        CASE(files_that_are_wrong_are_refused_at_open),
        CASE(options_that_are_wrong_are_refused),
        CASE(a_global_batch_may_have_fewer_records_than_workers),
        CASE(a_file_that_changes_is_found_when_the_next_epoch_opens_it),
        CASE(the_epoch_is_that_of_the_last_batch),
        CASE(shares_move_by_claims_and_left_over_records_come_first),
        CASE(more_members_than_records_have_empty_shares),
        CASE(a_divided_dataset_is_not_shared),
        CASE(workers_of_a_policy_have_their_files_or_elements),
        CASE(memory_is_not_copied),
        CASE(a_function_that_fails_is_asked_again),
        CASE(records_of_a_mapped_file_are_not_copied),
        CASE(a_damaged_record_of_a_mapped_file_is_named),
        CASE(a_mapped_file_that_changes_is_found_when_the_next_epoch_opens_it),
        CASE(a_child_of_fork_reads_on_by_itself),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
