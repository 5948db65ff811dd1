/* Calls of the registry's services with the messages of etcd, and their answers as they are. */
#ifndef MUSTER_TEST_REGISTRY_ASK_H
#define MUSTER_TEST_REGISTRY_ASK_H

#include "registry_pair.h"

#include <muster/channel.h>
#include <muster/rpc.h>

struct registry_ask {
    void *data;
    void (*on_answer)(struct registry_ask *ask); /* each of a stream; may be NULL */
    struct muster_env *env;
    struct muster_channel *channel;
    struct muster_call call;
    const void *descriptor; /* of the answers */
    void *answer;           /* the last one; NULL: none since the last word */
    enum muster_rc rc;      /* with which the call ended */
    struct muster_error error;
    bool is_done, has_answer, is_closed;
};

/** endpoint: "host:port", in plain text. */
void registry_ask_open(struct registry_ask *ask, struct muster_env *env, const char *endpoint);
void registry_ask_close(struct registry_ask *ask);

/** Bytes of no message are sent when request is NULL. */
enum muster_rc registry_ask(struct registry_ask *ask, const char *method, const void *request,
                            const void *descriptor);

/** A stream. */
void registry_ask_begin(struct registry_ask *ask, const char *method, const void *descriptor);
void registry_ask_send(struct registry_ask *ask, const void *request);
/** Sent, until there is an answer, or the call has ended. */
void registry_ask_say(struct registry_ask *ask, const void *request);
enum muster_rc registry_ask_end(struct registry_ask *ask);

#endif
