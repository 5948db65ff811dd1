/* Lists of numbers or sizes in options: "4K,64K,1M". */
#include "bench/list.h"

#include <muster/options.h>

#include "common/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse_value(const struct bench_list_rule *rule, const char *text, const char *format,
                         ...) MUSTER_PRINTF(3, 4);
static bool refuse_value(const struct bench_list_rule *rule, const char *text, const char *format,
                         ...)
{
    char what[200];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    command_refuse(rule->command, "%s must %s in %s", rule->option, what, text);
    return false;
}

static bool parse_word(const struct bench_list_rule *rule, const char *word, uint64_t *ret_value)
{
    char *end = NULL;

    if (rule->is_sizes)
        return muster_bytes_parse(word, ret_value) == MUSTER_OK;
    *ret_value = strtoull(word, &end, 10); /* a number too large for it is too large for max */
    return word[0] >= '0' && word[0] <= '9' && *end == '\0';
}

static bool add_value(const struct bench_list_rule *rule, const char *text, const char *word,
                      struct bench_list *list)
{
    size_t count_max = rule->count_max == 0 ? BENCH_LIST_MAX : rule->count_max;
    uint64_t value;

    if (list->count == count_max)
        return refuse_value(rule, text, "have at most %zu values, got more", count_max);
    if (!parse_word(rule, word, &value))
        return refuse_value(rule, text, "hold %s, got '%s'",
                            rule->is_sizes ? "sizes such as 65536, 64K, 1M or 2G" : "numbers",
                            word);
    if (value < rule->min || value > rule->max)
        return refuse_value(rule, text, "hold values from %llu to %llu, got '%s'",
                            (unsigned long long)rule->min, (unsigned long long)rule->max, word);
    if (rule->multiple > 1 && value % rule->multiple != 0)
        return refuse_value(rule, text,
                            "hold multiples of %llu bytes, the size of an element, got '%s'",
                            (unsigned long long)rule->multiple, word);
    list->values[list->count++] = value;
    return true;
}

/* strtok_r would skip empty words, so these are refused first. */
bool bench_list_parse(const struct bench_list_rule *rule, const char *text,
                      struct bench_list *ret_list)
{
    char copy[512];
    char *rest = NULL;

    ret_list->count = 0;
    if (text[0] == '\0' || text[0] == ',' || strstr(text, ",,") != NULL ||
        text[strlen(text) - 1] == ',')
        return refuse_value(rule, text, "have a value on both sides of each comma, got none");
    if (strlen(text) >= sizeof(copy))
        return refuse_value(rule, text, "have at most %zu characters, got more", sizeof(copy) - 1);
    strcpy(copy, text);
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        if (!add_value(rule, text, word, ret_list))
            return false;
    return true;
}
