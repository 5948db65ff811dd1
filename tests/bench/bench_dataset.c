/* How fast a dataset reads TFRecords: usage: bench_dataset write FILE COUNT BYTES | bench_dataset read|map BATCH FILE…
 * `write` makes a file of COUNT records of BYTES bytes. `read` opens the files, reads each record once, in order, and
 * prints one JSON line: records, bytes of payloads, seconds from before open to behind the last record. `map` does the
 * same with files that are mapped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/dataset.h>

#include "bench_clock.h"
#include "training/data/crc32c.h"

static void integer_store(uint8_t *to, uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static int file_write(const char *path, uint64_t count, size_t bytes)
{
    uint8_t *record = malloc(bytes + 16);
    FILE *file = fopen(path, "w");
    uint64_t state = 1;

    if (record == NULL || file == NULL) {
        perror(path);
        return 1;
    }
    integer_store(record, bytes, 8);
    integer_store(record + 8, muster_crc32c_mask(muster_crc32c(record, 8)), 4);
    for (uint64_t i = 0; i < count; i++) {
        for (size_t at = 0; at < bytes; at++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            record[12 + at] = (uint8_t)(state >> 56);
        }
        integer_store(record + 12 + bytes, muster_crc32c_mask(muster_crc32c(record + 12, bytes)),
                      4);
        if (fwrite(record, 1, bytes + 16, file) != bytes + 16)
            break;
    }
    free(record);
    if (fclose(file) != 0) {
        perror(path);
        return 1;
    }
    return 0;
}

static int files_read(uint32_t batch_records, const char *const *paths, size_t count,
                      bool is_mapped)
{
    const struct muster_dataset_options options = {.kind = MUSTER_DATASET_TFRECORD,
                                                   .paths = paths,
                                                   .path_count = count,
                                                   .epoch_count = 1,
                                                   .batch = batch_records,
                                                   .is_mapped = is_mapped};
    struct muster_dataset *dataset = NULL;
    struct muster_dataset_batch batch;
    struct muster_error error;
    uint64_t records = 0, bytes = 0, start = bench_clock_ns();
    enum muster_rc rc = muster_dataset_open(&options, &dataset, &error);

    while (rc == MUSTER_OK && (rc = muster_dataset_next(dataset, &batch, &error)) == MUSTER_OK) {
        records += batch.count;
        for (size_t i = 0; i < batch.count; i++)
            bytes += batch.records[i].size;
    }
    if (rc != MUSTER_OUT_OF_RANGE) {
        fprintf(stderr, "bench_dataset: %s\n", error.text);
        return 1;
    }
    printf("{\"records\": %llu, \"bytes\": %llu, \"seconds\": %.6f}\n", (unsigned long long)records,
           (unsigned long long)bytes, (double)(bench_clock_ns() - start) * 1e-9);
    muster_dataset_close(dataset);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "write") == 0)
        return file_write(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc >= 4 && (strcmp(argv[1], "read") == 0 || strcmp(argv[1], "map") == 0))
        return files_read((uint32_t)strtoul(argv[2], NULL, 10), (const char *const *)argv + 3,
                          (size_t)argc - 3, argv[1][0] == 'm');
    fputs("usage: bench_dataset write FILE COUNT BYTES | bench_dataset read|map BATCH FILE…\n",
          stderr);
    return 2;
}
