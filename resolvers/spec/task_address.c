/* Hosts and ports written as task addresses. */
#include "resolvers/spec/task_address.h"

#include <stdio.h>
#include <string.h>

/* Names, addresses, and zones of addresses. */
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
