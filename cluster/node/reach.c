/* The address at which other processes reach this one, and whether it can reach them. */
#include "cluster/node/node_internal.h"

#include <string.h>

/* --- the port --- */

static struct muster_address loopback_of(uint16_t port)
{
    struct muster_address address = {.family = MUSTER_ADDRESS_IPV4, .port = port};

    address.ip[0] = 127;
    address.ip[3] = 1;
    return address;
}

static enum muster_rc refuse_full(const struct muster_address *first, uint16_t last,
                                  struct muster_error *ret_error)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    return muster_error_set(
        ret_error, MUSTER_UNAVAILABLE,
        "all %u ports of the range %.64s-%u are taken: give a range (muster run --listen, or "
        "MUSTER_LISTEN) with a port for every worker of this machine",
        last - first->port + 1u, muster_address_format(first, text), last);
}

/* Workers of one machine share the range, and the first free port is taken. No other failure is mended by
 * another port. */
static bool is_next_port_worth(enum muster_rc rc, uint16_t port, uint16_t last)
{
    return rc == MUSTER_ALREADY_EXISTS && port < last;
}

enum muster_rc muster_node_open_port(struct muster_node *node,
                                     const struct muster_node_options *options,
                                     muster_port_peer_fn *on_peer, struct muster_error *ret_error)
{
    struct muster_address address = options->listen;
    uint16_t last = options->listen_port_last;
    enum muster_rc rc;

    if (address.family == MUSTER_ADDRESS_NONE)
        address = loopback_of(address.port);
    node->is_loopback_shared = options->is_loopback_shared;
    rc = muster_port_open(node->env, &address, NULL, on_peer, node, &node->port, ret_error);
    while (is_next_port_worth(rc, address.port, last)) {
        address.port++;
        rc = muster_port_open(node->env, &address, NULL, on_peer, node, &node->port, ret_error);
    }
    if (rc == MUSTER_ALREADY_EXISTS && last > options->listen.port)
        return refuse_full(&options->listen, last, ret_error);
    if (rc == MUSTER_ALREADY_EXISTS && options->is_listen_port_wish) {
        MUSTER_LOG(node->env, INFO, "port_taken", "port", address.port);
        address.port = 0;
        rc = muster_port_open(node->env, &address, NULL, on_peer, node, &node->port, ret_error);
    }
    if (rc != MUSTER_OK)
        return rc;
    node->member.address = *muster_port_address(node->port);
    if (options->reach.family != MUSTER_ADDRESS_NONE) {
        address = options->reach;
        address.port = node->member.address.port;
        node->member.address = address;
    }
    node->hello.scope_id = node->member.address.scope_id;
    return MUSTER_OK;
}

/* --- the others --- */

/* A loopback address is reached from its own host only. Without this check two hosts would wait for each
 * other until a timeout that names no cause. */
static bool is_reachable(const struct muster_node *node, const struct muster_member *from,
                         const struct muster_member *to)
{
    return node->is_loopback_shared || !muster_address_is_loopback(&to->address) ||
           to->address.family == MUSTER_ADDRESS_UNIX ||
           muster_host_key_shares_loopback(from->host_key, to->host_key);
}

static void fail_own_address(struct muster_node *node, const struct muster_member *other)
{
    char here[MUSTER_ADDRESS_TEXT_BYTES], there[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                     "%.40s:%u would be reached at %.32s, but %.40s:%u (%.48s) is on another host: "
                     "give an address that the other hosts reach, by 'muster run --listen ADDRESS' "
                     "or MUSTER_LISTEN",
                     node->member.task_type, node->member.task_index,
                     muster_address_format(&node->member.address, here), other->task_type,
                     other->task_index, muster_address_format(&other->address, there));
    muster_node_give_up(node, &error);
}

/* Only a process that is not a member gives up: a running job must not end because of a stranger's address. */
bool muster_node_check_reach(struct muster_node *node, const struct muster_member *member)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    if (!is_reachable(node, member, &node->member) && !muster_membership_is_member(node->machine)) {
        fail_own_address(node, member);
        return false; /* nor does this process begin anything with the others any more */
    }
    if (is_reachable(node, &node->member, member))
        return true;
    MUSTER_LOG(node->env, WARN, "member_unreachable", "task_type", member->task_type, "task_index",
               member->task_index, "address", muster_address_format(&member->address, text),
               "remedy", "it is on another host: give it --listen ADDRESS or MUSTER_LISTEN");
    node->unreached = *member;
    node->has_unreached = true;
    muster_node_check_view_reach(node);
    return false;
}

void muster_node_check_view_reach(struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);
    const struct muster_member *member = &node->unreached;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    if (!node->has_unreached || view == NULL || muster_membership_is_member(node->machine) ||
        !muster_view_find(view, &member->incarnation, NULL))
        return;
    muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                     "%.40s:%u of job %.40s is reached at %.48s of another host only: start the "
                     "job there with 'muster run --listen ADDRESS' (MUSTER_LISTEN), an address "
                     "that this host reaches",
                     member->task_type, member->task_index, node->job,
                     muster_address_format(&member->address, text));
    muster_node_give_up(node, &error);
}
