"""Response functions: what window each law has at one loss in so many packets, and its slope.

Four loss ratios, each a quarter of the one before, exactly periodic, on a link on which nothing
else limits: a run's goodput is then its mean window over the round-trip time. The slope is fitted
to the logarithms of both. A law's own response is its closed form where it has one, and otherwise
`whole.py`'s arithmetic of it.

It knows no simulator: what runs gave is given to it.
"""

import math

import whole

EVERY = (500, 2_000, 8_000, 32_000)
# Mbit/s, RTT in ms, queue in packets: room for 8,333 segments on the way, and none of these laws
# has more than 2,600 but in its slow start, for which there is the queue.
LINK = (1_000, 100, 60_000)
RTT = 0.1
# Losses in a run, of which the first third is the start and not counted.
LOSSES = 60


def additive(growth, cut):
    """Segments at one loss in so many: w = sqrt(a (2 - b) / (2 b p))."""
    return lambda every: math.sqrt(growth * (2 - cut) / (2 * cut) * every)


def arithmetic(law):
    return lambda every: whole.mean_window(law, every)[0]


# Law: its mean window, and from how many packets to a loss on it is itself: below, the standard
# law's growth is the larger.
STANDARD = (additive(1, 0.5), 0)
OWN = {
    # RFC 5681; 1.22/sqrt p.
    "reno": STANDARD,
    "newreno": STANDARD,
    "sack": STANDARD,
    # RFC 3649, 5: from 38 segments on.
    "highspeed": (lambda every: max(0.12 * every**0.835, STANDARD[0](every)), 1_000),
    # Kelly, 2003: (a/(b p)) (1 - b/2); from 100 segments on 0.01 is more than 1/w.
    "scalable": (lambda every: 0.01 / 0.125 * (1 - 0.0625) * every, 1_400),
    "bic": (arithmetic("bic"), 0),
    "htcp": (arithmetic("htcp"), 0),
    # One segment in two round trips there, and half a loss's window.
    "vegas": (additive(0.5, 0.5), 0),
    "cubic": (arithmetic("cubic"), 0),
}


def seconds(law, every):
    """How long so many losses take, by the law itself; a number that three divides."""
    window = OWN[law][0](every)
    return 3 * math.ceil(LOSSES * every * RTT / window / 3)


def window(segments, lasting):
    """The mean window of a run that carried so many segments in two thirds of its time."""
    return segments * RTT / (lasting * 2 / 3)


def slope(windows):
    """The exponent of 1/p, by least squares: {every: window}."""
    points = [(math.log(every), math.log(window)) for every, window in windows.items()]
    x, y = (sum(values) / len(points) for values in zip(*points))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def own(law):
    """The law's own windows, where it is itself."""
    form, least = OWN[law]
    return {every: form(every) for every in EVERY if every >= least}
