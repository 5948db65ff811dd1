/* URLs, Retry-After, timestamps and escapes with any bytes in them. */
#include <muster/http.h>

#include <stdlib.h>
#include <string.h>

#include "net/http/retry.h"
#include "net/http/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A resolved reference is a URL, and stays itself when it is resolved again. */
static void resolve_reference(const char *base, const char *reference)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_http_url url;
    char *once = NULL, *twice = NULL;

    if (muster_http_url_resolve(base, reference, mem, &once, NULL) != MUSTER_OK)
        return;
    if (muster_http_url_parse(once, &url, NULL) != MUSTER_OK)
        abort();
    if (muster_http_url_resolve(once, once, mem, &twice, NULL) != MUSTER_OK ||
        strcmp(once, twice) != 0)
        abort();
    muster_mem_free(mem, once);
    muster_mem_free(mem, twice);
}

/* Decoding gives back what was encoded. */
static void encode_text(const char *text)
{
    struct muster_text encoded;
    char *line = NULL, *decoded;
    size_t count;

    muster_text_init(&encoded, muster_mem_system());
    muster_http_url_add_encoded(&encoded, text, "");
    if (text[0] == '\0')
        return;
    if (muster_text_take(&encoded, &line, &count) != MUSTER_OK)
        abort();
    decoded = malloc(count + 1);
    if (decoded == NULL || !muster_http_url_decode(line, count, true, decoded) ||
        strcmp(decoded, text) != 0)
        abort();
    free(decoded);
    muster_mem_free(muster_mem_system(), line);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = strndup((const char *)bytes, size);
    char *room = malloc(size + 1);
    char out[64];
    uint64_t delay_ns;

    if (text == NULL || room == NULL)
        abort();
    resolve_reference("https://a.b:8/c/d?e", text);
    resolve_reference(text, "../x?y");
    encode_text(text);
    (void)muster_http_url_decode(text, strlen(text), false, room);
    (void)muster_http_url_redact(text, out, sizeof(out));
    (void)muster_http_url_redact_short(text, out, 1);
    if (muster_http_retry_after_parse(text, 0, &delay_ns) == MUSTER_OK &&
        delay_ns > MUSTER_HTTP_RETRY_AFTER_S_MAX * MUSTER_NS_PER_S)
        abort();
    (void)!muster_http_timestamp_parse(text, 0, &delay_ns);
    free(room);
    free(text);
    return 0;
}
