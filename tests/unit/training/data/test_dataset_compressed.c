/* Datasets of files that gzip and zstd have made. */
#include "assertion_count.h"

#include "dataset_world.h"

/* By gzip or zstd, `count` times one after another. False: the program is not there. */
static bool file_compress(struct world *world, const char *program, const char *suffix,
                          unsigned count)
{
    char command[400];

    snprintf(command, sizeof(command),
             "cd '%s' && rm -f b%s && for i in $(seq %u); do %s -q -c < a >> b%s || exit 1; done",
             world->files.folder, suffix, count, program, suffix);
    return system(command) == 0;
}

static const struct {
    const char *program, *suffix;
} codecs[] = {{"gzip", ".gz"}, {"zstd", ".zst"}};

static void compressed_files_have_the_records_of_plain_ones(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_LINES, .epoch_count = 1};
    size_t bytes = 3000000;
    char *text = malloc(bytes);

    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = i % 1000 == 999 ? '\n' : (char)('a' + (i * i / 7 + i / 1000) % 26);
    dataset_files_write(&world->files, "a", text, bytes);
    for (size_t codec = 0; codec < 2; codec++)
        for (unsigned count = 1; count < 3; count++) {
            struct muster_dataset_batch batch;
            size_t sum = 0, at = 0;

            if (!file_compress(world, codecs[codec].program, codecs[codec].suffix, count))
                continue;
            assert_int_equal(files_open(world, options, "b*"), MUSTER_OK);
            while (muster_dataset_next(world->dataset, &batch, &world->error) == MUSTER_OK) {
                size_t size = batch.records[0].size;

                assert_int_equal(size, 999);
                assert_memory_equal(batch.records[0].data, text + at, size);
                at = (at + 1000) % bytes;
                sum += size;
            }
            assert_int_equal(sum, count * (bytes - bytes / 1000));
            dataset_files_remove(&world->files, codec == 0 ? "b.gz" : "b.zst");
        }
    free(text);
}

static void a_compressed_file_that_is_damaged_or_cut_is_named(void **state)
{
    struct world *world = *state;
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_LINES, .epoch_count = 1};
    static const char *const paths[] = {"b.gz", "b.zst"};

    for (size_t codec = 0; codec < 2; codec++) {
        dataset_files_write(&world->files, "a", "some lines\nof text\n", 19);
        if (!file_compress(world, codecs[codec].program, codecs[codec].suffix, 1))
            continue;
        for (unsigned cut = 1; cut < 12; cut++) {
            assert_int_equal(file_compress(world, codecs[codec].program, codecs[codec].suffix, 1),
                             true);
            dataset_files_shorten(&world->files, paths[codec], cut);
            assert_int_equal(files_open(world, options, paths[codec]), MUSTER_DATA_LOSS);
            assert_error_has(world, "the compressed file is damaged or cut off; fetch it again");
            assert_error_has(world, paths[codec]);
        }
        dataset_files_write(&world->files, paths[codec], "plain\n", 6);
        assert_int_equal(files_open(world, options, paths[codec]), MUSTER_DATA_LOSS);
        dataset_files_remove(&world->files, paths[codec]);
    }
}

static void what_follows_the_compressed_members_is_found(void **state)
{
    static const uint8_t member[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3,
                                     3,    0,    0, 0, 0, 0, 0, 0, 0, 0};
    struct world *world = *state;
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_LINES, .epoch_count = 1};
    char bytes[sizeof(member) + 7];

    memcpy(bytes, member, sizeof(member)); /* of nothing */
    memcpy(bytes + sizeof(member), "garbage", 7);
    dataset_files_write(&world->files, "b.gz", bytes, sizeof(bytes));

    assert_int_equal(files_open(world, options, "b.gz"), MUSTER_DATA_LOSS);
    assert_error_has(world, "byte 22: the compressed file is damaged or cut off");
}

static void an_error_in_a_compressed_file_names_a_decompressed_byte(void **state)
{
    struct world *world = *state;

    dataset_files_write(&world->files, "a", "aab", 3);
    if (!file_compress(world, "gzip", ".gz", 1))
        return;
    assert_int_equal(
        files_open(world,
                   (struct muster_dataset_options){.kind = MUSTER_DATASET_FIXED, .record_bytes = 2},
                   "b.gz"),
        MUSTER_DATA_LOSS);
    assert_error_has(world, "b.gz, byte 3 (decompressed): the size is not");
}

static void a_scratch_folder_that_is_not_there_is_named(void **state)
{
    struct world *world = *state;

    dataset_files_write(&world->files, "b.gz", "x", 1);
    assert_int_equal(files_open(world,
                                (struct muster_dataset_options){.kind = MUSTER_DATASET_LINES,
                                                                .scratch_folder = "/nowhere"},
                                "b.gz"),
                     MUSTER_NOT_FOUND);
    assert_error_has(world, "to /nowhere; name another folder by scratch_folder or TMPDIR");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(compressed_files_have_the_records_of_plain_ones),
        CASE(a_compressed_file_that_is_damaged_or_cut_is_named),
        CASE(what_follows_the_compressed_members_is_found),
        CASE(an_error_in_a_compressed_file_names_a_decompressed_byte),
        CASE(a_scratch_folder_that_is_not_there_is_named),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
