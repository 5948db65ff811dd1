/* A listening socket that outlives its process: a child keeps it, and hands it to the successor.
 * Meanwhile connections wait in the kernel's queue instead of being refused. */
#ifndef MUSTER_TOOLS_HOLDER_H
#define MUSTER_TOOLS_HOLDER_H

#include <muster/status.h>

/** The name by which both generations find the holder: the file that they share. */
struct holder_name {
    unsigned long long device, inode;
};

/* * The name of a file, which is created empty if it does not exist. Errors: PERMISSION_DENIED,
 * NOT_FOUND (its folder). */
enum muster_rc holder_name_of(const char *path, struct holder_name *ret_name,
                              struct muster_error *ret_error);
/* * The socket that the holder of a dead predecessor keeps, or -1; waits up to 3 s for one that is
 * dying. Gives. */
int holder_take(const struct holder_name *name);
/* * Let a child keep fd from now on; it gives up keep_s seconds after the death of this process.
 * -1: no child. Gives a descriptor, for holder_dismiss, which ends the child; when it closes
 * without, the child waits for a successor. */
int holder_start(const struct holder_name *name, int fd, unsigned keep_s);
/** The socket is not wanted any more. */
void holder_dismiss(int holder);

#endif
