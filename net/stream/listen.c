/* "Where to listen" as users write it: text to value, and the address of this host that it means.
 */
#include <muster/stream.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* --- parsing --- */

/* Host and ports of a text. */
struct listen_parts {
    const char *host;
    size_t host_length;
    const char *ports; /* NULL: none */
    bool is_bracketed;
};

static enum muster_rc listen_refuse(const char *text, const char *why,
                                    struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%.100s: %s; write ADDRESS[:PORT[-PORT]], such as 10.0.0.1, "
                            "eth0:5000-5099 or [::]:5000",
                            text, why);
}

/* Two or more colons without brackets are an IPv6 address. */
static bool listen_split(const char *text, struct listen_parts *ret_parts)
{
    const char *colon = strchr(text, ':');
    const char *end = strchr(text, ']');
    struct listen_parts parts = {.host = text, .host_length = strlen(text)};

    if (text[0] == '[') {
        if (end == NULL || (end[1] != ':' && end[1] != '\0'))
            return false;
        parts.is_bracketed = true;
        parts.host = text + 1;
        parts.host_length = (size_t)(end - parts.host);
        parts.ports = end[1] == ':' ? end + 2 : NULL;
    } else if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        parts.host_length = (size_t)(colon - text);
        parts.ports = colon + 1;
    }
    *ret_parts = parts;
    return true;
}

/* Digits only, and no more than fit: strtoul would take signs, blanks and overflows. */
static bool port_parse(const char **at, uint16_t *ret_port)
{
    uint32_t port = 0;

    if (!isdigit((unsigned char)**at))
        return false;
    for (; isdigit((unsigned char)**at); ++*at) {
        port = port * 10 + (uint32_t)(**at - '0');
        if (port > UINT16_MAX)
            return false;
    }
    *ret_port = (uint16_t)port;
    return true;
}

static enum muster_rc ports_parse(const char *text, const char *ports, struct muster_listen *listen,
                                  struct muster_error *ret_error)
{
    const char *at = ports;

    if (ports == NULL)
        return MUSTER_OK;
    if (!port_parse(&at, &listen->port_first))
        return listen_refuse(text, "a port must be a number from 0 to 65535", ret_error);
    listen->port_last = listen->port_first;
    if (*at == '\0')
        return MUSTER_OK;
    if (*at++ != '-' || !port_parse(&at, &listen->port_last) || *at != '\0')
        return listen_refuse(text, "ports must be PORT or PORT-PORT, up to 65535", ret_error);
    if (listen->port_first == 0)
        return listen_refuse(text, "a range of ports must begin above 0", ret_error);
    if (listen->port_last < listen->port_first)
        return listen_refuse(text, "the first port of a range must not be above the last",
                             ret_error);
    return MUSTER_OK;
}

/* An empty text counts as one: a zone that is missing ("fe80::1%") is then refused like a malformed
 * number, and not looked up as a name. */
static bool is_number(const char *text)
{
    return text[strspn(text, "0123456789")] == '\0';
}

/* An IP address, or a name that muster_listen_find looks up. */
static enum muster_rc host_parse(const char *text, bool is_bracketed, struct muster_listen *listen,
                                 struct muster_error *ret_error)
{
    char whole[MUSTER_HOST_TEXT_BYTES + 2];
    struct muster_endpoint endpoint;
    char *zone = strchr(listen->host, '%');
    bool is_ipv6 = strchr(listen->host, ':') != NULL;
    bool is_zone_name = is_ipv6 && zone != NULL && !is_number(zone + 1);

    if (listen->host[0] == '\0')
        return is_bracketed ? listen_refuse(text, "there must be an address in [ ]", ret_error)
                            : MUSTER_OK;
    if (is_number(listen->host))
        return listen_refuse(text, "a port alone is written with a colon before it", ret_error);
    if (is_bracketed && !is_ipv6)
        return listen_refuse(text, "[ ] are for IPv6 addresses", ret_error);
    if (is_zone_name)
        *zone = '\0';
    snprintf(whole, sizeof(whole), is_ipv6 ? "[%s]" : "%s", listen->host);
    if (muster_endpoint_parse(whole, 1, &endpoint, NULL) != MUSTER_OK ||
        endpoint.address.family == MUSTER_ADDRESS_UNIX)
        return listen_refuse(text, "it names neither an IP address nor a host or interface",
                             ret_error);
    listen->address = endpoint.address;
    listen->address.port = listen->port_first;
    if (is_zone_name) {
        *zone = '%';
        listen->address.family = MUSTER_ADDRESS_NONE;
    }
    return MUSTER_OK;
}

enum muster_rc muster_listen_parse(const char *text, struct muster_listen *ret_listen,
                                   struct muster_error *ret_error)
{
    struct muster_listen listen = {.port_first = 0};
    struct listen_parts parts;
    enum muster_rc rc;

    if (text[0] == '\0')
        return listen_refuse(text, "it is empty", ret_error);
    if (strncmp(text, "unix:", 5) == 0)
        return listen_refuse(text, "members are reached by TCP", ret_error);
    if (!listen_split(text, &parts))
        return listen_refuse(text, "after ']' only :PORT may follow", ret_error);
    if (parts.host_length >= sizeof(listen.host))
        return listen_refuse(text, "the host is too long", ret_error);
    memcpy(listen.host, parts.host, parts.host_length);
    rc = ports_parse(text, parts.ports, &listen, ret_error);
    if (rc == MUSTER_OK)
        rc = host_parse(text, parts.is_bracketed, &listen, ret_error);
    if (rc == MUSTER_OK)
        *ret_listen = listen;
    return rc;
}

bool muster_listen_is_wildcard(const struct muster_listen *listen)
{
    return listen->host[0] == '\0' || muster_address_is_wildcard(&listen->address);
}

uint32_t muster_listen_port_count(const struct muster_listen *listen)
{
    return listen->port_first == 0 ? 0 : (uint32_t)(listen->port_last - listen->port_first) + 1;
}

/* --- finding --- */

/* "fe80::1%eth0": the address of that interface which has this IP. */
static enum muster_rc zone_find(struct muster_env *env, const struct muster_listen *listen,
                                const char *zone, struct muster_address *ret_address,
                                struct muster_error *ret_error)
{
    struct muster_address own[MUSTER_INTERFACE_ADDRESSES_MAX];
    size_t count = 0;
    enum muster_rc rc = muster_net_find_interface(env->net, zone, own, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count; i++) {
        *ret_address = own[i];
        if (own[i].family == MUSTER_ADDRESS_IPV6 &&
            memcmp(own[i].ip, listen->address.ip, sizeof(own[i].ip)) == 0)
            return MUSTER_OK;
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s must be an address of the network interface %s", listen->host,
                            zone);
}

/* Only addresses that this host has, and of those the first of the wanted family; IPv4 where no
 * family is wanted. */
static const struct muster_address *address_choose(struct muster_env *env,
                                                   const struct muster_address *addresses,
                                                   size_t count, enum muster_address_family family)
{
    const struct muster_address *found = NULL;

    if (family == MUSTER_ADDRESS_NONE)
        family = MUSTER_ADDRESS_IPV4;
    for (size_t i = 0; i < count; i++) {
        bool is_better =
            found == NULL || (found->family != family && addresses[i].family == family);

        if (is_better && muster_net_has_address(env->net, &addresses[i]))
            found = &addresses[i];
    }
    return found;
}

/* An interface of that name comes before a host: "eth0" must not be looked up, because a search
 * domain may well answer for it. */
static enum muster_rc name_find(struct muster_env *env, const char *name,
                                enum muster_address_family family, uint64_t deadline_ns,
                                struct muster_address *ret_address, struct muster_error *ret_error)
{
    struct muster_address own[MUSTER_INTERFACE_ADDRESSES_MAX];
    const struct muster_address *found = NULL;
    struct muster_lookup lookup;
    size_t count = 0;
    enum muster_rc rc = muster_net_find_interface(env->net, name, own, &count, NULL);

    if (rc == MUSTER_OK) {
        found = address_choose(env, own, count, family);
    } else {
        rc = muster_lookup_wait(env, name, 0, deadline_ns, &lookup);
        if (rc != MUSTER_OK)
            return muster_error_set(ret_error, rc,
                                    "%s must be an address, a host name or a network interface of "
                                    "this host: %s",
                                    name, lookup.error.text);
        found = address_choose(env, lookup.addresses, lookup.address_count, family);
    }
    if (found == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be a name of this host: none of its addresses is here",
                                name);
    *ret_address = *found;
    return MUSTER_OK;
}

enum muster_rc muster_listen_find(struct muster_env *env, const struct muster_listen *listen,
                                  enum muster_address_family family, uint64_t deadline_ns,
                                  struct muster_address *ret_address,
                                  struct muster_error *ret_error)
{
    const char *zone = strchr(listen->host, '%');
    struct muster_address address = listen->address;
    enum muster_rc rc = MUSTER_OK;

    /* Bind would refuse a foreign address too, but later and without the advice. */
    if (address.family != MUSTER_ADDRESS_NONE && !muster_net_has_address(env->net, &address))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be an address of this host%s", listen->host,
                                muster_address_is_link_local(&address) && address.scope_id == 0
                                    ? ", and a link-local one names its interface: fe80::1%eth0"
                                    : "");
    if (address.family == MUSTER_ADDRESS_NONE && zone != NULL)
        rc = zone_find(env, listen, zone + 1, &address, ret_error);
    else if (address.family == MUSTER_ADDRESS_NONE)
        rc = name_find(env, listen->host, family, deadline_ns, &address, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    address.port = listen->port_first;
    *ret_address = address;
    return MUSTER_OK;
}
