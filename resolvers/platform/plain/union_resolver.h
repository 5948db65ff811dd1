/* Members of a union that is not open yet. */
#ifndef MUSTER_RESOLVERS_UNION_RESOLVER_H
#define MUSTER_RESOLVERS_UNION_RESOLVER_H

#include <muster/platforms.h>

/** Close members that no union has taken, NULL among them; those that were never asked go at once,
 * unless closing takes them time. Takes the members. */
void muster_union_members_discard(struct muster_resolver *const *members, size_t count);

#endif
