/* A program of the host, run for its output: small tools such as nvidia-smi. */
#ifndef MUSTER_COMMAND_H
#define MUSTER_COMMAND_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_command;
typedef void muster_command_fn(struct muster_command *command, enum muster_rc rc);

#define MUSTER_COMMAND_OUTPUT_BYTES_MAX 65536u

/** One run. Caller's memory. */
struct muster_command {
    void *data;
    const char *const
        *argv;            /* ends with NULL; argv[0] is looked for in PATH; borrowed until done */
    uint64_t deadline_ns; /* absolute loop time; then the program and its children are killed */
    /* valid in done */
    char *output; /* standard output and error together; with OK: gives, from the host's mem */
    size_t output_bytes; /* a NUL follows */
    int exit_status;     /* 128 + signal when a signal ended it */
    /* private */
    muster_command_fn *done;
    struct muster_host *host;
    void *impl;
};

/**
 * Run a program without standard input, and collect what it prints.
 *
 * Errors:  returned NOT_FOUND (no such program), PERMISSION_DENIED, UNIMPLEMENTED (this host runs
 *          nothing); by done RESOURCE_EXHAUSTED (more than MUSTER_COMMAND_OUTPUT_BYTES_MAX bytes),
 *          DEADLINE_EXCEEDED, CANCELLED. A program that fails is OK with its exit_status.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_command_start(struct muster_command *command,
                                                                 struct muster_host *host,
                                                                 muster_command_fn *done);
/** Kills the program; done comes when it is gone. */
MUSTER_API void muster_command_cancel(struct muster_command *command);

MUSTER_END

#endif
