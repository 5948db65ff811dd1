/* The names of a checkpoint's files. They sort by step. */
#include "training/checkpoint/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX     "checkpoint-"
#define PATH_BYTES MUSTER_CHECKPOINT_PATH_BYTES

const char *muster_checkpoint_name_format(const struct muster_checkpoint_name *name,
                                          char ret_text[MUSTER_CHECKPOINT_NAME_BYTES])
{
    (void)snprintf(ret_text, MUSTER_CHECKPOINT_NAME_BYTES, PREFIX "%012" PRIu64 "-%016" PRIx64,
                   name->step, name->id);
    return ret_text;
}

/* The name without what follows. NULL: it is not the name of a checkpoint. */
static const char *name_parse(const char *text, struct muster_checkpoint_name *ret_name)
{
    char again[MUSTER_CHECKPOINT_NAME_BYTES];
    char *end;

    if (strncmp(text, PREFIX, strlen(PREFIX)) != 0)
        return NULL;
    ret_name->step = strtoull(text + strlen(PREFIX), &end, 10);
    if (*end != '-')
        return NULL;
    ret_name->id = strtoull(end + 1, &end, 16);
    (void)muster_checkpoint_name_format(ret_name, again);
    return strncmp(text, again, strlen(again)) == 0 ? text + strlen(again) : NULL;
}

bool muster_checkpoint_file_parse(const char *text, struct muster_checkpoint_name *ret_name,
                                  enum muster_checkpoint_file *ret_file)
{
    const char *rest = name_parse(text, ret_name);
    size_t length = rest != NULL ? strlen(rest) : 0;

    if (length > 4 && strcmp(rest + length - 4, ".new") == 0)
        *ret_file = MUSTER_CHECKPOINT_PART;
    else if (length > 0 && strcmp(rest, ".manifest") == 0)
        *ret_file = MUSTER_CHECKPOINT_MANIFEST;
    else if (length > 0 && strncmp(rest, ".shard-", 7) == 0)
        *ret_file = MUSTER_CHECKPOINT_SHARD;
    else if (length > 0 && strncmp(rest, ".failed-", 8) == 0)
        *ret_file = MUSTER_CHECKPOINT_FAILED;
    else
        return false;
    return true;
}

bool muster_checkpoint_manifest_path(const char *folder, const struct muster_checkpoint_name *name,
                                     char ret_path[PATH_BYTES])
{
    char text[MUSTER_CHECKPOINT_NAME_BYTES];

    return snprintf(ret_path, PATH_BYTES, "%s/%s.manifest", folder,
                    muster_checkpoint_name_format(name, text)) < (int)PATH_BYTES;
}

bool muster_checkpoint_shard_path(const char *folder, const struct muster_checkpoint_name *name,
                                  uint32_t shard, uint32_t shard_count, char ret_path[PATH_BYTES])
{
    char text[MUSTER_CHECKPOINT_NAME_BYTES];

    return snprintf(ret_path, PATH_BYTES, "%s/%s.shard-%05u-of-%05u", folder,
                    muster_checkpoint_name_format(name, text), shard,
                    shard_count) < (int)PATH_BYTES;
}

bool muster_checkpoint_failed_path(const char *folder, const struct muster_checkpoint_name *name,
                                   uint32_t shard, char ret_path[PATH_BYTES])
{
    char text[MUSTER_CHECKPOINT_NAME_BYTES];

    return snprintf(ret_path, PATH_BYTES, "%s/%s.failed-%05u", folder,
                    muster_checkpoint_name_format(name, text), shard) < (int)PATH_BYTES;
}
