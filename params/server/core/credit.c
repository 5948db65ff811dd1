/* Credits: each client has the same share of one budget, so that the sum is bounded whatever clients do. A client
 * that is within its share is always read from: what it sends may be what others wait for. */
#include "params/server/core/credit.h"

#define BUDGET_BYTES (UINT64_C(256) << 20)
/* A message of some rows fits, however many clients there are. */
#define SHARE_MIN (UINT64_C(16) << 10)

/* Shares change when the number of clients passes a power of two: they are not told anew with each client. */
void muster_params_credits_share(struct muster_params_server *server)
{
    uint64_t share = server->credits.budget, clients;

    for (clients = 1; clients < server->client_count; clients *= 2)
        share /= 2;
    if (share > MUSTER_PARAMS_CREDIT_MAX)
        share = MUSTER_PARAMS_CREDIT_MAX;
    server->credits.share = share < SHARE_MIN ? SHARE_MIN : share;
}

void muster_params_credit_await_end(struct muster_params_client *client)
{
    if (client->is_starved)
        client->server->credits.starved_count--;
    client->is_starved = false;
}

/* A message that is received goes to its handler by the door, one that waits for a clock by the clocks. */
static void on_review(struct muster_task *task)
{
    struct muster_params_server *server = task->data;

    MUSTER_LIST_EACH_SAFE (&server->clients, client, struct muster_params_client, node) {
        if (!client->is_starved ||
            !muster_params_credit_allows(client, client->starved_own, client->starved_bytes))
            continue;
        muster_params_credit_await_end(client);
        if (client->early.type == 0 && !client->is_marked)
            muster_peer_link_resume(client->link);
        else if (client->early.type != 0)
            muster_task_post(&server->early_review, server->env->loop);
    }
    if (!muster_list_is_empty(&server->clocks.waiting))
        muster_task_post(&server->clocks.come, server->env->loop);
}

void muster_params_credits_init(struct muster_params_server *server, uint64_t budget)
{
    server->credits.budget = budget == 0 ? BUDGET_BYTES : budget;
    muster_task_init(&server->credits.review, on_review, server);
    muster_params_credits_share(server);
}

void muster_params_credits_close(struct muster_params_server *server)
{
    muster_task_cancel(&server->credits.review);
}

void muster_params_credit_take(struct muster_params_client *client, size_t bytes)
{
    client->held_bytes += bytes;
    client->server->credits.held_bytes += bytes;
}

static void review_post(struct muster_params_server *server)
{
    if (!server->is_closing &&
        (server->credits.starved_count > 0 || server->credits.has_clock_waits))
        muster_task_post(&server->credits.review, server->env->loop);
}

void muster_params_credit_give_back(struct muster_params_client *client, size_t bytes)
{
    struct muster_params_server *server = client->server;

    MUSTER_ASSERT(client->held_bytes >= bytes && server->credits.held_bytes >= bytes);
    client->held_bytes -= bytes;
    server->credits.held_bytes -= bytes;
    review_post(server);
}

void muster_params_credit_drop(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;

    server->credits.held_bytes -= client->held_bytes;
    client->held_bytes = 0;
    muster_params_credit_await_end(client);
    review_post(server);
}

bool muster_params_credit_allows(const struct muster_params_client *client, size_t own, size_t more)
{
    const struct muster_params_server *server = client->server;
    uint64_t others = client->held_bytes - own;

    MUSTER_ASSERT(client->held_bytes >= own);
    if (others + own + more <= server->credits.share)
        return true;
    return others == 0 && (server->credits.held_bytes + more <= server->credits.budget ||
                           server->credits.held_bytes == own);
}

void muster_params_credit_await(struct muster_params_client *client, size_t own, size_t more)
{
    client->starved_own = own;
    client->starved_bytes = more;
    if (client->is_starved)
        return;
    client->is_starved = true;
    client->server->credits.starved_count++;
    client->server->stats.credit_waits++;
}
