/* Memory that processes of one simulated host share: it is there as long as one of them lives that has it. */
#include <stdlib.h>

#include "tests/sim/sim_internal.h"

struct sim_share {
    uint8_t *bytes;
    size_t size;
    uint64_t file;
    uint32_t refs;
};

/* One process's mapping. */
struct sim_view {
    struct sim_share *memory;
    uint32_t number; /* of the process */
    struct muster_list link;
};

static struct sim_node *node_of(struct muster_host *host)
{
    return MUSTER_CONTAINER_OF(host, struct sim_node, host_api);
}

static void view_add(struct sim_node *node, struct sim_share *memory,
                     struct muster_host_memory *ret_memory)
{
    struct sim_view *view = sim_alloc(sizeof(*view));

    view->memory = memory;
    view->number = ++node->view_last;
    memory->refs++;
    muster_list_append(&node->views, &view->link);
    *ret_memory = (struct muster_host_memory){.bytes = memory->bytes,
                                              .size = memory->size,
                                              .pid = node->pid,
                                              .number = view->number,
                                              .file = memory->file};
}

static void view_free(struct sim_view *view)
{
    if (--view->memory->refs == 0) {
        free(view->memory->bytes);
        free(view->memory);
    }
    muster_list_remove(&view->link);
    free(view);
}

static struct sim_view *view_find(struct sim_node *node, uint32_t number)
{
    for (struct muster_list *link = node->views.next; link != &node->views; link = link->next) {
        struct sim_view *view = MUSTER_CONTAINER_OF(link, struct sim_view, link);

        if (view->number == number)
            return view;
    }
    return NULL;
}

enum muster_rc sim_share_open(struct muster_host *host, size_t size,
                              struct muster_host_memory *ret_memory)
{
    struct sim_node *node = node_of(host);
    struct sim_share *memory;

    sim_node_enter(node);
    memory = sim_alloc(sizeof(*memory));
    memory->bytes = sim_alloc(size);
    memory->size = size;
    memory->file = ++node->host->file_last;
    view_add(node, memory, ret_memory);
    return MUSTER_OK;
}

enum muster_rc sim_share_map(struct muster_host *host, const struct muster_host_memory *theirs,
                             struct muster_host_memory *ret_memory)
{
    struct sim_node *node = node_of(host);
    struct muster_list *link;

    sim_node_enter(node);
    for (link = node->world->nodes.next; link != &node->world->nodes; link = link->next) {
        struct sim_node *owner = MUSTER_CONTAINER_OF(link, struct sim_node, link);
        struct sim_view *view = owner->host == node->host && owner->pid == theirs->pid
                                    ? view_find(owner, theirs->number)
                                    : NULL;

        if (view != NULL && view->memory->file == theirs->file &&
            view->memory->size == theirs->size) {
            sim_note(node->world, "map", (uint64_t)node->pid, (uint64_t)owner->pid, theirs->file);
            view_add(node, view->memory, ret_memory);
            return MUSTER_OK;
        }
    }
    return MUSTER_NOT_FOUND;
}

void sim_share_close(struct muster_host *host, struct muster_host_memory *memory)
{
    view_free(view_find(node_of(host), memory->number));
}

void sim_node_drop_shares(struct sim_node *node)
{
    while (!muster_list_is_empty(&node->views))
        view_free(MUSTER_CONTAINER_OF(node->views.next, struct sim_view, link));
}
