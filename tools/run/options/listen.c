/* --listen: looked up and checked before a worker is started. */
#include "run/options/options.h"

#include "common/command.h"
#include "resolve/resolver_env.h"
#include "run/output/log.h"

#include <muster/stream.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Name servers answer sooner or not at all; the user waits for it at the start. */
#define LOOK_UP_WITHIN_NS (10 * MUSTER_NS_PER_S)

/* The option or the variable by which the user gave the address, for messages. */
static const char *listen_name(const struct run_settings *settings)
{
    return settings->listen == getenv("MUSTER_LISTEN") ? "MUSTER_LISTEN" : "--listen";
}

/* An address of this host for a name or an interface. The launcher looks it up once, and gives
 * workers the address: a name server that is slow or down later then stops no restart. */
static bool find_address(const struct run_settings *settings, const struct muster_listen *listen,
                         struct muster_address *ret_address, int *ret_exit)
{
    struct muster_env *env = NULL;
    struct muster_error error = {0};
    enum muster_rc rc = resolver_env_open(&env, &error);

    if (rc == MUSTER_OK) {
        rc = muster_listen_find(env, listen, MUSTER_ADDRESS_NONE,
                                muster_loop_after_ns(env->loop, LOOK_UP_WITHIN_NS), ret_address,
                                &error);
        resolver_env_close(env);
    }
    if (rc == MUSTER_OK)
        return true;
    *ret_exit = command_refuse(RUN_COMMAND, "%s %s", listen_name(settings), error.text);
    return false;
}

static void format_listen(const struct muster_listen *listen, const struct muster_address *address,
                          char *ret_text, size_t bytes)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    muster_address_format(address, text);
    if (listen->port_last > listen->port_first)
        snprintf(ret_text, bytes, "%s-%u", text, listen->port_last);
    else
        snprintf(ret_text, bytes, "%s", text);
}

/* Some registry is at an address that is not of this host alone, as far as its text tells. A job
 * whose launchers all run on this host may meet at loopback; one with a registry elsewhere may not.
 * A host name other than localhost is not looked up, and counts as elsewhere. */
static bool is_registry_shared(const char *endpoints)
{
    while (*endpoints != '\0') {
        size_t length = strcspn(endpoints, ",");
        char text[MUSTER_HOST_TEXT_BYTES + 16];
        const char *scheme;
        struct muster_endpoint endpoint;

        snprintf(text, sizeof(text), "%.*s", (int)length, endpoints);
        scheme = strstr(text, "://");
        if (muster_endpoint_parse(scheme != NULL ? scheme + 3 : text, 0, &endpoint, NULL) ==
                MUSTER_OK &&
            !muster_address_is_loopback(&endpoint.address) &&
            strcmp(endpoint.host, "localhost") != 0)
            return true;
        endpoints += length + (endpoints[length] == ',');
    }
    return false;
}

static bool check_listen(const struct run_settings *settings, const struct muster_listen *listen,
                         const struct muster_address *address, int *ret_exit)
{
    uint32_t count = muster_listen_port_count(listen);

    if (count != 0 && count < settings->worker_count) {
        *ret_exit =
            command_refuse(RUN_COMMAND,
                           "%s %s must have a port for each of the %u workers, got %u; give a "
                           "range such as %u-%u",
                           listen_name(settings), settings->listen, settings->worker_count, count,
                           listen->port_first, listen->port_first + settings->worker_count - 1);
        return false;
    }
    if (settings->nodes_max > 1 && muster_address_is_loopback(address) &&
        is_registry_shared(settings->registry)) {
        *ret_exit = command_refuse(RUN_COMMAND,
                                   "%s must be an address that the other machines of --nnodes %s "
                                   "reach, got %s, a loopback address; give another ADDRESS or an "
                                   "interface, or leave it out for the one towards the registry "
                                   "at %s",
                                   listen_name(settings), settings->nodes_text, settings->listen,
                                   settings->registry);
        return false;
    }
    return true;
}

bool run_listen_read(struct run_settings *settings, int *ret_exit)
{
    struct muster_address address = {.family = MUSTER_ADDRESS_NONE};
    struct muster_listen listen;
    struct muster_error error;

    if (settings->listen == NULL)
        return true;
    if (muster_listen_parse(settings->listen, &listen, &error) != MUSTER_OK) {
        *ret_exit = command_refuse(RUN_COMMAND, "%s %s", listen_name(settings), error.text);
        return false;
    }
    if (!muster_listen_is_wildcard(&listen) && !find_address(settings, &listen, &address, ret_exit))
        return false;
    if (muster_listen_is_wildcard(&listen))
        snprintf(settings->listen_text, sizeof(settings->listen_text), "%s", settings->listen);
    else
        format_listen(&listen, &address, settings->listen_text, sizeof(settings->listen_text));
    return check_listen(settings, &listen, &address, ret_exit);
}

static bool is_free(const struct muster_listen *listen, uint16_t port)
{
    struct muster_address address = listen->address;
    int fd = -1;

    if (address.family == MUSTER_ADDRESS_NONE)
        address.family = MUSTER_ADDRESS_IPV4;
    address.port = port;
    if (muster_net_system_bind(&address, &fd, NULL) != MUSTER_OK)
        return false;
    close(fd);
    return true;
}

bool run_listen_has_ports(const struct run_settings *settings, int *ret_exit)
{
    struct muster_listen listen;
    uint32_t count, free_count = 0;

    if (settings->listen == NULL ||
        muster_listen_parse(settings->listen_text, &listen, NULL) != MUSTER_OK)
        return true;
    count = muster_listen_port_count(&listen);
    for (uint32_t i = 0; i < count && free_count < settings->worker_count; i++)
        free_count += is_free(&listen, (uint16_t)(listen.port_first + i));
    if (count == 0 || free_count >= settings->worker_count)
        return true;
    run_log_error(
        "--listen %s must have a free port for each of the %u workers: %u of its %u ports "
        "are free; widen the range, or end what listens there",
        settings->listen, settings->worker_count, free_count, count);
    *ret_exit = EXIT_UNAVAILABLE;
    return false;
}
