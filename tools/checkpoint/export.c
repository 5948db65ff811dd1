/* muster checkpoint export: the state as a safetensors file: bytes of a header (8, little endian), the header as JSON,
 * the values. */
#include "checkpoint/checkpoint.h"

#include "common/command.h"

#include <muster/json.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_ANY UINT64_MAX

struct settings {
    uint64_t step;
};

static const struct muster_option rows[] = {
    {.name = "step",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, step),
     .value = "STEP",
     .max = UINT64_MAX - 1,
     .help = "The checkpoint of this step; the newest by default."},
};

const struct muster_options checkpoint_export_options = {
    .command = "muster checkpoint export",
    .usage = "FOLDER FILE.safetensors [--step STEP]",
    .about =
        "Write the tensors of a checkpoint to a safetensors file, each with one dimension. All "
        "chunks are checked; the file is there only when it is whole.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static const char *dtype_name(enum muster_dtype dtype)
{
    static const char *const names[] = {
        [MUSTER_F32] = "F32", [MUSTER_F64] = "F64", [MUSTER_I32] = "I32",   [MUSTER_I64] = "I64",
        [MUSTER_U8] = "U8",   [MUSTER_F16] = "F16", [MUSTER_BF16] = "BF16", [MUSTER_I8] = "I8",
        [MUSTER_U32] = "U32", [MUSTER_U64] = "U64", [MUSTER_BOOL] = "BOOL"};

    return names[dtype];
}

static bool number_append(struct muster_json *array, uint64_t value)
{
    return muster_json_append(array, muster_json_integer_new((int64_t)value));
}

static bool tensor_add(struct muster_json *header, const struct muster_checkpoint_tensor *tensor)
{
    struct muster_json *entry = muster_json_object_new(), *shape = muster_json_array_new(),
                       *offsets = muster_json_array_new();
    uint64_t end = tensor->offset + tensor->count * muster_dtype_bytes(tensor->dtype);

    return number_append(shape, tensor->count) && number_append(offsets, tensor->offset) &&
           number_append(offsets, end) &&
           muster_json_set(entry, "dtype", muster_json_text_new(dtype_name(tensor->dtype))) &&
           muster_json_set(entry, "shape", shape) &&
           muster_json_set(entry, "data_offsets", offsets) &&
           muster_json_set(header, tensor->name, entry);
}

/* Gives. Blanks fill it up to a multiple of 8. */
static char *header_make(const struct muster_checkpoint *checkpoint)
{
    struct muster_json *header = muster_json_object_new(), *metadata = muster_json_object_new();
    char step[32], *text = NULL, *padded = NULL;
    bool is_good;

    (void)snprintf(step, sizeof(step), "%" PRIu64, checkpoint->name.step);
    is_good = muster_json_set(metadata, "step", muster_json_text_new(step)) &&
              muster_json_set(header, "__metadata__", metadata);
    for (uint32_t i = 0; i < checkpoint->tensor_count && is_good; i++)
        is_good = tensor_add(header, &checkpoint->tensors[i]);
    if (is_good && muster_json_format(header, false, muster_mem_system(), &text) == MUSTER_OK &&
        asprintf(&padded, "%s%*s", text, (int)(-strlen(text) & 7), "") < 0)
        padded = NULL;
    muster_mem_free(muster_mem_system(), text);
    muster_json_free(header);
    return padded;
}

static enum muster_rc on_bytes(void *data, uint64_t offset, const void *bytes, size_t count)
{
    (void)offset;
    return fwrite(bytes, 1, count, data) == count ? MUSTER_OK : muster_rc_from_errno(errno);
}

static enum muster_rc file_fill(const struct muster_checkpoint *checkpoint, FILE *file,
                                struct muster_error *ret_error)
{
    char *header = header_make(checkpoint);
    uint64_t length = header != NULL ? strlen(header) : 0;
    enum muster_rc rc = MUSTER_OK;

    if (header == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    if (fwrite(&length, sizeof(length), 1, file) != 1 ||
        (length > 0 && fwrite(header, (size_t)length, 1, file) != 1))
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "cannot write");
    free(header);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_read(checkpoint, 0, checkpoint->state_bytes, on_bytes, file,
                                    ret_error);
    if (rc == MUSTER_OK && (fflush(file) != 0 || fsync(fileno(file)) != 0))
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "cannot write");
    return rc;
}

static enum muster_rc file_write(const struct muster_checkpoint *checkpoint, const char *path,
                                 struct muster_error *ret_error)
{
    char *part = NULL;
    FILE *file = asprintf(&part, "%s.part", path) < 0 ? NULL : fopen(part, "we");
    enum muster_rc rc;

    if (file == NULL) {
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "cannot write %s",
                                  path);
        free(part);
        return rc;
    }
    rc = file_fill(checkpoint, file, ret_error);
    if (fclose(file) != 0 && rc == MUSTER_OK)
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "cannot write");
    if (rc == MUSTER_OK && rename(part, path) != 0)
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "cannot write");
    if (rc != MUSTER_OK)
        (void)unlink(part);
    free(part);
    return rc;
}

int checkpoint_export(int argc, char **argv)
{
    struct settings settings = {.step = STEP_ANY};
    struct muster_checkpoint *checkpoint = NULL;
    struct muster_checkpoint_name name;
    struct muster_error error;
    int rest = argc, code;
    enum muster_rc rc;

    if (!command_parse(&checkpoint_export_options, argc, argv, &settings, &rest, &code))
        return code;
    if (rest + 2 != argc)
        return command_refuse("muster checkpoint export",
                              "a folder and a file must be given, got %d words", argc - rest);
    rc = checkpoint_choose(argv[rest], settings.step != STEP_ANY, settings.step, &name, &error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_open(muster_mem_system(), argv[rest], &name, &checkpoint, &error);
    if (rc == MUSTER_OK)
        rc = file_write(checkpoint, argv[rest + 1], &error);
    muster_checkpoint_close(checkpoint);
    return rc == MUSTER_OK ? EXIT_OK : command_fail("checkpoint export", &error);
}
