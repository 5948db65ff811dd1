/* DNS on c-ares, the one file that includes it. The channel lives while queries run, so every burst
 * of queries reads resolv.conf afresh. c-ares tells which descriptors to watch and when to call it;
 * its callbacks may come from inside any call of it, so answers are delivered from a task. */
#include "net/stream/dns.h"
#include "net/stream/request.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

/* The first try; c-ares waits longer with each further one. */
#define TRY_TIMEOUT_MS 2000
#define TRIES          3
#define CLASS_IN       1  /* RFC 1035 3.2.4 */
#define TYPE_SRV       33 /* RFC 2782 */

struct muster_dns {
    struct muster_env *env;
    char *servers; /* NULL: the system's */
    int timeout_ms;
    int tries;
    ares_channel channel; /* NULL while idle */
    size_t running_count; /* queries that c-ares knows */
    bool is_starved; /* since the channel was opened a socket was not watched for lack of memory */
    struct muster_list sockets;
    struct muster_timer timer;
    struct muster_task idle;
};

/* A descriptor of c-ares. */
struct dns_socket {
    struct muster_dns *dns;
    struct muster_fd_watch watch;
    struct muster_list node;
};

/* One query. c-ares cannot cancel one query, so a query may outlive its request. */
struct query {
    struct muster_dns *dns;
    struct muster_lookup *lookup; /* one of the two; both NULL: nobody waits any more */
    struct muster_dns_srv *srv;
    char name[MUSTER_HOST_TEXT_BYTES];
    bool is_running; /* c-ares will call back */
    bool is_decided; /* the task will deliver error */
    struct muster_error error;
    struct muster_task task;
    struct muster_timer deadline;
};

/* The channel. */

/* After every call of c-ares, because each may change when it wants to be called next. */
static void update_timer(struct muster_dns *dns)
{
    struct timeval room;
    const struct timeval *next = dns->channel ? ares_timeout(dns->channel, NULL, &room) : NULL;

    if (next == NULL) {
        muster_timer_stop(&dns->timer);
        return;
    }
    muster_timer_start(
        &dns->timer, dns->env->loop,
        muster_loop_after_ns(dns->env->loop, (uint64_t)next->tv_sec * MUSTER_NS_PER_S +
                                                 (uint64_t)next->tv_usec * MUSTER_NS_PER_US));
}

static void on_socket_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct dns_socket *socket = watch->data;
    struct muster_dns *dns = socket->dns;
    int fd = watch->fd;

    /* The socket may be freed inside (on_socket_state), so all of it was read before. */
    ares_process_fd(dns->channel, (ready & MUSTER_FD_READ) != 0 ? fd : ARES_SOCKET_BAD,
                    (ready & MUSTER_FD_WRITE) != 0 ? fd : ARES_SOCKET_BAD);
    update_timer(dns);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_dns *dns = timer->data;

    ares_process_fd(dns->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    update_timer(dns);
}

static struct dns_socket *find_socket(struct muster_dns *dns, int fd)
{
    MUSTER_LIST_EACH(&dns->sockets, socket, struct dns_socket, node) {
        if (socket->watch.fd == fd)
            return socket;
    }
    return NULL;
}

static void socket_free(struct dns_socket *socket)
{
    muster_fd_watch_close(&socket->watch);
    muster_list_remove(&socket->node);
    muster_mem_free(socket->dns->env->mem, socket);
}

/* Without memory the socket is not watched; the query then ends by its timeout, and says why. */
static void socket_open(struct muster_dns *dns, int fd, unsigned wanted)
{
    struct dns_socket *socket = muster_mem_alloc_zero(dns->env->mem, 1, sizeof(*socket));

    if (socket == NULL) {
        dns->is_starved = true;
        return;
    }
    socket->dns = dns;
    socket->watch.data = socket;
    socket->watch.on_ready = on_socket_ready;
    socket->watch.fd = fd;
    socket->watch.wanted = wanted;
    if (muster_fd_watch_open(&socket->watch, dns->env->loop) != MUSTER_OK) {
        muster_mem_free(dns->env->mem, socket);
        dns->is_starved = true;
        return;
    }
    muster_list_append(&dns->sockets, &socket->node);
}

static void on_socket_state(void *data, ares_socket_t fd, int readable, int writable)
{
    struct muster_dns *dns = data;
    struct dns_socket *socket = find_socket(dns, fd);
    unsigned wanted =
        (readable != 0 ? MUSTER_FD_READ : 0u) | (writable != 0 ? MUSTER_FD_WRITE : 0u);

    if (wanted == 0 && socket != NULL)
        socket_free(socket);
    else if (wanted != 0 && socket != NULL)
        muster_fd_watch_update(&socket->watch, wanted);
    else if (wanted != 0)
        socket_open(dns, fd, wanted);
}

/* "No such name" is an answer; everything else that a server says or does not say may change. */
static enum muster_rc rc_from_ares(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return MUSTER_OK;
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
        return MUSTER_NOT_FOUND;
    case ARES_EBADNAME:
    case ARES_EBADSTR:
        return MUSTER_INVALID_ARGUMENT;
    case ARES_ENOMEM:
        return MUSTER_RESOURCE_EXHAUSTED;
    case ARES_ECANCELLED:
    case ARES_EDESTRUCTION:
        return MUSTER_CANCELLED;
    default:
        return MUSTER_UNAVAILABLE;
    }
}

/* Idempotent. The channel is shared by all queries that run at one time. */
static enum muster_rc channel_open(struct muster_dns *dns)
{
    char lookups[] = "fb"; /* /etc/hosts, then DNS */
    struct ares_options options = {
        .timeout = dns->timeout_ms,
        .tries = dns->tries,
        .lookups = lookups,
        .sock_state_cb = on_socket_state,
        .sock_state_cb_data = dns,
    };
    int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB;
    int status;

    if (dns->channel != NULL)
        return MUSTER_OK;
    dns->is_starved = false;
    status = ares_init_options(&dns->channel, &options, mask);
    if (status != ARES_SUCCESS) {
        dns->channel = NULL;
        return rc_from_ares(status);
    }
    if (dns->servers == NULL)
        return MUSTER_OK;
    status = ares_set_servers_ports_csv(dns->channel, dns->servers);
    if (status == ARES_SUCCESS)
        return MUSTER_OK;
    ares_destroy(dns->channel);
    dns->channel = NULL;
    return rc_from_ares(status);
}

static void channel_close(struct muster_dns *dns)
{
    if (dns->channel != NULL)
        ares_destroy(dns->channel);
    dns->channel = NULL;
    MUSTER_ASSERT(dns->running_count == 0 && muster_list_is_empty(&dns->sockets));
    muster_timer_stop(&dns->timer);
    muster_task_cancel(&dns->idle);
}

/* A task, because the last query ends inside c-ares, which must not be destroyed there. */
static void on_idle(struct muster_task *task)
{
    struct muster_dns *dns = task->data;

    if (dns->running_count == 0)
        channel_close(dns);
}

/* Queries. */

/* A query that c-ares still runs keeps its memory; query_answered frees it. */
static void query_release(struct query *query)
{
    muster_task_cancel(&query->task);
    muster_timer_stop(&query->deadline);
    if (!query->is_running)
        muster_mem_free(query->dns->env->mem, query);
}

static void query_deliver(struct query *query)
{
    struct muster_lookup *lookup = query->lookup;
    struct muster_dns_srv *srv = query->srv;
    struct muster_error error = query->error;

    MUSTER_ASSERT((lookup != NULL) != (srv != NULL));
    query->lookup = NULL;
    query->srv = NULL;
    query_release(query);
    if (lookup != NULL) {
        lookup->impl = NULL;
        lookup->error = error;
        muster_lookup_finish(lookup, error.rc);
        return;
    }
    srv->impl = NULL;
    srv->error = error;
    srv->done(srv, error.rc);
}

static void on_task(struct muster_task *task)
{
    query_deliver(task->data);
}

static void on_deadline(struct muster_timer *timer)
{
    struct query *query = timer->data;

    if (!query->is_decided)
        (void)muster_error_set(&query->error, MUSTER_DEADLINE_EXCEEDED,
                               "lookup of %s: no answer before the deadline", query->name);
    query_deliver(query);
}

/* The answer is delivered from a task, outside c-ares. */
static void query_decide(struct query *query)
{
    MUSTER_ASSERT(!query->is_decided);
    query->is_decided = true;
    muster_task_post(&query->task, query->dns->env->loop);
}

/* A timeout because no socket could be watched is a lack of memory, and is told as one. */
static void decide_status(struct query *query, int status)
{
    if (query->dns->is_starved && rc_from_ares(status) == MUSTER_UNAVAILABLE)
        status = ARES_ENOMEM;
    if (status != ARES_SUCCESS)
        (void)muster_error_set(&query->error, rc_from_ares(status), "lookup of %s: %s", query->name,
                               ares_strerror(status));
    query_decide(query);
}

/* c-ares has called back. Returns whether somebody still waits for it. */
static bool query_answered(struct query *query)
{
    struct muster_dns *dns = query->dns;

    MUSTER_ASSERT(query->is_running && dns->running_count > 0);
    query->is_running = false;
    if (--dns->running_count == 0)
        muster_task_post(&dns->idle, dns->env->loop);
    if (query->lookup != NULL || query->srv != NULL)
        return !query->is_decided;
    muster_mem_free(dns->env->mem, query);
    return false;
}

/* c-ares goes on with the query; its answer finds nobody (query_answered). */
static void query_cancel(struct query *query)
{
    if (query == NULL || query->is_decided)
        return;
    (void)muster_error_set(&query->error, MUSTER_CANCELLED, "lookup of %s: cancelled", query->name);
    query_decide(query);
}

static enum muster_rc query_new(struct muster_dns *dns, const char *name, uint64_t deadline_ns,
                                struct query **ret_query)
{
    struct query *query;

    if (strlen(name) >= sizeof(query->name))
        return MUSTER_INVALID_ARGUMENT;
    query = muster_mem_alloc_zero(dns->env->mem, 1, sizeof(*query));
    if (query == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    query->dns = dns;
    memcpy(query->name, name, strlen(name) + 1);
    muster_task_init(&query->task, on_task, query);
    muster_timer_init(&query->deadline, on_deadline, query);
    if (deadline_ns != UINT64_MAX)
        muster_timer_start(&query->deadline, dns->env->loop, deadline_ns);
    *ret_query = query;
    return MUSTER_OK;
}

/* It runs from before the call of c-ares, which may answer from within (from /etc/hosts). */
static void query_run(struct query *query)
{
    MUSTER_ASSERT(!query->is_running);
    query->is_running = true;
    query->dns->running_count++;
    muster_task_cancel(&query->dns->idle);
}

/* Addresses. */

/* The order is that of c-ares (RFC 6724). An address that is given twice counts once. */
static void add_address(struct muster_lookup *lookup, const struct sockaddr *sockaddr)
{
    struct muster_address address;
    size_t i;

    memset(&address, 0, sizeof(address));
    address.port = lookup->port;
    if (sockaddr->sa_family == AF_INET) {
        address.family = MUSTER_ADDRESS_IPV4;
        memcpy(address.ip, &((const struct sockaddr_in *)(const void *)sockaddr)->sin_addr, 4);
    } else if (sockaddr->sa_family == AF_INET6) {
        address.family = MUSTER_ADDRESS_IPV6;
        memcpy(address.ip, &((const struct sockaddr_in6 *)(const void *)sockaddr)->sin6_addr, 16);
    } else {
        return;
    }
    for (i = 0; i < lookup->address_count; i++)
        if (muster_address_is_equal(&lookup->addresses[i], &address))
            return;
    if (lookup->address_count < MUSTER_LOOKUP_ADDRESSES_MAX)
        lookup->addresses[lookup->address_count++] = address;
}

static void on_addresses(void *data, int status, int timeouts, struct ares_addrinfo *result)
{
    struct query *query = data;
    const struct ares_addrinfo_node *node;

    (void)timeouts;
    if (query_answered(query)) {
        for (node = result != NULL ? result->nodes : NULL; node != NULL; node = node->ai_next)
            add_address(query->lookup, node->ai_addr);
        if (status == ARES_SUCCESS && query->lookup->address_count == 0)
            status = ARES_ENODATA;
        decide_status(query, status);
    }
    if (result != NULL)
        ares_freeaddrinfo(result);
}

/* "1.2.3.4", "::1", "fe80::1%3": nothing is to be looked up, but the answer comes like any other.
 * A host may also be named "unix", and "unix:80" is the text of a socket's path. */
static bool parse_ip_text(const char *host, uint16_t port, struct muster_address *ret_address)
{
    bool is_ipv6 = strchr(host, ':') != NULL;
    char text[MUSTER_HOST_TEXT_BYTES + 10];

    snprintf(text, sizeof(text), is_ipv6 ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    return muster_address_parse(text, ret_address, NULL) == MUSTER_OK &&
           ret_address->family != MUSTER_ADDRESS_UNIX;
}

enum muster_rc muster_dns_lookup(struct muster_dns *dns, struct muster_lookup *lookup,
                                 const char *host, uint64_t deadline_ns)
{
    static const struct ares_addrinfo_hints hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
    };
    bool is_ip = parse_ip_text(host, lookup->port, &lookup->addresses[0]);
    struct query *query = NULL;
    enum muster_rc rc;

    if (!is_ip && strchr(host, ':') != NULL)
        return MUSTER_INVALID_ARGUMENT;
    rc = is_ip ? MUSTER_OK : channel_open(dns);
    if (rc == MUSTER_OK)
        rc = query_new(dns, host, deadline_ns, &query);
    if (rc != MUSTER_OK)
        return rc;
    query->lookup = lookup;
    lookup->impl = query;
    lookup->address_count = is_ip ? 1 : 0;
    if (is_ip) {
        query_decide(query);
        return MUSTER_OK;
    }
    query_run(query);
    ares_getaddrinfo(dns->channel, host, NULL, &hints, on_addresses, query);
    update_timer(dns);
    return MUSTER_OK;
}

void muster_dns_lookup_cancel(struct muster_dns *dns, struct muster_lookup *lookup)
{
    (void)dns;
    query_cancel(lookup->impl);
}

/* Services. */

static bool is_before(const struct muster_dns_service *a, const struct muster_dns_service *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->weight > b->weight;
}

/* Insertion keeps the order of RFC 2782: a lower priority first, then more weight. False: there is
 * no room for the service. */
static bool add_service(struct muster_dns_srv *srv, const struct ares_srv_reply *reply)
{
    struct muster_dns_service service = {
        .port = reply->port, .priority = reply->priority, .weight = reply->weight};
    size_t at = srv->service_count;

    if (srv->service_count == MUSTER_DNS_SERVICES_MAX ||
        strlen(reply->host) >= sizeof(service.target))
        return false;
    memcpy(service.target, reply->host, strlen(reply->host) + 1);
    for (; at > 0 && is_before(&service, &srv->services[at - 1]); at--)
        srv->services[at] = srv->services[at - 1];
    srv->services[at] = service;
    srv->service_count++;
    return true;
}

static void on_services(void *data, int status, int timeouts, unsigned char *bytes, int count)
{
    struct query *query = data;
    struct ares_srv_reply *replies = NULL;
    const struct ares_srv_reply *reply;

    (void)timeouts;
    if (!query_answered(query))
        return;
    if (status == ARES_SUCCESS)
        status = ares_parse_srv_reply(bytes, count, &replies);
    for (reply = replies; reply != NULL; reply = reply->next) {
        if (!add_service(query->srv, reply))
            status = ARES_ENOMEM;
    }
    if (replies != NULL)
        ares_free_data(replies);
    decide_status(query, status);
}

enum muster_rc muster_dns_srv_start(struct muster_dns_srv *srv, struct muster_dns *dns,
                                    const char *name, uint64_t deadline_ns, muster_dns_srv_fn *done)
{
    struct query *query = NULL;
    enum muster_rc rc = channel_open(dns);

    if (rc == MUSTER_OK)
        rc = query_new(dns, name, deadline_ns, &query);
    if (rc != MUSTER_OK)
        return rc;
    srv->service_count = 0;
    srv->error = (struct muster_error){.rc = MUSTER_OK};
    srv->done = done;
    srv->impl = query;
    query->srv = srv;
    query_run(query);
    ares_query(dns->channel, name, CLASS_IN, TYPE_SRV, on_services, query);
    update_timer(dns);
    return MUSTER_OK;
}

void muster_dns_srv_cancel(struct muster_dns_srv *srv)
{
    query_cancel(srv->impl);
}

/* Open and close. */

enum muster_rc muster_dns_open(struct muster_env *env, const struct muster_dns_options *options,
                               struct muster_dns **ret_dns)
{
    static const struct muster_dns_options defaults = {.servers = NULL};
    struct muster_dns *dns = muster_mem_alloc_zero(env->mem, 1, sizeof(*dns));

    if (options == NULL)
        options = &defaults;
    if (dns == NULL || ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
        goto fail;
    dns->env = env;
    dns->timeout_ms = options->timeout_ms != 0 ? (int)options->timeout_ms : TRY_TIMEOUT_MS;
    dns->tries = options->tries != 0 ? (int)options->tries : TRIES;
    if (options->servers != NULL) {
        dns->servers = muster_mem_strdup(env->mem, options->servers);
        if (dns->servers == NULL) {
            ares_library_cleanup();
            goto fail;
        }
    }
    muster_list_init(&dns->sockets);
    muster_timer_init(&dns->timer, on_timer, dns);
    muster_task_init(&dns->idle, on_idle, dns);
    *ret_dns = dns;
    return MUSTER_OK;
fail:
    muster_mem_free(env->mem, dns);
    return MUSTER_RESOURCE_EXHAUSTED;
}

void muster_dns_close(struct muster_dns *dns)
{
    if (dns == NULL)
        return;
    channel_close(dns);
    ares_library_cleanup();
    muster_mem_free(dns->env->mem, dns->servers);
    muster_mem_free(dns->env->mem, dns);
}
