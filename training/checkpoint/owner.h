/* The owner of a folder of checkpoints: a file whose name tells the job, and which its members hold while they live.
 * A member that finds the file sees the same folder as the one that has made it. All of these block. */
#ifndef MUSTER_TRAINING_CHECKPOINT_OWNER_H
#define MUSTER_TRAINING_CHECKPOINT_OWNER_H

#include <muster/base.h>
#include <muster/incarnation.h>
#include <muster/status.h>

/** This process's part. Zeros: it has none. */
struct muster_checkpoint_owner {
    uint64_t life; /* of the job: drawn when it begins; 0: none */
    int hold;      /* of the file */
};

/** Another one that was found. */
struct muster_checkpoint_other {
    char job[MUSTER_JOB_NAME_BYTES];
    /* UNAVAILABLE: it has the folder. Else it had, and has left its file, which is deleted. */
    bool is_alive;
};

/** The folder, which is made if it is not there, is that of this life of the job from now on. Errors: UNAVAILABLE
 * (a member of another job, or of another life, lives), those of the system. ret_other is written either way; job "":
 * there is none. */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_owner_take(
    struct muster_checkpoint_owner *owner, const char *folder, const char *job, uint64_t life,
    struct muster_checkpoint_other *ret_other);
/** Another member has taken it. Errors: NOT_FOUND (this one sees another folder). */
MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_owner_join(struct muster_checkpoint_owner *owner,
                                                              const char *folder, const char *job,
                                                              uint64_t life);
/** The file stays; without a part it does nothing. */
void muster_checkpoint_owner_leave(struct muster_checkpoint_owner *owner);

#endif
