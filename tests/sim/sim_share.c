/* Memory that processes of one simulated host share: it is there as long as one of them lives that has it. As on a
 * real host the others cannot write to it. */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/system/host_share.h"
#include "tests/sim/sim_internal.h"

struct sim_share {
    struct muster_shared_memory memory;
    uint64_t file;
    uint32_t refs;
};

/* One process's mapping. */
struct sim_view {
    struct sim_share *share;
    uint8_t *bytes;
    uint32_t number; /* of the process */
    struct muster_list link;
};

static struct sim_node *node_of(struct muster_host *host)
{
    return MUSTER_CONTAINER_OF(host, struct sim_node, host_api);
}

/* bytes: the process's own mapping. */
static void view_add(struct sim_node *node, struct sim_share *share, uint8_t *bytes,
                     struct muster_host_memory *ret_memory)
{
    struct sim_view *view = sim_alloc(sizeof(*view));

    assert(bytes != NULL);
    view->share = share;
    view->bytes = bytes;
    view->number = ++node->view_last;
    share->refs++;
    muster_list_append(&node->views, &view->link);
    *ret_memory = (struct muster_host_memory){.bytes = bytes,
                                              .size = share->memory.bytes,
                                              .pid = node->pid,
                                              .number = view->number,
                                              .file = share->file};
}

static void view_free(struct sim_view *view)
{
    struct sim_share *share = view->share;

    if (view->bytes != share->memory.memory)
        munmap(view->bytes, share->memory.bytes);
    if (--share->refs == 0) {
        muster_shared_memory_close(&share->memory);
        free(share);
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

/* Memory of that size that any process has open. */
static struct sim_share *share_find(const struct sim_world *world, size_t size)
{
    const struct muster_list *node, *link;

    for (node = world->nodes.next; node != &world->nodes; node = node->next) {
        const struct sim_node *owner = MUSTER_CONTAINER_OF(node, struct sim_node, link);

        for (link = owner->views.next; link != &owner->views; link = link->next) {
            struct sim_share *share = MUSTER_CONTAINER_OF(link, struct sim_view, link)->share;

            if (share->memory.bytes == size)
                return share;
        }
    }
    return NULL;
}

enum muster_rc sim_share_open(struct muster_host *host, size_t size,
                              struct muster_host_memory *ret_memory)
{
    struct sim_node *node = node_of(host);
    struct sim_share *share;
    enum muster_rc rc;

    sim_node_enter(node);
    share = node->world->is_shared_once ? share_find(node->world, size) : NULL;
    if (share != NULL) {
        view_add(node, share, share->memory.memory, ret_memory);
        return MUSTER_OK;
    }
    share = sim_alloc(sizeof(*share));
    rc = muster_shared_memory_open("muster-sim", size, &share->memory);
    if (rc != MUSTER_OK) {
        free(share);
        return rc;
    }
    share->file = ++node->host->file_last;
    view_add(node, share, share->memory.memory, ret_memory);
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

        if (view != NULL && view->share->file == theirs->file &&
            view->share->memory.bytes == theirs->size) {
            struct sim_share *share = view->share;

            sim_note(node->world, "map", (uint64_t)node->pid, (uint64_t)owner->pid, theirs->file);
            view_add(node, share,
                     muster_shared_memory_map(share->memory.fd, share->memory.bytes, PROT_READ),
                     ret_memory);
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
