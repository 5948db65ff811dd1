/* Writes the flight recorder of a member to a file: when the member says so, and when a signal ends
 * the process. */
#ifndef MUSTER_RUNTIME_RECORDER_SYSTEM_H
#define MUSTER_RUNTIME_RECORDER_SYSTEM_H

#include <muster/trace.h>

struct muster_recorder;

#define MUSTER_RECORDER_FILES_MAX 64u /* kept in the folder that nobody has named */

/** Texts are borrowed until open returns. */
struct muster_recorder_options {
    struct muster_mem *mem;
    const struct muster_trace *trace; /* borrowed until close */
    const char *folder;               /* NULL: $TMPDIR/muster-UID, for which temporary stands */
    const char *temporary;            /* TMPDIR, or NULL: /tmp */
    const char *job, *task;           /* "worker:2" */
    const char *incarnation;          /* 32 hexadecimal digits */
    bool is_always;                   /* also SIGTERM and SIGINT dump */
    const int
        *report_fd; /* borrowed until close: where the launcher is told of each file; -1: nowhere */
};

/**
 * From now on a signal that ends the process with a core (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT)
 * writes the file first, where the program has no handler of its own. The file is
 * FOLDER/JOB-TASK-INCARNATION.trace.jsonl with the first 8 digits; the second recorder that a process
 * opens has "-2" after them, and so on.
 *
 * Owns:    gives.
 * Errors:  RESOURCE_EXHAUSTED, INVALID_ARGUMENT (the path is too long).
 * Thread:  any; calls on one recorder one at a time.
 */
MUSTER_MUST_CHECK enum muster_rc muster_recorder_open(const struct muster_recorder_options *options,
                                                      struct muster_recorder **ret_recorder);
/** The handlers of signals go with the last recorder. NULL is accepted. */
void muster_recorder_close(struct muster_recorder *recorder);

/** Told in the header of a file. */
void muster_recorder_set_rank(struct muster_recorder *recorder, uint32_t rank);

/** Write the file, in place of the one written before. error NULL: the error of the dump before, or
 * none. UNAVAILABLE and others: errno tells; PERMISSION_DENIED: the folder is another user's. */
MUSTER_MUST_CHECK enum muster_rc muster_recorder_dump(struct muster_recorder *recorder,
                                                      const char *error);
/** The path of the file, written or not. Lives as long as the recorder. */
const char *muster_recorder_path(const struct muster_recorder *recorder);

#endif
