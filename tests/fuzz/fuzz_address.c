/* Address and endpoint texts: what was read must be read alike from its own text. */
#include <stdlib.h>
#include <string.h>

#include <muster/address.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char text[512], again[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address, copy;
    struct muster_endpoint endpoint;

    if (size >= sizeof(text))
        return 0;
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (muster_address_parse(text, &address, NULL) == MUSTER_OK &&
        (muster_address_parse(muster_address_format(&address, again), &copy, NULL) != MUSTER_OK ||
         !muster_address_is_equal(&address, &copy)))
        abort();
    if (muster_endpoint_parse(text, 80, &endpoint, NULL) == MUSTER_OK &&
        memchr(endpoint.host, '\0', sizeof(endpoint.host)) == NULL)
        abort();
    return 0;
}
