/* The states of a cut, and its end. */
#include "params/server/state/cut_internal.h"

#include <string.h>

#include <muster/hash.h>

#include "params/server/core/answer.h"
#include "runtime/system/aside_system.h"
#include "params/store/freeze.h"

#define TURN_BLOCKS 2u /* of copies that are freed in a turn */

#define FROM(state) (1u << MUSTER_PARAMS_CUT_##state)

/* The states from which each state is reached. */
static const uint8_t moves[] = {
    [MUSTER_PARAMS_CUT_NONE] = FROM(MARKING) | FROM(FROZEN) | FROM(SAVING),
    [MUSTER_PARAMS_CUT_MARKING] = FROM(NONE),
    [MUSTER_PARAMS_CUT_FROZEN] = FROM(MARKING),
    [MUSTER_PARAMS_CUT_SAVING] = FROM(FROZEN),
};

void muster_params_cut_move(struct muster_params_server_cut *cut,
                            enum muster_params_cut_state state)
{
    MUSTER_ASSERT((moves[state] & 1u << cut->state) != 0);
    cut->state = state;
}

void muster_params_cut_check_answer(struct muster_params_client *client, bool is_sent)
{
    if (is_sent)
        return;
    muster_params_answer_lose(client);
}

static void asker_refuse(struct muster_params_server_cut *cut, const struct muster_error *error)
{
    struct muster_params_client *asker = cut->asker;

    cut->asker = NULL;
    if (asker != NULL)
        muster_params_cut_check_answer(asker, muster_params_refuse(asker, &cut->request, error));
}

void muster_params_cut_release_marks(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node) {
        client->is_awaited = false;
        if (!client->is_marked)
            continue;
        client->is_marked = false;
        if (client->early.type == 0)
            muster_peer_link_resume(client->link);
    }
}

void muster_params_cut_saving_free(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);

    muster_aside_close(cut->aside);
    cut->aside = NULL;
    if (cut->saving != NULL) {
        muster_params_snapshot_packing_fini(&cut->saving->packing);
        muster_mem_free(server->env->mem, cut->saving->kept);
    }
    muster_mem_free(server->env->mem, cut->saving);
    muster_mem_free(server->env->mem, cut->entries);
    cut->saving = NULL;
    cut->entries = NULL;
}

void muster_params_cut_drop_copies(struct muster_params_server_cut *cut)
{
    struct muster_params_server *server = muster_params_cut_server(cut);

    (void)muster_params_freeze_shrink(cut->copies, UINT32_MAX); /* of a cut that has just ended */
    cut->copies = muster_params_freeze_take(server->region);
    muster_task_post(&cut->drop, server->env->loop);
}

void muster_params_cut_on_drop(struct muster_task *task)
{
    struct muster_params_server_cut *cut = task->data;

    if (muster_params_freeze_shrink(cut->copies, TURN_BLOCKS))
        muster_task_post(&cut->drop, muster_params_cut_server(cut)->env->loop);
    else
        cut->copies = NULL;
}

void muster_params_cut_leave(struct muster_params_server_cut *cut, const struct muster_error *error)
{
    struct muster_params_server *server = muster_params_cut_server(cut);

    muster_timer_stop(&cut->deadline);
    muster_task_cancel(&cut->step);
    muster_params_cut_move(cut, MUSTER_PARAMS_CUT_NONE);
    cut->error = *error;
    muster_params_cut_saving_free(cut);
    muster_params_cut_drop_copies(cut);
    muster_params_cut_release_marks(server);
    asker_refuse(cut, error);
}

/* A cut that cannot be made now is begun again and again: the reason is told once. */
static void end_tell(struct muster_params_server_cut *cut, const struct muster_error *error)
{
    uint64_t reason = muster_hash64(error->text, strlen(error->text), 0);

    if (cut->told_reason == reason)
        return;
    cut->told_reason = reason;
    MUSTER_LOG(muster_params_cut_server(cut)->env, WARN, "params_cut_ended", "cut", cut->number,
               "reason", error->text);
}

void muster_params_cut_end(struct muster_params_server_cut *cut, const struct muster_error *error)
{
    end_tell(cut, error);
    muster_params_cut_leave(cut, error);
}

void muster_params_cut_give_up(struct muster_params_server_cut *cut, uint64_t number)
{
    struct muster_error error;

    if (cut->state == MUSTER_PARAMS_CUT_NONE || cut->number != number || cut->asker != NULL)
        return;
    muster_error_set(&error, MUSTER_CANCELLED, "its client has given it up");
    muster_params_cut_leave(cut, &error);
}

bool muster_params_cut_is_begun_anew(const struct muster_params_client *asker,
                                     const struct muster_params_client *client)
{
    return asker->slot == client->slot && asker->generation <= client->generation;
}

void muster_params_cut_set_anew(struct muster_error *ret_error)
{
    muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                     "the client of this cut has lost its connection, or has begun the cut anew");
}
