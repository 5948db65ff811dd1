/* A limit of file sizes (ulimit -f) as an error. Files, and memory that counts as one, end the program by SIGXFSZ
 * otherwise, whose handling is the program's. */
#ifndef MUSTER_RUNTIME_FILE_LIMIT_SYSTEM_H
#define MUSTER_RUNTIME_FILE_LIMIT_SYSTEM_H

#include <stdbool.h>

/** From here on this thread, and one that it makes, gets EFBIG instead of the signal. Returns what unblock takes. */
bool muster_file_limit_block(void);
/** Keeps errno. */
void muster_file_limit_unblock(bool was_blocked);

#endif
