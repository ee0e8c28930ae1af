// The channels of emp-tool 1.0: two ends in one process, and NetIO between two processes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "driver.h"

namespace driver {

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

// Runs `party` as emp::ALICE here and as emp::BOB in a second process, over TCP on loopback, and fails where the
// second one does.
template <class Party>
void in_two_processes(Party &&party) {
    in_two_processes(Connections(1), [&](const std::vector<int> &ends, int who) {
        emp::NetIO io(ends[0], true);
        // Where emp makes another connection of these two processes itself.
        const bool server = who == emp::ALICE;
        sockaddr_in address{};
        socklen_t length = sizeof address;
        if ((server ? getsockname : getpeername)(ends[0], reinterpret_cast<sockaddr *>(&address), &length) != 0)
            fail("a connection without a port");
        io.is_server = server;
        io.addr_ = "127.0.0.1";
        io.port_ = ntohs(address.sin_port);
        io.sync();
        io.flush();
        party(&io, who);
        io.flush();
    });
}

}  // namespace driver
