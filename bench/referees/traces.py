"""Windows' courses compared as courses: cycle by cycle, from loss to loss.

A course is a flow's window, sampled each 20 ms. It falls when a loss is seen and grows until the
next, so a cycle is its peak, its trough, its period and its shape. Two courses of one law need not
begin a cycle together, and one that is a hundredth slower is half a cycle late after fifty. So
cycles are paired one by one, and each pair is compared from the end of its repair to its loss, both
stretched to one length: what stretching hides, the period has shown already.

It knows nothing of laws: what differences are allowed is said in scripts/referees.
"""

STEP = 0.02  # seconds between samples
FALL = 0.95  # below this share of the highest since the last loss there has been one
POINTS = 50  # of a stretched cycle
LEAST_PAIRS = 3  # fewer pairs of cycles compare nothing


class Cycle:
    """From the end of one loss's repair to the next loss."""

    def __init__(self, begun, windows, ended):
        self.windows = windows
        self.peak, self.trough = max(windows), windows[0]
        self.period = (ended - begun) * STEP

    def stretched(self):
        """The course at so many phases, between samples linearly."""
        last = len(self.windows) - 1
        for point in range(POINTS):
            at = last * point / (POINTS - 1)
            below = min(int(at), last - 1) if last else 0
            share = at - below
            yield self.windows[below] * (1 - share) + self.windows[min(below + 1, last)] * share


def losses(course, repair):
    """At which samples the window has fallen; within `repair` seconds it is the same loss."""
    found, most, quiet = [], 0.0, int(repair / STEP)
    for at, window in enumerate(course):
        if found and at < found[-1] + quiet:
            most = window
        elif window < FALL * most:
            found.append(at)
            most = window
        else:
            most = max(most, window)
    return found


def cycles(course, repair):
    """All whole cycles."""
    quiet, found = int(repair / STEP), losses(course, repair)
    pairs = zip(found, found[1:])
    return [Cycle(a, course[a + quiet : b], b) for a, b in pairs if b - a > quiet + 1]


def apart(here, there):
    """How far one cycle is from another: shares of the other's; the shape's, of its mean."""
    a, b = list(here.stretched()), list(there.stretched())
    return {
        "peak": abs(here.peak / there.peak - 1),
        "trough": abs(here.trough / there.trough - 1),
        "period": abs(here.period / there.period - 1),
        "shape": sum(abs(x - y) for x, y in zip(a, b)) / sum(b),
    }


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def compare(here, there, repair):
    """The mean over paired cycles of what they are apart, and how many pairs there were.

    Laws whose cycles alternate may begin with another one, so that the pairing may be moved by a
    cycle or two; the nearest counts. Without cycles in both, the courses are compared as they are.
    """
    ours, theirs = cycles(here, repair), cycles(there, repair)
    if not ours and not theirs:
        level = sum(abs(a - b) for a, b in zip(here, there)) / sum(there)
        return {"level": level}, 0
    best, count = {}, min(len(ours), len(theirs))
    for moved in range(-2, 3):
        a, b = ours[max(moved, 0) :], theirs[max(-moved, 0) :]
        found = [apart(x, y) for x, y in zip(a, b)]
        if len(found) < LEAST_PAIRS:
            continue
        now = {key: mean(one[key] for one in found) for key in found[0]}
        if not best or sum(now.values()) < sum(best.values()):
            best, count = now, len(found)
    return best, count
