/* Hosts and ports as task addresses, "host:port" or "[IPv6]:port" (RFC 3986 3.2.2); addresses as
 * URLs of a master. */
#include "resolvers/spec/task_address.h"

#include <stdio.h>
#include <string.h>

#include "runtime/value/text.h"

/* Letters of names, addresses, and zones of addresses. Hosts come from answers of servers: one with
 * a '/', an '@' or a blank must not become part of a URL. */
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%"

bool muster_host_is_plausible(const char *text)
{
    return text[0] != '\0' && text[strspn(text, LETTERS)] == '\0';
}

bool muster_task_address_format(const char *host, uint16_t port, size_t bytes, char *ret_text)
{
    bool is_ipv6 = strchr(host, ':') != NULL;

    /* "[", "]", ":65535" and the NUL */
    if (!muster_host_is_plausible(host) || strlen(host) + 9 > bytes)
        return false;
    snprintf(ret_text, bytes, "%s%s%s:%u", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "",
             (unsigned)port);
    return true;
}

/* TensorFlow's format_master_url: an address that has a scheme already gets a second one, too. */
enum muster_rc muster_master_url_format(struct muster_mem *mem, const char *rpc_layer,
                                        const char *address, char **ret_url,
                                        struct muster_error *ret_error)
{
    struct muster_text url;

    muster_text_init(&url, mem);
    if (rpc_layer != NULL && rpc_layer[0] != '\0')
        muster_text_add_format(&url, "%s://", rpc_layer);
    muster_text_add_string(&url, address);
    if (muster_text_take(&url, ret_url, NULL) == MUSTER_OK)
        return MUSTER_OK;
    muster_text_fini(&url);
    return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a URL");
}
