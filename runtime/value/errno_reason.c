/* The reason that people are told for a code and its errno. */
#include "runtime/value/errno_reason.h"

#include <string.h>

const char *muster_errno_reason(enum muster_rc rc, int sys)
{
    const char *text = rc == MUSTER_INTERNAL && sys != 0 ? strerrordesc_np(sys) : NULL;

    return text != NULL ? text : muster_rc_text(rc);
}
