// What the comparison programs in C++ share: the same command line, content and figures as the
// programs in Rust (../src/lib.rs).
#pragma once
#include <arpa/inet.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

struct Args {
    bool receive;
    sockaddr_in address;
    std::map<std::string, std::string> options;

    Args(int argc, char **argv) {
        if (argc < 3 || argc % 2 == 0) fail("expected: receive|send ADDRESS:PORT [--name value]...");
        std::string role = argv[1], where = argv[2];
        if (role != "receive" && role != "send") fail("expected receive or send");
        receive = role == "receive";
        auto colon = where.find(':');
        address = {};
        address.sin_family = AF_INET;
        if (colon == std::string::npos ||
            inet_pton(AF_INET, where.substr(0, colon).c_str(), &address.sin_addr) != 1)
            fail("not an address");
        address.sin_port = htons(atoi(where.c_str() + colon + 1));
        for (int i = 3; i < argc; i += 2) {
            if (strncmp(argv[i], "--", 2) != 0) fail("not an option");
            options[argv[i] + 2] = argv[i + 1];
        }
    }
    [[noreturn]] static void fail(const char *why) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
    long number(const char *name, long standard) const {
        auto found = options.find(name);
        return found == options.end() ? standard : atol(found->second.c_str());
    }
    std::string word(const char *name, const char *standard) const {
        auto found = options.find(name);
        return found == options.end() ? standard : found->second;
    }
    size_t bytes() const { return number("bytes", 1L << 30); }
    size_t times() const { return number("times", 1); }
};

inline uint64_t word_at(uint64_t place) {
    uint64_t x = place + 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

inline std::vector<char> content(size_t bytes) {
    std::vector<char> made(bytes);
    auto *words = reinterpret_cast<uint64_t *>(made.data());
    for (size_t i = 0; i < bytes / 8; i++) words[i] = word_at(i);
    return made;
}

inline bool verified(const std::vector<char> &arrived) {
    auto *words = reinterpret_cast<const uint64_t *>(arrived.data());
    for (size_t i = 0; i < arrived.size() / 8; i++)
        if (words[i] != word_at(i)) return false;
    return true;
}

class Meter {
    std::chrono::steady_clock::time_point begun;
    double cpu;

    static double used() {
        rusage u{};
        getrusage(RUSAGE_SELF, &u);
        auto s = [](timeval t) { return t.tv_sec + t.tv_usec / 1e6; };
        return s(u.ru_utime) + s(u.ru_stime);
    }

  public:
    Meter() : begun(std::chrono::steady_clock::now()), cpu(used()) {}
    std::string stop(size_t bytes) const {
        std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
        char line[200];
        snprintf(line, sizeof line, "\"bytes\":%zu,\"payload\":0,\"seconds\":%.6f,\"cpu_s\":%.6f",
                 bytes, took.count(), used() - cpu);
        return line;
    }
};

inline void say(const std::string &figures, const char *checked) {
    printf("{%s,\"verified\":%s}\n", figures.c_str(), checked);
    fflush(stdout);
}

inline void say_ready() {
    puts("{\"ready\":true}");
    fflush(stdout);
}
