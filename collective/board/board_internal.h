/* Declarations that the files of the real board share. */
#ifndef MUSTER_COLLECTIVE_BOARD_INTERNAL_H
#define MUSTER_COLLECTIVE_BOARD_INTERNAL_H

#include "collective/board/system.h"
#include "runtime/system/host_share.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Threads that hold a word at the same time: the one that drives the loop, and those that drove it
 * before and still live. All words must fit into the first page; more threads than words only make
 * the board incomplete. */
#define MUSTER_BOARD_WORDS 8u
/* Both sides call connect when they install the same view, so the second call follows within the
 * skew of a view change. A peer that is later than this gets TCP instead. */
#define MUSTER_BOARD_TIMEOUT_NS (5 * MUSTER_NS_PER_S)

/* --- The first page of a board, as peers see it --- */

enum muster_word_state {
    MUSTER_WORD_UNUSED,   /* no thread has held it yet */
    MUSTER_WORD_HELD,     /* its thread may be writing the board */
    MUSTER_WORD_RELEASED, /* its thread ended, or the board was closed: free when unlocked */
};

/** A thread that writes the board holds one for life; the kernel marks it when the thread dies.
 *
 * The first int of the mutex is its futex word. Writers: the C library in the owning process (lock,
 * unlock), and the kernel, which sets FUTEX_OWNER_DIED in the context of the dying thread. Readers:
 * every peer, by an acquire load, and never by locking: the page is mapped read-only there. The
 * load pairs with the kernel's atomic exchange, so a reader that sees the mark sees all stores of
 * that thread. */
struct muster_board_word {
    _Alignas(64) pthread_mutex_t mutex; /* robust, shared between processes */
    /* enum muster_word_state. Writer: the thread that holds the mutex, by release stores: HELD
     * after it has locked, RELEASED before it unlocks. Readers: the peers and the owner, by acquire
     * loads that pair with these stores. A word is free only if it is not HELD and its futex is 0.
     */
    _Atomic uint32_t state;
};

/** The plain fields are written before the descriptor is passed to any peer; the socket orders
 * that. */
struct muster_board_page {
    uint64_t magic;
    struct muster_incarnation incarnation;
    uint64_t segment_bytes; /* with this page */
    /* Words ever used: the first ones; it never shrinks. Writer: the owner's thread that takes a
     * new word, by a release store after the word is HELD. Readers: the peers, by acquire loads: a
     * reader that sees the count sees the words below it as taken. */
    _Atomic uint32_t word_count;
    /* 1: the words do not tell all: more threads than words, or one that ended without the C
     * library. Writer: any thread of the owner, by a release store; it stays 1. Readers: the peers,
     * by an acquire load after the words; see die_with_others for what orders the two. */
    _Atomic uint32_t is_incomplete;
    struct muster_board_word words[MUSTER_BOARD_WORDS];
};

#define MUSTER_BOARD_MAGIC      UINT64_C(0x32647262746d756d)
#define MUSTER_BOARD_PAGE_BYTES ((size_t)4096)

_Static_assert(sizeof(struct muster_board_page) <= MUSTER_BOARD_PAGE_BYTES, "one page");

/* --- Messages: one per packet, always whole ---
 * Each side sends HELLO, its shares, SHARES_END. It is ready once it has had the peer's SHARES_END
 * (all of the peer's is mapped here) and the peer's MAPPED (all of its own is mapped there).
 */

enum muster_board_message_type {
    MUSTER_BOARD_HELLO = 1,    /* with descriptors: the segment, the eventfd */
    MUSTER_BOARD_SHARE,        /* with a descriptor */
    MUSTER_BOARD_SHARES_END,   /* the shares that there were at the HELLO have been told */
    MUSTER_BOARD_MAPPED,       /* answer to SHARES_END: the board is mapped */
    MUSTER_BOARD_SHARE_MAPPED, /* answer to SHARE */
    MUSTER_BOARD_SHARE_FAILED, /* the other answer */
    MUSTER_BOARD_SHARE_FREED,
};

struct muster_board_message {
    uint64_t magic;
    uint32_t type;
    uint32_t share;
    uint64_t bytes; /* HELLO: of the segment; SHARE: of it */
    /* HELLO only: */
    struct muster_incarnation from, to;
    uint64_t probe_at, probe_value; /* a word of the sender's address space */
    char job[MUSTER_JOB_NAME_BYTES];
};

#define MUSTER_BOARD_FDS_MAX 2u

/** A packet as it came. */
struct muster_board_packet {
    struct muster_board_message message;
    int fds[MUSTER_BOARD_FDS_MAX];
    unsigned fd_count;
    bool is_cut; /* descriptors were lost: this process may have no more */
};

/* --- The board --- */

struct muster_board_system;

/** A connection: of a peer, or unmatched, while nothing here has called connect for its process. */
struct muster_board_link {
    struct muster_board_system *board;
    struct muster_board_peer_system *peer; /* NULL: unmatched */
    struct muster_list node;               /* board->unmatched */
    int fd;
    pid_t pid; /* as the kernel says */
    struct muster_fd_watch watch;
    struct muster_timer timer; /* of an unmatched one */
    bool has_hello;            /* unmatched: it waits for connect in `hello` */
    struct muster_board_packet hello;
    struct muster_board_message *queue; /* to send, from queue_first on */
    size_t queue_first, queue_count, queue_capacity;
};

/** A share of a peer as this process has mapped it. */
struct muster_board_mapping {
    uint32_t number;
    uint8_t *memory;
    size_t bytes;
};

struct muster_board_peer_system {
    struct muster_board_peer peer;
    struct muster_member member;
    struct muster_board_link *link;
    struct muster_timer timer;            /* until ready or failed */
    struct muster_timer retry;            /* of connect */
    uint64_t retry_ns;                    /* the backoff's last wait */
    const struct muster_board_page *page; /* NULL: not mapped */
    size_t segment_bytes;
    int eventfd;
    struct muster_process_watch watch;
    bool is_watched;
    bool is_gone;   /* the kernel has said that its process has ended */
    bool has_end;   /* all its shares are mapped */
    bool is_mapped; /* it has said the same */
    bool is_news;   /* on_peer is due */
    pid_t pid;
    uint32_t *mapped; /* numbers of own shares that it has mapped, ascending */
    size_t mapped_count, mapped_capacity;
    struct muster_board_mapping *mappings; /* by number */
    size_t mapping_count, mapping_capacity;
};

struct muster_board_system {
    struct muster_board board;
    struct muster_env *env;
    char job[MUSTER_JOB_NAME_BYTES];
    struct muster_member self;
    struct muster_shares *shares;
    struct muster_share_listener listener;
    struct muster_shared_memory segment;
    struct muster_board_page *page;
    pthread_key_t key; /* of a thread: its word */
    bool has_words;    /* key and mutexes exist, so liveness_close is due */
    uint64_t probe;    /* random: a peer that reads it by process_vm_readv reads this process */
    int socket;        /* listens */
    struct muster_fd_watch socket_watch;
    struct muster_timer accept_timer; /* no descriptor was free */
    int eventfd;
    struct muster_fd_watch eventfd_watch;
    struct muster_list peers;
    struct muster_list unmatched; /* connections that no peer here has asked for */
    unsigned unmatched_count;
    struct muster_task task; /* calls on_peer */
    unsigned reading_count;  /* reading_start without reading_stop; above 0 nothing is unmapped */
    struct muster_list retired; /* mappings that were freed while somebody read */
};

static inline struct muster_board_system *muster_board_system_of(const struct muster_board *board)
{
    return (struct muster_board_system *)(uintptr_t)board;
}

static inline struct muster_board_peer_system *muster_board_peer_system_of(
    const struct muster_board_peer *peer)
{
    return (struct muster_board_peer_system *)(uintptr_t)peer;
}

/* collective/board/system.c */
struct muster_board_peer_system *muster_board_find_peer(
    const struct muster_board_system *board, const struct muster_incarnation *incarnation);
/** Its link is closed, memory stays; on_peer comes in the next turn. No-op when it has failed. */
void muster_board_peer_fail(struct muster_board_peer_system *peer, enum muster_rc rc,
                            const char *fmt, ...) MUSTER_PRINTF(3, 4);
/** Ready, if nothing is missing. */
void muster_board_peer_settle(struct muster_board_peer_system *peer);
/** on_peer comes in the next turn. */
void muster_board_peer_tell(struct muster_board_peer_system *peer);

/* collective/board/handshake.c */
/** The link is the peer's from now on: HELLO and shares go out. */
void muster_board_link_attach(struct muster_board_link *link,
                              struct muster_board_peer_system *peer);
/** A packet of an unmatched connection or of a peer. Takes its descriptors; the link may be gone
 * afterwards. */
void muster_board_receive(struct muster_board_link *link, struct muster_board_packet *packet);
/** The link has ended, or sent what it must not. It is closed, and its peer fails. */
void muster_board_link_fail(struct muster_board_link *link, const char *why);
/** The unmatched connection that has said to be this process, or NULL. */
struct muster_board_link *muster_board_find_unmatched(const struct muster_board_system *board,
                                                      const struct muster_incarnation *incarnation);

/* collective/board/socket.c */
/** Listen at the address that job and member determine. */
MUSTER_MUST_CHECK enum muster_rc muster_board_listen(struct muster_board_system *board,
                                                     struct muster_error *ret_error);
void muster_board_stop_listening(struct muster_board_system *board);
/** UNAVAILABLE: nobody listens (yet). RESOURCE_EXHAUSTED, PERMISSION_DENIED: of another user. */
MUSTER_MUST_CHECK enum muster_rc muster_board_dial(struct muster_board_system *board,
                                                   const struct muster_member *member,
                                                   struct muster_board_link **ret_link);
void muster_board_link_close(struct muster_board_link *link);
/** Read on (an unmatched connection is not read further after its HELLO). */
void muster_board_link_watch(struct muster_board_link *link, bool is_reading);
/** Queue and send as far as it goes; descriptors are looked up when the message leaves.
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_board_send(struct muster_board_link *link,
                                                   const struct muster_board_message *message);
void muster_board_packet_fini(struct muster_board_packet *packet);

/* collective/board/liveness.c */
MUSTER_MUST_CHECK enum muster_rc muster_board_liveness_open(struct muster_board_system *board);
/** The words of this thread are given back. False: other threads hold some, so the page must stay
 * mapped for good. */
bool muster_board_liveness_close(struct muster_board_system *board);
void muster_board_system_enter(struct muster_board *board);
bool muster_board_page_is_dead(const struct muster_board_page *page);

/* collective/board/share.c */
/** Tell the peer all shares that there are. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_board_tell_shares(struct muster_board_peer_system *peer);
void muster_board_on_share_new(void *data, const struct muster_share *share);
void muster_board_on_share_free(void *data, const struct muster_share *share);
/** Map what the peer has sent. False: it is not what it says, or cannot be mapped. */
bool muster_board_map_share(struct muster_board_peer_system *peer, uint32_t number, uint64_t bytes,
                            int fd);
void muster_board_unmap_share(struct muster_board_peer_system *peer, uint32_t number);
void muster_board_unmap_all(struct muster_board_peer_system *peer);
/** The peer has said that it maps an own share. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_board_note_mapped(struct muster_board_peer_system *peer,
                                                          uint32_t number);
/** Read-only, of a memfd whose owner can neither shrink it nor let others write it; NULL: it is no
 * such thing. */
void *muster_board_map(int fd, uint64_t bytes);
bool muster_board_system_find_share(struct muster_board *board, const void *at, size_t bytes,
                                    uint32_t *ret_share, uint64_t *ret_offset);
bool muster_board_system_is_share_mapped(const struct muster_board *board, uint32_t share,
                                         const struct muster_board_peer *peer);
const uint8_t *muster_board_system_share_at(const struct muster_board_peer *peer, uint32_t share,
                                            uint64_t offset, size_t bytes);
void muster_board_system_reading_start(struct muster_board *board);
void muster_board_system_reading_stop(struct muster_board *board);
enum muster_rc muster_board_system_share_new(struct muster_board *board, size_t bytes,
                                             void **ret_at);
void muster_board_system_share_free(struct muster_board *board, void *at);

/* collective/board/reach.c */
/** Read the word that the peer's HELLO names: sets can_read_memory, or read_why. */
void muster_board_probe(struct muster_board_peer_system *peer, uint64_t at, uint64_t value);
enum muster_rc muster_board_system_read_memory(const struct muster_board_peer *peer, uint64_t at,
                                               void *ret_bytes, size_t bytes);
bool muster_board_system_reader_of(const struct muster_board_peer *base,
                                   struct muster_board_reader *ret_reader);

#endif
