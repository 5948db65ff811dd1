/* Headers of safetensors files. What was read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include "training/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void right_check(bool is_right)
{
    if (!is_right)
        abort();
}

static struct muster_checkpoint *header_parse(const void *bytes, size_t size, uint64_t data_bytes)
{
    struct muster_checkpoint *checkpoint = NULL;

    return muster_safetensors_parse(muster_mem_system(), "folder",
                                    &(struct muster_safetensors_header){
                                        .bytes = bytes, .size = size, .data_bytes = data_bytes},
                                    &checkpoint, NULL) == MUSTER_OK
               ? checkpoint
               : NULL;
}

/* Tensors cover the data without gaps. */
static void tensors_check(const struct muster_checkpoint *checkpoint, uint64_t data_bytes)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < checkpoint->tensor_count; i++) {
        right_check(checkpoint->tensors[i].offset == offset);
        offset += checkpoint->tensors[i].count * muster_dtype_bytes(checkpoint->tensors[i].dtype);
    }
    right_check(offset == data_bytes && checkpoint->state_bytes == data_bytes);
}

static void again_check(const struct muster_checkpoint *one)
{
    struct muster_checkpoint *other;
    char *text;

    right_check(muster_safetensors_format(one, &text, NULL) == MUSTER_OK);
    right_check(strlen(text) % 8 == 0);
    other = header_parse(text, strlen(text), one->state_bytes);
    right_check(other != NULL && other->tensor_count == one->tensor_count &&
                other->name.step == one->name.step);
    for (uint32_t i = 0; i < one->tensor_count; i++)
        right_check(strcmp(one->tensors[i].name, other->tensors[i].name) == 0 &&
                    one->tensors[i].dtype == other->tensors[i].dtype &&
                    one->tensors[i].count == other->tensors[i].count);
    muster_checkpoint_close(other);
    muster_mem_free(one->mem, text);
}

/* The first byte is how many bytes of values follow the header, in eights. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_checkpoint *checkpoint;
    uint64_t data_bytes;
    char *copy = size > 0 ? malloc(size) : NULL;

    if (copy == NULL)
        return 0;
    data_bytes = (uint64_t)bytes[0] * 8;
    memcpy(copy, bytes + 1, size - 1);
    checkpoint = header_parse(copy, size - 1, data_bytes);
    if (checkpoint != NULL) {
        tensors_check(checkpoint, data_bytes);
        again_check(checkpoint);
    }
    muster_checkpoint_close(checkpoint);
    free(copy);
    return 0;
}
