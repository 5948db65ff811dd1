/* Hosts and what the processes on them see: names, files, variables, the deaths of neighbours; cuts
 * between hosts. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define FIRST_PORT    30000
#define WALL_START_NS UINT64_C(1700000000000000000)

/* Hosts. */

struct sim_host *sim_host_add(struct sim_world *world, const char *name)
{
    struct sim_host *host = sim_alloc(sizeof(*host));

    host->world = world;
    host->is_up = true;
    host->next_port = FIRST_PORT;
    host->number = muster_list_is_empty(&world->hosts)
                       ? 1
                       : MUSTER_CONTAINER_OF(world->hosts.prev, struct sim_host, link)->number + 1;
    snprintf(host->name, sizeof(host->name), "%s", name);
    muster_list_init(&host->listeners);
    muster_list_init(&host->files);
    muster_list_append(&world->hosts, &host->link);
    return host;
}

static void file_free(struct sim_file *file)
{
    muster_list_remove(&file->link);
    free(file->path);
    free(file->bytes);
    free(file);
}

void sim_host_free(struct sim_host *host)
{
    while (!muster_list_is_empty(&host->files))
        file_free(MUSTER_CONTAINER_OF(host->files.next, struct sim_file, link));
    free(host);
}

struct muster_address sim_host_address(const struct sim_host *host, uint16_t port)
{
    struct muster_address address = {.family = MUSTER_ADDRESS_IPV4, .port = port};

    address.ip[0] = 10;
    address.ip[2] = (uint8_t)(host->number >> 8);
    address.ip[3] = (uint8_t)host->number;
    return address;
}

const char *sim_host_name(const struct sim_host *host)
{
    return host->name;
}

bool sim_host_is_up(const struct sim_host *host)
{
    return host->is_up;
}

struct sim_host *sim_host_by_name(struct sim_world *world, const char *name)
{
    struct muster_list *link;

    for (link = world->hosts.next; link != &world->hosts; link = link->next) {
        struct sim_host *host = MUSTER_CONTAINER_OF(link, struct sim_host, link);

        if (strcmp(host->name, name) == 0)
            return host;
    }
    return NULL;
}

struct sim_host *sim_host_find(struct sim_host *from, const struct muster_address *address)
{
    struct muster_list *link;

    if (address->family == MUSTER_ADDRESS_UNIX || muster_address_is_loopback(address))
        return from;
    for (link = from->world->hosts.next; link != &from->world->hosts; link = link->next) {
        struct sim_host *host = MUSTER_CONTAINER_OF(link, struct sim_host, link);
        struct muster_address own = sim_host_address(host, address->port);

        if (muster_address_is_equal(&own, address))
            return host;
    }
    return NULL;
}

void sim_crash(struct sim_host *host)
{
    struct sim_world *world = host->world;
    struct muster_list *link;

    sim_note(world, "host_crash", host->number, 0, 0);
    host->is_up = false;
    for (link = world->nodes.next; link != &world->nodes; link = link->next) {
        struct sim_node *node = MUSTER_CONTAINER_OF(link, struct sim_node, link);

        if (node->host == host && node->life != SIM_DEAD)
            sim_node_die(node, true);
    }
}

void sim_boot(struct sim_host *host)
{
    if (host->is_up)
        return;
    sim_note(host->world, "host_boot", host->number, 0, 0);
    host->is_up = true;
    sim_connections_resume(host->world, NULL, NULL);
}

/* Links. */

bool sim_link_is_cut(const struct sim_world *world, const struct sim_host *from,
                     const struct sim_host *to)
{
    const struct muster_list *link;

    for (link = world->cuts.next; link != &world->cuts; link = link->next) {
        const struct sim_cut *cut = MUSTER_CONTAINER_OF(link, struct sim_cut, link);

        if (cut->from == from && cut->to == to)
            return true;
    }
    return false;
}

bool sim_link_is_dead(const struct sim_world *world, const struct sim_host *from,
                      const struct sim_host *to)
{
    return !from->is_up || !to->is_up || sim_link_is_cut(world, from, to);
}

/* The same for both directions, from the seed and the pair alone. */
static uint64_t pair_latency_ns(const struct sim_world *world, const struct sim_host *from,
                                const struct sim_host *to)
{
    uint64_t low = from->number < to->number ? from->number : to->number;
    uint64_t high = from->number + to->number - low;
    uint64_t mixed = (world->seed ^ (low << 20 | high)) * UINT64_C(0x9E3779B97F4A7C15);
    uint64_t range_ns = world->conditions.latency_max_ns - world->conditions.latency_min_ns + 1;

    return world->conditions.latency_min_ns + (mixed >> 20) % range_ns;
}

uint64_t sim_link_latency_ns(struct sim_world *world, const struct sim_host *from,
                             const struct sim_host *to)
{
    uint64_t base_ns =
        from == to ? world->conditions.latency_local_ns : pair_latency_ns(world, from, to);

    return base_ns + sim_draw(world, base_ns * world->conditions.jitter_permille / 1000 + 1);
}

static void cut_one_way(struct sim_world *world, struct sim_host *from, struct sim_host *to)
{
    struct sim_cut *cut;

    if (from == to || sim_link_is_cut(world, from, to))
        return;
    cut = sim_alloc(sizeof(*cut));
    cut->from = from;
    cut->to = to;
    muster_list_append(&world->cuts, &cut->link);
}

void sim_cut(struct sim_world *world, struct sim_host *a, struct sim_host *b,
             enum sim_direction direction)
{
    sim_note(world, "cut", a->number, b->number, (uint64_t)direction);
    cut_one_way(world, a, b);
    if (direction == SIM_BOTH_WAYS)
        cut_one_way(world, b, a);
}

/* a and b NULL: all. */
static void world_heal(struct sim_world *world, const struct sim_host *a, const struct sim_host *b)
{
    struct muster_list *link = world->cuts.next;

    while (link != &world->cuts) {
        struct sim_cut *cut = MUSTER_CONTAINER_OF(link, struct sim_cut, link);

        link = link->next;
        if (a == NULL || (cut->from == a && cut->to == b) || (cut->from == b && cut->to == a)) {
            muster_list_remove(&cut->link);
            free(cut);
        }
    }
    sim_connections_resume(world, a, b);
}

void sim_heal(struct sim_world *world, struct sim_host *a, struct sim_host *b)
{
    sim_note(world, "heal", a->number, b->number, 0);
    world_heal(world, a, b);
}

void sim_heal_all(struct sim_world *world)
{
    sim_note(world, "heal_all", 0, 0, 0);
    world_heal(world, NULL, NULL);
}

/* Questions of a process to its host: its own identity, whether another process is dead. */

struct sim_watch {
    struct muster_process_watch *watch;
    struct sim_node *node;
    struct sim_ready ready;
    struct sim_event event;
    struct muster_list link;
};

static struct sim_node *node_of_host(struct muster_host *host)
{
    return MUSTER_CONTAINER_OF(host, struct sim_node, host_api);
}

static void watch_free(struct sim_watch *watch)
{
    sim_ready_cancel(&watch->ready);
    sim_event_cancel(watch->node->world, &watch->event);
    muster_list_remove(&watch->link);
    free(watch);
}

static void watch_on_poll(struct sim_ready *ready)
{
    struct sim_watch *ours = ready->data;
    struct muster_process_watch *watch = ours->watch;

    watch->fd_watch.impl = NULL;
    watch_free(ours);
    watch->on_exit(watch);
}

static void watch_on_time(struct sim_event *event)
{
    struct sim_watch *watch = event->data;

    sim_ready_signal(&watch->ready);
}

static bool is_process(const struct sim_host *host, int64_t pid)
{
    const struct muster_list *link;

    for (link = host->world->nodes.next; link != &host->world->nodes; link = link->next) {
        const struct sim_node *node = MUSTER_CONTAINER_OF(link, struct sim_node, link);

        if (node->host == host && node->pid == pid)
            return node->life != SIM_DEAD;
    }
    return false;
}

static const char *host_key(struct muster_host *host)
{
    return node_of_host(host)->key;
}

static int64_t host_pid(struct muster_host *host)
{
    return node_of_host(host)->pid;
}

/* Numbers of processes are not used twice here. */
static uint64_t host_started(struct muster_host *host, int64_t pid)
{
    return is_process(node_of_host(host)->host, pid) ? (uint64_t)pid : 0;
}

static uint64_t host_wall_ns(struct muster_host *host)
{
    const struct sim_node *node = node_of_host(host);

    return WALL_START_NS + node->world->now_ns + node->host->number * 77 * MUSTER_NS_PER_MS;
}

static enum muster_rc host_watch(struct muster_host *host, struct muster_process_watch *watch)
{
    struct sim_node *node = node_of_host(host);
    struct sim_watch *ours;

    sim_node_enter(node);
    if (!is_process(node->host, watch->pid))
        return MUSTER_NOT_FOUND;
    ours = sim_alloc(sizeof(*ours));
    ours->watch = watch;
    ours->node = node;
    sim_ready_init(&ours->ready, node, watch_on_poll, ours);
    sim_event_init(&ours->event, watch_on_time, ours);
    muster_list_append(&node->watches, &ours->link);
    watch->fd_watch.impl = ours;
    return MUSTER_OK;
}

static void host_unwatch(struct muster_host *host, struct muster_process_watch *watch)
{
    (void)host;
    if (watch->fd_watch.impl != NULL)
        watch_free(watch->fd_watch.impl);
    watch->fd_watch.impl = NULL;
}

static void tell_watchers(const struct sim_node *dead)
{
    struct sim_world *world = dead->world;
    struct muster_list *link, *inner;

    for (link = world->nodes.next; link != &world->nodes; link = link->next) {
        struct sim_node *node = MUSTER_CONTAINER_OF(link, struct sim_node, link);

        if (node->host != dead->host || node->life != SIM_ALIVE)
            continue;
        for (inner = node->watches.next; inner != &node->watches; inner = inner->next) {
            struct sim_watch *watch = MUSTER_CONTAINER_OF(inner, struct sim_watch, link);
            uint64_t delay_ns = sim_draw(world, world->conditions.process_watch_delay_max_ns + 1);

            if (watch->watch->pid == dead->pid)
                sim_event_schedule(world, &watch->event, world->now_ns + delay_ns);
        }
    }
}

void sim_node_drop_host(struct sim_node *node)
{
    while (!muster_list_is_empty(&node->watches))
        watch_free(MUSTER_CONTAINER_OF(node->watches.next, struct sim_watch, link));
    sim_node_drop_shares(node);
    tell_watchers(node);
}

/* Variables and files. */

static const char *vars_get(struct muster_vars *vars, const char *name)
{
    const struct sim_node *node = MUSTER_CONTAINER_OF(vars, struct sim_node, vars);
    const char *const *pair = node->options.vars;

    for (; pair != NULL && pair[0] != NULL; pair += 2)
        if (strcmp(pair[0], name) == 0)
            return pair[1];
    return NULL;
}

static struct sim_file *find_file(const struct sim_host *host, const char *path)
{
    struct muster_list *link;

    for (link = host->files.next; link != &host->files; link = link->next) {
        struct sim_file *file = MUSTER_CONTAINER_OF(link, struct sim_file, link);

        if (strcmp(file->path, path) == 0)
            return file;
    }
    return NULL;
}

static enum muster_rc files_read(struct muster_files *files, struct muster_mem *mem,
                                 const char *path, size_t limit_bytes, char **ret_text,
                                 size_t *ret_bytes)
{
    const struct sim_node *node = MUSTER_CONTAINER_OF(files, struct sim_node, files);
    const struct sim_file *file = find_file(node->host, path);
    char *text;

    if (file == NULL)
        return MUSTER_NOT_FOUND;
    if (file->count > limit_bytes)
        return MUSTER_RESOURCE_EXHAUSTED;
    text = muster_mem_alloc(mem, file->count + 1);
    if (text == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(text, file->bytes, file->count);
    text[file->count] = '\0';
    *ret_text = text;
    *ret_bytes = file->count;
    return MUSTER_OK;
}

static enum muster_rc files_write(struct muster_files *files, const char *path, const void *bytes,
                                  size_t count)
{
    struct sim_node *node = MUSTER_CONTAINER_OF(files, struct sim_node, files);
    struct sim_file *file = find_file(node->host, path);
    size_t path_bytes = strlen(path) + 1;

    if (sim_node_is_gone(node)) /* rename is atomic: all or nothing */
        return MUSTER_OK;
    if (file != NULL)
        file_free(file);
    file = sim_alloc(sizeof(*file));
    file->path = sim_alloc(path_bytes);
    memcpy(file->path, path, path_bytes);
    file->bytes = sim_alloc(count + 1);
    memcpy(file->bytes, bytes, count);
    file->count = count;
    muster_list_append(&node->host->files, &file->link);
    return MUSTER_OK;
}

void sim_node_host_init(struct sim_node *node)
{
    static const struct muster_host_ops host_ops = {
        .key = host_key,
        .pid = host_pid,
        .started = host_started,
        .wall_ns = host_wall_ns,
        .watch = host_watch,
        .unwatch = host_unwatch,
        .memory_open = sim_share_open,
        .memory_map = sim_share_map,
        .memory_close = sim_share_close,
    };
    static const struct muster_vars_ops vars_ops = {.get = vars_get};
    static const struct muster_files_ops files_ops = {.read = files_read, .write = files_write};

    node->host_api.ops = &host_ops;
    node->vars.ops = &vars_ops;
    node->files.ops = &files_ops;
    snprintf(node->key, sizeof(node->key), "sim-%s", node->host->name);
    muster_list_init(&node->watches);
    muster_list_init(&node->views);
}

/* Log records go to the trace of the world. */

static void print_field(FILE *file, const struct muster_field *field)
{
    switch (field->kind) {
    case MUSTER_FIELD_TEXT:
        fprintf(file, " %s=%s", field->name, field->text != NULL ? field->text : "-");
        break;
    case MUSTER_FIELD_U64:
        fprintf(file, " %s=%" PRIu64, field->name, field->u64);
        break;
    case MUSTER_FIELD_I64:
        fprintf(file, " %s=%" PRId64, field->name, field->i64);
        break;
    case MUSTER_FIELD_F64:
        fprintf(file, " %s=%g", field->name, field->f64);
        break;
    }
}

static void log_to_trace(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                         const char *event, const struct muster_field *fields, size_t count)
{
    struct sim_node *node = MUSTER_CONTAINER_OF(log, struct sim_node, log);
    FILE *file = node->world->trace;
    size_t i;

    (void)wall_ns;
    if (file == NULL || level > node->world->log_level)
        return;
    fprintf(file, "%14.6f ms %-16s   %s", (double)node->world->now_ns / 1e6, node->name, event);
    for (i = 0; i < count; i++)
        print_field(file, &fields[i]);
    fputc('\n', file);
}

void sim_node_log_init(struct sim_node *node)
{
    static const struct muster_log_ops ops = {.write = log_to_trace};

    node->log.ops = &ops;
    node->log.level_max = node->world->trace != NULL ? node->world->log_level : MUSTER_LOG_ERROR;
}
