/* Listening and connecting on sockets: addresses, options, unix paths, shortages. */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/stream/net_internal.h"

#define ACCEPTED_MAX 128

struct fixture {
    struct test_env test;
    struct muster_listener *listener;
    struct muster_stream *accepted[ACCEPTED_MAX];
    unsigned accepted_count;
    unsigned close_count; /* closes that are not done */
    char folder[64];
    char path[96]; /* of a unix socket in folder */
};

struct dial {
    struct muster_connect connect;
    unsigned done_count;
    enum muster_rc rc;
};

static int set_up(void **state)
{
    static struct fixture fixture;

    memset(&fixture, 0, sizeof(fixture));
    test_env_open(&fixture.test);
    assert_int_equal(muster_net_system_open(&fixture.test.env, &fixture.test.env.net), MUSTER_OK);
    snprintf(fixture.folder, sizeof(fixture.folder), "/tmp/muster-listener-XXXXXX");
    assert_non_null(mkdtemp(fixture.folder));
    snprintf(fixture.path, sizeof(fixture.path), "%s/socket", fixture.folder);
    *state = &fixture;
    return 0;
}

static void on_stream_closed(struct muster_stream *stream)
{
    ((struct fixture *)stream->data)->close_count--;
}

static void on_listener_closed(struct muster_listener *listener)
{
    ((struct fixture *)listener->data)->close_count--;
}

static void close_stream(struct fixture *fixture, struct muster_stream *stream)
{
    fixture->close_count++;
    stream->data = fixture;
    muster_stream_close(stream, on_stream_closed);
}

static void close_listener(struct fixture *fixture)
{
    fixture->close_count++;
    muster_listener_close(fixture->listener, on_listener_closed);
    fixture->listener = NULL;
}

static bool is_all_closed(void *data)
{
    return ((struct fixture *)data)->close_count == 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    if (fixture->listener != NULL)
        close_listener(fixture);
    while (fixture->accepted_count > 0)
        close_stream(fixture, fixture->accepted[--fixture->accepted_count]);
    test_env_run_until(&fixture->test.env, is_all_closed, fixture);
    (void)unlink(fixture->path);
    assert_int_equal(rmdir(fixture->folder), 0);
    muster_net_system_close(fixture->test.env.net);
    test_env_close(&fixture->test);
    return 0;
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct fixture *fixture = listener->data;

    assert_true(fixture->accepted_count < ACCEPTED_MAX);
    fixture->accepted[fixture->accepted_count++] = stream;
}

static struct muster_address address_of(const char *text)
{
    struct muster_address address;

    assert_int_equal(muster_address_parse(text, &address, NULL), MUSTER_OK);
    return address;
}

static struct muster_address unix_address(const struct fixture *fixture)
{
    char text[128];

    snprintf(text, sizeof(text), "unix:%s", fixture->path);
    return address_of(text);
}

static enum muster_rc try_listen(struct fixture *fixture, const struct muster_address *address,
                                 struct muster_error *ret_error)
{
    return muster_listener_open(fixture->test.env.net, address, NULL, on_accept, fixture,
                                &fixture->listener, ret_error);
}

static void listen_on(struct fixture *fixture, const struct muster_address *address)
{
    struct muster_error error = {.text = ""};

    if (try_listen(fixture, address, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

/* On loopback; gives the address with its port. */
static struct muster_address listen_anywhere(struct fixture *fixture)
{
    struct muster_address address = address_of("127.0.0.1:0");

    listen_on(fixture, &address);
    return *muster_listener_address(fixture->listener);
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct dial *dial = connect->data;

    dial->done_count++;
    dial->rc = rc;
}

static bool is_done(void *data)
{
    return ((struct dial *)data)->done_count > 0;
}

static void start_dial(struct fixture *fixture, struct dial *dial,
                       const struct muster_address *address,
                       const struct muster_stream_options *options, uint64_t deadline_ns)
{
    memset(dial, 0, sizeof(*dial));
    dial->connect.data = dial;
    assert_int_equal(muster_connect_start(&dial->connect, fixture->test.env.net, address, options,
                                          deadline_ns, on_connect),
                     MUSTER_OK);
    assert_int_equal(dial->done_count, 0);
}

static enum muster_rc dial_run(struct fixture *fixture, struct dial *dial,
                               const struct muster_address *address,
                               const struct muster_stream_options *options)
{
    start_dial(fixture, dial, address, options, UINT64_MAX);
    test_env_run_until(&fixture->test.env, is_done, dial);
    assert_int_equal(dial->done_count, 1);
    return dial->rc;
}

static bool has_accepted(void *data)
{
    return ((struct fixture *)data)->accepted_count > 0;
}

static struct muster_stream *wait_accept(struct fixture *fixture)
{
    test_env_run_until(&fixture->test.env, has_accepted, fixture);
    return fixture->accepted[fixture->accepted_count - 1];
}

static bool is_listening(const struct muster_address *address)
{
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(address, &sockaddr);
    int fd = socket(sockaddr.any.sa_family, SOCK_STREAM, 0);
    bool is_connected = connect(fd, &sockaddr.any, length) == 0;

    close(fd);
    return is_connected;
}

/* Addresses. */

static void both_sides_agree_on_the_addresses(void **state)
{
    static const char *const texts[] = {"127.0.0.1:0", "[::1]:0"};
    struct fixture *fixture = *state;
    size_t i;

    for (i = 0; i < 2; i++) {
        struct muster_address wanted = address_of(texts[i]);
        struct muster_stream *accepted;
        struct dial client;

        listen_on(fixture, &wanted);
        wanted = *muster_listener_address(fixture->listener);
        assert_true(wanted.port != 0);
        assert_int_equal(dial_run(fixture, &client, &wanted, NULL), MUSTER_OK);
        accepted = wait_accept(fixture);

        assert_true(muster_address_is_equal(muster_stream_peer(client.connect.stream), &wanted));
        assert_true(muster_address_is_equal(muster_stream_local(accepted), &wanted));
        assert_true(muster_address_is_equal(muster_stream_peer(accepted),
                                            muster_stream_local(client.connect.stream)));
        close_stream(fixture, client.connect.stream);
        close_stream(fixture, fixture->accepted[--fixture->accepted_count]);
        close_listener(fixture);
    }
}

static void ipv4_client_of_an_ipv6_listener_has_an_ipv4_address(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address any = address_of("[::]:0");
    struct muster_address loopback = address_of("127.0.0.1:0");
    struct dial client;

    listen_on(fixture, &any);
    loopback.port = muster_listener_address(fixture->listener)->port;
    assert_int_equal(dial_run(fixture, &client, &loopback, NULL), MUSTER_OK);
    close_stream(fixture, client.connect.stream);

    assert_int_equal(muster_stream_peer(wait_accept(fixture))->family, MUSTER_ADDRESS_IPV4);
}

static void address_in_use_is_named(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = listen_anywhere(fixture);
    struct muster_listener *second;
    struct muster_error error;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    assert_int_equal(muster_listener_open(fixture->test.env.net, &address, NULL, on_accept, NULL,
                                          &second, &error),
                     MUSTER_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, muster_address_format(&address, text)));
    assert_int_equal(error.sys, EADDRINUSE);
}

static void port_can_be_taken_again_right_after_close(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = listen_anywhere(fixture);
    struct dial client;

    assert_int_equal(dial_run(fixture, &client, &address, NULL), MUSTER_OK);
    close_stream(fixture, wait_accept(fixture)); /* this side closes first: TIME_WAIT is here */
    fixture->accepted_count = 0;
    close_listener(fixture);
    test_env_run_until(&fixture->test.env, is_all_closed, fixture);
    listen_on(fixture, &address);

    assert_true(is_listening(&address));
    close_stream(fixture, client.connect.stream);
}

/* As a process that inherits the socket: who connected before it is served. */
static void an_adopted_socket_is_served_with_those_who_wait(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address any = address_of("127.0.0.1:0"), bound, other = address_of("127.0.0.2:0");
    struct dial client;
    int fd = -1;

    assert_int_equal(muster_net_system_bind(&any, &fd, NULL), MUSTER_OK);
    assert_int_equal(muster_net_system_bound(fd, &bound), MUSTER_OK);
    assert_int_equal(dial_run(fixture, &client, &bound, NULL), MUSTER_OK);
    muster_net_system_adopt(fixture->test.env.net, fd);
    listen_on(fixture, &other); /* not that one */
    assert_int_not_equal(muster_listener_address(fixture->listener)->port, bound.port);
    close_listener(fixture);
    listen_on(fixture, &any);

    assert_true(muster_address_is_equal(muster_listener_address(fixture->listener), &bound));
    close_stream(fixture, wait_accept(fixture));
    fixture->accepted_count = 0;
    close_stream(fixture, client.connect.stream);
}

static void what_does_not_listen_is_no_listening_socket(void **state)
{
    struct muster_address address;

    (void)state;
    assert_int_equal(muster_net_system_bound(STDIN_FILENO, &address), MUSTER_INVALID_ARGUMENT);
}

/* Unix sockets. */

static void unix_path_disappears_with_its_listener(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    struct dial client;

    listen_on(fixture, &address);
    assert_int_equal(dial_run(fixture, &client, &address, NULL), MUSTER_OK);
    assert_true(muster_address_is_equal(muster_stream_peer(client.connect.stream), &address));
    assert_string_equal(muster_stream_peer(wait_accept(fixture))->path, "");
    close_stream(fixture, client.connect.stream);
    close_listener(fixture);

    assert_int_equal(access(fixture->path, F_OK), -1);
}

static void dead_unix_socket_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    static const struct muster_stream_options defaults = {.send_buffer_bytes = 0};
    int fd;

    assert_int_equal(muster_socket_listen(&address, &defaults, &fd, NULL), MUSTER_OK);
    close(fd); /* a process that died leaves its path */
    assert_int_equal(access(fixture->path, F_OK), 0);
    listen_on(fixture, &address);

    assert_true(is_listening(&address));
}

static void living_unix_socket_is_not_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    struct muster_listener *second;
    struct muster_error error;

    listen_on(fixture, &address);
    assert_int_equal(muster_listener_open(fixture->test.env.net, &address, NULL, on_accept, NULL,
                                          &second, &error),
                     MUSTER_ALREADY_EXISTS);

    assert_non_null(strstr(error.text, fixture->path));
    assert_true(is_listening(&address));
}

static void file_at_the_unix_path_is_not_removed(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    struct muster_error error;
    int fd = open(fixture->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    close(fd);
    assert_int_equal(try_listen(fixture, &address, &error), MUSTER_ALREADY_EXISTS);

    assert_int_equal(access(fixture->path, F_OK), 0);
}

static void path_that_became_another_listeners_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    struct muster_listener *first;

    listen_on(fixture, &address);
    first = fixture->listener;
    assert_int_equal(unlink(fixture->path), 0);
    listen_on(fixture, &address);
    fixture->close_count++;
    muster_listener_close(first, on_listener_closed);

    assert_true(is_listening(&address));
}

static void abstract_unix_name_works_without_a_file(void **state)
{
    struct fixture *fixture = *state;
    char text[128];
    struct muster_address address;
    struct dial client;

    snprintf(text, sizeof(text), "unix:@muster-test-%ld", (long)getpid());
    address = address_of(text);
    listen_on(fixture, &address);
    assert_true(muster_address_is_equal(muster_listener_address(fixture->listener), &address));
    assert_int_equal(dial_run(fixture, &client, &address, NULL), MUSTER_OK);

    close_stream(fixture, client.connect.stream);
}

/* Connecting. */

static void refused_connect_is_unavailable_and_named(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = listen_anywhere(fixture);
    struct muster_address gone = unix_address(fixture);
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct dial client;

    close_listener(fixture);
    assert_int_equal(dial_run(fixture, &client, &address, NULL), MUSTER_UNAVAILABLE);
    assert_null(client.connect.stream);
    assert_int_equal(client.connect.error.sys, ECONNREFUSED);
    assert_non_null(strstr(client.connect.error.text, muster_address_format(&address, text)));

    assert_int_equal(dial_run(fixture, &client, &gone, NULL), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(client.connect.error.text, fixture->path));
}

/* A program may have closed its input: then its first socket has the descriptor 0. */
static void refused_connect_gives_descriptor_0_back(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address gone = unix_address(fixture);
    int input = dup(STDIN_FILENO);
    struct dial client;
    int is_open;

    close(STDIN_FILENO);
    start_dial(fixture, &client, &gone, NULL, UINT64_MAX);
    is_open = fcntl(STDIN_FILENO, F_GETFD) != -1;
    test_env_run_until(&fixture->test.env, is_done, &client);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    close(input);

    assert_true(is_open);
    assert_int_equal(client.rc, MUSTER_UNAVAILABLE);
}

/* A unix listener whose backlog is full: connects hang until somebody accepts. */
static int open_full_backlog(const struct muster_address *address, int *ret_pending)
{
    static const struct muster_stream_options defaults = {.send_buffer_bytes = 0};
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(address, &sockaddr);
    int fd;

    assert_int_equal(muster_socket_listen(address, &defaults, &fd, NULL), MUSTER_OK);
    assert_int_equal(listen(fd, 0), 0);
    *ret_pending = muster_socket_new(MUSTER_ADDRESS_UNIX, &defaults);
    assert_int_equal(connect(*ret_pending, &sockaddr.any, length), 0);
    return fd;
}

/* The probe whether anybody listens there meets EAGAIN, which is not what the caller is told. */
static void a_unix_socket_with_a_full_backlog_is_in_use(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    struct muster_error error;
    int pending;
    int fd = open_full_backlog(&address, &pending);

    assert_int_equal(try_listen(fixture, &address, &error), MUSTER_ALREADY_EXISTS);
    assert_int_equal(error.sys, EADDRINUSE);
    assert_int_equal(access(fixture->path, F_OK), 0);
    close(pending);
    close(fd);
}

static void connect_ends_at_its_deadline(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    struct dial client;
    int pending;
    int fd = open_full_backlog(&address, &pending);

    start_dial(fixture, &client, &address, NULL,
               muster_loop_after_ns(fixture->test.env.loop, 20 * MUSTER_NS_PER_MS));
    test_env_run_until(&fixture->test.env, is_done, &client);

    assert_int_equal(client.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(client.connect.error.text, fixture->path));
    close(pending);
    close(fd);
}

static void connect_waits_for_room_in_a_full_backlog(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = unix_address(fixture);
    struct dial client;
    int pending, accepted;
    int fd = open_full_backlog(&address, &pending);

    start_dial(fixture, &client, &address, NULL, UINT64_MAX);
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(client.done_count, 0);
    accepted = accept(fd, NULL, NULL);
    test_env_run_until(&fixture->test.env, is_done, &client);

    assert_int_equal(client.rc, MUSTER_OK);
    close_stream(fixture, client.connect.stream);
    close(accepted);
    close(pending);
    close(fd);
}

static void cancelled_connect_calls_back_once_and_later(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = listen_anywhere(fixture);
    struct dial client;

    start_dial(fixture, &client, &address, NULL, UINT64_MAX);
    muster_connect_cancel(&client.connect);
    muster_connect_cancel(&client.connect);
    assert_int_equal(client.done_count, 0);
    test_env_run_until(&fixture->test.env, is_done, &client);
    muster_connect_cancel(&client.connect);
    test_env_turn(&fixture->test.env, 3);

    assert_int_equal(client.done_count, 1);
    assert_int_equal(client.rc, MUSTER_CANCELLED);
    assert_null(client.connect.stream);
}

static void connect_without_an_address_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address none = {.family = MUSTER_ADDRESS_NONE};
    struct dial client;

    assert_int_equal(muster_connect_start(&client.connect, fixture->test.env.net, &none, NULL,
                                          UINT64_MAX, on_connect),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(try_listen(fixture, &none, NULL), MUSTER_INVALID_ARGUMENT);
}

static int find_fd(const struct muster_stream *stream)
{
    int fd;

    for (fd = 3; fd < 256; fd++) {
        struct muster_address local = muster_socket_local(fd);
        struct muster_address peer = muster_socket_peer(fd);

        if (muster_address_is_equal(&local, muster_stream_local(stream)) &&
            muster_address_is_equal(&peer, muster_stream_peer(stream)))
            return fd;
    }
    fail_msg("no descriptor has the stream's addresses");
    return -1;
}

static int option_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof(value);

    assert_int_equal(getsockopt(fd, level, name, &value, &length), 0);
    return value;
}

static void options_reach_the_sockets_of_both_sides(void **state)
{
    static const struct muster_stream_options options = {
        .send_buffer_bytes = 64 * 1024, .receive_buffer_bytes = 32 * 1024, .user_timeout_ms = 5000};
    static const struct muster_stream_options bulk = {.is_bulk = true};
    struct fixture *fixture = *state;
    struct muster_address address = address_of("127.0.0.1:0");
    struct dial clients[2];
    int fds[2];
    size_t i;

    assert_int_equal(muster_listener_open(fixture->test.env.net, &address, &options, on_accept,
                                          fixture, &fixture->listener, NULL),
                     MUSTER_OK);
    address = *muster_listener_address(fixture->listener);
    assert_int_equal(dial_run(fixture, &clients[0], &address, &options), MUSTER_OK);
    fds[0] = find_fd(clients[0].connect.stream);
    fds[1] = find_fd(wait_accept(fixture));
    for (i = 0; i < 2; i++) {
        assert_int_equal(option_of(fds[i], IPPROTO_TCP, TCP_NODELAY), 1);
        assert_int_equal(option_of(fds[i], IPPROTO_TCP, TCP_USER_TIMEOUT), 5000);
        assert_int_equal(option_of(fds[i], SOL_SOCKET, SO_KEEPALIVE), 1);
        assert_int_equal(option_of(fds[i], IPPROTO_TCP, TCP_KEEPIDLE), 2);
        assert_int_equal(option_of(fds[i], SOL_SOCKET, SO_SNDBUF), 2 * 64 * 1024);
        assert_int_equal(option_of(fds[i], SOL_SOCKET, SO_RCVBUF), 2 * 32 * 1024);
        assert_int_equal(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        assert_int_equal(fcntl(fds[i], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    }

    assert_int_equal(dial_run(fixture, &clients[1], &address, &bulk), MUSTER_OK);
    assert_int_equal(option_of(find_fd(clients[1].connect.stream), IPPROTO_TCP, TCP_NODELAY), 0);
    close_stream(fixture, clients[0].connect.stream);
    close_stream(fixture, clients[1].connect.stream);
}

/* Accepting. */

static void close_on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct fixture *fixture = listener->data;

    on_accept(listener, stream);
    close_listener(fixture);
}

static void listener_may_be_closed_in_its_callback(void **state)
{
    struct fixture *fixture = *state;
    struct muster_address address = address_of("127.0.0.1:0");
    struct dial clients[2];
    size_t i;

    assert_int_equal(muster_listener_open(fixture->test.env.net, &address, NULL, close_on_accept,
                                          fixture, &fixture->listener, NULL),
                     MUSTER_OK);
    address = *muster_listener_address(fixture->listener);
    for (i = 0; i < 2; i++)
        start_dial(fixture, &clients[i], &address, NULL, UINT64_MAX);
    (void)wait_accept(fixture);
    for (i = 0; i < 2; i++) {
        test_env_run_until(&fixture->test.env, is_done, &clients[i]);
        if (clients[i].connect.stream != NULL)
            close_stream(fixture, clients[i].connect.stream);
    }

    assert_int_equal(fixture->accepted_count, 1);
}

static unsigned warning_count;

static void count_warning(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                          const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)wall_ns;
    (void)fields;
    (void)count;
    if (level == MUSTER_LOG_WARN && strcmp(event, "accept_failed") == 0)
        warning_count++;
}

static void listener_without_descriptors_backs_off_and_recovers(void **state)
{
    static const struct muster_log_ops log_ops = {.write = count_warning};
    struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
    struct fixture *fixture = *state;
    struct muster_loop *loop = fixture->test.env.loop;
    struct muster_address address = address_of("127.0.0.1:0");
    struct rlimit before, low;
    struct dial client;
    uint64_t start_ns;

    fixture->test.env.log = &log;
    warning_count = 0;
    listen_on(fixture, &address);
    address = *muster_listener_address(fixture->listener);
    start_dial(fixture, &client, &address, NULL, UINT64_MAX); /* the kernel completes it alone */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    test_env_run_until(&fixture->test.env, is_done, &client);
    while (warning_count == 0)
        muster_loop_turn(loop, UINT64_MAX);
    assert_int_equal(fixture->accepted_count, 0);

    start_ns = muster_loop_now_ns(loop); /* asleep although a connection waits */
    muster_loop_turn(loop, 2 * MUSTER_NS_PER_MS);
    assert_true(muster_loop_now_ns(loop) - start_ns >= 2 * MUSTER_NS_PER_MS);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    (void)wait_accept(fixture);

    assert_int_equal(warning_count, 1);
    close_stream(fixture, client.connect.stream);
}

static void burst_of_connections_is_accepted_completely(void **state)
{
    enum { CLIENTS = 100 };
    struct fixture *fixture = *state;
    struct muster_address address = listen_anywhere(fixture);
    static struct dial clients[CLIENTS];
    size_t i;

    for (i = 0; i < CLIENTS; i++)
        start_dial(fixture, &clients[i], &address, NULL, UINT64_MAX);
    for (i = 0; i < CLIENTS; i++) {
        test_env_run_until(&fixture->test.env, is_done, &clients[i]);
        assert_int_equal(clients[i].rc, MUSTER_OK);
        close_stream(fixture, clients[i].connect.stream);
    }
    while (fixture->accepted_count < CLIENTS)
        muster_loop_turn(fixture->test.env.loop, UINT64_MAX);

    assert_int_equal(fixture->accepted_count, CLIENTS);
}

static void run_listen(struct torture *torture, const void *data)
{
    struct fixture *fixture = (struct fixture *)(uintptr_t)data;
    struct muster_address address = address_of("127.0.0.1:0");
    struct muster_error error;
    struct dial client = {.done_count = 0};
    enum muster_rc rc;

    client.connect.data = &client;
    torture_arm_limited(torture, &fixture->test.mem);
    rc = try_listen(fixture, &address, &error);
    if (rc == MUSTER_OK) {
        address = *muster_listener_address(fixture->listener);
        rc = muster_connect_start(&client.connect, fixture->test.env.net, &address, NULL,
                                  UINT64_MAX, on_connect);
    }
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK) {
        test_env_run_until(&fixture->test.env, is_done, &client);
        close_stream(fixture, client.connect.stream);
    }
    if (fixture->listener != NULL)
        close_listener(fixture);
}

static void lack_of_memory_is_told_and_leaks_nothing(void **state)
{
    torture_run(&(struct torture_scenario){.name = "listen", .run = run_listen, .data = *state});
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(both_sides_agree_on_the_addresses),
        CASE(ipv4_client_of_an_ipv6_listener_has_an_ipv4_address),
        CASE(address_in_use_is_named),
        CASE(port_can_be_taken_again_right_after_close),
        CASE(an_adopted_socket_is_served_with_those_who_wait),
        CASE(what_does_not_listen_is_no_listening_socket),
        CASE(unix_path_disappears_with_its_listener),
        CASE(dead_unix_socket_is_replaced),
        CASE(living_unix_socket_is_not_replaced),
        CASE(a_unix_socket_with_a_full_backlog_is_in_use),
        CASE(file_at_the_unix_path_is_not_removed),
        CASE(path_that_became_another_listeners_is_left_alone),
        CASE(abstract_unix_name_works_without_a_file),
        CASE(refused_connect_is_unavailable_and_named),
        CASE(refused_connect_gives_descriptor_0_back),
        CASE(connect_ends_at_its_deadline),
        CASE(connect_waits_for_room_in_a_full_backlog),
        CASE(cancelled_connect_calls_back_once_and_later),
        CASE(connect_without_an_address_is_refused),
        CASE(options_reach_the_sockets_of_both_sides),
        CASE(listener_may_be_closed_in_its_callback),
        CASE(listener_without_descriptors_backs_off_and_recovers),
        CASE(burst_of_connections_is_accepted_completely),
        CASE(lack_of_memory_is_told_and_leaks_nothing),
    };

    return cmocka_run_group_tests_name("listener_socket", tests, NULL, NULL);
}
