/* An intrusive doubly linked list: a node that is its own neighbour is in no list. */
#ifndef MUSTER_LIST_H
#define MUSTER_LIST_H

#include <muster/base.h>

MUSTER_BEGIN

struct muster_list {
    struct muster_list *next;
    struct muster_list *prev;
};

static inline void muster_list_init(struct muster_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool muster_list_is_empty(const struct muster_list *list)
{
    return list->next == list;
}

static inline void muster_list_append(struct muster_list *list, struct muster_list *node)
{
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}

static inline void muster_list_prepend(struct muster_list *list, struct muster_list *node)
{
    muster_list_append(list->next, node);
}

/** Idempotent: a removed node may be removed again. */
static inline void muster_list_remove(struct muster_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    muster_list_init(node);
}

/** The first node, taken out, or NULL. */
static inline struct muster_list *muster_list_pop(struct muster_list *list)
{
    struct muster_list *node = list->next;

    if (node == list)
        return NULL;
    muster_list_remove(node);
    return node;
}

/** Move all nodes of `from` to the (initialised, empty) `to`. */
static inline void muster_list_take_all(struct muster_list *to, struct muster_list *from)
{
    muster_list_init(to);
    if (muster_list_is_empty(from))
        return;
    to->next = from->next;
    to->prev = from->prev;
    to->next->prev = to;
    to->prev->next = to;
    muster_list_init(from);
}

/**
 * Loop over a list: `entry` (a `type *`, declared here) is in turn each object whose `member` is a
 * node of `list`. `break` and `continue` work as in any loop; `list` is evaluated again and again.
 *
 * The body of MUSTER_LIST_EACH must leave `entry` in the list and alive. In that of
 * MUSTER_LIST_EACH_SAFE `entry` may be removed and freed, but not the entry after it: a body that
 * calls strangers, who may remove any, takes the first one again and again instead.
 *
 *     MUSTER_LIST_EACH(&group->runs, run, struct muster_run, node)
 *         count += run->is_open;
 */
/* The end is found by the address of the node: at the end `entry` points at no object, and must not
 * be looked into. */
/* clang-format off */
#define MUSTER_LIST_EACH(list, entry, type, member)                                      \
    for (type *entry = MUSTER_CONTAINER_OF((list)->next, type, member);                  \
         MUSTER_LIST_NODE(entry, type, member) != (list);                                \
         entry = MUSTER_CONTAINER_OF(entry->member.next, type, member))

#define MUSTER_LIST_EACH_SAFE(list, entry, type, member)                                 \
    for (type *entry = MUSTER_CONTAINER_OF((list)->next, type, member),                  \
              *entry##_next = MUSTER_LIST_AFTER(entry, type, member);                    \
         MUSTER_LIST_NODE(entry, type, member) != (list);                                \
         entry = entry##_next, entry##_next = MUSTER_LIST_AFTER(entry, type, member))

/** For the two loops: the node of `entry`, and the entry after it. */
#define MUSTER_LIST_NODE(entry, type, member) \
    ((struct muster_list *)(void *)((char *)(void *)(entry) + offsetof(type, member)))
#define MUSTER_LIST_AFTER(entry, type, member) \
    MUSTER_CONTAINER_OF(MUSTER_LIST_NODE(entry, type, member)->next, type, member)
/* clang-format on */

MUSTER_END

#endif
