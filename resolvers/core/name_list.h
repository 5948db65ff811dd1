/* A list of names in a text of limited length: names that do not fit are counted. */
#ifndef MUSTER_RESOLVERS_NAME_LIST_H
#define MUSTER_RESOLVERS_NAME_LIST_H

#include <muster/base.h>

/** A list under way: "tf_config, static and 3 more". All but text, bytes and separator is zero at
 * first. */
struct muster_name_list {
    char *text; /* bytes of them, borrowed; always terminated once a name was added */
    size_t bytes;
    const char *separator; /* ", " */
    /* private */
    size_t length;
    size_t left_out;
};

/** Pure. */
void muster_name_list_add(struct muster_name_list *list, const char *name);

#endif
