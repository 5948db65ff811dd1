"""Every worker adds 1 in each of 1,000 steps; the total survives the death of any of them."""
import numpy
import muster

total = numpy.zeros(1)
with muster.Strategy() as strategy:
    strategy.register("total", total)
    for _ in strategy.steps(1000):  # a joiner gets the others' total here
        share = numpy.ones(1)
        strategy.all_reduce(share)
        total += share
        strategy.commit()
    if strategy.rank == 0:
        print(f"total {total[0]:.0f}")
