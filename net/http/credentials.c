/* Credentials: the kept token, its age, and all requests that wait for the next one. A kind of
 * credentials (a key, a metadata server, a file) only implements fetch; this file decides when to
 * fetch, runs one fetch for all that wait, and keeps what came. */
#include "net/http/credentials_internal.h"

#include <string.h>

#include "runtime/loop/deadline.h"

/* The token goes into a header as it is: a line break in it would begin another header. */
bool muster_token_is_valid(const char *token)
{
    size_t length = strlen(token);

    if (length == 0 || length > MUSTER_TOKEN_BYTES_MAX)
        return false;
    for (size_t i = 0; i < length; i++)
        if (token[i] <= ' ' || token[i] >= 0x7f)
            return false;
    return true;
}

/* Questions. */

/* The end of a question. done may start it again, so everything is undone before. */
static void get_answer(struct muster_token_get *get, enum muster_rc rc)
{
    muster_token_get_fn *done;

    MUSTER_ASSERT(get->credentials != NULL && get->done != NULL);
    muster_timer_stop(&get->timer);
    muster_task_cancel(&get->task);
    muster_list_remove(&get->node);
    get->token = rc == MUSTER_OK ? get->credentials->token : NULL;
    get->credentials = NULL;
    done = get->done;
    get->done = NULL;
    done(get, rc);
}

/* The answer that was decided inside a start or cancel: the kept token, or CANCELLED. */
static void on_get_task(struct muster_task *task)
{
    struct muster_token_get *get = task->data;

    get_answer(get, get->rc);
}

static enum muster_rc set_late(struct muster_token_get *get)
{
    return muster_error_set(&get->error, MUSTER_DEADLINE_EXCEEDED,
                            "%s: no token before the deadline; allow more time",
                            get->credentials->text);
}

static void on_get_deadline(struct muster_timer *timer)
{
    struct muster_token_get *get = timer->data;

    get_answer(get, set_late(get));
}

static bool has_token(const struct muster_credentials *credentials, uint64_t until_ns)
{
    return credentials->token != NULL && muster_loop_now_ns(credentials->env->loop) < until_ns;
}

/* One fetch serves all that ask meanwhile. Its deadline is its own: the first to ask may be in a
 * hurry, and the token is for the others too. */
static void fetch_token(struct muster_credentials *credentials)
{
    if (credentials->is_fetching)
        return;
    credentials->is_fetching = true;
    credentials->ops->fetch(credentials,
                            muster_loop_after_ns(credentials->env->loop, MUSTER_TOKEN_FETCH_NS));
}

enum muster_rc muster_token_get_start(struct muster_token_get *get,
                                      struct muster_credentials *credentials,
                                      const char *stale_token, uint64_t deadline_ns,
                                      muster_token_get_fn *done)
{
    struct muster_loop *loop = credentials->env->loop;
    enum muster_rc rc;

    if (credentials->is_closed)
        return muster_error_set(&get->error, MUSTER_FAILED_PRECONDITION, "%s: closed",
                                credentials->text);
    rc =
        muster_deadline_check(credentials->env, "muster_token_get_start", deadline_ns, &get->error);
    if (rc != MUSTER_OK)
        return rc;
    get->credentials = credentials;
    get->done = NULL; /* the callback rule: it is set when start returns */
    get->deadline_ns = deadline_ns;
    get->token = NULL;
    get->rc = MUSTER_OK;
    get->error = (struct muster_error){.rc = MUSTER_OK};
    muster_timer_init(&get->timer, on_get_deadline, get);
    muster_task_init(&get->task, on_get_task, get);
    muster_list_append(&credentials->waiting, &get->node);
    /* Another request may have had it replaced already: only the kept token itself is dropped. */
    if (stale_token != NULL && credentials->token != NULL &&
        strcmp(stale_token, credentials->token) == 0)
        credentials->token_fresh_until_ns = credentials->token_until_ns = 0;
    if (has_token(credentials, credentials->token_fresh_until_ns)) {
        muster_task_post(&get->task, loop);
    } else {
        muster_timer_start(&get->timer, loop, deadline_ns);
        fetch_token(credentials);
    }
    MUSTER_ASSERT(get->credentials == credentials); /* not answered inside start */
    get->done = done;
    return MUSTER_OK;
}

void muster_token_get_cancel(struct muster_token_get *get)
{
    if (get->credentials == NULL || get->rc != MUSTER_OK)
        return;
    if (get->deadline_ns <= muster_loop_now_ns(get->credentials->env->loop))
        get->rc = set_late(get);
    else
        get->rc = muster_error_set(&get->error, MUSTER_CANCELLED, "%s: cancelled",
                                   get->credentials->text);
    muster_timer_stop(&get->timer);
    muster_task_post(&get->task, get->credentials->env->loop);
}

/* Fetches. */

void muster_credentials_fetched(struct muster_credentials *credentials, const char *token,
                                uint64_t lifetime_ns)
{
    MUSTER_ASSERT(credentials->is_fetching);
    credentials->fetch_rc = MUSTER_OK;
    if (!muster_token_is_valid(token))
        credentials->fetch_rc = muster_error_set(
            &credentials->fetch_error, MUSTER_INVALID_ARGUMENT,
            "%s: the token must be 1 to %u visible ASCII characters without blanks",
            credentials->text, MUSTER_TOKEN_BYTES_MAX);
    if (credentials->fetch_rc == MUSTER_OK) {
        credentials->next_token = muster_mem_strdup(credentials->env->mem, token);
        if (credentials->next_token == NULL)
            credentials->fetch_rc =
                muster_error_set(&credentials->fetch_error, MUSTER_RESOURCE_EXHAUSTED,
                                 "%s: no memory", credentials->text);
    }
    credentials->next_lifetime_ns = lifetime_ns;
    muster_task_post(&credentials->task, credentials->env->loop);
}

void muster_credentials_failed(struct muster_credentials *credentials,
                               const struct muster_error *error)
{
    MUSTER_ASSERT(credentials->is_fetching && error->rc != MUSTER_OK);
    credentials->fetch_rc = error->rc;
    credentials->fetch_error = *error;
    muster_task_post(&credentials->task, credentials->env->loop);
}

static void secret_forget(struct muster_mem *mem, char **secret)
{
    if (*secret != NULL)
        explicit_bzero(*secret, strlen(*secret));
    muster_mem_free(mem, *secret);
    *secret = NULL;
}

/* A token is renewed MUSTER_TOKEN_SKEW_NS before its end, because clocks differ and a request takes
 * time. Of a short life that would leave little: there half of it is fresh. */
static void keep_token(struct muster_credentials *credentials)
{
    uint64_t life_ns = credentials->next_lifetime_ns;
    struct muster_loop *loop = credentials->env->loop;

    MUSTER_ASSERT(credentials->next_token != NULL);
    secret_forget(credentials->env->mem, &credentials->token);
    credentials->token = credentials->next_token;
    credentials->next_token = NULL;
    credentials->token_until_ns = muster_loop_after_ns(loop, life_ns);
    if (life_ns == MUSTER_TOKEN_FOREVER_NS)
        credentials->token_fresh_until_ns = MUSTER_TOKEN_FOREVER_NS;
    else if (life_ns >= 2 * MUSTER_TOKEN_SKEW_NS)
        credentials->token_fresh_until_ns =
            muster_loop_after_ns(loop, life_ns - MUSTER_TOKEN_SKEW_NS);
    else
        credentials->token_fresh_until_ns = muster_loop_after_ns(loop, life_ns / 2);
}

/* A fetch has ended: all that wait are answered. A kept token that still lives bridges a failure.
 * The list is emptied first, because an answered request may ask again at once: it belongs to the
 * next fetch. */
static void on_fetch_end(struct muster_task *task)
{
    struct muster_credentials *credentials = task->data;
    struct muster_error error = credentials->fetch_error;
    enum muster_rc rc = credentials->fetch_rc;
    struct muster_list batch, *node;

    MUSTER_ASSERT(credentials->is_fetching);
    if (rc == MUSTER_OK)
        keep_token(credentials);
    else if (has_token(credentials, credentials->token_until_ns))
        rc = MUSTER_OK;
    credentials->is_fetching = false;
    muster_list_take_all(&batch, &credentials->waiting);
    while ((node = batch.next) != &batch) {
        struct muster_token_get *get = MUSTER_CONTAINER_OF(node, struct muster_token_get, node);

        if (get->rc == MUSTER_OK && rc != MUSTER_OK)
            get->error = error;
        get_answer(get, get->rc != MUSTER_OK ? get->rc : rc);
    }
    if (credentials->is_closed)
        muster_task_post(&credentials->close_task, credentials->env->loop);
}

/* Life. */

/* The cancelled questions have been answered: by the end of the fetch, or by their own tasks, which
 * were posted before this one. */
static void on_close_task(struct muster_task *task)
{
    struct muster_credentials *credentials = task->data;

    MUSTER_ASSERT(credentials->is_closed && !credentials->is_fetching);
    MUSTER_ASSERT(muster_list_is_empty(&credentials->waiting));
    if (credentials->closed != NULL)
        credentials->closed(credentials);
    credentials->ops->free(credentials);
}

void muster_credentials_init(struct muster_credentials *credentials, struct muster_env *env,
                             const struct muster_credentials_ops *ops)
{
    *credentials = (struct muster_credentials){.ops = ops, .env = env};
    muster_list_init(&credentials->waiting);
    muster_task_init(&credentials->task, on_fetch_end, credentials);
    muster_task_init(&credentials->close_task, on_close_task, credentials);
}

void muster_credentials_fini(struct muster_credentials *credentials)
{
    struct muster_mem *mem = credentials->env->mem;

    secret_forget(mem, &credentials->token);
    secret_forget(mem, &credentials->next_token);
    muster_mem_free(mem, credentials->project);
}

void muster_credentials_close(struct muster_credentials *credentials,
                              muster_credentials_close_fn *closed)
{
    MUSTER_ASSERT(!credentials->is_closed);
    credentials->is_closed = true;
    credentials->closed = closed;
    MUSTER_LIST_EACH(&credentials->waiting, get, struct muster_token_get, node)
        muster_token_get_cancel(get);
    if (credentials->is_fetching && credentials->ops->cancel != NULL)
        credentials->ops->cancel(credentials);
    if (!credentials->is_fetching)
        muster_task_post(&credentials->close_task, credentials->env->loop);
}

void muster_credentials_set_data(struct muster_credentials *credentials, void *data)
{
    credentials->data = data;
}

void *muster_credentials_data(const struct muster_credentials *credentials)
{
    return credentials->data;
}

const char *muster_credentials_text(const struct muster_credentials *credentials)
{
    return credentials->text;
}

const char *muster_credentials_project(const struct muster_credentials *credentials)
{
    return credentials->project;
}
