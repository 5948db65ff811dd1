/* The chosen death: SIGKILL to oneself, so that nothing is flushed, closed or said; or a stop. */
#include "training/failpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static bool parse_number(const char **text, const char *name, uint64_t *ret_value)
{
    size_t length = strlen(name);
    char *end = NULL;

    if (strncmp(*text, name, length) != 0 || (*text)[length] < '0' || (*text)[length] > '9')
        return false;
    errno = 0;
    *ret_value = strtoull(*text + length, &end, 10);
    *text = end;
    return errno == 0;
}

enum muster_rc muster_failpoint_init(struct muster_failpoint *failpoint, struct muster_env *env,
                                     struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, "MUSTER_KILL");
    const char *rest = text;
    uint64_t step = 0, chunk = 0;
    bool is_good;

    memset(failpoint, 0, sizeof(*failpoint));
    if (text == NULL || *text == '\0')
        return MUSTER_OK;
    is_good = parse_number(&rest, "step=", &step);
    if (is_good && strncmp(rest, ",chunk", strlen(",chunk")) == 0)
        is_good = parse_number(&rest, ",chunk=", &chunk) && chunk <= UINT32_MAX;
    failpoint->is_stop = is_good && strcmp(rest, ",stop") == 0;
    if (!is_good || (*rest != '\0' && !failpoint->is_stop))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_KILL must be step=S[,chunk=C][,stop], got %s", text);
    failpoint->is_armed = true;
    failpoint->step = step;
    failpoint->chunk = (uint32_t)chunk;
    return MUSTER_OK;
}

/* on_hit runs before the signal, because nothing of this process runs after it. */
void muster_failpoint_hit(struct muster_failpoint *failpoint, uint64_t step)
{
    if (!failpoint->is_armed || step != failpoint->step)
        return;
    if (failpoint->seen++ != failpoint->chunk)
        return;
    if (failpoint->on_hit != NULL && !failpoint->is_stop)
        failpoint->on_hit(failpoint->data);
    raise(failpoint->is_stop ? SIGSTOP : SIGKILL);
}
