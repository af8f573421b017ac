// UDT 4 as a stream, with buffers that never fill and packets as long as the path carries.
// It has no encryption.
#include <udt/udt.h>

#include "common.h"

static void check(int result, const char *what) {
    if (result == UDT::ERROR) {
        fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
        exit(1);
    }
}

template <typename T>
static void set(UDTSOCKET s, UDT::SOCKOPT option, T value, const char *what) {
    check(UDT::setsockopt(s, 0, option, &value, sizeof value), what);
}

static UDTSOCKET opened(const Args &args) {
    UDTSOCKET s = UDT::socket(AF_INET, SOCK_STREAM, 0);
    set<int>(s, UDT_MSS, args.number("mtu", 1500), "packet size");
    set<int>(s, UDT_FC, 60000, "flight");
    set<int>(s, UDT_SNDBUF, 64 << 20, "send buffer");
    set<int>(s, UDT_RCVBUF, 64 << 20, "receive buffer");
    set<int>(s, UDP_SNDBUF, 32 << 20, "UDP send buffer");
    set<int>(s, UDP_RCVBUF, 32 << 20, "UDP receive buffer");
    return s;
}

static void send(const Args &args) {
    auto bytes = content(args.bytes());
    UDTSOCKET s = opened(args);
    check(UDT::connect(s, (const sockaddr *)&args.address, sizeof args.address), "connect");
    Meter meter;
    const size_t total = bytes.size() * args.times();
    for (size_t moved = 0; moved < total;) {
        size_t at = moved % bytes.size();
        int most = std::min<size_t>(bytes.size() - at, 1 << 20);
        int sent = UDT::send(s, bytes.data() + at, most, 0);
        check(sent, "send");
        moved += sent;
    }
    char word;
    check(UDT::recv(s, &word, 1, 0), "the receiver's word");
    say(meter.stop(total), "null");
    UDT::close(s);
}

static void receive(const Args &args) {
    UDTSOCKET listener = opened(args);
    check(UDT::bind(listener, (const sockaddr *)&args.address, sizeof args.address), "bind");
    check(UDT::listen(listener, 1), "listen");
    std::vector<char> arrived(args.bytes(), 1);
    say_ready();
    sockaddr_storage from;
    int length = sizeof from;
    UDTSOCKET s = UDT::accept(listener, (sockaddr *)&from, &length);
    Meter meter;
    const size_t total = arrived.size() * args.times();
    for (size_t moved = 0; moved < total;) {
        size_t at = moved % arrived.size();
        int got = UDT::recv(s, arrived.data() + at, std::min<size_t>(arrived.size() - at, 1 << 20), 0);
        check(got, "receive");
        moved += got;
    }
    auto figures = meter.stop(total);
    check(UDT::send(s, "", 1, 0), "the last word");
    say(figures, verified(arrived) ? "true" : "false");
    UDT::close(s);
    UDT::close(listener);
}

int main(int argc, char **argv) {
    Args args(argc, argv);
    UDT::startup();
    args.receive ? receive(args) : send(args);
    UDT::cleanup();
}
