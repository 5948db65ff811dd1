/* The runtime of one object that is no member of a job: its environment, its calls, and waiting in them. */
#ifndef MUSTER_PYTHON_RUNTIME_H
#define MUSTER_PYTHON_RUNTIME_H

#include "python/call.h"

#include <muster/authorization.h>
#include <muster/env.h>
#include <muster/runtime.h>
#include <muster/tls.h>

/** Ask the operation that is waited for to end: its end still has to be told (muster_py_runtime_tell). */
typedef void muster_py_cancel_fn(void *data);

struct muster_py_runtime {
    struct muster_env *env;
    struct muster_runtime *runtime;
    struct muster_py_calls calls;
    struct muster_timer look; /* at signals */
    muster_py_cancel_fn *cancel;
    void *cancel_data;
    void (*look_too)(
        struct muster_py_runtime *self);        /* by a call that waits, without the GIL; or NULL */
    struct muster_authorization *authorization; /* NULL: everybody */
    bool is_done;                               /* the operation that is waited for */
    enum muster_rc rc;
};

/** The memory must be zeroed. Nothing is left open after a failure. */
bool muster_py_runtime_open(struct muster_py_runtime *self);
#define MUSTER_PY_PEER_NAMES_MAX 64
/** How connections are protected: files, borrowed from arguments. */
struct muster_py_security {
    struct muster_tls_options tls;
    int has_tls;               /* the argument tls; also set where a file is given */
    const char *authorization; /* a policy of callers; NULL: everybody */
    PyObject *peer_names;      /* the argument tls_peer_names: a tuple of texts, or NULL */
    const char *names[MUSTER_PY_PEER_NAMES_MAX]; /* … which tls has, borrowed from it */
};
/** Completes tls. Raises for a certificate without its key, and for a listener under TLS that has none. */
bool muster_py_security_check(struct muster_py_security *security, bool is_listening);
/** Within the first call: env->tls, and self->authorization. Later errors of open leave them to close. */
enum muster_rc muster_py_runtime_secure(struct muster_py_runtime *self,
                                        const struct muster_py_security *security,
                                        struct muster_error *ret_error);

/** A call: the lock, the GIL unless it is short, the seat. Raises. */
bool muster_py_runtime_enter(struct muster_py_runtime *self, bool is_short);
/** The same for close. False without an exception: it is closed, or of the process that this one is a fork of. */
bool muster_py_runtime_enter_to_close(struct muster_py_runtime *self);
void muster_py_runtime_leave(struct muster_py_runtime *self);
/** Leave but for the lock: the GIL is held, the seat is free. */
void muster_py_runtime_pause(struct muster_py_runtime *self);
void muster_py_runtime_resume(struct muster_py_runtime *self);

/** 30 s for NULL and None. */
bool muster_py_read_timeout(PyObject *value, uint64_t *ret_ns);
/** The same, and ValueError for 0: of calls that wait for an answer. */
bool muster_py_read_patience(PyObject *value, uint64_t *ret_ns);
/** Within a call: loop time, absolute. */
uint64_t muster_py_runtime_deadline(const struct muster_py_runtime *self, uint64_t timeout_ns);
/** Before an operation is started. */
void muster_py_runtime_expect(struct muster_py_runtime *self);
/** By the operation's callback. */
void muster_py_runtime_tell(struct muster_py_runtime *self, enum muster_rc rc);
/** Wait, within a call, until the operation's callback has called muster_py_runtime_tell. A handler of a signal that
 * raises has the operation cancelled, once. NULL: signals are not looked at. */
enum muster_rc muster_py_runtime_wait(struct muster_py_runtime *self, muster_py_cancel_fn *cancel,
                                      void *data);
/** Within the last call, after the close of what runs on it: leaves the call as well. */
void muster_py_runtime_close(struct muster_py_runtime *self);
/** Whether it is closed, or of the process that this one is a fork of. For deallocation: no other thread has it. */
bool muster_py_runtime_is_gone(const struct muster_py_runtime *self);

#endif
