/* The end of a TPU client: its queries and waits are cancelled, then it closes. */
#include "resolvers/platform/tpu/client.h"

void muster_tpu_client_close(struct muster_tpu_client *client, muster_tpu_client_close_fn *closed)
{
    struct muster_list *node;

    client->is_closed = true;
    client->closed = closed;
    for (node = client->queries.next; node != &client->queries; node = node->next)
        muster_tpu_query_cancel(MUSTER_CONTAINER_OF(node, struct muster_tpu_query, node_in_client));
    for (node = client->waits.next; node != &client->waits; node = node->next)
        muster_tpu_wait_cancel(MUSTER_CONTAINER_OF(node, struct muster_tpu_wait, node));
    muster_tpu_client_check_closed(client);
}
