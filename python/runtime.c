/* An environment, a runtime, and calls that wait on it and look at signals meanwhile. */
#include "python/runtime.h"

#include <muster/log.h>
#include <muster/stream.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LOOK_NS MUSTER_NS_PER_MS
#define LOOK_NS       (50 * MUSTER_NS_PER_MS)
#define GOODBYE_NS    (2 * MUSTER_NS_PER_S)
#define TIMEOUT_NS    (30 * MUSTER_NS_PER_S)

#define POLICY_BYTES_MAX (1u << 20)

/* --- Open and close --- */

static void on_look(struct muster_timer *timer)
{
    struct muster_py_runtime *self = timer->data;
    muster_py_cancel_fn *cancel = self->cancel;

    if (self->is_done || cancel == NULL)
        return;
    if (self->look_too != NULL)
        self->look_too(self);
    if (!muster_py_calls_look(&self->calls)) {
        muster_timer_start(timer, self->env->loop, muster_loop_after_ns(self->env->loop, LOOK_NS));
        return;
    }
    self->cancel = NULL;
    cancel(self->cancel_data);
}

static bool is_json_asked(void)
{
    const char *format = getenv("MUSTER_LOG_FORMAT");

    return format != NULL && strcmp(format, "json") == 0;
}

static enum muster_rc open_world(struct muster_py_runtime *self)
{
    const char *asked = getenv("MUSTER_LOG_LEVEL");
    enum muster_log_level level = MUSTER_LOG_WARN;
    enum muster_rc rc = muster_env_system_open(NULL, &self->env);

    /* The log says what a call waits for; without memory for it nothing does. A misspelt level counts as warn. */
    if (asked != NULL)
        (void)!muster_log_level_parse(asked, &level);
    if (rc == MUSTER_OK)
        (void)!muster_log_file_open(self->env->mem, stderr, is_json_asked(), level,
                                    &self->env->log);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(self->env, &self->env->net);
    if (rc == MUSTER_OK)
        rc =
            muster_runtime_open(&(struct muster_runtime_options){.env = self->env}, &self->runtime);
    if (rc == MUSTER_OK)
        muster_timer_init(&self->look, on_look, self);
    return rc;
}

static void close_world(struct muster_py_runtime *self)
{
    struct muster_log *log;

    muster_runtime_close(self->runtime);
    muster_authorization_free(self->authorization);
    self->authorization = NULL;
    if (self->env != NULL) {
        if (self->env->net != NULL)
            muster_net_system_close(self->env->net);
        muster_tls_close(self->env->tls);
        self->env->tls = NULL;
        log = self->env->log;
        self->env->log = NULL;
        muster_log_file_close(log);
        muster_env_system_close(self->env);
    }
    self->runtime = NULL;
    self->env = NULL;
}

bool muster_py_runtime_open(struct muster_py_runtime *self)
{
    struct muster_error error = {.rc = MUSTER_OK};

    if (!muster_py_calls_init(&self->calls))
        return false;
    error.rc = open_world(self);
    if (error.rc == MUSTER_OK)
        return true;
    close_world(self);
    return muster_py_raise_error(&error, NULL) != NULL;
}

bool muster_py_runtime_is_gone(const struct muster_py_runtime *self)
{
    return self->runtime == NULL || muster_py_calls_is_forked(&self->calls);
}

/* --- Security --- */

/* The package makes a tuple of what the program gives. */
static bool read_peer_names(struct muster_py_security *security)
{
    Py_ssize_t count = security->peer_names != NULL ? PyTuple_Size(security->peer_names) : 0;

    if (count < 0)
        return false;
    if (count > MUSTER_PY_PEER_NAMES_MAX)
        return PyErr_Format(PyExc_ValueError, "tls_peer_names must be at most %d names, got %zd",
                            MUSTER_PY_PEER_NAMES_MAX, count) != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        security->names[i] =
            PyUnicode_AsUTF8AndSize(PyTuple_GetItem(security->peer_names, i), NULL);
        if (security->names[i] == NULL)
            return false;
    }
    security->tls.peer_names = security->names;
    security->tls.peer_name_count = (size_t)count;
    return true;
}

bool muster_py_security_check(struct muster_py_security *security, bool is_listening)
{
    const struct muster_tls_options *tls = &security->tls;

    if ((tls->cert_file == NULL) != (tls->key_file == NULL))
        return muster_py_raise(PyExc_ValueError,
                               "tls_cert and tls_key must both be given, got one of them") != NULL;
    if (!read_peer_names(security))
        return false;
    security->has_tls |= tls->cert_file != NULL || tls->ca_file != NULL || tls->peer_name_count > 0;
    if (security->has_tls && is_listening && tls->cert_file == NULL)
        return muster_py_raise(PyExc_ValueError,
                               "who listens under TLS must have a certificate, got none; give "
                               "tls_cert and tls_key") != NULL;
    return true;
}

static enum muster_rc authorization_open(struct muster_py_runtime *self, const char *path,
                                         struct muster_error *ret_error)
{
    struct muster_env *env = self->env;
    struct muster_error error;
    char *text = NULL;
    size_t bytes = 0;
    enum muster_rc rc =
        muster_files_read(env->files, env->mem, path, POLICY_BYTES_MAX, &text, &bytes);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "the policy %.150s cannot be read: %s", path,
                                muster_rc_text(rc));
    rc = muster_authorization_parse(env, text, &self->authorization, &error);
    muster_mem_free(env->mem, text);
    return rc == MUSTER_OK
               ? rc
               : muster_error_set(ret_error, rc, "the policy %.100s: %s", path, error.text);
}

enum muster_rc muster_py_runtime_secure(struct muster_py_runtime *self,
                                        const struct muster_py_security *security,
                                        struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    if (security->has_tls)
        rc = muster_tls_open(self->env, &security->tls, &self->env->tls, ret_error);
    if (rc == MUSTER_OK && security->authorization != NULL)
        rc = authorization_open(self, security->authorization, ret_error);
    return rc;
}

/* --- Calls --- */

/* Within the lock, which is given back after a failure. */
static bool enter_locked(struct muster_py_runtime *self, bool is_short)
{
    struct muster_error error;

    muster_py_calls_enter(&self->calls, is_short);
    if (muster_runtime_enter_as(self->runtime, "a call of Python", &error) == MUSTER_OK)
        return true;
    muster_py_calls_leave(&self->calls);
    muster_py_calls_unlock(&self->calls);
    return muster_py_raise_error(&error, NULL) != NULL;
}

bool muster_py_runtime_enter(struct muster_py_runtime *self, bool is_short)
{
    if (!muster_py_calls_check_fork(&self->calls) || !muster_py_calls_lock(&self->calls))
        return false;
    if (self->runtime != NULL)
        return enter_locked(self, is_short);
    muster_py_calls_unlock(&self->calls);
    return muster_py_raise(muster_py_error_classes[MUSTER_FAILED_PRECONDITION],
                           "this object is closed") != NULL;
}

bool muster_py_runtime_enter_to_close(struct muster_py_runtime *self)
{
    if (muster_py_calls_is_forked(&self->calls) || !muster_py_calls_lock(&self->calls))
        return false;
    if (self->runtime != NULL)
        return enter_locked(self, false);
    muster_py_calls_unlock(&self->calls);
    return false;
}

void muster_py_runtime_pause(struct muster_py_runtime *self)
{
    muster_runtime_leave(self->runtime);
    muster_py_calls_leave(&self->calls);
}

void muster_py_runtime_resume(struct muster_py_runtime *self)
{
    enum muster_rc rc;

    muster_py_calls_enter(&self->calls, false);
    rc = muster_runtime_enter(self->runtime);
    MUSTER_ASSERT(rc == MUSTER_OK); /* the lock is this thread's */
}

void muster_py_runtime_leave(struct muster_py_runtime *self)
{
    muster_py_runtime_pause(self);
    muster_py_calls_unlock(&self->calls);
}

/* --- Waiting --- */

bool muster_py_read_timeout(PyObject *value, uint64_t *ret_ns)
{
    if (value != NULL && value != Py_None)
        return muster_py_read_seconds(value, ret_ns);
    *ret_ns = TIMEOUT_NS;
    return true;
}

bool muster_py_read_patience(PyObject *value, uint64_t *ret_ns)
{
    if (!muster_py_read_timeout(value, ret_ns))
        return false;
    return *ret_ns > 0 ||
           muster_py_raise(PyExc_ValueError, "timeout must be more than 0 s, got 0: it is the time "
                                             "that the call may take") != NULL;
}

uint64_t muster_py_runtime_deadline(const struct muster_py_runtime *self, uint64_t timeout_ns)
{
    uint64_t now_ns = muster_loop_now_ns(self->env->loop);

    return timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
}

void muster_py_runtime_expect(struct muster_py_runtime *self)
{
    self->is_done = false;
}

void muster_py_runtime_tell(struct muster_py_runtime *self, enum muster_rc rc)
{
    self->is_done = true;
    self->rc = rc;
}

static bool is_done(void *data)
{
    return ((const struct muster_py_runtime *)data)->is_done;
}

enum muster_rc muster_py_runtime_wait(struct muster_py_runtime *self, muster_py_cancel_fn *cancel,
                                      void *data)
{
    enum muster_rc rc;

    self->cancel = cancel;
    self->cancel_data = data;
    if (cancel != NULL)
        muster_timer_start(&self->look, self->env->loop,
                           muster_loop_after_ns(self->env->loop, FIRST_LOOK_NS));
    rc = muster_runtime_wait(self->runtime, is_done, self, UINT64_MAX);
    MUSTER_ASSERT(rc == MUSTER_OK); /* the caller is in the seat */
    muster_timer_stop(&self->look);
    return self->rc;
}

/* Under TLS a link is freed when its peer has said goodbye. */
void muster_py_runtime_close(struct muster_py_runtime *self)
{
    struct muster_env *env = self->env;
    uint64_t until_ns = muster_loop_after_ns(env->loop, GOODBYE_NS);

    muster_loop_turn_closing(env->loop);
    while (env->tls != NULL && muster_tls_is_shared(env->tls) &&
           muster_loop_now_ns(env->loop) < until_ns)
        muster_loop_turn(env->loop, MUSTER_NS_PER_MS);
    muster_runtime_leave(self->runtime);
    close_world(self);
    muster_py_calls_leave(&self->calls);
    muster_py_calls_unlock(&self->calls);
}
