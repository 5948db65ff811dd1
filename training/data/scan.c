/* Where records begin and end: lines and rows, records of one size, TFRecords. */
#include "training/data/scan.h"

#include <string.h>

#include "training/data/crc32c.h"

/* A call for the head of the next record costs as much as to copy so many bytes. */
#define SPARSE_BYTES 4096u

enum muster_rc muster_data_window_read(struct muster_data_window *window, uint64_t at, size_t count,
                                       const uint8_t **ret_bytes, size_t *ret_count)
{
    uint64_t end = window->at + window->count, left = window->reader->bytes - at;
    size_t most = window->is_sparse ? count : window->capacity;
    size_t wanted = left < most ? (size_t)left : most;
    enum muster_rc rc;

    MUSTER_ASSERT(at <= window->reader->bytes && count <= wanted);
    if (at < window->at || at + count > end) {
        window->count = 0;
        rc = muster_file_reader_read(window->reader, at, window->room, wanted);
        if (rc != MUSTER_OK)
            return rc;
        window->bytes = window->room;
        window->at = at;
        window->count = wanted;
    }
    *ret_bytes = window->bytes + (at - window->at);
    *ret_count = window->count - (size_t)(at - window->at);
    return MUSTER_OK;
}

enum muster_rc muster_data_index_add(struct muster_data_index *index, uint32_t file, uint64_t at,
                                     uint64_t bytes, struct muster_error *ret_error)
{
    if (bytes > UINT32_MAX)
        return muster_data_file_error(
            ret_error, MUSTER_RESOURCE_EXHAUSTED, &index->files[file], at,
            "a record must have less than 4 GiB; cut it, or check the kind");
    if (index->entry_count == index->entry_capacity) {
        uint64_t capacity = index->entry_capacity * 2 + 1024;
        struct muster_data_entry *entries =
            muster_mem_realloc(index->mem, index->entries, (size_t)capacity * sizeof(*entries));

        if (entries == NULL)
            return muster_data_file_error(ret_error, MUSTER_RESOURCE_EXHAUSTED, &index->files[file],
                                          at, "out of memory for the index (16 bytes a record)");
        index->entries = entries;
        index->entry_capacity = capacity;
    }
    index->entries[index->entry_count++] =
        (struct muster_data_entry){.at = at, .bytes = (uint32_t)bytes, .file = file};
    return MUSTER_OK;
}

static enum muster_rc scan_refuse(const struct muster_data_index *index, uint32_t file, uint64_t at,
                                  enum muster_rc rc, struct muster_error *ret_error)
{
    if (rc == MUSTER_OUT_OF_RANGE)
        return muster_data_file_error(ret_error, MUSTER_DATA_LOSS, &index->files[file], at,
                                      "the file became shorter while it was read; open again "
                                      "when nobody writes it");
    return muster_data_file_error(ret_error, rc, &index->files[file], at, muster_rc_text(rc));
}

/* --- Lines and rows --- */

struct line_scan {
    bool has_quotes, is_quoted;
    uint64_t begin, quote; /* of the record, and of the quote that is open */
    uint8_t first;         /* byte of the record: the window may have left it behind */
    uint64_t line;
};

/* The place after the next end of a record in bytes, or 0: it is not among them. */
static size_t record_end_find(struct line_scan *scan, const uint8_t *bytes, size_t count,
                              uint64_t at)
{
    if (!scan->has_quotes) {
        const uint8_t *end = memchr(bytes, '\n', count);

        return end != NULL ? (size_t)(end - bytes) + 1 : 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '"') {
            scan->is_quoted = !scan->is_quoted;
            scan->quote = at + i;
        } else if (bytes[i] == '\n' && !scan->is_quoted)
            return i + 1;
    }
    return 0;
}

/* A row without anything in it is not a record. */
static bool is_empty_row(const struct line_scan *scan, uint64_t end)
{
    return end - scan->begin <= 2 && (scan->first == '\r' || scan->first == '\n');
}

static enum muster_rc line_add(struct muster_data_index *index, uint32_t file,
                               const struct muster_dataset_options *options, struct line_scan *scan,
                               uint64_t end, struct muster_error *ret_error)
{
    uint64_t begin = scan->begin;
    bool is_left_out =
        scan->line++ < options->header_lines || (scan->has_quotes && is_empty_row(scan, end));

    scan->begin = end;
    if (is_left_out)
        return MUSTER_OK;
    return muster_data_index_add(index, file, begin, end - begin, ret_error);
}

enum muster_rc muster_data_scan_lines(struct muster_data_index *index, uint32_t file,
                                      const struct muster_dataset_options *options,
                                      struct muster_data_window *window,
                                      struct muster_error *ret_error)
{
    struct line_scan scan = {.has_quotes = options->kind == MUSTER_DATASET_CSV};
    uint64_t at = 0, size = window->reader->bytes;
    enum muster_rc rc = MUSTER_OK;

    while (at < size && rc == MUSTER_OK) {
        const uint8_t *bytes;
        size_t count, end;

        rc = muster_data_window_read(window, at, 1, &bytes, &count);
        if (rc != MUSTER_OK)
            return scan_refuse(index, file, at, rc, ret_error);
        if (at == scan.begin)
            scan.first = bytes[0];
        end = record_end_find(&scan, bytes, count, at);
        at += end != 0 ? end : count;
        if (end != 0)
            rc = line_add(index, file, options, &scan, at, ret_error);
    }
    if (rc == MUSTER_OK && scan.is_quoted)
        return muster_data_file_error(ret_error, MUSTER_DATA_LOSS, &index->files[file], scan.quote,
                                      "a quote is not closed; mend the row, or read LINES");
    if (rc == MUSTER_OK && scan.begin < size)
        rc = line_add(index, file, options, &scan, size, ret_error);
    return rc;
}

/* --- Records of one size --- */

enum muster_rc muster_data_scan_fixed(struct muster_data_index *index, uint32_t file,
                                      const struct muster_dataset_options *options,
                                      struct muster_data_window *window,
                                      struct muster_error *ret_error)
{
    uint64_t size = window->reader->bytes, each = options->record_bytes;
    uint64_t around = options->header_bytes + options->footer_bytes;
    enum muster_rc rc = MUSTER_OK;

    if (size < around || (size - around) % each != 0)
        return muster_data_file_error(
            ret_error, MUSTER_DATA_LOSS, &index->files[file], size,
            "the size is not header_bytes + records * record_bytes + footer_bytes; check these, "
            "or fetch the file again");
    for (uint64_t at = options->header_bytes; rc == MUSTER_OK && at < size - options->footer_bytes;
         at += each)
        rc = muster_data_index_add(index, file, at, each, ret_error);
    return rc;
}

/* --- TFRecords --- */

static uint64_t integer_load(const uint8_t *bytes, unsigned count)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

bool muster_tfrecord_head_parse(const uint8_t head[MUSTER_TFRECORD_HEAD_BYTES], uint64_t *ret_bytes)
{
    *ret_bytes = integer_load(head, 8);
    return muster_crc32c_mask(muster_crc32c(head, 8)) == (uint32_t)integer_load(head + 8, 4);
}

bool muster_tfrecord_is_sound(const uint8_t *framed, uint64_t bytes)
{
    const uint8_t *payload = framed + MUSTER_TFRECORD_HEAD_BYTES;

    return muster_crc32c_mask(muster_crc32c(payload, (size_t)bytes)) ==
           (uint32_t)integer_load(payload + bytes, 4);
}

static enum muster_rc tfrecord_refuse_cut(const struct muster_data_index *index, uint32_t file,
                                          uint64_t at, struct muster_error *ret_error)
{
    return muster_data_file_error(ret_error, MUSTER_DATA_LOSS, &index->files[file], at,
                                  "the file ends within this record; fetch or write it again, "
                                  "or leave it out");
}

enum muster_rc muster_data_scan_tfrecord(struct muster_data_index *index, uint32_t file,
                                         const struct muster_dataset_options *options,
                                         struct muster_data_window *window,
                                         struct muster_error *ret_error)
{
    uint64_t at = 0, size = window->reader->bytes, bytes;
    enum muster_rc rc = MUSTER_OK;

    (void)options;
    window->is_sparse = false;
    while (at < size && rc == MUSTER_OK) {
        const uint8_t *head;
        size_t count;

        if (size - at < MUSTER_TFRECORD_FRAME_BYTES)
            return tfrecord_refuse_cut(index, file, at, ret_error);
        rc = muster_data_window_read(window, at, MUSTER_TFRECORD_HEAD_BYTES, &head, &count);
        if (rc != MUSTER_OK)
            return scan_refuse(index, file, at, rc, ret_error);
        if (!muster_tfrecord_head_parse(head, &bytes))
            return muster_data_file_error(
                ret_error, MUSTER_DATA_LOSS, &index->files[file], at,
                "a record's length has a wrong CRC: not a TFRecord file, or damaged; fetch it "
                "again, or leave it out");
        if (bytes > size - at - MUSTER_TFRECORD_FRAME_BYTES)
            return tfrecord_refuse_cut(index, file, at, ret_error);
        rc = muster_data_index_add(index, file, at, bytes + MUSTER_TFRECORD_FRAME_BYTES, ret_error);
        at += bytes + MUSTER_TFRECORD_FRAME_BYTES;
        window->is_sparse = bytes >= SPARSE_BYTES;
    }
    return rc;
}
