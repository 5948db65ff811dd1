/* Base64 of gRPC's "-bin" metadata (RFC 4648 4): written without padding, read with and without. */
#ifndef MUSTER_NET_BASE64_H
#define MUSTER_NET_BASE64_H

#include <muster/status.h>

/** Characters that `bytes` bytes become. */
size_t muster_base64_encoded_bytes(size_t bytes);
/** Writes muster_base64_encoded_bytes(size) characters and no NUL. Returns their number. */
size_t muster_base64_encode(const void *bytes, size_t size, char *out);

/** Room that `length` characters need at most. */
size_t muster_base64_decoded_bytes_max(size_t length);
/** Errors: INVALID_ARGUMENT (a character outside the alphabet, an impossible length). */
MUSTER_MUST_CHECK enum muster_rc muster_base64_decode(const char *text, size_t length, void *out,
                                                      size_t *ret_size);

#endif
