/* The memory of a server of this host. It is asked for with the first peek, so that clients that only
 * push and pull have no mapping. */
#include "params/client/client_internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "params/store/view.h"
#include "params/wire/host.h"
#include "runtime/system/host_share.h"

/* A seat's file begins with a segment for the lock of its holder; the region follows. */
#define REGION_AT MUSTER_PARAMS_SEGMENT_BYTES
/* Reading beyond the end of a file that has shrunk raises SIGBUS, so only sealed files are mapped. */
#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW)
#define ASK_PAUSE_NS (100 * MUSTER_NS_PER_MS)

struct muster_params_sight {
    struct muster_mem *mem;
    struct muster_incarnation id;
    struct muster_fd_watch watch; /* on the connection; fd -1: it is closed */
    uint8_t *memory;              /* NULL: it has not come (yet) */
    size_t bytes;
    uint64_t ask_ns; /* not before that */
    struct muster_params_view view;
    const struct muster_params_table *seen; /* the table that was read last, and … */
    struct muster_params_view_table table;  /* … how the server stores it */
};

static void connection_end(struct muster_params_sight *sight)
{
    if (sight->watch.fd < 0)
        return;
    muster_fd_watch_close(&sight->watch);
    close(sight->watch.fd);
    sight->watch.fd = -1;
}

static void memory_map(struct muster_params_sight *sight, int fd)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED || fstat(fd, &status) != 0 ||
        status.st_size < (off_t)(REGION_AT + MUSTER_PARAMS_REGION_BYTES_MIN))
        return;
    sight->bytes = (size_t)status.st_size;
    sight->memory = muster_shared_memory_map(fd, sight->bytes, PROT_READ);
    if (sight->memory == NULL ||
        muster_params_view_init(&sight->view, sight->memory + REGION_AT, sight->bytes - REGION_AT,
                                &sight->id) == MUSTER_OK)
        return;
    munmap(sight->memory, sight->bytes);
    sight->memory = NULL;
}

static void on_memory(struct muster_fd_watch *watch, unsigned ready)
{
    struct muster_params_sight *sight = watch->data;
    int fd = muster_params_host_receive(watch->fd);

    (void)ready;
    connection_end(sight);
    if (fd < 0)
        return;
    memory_map(sight, fd);
    close(fd);
}

static void sight_new(struct muster_params_way *way)
{
    struct muster_env *env = way->params->env;

    if (muster_host_shares(env->host) == NULL) /* a simulated host */
        return;
    way->sight = muster_mem_alloc_zero(env->mem, 1, sizeof(*way->sight));
    if (way->sight == NULL)
        return;
    way->sight->mem = env->mem;
    way->sight->id = way->id;
    way->sight->watch.fd = -1;
}

/* A server that has just taken its seat may not give the memory yet. */
static void sight_ask(struct muster_params_sight *sight, struct muster_loop *loop)
{
    int socket = -1;

    if (sight->watch.fd >= 0 || muster_loop_now_ns(loop) < sight->ask_ns)
        return;
    sight->ask_ns = muster_loop_after_ns(loop, ASK_PAUSE_NS);
    if (muster_params_host_connect(&sight->id, &socket) != MUSTER_OK)
        return;
    sight->watch = (struct muster_fd_watch){
        .data = sight, .on_ready = on_memory, .fd = socket, .wanted = MUSTER_FD_READ};
    if (muster_fd_watch_open(&sight->watch, loop) == MUSTER_OK)
        return;
    close(socket);
    sight->watch.fd = -1;
}

void muster_params_sight_close(struct muster_params_way *way)
{
    struct muster_params_sight *sight = way->sight;

    if (sight == NULL)
        return;
    way->sight = NULL;
    connection_end(sight);
    if (sight->memory != NULL)
        munmap(sight->memory, sight->bytes);
    muster_mem_free(sight->mem, sight);
}

static struct muster_params_sight *sight_of(struct muster_params_way *way,
                                            const struct muster_params_table *table)
{
    const struct muster_params_way_table *numbered;

    if (way->state != MUSTER_PARAMS_WAY_OPEN)
        return NULL;
    if (way->sight == NULL)
        sight_new(way);
    if (way->sight != NULL && way->sight->memory == NULL)
        sight_ask(way->sight, way->params->env->loop);
    if (way->sight == NULL || way->sight->memory == NULL || table->index >= way->table_count)
        return NULL;
    numbered = &way->tables[table->index];
    if (way->sight->seen != table) {
        way->sight->seen = NULL;
        if (!numbered->is_known ||
            muster_params_view_table_init(&way->sight->table, &way->sight->view, numbered->number,
                                          table->descriptor, table->row_elements) != MUSTER_OK)
            return NULL;
        way->sight->seen = table;
    }
    return way->sight;
}

enum muster_rc muster_params_sight_read(struct muster_params_way *way,
                                        const struct muster_params_table *table,
                                        const uint64_t *keys, uint32_t count, float *ret_values)
{
    const struct muster_params_sight *sight = sight_of(way, table);

    if (sight == NULL)
        return MUSTER_UNAVAILABLE;
    return muster_params_view_read(&sight->view, &sight->table, keys, count, ret_values);
}
