/* A batch: the records that it is to have, and the memory into which they are read. */
#ifndef MUSTER_TRAINING_DATA_SLOT_H
#define MUSTER_TRAINING_DATA_SLOT_H

#include "training/data/index.h"
#include "training/data/plan.h"

/** The bytes that records are read from. Not written after open; any thread may read. */
struct muster_data_source {
    struct muster_mem *mem;
    struct muster_dataset_options options;
    struct muster_data_index index; /* kinds with files */
};

enum muster_data_slot_state {
    MUSTER_DATA_SLOT_FREE,
    MUSTER_DATA_SLOT_PLANNED,
    MUSTER_DATA_SLOT_READING, /* a thread has it */
    MUSTER_DATA_SLOT_READY,
    MUSTER_DATA_SLOT_TAKEN, /* the program has it */
};

struct muster_data_slot {
    enum muster_data_slot_state state; /* guarded by the queue */
    struct muster_data_place place;
    struct muster_data_part part;
    struct muster_bytes *records;
    uint8_t *bytes;    /* NULL: none of its records so far was copied */
    size_t capacity;   /* bytes of records that it may have */
    enum muster_rc rc; /* of the read */
    struct muster_error error;
};

/** The file that a thread has open, between reads. */
struct muster_data_cursor {
    bool is_open;
    uint32_t file;
    uint64_t epoch; /* of the batch for which it was opened: sizes are compared once in each */
    struct muster_file_reader reader;
};
void muster_data_cursor_close(struct muster_data_cursor *cursor,
                              const struct muster_data_source *source);

/** Memory that each record of a batch takes besides its bytes. */
#define MUSTER_DATA_RECORD_BYTES (sizeof(uint64_t) + sizeof(struct muster_bytes))

/** Caller's memory, all zero; fini also after a failed init. */
MUSTER_MUST_CHECK enum muster_rc muster_data_slot_init(struct muster_data_slot *slot,
                                                       struct muster_mem *mem, uint32_t batch);
void muster_data_slot_fini(struct muster_data_slot *slot, struct muster_mem *mem);

/** Bytes of the slot's records; *ret_is_copied: some of them are read into memory. */
size_t muster_data_slot_bytes(const struct muster_data_slot *slot,
                              const struct muster_data_source *source, bool *ret_is_copied);
/** Read them, into memory of that size; rc and error say how it ended. Neighbours in a file are one read. */
void muster_data_slot_read(struct muster_data_slot *slot, const struct muster_data_source *source,
                           struct muster_data_cursor *cursor);

#endif
