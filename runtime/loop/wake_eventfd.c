/* Waking a real loop from another thread or a signal handler: an eventfd, level-triggered, so never
 * lost. */
#include <muster/loop.h>

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct muster_wake {
    struct muster_mem *mem;
    muster_wake_fn *on_wake;
    void *data;
    struct muster_fd_watch watch;
    int fd;
};

static void on_wake_readable(struct muster_fd_watch *watch, unsigned ready)
{
    struct muster_wake *wake = watch->data;
    uint64_t count;

    (void)ready;
    if (read(wake->fd, &count, sizeof(count)) == (ssize_t)sizeof(count))
        wake->on_wake(wake);
}

enum muster_rc muster_wake_open(struct muster_mem *mem, struct muster_loop *loop,
                                muster_wake_fn *on_wake, void *data, struct muster_wake **ret_wake)
{
    struct muster_wake *wake = muster_mem_alloc_zero(mem, 1, sizeof(*wake));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    MUSTER_ASSERT(on_wake != NULL);
    if (wake == NULL)
        return rc;
    wake->mem = mem;
    wake->on_wake = on_wake;
    wake->data = data;
    wake->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake->fd < 0) {
        rc = muster_rc_from_errno(errno);
        goto fail;
    }
    wake->watch.fd = wake->fd;
    wake->watch.wanted = MUSTER_FD_READ;
    wake->watch.data = wake;
    wake->watch.on_ready = on_wake_readable;
    rc = muster_fd_watch_open(&wake->watch, loop);
    if (rc != MUSTER_OK)
        goto fail;
    *ret_wake = wake;
    return MUSTER_OK;
fail:
    muster_wake_close(wake);
    return rc;
}

void *muster_wake_data(const struct muster_wake *wake)
{
    return wake->data;
}

void muster_wake_signal(struct muster_wake *wake)
{
    const uint64_t one = 1;
    int saved = errno; /* a signal handler must not disturb it */

    /* EAGAIN: the counter is full, so the loop is being woken already. */
    while (write(wake->fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
    errno = saved;
}

void muster_wake_close(struct muster_wake *wake)
{
    if (wake == NULL)
        return;
    muster_fd_watch_close(&wake->watch);
    if (wake->fd >= 0)
        close(wake->fd);
    muster_mem_free(wake->mem, wake);
}
