/* Outcomes against what a case expects. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *case_argument(const json_t *holder, const char *name)
{
    return json_object_get(json_object_get(holder, "args"), name);
}

const char *case_text(const json_t *value)
{
    return json_string_value(value);
}

bool case_values_are_equal(const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value;

    if (json_is_number(a) && json_is_number(b) && !(json_is_integer(a) && json_is_integer(b)))
        return json_number_value(a) >= json_number_value(b) &&
               json_number_value(a) <= json_number_value(b);
    if (json_is_array(a) && json_is_array(b)) {
        if (json_array_size(a) != json_array_size(b))
            return false;
        for (size_t i = 0; i < json_array_size(a); i++) {
            if (!case_values_are_equal(json_array_get(a, i), json_array_get(b, i)))
                return false;
        }
        return true;
    }
    if (!json_is_object(a) || !json_is_object(b))
        return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b))
        return false;
    json_object_foreach((json_t *)(uintptr_t)a, name, value)
    {
        const json_t *other = json_object_get(b, name);

        if (other == NULL || !case_values_are_equal(value, other))
            return false;
    }
    return true;
}

static bool status_fits(const json_t *error, enum muster_rc rc)
{
    const json_t *also = json_object_get(error, "status_also");
    const char *status = case_text(json_object_get(error, "status"));

    if (rc == MUSTER_OK)
        return false;
    if (status != NULL && strcmp(status, muster_rc_name(rc)) == 0)
        return true;
    for (size_t i = 0; i < json_array_size(also); i++) {
        const char *other = case_text(json_array_get(also, i));

        if (other != NULL && strcmp(other, muster_rc_name(rc)) == 0)
            return true;
    }
    return false;
}

/* Short text of what was seen or wanted; into a caller's buffer. */
static const char *show_value(const json_t *value, char *text, size_t bytes)
{
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

    snprintf(text, bytes, "%s", dumped != NULL ? dumped : "null");
    free(dumped);
    return text;
}

static const char *show_outcome(const struct case_outcome *outcome, char *text, size_t bytes)
{
    if (outcome->rc == MUSTER_OK)
        return show_value(outcome->value, text, bytes);
    snprintf(text, bytes, "%s (%s)", muster_rc_name(outcome->rc), outcome->error.text);
    return text;
}

static bool value_fits(const json_t *expected, const struct case_outcome *outcome)
{
    if (outcome->rc != MUSTER_OK)
        return false;
    if (outcome->value == NULL)
        return json_is_null(expected);
    return case_values_are_equal(expected, outcome->value);
}

/* The member that decides: "fixed_expect" holds value, error or ok; else "expect", "error", "ok"
 * stand alone. */
static const json_t *expected_part(const json_t *expectation, const char *name)
{
    const json_t *fixed = json_object_get(expectation, "fixed_expect");

    if (fixed != NULL)
        return json_object_get(fixed, name);
    if (strcmp(name, "value") == 0)
        return json_object_get(json_object_get(expectation, "expect"), "value");
    return json_object_get(expectation, name);
}

void case_judge(struct case_run *run, const char *where, const json_t *expectation,
                struct case_outcome *outcome)
{
    const json_t *value = expected_part(expectation, "value");
    const json_t *error = expected_part(expectation, "error");
    char wanted[300];
    char seen[300];
    bool is_right;

    if (value != NULL) {
        is_right = value_fits(value, outcome);
        show_value(value, wanted, sizeof(wanted));
    } else if (error != NULL) {
        is_right = status_fits(error, outcome->rc);
        show_value(json_object_get(error, "status"), wanted, sizeof(wanted));
    } else {
        is_right = outcome->rc == MUSTER_OK;
        snprintf(wanted, sizeof(wanted), "success");
    }
    if (!is_right)
        case_fail(run, "%s gave %s instead of %s", where, show_outcome(outcome, seen, sizeof(seen)),
                  wanted);
    json_decref(outcome->value);
    outcome->value = NULL;
}

bool case_judge_construct(struct case_run *run, struct case_outcome *outcome)
{
    const json_t *construct = json_object_get(run->one, "construct");
    bool is_built = outcome->rc == MUSTER_OK;

    case_judge(run, "construction", construct, outcome);
    return is_built && !run->is_failed;
}

const json_t *case_calls(const struct case_run *run)
{
    const json_t *fixed = json_object_get(run->one, "fixed_calls");

    return fixed != NULL ? fixed : json_object_get(run->one, "calls");
}
