// How fast emp-ot sets up and extends oblivious transfers:
//
//     emp_ot K COUNT CHUNKS
//
// SoftSpoken over GF(2^K) in its malicious variant, all checks on. "memory" and "setup" are both parties on two
// threads of one core, which take turns; "loopback" is two processes over plain TCP. COUNT transfers are made at
// a time, CHUNKS times over loopback, setup not counted; "random" leaves the choices to the protocol (emp's
// native form), "chosen" sends the corrections for given ones. "base" is 128 Chou-Orlandi transfers (semi-honest,
// P-256). All transfers in memory are checked. One measurement of each, after one that is thrown away.
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include "emp-ot/emp-ot.h"

using emp::block;

namespace {

constexpr int BASE = 128;

void check(const emp::BlockVec &sent, const emp::BlockVec &received, block delta, block &checksum) {
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const block right = sent[i] ^ (emp::getLSB(received[i]) ? delta : emp::zero_block);
        if (emp::getLSB(sent[i]) || !emp::cmpBlock(&received[i], &right, 1)) driver::fail("a transfer is wrong");
        checksum = checksum ^ received[i];
    }
}

double base(block &checksum) {
    block zeros[BASE], ones[BASE], received[BASE];
    bool choices[BASE];
    emp::PRG prg;
    prg.random_block(zeros, BASE);
    prg.random_block(ones, BASE);
    prg.random_bool(choices, BASE);
    const double seconds = driver::in_turn(
        [&](emp::IOChannel *io) { emp::CO(io).send(zeros, ones, BASE); },
        [&](emp::IOChannel *io) { emp::CO(io).recv(received, choices, BASE); });
    for (int i = 0; i < BASE; ++i) {
        if (!emp::cmpBlock(&received[i], choices[i] ? &ones[i] : &zeros[i], 1)) driver::fail("a base transfer is wrong");
        checksum = checksum ^ received[i];
    }
    return seconds;
}

struct Seconds {
    double setup, random, chosen;
};

// One pair: its setup with an empty session, then batches; the first one is thrown away.
template <int k>
Seconds memory(long count, block &checksum) {
    using Extension = emp::SoftSpoken<k>;
    driver::MemoryIO::Way ab, ba;
    driver::MemoryIO a(ab, ba), b(ba, ab);
    std::unique_ptr<Extension> sender, receiver;
    emp::BlockVec sent((std::size_t)count), received((std::size_t)count);
    const std::unique_ptr<bool[]> choices(new bool[count]);
    emp::PRG().random_bool(choices.get(), count);
    Seconds seconds{};
    const auto turns = [&](auto &&alice, auto &&bob) {
        const driver::Clock clock;
        std::thread other([&] {
            bob();
            b.flush();
        });
        alice();
        a.flush();
        other.join();
        return clock.seconds();
    };
    seconds.setup = turns(
        [&] {
            sender = std::make_unique<Extension>(emp::ALICE, &a);
            sender->begin();
            sender->end();
        },
        [&] {
            receiver = std::make_unique<Extension>(emp::BOB, &b);
            receiver->begin();
            receiver->end();
        });
    for (int batch = 0; batch < 2; ++batch)
        seconds.random =
            turns([&] { sender->rcot(sent.data(), count); }, [&] { receiver->rcot(received.data(), count); });
    check(sent, received, sender->Delta, checksum);
    seconds.chosen = turns([&] { sender->send_cot(sent.data(), count); },
                           [&] { receiver->recv_cot(received.data(), choices.get(), count); });
    for (long i = 0; i < count; ++i) {
        const block right = sent[(std::size_t)i] ^ (choices[i] ? sender->Delta : emp::zero_block);
        if (!emp::cmpBlock(&received[(std::size_t)i], &right, 1)) driver::fail("a chosen transfer is wrong");
        checksum = checksum ^ received[(std::size_t)i];
    }
    return seconds;
}

// Returns transfers a second over loopback, as the sender sees it.
template <int k>
double loopback(long count, long chunks, bool chosen, block &checksum) {
    using Extension = emp::SoftSpoken<k>;
    double rate = 0;
    driver::in_two_processes(
        [&](emp::NetIO *io) {
            Extension sender(emp::ALICE, io);
            emp::BlockVec sent((std::size_t)count);
            sender.rcot(sent.data(), count);
            io->sync();
            const driver::Clock clock;
            for (long chunk = 0; chunk < chunks; ++chunk) {
                if (chosen)
                    sender.send_cot(sent.data(), count);
                else
                    sender.rcot(sent.data(), count);
                checksum = checksum ^ sent[(std::size_t)(chunk % count)];
            }
            io->sync();
            rate = (double)(count * chunks) / clock.seconds();
        },
        [&](emp::NetIO *io) {
            Extension receiver(emp::BOB, io);
            emp::BlockVec received((std::size_t)count);
            const std::unique_ptr<bool[]> choices(new bool[count]);
            emp::PRG().random_bool(choices.get(), count);
            receiver.rcot(received.data(), count);
            io->sync();
            io->flush();
            for (long chunk = 0; chunk < chunks; ++chunk)
                if (chosen)
                    receiver.recv_cot(received.data(), choices.get(), count);
                else
                    receiver.rcot(received.data(), count);
            io->sync();
            io->flush();
        });
    return rate;
}

template <int k>
void measure(long count, long chunks) {
    block checksum = emp::zero_block;
    // Before this process stays on one core: the second process inherits that.
    const double random = loopback<k>(count, chunks, false, checksum);
    const double chosen = loopback<k>(count, chunks, true, checksum);
    driver::stay_on_one_core();
    base(checksum);
    const double transfers = base(checksum);
    memory<k>(count, checksum);
    const Seconds seconds = memory<k>(count, checksum);
    const double number = (double)count;
    driver::print("emp-ot", checksum,
                  {{"base", "s", transfers},
                   {"setup", "s", seconds.setup},
                   {"random, memory", "OT/s", number / seconds.random},
                   {"chosen, memory", "OT/s", number / seconds.chosen},
                   {"random, loopback", "OT/s", random},
                   {"chosen, loopback", "OT/s", chosen}});
}

}  // namespace

int main(int count, char **arguments) {
    if (count != 4) driver::fail("usage: emp_ot K COUNT CHUNKS");
    const long k = driver::number(arguments[1]), transfers = driver::number(arguments[2]);
    const long chunks = driver::number(arguments[3]);
    if (k == 2)
        measure<2>(transfers, chunks);
    else if (k == 4)
        measure<4>(transfers, chunks);
    else if (k == 8)
        measure<8>(transfers, chunks);
    else
        driver::fail("K is 2, 4 or 8");
    return 0;
}
