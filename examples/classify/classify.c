/* A service that classifies images of digits with the newest weights that classify_train has published:
 *
 *     classify --registry HOST:PORT [--listen HOST:PORT] [--min-version N]
 *     curl 'http://HOST:PORT/classify?pixels=0,0,5,13,…'      64 numbers from 0 to 16
 *
 * A request is answered within one callback, so with one version, whole; the next version is taken
 * between two requests. Without a version of at least N all requests are refused with 503. */
#include <signal.h>
#include <stdio.h>

#include "model.h"
#include "serving.h"

struct settings {
    const char *registry;
    const char *listen;
    uint64_t min_version;
};

struct service {
    struct settings settings;
    struct muster_env *env;
    struct muster_reader *reader;
    struct muster_http_server *server;
    struct muster_http_page classify;
    struct muster_http_page version;
    struct muster_health_check has_version;
};

static struct muster_wake *termination;

/* Why there is no answer. */
static enum muster_rc service_check(const struct service *service, struct muster_error *ret_error)
{
    const struct muster_version *version = muster_reader_current(service->reader);
    uint64_t newest = muster_reader_newest(service->reader);
    bool is_model = version != NULL && model_is_in(version);

    if (version != NULL)
        muster_reader_release(service->reader, version);
    if (is_model)
        return MUSTER_OK;
    ret_error->rc = MUSTER_UNAVAILABLE;
    if (version != NULL)
        (void)snprintf(ret_error->text, sizeof(ret_error->text),
                       "version %llu is not a classifier of digits", (unsigned long long)newest);
    else if (newest < service->settings.min_version)
        (void)snprintf(ret_error->text, sizeof(ret_error->text),
                       "version %llu is older than %llu (--min-version)",
                       (unsigned long long)newest,
                       (unsigned long long)service->settings.min_version);
    else
        (void)snprintf(ret_error->text, sizeof(ret_error->text), "version %llu is not here: %s",
                       (unsigned long long)newest,
                       newest == 0 ? "nothing is published" : "it is being fetched");
    return MUSTER_UNAVAILABLE;
}

static void on_classify(struct muster_http_page *page, struct muster_http_reply *reply)
{
    struct service *service = page->data;
    const char *text = muster_http_reply_query(reply, "pixels");
    float pixels[MODEL_PIXELS], probabilities[MODEL_CLASSES];
    struct muster_error error;
    const char *rest = text != NULL ? model_parse_pixels(text, pixels) : NULL;

    if (rest == NULL || *rest != '\0') {
        muster_http_reply_set_status(reply, 400);
        muster_http_reply_printf(reply, "pixels must be %d numbers from 0 to 16, as 0,5,13,…\n",
                                 MODEL_PIXELS);
        return;
    }
    if (service_check(service, &error) != MUSTER_OK) {
        muster_http_reply_set_status(reply, 503);
        muster_http_reply_printf(reply, "%s\n", error.text);
        return;
    }

    const struct muster_version *version = muster_reader_current(service->reader);
    model_classify(version->tensors[0].data, version->tensors[1].data, pixels, probabilities);
    int best = model_best(probabilities);
    muster_http_reply_set_type(reply, "application/json");
    muster_http_reply_printf(reply, "{\"digit\":%d,\"probability\":%.6f,\"version\":%llu}\n", best,
                             (double)probabilities[best], (unsigned long long)version->number);
    muster_reader_release(service->reader, version);
}

static void on_ask_version(struct muster_http_page *page, struct muster_http_reply *reply)
{
    struct service *service = page->data;
    const struct muster_version *version = muster_reader_current(service->reader);

    muster_http_reply_set_type(reply, "application/json");
    muster_http_reply_printf(reply, "{\"version\":%llu,\"newest\":%llu}\n",
                             (unsigned long long)(version != NULL ? version->number : 0),
                             (unsigned long long)muster_reader_newest(service->reader));
    if (version != NULL)
        muster_reader_release(service->reader, version);
}

static enum muster_rc check_version(struct muster_health_check *check,
                                    struct muster_error *ret_error)
{
    return service_check(check->data, ret_error);
}

/* Requests ask for the current version themselves. */
static void on_version(struct muster_reader *reader)
{
    (void)reader;
}

static bool service_open(struct service *service)
{
    const struct muster_reader_options options = {.name = MODEL_PUBLICATION,
                                                  .registry = service->settings.registry,
                                                  .min_version = service->settings.min_version};
    struct muster_error error = {.rc = MUSTER_RESOURCE_EXHAUSTED, .text = "two pages, one path"};
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    service->classify =
        (struct muster_http_page){.data = service, .path = "/classify", .on_request = on_classify};
    service->version = (struct muster_http_page){
        .data = service, .path = "/version", .on_request = on_ask_version};
    service->has_version =
        (struct muster_health_check){.data = service, .name = "weights", .check = check_version};
    if (muster_reader_open(service->env, &options, on_version, &service->reader, &error) !=
            MUSTER_OK ||
        muster_address_parse_listen(service->settings.listen, &address, &error) != MUSTER_OK ||
        muster_http_server_open(service->env, &address, &service->server, &error) != MUSTER_OK ||
        muster_http_page_add(service->server, &service->classify) != MUSTER_OK ||
        muster_http_page_add(service->server, &service->version) != MUSTER_OK) {
        fprintf(stderr, "classify: %s\n", error.text);
        return false;
    }
    muster_health_check_add(service->server, &service->has_version);
    printf("listening %s\n",
           muster_address_format(muster_http_server_address(service->server), text));
    (void)fflush(stdout);
    return true;
}

static void on_reader_closed(struct muster_reader *reader)
{
    struct service *service = muster_wake_data(termination);

    (void)reader;
    muster_loop_stop(service->env->loop);
}

static void on_server_closed(struct muster_http_server *server)
{
    struct service *service = muster_wake_data(termination);

    (void)server;
    service->server = NULL;
    muster_reader_close(service->reader, on_reader_closed);
}

static void on_termination(struct muster_wake *wake)
{
    struct service *service = muster_wake_data(wake);

    if (service->server != NULL)
        muster_http_server_close(service->server, on_server_closed);
}

static void on_signal(int number)
{
    (void)number;
    muster_wake_signal(termination);
}

static const struct muster_option rows[] = {
    {.name = "registry",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, registry),
     .value = "HOST:PORT",
     .help = "The registry that classify_train uses."},
    SERVING_LISTEN_ROW(struct settings),
    {.name = "min-version",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, min_version),
     .fallback = "1",
     .min = 1,
     .help = "Refuse requests until this version or a later one is here."},
};

static const struct muster_options options = {
    .command = "classify",
    .usage = "--registry HOST:PORT [options]",
    .about = "Classify images of digits with the newest published weights.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int main(int argc, char **argv)
{
    static struct service service;
    int code;

    if (!serving_parse(&options, argc, argv, &service.settings, &code))
        return code;
    if (service.settings.registry == NULL) {
        fprintf(stderr, "usage: classify %s\n", options.usage);
        return 2;
    }
    if (muster_env_system_open(NULL, &service.env) != MUSTER_OK ||
        muster_net_system_open(service.env, &service.env->net) != MUSTER_OK ||
        muster_wake_open(service.env->mem, service.env->loop, on_termination, &service,
                         &termination) != MUSTER_OK ||
        !service_open(&service))
        return 1;
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    muster_loop_run(service.env->loop);
    muster_wake_close(termination);
    muster_net_system_close(service.env->net);
    muster_env_system_close(service.env);
    return 0;
}
