/* The header of a safetensors file: an object in JSON, a member for each tensor, and one for metadata.
 *
 * Standard: https://github.com/huggingface/safetensors#format: names are unique, the values lie one after another
 * without gaps, little endian, in row-major order. */
#include "training/checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/json.h>

#include "training/checkpoint/manifest.h"

#define METADATA "__metadata__"

struct safetensor {
    const char *name; /* borrowed from the JSON */
    enum muster_dtype dtype;
    uint64_t count, begin, end;
};

static const char *const dtype_names[] = {
    [MUSTER_F32] = "F32",   [MUSTER_F64] = "F64",         [MUSTER_I32] = "I32",
    [MUSTER_I64] = "I64",   [MUSTER_U8] = "U8",           [MUSTER_F16] = "F16",
    [MUSTER_BF16] = "BF16", [MUSTER_I8] = "I8",           [MUSTER_U32] = "U32",
    [MUSTER_U64] = "U64",   [MUSTER_BOOL] = "BOOL",       [MUSTER_I16] = "I16",
    [MUSTER_U16] = "U16",   [MUSTER_F8_E4M3] = "F8_E4M3", [MUSTER_F8_E5M2] = "F8_E5M2"};
#define DTYPE_COUNT (sizeof(dtype_names) / sizeof(dtype_names[0]))

/* --- Parsing --- */

static enum muster_rc dtype_parse(const char *name, const struct muster_json *value,
                                  enum muster_dtype *ret_dtype, struct muster_error *ret_error)
{
    const char *text = muster_json_text(value);

    if (text == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "tensor %.80s: dtype must be a string, got %s", name,
                                muster_json_kind_name(value));
    for (unsigned i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(text, dtype_names[i]) == 0) {
            *ret_dtype = (enum muster_dtype)i;
            return MUSTER_OK;
        }
    return muster_error_set(
        ret_error, MUSTER_UNIMPLEMENTED,
        "tensor %.80s has type %.20s; the types that can be imported are F64, "
        "F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8 "
        "and BOOL",
        name, text);
}

static bool is_count(const struct muster_json *value)
{
    return muster_json_kind(value) == MUSTER_JSON_INTEGER && muster_json_integer(value) >= 0;
}

/* The number of elements; 1 without a dimension. */
static enum muster_rc shape_parse(const char *name, const struct muster_json *shape,
                                  uint64_t *ret_count, struct muster_error *ret_error)
{
    uint64_t count = 1;
    bool is_good = muster_json_kind(shape) == MUSTER_JSON_ARRAY, is_empty = false;

    for (size_t i = 0; i < muster_json_count(shape) && is_good; i++) {
        const struct muster_json *dimension = muster_json_at(shape, i);

        is_good = is_count(dimension);
        is_empty |= is_good && muster_json_integer(dimension) == 0;
        if (is_good && !is_empty &&
            __builtin_mul_overflow(count, (uint64_t)muster_json_integer(dimension), &count))
            is_good = false;
    }
    if (!is_good)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "tensor %.80s: shape must be an array of sizes whose product has "
                                "64 bits at most",
                                name);
    *ret_count = is_empty ? 0 : count;
    return MUSTER_OK;
}

static enum muster_rc offsets_parse(const struct muster_json *offsets, struct safetensor *tensor,
                                    struct muster_error *ret_error)
{
    uint64_t bytes;

    if (muster_json_kind(offsets) != MUSTER_JSON_ARRAY || muster_json_count(offsets) != 2 ||
        !is_count(muster_json_at(offsets, 0)) || !is_count(muster_json_at(offsets, 1)))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "tensor %.80s: data_offsets must be an array of two positions",
                                tensor->name);
    tensor->begin = (uint64_t)muster_json_integer(muster_json_at(offsets, 0));
    tensor->end = (uint64_t)muster_json_integer(muster_json_at(offsets, 1));
    if (tensor->begin > tensor->end ||
        __builtin_mul_overflow(tensor->count, muster_dtype_bytes(tensor->dtype), &bytes) ||
        bytes != tensor->end - tensor->begin)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "tensor %.80s has bytes %" PRIu64 " to %" PRIu64
                                ", but its shape has %" PRIu64 " elements of %zu bytes",
                                tensor->name, tensor->begin, tensor->end, tensor->count,
                                muster_dtype_bytes(tensor->dtype));
    return MUSTER_OK;
}

static enum muster_rc tensor_parse(const char *name, const struct muster_json *entry,
                                   struct safetensor *tensor, struct muster_error *ret_error)
{
    enum muster_rc rc;

    tensor->name = name;
    if (muster_json_kind(entry) != MUSTER_JSON_OBJECT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "tensor %.80s must be an object, got %s", name,
                                muster_json_kind_name(entry));
    rc = dtype_parse(name, muster_json_member(entry, "dtype"), &tensor->dtype, ret_error);
    if (rc == MUSTER_OK)
        rc = shape_parse(name, muster_json_member(entry, "shape"), &tensor->count, ret_error);
    if (rc == MUSTER_OK)
        rc = offsets_parse(muster_json_member(entry, "data_offsets"), tensor, ret_error);
    return rc;
}

/* All values are strings; "step" counts where it is a number. */
static enum muster_rc metadata_parse(const struct muster_json *metadata, uint64_t *ret_step,
                                     struct muster_error *ret_error)
{
    bool is_good = muster_json_kind(metadata) == MUSTER_JSON_OBJECT;
    struct muster_json_walk walk;

    for (bool has = is_good && muster_json_walk_first(&walk, metadata); has && is_good;
         has = muster_json_walk_next(&walk)) {
        const char *text = muster_json_text(walk.value);
        size_t digits = text != NULL ? strspn(text, "0123456789") : 0;

        is_good = text != NULL;
        if (strcmp(walk.name, "step") == 0 && digits > 0 && digits < 20 && text[digits] == '\0')
            *ret_step = strtoull(text, NULL, 10);
    }
    return is_good ? MUSTER_OK
                   : muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                      METADATA " must be an object of strings");
}

static enum muster_rc members_parse(const struct muster_json *root, struct safetensor *tensors,
                                    size_t *ret_count, uint64_t *ret_step,
                                    struct muster_error *ret_error)
{
    struct muster_json_walk walk;
    enum muster_rc rc = MUSTER_OK;
    size_t count = 0;

    for (bool has = muster_json_walk_first(&walk, root); has && rc == MUSTER_OK;
         has = muster_json_walk_next(&walk)) {
        if (strcmp(walk.name, METADATA) == 0)
            rc = metadata_parse(walk.value, ret_step, ret_error);
        else
            rc = tensor_parse(walk.name, walk.value, &tensors[count++], ret_error);
    }
    *ret_count = count;
    return rc;
}

/* Tensors without bytes have no place of their own: their names keep the order the same each time. */
static int tensors_compare(const void *left, const void *right)
{
    const struct safetensor *a = left, *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

static enum muster_rc places_check(const struct safetensor *tensors, size_t count,
                                   uint64_t data_bytes, struct muster_error *ret_error)
{
    uint64_t at = 0;

    for (size_t i = 0; i < count; i++) {
        if (tensors[i].begin != at)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "tensor %.80s begins at byte %" PRIu64
                                    ", and the values in front of it end at "
                                    "%" PRIu64 ": it %s",
                                    tensors[i].name, tensors[i].begin, at,
                                    tensors[i].begin < at ? "overlaps them" : "leaves bytes out");
        at = tensors[i].end;
    }
    if (at > data_bytes)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "it is cut short: its tensors have %" PRIu64 " bytes, and %" PRIu64
                                " follow its header",
                                at, data_bytes);
    if (at < data_bytes)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%" PRIu64 " bytes follow the last tensor", data_bytes - at);
    return MUSTER_OK;
}

static enum muster_rc checkpoint_make(struct muster_mem *mem, const char *folder,
                                      const struct safetensor *tensors, size_t count,
                                      struct muster_checkpoint **ret_checkpoint)
{
    struct muster_checkpoint_tensor *described =
        muster_mem_alloc_zero(mem, count + 1, sizeof(*described));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    for (size_t i = 0; i < count && described != NULL; i++)
        described[i] = (struct muster_checkpoint_tensor){
            .name = tensors[i].name, .dtype = tensors[i].dtype, .count = tensors[i].count};
    if (described != NULL)
        rc = muster_checkpoint_new(mem, folder, described, (uint32_t)count, 1, ret_checkpoint);
    muster_mem_free(mem, described);
    return rc;
}

enum muster_rc muster_safetensors_parse(struct muster_mem *mem, const char *folder,
                                        const struct muster_safetensors_header *header,
                                        struct muster_checkpoint **ret_checkpoint,
                                        struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    struct muster_error cause = {.rc = MUSTER_OK};
    struct safetensor *tensors;
    uint64_t step = 0;
    size_t count = 0;
    enum muster_rc rc = muster_json_parse_unique(header->bytes, header->size, &root, &cause);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "the header is not JSON: %s", cause.text);
    if (muster_json_kind(root) != MUSTER_JSON_OBJECT) {
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "the header must be an object, got %s", muster_json_kind_name(root));
        muster_json_free(root);
        return rc;
    }
    tensors = muster_mem_alloc_zero(mem, muster_json_count(root) + 1, sizeof(*tensors));
    rc = tensors == NULL ? MUSTER_RESOURCE_EXHAUSTED
                         : members_parse(root, tensors, &count, &step, ret_error);
    if (rc == MUSTER_OK) {
        qsort(tensors, count, sizeof(tensors[0]), tensors_compare);
        rc = places_check(tensors, count, header->data_bytes, ret_error);
    }
    if (rc == MUSTER_OK)
        rc = checkpoint_make(mem, folder, tensors, count, ret_checkpoint);
    if (rc == MUSTER_OK)
        (*ret_checkpoint)->name.step = step;
    muster_mem_free(mem, tensors);
    muster_json_free(root);
    return rc == MUSTER_RESOURCE_EXHAUSTED
               ? muster_error_set(ret_error, rc, "no memory for the header")
               : rc;
}

/* --- Formatting --- */

static bool number_append(struct muster_json *array, uint64_t value)
{
    return muster_json_append(array, muster_json_integer_new((int64_t)value));
}

/* Each set takes its value, also where it fails. */
static bool tensor_add(struct muster_json *header, const struct muster_checkpoint_tensor *tensor)
{
    struct muster_json *entry = muster_json_object_new(), *shape = muster_json_array_new(),
                       *offsets = muster_json_array_new();
    uint64_t end = tensor->offset + tensor->count * muster_dtype_bytes(tensor->dtype);
    bool is_good = number_append(shape, tensor->count);

    is_good &= number_append(offsets, tensor->offset);
    is_good &= number_append(offsets, end);
    is_good &= muster_json_set(entry, "dtype", muster_json_text_new(dtype_names[tensor->dtype]));
    is_good &= muster_json_set(entry, "shape", shape);
    is_good &= muster_json_set(entry, "data_offsets", offsets);
    is_good &= muster_json_set(header, tensor->name, entry);
    return is_good;
}

/* The names are those of members of an object, one of which is the metadata's. */
static enum muster_rc names_check(const struct muster_checkpoint *checkpoint,
                                  struct muster_error *ret_error)
{
    for (uint32_t i = 0; i < checkpoint->tensor_count; i++) {
        const char *name = checkpoint->tensors[i].name;
        struct muster_json *text = muster_json_text_new(name);
        bool is_good = text != NULL && strcmp(name, METADATA) != 0;

        muster_json_free(text);
        if (!is_good)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "tensor %.80s cannot have this name in a safetensors file: it "
                                    "must be UTF-8, and not " METADATA,
                                    name);
    }
    return MUSTER_OK;
}

static struct muster_json *header_make(const struct muster_checkpoint *checkpoint)
{
    struct muster_json *header = muster_json_object_new(), *metadata = muster_json_object_new();
    char step[32];
    bool is_good;

    (void)snprintf(step, sizeof(step), "%" PRIu64, checkpoint->name.step);
    is_good = muster_json_set(metadata, "step", muster_json_text_new(step));
    is_good &= muster_json_set(header, METADATA, metadata);
    for (uint32_t i = 0; i < checkpoint->tensor_count && is_good; i++)
        is_good = tensor_add(header, &checkpoint->tensors[i]);
    if (is_good)
        return header;
    muster_json_free(header);
    return NULL;
}

enum muster_rc muster_safetensors_format(const struct muster_checkpoint *checkpoint,
                                         char **ret_text, struct muster_error *ret_error)
{
    struct muster_mem *mem = checkpoint->mem;
    struct muster_json *header;
    char *text = NULL, *padded = NULL;
    enum muster_rc rc = names_check(checkpoint, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    header = header_make(checkpoint);
    if (header != NULL && muster_json_format(header, false, mem, &text) == MUSTER_OK)
        padded = muster_mem_alloc(mem, strlen(text) + 8);
    if (padded != NULL)
        (void)snprintf(padded, strlen(text) + 8, "%s%*s", text, (int)(-strlen(text) & 7), "");
    muster_mem_free(mem, text);
    muster_json_free(header);
    if (padded == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the header");
    *ret_text = padded;
    return MUSTER_OK;
}
