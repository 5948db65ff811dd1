/* The pages that etcd has at its client port: /health, /version, /metrics. Probes of orchestrators
 * and Prometheus read them over plain HTTP on the port of the registry. */
#include "cluster/registry/server_internal.h"

#include <stdio.h>
#include <string.h>

#define TYPE_JSON    "application/json"
#define TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"
#define BODY_BYTES   512

static struct muster_registry_server *server_of(struct muster_rpc_page *page)
{
    return page->data;
}

static void fill_text(struct muster_registry_server *server, struct muster_rpc_page_answer *answer,
                      const char *text)
{
    answer->body = muster_mem_strdup(server->env->mem, text);
    if (answer->body == NULL)
        answer->status = 500;
    else
        answer->body_bytes = strlen(text);
}

/* The reason is for people. So characters that JSON would have to escape (RFC 8259 section 7)
 * become a single quote, and no encoder is needed. */
static void make_harmless(char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            *text = '\'';
}

static void on_health(struct muster_rpc_page *page, struct muster_rpc_page_answer *answer)
{
    struct muster_registry_server *server = server_of(page);
    struct muster_error error = {.rc = MUSTER_OK}; /* without a text */
    bool is_healthy = muster_registry_server_check(server, &error) == MUSTER_OK;
    char text[BODY_BYTES];

    /* etcd answers 503 as well, which is what probes look at. */
    if (!is_healthy)
        answer->status = 503;
    make_harmless(error.text);
    (void)snprintf(text, sizeof(text), "{\"health\":\"%s\",\"reason\":\"%s\"}",
                   is_healthy ? "true" : "false", error.text);
    answer->type = TYPE_JSON;
    fill_text(server, answer, text);
}

static void on_version(struct muster_rpc_page *page, struct muster_rpc_page_answer *answer)
{
    answer->type = TYPE_JSON;
    fill_text(server_of(page), answer,
              "{\"etcdserver\":\"" MUSTER_REGISTRY_ETCD_VERSION
              "\",\"etcdcluster\":\"" MUSTER_REGISTRY_ETCD_CLUSTER_VERSION "\"}");
}

static void on_metrics(struct muster_rpc_page *page, struct muster_rpc_page_answer *answer)
{
    struct muster_registry_server *server = server_of(page);

    answer->type = TYPE_METRICS;
    if (server->env->metrics != NULL &&
        muster_metrics_format(server->env->metrics, server->env->mem, &answer->body,
                              &answer->body_bytes) != MUSTER_OK)
        answer->status = 500;
}

void muster_registry_pages_add(struct muster_registry_server *server)
{
    static const struct {
        const char *path;
        muster_rpc_page_fn *on_request;
    } rows[MUSTER_REGISTRY_PAGE_COUNT] = {
        {"/health", on_health}, {"/version", on_version}, {"/metrics", on_metrics}};

    for (size_t i = 0; i < MUSTER_REGISTRY_PAGE_COUNT; i++) {
        server->pages[i] = (struct muster_rpc_page){
            .data = server, .path = rows[i].path, .on_request = rows[i].on_request};
        muster_rpc_server_add_page(server->rpc_server, &server->pages[i]);
    }
}
