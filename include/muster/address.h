/* Network addresses as values: IPv4, IPv6, unix; and host:port text. */
#ifndef MUSTER_ADDRESS_H
#define MUSTER_ADDRESS_H

#include <muster/base.h>
#include <muster/status.h>

MUSTER_BEGIN

enum muster_address_family {
    MUSTER_ADDRESS_NONE,
    MUSTER_ADDRESS_IPV4,
    MUSTER_ADDRESS_IPV6,
    MUSTER_ADDRESS_UNIX,
};

#define MUSTER_ADDRESS_TEXT_BYTES 160 /* room for any formatted address and its NUL */
#define MUSTER_HOST_TEXT_BYTES    256

struct muster_address {
    enum muster_address_family family;
    uint16_t port;     /* host byte order */
    uint32_t scope_id; /* IPv6 */
    uint8_t ip[16];    /* network byte order; the first 4 for IPv4 */
    char path[108];    /* unix; '@' first = abstract */
};

/** "1.2.3.4:80", "[::1]:80", "[fe80::1%3]:80", "unix:/path", "unix:@abstract". No names.
 * INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_address_parse(const char *text,
                                                                 struct muster_address *ret_address,
                                                                 struct muster_error *ret_error);
/** Where to listen: also ":80" (every interface of IPv4) and "localhost:80". INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_address_parse_listen(
    const char *text, struct muster_address *ret_address, struct muster_error *ret_error);
/** The same text forms back. Returns ret_text. */
MUSTER_API const char *muster_address_format(const struct muster_address *address,
                                             char ret_text[MUSTER_ADDRESS_TEXT_BYTES]);
MUSTER_API bool muster_address_is_equal(const struct muster_address *a,
                                        const struct muster_address *b);
MUSTER_API bool muster_address_is_loopback(const struct muster_address *address);
/** IPv6 addresses of one link (fe80::/10), which mean nothing without scope_id. */
MUSTER_API bool muster_address_is_link_local(const struct muster_address *address);
/** 0.0.0.0 or ::, "every address of this host". */
MUSTER_API bool muster_address_is_wildcard(const struct muster_address *address);

/** "name:port" or any address text, not looked up yet. */
struct muster_endpoint {
    char host[MUSTER_HOST_TEXT_BYTES]; /* name or ip text without brackets; "" for unix */
    struct muster_address address;     /* family NONE when host is a name */
    uint16_t port;
};
/** The part of an error's text that is new to those who name the endpoints themselves ("HOST:PORT,…",
 * with or without schemes): what follows "connect to HOST:PORT: ", where that is one of them, else
 * all of text. Borrowed from text. */
MUSTER_API const char *muster_endpoint_cause(const char *text, const char *endpoints);
/** default_port 0: the port is required. INVALID_ARGUMENT names what is wrong with the text. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_endpoint_parse(
    const char *text, uint16_t default_port, struct muster_endpoint *ret_endpoint,
    struct muster_error *ret_error);

MUSTER_END

#endif
