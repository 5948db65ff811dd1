/* Files of datasets: the first byte picks the kind, the rest is the file. Records must lie in it one behind another,
 * each must open or be refused, and fields of rows stay within their row. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "training/data/scan.h"

/* A scan of all bytes at once finds the same as one by pieces. */
static void check_whole(const struct muster_data_index *pieces, muster_data_scan_fn *scan,
                        const struct muster_dataset_options *options,
                        const struct muster_file_reader *reader, const uint8_t *bytes,
                        enum muster_rc expected)
{
    struct muster_data_index index = {
        .mem = muster_mem_system(), .files = pieces->files, .file_count = 1};
    struct muster_data_window window = {.reader = reader,
                                        .bytes = bytes,
                                        .count = (size_t)reader->bytes,
                                        .capacity = (size_t)reader->bytes};

    if (scan(&index, 0, options, &window, NULL) != expected ||
        index.entry_count != pieces->entry_count ||
        muster_data_index_hash(&index) != muster_data_index_hash(pieces))
        abort();
    free(index.entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define FIELDS_MAX 64u

static void check_row(const struct muster_bytes *row)
{
    struct muster_bytes fields[FIELDS_MAX];
    char *text = malloc(row->size + 1);
    size_t count = 0, sum = 0;

    if (text == NULL ||
        muster_dataset_row_parse(row, ',', text, fields, FIELDS_MAX, &count, NULL) != MUSTER_OK)
        count = 0;
    for (size_t i = 0; i < count; i++)
        sum += fields[i].size;
    if (sum > row->size)
        abort();
    free(text);
}

static void check_records(const struct muster_data_index *index, enum muster_dataset_kind kind,
                          const uint8_t *bytes, size_t size)
{
    uint64_t end = 0;

    for (uint64_t i = 0; i < index->entry_count; i++) {
        const struct muster_data_entry *entry = &index->entries[i];
        struct muster_bytes record;

        if (entry->at < end || entry->at + entry->bytes > size || entry->bytes == 0)
            abort();
        end = entry->at + entry->bytes;
        if (muster_data_frame_open(kind, index->files, entry, bytes + entry->at, &record, NULL) ==
                MUSTER_OK &&
            kind == MUSTER_DATASET_CSV)
            check_row(&record);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static muster_data_scan_fn *const scans[] = {muster_data_scan_lines, muster_data_scan_lines,
                                                 muster_data_scan_fixed, muster_data_scan_tfrecord};
    struct muster_dataset_options options = {.record_bytes = 3, .header_bytes = 1};
    char path[] = "fuzzed";
    struct muster_data_file file = {.path = path, .plain_fd = -1};
    struct muster_data_index index = {.mem = muster_mem_system(), .files = &file, .file_count = 1};
    uint8_t piece[64];
    struct muster_file_reader reader = {.fd = memfd_create("fuzzed", MFD_CLOEXEC)};
    struct muster_data_window window = {
        .reader = &reader, .room = piece, .capacity = sizeof(piece)};
    enum muster_rc rc;

    if (size == 0 || reader.fd < 0 || muster_file_write_all(reader.fd, bytes + 1, size - 1) != 0) {
        close(reader.fd);
        return 0;
    }
    reader.bytes = file.bytes = size - 1;
    options.kind = (enum muster_dataset_kind)(bytes[0] % 4);
    options.header_lines = bytes[0] / 4 % 3;
    rc = scans[options.kind](&index, 0, &options, &window, NULL);
    if (rc != MUSTER_OK && rc != MUSTER_DATA_LOSS)
        abort();
    check_records(&index, options.kind, bytes + 1, size - 1);
    check_whole(&index, scans[options.kind], &options, &reader, bytes + 1, rc);
    free(index.entries);
    close(reader.fd);
    return 0;
}
