/* Where the system keeps the certificates of public authorities. */
#ifndef MUSTER_NET_ROOTS_H
#define MUSTER_NET_ROOTS_H

/** The first of the files (NULL ends them) that can be read, or NULL. Gives none away: it is one of them. */
const char *muster_tls_roots_first(const char *const *files);

/** `built_in` (NULL: none), the file that a library was built for, if it can be read; else that of another
 * distribution, for a program that was built on one and runs on another; NULL: none. Not freed. */
const char *muster_tls_roots_find(const char *built_in);

#endif
