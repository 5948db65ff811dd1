/* muster checkpoint list, verify, show. */
#include "checkpoint/checkpoint.h"

#include "common/command.h"
#include "common/output.h"

#include <muster/json.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct settings {
    bool is_json;
    uint64_t step; /* STEP_ANY: the newest */
};
#define STEP_ANY UINT64_MAX

#define JSON_ROW                                                                                   \
    {                                                                                              \
        .name = "json", .kind = MUSTER_OPTION_FLAG, .offset = offsetof(struct settings, is_json),  \
        .help = "One JSON object per line."                                                        \
    }
#define STEP_ROW(text)                                                                             \
    {                                                                                              \
        .name = "step", .kind = MUSTER_OPTION_NUMBER, .offset = offsetof(struct settings, step),   \
        .value = "STEP", .max = UINT64_MAX - 1, .help = (text)                                     \
    }

static const struct muster_option list_rows[] = {JSON_ROW};
static const struct muster_option verify_rows[] = {
    JSON_ROW, STEP_ROW("Check the checkpoint of this step alone; all by default.")};
static const struct muster_option show_rows[] = {
    JSON_ROW, STEP_ROW("Show the checkpoint of this step; the newest by default.")};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

const struct muster_options checkpoint_list_options = {
    .command = "muster checkpoint list",
    .usage = "FOLDER [--json]",
    .about = "Show the checkpoints of a folder, the newest first. Nothing but names and sizes is "
             "looked at.",
    .rows = list_rows,
    .row_count = COUNT_OF(list_rows),
};
const struct muster_options checkpoint_verify_options = {
    .command = "muster checkpoint verify",
    .usage = "FOLDER [--step STEP] [--json]",
    .about =
        "Read checkpoints and check each chunk against its hash. Exit code 3 when one is "
        "damaged or half-written, or none is whole. Those that a running job writes or deletes "
        "meanwhile do not count.",
    .rows = verify_rows,
    .row_count = COUNT_OF(verify_rows),
};
const struct muster_options checkpoint_show_options = {
    .command = "muster checkpoint show",
    .usage = "FOLDER [--step STEP] [--json]",
    .about = "Show what a manifest says: tensors and shards. The shards are not read.",
    .rows = show_rows,
    .row_count = COUNT_OF(show_rows),
};

/* One folder, and options. */
static bool words_parse(const struct muster_options *options, int argc, char **argv,
                        struct settings *settings, const char **ret_folder, int *ret_exit)
{
    int rest = argc;

    *settings = (struct settings){.step = STEP_ANY};
    if (!command_parse(options, argc, argv, settings, &rest, ret_exit))
        return false;
    if (rest + 1 != argc) {
        *ret_exit =
            command_refuse(options->command, "one folder must be given, got %d", argc - rest);
        return false;
    }
    *ret_folder = argv[rest];
    return true;
}

/* Takes root. */
static void json_print(struct muster_json *root)
{
    char *text = NULL;

    if (root == NULL || muster_json_format(root, false, muster_mem_system(), &text) != MUSTER_OK)
        output_no_memory();
    puts(text);
    muster_mem_free(muster_mem_system(), text);
    muster_json_free(root);
}

static bool number_set(struct muster_json *object, const char *name, uint64_t value)
{
    return muster_json_set(object, name, muster_json_integer_new((int64_t)value));
}

static struct muster_json *name_json(const struct muster_checkpoint_name *name)
{
    char text[MUSTER_CHECKPOINT_NAME_BYTES];
    struct muster_json *root = muster_json_object_new();

    if (!muster_json_set(root, "name",
                         muster_json_text_new(muster_checkpoint_name_format(name, text))) ||
        !number_set(root, "step", name->step))
        output_no_memory();
    return root;
}

/* --- list --- */

static void entry_print(const struct muster_checkpoint_entry *entry, bool is_json)
{
    bool is_complete = muster_checkpoint_entry_is_complete(entry);
    const char *state = is_complete           ? "complete"
                        : entry->has_manifest ? "shards missing"
                                              : "half-written";
    char text[MUSTER_CHECKPOINT_NAME_BYTES];
    struct muster_json *root;

    if (!is_json) {
        printf("step %-12" PRIu64 " %-14s %4u files %15" PRIu64 " bytes  %s\n", entry->name.step,
               state, entry->file_count, entry->bytes,
               muster_checkpoint_name_format(&entry->name, text));
        return;
    }
    root = name_json(&entry->name);
    if (!muster_json_set(root, "is_complete", muster_json_bool_new(is_complete)) ||
        !number_set(root, "files", entry->file_count) || !number_set(root, "bytes", entry->bytes))
        output_no_memory();
    json_print(root);
}

int checkpoint_list(int argc, char **argv)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct settings settings;
    struct muster_error error;
    const char *folder;
    size_t count = 0;
    int code;

    if (!words_parse(&checkpoint_list_options, argc, argv, &settings, &folder, &code))
        return code;
    if (muster_checkpoint_list(muster_mem_system(), folder, &entries, &count, &error) != MUSTER_OK)
        return command_fail("checkpoint list", &error);
    for (size_t i = 0; i < count; i++)
        entry_print(&entries[i], settings.is_json);
    if (count == 0 && !settings.is_json)
        printf("no checkpoints in %s\n", folder);
    muster_mem_free(muster_mem_system(), entries);
    return output_flush() ? EXIT_OK : EXIT_OTHER;
}

/* --- verify --- */

/* One that had no manifest when it was listed may be whole by now. */
static enum muster_rc entry_check(const char *folder, const struct muster_checkpoint_entry *entry,
                                  struct muster_error *ret_error)
{
    struct muster_checkpoint *checkpoint = NULL;
    enum muster_rc rc =
        muster_checkpoint_open(muster_mem_system(), folder, &entry->name, &checkpoint, ret_error);

    if (rc == MUSTER_NOT_FOUND && !entry->has_manifest)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "half-written: it has no manifest");
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_verify(checkpoint, ret_error);
    muster_checkpoint_close(checkpoint);
    return rc;
}

/* The job that has the folder writes the checkpoint, or has deleted it since it was listed. Sets the text. */
static bool is_passing(const char *folder, const struct muster_checkpoint_entry *entry,
                       struct muster_error *error)
{
    struct muster_checkpoint *checkpoint = NULL;
    char job[MUSTER_JOB_NAME_BYTES];
    struct muster_error again;
    enum muster_rc rc;

    if (!muster_checkpoint_is_in_use(folder, job))
        return false;
    rc = muster_checkpoint_open(muster_mem_system(), folder, &entry->name, &checkpoint, &again);
    muster_checkpoint_close(checkpoint);
    if (rc != MUSTER_NOT_FOUND)
        return false;
    (void)muster_error_set(error, MUSTER_UNAVAILABLE,
                           entry->has_manifest
                               ? "job %s, which runs, has deleted it meanwhile"
                               : "half-written: job %s, which runs, writes it, or deletes it later",
                           job);
    return true;
}

enum verdict { VERDICT_WHOLE, VERDICT_PASSING, VERDICT_BAD };

static void verdict_print(const struct muster_checkpoint_entry *entry, enum verdict verdict,
                          const struct muster_error *error, bool is_json)
{
    bool is_whole = verdict == VERDICT_WHOLE;
    char text[MUSTER_CHECKPOINT_NAME_BYTES];
    struct muster_json *root;

    if (!is_json) {
        printf("%s %s\n", muster_checkpoint_name_format(&entry->name, text),
               is_whole ? "whole" : error->text);
        return;
    }
    root = name_json(&entry->name);
    if (!muster_json_set(root, "is_whole",
                         verdict == VERDICT_PASSING ? muster_json_null_new()
                                                    : muster_json_bool_new(is_whole)) ||
        !muster_json_set(root, "error", muster_json_text_new(is_whole ? NULL : error->text)))
        output_no_memory();
    json_print(root);
}

/* How many there are of each verdict. */
static void entries_verify(const char *folder, const struct muster_checkpoint_entry *entries,
                           size_t count, const struct settings *settings, size_t ret_counts[3])
{
    for (size_t i = 0; i < count; i++) {
        struct muster_error error = {.text = ""};
        enum verdict verdict = VERDICT_BAD;

        if (settings->step != STEP_ANY && entries[i].name.step != settings->step)
            continue;
        if (entry_check(folder, &entries[i], &error) == MUSTER_OK)
            verdict = VERDICT_WHOLE;
        else if (is_passing(folder, &entries[i], &error))
            verdict = VERDICT_PASSING;
        verdict_print(&entries[i], verdict, &error, settings->is_json);
        ret_counts[verdict]++;
    }
}

int checkpoint_verify(int argc, char **argv)
{
    struct muster_checkpoint_entry *entries = NULL;
    size_t count = 0, counts[3] = {0};
    struct settings settings;
    struct muster_error error;
    const char *folder;
    int code;

    if (!words_parse(&checkpoint_verify_options, argc, argv, &settings, &folder, &code))
        return code;
    if (muster_checkpoint_list(muster_mem_system(), folder, &entries, &count, &error) != MUSTER_OK)
        return command_fail("checkpoint verify", &error);
    entries_verify(folder, entries, count, &settings, counts);
    muster_mem_free(muster_mem_system(), entries);
    if (counts[VERDICT_WHOLE] + counts[VERDICT_PASSING] + counts[VERDICT_BAD] == 0) {
        (void)muster_error_set(
            &error, MUSTER_NOT_FOUND,
            "%s has no such checkpoint; 'muster checkpoint list %s' shows what it has", folder,
            folder);
        return command_fail("checkpoint verify", &error);
    }
    if (!output_flush())
        return EXIT_OTHER;
    return counts[VERDICT_WHOLE] > 0 && counts[VERDICT_BAD] == 0 ? EXIT_OK : EXIT_BAD_INPUT;
}

/* --- show --- */

static void checkpoint_print(const struct muster_checkpoint *checkpoint)
{
    time_t seconds = (time_t)(checkpoint->saved_wall_ns / 1000000000);
    char text[MUSTER_CHECKPOINT_NAME_BYTES], hash[MUSTER_HASH128_TEXT_BYTES], at[32] = "";
    struct tm when;

    if (gmtime_r(&seconds, &when) != NULL)
        (void)strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ", &when);
    printf("%s: step %" PRIu64 ", begun %s, %" PRIu64 " bytes, %u tensors, %u shards\n",
           muster_checkpoint_name_format(&checkpoint->name, text), checkpoint->name.step, at,
           checkpoint->state_bytes, checkpoint->tensor_count, checkpoint->shard_count);
    for (uint32_t i = 0; i < checkpoint->tensor_count; i++)
        printf("tensor %-4s x %-12" PRIu64 " at %-14" PRIu64 " %s\n",
               muster_dtype_name(checkpoint->tensors[i].dtype), checkpoint->tensors[i].count,
               checkpoint->tensors[i].offset, checkpoint->tensors[i].name);
    for (uint32_t i = 0; i < checkpoint->shard_count; i++)
        printf("shard %-5u %15" PRIu64 " bytes at %-14" PRIu64 " %s\n", i,
               checkpoint->shards[i].bytes, checkpoint->shards[i].offset,
               muster_hash128_format(checkpoint->shards[i].hash, hash));
}

static void checkpoint_print_json(const struct muster_checkpoint *checkpoint)
{
    struct muster_json *root = name_json(&checkpoint->name);
    struct muster_json *tensors = muster_json_array_new(), *shards = muster_json_array_new();
    bool is_good = number_set(root, "saved_wall_ns", checkpoint->saved_wall_ns) &&
                   number_set(root, "state_bytes", checkpoint->state_bytes);

    for (uint32_t i = 0; i < checkpoint->tensor_count; i++) {
        const struct muster_checkpoint_tensor *from = &checkpoint->tensors[i];
        struct muster_json *tensor = muster_json_object_new();

        is_good &= muster_json_set(tensor, "name", muster_json_text_new(from->name)) &&
                   muster_json_set(tensor, "dtype",
                                   muster_json_text_new(muster_dtype_name(from->dtype))) &&
                   number_set(tensor, "count", from->count) &&
                   number_set(tensor, "offset", from->offset) &&
                   muster_json_append(tensors, tensor);
    }
    for (uint32_t i = 0; i < checkpoint->shard_count; i++) {
        const struct muster_checkpoint_shard *from = &checkpoint->shards[i];
        struct muster_json *shard = muster_json_object_new();
        char hash[MUSTER_HASH128_TEXT_BYTES];

        is_good &= number_set(shard, "offset", from->offset) &&
                   number_set(shard, "bytes", from->bytes) &&
                   muster_json_set(shard, "hash",
                                   muster_json_text_new(muster_hash128_format(from->hash, hash))) &&
                   muster_json_append(shards, shard);
    }
    is_good = is_good && muster_json_set(root, "tensors", tensors) &&
              muster_json_set(root, "shards", shards);
    json_print(is_good ? root : NULL);
}

int checkpoint_show(int argc, char **argv)
{
    struct muster_checkpoint *checkpoint = NULL;
    struct muster_checkpoint_name name;
    struct settings settings;
    struct muster_error error;
    const char *folder;
    enum muster_rc rc;
    int code;

    if (!words_parse(&checkpoint_show_options, argc, argv, &settings, &folder, &code))
        return code;
    rc = checkpoint_choose(folder, settings.step != STEP_ANY, settings.step, &name, &error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_open(muster_mem_system(), folder, &name, &checkpoint, &error);
    if (rc != MUSTER_OK)
        return command_fail("checkpoint show", &error);
    if (settings.is_json)
        checkpoint_print_json(checkpoint);
    else
        checkpoint_print(checkpoint);
    muster_checkpoint_close(checkpoint);
    return output_flush() ? EXIT_OK : EXIT_OTHER;
}
