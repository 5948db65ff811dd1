/* Messages between this member and one other, apart from the order of the group. */
#ifndef MUSTER_COLLECTIVE_PAIR_H
#define MUSTER_COLLECTIVE_PAIR_H

#include "collective/group/group_internal.h"

struct muster_shm_shown;

/* Pieces on their way, beyond the last that the receiver is known to have. */
#define MUSTER_MESSAGE_WINDOW 4u
/* Sent without being asked for, and not known to have been received: of one pair. */
#define MUSTER_EAGER_BYTES_MAX ((size_t)1 << 20)
#define MUSTER_EAGER_COUNT_MAX 256u
/* op.step of frames of messages: this, the sender's rank << 31, the receiver's rank. No step of a
 * training loop. */
#define MUSTER_MESSAGE_STEP (UINT64_C(1) << 63)
/* Outcomes that the sender has not heard, of one lane of a pair. */
#define MUSTER_OUTCOMES_MAX 65536u

/** One direction of one lane. */
struct muster_pair_way {
    struct muster_list messages; /* open here, by sequence */
    uint32_t next;               /* sequence of the next start */
};

/** Another process. Of the pool; goes from epoch to epoch as long as both stay. */
struct muster_pair {
    struct muster_list node; /* group->pairs */
    struct muster_incarnation incarnation;
    uint64_t from_step; /* as of its entry in the view: another one is a new life */
    uint32_t rank;      /* in the group's view */
    char name[96];      /* "rank 3 (worker:3)", of the last view that had it */
    size_t eager_bytes; /* sent unasked, still open */
    uint32_t eager_count;
    size_t kept_bytes;           /* received before their time */
    struct muster_list kept;     /* struct muster_early, of all lanes */
    struct muster_list outcomes; /* struct muster_outcome: received ones that did not end with OK */
    uint32_t outcome_count;
    struct muster_pair_way sends[MUSTER_LANES_MAX], receives[MUSTER_LANES_MAX];
};

/** How a message that came to nothing has ended at its receiver; until the sender knows. */
struct muster_outcome {
    struct muster_list node;
    uint32_t lane, sequence;
    enum muster_rc rc; /* INVALID_ARGUMENT: dtype and count are what was expected */
    uint16_t dtype;
    uint64_t count;
};

/** One send or receive. Of the pool. */
struct muster_message {
    struct muster_list node; /* of its way */
    struct muster_group *group;
    struct muster_pair *pair;
    struct muster_op *op;
    struct muster_op_id id; /* of its frames in this epoch */
    uint32_t lane, sequence;
    bool is_send, is_eager;
    bool is_withdrawn; /* the receiver has been asked to give it up */
    enum muster_rc why;
    uint8_t *data;
    uint64_t count, bytes;
    enum muster_dtype dtype;
    size_t piece_bytes;
    uint32_t sent, allowed;    /* pieces */
    uint32_t received, beyond; /* all below; bit i = received + i */
    struct muster_timer timer;
    /* through boards: */
    uint64_t key;                 /* of its places */
    struct muster_list look_node; /* group->looking */
    uint64_t look_until_ns;       /* … until then */
    uint32_t looks;
    uint64_t copied;                /* bytes, by the receiver */
    bool is_copied;                 /* all of them */
    bool is_unreadable;             /* for the receiver: it wants pieces */
    struct muster_board *board;     /* the sender's … */
    struct muster_shm_shown *shown; /* … place there; NULL: none */
    struct muster_shm_stage stage;  /* its copy, or none */
    uint8_t *slot;                  /* its copy of a small one, or NULL */
    uint32_t slot_class;
};

/* pair.c */
/** Sequences wrap around: what is less than half of them behind is before. */
bool muster_message_is_before(uint32_t a, uint32_t b);
/** The pair with the member of that rank; NULL: no memory. */
struct muster_pair *muster_pair_get(struct muster_group *group, uint32_t rank);
struct muster_message *muster_pair_find(const struct muster_pair_way *way, uint32_t sequence);
struct muster_outcome *muster_pair_find_outcome(const struct muster_pair *pair, uint32_t lane,
                                                uint32_t sequence);
/** Remember how it ended. False: no memory, or too many. */
bool muster_pair_note_outcome(struct muster_group *group, struct muster_pair *pair,
                              const struct muster_outcome *outcome);
/** The sender has no open message before `sequence`. */
void muster_pair_forget_outcomes(struct muster_pair *pair, uint32_t lane, uint32_t sequence);
/** All that was kept, or what was for one message. */
void muster_pair_drop_kept(struct muster_pair *pair, const struct muster_message *message);
/** Hand it back; the text is in op->error unless rc is OK. */
void muster_message_end(struct muster_message *message, enum muster_rc rc);

void muster_pairs_stop(struct muster_group *group);
void muster_pairs_hand_over(struct muster_group *group, struct muster_group *next);
void muster_pairs_end(struct muster_group *group, const struct muster_error *why);
void muster_pairs_free(struct muster_group *group);
bool muster_pairs_are_busy(const struct muster_group *group);

/* message.c */
/** First news of it in this epoch. A receive may end in here. */
void muster_message_begin(struct muster_message *message);
/** Sequence of the first send of its lane to that member that is open. */
uint32_t muster_message_first_open(const struct muster_message *message);
void muster_message_pump(struct muster_message *message);
/** An OFFER; it says where the tensor is shown. */
void muster_message_offer(struct muster_message *message);
void muster_message_send_frame(const struct muster_message *message, enum muster_frame_type type,
                               uint32_t chunk, const void *payload, uint32_t bytes);
/** "send #3 to rank 1 (worker:1)" */
const char *muster_message_name(const struct muster_message *message, char *ret_text, size_t size);
uint32_t muster_message_pieces(const struct muster_message *message);

/* message_receive.c */
/** Use what came before the receive was started. It may end in here. */
void muster_message_replay(struct muster_message *message);
/** Everything is here: it ends, and the sender is told. */
void muster_message_complete(struct muster_message *message);
/** True: the sender's has another shape than the receiver's, which has ended. */
bool muster_message_has_mismatched(struct muster_message *message,
                                   const struct muster_frame_header *header);
/** A receive ends without a result, and the sender is told. */
void muster_message_give_up(struct muster_message *message, enum muster_rc rc);

/* collective/group/shm/message.c */
/** Show a send to its receiver. False: it goes in pieces. */
bool muster_message_show(struct muster_message *message);
bool muster_message_is_shown(const struct muster_message *message);
/** How its data reach the receiver: muster_op_result. */
const char *muster_message_input_name(const struct muster_message *message);
/** The caller gets its memory back: nobody may use what he reads there any more. */
void muster_message_hide(struct muster_message *message);
/** Look for the other's word on its board, for a while; then frames tell. A receive may end in here.
 * False: no boards. */
bool muster_message_look(struct muster_message *message);
/** Look for all that are looked for; count them. True: something moved. */
bool muster_messages_look(struct muster_group *group, uint32_t *ret_count);

#endif
