/* Forks, threads and the end of the process, by libc. A library must notice by itself that its
 * process was forked, is called by another thread, or ends without closing anything. */
#include "runtime/system/process_system.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_STEP_NS MUSTER_NS_PER_MS

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* The child of a fork writes it, while it has one thread; any thread reads it. Relaxed order is
 * enough, because nothing else is published by it. */
static atomic_uint generation = 1;
/* process_init writes it, once; readers pass pthread_once first, which orders it before them. */
static int (*is_python_ending)(void);

/* The mutex is held while a hook runs, so that its owner, who removes it, does not free it
 * meanwhile. */
static pthread_mutex_t hooks_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct muster_list hooks = {.next = &hooks, .prev = &hooks};

/* The hooks are the parent's, and another thread of it may have held the mutex. */
static void on_fork_in_child(void)
{
    atomic_fetch_add(&generation, 1);
    pthread_mutex_init(&hooks_mutex, NULL);
    muster_list_init(&hooks);
}

/* Each hook is taken off the list before it runs, so that it runs once. */
static void run_hooks(void)
{
    struct muster_list *node;

    pthread_mutex_lock(&hooks_mutex);
    while ((node = muster_list_pop(&hooks)) != NULL) {
        struct muster_exit_hook *hook = MUSTER_CONTAINER_OF(node, struct muster_exit_hook, node);

        hook->is_added = false;
        hook->on_exit(hook->data);
    }
    pthread_mutex_unlock(&hooks_mutex);
}

/* CPython tells its end by a function that became public in 3.13; in other programs it is not
 * found. */
static void process_init(void)
{
    static const char *const names[] = {"Py_IsFinalizing", "_Py_IsFinalizing"};

    (void)pthread_atfork(NULL, NULL, on_fork_in_child);
    (void)atexit(run_hooks);
    for (size_t i = 0; i < 2 && is_python_ending == NULL; i++)
        *(void **)&is_python_ending = dlsym(RTLD_DEFAULT, names[i]);
}

unsigned muster_process_generation(void)
{
    pthread_once(&once, process_init);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

uint32_t muster_thread_number(void)
{
    static _Thread_local uint32_t number;

    if (number == 0)
        number = (uint32_t)gettid();
    return number;
}

void muster_thread_format(uint32_t number, char ret_text[MUSTER_THREAD_TEXT_BYTES])
{
    char path[64], name[20];
    ssize_t length = -1;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%u/comm", number);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        length = read(fd, name, sizeof(name) - 1);
        close(fd);
    }
    while (length > 0 && name[length - 1] == '\n')
        length--;
    if (length > 0)
        snprintf(ret_text, MUSTER_THREAD_TEXT_BYTES, "%u (%.*s)", number, (int)length, name);
    else
        snprintf(ret_text, MUSTER_THREAD_TEXT_BYTES, "%u", number);
}

bool muster_process_shows_end(void)
{
    pthread_once(&once, process_init);
    return is_python_ending != NULL;
}

bool muster_process_is_ending(void)
{
    return muster_process_shows_end() && is_python_ending() != 0;
}

void muster_process_await(const atomic_bool *flag, uint64_t for_ns)
{
    const struct timespec step = {.tv_nsec = AWAIT_STEP_NS};

    for (uint64_t slept_ns = 0; !atomic_load(flag) && slept_ns < for_ns; slept_ns += AWAIT_STEP_NS)
        nanosleep(&step, NULL);
}

void muster_process_nap(uint64_t for_ns)
{
    const struct timespec step = {.tv_nsec = (long)for_ns};

    nanosleep(&step, NULL);
}

void muster_exit_hook_add(struct muster_exit_hook *hook)
{
    MUSTER_ASSERT(hook->on_exit != NULL && !hook->is_added);
    hook->generation = muster_process_generation();
    pthread_mutex_lock(&hooks_mutex);
    muster_list_append(&hooks, &hook->node);
    hook->is_added = true;
    pthread_mutex_unlock(&hooks_mutex);
}

void muster_exit_hook_remove(struct muster_exit_hook *hook)
{
    if (hook->generation == 0 || hook->generation != muster_process_generation())
        return; /* never added, or its list is the parent's */
    pthread_mutex_lock(&hooks_mutex);
    if (hook->is_added)
        muster_list_remove(&hook->node);
    hook->is_added = false;
    pthread_mutex_unlock(&hooks_mutex);
}
