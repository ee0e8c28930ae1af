// What the drivers share: the clock, the two ends of a channel, and the one JSON object that they print.
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
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

// Two ends in one process. What is sent is handed over when the sender flushes or waits, or has sent a lot.
class MemoryIO : public emp::IOChannel {
public:
    struct Way {
        std::mutex mutex;
        std::condition_variable arrived;
        std::vector<char> bytes;
    };

    MemoryIO(Way &out, Way &in) : out_(out), in_(in) {}
    ~MemoryIO() override { flush(); }

    void send_data_internal(const void *data, int64_t length) override {
        const char *from = static_cast<const char *>(data);
        sending_.insert(sending_.end(), from, from + length);
        if (sending_.size() >= PIECE) flush();
    }

    void recv_data_internal(void *data, int64_t length) override {
        flush();
        char *to = static_cast<char *>(data);
        while (length > 0) {
            if (read_ == received_.size()) {
                received_.clear();
                read_ = 0;
                std::unique_lock<std::mutex> lock(in_.mutex);
                in_.arrived.wait(lock, [this] { return !in_.bytes.empty(); });
                received_.swap(in_.bytes);
            }
            const int64_t taken = std::min<int64_t>(length, (int64_t)(received_.size() - read_));
            std::memcpy(to, received_.data() + read_, (std::size_t)taken);
            read_ += (std::size_t)taken;
            to += taken;
            length -= taken;
        }
    }

    void flush() override {
        if (sending_.empty()) return;
        {
            const std::lock_guard<std::mutex> lock(out_.mutex);
            if (out_.bytes.empty())
                out_.bytes.swap(sending_);
            else
                out_.bytes.insert(out_.bytes.end(), sending_.begin(), sending_.end());
        }
        sending_.clear();
        out_.arrived.notify_one();
    }

private:
    static constexpr std::size_t PIECE = 1 << 15;

    Way &out_, &in_;
    std::vector<char> sending_, received_;
    std::size_t read_ = 0;
};

// Both parties in this process.
class Pair {
public:
    // Runs what each of them does, on a thread each, and returns the seconds until both are through.
    template <class A, class B>
    double run(A &&a, B &&b) {
        const Clock clock;
        std::thread other([&] {
            b(&bob_);
            bob_.flush();
        });
        a(&alice_);
        alice_.flush();
        other.join();
        return clock.seconds();
    }

private:
    MemoryIO::Way there_, back_;
    MemoryIO alice_{there_, back_}, bob_{back_, there_};
};

inline int connected(int listener, const sockaddr_in &address, bool listens) {
    if (listens) return accept(listener, nullptr, nullptr);
    const int end = socket(AF_INET, SOCK_STREAM, 0);
    return connect(end, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0 ? end : -1;
}

// Runs `alice` here and `bob` in a second process, over TCP on loopback, and fails where the second one does.
template <class Alice, class Bob>
void in_two_processes(Alice &&alice, Bob &&bob) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length) != 0)
        fail("cannot listen on loopback");
    const pid_t child = fork();
    if (child < 0) fail("cannot fork");
    const int end = connected(listener, address, child != 0);
    close(listener);
    if (end < 0) fail("cannot connect on loopback");
    {
        emp::NetIO io(end, true);
        io.is_server = child != 0;
        io.sync();
        io.flush();
        if (child == 0)
            bob(&io);
        else
            alice(&io);
        io.flush();
    }
    if (child == 0) std::_Exit(0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) fail("the second process failed");
}

}  // namespace driver
