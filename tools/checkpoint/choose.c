/* The checkpoint that is meant. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>

enum muster_rc checkpoint_choose(const char *folder, bool has_step, uint64_t step,
                                 struct muster_checkpoint_name *ret_name,
                                 struct muster_error *ret_error)
{
    struct muster_checkpoint_entry *entries = NULL;
    size_t count = 0;
    enum muster_rc rc =
        muster_checkpoint_list(muster_mem_system(), folder, &entries, &count, ret_error);
    bool is_found = false;

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count && !is_found; i++) {
        is_found = entries[i].has_manifest && (!has_step || entries[i].name.step == step);
        if (is_found)
            *ret_name = entries[i].name;
    }
    muster_mem_free(muster_mem_system(), entries);
    if (is_found)
        return MUSTER_OK;
    return has_step ? muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                       "%s has no checkpoint of step %" PRIu64 " with a manifest",
                                       folder, step)
                    : muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                       "%s has no checkpoint with a manifest", folder);
}
