/* Why a call of the system failed, for people. */
#ifndef MUSTER_RUNTIME_ERRNO_REASON_H
#define MUSTER_RUNTIME_ERRNO_REASON_H

#include <muster/status.h>

/** The system's text for `sys` where rc is INTERNAL, which stands for every errno without a code of its own; else the
 * text of rc. Static. */
const char *muster_errno_reason(enum muster_rc rc, int sys);

#endif
