"""Laws that count in whole segments, as Linux of 2007 in ns-2 and ns-3 do: what windows they have.

Not a simulator of TCP: acknowledgments of two segments come evenly over a constant round-trip time,
one segment in so many is lost, a repair takes a round trip. What is exact is the arithmetic: every
division drops its rest, as the kernel's does. `rest=True` keeps the rests, and is then the law as its
paper has it, with the constants of that kernel.

    bench/referees/whole.py            # mean windows of both, for one loss in 2,000 and in 10,000
"""

from functools import lru_cache

RTT = 0.1
SECONDS = 300.0


def divide(whole):
    return (lambda a, b: a // b) if whole else (lambda a, b: a / b)


def bic(state, now, whole):
    """Acknowledgments for one more segment. Binary search up to the last maximum; 16 at most."""
    div, w, top = divide(whole), state["w"], state["top"]
    if w < top:
        step = div(top - w, 4)
        if step > 16:
            count = div(w, 16)
        elif step <= 1:
            count = w * 5
        else:
            count = div(w, step)
    elif w < top + 4:
        count = w * 5
    elif w < top + 48:
        count = div(w * 3, w - top)
    else:
        count = div(w, 16)
    return max(div(count, 2), 1)


def cubic(state, now, whole):
    """Acknowledgments for one more segment. The curve through the last maximum, a round trip ahead."""
    div, w = divide(whole), state["w"]
    if state["epoch"] is None:
        state["epoch"] = now
        above = state["top"] - w
        state["k"] = (above / 0.4) ** (1 / 3) if above > 0 else 0.0
        state["origin"] = max(state["top"], w)
    away = now + RTT - state["epoch"] - state["k"]
    rise = 0.4 * abs(away) ** 3
    rise = int(rise) if whole else rise
    target = state["origin"] - rise if away < 0 else state["origin"] + rise
    count = div(w, target - w) if target > w else 100 * w
    return max(div(count, 2), 1)


def htcp(state, now, whole):
    """Segments for one more. The increase grows with the time since the last loss."""
    since, factor = now - state["cut"], 1
    if since > 1:
        since -= 1
        factor = 1 + 10 * since + since * since / 4
        factor = int(factor) if whole else factor
    # 0.8 is kept where the queue is never used; two segments to an acknowledgment.
    return state["w"] / (2 * factor * (1 - 0.8)) / 2


# What a loss leaves. ns-3's CUBIC has RFC 9438's share.
LAWS = {
    "bic": (bic, 819 / 1024),
    "cubic": (cubic, 819 / 1024),
    "htcp": (htcp, 0.8),
    "cubic of ns-3": (cubic, 0.7),
}
# Linux drops what its counter of acknowledgments has left, when it has brought a segment and at a
# loss, and the first acknowledgment after a repair brings one by slow start, which goes one beyond
# its threshold. ns-3 takes off what was needed, so that what was counted while much was needed
# brings segments at once when little is.
KEEPING = {"cubic of ns-3"}
# With rests it is RFC 9438, whose window is never below the standard law's (4.3); ns-3 leaves that
# out.
FRIENDLY = {"cubic of ns-3"}


def friendly(state, kept):
    """The standard law's window of the same mean, after one more acknowledgment of two segments."""
    slope = 3 * (1 - kept) / (1 + kept) if state["estimate"] < state["prior"] else 1
    state["estimate"] += slope * 2 / state["w"]
    return state["estimate"]


def mean_window(law, every, whole=True, start=100):
    """The mean over time from a third of it on, and the largest window."""
    grow, kept = LAWS[law]
    linux = whole and law not in KEEPING
    state = {"w": start if whole else float(start), "top": start, "epoch": None, "cut": 0.0}
    state["estimate"] = state["prior"] = 0.0
    now, acked, counted, loss, slow = 0.0, 0, 0.0, every, False
    area = span = most = 0.0
    while now < SECONDS:
        w = state["w"]
        if acked >= loss:
            state["prior"], state["estimate"] = w, w * kept
            lower = w < state["top"]
            state["top"] = w * (1 + kept) / 2 if lower else w
            if whole:
                state["top"] = int(state["top"])
            state["w"] = int(w * kept) if whole else w * kept
            # H-TCP's clock in Linux waits for the repair; its papers' does not.
            state["epoch"], state["cut"] = None, now + RTT if whole else now
            # The repair: a round trip at the smaller window, without growth.
            step, loss = RTT, loss + every
            acked += state["w"]
            if linux:
                counted, slow = 0, True
        else:
            step = RTT * 2 / w
            acked += 2
            need = None if slow else grow(state, now, whole)
            if slow:
                state["w"], slow = w + 1, False
            elif whole:
                if counted >= need:
                    state["w"], counted = w + 1, 0 if linux else counted + 1 - need
                else:
                    counted += 1
            else:
                state["w"] = w + 1 / need
                if law in FRIENDLY:
                    state["w"] = max(state["w"], friendly(state, kept))
        if now >= SECONDS / 3:
            area, span, most = area + state["w"] * step, span + step, max(most, state["w"])
        now += step
    return area / span, most


@lru_cache
def band(law, every):
    """The least and the greatest mean window that different beginnings lead to."""
    means = [mean_window(law, every, start=start)[0] for start in range(40, 1_000, 40)]
    return min(means), max(means)


if __name__ == "__main__":
    print("law           one in   whole segments   with rests: mean and largest window")
    for law in LAWS:
        for every in (2_000, 10_000):
            whole, exact = mean_window(law, every), mean_window(law, every, whole=False)
            print(f"{law:13} {every:6}   {whole[0]:7.1f} {whole[1]:6.0f}  {exact[0]:8.1f} {exact[1]:6.0f}")
