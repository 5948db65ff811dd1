/* The version of the messages of parameters: clients and servers have the same. */
#ifndef MUSTER_PARAMS_VERSION_H
#define MUSTER_PARAMS_VERSION_H

/* Both ends must have the same; it changes with the messages. */
#define MUSTER_PARAMS_MESSAGES_VERSION 5u

#endif
