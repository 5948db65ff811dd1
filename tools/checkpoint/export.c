/* muster checkpoint export, import: the state as a safetensors file, and back. */
#include "checkpoint/checkpoint.h"

#include "common/command.h"
#include "common/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define STEP_ANY UINT64_MAX

struct settings {
    uint64_t step;
    bool is_forced;
};

static const struct muster_option export_rows[] = {
    {.name = "step",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, step),
     .value = "STEP",
     .max = UINT64_MAX - 1,
     .help = "The checkpoint of this step; the newest by default."},
    {.name = "force",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_forced),
     .help = "Replace the file if it is there already."},
};
static const struct muster_option import_rows[] = {
    {.name = "step",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, step),
     .value = "STEP",
     .min = 1,
     .max = UINT64_MAX - 1,
     .help = "Step of the checkpoint; a job begins with the step after it. By default the step in "
             "the metadata of the file, which exported files have."},
};

const struct muster_options checkpoint_export_options = {
    .command = "muster checkpoint export",
    .usage = "FOLDER FILE.safetensors [--step STEP] [--force]",
    .about =
        "Write the tensors of a checkpoint to a safetensors file, each with one dimension. All "
        "chunks are checked; the file is there only when it is whole. A file that is there already "
        "is left as it is, and the exit code is 4.",
    .rows = export_rows,
    .row_count = sizeof(export_rows) / sizeof(export_rows[0]),
};
const struct muster_options checkpoint_import_options = {
    .command = "muster checkpoint import",
    .usage = "FILE.safetensors FOLDER [--step STEP]",
    .about = "Make a checkpoint of a safetensors file, from which a job begins that is started "
             "with --checkpoint-dir FOLDER. Tensors are told apart by name; their shapes are not "
             "kept. The checkpoint is there only when it is whole.",
    .rows = import_rows,
    .row_count = sizeof(import_rows) / sizeof(import_rows[0]),
};

static bool words_parse(const struct muster_options *options, int argc, char **argv,
                        struct settings *settings, char ***ret_words, int *ret_exit)
{
    int rest = argc;

    if (!command_parse(options, argc, argv, settings, &rest, ret_exit))
        return false;
    if (rest + 2 != argc) {
        *ret_exit = command_refuse(options->command,
                                   "a folder and a file must be given, got %d words", argc - rest);
        return false;
    }
    *ret_words = argv + rest;
    return true;
}

/* Links, devices and folders are refused by the export itself. */
static enum muster_rc file_check(const char *path, bool is_forced, struct muster_error *ret_error)
{
    struct stat is;

    if (is_forced || lstat(path, &is) != 0 || !S_ISREG(is.st_mode))
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                            "%.120s is there already; give another name, or --force to replace it",
                            path);
}

int checkpoint_export(int argc, char **argv)
{
    struct settings settings = {.step = STEP_ANY};
    struct muster_checkpoint *checkpoint = NULL;
    struct muster_checkpoint_name name;
    struct muster_error error;
    char **words;
    enum muster_rc rc;
    int code;

    if (!words_parse(&checkpoint_export_options, argc, argv, &settings, &words, &code))
        return code;
    rc = file_check(words[1], settings.is_forced, &error);
    if (rc == MUSTER_OK)
        rc = checkpoint_choose(words[0], settings.step != STEP_ANY, settings.step, &name, &error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_open(muster_mem_system(), words[0], &name, &checkpoint, &error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_export(checkpoint, words[1], &error);
    muster_checkpoint_close(checkpoint);
    return rc == MUSTER_OK ? EXIT_OK : command_fail("checkpoint export", &error);
}

int checkpoint_import(int argc, char **argv)
{
    char text[MUSTER_CHECKPOINT_NAME_BYTES];
    struct muster_checkpoint_name name;
    struct settings settings = {0};
    struct muster_error error;
    struct timespec now;
    char **words;
    int code;

    if (!words_parse(&checkpoint_import_options, argc, argv, &settings, &words, &code))
        return code;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (muster_checkpoint_import(
            muster_mem_system(),
            &(struct muster_checkpoint_import_options){
                .path = words[0],
                .folder = words[1],
                .step = settings.step,
                .saved_wall_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec},
            &name, &error) != MUSTER_OK)
        return command_fail("checkpoint import", &error);
    printf("%s\n", muster_checkpoint_name_format(&name, text));
    return output_flush() ? EXIT_OK : EXIT_OTHER;
}
