/* All that a resolver can be asked, as one text that a test can compare. */
#ifndef MUSTER_RESOLVER_FACTS_H
#define MUSTER_RESOLVER_FACTS_H

#include <muster/resolver.h>

/**
 * Its name and its reason, its properties, where each fact comes from, the cluster, and masters and
 * accelerators of several queries about a job "worker"; each line ends with a newline. An error is its
 * name, of some questions with its text. Valid until the next call; fails the case when an answer takes
 * longer than 30 s.
 */
const char *resolver_facts(struct muster_resolver *resolver);

/** Devices of worker tasks 0 and 1 and of others, for struct muster_resolver_options. */
muster_device_list_fn resolver_facts_devices;

/** Each line of text is that of expected, or tells of RESOURCE_EXHAUSTED; behind such a line sources may
 * be unknown. Fails the case. */
void assert_facts_or_no_memory(const char *text, const char *expected);

#endif
