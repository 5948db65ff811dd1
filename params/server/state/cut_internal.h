/* Between the files of a cut, lowest first: cut_end.c ends it, cut_save.c writes its files, cut.c has the marks of
 * clients. */
#ifndef MUSTER_PARAMS_SERVER_CUT_INTERNAL_H
#define MUSTER_PARAMS_SERVER_CUT_INTERNAL_H

#include "params/server/core/server_internal.h"
#include "params/snapshot/snapshot.h"

/* The work of the aside thread: files of an earlier cut that are looked for, a shard's file on its way to the disk,
 * then the names in the folder. The loop makes no call of a file system: it would wait for the disk. */
struct muster_params_saving {
    struct muster_params_snapshot snapshot;
    struct muster_params_snapshot_packing packing;
    bool is_packing;
    struct muster_params_saved_shard
        *kept; /* as cut->kept at first; cut 0: the file is not there */
    char path[MUSTER_PARAMS_SNAPSHOT_PATH_BYTES];
};

static inline struct muster_params_server *muster_params_cut_server(
    struct muster_params_server_cut *cut)
{
    return MUSTER_CONTAINER_OF(cut, struct muster_params_server, cut);
}

/* --- cut_end.c --- */

/** The only way to another state. */
void muster_params_cut_move(struct muster_params_server_cut *cut,
                            enum muster_params_cut_state state);
/** End the cut without success: pushes go on as if nobody had asked for it. */
void muster_params_cut_end(struct muster_params_server_cut *cut, const struct muster_error *error);
/** The same where nobody misses this server in the cut: it is not logged. */
void muster_params_cut_leave(struct muster_params_server_cut *cut,
                             const struct muster_error *error);
/** Its client says that the cut of this number is over. One that has asked this server for it gets its answer. */
void muster_params_cut_give_up(struct muster_params_server_cut *cut, uint64_t number);
/** Whether client is the asker's source, in the same process or a later one. That source begins its cut anew: the loss
 * of the link over which it asked before may not have been noticed yet. */
bool muster_params_cut_is_begun_anew(const struct muster_params_client *asker,
                                     const struct muster_params_client *client);
/** The asker's error then. */
void muster_params_cut_set_anew(struct muster_error *ret_error);
/** Clients that have marked are read again. */
void muster_params_cut_release_marks(struct muster_params_server *server);
/** A client that cannot be answered is closed by the door in its next turn. */
void muster_params_cut_check_answer(struct muster_params_client *client, bool is_sent);
void muster_params_cut_saving_free(struct muster_params_server_cut *cut);
/** The copies of rows go by and by. */
void muster_params_cut_drop_copies(struct muster_params_server_cut *cut);
void muster_params_cut_on_drop(struct muster_task *task); /* for cut->drop */

/* --- cut_save.c --- */

/** Save the shards of a cut that is frozen, and answer its asker. */
void muster_params_cut_save(struct muster_params_server_cut *cut);
void muster_params_cut_on_step(struct muster_task *task); /* for cut->step */

#endif
