/* A node of this process on the embedded registry, and what it tells its program. */
#ifndef MUSTER_TEST_NODE_STAND_H
#define MUSTER_TEST_NODE_STAND_H

#include "registry_pair.h"

#include "cluster/node/member.h"

#define NODE_STAND_JOB    "job"
#define NODE_STAND_FOLDER "/muster/" NODE_STAND_JOB "/"
#define NODE_STAND_HOST   "here"
#define NODE_STAND_OTHER  "07070707070707070707070707070707" /* of no more than a record */

struct node_stand {
    struct registry_pair pair;
    struct muster_node *node;
    char told[80];             /* "view:2 " has come with two members, "failed:9 " with that code */
    struct muster_error error; /* of the last exclusion or failure */
    uint64_t epoch;
    bool is_ready;              /* its state is there */
    bool is_closed, has_timers; /* at its end */
};

/** The registry only: keys may be put before the node opens. */
void node_stand_open(struct node_stand *stand);
void node_stand_close(struct node_stand *stand);
/** Task 0 of a job that begins with one. */
void node_stand_open_node(struct node_stand *stand);
/** The same, with options of its own; why it did not open is in stand->error. */
enum muster_rc node_stand_try_node(struct node_stand *stand, struct muster_node_options options);
void node_stand_close_node(struct node_stand *stand);
/** Until the program is told something. */
void node_stand_wait(struct node_stand *stand);
/** All of it: the registry, a node of its own, and the wait. */
void node_stand_begin(struct node_stand *stand);
/** Close the node and the registry. */
void node_stand_end(struct node_stand *stand);

/** Task 1, which is no more than its record and the view that names it. */
struct muster_member node_stand_other(const char *host, const char *address);
void node_stand_put_record(struct node_stand *stand, const struct muster_member *other);
/** View 3, of it alone. */
void node_stand_put_view(struct node_stand *stand, struct muster_member *other);

#endif
