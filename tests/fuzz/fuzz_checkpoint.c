/* Files of checkpoints: the first byte says whether it is a manifest or the file of a shard. Hashes are made right, so
 * that the parsers behind them are reached. What was read must survive the way out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/system/file_system.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/shard.h"

#include "fuzz_kinds.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void right_check(bool is_right)
{
    if (!is_right)
        abort();
}

/* Tensors and shards both cover the state without gaps. Returns the bytes of the names. */
static size_t state_check(const struct muster_checkpoint *checkpoint)
{
    uint64_t offset = 0;
    size_t names = 0;

    for (uint32_t i = 0; i < checkpoint->tensor_count; i++) {
        const struct muster_checkpoint_tensor *tensor = &checkpoint->tensors[i];

        right_check(tensor->offset == offset);
        offset += tensor->count * muster_dtype_bytes(tensor->dtype);
        names += strlen(tensor->name) + 1;
    }
    right_check(offset == checkpoint->state_bytes);
    offset = 0;
    for (uint32_t i = 0; i < checkpoint->shard_count; i++) {
        right_check(checkpoint->shards[i].offset == offset);
        offset += checkpoint->shards[i].bytes;
    }
    right_check(offset == checkpoint->state_bytes);
    return names;
}

static void again_check(const struct muster_checkpoint *one)
{
    struct muster_checkpoint *other;
    void *bytes;
    size_t size;

    if (muster_checkpoint_manifest_pack(one, &bytes, &size) != MUSTER_OK)
        return;
    right_check(muster_checkpoint_manifest_unpack(one->mem, "folder", bytes, size, &other, NULL) ==
                MUSTER_OK);
    right_check(other->name.step == one->name.step && other->name.id == one->name.id);
    right_check(other->tensor_count == one->tensor_count && other->shard_count == one->shard_count);
    for (uint32_t i = 0; i < one->tensor_count; i++)
        right_check(strcmp(one->tensors[i].name, other->tensors[i].name) == 0 &&
                    one->tensors[i].dtype == other->tensors[i].dtype &&
                    one->tensors[i].count == other->tensors[i].count);
    right_check(memcmp(one->shards, other->shards, one->shard_count * sizeof(one->shards[0])) == 0);
    muster_checkpoint_close(other);
    muster_mem_free(one->mem, bytes);
}

static void manifest_read(uint8_t *bytes, size_t size)
{
    struct muster_checkpoint *checkpoint;
    uint64_t names;

    if (size >= MUSTER_HASH128_BYTES)
        muster_hash128(bytes, size - MUSTER_HASH128_BYTES, bytes + size - MUSTER_HASH128_BYTES);
    if (muster_checkpoint_manifest_unpack(muster_mem_system(), "folder", bytes, size, &checkpoint,
                                          NULL) != MUSTER_OK)
        return;
    memcpy(&names, bytes + 56, sizeof(names));
    if (state_check(checkpoint) == names) /* no name lies in another's bytes */
        again_check(checkpoint);
    muster_checkpoint_close(checkpoint);
}

/* Shard 1 of 2, of a state of 2 MiB and 5 bytes; behind the first byte are its head and its hashes. */
static void shard_read(uint8_t *bytes, size_t size)
{
    struct muster_checkpoint_shard_head head;
    struct muster_file_reader reader;
    uint8_t *hashes, hash[MUSTER_HASH128_BYTES];
    int fd = memfd_create("shard", MFD_CLOEXEC);
    char path[64];

    if (fd < 0)
        return;
    muster_checkpoint_shard_head_init(&head, &(struct muster_checkpoint_name){.step = 100, .id = 1},
                                      (2u << 20) + 5, 1, 2);
    if (size >= sizeof(head) + 2 * sizeof(hash)) {
        off_t at = (off_t)(sizeof(head) + head.bytes);

        muster_checkpoint_shard_hash(&head, bytes + sizeof(head), hash);
        right_check(pwrite(fd, bytes, sizeof(head), 0) == sizeof(head));
        right_check(pwrite(fd, bytes + sizeof(head), sizeof(hash), at) == sizeof(hash));
        right_check(pwrite(fd, hash, sizeof(hash), at + (off_t)sizeof(hash)) == sizeof(hash));
    } else if (size > 0) {
        right_check(pwrite(fd, bytes, size, 0) == (ssize_t)size);
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (muster_checkpoint_shard_open(muster_mem_system(), path, &head, &reader, &hashes, hash,
                                     NULL) == MUSTER_OK) {
        right_check(memcmp(bytes, &head, sizeof(head)) == 0);
        muster_mem_free(muster_mem_system(), hashes);
        muster_file_reader_close(&reader);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_kinds_read(bytes, size, manifest_read, shard_read);
    return 0;
}
