// SRT in its file mode, as a stream, with buffers that never fill; `--key 16` encrypts with
// AES-128, otherwise it is clear.
#include <srt/srt.h>

#include <algorithm>
#include <thread>

#include "common.h"

static void check(int result, const char *what) {
    if (result == SRT_ERROR) {
        fprintf(stderr, "%s: %s\n", what, srt_getlasterror_str());
        exit(1);
    }
}

// A listener of SRT 1.5.1 refuses whoever asks for longer packets than Ethernet's.
static const long LONGEST = 1500;

static SRTSOCKET opened(const Args &args) {
    SRTSOCKET s = srt_create_socket();
    int file = SRTT_FILE, flight = 60000, buffer = 64 << 20;
    int mss = std::min(args.number("mtu", LONGEST), LONGEST);
    int udp = 32 << 20, key = args.number("key", 0);
    check(srt_setsockflag(s, SRTO_TRANSTYPE, &file, sizeof file), "file mode");
    check(srt_setsockflag(s, SRTO_MSS, &mss, sizeof mss), "packet size");
    check(srt_setsockflag(s, SRTO_FC, &flight, sizeof flight), "flight");
    check(srt_setsockflag(s, SRTO_SNDBUF, &buffer, sizeof buffer), "send buffer");
    check(srt_setsockflag(s, SRTO_RCVBUF, &buffer, sizeof buffer), "receive buffer");
    check(srt_setsockflag(s, SRTO_UDP_SNDBUF, &udp, sizeof udp), "UDP send buffer");
    check(srt_setsockflag(s, SRTO_UDP_RCVBUF, &udp, sizeof udp), "UDP receive buffer");
    if (key != 0) {
        check(srt_setsockflag(s, SRTO_PBKEYLEN, &key, sizeof key), "key length");
        check(srt_setsockflag(s, SRTO_PASSPHRASE, "no secret at all", 16), "passphrase");
    }
    return s;
}

static SRTSOCKET connected(const Args &args) {
    SRTSOCKET s = opened(args);
    check(srt_connect(s, (const sockaddr *)&args.address, sizeof args.address), "connect");
    return s;
}

static SRTSOCKET accepted(SRTSOCKET listener) {
    sockaddr_storage from;
    int length = sizeof from;
    SRTSOCKET s = srt_accept(listener, (sockaddr *)&from, &length);
    check(s, "accept");
    return s;
}

// The most bytes that a connection carries which only asks for the round trip.
static const int ASKING = 150;

// SRT takes each path for one of 100 ms until an acknowledgment tells. On one of 300 it times out
// before that, leaves its slow start at 16 packets a second, and is slow for minutes. But it
// remembers a host's round trip: this connection finds it out and ends, and the next one knows.
static void ask(SRTSOCKET s) {
    SRT_TRACEBSTATS known{};
    for (int i = 0; i < ASKING && (known.msRTT == 0 || known.msRTT == 100); i++) {
        check(srt_send(s, "", 1), "ask");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        check(srt_bstats(s, &known, 0), "what is known");
    }
    srt_close(s);
}

static void send(const Args &args) {
    auto bytes = content(args.bytes());
    auto begun = std::chrono::steady_clock::now();
    SRTSOCKET s = connected(args);
    // Two round trips of what it takes for granted.
    if (std::chrono::steady_clock::now() - begun > std::chrono::milliseconds(200)) {
        ask(s);
        s = connected(args);
    }
    Meter meter;
    const size_t total = bytes.size() * args.times();
    for (size_t moved = 0; moved < total;) {
        size_t at = moved % bytes.size();
        int most = std::min<size_t>(bytes.size() - at, 1 << 20);
        int sent = srt_send(s, bytes.data() + at, most);
        check(sent, "send");
        moved += sent;
    }
    char word;
    check(srt_recv(s, &word, 1), "the receiver's word");
    say(meter.stop(total), "null");
    srt_close(s);
}

static void receive(const Args &args) {
    SRTSOCKET listener = opened(args);
    check(srt_bind(listener, (const sockaddr *)&args.address, sizeof args.address), "bind");
    check(srt_listen(listener, 1), "listen");
    std::vector<char> arrived(args.bytes(), 1);
    say_ready();
    SRTSOCKET s = accepted(listener);
    Meter meter;
    const size_t total = arrived.size() * args.times();
    for (size_t moved = 0; moved < total;) {
        size_t at = moved % arrived.size();
        int got = srt_recv(s, arrived.data() + at, std::min<size_t>(arrived.size() - at, 1 << 20));
        if (got <= 0 && moved <= ASKING) {
            srt_close(s);
            s = accepted(listener);
            meter = Meter();
            moved = 0;
            continue;
        }
        check(got, "receive");
        moved += got;
    }
    auto figures = meter.stop(total);
    check(srt_send(s, "", 1), "the last word");
    say(figures, verified(arrived) ? "true" : "false");
    srt_close(s);
    srt_close(listener);
}

int main(int argc, char **argv) {
    Args args(argc, argv);
    srt_startup();
    args.receive ? receive(args) : send(args);
    srt_cleanup();
}
