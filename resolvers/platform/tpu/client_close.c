/* The end of a TPU client: its queries and waits are cancelled, then it closes. */
#include "resolvers/platform/tpu/client.h"

void muster_tpu_client_close(struct muster_tpu_client *client, muster_tpu_client_close_fn *closed)
{
    MUSTER_ASSERT(!client->is_closed);
    client->is_closed = true;
    client->closed = closed;
    MUSTER_LIST_EACH (&client->queries, query, struct muster_tpu_query, node_in_client)
        muster_tpu_query_cancel(query);
    MUSTER_LIST_EACH (&client->waits, wait, struct muster_tpu_wait, node)
        muster_tpu_wait_cancel(wait);
    muster_tpu_client_check_closed(client);
}
