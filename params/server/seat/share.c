/* Clients of this host that ask for the server's memory: each gets the descriptor of the seat's file,
 * which nobody can map for writing. Others come to talk through memory of their own and of the server. */
#include "params/server/seat/share.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "params/wire/host.h"

/* accept4 without a free descriptor leaves the socket readable: without a pause the loop would
 * spin. */
#define PAUSE_NS         (100 * MUSTER_NS_PER_MS)
#define ACCEPTS_PER_TURN 64
/* Clients name what they have given at once: what is older than so many is of clients that are gone. */
#define FOUND_MAX 64u

struct found {
    struct muster_params_stage_token token;
    int fd;
};

struct muster_params_share {
    struct muster_env *env;
    struct muster_incarnation id;
    int memory;                   /* the seat's */
    int stage_socket;             /* packets with memory of clients; -1: as watch.fd */
    struct found found[FOUND_MAX]; /* memory that was given and not named yet */
    uint32_t found_count;
    struct muster_fd_watch watch; /* fd -1: the name is another process's still */
    struct muster_fd_watch rings; /* likewise */
    muster_params_share_ring_fn *on_ring;
    void *data;
    struct muster_timer pause;
};

/* A client that does not get what it wants pulls, and talks over its connection. */
static void connection_take(struct muster_params_share *share,
                            const struct muster_fd_watch *watch, int fd)
{
    if (muster_params_host_is_own_user(fd) && watch == &share->rings &&
        share->on_ring(share->data, fd))
        return;
    if (muster_params_host_is_own_user(fd) && watch != &share->rings)
        (void)muster_params_host_send(fd, share->memory);
    close(fd);
}

static void on_connection(struct muster_fd_watch *watch, unsigned ready)
{
    struct muster_params_share *share = watch->data;

    (void)ready;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = muster_params_host_accept(watch->fd);

        if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return;
        if (fd < 0) {
            muster_fd_watch_update(watch, 0);
            muster_timer_start(&share->pause, share->env->loop,
                               muster_loop_after_ns(share->env->loop, PAUSE_NS));
            return;
        }
        connection_take(share, watch, fd);
    }
}

static void name_watch(struct muster_params_share *share, struct muster_fd_watch *watch, int socket)
{
    *watch = (struct muster_fd_watch){
        .data = share, .on_ready = on_connection, .fd = socket, .wanted = MUSTER_FD_READ};
    if (muster_fd_watch_open(watch, share->env->loop) == MUSTER_OK)
        return;
    close(socket);
    watch->fd = -1;
}

/* The name is taken while the process that had the seat before is being taken down. */
static void share_listen(struct muster_params_share *share)
{
    struct muster_loop *loop = share->env->loop;
    int socket = -1;

    if (share->stage_socket < 0 &&
        muster_params_host_stage_open(&share->id, &socket) == MUSTER_OK)
        share->stage_socket = socket;
    if (share->watch.fd < 0 && muster_params_host_listen(&share->id, &socket) == MUSTER_OK)
        name_watch(share, &share->watch, socket);
    if (share->rings.fd < 0 && share->on_ring != NULL &&
        muster_params_host_ring_listen(&share->id, &socket) == MUSTER_OK)
        name_watch(share, &share->rings, socket);
    if (share->watch.fd < 0 || share->stage_socket < 0 ||
        (share->rings.fd < 0 && share->on_ring != NULL))
        muster_timer_start(&share->pause, loop, muster_loop_after_ns(loop, PAUSE_NS));
}

static void on_pause(struct muster_timer *timer)
{
    struct muster_params_share *share = timer->data;

    if (share->watch.fd >= 0)
        muster_fd_watch_update(&share->watch, MUSTER_FD_READ);
    if (share->rings.fd >= 0)
        muster_fd_watch_update(&share->rings, MUSTER_FD_READ);
    share_listen(share);
}

/* --- Memory of clients --- */

static void found_drop(struct muster_params_share *share, uint32_t i)
{
    share->found_count--;
    memmove(&share->found[i], &share->found[i + 1],
            (share->found_count - i) * sizeof(share->found[0]));
}

static void packets_receive(struct muster_params_share *share)
{
    struct found found;

    while (share->stage_socket >= 0 &&
           (found.fd = muster_params_host_stage_receive(share->stage_socket, &found.token)) >= 0) {
        if (share->found_count == FOUND_MAX) {
            close(share->found[0].fd);
            found_drop(share, 0);
        }
        share->found[share->found_count++] = found;
    }
}

int muster_params_share_find(struct muster_params_share *share,
                             const struct muster_params_stage_token *token)
{
    packets_receive(share);
    for (uint32_t i = 0; i < share->found_count; i++) {
        int fd = share->found[i].fd;

        if (memcmp(share->found[i].token.bytes, token->bytes, sizeof(token->bytes)) != 0)
            continue;
        found_drop(share, i);
        return fd;
    }
    return -1;
}

struct muster_params_share *muster_params_share_open(struct muster_env *env,
                                                     struct muster_params_seat *seat,
                                                     muster_params_share_ring_fn *on_ring,
                                                     void *data)
{
    int memory = muster_params_seat_file(seat);
    struct muster_params_share *share =
        memory >= 0 ? muster_mem_alloc_zero(env->mem, 1, sizeof(*share)) : NULL;

    if (share == NULL)
        return NULL;
    share->env = env;
    share->id = muster_params_seat_region(seat)->head->id;
    share->memory = memory;
    share->on_ring = on_ring;
    share->data = data;
    share->watch.fd = share->rings.fd = share->stage_socket = -1;
    muster_timer_init(&share->pause, on_pause, share);
    share_listen(share);
    return share;
}

static void name_close(struct muster_fd_watch *watch)
{
    if (watch->fd < 0)
        return;
    muster_fd_watch_close(watch);
    close(watch->fd);
}

void muster_params_share_close(struct muster_params_share *share)
{
    if (share == NULL)
        return;
    muster_timer_stop(&share->pause);
    name_close(&share->watch);
    name_close(&share->rings);
    if (share->stage_socket >= 0)
        close(share->stage_socket);
    for (uint32_t i = 0; i < share->found_count; i++)
        close(share->found[i].fd);
    muster_mem_free(share->env->mem, share);
}
