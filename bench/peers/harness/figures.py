"""What comes out of runs: figures of one run, medians over rounds, ratios, table, JSON and page.

Pure functions; nothing here starts a process or reads the machine.
"""

import html
import json
import statistics
from dataclasses import asdict, dataclass, field


UNKNOWN = float("nan")


class Unreadable(Exception):
    """A program's answer is not what it should be."""


@dataclass
class Run:
    """One transfer. Rates are bit/s, processor times seconds per 10^9 bytes of content."""

    goodput: float
    rate: float
    cpu_sender: float
    cpu_receiver: float
    checked: bool
    elsewhere: float = 0.0
    jain: float = UNKNOWN  # of several at once: their rates' fairness
    loss: float = UNKNOWN  # packets lost of those sent
    counted: dict = field(default_factory=dict)  # what else is known of it, by name


def last_object(text):
    """The last line of a program's output that is a JSON object."""
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError as error:
                raise Unreadable(f"not JSON: {line[:200]}") from error
    raise Unreadable(f"no figures in {text[-200:]!r}")


def of_pair(sender, receiver, factor, datagram=None):
    """The run of two of our own programs, from what each of them printed. Where `datagram` is
    stated, the sender has to say that its full packets were so long to the end: shorter ones are
    another comparison than the case's."""
    out, into = last_object(sender), last_object(receiver)
    try:
        if into["verified"] is not True:
            raise Unreadable("what arrived is not what was sent")
        if out["bytes"] != into["bytes"] or into["seconds"] <= 0:
            raise Unreadable("the ends do not agree")
        if datagram and out["payload"] < datagram:
            raise Unreadable(f"datagrams of {out['payload']} bytes at the end, not {datagram}")
        goodput = into["bytes"] * 8 / into["seconds"]
        gigabytes = into["bytes"] / 1e9
        cpu = out["cpu_s"] / gigabytes, into["cpu_s"] / gigabytes
    except KeyError as error:
        raise Unreadable(f"no field {error}") from error
    return Run(goodput, goodput * factor, *cpu, checked=True)


def of_gtp(served, fetched, account=max):
    """GTP's run: the server's lines (one for each session) and the fetcher's object. Sessions that
    ran side by side in one process: the longest account has all of it; else `account` is `sum`."""
    into = last_object(fetched)
    sessions = [json.loads(line) for line in served.splitlines() if '"served"' in line]
    try:
        if into["verified"] is not True or len(sessions) != into["sessions"]:
            raise Unreadable("a session is missing, or what arrived is not what was sent")
        gigabytes = into["bytes"] / 1e9
        cpu_sender = account(session["cpu_s"] for session in sessions) / gigabytes
        run = Run(into["goodput"], into["rate"], cpu_sender, into["cpu_s"] / gigabytes, True)
        run.loss = into["loss_ratio"]
        if len(sessions) > 1:
            run.jain = jain(into["session_rates"])
        return run
    except KeyError as error:
        raise Unreadable(f"no field {error}") from error


def jain(rates):
    """Jain's index: 1 where all are equal, 1/n where one has all."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else UNKNOWN


def of_many(runs, alike):
    """Several transfers at once: what they moved together, and how equal they were. Those of equal
    `alike` "bytes" last as long as the slowest; those of equal "seconds" add up."""
    together = {"bytes": lambda rates: min(rates) * len(rates), "seconds": sum}[alike]
    factor = runs[0].rate / runs[0].goodput
    cpu = [statistics.fmean(pick) for pick in
           zip(*((run.cpu_sender, run.cpu_receiver) for run in runs))]
    goodput = together([run.goodput for run in runs])
    checked = all(run.checked for run in runs)
    return Run(goodput, goodput * factor, *cpu, checked, jain=jain([r.goodput for r in runs]))


def of_iperf3(text, factor):
    """The run of iperf3, which does not look at what it moves."""
    try:
        end = json.loads(text)["end"]
        goodput = end["sum_received"]["bits_per_second"]
        seconds, moved = end["sum_received"]["seconds"], end["sum_received"]["bytes"]
        used = end["cpu_utilization_percent"]
        per_percent = seconds / 100 / (moved / 1e9)
        cpu = used["host_total"] * per_percent, used["remote_total"] * per_percent
    except (ValueError, KeyError, ZeroDivisionError) as error:
        raise Unreadable(f"iperf3: {error!r} in {text[:200]!r}") from error
    return Run(goodput, goodput * factor, *cpu, checked=False)


# What stands beside the content in a full IP packet, nominally: headers of IPv4 and UDP or TCP
# (with timestamps), the protocol's own, the tag; for TLS its records as well.
OVERHEAD = {
    "bare": 20 + 8 + 16 + 16,
    "gtp": 20 + 8 + 49,
    "tcp": 20 + 32,
    "tls": 20 + 32,
    "quic": 20 + 8 + 9 + 3 + 12 + 16,
    "udt": 20 + 8 + 16,
}


def ip_factor(kind, mtu, payload=None):
    """IP bytes for each byte of content in full packets."""
    overhead = OVERHEAD[kind]
    content = payload or mtu - overhead
    factor = (content + overhead) / content
    return factor * (16384 + 22) / 16384 if kind == "tls" else factor



@dataclass
class Row:
    """One peer in one case: medians over its good rounds; not a number where there was none."""

    name: str
    rounds: int
    failed: int
    rate: float = UNKNOWN
    goodput: float = UNKNOWN
    cpu_sender: float = UNKNOWN
    cpu_receiver: float = UNKNOWN
    least: float = UNKNOWN
    most: float = UNKNOWN
    jain: float = UNKNOWN
    loss: float = UNKNOWN
    ours_by_theirs: float | None = None
    by_best_stated: float | None = None
    counted: dict = field(default_factory=dict)


# What a peer's name may end in that GTP's must end in too for the two to be held together.
SETTINGS = ("incast", "tmpfs", "disk", "steered", "halved")


# Whole commands that move a file to nowhere, as `gtp-file` does.
TO_NOWHERE = ("gridftp", "gridftp-4", "gridftp-private")


def ours_of(name):
    """Whom a peer is held against, if that was run: `gtp`, or GTP in the same setting (`scp-disk`:
    `gtp-disk`)."""
    kind, _, setting = name.rpartition("-")
    same = "gtp-file" if name in TO_NOWHERE else f"gtp-{setting}"
    alike = name in TO_NOWHERE or setting in SETTINGS and kind != "gtp"
    return same if alike else "gtp"


def by_best_stated(name, runs):
    """What GTP reached with nothing stated by the best that it reached with a rate stated in the
    same setting and round: the median of the rounds that have both."""
    of_stated = [of_peer for other, of_peer in runs.items()
                 if other.startswith("stated-") and ours_of(other) == name]
    ratios = []
    for number, run in enumerate(runs[name]):
        best = max((of[number].goodput for of in of_stated if of[number]), default=0)
        if run and best:
            ratios.append(run.goodput / best)
    return statistics.median(ratios) if ratios else None


# What the bare program has to reach of iperf3 in the same round to be called the machine's limit. It
# encrypts, which weighs most where the kernel has least to do.
LIMIT = {"offload on": 0.5, "offload off": 0.85}


def limit(case, runs):
    """How honest a limit the bare program is, where both ran: its goodput by iperf3's, as the median
    of the rounds that have both, and what is asked in such a case; none if there is none."""
    pairs = zip(runs.get("bare", ()), runs.get("iperf3-cubic", ()))
    ratios = [bare.goodput / kernel.goodput for bare, kernel in pairs if bare and kernel]
    asked = next((least for setting, least in LIMIT.items() if setting in case), None)
    if not ratios or asked is None:
        return None
    ratio = statistics.median(ratios)
    return {"bare_by_iperf3": ratio, "asked": asked, "is_limit": ratio >= asked}


def rows(runs):
    """Medians for each peer of {name: [Run]}, and our goodput by theirs, as medians of ratios
    within a round where both have one: a slow minute of the machine then counts for both. Goodput,
    because what one end repairs or sends twice is no merit."""
    made = []
    for name, of_peer in runs.items():
        there = [run for run in of_peer if run is not None]
        row = Row(name, len(there), len(of_peer) - len(there))
        if there:
            median = lambda pick: statistics.median(pick(run) for run in there)
            row.rate, row.goodput = median(lambda r: r.rate), median(lambda r: r.goodput)
            row.cpu_sender = median(lambda r: r.cpu_sender)
            row.cpu_receiver = median(lambda r: r.cpu_receiver)
            # A median would hide the round in which something went wrong.
            row.jain = min(run.jain for run in there)
            row.loss = max(run.loss for run in there)
            row.least = min(run.rate for run in there)
            row.most = max(run.rate for run in there)
            row.counted = {name: statistics.median(run.counted[name] for run in there)
                           for name in there[0].counted}
        ours = ours_of(name)
        if name != ours and ours in runs:
            both = [(o.goodput / t.goodput) for o, t in zip(runs[ours], of_peer) if o and t]
            row.ours_by_theirs = statistics.median(both) if both else None
        row.by_best_stated = by_best_stated(name, runs)
        made.append(row)
    return made


def evenness(counted):
    """How even what was sent was, where that was looked at."""
    if "interval_worst" not in counted:
        return ""
    percent = {name: 100 * part for name, part in counted.items()}
    return (f"  of the rate: intervals within {percent['interval_asked']:.1f} %: "
            f"{percent['intervals_within']:.1f} % (99 in 100 within "
            f"{percent['interval_p99']:.1f}, worst {percent['interval_worst']:.1f}), worst second "
            f"{percent['second_worst']:.2f}; processor {percent['cores_sender']:.1f} % out, "
            f"{percent['cores_receiver']:.1f} in")


def table(case, made, limited=None):
    """Rows for people, and what `limit` says of the case."""
    head = f"{'':<22}{'Gbit/s IP':>10}{'least':>8}{'most':>8}{'goodput':>9}"
    head += f"{'CPU s/GB out':>14}{'in':>7}{'gtp / it':>10}"
    lines = [case, head]
    for row in made:
        ratio = "" if row.ours_by_theirs is None else f"{row.ours_by_theirs:.2f}"
        if row.rounds == 0:
            lines.append(f"{row.name:<22}failed in all of {row.failed} rounds")
            continue
        lines.append(
            f"{row.name:<22}{row.rate / 1e9:>10.2f}{row.least / 1e9:>8.2f}{row.most / 1e9:>8.2f}"
            f"{row.goodput / 1e9:>9.2f}{row.cpu_sender:>14.2f}{row.cpu_receiver:>7.2f}{ratio:>10}"
            + (f"  Jain at least {row.jain:.4f}" if row.jain == row.jain else "")
            + (f"  lost at most {100 * row.loss:.3f} %" if row.loss == row.loss else "")
            + ("" if row.by_best_stated is None else
               f"  {row.by_best_stated:.2f} of the best with a rate stated")
            + evenness(row.counted)
            + (f"  failed in {row.failed} of {row.failed + row.rounds} rounds" if row.failed else "")
        )
    if limited:
        honest = "a limit" if limited["is_limit"] else "no limit"
        lines.append(f"bare by iperf3 {limited['bare_by_iperf3']:.2f}, asked {limited['asked']:.2f}: "
                     f"{honest} of the machine")
    return "\n".join(lines)


def known(value):
    """The same with null for what is not a number: JSON has no word for that."""
    if isinstance(value, dict):
        return {key: known(part) for key, part in value.items()}
    if isinstance(value, list):
        return [known(part) for part in value]
    return None if isinstance(value, float) and value != value else value


def as_json(machine, cases):
    """Everything, of [(case, {name: [Run]})]."""
    return known({
        "machine": machine,
        "units": {"rate": "bit/s of IP", "goodput": "bit/s", "cpu": "s per 1e9 bytes"},
        "cases": [
            {
                "case": case,
                "limit": limit(case, runs),
                "peers": [
                    asdict(row) | {"runs": [run and asdict(run) for run in runs[row.name]]}
                    for row in rows(runs)
                ],
            }
            for case, runs in cases
        ],
    })


def page(machine, cases):
    """One HTML page with a bar for each peer's median and a line from its least to its most."""
    parts = ["<!doctype html><meta charset=utf-8><title>GTP and its peers</title>"]
    parts.append("<style>body{font:15px sans-serif;margin:2em}td,text{font-size:13px}</style>")
    said = ", ".join(f"{key}: {value}" for key, value in machine.items())
    parts.append(f"<h1>GTP and its peers</h1><p>{html.escape(said)}</p>")
    for case, runs in cases:
        made = rows(runs)
        most = max((row.most for row in made if row.rounds), default=1.0)
        height = 26 * len(made)
        parts.append(f"<h2>{html.escape(case)}</h2><svg width=900 height={height}>")
        for at, row in enumerate(made):
            y, x = 26 * at, lambda rate: 180 + 560 * rate / most
            colour = "#c33" if row.name.startswith("gtp") else "#68a"
            parts.append(f"<text x=0 y={y + 17}>{html.escape(row.name)}</text>")
            failed = f"failed in {row.failed} of {row.failed + row.rounds} rounds"
            if row.rounds == 0:
                parts.append(f"<text x=184 y={y + 17}>{failed}</text>")
                continue
            label = f"{row.rate / 1e9:.2f} Gbit/s; CPU {row.cpu_sender:.2f} + {row.cpu_receiver:.2f} s/GB"
            label += f"; {failed}" if row.failed else ""
            parts.append(
                f"<rect x=180 y={y + 4} width={x(row.rate) - 180:.1f} height=18 fill='{colour}'/>"
                f"<line x1={x(row.least):.1f} x2={x(row.most):.1f} y1={y + 13} y2={y + 13} "
                f"stroke=black /><text x={x(row.most) + 6:.1f} y={y + 17}>{label}</text>"
            )
        parts.append("</svg>")
    return "\n".join(parts)
