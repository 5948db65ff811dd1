/* Retry-After, backoff, and requests that may be repeated: the rules by which net/http/call.c tries
 * again. All of it is pure; the clock and the random numbers come in as arguments. */
#include "net/http/retry.h"

#include <string.h>
#include <strings.h>

#include "runtime/value/backoff.h"

#define BACKOFF_FIRST_NS (200 * MUSTER_NS_PER_MS) /* a server's short hiccup */
#define BACKOFF_MAX_NS   (10 * MUSTER_NS_PER_S) /* a service is seen to be back after so long */
#define JITTER_PERMILLE  500 /* workers that failed together must not come back together */

bool muster_http_is_idempotent(const char *method)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"};

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

bool muster_http_is_passing(int status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

/* Dates. */

/* A number of at least min and at most max digits. */
static bool take_number(const char **at, size_t min, size_t max, int64_t *ret_number)
{
    int64_t number = 0;
    size_t count = 0;

    while (count < max && **at >= '0' && **at <= '9') {
        number = number * 10 + (**at - '0');
        *at += 1;
        count++;
    }
    *ret_number = number;
    return count >= min;
}

static bool take_text(const char **at, const char *text)
{
    if (strncasecmp(*at, text, strlen(text)) != 0)
        return false;
    *at += strlen(text);
    return true;
}

static bool take_month(const char **at, int64_t *ret_month)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    for (int64_t m = 0; m < 12; m++)
        if (strncasecmp(*at, months + m * 3, 3) == 0) {
            *ret_month = m + 1;
            *at += 3;
            return true;
        }
    return false;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar. The year begins with March here, so
 * that the leap day is its last; then 153 days are any five months, and 146,097 days any 400
 * years. */
static int64_t days_to(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

struct date {
    int64_t year, month, day, hour, minute, second;
};

static bool take_clock(const char **at, struct date *date)
{
    return take_number(at, 2, 2, &date->hour) && take_text(at, ":") &&
           take_number(at, 2, 2, &date->minute) && take_text(at, ":") &&
           take_number(at, 2, 2, &date->second);
}

/* "Sun, 06 Nov 1994 08:49:37 GMT" */
static bool take_fixdate(const char *at, struct date *date)
{
    return take_number(&at, 2, 2, &date->day) && take_text(&at, " ") &&
           take_month(&at, &date->month) && take_text(&at, " ") &&
           take_number(&at, 4, 4, &date->year) && take_text(&at, " ") && take_clock(&at, date) &&
           take_text(&at, " GMT") && *at == '\0';
}

/* "Sunday, 06-Nov-94 08:49:37 GMT": of the years that end so, the one from 1970 to 2069. */
static bool take_rfc850(const char *at, struct date *date)
{
    if (!(take_number(&at, 2, 2, &date->day) && take_text(&at, "-") &&
          take_month(&at, &date->month) && take_text(&at, "-") &&
          take_number(&at, 2, 2, &date->year) && take_text(&at, " ") && take_clock(&at, date) &&
          take_text(&at, " GMT") && *at == '\0'))
        return false;
    date->year += date->year < 70 ? 2000 : 1900;
    return true;
}

/* "Sun Nov  6 08:49:37 1994" */
static bool take_asctime(const char *at, struct date *date)
{
    if (!take_month(&at, &date->month) || !take_text(&at, " "))
        return false;
    (void)take_text(&at, " ");
    return take_number(&at, 1, 2, &date->day) && take_text(&at, " ") && take_clock(&at, date) &&
           take_text(&at, " ") && take_number(&at, 4, 4, &date->year) && *at == '\0';
}

static bool is_date(const struct date *date)
{
    return date->year >= 1970 && date->month >= 1 && date->day >= 1 && date->day <= 31 &&
           date->hour <= 23 && date->minute <= 59 && date->second <= 60;
}

static uint64_t seconds_of(const struct date *date)
{
    return (uint64_t)(days_to(date->year, date->month, date->day) * 86400 + date->hour * 3600 +
                      date->minute * 60 + date->second);
}

/* A recipient must accept all three forms (RFC 9110 5.6.7). The name of the day says nothing that
 * the date does not, and is skipped. */
static bool parse_date(const char *text, struct date *ret_date)
{
    const char *comma = strchr(text, ',');
    const char *blank = strchr(text, ' ');
    bool is_read;

    if (comma != NULL && comma[1] == ' ')
        is_read = take_fixdate(comma + 2, ret_date) || take_rfc850(comma + 2, ret_date);
    else
        is_read = blank != NULL && take_asctime(blank + 1, ret_date);
    return is_read && is_date(ret_date);
}

static uint64_t delay_until(uint64_t then_s, uint64_t wall_ns)
{
    uint64_t now_s = wall_ns / MUSTER_NS_PER_S;
    uint64_t delay_s = then_s > now_s ? then_s - now_s : 0;

    if (delay_s > MUSTER_HTTP_RETRY_AFTER_S_MAX)
        delay_s = MUSTER_HTTP_RETRY_AFTER_S_MAX;
    return delay_s * MUSTER_NS_PER_S;
}

enum muster_rc muster_http_retry_after_parse(const char *text, uint64_t wall_ns,
                                             uint64_t *ret_delay_ns)
{
    const char *at = text;
    struct date date = {.year = 0};
    int64_t number;

    if (take_number(&at, 1, 15, &number) && *at == '\0')
        *ret_delay_ns = delay_until((uint64_t)number, 0);
    else if (parse_date(text, &date))
        *ret_delay_ns = delay_until(seconds_of(&date), wall_ns);
    else
        return MUSTER_INVALID_ARGUMENT;
    return MUSTER_OK;
}

enum muster_rc muster_http_timestamp_parse(const char *text, uint64_t wall_ns,
                                           uint64_t *ret_delay_ns)
{
    const char *at = text;
    struct date date = {.year = 0};
    int64_t fraction;

    if (!(take_number(&at, 4, 4, &date.year) && take_text(&at, "-") &&
          take_number(&at, 2, 2, &date.month) && take_text(&at, "-") &&
          take_number(&at, 2, 2, &date.day) && take_text(&at, "T") && take_clock(&at, &date)))
        return MUSTER_INVALID_ARGUMENT;
    if (take_text(&at, ".") && !take_number(&at, 1, 18, &fraction))
        return MUSTER_INVALID_ARGUMENT;
    if (!(take_text(&at, "Z") || take_text(&at, "+00:00")) || *at != '\0' || !is_date(&date) ||
        date.month > 12)
        return MUSTER_INVALID_ARGUMENT;
    *ret_delay_ns = delay_until(seconds_of(&date), wall_ns);
    return MUSTER_OK;
}

uint64_t muster_http_backoff_ns(const struct muster_http_retry *retry, uint32_t attempt,
                                struct muster_rng *rng)
{
    const struct muster_backoff backoff = {
        .first_ns = retry->backoff_first_ns != 0 ? retry->backoff_first_ns : BACKOFF_FIRST_NS,
        .max_ns = retry->backoff_max_ns != 0 ? retry->backoff_max_ns : BACKOFF_MAX_NS,
        .growth_permille = 2000,
        .jitter_permille = JITTER_PERMILLE,
    };

    return muster_backoff_nth(&backoff, attempt, rng);
}
