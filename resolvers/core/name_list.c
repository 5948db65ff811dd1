/* A list of names in a text of limited length. */
#include "resolvers/core/name_list.h"

#include <stdio.h>
#include <string.h>

#define TAIL_BYTES sizeof(" and 4294967295 more") /* kept free after every name that is added */

void muster_name_list_add(struct muster_name_list *list, const char *name)
{
    const char *separator = list->length > 0 ? list->separator : "";
    size_t added = strlen(separator) + strlen(name);

    if (list->left_out == 0 && list->length + added + TAIL_BYTES <= list->bytes) {
        strcpy(stpcpy(list->text + list->length, separator), name);
        list->length += added;
        return;
    }
    list->left_out++;
    snprintf(list->text + list->length, list->bytes - list->length, " and %zu more",
             list->left_out);
}
