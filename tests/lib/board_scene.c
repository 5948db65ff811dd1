/* A board among strangers of the same host, who are played byte by byte. */
#include "board_scene.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Cases change the credentials that the kernel reports for the other side of a socket. */
static uid_t uid_more;

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict size)
{
    long result = syscall(SYS_getsockopt, fd, level, name, value, size);

    if (result == 0 && level == SOL_SOCKET && name == SO_PEERCRED)
        ((struct ucred *)value)->uid += uid_more;
    return (int)result;
}

void board_scene_set_uid_more(uid_t more)
{
    uid_more = more;
}

static void on_peer(void *data, struct muster_board_peer *peer)
{
    struct board_scene *scene = data;

    (void)peer;
    scene->told_count++;
}

static const struct muster_board_events events = {.on_peer = on_peer};

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static struct muster_member member_of(uint8_t name)
{
    struct muster_member member = {.pid = getpid(), .incarnation = {.bytes = {name}}};
    pid_t pid = getpid();

    memcpy(&member.incarnation.bytes[8], &pid, sizeof(pid)); /* cases run side by side */
    return member;
}

static struct muster_board *board_of(struct board_scene *scene, const struct muster_member *self)
{
    struct muster_board_options options = {
        .env = &scene->test.env, .job = "job", .self = self, .memory_bytes = 10000};
    struct muster_board *board = NULL;

    assert_int_equal(muster_board_system_open(&options, &board, NULL), MUSTER_OK);
    return board;
}

struct muster_board_system *board_scene_system_of(const struct board_scene *scene)
{
    return muster_board_system_of(scene->board);
}

static int raw_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    return fd;
}

/* The stranger has the place where the member `who` would listen. */
static void listen_as(struct board_scene *scene, const struct muster_member *who)
{
    struct muster_board *board = board_of(scene, who);
    struct sockaddr_un address;
    socklen_t size = sizeof(address);

    assert_int_equal(
        getsockname(muster_board_system_of(board)->socket, (struct sockaddr *)&address, &size), 0);
    muster_board_close(board);
    scene->listen = raw_socket();
    assert_int_equal(bind(scene->listen, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(scene->listen, 8), 0);
}

static void init_hello(struct board_scene *scene)
{
    scene->probe = 77;
    scene->hello = (struct muster_board_message){
        .magic = MUSTER_BOARD_MAGIC,
        .type = MUSTER_BOARD_HELLO,
        .bytes = SEGMENT_BYTES,
        .from = scene->other.incarnation,
        .to = scene->self.incarnation,
        .probe_at = (uint64_t)(uintptr_t)&scene->probe,
        .probe_value = 77,
        .job = "job",
    };
    scene->page.magic = MUSTER_BOARD_MAGIC;
    scene->page.incarnation = scene->other.incarnation;
    scene->page.segment_bytes = SEGMENT_BYTES;
    scene->file_bytes = SEGMENT_BYTES;
    scene->seals = SEALS;
    scene->fd_count = 2;
}

void board_scene_open(struct board_scene *scene, bool dials)
{
    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    scene->raw = scene->listen = -1;
    scene->self = member_of(dials ? 1 : 2);
    scene->other = member_of(dials ? 2 : 1);
    scene->descriptors = open_descriptors();
    if (dials)
        listen_as(scene, &scene->other);
    scene->board = board_of(scene, &scene->self);
    scene->board->events = &events;
    scene->board->events_data = scene;
    init_hello(scene);
    for (unsigned i = 0; i < FDS_MAX; i++)
        scene->fds[i] = -1;
}

void board_scene_close(struct board_scene *scene)
{
    muster_board_close(scene->board);
    scene->board = NULL;
    if (scene->raw >= 0)
        close(scene->raw);
    if (scene->listen >= 0)
        close(scene->listen);
    assert_int_equal(open_descriptors(), scene->descriptors);
    test_env_close(&scene->test);
    uid_more = 0;
}

void board_scene_turn(struct board_scene *scene)
{
    test_env_turn(&scene->test.env, 10);
}

/* --- The stranger --- */

void board_scene_knock(struct board_scene *scene)
{
    struct sockaddr_un address;
    socklen_t size = sizeof(address);

    assert_int_equal(
        getsockname(board_scene_system_of(scene)->socket, (struct sockaddr *)&address, &size), 0);
    scene->raw = raw_socket();
    assert_int_equal(connect(scene->raw, (struct sockaddr *)&address, size), 0);
    board_scene_turn(scene);
}

void board_scene_be_dialled(struct board_scene *scene)
{
    scene->raw = accept4(scene->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(scene->raw >= 0);
}

int board_scene_memory_file(const void *content, size_t content_bytes, size_t bytes, int seals)
{
    int fd = memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(pwrite(fd, content, content_bytes, 0), (ssize_t)content_bytes);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

void board_scene_say(struct board_scene *scene, const struct muster_board_message *message,
                     const int *fds, unsigned fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *at = NULL;

    if (fd_count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        at = CMSG_FIRSTHDR(&header);
        at->cmsg_level = SOL_SOCKET;
        at->cmsg_type = SCM_RIGHTS;
        at->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(at), fds, fd_count * sizeof(int));
    }
    (void)sendmsg(scene->raw, &header, MSG_NOSIGNAL);
    board_scene_turn(scene);
}

void board_scene_say_hello(struct board_scene *scene)
{
    scene->fds[0] =
        board_scene_memory_file(&scene->page, sizeof(scene->page), scene->file_bytes, scene->seals);
    scene->fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    scene->fds[2] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    board_scene_say(scene, &scene->hello, scene->fds, scene->fd_count);
    for (unsigned i = 0; i < FDS_MAX; i++)
        close(scene->fds[i]);
}

void board_scene_say_type(struct board_scene *scene, unsigned type)
{
    const struct muster_board_message message = {.magic = MUSTER_BOARD_MAGIC, .type = type};

    board_scene_say(scene, &message, NULL, 0);
}

unsigned board_scene_hear(struct board_scene *scene, struct muster_board_message *ret_message)
{
    ssize_t size = recv(scene->raw, ret_message, sizeof(*ret_message), 0);

    return size == (ssize_t)sizeof(*ret_message) ? ret_message->type : 0;
}

bool board_scene_has_hung_up(struct board_scene *scene)
{
    struct muster_board_message message;
    ssize_t size;

    do
        size = recv(scene->raw, &message, sizeof(message), 0);
    while (size > 0);
    return size == 0 || errno != EAGAIN;
}

void board_scene_ask_for_peer(struct board_scene *scene)
{
    assert_int_equal(muster_board_connect(scene->board, &scene->other, &scene->peer), MUSTER_OK);
    board_scene_turn(scene);
}

void board_scene_check_ready(struct board_scene *scene)
{
    board_scene_say_type(scene, MUSTER_BOARD_SHARES_END);
    board_scene_say_type(scene, MUSTER_BOARD_MAPPED);
    assert_true(scene->peer->is_ready);
    assert_false(scene->peer->is_failed);
}

void board_scene_open_met(struct board_scene *scene, bool dials)
{
    board_scene_open(scene, dials);
    board_scene_ask_for_peer(scene);
    if (dials)
        board_scene_be_dialled(scene);
    else
        board_scene_knock(scene);
}

void board_scene_open_ready(struct board_scene *scene)
{
    board_scene_open_met(scene, false);
    board_scene_say_hello(scene);
    board_scene_check_ready(scene);
}
