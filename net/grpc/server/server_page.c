/* Pages that a server of calls has for probes: GET and HEAD at the port of calls, by HTTP/2
 * (server_headers.c) or HTTP/1.1 (server_visit.c). The list is short and set up once, so it is
 * searched in order. */
#include "net/grpc/server/rpc_server_internal.h"

#include <string.h>

struct muster_rpc_page *muster_rpc_server_find_page(const struct muster_rpc_server *server,
                                                    const char *path, size_t path_bytes)
{
    const char *query = memchr(path, '?', path_bytes);
    size_t bytes = query != NULL ? (size_t)(query - path) : path_bytes;

    MUSTER_LIST_EACH(&server->pages, page, struct muster_rpc_page, node) {
        if (strlen(page->path) == bytes && memcmp(page->path, path, bytes) == 0)
            return page;
    }
    return NULL;
}

void muster_rpc_page_ask(struct muster_rpc_page *page, struct muster_rpc_page_answer *ret_answer)
{
    *ret_answer = (struct muster_rpc_page_answer){.status = 200, .type = MUSTER_RPC_PAGE_TYPE};
    page->on_request(page, ret_answer);
}

void muster_rpc_server_add_page(struct muster_rpc_server *server, struct muster_rpc_page *page)
{
    muster_list_append(&server->pages, &page->node);
}
