/* Address and endpoint text to values and back. Pure: nothing is looked up. The texts come from
 * users, so every refusal quotes the text and says what is wrong with it; long texts are cut. */
#include <muster/address.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define UNIX_PREFIX          "unix:"
#define HOST_NAME_MAX_BYTES  253 /* RFC 1035 2.3.4: 255 on the wire, with a length and the root */
#define HOST_LABEL_MAX_BYTES 63  /* RFC 1035 2.3.4 */

/* A piece of a text, not NUL-terminated. */
struct span {
    const char *at;
    size_t length;
};

/* Digits alone: strtoul would take signs and blanks as well. Ten of them hold any port and any
 * interface number, and cannot overflow. */
static bool parse_number(struct span text, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t i;

    if (text.length == 0 || text.length > 10)
        return false;
    for (i = 0; i < text.length; i++) {
        if (!isdigit((unsigned char)text.at[i]))
            return false;
        number = number * 10 + (uint64_t)(text.at[i] - '0');
    }
    if (number > max)
        return false;
    *ret_number = number;
    return true;
}

static bool parse_port(struct span text, uint16_t *ret_port)
{
    uint64_t number;

    if (!parse_number(text, UINT16_MAX, &number))
        return false;
    *ret_port = (uint16_t)number;
    return true;
}

static bool copy_span(struct span text, char *ret_text, size_t capacity)
{
    if (text.length >= capacity || memchr(text.at, '\0', text.length) != NULL)
        return false;
    memcpy(ret_text, text.at, text.length);
    ret_text[text.length] = '\0';
    return true;
}

static bool parse_ipv4(struct span text, struct muster_address *ret_address)
{
    char copy[INET_ADDRSTRLEN];

    if (!copy_span(text, copy, sizeof(copy)) || inet_pton(AF_INET, copy, ret_address->ip) != 1)
        return false;
    ret_address->family = MUSTER_ADDRESS_IPV4;
    return true;
}

/* RFC 4007 11: "fe80::1%3"; the zone is an interface number (its name would need a look-up). */
static bool parse_ipv6(struct span text, struct muster_address *ret_address)
{
    const char *percent = memchr(text.at, '%', text.length);
    char copy[INET6_ADDRSTRLEN];
    uint64_t zone = 0;

    if (percent != NULL) {
        struct span zone_text = {percent + 1, text.length - (size_t)(percent - text.at) - 1};

        if (!parse_number(zone_text, UINT32_MAX, &zone))
            return false;
        text.length = (size_t)(percent - text.at);
    }
    if (!copy_span(text, copy, sizeof(copy)) || inet_pton(AF_INET6, copy, ret_address->ip) != 1)
        return false;
    ret_address->family = MUSTER_ADDRESS_IPV6;
    ret_address->scope_id = (uint32_t)zone;
    return true;
}

static enum muster_rc parse_unix(const char *text, struct muster_address *ret_address,
                                 struct muster_error *ret_error)
{
    const char *path = text + strlen(UNIX_PREFIX);

    while (path[0] == '/' && path[1] == '/') /* unix:///absolute, as gRPC writes it */
        path++;
    if (path[0] == '\0' || (path[0] == '@' && path[1] == '\0'))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%s\": the path is missing (unix:/path or unix:@name)", text);
    if (strlen(path) >= sizeof(ret_address->path))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s...\": a unix path must have at most %zu characters, got "
                                "%zu",
                                text, sizeof(ret_address->path) - 1, strlen(path));
    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->family = MUSTER_ADDRESS_UNIX;
    memcpy(ret_address->path, path, strlen(path) + 1);
    return MUSTER_OK;
}

/* The places of host and port in a text; nothing is copied before both are known to be valid. */
struct host_port {
    struct span host;
    struct span port; /* at NULL: there is none */
    bool is_bracketed;
};

static enum muster_rc split_bracketed(const char *text, struct host_port *ret_parts,
                                      struct muster_error *ret_error)
{
    const char *end = strchr(text, ']');

    if (end == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "\"%.100s\": ']' is missing",
                                text);
    ret_parts->is_bracketed = true;
    ret_parts->host = (struct span){text + 1, (size_t)(end - text) - 1};
    if (end[1] == '\0') {
        ret_parts->port = (struct span){NULL, 0};
        return MUSTER_OK;
    }
    if (end[1] != ':')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s\": after ']' only :port may follow", text);
    ret_parts->port = (struct span){end + 2, strlen(end + 2)};
    return MUSTER_OK;
}

/* Text with two or more colons and no brackets is all host: a bare IPv6 address. */
static enum muster_rc split_port(const char *text, struct host_port *ret_parts,
                                 struct muster_error *ret_error)
{
    const char *colon = strchr(text, ':');

    if (text[0] == '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "the address is empty");
    if (text[0] == '[')
        return split_bracketed(text, ret_parts, ret_error);
    ret_parts->is_bracketed = false;
    if (colon == NULL || strchr(colon + 1, ':') != NULL) {
        ret_parts->host = (struct span){text, strlen(text)};
        ret_parts->port = (struct span){NULL, 0};
        return MUSTER_OK;
    }
    ret_parts->host = (struct span){text, (size_t)(colon - text)};
    ret_parts->port = (struct span){colon + 1, strlen(colon + 1)};
    return MUSTER_OK;
}

/* A default port of 0 means that the text must have one. */
static enum muster_rc resolve_port(const char *text, struct span port, uint16_t default_port,
                                   uint16_t *ret_port, struct muster_error *ret_error)
{
    if (port.at == NULL && default_port == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s\": the port is missing (host:port)", text);
    if (port.at == NULL) {
        *ret_port = default_port;
        return MUSTER_OK;
    }
    if (!parse_port(port, ret_port))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s\": \"%.20s\" is not a port (0 to 65535)", text, port.at);
    return MUSTER_OK;
}

/* False: the host is a name, or malformed; the caller knows which of the two it may be. */
static bool parse_ip(const struct host_port *parts, struct muster_address *ret_address)
{
    if (parts->is_bracketed || memchr(parts->host.at, ':', parts->host.length) != NULL)
        return parse_ipv6(parts->host, ret_address);
    return parse_ipv4(parts->host, ret_address);
}

/* The advice depends on the form that the user has chosen. */
static enum muster_rc refuse_ip(const char *text, const struct host_port *parts,
                                struct muster_error *ret_error)
{
    if (parts->is_bracketed && memchr(parts->host.at, '%', parts->host.length) != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s\": not an IPv6 address with a numeric zone (%%3)", text);
    if (parts->is_bracketed)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s\": not an IPv6 address in brackets", text);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "\"%.100s\": not an IP address (1.2.3.4:80, [::1]:80, unix:/path)",
                            text);
}

enum muster_rc muster_address_parse(const char *text, struct muster_address *ret_address,
                                    struct muster_error *ret_error)
{
    struct muster_address address = {.family = MUSTER_ADDRESS_NONE};
    struct host_port parts;
    enum muster_rc rc;

    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        return parse_unix(text, ret_address, ret_error);
    rc = split_port(text, &parts, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (!parse_ip(&parts, &address))
        return refuse_ip(text, &parts, ret_error);
    if (parts.port.at == NULL && !parts.is_bracketed && address.family == MUSTER_ADDRESS_IPV6)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s\": an IPv6 address needs brackets and a port ([::1]:80)",
                                text);
    rc = resolve_port(text, parts.port, 0, &address.port, ret_error);
    if (rc == MUSTER_OK)
        *ret_address = address;
    return rc;
}

/* "localhost" is the one name that is known without a look-up (RFC 6761 6.3). */
enum muster_rc muster_address_parse_listen(const char *text, struct muster_address *ret_address,
                                           struct muster_error *ret_error)
{
    static const char localhost[] = "localhost:";
    char full[MUSTER_ADDRESS_TEXT_BYTES];
    int length = 0;

    if (text[0] == ':')
        length = snprintf(full, sizeof(full), "0.0.0.0%s", text);
    else if (strncmp(text, localhost, sizeof(localhost) - 1) == 0)
        length = snprintf(full, sizeof(full), "127.0.0.1:%s", text + sizeof(localhost) - 1);
    else
        length = snprintf(full, sizeof(full), "%s", text);
    if (length < 0 || (size_t)length >= sizeof(full))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s...\": an address to listen on must have less than %zu "
                                "characters, got %zu",
                                text, sizeof(full), strlen(text));
    return muster_address_parse(full, ret_address, ret_error);
}

const char *muster_address_format(const struct muster_address *address,
                                  char ret_text[MUSTER_ADDRESS_TEXT_BYTES])
{
    char ip[INET6_ADDRSTRLEN];
    char zone[16] = "";

    switch (address->family) {
    case MUSTER_ADDRESS_IPV4:
        inet_ntop(AF_INET, address->ip, ip, sizeof(ip));
        snprintf(ret_text, MUSTER_ADDRESS_TEXT_BYTES, "%s:%u", ip, (unsigned)address->port);
        break;
    case MUSTER_ADDRESS_IPV6:
        inet_ntop(AF_INET6, address->ip, ip, sizeof(ip));
        if (address->scope_id != 0)
            snprintf(zone, sizeof(zone), "%%%u", (unsigned)address->scope_id);
        snprintf(ret_text, MUSTER_ADDRESS_TEXT_BYTES, "[%s%s]:%u", ip, zone,
                 (unsigned)address->port);
        break;
    case MUSTER_ADDRESS_UNIX:
        snprintf(ret_text, MUSTER_ADDRESS_TEXT_BYTES, UNIX_PREFIX "%.*s",
                 (int)sizeof(address->path), address->path);
        break;
    case MUSTER_ADDRESS_NONE:
    default:
        snprintf(ret_text, MUSTER_ADDRESS_TEXT_BYTES, "none");
        break;
    }
    return ret_text;
}

bool muster_address_is_equal(const struct muster_address *a, const struct muster_address *b)
{
    if (a->family != b->family)
        return false;
    switch (a->family) {
    case MUSTER_ADDRESS_IPV4:
        return a->port == b->port && memcmp(a->ip, b->ip, 4) == 0;
    case MUSTER_ADDRESS_IPV6:
        return a->port == b->port && a->scope_id == b->scope_id && memcmp(a->ip, b->ip, 16) == 0;
    case MUSTER_ADDRESS_UNIX:
        return strncmp(a->path, b->path, sizeof(a->path)) == 0;
    case MUSTER_ADDRESS_NONE:
    default:
        return true;
    }
}

/* 127.0.0.0/8 (RFC 1122 3.2.1.3), also mapped into IPv6, and ::1 (RFC 4291 2.5.3). A unix socket
 * never leaves its host. */
bool muster_address_is_loopback(const struct muster_address *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t one[16] = {[15] = 1};

    switch (address->family) {
    case MUSTER_ADDRESS_IPV4:
        return address->ip[0] == 127;
    case MUSTER_ADDRESS_IPV6:
        return memcmp(address->ip, one, sizeof(one)) == 0 ||
               (memcmp(address->ip, mapped, sizeof(mapped)) == 0 && address->ip[12] == 127);
    case MUSTER_ADDRESS_UNIX:
        return true;
    case MUSTER_ADDRESS_NONE:
    default:
        return false;
    }
}

/* RFC 4291 2.5.6. */
bool muster_address_is_link_local(const struct muster_address *address)
{
    return address->family == MUSTER_ADDRESS_IPV6 && address->ip[0] == 0xfe &&
           (address->ip[1] & 0xc0) == 0x80;
}

bool muster_address_is_wildcard(const struct muster_address *address)
{
    static const uint8_t any[sizeof(address->ip)];

    if (address->family == MUSTER_ADDRESS_IPV4)
        return memcmp(address->ip, any, 4) == 0;
    return address->family == MUSTER_ADDRESS_IPV6 &&
           memcmp(address->ip, any, sizeof(address->ip)) == 0;
}

/* RFC 1123 2.1, plus '_' (service names), plus one final dot. */
static bool is_host_name(struct span name)
{
    size_t label_bytes = 0;
    size_t i;

    if (name.length > 0 && name.at[name.length - 1] == '.')
        name.length--;
    if (name.length == 0 || name.length > HOST_NAME_MAX_BYTES)
        return false;
    for (i = 0; i < name.length; i++) {
        unsigned char c = (unsigned char)name.at[i];
        bool is_inner = label_bytes > 0 && i + 1 < name.length && name.at[i + 1] != '.';

        if (c == '.' && label_bytes > 0)
            label_bytes = 0;
        else if (c < 0x80 && (isalnum(c) || c == '_' || (c == '-' && is_inner)))
            label_bytes++;
        else
            return false;
        if (label_bytes > HOST_LABEL_MAX_BYTES)
            return false;
    }
    return true;
}

/* "1.2.3.400": dotted and the last label is a number. No such name exists, so it is a mistyped
 * address. (A container's name may be twelve digits without a dot.) */
static bool is_like_ipv4(struct span name)
{
    const char *dot;

    if (name.length > 0 && name.at[name.length - 1] == '.')
        name.length--;
    dot = memrchr(name.at, '.', name.length);
    if (dot == NULL || dot + 1 == name.at + name.length)
        return false;
    while (++dot < name.at + name.length)
        if (!isdigit((unsigned char)*dot))
            return false;
    return true;
}

static enum muster_rc parse_host(const char *text, const struct host_port *parts,
                                 struct muster_endpoint *ret_endpoint,
                                 struct muster_error *ret_error)
{
    bool is_name = !parts->is_bracketed && is_host_name(parts->host);

    if (!parse_ip(parts, &ret_endpoint->address)) {
        if (parts->host.length == 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "\"%.100s\": the host is missing (host:port)", text);
        if (parts->is_bracketed)
            return refuse_ip(text, parts, ret_error);
        if (is_like_ipv4(parts->host) || !is_name)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "\"%.100s\": \"%.*s\" is neither a host name nor an IP address",
                                    text, (int)(parts->host.length < 64 ? parts->host.length : 64),
                                    parts->host.at);
    }
    if (!copy_span(parts->host, ret_endpoint->host, sizeof(ret_endpoint->host)))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "\"%.100s...\": a host must have less than %zu characters, got %zu",
                                text, sizeof(ret_endpoint->host), parts->host.length);
    return MUSTER_OK;
}

/* Whether one of the endpoints is `one`. They are joined by commas, each perhaps after a scheme. */
static bool endpoints_have(const char *endpoints, const char *one, size_t length)
{
    for (const char *at = endpoints; (at = strchr(at, *one)) != NULL; at++) {
        if (strncmp(at, one, length) == 0 && (at == endpoints || at[-1] == '/' || at[-1] == ',') &&
            (at[length] == '\0' || at[length] == ','))
            return true;
    }
    return false;
}

/* "connect to 1.2.3.4:80: refused" repeats an address that the caller's own text names as well; only what
 * stands after it is kept then. At a deadline the client of the registry says "no connection to". */
const char *muster_endpoint_cause(const char *text, const char *endpoints)
{
    static const char *const before[] = {"connect to ", "no connection to "};

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        size_t length = strlen(before[i]);
        const char *at = text + length, *end;

        if (strncmp(text, before[i], length) != 0)
            continue;
        end = strstr(at, ": ");
        if (end != NULL && end > at && endpoints_have(endpoints, at, (size_t)(end - at)))
            return end + 2;
    }
    return text;
}

enum muster_rc muster_endpoint_parse(const char *text, uint16_t default_port,
                                     struct muster_endpoint *ret_endpoint,
                                     struct muster_error *ret_error)
{
    struct muster_endpoint endpoint = {.port = 0};
    struct host_port parts;
    enum muster_rc rc;

    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0) {
        rc = parse_unix(text, &endpoint.address, ret_error);
        if (rc == MUSTER_OK)
            *ret_endpoint = endpoint;
        return rc;
    }
    rc = split_port(text, &parts, ret_error);
    if (rc == MUSTER_OK)
        rc = parse_host(text, &parts, &endpoint, ret_error);
    if (rc == MUSTER_OK)
        rc = resolve_port(text, parts.port, default_port, &endpoint.port, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    endpoint.address.port = endpoint.port;
    /* A name has no address yet, and so no port of one either. */
    if (endpoint.address.family == MUSTER_ADDRESS_NONE)
        memset(&endpoint.address, 0, sizeof(endpoint.address));
    *ret_endpoint = endpoint;
    return MUSTER_OK;
}
