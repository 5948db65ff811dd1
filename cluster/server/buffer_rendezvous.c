/* Offers and takes of buffers, matched by step and key. The worker service takes on behalf of a
 * RecvBuf call; the program offers through muster_server_offer_start. Whichever comes first waits
 * in its list. No I/O is done here. */
#include "cluster/server/buffer_rendezvous.h"

#include <string.h>

void muster_buffer_rendezvous_init(struct muster_buffer_rendezvous *rendezvous,
                                   struct muster_loop *loop)
{
    *rendezvous = (struct muster_buffer_rendezvous){.loop = loop};
    muster_list_init(&rendezvous->offers);
    muster_list_init(&rendezvous->takes);
}

static struct muster_server_buffer *offer_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_server_buffer, node);
}

static struct muster_buffer_take *take_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_buffer_take, node);
}

static struct muster_server_buffer *offer_find(struct muster_buffer_rendezvous *rendezvous,
                                               int64_t step_id, const char *key)
{
    MUSTER_LIST_EACH (&rendezvous->offers, offer, struct muster_server_buffer, node) {
        if (offer->step_id == step_id && strcmp(offer->key, key) == 0)
            return offer;
    }
    return NULL;
}

static struct muster_buffer_take *take_find(struct muster_buffer_rendezvous *rendezvous,
                                            int64_t step_id, const char *key)
{
    MUSTER_LIST_EACH (&rendezvous->takes, take, struct muster_buffer_take, node) {
        if (take->step_id == step_id && strcmp(take->key, key) == 0)
            return take;
    }
    return NULL;
}

static void on_taken_task(struct muster_task *task)
{
    struct muster_server_buffer *buffer = task->data;

    buffer->on_taken(buffer, buffer->rc);
}

void muster_buffer_taken(struct muster_buffer_rendezvous *rendezvous,
                         struct muster_server_buffer *buffer, enum muster_rc rc)
{
    /* The owner is told from a task, because it may offer again in its callback, and a list may be
     * walked here meanwhile. */
    buffer->rc = rc;
    muster_task_post(&buffer->task, rendezvous->loop);
}

void muster_buffer_drop(struct muster_buffer_rendezvous *rendezvous,
                        struct muster_buffer_take *take)
{
    muster_list_remove(&take->node);
    rendezvous->take_count--;
}

static void offer_remove(struct muster_buffer_rendezvous *rendezvous,
                         struct muster_server_buffer *buffer)
{
    muster_list_remove(&buffer->node);
    rendezvous->offer_count--;
}

enum muster_rc muster_buffer_offer(struct muster_buffer_rendezvous *rendezvous,
                                   struct muster_server_buffer *buffer)
{
    struct muster_buffer_take *take;

    /* A second buffer of one step and key could not be told from the first by a taker. */
    if (offer_find(rendezvous, buffer->step_id, buffer->key) != NULL)
        return MUSTER_ALREADY_EXISTS;
    if (rendezvous->offer_count >= MUSTER_RENDEZVOUS_WAITING_MAX)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_list_init(&buffer->node);
    muster_task_init(&buffer->task, on_taken_task, buffer);
    take = take_find(rendezvous, buffer->step_id, buffer->key);
    /* An offer after the end gets its callback like any other, so the program has one way to get
     * its buffer back. */
    if (rendezvous->ended.rc != MUSTER_OK) {
        muster_buffer_taken(rendezvous, buffer, rendezvous->ended.rc);
    } else if (take != NULL) {
        muster_buffer_drop(rendezvous, take);
        take->on_ready(take, MUSTER_OK, NULL, buffer);
    } else {
        muster_list_append(&rendezvous->offers, &buffer->node);
        rendezvous->offer_count++;
    }
    return MUSTER_OK;
}

static void take_fail(struct muster_buffer_take *take, const struct muster_error *error)
{
    take->on_ready(take, error->rc, error->text, NULL);
}

/* A taker whose bytes are not there waits for them, unless the error says why not. */
static enum muster_rc check_wait(struct muster_buffer_rendezvous *rendezvous,
                                 const struct muster_buffer_take *take, struct muster_error *error)
{
    if (rendezvous->ended.rc != MUSTER_OK)
        *error = rendezvous->ended;
    else if (take_find(rendezvous, take->step_id, take->key) != NULL)
        (void)muster_error_set(error, MUSTER_INTERNAL, "Second consumer arrived for key %s",
                               take->key);
    else if (rendezvous->take_count >= MUSTER_RENDEZVOUS_WAITING_MAX)
        (void)muster_error_set(error, MUSTER_RESOURCE_EXHAUSTED,
                               "%u receivers wait for buffers already, the most there may be",
                               rendezvous->take_count);
    return error->rc;
}

void muster_buffer_take(struct muster_buffer_rendezvous *rendezvous,
                        struct muster_buffer_take *take)
{
    struct muster_server_buffer *buffer = offer_find(rendezvous, take->step_id, take->key);
    struct muster_error error = {.rc = MUSTER_OK};

    muster_list_init(&take->node);
    if (buffer != NULL) {
        offer_remove(rendezvous, buffer);
        take->on_ready(take, MUSTER_OK, NULL, buffer);
    } else if (check_wait(rendezvous, take, &error) != MUSTER_OK) {
        take_fail(take, &error);
    } else {
        muster_list_append(&rendezvous->takes, &take->node);
        rendezvous->take_count++;
    }
}

void muster_buffer_rendezvous_end(struct muster_buffer_rendezvous *rendezvous, enum muster_rc rc,
                                  const char *text)
{
    (void)muster_error_set(&rendezvous->ended, rc, "%s", text);
    /* Each take is unlinked before its callback, which may end others. */
    while (!muster_list_is_empty(&rendezvous->takes)) {
        struct muster_buffer_take *take = take_of(rendezvous->takes.next);

        muster_buffer_drop(rendezvous, take);
        take_fail(take, &rendezvous->ended);
    }
    while (!muster_list_is_empty(&rendezvous->offers)) {
        struct muster_server_buffer *buffer = offer_of(rendezvous->offers.next);

        offer_remove(rendezvous, buffer);
        muster_buffer_taken(rendezvous, buffer, rc);
    }
}
