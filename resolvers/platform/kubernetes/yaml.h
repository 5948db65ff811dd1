/* YAML 1.1 as JSON values: for configuration that people write (kubeconfig). */
#ifndef MUSTER_RESOLVERS_YAML_H
#define MUSTER_RESOLVERS_YAML_H

#include <muster/json.h>
#include <muster/status.h>

#define MUSTER_YAML_BYTES_MAX (4u << 20)
#define MUSTER_YAML_DEPTH_MAX 64u

/**
 * Parse one YAML document; JSON is YAML too.
 *
 * Plain null, ~ and empty become null; plain true and false become bool; every other scalar, numbers
 * included, becomes text, because a reader of configuration wants the letters that were written.
 * Of a repeated key the last value counts. An empty text is null.
 *
 * Owns:    gives the root.
 * Errors:  INVALID_ARGUMENT names line, column and what is wrong (also: a second document, a key that
 *          is not a scalar, an alias: anchors are not followed, so that a small text stays small);
 *          RESOURCE_EXHAUSTED (memory, more than MUSTER_YAML_BYTES_MAX bytes or
 *          MUSTER_YAML_DEPTH_MAX levels).
 */
MUSTER_MUST_CHECK enum muster_rc muster_yaml_parse(const char *text, size_t size,
                                                   struct muster_json **ret_root,
                                                   struct muster_error *ret_error);

#endif
