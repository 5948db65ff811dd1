/* meet.h for gloo_allreduce.py. */
#include "meet.h"

struct meet *peer_meet_open(int rank);
void peer_meet_all(struct meet *meet, unsigned count);
void peer_meet_took(struct meet *meet, int rank, double us);
double peer_meet_slowest(const struct meet *meet, int count);

struct meet *peer_meet_open(int rank)
{
    return meet_open(rank);
}

void peer_meet_all(struct meet *meet, unsigned count)
{
    meet_all(meet, count);
}

void peer_meet_took(struct meet *meet, int rank, double us)
{
    meet->took[rank].us = us;
}

double peer_meet_slowest(const struct meet *meet, int count)
{
    double slowest = 0;

    for (int i = 0; i < count; i++)
        slowest = meet->took[i].us > slowest ? meet->took[i].us : slowest;
    return slowest;
}
