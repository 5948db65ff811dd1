/* Members of a union before it is open. */
#ifndef MUSTER_RESOLVERS_UNION_RESOLVER_H
#define MUSTER_RESOLVERS_UNION_RESOLVER_H

#include <muster/platforms.h>

/** Close members, of which some may be NULL, when their union could not be opened. A member without
 * a stop is freed at once. Takes the members. */
void muster_union_members_discard(struct muster_resolver *const *members, size_t count);

#endif
