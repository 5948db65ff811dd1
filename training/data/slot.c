/* Reading the records of a batch. */
#include "training/data/slot.h"

#include <inttypes.h>

#define READ_BYTES_MAX                                                                             \
    (256u << 10) /* of neighbours by one call: their CRCs find them in the cache */

enum muster_rc muster_data_slot_init(struct muster_data_slot *slot, struct muster_mem *mem,
                                     uint32_t batch)
{
    slot->part.numbers = muster_mem_alloc_zero(mem, batch, sizeof(*slot->part.numbers));
    slot->records = muster_mem_alloc_zero(mem, batch, sizeof(*slot->records));
    return slot->part.numbers != NULL && slot->records != NULL ? MUSTER_OK
                                                               : MUSTER_RESOURCE_EXHAUSTED;
}

void muster_data_slot_fini(struct muster_data_slot *slot, struct muster_mem *mem)
{
    muster_mem_free(mem, slot->part.numbers);
    muster_mem_free(mem, slot->records);
    muster_mem_free(mem, slot->bytes);
}

size_t muster_data_slot_bytes(const struct muster_data_slot *slot,
                              const struct muster_data_source *source, bool *ret_is_copied)
{
    size_t sum = 0;

    *ret_is_copied = source->options.kind == MUSTER_DATASET_CALLBACK;
    if (source->options.kind == MUSTER_DATASET_MEMORY)
        return 0;
    if (source->options.kind == MUSTER_DATASET_CALLBACK)
        return slot->part.count * source->options.record_bytes_max;
    for (uint32_t i = 0; i < slot->part.count; i++) {
        const struct muster_data_entry *entry = &source->index.entries[slot->part.numbers[i]];

        sum += entry->bytes;
        *ret_is_copied |= source->index.files[entry->file].map == NULL;
    }
    return sum;
}

void muster_data_cursor_close(struct muster_data_cursor *cursor,
                              const struct muster_data_source *source)
{
    if (cursor->is_open)
        muster_data_file_close(&source->index.files[cursor->file], &cursor->reader);
    cursor->is_open = false;
}

static enum muster_rc cursor_move(struct muster_data_cursor *cursor,
                                  const struct muster_data_source *source, uint32_t file,
                                  uint64_t epoch, struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (cursor->is_open && cursor->file == file && cursor->epoch == epoch)
        return MUSTER_OK;
    muster_data_cursor_close(cursor, source);
    rc = muster_data_file_open(&source->index.files[file], &cursor->reader, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    cursor->is_open = true;
    cursor->file = file;
    cursor->epoch = epoch;
    return MUSTER_OK;
}

/* Entries from the i-th on that lie one after another in one file; *ret_bytes: all of theirs. */
static uint32_t neighbours_count(const struct muster_data_slot *slot,
                                 const struct muster_data_entry *entries, uint32_t i,
                                 size_t *ret_bytes)
{
    const struct muster_data_entry *last = &entries[slot->part.numbers[i]];
    uint32_t count = 1;

    *ret_bytes = last->bytes;
    while (i + count < slot->part.count) {
        const struct muster_data_entry *next = &entries[slot->part.numbers[i + count]];

        if (next->file != last->file || next->at != last->at + last->bytes ||
            *ret_bytes + next->bytes > READ_BYTES_MAX)
            break;
        *ret_bytes += next->bytes;
        last = next;
        count++;
    }
    return count;
}

/* The bytes of `bytes` bytes of neighbours, of which the i-th is the first; in the file's map, or read to `to`. */
static enum muster_rc neighbours_read(struct muster_data_slot *slot,
                                      const struct muster_data_source *source,
                                      const struct muster_data_cursor *cursor, uint32_t i,
                                      uint8_t *to, size_t bytes, const uint8_t **ret_framed)
{
    const struct muster_data_entry *entry = &source->index.entries[slot->part.numbers[i]];
    const struct muster_data_file *file = &source->index.files[entry->file];
    enum muster_rc rc = MUSTER_OK;

    *ret_framed = file->map != NULL ? file->map + entry->at : to;
    if (file->map == NULL)
        rc = muster_file_reader_read(&cursor->reader, entry->at, to, bytes);
    if (rc == MUSTER_OUT_OF_RANGE)
        return muster_data_file_error(&slot->error, MUSTER_DATA_LOSS, file, entry->at,
                                      "the file has become shorter since it was opened; put "
                                      "the old one back, or start anew");
    if (rc != MUSTER_OK)
        return muster_data_file_error(&slot->error, rc, file, entry->at, muster_rc_text(rc));
    return MUSTER_OK;
}

static enum muster_rc entries_read(struct muster_data_slot *slot,
                                   const struct muster_data_source *source,
                                   struct muster_data_cursor *cursor)
{
    const struct muster_data_entry *entries = source->index.entries;
    uint8_t *to = slot->bytes;
    size_t bytes;
    uint32_t i = 0;

    while (i < slot->part.count) {
        const struct muster_data_entry *entry = &entries[slot->part.numbers[i]];
        const struct muster_data_file *file = &source->index.files[entry->file];
        uint32_t end = i + neighbours_count(slot, entries, i, &bytes);
        const uint8_t *framed = NULL;
        enum muster_rc rc =
            cursor_move(cursor, source, entry->file, slot->place.epoch, &slot->error);

        if (rc == MUSTER_OK)
            rc = neighbours_read(slot, source, cursor, i, to, bytes, &framed);
        if (rc != MUSTER_OK)
            return rc;
        to += framed == to ? bytes : 0;
        for (; i < end; i++) {
            entry = &entries[slot->part.numbers[i]];
            rc = muster_data_frame_open(source->options.kind, file, entry, framed,
                                        &slot->records[i], &slot->error);
            if (rc != MUSTER_OK)
                return rc;
            framed += entry->bytes;
        }
    }
    return MUSTER_OK;
}

static enum muster_rc callback_read(struct muster_data_slot *slot,
                                    const struct muster_data_source *source)
{
    size_t bytes_max = source->options.record_bytes_max;

    for (uint32_t i = 0; i < slot->part.count; i++) {
        uint8_t *to = slot->bytes + i * bytes_max;
        size_t size = 0;
        enum muster_rc rc =
            source->options.read(source->options.data, slot->part.numbers[i], to, &size);

        if (rc == MUSTER_OK && size > bytes_max)
            rc = MUSTER_INVALID_ARGUMENT;
        if (rc != MUSTER_OK)
            return muster_error_set(&slot->error, rc,
                                    "record %" PRIu64 " of the program's function: %s, %zu bytes "
                                    "of at most %zu",
                                    slot->part.numbers[i], muster_rc_text(rc), size, bytes_max);
        slot->records[i] = (struct muster_bytes){.data = to, .size = size};
    }
    return MUSTER_OK;
}

void muster_data_slot_read(struct muster_data_slot *slot, const struct muster_data_source *source,
                           struct muster_data_cursor *cursor)
{
    slot->error = (struct muster_error){0};
    slot->rc = MUSTER_OK;
    switch (source->options.kind) {
    case MUSTER_DATASET_MEMORY:
        for (uint32_t i = 0; i < slot->part.count; i++)
            slot->records[i] = source->options.records[slot->part.numbers[i]];
        break;
    case MUSTER_DATASET_CALLBACK:
        slot->rc = callback_read(slot, source);
        break;
    default:
        slot->rc = entries_read(slot, source, cursor);
    }
}
