/* One memfd for each board and share, mapped twice: by its owner to write, for all others to read.
 * Death makes the owner's mapping private: the pages that it writes from then on are copies. */
#include "sim_board.h"

#include "test_env.h"
#include "uninstrumented.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
#define REFUSED_MAX        8

/* An area that one member writes and all others read. */
struct area {
    struct muster_list node; /* board->shares */
    uint8_t *memory;
    const uint8_t *view;
    size_t bytes;
    int fd;
    uint32_t share;
    bool is_told;  /* the turn after its making: the peers have mapped it */
    bool is_freed; /* somebody reads it still */
};

struct sim_board {
    struct muster_board board;
    struct sim_board_world *world;
    struct muster_loop *loop; /* not touched once the member is dead: it may be gone */
    struct muster_list node;
    struct muster_incarnation incarnation;
    struct area area;
    struct muster_list shares;
    struct muster_list peers;
    uint32_t next_share;
    bool is_dead;
    bool is_closed; /* its owner has closed it; peers may still read it */
    bool is_signalled;
    bool is_entered;
    struct muster_task task;
    struct muster_incarnation refused[REFUSED_MAX];
    unsigned refused_count;
};

struct sim_peer {
    struct muster_board_peer peer;
    struct sim_board *target; /* NULL until it is ready */
    struct muster_timer timer;
    bool is_told;
    bool was_failed; /* as last told */
};

static struct sim_board *ours_of(const struct muster_board *board)
{
    return (struct sim_board *)(uintptr_t)board;
}

static struct sim_peer *sim_peer_of(const struct muster_board_peer *peer)
{
    return (struct sim_peer *)(uintptr_t)peer;
}

static void post_event(struct sim_board *ours)
{
    if (!ours->is_closed && !ours->is_dead)
        muster_task_post(&ours->task, ours->loop);
}

static void stop_timer(struct sim_board *ours, struct muster_timer *timer)
{
    if (!ours->is_dead)
        muster_timer_stop(timer);
}

/* --- Areas --- */

static void area_init(struct area *area, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    area->fd = memfd_create("sim_board", MFD_CLOEXEC);
    area->bytes = bytes;
    bytes = (bytes + page - 1) / page * page;
    assert_true(area->fd >= 0);
    assert_int_equal(ftruncate(area->fd, (off_t)bytes), 0);
    area->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, area->fd, 0);
    area->view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, area->fd, 0);
    assert_true(area->memory != MAP_FAILED && area->view != MAP_FAILED);
}

static void area_fini(struct area *area)
{
    munmap(area->memory, area->bytes);
    munmap((void *)(uintptr_t)area->view, area->bytes);
    close(area->fd);
}

/* Nobody else writes to the memory, so that pages which the owner does not write stay as they are.
 * */
static void area_cut(struct area *area)
{
    void *memory = mmap(area->memory, area->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                        area->fd, 0);

    assert_ptr_equal(memory, area->memory);
}

static struct area *find_area(const struct sim_board *ours, uint32_t share)
{
    for (struct muster_list *node = ours->shares.next; node != &ours->shares; node = node->next) {
        struct area *area = MUSTER_CONTAINER_OF(node, struct area, node);

        if (area->share == share && !area->is_freed)
            return area;
    }
    return NULL;
}

/* --- Peers --- */

static struct sim_board *find_board(struct sim_board_world *world,
                                    const struct muster_incarnation *incarnation)
{
    for (struct muster_list *node = world->boards.next; node != &world->boards; node = node->next) {
        struct sim_board *board = MUSTER_CONTAINER_OF(node, struct sim_board, node);

        if (muster_incarnation_is_equal(&board->incarnation, incarnation))
            return board;
    }
    return NULL;
}

static struct sim_peer *find_peer(const struct sim_board *ours,
                                  const struct muster_incarnation *incarnation)
{
    for (struct muster_list *node = ours->peers.next; node != &ours->peers; node = node->next) {
        struct sim_peer *peer = MUSTER_CONTAINER_OF(node, struct sim_peer, peer.node);

        if (muster_incarnation_is_equal(&peer->peer.incarnation, incarnation))
            return peer;
    }
    return NULL;
}

static void set_failed(struct sim_board *ours, struct sim_peer *peer, const char *why)
{
    if (peer->peer.is_failed)
        return;
    peer->peer.is_failed = true;
    muster_error_set(&peer->peer.why, MUSTER_UNAVAILABLE, "%s", why);
    stop_timer(ours, &peer->timer);
    post_event(ours);
}

static void set_ready(struct sim_board *ours, struct sim_peer *peer, struct sim_board *target)
{
    peer->target = target;
    peer->peer.is_ready = true;
    peer->peer.memory = target->area.view;
    peer->peer.memory_bytes = target->area.bytes;
    peer->peer.can_read_memory = !ours->world->is_reading_forbidden;
    if (ours->world->is_reading_forbidden)
        muster_error_set(&peer->peer.read_why, MUSTER_PERMISSION_DENIED, "forbidden by the test");
    stop_timer(ours, &peer->timer);
    post_event(ours);
}

static bool is_refused(const struct sim_board *ours, const struct muster_incarnation *incarnation)
{
    for (unsigned i = 0; i < ours->refused_count; i++)
        if (muster_incarnation_is_equal(&ours->refused[i], incarnation))
            return true;
    return false;
}

static void settle_peer(struct sim_board *ours, struct sim_peer *peer)
{
    struct sim_board *target = find_board(ours->world, &peer->peer.incarnation);
    struct sim_peer *back = target == NULL ? NULL : find_peer(target, &ours->incarnation);

    if (is_refused(ours, &peer->peer.incarnation))
        set_failed(ours, peer, "refused by the test");
    else if (target == NULL || target->is_closed || target->is_dead || back == NULL)
        return;
    else if (back->peer.is_failed)
        set_failed(ours, peer, back->peer.why.text);
    else if (!back->peer.is_ready) {
        set_ready(ours, peer, target);
        set_ready(target, back, ours);
    }
}

static void on_timeout(struct muster_timer *timer)
{
    struct sim_peer *peer = timer->data;

    set_failed(ours_of(peer->peer.board), peer, "it did not connect in time");
}

static enum muster_rc sim_connect(struct muster_board *board, const struct muster_member *member,
                                  struct muster_board_peer **ret_peer)
{
    struct sim_board *ours = ours_of(board);
    struct muster_env *env = ours->world->env;
    struct sim_peer *peer = find_peer(ours, &member->incarnation);

    if (peer == NULL) {
        peer = muster_mem_alloc_zero(env->mem, 1, sizeof(*peer));
        if (peer == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        peer->peer.board = board;
        peer->peer.incarnation = member->incarnation;
        muster_list_append(&ours->peers, &peer->peer.node);
        muster_timer_init(&peer->timer, on_timeout, peer);
        if (!ours->is_dead)
            muster_timer_start(&peer->timer, ours->loop,
                               muster_loop_after_ns(ours->loop, CONNECT_TIMEOUT_NS));
        settle_peer(ours, peer);
    } else {
        peer->is_told = false;
        post_event(ours);
    }
    *ret_peer = &peer->peer;
    return MUSTER_OK;
}

static struct muster_board_peer *sim_find(const struct muster_board *board,
                                          const struct muster_incarnation *incarnation)
{
    struct sim_peer *peer =
        find_peer(ours_of((struct muster_board *)(uintptr_t)board), incarnation);

    return peer != NULL ? &peer->peer : NULL;
}

static void board_free(struct sim_board *ours);

/* The last that shows a closed board frees it. */
static bool is_shown(const struct sim_board *ours)
{
    struct muster_list *boards = &ours->world->boards;

    for (struct muster_list *node = boards->next; node != boards; node = node->next) {
        struct sim_peer *peer =
            find_peer(MUSTER_CONTAINER_OF(node, struct sim_board, node), &ours->incarnation);

        if (peer != NULL && peer->target == ours)
            return true;
    }
    return false;
}

static void peer_free(struct sim_board *ours, struct sim_peer *peer)
{
    struct sim_board *target = peer->target;
    struct sim_peer *back = target == NULL ? NULL : find_peer(target, &ours->incarnation);

    stop_timer(ours, &peer->timer);
    muster_list_remove(&peer->peer.node);
    muster_mem_free(ours->world->env->mem, peer);
    if (back != NULL)
        set_failed(target, back, "it has closed the connection");
    if (target != NULL && target->is_closed && !is_shown(target))
        board_free(target);
}

static void sim_release(struct muster_board *board, struct muster_board_peer *peer)
{
    peer_free(ours_of(board), sim_peer_of(peer));
}

/* --- The rest of the table --- */

static void sim_enter(struct muster_board *board)
{
    ours_of(board)->is_entered = true;
}

static void sim_signal(struct muster_board *board, struct muster_board_peer *peer)
{
    struct sim_board *ours = ours_of(board), *target = sim_peer_of(peer)->target;

    if (ours->is_dead || target == NULL || target->is_dead)
        return;
    ours->world->signal_count++;
    target->is_signalled = true;
    post_event(target);
}

static bool sim_is_dead(const struct muster_board_peer *peer)
{
    const struct sim_board *target = sim_peer_of(peer)->target;

    return target != NULL && target->is_dead && !target->world->is_death_hidden;
}

static bool sim_find_share(struct muster_board *board, const void *at, size_t bytes,
                           uint32_t *ret_share, uint64_t *ret_offset)
{
    struct sim_board *ours = ours_of(board);
    uintptr_t from = (uintptr_t)at;

    for (struct muster_list *node = ours->shares.next; node != &ours->shares; node = node->next) {
        struct area *area = MUSTER_CONTAINER_OF(node, struct area, node);
        uintptr_t start = (uintptr_t)area->memory;

        if (area->is_freed || from < start || bytes > area->bytes ||
            from - start > area->bytes - bytes)
            continue;
        *ret_share = area->share;
        *ret_offset = from - start;
        return true;
    }
    return false;
}

static bool sim_is_share_mapped(const struct muster_board *board, uint32_t share,
                                const struct muster_board_peer *peer)
{
    const struct area *area = find_area(ours_of(board), share);

    return area != NULL && area->is_told && peer->is_ready;
}

static void area_free(struct sim_board *ours, struct area *area)
{
    area_fini(area);
    muster_list_remove(&area->node);
    muster_mem_free(ours->world->env->mem, area);
}

static void free_unread(struct sim_board_world *world)
{
    for (struct muster_list *at = world->boards.next; at != &world->boards; at = at->next) {
        struct sim_board *board = MUSTER_CONTAINER_OF(at, struct sim_board, node);
        struct muster_list *node = board->shares.next;

        while (node != &board->shares) {
            struct area *area = MUSTER_CONTAINER_OF(node, struct area, node);

            node = node->next;
            if (area->is_freed)
                area_free(board, area);
        }
    }
}

static void sim_reading_start(struct muster_board *board)
{
    ours_of(board)->world->reading_count++;
}

static void sim_reading_stop(struct muster_board *board)
{
    struct sim_board_world *world = ours_of(board)->world;

    if (--world->reading_count == 0)
        free_unread(world);
}

static const uint8_t *sim_share_at(const struct muster_board_peer *peer, uint32_t share,
                                   uint64_t offset, size_t bytes)
{
    const struct sim_board *target = sim_peer_of(peer)->target;
    const struct area *area = target == NULL ? NULL : find_area(target, share);

    if (area == NULL || !area->is_told || bytes > area->bytes || offset > area->bytes - bytes)
        return NULL;
    return area->view + offset;
}

static enum muster_rc sim_share_new(struct muster_board *board, size_t bytes, void **ret_at)
{
    struct sim_board *ours = ours_of(board);
    struct area *area = muster_mem_alloc_zero(ours->world->env->mem, 1, sizeof(*area));

    if (area == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    area_init(area, bytes == 0 ? 1 : bytes);
    area->share = ++ours->next_share;
    muster_list_append(&ours->shares, &area->node);
    if (ours->is_dead)
        area_cut(area);
    post_event(ours);
    *ret_at = area->memory;
    return MUSTER_OK;
}

/* Memory that a dead member frees stays as it was for the others. */
static void sim_share_free(struct muster_board *board, void *at)
{
    struct sim_board *ours = ours_of(board);

    for (struct muster_list *node = ours->shares.next; node != &ours->shares; node = node->next) {
        struct area *area = MUSTER_CONTAINER_OF(node, struct area, node);

        if (area->memory != at || area->is_freed)
            continue;
        if (ours->is_dead)
            return;
        memset(area->memory, 0, area->bytes);
        area->is_freed = true;
        if (ours->world->reading_count == 0)
            area_free(ours, area);
        return;
    }
    fail_msg("no share begins there");
}

static enum muster_rc sim_read_memory(const struct muster_board_peer *peer, uint64_t at,
                                      void *ret_bytes, size_t bytes)
{
    const struct sim_board *target = sim_peer_of(peer)->target;

    if (!peer->can_read_memory)
        return MUSTER_PERMISSION_DENIED;
    if (target == NULL || target->is_dead)
        return MUSTER_UNAVAILABLE;
    memcpy(ret_bytes, (const void *)(uintptr_t)at, bytes);
    return MUSTER_OK;
}

/* The bytes are another process's, which may write them meanwhile: the thread sanitizer does not look. */
UNINSTRUMENTED static enum muster_rc sim_read(int64_t pid, uint64_t at, void *ret_bytes,
                                              size_t bytes)
{
    const volatile uint8_t *from = (const volatile uint8_t *)(uintptr_t)at;
    volatile uint8_t *to = ret_bytes;

    (void)pid;
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[i];
    return MUSTER_OK;
}

static enum muster_rc sim_read_gone(int64_t pid, uint64_t at, void *ret_bytes, size_t bytes)
{
    (void)pid;
    (void)at;
    memset(ret_bytes, 0, bytes);
    return MUSTER_UNAVAILABLE;
}

static bool sim_reader_of(const struct muster_board_peer *peer,
                          struct muster_board_reader *ret_reader)
{
    const struct sim_board *target = sim_peer_of(peer)->target;
    bool is_gone = target == NULL || target->is_dead;

    *ret_reader = (struct muster_board_reader){.read = is_gone ? sim_read_gone : sim_read};
    return peer->can_read_memory;
}

/* --- Life --- */

static struct sim_peer *next_news(struct sim_board *ours)
{
    for (struct muster_list *node = ours->peers.next; node != &ours->peers; node = node->next) {
        struct sim_peer *peer = MUSTER_CONTAINER_OF(node, struct sim_peer, peer.node);

        if ((peer->peer.is_ready || peer->peer.is_failed) &&
            (!peer->is_told || peer->was_failed != peer->peer.is_failed))
            return peer;
    }
    return NULL;
}

/* A call may release any peer. */
static void tell_share(struct sim_board *ours, struct area *area)
{
    if (ours->is_dead || area->is_told)
        return;
    area->is_told = !ours->world->are_shares_refused;
    for (struct muster_list *node = ours->peers.next; node != &ours->peers && !area->is_told;
         node = node->next)
        MUSTER_CONTAINER_OF(node, struct muster_board_peer, node)->refused_end =
            (uint64_t)area->share + 1;
}

static void on_turn(struct muster_task *task)
{
    struct sim_board *ours = task->data;
    const struct muster_board_events *events = ours->board.events;
    struct sim_peer *peer = NULL;

    for (struct muster_list *node = ours->shares.next; node != &ours->shares; node = node->next)
        tell_share(ours, MUSTER_CONTAINER_OF(node, struct area, node));
    while (!ours->is_dead && (peer = next_news(ours)) != NULL) {
        peer->is_told = true;
        peer->was_failed = peer->peer.is_failed;
        if (events != NULL && events->on_peer != NULL)
            events->on_peer(ours->board.events_data, &peer->peer);
        events = ours->board.events;
    }
    if (!ours->is_signalled || ours->is_dead)
        return;
    ours->is_signalled = false;
    if (events != NULL && events->on_signal != NULL)
        events->on_signal(ours->board.events_data);
}

static void board_free(struct sim_board *ours)
{
    struct muster_mem *mem = ours->world->env->mem;

    while (!muster_list_is_empty(&ours->shares))
        area_free(ours, MUSTER_CONTAINER_OF(ours->shares.next, struct area, node));
    area_fini(&ours->area);
    muster_list_remove(&ours->node);
    muster_mem_free(mem, ours);
}

/* A share is freed by its maker before the board closes: else its memory would stay until the process
 * ends. */
static void check_shares(const struct sim_board *ours)
{
    for (struct muster_list *node = ours->shares.next; node != &ours->shares; node = node->next)
        if (!MUSTER_CONTAINER_OF(node, struct area, node)->is_freed)
            fail_msg("a share is not freed when its board closes");
}

static void sim_close(struct muster_board *board)
{
    struct sim_board *ours = ours_of(board);
    struct muster_list *boards = &ours->world->boards;

    if (!ours->is_dead && !ours->world->keeps_shares)
        check_shares(ours);
    while (!muster_list_is_empty(&ours->peers))
        peer_free(ours, MUSTER_CONTAINER_OF(ours->peers.next, struct sim_peer, peer.node));
    for (struct muster_list *node = boards->next; node != boards; node = node->next) {
        struct sim_board *other = MUSTER_CONTAINER_OF(node, struct sim_board, node);
        struct sim_peer *peer = find_peer(other, &ours->incarnation);

        if (peer != NULL && peer->target == ours)
            set_failed(other, peer, "it has closed the connection");
    }
    if (!ours->is_dead)
        muster_task_cancel(&ours->task);
    ours->is_closed = true;
    if (!is_shown(ours))
        board_free(ours);
}

static const struct muster_board_ops ops = {
    .close = sim_close,
    .connect = sim_connect,
    .find = sim_find,
    .release = sim_release,
    .enter = sim_enter,
    .signal = sim_signal,
    .is_dead = sim_is_dead,
    .find_share = sim_find_share,
    .is_share_mapped = sim_is_share_mapped,
    .reading_start = sim_reading_start,
    .reading_stop = sim_reading_stop,
    .share_at = sim_share_at,
    .share_new = sim_share_new,
    .share_free = sim_share_free,
    .read_memory = sim_read_memory,
    .reader_of = sim_reader_of,
};

void sim_board_world_init(struct sim_board_world *world, struct muster_env *env)
{
    *world = (struct sim_board_world){.env = env};
    muster_list_init(&world->boards);
}

struct muster_board *sim_board_open(struct sim_board_world *world,
                                    const struct muster_incarnation *incarnation,
                                    size_t memory_bytes)
{
    return sim_board_open_on(world, world->env->loop, incarnation, memory_bytes);
}

struct muster_board *sim_board_open_on(struct sim_board_world *world, struct muster_loop *loop,
                                       const struct muster_incarnation *incarnation,
                                       size_t memory_bytes)
{
    struct sim_board *ours = muster_mem_alloc_zero(world->env->mem, 1, sizeof(*ours));

    assert_non_null(ours);
    assert_null(find_board(world, incarnation));
    ours->world = world;
    ours->loop = loop;
    ours->incarnation = *incarnation;
    area_init(&ours->area, memory_bytes);
    ours->board.ops = &ops;
    ours->board.memory = ours->area.memory;
    ours->board.memory_bytes = memory_bytes;
    muster_list_init(&ours->shares);
    muster_list_init(&ours->peers);
    muster_task_init(&ours->task, on_turn, ours);
    muster_list_append(&world->boards, &ours->node);
    return &ours->board;
}

bool sim_board_is_entered(const struct muster_board *board)
{
    return ours_of(board)->is_entered;
}

void sim_board_kill(struct sim_board_world *world, const struct muster_incarnation *incarnation)
{
    struct sim_board *ours = find_board(world, incarnation);

    if (ours == NULL || ours->is_dead)
        return;
    muster_task_cancel(&ours->task);
    for (struct muster_list *node = ours->peers.next; node != &ours->peers; node = node->next)
        muster_timer_stop(&MUSTER_CONTAINER_OF(node, struct sim_peer, peer.node)->timer);
    ours->is_dead = true;
    area_cut(&ours->area);
    for (struct muster_list *node = ours->shares.next; node != &ours->shares; node = node->next)
        area_cut(MUSTER_CONTAINER_OF(node, struct area, node));
    for (struct muster_list *node = world->boards.next; node != &world->boards; node = node->next) {
        struct sim_board *other = MUSTER_CONTAINER_OF(node, struct sim_board, node);
        struct sim_peer *peer = find_peer(other, incarnation);

        if (peer != NULL && peer->peer.is_ready)
            set_failed(other, peer, "it has died");
    }
}

static void world_refuse(struct sim_board_world *world, const struct muster_incarnation *a,
                         const struct muster_incarnation *b)
{
    struct sim_board *ours = find_board(world, a);
    struct sim_peer *peer = NULL;

    assert_non_null(ours);
    assert_true(ours->refused_count < REFUSED_MAX);
    ours->refused[ours->refused_count++] = *b;
    peer = find_peer(ours, b);
    if (peer != NULL)
        set_failed(ours, peer, "refused by the test");
}

void sim_board_refuse(struct sim_board_world *world, const struct muster_incarnation *a,
                      const struct muster_incarnation *b)
{
    world_refuse(world, a, b);
    world_refuse(world, b, a);
}

void sim_board_world_fini(struct sim_board_world *world)
{
    bool has_closed;

    do {
        has_closed = false;
        for (struct muster_list *node = world->boards.next; node != &world->boards;
             node = node->next) {
            struct sim_board *board = MUSTER_CONTAINER_OF(node, struct sim_board, node);

            if (board->is_closed)
                continue;
            sim_close(&board->board);
            has_closed = true;
            break;
        }
    } while (has_closed);
}
