"""What can go wrong without any network: words, answers, medians, the shape of what is said."""

import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import compare as command
import figures
import idle
import machine
import pacing
import peers
import unstated
from figures import Run

PROGRAMS = ["--programs", "p", "--native", "n", "--gtp", "g"]


def run(rate):
    return Run(rate * 0.9, rate, 0.4, 0.3, True)


class Words(unittest.TestCase):
    def test_a_group_stands_for_its_peers_and_each_counts_once(self):
        args = command.arguments([*PROGRAMS, "--peers", "gtp,incast"])
        self.assertEqual(args.peers, ["gtp", "gtp-incast", "iperf3-incast", "quinn-incast"])
        args = command.arguments([*PROGRAMS, "--peers", "files"])
        self.assertIn("gridftp-private-disk", args.peers)
        self.assertIn("gridftp-4-tmpfs", args.peers)
        args = command.arguments([*PROGRAMS, "--peers", "memory"])
        self.assertIn("gridftp-private", args.peers)

    def test_names_are_known_ones(self):
        args = command.arguments([*PROGRAMS, "--cases", "1500-on", "--peers", "gtp,bare"])
        self.assertEqual((args.cases, args.peers, args.rounds), (["1500-on"], ["gtp", "bare"], 5))
        for wrong in (["--cases", "1400-on"], ["--peers", "gtp,tcp"], ["--peers", ""],
                      ["--engines", "0"], ["--rounds", "0"], ["--rounds", "x"], ["--also", "old"]):
            with self.assertRaises(SystemExit):
                command.arguments([*PROGRAMS, *wrong])


    def test_engines_that_are_stated_are_pinned_to_no_processor(self):
        args = command.arguments([*PROGRAMS, "--engines", "2"])
        lane = peers.Lane("p", "n", "g", engines=args.engines)
        self.assertEqual(peers.engines(lane), (["--engines", 2], (None, None)))
        self.assertEqual(peers.engines(peers.Lane("p", "n", "g")), ([], (0, 1)))

    def test_each_end_is_pinned_unless_nobody_is(self):
        begun = []

        def refuse(words, *_):
            begun.append(words)
            raise peers.Failed("not today")

        names = ["gtp", "bare", "tls", "quinn", "s2n-quic", "iperf3-cubic"]
        for stated, pinned in ([], True), (["--free"], False):
            lane = command.lane_of(command.arguments([*PROGRAMS, *stated]))
            for name in names + command.GROUPS["incast"]:
                with unittest.mock.patch("peers.start", refuse), self.assertRaises(peers.Failed):
                    peers.PEERS[name](lane)
                self.assertEqual("taskset" in begun[-1], pinned, name)

    def test_what_is_always_pinned_is_not_measured_freely(self):
        for group in ("unstated", "pacing"):
            with self.assertRaises(SystemExit):
                command.arguments([*PROGRAMS, "--peers", group, "--free"])


class Answers(unittest.TestCase):
    OUT = '{"bytes":1000000000,"cpu_s":0.5,"seconds":2.1,"verified":null}'
    INTO = '{"ready":true}\n{"bytes":1000000000,"cpu_s":0.25,"seconds":2.0,"verified":true}'

    def test_a_pair_is_read_at_the_receivers_clock(self):
        got = figures.of_pair(self.OUT, self.INTO, 1.05)
        self.assertEqual((got.goodput, got.cpu_sender, got.cpu_receiver), (4e9, 0.5, 0.25))
        self.assertAlmostEqual(got.rate, 4.2e9)

    def test_what_is_not_verified_or_not_all_counts_for_nothing(self):
        for wrong in (self.INTO.replace("true}", "false}"),
                      self.INTO.replace('"bytes":1', '"bytes":2'),
                      self.INTO.replace("2.0", "0"), '{"verified":true}', "killed", "{broken"):
            with self.assertRaises(figures.Unreadable, msg=wrong):
                figures.of_pair(self.OUT, wrong, 1.0)

    def test_packets_that_became_shorter_than_stated_are_no_run_of_the_case(self):
        said = lambda payload: self.OUT.replace("{", f'{{"payload":{payload},')
        self.assertTrue(figures.of_pair(said(8972), self.INTO, 1.0, 8972).checked)
        for short in (1200, 0):
            with self.assertRaisesRegex(figures.Unreadable, f"{short} bytes"):
                figures.of_pair(said(short), self.INTO, 1.0, 8972)
        with self.assertRaises(figures.Unreadable):
            figures.of_pair(self.OUT, self.INTO, 1.0, 8972)

    def test_gtp_needs_an_end_of_every_session_and_counts_its_process_once(self):
        served = '{"event":"served","cpu_s":1.0}\n{"event":"served","cpu_s":0.9}\n'
        fetched = json.dumps({"verified": True, "sessions": 2, "bytes": 2_000_000_000,
                              "goodput": 8e9, "rate": 8.5e9, "cpu_s": 0.8, "loss_ratio": 0.0,
                              "session_rates": [4e9, 4e9]})
        got = figures.of_gtp(served, fetched)
        self.assertEqual((got.cpu_sender, got.cpu_receiver, got.rate), (0.5, 0.4, 8.5e9))
        self.assertEqual((got.jain, got.loss), (1.0, 0.0))
        with self.assertRaises(figures.Unreadable):
            figures.of_gtp(served.splitlines()[0], fetched)

    def test_iperf3_says_processor_time_in_percent_of_the_run(self):
        end = {"sum_received": {"bits_per_second": 8e9, "seconds": 4.0, "bytes": 4_000_000_000},
               "cpu_utilization_percent": {"host_total": 80.0, "remote_total": 50.0}}
        got = figures.of_iperf3(json.dumps({"end": end}), 1.0)
        self.assertAlmostEqual(got.cpu_sender, 0.8)
        self.assertAlmostEqual(got.cpu_receiver, 0.5)
        for wrong in ("", "{}", json.dumps({"error": "refused"})):
            with self.assertRaises(figures.Unreadable):
                figures.of_iperf3(wrong, 1.0)


    def test_many_at_once_are_as_fast_as_the_slowest_of_them_lets_them_be(self):
        many = figures.of_many([run(10e9), run(5e9)], "bytes")
        self.assertAlmostEqual(many.rate, 10e9)
        self.assertAlmostEqual(figures.of_many([run(10e9), run(5e9)], "seconds").rate, 15e9)
        self.assertAlmostEqual(many.jain, 225 / 250)
        self.assertEqual(figures.jain([3.0, 3.0, 3.0]), 1.0)
        self.assertTrue(math.isnan(figures.jain([0.0])))


class Counters(unittest.TestCase):
    SNMP = ("Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts RcvbufErrors MemErrors\n"
            "Udp: 90 7 40 2\nUdpLite: RcvbufErrors\nUdpLite: 5\n")
    DEVICES = ("Inter-|   Receive  |  Transmit\n face |bytes packets errs drop\n"
               "    lo: 1 1 0 9 0 0 0 0 1 1 0 0 0 0 0 0\n"
               "veth-b:1500 10 0 3 0 0 0 0 800 8 0 4 0 0 0 0\n")
    BEFORE = {"seconds": 5.0, "sent": 0, "arrived": 0, "bytes": 0, "sender_drops": 0,
              "receiver_drops": 0, "socket_drops": 0, "queue_drops": 0, "cpu_sender": 1.0,
              "cpu_receiver": 2.0}

    def test_what_the_kernel_says_is_read_by_its_names(self):
        self.assertEqual(unstated.drops_at_socket(self.SNMP), 42)
        self.assertEqual(unstated.of_device(self.DEVICES, "veth-b"), {
            "in_bytes": 1500, "in_packets": 10, "in_drops": 3, "out_packets": 8, "out_drops": 4})
        self.assertIsNone(unstated.of_device(self.DEVICES, "veth"))
        self.assertEqual(unstated.drops_in_queues("0000ff 0000000a 0\n00 1 0\n"), 11)

    def test_who_has_ended_has_failed(self):
        ended = peers.start(["true"])
        with self.assertRaisesRegex(peers.Failed, "No such"):
            ended.wait()
            unstated.counters(ended.pid, ended.pid)
        peers.stop(ended)

    def test_a_rate_is_of_what_sockets_took_and_a_loss_of_all_that_was_sent(self):
        after = self.BEFORE | {"seconds": 15.0, "sent": 990_000, "sender_drops": 10_000,
                               "arrived": 1_000_000, "bytes": 1_514_000_000,
                               "socket_drops": 250_000, "cpu_sender": 2.5, "cpu_receiver": 3.0}
        run = unstated.between(self.BEFORE, after)
        self.assertAlmostEqual(run.rate, 0.75 * 1_500_000_000 * 8 / 10)
        self.assertAlmostEqual(run.loss, 0.26)
        self.assertAlmostEqual(run.cpu_sender, 1.5 / 1.125)
        self.assertEqual(run.counted["socket_drops"], 250_000)
        with self.assertRaises(figures.Unreadable):
            unstated.between(self.BEFORE, self.BEFORE)


class Pacing(unittest.TestCase):
    @staticmethod
    def seen(protocol, length, segment=0, version=4):
        return (struct.pack("=BBHHHH", 0, 5 if segment else 0, 42, segment, 34, 6) + bytes(14)
                + struct.pack("!BBHHHBB", version << 4 | 5, 0, length, 0, 0, 64, protocol)
                + bytes(10))

    def test_a_batch_counts_with_the_headers_of_all_its_segments(self):
        self.assertEqual(pacing.ip_bytes(self.seen(17, 1477)), 1477)
        self.assertEqual(pacing.ip_bytes(self.seen(17, 28 + 3 * 1449, 1449)), 3 * 1477)
        self.assertEqual(pacing.ip_bytes(self.seen(17, 28 + 1449 + 1, 1449)), 1477 + 29)

    def test_what_is_not_udp_is_not_the_sessions(self):
        for other in (self.seen(6, 1500), self.seen(17, 1500, version=6), bytes(30)):
            self.assertEqual(pacing.ip_bytes(other), 0)

    def test_a_burst_is_a_millisecond_and_at_most_a_batch_and_at_least_a_packet(self):
        self.assertEqual([pacing.burst(rate) for rate in (1e7, 4e8, 1e9)], [1500, 50_000, 65_536])

    def test_even_batches_have_no_error_and_a_gap_is_one_intervals_and_its_seconds(self):
        even = [(at / 1000, 125_000) for at in range(3_001)]
        got = pacing.errors(even, 1e9)
        self.assertLess(got["interval_worst"], 0.11, "a batch may fall on either side of an edge")
        self.assertLess(got["second_worst"], 1e-3 + 1e-9)
        late = [(at + 0.02 if 1 <= at < 1.02 else at, moved) for at, moved in even]
        got = pacing.errors(sorted(late), 1e9)
        self.assertGreater(got["interval_worst"], 0.89)
        self.assertLess(got["intervals_within"], 0.99)
        with self.assertRaises(figures.Unreadable):
            pacing.errors(even[:1000], 1e9)

    def test_a_table_says_how_even_it_was(self):
        made = pacing.judged([(at / 1000, 125_000) for at in range(3_001)], 1e9, [0.5, 0.25])
        self.assertAlmostEqual(made.rate, 1e9)
        self.assertAlmostEqual(made.cpu_sender, 4.0)
        self.assertIn("processor 50.0 % out, 25.0 in",
                      figures.table("case", figures.rows({"paced-1Gbit": [made]})))


class Idle(unittest.TestCase):
    def test_memory_is_the_processs_own_and_time_that_of_all_its_threads(self):
        self.assertEqual(idle.resident("VmRSS:\t 900 kB\nRssAnon:\t 100 kB\n"), 102_400)
        self.assertAlmostEqual(idle.on_processors(["1500000000 7 3\n", "500000000 9 1\n"]), 2.0)
        with self.assertRaises(peers.Failed):
            idle.resident("VmRSS: 900 kB\n")

    def test_open_connections_are_those_of_the_servers_port(self):
        row = "  {}: 0100007F:{} 0100007F:{} {} 0:0 0:0 0 0 0\n".format
        tcp = ("  sl local rem st\n" + row(0, "12CD", "0000", "0A") + row(1, "12CD", "9C40", "01")
               + row(2, "9C40", "12CD", "01") + row(3, "12CD", "9C41", "06"))
        self.assertEqual(idle.established(tcp, 0x12CD), 1)

    def test_each_session_has_its_part_of_what_all_added(self):
        got = idle.told((0.001, 0.101), (1_000, 3_000, 10_200), 10)
        self.assertAlmostEqual(got["processor_each"], 0.01)
        self.assertEqual((got["memory_each"], got["memory_each_further"]), (920, 800))


class Waiting(unittest.TestCase):
    def test_who_says_nothing_is_ended(self):
        silent = peers.start(["sh", "-c", "exec sleep 60"])
        with self.assertRaisesRegex(peers.Failed, "no word"):
            peers.heard(silent, "ready", patience=0.1)
        peers.stop(silent)

    def test_who_ends_without_the_word_is_quoted(self):
        gone = peers.start(["sh", "-c", "echo nothing; echo why >&2"])
        with self.assertRaisesRegex(peers.Failed, "why"):
            peers.heard(gone, "ready")
        peers.stop(gone)

    def test_a_groups_rank_is_put_back(self):
        with tempfile.TemporaryDirectory() as directory:
            group = pathlib.Path(directory, "autogroup")
            group.write_text("7")
            with machine.going_first(group):
                self.assertEqual(group.read_text(), "-20")
            self.assertEqual(group.read_text(), "7")
        self.assertEqual(machine.rank("/autogroup-17 nice -3\n"), "-3")


class Repeats(unittest.TestCase):
    def test_a_run_made_again_in_vain_leaves_the_one_that_was_made(self):
        first = run(1e9)
        outcomes = [first, peers.Failed("not today")]
        with unittest.mock.patch("machine.busy", side_effect=[0.0, 1e6, 1e6]), \
                unittest.mock.patch.dict(command.PEERS, {
                    "gtp": unittest.mock.Mock(side_effect=outcomes)}):
            self.assertIs(command.measured("gtp", None, 3), first)


class Ends(unittest.TestCase):
    ENDED = """
import machine, os, signal, sys
signal.signal(getattr(signal, sys.argv[1]), signal.SIG_DFL)
machine.unwinding()
try:
    print(machine.directory("gtp-bench-test-"))
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
finally:
    print("put back")
"""

    def test_who_is_ended_by_a_signal_puts_back_what_it_changed_and_removes_what_it_made(self):
        for name in ("SIGTERM", "SIGHUP"):
            done = subprocess.run([sys.executable, "-c", self.ENDED, name], capture_output=True,
                                  text=True, cwd=pathlib.Path(__file__).parent)
            made, put_back = done.stdout.splitlines()
            self.assertEqual((done.returncode, put_back),
                             (128 + getattr(signal, name), "put back"))
            self.assertFalse(os.path.exists(made))

    def test_who_has_a_terminal_keeps_it(self):
        for terminal in (True, False):
            made = {"getsid": lambda _: 1, "getpgrp": lambda: 1, "setsid": unittest.mock.Mock()}
            with unittest.mock.patch.multiple(os, **made), \
                    unittest.mock.patch("machine.has_terminal", lambda: terminal), \
                    machine.going_first(pathlib.Path("/nowhere")):
                self.assertEqual(made["setsid"].called, not terminal)


class Accounts(unittest.TestCase):
    def test_a_servers_children_are_its_own_those_that_have_ended_too(self):
        with tempfile.TemporaryDirectory() as proc:
            # Number, name, parent; own and ended children's user and system time.
            for pid, name, parent, *times in ((7, "ftp (x) y", 1, 100, 20, 3, 4),
                                              (8, "ftp", 7, 50, 0, 0, 0), (9, "z", 8, 0, 7, 0, 1),
                                              (10, "other", 1, 900, 0, 0, 0)):
                there = pathlib.Path(proc, str(pid))
                there.mkdir()
                rest = " ".join(["0"] * 9 + [str(ticks) for ticks in times] + ["20"])
                there.joinpath("stat").write_text(f"{pid} ({name}) S {parent} {rest}\n")
            self.assertEqual(peers.cpu_of_tree(7, pathlib.Path(proc)), 1.85)

    def test_a_commands_time_is_counted_once_it_has_ended(self):
        account = peers.Account()
        peers.finish(peers.start(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]))
        seconds, command, server = account.used()
        self.assertTrue(0 < command <= seconds + 0.02)
        self.assertTrue(math.isnan(server))


class Medians(unittest.TestCase):
    RUNS = {"gtp": [run(10e9), run(4e9), run(12e9)], "quinn": [run(5e9), run(2e9), None],
            "srt": [None, None, None]}

    def test_ratios_are_taken_within_a_round_and_failures_count_for_nothing(self):
        gtp, quinn, srt = figures.rows(self.RUNS)
        self.assertEqual((gtp.rate, gtp.least, gtp.most, gtp.rounds), (10e9, 4e9, 12e9, 3))
        self.assertIsNone(gtp.ours_by_theirs)
        self.assertEqual((quinn.rounds, quinn.failed, quinn.ours_by_theirs), (2, 1, 2.0))
        self.assertEqual((srt.rounds, srt.failed, srt.ours_by_theirs), (0, 3, None))

    def test_the_worst_round_says_what_was_lost_and_how_unlike_shares_were(self):
        bad = run(10e9)
        bad.loss, bad.jain = 0.012, 0.25
        good = [run(10e9), run(10e9)]
        for each in good:
            each.loss, each.jain = 0.0, 1.0
        [row] = figures.rows({"gtp": [good[0], bad, good[1]]})
        self.assertEqual((row.loss, row.jain), (0.012, 0.25))

    def test_a_mover_is_held_against_gtp_in_the_same_place(self):
        runs = {"gtp-disk": [run(4e9)], "gtp-tmpfs": [run(8e9)], "scp-tmpfs": [run(2e9)],
                "scp-disk": [run(2e9)]}
        ratios = {row.name: row.ours_by_theirs for row in figures.rows(runs)}
        self.assertEqual((ratios["scp-disk"], ratios["scp-tmpfs"]), (2.0, 4.0))
        self.assertIsNone(ratios["gtp-disk"])
        runs = {"gtp": [run(9e9)], "scp-disk": [run(2e9)], "gridftp-private": [run(4e9)]}
        ratios = {row.name: row.ours_by_theirs for row in figures.rows(runs)}
        self.assertEqual((ratios["scp-disk"], ratios["gridftp-private"]), (None, None))
        runs = {"gtp": [run(9e9)], "gtp-file": [run(6e9)], "gridftp-private": [run(4e9)]}
        ratios = {row.name: row.ours_by_theirs for row in figures.rows(runs)}
        self.assertEqual((ratios["gridftp-private"], ratios["gtp-file"]), (1.5, 1.5))

    def test_nothing_stated_is_held_against_the_best_stated_of_its_round_and_setting(self):
        runs = {"gtp-steered": [run(4e9), run(3e9), None], "gtp-halved": [run(1e9)] * 3,
                "stated-3-steered": [run(2e9), run(4e9), run(1e9)],
                "stated-4-steered": [run(5e9), None, run(1e9)],
                "stated-2-halved": [run(2e9)] * 3}
        made = {row.name: row.by_best_stated for row in figures.rows(runs)}
        self.assertAlmostEqual(made["gtp-steered"], (4 / 5 + 3 / 4) / 2)
        self.assertEqual((made["gtp-halved"], made["stated-4-steered"]), (0.5, None))
        self.assertIn("0.50 of the best with a rate stated",
                      figures.table("case", figures.rows(runs)))

    def test_the_bare_program_is_a_limit_if_it_comes_near_enough_to_the_kernel(self):
        runs = {"bare": [run(6e9), run(8e9), None], "iperf3-cubic": [run(10e9)] * 3}
        for offload, asked, honest in (("on", 0.5, True), ("off", 0.85, False)):
            case = f"MTU 1500, offload {offload}"
            got = figures.limit(case, runs)
            self.assertAlmostEqual(got["bare_by_iperf3"], 0.7)
            self.assertEqual((got["asked"], got["is_limit"]), (asked, honest))
            self.assertEqual(figures.as_json({}, [(case, runs)])["cases"][0]["limit"], got)
            said = figures.table(case, figures.rows(runs), got)
            self.assertIn("0.70, asked", said)
            self.assertEqual("no limit" in said, not honest)
        self.assertIsNone(figures.limit("MTU 1500, offload on", {"bare": [run(6e9)]}))
        self.assertIsNone(figures.limit(case, {"bare": [None], "iperf3-cubic": [run(1e9)]}))

    def test_a_peer_that_failed_is_named_as_such_everywhere(self):
        table = figures.table("case", figures.rows(self.RUNS))
        self.assertRegex(table, "srt +failed in all of 3 rounds")
        self.assertRegex(table, "quinn .* failed in 1 of 3 rounds")
        page = figures.page({}, [("case", self.RUNS)])
        self.assertIn("failed in 3 of 3 rounds", page)
        made = figures.as_json({}, [("case", self.RUNS)])
        srt = json.loads(json.dumps(made, allow_nan=False))["cases"][0]["peers"][2]
        self.assertEqual((srt["name"], srt["failed"], srt["rate"]), ("srt", 3, None))

    def test_a_full_packet_is_counted_with_its_headers(self):
        self.assertAlmostEqual(figures.ip_factor("bare", 1500, 1400), 1460 / 1400)
        self.assertAlmostEqual(figures.ip_factor("tcp", 1500), 1500 / 1448)
        self.assertGreater(figures.ip_factor("tls", 1500), figures.ip_factor("tcp", 1500))

    def test_json_has_every_run_and_page_and_table_have_every_peer(self):
        cases = [("MTU 1500, offload on", self.RUNS)]
        made = json.loads(json.dumps(figures.as_json({"cores": 2}, cases)))
        peers = made["cases"][0]["peers"]
        self.assertEqual([peer["name"] for peer in peers], ["gtp", "quinn", "srt"])
        self.assertEqual([run and run["rate"] for run in peers[1]["runs"]], [5e9, 2e9, None])
        unknown = Run(1.0, 1.0, 0.1, math.nan, False)
        made = figures.as_json({}, [("case", {"gridftp": [unknown]})])
        made = json.loads(json.dumps(made, allow_nan=False))
        self.assertIsNone(made["cases"][0]["peers"][0]["cpu_receiver"])
        page = figures.page({"cores": 2}, cases)
        self.assertEqual(page.count("<rect"), 2)
        table = figures.table("case", figures.rows(self.RUNS))
        self.assertIn("2.00", table)
        self.assertFalse(math.isnan(peers[0]["cpu_sender"]))


if __name__ == "__main__":
    unittest.main()
