/* What an epoch's operations run over, and why, for people. */
#include "collective/group/shm/shm_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void muster_shm_say(struct muster_group *group, const char *wire, const char *fmt, ...)
{
    va_list args;

    group->wire_name = wire;
    va_start(args, fmt);
    vsnprintf(group->wire_reason, sizeof(group->wire_reason), fmt, args);
    va_end(args);
    MUSTER_LOG(group->env, INFO, "collective_wire", "view", group->view->epoch, "wire", wire, "why",
               group->wire_reason);
}

const char *muster_shm_ineligible_reason(const struct muster_view *view)
{
    const struct muster_member *members = view->members;

    if (view->member_count < 2)
        return "the only member";
    for (uint32_t rank = 0; rank < view->member_count; rank++)
        if (members[rank].host_key[0] == '\0')
            return "a member does not say on which host it is";
    for (uint32_t rank = 1; rank < view->member_count; rank++)
        if (strcmp(members[rank].host_key, members[0].host_key) != 0)
            return "members on several hosts";
    return view->member_count > MUSTER_SHM_MEMBERS_MAX ? "too many members for boards" : NULL;
}

const char *muster_shm_refusal_text(uint32_t refusal)
{
    static const char *const texts[] = {
        [MUSTER_SHM_REFUSES] = "uses no board",
        [MUSTER_SHM_REFUSES_BY_CHOICE] = "has MUSTER_WIRE=tcp",
        [MUSTER_SHM_HAS_NO_BOARD] = "has no board",
        [MUSTER_SHM_REACHES_NO_PEER] = "cannot connect to a board",
    };

    return refusal < sizeof(texts) / sizeof(texts[0]) ? texts[refusal] : texts[0];
}

const char *muster_shm_input_name(const struct muster_run *run)
{
    const struct muster_shm_run *shm = run->executor;

    if (!shm->is_announced)
        return "none";
    switch ((enum muster_shm_input)shm->entry->input) {
    case SHM_INPUT_BOARD:
        return "slot";
    case SHM_INPUT_SHARE:
        return shm->stage.at != NULL ? "staged" : "mapped";
    case SHM_INPUT_NONE:
        break;
    }
    return "none";
}

const char *muster_group_wire(const struct muster_group *group)
{
    return group->wire_name != NULL ? group->wire_name : "";
}

const char *muster_group_wire_reason(const struct muster_group *group)
{
    return group->wire_reason;
}

const char *muster_group_memory_reading(const struct muster_group *group)
{
    const struct muster_shm *shm = group->shm;

    if (shm == NULL || !shm->is_used)
        return "";
    for (uint32_t rank = 0; rank < shm->n; rank++)
        if (shm->peers[rank] != NULL && !shm->peers[rank]->can_read_memory)
            return shm->peers[rank]->read_why.text;
    return "possible";
}
