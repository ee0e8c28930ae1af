// How fast emp-ot sets up and extends oblivious transfers:
//
//     emp_ot K COUNT
//
// SoftSpoken over GF(2^K) in its malicious variant, all checks on. "base" is 128 Chou-Orlandi transfers
// (semi-honest, P-256), "setup" that of an extension with an empty session after it (128 CSW transfers on P-256,
// trees, checks): the processor's seconds of both parties together. COUNT transfers are made in "memory", the
// parties on a thread each, and over "loopback", in two processes and plain TCP; setup is not counted. "random"
// leaves the choices to the protocol and streams into a buffer that stays in the cache, which is emp's fastest
// form; "chosen" adds the corrections for given choices, a batch at a time. Transfers are checked. One
// measurement of each, after one that is thrown away.
// SPDX-License-Identifier: Apache-2.0
#include "channels.h"

#include "emp-ot/emp-ot.h"

using emp::block;

namespace {

constexpr int BASE = 128;
constexpr long BATCH = 1 << 18;

double base(block &checksum) {
    block zeros[BASE], ones[BASE], received[BASE];
    bool choices[BASE];
    emp::PRG prg;
    prg.random_block(zeros, BASE);
    prg.random_block(ones, BASE);
    prg.random_bool(choices, BASE);
    driver::Pair pair;
    const double before = driver::worked();
    pair.run([&](emp::IOChannel *io) { emp::CO(io).send(zeros, ones, BASE); },
             [&](emp::IOChannel *io) { emp::CO(io).recv(received, choices, BASE); });
    const double seconds = driver::worked() - before;
    for (int i = 0; i < BASE; ++i) {
        const block right = choices[i] ? ones[i] : zeros[i];
        if (!emp::cmpBlock(&received[i], &right, 1)) driver::fail("a base transfer is wrong");
        checksum = checksum ^ received[i];
    }
    return seconds;
}

// One party of an extension: ALICE sends, BOB receives.
template <int k>
class Party {
public:
    Party(int who, emp::IOChannel *io)
        : extension_(who, io), sends_(who == emp::ALICE), rows_((std::size_t)BATCH), choices_(new bool[BATCH]) {
        emp::PRG().random_bool(choices_.get(), BATCH);
        extension_.begin();
        extension_.end();
    }

    // Makes at least `count` transfers of its own choices and returns how many; `rows` begins with the last ones.
    long random(long count) {
        const long chunk = (long)extension_.chunk_size();
        long made = 0;
        extension_.begin();
        for (; made < count; made += chunk) extension_.next(rows_.data());
        extension_.end();
        return made;
    }

    // Makes at least `count` transfers of given choices and returns how many; `rows` is the last batch.
    long chosen(long count) {
        long made = 0;
        for (; made < count; made += BATCH)
            if (sends_)
                extension_.send_cot(rows_.data(), BATCH);
            else
                extension_.recv_cot(rows_.data(), choices_.get(), BATCH);
        return made;
    }

    long chunk() const { return (long)extension_.chunk_size(); }
    block delta() const { return extension_.Delta; }
    block row(long place) const { return rows_[(std::size_t)place]; }
    bool choice(long place) const { return choices_[place]; }

private:
    emp::SoftSpoken<k> extension_;
    bool sends_;
    emp::BlockVec rows_;
    std::unique_ptr<bool[]> choices_;
};

template <int k>
void check(const Party<k> &sender, const Party<k> &receiver, bool chosen, block &checksum) {
    for (long i = 0; i < (chosen ? BATCH : sender.chunk()); ++i) {
        const block got = receiver.row(i);
        const bool choice = chosen ? receiver.choice(i) : emp::getLSB(got);
        const block right = sender.row(i) ^ (choice ? sender.delta() : emp::zero_block);
        if (!emp::cmpBlock(&got, &right, 1)) driver::fail("a transfer is wrong");
        checksum = checksum ^ got;
    }
}

struct Rates {
    double random, chosen;
};

// Returns the processor's seconds of a setup; transfers a second come out in `rates`.
template <int k>
double memory(long count, Rates &rates, block &checksum) {
    driver::Pair pair;
    std::unique_ptr<Party<k>> sender, receiver;
    const double before = driver::worked();
    pair.run([&](emp::IOChannel *io) { sender = std::make_unique<Party<k>>(emp::ALICE, io); },
             [&](emp::IOChannel *io) { receiver = std::make_unique<Party<k>>(emp::BOB, io); });
    const double setup = driver::worked() - before;
    long made = 0;
    const auto random = [&](long many) {
        return pair.run([&](emp::IOChannel *) { made = sender->random(many); },
                        [&](emp::IOChannel *) { receiver->random(many); });
    };
    random(BATCH);
    const double for_random = random(count);
    rates.random = (double)made / for_random;
    check(*sender, *receiver, false, checksum);
    const double for_chosen = pair.run([&](emp::IOChannel *) { made = sender->chosen(count); },
                                       [&](emp::IOChannel *) { receiver->chosen(count); });
    rates.chosen = (double)made / for_chosen;
    check(*sender, *receiver, true, checksum);
    return setup;
}

template <int k>
Rates loopback(long count, block &checksum) {
    Rates rates{};
    const auto send = [&](emp::NetIO *io) {
        Party<k> sender(emp::ALICE, io);
        sender.random(BATCH);
        io->sync();
        const driver::Clock random;
        const long streamed = sender.random(count);
        io->sync();
        rates.random = (double)streamed / random.seconds();
        const driver::Clock chosen;
        const long batched = sender.chosen(count);
        io->sync();
        rates.chosen = (double)batched / chosen.seconds();
        checksum = checksum ^ sender.row(0);
    };
    const auto receive = [&](emp::NetIO *io) {
        Party<k> receiver(emp::BOB, io);
        receiver.random(BATCH);
        io->sync();
        io->flush();
        receiver.random(count);
        io->sync();
        io->flush();
        receiver.chosen(count);
        io->sync();
        io->flush();
    };
    driver::in_two_processes([&](emp::NetIO *io, int who) { who == emp::ALICE ? send(io) : receive(io); });
    return rates;
}

template <int k>
void measure(long count) {
    block checksum = emp::zero_block;
    const Rates between = loopback<k>(count, checksum);
    base(checksum);
    const double transfers = base(checksum);
    Rates within{};
    memory<k>(BATCH, within, checksum);
    const double setup = memory<k>(count, within, checksum);
    driver::print("emp-ot", checksum,
                  {{"base", "s", transfers},
                   {"setup", "s", setup},
                   {"random, memory", "OT/s", within.random},
                   {"chosen, memory", "OT/s", within.chosen},
                   {"random, loopback", "OT/s", between.random},
                   {"chosen, loopback", "OT/s", between.chosen}});
}

}  // namespace

int main(int count, char **arguments) {
    if (count != 3) driver::fail("usage: emp_ot K COUNT");
    const long k = driver::number(arguments[1]), transfers = driver::number(arguments[2]);
    if (k == 2)
        measure<2>(transfers);
    else if (k == 4)
        measure<4>(transfers);
    else if (k == 8)
        measure<8>(transfers);
    else
        driver::fail("K is 2, 4 or 8");
    return 0;
}
