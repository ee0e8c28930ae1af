// What the drivers share, with every interface of emp: the clock, two processes with connected sockets, and the one
// JSON object that they print.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "emp-tool/emp-tool.h"

#ifndef EMP_VERSION
#error "say what is measured: -DEMP_VERSION='\"1.0.0 COMMIT\"'"
#endif

namespace driver {

[[noreturn]] inline void fail(const std::string &why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::_Exit(1);
}

inline long number(const char *text) {
    char *end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (end == text || *end != 0 || value < 1) fail(std::string(text) + ": not a positive number");
    return value;
}

class Clock {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }

private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// The seconds that the processor has worked for this process, all threads together.
inline double worked() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Measured {
    std::string name, unit;
    double value;
};

// `checksum` is of what was computed: nobody can leave the work out and still print it.
inline void print(const char *peer, emp::block checksum, const std::vector<Measured> &figures) {
    std::uint64_t words[2];
    std::memcpy(words, &checksum, sizeof words);
    std::printf("{\"name\": \"%s\", \"version\": \"%s\", \"checksum\": \"%016llx%016llx\", \"figures\": {", peer,
                EMP_VERSION, (unsigned long long)words[1], (unsigned long long)words[0]);
    const char *before = "";
    for (const Measured &figure : figures) {
        std::printf("%s\"%s\": {\"unit\": \"%s\", \"value\": %.9g}", before, figure.name.c_str(),
                    figure.unit.c_str(), figure.value);
        before = ", ";
    }
    std::printf("}}\n");
    std::fflush(stdout);
}

// Sockets of both ends of so many connections over TCP on loopback, all made before the processes part: nothing is
// lost between a listener that is closed and the next one.
struct Connections {
    std::vector<int> alice, bob;

    explicit Connections(std::size_t count) {
        const int listener = socket(AF_INET, SOCK_STREAM, 0);
        const int again = 1;
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &again, sizeof again);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) != 0 || listen(listener, 1) != 0 ||
            getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length) != 0)
            fail("cannot listen on loopback");
        for (std::size_t made = 0; made < count; ++made) {
            const int end = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(end, reinterpret_cast<const sockaddr *>(&address), length) != 0)
                fail("cannot connect on loopback");
            bob.push_back(end);
            alice.push_back(accept(listener, nullptr, nullptr));
            if (alice.back() < 0) fail("cannot connect on loopback");
        }
        close(listener);
    }
};

// Runs `party` as emp::ALICE here and as emp::BOB in a second process, each with its ends of the connections, and
// fails where the second one does.
template <class Party>
void in_two_processes(const Connections &connections, Party &&party) {
    const pid_t child = fork();
    if (child < 0) fail("cannot fork");
    for (const int end : child == 0 ? connections.alice : connections.bob) close(end);
    if (child == 0) {
        party(connections.bob, emp::BOB);
        std::_Exit(0);
    }
    party(connections.alice, emp::ALICE);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) fail("the second process failed");
}

}  // namespace driver
