/* The remedy for an errno: it depends on the limits of the process. */
#include "runtime/value/errno_text.h"

#include <errno.h>
#include <sys/resource.h>

/* A file system has a largest size of files, too, which no limit raises. */
const char *muster_errno_remedy(int sys)
{
    struct rlimit limit;
    int before = errno;
    int is_known = getrlimit(RLIMIT_FSIZE, &limit) == 0;

    errno = before;
    return sys == EFBIG && is_known && limit.rlim_cur != RLIM_INFINITY
               ? "; raise the limit of file sizes (ulimit -f)"
               : "";
}
