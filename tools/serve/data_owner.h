/* The process that has a data file open. */
#ifndef MUSTER_TOOLS_DATA_OWNER_H
#define MUSTER_TOOLS_DATA_OWNER_H

#include <muster/status.h>

/** OK: nobody, or it cannot be known. A process that is just ending is waited for, up to 3 s; of one that lives
 * the error tells number and command line. Errors: UNAVAILABLE. */
enum muster_rc data_owner_check(const char *path, struct muster_error *ret_error);

#endif
