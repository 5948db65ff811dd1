/* The remedy for an errno whose own text does not lead to it. */
#ifndef MUSTER_RUNTIME_ERRNO_TEXT_H
#define MUSTER_RUNTIME_ERRNO_TEXT_H

/** "; raise the limit of file sizes (ulimit -f)", to stand behind the system's text; "": there is none to tell.
 * Static. Keeps errno. */
const char *muster_errno_remedy(int sys);

#endif
