/* Files used-by-JOB-LIFE in a folder of checkpoints. */
#include "training/checkpoint/owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/checkpoint.h>

#include "runtime/system/folder_system.h"
#include "training/checkpoint/names.h"

#define PREFIX     "used-by-"
#define LIFE_CHARS 17 /* with the '-' before it */

static bool path_format(char path[MUSTER_CHECKPOINT_PATH_BYTES], const char *folder,
                        const char *job, uint64_t life)
{
    return snprintf(path, MUSTER_CHECKPOINT_PATH_BYTES, "%s/" PREFIX "%s-%016" PRIx64, folder, job,
                    life) < (int)MUSTER_CHECKPOINT_PATH_BYTES;
}

/* False: it is not the name of such a file. */
static bool name_parse(const char *text, char ret_job[MUSTER_JOB_NAME_BYTES], uint64_t *ret_life)
{
    size_t length = strlen(text), prefix = strlen(PREFIX);
    char *end;

    if (length < prefix + LIFE_CHARS || length - prefix - LIFE_CHARS >= MUSTER_JOB_NAME_BYTES ||
        strncmp(text, PREFIX, prefix) != 0 || text[length - LIFE_CHARS] != '-')
        return false;
    *ret_life = strtoull(text + length - LIFE_CHARS + 1, &end, 16);
    if (*end != '\0')
        return false;
    (void)snprintf(ret_job, MUSTER_JOB_NAME_BYTES, "%.*s", (int)(length - prefix - LIFE_CHARS),
                   text + prefix);
    return true;
}

struct others_look {
    const char *folder;
    uint64_t life; /* not another's */
    bool must_delete;
    struct muster_checkpoint_other other; /* the living one, or the last */
};

static enum muster_rc on_name(void *data, const char *text)
{
    struct others_look *look = data;
    char path[MUSTER_CHECKPOINT_PATH_BYTES], job[MUSTER_JOB_NAME_BYTES];
    uint64_t life;

    if (look->other.is_alive || !name_parse(text, job, &life) || life == look->life ||
        !path_format(path, look->folder, job, life))
        return MUSTER_OK;
    (void)strcpy(look->other.job, job);
    look->other.is_alive = muster_file_is_held(path);
    if (look->must_delete && !look->other.is_alive)
        (void)!muster_file_remove(path); /* one that stays tells the same again */
    return MUSTER_OK;
}

/* Two that begin at the same time may both withdraw; each looks again before it has the folder, so never both have. */
enum muster_rc muster_checkpoint_owner_take(struct muster_checkpoint_owner *owner,
                                            const char *folder, const char *job, uint64_t life,
                                            struct muster_checkpoint_other *ret_other)
{
    struct others_look look = {.folder = folder, .life = life};
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    enum muster_rc rc = muster_folder_make(folder);
    int sys;

    *ret_other = look.other;
    if (rc != MUSTER_OK)
        return rc;
    if (!path_format(path, folder, job, life))
        return MUSTER_INVALID_ARGUMENT;
    rc = muster_folder_list(folder, on_name, &look);
    *ret_other = look.other;
    if (rc != MUSTER_OK || look.other.is_alive)
        return rc != MUSTER_OK ? rc : MUSTER_UNAVAILABLE;
    rc = muster_file_hold(path, true, &owner->hold);
    if (rc != MUSTER_OK)
        return rc;
    owner->life = life;
    look.must_delete = true;
    rc = muster_folder_list(folder, on_name, &look);
    *ret_other = look.other;
    if (rc == MUSTER_OK && !look.other.is_alive)
        return MUSTER_OK;
    sys = errno;
    muster_checkpoint_owner_leave(owner);
    (void)!muster_file_remove(path);
    errno = sys;
    return rc != MUSTER_OK ? rc : MUSTER_UNAVAILABLE;
}

enum muster_rc muster_checkpoint_owner_join(struct muster_checkpoint_owner *owner,
                                            const char *folder, const char *job, uint64_t life)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    enum muster_rc rc;

    if (owner->life == life)
        return MUSTER_OK;
    muster_checkpoint_owner_leave(owner);
    if (!path_format(path, folder, job, life))
        return MUSTER_OK; /* the saving tells it */
    rc = muster_file_hold(path, false, &owner->hold);
    if (rc == MUSTER_OK)
        owner->life = life;
    return rc == MUSTER_NOT_FOUND ? rc : MUSTER_OK; /* it is there, if not for this user */
}

void muster_checkpoint_owner_leave(struct muster_checkpoint_owner *owner)
{
    if (owner->life != 0)
        muster_file_release(owner->hold);
    owner->life = 0;
}

bool muster_checkpoint_is_in_use(const char *folder, char ret_job[MUSTER_JOB_NAME_BYTES])
{
    struct others_look look = {.folder = folder};

    if (muster_folder_list(folder, on_name, &look) != MUSTER_OK || !look.other.is_alive)
        return false;
    (void)strcpy(ret_job, look.other.job);
    return true;
}
