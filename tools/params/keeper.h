/* The keeper of a seat: a process that holds the memory and the listening socket, and starts the
 * processes that sit in it. One serves; a spare waits to go on in its place. */
#ifndef MUSTER_TOOLS_KEEPER_H
#define MUSTER_TOOLS_KEEPER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <muster/status.h>

/** Shared between the keeper and its children. */
struct keeper_board {
    /* Written by the child that has taken the seat, read by the keeper and by benchmarks: relaxed,
     * since nothing else depends on it. */
    _Atomic pid_t serving;
    _Atomic unsigned takes; /* how often the seat was taken */
    atomic_bool is_told;    /* a keeper of this seat has said the ready line */
    atomic_bool
        is_begun; /* what the seat was to begin with is there: later children go on from it */
    atomic_int
        failure; /* exit code of a child that cannot serve: the next one would fail, too; 0: none. A child that
                  * ends without it, after another one has served, is replaced like one that was killed */
};

struct keeper {
    /** The work of a child: waits for the seat, says so with keeper_taken, and serves until SIGTERM.
     * Returns its exit code. */
    int (*serve)(struct keeper *keeper);
    /** Called in the keeper before it replaces a child that was killed; NULL: nothing is to be done. False:
     * the keeper gives up. */
    bool (*renew)(struct keeper *keeper);
    /** Called in the keeper when a child has ended that is not of the seat; NULL: it takes no notice. */
    void (*on_other_ended)(struct keeper *keeper, pid_t pid, int status);
    void *data;
    const char *name; /* of the command, for people: "params serve" */
    bool has_spare;
    struct keeper_board *board;
    bool has_pipe;
    int lines[2]; /* a pipe: what children say when they are ready; the keeper says it once */
};

/** Memory for the board. Gives; keeper_fini. */
MUSTER_MUST_CHECK enum muster_rc keeper_init(struct keeper *keeper, struct muster_error *ret_error);
void keeper_fini(struct keeper *keeper);
/** Called by a child, which must have the seat: its standard output goes to the keeper from now on. */
void keeper_listen(struct keeper *keeper);
/** Called by a child whose ready line is out. */
void keeper_ready(void);
/** Called by a child once it has the seat. */
void keeper_taken(struct keeper *keeper);
/** Keep the seat until SIGTERM or SIGINT, or until its children fail. Returns the exit code: 0 when the
 * serving child has drained. The caller has no threads and no event loop. */
int keeper_run(struct keeper *keeper);

#endif
