/* Checkpoints for tests. */
#include "checkpoint_stand.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "training/checkpoint/folder.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/writer.h"

static const struct {
    const char *name;
    enum muster_dtype dtype;
    uint64_t count, small_count;
} rows[CHECKPOINT_TENSORS] = {
    {"counter", MUSTER_U8, 3, 3},
    {"weights", MUSTER_F32, 400001, 40},
    {"empty", MUSTER_F64, 0, 0},
    {"moments", MUSTER_F64, 200003, 20},
};

void checkpoint_stand_open(struct checkpoint_stand *stand, struct muster_mem *mem, bool is_small)
{
    memset(stand, 0, sizeof(*stand));
    stand->mem = mem;
    stand->is_small = is_small;
    (void)strcpy(stand->folder, "/tmp/checkpoint.XXXXXX");
    assert_non_null(mkdtemp(stand->folder));
    for (size_t i = 0; i < CHECKPOINT_TENSORS; i++) {
        uint64_t count = is_small ? rows[i].small_count : rows[i].count;

        stand->tensors[i] = (struct muster_tensor){
            .data = calloc((size_t)count + 1, muster_dtype_bytes(rows[i].dtype)),
            .count = count,
            .dtype = rows[i].dtype};
        assert_non_null(stand->tensors[i].data);
        stand->described[i] = (struct muster_checkpoint_tensor){
            .name = rows[i].name, .dtype = rows[i].dtype, .count = count};
        stand->state_bytes += count * muster_dtype_bytes(rows[i].dtype);
    }
}

void checkpoint_stand_close(struct checkpoint_stand *stand)
{
    DIR *names = opendir(stand->folder);
    struct dirent *entry;
    char path[512];

    assert_non_null(names);
    while ((entry = readdir(names)) != NULL)
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%s", stand->folder, entry->d_name);
            (void)unlink(path);
        }
    (void)closedir(names);
    assert_int_equal(rmdir(stand->folder), 0);
    for (size_t i = 0; i < CHECKPOINT_TENSORS; i++)
        free(stand->tensors[i].data);
}

static uint64_t tensor_bytes(const struct muster_tensor *tensor)
{
    return tensor->count * muster_dtype_bytes(tensor->dtype);
}

static uint8_t value_of(uint64_t step, size_t tensor, uint64_t at)
{
    return (uint8_t)(step * 41 + tensor * 17 + at * 7 + (at >> 8) * 3 + (at >> 16));
}

void checkpoint_stand_fill(struct checkpoint_stand *stand, uint64_t step)
{
    for (size_t i = 0; i < CHECKPOINT_TENSORS; i++)
        for (uint64_t at = 0; at < tensor_bytes(&stand->tensors[i]); at++)
            ((uint8_t *)stand->tensors[i].data)[at] = value_of(step, i, at);
}

void checkpoint_stand_check(const struct checkpoint_stand *stand, uint64_t step)
{
    for (size_t i = 0; i < CHECKPOINT_TENSORS; i++)
        for (uint64_t at = 0; at < tensor_bytes(&stand->tensors[i]); at++)
            if (((const uint8_t *)stand->tensors[i].data)[at] != value_of(step, i, at))
                fail_msg("byte %llu of tensor %zu is not that of step %llu", (unsigned long long)at,
                         i, (unsigned long long)step);
}

enum muster_rc checkpoint_stand_write(struct checkpoint_stand *stand,
                                      const struct muster_checkpoint_name *name, uint32_t shard,
                                      uint32_t shard_count, struct muster_error *ret_error)
{
    struct muster_checkpoint_writer *writer = NULL;
    enum muster_rc rc = muster_checkpoint_writer_new(
        &(struct muster_checkpoint_writer_options){.mem = stand->mem,
                                                   .folder = stand->folder,
                                                   .name = *name,
                                                   .tensors = stand->tensors,
                                                   .tensor_count = CHECKPOINT_TENSORS,
                                                   .shard = shard,
                                                   .shard_count = shard_count},
        &writer);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_checkpoint_writer_run(writer);
    if (rc != MUSTER_OK)
        *ret_error = *muster_checkpoint_writer_error(writer);
    muster_checkpoint_writer_free(writer);
    return rc;
}

enum muster_rc checkpoint_stand_seal(struct checkpoint_stand *stand,
                                     const struct muster_checkpoint_name *name,
                                     uint32_t shard_count, struct muster_error *ret_error)
{
    struct muster_checkpoint *checkpoint = NULL;
    enum muster_rc rc = muster_checkpoint_new(stand->mem, stand->folder, stand->described,
                                              CHECKPOINT_TENSORS, shard_count, &checkpoint);

    if (rc != MUSTER_OK)
        return rc;
    checkpoint->name = *name;
    rc = muster_checkpoint_seal(checkpoint, ret_error);
    muster_checkpoint_close(checkpoint);
    return rc;
}

enum muster_rc checkpoint_stand_save(struct checkpoint_stand *stand,
                                     const struct muster_checkpoint_name *name,
                                     uint32_t shard_count, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < shard_count && rc == MUSTER_OK; i++)
        rc = checkpoint_stand_write(stand, name, i, shard_count, ret_error);
    return rc == MUSTER_OK ? checkpoint_stand_seal(stand, name, shard_count, ret_error) : rc;
}

static enum muster_rc on_bytes(void *data, uint64_t offset, const void *bytes, size_t count)
{
    struct checkpoint_stand *stand = data;
    uint64_t begin = 0;

    for (size_t i = 0; i < CHECKPOINT_TENSORS; i++) {
        uint64_t end = begin + tensor_bytes(&stand->tensors[i]);
        uint64_t from = offset > begin ? offset : begin;
        uint64_t to = offset + count < end ? offset + count : end;

        if (from < to)
            memcpy((uint8_t *)stand->tensors[i].data + (from - begin),
                   (const uint8_t *)bytes + (from - offset), (size_t)(to - from));
        begin = end;
    }
    return MUSTER_OK;
}

enum muster_rc checkpoint_stand_load(struct checkpoint_stand *stand, const char *folder,
                                     const struct muster_checkpoint_name *name,
                                     struct muster_error *ret_error)
{
    struct muster_checkpoint *checkpoint = NULL;
    enum muster_rc rc = muster_checkpoint_open(stand->mem, folder, name, &checkpoint, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_checkpoint_read(checkpoint, 0, checkpoint->state_bytes, on_bytes, stand,
                                    ret_error);
    muster_checkpoint_close(checkpoint);
    return rc;
}
