/* A training loop in a simulated process: begin, all_reduce, update, commit, with every result
 * checked. */
#ifndef MUSTER_SIM_TRAINEE_H
#define MUSTER_SIM_TRAINEE_H

#include <muster/collective.h>

#include "tests/sim/ledger.h"
#include "tests/sim/world.h"

#define TRAINEE_OPS_MAX     3
#define TRAINEE_STATE_COUNT 40 /* elements of the training state */

struct trainee;

/** Questions of the loop to the keeper of its membership. `keeper` is trainee->keeper. */
struct trainee_keeper_ops {
    /* The group to start operations on. */
    struct muster_group *(*group)(void *keeper);
    /* The epoch that this process is a member of now; 0: none. */
    uint64_t (*epoch)(void *keeper);
    /* The step may begin, and the state may change; NULL: always, but the
     * state changes after the first result. */
    bool (*may_begin)(void *keeper, uint64_t step);
    void (*begin_step)(void *keeper, uint64_t step);
    void (*commit_step)(void *keeper, uint64_t step);
    /* A result is about to be seen. */
    void (*touch)(void *keeper);
    /* Between two steps, after trainee_wish_leave: the loop has stopped. */
    void (*may_leave)(void *keeper);
    /* Memory that peers map; NULL: none, also where there is no such verb. */
    void *(*share)(void *keeper, size_t bytes);
    void (*unshare)(void *keeper, void *memory);
    /* With may_starve: an operation was refused for want of memory; there is some again. */
    void (*feed)(void *keeper);
};

/** The kind of a reduction. */
enum trainee_flavour {
    TRAINEE_SUM,
    TRAINEE_WEIGHTED, /* all_reduce: the mean by weight */
    TRAINEE_USER,     /* all_reduce: a function of the program's own, not commutative */
};

struct trainee_op;
typedef void trainee_op_fn(struct trainee_op *op);
struct trainee_op {
    struct trainee *trainee;
    struct muster_op op;
    struct muster_op_id id; /* expected */
    uint64_t epoch;         /* in which it was started */
    uint64_t shape;         /* what is done: the same on every rank */
    enum trainee_flavour flavour;
    bool is_unfit;      /* every member may have chosen another root */
    uint64_t part;      /* elements of an even part; uneven ones are multiples of it */
    uint32_t n, place;  /* of the participants when it was started; this one's place */
    uint32_t root_life; /* kinds with a root */
    enum muster_op_kind kind;
    enum trainee_op_state {
        TRAINEE_OP_NONE,
        TRAINEE_OP_OPEN,
        TRAINEE_OP_OK,
        TRAINEE_OP_FAILED
    } state;
    struct muster_tensor input, output; /* one and the same where the operation is in place */
    bool is_shared;                     /* peers map the input */
    void *saved;                        /* the input as it was */
    trainee_op_fn *done;
};

/** A message to or from another member. */
#define TRAINEE_ASIDES_MAX 5
#define TRAINEE_MAILS_MAX  32
#define TRAINEE_MAIL_COUNT 300
struct trainee_mail {
    struct trainee *trainee;
    struct muster_op op;
    uint64_t step, count;
    uint32_t peer_life;
    bool is_send, is_open;
    int64_t values[TRAINEE_MAIL_COUNT];
};

/** A list of tensors as one operation. */
#define TRAINEE_LIST_MAX 6
struct trainee_list {
    struct trainee *trainee;
    struct muster_list_op op;
    uint64_t epoch, step, shape;
    bool is_open, is_broadcast;
    uint32_t count;
    struct muster_tensor tensors[TRAINEE_LIST_MAX];
    void *memory; /* of all of them, in drawn order, with gaps or without */
};

struct trainee {
    struct sim_world *world;
    struct ledger *ledger;
    struct muster_env *env;
    uint32_t life, color;
    uint64_t seed; /* of the run: shapes follow from it */
    const struct trainee_keeper_ops *ops;
    void *keeper;
    int64_t state[TRAINEE_STATE_COUNT];
    uint64_t step;      /* under way; 0: none */
    bool has_begun;     /* that step; else it waits until it may */
    uint64_t committed; /* last */
    bool is_running, wants_leave, may_cancel;
    bool may_starve;   /* operations may be refused, or end, for want of memory */
    bool is_ending;    /* its keeper is being closed */
    uint32_t sequence; /* of the next operation in this step */
    uint32_t op_count, issued, done_count; /* of this round */
    struct trainee_op slots[TRAINEE_OPS_MAX];
    bool has_mail;                   /* steps have messages too */
    uint32_t mail_count, aside_open; /* messages, and what runs on other lanes */
    struct trainee_mail mails[TRAINEE_MAILS_MAX];
    bool has_asides; /* steps have operations on other lanes, split ones too, and lists */
    struct trainee_op asides[TRAINEE_ASIDES_MAX];
    struct trainee_list list;
    struct muster_timer timer;
    uint64_t pace_ns;
};

/** seed: of the run. The trainee lies in the process's memory. */
void trainee_init(struct trainee *trainee, struct sim_node *node, struct ledger *ledger,
                  const struct muster_incarnation *incarnation, uint64_t seed,
                  const struct trainee_keeper_ops *ops, void *keeper);
/** The state is that after next_step - 1: go on with next_step. */
void trainee_go(struct trainee *trainee, uint64_t next_step);
/** Before the process ends in order; no operation is open. */
void trainee_fini(struct trainee *trainee);
/** No longer a member: nothing is started until the next go. Open operations still call back. */
void trainee_halt(struct trainee *trainee);
void trainee_wish_leave(struct trainee *trainee);
uint64_t trainee_state_digest(const struct trainee *trainee);
/** The state that every life begins a job with. */
void trainee_reset_state(struct trainee *trainee);

/* trainee_op.c */
uint64_t sim_mix(uint64_t a, uint64_t b);
uint64_t sim_digest(const void *bytes, size_t count);
/** Parameters that all members share; all zero: drawn from the operation's id. */
struct trainee_wish {
    uint64_t shape;
    enum trainee_flavour flavour;
    bool has_root; /* a kind with a root */
    bool is_unfit;
};
/** done runs after the result has been checked and entered in the ledger. */
void trainee_op_start(struct trainee_op *op, struct trainee *trainee, const struct muster_op_id *id,
                      const struct trainee_wish *wish, trainee_op_fn *done);
/** True: it is one of this member, too. */
bool trainee_op_takes_part(const struct muster_op_id *id, const struct muster_member *member);
/** A number that stands for a set of lives in every sum. */
int64_t trainee_key_sum(ledger_lives_type lives);

/* trainee_reduce.c: all_reduce by weight, and by a function of the program's own. */
void trainee_reduce_shape(struct trainee_op *op);
void trainee_reduce_fill(struct trainee_op *op);
enum muster_rc trainee_reduce_start(struct trainee_op *op, struct muster_group *group,
                                    muster_op_fn *done);
void trainee_reduce_check(const struct trainee_op *op, struct ledger_outcome *outcome);

/* trainee_aside.c */
/** Start what runs beside the loop in this step. */
void trainee_aside_begin(struct trainee *trainee);
/** A message, or an operation beside the loop, has ended. */
void trainee_aside_closed(struct trainee *trainee);
void trainee_aside_fini(struct trainee *trainee);

/* trainee_list.c */
/** False: refused, for the group has ended. */
bool trainee_list_start(struct trainee *trainee, struct muster_group *group, uint64_t shape);
void trainee_list_fini(struct trainee_list *list);

/** A number that all members have from it. */
int64_t trainee_op_gradient(const struct trainee_op *op, uint64_t i);
/* trainee_mail.c */
/** Start the messages of the step. */
void trainee_mail_begin(struct trainee *trainee);

/* trainee_exchange.c: the kinds whose outputs differ from member to member. */
bool trainee_exchange_is(enum muster_op_kind kind);
/** Counts of input and output. */
void trainee_exchange_shape(struct trainee_op *op);
enum muster_rc trainee_exchange_start(struct trainee_op *op, struct muster_group *group,
                                      uint32_t root, muster_op_fn *done);
/** Every element of the output is what the participants gave. */
void trainee_exchange_check(const struct trainee_op *op);
/** The input of a life at an element; of several lives, their sum. */
int64_t trainee_op_value(const struct trainee_op *op, ledger_lives_type lives, uint64_t element);
int64_t trainee_op_element(const struct muster_tensor *tensor, uint64_t i);
void trainee_op_complain(const struct trainee_op *op, const char *what, uint64_t number);
/** Frees its memory; it is not open. */
void trainee_op_fini(struct trainee_op *op);

#endif
