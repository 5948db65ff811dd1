/* Reading a peer's address space: process_vm_readv, where the system allows it. The handshake calls
 * muster_board_probe once per peer; from then on can_read_memory says whether reads work, and
 * read_why tells the user what forbids them. */
#include "collective/board/board_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define READ_BYTES_MAX ((size_t)256 << 10) /* a call; larger ones are no faster */
#define SCOPE_PATH     "/proc/sys/kernel/yama/ptrace_scope"

/* The value is an errno, 0 for success. A page that is not mapped in the middle of the range ends
 * the call early, so a short count is no error, but none at all is one: the caller would loop for
 * ever. */
static int read_once(pid_t pid, uint64_t at, void *ret_bytes, size_t bytes, size_t *ret_done)
{
    struct iovec local = {.iov_base = ret_bytes, .iov_len = bytes};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)at, .iov_len = bytes};
    ssize_t done = process_vm_readv(pid, &local, 1, &remote, 1, 0);

    if (done < 0)
        return errno;
    *ret_done = (size_t)done;
    return done == 0 && bytes > 0 ? EFAULT : 0;
}

static enum muster_rc rc_of(int sys)
{
    switch (sys) {
    case ESRCH:
        return MUSTER_UNAVAILABLE;
    case EFAULT:
        return MUSTER_INVALID_ARGUMENT;
    default:
        return muster_rc_from_errno(sys);
    }
}

/* Yama is a Linux security module that restricts ptrace, and process_vm_readv with it (ptrace(2)).
 * 0 means no restriction, also where the file is missing because the kernel has no Yama. */
static int ptrace_scope(const struct muster_env *env)
{
    char *text = NULL;
    size_t bytes;
    int scope = 0;

    if (muster_files_read(env->files, env->mem, SCOPE_PATH, 64, &text, &bytes) == MUSTER_OK)
        scope = atoi(text);
    muster_mem_free(env->mem, text);
    return scope;
}

static void explain_refusal(struct muster_board_peer_system *peer, int sys)
{
    struct muster_env *env = muster_board_system_of(peer->peer.board)->env;
    struct muster_error *why = &peer->peer.read_why;
    int scope = sys == EPERM ? ptrace_scope(env) : 0;

    if (scope > 0)
        muster_error_set_sys(why, rc_of(sys), sys,
                             "process_vm_readv is forbidden by Yama "
                             "(kernel.yama.ptrace_scope = %d)",
                             scope);
    else if (sys == EPERM)
        muster_error_set_sys(why, rc_of(sys), sys,
                             "process_vm_readv is forbidden: the peer is not dumpable or has more "
                             "rights, or a sandbox refuses");
    else if (sys == ENOSYS)
        muster_error_set_sys(why, MUSTER_UNIMPLEMENTED, sys,
                             "the kernel or a sandbox has no process_vm_readv");
    else
        muster_error_set_sys(why, rc_of(sys), sys, "process_vm_readv does not reach the peer");
}

static bool is_turned_off(const struct muster_env *env)
{
    const char *choice =
        env->vars != NULL ? muster_vars_get(env->vars, "MUSTER_READ_MEMORY") : NULL;

    return choice != NULL && strcmp(choice, "off") == 0;
}

/* A process id means another process when the two sides are in different PID namespaces, so success
 * alone proves nothing: the value at that address must be the random one of the HELLO. */
void muster_board_probe(struct muster_board_peer_system *peer, uint64_t at, uint64_t value)
{
    uint64_t found = 0;
    size_t done = 0;
    int sys;

    if (is_turned_off(muster_board_system_of(peer->peer.board)->env)) {
        muster_error_set(&peer->peer.read_why, MUSTER_PERMISSION_DENIED, "MUSTER_READ_MEMORY=off");
        return;
    }
    sys = read_once(peer->pid, at, &found, sizeof(found), &done);
    peer->peer.can_read_memory = sys == 0 && done == sizeof(found) && found == value;
    if (peer->peer.can_read_memory)
        return;
    if (sys != 0)
        explain_refusal(peer, sys);
    else
        muster_error_set(&peer->peer.read_why, MUSTER_FAILED_PRECONDITION,
                         "process_vm_readv reads another process than the peer: do both share one "
                         "process-id namespace?");
    MUSTER_LOG(muster_board_system_of(peer->peer.board)->env, DEBUG, "memory_not_readable", "pid",
               (long long)peer->pid, "reason", peer->peer.read_why.text);
}

static enum muster_rc read_all(int64_t pid, uint64_t at, void *ret_bytes, size_t bytes)
{
    uint8_t *to = ret_bytes;

    while (bytes > 0) {
        size_t part = bytes < READ_BYTES_MAX ? bytes : READ_BYTES_MAX;
        size_t done = 0;
        int sys = read_once((pid_t)pid, at, to, part, &done);

        if (sys != 0)
            return rc_of(sys);
        at += done;
        to += done;
        bytes -= done;
    }
    return MUSTER_OK;
}

enum muster_rc muster_board_system_read_memory(const struct muster_board_peer *base, uint64_t at,
                                               void *ret_bytes, size_t bytes)
{
    const struct muster_board_peer_system *peer = muster_board_peer_system_of(base);
    enum muster_rc rc;

    if (!base->can_read_memory)
        return MUSTER_PERMISSION_DENIED;
    rc = read_all(peer->pid, at, ret_bytes, bytes);
    if (rc != MUSTER_OK)
        return rc;
    /* The id of a process that died during the copy may have been given to another one, or its
     * pages were taken down meanwhile; the bytes count only if the peer is still alive after them.
     */
    return muster_board_is_dead(base) ? MUSTER_UNAVAILABLE : MUSTER_OK;
}

bool muster_board_system_reader_of(const struct muster_board_peer *base,
                                   struct muster_board_reader *ret_reader)
{
    if (!base->can_read_memory)
        return false;
    *ret_reader = (struct muster_board_reader){.read = read_all,
                                               .pid = muster_board_peer_system_of(base)->pid};
    return true;
}
