/* The counts of a server, and the contents of its memory. */
#include "params/server/server_internal.h"

void muster_params_server_stats(const struct muster_params_server *server,
                                struct muster_params_stats *ret_stats)
{
    const struct muster_params_region_head *head = server->region->head;

    *ret_stats = server->stats;
    for (uint32_t i = 0; i < head->table_count; i++)
        ret_stats->rows += head->tables[i].row_count;
    ret_stats->memory_bytes = muster_params_region_bytes_used(server->region);
    ret_stats->memory_max_bytes = muster_params_region_bytes_max(server->region);
    ret_stats->tables = head->table_count;
    ret_stats->sources = head->source_count;
    ret_stats->clients = server->client_count;
}
