"""Weights from a trainer to two engines that answer with them: weights.py train|serve REGISTRY"""
import sys

import numpy
import muster

STEPS, ENGINES = 200, 2


def train(registry):
    weights = {"layer1": numpy.zeros(100_000, numpy.float32), "layer2": numpy.zeros(100_000, numpy.float32)}
    with muster.publication.Publisher("weights", registry) as publisher:
        while publisher.version < STEPS:
            for layer in weights.values():
                layer[:] = publisher.version + 1  # a step of the training
            publisher.put(weights, wait_readers=ENGINES)


def serve(registry):
    with muster.publication.Reader("weights", registry) as reader:
        version = reader.take(1)
        for request in sys.stdin:
            if reader.current > version.number:  # between two requests
                version = reader.take()
            result = float(request) * (version["layer1"] - version["layer2"]).max()
            print(f"version {version.number} answers {result:g}", flush=True)


{"train": train, "serve": serve}[sys.argv[1]](sys.argv[2])
