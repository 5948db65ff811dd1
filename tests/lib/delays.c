/* A library that is loaded before libc into real programs (tests/tools/pause-tests --delay-ms): calls
 * of the system are delayed at random, as on a machine that is busy. What fails then relies on how
 * fast it runs. DELAYS_MS: at most so long each; DELAYS_SEED. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DELAYED_PERCENT 20
#define DELAYS_MAX_MS   8000 /* of a process, all together: tests have an end */

static _Atomic uint64_t call_count, delayed_ms;

static uint64_t number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* The finalizer of splitmix64. */
static uint64_t draw_number(uint64_t seed)
{
    uint64_t z = seed + UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void delay_call(void)
{
    uint64_t max_ms = number_of("DELAYS_MS"), ms;
    uint64_t drawn =
        draw_number(number_of("DELAYS_SEED") ^ (uint64_t)getpid() << 32 ^ ++call_count);
    struct timespec left;
    int saved = errno;

    if (max_ms == 0 || delayed_ms >= DELAYS_MAX_MS || drawn % 100 >= DELAYED_PERCENT)
        return;
    ms = 1 + (drawn >> 32) % max_ms;
    delayed_ms += ms;
    left = (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0)
        continue;
    errno = saved;
}

/* The next function of this name, after a delay. A race to find it finds the same one. */
#define DELAYED(result, name, parameters, ...)                                                     \
    result name parameters                                                                         \
    {                                                                                              \
        static result(*next) parameters;                                                           \
                                                                                                   \
        if (next == NULL)                                                                          \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
        delay_call();                                                                              \
        return next(__VA_ARGS__);                                                                  \
    }

DELAYED(int, epoll_wait, (int fd, struct epoll_event *events, int max, int timeout_ms), fd, events,
        max, timeout_ms)
DELAYED(int, epoll_pwait,
        (int fd, struct epoll_event *events, int max, int timeout_ms, const sigset_t *mask), fd,
        events, max, timeout_ms, mask)
DELAYED(int, poll, (struct pollfd * fds, nfds_t count, int timeout_ms), fds, count, timeout_ms)
DELAYED(int, connect, (int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes), fd, address, bytes)
DELAYED(int, accept4, (int fd, __SOCKADDR_ARG address, socklen_t *bytes, int flags), fd, address,
        bytes, flags)
DELAYED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
DELAYED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), fd, message, flags)
