/* The real board: a sealed memfd per process, passed over a unix socket of the host. */
#ifndef MUSTER_COLLECTIVE_BOARD_SYSTEM_H
#define MUSTER_COLLECTIVE_BOARD_SYSTEM_H

#include "collective/board/board.h"

#define MUSTER_BOARD_MEMORY_BYTES_DEFAULT ((size_t)8 << 20)

struct muster_board_options {
    struct muster_env *env;
    const char *job;                  /* peers of another job are refused; copied */
    const struct muster_member *self; /* incarnation, host_key, address; copied */
    size_t memory_bytes;              /* sparse; 0: 8 MiB */
};

/** Others of the host can connect from now on. What they may map: the board's memory, and every
 * tensor of muster_tensor_new on env. Errors: UNIMPLEMENTED (nothing can be shared here: an old
 * kernel, a sandbox, a simulated host), ALREADY_EXISTS (a board of that member is open),
 * RESOURCE_EXHAUSTED. Gives, muster_board_close before env. */
MUSTER_MUST_CHECK enum muster_rc muster_board_system_open(
    const struct muster_board_options *options, struct muster_board **ret_board,
    struct muster_error *ret_error);

/** MUSTER_WIRE is auto, tcp or unset; INVALID_ARGUMENT names it otherwise. For those who open what
 * reads it: muster_board_system_choose has nobody to tell. */
MUSTER_MUST_CHECK enum muster_rc muster_board_system_check_wire(struct muster_env *env,
                                                                struct muster_error *ret_error);

/** The board that a process should have; NULL when it can have none (logged), or when
 * MUSTER_WIRE=tcp says that all members use TCP. Gives. */
struct muster_board *muster_board_system_choose(const struct muster_board_options *options);

#endif
