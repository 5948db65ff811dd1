/* Byte streams: connect, listen, read, write, close. Real sockets, TLS and simulated links look
 * alike. */
#ifndef MUSTER_STREAM_H
#define MUSTER_STREAM_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/status.h>

#include <sys/uio.h>

MUSTER_BEGIN

struct muster_stream;
struct muster_stream_write;
struct muster_stream_read;
struct muster_listener;
struct muster_connect;
struct muster_lookup;

typedef void muster_stream_write_fn(struct muster_stream_write *write, enum muster_rc rc);
typedef void muster_stream_read_fn(struct muster_stream_read *read, enum muster_rc rc);
typedef void muster_stream_close_fn(struct muster_stream *stream);

/** One gathered write. Caller's memory. */
struct muster_stream_write {
    void *data;
    size_t bytes_done; /* at the callback: bytes that the transport took */
    /* private */
    muster_stream_write_fn *done;
    const struct iovec *iov;
    size_t iov_count;
    size_t bytes_total;
    uint32_t sends_end; /* of a socket: the callback waits for its sends without a copy before it */
    struct muster_list node;
};

/** One read. Caller's memory; at most one is open per stream. */
struct muster_stream_read {
    void *data;
    size_t bytes_done; /* at the callback: bytes placed in the buffer (also on error and cancel) */
    bool is_eof;       /* rc UNAVAILABLE because the peer closed in order */
    /* private */
    muster_stream_read_fn *done;
    uint8_t *buffer;
    size_t bytes_min;
    size_t bytes_max;
};

struct muster_stream_ops {
    enum muster_rc (*submit)(struct muster_stream *stream, struct muster_stream_write *write);
    enum muster_rc (*receive)(struct muster_stream *stream, struct muster_stream_read *read);
    void (*cancel_write)(struct muster_stream *stream, struct muster_stream_write *write);
    void (*cancel_read)(struct muster_stream *stream, struct muster_stream_read *read);
    void (*shutdown)(struct muster_stream *stream);
    void (*close)(struct muster_stream *stream, muster_stream_close_fn *closed);
    const struct muster_address *(*peer)(const struct muster_stream *stream);
    const struct muster_address *(*local)(const struct muster_stream *stream);
    size_t (*take_now)(struct muster_stream *stream, void *buffer, size_t bytes_max);
    void (*unread)(struct muster_stream *stream, const void *bytes, size_t count);
    void (*set_zerocopy)(struct muster_stream *stream, size_t bytes_min); /* NULL: never does it */
    void (*set_user_timeout)(struct muster_stream *stream, uint32_t timeout_ms); /* NULL: as well */
    const struct muster_error *(*error)(const struct muster_stream *stream); /* NULL: never knows */
};

#define MUSTER_STREAM_UNREAD_MAX 64

/** Embed as the first field of an implementation. */
struct muster_stream {
    const struct muster_stream_ops *ops;
    void *data; /* the owner's */
};

/**
 * Queue iov after earlier writes; everything queued in one turn leaves in one system call
 * where possible.
 *
 * Owns:    borrows write, the iovec array and its bytes until done.
 * Errors:  returned FAILED_PRECONDITION (closed or shut down); by done UNAVAILABLE, CANCELLED.
 * Thread:  loop only; done never runs inside this call.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_stream_submit(struct muster_stream_write *write,
                                                                 struct muster_stream *stream,
                                                                 const struct iovec *iov,
                                                                 size_t iov_count,
                                                                 muster_stream_write_fn *done);

/**
 * Receive at least bytes_min (>= 1) and at most bytes_max bytes straight into buffer. From
 * within done the next receive may be started at once; the stream goes on reading in the same
 * turn within a budget.
 *
 * Owns:    borrows read and buffer until done.
 * Errors:  returned FAILED_PRECONDITION (closed, or a read is open); by done UNAVAILABLE (is_eof
 *          tells an orderly end; bytes_done may be > 0 then), CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_stream_receive_into(
    struct muster_stream_read *read, struct muster_stream *stream, void *buffer, size_t bytes_min,
    size_t bytes_max, muster_stream_read_fn *done);

/** Synchronous cancel for owners that re-plan: unlinks the read, no callback comes; returns
 * bytes placed. */
MUSTER_API size_t muster_stream_receive_recall(struct muster_stream_read *read,
                                               struct muster_stream *stream);

/** Synchronous cancel of a queued write: no callback comes. Returns bytes already taken by the
 * transport; a partly sent write leaves the byte stream in the middle: the owner must submit
 * the rest FIRST (the stream accepts one submit at the head of the queue right after a recall
 * of a partly sent write). */
MUSTER_API size_t muster_stream_submit_recall(struct muster_stream_write *write,
                                              struct muster_stream *stream);

/** Without waiting: take what is there (up to bytes_max) when no read is open. 0: nothing yet or
 * ended. */
MUSTER_API size_t muster_stream_take_now(struct muster_stream *stream, void *buffer,
                                         size_t bytes_max);

/** Push bytes back in front of what was not read yet (at most MUSTER_STREAM_UNREAD_MAX in all;
 * no read open): a port that looked at the first bytes hands the stream on as new. Copies. */
MUSTER_API void muster_stream_unread(struct muster_stream *stream, const void *bytes, size_t count);

/** From now on the kernel takes sends of at least bytes_min (0: none) from the writes' own memory,
 * without a copy (MSG_ZEROCOPY), and their callbacks come when it is done with it: about when the
 * peer has acknowledged them. A stream for which the kernel copies all the same turns it off by
 * itself. Only sockets of TCP do it; others go on as before. To recall a write that has begun may
 * then take 50 ms, and breaks the connection if the kernel keeps its memory longer; a close drops
 * what has not been acknowledged. */
MUSTER_API void muster_stream_set_zerocopy(struct muster_stream *stream, size_t bytes_min);

/** The connection ends when what was sent stays unacknowledged for so long (TCP_USER_TIMEOUT, 0: as
 * the kernel does). Streams that are no sockets of TCP go on as before. */
MUSTER_API void muster_stream_set_user_timeout(struct muster_stream *stream, uint32_t timeout_ms);

/** Why reads and writes fail, where the stream knows more than a code tells (TLS); NULL: it does
 * not. Borrowed from the stream. */
MUSTER_API const struct muster_error *muster_stream_error(const struct muster_stream *stream);

/** Send FIN once the queued writes are out; no submit afterwards. */
MUSTER_API void muster_stream_shutdown(struct muster_stream *stream);

/** Complete open requests with CANCELLED, then call closed (may be NULL) last; the stream is
 * freed after it. Queued bytes are dropped. */
MUSTER_API void muster_stream_close(struct muster_stream *stream, muster_stream_close_fn *closed);

MUSTER_API const struct muster_address *muster_stream_peer(const struct muster_stream *stream);
MUSTER_API const struct muster_address *muster_stream_local(const struct muster_stream *stream);

/* Connect. */
struct muster_stream_options {
    uint32_t send_buffer_bytes;    /* 0: the kernel's choice */
    uint32_t receive_buffer_bytes; /* 0: the kernel's choice */
    uint32_t user_timeout_ms;      /* TCP_USER_TIMEOUT, and TCP_KEEPIDLE of half of it; 0: none */
    bool is_bulk;                  /* leave Nagle's algorithm alone; default is TCP_NODELAY */
};

typedef void muster_connect_fn(struct muster_connect *connect, enum muster_rc rc);
struct muster_connect {
    void *data;
    struct muster_stream *stream; /* at done with OK: the caller's (gives) */
    struct muster_error error;    /* detail of a failure */
    /* private */
    muster_connect_fn *done;
    struct muster_address address;
    struct muster_timer timer;
    struct muster_net *net;
    void *impl;
};
/** deadline_ns is absolute loop time. By done: UNAVAILABLE (however the peer cannot be reached),
 * DEADLINE_EXCEEDED, CANCELLED, PERMISSION_DENIED. Returned: INVALID_ARGUMENT (no address, no net),
 * RESOURCE_EXHAUSTED (descriptors, memory). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_connect_start(
    struct muster_connect *connect, struct muster_net *net, const struct muster_address *address,
    const struct muster_stream_options *options, uint64_t deadline_ns, muster_connect_fn *done);
MUSTER_API void muster_connect_cancel(struct muster_connect *connect);

/* Listen. */
typedef void muster_listener_accept_fn(struct muster_listener *listener,
                                       struct muster_stream *stream);
typedef void muster_listener_close_fn(struct muster_listener *listener);
struct muster_listener_ops {
    const struct muster_address *(*address)(const struct muster_listener *listener);
    void (*close)(struct muster_listener *listener, muster_listener_close_fn *closed);
    void (*hold)(struct muster_listener *listener, bool is_held); /* NULL: it always accepts */
};
struct muster_listener {
    const struct muster_listener_ops *ops;
    void *data;
};
/** Bind and listen; port 0 takes a free one (see muster_listener_address). on_accept takes the
 * stream.
 * Errors:  ALREADY_EXISTS (address in use; the text names it), PERMISSION_DENIED, INVALID_ARGUMENT
 *          (also where net is NULL: env has none). Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_listener_open(
    struct muster_net *net, const struct muster_address *address,
    const struct muster_stream_options *options, muster_listener_accept_fn *on_accept, void *data,
    struct muster_listener **ret_listener, struct muster_error *ret_error);
MUSTER_API const struct muster_address *muster_listener_address(
    const struct muster_listener *listener);
/** While it is held nothing is accepted: clients connect and wait in the system's queue. */
MUSTER_API void muster_listener_hold(struct muster_listener *listener, bool is_held);
MUSTER_API void muster_listener_close(struct muster_listener *listener,
                                      muster_listener_close_fn *closed);

/* Names. */
#define MUSTER_LOOKUP_ADDRESSES_MAX 32
typedef void muster_lookup_fn(struct muster_lookup *lookup, enum muster_rc rc);
struct muster_lookup {
    void *data;
    struct muster_address addresses[MUSTER_LOOKUP_ADDRESSES_MAX];
    size_t address_count;
    struct muster_error error;
    /* private */
    muster_lookup_fn *done;
    struct muster_net *net;
    struct muster_timer timer;
    struct muster_task task;
    struct muster_list node;
    uint16_t port;
    bool is_cancelled;
    void *impl;
};
/** A and AAAA of host (ip text answers itself), each with port. NOT_FOUND, UNAVAILABLE,
 * DEADLINE_EXCEEDED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_lookup_start(struct muster_lookup *lookup,
                                                                struct muster_net *net,
                                                                const char *host, uint16_t port,
                                                                uint64_t deadline_ns,
                                                                muster_lookup_fn *done);
MUSTER_API void muster_lookup_cancel(struct muster_lookup *lookup);
/** The same for a start, where nothing else runs on env's loop yet: turns it until the answer is in
 * *ret_lookup, whose fields are valid whatever is returned. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_lookup_wait(struct muster_env *env,
                                                               const char *host, uint16_t port,
                                                               uint64_t deadline_ns,
                                                               struct muster_lookup *ret_lookup);

/* Addresses of this host. */
#define MUSTER_INTERFACE_ADDRESSES_MAX 16
/** The address, with port 0, that a connection from here to peer comes from. Nothing is sent.
 * UNAVAILABLE: no route leads there; UNIMPLEMENTED: net does not know. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_net_find_source(
    struct muster_net *net, const struct muster_address *peer, struct muster_address *ret_source,
    struct muster_error *ret_error);
/** The addresses, with port 0, of a network interface: IPv4 first, then IPv6, link-local ones last.
 * NOT_FOUND: it does not exist or has no address; UNIMPLEMENTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_net_find_interface(
    struct muster_net *net, const char *name,
    struct muster_address ret_addresses[MUSTER_INTERFACE_ADDRESSES_MAX], size_t *ret_count,
    struct muster_error *ret_error);
/** A socket of this host can be bound to the address, whatever its port. */
MUSTER_API bool muster_net_has_address(struct muster_net *net,
                                       const struct muster_address *address);

/** Functions that a network implementation provides. */
struct muster_net_ops {
    enum muster_rc (*connect)(struct muster_net *net, struct muster_connect *connect,
                              const struct muster_stream_options *options, uint64_t deadline_ns);
    void (*connect_cancel)(struct muster_net *net, struct muster_connect *connect);
    enum muster_rc (*listen)(struct muster_net *net, const struct muster_address *address,
                             const struct muster_stream_options *options,
                             muster_listener_accept_fn *on_accept, void *data,
                             struct muster_listener **ret_listener, struct muster_error *ret_error);
    enum muster_rc (*lookup)(struct muster_net *net, struct muster_lookup *lookup, const char *host,
                             uint64_t deadline_ns);
    void (*lookup_cancel)(struct muster_net *net, struct muster_lookup *lookup);
    /* These three may be NULL: the net does not know its host's addresses. */
    enum muster_rc (*find_source)(struct muster_net *net, const struct muster_address *peer,
                                  struct muster_address *ret_source,
                                  struct muster_error *ret_error);
    enum muster_rc (*find_interface)(
        struct muster_net *net, const char *name,
        struct muster_address ret_addresses[MUSTER_INTERFACE_ADDRESSES_MAX], size_t *ret_count,
        struct muster_error *ret_error);
    bool (*has_address)(struct muster_net *net, const struct muster_address *address);
};
struct muster_net {
    const struct muster_net_ops *ops;
};

/** Sockets of the operating system on env's loop. Borrows env. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_net_system_open(struct muster_env *env,
                                                                   struct muster_net **ret_net);
MUSTER_API void muster_net_system_close(struct muster_net *net);

/* Listening sockets that outlive a process: bound here or inherited, given to the next. */

/** Bind and listen without serving. Gives *ret_fd. Errors as muster_listener_open. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_net_system_bind(
    const struct muster_address *address, int *ret_fd, struct muster_error *ret_error);
/** Where a socket is bound. INVALID_ARGUMENT: it is no socket that listens. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_net_system_bound(
    int fd, struct muster_address *ret_address);
/** The next muster_listener_open of fd's own address (or of its host with port 0) serves on fd
 * instead of binding. One at a time: a former one that nobody asked for is closed. Takes fd. */
MUSTER_API void muster_net_system_adopt(struct muster_net *net, int fd);

/* Where a process listens, as users write it: an address, a host's or an interface's name, and a port
 * or a range of ports. */

struct muster_listen {
    char host[MUSTER_HOST_TEXT_BYTES]; /* as written, without brackets; "": every address */
    struct muster_address address;     /* family NONE: host is a name, or "" */
    uint16_t port_first, port_last;    /* 0 and 0: any free port */
};

/** ADDRESS[:PORT[-PORT]]: "10.0.0.1", "[fd00::1]:5000", "[fe80::1%eth0]", "node1:0", "eth0:5000-5099",
 * "0.0.0.0", "[::]:5000", ":5000-5099". Nothing is looked up. INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_listen_parse(const char *text,
                                                                struct muster_listen *ret_listen,
                                                                struct muster_error *ret_error);

/** Every address of this host is meant. */
MUSTER_API bool muster_listen_is_wildcard(const struct muster_listen *listen);
/** How many ports there are to choose from; 0: any. */
MUSTER_API uint32_t muster_listen_port_count(const struct muster_listen *listen);

/**
 * The address of this host that is meant, with port_first: of a name with several, one of `family`
 * if there is any (NONE: IPv4 first). Interfaces come before names of hosts. Turns env's loop while
 * a name is looked up, at most until deadline_ns. Not for wildcards.
 *
 * Errors: NOT_FOUND (no such name or interface), INVALID_ARGUMENT (not an address of this host),
 * UNAVAILABLE, DEADLINE_EXCEEDED; the text names the culprit.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_listen_find(
    struct muster_env *env, const struct muster_listen *listen, enum muster_address_family family,
    uint64_t deadline_ns, struct muster_address *ret_address, struct muster_error *ret_error);

MUSTER_END

#endif
