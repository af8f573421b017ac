"""Runs GTP and its peers in turn between two namespaces, several rounds, and says medians."""

import argparse
import datetime
import json
import os
import pathlib
import resource
import sys
import time

import figures
import files
import machine
import pacing
import peers
import unstated

PEERS = peers.PEERS | files.FILES | unstated.UNSTATED | pacing.PACING
# Names for several at once.
GROUPS = {
    "memory": [name for name in peers.PEERS if not name.endswith("-incast")],
    "incast": ["gtp", *(name for name in peers.PEERS if name.endswith("-incast"))],
    "files": list(files.FILES),
    "nowhere": ["gtp-file", *figures.TO_NOWHERE],
    "unstated": list(unstated.UNSTATED),
    "pacing": list(pacing.PACING),
}
CASES = {
    "1500-on": (1500, "on"),
    "9000-on": (9000, "on"),
    "1500-off": (1500, "off"),
    "9000-off": (9000, "off"),
}
# A run during which others used more than this part of one processor is made again.
# The kernel's own threads count too, and may use a quarter on some machines.
ELSEWHERE_MOST = 0.5


def names(table, groups=None):
    """A reader of lists of names, of single ones and of groups."""

    def read(text):
        named = [name for name in text.split(",") if name]
        wanted = [one for name in named for one in (groups or {}).get(name, [name])]
        wanted = list(dict.fromkeys(wanted))
        unknown = [name for name in wanted if name not in table]
        if unknown or not wanted:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown) or 'nothing'}: expected some of "
                f"{', '.join([*(groups or {}), *table])}")
        return wanted

    return read


def arguments(words):
    parser = argparse.ArgumentParser(prog="bench-peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tries", type=int, default=3,
                        help="how often a run is made at most while others use the machine")
    parser.add_argument("--cases", type=names(CASES), default=list(CASES))
    parser.add_argument("--peers", type=names(PEERS, GROUPS), default=GROUPS["memory"],
                        help=f"names, or one of the groups {', '.join(GROUPS)}")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench-out"))
    parser.add_argument("--programs", required=True, help="where the Rust programs are")
    parser.add_argument("--native", required=True, help="where the C++ programs are")
    parser.add_argument("--gtp", required=True, help="the gtp command")
    parser.add_argument("--engines", type=int, metavar="N",
                        help="threads that move data, at both ends of gtp, gtp-4 and gtp-16, "
                             "which are not pinned then")
    parser.add_argument("--free", action="store_true",
                        help="pin no peer: the scheduler moves all threads over all processors, as "
                             "on a host that is both ends")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=PATH",
                        help="another build of gtp, as a further peer gtp-NAME")
    args = parser.parse_args(words)
    for also in args.also:
        name, _, path = also.partition("=")
        if not name or not path:
            parser.error(f"--also {also}: expected NAME=PATH")
        PEERS[f"gtp-{name}"] = peers.gtp(1, path)
        args.peers = [*args.peers, f"gtp-{name}"]
    if args.engines is not None and not 1 <= args.engines <= 1024:
        parser.error("--engines is from 1 to 1024")
    always = [peer for peer in args.peers if peer in unstated.UNSTATED | pacing.PACING]
    if args.free and always:
        parser.error(f"--free: the ends of {', '.join(always)} are always pinned")
    if not 1 <= args.rounds <= 100 or not 1 <= args.tries <= 100:
        parser.error("--rounds and --tries are from 1 to 100")
    return args


def own():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(peer, lane, tries):
    """One run, made again while the machine is busy with other things; the quietest of those that
    did not fail, None if there is none."""
    best = None
    for _ in range(tries):
        busy, mine, begun = machine.busy(), own(), time.monotonic()
        try:
            run = PEERS[peer](lane)
        except (peers.Failed, figures.Unreadable) as error:
            print(f"  {peer}: {error}", file=sys.stderr)
            return best
        took = time.monotonic() - begun
        run.elsewhere = max(0.0, (machine.busy() - busy - (own() - mine)) / took)
        if best is None or run.elsewhere < best.elsewhere:
            best = run
        if run.elsewhere <= ELSEWHERE_MOST:
            break
    return best


def main(words):
    args = arguments(words)
    if os.geteuid() != 0:
        raise SystemExit("namespaces need root")
    machine.unwinding()
    args.out.mkdir(parents=True, exist_ok=True)
    with machine.going_first(), machine.Path() as path:
        compare(args, path)


def lane_of(args):
    cores = peers.FREE if args.free else peers.PINNED
    return peers.Lane(args.programs, args.native, args.gtp, engines=args.engines, cores=cores,
                      directory=str(args.out))


def compare(args, path):
    """All cases, all rounds; what is known is written after each round."""
    lane = lane_of(args)
    described = machine.described() | {
        "date": datetime.date.today().isoformat(), "rounds": args.rounds,
        "engines": args.engines, "free": args.free}
    cases = []
    for case in args.cases:
        lane.mtu, offload = CASES[case]
        path.set(lane.mtu, offload)
        runs = {peer: [] for peer in args.peers}
        freely = ", nobody pinned" if args.free else ""
        cases.append((f"MTU {lane.mtu}, offload {offload}{freely}", runs))
        for number in range(args.rounds):
            # Each round begins with another one, so that nobody always follows the same.
            turn = number % len(args.peers)
            for peer in args.peers[turn:] + args.peers[:turn]:
                run = measured(peer, lane, args.tries)
                runs[peer].append(run)
                said = "failed" if run is None else (
                    f"{run.rate / 1e9:.2f} Gbit/s ({run.elsewhere:.2f} busy elsewhere)")
                print(f"  round {number + 1} {case} {peer}: {said}", file=sys.stderr)
            write(args.out, described, cases)
        title = cases[-1][0]
        print(figures.table(title, figures.rows(runs), figures.limit(title, runs)), "\n",
              flush=True)


def write(out, described, cases):
    made = figures.as_json(described, cases)
    (out / "peers.json").write_text(json.dumps(made, indent=1, allow_nan=False) + "\n")
    (out / "peers.html").write_text(figures.page(described, cases))


if __name__ == "__main__":
    main(sys.argv[1:])
